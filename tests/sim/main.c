/* SPDX-License-Identifier: Apache-2.0 */
/* Which seeds, what to tell, and what is kept of a failure. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "devices.h"
#include "log.h"
#include "seeds.h"
#include "sim.h"

#define TURNS_DEFAULT 2000
#define SEED_SECONDS  300 /* that long without an end: it hangs */
#define LIST_MAX      4096

static const char help[] = "Usage: sim [--seed N | --seeds FROM..TO | --list FILE] [options]\n"
                           "\n"
                           "Runs services, core and policy in one process over a tier, a clock and "
                           "clients that a seed drives, and checks them after every turn.\n"
                           "\n" ARGS_HERE "\n"
                           "exit status: 0 all seeds passed, 1 a seed failed, 2 wrong arguments\n";

struct options {
    struct seeds seeds;
    uint64_t turns;
    const char *keep, *digests;
    bool trace, twice, first, reach;
};

bool sim_with_disk;
const struct policy_ops *sim_policy;
static struct sim_totals *totals; /* shared with the processes that run seeds */
static const char *program;
static FILE *digests; /* NULL: none are asked for */
static uint64_t list[LIST_MAX];

/* ---- determinism: what would be random is drawn from the seed (see CMakeLists.txt) ---- */

int __wrap_hash_random(void *p, size_t n);
uint64_t __wrap_clock_now_ns(void);
static uint64_t entropy = 1;

int __wrap_hash_random(void *p, size_t n)
{
    uint8_t *at = p;
    for (size_t i = 0; i < n; i++)
        at[i] = (uint8_t)fake_random(&entropy);
    return 0;
}

uint64_t __wrap_clock_now_ns(void)
{
    return 0;
}

/* ---- failures ---- */

static void tell(const char *what)
{
    totals->told = true;
    fprintf(stderr, "sim: seed %llu turn %llu: %s\n", (unsigned long long)totals->seed,
            (unsigned long long)totals->turn, what);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    (void)s;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    fflush(stdout);
    tell(what);
    _exit(1);
}

/* MUST and sanitizers have said what; this says where. */
static void on_death(void)
{
    fflush(stdout);
    if (!totals->told)
        tell("the process died; what for is above");
}

static void on_signal(int sig)
{
    if (!totals->told)
        tell(sig == SIGALRM ? "it hangs" : "it crashed");
    signal(sig, SIG_DFL);
    raise(sig);
}

/* There in builds with a sanitizer only. */
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

static void watch(void)
{
    err_set_must_hook(on_death);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(on_death);
    else
        signal(SIGSEGV, on_signal);
    signal(SIGALRM, on_signal);
}

void sim_trace(const struct sim *s, const char *fmt, ...)
{
    va_list ap;
    (void)s;
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
}

static void keep_seed(const struct options *o)
{
    fprintf(stderr, "again: %s%s%s%s --seed %llu --turns %llu --trace\n", program,
            sim_with_hbm    ? " --hbm"
            : sim_with_disk ? " --disk"
                            : "",
            sim_policy ? " --policy " : "", sim_policy ? sim_policy->name : "",
            (unsigned long long)totals->seed, (unsigned long long)o->turns);
    FILE *f = o->keep ? fopen(o->keep, "ae") : NULL;
    if (o->keep && !f)
        perror(o->keep);
    if (f) {
        fprintf(f, "%llu\n", (unsigned long long)totals->seed);
        if (fclose(f))
            perror(o->keep);
    }
}

/* ---- runs ---- */

static struct sim_digest run_one(const struct options *o, uint64_t seed)
{
    entropy = (seed + 7) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    totals->digest = (struct sim_digest){0};
    alarm(SEED_SECONDS);
    sim_run(seed, o->turns, o->trace, totals);
    alarm(0);
    return totals->digest;
}

static void run_seed(const struct options *o, uint64_t seed)
{
    const struct sim_digest once = run_one(o, seed);
    const struct sim_digest again = o->twice ? run_one(o, seed) : once;
    if (once.blocks != again.blocks || once.rest != again.rest) {
        tell("two runs of it differ");
        _exit(1);
    }
    totals->seeds++;
    if (digests)
        fprintf(digests, "%llu %016llx %016llx\n", (unsigned long long)seed,
                (unsigned long long)once.blocks, (unsigned long long)once.rest);
}

static FILE *open_digests(const char *path)
{
    FILE *f = fopen(path, "we");
    if (!f) {
        perror(path);
        exit(2);
    }
    setvbuf(f, NULL, _IOLBF, 0); /* a process that fails leaves what those before it did */
    return f;
}

static void progress(uint64_t done, uint64_t all, uint64_t failed)
{
    static time_t last;
    time_t now = time(NULL);
    if (!isatty(STDERR_FILENO) || (now == last && done < all))
        return;
    last = now;
    fprintf(stderr, "\r%llu of %llu seeds, %llu failed%s", (unsigned long long)done,
            (unsigned long long)all, (unsigned long long)failed, done == all ? "\n" : "");
}

/* In a process of its own, so that a crash costs one seed; goes on behind it in the next. */
static uint64_t run_many(const struct options *o, uint64_t n)
{
    uint64_t failed = 0;
    for (uint64_t i = 0; i < n;) {
        totals->told = false;
        fflush(NULL);
        pid_t pid = fork();
        if (pid < 0) {
            perror("fork");
            exit(2);
        }
        if (pid == 0) {
            watch();
            for (uint64_t k = i; k < n; k++) {
                progress(k, n, failed);
                totals->next = k;
                run_seed(o, seeds_at(&o->seeds, list, k));
            }
            exit(0);
        }
        int status = 0;
        if (waitpid(pid, &status, 0) != pid || status == 0)
            break;
        if (!totals->told)
            tell("the process ended");
        failed++;
        keep_seed(o);
        if (o->first)
            break;
        i = totals->next + 1;
    }
    if (!o->first || !failed)
        progress(n, n, failed);
    return failed;
}

/* ---- the summary ---- */

static const char *op_name(uint32_t op)
{
    static const char *const names[] = {[0] = "(none)",
                                        [KVC_OP_HELLO] = "HELLO",
                                        [KVC_OP_PING] = "PING",
                                        [KVC_OP_NS_OPEN] = "NS_OPEN",
                                        [KVC_OP_LOOKUP] = "LOOKUP",
                                        [KVC_OP_ACQUIRE] = "ACQUIRE",
                                        [KVC_OP_REDEEM] = "REDEEM",
                                        [KVC_OP_RELEASE] = "RELEASE",
                                        [KVC_OP_RESERVE] = "RESERVE",
                                        [KVC_OP_COMMIT] = "COMMIT",
                                        [KVC_OP_STORE] = "STORE",
                                        [KVC_OP_DROP] = "DROP",
                                        [KVC_OP_CANCEL] = "CANCEL",
                                        [KVC_OP_STATS] = "STATS",
                                        [KVC_OP_LIST] = "LIST",
                                        [KVC_OP_EVICT] = "EVICT",
                                        [KVC_OP_VERIFY] = "VERIFY"};
    return op < ARRAY_LEN(names) && names[op] ? names[op] : "?";
}

static void print_row(const char *what, const uint64_t *counts, uint32_t n,
                      const char *(*name)(unsigned))
{
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        if (counts[i])
            printf("%s%s %llu", any ? ", " : "", any ? name(i) : (printf("  %-9s", what), name(i)),
                   (unsigned long long)counts[i]);
        any |= counts[i] != 0;
    }
    if (any)
        putchar('\n');
}

/* INTERNAL must never be seen. No tier yet makes CORRUPT or NOT_WORTH. */
static void print_unseen(void)
{
    uint64_t seen[KVC_ST_COUNT] = {0};
    for (uint32_t i = 0; i < KVC_ST_COUNT; i++) {
        seen[i] = totals->keys[i] + totals->welcomes[i] + totals->drops[i];
        for (uint32_t op = 0; op < SIM_OPS; op++)
            seen[i] += totals->replies[op][i];
    }
    for (uint32_t i = 0; i < KVC_ST_COUNT; i++)
        if (!seen[i] && i != KVC_ST_INTERNAL)
            printf("  never seen: status %s\n", codec_status_name(i));
    for (uint32_t i = 0; i < KVC_MISS_COUNT; i++)
        if (!totals->misses[i] && i != KVC_MISS_CORRUPT && i != KVC_MISS_NOT_WORTH)
            printf("  never seen: miss %s\n", codec_miss_name(i));
}

static void print_summary(uint64_t n, uint64_t failed, double seconds)
{
    printf("replies by operation\n");
    for (uint32_t op = 0; op < SIM_OPS; op++)
        print_row(op_name(op), totals->replies[op], KVC_ST_COUNT, codec_status_name);
    printf("others\n");
    print_row("keys", totals->keys, KVC_ST_COUNT, codec_status_name);
    print_row("misses", totals->misses, KVC_MISS_COUNT, codec_miss_name);
    print_row("WELCOME", totals->welcomes, KVC_ST_COUNT, codec_status_name);
    print_row("DROPPED", totals->drops, KVC_ST_COUNT, codec_status_name);
    print_unseen();
    printf("sim: %llu seeds, %llu failed; %llu turns, %llu copies (%llu failed), %llu evictions, "
           "%llu leases, %llu deaths, %llu messages refused, %llu "
           "locations checked, %.1f s, "
           "%.1f seeds/s\n",
           (unsigned long long)n, (unsigned long long)failed, (unsigned long long)totals->turns,
           (unsigned long long)totals->copies, (unsigned long long)totals->copy_failures,
           (unsigned long long)totals->evicted, (unsigned long long)totals->leases,
           (unsigned long long)totals->deaths, (unsigned long long)totals->refused,
           (unsigned long long)totals->locs_checked, seconds,
           seconds > 0 ? (double)n / seconds : 0.0);
}

/* What engines did; false: some of it never. */
static bool print_engines(void)
{
    const struct {
        const char *what;
        uint64_t n;
    } count[] = {{"locations on devices", totals->locs_hbm},
                 {"blocks sent", totals->blocks_sent},
                 {"stored out of pages", totals->blocks_from_pages},
                 {"leased in slots alone", totals->hbm_only},
                 {"looks at such leases that were lost", totals->hbm_only_lost},
                 {"tickets of such refused", totals->hbm_only_tickets},
                 {"acquires that waited for loads", totals->transfer_waits}};
    bool all = true;
    printf("sim: engines:");
    for (uint32_t i = 0; i < ARRAY_LEN(count); i++) {
        printf("%s %llu %s", i ? "," : "", (unsigned long long)count[i].n, count[i].what);
        all &= count[i].n > 0;
    }
    putchar('\n');
    return all;
}

/* ---- arguments ---- */

static int take_policy(void *ctx, const char *name)
{
    (void)ctx;
    sim_policy = policy_by_name(name);
    return sim_policy ? 0 : args_usage("--policy %s: no such policy", name);
}

static int take_disk(void *ctx, const char *none)
{
    (void)ctx;
    (void)none;
    sim_with_disk = true;
    return 0;
}

static int take_hbm(void *ctx, const char *none)
{
    sim_with_hbm = true;
    return take_disk(ctx, none);
}

static const struct arg option_table[] = {
    SEEDS_OPTIONS(struct options, seeds),
    {"--turns M", "turns of each seed (default 2000)",
     ARG_COUNT(struct options, turns, 0, UINT64_MAX)},
    {"--first", "stop at the first seed that fails", ARG_FLAG(struct options, first)},
    {"--keep FILE", "append each seed that fails to FILE", ARG_TEXT(struct options, keep)},
    {"--verbose", "print each event, to read a failure", ARG_FLAG(struct options, trace)},
    {"--trace", "the same", ARG_FLAG(struct options, trace)},
    {"--disk", "with a storage tier below host memory", ARG_DO(take_disk)},
    {"--hbm",
     "with devices in front too: of what there is to store, 1 % on devices, 5 % in host memory, 20 "
     "% on disk",
     ARG_DO(take_hbm)},
    {"--policy NAME", "of eviction (default: all in turn, by seed)", ARG_DO(take_policy)},
    {"--digests FILE",
     "of each seed that passes a line in FILE: the seed, and digests of what was told of blocks "
     "and of all else; see digests.sh",
     ARG_TEXT(struct options, digests)},
    {"--twice", "run each seed twice and compare: the same seed, the same run",
     ARG_FLAG(struct options, twice)},
    {"--reach",
     "fail, too, when what engines with devices are there for did not happen in any of the seeds "
     "(with --hbm; 100 seeds are enough)",
     ARG_FLAG(struct options, reach)},
    {"--help", "this text", ARG_SHOWN},
    {0},
};

int main(int argc, char **argv)
{
    struct options o = {.seeds = {.from = 1, .to = 1}, .turns = TURNS_DEFAULT};
    struct timespec begun, ended;
    program = argv[0];
    const int rc = args_take_only(option_table, &o, help, args_usage, argc, argv);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    if (o.reach && !sim_with_hbm)
        return args_usage("--reach is for runs with --hbm");
    log_init(LOG_ERROR_, STDERR_FILENO, false);
    totals = mmap(NULL, sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    uint64_t n = seeds_count(&o.seeds, list, LIST_MAX);
    if (o.digests)
        digests = open_digests(o.digests);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    uint64_t failed = run_many(&o, n);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    print_summary(totals->seeds + failed, failed,
                  (double)(ended.tv_sec - begun.tv_sec) +
                      (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    if (digests && fclose(digests)) {
        perror(o.digests);
        return 2;
    }
    const bool reached = !sim_with_hbm || print_engines();
    if (o.reach && !reached)
        fputs("sim: --reach: one of these never happened\n", stderr);
    return failed || (o.reach && !reached) ? 1 : 0;
}
