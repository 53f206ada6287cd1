/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The count sees what our objects allocate, on the armed thread, and nothing else. Check is a
 * static library here, so its assertions are counted too: each test takes its counts before it
 * asserts.
 */
#include "alloc_count.h"
#include "cases.h"
#include "own.h"

#include <pthread.h>
#include <zmq.h>

CASE(counts_nothing_before_it_is_armed)
{
    own_allocate_eight_times();
    ck_assert_uint_eq(alloc_count_read(), 0);
}

CASE(counts_each_call_of_a_static_library)
{
    alloc_count_arm();
    own_allocate_eight_times();
    uint64_t counted = alloc_count_read();
    ck_assert_uint_eq(counted, 8);
}

CASE(does_not_count_inside_a_shared_library)
{
    alloc_count_arm();
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, ZMQ_ROUTER);
    uint64_t counted = alloc_count_read();
    ck_assert_ptr_nonnull(socket);
    ck_assert_int_eq(zmq_close(socket), 0);
    ck_assert_int_eq(zmq_ctx_term(context), 0);
    ck_assert_uint_eq(counted, 0);
}

static void *allocate_elsewhere(void *ret_count)
{
    own_allocate_eight_times();
    *(uint64_t *)ret_count = alloc_count_read();
    return NULL;
}

CASE(does_not_count_other_threads)
{
    uint64_t counted_there = 99;
    pthread_t thread;

    alloc_count_arm();
    int created = pthread_create(&thread, NULL, allocate_elsewhere, &counted_there);
    int joined = pthread_join(thread, NULL);
    uint64_t counted_here = alloc_count_read();
    ck_assert_int_eq(created, 0);
    ck_assert_int_eq(joined, 0);
    ck_assert_uint_eq(counted_there, 0);
    ck_assert_uint_eq(counted_here, 0);
}
