/* SPDX-License-Identifier: Apache-2.0 */
/* Turns that are over: what a name leaves behind, and what stays when it is forgotten. */
#include "admin.h"
#include "names_rig.h"

/* What was said up to so many tokens: full blocks of chain 1, then a partly filled one. */
static uint32_t end_chain(uint32_t tokens)
{
    return tokens % BT ? 100 + tokens : 1;
}

static struct core_seq talk_seq(uint32_t tokens)
{
    static uint8_t keys[16 * KVC_KEY_BYTES];
    const uint32_t full = tokens / BT;
    struct core_seq seq = rig_seq(ns, 1, tokens);
    ck_assert_uint_le(seq.n[0], 16);
    memcpy(keys, rig_keys(0, 1, 0, full), (size_t)full * KVC_KEY_BYTES);
    if (tokens % BT) {
        const struct key256 key = rig_key(end_chain(tokens), full);
        memcpy(keys + (size_t)full * KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    }
    seq.keys[0] = keys;
    return seq;
}

static void store_end(uint32_t tokens, bool durable)
{
    static struct rig_put p;
    static struct rig_commit m;
    const uint32_t full = tokens / BT;
    const struct key256 parent = rig_key(1, full - 1);
    p = (struct rig_put){
        .ns = ns, .chain = end_chain(tokens), .first = full, .n = 1, .durable = durable};
    const struct core_reserve in = {.ns = ns,
                                    .parent = full > 0 ? parent.b : NULL,
                                    .first_token = full * BT,
                                    .keys = rig_keys(7, p.chain, full, 1),
                                    .n = 1,
                                    .last_tokens = tokens % BT,
                                    .durable = durable};
    ck_assert_int_eq(core_reserve(r.core, r.cl[1], &in, &p.reservation, p.statuses, &r.why), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_OK);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    rig_settle(&r);
    ck_assert_uint_eq(m.statuses[0], KVC_ST_OK);
    rig_commit_free(&m);
}

static void put_talk(const char *name, uint32_t tokens)
{
    const struct core_seq seq = talk_seq(tokens);
    struct core_named n;
    const struct core_name_put in = {.id = id_of(KVC_NAME_CONVERSATION, name, ""), .seq = &seq};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &in, NULL, &n, &r.why), 0);
    ck_assert_uint_eq(n.tokens, tokens);
    core_check(r.core);
}

/* The talk goes on up to so many tokens, and is named again. */
static void turn(uint32_t tokens, bool durable)
{
    if (tokens >= BT)
        rig_store(&r, 1, ns, 0, 1, 0, tokens / BT);
    if (tokens % BT)
        store_end(tokens, durable);
    put_talk("talk", tokens);
    rig_settle(&r);
    rig_step(&r);
}

static bool is_there(uint32_t tokens)
{
    return rig_explain(&r, 1, 0, end_chain(tokens), tokens / BT).state == KVC_BLOCK_PRESENT;
}

CASES(.teardown = end);

CASE(the_last_block_of_a_turn_goes_when_the_name_goes_on)
{
    begin(64, 64, true);
    turn(3, false);
    turn(20, false);
    ck_assert(!is_there(3));
    turn(41, false);
    ck_assert(!is_there(20));
    turn(63, false);
    ck_assert(!is_there(41) && is_there(63));
    ck_assert_uint_eq(metrics()->blocks_present, 8);
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 8 && gone.kept == 0);
    rig_settle(&r);
    ck_assert_uint_eq(metrics()->blocks_present, 0);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
    rig_restart(&r, true);
    ck_assert_uint_eq(metrics()->blocks_present, 0);
}

/* As put_talk(), of a name that is pinned. slices: in these, or called off before the last one. */
static void put_pinned(uint32_t tokens, bool slices, bool called_off)
{
    const struct core_seq seq = talk_seq(tokens);
    const struct core_name_put in = {
        .id = id_of(KVC_NAME_CONVERSATION, "talk", ""), .seq = &seq, .pinned = true};
    struct core_asking x = {.in = {.seq = seq}, .looks = true, .put = &in};
    struct core_held none;
    int rc = slices ? CORE_MORE : core_name_put(r.core, r.cl[1], &in, NULL, &x.named, &r.why);
    for (; rc == CORE_MORE && !(called_off && x.named.tokens == tokens); core_check(r.core))
        rc = core_ask_step(r.core, r.cl[1], &x, &none, &r.why);
    ck_assert_int_eq(rc, called_off ? CORE_MORE : 0);
    core_ask_cancel(r.core, &x);
    core_check(r.core);
    ck_assert_uint_eq(x.named.tokens, tokens);
}

/* Its pin lets go in slices. */
CASE_EACH(the_last_block_of_a_turn_goes_from_under_its_pin, 3)
{
    begin(64, 64, true);
    turn(44, false);
    put_pinned(44, false, false);
    store_end(46, false);
    r.core->cfg.slice_work = 2;
    r.core->work.end_left = 0;
    put_pinned(46, _i > 0, _i > 1);
    ck_assert((_i == 2 || !is_there(44)) && is_there(46)); /* who cancels does not wait for that */
    while (core_background_step(r.core))
        core_check(r.core);
    ck_assert(!is_there(44));
    ck_assert_uint_eq(metrics()->named_blocks, 6);
    ck_assert_uint_eq(metrics()->pinned_blocks, 6);
}

/* The same name may come back to it; an answer that is made anew leaves no fuller one. */
CASE(what_has_no_fuller_block_in_its_place_stays)
{
    begin(64, 0, false);
    turn(20, false);
    turn(16, false);
    ck_assert(is_there(20));
    turn(20 + 1, false); /* beside it, and fuller, but it is not the name's tip any more */
    ck_assert(is_there(20));
    turn(18, false); /* less */
    ck_assert(is_there(21));
}

CASE(what_another_name_reaches_stays)
{
    begin(64, 0, false);
    turn(20, false);
    put_talk("other", 20);
    turn(41, false);
    ck_assert(is_there(20));
    struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 4 && gone.kept == 2 && gone.kept_named == 2);
    gone = forget("other", true);
    ck_assert(gone.blocks == 3 && gone.kept == 0);
}

CASE(what_is_held_goes_with_the_name)
{
    begin(64, 0, false);
    turn(20, false);
    const struct core_acquire in = {.seq = talk_seq(20)};
    struct core_held held;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), 0);
    turn(41, false);
    ck_assert(is_there(20));
    ck_assert_uint_eq(rig_explain(&r, 1, 0, end_chain(20), 2).level, 0);
    rig_release(&r, 1, &held);
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 7 && gone.kept == 0);
    ck_assert_uint_eq(metrics()->blocks_present, 0);
}

CASE(what_a_store_has_promised_goes_with_the_name)
{
    begin(64, 64, false);
    turn(20, true);
    turn(41, true);
    ck_assert(is_there(20));
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 7 && gone.kept == 0);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
}

/* Not even where its copy on disk is lost, and cannot be written again yet. */
CASE(what_a_store_has_promised_stays_when_the_name_goes_on)
{
    begin(64, 64, false);
    turn(20, true);
    const struct key256 key = rig_key(end_chain(20), 2);
    fake_disk_grows(r.disk, true);
    ck_assert(fake_disk_lose_this(r.disk, key.b, 0));
    turn(40, false);
    ck_assert(is_there(20));
    fake_disk_grows(r.disk, false);
}

/* What another name reaches stays, and holds what builds on it: that was the talk's, or the
 * other's. */
CASE(what_a_store_has_promised_beside_what_stays_has_a_reason)
{
    begin(64, 64, false);
    turn(20, true);
    turn(23, true);
    put_talk("other", 16);
    turn(41, true);
    ck_assert(is_there(20) && is_there(23));
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 4 && gone.kept == 4);
    ck_assert(gone.kept_named == 2 && gone.kept_passed == 2);
    const struct core_evicted all = forget("other", true);
    ck_assert(all.blocks == 4 && all.kept == 0);
}

/* No block of the chain leads there. */
CASE(what_a_store_has_promised_of_the_first_block_goes_with_the_name)
{
    begin(64, 64, false);
    turn(3, true);
    turn(5, true);
    turn(41, true);
    ck_assert(is_there(3) && is_there(5));
    struct core_held held = rig_acquire(&r, 1, ns, end_chain(5), 5);
    struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 7 && gone.kept == 1 && gone.kept_used == 1);
    ck_assert(!is_there(3) && is_there(5));
    rig_release(&r, 1, &held);
}

static void begin_anew(bool host_survives)
{
    const struct core_ns_spec spec = rig_spec("m", BT, 64);
    rig_restart(&r, host_survives);
    ns = rig_ns(&r, 1, &spec);
    rig_step(&r);
}

/* What was noted of them in memory has gone with the daemon; the storage has them still. */
CASE(what_a_store_has_promised_goes_with_the_name_after_restarts_too)
{
    begin(64, 64, true);
    turn(20, true);
    turn(41, true);
    begin_anew(false);
    turn(63, true);
    ck_assert(is_there(20) && is_there(41));
    begin_anew(true);
    begin_anew(false);
    ck_assert_uint_eq(metrics()->blocks_present, 10);
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 10 && gone.kept == 0);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_used(r.disk), 0);
}

CASE(what_somebody_uses_after_a_restart_is_not_the_name_s_own)
{
    begin(64, 64, true);
    turn(20, true);
    turn(41, true);
    turn(63, true);
    begin_anew(true);
    const struct core_seq seq = talk_seq(20);
    struct core_prefix prefix;
    ck_assert_int_eq(core_lookup(r.core, &seq, true, &prefix, &r.why), 0);
    store_end(62, false); /* of this life */
    const struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 1 && gone.kept == 8);
    ck_assert(gone.kept_below == 7 && gone.kept_passed == 1);
    ck_assert(is_there(20) && is_there(41) && is_there(62));
}

CASE(what_no_name_has_passed_stays_after_a_restart)
{
    begin(64, 64, true);
    turn(21, true);
    turn(18, true); /* an answer made anew, and shorter */
    turn(41, true);
    put_talk("other", 21);
    store_end(42, true); /* fuller than the name's */
    store_end(33, true); /* beside a full block */
    begin_anew(false);
    struct core_evicted gone = forget("talk", true);
    ck_assert(gone.blocks == 1 && gone.kept == 7);
    ck_assert(gone.kept_named == 2 && gone.kept_below == 3 && gone.kept_passed == 2);
    ck_assert(is_there(21) && is_there(42) && is_there(18));
}

CASE(what_stays_has_a_reason)
{
    begin(64, 0, false);
    turn(80, false);
    put_talk("other", 16);
    const struct core_pin in = {.seq = talk_seq(32)};
    struct core_pinned pin;
    ck_assert_int_eq(core_pin(r.core, &in, &pin, &r.why), 0);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 40);
    store_end(61, false); /* of others, below block 6 */
    const struct core_evicted gone = forget("talk", true);
    ck_assert_uint_eq(gone.blocks, 3);
    ck_assert_uint_eq(gone.kept_named, 2);
    ck_assert_uint_eq(gone.kept_pinned, 2);
    ck_assert_uint_eq(gone.kept_used, 1);
    ck_assert_uint_eq(gone.kept_below, 2);
    ck_assert_uint_eq(gone.kept, 7);
    rig_release(&r, 1, &held);
    ck_assert_int_eq(core_unpin(r.core, NULL, pin.id), 0);
}
