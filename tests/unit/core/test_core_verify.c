/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes bad: found, never served, and told. */
#include <stdlib.h>

#include "one_core.h"

static struct {
    struct core_verify v;
    unsigned done, corrupt;
    struct core_corrupt last;
    struct key256 key;
} x;

static void on_corrupt(struct core_verify *v, const struct core_corrupt *what)
{
    ck_assert_ptr_eq(v, &x.v);
    ck_assert_uint_eq(x.done, 0);
    x.corrupt++;
    x.last = *what;
    x.key = *what->key;
}

static void on_done(struct core_verify *v)
{
    ck_assert_ptr_eq(v, &x.v);
    x.done++;
}

static void begin(void)
{
    rig_defaults(&r);
    begin_ns();
}

static int start(unsigned client, uint64_t cursor, uint64_t bytes_max)
{
    memset(&x, 0, sizeof(x));
    x.v = (struct core_verify){.cursor = cursor,
                               .bytes_max = bytes_max,
                               .client = r.cl[client],
                               .corrupt = on_corrupt,
                               .done = on_done};
    return core_verify_start(r.core, &x.v);
}

/* All slices; returns the number of blocks read. */
static uint32_t verify_all(unsigned client, uint64_t bytes_max, unsigned *ret_corrupt)
{
    uint32_t blocks = 0;
    uint64_t cursor = 0;
    unsigned corrupt = 0;
    do {
        if (start(client, cursor, bytes_max) == 1) {
            ck_assert_uint_eq(x.done, 0);
            core_check(r.core);
            fake_tier_run(r.tier, 1000, 0);
            ck_assert_uint_eq(x.done, 1);
        }
        core_check(r.core);
        blocks += x.v.ret_blocks;
        corrupt += x.corrupt;
        cursor = x.v.ret_cursor;
    } while (cursor);
    *ret_corrupt = corrupt;
    return blocks;
}

static void flip(unsigned client, uint32_t chain, uint32_t i)
{
    struct rig_block e = rig_explain(&r, client, 0, chain, i);
    ck_assert_uint_eq(e.state, KVC_BLOCK_PRESENT);
    fake_tier_flip(r.tier, &e.view, 17);
}

CASES(.teardown = end);

CASE(what_is_as_stored_stays)
{
    static const uint64_t bytes[] = {1, 64, 200, 1u << 30};
    for (unsigned i = 0; i < ARRAY_LEN(bytes); i++) {
        unsigned corrupt;
        begin();
        for (uint32_t chain = 1; chain <= 5; chain++)
            rig_store(&r, 1, ns, 0, chain, 0, 40);
        ck_assert_uint_eq(verify_all(1, bytes[i], &corrupt), 200);
        ck_assert_uint_eq(corrupt, 0);
        ck_assert_uint_eq(metrics()->bytes_verified, 200 * 64);
        ck_assert_uint_eq(rig_lookup(&r, ns, 1, 320).tokens, 320);
        rig_end(&r);
    }
}

CASE(a_corrupt_block_goes_with_what_builds_on_it_and_the_miss_says_so)
{
    unsigned corrupt;
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 6);
    rig_store(&r, 1, ns, 0, 2, 0, 6);
    flip(1, 1, 2);
    (void)verify_all(1, 1u << 20, &corrupt);
    ck_assert_uint_eq(corrupt, 1);
    struct core_prefix p = rig_lookup(&r, ns, 1, 48);
    ck_assert_uint_eq(p.tokens, 16);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(rig_lookup(&r, ns, 2, 48).tokens, 48);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 2).reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, 5).reason, KVC_MISS_CORRUPT);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
    ck_assert_uint_eq(metrics()->blocks_corrupt_below, 3);
    ck_assert_uint_eq(metrics()->blocks_present, 8);
    ck_assert_uint_eq(rig_slots(&r), 8);
}

CASE(the_one_that_is_corrupt_is_named)
{
    begin();
    rig_store(&r, 1, ns, 0, 7, 0, 1);
    struct rig_block e = rig_explain(&r, 1, 0, 7, 0);
    struct key256 key = rig_key(7, 0);
    flip(1, 7, 0);
    ck_assert_int_eq(start(1, 0, 1), 1);
    fake_tier_run(r.tier, 10, 0);
    ck_assert(key256_equal(&x.key, &key));
    ck_assert_uint_eq(x.last.ns, e.ns);
    ck_assert_uint_eq(x.last.below, 0);
    ck_assert_uint_eq(x.last.view.off, e.view.off);
}

static void take_view(void *ctx, const struct tier_view *view)
{
    struct tier_view *views = ctx;
    while (views->bytes)
        views++;
    *views = *view;
}

CASE(who_reads_it_is_told_and_the_room_stays_until_the_lease_ends)
{
    unsigned corrupt;
    struct tier_view views[5] = {0};
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
    ck_assert_int_eq(core_lease_locs(r.core, r.cl[1], held.lease, 0, take_view, views), 0);
    flip(1, 1, 1);
    (void)verify_all(1, 1u << 20, &corrupt);
    ck_assert_uint_eq(corrupt, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 8);
    ck_assert_ptr_nonnull(fake_tier_bytes(r.tier, &views[0]));
    ck_assert_ptr_null(fake_tier_bytes(r.tier, &views[1])); /* another generation */
    ck_assert_uint_eq(rig_slots(&r), 4);
    struct core_held again;
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], held.ticket, &again), KVC_E_NO_LEASE);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    ck_assert_uint_eq(rig_slots(&r), 1);
    core_check(r.core);
}

CASE(what_is_stored_again_is_served_again)
{
    unsigned corrupt;
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    flip(1, 1, 0);
    (void)verify_all(1, 1u << 20, &corrupt);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 0);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
    rig_check_lease(&r, 1, held.lease, 0);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    ck_assert_uint_eq(verify_all(1, 1u << 20, &corrupt), 4);
    ck_assert_uint_eq(corrupt, 0);
}

CASE(every_shard_counts)
{
    unsigned corrupt;
    rig_defaults(&r);
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    spec.shards = 4;
    ns = rig_ns(&r, 1, &spec);
    rig_store_shards(&r, 1, ns, 0, 1, 0, 40);
    ck_assert_uint_eq(verify_all(1, 1u << 20, &corrupt), 40);
    struct tier_view views[200] = {0};
    struct core_held held = rig_acquire(&r, 1, ns, 1, 320);
    ck_assert_int_eq(core_lease_locs(r.core, r.cl[1], held.lease, 3, take_view, views), 0);
    fake_tier_flip(r.tier, &views[39], 0);
    ck_assert_uint_eq(verify_all(1, 1u << 20, &corrupt), 40);
    ck_assert_uint_eq(corrupt, 1);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 320).tokens, 312);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
}

CASE(a_block_that_is_being_read_is_not_evicted)
{
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    ck_assert_int_eq(start(1, 0, 1), 1);
    struct core_evict_job job = {.client = r.cl[1]};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 0);
    ck_assert_uint_eq(job.ret_kept, 1);
    fake_tier_run(r.tier, 10, 0);
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 1);
}

CASE(no_slice_holds_more_than_a_share_of_what_is_there)
{
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 16);
    ck_assert_int_eq(start(1, 0, UINT64_MAX), 1);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 3);
    fake_tier_run(r.tier, 10, 0);
}

static void count_idle(void *ctx)
{
    ++*(unsigned *)ctx;
}

static unsigned others_done, others_corrupt;

static void other_corrupt(struct core_verify *v, const struct core_corrupt *what)
{
    (void)v;
    (void)what;
    others_corrupt++;
}

static void other_done(struct core_verify *v)
{
    (void)v;
    others_done++;
}

static int start_other(struct core_verify *v, struct core_client *cl)
{
    *v = (struct core_verify){
        .bytes_max = 1, .client = cl, .corrupt = other_corrupt, .done = other_done};
    return core_verify_start(r.core, v);
}

CASE(a_client_has_one_slice_and_it_ends_with_the_client)
{
    static struct core_verify v[3];
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    ck_assert_int_eq(start_other(&v[0], r.cl[1]), 1);
    ck_assert_int_eq(start_other(&v[1], r.cl[1]), KVC_E_BUSY);
    ck_assert_int_eq(start_other(&v[1], r.cl[2]), 1);
    fake_tier_run(r.tier, 10, 0);
    ck_assert_uint_eq(others_done, 2);
    ck_assert_int_eq(start_other(&v[2], r.cl[1]), 1);
    core_check(r.core);
    rig_close(&r, 1);
    ck_assert_uint_eq(r.idle[1], 0);
    ck_assert(atomic_load(&fake_tier_op(r.tier, 0)->cancel));
    fake_tier_run(r.tier, 10, 0);
    ck_assert_uint_eq(others_done, 3);
    ck_assert_uint_eq(r.idle[1], 1);
    core_check(r.core);
}

CASE(no_principal_can_take_the_slices_of_another)
{
    enum { CLIENTS = 8 };
    static struct core_verify v[CLIENTS + 1];
    struct core_client *cl[CLIENTS];
    const struct core_identity who = {.principal = 1, .name = "one", .tenant = "t1"};
    unsigned idle = 0, started = 0;
    rig_defaults(&r);
    r.cfg.principals_max = 9;
    r.cfg.fair = true;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    ns = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    rig_store(&r, 3, rig_ns(&r, 3, &spec), 0, 1, 0, 4);
    for (unsigned i = 0; i < CLIENTS; i++) {
        ck_assert_int_eq(core_client_open(r.core, &who, count_idle, &idle, &cl[i]), 0);
        started += start_other(&v[i], cl[i]) == 1;
    }
    ck_assert_uint_eq(started, 1); /* nine principals, nine slices: all of them are promised */
    ck_assert_int_eq(start_other(&v[CLIENTS], r.cl[3]), 1);
    core_check(r.core);
    fake_tier_run(r.tier, 10, 0);
    for (unsigned i = 0; i < CLIENTS; i++)
        core_client_close(r.core, cl[i]);
    ck_assert_uint_eq(idle, CLIENTS);
}

CASE(a_slice_reads_sixteen_mebibytes_whatever_is_asked_for)
{
    const uint32_t block = 1u << 20;
    rig_defaults(&r);
    r.tier_cfg.region_bytes = 4 * block;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, block);
    ns = rig_ns(&r, 1, &spec);
    for (uint32_t i = 0; i < 160; i += 8)
        rig_store(&r, 1, ns, 0, 1, i, 8);
    ck_assert_int_eq(start(1, 0, UINT64_C(1) << 62), 1);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 16);
    ck_assert_uint_eq(x.v.ret_cursor, 16);
    fake_tier_run(r.tier, 100, 0);
    core_check(r.core);
}

CASE(failures_are_counted_and_harm_nothing)
{
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    static const int status[] = {-EIO, -ETIMEDOUT, -ECANCELED};
    for (unsigned i = 0; i < ARRAY_LEN(status); i++) {
        ck_assert_int_eq(start(1, 0, 1), 1);
        if (status[i] == -ECANCELED)
            core_cancel(r.core, &x.v.req);
        fake_tier_end(r.tier, fake_tier_op(r.tier, 0), status[i]);
        ck_assert_uint_eq(x.done, 1);
        ck_assert_uint_eq(x.v.ret_blocks, 0);
        ck_assert_uint_eq(x.v.ret_failed, status[i] == -EIO);
        ck_assert_uint_eq(x.v.ret_skipped, status[i] != -EIO);
        core_check(r.core);
    }
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 8).tokens, 8);
}

CASE(everybody_verifies_their_own_and_administrators_all)
{
    unsigned corrupt;
    begin();
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *theirs = rig_ns(&r, 3, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    rig_store(&r, 3, theirs, 0, 1, 0, 3);
    ck_assert_uint_eq(verify_all(1, 1u << 20, &corrupt), 2);
    ck_assert_uint_eq(verify_all(3, 1u << 20, &corrupt), 3);
    ck_assert_uint_eq(verify_all(0, 1u << 20, &corrupt), 5);
}

CASE(what_is_being_written_is_skipped)
{
    begin();
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(start(1, 0, 1), 0);
    ck_assert_uint_eq(x.v.ret_skipped, 2);
    ck_assert_uint_eq(x.v.ret_cursor, 0);
    ck_assert_uint_eq(x.done, 0);
}

CASE(two_slices_that_read_the_same_report_it_once)
{
    static struct core_verify other;
    begin();
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    flip(1, 1, 0);
    ck_assert_int_eq(start(1, 0, 1), 1);
    other = (struct core_verify){
        .bytes_max = 1, .client = r.cl[2], .corrupt = other_corrupt, .done = other_done};
    ck_assert_int_eq(core_verify_start(r.core, &other), 1);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    core_check(r.core);
    ck_assert_uint_eq(rig_slots(&r), 1); /* the other one still reads it */
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    ck_assert_uint_eq(x.corrupt, 1);
    ck_assert_uint_eq(others_corrupt, 0);
    ck_assert_uint_eq(other.ret_skipped, 1);
    ck_assert_uint_eq(rig_slots(&r), 0);
}
