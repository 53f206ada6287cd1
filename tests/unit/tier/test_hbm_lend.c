/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the HBM tier that workers have mapped: it is not freed before they have let go of it,
 * and nothing takes its place. */
#include "cases.h"
#include "fake_gpu.h"
#include "hbm__.h"
#include "hbm_rig.h"

#define LIMIT (16 * RIG_MIB)
#define CHUNK (2 * RIG_MIB)

static const struct rig_config usual = {
    .limit_bytes = LIMIT, .chunk_bytes = CHUNK, .step = fake_gpu_run};

static struct rig rig;

static struct gpu *gpu(void)
{
    return hbm_gpu(rig.hbm);
}

static void begin(void)
{
    rig_open(&rig, &usual);
    fake_gpu_up(gpu());
}

#define CHUNKS (LIMIT / CHUNK)

/* A chunk of each slot, all of principal 1's, and given to so many sessions. */
static void lend_all(struct tier_loc ret_loc[CHUNKS], uint32_t sessions)
{
    for (unsigned i = 0; i < CHUNKS; i++)
        ck_assert_int_eq(rig_alloc(&rig, 1, 1500 * 1024, &ret_loc[i]), 0);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == CHUNKS);
    for (unsigned i = 0; i < CHUNKS * sessions; i++)
        rig.d->ops->chunk_lend(rig.d, rig_view(&rig, ret_loc[i % CHUNKS]).chunk);
}

static uint64_t held_bytes(void)
{
    struct device_view v;
    rig.d->ops->view(rig.d, &v);
    return v.held_bytes;
}

/* Freed, it would stay where it is while they map it. */
CASE(memory_goes_when_the_last_worker_has_unmapped_it)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 2);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_NO_ROOM);
    ck_assert_uint_eq(held_bytes(), 0);
    ck_assert_uint_gt(rig_drain(&rig, 2, 4096), 0);
    const uint32_t chunk = rig.last_retired;
    ck_assert_uint_eq(rig.retired, 1);
    ck_assert_uint_eq(held_bytes(), CHUNK);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc),
                         KVC_E_BUSY); /* no more is to be evicted for it */
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_FREE), 0);

    rig.d->ops->chunk_give_back(rig.d, chunk);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_BUSY);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_FREE), 0);
    rig.d->ops->chunk_give_back(rig.d, chunk);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_FREE), 1);
    ck_assert_uint_eq(held_bytes(), 0);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), 0);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), 0);
    ck_assert_uint_eq(fake_gpu_peak_bytes(gpu()), LIMIT);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_ALLOC), CHUNKS + 1);
    rig_close(&rig);
}

/* Its blocks have gone by themselves. */
CASE(an_empty_chunk_that_workers_have_is_asked_back)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 1);
    const uint32_t chunk = rig_view(&rig, mine[3]).chunk;
    rig.t->ops->free(rig.t, mine[3]);
    /* The chunk's principal goes on using the chunk. */
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), 0);
    ck_assert_uint_eq(rig_view(&rig, loc).chunk, chunk);
    rig.t->ops->free(rig.t, loc);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_BUSY);
    ck_assert_uint_eq(rig.last_retired, chunk);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_BUSY);
    ck_assert_uint_eq(rig.retired, 1);
    rig.d->ops->chunk_give_back(rig.d, chunk);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), 0);
    rig_close(&rig);
}

/* What it has is gone for all; what others have left is not. */
CASE(a_worker_that_never_unmaps_has_no_more_than_it_was_given)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 1);
    for (unsigned i = 0; i < CHUNKS; i++) {
        rig.hbm->recalled_ns = 0; /* long ago */
        ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_NO_ROOM);
        ck_assert_uint_gt(rig_drain(&rig, 2, 4096), 0);
        ck_assert_uint_eq(rig.retired, i + 1);
        ck_assert_uint_eq(held_bytes(), (i + 1) * (uint64_t)CHUNK);
        if (i + 1 < CHUNKS)
            continue;
        rig.hbm->recalled_ns = 0;
        ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_NO_ROOM);
        ck_assert_uint_eq(rig_drain(&rig, 2, 4096), 0); /* there is nothing left to evict */
    }
    rig.d->ops->chunk_give_back(rig.d, rig.last_retired);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), 0);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), 0);
    ck_assert_uint_eq(held_bytes(), LIMIT - CHUNK);
    ck_assert_uint_eq(fake_gpu_peak_bytes(gpu()), LIMIT);
    rig_close(&rig);
}

/* What nobody has is taken before what somebody has to be asked for. */
CASE(room_that_is_free_is_not_waited_for)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 1);
    rig.d->ops->chunk_give_back(rig.d, rig_view(&rig, mine[5]).chunk);
    rig.t->ops->free(rig.t, mine[2]);
    rig.t->ops->free(rig.t, mine[5]);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), 0);
    ck_assert_uint_eq(rig.retired, 1);
    ck_assert_uint_eq(held_bytes(), 0);
    rig_close(&rig);
}

CASE(a_number_that_workers_have_is_not_given_again)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 1);
    const uint32_t chunk = rig_view(&rig, mine[0]).chunk, other = rig_view(&rig, mine[1]).chunk;
    rig.t->ops->free(rig.t, mine[0]);
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_BUSY);
    rig.t->ops->free(rig.t, mine[1]);
    rig.hbm->recalled_ns = 0;
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), KVC_E_BUSY);
    ck_assert_uint_eq(rig.retired, 2);
    rig.d->ops->chunk_give_back(rig.d, other);
    rig.hbm->last_no = (chunk & HBM_NUMBERS) - 1;
    ck_assert_int_eq(rig_alloc(&rig, 2, 4096, &loc), 0);
    ck_assert_uint_ne(rig_view(&rig, loc).chunk, chunk);
    ck_assert_int_eq(rig_export(&rig, chunk, 1), -ENOENT);
    rig_close(&rig);
}

/* Their processes may map it still. */
CASE(memory_of_a_lost_device_is_waited_for_too)
{
    struct tier_loc mine[CHUNKS], loc;
    begin();
    lend_all(mine, 1);
    const uint32_t chunk = rig_view(&rig, mine[0]).chunk;
    fake_gpu_lose(gpu());
    fake_gpu_up(gpu());
    ck_assert_uint_eq(held_bytes(), LIMIT);
    for (unsigned i = 0; i < CHUNKS; i++)
        rig.t->ops->free(rig.t, mine[i]);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), KVC_E_BUSY);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_ALLOC), CHUNKS);
    rig.d->ops->chunk_give_back(rig.d, chunk);
    ck_assert_uint_eq(held_bytes(), LIMIT - CHUNK);
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_FREE) == 0);
    loc = rig_fill(&rig, 1, rig.host, 4096);
    ck_assert_uint_ne(rig_view(&rig, loc).chunk, chunk);
    rig_close(&rig);
}
