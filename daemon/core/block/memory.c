/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates the core's memory once, in core_create(): pages for large tables, pools, and pools of
 * which each holder has a share.
 */
#include <sys/mman.h>

#include "block.h"
#include "sys.h"

#define LARGE_PAGE (UINT64_C(2) << 20)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; headers may be older */
#endif

/* Maps zeroed pages, which cost nothing until they are used; no libc heap is involved. A lookup
 * reads them at random places, so huge pages are asked for; where these are refused, small ones
 * do. */
void *core__pages(uint64_t bytes)
{
    void *p = sys_pages(bytes);
    if (!p)
        return NULL;
    (void)madvise(p, bytes, MADV_HUGEPAGE);
    if (bytes >= LARGE_PAGE) /* else the first store clears some of each table in one turn: 5 ms;
                                what follows is touched in the background (core.c) */
        (void)madvise(p, LARGE_PAGE, MADV_POPULATE_WRITE);
    return p;
}

void core__pages_put(void *p, uint64_t bytes)
{
    if (p)
        MUST(munmap(p, bytes) == 0);
}

int core__fair_share(const struct core *c, struct share *s, uint64_t total, uint32_t holders)
{
    return share_create(s, total, c->cfg.fair ? share_each(total, holders) : 0, holders);
}

int core__shared_pool(const struct core *c, struct pool **ret_pool, struct share *share,
                      const char *name, size_t bytes, uint32_t n, uint32_t holders)
{
    const int err = core__fair_share(c, share, n, holders);
    return err ? err : pool_create(ret_pool, name, bytes, n);
}

void core__shared_pool_free(struct pool **pool, struct share *share)
{
    pool_destroy(pool);
    share_destroy(share);
}

/* Slices at a time: with several principals one each, so that none has to wait for another. */
uint32_t core__slices_max(const struct core_config *cfg)
{
    return MAX(CORE_VERIFY_SLICES, cfg->principals_max);
}
