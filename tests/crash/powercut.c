/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Preloaded into the daemon: keeps what a power cut would take away. Before each write to a file
 * below $KVC_POWERCUT_ROOT the bytes that were there go into a log, and each sync that has ended is
 * noted there, so that power.c can undo what was written and not synced. Page caches outlive a
 * SIGKILL, so without this a daemon that never syncs passes every test.
 *
 * It sees calls of libc: the loop must be the one on epoll, and the journal must not be mapped for
 * writing (LMDB without MDB_WRITEMAP).
 */
#include "powercut.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS   4096
#define FILES 64

static struct {
    int file; /* + 1; 0: it is not looked at */
    bool dsync;
} fds[FDS];
static struct {
    dev_t dev;
    ino_t ino;
    int rfd;
} files[FILES];
static int nfiles;
static int log_fd = -1;
static uint64_t serial;
static const char *root;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_pwritev)(int, const struct iovec *, int, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_writev)(int, const struct iovec *, int);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);

static void *next(const char *name)
{
    void *at = dlsym(RTLD_NEXT, name);
    if (!at)
        abort();
    return at;
}

__attribute__((constructor)) static void begin(void)
{
    if (real_open)
        return;
    *(void **)&real_openat = next("openat");
    *(void **)&real_close = next("close");
    *(void **)&real_pwrite = next("pwrite");
    *(void **)&real_pwritev = next("pwritev");
    *(void **)&real_write = next("write");
    *(void **)&real_writev = next("writev");
    *(void **)&real_fsync = next("fsync");
    *(void **)&real_fdatasync = next("fdatasync");
    *(void **)&real_open = next("open");
    root = getenv("KVC_POWERCUT_ROOT");
    const char *log = getenv("KVC_POWERCUT_LOG");
    if (root && log)
        log_fd = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

static void say(const struct cut_record *r, const void *bytes)
{
    struct iovec iov[2] = {{(void *)(uintptr_t)r, sizeof *r}, {(void *)(uintptr_t)bytes, r->bytes}};
    const ssize_t want = (ssize_t)(sizeof *r + r->bytes);
    if (real_writev(log_fd, iov, r->bytes ? 2 : 1) != want)
        abort(); /* a test that cannot say what was lost tests nothing */
}

/* ---- files ---- */

static int file_of(const char *path, const struct stat *st)
{
    for (int i = 0; i < nfiles; i++)
        if (files[i].dev == st->st_dev && files[i].ino == st->st_ino)
            return i;
    if (nfiles == FILES)
        abort();
    const int rfd = real_open(path, O_RDONLY | O_CLOEXEC);
    if (rfd < 0)
        return -1;
    files[nfiles].dev = st->st_dev;
    files[nfiles].ino = st->st_ino;
    files[nfiles].rfd = rfd;
    const struct cut_record r = {
        .kind = CUT_FILE, .file = (uint32_t)nfiles, .serial = (uint64_t)st->st_ino};
    say(&r, NULL);
    return nfiles++;
}

static int opened(const char *path, int flags, int fd)
{
    struct stat st;
    char real[4096];
    const int error = errno;
    if (fd < 0 || fd >= FDS || log_fd < 0)
        return fd;
    pthread_mutex_lock(&lock);
    fds[fd].file = 0;
    if ((flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH) && realpath(path, real) &&
        strncmp(real, root, strlen(root)) == 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        fds[fd].file = file_of(real, &st) + 1;
        fds[fd].dsync = (flags & O_DSYNC) != 0;
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

static mode_t mode_of(int flags, va_list args)
{
    return flags & O_CREAT ? (mode_t)va_arg(args, unsigned) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list args;
    begin();
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    return opened(path, flags, real_open(path, flags, mode));
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int openat(int dir, const char *path, int flags, ...)
{
    char at[64], full[4096];
    va_list args;
    begin();
    va_start(args, flags);
    const mode_t mode = mode_of(flags, args);
    va_end(args);
    const int fd = real_openat(dir, path, flags, mode);
    if (path[0] == '/' || dir == AT_FDCWD)
        return opened(path, flags, fd);
    snprintf(at, sizeof at, "/proc/self/fd/%d", dir);
    const int error = errno;
    snprintf(full, sizeof full, "%s/%s", at, path);
    errno = error;
    return opened(full, flags, fd);
}

int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));

int close(int fd)
{
    begin();
    if (fd >= 0 && fd < FDS) {
        pthread_mutex_lock(&lock);
        fds[fd].file = 0;
        pthread_mutex_unlock(&lock);
    }
    return real_close(fd);
}

/* ---- writes ---- */

static bool is_watched(int fd)
{
    begin();
    return log_fd >= 0 && fd >= 0 && fd < FDS && fds[fd].file != 0;
}

/* What is there goes into the log; returns the write's number. */
static uint64_t before(int fd, off_t off, size_t bytes)
{
    const int file = fds[fd].file - 1;
    char *old = calloc(1, bytes ? bytes : 1);
    if (!old)
        abort();
    for (size_t at = 0; at < bytes;) {
        const ssize_t n = pread(files[file].rfd, old + at, bytes - at, off + (off_t)at);
        if (n <= 0)
            break; /* behind the end there are zeros */
        at += (size_t)n;
    }
    pthread_mutex_lock(&lock);
    const struct cut_record r = {.kind = CUT_WRITE,
                                 .file = (uint32_t)file,
                                 .serial = ++serial,
                                 .off = (uint64_t)off,
                                 .bytes = bytes};
    say(&r, old);
    pthread_mutex_unlock(&lock);
    free(old);
    return r.serial;
}

static void note(enum cut_kind kind, int file, uint64_t number)
{
    const int error = errno;
    const struct cut_record r = {.kind = kind, .file = (uint32_t)file, .serial = number};
    pthread_mutex_lock(&lock);
    say(&r, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
}

static ssize_t after(int fd, uint64_t number, ssize_t result)
{
    note(fds[fd].dsync && result >= 0 ? CUT_SAFE : CUT_DONE, fds[fd].file - 1, number);
    return result;
}

static size_t sum_of(const struct iovec *iov, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += iov[i].iov_len;
    return sum;
}

ssize_t pwrite(int fd, const void *p, size_t bytes, off_t off)
{
    if (!is_watched(fd))
        return real_pwrite(fd, p, bytes, off);
    const uint64_t number = before(fd, off, bytes);
    return after(fd, number, real_pwrite(fd, p, bytes, off));
}

ssize_t pwrite64(int fd, const void *p, size_t bytes, off_t off) __attribute__((alias("pwrite")));

ssize_t pwritev(int fd, const struct iovec *iov, int n, off_t off)
{
    if (!is_watched(fd))
        return real_pwritev(fd, iov, n, off);
    const uint64_t number = before(fd, off, sum_of(iov, n));
    return after(fd, number, real_pwritev(fd, iov, n, off));
}

ssize_t pwritev64(int fd, const struct iovec *iov, int n, off_t off)
    __attribute__((alias("pwritev")));

ssize_t write(int fd, const void *p, size_t bytes)
{
    if (!is_watched(fd))
        return real_write(fd, p, bytes);
    const uint64_t number = before(fd, lseek(fd, 0, SEEK_CUR), bytes);
    return after(fd, number, real_write(fd, p, bytes));
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    if (!is_watched(fd))
        return real_writev(fd, iov, n);
    const uint64_t number = before(fd, lseek(fd, 0, SEEK_CUR), sum_of(iov, n));
    return after(fd, number, real_writev(fd, iov, n));
}

/* ---- syncs ---- */

static int synced(int fd, int (*sync)(int))
{
    if (!is_watched(fd))
        return sync(fd);
    const int file = fds[fd].file - 1;
    pthread_mutex_lock(&lock);
    const uint64_t number = ++serial;
    pthread_mutex_unlock(&lock);
    note(CUT_SYNC, file, number);
    const int result = sync(fd);
    if (result == 0)
        note(CUT_SYNCED, file, number);
    return result;
}

int fsync(int fd)
{
    begin();
    return synced(fd, real_fsync);
}

int fdatasync(int fd)
{
    begin();
    return synced(fd, real_fdatasync);
}
