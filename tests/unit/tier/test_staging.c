/* SPDX-License-Identifier: Apache-2.0 */
/* Staging: seals, sizes, limits, order, and the end in every state. */
#include "cases.h"
#include "staging.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "tier_fixture.h"

#define MIB (1024u * 1024u)

struct answer {
    unsigned n;
    int err;
    struct staging *s;
    bool in_request;
};

static bool requesting;

static void on_answer(void *ctx, int err, struct staging *s)
{
    struct answer *a = ctx;
    a->n++;
    a->err = err;
    a->s = s;
    a->in_request = requesting;
}

static struct loop *loop; /* of a case, and its pool */
static struct staging_pool *pool;

static void make(void)
{
    const struct staging_config config = {
        .count_max = 4, .one_max_bytes = 8 * MIB, .total_bytes = 12 * MIB, .huge_pages = true};
    ck_assert_int_eq(staging_pool_create(&config, loop, &pool), 0);
}

static void begin(enum loop_backend backend)
{
    loop = fixture_loop(backend);
    make();
}

static void end(void)
{
    if (pool)
        staging_pool_destroy(&pool);
    loop_destroy(&loop);
}

static int request(uint64_t bytes, struct answer *a)
{
    requesting = true;
    const int err = staging_request(pool, bytes, on_answer, a);
    requesting = false;
    return err;
}

static struct staging_stats stats_of(void)
{
    struct staging_stats st;
    staging_stats(pool, &st);
    return st;
}

CASES(.teardown = end);

CASE_EACH(an_area_is_sealed_private_and_there, 2)
{
    begin(_i == 0 ? LOOP_AUTO : LOOP_EPOLL);
    struct answer a = {0};
    struct stat st;
    ck_assert_int_eq(request(MIB + 1, &a), 0);
    TURN_UNTIL(loop, a.n);

    ck_assert(!a.in_request);
    ck_assert_int_eq(a.err, 0);
    ck_assert_uint_eq(a.s->bytes, MIB + 4096);
    ck_assert_int_eq(fstat(a.s->fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(st.st_size, MIB + 4096);
    ck_assert_int_ge(st.st_blocks * 512, MIB + 4096); /* faulted in */
    ck_assert(fcntl(a.s->fd, F_GETFD) & FD_CLOEXEC);
    ck_assert_int_eq(ftruncate(a.s->fd, 4096), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(a.s->fd, 4 * MIB), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(fcntl(a.s->fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(errno, EPERM);

    staging_release(pool, &a.s);
    ck_assert_ptr_null(a.s);
}

CASE(what_a_worker_writes_the_daemon_reads_and_cannot_write)
{
    begin(LOOP_AUTO);
    struct answer a = {0};
    ck_assert_int_eq(request(MIB, &a), 0);
    TURN_UNTIL(loop, a.n);
    uint8_t *worker = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, a.s->fd, 0);
    ck_assert_ptr_ne(worker, MAP_FAILED);

    memset(worker + 12345, 0xab, 1000);

    ck_assert_mem_eq((const uint8_t *)a.s->base + 12345, worker + 12345, 1000);
    ck_assert_uint_eq(((const uint8_t *)a.s->base)[12344], 0);
    int pipe_fds[2];
    ck_assert_int_eq(pipe(pipe_fds), 0);
    ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);
    ck_assert_int_eq(read(pipe_fds[0], (void *)(uintptr_t)a.s->base, 1), -1); /* read-only */
    ck_assert_int_eq(errno, EFAULT);

    staging_release(pool, &a.s);
    staging_pool_destroy(&pool);
    ck_assert_uint_eq(worker[12345], 0); /* the pages went, the mapping stayed */
    munmap(worker, MIB);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

CASE(limits_count_from_request_to_release)
{
    begin(LOOP_AUTO);
    struct answer a = {0}, b = {0}, c = {0};
    ck_assert_int_eq(request(0, &a), -EINVAL);
    ck_assert_int_eq(request(8 * MIB + 1, &a), KVC_E_LIMIT);
    ck_assert_int_eq(request(8 * MIB, &a), 0);
    ck_assert_int_eq(request(4 * MIB + 1, &b), -ENOSPC);
    ck_assert_int_eq(request(4 * MIB, &b), 0);
    ck_assert_int_eq(request(1, &c), -ENOSPC);
    ck_assert_uint_eq(stats_of().used_bytes, 12 * MIB);
    ck_assert_uint_eq(stats_of().used, 2);
    TURN_UNTIL(loop, a.n && b.n);
    staging_release(pool, &a.s);
    /* At once: the pages are gone before those of the next request come. */
    ck_assert_int_eq(request(8 * MIB, &c), 0);
    TURN_UNTIL(loop, c.n);
    ck_assert_int_eq(c.err, 0);
    staging_release(pool, &b.s);
    staging_release(pool, &c.s);
    ck_assert_uint_eq(stats_of().used_bytes, 0);
    ck_assert_uint_eq(stats_of().used, 0);
}

CASE(the_number_of_areas_is_limited_and_they_are_reused)
{
    begin(LOOP_AUTO);
    for (unsigned round = 0; round < 20; round++) {
        struct answer a[5] = {0};
        for (unsigned i = 0; i < 4; i++) {
            int err;
            /* Areas on their way back may have to be waited for. */
            while ((err = request(4096, &a[i])) == -ENOSPC && stats_of().used < 4)
                ck_assert_int_ge(loop_turn(loop, 100 * 1000000), 0);
            ck_assert_int_eq(err, 0);
        }
        ck_assert_int_eq(request(4096, &a[4]), -ENOSPC);
        TURN_UNTIL(loop, a[0].n && a[1].n && a[2].n && a[3].n);
        for (unsigned i = 0; i < 4; i++)
            staging_release(pool, &a[i].s);
    }
}

CASE(a_build_that_fails_says_why_and_counts_no_more)
{
    static const char *const points[] = {"fd", "map"};
    loop = fixture_loop(LOOP_AUTO);
    unsigned failures = 0;
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            make();
            struct answer a = {0};
            ck_assert_int_eq(fault_arm(points[p], nth), 0); /* the builder sleeps */
            ck_assert_int_eq(request(MIB, &a), 0);
            TURN_UNTIL(loop, a.n);
            const bool reached = fault_count(points[p]) >= nth;
            ck_assert_int_eq(a.err != 0, reached);
            ck_assert_int_eq(a.s == NULL, reached);
            ck_assert_uint_eq(stats_of().used_bytes, reached ? 0 : MIB);
            fault_reset();
            staging_pool_destroy(&pool);
            if (!reached)
                break;
            failures++;
        }
    }
    ck_assert_uint_eq(failures, 1 + 3);
}

CASE(destroy_answers_what_is_open_and_frees_what_is_not_released)
{
    begin(LOOP_AUTO);
    struct answer live = {0}, gone = {0}, open[2] = {0};
    ck_assert_int_eq(request(MIB, &live), 0);
    ck_assert_int_eq(request(MIB, &gone), 0);
    TURN_UNTIL(loop, live.n && gone.n);
    staging_release(pool, &gone.s);
    ck_assert_int_eq(request(8 * MIB, &open[0]), 0);
    ck_assert_int_eq(request(MIB, &open[1]), 0);
    staging_pool_destroy(&pool); /* the leak checker and the descriptors below tell the rest */
    ck_assert_ptr_null(pool);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_uint_eq(open[i].n, 1);
        ck_assert_int_eq(open[i].err, -ECANCELED);
        ck_assert_ptr_null(open[i].s);
    }
    ck_assert_uint_eq(live.n, 1);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 1024; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

CASE(no_descriptor_is_left_open)
{
    loop = fixture_loop(LOOP_AUTO);
    const unsigned before = open_descriptors();
    make();
    struct answer a[3] = {0};
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(request(MIB, &a[i]), 0);
    TURN_UNTIL(loop, a[0].n);
    staging_release(pool, &a[0].s);
    staging_pool_destroy(&pool);
    ck_assert_int_ge(loop_turn(loop, 0), 0); /* io_uring lets go of watched files a turn later */
    ck_assert_uint_eq(open_descriptors(), before);
}

CASE(create_unwinds_whatever_fails)
{
    static const char *const points[] = {"alloc", "fd", "thread"};
    const struct staging_config config = {
        .count_max = 1, .one_max_bytes = 4096, .total_bytes = 4096};
    loop = fixture_loop(LOOP_AUTO);
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        ck_assert_int_eq(fault_arm(points[p], 1), 0);
        ck_assert_int_lt(staging_pool_create(&config, loop, &pool), 0);
        ck_assert_ptr_null(pool);
        fault_reset();
    }
    struct staging_config bad = config;
    bad.total_bytes = 100;
    ck_assert_int_eq(staging_pool_create(&bad, loop, &pool), -EINVAL);
    bad = config;
    bad.count_max = 0;
    ck_assert_int_eq(staging_pool_create(&bad, loop, &pool), -EINVAL);
}
