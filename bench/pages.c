/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose KV memory is pages on a device: loads blocks into them and stores blocks out of
 * them, through a daemon.
 *
 * The working set is divided into batches. A batch has its own keys and pages, and is one request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/gpu.h>

#include "cpu.h"
#include "gpu.h"
#include "lat.h"
#include "out.h"
#include "pattern.h"
#include "perf.h"
#include "progress.h"
#include "stdfds.h"
#include "units.h"

#define BATCH_BYTES   (UINT64_C(32) << 20)
#define STAGING_BYTES (UINT64_C(128) << 20)
#define BYTES_MAX     (UINT64_C(64) << 30)
/* Slots beside the working set, because chunks are not full. */
#define SLOTS_SPARE (UINT64_C(256) << 20)
#define UP_NS       UINT64_C(120000000000)
#define SYNC_NS     UINT64_C(60000000000)

enum { DEPTH_MAX = 64, REGIONS_MAX = 64, BLOCK_TOKENS = 16 };

static const char help[] =
    "Usage: kvcachebench pages [OPTIONS]\n"
    "\n"
    "How fast a worker whose KV memory is pages on a device gets blocks, and stores them: whole "
    "requests through a daemon of its own, several in flight. A block is scattered over pages of "
    "each fragment size in turn, whose numbers are dealt at random, as an engine's are.\n"
    "\n"
    "  host-pages          blocks in host memory are loaded into pages\n"
    "  slot-pages          blocks that the daemon keeps on the device are loaded into pages\n"
    "  pages-host          new blocks are stored out of pages, checksums included; others are\n"
    "                      evicted to make room\n"
    "\n"
    "Each takes turns with one thread's memcpy of the same fragments. Every byte is compared "
    "before and after. Further: time of a request, median and 99th percentile, with that many in "
    "flight; processor time of daemon and worker together for 1 GB (1e9 bytes), and of that "
    "memcpy, which a busy machine changes less than the rates.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench pages\n"
    "  kvcachebench pages --device cuda:0 --fragments 4KiB,64KiB --json\n"
    "  kvcachebench pages --fragments 4KiB --depth 1      # how long one request takes alone\n";

struct flight {
    struct kvc_op *op;
    uint64_t batch, begun_ns;
    uint8_t keys[KVC_STORE_MAX * KVC_KEY_BYTES]; /* of a store */
    /* With pages in host memory the load is done when it was begun. */
    struct kvc_loaded loaded;
    uint8_t statuses[KVC_STORE_MAX];
};

struct bench {
    struct perf_args args;
    struct perf_session session;
    const char *device;
    uint64_t bytes, block_bytes, frag_bytes;
    uint32_t batch; /* blocks */
    uint64_t batches;
    struct kvc_gpu *gpu;
    struct kvc_mem *mem;
    /* Copy of the pages for memcpy: the pages themselves, where memcpy can reach them. */
    uint8_t *shadow;
    bool is_emulated, is_host;
    struct kvc_pool *pool;
    struct kvc_pool_region region[REGIONS_MAX];
    struct kvc_pool_spec spec;
    uint32_t *page; /* page numbers as dealt: pages_per_block for each block of the working set */
    uint8_t *keys;  /* of the working set */
    uint8_t *host;  /* host memory for memcpy: twice `bytes` */
    uint64_t stream, stored, signals;
    struct flight flight[DEPTH_MAX];
    /* All rounds of the path that is measured. */
    struct lat lat;
    uint64_t cpu_ns, cpu_bytes, memcpy_cpu_ns, memcpy_bytes;
};

static const uint8_t *pages_keys_of(const struct bench *b, uint64_t batch)
{
    return b->keys + batch * b->batch * KVC_KEY_BYTES;
}

static const uint32_t *bench_pages_of_one(const struct bench *b, uint64_t batch)
{
    return b->page + batch * b->batch * b->spec.group[0].pages_per_block;
}

static int pages_fail(const struct bench *b, int error, const char *call)
{
    return perf_fail(&b->session, error, call);
}

/* --- requests --- */

static int load_begin(struct bench *b, struct flight *f, uint64_t batch, uint64_t into)
{
    const struct kvc_seq seq = {.tokens = b->batch * BLOCK_TOKENS,
                                .group = {{.keys = pages_keys_of(b, batch), .n = b->batch}}};
    const struct kvc_pages_load load = {.pages[0] = bench_pages_of_one(b, into)};
    f->batch = batch;
    f->begun_ns = now_ns();
    int rc = b->is_host ? kvc_pages_load(b->session.ns, &seq, b->pool, &load, &f->loaded)
                        : kvc_pages_load_begin(b->session.ns, &seq, b->pool, &load, &f->op);
    return rc < 0 ? pages_fail(b, rc, "loading into pages") : 0;
}

static int pages_load_end(struct bench *b, struct flight *f)
{
    struct kvc_prefix prefix;
    struct kvc_loaded loaded = f->loaded;
    int rc = b->is_host ? 0 : kvc_wait(&f->op, &prefix, NULL, NULL);
    if (rc < 0)
        return pages_fail(b, rc, "loading into pages");
    lat_add(&b->lat, now_ns() - f->begun_ns);
    if (!b->is_host)
        kvc_pages_loaded(b->pool, &loaded);
    if (loaded.tokens == b->batch * BLOCK_TOKENS)
        return 0;
    say_error("only %u of %u blocks have come into their pages (%u are cached)",
              loaded.tokens / BLOCK_TOKENS, b->batch, loaded.prefix.tokens / BLOCK_TOKENS);
    return BENCH_FAILED;
}

static int pages_store_begin(struct bench *b, struct flight *f, uint64_t batch)
{
    for (uint32_t i = 0; i < b->batch; i++)
        perf_key(~b->stream, b->stored * b->batch + i, f->keys + (size_t)i * KVC_KEY_BYTES);
    b->stored++;
    const struct kvc_blocks blocks = {.keys = f->keys, .n = b->batch, .flags = KVC_F_ADMIT};
    f->batch = batch;
    f->begun_ns = now_ns();
    const struct kvc_word none = {0};
    int rc = b->is_host
                 ? kvc_pages_store(b->session.ns, &blocks, b->pool, bench_pages_of_one(b, batch),
                                   none, NULL, 0, f->statuses)
                 : kvc_pages_store_begin(b->session.ns, &blocks, b->pool,
                                         bench_pages_of_one(b, batch), none, NULL, 0, &f->op);
    return rc < 0 ? pages_fail(b, rc, "storing from pages") : 0;
}

static int pages_store_end(struct bench *b, struct flight *f)
{
    int rc = b->is_host ? 0 : kvc_wait(&f->op, NULL, NULL, f->statuses);
    if (rc < 0)
        return pages_fail(b, rc, "storing from pages");
    lat_add(&b->lat, now_ns() - f->begun_ns);
    return perf_statuses(f->statuses, b->batch);
}

static int pages_begin(struct bench *b, bool stores, uint64_t no)
{
    struct flight *f = &b->flight[no % b->args.depth];
    const uint64_t batch = no % b->batches;
    return stores ? pages_store_begin(b, f, batch) : load_begin(b, f, batch, batch);
}

static int pages_end(struct bench *b, bool stores, uint64_t no)
{
    struct flight *f = &b->flight[no % b->args.depth];
    return stores ? pages_store_end(b, f) : pages_load_end(b, f);
}

static uint64_t own_cpu_ns(void)
{
    struct timespec own;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    return (uint64_t)own.tv_sec * 1000000000u + (uint64_t)own.tv_nsec;
}

static uint64_t pages_cpu_ns(const struct bench *b)
{
    return cpu_family_ns(rig_pid(b->session.rig)) + own_cpu_ns();
}

static int pages_run(struct bench *b, bool stores, double seconds, double *ret_value)
{
    const uint64_t cpu = pages_cpu_ns(b), begun = now_ns(),
                   until = begun + (uint64_t)(seconds * 1e9);
    uint64_t asked = 0, done = 0;
    int rc = 0;
    for (; rc == 0 && asked < b->args.depth; asked++)
        rc = pages_begin(b, stores, asked);
    for (; rc == 0 && done < asked; done++) {
        rc = pages_end(b, stores, done);
        if (rc == 0 && now_ns() < until)
            rc = pages_begin(b, stores, asked++);
    }
    const uint64_t bytes = done * b->batch * b->block_bytes;
    *ret_value = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    b->cpu_ns += pages_cpu_ns(b) - cpu;
    b->cpu_bytes += bytes;
    return rc;
}

static int run_load(void *ctx, double seconds, double *ret_value)
{
    return pages_run(ctx, false, seconds, ret_value);
}

static int run_store(void *ctx, double seconds, double *ret_value)
{
    return pages_run(ctx, true, seconds, ret_value);
}

/* --- memcpy of the same fragments --- */

/* Copies the block's fragments, in the order of its bytes. */
static void copy_block(const struct bench *b, uint64_t block, uint8_t *bytes, bool stores)
{
    const uint32_t ppb = b->spec.group[0].pages_per_block;
    const uint32_t *page = b->page + block * ppb;
    for (uint32_t r = 0; r < b->spec.group[0].regions; r++)
        for (uint32_t p = 0; p < ppb; p++, bytes += b->frag_bytes) {
            uint8_t *at = b->shadow + b->region[r].base + page[p] * b->frag_bytes;
            memcpy(stores ? bytes : at, stores ? at : bytes, b->frag_bytes);
        }
}

static int pages_run_memcpy(struct bench *b, bool stores, double seconds, double *ret_value)
{
    const uint64_t blocks = b->batches * b->batch, hosts = stores ? 2 * blocks : blocks;
    const uint64_t cpu = own_cpu_ns();
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t done = 0;
    while (now_ns() < until)
        for (uint32_t i = 0; i < b->batch; i++, done++)
            copy_block(b, done % blocks, b->host + done % hosts * b->block_bytes, stores);
    *ret_value = (double)(done * b->block_bytes) / ((double)(now_ns() - begun) * 1e-9);
    b->memcpy_cpu_ns += own_cpu_ns() - cpu;
    b->memcpy_bytes += done * b->block_bytes;
    return 0;
}

static int run_memcpy_load(void *ctx, double seconds, double *ret_value)
{
    return pages_run_memcpy(ctx, false, seconds, ret_value);
}

static int run_memcpy_store(void *ctx, double seconds, double *ret_value)
{
    return pages_run_memcpy(ctx, true, seconds, ret_value);
}

/* --- bytes --- */

static int pages_wrong(const struct bench *b, uint64_t bytes, const char *what)
{
    say_error("%" PRIu64 " wrong bytes %s, in fragments of %" PRIu64, bytes, what, b->frag_bytes);
    return BENCH_WRONG;
}

/* Waits until all work on the stream has ended. */
static int sync_stream(struct bench *b)
{
    if (b->is_host)
        return 0;
    volatile uint64_t *words = kvc_gpu_words(b->gpu);
    const uint64_t value = ++b->signals, until = now_ns() + SYNC_NS;
    int rc = kvc_gpu_signal(b->gpu, NULL, 0, value);
    if (rc < 0)
        return pages_fail(b, rc, "signalling");
    while (words && words[0] < value && now_ns() < until) {
    }
    if (words && words[0] >= value)
        return 0;
    say_error("%s: a copy of the worker's does not end", b->device);
    return BENCH_FAILED;
}

/* Compares pages through staging, wherever they are. */
static int check_pages(struct bench *b, uint64_t batch, uint64_t at)
{
    uint64_t offsets[KVC_STORE_MAX], bad = 0;
    for (uint32_t i = 0; i < b->batch; i++)
        offsets[i] = i * b->block_bytes;
    memset(b->session.staging, 0, b->batch * b->block_bytes);
    int rc = kvc_gpu_stage(b->gpu, &b->spec, 0, bench_pages_of_one(b, at), b->batch, offsets, NULL);
    if (rc < 0)
        return pages_fail(b, rc, "copying pages to staging");
    rc = sync_stream(b);
    for (uint32_t i = 0; rc == 0 && i < b->batch; i++)
        bad += pattern_wrong_bytes(pages_keys_of(b, batch) + (size_t)i * KVC_KEY_BYTES,
                                   b->session.staging + offsets[i], b->block_bytes);
    return rc != 0 || bad == 0 ? rc : pages_wrong(b, bad, "have been loaded into pages");
}

/* Loads each batch into the pages of the batch `shift` behind it, so that these had other bytes. */
static int check_loads(struct bench *b, uint64_t shift)
{
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < b->batches; i++) {
        const uint64_t into = (i + shift) % b->batches;
        progress_show(false, "pages: checking bytes");
        rc = load_begin(b, &b->flight[0], i, into);
        if (rc == 0)
            rc = pages_load_end(b, &b->flight[0]);
        if (rc == 0)
            rc = check_pages(b, i, into);
    }
    return rc;
}

/* Checks that the last stored blocks have the bytes of the pages that they came from. */
static int check_stores(struct bench *b)
{
    int rc = 0;
    for (uint64_t n = 0; rc == 0 && n < b->args.depth; n++) {
        const struct flight *f = &b->flight[n];
        const struct kvc_seq seq = {.tokens = b->batch * BLOCK_TOKENS,
                                    .group = {{.keys = f->keys, .n = b->batch}}};
        struct kvc_hold *hold;
        uint64_t bad = 0;
        rc = kvc_acquire(b->session.ns, &seq, NULL, &hold);
        if (rc < 0)
            return pages_fail(b, rc, "acquire");
        const uint32_t found = hold->group[0].n;
        for (uint32_t i = 0; i < found; i++)
            bad += pattern_wrong_bytes(pages_keys_of(b, f->batch) + (size_t)i * KVC_KEY_BYTES,
                                       hold->group[0].block[i].data, b->block_bytes);
        kvc_release(b->session.kvc, &hold);
        if (bad > 0)
            return pages_wrong(b, bad, "were stored from pages");
        if (found == b->batch)
            continue;
        say_error("of %u blocks stored just now %u were found", b->batch, found);
        rc = BENCH_FAILED;
    }
    return rc;
}

/* --- blocks --- */

static int store_batch(struct bench *b, uint64_t batch)
{
    uint64_t offsets[KVC_STORE_MAX];
    uint8_t statuses[KVC_STORE_MAX];
    for (uint32_t i = 0; i < b->batch; i++) {
        offsets[i] = i * b->block_bytes;
        pattern_fill(pages_keys_of(b, batch) + (size_t)i * KVC_KEY_BYTES,
                     b->session.staging + offsets[i], b->block_bytes);
    }
    const struct kvc_blocks blocks = {
        .keys = pages_keys_of(b, batch), .n = b->batch, .flags = KVC_F_ADMIT};
    int rc = kvc_store(b->session.ns, &blocks, offsets, NULL, 0, statuses);
    return rc < 0 ? pages_fail(b, rc, "store") : perf_statuses(statuses, b->batch);
}

/* Evicts the blocks of other sizes, so that the blocks that are stored now stay. */
static int fill_host(struct bench *b)
{
    const struct kvc_evict_filter everything = {0};
    struct kvc_evicted evicted;
    int rc = kvc_evict(b->session.kvc, &everything, &evicted);
    rc = rc < 0 ? pages_fail(b, rc, "evicting") : perf_namespace(&b->session, b->block_bytes);
    b->stream++;
    for (uint64_t i = 0; i < b->batches * b->batch; i++)
        perf_key(b->stream, i, b->keys + i * KVC_KEY_BYTES);
    for (uint64_t i = 0; rc == 0 && i < b->batches; i++) {
        progress_show(false, "pages: storing blocks to load");
        rc = store_batch(b, i);
    }
    return rc;
}

/* Brings a batch into slots. Slots are allocated when they are first needed: blocks that find none
 * stay in host memory until they are asked for again. */
static int fill_batch(struct bench *b, uint64_t batch, uint32_t *ret_slots)
{
    const struct kvc_seq seq = {.tokens = b->batch * BLOCK_TOKENS,
                                .group = {{.keys = pages_keys_of(b, batch), .n = b->batch}}};
    struct kvc_hold *hold;
    int rc = kvc_acquire_on(b->session.ns, &seq, b->gpu, NULL, &hold);
    if (rc < 0)
        return pages_fail(b, rc, "acquiring on the device");
    *ret_slots = 0;
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        *ret_slots += kvc_hold_device(hold, 0, i) != NULL;
    kvc_release(b->session.kvc, &hold);
    return 0;
}

static int fill_slots(struct bench *b)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const uint64_t until = now_ns() + UP_NS;
    for (uint64_t i = 0; i < b->batches;) {
        uint32_t hbm = 0;
        int rc = fill_batch(b, i, &hbm);
        if (rc != 0)
            return rc;
        i += hbm == b->batch;
        if (now_ns() > until) {
            say_error("the daemon does not get blocks onto %s: %u of %u of a batch", b->device, hbm,
                      b->batch);
            return BENCH_FAILED;
        }
        if (hbm < b->batch)
            nanosleep(&pause, NULL);
    }
    return 0;
}

/* --- results --- */

static void put_metric(const struct bench *b, const char *path, const char *metric, double value,
                       const char *unit, double limit)
{
    struct out_metric line = {.bench = "pages",
                              .keys = {{.key = "device", .text = b->device},
                                       {.key = "path", .text = path},
                                       {.key = "fragment_bytes", .number = b->frag_bytes},
                                       {.key = "block_bytes", .number = b->block_bytes},
                                       {.key = "batch", .number = b->batch},
                                       {.key = "depth", .number = b->args.depth}},
                              .metric = metric,
                              .value = value,
                              .unit = unit};
    if (limit > 0) {
        line.limit_what = "memcpy";
        line.limit = limit;
        line.ratio = value / limit;
    }
    out_json(&line);
}

static void pages_report(const struct bench *b, const char *path, const struct perf_side sides[2])
{
    const uint64_t p50 = lat_quantile_ns(&b->lat, .5), p99 = lat_quantile_ns(&b->lat, .99);
    const double cpu = (double)b->cpu_ns / (double)b->cpu_bytes;
    const double memcpy_cpu = (double)b->memcpy_cpu_ns / (double)b->memcpy_bytes;
    if (b->args.json) {
        put_metric(b, path, "pages_bytes_per_s", sides[0].value, "B/s", sides[1].value);
        put_metric(b, path, "pages_request_p50_s", (double)p50 * 1e-9, "s", 0);
        put_metric(b, path, "pages_request_p99_s", (double)p99 * 1e-9, "s", 0);
        put_metric(b, path, "pages_cpu_s_per_gb", cpu, "s/GB", memcpy_cpu);
        return;
    }
    char size[UNITS_TEXT_BYTES], rate[2][UNITS_TEXT_BYTES], a[UNITS_TEXT_BYTES],
        z[UNITS_TEXT_BYTES];
    printf("  %-10s %10s %12s   memcpy %12s   ratio %.2f   request %s, p99 %s   CPU %.3f s/GB, "
           "memcpy's %.3f\n",
           path, units_format_bytes(b->frag_bytes, size),
           units_format_rate((uint64_t)sides[0].value, rate[0]),
           units_format_rate((uint64_t)sides[1].value, rate[1]), sides[0].value / sides[1].value,
           units_format_duration_ns(p50, a), units_format_duration_ns(p99, z), cpu, memcpy_cpu);
    (void)stdfds_flush();
}

static int pages_measure(struct bench *b, const char *path, bool stores)
{
    struct perf_side sides[2] = {
        {.run = stores ? run_store : run_load},
        {.what = "memcpy", .run = stores ? run_memcpy_store : run_memcpy_load}};
    b->lat = (struct lat){0};
    b->cpu_ns = b->cpu_bytes = b->memcpy_cpu_ns = b->memcpy_bytes = 0;
    int rc = perf_rounds(&b->args, b, sides, 2);
    if (rc == 0)
        pages_report(b, path, sides);
    return rc;
}

static int stat_hbm(struct bench *b, uint64_t *ret_blocks, uint64_t *ret_slots)
{
    int rc = perf_stat(b->session.kvc, "core.send_blocks", ret_blocks);
    if (rc == 0)
        rc = perf_stat(b->session.kvc, "core.send_blocks_hbm", ret_slots);
    return rc < 0 ? pages_fail(b, rc, "stats") : 0;
}

/* Refuses to give a figure for blocks that came from another tier. */
static int measure_loads(struct bench *b, const char *path, bool is_hbm)
{
    uint64_t blocks, hbm, blocks_then, hbm_then;
    int rc = stat_hbm(b, &blocks, &hbm);
    if (rc == 0)
        rc = pages_measure(b, path, false);
    if (rc == 0)
        rc = stat_hbm(b, &blocks_then, &hbm_then);
    if (rc != 0)
        return rc;
    const uint64_t from_slots = hbm_then - hbm;
    if (from_slots == (is_hbm ? blocks_then - blocks : 0))
        return 0;
    say_error("%s: %" PRIu64 " of %" PRIu64 " blocks came out of slots of the device", path,
              from_slots, blocks_then - blocks);
    return BENCH_FAILED;
}

/* Fills the cache before anything is measured, so that each store evicts. */
static int measure_stores(struct bench *b)
{
    const uint64_t full = b->stored + 2 * b->batches;
    double unused;
    int rc = 0;
    while (rc == 0 && b->stored < full)
        rc = run_store(b, 0.1, &unused);
    return rc == 0 ? pages_measure(b, "pages-host", true) : rc;
}

/* --- pages --- */

static void deal(struct bench *b)
{
    uint64_t seed = 1;
    for (uint32_t i = 0; i < b->spec.pages_max; i++)
        b->page[i] = i;
    for (uint32_t i = b->spec.pages_max; i > 1; i--) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint32_t k = (uint32_t)((seed >> 33) % i), swap = b->page[k];
        b->page[k] = b->page[i - 1];
        b->page[i - 1] = swap;
    }
}

/* Lays pages out as for a model of 32 layers, K and V apart: a tensor of pages for each region. */
static void pages_lay_out(struct bench *b)
{
    const uint64_t frags = b->block_bytes / b->frag_bytes;
    uint32_t regions = REGIONS_MAX;
    while (frags % regions != 0)
        regions--;
    b->spec = (struct kvc_pool_spec){.groups = 1};
    b->spec.group[0].regions = regions;
    b->spec.group[0].region = b->region;
    b->spec.group[0].pages_per_block = (uint32_t)(frags / regions);
    b->spec.pages_max = (uint32_t)(b->batches * b->batch * (frags / regions));
    for (uint32_t r = 0; r < regions; r++)
        b->region[r] = (struct kvc_pool_region){.mem = b->mem,
                                                .base = r * b->spec.pages_max * b->frag_bytes,
                                                .stride_bytes = b->frag_bytes,
                                                .page_bytes = b->frag_bytes,
                                                .layer = r / 2};
    deal(b);
}

static int pages_one_size(struct bench *b, uint64_t frag_bytes)
{
    b->frag_bytes = frag_bytes;
    pages_lay_out(b);
    int rc = kvc_pool_open(b->gpu, &b->spec, &b->pool);
    if (rc < 0)
        return pages_fail(b, rc, "opening the pool");
    rc = fill_host(b);
    if (rc == 0)
        rc = check_loads(b, 0);
    if (rc == 0)
        rc = measure_loads(b, "host-pages", false);
    if (rc == 0 && !b->is_host)
        rc = fill_slots(b);
    if (rc == 0)
        rc = check_loads(b, 1);
    if (rc == 0 && !b->is_host)
        rc = measure_loads(b, "slot-pages", true);
    if (rc == 0) /* the pages have the bytes that are to be stored */
        rc = check_loads(b, 0);
    if (rc == 0)
        rc = measure_stores(b);
    if (rc == 0)
        rc = check_stores(b);
    kvc_pool_close(&b->pool);
    return rc;
}

/* --- the daemon and its device --- */

static int pages_on_device(void *ctx, const void *row)
{
    const struct kvc_device *device = row;
    *(struct kvc_device *)ctx = *device;
    return 0;
}

/* The daemon measures the device before it is up. */
static int wait_until_up(struct bench *b)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    struct kvc_device device = {0};
    for (const uint64_t until = now_ns() + UP_NS; now_ns() < until && !device.up;) {
        int rc = kvc_list(b->session.kvc, KVC_TABLE_DEVICES, NULL, pages_on_device, &device);
        if (rc < 0)
            return pages_fail(b, rc, "the daemon's devices");
        progress_show(false, "pages: waiting for %s", b->device);
        nanosleep(&pause, NULL);
    }
    progress_clear();
    b->is_emulated = device.emulated;
    if (device.up)
        return 0;
    say_error("%s is out: %s", b->device, device.why[0] ? device.why : "no reason is known");
    return BENCH_FAILED;
}

static int open_memory(struct bench *b)
{
    const uint64_t blocks = b->batches * b->batch;
    void *at;
    int rc = kvc_gpu_open(b->session.kvc, b->device, &b->gpu);
    if (rc < 0)
        return pages_fail(b, rc, "opening the device");
    rc = kvc_mem_alloc(b->gpu, b->bytes, &at, &b->mem);
    if (rc < 0)
        return pages_fail(b, rc, "memory on the device");
    b->keys = malloc(blocks * KVC_KEY_BYTES);
    b->page = malloc(b->bytes / b->args.sizes[0] * sizeof(*b->page));
    b->host = perf_private_memory(2 * b->bytes);
    b->is_emulated = b->is_emulated || b->is_host; /* addresses are pointers */
    b->shadow = b->is_emulated ? at : perf_private_memory(b->bytes);
    if (b->keys && b->page && b->host && b->shadow)
        return 0;
    say_error("out of memory");
    return BENCH_FAILED;
}

static void close_all(struct bench *b)
{
    if (b->shadow && !b->is_emulated)
        munmap(b->shadow, b->bytes);
    if (b->host)
        munmap(b->host, 2 * b->bytes);
    free(b->page);
    free(b->keys);
    kvc_gpu_close(&b->gpu);
    perf_close(&b->session);
}

static int run_all(struct bench *b)
{
    struct rig_options options = {.daemon_path = b->args.daemon_path};
    rig_set(&options, "host.limit=%" PRIu64, 2 * b->bytes);
    rig_set(&options, "staging.session_max=%" PRIu64, STAGING_BYTES);
    rig_set(&options, "staging.total=%" PRIu64, STAGING_BYTES);
    if (!b->is_host) {
        rig_set(&options, "hbm.devices=%s=%" PRIu64, b->device, b->bytes + SLOTS_SPARE);
        rig_set(&options, "hbm.emu_memory=%" PRIu64, b->bytes + 2 * SLOTS_SPARE);
    }
    rig_set(&options, "log.level=warn");
    int rc = perf_open(&options, STAGING_BYTES, &b->session);
    if (rc != 0)
        return rc;
    rc = b->is_host ? 0 : wait_until_up(b);
    if (rc == 0)
        rc = perf_settle(&b->session);
    if (rc == 0)
        rc = open_memory(b);
    for (size_t i = 0; rc == 0 && i < b->args.n_sizes; i++)
        rc = pages_one_size(b, b->args.sizes[i]);
    close_all(b);
    return rc;
}

/* --- command line --- */

static const struct arg option_table[] = {
    {"--device NAME",
     "emu:<number>, cuda:<number>, GPU-<uuid>, or host: this process's memory, which the library "
     "copies itself, a request at a time (default emu:0)",
     ARG_TEXT(struct bench, device)},
    {"--fragments LIST",
     "sizes of pages; a block is a whole number of them (default 4KiB,16KiB,64KiB,2MiB)",
     ARG_DO_AT(struct bench, args, perf_take_sizes)},
    {"--block-bytes SIZE", "(default 2MiB)",
     ARG_BYTES(struct bench, block_bytes, 64, KVC_BLOCK_BYTES_MAX)},
    {"--batch N", "blocks in a request (default: 32 MiB of them)",
     ARG_COUNT(struct bench, args.batch, 1, KVC_STORE_MAX)},
    {"--depth N", "requests in flight (default 4)",
     ARG_COUNT(struct bench, args.depth, 1, DEPTH_MAX)},
    {"--bytes SIZE",
     "of pages, and of blocks that are loaded (default 1GiB); the daemon takes twice that of host "
     "memory, and as much and 256 MiB of the device's",
     ARG_BYTES(struct bench, bytes, 1, BYTES_MAX)},
    {"--seconds S", "of one measurement (default 0.5)",
     ARG_NUMBER(struct bench, args.seconds, 0.01, 3600)},
    {"--pairs N", "measurements of each, taking turns; medians are reported (default 5)",
     ARG_COUNT(struct bench, args.pairs, 1, PERF_PAIRS_MAX)},
    {"--daemon PATH", "the daemon to start (default: beside this program)",
     ARG_TEXT(struct bench, args.daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct bench, args.json)},
    {0},
};

static int check_fragments(const struct bench *b)
{
    for (size_t i = 0; i < b->args.n_sizes; i++) {
        const uint64_t size = b->args.sizes[i];
        if (size % 64 != 0)
            return say_usage("--fragments: %" PRIu64 " is not a multiple of 64", size);
        if (size < b->args.sizes[0])
            return say_usage("--fragments: the smallest must come first");
        if (b->block_bytes % size != 0)
            return say_usage("--fragments: a block of %" PRIu64
                             " bytes is no whole number of fragments of %" PRIu64
                             "; give another --block-bytes",
                             b->block_bytes, size);
    }
    return 0;
}

static int pages_check_options(struct bench *b)
{
    b->is_host = strcmp(b->device, "host") == 0;
    if (b->is_host)
        b->args.depth = 1;
    const char *problem = b->is_host ? NULL : gpu_device_problem(b->device);
    if (problem != NULL)
        return say_usage("--device %s: %s", b->device, problem);
    int rc = check_fragments(b);
    if (rc != 0)
        return rc;
    const uint64_t fit = BATCH_BYTES / b->block_bytes;
    const uint64_t usual = fit == 0 ? 1 : fit > KVC_STORE_MAX ? KVC_STORE_MAX : fit;
    b->batch = (uint32_t)(b->args.batch ? b->args.batch : usual);
    const uint64_t batch_bytes = b->batch * b->block_bytes;
    if (batch_bytes > STAGING_BYTES)
        return say_usage("a batch of %u blocks of %" PRIu64
                         " bytes is more than 128 MiB; use a smaller --batch",
                         b->batch, b->block_bytes);
    b->batches = b->bytes / batch_bytes;
    b->bytes = b->batches * batch_bytes;
    if (b->batches <= b->args.depth) /* requests in flight have pages of their own */
        return say_usage("--bytes: %" PRIu64 " batches of %" PRIu64
                         " bytes fit, and must be more than --depth %" PRIu64
                         "; use a smaller --batch or --depth",
                         b->batches, batch_bytes, b->args.depth);
    return 0;
}

int cmd_pages(int argc, char **argv)
{
    struct bench *b = calloc(1, sizeof(*b));
    if (!b) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    *b = (struct bench){.args = {.bench = "pages",
                                 .compare = true,
                                 .seconds = 0.5,
                                 .pairs = 5,
                                 .depth = 4,
                                 .sizes = {4096, 16384, 65536, 2 << 20},
                                 .n_sizes = 4},
                        .device = "emu:0",
                        .block_bytes = 2 << 20,
                        .bytes = PERF_WORKING_SET};
    int rc = opt_take_only(argc, argv, option_table, help, b);
    if (rc == 0)
        rc = pages_check_options(b);
    if (rc == 0) {
        if (b->bytes >= PERF_WORKING_SET) /* with less memory the figures are no measurement */
            perf_level_memory(&b->args);
        rc = run_all(b);
    }
    free(b);
    return rc < 0 ? BENCH_OK : rc;
}
