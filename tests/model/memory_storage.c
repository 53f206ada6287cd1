/* SPDX-License-Identifier: Apache-2.0 */
#include "memory_storage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "list.h"

enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_WRITTEN, SLOT_PUBLISHED };

struct slot {
    enum slot_state state;
    bool told; /* reported by reclaim() */
    unsigned inflight;
    uint32_t block_no, bytes;
    uint64_t serial; /* order of what was stored */
    struct hash128 sum;
    unsigned char *mem;
};

struct memory_storage {
    struct tier tier;
    uint32_t slots, used, fail, puts;
    uint64_t serial;
    struct slot *slot;
    struct tier_op *first, **last; /* submitted, and not begun */
};

static struct memory_storage *of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct memory_storage, tier);
}

static struct slot *slot_at(const struct memory_storage *m, struct tier_loc loc)
{
    MUST(loc.id >= 1 && loc.id <= m->slots && m->slot[loc.id - 1].state != SLOT_FREE);
    return &m->slot[loc.id - 1];
}

static int memory_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                        uint32_t block_no, struct tier_loc *ret_loc)
{
    struct memory_storage *m = of(t);
    MUST(principal != 0 && bytes != 0 && beside.id <= m->slots);
    for (uint32_t i = 0; i < m->slots; i++) {
        if (m->slot[i].state != SLOT_FREE)
            continue;
        m->slot[i] = (struct slot){
            .state = SLOT_TAKEN, .block_no = block_no, .bytes = bytes, .mem = malloc(bytes)};
        MUST(m->slot[i].mem != NULL);
        m->used++;
        *ret_loc = (struct tier_loc){i + 1};
        return 0;
    }
    return KVC_E_NO_ROOM;
}

static void memory_free(struct tier *t, struct tier_loc loc)
{
    struct slot *s = slot_at(of(t), loc);
    MUST(s->inflight == 0);
    free(s->mem);
    *s = (struct slot){.state = SLOT_FREE};
    of(t)->used--;
}

static void memory_invalidate(struct tier *t, struct tier_loc loc)
{
    MUST(slot_at(of(t), loc)->state == SLOT_PUBLISHED);
}

static void memory_submit(struct tier *t, struct tier_op *op)
{
    struct memory_storage *m = of(t);
    struct slot *s = slot_at(m, op->loc);
    MUST(op->done != NULL && op->bytes == s->bytes && op->deadline_ns > 0);
    MUST(s->state == (op->kind == TIER_PUT ? SLOT_TAKEN : SLOT_PUBLISHED));
    s->inflight++;
    op->next = NULL;
    *m->last = op;
    m->last = &op->next;
}

static void memory_end(struct memory_storage *m, struct tier_op *op)
{
    struct slot *s = slot_at(m, op->loc);
    s->inflight--;
    op->status = m->fail > 0 ? -EIO : 0;
    m->fail -= m->fail > 0;
    if (op->status == 0 && op->kind == TIER_PUT) {
        memcpy(s->mem, op->src, s->bytes);
        s->state = SLOT_WRITTEN;
        m->puts++;
    } else if (op->status == 0 && op->kind == TIER_GET) {
        memcpy(op->dst, s->mem, s->bytes);
    } else if (op->status == 0) {
        op->sum = hash_sum(s->mem, s->bytes);
    }
    op->done(op);
}

static void memory_kick(struct tier *t)
{
    struct memory_storage *m = of(t);
    struct tier_op *op = m->first;
    m->first = NULL;
    m->last = &m->first;
    for (struct tier_op *next; op; op = next) {
        next = op->next;
        memory_end(m, op);
    }
}

static void memory_set_label(struct tier *t, const struct tier_op *op)
{
    struct slot *s = slot_at(of(t), op->loc);
    MUST(s->state == SLOT_WRITTEN && op->status == 0 && !op->label.durable);
    s->state = SLOT_PUBLISHED;
    s->sum = op->sum;
    s->serial = ++of(t)->serial;
}

static struct hash128 memory_sum(const struct tier *t, struct tier_loc loc)
{
    MUST(slot_at(of(t), loc)->state == SLOT_PUBLISHED);
    return slot_at(of(t), loc)->sum;
}

static uint32_t memory_slot_bytes(const struct tier *t, uint32_t bytes)
{
    (void)t;
    return bytes;
}

static void memory_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct memory_storage *m = of(t);
    *ret =
        (struct tier_stats){.limit_bytes = m->slots, .used_bytes = m->used, .used_slots = m->used};
}

static bool memory_readable(const struct tier *t, struct tier_loc loc)
{
    return slot_at(of(t), loc)->state == SLOT_PUBLISHED;
}

/* What was stored longest ago and was not reported yet. */
static struct slot *slot_oldest(const struct memory_storage *m)
{
    struct slot *oldest = NULL;
    for (uint32_t i = 0; i < m->slots; i++) {
        struct slot *s = &m->slot[i];
        if (s->state == SLOT_PUBLISHED && !s->told && (!oldest || s->serial < oldest->serial))
            oldest = s;
    }
    return oldest;
}

/* An eighth of it is to be free, counting what was reported. */
static uint32_t memory_reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx)
{
    struct memory_storage *m = of(t);
    uint32_t leaving = 0, n = 0;
    for (uint32_t i = 0; i < m->slots; i++)
        leaving += m->slot[i].told;
    const uint32_t most = m->slots - m->slots / 8, stay = m->used - leaving;
    for (struct slot *s; n < max && stay > most + n && (s = slot_oldest(m)) != NULL; n++) {
        s->told = true;
        each(ctx, (struct tier_loc){(uint32_t)(s - m->slot) + 1}, s->block_no);
    }
    return n;
}

/* It moves nothing within itself. */
static bool memory_keep(struct tier *t, struct tier_loc loc, uint32_t block_no)
{
    MUST(slot_at(of(t), loc)->block_no == block_no);
    return false;
}

static bool memory_admits(const struct tier *t, uint32_t bytes, uint64_t age_ms)
{
    (void)age_ms;
    MUST(bytes > 0);
    return of(t)->used < of(t)->slots;
}

static const struct tier_ops memory_ops = {.name = "memory",
                                           .alloc = memory_alloc,
                                           .free = memory_free,
                                           .invalidate = memory_invalidate,
                                           .submit = memory_submit,
                                           .set_label = memory_set_label,
                                           .sum = memory_sum,
                                           .slot_bytes = memory_slot_bytes,
                                           .stats = memory_stats};

static const struct tier_storage_ops memory_storage_ops = {.kick = memory_kick,
                                                           .readable = memory_readable,
                                                           .reclaim = memory_reclaim,
                                                           .keep = memory_keep,
                                                           .admits = memory_admits};

struct memory_storage *memory_storage_create(uint32_t slots)
{
    struct memory_storage *m = calloc(1, sizeof *m);
    MUST(m != NULL && slots > 0);
    m->tier.ops = &memory_ops;
    m->tier.storage = &memory_storage_ops;
    m->slots = slots;
    m->slot = calloc(slots, sizeof *m->slot);
    m->last = &m->first;
    MUST(m->slot != NULL);
    return m;
}

void memory_storage_destroy(struct memory_storage **m)
{
    MUST((*m)->first == NULL);
    for (uint32_t i = 0; i < (*m)->slots; i++)
        free((*m)->slot[i].mem);
    free((*m)->slot);
    free(*m);
    *m = NULL;
}

struct tier *memory_storage_tier(struct memory_storage *m)
{
    return &m->tier;
}

uint32_t memory_storage_used(const struct memory_storage *m)
{
    return m->used;
}

void memory_storage_fail(struct memory_storage *m, uint32_t n)
{
    m->fail = n;
}

uint32_t memory_storage_puts(const struct memory_storage *m)
{
    return m->puts;
}
