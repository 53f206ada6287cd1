/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker whose KV memory is pages of an emulated device. A block is one or two pages in each of
 * four regions of two layers, so that it is scattered in pieces smaller than itself:
 *
 *   0, 1   K and V of layer 0, side by side in one memory
 *   2, 3   K and V of layer 1, each in a memory of its own, with a guard behind each page
 *
 * Pages are dealt at random for each request. They are spoiled before a load, so that a page that
 * was told as loaded and was not is seen.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvcache/admin.h>

#include "pattern.h"
#include "replay_worker.h"

enum { REGIONS = 4, MEMORIES = 3, GUARD_BYTES = 64, UP_TIMEOUT_MS = 30000 };
enum { SPOILED = 0xa5, GUARD = 0x5a };

struct replay_device {
    struct kvc_gpu *gpu;
    struct kvc_mem *mem[MEMORIES];
    uint8_t *addr[MEMORIES];
    struct kvc_pool *pool;
    struct kvc_pool_region region[REGIONS];
    uint32_t regions; /* regions in use: those whose pages have at least one byte */
    uint32_t pages_per_block;
    uint32_t pages, load_pages; /* load_pages: the first of them, which loads use */
    uint32_t *page; /* page numbers as dealt: those for loads, then those of each half */
    uint8_t *block; /* room for one block, gathered from its pages */
    uint64_t dice;
    bool turn;
};

static uint64_t roll(struct replay_device *d, uint64_t n)
{
    d->dice ^= d->dice << 13;
    d->dice ^= d->dice >> 7;
    d->dice ^= d->dice << 17;
    return d->dice % n;
}

/* ---- pages ---- */

static uint8_t *replay_device_page_at(const struct replay_device *d, uint32_t region, uint32_t page)
{
    const struct kvc_pool_region *r = &d->region[region];
    uint32_t m = 0;
    while (d->mem[m] != r->mem)
        m++;
    return d->addr[m] + r->base + page * r->stride_bytes;
}

/* Gathers a block: its regions in order, and in each its pages. */
static void gather(struct replay_device *d, const uint32_t *pages)
{
    uint8_t *to = d->block;
    for (uint32_t r = 0; r < d->regions; r++)
        for (uint32_t p = 0; p < d->pages_per_block; p++, to += d->region[r].page_bytes)
            memcpy(to, replay_device_page_at(d, r, pages[p]), d->region[r].page_bytes);
}

static void scatter(struct replay_device *d, const uint32_t *pages)
{
    const uint8_t *from = d->block;
    for (uint32_t r = 0; r < d->regions; r++)
        for (uint32_t p = 0; p < d->pages_per_block; p++, from += d->region[r].page_bytes)
            memcpy(replay_device_page_at(d, r, pages[p]), from, d->region[r].page_bytes);
}

static void spoil(struct replay_device *d, uint32_t pages)
{
    for (uint32_t r = 0; r < d->regions; r++)
        for (uint32_t p = 0; p < pages; p++)
            memset(replay_device_page_at(d, r, d->page[p]), SPOILED, d->region[r].page_bytes);
}

static bool has_guard(uint32_t region)
{
    return region >= 2;
}

static uint64_t guards(const struct replay_device *d, bool set)
{
    uint64_t wrong = 0;
    for (uint32_t r = 0; r < d->regions; r++)
        for (uint32_t p = 0; has_guard(r) && p < d->pages; p++) {
            uint8_t *guard = replay_device_page_at(d, r, p) + d->region[r].page_bytes;
            for (uint32_t i = 0; !set && i < GUARD_BYTES; i++)
                wrong += guard[i] != GUARD;
            if (set)
                memset(guard, GUARD, GUARD_BYTES);
        }
    return wrong;
}

void replay_device_deal(struct replay_worker *w)
{
    struct replay_device *d = w->device;
    for (uint32_t i = d->pages; i > 1; i--) {
        uint32_t other = (uint32_t)roll(d, i), page = d->page[i - 1];
        d->page[i - 1] = d->page[other];
        d->page[other] = page;
    }
}

/* ---- opening ---- */

static int replay_device_on_device(void *ctx, const void *row)
{
    const struct kvc_device *device = row;
    if (device->up && strcmp(device->device, REPLAY_DEVICE) == 0)
        *(bool *)ctx = true;
    return 0;
}

/* The daemon measures a device before it is up. */
static int wait_until_up(struct replay_worker *w)
{
    struct timespec pause = {.tv_nsec = 5000000};
    for (uint64_t until = now_ns() + UP_TIMEOUT_MS * UINT64_C(1000000); now_ns() < until;) {
        bool up = false;
        int rc = kvc_list(w->kvc, KVC_TABLE_DEVICES, NULL, replay_device_on_device, &up);
        if (rc < 0)
            return replay_fail_call(w, rc, "the daemon's devices");
        if (up)
            return 0;
        nanosleep(&pause, NULL);
    }
    return replay_fail(w, KVC_E_TIER, "the daemon's device %s did not come up within %d s",
                       REPLAY_DEVICE, UP_TIMEOUT_MS / 1000);
}

/* Makes pages of block_bytes / regions / pages bytes; those of the last region have the rest. */
static void replay_device_lay_out(struct replay_device *d, uint32_t block_bytes)
{
    d->pages_per_block = block_bytes % 2 == 0 && block_bytes >= 2 * REGIONS ? 2 : 1;
    const uint32_t bytes = block_bytes / d->pages_per_block;
    d->regions = bytes < REGIONS ? bytes : REGIONS;
    const uint32_t each = bytes / d->regions;
    for (uint32_t r = 0; r < d->regions; r++) {
        struct kvc_pool_region *region = &d->region[r];
        region->page_bytes = r + 1 < d->regions ? each : bytes - (d->regions - 1) * each;
        region->layer = r / 2;
    }
    const uint64_t pair = d->region[0].page_bytes + d->region[1].page_bytes;
    d->region[1].base = d->region[0].page_bytes;
    d->region[0].stride_bytes = d->region[1].stride_bytes = pair;
    for (uint32_t r = 2; r < d->regions; r++)
        d->region[r].stride_bytes = d->region[r].page_bytes + GUARD_BYTES;
}

static int allocate_memory(struct replay_worker *w, struct replay_device *d)
{
    for (uint32_t r = 0; r < d->regions; r++) {
        const uint32_t m = r < 2 ? 0 : r - 1;
        void *addr = NULL;
        int rc = d->mem[m] ? 0
                           : kvc_mem_alloc(d->gpu, d->pages * d->region[r].stride_bytes, &addr,
                                           &d->mem[m]);
        if (rc < 0)
            return replay_fail_call(w, rc, "memory on the device");
        if (addr)
            d->addr[m] = addr;
        d->region[r].mem = d->mem[m];
    }
    return 0;
}

static int open_pool(struct replay_worker *w, struct replay_device *d)
{
    const struct kvc_pool_spec spec = {.pages_max = d->pages,
                                       .groups = 1,
                                       .group[0] = {.pages_per_block = d->pages_per_block,
                                                    .regions = d->regions,
                                                    .region = d->region}};
    int rc = kvc_gpu_open(w->kvc, REPLAY_DEVICE, &d->gpu);
    if (rc < 0)
        return replay_fail_call(w, rc, "opening the device");
    rc = allocate_memory(w, d);
    if (rc < 0)
        return rc;
    guards(d, true);
    rc = kvc_pool_open(d->gpu, &spec, &d->pool);
    return rc < 0 ? replay_fail_call(w, rc, "opening the pool") : 0;
}

int replay_device_open(struct replay_worker *w)
{
    const struct replay_plan *plan = w->plan;
    struct replay_device *d = calloc(1, sizeof(*d));
    if (!d)
        return replay_fail(w, -ENOMEM, "out of memory");
    w->device = d;
    d->dice = plan->run | 1;
    replay_device_lay_out(d, plan->block_bytes);
    d->load_pages = plan->trace->blocks_max * d->pages_per_block;
    d->pages = d->load_pages + REPLAY_HALVES * plan->batch_blocks * d->pages_per_block;
    d->page = malloc(d->pages * sizeof(*d->page));
    d->block = malloc(plan->block_bytes);
    if (!d->page || !d->block)
        return replay_fail(w, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < d->pages; i++)
        d->page[i] = i;
    int rc = wait_until_up(w);
    return rc < 0 ? rc : open_pool(w, d);
}

void replay_device_close(struct replay_worker *w)
{
    struct replay_device *d = w->device;
    if (!d)
        return;
    w->device = NULL;
    kvc_pool_close(&d->pool);
    if (d->mem[0])
        w->counts->wrong_bytes += guards(d, false);
    kvc_gpu_close(&d->gpu);
    free(d->page);
    free(d->block);
    free(d);
}

/* ---- requests ---- */

struct kvc_gpu *replay_device_gpu(const struct replay_worker *w)
{
    return w->device->gpu;
}

bool replay_device_turn(struct replay_worker *w)
{
    w->device->turn = !w->device->turn;
    return w->device->turn;
}

int replay_device_load(struct replay_worker *w, const struct trace_request *request,
                       const struct kvc_prefix *prefix, uint32_t *ret_hits)
{
    struct replay_device *d = w->device;
    const struct kvc_seq seq = {.tokens = request->blocks * w->plan->block_tokens,
                                .group = {{.keys = w->keys, .n = request->blocks}}};
    const struct kvc_pages_load load = {.flags = w->plan->wait ? KVC_F_WAIT : 0,
                                        .pages[0] = d->page};
    struct kvc_loaded loaded;
    struct replay_read read = {0};
    spoil(d, prefix->tokens / w->plan->block_tokens * d->pages_per_block);
    uint64_t begun = now_ns();
    int rc = kvc_pages_load(w->ns, &seq, d->pool, &load, &loaded);
    if (rc < 0)
        return replay_fail_call(w, rc, "loading into pages");
    lat_add(&w->slot->tally.acquire, now_ns() - begun);
    w->counts->lookup_differs += loaded.prefix.tokens != prefix->tokens;
    w->counts->not_loaded += (loaded.prefix.tokens - loaded.tokens) / w->plan->block_tokens;
    read.hits = loaded.tokens / w->plan->block_tokens;
    for (uint32_t i = 0; i < read.hits; i++) {
        gather(d, &d->page[i * d->pages_per_block]);
        uint64_t wrong = pattern_wrong_bytes(w->keys + (size_t)i * KVC_KEY_BYTES, d->block,
                                             w->plan->block_bytes);
        read.wrong_bytes += wrong;
        read.wrong_blocks += wrong != 0;
    }
    w->counts->page_blocks += read.hits;
    replay_count_read(w, request, &read);
    *ret_hits = read.hits;
    return 0;
}

int replay_device_store(struct replay_worker *w, unsigned half, const struct kvc_blocks *blocks,
                        struct kvc_op **ret_op)
{
    struct replay_device *d = w->device;
    const uint32_t *pages =
        &d->page[d->load_pages + half * w->plan->batch_blocks * d->pages_per_block];
    for (uint32_t i = 0; i < blocks->n; i++) {
        pattern_fill(blocks->keys + (size_t)i * KVC_KEY_BYTES, d->block, w->plan->block_bytes);
        scatter(d, &pages[i * d->pages_per_block]);
    }
    return kvc_pages_store_begin(w->ns, blocks, d->pool, pages, (struct kvc_word){0}, NULL, 0,
                                 ret_op);
}
