/* SPDX-License-Identifier: Apache-2.0 */
/* One policy with its own memory, for tests, and short functions to drive it. */
#ifndef TEST_POLICY_RIG_H
#define TEST_POLICY_RIG_H

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

#define RIG_BLOCKS 64u
#define RIG_LISTS  3u

struct rig {
    const struct policy_ops *ops;
    struct policy *p;
    void *mem;
    bool refused[RIG_BLOCKS];
    /* Times that the block was asked for and refused since its release, use or assignment. */
    unsigned asked[RIG_BLOCKS];
    uint64_t now_ms;
};

static inline void rig_open(struct rig *rig, const struct policy_ops *ops)
{
    const struct policy_config config = {
        .blocks_max = RIG_BLOCKS, .lists_max = RIG_LISTS, .seed = 7};
    const size_t bytes = (ops->mem_bytes(&config) + 63) / 64 * 64;
    *rig = (struct rig){.ops = ops, .mem = aligned_alloc(64, bytes)};
    ck_assert_ptr_nonnull(rig->mem);
    memset(rig->mem, 0, bytes);
    rig->p = ops->init(rig->mem, &config);
}

static inline void rig_close(struct rig *rig)
{
    free(rig->mem);
}

static inline bool rig_can_evict(void *ctx, uint32_t block)
{
    struct rig *rig = ctx;
    if (block >= RIG_BLOCKS)
        ck_abort_msg("block %u is asked for", block);
    rig->asked[block] += rig->refused[block];
    return !rig->refused[block];
}

static inline uint32_t rig_victim(struct rig *rig, uint8_t list)
{
    return rig->ops->victim(rig->p, list, rig->now_ms, rig_can_evict, rig);
}

/* Inserts a block whose hash follows from `content`, so that equal contents can come again under
 * another number. */
static inline void rig_insert_as(struct rig *rig, uint32_t block, uint32_t parent, uint64_t content)
{
    const struct policy_hint hint = {.hash = content * 0x9e3779b97f4a7c15u,
                                     .parent = parent,
                                     .depth = parent == POLICY_NO_BLOCK ? 0 : 1,
                                     .bytes = 4096,
                                     .used_ms = rig->now_ms};
    rig->ops->insert(rig->p, block, &hint, rig->now_ms);
}

static inline void rig_insert(struct rig *rig, uint32_t block, uint32_t parent)
{
    rig_insert_as(rig, block, parent, 1000 + block);
}

static inline void rig_touch(struct rig *rig, uint32_t block)
{
    rig->ops->touch(rig->p, block, rig->now_ms);
}

/* Takes victims of list 0 until there is none; they must be these, in this order. */
static inline void rig_expect(struct rig *rig, unsigned n, const uint32_t *want)
{
    for (unsigned i = 0; i < n; i++) {
        const uint32_t block = rig_victim(rig, 0);
        ck_assert_msg(block == want[i], "victim %u is %u, not %u", i, block, want[i]);
        rig->ops->remove(rig->p, block);
    }
    ck_assert_uint_eq(rig_victim(rig, 0), POLICY_NO_BLOCK);
}

#define RIG_EXPECT(rig, ...)                                                     \
    do {                                                                         \
        const uint32_t want__[] = {__VA_ARGS__};                                 \
        rig_expect(rig, (unsigned)(sizeof(want__) / sizeof(want__[0])), want__); \
    } while (0)

#endif
