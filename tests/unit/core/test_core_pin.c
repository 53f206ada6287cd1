/* SPDX-License-Identifier: Apache-2.0 */
/* Pins: what stays, for how long, within which budget, and what storage hears of it. */
#include "admin.h"
#include "one_core.h"

static void store(uint32_t chain, uint32_t n)
{
    rig_store(&r, 1, ns, 0, chain, 0, n);
    rig_step(&r);
    if (r.disk)
        rig_settle(&r);
    core_check(r.core);
}

static int pin(uint32_t chain, uint32_t n, bool in_memory, uint64_t ttl_ms, uint64_t *ret_id)
{
    const struct core_pin in = {
        .seq = rig_seq(ns, chain, n * 8), .in_memory = in_memory, .ttl_ms = ttl_ms};
    struct core_pinned got = {0};
    int err = core_pin(r.core, &in, &got, &r.why);
    *ret_id = got.id;
    core_check(r.core);
    return err;
}

static uint32_t there(uint32_t chain, uint32_t n)
{
    return rig_lookup(&r, ns, chain, n * 8).tokens / 8;
}

static void later(uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 100) {
        r.now_ns += 100000000;
        core_tick(r.core, r.now_ns);
        (void)core_background_step(r.core);
    }
    rig_settle(&r);
}

CASES(.teardown = end);

CASE(what_is_pinned_stays_until_it_is_unpinned)
{
    begin_core(4, 0);
    uint64_t id;
    store(1, 2);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
    for (uint32_t i = 2; i < 20; i++)
        store(i, 1);
    ck_assert_uint_eq(there(1, 2), 2);
    const struct core_metrics *m = metrics();
    ck_assert_uint_eq(m->pins, 1);
    ck_assert_uint_eq(m->pinned_blocks, 2);
    ck_assert_uint_eq(m->pinned_bytes, 128);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), KVC_E_NO_NAME);
    for (uint32_t i = 20; i < 30; i++)
        store(i, 1);
    ck_assert_uint_eq(there(1, 2), 0);
    ck_assert_uint_eq(m->pinned_bytes, 0);
}

CASE(when_all_is_pinned_nothing_has_room)
{
    begin_core(2, 0);
    uint64_t id;
    store(1, 2);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
    struct rig_put p = {.ns = ns, .chain = 2, .n = 1};
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_uint_eq(p.statuses[0], KVC_ST_FULL);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), 0);
    store(2, 1);
}

CASE(a_pin_ends_by_itself)
{
    begin_core(4, 0);
    uint64_t id, other;
    store(1, 1);
    store(2, 1);
    ck_assert_int_eq(pin(1, 1, false, 1000, &id), 0);
    ck_assert_int_eq(pin(2, 1, false, 60000, &other), 0);
    struct core_pin_view v;
    uint64_t cursor = 0;
    ck_assert(core_pin_next(r.core, r.cl[1], &cursor, &v));
    ck_assert_uint_eq(v.id, id);
    ck_assert_uint_eq(v.left_ms, 1000);
    ck_assert_str_eq(v.tenant, "t1");
    later(900);
    ck_assert_uint_eq(metrics()->pins, 2);
    later(200);
    ck_assert_uint_eq(metrics()->pins, 1);
    ck_assert_uint_eq(metrics()->pins_ended, 1);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), KVC_E_NO_NAME);
}

CASE(pins_are_of_their_principal)
{
    begin_core(4, 0);
    uint64_t id, cursor = 0;
    struct core_pin_view v;
    store(1, 1);
    ck_assert_int_eq(pin(1, 1, true, 0, &id), 0);
    ck_assert(!core_pin_next(r.core, r.cl[3], &cursor, &v));
    ck_assert_int_eq(core_unpin(r.core, r.cl[3], id), KVC_E_NO_NAME);
    ck_assert(core_pin_next(r.core, r.cl[0], &cursor, &v)); /* an administrator */
    ck_assert(v.in_memory && v.blocks == 1 && v.tokens == 8);
    const struct key256 key = rig_key(1, 0);
    ck_assert(memcmp(v.tip.b, key.b, sizeof key.b) == 0);
    ck_assert(!core_pin_next(r.core, r.cl[0], &cursor, &v));
    ck_assert_int_eq(core_unpin(r.core, r.cl[0], id), 0);
}

CASE(over_the_budget_is_an_error_at_once_and_a_block_counts_once)
{
    begin_core(16, 0);
    uint64_t id[4], none;
    core_pin_budget(r.core, 3 * 64);
    store(1, 3);
    store(2, 2);
    ck_assert_int_eq(pin(9, 1, false, 0, &none), KVC_E_GONE);
    ck_assert_int_eq(pin(1, 2, false, 0, &id[0]), 0);
    ck_assert_int_eq(pin(2, 2, false, 0, &none), KVC_E_PIN_LIMIT);
    ck_assert_uint_eq(metrics()->pins_refused, 1);
    ck_assert_int_eq(pin(1, 3, false, 0, &id[1]), 0); /* one block more */
    ck_assert_uint_eq(metrics()->pinned_bytes, 3 * 64);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id[0]), 0);
    ck_assert_uint_eq(metrics()->pinned_bytes, 3 * 64);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id[1]), 0);
    ck_assert_int_eq(pin(2, 2, false, 0, &id[2]), 0);
}

CASE(there_are_no_more_pins_than_there_may_be)
{
    begin_core(8, 0);
    uint64_t id;
    store(1, 1);
    for (unsigned i = 0; i < 64; i++)
        ck_assert_int_eq(pin(1, 1, i % 2, 0, &id), 0);
    ck_assert_int_eq(pin(1, 1, false, 0, &id), KVC_E_LIMIT);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 0).pins, 64);
}

CASE(eviction_on_request_spares_pins_unless_it_is_forced)
{
    begin_core(8, 0);
    uint64_t id;
    store(1, 3);
    store(2, 1);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
    struct core_evict_job job = {.client = r.cl[0]};
    rig_evict(&r, &job);
    ck_assert_uint_eq(there(1, 3), 2);
    ck_assert_uint_eq(there(2, 1), 0);
    ck_assert_uint_eq(job.ret_kept, 2);
    struct core_evict_job forced = {.client = r.cl[0], .force = true};
    rig_evict(&r, &forced);
    ck_assert_uint_eq(there(1, 1), 0);
    ck_assert_uint_eq(metrics()->pinned_bytes, 0);
    ck_assert_uint_eq(metrics()->blocks_unpinned, 2);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0); /* of nothing, by now */
}

CASE(eviction_by_level_tenant_and_model)
{
    begin_core(8, 0);
    store(1, 2);
    store(2, 1);
    struct core_seq seq = rig_seq(ns, 2, 8);
    ck_assert_int_eq(core_wish(r.core, &seq, 0, &(struct core_wish){10, 0}, false, &r.why), 1);
    struct core_evict_job low = {.client = r.cl[0], .level_below = 35};
    rig_evict(&r, &low);
    ck_assert_uint_eq(there(1, 2), 2);
    ck_assert_uint_eq(there(2, 1), 0);
    struct core_evict_job nobody = {.client = r.cl[0], .tenant = "t2"};
    rig_evict(&r, &nobody);
    struct core_evict_job none = {.client = r.cl[0], .tenant = "t1", .model = "n"};
    rig_evict(&r, &none);
    ck_assert_uint_eq(there(1, 2), 2);
    struct core_evict_job all = {.client = r.cl[0], .tenant = "t1", .model = "m"};
    rig_evict(&r, &all);
    ck_assert_uint_eq(there(1, 1), 0);
}

static void begin_in_slices(uint32_t host, uint32_t disk, uint32_t work)
{
    rig_defaults(&r);
    r.cfg.slice_work = work;
    room_for(host, disk);
    begin_ns();
}

/* One step lets go of no more than a slice. */
CASE(a_long_pin_that_ends_by_itself_lets_go_in_slices)
{
    begin_in_slices(32, 0, 4);
    const struct core_metrics *m = metrics();
    uint64_t id;
    store(1, 20);
    ck_assert_int_eq(pin(1, 20, false, 1000, &id), 0);
    r.now_ns += UINT64_C(1100000000);
    core_tick(r.core, r.now_ns);
    ck_assert(core_background_step(r.core));
    ck_assert_uint_eq(m->pins, 0);
    ck_assert_uint_eq(m->pinned_blocks, 16);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), KVC_E_NO_NAME);
    core_check(r.core);
    for (uint64_t left = 16; left > 0; left -= 4) {
        ck_assert_uint_eq(m->pinned_blocks, left);
        ck_assert(core_has_steps(r.core));
        (void)core_background_step(r.core);
        core_check(r.core);
    }
    ck_assert(!core_has_steps(r.core));
    ck_assert_uint_eq(m->pins_ended, 1);
    ck_assert_uint_eq(m->pinned_blocks + m->pinned_bytes, 0);
}

/* ---- two tiers ---- */

/* What a pin lacks is begun in slices, and no entry is passed over. */
CASE(what_a_long_pin_lacks_is_begun_in_slices)
{
    begin_in_slices(32, 64, 4);
    uint64_t id;
    rig_store(&r, 1, ns, 0, 1, 0, 20);
    rig_step(&r);
    ck_assert_int_eq(pin(1, 20, false, 0, &id), 0);
    ck_assert(core_background_step(r.core));
    ck_assert_uint_le(metrics()->saving_bytes, UINT64_C(4) * 64);
    later(300);
    for (uint32_t i = 0; i < 20; i++)
        ck_assert(rig_explain(&r, 0, 0, 1, i).durable);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), CORE_MORE);
    later(300);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), 20);
}

CASE(what_is_pinned_is_made_durable_and_goes_back_to_ordinary)
{
    begin_core(4, 64);
    uint64_t id;
    store(1, 2);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
    rig_settle(&r);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 2);
    ck_assert(rig_explain(&r, 0, 0, 1, 1).durable);
    for (uint32_t i = 2; i < 12; i++)
        store(i, 2);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 1).tier, KVC_TIER_NVME);
    for (uint32_t region = 0; region < 8; region++) {
        fake_disk_want(r.disk, region);
        rig_settle(&r);
    }
    ck_assert_uint_eq(there(1, 2), 2);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0);
    ck_assert(!rig_explain(&r, 0, 0, 1, 1).durable);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), 2);
}

CASE(what_others_were_promised_outlasts_a_pin)
{
    begin_core(8, 64);
    uint64_t id;
    store(1, 1);
    ck_assert_int_eq(pin(1, 1, false, 0, &id), 0);
    rig_settle(&r);
    struct rig_put p = {.ns = ns, .chain = 1, .n = 2, .durable = true};
    struct rig_commit m;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &m), 1);
    rig_settle(&r);
    ck_assert_uint_eq(m.statuses[1], KVC_ST_OK);
    rig_commit_free(&m);
    ck_assert_uint_eq(fake_disk_puts(r.disk, true), 3); /* the pin's is written again */
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0);
    ck_assert(rig_explain(&r, 0, 0, 1, 0).durable);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), 0);
}

CASE(a_pin_in_memory_brings_blocks_there_and_keeps_them)
{
    begin_core(4, 64);
    uint64_t id;
    for (uint32_t i = 1; i < 8; i++)
        store(i, 2);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 1).tier, KVC_TIER_NVME);
    ck_assert_int_eq(pin(1, 2, true, 0, &id), 0);
    later(300);
    ck_assert(rig_explain(&r, 0, 0, 1, 1).tier & KVC_TIER_HOST);
    for (uint32_t i = 10; i < 30; i++)
        store(i, 1);
    ck_assert(rig_explain(&r, 0, 0, 1, 0).tier & KVC_TIER_HOST);
    ck_assert(rig_explain(&r, 0, 0, 1, 1).tier & KVC_TIER_HOST);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0);
    for (uint32_t i = 30; i < 40; i++)
        store(i, 1);
    ck_assert(!(rig_explain(&r, 0, 0, 1, 1).tier & KVC_TIER_HOST));
    ck_assert_uint_eq(there(1, 2), 2);
}

/* GONE says that it has to be computed anew. */
/* A block of it is found after a restart, and wrong in memory: it is brought from disk again. */
CASE(what_is_pinned_in_memory_and_wrong_there_comes_from_disk)
{
    begin_core(16, 64);
    store(1, 2);
    (void)rig_drain(&r, UINT64_MAX);
    rig_settle(&r);
    rig_restart(&r, true);
    const struct core_metrics *m = metrics();
    ck_assert_uint_eq(m->blocks_in_memory, 2);
    ck_assert_uint_eq(m->blocks_on_disk, 2);
    const struct key256 key = rig_key(1, 1);
    for (uint32_t i = 0; i < r.core->blocks_high; i++) {
        const struct block *b = &r.core->blocks[i];
        if (b->state != BLOCK_PRESENT || memcmp(&b->key, &key, sizeof key) != 0)
            continue;
        struct tier_view view;
        r.cfg.tier[CORE_HOST]->memory->view(r.cfg.tier[CORE_HOST],
                                            copy_loc(r.core, b, CORE_HOST, 0), &view);
        fake_tier_flip(r.tier, &view, 5);
    }
    open_ns();
    uint64_t id;
    ck_assert_int_eq(pin(1, 2, true, 0, &id), 0);
    later(300); /* both are checked, and one is loaded */
    ck_assert_uint_eq(m->blocks_corrupt, 1);
    ck_assert_uint_eq(m->blocks_in_memory, 2);
    ck_assert_uint_eq(m->blocks_loaded, 1);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id), 0);
}

CASE(what_is_out_of_service_cannot_be_pinned_and_is_not_gone)
{
    begin_core(4, 64);
    uint64_t id;
    for (uint32_t i = 1; i < 8; i++)
        store(i, 2);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 1).tier, KVC_TIER_NVME);
    fake_disk_out(r.disk, true);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), KVC_E_TIER);
    ck_assert_ptr_nonnull(strstr(r.why, "out of service"));
    ck_assert_int_eq(pin(99, 2, false, 0, &id), KVC_E_GONE);
    fake_disk_out(r.disk, false);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
}

/* What is in memory alone is kept there, and is written when the path is back. */
CASE(what_is_pinned_while_storage_is_out_is_written_later)
{
    begin_core(8, 64);
    uint64_t id;
    store(1, 2);
    fake_disk_out(r.disk, true);
    ck_assert_int_eq(pin(1, 2, false, 0, &id), 0);
    later(500);
    ck_assert(!rig_explain(&r, 0, 0, 1, 1).durable);
    fake_disk_out(r.disk, false);
    later(500);
    ck_assert(rig_explain(&r, 0, 0, 1, 1).durable);
}

CASE(what_was_pinned_before_a_restart_becomes_ordinary_if_nobody_pins_it_again)
{
    begin_core(4, 64);
    uint64_t id;
    store(1, 1);
    store(2, 1);
    ck_assert_int_eq(pin(1, 1, false, 0, &id), 0);
    ck_assert_int_eq(pin(2, 1, false, 0, &id), 0);
    rig_settle(&r);
    rig_restart(&r, false);
    open_ns();
    ck_assert(rig_explain(&r, 0, 0, 1, 0).durable && rig_explain(&r, 0, 0, 2, 0).durable);
    ck_assert_int_eq(pin(2, 1, false, 0, &id), 0);
    later(61000);
    ck_assert(!rig_explain(&r, 0, 0, 1, 0).durable);
    ck_assert(rig_explain(&r, 0, 0, 2, 0).durable);
    ck_assert_uint_eq(fake_disk_made_ordinary(r.disk), 1);
    ck_assert_int_eq(core_unpin(r.core, NULL, id), 0);
}

CASE(a_block_is_in_no_more_pins_than_can_be_counted)
{
    uint64_t id[256];
    rig_defaults(&r);
    r.cfg.pins_max = 256;
    begin_ns();
    store(1, 1);
    for (unsigned i = 0; i < 255; i++)
        ck_assert_int_eq(pin(1, 1, i % 2, 0, &id[i]), 0);
    ck_assert_int_eq(pin(1, 1, false, 0, &id[255]), KVC_E_LIMIT);
    ck_assert_uint_eq(metrics()->pinned_blocks, 1);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], id[0]), 0);
    ck_assert_int_eq(pin(1, 1, false, 0, &id[0]), 0);
    for (unsigned i = 0; i < 255; i++)
        ck_assert_int_eq(core_unpin(r.core, r.cl[1], id[i]), 0);
    core_check(r.core);
    ck_assert_uint_eq(metrics()->pinned_blocks, 0);
}

/* A window may be asked for by one key again and again. */
CASE(a_key_that_comes_again_in_a_pin_counts_once)
{
    static uint8_t keys[256 * KVC_KEY_BYTES];
    rig_defaults(&r);
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 8, 64);
    spec.group[0].rule = KVC_RULE_WINDOW;
    spec.group[0].window = 8 * 256;
    ns = rig_ns(&r, 1, &spec);
    store(1, 1);
    const struct key256 key = rig_key(1, 0);
    for (size_t i = 0; i < 256; i++)
        memcpy(keys + i * KVC_KEY_BYTES, key.b, KVC_KEY_BYTES);
    struct core_pin in = {
        .seq = {.ns = ns, .tokens = 8 * 256, .ngroups = 1, .keys = {keys}, .n = {256}}};
    struct core_pinned got = {0}, more = {0};
    core_pin_budget(r.core, 64);
    for (unsigned i = 0; i < 2; i++) { /* and what marked it has gone by the next */
        ck_assert_int_eq(core_pin(r.core, &in, i ? &more : &got, &r.why), 0);
        core_check(r.core);
    }
    ck_assert_uint_eq(got.tokens, 8 * 256);
    ck_assert(got.blocks == 1 && got.bytes == 64);
    ck_assert(more.blocks == 1 && more.bytes == 64);
    ck_assert_uint_eq(rig_explain(&r, 0, 0, 1, 0).pins, 2);
    ck_assert_uint_eq(metrics()->pinned_blocks, 1);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], got.id), 0);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], more.id), 0);
    core_check(r.core);
    ck_assert_uint_eq(metrics()->pinned_blocks, 0);
}
