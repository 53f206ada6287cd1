/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of the HBM tier read again, over a device that the test moves. */
#include "cases.h"
#include "fake_gpu.h"
#include "hbm__.h"
#include "hbm_rig.h"

#include <string.h>

#include "clock.h"
#include "hash.h"

#define BLOCK (600u << 10) /* of three pieces */

static struct rig rig;
static struct rig_pool pool;
static struct rig_copy copy;

struct read {
    struct tier_op op;
    unsigned dones;
};
static struct read one, two;

static struct gpu *gpu(void)
{
    return hbm_gpu(rig.hbm);
}

static void setup(void)
{
    rig_open(&rig, &(struct rig_config){.limit_bytes = 16 * RIG_MIB,
                                        .chunk_bytes = 2 * RIG_MIB,
                                        .step = fake_gpu_run});
    fake_gpu_up(gpu());
    rig_pool_open(&rig, &pool, RIG_KV_TOGETHER, 4, 4);
    rig_scribble(&rig, rig.host, RIG_HOST_BYTES);
}

static void teardown(void)
{
    rig.step = fake_gpu_run;
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

static void on_done(struct tier_op *op)
{
    struct read *r = CONTAINER_OF(op, struct read, op);
    r->dones++;
}

static void read_slot(struct read *r, struct tier_loc loc, uint32_t bytes, uint64_t deadline_ns)
{
    *r = (struct read){.op = {.kind = TIER_VERIFY,
                              .loc = loc,
                              .bytes = bytes,
                              .deadline_ns = deadline_ns,
                              .done = on_done}};
    rig.t->ops->submit(rig.t, &r->op);
    ck_assert_uint_eq(r->dones, 0); /* never inline */
}

/* The device stands still, and the loop goes on. */
static void stand_still(void)
{
    rig.step = NULL;
    for (unsigned i = 0; i < 12; i++)
        ck_assert_int_ge(loop_turn(rig.loop, 1000000), 0);
}

static void goes_on(void)
{
    rig.step = fake_gpu_run;
}

static void begin_copy(void)
{
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 1);
    rig_submit(&rig, &copy);
}

/* --- sums --- */

CASES(.setup = setup, .teardown = teardown);

CASE_EACH(the_sum_is_that_of_what_lies_there, 6)
{
    static const uint32_t sizes[] = {
        1, 4096, HBM_VERIFY_BYTES - 1, HBM_VERIFY_BYTES, HBM_VERIFY_BYTES + 1, BLOCK};
    const uint32_t bytes = sizes[_i];
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, bytes);
    struct hash128 want = hash_sum(rig.host, bytes);
    read_slot(&one, loc, bytes, 0);
    RIG_UNTIL(&rig, one.dones > 0);
    ck_assert_int_eq(one.op.status, 0);
    ck_assert(hash128_equal(&one.op.sum, &want));
    rig.host[bytes - 1] ^= 1; /* the last byte is not as it was */
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, bytes), 0);
    read_slot(&two, loc, bytes, 0);
    RIG_UNTIL(&rig, two.dones > 0);
    ck_assert(!hash128_equal(&two.op.sum, &want));
    ck_assert_uint_eq(one.dones + two.dones, 2);
    rig.t->ops->free(rig.t, loc);
}

/* --- behind copies --- */

CASE(while_copies_run_nothing_is_read)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    const uint32_t seen = fake_gpu_seen(gpu(), GPU_COPY);
    begin_copy();
    read_slot(&one, loc, BLOCK, 0);
    stand_still();
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_COPY), seen + 1);
    goes_on();
    RIG_UNTIL(&rig, one.dones > 0);
    ck_assert_uint_eq(copy.dones, 1);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_COPY), seen + 4);
}

CASE(one_piece_is_in_flight_at_a_time)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    const uint32_t seen = fake_gpu_seen(gpu(), GPU_COPY);
    read_slot(&one, loc, BLOCK, 0);
    read_slot(&two, loc, BLOCK, 0);
    stand_still();
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_COPY), seen + 1);
    goes_on();
    RIG_UNTIL(&rig, two.dones > 0);
    ck_assert_uint_eq(one.dones, 1);
}

/* There is never a moment without a copy. */
CASE(it_comes_in_the_end_though_copies_never_end)
{
    static struct rig_copy other;
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, 4096);
    struct rig_copy *running = &copy, *next = &other;
    uint32_t copies = 0;
    begin_copy();
    read_slot(&one, loc, 4096, 0);
    for (; one.dones == 0; copies++) {
        rig_copy_init(&rig, next, DEVICE_STORE, &pool, 1);
        rig_submit(&rig, next);
        while (running->dones == 0) {
            (void)fake_gpu_copy(gpu(), 1); /* the first of the two, and not the second */
            ck_assert_int_ge(loop_turn(rig.loop, 1000000), 0);
        }
        struct rig_copy *was = running;
        running = next;
        next = was;
        ck_assert_uint_lt(copies, 1000);
    }
    ck_assert_uint_ge(copies, 16 * 4096 / pool.block_bytes);
    RIG_UNTIL(&rig, running->dones > 0);
}

/* What waits for a worker's word does not hold it up. */
CASE(copies_that_wait_for_a_word_do_not_count)
{
    static _Atomic uint64_t word;
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 1);
    copy.c.after.word = &word;
    copy.c.after.value = 1;
    rig_submit(&rig, &copy);
    read_slot(&one, loc, BLOCK, 0);
    RIG_UNTIL(&rig, one.dones > 0);
    ck_assert_int_eq(one.op.status, 0);
    ck_assert_uint_eq(copy.dones, 0);
    atomic_store(&word, 1);
    RIG_UNTIL(&rig, copy.dones > 0);
}

/* --- ends --- */

CASE(what_is_cancelled_or_late_ends_while_it_waits)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    begin_copy();
    read_slot(&one, loc, BLOCK, 0);
    read_slot(&two, loc, BLOCK, clock_now_ns() + 1000000);
    atomic_store(&one.op.cancel, true);
    rig.step = NULL;
    RIG_UNTIL(&rig, one.dones > 0 && two.dones > 0);
    ck_assert_int_eq(one.op.status, -ECANCELED);
    ck_assert_int_eq(two.op.status, -ETIMEDOUT);
    goes_on();
    RIG_UNTIL(&rig, copy.dones > 0);
}

CASE(what_is_cancelled_ends_between_two_pieces)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    const uint32_t seen = fake_gpu_seen(gpu(), GPU_COPY);
    read_slot(&one, loc, BLOCK, 0);
    stand_still();
    atomic_store(&one.op.cancel, true);
    goes_on();
    RIG_UNTIL(&rig, one.dones > 0);
    ck_assert_int_eq(one.op.status, -ECANCELED);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_COPY), seen + 1);
}

CASE_EACH(a_lost_device_ends_what_is_read_and_what_waits, 2)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    read_slot(&one, loc, BLOCK, 0);
    read_slot(&two, loc, BLOCK, 0);
    stand_still();
    fake_gpu_lose(gpu());
    if (_i == 1)
        fake_gpu_up(gpu()); /* what was there is not there any more */
    goes_on();
    RIG_UNTIL(&rig, one.dones > 0 && two.dones > 0);
    ck_assert_int_eq(one.op.status, -EIO);
    ck_assert_int_eq(two.op.status, -EIO);
    rig.t->ops->free(rig.t, loc);
    if (_i == 0)
        fake_gpu_up(gpu());
}

CASE(memory_stays_while_it_is_read)
{
    struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    read_slot(&one, loc, BLOCK, 0);
    stand_still();
    fake_gpu_lose(gpu());
    goes_on();
    RIG_UNTIL(&rig, one.dones > 0);
    rig.t->ops->free(rig.t, loc);
    fake_gpu_up(gpu());
    loc = rig_fill(&rig, 4, rig.host, BLOCK); /* where it was: fake_gpu.c looks after the rest */
    read_slot(&two, loc, BLOCK, 0);
    RIG_UNTIL(&rig, two.dones > 0);
    ck_assert_int_eq(two.op.status, 0);
}

CASES(.setup = setup);

CASE(what_waits_at_the_end_is_cancelled)
{
    const struct tier_loc loc = rig_fill(&rig, 3, rig.host, BLOCK);
    read_slot(&one, loc, BLOCK, 0);
    read_slot(&two, loc, BLOCK, 0);
    stand_still();
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
    ck_assert_uint_eq(one.dones + two.dones, 2);
    ck_assert_int_eq(two.op.status, -ECANCELED);
}
