/* SPDX-License-Identifier: Apache-2.0 */
/* The table and the trace of the evicted, under the core. */
#include "cases.h"
#include "core_rig.h"
#include "index.h"

#define BLOCKS 96u
#define NAMES  400u

static struct rig r;

static void setup(void)
{
    rig_defaults(&r);
    r.cfg.blocks_max = BLOCKS;
    rig_begin(&r);
    struct core_ns_spec spec = rig_spec("m", 16, 64);
    spec.ngroups = 2;
    spec.group[1] = spec.group[0];
    (void)rig_ns(&r, 1, &spec);
}

static void teardown(void)
{
    rig_end(&r);
}

/* A name: some keys twice, in another group. */
static void name_of(uint32_t i, struct block *ret)
{
    ret->key = rig_key(5, i / 2);
    ret->ns = 0;
    ret->group = i % 2;
}

CASES(.setup = setup, .teardown = teardown);

CASE(table_agrees_with_an_array_when_full_and_churning)
{
    uint32_t where[NAMES];
    uint64_t random = 99;
    struct core *c = r.core;
    uint32_t used = 0;
    memset(where, 0xff, sizeof(where));
    for (uint32_t turn = 0; turn < 60000; turn++) {
        uint32_t i = (uint32_t)(fake_random(&random) % NAMES);
        struct block name = {.ns = 0};
        name_of(i, &name);
        struct block *b = index_get(c, &c->ns[0], name.group, name.key.b);
        if (where[i] == CORE_NONE) {
            ck_assert_ptr_null(b);
            if (used == BLOCKS)
                continue;
            b = block_new(c, BLOCK_PENDING);
            ck_assert_ptr_nonnull(b);
            name_of(i, b);
            index_add(c, b);
            where[i] = block_no(c, b);
            used++;
        } else {
            ck_assert_ptr_eq(b, &c->blocks[where[i]]);
            index_del(c, b);
            block_abandon(c, b);
            where[i] = CORE_NONE;
            used--;
        }
        if (turn % 97 != 0)
            continue;
        for (uint32_t k = 0; k < NAMES; k++) {
            name_of(k, &name);
            b = index_get(c, &c->ns[0], name.group, name.key.b);
            ck_assert((b != NULL) == (where[k] != CORE_NONE));
        }
    }
    for (uint32_t i = 0; i < NAMES; i++) {
        if (where[i] == CORE_NONE)
            continue;
        index_del(c, &c->blocks[where[i]]);
        block_abandon(c, &c->blocks[where[i]]);
    }
    for (uint32_t i = 0; i < c->index.size; i++)
        ck_assert_uint_eq(c->index.table[i], 0);
}

/* Hashes may collide; keys, groups and namespaces are compared in full. */
CASE(an_equal_hash_is_not_enough)
{
    struct core *c = r.core;
    struct block *b = block_new(c, BLOCK_PENDING);
    name_of(0, b);
    index_add(c, b);
    uint64_t hash = index_hash(c, 0, 0, b->key.b);
    uint8_t key[KVC_KEY_BYTES];
    memcpy(key, b->key.b, sizeof(key));
    ck_assert_ptr_eq(index_find(c, hash, 0, 0, key), b);
    ck_assert_ptr_null(index_find(c, hash, 1, 0, key));
    ck_assert_ptr_null(index_find(c, hash, 0, 1, key));
    for (unsigned i = 0; i < KVC_KEY_BYTES; i++) {
        key[i] ^= 1;
        ck_assert_ptr_null(index_find(c, hash, 0, 0, key));
        ck_assert_uint_ne(index_hash(c, 0, 0, key), hash); /* and every byte counts */
        key[i] ^= 1;
    }
    index_del(c, b);
    block_abandon(c, b);
}

CASE(records_run_out_and_come_back)
{
    struct block *b[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert_ptr_nonnull(b[i] = block_new(r.core, BLOCK_PENDING));
    ck_assert_ptr_null(block_new(r.core, BLOCK_PENDING));
    uint32_t gen = b[7]->gen;
    block_abandon(r.core, b[7]);
    ck_assert_ptr_eq(block_new(r.core, BLOCK_PENDING), b[7]);
    ck_assert_uint_eq(b[7]->gen, gen + 1);
    for (uint32_t i = 0; i < BLOCKS; i++)
        block_abandon(r.core, b[i]);
}

CASE(traces_are_the_newest_and_bounded)
{
    struct core *c = r.core;
    struct block b = {.ns = 0};
    name_of(0, &b);
    uint64_t hash = index_hash(c, 0, b.group, b.key.b);
    ck_assert_int_eq(ghost_reason(c, hash), KVC_MISS_NEVER);
    ghost_note(c, &b, KVC_MISS_EVICTED);
    ck_assert_int_eq(ghost_reason(c, hash), KVC_MISS_EVICTED);
    ghost_note(c, &b, KVC_MISS_DROPPED);
    ck_assert_int_eq(ghost_reason(c, hash), KVC_MISS_DROPPED);
    b.group = 1;
    ck_assert_int_eq(ghost_reason(c, index_hash(c, 0, 1, b.key.b)), KVC_MISS_NEVER);
    unsigned known = 0;
    for (uint32_t i = 0; i < 100 * NAMES; i++) {
        name_of(i, &b);
        ghost_note(c, &b, KVC_MISS_EVICTED);
    }
    for (uint32_t i = 0; i < 100 * NAMES; i++) {
        name_of(i, &b);
        known += ghost_reason(c, index_hash(c, 0, b.group, b.key.b)) == KVC_MISS_EVICTED;
    }
    ck_assert_uint_gt(known, 0);
    ck_assert_uint_le(known, BLOCKS + 4);
}
