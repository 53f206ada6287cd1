/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "disk_file.h"
#include "io_fixture.h"

#define PAGE DISK_PAGE_BYTES
#define MIB  (UINT64_C(1) << 20)

/* Of <linux/loop.h>, which has a struct loop_config too. */
#define LOOP_SET_FD       0x4C00
#define LOOP_CLR_FD       0x4C01
#define LOOP_CTL_GET_FREE 0x4C82

static struct loop *loop;
static struct disk_file *disk;
static char why[DISK_FILE_WHY_BYTES];

static void open_loop(int backend)
{
    scratch_make(true);
    loop = make_with(backend, 0, 4, 64);
}

static void setup(void)
{
    open_loop(LOOP_AUTO);
}

static void teardown(void)
{
    disk_file_close(&disk);
    loop_destroy(&loop);
    scratch_remove();
}

static int try_open(const char *name, uint64_t bytes, uint32_t lock_wait_ms)
{
    const struct disk_file_path path = {.name = name, .bytes = bytes};
    const struct disk_file_config config = {.paths = &path,
                                            .count = 1,
                                            .inflight_max = 4,
                                            .lock_wait_ms = lock_wait_ms,
                                            .create = true,
                                            .direct = true};
    why[0] = '\0';
    return disk_file_open(&config, loop, &disk, why);
}

static void must_open(const char *name, uint64_t bytes)
{
    ck_assert_msg(try_open(name, bytes, 0) == 0, "%s", why);
}

struct io_seen {
    struct disk_op op;
    struct iovec iov[8];
    unsigned calls;
};

static void note_op(struct disk_op *op)
{
    ((struct io_seen *)op->ctx)->calls++;
}

static void submit_v(struct io_seen *s, enum disk_kind kind, uint64_t off, const struct iovec *iov,
                     uint32_t iovs)
{
    *s = (struct io_seen){.op = {.kind = kind, .off = off, .iovs = iovs, .done = note_op}};
    for (uint32_t i = 0; i < iovs; i++) {
        s->iov[i] = iov[i];
        s->op.bytes += iov[i].iov_len;
    }
    s->op.iov = s->iov;
    s->op.ctx = s;
    s->op.result = 12345;
    struct disk *d = disk_file_disk(disk);
    d->ops->submit(d, &s->op);
    ck_assert_uint_eq(s->calls, 0); /* never inline */
}

static int64_t wait_for(struct io_seen *s)
{
    while (s->calls == 0)
        ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    ck_assert_int_eq(turn_ready(loop), 0);
    ck_assert_uint_eq(s->calls, 1);
    return s->op.result;
}

static int64_t run(enum disk_kind kind, uint64_t off, void *buf, uint64_t bytes)
{
    struct io_seen s;
    const struct iovec iov = {buf, bytes};
    submit_v(&s, kind, off, &iov, kind == DISK_SYNC ? 0 : 1);
    return wait_for(&s);
}

static uint8_t *pages(unsigned n, uint8_t fill)
{
    uint8_t *p = aligned_alloc(PAGE, (size_t)n * PAGE);
    ck_assert_ptr_nonnull(p);
    memset(p, fill, (size_t)n * PAGE);
    return p;
}

static off_t size_of(const char *name)
{
    struct stat st;
    return stat(name, &st) < 0 ? -1 : st.st_size;
}

/* --- operations, on both loops --- */

CASES(.setup = setup, .teardown = teardown);

CASE_BOTH_LOOPS(a_vector_is_written_and_read_another_way)
{
    teardown();
    open_loop(_i);
    must_open(scratch, MIB);
    uint8_t *a = pages(1, 'a');
    uint8_t *b = pages(3, 'b');
    uint8_t *in = pages(4, 0);
    struct io_seen s;
    submit_v(&s, DISK_WRITE, 5 * PAGE, (struct iovec[]){{b, 3 * PAGE}, {a, PAGE}}, 2);
    ck_assert_int_eq(wait_for(&s), 4 * PAGE);
    ck_assert_int_eq(run(DISK_SYNC, 0, NULL, 0), 0);
    submit_v(&s, DISK_READ, 5 * PAGE,
             (struct iovec[]){{in + PAGE, PAGE}, {in, PAGE}, {in + 2 * PAGE, 2 * PAGE}}, 3);
    ck_assert_int_eq(wait_for(&s), 4 * PAGE);
    ck_assert_mem_eq(in, b, 3 * PAGE);
    ck_assert_mem_eq(in + 3 * PAGE, a, PAGE);
    free(a);
    free(b);
    free(in);
}

CASE_BOTH_LOOPS(more_than_the_limit_in_flight_waits_and_is_done)
{
    enum { N = 50 };
    static struct io_seen s[N];
    teardown();
    open_loop(_i);
    must_open(scratch, MIB);
    uint8_t *out = pages(N, 0);
    uint8_t *in = pages(N, 0xff);
    for (unsigned i = 0; i < N; i++) {
        out[i * PAGE] = (uint8_t)(i + 1);
        submit_v(&s[i], DISK_WRITE, i * PAGE, &(struct iovec){out + i * PAGE, PAGE}, 1);
    }
    for (unsigned i = 0; i < N; i++)
        while (s[i].calls == 0)
            ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(s[i].op.result, PAGE);
    ck_assert_int_eq(run(DISK_READ, 0, in, N * PAGE), N * PAGE);
    ck_assert_mem_eq(in, out, N * PAGE);
    free(out);
    free(in);
}

CASE(a_file_that_was_cut_behind_our_back_is_an_error)
{
    must_open(scratch, MIB);
    ck_assert_int_eq(truncate(in_scratch(DISK_FILE_NAME), (off_t)(MIB / 2)), 0);
    uint8_t *p = pages(2, 0);
    ck_assert_int_eq(run(DISK_READ, MIB / 2 - PAGE, p, 2 * PAGE), -EIO);
    free(p);
}

CASE_DIES(an_operation_beyond_the_end_is_a_bug, SIGABRT)
{
    must_open(scratch, MIB);
    uint8_t *p = pages(2, 0);
    (void)run(DISK_READ, MIB - PAGE, p, 2 * PAGE);
}

/* --- faults --- */

CASE(faults_fail_what_they_name_and_then_pass)
{
    must_open(scratch, MIB);
    uint8_t *p = pages(1, 'p');
    ck_assert_int_eq(fault_arm_text("write:2-3=ENOSPC,read:1,sync:1"), 0);
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), PAGE);
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), -ENOSPC);
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), -ENOSPC);
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), PAGE);
    ck_assert_int_eq(run(DISK_READ, 0, p, PAGE), -EIO);
    ck_assert_int_eq(run(DISK_READ, 0, p, PAGE), PAGE);
    ck_assert_int_eq(run(DISK_SYNC, 0, NULL, 0), -EIO);
    ck_assert_int_eq(run(DISK_SYNC, 0, NULL, 0), 0);
    free(p);
}

CASE_BOTH_LOOPS(a_stalled_io_is_late_and_good)
{
    teardown();
    open_loop(_i);
    must_open(scratch, MIB);
    uint8_t *p = pages(1, 'p');
    struct io_seen late;
    ck_assert_int_eq(fault_arm_text("write:1=300ms"), 0);
    const int64_t begun_ns = now_ns();
    submit_v(&late, DISK_WRITE, 0, &(struct iovec){p, PAGE}, 1);
    ck_assert_int_eq(wait_for(&late), PAGE);
    ck_assert_int_ge(now_ns() - begun_ns, 300 * MS);
    ck_assert_int_eq(run(DISK_READ, 0, p, PAGE), PAGE);
    ck_assert_int_eq(p[0], 'p');
    free(p);
}

CASE(a_file_stands_as_long_as_its_name_leads_to_it)
{
    const char *name = in_scratch(DISK_FILE_NAME), *aside = in_scratch("aside");
    must_open(scratch, MIB);
    const struct disk *d = disk_file_disk(disk);
    ck_assert_int_eq(d->ops->stands(d, 0), 0);
    ck_assert_int_eq(rename(name, aside), 0);
    ck_assert_int_eq(d->ops->stands(d, 0), -ENOENT);
    close(open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ck_assert_int_eq(d->ops->stands(d, 0), -ENOENT);
    ck_assert_int_eq(rename(aside, name), 0);
    ck_assert_int_eq(d->ops->stands(d, 0), 0);
}

/* It came back into service as soon as a superblock could be written, and out with the next read.
 */
CASE(a_file_that_was_cut_does_not_stand)
{
    const char *name = in_scratch(DISK_FILE_NAME);
    must_open(scratch, MIB);
    const struct disk *d = disk_file_disk(disk);
    ck_assert_int_eq(truncate(name, (off_t)(MIB / 2)), 0);
    ck_assert_int_eq(d->ops->stands(d, 0), -ENODATA);
    ck_assert_uint_eq(disk_file_bytes(disk, 0), MIB);
    ck_assert_uint_eq(disk_file_length(disk, 0), MIB / 2);
    ck_assert_int_eq(truncate(name, (off_t)MIB), 0);
    ck_assert_int_eq(d->ops->stands(d, 0), 0);
}

/* --- opening --- */

static uint64_t a_mebibyte(const uint8_t *head, uint64_t bytes)
{
    (void)head;
    (void)bytes;
    return MIB;
}

static const char *no_problem(const uint8_t *head, uint64_t bytes)
{
    (void)head;
    (void)bytes;
    return NULL;
}

CASE(a_file_that_is_shorter_than_it_says_is_told)
{
    const struct disk_file_path path = {in_scratch(DISK_FILE_NAME), MIB};
    const struct disk_file_config config = {
        .paths = &path, .count = 1, .create = true, .problem = no_problem, .length = a_mebibyte};
    must_open(scratch, MIB);
    disk_file_close(&disk);
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), 0);
    ck_assert_ptr_null(strstr(disk_file_note(disk), "1048576"));
    disk_file_close(&disk);
    ck_assert_int_eq(truncate(path.name, 8192), 0);
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), 0);
    ck_assert_ptr_nonnull(strstr(disk_file_note(disk), "has 8192 bytes"));
    ck_assert_ptr_nonnull(strstr(disk_file_note(disk), "1048576"));
}

CASE(a_directory_gets_a_file_of_exactly_the_size)
{
    must_open(scratch, MIB + 123);
    struct disk *d = disk_file_disk(disk);
    ck_assert_uint_eq(d->paths, 1);
    ck_assert_uint_eq(d->ops->bytes(d, 0), MIB);
    ck_assert_int_eq(size_of(in_scratch(DISK_FILE_NAME)), (off_t)MIB);
    struct stat st;
    ck_assert_int_eq(stat(disk_file_name(disk, 0), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_uint_ge((uint64_t)st.st_blocks * 512, MIB);
}

CASE(a_file_is_brought_to_the_size_and_keeps_what_it_has)
{
    const char *name = in_scratch("a.store");
    uint8_t *p = pages(1, 'k');
    must_open(name, MIB);
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), PAGE);
    disk_file_close(&disk);
    must_open(name, 2 * MIB);
    ck_assert_int_eq(size_of(name), (off_t)(2 * MIB));
    disk_file_close(&disk);
    must_open(name, MIB);
    ck_assert_uint_eq(disk_file_bytes(disk, 0), MIB);
    ck_assert_int_eq(size_of(name), (off_t)(2 * MIB)); /* a start may yet be refused */
    ck_assert_int_eq(disk_file_cut(disk, 0), 0);
    ck_assert_int_eq(size_of(name), (off_t)MIB);
    ck_assert_int_eq(disk_file_cut(disk, 0), 0);
    disk_file_close(&disk);
    must_open(name, 0);
    ck_assert_uint_eq(disk_file_disk(disk)->ops->bytes(disk_file_disk(disk), 0), MIB);
    memset(p, 0, PAGE);
    ck_assert_int_eq(run(DISK_READ, 0, p, PAGE), PAGE);
    ck_assert_int_eq(p[PAGE - 1], 'k');
    free(p);
}

static const char *only_zeroes(const uint8_t *head, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (head[i] != 0)
            return "is precious";
    return NULL;
}

/* A file of somebody else's was cut to the limit before it was refused. */
CASE(what_may_not_be_written_over_keeps_its_size_and_so_do_the_others)
{
    const char *ours = in_scratch("a"), *made = in_scratch("b"), *precious = in_scratch("c");
    const struct disk_file_path paths[] = {{ours, MIB}, {made, MIB}, {precious, MIB}};
    const struct disk_file_config config = {
        .paths = paths, .count = 3, .create = true, .problem = only_zeroes};
    must_open(ours, 2 * MIB);
    disk_file_close(&disk);
    must_open(precious, 3 * MIB);
    disk_file_close(&disk);
    const int fd = open(precious, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "x", 1, 65600), 1);
    close(fd);
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "/c: is precious"));
    ck_assert_int_eq(size_of(ours), (off_t)(2 * MIB));
    ck_assert_int_eq(size_of(made), -1);
    ck_assert_int_eq(size_of(precious), (off_t)(3 * MIB));
}

CASE(no_room_is_an_error_and_leaves_nothing)
{
    const int r = try_open(scratch, UINT64_C(1) << 50, 0);
    ck_assert_msg(r == -ENOSPC || r == -EFBIG, "%d: %s", r, why);
    ck_assert_ptr_nonnull(strstr(why, DISK_FILE_NAME));
    ck_assert_int_eq(size_of(in_scratch(DISK_FILE_NAME)), -1);
}

CASE(no_room_on_one_path_leaves_the_others_as_long_as_they_were)
{
    const char *ours = in_scratch("a"), *large = in_scratch("b");
    const struct disk_file_path paths[] = {{ours, 2 * MIB}, {large, UINT64_C(1) << 50}};
    const struct disk_file_config config = {.paths = paths, .count = 2, .create = true};
    must_open(ours, MIB);
    disk_file_close(&disk);
    const int r = disk_file_open(&config, loop, &disk, why);
    ck_assert_msg(r == -ENOSPC || r == -EFBIG, "%d: %s", r, why);
    ck_assert_int_eq(size_of(ours), (off_t)MIB);
    ck_assert_int_eq(size_of(large), -1);
}

CASE(what_is_no_file_is_refused_by_name)
{
    static const struct {
        const char *name;
        uint64_t bytes;
        int err;
    } wrong[] = {{"/dev/null", MIB, -EINVAL},
                 {"/nonexistent/dir/file", MIB, -ENOENT},
                 {"nonexistent-dir/", MIB, -ENOENT},
                 {"", MIB, -ENOENT}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(try_open(wrong[i].name, wrong[i].bytes, 0), wrong[i].err);
        ck_assert_ptr_nonnull(strstr(why, wrong[i].name));
    }
    ck_assert_int_eq(try_open(in_scratch("x"), 0, 0), -EINVAL); /* how large? */
    ck_assert_int_eq(size_of(in_scratch("x")), -1);
}

CASE(one_file_twice_is_refused)
{
    const struct disk_file_path paths[] = {{scratch, MIB}, {in_scratch(DISK_FILE_NAME), MIB}};
    const struct disk_file_config config = {.paths = paths, .count = 2, .create = true};
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "is the same file as"));
}

CASE(several_paths_are_several_files)
{
    const struct disk_file_path paths[] = {{in_scratch("a"), MIB}, {in_scratch("b"), 2 * MIB}};
    const struct disk_file_config config = {.paths = paths, .count = 2, .create = true};
    ck_assert_uint_eq(disk_file_ops(&config), 2 * DISK_FILE_INFLIGHT);
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), 0);
    struct disk *d = disk_file_disk(disk);
    ck_assert_uint_eq(d->paths, 2);
    ck_assert_uint_eq(d->ops->bytes(d, 1), 2 * MIB);
    ck_assert(!disk_file_is_direct(disk, 1));
}

CASE(readonly_changes_nothing)
{
    const char *name = in_scratch("a");
    must_open(name, MIB);
    disk_file_close(&disk);
    const struct disk_file_path path = {name, 4 * MIB};
    const struct disk_file_config config = {.paths = &path, .count = 1, .readonly = true};
    ck_assert_int_eq(disk_file_open(&config, loop, &disk, why), 0);
    ck_assert_int_eq(size_of(name), (off_t)MIB);
    uint8_t *p = pages(1, 'p');
    ck_assert_int_eq(run(DISK_WRITE, 0, p, PAGE), -EROFS);
    ck_assert_int_eq(run(DISK_READ, 0, p, PAGE), PAGE);
    ck_assert_int_eq(p[0], 0);
    free(p);
}

CASE(what_is_there_is_told_before)
{
    struct disk_file_room room;
    ck_assert_int_eq(disk_file_probe(scratch, &room, why), 0);
    ck_assert(!room.exists && !room.is_device);
    ck_assert_uint_gt(room.free, 0);
    ck_assert_ptr_nonnull(strstr(room.file, DISK_FILE_NAME));
    must_open(scratch, MIB);
    ck_assert_int_eq(disk_file_probe(scratch, &room, why), 0);
    ck_assert(room.exists);
    ck_assert_uint_eq(room.bytes, MIB);
}

/* A loop device over a file of 4 MiB, where this machine lets us have one: its name, or NULL. */
static const char *loop_device(int *ret_fd)
{
    static char name[32];
    const char *backing = in_scratch("backing");
    const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    const int no = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    const int file = open(backing, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    snprintf(name, sizeof name, "/dev/loop%d", no);
    *ret_fd = no < 0 ? -1 : open(name, O_RDWR | O_CLOEXEC);
    const bool is_set = *ret_fd >= 0 && ftruncate(file, (off_t)(4 * MIB)) == 0 &&
                        ioctl(*ret_fd, LOOP_SET_FD, file) == 0;
    close(file);
    if (control >= 0)
        close(control);
    if (is_set)
        return name;
    printf("SKIP: no loop device for this test\n");
    if (*ret_fd >= 0)
        close(*ret_fd);
    return NULL;
}

CASE(a_device_is_taken_as_it_is_and_by_one_alone)
{
    int fd;
    struct disk_file_room room;
    const char *name = loop_device(&fd);
    if (!name)
        return;
    ck_assert_int_eq(disk_file_probe(name, &room, why), 0);
    ck_assert(room.is_device && room.exists);
    ck_assert_uint_eq(room.bytes, 4 * MIB);
    const int too_much = try_open(name, 5 * MIB, 0);
    const bool said = strstr(why, "has 4194304 bytes") != NULL;
    const int other = open(name, O_RDONLY | O_EXCL | O_CLOEXEC); /* as a mount has it */
    const int busy = try_open(name, 0, 50);
    const bool told = strstr(why, "is mounted, or in use") != NULL;
    close(other);
    const int good = try_open(name, 0, 0);
    uint64_t bytes = 0;
    int64_t moved = 0;
    if (good == 0) {
        uint8_t *p = pages(1, 'd');
        bytes = disk_file_disk(disk)->ops->bytes(disk_file_disk(disk), 0);
        moved = run(DISK_WRITE, bytes - PAGE, p, PAGE);
        free(p);
        disk_file_close(&disk);
    }
    (void)ioctl(fd, LOOP_CLR_FD, 0); /* before anything ends this process */
    close(fd);
    ck_assert_int_eq(too_much, -ENOSPC);
    ck_assert_int_eq(busy, -EBUSY);
    ck_assert(said && told);
    ck_assert_msg(good == 0, "%s", why);
    ck_assert_uint_eq(bytes, 4 * MIB);
    ck_assert_int_eq(moved, PAGE);
}

/* --- the lock --- */

CASE(a_second_opener_is_refused)
{
    must_open(scratch, MIB);
    struct disk_file *first = disk;
    disk = NULL;
    ck_assert_int_eq(try_open(scratch, 2 * MIB, 50), -EBUSY);
    ck_assert_ptr_nonnull(strstr(why, "is in use by another kvcache-daemon"));
    ck_assert_ptr_nonnull(strstr(why, DISK_FILE_NAME));
    /* It was not its to make larger, either. */
    ck_assert_int_eq(size_of(in_scratch(DISK_FILE_NAME)), (off_t)MIB);
    disk_file_close(&first);
    must_open(scratch, MIB);
}

/* The lock is that of the open file that does the I/O: a second descriptor of it keeps it, as the
 * kernel does for an I/O whose process is gone. */
CASE(the_lock_lives_as_long_as_the_file_of_the_io)
{
    must_open(scratch, MIB);
    int other = -1;
    for (int fd = 3; fd < 64 && other < 0; fd++) {
        char link[64];
        char target[512] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 && strstr(target, DISK_FILE_NAME))
            other = dup(fd);
    }
    ck_assert_int_ge(other, 0);
    disk_file_close(&disk);
    ck_assert_int_eq(try_open(scratch, MIB, 50), -EBUSY);
    close(other);
    ck_assert_int_eq(try_open(scratch, MIB, 0), 0);
}

CASE(a_lock_that_is_let_go_in_time_is_taken)
{
    const char *name = in_scratch("a");
    must_open(name, MIB);
    disk_file_close(&disk);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) { /* a predecessor that is killed a little later */
        const int fd = open(name, O_RDWR | O_CLOEXEC);
        if (fd < 0 || flock(fd, LOCK_EX) != 0)
            _exit(1);
        kill(getpid(), SIGSTOP);
        usleep(200000);
        kill(getpid(), SIGKILL);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    ck_assert(WIFSTOPPED(status));
    ck_assert_int_eq(try_open(name, MIB, 40), -EBUSY);
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    ck_assert_msg(try_open(name, MIB, 20000) == 0, "%s", why);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

CASE(each_refused_call_is_an_error_and_leaves_nothing)
{
    static const char *const points[] = {"alloc", "fd", "map", "sync"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        uint64_t nth = 0;
        for (bool reached = true; reached;) {
            ck_assert_int_eq(fault_arm(points[i], ++nth), 0);
            const int r = try_open(scratch, MIB, 0);
            reached = fault_count(points[i]) >= nth;
            fault_reset();
            if (reached) {
                ck_assert_msg(r < 0 && why[0], "%s %u", points[i], (unsigned)nth);
                ck_assert_int_eq(size_of(in_scratch(DISK_FILE_NAME)), -1);
            } else {
                ck_assert_int_eq(r, 0);
                disk_file_close(&disk);
                ck_assert_int_eq(unlink(in_scratch(DISK_FILE_NAME)), 0);
            }
        }
        ck_assert_uint_gt(nth, 1);
    }
}

int main(void)
{
    return cases_run();
}
