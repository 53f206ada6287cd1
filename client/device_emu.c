/* SPDX-License-Identifier: Apache-2.0 */
/* An emulated device: its memory is memfds, mapped here and by the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "device__.h"
#include "sys.h"

static int emu_open(struct kvc *k, const char *name, struct device **ret_device)
{
    uint32_t number = 0;
    (void)device__number(name, "emu:", &number);
    struct device *d = sys_calloc(1, sizeof(*d));
    if (d == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    *d = (struct device){.ops = &device__emu, .kvc = k, .refs = 1, .is_emulated = true};
    device__emu_uuid(number, d->uuid);
    *ret_device = d;
    return 0;
}

static void emu_close(struct device *d)
{
    free(d);
}

/* ---- memory ---- */

/* The daemon maps the file too: nobody may make it shorter, or another user open it. */
static int make_file(uint64_t bytes, int *ret_fd)
{
    int fd = sys_memfd("kvcache-emulated-device", MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0600) != 0 || sys_ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    *ret_fd = fd;
    return 0;
}

static int emu_alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t span = (bytes + page - 1) / page * page;
    int fd = -1;
    int rc = make_file(span, &fd);
    void *at = MAP_FAILED;
    if (rc == 0) {
        at = sys_mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
        rc = at == MAP_FAILED ? -errno : 0;
    }
    if (rc < 0) {
        if (fd >= 0)
            close(fd);
        return kvc__fail(d->kvc, rc == -EMFILE ? rc : -ENOMEM,
                         "cannot make %llu bytes of memory of an emulated device: %s",
                         (unsigned long long)bytes, strerrordesc_np(-rc));
    }
    *ret_mem = (struct device_mem){.addr = at,
                                   .bytes = bytes,
                                   .span = span,
                                   .kind = DEVICE_MEM_OWN,
                                   .export = KVC_HANDLE_EMU,
                                   .base = (uint64_t)(uintptr_t)at,
                                   .room = span,
                                   .fd = fd};
    return 0;
}

static int emu_adopt(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
{
    (void)ret_mem;
    return kvc__fail(d->kvc, -EOPNOTSUPP,
                     "an emulated device exports memory of kvc_mem_alloc alone, not the %llu bytes "
                     "at %p: copy them with kvc_gpu_load and kvc_gpu_stage",
                     (unsigned long long)bytes, addr);
}

static int emu_export(struct device *d, const struct device_mem *mem,
                      struct device_handle *ret_handle)
{
    (void)d;
    *ret_handle = (struct device_handle){.kind = KVC_HANDLE_EMU, .fd = mem->fd, .bytes = mem->span};
    return 0;
}

/* A file that can be cut is a SIGBUS. */
static bool is_whole(int fd, uint64_t bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &st) == 0 && st.st_size > 0 &&
           (uint64_t)st.st_size >= bytes;
}

static int emu_import(struct device *d, const struct device_handle *handle,
                      struct device_mem *ret_mem)
{
    if (handle->kind != KVC_HANDLE_EMU || handle->fd < 0 || handle->bytes == 0 ||
        !is_whole(handle->fd, handle->bytes))
        return kvc__fail(d->kvc, -EINVAL,
                         "this is no memory of an emulated device: a memfd of at least %llu bytes, "
                         "sealed against shrinking, was expected",
                         (unsigned long long)handle->bytes);
    void *at = sys_mmap(NULL, handle->bytes, PROT_READ, MAP_SHARED, handle->fd);
    if (at == MAP_FAILED)
        return kvc__fail(d->kvc, -ENOMEM, "cannot map %llu bytes of an emulated device: %s",
                         (unsigned long long)handle->bytes, strerrordesc_np(errno));
    /* As with a real device: children have none of it, and so do not keep it when it is unmapped
     * here. */
    (void)madvise(at, handle->bytes, MADV_DONTFORK);
    *ret_mem = (struct device_mem){.addr = at,
                                   .bytes = handle->bytes,
                                   .span = handle->bytes,
                                   .kind = DEVICE_MEM_IMPORTED,
                                   .base = (uint64_t)(uintptr_t)at,
                                   .room = handle->bytes,
                                   .fd = -1};
    return 0;
}

static void emu_free(struct device *d, struct device_mem *mem)
{
    (void)d;
    if (mem->room > 0)
        (void)munmap((void *)(uintptr_t)mem->base, mem->room);
    if (mem->fd >= 0)
        close(mem->fd);
    *mem = (struct device_mem){.fd = -1};
}

/* ---- the rest ---- */

static int emu_pin(struct device *d, void *host, uint64_t bytes, bool is_read_only)
{
    (void)d;
    (void)host;
    (void)bytes;
    (void)is_read_only;
    return 0;
}

static void emu_unpin(struct device *d, void *host)
{
    (void)d;
    (void)host;
}

static int emu_signal(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
{
    (void)d;
    (void)stream;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return 0;
}

static int emu_copy(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
                    bool is_pinned, void *stream)
{
    (void)d;
    (void)way;
    (void)is_pinned;
    (void)stream;
    kvc_copy_frags_cpu(frag, n);
    return 0;
}

const struct device_ops device__emu = {.open = emu_open,
                                       .close = emu_close,
                                       .alloc = emu_alloc,
                                       .adopt = emu_adopt,
                                       .export = emu_export,
                                       .import = emu_import,
                                       .free = emu_free,
                                       .pin = emu_pin,
                                       .unpin = emu_unpin,
                                       .signal = emu_signal,
                                       .copy = emu_copy};
