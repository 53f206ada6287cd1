/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the strategies with pages: memory that is divided into pages, and blocks of the daemon
 * that are used as pages. */
#ifndef WORKER_KV_PAGES_H
#define WORKER_KV_PAGES_H

#include "kv.h"

/* Pages of one size, side by side, which several sequences share. The system gives memory for a
 * page when it is first written. */
struct kv_pool {
    char *base;
    uint64_t page_bytes, bytes;
    uint32_t pages, fresh;      /* pages fresh .. pages - 1 were never taken */
    uint32_t *free_page, frees; /* numbers of pages that were given back */
    uint32_t users;             /* tables that use the pool; the last one frees it */
};
KV_MUST_USE int kv_pool_create(uint64_t page_bytes, uint32_t pages, struct kv_pool **ret_pool);
/* Returns the pool with one user more. */
struct kv_pool *kv_pool_share(struct kv_pool *pool);
static inline void *pool_page(const struct kv_pool *pool, uint32_t page)
{
    return pool->base + page * pool->page_bytes;
}

/* The page numbers of a sequence, in the order of its tokens. */
struct kv_table {
    struct kv_pool *pool;
    uint32_t *page, n, room;
};
/* Takes pages until the table has n. -ENOSPC: the pool has none left. */
KV_MUST_USE int table_grow(struct kv_table *table, uint32_t n);
/* Gives back all pages but the first n. */
void table_cut(struct kv_table *table, uint32_t n);
/* Gives back the first page. */
void table_shift(struct kv_table *table);
void table_destroy(struct kv_table *table);
/* Writes K and V of tokens first .. first + n - 1 of a sequence to its pages. The table's first
 * page is block number `before` of the sequence. */
KV_MUST_USE int table_write(const struct kv_table *table, const struct kv_layout *l,
                            uint32_t before, uint32_t layer, uint32_t first, uint32_t n,
                            const float *k, const float *v);

/* Blocks of the daemon, used in place as pages. A page number is a block's distance from the lowest
 * block, in steps: all distances are multiples of `step`. */
struct kv_lent {
    const char **block;
    uint32_t *page, n, room; /* page number of each block; blocks; room in both arrays */
    const char *base;        /* the lowest block */
    uint64_t step;           /* in bytes */
};
/* Adds blocks. -ERANGE: they lie so far apart that page numbers do not fit; nothing has changed. */
KV_MUST_USE int lent_add(struct kv_lent *lent, const struct kvc_block *block, uint32_t n);
/* Keeps the first n blocks. */
void lent_cut(struct kv_lent *lent, uint32_t n);
void lent_destroy(struct kv_lent *lent);

#endif
