/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in flight, driven from a loop of the caller's. "Never waits" is shown by tests whose
 * deadlines lie beyond their own limit of time; "wakes up" by polls without a timeout.
 */
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

#define IN_FLIGHT 64

/* ---- loops ---- */

static void wait_readable(int timeout_ms)
{
    struct pollfd p = {.fd = kvc_fd(kvc), .events = POLLIN};
    int rc;
    do {
        rc = poll(&p, 1, timeout_ms);
    } while (rc < 0 && errno == EINTR);
    ck_assert_int_eq(rc, 1);
    ck_assert_int_eq(p.revents, POLLIN);
}

static bool is_readable(void)
{
    struct pollfd p = {.fd = kvc_fd(kvc), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* The next op that is done. */
static struct kvc_op *next_op(void)
{
    struct kvc_op *op = NULL;
    while (kvc_next(kvc, &op) == 0) {
        wait_readable(-1);
        ck_assert_int_ge(kvc_progress(kvc), 0);
    }
    ck_assert_ptr_nonnull(op);
    ck_assert(kvc_done(op));
    return op;
}

static struct kvc_result finish_next(int expected)
{
    struct kvc_op *op = next_op();
    struct kvc_result r;
    int rc = kvc_finish(&op, &r);
    ck_assert_msg(rc == expected, "%s: %s", kvc_error_name(rc), kvc_last_error(kvc));
    ck_assert_ptr_null(op);
    return r;
}

static struct kvc_op *begin_lookup(uintptr_t number)
{
    struct kvc_seq seq = seq_of(4);
    struct kvc_op *op;
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &op), 0);
    kvc_op_set_user(op, (void *)number);
    return op;
}

static void delayed(uint8_t op, uint32_t delay_ms, uint32_t times)
{
    fake.s->rule[0] =
        (struct fake_rule){.op = op, .what = FAKE_ANSWER, .times = times, .delay_ms = delay_ms};
}

/* ---- kinds ---- */

CASES(.setup = start_open, .teardown = stop);

CASE(each_kind_has_a_begin_half)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_blocks b = blocks_of(2);
    struct kvc_ns_spec spec = spec_of("qwen");
    uint64_t offsets[2] = {0, 4096};
    uint8_t ticket[KVC_TICKET_BYTES];
    struct kvc_op *op;
    atomic_store(&fake.s->hit_blocks, 2);
    memset(ticket, 0x5a, sizeof(ticket));

    ck_assert_int_eq(kvc_ping_begin(kvc, &op), 0);
    ck_assert_uint_eq(finish_next(0).uptime_ms, 4242);
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert_uint_eq(kvc_ns_id(finish_next(0).ns), 102);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &op), 0);
    ck_assert_uint_eq(finish_next(0).prefix.tokens, 32);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    struct kvc_hold *h = finish_next(0).hold;
    ck_assert_uint_eq(*(const uint8_t *)h->group[0].block[1].data, fake_byte(0, 1));
    kvc_release(kvc, &h);
    ck_assert_int_eq(kvc_redeem_begin(ns, ticket, &op), 0);
    h = finish_next(0).hold;
    ck_assert_uint_eq(h->group[0].n, 2);
    kvc_release(kvc, &h);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    ck_assert_uint_eq(finish_next(0).n, 2);
}

CASE(a_reservation_is_made_committed_and_dropped)
{
    struct kvc_blocks b = blocks_of(2);
    uint64_t offsets[2] = {0, UINT64_MAX};
    struct kvc_op *op;
    ck_assert_int_eq(kvc_reserve_begin(ns, &b, &op), 0);
    struct kvc_result r = finish_next(0);
    ck_assert_uint_eq(r.kind, KVC_OP_RESERVE);
    ck_assert_uint_ne(r.reservation, 0);
    ck_assert_uint_eq(r.n, 2);
    ck_assert_uint_eq(r.statuses[1], KVC_ST_OK);
    ck_assert_int_eq(kvc_commit_begin(ns, r.reservation, 0, 2, offsets, NULL, 0, &op), 0);
    ck_assert_uint_eq(finish_next(0).n, 2);
    ck_assert_int_eq(kvc_drop_begin(kvc, r.reservation, &op), 0);
    (void)finish_next(0);
    ck_assert_uint_eq(atomic_load(&fake.s->dropped_reservation), 1);
    ck_assert_int_eq(kvc_drop_begin(kvc, r.reservation, &op), KVC_E_GONE);
}

CASE(a_known_namespace_is_opened_without_a_request)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_op *op;
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert(kvc_done(op));
    ck_assert_ptr_eq(finish_next(0).ns, ns);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]), 1);
}

CASE(a_namespace_begun_twice_is_one)
{
    struct kvc_ns_spec spec = spec_of("qwen");
    struct kvc_op *op;
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    struct kvc_ns *first = finish_next(0).ns;
    ck_assert_ptr_eq(finish_next(0).ns, first);
}

CASE(a_refused_namespace_tells_why)
{
    struct kvc_ns_spec spec = spec_of("bert");
    struct kvc_op *op;
    spec.attention = "bidirectional";
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert_ptr_null(finish_next(KVC_E_UNSOUND).ns);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "attention is bidirectional"));
}

/* ---- many ---- */

CASE(many_in_flight_are_each_answered_once)
{
    struct epoll_event e = {.events = EPOLLIN}, got;
    bool seen[IN_FLIGHT] = {false};
    int loop = epoll_create1(EPOLL_CLOEXEC), done = 0;
    ck_assert_int_eq(epoll_ctl(loop, EPOLL_CTL_ADD, kvc_fd(kvc), &e), 0);
    delayed(KVC_OP_LOOKUP, 20, IN_FLIGHT / 2);
    for (uintptr_t i = 0; i < IN_FLIGHT; i++)
        (void)begin_lookup(i);
    while (done < IN_FLIGHT) {
        struct kvc_op *op;
        ck_assert_int_eq(epoll_wait(loop, &got, 1, -1), 1);
        (void)kvc_progress(kvc);
        while (kvc_next(kvc, &op) > 0) {
            struct kvc_result r;
            ck_assert_int_eq(kvc_finish(&op, &r), 0);
            ck_assert(!seen[(uintptr_t)r.user]);
            seen[(uintptr_t)r.user] = true;
            done++;
        }
    }
    ck_assert(!is_readable());
    close(loop);
}

CASE(what_is_done_first_comes_first)
{
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_AFTER_NEXT, 0, 1);
    (void)begin_lookup(1);
    (void)begin_lookup(2);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 2);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

CASE(an_op_can_be_waited_for_among_others)
{
    struct kvc_op *first = begin_lookup(1), *second = begin_lookup(2);
    struct kvc_prefix p;
    ck_assert_int_eq(kvc_wait(&second, &p, NULL, NULL), 0);
    struct kvc_op *op = next_op();
    ck_assert_ptr_eq(op, first);
    ck_assert_int_eq(kvc_wait(&op, &p, NULL, NULL), 0);
    ck_assert_int_eq(kvc_next(kvc, &op), 0);
}

/* ---- the level ---- */

CASE(it_is_readable_until_all_is_taken)
{
    ck_assert(!is_readable());
    (void)begin_lookup(1);
    (void)begin_lookup(2);
    while (kvc_progress(kvc) < 2)
        wait_readable(-1);
    ck_assert(is_readable());
    (void)finish_next(0);
    ck_assert(is_readable());
    (void)finish_next(0);
    ck_assert(!is_readable());
}

/* The reply is inside ZeroMQ, whose own descriptor has been emptied by another call. */
static void check_wakes_up_after(void (*call)(void))
{
    (void)!kvc_fd(kvc);
    (void)begin_lookup(1);
    usleep(100000); /* time for the reply to arrive; if it has not, the test shows less */
    call();
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

static void another_begin(void)
{
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 1);
    (void)begin_lookup(2);
}

static void a_call_that_waits(void)
{
    uint64_t ms;
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
}

static void a_call_that_fails(void)
{
    struct kvc_hold *h;
    uint8_t ticket[KVC_TICKET_BYTES] = {0};
    ck_assert_int_eq(kvc_redeem(ns, ticket, &h), KVC_E_NO_LEASE);
}

CASE(a_begin_swallows_no_wake_up)
{
    check_wakes_up_after(another_begin);
}

CASE(a_call_that_waits_swallows_no_wake_up)
{
    check_wakes_up_after(a_call_that_waits);
    check_wakes_up_after(a_call_that_fails);
}

CASE(a_release_swallows_no_wake_up)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    (void)!kvc_fd(kvc);
    (void)begin_lookup(1);
    usleep(100000);
    kvc_release(kvc, &h);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

CASE(a_descriptor_made_late_knows_of_what_came_before)
{
    (void)begin_lookup(1);
    usleep(100000);
    uint64_t ms;
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

CASE(without_a_descriptor_progress_is_enough)
{
    struct kvc_op *op = begin_lookup(1);
    while (!kvc_done(op))
        (void)kvc_progress(kvc);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

/* ---- chunks ---- */

CASE(an_acquire_is_done_when_its_chunks_have_come)
{
    struct kvc_seq seq = seq_of(4);
    struct kvc_op *op;
    atomic_store(&fake.s->hit_blocks, 4);
    atomic_store(&fake.s->blocks_a_chunk, 2);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    struct kvc_hold *first = finish_next(0).hold, *second = finish_next(0).hold;
    ck_assert_uint_eq(*(const uint8_t *)first->group[0].block[3].data, fake_byte(1, 1));
    ck_assert_int_eq(kvc_hold_check(second), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_asked), 2);
    kvc_release(kvc, &first);
    kvc_release(kvc, &second);
}

CASE(a_refused_chunk_fails_only_who_needs_it)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_op *op;
    atomic_store(&fake.s->hit_blocks, 1);
    atomic_store(&fake.s->chunk, FAKE_CHUNK_REFUSE);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    (void)begin_lookup(1);
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        struct kvc_result r;
        op = next_op();
        failed += kvc_finish(&op, &r) == KVC_E_DENIED;
    }
    ck_assert_int_eq(failed, 1);
    ck_assert(kvc_is_up(kvc));
}

/* ---- ends ---- */

CASE(a_cancelled_wait_is_done)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = KVC_DEADLINE_MAX_MS};
    struct kvc_op *op;
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
    ck_assert_int_eq(kvc_cancel_begin(op), 0);
    ck_assert_int_eq(kvc_cancel_begin(op), 0); /* under way */
    ck_assert_ptr_null(finish_next(KVC_E_CANCELLED).hold);
}

CASE(a_cancelled_store_is_done)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_op *op;
    fake_rule(&fake, KVC_OP_STORE, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    ck_assert_int_eq(kvc_cancel_begin(op), 0);
    (void)finish_next(KVC_E_CANCELLED);
    ck_assert(kvc_is_up(kvc));
}

CASE(a_deadline_wakes_the_loop)
{
    kvc_close(&kvc);
    struct kvc_ns_spec spec = spec_of("llama");
    kvc = open_session(300);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 1);
    (void)begin_lookup(1);
    ck_assert_uint_eq(finish_next(0).prefix.tokens, 0);
    struct kvc_counters c;
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 1);
}

CASE(a_store_beyond_its_deadline_is_cancelled_by_the_loop)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_op *op;
    kvc_close(&kvc);
    kvc = open_session(300);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
    fake_rule(&fake, KVC_OP_STORE, FAKE_SILENCE, 0, 1);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    op = next_op();
    struct kvc_result r;
    int rc = kvc_finish(&op, &r);
    /* On a busy machine CANCEL too may be answered too late: then the link has ended. */
    ck_assert_msg(rc == KVC_E_CANCELLED || !kvc_is_up(kvc), "%s", kvc_error_name(rc));
}

CASE(a_dead_daemon_ends_all_in_flight)
{
    struct kvc_blocks b = blocks_of(1);
    struct kvc_seq seq = seq_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_op *op;
    (void)!kvc_fd(kvc);
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 32);
    fake_rule(&fake, KVC_OP_STORE, FAKE_SILENCE, 0, 1);
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_SILENCE, 0, 1);
    for (uintptr_t i = 0; i < 32; i++)
        (void)begin_lookup(i);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    fake_kill(&fake);
    for (int i = 0; i < 34; i++) {
        struct kvc_result r;
        op = next_op();
        int rc = kvc_finish(&op, &r);
        ck_assert_int_eq(rc, r.kind == KVC_OP_STORE ? KVC_E_DOWN : 0);
        if (r.kind == KVC_OP_ACQUIRE)
            kvc_release(kvc, &r.hold);
    }
    ck_assert(!kvc_is_up(kvc));
}

CASE(the_loop_alone_finds_a_new_daemon)
{
    (void)!kvc_fd(kvc);
    fake_kill(&fake);
    while (kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
    fake_start(&fake);
    while (!kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
    ck_assert_uint_eq(kvc_ns_id(ns), 201); /* open again when the session is up */
    (void)begin_lookup(1);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
}

CASE(what_close_finds_is_freed)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_ns_spec spec = spec_of("qwen");
    struct kvc_op *op;
    atomic_store(&fake.s->hit_blocks, 1);
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 1);
    (void)!kvc_fd(kvc);
    (void)begin_lookup(1);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    op = next_op(); /* handed out, with a hold inside, and not finished */
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    while (kvc_progress(kvc) == 0)
        wait_readable(-1);
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    kvc_close(&kvc); /* what it leaves is for the leak checker to find */
}

/* ---- no daemon, or one that does not answer ---- */

static void reopen_patient(bool no_wait)
{
    struct kvc_options o = {.socket = fake.path,
                            .staging_bytes = STAGING_BYTES,
                            .timeout_ms = KVC_DEADLINE_MAX_MS,
                            .no_wait = no_wait};
    kvc_close(&kvc);
    ck_assert_int_eq(kvc_open(&o, &kvc), 0);
}

CASE(an_absent_daemon_holds_up_nothing)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_op *op;
    fake_kill(&fake);
    reopen_patient(true);
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert_ptr_null(kvc_ns_seed(finish_next(0).ns));
    ck_assert_int_eq(kvc_ping_begin(kvc, &op), KVC_E_DOWN);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(kvc_progress(kvc), 0);
    fake_start(&fake);
    while (!kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
    ck_assert_int_eq(kvc_ns_open_begin(kvc, &spec, &op), 0);
    ck_assert_ptr_nonnull(kvc_ns_seed(finish_next(0).ns));
}

CASE(a_frozen_daemon_does_not_hold_up_connecting)
{
    kill(fake.pid, SIGSTOP);
    reopen_patient(true);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(kvc_progress(kvc), 0);
    ck_assert(!kvc_is_up(kvc));
    kill(fake.pid, SIGCONT);
    while (!kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
}

CASE(a_frozen_daemon_does_not_hold_up_requests)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_blocks b = blocks_of(1);
    struct kvc_seq seq = seq_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_op *op;
    reopen_patient(false);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
    kill(fake.pid, SIGSTOP);
    for (uintptr_t i = 0; i < IN_FLIGHT; i++)
        (void)begin_lookup(i);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), 0);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(kvc_progress(kvc), 0);
    ck_assert(!is_readable());
    kill(fake.pid, SIGCONT);
    for (int i = 0; i < IN_FLIGHT + 2; i++) {
        struct kvc_result r = finish_next(0);
        if (r.kind == KVC_OP_ACQUIRE)
            kvc_release(kvc, &r.hold);
    }
}

CASE(while_down_reads_miss_and_stores_fail_at_once)
{
    struct kvc_blocks b = blocks_of(1);
    struct kvc_seq seq = seq_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_op *op;
    fake_kill(&fake);
    (void)kvc_progress(kvc);
    (void)begin_lookup(1);
    ck_assert_uint_eq(finish_next(0).prefix.tokens, 0);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &op), 0);
    struct kvc_hold *h = finish_next(0).hold;
    ck_assert_uint_eq(h->lease, 0);
    kvc_release(kvc, &h);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), KVC_E_DOWN);
    ck_assert_int_eq(kvc_reserve_begin(ns, &b, &op), KVC_E_DOWN);
    ck_assert_int_eq(kvc_next(kvc, &op), 0);
}

/* ---- a namespace that the daemon has let go ---- */

CASE(a_namespace_let_go_is_opened_again_unseen)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_blocks b = blocks_of(1);
    struct kvc_prefix p;
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    atomic_store(&fake.s->hit_blocks, 1);
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 16);
    ck_assert_uint_eq(kvc_ns_id(ns), 102);
    ck_assert_uint_eq(atomic_load(&fake.s->last_ns), 102);
    fake_rule(&fake, KVC_OP_STORE, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->last_ns), 103);
    fake_rule(&fake, KVC_OP_RESERVE, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    uint64_t r;
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    struct kvc_hold *h;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_uint_eq(h->group[0].n, 1);
    kvc_release(kvc, &h);
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
}

CASE(it_is_opened_once_for_all_in_flight)
{
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 16);
    for (uintptr_t i = 0; i < 16; i++)
        (void)begin_lookup(i);
    for (int i = 0; i < 16; i++)
        (void)finish_next(0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]), 2);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_LOOKUP]), 32);
}

CASE(it_is_opened_once_for_each_request)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 2);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), KVC_E_NO_NAMESPACE);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_LOOKUP]), 2);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
}

CASE(a_namespace_refused_then_fails_the_request)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    fake_rule(&fake, KVC_OP_NS_OPEN, FAKE_STATUS, KVC_ST_LIMIT, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), KVC_E_LIMIT);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0); /* asked for again */
}

/* ---- fork ---- */

static int child_uses_the_loop(struct kvc_op *op)
{
    struct kvc_result r;
    struct kvc_op *other;
    if (kvc_fd(kvc) != -EPERM || kvc_progress(kvc) != -EPERM || kvc_next(kvc, &other) != -EPERM)
        return 1;
    if (kvc_cancel_begin(op) != -EPERM || kvc_finish(&op, &r) != -EPERM || op != NULL)
        return 2;
    if (kvc_ping_begin(kvc, &other) != -EPERM)
        return 3;
    kvc_close(&kvc);
    return 0;
}

CASE(a_child_does_not_disturb_the_parents_loop)
{
    int fd = kvc_fd(kvc), status;
    delayed(KVC_OP_LOOKUP, 200, 1);
    struct kvc_op *op = begin_lookup(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int rc = child_uses_the_loop(op);
        _exit(rc != 0 ? rc : poll(&p, 1, 0) == 1 && p.revents == POLLNVAL ? 0 : 4);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq((uintptr_t)finish_next(0).user, 1);
    ck_assert_int_eq(kvc_fd(kvc), fd);
    ck_assert(kvc_is_up(kvc));
}

/* A parked request awaits its reply as one does that was sent: no other may take its place. */
CASE(parked_requests_are_bounded_and_each_answered_once)
{
    enum { PARKED = 1023 };
    static uint8_t seen[PARKED + 1];
    struct kvc_seq seq = seq_of(4);
    struct kvc_op *op;
    uint32_t opened = atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]);
    memset(seen, 0, sizeof(seen));
    fake.s->rule[0] = (struct fake_rule){
        .op = KVC_OP_LOOKUP, .what = FAKE_STATUS, .status = KVC_ST_NO_NAMESPACE, .times = 1};
    fake.s->rule[1] = (struct fake_rule){.op = KVC_OP_NS_OPEN, .what = FAKE_AFTER_NEXT, .times = 1};
    (void)begin_lookup(0);
    while (atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]) == opened) {
        (void)kvc_progress(kvc);
        usleep(1000);
    }
    for (uintptr_t i = 1; i < PARKED; i++)
        (void)begin_lookup(i);
    ck_assert_int_eq(kvc_ping_begin(kvc, &op), 0); /* its answer lets the namespace open */
    kvc_op_set_user(op, (void *)(uintptr_t)PARKED);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &op), KVC_E_BUSY);
    for (int i = 0; i <= PARKED; i++)
        seen[(uintptr_t)finish_next(0).user]++;
    for (int i = 0; i <= PARKED; i++)
        ck_assert_uint_eq(seen[i], 1);
    ck_assert(kvc_is_up(kvc));
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
}

/* A child that lives on has copies of ZeroMQ's descriptors: the parent must not go on watching what
 * it has closed. */
CASE(a_child_that_lives_on_does_not_keep_the_loop_awake)
{
    int until[2];
    ck_assert_int_eq(pipe(until), 0);
    (void)!kvc_fd(kvc);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        close(until[1]);
        _exit(read(until[0], &c, 1) == 0 ? 0 : 1);
    }
    fake_kill(&fake);
    while (kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
    fake_start(&fake);
    while (!kvc_is_up(kvc)) {
        wait_readable(-1);
        (void)kvc_progress(kvc);
    }
    ck_assert(!is_readable());
    close(until[0]);
    close(until[1]);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

CASE_DIES(a_hold_that_is_released_twice_aborts, SIGABRT)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    struct kvc_hold *copy = h;
    kvc_release(kvc, &h);
    kvc_release(kvc, &copy);
}

CASE_DIES(a_request_that_is_taken_twice_aborts, SIGABRT)
{
    struct kvc_result r;
    struct kvc_op *op;
    ck_assert_int_eq(kvc_ping_begin(kvc, &op), 0);
    struct kvc_op *copy = op;
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    (void)!kvc_finish(&copy, &r);
}
