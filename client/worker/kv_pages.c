/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kv_pages.h"

/* ---- pools ---- */

int kv_pool_create(uint64_t page_bytes, uint32_t pages, struct kv_pool **ret_pool)
{
    struct kv_pool *p = calloc(1, sizeof(*p));
    uint32_t *free_page = calloc(pages, sizeof(*free_page));
    uint64_t bytes = 0;
    char *base = MAP_FAILED;
    if (p && free_page && !__builtin_mul_overflow(page_bytes, pages, &bytes))
        base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        free(free_page);
        free(p);
        return -ENOMEM;
    }
    *p = (struct kv_pool){.base = base,
                          .page_bytes = page_bytes,
                          .bytes = bytes,
                          .pages = pages,
                          .free_page = free_page,
                          .users = 1};
    *ret_pool = p;
    return 0;
}

struct kv_pool *kv_pool_share(struct kv_pool *pool)
{
    pool->users++;
    return pool;
}

/* Takes one user away; the last one frees the pool. Accepts a pointer to NULL. */
static void kv_pool_leave(struct kv_pool **pool)
{
    struct kv_pool *p = *pool;
    *pool = NULL;
    if (!p || --p->users > 0)
        return;
    (void)munmap(p->base, p->bytes);
    free(p->free_page);
    free(p);
}

/* ---- a sequence's pages ---- */

/* Makes room for n page numbers, if there is not enough. */
static int numbers_grow(uint32_t **number, uint32_t *room, uint32_t n)
{
    if (n <= *room)
        return 0;
    const uint32_t more = n > 2 * *room ? n : 2 * *room;
    uint32_t *grown = realloc(*number, more * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    *number = grown;
    *room = more;
    return 0;
}

int table_grow(struct kv_table *t, uint32_t n)
{
    struct kv_pool *p = t->pool;
    const int rc = numbers_grow(&t->page, &t->room, n);
    if (rc != 0)
        return rc;
    while (t->n < n) {
        if (p->frees == 0 && p->fresh == p->pages)
            return -ENOSPC;
        t->page[t->n++] = p->frees > 0 ? p->free_page[--p->frees] : p->fresh++;
    }
    return 0;
}

void table_cut(struct kv_table *t, uint32_t n)
{
    while (t->n > n)
        t->pool->free_page[t->pool->frees++] = t->page[--t->n];
}

void table_shift(struct kv_table *t)
{
    t->pool->free_page[t->pool->frees++] = t->page[0];
    memmove(t->page, t->page + 1, --t->n * sizeof(*t->page));
}

void table_destroy(struct kv_table *t)
{
    if (t->pool)
        table_cut(t, 0);
    kv_pool_leave(&t->pool);
    free(t->page);
    *t = (struct kv_table){0};
}

int table_write(const struct kv_table *t, const struct kv_layout *l, uint32_t before,
                uint32_t layer, uint32_t first, uint32_t n, const float *k, const float *v)
{
    const size_t row = (size_t)l->kv_heads * l->head_size;
    int rc = 0;
    for (uint32_t done = 0; rc == 0 && done < n;) {
        const uint32_t at = (first + done) % l->tokens;
        const uint32_t here = n - done < l->tokens - at ? n - done : l->tokens - at;
        const uint32_t page = t->page[(first + done) / l->tokens - before];
        rc = kv_rows_put(l, layer, at, here, k + done * row, v + done * row,
                         pool_page(t->pool, page));
        done += here;
    }
    return rc;
}

/* ---- the daemon's blocks ---- */

static uint64_t common_step(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Computes base, step and page numbers of the first n blocks. */
static int lent_number(struct kv_lent *t, uint32_t n)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    uint64_t step = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t at = (uintptr_t)t->block[i];
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    for (uint32_t i = 0; i < n; i++)
        step = common_step((uintptr_t)t->block[i] - low, step);
    step = step > 0 ? step : 64;
    if (step % 64 != 0 || (high - low) / step >= UINT32_MAX)
        return -ERANGE;
    for (uint32_t i = 0; i < n; i++)
        t->page[i] = (uint32_t)(((uintptr_t)t->block[i] - low) / step);
    t->base = (const char *)low;
    t->step = step;
    t->n = n;
    return 0;
}

int lent_add(struct kv_lent *t, const struct kvc_block *block, uint32_t n)
{
    const uint32_t before = t->n, all = before + n;
    const char **grown = realloc(t->block, all * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    t->block = grown;
    int rc = numbers_grow(&t->page, &t->room, all);
    if (rc != 0)
        return rc;
    for (uint32_t i = 0; i < n; i++)
        t->block[before + i] = block[i].data;
    rc = lent_number(t, all);
    return rc;
}

void lent_cut(struct kv_lent *t, uint32_t n)
{
    t->n = n < t->n ? n : t->n;
}

void lent_destroy(struct kv_lent *t)
{
    free(t->block);
    free(t->page);
    *t = (struct kv_lent){0};
}
