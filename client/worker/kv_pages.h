/* SPDX-License-Identifier: Apache-2.0 */
/* What strategies with pages share: memory in pages, and blocks of the daemon as pages. */
#ifndef WORKER_KV_PAGES_H
#define WORKER_KV_PAGES_H

#include "kv.h"

/* Pages of one size side by side; sequences share them. Memory is the system's until a page is
 * first written. */
struct kv_pool {
    char *base;
    uint64_t page_bytes, bytes;
    uint32_t pages, fresh; /* never taken: fresh .. pages - 1 */
    uint32_t *free_page, frees;
    uint32_t users;
};
KV_MUST_USE int kv_pool_create(uint64_t page_bytes, uint32_t pages, struct kv_pool **ret_pool);
/* The same for one more user. */
struct kv_pool *kv_pool_share(struct kv_pool *pool);
static inline void *pool_page(const struct kv_pool *pool, uint32_t page)
{
    return pool->base + page * pool->page_bytes;
}

/* Page numbers of a sequence, in its order. */
struct kv_table {
    struct kv_pool *pool;
    uint32_t *page, n, room;
};
/* Takes pages until there are n. -ENOSPC: the pool has none left. */
KV_MUST_USE int table_grow(struct kv_table *table, uint32_t n);
/* Gives back those from n on; from the front, the first one. */
void table_cut(struct kv_table *table, uint32_t n);
void table_shift(struct kv_table *table);
void table_destroy(struct kv_table *table);
/* K and V of tokens first .. first + n - 1 of a sequence, into its pages: the table's first page
 * has block number `before`. */
KV_MUST_USE int table_write(const struct kv_table *table, const struct kv_layout *l,
                            uint32_t before, uint32_t layer, uint32_t first, uint32_t n,
                            const float *k, const float *v);

/* Blocks of the daemon where they lie: as pages, whose numbers count steps from the lowest of them.
 * A step is what all their distances are multiples of. */
struct kv_lent {
    const char **block;
    uint32_t *page, n, room;
    const char *base;
    uint64_t step;
};
/* -ERANGE: they lie too far apart to be numbered; then nothing has changed. */
KV_MUST_USE int lent_add(struct kv_lent *lent, const struct kvc_block *block, uint32_t n);
void lent_cut(struct kv_lent *lent, uint32_t n);
void lent_destroy(struct kv_lent *lent);

#endif
