/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One client looks up short prefixes, first alone and then beside sessions that ask for as much as
 * the protocol lets them. Where the caller is root the greedy ones are another principal's.
 */
#include <errno.h>
#include <pthread.h>
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

#include <kvcache/admin.h>

#include "echo.h"
#include "lat.h"
#include "out.h"
#include "perf.h"
#include "progress.h"

#define BLOCK_TOKENS 16u
#define BLOCK_BYTES  4096u
#define LOOKUP_KEYS  16u
#define GREEDY_MAX   16u
#define DEPTH        4u
#define CHAIN_LONG   32768u /* keys of a long request, if --keys does not say */
#define CHAIN_WAIT   4096u
#define WAITS        200u /* waiting requests of all greedy sessions together */
#define GREEDY_UID   60000u
#define LOOP_NS      UINT64_C(100000)
#define LOOP_COUNTS  UINT64_C(20000)
#define REPLY_BYTES  64u /* bytes of a lookup's reply, about */
#define ANNOUNCED    16u /* RESERVEs of KVC_STORE_MAX blocks that one session makes */

static const char help[] =
    "Usage: kvcachebench fair [OPTIONS]\n"
    "\n"
    "How long lookups of 16 keys take beside greedy sessions, and how long they take alone; how "
    "long turns of the daemon's control thread are, by the clock and by processor time (wanted: 2 "
    "ms). For comparison, what the machine does to others meanwhile: a bare ZeroMQ echo of the "
    "same sizes, alone and beside them, and a loop of 100 us that only counts. The kinds of greed, "
    "a daemon of its own for each:\n"
    "\n"
    "  stores    each session has four STOREs of 4,096 new blocks of 4 KiB in flight\n"
    "  acquires  each session has four ACQUIREs of N cached blocks in flight\n"
    "  waits     200 ACQUIREs of 4,096 blocks that wait for the last of them, which one session\n"
    "            announces and gives up, over and over\n"
    "  hints     each session says of a chain of N cached blocks that it has ended, over and\n"
    "            over, four such hints ahead of a ping\n"
    "  ends      each session announces 65,536 blocks, goes, and comes again\n"
    "  pins      each session pins a chain of N cached blocks, and unpins it, over and over\n"
    "  names     each session names a chain of N cached blocks of its own, loads the name,\n"
    "            and forgets it, over and over\n"
    "  forgets   each session stores such a chain, names it, and forgets it with its blocks\n"
    "\n"
    "The greedy sessions are another principal's where the caller is root.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench fair --kind stores --pairs 1\n";

enum kind {
    KIND_STORES,
    KIND_ACQUIRES,
    KIND_WAITS,
    KIND_HINTS,
    KIND_ENDS,
    KIND_PINS,
    KIND_NAMES,
    KIND_FORGETS,
    KINDS
};
static const char *const kind_names[KINDS] = {"stores", "acquires", "waits", "hints",
                                              "ends",   "pins",     "names", "forgets"};

/* Shared by all processes. */
struct shared {
    _Atomic uint32_t ready, failed;
    _Atomic bool busy; /* the greedy sessions are at work */
    _Atomic uint64_t requests;
};

/* A loop that should take LOOP_NS, again and again with a pause. The time beyond LOOP_NS is due to
 * the machine, not to the daemon. */
struct loop {
    uint64_t counts; /* counts of one run of the loop */
    struct lat cpu;
    uint64_t longest_ns;
    pthread_t thread;
    _Atomic bool on, over;
};

struct fair {
    uint64_t sessions, pairs, chain; /* chain: keys of a long request */
    double seconds;
    const char *daemon_path;
    bool json, one, two_principals;
    enum kind kind;
    struct perf_session session;
    struct shared *shared;
    uint8_t *keys; /* `chain` of them */
    pid_t pids[GREEDY_MAX];
    struct loop loop;
    struct echo *echo;
};

struct greedy {
    const struct fair *f;
    uint32_t no;
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint64_t stream;
    uint64_t *offsets;
    uint8_t *keys;
    struct kvc_op *ops[WAITS];
};

static void pause_ms(unsigned ms)
{
    const struct timespec ts = {.tv_nsec = (long)ms * 1000000};
    nanosleep(&ts, NULL);
}

static void fair_make_keys(uint64_t stream, uint32_t n, uint8_t *keys)
{
    for (uint32_t i = 0; i < n; i++)
        perf_key(stream, i, keys + (size_t)i * KVC_KEY_BYTES);
}

/* ---- the greedy ---- */

static const uint8_t *fair_key_at(const uint8_t *keys, uint32_t i)
{
    return keys + (size_t)i * KVC_KEY_BYTES;
}

static struct kvc_blocks part_of(const uint8_t *keys, uint32_t first, uint32_t n)
{
    return (struct kvc_blocks){.parent = first > 0 ? fair_key_at(keys, first - 1) : NULL,
                               .keys = fair_key_at(keys, first),
                               .n = n,
                               .first_token = first * BLOCK_TOKENS,
                               .flags = KVC_F_ADMIT};
}

/* Stores blocks 0 to n - 1. */
static int store_chain(struct greedy *g, uint32_t n)
{
    static uint8_t statuses[KVC_STORE_MAX];
    int rc = 0;
    for (uint32_t at = 0; rc == 0 && at < n; at += KVC_STORE_MAX) {
        const uint32_t some = n - at < KVC_STORE_MAX ? n - at : KVC_STORE_MAX;
        const struct kvc_blocks blocks = part_of(g->keys, at, some);
        rc = kvc_store(g->ns, &blocks, g->offsets, NULL, 0, statuses);
    }
    return rc < 0 ? rc : 0;
}

static uint32_t long_n(const struct greedy *g)
{
    return (uint32_t)g->f->chain;
}

static int fair_begin_store(struct greedy *g, uint32_t i)
{
    uint8_t *keys = g->keys + (size_t)i * KVC_STORE_MAX * KVC_KEY_BYTES;
    fair_make_keys(++g->stream, KVC_STORE_MAX, keys);
    const struct kvc_blocks blocks = part_of(keys, 0, KVC_STORE_MAX);
    return kvc_store_begin(g->ns, &blocks, g->offsets, NULL, 0, &g->ops[i]);
}

static int begin_acquire(struct greedy *g, uint32_t i)
{
    const bool waits = g->f->kind == KIND_WAITS;
    const uint32_t n = waits ? CHAIN_WAIT : long_n(g);
    const struct kvc_seq seq = {.tokens = n * BLOCK_TOKENS, .group = {{.keys = g->keys, .n = n}}};
    const struct kvc_acquire_options options = {
        .flags = waits ? KVC_F_WAIT : 0,
        .from_tokens = waits ? (n - 2) * BLOCK_TOKENS : 0, /* holds little, but looks up all */
        .timeout_ms = 10000};
    return kvc_acquire_begin(g->ns, &seq, &options, &g->ops[i]);
}

static int fair_finish(struct greedy *g, uint32_t i)
{
    struct kvc_result result = {0};
    if (!g->ops[i])
        return 0;
    const int rc = kvc_finish(&g->ops[i], &result);
    kvc_release(g->kvc, &result.hold);
    atomic_fetch_add(&g->f->shared->requests, 1);
    return rc == KVC_E_BUSY || rc == KVC_E_LIMIT ? 0 : rc; /* these refusals do not harm others */
}

static int ask_and_finish(struct greedy *g, uint32_t n, int (*begin)(struct greedy *g, uint32_t i))
{
    int rc = 0;
    for (uint32_t i = 0; rc >= 0; i = (i + 1) % n) {
        rc = fair_finish(g, i);
        const bool busy = atomic_load(&g->f->shared->busy);
        if (rc >= 0 && busy)
            rc = begin(g, i);
        else if (rc >= 0 && i == n - 1)
            pause_ms(1);
    }
    return rc;
}

/* Announces the block that the others wait for, and drops it. */
static int announce_and_drop(struct greedy *g)
{
    const struct kvc_blocks last = part_of(g->keys, CHAIN_WAIT - 1, 1);
    int rc = 0;
    while (rc >= 0) {
        uint64_t reservation = 0;
        uint8_t status;
        if (!atomic_load(&g->f->shared->busy)) {
            pause_ms(1);
            continue;
        }
        rc = kvc_reserve(g->ns, &last, &reservation, &status);
        if (rc >= 0 && reservation)
            rc = kvc_drop(g->kvc, reservation);
        atomic_fetch_add(&g->f->shared->requests, 1);
    }
    return rc;
}

static struct kvc_seq long_seq(const struct greedy *g)
{
    return (struct kvc_seq){.tokens = long_n(g) * BLOCK_TOKENS,
                            .group = {{.keys = g->keys, .n = long_n(g)}}};
}

static int hint(struct greedy *g)
{
    const struct kvc_seq seq = long_seq(g);
    int rc = 0;
    while (rc >= 0) {
        if (!atomic_load(&g->f->shared->busy)) {
            pause_ms(1);
            continue;
        }
        for (uint32_t i = 0; rc >= 0 && i < DEPTH; i++)
            rc = kvc_hint(g->ns, &seq, KVC_HINT_ENDED, 0);
        if (rc >= 0)
            rc = kvc_ping(g->kvc, NULL); /* handled in order, so behind the requests before it */
        atomic_fetch_add(&g->f->shared->requests, DEPTH);
    }
    return rc;
}

static int greedy_connect(struct greedy *g)
{
    const uint64_t staging = (uint64_t)KVC_STORE_MAX * BLOCK_BYTES;
    const struct kvc_options options = {.socket = rig_socket(g->f->session.rig),
                                        .name = "greedy",
                                        .staging_bytes = staging,
                                        .timeout_ms = 60000,
                                        .must_connect = true};
    g->keys = malloc((size_t)long_n(g) * KVC_KEY_BYTES);
    g->offsets = malloc(KVC_STORE_MAX * sizeof *g->offsets);
    if (!g->keys || !g->offsets)
        return -ENOMEM;
    for (uint32_t i = 0; i < KVC_STORE_MAX; i++)
        g->offsets[i] = (uint64_t)i * BLOCK_BYTES;
    int rc = kvc_open(&options, &g->kvc);
    if (rc >= 0 && !kvc_staging(g->kvc, NULL))
        rc = KVC_E_DOWN;
    return rc < 0 ? rc : perf_ns_open(g->kvc, BLOCK_BYTES, "fair", &g->ns);
}

/* Announces as much as fits in a few requests, and leaves it until the session ends. */
static int announce_and_go(struct greedy *g)
{
    static uint8_t statuses[KVC_STORE_MAX];
    int rc = 0;
    while (rc >= 0) {
        if (!atomic_load(&g->f->shared->busy)) {
            pause_ms(1);
            continue;
        }
        for (uint32_t i = 0; rc >= 0 && i < ANNOUNCED; i++) {
            uint64_t reservation;
            fair_make_keys(++g->stream, KVC_STORE_MAX, g->keys);
            const struct kvc_blocks blocks = part_of(g->keys, 0, KVC_STORE_MAX);
            rc = kvc_reserve(g->ns, &blocks, &reservation, statuses);
            atomic_fetch_add(&g->f->shared->requests, 1);
        }
        kvc_close(&g->kvc); /* frees the namespace too */
        free(g->keys);
        free(g->offsets);
        if (rc >= 0)
            rc = greedy_connect(g);
    }
    return rc;
}

static int fair_pin(struct greedy *g)
{
    const struct kvc_seq seq = long_seq(g);
    int rc = 0;
    while (rc >= 0) {
        uint64_t pin;
        if (!atomic_load(&g->f->shared->busy)) {
            pause_ms(1);
            continue;
        }
        rc = kvc_pin(g->ns, &seq, false, 0, &pin);
        if (rc >= 0)
            rc = kvc_unpin(g->kvc, pin);
        atomic_fetch_add(&g->f->shared->requests, 2);
        rc = rc == KVC_E_BUSY || rc == KVC_E_LIMIT ? 0 : rc;
    }
    return rc;
}

static int name_and_forget(struct greedy *g)
{
    const bool evict = g->f->kind == KIND_FORGETS;
    const struct kvc_seq seq = long_seq(g);
    char name[32];
    snprintf(name, sizeof name, "greedy-%u", g->no);
    int rc = 0;
    while (rc >= 0) {
        struct kvc_named named;
        uint64_t bytes;
        if (!atomic_load(&g->f->shared->busy)) {
            pause_ms(1);
            continue;
        }
        if (evict)
            rc = store_chain(g, long_n(g));
        if (rc >= 0)
            rc = kvc_name_put(g->ns, KVC_NAME_DOCUMENT, name, &seq, NULL, &named);
        if (rc >= 0 && !evict)
            rc = kvc_name_load(g->kvc, KVC_NAME_DOCUMENT, name, NULL, UINT64_MAX, false, 0, &bytes);
        if (rc >= 0)
            rc = kvc_name_forget(g->kvc, KVC_NAME_DOCUMENT, name, NULL, evict);
        atomic_fetch_add(&g->f->shared->requests, 3);
    }
    return rc;
}

static int work_of(struct greedy *g)
{
    switch (g->f->kind) {
    case KIND_STORES:
        return ask_and_finish(g, DEPTH, fair_begin_store);
    case KIND_ACQUIRES:
        return ask_and_finish(g, DEPTH, begin_acquire);
    case KIND_HINTS:
        return hint(g);
    case KIND_ENDS:
        return announce_and_go(g);
    case KIND_PINS:
        return fair_pin(g);
    case KIND_NAMES:
    case KIND_FORGETS:
        return name_and_forget(g);
    default:
        return g->no == 0
                   ? announce_and_drop(g)
                   : ask_and_finish(g, WAITS / (uint32_t)(g->f->sessions - 1), begin_acquire);
    }
}

/* How many blocks are stored before a greedy session is ready: of one chain for all sessions, or of
 * its own. */
static uint32_t stored_first(const struct greedy *g)
{
    const enum kind kind = g->f->kind;
    if (kind == KIND_STORES || kind == KIND_ENDS || kind == KIND_FORGETS)
        return 0;
    if (kind == KIND_NAMES)
        return long_n(g);
    return g->no > 0 ? 0 : kind == KIND_WAITS ? CHAIN_WAIT - 1 : long_n(g);
}

static int greedy_work(struct greedy *g)
{
    const enum kind kind = g->f->kind;
    const bool own = kind == KIND_NAMES || kind == KIND_FORGETS;
    int rc = greedy_connect(g);
    g->stream = UINT64_C(1000000) * (g->no + 1);
    fair_make_keys(own ? 7 + g->no : 7, kind == KIND_WAITS ? CHAIN_WAIT : long_n(g), g->keys);
    if (rc >= 0)
        rc = store_chain(g, stored_first(g));
    if (rc < 0)
        return rc;
    atomic_fetch_add(&g->f->shared->ready, 1);
    return work_of(g);
}

static pid_t greedy_start(const struct fair *f, uint32_t no)
{
    fflush(NULL);
    const pid_t pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    rig_disown();
    if (f->two_principals && (setgid(GREEDY_UID) != 0 || setuid(GREEDY_UID) != 0))
        _exit(BENCH_FAILED);
    static struct greedy g;
    g = (struct greedy){.f = f, .no = no};
    const int rc = greedy_work(&g);
    say_error("a greedy session: %s: %s", kvc_error_name(rc), kvc_last_error(g.kvc));
    atomic_fetch_add(&f->shared->failed, 1);
    _exit(BENCH_FAILED);
}

/* Starts them one by one, because the first one stores what all of them ask for. */
static int greedy_start_all(struct fair *f)
{
    for (uint32_t i = 0; i < f->sessions; i++) {
        f->pids[i] = greedy_start(f, i);
        if (f->pids[i] < 0)
            return BENCH_FAILED;
        while (atomic_load(&f->shared->ready) <= i) {
            if (atomic_load(&f->shared->failed) > 0)
                return BENCH_FAILED;
            pause_ms(1);
        }
    }
    return 0;
}

static void greedy_stop_all(struct fair *f)
{
    for (uint32_t i = 0; i < f->sessions; i++) {
        if (f->pids[i] <= 0)
            continue;
        kill(f->pids[i], SIGKILL);
        waitpid(f->pids[i], NULL, 0);
        f->pids[i] = 0;
    }
}

/* ---- the loop ---- */

static uint64_t thread_cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t loop_ns(uint64_t counts)
{
    const uint64_t begun = thread_cpu_ns();
    for (volatile uint64_t i = 0; i < counts;)
        i = i + 1;
    return thread_cpu_ns() - begun;
}

/* Measures how many counts take LOOP_NS on an idle machine. */
static uint64_t loop_counts(void)
{
    uint64_t best = UINT64_MAX;
    for (unsigned i = 0; i < 50; i++) {
        const uint64_t ns = loop_ns(LOOP_COUNTS);
        best = ns < best ? ns : best;
    }
    return LOOP_COUNTS * LOOP_NS / (best > 0 ? best : 1);
}

static void *loop_run(void *ctx)
{
    struct loop *l = ctx;
    l->counts = loop_counts();
    while (!atomic_load(&l->over)) {
        pause_ms(1);
        if (!atomic_load(&l->on))
            continue;
        const uint64_t ns = loop_ns(l->counts);
        lat_add(&l->cpu, ns);
        l->longest_ns = ns > l->longest_ns ? ns : l->longest_ns;
    }
    return NULL;
}

static int loop_start(struct loop *l)
{
    memset(&l->cpu, 0, sizeof l->cpu);
    l->longest_ns = 0;
    atomic_store(&l->on, false);
    atomic_store(&l->over, false);
    const int err = pthread_create(&l->thread, NULL, loop_run, l);
    if (err)
        say_error("a thread: %s", strerror(err));
    return err ? BENCH_FAILED : 0;
}

static void loop_stop(struct loop *l)
{
    atomic_store(&l->over, true);
    pthread_join(l->thread, NULL);
}

/* ---- the other ---- */

static int fair_fill(struct fair *f)
{
    uint64_t offsets[LOOKUP_KEYS] = {0};
    uint8_t statuses[LOOKUP_KEYS];
    fair_make_keys(1, LOOKUP_KEYS, f->keys);
    const struct kvc_blocks blocks = part_of(f->keys, 0, LOOKUP_KEYS);
    int rc = perf_ns_open(f->session.kvc, BLOCK_BYTES, "modest", &f->session.ns);
    if (rc >= 0)
        rc = kvc_store(f->session.ns, &blocks, offsets, NULL, 0, statuses);
    return rc < 0 ? perf_fail(&f->session, rc, "store") : perf_statuses(statuses, LOOKUP_KEYS);
}

static int fair_look_up(struct fair *f, struct lat *lat)
{
    const struct kvc_seq seq = {.tokens = LOOKUP_KEYS * BLOCK_TOKENS,
                                .group = {{.keys = f->keys, .n = LOOKUP_KEYS}}};
    const uint64_t until = now_ns() + (uint64_t)(f->seconds * 1e9);
    for (uint64_t begun = now_ns(); begun < until;) {
        struct kvc_prefix prefix;
        int rc = kvc_lookup(f->session.ns, &seq, KVC_F_TOUCH, &prefix);
        if (rc < 0)
            return perf_fail(&f->session, rc, "lookup");
        const uint64_t ended = now_ns();
        lat_add(lat, ended - begun);
        begun = ended;
    }
    return 0;
}

struct outcome {
    double p50, p99, echo_p99;
    double requests; /* a second, of the greedy */
};

static int round_of(struct fair *f, bool beside, struct outcome *ret)
{
    struct lat lat = {0}, echo = {0};
    atomic_store(&f->shared->busy, beside);
    pause_ms(200);
    const uint64_t before = atomic_load(&f->shared->requests);
    atomic_store(&f->loop.on, beside);
    int rc = fair_look_up(f, &lat);
    const uint64_t after = atomic_load(&f->shared->requests);
    if (rc == 0)
        rc = echo_round_trips(f->echo, f->seconds, &echo);
    atomic_store(&f->loop.on, false);
    *ret = (struct outcome){.p50 = (double)lat_quantile_ns(&lat, 0.5) * 1e-9,
                            .p99 = (double)lat_quantile_ns(&lat, 0.99) * 1e-9,
                            .echo_p99 = (double)lat_quantile_ns(&echo, 0.99) * 1e-9,
                            .requests = (double)(after - before) / f->seconds};
    atomic_store(&f->shared->busy, false);
    pause_ms(300);
    if (rc == 0 && atomic_load(&f->shared->failed) > 0)
        rc = BENCH_FAILED;
    return rc;
}

/* ---- reports ---- */

static void put_json(const struct fair *f, const char *metric, double value, const char *unit,
                     const char *limit, double against)
{
    if (!f->json)
        return;
    out_json(
        &(struct out_metric){.bench = "fair",
                             .keys = {{.key = "kind", .text = kind_names[f->kind]},
                                      {.key = "sessions", .number = f->sessions},
                                      {.key = "principals", .number = f->two_principals ? 2 : 1}},
                             .metric = metric,
                             .value = value,
                             .unit = unit,
                             .limit_what = limit,
                             .limit = against,
                             .ratio = against > 0 ? value / against : 0});
}

/* Turns of the control thread since its start, and of the loop beside the greedy sessions. */
struct turns {
    uint64_t wall_max, wall_p9999, cpu_max, cpu_p9999, handle_max, loop_max, loop_p9999;
};

static int turns_of(struct fair *f, struct turns *ret)
{
    const struct {
        const char *name;
        uint64_t *to;
    } stats[] = {{"daemon.turn_ns.max", &ret->wall_max},
                 {"daemon.turn_ns.p9999", &ret->wall_p9999},
                 {"daemon.turn_cpu_ns.max", &ret->cpu_max},
                 {"daemon.turn_cpu_ns.p9999", &ret->cpu_p9999},
                 {"svc.handle_ns.max", &ret->handle_max}};
    int rc = 0;
    for (size_t i = 0; rc >= 0 && i < sizeof stats / sizeof stats[0]; i++)
        rc = perf_stat(f->session.kvc, stats[i].name, stats[i].to);
    ret->loop_max = f->loop.longest_ns;
    ret->loop_p9999 = lat_quantile_ns(&f->loop.cpu, 0.9999);
    return rc < 0 ? perf_fail(&f->session, rc, "stats") : 0;
}

static int fair_report(struct fair *f, const struct outcome *alone, const struct outcome *beside)
{
    struct turns t = {0};
    const int rc = turns_of(f, &t);
    if (rc != 0)
        return rc;
    put_json(f, "lookup_p50", beside->p50, "s", "alone", alone->p50);
    put_json(f, "lookup_p99", beside->p99, "s", "alone", alone->p99);
    put_json(f, "echo_p99", beside->echo_p99, "s", "alone", alone->echo_p99);
    put_json(f, "greedy_requests_per_s", beside->requests, "1/s", NULL, 0);
    put_json(f, "turn_max", (double)t.wall_max * 1e-9, "s", NULL, 0);
    put_json(f, "turn_p9999", (double)t.wall_p9999 * 1e-9, "s", NULL, 0);
    put_json(f, "turn_cpu_max", (double)t.cpu_max * 1e-9, "s", "loop", (double)t.loop_max * 1e-9);
    put_json(f, "turn_cpu_p9999", (double)t.cpu_p9999 * 1e-9, "s", "loop",
             (double)t.loop_p9999 * 1e-9);
    put_json(f, "handle_max", (double)t.handle_max * 1e-9, "s", NULL, 0);
    progress_clear();
    if (!f->json)
        printf("  %-9s %8.1f %8.1f %6.1fx %9.1f %9.1f %6.1fx %6.1fx %10.0f %8.2f %8.2f %8.2f %8.2f "
               "%8.2f "
               "%8.2f\n",
               kind_names[f->kind], alone->p50 * 1e6, beside->p50 * 1e6, beside->p50 / alone->p50,
               alone->p99 * 1e6, beside->p99 * 1e6, beside->p99 / alone->p99,
               beside->echo_p99 / alone->echo_p99, beside->requests, (double)t.wall_p9999 * 1e-6,
               (double)t.wall_max * 1e-6, (double)t.cpu_p9999 * 1e-6, (double)t.cpu_max * 1e-6,
               (double)t.loop_p9999 * 1e-6, (double)t.loop_max * 1e-6);
    fflush(stdout);
    return 0;
}

static void print_head(const struct fair *f)
{
    if (f->json)
        return;
    printf(
        "Lookups of %u keys alone and beside %u greedy sessions of %s, in us; and in ms, 99.99 %% "
        "and the\nlongest: turns of the control thread by the clock and by processor time (wanted: "
        "2 ms of it at\nmost; by the clock too where nothing else runs). echo: p99 of a bare "
        "ZeroMQ "
        "echo, beside by\nalone; loop: .10 ms of counting, by processor time\n\n",
        LOOKUP_KEYS, (unsigned)f->sessions,
        f->two_principals ? "another principal" : "the same principal");
    printf("  %-9s %8s %8s %7s %9s %9s %7s %7s %10s %8s %8s %8s %8s %8s %8s\n", "kind", "p50",
           "beside", "", "p99", "beside", "", "echo", "requests/s", "clock", "longest", "cpu",
           "longest", "loop", "longest");
}

static double median_of(const struct outcome *all, size_t n, size_t field)
{
    double values[PERF_PAIRS_MAX];
    for (size_t i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&all[i] + field, sizeof values[i]);
    return out_median(values, n);
}

static struct outcome medians(const struct outcome *all, size_t n)
{
    return (struct outcome){.p50 = median_of(all, n, offsetof(struct outcome, p50)),
                            .p99 = median_of(all, n, offsetof(struct outcome, p99)),
                            .echo_p99 = median_of(all, n, offsetof(struct outcome, echo_p99)),
                            .requests = median_of(all, n, offsetof(struct outcome, requests))};
}

static int fair_measure(struct fair *f, struct outcome *ret_alone, struct outcome *ret_beside)
{
    static struct outcome alone[PERF_PAIRS_MAX], beside[PERF_PAIRS_MAX];
    for (uint64_t i = 0; i < f->pairs; i++) {
        progress_show(false, "%s: pair %u of %u", kind_names[f->kind], (unsigned)i + 1,
                      (unsigned)f->pairs);
        int rc = round_of(f, i % 2 == 0, i % 2 == 0 ? &beside[i] : &alone[i]);
        if (rc == 0)
            rc = round_of(f, i % 2 != 0, i % 2 != 0 ? &beside[i] : &alone[i]);
        if (rc != 0)
            return rc;
    }
    *ret_alone = medians(alone, f->pairs);
    *ret_beside = medians(beside, f->pairs);
    return 0;
}

/* ---- the command ---- */

static int run_kind(struct fair *f)
{
    struct outcome alone, beside;
    char config[512];
    snprintf(config, sizeof config,
             "socket_mode: \"0666\"\n"
             "principals:\n"
             "  - {name: modest, uids: [0], admin: true}\n"
             "  - {name: greedy, uids: [%u]}\n",
             GREEDY_UID);
    struct rig_options options = {.daemon_path = f->daemon_path,
                                  .config = f->two_principals ? config : NULL};
    /* Half of memory and of the index is promised to each principal; four chains belong to one. */
    rig_set(&options, f->kind >= KIND_NAMES   ? "host.limit=4GiB"
                      : f->chain > CHAIN_LONG ? "host.limit=2GiB"
                                              : "host.limit=1GiB");
    rig_set(&options, "log.level=warn");
    memset(f->shared, 0, sizeof *f->shared);
    int rc = echo_start(&f->echo);
    if (rc == 0)
        rc = echo_sizes(f->echo, LOOKUP_KEYS * KVC_KEY_BYTES, REPLY_BYTES);
    if (rc == 0)
        rc = perf_open(&options, 1u << 20, &f->session);
    if (rc == 0)
        rc = perf_settle(&f->session);
    if (rc == 0)
        rc = fair_fill(f);
    if (rc == 0)
        rc = greedy_start_all(f);
    if (rc == 0)
        rc = loop_start(&f->loop);
    if (rc == 0) {
        rc = fair_measure(f, &alone, &beside);
        loop_stop(&f->loop); /* its figures are read below */
    }
    if (rc == 0)
        rc = fair_report(f, &alone, &beside);
    greedy_stop_all(f);
    progress_clear();
    perf_close(&f->session);
    echo_stop(&f->echo);
    return rc;
}

static int take_kind(void *ctx, const char *name)
{
    struct fair *f = ctx;
    for (f->kind = 0; f->kind < KINDS; f->kind++)
        if (strcmp(name, kind_names[f->kind]) == 0) {
            f->one = true;
            return 0;
        }
    return say_usage(
        "--kind is stores, acquires, waits, hints, ends, pins, names or forgets, not '%s'", name);
}

static const struct arg option_table[] = {
    {"--kind K", "one of them (default: all)", ARG_DO(take_kind)},
    {"--keys N",
     "of a long request, 4096 to 131072 (default 32768); for names and forgets at most 200,000 "
     "over all sessions",
     ARG_COUNT(struct fair, chain, KVC_STORE_MAX, KVC_KEYS_MAX)},
    {"--sessions N", "greedy ones (default 4)", ARG_COUNT(struct fair, sessions, 2, GREEDY_MAX)},
    {"--seconds S", "of one measurement (default 2)", ARG_NUMBER(struct fair, seconds, 0.01, 3600)},
    {"--pairs N", "alone and beside them, taking turns; medians are reported (default 3)",
     ARG_COUNT(struct fair, pairs, 1, PERF_PAIRS_MAX)},
    {"--daemon PATH", "the daemon to start", ARG_TEXT(struct fair, daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct fair, json)},
    {0},
};

int cmd_fair(int argc, char **argv)
{
    static struct fair f = {.sessions = 4, .pairs = 3, .seconds = 2, .chain = CHAIN_LONG};
    int rc = opt_take_only(argc, argv, option_table, help, &f);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    f.two_principals = geteuid() == 0;
    f.keys = malloc((size_t)f.chain * KVC_KEY_BYTES);
    f.shared =
        mmap(NULL, sizeof *f.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!f.keys || f.shared == MAP_FAILED) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    print_head(&f);
    for (unsigned k = f.one ? f.kind : 0; rc == 0 && k <= (f.one ? (unsigned)f.kind : KINDS - 1);
         k++) {
        f.kind = k;
        rc = run_kind(&f);
        if (f.one)
            break;
    }
    free(f.keys);
    return rc;
}
