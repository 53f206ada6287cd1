/* SPDX-License-Identifier: Apache-2.0 */
/* Long lookups in slices: what they say is what one in one piece says, whatever is there. */
#include <limits.h>
#include <string.h>

#include "admin.h"
#include "cases.h"
#include "core_rig.h"

#define BT     8u
#define BLOCKS 48u
#define TOKENS (BT * BLOCKS)
#define SLICE  3u

static struct rig r;
static struct core_ns *ns;
static uint32_t dice = 1;

/* xorshift32: Marsaglia, Xorshift RNGs, 2003. */
static uint32_t roll(uint32_t n)
{
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return dice % n;
}

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.load_or_recompute = true;
    r.cfg.slice_work = SLICE;
    r.tier_cfg.bytes_per_s = 1000000; /* 8 us a token */
    r.disk_cfg = (struct fake_disk_config){.slots = 512, .region_slots = 8, .seed = 3};
    rig_begin(&r);
}

static void teardown(void)
{
    rig_end(&r);
}

/* Full attention, a window, and a state every second block; some are missing. */
static void some_are_there(uint32_t chain)
{
    struct core_ns_spec spec = rig_spec("m", BT, 64);
    spec.ngroups = 3;
    spec.group[1] = spec.group[2] = spec.group[0];
    spec.group[1].rule = KVC_RULE_WINDOW;
    spec.group[1].window = 3 * BT;
    spec.group[2].rule = KVC_RULE_STATE;
    spec.group[2].block_tokens = 2 * BT;
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, chain, 0, 1 + roll(BLOCKS));
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (roll(8) > 0)
            rig_store(&r, 1, ns, 1, chain + 1000, i, 1);
    for (uint32_t i = 0; i < BLOCKS / 2; i++)
        if (roll(2) > 0)
            rig_store(&r, 1, ns, 2, chain + 2000, i, 1);
}

static unsigned wakes;

static void woken(struct core_waiter *w)
{
    (void)w;
    wakes++;
}

/* What is said, and the most work of a slice. */
static struct core_prefix in_slices(const struct core_seq *seq, uint64_t *ret_most)
{
    struct core_asking x = {.in = {.seq = *seq, .read_only = true}, .looks = true};
    struct core_held held = {0};
    const char *why = NULL;
    int rc;
    *ret_most = 0;
    do {
        const uint64_t before = core_work(r.core);
        rc = core_ask_step(r.core, r.cl[1], &x, &held, &why);
        *ret_most = MAX(*ret_most, core_work(r.core) - before);
    } while (rc == CORE_MORE);
    ck_assert_int_eq(rc, 0);
    return held.prefix;
}

static void says_the_same(const struct core_seq *seq)
{
    struct core_prefix whole;
    uint64_t most;
    ck_assert_int_eq(core_lookup(r.core, seq, false, &whole, &r.why), 0);
    const struct core_prefix p = in_slices(seq, &most);
    ck_assert_uint_le(most, SLICE + 1);
    ck_assert(p.tokens == whole.tokens && p.cached_tokens == whole.cached_tokens);
    ck_assert_uint_eq(p.load_ns, whole.load_ns);
    for (uint32_t g = 0; g < seq->ngroups; g++) {
        ck_assert_uint_eq(p.group[g].blocks, whole.group[g].blocks);
        ck_assert_uint_eq(p.group[g].reason, whole.group[g].reason);
        ck_assert_uint_eq(p.group[g].detail, whole.group[g].detail);
    }
}

CASES(.setup = setup, .teardown = teardown);

/* Weighed or not; at this rate most of it is worth loading, or little, or nothing. */
CASE(a_lookup_of_three_groups)
{
    unsigned cut = 0, hit = 0;
    for (uint32_t chain = 1; chain <= 30; chain++) {
        struct core_prefix p;
        some_are_there(chain);
        if (chain % 3 == 0) { /* what was in memory is on disk alone */
            (void)rig_drain(&r, UINT64_MAX);
            rig_settle(&r);
        }
        struct core_seq seq = rig_seq(ns, chain, TOKENS - roll(2) * 3);
        says_the_same(&seq);
        seq.worth = true;
        for (uint32_t i = 0; i < 4; i++) {
            seq.cost.ns_per_token = (uint64_t[]){0, 100, 24000, 200000}[i];
            seq.cost.ns_per_token_pair = i == 1 ? 200000000 : 0;
            says_the_same(&seq);
            ck_assert_int_eq(core_lookup(r.core, &seq, false, &p, &r.why), 0);
            cut += p.tokens < p.cached_tokens;
            hit += p.tokens > 0;
        }
    }
    ck_assert(cut > 5 && hit > 5);
}

/* A wait for a chain that is being written looks as far as the next block that it lacks. */
CASE(a_wait_behind_a_long_chain_looks_at_little)
{
    const struct core_ns_spec spec = rig_spec("full", BT, 64);
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct rig_put put = {.ns = ns, .chain = 1, .first = 4, .n = BLOCKS - 4, .below = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &put), 0);
    struct core_waiter waiter = {.fn = NULL};
    struct core_held held;
    struct core_acquire in = {.seq = rig_seq(ns, 1, TOKENS), .wait = true};
    const uint64_t before = core_work(r.core);
    ck_assert_int_eq(core_acquire(r.core, r.cl[2], &in, &waiter, &held, &r.why), 1);
    ck_assert_uint_le(core_work(r.core) - before, BLOCKS / 4);
    const struct key256 next = rig_key(1, 4);
    ck_assert_uint_eq(waiter.block, block_no(r.core, index_get(r.core, ns, 0, next.b)));
    core_waiter_cancel(r.core, &waiter);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], put.reservation), 0);
}

/* An acquire in slices that waits for the last block of a chain, which is dropped before slice
 * number drop_at. Returns how many slices there were; *ret_rc is what the last one said. */
static unsigned wait_in_slices(unsigned drop_at, struct core_waiter *waiter, int *ret_rc)
{
    struct rig_put put = {.ns = ns, .chain = 1, .first = BLOCKS - 1, .n = 1, .below = true};
    struct core_asking x = {.in = {.seq = rig_seq(ns, 1, TOKENS), .wait = true}, .waiter = waiter};
    struct core_held held = {0};
    unsigned n = 0;
    ck_assert_int_eq(rig_reserve(&r, 1, &put), 0);
    do {
        if (n == drop_at)
            ck_assert_int_eq(core_drop(r.core, r.cl[1], put.reservation), 0);
        *ret_rc = core_ask_step(r.core, r.cl[2], &x, &held, &r.why);
        n++;
    } while (*ret_rc == CORE_MORE);
    if (drop_at >= n)
        ck_assert_int_eq(core_drop(r.core, r.cl[1], put.reservation), 0);
    if (held.lease)
        ck_assert_int_eq(core_release(r.core, r.cl[2], held.lease), 0);
    return n;
}

/* Nothing would wake who waits for a block that is gone: it asks again. */
CASE(a_wait_for_a_block_that_went_between_two_slices_asks_again)
{
    const struct core_ns_spec spec = rig_spec("full", BT, 64);
    struct core_waiter waiter = {.fn = woken};
    int rc;
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, BLOCKS - 1);
    const unsigned slices = wait_in_slices(UINT_MAX, &waiter, &rc);
    unsigned waited = 0;
    ck_assert_int_eq(rc, 1);
    for (unsigned i = 1; i < slices; i++) {
        core_waiter_cancel(r.core, &waiter);
        waiter = (struct core_waiter){.fn = woken};
        wakes = 0;
        (void)wait_in_slices(i, &waiter, &rc);
        (void)core_run_done(r.core);
        ck_assert_uint_eq(wakes, rc == 1);
        waited += rc == 1;
    }
    core_waiter_cancel(r.core, &waiter);
    while (core_background_step(r.core)) /* leases end in slices */
        continue;
    ck_assert_uint_gt(waited, 0);
}

/* An empty namespace whose slot another one was given while the request waited for its turn. */
CASE(a_lookup_does_not_answer_for_the_namespace_that_came_after)
{
    struct core_ns_spec spec = rig_spec("full", BT, 64);
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, BLOCKS);
    const struct core_seq chain = rig_seq(ns, 1, TOKENS);
    struct core_asking busy[ASKS_MAX];
    struct core_held held = {0};
    const char *why;
    for (uint32_t i = 0; i < ASKS_MAX; i++) {
        busy[i] = (struct core_asking){.in = {.seq = chain, .read_only = true}, .looks = true};
        ck_assert_int_eq(core_ask_step(r.core, r.cl[1], &busy[i], &held, &why), CORE_MORE);
    }
    spec = rig_spec("empty", BT, 64);
    struct core_ns *empty = rig_ns(&r, 1, &spec);
    const struct core_seq of_empty = rig_seq(empty, 1, TOKENS);
    struct core_asking x = {.in = {.seq = of_empty, .read_only = true}, .looks = true};
    ck_assert_int_eq(core_ask_step(r.core, r.cl[1], &x, &held, &why), CORE_MORE);
    const uint32_t was = empty->id;
    for (char name[] = "a"; empty->id == was; name[0]++) {
        ck_assert_int_le(name[0], 'z');
        spec = rig_spec(name, 2 * BT, 64); /* for which the keys are too many */
        rig_step(&r);
        (void)rig_ns(&r, 1, &spec);
    }
    for (uint32_t i = 0; i < ASKS_MAX; i++)
        core_ask_cancel(r.core, &busy[i]);
    ck_assert_int_eq(core_ask_step(r.core, r.cl[1], &x, &held, &why), KVC_E_NO_NAMESPACE);
    while (core_background_step(r.core)) /* what they held is let go of in slices */
        continue;
}
