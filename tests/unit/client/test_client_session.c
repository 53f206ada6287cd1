/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, losing and regaining the daemon; the rule about fork. */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"

static int open_with(const char *path, bool must_connect)
{
    struct kvc_options o = {
        .socket = path, .staging_bytes = 4096, .timeout_ms = 500, .must_connect = must_connect};
    return kvc_open(&o, &kvc);
}

/* ---- opening ---- */

CASES(.setup = start, .teardown = stop);

CASE(an_absent_daemon_leaves_the_session_down)
{
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert(!kvc_is_up(kvc));
    ck_assert_uint_eq(kvc_epoch(kvc), 0);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), fake.path));
    ck_assert_ptr_null(kvc_staging(kvc, NULL));
}

CASE(an_absent_daemon_fails_the_open_that_needs_it)
{
    ck_assert_int_eq(open_with(fake.path, true), KVC_E_DOWN);
    ck_assert_ptr_null(kvc);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(NULL), "no daemon at"));
}

CASE(a_denied_uid_is_told_what_would_permit_it)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_DENY);
    ck_assert_int_eq(open_with(fake.path, false), KVC_E_DENIED);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(NULL), "principals[].uids"));
}

CASE(a_version_mismatch_fails_the_open)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_OTHER_VERSION);
    ck_assert_int_eq(open_with(fake.path, false), KVC_E_VERSION);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(NULL), "versions 7 to 9"));
}

CASE(a_version_refused_at_hello_fails_the_open)
{
    fake_start(&fake);
    fake_rule(&fake, KVC_OP_HELLO, FAKE_STATUS, KVC_ST_VERSION, 1);
    ck_assert_int_eq(open_with(fake.path, false), KVC_E_VERSION);
}

CASE(a_daemon_without_a_place_says_so)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_FULL);
    for (unsigned i = 0; i < 50; i++) {
        ck_assert_int_eq(open_with(fake.path, true), KVC_E_DOWN);
        ck_assert_ptr_nonnull(strstr(kvc_last_error(NULL), "LIMIT: all of 7 places are taken"));
    }
}

CASE(a_silent_daemon_does_not_hold_up_open)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_MUTE);
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert(!kvc_is_up(kvc));
}

CASE(a_stopped_daemon_does_not_hold_up_open)
{
    fake_start(&fake);
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(open_with(fake.path, true), KVC_E_DOWN);
    kill(fake.pid, SIGCONT);
}

CASE(nonsense_on_the_attach_channel_leaves_the_session_down)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_NONSENSE);
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert(!kvc_is_up(kvc));
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "malformed"));
}

CASE(staging_without_a_descriptor_leaves_the_session_down)
{
    fake_start(&fake);
    atomic_store(&fake.s->attach, FAKE_NO_DESCRIPTOR);
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert(!kvc_is_up(kvc));
}

CASE(bad_options_are_refused)
{
    char path[200];
    struct kvc_options o = {.socket = "", .timeout_ms = 100};
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    ck_assert_int_eq(kvc_open(&o, &kvc), -EINVAL);
    o.socket = path;
    ck_assert_int_eq(kvc_open(&o, &kvc), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(NULL), "107"));
    o = (struct kvc_options){.timeout_ms = KVC_DEADLINE_MAX_MS + 1};
    ck_assert_int_eq(kvc_open(&o, &kvc), -EINVAL);
    o = (struct kvc_options){.shard = KVC_SHARDS_MAX};
    ck_assert_int_eq(kvc_open(&o, &kvc), -EINVAL);
}

CASE(the_environment_names_the_socket)
{
    fake_start(&fake);
    ck_assert_int_eq(setenv("KVCACHE_SOCKET", fake.path, 1), 0);
    ck_assert_int_eq(kvc_open(NULL, &kvc), 0);
    ck_assert(kvc_is_up(kvc));
}

static bool attach_is_closed(void *unused)
{
    (void)unused;
    return !atomic_load(&fake.s->attach_open);
}

CASE(close_ends_the_attach_connection)
{
    fake_start(&fake);
    ck_assert_int_eq(open_with(fake.path, true), 0);
    kvc_close(&kvc);
    ck_assert_ptr_null(kvc);
    kvc_close(&kvc);
    kvc_close(NULL);
    ck_assert(fake_wait_for(attach_is_closed, NULL));
}

CASE(close_frees_holds_and_requests_in_flight)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_seq seq = seq_of(2);
    struct kvc_hold *h;
    struct kvc_op *op;
    fake_start(&fake);
    kvc = open_session(1000);
    atomic_store(&fake.s->hit_blocks, 2);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_int_eq(kvc_lookup_begin(ns, &seq, 0, &op), 0);
    kvc_close(&kvc); /* what it leaves is for the leak checker to find */
}

/* ---- down and up again ---- */

CASE(a_session_that_began_down_comes_up_by_itself)
{
    struct kvc_ns_spec spec = spec_of("llama");
    uint64_t ms;
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    fake_start(&fake);
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert(kvc_is_up(kvc));
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
}

static void await_up(void)
{
    uint64_t ms;
    for (int i = 0; i < 5000 && kvc_ping(kvc, &ms) < 0; i++)
        usleep(1000);
    ck_assert(kvc_is_up(kvc));
}

CASE(a_namespace_opens_itself_when_the_daemon_comes)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p = {.tokens = 1};
    struct kvc_blocks b = blocks_of(1);
    struct kvc_ns *again;
    uint64_t r;
    uint8_t st[1];
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &again), 0);
    ck_assert_ptr_eq(again, ns);
    ck_assert_ptr_null(kvc_ns_seed(ns));
    ck_assert_uint_eq(kvc_ns_id(ns), 0);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), KVC_E_DOWN);
    atomic_store(&fake.s->hit_blocks, 2);
    fake_start(&fake);
    await_up();
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 32);
    ck_assert_uint_eq(atomic_load(&fake.s->last_ns), kvc_ns_id(ns));
    ck_assert_ptr_nonnull(kvc_ns_seed(ns));
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_NS_OPEN]), 1);
}

CASE(a_namespace_that_is_refused_later_says_so_in_its_calls)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p;
    ck_assert_int_eq(open_with(fake.path, false), 0);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    fake_rule(&fake, KVC_OP_NS_OPEN, FAKE_STATUS, KVC_ST_UNSOUND, 9);
    fake_start(&fake);
    await_up();
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), KVC_E_UNSOUND);
    ck_assert_ptr_null(kvc_ns_seed(ns));
}

CASE(a_namespace_opens_itself_when_a_daemon_answers_at_last)
{
    struct kvc_ns_spec spec = spec_of("llama");
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p = {.tokens = 0};
    fake_start(&fake);
    ck_assert_int_eq(open_with(fake.path, false), 0);
    await_up();
    kill(fake.pid, SIGSTOP);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), 0);
    ck_assert_ptr_null(kvc_ns_seed(ns));
    atomic_store(&fake.s->hit_blocks, 2);
    kill(fake.pid, SIGCONT);
    await_up();
    for (int i = 0; i < 100 && p.tokens == 0; i++)
        ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 32);
}

CASE(a_session_that_must_connect_opens_no_namespace_alone)
{
    struct kvc_ns_spec spec = spec_of("llama");
    fake_start(&fake);
    ck_assert_int_eq(open_with(fake.path, true), 0);
    fake_kill(&fake);
    ck_assert_int_eq(kvc_ns_open(kvc, &spec, &ns), KVC_E_DOWN);
}

static void lose_daemon(void)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p = {.tokens = 1};
    fake_kill(&fake);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    ck_assert(!kvc_is_up(kvc));
}

static void regain_daemon(void)
{
    fake_start(&fake);
    await_up();
}

CASES(.setup = start_open, .teardown = stop);

CASE(without_a_daemon_lookups_miss_and_are_counted)
{
    struct kvc_seq seq = seq_of(2);
    struct kvc_hold *h;
    struct kvc_counters c;
    lose_daemon();
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    ck_assert_uint_eq(h->lease, 0);
    ck_assert_uint_eq(h->prefix.tokens, 0);
    kvc_release(kvc, &h);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.lookups_down, 2);
}

CASE(without_a_daemon_stores_are_dropped_and_counted)
{
    struct kvc_blocks b = blocks_of(3);
    uint64_t r, offsets[3] = {0, 4096, 8192};
    uint8_t st[3];
    struct kvc_counters c;
    struct kvc_op *op;
    lose_daemon();
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_DOWN);
    ck_assert_int_eq(kvc_store_begin(ns, &b, offsets, NULL, 0, &op), KVC_E_DOWN);
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), KVC_E_DOWN);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 9);
    ck_assert_uint_eq(c.stores_dropped_bytes, 9 * FAKE_BLOCK_BYTES);
}

CASE(a_namespace_that_is_known_opens_without_a_daemon)
{
    struct kvc_ns_spec same = spec_of("llama"), other = spec_of("qwen");
    struct kvc_ns *again;
    lose_daemon();
    ck_assert_int_eq(kvc_ns_open(kvc, &same, &again), 0);
    ck_assert_ptr_eq(again, ns);
    ck_assert_int_eq(kvc_ns_open(kvc, &other, &again), 0);
    ck_assert_ptr_null(kvc_ns_seed(again));
}

CASE(a_new_daemon_gives_a_new_epoch_and_seed)
{
    uint8_t seed[KVC_KEY_BYTES];
    struct kvc_seq seq = seq_of(2);
    struct kvc_prefix p;
    struct kvc_counters c;
    lose_daemon();
    regain_daemon();
    memset(seed, 2, sizeof(seed));
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
    ck_assert_mem_eq(kvc_ns_seed(ns), seed, sizeof(seed));
    ck_assert_uint_eq(kvc_ns_id(ns), 201);
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 16);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.reconnects, 1);
}

CASE(a_hold_of_before_can_be_read_and_is_stale)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    lose_daemon();
    regain_daemon();
    ck_assert_uint_eq(*(const uint8_t *)h->group[0].block[0].data, fake_byte(0, 0));
    ck_assert_int_eq(kvc_hold_check(h), KVC_STALE);
    kvc_release(kvc, &h);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_RELEASE]), 0);
}

CASE(chunks_are_mapped_anew_after_a_reconnect)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    kvc_release(kvc, &h);
    lose_daemon();
    regain_daemon();
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    kvc_release(kvc, &h);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_asked), 2);
}

CASE(staging_of_before_is_not_stored_under_new_keys)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1];
    struct kvc_counters c;
    uint8_t *staging = kvc_staging(kvc, NULL);
    staging[0] = 0x11;
    lose_daemon();
    regain_daemon();
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), KVC_E_DOWN);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_blocks, 1);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_STORE]), 0);
    staging = kvc_staging(kvc, NULL);
    ck_assert_uint_eq(staging[0], 0);
    staging[0] = 0x22;
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), 0x22);
}

/* It asks for staging before each store, and calls nothing else when there is none. */
CASE(a_session_that_only_stores_reconnects)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t offsets[1] = {0};
    uint8_t st[1], *staging;
    fake_kill(&fake);
    for (int i = 0; i < 100; i++)
        ck_assert(kvc_staging(kvc, NULL) == NULL || kvc_store(ns, &b, offsets, NULL, 0, st) < 0);
    fake_start(&fake);
    for (int i = 0; i < 5000 && (staging = kvc_staging(kvc, NULL)) == NULL; i++)
        usleep(1000);
    ck_assert_ptr_nonnull(staging);
    staging[0] = 0x33;
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), 0x33);
    ck_assert_uint_eq(kvc_epoch(kvc), 2);
}

CASE(staging_stays_writable_while_the_daemon_is_away)
{
    uint8_t *staging = kvc_staging(kvc, NULL);
    lose_daemon();
    staging[0] = 1;
    regain_daemon();
    staging[0] = 2;
    ck_assert_ptr_eq(kvc_staging(kvc, NULL), staging);
}

/* A daemon with another staging.session_max has come: the area of before was unmapped, and a caller
 * that was filling it died. */
CASE(staging_stays_writable_until_it_is_asked_for_again)
{
    uint64_t bytes;
    uint8_t *staging = kvc_staging(kvc, &bytes);
    lose_daemon();
    atomic_store(&fake.s->attach, FAKE_HALF_STAGING);
    regain_daemon();
    memset(staging, 1, bytes);
    lose_daemon();
    atomic_store(&fake.s->attach, FAKE_WELCOME);
    regain_daemon();
    memset(staging, 2, bytes);
    uint64_t again;
    staging = kvc_staging(kvc, &again);
    ck_assert_uint_eq(again, bytes);
    ck_assert_uint_eq(staging[0], 0);
    memset(staging, 3, bytes);
}

CASE(a_reservation_of_before_is_void)
{
    struct kvc_blocks b = blocks_of(2);
    uint64_t before, after, offsets[2] = {0, 4096};
    uint8_t st[2];
    struct kvc_counters c;
    ck_assert_int_eq(kvc_reserve(ns, &b, &before, st), 0);
    lose_daemon();
    regain_daemon();
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
    ck_assert_int_eq(kvc_reserve(ns, &b, &after, st), 0);
    ck_assert_uint_ne(before, after);
    ck_assert_int_eq(kvc_commit(ns, before, 0, 2, offsets, NULL, 0, st), KVC_E_DOWN);
    kvc_get_counters(kvc, &c);
    ck_assert_uint_eq(c.stores_dropped_bytes, 2 * FAKE_BLOCK_BYTES);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_COMMIT]), 0);
    ck_assert_int_eq(kvc_commit(ns, after, 0, 2, offsets, NULL, 0, st), 0);
}

CASE(dropping_a_reservation_of_before_is_no_error)
{
    struct kvc_blocks b = blocks_of(1);
    uint64_t r;
    uint8_t st[1];
    ck_assert_int_eq(kvc_reserve(ns, &b, &r, st), 0);
    lose_daemon();
    ck_assert_int_eq(kvc_drop(kvc, r), 0);
}

CASE(a_slow_welcome_is_waited_for_across_calls)
{
    uint64_t ms;
    lose_daemon();
    atomic_store(&fake.s->attach, FAKE_MUTE);
    fake_start(&fake);
    for (int i = 0; i < 300 && atomic_load(&fake.s->attaches) < 2; i++) {
        ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
        usleep(1000);
    }
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    ck_assert_uint_eq(atomic_load(&fake.s->attaches), 2);
}

CASE(reconnecting_is_tried_now_and_then)
{
    uint64_t ms;
    lose_daemon();
    atomic_store(&fake.s->attach, FAKE_DENY);
    fake_start(&fake);
    uint64_t began = fake_now_ms();
    while (atomic_load(&fake.s->attaches) < 4)
        ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    ck_assert_int_eq(kvc_ping(kvc, &ms), KVC_E_DOWN);
    uint64_t took = fake_now_ms() - began;
    ck_assert_uint_le(atomic_load(&fake.s->attaches) - 1, took / 100 + 1);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "4711"));
}

/* ---- fork ---- */

static int child_uses_the_session(void)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_prefix p;
    struct kvc_ns_spec spec = spec_of("other");
    struct kvc_ns *other;
    uint64_t ms, r;
    uint8_t st[1];
    struct kvc_blocks b = blocks_of(1);
    if (kvc_is_up(kvc) || kvc_staging(kvc, NULL) != NULL)
        return 1;
    if (kvc_ping(kvc, &ms) != -EPERM || kvc_lookup(ns, &seq, 0, &p) != -EPERM)
        return 2;
    if (kvc_ns_open(kvc, &spec, &other) != -EPERM || kvc_reserve(ns, &b, &r, st) != -EPERM)
        return 3;
    if (strstr(kvc_last_error(kvc), "parent process") == NULL)
        return 4;
    kvc_close(&kvc);
    return 0;
}

CASE(a_child_may_not_use_its_parents_session)
{
    uint64_t ms;
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(child_uses_the_session());
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert(atomic_load(&fake.s->attach_open));
    ck_assert_uint_eq(kvc_epoch(kvc), 1);
}

CASE(a_child_can_drop_its_copy_of_a_hold)
{
    struct kvc_seq seq = seq_of(1);
    struct kvc_hold *h;
    atomic_store(&fake.s->hit_blocks, 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &h), 0);
    pid_t pid = fork();
    if (pid == 0) {
        kvc_release(kvc, &h);
        kvc_close(&kvc);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(kvc_hold_check(h), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_RELEASE]), 0);
    kvc_release(kvc, &h);
}

CASES(.setup = start, .teardown = stop);

/* The session's process dies; the child that it forked lives on and would hold the connection. */
CASE(a_child_does_not_keep_its_dead_parents_session_alive)
{
    int until[2]; /* the grandchild lives until the test closes its end */
    ck_assert_int_eq(pipe(until), 0);
    fake_start(&fake);
    pid_t parent = fork();
    if (parent == 0) {
        struct kvc_options o = {.socket = fake.path, .must_connect = true};
        if (kvc_open(&o, &kvc) < 0)
            _exit(1);
        if (fork() == 0) {
            char c;
            close(until[1]);
            _exit(read(until[0], &c, 1) == 0 ? 0 : 1);
        }
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(parent, &status, 0), parent);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->attaches), 1);
    ck_assert(fake_wait_for(attach_is_closed, NULL));
    close(until[1]);
    close(until[0]);
}
