/* SPDX-License-Identifier: Apache-2.0 */
/* What a long name would let go of is counted in slices: the dry run of NAME_FORGET. */
#include "core_names.h"
#include "turns_rig.h"

#define SLICE 10u

static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = SLICE;
    s.core_cfg.names_max = 4;
    s.core_cfg.lease_bytes_max = LONG_BLOCKS * 64;
    begin_turns();
}

static void name_long(void)
{
    store(&longer);
    const uint64_t corr = put(q, longer.chain, LONG_BLOCKS);
    copies_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    sr_settle(&s);
}

static uint64_t forget(bool dry_run)
{
    const struct msg_name_forget msg = {.kind = KVC_NAME_CONVERSATION,
                                        .evict = true,
                                        .dry_run = dry_run,
                                        .name = codec_text("chat")};
    return SR_SEND(&s, p, name_forget, NAME_FORGET, &msg);
}

/* It has looked at some blocks, and not at others. */
static uint64_t looked_partly(void)
{
    const uint64_t corr = forget(true);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    return corr;
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_long_name_is_looked_at_in_slices)
{
    name_long();
    uint64_t before = core_work(s.core);
    const uint64_t corr = forget(true);
    unsigned turns = 0;
    for (; sr_replies(&s, corr) == 0; turns++) {
        ck_assert_uint_lt(turns, TURNS);
        ck_assert_uint_le(core_work(s.core) - before, 2 * SLICE);
        before = core_work(s.core);
        sr_turn(&s, 0);
    }
    ck_assert_uint_ge(turns, LONG_BLOCKS / SLICE);
    const struct msg_name_forget_reply would = forgotten(corr);
    ck_assert_uint_eq(would.blocks, LONG_BLOCKS);
    const uint64_t gone = forget(false);
    copies_until(gone);
    const struct msg_name_forget_reply did = forgotten(gone);
    ck_assert_mem_eq(&did, &would, sizeof did);
    no_call_is_left();
}

CASE(a_name_that_is_forgotten_meanwhile_is_none)
{
    name_long();
    const uint64_t corr = looked_partly();
    ck_assert_int_eq(core_name_forget(s.core, named(), NULL, NULL), 0);
    copies_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_NO_NAME);
    no_call_is_left();
}

/* It goes on, so that all that has been looked at stays. */
CASE(a_name_that_is_put_elsewhere_meanwhile_is_looked_at_there)
{
    static uint8_t keys[LONG_BLOCKS * KVC_KEY_BYTES];
    const char *why;
    struct core_named got;
    name_long();
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    memcpy(keys, seq.keys[0], sizeof keys);
    seq.keys[0] = keys;
    copies_until(put(q, longer.chain, LONG_BLOCKS - 10));
    const struct core_name_put in = {
        .id = {.kind = KVC_NAME_CONVERSATION, .name = (const uint8_t *)"chat", .name_bytes = 4},
        .seq = &seq};
    const uint64_t corr = looked_partly();
    ck_assert_int_eq(core_name_put(s.core, s.svc->sessions[1].client, &in, NULL, &got, &why), 0);
    copies_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 0);
    no_call_is_left();
}

CASE(blocks_that_go_meanwhile_are_not_counted)
{
    name_long();
    const uint64_t corr = looked_partly();
    block_kill_tree(s.core, block_at(5), KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    copies_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, 5);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 0);
    no_call_is_left();
}

CASE(who_calls_it_off_or_leaves_has_changed_nothing)
{
    name_long();
    uint64_t corr = looked_partly();
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    no_call_is_left();
    corr = looked_partly();
    sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_TIMEOUT);
    no_call_is_left();
    (void)looked_partly();
    sr_leave(&s, p);
    sr_turn(&s, 0);
    no_call_is_left();
    ck_assert_uint_eq(core_metrics(s.core)->named_blocks, LONG_BLOCKS);
    ck_assert_uint_eq(core_metrics(s.core)->names, 1);
}
