/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "cases.h"
#include "inbox.h"
#include "list.h"

struct message {
    struct inbox_item item;
    unsigned sender, number;
};

static struct message *message_of(struct inbox_item *item)
{
    return CONTAINER_OF(item, struct message, item);
}

static bool readable(const struct inbox *in, int timeout_ms)
{
    struct pollfd p = {.fd = inbox_fd(in), .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

CASE(an_empty_inbox_gives_nothing)
{
    struct inbox in;
    ck_assert_int_eq(inbox_create(&in), 0);
    ck_assert(!readable(&in, 0));
    ck_assert(!inbox_pending(&in));
    ck_assert_ptr_null(inbox_take(&in));
    inbox_destroy(&in);
    inbox_destroy(&in);
}

CASE(items_come_in_the_order_of_their_posts)
{
    struct inbox in;
    struct message m[5] = {{.number = 0}};
    ck_assert_int_eq(inbox_create(&in), 0);
    for (unsigned i = 0; i < 5; i++) {
        m[i].number = i;
        inbox_post(&in, &m[i].item);
    }
    ck_assert(inbox_pending(&in));
    unsigned want = 0;
    for (struct inbox_item *item = inbox_take(&in); item != NULL; item = inbox_next(item))
        ck_assert_uint_eq(message_of(item)->number, want++);
    ck_assert_uint_eq(want, 5);
    inbox_destroy(&in);
}

CASE(the_eventfd_tells_of_items_and_is_cleared_by_a_drain)
{
    struct inbox in;
    struct message m[2] = {{.number = 0}};
    ck_assert_int_eq(inbox_create(&in), 0);
    inbox_post(&in, &m[0].item);
    ck_assert(readable(&in, 0));
    inbox_post(&in, &m[1].item);
    ck_assert_ptr_nonnull(inbox_take(&in));
    ck_assert(!readable(&in, 0));
    inbox_post(&in, &m[0].item); /* an item may be posted again */
    ck_assert(readable(&in, 0));
    ck_assert_ptr_eq(inbox_take(&in), &m[0].item);
    inbox_destroy(&in);
}

CASE(the_eventfd_is_written_once_for_many_posts)
{
    struct inbox in;
    struct message m[10] = {{.number = 0}};
    uint64_t value = 0;
    ck_assert_int_eq(inbox_create(&in), 0);
    for (unsigned i = 0; i < 10; i++)
        inbox_post(&in, &m[i].item);
    ck_assert_int_eq(eventfd_read(inbox_fd(&in), &value), 0);
    ck_assert_uint_eq(value, 1);
    inbox_destroy(&in);
}

enum { SENDERS = 4, POSTS = 5000 };

struct sender {
    struct inbox *in;
    struct message *messages;
    unsigned pause;
    pthread_t thread;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    for (unsigned i = 0; i < POSTS; i++) {
        inbox_post(s->in, &s->messages[i].item);
        if (i % 4 == s->pause)
            (void)sched_yield(); /* lets the receiver run dry: most wake-ups are at stake then */
    }
    return NULL;
}

static void start(struct sender *s, struct inbox *in, unsigned id)
{
    s->in = in;
    s->pause = id;
    s->messages = calloc(POSTS, sizeof(struct message));
    ck_assert_ptr_nonnull(s->messages);
    for (unsigned i = 0; i < POSTS; i++) {
        s->messages[i].sender = id;
        s->messages[i].number = i;
    }
    ck_assert_int_eq(pthread_create(&s->thread, NULL, send_all, s), 0);
}

/* The receiver sleeps on the eventfd alone: a lost wake-up leaves it asleep with items inside. The
 * test's own time limit is then what fails. */
CASE_EACH(four_senders_lose_no_item_and_no_wakeup, 20)
{
    struct inbox in;
    struct sender senders[SENDERS] = {0};
    unsigned next[SENDERS] = {0}, received = 0;
    ck_assert_int_eq(inbox_create(&in), 0);
    for (unsigned i = 0; i < SENDERS; i++)
        start(&senders[i], &in, i);
    while (received < SENDERS * POSTS) {
        ck_assert(readable(&in, -1));
        for (struct inbox_item *item = inbox_take(&in), *after; item != NULL; item = after) {
            after = inbox_next(item);
            struct message *m = message_of(item);
            ck_assert_uint_eq(m->number, next[m->sender]++);
            received++;
        }
    }
    for (unsigned i = 0; i < SENDERS; i++) {
        ck_assert_int_eq(pthread_join(senders[i].thread, NULL), 0);
        free(senders[i].messages);
    }
    ck_assert_ptr_null(inbox_take(&in));
    inbox_destroy(&in);
}
