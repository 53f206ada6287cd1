/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of blocks on devices: made, found, held, let go of, lost. */
#include "device_core.h"

static void begin(uint32_t slots)
{
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    if (slots > 0)
        r.device_cfg[0].regions = 1, r.device_cfg[0].region_bytes = slots * SLOT;
    begin_ns();
}

static void begin_with_leases(uint32_t leases)
{
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    r.cfg.leases_max = leases;
    r.cfg.device_copies = 64;
    begin_ns();
}

static void setup(void)
{
    begin(0);
}

static void setup_four_slots(void)
{
    begin(4);
}

/* ---- words ---- */

static struct core_held again(unsigned client, uint32_t chain, uint32_t blocks)
{
    struct core_held held = rig_acquire(&r, client, ns, chain, 8 * blocks);
    ck_assert_uint_eq(held.prefix.tokens, 8 * blocks);
    return held;
}

static bool is_hbm(uint32_t chain, uint32_t i)
{
    return rig_explain(&r, 0, 0, chain, i).tier & KVC_TIER_HBM;
}

/* ---- fills ---- */

CASES(.setup = setup, .teardown = end_devices);

CASE(a_fill_copies_what_a_lease_holds)
{
    struct core_held held = chain(1, 1, 6);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    ck_assert_uint_eq(fake_device_copy(r.device[0], 0)->n, 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 0); /* not yet */
    ck_assert(!is_hbm(1, 0));
    end_copies(0, 0);
    ck_assert_uint_eq(f.done, 1);
    ck_assert_uint_eq(f.f.ret_blocks, 6);
    struct core_ns_view v;
    core_ns_view(ns, &v);
    ck_assert_uint_eq(v.hbm_bytes, 6 * SLOT);
    struct core_evict_job job = {.client = r.cl[1], .dry_run = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 0); /* leased */
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 6);
    rig_check_lease(&r, 1, held.lease, 0); /* host memory has them as ever */
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 3).tier, KVC_TIER_HOST | KVC_TIER_HBM);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).blocks, 6);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).bytes, 6 * SLOT);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).fills, 6);
}

CASE(what_is_there_is_found_again)
{
    struct core_held one = chain(1, 1, 6), two;
    struct rig_fill f;
    ck_assert_uint_eq(fill(1, &one, 0, 0), 6);
    rig_release(&r, 1, &one);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 6);
    two = again(2, 1, 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 2, two.lease, 0), 0); /* nobody asked for them there */
    ck_assert_int_eq(rig_fill(&r, 2, two.lease, 0, 0, &f), 0);
    ck_assert_uint_eq(f.f.ret_blocks, 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 2, two.lease, 0), 6);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).hits, 6);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).fills, 6);
    ck_assert_uint_eq(metrics()->hbm_hits, 6);
}

CASE(a_second_fill_of_a_lease_holds_nothing_twice)
{
    struct core_held held = chain(1, 1, 6);
    struct rig_fill f;
    ck_assert_uint_eq(fill(1, &held, 0, 0), 6);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 0);
    ck_assert_uint_eq(f.f.ret_blocks, 6);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).hits, 0);
    core_check(r.core);
}

CASE(a_block_is_copied_once_whoever_asks)
{
    struct core_held one = chain(1, 1, 6), two = again(2, 1, 4);
    struct rig_fill f, g;
    ck_assert_int_eq(rig_fill(&r, 1, one.lease, 0, 0, &f), 1);
    ck_assert_int_eq(rig_fill(&r, 2, two.lease, 0, 0, &g), 1);
    core_check(r.core);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    end_copies(0, 0);
    ck_assert(f.done == 1 && g.done == 1);
    ck_assert_uint_eq(f.f.ret_blocks, 6);
    ck_assert_uint_eq(g.f.ret_blocks, 4);
    ck_assert_uint_eq(rig_check_hbm(&r, 2, two.lease, 0), 4);
}

CASE(who_waits_for_anothers_copy_is_told_when_it_fails)
{
    struct core_held one = chain(1, 1, 6), two = again(2, 1, 6);
    struct rig_fill f, g;
    ck_assert_int_eq(rig_fill(&r, 1, one.lease, 0, 0, &f), 1);
    ck_assert_int_eq(rig_fill(&r, 2, two.lease, 0, 0, &g), 1);
    end_copies(0, -EIO);
    ck_assert(f.done == 1 && g.done == 1);
    ck_assert(f.f.ret_blocks == 0 && g.f.ret_blocks == 0);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0); /* the room is back at once */
    ck_assert_uint_eq(metrics()->hbm_failures, 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 2, two.lease, 0), 0);
    ck_assert_uint_eq(fill(2, &two, 0, 0), 6); /* and it may be tried again */
    ck_assert_uint_eq(rig_check_hbm(&r, 2, two.lease, 0), 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, one.lease, 0), 0); /* it asked for them, not it */
}

CASE(a_device_has_a_rank_s_part_and_what_all_have_once)
{
    struct core_ns_spec spec = rig_spec("ranks", 8, SLOT);
    spec.shards = 2;
    spec.ngroups = 2;
    spec.group[1] = (struct core_group){
        .block_tokens = 8, .block_bytes = 100, .flags = KVC_F_REPLICATED, .rule = KVC_RULE_FULL};
    ns = rig_ns(&r, 1, &spec);
    rig_store_shards(&r, 1, ns, 0, 1, 0, 3);
    rig_store(&r, 1, ns, 1, 1001, 0, 3);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_uint_eq(fill(1, &held, 0, 1), 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 1), 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3); /* the replicated ones */
    ck_assert_uint_eq(rig_device_slots(&r, 0), 6);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 6);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 9);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 6);
    struct core_held other = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_uint_eq(fill(1, &other, 1, 1), 6);
    ck_assert_uint_eq(rig_device_slots(&r, 1), 6);
    rig_release(&r, 1, &other);
    rig_release(&r, 1, &held);
}

CASE(what_a_fill_may_not_ask_for)
{
    struct core_held held = chain(1, 1, 2);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 2, held.lease, 0, 0, &f), KVC_E_NO_LEASE);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 2, 0, &f), KVC_E_BAD_ARGUMENT);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 1, &f), KVC_E_BAD_ARGUMENT);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 2);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 1, 0, &f), KVC_E_BAD_ARGUMENT);
    rig_release(&r, 1, &held);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), KVC_E_NO_LEASE);
}

CASES(.teardown = end_devices);

CASE(an_empty_pool_of_copies_is_busy_for_who_needs_one)
{
    static struct rig_fill f[64], g;
    begin_with_leases(256);
    struct core_held hit = chain(1, 99, 1), miss = chain(1, 98, 1);
    ck_assert_uint_eq(fill(1, &hit, 0, 0), 1);
    rig_release(&r, 1, &hit);
    for (uint32_t i = 0; i < 64; i++) {
        struct core_held held = chain(2, 1 + i, 1);
        ck_assert_int_eq(rig_fill(&r, 2, held.lease, 1, 0, &f[i]), 1);
    }
    hit = again(1, 99, 1);
    ck_assert_int_eq(rig_fill(&r, 1, hit.lease, 0, 0, &g), 0); /* nothing is to be copied */
    ck_assert_uint_eq(g.f.ret_blocks, 1);
    ck_assert_int_eq(rig_fill(&r, 1, miss.lease, 1, 0, &g), KVC_E_BUSY);
    core_check(r.core);
    end_copies(1, 0);
    ck_assert_uint_eq(fill(1, &miss, 0, 0), 1);
}

/* ---- room ---- */

CASES(.setup = setup_four_slots, .teardown = end_devices);

CASE(room_that_is_short_takes_the_beginning)
{
    struct core_held held = chain(1, 1, 6);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 4);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 4);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert(is_hbm(1, i) == (i < 4));
}

CASE(what_a_lease_was_given_stays_until_it_ends)
{
    struct core_held one = chain(1, 1, 4), two = chain(1, 2, 4);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 4);
    ck_assert_uint_eq(fill(1, &two, 0, 0), 0);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, one.lease, 0), 4);
    rig_release(&r, 1, &one);
    ck_assert_uint_eq(fill(1, &two, 0, 0), 4);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, two.lease, 0), 4);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).drops, 4);
    ck_assert(!is_hbm(1, 0));
}

CASE(the_deepest_of_the_oldest_goes_first)
{
    struct core_held one = chain(1, 1, 2), two = chain(1, 2, 2), three = chain(1, 3, 3);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 2);
    rig_release(&r, 1, &one);
    rig_step(&r);
    ck_assert_uint_eq(fill(1, &two, 0, 0), 2);
    rig_release(&r, 1, &two);
    rig_step(&r);
    one = again(1, 1, 2);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 2); /* chain 1 is younger than chain 2 now */
    rig_release(&r, 1, &one);
    rig_step(&r);
    ck_assert_uint_eq(fill(1, &three, 0, 0), 3);
    ck_assert(is_hbm(1, 0) && !is_hbm(1, 1) && !is_hbm(2, 0) && !is_hbm(2, 1));
}

CASE(room_of_another_principal_or_size_is_emptied)
{
    struct core_held one = chain(1, 1, 4);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 4);
    rig_release(&r, 1, &one);
    struct core_ns_spec spec = rig_spec("m", 8, 2 * SLOT);
    ns = rig_ns(&r, 3, &spec);
    struct core_held two = chain(3, 2, 2);
    ck_assert_uint_eq(fill(3, &two, 0, 0), 2);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).drops, 4);
    ck_assert_uint_eq(rig_check_hbm(&r, 3, two.lease, 0), 2);
}

CASE(a_block_that_never_fits_is_not_on_the_device)
{
    struct core_ns_spec spec = rig_spec("large", 8, 8 * SLOT);
    ns = rig_ns(&r, 1, &spec);
    struct core_held held = chain(1, 1, 2);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 0);
    ck_assert_uint_eq(f.f.ret_blocks, 0);
}

CASES(.teardown = end_devices);

CASE(a_full_table_takes_from_the_other_device_too)
{
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    r.cfg.hbm_max = 4;
    begin_ns();
    struct core_held one = chain(1, 1, 4), two = chain(1, 2, 3);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 4);
    ck_assert_uint_eq(fill(1, &two, 1, 0), 0);
    rig_release(&r, 1, &one);
    ck_assert_uint_eq(fill(1, &two, 1, 0), 3);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
    ck_assert_uint_eq(rig_device_slots(&r, 1), 3);
}

CASE(a_device_without_room_has_no_copies)
{
    rig_defaults(&r);
    r.cfg.ndevices = 1;
    r.device_cfg[0].regions = 0;
    r.cfg.hbm_max = 0;
    begin_ns();
    struct core_held held = chain(1, 1, 2);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 0);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 0);
}

CASE(more_blocks_than_one_copy_may_have_go_in_two)
{
    const uint32_t blocks = 2000;
    struct rig_fill f;
    rig_defaults(&r);
    r.cfg.ndevices = 1;
    r.cfg.blocks_max = r.cfg.hbm_max = 8192;
    r.device_cfg[0].regions = 40;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 1, SLOT);
    spec.ngroups = 3;
    spec.group[1] = spec.group[2] = spec.group[0];
    ns = rig_ns(&r, 1, &spec);
    for (uint32_t g = 0; g < 3; g++)
        rig_store(&r, 1, ns, g, 1 + 1000 * g, 0, blocks);
    struct core_held held = rig_acquire(&r, 1, ns, 1, blocks);
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    core_check(r.core);
    /* 2,000, 2,000 and 96; 1,904 */
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 4);
    ck_assert_uint_eq(fake_device_copy(r.device[0], 2)->n, 96);
    ck_assert_uint_eq(fake_device_copy(r.device[0], 3)->n, 1904);
    end_copies(0, 0);
    ck_assert_uint_eq(f.f.ret_blocks, 3 * blocks);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3 * blocks);
    struct core_send too_large = {.lease = held.lease,
                                  .transfer = {.device = r.devices[0], .deadline_ns = UINT64_MAX}};
    ck_assert_int_eq(core_send_start(r.core, r.cl[1], &too_large, &r.why), KVC_E_TOO_LARGE);
    rig_release(&r, 1, &held);
}

CASES(.setup = setup, .teardown = end_devices);

CASE(memory_for_devices_is_taken_only_where_there_are_any)
{
    struct core_config cfg = r.cfg;
    struct core_budget b;
    core_budget(&cfg, &b);
    ck_assert_uint_gt(b.hbm, 0);
    const uint64_t leases = b.leases;
    cfg.ndevices = 0;
    core_budget(&cfg, &b);
    ck_assert_uint_eq(b.hbm, 0);
    ck_assert_uint_lt(b.leases, leases);
}

/* ---- ends ---- */

static struct core_evict_job job_of(uint32_t chain, struct key256 *key)
{
    *key = rig_key(chain, 0);
    return (struct core_evict_job){.client = r.cl[0], .have_key = true, .key = *key};
}

CASE(a_copy_goes_with_its_block)
{
    struct core_held held = chain(1, 1, 4);
    struct key256 key;
    ck_assert_uint_eq(fill(1, &held, 0, 0), 4);
    rig_release(&r, 1, &held);
    struct core_evict_job job = job_of(1, &key);
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 4);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).blocks, 0);
}

CASE(bytes_that_turned_out_wrong_are_stale_on_the_device_too)
{
    struct core_held one = chain(1, 1, 3), two = again(2, 1, 3);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 3);
    ck_assert_uint_eq(fill(2, &two, 1, 0), 3);
    rig_release(&r, 2, &two);
    const struct views hbm = views_of(1, &one);
    flip(1, 1);
    verify_all(CORE_VERIFY_HOST);
    const struct fake_tier *slots = fake_device_slots(r.device[0]);
    ck_assert_ptr_nonnull(fake_tier_bytes(slots, &hbm.v[0]));
    ck_assert_ptr_null(fake_tier_bytes(slots, &hbm.v[1]));
    ck_assert_ptr_nonnull(fake_tier_bytes(slots, &hbm.v[2])); /* gone, but right */
    const struct views now = views_of(1, &one);
    ck_assert_uint_eq(device_of_chunk(now.v[0].chunk), 1);
    ck_assert_uint_eq(device_of_chunk(now.v[1].chunk), 0);
    ck_assert_uint_eq(device_of_chunk(now.v[2].chunk), 1);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3);
    ck_assert_uint_eq(rig_device_slots(&r, 1), 1); /* nobody holds the others there */
    rig_release(&r, 1, &one);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
}

CASE(a_block_that_goes_bad_under_a_fill_does_not_land)
{
    struct core_held held = chain(1, 1, 3);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    flip(1, 1);
    verify_all(CORE_VERIFY_HOST);
    end_copies(0, 0);
    ck_assert_uint_eq(f.f.ret_blocks, 1);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 1); /* what is gone is not copied again */
}

CASE(a_lost_device_costs_nothing_else)
{
    struct core_held one = chain(1, 1, 3), two = chain(1, 2, 3);
    struct rig_fill f;
    ck_assert_uint_eq(fill(1, &one, 0, 0), 3);
    ck_assert_uint_eq(fill(1, &two, 0, 0), 3);
    rig_release(&r, 1, &two);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).blocks, 0);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3); /* of the lease that may still look there */
    ck_assert_uint_eq(rig_check_hbm(&r, 1, one.lease, 0), 0);
    rig_check_lease(&r, 1, one.lease, 0);
    ck_assert(!is_hbm(1, 0));
    ck_assert_int_eq(rig_fill(&r, 1, one.lease, 0, 0, &f), 0); /* out: no error */
    ck_assert_uint_eq(f.f.ret_blocks, 0);
    fake_device_up(r.device[0]);
    ck_assert_uint_eq(fill(1, &one, 0, 0), 3);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 6);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, one.lease, 0), 3);
    rig_release(&r, 1, &one);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3);
    ck_assert_uint_eq(metrics()->hbm_lost, 6);
}

CASE(a_device_that_is_lost_under_a_fill_ends_it)
{
    struct core_held held = chain(1, 1, 3);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    ck_assert_uint_eq(f.done, 0);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3); /* under the copy */
    end_copies(0, 0);
    ck_assert_uint_eq(f.done, 1);
    ck_assert_uint_eq(f.f.ret_blocks, 0);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
}

CASE(a_lease_that_is_released_under_a_fill_holds_until_it_has_ended)
{
    struct core_held held = chain(1, 1, 3);
    struct core_held other;
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(metrics()->leases, 1);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), KVC_E_NO_LEASE);
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], held.ticket, &other), KVC_E_NO_LEASE);
    end_copies(0, 0);
    ck_assert_uint_eq(f.done, 1);
    ck_assert_uint_eq(f.f.ret_blocks, 0); /* there is no lease that could hold them */
    ck_assert_uint_eq(metrics()->leases, 0);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).blocks, 3);
}

CASE(a_client_is_idle_when_its_fills_have_ended)
{
    struct core_held held = chain(1, 1, 3);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    rig_close(&r, 1);
    core_check(r.core);
    ck_assert_uint_eq(r.idle[1], 0);
    end_copies(0, 0);
    ck_assert_uint_eq(f.done, 1);
    ck_assert_uint_eq(r.idle[1], 1);
}

CASE(a_fill_that_is_forgotten_goes_on_by_itself)
{
    struct core_held one = chain(1, 1, 3), two = again(2, 1, 3);
    struct rig_fill f, g;
    ck_assert_int_eq(rig_fill(&r, 1, one.lease, 0, 0, &f), 1);
    ck_assert_int_eq(rig_fill(&r, 2, two.lease, 0, 0, &g), 1);
    core_fill_cancel(r.core, &f.f);
    core_fill_cancel(r.core, &f.f);
    core_check(r.core);
    rig_release(&r, 1, &one);
    end_copies(0, 0);
    ck_assert_uint_eq(f.done, 0);
    ck_assert_uint_eq(g.done, 1);
    ck_assert_uint_eq(g.f.ret_blocks, 3);
    ck_assert_uint_eq(metrics()->leases, 1);
}
