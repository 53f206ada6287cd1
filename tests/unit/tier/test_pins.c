/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as registered buffers: piece by piece, taken back whole, and never needed. */
#include "cases.h"
#include "pins.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "fault.h"

#define MIB (UINT64_C(1) << 20)

static struct loop *make_loop(enum loop_backend want, unsigned buffers)
{
    const struct loop_config config = {.want = want, .watches_max = 1, .buffers_max = buffers};
    struct loop *loop = NULL;
    ck_assert_int_eq(loop_create(&config, &loop), 0);
    return loop;
}

static uint8_t *map(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

static struct pins_stats stats(const struct pins *p)
{
    struct pins_stats s;
    pins_stats(p, &s);
    return s;
}

CASE(pieces_cover_chunks_as_far_as_numbers_go)
{
    ck_assert_uint_eq(pins_buffers(3, 2 * MIB), 3);
    ck_assert_uint_eq(pins_buffers(3, 16 * MIB), 3);
    ck_assert_uint_eq(pins_buffers(3, 40 * MIB), 9);
    ck_assert_uint_eq(pins_buffers(17, 1024 * MIB), 17 * 64);
    ck_assert_uint_eq(pins_buffers(128, 1024 * MIB), 4096);
    ck_assert_uint_eq(pins_buffers(10000, 1024 * MIB), LOOP_BUFFERS_MAX);
}

CASE_RANGE(a_chunk_is_registered_in_pieces_and_forgotten_whole, LOOP_URING, LOOP_EPOLL + 1)
{
    enum { CHUNK_MIB = 40 };
    const unsigned buffers = pins_buffers(2, CHUNK_MIB * MIB);
    struct loop *loop = make_loop((enum loop_backend)_i, buffers);
    struct pins *p = NULL;
    uint8_t *mem = map(CHUNK_MIB * MIB);
    ck_assert_int_eq(pins_create(loop, buffers, 2, CHUNK_MIB * MIB, &p), 0);
    bool more = pins_step(p, 1, mem);
    if (stats(p).error != 0) { /* epoll, or little memory may be locked */
        ck_assert(!more && pins_is_done(p, 0) && pins_is_done(p, 1));
        ck_assert(stats(p).error == -EOPNOTSUPP || stats(p).error == -ENOMEM);
    } else {
        ck_assert_int_eq(_i, LOOP_URING);
        ck_assert(more && !pins_is_done(p, 1));
        ck_assert_uint_eq(stats(p).bytes, 16 * MIB);
        ck_assert(pins_step(p, 1, mem));
        ck_assert(!pins_step(p, 1, mem) && pins_is_done(p, 1) && !pins_is_done(p, 0));
        ck_assert_uint_eq(stats(p).bytes, CHUNK_MIB * MIB);
    }
    pins_forget(p, 1);
    pins_forget(p, 0);
    ck_assert_uint_eq(stats(p).bytes, 0);
    ck_assert(pins_is_done(p, 2)); /* beyond the numbers there are: never */
    pins_forget(p, 2);
    pins_destroy(&p);
    loop_destroy(&loop);
    munmap(mem, CHUNK_MIB * MIB);
}

CASE(a_refusal_ends_it_and_costs_nothing_else)
{
    struct loop *loop = make_loop(LOOP_AUTO, 2);
    struct pins *p = NULL;
    uint8_t *mem = map(4 * MIB);
    ck_assert_int_eq(pins_create(loop, 2, 2, 2 * MIB, &p), 0);
    ck_assert_int_eq(fault_arm("map", 1), 0);
    ck_assert(!pins_step(p, 0, mem));
    fault_reset();
    ck_assert(stats(p).error == -ENOMEM || stats(p).error == -EOPNOTSUPP);
    ck_assert(pins_is_done(p, 0) && pins_is_done(p, 1));
    ck_assert_uint_eq(stats(p).bytes, 0);
    pins_destroy(&p);
    loop_destroy(&loop);
    munmap(mem, 4 * MIB);
}
