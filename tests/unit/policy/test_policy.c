/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "policy.h"

#define BLOCKS 16u

static struct policy *p;
static const struct policy_config config = {.blocks_max = BLOCKS, .lists_max = 1};
static void *mem;
static bool refused[BLOCKS];
static unsigned asked;

static bool can_evict(void *ctx, uint32_t block)
{
    (void)ctx;
    asked++;
    return !refused[block];
}

static void setup(void)
{
    size_t bytes = (policy_lru.mem_bytes(&config) + 63) / 64 * 64;
    mem = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(mem);
    memset(mem, 0, bytes);
    p = policy_lru.init(mem, &config);
    memset(refused, 0, sizeof(refused));
    asked = 0;
}

static void teardown(void)
{
    free(mem);
}

static void insert(uint32_t block, uint32_t parent)
{
    struct policy_hint hint = {.parent = parent, .bytes = 1};
    policy_lru.insert(p, block, &hint, 0);
}

static uint32_t victim(void)
{
    return policy_lru.victim(p, 0, 0, can_evict, NULL);
}

/* Takes victims until there is none; they must be these. */
static void expect_victims(unsigned n, const uint32_t *want)
{
    for (unsigned i = 0; i < n; i++) {
        uint32_t block = victim();
        ck_assert_uint_eq(block, want[i]);
        policy_lru.remove(p, block);
    }
    ck_assert_uint_eq(victim(), POLICY_NO_BLOCK);
}

#define EXPECT_VICTIMS(...)                                                     \
    do {                                                                        \
        const uint32_t want__[] = {__VA_ARGS__};                                \
        expect_victims((unsigned)(sizeof(want__) / sizeof(want__[0])), want__); \
    } while (0)

CASES(.setup = setup, .teardown = teardown);

CASE(an_empty_policy_has_no_victim)
{
    ck_assert_uint_eq(victim(), POLICY_NO_BLOCK);
    ck_assert_uint_eq(asked, 0);
}

CASE(roots_go_in_the_order_they_came)
{
    insert(3, POLICY_NO_BLOCK);
    insert(0, POLICY_NO_BLOCK);
    insert(7, POLICY_NO_BLOCK);
    EXPECT_VICTIMS(3, 0, 7);
}

CASE(a_touch_makes_young)
{
    for (uint32_t i = 0; i < 4; i++)
        insert(i, POLICY_NO_BLOCK);
    policy_lru.touch(p, 0, 1);
    policy_lru.touch(p, 2, 2);
    policy_lru.touch(p, 2, 3);
    EXPECT_VICTIMS(1, 3, 0, 2);
}

CASE(a_chain_goes_leaf_first)
{
    insert(5, POLICY_NO_BLOCK);
    insert(6, 5);
    insert(7, 6);
    EXPECT_VICTIMS(7, 6, 5);
}

/* As if the whole chain had been touched, deepest first: younger than what is older than the
 * parent, older than what is younger. */
CASE(a_new_child_goes_in_behind_its_parent)
{
    insert(1, POLICY_NO_BLOCK);
    insert(2, POLICY_NO_BLOCK);
    insert(3, POLICY_NO_BLOCK);
    insert(9, 2);
    EXPECT_VICTIMS(1, 9, 2, 3);
}

CASE(children_of_the_youngest_and_the_oldest_are_linked_too)
{
    insert(1, POLICY_NO_BLOCK);
    insert(2, POLICY_NO_BLOCK);
    insert(8, 1);
    insert(9, 2);
    EXPECT_VICTIMS(8, 1, 9, 2);
}

CASE(the_victim_stays_until_it_is_removed)
{
    insert(1, POLICY_NO_BLOCK);
    insert(2, POLICY_NO_BLOCK);
    ck_assert_uint_eq(victim(), 1);
    ck_assert_uint_eq(victim(), 1);
    EXPECT_VICTIMS(1, 2);
}

CASE(refused_victims_are_put_aside_until_they_are_released)
{
    for (uint32_t i = 0; i < 4; i++)
        insert(i, POLICY_NO_BLOCK);
    refused[0] = refused[1] = true;
    ck_assert_uint_eq(victim(), 2);
    ck_assert_uint_eq(asked, 3);
    ck_assert_uint_eq(victim(), 2); /* found at once now */
    ck_assert_uint_eq(asked, 4);
    refused[0] = refused[1] = false;
    policy_lru.release(p, 0, false);
    policy_lru.release(p, 0, false); /* again: nothing */
    policy_lru.release(p, 1, true);  /* as old as a child that went */
    EXPECT_VICTIMS(1, 2, 3, 0);
}

CASE(a_cache_full_of_blocks_in_use_is_looked_at_once)
{
    for (uint32_t i = 0; i < 5; i++)
        insert(i, POLICY_NO_BLOCK);
    memset(refused, 1, sizeof(refused));
    for (unsigned i = 0; i < 10; i++)
        ck_assert_uint_eq(victim(), POLICY_NO_BLOCK);
    ck_assert_uint_eq(asked, 5);
    policy_lru.touch(p, 3, 0); /* of one that is put aside: it stays there */
    policy_lru.remove(p, 4);
    ck_assert_uint_eq(victim(), POLICY_NO_BLOCK);
    refused[3] = false;
    policy_lru.release(p, 3, false);
    EXPECT_VICTIMS(3);
}

CASE(blocks_are_removed_from_anywhere_and_come_back)
{
    for (uint32_t i = 0; i < 5; i++)
        insert(i, POLICY_NO_BLOCK);
    policy_lru.remove(p, 2);
    policy_lru.remove(p, 0);
    policy_lru.remove(p, 4);
    insert(0, POLICY_NO_BLOCK);
    insert(4, 1);
    EXPECT_VICTIMS(4, 1, 3, 0);
    insert(2, POLICY_NO_BLOCK);
    EXPECT_VICTIMS(2);
}

CASE(a_parent_that_is_not_there_is_no_parent)
{
    insert(1, POLICY_NO_BLOCK);
    insert(2, 9); /* never came */
    insert(3, POLICY_NO_BLOCK);
    policy_lru.remove(p, 3);
    insert(4, 3); /* went */
    insert(5, 0); /* all zero in fresh memory */
    EXPECT_VICTIMS(1, 2, 4, 5);
}

/* A list as an array, youngest first. */
struct naive {
    uint32_t block[BLOCKS];
    unsigned n;
};

static unsigned naive_find(const struct naive *v, uint32_t block)
{
    unsigned i = 0;
    while (i < v->n && v->block[i] != block)
        i++;
    return i;
}

static void naive_put(struct naive *v, unsigned at, uint32_t block)
{
    memmove(&v->block[at + 1], &v->block[at], (v->n++ - at) * sizeof(v->block[0]));
    v->block[at] = block;
}

static void naive_take(struct naive *v, unsigned at)
{
    memmove(&v->block[at], &v->block[at + 1], (--v->n - at) * sizeof(v->block[0]));
}

static uint32_t naive_victim(struct naive *v)
{
    for (unsigned left = v->n; left > 0; left--) {
        uint32_t block = v->block[v->n - 1];
        if (!refused[block])
            return block;
        v->n--;
    }
    return POLICY_NO_BLOCK;
}

CASE(random_operations_agree_with_an_array)
{
    struct naive v = {.n = 0};
    uint64_t r = 88172645463325252u;
    for (unsigned turn = 0; turn < 200000; turn++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        uint32_t block = (uint32_t)(r >> 20) % BLOCKS, other = (uint32_t)(r >> 40) % BLOCKS;
        unsigned at = naive_find(&v, block);
        refused[other] = r >> 60 < 6;
        if (r % 8 == 0) {
            ck_assert_uint_eq(victim(), naive_victim(&v));
        } else if (at == v.n && r % 8 == 1) {
            policy_lru.remove(p, block); /* put aside, or not there: nothing to see */
        } else if (at == v.n && r % 8 < 4) {
            policy_lru.release(p, block, r % 8 == 2);
            naive_put(&v, r % 8 == 2 ? v.n : 0, block);
        } else if (at == v.n) {
            policy_lru.remove(p, block);
            unsigned parent = naive_find(&v, other);
            bool has = parent < v.n && other != block;
            insert(block, has ? other : POLICY_NO_BLOCK);
            naive_put(&v, has ? parent + 1 : 0, block);
        } else if (r % 8 < 6) {
            policy_lru.touch(p, block, turn);
            naive_take(&v, at);
            naive_put(&v, 0, block);
        } else {
            policy_lru.remove(p, block);
            naive_take(&v, at);
        }
    }
}

CASE(what_has_ended_goes_first_and_a_touch_undoes_that)
{
    static const uint32_t ended[] = {3, 2};
    insert(1, POLICY_NO_BLOCK);
    insert(2, POLICY_NO_BLOCK);
    insert(3, 2);
    insert(4, POLICY_NO_BLOCK);
    policy_lru.advise(p, POLICY_ADVICE_ENDED, 0, ended, 2, 0);
    ck_assert_uint_eq(victim(), 3);
    policy_lru.touch(p, 3, 0);
    policy_lru.touch(p, 2, 0);
    expect_victims(4, (uint32_t[]){1, 4, 3, 2});
}

CASE(that_somebody_will_continue_changes_nothing)
{
    static const uint32_t soon[] = {1};
    insert(1, POLICY_NO_BLOCK);
    insert(2, POLICY_NO_BLOCK);
    policy_lru.advise(p, POLICY_ADVICE_SOON, 1000, soon, 1, 0);
    expect_victims(2, (uint32_t[]){1, 2});
}

CASE(policies_are_found_by_name)
{
    ck_assert_ptr_eq(policy_by_name("lru"), &policy_lru);
    ck_assert_ptr_null(policy_by_name("LRU"));
    ck_assert_ptr_null(policy_by_name(""));
    unsigned n = 0;
    for (; policy_at(n) != NULL; n++) {
        ck_assert_ptr_eq(policy_by_name(policy_at(n)->name), policy_at(n));
        ck_assert_uint_gt(strlen(policy_at(n)->help), 0);
    }
    ck_assert_uint_ge(n, 1);
}
