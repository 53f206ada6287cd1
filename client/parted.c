/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that the daemon has ended (DROPPED) while the caller still reads what it holds. The
 * daemon keeps leased memory as it is until such a connection closes; after that a chunk may be
 * truncated, and reading it raises SIGBUS. So the connection is closed with the last hold.
 */
#include <errno.h>
#include <stdlib.h>

#include "channel.h"
#include "client.h"
#include "sys.h"

static bool is_read(const struct kvc *k, uint32_t epoch)
{
    for (const struct hold *h = k->live_holds; h != NULL; h = h->next) {
        if (h->pub.epoch == epoch && h->blocks > 0)
            return true;
    }
    return false;
}

int parted__prepare(struct kvc *k)
{
    if (k->parting == NULL)
        k->parting = sys_malloc(sizeof(*k->parting));
    return k->parting != NULL ? 0 : -ENOMEM;
}

void parted__add(struct kvc *k)
{
    struct parted *p = k->parting;
    if (!is_read(k, k->epoch))
        return; /* kvc__down closes it */
    k->parting = NULL;
    *p = (struct parted){.next = k->parted, .fd = k->attach_fd, .epoch = k->epoch};
    k->parted = p;
    k->attach_fd = -1;
}

bool parted__has(const struct kvc *k, uint32_t epoch)
{
    const struct parted *p = k->parted;
    while (p != NULL && p->epoch != epoch)
        p = p->next;
    return p != NULL;
}

void parted__sweep(struct kvc *k)
{
    for (struct parted **at = &k->parted; *at != NULL;) {
        struct parted *p = *at;
        if (is_read(k, p->epoch)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        channel__close(&p->fd);
        free(p);
    }
}
