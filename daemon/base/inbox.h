/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages from any thread to one: an intrusive list with an eventfd to sleep on.
 *
 * Threads: inbox_post() from any; everything else from the one that receives.
 * Ownership: post hands the item over, take hands it to the receiver. Neither allocates or waits.
 * Order: items of one sender arrive in the order of their posts.
 * The eventfd is written only when the list goes from empty to non-empty; inbox.c argues why no
 * wake-up can be lost.
 */
#ifndef KVC_BASE_INBOX_H
#define KVC_BASE_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>

#include "err.h"

/* Embedded in the message; CONTAINER_OF() gets back to it. */
struct inbox_item {
    _Atomic(struct inbox_item *) next;
};

struct inbox {
    _Atomic(struct inbox_item *) head; /* newest first */
    int fd;
};

/* Negative errno of eventfd(2), and then inbox_destroy() is still allowed. */
KVC_WARN_UNUSED int inbox_create(struct inbox *inbox);
/* Only after every sender has ended: a sender may touch the eventfd after its item was received.
 * The caller first takes the items that are left. Safe after a failed create, and twice. */
void inbox_destroy(struct inbox *inbox);

void inbox_post(struct inbox *inbox, struct inbox_item *item);

/* Clears the eventfd and takes all there is, oldest first, or NULL. Must be called whenever the
 * eventfd is readable; may be called at any time, and the eventfd may be readable with nothing
 * inside. */
KVC_WARN_UNUSED struct inbox_item *inbox_take(struct inbox *inbox);

/* The item after `item` in what take returned, or NULL. Ask before handing `item` on: its
 * receiver may post it again. */
static inline struct inbox_item *inbox_next(const struct inbox_item *item)
{
    return atomic_load_explicit(&item->next, memory_order_relaxed);
}

/* Whether a take now would find something; no system call. */
static inline bool inbox_pending(const struct inbox *inbox)
{
    return atomic_load_explicit(&inbox->head, memory_order_relaxed) != NULL;
}

/* Non-blocking; readable when there may be something to take. */
static inline int inbox_fd(const struct inbox *inbox)
{
    return inbox->fd;
}

#endif
