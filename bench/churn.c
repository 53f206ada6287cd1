/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker stores new chains without end, more than memory and storage have room for. Another asks
 * for the same blocks again and again. Measured are how long a store takes while storage reclaims,
 * and how often each byte is written. The disk alone is measured in the same run.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
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

#include "lat.h"
#include "out.h"
#include "perf.h"
#include "progress.h"
#include "units.h"

#define CHAIN       32u
#define DEPTH_MAX   64u
#define BLOCK_TOKEN 16u
/* Bytes that are stored, for each byte of storage, before anything is measured. */
#define LEAD_SHARE 2
#define LEAD_S     120
#define HOT_STREAM UINT64_C(1)
/* For measuring the disk alone. */
#define WRITERS      8u
#define WRITER_BYTES (UINT64_C(128) << 20)
#define WRITE_BYTES  (1 << 20)

static const char help[] =
    "Usage: kvcachebench churn [OPTIONS]\n"
    "\n"
    "A worker stores new chains of 32 blocks without end, beside one that reads a hot set again "
    "and again, in a daemon whose memory and storage are full: how long a store takes while "
    "storage reclaims, and how many bytes are written for each that is written first.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench churn --compare --dir /var/lib/kvcache\n";

/* Shared by the two workers. */
struct shared {
    _Atomic bool ready, failed, measure, stop;
    _Atomic uint64_t asked, hit;       /* blocks of the hot set: asked for, found */
    _Atomic uint64_t again, again_hit; /* the same for blocks that were stored lately */
    _Atomic uint64_t stored;           /* chains that were stored */
    struct lat lat;
    uint64_t longest_ns;
};

struct churn {
    struct perf_args args;
    const char *dir;
    uint64_t host_bytes, nvme_bytes, hot_bytes, block_bytes, again_percent;
    struct rig_options options;
    struct perf_session session;
    struct shared *shared;
    pid_t reader;
    double disk_bytes_per_s; /* rate of the disk alone, or 0 */
    /* the stores */
    uint64_t next;
    uint64_t begun_ns[DEPTH_MAX], chain_of[DEPTH_MAX];
    struct lat lat;
    uint64_t longest_ns, stored_blocks, refused_blocks;
    bool measure;
};

static void pause_ms(unsigned ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
}

static void churn_keys_of(uint64_t stream, uint64_t chain, uint8_t keys[CHAIN * KVC_KEY_BYTES])
{
    for (uint32_t i = 0; i < CHAIN; i++)
        perf_key(stream, chain * CHAIN + i, keys + (size_t)i * KVC_KEY_BYTES);
}

/* ---- the worker that reads ---- */

struct reader {
    const struct churn *c;
    struct kvc *kvc;
    struct kvc_ns *ns, *stored;
    uint8_t *staging;
    uint64_t random;
};

static int reader_open(struct reader *r)
{
    struct kvc_options options = {.socket = rig_socket(r->c->session.rig),
                                  .name = "churn-hot",
                                  .staging_bytes = CHAIN * r->c->block_bytes,
                                  .must_connect = true};
    int rc = kvc_open(&options, &r->kvc);
    if (rc == 0)
        rc = perf_ns_open(r->kvc, r->c->block_bytes, "churn-hot", &r->ns);
    if (rc == 0)
        rc = perf_ns_open(r->kvc, r->c->block_bytes, "churn", &r->stored);
    if (rc == 0 && !(r->staging = kvc_staging(r->kvc, NULL)))
        rc = KVC_E_DOWN;
    return rc;
}

/* Reads a chain of the hot set, and stores its missing blocks, as a worker does. */
static int reader_turn(struct reader *r, uint64_t chain)
{
    struct shared *s = r->c->shared;
    uint8_t keys[CHAIN * KVC_KEY_BYTES], statuses[CHAIN];
    uint64_t offsets[CHAIN];
    struct kvc_seq seq = {.tokens = CHAIN * BLOCK_TOKEN, .group = {{.keys = keys, .n = CHAIN}}};
    struct kvc_hold *hold = NULL;
    churn_keys_of(HOT_STREAM, chain, keys);
    const uint64_t begun = now_ns();
    int rc = kvc_acquire(r->ns, &seq, NULL, &hold);
    if (rc < 0)
        return rc;
    const uint32_t have = hold->group[0].n;
    kvc_release(r->kvc, &hold);
    if (atomic_load(&s->measure)) {
        const uint64_t took = now_ns() - begun;
        lat_add(&s->lat, took);
        s->longest_ns = took > s->longest_ns ? took : s->longest_ns;
        atomic_fetch_add(&s->asked, CHAIN);
        atomic_fetch_add(&s->hit, have);
    }
    if (have == CHAIN)
        return 0;
    for (uint32_t i = 0; i < CHAIN - have; i++)
        offsets[i] = i * r->c->block_bytes;
    struct kvc_blocks blocks = {.parent = have ? keys + (have - 1) * KVC_KEY_BYTES : NULL,
                                .keys = keys + have * KVC_KEY_BYTES,
                                .n = CHAIN - have,
                                .first_token = have * BLOCK_TOKEN};
    return kvc_store(r->ns, &blocks, offsets, NULL, 0, statuses);
}

static uint64_t reader_random(struct reader *r)
{
    r->random = r->random * 6364136223846793005u + 1442695040888963407u;
    return r->random >> 33;
}

/* Asks for a chain that was stored lately; three quarters of storage hold as many. */
static int reader_again(struct reader *r)
{
    struct shared *s = r->c->shared;
    uint8_t keys[CHAIN * KVC_KEY_BYTES];
    struct kvc_seq seq = {.tokens = CHAIN * BLOCK_TOKEN, .group = {{.keys = keys, .n = CHAIN}}};
    struct kvc_hold *hold = NULL;
    const uint64_t stored = atomic_load(&s->stored);
    const uint64_t back =
        1 + reader_random(r) % (r->c->nvme_bytes / 4 * 3 / (CHAIN * r->c->block_bytes));
    if (back > stored)
        return 0;
    churn_keys_of(HOT_STREAM + 1, stored - back, keys);
    int rc = kvc_acquire(r->stored, &seq, NULL, &hold);
    if (rc < 0)
        return rc;
    if (atomic_load(&s->measure)) {
        atomic_fetch_add(&s->again, CHAIN);
        atomic_fetch_add(&s->again_hit, hold->group[0].n);
    }
    kvc_release(r->kvc, &hold);
    return 0;
}

static int read_hot(const struct churn *c)
{
    struct reader r = {.c = c, .random = 1};
    struct shared *s = c->shared;
    const uint64_t chains = c->hot_bytes / (CHAIN * c->block_bytes);
    int rc = reader_open(&r);
    for (uint64_t n = 0; rc == 0 && !atomic_load(&s->stop); n++) {
        rc = reader_turn(&r, n % chains);
        if (rc == 0 && reader_random(&r) % 100 < c->again_percent)
            rc = reader_again(&r);
        if (n == 2 * chains)
            atomic_store(&s->ready, true);
    }
    if (rc < 0) {
        say_error("the reader: %s", kvc_error_name(rc));
        atomic_store(&s->failed, true);
    }
    kvc_close(&r.kvc);
    return rc < 0 ? BENCH_FAILED : BENCH_OK;
}

static int reader_start(struct churn *c)
{
    fflush(NULL);
    c->reader = fork();
    if (c->reader == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        rig_disown();
        _exit(read_hot(c));
    }
    if (c->reader < 0) {
        say_error("cannot start a process: %s", strerror(errno));
        return BENCH_FAILED;
    }
    while (!atomic_load(&c->shared->ready) && !atomic_load(&c->shared->failed))
        pause_ms(5);
    return atomic_load(&c->shared->failed) ? BENCH_FAILED : BENCH_OK;
}

static int reader_stop(struct churn *c)
{
    int status = 0;
    if (c->reader <= 0)
        return 0;
    atomic_store(&c->shared->stop, true);
    if (waitpid(c->reader, &status, 0) < 0 || !WIFEXITED(status))
        return BENCH_FAILED;
    return WEXITSTATUS(status);
}

/* ---- the worker that stores ---- */

static int churn_store_begin(struct churn *c, uint32_t at)
{
    uint8_t keys[CHAIN * KVC_KEY_BYTES];
    uint64_t offsets[CHAIN];
    struct kvc_op *op;
    churn_keys_of(HOT_STREAM + 1, c->next++, keys);
    for (uint32_t i = 0; i < CHAIN; i++)
        offsets[i] = ((uint64_t)at * CHAIN + i) * c->block_bytes;
    const struct kvc_blocks blocks = {.keys = keys, .n = CHAIN};
    c->begun_ns[at] = now_ns();
    int rc = kvc_store_begin(c->session.ns, &blocks, offsets, NULL, 0, &op);
    if (rc < 0)
        return perf_fail(&c->session, rc, "store");
    kvc_op_set_user(op, &c->begun_ns[at]);
    return 0;
}

static int churn_store_end(struct churn *c, uint32_t at, int rc, const struct kvc_result *result)
{
    if (rc < 0)
        return perf_fail(&c->session, rc, "store");
    atomic_fetch_add(&c->shared->stored, 1);
    for (uint32_t i = 0; i < result->n; i++) {
        const uint8_t status = result->statuses[i];
        if (status == KVC_ST_OK)
            c->stored_blocks += c->measure;
        else if (status == KVC_ST_FULL || status == KVC_ST_NO_PARENT)
            c->refused_blocks += c->measure;
        else
            return perf_statuses(&status, 1);
    }
    if (!c->measure)
        return 0;
    const uint64_t took = now_ns() - c->begun_ns[at];
    lat_add(&c->lat, took);
    c->longest_ns = took > c->longest_ns ? took : c->longest_ns;
    return 0;
}

/* Stores with so many requests in flight until that time. */
static int store_until(struct churn *c, uint64_t until_ns)
{
    struct kvc *kvc = c->session.kvc;
    struct pollfd ready = {.fd = kvc_fd(kvc), .events = POLLIN};
    uint32_t running = 0;
    int rc = ready.fd < 0 ? perf_fail(&c->session, ready.fd, "kvc_fd") : 0;
    for (; rc == 0 && running < c->args.depth; running++)
        rc = churn_store_begin(c, running);
    while (rc == 0 && running > 0) {
        struct kvc_op *op;
        if (kvc_progress(kvc) <= 0 && poll(&ready, 1, 1000) < 0 && errno != EINTR)
            return perf_fail(&c->session, -errno, "poll");
        while (rc == 0 && kvc_next(kvc, &op) > 0) {
            const uint32_t at = (uint32_t)((uint64_t *)kvc_op_user(op) - c->begun_ns);
            struct kvc_result result;
            int ended = kvc_finish(&op, &result);
            rc = churn_store_end(c, at, ended, &result);
            if (rc == 0 && now_ns() < until_ns)
                rc = churn_store_begin(c, at);
            else
                running--;
        }
    }
    return rc;
}

/* ---- what the daemon says ---- */

enum said {
    WRITTEN,
    JOURNAL,
    KEPT,
    DEMOTED,
    WAITS,
    WAIT_LONGEST,
    LOST,
    NOT_WORTH,
    RECLAIMED,
    COMMIT_LONGEST,
    TURN_LONGEST,
    SAID_COUNT
};

static const char *const said_names[SAID_COUNT] = {[WRITTEN] = "nvme.bytes_written",
                                                   [JOURNAL] = "nvme.bytes_journal",
                                                   [KEPT] = "nvme.bytes_kept",
                                                   [DEMOTED] = "core.bytes_demoted",
                                                   [WAITS] = "core.store_waits",
                                                   [WAIT_LONGEST] = "svc.room_wait_ns.max",
                                                   [LOST] = "core.blocks_lost_unsaved",
                                                   [NOT_WORTH] = "core.blocks_not_worth",
                                                   [RECLAIMED] = "nvme.segments_reclaimed",
                                                   [COMMIT_LONGEST] = "svc.commit_ns.max",
                                                   [TURN_LONGEST] = "svc.handle_ns.max"};

static int take_stat(void *ctx, const struct kvc_stat *stat)
{
    uint64_t *values = ctx;
    for (unsigned i = 0; i < SAID_COUNT; i++)
        if (strcmp(stat->name, said_names[i]) == 0)
            values[i] = stat->value;
    return 0;
}

static int stats_now(struct churn *c, uint64_t values[SAID_COUNT])
{
    memset(values, 0, SAID_COUNT * sizeof(*values));
    int rc = kvc_stats(c->session.kvc, take_stat, values);
    return rc < 0 ? perf_fail(&c->session, rc, "stats") : 0;
}

/* ---- a run ---- */

/* Stores until all room has been filled twice. */
static int lead(struct churn *c)
{
    const uint64_t until = now_ns() + LEAD_S * UINT64_C(1000000000);
    int rc = 0;
    while (rc == 0 && c->next * CHAIN * c->block_bytes < LEAD_SHARE * c->nvme_bytes) {
        progress_show(false, "churn: filling the store, chain %" PRIu64, c->next);
        rc = store_until(c, now_ns() + UINT64_C(250000000));
        if (rc == 0 && now_ns() > until) {
            say_error("the store is not full after %d s; give a smaller --nvme", LEAD_S);
            rc = BENCH_FAILED;
        }
    }
    progress_clear();
    return rc;
}

static void churn_metric(const struct churn *c, const char *name, double value, const char *unit,
                         const char *limit_what, double limit)
{
    out_json(&(struct out_metric){.bench = "churn",
                                  .keys = {{.key = "block_bytes", .number = c->block_bytes},
                                           {.key = "depth", .number = c->args.depth},
                                           {.key = "hot_bytes", .number = c->hot_bytes},
                                           {.key = "again_percent", .number = c->again_percent}},
                                  .metric = name,
                                  .value = value,
                                  .unit = unit,
                                  .limit_what = limit > 0 ? limit_what : NULL,
                                  .limit = limit,
                                  .ratio = limit > 0 ? value / limit : 0});
}

struct outcome {
    double seconds, stored_per_s, demoted_per_s, written_per_s, amplification;
    double p50, p99, longest, hot_hits, hot_p99, hot_longest, again_hits;
    const uint64_t *before, *after;
};

static void churn_report_json(const struct churn *c, const struct outcome *o)
{
    churn_metric(c, "store_bytes_per_s", o->stored_per_s, "B/s", NULL, 0);
    churn_metric(c, "store_p50", o->p50, "s", NULL, 0);
    churn_metric(c, "store_p99", o->p99, "s", NULL, 0);
    churn_metric(c, "store_longest", o->longest, "s", NULL, 0);
    churn_metric(c, "refused_blocks", (double)c->refused_blocks, "1", NULL, 0);
    churn_metric(c, "store_waits", (double)(o->after[WAITS] - o->before[WAITS]), "1", NULL, 0);
    churn_metric(c, "store_wait_longest", (double)o->after[WAIT_LONGEST] * 1e-9, "s", NULL, 0);
    churn_metric(c, "commit_longest", (double)o->after[COMMIT_LONGEST] * 1e-9, "s", NULL, 0);
    churn_metric(c, "handler_longest", (double)o->after[TURN_LONGEST] * 1e-9, "s", NULL, 0);
    churn_metric(c, "demoted_bytes_per_s", o->demoted_per_s, "B/s", NULL, 0);
    churn_metric(c, "written_bytes_per_s", o->written_per_s, "B/s", "plain writes",
                 c->disk_bytes_per_s);
    churn_metric(c, "write_amplification", o->amplification, "1", NULL, 0);
    churn_metric(c, "hot_hit_ratio", o->hot_hits, "1", NULL, 0);
    churn_metric(c, "again_hit_ratio", o->again_hits, "1", NULL, 0);
    churn_metric(c, "hot_acquire_p99", o->hot_p99, "s", NULL, 0);
    churn_metric(c, "hot_acquire_longest", o->hot_longest, "s", NULL, 0);
}

static void churn_report(const struct churn *c, const struct outcome *o)
{
    char a[UNITS_TEXT_BYTES], b[UNITS_TEXT_BYTES], d[UNITS_TEXT_BYTES];
    if (c->args.json) {
        churn_report_json(c, o);
        return;
    }
    printf("  stores      %s, p50 %.2f ms, p99 %.2f ms, longest %.1f ms; %" PRIu64
           " blocks refused\n",
           units_format_rate((uint64_t)o->stored_per_s, a), o->p50 * 1e3, o->p99 * 1e3,
           o->longest * 1e3, c->refused_blocks);
    printf("  waits       %" PRIu64 " for room, longest %.1f ms; longest commit %.1f ms, longest "
           "handler %.1f ms\n",
           o->after[WAITS] - o->before[WAITS], (double)o->after[WAIT_LONGEST] * 1e-6,
           (double)o->after[COMMIT_LONGEST] * 1e-6, (double)o->after[TURN_LONGEST] * 1e-6);
    printf("  disk        %s of blocks for the first time, %s of all%s%s; write amplification "
           "%.2f\n",
           units_format_rate((uint64_t)o->demoted_per_s, a),
           units_format_rate((uint64_t)o->written_per_s, b),
           c->disk_bytes_per_s > 0 ? ", plain writes " : "",
           c->disk_bytes_per_s > 0 ? units_format_rate((uint64_t)c->disk_bytes_per_s, d) : "",
           o->amplification);
    printf("  unwritten   %" PRIu64 " blocks let go, %" PRIu64 " judged not worth it\n",
           o->after[LOST] - o->before[LOST], o->after[NOT_WORTH] - o->before[NOT_WORTH]);
    printf("  hot set     %.4f of its blocks hit; acquire p99 %.2f ms, longest %.1f ms\n",
           o->hot_hits, o->hot_p99 * 1e3, o->hot_longest * 1e3);
    if (c->again_percent > 0)
        printf("  again       %.4f of the blocks of chains stored a while ago hit\n",
               o->again_hits);
}

static int churn_measure(struct churn *c)
{
    uint64_t before[SAID_COUNT], after[SAID_COUNT];
    int rc = stats_now(c, before);
    const uint64_t begun = now_ns();
    c->measure = true;
    atomic_store(&c->shared->measure, true);
    if (rc == 0)
        rc = store_until(c, begun + (uint64_t)(c->args.seconds * 1e9));
    const double seconds = (double)(now_ns() - begun) * 1e-9;
    atomic_store(&c->shared->measure, false);
    if (rc == 0)
        rc = stats_now(c, after);
    if (rc == 0)
        rc = reader_stop(c);
    if (rc != 0)
        return rc;
    const double demoted = (double)(after[DEMOTED] - before[DEMOTED]);
    const double written =
        (double)(after[WRITTEN] - before[WRITTEN]) + (double)(after[JOURNAL] - before[JOURNAL]);
    /* Counted over the whole run, because the measured part may write little. */
    const double amplification =
        (double)(after[WRITTEN] + after[JOURNAL]) / (double)(after[DEMOTED] ? after[DEMOTED] : 1);
    const uint64_t again = atomic_load(&c->shared->again);
    const uint64_t asked = atomic_load(&c->shared->asked), hit = atomic_load(&c->shared->hit);
    churn_report(
        c, &(struct outcome){
               .seconds = seconds,
               .stored_per_s = (double)(c->stored_blocks * c->block_bytes) / seconds,
               .demoted_per_s = demoted / seconds,
               .written_per_s = written / seconds,
               .amplification = amplification,
               .p50 = (double)lat_quantile_ns(&c->lat, .50) * 1e-9,
               .p99 = (double)lat_quantile_ns(&c->lat, .99) * 1e-9,
               .longest = (double)c->longest_ns * 1e-9,
               .hot_hits = asked ? (double)hit / (double)asked : 0,
               .again_hits = again ? (double)atomic_load(&c->shared->again_hit) / (double)again : 0,
               .hot_p99 = (double)lat_quantile_ns(&c->shared->lat, .99) * 1e-9,
               .hot_longest = (double)c->shared->longest_ns * 1e-9,
               .before = before,
               .after = after});
    return 0;
}

/* ---- the disk alone ---- */

struct writer {
    pthread_t thread;
    int fd;
    uint64_t at, end, until_ns, bytes;
};

static void *write_on(void *arg)
{
    struct writer *w = arg;
    void *page = aligned_alloc(4096, WRITE_BYTES);
    if (!page)
        return NULL;
    memset(page, 0x5a, WRITE_BYTES);
    for (uint64_t at = w->at; now_ns() < w->until_ns;) {
        if (pwrite(w->fd, page, WRITE_BYTES, (off_t)at) != WRITE_BYTES)
            break;
        w->bytes += WRITE_BYTES;
        at = at + 2 * WRITE_BYTES > w->end ? w->at : at + WRITE_BYTES;
    }
    free(page);
    return NULL;
}

static double write_all(int fd)
{
    struct writer writer[WRITERS];
    const uint64_t begun = now_ns();
    uint64_t bytes = 0;
    unsigned n = 0;
    for (; n < WRITERS; n++) {
        writer[n] = (struct writer){.fd = fd,
                                    .at = n * WRITER_BYTES,
                                    .end = (n + 1) * WRITER_BYTES,
                                    .until_ns = begun + UINT64_C(3000000000)};
        if (pthread_create(&writer[n].thread, NULL, write_on, &writer[n]) != 0)
            break;
    }
    for (unsigned i = 0; i < n; i++) {
        pthread_join(writer[i].thread, NULL);
        bytes += writer[i].bytes;
    }
    return (double)bytes / ((double)(now_ns() - begun) * 1e-9);
}

/* Measures a file that has been written once, like the daemon's store. */
static int disk_alone(struct churn *c)
{
    const int fd = open(c->dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd < 0) {
        say_error("--compare: a file for O_DIRECT in %s: %s", c->dir, strerror(errno));
        return BENCH_FAILED;
    }
    progress_show(true, "churn: the disk alone");
    (void)write_all(fd); /* unwritten extents are slower */
    c->disk_bytes_per_s = write_all(fd);
    progress_clear();
    close(fd);
    return BENCH_OK;
}

static int churn_start(struct churn *c)
{
    const uint64_t staging = c->args.depth * CHAIN * c->block_bytes;
    struct rig_options *o = &c->options;
    o->daemon_path = c->args.daemon_path;
    o->store_in = c->dir;
    rig_set(o, "host.limit=%" PRIu64, c->host_bytes);
    rig_set(o, "nvme.limit=%" PRIu64, c->nvme_bytes);
    rig_set(o, "index.blocks=%" PRIu64,
            (c->host_bytes + c->nvme_bytes) / c->block_bytes * 5 / 4 + 4096);
    rig_set(o, "staging.session_max=%" PRIu64, staging);
    rig_set(o, "staging.total=%" PRIu64, 2 * staging);
    rig_set(o, "log.level=warn");
    int rc = perf_open(o, staging, &c->session);
    if (rc == 0)
        rc = perf_quiet(c->session.rig, "has formatted its store");
    if (rc != 0)
        return rc;
    rc = perf_ns_open(c->session.kvc, c->block_bytes, "churn", &c->session.ns);
    return rc < 0 ? perf_fail(&c->session, rc, "opening a namespace") : 0;
}

static int churn_run(struct churn *c)
{
    int rc = c->args.compare ? disk_alone(c) : 0;
    if (rc == 0)
        rc = churn_start(c);
    if (rc == 0)
        rc = reader_start(c);
    if (rc == 0)
        rc = lead(c);
    if (rc == 0)
        rc = churn_measure(c);
    else
        (void)reader_stop(c);
    perf_close(&c->session);
    return rc;
}

/* ---- the command ---- */

static int take_set(void *ctx, const char *text)
{
    struct rig_options *o = ctx;
    if (o->n_sets >= RIG_SETS_MAX - 8)
        return say_usage("--set: too many");
    rig_set(o, "%s", text);
    return 0;
}

static const struct arg option_table[] = {
    {"--compare",
     "what eight threads write to the same file system, 1 MiB at a time, O_DIRECT, before the "
     "daemon starts",
     ARG_FLAG(struct churn, args.compare)},
    {"--dir DIR", "of the store (default: the working directory)", ARG_TEXT(struct churn, dir)},
    {"--host SIZE", "memory of the daemon (default 512MiB)",
     ARG_BYTES(struct churn, host_bytes, UINT64_C(64) << 20, UINT64_C(1) << 40)},
    {"--nvme SIZE", "storage of the daemon (default 3GiB)",
     ARG_BYTES(struct churn, nvme_bytes, UINT64_C(256) << 20, UINT64_C(1) << 44)},
    {"--hot SIZE", "of the hot set (default 128MiB)",
     ARG_BYTES(struct churn, hot_bytes, UINT64_C(1) << 20, UINT64_C(1) << 40)},
    {"--again PERCENT",
     "of what the reader asks for, chains that were stored a while ago: most are on storage alone "
     "(default 0: nobody asks for them again)",
     ARG_COUNT(struct churn, again_percent, 0, 100)},
    {"--block-bytes N", "(default 64KiB)",
     ARG_BYTES(struct churn, block_bytes, 4096, UINT64_C(2) << 20)},
    {"--depth N", "stores in flight (default 4)",
     ARG_COUNT(struct churn, args.depth, 1, DEPTH_MAX)},
    {"--seconds S", "measured, once all room has been filled twice (default 10)",
     ARG_NUMBER(struct churn, args.seconds, 0.01, 3600)},
    {"--set KEY=VALUE", "for the daemon; may be given several times",
     ARG_DO_AT(struct churn, options, take_set), ARG_REPEATS},
    {"--daemon PATH", "the daemon to start", ARG_TEXT(struct churn, args.daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct churn, args.json)},
    {0},
};

static int churn_parse(int argc, char **argv, struct churn *c)
{
    const int rc = opt_take_only(argc, argv, option_table, help, c);
    if (rc != 0)
        return rc;
    if (c->block_bytes % 4096)
        return say_usage("--block-bytes must be a multiple of 4KiB");
    if (c->hot_bytes < CHAIN * c->block_bytes || c->hot_bytes > c->host_bytes / 2)
        return say_usage("--hot must be a chain of 32 blocks at least, and half of --host at most");
    return 0;
}

int cmd_churn(int argc, char **argv)
{
    struct churn *c = calloc(1, sizeof(*c));
    if (!c) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    c->args = (struct perf_args){.bench = "churn", .seconds = 10, .depth = 4};
    c->dir = ".";
    c->host_bytes = UINT64_C(512) << 20;
    c->nvme_bytes = UINT64_C(3) << 30;
    c->hot_bytes = UINT64_C(128) << 20;
    c->block_bytes = 64 << 10;
    int rc = churn_parse(argc, argv, c);
    if (rc == 0) {
        c->shared = mmap(NULL, sizeof(*c->shared), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        rc = c->shared == MAP_FAILED ? BENCH_FAILED : churn_run(c);
    }
    free(c);
    return rc < 0 ? BENCH_OK : rc;
}
