/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attach connections of links that have ended while the caller still reads its holds: the daemon
 * sent DROPPED, or the library gave the link up. The daemon keeps leased memory unchanged until
 * such a connection closes. After that it may truncate a chunk, and reading the chunk raises
 * SIGBUS. So the connection is closed with the last hold.
 *
 * If the daemon does not know of the end, the library sends a second HELLO. That is an error, for
 * which the daemon drops the session: it frees reservations, requests and staging at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "channel.h"
#include "client.h"
#include "sys.h"

static bool is_read(const struct kvc *k, uint32_t epoch)
{
    for (const struct hold *h = k->holds.live; h != NULL; h = h->next) {
        if (h->pub.epoch == epoch && h->blocks > 0)
            return true;
    }
    return false;
}

int orphan__prepare(struct kvc *k)
{
    if (k->next_orphan == NULL)
        k->next_orphan = sys_malloc(sizeof(*k->next_orphan));
    return k->next_orphan != NULL ? 0 : -ENOMEM;
}

static void say_end(const struct kvc *k)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_hello m = {
        .ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX, .client = codec_text(k->name)};
    int len = codec_enc_att_hello(buf, sizeof(buf), &m);
    /* If there is no room, the daemon does not read the channel, and will end the session for that.
     */
    if (len > 0)
        (void)!channel__send(k->attach_fd, buf, (size_t)len, -1);
}

void orphan__add(struct kvc *k, bool tell)
{
    if (k->state < LINK_REOPENING || k->next_orphan == NULL || !is_read(k, k->epoch))
        return;
    if (tell && channel__is_hung_up(k->attach_fd))
        return; /* the daemon has ended, so the connection keeps nothing */
    if (tell)
        say_end(k);
    struct orphan *p = k->next_orphan;
    MUST(k->attach_fd >= 0);
    fork__forbid();
    *p = (struct orphan){.next = k->orphans, .fd = k->attach_fd, .epoch = k->epoch};
    k->next_orphan = NULL;
    k->orphans = p;
    k->attach_fd = -1;
    fork__allow();
}

bool orphan__has(const struct kvc *k, uint32_t epoch)
{
    const struct orphan *p = k->orphans;
    while (p != NULL && p->epoch != epoch)
        p = p->next;
    return p != NULL && !channel__is_hung_up(p->fd);
}

/* In a child of fork() only the copy is closed: the connection goes on. */
static void close_connection(const struct kvc *k, struct orphan *p)
{
    if (!fork__is_child(k))
        channel__close(&p->fd);
    else if (p->fd >= 0)
        close(p->fd);
}

void orphan__sweep(struct kvc *k)
{
    for (struct orphan **at = &k->orphans; *at != NULL;) {
        struct orphan *p = *at;
        if (is_read(k, p->epoch)) {
            at = &p->next;
            continue;
        }
        fork__forbid();
        *at = p->next;
        close_connection(k, p);
        fork__allow();
        free(p);
    }
}
