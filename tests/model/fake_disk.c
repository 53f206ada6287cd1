/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_disk.h"

#include <stdlib.h>

#include "fake_tier.h"
#include "list.h"

#define INFLIGHT_MAX 16384u

enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_WRITING, SLOT_WRITTEN, SLOT_PUBLISHED };

struct slot {
    uint8_t state;
    bool wanted, told, keeping; /* of a region to be emptied; reported; to be moved */
    unsigned readers;
    uint32_t block_no, bytes;
    struct tier_label label;
    struct hash128 sum;
    uint8_t *mem;
};

struct fake_disk {
    struct tier tier;
    struct fake_disk_config cfg;
    uint64_t random;
    bool out, grows, admit, keep, lost;
    struct slot *slot;
    uint32_t next; /* where alloc looks first, as a log does */
    uint32_t puts[2];
    uint32_t made_ordinary, invalidated;
    unsigned inflight, kicked;
    struct tier_op *op[INFLIGHT_MAX];
};

static struct fake_disk *of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct fake_disk, tier);
}

static struct slot *slot_at(const struct fake_disk *f, struct tier_loc loc)
{
    MUST(loc.id >= 1 && loc.id <= f->cfg.slots);
    return &f->slot[loc.id - 1];
}

static int disk_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                      uint32_t block_no, struct tier_loc *ret_loc)
{
    struct fake_disk *f = of(t);
    MUST(principal != 0 && bytes != 0 && beside.id <= f->cfg.slots);
    if (f->grows)
        return KVC_E_BUSY;
    for (uint32_t i = 0; i < f->cfg.slots && !f->out; i++) {
        const uint32_t at = (f->next + i) % f->cfg.slots;
        struct slot *s = &f->slot[at];
        if (s->state != SLOT_FREE || s->wanted)
            continue;
        f->next = at + 1;
        *s = (struct slot){.state = SLOT_TAKEN, .block_no = block_no, .bytes = bytes};
        s->mem = calloc(1, bytes);
        MUST(s->mem != NULL);
        *ret_loc = (struct tier_loc){at + 1};
        return 0;
    }
    return f->out ? KVC_E_TIER : KVC_E_NO_ROOM;
}

static void slot_free(struct slot *s)
{
    const bool wanted = s->wanted;
    free(s->mem);
    *s = (struct slot){.wanted = wanted};
}

/* A region of which nothing is left can be written again. */
static void region_settle(struct fake_disk *f, uint32_t at)
{
    const uint32_t first = at / f->cfg.region_slots * f->cfg.region_slots;
    const uint32_t end = MIN(first + f->cfg.region_slots, f->cfg.slots);
    for (uint32_t i = first; i < end; i++)
        if (f->slot[i].state != SLOT_FREE)
            return;
    for (uint32_t i = first; i < end; i++)
        f->slot[i].wanted = false;
}

static void disk_free(struct tier *t, struct tier_loc loc)
{
    struct slot *s = slot_at(of(t), loc);
    MUST(s->state != SLOT_FREE && s->state != SLOT_WRITING && s->readers == 0);
    slot_free(s);
    region_settle(of(t), loc.id - 1);
}

static void disk_invalidate(struct tier *t, struct tier_loc loc)
{
    MUST(slot_at(of(t), loc)->state == SLOT_PUBLISHED);
    of(t)->invalidated++;
}

static void disk_submit(struct tier *t, struct tier_op *op)
{
    struct fake_disk *f = of(t);
    struct slot *s = slot_at(f, op->loc);
    MUST(op->done != NULL && op->bytes == s->bytes && op->deadline_ns > 0);
    MUST(f->inflight < INFLIGHT_MAX && (op->kind != TIER_PUT || op->label.print != 0));
    MUST(op->kind != TIER_PUT || op->label.durable == ((op->flags & TIER_F_DURABLE) != 0));
    if (op->kind == TIER_PUT) {
        MUST(s->state == SLOT_TAKEN && op->src != NULL);
        s->state = SLOT_WRITING;
    } else {
        MUST(op->kind == TIER_VERIFY || (op->kind == TIER_GET && op->dst != NULL));
        MUST(s->state == SLOT_PUBLISHED);
        s->readers++;
    }
    f->op[f->inflight++] = op;
}

static void disk_kick(struct tier *t)
{
    of(t)->kicked = of(t)->inflight;
}

static void op_end(struct fake_disk *f, unsigned i, int status)
{
    struct tier_op *op = f->op[i];
    memmove(&f->op[i], &f->op[i + 1], (--f->inflight - i) * sizeof(f->op[0]));
    f->kicked--;
    struct slot *s = slot_at(f, op->loc);
    const uint32_t n = status == 0 ? op->bytes : op->bytes / 2;
    if (op->kind == TIER_PUT) {
        const struct hash128 is = hash_sum(op->src, op->bytes);
        MUST(hash128_equal(&is, &op->sum)); /* no test here lets memory go bad before */
        memcpy(s->mem, op->src, n);
        s->state = status == 0 ? SLOT_WRITTEN : SLOT_TAKEN;
        if (status == 0)
            f->puts[op->flags & TIER_F_DURABLE]++;
    } else {
        s->readers--;
        if (op->kind == TIER_GET)
            memcpy(op->dst, s->mem, n);
        else
            op->sum = hash_sum(s->mem, s->bytes);
    }
    op->status = status;
    op->done(op);
}

static void disk_set_label(struct tier *t, const struct tier_op *op)
{
    struct slot *s = slot_at(of(t), op->loc);
    MUST(s->state == SLOT_WRITTEN && op->status == 0);
    s->state = SLOT_PUBLISHED;
    s->label = op->label;
    s->sum = op->sum;
}

static struct hash128 disk_sum(const struct tier *t, struct tier_loc loc)
{
    const struct slot *s = slot_at(of(t), loc);
    MUST(s->state == SLOT_PUBLISHED);
    return s->sum;
}

static uint32_t disk_slot_bytes(const struct tier *t, uint32_t bytes)
{
    (void)t;
    return bytes;
}

static void disk_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct fake_disk *f = of(t);
    *ret = (struct tier_stats){.limit_bytes = f->cfg.slots,
                               .lasting_bytes =
                                   f->cfg.lasting_bytes ? f->cfg.lasting_bytes : UINT64_MAX,
                               .turn_ms = f->cfg.turn_ms,
                               .inflight_ops = f->inflight};
    ret->used_slots = ret->used_bytes = fake_disk_used(f);
}

static bool disk_readable(const struct tier *t, struct tier_loc loc)
{
    MUST(slot_at(of(t), loc)->state == SLOT_PUBLISHED);
    return !of(t)->out;
}

static uint32_t disk_reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx)
{
    struct fake_disk *f = of(t);
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->cfg.slots && n < max; i++) {
        struct slot *s = &f->slot[i];
        if (!s->wanted || s->told || s->state != SLOT_PUBLISHED)
            continue;
        s->told = true;
        n++;
        each(ctx, (struct tier_loc){i + 1}, s->block_no);
    }
    return n;
}

static bool disk_keep(struct tier *t, struct tier_loc loc, uint32_t block_no)
{
    struct slot *s = slot_at(of(t), loc);
    MUST(s->state == SLOT_PUBLISHED && s->block_no == block_no);
    if (!of(t)->keep || of(t)->out)
        return false;
    s->keeping = true;
    return true;
}

static bool disk_admits(const struct tier *t, uint32_t bytes, uint64_t age_ms)
{
    (void)age_ms;
    MUST(bytes > 0);
    return of(t)->admit && !of(t)->out;
}

static void disk_make_ordinary(struct tier *t, struct tier_loc loc)
{
    struct slot *s = slot_at(of(t), loc);
    MUST(s->state == SLOT_PUBLISHED);
    of(t)->made_ordinary += s->label.durable;
}

static const struct tier_ops disk_ops = {
    .name = "fake disk",
    .alloc = disk_alloc,
    .free = disk_free,
    .invalidate = disk_invalidate,
    .submit = disk_submit,
    .set_label = disk_set_label,
    .sum = disk_sum,
    .slot_bytes = disk_slot_bytes,
    .stats = disk_stats,
};

static const struct tier_storage_ops disk_storage_ops = {
    .kick = disk_kick,
    .readable = disk_readable,
    .reclaim = disk_reclaim,
    .keep = disk_keep,
    .make_ordinary = disk_make_ordinary,
    .admits = disk_admits,
};

/* ---- what the test does ---- */

static void slot_lose(struct fake_disk *f, struct slot *s)
{
    const uint32_t block_no = s->block_no, at = (uint32_t)(s - f->slot);
    f->lost = true;
    slot_free(s);
    region_settle(f, at);
    f->tier.events.lost(f->tier.events.ctx, block_no, (struct tier_loc){at + 1});
}

/* A kept slot finds new room, or is lost. */
static void move_one(struct fake_disk *f, uint32_t at, bool fails)
{
    struct slot *s = &f->slot[at];
    struct tier_loc from = {at + 1}, to;
    if (s->readers > 0 || f->out)
        return;
    s->keeping = false;
    const uint32_t block_no = s->block_no;
    if (fails || disk_alloc(&f->tier, 1, s->bytes, (struct tier_loc){0}, block_no, &to) != 0) {
        slot_lose(f, s);
        return;
    }
    struct slot *d = slot_at(f, to);
    memcpy(d->mem, s->mem, s->bytes);
    d->state = SLOT_PUBLISHED;
    d->label = s->label;
    d->sum = s->sum;
    slot_free(s);
    region_settle(f, at);
    f->tier.events.moved(f->tier.events.ctx, block_no, from, to);
}

unsigned fake_disk_run(struct fake_disk *f, unsigned n, unsigned fail_pct)
{
    unsigned ended = 0;
    for (; ended < n && f->kicked > 0; ended++) {
        const unsigned i = (unsigned)(fake_random(&f->random) % f->kicked);
        int status = f->out ? -EIO : 0;
        if (fake_random(&f->random) % 100 < fail_pct)
            status = fake_random(&f->random) % 2 ? -EIO : -ETIMEDOUT;
        op_end(f, i, status);
    }
    for (uint32_t i = 0; i < f->cfg.slots; i++)
        if (f->slot[i].keeping && fake_random(&f->random) % 2)
            move_one(f, i, fake_random(&f->random) % 100 < fail_pct);
    return ended;
}

bool fake_disk_lost(const struct fake_disk *f)
{
    return f->lost;
}

unsigned fake_disk_inflight(const struct fake_disk *f)
{
    return f->inflight;
}

uint32_t fake_disk_used(const struct fake_disk *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->cfg.slots; i++)
        n += f->slot[i].state != SLOT_FREE;
    return n;
}

uint32_t fake_disk_invalidated(const struct fake_disk *f)
{
    return f->invalidated;
}

uint32_t fake_disk_made_ordinary(const struct fake_disk *f)
{
    return f->made_ordinary;
}

uint32_t fake_disk_puts(const struct fake_disk *f, bool durable)
{
    return f->puts[durable];
}

bool fake_disk_is_out(const struct fake_disk *f)
{
    return f->out;
}

void fake_disk_out(struct fake_disk *f, bool out)
{
    const bool back = f->out && !out;
    f->out = out;
    if (back)
        f->tier.events.room(f->tier.events.ctx);
}

void fake_disk_grows(struct fake_disk *f, bool grows)
{
    const bool done = f->grows && !grows;
    f->grows = grows;
    if (done)
        f->tier.events.room(f->tier.events.ctx);
}

void fake_disk_admit(struct fake_disk *f, bool admit)
{
    f->admit = admit;
}

void fake_disk_keeps(struct fake_disk *f, bool keep)
{
    f->keep = keep;
}

void fake_disk_want(struct fake_disk *f, uint32_t region)
{
    const uint32_t first = region * f->cfg.region_slots;
    MUST(first < f->cfg.slots);
    for (uint32_t i = first; i < MIN(first + f->cfg.region_slots, f->cfg.slots); i++) {
        f->slot[i].wanted = true;
        f->slot[i].told = false;
    }
    region_settle(f, first);
}

bool fake_disk_lose(struct fake_disk *f)
{
    const uint32_t from = (uint32_t)(fake_random(&f->random) % f->cfg.slots);
    for (uint32_t i = 0; i < f->cfg.slots; i++) {
        struct slot *s = &f->slot[(from + i) % f->cfg.slots];
        if (s->state != SLOT_PUBLISHED || s->readers > 0)
            continue;
        slot_lose(f, s);
        return true;
    }
    return false;
}

static struct slot *slot_of(struct fake_disk *f, const uint8_t key[32], uint32_t shard)
{
    for (uint32_t i = 0; i < f->cfg.slots; i++) {
        struct slot *s = &f->slot[i];
        if (s->state == SLOT_PUBLISHED && s->label.shard == shard &&
            memcmp(s->label.key.b, key, 32) == 0)
            return s;
    }
    return NULL;
}

bool fake_disk_lose_this(struct fake_disk *f, const uint8_t key[32], uint32_t shard)
{
    struct slot *s = slot_of(f, key, shard);
    if (!s || s->readers > 0)
        return false;
    slot_lose(f, s);
    return true;
}

bool fake_disk_plain(struct fake_disk *f, const uint8_t key[32], uint32_t shard)
{
    struct slot *s = slot_of(f, key, shard);
    if (s)
        s->label.durable = s->label.by_pin = false;
    return s != NULL;
}

bool fake_disk_flip(struct fake_disk *f, const uint8_t key[32], uint32_t shard)
{
    struct slot *s = slot_of(f, key, shard);
    if (s)
        s->mem[s->bytes / 2] ^= 0x10;
    return s != NULL;
}

void fake_disk_each(struct fake_disk *f, fake_kept_fn *fn, void *ctx)
{
    for (uint32_t i = 0; i < f->cfg.slots; i++) {
        struct slot *s = &f->slot[i];
        if (s->state == SLOT_FREE)
            continue;
        const struct fake_kept kept = {.label = s->label, .bytes = s->bytes, .loc = {i + 1}};
        s->block_no = fn(ctx, &kept);
        if (s->block_no == UINT32_MAX)
            slot_free(s);
    }
}

void fake_disk_crash(struct fake_disk *f)
{
    f->inflight = f->kicked = 0;
    f->out = false;
    f->tier.events = (struct tier_events){.ctx = NULL};
    for (uint32_t i = 0; i < f->cfg.slots; i++) {
        struct slot *s = &f->slot[i];
        s->readers = 0;
        s->keeping = s->told = s->wanted = false;
        if (s->state != SLOT_PUBLISHED && s->state != SLOT_FREE)
            slot_free(s);
    }
}

struct fake_disk *fake_disk_create(const struct fake_disk_config *config)
{
    MUST(config->slots > 0 && config->region_slots > 0 && config->seed != 0);
    struct fake_disk *f = calloc(1, sizeof(*f));
    MUST(f != NULL);
    f->tier.ops = &disk_ops;
    f->tier.storage = &disk_storage_ops;
    f->cfg = *config;
    f->random = config->seed;
    f->admit = f->keep = true;
    f->slot = calloc(config->slots, sizeof(struct slot));
    MUST(f->slot != NULL);
    return f;
}

void fake_disk_destroy(struct fake_disk **disk)
{
    struct fake_disk *f = *disk;
    MUST(f->inflight == 0 && fake_disk_used(f) == 0);
    free(f->slot);
    free(f);
    *disk = NULL;
}

struct tier *fake_disk_of(struct fake_disk *f)
{
    return &f->tier;
}
