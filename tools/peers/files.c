/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files as a cache. One peer has a file per block, written under a temporary name and renamed, so
 * that no reader finds half a block. The other has slots in one file that are overwritten in place,
 * without names, index or protection of readers: the limit of what copying can reach.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "peer.h"

struct files {
    int dir;         /* directory of the files */
    int slots;       /* the file of the slots */
    uint8_t *mapped; /* mapping of the whole file of the slots */
};

static int files_fail(const char *what)
{
    say_error("files: %s: %s", what, strerror(errno));
    return BENCH_FAILED;
}

static void files_close_it(struct peer *peer)
{
    struct files *files = peer->state;
    if (!files)
        return;
    if (files->mapped)
        munmap(files->mapped, peer->plan->blocks * peer->plan->block_bytes);
    if (files->slots >= 0)
        close(files->slots);
    if (files->dir >= 0)
        close(files->dir);
    free(files);
    peer->state = NULL;
}

static int open_at(struct peer *peer, const char *path)
{
    struct utsname kernel;
    if (uname(&kernel) == 0)
        snprintf(peer->version, sizeof(peer->version), "Linux %s", kernel.release);
    struct files *files = calloc(1, sizeof(*files));
    if (!files) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    files->slots = -1;
    files->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    peer->state = files;
    return files->dir < 0 ? files_fail(path) : 0;
}

static int open_tmpfs(struct peer *peer)
{
    return open_at(peer, peer->plan->tmpfs);
}

static int files_open_disk(struct peer *peer)
{
    return open_at(peer, peer->plan->disk);
}

static int write_all(int fd, const uint8_t *from, uint64_t bytes, uint64_t at)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, from, bytes, (off_t)at);
        if (n < 0)
            return files_fail("writing");
        from += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int read_all(int fd, uint8_t *to, uint64_t bytes, uint64_t at)
{
    while (bytes > 0) {
        ssize_t n = pread(fd, to, bytes, (off_t)at);
        if (n <= 0) {
            errno = n == 0 ? ENODATA : errno;
            return files_fail("reading");
        }
        to += n;
        at += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int store_one(struct peer *peer, uint32_t index)
{
    struct files *files = peer->state;
    uint64_t bytes = peer->plan->block_bytes;
    char name[PEER_KEY_BYTES];
    peer_text_key(index, name);
    int fd = openat(files->dir, "new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return files_fail("creating");
    int rc = write_all(fd, peer->source + index * bytes, bytes, 0);
    close(fd);
    if (rc == 0 && renameat(files->dir, "new", files->dir, name) != 0)
        rc = files_fail("renaming");
    return rc;
}

static int files_store(struct peer *peer, uint32_t first, uint32_t n)
{
    int rc = 0;
    for (uint32_t i = first; rc == 0 && i < first + n; i++)
        rc = store_one(peer, i);
    return rc;
}

static int open_block(struct peer *peer, uint32_t index)
{
    const struct files *files = peer->state;
    char name[PEER_KEY_BYTES];
    peer_text_key(index, name);
    return openat(files->dir, name, O_RDONLY | O_CLOEXEC);
}

static int load_pread(struct peer *peer, uint32_t first, uint32_t n)
{
    for (uint32_t i = first; i < first + n; i++) {
        int fd = open_block(peer, i);
        if (fd < 0)
            return files_fail("opening a block");
        int rc = read_all(fd, peer->target, peer->plan->block_bytes, 0);
        close(fd);
        if (rc != 0)
            return rc;
        peer_use_block(peer, i, peer->target);
    }
    return 0;
}

/* Populates the mapping at once, because single faults cost more. */
static int load_mmap(struct peer *peer, uint32_t first, uint32_t n)
{
    uint64_t bytes = peer->plan->block_bytes;
    for (uint32_t i = first; i < first + n; i++) {
        int fd = open_block(peer, i);
        if (fd < 0)
            return files_fail("opening a block");
        void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
        close(fd);
        if (at == MAP_FAILED)
            return files_fail("mapping a block");
        peer_use_block(peer, i, at);
        munmap(at, bytes);
    }
    return 0;
}

static int open_slots(struct peer *peer)
{
    int rc = open_at(peer, peer->plan->tmpfs);
    if (rc != 0)
        return rc;
    struct files *files = peer->state;
    uint64_t bytes = peer->plan->blocks * peer->plan->block_bytes;
    files->slots = openat(files->dir, "slots", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (files->slots < 0 || ftruncate(files->slots, (off_t)bytes) != 0)
        return files_fail("making the file of slots");
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, files->slots, 0);
    if (at == MAP_FAILED)
        return files_fail("mapping the file of slots");
    files->mapped = at;
    return 0;
}

static int store_slots(struct peer *peer, uint32_t first, uint32_t n)
{
    const struct files *files = peer->state;
    uint64_t bytes = peer->plan->block_bytes;
    int rc = 0;
    for (uint32_t i = first; rc == 0 && i < first + n; i++)
        rc = write_all(files->slots, peer->source + i * bytes, bytes, i * bytes);
    return rc;
}

static int load_slots(struct peer *peer, uint32_t first, uint32_t n)
{
    const struct files *files = peer->state;
    uint64_t bytes = peer->plan->block_bytes;
    int rc = 0;
    for (uint32_t i = first; rc == 0 && i < first + n; i++) {
        rc = read_all(files->slots, peer->target, bytes, i * bytes);
        if (rc == 0)
            peer_use_block(peer, i, peer->target);
    }
    return rc;
}

static int load_mapped_slots(struct peer *peer, uint32_t first, uint32_t n)
{
    const struct files *files = peer->state;
    for (uint32_t i = first; i < first + n; i++)
        peer_use_block(peer, i, files->mapped + i * peer->plan->block_bytes);
    return 0;
}

const struct peer_ops peer_tmpfs = {
    .name = "files on tmpfs",
    .settings = "a file per block: create, write, rename; open, pread into the caller's buffer, or "
                "mmap with MAP_POPULATE",
    .open = open_tmpfs,
    .store = files_store,
    .load = {{.how = "pread", .run = load_pread}, {.how = "mmap", .run = load_mmap}},
    .close = files_close_it,
};

const struct peer_ops peer_disk = {
    .name = "files, page cache",
    .settings =
        "the same on a file system of a disk, nothing synced, read back from the page cache",
    .open = files_open_disk,
    .store = files_store,
    .load = {{.how = "pread", .run = load_pread}, {.how = "mmap", .run = load_mmap}},
    .close = files_close_it,
};

const struct peer_ops peer_slots = {
    .name = "slots on tmpfs",
    .settings = "the limit of plain copying: pwrite over slots of one file in place, pread, or one "
                "mapping of it all; no names, no index, no protection of readers",
    .open = open_slots,
    .store = store_slots,
    .load = {{.how = "pread", .run = load_slots}, {.how = "mapped", .run = load_mapped_slots}},
    .close = files_close_it,
};
