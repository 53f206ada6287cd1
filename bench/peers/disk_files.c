/* SPDX-License-Identifier: Apache-2.0 */
/* A file per block: created under a name of its own, written, renamed; unlinked when evicted. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "disk_peer.h"
#include "perf.h"

struct files {
    int dir;
    uint8_t *target[DISK_THREADS_MAX]; /* where gets put the block */
};

static int fail(const char *what)
{
    say_error("files: %s: %s", what, strerror(errno));
    return BENCH_FAILED;
}

static void close_it(struct disk_peer *peer)
{
    struct files *files = peer->state;
    if (files && files->dir >= 0)
        close(files->dir);
    free(files);
    peer->state = NULL;
}

static int open_it(struct disk_peer *peer)
{
    struct files *files = calloc(1, sizeof(*files));
    if (!files) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    peer->state = files;
    files->dir = open(peer->plan->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (files->dir < 0)
        return fail(peer->plan->dir);
    for (uint32_t i = 0; i < peer->plan->threads; i++) {
        files->target[i] = perf_private_memory(peer->plan->block_bytes);
        if (!files->target[i])
            return BENCH_FAILED;
    }
    return 0;
}

static void name_of(uint64_t index, char name[32])
{
    snprintf(name, 32, "block-%016" PRIx64, index);
}

static int write_file(const struct disk_peer *peer, int fd, const uint8_t *from)
{
    for (uint64_t done = 0; done < peer->plan->block_bytes;) {
        ssize_t n = write(fd, from + done, peer->plan->block_bytes - done);
        if (n < 0)
            return fail("writing");
        done += (uint64_t)n;
    }
    return peer->plan->sync && fdatasync(fd) != 0 ? fail("fdatasync") : 0;
}

static int put(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct files *files = peer->state;
    int direct = peer->plan->direct ? O_DIRECT : 0;
    char new[32], name[32];
    snprintf(new, sizeof(new), "new-%u", thread);
    name_of(index, name);
    int fd = openat(files->dir, new, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | direct, 0600);
    if (fd < 0)
        return fail("creating");
    int rc = write_file(peer, fd, peer->buffer[thread]);
    close(fd);
    if (rc == 0 && renameat(files->dir, new, files->dir, name) != 0)
        rc = fail("renaming");
    if (rc == 0 && peer->plan->sync && fsync(files->dir) != 0)
        rc = fail("fsync of the directory");
    return rc;
}

static int evict(struct disk_peer *peer, uint32_t thread, uint64_t index)
{
    const struct files *files = peer->state;
    char name[32];
    (void)thread;
    name_of(index, name);
    return unlinkat(files->dir, name, 0) != 0 ? fail("unlinking") : 0;
}

static int get(struct disk_peer *peer, uint32_t thread, uint64_t index, const uint8_t **ret_data)
{
    const struct files *files = peer->state;
    int direct = peer->plan->direct ? O_DIRECT : 0;
    uint64_t done = 0;
    char name[32];
    name_of(index, name);
    int fd = openat(files->dir, name, O_RDONLY | O_CLOEXEC | direct);
    if (fd < 0)
        return fail("opening a block");
    while (done < peer->plan->block_bytes) {
        ssize_t n = read(fd, files->target[thread] + done, peer->plan->block_bytes - done);
        if (n <= 0)
            break;
        done += (uint64_t)n;
    }
    close(fd);
    if (done < peer->plan->block_bytes)
        return fail("reading a block");
    *ret_data = files->target[thread];
    return 0;
}

static int settle(struct disk_peer *peer)
{
    const struct files *files = peer->state;
    return syncfs(files->dir) != 0 ? fail("syncfs") : 0;
}

const struct disk_ops disk_files = {
    .name = "file per block",
    .settings = "created, written, (fdatasync,) renamed, (fsync of the directory,) unlinked when "
                "evicted; read into a buffer",
    .open = open_it,
    .put = put,
    .evict = evict,
    .get = get,
    .settle = settle,
    .close = close_it,
};
