/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of the HBM tier over a device that the test moves: bytes, words, and all ways to end. */
#include "cases.h"
#include "fake_gpu.h"
#include "hbm_rig.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define FAR_NS UINT64_C(3600000000000)
/* Enough for the short copies. */
#define SHORT_BYTES (RIG_MIB / 2)

static const struct rig_config usual = {
    .limit_bytes = 16 * RIG_MIB, .chunk_bytes = 2 * RIG_MIB, .step = fake_gpu_run};

static struct rig rig;
static struct rig_pool pool;
static struct rig_copy copy, other;

static struct gpu *gpu(void)
{
    return hbm_gpu(rig.hbm);
}

static void begin(enum rig_layout layout, uint32_t layers, uint32_t pages_per_block)
{
    rig_open(&rig, &usual);
    fake_gpu_up(gpu());
    rig_pool_open(&rig, &pool, layout, layers, pages_per_block);
}

static void finish(void)
{
    rig_pool_check(&pool);
    rig_pool_close(&rig, &pool);
    RIG_UNTIL(&rig, gpu_metrics(gpu())->imported_bytes == 0);
    rig_close(&rig);
}

/* The loop alone, a few times: nothing that is to wait may happen. */
static void idle(void)
{
    for (unsigned i = 0; i < 12; i++)
        ck_assert_int_ge(loop_turn(rig.loop, 1000000), 0);
}

static uint8_t *block_of(const struct rig_copy *c, uint32_t i)
{
    return c->piece[i].host;
}

/* What a LOAD that ends well makes of the pages. */
static void expect_load(const struct rig_copy *c)
{
    for (uint32_t i = 0; i < c->c.n; i++)
        rig_scatter(&pool, c->pages[i], block_of(c, i));
}

/* --- bytes --- */

static const uint32_t pages_per_blocks[] = {1, 4, 16};

CASE_EACH(pages_become_blocks_and_blocks_pages, (ARRAY_LEN(pages_per_blocks) * RIG_LAYOUTS))
{
    const uint32_t per_block = pages_per_blocks[_i / RIG_LAYOUTS];
    const uint32_t n = RIG_PAGES_MAX / per_block > 5 ? 5 : RIG_PAGES_MAX / per_block;
    static uint8_t block[256 * 1024];
    begin((enum rig_layout)(_i % RIG_LAYOUTS), 7, per_block);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, n);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_int_eq(copy.piece[i].status, 0);
        rig_gather(&pool, copy.pages[i], block);
        ck_assert_mem_eq(block_of(&copy, i), block, pool.block_bytes);
    }
    rig_pool_check(&pool); /* reading changes nothing */

    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, n);
    expect_load(&copy);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    finish(); /* these pages and no others */
}

CASE_EACH(blocks_go_to_slots_and_from_there_to_pages, RIG_LAYOUTS)
{
    begin((enum rig_layout)_i, 5, 4);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 8);
    expect_load(&copy);
    for (uint32_t i = 0; i < 8; i += 2) { /* every other one comes from a slot */
        const struct tier_loc loc = rig_fill(&rig, 3, block_of(&copy, i), pool.block_bytes);
        copy.piece[i].host = NULL;
        copy.piece[i].slot = loc;
    }
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_int_eq(copy.piece[i].status, 0);
    finish();
}

CASE(groups_of_a_pool_are_apart)
{
    struct device_pool_spec spec;
    struct device_region second[2];
    const char *why;
    begin(RIG_KV_TOGETHER, 2, 1);
    spec = pool.spec;
    for (unsigned i = 0; i < 2; i++) {
        second[i] = pool.region[i];
        second[i].page_bytes /= 2;
    }
    spec.group[1] =
        (struct device_pool_group){.pages_per_block = 2, .nregions = 2, .region = second};
    spec.ngroups = 2;
    struct device_pool *both;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &both, &why), 0);
    ck_assert_uint_eq(rig.d->ops->pool_block_bytes(both, 0), pool.block_bytes);
    ck_assert_uint_eq(rig.d->ops->pool_block_bytes(both, 1), pool.block_bytes);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 1);
    copy.c.pool = both;
    copy.c.group = 1;
    copy.pages[0][0] = 3;
    copy.pages[0][1] = 9;
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    const uint32_t half = second[0].page_bytes;
    for (unsigned i = 0; i < 2; i++)
        for (unsigned k = 0; k < 2; k++)
            ck_assert_mem_eq(block_of(&copy, 0) + (i * 2 + k) * half,
                             pool.mem[0].expect + second[i].base +
                                 copy.pages[0][k] * second[i].stride_bytes,
                             half);
    copy.c.group = 2; /* there is none */
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_int_eq(copy.piece[0].status, -EINVAL);
    rig.d->ops->pool_close(rig.d, both);
    finish();
}

CASE_EACH(a_page_that_is_not_there_ends_its_piece_and_no_other, 4)
{
    begin(RIG_KV_APART, 3, 4);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 3);
    copy.pages[1][_i] = _i == 0 ? UINT32_MAX : RIG_PAGES_MAX;
    rig_scatter(&pool, copy.pages[0], block_of(&copy, 0));
    rig_scatter(&pool, copy.pages[2], block_of(&copy, 2));
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_int_eq(copy.piece[0].status, 0);
    ck_assert_int_eq(copy.piece[1].status, -EINVAL);
    ck_assert_int_eq(copy.piece[2].status, 0);
    finish();
}

CASE(a_piece_that_is_wrong_before_is_not_copied)
{
    begin(RIG_KV_APART, 3, 4);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 3);
    copy.piece[1].status = -EIO;
    rig_scatter(&pool, copy.pages[0], block_of(&copy, 0));
    rig_scatter(&pool, copy.pages[2], block_of(&copy, 2));
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_int_eq(copy.piece[0].status, 0);
    ck_assert_int_eq(copy.piece[1].status, -EIO);
    ck_assert_int_eq(copy.piece[2].status, 0);
    finish();
}

CASE_EACH(blocks_of_another_size_are_refused_one_by_one, 2)
{
    begin(RIG_KV_APART, 3, 4);
    const uint32_t seen = fake_gpu_seen(gpu(), GPU_COPY);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 3);
    copy.c.bytes += _i == 0 ? 1 : -1;
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq(copy.piece[i].status, -EINVAL);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_COPY), seen);
    finish();
}

CASE(a_slot_of_another_size_is_refused)
{
    begin(RIG_KV_APART, 3, 4);
    const struct tier_loc loc = rig_fill(&rig, 1, rig.host, pool.block_bytes + 4096);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 2);
    rig_scatter(&pool, copy.pages[0], block_of(&copy, 0));
    copy.piece[1].host = NULL;
    copy.piece[1].slot = loc;
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_int_eq(copy.piece[0].status, 0);
    ck_assert_int_eq(copy.piece[1].status, -EINVAL);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), -EINVAL);
    finish();
}

CASE(no_pieces_are_soon_copied)
{
    begin(RIG_KV_APART, 3, 4);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 0);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    finish();
}

/* Tokens that follow each other in both places go as one piece; layers do not touch here. */
CASE(neighbouring_pages_are_one_fragment)
{
    begin(RIG_KV_TOGETHER, 3, 16);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 1);
    for (uint32_t k = 0; k < 16; k++)
        copy.pages[0][k] = 4 + k;
    expect_load(&copy);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_uint_eq(fake_gpu_last_frags(gpu()), 3);

    for (uint32_t k = 0; k < 16; k++)
        copy.pages[0][k] = 19 - k;
    expect_load(&copy);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_uint_eq(fake_gpu_last_frags(gpu()), 3 * 16);
    finish();
}

/* All pages of a region, and then the next region's, in memory and in the block: one run. */
CASE(with_words_fragments_end_with_their_layer)
{
    _Atomic uint64_t ready = 0;
    const char *why;
    begin(RIG_KV_TOGETHER, 3, 16);
    struct device_pool_spec spec = pool.spec;
    struct device_pool *tight;
    spec.pages_max = 16;
    for (uint32_t i = 0; i < 3; i++)
        pool.region[i].base = i * 16 * pool.region[i].stride_bytes;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &tight, &why), 0);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 1);
    for (uint32_t k = 0; k < 16; k++)
        copy.pages[0][k] = k;
    expect_load(&copy);
    copy.c.pool = tight;
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_uint_eq(fake_gpu_last_frags(gpu()), 1);
    copy.c.ready = &ready;
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_uint_eq(fake_gpu_last_frags(gpu()), 3);
    ck_assert_uint_eq(ready, 3);
    rig.d->ops->pool_close(rig.d, tight);
    finish();
}

/* --- ready words --- */

/* Whatever the word says has been copied is there, at each fragment; and it gets there. */
static void watch_layers(struct rig_copy *c, const uint8_t *const *blocks, uint32_t layers)
{
    _Atomic uint64_t ready = 1000;
    c->c.ready = &ready;
    c->c.ready_value = 1000;
    rig_submit(&rig, c);
    uint64_t last = 1000;
    for (uint32_t turn = 0; c->dones == 0; turn++) {
        (void)fake_gpu_copy(gpu(), 1 + turn % 3);
        (void)fake_gpu_memory(gpu());
        ck_assert_int_ge(loop_turn(rig.loop, 0), 0);
        const uint64_t now = atomic_load(&ready);
        ck_assert_uint_ge(now, last);
        if (now == last)
            continue;
        for (uint32_t i = 0; i < c->c.n; i++)
            ck_assert(rig_layers_are(&pool, c->pages[i], blocks[i], last - 1000, now - 1000));
        last = now;
    }
    ck_assert_uint_eq(last, 1000 + layers);
    ck_assert_int_eq(c->c.status, 0);
}

CASE_EACH(the_ready_word_counts_layers_that_are_there, RIG_LAYOUTS)
{
    const uint8_t *blocks[8];
    begin((enum rig_layout)_i, 9, 4);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 6);
    for (uint32_t i = 0; i < 6; i++)
        blocks[i] = block_of(&copy, i);
    expect_load(&copy);
    watch_layers(&copy, blocks, 9);
    finish();
}

/* 160 layers, with more fragments than a piece has; some of it in slots. */
CASE_EACH(long_copies_are_several_pieces_in_order, (2 * RIG_LAYOUTS))
{
    const uint8_t *blocks[10];
    const uint32_t n = _i / RIG_LAYOUTS == 0 ? 1 : 10;
    begin((enum rig_layout)(_i % RIG_LAYOUTS), 160, 4);
    rig_scribble(&rig, rig.host, n * ROUND_UP(pool.block_bytes, 4096));
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, n);
    expect_load(&copy);
    for (uint32_t i = 0; i < n; i++)
        blocks[i] = block_of(&copy, i);
    watch_layers(&copy, blocks, 160);
    ck_assert_uint_gt(fake_gpu_last_frags(gpu()), FAKE_GPU_PIECE_FRAGS);
    rig_pool_check(&pool);

    rig_scribble(&rig, rig.host, n * ROUND_UP(pool.block_bytes, 4096));
    expect_load(&copy);
    for (uint32_t i = n / 2; i < n; i++) {
        const struct tier_loc loc = rig_fill(&rig, 1, block_of(&copy, i), pool.block_bytes);
        copy.piece[i] = (struct device_piece){.slot = loc, .pages = copy.pages[i]};
    }
    watch_layers(&copy, blocks, 160);
    finish();
}

CASE(long_copies_without_words_are_right_too)
{
    static uint8_t block[2 * 1024 * 1024];
    begin(RIG_KV_APART, 160, 4);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 10);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    for (uint32_t i = 0; i < 10; i++) {
        rig_gather(&pool, copy.pages[i], block);
        ck_assert_mem_eq(block_of(&copy, i), block, pool.block_bytes);
    }
    finish();
}

/* --- when a copy begins --- */

CASE(a_copy_waits_for_its_word_and_holds_up_nobody)
{
    _Atomic uint64_t word = 6;
    begin(RIG_MLA, 3, 4);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2);
    rig_copy_init(&rig, &other, DEVICE_STORE, &pool, 3);
    copy.c.after.word = &word;
    copy.c.after.value = 7;
    rig_submit(&rig, &copy);
    ck_assert_int_eq(rig_copy(&rig, &other), 0);
    ck_assert_uint_eq(copy.dones, 0);
    atomic_store(&word, 9);
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, 0);
    finish();
}

CASE_EACH(a_deadline_ends_what_has_not_begun, 2)
{
    _Atomic uint64_t word = 0;
    begin(RIG_MLA, 160, 16);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 2); /* several pieces */
    copy.c.after.word = &word;
    copy.c.after.value = 1;
    copy.c.deadline_ns = _i == 0 ? 1 : clock_now_ns() + 20000000;
    ck_assert_int_eq(rig_copy(&rig, &copy), -ETIMEDOUT);
    ck_assert_int_eq(copy.piece[0].status, -ETIMEDOUT);
    atomic_store(&word, 1);
    rig_turn(&rig);
    finish(); /* nothing was touched */
}

CASE(a_deadline_does_not_end_what_has_begun)
{
    begin(RIG_MLA, 160, 16);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 2);
    expect_load(&copy);
    /* On a slow machine it is over before the first fragment. */
    for (uint64_t ns = 50000000;; ns *= 2) {
        copy.c.deadline_ns = clock_now_ns() + ns;
        rig_submit(&rig, &copy);
        if (fake_gpu_copy(gpu(), 5) == 5)
            break;
        RIG_UNTIL(&rig, copy.dones);
        ck_assert_int_eq(copy.c.status, -ETIMEDOUT);
    }
    while (clock_now_ns() < copy.c.deadline_ns)
        idle();
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, 0);
    finish();
}

CASE_EACH(a_cancelled_copy_touches_nothing, 2)
{
    _Atomic uint64_t word = 0;
    begin(RIG_MLA, 160, 16);
    rig_scribble(&rig, rig.host, SHORT_BYTES);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 2);
    copy.c.after.word = &word;
    copy.c.after.value = 1;
    copy.c.deadline_ns = clock_now_ns() + FAR_NS;
    if (_i == 0)
        atomic_store(&copy.c.cancel, true);
    rig_submit(&rig, &copy);
    idle();
    atomic_store(&copy.c.cancel, true);
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, -ECANCELED);
    ck_assert_int_eq(copy.piece[1].status, -ECANCELED);
    finish();
}

CASE(cancel_skips_the_rest_of_a_long_copy)
{
    enum { BEGUN = 3 };
    begin(RIG_MLA, 160, 16);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2); /* 5,120 fragments */
    rig_submit(&rig, &copy);
    const uint32_t frags = BEGUN * FAKE_GPU_PIECE_FRAGS - 1;
    ck_assert_uint_eq(fake_gpu_copy(gpu(), frags), frags);
    atomic_store(&copy.c.cancel, true);
    ck_assert_uint_eq(fake_gpu_copy(gpu(), UINT32_MAX), 1); /* what has begun is finished */
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, -ECANCELED);
    ck_assert_int_eq(copy.piece[1].status, -ECANCELED);
    ck_assert_uint_eq(fake_gpu_last_frags(gpu()), frags + 1);
    finish();
}

CASE(a_copy_that_ran_whole_is_well_even_if_cancelled)
{
    begin(RIG_MLA, 3, 1);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2);
    rig_submit(&rig, &copy);
    ck_assert_uint_eq(fake_gpu_copy(gpu(), 1), 1);
    atomic_store(&copy.c.cancel, true);
    idle();
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, 0);
    finish();
}

/* --- how many --- */

#define MANY 40u
static struct rig_copy many[MANY];
static uint32_t order[MANY], norder;

static void on_ordered(struct device_copy *c)
{
    struct rig_copy *rc = c->ctx;
    rc->dones++;
    order[norder++] = (uint32_t)(rc - many);
}

CASE(many_copies_end_in_order)
{
    begin(RIG_MLA, 2, 1);
    norder = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        rig_copy_init(&rig, &many[i], DEVICE_STORE, &pool, 1);
        many[i].c.done = on_ordered;
        rig_submit(&rig, &many[i]);
    }
    atomic_store(&many[30].c.cancel, true);
    struct tier_stats st;
    rig.t->ops->stats(rig.t, &st);
    ck_assert_uint_eq(st.inflight_ops, MANY);
    ck_assert_uint_eq(st.inflight_bytes, (uint64_t)MANY * pool.block_bytes);
    RIG_UNTIL(&rig, norder == MANY);
    uint32_t last = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        ck_assert_int_eq(many[order[i]].c.status, order[i] == 30 ? -ECANCELED : 0);
        if (order[i] == 30)
            continue;
        ck_assert_uint_ge(order[i], last);
        last = order[i];
    }
    rig.t->ops->stats(rig.t, &st);
    ck_assert_uint_eq(st.inflight_ops, 0);
    ck_assert_uint_eq(st.inflight_bytes, 0);
    finish();
}

/* A FILL of a slot whose memory the device has not given yet. */
static void fill_early(struct rig_copy *c)
{
    struct tier_loc loc;
    rig_copy_init(&rig, c, DEVICE_FILL, &pool, 1);
    c->c.pool = NULL;
    ck_assert_int_eq(rig_alloc(&rig, 1, c->c.bytes, &loc), 0);
    c->piece[0].slot = loc;
}

/* Too late, cancelled, taken back. */
CASE_EACH(what_waits_for_memory_ends_as_what_waits_for_the_device, 3)
{
    _Atomic uint64_t revoked = 0;
    begin(RIG_MLA, 2, 1);
    fill_early(&copy);
    copy.c.deadline_ns = _i == 0 ? clock_now_ns() + 20000000 : 0;
    copy.c.revoked = &revoked;
    rig_submit(&rig, &copy);
    idle();
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_COPY), 0);
    if (_i == 1)
        atomic_store(&copy.c.cancel, true);
    if (_i == 2)
        atomic_store(&revoked, 1);
    while (copy.dones == 0) /* the device stands still */
        ck_assert_int_ge(loop_turn(rig.loop, 100000000), 0);
    ck_assert_int_eq(copy.c.status, _i == 0 ? -ETIMEDOUT : -ECANCELED);
    rig.t->ops->free(rig.t, copy.piece[0].slot);
    finish();
}

CASE(words_that_never_come_hold_up_no_copy_that_can_run)
{
    _Atomic uint64_t never = 0;
    begin(RIG_MLA, 2, 1);
    for (uint32_t i = 0; i < MANY; i++) {
        rig_copy_init(&rig, &many[i], DEVICE_STORE, &pool, 1);
        many[i].c.after.word = &never;
        many[i].c.after.value = 1;
        rig_submit(&rig, &many[i]);
    }
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_uint_eq(many[0].dones, 0);
    atomic_store(&never, 1); /* after all */
    for (uint32_t i = 0; i < MANY; i++)
        RIG_UNTIL(&rig, many[i].dones);
    finish();
}

static void submit_again(struct device_copy *c)
{
    struct rig_copy *rc = c->ctx;
    if (++rc->dones < 5)
        rig.d->ops->submit(rig.d, c);
}

CASE(who_is_told_may_submit_more)
{
    begin(RIG_MLA, 2, 1);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 1);
    copy.c.done = submit_again;
    rig_submit(&rig, &copy);
    RIG_UNTIL(&rig, copy.dones == 5);
    copy.pages[0][0] = RIG_PAGES_MAX; /* and when it ends without having run */
    rig_submit(&rig, &copy);
    RIG_UNTIL(&rig, copy.dones == 5);
    ck_assert_int_eq(copy.piece[0].status, -EINVAL);
    finish();
}

/* What is submitted from done() is behind those that wait already. */
static void submit_other(struct device_copy *c)
{
    on_ordered(c);
    many[2].c.done = on_ordered;
    rig_submit(&rig, &many[2]);
}

CASE(who_is_told_does_not_get_ahead)
{
    begin(RIG_MLA, 2, 1);
    norder = 0;
    for (uint32_t i = 0; i < 3; i++)
        rig_copy_init(&rig, &many[i], DEVICE_STORE, &pool, 1);
    many[0].c.done = submit_other;
    many[1].c.done = on_ordered;
    rig_submit(&rig, &many[0]);
    rig_submit(&rig, &many[1]);
    RIG_UNTIL(&rig, norder == 3);
    ck_assert_uint_eq(order[1], 1);
    ck_assert_uint_eq(order[2], 2);
    finish();
}

/* --- ends --- */

CASE(a_pool_is_closed_with_copies_in_flight)
{
    begin(RIG_KV_APART, 160, 4);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 4);
    rig_submit(&rig, &copy);
    ck_assert_uint_eq(fake_gpu_copy(gpu(), 3), 3);
    rig.d->ops->pool_close(rig.d, pool.pool);
    for (uint32_t i = 0; i < pool.nmems; i++)
        rig.d->ops->mem_drop(rig.d, pool.mem[i].mem);
    ck_assert_uint_eq(fake_gpu_memory(gpu()), 0); /* still in use */
    ck_assert_uint_eq(fake_gpu_mems(gpu()), 2);
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, 0);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == 0);
    for (uint32_t i = 0; i < pool.nmems; i++)
        rig_mem_unmake(&pool.mem[i]);
    rig_close(&rig);
}

/* In flight, waiting for a word, for its turn and for memory; what is begun is finished. */
CASE(destroy_ends_all_copies)
{
    _Atomic uint64_t word = 0;
    begin(RIG_MLA, 160, 16);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2);
    rig_copy_init(&rig, &other, DEVICE_STORE, &pool, 1);
    other.c.after.word = &word;
    other.c.after.value = 1;
    rig_copy_init(&rig, &many[0], DEVICE_STORE, &pool, 1);
    rig_copy_init(&rig, &many[1], DEVICE_STORE, &pool, 1);
    many[1].pages[0][0] = 1000;
    rig_submit(&rig, &copy);
    rig_submit(&rig, &other);
    rig_submit(&rig, &many[0]);
    rig_submit(&rig, &many[1]);
    fill_early(&many[2]);
    rig_submit(&rig, &many[2]);
    ck_assert_uint_eq(fake_gpu_copy(gpu(), 1), 1);
    rig_close(&rig);
    ck_assert_uint_eq(copy.dones + other.dones + many[0].dones + many[1].dones + many[2].dones, 5);
    ck_assert_int_eq(many[2].c.status, -ECANCELED);
    ck_assert_int_eq(copy.c.status, -ECANCELED);
    ck_assert_int_eq(other.c.status, -ECANCELED);
    ck_assert_int_eq(many[0].c.status, -ECANCELED);
    ck_assert_int_eq(many[1].piece[0].status, -EINVAL);
    rig_mem_unmake(&pool.mem[0]);
}

CASE(a_device_that_goes_ends_copies_with_eio)
{
    begin(RIG_MLA, 160, 16);
    for (uint32_t i = 0; i < 4; i++) {
        rig_copy_init(&rig, &many[i], DEVICE_STORE, &pool, 2);
        rig_submit(&rig, &many[i]);
    }
    ck_assert_uint_eq(fake_gpu_copy(gpu(), 2000), 2000);
    fake_gpu_lose(gpu());
    ck_assert_uint_eq(rig.losts, 1);
    for (uint32_t i = 0; i < 4; i++) {
        RIG_UNTIL(&rig, many[i].dones);
        ck_assert_int_eq(many[i].c.status, -EIO);
        ck_assert_int_eq(many[i].piece[1].status, -EIO);
    }
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 2);
    ck_assert_int_eq(rig_copy(&rig, &copy), -EIO); /* out */
    fake_gpu_up(gpu());
    rig_copy_anew(&copy);
    ck_assert_int_eq(rig_copy(&rig, &copy), -EIO); /* its pool is void */
    finish();
}
