/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers storage, which asks whether the blocks of a place that it wants to write anew are to be
 * kept, and hears which blocks it has moved or lost.
 *
 * A block is kept, that is written again, when it is durable, being copied or moved, or pinned and
 * not in memory. If memory has it too, it is kept when blocks on disk build on it, else its copy on
 * disk is dropped. One on disk alone is kept when its tree is in use, or when it is of a higher
 * level or worth more than most of what is on disk. Other blocks are demoted to slower storage, or
 * evicted with all that build on them.
 */
#include "keep.h"
#include "wants.h"

#define RECLAIM_STEP 64u
#define RECLAIM_TREE 256u
#define KEEP_FIRST   64u   /* samples before the first decision */
#define KEEP_SAMPLES 2u    /* by later decision: a turn makes up to RECLAIM_STEP of them */
#define KEEP_WINDOW  4096u /* after so many samples of levels, all counts are halved */
#define STUCK_MAX    64u

struct reclaim {
    uint32_t keep_percent;                /* percentage of what is on disk that is not worth
                                           * keeping */
    uint32_t seed;                        /* seed of the samples */
    uint32_t seen[RETAIN_MAX + 1], total; /* number of sampled blocks on disk: by level; in all */
    uint32_t disk_percent;                /* the last answer of quota_disk_percent() */
    uint64_t disk_percent_ms;             /* time of that answer, plus one; 0: none yet */
    uint64_t stats_ms;                    /* when core->disk.turn_ms was asked, plus one; 0:
                                           * never */
    struct {
        uint32_t block, gen;
        struct tier_loc loc;
    } stuck[STUCK_MAX]; /* occupants that could neither be kept nor dropped */
    uint32_t nstuck;
};

const struct core_module reclaim_module = {CORE_STATE(reclaim)};

/* ---- blocks that deserve to be kept ---- */

/* Samples whose level is lower. */
static uint32_t seen_below(const struct core *c, unsigned level)
{
    uint32_t n = 0;
    for (unsigned l = 0; l < level; l++)
        n += c->mod.reclaim->seen[l];
    return n;
}

static void level_learn(struct core *c, unsigned level)
{
    c->mod.reclaim->seen[level]++;
    if (++c->mod.reclaim->total < KEEP_WINDOW)
        return;
    c->mod.reclaim->total = 0;
    for (unsigned l = 0; l <= RETAIN_MAX; l++)
        c->mod.reclaim->total += c->mod.reclaim->seen[l] /= 2;
}

/* The percentage of blocks on disk at this level that is not worth keeping: 0 for levels above the
 * one at which the wanted part of all is reached, 100 for those below it. */
static uint32_t level_percent(const struct core *c, unsigned level)
{
    const uint64_t want = (uint64_t)c->mod.reclaim->keep_percent * c->mod.reclaim->total,
                   at = c->mod.reclaim->seen[level];
    const uint64_t below = 100ull * seen_below(c, level);
    if (c->mod.reclaim->total == 0)
        return c->mod.reclaim->keep_percent;
    if (want <= below)
        return 0;
    return at == 0 ? 100 : (uint32_t)MIN((want - below) / at, 100);
}

/* Samples blocks on disk: counts them by level, and learns the worth of those at the level at which
 * the wanted part of all is reached. */
static void keep_learn(struct core *c)
{
    const uint32_t samples = c->mod.reclaim->total > 0 ? KEEP_SAMPLES : KEEP_FIRST;
    for (uint32_t n = 0; n < samples && c->blocks_high > 0; n++) {
        c->mod.reclaim->seed = c->mod.reclaim->seed * 1664525u + 1013904223u;
        const uint32_t no = (uint32_t)(((uint64_t)c->mod.reclaim->seed * c->blocks_high) >> 32);
        const struct block *b = &c->blocks[no];
        if (b->state != BLOCK_PRESENT || !copy_there(b, CORE_STORAGE))
            continue;
        const unsigned level = retain_level(c->retain, no);
        level_learn(c, level);
        const uint32_t percent = level_percent(c, level);
        if (percent == 0 || percent >= 100)
            continue;
        c->disk.admit.keep.share = (float)percent / 100;
        admit_sample(&c->disk.admit, c->cfg.policy->worth(c->policy, no, c->now_ms));
    }
}

/* Whether b's bytes are guaranteed to its owner, as far as there is room; all guarantees are summed
 * up once in a millisecond. */
static bool is_guaranteed(struct core *c, const struct block *b, uint64_t bytes)
{
    const uint32_t account = block_ns(c, b)->account;
    if (account == 0)
        return false;
    if (c->mod.reclaim->disk_percent_ms != c->now_ms + 1) {
        c->mod.reclaim->disk_percent_ms = c->now_ms + 1;
        c->mod.reclaim->disk_percent = quota_disk_percent(c);
    }
    return retain_keeps(c->retain, account, CORE_STORAGE, bytes, c->mod.reclaim->disk_percent);
}

/* Whether b is worth keeping on disk: by its level, then by the policy. Bytes that are guaranteed
 * to its owner are kept. Blocks on disk are sampled for each decision, because the samples cost
 * some microseconds. */
static bool block_deserves(struct core *c, const struct block *b, bool must)
{
    keep_learn(c);
    const uint32_t no = block_no(c, b);
    const uint64_t bytes = block_bytes(c, b);
    const uint32_t percent = level_percent(c, retain_level(c->retain, no));
    must |= percent == 0 || is_guaranteed(c, b, bytes);
    if (!must && percent >= 100)
        return false;
    const float worth = c->cfg.policy->worth(c->policy, no, c->now_ms);
    return admit_keep(&c->disk.admit, worth, disk_chance(c, no), (uint32_t)MIN(bytes, UINT32_MAX),
                      must);
}

/* Whether a block of the tree is in use; a large tree counts as in use. */
static bool tree_in_use(struct core *c, struct block *b)
{
    const uint32_t root = block_no(c, b);
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;
         no = block_walk_next(c, root, no)) {
        const struct block *x = &c->blocks[no];
        if (++n > RECLAIM_TREE || !block_may_go(c, x))
            return true;
    }
    return false;
}

/* ---- occupants ---- */

static void reclaim_stick(struct core *c, uint32_t no, struct tier_loc loc)
{
    if (c->mod.reclaim->nstuck == STUCK_MAX)
        return; /* the segment waits until the block is used or evicted */
    c->mod.reclaim->stuck[c->mod.reclaim->nstuck].block = no;
    c->mod.reclaim->stuck[c->mod.reclaim->nstuck].gen = c->blocks[no].gen;
    c->mod.reclaim->stuck[c->mod.reclaim->nstuck++].loc = loc;
}

static bool has_loc(struct core *c, const struct block *b, struct tier_loc loc, uint32_t *ret_shard)
{
    const uint32_t shards = block_shards(c, b);
    for (uint32_t i = 0; i < shards; i++) {
        if (copy_loc(c, b, CORE_STORAGE, i).id != loc.id)
            continue;
        *ret_shard = i;
        return true;
    }
    return false;
}

static bool reclaim_keep(struct core *c, struct tier_loc loc, uint32_t no)
{
    if (!c->cfg.tier[CORE_STORAGE]->storage->keep(c->cfg.tier[CORE_STORAGE], loc, no)) {
        c->m.keeps_refused++;
        return false;
    }
    c->m.blocks_kept++;
    return true;
}

/* Moves a shard to slower storage, if there is some. */
static bool reclaim_demote(struct core *c, struct tier_loc loc, uint32_t no, uint32_t shard)
{
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const struct block *b = &c->blocks[no];
    const struct tier_demotion what = {.loc = loc,
                                       .block_no = no,
                                       .principal = block_ns(c, b)->principal,
                                       .bytes = block_group(c, b)->block_bytes,
                                       .label = block_label(c, b, shard),
                                       .deadline_ns = c->now_ns + MOVE_DEADLINE_NS};
    return disk->storage->demote && disk->storage->demote(disk, &what);
}

static void reclaim_one(struct core *c, struct tier_loc loc, uint32_t no)
{
    struct block *b = &c->blocks[no];
    uint32_t shard;
    if (b->state == BLOCK_FREE || !has_loc(c, b, loc, &shard))
        return; /* the block's room is about to be freed */
    if (b->state != BLOCK_PRESENT)
        return; /* dying: the room is given back with the block */
    const bool moving = b->copies > 0 || b->moving > 0;
    if (block_is_durable(b) || moving || (block_pinned(b) && !copy_there(b, CORE_HOST))) {
        if (!reclaim_keep(c, loc, no))
            reclaim_stick(c, no, loc);
        return;
    }
    if (copy_there(b, CORE_HOST)) {
        if (block_carries(c, b) == COPY_NONE || !block_deserves(c, b, true) ||
            !reclaim_keep(c, loc, no))
            disk_forget(c, b);
        return;
    }
    if (block_deserves(c, b, tree_in_use(c, b)) && reclaim_keep(c, loc, no))
        return;
    if (reclaim_demote(c, loc, no, shard))
        return;
    /* The tree goes: blocks in use are removed when they are released. If block_kept() says that
     * one must stay, this block stays too. */
    const uint32_t root = block_no(c, b);
    for (uint32_t at = block_walk_first(c, root); at != CORE_NONE;
         at = block_walk_next(c, root, at)) {
        if (!block_kept(c, &c->blocks[at]))
            continue;
        reclaim_stick(c, no, loc);
        return;
    }
    c->m.blocks_reclaimed += block_tree_size(c, root);
    block_kill_tree(c, b, KVC_MISS_EVICTED);
}

static void on_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    reclaim_one(ctx, loc, block_no);
}

static void stuck_again(struct core *c)
{
    const uint32_t n = c->mod.reclaim->nstuck;
    c->mod.reclaim->nstuck = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t no = c->mod.reclaim->stuck[i].block;
        if (c->blocks[no].gen == c->mod.reclaim->stuck[i].gen)
            reclaim_one(c, c->mod.reclaim->stuck[i].loc, no);
    }
}

bool reclaim_step(struct core *c)
{
    if (!core_stores(c))
        return false;
    if (c->mod.reclaim->nstuck > 0)
        stuck_again(c);
    if (c->mod.reclaim->stats_ms != c->now_ms + 1) {
        struct tier_stats st;
        c->mod.reclaim->stats_ms = c->now_ms + 1;
        c->cfg.tier[CORE_STORAGE]->ops->stats(c->cfg.tier[CORE_STORAGE], &st);
        c->disk.turn_ms = st.turn_ms;
    }
    return c->cfg.tier[CORE_STORAGE]->storage->reclaim(c->cfg.tier[CORE_STORAGE], RECLAIM_STEP,
                                                       on_occupant, c) == RECLAIM_STEP;
}

/* ---- events of storage ---- */

static void reclaim_on_moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    struct core *c = ctx;
    struct block *b = &c->blocks[block_no];
    uint32_t shard;
    MUST(b->state != BLOCK_FREE && has_loc(c, b, from, &shard));
    copy_set_loc(c, b, CORE_STORAGE, shard, to);
}

static void reclaim_on_lost(void *ctx, uint32_t block_no, struct tier_loc loc)
{
    struct core *c = ctx;
    struct block *b = &c->blocks[block_no];
    uint32_t shard;
    MUST(b->state != BLOCK_FREE && has_loc(c, b, loc, &shard));
    copy_set_loc(c, b, CORE_STORAGE, shard, (struct tier_loc){0});
    room_count(c, block_ns(c, b), CORE_STORAGE, -(int64_t)block_group(c, b)->block_bytes);
    c->m.blocks_lost_disk++;
    if (b->state != BLOCK_PRESENT)
        return;
    if (block_is_clean(b))
        clean_recall(c, b);
    const bool idle = b->copies == 0 && b->moving == 0;
    copy_set(c, b, CORE_STORAGE, idle ? COPY_NONE : COPY_INCOMPLETE);
    if (!idle)
        return; /* move_hear() frees its other shards there when nothing is in flight */
    disk_drop(c, b);
    if (!copy_there(b, CORE_HOST))
        block_kill_tree(c, b, KVC_MISS_DROPPED);
}

static void reclaim_on_room(void *ctx)
{
    struct core *c = ctx;
    c->disk.pause_ms = c->disk.room_vain_ms = 0;
    names_room(c);
}

void core_keep_percent(struct core *c, uint32_t percent)
{
    c->mod.reclaim->keep_percent = MIN(percent, 100);
}

uint32_t core_keep_percent_now(const struct core *c)
{
    return c->mod.reclaim->keep_percent;
}

void reclaim_listen(struct core *c)
{
    c->mod.reclaim->keep_percent = ADMIT_KEEP_PERCENT;
    admit_init(&c->disk.admit, ADMIT_KEEP_PERCENT);
    c->cfg.tier[CORE_STORAGE]->events = (struct tier_events){
        .ctx = c, .moved = reclaim_on_moved, .lost = reclaim_on_lost, .room = reclaim_on_room};
}
