/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory is read, and compared with its checksums, before devices copy out of it. */
#include <errno.h>

#include "device_core.h"

#define PAGES 256u

static struct rig_fill filling;

static void begin(bool verify)
{
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    r.cfg.hbm_verify = verify;
    begin_ns();
    open_pool(PAGES);
}

static void setup(void)
{
    begin(true);
}

static void setup_off(void)
{
    begin(false);
}

/* ---- words ---- */

static void end_checks(int status)
{
    while (fake_tier_inflight(r.tier) > 0) {
        fake_tier_end(r.tier, fake_tier_op(r.tier, 0), status);
        core_check(r.core);
    }
}

static void begin_fill(const struct core_held *held)
{
    ck_assert_int_eq(rig_fill(&r, 1, held->lease, 0, 0, &filling), 1);
    core_check(r.core);
}

static void begin_send(const struct core_held *held)
{
    ck_assert_int_eq(rig_send(&r, 1, held, 0, pool, 0, &send), 1);
    core_check(r.core);
}

static void arrived(uint32_t chain, uint32_t i)
{
    const struct key256 key = rig_key(chain, i);
    ck_assert_uint_eq(send.statuses[i], KVC_ST_OK);
    ck_assert(rig_has_arrived(&send, ns, 0, i, key.b));
}

/* ---- right ---- */

CASES(.setup = setup, .teardown = end_devices);

CASE(a_device_copies_what_has_been_checked)
{
    struct core_held held = chain(1, 1, 3);
    begin_fill(&held);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 0);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 3);
    ck_assert_uint_eq(fake_tier_op(r.tier, 0)->kind, TIER_VERIFY);
    end_checks(0);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    end_copies(0, 0);
    ck_assert_uint_eq(filling.f.ret_blocks, 3);
    ck_assert_uint_eq(metrics()->hbm_verified, 3);
    begin_send(&held); /* out of slots: nothing is to be checked */
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 0);
    end_copies(0, 0);
    for (uint32_t i = 0; i < 3; i++)
        arrived(1, i);
}

CASE(many_blocks_are_checked_some_at_a_time)
{
    struct core_held held = chain(1, 1, 50);
    begin_send(&held);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 32);
    end_checks(0);
    end_copies(0, 0);
    for (uint32_t i = 0; i < 50; i++)
        arrived(1, i);
    ck_assert_uint_eq(metrics()->hbm_verified, 50);
}

CASES(.setup = setup_off, .teardown = end_devices);

CASE(who_does_without_has_no_checks)
{
    struct core_held held = chain(1, 1, 3);
    begin_send(&held);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 0);
    end_copies(0, 0);
    arrived(1, 2);
    ck_assert_uint_eq(metrics()->hbm_verified, 0);
}

/* ---- wrong ---- */

CASES(.setup = setup, .teardown = end_devices);

CASE(wrong_bytes_do_not_get_into_a_slot)
{
    struct core_held held = chain(1, 1, 3);
    flip(1, 1);
    begin_fill(&held);
    end_checks(0);
    end_copies(0, 0);
    ck_assert_uint_eq(filling.done, 1);
    ck_assert_uint_eq(filling.f.ret_blocks, 1); /* what is below goes with it */
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
    ck_assert_uint_eq(metrics()->blocks_corrupt_below, 1);
    ck_assert(core_lease_is_corrupt(r.core, r.cl[1], held.lease));
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    const struct core_prefix p = rig_lookup(&r, ns, 1, 24);
    ck_assert_uint_eq(p.tokens, 8);
    ck_assert_uint_eq(p.group[0].reason, KVC_MISS_CORRUPT);
}

CASE(wrong_bytes_do_not_get_into_pages)
{
    struct core_held held = chain(1, 1, 3);
    flip(1, 1);
    begin_send(&held);
    end_checks(0);
    ck_assert_int_eq(fake_device_copy(r.device[0], 0)->piece[1].status, -EIO);
    end_copies(0, 0);
    arrived(1, 0);
    arrived(1, 2); /* it is not served any more, but right */
    ck_assert_uint_eq(send.statuses[1], KVC_ST_TIER);
    const struct key256 key = rig_key(1, 1);
    ck_assert(!rig_has_arrived(&send, ns, 0, 1, key.b));
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 8);
}

CASE(readers_of_wrong_bytes_are_told)
{
    struct core_held reader = chain(1, 1, 2), held = rig_acquire(&r, 1, ns, 1, 16);
    const struct rig_block e = rig_explain(&r, 0, 0, 1, 1);
    ck_assert_ptr_nonnull(fake_tier_bytes(r.tier, &e.view));
    flip(1, 1);
    begin_fill(&held);
    end_checks(0);
    ck_assert_ptr_null(fake_tier_bytes(r.tier, &e.view));
    ck_assert(core_lease_is_corrupt(r.core, r.cl[1], reader.lease));
    end_copies(0, 0);
}

CASE(what_is_known_to_be_wrong_is_not_read_again)
{
    struct core_held held = chain(1, 1, 2);
    flip(1, 0);
    begin_send(&held);
    end_checks(0);
    end_copies(0, 0);
    memset(&send, 0, sizeof send);
    begin_send(&held);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 1); /* the other one */
    end_checks(0);
    end_copies(0, 0);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_TIER);
    arrived(1, 1);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
}

CASE(with_nothing_right_the_device_is_not_asked)
{
    struct core_held held = chain(1, 1, 1);
    flip(1, 0);
    begin_send(&held);
    end_checks(0);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 0);
    ck_assert_uint_eq(send.done, 1);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_TIER);
}

CASE(two_who_find_the_same_count_it_once)
{
    struct core_held held = chain(1, 1, 1);
    flip(1, 0);
    begin_fill(&held);
    begin_send(&held);
    end_checks(0);
    ck_assert_uint_eq(filling.f.ret_blocks, 0);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_TIER);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
}

CASE(each_group_is_checked)
{
    struct core_ns_spec spec = rig_spec("two", 8, SLOT);
    spec.ngroups = 2;
    spec.group[1] = spec.group[0];
    struct core_ns *two = rig_ns(&r, 1, &spec);
    struct device_pool *pages = rig_pool(&r, 0, two, PAGES);
    rig_store(&r, 1, two, 0, 1, 0, 40);
    rig_store(&r, 1, two, 1, 1001, 0, 40);
    struct core_held held = rig_acquire(&r, 1, two, 1, 320);
    const struct rig_block e = rig_explain(&r, 0, 0, 1001, 39);
    fake_tier_flip(r.tier, &e.view, 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pages, 0, &send), 1);
    end_checks(0);
    end_copies(0, 0);
    ck_assert_uint_eq(send.done, 1);
    for (uint32_t i = 0; i < 79; i++)
        ck_assert_uint_eq(send.statuses[i], KVC_ST_OK);
    ck_assert_uint_eq(send.statuses[79], KVC_ST_TIER);
    ck_assert_int_eq(core_release(r.core, r.cl[1], held.lease), 0);
    fake_pool_destroy(&pages);
}

/* ---- what befalls it meanwhile ---- */

CASE(what_cannot_be_checked_is_not_copied)
{
    static const struct {
        int err;
        uint8_t status;
    } ends[] = {{-EIO, KVC_ST_TIER}, {-ETIMEDOUT, KVC_ST_TIMEOUT}};
    struct core_held held = chain(1, 1, 2);
    for (unsigned i = 0; i < ARRAY_LEN(ends); i++) {
        memset(&send, 0, sizeof send);
        begin_send(&held);
        end_checks(ends[i].err);
        ck_assert_uint_eq(send.done, 1);
        ck_assert_uint_eq(send.statuses[1], ends[i].status);
    }
    ck_assert_uint_eq(metrics()->blocks_corrupt, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 16).tokens, 16);
}

CASE(a_send_that_is_cancelled_is_not_checked_any_more)
{
    struct core_held held = chain(1, 1, 40);
    begin_send(&held);
    core_cancel(r.core, &send.s.req);
    ck_assert(atomic_load(&fake_tier_op(r.tier, 0)->cancel));
    end_checks(-ECANCELED);
    ck_assert_uint_eq(send.done, 1);
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_uint_eq(send.statuses[i], KVC_ST_CANCELLED);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 0);
}

CASE(a_client_is_idle_when_its_checks_have_ended)
{
    struct core_held held = chain(1, 1, 3);
    begin_fill(&held);
    begin_send(&held);
    rig_close(&r, 1);
    core_check(r.core);
    ck_assert_uint_eq(r.idle[1], 0);
    end_checks(0);
    end_copies(0, 0);
    ck_assert_uint_eq(send.done, 1);
    ck_assert_uint_eq(r.idle[1], 1);
}

CASE(a_device_that_is_lost_under_checks_ends_them_well)
{
    struct core_held held = chain(1, 1, 3);
    begin_fill(&held);
    begin_send(&held);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    end_checks(0);
    end_copies(0, 0);
    ck_assert_uint_eq(filling.f.ret_blocks, 0);
    ck_assert_uint_eq(send.statuses[2], KVC_ST_TIER);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 24).tokens, 24);
}

CASE(a_slot_that_was_lost_under_checks_of_others_is_not_read)
{
    struct core_held held = chain(1, 1, 2);
    begin_fill(&held);
    end_checks(0);
    end_copies(0, 0);
    rig_store(&r, 1, ns, 0, 1, 2, 1);
    held = rig_acquire(&r, 1, ns, 1, 24);
    begin_send(&held);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 1);
    fake_device_lose(r.device[0]);
    fake_device_up(r.device[0]);
    end_checks(0);
    ck_assert_uint_eq(fake_device_inflight(r.device[0]), 1);
    const struct device_copy *copy = fake_device_copy(r.device[0], 0);
    ck_assert_uint_eq(copy->n, 3);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(copy->piece[i].status, i < 2 ? -EIO : 0);
    end_copies(0, 0);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_TIER);
    ck_assert_uint_eq(send.statuses[1], KVC_ST_TIER);
    arrived(1, 2);
}
