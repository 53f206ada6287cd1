/* SPDX-License-Identifier: Apache-2.0 */
/* The library against a real daemon: loops, threads, signals, descriptors, and links that end while
 * blocks are read. */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define MIB       (1u << 20)
#define BT        16u
#define CHAIN     16u
#define IN_FLIGHT 64u
#define THREADS   4
#define ROUNDS    40u

static struct rig rig;
static uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[4096];

static void setup(void)
{
    rig_start(&rig, NULL);
}

static void teardown(void)
{
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- loops ---- */

static struct kvc_op *next_op(struct kvc *k)
{
    struct kvc_op *op;
    while (kvc_next(k, &op) == 0) {
        struct pollfd p = {.fd = kvc_fd(k), .events = POLLIN};
        if (poll(&p, 1, -1) < 0)
            ck_assert_int_eq(errno, EINTR);
        ck_assert_int_ge(kvc_progress(k), 0);
    }
    return op;
}

static void wait_state(struct kvc *k, bool up)
{
    while (kvc_is_up(k) != up) {
        struct pollfd p = {.fd = kvc_fd(k), .events = POLLIN};
        if (poll(&p, 1, -1) < 0)
            ck_assert_int_eq(errno, EINTR);
        ck_assert_int_ge(kvc_progress(k), 0);
    }
}

/* Begins the i-th of a mixture; its number is the op's user word. */
static void begin(struct kvc *k, struct kvc_ns *ns, uintptr_t i)
{
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_op *op = NULL;
    int rc = i % 3 == 0   ? kvc_lookup_begin(ns, &seq, 0, &op)
             : i % 3 == 1 ? kvc_acquire_begin(ns, &seq, NULL, &op)
                          : kvc_ping_begin(k, &op);
    ck_assert_msg(rc == 0, "%s", kvc_last_error(k));
    kvc_op_set_user(op, (void *)i);
}

static void finish(struct kvc *k, struct kvc_op *op, bool seen[IN_FLIGHT])
{
    struct kvc_result r;
    int rc = kvc_finish(&op, &r);
    uintptr_t i = (uintptr_t)r.user;
    ck_assert_msg(rc == 0, "%s", kvc_last_error(k));
    ck_assert(!seen[i]);
    seen[i] = true;
    if (i % 3 == 0)
        ck_assert_uint_eq(r.prefix.tokens, CHAIN * BT);
    if (i % 3 != 1)
        return;
    ck_assert_uint_eq(r.hold->group[0].n, CHAIN);
    ck_assert(rig_check(keys, r.hold->group[0].block[0].data, RIG_BLOCK));
    ck_assert_int_eq(kvc_hold_check(r.hold), 0);
    kvc_release(k, &r.hold);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_loop_with_many_in_flight)
{
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    for (int round = 0; round < 5; round++) {
        bool seen[IN_FLIGHT] = {false};
        for (uintptr_t i = 0; i < IN_FLIGHT; i++)
            begin(k, ns, i);
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            finish(k, next_op(k), seen);
    }
    rig_wait_stat(k, "core.leases", 0);
    kvc_close(&k);
}

CASE(a_loop_that_stores_what_another_waits_for)
{
    struct kvc *k = rig_open(&rig, MIB), *reader = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK), *rns = rig_ns(reader, "m", BT, RIG_BLOCK);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 60000};
    uint64_t offset = 0;
    struct kvc_op *op;
    struct kvc_result r;
    rig_keys(ns, 1, BT, 1, keys);
    struct kvc_blocks b = {.keys = keys, .n = 1};
    struct kvc_seq seq = rig_seq(keys, 1, BT);
    rig_fill(keys, kvc_staging(k, NULL), RIG_BLOCK);

    ck_assert_int_eq(kvc_reserve_begin(ns, &b, &op), 0);
    op = next_op(k);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_int_eq(kvc_acquire_begin(rns, &seq, &o, &op), 0);
    rig_wait_stat(k, "core.waits", 1);
    ck_assert_int_eq(kvc_commit_begin(ns, r.reservation, 0, 1, &offset, NULL, 0, &op), 0);
    op = next_op(k);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.statuses[0], KVC_ST_OK);
    op = next_op(reader);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    ck_assert_uint_eq(r.hold->group[0].n, 1);
    ck_assert(rig_check(keys, r.hold->group[0].block[0].data, RIG_BLOCK));

    struct kvc_hold *first = r.hold;
    ck_assert_int_eq(kvc_redeem_begin(rns, first->ticket, &op), 0);
    op = next_op(reader);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    kvc_release(reader, &first);
    ck_assert_int_eq(kvc_hold_check(r.hold), 0);
    kvc_release(reader, &r.hold);
    kvc_close(&reader);
    kvc_close(&k);
}

CASE(a_killed_daemon_ends_all_and_the_loop_finds_the_next)
{
    struct kvc *k = rig_open(&rig, MIB), *writer = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK), *wns = rig_ns(writer, "m", BT, RIG_BLOCK);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = KVC_DEADLINE_MAX_MS};
    struct kvc_op *op;
    uint64_t reservation;
    rig_keys(ns, 1, BT, 1, keys);
    struct kvc_blocks b = {.keys = keys, .n = 1};
    struct kvc_seq seq = rig_seq(keys, 1, BT);
    ck_assert_int_eq(kvc_reserve(wns, &b, &reservation, statuses), 0);
    for (int i = 0; i < 32; i++)
        ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
    rig_wait_stat(writer, "core.waits", 32);
    rig_kill(&rig);
    for (int i = 0; i < 32; i++) {
        struct kvc_result r;
        op = next_op(k);
        ck_assert_int_eq(kvc_finish(&op, &r), 0);
        ck_assert_uint_eq(r.hold->lease, 0);
        kvc_release(k, &r.hold);
    }
    ck_assert(!kvc_is_up(k));
    kvc_close(&writer);
    rig_restart(&rig, NULL);
    wait_state(k, true);
    ck_assert_uint_eq(kvc_epoch(k), 2);
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    kvc_close(&k);
}

/* ---- threads ---- */

static struct relay {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    struct kvc *k;
    struct kvc_ns *ns;
    struct kvc_op *op; /* begun by one thread, finished by the next */
    uint32_t rounds;
} relay = {.lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER};

static void *relay_runner(void *arg)
{
    uint32_t parity = *(const uint32_t *)arg;
    pthread_mutex_lock(&relay.lock);
    while (relay.rounds < 10 * ROUNDS) {
        if (relay.rounds % 2 != parity) {
            pthread_cond_wait(&relay.turn, &relay.lock);
            continue;
        }
        struct kvc_result r;
        struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
        if (relay.op != NULL) {
            ck_assert_int_eq(kvc_finish(&relay.op, &r), 0);
            ck_assert_uint_eq(r.hold->group[0].n, CHAIN);
            kvc_release(relay.k, &r.hold);
        }
        ck_assert_int_eq(kvc_acquire_begin(relay.ns, &seq, NULL, &relay.op), 0);
        relay.rounds++;
        pthread_cond_broadcast(&relay.turn);
    }
    pthread_mutex_unlock(&relay.lock);
    return NULL;
}

CASE(a_session_is_handed_from_thread_to_thread)
{
    uint32_t parity[2] = {0, 1};
    pthread_t t[2];
    relay.k = rig_open(&rig, MIB);
    relay.ns = rig_ns(relay.k, "m", BT, RIG_BLOCK);
    rig_keys(relay.ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(relay.k, relay.ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    ck_assert_int_ge(kvc_fd(relay.k), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, relay_runner, &parity[i]), 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(t[i], NULL), 0);
    kvc_close(&relay.k);
}

static void *own_session(void *arg)
{
    uint32_t chain = *(const uint32_t *)arg;
    uint8_t mine[CHAIN * KVC_KEY_BYTES], st[CHAIN];
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        rig_keys(ns, chain + THREADS * (i % 8), BT, CHAIN, mine);
        (void)rig_store(k, ns, mine, 0, CHAIN, BT, RIG_BLOCK, st);
        (void)rig_load(k, ns, mine, CHAIN, BT, RIG_BLOCK);
        if (i % 16 == 15) { /* opening and closing share the list of sessions */
            kvc_close(&k);
            k = rig_open(&rig, MIB);
            ns = rig_ns(k, "m", BT, RIG_BLOCK);
        }
    }
    kvc_close(&k);
    return NULL;
}

CASE(sessions_of_several_threads_are_independent)
{
    uint32_t chain[THREADS];
    pthread_t t[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        chain[i] = i;
        ck_assert_int_eq(pthread_create(&t[i], NULL, own_session, &chain[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(t[i], NULL), 0);
}

static void *watcher(void *arg)
{
    struct pollfd p = {.fd = *(const int *)arg, .events = POLLIN};
    return (void *)(intptr_t)poll(&p, 1, -1);
}

CASE(another_thread_may_wait_on_the_descriptor)
{
    struct kvc *k = rig_open(&rig, 0);
    int fd = kvc_fd(k);
    struct kvc_op *op;
    pthread_t t;
    void *polled;
    ck_assert_int_eq(pthread_create(&t, NULL, watcher, &fd), 0);
    ck_assert_int_eq(kvc_ping_begin(k, &op), 0);
    ck_assert_int_eq(pthread_join(t, &polled), 0);
    ck_assert_int_eq((intptr_t)polled, 1);
    struct kvc_result r;
    op = next_op(k);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    kvc_close(&k);
}

/* ---- signals, exec ---- */

static volatile sig_atomic_t alarms;

static void on_alarm(int signo)
{
    (void)signo;
    alarms++;
}

/* Every call that waits, while a signal without SA_RESTART comes each millisecond. */
CASE(signals_end_no_call_early)
{
    struct sigaction sa = {.sa_handler = on_alarm}, old;
    struct itimerval each = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000}, off = {0};
    ck_assert_int_eq(sigaction(SIGALRM, &sa, &old), 0);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &each, NULL), 0);
    struct kvc *writer = rig_open(&rig, MIB);
    struct kvc_ns *wns = rig_ns(writer, "m", BT, RIG_BLOCK);
    rig_keys(wns, 1, BT, CHAIN, keys);
    struct kvc_blocks b = {.keys = keys, .n = 1};
    uint64_t reservation;
    ck_assert_int_eq(kvc_reserve(wns, &b, &reservation, statuses), 0);

    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    struct kvc_seq seq = rig_seq(keys, 1, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 300};
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &hold), 0);
    ck_assert_uint_eq(hold->prefix.group[0].reason, KVC_MISS_PENDING);
    kvc_release(k, &hold);
    ck_assert_int_eq(kvc_drop(writer, reservation), 0);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        rig_keys(ns, 10 + i, BT, CHAIN, keys);
        ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
        ck_assert_uint_eq(rig_load(k, ns, keys, CHAIN, BT, RIG_BLOCK), CHAIN);
    }
    kvc_close(&writer);
    kvc_close(&k);
    ck_assert_int_eq(setitimer(ITIMER_REAL, &off, NULL), 0);
    ck_assert_int_gt(alarms, 0);
    ck_assert_int_eq(sigaction(SIGALRM, &old, NULL), 0);
}

CASE(no_call_raises_sigpipe)
{
    ck_assert_ptr_ne(signal(SIGPIPE, SIG_DFL), SIG_ERR);
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_hold *hold;
    struct kvc_prefix prefix;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    rig_kill(&rig);
    kvc_release(k, &hold);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &prefix), 0);
    kvc_close(&k);
    rig_restart(&rig, NULL);
}

/* Descriptors of this process, that of the listing left out. */
static int count_descriptors(void)
{
    int n = -3; /* ".", "..", the directory */
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL)
        n++;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static int as_worker(const char *role, uint64_t arg)
{
    ck_assert_str_eq(role, "descriptors");
    return count_descriptors() - (int)arg;
}

static int descriptors_of_exec(int arg)
{
    int status;
    pid_t pid = rig_spawn(&rig, "descriptors", (uint64_t)arg);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 125);
    return WEXITSTATUS(status);
}

CASE(exec_inherits_no_descriptor)
{
    int before = descriptors_of_exec(0), own = count_descriptors();
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    ck_assert_uint_eq(rig_load(k, ns, keys, CHAIN, BT, RIG_BLOCK), CHAIN);
    ck_assert_int_ge(kvc_fd(k), 0);
    ck_assert_int_gt(count_descriptors(), own + 3);
    ck_assert_int_eq(descriptors_of_exec(0), before);
    kvc_close(&k);
    ck_assert_int_eq(count_descriptors(), own);
}

/* ---- a link that the library gives up ---- */

/* Stores as much as the host tier holds several times over, so that nothing unheld stays. */
static void flood(struct kvc *k, struct kvc_ns *ns)
{
    uint8_t other[CHAIN * KVC_KEY_BYTES];
    for (uint32_t chain = 100; chain < 100 + 4 * 16 * MIB / RIG_BLOCK / CHAIN; chain++) {
        rig_keys(ns, chain, BT, CHAIN, other);
        (void)rig_store(k, ns, other, 0, CHAIN, BT, RIG_BLOCK, statuses);
    }
}

CASE(what_is_read_lasts_when_the_library_gives_the_link_up)
{
    struct kvc_options o = {
        .socket = rig.socket, .staging_bytes = MIB, .timeout_ms = 500, .must_connect = true};
    struct kvc *k = NULL, *other = rig_open(&rig, MIB);
    int err;
    do /* a busy machine may miss the deadline */
        err = kvc_open(&o, &k);
    while (err == KVC_E_DOWN);
    ck_assert_int_eq(err, 0);
    struct kvc_ns *ons = rig_ns(other, "m", BT, RIG_BLOCK), *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ons, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(other, ons, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_hold *hold = NULL;
    while (hold == NULL || hold->lease == 0) { /* here too */
        kvc_release(k, &hold);
        ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    }

    uint8_t fresh[KVC_KEY_BYTES];
    uint64_t offset = 0;
    rig_keys(ns, 2, BT, 1, fresh);
    struct kvc_blocks b = {.keys = fresh, .n = 1};
    uint8_t *staging = kvc_staging(k, NULL);
    ck_assert_ptr_nonnull(staging);
    rig_fill(fresh, staging, RIG_BLOCK);
    ck_assert_int_eq(kill(rig.pid, SIGSTOP), 0);
    ck_assert_int_eq(kvc_store(ns, &b, &offset, NULL, 0, statuses), KVC_E_TIMEOUT);
    ck_assert(!kvc_is_up(k));
    memset(staging, 0xee, RIG_BLOCK); /* the caller's again */
    ck_assert_int_eq(kill(rig.pid, SIGCONT), 0);

    rig_wait_stat(other, "core.leases", 1);
    rig_wait_stat(other, "svc.quarantined", 1);
    struct kvc_seq one = rig_seq(fresh, 1, BT);
    struct kvc_prefix prefix;
    ck_assert_int_eq(kvc_lookup(ons, &one, 0, &prefix), 0);
    if (prefix.tokens > 0) /* stored before the daemon heard of the end: then rightly */
        ck_assert_uint_eq(rig_load(other, ons, fresh, 1, BT, RIG_BLOCK), 1);
    flood(other, ons);
    for (uint32_t i = 0; i < CHAIN; i++)
        ck_assert(
            rig_check(keys + (size_t)i * KVC_KEY_BYTES, hold->group[0].block[i].data, RIG_BLOCK));
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    kvc_release(k, &hold);
    rig_wait_stat(other, "core.leases", 0);
    rig_wait_stat(other, "svc.quarantined", 0);
    kvc_close(&k);
    kvc_close(&other);
}

int main(int argc, char **argv)
{
    const char *role;
    uint64_t arg;
    if (rig_is_child(argc, argv, &rig, &role, &arg))
        return rig_child_main(as_worker, role, arg);
    return cases_run();
}
