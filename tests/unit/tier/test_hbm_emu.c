/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HBM tier over the emulated device: what the fake one cannot show is that it also holds when
 * another thread does the work. The device has no more memory than the limit, so that one chunk too
 * many would be refused.
 */
#include "cases.h"
#include "hbm_model.h"
#include "log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT (16 * RIG_MIB)

static char fault_file[] = "hbm-emu-fault-XXXXXX";
static const struct rig_config usual = {.device = "emu:3",
                                        .limit_bytes = LIMIT,
                                        .chunk_bytes = 2 * RIG_MIB,
                                        .fault_file = fault_file,
                                        .latency_ns = 20000,
                                        .memory_bytes = LIMIT};

static struct rig rig;
static struct rig_pool pool;
static struct rig_copy copy;

static void say(const char *word)
{
    const int fd = open(fault_file, O_WRONLY | O_TRUNC | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, word, strlen(word)), (ssize_t)strlen(word));
    ck_assert_int_eq(close(fd), 0);
}

static bool is_up(struct rig *r)
{
    struct device_view v;
    r->d->ops->view(r->d, &v);
    return v.up;
}

static void make_fault_file(void)
{
    const int fd = mkstemp(fault_file);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

static void begin(enum rig_layout layout, uint32_t layers, uint32_t pages_per_block)
{
    make_fault_file();
    rig_open(&rig, &usual);
    RIG_UNTIL(&rig, is_up(&rig));
    rig_pool_open(&rig, &pool, layout, layers, pages_per_block);
}

static void finish(void)
{
    rig_pool_check(&pool);
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
    ck_assert_int_eq(unlink(fault_file), 0);
}

CASES(.timeout_s = 240);

CASE_EACH(blocks_go_round_through_slots, RIG_LAYOUTS)
{
    static uint8_t block[64 * 1024];
    begin((enum rig_layout)_i, 5, 4);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 8);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    for (uint32_t i = 0; i < 8; i++) {
        rig_gather(&pool, copy.pages[i], block);
        ck_assert_mem_eq(copy.piece[i].host, block, pool.block_bytes);
    }
    rig_scribble(&rig, rig.host, 8 * ROUND_UP(pool.block_bytes, 4096));
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 8);
    for (uint32_t i = 0; i < 8; i++)
        rig_scatter(&pool, copy.pages[i], copy.piece[i].host);
    for (uint32_t i = 0; i < 8; i += 2) {
        copy.piece[i].slot = rig_fill(&rig, 3, copy.piece[i].host, pool.block_bytes);
        copy.piece[i].host = NULL;
    }
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    finish();
}

/* A worker that follows the word while the device copies. */
CASE_EACH(layers_that_are_told_are_there, RIG_LAYOUTS)
{
    const uint8_t *blocks[10];
    _Atomic uint64_t ready = 0, word = 0;
    begin((enum rig_layout)_i, 160, 4);
    rig_scribble(&rig, rig.host, 10 * ROUND_UP(pool.block_bytes, 4096));
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 10);
    for (uint32_t i = 0; i < 10; i++) {
        blocks[i] = copy.piece[i].host;
        rig_scatter(&pool, copy.pages[i], blocks[i]);
    }
    for (uint32_t i = 6; i < 10; i++) {
        copy.piece[i].slot = rig_fill(&rig, 1, blocks[i], pool.block_bytes);
        copy.piece[i].host = NULL;
    }
    copy.c.ready = &ready;
    copy.c.after.word = &word;
    copy.c.after.value = 1;
    rig_submit(&rig, &copy);
    rig_turn(&rig);
    ck_assert_uint_eq(atomic_load(&ready), 0);
    atomic_store(&word, 1);
    uint64_t last = 0;
    while (last < 160) {
        const uint64_t now = atomic_load(&ready);
        ck_assert_uint_ge(now, last);
        for (uint32_t i = 0; i < 10 && now > last; i++)
            ck_assert(rig_layers_are(&pool, copy.pages[i], blocks[i], last, now));
        last = now;
        ck_assert_int_ge(loop_turn(rig.loop, 100000), 0);
    }
    RIG_UNTIL(&rig, copy.dones);
    ck_assert_int_eq(copy.c.status, 0);
    finish();
}

CASE_EACH(a_word_that_never_comes_is_cancelled_or_late, 3)
{
    _Atomic uint64_t never = 0;
    begin(RIG_KV_APART, 160, 4);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 10);
    copy.c.after.word = &never;
    copy.c.after.value = 1;
    if (_i == 0)
        copy.c.deadline_ns = 1;
    rig_submit(&rig, &copy);
    rig_turn(&rig);
    if (_i == 1)
        atomic_store(&copy.c.cancel, true);
    if (_i < 2) {
        RIG_UNTIL(&rig, copy.dones);
        ck_assert_int_eq(copy.c.status, _i == 0 ? -ETIMEDOUT : -ECANCELED);
        finish();
        return;
    }
    rig_close(&rig); /* with all that is in flight */
    ck_assert_uint_eq(copy.dones, 1);
    ck_assert_int_eq(copy.c.status, -ECANCELED);
    rig_pool_check(&pool);
    for (uint32_t i = 0; i < pool.nmems; i++)
        rig_mem_unmake(&pool.mem[i]);
    ck_assert_int_eq(unlink(fault_file), 0);
}

CASE(a_device_that_cannot_be_opened_is_tried_again)
{
    make_fault_file();
    say("lost");
    rig_open(&rig, &usual);
    struct device_view v;
    do {
        rig_turn(&rig);
        rig.d->ops->view(rig.d, &v);
    } while (v.why[0] == '\0');
    ck_assert(!v.up);
    ck_assert_uint_eq(rig.losts, 0);
    ck_assert_ptr_nonnull(strstr(hbm_note(rig.hbm), "out: "));
    say("");
    RIG_UNTIL(&rig, rig.ups == 1);
    rig_close(&rig);
    ck_assert_int_eq(unlink(fault_file), 0);
}

/* --- the model --- */

static bool is_starved;

static void step(struct rig *r)
{
    if (!is_starved || rig_below(r, 8) > 0)
        return;
    is_starved = false;
    say("");
}

static void starve(struct rig *r)
{
    if (!is_up(r))
        return;
    is_starved = true;
    say("oom");
}

/* The file is looked at before an operation, whichever it is. */
static void lose(struct rig *r)
{
    const uint32_t before = r->losts;
    is_starved = false;
    say("sticky");
    hbm_pin_host(r->hbm, r->host, 4096);
    RIG_UNTIL(r, r->losts > before);
    hbm_unpin_host(r->hbm, r->host, 4096);
}

static void bring_back(struct rig *r)
{
    say("");
    RIG_UNTIL(r, is_up(r));
}

CASE_EACH(random_operations_agree_with_the_model, 4)
{
    static const struct hbm_drive drive = {step, lose, bring_back, starve, NULL};
    struct rig_config config = usual;
    config.inflight_bytes = _i % 2 == 0 ? 0 : 64 << 10;
    config.latency_ns = _i < 2 ? 0 : 50000;
    make_fault_file();
    hbm_model_case(&config, &drive, _i, 10000);
    ck_assert_int_eq(unlink(fault_file), 0);
}

int main(void)
{
    log_set_level(LOG_ERROR_);
    return cases_run();
}
