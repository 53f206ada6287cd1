/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of clean blocks. A clean block is on disk as well, so its copy in memory can be dropped
 * without loss. Blocks stay in the ring, oldest first, until a store needs the room (clean_pop()),
 * or a use brings the block back to the policy.
 */
#include "block.h"

#define CLEAN_LOOK 256u /* entries of the ring that clean_of() looks at */

struct clean {
    uint32_t *no;        /* record numbers: a ring, in the order in which their copies in memory are
                          * dropped */
    uint32_t max, at, n; /* entries of the ring: at most; index of the first; number */
};

static uint32_t clean_max(const struct core_config *cfg)
{
    return cfg->tier[CORE_STORAGE] ? cfg->blocks_max / 8 + 64 : 1;
}

uint64_t clean_bytes(const struct core_config *cfg)
{
    return (uint64_t)clean_max(cfg) * sizeof(uint32_t);
}

static int clean_create(struct core *c)
{
    c->mod.clean->max = clean_max(&c->cfg);
    c->mod.clean->no = core__pages(clean_bytes(&c->cfg));
    return c->mod.clean->no ? 0 : -ENOMEM;
}

static void clean_destroy(struct core *c)
{
    core__pages_put(c->mod.clean->no, clean_bytes(&c->cfg));
}

static struct sys_range clean_memory(const struct core *c)
{
    return (struct sys_range){c->mod.clean->no, clean_bytes(&c->cfg)};
}

const struct core_module clean_module = {CORE_STATE(clean), .create = clean_create,
                                         .destroy = clean_destroy, .memory = clean_memory};

static uint32_t ring_at(const struct core *c, uint32_t i)
{
    return (c->mod.clean->at + i) % c->mod.clean->max;
}

static struct block *ring_block(const struct core *c, uint32_t i)
{
    return &c->blocks[c->mod.clean->no[ring_at(c, i)]];
}

/* Removes entries of blocks that are not clean any more. */
static void ring_compact(struct core *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->mod.clean->n; i++) {
        const uint32_t no = c->mod.clean->no[ring_at(c, i)];
        if (block_is_clean(&c->blocks[no]))
            c->mod.clean->no[ring_at(c, n++)] = no;
        else
            block_clear(&c->blocks[no], BLOCK_F_RING);
    }
    c->mod.clean->n = n;
}

/* Makes a place in the ring, if it is full of blocks that are not clean any more. */
bool clean_takes(struct core *c, const struct block *b)
{
    if (!(b->flags & BLOCK_F_RING) && c->mod.clean->n == c->mod.clean->max)
        ring_compact(c);
    return (b->flags & BLOCK_F_RING) || c->mod.clean->n < c->mod.clean->max;
}

void clean_push(struct core *c, struct block *b)
{
    if (!clean_takes(c, b)) {
        block_enter(c, b);
        return;
    }
    if (!(b->flags & BLOCK_F_RING))
        c->mod.clean->no[ring_at(c, c->mod.clean->n++)] = block_no(c, b);
    b->flags |= BLOCK_F_RING;
    b->parked = PARKED_CLEAN;
    c->m.clean_bytes += block_bytes(c, b);
}

void clean_end(struct core *c, struct block *b)
{
    if (!block_is_clean(b))
        return;
    b->parked = PARKED_NOT;
    c->m.clean_bytes -= block_bytes(c, b);
}

void clean_recall(struct core *c, struct block *b)
{
    MUST(block_is_clean(b));
    clean_end(c, b);
    block_enter(c, b);
}

struct block *clean_pop(struct core *c, uint32_t account)
{
    while (c->mod.clean->n > 0) {
        struct block *b = ring_block(c, 0);
        c->mod.clean->at = ring_at(c, 1);
        c->mod.clean->n--;
        block_clear(b, BLOCK_F_RING);
        if (!block_is_clean(b))
            continue;
        if (copy_may_drop(c, b) &&
            !retain_protects(c->retain, block_ns(c, b)->account, account, CORE_HOST, c->largest))
            return b;
        clean_recall(c, b);
    }
    return NULL;
}

struct block *clean_of(struct core *c, uint32_t within)
{
    const uint32_t n = MIN(c->mod.clean->n, CLEAN_LOOK);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = ring_block(c, i);
        if (block_is_clean(b) && copy_may_drop(c, b) &&
            retain_is_within(c->retain, block_ns(c, b)->account, within))
            return b;
    }
    return NULL;
}

void clean_check(const struct core *c, uint64_t ring)
{
    MUST(ring == c->mod.clean->n);
    for (uint32_t i = 0; i < c->mod.clean->n; i++)
        MUST(ring_block(c, i)->flags & BLOCK_F_RING);
}

void disk_forget(struct core *c, struct block *b)
{
    if (block_is_clean(b))
        clean_recall(c, b);
    disk_drop(c, b);
}
