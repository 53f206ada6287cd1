/* SPDX-License-Identifier: Apache-2.0 */
/* Requests on long names go on in slices: test_svc_turns.c has the other requests. */
#include "core_names.h"
#include "names_table.h"
#include "turns_rig.h"

/* A turn has one slice of requests, which looks at 10 blocks. */
static void begin(bool on_disk)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = 10;
    s.core_cfg.names_max = 4;
    s.core_cfg.name_ids_bytes = 1 << 16;
    s.core_cfg.pins_max = 3;
    s.core_cfg.lease_bytes_max = LONG_BYTES;
    if (on_disk)
        with_storage();
    s.core_cfg.principals_max = 8;
    begin_turns();
}

static void setup(void)
{
    begin(false);
}

/* Memory for 64 blocks. */
static void setup_storage(void)
{
    begin(true);
}

static uint64_t load(struct sr_peer *peer, uint32_t flags)
{
    const struct msg_name_load msg = {.kind = KVC_NAME_CONVERSATION,
                                      .flags = flags,
                                      .name = codec_text("chat"),
                                      .ttl_ms = UINT64_MAX};
    return SR_SEND(&s, peer, name_load, NAME_LOAD, &msg);
}

static uint64_t loaded(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_load_reply reply;
    SR_READ(&s, corr, name_load, &head, &reply);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply.bytes;
}

static void settle(void)
{
    for (unsigned i = 0; i < 20; i++) {
        sr_turn(&s, 0);
        sr_copies(&s);
    }
}

static void name_long(void)
{
    store(&longer);
    const uint64_t corr = put(p, longer.chain, LONG_BLOCKS);
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    settle();
}

static void nothing_is_held(void)
{
    for (unsigned n = 0; asks_hold(s.core) > 0; n++) { /* what was called off goes in slices */
        ck_assert_uint_lt(n, 3 * LONG_BLOCKS / 10);
        sr_turn(&s, 0);
    }
    no_call_is_left();
}

/* ---- NAME_LOAD ---- */

/* Until some blocks have been found, and others have not. */
static uint64_t load_partly(uint32_t flags)
{
    const uint64_t corr = load(p, flags);
    for (unsigned n = 0; asks_hold(s.core) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_lt(asks_hold(s.core), LONG_BLOCKS);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    core_check(s.core);
    return corr;
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_long_name_is_loaded_in_slices)
{
    name_long();
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t corr = load_partly(i ? KVC_F_WAIT : 0);
        ck_assert_uint_le(asks_hold(s.core), 10);
        ck_assert_uint_ge(turns_until(corr), LONG_BLOCKS * 3 / 10 - 2);
        ck_assert_uint_eq(loaded(corr), LONG_BYTES);
        nothing_is_held();
    }
}

/* Without storage who holds the last block holds all before it. */
CASE(the_chain_of_a_long_name_is_held_in_slices)
{
    name_long();
    uint64_t before = core_work(s.core);
    const uint64_t corr = load(p, 0);
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        ck_assert_uint_le(core_work(s.core) - before, 2 * 10);
        before = core_work(s.core);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    nothing_is_held();
}

CASE(a_load_that_ends_while_it_holds_the_chain_holds_nothing)
{
    name_long();
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t corr = load_partly(0);
        ck_assert_uint_eq(asks_hold(s.core), 1); /* on the way to the last block */
        if (i == 0)
            (void)sr_cancel(&s, p, corr);
        else
            ck_assert_int_eq(core_name_forget(s.core, named(), NULL, NULL), 0);
        evict_all();
        (void)turns_until(corr);
        for (unsigned n = 0; n < LONG_BLOCKS; n++)
            sr_turn(&s, 0);
        ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes, 0);
        nothing_is_held();
    }
}

CASE(a_load_that_is_cancelled_or_left_between_two_slices_holds_nothing)
{
    name_long();
    const uint64_t corr = load_partly(0);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    nothing_is_held();
    (void)load_partly(KVC_F_WAIT);
    sr_leave(&s, p);
    sr_turn(&s, 0);
    nothing_is_held();
}

CASE(a_name_that_is_forgotten_between_two_slices_is_loaded_as_it_was)
{
    name_long();
    const uint64_t corr = load_partly(0);
    ck_assert_int_eq(core_name_forget(s.core, named(), NULL, NULL), 0);
    evict_all(); /* what was found stays, and all before it */
    (void)turns_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    nothing_is_held();
}

/* Its bytes are bad. */
CASE(a_block_that_goes_between_two_slices_is_not_loaded)
{
    name_long();
    const uint64_t corr = load_partly(0);
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    block_kill_tree(s.core,
                    index_get(s.core, seq.ns, 0, seq.keys[0] + (LONG_BLOCKS - 1) * KVC_KEY_BYTES),
                    KVC_MISS_CORRUPT);
    (void)turns_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES - 64);
    nothing_is_held();
}

/* The name's blocks are on disk alone, but for some. */
static void out_of_memory(void)
{
    struct core_name_view v;
    struct sr_blocks other = {.ns = longer.ns, .chain = 2, .n = LONG_BLOCKS};
    name_long();
    store(&other);
    (void)core_name_view(s.core, named(), &v);
    ck_assert_uint_eq(v.bytes_on_disk, LONG_BYTES);
    ck_assert_uint_lt(v.bytes_in_memory, LONG_BYTES);
    evict_all(); /* the others */
}

CASES(.setup = setup_storage, .teardown = end_turns);

CASE(what_a_long_name_lacks_is_held_in_slices_and_waited_for)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    for (unsigned n = 0; core_metrics(s.core)->loads == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    copies_until(corr);
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    nothing_is_held();
}

CASE(no_block_of_a_long_name_is_held_beyond_the_limit)
{
    name_long();
    uint64_t *room = &s.core->unevictable_share.total, all = *room;
    s.core->cfg.slice_work = 1;
    *room = 0;
    const uint64_t corr = load(p, 0);
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        ck_assert_uint_eq(core_metrics(s.core)->unevictable_bytes, 0);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(loaded(corr), LONG_BYTES);
    *room = all;
    nothing_is_held();
}

CASE(a_load_that_is_cancelled_while_it_is_made_holds_nothing)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    for (unsigned n = 0; s.core->moving.wanted_bytes == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    core_check(s.core);
    ck_assert_uint_eq(core_metrics(s.core)->loads, 0);
    (void)sr_cancel(&s, p, corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_CANCELLED);
    ck_assert_uint_eq(s.core->moving.wanted_bytes, 0);
    nothing_is_held();
}

CASE(more_than_a_client_may_hold_is_begun_and_not_waited_for)
{
    s.core->cfg.lease_bytes_max = LONG_BYTES - 1;
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    ck_assert_uint_gt(core_metrics(s.core)->prefetches, 0);
    ck_assert_uint_eq(core_metrics(s.core)->loads + s.core->moving.wanted_bytes, 0);
    nothing_is_held();
}

CASE(what_nobody_waits_for_is_begun_in_slices)
{
    out_of_memory();
    const uint64_t corr = load_partly(0);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    ck_assert_uint_gt(core_metrics(s.core)->prefetches, 0);
    nothing_is_held();
}

CASE(a_load_whose_deadline_comes_tells_what_there_is)
{
    out_of_memory();
    const uint64_t corr = load_partly(KVC_F_WAIT);
    sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
    (void)turns_until(corr);
    ck_assert_uint_lt(loaded(corr), LONG_BYTES);
    nothing_is_held();
}

/* ---- NAME_FORGET ---- */

static uint64_t still_named(void)
{
    return core_metrics(s.core)->named_blocks;
}

static uint64_t forget(struct sr_peer *peer, bool evict, uint32_t deadline_ms)
{
    const struct msg_name_forget msg = {
        .kind = KVC_NAME_CONVERSATION, .evict = evict, .name = codec_text("chat")};
    return sr_send(&s, peer,
                   codec_enc_name_forget(s.buf, sizeof s.buf,
                                         sr_head(&s, KVC_OP_NAME_FORGET, deadline_ms), &msg));
}

/* Until it has let go of some blocks, and not of others. */
static uint64_t forget_partly(bool evict)
{
    const uint64_t corr = forget(p, evict, 0);
    for (unsigned n = 0; still_named() > LONG_BLOCKS - 5; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_gt(still_named(), 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_ptr_null(named());
    return corr;
}

static void nothing_is_left(uint32_t blocks)
{
    for (unsigned i = 0; i < LONG_BLOCKS; i++) {
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(still_named() + core_metrics(s.core)->named_bytes, 0);
    ck_assert_uint_eq(core_metrics(s.core)->pinned_blocks, 0);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_present, blocks);
    nothing_is_held();
}

CASES(.setup = setup, .teardown = end_turns);

CASE(a_long_name_lets_go_of_its_blocks_in_slices)
{
    name_long();
    const uint64_t corr = forget_partly(false), again = forget(q, false, 0);
    ck_assert_uint_ge(turns_until(corr), 1);
    ck_assert_uint_eq(forgotten(corr).blocks, 0);
    ck_assert_uint_eq(still_named(), 0); /* the answer says so */
    (void)turns_until(again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_NO_NAME);
    nothing_is_left(LONG_BLOCKS);
}

CASE(the_blocks_of_a_long_name_are_evicted_in_slices)
{
    name_long();
    const uint64_t corr = forget_partly(true);
    ck_assert_uint_ge(turns_until(corr), LONG_BLOCKS / 2 - 5);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS);
    ck_assert_uint_eq(forgotten(corr).bytes, LONG_BYTES);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 0);
    nothing_is_left(0);
}

CASE(a_forget_that_is_cancelled_left_or_late_goes_on)
{
    for (unsigned i = 0; i < 3; i++) {
        name_long();
        const uint64_t corr = forget_partly(true);
        if (i == 0)
            (void)sr_cancel(&s, p, corr);
        else if (i == 1)
            sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
        else
            sr_leave(&s, p);
        if (i < 2)
            ck_assert_uint_eq(sr_status(&s, corr), i ? KVC_ST_TIMEOUT : KVC_ST_CANCELLED);
        nothing_is_left(0);
    }
}

CASE(a_name_that_is_put_again_between_two_slices_keeps_its_blocks)
{
    name_long();
    const uint64_t corr = forget_partly(true), again = put(q, longer.chain, 20);
    (void)turns_until(again);
    ck_assert_uint_eq(sr_status(&s, again), KVC_ST_OK);
    (void)turns_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS - 20);
    ck_assert_uint_eq(forgotten(corr).kept_named, 20);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 20);
    ck_assert_uint_eq(still_named(), 20);
    ck_assert_ptr_nonnull(named());
    core_check(s.core);
    const uint64_t last = forget(q, true, 0);
    (void)turns_until(last);
    nothing_is_left(0);
}

CASE(blocks_that_go_or_are_leased_between_two_slices_of_a_forget)
{
    name_long();
    const uint64_t corr = forget_partly(true);
    struct sr_blocks some = {.ns = longer.ns, .chain = 1, .n = 10};
    const uint64_t lease = sr_acquire(&s, q, &some, false);
    (void)turns_until(lease);
    struct core_name *nm = CONTAINER_OF(list_first(&s.core->names->going), struct core_name, going);
    block_kill_tree(s.core, &s.core->blocks[s.core->names->ref[nm->refs].block],
                    KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    (void)turns_until(corr);
    ck_assert_uint_lt(forgotten(corr).blocks, LONG_BLOCKS - 10);
    ck_assert_uint_eq(forgotten(corr).kept_used, 10);
    ck_assert_uint_eq(forgotten(corr).kept_blocks, 10);
    (void)sr_release(&s, q, sr_held(&s, lease).lease);
    nothing_is_left(10);
}

CASE(a_name_past_its_time_lets_go_in_slices)
{
    name_long();
    named()->ttl_ms = 1000;
    name_arm(s.core, named());
    sr_turn(&s, 1100);
    ck_assert_ptr_null(named());
    ck_assert_uint_gt(still_named(), 0);
    ck_assert_uint_lt(still_named(), LONG_BLOCKS + 1);
    nothing_is_left(LONG_BLOCKS);
}

CASE(a_name_that_is_pinned_lets_go_of_that_first)
{
    name_long();
    struct core_seq seq;
    ck_assert(core_name_seq(s.core, named(), &seq));
    ck_assert_int_eq(name_pin(s.core, named(), &seq), 0);
    const uint64_t corr = forget(p, true, 0);
    (void)turns_until(corr);
    ck_assert_uint_eq(forgotten(corr).blocks, LONG_BLOCKS);
    nothing_is_left(0);
}

/* ---- NAME_PUT ---- */

static struct msg_name_put_reply put_reply(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_name_put_reply reply;
    SR_READ(&s, corr, name_put, &head, &reply);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    return reply;
}

/* Until so many blocks are reached by what will be the name. */
static uint64_t put_partly(struct msg_name_put msg, uint32_t reached)
{
    const uint64_t corr = put_as(p, longer.chain, LONG_BLOCKS, msg);
    for (unsigned n = 0; still_named() < reached; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    return corr;
}

static void nothing_is_coming(void)
{
    for (unsigned i = 0; s.core->names->spares > 0; i++) {
        ck_assert_uint_lt(i, TURNS);
        sr_turn(&s, 0);
        core_check(s.core);
    }
    nothing_is_held();
}

CASE(a_long_name_is_put_in_slices)
{
    store(&longer);
    const uint64_t corr = put_partly((struct msg_name_put){0}, 10);
    struct sr_blocks few = {.ns = longer.ns, .chain = 1, .n = 2};
    const uint64_t other = sr_lookup(&s, q, &few);
    ck_assert_uint_lt(still_named(), LONG_BLOCKS);
    ck_assert_ptr_null(named());
    (void)turns_until(other);
    ck_assert_uint_eq(sr_replies(&s, corr), 0); /* it came later */
    ck_assert_uint_ge(turns_until(corr), 2 * LONG_BLOCKS / 10 - 2);
    ck_assert_uint_eq(put_reply(corr).tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(put_reply(corr).bytes, LONG_BYTES);
    ck_assert_ptr_nonnull(named());
    ck_assert_uint_eq(still_named(), LONG_BLOCKS);
    nothing_is_coming();
}

CASE(a_put_that_is_cancelled_left_or_late_leaves_the_name_as_it_was)
{
    store(&longer);
    for (unsigned i = 0; i < 6; i++) {
        if (i == 3)
            (void)turns_until(put(q, longer.chain, 5));
        const uint64_t corr = put_partly((struct msg_name_put){0}, 10);
        if (i % 3 == 0)
            (void)sr_cancel(&s, p, corr);
        else if (i % 3 == 1)
            sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
        else
            sr_leave(&s, p);
        if (i % 3 < 2)
            ck_assert_uint_eq(sr_status(&s, corr), i % 3 ? KVC_ST_TIMEOUT : KVC_ST_CANCELLED);
        else
            p = sr_peer(&s, 2 + i / 3, SR_UID_ONE, 4096);
        nothing_is_coming();
        ck_assert_uint_eq(still_named(), i < 3 ? 0 : 5);
        ck_assert(!named() == (i < 3));
        ck_assert(!named() || named()->tokens == 5 * 8);
    }
}

CASE(a_name_that_goes_on_keeps_what_it_had)
{
    store(&longer);
    (void)turns_until(put(p, longer.chain, 20));
    const uint64_t corr = put_partly((struct msg_name_put){0}, 30);
    ck_assert_uint_eq(named()->tokens, 20 * 8);
    (void)turns_until(corr);
    ck_assert_uint_eq(still_named(), LONG_BLOCKS);
    ck_assert_uint_eq(s.core->names->spares, 0); /* all that it had is the new one's: it is over */
    const uint64_t last = forget(p, true, 0);
    (void)turns_until(last);
    ck_assert_uint_eq(forgotten(last).blocks, LONG_BLOCKS);
    nothing_is_left(0);
}

CASE(a_name_that_moves_lets_go_of_what_it_had_in_slices)
{
    struct sr_blocks other = {.ns = longer.ns, .chain = 2, .n = LONG_BLOCKS - 10};
    name_long();
    store(&other);
    const uint64_t corr = put(p, other.chain, other.n);
    for (unsigned n = 0; named()->blocks > other.n; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    ck_assert_uint_gt(still_named(), other.n); /* more than a slice of them */
    (void)turns_until(corr);
    ck_assert_uint_eq(still_named(), other.n); /* the answer says so */
    nothing_is_coming();
}

CASE(a_long_name_that_is_put_to_few_blocks_lets_go_in_slices_too)
{
    name_long();
    uint64_t before = core_work(s.core);
    const uint64_t corr = put(p, longer.chain, 2);
    unsigned turns = 0;
    for (; sr_replies(&s, corr) == 0; turns++) {
        ck_assert_uint_lt(turns, TURNS);
        ck_assert_uint_le(core_work(s.core) - before, 3 * 10);
        before = core_work(s.core);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(still_named(), 2); /* the answer says so */
    ck_assert_uint_eq(put_reply(corr).tokens, 2 * 8);
    ck_assert_uint_ge(turns, 2);
    nothing_is_coming();
}

CASE(a_move_that_is_cancelled_or_late_goes_on)
{
    struct sr_blocks other = {.ns = longer.ns, .chain = 2, .n = LONG_BLOCKS - 10};
    store(&other);
    for (unsigned i = 0; i < 2; i++) {
        name_long();
        const uint64_t corr = put(p, other.chain, other.n);
        for (unsigned n = 0; named()->blocks > other.n || still_named() > LONG_BLOCKS; n++) {
            ck_assert_uint_lt(n, TURNS);
            sr_turn(&s, 0);
        }
        ck_assert_uint_gt(still_named(), other.n);
        ck_assert_uint_eq(sr_replies(&s, corr), 0);
        if (i == 0)
            (void)sr_cancel(&s, p, corr);
        else
            sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
        ck_assert_uint_eq(sr_status(&s, corr), i ? KVC_ST_TIMEOUT : KVC_ST_CANCELLED);
        nothing_is_coming();
        ck_assert_uint_eq(still_named(), other.n);
        ck_assert_uint_eq(named()->blocks, other.n);
    }
}

CASE(a_name_that_is_forgotten_while_it_is_put_is_put)
{
    store(&longer);
    (void)turns_until(put(p, longer.chain, 5));
    const uint64_t corr = put_partly((struct msg_name_put){0}, 10), gone = forget(q, true, 0);
    (void)turns_until(gone);
    ck_assert_uint_eq(forgotten(gone).blocks, 0); /* what is to be named stays */
    ck_assert_uint_eq(forgotten(gone).kept_named, 5);
    (void)turns_until(corr);
    ck_assert_uint_eq(put_reply(corr).tokens, LONG_BLOCKS * 8);
    ck_assert_uint_eq(named()->tokens, LONG_BLOCKS * 8);
    nothing_is_coming();
}

CASE(a_name_is_put_to_what_is_left_of_its_blocks)
{
    store(&longer);
    const uint64_t corr = put_partly((struct msg_name_put){0}, 10);
    const struct names *n = s.core->names;
    const uint32_t tip = n->ref[n->name[0].refs].block;
    block_kill_tree(s.core, &s.core->blocks[tip], KVC_MISS_CORRUPT); /* its bytes are bad */
    core_check(s.core);
    (void)turns_until(corr);
    ck_assert_uint_lt(put_reply(corr).tokens, LONG_BLOCKS * 8);
    ck_assert_uint_gt(put_reply(corr).tokens, 0);
    ck_assert_uint_eq(named()->tokens, put_reply(corr).tokens);
    ck_assert_uint_eq(still_named(), named()->blocks);
    nothing_is_coming();
}

CASE(a_long_name_has_its_token_ids_and_its_pin)
{
    static uint8_t ids[LONG_BLOCKS * 8 * 4];
    uint8_t back[sizeof ids];
    uint32_t tokens;
    for (unsigned i = 0; i < sizeof ids; i++)
        ids[i] = (uint8_t)(i * 7);
    store(&longer);
    const struct msg_name_put msg = {.flags = KVC_F_PINNED, .ids = {ids, sizeof ids}};
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t corr = put_as(p, longer.chain, LONG_BLOCKS, msg);
        (void)turns_until(corr);
        ck_assert_uint_eq(put_reply(corr).tokens, LONG_BLOCKS * 8);
        ck_assert_uint_eq(core_name_ids(s.core, named(), 0, back, sizeof back / 4, &tokens),
                          LONG_BLOCKS * 8);
        ck_assert_mem_eq(back, ids, sizeof ids);
        ck_assert_uint_eq(core_metrics(s.core)->pinned_blocks, LONG_BLOCKS);
        ck_assert_uint_eq(core_metrics(s.core)->pins, 1);
        nothing_is_coming();
    }
    (void)turns_until(put(p, longer.chain, LONG_BLOCKS)); /* without */
    ck_assert_uint_eq(core_metrics(s.core)->pinned_blocks + core_metrics(s.core)->pins, 0);
    ck_assert_uint_eq(core_name_ids(s.core, named(), 0, back, 1, &tokens), 0);
    ck_assert_uint_eq(s.core->names->ids_used, 0);
    nothing_is_coming();
}

/* Blocks that are wished to have this level for ever. */
static uint32_t at_level(unsigned level)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LONG_BLOCKS; i++) {
        const struct block *b = block_at(i);
        n += b && retain_base(s.core->retain, block_no(s.core, b)) == level;
    }
    return n;
}

static void wish(unsigned level)
{
    const struct core_wish w = {.level = level, .duration_ms = RETAIN_FOR_EVER};
    for (uint32_t i = 0; i < LONG_BLOCKS; i++)
        wish_add(s.core, block_at(i), &w, true);
}

/* By other names, of the first 5 blocks, which have their priority then. */
static void names_are(const char *first, const char *last)
{
    for (char name[2] = {*first, 0}; name[0] <= *last; name[0]++)
        (void)turns_until(
            put_as(q, longer.chain, 5, (struct msg_name_put){.name = codec_text(name)}));
}

CASE(one_name_too_many_is_refused_at_once)
{
    store(&longer);
    wish(80);
    names_are("a", "d");
    const uint64_t corr = put(p, longer.chain, LONG_BLOCKS);
    for (unsigned n = 0; sr_replies(&s, corr) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        ck_assert_uint_eq(still_named(), 5);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_LIMIT);
    nothing_is_coming();
    ck_assert_uint_eq(at_level(80), LONG_BLOCKS);
}

CASE(one_name_too_many_is_refused_at_the_end_of_its_slices)
{
    store(&longer);
    wish(80);
    names_are("a", "c");
    const uint64_t corr = put_partly((struct msg_name_put){0}, 10);
    names_are("d", "d");
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_LIMIT);
    nothing_is_coming();
    ck_assert_uint_eq(still_named(), 5);
    ck_assert_uint_eq(at_level(80), LONG_BLOCKS);
}

static void limit_disk(uint64_t bytes)
{
    const struct core_quota quota = {
        .scope = KVC_SCOPE_NS, .ns = longer.ns, .bytes.limit = {RETAIN_NO_LIMIT, bytes}};
    ck_assert_int_eq(core_quota_set(s.core, &quota), 0);
}

/* A turn has one slice of it, and one of what the core goes on with by itself. */
static void new_name_is_refused_in_slices(uint32_t flags, unsigned status)
{
    const struct msg_name_put msg = {.flags = flags, .name = codec_text("new")};
    const uint64_t had = still_named(), corr = put_as(p, longer.chain, LONG_BLOCKS, msg);
    uint64_t before = core_work(s.core);
    for (unsigned n = 0; sr_replies(&s, corr) == 0 || n < TURNS / 2; n++) {
        ck_assert_uint_lt(n, TURNS);
        ck_assert_uint_le(core_work(s.core) - before, 3 * 10);
        before = core_work(s.core);
        sr_turn(&s, 0);
    }
    ck_assert_uint_eq(sr_status(&s, corr), status);
    ck_assert_uint_gt(strlen(sr_detail(&s, corr)), 0);
    ck_assert_uint_eq(pins_used(s.core) + s.core->names->spares + still_named(), had);
    nothing_is_held();
}

CASES(.setup = setup_storage, .teardown = end_turns);

CASE(a_long_put_within_and_beyond_limits)
{
    name_long();
    store(&(struct sr_blocks){.ns = longer.ns, .chain = 2, .n = 20});
    limit_disk(LONG_BYTES + 64); /* enough when it lets go of what it has */
    const uint64_t corr = put(p, 2, 20);
    (void)turns_until(corr);
    ck_assert_uint_eq(put_reply(corr).tokens, 20 * 8);
    settle();
    new_name_is_refused_in_slices(0, KVC_ST_QUOTA);
    limit_disk(RETAIN_NO_LIMIT);
    core_pin_budget(s.core, LONG_BYTES - 1);
    new_name_is_refused_in_slices(KVC_F_PINNED, KVC_ST_PIN_LIMIT);
}

CASES(.setup = setup, .teardown = end_turns);

/* Called off, late, or with a block that goes, so that it goes on in one piece. */
CASE(a_put_leaves_wishes_that_are_above_its_priority)
{
    store(&longer);
    wish(80);
    for (unsigned i = 0; i < 3; i++) {
        const uint64_t corr = put_partly((struct msg_name_put){0}, 10);
        if (i == 0)
            (void)sr_cancel(&s, p, corr);
        else if (i == 1)
            sr_turn(&s, KVC_DEADLINE_DEFAULT_MS);
        else
            block_kill_tree(s.core, block_at(LONG_BLOCKS - 1), KVC_MISS_CORRUPT);
        (void)turns_until(corr);
        nothing_is_coming();
        ck_assert_uint_eq(at_level(80), LONG_BLOCKS - (i == 2));
        ck_assert(!named() == (i < 2));
    }
}

CASE(blocks_have_the_priority_of_a_name_when_it_is_there)
{
    store(&longer);
    for (unsigned i = 0; i < 2; i++) {
        const unsigned level = 60 + i;
        const uint64_t corr = put_partly((struct msg_name_put){.priority = level}, 10);
        for (unsigned n = 0; !named() || named()->priority != level; n++) {
            ck_assert_uint_eq(at_level(level), 0);
            ck_assert_uint_lt(n, TURNS);
            sr_turn(&s, 0);
        }
        ck_assert_uint_lt(at_level(level), LONG_BLOCKS); /* in slices */
        ck_assert_uint_eq(sr_replies(&s, corr), 0);
        (void)(i == 0 ? sr_cancel(&s, p, corr) : turns_until(corr));
        ck_assert((at_level(level) == LONG_BLOCKS) == (i == 1)); /* who cancels does not wait */
        nothing_is_coming();
        ck_assert_uint_eq(at_level(level), LONG_BLOCKS);
    }
    (void)turns_until(forget(p, false, 0));
    ck_assert_uint_eq(at_level(61), 0);
}

CASE(a_name_that_is_forgotten_before_its_blocks_have_its_priority)
{
    store(&longer);
    const uint64_t corr = put_partly((struct msg_name_put){.priority = 60}, 10);
    for (unsigned n = 0; at_level(60) == 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    (void)turns_until(forget(q, false, 0));
    (void)turns_until(corr);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_OK);
    nothing_is_coming();
    ck_assert_uint_eq(at_level(60), 0);
}

CASES(.setup = setup_storage, .teardown = end_turns);

/* The name comes with its slices, storage a while later. */
CASE(a_long_durable_put_is_answered_when_all_is_kept)
{
    store(&longer);
    const uint64_t corr = put_partly((struct msg_name_put){.flags = KVC_F_DURABLE}, 10);
    for (unsigned n = 0; !named() || asks_hold(s.core) > 0; n++) {
        ck_assert_uint_lt(n, TURNS);
        sr_turn(&s, 0);
    }
    for (unsigned i = 0; i < 10; i++)
        sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_uint_eq(s.kept, 0); /* the request is not needed any more */
    copies_until(corr);
    ck_assert_uint_eq(put_reply(corr).tokens, LONG_BLOCKS * 8);
    ck_assert(named()->saved);
    nothing_is_coming();
}
