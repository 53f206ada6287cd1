/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting, dying, coming back: of workers and of the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define BT    16u
#define MIB   (1u << 20)
#define CHAIN 8u

static struct rig rig;
static uint8_t keys[256 * KVC_KEY_BYTES], statuses[256];

static void setup(void)
{
    rig_start(&rig, NULL);
}

static void teardown(void)
{
    if (rig.pid)
        rig_stop(&rig);
    rig_clean(&rig);
}

static uint64_t reserve(struct kvc_ns *ns, uint32_t n)
{
    uint64_t reservation;
    struct kvc_blocks b = {.keys = keys, .n = n};
    ck_assert_int_eq(kvc_reserve(ns, &b, &reservation, statuses), 0);
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_OK);
    ck_assert_uint_ne(reservation, 0);
    return reservation;
}

static void commit(struct kvc *k, struct kvc_ns *ns, uint64_t reservation, uint32_t i)
{
    uint64_t bytes, offset = 0;
    rig_fill(keys + i * KVC_KEY_BYTES, kvc_staging(k, &bytes), RIG_BLOCK);
    ck_assert_int_eq(kvc_commit(ns, reservation, i, 1, &offset, NULL, 0, statuses), 0);
    ck_assert_uint_eq(statuses[0], KVC_ST_OK);
}

/* The writer's process: announces a chain, says so, and commits one block per byte that it reads.
 */
static int writer(const char *role, uint64_t arg)
{
    (void)role;
    int go = (int)(arg >> 32), ready = (int)(uint32_t)arg;
    char c = 0;
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    uint64_t r = reserve(ns, CHAIN);
    if (write(ready, &c, 1) != 1)
        return 1;
    for (uint32_t i = 0; read(go, &c, 1) == 1; i++)
        commit(k, ns, r, i);
    kvc_close(&k);
    return 0;
}

static pid_t start_writer(int *ret_pipe)
{
    int go[2], ready[2];
    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(fcntl(go[1], F_SETFD, FD_CLOEXEC), 0);
    pid_t pid = rig_spawn(&rig, "writer", (uint64_t)go[0] << 32 | (uint32_t)ready[1]);
    close(go[0]);
    close(ready[1]);
    char c;
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    *ret_pipe = go[1];
    return pid;
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_waiting_reader_gets_each_block_as_it_is_committed)
{
    int go;
    pid_t writer = start_writer(&go);
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    for (uint32_t i = 0; i < CHAIN; i++) {
        struct kvc_acquire_options o = {
            .flags = KVC_F_WAIT, .from_tokens = i * BT, .wait_tokens = (i + 1) * BT};
        struct kvc_op *op;
        struct kvc_hold *hold;
        ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
        ck_assert_int_eq(write(go, "x", 1), 1);
        ck_assert_int_eq(kvc_wait(&op, NULL, &hold, NULL), 0);
        ck_assert_uint_eq(hold->prefix.tokens, (i + 1) * BT);
        ck_assert_uint_eq(hold->group[0].n, 1);
        ck_assert_uint_eq(hold->group[0].first, i);
        ck_assert(rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[0].data, RIG_BLOCK));
        kvc_release(k, &hold);
    }
    close(go);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    kvc_close(&k);
}

CASE(when_the_writer_dies_who_waits_is_told)
{
    int go;
    pid_t writer = start_writer(&go);
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 60000};
    struct kvc_op *op;
    struct kvc_hold *hold;
    ck_assert_int_eq(write(go, "xx", 2), 2);
    rig_wait_stat(k, "core.blocks_present", 2);
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
    rig_wait_stat(k, "core.waits", 1);
    ck_assert_int_eq(kill(writer, SIGKILL), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, &hold, NULL), 0);
    ck_assert_uint_eq(hold->prefix.tokens, 2 * BT);
    ck_assert_uint_eq(hold->prefix.group[0].reason, KVC_MISS_DROPPED);
    kvc_release(k, &hold);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_pending"), 0);
    ck_assert_uint_eq(rig_stat(k, "daemon.host_used_slots"), 2);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    close(go);
    kvc_close(&k);
}

CASE(a_wait_ends_at_its_deadline_with_what_is_there)
{
    int go;
    pid_t writer = start_writer(&go);
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 100};
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, &o, &hold), 0);
    ck_assert_uint_eq(hold->prefix.tokens, 0);
    ck_assert_uint_eq(hold->prefix.group[0].reason, KVC_MISS_PENDING);
    kvc_release(k, &hold);
    close(go);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    kvc_close(&k);
}

CASE(a_wait_can_be_cancelled)
{
    int go;
    pid_t writer = start_writer(&go);
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 60000};
    struct kvc_op *op;
    struct kvc_hold *hold = NULL;
    ck_assert_int_eq(kvc_acquire_begin(ns, &seq, &o, &op), 0);
    ck_assert_int_eq(kvc_cancel(op), 0);
    ck_assert_int_eq(kvc_wait(&op, NULL, &hold, NULL), KVC_E_CANCELLED);
    kvc_release(k, &hold);
    ck_assert_uint_eq(rig_stat(k, "svc.calls"), 0);
    close(go);
    ck_assert_int_eq(waitpid(writer, NULL, 0), writer);
    kvc_close(&k);
}

CASE(a_closed_session_gives_back_leases_and_room)
{
    struct kvc *k = rig_open(&rig, 0), *other = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(other, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, 8, keys);
    ck_assert_uint_eq(rig_store(other, ns, keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    struct kvc_seq seq = rig_seq(keys, 4, BT);
    struct kvc_hold *released, *left;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &released), 0);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &left), 0);
    rig_keys(ns, 2, BT, 8, keys);
    reserve(ns, 8);
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 2);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_pending"), 8);
    kvc_release(NULL, &released);
    kvc_close(&other);
    rig_wait_stat(k, "svc.sessions", 1);
    ck_assert_uint_eq(rig_stat(k, "core.leases"), 0);
    ck_assert_uint_eq(rig_stat(k, "core.blocks_pending"), 0);
    ck_assert_uint_eq(rig_stat(k, "core.reservations"), 0);
    ck_assert_uint_eq(rig_stat(k, "svc.staging_bytes"), 0);
    ck_assert_uint_eq(rig_stat(k, "daemon.host_used_slots"), 4);
    kvc_close(&k);
}

CASE(without_a_daemon_reads_miss_and_stores_are_dropped_and_counted)
{
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, 4, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    struct kvc_seq seq = rig_seq(keys, 4, BT);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    rig_kill(&rig);
    /* What is held stays readable; it is what was stored or it says that it is stale. */
    if (kvc_hold_check(hold) == 0)
        for (unsigned i = 0; i < 4; i++)
            ck_assert(rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[i].data, RIG_BLOCK));
    struct kvc_prefix p;
    ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
    ck_assert_uint_eq(p.tokens, 0);
    uint64_t offsets[4] = {0};
    struct kvc_blocks b = {.keys = keys, .n = 4};
    ck_assert_int_eq(kvc_store(ns, &b, offsets, NULL, 0, statuses), KVC_E_DOWN);
    struct kvc_counters c;
    kvc_get_counters(k, &c);
    ck_assert_uint_ge(c.lookups_down, 1);
    ck_assert_uint_eq(c.stores_dropped_blocks, 4);
    ck_assert_uint_eq(c.stores_dropped_bytes, 4 * RIG_BLOCK);

    rig_restart(&rig, NULL);
    for (unsigned i = 0; i < 500 && !kvc_is_up(k); i++) {
        ck_assert_int_eq(kvc_lookup(ns, &seq, 0, &p), 0);
        rig_sleep_ms(10);
    }
    ck_assert(kvc_is_up(k));
    ck_assert_int_eq(kvc_hold_check(hold), KVC_STALE);
    kvc_release(k, &hold);
    rig_keys(ns, 1, BT, 4, keys); /* a new seed */
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, 4, BT, RIG_BLOCK, statuses), 4);
    ck_assert_uint_eq(rig_load(k, ns, keys, 4, BT, RIG_BLOCK), 4);
    kvc_close(&k);
}

CASE(a_stopped_daemon_costs_no_more_than_the_deadline)
{
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, 1, keys);
    struct kvc_seq seq = rig_seq(keys, 1, BT);
    struct kvc_acquire_options o = {.timeout_ms = 200};
    struct kvc_hold *hold = NULL;
    ck_assert_int_eq(kill(rig.pid, SIGSTOP), 0);
    int err = kvc_acquire(ns, &seq, &o, &hold); /* would hang here, until the test's time is up */
    ck_assert(err == 0 || err == KVC_E_TIMEOUT);
    if (err == 0)
        ck_assert_uint_eq(hold->prefix.tokens, 0);
    kvc_release(k, &hold);
    ck_assert_int_eq(kill(rig.pid, SIGCONT), 0);
    kvc_close(&k);
}

CASE(sigquit_writes_the_flight_recorder_and_the_daemon_goes_on)
{
    struct kvc *k = rig_open(&rig, 0);
    char path[128];
    struct stat st = {0};
    snprintf(path, sizeof path, "%s/flight.txt", rig.dir);
    ck_assert_int_eq(kill(rig.pid, SIGQUIT), 0);
    for (unsigned i = 0; i < 500 && (stat(path, &st) || st.st_size == 0); i++)
        rig_sleep_ms(10);
    ck_assert_int_gt(st.st_size, 0);
    uint64_t uptime;
    ck_assert_int_eq(kvc_ping(k, &uptime), 0);
    kvc_close(&k);
}

CASE(sigterm_ends_sessions_and_leaves_no_socket)
{
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    rig_keys(ns, 1, BT, CHAIN, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, CHAIN, BT, RIG_BLOCK, statuses), CHAIN);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    rig_stop(&rig);
    rig.pid = 0;
    /* A planned end costs who is reading no more than a miss: the memory is still there. */
    for (uint32_t i = 0; i < CHAIN; i++)
        ck_assert(rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[i].data, RIG_BLOCK));
    kvc_release(k, &hold);
    struct stat st;
    ck_assert_int_eq(stat(rig.socket, &st), -1);
    ck_assert_int_eq(errno, ENOENT);
    kvc_close(&k);
}

CASE(a_second_daemon_in_the_same_directory_is_refused)
{
    char dir[96], path[512];
    snprintf(dir, sizeof dir, "runtime_dir=%s", rig.dir);
    snprintf(path, sizeof path, "%s/kvcache-daemon", getenv("KVC_BIN_DIR"));
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(126);
        execl(path, path, "--set", dir, "--set", "host.limit=16MiB", "--set", "staging.total=8MiB",
              "--set", "staging.session_max=8MiB", (char *)NULL);
        _exit(127);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    struct kvc *k = rig_open(&rig, 0);
    kvc_close(&k);
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, writer);
}
