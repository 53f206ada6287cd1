/* SPDX-License-Identifier: Apache-2.0 */
/* The ROUTER socket, with DEALERs of this process as workers. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "cases.h"
#include "front.h"

#define WAIT_MS 20000 /* only a failure waits this long */
#define TEXTS   8

static char dir[] = "/tmp/kvc-front-XXXXXX";
static char endpoint[64];
static struct front *front;
static void *ctx;

/* What the callback was given. */
static struct {
    unsigned n;
    size_t len[TEXTS];
    char text[TEXTS][32];
    char route[32];
    bool keep;
    void *kept[TEXTS];
    const void *kept_at[TEXTS];
} got;

static void on_message(void *arg, const void *route, size_t route_len, const void *buf, size_t len,
                       void *msg)
{
    (void)arg;
    ck_assert_uint_lt(got.n, TEXTS);
    ck_assert_uint_lt(len, sizeof got.text[0]);
    ck_assert_uint_lt(route_len, sizeof got.route);
    memcpy(got.text[got.n], buf, len);
    memcpy(got.route, route, route_len);
    got.len[got.n] = len;
    if (got.keep)
        got.kept[got.n] = front_keep(front, msg, &got.kept_at[got.n]);
    got.n++;
}

static void setup(void)
{
    memset(&got, 0, sizeof got);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(endpoint, sizeof endpoint, "ipc://%s/control.sock", dir);
    const uint32_t me = getuid();
    struct front_config config = {.endpoint = endpoint,
                                  .mode = 0600,
                                  .message_max = 1000,
                                  .hwm = 100000,
                                  .kept_max = 2,
                                  .peers_max = 8,
                                  .uids = &me,
                                  .nuids = 1};
    ck_assert_int_eq(front_create(&config, &front), 0);
    ctx = zmq_ctx_new();
    ck_assert_ptr_nonnull(ctx);
}

static void teardown(void)
{
    zmq_ctx_term(ctx);
    front_destroy(&front);
    unlink(endpoint + strlen("ipc://"));
    rmdir(dir);
}

/* A route with this name in it; its number is the last letter's. */
static const uint8_t *route_of(const char *name)
{
    static uint8_t route[KVC_ROUTE_BYTES];
    memset(route, '.', sizeof route);
    route[1] = name[strlen(name) - 1] & 7;
    route[2] = 0;
    memcpy(route + 3, name, strlen(name));
    return route;
}

static int answer(const char *name, const void *buf, size_t len)
{
    return front_send(front, route_of(name), KVC_ROUTE_BYTES, buf, len);
}

/* Not admitted. */
static void *stranger_new(const char *name)
{
    const int none = 0, wait_ms = WAIT_MS, hwm = 4, again_ms = 5;
    void *worker = zmq_socket(ctx, ZMQ_DEALER);
    ck_assert_int_eq(zmq_setsockopt(worker, ZMQ_ROUTING_ID, route_of(name), KVC_ROUTE_BYTES), 0);
    ck_assert_int_eq(zmq_setsockopt(worker, ZMQ_RCVHWM, &hwm, sizeof hwm), 0);
    ck_assert_int_eq(zmq_setsockopt(worker, ZMQ_RECONNECT_IVL, &again_ms, sizeof again_ms), 0);
    ck_assert_int_eq(zmq_setsockopt(worker, ZMQ_LINGER, &none, sizeof none), 0);
    ck_assert_int_eq(zmq_setsockopt(worker, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms), 0);
    ck_assert_int_eq(zmq_connect(worker, endpoint), 0);
    return worker;
}

static void *worker_new(const char *name)
{
    front_admit(front, route_of(name), getuid());
    return stranger_new(name);
}

/* Until the limiter has turned away `n` connections. */
static void await_refused(uint64_t n)
{
    struct front_limiter_stats stats;
    unsigned waits = 0;
    for (front_numbers(front, &stats); stats.refused < n; front_numbers(front, &stats)) {
        ck_assert_msg(waits++ < WAIT_MS, "%llu refused", (unsigned long long)stats.refused);
        poll(NULL, 0, 1);
    }
}

static void say(void *worker, const char *text)
{
    ck_assert_int_eq(zmq_send(worker, text, strlen(text), 0), (int)strlen(text));
}

/* As the loop does: sleeps on the descriptor, but never while front_more() says that it may not. */
static void drain_until(unsigned n)
{
    while (got.n < n) {
        struct pollfd p = {.fd = front_fd(front), .events = POLLIN};
        if (!front_more(front))
            ck_assert_msg(poll(&p, 1, WAIT_MS) == 1, "%u of %u messages, then silence", got.n, n);
        front_receive(front, 1, on_message, NULL);
    }
}

CASES(.setup = setup, .teardown = teardown);

CASE(messages_come_with_the_route_of_their_sender)
{
    void *worker = worker_new("worker 1");
    say(worker, "hello");
    drain_until(1);
    ck_assert_mem_eq(got.route, route_of("worker 1"), KVC_ROUTE_BYTES);
    ck_assert_str_eq(got.text[0], "hello");
    zmq_close(worker);
}

CASE(what_is_left_after_a_bounded_drain_is_more)
{
    void *worker = worker_new("worker 1");
    for (unsigned i = 0; i < 3; i++)
        say(worker, "one of three");
    drain_until(1);
    /* The other two are in the socket or on their way; no edge need come for either. */
    drain_until(3);
    ck_assert_uint_eq(got.n, 3);
    front_receive(front, TEXTS, on_message, NULL);
    ck_assert(!front_more(front));
    zmq_close(worker);
}

/* Whoever skips the drain while it is idle misses nothing: the descriptor says so first. */
CASE(an_idle_socket_tells_of_the_next_message)
{
    void *worker = worker_new("worker 1");
    ck_assert(!front_idle(front)); /* nobody has looked yet */
    say(worker, "first");
    drain_until(1);
    ck_assert_uint_eq(front_receive(front, TEXTS, on_message, NULL), 0);
    ck_assert(front_idle(front));
    say(worker, "second");
    struct pollfd p = {.fd = front_fd(front), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
    front_woke(front);
    ck_assert(!front_idle(front));
    drain_until(2);
    ck_assert_int_eq(answer("worker 1", "answer", 6), 0);
    ck_assert(!front_idle(front)); /* a send may have taken the edge */
    while (front_more(front))
        front_receive(front, TEXTS, on_message, NULL);
    ck_assert(front_idle(front));
    zmq_close(worker);
}

/* A send reads the socket's mailbox, and takes with it the edge of a message that came meanwhile.
 */
CASE(a_message_that_came_before_a_send_is_not_slept_over)
{
    void *worker = worker_new("worker 1");
    say(worker, "first");
    drain_until(1);
    ck_assert_uint_eq(front_receive(front, TEXTS, on_message, NULL), 0);
    say(worker, "second");
    struct pollfd p = {.fd = front_fd(front), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1); /* it is there, and nobody has read it */
    ck_assert_int_eq(answer("worker 1", "answer", 6), 0);
    ck_assert(front_more(front));
    drain_until(2);
    ck_assert_str_eq(got.text[1], "second");
    zmq_close(worker);
}

CASE(answers_go_to_their_route_and_to_no_other)
{
    void *first = worker_new("worker 1");
    void *second = worker_new("worker 2");
    say(first, "a");
    say(second, "b");
    drain_until(2);
    ck_assert_int_eq(answer("worker 2", "for two", 7), 0);
    ck_assert_int_eq(answer("worker 1", "for one", 7), 0);
    char text[32] = "";
    ck_assert_int_eq(zmq_recv(first, text, sizeof text, 0), 7);
    ck_assert_mem_eq(text, "for one", 7);
    ck_assert_int_eq(zmq_recv(second, text, sizeof text, 0), 7);
    ck_assert_mem_eq(text, "for two", 7);
    ck_assert_int_eq(answer("worker 3", "x", 1), -EHOSTUNREACH);
    zmq_close(first);
    zmq_close(second);
}

CASE(a_peer_that_does_not_read_is_again_and_not_waited_for)
{
    void *worker = worker_new("worker 1");
    say(worker, "hello");
    drain_until(1);
    static char buf[1 << 16];
    int err = 0;
    unsigned sent = 0;
    for (; err == 0 && sent < 1000; sent++)
        err = answer("worker 1", buf, sizeof buf);
    ck_assert_int_eq(err, -EAGAIN); /* long before the number of messages would stop it */
    ck_assert_uint_gt(sent, (8u << 20) / sizeof buf);
    zmq_close(worker);
}

/* Before anything is refused: half of the room is left for what has begun. */
CASE(a_peer_that_is_slow_is_told_of_in_time)
{
    static char buf[1 << 16];
    void *worker = worker_new("worker 1");
    say(worker, "hello");
    drain_until(1);
    unsigned sent = 0;
    for (; !front_backlogged(front, route_of("worker 1"), KVC_ROUTE_BYTES); sent++) {
        ck_assert_uint_lt(sent, 1000);
        ck_assert_int_eq(answer("worker 1", buf, sizeof buf), 0);
    }
    for (unsigned i = 0; i < (3u << 20) / sizeof buf; i++, sent++)
        ck_assert_int_eq(answer("worker 1", buf, sizeof buf), 0);
    while (sent-- > 0)
        ck_assert_int_eq(zmq_recv(worker, buf, sizeof buf, 0), (int)sizeof buf);
    unsigned waits = 0;
    while (front_backlogged(front, route_of("worker 1"), KVC_ROUTE_BYTES)) {
        ck_assert_uint_lt(waits++, WAIT_MS);
        poll(NULL, 0, 1);
    }
    zmq_close(worker);
}

/* More of them than there are rooms, and they are not read before the last is sent; twice. */
CASE(large_answers_arrive_as_they_were_sent)
{
    enum { N = 12, BYTES = 200000 };
    static uint8_t sent[BYTES], read[BYTES];
    void *worker = worker_new("worker 1");
    say(worker, "hello");
    drain_until(1);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < N; i++) {
            memset(sent, (int)(16 * round + i + 1), BYTES);
            ck_assert_int_eq(answer("worker 1", sent, BYTES), 0);
        }
        for (unsigned i = 0; i < N; i++) {
            memset(sent, (int)(16 * round + i + 1), BYTES);
            ck_assert_int_eq(zmq_recv(worker, read, BYTES, 0), BYTES);
            ck_assert_mem_eq(read, sent, BYTES);
        }
    }
    zmq_close(worker);
}

CASE(a_message_of_several_frames_is_one_without_bytes)
{
    void *worker = worker_new("worker 1");
    ck_assert_int_eq(zmq_send(worker, "one", 3, ZMQ_SNDMORE), 3);
    ck_assert_int_eq(zmq_send(worker, "two", 3, 0), 3);
    say(worker, "after");
    drain_until(2);
    ck_assert_uint_eq(got.len[0], 0);
    ck_assert_str_eq(got.text[1], "after");
    zmq_close(worker);
}

CASE(a_message_above_the_limit_is_not_delivered)
{
    void *large = worker_new("large");
    void *small = worker_new("small");
    static char buf[1001];
    ck_assert_int_eq(zmq_send(large, buf, sizeof buf, 0), (int)sizeof buf);
    say(small, "small");
    drain_until(1);
    ck_assert_mem_eq(got.route, route_of("small"), KVC_ROUTE_BYTES);
    zmq_close(large);
    zmq_close(small);
}

CASE(kept_messages_outlive_the_callback_up_to_the_limit)
{
    void *worker = worker_new("worker 1");
    got.keep = true;
    for (unsigned i = 0; i < 3; i++)
        say(worker, "keep me");
    drain_until(3);
    ck_assert_ptr_nonnull(got.kept[0]);
    ck_assert_ptr_nonnull(got.kept[1]);
    ck_assert_ptr_null(got.kept[2]);
    ck_assert_mem_eq(got.kept_at[1], "keep me", 7);
    front_unkeep(front, got.kept[0]);
    say(worker, "keep me too");
    drain_until(4);
    ck_assert_ptr_nonnull(got.kept[3]);
    front_unkeep(front, got.kept[1]);
    front_unkeep(front, got.kept[3]);
    zmq_close(worker);
}

CASE(who_is_not_admitted_is_not_heard)
{
    void *worker = worker_new("worker 1");
    say(worker, "admitted");
    drain_until(1);
    front_dismiss(front, route_of("worker 1"));
    ck_assert_int_eq(answer("worker 1", "x", 1), -EHOSTUNREACH);
    void *other = worker_new("worker 2");
    say(worker, "no more");
    say(other, "but this one");
    drain_until(2);
    ck_assert_str_eq(got.text[1], "but this one");
    struct front_limiter_stats stats;
    front_numbers(front, &stats);
    ck_assert_uint_eq(stats.cut, 0);
    zmq_close(worker);
    zmq_close(other);
}

static int bare_new(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", endpoint + strlen("ipc://"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&addr, sizeof addr), 0);
    return fd;
}

/* Each admitted one that is not connected may be about to; and eight more. */
CASE(who_is_awaited_gets_in_however_many_come_at_once)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g"};
    int fd[7 + 8];
    struct front_limiter_stats stats;
    for (unsigned i = 0; i < 7; i++)
        front_admit(front, route_of(names[i]), getuid());
    for (unsigned i = 0; i < 15; i++)
        fd[i] = bare_new();
    int more = bare_new();
    await_refused(1);
    front_numbers(front, &stats);
    ck_assert_uint_eq(stats.refused, 1); /* that one; they were accepted in turn */
    void *worker = stranger_new("a");
    await_refused(2);
    close(fd[0]); /* its place is the worker's, which has been trying all the time */
    say(worker, "let in");
    drain_until(1);
    for (unsigned i = 1; i < 15; i++)
        close(fd[i]);
    front_dismiss(front, route_of("g")); /* nobody is awaited twice */
    zmq_close(worker);
    for (unsigned i = 0; i < 6; i++)
        front_dismiss(front, route_of(names[i]));
    front_numbers(front, &stats);
    for (unsigned i = 0; i < 8; i++)
        fd[i] = bare_new();
    close(more);
    more = bare_new();
    await_refused(stats.refused + 1);
    for (unsigned i = 0; i < 8; i++)
        close(fd[i]);
    close(more);
}

CASE(a_route_is_for_its_uid)
{
    front_admit(front, route_of("worker 1"), getuid() + 1);
    void *worker = stranger_new("worker 1");
    void *other = worker_new("worker 2");
    say(worker, "not mine");
    await_refused(5);
    say(other, "mine");
    drain_until(1);
    ck_assert_str_eq(got.text[0], "mine");
    zmq_close(worker);
    zmq_close(other);
}

CASE(what_an_earlier_connection_sent_is_handled_before_the_next_may_speak)
{
    void *first = worker_new("worker 1");
    say(first, "first");
    for (unsigned waits = 0; !front_more(front); waits++) { /* until it is there, unread */
        ck_assert_uint_lt(waits, WAIT_MS);
        poll(NULL, 0, 1);
    }
    zmq_close(first);
    void *second = stranger_new("worker 1");
    await_refused(20); /* some because the first had not gone; as long as its message waits, all */
    ck_assert_uint_eq(got.n, 0);
    drain_until(1);
    ck_assert_str_eq(got.text[0], "first");
    /* What goes out over the last connection that is turned away is lost. */
    for (unsigned tries = 0; got.n < 2; tries++) {
        struct pollfd p = {.fd = front_fd(front), .events = POLLIN};
        ck_assert_uint_lt(tries, 100);
        say(second, "second");
        if (!front_more(front))
            poll(&p, 1, 200);
        front_receive(front, 1, on_message, NULL);
    }
    ck_assert_str_eq(got.text[1], "second");
    zmq_close(second);
}

CASES();

/* Whatever ZeroMQ makes of a stream: what was not counted is not handed on, and nothing ends. */
CASE(a_request_that_was_never_counted_is_no_request)
{
    const uint32_t me = getuid();
    const struct front_limiter_config config = {
        .peers_max = 8, .uids = &me, .nuids = 1, .message_max = 1000};
    struct front_limiter *g;
    ck_assert_int_eq(front_limiter_create(&config, -1, &g), 0);
    front_limiter_admit(g, route_of("worker 1"), me);
    ck_assert_int_eq(front_limiter_taken(g, route_of("worker 1"), KVC_ROUTE_BYTES, 1), -EPROTO);
    ck_assert_int_eq(front_limiter_taken(g, route_of("worker 1"), KVC_ROUTE_BYTES, 0), 0);
    ck_assert_int_eq(front_limiter_taken(g, "x", 1, 0), -EPROTO);
    ck_assert_int_eq(front_limiter_sending(g, route_of("worker 1"), KVC_ROUTE_BYTES, 1),
                     -EHOSTUNREACH);
    front_limiter_unsent(g, route_of("worker 1"), KVC_ROUTE_BYTES, 1); /* never charged */
    front_limiter_tick(g, UINT64_MAX);
    front_limiter_destroy(&g);
}

CASES(.setup = setup, .teardown = teardown);

CASE(the_socket_has_the_mode_that_was_asked_for)
{
    struct stat st;
    ck_assert_int_eq(stat(endpoint + strlen("ipc://"), &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0600);
}

CASE(an_endpoint_in_no_directory_is_refused)
{
    struct front_config config = {.endpoint = "ipc:///nowhere/at/all/control.sock",
                                  .mode = 0600,
                                  .message_max = 1000,
                                  .hwm = 4,
                                  .kept_max = 2};
    struct front *other = NULL;
    ck_assert_int_lt(front_create(&config, &other), 0);
    ck_assert_ptr_null(other);
}
