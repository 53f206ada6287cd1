/* SPDX-License-Identifier: Apache-2.0 */
/* Hard limits and guaranteed shares of tenants, sub-tenants and namespaces, in both tiers. */
#include <stdio.h>

#include "admin.h"
#include "one_core.h"

static struct core_ns *other;           /* of tenant t2; ns: of t1 */
static uint64_t lasting[2];             /* of the tiers; 0: all of them */
static const struct policy_ops *policy; /* NULL: the rig's */

static void begin(uint32_t host, uint32_t disk)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 2; /* a region is one principal's */
    r.tier_cfg.region_bytes = host * 64;
    r.tier_cfg.lasting_bytes = lasting[0];
    if (disk)
        r.disk_cfg = (struct fake_disk_config){
            .slots = disk, .region_slots = 8, .seed = 3, .lasting_bytes = lasting[1]};
    if (policy)
        r.cfg.policy = policy;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    ns = rig_ns(&r, 1, &spec);
    other = rig_ns(&r, 3, &spec);
}

static int set(uint8_t scope, const char *tenant, const char *sub, uint32_t id, uint64_t limit,
               uint64_t share, uint64_t disk_limit, uint64_t disk_share)
{
    const struct core_quota q = {.scope = scope,
                                 .tenant = tenant,
                                 .sub = sub,
                                 .ns = id,
                                 .bytes = {{limit, disk_limit}, {share, disk_share}}};
    int err = core_quota_set(r.core, &q);
    core_check(r.core);
    return err;
}

static int limit(const char *tenant, uint64_t bytes)
{
    return set(KVC_SCOPE_TENANT, tenant, NULL, 0, bytes, 0, RETAIN_NO_LIMIT, 0);
}

static void settle(void)
{
    for (unsigned i = 0; i < 8; i++)
        rig_settle(&r);
    rig_step(&r);
}

static uint64_t held(const struct core_ns *n, unsigned tier)
{
    struct core_ns_view v;
    core_ns_view(n, &v);
    return v.held[tier];
}

static uint32_t id_of(const struct core_ns *n)
{
    struct core_ns_view v;
    core_ns_view(n, &v);
    return v.id;
}

static void store(unsigned client, struct core_ns *n, uint32_t chain, uint32_t blocks)
{
    rig_store(&r, client, n, 0, chain, 0, blocks);
    rig_step(&r);
    core_check(r.core);
}

static uint32_t there(struct core_ns *n, uint32_t chain)
{
    return rig_lookup(&r, n, chain, 8).tokens;
}

CASES(.teardown = end);

CASE(over_its_limit_a_tenant_evicts_its_own)
{
    begin(16, 0);
    ck_assert_int_eq(limit("t1", 4 * 64), 0);
    store(3, other, 9, 1);
    for (uint32_t i = 1; i <= 6; i++)
        store(1, ns, i, 1);
    ck_assert_uint_eq(held(ns, 0), 4 * 64);
    ck_assert_uint_eq(there(other, 9), 8);
    ck_assert_uint_eq(there(ns, 1) + there(ns, 2), 0);
    ck_assert_uint_eq(there(ns, 3), 8);
    ck_assert_uint_eq(metrics()->quota_evicted, 2);
}

CASE(when_nothing_of_it_may_go_a_store_is_refused)
{
    begin(16, 0);
    ck_assert_int_eq(limit("t1", 2 * 64), 0);
    store(1, ns, 1, 2);
    struct core_held lease = rig_acquire(&r, 1, ns, 1, 16);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.reservation, 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(p.statuses[i], KVC_ST_QUOTA);
    ck_assert_uint_eq(metrics()->quota_refused, 1);
    struct rig_put q = {.ns = other, .chain = 2, .n = 3};
    ck_assert_int_eq(rig_reserve(&r, 3, &q), 0);
    ck_assert_uint_eq(q.statuses[2], KVC_ST_OK);
    ck_assert_int_eq(core_release(r.core, r.cl[1], lease.lease), 0);
    store(1, ns, 3, 2);
}

CASE(the_narrowest_quota_counts_and_those_above_it_too)
{
    begin(16, 0);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    strcpy(spec.sub, "s");
    struct core_ns *sub = rig_ns(&r, 0, &spec); /* of tenant t9 */
    spec.sub[0] = 0;
    struct core_ns *plain = rig_ns(&r, 0, &spec);
    ck_assert_int_eq(set(KVC_SCOPE_SUB, "t9", "s", 0, 2 * 64, 0, RETAIN_NO_LIMIT, 0), 0);
    ck_assert_int_eq(limit("t9", 3 * 64), 0);
    ck_assert_int_eq(set(KVC_SCOPE_NS, NULL, NULL, id_of(plain), 2 * 64, 0, RETAIN_NO_LIMIT, 0), 0);
    store(0, sub, 1, 1);
    store(0, sub, 2, 1);
    store(0, sub, 3, 1);
    ck_assert_uint_eq(held(sub, 0), 2 * 64);
    store(0, plain, 4, 1);
    store(0, plain, 5, 1); /* the tenant's limit: its oldest goes */
    ck_assert_uint_eq(held(sub, 0), 64);
    ck_assert_uint_eq(held(plain, 0), 2 * 64);
    store(0, plain, 6, 1);
    ck_assert_uint_eq(held(sub, 0), 64);
    struct core_quota q;
    uint32_t cursor = 0, n = 0;
    uint64_t sum = 0;
    for (; core_quota_next(r.core, &cursor, &q); n++)
        sum += q.held[0];
    ck_assert_uint_eq(n, 3);
    ck_assert_uint_eq(sum, (3 + 1 + 2) * 64);
}

CASE(a_quota_takes_over_what_is_there_and_gives_it_back)
{
    begin(16, 0);
    for (uint32_t i = 1; i <= 4; i++)
        store(1, ns, i, 1);
    ck_assert_int_eq(limit("t1", 2 * 64), 0);
    settle(); /* what is above goes in the background */
    ck_assert_uint_eq(held(ns, 0), 2 * 64);
    ck_assert_int_eq(limit("t1", RETAIN_NO_LIMIT), 0);
    ck_assert_uint_eq(metrics()->quotas, 0);
    settle();
    for (uint32_t i = 5; i <= 8; i++)
        store(1, ns, i, 1);
    ck_assert_uint_eq(held(ns, 0), 6 * 64);
}

CASE(a_share_is_kept_for_its_owner_and_lent_while_it_is_idle)
{
    begin(8, 0);
    ck_assert_int_eq(
        set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 4 * 64, RETAIN_NO_LIMIT, 0), 0);
    for (uint32_t i = 1; i <= 16; i++)
        store(3, other, i, 1); /* all of it, while nobody else wants it */
    ck_assert_uint_eq(held(other, 0), 16 * 64);
    for (uint32_t i = 1; i <= 4; i++)
        store(1, ns, i, 1);
    ck_assert_uint_eq(held(ns, 0), 4 * 64);
    for (uint32_t i = 20; i <= 60; i++)
        store(3, other, i, 1);
    for (uint32_t i = 1; i <= 4; i++)
        ck_assert_uint_eq(there(ns, i), 8);
}

/* A share is guarded with as much more as the largest block has that there is, not that there was.
 */
CASE(a_large_block_that_has_gone_changes_no_share)
{
    begin(8, 0);
    const struct core_ns_spec large = rig_spec("large", 8, 512), more = rig_spec("more", 8, 64);
    struct core_ns *lender = ns, *borrower = rig_ns(&r, 1, &more);
    store(1, rig_ns(&r, 1, &large), 1, 1);
    for (uint32_t i = 1; i <= 16; i++)
        store(1, lender, i, 1);
    ck_assert_uint_eq(held(lender, 0), 16 * 64);
    ck_assert_int_eq(
        set(KVC_SCOPE_NS, NULL, NULL, id_of(lender), RETAIN_NO_LIMIT, 4 * 64, RETAIN_NO_LIMIT, 0),
        0);
    settle();
    for (uint32_t i = 1; i <= 16; i++)
        store(1, borrower, i, 1);
    ck_assert_uint_eq(held(lender, 0), 4 * 64);
}

CASE(wrong_quotas_are_refused)
{
    begin(8, 0);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "", NULL, 0, 64, 0, 0, 0), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(set(KVC_SCOPE_SUB, "t1", "", 0, 64, 0, 0, 0), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(set(KVC_SCOPE_ALL, "t1", "", 0, 64, 0, 0, 0), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", "", 0, 64, 65, 0, 0), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(set(KVC_SCOPE_NS, NULL, NULL, 12345, 64, 0, 0, 0), KVC_E_NO_NAMESPACE);
    char name[16];
    for (unsigned i = 0; i < RETAIN_OWNERS - 1; i++) {
        snprintf(name, sizeof name, "tenant%u", i);
        ck_assert_int_eq(limit(name, 64), 0);
    }
    ck_assert_int_eq(limit("one more", 64), KVC_E_LIMIT);
    ck_assert_int_eq(limit("tenant5", RETAIN_NO_LIMIT), 0);
    ck_assert_int_eq(limit("one more", 64), 0);
}

/* ---- two tiers ---- */

CASE(with_storage_what_is_over_the_limit_goes_there)
{
    begin(32, 128);
    ck_assert_int_eq(limit("t1", 8 * 64), 0);
    for (uint32_t i = 1; i <= 24; i++) {
        store(1, ns, i, 1);
        settle();
    }
    ck_assert_uint_le(held(ns, 0), 8 * 64);
    for (uint32_t i = 1; i <= 24; i++)
        ck_assert_uint_eq(there(ns, i), 8); /* in some tier */
    ck_assert_uint_eq(metrics()->blocks_lost_unsaved, 0);
}

CASE(over_its_limit_on_disk_an_owner_gives_up_its_oldest_there)
{
    begin(4, 128);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, 6 * 64, 0), 0);
    store(3, other, 50, 1);
    for (uint32_t i = 1; i <= 30; i++) {
        store(1, ns, i, 1);
        settle();
        ck_assert_uint_le(held(ns, 1), 6 * 64);
    }
    ck_assert_uint_eq(held(ns, 1), 6 * 64);
    ck_assert_uint_eq(there(ns, 1), 0);
    ck_assert_uint_eq(there(ns, 30), 8);
    ck_assert_uint_eq(there(other, 50), 8);
}

CASE(a_limit_on_disk_that_is_lowered_is_kept_without_anybody_asking)
{
    begin(4, 128);
    for (uint32_t i = 1; i <= 60; i++) {
        store(1, ns, i, 1);
        settle();
    }
    ck_assert_uint_gt(held(ns, 1), 40 * 64);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, 6 * 64, 0), 0);
    unsigned steps = 1;
    while (core_background_step(r.core)) /* as the daemon's loop, which else goes to sleep */
        ck_assert_uint_lt(steps++, 1000);
    ck_assert_uint_le(held(ns, 1), 6 * 64);
}

CASE(what_builds_in_memory_on_what_must_leave_the_disk_goes_too)
{
    begin(8, 128);
    store(1, ns, 1, 6);
    settle();
    for (uint32_t i = 2; i <= 30; i++) {
        store(1, ns, i, 1);
        settle();
    }
    rig_store(&r, 1, ns, 0, 1, 6, 1); /* behind six that are on disk alone */
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 7 * 8).tokens, 7 * 8);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, 3 * 64, 0), 0);
    settle(); /* what is on its way */
    unsigned steps = 1;
    while (core_background_step(r.core))
        ck_assert_uint_lt(steps++, 1000);
    ck_assert_uint_eq(held(ns, 1), 3 * 64);
    core_check(r.core);
}

CASE(nothing_is_written_to_disk_for_who_may_have_nothing_there)
{
    begin(4, 128);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, 0, 0), 0);
    for (uint32_t i = 1; i <= 12; i++) {
        store(1, ns, i, 1);
        settle();
    }
    ck_assert_uint_eq(held(ns, 1), 0);
    ck_assert_uint_eq(fake_disk_puts(r.disk, false), 0);
    ck_assert_uint_gt(metrics()->quota_unsaved, 0);
    for (uint32_t i = 1; i <= 12; i++) {
        store(3, other, i, 1); /* others are written */
        settle();
    }
    ck_assert_uint_gt(held(other, 1), 0);
    struct rig_put p = {.ns = ns, .chain = 40, .n = 1, .durable = true};
    struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    settle();
    ck_assert_uint_eq(m.statuses[0], KVC_ST_QUOTA);
    rig_commit_free(&m);
}

/* So many turns of the daemon, in which nobody asks for anything. */
static void idle_turns(unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        (void)core_background_step(r.core);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        (void)fake_disk_run(r.disk, 1000, 0);
        (void)core_run_done(r.core);
        core_check(r.core);
    }
}

/* A chain in memory of which less may be on disk than is to be clean: no block's copy there goes
 * for another's, which then goes for that of the first. */
static void no_turns_are_taken(unsigned at, uint32_t chain, uint32_t most)
{
    policy = policy_at(at);
    begin(4, 128);
    policy = NULL;
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, most * 64, 0), 0);
    store(1, ns, 1, chain);
    idle_turns(30);
    const uint32_t puts = fake_disk_puts(r.disk, false);
    idle_turns(60);
    ck_assert_uint_eq(fake_disk_puts(r.disk, false), puts);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, chain * 8).tokens, chain * 8);
    rig_end(&r);
}

CASE(blocks_never_take_turns_at_their_owner_s_room_on_disk)
{
    for (unsigned at = 0; policy_at(at); at++)
        for (uint32_t chain = 2; chain <= 8; chain++)
            for (uint32_t most = 1; most <= 4; most++)
                no_turns_are_taken(at, chain, most);
}

CASE(a_drain_tells_what_quotas_keep_off_the_disk_and_displaces_nothing)
{
    begin(64, 128);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, 4 * 64, 0), 0);
    for (uint32_t i = 1; i <= 10; i++)
        store(1, ns, i, 1);
    store(3, other, 1, 2);
    uint64_t off = 0, left = 0;
    for (unsigned i = 0; i < 8; i++) {
        left = core_drain_disk(r.core, UINT64_MAX, &off);
        settle();
    }
    ck_assert_uint_eq(left, 6 * 64);
    ck_assert_uint_eq(off, 6 * 64);
    ck_assert_uint_eq(held(ns, 1), 4 * 64);
    ck_assert_uint_eq(fake_disk_puts(r.disk, false), 6); /* each once, the other tenant's too */
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, RETAIN_NO_LIMIT, 0),
                     0);
    for (unsigned i = 0; i < 3; i++) {
        left = core_drain_disk(r.core, UINT64_MAX, &off);
        settle();
    }
    ck_assert_uint_eq(left, 0);
    ck_assert_uint_eq(off, 0);
}

/* ---- promises ---- */

static int on_disk(uint64_t bytes)
{
    return set(KVC_SCOPE_TENANT, "t1", NULL, 0, RETAIN_NO_LIMIT, 0, bytes, 0);
}

static struct core_name_id name_id(const char *text)
{
    return (struct core_name_id){.kind = KVC_NAME_DOCUMENT,
                                 .name = (const uint8_t *)text,
                                 .name_bytes = (uint32_t)strlen(text),
                                 .sub = (const uint8_t *)""};
}

static int name(const char *called, uint32_t chain, uint32_t blocks)
{
    const struct core_seq seq = rig_seq(ns, chain, 8 * blocks);
    struct core_named named;
    const struct core_name_put in = {.id = name_id(called), .seq = &seq};
    int err = core_name_put(r.core, r.cl[1], &in, NULL, &named, &r.why);
    settle();
    core_check(r.core);
    return err;
}

static struct core_name *called(const char *text)
{
    struct core_name *nm = NULL;
    const struct core_name_id id = name_id(text);
    int err = core_name_find(r.core, r.cl[1], &id, &nm);
    ck_assert(err == 0 || err == KVC_E_NO_NAME);
    return nm;
}

static int pin(uint32_t chain, uint32_t blocks, bool in_memory, uint64_t *ret_pin)
{
    const struct core_pin in = {.seq = rig_seq(ns, chain, 8 * blocks), .in_memory = in_memory};
    struct core_pinned pinned = {0};
    int err = core_pin(r.core, &in, &pinned, &r.why);
    *ret_pin = pinned.id;
    settle();
    core_check(r.core);
    return err;
}

static uint8_t durable(uint32_t chain)
{
    struct rig_put p = {.ns = ns, .chain = chain, .n = 1, .durable = true};
    struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    settle();
    const uint8_t status = m.statuses[0];
    rig_commit_free(&m);
    return status;
}

static uint64_t promised(unsigned tier)
{
    struct core_quota q;
    uint32_t cursor = 0;
    ck_assert(core_quota_next(r.core, &cursor, &q));
    ck_assert_uint_eq(q.held[tier], held(ns, tier));
    return q.bound[tier];
}

CASE(beyond_a_limit_on_disk_nothing_is_promised)
{
    uint64_t id;
    begin(64, 128);
    ck_assert_int_eq(on_disk(6 * 64), 0);
    store(1, ns, 1, 4);
    store(1, ns, 2, 4);
    ck_assert_int_eq(name("a", 1, 4), 0);
    ck_assert_uint_eq(promised(1), 4 * 64);
    ck_assert_int_eq(name("b", 2, 3), KVC_E_QUOTA);
    ck_assert_ptr_null(called("b"));
    ck_assert_int_eq(pin(2, 3, false, &id), KVC_E_QUOTA);
    ck_assert_uint_eq(metrics()->pins, 0);
    ck_assert_int_eq(name("b", 2, 2), 0);
    ck_assert_uint_eq(promised(1), 6 * 64);
    ck_assert_uint_eq(held(ns, 1), 6 * 64);
    ck_assert_uint_eq(durable(3), KVC_ST_QUOTA);
    ck_assert_int_eq(pin(1, 4, false, &id), 0); /* what is promised already may be pinned too */
    ck_assert_int_eq(name("c", 1, 4), 0);
    ck_assert_uint_eq(promised(1), 6 * 64);
}

CASE(promises_hold_a_lowered_limit_up_until_they_end)
{
    uint64_t id;
    begin(64, 128);
    ck_assert_int_eq(on_disk(20 * 64), 0);
    store(1, ns, 1, 4);
    store(1, ns, 2, 3);
    store(1, ns, 4, 5);
    ck_assert_int_eq(name("a", 1, 4), 0);
    ck_assert_int_eq(pin(2, 3, false, &id), 0);
    ck_assert_uint_eq(durable(3), KVC_ST_OK);
    (void)rig_drain(&r, UINT64_MAX);
    settle();
    ck_assert_uint_eq(held(ns, 1), 13 * 64);
    ck_assert_uint_eq(promised(1), 8 * 64);
    ck_assert_int_eq(on_disk(2 * 64), 0);
    settle();
    ck_assert_uint_eq(held(ns, 1), 8 * 64);
    ck_assert_uint_eq(promised(1), 8 * 64);
    ck_assert_int_eq(name("b", 4, 1), KVC_E_QUOTA);
    ck_assert_uint_eq(durable(5), KVC_ST_QUOTA);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), 0);
    ck_assert_int_eq(core_name_forget(r.core, called("a"), NULL, NULL), 0);
    settle();
    ck_assert_uint_le(held(ns, 1), 2 * 64);
    ck_assert_uint_eq(promised(1), 64); /* what the commit stored */
    ck_assert_int_eq(name("b", 4, 1), 0);
}

CASE(a_name_that_moves_needs_no_more_than_what_is_new)
{
    begin(64, 128);
    ck_assert_int_eq(on_disk(4 * 64), 0);
    store(1, ns, 1, 6);
    store(1, ns, 2, 4);
    ck_assert_int_eq(name("a", 1, 4), 0);
    ck_assert_int_eq(name("a", 1, 5), KVC_E_QUOTA); /* and stays where it was */
    struct core_name_view v;
    (void)core_name_view(r.core, called("a"), &v);
    ck_assert_uint_eq(v.tokens, 32);
    ck_assert_int_eq(name("a", 2, 4), 0); /* four others for its four */
    ck_assert_uint_eq(promised(1), 4 * 64);
    ck_assert_int_eq(name("b", 2, 2), 0); /* shared: it releases two now, and needs three */
    ck_assert_int_eq(name("a", 1, 3), KVC_E_QUOTA);
    ck_assert_int_eq(name("a", 1, 2), 0);
    ck_assert_uint_eq(promised(1), 4 * 64);
}

CASE(pins_in_memory_are_within_the_limit_there)
{
    uint64_t id;
    begin(64, 128);
    store(1, ns, 1, 4);
    ck_assert_int_eq(limit("t1", 3 * 64), 0);
    ck_assert_int_eq(pin(1, 4, true, &id), KVC_E_QUOTA);
    ck_assert_int_eq(pin(1, 4, false, &id), 0); /* on disk there is room */
    ck_assert_int_eq(pin(1, 2, true, &id), 0);
    ck_assert_uint_eq(promised(0), 2 * 64);
    rig_end(&r);
    begin(64, 0);
    store(1, ns, 1, 4);
    ck_assert_int_eq(limit("t1", 4 * 64), 0);
    ck_assert_int_eq(pin(1, 4, false, &id), 0);
    ck_assert_uint_eq(promised(0), 4 * 64);
    ck_assert_int_eq(limit("t1", 2 * 64), 0);
    settle();
    ck_assert_uint_eq(held(ns, 0), 4 * 64);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), 0);
    settle();
    ck_assert_uint_eq(held(ns, 0), 2 * 64);
}

static void begin_lasting(uint64_t host, uint64_t disk)
{
    lasting[0] = host * 64;
    lasting[1] = disk * 64;
    begin(64, 128);
    lasting[0] = lasting[1] = 0;
}

static int share(const char *tenant, uint64_t host, uint64_t disk)
{
    return set(KVC_SCOPE_TENANT, tenant, NULL, 0, RETAIN_NO_LIMIT, host * 64, RETAIN_NO_LIMIT,
               disk * 64);
}

CASE(pins_in_memory_leave_room_for_others)
{
    uint64_t id;
    begin_lasting(6, 0);
    store(1, ns, 1, 8);
    ck_assert_int_eq(pin(1, 7, true, &id), KVC_E_PIN_LIMIT);
    ck_assert_uint_eq(metrics()->pins_refused, 1);
    ck_assert_int_eq(pin(1, 7, false, &id), 0); /* on disk there is room */
    ck_assert_int_eq(pin(1, 6, true, &id), 0);
    ck_assert_int_eq(pin(1, 5, true, &id), 0); /* is there already */
}

/* What is guaranteed to others cannot be pinned, nor promised; what is guaranteed to oneself can.
 */
CASE(what_is_guaranteed_to_others_is_not_bound)
{
    uint64_t id;
    begin_lasting(8, 8);
    store(1, ns, 1, 8);
    ck_assert_int_eq(share("t2", 6, 5), 0);
    ck_assert_int_eq(pin(1, 3, true, &id), KVC_E_QUOTA);
    ck_assert_int_eq(pin(1, 4, false, &id), KVC_E_QUOTA);
    ck_assert_int_eq(pin(1, 2, true, &id), 0);
    ck_assert_uint_eq(durable(2), KVC_ST_OK);
    ck_assert_uint_eq(durable(3), KVC_ST_QUOTA);
    ck_assert_int_eq(name("a", 1, 4), KVC_E_QUOTA);
    ck_assert_int_eq(share("t1", 2, 3), 0); /* it has that by now */
    ck_assert_uint_eq(durable(4), KVC_ST_QUOTA);
    ck_assert_int_eq(share("t2", 0, 0), 0);
    ck_assert_uint_eq(durable(5), KVC_ST_OK);
    ck_assert_int_eq(name("a", 1, 4), 0);
}

/* It has become smaller than what is guaranteed: who is below its share may still have it. */
CASE(a_share_that_others_are_bound_in_is_its_owners_still)
{
    uint64_t id;
    begin_lasting(8, 8);
    store(1, ns, 1, 8);
    ck_assert_int_eq(share("t1", 6, 6), 0);
    ck_assert_int_eq(share("t2", 6, 6), 0); /* as a configuration may have it */
    ck_assert_int_eq(pin(1, 6, true, &id), 0);
    ck_assert_int_eq(pin(1, 7, true, &id), KVC_E_QUOTA);
}

/* What it gives back there is another quota's. */
CASE(a_name_that_comes_from_another_namespace_needs_room_for_all)
{
    rig_defaults(&r);
    r.tier_cfg.regions = 2;
    r.tier_cfg.region_bytes = 64 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 128, .region_slots = 8, .seed = 3};
    rig_begin(&r);
    struct core_ns_spec one = rig_spec("one", 8, 64), two = rig_spec("two", 8, 64);
    ns = rig_ns(&r, 1, &one);
    struct core_ns *ns2 = rig_ns(&r, 1, &two);
    ck_assert_int_eq(set(KVC_SCOPE_NS, NULL, NULL, id_of(ns2), RETAIN_NO_LIMIT, 0, 2 * 64, 0), 0);
    store(1, ns, 1, 8);
    store(1, ns2, 2, 8);
    ck_assert_int_eq(name("a", 1, 8), 0);
    ns = ns2;
    ck_assert_int_eq(name("b", 2, 8), KVC_E_QUOTA);
    ck_assert_int_eq(name("a", 2, 8), KVC_E_QUOTA);
}

/* A commit of one block whose way to disk has begun, and not ended. */
static void on_its_way(uint32_t chain, struct rig_commit *m)
{
    struct rig_put p = {.ns = ns, .chain = chain, .n = 1, .durable = true};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, m), 1);
    while (fake_tier_inflight(r.tier) > 0)
        (void)fake_tier_run(r.tier, 1000, 0);
    (void)core_run_done(r.core);
    rig_step(&r);
    core_check(r.core);
}

static void ends(struct rig_commit *m, uint8_t status)
{
    settle();
    ck_assert_int_eq(m->done, 1);
    ck_assert_uint_eq(m->statuses[0], status);
    rig_commit_free(m);
}

/* Of names, pins and other commits. */
CASE(what_is_on_its_way_to_a_promise_leaves_others_no_room)
{
    struct rig_commit first, second;
    struct core_pinned pinned;
    struct core_named named;
    begin(64, 128);
    ck_assert_int_eq(on_disk(64), 0);
    store(1, ns, 1, 1);
    on_its_way(2, &first);
    ck_assert_uint_eq(fake_disk_inflight(r.disk), 1);
    ck_assert_uint_eq(promised(1), 64);
    const struct core_pin pin = {.seq = rig_seq(ns, 1, 8)};
    ck_assert_int_eq(core_pin(r.core, &pin, &pinned, &r.why), KVC_E_QUOTA);
    const struct core_name_put put = {.id = name_id("a"), .seq = &pin.seq};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &put, NULL, &named, &r.why), KVC_E_QUOTA);
    on_its_way(3, &second);
    ck_assert_uint_eq(fake_disk_inflight(r.disk), 1);
    ends(&first, KVC_ST_OK);
    ends(&second, KVC_ST_QUOTA);
    ck_assert_uint_eq(promised(1), 64);
}

CASE(what_failed_on_its_way_to_a_promise_is_bound_no_more)
{
    struct rig_commit m;
    begin(64, 128);
    ck_assert_int_eq(on_disk(64), 0);
    store(1, ns, 1, 1);
    on_its_way(2, &m);
    ck_assert_uint_eq(promised(1), 64);
    r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
    ck_assert_uint_eq(fake_disk_run(r.disk, 1, 100), 1);
    core_check(r.core);
    ck_assert_uint_eq(promised(1), 0);
    ends(&m, KVC_ST_TIER);
    ck_assert_int_eq(name("a", 1, 1), 0);
}

/* Its pin binds it too, and ends while it is on its way. */
CASE(a_pin_that_ends_under_a_commit_frees_nothing)
{
    uint64_t id;
    struct rig_commit m;
    begin(64, 128);
    ck_assert_int_eq(on_disk(64), 0);
    store(1, ns, 1, 1);
    on_its_way(2, &m);
    const struct core_pin in = {.seq = rig_seq(ns, 2, 8)};
    struct core_pinned pinned;
    ck_assert_int_eq(core_pin(r.core, &in, &pinned, &r.why), 0);
    ck_assert_uint_eq(promised(1), 64); /* once */
    ck_assert_int_eq(core_unpin(r.core, NULL, pinned.id), 0);
    core_check(r.core);
    ck_assert_uint_eq(promised(1), 64);
    ends(&m, KVC_ST_OK);
    ck_assert_int_eq(pin(1, 1, false, &id), KVC_E_QUOTA);
}

CASE(a_name_that_moves_off_a_commit_frees_nothing)
{
    struct rig_commit m;
    struct core_named named;
    begin(64, 128);
    ck_assert_int_eq(on_disk(64), 0);
    store(1, ns, 1, 1);
    on_its_way(2, &m);
    const struct core_seq seq = rig_seq(ns, 2, 8);
    struct core_name_put put = {.id = name_id("a"), .seq = &seq};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &put, NULL, &named, &r.why), 0);
    const struct core_seq to = rig_seq(ns, 1, 8);
    put.seq = &to;
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &put, NULL, &named, &r.why), KVC_E_QUOTA);
    core_check(r.core);
    ends(&m, KVC_ST_OK);
    ck_assert_uint_eq(promised(1), 64);
}

/* Between two slices, too, nobody has more than is allowed. */
CASE(a_name_that_moves_within_a_limit_lets_go_at_once)
{
    struct core_named named;
    begin(64, 128);
    store(1, ns, 1, 8);
    store(1, ns, 2, 8);
    ck_assert_int_eq(on_disk(10 * 64), 0);
    ck_assert_int_eq(name("a", 1, 8), 0);
    r.core->cfg.slice_work = 2;
    const struct core_seq to = rig_seq(ns, 2, 8 * 8);
    const struct core_name_put put = {.id = name_id("a"), .seq = &to};
    ck_assert_int_eq(core_name_put(r.core, r.cl[1], &put, NULL, &named, &r.why), 0);
    ck_assert_uint_eq(promised(1), 8 * 64);
    core_check(r.core);
}

/* Quotas that come find what is on its way, and one that goes leaves it to those above. */
CASE(what_is_on_its_way_counts_for_whose_it_becomes)
{
    struct rig_commit m;
    uint64_t id;
    begin(64, 128);
    store(1, ns, 1, 1);
    on_its_way(2, &m);
    ck_assert_int_eq(on_disk(64), 0);
    ck_assert_uint_eq(promised(1), 64);
    ck_assert_int_eq(
        set(KVC_SCOPE_NS, NULL, NULL, id_of(ns), RETAIN_NO_LIMIT, 0, RETAIN_NO_LIMIT, 0), 0);
    ck_assert_int_eq(set(KVC_SCOPE_NS, NULL, NULL, id_of(ns), RETAIN_NO_LIMIT, 0, 2 * 64, 0), 0);
    ck_assert_uint_eq(promised(1), 64);
    ck_assert_int_eq(on_disk(RETAIN_NO_LIMIT), 0); /* goes */
    ck_assert_uint_eq(promised(1), 64);
    ends(&m, KVC_ST_OK);
    ck_assert_uint_eq(promised(1), 64);
    ck_assert_int_eq(pin(1, 1, false, &id), 0);
    ck_assert_uint_eq(promised(1), 2 * 64);
}

/* As a window may. */
CASE(a_key_named_twice_is_bound_once)
{
    static uint8_t keys[2 * KVC_KEY_BYTES];
    rig_defaults(&r);
    r.tier_cfg.regions = 2;
    r.tier_cfg.region_bytes = 64 * 64;
    r.disk_cfg = (struct fake_disk_config){.slots = 128, .region_slots = 8, .seed = 3};
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    spec.group[0].rule = KVC_RULE_WINDOW;
    spec.group[0].window = 16;
    ns = rig_ns(&r, 1, &spec);
    store(1, ns, 1, 2);
    const struct key256 key = rig_key(1, 0);
    memcpy(keys, key.b, KVC_KEY_BYTES);
    memcpy(keys + KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    const struct core_pin in = {
        .seq = {.ns = ns, .tokens = 16, .ngroups = 1, .keys = {keys}, .n = {2}}, .in_memory = true};
    struct core_pinned got;
    core_pin_budget(r.core, 64);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, 128, 0, 64, 0), 0);
    ck_assert_int_eq(core_pin(r.core, &in, &got, &r.why), 0);
    core_check(r.core);
    ck_assert_uint_eq(got.blocks, 1);
    ck_assert_uint_eq(got.bytes, 64);
    ck_assert_uint_eq(got.tokens, 16);
    ck_assert_uint_eq(promised(0), 64);
    ck_assert_uint_eq(promised(1), 64);
    struct core_pin_view v;
    uint64_t cursor = 0;
    ck_assert(core_pin_next(r.core, NULL, &cursor, &v));
    ck_assert(v.blocks == 1 && v.bytes == 64);
    ck_assert_int_eq(core_unpin(r.core, NULL, got.id), 0);
    settle();
    ck_assert_uint_eq(promised(1), 0);
    ck_assert_int_eq(set(KVC_SCOPE_TENANT, "t1", NULL, 0, 128, 0, 63, 0), 0);
    ck_assert_int_eq(core_pin(r.core, &in, &got, &r.why), KVC_E_QUOTA);
    core_check(r.core);
}

CASE(a_namespace_that_goes_takes_its_quota_with_it)
{
    rig_defaults(&r);
    r.cfg.namespaces_max = 1;
    rig_begin(&r);
    struct core_ns_spec one = rig_spec("one", 8, 64), two = rig_spec("two", 8, 64);
    ns = rig_ns(&r, 1, &one);
    ck_assert_int_eq(set(KVC_SCOPE_NS, NULL, NULL, id_of(ns), 64, 0, RETAIN_NO_LIMIT, 0), 0);
    ns = rig_ns(&r, 1, &two);
    ck_assert_uint_eq(metrics()->quotas, 0);
    store(1, ns, 1, 4);
    ck_assert_uint_eq(held(ns, 0), 4 * 64);
}
