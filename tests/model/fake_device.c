/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_device.h"

#include <stdlib.h>

#include "list.h"

#define INFLIGHT_MAX 1024u
#define STRIDE_MORE  5u /* bytes between pages */
#define SLOT_ALIGN   64u

struct pool_group {
    struct fake_pool_group shape;
    uint8_t *region[64];
};
struct device_pool {
    uint32_t pages_max, ngroups, copies;
    struct pool_group group[KVC_GROUPS_MAX];
};

struct flight {
    struct device_copy *copy;
    uint32_t layers; /* that have been copied */
    bool lost;       /* the device was, or is: it ends with -EIO */
};

struct fake_device {
    struct device device;
    struct fake_device_config cfg;
    struct fake_tier *slots;
    uint64_t random;
    bool up;
    uint64_t views;
    unsigned inflight;
    struct flight flight[INFLIGHT_MAX];
    fake_device_fn *on_submit, *on_end;
    void *submit_ctx, *end_ctx;
};

static struct fake_device *of(const struct device *d)
{
    return CONTAINER_OF((struct device *)(uintptr_t)d, struct fake_device, device);
}

/* ---- pages ---- */

struct device_pool *fake_pool_create(struct fake_device *f, uint32_t pages_max, uint32_t ngroups,
                                     const struct fake_pool_group *group)
{
    struct device_pool *p = calloc(1, sizeof *p);
    (void)f;
    MUST(p != NULL && ngroups <= KVC_GROUPS_MAX);
    p->pages_max = pages_max;
    p->ngroups = ngroups;
    for (uint32_t g = 0; g < ngroups; g++) {
        p->group[g].shape = group[g];
        MUST(group[g].regions >= 1 && group[g].regions <= ARRAY_LEN(p->group[g].region));
        for (uint32_t i = 0; i < group[g].regions; i++) {
            p->group[g].region[i] = calloc(pages_max, (size_t)group[g].page_bytes + STRIDE_MORE);
            MUST(p->group[g].region[i] != NULL);
        }
    }
    return p;
}

void fake_pool_destroy(struct device_pool **pool)
{
    struct device_pool *p = *pool;
    if (!p)
        return;
    MUST(p->copies == 0);
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t i = 0; i < p->group[g].shape.regions; i++)
            free(p->group[g].region[i]);
    free(p);
    *pool = NULL;
}

static uint64_t pool_block_bytes(const struct device_pool *pool, uint32_t group)
{
    if (group >= pool->ngroups)
        return 0;
    const struct fake_pool_group *s = &pool->group[group].shape;
    return (uint64_t)s->pages_per_block * s->regions * s->page_bytes;
}

static bool pages_fit(const struct device_pool *pool, uint32_t group, const uint32_t *pages)
{
    for (uint32_t i = 0; i < pool->group[group].shape.pages_per_block; i++)
        if (pages[i] >= pool->pages_max)
            return false;
    return true;
}

/* One region's pages of a block, which stand at `block` in the order of regions. */
static void copy_region(const struct device_pool *pool, uint32_t group, uint32_t region,
                        const uint32_t *pages, uint8_t *block, bool to_pages)
{
    const struct pool_group *g = &pool->group[group];
    const size_t bytes = g->shape.page_bytes;
    uint8_t *at = block + (size_t)region * g->shape.pages_per_block * bytes;
    for (uint32_t i = 0; i < g->shape.pages_per_block; i++, at += bytes) {
        uint8_t *page = g->region[region] + pages[i] * (bytes + STRIDE_MORE);
        memcpy(to_pages ? page : at, to_pages ? at : page, bytes);
    }
}

void fake_pool_put(struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   const uint8_t *block)
{
    MUST(pages_fit(pool, group, pages));
    for (uint32_t i = 0; i < pool->group[group].shape.regions; i++)
        copy_region(pool, group, i, pages, (uint8_t *)(uintptr_t)block, true);
}

void fake_pool_get(const struct device_pool *pool, uint32_t group, const uint32_t *pages,
                   uint8_t *ret_block)
{
    MUST(pages_fit(pool, group, pages));
    for (uint32_t i = 0; i < pool->group[group].shape.regions; i++)
        copy_region(pool, group, i, pages, ret_block, false);
}

/* ---- copies ---- */

/* Room that a piece reads or writes: of host memory, and of slots. */
static void use_piece(struct fake_device *f, const struct device_copy *copy,
                      const struct device_piece *p, bool end, bool landed)
{
    struct tier_loc host = p->host ? fake_tier_at(f->cfg.host, p->host) : (struct tier_loc){0};
    const bool store = copy->kind == DEVICE_STORE, fill = copy->kind == DEVICE_FILL;
    MUST(!p->host || host.id != 0);
    if (host.id && !end)
        fake_tier_use(f->cfg.host, host, copy->bytes, store);
    if (host.id && end)
        fake_tier_unuse(f->cfg.host, host, store, false); /* a checksum is to follow */
    if (p->slot.id && !end)
        fake_tier_use(f->slots, p->slot, copy->bytes, fill);
    if (p->slot.id && end)
        fake_tier_unuse(f->slots, p->slot, fill, landed);
}

static void check_copy(const struct fake_device *f, const struct device_copy *copy)
{
    const bool fill = copy->kind == DEVICE_FILL, load = copy->kind == DEVICE_LOAD;
    MUST(copy->done && copy->n > 0 && copy->bytes > 0 && f->inflight < INFLIGHT_MAX);
    MUST(fill == (copy->pool == NULL) && (load || !copy->ready) && (!fill || !copy->after.word));
    MUST(fill || pool_block_bytes(copy->pool, copy->group) == copy->bytes);
    for (unsigned i = 0; i < f->inflight; i++)
        MUST(f->flight[i].copy != copy);
    for (uint32_t i = 0; i < copy->n; i++) {
        const struct device_piece *p = &copy->piece[i];
        MUST(fill || p->pages);
        const bool from_one = (p->host != NULL) != (p->slot.id != 0);
        const bool from_none = p->host == NULL && p->slot.id == 0 && p->status < 0;
        MUST(load ? from_one || from_none : p->host != NULL && (p->slot.id != 0) == fill);
    }
}

static void submit(struct device *d, struct device_copy *copy)
{
    struct fake_device *f = of(d);
    check_copy(f, copy);
    for (uint32_t i = 0; i < copy->n; i++)
        use_piece(f, copy, &copy->piece[i], false, false);
    if (copy->pool)
        copy->pool->copies++;
    f->flight[f->inflight++] = (struct flight){.copy = copy, .lost = !f->up};
    if (f->on_submit)
        f->on_submit(f->submit_ctx, copy);
}

unsigned fake_device_inflight(const struct fake_device *f)
{
    return f->inflight;
}

struct device_copy *fake_device_copy(struct fake_device *f, unsigned i)
{
    MUST(i < f->inflight);
    return f->flight[i].copy;
}

bool fake_device_may_begin(const struct device_copy *copy)
{
    return !device_fence_is_pending(&copy->after);
}

static struct flight *flight_of(struct fake_device *f, const struct device_copy *copy)
{
    unsigned i = 0;
    while (i < f->inflight && f->flight[i].copy != copy)
        i++;
    MUST(i < f->inflight);
    return &f->flight[i];
}

/* It is to be copied, as far as its submitter knows. */
static bool is_wanted(const struct device_piece *p)
{
    return p->status == 0;
}

static bool piece_fits(const struct device_copy *copy, const struct device_piece *p)
{
    return !copy->pool || pages_fit(copy->pool, copy->group, p->pages);
}

/* Where a piece's bytes stand besides pages. */
static uint8_t *memory_of(const struct fake_device *f, const struct device_piece *p)
{
    return p->host ? p->host : fake_tier_memory(f->slots, p->slot);
}

static void copy_piece(struct fake_device *f, const struct device_copy *copy,
                       const struct device_piece *p, uint32_t first, uint32_t end)
{
    if (copy->kind == DEVICE_FILL) {
        memcpy(fake_tier_memory(f->slots, p->slot), p->host, copy->bytes);
        return;
    }
    for (uint32_t i = first; i < end; i++)
        copy_region(copy->pool, copy->group, i, p->pages, memory_of(f, p),
                    copy->kind == DEVICE_LOAD);
}

static uint32_t layers_of(const struct device_copy *copy)
{
    return copy->pool ? copy->pool->group[copy->group].shape.regions : 1;
}

bool fake_device_layer(struct fake_device *f, struct device_copy *copy)
{
    struct flight *x = flight_of(f, copy);
    if (copy->kind != DEVICE_LOAD || x->lost || x->layers >= layers_of(copy) ||
        !fake_device_may_begin(copy))
        return false;
    bool all = true;
    for (uint32_t i = 0; i < copy->n; i++) {
        if (!is_wanted(&copy->piece[i]))
            continue;
        const bool fits = piece_fits(copy, &copy->piece[i]);
        if (fits)
            copy_piece(f, copy, &copy->piece[i], x->layers, x->layers + 1);
        all &= fits;
    }
    x->layers++;
    if (copy->ready && all)
        atomic_store_explicit(copy->ready, copy->ready_value + x->layers, memory_order_release);
    return true;
}

/* The bytes of a copy that ends; what is left of its pieces says how. */
static void carry_out(struct fake_device *f, struct device_copy *copy, int status)
{
    const uint32_t n = status == 0 ? copy->n : copy->n / 2;
    while (copy->kind == DEVICE_LOAD && status == 0 && fake_device_layer(f, copy))
        continue;
    for (uint32_t i = 0; i < copy->n; i++) {
        struct device_piece *p = &copy->piece[i];
        if (!is_wanted(p))
            continue;
        p->status = piece_fits(copy, p) ? status : -EINVAL;
        if (copy->kind != DEVICE_LOAD && p->status != -EINVAL && i < n)
            copy_piece(f, copy, p, 0, layers_of(copy));
    }
}

void fake_device_end(struct fake_device *f, struct device_copy *copy, int status)
{
    MUST(status != -ECANCELED || atomic_load(&copy->cancel));
    const bool lost = flight_of(f, copy)->lost;
    MUST(status != 0 || lost || fake_device_may_begin(copy));
    if (lost && status != -ECANCELED)
        status = -EIO;
    if (status == -ECANCELED || status == -ETIMEDOUT)
        for (uint32_t i = 0; i < copy->n; i++) {
            struct device_piece *p = &copy->piece[i];
            if (is_wanted(p))
                p->status = piece_fits(copy, p) ? status : -EINVAL;
        }
    else
        carry_out(f, copy, status);
    struct flight *x = flight_of(f, copy);
    *x = f->flight[--f->inflight];
    for (uint32_t i = 0; i < copy->n; i++)
        use_piece(f, copy, &copy->piece[i], true, copy->piece[i].status == 0);
    if (copy->pool)
        copy->pool->copies--;
    copy->status = status;
    if (f->on_end)
        f->on_end(f->end_ctx, copy);
    copy->done(copy);
}

static int some_end(struct fake_device *f, const struct device_copy *copy, unsigned fail_pct)
{
    static const int failures[] = {-EIO, -ETIMEDOUT, -ENOMEM};
    if (atomic_load(&copy->cancel) && fake_random(&f->random) % 4 != 0)
        return -ECANCELED;
    if (!fake_device_may_begin(copy) || fake_random(&f->random) % 100 < fail_pct)
        return failures[fake_random(&f->random) % ARRAY_LEN(failures)];
    return 0;
}

unsigned fake_device_run(struct fake_device *f, unsigned n, unsigned fail_pct)
{
    unsigned ended = 0;
    for (unsigned tries = 0; ended < n && f->inflight > 0 && tries < 4 * n; tries++) {
        struct device_copy *copy = f->flight[fake_random(&f->random) % f->inflight].copy;
        if (fake_random(&f->random) % 4 == 0 && fake_device_layer(f, copy))
            continue;
        if (!flight_of(f, copy)->lost && !fake_device_may_begin(copy) &&
            !atomic_load(&copy->cancel) && fake_random(&f->random) % 8 != 0)
            continue;
        fake_device_end(f, copy, some_end(f, copy, fail_pct));
        ended++;
    }
    return ended;
}

void fake_device_on_submit(struct fake_device *f, fake_device_fn *fn, void *ctx)
{
    f->on_submit = fn;
    f->submit_ctx = ctx;
}

void fake_device_on_end(struct fake_device *f, fake_device_fn *fn, void *ctx)
{
    f->on_end = fn;
    f->end_ctx = ctx;
}

/* ---- what befalls it ---- */

bool fake_device_is_up(const struct fake_device *f)
{
    return f->up;
}

uint64_t fake_device_views(const struct fake_device *f)
{
    return f->views;
}

void fake_device_lose(struct fake_device *f)
{
    if (!f->up)
        return;
    f->up = false;
    for (unsigned i = 0; i < f->inflight; i++)
        f->flight[i].lost = true;
    if (f->slots)
        fake_tier_out(f->slots, true);
    if (f->device.events.lost)
        f->device.events.lost(f->device.events.ctx, &f->device);
}

void fake_device_up(struct fake_device *f)
{
    if (f->up)
        return;
    f->up = true;
    if (f->slots)
        fake_tier_out(f->slots, false);
    if (f->device.events.up)
        f->device.events.up(f->device.events.ctx, &f->device);
}

static uint32_t goes(void *ctx, const struct tier_label *label, struct tier_loc loc)
{
    (void)ctx;
    (void)label;
    (void)loc;
    return UINT32_MAX;
}

void fake_device_crash(struct fake_device *f)
{
    for (unsigned i = 0; i < f->inflight; i++)
        if (f->flight[i].copy->pool)
            f->flight[i].copy->pool->copies--;
    f->inflight = 0;
    f->up = true;
    if (!f->slots)
        return;
    fake_tier_crash(f->slots);
    fake_tier_out(f->slots, false);
    fake_tier_each(f->slots, goes, NULL);
}

/* ---- life ---- */

static bool op_up(const struct device *d)
{
    return of(d)->up;
}

static void view(struct device *d, struct device_view *ret)
{
    struct fake_device *f = of(d);
    f->views++;
    *ret = (struct device_view){
        .device = "fake", .name = "fake", .why = "", .up = f->up, .emulated = true};
}

static const struct device_ops device_ops = {
    .up = op_up,
    .view = view,
    .pool_block_bytes = pool_block_bytes,
    .submit = submit,
};

struct fake_device *fake_device_create(const struct fake_device_config *config)
{
    struct fake_device *f = calloc(1, sizeof *f);
    MUST(f != NULL && config->seed != 0 && config->host != NULL);
    f->cfg = *config;
    f->random = config->seed;
    f->up = true;
    f->device.ops = &device_ops;
    f->device.no = config->no;
    if (config->regions == 0)
        return f;
    const struct fake_tier_config slots = {.regions = config->regions,
                                           .region_bytes = config->region_bytes,
                                           .slot_align = SLOT_ALIGN,
                                           .seed = config->seed + 1,
                                           .chunk_base = (config->no + 1) << DEVICE_CHUNK_SHIFT};
    f->slots = fake_tier_create(&slots);
    f->device.slots = fake_tier_of(f->slots);
    return f;
}

void fake_device_destroy(struct fake_device **device)
{
    struct fake_device *f = *device;
    if (!f)
        return;
    MUST(f->inflight == 0);
    if (f->slots)
        fake_tier_destroy(&f->slots);
    free(f);
    *device = NULL;
}

struct device *fake_device_of(struct fake_device *f)
{
    return &f->device;
}

struct fake_tier *fake_device_slots(struct fake_device *f)
{
    return f->slots;
}
