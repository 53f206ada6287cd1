/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that misbehaves, stops or dies in the middle of things. "Never hangs" is shown by a test
 * that ends: each runs under Check's limit.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "fixture.h"

/* ---- death ---- */

CASES(.setup = start_open, .teardown = stop);

CASE(death_during_a_lookup_is_a_miss)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p = {.tokens = 1};
    struct kvc_counters c;
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_DIE, 0, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert(!kvc_is_up(kvc));
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 1);
}

CASE(death_during_a_store_is_a_dropped_store)
{
    struct kvc_blocks b = blocks_of(2);
    uint64_t offsets[2] = {0, 4096};
    uint8_t st[2] = {9, 9};
    struct kvc_counters c;
    fake_rule(&fake, KVC_OP_STORE, FAKE_DIE, 0, 1);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_DOWN);
    ck_assert_uint_eq(st[0], 9);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 2);
    ck_assert_uint_eq(c.stores_dropped_bytes, 2 * FAKE_BLOCK_BYTES);
}

CASE(death_is_noticed_long_before_the_deadline)
{
    /* The deadline is beyond this test's limit of time: only the attach channel can end the wait.
     */
    struct kvc_seq seq = seq_of(2);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = KVC_DEADLINE_MAX_MS};
    struct kvc_hold *h;
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_DIE, 0, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    kvc_release(kvc, &h);
}

CASE(all_requests_in_flight_end_with_the_daemon)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    struct kvc_op *lookup, *acquire, *store;
    struct kvc_prefix p = {.tokens = 1};
    struct kvc_hold *h;
    uint8_t st[1];
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 1);
    fake_rule(&fake, KVC_OP_STORE, FAKE_SILENCE, 0, 1);
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_HANG_UP, 0, 1);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &lookup), 0);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &store), 0);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, NULL, &acquire), 0);
    ck_assert_int_eq(kvc_wait(&store, NULL, NULL, st), KVC_E_DOWN);
    ck_assert_int_eq(kvc_wait(&lookup, &p, NULL, NULL), 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_int_eq(kvc_wait(&acquire, NULL, &h, NULL), 0);
    ck_assert_uint_eq(h->lease, 0);
    kvc_release(kvc, &h);
}

CASE(a_dropped_session_keeps_the_reason_and_comes_back)
{
    uint64_t ms;
    fake_rule(&fake, KVC_OP_PING, FAKE_DROPPED, 0, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "LIMIT"));
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "too much of everything"));
    ck_assert(!kvc_is_up(kvc));
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
}

/* Beyond this test's limit of time is the deadline: only the control connection can end the wait.
 */
CASE(a_control_connection_that_ends_is_a_miss_and_comes_back)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = KVC_DEADLINE_MAX_MS};
    struct kvc_hold *h;
    uint64_t ms;
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_CUT, 0, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    kvc_release(kvc, &h);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "closed the control connection"));
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
}

/* The greeting that waits for 30 s if nobody looks. */
CASE(a_control_connection_that_ends_at_hello_is_made_again)
{
    uint64_t ms;
    fake_rule(&fake, KVC_OP_PING, FAKE_HANG_UP, 0, 1);
    fake_rule(&fake, KVC_OP_HELLO, FAKE_CUT, 0, 3);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    for (int i = 0; i < 10000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
    ck_assert_uint_eq(atomic_load(&fake.s->attaches), 5);
}

CASE(who_only_polls_sees_the_control_connection_end)
{
    struct kvc_op *op, *next;
    struct kvc_result r;
    struct kvc_seq seq = seq_of(2);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = KVC_DEADLINE_MAX_MS};
    int fd = kvc_fd(kvc);
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_CUT, 0, 1);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
    while (!kvc_done(op)) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 20000), 1);
        ck_assert_int_ge(kvc_progress(kvc), 0);
    }
    ck_assert_int_eq(kvc_next(kvc, &next), 1);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.hold->lease, 0);
    kvc_release(kvc, &r.hold);
}

CASE(shutdown_is_a_miss_and_a_dropped_store)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_blocks b = blocks_of(1);
    struct kvc_prefix p;
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    struct kvc_counters c;
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STATUS, KVC_ST_SHUTDOWN, 1);
    fake_rule(&fake, KVC_OP_STORE, FAKE_STATUS, KVC_ST_SHUTDOWN, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_DOWN);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 1);
    ck_assert_uint_eq(c.stores_dropped_blocks, 1);
}

/* ---- silence ---- */

#define DEADLINE_MS 300
/* Well after everybody has given up. */
#define LATE_MS 1500

/* A session with a deadline short enough to wait for. */
static void start_impatient(void)
{
    struct kvc_ns_spec spec = spec_of("llama");
    start();
    fake_start(&fake);
    kvc = open_session(DEADLINE_MS);
    for (int i = 0; i < 100 && kvc_ns_open(kvc, &spec, &ns) < 0; i++)
        usleep(10000);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
}

/* On a busy machine any request may miss so short a deadline: what a test needs it tries again. */
static void revive(void)
{
    uint64_t ms;
    int rc = kvc_ping(kvc, &ms);
    for (int i = 0; i < 5000 && rc < 0; i++) { /* at once, while the daemon is silent */
        usleep(1000);
        rc = kvc_ping(kvc, &ms);
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
}

/* Stores one block until the daemon has seen it under this rule. */
static int store_under(enum fake_what what, uint16_t status)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    int rc = 0;
    fake_rule(&fake, KVC_OP_STORE, what, status, 1);
    for (int i = 0; i < 20 && atomic_load(&fake.s->requests[KVC_OP_STORE]) == 0; i++) {
        revive();
        rc = kvc_store(ns, &b, offsets, NULL, 0, st);
    }
    return rc;
}

CASES(.setup = start_impatient, .teardown = stop);

CASE(no_reply_is_a_miss_and_the_session_lives_on)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p = {.tokens = 1};
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_SILENCE, 0, 1);
    uint64_t began = fake_now_ms();
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_ge(fake_now_ms() - began, DEADLINE_MS);
    ck_assert_uint_eq(p.tokens, 0);
    revive();
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
}

CASE(a_stopped_daemon_is_a_miss)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    struct kvc_counters counters;
    kvc_get_counters(kvc, &counters);
    ck_assert_uint_eq(counters.lookups_down, 1);
    kill(fake.pid, SIGCONT);
    revive();
}

/* So many calls would take far longer than this test may if each waited for its deadline. */
#define IMPATIENT_CALLS 1000

CASE(a_stopped_daemon_costs_one_deadline_and_not_one_a_call)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_blocks b = blocks_of(1);
    struct kvc_prefix p = {.tokens = 1};
    struct kvc_hold *h;
    uint64_t offsets[1] = {0}, resv;
    uint8_t st[1];
    atomic_store(&fake.s->hit_blocks, 1);
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    for (int i = 0; i < IMPATIENT_CALLS; i++) {
        ck_assert(!kvc_is_up(kvc));
        ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
        ck_assert_uint_eq(h->lease, 0);
        kvc_release(kvc, &h);
        ck_assert_ptr_null(kvc_staging(kvc, NULL));
        ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_TIMEOUT);
        ck_assert_int_eq(kvc_reserve(ns, &b, &resv, st), KVC_E_TIMEOUT);
        ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "does not answer"));
        ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_ENDED, 0), 0);
    }
    struct kvc_counters c;
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 1 + IMPATIENT_CALLS);
    ck_assert_uint_eq(c.stores_dropped_blocks, 2 * IMPATIENT_CALLS);
    kill(fake.pid, SIGCONT);
    revive();
    ck_assert_uint_eq(kvc_epoch(kvc), 1); /* nothing was opened again */
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_ACQUIRE]), 0);
    for (p.tokens = 0; p.tokens == 0;)
        ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
}

CASE(a_stopped_daemon_costs_a_session_that_stores_one_deadline)
{
    struct kvc_blocks b = blocks_of(1);
    struct kvc_ns_spec other = spec_of("qwen");
    struct kvc_ns *handle;
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_TIMEOUT);
    for (int i = 0; i < IMPATIENT_CALLS; i++) {
        ck_assert_ptr_null(kvc_staging(kvc, NULL));
        ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_DOWN);
        ck_assert_int_eq(kvc_ns_open(kvc, &other, &handle), 0);
    }
    kill(fake.pid, SIGCONT);
    revive();
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
}

CASE(a_reservation_is_dropped_without_waiting_for_a_stopped_daemon)
{
    struct kvc_blocks b = blocks_of(1);
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    uint64_t resv[8];
    uint8_t st[1];
    for (int i = 0; i < 8; i++) {
        while (kvc_reserve(ns, &b, &resv[i], st) < 0)
            revive();
    }
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(kvc_drop(kvc, resv[i]), 0);
    kill(fake.pid, SIGCONT);
    revive();
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_DROP]), 8);
}

CASE(a_store_without_a_reply_is_cancelled)
{
    int rc = KVC_E_TIMEOUT;
    /* The CANCEL too may be answered too late: then the session has to be gone. */
    for (int i = 0; i < 20 && rc != KVC_E_CANCELLED; i++) {
        atomic_store(&fake.s->requests[KVC_OP_STORE], 0);
        rc = store_under(FAKE_SILENCE, 0);
        ck_assert(rc == KVC_E_CANCELLED || !kvc_is_up(kvc));
    }
    ck_assert_int_eq(rc, KVC_E_CANCELLED);
    ck_assert_uint_ge(atomic_load(&fake.s->requests[KVC_OP_CANCEL]), 1);
    ck_assert(kvc_is_up(kvc));
}

CASE(a_store_answered_with_timeout_is_cancelled)
{
    ck_assert_int_eq(store_under(FAKE_STATUS, KVC_ST_TIMEOUT), KVC_E_TIMEOUT);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_CANCEL]), 1);
}

static bool attach_is_closed(void *unused)
{
    (void)unused;
    return !atomic_load(&fake.s->attach_open);
}

CASE(a_store_that_cannot_be_cancelled_ends_the_session)
{
    fake_rule(&fake, KVC_OP_CANCEL, FAKE_SILENCE, 0, 1);
    /* The target is answered, but without the reply to CANCEL nothing is sure. */
    int rc = store_under(FAKE_SILENCE, 0);
    ck_assert_msg(rc == KVC_E_TIMEOUT || rc == KVC_E_CANCELLED, "%s", kvc_error_name(rc));
    ck_assert(!kvc_is_up(kvc));
    ck_assert(fake_wait_for(attach_is_closed, NULL));
}

CASE(a_stopped_daemon_loses_a_session_that_stores)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_TIMEOUT);
    ck_assert(!kvc_is_up(kvc));
    kill(fake.pid, SIGCONT);
}

static bool session_is_ended(void *unused)
{
    (void)unused;
    return atomic_load(&fake.s->ended) > 0;
}

static bool has_stored(void *unused)
{
    (void)unused;
    return atomic_load(&fake.s->requests[KVC_OP_STORE]) > 0 &&
           atomic_load(&fake.s->stored_byte) != 0;
}

static bool has_released(void *unused)
{
    uint64_t ms;
    (void)unused;
    (void)!kvc_ping(kvc, &ms); /* takes in what has come */
    return atomic_load(&fake.s->leases_released) == 1;
}

static void acquire_misses(const struct kvc_seq *seq)
{
    struct kvc_hold *h;
    ck_assert_int_eq(kvc_acquire(ns, seq, NULL, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    ck_assert_uint_eq(h->prefix.tokens, 0);
    kvc_release(kvc, &h);
}

CASE(a_lease_that_comes_too_late_is_released)
{
    struct kvc_seq seq = seq_of(1);
    atomic_store(&fake.s->hit_blocks, 1);
    fake_rule(&fake, KVC_OP_ACQUIRE, FAKE_ANSWER, 0, 1);
    fake.s->rule[0].delay_ms = LATE_MS;
    while (atomic_load(&fake.s->requests[KVC_OP_ACQUIRE]) == 0)
        acquire_misses(&seq);
    ck_assert(fake_wait_for(has_released, NULL));
}

static bool has_dropped(void *unused)
{
    uint64_t ms;
    (void)unused;
    (void)!kvc_ping(kvc, &ms);
    return atomic_load(&fake.s->dropped_reservation) == 1;
}

CASE(a_reservation_that_comes_too_late_is_dropped)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t r = 0;
    uint8_t st[1];
    fake_rule(&fake, KVC_OP_RESERVE, FAKE_ANSWER, 0, 1);
    fake.s->rule[0].delay_ms = LATE_MS;
    while (atomic_load(&fake.s->requests[KVC_OP_RESERVE]) == 0)
        ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), KVC_E_TIMEOUT);
    ck_assert_uint_eq(r, 0);
    ck_assert(fake_wait_for(has_dropped, NULL));
}

CASE(a_chunk_that_does_not_come_is_a_miss)
{
    struct kvc_seq seq = seq_of(1);
    atomic_store(&fake.s->hit_blocks, 1);
    atomic_store(&fake.s->chunk, FAKE_CHUNK_MUTE);
    while (atomic_load(&fake.s->requests[KVC_OP_ACQUIRE]) == 0)
        acquire_misses(&seq);
    ck_assert(fake_wait_for(has_released, NULL));
}

/* ---- nonsense ---- */

static void check_torn_down_by(enum fake_what what)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p = {.tokens = 1};
    uint64_t ms;
    fake_rule(&fake, KVC_OP_LOOKUP, what, 0, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(p.tokens, 1);
    ck_assert(!kvc_is_up(kvc));
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
}

CASES(.setup = start_open, .teardown = stop);

CASE(bytes_that_are_no_message_end_the_session)
{
    check_torn_down_by(FAKE_GARBAGE);
}

CASE(a_reply_without_its_body_ends_the_session)
{
    check_torn_down_by(FAKE_BAD_BODY);
}

CASE(a_reply_of_another_operation_ends_the_session)
{
    check_torn_down_by(FAKE_OTHER_OP);
}

CASE(a_reply_in_parts_ends_the_session)
{
    check_torn_down_by(FAKE_TWO_PARTS);
}

CASE(a_reply_to_nobody_is_discarded)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    atomic_store(&fake.s->hit_blocks, 1);
    fake_rule(&fake, KVC_OP_LOOKUP, FAKE_STRAY_FIRST, 0, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 16);
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
}

static void check_bad_lease(void)
{
    struct kvc_hold *h = NULL;
    struct kvc_seq seq = seq_of(1);
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), KVC_E_BAD_MESSAGE);
    ck_assert_ptr_null(h);
    ck_assert(!kvc_is_up(kvc));
}

CASE(a_block_outside_its_chunk_ends_the_session)
{
    atomic_store(&fake.s->wrong_loc, true);
    check_bad_lease();
}

CASE(blocks_without_a_lease_end_the_session)
{
    atomic_store(&fake.s->lease_without, true);
    check_bad_lease();
}

CASE(a_chunk_longer_than_its_file_ends_the_session)
{
    atomic_store(&fake.s->chunk, FAKE_CHUNK_SHORT);
    check_bad_lease();
}

CASE(a_refused_chunk_fails_the_acquire_and_releases_the_lease)
{
    struct kvc_hold *h = NULL;
    struct kvc_seq seq = seq_of(1);
    atomic_store(&fake.s->hit_blocks, 1);
    atomic_store(&fake.s->chunk, FAKE_CHUNK_REFUSE);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), KVC_E_DENIED);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "not this principal's"));
    ck_assert(kvc_is_up(kvc));
    ck_assert(fake_wait_for(has_released, NULL));
}

CASE(a_chunk_that_is_gone_is_a_miss)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    struct kvc_counters c;
    atomic_store(&fake.s->hit_blocks, 1);
    atomic_store(&fake.s->chunk, FAKE_CHUNK_GONE);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    ck_assert_uint_eq(h->prefix.tokens, 0);
    kvc_release(kvc, &h);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 0);
    ck_assert(fake_wait_for(has_released, NULL));
}

/* The daemon keeps leased memory until the connection of a session that it ended is closed. */
CASE(a_dropped_session_is_confirmed_when_nothing_is_read_any_more)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *first, *second;
    uint64_t ms;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &first), 0);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &second), 0);
    fake_rule(&fake, KVC_OP_PING, FAKE_DROPPED, 0, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    kvc_release(kvc, &first);
    usleep(50000); /* time for a close that must not happen */
    ck_assert(atomic_load(&fake.s->attach_open));
    ck_assert_int_eq(kvc_hold_check(second), 0);
    kvc_release(kvc, &second);
    ck_assert(fake_wait_for(attach_is_closed, NULL));
}

/* The same when the library gives the link up by itself: the daemon is made to end the session, and
 * keeps the memory. */
static void check_kept_until_released(struct kvc_hold *h)
{
    ck_assert(!kvc_is_up(kvc));
    ck_assert(fake_wait_for(session_is_ended, NULL));
    usleep(50000); /* time for a close that must not happen */
    ck_assert(atomic_load(&fake.s->attach_open));
    ck_assert_int_eq(kvc_hold_check(h), 0);
    ck_assert_uint_eq(*(const uint8_t *)h->group[0].block[0].data, fake_byte(0, 0));
    kvc_release(kvc, &h);
    ck_assert(fake_wait_for(attach_is_closed, NULL));
}

CASE(a_session_that_ends_with_nonsense_keeps_what_is_read)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    uint64_t ms;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    fake_rule(&fake, KVC_OP_PING, FAKE_GARBAGE, 0, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_BAD_MESSAGE);
    check_kept_until_released(h);
}

/* A dying daemon loses the control socket and the attach connection one after the other. */
CASE(what_was_kept_is_stale_once_the_daemon_is_dead)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    uint64_t ms;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    fake_rule(&fake, KVC_OP_PING, FAKE_GARBAGE, 0, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_BAD_MESSAGE);
    ck_assert_int_eq(kvc_hold_check(h), 0);
    fake_kill(&fake);
    ck_assert_int_eq(kvc_hold_check(h), KVC_STALE);
    kvc_release(kvc, &h);
}

CASES(.setup = start_impatient, .teardown = stop);

CASE(a_session_that_ends_with_a_store_keeps_what_is_read)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    do { /* a busy machine may miss the deadline */
        revive();
        ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
        if (h->lease == 0)
            kvc_release(kvc, &h);
    } while (h == NULL);
    fake_rule(&fake, KVC_OP_CANCEL, FAKE_SILENCE, 0, 1);
    (void)store_under(FAKE_SILENCE, 0);
    if (!kvc_is_up(kvc) && kvc_hold_check(h) == 0)
        check_kept_until_released(h);
    else /* lost before the store, to the machine's load */
        kvc_release(kvc, &h);
}

/* A daemon that wakes up after the caller was given staging back stores what was there then. */
CASE(what_a_frozen_daemon_stores_later_is_what_was_there)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    revive();
    uint8_t *staging = kvc_staging(kvc, NULL);
    staging[0] = 0x11;
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_TIMEOUT);
    ck_assert(!kvc_is_up(kvc));
    staging[0] = 0x22;
    kill(fake.pid, SIGCONT);
    ck_assert(fake_wait_for(has_stored, NULL));
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), 0x11);
}

CASES(.setup = start_open, .teardown = stop);

CASE(a_retired_chunk_stays_readable_while_held)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *before, *after;
    uint64_t ms;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &before), 0);
    atomic_store(&fake.s->retire, 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    usleep(30000); /* beyond the time for which the attach channel goes unread */
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &after), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_asked), 2);
    ck_assert_ptr_ne(before->group[0].block[0].data, after->group[0].block[0].data);
    ck_assert_uint_eq(*(const uint8_t *)before->group[0].block[0].data, fake_byte(0, 0));
    kvc_release(kvc, &before);
    kvc_release(kvc, &after);
}
