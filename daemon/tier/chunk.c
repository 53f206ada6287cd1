/* SPDX-License-Identifier: Apache-2.0 */
/* Makes one memfd or file of the arena, seals it, maps it, and opens it read-only for workers. */
#include "chunk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "sys.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#define FS_HUGETLBFS 0x958458f6u

static int open_read_only(int fd)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int ro = sys_open(path, O_RDONLY, 0);
    return ro < 0 ? -errno : ro;
}

static int map_shared(int fd, uint64_t bytes, uint8_t **ret_base)
{
    void *p = sys_map_file(bytes, PROT_READ | PROT_WRITE, fd);
    if (p == MAP_FAILED)
        return -errno;
    *ret_base = p;
    return 0;
}

/* kept: the next run must map the memfd for writing, so that is not sealed. Otherwise it is; pages
 * can then be freed by truncation alone, which is not sealed. Files take no seals. Returns whether
 * writing is sealed. */
static bool seal(int fd, bool kept)
{
    const int seals = F_SEAL_GROW | F_SEAL_SEAL | (kept ? F_SEAL_SHRINK : F_SEAL_FUTURE_WRITE);
    return fcntl(fd, F_ADD_SEALS, seals) == 0 && !kept;
}

/* Maps the chunk. Owns fd from here on, also on an error. */
static int map(const struct chunk_want *want, int fd, struct chunk_mem *ret_mem)
{
    struct chunk_mem mem = {.fd = fd, .ro_fd = -1, .bytes = want->bytes};
    int err = map_shared(fd, want->bytes, &mem.base);
    if (err >= 0)
        err = open_read_only(fd);
    if (err < 0) {
        chunk_leave(&mem);
        return err;
    }
    mem.ro_fd = err;
    *ret_mem = mem;
    return 0;
}

static int chunk_make(const struct chunk_want *want, bool huge, struct chunk_mem *ret_mem)
{
    int fd;
    int err = backing_make(want->backing, want->id, want->bytes, huge, &fd);
    if (err < 0)
        return err;
    err = map(want, fd, ret_mem);
    if (err < 0) {
        backing_forget(want->backing, want->id);
        return err;
    }
    ret_mem->sealed = seal(fd, backing_keeps(want->backing));
    return 0;
}

static void chunk_place(const struct chunk_want *want, struct chunk_mem *mem)
{
    /* Both are hints, so errors do not matter: huge_err is reported. NOHUGEPAGE is needed where
     * shmem_enabled is "always": one touched page would be 2 MiB. */
    if (want->huge == ARENA_HUGE_TRY && !mem->hugetlb)
        (void)madvise(mem->base, mem->bytes, MADV_HUGEPAGE);
    else if (want->huge == ARENA_HUGE_OFF)
        (void)madvise(mem->base, mem->bytes, MADV_NOHUGEPAGE);
    if (want->topo != NULL)
        mem->numa_err = topo_bind_memory(want->topo, mem->base, mem->bytes, want->node);
}

int chunk_create(const struct chunk_want *want, struct chunk_mem *ret_mem)
{
    struct chunk_mem mem;
    /* A directory on hugetlbfs has huge pages only. */
    const bool only_huge = want->huge == ARENA_HUGE_REQUIRE || backing_is_huge(want->backing);
    int huge_err = 0;
    bool have = false;
    if (want->huge != ARENA_HUGE_OFF || only_huge) {
        /* With too few huge pages memfd_create() succeeds, and only mmap() fails. */
        huge_err = chunk_make(want, true, &mem);
        if (huge_err < 0 && only_huge)
            return huge_err;
        have = huge_err == 0;
    }
    if (!have) {
        const int err = chunk_make(want, false, &mem);
        if (err < 0)
            return err;
    }
    mem.hugetlb = have;
    mem.huge_err = huge_err;
    chunk_place(want, &mem);
    *ret_mem = mem;
    return 0;
}

int chunk_attach(const struct chunk_want *want, int fd, struct chunk_mem *ret_mem)
{
    struct chunk_mem mem;
    struct statfs fs;
    const bool huge = fstatfs(fd, &fs) == 0 && (uint32_t)fs.f_type == FS_HUGETLBFS;
    const int err = map(want, fd, &mem);
    if (err < 0)
        return err;
    mem.hugetlb = huge;
    mem.huge_err = huge ? 0 : -ENOTSUP;
    chunk_place(want, &mem);
    *ret_mem = mem;
    return 0;
}

static int punch(int fd, uint64_t at, uint64_t bytes)
{
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    for (;;) {
        if (bytes == 0 || fallocate(fd, mode, (off_t)at, (off_t)bytes) == 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

/* Frees all pages of the file, by its real length, which may differ from a chunk's. */
static void free_pages(int fd)
{
    struct stat st;
    int err = fstat(fd, &st) == 0 ? punch(fd, 0, (uint64_t)st.st_size) : -errno;
    if (err == -EPERM) /* sealed against writing */
        err = ftruncate(fd, 0);
    /* Only a failing disk or another seal could make this fail: memory has neither. */
    MUST(err == 0);
}

void chunk_punch(const struct chunk_mem *mem, uint64_t at, uint64_t bytes)
{
    MUST(punch(mem->fd, at, bytes) == 0);
}

void chunk_destroy(struct chunk_mem *mem)
{
    if (mem->fd >= 0)
        free_pages(mem->fd);
    chunk_leave(mem);
}

void chunk_leave(struct chunk_mem *mem)
{
    if (mem->base != NULL)
        (void)munmap(mem->base, mem->bytes);
    if (mem->ro_fd >= 0)
        (void)close(mem->ro_fd);
    if (mem->fd >= 0)
        (void)close(mem->fd);
    *mem = (struct chunk_mem){.fd = -1, .ro_fd = -1};
}
