/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One warp copies a fragment at a time. The entry of its next fragment is on its way while it
 * copies, for both may have to come from host memory, a microsecond away.
 */
#include <kvcache/kernels.h>

#include <stdint.h>

enum { WARP = 32, UNROLL = 8 };

/* Fewer than UNROLL * WARP units, all of a lane's loads in flight: one after the other, each would
 * wait for the link. */
template <typename T>
__device__ static void copy_rest(T *to, const T *from, unsigned units, unsigned lane)
{
    T held[UNROLL] = {}; /* so that no register keeps what was never loaded */
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (lane + k * WARP < units)
            held[k] = __ldcs(from + lane + k * WARP);
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (lane + k * WARP < units)
            __stcs(to + lane + k * WARP, held[k]);
}

/* A warp wide, UNROLL loads of each lane in flight. What is read and written once is the first to
 * leave the caches again. */
template <typename T>
__device__ static void copy_units(T *to, const T *from, uint64_t units, unsigned lane)
{
#pragma unroll 1
    for (; units >= UNROLL * WARP; units -= UNROLL * WARP) {
        T held[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            held[k] = __ldcs(from + lane + k * WARP);
#pragma unroll
        for (int k = 0; k < UNROLL; k++)
            __stcs(to + lane + k * WARP, held[k]);
        to += UNROLL * WARP;
        from += UNROLL * WARP;
    }
    if (units > 0)
        copy_rest(to, from, (unsigned)units, lane);
}

/* In units of T as far as they go, the rest in bytes. */
template <typename T>
__device__ static void copy_as(const struct kvc_frag *frag, unsigned lane)
{
    const uint64_t units = frag->bytes / sizeof(T);
    const uint64_t whole = units * sizeof(T);
    copy_units(reinterpret_cast<T *>(frag->to), reinterpret_cast<const T *>(frag->from), units,
               lane);
    if (whole < frag->bytes)
        copy_rest(reinterpret_cast<uint8_t *>(frag->to + whole),
                  reinterpret_cast<const uint8_t *>(frag->from + whole),
                  (unsigned)(frag->bytes - whole), lane);
}

extern "C" __global__ void __launch_bounds__(KVC_FRAGS_THREADS)
    KVC_FRAGS_KERNEL(const struct kvc_frag *list, uint32_t n)
{
    const unsigned lane = threadIdx.x % WARP;
    const uint64_t warps = (uint64_t)gridDim.x * blockDim.x / WARP;
    uint64_t i = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (i >= n)
        return;
    struct kvc_frag frag = list[i];
    for (;;) {
        const uint64_t next = i + warps;
        struct kvc_frag ahead = {0, 0, 0};
        if (next < n)
            ahead = list[next];
        const uint64_t address = frag.to | frag.from;
        if (address % sizeof(uint4) == 0)
            copy_as<uint4>(&frag, lane);
        else if (address % sizeof(uint32_t) == 0)
            copy_as<uint32_t>(&frag, lane);
        else
            copy_as<uint8_t>(&frag, lane);
        if (next >= n)
            return;
        i = next;
        frag = ahead;
    }
}
