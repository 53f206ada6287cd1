/* SPDX-License-Identifier: Apache-2.0 */
/* What is in slots of devices is read again, and what is not as stored goes. */
#include "device_core.h"

#define PAGES 64u
#define FAR   UINT64_C(1000000000)

static struct {
    struct core_verify v;
    unsigned done, corrupt;
    struct core_corrupt last;
    struct key256 key;
} x;

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    begin_ns();
    open_pool(PAGES);
}

/* ---- words ---- */

static struct fake_tier *slots(unsigned device)
{
    return fake_device_slots(r.device[device]);
}

static void fill_all(const struct core_held *held, unsigned device)
{
    ck_assert_uint_eq(fill(1, held, device, 0), held->prefix.tokens / BT);
}

static void on_corrupt(struct core_verify *v, const struct core_corrupt *what)
{
    ck_assert_ptr_eq(v, &x.v);
    x.corrupt++;
    x.last = *what;
    x.key = *what->key;
}

static void on_done(struct core_verify *v)
{
    ck_assert_ptr_eq(v, &x.v);
    x.done++;
}

static int start(uint64_t cursor)
{
    memset(&x, 0, sizeof x);
    x.v = (struct core_verify){.tier = CORE_VERIFY_HBM,
                               .cursor = cursor,
                               .bytes_max = FAR,
                               .client = r.cl[1],
                               .corrupt = on_corrupt,
                               .done = on_done};
    const int got = core_verify_start(r.core, &x.v);
    core_check(r.core);
    return got;
}

static void end_reads(unsigned device, int status)
{
    while (fake_tier_inflight(slots(device)) > 0) {
        fake_tier_end(slots(device), fake_tier_op(slots(device), 0), status);
        core_check(r.core);
    }
}

/* A whole pass; returns how many were read. */
static uint32_t pass(unsigned *ret_corrupt)
{
    uint32_t blocks = 0;
    uint64_t cursor = 0;
    *ret_corrupt = 0;
    do {
        if (start(cursor) == 1) {
            end_reads(0, 0);
            end_reads(1, 0);
            ck_assert_uint_eq(x.done, 1);
        }
        blocks += x.v.ret_blocks;
        *ret_corrupt += x.corrupt;
        cursor = x.v.ret_cursor;
    } while (cursor);
    return blocks;
}

/* ---- right ---- */

CASES(.setup = setup, .teardown = end_devices);

CASE(each_slot_of_each_device_is_read_once)
{
    unsigned corrupt;
    struct core_held one = chain(1, 1, 20), two = chain(1, 2, 10);
    fill_all(&one, 0);
    fill_all(&two, 1);
    ck_assert_uint_eq(pass(&corrupt), 30);
    ck_assert_uint_eq(corrupt, 0);
    ck_assert_uint_eq(metrics()->bytes_verified, 30 * SLOT);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, one.lease, 0), 20);
}

CASE(without_devices_or_slots_there_is_nothing)
{
    unsigned corrupt;
    (void)chain(1, 1, 5);
    ck_assert_uint_eq(pass(&corrupt), 0);
    ck_assert_uint_eq(fake_tier_inflight(r.tier), 0);
}

CASE(only_those_of_who_may_see_them)
{
    struct core_ns_spec spec = rig_spec("m", 8, SLOT);
    struct core_ns *other = rig_ns(&r, 3, &spec);
    rig_store(&r, 3, other, 0, 1, 0, 5);
    const struct core_held held = rig_acquire(&r, 3, other, 1, 40);
    struct rig_fill f;
    unsigned corrupt;
    ck_assert_int_eq(rig_fill(&r, 3, held.lease, 0, 0, &f), 1);
    end_copies(0, 0);
    ck_assert_uint_eq(pass(&corrupt), 0);
}

CASE(what_is_being_read_stays)
{
    struct core_held held = chain(1, 1, 1);
    fill_all(&held, 0);
    rig_release(&r, 1, &held);
    ck_assert_int_eq(start(0), 1);
    struct core_evict_job job = {.client = r.cl[1]};
    rig_evict(&r, &job);
    core_check(r.core);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
    end_reads(0, 0);
    ck_assert_uint_eq(x.done, 1);
    rig_evict(&r, &job);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 0);
}

CASE(what_is_still_on_its_way_is_left_out)
{
    struct core_held held = chain(1, 1, 1);
    struct rig_fill f;
    ck_assert_int_eq(rig_fill(&r, 1, held.lease, 0, 0, &f), 1);
    ck_assert_int_eq(start(0), 0);
    ck_assert_uint_eq(x.v.ret_skipped, 1);
    end_copies(0, 0);
}

/* ---- wrong ---- */

CASE(a_slot_that_went_bad_goes_and_its_block_stays)
{
    unsigned corrupt;
    struct core_held held = chain(1, 1, 5);
    fill_all(&held, 0);
    const struct views before = views_of(1, &held);
    fake_tier_flip(slots(0), &before.v[2], 3);
    (void)pass(&corrupt);
    ck_assert_uint_eq(corrupt, 1);
    const struct views now = views_of(1, &held);
    ck_assert_uint_eq(device_of_chunk(now.v[2].chunk), 0); /* in host memory */
    ck_assert_uint_eq(device_of_chunk(now.v[3].chunk), 1);
    ck_assert_uint_eq(metrics()->hbm_corrupt, 1);
    ck_assert_uint_eq(metrics()->blocks_corrupt, 1);
    ck_assert_uint_eq(metrics()->blocks_corrupt_below, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 40).tokens, 40);
    ck_assert_uint_eq(pass(&corrupt), 4);
    ck_assert_uint_eq(corrupt, 0);
}

CASE(it_is_named_with_its_device)
{
    struct core_held held = chain(1, 1, 1);
    const struct key256 key = rig_key(1, 0);
    fill_all(&held, 1);
    const struct views v = views_of(1, &held);
    fake_tier_flip(slots(1), &v.v[0], 3);
    ck_assert_int_eq(start(0), 1);
    end_reads(1, 0);
    ck_assert_uint_eq(x.corrupt, 1);
    ck_assert(key256_equal(&x.key, &key));
    ck_assert(x.last.kept);
    ck_assert_uint_eq(x.last.below, 0);
    ck_assert_uint_eq(device_of_chunk(x.last.view.chunk), 2);
    ck_assert_uint_eq(x.last.view.off, v.v[0].off);
}

CASE(who_reads_it_is_told_and_its_room_stays_until_then)
{
    struct core_held held = chain(1, 1, 2);
    fill_all(&held, 0);
    const struct views v = views_of(1, &held);
    fake_tier_flip(slots(0), &v.v[0], 3);
    unsigned corrupt;
    (void)pass(&corrupt);
    ck_assert_ptr_null(fake_tier_bytes(slots(0), &v.v[0]));
    ck_assert_ptr_nonnull(fake_tier_bytes(slots(0), &v.v[1]));
    ck_assert_uint_eq(rig_device_slots(&r, 0), 2);
    rig_release(&r, 1, &held);
    ck_assert_uint_eq(rig_device_slots(&r, 0), 1);
}

CASE(what_was_copied_out_of_it_meanwhile_has_not_arrived)
{
    struct core_held held = chain(1, 1, 2);
    fill_all(&held, 0);
    const struct views v = views_of(1, &held);
    fake_tier_flip(slots(0), &v.v[0], 3);
    ck_assert_int_eq(rig_send(&r, 1, &held, 0, pool, 0, &send), 1);
    unsigned corrupt;
    (void)pass(&corrupt);
    ck_assert_uint_eq(corrupt, 1);
    end_copies(0, 0);
    ck_assert_uint_eq(send.done, 1);
    ck_assert_uint_eq(send.statuses[0], KVC_ST_TIER);
    ck_assert_uint_eq(send.statuses[1], KVC_ST_OK);
}

/* ---- what befalls it meanwhile ---- */

CASE(a_device_that_goes_ends_it_and_is_told)
{
    unsigned corrupt;
    struct core_held held = chain(1, 1, 20);
    fill_all(&held, 0);
    ck_assert_int_eq(start(0), 1);
    const uint32_t reads = fake_tier_inflight(slots(0));
    ck_assert_uint_gt(reads, 0);
    fake_device_lose(r.device[0]);
    core_check(r.core);
    end_reads(0, -EIO);
    ck_assert_uint_eq(x.done, 1);
    ck_assert_uint_eq(x.corrupt, 0);
    ck_assert_uint_eq(x.v.ret_failed, reads);
    ck_assert_uint_eq(pass(&corrupt), 0); /* nothing is there any more */
    ck_assert_uint_eq(corrupt, 0);
    ck_assert_uint_eq(rig_lookup(&r, ns, 1, 160).tokens, 160);
}

CASE(bytes_of_a_device_that_came_back_are_not_called_wrong)
{
    struct core_held held = chain(1, 1, 1);
    fill_all(&held, 0);
    ck_assert_int_eq(start(0), 1);
    fake_device_lose(r.device[0]); /* spoils what is there */
    fake_device_up(r.device[0]);
    end_reads(0, 0);
    ck_assert_uint_eq(x.corrupt, 0);
    ck_assert_uint_eq(x.v.ret_skipped, 1);
}

CASE(one_that_cannot_be_read_is_counted_and_stays)
{
    struct core_held held = chain(1, 1, 1);
    fill_all(&held, 0);
    ck_assert_int_eq(start(0), 1);
    end_reads(0, -EIO);
    ck_assert_uint_eq(x.v.ret_failed, 1);
    ck_assert_uint_eq(x.corrupt, 0);
    ck_assert_int_eq(start(0), 1);
    end_reads(0, -ETIMEDOUT);
    ck_assert_uint_eq(x.v.ret_skipped, 1);
    ck_assert_uint_eq(rig_check_hbm(&r, 1, held.lease, 0), 1);
}

CASE(a_client_that_goes_takes_its_pass_along)
{
    struct core_held held = chain(1, 1, 1);
    fill_all(&held, 0);
    ck_assert_int_eq(start(0), 1);
    rig_close(&r, 1);
    ck_assert(atomic_load(&fake_tier_op(slots(0), 0)->cancel));
    ck_assert_uint_eq(r.idle[1], 0);
    end_reads(0, -ECANCELED);
    ck_assert_uint_eq(x.done, 1);
    ck_assert_uint_eq(r.idle[1], 1);
}
