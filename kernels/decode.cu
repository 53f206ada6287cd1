/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads as wide as attention's, several of each thread in flight; what is computed of them costs
 * next to nothing, and depends on all of them.
 */
#include <kvcache/kernels.h>

#include <stdint.h>

enum { WARP = 32, UNROLL = 8 };

extern "C" __global__ void __launch_bounds__(KVC_DECODE_THREADS)
    KVC_DECODE_KERNEL(const uint32_t *kv, uint64_t words, uint32_t *ret_sum)
{
    const uint4 *units = reinterpret_cast<const uint4 *>(kv);
    const uint64_t n = words / 4, step = (uint64_t)gridDim.x * blockDim.x;
    uint64_t at = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t sum = 0;
    for (; at + (UNROLL - 1) * step < n; at += UNROLL * step) {
        uint4 held[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            held[k] = __ldcs(units + at + k * step);
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            sum += held[k].x + held[k].y + held[k].z + held[k].w;
    }
    for (; at < n; at += step) {
        const uint4 held = __ldcs(units + at);
        sum += held.x + held.y + held.z + held.w;
    }
    for (int lane = WARP / 2; lane > 0; lane /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, lane);
    if (threadIdx.x % WARP == 0)
        atomicAdd(ret_sum, sum);
}
