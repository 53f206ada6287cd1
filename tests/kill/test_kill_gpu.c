/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Daemon and worker killed in the middle of loads, on any device ($KVC_TEST_DEVICE). $KVC_SEED and
 * $KVC_ROUNDS choose other points and another number of them; the seed is printed. What is left on
 * a real device only somebody else can see: bench/gpu.sh asks nvidia-smi before and after.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "gpu_rig.h"

#define BLOCKS 64u

static struct rig rig;
static uint8_t keys[BLOCKS * KVC_KEY_BYTES], statuses[BLOCKS];
static uint64_t random_state;

static void start(bool again)
{
    /* The emulated device takes its time, so that who is killed is killed in the middle. */
    const char *const sets[] = {gpu_rig_setting("32MiB"), "hbm.chunk=2MiB", "hbm.emu_latency=300us",
                                NULL};
    if (again)
        rig_restart(&rig, sets);
    else
        rig_start(&rig, sets);
}

static void setup(void)
{
    start(false);
}

static void teardown(void)
{
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- the worker that is killed ---- */

static bool holds(struct gpu_worker *w, const uint32_t *pages, uint32_t block)
{
    static uint8_t bytes[RIG_BLOCK];
    gpu_get_block(w, pages, bytes);
    return rig_check(keys + (size_t)block * KVC_KEY_BYTES, bytes, sizeof(bytes));
}

/* Into pages, again and again: by the daemon, and by the worker's own copies out of what is held
 * on the device. What is said to be there is there, also when the daemon dies meanwhile. */
static int load_for_ever(uint64_t seed)
{
    struct gpu_worker w;
    uint32_t pages[BLOCKS * GPU_PPB];
    random_state = seed;
    gpu_open(&w, &rig, GPU_APART);
    rig_keys(w.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(w.k, w.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    for (uint32_t turn = 0;; turn++) {
        struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
        uint32_t n = 0;
        gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
        if (turn % 4 < 3) {
            struct kvc_pages_load load = {.pages = {pages}};
            struct kvc_loaded loaded = {.tokens = 0};
            int rc = kvc_pages_load(w.ns, &seq, w.pool, &load, &loaded);
            n = rc == 0 ? loaded.tokens / GPU_BT : 0;
        } else {
            const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
            const struct kvc_pool_spec spec = gpu_spec(&w);
            struct kvc_hold *hold = NULL;
            if (kvc_acquire_on(w.ns, &seq, w.gpu, NULL, &hold) == 0) {
                ck_assert_int_eq(kvc_gpu_load(w.gpu, hold, &spec, lists, gpu_stream()), 0);
                gpu_sync();
                n = kvc_hold_check(hold) == 0 ? hold->group[0].n : 0;
            }
            kvc_release(w.k, &hold);
        }
        for (uint32_t i = 0; i < n; i++)
            ck_assert_msg(holds(&w, pages + (size_t)i * GPU_PPB, i), "block %u of %u", i, n);
        if (n == 0)
            rig_sleep_ms(1);
    }
}

static int child_main(const char *role, uint64_t arg)
{
    (void)role;
    return load_for_ever(arg);
}

/* ---- the kills ---- */

static void kill_worker(pid_t pid)
{
    int status;
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* it saw nothing wrong */
}

/* Loads run when it returns; false: the worker has not come to them. */
static bool await_loads(struct kvc *k)
{
    for (uint64_t end = rig_now_ms() + 120000; rig_now_ms() < end; rig_sleep_ms(1)) {
        if (gpu_device(k).copies >= 8)
            return true;
    }
    return false;
}

static void check_nothing_left(struct kvc *k)
{
    rig_wait_stat(k, "svc.sessions", 1);
    rig_wait_stat(k, "svc.pools", 0);
    rig_wait_stat(k, "svc.mems", 0);
    rig_wait_stat(k, "core.leases", 0);
    for (unsigned t = 0; t < 1000 && gpu_device(k).imported_bytes != 0; t++)
        rig_sleep_ms(5);
    ck_assert_uint_eq(gpu_device(k).imported_bytes, 0);
    ck_assert(gpu_device(k).up);
    ck_assert_uint_eq(gpu_device(k).outs, 0);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(daemon_and_worker_are_killed_while_they_load)
{
    const unsigned rounds = rig_rounds(20);
    random_state = rig_next_random();
    for (unsigned i = 0; i < rounds; i++) {
        if (i > 0)
            start(true);
        struct kvc *k = rig_open(&rig, 0);
        const pid_t worker = rig_spawn(&rig, "load", random_state + i);
        ck_assert(await_loads(k));
        usleep(gpu_random(&random_state, 20000));
        if (i % 2) { /* the worker first: the daemon lets go of its memory */
            kill_worker(worker);
            check_nothing_left(k);
        }
        kvc_close(&k);
        rig_kill(&rig);
        if (i % 2 == 0) { /* it outlives the daemon for a while */
            usleep(gpu_random(&random_state, 20000));
            kill_worker(worker);
        }
    }
    start(true); /* teardown stops it */
    struct kvc *k = rig_open(&rig, 0);
    for (uint64_t end = rig_now_ms() + 60000; rig_now_ms() < end && !gpu_device(k).up;)
        rig_sleep_ms(10);
    check_nothing_left(k);
    kvc_close(&k);
}

int main(int argc, char **argv)
{
    if (gpu_rig_problem() != NULL) {
        printf("SKIP: %s\n", gpu_rig_problem());
        return 77;
    }
    return rig_main(argc, argv, &rig, child_main);
}
