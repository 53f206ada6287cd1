/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/timerfd.h>

struct file_seen {
    struct loop_file_op op;
    unsigned calls;
};

static void note_file(struct loop_file_op *op)
{
    ((struct file_seen *)op->ctx)->calls++;
}

static int64_t file_run(struct loop *loop, enum loop_file_kind kind, int fd, void *buf, size_t len,
                        uint64_t off)
{
    struct file_seen f = {.op = {.kind = kind,
                                 .fd = fd,
                                 .buf = buf,
                                 .len = len,
                                 .off = off,
                                 .done = note_file,
                                 .result = 12345}};
    f.op.ctx = &f;
    loop_file_submit(loop, &f.op);
    ck_assert_uint_eq(f.calls, 0); /* never inline */
    while (f.calls == 0)
        ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_uint_eq(f.calls, 1);
    return f.op.result;
}

static int temp_file(void)
{
    char path[] = "/tmp/kvc-test-loop-XXXXXX";
    int fd = mkostemp(path, O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    return fd;
}

static void fill_random(unsigned char *at, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++) {
        seed = seed * 1664525u + 1013904223u;
        at[i] = (unsigned char)(seed >> 24);
    }
}

CASE_BOTH_LOOPS(what_was_written_is_read)
{
    enum { LEN = 3 << 20 };
    struct loop *loop = make(_i);
    int fd = temp_file();
    unsigned char *out = malloc(LEN);
    unsigned char *in = calloc(1, LEN);
    ck_assert(out && in);
    fill_random(out, LEN, 7);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, fd, out, LEN, 4096), LEN);
    ck_assert_int_eq(file_run(loop, LOOP_FDATASYNC, fd, NULL, 0, 0), 0);
    ck_assert_int_eq(file_run(loop, LOOP_READ, fd, in, LEN, 4096), LEN);
    ck_assert_mem_eq(out, in, LEN);
    free(out);
    free(in);
    close(fd);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(a_read_across_the_end_is_short)
{
    struct loop *loop = make(_i);
    int fd = temp_file();
    char out[1000] = "end";
    char in[4096];
    memset(in, 0x11, sizeof(in));
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, fd, out, sizeof(out), 0), sizeof(out));
    ck_assert_int_eq(file_run(loop, LOOP_READ, fd, in, sizeof(in), 900), 100);
    ck_assert_int_eq(in[100], 0x11);
    ck_assert_int_eq(file_run(loop, LOOP_READ, fd, in, sizeof(in), 1000), 0);
    ck_assert_int_eq(file_run(loop, LOOP_READ, fd, in, 0, 0), 0);
    close(fd);
    loop_destroy(&loop);
}

/* A kernel file that gives a few KiB per call, whatever is asked for. */
CASE_BOTH_LOOPS(a_short_transfer_is_continued)
{
    enum { LEN = 65536 };
    struct loop *loop = make(_i);
    int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
    char *in = malloc(2 * LEN);
    ck_assert_ptr_nonnull(in);
    ssize_t first = fd < 0 ? -1 : pread(fd, in, LEN, 0);
    if (first <= 0 || first >= LEN || pread(fd, in, LEN, LEN) <= 0) {
        printf("SKIP: /proc/kallsyms gives no short reads here\n");
    } else {
        ck_assert_int_eq(file_run(loop, LOOP_READ, fd, in, LEN, 0), LEN);
        FILE *plain = fopen("/proc/kallsyms", "r");
        ck_assert_ptr_nonnull(plain);
        ck_assert_uint_eq(fread(in + LEN, 1, LEN, plain), LEN);
        fclose(plain);
        ck_assert_mem_eq(in, in + LEN, LEN);
    }
    free(in);
    if (fd >= 0)
        close(fd);
    loop_destroy(&loop);
}

/* The read that goes on behind the short one starts at an offset that is not aligned. */
CASE_BOTH_LOOPS(a_direct_read_across_an_unaligned_end_is_short)
{
    struct loop *loop = make(_i);
    char path[] = "kvc-test-direct-XXXXXX"; /* the working directory: tmpfs may lack O_DIRECT */
    int fd = mkostemp(path, O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    char text[6000];
    memset(text, 'd', sizeof(text));
    ck_assert_int_eq(write(fd, text, sizeof(text)), sizeof(text));
    int direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    unlink(path);
    if (direct < 0 && errno == EINVAL) {
        printf("SKIP: no O_DIRECT in this directory\n");
    } else {
        ck_assert_int_ge(direct, 0);
        void *buf = NULL;
        ck_assert_int_eq(posix_memalign(&buf, 4096, 65536), 0);
        ck_assert_int_eq(file_run(loop, LOOP_READ, direct, buf, 65536, 0), 6000);
        ck_assert_mem_eq(buf, text, 6000);
        ck_assert_int_eq(file_run(loop, LOOP_READ, direct, buf, 4096, 100), -EINVAL);
        free(buf);
        close(direct);
    }
    close(fd);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(errors_are_results)
{
    struct loop *loop = make(_i);
    char buf[16] = "";
    ck_assert_int_eq(file_run(loop, LOOP_READ, 9999, buf, sizeof(buf), 0), -EBADF);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, 9999, buf, sizeof(buf), 0), -EBADF);
    ck_assert_int_eq(file_run(loop, LOOP_FDATASYNC, 9999, NULL, 0, 0), -EBADF);
    int read_only = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, read_only, buf, sizeof(buf), 0), -EBADF);
    close(read_only);
    int fd = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 4096), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, fd, buf, sizeof(buf), 0), -EPERM);
    close(fd);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, full, buf, sizeof(buf), 0), -ENOSPC);
    close(full);
    loop_destroy(&loop);
}

/* A seal against growing lets the first part of the write through and refuses the rest. */
CASE_BOTH_LOOPS(a_write_that_ends_halfway_is_an_error)
{
    struct loop *loop = make(_i);
    int fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    char *buf = calloc(1, 65536);
    ck_assert_ptr_nonnull(buf);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, fd, buf, 65536, 0), -EPERM);
    ck_assert_int_eq(file_run(loop, LOOP_WRITE, fd, buf, 8192, 0), 8192);
    free(buf);
    close(fd);
    loop_destroy(&loop);
}

static int64_t vector_run(struct loop *loop, enum loop_file_kind kind, int fd,
                          const struct iovec *iov, unsigned iovs, uint64_t off)
{
    struct file_seen f = {
        .op = {.kind = kind, .fd = fd, .iov = iov, .iovs = iovs, .off = off, .done = note_file}};
    f.op.ctx = &f;
    loop_file_submit(loop, &f.op);
    ck_assert_uint_eq(f.calls, 0);
    while (f.calls == 0)
        ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    ck_assert_uint_eq(f.calls, 1);
    return f.op.result;
}

CASE_BOTH_LOOPS(a_vector_is_written_and_read_another_way)
{
    enum { N = LOOP_IOV_MAX, LEN = 700 };
    struct loop *loop = make(_i);
    int fd = temp_file();
    unsigned char *out = malloc(N * LEN);
    unsigned char *in = calloc(N, LEN);
    struct iovec *iov = calloc(N, sizeof(*iov));
    ck_assert(out && in && iov);
    fill_random(out, N * LEN, 11);
    for (size_t i = 0; i < N; i++)
        iov[i] = (struct iovec){out + i * LEN, LEN};
    ck_assert_int_eq(vector_run(loop, LOOP_WRITEV, fd, iov, N, 100), N * LEN);
    const struct iovec three[] = {{in, 1}, {in + 1, 0}, {in + 1, N * LEN}};
    ck_assert_int_eq(vector_run(loop, LOOP_READV, fd, three, 3, 100), N * LEN);
    ck_assert_mem_eq(in, out, N * LEN);
    ck_assert_int_eq(vector_run(loop, LOOP_READV, 9999, three, 3, 0), -EBADF);
    free(out);
    free(in);
    free(iov);
    close(fd);
    loop_destroy(&loop);
}

/* As a_short_transfer_is_continued(): each transfer ends somewhere in an element. */
CASE_BOTH_LOOPS(a_short_transfer_is_continued_across_a_vector)
{
    enum { LEN = 65536 };
    static const size_t cuts[] = {0, 100, 100, 5000, 4096, 20000, 1, 30000};
    struct loop *loop = make(_i);
    int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
    char *in = calloc(2, LEN);
    ck_assert_ptr_nonnull(in);
    ssize_t first = fd < 0 ? -1 : pread(fd, in, LEN, 0);
    if (first <= 0 || first >= LEN || pread(fd, in, LEN, LEN) <= 0) {
        printf("SKIP: /proc/kallsyms gives no short reads here\n");
    } else {
        struct iovec iov[9];
        struct iovec before[9];
        size_t at = 0;
        for (size_t i = 0; i < 9; i++) {
            iov[i] = (struct iovec){in + at, i < 8 ? cuts[i] : LEN - at};
            at += iov[i].iov_len;
        }
        memcpy(before, iov, sizeof(iov));
        ck_assert_int_eq(vector_run(loop, LOOP_READV, fd, iov, 9, 0), LEN);
        ck_assert_mem_eq(iov, before, sizeof(iov));
        FILE *plain = fopen("/proc/kallsyms", "r");
        ck_assert_ptr_nonnull(plain);
        ck_assert_uint_eq(fread(in + LEN, 1, LEN, plain), LEN);
        fclose(plain);
        ck_assert_mem_eq(in, in + LEN, LEN);
    }
    free(in);
    if (fd >= 0)
        close(fd);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(a_vector_that_ends_halfway_is_an_error)
{
    struct loop *loop = make(_i);
    int fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    char *buf = calloc(1, 65536);
    ck_assert_ptr_nonnull(buf);
    const struct iovec iov[] = {{buf, 6000}, {buf, 6000}, {buf, 6000}};
    ck_assert_int_eq(vector_run(loop, LOOP_WRITEV, fd, iov, 3, 0), -EPERM);
    ck_assert_int_eq(vector_run(loop, LOOP_WRITEV, fd, iov, 1, 0), 6000);
    ck_assert_int_eq(vector_run(loop, LOOP_READV, fd, iov, 3, 0), 8192);
    free(buf);
    close(fd);
    loop_destroy(&loop);
}

/* With buffers or without, with one that covers a vector or does not: the same bytes arrive. */
CASE_BOTH_LOOPS(registered_buffers_change_nothing_but_the_cost)
{
    enum { LEN = 1 << 20 };
    struct loop_config config = {
        .want = (enum loop_backend)_i, .watches_max = 1, .ops_max = 4, .buffers_max = 3};
    struct loop *loop = NULL;
    ck_assert_int_eq(loop_create(&config, &loop), 0);
    int fd = temp_file();
    unsigned char *mem = aligned_alloc(4096, 3 * LEN);
    ck_assert_ptr_nonnull(mem);
    fill_random(mem, 3 * LEN, 5);
    int r = loop_buffer_set(loop, 2, mem, 2 * LEN);
    ck_assert_msg(r == 0 || r == -EOPNOTSUPP || r == -ENOMEM, "%d", r);
    ck_assert(r != 0 || _i == LOOP_URING);
    if (r != 0 && _i == LOOP_URING)
        printf("SKIP: no registered buffers here (%s)\n", strerror(-r));
    const struct iovec joined[] = {{mem, 4096}, {mem + 4096, LEN - 4096}};
    const struct iovec apart[] = {{mem + LEN, 4096}, {mem + 2 * LEN, LEN - 4096}};
    const struct iovec across[] = {{mem + LEN + 4096, LEN}, {mem + 2 * LEN + 4096, 4096}};
    ck_assert_int_eq(vector_run(loop, LOOP_WRITEV, fd, joined, 2, 0), LEN);
    ck_assert_int_eq(vector_run(loop, LOOP_READV, fd, apart, 2, 0), LEN);
    ck_assert_mem_eq(mem + LEN, mem, 4096);
    ck_assert_mem_eq(mem + 2 * LEN, mem + 4096, LEN - 4096);
    ck_assert_int_eq(vector_run(loop, LOOP_READV, fd, across, 2, 0), LEN);
    ck_assert_mem_eq(mem + LEN + 4096, mem, LEN);
    ck_assert_int_eq(file_run(loop, LOOP_READ, fd, mem + LEN, LEN, 0), LEN);
    ck_assert_mem_eq(mem + LEN, mem, LEN);
    if (r == 0) {
        ck_assert_int_eq(loop_buffer_set(loop, 2, NULL, 0), 0);
        ck_assert_int_eq(file_run(loop, LOOP_READ, fd, mem + LEN, LEN, 0), LEN);
        ck_assert_int_eq(loop_buffer_set(loop, 0, (void *)(uintptr_t)4096, 4096), -EFAULT);
    }
    free(mem);
    close(fd);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(a_pause_lasts_as_long_as_it_says)
{
    struct loop *loop = make(_i);
    const int64_t begun = now_ns();
    ck_assert_int_eq(file_run(loop, LOOP_PAUSE, -1, NULL, 0, 50 * MS), 0);
    ck_assert_int_ge(now_ns() - begun, 50 * MS);
    ck_assert_int_eq(file_run(loop, LOOP_PAUSE, -1, NULL, 0, 0), 0);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(many_operations_at_once)
{
    enum { N = 600, LEN = 1000 };
    struct loop *loop = make_with(_i, 8, 1, N);
    int fd = temp_file();
    unsigned char *out = malloc(N * LEN);
    unsigned char *in = calloc(N, LEN);
    struct file_seen *f = calloc(N, sizeof(*f));
    ck_assert(out && in && f);
    fill_random(out, N * LEN, 3);
    for (int kind = LOOP_READ; kind <= LOOP_WRITE; kind++) {
        /* LOOP_WRITE first */
        enum loop_file_kind now = kind == LOOP_READ ? LOOP_WRITE : LOOP_READ;
        for (size_t i = 0; i < N; i++) {
            f[i].calls = 0;
            f[i].op = (struct loop_file_op){.kind = now,
                                            .fd = fd,
                                            .buf = (now == LOOP_WRITE ? out : in) + i * LEN,
                                            .len = LEN,
                                            .off = i * LEN,
                                            .done = note_file,
                                            .ctx = &f[i]};
            loop_file_submit(loop, &f[i].op);
        }
        for (int got = 0; got < N;) {
            int n = turn_some(loop);
            ck_assert_int_gt(n, 0);
            got += n;
        }
        for (size_t i = 0; i < N; i++) {
            ck_assert_uint_eq(f[i].calls, 1);
            ck_assert_int_eq(f[i].op.result, LEN);
        }
    }
    ck_assert_mem_eq(in, out, N * LEN);
    free(out);
    free(in);
    free(f);
    close(fd);
    loop_destroy(&loop);
}

/* The kernel's completion queue ends at 65,536 entries; what does not fit must not be lost. */
CASE_BOTH_LOOPS(more_completions_than_the_completion_queue_holds)
{
    enum { N = 70000 };
    struct loop *loop = make_with(_i, 256, 1, N);
    int fd = temp_file();
    ck_assert_int_eq(write(fd, "completion", 10), 10);
    struct file_seen *f = calloc(N, sizeof(*f));
    char *in = calloc(N, 1);
    ck_assert(f && in);
    for (size_t i = 0; i < N; i++) {
        f[i].op = (struct loop_file_op){
            .kind = LOOP_READ, .fd = fd, .buf = &in[i], .len = 1, .off = i % 10, .done = note_file};
        f[i].op.ctx = &f[i];
        loop_file_submit(loop, &f[i].op);
    }
    for (int got = 0; got < N;) {
        int n = turn_some(loop);
        ck_assert_int_gt(n, 0);
        got += n;
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert_uint_eq(f[i].calls, 1);
        ck_assert_int_eq(f[i].op.result, 1);
        ck_assert_int_eq(in[i], "completion"[i % 10]);
    }
    free(f);
    free(in);
    close(fd);
    loop_destroy(&loop);
}

struct again {
    struct loop *loop;
    unsigned left;
};

static void submit_again(struct loop_file_op *op)
{
    struct again *again = op->ctx;
    if (--again->left > 0)
        loop_file_submit(again->loop, op);
}

CASE_BOTH_LOOPS(done_may_submit_the_same_operation)
{
    struct loop *loop = make_with(_i, 8, 1, 1);
    int fd = temp_file();
    char byte = 0;
    struct again again = {.loop = loop, .left = 100};
    struct loop_file_op op = {
        .kind = LOOP_WRITE, .fd = fd, .buf = &byte, .len = 1, .done = submit_again, .ctx = &again};
    loop_file_submit(loop, &op);
    for (unsigned calls = 0; calls < 100;) {
        int n = turn_some(loop);
        /* One generation a turn: completions that callbacks cause belong to a later one. */
        ck_assert_int_eq(n, 1);
        calls += (unsigned)n;
    }
    ck_assert_uint_eq(again.left, 0);
    close(fd);
    loop_destroy(&loop);
}

CASE_DIES_BOTH_LOOPS(one_operation_too_many_is_a_bug, SIGABRT)
{
    struct loop *loop = make_with(_i, 8, 1, 1);
    char byte;
    struct loop_file_op ops[2] = {
        {.kind = LOOP_READ, .fd = 0, .buf = &byte, .len = 1, .done = note_file},
        {.kind = LOOP_READ, .fd = 0, .buf = &byte, .len = 1, .done = note_file},
    };
    loop_file_submit(loop, &ops[0]);
    loop_file_submit(loop, &ops[1]);
}

/* The buffers are freed right after: under ASan a late write into them would be seen. */
CASE_BOTH_LOOPS(destroy_waits_for_what_is_in_flight)
{
    enum { N = 64, LEN = 1 << 20 };
    struct loop *loop = make_with(_i, 8, 1, N);
    int fd = temp_file();
    ck_assert_int_eq(ftruncate(fd, LEN), 0);
    struct file_seen *f = calloc(N, sizeof(*f));
    char *bufs = malloc((size_t)N * LEN);
    ck_assert(f && bufs);
    for (size_t i = 0; i < N; i++) {
        f[i].op = (struct loop_file_op){.kind = i % 8 == 7 ? LOOP_FDATASYNC : LOOP_READ,
                                        .fd = fd,
                                        .buf = bufs + i * LEN,
                                        .len = LEN,
                                        .done = note_file};
        f[i].op.ctx = &f[i];
        loop_file_submit(loop, &f[i].op);
    }
    int callbacks = loop_turn(loop, 0);
    ck_assert_int_ge(callbacks, 0);
    loop_destroy(&loop);
    unsigned calls = 0;
    for (size_t i = 0; i < N; i++)
        calls += f[i].calls;
    ck_assert_int_eq((int)calls, callbacks);
    free(bufs);
    free(f);
    close(fd);
}

CASES(.left_out = first_backend() != LOOP_URING);

/*
 * io_uring alone: it reads anything, and a timer's count comes when this test says. The pool of the
 * epoll twin is joined, which needs no such trick.
 */
CASE(destroy_waits_until_the_kernel_has_written)
{
    struct loop *loop = make(LOOP_URING);
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    ck_assert_int_ge(timer, 0);
    struct itimerspec when = {.it_value = {.tv_nsec = 50 * MS}};
    ck_assert_int_eq(timerfd_settime(timer, 0, &when, NULL), 0);
    uint64_t expired = 0;
    struct file_seen f = {.op = {.kind = LOOP_READ,
                                 .fd = timer,
                                 .buf = &expired,
                                 .len = sizeof(expired),
                                 .done = note_file}};
    f.op.ctx = &f;
    loop_file_submit(loop, &f.op);
    ck_assert_int_eq(loop_turn(loop, 0), 0);
    ck_assert_uint_eq(expired, 0);
    loop_destroy(&loop);
    ck_assert_uint_eq(expired, 1);
    ck_assert_uint_eq(f.calls, 0);
    close(timer);
}

CASES();

CASE_BOTH_LOOPS(files_and_watches_together)
{
    enum { ROUNDS = 200 };
    struct loop *loop = make_with(_i, 4, 4, 8);
    int bell = bell_new();
    int fd = temp_file();
    struct seen *s = watch_new(loop, bell, EPOLLIN);
    s->drain = true;
    struct file_seen f[8];
    char bytes[8];
    for (unsigned round = 1; round <= ROUNDS; round++) {
        for (size_t i = 0; i < 8; i++) {
            f[i] = (struct file_seen){.op = {.kind = LOOP_WRITE,
                                             .fd = fd,
                                             .buf = &bytes[i],
                                             .len = 1,
                                             .off = i,
                                             .done = note_file}};
            f[i].op.ctx = &f[i];
            loop_file_submit(loop, &f[i].op);
        }
        ring_bell(bell);
        for (int got = 0; got < 9;) {
            int n = turn_some(loop);
            ck_assert_int_gt(n, 0);
            got += n;
        }
        ck_assert_uint_eq(s->calls, round);
    }
    watch_free(s);
    close(bell);
    close(fd);
    loop_destroy(&loop);
}
