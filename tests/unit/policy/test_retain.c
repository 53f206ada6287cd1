/* SPDX-License-Identifier: Apache-2.0 */
/* Levels, ends, owners and lists of policy/retain.h, with LRU below. */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "retain.h"

#define BLOCKS 2000u

static struct policy *lru;
static struct retain *r;
static void *lru_mem, *retain_mem;
static bool stays[BLOCKS]; /* can_evict refuses */
static uint64_t now;

static void setup(void)
{
    const struct policy_config config = {.blocks_max = BLOCKS, .lists_max = POLICY_LISTS_MAX};
    lru_mem = calloc(1, policy_lru.mem_bytes(&config));
    retain_mem = calloc(1, retain_mem_bytes(BLOCKS));
    ck_assert(lru_mem != NULL && retain_mem != NULL);
    lru = policy_lru.init(lru_mem, &config);
    r = retain_init(retain_mem, BLOCKS, &policy_lru, lru);
    memset(stays, 0, sizeof stays);
    now = 10000;
}

static void teardown(void)
{
    ck_assert(retain_is_sound(r));
    free(lru_mem);
    free(retain_mem);
}

static void put(uint32_t block, uint32_t owner)
{
    const struct policy_hint hint = {.hash = block,
                                     .parent = POLICY_NO_BLOCK,
                                     .bytes = 10,
                                     .list = retain_enter(r, block, owner),
                                     .used_ms = now};
    policy_lru.insert(lru, block, &hint, now);
    retain_count(r, owner, 0, 10);
    now += 16; /* what LRU tells apart */
}

static void wish(uint32_t block, unsigned level, uint64_t duration_ms)
{
    retain_wish(r, block, level, duration_ms ? now + duration_ms : RETAIN_FOR_EVER, false, now);
}

static void out(uint32_t block)
{
    retain_count(r, retain_owner(r, block), 0, -10);
    policy_lru.remove(lru, block);
    retain_leave(r, block);
}

static bool may_go(void *ctx, uint32_t block)
{
    (void)ctx;
    return !stays[block];
}

static uint32_t victim(uint32_t owner, uint32_t within)
{
    return retain_victim(r, owner, within, 10, now, may_go, NULL);
}

static uint32_t evict(uint32_t owner)
{
    const uint32_t block = victim(owner, 0);
    if (block != POLICY_NO_BLOCK)
        out(block);
    return block;
}

static uint32_t tick(void)
{
    uint32_t ended = 0, all = 0;
    bool more;
    do {
        more = retain_tick(r, now, 64, &ended);
        ck_assert_uint_le(ended, 64);
        all += ended;
    } while (more);
    return all;
}

static uint32_t tenant(uint32_t above, uint64_t limit, uint64_t share)
{
    const uint32_t owner = retain_owner_add(r, above);
    const struct retain_quota q = {.limit = {limit, RETAIN_NO_LIMIT}, .share = {share, 0}};
    ck_assert_uint_ne(owner, RETAIN_NO_OWNER);
    retain_owner_set(r, owner, &q);
    return owner;
}

/* ---- levels ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(the_lowest_level_is_drained_first)
{
    for (uint32_t b = 0; b < 6; b++)
        put(b, 0);
    wish(0, 10, 0);
    wish(1, 90, 0);
    wish(5, 10, 0);
    const uint32_t order[] = {0, 5, 2, 3, 4, 1, POLICY_NO_BLOCK};
    for (unsigned i = 0; i < 7; i++)
        ck_assert_uint_eq(evict(0), order[i]);
}

CASE(what_may_not_go_lets_the_next_level_go)
{
    put(0, 0);
    put(1, 0);
    wish(0, 0, 0);
    stays[0] = true;
    ck_assert_uint_eq(victim(0, 0), 1);
    stays[0] = false;
    policy_lru.release(lru, 0, false);
    ck_assert_uint_eq(victim(0, 0), 0);
}

CASE(at_its_end_a_wish_returns_to_the_default_as_the_youngest)
{
    put(0, 0);
    wish(0, 80, 1000);
    put(1, 0);
    now += 900;
    ck_assert_uint_eq(tick(), 0);
    ck_assert_uint_eq(retain_level(r, 0), 80);
    now += 200;
    ck_assert_uint_eq(tick(), 1);
    ck_assert_uint_eq(retain_level(r, 0), RETAIN_DEFAULT);
    ck_assert_uint_eq(retain_until(r, 0), RETAIN_FOR_EVER);
    ck_assert_uint_eq(evict(0), 1);
    ck_assert_uint_eq(evict(0), 0);
}

/* Ends are kept in 32 bits of 64 ms. */
CASE(after_years_of_uptime_nothing_is_kept_for_ever_by_an_end)
{
    now = (UINT64_C(64) << 32) - 5000;
    put(0, 0);
    put(1, 0);
    wish(0, 80, 1000);
    wish(1, 80, 3600000);
    now += 2000;
    ck_assert_uint_eq(tick(), 1);
    ck_assert_uint_eq(retain_level(r, 0), RETAIN_DEFAULT);
    ck_assert_uint_eq(retain_level(r, 1), 80);
    now += 3600000;
    ck_assert_uint_eq(tick(), 1);
    ck_assert_uint_eq(retain_level(r, 1), RETAIN_DEFAULT);
    put(2, 0);
    wish(2, 80, 1000);
    now += 1001;
    (void)tick();
    ck_assert_uint_eq(retain_level(r, 2), RETAIN_DEFAULT);
    wish(2, 80, 0);
    ck_assert_uint_eq(retain_level(r, 2), 80);
}

CASE(a_low_level_ends_too)
{
    put(0, 0);
    wish(0, 5, 100);
    ck_assert_uint_eq(retain_level(r, 0), 5);
    now += 200;
    ck_assert_uint_eq(tick(), 1);
    ck_assert_uint_eq(retain_level(r, 0), RETAIN_DEFAULT);
}

CASE(an_end_comes_at_most_one_unit_late_and_never_early)
{
    for (uint32_t b = 0; b < 200; b++) {
        put(b, 0);
        wish(b, 70, 1 + 7 * b);
    }
    uint64_t end[200];
    for (uint32_t b = 0; b < 200; b++)
        end[b] = retain_until(r, b);
    for (; now < 30000; now += 5) {
        tick();
        unsigned wrong = 0;
        for (uint32_t b = 0; b < 200; b++)
            wrong += retain_level(r, b) != (end[b] <= now ? RETAIN_DEFAULT : 70u);
        ck_assert_uint_eq(wrong, 0);
    }
}

CASE(of_two_wishes_the_higher_level_counts_and_of_one_level_the_later_end)
{
    put(0, 0);
    wish(0, 60, 1000);
    const uint64_t end = retain_until(r, 0);
    wish(0, 50, 100000);
    ck_assert_uint_eq(retain_level(r, 0), 60);
    ck_assert_uint_eq(retain_until(r, 0), end);
    wish(0, 60, 500);
    ck_assert_uint_eq(retain_until(r, 0), end);
    wish(0, 60, 2000);
    ck_assert_uint_gt(retain_until(r, 0), end);
    wish(0, 61, 100);
    ck_assert_uint_eq(retain_level(r, 0), 61);
    ck_assert_uint_lt(retain_until(r, 0), end);
}

CASE(what_was_wished_without_end_is_what_a_block_goes_back_to)
{
    put(0, 0);
    wish(0, 50, 0);
    wish(0, 40, 0);
    ck_assert_uint_eq(retain_level(r, 0), 50);
    wish(0, 45, 100000); /* below the base: nothing */
    ck_assert_uint_eq(retain_level(r, 0), 50);
    ck_assert_uint_eq(retain_until(r, 0), RETAIN_FOR_EVER);
    wish(0, 100, 100);
    ck_assert_uint_eq(retain_level(r, 0), 100);
    now += 200;
    tick();
    ck_assert_uint_eq(retain_level(r, 0), 50);
    retain_wish(r, 0, RETAIN_DEFAULT, RETAIN_FOR_EVER, true, now);
    ck_assert_uint_eq(retain_level(r, 0), RETAIN_DEFAULT);
    ck_assert_uint_eq(retain_base(r, 0), RETAIN_MAX + 1);
    wish(0, 10, 0); /* no base any more that would be above it */
    ck_assert_uint_eq(retain_level(r, 0), 10);
    wish(0, RETAIN_DEFAULT, 0);
    ck_assert_uint_eq(retain_level(r, 0), RETAIN_DEFAULT);
}

CASE(a_wish_that_ends_during_another_tick_group_is_found)
{
    for (uint32_t b = 0; b < BLOCKS; b++) {
        put(b, 0);
        wish(b, 90, 50000);
    }
    now += 100000;
    ck_assert_uint_eq(tick(), BLOCKS);
    ck_assert_uint_eq(tick(), 0);
}

/* ---- owners ---- */

CASE(a_limit_counts_what_is_below_too)
{
    const uint32_t t = tenant(0, 100, 0), sub = tenant(t, 50, 0), ns = tenant(sub, 1000, 0);
    ck_assert_uint_eq(retain_owner_add(r, ns), RETAIN_NO_OWNER); /* too deep */
    for (uint32_t b = 0; b < 5; b++)
        put(b, ns);
    ck_assert_uint_eq(retain_held(r, t, 0), 50);
    ck_assert_uint_eq(retain_over(r, ns, 0, 10), sub);
    ck_assert_uint_eq(retain_over(r, t, 0, 50), RETAIN_NO_OWNER);
    ck_assert_uint_eq(retain_over(r, t, 0, 51), t);
    ck_assert_uint_eq(retain_over(r, 0, 0, 1000000), RETAIN_NO_OWNER);
    ck_assert_uint_eq(retain_over(r, ns, 1, 1000000), RETAIN_NO_OWNER);
    put(5, t);
    ck_assert_uint_eq(victim(ns, sub), 0);
    ck_assert_uint_eq(victim(ns, t), 0);
    for (uint32_t b = 0; b < 5; b++)
        stays[b] = true;
    ck_assert_uint_eq(victim(ns, sub), POLICY_NO_BLOCK);
    ck_assert_uint_eq(victim(ns, t), 5);
}

CASE(a_share_is_guaranteed_and_what_is_above_it_is_not)
{
    const uint32_t a = tenant(0, RETAIN_NO_LIMIT, 30), b = tenant(0, RETAIN_NO_LIMIT, 0);
    for (uint32_t i = 0; i < 5; i++)
        put(i, a);
    put(5, b);
    put(6, 0);
    ck_assert_uint_eq(evict(b), 0); /* a has 50 of 30 */
    ck_assert_uint_eq(evict(0), 1);
    ck_assert_uint_eq(evict(b), 5); /* a has 30 of 30: what b has goes, then what is nobody's */
    ck_assert_uint_eq(evict(b), 6);
    ck_assert_uint_eq(evict(b), POLICY_NO_BLOCK);
    ck_assert_uint_eq(victim(0, 0), POLICY_NO_BLOCK);
    ck_assert_uint_eq(victim(a, 0), 2); /* for itself it may */
}

CASE(what_was_borrowed_of_a_share_is_taken_back_first)
{
    const uint32_t a = tenant(0, RETAIN_NO_LIMIT, 30), b = tenant(0, RETAIN_NO_LIMIT, 0);
    put(0, a);
    put(1, b);
    put(2, b);
    put(3, 0);
    wish(1, 90, 0);
    wish(2, 80, 0);
    ck_assert_uint_eq(evict(a), 3); /* not its own, though that was used longest ago */
    ck_assert_uint_eq(evict(a), 2);
    put(4, a);
    put(5, a);
    ck_assert_uint_eq(victim(a, 0), 0); /* it has 30 of 30 */
    out(5);
    stays[1] = true;
    ck_assert_uint_eq(victim(a, 0), 0); /* nothing else may go */
}

/* The tenant has less than its share, and of that its sub-tenant less than its own. */
CASE(a_share_is_taken_back_from_outside_the_tenant_before_its_others)
{
    const uint32_t t = tenant(0, RETAIN_NO_LIMIT, 60), s1 = tenant(t, RETAIN_NO_LIMIT, 20),
                   s2 = tenant(t, RETAIN_NO_LIMIT, 0);
    put(0, s1);
    put(1, s2);
    put(2, 0);
    ck_assert_uint_eq(evict(s1), 2);
    ck_assert_uint_eq(victim(s1, 0), 1);
    ck_assert_uint_eq(victim(s1, t), 1);
    ck_assert_uint_eq(victim(s2, 0), 1); /* s1 has its share */
}

/* However large the blocks are that others have. */
CASE(a_share_that_is_smaller_than_the_largest_block_is_taken_back_too)
{
    const uint32_t a = tenant(0, RETAIN_NO_LIMIT, 30), b = tenant(0, RETAIN_NO_LIMIT, 0);
    put(0, a);
    put(1, b);
    wish(1, 90, 0);
    ck_assert_uint_eq(retain_victim(r, a, 0, 1000, now, may_go, NULL), 1);
}

CASE(a_share_is_not_cut_into_by_a_block)
{
    const uint32_t a = tenant(0, RETAIN_NO_LIMIT, 25);
    for (uint32_t i = 0; i < 3; i++)
        put(i, a);
    ck_assert(retain_protects(r, a, 0, 0, 10)); /* 30 - 10 is below 25 */
    ck_assert(!retain_protects(r, a, 0, 0, 5));
    ck_assert(!retain_protects(r, a, a, 0, 10));
}

CASE(a_share_of_one_below_is_not_for_its_neighbours)
{
    const uint32_t t = tenant(0, RETAIN_NO_LIMIT, 0), s1 = tenant(t, RETAIN_NO_LIMIT, 20),
                   s2 = tenant(t, RETAIN_NO_LIMIT, 0);
    put(0, s1);
    put(1, s1);
    put(2, s2);
    ck_assert_uint_eq(victim(s2, t), 2);
    ck_assert_uint_eq(victim(t, t), 2);
    ck_assert_uint_eq(victim(s1, t), 0);
}

CASE(levels_come_before_owners)
{
    const uint32_t a = tenant(0, RETAIN_NO_LIMIT, 0);
    put(0, a);
    put(1, 0);
    wish(0, 36, 0);
    ck_assert_uint_eq(victim(a, 0), 1);
}

CASE(an_owner_moves_with_what_it_holds)
{
    const uint32_t s = tenant(0, 100, 0);
    put(0, s);
    put(1, s);
    const uint32_t t = tenant(0, RETAIN_NO_LIMIT, 0);
    ck_assert(retain_owner_place(r, s, t));
    ck_assert_uint_eq(retain_held(r, t, 0), 20);
    ck_assert_uint_eq(retain_held(r, 0, 0), 20);
    ck_assert(retain_is_within(r, s, t));
    ck_assert(!retain_owner_place(r, t, s)); /* no circles */
    const uint32_t u = tenant(0, 10, 0), v = tenant(u, 10, 0);
    ck_assert(!retain_owner_place(r, t, v)); /* too deep with what is below */
    ck_assert(retain_owner_place(r, s, 0));
    ck_assert_uint_eq(retain_held(r, t, 0), 0);
}

CASE(what_was_above_a_limit_when_it_was_set_may_stay_and_not_grow)
{
    const uint32_t t = tenant(0, RETAIN_NO_LIMIT, 0);
    for (uint32_t b = 0; b < 4; b++)
        put(b, t);
    const struct retain_quota q = {.limit = {20, RETAIN_NO_LIMIT}};
    retain_owner_set(r, t, &q);
    ck_assert(retain_is_sound(r));
    ck_assert_uint_eq(retain_over(r, t, 0, 1), t);
    retain_count(r, t, 0, 10);
    ck_assert(!retain_is_sound(r));
    retain_count(r, t, 0, -10);
}

CASE(an_owner_that_ended_is_free_when_its_blocks_have_gone)
{
    const uint32_t t = tenant(0, RETAIN_NO_LIMIT, 0);
    put(0, t);
    put(1, t);
    retain_count(r, t, 0, -20);
    retain_count(r, 0, 0, 20);
    retain_owner_end(r, t);
    ck_assert(!retain_owner_is(r, t));
    const uint32_t other = tenant(0, RETAIN_NO_LIMIT, 0);
    ck_assert_uint_ne(other, t);
    retain_give(r, 0, 0, now);
    policy_lru.remove(lru, 1);
    retain_leave(r, 1);
    ck_assert_uint_eq(tenant(0, RETAIN_NO_LIMIT, 0), t);
    ck_assert_uint_eq(evict(0), 0);
}

CASE(every_owner_has_a_list_though_all_levels_are_in_use)
{
    uint32_t owner[RETAIN_OWNERS], n = 0, block = 0;
    for (unsigned level = 0; level <= RETAIN_MAX; level++, block++) {
        put(block, 0);
        wish(block, level, 0);
    }
    while (n < RETAIN_OWNERS - 1)
        owner[n++] = tenant(0, RETAIN_NO_LIMIT, 0);
    ck_assert_uint_eq(retain_owner_add(r, 0), RETAIN_NO_OWNER);
    for (uint32_t i = 0; i < n; i++)
        for (unsigned level = 20; level < 30; level++, block++) {
            put(block, owner[i]);
            wish(block, level, 0);
            ck_assert_uint_eq(retain_owner(r, block), owner[i]);
            ck_assert_uint_eq(retain_level(r, block), level);
        }
    ck_assert(retain_is_sound(r));
    for (uint32_t i = 0; i < n; i++)
        for (unsigned level = 20; level < 30; level++)
            ck_assert_uint_ne(victim(0, owner[i]), POLICY_NO_BLOCK);
    while (block > 0)
        out(--block);
}

/* ---- anything, against a scan ---- */

static uint64_t state;
static uint32_t rnd(uint32_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state % below);
}

static const unsigned levels[] = {0, 20, RETAIN_DEFAULT, 36, 100};

struct model_tree {
    uint32_t above[RETAIN_OWNERS];
};

/* What may go for `taker`, not of `spared`: lowest level first. */
static uint32_t scan_but(uint32_t taker, uint32_t within, uint32_t spared)
{
    uint32_t best = POLICY_NO_BLOCK;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        if (!retain_is_in(r, b) || stays[b])
            continue;
        const uint32_t owner = retain_owner(r, b);
        if ((within && !retain_is_within(r, owner, within)) ||
            (spared && retain_is_within(r, owner, spared)) ||
            retain_protects(r, owner, taker, 0, 10))
            continue;
        if (best == POLICY_NO_BLOCK || retain_level(r, b) < retain_level(r, best))
            best = b;
    }
    return best;
}

/* The highest of them that holds less than its share spares what is its own; then the next. */
static uint32_t scan(const struct model_tree *tree, uint32_t taker, uint32_t within)
{
    uint32_t path[RETAIN_TREE], n = 0;
    for (uint32_t at = taker; at != 0 && at != within; at = tree->above[at])
        path[n++] = at;
    while (n-- > 0) {
        const uint64_t share = retain_quota_of(r, path[n])->share[0];
        if (retain_held(r, path[n], 0) >= share)
            continue;
        const uint32_t best = scan_but(taker, within, path[n]);
        if (best != POLICY_NO_BLOCK)
            return best;
    }
    return scan_but(taker, within, 0);
}

CASE_EACH(a_victim_is_of_the_lowest_level_that_may_go, 20)
{
    uint32_t owner[6] = {0}, n = 300;
    state = (uint64_t)_i * 77 + 1;
    struct model_tree tree = {{0}};
    for (unsigned i = 1; i < 6; i++) {
        const uint32_t above = owner[rnd(i < 3 ? 1 : 3)];
        owner[i] = tenant(above, RETAIN_NO_LIMIT, rnd(3) * 200);
        tree.above[owner[i]] = above;
    }
    for (unsigned turn = 0; turn < 4000; turn++) {
        const uint32_t b = rnd(n), o = owner[rnd(6)], taker = owner[rnd(6)];
        now += rnd(40);
        if (!retain_is_in(r, b))
            put(b, o);
        else if (rnd(4) == 0)
            wish(b, levels[rnd(5)], rnd(3) * rnd(3000));
        else if (rnd(3) == 0)
            policy_lru.touch(lru, b, now);
        else if (rnd(8) == 0) {
            retain_count(r, o, 0, 10);
            retain_count(r, retain_owner(r, b), 0, -10);
            retain_give(r, b, o, now);
        } else if (rnd(6) == 0) {
            stays[b] = !stays[b];
            if (!stays[b])
                policy_lru.release(lru, b, false);
        }
        tick();
        const uint32_t within = rnd(2) ? 0 : owner[rnd(6)];
        const uint32_t got = victim(taker, within), want = scan(&tree, taker, within);
        ck_assert((got == POLICY_NO_BLOCK) == (want == POLICY_NO_BLOCK));
        if (got == POLICY_NO_BLOCK)
            continue;
        ck_assert(!stays[got] && !retain_protects(r, retain_owner(r, got), taker, 0, 10));
        ck_assert(within == 0 || retain_is_within(r, retain_owner(r, got), within));
        ck_assert_uint_eq(retain_level(r, got), retain_level(r, want));
        if (rnd(3) == 0) {
            stays[got] = false;
            out(got);
        }
        if (turn % 64 == 0)
            ck_assert(retain_is_sound(r));
    }
}
