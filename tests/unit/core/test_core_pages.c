/* SPDX-License-Identifier: Apache-2.0 */
/* Workers' pages: leases that are copied to them, and commits out of them. */
#include <stdlib.h>

#include "device_core.h"

#define PAGES 256u

static struct rig_put put;
static struct rig_commit commit;

static void begin(uint32_t disk_slots)
{
    struct core_ns_spec spec = rig_spec("m", 8, SLOT);
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    r.cfg.leases_max = 256;
    if (disk_slots > 0)
        r.disk_cfg = (struct fake_disk_config){.slots = disk_slots, .region_slots = 8, .seed = 3};
    rig_begin(&r);
    ns = rig_ns(&r, 1, &spec);
    open_pool(PAGES);
}

static void setup(void)
{
    begin(0);
}

static void setup_disk(void)
{
    begin(64);
}

static void teardown(void)
{
    end_devices();
    rig_commit_free(&commit);
    commit = (struct rig_commit){.done = 0};
}

/* ---- words ---- */

static struct device_copy *copy_at(unsigned i)
{
    return fake_device_copy(r.device[0], i);
}

static void arrived(uint32_t group, uint32_t chain, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct key256 key = rig_key(chain, i);
        ck_assert(rig_has_arrived(&send, ns, group, i, key.b));
    }
}

static void statuses_are(const uint8_t *statuses, uint32_t n, uint8_t want)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(statuses[i], want);
}

/* ---- sends ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_lease_arrives_in_a_workers_pages)
{
    struct core_held held = chain(1, 1, 5);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 10, &send), 1);
    core_check(r.core);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    ck_assert_uint_eq(copy_at(0)->n, 5);
    end_copies(0, 0);
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 5, KVC_ST_OK);
    arrived(0, 1, 5);
    ck_assert_uint_eq(metrics()->send_blocks, 5);
    ck_assert_uint_eq(metrics()->send_bytes, 5 * SLOT);
    ck_assert_uint_eq(metrics()->send_blocks_hbm, 0);
}

CASE(what_is_on_the_device_comes_from_there)
{
    struct core_held one = chain(1, 1, 3), held;
    ck_assert_uint_eq(fill(1, &one, 0, 0), 3);
    rig_store(&r, 1, ns, 0, 1, 3, 2);
    held = rig_acquire(&r, 2, ns, 1, 40);
    ck_assert_int_eq(rig_send(&r, 2, &held, 0, pool, 0, &send), 1);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert((copy_at(0)->piece[i].slot.id != 0) == (i < 3));
    end_copies(0, 0);
    statuses_are(send.statuses, 5, KVC_ST_OK);
    arrived(0, 1, 5);
    ck_assert_uint_eq(metrics()->send_blocks_hbm, 3);
}

CASES();

/* Its slots are full of what the send reads, and nobody else holds that. */
CASE(what_is_being_read_from_a_slot_is_not_let_go_of)
{
    rig_defaults(&r);
    r.cfg.ndevices = 1;
    r.device_cfg[0].regions = 1, r.device_cfg[0].region_bytes = 3 * SLOT;
    begin_ns();
    pool = rig_pool(&r, 0, ns, PAGES);
    struct core_held one = chain(1, 1, 3), two = chain(1, 2, 3), held;
    struct rig_fill f;
    ck_assert_uint_eq(fill(1, &one, 0, 0), 3);
    held = rig_acquire(&r, 2, ns, 1, 24);
    ck_assert_int_eq(rig_send(&r, 2, &held, 0, pool, 0, &send), 1);
    ck_assert_int_eq(core_release(r.core, r.cl[1], one.lease), 0);
    ck_assert_int_eq(rig_fill(&r, 1, two.lease, 0, 0, &f), 0);
    ck_assert_uint_eq(f.f.ret_blocks, 0);
    end_copies(0, 0);
    arrived(0, 1, 3);
    ck_assert_uint_eq(fill(1, &two, 0, 0), 3);
    end_devices();
}

static void two_groups(void)
{
    struct core_ns_spec spec = rig_spec("two", 8, SLOT);
    spec.shards = 2;
    spec.ngroups = 2;
    spec.group[1] = (struct core_group){
        .block_tokens = 8, .block_bytes = 96, .rule = KVC_RULE_FULL, .flags = KVC_F_REPLICATED};
    ns = rig_ns(&r, 1, &spec);
    fake_pool_destroy(&pool);
    pool = rig_pool(&r, 0, ns, PAGES);
    rig_store_shards(&r, 1, ns, 0, 1, 0, 3);
    rig_store(&r, 1, ns, 1, 1001, 0, 3);
}

CASES(.setup = setup, .teardown = teardown);

CASE(groups_go_together_when_nobody_counts_layers)
{
    two_groups();
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 2);
    fake_device_end(r.device[0], copy_at(1), 0);
    core_check(r.core);
    ck_assert_uint_eq(send.done, 0);
    end_copies(0, 0);
    statuses_are(send.statuses, 6, KVC_ST_OK);
    arrived(0, 1, 3);
    arrived(1, 1001, 3);
}

static _Atomic uint64_t word, after;

static int send_counted(const struct core_held *held)
{
    send.word = &word;
    atomic_store(&word, 0);
    return rig_send(&r, 1, held, 0, pool, 0, &send);
}

CASE(layers_are_counted_through_all_groups)
{
    two_groups();
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_int_eq(send_counted(&held), 1);
    for (uint64_t layer = 1; layer <= 8; layer++) { /* four of each group */
        ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
        ck_assert(fake_device_layer(r.device[0], copy_at(0)));
        ck_assert_uint_eq(atomic_load(&word), layer);
        if (layer % 4 == 0)
            fake_device_end(r.device[0], copy_at(0), 0);
        core_check(r.core);
    }
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 6, KVC_ST_OK);
    arrived(1, 1001, 3);
}

CASE(layers_are_not_counted_behind_what_failed)
{
    two_groups();
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_int_eq(send_counted(&held), 1);
    fake_device_end(r.device[0], copy_at(0), -EIO);
    core_check(r.core);
    fake_device_end(r.device[0], copy_at(0), 0);
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 3, KVC_ST_TIER);
    statuses_are(send.statuses + 3, 3, KVC_ST_OK);
    ck_assert_uint_eq(atomic_load(&word), 0);
}

CASE(a_cancelled_send_of_several_groups_ends_them_all)
{
    two_groups();
    struct core_held held = rig_acquire(&r, 1, ns, 1, 24);
    ck_assert_int_eq(send_counted(&held), 1);
    core_cancel(r.core, &send.s.req);
    ck_assert_uint_eq(send.done, 0);
    fake_device_end(r.device[0], copy_at(0), 0); /* it was too late for this one */
    ck_assert(atomic_load(&copy_at(0)->cancel));
    fake_device_end(r.device[0], copy_at(0), -ECANCELED);
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 3, KVC_ST_OK);
    statuses_are(send.statuses + 3, 3, KVC_ST_CANCELLED);
}

CASE(a_send_begins_when_its_word_says_so)
{
    struct core_held held = chain(1, 1, 2);
    atomic_store(&after, 6);
    send.after.word = &after;
    send.after.value = 7;
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    ck_assert(!fake_device_may_begin(copy_at(0)));
    atomic_store(&after, 7);
    ck_assert(fake_device_may_begin(copy_at(0)));
    end_copies(0, 0);
    ck_assert_uint_eq(send.done, 1);
    arrived(0, 1, 2);
}

CASE_EACH(each_end_has_its_status, 4)
{
    static const struct {
        int status;
        uint8_t want;
    } ends[] = {{-EIO, KVC_ST_TIER},
                {-ENOMEM, KVC_ST_TIER},
                {-ETIMEDOUT, KVC_ST_TIMEOUT},
                {-ECANCELED, KVC_ST_CANCELLED}};
    struct core_held held = chain(1, 1, 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    if (ends[_i].status == -ECANCELED)
        core_cancel(r.core, &send.s.req);
    end_copies(0, ends[_i].status);
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 3, ends[_i].want);
    ck_assert_uint_eq(metrics()->send_blocks, 0);
}

CASE(a_wrong_page_number_costs_its_block_alone)
{
    struct core_held held = chain(1, 1, 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, PAGES - 5, &send), 1);
    end_copies(0, 0);
    statuses_are(send.statuses, 2, KVC_ST_OK);
    ck_assert_uint_eq(send.statuses[2], KVC_ST_BAD_ARGUMENT);
    arrived(0, 1, 2);
}

CASE(what_a_send_may_not_ask_for)
{
    struct core_held held = chain(1, 1, 3);
    struct core_ns_spec spec = rig_spec("other", 8, 2 * SLOT);
    struct device_pool *other = rig_pool(&r, 0, rig_ns(&r, 1, &spec), 4);
    ck_assert_int_eq(rig_send(&r, 2, &held, 0, pool, 0, &send), KVC_E_NO_LEASE);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, other, 0, &send), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "pool:"));
    send.s.transfer.pool = pool;
    send.s.shard = 1;
    ck_assert_int_eq(core_send_start(r.core, r.cl[1], &send.s, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "shard:"));
    send.s.shard = 0;
    send.s.group[0].pages = NULL;
    ck_assert_int_eq(core_send_start(r.core, r.cl[1], &send.s, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "pages:"));
    struct device strange = {.no = 1};
    send.s.transfer.device = &strange;
    ck_assert_int_eq(core_send_start(r.core, r.cl[1], &send.s, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "device:"));
    core_check(r.core);
    fake_pool_destroy(&other);
}

CASE(a_lease_is_held_until_its_send_has_ended)
{
    struct core_held held = chain(1, 1, 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    core_check(r.core);
    struct core_evict_job job = {.client = r.cl[0], .force = true};
    rig_evict(&r, &job);
    ck_assert_uint_eq(job.ret_kept, 3);
    end_copies(0, 0);
    arrived(0, 1, 3);
    ck_assert_uint_eq(metrics()->leases, 0);
    ck_assert_uint_eq(core_client_lease_bytes(r.cl[1]), 0);
}

CASE(a_client_that_goes_asks_its_sends_to_stop)
{
    struct core_held held = chain(1, 1, 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    rig_close(&r, 1);
    core_check(r.core);
    ck_assert(atomic_load(&copy_at(0)->cancel));
    ck_assert_uint_eq(r.idle[1], 0);
    end_copies(0, -ECANCELED);
    ck_assert_uint_eq(send.done, 1);
    statuses_are(send.statuses, 3, KVC_ST_CANCELLED);
    ck_assert_uint_eq(r.idle[1], 1);
}

CASE(a_device_that_is_lost_under_a_send_ends_it)
{
    struct core_held held = chain(1, 1, 3);
    ck_assert_uint_eq(fill(1, &held, 0, 0), 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    end_copies(0, 0);
    statuses_are(send.statuses, 3, KVC_ST_TIER);
    struct tier_stats st;
    r.devices[0]->slots->ops->stats(r.devices[0]->slots, &st);
    ck_assert_uint_eq(st.used_slots, 0);
    held = rig_acquire(&r, 1, ns, 1, 24); /* host memory has it all */
    ck_assert_uint_eq(held.prefix.tokens, 24);
    rig_check_lease(&r, 1, held.lease, 0);
}

CASE(bytes_that_go_bad_under_a_send_have_not_arrived)
{
    struct core_held held = chain(1, 1, 3);
    flip(1, 1);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    verify_all(CORE_VERIFY_HOST);
    end_copies(0, 0);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_OK);
    ck_assert_uint_eq(send.statuses[1], KVC_ST_TIER);
    ck_assert_uint_eq(send.statuses[2], KVC_ST_OK); /* it is not served any more, but right */
}

/* ---- commits ---- */

static int store(unsigned client, uint32_t chain, uint32_t n, uint32_t page)
{
    put = (struct rig_put){.ns = ns, .chain = chain, .n = n, .durable = put.durable};
    ck_assert_int_eq(rig_reserve(&r, client, &put), 0);
    rig_commit_free(&commit);
    return rig_commit_pages(&r, client, &put, 0, pool, page, &commit);
}

static void seal_all(int status)
{
    while (fake_tier_inflight(r.tier) > 0)
        fake_tier_end(r.tier, fake_tier_op(r.tier, 0), status);
    core_check(r.core);
}

CASE(blocks_are_stored_out_of_pages)
{
    ck_assert_int_eq(store(1, 1, 4, 0), 1);
    core_check(r.core);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    ck_assert_uint_eq(copy_at(0)->n, 4);
    end_copies(0, 0);
    ck_assert_uint_eq(commit.done, 0); /* the checksums are to come */
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 4);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 0);
    seal_all(0);
    ck_assert_uint_eq(commit.done, 1);
    statuses_are(commit.statuses, 4, KVC_ST_OK);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
    ck_assert_uint_eq(held.prefix.tokens, 32);
    rig_check_lease(&r, 1, held.lease, 0);
    ck_assert_uint_eq(metrics()->blocks_from_pages, 4);
    ck_assert_uint_eq(metrics()->bytes_from_pages, 4 * SLOT);
    ck_assert_uint_eq(metrics()->bytes_stored, 4 * SLOT);
}

CASE(what_exists_has_pages_that_nobody_reads)
{
    rig_store(&r, 1, ns, 0, 1, 0, 2);
    ck_assert_int_eq(store(1, 1, 4, 0), 1);
    ck_assert_uint_eq(copy_at(0)->n, 2);
    end_copies(0, 0);
    seal_all(0);
    statuses_are(commit.statuses, 2, KVC_ST_EXISTS);
    statuses_are(commit.statuses + 2, 2, KVC_ST_OK);
    struct core_held held = rig_acquire(&r, 1, ns, 1, 32);
    ck_assert_uint_eq(held.prefix.tokens, 32);
    rig_check_lease(&r, 1, held.lease, 0);
}

CASE(a_bad_page_costs_its_block_and_what_is_below)
{
    ck_assert_int_eq(store(1, 1, 4, 0), 1);
    commit.pages[5] = PAGES; /* of the third block; the device looks when it begins */
    end_copies(0, 0);
    seal_all(0);
    ck_assert_uint_eq(commit.done, 1);
    statuses_are(commit.statuses, 2, KVC_ST_OK);
    ck_assert_uint_eq(commit.statuses[2], KVC_ST_BAD_ARGUMENT);
    ck_assert_uint_eq(commit.statuses[3], KVC_ST_GONE);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 32).tokens, 16);
    ck_assert_uint_eq(rig_slots(&r), 2);
}

CASE_EACH(a_copy_that_fails_drops_its_blocks, 3)
{
    static const struct {
        int status;
        uint8_t want;
    } ends[] = {{-EIO, KVC_ST_TIER}, {-ETIMEDOUT, KVC_ST_TIMEOUT}, {-ECANCELED, KVC_ST_CANCELLED}};
    ck_assert_int_eq(store(1, 1, 1, 0), 1);
    if (ends[_i].status == -ECANCELED)
        core_cancel(r.core, &commit.c.req);
    end_copies(0, ends[_i].status);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(commit.statuses[0], ends[_i].want);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

CASE(a_checksum_that_fails_drops_its_blocks)
{
    ck_assert_int_eq(store(1, 1, 3, 0), 1);
    end_copies(0, 0);
    seal_all(-EIO);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_TIER);
    statuses_are(commit.statuses + 1, 2, KVC_ST_GONE);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

CASE(what_is_cancelled_between_copy_and_checksum_is_not_stored)
{
    ck_assert_int_eq(store(1, 1, 3, 0), 1);
    core_cancel(r.core, &commit.c.req);
    end_copies(0, 0); /* too late to stop it */
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 0);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_CANCELLED);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

CASE(room_under_a_copy_out_of_pages_is_not_given_back)
{
    ck_assert_int_eq(store(1, 1, 3, 0), 1);
    rig_close(&r, 1);
    core_check(r.core);
    ck_assert(atomic_load(&copy_at(0)->cancel));
    ck_assert_uint_eq(rig_slots(&r), 3);
    ck_assert_uint_eq(r.idle[1], 0);
    end_copies(0, -ECANCELED);
    ck_assert_uint_eq(r.idle[1], 1);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

CASE(what_was_dropped_under_its_copy_is_gone)
{
    struct core_ns_spec spec = rig_spec("ranks", 8, SLOT);
    spec.shards = 2;
    ns = rig_ns(&r, 1, &spec);
    ck_assert_int_eq(store(1, 1, 2, 0), 1);
    struct rig_put other = {.ns = ns, .chain = 1, .n = 2, .shard = 1};
    ck_assert_int_eq(rig_reserve(&r, 2, &other), 0);
    ck_assert_int_eq(core_drop(r.core, r.cl[2], other.reservation), 0);
    core_check(r.core);
    ck_assert_uint_eq(rig_slots(&r), 4); /* its record has them until nothing uses it */
    end_copies(0, 0);
    statuses_are(commit.statuses, 2, KVC_ST_GONE);
    ck_assert_uint_eq(rig_slots(&r), 0);
}

CASE(what_a_commit_out_of_pages_may_not_ask_for)
{
    struct core_ns_spec spec = rig_spec("other", 8, 2 * SLOT);
    struct device_pool *other = rig_pool(&r, 0, rig_ns(&r, 1, &spec), 4);
    put = (struct rig_put){.ns = ns, .chain = 1, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &put), 0);
    ck_assert_int_eq(rig_commit_pages(&r, 1, &put, 0, pool, 0, &commit), 1);
    end_copies(0, 0);
    seal_all(0);
    put.chain = 2;
    ck_assert_int_eq(rig_reserve(&r, 1, &put), 0);
    commit.c.reservation = put.reservation;
    commit.statuses[0] = KVC_ST_OK;
    commit.c.transfer.pool = other;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &commit.c, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "pool:"));
    commit.c.transfer.pool = pool;
    commit.c.transfer.device = NULL;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &commit.c, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "device:"));
    commit.c.transfer.device = r.devices[0];
    commit.c.pages_per_block = 0;
    ck_assert_int_eq(core_commit(r.core, r.cl[1], &commit.c, &r.why), KVC_E_BAD_ARGUMENT);
    ck_assert(strstr(r.why, "pages:"));
    core_check(r.core);
    ck_assert_int_eq(core_drop(r.core, r.cl[1], put.reservation), 0);
    fake_pool_destroy(&other);
}

CASES(.setup = setup_disk, .teardown = teardown);

CASE(a_durable_commit_out_of_pages_is_on_disk)
{
    put.durable = true;
    ck_assert_int_eq(store(1, 1, 3, 0), 1);
    put.durable = false;
    end_copies(0, 0);
    seal_all(0);
    ck_assert_uint_eq(commit.done, 0);
    rig_settle(&r);
    ck_assert_uint_eq(commit.done, 1);
    statuses_are(commit.statuses, 3, KVC_ST_OK);
    ck_assert(rig_explain(&r, 0, 0, 1, 2).durable);
}
