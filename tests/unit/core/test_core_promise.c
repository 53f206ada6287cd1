/* SPDX-License-Identifier: Apache-2.0 */
/* Many promises of one chain: each is kept, in whatever order storage ends its writes, and what
 * that costs grows with their number, not with its square. */
#include "admin.h"
#include "names_rig.h"

#define N 1024u

static struct rig_put p;
static struct rig_commit made;

static void turn(void)
{
    core_run_done(r.core);
    (void)core_background_step(r.core);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
}

static void store_durable(void)
{
    begin(N + 8, N + 64, false);
    p = (struct rig_put){.ns = ns, .n = N, .chain = 1, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &made), 1);
    while (fake_tier_run(r.tier, UINT32_MAX, 0) > 0)
        turn();
}

static void all_are(uint8_t status)
{
    ck_assert_uint_eq(made.done, 1);
    for (uint32_t i = 0; i < N; i++)
        ck_assert_msg(made.statuses[i] == status, "block %u: %u", i, made.statuses[i]);
    rig_commit_free(&made);
}

CASES(.teardown = end);

CASE(writes_that_end_in_any_order_keep_all_promises)
{
    store_durable();
    unsigned turns = 0;
    for (; made.done == 0; turns++) {
        ck_assert_uint_lt(turns, 100 * N);
        fake_disk_run(r.disk, 1, 0); /* one, at random */
        turn();
    }
    all_are(KVC_ST_OK);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), N);
    ck_assert_msg(promise_looks(r.core) < 64ull * N, "%ju blocks looked at for %u promises",
                  (uintmax_t)promise_looks(r.core), N);
    rig_settle(&r);
}

CASE(a_round_takes_several_turns_when_many_wait)
{
    store_durable();
    ck_assert_uint_gt(promise_count(r.core), 512);
    /* All writes end at once; what is looked at in a call is bounded. */
    const uint64_t before = r.core->m.blocks_promised;
    while (fake_disk_run(r.disk, UINT32_MAX, 0) > 0)
        continue;
    core_run_done(r.core);
    ck_assert_uint_le(r.core->m.blocks_promised - before, 512);
    ck_assert(core_has_done(r.core));
    for (unsigned i = 0; i < 1000 && made.done == 0; i++) {
        fake_disk_run(r.disk, UINT32_MAX, 0);
        turn();
    }
    all_are(KVC_ST_OK);
    rig_settle(&r);
}

CASE(a_write_that_fails_ends_the_promises_that_need_it)
{
    store_durable();
    for (unsigned i = 0; i < 100 * N && made.done == 0; i++) {
        fake_disk_run(r.disk, 1, 5); /* some fail */
        turn();
    }
    ck_assert_uint_eq(made.done, 1);
    /* Whatever is said to be durable is, with all before it. */
    unsigned failed = 0;
    bool is_whole = true;
    for (uint32_t i = 0; i < N; i++) {
        failed += made.statuses[i] != KVC_ST_OK;
        is_whole &= rig_explain(&r, 1, 0, 1, i).durable;
        ck_assert_msg(made.statuses[i] != KVC_ST_OK || is_whole, "block %u is told durable", i);
    }
    ck_assert_uint_gt(failed, 0);
    rig_commit_free(&made);
    rig_settle(&r);
}

static void on_slice(struct core_verify *v)
{
    (void)v;
}

static void on_corrupt(struct core_verify *v, const struct core_corrupt *x)
{
    (void)v;
    ck_abort_msg("%u is told corrupt", x->group);
}

/* A read of a block keeps it from being written. Who waits for that waits alone. */
CASE(a_promise_that_cannot_be_begun_holds_up_no_other)
{
    begin(32, 64, false);
    store(1, 0, 1);
    store(2, 0, 2);
    p = (struct rig_put){.ns = ns, .chain = 1, .first = 1, .n = 1, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &made), 1);
    ck_assert_uint_eq(fake_tier_run(r.tier, UINT32_MAX, 0), 1);
    struct core_verify v = {.client = r.cl[0],
                            .bytes_max = 1,
                            .deadline_ns = UINT64_MAX,
                            .corrupt = on_corrupt,
                            .done = on_slice};
    ck_assert_int_eq(core_verify_start(r.core, &v), 1); /* of the first block there is */
    for (unsigned i = 0; i < 20; i++, turn())
        fake_disk_run(r.disk, UINT32_MAX, 0);
    ck_assert(rig_explain(&r, 1, 0, 1, 1).durable && !rig_explain(&r, 1, 0, 1, 0).durable);
    struct waited w;
    struct core_named n;
    const struct core_name_put durable = {.durable = true};
    ck_assert_int_eq(put("c", 2, 2 * BT, durable, &w, &n), 1);
    for (unsigned i = 0; i < 20; i++, turn())
        fake_disk_run(r.disk, UINT32_MAX, 0);
    ck_assert(w.calls == 1 && w.err == 0);
    ck_assert_uint_eq(made.done, 0);
    rig_settle(&r); /* the read ends */
    ck_assert(made.done == 1 && made.statuses[0] == KVC_ST_OK);
    rig_commit_free(&made);
}

static struct block *block_of(uint32_t chain, uint32_t i)
{
    const struct key256 key = rig_key(chain, i);
    struct block *b = index_get(r.core, ns, 0, key.b);
    ck_assert_ptr_nonnull(b);
    return b;
}

/* Told EXISTS, and nobody waits. */
static void ask_durable(uint32_t chain, uint32_t i)
{
    p = (struct rig_put){.ns = ns, .chain = chain, .first = i, .n = 1, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_EXISTS);
    core_check(r.core);
}

static void are_promised(uint32_t chain, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg(block_promised(block_of(chain, i)), "block %u is not", i);
}

CASE(what_is_being_written_as_ever_is_promised_behind_that)
{
    begin(32, 64, false);
    store(1, 0, 4);
    ck_assert_int_eq(save_begin(r.core, block_of(1, 2), SAVE_COPY), 0);
    ck_assert_int_eq(save_begin(r.core, block_of(1, 1), SAVE_PIN), 0);
    ask_durable(1, 3);
    rig_settle(&r);
    are_promised(1, 4);
}

CASE(what_is_on_disk_as_ever_is_read_and_promised)
{
    begin(32, 64, false);
    store(1, 0, 3);
    while (rig_drain(&r, UINT64_MAX) > 0)
        rig_settle(&r);
    for (uint32_t i = 0; i < 3; i++)
        host_drop(r.core, block_of(1, i));
    ask_durable(1, 2);
    rig_settle(&r);
    are_promised(1, 3);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 3);
}

/* A limit that leaves no room for more promises holds for those behind a write too. */
CASE(what_a_quota_does_not_allow_is_not_promised_behind_a_write)
{
    begin(32, 64, false);
    store(1, 0, 1);
    const struct core_quota q = {
        .scope = KVC_SCOPE_TENANT, .tenant = "t1", .bytes = {{RETAIN_NO_LIMIT, 64}, {0, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    ck_assert_int_eq(save_begin(r.core, block_of(1, 0), SAVE_COPY), 0);
    const struct core_quota none = {
        .scope = KVC_SCOPE_TENANT, .tenant = "t1", .bytes = {{RETAIN_NO_LIMIT, 0}, {0, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &none), 0);
    ask_durable(1, 0);
    ck_assert(!block_is_bound(block_of(1, 0), 1));
    ck_assert_uint_eq(metrics()->demotion_failures, 1);
    rig_settle(&r);
    ck_assert(!block_promised(block_of(1, 0)));
}

CASE(a_read_that_fails_ends_what_was_to_be_promised_behind_it)
{
    begin(32, 64, false);
    store(1, 0, 1);
    while (rig_drain(&r, UINT64_MAX) > 0)
        rig_settle(&r);
    host_drop(r.core, block_of(1, 0));
    ask_durable(1, 0);
    ck_assert(block_is_bound(block_of(1, 0), 1));
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    fake_disk_out(r.disk, true);
    ck_assert_uint_eq(fake_disk_run(r.disk, 1, 0), 1);
    core_check(r.core);
    ck_assert(!block_is_bound(block_of(1, 0), 1));
    ck_assert_uint_eq(metrics()->demotion_failures, 0); /* it is not begun once more */
    fake_disk_out(r.disk, false);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 0);
    ask_durable(1, 0); /* who asks again gets it */
    rig_settle(&r);
    are_promised(1, 1);
}
