/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's rules as fibres have them: a kernel that breaks one ends the process, with its reason on
 * stderr. */
#include <kvcache/attention.h>
#include <signal.h>
#include <stdint.h>

#include "cases.h"
#include "fibres.h"

static const unsigned one[3] = {1, 1, 1}, warp[3] = {32, 1, 1};

CASE_EACH(threads_meet_before_they_go_on, 2)
{
    uint32_t neighbour[3 * 96];
    uint32_t *to = neighbour;
    void *args[] = {&to};
    const unsigned three[3] = {3, 1, 1}, threads[3] = {96, 1, 1};
    fibres_run("rules_neighbour", three, threads, _i != 0, args);
    for (uint32_t i = 0; i < 3 * 96; i++)
        ck_assert_uint_eq(neighbour[i], i / 96 * 96 + (i + 1) % 96);
}

CASE_EACH(warps_go_their_own_ways_in_between, 2)
{
    uint32_t sum = 0;
    uint32_t *to = &sum;
    void *args[] = {&to};
    const unsigned threads[3] = {128, 1, 1};
    fibres_run("rules_uneven", one, threads, _i != 0, args);
    ck_assert_uint_eq(sum, 63 * 64 / 2);
}

static void copies_run(const uint32_t *from, uint32_t *ret, uint32_t waits)
{
    void *args[] = {&from, &ret, &waits};
    fibres_run("rules_copies", one, one, false, args);
}

CASE(a_copy_is_there_once_it_is_waited_for)
{
    const uint32_t from[2] = {3, 4};
    uint32_t ret[3] = {0};
    copies_run(from, ret, 1);
    ck_assert_uint_eq(ret[0], 3);
    ck_assert_uint_eq(ret[1], UINT32_MAX);
    ck_assert_uint_eq(ret[2], 4);
}

CASE_DIES(a_thread_waits_for_its_copies_before_it_ends, SIGABRT)
{
    const uint32_t from[2] = {3, 4};
    uint32_t ret[3] = {0};
    copies_run(from, ret, 0);
}

CASE_DIES(a_copy_is_aligned, SIGABRT)
{
    _Alignas(4) uint8_t from[12] = {0};
    uint32_t ret[3] = {0};
    copies_run((const uint32_t *)(const void *)(from + 1), ret, 1);
}

CASE_DIES_EACH(threads_that_wait_for_ever_abort, SIGABRT, 2)
{
    uint32_t sum = 0;
    uint32_t *to = &sum;
    void *args[] = {&to};
    fibres_run("rules_lane_missing", one, warp, _i != 0, args);
}

CASE_DIES(a_name_that_there_is_not_aborts, SIGABRT)
{
    fibres_run("kvc_nothing", one, warp, false, NULL);
}

CASE_DIES(part_of_a_warp_cannot_shuffle, SIGABRT)
{
    uint32_t sum = 0;
    uint64_t words = 0;
    _Alignas(16) uint32_t kv[4] = {0};
    const uint32_t *from = kv;
    uint32_t *to = &sum;
    void *args[] = {&from, &words, &to};
    const unsigned half[3] = {16, 1, 1};
    fibres_run("kvc_decode", one, half, false, args);
}

CASE_DIES(an_address_must_be_aligned, SIGABRT)
{
    uint32_t sum = 0;
    uint64_t words = 4;
    _Alignas(16) uint32_t kv[8] = {0};
    const uint32_t *from = kv + 1;
    uint32_t *to = &sum;
    void *args[] = {&from, &words, &to};
    fibres_run("kvc_decode", one, warp, false, args);
}

CASE_DIES(a_block_has_1024_threads_at_most, SIGABRT)
{
    const unsigned large[3] = {1025, 1, 1};
    fibres_run("kvc_decode", one, large, false, NULL);
}
