/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of the copies of a block, and the set of blocks whose copies may lack that. */
#include "admin.h"
#include "names_rig.h"
#include "wants.h"

static struct block *block_at(uint32_t chain, uint32_t i)
{
    const struct key256 key = rig_key(chain, i);
    for (uint32_t no = 0; no < r.core->blocks_high; no++)
        if (memcmp(&r.core->blocks[no].key, &key, sizeof key) == 0)
            return &r.core->blocks[no];
    ck_abort_msg("no such block");
    return NULL;
}

static void asks(uint32_t chain, uint32_t i, enum copy_state host, enum copy_state disk)
{
    const struct block *b = block_at(chain, i);
    ck_assert_int_eq(block_wants(r.core, b, CORE_HOST), host);
    ck_assert_int_eq(block_wants(r.core, b, CORE_STORAGE), disk);
}

static uint64_t pin(uint32_t chain, uint32_t n, bool in_memory)
{
    const struct core_pin in = {.seq = rig_seq(ns, chain, n * BT), .in_memory = in_memory};
    struct core_pinned got;
    ck_assert_int_eq(core_pin(r.core, &in, &got, &r.why), 0);
    return got.id;
}

CASES(.teardown = end);

CASE(the_most_that_anybody_asks_counts)
{
    begin(32, 64, false);
    store(1, 0, 3);
    asks(1, 0, COPY_NONE, COPY_NONE);
    const uint64_t both = pin(1, 2, true), one = pin(1, 1, false);
    asks(1, 0, COPY_READY, COPY_FOR_PIN);
    asks(1, 1, COPY_READY, COPY_FOR_PIN);
    asks(1, 2, COPY_NONE, COPY_NONE);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], both), 0);
    asks(1, 0, COPY_NONE, COPY_FOR_PIN);
    asks(1, 1, COPY_NONE, COPY_NONE);
    ck_assert_int_eq(core_unpin(r.core, r.cl[1], one), 0);
    asks(1, 0, COPY_NONE, COPY_NONE);
}

CASE(what_builds_on_a_block_asks_it_to_be_on_disk_as_it_is)
{
    begin(32, 64, false);
    store(1, 0, 2);
    ck_assert_int_eq(save_begin(r.core, block_at(1, 1), SAVE_COPY), 0);
    asks(1, 0, COPY_NONE, COPY_READY);
    rig_settle(&r);
    ck_assert_int_eq(block_at(1, 0)->disk_copy, COPY_READY);
    asks(1, 1, COPY_NONE, COPY_NONE);
    struct rig_put p = {.ns = ns, .chain = 1, .first = 2, .n = 1, .durable = true};
    struct rig_commit done;
    ck_assert_int_eq(rig_reserve(&r, 1, &p), 0);
    ck_assert_int_eq(rig_commit(&r, 1, &p, &done), 1);
    rig_settle(&r);
    ck_assert_uint_eq(done.done, 1);
    rig_commit_free(&done);
    for (uint32_t i = 0; i < 3; i++)
        asks(1, i, COPY_NONE, COPY_DURABLE);
    ck_assert_uint_eq(unmet_count(r.core), 0);
}

/* What one lacks in vain, another does not wait for. */
CASE(what_is_refused_is_asked_again_and_holds_up_no_other)
{
    begin(32, 64, false);
    store(1, 0, 1);
    store(2, 0, 1);
    struct block *b = block_at(1, 0);
    (void)pin(1, 1, false);
    (void)pin(2, 1, false);
    b->copies++; /* as if it were read: no write begins */
    (void)core_background_step(r.core);
    ck_assert(unmet_has(r.core, b));
    for (unsigned i = 0; i < 20; i++) {
        rig_step(&r);
        (void)core_background_step(r.core);
        r.cfg.tier[CORE_STORAGE]->storage->kick(r.cfg.tier[CORE_STORAGE]);
        (void)fake_disk_run(r.disk, 1000, 0);
    }
    ck_assert_int_eq(block_at(2, 0)->disk_copy, COPY_FOR_PIN);
    ck_assert(unmet_has(r.core, b) && b->disk_copy == COPY_NONE);
    b->copies--;
    for (unsigned i = 0; i < 20; i++)
        rig_step(&r);
    rig_settle(&r);
    ck_assert_int_eq(b->disk_copy, COPY_FOR_PIN);
    ck_assert_uint_eq(unmet_count(r.core), 0);
}

#define RECORDS 9001u /* no multiple of the words of a word */

/* Beside the set, an array that says the same. */
CASE(the_set_gives_each_block_once_and_goes_round)
{
    static bool in[RECORDS];
    uint32_t random = 7, at = 0, n = 0;
    rig_defaults(&r);
    r.cfg.blocks_max = RECORDS;
    rig_begin(&r);
    memset(in, 0, sizeof in);
    for (unsigned i = 0; i < 20000; i++) {
        random = random * 1664525u + 1013904223u;
        const uint32_t no = i % 3000 < 3 ? (RECORDS - 1) * (i & 1u)
                                         : (uint32_t)(((uint64_t)random * RECORDS) >> 32);
        if (i % 1000 < 400) {
            unmet_add(r.core, &r.core->blocks[no]);
            n += !in[no];
            in[no] = true;
        } else if (n == 0) {
            ck_assert_ptr_null(unmet_take(r.core));
        } else {
            while (!in[at % RECORDS])
                at++;
            at %= RECORDS;
            ck_assert_ptr_eq(unmet_take(r.core), &r.core->blocks[at]);
            in[at++] = false;
            n--;
        }
        ck_assert_uint_eq(unmet_count(r.core), n);
        ck_assert(unmet_has(r.core, &r.core->blocks[no]) == in[no]);
    }
    while (unmet_take(r.core))
        n--;
    ck_assert_uint_eq(n, 0);
    /* Once all of them, when what was found at start keeps nothing any more. */
    r.core->blocks_high = RECORDS - 10;
    found_begin(r.core);
    ck_assert(found_keeps(r.core));
    found_end(r.core);
    found_end(r.core);
    ck_assert_uint_eq(unmet_count(r.core), RECORDS - 10);
    for (uint32_t no = 0; no < RECORDS; no++)
        ck_assert(unmet_has(r.core, &r.core->blocks[no]) == (no < RECORDS - 10));
    while (unmet_take(r.core))
        n++;
    ck_assert_uint_eq(n, RECORDS - 10);
    r.core->blocks_high = 0;
}
