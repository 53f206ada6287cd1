/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart: from the start of a daemon to the first hit on a full store.
 *
 *   restart [--blocks N] [--block-bytes B] [--starts K] [--kill] [--cold] [--json]
 *
 * Fills a store, stops (or kills) the daemon and starts it again, K times. A figure, not a test:
 * it fails only when blocks are missing or wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "place.h"

#define BT         16u
#define CHAIN      256u /* blocks */
#define STARTS_MAX 99u
#define MIB        (UINT64_C(1) << 20)
#define DRAIN_STEP 64u /* chains between two drains */
#define SAMPLE     64u /* chains read after each start */

static struct options {
    uint32_t chains, block_bytes;
    unsigned starts;
    bool kill, cold, json;
} options = {.chains = 1000000 / CHAIN, .block_bytes = 4096, .starts = 5};

static struct place place;
static uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static uint64_t blocks(void)
{
    return (uint64_t)options.chains * CHAIN;
}

/* Room as a user would give: payload and a third, for the log needs some to move in. */
static void prepare(void)
{
    const uint64_t payload = blocks() * ((options.block_bytes + 4095ull) / 4096 * 4096);
    place_make(&place, 1, false);
    place_set(&place, "host.limit=256MiB");
    place_set(&place, "host.chunk=32MiB");
    place_set(&place, "staging.session_max=64MiB");
    place_set(&place, "staging.total=128MiB");
    place_set(&place, "nvme.limit=%" PRIu64 "MiB", (payload + payload / 3) / MIB + 64);
    place_set(&place, "index.blocks=%" PRIu64, blocks() + blocks() / 8 + 65536);
    place_set(&place, "log.level=info");
}

static void start(void)
{
    int status = place_try(&place, NULL);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_msg(status == 0, "the daemon does not start: status %x", (unsigned)status);
}

/* Writes to disk what only memory has. */
static void drain(struct kvc *k)
{
    struct kvc_drained left = {.left = 1};
    uint64_t before = UINT64_MAX;
    for (unsigned idle = 0; left.left > 0; idle = left.left < before ? 0 : idle + 1) {
        before = left.left;
        ck_assert_int_eq(kvc_drain(k, 256 * MIB, &left), 0);
        ck_assert_msg(idle < 6000, "the drain does not end: %" PRIu64 " bytes left", left.left);
        if (left.left > 0)
            rig_sleep_ms(10);
    }
}

static void fill(void)
{
    struct kvc *k = rig_open(&place.rig, (uint64_t)CHAIN * options.block_bytes + MIB);
    struct kvc_ns *ns = rig_ns(k, "million", BT, options.block_bytes);
    const double begun = seconds();
    for (uint32_t c = 0; c < options.chains; c++) {
        rig_keys(ns, c, BT, CHAIN, keys);
        uint32_t ok = rig_store(k, ns, keys, 0, CHAIN, BT, options.block_bytes, statuses);
        ck_assert_msg(ok == CHAIN, "chain %u: %u of %u blocks stored", c, ok, CHAIN);
        if ((c + 1) % DRAIN_STEP == 0 || c + 1 == options.chains)
            drain(k);
        if ((c + 1) % 512 == 0)
            fprintf(stderr, "%u of %u chains, %.0f s\n", c + 1, options.chains, seconds() - begun);
    }
    fprintf(stderr, "%" PRIu64 " blocks on disk\n", rig_stat(k, "nvme.blocks"));
    ck_assert_uint_eq(rig_stat(k, "nvme.blocks"), blocks());
    kvc_close(&k);
}

static void end(void)
{
    if (options.kill)
        rig_kill(&place.rig);
    else
        rig_stop(&place.rig);
    if (!options.cold)
        return;
    sync();
    int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);
    ck_assert_msg(fd >= 0 && write(fd, "3", 1) == 1, "--cold needs root");
    close(fd);
}

/* The first hit, as a worker sees it that tries without a pause. */
static double to_first_hit(uint32_t chain)
{
    struct kvc_options o = {.socket = place.rig.socket, .name = "restart", .must_connect = true};
    struct kvc_ns_spec spec = rig_spec("million", BT, options.block_bytes);
    struct kvc *k = NULL;
    struct kvc_ns *ns;
    struct kvc_hold *hold = NULL;
    const double begun = seconds();
    place_begin(&place, NULL);
    while (kvc_open(&o, &k) != 0) {
        int status;
        if (waitpid(place.rig.pid, &status, WNOHANG) == place.rig.pid) {
            rig_show_log(&place.rig);
            ck_abort_msg("the daemon does not start: status %x", (unsigned)status);
        }
        rig_sleep_ms(1);
    }
    ck_assert_int_eq(kvc_ns_open(k, &spec, &ns), 0);
    rig_keys(ns, chain, BT, CHAIN, keys);
    struct kvc_seq seq = rig_seq(keys, CHAIN, BT);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    const double took = seconds() - begun;
    ck_assert_msg(hold->group[0].n > 0, "chain %u is not there", chain);
    for (uint32_t b = 0; b < hold->group[0].n; b++)
        ck_assert(rig_check(keys + (size_t)b * KVC_KEY_BYTES, hold->group[0].block[b].data,
                            options.block_bytes));
    kvc_release(k, &hold);
    kvc_close(&k);
    return took;
}

static uint64_t look(void)
{
    struct kvc *k = rig_open(&place.rig, 0);
    struct kvc_ns *ns = rig_ns(k, "million", BT, options.block_bytes);
    for (uint32_t i = 0; i < SAMPLE; i++) {
        const uint32_t c = (uint32_t)((uint64_t)i * options.chains / SAMPLE);
        rig_keys(ns, c, BT, CHAIN, keys);
        (void)rig_load(k, ns, keys, CHAIN, BT, options.block_bytes);
    }
    const uint64_t present = rig_stat(k, "core.blocks_present");
    kvc_close(&k);
    return present;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void report(const char *name, double value, const char *unit)
{
    if (options.json)
        printf("{\"bench\":\"restart\",\"case\":{\"blocks\":%" PRIu64
               ",\"block_bytes\":%u,\"after\":\"%s\",\"cache\":\"%s\"},\"metric\":\"%s\","
               "\"value\":%.4g,\"unit\":\"%s\"}\n",
               blocks(), options.block_bytes, options.kill ? "SIGKILL" : "SIGTERM",
               options.cold ? "cold" : "warm", name, value, unit);
    else
        printf("%-16s %.4g %s\n", name, value, unit);
}

static int run(const char *role, uint64_t arg)
{
    (void)role, (void)arg;
    double took[STARTS_MAX], fewest = 1;
    prepare();
    start();
    fill();
    for (unsigned i = 0; i < options.starts; i++) {
        end();
        took[i] = to_first_hit(options.chains / (i + 2));
        const double share = (double)look() / (double)blocks();
        fewest = share < fewest ? share : fewest;
        fprintf(stderr, "start %u: first hit after %.3f s, %.4f of the blocks there\n", i + 1,
                took[i], share);
    }
    rig_stop(&place.rig);
    qsort(took, options.starts, sizeof took[0], by_value);
    report("first_hit_s", took[options.starts / 2], "s");
    report("first_hit_worst_s", took[options.starts - 1], "s");
    report("blocks_share", fewest, "1");
    place_remove(&place);
    return fewest < 0.99;
}

static int take_blocks(void *ctx, const char *text)
{
    struct options *o = ctx;
    uint64_t n = 0;
    const int rc = args_count(args_usage, "blocks", text, 1, 100000000, &n);
    if (rc == 0)
        o->chains = (uint32_t)((n + CHAIN - 1) / CHAIN);
    return rc;
}

static const struct arg option_table[] = {
    {"--blocks N", "(default 1000000)", ARG_DO(take_blocks)},
    {"--block-bytes B", "(default 4096)", ARG_COUNT(struct options, block_bytes, 1, 1 << 20)},
    {"--starts N", "(default 5)", ARG_COUNT(struct options, starts, 1, STARTS_MAX)},
    {"--kill", "SIGKILL ends the daemon, not SIGTERM", ARG_FLAG(struct options, kill)},
    {"--cold", "with the page cache empty", ARG_FLAG(struct options, cold)},
    {"--json", "figures as one object per line on stdout", ARG_FLAG(struct options, json)},
    {0},
};

int main(int argc, char **argv)
{
    const int rc = args_take_only(option_table, &options, "Usage: restart [OPTIONS]\n\n" ARGS_HERE,
                                  args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    return rig_child_main(run, "restart", 0);
}
