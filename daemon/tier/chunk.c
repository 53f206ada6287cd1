/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26) /* log2 of the page size, above the flags */
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static int make_memfd(unsigned flags)
{
    const int fd = sys_memfd("kvcache-chunk", flags | MFD_ALLOW_SEALING);
    return fd < 0 ? -errno : fd;
}

static int open_read_only(int fd)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int ro = sys_open(path, O_RDONLY, 0);
    return ro < 0 ? -errno : ro;
}

static int map_shared(int fd, uint64_t bytes, uint8_t **ret_base)
{
    void *p = sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    if (p == MAP_FAILED)
        return -errno;
    *ret_base = p;
    return 0;
}

/* No seal against shrinking: the daemon truncates the chunk when its room goes to another. */
static bool seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0;
}

static int make(uint64_t bytes, unsigned flags, struct chunk_mem *ret_mem)
{
    struct chunk_mem mem = {.fd = -1, .ro_fd = -1, .bytes = bytes};
    int err = make_memfd(flags);
    if (err < 0)
        return err;
    mem.fd = err;
    if (fchmod(mem.fd, S_IRUSR | S_IWUSR) != 0 || sys_ftruncate(mem.fd, (off_t)bytes) != 0)
        err = -errno;
    else
        err = map_shared(mem.fd, bytes, &mem.base);
    if (err >= 0)
        err = open_read_only(mem.fd);
    if (err < 0) {
        chunk_destroy(&mem);
        return err;
    }
    mem.ro_fd = err;
    mem.sealed = seal(mem.fd);
    *ret_mem = mem;
    return 0;
}

int chunk_create(const struct chunk_want *want, struct chunk_mem *ret_mem)
{
    struct chunk_mem mem;
    int huge_err = 0;
    bool have = false;
    if (want->huge != ARENA_HUGE_OFF) {
        /* With too few pages the memfd is made and only mmap() refuses. */
        huge_err = make(want->bytes, MFD_HUGETLB | MFD_HUGE_2MB, &mem);
        if (huge_err < 0 && want->huge == ARENA_HUGE_REQUIRE)
            return huge_err;
        have = huge_err == 0;
    }
    if (!have) {
        const int err = make(want->bytes, 0, &mem);
        if (err < 0)
            return err;
        if (want->huge == ARENA_HUGE_TRY)
            (void)madvise(mem.base, mem.bytes, MADV_HUGEPAGE); /* a hint; huge_err says enough */
    }
    mem.hugetlb = have;
    mem.huge_err = huge_err;
    if (want->topo != NULL)
        mem.numa_err = topo_bind_memory(want->topo, mem.base, mem.bytes, want->node);
    *ret_mem = mem;
    return 0;
}

void chunk_destroy(struct chunk_mem *mem)
{
    if (mem->fd >= 0) {
        /* Only a failing disk or a seal could refuse this, and there is neither. */
        const int err = ftruncate(mem->fd, 0);
        MUST(err == 0);
    }
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
