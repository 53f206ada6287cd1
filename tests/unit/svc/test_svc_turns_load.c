/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on long chains of which much is on disk alone: looked for, held and begun in slices. */
#include "turns_rig.h"

#define SLICE 10u /* blocks that are looked at */

static const struct msg_group full = {.block_tokens = 8, .block_bytes = 64};
/* All blocks of the long chain but its first four are in its last window. */
static const struct msg_group windows = {
    .block_tokens = 8, .block_bytes = 64, .rule = KVC_RULE_WINDOW, .window = (LONG_BLOCKS - 4) * 8};

/* A namespace of one group. */
static uint32_t ns_of(const struct msg_group *group)
{
    struct msg_reply_head head;
    struct msg_ns_open_reply reply;
    struct msg_ns_open msg = {.model = codec_text("m"),
                              .position = codec_text("rope"),
                              .attention = codec_text("causal"),
                              .shards = 1,
                              .ngroups = 1,
                              .groups = {*group}};
    const struct sr_reply *r = sr_reply(&s, SR_SEND(&s, p, ns_open, NS_OPEN, &msg));
    ck_assert_int_eq(codec_dec_ns_open_reply(r->bytes, r->len, &head, &reply), 0);
    return reply.ns;
}

/* Memory for 64 blocks; of the long chain the last ones are in it. */
static void setup_of(const struct msg_group *group)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = SLICE;
    s.core_cfg.lease_bytes_max = 2 * LONG_BLOCKS * 64;
    with_storage();
    begin_workers();
    longer = (struct sr_blocks){.ns = ns_of(group), .chain = 1, .n = LONG_BLOCKS};
    sr_turn(&s, 0);
}

static void setup(void)
{
    setup_of(&full);
}

static void setup_windows(void)
{
    setup_of(&windows);
}

static uint64_t in_memory(void)
{
    return core_metrics(s.core)->blocks_in_memory;
}

/* Some of the chain is in memory, and nothing else is. */
static void out_of_memory(void)
{
    const uint32_t others = 2;
    uint8_t key[KVC_KEY_BYTES];
    store(&longer);
    store(&(struct sr_blocks){.ns = longer.ns, .chain = others, .n = LONG_BLOCKS});
    for (uint32_t i = 0; i < LONG_BLOCKS; i++) { /* blocks of windows have nothing below them */
        sr_key(others, i, key);
        const struct msg_evict one = {.ns = longer.ns, .key = {key, sizeof key}};
        (void)SR_SEND(&s, q, evict, EVICT, &one);
        sr_settle(&s);
        sr_copies(&s);
    }
    ck_assert_uint_gt(in_memory(), 0);
    ck_assert_uint_lt(in_memory(), LONG_BLOCKS);
}

static uint64_t acquire(uint32_t flags)
{
    const struct msg_acquire msg = {.seq = seq_of(longer.chain, LONG_BLOCKS), .flags = flags};
    return SR_SEND(&s, p, acquire, ACQUIRE, &msg);
}

static uint64_t lookup(uint32_t flags)
{
    const struct msg_lookup msg = {.seq = seq_of(longer.chain, LONG_BLOCKS), .flags = flags};
    return SR_SEND(&s, p, lookup, LOOKUP, &msg);
}

static uint64_t hint(uint32_t kind)
{
    const struct msg_hint msg = {
        .seq = seq_of(longer.chain, LONG_BLOCKS), .kind = kind, .within_ms = 1000};
    return SR_SEND(&s, p, hint, HINT, &msg);
}

/* A turn has a slice of the request, whose last step may begin to load a block, and one of what is
 * let go of. */
static void work_is_short(uint64_t before)
{
    ck_assert_uint_le(core_work(s.core) - before, 2 * SLICE + WORK_BLOCK);
}

static void turn(void)
{
    const uint64_t before = core_work(s.core);
    sr_turn(&s, 0);
    work_is_short(before);
}

/* Each turn is short until it is answered; copies: some end in between. */
static void short_turns_until(uint64_t corr, bool copies)
{
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        turn();
        if (copies && n % 4 == 3) {
            const uint64_t before = core_work(s.core);
            sr_copies(&s);
            work_is_short(before);
        }
    }
}

/* What was called off goes in slices. */
static void nothing_is_held(void)
{
    for (unsigned n = 0; core_has_steps(s.core); n++) {
        ck_assert_uint_lt(n, TURNS);
        turn();
    }
    ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes + asks_hold(s.core), 0);
    ck_assert_uint_eq(sr_metric(&s, "calls") + s.kept + s.core->moving.wanted_bytes, 0);
    core_check(s.core);
}

/* What is counted of a request that is done at once, and in slices. */
struct counts {
    uint64_t loads, loaded_blocks, tokens_loaded, tokens_hit, missed, acquires, prefetches, leased;
    uint32_t hit_tokens, cached_tokens;
    uint8_t reason;
};

static struct counts counted(uint64_t corr)
{
    const struct core_metrics *m = core_metrics(s.core);
    const struct msg_acquire_reply r = sr_held(&s, corr);
    return (struct counts){.loads = m->loads,
                           .loaded_blocks = m->blocks_hit_loaded,
                           .tokens_loaded = m->tokens_loaded,
                           .tokens_hit = m->tokens_hit,
                           .missed = m->tokens_recomputed_by_miss,
                           .acquires = m->acquires,
                           .prefetches = m->prefetches,
                           .leased = m->leased_bytes,
                           .hit_tokens = r.hit_tokens,
                           .cached_tokens = r.cached_tokens,
                           .reason = r.groups[0].reason};
}

/* in_memory: so many of its first blocks are. */
static struct counts of_acquire(const struct msg_group *group, uint32_t in_memory,
                                uint32_t slice_work, uint32_t flags)
{
    setup_of(group);
    out_of_memory();
    if (in_memory > 0) {
        const struct sr_blocks first = {.ns = longer.ns, .chain = longer.chain, .n = in_memory};
        const uint64_t held = sr_acquire(&s, q, &first, false);
        copies_until(held);
        (void)sr_release(&s, q, sr_held(&s, held).lease);
    }
    s.core->cfg.slice_work = slice_work;
    const uint64_t corr = acquire(flags);
    if (slice_work == SLICE)
        short_turns_until(corr, !(flags & KVC_F_NO_LOAD));
    else
        copies_until(corr);
    const struct counts x = counted(corr);
    if (x.leased > 0)
        (void)sr_release(&s, p, sr_held(&s, corr).lease);
    sr_copies(&s);
    nothing_is_held();
    end_turns();
    return x;
}

static void counts_are_equal(const struct counts *a, const struct counts *b)
{
    ck_assert_uint_eq(a->loads, b->loads);
    ck_assert_uint_eq(a->loaded_blocks, b->loaded_blocks);
    ck_assert_uint_eq(a->tokens_loaded, b->tokens_loaded);
    ck_assert_uint_eq(a->tokens_hit, b->tokens_hit);
    ck_assert_uint_eq(a->missed, b->missed);
    ck_assert_uint_eq(a->acquires, b->acquires);
    ck_assert_uint_eq(a->prefetches, b->prefetches);
    ck_assert_uint_eq(a->leased, b->leased);
    ck_assert_uint_eq(a->hit_tokens, b->hit_tokens);
    ck_assert_uint_eq(a->cached_tokens, b->cached_tokens);
    ck_assert_uint_eq(a->reason, b->reason);
}

CASE(what_a_long_acquire_lacks_is_loaded_in_slices_as_at_once)
{
    const struct counts at_once = of_acquire(&full, 0, 1u << 20, 0),
                        slices = of_acquire(&full, 0, SLICE, 0);
    ck_assert_uint_eq(slices.hit_tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(slices.loads, 1);
    ck_assert_uint_gt(slices.tokens_loaded, 0);
    counts_are_equal(&at_once, &slices);
}

/* What was there before are first blocks, which are a shorter prefix, and last ones, which are
 * none.
 */
CASE(what_a_long_acquire_of_windows_lacks_is_loaded_in_slices_as_at_once)
{
    for (uint32_t n = 0; n < 10; n += 5) {
        const struct counts at_once = of_acquire(&windows, n, 1u << 20, 0),
                            slices = of_acquire(&windows, n, SLICE, 0);
        ck_assert_uint_eq(slices.hit_tokens, LONG_BLOCKS * 8);
        ck_assert_uint_gt(slices.loads, 0);
        ck_assert_uint_eq(slices.tokens_loaded, LONG_BLOCKS * 8); /* each once */
        counts_are_equal(&at_once, &slices);
    }
}

CASE(who_does_not_wait_for_loads_has_what_is_in_memory_in_slices_as_at_once)
{
    const struct counts at_once = of_acquire(&full, 0, 1u << 20, KVC_F_NO_LOAD),
                        slices = of_acquire(&full, 0, SLICE, KVC_F_NO_LOAD);
    ck_assert_uint_lt(slices.hit_tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(slices.cached_tokens, LONG_BLOCKS * 8);
    ck_assert_uint_gt(slices.prefetches, 0);
    counts_are_equal(&at_once, &slices);
}

/* Of whole chains, and of windows. */
static void (*const begins[])(void) = {setup, setup_windows};

CASES(.teardown = end_turns);

CASE_EACH(a_load_that_is_called_off_lets_go_in_slices, 2)
{
    bool over = false;
    begins[_i]();
    out_of_memory();
    for (unsigned turns = 0; !over; turns++) {
        const uint64_t corr = acquire(0);
        ck_assert_uint_lt(turns, TURNS);
        for (unsigned i = 0; i < turns; i++)
            turn();
        over = core_metrics(s.core)->loads > 0;
        const uint64_t before = core_work(s.core);
        (void)sr_cancel(&s, p, corr);
        ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
        work_is_short(before);
        sr_copies(&s);
        nothing_is_held();
    }
}

CASE_EACH(a_session_that_goes_while_it_loads_lets_go_in_slices, 2)
{
    begins[_i]();
    out_of_memory();
    const uint64_t corr = acquire(0);
    for (unsigned n = 0; core_metrics(s.core)->loads == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        turn();
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    const uint64_t before = core_work(s.core);
    sr_leave(&s, p);
    work_is_short(before);
    nothing_is_held();
    ck_assert_uint_eq(pool_used(load_pool(s.core)), 0);
}

CASES(.setup = setup, .teardown = end_turns);

CASE(more_than_may_be_held_is_refused_and_holds_nothing)
{
    out_of_memory();
    s.core->cfg.lease_bytes_max = (LONG_BLOCKS - 1) * 64;
    const uint64_t corr = acquire(0);
    short_turns_until(corr, true);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_LIMIT);
    nothing_is_held();
}

static void is_begun(uint64_t corr)
{
    short_turns_until(corr, true);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    ck_assert_uint_gt(core_metrics(s.core)->prefetches, 0);
    nothing_is_held();
}

CASE(what_a_long_lookup_is_to_load_is_begun_in_slices)
{
    out_of_memory();
    is_begun(lookup(KVC_F_PREFETCH));
}

CASE(what_a_long_hint_says_is_needed_soon_is_begun_in_slices)
{
    out_of_memory();
    is_begun(hint(KVC_HINT_SOON));
}
