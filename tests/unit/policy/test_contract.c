/* SPDX-License-Identifier: Apache-2.0 */
/* What policy.h says, of every policy: random operations, beside a model that knows only which
 * block is where. Check writes to a pipe at each of its assertions, so they are not in loops. */
#include <math.h>
#include <stdio.h>

#include "cases.h"
#include "policy_rig.h"

#define TURNS 20000u

enum where { GONE, IN, PARKED };

struct model {
    struct rig rig;
    uint64_t random;
    enum where where[RIG_BLOCKS];
    uint8_t list[RIG_BLOCKS];
    uint64_t trail; /* of all answers: two runs are the same when this is */
};

static const struct policy_ops *ops;

static uint32_t draw(struct model *m, uint32_t below)
{
    m->random ^= m->random << 13, m->random ^= m->random >> 7, m->random ^= m->random << 17;
    return (uint32_t)((m->random >> 20) % below);
}

static void note(struct model *m, uint64_t what)
{
    m->trail = (m->trail ^ what) * 0x100000001b3u;
}

static void told_to_let_go(struct model *m, uint32_t block, bool last)
{
    m->rig.refused[block] = false;
    m->rig.asked[block] = 0;
    if (m->where[block] == IN)
        ops->release(m->rig.p, block, last);
}

/* In this list, and not waiting for a release. */
static unsigned to_be_had(const struct model *m, uint8_t list)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        n += m->where[i] == IN && m->list[i] == list && !m->rig.refused[i];
    return n;
}

static uint32_t ask(struct model *m, uint8_t list)
{
    const uint32_t block = rig_victim(&m->rig, list);
    note(m, block);
    if ((block == POLICY_NO_BLOCK) != (to_be_had(m, list) == 0))
        ck_abort_msg("%s: victim %u, and %u to be had", ops->name, block, to_be_had(m, list));
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        if (m->rig.asked[i] > 1)
            ck_abort_msg("%s: block %u is asked for again", ops->name, i);
    if (block == POLICY_NO_BLOCK)
        return block;
    const bool right = block < RIG_BLOCKS && m->where[block] == IN && m->list[block] == list &&
                       !m->rig.refused[block];
    if (!right)
        ck_abort_msg("%s: victim %u of list %u", ops->name, block, list);
    return block;
}

static void come(struct model *m, uint32_t block)
{
    const uint32_t other = draw(m, RIG_BLOCKS);
    const uint32_t parent = m->where[other] != GONE ? other : POLICY_NO_BLOCK;
    m->list[block] = (uint8_t)draw(m, RIG_LISTS);
    m->rig.asked[block] = 0;
    m->rig.refused[block] = draw(m, 4) == 0;
    const struct policy_hint hint = {.hash = draw(m, 3 * RIG_BLOCKS) * 0x9e3779b97f4a7c15u,
                                     .parent = parent,
                                     .depth = draw(m, 300),
                                     .bytes = 1 + draw(m, 1 << 20),
                                     .saves = draw(m, 2) * draw(m, 1000),
                                     .list = m->list[block],
                                     .used_ms = m->rig.now_ms - draw(m, 5)};
    ops->insert(m->rig.p, block, &hint, m->rig.now_ms);
    m->where[block] = IN;
}

static void speak(struct model *m)
{
    uint64_t hash[20];
    uint32_t mine[4], n = 0;
    for (unsigned i = 0; i < 20; i++)
        hash[i] = draw(m, 3 * RIG_BLOCKS) * 0x9e3779b97f4a7c15u;
    const struct policy_request asked = {
        .hash = hash, .n = 1 + draw(m, 20), .hits = 0, .source = draw(m, 3)};
    if (ops->request)
        ops->request(m->rig.p, &asked, m->rig.now_ms);
    for (uint32_t i = draw(m, RIG_BLOCKS); i < RIG_BLOCKS && n < 4; i++)
        if (m->where[i] != GONE)
            mine[n++] = i;
    if (ops->advise && n)
        ops->advise(m->rig.p, (enum policy_advice)draw(m, POLICY_ADVICE_COUNT), draw(m, 10000),
                    mine, n, m->rig.now_ms);
}

static void leave(struct model *m, uint32_t block, bool park)
{
    (park ? ops->park : ops->remove)(m->rig.p, block);
    m->where[block] = park ? PARKED : GONE;
    m->rig.refused[block] = false;
    m->rig.asked[block] = 0;
}

/* One operation on a block that is known. */
static void use(struct model *m, uint32_t block)
{
    switch (draw(m, 8)) {
    case 0:
        leave(m, block, draw(m, 2));
        break;
    case 1:
        if (m->where[block] == PARKED) {
            ops->unpark(m->rig.p, block, m->rig.now_ms);
            m->where[block] = IN;
        }
        break;
    case 2:
        m->list[block] = (uint8_t)draw(m, RIG_LISTS);
        ops->assign(m->rig.p, block, m->list[block], m->rig.now_ms);
        m->rig.asked[block] = 0;
        break;
    case 3:
        if (m->where[block] == IN && !m->rig.refused[block])
            m->rig.refused[block] = true;
        break;
    case 4:
        told_to_let_go(m, block, draw(m, 2));
        break;
    default:
        ops->touch(m->rig.p, block, m->rig.now_ms);
        m->rig.asked[block] = 0;
    }
}

static void one_turn(struct model *m)
{
    const uint32_t block = draw(m, RIG_BLOCKS);
    m->rig.now_ms += draw(m, 30);
    switch (draw(m, 4)) {
    case 0: {
        const uint32_t victim = ask(m, (uint8_t)draw(m, RIG_LISTS));
        if (victim != POLICY_NO_BLOCK && draw(m, 4))
            leave(m, victim, draw(m, 2));
        break;
    }
    case 1:
        speak(m);
        break;
    default:
        if (m->where[block] == GONE)
            come(m, block);
        else
            use(m, block);
    }
    if (m->where[block] != GONE) {
        const float worth = ops->worth(m->rig.p, block, m->rig.now_ms);
        uint32_t bits;
        if (!isfinite(worth))
            ck_abort_msg("%s: worth of block %u", ops->name, block);
        memcpy(&bits, &worth, sizeof(bits));
        note(m, bits);
    }
}

/* Each that is in some order comes once, and nothing else. */
static void drain(struct model *m)
{
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        told_to_let_go(m, i, i % 2);
    for (uint8_t list = 0; list < RIG_LISTS; list++)
        for (uint32_t block; (block = ask(m, list)) != POLICY_NO_BLOCK;)
            leave(m, block, false);
    for (uint32_t i = 0; i < RIG_BLOCKS; i++)
        ck_assert_int_ne(m->where[i], IN);
}

static uint64_t story(uint64_t seed)
{
    struct model m = {.random = seed * 0x9e3779b97f4a7c15u | 1};
    rig_open(&m.rig, ops);
    m.rig.now_ms = 1000;
    for (unsigned turn = 0; turn < TURNS; turn++)
        one_turn(&m);
    drain(&m);
    rig_close(&m.rig);
    return m.trail;
}

static int policies(void)
{
    int n = 0;
    while (policy_at((unsigned)n))
        n++;
    return n;
}

CASE_EACH(keeps_the_contract_and_is_deterministic, policies())
{
    ops = policy_at((unsigned)_i);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        const uint64_t first = story(seed), second = story(seed);
        ck_assert_msg(first == second, "%s, seed %u", ops->name, (unsigned)seed);
    }
}

CASE_EACH(a_removed_block_that_is_not_known_means_nothing, policies())
{
    struct rig rig;
    rig_open(&rig, policy_at((unsigned)_i));
    rig.ops->remove(rig.p, 5);
    ck_assert_uint_eq(rig_victim(&rig, 0), POLICY_NO_BLOCK);
    rig_insert(&rig, 5, POLICY_NO_BLOCK);
    rig_insert(&rig, 6, POLICY_NO_BLOCK);
    rig.ops->remove(rig.p, 5);
    rig.ops->remove(rig.p, 5);
    RIG_EXPECT(&rig, 6);
    rig_close(&rig);
}

CASE_EACH(a_chain_in_use_goes_leaf_first_when_it_is_let_go, policies())
{
    struct rig rig;
    rig_open(&rig, policy_at((unsigned)_i));
    for (uint32_t i = 0; i < 5; i++) {
        rig_insert(&rig, i, i ? i - 1 : POLICY_NO_BLOCK);
        rig.refused[i] = true;
    }
    ck_assert_uint_eq(rig_victim(&rig, 0), POLICY_NO_BLOCK);
    for (uint32_t i = 5; i-- > 0;) {
        rig.refused[i] = false;
        rig.ops->release(rig.p, i, i < 4);
        ck_assert_uint_eq(rig_victim(&rig, 0), i);
        rig.ops->remove(rig.p, i);
    }
    ck_assert_uint_eq(rig_victim(&rig, 0), POLICY_NO_BLOCK);
    rig_close(&rig);
}
