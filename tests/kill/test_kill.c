/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes killed at random points. $KVC_SEED and $KVC_ROUNDS choose other points and more of
 * them; the seed is printed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "rig.h"

#define BT    16u
#define MIB   (1u << 20)
#define BATCH 32u
#define KEPT  64u /* blocks of a bystander's chain */

static struct rig rig;
static uint8_t kept_keys[KEPT * KVC_KEY_BYTES], keys[BATCH * KVC_KEY_BYTES], statuses[KEPT];

static void setup(void)
{
    rig_start(&rig, NULL);
}

static void teardown(void)
{
    rig_stop(&rig);
    rig_clean(&rig);
}

/* Reserves and commits chains for ever, in one or in two steps. */
static void store_for_ever(uint32_t first_chain)
{
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    uint64_t bytes, offsets[BATCH];
    uint8_t *staging = kvc_staging(k, &bytes);
    for (uint32_t i = 0; i < BATCH; i++)
        offsets[i] = i * RIG_BLOCK;
    for (uint32_t chain = first_chain;; chain++) {
        rig_keys(ns, chain, BT, BATCH, keys);
        for (uint32_t i = 0; i < BATCH; i++)
            rig_fill(keys + i * KVC_KEY_BYTES, staging + offsets[i], RIG_BLOCK);
        struct kvc_blocks b = {.keys = keys, .n = BATCH};
        if (chain % 2) {
            if (kvc_store(ns, &b, offsets, NULL, 0, statuses))
                _exit(1);
            continue;
        }
        uint64_t r;
        if (kvc_reserve(ns, &b, &r, statuses))
            _exit(1);
        if (r && kvc_commit(ns, r, 0, BATCH / 2, offsets, NULL, 0, statuses))
            _exit(1);
        if (r && kvc_commit(ns, r, BATCH / 2, BATCH / 2, offsets + BATCH / 2, NULL, 0, statuses))
            _exit(1);
    }
}

/* Everything that is visible of the chains that the worker may have stored is right. */
static void check_chains(struct kvc *k, struct kvc_ns *ns, uint32_t first_chain)
{
    for (uint32_t chain = first_chain; chain < first_chain + 64; chain++) {
        rig_keys(ns, chain, BT, BATCH, keys);
        rig_load(k, ns, keys, BATCH, BT, RIG_BLOCK);
    }
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(a_worker_killed_while_it_stores_leaves_nothing_behind)
{
    struct kvc *k = rig_open(&rig, MIB);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    struct kvc_ns *other = rig_ns(k, "bystander", BT, RIG_BLOCK);
    unsigned rounds = rig_rounds(200);
    rig_keys(other, 1, BT, KEPT, kept_keys);
    ck_assert_uint_eq(rig_store(k, other, kept_keys, 0, KEPT, BT, RIG_BLOCK, statuses), KEPT);
    struct kvc_seq kept = rig_seq(kept_keys, KEPT, BT);
    struct kvc_hold *hold; /* what the bystander reads must not be evicted by the storm */
    ck_assert_int_eq(kvc_acquire(other, &kept, NULL, &hold), 0);
    for (unsigned i = 0; i < rounds; i++) {
        uint32_t first_chain = i * 100000;
        uint64_t before = rig_stat(k, "core.blocks_stored");
        pid_t pid = rig_spawn(&rig, "store", first_chain);
        /* Every other time it is let into its stride; else it may die while it attaches. */
        for (unsigned t = 0; i % 2 && t < 10000; t++) {
            if (rig_stat(k, "core.blocks_stored") > before)
                break;
            rig_sleep_ms(1);
        }
        struct timespec ts = {.tv_nsec = (long)(rig_next_random() % 30000000)};
        nanosleep(&ts, NULL);
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);

        rig_wait_stat(k, "svc.sessions", 1);
        ck_assert_uint_eq(rig_stat(k, "core.blocks_pending"), 0);
        ck_assert_uint_eq(rig_stat(k, "core.reservations"), 0);
        ck_assert_uint_eq(rig_stat(k, "core.leases"), 1);
        ck_assert_uint_eq(rig_stat(k, "svc.staging_bytes"), MIB);
        ck_assert_uint_eq(rig_stat(k, "daemon.host_used_bytes"),
                          rig_stat(k, "core.blocks_present") * RIG_BLOCK);
        ck_assert_uint_eq(rig_stat(k, "core.bytes_present"),
                          rig_stat(k, "core.blocks_present") * RIG_BLOCK);
        check_chains(k, ns, first_chain);
        for (uint32_t b = 0; b < KEPT; b++)
            ck_assert(
                rig_check(kept_keys + b * KVC_KEY_BYTES, hold->group[0].block[b].data, RIG_BLOCK));
        ck_assert_int_eq(kvc_hold_check(hold), 0);
    }
    ck_assert_uint_gt(rig_stat(k, "core.blocks_stored"), KEPT + rounds / 2); /* they did store */
    kvc_release(k, &hold);
    kvc_close(&k);
}

struct shared {
    volatile uint64_t accepted, wrong, misses;
    volatile int stop;
};

static struct shared *map_shared(int fd)
{
    struct shared *sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sh, MAP_FAILED);
    return sh;
}

/* Reads one chain for ever; what it accepts must be right. When it misses it stores it again. */
static void read_for_ever(struct shared *sh)
{
    struct kvc_options o = {.socket = rig.socket, .staging_bytes = MIB, .timeout_ms = 10000};
    struct kvc_ns_spec spec = rig_spec("m", BT, RIG_BLOCK);
    struct kvc *k;
    struct kvc_ns *ns = NULL;
    ck_assert_int_eq(kvc_open(&o, &k), 0);
    while (kvc_ns_open(k, &spec, &ns) != 0) /* the daemon may be killed before it was ever seen */
        rig_sleep_ms(2);
    while (!sh->stop) {
        struct kvc_seq seq = rig_seq(keys, BATCH, BT);
        struct kvc_prefix none;
        if (kvc_ns_seed(ns) == NULL) { /* no daemon has opened it yet: asking does */
            (void)!kvc_lookup(ns, &seq, 0, &none);
            rig_sleep_ms(2);
            continue;
        }
        rig_keys(ns, 1, BT, BATCH, keys);
        struct kvc_acquire_options soon = {.timeout_ms = 300};
        struct kvc_hold *hold = NULL;
        if (kvc_acquire(ns, &seq, &soon, &hold) || hold->group[0].n == 0) {
            kvc_release(k, &hold);
            sh->misses++;
            uint64_t bytes;
            if (kvc_is_up(k) && kvc_staging(k, &bytes)) {
                uint64_t offsets[BATCH];
                for (uint32_t i = 0; i < BATCH; i++) {
                    offsets[i] = i * RIG_BLOCK;
                    rig_fill(keys + i * KVC_KEY_BYTES,
                             (uint8_t *)kvc_staging(k, &bytes) + offsets[i], RIG_BLOCK);
                }
                struct kvc_blocks b = {.keys = keys, .n = BATCH};
                int err = kvc_store(ns, &b, offsets, NULL, 0, statuses);
                (void)err; /* the daemon may be killed at any moment; a store may be lost */
            } else {
                rig_sleep_ms(2);
            }
            continue;
        }
        uint64_t wrong = 0;
        for (uint32_t i = 0; i < hold->group[0].n; i++)
            wrong += !rig_check(keys + i * KVC_KEY_BYTES, hold->group[0].block[i].data, RIG_BLOCK);
        if (kvc_hold_check(hold) == 0) {
            sh->accepted++;
            sh->wrong += wrong;
        }
        kvc_release(k, &hold);
    }
    kvc_close(&k);
    _exit(0);
}

CASE(a_daemon_killed_while_workers_read_costs_misses_only)
{
    int fd = memfd_create("shared", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, sizeof(struct shared)), 0);
    struct shared *sh = map_shared(fd);
    unsigned rounds = rig_rounds(20);
    pid_t reader[2];
    for (unsigned i = 0; i < 2; i++)
        reader[i] = rig_spawn(&rig, "read", (uint64_t)fd);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t before = sh->accepted;
        /* They look every 2 s at the longest. A minute: a disk that others keep busy holds up what
         * makes a file, and it was seen to take 23 s. */
        for (unsigned t = 0; t < 12000 && sh->accepted < before + 5; t++)
            rig_sleep_ms(5);
        ck_assert_uint_ge(sh->accepted, before + 5); /* they came back to life */
        rig_sleep_ms((unsigned)(rig_next_random() % 20));
        rig_kill(&rig);
        rig_restart(&rig, NULL);
    }
    sh->stop = 1;
    for (unsigned i = 0; i < 2; i++) {
        int status;
        ck_assert_int_eq(waitpid(reader[i], &status, 0), reader[i]);
        ck_assert_int_eq(status, 0);
    }
    ck_assert_uint_eq(sh->wrong, 0);
    ck_assert_uint_gt(sh->misses, 0);
}

static int child_main(const char *role, uint64_t arg)
{
    if (strcmp(role, "store") == 0)
        store_for_ever((uint32_t)arg);
    read_for_ever(map_shared((int)arg));
    return 0;
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, child_main);
}
