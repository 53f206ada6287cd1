/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers ask for one new prefix at the same time, in front of one modelled GPU: a server that
 * computes one prefill after another, in the order of the requests. The model is the time at which
 * the GPU is free again, in memory that all workers share; a worker that books the GPU sleeps until
 * its turn is over.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "out.h"
#include "pattern.h"
#include "perf.h"
#include "progress.h"
#include "surge_real.h"

#define BLOCK_TOKENS 16u
#define BLOCK_BYTES  (64u << 10)
#define CHUNK        32u /* blocks that a prefill computes and commits at a time */
#define WORKERS_MAX  64u
#define TOKENS_MAX   (KVC_STORE_MAX * BLOCK_TOKENS)
#define WAIT_MS      60000u
/* Of kvcache-worker: tokens computed by all, by those that one computes alone. */
#define WANTED 1.2

static const char help[] =
    "Usage: kvcachebench surge [OPTIONS]\n"
    "\n"
    "Workers ask for one new prefix at the same time, in front of one modelled GPU that serves "
    "them in turn: how much is computed, and how soon the first token comes, against workers that "
    "do not wait for each other.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench surge --workers 16\n"
    "  kvcachebench surge --preset 125m --workers 8\n";

struct shared {
    _Atomic uint64_t free_ns;  /* when the GPU is free */
    _Atomic uint64_t computed; /* tokens computed by all workers */
    _Atomic uint64_t start_ns; /* when all workers begin */
    _Atomic uint32_t ready, failed;
    uint64_t ttft_ns[WORKERS_MAX];
};

struct surge {
    uint64_t workers_max, tokens, pairs;
    double us_per_token;
    const char *daemon_path, *preset;
    bool json;

    struct rig *rig;
    struct shared *shared;
    uint32_t blocks;
    uint64_t stream; /* stream of the keys: each round has its own prefix */
    uint8_t *keys;
};

struct worker {
    const struct surge *s;
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint8_t *staging;
    bool waits;
    uint8_t statuses[KVC_STORE_MAX];
};

/* ---- the GPU ---- */

static void sleep_until(uint64_t at_ns)
{
    struct timespec ts = {.tv_sec = (time_t)(at_ns / 1000000000),
                          .tv_nsec = (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        continue;
}

/* Books a prefill of so many tokens. Returns when it begins. */
static uint64_t book(const struct surge *s, uint64_t tokens)
{
    const uint64_t cost = (uint64_t)((double)tokens * s->us_per_token * 1e3);
    uint64_t free_ns = atomic_load(&s->shared->free_ns), begin;
    do {
        const uint64_t now = now_ns();
        begin = free_ns > now ? free_ns : now;
    } while (!atomic_compare_exchange_weak(&s->shared->free_ns, &free_ns, begin + cost));
    atomic_fetch_add(&s->shared->computed, tokens);
    return begin;
}

/* ---- a worker ---- */

static const uint8_t *surge_key_at(const struct surge *s, uint32_t block)
{
    return s->keys + (size_t)block * KVC_KEY_BYTES;
}

/* Commits blocks first .. first + n - 1 of those that were reserved from `base` on. */
static int commit_chunk(struct worker *w, uint64_t reservation, uint32_t base, uint32_t first,
                        uint32_t n)
{
    uint64_t offsets[CHUNK];
    uint8_t said[CHUNK];
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        const bool ours = w->statuses[first + i - base] == KVC_ST_OK;
        offsets[i] = ours ? (uint64_t)i * BLOCK_BYTES : UINT64_MAX;
        if (ours)
            pattern_fill(surge_key_at(w->s, first + i), w->staging + offsets[i], BLOCK_BYTES);
        any |= ours;
    }
    return any ? kvc_commit(w->ns, reservation, first - base, n, offsets, NULL, 0, said) : 0;
}

/* Computes the blocks that were reserved from block `have` on, a chunk at a time; without waiting:
 * all blocks from there on. */
static int prefill(struct worker *w, uint64_t reservation, uint32_t have)
{
    const struct surge *s = w->s;
    uint64_t todo = 0, done = 0;
    int rc = 0;
    for (uint32_t i = have; i < s->blocks; i++)
        todo += !w->waits || w->statuses[i - have] == KVC_ST_OK;
    if (todo == 0)
        return 0;
    const uint64_t begin = book(s, todo * BLOCK_TOKENS);
    for (uint32_t at = have; rc == 0 && at < s->blocks; at += CHUNK) {
        const uint32_t n = s->blocks - at < CHUNK ? s->blocks - at : CHUNK;
        for (uint32_t i = 0; i < n; i++)
            done += !w->waits || w->statuses[at + i - have] == KVC_ST_OK;
        sleep_until(begin + (uint64_t)((double)(done * BLOCK_TOKENS) * s->us_per_token * 1e3));
        rc = reservation != 0 ? commit_chunk(w, reservation, have, at, n) : 0;
    }
    return rc;
}

/* 1: the whole prefix is cached; 0: some work was done. */
static int serve_once(struct worker *w)
{
    const struct surge *s = w->s;
    struct kvc_seq seq = {.tokens = s->blocks * BLOCK_TOKENS,
                          .group = {{.keys = s->keys, .n = s->blocks}}};
    struct kvc_acquire_options options = {.flags = w->waits ? KVC_F_WAIT : 0,
                                          .timeout_ms = WAIT_MS};
    struct kvc_hold *hold = NULL;
    int rc = kvc_acquire(w->ns, &seq, &options, &hold);
    if (rc < 0)
        return rc;
    const uint32_t have = hold->group[0].n;
    kvc_release(w->kvc, &hold);
    if (have == s->blocks)
        return 1;
    struct kvc_blocks blocks = {.parent = have > 0 ? surge_key_at(s, have - 1) : NULL,
                                .keys = surge_key_at(s, have),
                                .n = s->blocks - have,
                                .first_token = have * BLOCK_TOKENS};
    uint64_t reservation;
    rc = kvc_reserve(w->ns, &blocks, &reservation, w->statuses);
    if (rc == 0)
        rc = prefill(w, reservation, have);
    /* A worker that does not wait has computed everything; one that waits looks whether the others
     * have. */
    return rc < 0 ? rc : !w->waits;
}

static int connect_worker(struct worker *w)
{
    struct kvc_options options = {.socket = rig_socket(w->s->rig),
                                  .name = "surge",
                                  .staging_bytes = CHUNK * BLOCK_BYTES,
                                  .must_connect = true};
    int rc = kvc_open(&options, &w->kvc);
    if (rc == 0)
        rc = perf_ns_open(w->kvc, BLOCK_BYTES, "surge", &w->ns);
    if (rc == 0 && !(w->staging = kvc_staging(w->kvc, NULL)))
        rc = KVC_E_DOWN;
    return rc;
}

static int surge_work(const struct surge *s, uint32_t number, bool waits)
{
    static struct worker w;
    w = (struct worker){.s = s, .waits = waits};
    int rc = connect_worker(&w);
    atomic_fetch_add(&s->shared->ready, 1);
    uint64_t start;
    while ((start = atomic_load(&s->shared->start_ns)) == 0)
        sleep_until(now_ns() + 1000000);
    sleep_until(start);
    while (rc == 0)
        rc = serve_once(&w);
    s->shared->ttft_ns[number] = now_ns() - start;
    if (rc < 0) {
        say_error("a worker: %s", kvc_error_name(rc));
        atomic_fetch_add(&s->shared->failed, 1);
    }
    kvc_close(&w.kvc);
    return rc < 0 ? BENCH_FAILED : BENCH_OK;
}

/* ---- a round ---- */

static pid_t start_worker(const struct surge *s, uint32_t number, bool waits)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rig_disown();
    _exit(surge_work(s, number, waits));
}

static int run_workers(struct surge *s, uint32_t workers, bool waits)
{
    pid_t pids[WORKERS_MAX];
    uint32_t n = 0;
    memset(s->shared, 0, sizeof(*s->shared));
    for (; n < workers; n++)
        if ((pids[n] = start_worker(s, n, waits)) < 0)
            break;
    while (atomic_load(&s->shared->ready) < n)
        sleep_until(now_ns() + 1000000);
    atomic_store(&s->shared->start_ns, now_ns() + 20000000);
    for (uint32_t i = 0; i < n; i++)
        waitpid(pids[i], NULL, 0);
    if (n == workers && atomic_load(&s->shared->failed) == 0)
        return 0;
    if (n < workers)
        say_error("cannot start a process: %s", strerror(errno));
    return BENCH_FAILED;
}

static int round_of(struct surge *s, uint32_t workers, bool waits, struct surge_outcome *ret)
{
    s->stream++;
    if (s->preset)
        return surge_real_round(&(struct surge_real){.preset = s->preset,
                                                     .socket = rig_socket(s->rig),
                                                     .workers = workers,
                                                     .tokens = (uint32_t)s->tokens},
                                s->stream, waits, ret);
    for (uint32_t i = 0; i < s->blocks; i++)
        perf_key(s->stream, i, s->keys + (size_t)i * KVC_KEY_BYTES);
    int rc = run_workers(s, workers, waits);
    if (rc != 0)
        return rc;
    double sum = 0;
    for (uint32_t i = 0; i < workers; i++)
        sum += (double)s->shared->ttft_ns[i] * 1e-9;
    *ret = (struct surge_outcome){(double)atomic_load(&s->shared->computed), sum / workers};
    return 0;
}

static void surge_report(const struct surge *s, uint32_t workers, double over_one, double speedup,
                         double ttft_s)
{
    const struct {
        const char *name, *unit;
        double value;
    } metrics[] = {{"prefill_over_one", "", over_one},
                   {"ttft_speedup", "", speedup},
                   {"ttft_mean", "s", ttft_s}};
    for (unsigned i = 0; s->json && i < 3; i++)
        out_json(
            &(struct out_metric){.bench = "surge",
                                 .keys = {{.key = "workers", .number = workers},
                                          {.key = "tokens", .number = s->tokens},
                                          {.key = s->preset ? "preset" : NULL, .text = s->preset}},
                                 .metric = metrics[i].name,
                                 .value = metrics[i].value,
                                 .unit = metrics[i].unit});
    if (!s->json)
        printf("  %2u workers   computed %.2f times%s   first token after %7.1f ms on average, "
               "%.1f times as soon\n",
               workers, over_one,
               !s->preset           ? ""
               : over_one <= WANTED ? " (wanted 1.2: good)"
                                    : " (wanted 1.2: MISSED)",
               ttft_s * 1e3, speedup);
}

static int surge_measure(struct surge *s, uint32_t workers)
{
    double over_one[PERF_PAIRS_MAX], speedup[PERF_PAIRS_MAX], ttft[PERF_PAIRS_MAX];
    const struct surge_real real = {.tokens = (uint32_t)s->tokens};
    const double one = s->preset ? (double)surge_real_alone(&real) : (double)s->tokens;
    for (uint64_t i = 0; i < s->pairs; i++) {
        progress_show(true, "surge: %u workers, round %" PRIu64 " of %" PRIu64, workers, i + 1,
                      s->pairs);
        struct surge_outcome ours, alone;
        int rc = round_of(s, workers, i % 2 == 0, i % 2 == 0 ? &ours : &alone);
        if (rc == 0)
            rc = round_of(s, workers, i % 2 != 0, i % 2 != 0 ? &ours : &alone);
        if (rc != 0)
            return rc;
        over_one[i] = ours.computed / one;
        speedup[i] = alone.ttft_s / ours.ttft_s;
        ttft[i] = ours.ttft_s;
    }
    progress_clear();
    surge_report(s, workers, out_median(over_one, s->pairs), out_median(speedup, s->pairs),
                 out_median(ttft, s->pairs));
    return 0;
}

/* ---- the command ---- */

static const struct arg option_table[] = {
    {"--workers N", "1, 2, 4, ... up to this many, at most 64 (default 64)",
     ARG_COUNT(struct surge, workers_max, 1, WORKERS_MAX)},
    {"--tokens N", "of the prefix, a multiple of 16 (default 4096)",
     ARG_COUNT(struct surge, tokens, BLOCK_TOKENS, TOKENS_MAX)},
    {"--prefill-us-per-token X", "(default 40)", ARG_NUMBER(struct surge, us_per_token, 0, 1e6)},
    {"--preset NAME",
     "no model of a GPU: N processes of kvcache-worker with this preset, a thread each, 16 at most "
     "(default 8), each with a question of its own behind the prefix (default 2048 tokens)",
     ARG_TEXT(struct surge, preset)},
    {"--pairs N", "rounds of each, taking turns; medians are reported (default 3)",
     ARG_COUNT(struct surge, pairs, 1, PERF_PAIRS_MAX)},
    {"--daemon PATH", "the daemon to start", ARG_TEXT(struct surge, daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct surge, json)},
    {0},
};

static int surge_parse(int argc, char **argv, struct surge *s)
{
    const int rc = opt_take_only(argc, argv, option_table, help, s);
    if (rc != 0)
        return rc;
    const uint64_t workers_max = s->preset ? SURGE_REAL_WORKERS_MAX : WORKERS_MAX;
    if (s->tokens == 0)
        s->tokens = s->preset ? 2048 : 4096;
    if (s->workers_max == 0)
        s->workers_max = s->preset ? 8 : WORKERS_MAX;
    if (s->workers_max > workers_max)
        return say_usage("--workers: at most %ju with --preset", (uintmax_t)workers_max);
    if (s->preset && s->tokens > SURGE_REAL_TOKENS_MAX)
        return say_usage("--tokens: at most %u with --preset", SURGE_REAL_TOKENS_MAX);
    return s->tokens % BLOCK_TOKENS ? say_usage("--tokens must be a multiple of 16") : 0;
}

/* Measures from one worker on with a modelled GPU; real workers all at once. */
static int measure_all(struct surge *s)
{
    int rc = 0;
    for (uint32_t n = s->preset ? (uint32_t)s->workers_max : 1; rc == 0 && n < 2 * s->workers_max;
         n *= 2)
        rc = surge_measure(s, n < s->workers_max ? n : (uint32_t)s->workers_max);
    return rc;
}

int cmd_surge(int argc, char **argv)
{
    struct surge s = {.pairs = 3, .us_per_token = 40};
    int rc = surge_parse(argc, argv, &s);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    s.blocks = (uint32_t)s.tokens / BLOCK_TOKENS;
    s.keys = malloc((size_t)s.blocks * KVC_KEY_BYTES);
    s.shared =
        mmap(NULL, sizeof(*s.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!s.keys || s.shared == MAP_FAILED) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    struct rig_options options = {.daemon_path = s.daemon_path};
    rig_set(&options, "host.limit=1GiB");
    rig_set(&options, "limits.sessions=128");
    rig_set(&options, "staging.total=%u", 2 * WORKERS_MAX * CHUNK * BLOCK_BYTES);
    rig_set(&options, "log.level=warn");
    rc = rig_start(&options, &s.rig);
    rc = rc == 0 ? measure_all(&s) : rc;
    rig_stop(&s.rig);
    free(s.keys);
    return rc;
}
