/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread block is a rectangle: x runs along a page, y over fragments, so that pages of a few
 * hundred bytes still fill warps and no thread divides. Each thread keeps UNROLL loads in flight.
 */
#include "paged.h"

#include <cuda_runtime.h>
#include <errno.h>

enum { THREADS = 256, UNROLL = 4, GRID_Y_MAX = 65535 };

template <typename T, bool GATHER>
__global__ void __launch_bounds__(THREADS)
    copy_pages(char *base, uint64_t stride_bytes, uint64_t page_units, uint32_t pages_max,
               const uint32_t *__restrict__ pages, uint32_t page_count, char *packed,
               uint32_t *bad_pages)
{
    uint64_t fragment = (uint64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (fragment >= page_count)
        return;

    uint32_t page = pages[fragment];
    if (page >= pages_max) {
        if (blockIdx.y == 0 && threadIdx.x == 0)
            atomicAdd(bad_pages, 1u);
        return;
    }

    T *scattered = reinterpret_cast<T *>(base + page * stride_bytes);
    T *contiguous = reinterpret_cast<T *>(packed) + fragment * page_units;
    const T *from = GATHER ? scattered : contiguous;
    T *to = GATHER ? contiguous : scattered;

    uint64_t step = (uint64_t)gridDim.y * blockDim.x * UNROLL;
    for (uint64_t first = (uint64_t)blockIdx.y * blockDim.x * UNROLL + threadIdx.x;
         first < page_units; first += step) {
        T held[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (first + (uint64_t)k * blockDim.x < page_units)
                held[k] = from[first + (uint64_t)k * blockDim.x];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            if (first + (uint64_t)k * blockDim.x < page_units)
                to[first + (uint64_t)k * blockDim.x] = held[k];
    }
}

template <typename T, bool GATHER>
static int launch(const struct kvc_paged *paged, const uint32_t *pages, uint32_t page_count,
                  void *packed, uint32_t *bad_pages, cudaStream_t stream)
{
    uint64_t page_units = paged->page_bytes / sizeof(T);
    unsigned along = 1;
    while (along < THREADS && along < page_units)
        along *= 2;

    dim3 block(along, THREADS / along);
    uint64_t per_pass = (uint64_t)along * UNROLL;
    uint64_t slices = (page_units + per_pass - 1) / per_pass;
    dim3 grid((page_count + block.y - 1) / block.y,
              (unsigned)(slices < GRID_Y_MAX ? slices : GRID_Y_MAX));

    copy_pages<T, GATHER><<<grid, block, 0, stream>>>(
        static_cast<char *>(paged->base), paged->stride_bytes, page_units, paged->pages_max, pages,
        page_count, static_cast<char *>(packed), bad_pages);
    return cudaGetLastError() == cudaSuccess ? 0 : -EIO;
}

template <bool GATHER>
static int copy(const struct kvc_paged *paged, const uint32_t *pages, uint32_t page_count,
                void *packed, uint32_t *bad_pages, void *stream)
{
    int rc = paged_check(paged, pages, page_count, packed, bad_pages);
    if (rc < 0 || page_count == 0)
        return rc;

    cudaStream_t on = static_cast<cudaStream_t>(stream);
    uint64_t alignment = reinterpret_cast<uintptr_t>(paged->base) |
                         reinterpret_cast<uintptr_t>(packed) | paged->stride_bytes |
                         paged->page_bytes;
    if (alignment % 16 == 0)
        return launch<uint4, GATHER>(paged, pages, page_count, packed, bad_pages, on);
    if (alignment % 4 == 0)
        return launch<uint32_t, GATHER>(paged, pages, page_count, packed, bad_pages, on);
    return launch<uint8_t, GATHER>(paged, pages, page_count, packed, bad_pages, on);
}

extern "C" int kvc_gather_cuda(const struct kvc_paged *from, const uint32_t *pages,
                               uint32_t page_count, void *ret_packed, uint32_t *ret_bad_pages,
                               void *stream)
{
    return copy<true>(from, pages, page_count, ret_packed, ret_bad_pages, stream);
}

extern "C" int kvc_scatter_cuda(const struct kvc_paged *to, const uint32_t *pages,
                                uint32_t page_count, const void *packed, uint32_t *ret_bad_pages,
                                void *stream)
{
    /* The scattering instance only reads through the packed pointer. */
    return copy<false>(to, pages, page_count, const_cast<void *>(packed), ret_bad_pages, stream);
}
