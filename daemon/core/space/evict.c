/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicts blocks for good, to make room in host memory, or for records: the victim that levels and
 * policy name, with all that build on it. A store gets here when memory is full and no clean copy
 * can be dropped.
 */
#include "space.h"

/* A subtree of more blocks than that is not evicted for the sake of its root. */
#define SUBTREE_MAX 256u
/* Records in which disk_leaf() looks for a block to evict, when no record is free. */
#define HAND_STEPS 64u

struct evict {
    uint32_t hand; /* the last record that disk_leaf() has looked at */
};

const struct core_module evict_module = {CORE_STATE(evict)};

static void evict_for_room(struct core *c, struct block *b)
{
    c->m.blocks_evicted++;
    if (core_stores(c) && !copy_there(b, CORE_STORAGE))
        c->m.blocks_lost_unsaved++;
    block_kill(c, b, KVC_MISS_EVICTED);
}

/* A policy calls this for each candidate. True: the block may be evicted, or the search is to stop
 * (evict_paused()). */
static bool evict_look(void *ctx, uint32_t no)
{
    struct core *c = ctx;
    if (evict_paused(c) || block_can_leave(c, no))
        return true;
    c->work.done += WORK_LOOK;
    c->work.looks_left -= c->work.looks_left != LOOKS_NO_END;
    return false;
}

uint32_t evict_next(struct core *c, uint32_t account, uint32_t within)
{
    const uint32_t no =
        retain_victim(c->retain, account, within, c->largest, c->now_ms, evict_look, c);
    return evict_paused(c) ? POLICY_NO_BLOCK : no;
}

bool evict_subtree(struct core *c, struct block *b, bool spare_higher)
{
    const uint32_t root = block_no(c, b);
    const unsigned level = spare_higher ? retain_level(c->retain, root) : RETAIN_MAX;
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;
         no = block_walk_next(c, root, no)) {
        const struct block *x = &c->blocks[no];
        if (++n > SUBTREE_MAX || !block_may_go(c, x) || retain_level(c->retain, no) > level)
            return false;
    }
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;) {
        const uint32_t next = block_walk_next(c, root, no);
        evict_for_room(c, &c->blocks[no]);
        no = next;
    }
    return true;
}

bool evict_goes_first(struct core *c, const struct block *a, const struct block *b)
{
    const unsigned la = retain_level(c->retain, block_no(c, a)),
                   lb = retain_level(c->retain, block_no(c, b));
    return la != lb ? la < lb : core__age_ms(c, a) > core__age_ms(c, b);
}

static uint32_t hand_next(struct core *c)
{
    if (++c->mod.evict->hand >= c->blocks_high)
        c->mod.evict->hand = 0;
    return c->mod.evict->hand;
}

/* Of the next HAND_STEPS records, a block on disk alone without children: the one of the lowest
 * level that was used longest ago. */
static struct block *disk_leaf(struct core *c, uint32_t account)
{
    struct block *best = NULL;
    const uint32_t steps = MIN(HAND_STEPS, c->blocks_high);
    for (uint32_t n = 0; n < steps; n++) {
        const uint32_t no = hand_next(c);
        struct block *b = &c->blocks[no];
        if (!(b->flags & BLOCK_F_LINKED) || b->state != BLOCK_PRESENT || copy_there(b, CORE_HOST) ||
            b->child != CORE_NONE || !block_may_go(c, b) ||
            retain_protects(c->retain, block_ns(c, b)->account, account, CORE_STORAGE,
                            block_bytes(c, b)))
            continue;
        if (!best || evict_goes_first(c, b, best))
            best = b;
    }
    return best;
}

/* A victim that could not be evicted counts as just used, so that the policy does not name it again
 * at once. */
static void evict_spare(struct core *c, uint32_t no)
{
    c->cfg.policy->touch(c->policy, no, c->now_ms);
}

int evict_victim(struct core *c, uint32_t account, uint32_t victim, bool spare_higher,
                 struct alloc_request *w)
{
    if (w->judged && !retain_admits(c->retain, account, &w->hint, w->level, victim, c->now_ms))
        return KVC_E_NOT_WORTH;
    if (!evict_subtree(c, &c->blocks[victim], spare_higher)) {
        evict_spare(c, victim);
        return KVC_E_FULL;
    }
    w->judged = false;
    return 0;
}

int evict_one(struct core *c, uint32_t account, struct alloc_request *w)
{
    struct block *b = core_stores(c) ? disk_leaf(c, account) : NULL;
    if (b) {
        evict_for_room(c, b);
        return 0;
    }
    for (uint32_t n = 0; n < SUBTREE_MAX; n++) {
        const uint32_t no = evict_next(c, account, 0);
        if (evict_paused(c))
            return KVC_E_FULL;
        if (no == POLICY_NO_BLOCK) {
            b = clean_pop(c, account);
            if (!b)
                return KVC_E_FULL;
            clean_recall(c, b);
            continue;
        }
        const int err = evict_victim(c, account, no, n < SUBTREE_MAX / 2, w);
        if (err != KVC_E_FULL)
            return err;
    }
    return KVC_E_FULL;
}

uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter)
{
    uint32_t n = 0;
    for (uint32_t no = block_walk_first(c, root); no != CORE_NONE;) {
        uint32_t next = block_walk_next(c, root, no);
        struct block *b = &c->blocks[no];
        if (b->child == CORE_NONE && block_may_go(c, b)) {
            block_kill(c, b, KVC_MISS_EVICTED);
            ++*counter;
            n++;
        }
        no = next;
    }
    return n;
}
