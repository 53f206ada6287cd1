/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device that fails, is lost, or has no memory left, at random moments while workers use it: its
 * tier costs hits, the daemon goes on, what is in host memory stays, and it is used again once it
 * is well. $KVC_SEED and $KVC_ROUNDS choose other moments and another number; the seed is printed.
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

#define BT   16u
#define MIB  (1u << 20)
#define KEPT 32u /* blocks of a chain that nobody else asks for */

static struct rig rig;
static char file[96], setting[128];
static uint8_t keys[KEPT * KVC_KEY_BYTES], statuses[KEPT];

/* By renaming: a device that looks meanwhile sees the one word or the other. */
static void say(const char *word)
{
    char other[128];
    snprintf(other, sizeof other, "%s.new", file);
    FILE *f = fopen(other, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(word, f), 0);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(rename(other, file), 0);
}

static void setup(void)
{
    rig_dir(&rig);
    snprintf(file, sizeof file, "%s/fault", rig.dir);
    snprintf(setting, sizeof setting, "hbm.emu_fault=%s", file);
    say("");
    const char *const sets[] = {"hbm.devices=" RIG_DEVICE "=16MiB", "hbm.chunk=2MiB",
                                "hbm.emu_latency=200us", setting, NULL};
    rig_restart(&rig, sets);
}

static void teardown(void)
{
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- out and back ---- */

static void check_kept(struct kvc *k, struct kvc_ns *ns)
{
    rig_keys(ns, 9, BT, KEPT, keys);
    ck_assert_uint_eq(rig_load(k, ns, keys, KEPT, BT, RIG_BLOCK), KEPT);
}

/* While it is out both go on reading, in host memory. */
static void await_held(const struct rig_shared *sh)
{
    const struct rig_shared then = *sh;
    for (unsigned i = 0; i < RIG_READERS; i++)
        for (unsigned t = 0; sh->held[i] < then.held[i] + 2; t++) {
            ck_assert_msg(t < 20000, "a worker finds nothing in host memory any more");
            rig_sleep_ms(1);
        }
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(a_device_that_is_out_costs_hits_and_is_used_again)
{
    pid_t reader[RIG_READERS];
    const unsigned rounds = rig_rounds(6);
    struct kvc *k = rig_open(&rig, MIB);
    rig_await_device(k, true);
    struct kvc_ns *ns = rig_ns(k, "kept", BT, RIG_BLOCK);
    rig_keys(ns, 9, BT, KEPT, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, KEPT, BT, RIG_BLOCK, statuses), KEPT);
    struct rig_shared *sh = rig_readers_start(&rig, reader);
    for (unsigned i = 0; i < rounds; i++) {
        rig_readers_await(&rig, sh);
        rig_sleep_ms((unsigned)(rig_next_random() % 30));
        const uint64_t stored = rig_stat(k, "core.blocks_present"), outs = rig_device(k).outs;
        say(i % 2 ? "lost" : "sticky");
        rig_await_device(k, false);
        ck_assert_uint_eq(rig_device(k).blocks, 0);
        await_held(sh);
        check_kept(k, ns);
        ck_assert_uint_eq(rig_stat(k, "core.blocks_present"), stored);
        rig_sleep_ms((unsigned)(rig_next_random() % 30));
        say("");
        rig_await_device(k, true);
        ck_assert_uint_gt(rig_device(k).outs, outs);
    }
    rig_readers_await(&rig, sh);
    rig_readers_stop(sh, reader);
    ck_assert_uint_eq(sh->wrong, 0);
    ck_assert_uint_gt(sh->misses, 0);
    ck_assert_uint_gt(sh->refused, 0);
    rig_wait_stat(k, "svc.sessions", 1);
    rig_wait_stat(k, "svc.pools", 0);
    ck_assert_uint_eq(rig_device(k).imported_bytes, 0);
    check_kept(k, ns);
    kvc_close(&k);
}

/* ---- no memory ---- */

/* What there is goes on; what is new is refused, or is read in host memory. */
CASE(a_device_without_memory_costs_what_is_new)
{
    struct kvc *k = rig_open(&rig, MIB);
    rig_await_device(k, true);
    struct kvc_ns *ns = rig_ns(k, "kept", BT, RIG_BLOCK);
    struct kvc_gpu *gpu;
    struct rig_pages old, new;
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_gpu_open(k, RIG_DEVICE, &gpu), 0);
    ck_assert_int_eq(rig_pages_open(gpu, RIG_BLOCK, KEPT, &old), 0);
    rig_keys(ns, 9, BT, KEPT, keys);
    ck_assert_uint_eq(rig_store(k, ns, keys, 0, KEPT, BT, RIG_BLOCK, statuses), KEPT);
    struct kvc_seq seq = rig_seq(keys, KEPT, BT);

    say("oom");
    int err = rig_pages_open(gpu, RIG_BLOCK, KEPT, &new);
    ck_assert_msg(err != 0, "memory was imported into a device that has none left");
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(kvc_acquire_on(ns, &seq, gpu, NULL, &hold), 0);
        ck_assert_uint_eq(hold->group[0].n, KEPT);
        for (uint32_t b = 0; b < KEPT; b++) {
            ck_assert_ptr_null(kvc_hold_device(hold, 0, b));
            ck_assert(
                rig_check(keys + (size_t)b * KVC_KEY_BYTES, rig_hold_data(hold, b), RIG_BLOCK));
        }
        kvc_release(k, &hold);
        int n = rig_pages_load(ns, &old, 0, keys, KEPT, BT, 0);
        ck_assert_msg(n >= 0, "%s: %s", kvc_error_name(n), kvc_last_error(k));
        for (int b = 0; b < n; b++)
            ck_assert(rig_pages_has(&old, (uint32_t)b, keys + (size_t)b * KVC_KEY_BYTES));
    }
    ck_assert_uint_eq(rig_load(k, ns, keys, KEPT, BT, RIG_BLOCK), KEPT);

    say("");
    rig_await_device(k, true);
    for (err = -1; err != 0;) { /* asked for again after a while */
        err = rig_pages_open(gpu, RIG_BLOCK, KEPT, &new);
        rig_sleep_ms(10);
    }
    int n = 0;
    for (unsigned t = 0; t < 2000 && n < (int)KEPT; t++) {
        n = rig_pages_load(ns, &new, 0, keys, KEPT, BT, 0);
        rig_sleep_ms(2);
    }
    ck_assert_int_eq(n, KEPT);
    unsigned hbm = 0;
    for (unsigned t = 0; t < 2000 && hbm < KEPT; t++) {
        hbm = 0;
        ck_assert_int_eq(kvc_acquire_on(ns, &seq, gpu, NULL, &hold), 0);
        for (uint32_t b = 0; b < hold->group[0].n; b++)
            hbm += kvc_hold_device(hold, 0, b) != NULL;
        kvc_release(k, &hold);
    }
    ck_assert_uint_eq(hbm, KEPT);
    rig_pages_close(&old);
    rig_pages_close(&new);
    kvc_gpu_close(&gpu);
    kvc_close(&k);
}

static int child_main(const char *role, uint64_t arg)
{
    (void)role;
    return rig_read_for_ever(&rig, arg);
}

int main(int argc, char **argv)
{
    return rig_main(argc, argv, &rig, child_main);
}
