/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crash: a daemon under mixed load is killed at random moments, again and again, on one store.
 *
 *   crash [--rounds N] [--seed S] [--run-ms MS] [--durable-share P] [--paths N] [--host-only]
 *         [--hbm] [--persist] [--power] [--lose-journal]
 *         [--throttle [BYTES_PER_S]] [--json]
 *
 * README.md says what is stored, what is promised and what is checked.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "judge.h"
#include "place.h"
#include "power.h"

#define THROTTLE_DEFAULT (32u << 20)
#define RUN_MS           1200u
#define RUN_SLOW_MS      5000u /* a slow disk takes longer to have something on it */

static struct options {
    unsigned rounds, run_ms, paths;
    uint64_t seed, throttle;
    double durable_share;
    bool persist, json, hbm, power, lose_journal;
    enum world_spoil spoil;
} options = {.rounds = 20, .paths = 2, .durable_share = 0.25};

static struct place place;
static struct power power;
static struct world world;
static uint64_t seed;

static struct {
    uint64_t rounds, kills, early_kills, stops, outlived, checks, chains_empty;
    uint64_t wrong_bytes, durable_lost, accounting_errors, returned;
    uint64_t blocks, promised, removals, removed_back, journals_lost;
} total;

static uint64_t dice(uint64_t n)
{
    return world_random(&seed) % n;
}

static void complain(const char *what)
{
    fprintf(stderr, "round %" PRIu64 ": %s\n", total.rounds + 1, what);
}

/* ---- one round ---- */

static void prepare(void)
{
    char why[160];
    place_make(&place, options.paths, options.persist);
    place_set(&place, "host.limit=8MiB");
    place_set(&place, "host.chunk=2MiB");
    place_set(&place, "host.huge_pages=off");
    if (options.paths == 0 &&
        !options.persist) /* else the daemon keeps one beside what it stores */
        place_set(&place, "secret_file=%s/secret", place.rig.dir);
    if (options.paths > 0) {
        place_set(&place, "nvme.limit=48MiB");
        place_set(&place, "nvme.segment=1MiB");
        place_set(&place, "nvme.sync=100ms");
        place_set(&place, "nvme.queue=8MiB");
    }
    if (options
            .hbm) { /* whose copies take their time, so that it is killed in the middle of some */
        place_set(&place, "hbm.devices=" RIG_DEVICE "=16MiB");
        place_set(&place, "hbm.chunk=2MiB");
        place_set(&place, "hbm.emu_latency=200us");
    }
    if (options.power)
        power_watch(&power, place.rig.dir);
    if (options.throttle > 0) {
        place_set(&place, "nvme.io_timeout=60s");
        int err = place_slow_down(&place, options.throttle, why);
        if (err) {
            printf("SKIP: a slow disk: %s\n", why);
            options.throttle = 0;
        }
    }
    world = (struct world){.rig = &place.rig,
                           .hbm = options.hbm,
                           .durable_works = options.paths > 0,
                           .durable_share = options.durable_share,
                           .shards = {2, WORLD_SHARDS, 1},
                           .spoil = options.spoil};
}

/* The daemon's process has ended, and with --power so has the machine. */
static void after_end(void)
{
    if (options.power)
        power_cut(&power, &seed);
    if (!options.lose_journal)
        return;
    char path[160];
    snprintf(path, sizeof path, "%s/journal/env/data.mdb", place.store[0]);
    const bool was_there = unlink(path) == 0;
    ck_assert(was_there || errno == ENOENT); /* it may not have come so far */
    total.journals_lost += was_there;
}

static void start(void)
{
    place_forget_log(&place); /* of the round before: it was good */
    if (dice(8) == 0) {       /* making a store and recovering it are interrupted as well */
        place_begin(&place, NULL);
        struct timespec ts = {.tv_nsec = (long)dice(120000000)};
        nanosleep(&ts, NULL);
        rig_kill(&place.rig);
        after_end();
        total.early_kills++;
    }
    int status = place_try(&place, NULL);
    if (status)
        rig_show_log(&place.rig);
    ck_assert_msg(status == 0, "round %" PRIu64 ": the daemon does not start: status %x",
                  total.rounds + 1, (unsigned)status);
}

static void spoil_model(void)
{
    struct world_chain *chain = &world.chain[0];
    if (world.spoil == SPOIL_DURABLE && total.rounds > 0) {
        chain->block[WORLD_LEN - 1].durable = chain->newest;
    } else if (world.spoil == SPOIL_REMOVED && total.rounds > 0) {
        for (uint32_t b = 0; b < WORLD_LEN; b++)
            chain->block[b].gone = true;
    } else if (world.spoil == SPOIL_OLD && total.rounds > 0) {
        for (uint32_t c = 0; c < WORLD_CHAINS; c++) {
            world.chain[c].newest++;
            for (uint32_t b = 0; b < WORLD_LEN; b++)
                world.chain[c].block[b].floor = (uint32_t)world.chain[c].newest;
        }
    }
}

/* A library without a daemon answers misses: nobody may take them for a verdict. */
static void demand_life(const char *when)
{
    int status;
    if (waitpid(place.rig.pid, &status, WNOHANG) != place.rig.pid)
        return;
    rig_show_log(&place.rig);
    ck_abort_msg("round %" PRIu64 ": the daemon died %s: status %x", total.rounds + 1, when,
                 (unsigned)status);
}

static void judge(void)
{
    struct world_session s;
    struct judged j = {0};
    int err = world_open(&world, WORLD_STAGING, &s);
    ck_assert_msg(err == 0, "round %" PRIu64 ": cannot connect, or other seeds than before: %s",
                  total.rounds + 1, kvc_error_name(err));
    if (options.hbm)
        rig_await_device(s.k, true);
    if (world.spoil != SPOIL_NOTHING) /* so that there is something to see wrong */
        ck_assert_int_ge(world_store(&s, &world.chain[0], 0, 1, false), 0);
    spoil_model();
    err = judge_chains(&s, &j);
    if (err == 0)
        err = judge_accounts(&s, options.paths > 0, &j);
    demand_life("while it was looked at");
    ck_assert_msg(err == 0, "round %" PRIu64 ": the daemon does not answer: %s: %s",
                  total.rounds + 1, kvc_error_name(err), kvc_last_error(s.k));
    world_close(&s);
    if (options.hbm)
        judge_device(&world, &j);
    if (j.first[0])
        complain(j.first);
    total.wrong_bytes += j.wrong_bytes;
    total.durable_lost += j.durable_lost;
    total.accounting_errors += j.accounting_errors;
    total.returned += j.returned;
    total.blocks += j.blocks;
    total.promised += j.promised;
    total.removals += j.removals;
    total.removed_back += j.removed_back;
}

/* Of a daemon that is gone, and of memory that was shared with it, nothing is left with those who
 * lived on. */
static void demand_unmapped(void)
{
    if (!options.hbm)
        return;
    ck_assert_uint_eq(rig_mapped(getpid(), RIG_DAEMONS_MEMORY), 0);
    ck_assert_uint_eq(rig_mapped(getpid(), RIG_WORKERS_MEMORY), 0);
}

static void run_and_end(void)
{
    pthread_t threads[WORLD_WORKERS];
    world_start(&world, world_random(&seed), threads);
    rig_sleep_ms((unsigned)(1 + dice(options.run_ms)));
    demand_life("under load");
    if (dice(10) == 0) {
        world_join(&world, threads);
        rig_stop(&place.rig);
        after_end();
        total.stops++;
        return;
    }
    rig_kill(&place.rig);
    after_end();
    total.kills++;
    if (options.paths > 0 && !place_is_free(&place))
        total.outlived++;
    world_join(&world, threads);
    demand_unmapped();
    world_crashed(&world);
}

/* One byte in each page, beyond what a checksum repairs. */
static void spoil_store(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/kvcache.store", place.store[0]);
    FILE *f = fopen(path, "r+e");
    ck_assert_ptr_nonnull(f);
    for (long at = 2048; fseek(f, at, SEEK_SET) == 0 && at < (48 << 20); at += 4096) {
        int c = fgetc(f);
        if (c == EOF)
            break;
        ck_assert_int_eq(fseek(f, at, SEEK_SET), 0);
        ck_assert_int_ne(fputc(c ^ 0x55, f), EOF);
    }
    ck_assert_int_eq(fclose(f), 0);
}

/* In some rounds only: in the others the successor comes at once, while writes of the dead one may
 * be on their way. */
static void check_store(void)
{
    if (options.paths == 0 || options.lose_journal || dice(2) != 0)
        return;
    if (world.spoil == SPOIL_STORE)
        spoil_store();
    for (unsigned i = 0; i < 2400 && !place_is_free(&place); i++)
        rig_sleep_ms(25); /* what has a store open is refused to the check */
    int status = place_check_store(&place);
    total.checks++;
    if (status == 0)
        return;
    total.accounting_errors++;
    rig_show_log(&place.rig);
    fprintf(stderr, "round %" PRIu64 ": --check-store ends with %d\n", total.rounds + 1, status);
}

static void progress(void)
{
    const struct world_counts *n = &world.counts;
    fprintf(stderr,
            "round %" PRIu64 "/%u: %" PRIu64 " killed, %" PRIu64 " while starting, %" PRIu64
            " stopped, %" PRIu64 " outlived by writes, %" PRIu64 " checks; %" PRIu64
            " blocks stored, %" PRIu64 " durable, %" PRIu64 " read, %" PRIu64 " evicted; %" PRIu64
            " found after a start, %" PRIu64 " promises, %" PRIu64 " removals; wrong %" PRIu64
            ", lost %" PRIu64 ", removed and back %" PRIu64 ", returned %" PRIu64
            ", accounts %" PRIu64 "\n",
            total.rounds, options.rounds, total.kills, total.early_kills, total.stops,
            total.outlived, total.checks, (uint64_t)n->stored, (uint64_t)n->durable,
            (uint64_t)n->hits, (uint64_t)n->evicted, total.blocks, total.promised, total.removals,
            total.wrong_bytes + n->wrong_bytes, total.durable_lost, total.removed_back,
            total.returned, total.accounting_errors);
}

/* ---- the run ---- */

static void metric(const char *name, uint64_t value)
{
    if (options.json)
        printf("{\"bench\":\"crash\",\"case\":{\"seed\":%" PRIu64
               ",\"tier\":\"%s\",\"hbm\":%s,\"persist\":%s,\"throttle\":%" PRIu64
               "},\"metric\":\"%s\",\"value\":%" PRIu64 ",\"unit\":\"1\"}\n",
               options.seed, options.paths ? "nvme" : "host", options.hbm ? "true" : "false",
               options.persist ? "true" : "false", options.throttle, name, value);
    else
        printf("%-18s %" PRIu64 "\n", name, value);
}

static int verdict(void)
{
    const struct world_counts *n = &world.counts;
    const uint64_t wrong = total.wrong_bytes + n->wrong_bytes;
    metric("rounds", total.rounds);
    metric("wrong_bytes", wrong);
    metric("durable_lost", total.durable_lost + n->durable_lost);
    metric("removed_back", total.removed_back);
    metric("accounting_errors", total.accounting_errors);
    metric("returned", total.returned);
    metric("faults", n->faults);
    metric("blocks_stored", n->stored);
    metric("durable_stores", n->durable);
    metric("rank_stores", n->rank_stores);
    metric("blocks_read", n->hits + total.blocks);
    metric("promises_checked", total.promised);
    metric("removals_checked", total.removals);
    metric("outlived", total.outlived);
    if (options.lose_journal)
        metric("journals_lost", total.journals_lost);
    if (options.power) {
        metric("writes", power.writes);
        metric("writes_unsynced", power.unsynced);
        metric("writes_undone", power.undone);
        metric("writes_torn", power.torn);
    }
    if (options.hbm) {
        metric("page_blocks", n->page_blocks);
        metric("hbm_blocks", n->hbm_blocks);
    }
    if (world.first_fault[0])
        fprintf(stderr, "%s\n", world.first_fault);
    /* On a slow machine a short round ends before its workers read: reads after it count too. */
    bool worked = n->stored > 0 && n->hits + total.blocks > 0;
    if (!worked)
        fprintf(stderr, "nothing was stored, or nothing read: nothing was tested\n");
    if (options.hbm && (n->page_blocks == 0 || n->hbm_blocks == 0)) {
        fprintf(stderr, "no block was in pages, or none on the device: that was not tested\n");
        worked = false;
    }
    if (options.lose_journal && total.journals_lost == 0) {
        fprintf(stderr, "no journal was lost: that was not tested\n");
        worked = false;
    }
    if (options.power && total.rounds > 3 && power.undone + power.torn == 0) {
        fprintf(stderr, "nothing was lost when the power failed: that was not tested\n");
        worked = false;
    }
    if (options.paths > 0 && options.durable_share > 0 && n->durable == 0 && total.rounds > 3) {
        fprintf(stderr, "nothing was acknowledged as durable: that was not tested\n");
        worked = false;
    }
    if (options.paths > 0 && options.durable_share > 0 && n->rank_stores == 0 && total.rounds > 3) {
        fprintf(stderr,
                "no rank of several was told that its block is durable: that was not tested\n");
        worked = false;
    }
    return worked && wrong + total.durable_lost + n->durable_lost + total.accounting_errors +
                             total.removed_back + total.returned + n->faults ==
                         0
               ? 0
               : 1;
}

static int run(const char *role, uint64_t arg)
{
    (void)role, (void)arg;
    prepare();
    for (; total.rounds < options.rounds; total.rounds++) {
        start();
        judge();
        run_and_end();
        check_store();
        if ((total.rounds + 1) % 10 == 0)
            progress();
    }
    start(); /* what the last one left is looked at, too */
    judge();
    rig_stop(&place.rig);
    progress();
    int rc = verdict();
    if (rc == 0 || options.spoil != SPOIL_NOTHING)
        place_remove(&place);
    else
        fprintf(stderr, "crash: the store and the daemon's log are in %s\n", place.rig.dir);
    return rc;
}

static int take_spoil(void *ctx, const char *name)
{
    struct options *o = ctx;
    static const char *const names[] = {
        [SPOIL_BYTES] = "bytes",     [SPOIL_DURABLE] = "durable", [SPOIL_OLD] = "old",
        [SPOIL_REMOVED] = "removed", [SPOIL_COUNT] = "count",     [SPOIL_STORE] = "store"};
    for (unsigned i = SPOIL_BYTES; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0) {
            o->spoil = (enum world_spoil)i;
            return 0;
        }
    return args_usage("--spoil %s: there are bytes, durable, old, removed, count and store", name);
}

static int take_throttle(void *ctx, const char *rate)
{
    struct options *o = ctx;
    o->throttle = THROTTLE_DEFAULT;
    return rate ? args_bytes(args_usage, "throttle", rate, 65536, UINT64_C(1) << 40, &o->throttle)
                : 0;
}

static int take_host_only(void *ctx, const char *none)
{
    (void)none;
    ((struct options *)ctx)->paths = 0;
    return 0;
}

static const struct arg option_table[] = {
    {"--rounds N", "kills (default 20)", ARG_COUNT(struct options, rounds, 1, 1000000)},
    {"--seed S", "repeats a run as far as threads and disks allow (default: by time)",
     ARG_COUNT(struct options, seed, 0, UINT64_MAX)},
    {"--run-ms MS", "longest life of a daemon under load (default 1200, with --throttle 5000)",
     ARG_COUNT(struct options, run_ms, 1, 1000000)},
    {"--durable-share P", "of the stores (default 0.25)",
     ARG_NUMBER(struct options, durable_share, 0, 1)},
    {"--paths N", "of the storage tier (default 2)",
     ARG_COUNT(struct options, paths, 1, PLACE_PATHS_MAX)},
    {"--host-only", "no storage tier", ARG_DO(take_host_only)},
    {"--hbm", "a device: workers store out of pages, load into pages and read in place",
     ARG_FLAG(struct options, hbm)},
    {"--persist", "host memory outlives the daemon, in a directory of /dev/shm",
     ARG_FLAG(struct options, persist)},
    {"--power", "what was written and not synced is lost or torn, each time",
     ARG_FLAG(struct options, power)},
    {"--lose-journal", "it is gone after each end: all is found by the tables",
     ARG_FLAG(struct options, lose_journal)},
    {"--throttle[=BYTES_PER_S]",
     "the disk takes 32 MiB/s (or so much), so that writes outlive the daemon",
     ARG_DO(take_throttle)},
    {"--json", "figures as one object per line on stdout", ARG_FLAG(struct options, json)},
    {"--spoil KIND",
     "bytes, durable, old, removed, count or store: makes a check see what is not so: the run must "
     "fail",
     ARG_DO(take_spoil)},
    {0},
};

int main(int argc, char **argv)
{
    const int rc = args_take_only(option_table, &options, "Usage: crash [OPTIONS]\n\n" ARGS_HERE,
                                  args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    if (options.power && (options.persist || options.paths == 0 || options.throttle)) {
        fprintf(stderr, "crash: --power is about a storage tier, and goes neither with --persist "
                        "nor with --throttle\n");
        return 2;
    }
    if (options.run_ms == 0)
        options.run_ms = options.throttle ? RUN_SLOW_MS : RUN_MS;
    if (options.seed == 0)
        options.seed = (uint64_t)time(NULL);
    fprintf(stderr, "seed %" PRIu64 " (--seed repeats it)\n", options.seed);
    seed = options.seed * 2654435761u + 1;
    return rig_child_main(run, "crash", 0);
}
