/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachebench reuse: one worker commits a prefix block by block, another waits for each block
 * and reads it.
 */
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
#include "units.h"

/* A prefix of CHAIN blocks; between two commits the writer "computes" for PAUSE_NS. */
enum { CHAIN = 32, BLOCK_TOKENS = 16, PAUSE_NS = 2000000, DEATHS = 50, WAIT_MS = 10000 };

static const char help[] =
    "Usage: kvcachebench reuse [OPTIONS]\n"
    "\n"
    "Early reuse: one worker computes a prefix and commits it block by block, another waits for\n"
    "each block and reads all of it. Measured from the moment the commit is sent to the moment\n"
    "the last byte is read; and, when the writer is killed, from the kill to the reader's answer.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench reuse --json\n";

/* Shared by the two processes. */
struct shared {
    _Atomic uint64_t sent_ns[CHAIN]; /* when the commit of block i went out */
    _Atomic uint32_t reserved;       /* chains announced so far */
    _Atomic uint32_t go;             /* chains that the writer may announce */
};

struct reuse {
    struct perf_session session;
    const struct perf_args *args;
    struct shared *shared;
    const char *socket;
    uint64_t block_bytes;
    uint64_t stream;
    uint8_t keys[CHAIN * KVC_KEY_BYTES];
    struct lat delay, death;
};

static void nap(long ns)
{
    struct timespec ts = {.tv_nsec = ns};
    nanosleep(&ts, NULL);
}

static void reuse_make_keys(struct reuse *r, uint32_t chain)
{
    for (uint32_t i = 0; i < CHAIN; i++)
        perf_key(r->stream + chain, i, r->keys + i * KVC_KEY_BYTES);
}

/* Opens the same namespace in both processes, so that one finds what the other writes. */
static int shared_namespace(struct reuse *r)
{
    struct kvc_ns_spec spec = {.model = "kvcachebench reuse",
                               .dtype = "bf16",
                               .layout = "opaque",
                               .position = "rope",
                               .attention = "causal",
                               .groups = 1,
                               .group = {{.block_tokens = BLOCK_TOKENS,
                                          .block_bytes = (uint32_t)r->block_bytes,
                                          .rule = KVC_RULE_FULL}}};
    int rc = kvc_ns_open(r->session.kvc, &spec, &r->session.ns);
    return rc < 0 ? perf_fail(&r->session, rc, "opening a namespace") : 0;
}

/* Runs in the writer's process: announces a chain when told to, then commits all of it or nothing.
 */
static void writer(struct reuse *r, bool commits)
{
    struct rig_options options = {.socket = r->socket};
    uint8_t statuses[CHAIN];
    rig_disown();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (perf_open(&options, r->block_bytes, &r->session) || shared_namespace(r))
        _exit(BENCH_FAILED);
    for (uint32_t chain = 0;; chain++) {
        while (atomic_load(&r->shared->go) <= chain)
            nap(100000);
        reuse_make_keys(r, chain);
        struct kvc_blocks blocks = {.keys = r->keys, .n = CHAIN, .flags = KVC_F_ADMIT};
        uint64_t reservation, offset = 0;
        if (kvc_reserve(r->session.ns, &blocks, &reservation, statuses) || !reservation)
            _exit(BENCH_FAILED);
        atomic_fetch_add(&r->shared->reserved, 1);
        for (uint32_t i = 0; commits && i < CHAIN; i++) {
            nap(PAUSE_NS);
            memset(r->session.staging, (int)i, r->block_bytes);
            atomic_store(&r->shared->sent_ns[i], now_ns());
            if (kvc_commit(r->session.ns, reservation, i, 1, &offset, NULL, 0, statuses) ||
                statuses[0] != KVC_ST_OK)
                _exit(BENCH_FAILED);
        }
        while (!commits)
            nap(1000000); /* waits to be killed */
    }
}

static pid_t start_writer(struct reuse *r, bool commits)
{
    atomic_store(&r->shared->go, 0);
    atomic_store(&r->shared->reserved, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        writer(r, commits);
    return pid;
}

static int await_chain(struct reuse *r, pid_t pid, uint32_t chain)
{
    atomic_store(&r->shared->go, chain + 1);
    while (atomic_load(&r->shared->reserved) <= chain) {
        int status;
        if (waitpid(pid, &status, WNOHANG) == pid) {
            say_error("the writing process failed");
            return BENCH_FAILED;
        }
        nap(50000);
    }
    reuse_make_keys(r, chain);
    return 0;
}

static int reuse_acquire(struct reuse *r, uint32_t block, struct kvc_hold **ret_hold)
{
    struct kvc_seq seq = {.tokens = CHAIN * BLOCK_TOKENS, .group = {{.keys = r->keys, .n = CHAIN}}};
    struct kvc_acquire_options options = {.flags = KVC_F_WAIT,
                                          .from_tokens = block * BLOCK_TOKENS,
                                          .wait_tokens = (block + 1) * BLOCK_TOKENS,
                                          .timeout_ms = WAIT_MS};
    int rc = kvc_acquire(r->session.ns, &seq, &options, ret_hold);
    return rc < 0 ? perf_fail(&r->session, rc, "acquire") : 0;
}

static int read_chain(struct reuse *r)
{
    for (uint32_t i = 0; i < CHAIN;) {
        struct kvc_hold *hold;
        int rc = reuse_acquire(r, i, &hold);
        if (rc != 0)
            return rc;
        uint32_t n = hold->group[0].n;
        if (n == 0) {
            say_error("waiting for block %u gave nothing", i);
            kvc_release(r->session.kvc, &hold);
            return BENCH_FAILED;
        }
        uint64_t sum = 0;
        for (uint32_t b = 0; b < n; b++, i++) {
            sum += perf_read(hold->group[0].block[b].data, r->block_bytes);
            lat_add(&r->delay, now_ns() - atomic_load(&r->shared->sent_ns[i]));
        }
        perf_keep(sum);
        rc = kvc_hold_check(hold);
        kvc_release(r->session.kvc, &hold);
        if (rc < 0)
            return perf_fail(&r->session, rc, "reading a block under lease");
    }
    return 0;
}

static int measure_delay(struct reuse *r)
{
    r->stream = now_ns();
    pid_t pid = start_writer(r, true);
    int rc = pid < 0 ? BENCH_FAILED : 0;
    for (uint32_t chain = 0; rc == 0 && chain < r->args->pairs; chain++) {
        rc = await_chain(r, pid, chain);
        if (rc == 0)
            rc = read_chain(r);
    }
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return rc;
}

static int measure_death(struct reuse *r)
{
    int rc = 0;
    for (unsigned i = 0; rc == 0 && i < DEATHS; i++) {
        r->stream = now_ns();
        pid_t pid = start_writer(r, false);
        rc = pid < 0 ? BENCH_FAILED : await_chain(r, pid, 0);
        struct kvc_seq seq = {.tokens = CHAIN * BLOCK_TOKENS,
                              .group = {{.keys = r->keys, .n = CHAIN}}};
        struct kvc_acquire_options options = {.flags = KVC_F_WAIT, .timeout_ms = WAIT_MS};
        struct kvc_op *op = NULL;
        struct kvc_hold *hold = NULL;
        if (rc == 0)
            rc = kvc_acquire_begin(r->session.ns, &seq, &options, &op);
        nap(5000000); /* the other process waits by now */
        uint64_t killed = now_ns();
        if (pid > 0)
            kill(pid, SIGKILL);
        if (rc == 0)
            rc = kvc_wait(&op, NULL, &hold, NULL);
        lat_add(&r->death, now_ns() - killed);
        kvc_release(r->session.kvc, &hold);
        if (pid > 0)
            waitpid(pid, NULL, 0);
    }
    return rc < 0 ? perf_fail(&r->session, rc, "waiting for a writer that dies") : rc;
}

static void reuse_report(const struct reuse *r, const char *metric, const char *text,
                         const struct lat *lat)
{
    const struct {
        const char *name;
        double q;
    } at[] = {{"median", 0.5}, {"p99", 0.99}};
    for (unsigned i = 0; r->args->json && i < 2; i++) {
        struct out_metric m = {
            .bench = "reuse",
            .keys = {{.key = "block_bytes", .number = r->block_bytes}, {"quantile", at[i].name, 0}},
            .metric = metric,
            .value = (double)lat_quantile_ns(lat, at[i].q) * 1e-9,
            .unit = "s"};
        out_json(&m);
    }
    if (r->args->json)
        return;
    char size[16], median[16], p99[16];
    units_format_bytes(r->block_bytes, size);
    units_format_duration_ns(lat_quantile_ns(lat, 0.5), median);
    units_format_duration_ns(lat_quantile_ns(lat, 0.99), p99);
    printf("  %-10s  %-44s %10s median  %10s p99\n", size, text, median, p99);
}

static int reuse_measure(struct reuse *r)
{
    int rc = shared_namespace(r);
    memset(&r->delay, 0, sizeof(r->delay));
    memset(&r->death, 0, sizeof(r->death));
    if (rc == 0)
        rc = measure_delay(r);
    if (rc == 0)
        rc = measure_death(r);
    if (rc != 0)
        return rc;
    reuse_report(r, "reuse_delay", "commit sent to last byte read", &r->delay);
    reuse_report(r, "writer_death_told", "writer killed to waiting reader answered", &r->death);
    return 0;
}

static const struct arg option_table[] = {
    {"--block-bytes LIST", "(default 64KiB,2MiB)", ARG_DO(perf_take_sizes)},
    {"--pairs N", "prefixes written and read per size (default 5)",
     ARG_COUNT(struct perf_args, pairs, 1, PERF_PAIRS_MAX)},
    {"--socket PATH", "use the daemon that runs there", ARG_TEXT(struct perf_args, socket)},
    PERF_DAEMON_JSON,
    {0},
};

int cmd_reuse(int argc, char **argv)
{
    static struct reuse r;
    struct perf_args args = {
        .bench = "reuse", .pairs = 5, .sizes = {64 << 10, 2 << 20}, .n_sizes = 2};
    int rc = opt_take_only(argc, argv, option_table, help, &args);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    struct rig_options options = {.socket = args.socket, .daemon_path = args.daemon_path};
    rig_set(&options, "host.limit=1GiB");
    r.args = &args;
    r.shared =
        mmap(NULL, sizeof(*r.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.shared == MAP_FAILED) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    rc = perf_open(&options, 0, &r.session);
    static char socket[256];
    if (rc == 0) {
        snprintf(socket, sizeof(socket), "%s", rig_socket(r.session.rig));
        r.socket = socket;
    }
    for (size_t i = 0; rc == 0 && i < args.n_sizes; i++) {
        r.block_bytes = args.sizes[i];
        rc = reuse_measure(&r);
    }
    perf_close(&r.session);
    return rc;
}
