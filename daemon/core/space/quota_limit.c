/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enforces hard limits of quotas. An owner above its limit makes room before anything more of it is
 * stored; where the limit was lowered, its blocks are evicted in steps.
 */
#include "quota_table.h"
#include "space.h"

#define QUOTA_PATIENCE 64u
#define QUOTA_STEP     64u
#define GIVE_STEP      8192u
#define HAND_STEPS     512u
#define DISK_STEP      8u
/* The part of a limit in memory that is kept free below it, so that stores need not wait. */
#define MARGIN_SHARE 16u

/* Removes one block of `over` from memory: 0, KVC_E_QUOTA when none can be, KVC_E_NOT_WORTH. */
static int quota_make(struct core *c, uint32_t account, uint32_t over, struct alloc_request *w)
{
    struct block *b = core_stores(c) ? clean_of(c, over) : NULL;
    for (uint32_t n = 0; !b && n < QUOTA_PATIENCE; n++) {
        const uint32_t no = evict_next(c, account, over);
        if (no == POLICY_NO_BLOCK)
            return KVC_E_QUOTA;
        b = &c->blocks[no];
        if (block_on_disk(b))
            break;
        const int err = evict_victim(c, account, no, n < QUOTA_PATIENCE / 2, w);
        c->m.quota_evicted += err == 0;
        if (err != KVC_E_FULL)
            return err;
        b = NULL;
    }
    if (!b)
        return KVC_E_QUOTA;
    c->m.blocks_left++;
    host_drop(c, b);
    return 0;
}

int quota_room(struct core *c, const struct core_ns *ns, uint32_t bytes, struct alloc_request *w)
{
    for (;;) {
        const uint32_t over = retain_over(c->retain, ns->account, CORE_HOST, bytes);
        if (over == RETAIN_NO_OWNER)
            return 0;
        if (bytes > retain_quota_of(c->retain, over)->limit[0])
            return KVC_E_QUOTA;
        if (w->patient && ns->leaving > 0 && !clean_of(c, over))
            return KVC_E_BUSY;
        int err = quota_make(c, ns->account, over, w);
        if (err)
            return err;
    }
}

bool quota_tight(const struct core *c, const struct core_ns *ns)
{
    for (uint32_t i = 0; i < RETAIN_OWNERS && c->m.quotas > 0; i++) {
        const uint32_t q = c->mod.quotas->quota[i].account;
        if (!q || !retain_is_within(c->retain, ns->account, q))
            continue;
        const uint64_t limit = retain_quota_of(c->retain, q)->limit[0];
        if (limit != RETAIN_NO_LIMIT &&
            retain_held(c->retain, q, CORE_HOST) > limit - limit / MARGIN_SHARE)
            return true;
    }
    return false;
}

static uint64_t leaving_within(const struct core *c, uint32_t account)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id && c->ns[i].leaving &&
            retain_is_within(c->retain, c->ns[i].account, account))
            sum += c->ns[i].leaving;
    return sum;
}

/* Brings one owner back to its margin: copies in memory of blocks on disk are dropped, other blocks
 * are written there. Above the limit itself (it was lowered) blocks that cannot be written are
 * evicted. */
static bool quota_relieve(struct core *c, uint32_t account, uint32_t *left)
{
    const uint64_t limit = retain_quota_of(c->retain, account)->limit[0];
    uint64_t leaving = c->moving.leaving_bytes ? leaving_within(c, account) : 0;
    while (limit != RETAIN_NO_LIMIT && *left > 0) {
        const uint64_t held = retain_held(c->retain, account, CORE_HOST);
        const uint64_t stays = held - MIN(held, leaving);
        if (stays <= limit - (core_stores(c) ? limit / MARGIN_SHARE : 0))
            return false;
        --*left;
        struct block *b = core_stores(c) ? clean_of(c, account) : NULL;
        const uint32_t no = b ? block_no(c, b) : evict_next(c, account, account);
        if (no == POLICY_NO_BLOCK)
            return false;
        b = &c->blocks[no];
        if (block_on_disk(b)) {
            c->m.blocks_left++;
            host_drop(c, b);
        } else if (core_stores(c) && b->state == BLOCK_PRESENT && c->now_ms >= c->disk.pause_ms &&
                   save_begin(c, b, SAVE_LEAVING) == 0) {
            leaving += block_bytes(c, b);
        } else if (stays <= limit || !evict_subtree(c, b, true)) {
            return false;
        } else {
            c->m.quota_evicted++;
        }
    }
    return *left == 0;
}

static bool leaves_disk(struct core *c, const struct block *b, uint32_t within, bool trees)
{
    return (b->flags & BLOCK_F_LINKED) && block_on_disk(b) && !block_stays(b) &&
           !block_in_use(c, b) && (copy_there(b, CORE_HOST) || b->child == CORE_NONE || trees) &&
           retain_is_within(c->retain, block_ns(c, b)->account, within);
}

/* Looks at some records behind *hand for the owner's block on disk of the lowest level that was
 * used longest ago, and removes its copy there. With `trees`, if others build on it, the first of
 * these that may be evicted. Without `clean` no clean block is taken: its copy would be written
 * again at once, in place of another's, for ever. False: none was found. */
static bool disk_make(struct core *c, uint32_t within, uint32_t *hand, bool trees, bool clean)
{
    struct block *best = NULL;
    const uint32_t steps = MIN(HAND_STEPS, c->blocks_high);
    for (uint32_t n = 0; n < steps; n++) {
        if (++*hand >= c->blocks_high)
            *hand = 0;
        struct block *b = &c->blocks[*hand];
        if ((clean || !block_is_clean(b)) && leaves_disk(c, b, within, trees) &&
            (!best || evict_goes_first(c, b, best)))
            best = b;
    }
    if (!best)
        return false;
    if (copy_there(best, CORE_HOST)) {
        disk_forget(c, best);
        return true;
    }
    struct block *leaf = &c->blocks[block_walk_first(c, block_no(c, best))];
    if (!block_may_go(c, leaf))
        return false;
    c->m.quota_evicted++;
    block_kill(c, leaf, KVC_MISS_EVICTED);
    return true;
}

int quota_disk(struct core *c, const struct core_ns *ns, uint64_t bytes, bool must)
{
    for (uint32_t n = 0;; n++) {
        const uint32_t over = retain_over(c->retain, ns->account, CORE_STORAGE, bytes);
        if (over == RETAIN_NO_OWNER)
            return 0;
        if (n == QUOTA_PATIENCE || bytes > retain_quota_of(c->retain, over)->limit[1] ||
            !disk_make(c, over, &c->mod.quotas->hand, false, must))
            return KVC_E_QUOTA;
    }
}

/* One owner's way back to its limit, when that was lowered: first what nothing builds on, and when
 * all records were seen in vain, what is in memory and builds on the rest. True: there is more to
 * do; not when all that it has there stays (promised, in use). */
static bool relieve_disk(struct core *c, struct quota *q)
{
    const uint64_t all = c->blocks_high;
    for (uint32_t n = 0; n < DISK_STEP; n++) {
        if (retain_over(c->retain, q->account, CORE_STORAGE, 0) != q->account) {
            q->disk_seen = 0;
            return false;
        }
        const bool trees = q->disk_seen >= all;
        if (!disk_make(c, q->account, &q->disk_hand, trees, true)) {
            q->disk_seen = MIN(q->disk_seen + HAND_STEPS, 2 * all);
            return q->disk_seen < 2 * all;
        }
        q->disk_seen = trees ? all : 0;
    }
    return true;
}

static bool quota_give_step(struct core *c)
{
    for (uint32_t n = 0; n < GIVE_STEP && c->mod.quotas->give_at < c->blocks_high;
         n++, c->mod.quotas->give_at++) {
        const struct block *b = &c->blocks[c->mod.quotas->give_at];
        if (b->flags & BLOCK_F_LINKED && retain_is_in(c->retain, c->mod.quotas->give_at))
            retain_give(c->retain, c->mod.quotas->give_at, block_ns(c, b)->account, c->now_ms);
    }
    c->mod.quotas->give_due = c->mod.quotas->give_at < c->blocks_high;
    return c->mod.quotas->give_due;
}

bool quota_step(struct core *c)
{
    bool more = c->mod.quotas->give_due && quota_give_step(c);
    uint32_t left = QUOTA_STEP;
    for (uint32_t i = 0; i < RETAIN_OWNERS && c->m.quotas > 0 && left > 0; i++) {
        if (++c->mod.quotas->at >= RETAIN_OWNERS)
            c->mod.quotas->at = 0;
        struct quota *q = &c->mod.quotas->quota[c->mod.quotas->at];
        if (!q->account)
            continue;
        more |= quota_relieve(c, q->account, &left);
        more |= relieve_disk(c, q);
    }
    return more;
}
