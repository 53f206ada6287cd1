/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeping a bounded amount of host memory clean. What the policy would let go next is written to
 * disk ahead of need; when it has landed it leaves the policy and stands in a ring, oldest first,
 * until its host copy makes room for something, or a use brings it back to the policy.
 */
#include "core__.h"

#define PLACE_STEP   64u /* blocks looked at in one step */
#define DRAIN_STEP   65536u
#define CLEAN_SHARE  16u /* of host memory */
#define CLEAN_MAX    (UINT64_C(256) << 20)
#define CLEAN_BLOCKS 4u   /* at least so many of the largest */
#define CLEAN_LOOK   256u /* of the ring, for one of a certain owner */

uint32_t clean_max(const struct core_config *cfg)
{
    return cfg->disk ? cfg->blocks_max / 8 + 64 : 1;
}

/* ---- the ring ---- */

static uint32_t ring_at(const struct core *c, uint32_t i)
{
    return (c->clean_at + i) % c->clean_max;
}

/* Entries of what is not clean any more go. */
static void ring_compact(struct core *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->clean_n; i++) {
        const uint32_t no = c->clean[ring_at(c, i)];
        if (c->blocks[no].flags & BLOCK_F_CLEAN)
            c->clean[ring_at(c, n++)] = no;
        else
            block_clear(&c->blocks[no], BLOCK_F_RING);
    }
    c->clean_n = n;
}

/* It is in the ring, or there is a place for it. */
static bool ring_takes(struct core *c, const struct block *b)
{
    if (!(b->flags & BLOCK_F_RING) && c->clean_n == c->clean_max)
        ring_compact(c);
    return (b->flags & BLOCK_F_RING) || c->clean_n < c->clean_max;
}

void clean_push(struct core *c, struct block *b)
{
    if (!ring_takes(c, b)) {
        block_enter(c, b);
        return;
    }
    if (!(b->flags & BLOCK_F_RING))
        c->clean[ring_at(c, c->clean_n++)] = block_no(c, b);
    b->flags |= BLOCK_F_RING | BLOCK_F_CLEAN;
    c->m.clean_bytes += block_bytes(c, b);
}

void clean_recall(struct core *c, struct block *b)
{
    MUST(b->flags & BLOCK_F_CLEAN);
    block_clear(b, BLOCK_F_CLEAN);
    c->m.clean_bytes -= block_bytes(c, b);
    block_enter(c, b);
}

struct block *clean_pop(struct core *c, uint32_t payer)
{
    while (c->clean_n > 0) {
        struct block *b = &c->blocks[c->clean[c->clean_at]];
        c->clean_at = ring_at(c, 1);
        c->clean_n--;
        block_clear(b, BLOCK_F_RING);
        if (!(b->flags & BLOCK_F_CLEAN))
            continue;
        if (!block_in_use(c, b) && b->host_pins == 0 &&
            !retain_guards(c->retain, block_ns(c, b)->payer, payer, 0, c->largest))
            return b;
        clean_recall(c, b);
    }
    return NULL;
}

struct block *clean_of(struct core *c, uint32_t within)
{
    const uint32_t n = MIN(c->clean_n, CLEAN_LOOK);
    for (uint32_t i = 0; i < n; i++) {
        struct block *b = &c->blocks[c->clean[ring_at(c, i)]];
        if (b->flags & BLOCK_F_CLEAN && !block_in_use(c, b) && b->host_pins == 0 &&
            retain_is_within(c->retain, block_ns(c, b)->payer, within))
            return b;
    }
    return NULL;
}

/* ---- how much ---- */

/* Room that can be had without evicting. Once it has been found short, only what came free since,
 * until that is a good part: what was free then may be of other sizes or principals. */
static uint64_t room_free(struct core *c)
{
    struct tier_stats st;
    c->cfg.host->ops->stats(c->cfg.host, &st);
    const uint64_t left = st.limit_bytes - MIN(st.limit_bytes, st.used_bytes);
    if (c->pressed && left > c->pressed_bytes && left - c->pressed_bytes > st.limit_bytes / 8)
        c->pressed = false;
    if (!c->pressed)
        return left;
    return left > c->pressed_bytes ? left - c->pressed_bytes : 0;
}

void place_pressed(struct core *c)
{
    struct tier_stats st;
    c->cfg.host->ops->stats(c->cfg.host, &st);
    c->pressed = true;
    c->pressed_bytes = st.limit_bytes - MIN(st.limit_bytes, st.used_bytes);
}

static uint64_t clean_target(const struct core *c)
{
    struct tier_stats st;
    c->cfg.host->ops->stats(c->cfg.host, &st);
    uint64_t target = MIN(st.limit_bytes / CLEAN_SHARE, CLEAN_MAX);
    target = MAX(target, CLEAN_BLOCKS * c->largest);
    target = MAX(target, c->room_wanted);
    if (!list_empty(&c->short_of_room)) /* as much is written at a time as keeps drives busy */
        target = MAX(target, MIN(st.limit_bytes / 4, CLEAN_MAX));
    return MIN(target, st.limit_bytes / 2);
}

static uint64_t room_near(struct core *c)
{
    return room_free(c) + c->m.clean_bytes;
}

/* What of it nobody was woken for. */
static uint64_t room_spare(struct core *c)
{
    const uint64_t near = room_near(c);
    return list_empty(&c->woken) ? near : near - MIN(near, c->room_given);
}

/* ---- making it so ---- */

static void refuse(struct core *c, const struct block *b)
{
    c->refused = block_no(c, b);
    c->refused_gen = b->gen;
}

/* What somebody wished to keep, and what others on disk build on: whatever it is worth. */
static bool must_be_written(const struct core *c, const struct block *b)
{
    return b->child != CORE_NONE || block_pinned(b) ||
           retain_level(c->retain, block_no(c, b)) > RETAIN_DEFAULT;
}

/* Asked once of each block that goes next, however often it is tried. */
static bool is_worth_writing(struct core *c, const struct block *b, uint32_t bytes)
{
    const uint32_t no = block_no(c, b);
    if (c->offered == no && c->offered_gen == b->gen)
        return c->admitted;
    const bool must = must_be_written(c, b);
    c->offered = no;
    c->offered_gen = b->gen;
    c->admitted = admit_write(&c->admit, c->cfg.policy->worth(c->policy, no, c->now_ms),
                              disk_chance(c, no), bytes, must);
    return c->admitted;
}

/* True: go on. enough: so much is leaving that nothing more is to be written. */
static bool place_one(struct core *c, bool enough)
{
    const uint32_t no = evict_next(c, 0, 0);
    if (no == POLICY_NO_BLOCK)
        return false;
    struct block *b = &c->blocks[no];
    if (c->refused == no && c->refused_gen == b->gen)
        return false;                /* it goes when there is need */
    if (b->state != BLOCK_PRESENT) { /* half a block that nobody completes, and the next to go */
        c->m.blocks_evicted++;
        block_kill(c, b, KVC_MISS_EVICTED);
        return true;
    }
    if (b->flags & BLOCK_F_DISK) {
        const uint64_t before = c->m.clean_bytes;
        block_park(c, b);
        clean_push(c, b);
        return c->m.clean_bytes > before;
    }
    const struct tier *disk = c->cfg.disk;
    const uint32_t bytes = (uint32_t)MIN(block_bytes(c, b), UINT32_MAX);
    if (!is_worth_writing(c, b, bytes)) {
        c->m.blocks_not_worth++;
        /* Nobody waits for the disk where room is to be had without it. */
        if (room_spare(c) < c->room_wanted)
            return evict_subtree(c, b, true);
        refuse(c, b);
        return false;
    }
    if (enough || !ring_takes(c, b) || c->now_ms < c->pause_ms ||
        !disk->ops->admits(disk, bytes, 0))
        return false;
    int err = save_begin(c, b, SAVE_LEAVING);
    if (err == KVC_E_QUOTA)
        refuse(c, b);
    return err == 0;
}

bool place_fill(struct core *c)
{
    if (!c->cfg.disk)
        return false;
    const uint64_t target = clean_target(c);
    struct tier *disk = c->cfg.disk;
    const uint64_t granted = disk->ops->granted ? disk->ops->granted(disk) : UINT64_MAX;
    if (granted != UINT64_MAX)
        admit_grant(&c->admit, (float)granted);
    for (uint32_t n = 0; n < PLACE_STEP; n++) {
        const bool enough = room_free(c) + c->m.clean_bytes + c->leaving_bytes >= target;
        if ((enough && room_spare(c) >= c->room_wanted) || !place_one(c, enough))
            return false;
    }
    return true;
}

bool leaving_soon(const struct core *c)
{
    const struct tier *disk = c->cfg.disk;
    return c->leaving_bytes > 0 || (disk && c->now_ms >= c->room_vain_ms && disk->ops->room_soon &&
                                    disk->ops->room_soon(disk));
}

/* ---- stores that wait ---- */

/* What a store of so many bytes can be made to wait for. */
static uint64_t room_worth(const struct core *c, uint64_t bytes)
{
    struct tier_stats st;
    c->cfg.host->ops->stats(c->cfg.host, &st);
    return MIN(bytes, st.limit_bytes / 4);
}

bool core_store_must_wait(struct core *c, uint64_t bytes, struct core_waiter *waiter)
{
    if (!c->cfg.disk)
        return false;
    const uint64_t need = room_worth(c, bytes);
    if (list_empty(&c->short_of_room) && room_spare(c) >= need)
        return false;
    c->room_wanted = MAX(c->room_wanted, need);
    (void)place_fill(c);
    const bool waits = leaving_soon(c) && room_spare(c) < need;
    if (!waits) {
        if (list_empty(&c->short_of_room))
            c->room_wanted = 0;
        return false;
    }
    if (!waiter)
        return true;
    waiter->bytes = need;
    waiter->keys = 0;
    list_push_back(&c->short_of_room, &waiter->node);
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
    if (list_empty(&c->short_of_room)) {
        c->room_wanted = 0;
        return;
    }
    (void)place_fill(c);
    /* Who was woken and has not run yet has taken nothing so far. */
    if (list_empty(&c->woken))
        c->room_given = 0;
    const uint64_t there = room_near(c);
    LIST_FOR_EACH_SAFE (node, next, &c->short_of_room) {
        struct core_waiter *w = CONTAINER_OF(node, struct core_waiter, node);
        /* More comes when they have run, or when what is leaving has left. */
        if (c->room_given + w->bytes > there && (c->room_given > 0 || leaving_soon(c)))
            return;
        c->room_given += there > 0 ? w->bytes : 0;
        list_remove(&w->node);
        list_push_back(&c->woken, &w->node);
    }
}

/* ---- on request ---- */

/* One block more was looked at; behind the last, what the whole look found is told from now on. */
static void drain_next(struct core *c, uint64_t kept_off)
{
    c->drain_off_seen += kept_off;
    if (++c->drain_at < c->blocks_high)
        return;
    c->drain_at = 0;
    c->drain_off = c->drain_off_seen;
    c->drain_off_seen = 0;
}

uint64_t core_drain_disk(struct core *c, uint64_t bytes_max, uint64_t *ret_quota)
{
    *ret_quota = 0;
    const struct tier *disk = c->cfg.disk;
    if (!disk)
        return 0;
    const uint32_t steps = MIN(c->blocks_high, DRAIN_STEP);
    for (uint32_t n = 0; n < steps && c->m.saving_bytes < bytes_max; n++) {
        struct block *b = &c->blocks[c->drain_at];
        uint64_t kept_off = 0;
        const bool wanted = b->state == BLOCK_PRESENT && b->moving == 0 &&
                            (b->flags & (BLOCK_F_HOST | BLOCK_F_DISK)) == BLOCK_F_HOST;
        if (wanted && !disk->ops->admits(disk, (uint32_t)MIN(block_bytes(c, b), UINT32_MAX), 0))
            break; /* as if it had just been used: who asks wants them all */
        /* Else what its owner has there would go, and be written again if memory has it. */
        if (wanted &&
            retain_over(c->retain, block_ns(c, b)->payer, 1, block_bytes(c, b)) != RETAIN_NO_OWNER)
            kept_off = block_bytes(c, b);
        if (wanted && !kept_off && save_begin(c, b, SAVE_COPY) != 0)
            break;
        drain_next(c, kept_off);
    }
    *ret_quota = MIN(c->drain_off, c->m.bytes_unsaved);
    return c->m.bytes_unsaved;
}
