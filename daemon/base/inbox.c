/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Senders push onto a stack; the receiver takes all of it and turns it round. With no single pop
 * there is no ABA.
 *
 * No wake-up is lost. Post: (P1) push, (P2) if the list was empty before, write the eventfd. Take:
 * (D1) read the eventfd to zero, (D2) take the list. Take an item that a drain did not find, so P1
 * came after D2. D2 left the list empty, and of the pushes since then the first one saw that, so
 * its sender writes the eventfd after D2, hence after D1: the eventfd becomes readable after the
 * drain cleared it, and a sleeper wakes. In the other order (take, then clear) the clear could
 * swallow that very write. The price is one needless wake-up when P2 comes after a drain that
 * already took the item.
 */
#include "inbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "sys.h"

int inbox_create(struct inbox *inbox)
{
    atomic_init(&inbox->head, NULL);
    inbox->fd = sys_eventfd(EFD_NONBLOCK);
    return inbox->fd < 0 ? -errno : 0;
}

void inbox_destroy(struct inbox *inbox)
{
    if (inbox->fd >= 0)
        (void)close(inbox->fd); /* an eventfd has nothing to flush */
    inbox->fd = -1;
}

void inbox_post(struct inbox *inbox, struct inbox_item *item)
{
    struct inbox_item *head = atomic_load_explicit(&inbox->head, memory_order_relaxed);
    do {
        atomic_store_explicit(&item->next, head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&inbox->head, &head, item, memory_order_release,
                                                    memory_order_relaxed));
    if (head != NULL)
        return;
    /* From the exchange on, the receiver may have freed the item, so only the inbox is used. The
     * counter cannot come near 2^64: write() fails only if the descriptor was closed. */
    const uint64_t one = 1;
    const ssize_t n = write(inbox->fd, &one, sizeof(one));
    MUST(n == sizeof(one));
}

struct inbox_item *inbox_take(struct inbox *inbox)
{
    uint64_t ignored;
    const ssize_t n = read(inbox->fd, &ignored, sizeof(ignored));
    MUST(n == sizeof(ignored) || errno == EAGAIN);
    struct inbox_item *item = atomic_exchange_explicit(&inbox->head, NULL, memory_order_acquire);
    struct inbox_item *oldest = NULL;
    while (item != NULL) {
        struct inbox_item *older = inbox_next(item);
        atomic_store_explicit(&item->next, oldest, memory_order_relaxed);
        oldest = item;
        item = older;
    }
    return oldest;
}
