/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's execution model on a CPU, so that an unchanged kernel source (.cu) runs without a GPU. The
 * host's C++ compiler includes this header before the kernel. Blocks run one after another. A
 * thread of a block runs until it waits for others; from then on it has its own stack. What a
 * device would not forgive ends the process with a line on stderr: an unaligned address, lanes of a
 * mask that have ended, threads that wait for each other for ever.
 */
#ifndef TESTS_CUDA_FIBRES_H
#define TESTS_CUDA_FIBRES_H

#include <stdint.h>
#include <string.h>

struct cuda_dim {
    unsigned x, y, z;
};

namespace fibres
{

enum { THREADS_MAX = 1024, WARP_LANES = 32 };

[[noreturn]] void wrong(const char *what);

/* A meeting of the threads of a block or of a warp. */
struct meeting {
    unsigned members, arrived; /* members: threads that have not ended */
    uint64_t round;
};

/* An asynchronous copy that a thread has begun and not yet waited for. */
struct copy {
    void *to;
    const void *from;
    unsigned bytes;
    uint64_t group;
};

struct fibre {
    void *sp; /* stack pointer while another thread runs */
    char *stack;
    void *fake; /* belongs to AddressSanitizer */
    cuda_dim thread;
    unsigned flat; /* the thread's number in its block; THREADS_MAX: it has ended */
    copy *copies;
    unsigned ncopies, copies_max;
    uint64_t group; /* the group of copies that is open */
};

/* The running block; each thread of the process runs one at a time. */
struct block {
    cuda_dim index, size, grid;
    fibre all[THREADS_MAX];
    unsigned fibres, now; /* fibres: how many threads the block has; now: the running one */
    unsigned threads, begun;
    bool backwards; /* the order in which threads get their turn */
    fibre home;     /* the scheduler's own context */
    const void *home_stack;
    size_t home_bytes;
    meeting whole, warp[THREADS_MAX / WARP_LANES];
    uint64_t slot[THREADS_MAX]; /* values that lanes exchange */
    uint64_t moves;             /* counts threads that ended and meetings that took place */
    void (*body)(void *ctx);
    void *ctx;
};
extern thread_local block *here;

/* Lets other threads run. */
void yield();

/* ---- copies ---- */

void copy_later(void *to, const void *from, size_t bytes);
void copies_close();
/* Makes the copies of all closed groups except the last `groups`. */
void copies_wait(size_t groups);

/* ---- meetings ---- */

inline void hold_if_all(meeting *m)
{
    if (m->members == 0 || m->arrived < m->members)
        return;
    m->arrived = 0;
    m->round++;
    here->moves++;
}

inline void meet(meeting *m)
{
    const uint64_t round = m->round;
    m->arrived++;
    hold_if_all(m);
    while (m->round == round)
        yield();
}

inline meeting *my_warp()
{
    return &here->warp[here->all[here->now].flat / WARP_LANES];
}

/* Each lane gives a value and gets that of another lane, or its own if that lane does not exist. */
template <typename T> T exchange(unsigned mask, T value, unsigned from)
{
    static_assert(sizeof(T) <= sizeof(uint64_t), "a shuffle passes up to 8 bytes");
    const unsigned me = here->all[here->now].flat, first = me / WARP_LANES * WARP_LANES;
    if (mask != 0xffffffffu || my_warp()->members != WARP_LANES)
        wrong("a shuffle or vote without all 32 lanes of the warp");
    memcpy(&here->slot[me], &value, sizeof(value));
    meet(my_warp());
    if (from < WARP_LANES)
        memcpy(&value, &here->slot[first + from], sizeof(value));
    meet(my_warp());
    return value;
}

inline unsigned lane()
{
    return here->all[here->now].flat % WARP_LANES;
}

template <typename T> void check_aligned(const T *p)
{
    if ((uintptr_t)p % sizeof(T) != 0)
        wrong("an address is not a multiple of the size of what is read or written there");
}

} // namespace fibres

/* ---- language elements of CUDA ---- */

#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__      static thread_local
#define __launch_bounds__(...)
#define __CUDACC__ 1
#define blockIdx   (fibres::here->index)
#define blockDim   (fibres::here->size)
#define gridDim    (fibres::here->grid)
#define threadIdx  (fibres::here->all[fibres::here->now].thread)

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(8) float2 {
    float x, y;
};

inline void __syncthreads()
{
    fibres::meet(&fibres::here->whole);
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    (void)fibres::exchange(mask, 0, fibres::lane());
}

template <typename T> T __shfl_down_sync(unsigned mask, T value, unsigned by)
{
    return fibres::exchange(mask, value, fibres::lane() + by);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, unsigned with)
{
    return fibres::exchange(mask, value, fibres::lane() ^ with);
}

template <typename T> T __shfl_sync(unsigned mask, T value, unsigned from)
{
    return fibres::exchange(mask, value, from % fibres::WARP_LANES);
}

template <typename T> T __ldcs(const T *p)
{
    fibres::check_aligned(p);
    return *p;
}

template <typename T> void __stcs(T *p, T value)
{
    fibres::check_aligned(p);
    *p = value;
}

/* Byte i of the result is the byte of the eight in x and y that nibble i of the selector names. */
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t all = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; i++)
        result |= (unsigned)(all >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

inline unsigned atomicAdd(unsigned *p, unsigned by)
{
    fibres::check_aligned(p);
    return __atomic_fetch_add(p, by, __ATOMIC_RELAXED);
}

#endif
