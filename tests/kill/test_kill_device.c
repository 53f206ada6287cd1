/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes killed in the middle of copies to and from pages on a device. $KVC_SEED and $KVC_ROUNDS
 * choose other points and another number of them; the seed is printed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "rig_reader.h"

#define BT     16u
#define BATCH  32u
#define KEPT   48u /* blocks of a bystander's chain */
#define PLACES 128u
#define CHAINS 16u /* of a worker that is killed, before it begins again */

static struct rig rig;
static uint8_t kept_keys[KEPT * KVC_KEY_BYTES], keys[BATCH * KVC_KEY_BYTES], statuses[KEPT];

static void sleep_us(uint64_t us)
{
    struct timespec ts = {.tv_nsec = (long)us * 1000};
    nanosleep(&ts, NULL);
}

/* A device that takes its time: who is killed at random is killed in the middle of copies. */
static const char *const sets[] = {"hbm.devices=" RIG_DEVICE "=16MiB", "hbm.chunk=2MiB",
                                   "hbm.emu_latency=300us", NULL};

static void setup(void)
{
    rig_start(&rig, sets);
}

static void teardown(void)
{
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- a worker that is killed ---- */

/* Out of pages, into others, in place; what it reads must be right. Never lets go of a hold before
 * it has the next. */
static void copy_for_ever(uint32_t first_chain)
{
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    struct kvc_gpu *gpu;
    struct rig_pages pages;
    struct kvc_hold *held = NULL;
    ck_assert_int_eq(kvc_gpu_open(k, RIG_DEVICE, &gpu), 0);
    ck_assert_int_eq(rig_pages_open(gpu, RIG_BLOCK, PLACES, &pages), 0);
    for (uint32_t turn = 0;; turn++) {
        rig_keys(ns, first_chain + turn % CHAINS, BT, BATCH, keys);
        ck_assert_int_eq(rig_pages_store(ns, &pages, 0, keys, 0, BATCH, BT, 0, statuses), 0);
        int n = rig_pages_load(ns, &pages, BATCH, keys, BATCH, BT, 0);
        for (int i = 0; i < n; i++)
            ck_assert(rig_pages_has(&pages, BATCH + (uint32_t)i, keys + (size_t)i * KVC_KEY_BYTES));
        struct kvc_seq seq = rig_seq(keys, BATCH, BT);
        struct kvc_hold *hold;
        ck_assert_int_eq(kvc_acquire_on(ns, &seq, gpu, NULL, &hold), 0);
        for (uint32_t i = 0; i < hold->group[0].n; i++)
            ck_assert(
                rig_check(keys + (size_t)i * KVC_KEY_BYTES, rig_hold_data(hold, i), RIG_BLOCK));
        kvc_release(k, &held);
        held = hold;
    }
}

struct bystander {
    struct kvc *k;
    struct kvc_ns *ns, *other; /* of the storm, and its own */
    struct kvc_gpu *gpu;
    struct rig_pages pages;
    struct kvc_hold *hold;
    unsigned descriptors; /* of the daemon, with nobody else there */
};

static void bystander_open(struct bystander *b)
{
    b->k = rig_open(&rig, 0);
    rig_await_device(b->k, true);
    b->ns = rig_ns(b->k, "m", BT, RIG_BLOCK);
    b->other = rig_ns(b->k, "bystander", BT, RIG_BLOCK);
    ck_assert_int_eq(kvc_gpu_open(b->k, RIG_DEVICE, &b->gpu), 0);
    ck_assert_int_eq(rig_pages_open(b->gpu, RIG_BLOCK, PLACES, &b->pages), 0);
    rig_keys(b->other, 1, BT, KEPT, kept_keys);
    ck_assert_int_eq(rig_pages_store(b->other, &b->pages, 0, kept_keys, 0, KEPT, BT, 0, statuses),
                     0);
    struct kvc_seq kept = rig_seq(kept_keys, KEPT, BT);
    /* What it reads must not be evicted by the storm, neither from memory nor from the device. */
    unsigned hbm = 0;
    for (unsigned t = 0; hbm < KEPT && t < 2000; t++) {
        kvc_release(b->k, &b->hold);
        ck_assert_int_eq(kvc_acquire_on(b->other, &kept, b->gpu, NULL, &b->hold), 0);
        ck_assert_uint_eq(b->hold->group[0].n, KEPT);
        hbm = 0;
        for (uint32_t i = 0; i < KEPT; i++)
            hbm += kvc_hold_device(b->hold, 0, i) != NULL;
    }
    ck_assert_uint_eq(hbm, KEPT);
    rig_pages_spoil(&b->pages, 0, PLACES);
    b->descriptors = rig_descriptors(rig.pid);
}

static void bystander_close(struct bystander *b)
{
    kvc_release(b->k, &b->hold);
    rig_pages_close(&b->pages);
    kvc_gpu_close(&b->gpu);
    kvc_close(&b->k);
}

/* The bystander's blocks are what they were; its pages were touched where it asked for it alone. */
static void check_bystander(struct bystander *b)
{
    for (uint32_t i = 0; i < KEPT; i++)
        ck_assert(rig_check(kept_keys + (size_t)i * KVC_KEY_BYTES, kvc_hold_device(b->hold, 0, i),
                            RIG_BLOCK));
    ck_assert_int_eq(kvc_hold_check(b->hold), 0);
    ck_assert(rig_pages_untouched(&b->pages, 0, PLACES));
    ck_assert_int_eq(rig_pages_load(b->other, &b->pages, 40, kept_keys, KEPT, BT, 0), KEPT);
    for (uint32_t i = 0; i < KEPT; i++)
        ck_assert(rig_pages_has(&b->pages, 40 + i, kept_keys + (size_t)i * KVC_KEY_BYTES));
    ck_assert(rig_pages_untouched(&b->pages, 0, 40));
    ck_assert(rig_pages_untouched(&b->pages, 40 + KEPT, PLACES - 40 - KEPT));
    rig_pages_spoil(&b->pages, 0, PLACES);
}

/* Of the dead one's chains everything that is visible is right, by either way. */
static void check_chains(struct bystander *b, uint32_t first_chain)
{
    for (uint32_t chain = first_chain; chain < first_chain + CHAINS; chain++) {
        rig_keys(b->ns, chain, BT, BATCH, keys);
        uint32_t hit = rig_load(b->k, b->ns, keys, BATCH, BT, RIG_BLOCK);
        if (hit == 0)
            break;
        int n = rig_pages_load(b->ns, &b->pages, 0, keys, BATCH, BT, 0);
        ck_assert_int_eq(n, (int)hit);
        for (int i = 0; i < n; i++)
            ck_assert(rig_pages_has(&b->pages, (uint32_t)i, keys + (size_t)i * KVC_KEY_BYTES));
    }
    rig_pages_spoil(&b->pages, 0, PLACES);
}

/* By what the daemon says, and by what the kernel says of the daemon. */
static void check_nothing_left(struct bystander *b)
{
    rig_wait_stat(b->k, "svc.sessions", 1);
    rig_wait_stat(b->k, "svc.pools", 1);
    rig_wait_stat(b->k, "svc.mems", 1);
    rig_wait_stat(b->k, "core.leases", 1);
    rig_wait_stat(b->k, "svc.calls", 0);
    ck_assert_uint_eq(rig_stat(b->k, "core.blocks_pending"), 0);
    ck_assert_uint_eq(rig_stat(b->k, "core.reservations"), 0);
    ck_assert_uint_eq(rig_stat(b->k, "daemon.host_used_bytes"),
                      rig_stat(b->k, "core.blocks_present") * RIG_BLOCK);
    const uint64_t bytes = rig_pages_bytes(&b->pages);
    struct kvc_device d = rig_device(b->k);
    for (unsigned t = 0; t < 1000 && (d.imported_bytes != bytes ||
                                      rig_mapped(rig.pid, RIG_WORKERS_MEMORY) != bytes);
         t++) {
        rig_sleep_ms(5);
        d = rig_device(b->k);
    }
    ck_assert_uint_eq(d.imported_bytes, bytes);
    ck_assert_uint_eq(rig_mapped(rig.pid, RIG_WORKERS_MEMORY), bytes);
    ck_assert_uint_eq(rig_mapped(rig.pid, RIG_DAEMONS_MEMORY), d.memory_bytes);
    ck_assert(d.up);
    ck_assert_uint_eq(d.outs, 0);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(a_worker_killed_while_pages_are_copied_leaves_nothing_behind)
{
    struct bystander b = {.k = NULL};
    unsigned rounds = rig_rounds(80), busy = 0;
    bystander_open(&b);
    for (unsigned i = 0; i < rounds; i++) {
        const uint64_t before = rig_device(b.k).copies;
        pid_t pid = rig_spawn(&rig, "copy", i * 1000);
        /* Three times of four it is let into its stride; else it may die while it attaches. */
        for (unsigned t = 0; i % 4 && t < 10000 && rig_device(b.k).copies < before + 2; t++)
            rig_sleep_ms(1);
        sleep_us(rig_next_random() % 30000);
        busy += rig_device(b.k).copies > before;
        ck_assert_int_eq(kill(pid, SIGKILL), 0);
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status)); /* it saw nothing wrong */
        check_nothing_left(&b);
        check_bystander(&b);
        check_chains(&b, i * 1000);
    }
    ck_assert_uint_ge(busy, rounds / 2);
    /* Chunks of slots that came have a few descriptors each; nothing grows with the rounds. */
    const uint64_t chunks = rig_device(b.k).memory_bytes >> 21;
    ck_assert_uint_le(rig_descriptors(rig.pid), b.descriptors + 4 * chunks + 4);
    bystander_close(&b);
    b.k = rig_open(&rig, 0);
    rig_wait_stat(b.k, "svc.sessions", 1);
    ck_assert_uint_eq(rig_device(b.k).imported_bytes, 0);
    kvc_close(&b.k);
}

/* ---- a daemon that is killed ---- */

/* Workers keep nothing of daemons that are gone, and the daemon has what they have. Not at each
 * moment: a worker that was not answered in time connects anew, and registers its memory again. */
static void await_agreement(const pid_t reader[RIG_READERS])
{
    struct kvc *k = rig_open(&rig, 0);
    uint64_t daemons[RIG_READERS], own[RIG_READERS];
    struct kvc_device d;
    unsigned agreed = 0;
    for (unsigned t = 0; agreed < RIG_READERS && t < 10000; t++) {
        rig_sleep_ms(t ? 5 : 0);
        for (unsigned r = 0; r < RIG_READERS; r++) {
            daemons[r] = rig_mapped(reader[r], RIG_DAEMONS_MEMORY);
            own[r] = rig_mapped(reader[r], RIG_WORKERS_MEMORY);
        }
        d = rig_device(k);
        agreed = 0;
        for (unsigned r = 0; r < RIG_READERS; r++)
            agreed += daemons[r] <= d.memory_bytes && own[r] == d.imported_bytes / RIG_READERS;
    }
    kvc_close(&k);
    for (unsigned r = 0; r < RIG_READERS; r++) {
        ck_assert_uint_le(daemons[r], d.memory_bytes);
        ck_assert_uint_eq(own[r], d.imported_bytes / RIG_READERS);
    }
}

CASE(a_daemon_killed_while_pages_are_copied_costs_misses_only)
{
    pid_t reader[RIG_READERS];
    struct rig_shared *sh = rig_readers_start(&rig, reader);
    unsigned rounds = rig_rounds(25);
    for (unsigned i = 0; i < rounds; i++) {
        rig_readers_await(&rig, sh);
        await_agreement(reader);
        sleep_us(rig_next_random() % 20000);
        rig_kill(&rig);
        if (i % 2) /* misses, for a while */
            sleep_us(rig_next_random() % 100000);
        rig_restart(&rig, sets);
    }
    rig_readers_stop(sh, reader);
    ck_assert_uint_eq(sh->wrong, 0);
    ck_assert_uint_gt(sh->misses, 0);
    struct kvc *k = rig_open(&rig, 0);
    rig_await_device(k, true);
    rig_wait_stat(k, "svc.sessions", 1);
    ck_assert_uint_eq(rig_device(k).imported_bytes, 0);
    ck_assert_uint_eq(rig_stat(k, "svc.pools"), 0);
    kvc_close(&k);
}

static int child_main(const char *role, uint64_t arg)
{
    if (strcmp(role, "copy") == 0)
        copy_for_ever((uint32_t)arg);
    return rig_read_for_ever(&rig, arg);
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, child_main);
}
