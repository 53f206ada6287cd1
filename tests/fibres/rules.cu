/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that test_fibres.c needs: what threads of a block may do, and what they may not. */
#include <cuda_pipeline.h>
#include <stdint.h>

/* Each thread's neighbour's number, told through shared memory: without waiting it is not there. */
extern "C" __global__ void rules_neighbour(uint32_t *ret_neighbour)
{
    __shared__ uint32_t number[256];
    number[threadIdx.x] = blockIdx.x * blockDim.x + threadIdx.x;
    __syncthreads();
    ret_neighbour[blockIdx.x * blockDim.x + threadIdx.x] = number[(threadIdx.x + 1) % blockDim.x];
}

/* A warp that has shuffles to do before it meets the others, and threads that have ended. */
extern "C" __global__ void rules_uneven(uint32_t *ret_sum)
{
    if (threadIdx.x >= 64)
        return;
    uint32_t x = threadIdx.x;
    for (uint32_t i = 0; i < threadIdx.x / 32 * 3; i++)
        x = __shfl_xor_sync(0xffffffffu, x, 1);
    __syncthreads();
    atomicAdd(ret_sum, x);
}

/* One lane does not take part. */
extern "C" __global__ void rules_lane_missing(uint32_t *ret_sum)
{
    if (threadIdx.x == 3)
        __syncthreads();
    else
        *ret_sum += __shfl_down_sync(0xffffffffu, 1u, 1);
    __syncthreads();
}

/* Two copies, of which it waits for the first; then, if it is to, for the second. */
extern "C" __global__ void rules_copies(const uint32_t *from, uint32_t *ret, uint32_t waits)
{
    __shared__ uint32_t here[2];
    __pipeline_memcpy_async(&here[0], &from[0], sizeof(uint32_t));
    __pipeline_commit();
    __pipeline_memcpy_async(&here[1], &from[1], sizeof(uint32_t));
    __pipeline_commit();
    __pipeline_wait_prior(1);
    ret[0] = here[0];
    ret[1] = here[1];
    if (!waits)
        return;
    __pipeline_wait_prior(0);
    ret[2] = here[1];
}
