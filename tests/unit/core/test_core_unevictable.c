/* SPDX-License-Identifier: Apache-2.0 */
/* What leases and reservations may keep in memory whoever wants room there: principals and owners
 * of shares, each beside greedy sessions of another one. */
#include "one_core.h"

#define SLOTS      256u /* 64 regions of 4: a chain of 4 blocks is one */
#define PRINCIPALS 9u

static struct core_ns *other; /* of principal 2, tenant t2; ns: of principal 1, t1 */

/* Of blocks of so many shards. */
static void begin_with(bool fair, uint32_t principals, uint32_t shards)
{
    rig_defaults(&r);
    r.tier_cfg.regions = SLOTS / 4;
    r.tier_cfg.region_bytes = 4 * SLOT;
    r.cfg.leases_max = 4 * SLOTS; /* no pool is the limit */
    r.cfg.commits_max = 4 * SLOTS;
    r.cfg.pins_max = 4 * SLOTS;
    r.cfg.fair = fair;
    r.cfg.principals_max = principals;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, SLOT);
    other = rig_ns(&r, 3, &spec);
    spec.shards = shards;
    ns = rig_ns(&r, 1, &spec);
}

static void begin(bool fair)
{
    begin_with(fair, fair ? PRINCIPALS : 0, 1);
}

static void teardown(void)
{
    for (unsigned i = 1; i <= 2; i++)
        if (r.cl[i])
            rig_close(&r, i);
    core_check(r.core);
    end();
}

static void set_share(const char *tenant, uint64_t bytes)
{
    const struct core_quota q = {.scope = KVC_SCOPE_TENANT,
                                 .tenant = tenant,
                                 .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {bytes, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    core_check(r.core);
}

/* Reserves chains of four until one is refused; what that is told. */
static uint8_t reserve_all(unsigned client, struct core_ns *n, uint32_t chain)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct rig_put p = {.ns = n, .chain = chain + i, .n = 4};
        ck_assert_int_eq(rig_reserve(&r, client, &p), 0);
        for (unsigned k = 0; k < 4; k++)
            if (p.statuses[k] != KVC_ST_OK)
                return p.statuses[k];
    }
    return KVC_ST_OK;
}

static int acquire(unsigned client, struct core_ns *n, uint32_t chain, uint32_t from,
                   struct core_held *ret)
{
    const struct core_acquire in = {.seq = rig_seq(n, chain, 32), .from_tokens = from};
    return core_acquire(r.core, r.cl[client], &in, NULL, ret, &r.why);
}

/* Stores as many chains of four as memory has room for, and leases each, until a lease is refused;
 * how many it has. */
static uint32_t lease_all(unsigned client, struct core_ns *n, uint32_t chain, uint32_t chains,
                          int *ret_err)
{
    for (uint32_t i = 0; i < chains; i++) {
        rig_store(&r, client, n, 0, chain + i, 0, 4);
        rig_step(&r);
    }
    for (uint32_t i = 0; i < chains; i++) {
        struct core_held held;
        *ret_err = acquire(client, n, chain + i, 0, &held);
        if (*ret_err)
            return i;
    }
    return chains;
}

/* Both sessions of principal 1 lease what they get; the refusal says why. */
static void lease_both(struct core_ns *n, const char *why)
{
    int err = 0;
    const uint32_t had = lease_all(1, n, 1000, SLOTS / 4, &err);
    ck_assert_int_eq(err, KVC_E_LIMIT);
    for (uint32_t i = had; i < SLOTS / 4; i++) {
        struct core_held held;
        ck_assert_int_eq(acquire(2, n, 1000 + i, 0, &held), KVC_E_LIMIT);
    }
    ck_assert_ptr_nonnull(strstr(r.why, why));
}

/* Twice as much as there is, of which as much as is promised is always there. */
static void store_as(unsigned client, struct core_ns *n, uint32_t chains)
{
    for (uint32_t i = 0; i < SLOTS / 2; i++) {
        rig_store(&r, client, n, 0, 5000 + i, 0, 4);
        rig_step(&r);
        for (uint32_t k = 0; k < chains && k <= i; k++)
            ck_assert_uint_eq(rig_lookup(&r, n, 5000 + i - k, 32).tokens, 32);
    }
    core_check(r.core);
}

static void store_within(struct core_ns *n, uint32_t chains)
{
    store_as(3, n, chains);
}

/* Half of memory is promised to all principals, in equal parts: to the eight others theirs. */
static void parts_are_left(void)
{
    const uint64_t all = SLOTS * SLOT, each = all / 2 / PRINCIPALS;
    ck_assert_uint_le(metrics()->unevictable_bytes, all - (PRINCIPALS - 1) * each);
}

CASES(.teardown = teardown);

CASE(who_only_reserves_leaves_the_others_their_part)
{
    begin(true);
    for (unsigned i = 1; i <= 2; i++)
        ck_assert_uint_eq(reserve_all(i, ns, 1000 * i), KVC_ST_FULL);
    parts_are_left();
    ck_assert_uint_ge(rig_slots(&r), SLOTS / 2);
    core_check(r.core);
    store_within(other, 3);
}

CASE(who_holds_leases_leaves_the_others_their_part)
{
    begin(true);
    lease_both(ns, "other principals");
    parts_are_left();
    core_check(r.core);
    store_within(other, 3);
}

/* What is refused is given again when others have let go. */
CASE(what_was_refused_is_given_when_leases_have_ended)
{
    begin(true);
    int err = 0;
    const uint32_t n = lease_all(1, ns, 1000, SLOTS / 4, &err);
    struct core_held held;
    ck_assert_int_eq(err, KVC_E_LIMIT);
    ck_assert_int_eq(acquire(2, ns, 1000, 0, &held), 0); /* kept already, by the other session */
    rig_close(&r, 1);
    ck_assert_int_eq(acquire(2, ns, 1000 + n, 0, &held), 0);
    core_check(r.core);
    rig_close(&r, 2);
}

/* 0: they reserve, 1: they lease. */
CASE_EACH(a_guaranteed_share_is_not_lent_to_what_stays, 2)
{
    begin(false);
    set_share("t2", SLOTS / 4 * SLOT);
    for (unsigned i = 1; i <= 2 && _i == 0; i++)
        ck_assert_uint_eq(reserve_all(i, ns, 1000 * i), KVC_ST_QUOTA);
    if (_i == 1)
        lease_both(ns, "guaranteed");
    core_check(r.core);
    store_within(other, SLOTS / 4 / 4);
}

/* Where all of memory is guaranteed, an eighth of it is for what comes and goes even so. */
CASE(shares_of_all_memory_leave_an_eighth_to_the_rest)
{
    begin(false);
    set_share("t2", (uint64_t)SLOTS * SLOT);
    ck_assert_uint_eq(reserve_all(1, ns, 1000), KVC_ST_QUOTA);
    ck_assert_uint_eq(rig_slots(&r), SLOTS / 8);
}

/* Its own share is there for an owner's leases, however much others keep. */
CASE(within_its_share_an_owner_may_hold_what_it_likes)
{
    begin(false);
    set_share("t2", SLOTS / 4 * SLOT);
    ck_assert_uint_eq(reserve_all(1, ns, 1000), KVC_ST_QUOTA);
    int err = 0;
    ck_assert_uint_eq(lease_all(3, other, 7000, SLOTS / 4 / 4, &err), SLOTS / 4 / 4);
    core_check(r.core);
    rig_close(&r, 3);
}

/* A block counts once, whoever holds it in a principal, and pinned or not. */
/* Of one principal, one owner keeps all that its principal may; the other one has a share. */
CASE(a_share_goes_before_what_principals_are_promised)
{
    int err = 0;
    begin(true);
    const struct core_ns_spec spec = rig_spec("mine", 8, SLOT);
    struct core_ns *mine = rig_ns(&r, 1, &spec);
    struct core_ns_view v;
    core_ns_view(mine, &v);
    const struct core_quota q = {
        .scope = KVC_SCOPE_NS,
        .ns = v.id,
        .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {SLOTS / 4 * SLOT, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    (void)lease_all(1, ns, 1000, SLOTS / 4, &err);
    ck_assert_int_eq(err, KVC_E_LIMIT);
    store_as(1, mine, SLOTS / 4 / 4);
}

CASE(a_block_counts_once)
{
    begin(true);
    struct core_held held[3];
    struct core_pinned pinned;
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(acquire(1 + i % 2, ns, 1, 0, &held[i]), 0);
    const struct core_pin pin = {.seq = rig_seq(ns, 1, 32)};
    ck_assert_int_eq(core_pin(r.core, &pin, &pinned, &r.why), 0);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 4 * SLOT);
    rig_release(&r, 1, &held[0]);
    rig_release(&r, 2, &held[1]);
    rig_release(&r, 1, &held[2]);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 4 * SLOT);
    ck_assert_int_eq(core_unpin(r.core, NULL, pinned.id), 0);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 0);
}

/* ---- a region passes to others only as a whole ---- */

#define REGIONS (SLOTS / 4)

/* _i 0: half of memory is promised to nine principals; 1: the other one is guaranteed a quarter of
 * it. What is left to it is as many chains of four. */
static uint32_t begin_apart(int share, uint32_t shards)
{
    begin_with(!share, 9, shards);
    if (share)
        set_share("t2", SLOTS / 4 * SLOT);
    return share ? REGIONS / 4 : REGIONS / 2 / 9;
}

static uint64_t regions_kept(void)
{
    return metrics()->unevictable_regions;
}

/* One shard of the first block of so many chains; four of them lie in one region. */
static void store_roots(uint32_t chain, uint32_t n, uint32_t shard)
{
    for (uint32_t i = 0; i < n; i++) {
        struct rig_put p = {.ns = ns, .shard = shard, .chain = chain + i, .n = 1};
        struct rig_commit m;
        ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
        ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
        (void)fake_tier_run(r.tier, 1, 0);
        ck_assert_uint_eq(m.statuses[0], KVC_ST_OK);
        rig_commit_free(&m);
        rig_step(&r);
    }
}

static int acquire_root(unsigned client, uint32_t chain, struct core_held *ret)
{
    const struct core_acquire in = {.seq = rig_seq(ns, chain, 8)};
    core_tick(r.core, r.now_ns); /* a turn */
    return core_acquire(r.core, r.cl[client], &in, NULL, ret, &r.why);
}

/* One block in four, so that there is one in every region: each is leased, and is what it was. */
CASE_EACH(leases_here_and_there_leave_the_others_whole_regions, 4)
{
    const uint32_t chains = begin_apart(_i % 2, 1 + (uint32_t)_i / 2),
                   shards = 1 + (uint32_t)_i / 2;
    struct core_held held[REGIONS];
    for (uint32_t s = 0; s < shards; s++)
        store_roots(1000, SLOTS / shards, s);
    for (uint32_t i = 0; i < REGIONS / shards; i++)
        ck_assert_int_eq(acquire_root(1 + i % 2, 1000 + 4 * i, &held[i]), 0);
    core_check(r.core);
    store_within(other, chains);
    ck_assert_uint_gt(metrics()->blocks_shifted, 0);
    ck_assert_uint_le(regions_kept() + chains, REGIONS);
    for (uint32_t i = 0; i < REGIONS / shards; i++)
        for (uint32_t s = 0; s < shards; s++)
            rig_check_lease(&r, 1 + i % 2, held[i].lease, s);
}

/* Of a region of 256 bytes such a block leaves more than a third: the share lies in sixteen
 * regions, and not in the ten that have as many bytes. */
CASE(a_share_has_the_regions_that_its_blocks_take)
{
    const uint32_t bytes = 160; /* a slot of 192 */
    struct core_held held[REGIONS];
    begin_with(false, 9, 1);
    set_share("t2", 16 * bytes);
    ck_assert_uint_eq(metrics()->guaranteed_regions, 10);
    const struct core_ns_spec spec = rig_spec("large", 8, bytes);
    other = rig_ns(&r, 3, &spec);
    struct core_share_risk risk;
    core_share_risk(r.core, other, &risk);
    ck_assert(risk.chunks_needed == 16 && risk.chunks == REGIONS && !risk.mixed);
    ck_assert_uint_eq(metrics()->guaranteed_regions, 16);
    store_roots(1000, SLOTS, 0);
    for (uint32_t i = 0; i < REGIONS; i++)
        ck_assert_int_eq(acquire_root(1 + i % 2, 1000 + 4 * i, &held[i]), 0);
    core_check(r.core);
    store_within(other, 4);
    ck_assert_uint_le(regions_kept() + 16, REGIONS);
    for (uint32_t i = 0; i < REGIONS; i++)
        rig_check_lease(&r, 1 + i % 2, held[i].lease, 0);
}

/* Two sessions of one principal with blocks of other sizes, which never lie in one region: one
 * leases a block of each, the other stores within its share, and, when those have ended, beyond. */
CASE_EACH(a_share_has_its_regions_beside_other_sizes_of_its_principal, 2)
{
    const uint32_t bytes = 160; /* a slot of 192 */
    uint32_t leased = 0;
    begin_with(_i == 1, 9, 1);
    const struct core_ns_spec spec = rig_spec("large", 8, bytes);
    struct core_ns *mine = rig_ns(&r, 2, &spec);
    struct core_ns_view v;
    core_ns_view(mine, &v);
    const struct core_quota q = {.scope = KVC_SCOPE_NS,
                                 .ns = v.id,
                                 .bytes = {{RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}, {16 * bytes, 0}}};
    ck_assert_int_eq(core_quota_set(r.core, &q), 0);
    ck_assert_uint_eq(metrics()->guaranteed_regions, 16);
    store_roots(1000, SLOTS, 0);
    for (uint32_t i = 0; i < REGIONS; i++) {
        struct core_held held;
        const int err = acquire_root(1, 1000 + 4 * i, &held);
        ck_assert(err == 0 || err == KVC_E_LIMIT);
        leased += err == 0;
    }
    ck_assert_uint_ge(leased, REGIONS / 2);
    core_check(r.core);
    store_as(2, mine, 4);
    ck_assert_uint_le(regions_kept() + 16, REGIONS);
    rig_close(&r, 1);
    store_as(2, mine, REGIONS / 4 - 1);
    rig_close(&r, 2);
}

/* What is let go of lies in every region in turn, and so would what takes its place. */
CASE_EACH(reservations_here_and_there_leave_the_others_whole_regions, 2)
{
    const uint32_t chains = begin_apart(_i, 1);
    struct core_held held;
    store_roots(1000, SLOTS, 0);
    for (uint32_t i = 0; i < SLOTS; i++, rig_step(&r)) {
        ck_assert_int_eq(acquire_root(1, 1000 + i % REGIONS * 4 + i / REGIONS, &held), 0);
        rig_release(&r, 1, &held);
    }
    for (uint32_t i = 0; i < REGIONS; i++) {
        struct rig_put p = {.ns = ns, .chain = 3000 + i, .n = 1};
        core_tick(r.core, r.now_ns);
        ck_assert_int_eq(rig_reserve(&r, 1 + i % 2, &p), 0);
        ck_assert_uint_eq(p.statuses[0], KVC_ST_OK);
    }
    core_check(r.core);
    store_within(other, chains);
    ck_assert_uint_le(regions_kept() + chains, REGIONS);
}

CASE_EACH(pins_here_and_there_leave_the_others_whole_regions, 2)
{
    const uint32_t chains = begin_apart(_i, 1);
    uint64_t pin[REGIONS];
    store_roots(1000, SLOTS, 0);
    for (uint32_t i = 0; i < REGIONS; i++) {
        const struct core_pin in = {.seq = rig_seq(ns, 1000 + 4 * i, 8)};
        struct core_pinned pinned;
        core_tick(r.core, r.now_ns);
        ck_assert_int_eq(core_pin(r.core, &in, &pinned, &r.why), 0);
        pin[i] = pinned.id;
    }
    core_check(r.core);
    store_within(other, chains);
    ck_assert_uint_le(regions_kept() + chains, REGIONS);
    for (uint32_t i = 0; i < REGIONS; i++)
        ck_assert_int_eq(core_unpin(r.core, NULL, pin[i]), 0);
}

/* _i 0: the part that is promised to its principal; 1: a guaranteed share.
 * What goes first lies in every region in turn, so a region is emptied on purpose: one of those who
 * have borrowed, though one of the owner's own would cost less. */
CASE_EACH(within_its_share_an_owner_s_own_blocks_stay, 2)
{
    const uint32_t slots = _i == 0 ? SLOTS / 2 / 9 : SLOTS / 4;
    begin_with(_i == 0, 9, 1);
    if (_i == 1)
        set_share("t2", SLOTS / 4 * SLOT);
    struct core_ns_spec spec = rig_spec("large", 8, 4 * SLOT);
    struct core_ns *large = rig_ns(&r, 3, &spec);
    struct core_held held;
    uint32_t hits = 0;
    store_roots(1000, SLOTS - 4, 0);
    for (uint32_t i = 0; i < SLOTS; i++, rig_step(&r)) {
        const uint32_t at = i % REGIONS * 4 + i / REGIONS;
        if (at >= SLOTS - 4)
            continue;
        ck_assert_int_eq(acquire_root(1, 1000 + at, &held), 0);
        rig_release(&r, 1, &held);
    }
    rig_store(&r, 3, large, 0, 2000, 0, 1);
    for (uint32_t i = 0; i < slots - 4; i++, rig_step(&r))
        rig_store(&r, 3, other, 0, 5000 + i, 0, 1);
    for (uint32_t i = 0; i < slots - 4; i++)
        hits += rig_lookup(&r, other, 5000 + i, 8).tokens / 8;
    ck_assert_uint_gt(metrics()->evacuations, 0);
    ck_assert_uint_eq(hits, slots - 4);
    ck_assert_uint_eq(rig_lookup(&r, large, 2000, 8).tokens, 8);
}

/* ---- chains: without storage what is held keeps all before it ---- */

#define LONG 16u /* blocks of a chain */

/* Returns how many. */
static uint32_t store_long(uint32_t chains)
{
    for (uint32_t i = 0; i < chains; i++) {
        rig_store(&r, 1, ns, 0, 1000 + i, 0, LONG);
        rig_step(&r);
    }
    return chains;
}

static int acquire_last(uint32_t chain, struct core_held *ret)
{
    const struct core_acquire in = {.seq = rig_seq(ns, chain, 8 * LONG),
                                    .from_tokens = 8 * (LONG - 1)};
    return core_acquire(r.core, r.cl[1], &in, NULL, ret, &r.why);
}

CASE(a_lease_on_a_last_block_counts_all_of_its_chain)
{
    begin(true);
    struct core_held held[SLOTS / LONG];
    uint32_t had = 0;
    for (const uint32_t chains = store_long(SLOTS / LONG); had < chains; had++)
        if (acquire_last(1000 + had, &held[had]))
            break;
    ck_assert_uint_gt(had, 0);
    ck_assert_uint_lt(had, SLOTS / LONG);
    ck_assert_ptr_nonnull(strstr(r.why, "other principals"));
    ck_assert_uint_eq(metrics()->unevictable_bytes, (uint64_t)had * LONG * SLOT);
    core_check(r.core);
    store_within(other, 3);
    rig_release(&r, 1, &held[0]);
    ck_assert_uint_eq(metrics()->unevictable_bytes, (uint64_t)(had - 1) * LONG * SLOT);
}

CASE(leases_on_one_chain_count_it_once)
{
    begin(true);
    struct core_held a, b;
    store_long(1);
    ck_assert_int_eq(acquire_last(1000, &a), 0);
    ck_assert_int_eq(acquire(1, ns, 1000, 0, &b), 0);
    ck_assert_uint_eq(metrics()->unevictable_bytes, LONG * SLOT);
    rig_release(&r, 1, &a);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 4 * SLOT);
    core_check(r.core);
    rig_release(&r, 1, &b);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 0);
}

/* It was stored before others were guaranteed the room. */
CASE(a_chain_that_may_not_stay_is_not_leased_by_its_end)
{
    begin(true);
    const uint32_t blocks = SLOTS / 2;
    struct core_held held;
    for (uint32_t i = 0; i < blocks; i += LONG)
        rig_store(&r, 1, ns, 0, 1000, i, LONG);
    set_share("t2", SLOTS * 3 / 4 * SLOT);
    const struct core_acquire in = {.seq = rig_seq(ns, 1000, 8 * blocks),
                                    .from_tokens = 8 * (blocks - 1)};
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, NULL, &held, &r.why), KVC_E_LIMIT);
    struct rig_put p = {.ns = ns, .chain = 1000, .first = blocks, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_QUOTA);
    ck_assert_uint_eq(metrics()->unevictable_bytes, 0);
}

CASE(a_reservation_behind_a_chain_counts_all_of_it)
{
    begin(true);
    uint8_t last = KVC_ST_OK;
    const uint32_t chains = store_long(SLOTS / LONG * 3 / 4);
    for (uint32_t i = 0; i < chains && last == KVC_ST_OK; i++) {
        struct rig_put p = {.ns = ns, .chain = 1000 + i, .first = LONG, .n = 1};
        ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
        last = p.statuses[0];
    }
    ck_assert_uint_eq(last, KVC_ST_FULL);
    core_check(r.core);
    store_within(other, 3);
}

/* There is nothing to change places with: what is kept is all that its regions hold. */
CASE(what_cannot_lie_together_is_refused)
{
    (void)begin_apart(1, 1);
    struct core_ns_spec spec = rig_spec("large", 8, 4 * SLOT);
    struct core_ns *large = rig_ns(&r, 1, &spec);
    struct core_held held;
    store_roots(1000, SLOTS - 4, 0);
    rig_store(&r, 1, large, 0, 2000, 0, 1);
    for (uint32_t n = 0; regions_kept() < REGIONS / 4 * 3; n++)
        ck_assert_int_eq(acquire_root(1, 1000 + 4 * n, &held), 0);
    const struct core_acquire in = {.seq = rig_seq(large, 2000, 8)};
    ck_assert_int_eq(core_acquire(r.core, r.cl[2], &in, NULL, &held, &r.why), KVC_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(r.why, "guaranteed"));
    rig_close(&r, 1);
    ck_assert_int_eq(core_acquire(r.core, r.cl[2], &in, NULL, &held, &r.why), 0);
    core_check(r.core);
    rig_close(&r, 2);
}
