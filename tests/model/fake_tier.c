/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_tier.h"

#include <stdlib.h>

#include "list.h"

#define SLOTS_MAX    4096u /* of a region */
#define INFLIGHT_MAX 65536u

enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_WRITING, SLOT_WRITTEN, SLOT_PUBLISHED };

struct slot {
    uint8_t state;
    unsigned readers; /* verifications in flight */
    uint32_t block_no;
    uint64_t gen;
    struct tier_label label;
    struct hash128 sum;
};

struct region {
    uint32_t principal; /* 0 = nobody's */
    uint32_t chunk;     /* never reused */
    uint32_t slot_bytes, slots, used;
    bool draining;
    uint8_t *mem;
    struct slot *slot;
};

struct fake_tier {
    struct tier tier;
    struct fake_tier_config cfg;
    uint64_t random;
    uint32_t chunk_serial, drains;
    bool out;
    struct region *region;
    unsigned inflight;
    struct tier_op **op;
    fake_tier_ended_fn *on_end, *on_submit;
    void *end_ctx, *submit_ctx;
};

uint64_t fake_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x9e3779b97f4a7c15) >> 16;
}

static struct fake_tier *of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct fake_tier, tier);
}

static uint32_t slot_bytes_of(const struct fake_tier *f, uint32_t bytes)
{
    return ROUND_UP(bytes, f->cfg.slot_align);
}

static struct slot *slot_at(const struct fake_tier *f, struct tier_loc loc, struct region **ret)
{
    MUST(loc.id != 0);
    uint32_t r = (loc.id - 1) / SLOTS_MAX, s = (loc.id - 1) % SLOTS_MAX;
    MUST(r < f->cfg.regions && f->region[r].principal != 0 && s < f->region[r].slots);
    *ret = &f->region[r];
    return &f->region[r].slot[s];
}

static uint8_t *mem_of(const struct region *g, const struct slot *s)
{
    return g->mem + (size_t)(s - g->slot) * g->slot_bytes;
}

/* ---- room ---- */

static bool fits(const struct region *g, uint32_t principal, uint32_t slot_bytes)
{
    return g->principal == principal && g->slot_bytes == slot_bytes && !g->draining &&
           g->used < g->slots;
}

static struct region *region_for(struct fake_tier *f, uint32_t principal, uint32_t slot_bytes,
                                 struct tier_loc beside)
{
    struct region *g;
    if (beside.id != 0) {
        (void)slot_at(f, beside, &g);
        if (fits(g, principal, slot_bytes))
            return g;
    }
    for (uint32_t i = 0; i < f->cfg.regions; i++)
        if (fits(&f->region[i], principal, slot_bytes))
            return &f->region[i];
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        g = &f->region[i];
        if (g->principal != 0)
            continue;
        g->principal = principal;
        g->chunk = f->cfg.chunk_base + ++f->chunk_serial;
        g->slot_bytes = slot_bytes;
        g->slots = MIN(f->cfg.region_bytes / slot_bytes, SLOTS_MAX);
        return g;
    }
    return NULL;
}

static int fake_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                      uint32_t block_no, struct tier_loc *ret_loc)
{
    struct fake_tier *f = of(t);
    uint32_t slot_bytes = slot_bytes_of(f, bytes);
    MUST(principal != 0 && bytes != 0);
    if (slot_bytes > f->cfg.region_bytes)
        return KVC_E_TOO_LARGE;
    struct region *g = f->out ? NULL : region_for(f, principal, slot_bytes, beside);
    if (g == NULL)
        return KVC_E_NO_ROOM;
    uint32_t s = 0;
    while (g->slot[s].state != SLOT_FREE)
        s++;
    g->slot[s].state = SLOT_TAKEN;
    g->slot[s].block_no = block_no;
    g->used++;
    *ret_loc = (struct tier_loc){(uint32_t)(g - f->region) * SLOTS_MAX + s + 1};
    return 0;
}

static void fake_free(struct tier *t, struct tier_loc loc)
{
    struct region *g;
    struct slot *s = slot_at(of(t), loc, &g);
    MUST(s->state != SLOT_FREE && s->state != SLOT_WRITING && s->readers == 0);
    s->state = SLOT_FREE;
    s->gen++;
    memset(mem_of(g, s), 0xdd, g->slot_bytes);
    if (--g->used > 0)
        return;
    g->principal = 0;
    g->draining = false;
}

static void fake_invalidate(struct tier *t, struct tier_loc loc)
{
    struct region *g;
    struct slot *s = slot_at(of(t), loc, &g);
    MUST(s->state == SLOT_PUBLISHED);
    s->gen++;
}

static uint32_t fake_slot_bytes(const struct tier *t, uint32_t bytes)
{
    uint32_t slot_bytes = slot_bytes_of(of(t), bytes);
    return slot_bytes <= of(t)->cfg.region_bytes ? slot_bytes : 0;
}

static bool stays(const struct fake_tier *f, uint32_t region)
{
    const struct tier_events *e = &f->tier.events;
    return e->stays != NULL && e->stays(e->ctx, region);
}

static uint32_t fake_region(const struct tier *t, struct tier_loc loc)
{
    struct region *g;
    (void)slot_at(of(t), loc, &g);
    return (uint32_t)(g - of(t)->region);
}

static uint64_t fake_region_fill(const struct tier *t, uint32_t slot_bytes)
{
    const uint32_t slots = of(t)->cfg.region_bytes / slot_bytes;
    return (uint64_t)MIN(slots, SLOTS_MAX) * slot_bytes;
}

/* Free room in a region in which something stays, or else an occupant that may move. */
static struct slot *shift_to(struct fake_tier *f, const struct region *from,
                             const struct tier_shift *want, struct tier_loc *ret_loc)
{
    struct slot *best = NULL;
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        const struct region *g = &f->region[i];
        if (g->principal != from->principal || g->slot_bytes != from->slot_bytes || g->draining ||
            !stays(f, i))
            continue;
        for (uint32_t n = 0; n < g->slots; n++) {
            const struct tier_loc loc = {i * SLOTS_MAX + n + 1};
            struct slot *s = &g->slot[n];
            const bool free = s->state == SLOT_FREE;
            if ((best != NULL && !free) || (!free && !want->may_move(want->ctx, loc, s->block_no)))
                continue;
            *ret_loc = loc;
            best = s;
            if (free)
                return best;
        }
    }
    return best;
}

static void slots_exchange(const struct region *g, struct slot *s, const struct region *h,
                           struct slot *t)
{
    uint8_t *a = mem_of(g, s), *b = mem_of(h, t);
    const struct slot was = *s;
    for (uint32_t i = 0; i < g->slot_bytes; i++) {
        const uint8_t byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
    MUST(s->readers == 0 && s->state != SLOT_WRITING && t->readers == 0 &&
         t->state != SLOT_WRITING);
    const uint64_t gen = t->gen;
    *s = *t;
    *t = was;
    s->gen = was.gen + 1;
    t->gen = gen + 1;
}

static int fake_shift(struct tier *t, struct tier_loc loc, const struct tier_shift *want,
                      struct tier_loc *ret_loc)
{
    struct fake_tier *f = of(t);
    struct region *g, *h;
    struct slot *s = slot_at(f, loc, &g);
    struct tier_loc at;
    struct slot *to = shift_to(f, g, want, &at);
    if (to == NULL)
        return KVC_E_NO_ROOM;
    (void)slot_at(f, at, &h);
    const bool free = to->state == SLOT_FREE;
    const uint32_t other = to->block_no;
    slots_exchange(g, s, h, to);
    if (free) {
        h->used++;
        s->state = SLOT_TAKEN;
        fake_free(t, loc);
    } else {
        want->moved(want->ctx, other, at, loc);
    }
    *ret_loc = at;
    return 0;
}

static uint32_t fake_evacuate(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                              tier_occupant_fn *each, void *ctx)
{
    struct fake_tier *f = of(t);
    struct region *best = NULL;
    (void)bytes;
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        struct region *g = &f->region[i];
        if (g->principal == 0 || g->draining || (g->principal != principal && stays(f, i)))
            continue;
        const bool theirs = others && g->principal != principal,
                   had = best != NULL && others && best->principal != principal;
        if (best == NULL || (theirs == had ? g->used < best->used : theirs))
            best = g;
    }
    if (best == NULL)
        return 0;
    f->drains++;
    best->draining = true;
    uint32_t n = 0, slots = best->slots;
    uint32_t first = (uint32_t)(best - f->region) * SLOTS_MAX + 1;
    for (uint32_t s = 0; s < slots; s++) {
        if (best->slot[s].state == SLOT_FREE)
            continue;
        n++;
        each(ctx, (struct tier_loc){first + s}, best->slot[s].block_no);
    }
    return n;
}

static bool fake_helps(const struct tier *t, struct tier_loc loc, uint32_t principal,
                       uint32_t bytes)
{
    struct region *g;
    (void)slot_at(of(t), loc, &g);
    return g->used == 1 || (g->principal == principal && !g->draining &&
                            g->slot_bytes == slot_bytes_of(of(t), bytes));
}

static void fake_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct fake_tier *f = of(t);
    *ret = (struct tier_stats){.limit_bytes = (uint64_t)f->cfg.regions * f->cfg.region_bytes,
                               .lasting_bytes = f->cfg.lasting_bytes ? f->cfg.lasting_bytes
                                                                     : (uint64_t)f->cfg.regions *
                                                                           f->cfg.region_bytes,
                               .inflight_ops = f->inflight,
                               .bytes_per_s = f->cfg.bytes_per_s,
                               .regions = f->cfg.regions,
                               .region_bytes = f->cfg.region_bytes};
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        const struct region *g = &f->region[i];
        if (g->principal == 0)
            continue;
        ret->used_slots += g->used;
        ret->used_bytes += (uint64_t)g->used * g->slot_bytes;
        ret->mapped_bytes += f->cfg.region_bytes;
    }
    MUST(ret->used_bytes <= ret->limit_bytes);
}

/* ---- bytes ---- */

static void fake_submit(struct tier *t, struct tier_op *op)
{
    struct fake_tier *f = of(t);
    struct region *g;
    struct slot *s = slot_at(f, op->loc, &g);
    bool put = op->kind == TIER_PUT || op->kind == TIER_SEAL;
    MUST(op->done != NULL && op->bytes != 0 && (put || op->kind == TIER_VERIFY));
    MUST(op->kind != TIER_PUT || op->src != NULL);
    MUST(s->state == (put ? SLOT_TAKEN : SLOT_PUBLISHED));
    MUST(slot_bytes_of(f, op->bytes) == g->slot_bytes && f->inflight < INFLIGHT_MAX);
    if (put)
        s->state = SLOT_WRITING;
    else
        s->readers++;
    f->op[f->inflight++] = op;
    if (f->on_submit != NULL)
        f->on_submit(f->submit_ctx, op);
}

unsigned fake_tier_inflight(const struct fake_tier *f)
{
    return f->inflight;
}

struct tier_op *fake_tier_op(struct fake_tier *f, unsigned i)
{
    MUST(i < f->inflight);
    return f->op[i];
}

void fake_tier_end(struct fake_tier *f, struct tier_op *op, int status)
{
    unsigned i = 0;
    while (i < f->inflight && f->op[i] != op)
        i++;
    MUST(i < f->inflight);
    MUST(status != -ECANCELED || atomic_load(&op->cancel));
    memmove(&f->op[i], &f->op[i + 1], (--f->inflight - i) * sizeof(f->op[0]));
    struct region *g;
    struct slot *s = slot_at(f, op->loc, &g);
    if (op->kind == TIER_PUT || op->kind == TIER_SEAL) {
        MUST(s->state == SLOT_WRITING);
        if (op->kind == TIER_PUT)
            memcpy(mem_of(g, s), op->src, status == 0 ? op->bytes : op->bytes / 2);
        s->state = status == 0 ? SLOT_WRITTEN : SLOT_TAKEN;
    } else {
        MUST(s->state == SLOT_PUBLISHED && s->readers > 0);
        s->readers--;
    }
    op->status = status;
    if (status == 0)
        op->sum = hash_sum(mem_of(g, s), op->bytes);
    if (f->on_end != NULL)
        f->on_end(f->end_ctx, op);
    op->done(op);
}

unsigned fake_tier_run(struct fake_tier *f, unsigned n, unsigned fail_pct)
{
    static const int failures[] = {-EIO, -ETIMEDOUT};
    unsigned ended = 0;
    for (; ended < n && f->inflight > 0; ended++) {
        struct tier_op *op = f->op[fake_random(&f->random) % f->inflight];
        int status = 0;
        if (fake_random(&f->random) % 100 < fail_pct)
            status = failures[fake_random(&f->random) % ARRAY_LEN(failures)];
        if (atomic_load(&op->cancel) && fake_random(&f->random) % 4 != 0)
            status = -ECANCELED;
        fake_tier_end(f, op, status);
    }
    return ended;
}

void fake_tier_on_end(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx)
{
    f->on_end = fn;
    f->end_ctx = ctx;
}

void fake_tier_on_submit(struct fake_tier *f, fake_tier_ended_fn *fn, void *ctx)
{
    f->on_submit = fn;
    f->submit_ctx = ctx;
}

static void fake_set_label(struct tier *t, const struct tier_op *op)
{
    struct region *g;
    struct slot *s = slot_at(of(t), op->loc, &g);
    MUST(s->state == SLOT_WRITTEN && op->status == 0);
    s->state = SLOT_PUBLISHED;
    s->label = op->label;
    s->sum = op->sum;
}

static void fake_view(const struct tier *t, struct tier_loc loc, struct tier_view *ret)
{
    struct region *g;
    struct slot *s = slot_at(of(t), loc, &g);
    MUST(s->state == SLOT_PUBLISHED);
    uint64_t off = (uint64_t)(mem_of(g, s) - g->mem);
    *ret = (struct tier_view){
        .chunk = g->chunk, .bytes = g->slot_bytes, .off = off, .hdr = off, .gen = s->gen};
}

static struct hash128 fake_sum(const struct tier *t, struct tier_loc loc)
{
    struct region *g;
    struct slot *s = slot_at(of(t), loc, &g);
    MUST(s->state == SLOT_PUBLISHED);
    return s->sum;
}

static void *fake_payload(const struct tier *t, struct tier_loc loc)
{
    struct region *g;
    struct slot *s = slot_at(of(t), loc, &g);
    MUST(s->state == SLOT_TAKEN || s->state == SLOT_PUBLISHED);
    return mem_of(g, s);
}

/* ---- devices ---- */

struct tier_loc fake_tier_at(const struct fake_tier *f, const void *payload)
{
    const uint8_t *at = payload;
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        const struct region *g = &f->region[i];
        if (g->principal == 0 || at < g->mem || at >= g->mem + f->cfg.region_bytes)
            continue;
        const uint64_t off = (uint64_t)(at - g->mem);
        MUST(off % g->slot_bytes == 0);
        return (struct tier_loc){i * SLOTS_MAX + (uint32_t)(off / g->slot_bytes) + 1};
    }
    return (struct tier_loc){0};
}

uint8_t *fake_tier_memory(const struct fake_tier *f, struct tier_loc loc)
{
    struct region *g;
    struct slot *s = slot_at(f, loc, &g);
    return mem_of(g, s);
}

void fake_tier_use(struct fake_tier *f, struct tier_loc loc, uint32_t bytes, bool write)
{
    struct region *g;
    struct slot *s = slot_at(f, loc, &g);
    MUST(s->state == (write ? SLOT_TAKEN : SLOT_PUBLISHED));
    MUST(slot_bytes_of(f, bytes) == g->slot_bytes);
    if (write)
        s->state = SLOT_WRITING;
    else
        s->readers++;
}

void fake_tier_unuse(struct fake_tier *f, struct tier_loc loc, bool write, bool landed)
{
    struct region *g;
    struct slot *s = slot_at(f, loc, &g);
    MUST(write ? s->state == SLOT_WRITING : s->readers > 0);
    if (write)
        s->state = landed ? SLOT_WRITTEN : SLOT_TAKEN;
    else
        s->readers--;
}

void fake_tier_out(struct fake_tier *f, bool out)
{
    f->out = out;
    for (uint32_t i = 0; out && i < f->cfg.regions; i++) {
        const struct region *g = &f->region[i];
        for (uint32_t n = 0; g->principal != 0 && n < g->slots; n++) {
            g->slot[n].gen++;
            if (g->slot[n].state == SLOT_PUBLISHED) /* who is served it nevertheless sees that */
                memset(mem_of(g, &g->slot[n]), 0xee, g->slot_bytes);
        }
    }
}

static const struct slot *seen(const struct fake_tier *f, const struct tier_view *v,
                               const struct region **ret)
{
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        const struct region *g = &f->region[i];
        if (g->principal == 0 || g->chunk != v->chunk || v->off % g->slot_bytes != 0)
            continue;
        const struct slot *s = &g->slot[v->off / g->slot_bytes];
        *ret = g;
        return s->gen == v->gen && s->state == SLOT_PUBLISHED ? s : NULL;
    }
    return NULL;
}

void fake_tier_flip(struct fake_tier *f, const struct tier_view *view, uint32_t at)
{
    const struct region *g;
    const struct slot *s = seen(f, view, &g);
    MUST(s != NULL && at < g->slot_bytes);
    mem_of(g, s)[at] ^= 0x10;
}

const uint8_t *fake_tier_bytes(const struct fake_tier *f, const struct tier_view *view)
{
    const struct region *g;
    const struct slot *s = seen(f, view, &g);
    return s != NULL ? mem_of(g, s) : NULL;
}

bool fake_tier_label(const struct fake_tier *f, const struct tier_view *view,
                     struct tier_label *ret_label)
{
    const struct region *g;
    const struct slot *s = seen(f, view, &g);
    if (s != NULL)
        *ret_label = s->label;
    return s != NULL;
}

void fake_tier_each(struct fake_tier *f, fake_found_fn *fn, void *ctx)
{
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        struct region *g = &f->region[i];
        for (uint32_t n = 0; g->principal != 0 && n < g->slots; n++) {
            struct slot *s = &g->slot[n];
            struct tier_loc loc = {i * SLOTS_MAX + n + 1};
            if (s->state == SLOT_PUBLISHED)
                s->block_no = fn(ctx, &s->label, loc);
            else if (s->state != SLOT_FREE)
                s->state = SLOT_TAKEN, s->block_no = UINT32_MAX;
            s->readers = 0;
            if (s->state != SLOT_FREE && s->block_no == UINT32_MAX)
                fake_free(&f->tier, loc);
        }
    }
}

void fake_tier_crash(struct fake_tier *f)
{
    f->inflight = 0;
}

uint32_t fake_tier_evacuations(const struct fake_tier *f)
{
    return f->drains;
}

static uint8_t pattern(const uint8_t key[32], uint32_t shard, uint32_t i)
{
    return (uint8_t)(key[i % 32] + shard * 7 + i / 32 * 13 + 1);
}

void fake_fill(uint8_t *to, uint32_t bytes, const uint8_t key[32], uint32_t shard)
{
    for (uint32_t i = 0; i < bytes; i++)
        to[i] = pattern(key, shard, i);
}

bool fake_is_filled(const uint8_t *at, uint32_t bytes, const uint8_t key[32], uint32_t shard)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (at[i] != pattern(key, shard, i))
            return false;
    return true;
}

/* ---- life ---- */

static const struct tier_ops fake_ops = {
    .name = "fake",
    .alloc = fake_alloc,
    .free = fake_free,
    .invalidate = fake_invalidate,
    .submit = fake_submit,
    .set_label = fake_set_label,
    .sum = fake_sum,
    .slot_bytes = fake_slot_bytes,
    .stats = fake_stats,
};

static const struct tier_memory_ops fake_memory_ops = {
    .view = fake_view,
    .evacuate = fake_evacuate,
    .helps = fake_helps,
    .payload = fake_payload,
    .region = fake_region,
    .region_fill = fake_region_fill,
    .shift = fake_shift,
};

struct fake_tier *fake_tier_create(const struct fake_tier_config *config)
{
    MUST(config->regions >= 1 && config->regions <= 1000 && config->seed != 0);
    struct fake_tier *f = calloc(1, sizeof(*f));
    MUST(f != NULL);
    f->tier.ops = &fake_ops;
    f->tier.memory = &fake_memory_ops;
    f->cfg = *config;
    f->random = config->seed;
    f->region = calloc(config->regions, sizeof(*f->region));
    f->op = calloc(INFLIGHT_MAX, sizeof(struct tier_op *));
    MUST(f->region != NULL && f->op != NULL);
    uint32_t slots = MIN(config->region_bytes / config->slot_align, SLOTS_MAX);
    for (uint32_t i = 0; i < config->regions; i++) {
        f->region[i].mem = malloc(config->region_bytes);
        f->region[i].slot = calloc(slots, sizeof(struct slot));
        MUST(f->region[i].mem != NULL && f->region[i].slot != NULL);
    }
    return f;
}

void fake_tier_destroy(struct fake_tier **tier)
{
    struct fake_tier *f = *tier;
    MUST(f->inflight == 0);
    for (uint32_t i = 0; i < f->cfg.regions; i++) {
        MUST(f->region[i].principal == 0 && f->region[i].used == 0);
        free(f->region[i].mem);
        free(f->region[i].slot);
    }
    free(f->region);
    free(f->op);
    free(f);
    *tier = NULL;
}

struct tier *fake_tier_of(struct fake_tier *f)
{
    return &f->tier;
}
