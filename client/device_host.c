/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker's own memory as a device, "host": addresses are pointers, and all is done when a call
 * returns. The daemon has no part in it: nothing of it is exported, and its pools are copied from
 * and to by the library.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client.h"
#include "device__.h"
#include "sys.h"

/* Of one copy, from here on past the cache: attention finds little of it there in any case. */
#define STREAM_BYTES_MIN (UINT64_C(1) << 20)

static int host_open(struct kvc *k, const char *name, struct device **ret_device)
{
    (void)name;
    struct device *d = sys_calloc(1, sizeof(*d));
    if (d == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    *d = (struct device){.ops = &device__host, .kvc = k, .refs = 1, .is_host = true};
    memcpy(d->uuid, "kvc-host", 8);
    *ret_device = d;
    return 0;
}

static void host_close(struct device *d)
{
    free(d);
}

static int host_alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    void *at = sys_pages(bytes);
    if (at == NULL)
        return kvc__fail(d->kvc, -ENOMEM, "cannot allocate %llu bytes", (unsigned long long)bytes);
    *ret_mem = (struct device_mem){.addr = at,
                                   .bytes = bytes,
                                   .span = bytes,
                                   .kind = DEVICE_MEM_OWN,
                                   .base = (uint64_t)(uintptr_t)at,
                                   .room = bytes,
                                   .fd = -1};
    return 0;
}

static int host_adopt(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
{
    (void)d;
    *ret_mem = (struct device_mem){
        .addr = addr, .bytes = bytes, .span = bytes, .kind = DEVICE_MEM_ADOPTED, .fd = -1};
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
    if (mem->room > 0)
        (void)munmap((void *)(uintptr_t)mem->base, mem->room);
    *mem = (struct device_mem){.fd = -1};
}

/* Nothing is registered for it: a device that needs that may come later. */
static int host_pin(struct device *d, void *host, uint64_t bytes, bool is_read_only)
{
    (void)d;
    (void)host;
    (void)bytes;
    (void)is_read_only;
    return -EOPNOTSUPP;
}

static void host_unpin(struct device *d, void *host)
{
    (void)d;
    (void)host;
}

static int host_signal(struct device *d, void *stream, volatile uint64_t *word, uint64_t value)
{
    (void)d;
    (void)stream;
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
    return 0;
}

static int host_copy(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
                     bool is_pinned, void *stream)
{
    (void)d;
    (void)way;
    (void)is_pinned;
    (void)stream;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += frag[i].bytes;
    (bytes < STREAM_BYTES_MIN ? kvc_copy_frags_cpu : kvc_stream_frags_cpu)(frag, n);
    return 0;
}

const struct device_ops device__host = {.open = host_open,
                                        .close = host_close,
                                        .alloc = host_alloc,
                                        .adopt = host_adopt,
                                        .export = host_export,
                                        .import = host_import,
                                        .free = host_free,
                                        .pin = host_pin,
                                        .unpin = host_unpin,
                                        .signal = host_signal,
                                        .copy = host_copy};
