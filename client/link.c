/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between a session and the daemon: the attach channel, on which datagrams arrive and
 * leave, and the end of both sockets. kvc.take_news, which is news__take() in news.c, handles the
 * datagrams that arrive.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "channel.h"
#include "sys.h"

/* ---- its end ---- */

/* Completes all requests with `error`, and frees the library's own. `has_exited`: the daemon's
 * process has ended, so nothing touches pages any more. */
static void link_fail_all(struct kvc *k, int error, bool has_exited)
{
    struct kvc_op *next;
    for (struct kvc_op *op = k->ops.live; op != NULL; op = next) {
        next = op->next;
        /* NEW: the function that is sending the op completes it. DAEMON_EXIT: the op is of an
         * earlier link. */
        if (op->stage == OP_DONE || op->stage == OP_NEW || op->stage == OP_DAEMON_EXIT)
            continue;
        if (op->then != NULL)
            op__free(op);
        else if (has_exited || !daemon_exit__takes(op, error))
            op__complete(op, error);
    }
}

static int end_link(struct kvc *k, int error)
{
    const bool has_exited = daemon_exit__begin(k);
    watch__remove(k, k->wire.fd);
    wire__disconnect(&k->wire);
    map__retire_all(&k->maps); /* before the connection closes, which tells the daemon so */
    fork__forbid();
    channel__close(&k->attach_fd);
    fork__allow();
    k->state = LINK_DOWN;
    k->down_error = error;
    kvc__forget_asked(k);
    k->mems.asked = 0;
    k->reopening = 0;
    k->is_probed = false;
    link_fail_all(k, error, has_exited);
    watch__update(k);
    return error;
}

int kvc__down(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    staging__leave(k);
    watch__remove(k, k->attach_fd);
    orphan__add(k, true);
    return end_link(k, error);
}

int kvc__lost(struct kvc *k, int error, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(k->error, sizeof(k->error), fmt, ap);
    va_end(ap);
    watch__remove(k, k->attach_fd);
    k->silent_ns = 0; /* the next daemon is another one */
    return end_link(k, error);
}

int kvc__malformed(struct kvc *k, const char *what)
{
    return kvc__down(k, KVC_E_BAD_MESSAGE, "the daemon sent a malformed %s; disconnected", what);
}

int kvc__dropped(struct kvc *k, const uint8_t *buf, size_t len)
{
    struct att_dropped d;
    if (codec_dec_att_dropped(buf, len, &d) < 0)
        return kvc__malformed(k, "DROPPED");
    watch__remove(k, k->attach_fd);
    orphan__add(k, false);
    return kvc__lost(k, KVC_E_DOWN, "the daemon ended the session: %s: %.*s",
                     codec_status_name(d.status), (int)d.detail.n, (const char *)d.detail.p);
}

/* ---- what the daemon says ---- */

int kvc__datagram(struct kvc *k, uint8_t buf[KVC_ATTACH_MAX], int *ret_passed)
{
    int n = channel__recv(k->attach_fd, buf, KVC_ATTACH_MAX, ret_passed);
    if (n == -EPROTO)
        return kvc__malformed(k, "attach message");
    if (n < 0)
        return kvc__lost(k, KVC_E_DOWN, "the daemon at %s is gone (%s)", k->socket,
                         n == -EPIPE ? "it closed the connection" : strerrordesc_np(-n));
    if (n > 0)
        k->silent_ns = 0;
    return n;
}

int kvc__news(struct kvc *k)
{
    k->news_ns = kvc__now();
    kvc__tell_unmapped(k);
    for (;;) {
        uint8_t buf[KVC_ATTACH_MAX];
        int passed = -1;
        int n = kvc__datagram(k, buf, &passed);
        if (n <= 0)
            return n;
        int rc = k->take_news(k, buf, (size_t)n, passed);
        if (passed >= 0)
            close(passed);
        if (rc < 0)
            return rc;
    }
}

/* ---- what it is told ---- */

int kvc__tell(struct kvc *k, const void *buf, int len, int pass, uint64_t until_ns)
{
    if (len < 0)
        return kvc__fail(k, len, "an attach message does not fit %u bytes", KVC_ATTACH_MAX);
    for (;;) {
        int rc = channel__send(k->attach_fd, buf, (size_t)len, pass);
        if (rc == 0)
            return 0;
        if (rc != -EAGAIN)
            return kvc__lost(k, KVC_E_DOWN, "the daemon at %s is gone (%s)", k->socket,
                             strerrordesc_np(-rc));
        struct pollfd p = {.fd = k->attach_fd, .events = POLLOUT};
        if (poll(&p, 1, kvc__poll_ms(until_ns)) == 0 && kvc__ms_until(until_ns) == 0)
            return kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not read the attach channel");
    }
}

bool kvc__tell_unmapped(struct kvc *k)
{
    while (k->maps.unmapped != NULL && k->state >= LINK_REOPENING && !fork__is_child(k)) {
        uint8_t buf[KVC_ATTACH_MAX];
        const struct att_unmapped m = {.chunk = k->maps.unmapped->chunk};
        int len = codec_enc_att_unmapped(buf, sizeof(buf), &m);
        /* If the connection takes no more, a later call tells the rest. If it has ended, the next
         * read from it notices that. */
        if (len < 0 || channel__send(k->attach_fd, buf, (size_t)len, -1) != 0)
            return false;
        map__said(&k->maps);
    }
    return true;
}

/* ---- chunks that are asked for ---- */

/* The questions about chunks that the daemon has not answered. */
struct asked {
    uint32_t n, cap;
    uint64_t question[]; /* ASK_* | chunk */
};

static bool is_asked(const struct asked *a, uint64_t question)
{
    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        if (a->question[i] == question)
            return true;
    }
    return false;
}

/* Room for one more question. */
static int asked_grow(struct kvc *k)
{
    struct asked *a = k->asked;
    if (a != NULL && a->n < a->cap)
        return 0;
    const uint32_t n = a != NULL ? a->n : 0;
    const uint32_t cap = a != NULL ? 2 * a->cap : 16;
    a = sys_realloc(a, sizeof(*a) + cap * sizeof(a->question[0]));
    if (a == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    a->n = n;
    a->cap = cap;
    k->asked = a;
    return 0;
}

int kvc__ask_chunk(struct kvc *k, uint64_t what, uint32_t chunk)
{
    if (is_asked(k->asked, what | chunk))
        return 0;
    /* UNMAPPED must come first: after the question it would be about the newly mapped chunk. */
    if (!kvc__tell_unmapped(k))
        return kvc__fail(k, KVC_E_TIMEOUT, "the daemon does not read the attach channel");
    int rc = asked_grow(k);
    if (rc < 0)
        return rc;
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_map ask = {.chunk = chunk};
    struct att_map_on ask_on = {.chunk = chunk};
    int len = what == ASK_ON ? codec_enc_att_map_on(buf, sizeof(buf), &ask_on)
                             : codec_enc_att_map(buf, sizeof(buf), &ask);
    rc = kvc__tell(k, buf, len, -1, 0);
    if (rc == 0)
        k->asked->question[k->asked->n++] = what | chunk;
    return rc;
}

void kvc__chunk_answered(struct kvc *k, uint64_t what, uint32_t chunk)
{
    struct asked *a = k->asked;
    for (uint32_t i = 0; a != NULL && i < a->n; i++) {
        if (a->question[i] == (what | chunk))
            a->question[i--] = a->question[--a->n];
    }
}

void kvc__forget_asked(struct kvc *k)
{
    if (k->asked != NULL)
        k->asked->n = 0;
}
