/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file per block: created under a temporary name, written, renamed; unlinked when the block is
 * evicted. One peer writes through the page cache, the other past it.
 *
 * If no cgroup bounds the page cache, this file does. Blocks that were put or got are in a ring of
 * the size of the given memory. Writing back begins at once. A thread that pushes a block off the
 * ring waits until it is written, and drops its pages. So the cached pages, and those still to be
 * written, are as many as a cgroup would allow, and no other process is affected.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk_peer.h"
#include "perf.h"

#define NOBODY UINT64_MAX

struct files {
    int dir;
    uint8_t *target[DISK_THREADS_MAX]; /* room into which gets copy the block */
    int direct;                        /* O_DIRECT or 0 */
    pthread_mutex_t lock;              /* guards the ring */
    uint64_t *ring;                    /* NULL: the page cache need not be bounded */
    uint64_t ring_blocks, ring_at;
};

static int disk_files_fail(const char *what)
{
    say_error("files: %s: %s", what, strerror(errno));
    return BENCH_FAILED;
}

static void disk_files_close_it(struct disk_peer *peer)
{
    struct files *files = peer->state;
    if (files) {
        if (files->dir >= 0)
            close(files->dir);
        pthread_mutex_destroy(&files->lock);
        free(files->ring);
    }
    free(files);
    peer->state = NULL;
}

static int make_ring(struct files *files, const struct disk_plan *plan)
{
    files->ring_blocks = plan->memory / plan->block_bytes;
    files->ring = malloc(files->ring_blocks * sizeof(*files->ring));
    if (!files->ring) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    for (uint64_t i = 0; i < files->ring_blocks; i++)
        files->ring[i] = NOBODY;
    return 0;
}

static int disk_files_open_it(struct disk_peer *peer)
{
    struct files *files = calloc(1, sizeof(*files));
    if (!files) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    peer->state = files;
    pthread_mutex_init(&files->lock, NULL);
    files->direct = peer->ops == &disk_files_direct ? O_DIRECT : 0;
    if (!files->direct && !peer->plan->cgroup && make_ring(files, peer->plan) != 0)
        return BENCH_FAILED;
    files->dir = open(peer->plan->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->dir < 0)
        return disk_files_fail(peer->plan->dir);
    for (uint32_t i = 0; i < peer->plan->threads; i++) {
        files->target[i] = perf_private_memory(peer->plan->block_bytes);
        if (!files->target[i])
            return BENCH_FAILED;
    }
    return 0;
}

static void disk_files_name_of(uint64_t index, char name[32])
{
    snprintf(name, 32, "block-%016" PRIx64, index);
}

/* Writes a block and drops its pages from memory, because it was used too long ago to fit. If it
 * has been unlinked meanwhile, its pages are gone. */
static int drop_pages(const struct files *files, uint64_t index)
{
    char name[32];
    disk_files_name_of(index, name);
    int fd = openat(files->dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : disk_files_fail("opening a block to write it back");
    int rc = 0;
    if (sync_file_range(fd, 0, 0,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) != 0)
        rc = disk_files_fail("sync_file_range");
    errno = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    if (errno != 0)
        rc = disk_files_fail("posix_fadvise");
    close(fd);
    return rc;
}

static int into_cache(struct files *files, uint64_t index)
{
    if (!files->ring)
        return 0;
    pthread_mutex_lock(&files->lock);
    uint64_t *at = &files->ring[files->ring_at++ % files->ring_blocks];
    const uint64_t oldest = *at;
    *at = index;
    pthread_mutex_unlock(&files->lock);
    return oldest != NOBODY ? drop_pages(files, oldest) : 0;
}

static int write_file(const struct disk_peer *peer, int fd, const uint8_t *from)
{
    const struct files *files = peer->state;
    for (uint64_t done = 0; done < peer->plan->block_bytes;) {
        ssize_t n = write(fd, from + done, peer->plan->block_bytes - done);
        if (n < 0)
            return disk_files_fail("writing");
        done += (uint64_t)n;
    }
    if (peer->plan->sync)
        return fdatasync(fd) != 0 ? disk_files_fail("fdatasync") : 0;
    if (files->ring && sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) != 0)
        return disk_files_fail("sync_file_range");
    return 0;
}

static int disk_files_put(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    struct files *files = peer->state;
    char new[32], name[32];
    snprintf(new, sizeof(new), "new-%u", thread);
    disk_files_name_of(index, name);
    int fd = openat(files->dir, new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | files->direct, 0600);
    if (fd < 0)
        return disk_files_fail("creating");
    int rc = write_file(peer, fd, peer->buffer[thread]);
    close(fd);
    if (rc == 0 && renameat(files->dir, new, files->dir, name) != 0)
        rc = disk_files_fail("renaming");
    if (rc == 0 && peer->plan->sync && fsync(files->dir) != 0)
        rc = disk_files_fail("fsync of the directory");
    return rc == 0 ? into_cache(files, index) : rc;
}

static int disk_files_evict(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct files *files = peer->state;
    char name[32];
    (void)thread;
    disk_files_name_of(index, name);
    return unlinkat(files->dir, name, 0) != 0 ? disk_files_fail("unlinking") : 0;
}

static int disk_files_get(struct disk_peer *peer, uint32_t thread, uint64_t index,
                          const uint8_t **ret_data)
{
    struct files *files = peer->state;
    uint64_t done = 0;
    char name[32];
    disk_files_name_of(index, name);
    int fd = openat(files->dir, name, O_RDONLY | O_CLOEXEC | files->direct);
    if (fd < 0)
        return disk_files_fail("opening a block");
    if (!files->direct) /* reads the whole block at once, which is more than read-ahead would */
        posix_fadvise(fd, 0, 0, POSIX_FADV_WILLNEED);
    while (done < peer->plan->block_bytes) {
        ssize_t n = read(fd, files->target[thread] + done, peer->plan->block_bytes - done);
        if (n <= 0)
            break;
        done += (uint64_t)n;
    }
    close(fd);
    if (done < peer->plan->block_bytes)
        return disk_files_fail("reading a block");
    *ret_data = files->target[thread];
    return into_cache(files, index);
}

static int disk_files_settle(struct disk_peer *peer)
{
    const struct files *files = peer->state;
    return syncfs(files->dir) != 0 ? disk_files_fail("syncfs") : 0;
}

#define OPERATIONS                                                                \
    .open = disk_files_open_it, .put = disk_files_put, .evict = disk_files_evict, \
    .get = disk_files_get, .settle = disk_files_settle, .close = disk_files_close_it

const struct disk_ops disk_files = {
    .name = "file per block",
    .settings = "created, written, (fdatasync,) renamed, (fsync of the directory,) unlinked when "
                "evicted; read into a buffer; through the page cache, which is bounded",
    OPERATIONS};

const struct disk_ops disk_files_direct = {
    .name = "files, O_DIRECT", .settings = "the same past the page cache", OPERATIONS};
