/* SPDX-License-Identifier: Apache-2.0 */
/* Reserve, commit, drop, and how writers end. */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"
#include "core_slices.h"

static struct rig r;
static struct core_ns *ns;
static struct rig_commit *m;

static void setup(void)
{
    rig_defaults(&r);
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    ns = rig_ns(&r, 1, &spec);
    m = calloc(1, sizeof(*m));
    ck_assert_ptr_nonnull(m);
}

static void teardown(void)
{
    rig_end(&r);
    rig_commit_free(m);
    free(m);
}

static struct core_ns *two_ranks(void)
{
    struct core_ns_spec spec = rig_spec("two ranks", 8, 64);
    spec.shards = 2;
    return rig_ns(&r, 1, &spec);
}

static int reserve_raw(unsigned client, const struct core_reserve *in, uint64_t *ret_id,
                       uint8_t *statuses)
{
    return core_reserve(r.core, r.cl[client], in, ret_id, statuses, &r.why);
}

#define EXPECT(statuses, ...)                                \
    do {                                                     \
        const uint8_t want__[] = {__VA_ARGS__};              \
        for (unsigned i__ = 0; i__ < sizeof(want__); i__++)  \
            ck_assert_uint_eq((statuses)[i__], want__[i__]); \
    } while (0)

/* ---- reserve ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(statuses_tell_what_to_write)
{
    rig_store(&r, 1, ns, 0, 1, 0, 1);
    struct rig_put other = {.ns = ns, .chain = 1, .first = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 2, &other), 0);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 4};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    EXPECT(p.statuses, KVC_ST_EXISTS, KVC_ST_PENDING, KVC_ST_OK, KVC_ST_OK);
    struct rig_put again = p;
    ck_assert_int_eq(rig_reserve(&r, 1, &again), 0);
    EXPECT(again.statuses, KVC_ST_EXISTS, KVC_ST_PENDING, KVC_ST_PENDING, KVC_ST_PENDING);
    ck_assert_uint_eq(again.reservation, 0);
    struct rig_put orphan = {.ns = ns, .chain = 5, .first = 3, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &orphan), 0);
    EXPECT(orphan.statuses, KVC_ST_NO_PARENT, KVC_ST_NO_PARENT);
    ck_assert_uint_eq(orphan.reservation, 0);
    core_check(r.core);
}

CASE(a_key_twice_in_one_request_is_reserved_once)
{
    uint8_t keys[3 * KVC_KEY_BYTES], statuses[3];
    uint64_t id;
    memcpy(keys, rig_key(1, 0).b, KVC_KEY_BYTES);
    memcpy(keys + KVC_KEY_BYTES, rig_key(1, 0).b, KVC_KEY_BYTES);
    memcpy(keys + 2 * KVC_KEY_BYTES, rig_key(1, 1).b, KVC_KEY_BYTES);
    struct core_reserve in = {.ns = ns, .keys = keys, .n = 3};
    ck_assert_int_eq(reserve_raw(1, &in, &id, statuses), 0);
    EXPECT(statuses, KVC_ST_OK, KVC_ST_PENDING, KVC_ST_OK);
    ck_assert_uint_eq(rig_slots(&r), 2);
}

CASE(arguments_outside_the_namespace_are_refused)
{
    struct key256 key = rig_key(1, 0), parent = rig_key(1, 9);
    const struct core_reserve good = {.ns = ns, .keys = key.b, .n = 1};
    struct core_reserve bad[9];
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].group = 1;
    bad[1].shard = 1;
    bad[2].n = 0;
    bad[3].n = KVC_STORE_MAX + 1;
    bad[4].last_tokens = 9;
    bad[5].first_token = 8;   /* and no parent */
    bad[6].parent = parent.b; /* and at the start */
    bad[7].first_token = 4;
    bad[8].first_token = 12;
    bad[8].parent = parent.b;
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        uint64_t id = 7;
        uint8_t status;
        ck_assert_int_eq(reserve_raw(1, &bad[i], &id, &status), KVC_E_BAD_ARGUMENT);
        ck_assert(r.why != NULL && id == 7);
    }
    ck_assert_uint_eq(core_metrics(r.core)->reservations, 0);
}

CASE(nothing_follows_a_partly_filled_block)
{
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2, .last_tokens = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    struct rig_put child = {.ns = ns, .chain = 1, .first = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &child), KVC_E_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(r.why, "partly filled"));
    struct rig_put through = {.ns = ns, .chain = 1, .n = 3}; /* as if it were full */
    ck_assert_int_eq(rig_reserve(&r, 1, &through), 0);
    EXPECT(through.statuses, KVC_ST_PENDING, KVC_ST_BAD_ARGUMENT, KVC_ST_NO_PARENT);
}

/* Engines with recurrent state use pages of thousands of tokens. */
CASE(the_largest_block_keeps_its_number_of_tokens)
{
    struct core_ns_spec spec = rig_spec("large", KVC_BLOCK_TOKENS_MAX, 64);
    struct core_ns *large = rig_ns(&r, 1, &spec);
    struct rig_put p = {.ns = large, .chain = 1, .n = 3, .last_tokens = 65535};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    EXPECT(p.statuses, KVC_ST_OK, KVC_ST_OK, KVC_ST_OK);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    rig_settle(&r);
    ck_assert_uint_eq(rig_lookup(&r, large, 1, 2 * 65536).tokens, 2 * 65536);
    ck_assert_uint_eq(rig_lookup(&r, large, 1, 2 * 65536 + 65535).tokens, 2 * 65536 + 65535);
    ck_assert_uint_eq(rig_lookup(&r, large, 1, 3 * 65536).tokens, 2 * 65536);
    core_check(r.core);
}

CASE(storing_what_exists_is_a_use)
{
    struct core_ns_spec spec = rig_spec("window", 8, 64);
    spec.group[0].rule = KVC_RULE_WINDOW;
    spec.group[0].window = 16;
    struct core_ns *window = rig_ns(&r, 1, &spec);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    rig_store(&r, 1, window, 0, 2, 0, 3);
    for (unsigned i = 0; i < 5; i++)
        rig_step(&r);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    rig_store(&r, 1, window, 0, 2, 0, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(rig_explain(&r, 1, 0, 1, i).age_ms, 0);
        ck_assert_uint_eq(rig_explain(&r, 1, 0, 2, i).age_ms, 0);
    }
    ck_assert_uint_eq(core_metrics(r.core)->blocks_touched, 6);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_stored, 6);
}

/* ---- commit ---- */

static void put_offset(uint8_t *to, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

CASE(offsets_are_checked_and_the_entry_stays_reserved)
{
    static const uint64_t bad[] = {1, 63, 65, 256, 320, UINT64_MAX - 63, UINT64_MAX - 127};
    static uint8_t staging[256];
    uint8_t offsets[8], status = 0xee;
    struct rig_put p = {.ns = ns, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    struct core_commit c = {.reservation = p.reservation,
                            .n = 1,
                            .offsets = offsets,
                            .staging = staging,
                            .staging_bytes = sizeof(staging),
                            .statuses = &status};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        put_offset(offsets, bad[i]);
        ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), 0);
        ck_assert_uint_eq(status, KVC_ST_BAD_ARGUMENT);
    }
    put_offset(offsets, 0);
    c.staging_bytes = 63;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), 0);
    ck_assert_uint_eq(status, KVC_ST_BAD_ARGUMENT);
    c.staging = NULL; /* a session without staging */
    c.staging_bytes = 0;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), 0);
    ck_assert_uint_eq(status, KVC_ST_BAD_ARGUMENT);
    status = 0xee;
    put_offset(offsets, UINT64_MAX);
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), 0);
    ck_assert_uint_eq(status, 0xee);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    (void)fake_tier_run(r.tier, 1, 0);
    ck_assert_uint_eq(m->statuses[0], KVC_ST_OK);
    p.chain = 2;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    c.reservation = p.reservation;
    c.store = true; /* then nothing may be left out, and nothing stays reserved */
    status = KVC_ST_OK;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), 0);
    ck_assert_uint_eq(status, KVC_ST_BAD_ARGUMENT);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), KVC_E_GONE);
}

CASE(commit_names_entries_of_its_own_reservation)
{
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3};
    uint8_t offsets[4 * 8] = {0}, statuses[4];
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    struct core_commit c = {.reservation = p.reservation, .offsets = offsets, .statuses = statuses};
    c.first = 1, c.n = 3;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), KVC_E_BAD_ARGUMENT);
    c.first = UINT32_MAX, c.n = 2;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), KVC_E_BAD_ARGUMENT);
    c.first = 0, c.n = 3;
    ck_assert_int_eq(core_commit(r.core, r.cl[2], &c, &r.why), KVC_E_GONE);
    c.reservation++;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), KVC_E_GONE);
    c.reservation = 0;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &c, &r.why), KVC_E_GONE);
    ck_assert_int_eq(core_drop(r.core, r.cl[2], p.reservation), KVC_E_GONE);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), 0);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], p.reservation), KVC_E_GONE);
}

CASE(blocks_become_visible_one_by_one_in_any_order)
{
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 2), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 0);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 8);
    ck_assert_uint_eq(m->done, 0);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 24);
    ck_assert_uint_eq(m->done, 1);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    rig_check_lease(&r, 1, held.lease, 0);
}

CASE_EACH(a_failed_copy_drops_the_block_and_what_builds_on_it, 3)
{
    static const int failures[] = {-EIO, -ETIMEDOUT, -ECANCELED};
    static const uint8_t says[] = {KVC_ST_TIER, KVC_ST_TIMEOUT, KVC_ST_CANCELLED};
    struct rig_put p = {.ns = ns, .chain = 1, .n = 4};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 3), 0);
    if (failures[_i] == -ECANCELED)
        core_cancel(r.core, &m->c.req);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 1), failures[_i]);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 1), 0);
    fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
    EXPECT(m->statuses, KVC_ST_OK, says[_i], KVC_ST_GONE, KVC_ST_OK);
    struct core_prefix got = rig_lookup(&r, ns, 1, 32);
    ck_assert(got.tokens == 8 && got.group[0].reason == KVC_MISS_DROPPED);
    ck_assert_uint_eq(rig_slots(&r), 1);
    core_check(r.core);
}

CASE(out_of_copies_is_busy_and_stays_reserved)
{
    struct rig big;
    struct rig_put *p[5];
    struct rig_commit *c[5];
    rig_defaults(&big);
    big.cfg.blocks_max = 5 * KVC_STORE_MAX;
    big.tier_cfg.regions = 100;
    rig_begin(&big);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *big_ns = rig_ns(&big, 1, &spec);
    for (unsigned i = 0; i < 5; i++) {
        p[i] = calloc(1, sizeof(*p[i]));
        c[i] = calloc(1, sizeof(*c[i]));
        *p[i] = (struct rig_put){.ns = big_ns, .chain = i + 1, .n = KVC_STORE_MAX};
        ck_assert_int_eq(rig_reserve(&big, 1, p[i]), 0);
        ck_assert_int_eq(rig_commit(&big, 1, p[i], c[i]), i < 4 ? 1 : 0);
    }
    for (uint32_t k = 0; k < KVC_STORE_MAX; k++)
        ck_assert_uint_eq(c[4]->statuses[k], KVC_ST_BUSY);
    fake_tier_end(big.tier, fake_tier_op(big.tier, 0), 0);
    rig_commit_free(c[4]);
    ck_assert_int_eq(rig_commit(&big, 1, p[4], c[4]), 1);
    ck_assert_uint_eq(c[4]->statuses[1], KVC_ST_BUSY);
    rig_end(&big);
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_uint_eq(c[i]->done, 1);
        rig_commit_free(c[i]);
        free(c[i]);
        free(p[i]);
    }
}

CASE(reservations_run_out)
{
    struct rig few;
    rig_defaults(&few);
    few.cfg.commits_max = 2;
    rig_begin(&few);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *few_ns = rig_ns(&few, 1, &spec);
    struct rig_put p = {.ns = few_ns, .n = 1};
    for (uint32_t i = 0; i < 3; i++) {
        p.chain = i;
        ck_assert_int_eq(rig_reserve(&few, 1, &p), i < 2 ? 0 : KVC_E_BUSY);
    }
    rig_end(&few);
}

/* ---- shards ---- */

CASE(a_block_is_there_when_all_its_shards_are)
{
    struct core_ns *two = two_ranks();
    rig_store(&r, 1, two, 0, 1, 0, 2);
    struct rig_block x = rig_explain(&r, 1, 0, 1, 1);
    ck_assert(x.state == KVC_BLOCK_PENDING && x.shards == 2 && x.shards_present == 1);
    struct rig_put p = {.ns = two, .shard = 1, .chain = 1, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 2, &p), 0);
    EXPECT(p.statuses, KVC_ST_OK, KVC_ST_OK);
    ck_assert_int_eq(rig_commit(&r, 2, &p, m), 1);
    (void)fake_tier_run(r.tier, 10, 0);
    ck_assert_uint_eq(rig_lookup(&r, two, 1, 16).tokens, 16);
    ck_assert_uint_eq(core_metrics(r.core)->bytes_present, 4 * 64);
    struct core_held held = rig_acquire(&r, 1, two, 1, 16);
    rig_check_lease(&r, 1, held.lease, 0);
    rig_check_lease(&r, 1, held.lease, 1);
}

CASE(replicated_groups_are_stored_once)
{
    struct core_ns_spec spec = rig_spec("mla", 8, 64);
    spec.shards = 4;
    spec.group[0].flags = KVC_F_REPLICATED;
    struct core_ns *mla = rig_ns(&r, 1, &spec);
    struct rig_put p = {.ns = mla, .shard = 3, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    struct rig_put other = {.ns = mla, .shard = 0, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 2, &other), 0);
    EXPECT(other.statuses, KVC_ST_PENDING);
    p.shard = 0; /* the bytes are the same for all */
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    (void)fake_tier_run(r.tier, 10, 0);
    ck_assert_uint_eq(rig_slots(&r), 1);
    struct core_held held = rig_acquire(&r, 1, mla, 1, 8);
    for (uint32_t shard = 0; shard < 4; shard++)
        rig_check_lease(&r, 1, held.lease, shard);
}

CASE(one_writers_end_drops_the_block_for_all)
{
    struct core_ns *two = two_ranks();
    struct rig_put a = {.ns = two, .shard = 0, .chain = 1, .n = 2};
    struct rig_put b = {.ns = two, .shard = 1, .chain = 1, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &a), 0);
    ck_assert_int_eq(rig_reserve(&r, 2, &b), 0);
    ck_assert_int_eq(rig_commit(&r, 2, &b, m), 1);
    (void)fake_tier_run(r.tier, 1, 0);
    rig_close(&r, 1);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_pending, 0);
    core_check(r.core);
    (void)fake_tier_run(r.tier, 10, 0);
    ck_assert_uint_eq(m->done, 1);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

/* ---- how writers end ---- */

CASE(the_end_of_a_writer_gives_its_room_back_at_once)
{
    struct rig_put p = {.ns = ns, .chain = 1, .n = 5};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(rig_slots(&r), 5);
    rig_close(&r, 1);
    ck_assert_uint_eq(r.idle[1], 1);
    ck_assert_uint_eq(rig_slots(&r), 0);
    ck_assert_uint_eq(core_metrics(r.core)->blocks_pending, 0);
}

CASE(staging_is_in_use_until_the_last_copy)
{
    struct rig_put p = {.ns = ns, .chain = 1, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    rig_close(&r, 1);
    for (unsigned left = 3; left > 0; left--) {
        ck_assert(r.idle[1] == 0 && m->done == 0);
        struct tier_op *op = fake_tier_op(r.tier, 0);
        ck_assert(atomic_load(&op->cancel));
        fake_tier_end(r.tier, op, left == 2 ? -ECANCELED : 0);
    }
    ck_assert(r.idle[1] == 1 && m->done == 1);
}

CASE(quarantine_keeps_leases_and_drops_the_rest)
{
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 16);
    struct rig_put p = {.ns = ns, .chain = 1, .first = 2, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    core_client_quarantine(r.core, r.cl[1]);
    ck_assert_uint_eq(core_metrics(r.core)->reservations, 0);
    ck_assert_uint_eq(rig_slots(&r), 2);
    struct core_evict_job job = {.client = r.cl[0]};
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 0 && job.ret_kept == 2);
    rig_check_lease(&r, 1, held.lease, 0);
    rig_close(&r, 1);
    rig_evict(&r, &job);
    ck_assert(job.ret_blocks == 2 && job.ret_kept == 0);
}

CASE(a_drop_takes_what_others_built_on_it)
{
    struct rig_put a = {.ns = ns, .chain = 1, .n = 2};
    struct rig_put b = {.ns = ns, .chain = 1, .first = 2, .n = 2};
    ck_assert_int_eq(rig_reserve(&r, 1, &a), 0);
    ck_assert_int_eq(rig_reserve(&r, 2, &b), 0);
    EXPECT(b.statuses, KVC_ST_OK, KVC_ST_OK); /* on a block that is being stored */
    ck_assert_int_eq(rig_commit(&r, 2, &b, m), 1);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], a.reservation), 0);
    (void)fake_tier_run(r.tier, 10, 0);
    EXPECT(m->statuses, KVC_ST_GONE, KVC_ST_GONE);
    ck_assert_uint_eq(rig_slots(&r), 0);
    ck_assert_int_eq(core_drop(r.core, r.cl[2], b.reservation), KVC_E_GONE);
}

/* The room of a dropped block is not given to another while a copy into it is under way. */
CASE(room_is_not_reused_below_a_copy)
{
    struct rig small;
    rig_defaults(&small);
    small.tier_cfg =
        (struct fake_tier_config){.regions = 1, .region_bytes = 128, .slot_align = 64, .seed = 1};
    rig_begin(&small);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *few = rig_ns(&small, 1, &spec);
    struct rig_put p = {.ns = few, .chain = 1, .n = 2}, q = {.ns = few, .chain = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&small, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&small, 1, &p, m), 1);
    fake_tier_end(small.tier, fake_tier_op(small.tier, 0), -EIO);
    ck_assert_uint_eq(core_metrics(small.core)->blocks_pending, 0);
    ck_assert_uint_eq(rig_slots(&small), 1);
    ck_assert_int_eq(rig_reserve(&small, 1, &q), 0);
    EXPECT(q.statuses, KVC_ST_OK);
    struct rig_put third = {.ns = few, .chain = 3, .n = 1};
    ck_assert_int_eq(rig_reserve(&small, 1, &third), 0);
    EXPECT(third.statuses, KVC_ST_FULL);
    fake_tier_end(small.tier, fake_tier_op(small.tier, 0), 0);
    EXPECT(m->statuses, KVC_ST_TIER, KVC_ST_GONE);
    ck_assert_int_eq(rig_reserve(&small, 1, &third), 0);
    EXPECT(third.statuses, KVC_ST_OK);
    rig_end(&small);
}

/* Leased blocks cannot leave, and the policy learns that of each when it would be next. One search
 * for room meets all of them, in slices. */
CASE(a_search_past_leased_blocks_goes_on_in_slices)
{
    enum { CHAINS = 64, LOOKS = 16 };
    struct rig full;
    rig_defaults(&full);
    full.cfg.slice_work = 4 * LOOKS;
    full.tier_cfg = (struct fake_tier_config){
        .regions = 1, .region_bytes = CHAINS * 64, .slot_align = 64, .seed = 1};
    rig_begin(&full);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    struct core_ns *all = rig_ns(&full, 1, &spec);
    for (unsigned i = 0; i < CHAINS; i++) {
        rig_store(&full, 1, all, 0, 10 + i, 0, 1);
        if (i < 2 * LOOKS)
            (void)rig_acquire(&full, 1, all, 10 + i, 8);
    }
    const struct key256 key = rig_key(1, 0);
    uint8_t status;
    struct core_reserving x = {.in = {.ns = all, .keys = key.b, .n = 1}, .statuses = &status};
    ck_assert_int_eq(core_reserve_begin(full.core, full.cl[2], &x, &full.why), 0);
    unsigned slices = 1;
    while (core_reserve_step(&x)) {
        core_check(full.core);
        slices++;
    }
    ck_assert_uint_eq(status, KVC_ST_OK);
    ck_assert_uint_ge(slices, 2);
    ck_assert_uint_eq(core_metrics(full.core)->reserve_full, 0);
    rig_end(&full);
}
