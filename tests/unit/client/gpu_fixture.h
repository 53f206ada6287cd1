/* SPDX-License-Identifier: Apache-2.0 */
/* A worker with paged memory on an emulated device: two layers, K and V in regions of their own,
 * two pages for each block. */
#ifndef KVC_TEST_CLIENT_GPU_FIXTURE_H
#define KVC_TEST_CLIENT_GPU_FIXTURE_H

#include <kvcache/gpu.h>

#include "fixture.h"

#define REGIONS    4u
#define PAGES      32u
#define PPB        2u
#define PAGE_BYTES (FAKE_BLOCK_BYTES / REGIONS / PPB)

static struct kvc_gpu *gpu;
static struct kvc_mem *mem;
static uint8_t *memory;
static struct kvc_pool_region regions[REGIONS];
static struct kvc_pool *pool;

static inline struct kvc_pool_spec pool_spec(void)
{
    for (uint32_t r = 0; r < REGIONS; r++)
        regions[r] = (struct kvc_pool_region){.mem = mem,
                                              .base = (uint64_t)r * PAGES * PAGE_BYTES,
                                              .stride_bytes = PAGE_BYTES,
                                              .page_bytes = PAGE_BYTES,
                                              .layer = r / 2};
    return (struct kvc_pool_spec){
        .pages_max = PAGES,
        .groups = 1,
        .group = {{.pages_per_block = PPB, .regions = REGIONS, .region = regions}}};
}

static inline void open_gpu(void)
{
    void *at;
    ck_assert_msg(kvc_gpu_open(kvc, "emu:0", &gpu) == 0, "%s", kvc_last_error(kvc));
    ck_assert_int_eq(kvc_mem_alloc(gpu, (uint64_t)REGIONS * PAGES * PAGE_BYTES, &at, &mem), 0);
    memory = at;
}

/* Calls start_open(), and opens a device with memory. */
static inline void start_gpu(void)
{
    start_open();
    open_gpu();
}

static inline void start_pool(void)
{
    start_gpu();
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(kvc));
}

static inline uint8_t *page_of(uint32_t region, uint32_t page)
{
    return memory + ((size_t)region * PAGES + page) * PAGE_BYTES;
}

static inline bool is_filled(const uint8_t *p, uint8_t byte, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] != byte)
            return false;
    }
    return true;
}

static inline void fill_page(uint32_t page, uint8_t byte)
{
    for (uint32_t r = 0; r < REGIONS; r++)
        memset(page_of(r, page), byte, PAGE_BYTES);
}

static inline bool page_is(uint32_t page, uint8_t byte)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        if (!is_filled(page_of(r, page), byte, PAGE_BYTES))
            return false;
    }
    return true;
}

/* Whether the block's pages hold what the fake daemon writes for it. */
static inline bool block_is(uint32_t block, const uint32_t *pages)
{
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t j = 0; j < PPB; j++) {
            if (!is_filled(page_of(r, pages[j]), fake_page_byte(block, r, j), PAGE_BYTES))
                return false;
        }
    }
    return true;
}

#endif
