/* SPDX-License-Identifier: Apache-2.0 */
/* Whose stated prefill cost counts, and against which rate: what is in memory alone. */
#include <stdio.h>

#include "one_core.h"

#define TOKENS 32u /* four blocks of 8 tokens and 64 bytes: 8 bytes a token */
#define RATE   1000000u

static uint32_t id_of(const struct core_ns *of)
{
    struct core_ns_view v;
    core_ns_view(of, &v);
    return v.id;
}

static struct core_ns *state(unsigned client, const char *model, uint64_t ns_per_token)
{
    struct core_ns_spec spec = rig_spec(model, 8, 64);
    spec.prefill_ns_per_token = ns_per_token;
    return rig_ns(&r, client, &spec);
}

/* At `rate` a token takes 8 us to be loaded. */
static void begin(uint64_t rate)
{
    rig_defaults(&r);
    r.cfg.load_or_recompute = true;
    r.tier_cfg.bytes_per_s = rate;
    rig_begin(&r);
    ns = state(1, "m", 0);
    rig_store(&r, 1, ns, 0, 1, 0, TOKENS / 8);
}

static struct core_prefix hit_of(unsigned client)
{
    struct core_seq seq = rig_seq(ns, 1, TOKENS);
    struct core_prefix p;
    seq.worth = true;
    seq.cost = core_ns_cost(r.cl[client], id_of(ns));
    ck_assert_int_eq(core_lookup(r.core, &seq, false, &p, &r.why), 0);
    ck_assert_uint_eq(p.cached_tokens, TOKENS);
    return p;
}

CASES(.teardown = end);

CASE(each_session_is_judged_by_its_own_cost)
{
    begin(RATE);
    ck_assert_ptr_eq(state(2, "m", 50000), ns);
    ck_assert_ptr_eq(state(1, "m", 50), ns);
    ck_assert_uint_eq(hit_of(2).tokens, TOKENS);
    ck_assert_uint_eq(hit_of(1).tokens, 0);
    ck_assert_uint_eq(hit_of(1).group[0].reason, KVC_MISS_NOT_WORTH);
    ck_assert_uint_eq(metrics()->host_bytes_per_s, RATE);
    ck_assert_ptr_eq(state(1, "m", 50000), ns); /* it says so itself */
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
}

static void on_idle(void *ctx)
{
    (void)ctx;
}

CASE(a_cost_ends_with_its_session)
{
    begin(RATE);
    (void)state(1, "m", 50);
    ck_assert_uint_eq(hit_of(1).tokens, 0);
    rig_close(&r, 1);
    const struct core_identity who = {.principal = 1, .name = "one", .tenant = "t1"};
    ck_assert_int_eq(core_client_open(r.core, &who, on_idle, NULL, &r.cl[1]), 0);
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
    ck_assert_ptr_eq(state(1, "m", 0), ns);
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
    ck_assert_uint_eq(hit_of(2).tokens, TOKENS);
    rig_close(&r, 1);
}

CASE(memory_of_which_no_rate_is_known_costs_nothing)
{
    begin(0);
    (void)state(1, "m", 1);
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
}

/* A rate is bounded by what is measured: 16 GiB/s was assumed, whatever the machine did. */
CASE(memory_is_as_fast_as_it_was_measured)
{
    begin(RATE);
    (void)state(1, "m", 8000 - 1);
    ck_assert_uint_eq(hit_of(1).tokens, 0);
    (void)state(1, "m", 8000);
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
}

CASE(costs_of_the_namespaces_opened_last_are_kept)
{
    char model[16];
    begin(RATE);
    (void)state(1, "m", 50);
    for (unsigned i = 1; i < CORE_COSTS; i++) {
        snprintf(model, sizeof model, "m%u", i);
        (void)state(1, model, 50);
    }
    ck_assert_uint_eq(hit_of(1).tokens, 0);
    (void)state(1, "last", 50);
    ck_assert_uint_eq(hit_of(1).tokens, TOKENS);
}
