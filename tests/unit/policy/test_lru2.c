/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "policy_rig.h"

static struct rig rig;

static void setup(void)
{
    rig_open(&rig, &policy_lru2);
}

static void teardown(void)
{
    rig_close(&rig);
}

static void at(uint64_t ms)
{
    rig.now_ms = ms;
}

CASES(.setup = setup, .teardown = teardown);

CASE(what_was_used_once_goes_first_the_oldest_before)
{
    for (uint32_t i = 0; i < 4; i++) {
        at(100 * i);
        rig_insert(&rig, i, POLICY_NO_BLOCK);
    }
    at(400);
    rig_touch(&rig, 0);
    RIG_EXPECT(&rig, 1, 2, 3, 0);
}

CASE(the_last_use_but_one_decides)
{
    rig_insert(&rig, 0, POLICY_NO_BLOCK);
    at(100);
    rig_insert(&rig, 1, POLICY_NO_BLOCK);
    at(200);
    rig_touch(&rig, 1);
    at(900);
    rig_touch(&rig, 0);
    ck_assert_uint_eq(rig_victim(&rig, 0), 0); /* used last at 900, before that at 0 */
    rig_touch(&rig, 0);
    RIG_EXPECT(&rig, 1, 0);
}

CASE(a_use_before_it_went_counts)
{
    rig_insert(&rig, 0, POLICY_NO_BLOCK);
    at(100);
    rig_insert(&rig, 1, POLICY_NO_BLOCK);
    rig.ops->remove(rig.p, 0);
    at(200);
    rig_insert_as(&rig, 7, POLICY_NO_BLOCK, 1000 + 0);
    at(300);
    rig_insert(&rig, 2, POLICY_NO_BLOCK);
    RIG_EXPECT(&rig, 1, 2, 7);
}

CASE(of_one_instant_the_deepest_goes_first)
{
    rig_insert(&rig, 1, POLICY_NO_BLOCK);
    rig_insert(&rig, 2, 1);
    RIG_EXPECT(&rig, 2, 1);
}

CASE(what_comes_back_keeps_its_place)
{
    for (uint32_t i = 0; i < 3; i++) {
        at(100 * i);
        rig_insert(&rig, i, POLICY_NO_BLOCK);
    }
    rig.ops->park(rig.p, 1);
    rig.ops->unpark(rig.p, 1, 500);
    rig.refused[0] = true;
    ck_assert_uint_eq(rig_victim(&rig, 0), 1);
    rig.refused[0] = false;
    rig.ops->release(rig.p, 0, false);
    RIG_EXPECT(&rig, 0, 1, 2);
}

/* Times by hand, and the block that they say goes first. */
struct naive {
    bool in[RIG_BLOCKS];
    uint64_t last[RIG_BLOCKS], before[RIG_BLOCKS];
};

static bool naive_first(const struct naive *v, uint32_t block)
{
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        if (v->in[i] && (v->before[i] < v->before[block] ||
                         (v->before[i] == v->before[block] && v->last[i] < v->last[block])))
            return false;
    return v->in[block];
}

CASE(random_uses_agree_with_times_kept_by_hand)
{
    struct naive v = {.in = {false}};
    uint64_t r = 88172645463325252u;
    for (unsigned turn = 1; turn <= 100000; turn++) {
        r ^= r << 13, r ^= r >> 7, r ^= r << 17;
        const uint32_t block = (uint32_t)(r >> 20) % RIG_BLOCKS;
        at(16 * (uint64_t)turn);
        if (!v.in[block]) {
            rig_insert_as(&rig, block, POLICY_NO_BLOCK, 1000000 + turn);
            v.in[block] = true;
            v.before[block] = 0;
            v.last[block] = turn;
        } else if (r % 8 == 0) {
            rig.ops->remove(rig.p, block);
            v.in[block] = false;
        } else if (r % 8 == 1) {
            const uint32_t victim = rig_victim(&rig, 0);
            if (!naive_first(&v, victim))
                ck_abort_msg("turn %u: victim %u", turn, victim);
            rig.ops->remove(rig.p, victim);
            v.in[victim] = false;
        } else {
            rig_touch(&rig, block);
            v.before[block] = v.last[block];
            v.last[block] = turn;
        }
    }
}
