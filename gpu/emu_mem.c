/* SPDX-License-Identifier: Apache-2.0 */
#include "emu_mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "sys.h"

#define TMPFS_FS 0x01021994u
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static uint64_t whole_pages(uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Makes the memfd. Its name, which /proc shows, tells memory of the daemon from a worker's. */
static int file_make(uint64_t bytes, enum emu_export others)
{
    const char *name = others == EMU_FOR_WRITING ? "kvcache-emulated-device" : "kvc-emu";
    const int fd = sys_memfd_sized(name, 0, bytes);
    if (fd < 0)
        return errno == ENOSPC ? -ENOMEM : -errno;
    return fd;
}

/* Seals the file of memory that is mapped here already. No process can change its size any more, so
 * none can make this one fault. With FOR_READING, if the kernel has that seal, none can map it for
 * writing either. */
static int file_seal(int fd, enum emu_export others)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    if (others == EMU_FOR_READING && fcntl(fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) == 0)
        return 0;
    return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

/* Opens the file for reading only, so that no mapping of it can be made writable. */
static int open_read_only(int fd)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int ro = sys_open(path, O_RDONLY, 0);
    return ro < 0 ? -errno : ro;
}

static int range_map(int fd, uint64_t bytes, int prot, struct device_range *range)
{
    const uint64_t whole = whole_pages(bytes);
    void *at = sys_mmap(NULL, whole, prot, MAP_SHARED, fd);
    if (at == MAP_FAILED)
        return -errno;
    *range = (struct device_range){
        .kind = DEVICE_RANGE_EMU, .at = (uintptr_t)at, .bytes = whole, .mapped = true, .fd = -1};
    return 0;
}

/* Seals the file, and takes the descriptor that is passed on. */
static int range_take_file(struct device_range *range, int fd, enum emu_export others)
{
    int rc = file_seal(fd, others);
    if (rc == 0)
        rc = others == EMU_FOR_READING ? open_read_only(fd) : fd;
    if (rc < 0)
        return rc;
    range->fd = rc;
    range->has_file = true;
    return 0;
}

int emu_mem_make(uint64_t bytes, enum emu_export others, struct device_range *ret_range)
{
    struct device_range range = {.fd = -1};
    const int fd = file_make(whole_pages(bytes), others);
    if (fd < 0)
        return fd;
    int rc = range_map(fd, bytes, PROT_READ | PROT_WRITE, &range);
    if (rc == 0)
        rc = range_take_file(&range, fd, others);
    if (!range.has_file || range.fd != fd)
        (void)close(fd);
    if (rc < 0)
        emu_mem_free(&range);
    else
        *ret_range = range;
    return rc;
}

void emu_mem_export(const struct device_range *range, uint64_t bytes,
                    struct device_handle *ret_handle)
{
    *ret_handle =
        (struct device_handle){.kind = DEVICE_HANDLE_EMU, .fd = range->fd, .bytes = bytes};
}

/* Whether all of `bytes` will be there as long as it is mapped. Only memfds and files of hugetlbfs
 * can be sealed; the latter may run out of pages. */
static bool file_is_whole(int fd, uint64_t bytes)
{
    struct stat st;
    struct statfs fs;
    const int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
           (uint64_t)st.st_size >= bytes && fstatfs(fd, &fs) == 0 &&
           (uint32_t)fs.f_type == TMPFS_FS;
}

int emu_mem_import(const struct device_handle *handle, bool is_read_only,
                   struct device_range *ret_range)
{
    if (handle->kind != DEVICE_HANDLE_EMU || handle->bytes == 0 ||
        !file_is_whole(handle->fd, handle->bytes))
        return -EINVAL;
    const int rc = range_map(handle->fd, handle->bytes,
                             is_read_only ? PROT_READ : PROT_READ | PROT_WRITE, ret_range);
    if (rc < 0) /* EACCES, EPERM: not to be written to */
        return rc == -ENOMEM ? rc : -EINVAL;
    /* As with a real device: children have none of it, and so do not keep it when it is unmapped
     * here. */
    (void)madvise((void *)(uintptr_t)ret_range->at, ret_range->bytes, MADV_DONTFORK);
    return 0;
}

void emu_mem_free(struct device_range *range)
{
    if (range->mapped)
        (void)munmap((void *)(uintptr_t)range->at, range->bytes);
    if (range->has_file)
        (void)close(range->fd);
    *range = (struct device_range){.fd = -1};
}
