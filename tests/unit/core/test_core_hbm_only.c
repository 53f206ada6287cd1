/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that are on disk and in slots of a device, and not in host memory: read there, held there,
 * lost there. */
#include "device_core.h"

#define PAGES 64u
#define OTHER 1000u /* chains that nobody asks for */

/* Host memory of 16 blocks, a disk of 256; slots on the first of two devices, as many as asked. */
static void begin(uint32_t slots, uint32_t shards)
{
    struct core_ns_spec spec = rig_spec("m", 8, SLOT);
    rig_defaults(&r);
    room_for(16, 256);
    r.cfg.ndevices = 2;
    r.device_cfg[0].regions = 1;
    r.device_cfg[0].region_bytes = slots * SLOT;
    r.cfg.hbm_verify = true;
    rig_begin(&r);
    spec.shards = shards;
    ns = rig_ns(&r, 1, &spec);
    open_pool(PAGES);
}

static void setup(void)
{
    begin(16, 1);
}

/* ---- words ---- */

static uint32_t tiers_of(uint32_t chain, uint32_t i)
{
    return rig_explain(&r, 0, 0, chain, i).tier;
}

/* An acquire as a reader on the device makes it; 1: it waits for loads. */
static int ask_on(unsigned client, uint32_t chain, uint32_t blocks, unsigned device, uint32_t shard,
                  struct core_waiter *w, struct core_held *held)
{
    struct core_acquire in = {.seq = rig_seq(ns, chain, 8 * blocks), .load = w != NULL};
    in.seq.on = r.devices[device];
    in.seq.on_shard = shard;
    const int err = core_acquire(r.core, r.cl[client], &in, w, held, &r.why);
    core_check(r.core);
    return err;
}

static struct core_held on(unsigned client, uint32_t chain, uint32_t blocks, unsigned device)
{
    struct core_held held;
    ck_assert_int_eq(ask_on(client, chain, blocks, device, 0, NULL, &held), 0);
    return held;
}

static struct core_held in_memory(unsigned client, uint32_t chain, uint32_t blocks)
{
    return rig_acquire(&r, client, ns, chain, 8 * blocks);
}

/* Others take all of host memory: what was there is on disk. */
static void leave_memory(void)
{
    static uint32_t next;
    for (uint32_t i = 0; i < 16; i++) {
        rig_store(&r, 1, ns, 0, OTHER + next++, 0, 1);
        rig_settle(&r);
        rig_step(&r);
    }
}

/* A chain in slots of device 0 and on disk, and nowhere else. */
static void only_hbm(uint32_t chain, uint32_t blocks)
{
    rig_store(&r, 1, ns, 0, chain, 0, blocks);
    struct core_held held = in_memory(1, chain, blocks);
    ck_assert_uint_eq(fill(1, &held, 0, 0), blocks);
    rig_release(&r, 1, &held);
    leave_memory();
    for (uint32_t i = 0; i < blocks; i++)
        ck_assert_uint_eq(tiers_of(chain, i), KVC_TIER_NVME | KVC_TIER_HBM);
}

static bool is_lost(unsigned client, const struct core_held *held)
{
    return core_lease_is_lost(r.core, r.cl[client], held->lease, 0);
}

static void keep_nothing(void *ctx, const struct tier_view *view)
{
    (void)ctx;
    (void)view;
}

static int locs_hbm(unsigned client, const struct core_held *held)
{
    return core_lease_locs_hbm(r.core, r.cl[client], held->lease, 0, keep_nothing, NULL);
}

static void is_sent(const struct core_held *held, unsigned device, uint8_t status)
{
    ck_assert_int_eq(rig_send(&r, 1, held, device, pool, 0, &send), 1);
    core_check(r.core);
    rig_settle(&r);
    ck_assert_uint_eq(send.done, 1);
    for (uint32_t i = 0; i < send.n; i++)
        ck_assert_uint_eq(send.statuses[i], status);
}

static void on_loaded(struct core_waiter *w)
{
    w->keys = UINT32_MAX;
}

/* ---- read there ---- */

CASES(.setup = setup, .teardown = end_devices);

CASE(what_left_memory_is_read_on_the_device)
{
    only_hbm(1, 3);
    const uint64_t loaded = metrics()->blocks_loaded;
    struct core_held plain = in_memory(2, 1, 3);
    ck_assert_uint_eq(plain.lease, 0);
    ck_assert_uint_eq(plain.prefix.group[0].reason, KVC_MISS_NOT_LOADED);
    struct core_waiter w = {.keys = 0};
    struct core_held held;
    ck_assert_int_eq(ask_on(2, 1, 3, 0, 0, &w, &held),
                     0); /* loads nothing, and waits for nothing */
    ck_assert_uint_eq(held.prefix.tokens, 24);
    ck_assert_uint_eq(rig_check_hbm(&r, 2, held.lease, 0), 3);
    ck_assert_uint_eq(metrics()->hbm_only_hits, 3);
    ck_assert_uint_eq(metrics()->loads_in_flight, 0);
    ck_assert_uint_eq(metrics()->blocks_loaded, loaded);
    ck_assert_uint_eq(tiers_of(1, 0), KVC_TIER_NVME | KVC_TIER_HBM);
    rig_release(&r, 2, &held);
}

CASE(a_request_asks_a_device_for_no_more_than_whether_it_is_up)
{
    only_hbm(1, 3);
    struct core_held held = on(2, 1, 3, 0);
    ck_assert_uint_eq(held.prefix.tokens, 24);
    ck_assert_uint_eq(fill(2, &held, 0, 0), 3);
    ck_assert_uint_eq(fake_device_views(r.device[0]), 0);
    fake_device_lose(r.device[0]);
    ck_assert_uint_eq(on(3, 1, 3, 0).prefix.tokens, 0);
    ck_assert_uint_eq(fake_device_views(r.device[0]), 0);
}

CASE(a_fill_finds_what_its_lease_has_there_alone)
{
    only_hbm(1, 3);
    struct core_held held = on(2, 1, 3, 0);
    ck_assert_uint_eq(fill(2, &held, 0, 0), 3);
    ck_assert_uint_eq(metrics()->hbm_hits, 3);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).hits, 3);
    ck_assert_uint_eq(fill(2, &held, 0, 0), 3);
    ck_assert_uint_eq(metrics()->hbm_hits, 3);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).fills, 3);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 2, held.lease, 1, 0, &f),
                     KVC_E_BAD_ARGUMENT); /* another device */
}

CASE(a_send_copies_out_of_slots_alone)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    const uint64_t verified = metrics()->hbm_verified;
    is_sent(&held, 0, KVC_ST_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const struct key256 key = rig_key(1, i);
        ck_assert(rig_has_arrived(&send, ns, 0, i, key.b));
    }
    ck_assert_uint_eq(metrics()->send_blocks_hbm, 3);
    ck_assert_uint_eq(metrics()->hbm_verified, verified); /* nothing of it is in host memory */
}

CASE(other_devices_and_ranks_have_nothing_of_it)
{
    only_hbm(1, 3);
    ck_assert_uint_eq(on(1, 1, 3, 1).lease, 0);
    fake_device_lose(r.device[0]);
    ck_assert_uint_eq(on(1, 1, 3, 0).lease, 0);
    end_devices();
    begin(16, 2);
    rig_store_shards(&r, 1, ns, 0, 1, 0, 3);
    struct core_held held = in_memory(1, 1, 3);
    ck_assert_uint_eq(fill(1, &held, 0, 1), 3);
    rig_release(&r, 1, &held);
    for (uint32_t i = 0; i < 16; i++) {
        rig_store_shards(&r, 1, ns, 0, OTHER + i, 0, 1);
        rig_settle(&r);
    }
    ck_assert_uint_eq(tiers_of(1, 0) & KVC_TIER_HOST, 0);
    ck_assert_int_eq(ask_on(1, 1, 3, 0, 0, NULL, &held), 0);
    ck_assert_uint_eq(held.lease, 0);
    ck_assert_int_eq(ask_on(1, 1, 3, 0, 1, NULL, &held), 0);
    ck_assert_uint_eq(held.prefix.tokens, 24);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 1), 3);
    ck_assert(core_lease_is_lost(r.core, r.cl[1], held.lease, 0)); /* it was asked for rank 1 */
    ck_assert(!core_lease_is_lost(r.core, r.cl[1], held.lease, 1));
}

CASE(part_of_a_lease_may_be_in_slots_alone)
{
    only_hbm(1, 3);
    rig_store(&r, 1, ns, 0, 1, 3, 1);
    struct core_held held = on(1, 1, 4, 0);
    ck_assert_uint_eq(held.prefix.tokens, 32);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3);
    ck_assert_uint_eq(metrics()->hbm_only_hits, 3);
    const uint64_t fills = rig_hbm_stats(&r, 0).fills;
    ck_assert_uint_eq(fill(1, &held, 0, 0), 4);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).fills, fills + 1);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 4);
    is_sent(&held, 0, KVC_ST_OK);
}

CASE(nothing_is_prefetched_that_is_there)
{
    only_hbm(1, 3);
    struct core_seq seq = rig_seq(ns, 1, 24);
    seq.on = r.devices[0];
    ck_assert_uint_eq(core_prefetch(r.core, &seq, UINT64_MAX), 0);
    ck_assert_uint_eq(metrics()->loads_in_flight, 0);
    seq.on = r.devices[1];
    ck_assert_uint_eq(core_prefetch(r.core, &seq, UINT64_MAX), 3);
    rig_settle(&r);
    ck_assert_uint_eq(tiers_of(1, 2), KVC_TIER_HOST | KVC_TIER_NVME | KVC_TIER_HBM);
}

/* ---- held, and let go of ---- */

CASE(slots_are_held_from_the_beginning)
{
    end_devices();
    begin(3, 1);
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    rig_store(&r, 2, ns, 0, 2, 0, 3);
    struct core_held other = in_memory(2, 2, 3);
    ck_assert_uint_eq(fill(2, &other, 0, 0), 0);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(fill(2, &other, 0, 0), 3); /* on disk or not: it went as others do */
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).drops, 3);
    ck_assert_uint_eq(tiers_of(1, 0), KVC_TIER_NVME);
    ck_assert_uint_eq(on(1, 1, 3, 0).lease, 0);
}

/* The first two of a chain of four are in slots; waits for the others. */
static struct core_held asks_for_more(struct core_waiter *w)
{
    struct core_held held;
    end_devices();
    begin(2, 1);
    rig_store(&r, 1, ns, 0, 1, 0, 4);
    held = in_memory(1, 1, 4);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 2);
    rig_release(&r, 1, &held);
    leave_memory();
    ck_assert_uint_eq(tiers_of(1, 1), KVC_TIER_NVME | KVC_TIER_HBM);
    ck_assert_uint_eq(tiers_of(1, 2), KVC_TIER_NVME);
    ck_assert_int_eq(ask_on(1, 1, 4, 0, 0, w, &held), 1);
    ck_assert_uint_eq(metrics()->loads_in_flight, 2);
    return held;
}

static struct core_held asks_again(struct core_waiter *w)
{
    struct core_acquire in = {.seq = rig_seq(ns, 1, 32)};
    struct core_held held;
    rig_settle(&r);
    ck_assert_uint_eq(w->keys, UINT32_MAX);
    in.seq = rig_seq(ns, 1, 32);
    in.seq.on = r.devices[0];
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, w, &held, &r.why), 0);
    core_check(r.core);
    return held;
}

CASE(what_is_not_there_is_loaded_and_the_rest_held_meanwhile)
{
    struct core_waiter w = {.fn = on_loaded};
    struct core_held held = asks_for_more(&w);
    rig_store(&r, 2, ns, 0, 2, 0, 2);
    struct core_held other = in_memory(2, 2, 2);
    ck_assert_uint_eq(fill(2, &other, 0, 0), 0);
    const uint64_t loaded = metrics()->blocks_loaded;
    ck_assert_uint_eq(loaded, 2);
    held = asks_again(&w);
    ck_assert_uint_eq(held.prefix.tokens, 32);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 2);
    ck_assert_uint_eq(metrics()->blocks_hit_loaded, 2);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(fill(2, &other, 0, 0), 2);
}

CASE(who_asks_no_more_holds_no_slot)
{
    struct core_waiter w = {.fn = on_loaded};
    (void)asks_for_more(&w);
    core_waiter_cancel(r.core, &w);
    core_check(r.core);
    rig_settle(&r);
    rig_store(&r, 2, ns, 0, 2, 0, 2);
    struct core_held other = in_memory(2, 2, 2);
    ck_assert_uint_eq(fill(2, &other, 0, 0), 2);
    ck_assert_uint_eq(rig_hbm_stats(&r, 0).drops, 2);
}

CASE(a_client_that_goes_while_it_asks_holds_no_slot)
{
    struct core_waiter w = {.fn = on_loaded};
    (void)asks_for_more(&w);
    core_waiter_cancel(r.core, &w);
    rig_close(&r, 1);
    core_check(r.core);
    rig_settle(&r);
    ck_assert_uint_eq(r.idle[1], 1);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 2);
}

/* ---- lost ---- */

CASE(a_lease_is_lost_with_its_device)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    ck_assert(is_lost(1, &held));
    ck_assert_int_eq(locs_hbm(1, &held), KVC_E_GONE);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3); /* its reader may still look there */
    ck_assert_uint_eq(fill(1, &held, 0, 0), 0);
    is_sent(&held, 0, KVC_ST_TIER);
    fake_device_up(r.device[0]);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 0); /* nothing is in host memory to copy */
    is_sent(&held, 0, KVC_ST_TIER);
    ck_assert(is_lost(1, &held));
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
    held = rig_load(&r, 1, ns, 1, 24); /* it cost time alone */
    ck_assert_uint_eq(held.prefix.tokens, 24);
    rig_check_lease(&r, 1, held.lease, 0);
}

CASE(who_loads_it_for_himself_heals_the_lease)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    fake_device_lose(r.device[0]);
    fake_device_up(r.device[0]);
    struct core_held other = rig_load(&r, 2, ns, 1, 24);
    ck_assert_uint_eq(other.prefix.tokens, 24);
    rig_release(&r, 2, &other);
    ck_assert(!is_lost(1, &held));
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 0);
    is_sent(&held, 0, KVC_ST_OK);
    leave_memory();
    ck_assert(!is_lost(1, &held)); /* leased, it stays in memory */
    ck_assert_uint_eq(fill(1, &held, 0, 0), 3);
}

CASE(a_device_that_is_lost_while_the_rest_is_loaded_costs_its_part)
{
    struct core_waiter w = {.fn = on_loaded};
    struct core_held held = asks_for_more(&w);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    held = asks_again(&w);
    ck_assert_uint_eq(held.lease, 0);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_NOT_LOADED);
    ck_assert_uint_eq(held.prefix.cached_tokens, 32);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
}

CASE(a_device_that_is_lost_under_a_send_fails_it)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    rig_settle(&r);
    ck_assert_uint_eq(send.done, 1);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(send.statuses[i], KVC_ST_TIER);
}

CASE(a_block_that_storage_loses_is_read_to_the_end)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    while (fake_disk_lose(r.disk))
        core_check(r.core);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 0);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3);
    is_sent(&held, 0, KVC_ST_OK);
    for (uint32_t i = 0; i < 3; i++) {
        const struct key256 key = rig_key(1, i);
        ck_assert(rig_has_arrived(&send, ns, 0, i, key.b));
    }
    struct core_held other = on(2, 1, 3, 0);
    ck_assert_uint_eq(other.lease, 0);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 3);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
}

CASE(what_is_leased_in_slots_is_not_evicted_from_disk)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    const struct key256 key = rig_key(1, 0);
    struct core_evict_job job = {.client = r.cl[0], .have_key = true, .key = key, .force = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_kept, 3);
    for (uint32_t region = 0; region < 256 / 8; region++)
        fake_disk_want(r.disk, region);
    rig_settle(&r);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 24);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 3);
    rig_release(&r, 1, &held);
    job = (struct core_evict_job){.client = r.cl[0], .have_key = true, .key = key, .force = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_blocks, 3);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
}

CASE(a_copy_on_disk_that_is_wrong_ends_the_lease)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    const struct key256 key = rig_key(1, 1);
    ck_assert(fake_disk_flip(r.disk, key.b, 0));
    verify_all(CORE_VERIFY_DISK);
    ck_assert(core_lease_is_corrupt(r.core, r.cl[1], held.lease));
    ck_assert(is_lost(1, &held));
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 8);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
}

/* ---- tickets ---- */

CASE(a_ticket_is_for_what_is_in_memory)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0), other;
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], held.ticket, &other), KVC_E_NO_LEASE);
    struct core_held loaded = rig_load(&r, 2, ns, 1, 24);
    rig_release(&r, 2, &loaded);
    ck_assert_int_eq(core_redeem(r.core, r.cl[2], held.ticket, &other), 0);
    rig_release(&r, 1, &held);
    rig_check_lease(&r, 2, other.lease, 0);
}

CASE(locations_in_memory_alone_are_refused)
{
    only_hbm(1, 3);
    struct core_held held = on(1, 1, 3, 0);
    ck_assert_int_eq(core_lease_locs(r.core, r.cl[1], held.lease, 0, keep_nothing, NULL),
                     KVC_E_GONE);
    ck_assert_int_eq(locs_hbm(1, &held), 0);
}

/* ---- weighing ---- */

static struct core_held weighs(const struct device *device)
{
    struct core_acquire in = {.seq = rig_seq(ns, 1, 24), .load = true};
    struct core_waiter w = {.fn = on_loaded};
    struct core_held held;
    in.seq.worth = true;
    in.seq.cost = (struct core_cost){.ns_per_token = 1000};
    in.seq.on = device;
    ck_assert_int_eq(core_acquire(r.core, r.cl[1], &in, &w, &held, &r.why), 0);
    core_check(r.core);
    return held;
}

CASE(what_is_in_slots_costs_no_load)
{
    struct core_ns_spec spec = rig_spec("costs", 8, SLOT);
    ns = rig_ns(&r, 1, &spec);
    core_load_or_recompute(r.core, true);
    rig_store(&r, 1, ns, 0, 50, 0, 1);
    only_hbm(1, 3);
    const struct core_seq seq = rig_seq(ns, 50, 8); /* a load that takes 100 ms */
    ck_assert_uint_eq(core_prefetch(r.core, &seq, UINT64_MAX), 1);
    for (unsigned i = 0; i < 5; i++)
        rig_step(&r);
    rig_settle(&r);
    struct core_held held = weighs(NULL);
    ck_assert_uint_eq(held.prefix.tokens, 0);
    ck_assert_uint_eq(held.prefix.group[0].reason, KVC_MISS_NOT_WORTH);
    rig_settle(&r);
    held = weighs(r.devices[0]);
    ck_assert_uint_eq(held.prefix.tokens, 24);
    ck_assert_uint_ge(rig_check_hbm(&r, 1, held.lease, 0), 2); /* one was loaded to see how long */
}

/* ---- without storage ---- */

CASE(without_storage_a_copy_goes_with_its_block)
{
    end_devices();
    rig_defaults(&r);
    r.tier_cfg.regions = 1;
    r.tier_cfg.region_bytes = 16 * SLOT;
    r.cfg.ndevices = 2;
    begin_ns();
    pool = rig_pool(&r, 0, ns, PAGES);
    rig_store(&r, 1, ns, 0, 1, 0, 3);
    struct core_held held = in_memory(1, 1, 3);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 3);
    rig_release(&r, 1, &held);
    leave_memory();
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
    ck_assert_uint_eq(on(1, 1, 3, 0).lease, 0);
    ck_assert_uint_eq(metrics()->hbm_only_hits, 0);
}
