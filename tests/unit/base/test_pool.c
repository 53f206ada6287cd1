/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"
#include "fault.h"
#include "pool.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

struct thing {
    uint64_t a;
    uint8_t b[13];
};

static struct pool *pool;

static void setup(void)
{
    ck_assert_int_eq(pool_create(&pool, "thing", sizeof(struct thing), 4), 0);
}

static void teardown(void)
{
    pool_destroy(&pool);
    ck_assert_ptr_null(pool);
}

CASES(.setup = setup, .teardown = teardown);

CASE(an_empty_pool_gives_null)
{
    void *obj[4];
    for (unsigned i = 0; i < 4; i++)
        ck_assert_ptr_nonnull(obj[i] = pool_get(pool));
    ck_assert_ptr_null(pool_get(pool));
    pool_put(pool, obj[2]);
    ck_assert_ptr_eq(pool_get(pool), obj[2]);
    ck_assert_ptr_null(pool_get(pool));
}

CASE(used_and_peak_are_counted)
{
    ck_assert_uint_eq(pool_used(pool), 0);
    void *a = pool_get(pool), *b = pool_get(pool);
    ck_assert_uint_eq(pool_used(pool), 2);
    pool_put(pool, a);
    pool_put(pool, b);
    ck_assert_uint_eq(pool_used(pool), 0);
    ck_assert_uint_eq(pool_peak(pool), 2);
    ck_assert_uint_eq(pool_count(pool), 4);
    ck_assert_str_eq(pool_name(pool), "thing");
}

CASE(objects_are_zeroed_each_time)
{
    struct thing *t = pool_get(pool);
    memset(t, 0xee, sizeof(*t));
    pool_put(pool, t);
    t = pool_get(pool);
    static const struct thing zero;
    ck_assert_mem_eq(t, &zero, sizeof(zero));
}

CASE(index_and_at_are_inverse)
{
    void *a = pool_get(pool), *b = pool_get(pool);
    ck_assert_uint_ne(pool_index(pool, a), pool_index(pool, b));
    ck_assert_ptr_eq(pool_at(pool, pool_index(pool, a)), a);
    ck_assert_ptr_eq(pool_at(pool, pool_index(pool, b)), b);
    const uint32_t freed = pool_index(pool, a);
    pool_put(pool, a);
    ck_assert_ptr_null(pool_at(pool, freed));
    ck_assert_ptr_null(pool_at(pool, 3)); /* never used */
}

CASE(next_finds_all_in_use_in_order)
{
    struct pool *many = NULL;
    const struct thing *t;
    void *obj[200];
    uint32_t found = 0, expected[200], n = 0;
    POOL_FOR_EACH (t, i, (struct pool *)NULL)
        found++;
    ck_assert_uint_eq(found, 0);
    ck_assert_int_eq(pool_create(&many, "many", sizeof(struct thing), 300), 0);
    POOL_FOR_EACH (t, i, many)
        found++;
    ck_assert_uint_eq(found, 0);
    for (uint32_t i = 0; i < 200; i++)
        obj[i] = pool_get(many);
    for (uint32_t i = 0; i < 200; i++) {
        if (i == 0 || i == 63 || i == 64 || (i > 70 && i < 197) || i == 199)
            pool_put(many, obj[i]);
        else
            expected[n++] = i;
    }
    POOL_FOR_EACH (t, i, many) {
        ck_assert_uint_lt(found, n);
        ck_assert_uint_eq(i, expected[found++]);
        ck_assert_ptr_eq(t, obj[i]);
    }
    ck_assert_uint_eq(found, n);
    POOL_FOR_EACH (t, i, many)
        pool_put(many, obj[i]);
    ck_assert_uint_eq(pool_used(many), 0);
    pool_destroy(&many);
}

CASE(objects_are_aligned_as_their_type)
{
    struct wide {
        _Alignas(64) uint8_t b[64];
    };
    struct pool *wide = NULL;
    ck_assert_int_eq(pool_create(&wide, "wide", sizeof(struct wide), 100), 0);
    for (unsigned i = 0; i < 100; i++)
        ck_assert_uint_eq((uintptr_t)pool_get(wide) % 64, 0);
    pool_destroy(&wide);
}

CASE(tiny_objects_do_not_overlap)
{
    struct pool *tiny = NULL;
    ck_assert_int_eq(pool_create(&tiny, "tiny", 1, 200), 0);
    uint8_t *obj[200];
    for (unsigned i = 0; i < 200; i++) {
        ck_assert_ptr_nonnull(obj[i] = pool_get(tiny));
        *obj[i] = (uint8_t)i;
    }
    for (unsigned i = 0; i < 200; i++)
        ck_assert_uint_eq(*obj[i], i);
    for (unsigned i = 0; i < 200; i += 2)
        pool_put(tiny, obj[i]);
    for (unsigned i = 1; i < 200; i += 2)
        ck_assert_uint_eq(*obj[i], i);
    pool_destroy(&tiny);
}

/* Random gets and puts against a list of what is held. */
CASE(random_use_keeps_every_object_whole)
{
    enum { COUNT = 97 };
    struct pool *p = NULL;
    uint32_t *held[COUNT], n = 0, peak = 0;
    uint64_t seed = 20251121;
    ck_assert_int_eq(pool_create(&p, "random", 3 * sizeof(uint32_t), COUNT), 0);
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t roll = (uint32_t)(seed >> 33);
        if (roll % 2 == 0) {
            uint32_t *obj = pool_get(p);
            ck_assert(n < COUNT ? obj != NULL : obj == NULL);
            if (obj == NULL)
                continue;
            ck_assert(obj[0] == 0 && obj[1] == 0 && obj[2] == 0);
            obj[0] = obj[1] = obj[2] = pool_index(p, obj) + 1;
            held[n++] = obj;
            peak = MAX(peak, n);
        } else if (n > 0) {
            const uint32_t k = roll / 2 % n;
            const uint32_t want = pool_index(p, held[k]) + 1;
            ck_assert(held[k][0] == want && held[k][1] == want && held[k][2] == want);
            pool_put(p, held[k]);
            held[k] = held[--n];
        }
        ck_assert_uint_eq(pool_used(p), n);
    }
    ck_assert_uint_eq(pool_peak(p), peak);
    pool_destroy(&p);
}

#ifndef SANITIZED
/* A sanitizer's shadow memory is touched at create. */

/* Pages of this process that are in memory. */
static size_t resident_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "r");
    unsigned long all = 0, resident = 0;
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%lu %lu", &all, &resident), 2);
    ck_assert_int_eq(fclose(f), 0);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

CASE(a_huge_pool_costs_nothing_until_it_is_used)
{
    struct pool *huge = NULL;
    const size_t before = resident_bytes();
    ck_assert_int_eq(pool_create(&huge, "huge", 4096, 1 << 18), 0);
    void *obj = pool_get(huge);
    memset(obj, 1, 4096);
    ck_assert_uint_lt(resident_bytes(), before + (16u << 20)); /* of 1 GiB */
    ck_assert_uint_ge(pool_bytes(huge), (size_t)4096 << 18);
    pool_destroy(&huge);
}
#endif

CASE(what_does_not_fit_is_refused)
{
    struct pool *p = NULL;
    ck_assert_int_eq(pool_create(&p, "large", SIZE_MAX / 2, 3), -EOVERFLOW);
    ck_assert_int_eq(pool_create(&p, "large", SIZE_MAX, 1), -EOVERFLOW);
    ck_assert_ptr_null(p);
    ck_assert_uint_eq(pool_bytes_for(SIZE_MAX / 2, 3), SIZE_MAX);
    ck_assert_uint_ge(pool_bytes_for(100, 10), 1000);
    pool_destroy(&p);
    pool_destroy(NULL);
}

/* Nothing is injected where the caller has made sure. */
CASE(taking_never_fails)
{
    ck_assert_int_eq(fault_arm("alloc", 1), 0);
    void *obj = pool_take(pool);
    ck_assert_uint_eq(pool_used(pool), 1);
    ck_assert_ptr_null(pool_get(pool));
    fault_reset();
    pool_put(pool, obj);
}

CASE_DIES(taking_from_an_empty_pool_aborts, SIGABRT)
{
    while (pool_get(pool) != NULL)
        ;
    ck_assert_ptr_nonnull(pool_take(pool));
}

CASE_DIES(putting_twice_aborts, SIGABRT)
{
    void *obj = pool_get(pool);
    pool_put(pool, obj);
    pool_put(pool, obj);
}

CASE_DIES(putting_a_foreign_pointer_aborts, SIGABRT)
{
    struct thing t;
    pool_put(pool, &t);
}

CASE_DIES(putting_a_pointer_into_an_object_aborts, SIGABRT)
{
    struct thing *t = pool_get(pool);
    pool_put(pool, &t->b);
}

CASE_DIES(putting_what_was_never_got_aborts, SIGABRT)
{
    struct thing *t = pool_get(pool);
    pool_put(pool, (char *)t + ROUND_UP(sizeof(*t), 8));
}

CASE_DIES(an_index_outside_aborts, SIGABRT)
{
    (void)pool_at(pool, 4);
}

static void *get_one(void *arg)
{
    return pool_get(arg);
}

CASE_DIES(another_thread_aborts, SIGABRT)
{
    pthread_t thread;
    void *obj = pool_get(pool);
    ck_assert_ptr_nonnull(obj);
    ck_assert_int_eq(pthread_create(&thread, NULL, get_one, pool), 0);
    (void)pthread_join(thread, NULL);
}
