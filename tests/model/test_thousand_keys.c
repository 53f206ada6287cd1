/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1,000 keys of a namespace with three groups (full, window, state), looked up right against a
 * naive model: arrays of what is present, and the words of PROTOCOL.md, tried from the longest
 * prefix down.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

#define GROUPS    3
#define KEYS      1000u
#define CHAINS    60
#define LOOKUPS   12
#define BLOCK     64u
#define FULL_BT   16u
#define TOKENS    (560u * FULL_BT) /* 560 + 280 + 160 keys */
#define WINDOW_BT 32u
#define STATE_BT  56u

static uint64_t random_state = 20240611;

static uint32_t dice(uint32_t below)
{
    return (uint32_t)(fake_random(&random_state) % below);
}

/* What was stored of one chain. */
struct stored {
    bool is[GROUPS][KEYS];
};

static const struct core_group shapes[GROUPS] = {
    {.block_tokens = FULL_BT, .block_bytes = BLOCK, .rule = KVC_RULE_FULL},
    {.block_tokens = WINDOW_BT, .block_bytes = BLOCK, .rule = KVC_RULE_WINDOW, .window = 200},
    {.block_tokens = STATE_BT, .block_bytes = BLOCK, .rule = KVC_RULE_STATE},
};

static void store_range(struct rig *r, struct core_ns *ns, uint32_t chain, uint32_t g,
                        struct stored *st, uint32_t first, uint32_t n)
{
    rig_store(r, 1, ns, g, chain + g * 1000, first, n);
    for (uint32_t i = first; i < first + n; i++)
        st->is[g][i] = true;
}

/* A full group as far as some block; runs of the window group; some states. */
static void store_some(struct rig *r, struct core_ns *ns, uint32_t chain, struct stored *st)
{
    uint32_t full = dice(4) ? 1 + dice(TOKENS / FULL_BT) : TOKENS / FULL_BT;
    store_range(r, ns, chain, 0, st, 0, full);
    for (unsigned i = 0, at = 0; i < 12 && at < TOKENS / WINDOW_BT; i++) {
        uint32_t n = 1 + dice(60);
        n = MIN(n, TOKENS / WINDOW_BT - at);
        store_range(r, ns, chain, 1, st, at, n);
        at += n + 1 + dice(3);
    }
    for (uint32_t i = 0; i < TOKENS / STATE_BT; i++)
        if (dice(5) == 0)
            store_range(r, ns, chain, 2, st, i, 1);
}

static bool satisfied(const struct stored *st, uint32_t g, uint32_t tokens)
{
    const struct core_group *p = &shapes[g];
    if (tokens % p->block_tokens != 0)
        return false;
    uint32_t end = tokens / p->block_tokens, from = tokens > p->window ? tokens - p->window : 0;
    for (uint32_t i = 0; i < end; i++) {
        bool needed = p->rule == KVC_RULE_FULL ||
                      (p->rule == KVC_RULE_WINDOW && (i + 1) * p->block_tokens > from) ||
                      (p->rule == KVC_RULE_STATE && i + 1 == end);
        if (needed && !st->is[g][i])
            return false;
    }
    return true;
}

static uint32_t naive_hit(const struct stored *st, uint32_t tokens)
{
    for (uint32_t hit = tokens; hit > 0; hit--) {
        bool all = true;
        for (uint32_t g = 0; all && g < GROUPS; g++)
            all = satisfied(st, g, hit);
        if (all)
            return hit;
    }
    return 0;
}

static uint32_t naive_lead(const struct stored *st, uint32_t g, uint32_t n)
{
    uint32_t lead = 0;
    while (lead < n && st->is[g][lead])
        lead++;
    return lead;
}

static uint32_t look(struct rig *r, struct core_ns *ns, uint32_t chain, const struct stored *st,
                     uint32_t tokens)
{
    struct core_prefix got = rig_lookup(r, ns, chain, tokens);
    ck_assert_uint_eq(got.tokens, naive_hit(st, tokens));
    for (uint32_t g = 0; g < GROUPS; g++)
        ck_assert_uint_eq(got.group[g].blocks, naive_lead(st, g, tokens / shapes[g].block_tokens));
    struct core_held held = rig_acquire(r, 2, ns, chain, tokens);
    ck_assert_uint_eq(held.prefix.tokens, got.tokens);
    ck_assert((held.lease != 0) == (got.tokens != 0));
    if (held.lease != 0) {
        rig_check_lease(r, 2, held.lease, 0);
        ck_assert_int_eq(core_release(r->core, r->cl[2], held.lease), 0);
    }
    return got.tokens;
}

CASES(.timeout_s = 300);

CASE(a_thousand_keys_of_three_groups)
{
    struct rig r;
    rig_defaults(&r);
    r.cfg.blocks_max = 2 * CHAINS * KEYS;
    r.tier_cfg.regions = 100;
    r.tier_cfg.region_bytes = 4000 * BLOCK;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("hybrid", FULL_BT, BLOCK);
    spec.ngroups = GROUPS;
    memcpy(spec.group, shapes, sizeof(shapes));
    struct core_ns *ns = rig_ns(&r, 1, &spec);
    struct core_seq whole = rig_seq(ns, 1, TOKENS);
    ck_assert_uint_eq(whole.n[0] + whole.n[1] + whole.n[2], KEYS);
    unsigned hits = 0, misses = 0;
    for (uint32_t chain = 1; chain <= CHAINS; chain++) {
        struct stored *st = calloc(1, sizeof(*st));
        ck_assert_ptr_nonnull(st);
        store_some(&r, ns, chain * 10000, st);
        for (unsigned i = 0; i < LOOKUPS; i++) {
            /* A multiple of what all three have in common, so that no block is partly filled. */
            uint32_t tokens = i == 0 ? TOKENS : (1 + dice(TOKENS / 224)) * 224;
            uint32_t hit = look(&r, ns, chain * 10000, st, tokens);
            hits += hit > 0;
            misses += hit < tokens;
        }
        free(st);
    }
    printf("%u lookups: %u hit, %u not to the end\n", CHAINS * LOOKUPS, hits, misses);
    ck_assert_uint_gt(hits, CHAINS); /* the data has both */
    ck_assert_uint_gt(misses, CHAINS);
    rig_end(&r);
}
