/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices whose memory the processor reaches: addresses are pointers, and all work is done when a
 * call returns. "emu:<number>" is an emulated device: memfds, mapped here and by the daemon. "host"
 * is the worker's own memory: the daemon does not know it, nothing of it is exported, and the
 * library itself copies from and to its pools.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client.h"
#include "device__.h"
#include "emu_mem.h"
#include "sys.h"

/* "host": copies of so many bytes or more bypass the processor's cache. So much data would not stay
 * in the cache until attention reads it anyway. */
#define STREAM_BYTES_MIN (UINT64_C(1) << 20)

/* ---- both ---- */

static int cpu_open(struct kvc *k, const struct device *as, struct device **ret_device)
{
    struct device *d = sys_calloc(1, sizeof(*d));
    if (d == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    *d = *as;
    d->kvc = k;
    d->refs = 1;
    *ret_device = d;
    return 0;
}

static void cpu_close(struct device *d)
{
    free(d);
}

/* "host" registers nothing, so that a device that does need it can register the memory later. */
static int cpu_pin(struct device *d, void *host, uint64_t bytes, bool is_read_only)
{
    (void)host;
    (void)bytes;
    (void)is_read_only;
    return d->is_host ? -EOPNOTSUPP : 0;
}

static void cpu_unpin(struct device *d, void *host)
{
    (void)d;
    (void)host;
}

static int cpu_signal(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
{
    (void)d;
    (void)stream;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return 0;
}

static int cpu_copy(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
                    bool is_pinned, void *stream)
{
    (void)way;
    (void)is_pinned;
    (void)stream;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n && d->is_host; i++)
        bytes += frag[i].bytes;
    (bytes < STREAM_BYTES_MIN ? kvc_copy_frags_cpu : kvc_stream_frags_cpu)(frag, n);
    return 0;
}

/* ---- an emulated device ---- */

static int emu_open(struct kvc *k, const struct device_name *name, struct device **ret_device)
{
    struct device as = {.ops = &device__emu, .is_emulated = true};
    device_name_emu_uuid(name->number, as.uuid);
    return cpu_open(k, &as, ret_device);
}

static int emu_alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    struct device_mem mem = {.bytes = bytes, .kind = DEVICE_MEM_OWN, .export = DEVICE_HANDLE_EMU};
    const int rc = emu_mem_make(bytes, EMU_FOR_WRITING, &mem.range); /* by the daemon */
    if (rc < 0)
        return kvc__fail(d->kvc, rc == -EMFILE ? rc : -ENOMEM,
                         "cannot make %llu bytes of memory of an emulated device: %s",
                         (unsigned long long)bytes, strerrordesc_np(-rc));
    mem.addr = (void *)(uintptr_t)mem.range.at;
    mem.span = mem.range.bytes;
    *ret_mem = mem;
    return 0;
}

static int emu_wrap(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
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
    emu_mem_export(&mem->range, mem->span, ret_handle);
    return 0;
}

static int emu_import(struct device *d, const struct device_handle *handle,
                      struct device_mem *ret_mem)
{
    struct device_mem mem = {
        .bytes = handle->bytes, .span = handle->bytes, .kind = DEVICE_MEM_IMPORTED};
    const int rc = emu_mem_import(handle, true, &mem.range);
    if (rc == -EINVAL)
        return kvc__fail(d->kvc, rc,
                         "this is no memory of an emulated device: a memfd of at least %llu bytes, "
                         "sealed against shrinking, was expected",
                         (unsigned long long)handle->bytes);
    if (rc < 0)
        return kvc__fail(d->kvc, rc, "cannot map %llu bytes of an emulated device: %s",
                         (unsigned long long)handle->bytes, strerrordesc_np(-rc));
    mem.addr = (void *)(uintptr_t)mem.range.at;
    *ret_mem = mem;
    return 0;
}

static void emu_free(struct device *d, struct device_mem *mem)
{
    (void)d;
    emu_mem_free(&mem->range);
    *mem = (struct device_mem){0};
}

/* ---- the worker's own memory ---- */

static int host_open(struct kvc *k, const struct device_name *name, struct device **ret_device)
{
    (void)name;
    return cpu_open(k, &(struct device){.ops = &device__host, .is_host = true, .uuid = "kvc-host"},
                    ret_device);
}

static int host_alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    void *at = sys_pages(bytes);
    if (at == NULL)
        return kvc__fail(d->kvc, -ENOMEM, "cannot allocate %llu bytes", (unsigned long long)bytes);
    *ret_mem =
        (struct device_mem){.addr = at, .bytes = bytes, .span = bytes, .kind = DEVICE_MEM_OWN};
    return 0;
}

static int host_wrap(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
{
    (void)d;
    *ret_mem = (struct device_mem){
        .addr = addr, .bytes = bytes, .span = bytes, .kind = DEVICE_MEM_WRAPPED};
    return 0;
}

static int host_export(struct device *d, const struct device_mem *mem,
                       struct device_handle *ret_handle)
{
    (void)mem;
    (void)ret_handle;
    return kvc__fail(d->kvc, -EOPNOTSUPP, "the daemon is given no memory of the device 'host'");
}

static int host_import(struct device *d, const struct device_handle *handle,
                       struct device_mem *ret_mem)
{
    (void)handle;
    (void)ret_mem;
    return kvc__fail(d->kvc, -EOPNOTSUPP, "the daemon keeps no blocks on the device 'host'");
}

static void host_free(struct device *d, struct device_mem *mem)
{
    (void)d;
    if (mem->kind == DEVICE_MEM_OWN)
        (void)munmap(mem->addr, mem->bytes);
    *mem = (struct device_mem){0};
}

const struct device_ops device__emu = {.open = emu_open,
                                       .close = cpu_close,
                                       .alloc = emu_alloc,
                                       .wrap = emu_wrap,
                                       .export = emu_export,
                                       .import = emu_import,
                                       .free = emu_free,
                                       .pin = cpu_pin,
                                       .unpin = cpu_unpin,
                                       .signal = cpu_signal,
                                       .copy = cpu_copy};

const struct device_ops device__host = {.open = host_open,
                                        .close = cpu_close,
                                        .alloc = host_alloc,
                                        .wrap = host_wrap,
                                        .export = host_export,
                                        .import = host_import,
                                        .free = host_free,
                                        .pin = cpu_pin,
                                        .unpin = cpu_unpin,
                                        .signal = cpu_signal,
                                        .copy = cpu_copy};
