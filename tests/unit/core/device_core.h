/* SPDX-License-Identifier: Apache-2.0 */
/* A core with two devices and a worker's pool on the first, and words:
 *
 *     rig_defaults(&r); r.cfg.ndevices = 2; ...; begin_ns(); open_pool(PAGES);
 *     CASES(.setup = ..., .teardown = end_devices); */
#ifndef KVC_TEST_DEVICE_CORE_H
#define KVC_TEST_DEVICE_CORE_H

#include "one_core.h"

static CK_ATTRIBUTE_UNUSED struct device_pool *pool;
static CK_ATTRIBUTE_UNUSED struct rig_send send;

static inline void open_pool(uint32_t pages)
{
    pool = rig_pool(&r, 0, ns, pages);
    memset(&send, 0, sizeof send);
}

static inline void end_devices(void)
{
    end();
    if (pool)
        fake_pool_destroy(&pool);
}

/* Stores a chain for that client, which then holds it in host memory. */
static inline struct core_held chain(unsigned client, uint32_t chain, uint32_t blocks)
{
    rig_store(&r, client, ns, 0, chain, 0, blocks);
    return rig_acquire(&r, client, ns, chain, BT * blocks);
}

/* Ends all copies of the device with this status. */
static inline void end_copies(unsigned device, int status)
{
    while (fake_device_inflight(r.device[device]) > 0) {
        fake_device_end(r.device[device], fake_device_copy(r.device[device], 0), status);
        core_check(r.core);
    }
    core_check(r.core);
}

/* Fills the lease and ends the copies. Returns how many blocks the lease holds on the device. */
static inline uint32_t fill(unsigned client, const struct core_held *held, unsigned device,
                            uint32_t shard)
{
    struct rig_fill f;
    const int got = rig_fill(&r, client, held->lease, device, shard, &f);
    ck_assert_int_ge(got, 0);
    core_check(r.core);
    if (r.disk)
        rig_settle(&r); /* host memory may be read first */
    else
        end_copies(device, 0);
    ck_assert_uint_eq(f.done, (unsigned)got);
    return f.f.ret_blocks;
}

/* Changes one bit of a block in host memory. */
static inline void flip(uint32_t chain, uint32_t i)
{
    const struct rig_block e = rig_explain(&r, 0, 0, chain, i);
    fake_tier_flip(r.tier, &e.view, 3);
}

/* Locations of a lease's blocks, as its client gets them. */
struct views {
    struct tier_view v[64];
    uint32_t n;
};

static inline void keep_view(void *ctx, const struct tier_view *view)
{
    struct views *x = ctx;
    x->v[x->n++] = *view;
}

static inline struct views views_of(unsigned client, const struct core_held *held)
{
    struct views x = {.n = 0};
    ck_assert_int_eq(core_lease_locs_hbm(r.core, r.cl[client], held->lease, 0, keep_view, &x), 0);
    return x;
}

static inline void on_corrupt_ignored(struct core_verify *v, const struct core_corrupt *x)
{
    (void)v;
    (void)x;
}

static inline void on_verified_ignored(struct core_verify *v)
{
    (void)v;
}

/* Verifies all of host memory (0) or of the disk (1), while copies of devices are in flight. */
static inline void verify_all(uint8_t tier)
{
    static struct core_verify v;
    v = (struct core_verify){.tier = tier,
                             .bytes_max = 1 << 20,
                             .deadline_ns = UINT64_MAX,
                             .client = r.cl[0],
                             .corrupt = on_corrupt_ignored,
                             .done = on_verified_ignored};
    do {
        ck_assert_int_ge(core_verify_start(r.core, &v), 0);
        if (tier)
            rig_settle(&r);
        else
            fake_tier_run(r.tier, 1000, 0);
        core_check(r.core);
        v.cursor = v.ret_cursor;
    } while (v.cursor);
}

#endif
