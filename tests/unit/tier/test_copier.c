/* SPDX-License-Identifier: Apache-2.0 */
/* Copier: bytes and sums, cancel, deadline, credit, exactly one done() on the control thread. */
#include "cases.h"
#include "copier.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "tier_fixture.h"

#define MIB (1024u * 1024u)

struct job {
    struct tier_op op;
    unsigned done;
    unsigned order; /* among all that are done */
    bool in_submit;
};

static unsigned done_count;
static pthread_t control;
static bool submitting;

static void on_done(struct tier_op *op)
{
    struct job *j = op->ctx;
    ck_assert(pthread_equal(pthread_self(), control));
    j->done++;
    j->in_submit = submitting;
    j->order = done_count++;
}

static struct loop *loop; /* of a case, and its copier */
static struct copier *c;

static void begin_as(enum loop_backend backend, const struct copier_config *config)
{
    loop = fixture_loop(backend);
    ck_assert_int_eq(copier_create(config, loop, &c), 0);
    done_count = 0;
    control = pthread_self();
}

static void begin(unsigned threads, uint64_t inflight)
{
    begin_as(LOOP_AUTO, &(struct copier_config){.threads = threads, .inflight_bytes = inflight});
}

static void end(void)
{
    if (c)
        copier_destroy(&c);
    loop_destroy(&loop);
}

static void submit(struct job *j, const void *src, uint32_t bytes, void *dst)
{
    j->op.kind = TIER_PUT;
    j->op.src = src;
    j->op.bytes = bytes;
    j->op.done = on_done;
    j->op.ctx = j;
    submitting = true;
    copier_submit(c, &j->op, dst);
    submitting = false;
}

static void submit_verify(struct job *j, uint32_t bytes, void *slot)
{
    j->op.kind = TIER_VERIFY;
    j->op.bytes = bytes;
    j->op.done = on_done;
    j->op.ctx = j;
    copier_submit(c, &j->op, slot);
}

static uint8_t *room(size_t bytes)
{
    uint8_t *p = aligned_alloc(4096, ROUND_UP(bytes, 4096));
    ck_assert_ptr_nonnull(p);
    return p;
}

static uint8_t *noise(size_t bytes)
{
    uint8_t *p = room(bytes);
    uint64_t x = 88172645463325252u;
    for (size_t i = 0; i < bytes; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        p[i] = (uint8_t)x;
    }
    return p;
}

CASES(.teardown = end);

CASE_EACH(copies_and_sums_any_size, 2)
{
    static const uint32_t sizes[] = {1,     63,    64,    65,    4095,   4096,   4097,
                                     16383, 16384, 16385, 32768, 100001, 262144, 2 * MIB + 17};
    begin_as(_i == 0 ? LOOP_AUTO : LOOP_EPOLL,
             &(struct copier_config){.threads = 2, .inflight_bytes = MIB});
    uint8_t *src = noise(3 * MIB);
    for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
        struct job j = {0};
        uint8_t *dst = room(sizes[i] + 64);
        memset(dst, 0xee, sizes[i] + 64);
        submit(&j, src + 64 * i, sizes[i], dst);
        TURN_UNTIL(loop, j.done);
        ck_assert_int_eq(j.op.status, 0);
        ck_assert(memcmp(dst, src + 64 * i, sizes[i]) == 0);
        ck_assert_uint_eq(dst[sizes[i]], 0xee);
        const struct hash128 sum = hash_sum(dst, sizes[i]);
        ck_assert(hash128_equal(&sum, &j.op.sum));
        free(dst);
    }
    free(src);
}

CASE(verifying_sums_what_the_slot_holds_and_changes_nothing)
{
    static const uint32_t sizes[] = {1, 63, 4097, 262144, 262145, 2 * MIB + 17};
    begin(2, MIB);
    uint8_t *slot = noise(3 * MIB);
    const struct hash128 before = hash_sum(slot, 3 * MIB);
    for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
        struct job j = {0};
        submit_verify(&j, sizes[i], slot);
        TURN_UNTIL(loop, j.done);
        ck_assert_int_eq(j.op.status, 0);
        const struct hash128 sum = hash_sum(slot, sizes[i]);
        ck_assert(hash128_equal(&sum, &j.op.sum));
    }
    const struct hash128 after = hash_sum(slot, 3 * MIB);
    ck_assert(hash128_equal(&before, &after));
    struct job stopped = {0};
    atomic_store(&stopped.op.cancel, true);
    submit_verify(&stopped, MIB, slot);
    TURN_UNTIL(loop, stopped.done);
    ck_assert_int_eq(stopped.op.status, -ECANCELED);
    free(slot);
}

CASE(sealing_sums_what_another_tier_has_put_there)
{
    begin(2, MIB);
    uint8_t *slot = noise(MIB);
    struct job j = {.op = {.kind = TIER_SEAL, .bytes = 300001, .done = on_done, .ctx = &j}};
    copier_submit(c, &j.op, slot);
    TURN_UNTIL(loop, j.done);
    ck_assert_int_eq(j.op.status, 0);
    const struct hash128 sum = hash_sum(slot, 300001);
    ck_assert(hash128_equal(&sum, &j.op.sum));
    free(slot);
}

/* What a turn leaves to the control thread ends in copier_turn() alone, the rest on the threads. */
CASE(a_share_of_what_is_waited_for_is_summed_by_the_turn)
{
    enum { N = 7, BYTES = 65536 };
    const struct copier_config config = {
        .threads = 2, .inflight_bytes = MIB, .turn_bytes = 4 * BYTES};
    begin_as(LOOP_AUTO, &config);
    uint8_t *slot = noise(N * BYTES);
    struct job *jobs = calloc(N, sizeof(*jobs));
    for (unsigned i = 0; i < N; i++) {
        jobs[i].op =
            (struct tier_op){.kind = TIER_SEAL, .bytes = BYTES, .done = on_done, .ctx = &jobs[i]};
        if (i % 2 > 0)
            jobs[i].op.kind = TIER_VERIFY, jobs[i].op.flags = TIER_F_AWAITED;
        submitting = true;
        copier_submit(c, &jobs[i].op, slot + BYTES * i);
        submitting = false;
    }
    TURN_UNTIL(loop, jobs[4].done && jobs[5].done && jobs[6].done);
    for (unsigned i = 0; i < 4; i++)
        ck_assert(!jobs[i].done);
    ck_assert(copier_is_due(c));
    jobs[1].op.cancel = true;
    copier_turn(c);
    ck_assert(!copier_is_due(c));
    for (unsigned i = 0; i < N; i++) {
        const struct hash128 sum = hash_sum(slot + BYTES * i, BYTES);
        ck_assert_uint_eq(jobs[i].done, 1);
        ck_assert(!jobs[i].in_submit);
        ck_assert_int_eq(jobs[i].op.status, i == 1 ? -ECANCELED : 0);
        ck_assert(i == 1 || hash128_equal(&sum, &jobs[i].op.sum));
    }
    jobs[0].done = 0;
    copier_submit(c, &jobs[0].op, slot); /* the next turn has its share again */
    ck_assert(copier_is_due(c));
    copier_destroy(&c);
    ck_assert_uint_eq(jobs[0].done, 1);
    ck_assert_int_eq(jobs[0].op.status, -ECANCELED);
    free(jobs);
    free(slot);
}

CASE(a_turn_ends_so_many_copies_and_leaves_the_rest_to_the_next)
{
    enum { MORE = 40, N = COPIER_TURN_OPS + MORE, BYTES = 64 };
    begin(2, MIB);
    uint8_t *src = noise(BYTES), *dst = room(N * BYTES);
    struct job *jobs = calloc(N, sizeof(*jobs));
    for (unsigned i = 0; i < N; i++)
        submit(&jobs[i], src, BYTES, dst + BYTES * i);
    struct copier_stats stats;
    TURN_UNTIL(loop, copier_is_due(c) || done_count > COPIER_TURN_OPS);
    ck_assert_uint_eq(done_count, COPIER_TURN_OPS);
    copier_turn(c);
    ck_assert_uint_eq(done_count, COPIER_TURN_OPS); /* it was the same turn */
    TURN_UNTIL(loop, (copier_turn(c), done_count == N));
    ck_assert(!copier_is_due(c));
    copier_stats(c, &stats);
    ck_assert_uint_eq(stats.inflight_ops, 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert(jobs[i].done == 1 && jobs[i].op.status == 0);
    copier_destroy(&c);
    free(jobs);
    free(src);
    free(dst);
}

CASE(what_is_large_is_summed_by_a_thread)
{
    const struct copier_config config = {
        .threads = 1, .inflight_bytes = MIB, .turn_bytes = 256 * 1024};
    begin_as(LOOP_AUTO, &config);
    uint8_t *slot = noise(128 * 1024);
    struct job j = {.op = {.kind = TIER_SEAL, .bytes = 65537, .done = on_done, .ctx = &j}};
    copier_submit(c, &j.op, slot);
    ck_assert(!copier_is_due(c));
    TURN_UNTIL(loop, j.done);
    const struct hash128 sum = hash_sum(slot, 65537);
    ck_assert(hash128_equal(&sum, &j.op.sum));
    free(slot);
}

CASE(every_operation_is_done_once_and_never_from_submit)
{
    enum { N = 500 };
    begin(3, MIB);
    uint8_t *src = noise(64 * 1024);
    uint8_t *dst = room(N * 8192);
    struct job *jobs = calloc(N, sizeof(*jobs));
    struct copier_stats st;
    for (unsigned i = 0; i < N; i++)
        submit(&jobs[i], src + 64 * (i % 512), 8192, dst + 8192 * i);
    copier_stats(c, &st);
    ck_assert_uint_eq(st.inflight_ops, N);
    ck_assert_uint_eq(st.inflight_bytes, N * 8192);
    ck_assert_uint_eq(st.waiting_ops, N - MIB / 8192);
    TURN_UNTIL(loop, done_count >= N);
    copier_stats(c, &st);
    ck_assert_uint_eq(st.inflight_ops, 0);
    ck_assert_uint_eq(st.inflight_bytes, 0);
    ck_assert_uint_eq(st.waiting_ops, 0);
    ck_assert_uint_eq(st.done_bytes, N * 8192);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(jobs[i].done, 1);
        ck_assert(!jobs[i].in_submit);
        ck_assert_int_eq(jobs[i].op.status, 0);
        ck_assert(memcmp(dst + 8192 * i, src + 64 * (i % 512), 8192) == 0);
    }
    free(jobs);
    free(dst);
    free(src);
}

CASE(beyond_the_credit_operations_wait_in_order)
{
    enum { N = 64 };
    begin(1, MIB);
    uint8_t *src = noise(512 * 1024);
    uint8_t *dst = room(512 * 1024);
    struct job jobs[N] = {0};
    struct copier_stats st;
    for (unsigned i = 0; i < N; i++) /* one thread: the order of copies is that of submission */
        submit(&jobs[i], src, 512 * 1024, dst);
    copier_stats(c, &st);
    ck_assert_uint_eq(st.waiting_ops, N - 2);
    TURN_UNTIL(loop, done_count >= N);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(jobs[i].order, i);
    free(dst);
    free(src);
}

CASE(an_operation_larger_than_the_credit_runs_alone)
{
    begin(1, MIB);
    uint8_t *src = noise(4 * MIB);
    uint8_t *dst = room(4 * MIB);
    struct job big = {0}, small = {0};
    struct copier_stats st;
    submit(&big, src, 4 * MIB, dst);
    submit(&small, src, 4096, dst);
    copier_stats(c, &st);
    ck_assert_uint_eq(st.waiting_ops, 1);
    TURN_UNTIL(loop, small.done);
    ck_assert_uint_eq(big.done, 1);
    ck_assert_int_eq(big.op.status, 0);
    free(dst);
    free(src);
}

CASE(what_was_cancelled_before_it_began_is_not_copied)
{
    begin(1, MIB);
    uint8_t *src = noise(4096);
    uint8_t *dst = room(4096);
    struct job j = {0};
    memset(dst, 0xee, 4096);
    atomic_store(&j.op.cancel, true);
    submit(&j, src, 4096, dst);
    ck_assert_uint_eq(j.done, 0);
    TURN_UNTIL(loop, j.done);
    ck_assert_int_eq(j.op.status, -ECANCELED);
    for (unsigned i = 0; i < 4096; i++)
        ck_assert_uint_eq(dst[i], 0xee);
    free(dst);
    free(src);
}

CASE(a_copy_that_was_cancelled_leaves_the_sum_alone)
{
    uint8_t *src = noise(4 * COPIER_STEP_BYTES);
    uint8_t *dst = room(4 * COPIER_STEP_BYTES);
    uint8_t *step = room(COPIER_STEP_BYTES);
    _Atomic bool cancel = true;
    struct hash128 sum = {{9}};
    memset(dst, 0xee, 4 * COPIER_STEP_BYTES);
    ck_assert_int_eq(copier_copy(dst, src, 4 * COPIER_STEP_BYTES, step, &cancel, &sum), -ECANCELED);
    ck_assert_uint_eq(sum.b[0], 9);
    ck_assert_uint_eq(dst[0], 0xee);
    cancel = false;
    ck_assert_int_eq(copier_copy(dst, src, 4 * COPIER_STEP_BYTES, step, &cancel, &sum), 0);
    ck_assert(memcmp(dst, src, 4 * COPIER_STEP_BYTES) == 0);
    free(step);
    free(dst);
    free(src);
}

/* Cancels from inside the copy: when it comes to the protected part of the source. */
static _Atomic bool in_time;
static uint8_t *protected_part;

static void on_fault(int sig)
{
    (void)sig;
    atomic_store(&in_time, true);
    if (mprotect(protected_part, 2 * COPIER_STEP_BYTES, PROT_READ) != 0)
        _exit(3);
}

CASE(a_running_copy_sees_the_flag_after_the_step)
{
    const size_t bytes = 4 * COPIER_STEP_BYTES;
    uint8_t *src = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(src, MAP_FAILED);
    uint8_t *dst = room(bytes);
    uint8_t *step = room(COPIER_STEP_BYTES);
    struct hash128 sum;
    memset(src, 1, bytes);
    memset(dst, 0xee, bytes);
    protected_part = src + 2 * COPIER_STEP_BYTES;
    ck_assert_int_eq(mprotect(protected_part, 2 * COPIER_STEP_BYTES, PROT_NONE), 0);
    ck_assert_ptr_ne(signal(SIGSEGV, on_fault), SIG_ERR);

    ck_assert_int_eq(copier_copy(dst, src, bytes, step, &in_time, &sum), -ECANCELED);

    /* The step in which it happened was finished; none is longer than COPIER_STEP_BYTES. */
    ck_assert_uint_eq(dst[2 * COPIER_STEP_BYTES], 1);
    ck_assert_uint_eq(dst[3 * COPIER_STEP_BYTES], 0xee);
    munmap(src, bytes);
    free(dst);
    free(step);
}

enum { QUEUED = 40, LONG_PIECES = 512 };
static struct {
    uint8_t *src, *dst, *from, *to;
    struct job first, copy[QUEUED], check[QUEUED];
} q;

/* 2 GiB to write to, of 4 MiB of memory. */
static uint8_t *much_room(void)
{
    const int fd = memfd_create("room", MFD_CLOEXEC);
    const size_t bytes = (size_t)LONG_PIECES * 4 * MIB;
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, 4 * MIB), 0);
    uint8_t *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(p, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += 4 * MIB)
        ck_assert_ptr_ne(
            mmap(p + at, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
            MAP_FAILED);
    close(fd);
    return p;
}

/* One thread, which is busy with `first` until queue_run(). */
static void queue_begin(void)
{
    const size_t bytes = (size_t)LONG_PIECES * 4 * MIB;
    memset(&q, 0, sizeof(q));
    begin(1, UINT64_C(4) << 30);
    q.src = noise(4096);
    q.dst = room(4096);
    q.from = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(q.from, MAP_FAILED);
    q.to = much_room();
    q.to[0] = 0xee;
    submit(&q.first, q.from, (uint32_t)bytes, q.to);
    while (__atomic_load_n(&q.to[0], __ATOMIC_RELAXED) == 0xee)
        (void)usleep(100); /* until it has begun */
}

/* False: the first ended by itself, before what was to wait for it was there. */
static bool queue_run(unsigned n)
{
    atomic_store(&q.first.op.cancel, true);
    TURN_UNTIL(loop, done_count == n + 1);
    copier_destroy(&c);
    munmap(q.from, (size_t)LONG_PIECES * 4 * MIB);
    munmap(q.to, (size_t)LONG_PIECES * 4 * MIB);
    free(q.src);
    free(q.dst);
    loop_destroy(&loop);
    return q.first.op.status == -ECANCELED;
}

CASE(copies_go_before_checks_that_were_there_first)
{
    do {
        queue_begin();
        for (unsigned i = 0; i < 4; i++)
            submit_verify(&q.check[i], 4096, q.src);
        for (unsigned i = 0; i < 4; i++)
            submit(&q.copy[i], q.src, 4096, q.dst);
    } while (!queue_run(8));
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(q.copy[i].order, 1 + i);
        ck_assert_uint_eq(q.check[i].order, 5 + i);
        ck_assert_int_eq(q.check[i].op.status, 0);
    }
}

CASE(checks_get_their_turn_however_many_copies_wait)
{
    do {
        queue_begin();
        submit_verify(&q.check[0], 4096, q.src);
        for (unsigned i = 0; i < QUEUED; i++)
            submit(&q.copy[i], q.src, 4096, q.dst);
    } while (!queue_run(QUEUED + 1));
    ck_assert_uint_eq(q.check[0].order, 17);
}

CASE(checks_that_are_over_do_not_wait_for_copies)
{
    do {
        queue_begin();
        q.check[0].op.deadline_ns = 1;
        atomic_store(&q.check[1].op.cancel, true);
        for (unsigned i = 0; i < 4; i++)
            submit(&q.copy[i], q.src, 4096, q.dst);
        for (unsigned i = 0; i < 2; i++)
            submit_verify(&q.check[i], 4096, q.src);
    } while (!queue_run(6));
    ck_assert_int_eq(q.check[0].op.status, -ETIMEDOUT);
    ck_assert_int_eq(q.check[1].op.status, -ECANCELED);
    ck_assert_uint_eq(q.check[0].order, 1);
    ck_assert_uint_eq(q.check[1].order, 2);
}

CASE(checks_take_no_credit_from_copies)
{
    struct copier_stats stats;
    uint8_t *slot = room(4 * MIB);
    do {
        queue_begin();
        for (unsigned i = 0; i < 4; i++)
            submit_verify(&q.check[i], MIB, slot);
        copier_stats(c, &stats);
        ck_assert_uint_eq(stats.waiting_ops, 3);
        submit(&q.copy[0], q.src, 4096, q.dst);
        copier_stats(c, &stats);
        ck_assert_uint_eq(stats.waiting_ops, 3);
    } while (!queue_run(5));
    ck_assert_uint_eq(q.copy[0].order, 1);
    free(slot);
}

CASE(what_begins_after_its_deadline_times_out)
{
    begin(1, MIB);
    uint8_t *src = noise(4096);
    uint8_t *dst = room(8192);
    struct job late = {.op.deadline_ns = 1};
    struct job early = {.op.deadline_ns = clock_now_ns() + 3600 * UINT64_C(1000000000)};
    memset(dst, 0xee, 4096);
    submit(&late, src, 4096, dst);
    submit(&early, src, 4096, dst + 4096);
    TURN_UNTIL(loop, late.done && early.done);
    ck_assert_int_eq(late.op.status, -ETIMEDOUT);
    ck_assert_uint_eq(dst[0], 0xee);
    ck_assert_int_eq(early.op.status, 0);
    free(dst);
    free(src);
}

CASE(an_injected_fault_is_an_io_error_of_that_operation_alone)
{
    uint8_t *src = noise(4096);
    uint8_t *dst = room(4096);
    struct job jobs[3] = {0};
    ck_assert_int_eq(fault_arm("copy", 2), 0);
    begin(1, MIB);
    for (unsigned i = 0; i < 3; i++)
        submit(&jobs[i], src, 4096, dst);
    TURN_UNTIL(loop, done_count == 3);
    ck_assert_int_eq(jobs[0].op.status, 0);
    ck_assert_int_eq(jobs[1].op.status, -EIO);
    ck_assert_int_eq(jobs[2].op.status, 0);
    copier_destroy(&c);
    free(dst);
    free(src);
}

CASE(destroy_finishes_every_operation)
{
    enum { N = 200 };
    begin(2, MIB);
    uint8_t *src = noise(64 * 1024);
    uint8_t *dst = room(N * 65536);
    struct job *jobs = calloc(N, sizeof(*jobs));
    for (unsigned i = 0; i < N; i++)
        submit(&jobs[i], src, 65536, dst + 65536 * i);
    copier_destroy(&c);
    ck_assert_ptr_null(c);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(jobs[i].done, 1);
        if (jobs[i].op.status == 0)
            ck_assert(memcmp(dst + 65536 * i, src, 65536) == 0);
        else
            ck_assert_int_eq(jobs[i].op.status, -ECANCELED);
    }
    ck_assert_int_eq(jobs[N - 1].op.status, -ECANCELED); /* it waited for credit */
    free(jobs);
    free(dst);
    free(src);
}

/* The source changes while it is copied: whatever was copied, the sum is that of the copy. */
static _Atomic bool scribble;

static void *scribbler(void *arg)
{
    uint64_t *p = arg;
    for (uint64_t x = 1; atomic_load(&scribble); x++)
        for (unsigned i = 0; i < 2 * MIB / 8; i += 97)
            __atomic_store_n(&p[i], x * i, __ATOMIC_RELAXED);
    return NULL;
}

CASE(the_sum_is_that_of_the_copy_even_if_the_source_changes)
{
#if defined(__SANITIZE_THREAD__)
    printf("SKIP: the race is the point of this test\n");
    return;
#endif
    begin(1, 4 * MIB);
    uint8_t *src = noise(2 * MIB);
    uint8_t *dst = room(2 * MIB);
    pthread_t thread;
    atomic_store(&scribble, true);
    ck_assert_int_eq(pthread_create(&thread, NULL, scribbler, src), 0);
    for (unsigned i = 0; i < 50; i++) {
        struct job j = {0};
        submit(&j, src, 2 * MIB, dst);
        TURN_UNTIL(loop, j.done);
        const struct hash128 sum = hash_sum(dst, 2 * MIB);
        ck_assert(hash128_equal(&sum, &j.op.sum));
    }
    atomic_store(&scribble, false);
    pthread_join(thread, NULL);
    free(dst);
    free(src);
}

CASE(create_unwinds_whatever_fails)
{
    static const char *const points[] = {"alloc", "fd", "thread"};
    const struct copier_config config = {.threads = 3, .inflight_bytes = MIB};
    loop = fixture_loop(LOOP_AUTO);
    unsigned failures = 0;
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            ck_assert_int_eq(fault_arm(points[p], nth), 0);
            const int err = copier_create(&config, loop, &c);
            const bool reached = fault_count(points[p]) >= nth;
            ck_assert_int_eq(err != 0, reached);
            copier_destroy(&c);
            fault_reset();
            if (!reached)
                break;
            failures++;
        }
    }
    ck_assert_uint_eq(failures, 2 + 1 + 3);
}

CASE(a_config_out_of_range_is_refused)
{
    loop = fixture_loop(LOOP_AUTO);
    const struct copier_config many = {.threads = COPIER_THREADS_MAX + 1, .inflight_bytes = MIB};
    const struct copier_config little = {.threads = 1, .inflight_bytes = MIB - 1};
    ck_assert_int_eq(copier_create(&many, loop, &c), -EINVAL);
    ck_assert_int_eq(copier_create(&little, loop, &c), -EINVAL);
    ck_assert_ptr_null(c);
    ck_assert_uint_eq(copier_threads_auto(0), 1);
    ck_assert_uint_eq(copier_threads_auto(2), 2);
    ck_assert_uint_eq(copier_threads_auto(96), 4);
}
