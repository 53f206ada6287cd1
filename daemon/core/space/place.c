/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Background: keeps a bounded amount of host memory clean. The block that the policy would evict
 * next is written to disk ahead of need. When it has landed it leaves the policy for the ring of
 * clean blocks (clean.c), so that a store finds room without waiting for the disk.
 */
#include "space.h"

#define PLACE_STEP   64u /* blocks looked at in one step */
#define DRAIN_STEP   65536u
#define CLEAN_SHARE  16u /* the target is this part of host memory */
#define CLEAN_MAX    (UINT64_C(256) << 20)
#define CLEAN_BLOCKS 4u /* and at least this many of the largest blocks */

struct place {
    struct run_entry
        refused; /* the last victim that is not written: not worth it, or above a quota */
    struct run_entry offered;   /* the last block about which admit_write() was asked */
    bool admitted;              /* the answer of admit_write() for that block */
    struct list_node stores;    /* core_waiter of stores that wait for room */
    uint64_t wanted;            /* bytes of room for which stores wait */
    uint64_t given;             /* bytes of stores that were woken and have not run yet */
    bool pressed;               /* host memory had no room though it was below its limit */
    uint64_t pressed_bytes;     /* bytes by which host memory was below its limit then */
    struct {                    /* core_drain_disk(), which looks at all blocks in a round */
        uint32_t at;            /* the next record of the round */
        uint64_t off, off_seen; /* bytes that quotas keep off storage, as found by the last whole
                                 * round; by the present round so far */
    } drain;
};

static int place_create(struct core *c)
{
    struct place *p = c->mod.place;
    list_init(&p->stores);
    p->refused.block = p->offered.block = CORE_NONE;
    return 0;
}

const struct core_module place_module = {CORE_STATE(place), .create = place_create};

/* ---- how much ---- */

/* Room that can be taken without evicting. After the tier had no slot below its limit, only room
 * that was freed since counts, until that is a good part of memory: the rest may be of other sizes
 * or principals. */
static uint64_t room_free(struct core *c)
{
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    const uint64_t left = st.limit_bytes - MIN(st.limit_bytes, st.used_bytes);
    if (c->mod.place->pressed && left > c->mod.place->pressed_bytes &&
        left - c->mod.place->pressed_bytes > st.limit_bytes / 8)
        c->mod.place->pressed = false;
    if (!c->mod.place->pressed)
        return left;
    return left > c->mod.place->pressed_bytes ? left - c->mod.place->pressed_bytes : 0;
}

void place_pressed(struct core *c)
{
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    c->mod.place->pressed = true;
    c->mod.place->pressed_bytes = st.limit_bytes - MIN(st.limit_bytes, st.used_bytes);
}

static uint64_t clean_target(const struct core *c)
{
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    uint64_t target = MIN(st.limit_bytes / CLEAN_SHARE, CLEAN_MAX);
    target = MAX(target, CLEAN_BLOCKS * c->largest);
    target = MAX(target, c->mod.place->wanted);
    if (!list_empty(&c->mod.place->stores)) /* enough is written at a time to keep drives busy */
        target = MAX(target, MIN(st.limit_bytes / 4, CLEAN_MAX));
    return MIN(target, st.limit_bytes / 2);
}

static uint64_t room_soon(struct core *c)
{
    return room_free(c) + c->m.clean_bytes;
}

/* The part of that room for which no store was woken yet. */
static uint64_t room_spare(struct core *c)
{
    const uint64_t beside = room_soon(c);
    return list_empty(&c->woken) ? beside : beside - MIN(beside, c->mod.place->given);
}

/* ---- writing victims to disk ---- */

static void place_refuse(struct core *c, const struct block *b)
{
    c->mod.place->refused = (struct run_entry){block_no(c, b), b->gen};
}

/* Whether b is written whatever it is worth: other blocks build on it, it is pinned, or a client
 * wished to keep it. */
static bool must_be_written(const struct core *c, const struct block *b)
{
    return b->child != CORE_NONE || block_pinned(b) ||
           retain_level(c->retain, block_no(c, b)) > RETAIN_DEFAULT;
}

/* Whether the policy of admission lets b onto disk. It is asked once for each victim, however often
 * the write is tried. */
static bool place_admits(struct core *c, const struct block *b, uint32_t bytes)
{
    const uint32_t no = block_no(c, b);
    if (c->mod.place->offered.block == no && c->mod.place->offered.gen == b->gen)
        return c->mod.place->admitted;
    const bool must = must_be_written(c, b);
    c->mod.place->offered = (struct run_entry){no, b->gen};
    c->mod.place->admitted =
        admit_write(&c->disk.admit, c->cfg.policy->worth(c->policy, no, c->now_ms),
                    disk_chance(c, no), bytes, must);
    return c->mod.place->admitted;
}

/* Begins to write one victim, or passes it. True: go on. enough: so much is being written that
 * nothing more is to be begun. */
static bool place_one(struct core *c, bool enough)
{
    const uint32_t no = evict_next(c, 0, 0);
    if (no == POLICY_NO_BLOCK)
        return false;
    struct block *b = &c->blocks[no];
    if (c->mod.place->refused.block == no && c->mod.place->refused.gen == b->gen) /* evicted at need
                                                                                   * alone */
        return room_spare(c) < c->mod.place->wanted && evict_subtree(c, b, true);
    if (b->state != BLOCK_PRESENT) { /* half a block that nobody completes, and the next to go */
        c->m.blocks_evicted++;
        block_kill(c, b, KVC_MISS_EVICTED);
        return true;
    }
    if (copy_there(b, CORE_STORAGE)) {
        const uint64_t before = c->m.clean_bytes;
        block_park(c, b);
        clean_push(c, b);
        return c->m.clean_bytes > before;
    }
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const uint32_t bytes = (uint32_t)MIN(block_bytes(c, b), UINT32_MAX);
    if (!place_admits(c, b, bytes)) {
        c->m.blocks_not_worth++;
        /* No store waits for the disk where there is room without it. */
        if (room_spare(c) < c->mod.place->wanted)
            return evict_subtree(c, b, true);
        place_refuse(c, b);
        return false;
    }
    if (enough || !clean_takes(c, b) || c->now_ms < c->disk.pause_ms ||
        !disk->storage->admits(disk, bytes, 0))
        return false;
    int err = save_begin(c, b, SAVE_LEAVING);
    if (err == KVC_E_QUOTA)
        place_refuse(c, b);
    return err == 0;
}

bool place_fill(struct core *c)
{
    if (!core_stores(c))
        return false;
    const uint64_t target = clean_target(c);
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    const uint64_t granted = disk->storage->granted ? disk->storage->granted(disk) : UINT64_MAX;
    if (granted != UINT64_MAX)
        admit_grant(&c->disk.admit, (float)granted);
    for (uint32_t n = 0; n < PLACE_STEP; n++) {
        const bool enough = room_free(c) + c->m.clean_bytes + c->moving.leaving_bytes >= target;
        if ((enough && room_spare(c) >= c->mod.place->wanted) || !place_one(c, enough))
            return false;
    }
    return true;
}

void place_want(struct core *c, uint64_t bytes)
{
    c->mod.place->wanted = MAX(c->mod.place->wanted, bytes);
    (void)place_fill(c);
}

bool leaving_soon(const struct core *c)
{
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    return c->moving.leaving_bytes > 0 ||
           (disk && c->now_ms >= c->disk.room_vain_ms && disk->storage->room_soon &&
            disk->storage->room_soon(disk));
}

/* ---- stores that wait ---- */

/* How many bytes a store can be made to wait for. */
static uint64_t room_worth(const struct core *c, uint64_t bytes)
{
    struct tier_stats st;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &st);
    return MIN(bytes, st.limit_bytes / 4);
}

bool core_store_must_wait(struct core *c, uint64_t bytes, struct core_waiter *waiter)
{
    if (!core_stores(c))
        return false;
    const uint64_t need = room_worth(c, bytes);
    if (list_empty(&c->mod.place->stores) && room_spare(c) >= need)
        return false;
    place_want(c, need);
    const bool waits = leaving_soon(c) && room_spare(c) < need;
    if (!waits) {
        if (list_empty(&c->mod.place->stores))
            c->mod.place->wanted = 0;
        return false;
    }
    if (!waiter)
        return true;
    waiter->bytes = need;
    waiter->keys = 0;
    list_push_back(&c->mod.place->stores, &waiter->node);
    c->m.store_waits++;
    return true;
}

void room_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)b;
    (void)x;
    room_wake(c);
}

void room_wake(struct core *c)
{
    if (list_empty(&c->mod.place->stores)) {
        c->mod.place->wanted = 0;
        return;
    }
    (void)place_fill(c);
    /* A store that was woken and has not run yet has taken nothing so far. */
    if (list_empty(&c->woken))
        c->mod.place->given = 0;
    const uint64_t there = room_soon(c);
    LIST_FOR_EACH_SAFE (node, next, &c->mod.place->stores) {
        struct core_waiter *w = CONTAINER_OF(node, struct core_waiter, node);
        /* More stores are woken when these have run, or when writes that free memory have ended. */
        if (c->mod.place->given + w->bytes > there && (c->mod.place->given > 0 || leaving_soon(c)))
            return;
        c->mod.place->given += there > 0 ? w->bytes : 0;
        list_remove(&w->node);
        list_push_back(&c->woken, &w->node);
    }
}

/* ---- on request ---- */

/* Counts a block that was looked at. After the last one core_drain_disk() tells the sum of this
 * look at all blocks. */
static void drain_next(struct core *c, uint64_t kept_off)
{
    c->mod.place->drain.off_seen += kept_off;
    if (++c->mod.place->drain.at < c->blocks_high)
        return;
    c->mod.place->drain.at = 0;
    c->mod.place->drain.off = c->mod.place->drain.off_seen;
    c->mod.place->drain.off_seen = 0;
}

uint64_t core_drain_disk(struct core *c, uint64_t bytes_max, uint64_t *ret_quota)
{
    *ret_quota = 0;
    const struct tier *disk = c->cfg.tier[CORE_STORAGE];
    if (!disk)
        return 0;
    const uint32_t steps = MIN(c->blocks_high, DRAIN_STEP);
    for (uint32_t n = 0; n < steps && c->m.saving_bytes < bytes_max; n++) {
        struct block *b = &c->blocks[c->mod.place->drain.at];
        uint64_t kept_off = 0;
        const bool wanted = b->state == BLOCK_PRESENT && b->moving == 0 && block_is_dirty(b);
        if (wanted && !disk->storage->admits(disk, (uint32_t)MIN(block_bytes(c, b), UINT32_MAX), 0))
            break; /* asked as for a block just used: a drain is for all blocks */
        /* Otherwise its owner's blocks on disk would be evicted for it, and written again if memory
         * has them. */
        if (wanted && retain_over(c->retain, block_ns(c, b)->account, CORE_STORAGE,
                                  block_bytes(c, b)) != RETAIN_NO_OWNER)
            kept_off = block_bytes(c, b);
        if (wanted && !kept_off && save_begin(c, b, SAVE_COPY) != 0)
            break;
        drain_next(c, kept_off);
    }
    *ret_quota = MIN(c->mod.place->drain.off, c->m.bytes_unsaved);
    return c->m.bytes_unsaved;
}

float disk_chance(const struct core *c, uint32_t no)
{
    const struct policy_ops *policy = c->cfg.policy;
    return policy->chance && c->disk.turn_ms > 0
               ? policy->chance(c->policy, no, c->disk.turn_ms, c->now_ms)
               : 1;
}
