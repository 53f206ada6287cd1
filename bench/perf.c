/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include "huge.h"
#include "out.h"
#include "perf.h"
#include "progress.h"
#include "sys.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; headers may be older */
#endif
#define BALLAST_MAX (UINT64_C(8) << 30)
#define LARGE_PAGE  (UINT64_C(2) << 20)
#define INDEX_BLOCK (UINT64_C(32) << 10) /* block size for which `index.blocks: auto` has room */
#define QUIET_MS    1200
#define QUIET_MAX_S 600
/* Bytes that a daemon without requests writes now and then: pages of the journal. */
#define QUIET_BYTES  (UINT64_C(1) << 20)
#define DRAIN_SLICE  (UINT64_C(256) << 20)
#define DRAIN_TRIES  2000 /* of a millisecond each, without any progress */
#define BALLAST_STEP (UINT64_C(128) << 20)

int perf_take_sizes(void *ctx, const char *text)
{
    struct perf_args *args = ctx;
    return opt_bytes_list("block-bytes", text, args->sizes, PERF_SIZES_MAX, &args->n_sizes);
}

uint64_t perf_batch(const struct perf_args *args, uint64_t block_bytes)
{
    if (args->batch)
        return args->batch;
    return block_bytes >= (1u << 20) ? 16 : 32;
}

int perf_rounds(const struct perf_args *args, void *ctx, struct perf_side *sides, size_t n_sides)
{
    double values[PERF_SIDES_MAX][PERF_PAIRS_MAX];
    for (size_t round = 0; round < args->pairs; round++) {
        for (size_t i = 0; i < n_sides; i++) {
            size_t side = round % 2 ? n_sides - 1 - i : i;
            progress_show(true, "%s: round %zu of %llu, %s", args->bench, round + 1,
                          (unsigned long long)args->pairs,
                          sides[side].what ? sides[side].what : "ours");
            int rc = sides[side].run(ctx, args->seconds, &values[side][round]);
            if (rc != 0)
                return rc;
        }
    }
    progress_clear();
    for (size_t i = 0; i < n_sides; i++)
        sides[i].value = out_median(values[i], args->pairs);
    return 0;
}

int perf_fail(const struct perf_session *session, int error, const char *call)
{
    const char *text = kvc_last_error(session->kvc);
    say_error("%s: %s: %s", call, kvc_error_name(error), text[0] ? text : kvc_error_text(error));
    return say_exit_code(error);
}

void perf_room(const struct perf_args *args, uint64_t bytes, struct rig_options *options)
{
    uint64_t least = args->sizes[0];
    for (size_t i = 1; i < args->n_sizes; i++)
        least = args->sizes[i] < least ? args->sizes[i] : least;
    rig_set(options, "host.limit=%" PRIu64, bytes);
    if (least < INDEX_BLOCK)
        rig_set(options, "index.blocks=%" PRIu64, bytes / least * 5 / 4);
}

int perf_statuses(const uint8_t *statuses, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (statuses[i] != KVC_ST_OK) {
            say_error("block %u of a batch was not stored: %s", i,
                      kvc_error_text(-1000 - statuses[i]));
            return BENCH_FAILED;
        }
    }
    return 0;
}

/* A kernel that has run for a while gives out scattered pages first and contiguous ones later, and
 * the first are read up to a third more slowly. So the side that allocates first would lose every
 * comparison. This takes the scattered pages before the daemon starts. */
void perf_level_memory(const struct perf_args *args)
{
    struct sysinfo info;
    if (args->socket || !(args->compare || args->against) || sysinfo(&info) != 0)
        return;
    uint64_t bytes = (uint64_t)info.freeram * info.mem_unit / 3;
    if (bytes > BALLAST_MAX)
        bytes = BALLAST_MAX;
    bytes -= bytes % BALLAST_STEP;
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || madvise(at, bytes, MADV_DONTFORK) != 0)
        return; /* without it the comparison is less even, not wrong */
    for (uint64_t done = 0; done < bytes; done += BALLAST_STEP) {
        progress_show(false, "%s: taking scattered memory out of the way, %.1f of %.1f GiB",
                      args->bench, (double)done / (1u << 30), (double)bytes / (1u << 30));
        if (madvise(at + done, BALLAST_STEP, MADV_POPULATE_WRITE) != 0)
            break;
    }
    progress_clear();
}

struct wanted {
    const char *name;
    uint64_t value;
};

static int take_stat(void *ctx, const struct kvc_stat *stat)
{
    struct wanted *wanted = ctx;
    if (strcmp(stat->name, wanted->name) == 0)
        wanted->value = stat->value;
    return 0;
}

int perf_stat(struct kvc *kvc, const char *name, uint64_t *ret_value)
{
    struct wanted wanted = {.name = name};
    int rc = kvc_stats(kvc, take_stat, &wanted);
    if (rc >= 0)
        *ret_value = wanted.value;
    return rc < 0 ? rc : 0;
}

int perf_drain(struct kvc *kvc)
{
    struct timespec pause = {.tv_nsec = 1000000};
    uint64_t least = UINT64_MAX;
    struct kvc_drained drained = {.left = UINT64_MAX};
    for (int same = 0; drained.left > 0 && same < DRAIN_TRIES; same++) {
        int rc = kvc_drain(kvc, DRAIN_SLICE, &drained);
        if (rc < 0)
            return rc;
        if (drained.left < least) {
            least = drained.left;
            same = 0;
        }
        nanosleep(&pause, NULL);
    }
    return 0;
}

static int written_bytes(int pid, uint64_t *ret_bytes)
{
    char path[64], line[128];
    unsigned long long bytes;
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%d/io", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "write_bytes: %llu", &bytes) == 1;
    if (f)
        fclose(f);
    if (!found) {
        say_error("%s cannot be read", path);
        return BENCH_FAILED;
    }
    *ret_bytes = bytes;
    return 0;
}

int perf_quiet(struct rig *rig, const char *what)
{
    struct timespec pause = {.tv_sec = QUIET_MS / 1000, .tv_nsec = QUIET_MS % 1000 * 1000000};
    uint64_t before, after, until = now_ns() + QUIET_MAX_S * UINT64_C(1000000000);
    int rc = written_bytes(rig_pid(rig), &before);
    while (rc == 0) {
        nanosleep(&pause, NULL);
        if (rig_check(rig) < 0)
            return BENCH_DOWN;
        rc = written_bytes(rig_pid(rig), &after);
        if (rc == 0 && after - before < QUIET_BYTES)
            break;
        progress_show(true, "waiting until the daemon %s, %.1f GB so far", what,
                      (double)after / 1e9);
        if (now_ns() > until) {
            say_error("the daemon still writes after %d s", QUIET_MAX_S);
            return BENCH_FAILED;
        }
        before = after;
    }
    progress_clear();
    return rc;
}

int perf_settle(struct perf_session *session)
{
    struct timespec pause = {.tv_nsec = 200000000};
    uint64_t before = UINT64_MAX, faulted = 0;
    for (int i = 0; i < 300 && before != faulted; i++) {
        before = faulted;
        progress_show(false, "waiting for the daemon to touch its memory");
        int rc = perf_stat(session->kvc, "daemon.host_faulted_bytes", &faulted);
        if (rc == KVC_E_DENIED)
            return 0; /* no admin rights: somebody else's daemon, which has run for a while */
        if (rc < 0)
            return perf_fail(session, rc, "stats");
        nanosleep(&pause, NULL);
    }
    progress_clear();
    return 0;
}

int perf_open(const struct rig_options *options, uint64_t staging_bytes,
              struct perf_session *ret_session)
{
    struct perf_session session = {0};
    int rc = rig_start(options, &session.rig);
    if (rc != 0)
        return rc;
    struct kvc_options open = {.socket = rig_socket(session.rig),
                               .name = "kvcachebench",
                               .staging_bytes = staging_bytes,
                               .timeout_ms = 60000,
                               .must_connect = true};
    rc = kvc_open(&open, &session.kvc);
    if (rc < 0) {
        rc = perf_fail(&session, rc, "connecting");
        perf_close(&session);
        return rc;
    }
    session.staging = kvc_staging(session.kvc, &session.staging_bytes);
    if (staging_bytes && (!session.staging || session.staging_bytes < staging_bytes)) {
        say_error("the daemon grants less staging than the %llu bytes that are needed; raise its "
                  "staging.session_max",
                  (unsigned long long)staging_bytes);
        perf_close(&session);
        return BENCH_FAILED;
    }
    *ret_session = session;
    return 0;
}

int perf_ns_open(struct kvc *kvc, uint64_t block_bytes, const char *name, struct kvc_ns **ret_ns)
{
    struct kvc_ns_spec spec = {
        .model = "kvcachebench",
        .dtype = "bf16",
        .layout = "opaque",
        .position = "rope",
        .attention = "causal",
        .extra = name,
        .layers = 1,
        .kv_heads = 1,
        .head_size = 64,
        .groups = 1,
        .group = {
            {.block_tokens = 16, .block_bytes = (uint32_t)block_bytes, .rule = KVC_RULE_FULL}}};
    return kvc_ns_open(kvc, &spec, ret_ns);
}

int perf_namespace(struct perf_session *session, uint64_t block_bytes)
{
    char name[64];
    snprintf(name, sizeof(name), "run %llx.%u", (unsigned long long)now_ns(),
             session->namespaces++);
    int rc = perf_ns_open(session->kvc, block_bytes, name, &session->ns);
    return rc < 0 ? perf_fail(session, rc, "opening a namespace") : 0;
}

void perf_close(struct perf_session *session)
{
    kvc_close(&session->kvc);
    rig_stop(&session->rig);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void perf_key(uint64_t stream, uint64_t index, uint8_t key[KVC_KEY_BYTES])
{
    uint64_t words[4] = {mix(stream * 0x9e3779b97f4a7c15u + index), mix(index ^ ~stream), stream,
                         index};
    memcpy(key, words, sizeof(words));
}

/* Touches memory, on large pages as the daemon's, whatever the kernel does by itself; the rest is
 * on small pages. MAP_FAILED: out of memory, and it has been unmapped. */
static void *touched(void *at, uint64_t bytes)
{
    unsigned tries = UINT_MAX;
    if (at == MAP_FAILED)
        return at;
    huge_make(at, bytes, &tries);
    if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
        return at;
    const int err = errno;
    munmap(at, bytes);
    errno = err;
    return MAP_FAILED;
}

void *perf_shared_memory(uint64_t bytes, int *ret_fd)
{
    int fd = memfd_create("kvcachebench", MFD_CLOEXEC);
    void *at = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        at = touched(sys_map_file(bytes, PROT_READ | PROT_WRITE, fd), bytes);
    if (at == MAP_FAILED) {
        say_error("%llu bytes of shared memory: %s", (unsigned long long)bytes, strerror(errno));
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    if (ret_fd)
        *ret_fd = fd;
    else
        close(fd);
    return at;
}

void *perf_private_memory(uint64_t bytes)
{
    const uint64_t whole = (bytes + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    void *at = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        (void)madvise(at, whole, MADV_HUGEPAGE); /* a hint; the kernel aligns what is so large */
    at = touched(at, whole);
    if (at == MAP_FAILED) {
        say_error("%llu bytes of memory: %s", (unsigned long long)bytes, strerror(errno));
        return NULL;
    }
    return at;
}

void perf_keep(uint64_t value)
{
    __asm__ volatile("" : : "r"(value) : "memory");
}
