/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory is a memfd, mapped twice: where programs see it, without any access, and where the
 * fake works on it. So a program that touches device memory by itself dies.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_cuda__.h"
#include "fake_cuda_handles.h"

#define PAGE UINT64_C(4096)

struct alloc {
    int fd;
    char *bytes_at; /* the mapping that is worked on */
    uint64_t bytes;
    struct fake_device *device;
    bool is_own; /* counted in used_bytes */
    ino_t ino;
    unsigned users;
};

struct handle {
    struct list_node node;
    struct alloc *alloc;
};

enum range_kind { RESERVED, PLAIN, IPC };
struct range {
    struct list_node node;
    enum range_kind kind;
    uint64_t start, bytes;
    struct alloc *alloc; /* NULL: nothing is mapped */
    bool is_accessible, is_read_only;
    unsigned opened; /* IPC */
};

struct host {
    struct list_node node;
    uint64_t start, bytes;
    struct fake_device *device;
    bool is_registered; /* else allocated */
    bool is_read_only;
};

/* ---- allocations ---- */

static struct alloc *alloc_map(int fd, uint64_t bytes, struct fake_device *device, bool is_own)
{
    struct stat st;
    struct alloc *a = calloc(1, sizeof(*a));
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!a || at == MAP_FAILED || fstat(fd, &st) < 0)
        fake__wrong("no memory for a device's");
    *a = (struct alloc){.fd = fd,
                        .bytes_at = at,
                        .bytes = bytes,
                        .device = device,
                        .is_own = is_own,
                        .ino = st.st_ino};
    device->used_bytes += is_own ? bytes : 0;
    return a;
}

/* Others have a part, and take more at any time: what there is when one asks is no promise. */
static uint64_t free_bytes(const struct fake_device *device)
{
    const uint64_t taken = device->used_bytes + fake.taken_bytes;
    return taken < fake.memory_bytes ? fake.memory_bytes - taken : 0;
}

/* By its number in the machine; NULL: this process does not see it. */
static struct fake_device *device_numbered(int number)
{
    for (int i = 0; i < fake.devices; i++)
        if (fake.device[i].number == number)
            return &fake.device[i];
    return NULL;
}

static struct alloc *alloc_make(struct fake_device *device, uint64_t bytes)
{
    const struct fake_cuda_tail tail = {
        .magic = FAKE_CUDA_MAGIC, .bytes = bytes, .device = device->number};
    if (bytes > free_bytes(device))
        return NULL;
    const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)(bytes + PAGE)) < 0 ||
        pwrite(fd, &tail, sizeof(tail), (off_t)bytes) != sizeof(tail))
        fake__wrong("no memfd");
    struct alloc *a = alloc_map(fd, bytes, device, true);
    for (uint64_t at = 0; at < bytes; at += FAKE_GRANULARITY) /* of whoever had it before */
        memset(a->bytes_at + at, 0xa5, MIN(bytes - at, PAGE));
    return a;
}

/* Of a memfd that a fake driver made, in any process; NULL when it is something else. Takes fd. */
static struct alloc *alloc_of(int fd)
{
    struct stat st;
    struct fake_cuda_tail tail;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size > PAGE &&
        pread(fd, &tail, sizeof(tail), st.st_size - (off_t)PAGE) == sizeof(tail) &&
        tail.magic == FAKE_CUDA_MAGIC && tail.bytes == (uint64_t)st.st_size - PAGE &&
        device_numbered(tail.device))
        return alloc_map(fd, tail.bytes, device_numbered(tail.device), false);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void alloc_put(struct alloc *a)
{
    if (--a->users > 0)
        return;
    a->device->used_bytes -= a->is_own ? a->bytes : 0;
    munmap(a->bytes_at, a->bytes);
    close(a->fd);
    free(a);
}

/* ---- ranges ---- */

static uint64_t addresses_take(uint64_t bytes, uint64_t alignment)
{
    char *at = mmap(NULL, bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED)
        return 0;
    const uint64_t begin = (uintptr_t)at;
    const uint64_t start = ROUND_UP(begin, alignment);
    if (start > begin)
        munmap(at, start - begin);
    if (start < begin + alignment)
        munmap((void *)(uintptr_t)(start + bytes), begin + alignment - start);
    return start;
}

static struct range *range_add(enum range_kind kind, uint64_t start, uint64_t bytes,
                               struct alloc *alloc)
{
    struct range *x = calloc(1, sizeof(*x));
    if (!x)
        fake__wrong("no memory");
    *x = (struct range){.kind = kind, .start = start, .bytes = bytes, .alloc = alloc};
    if (alloc)
        alloc->users++;
    list_push_back(&fake.ranges, &x->node);
    return x;
}

static void range_end(struct range *x)
{
    if (x->alloc)
        alloc_put(x->alloc);
    munmap((void *)(uintptr_t)x->start, x->bytes);
    list_remove(&x->node);
    free(x);
}

static struct range *range_with(uint64_t addr)
{
    LIST_FOR_EACH_SAFE (node, next, &fake.ranges) {
        struct range *x = CONTAINER_OF(node, struct range, node);
        if (addr >= x->start && addr < x->start + x->bytes)
            return x;
    }
    return NULL;
}

/* The reservation that is exactly this. */
static struct range *range_exact(const char *call, uint64_t start, uint64_t bytes)
{
    struct range *x = range_with(start);
    if (!x || x->kind != RESERVED || x->start != start || x->bytes != bytes)
        fake__wrong("%s: %#jx with %ju bytes was not reserved", call, (uintmax_t)start,
                    (uintmax_t)bytes);
    return x;
}

/* ---- reach ---- */

static struct host *host_with(uint64_t addr)
{
    LIST_FOR_EACH_SAFE (node, next, &fake.hosts) {
        struct host *h = CONTAINER_OF(node, struct host, node);
        if (addr >= h->start && addr < h->start + h->bytes)
            return h;
    }
    return NULL;
}

static char *device_reach(const struct fake_device *device, uint64_t addr, uint64_t bytes)
{
    const struct range *x = range_with(addr);
    if (!x || !x->alloc || !x->is_accessible || x->alloc->device != device ||
        bytes > x->start + x->bytes - addr)
        return NULL;
    return x->alloc->bytes_at + (addr - x->start);
}

static bool is_mapped(uint64_t addr, uint64_t bytes)
{
    unsigned char resident[256];
    const uint64_t end = ROUND_UP(addr + bytes, PAGE);
    for (uint64_t at = addr / PAGE * PAGE; at < end; at += sizeof(resident) * PAGE)
        if (mincore((void *)(uintptr_t)at, MIN(end - at, sizeof(resident) * PAGE), resident) < 0)
            return false;
    return true;
}

/* The device has the pages that were registered, whatever the program maps there later. */
static char *host_reach(uint64_t addr, uint64_t bytes)
{
    const struct host *h = host_with(addr);
    if (h && bytes <= h->start + h->bytes - addr && !is_mapped(addr, bytes))
        fake__wrong("host memory at %#jx was unmapped while it was registered", (uintmax_t)addr);
    return h && bytes <= h->start + h->bytes - addr ? (char *)(uintptr_t)addr : NULL;
}

bool fake__may_write(const struct fake_device *device, uint64_t addr)
{
    const struct range *x = range_with(addr);
    const struct host *h = host_with(addr);
    if (!x && !h && addr >= fake.host_offset)
        h = host_with(addr - fake.host_offset);
    return x ? !x->is_read_only || x->alloc->device != device : !h || !h->is_read_only;
}

char *fake__reach(const struct fake_device *device, uint64_t addr, uint64_t bytes)
{
    char *at = device_reach(device, addr, bytes);
    return at || addr < fake.host_offset ? at : host_reach(addr - fake.host_offset, bytes);
}

/* No byte of it is device memory or registered. */
static bool is_pageable(uint64_t addr, uint64_t bytes)
{
    LIST_FOR_EACH_SAFE (node, next, &fake.ranges) {
        const struct range *x = CONTAINER_OF(node, struct range, node);
        if (addr < x->start + x->bytes && x->start < addr + bytes)
            return false;
    }
    LIST_FOR_EACH_SAFE (node, next, &fake.hosts) {
        const struct host *h = CONTAINER_OF(node, struct host, node);
        if (addr < h->start + h->bytes && h->start < addr + bytes)
            return false;
    }
    return is_mapped(addr, bytes);
}

char *fake__reach_any(const struct fake_device *device, uint64_t addr, uint64_t bytes,
                      bool *ret_pageable)
{
    char *at = fake__reach(device, addr, bytes);
    if (!at)
        at = host_reach(addr, bytes);
    if (!at && is_pageable(addr, bytes)) {
        at = (char *)(uintptr_t)addr;
        *ret_pageable = true;
    }
    return at;
}

/* ---- VMM ---- */

static void must_be_prop(const char *call, const CUmemAllocationProp *prop)
{
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        prop->requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        fake__wrong("%s: other properties than those of exportable device memory", call);
    (void)fake__device(prop->location.id);
}

static void must_be_whole(const char *call, uint64_t bytes)
{
    if (bytes == 0 || bytes % FAKE_GRANULARITY != 0)
        fake__wrong("%s: %ju bytes", call, (uintmax_t)bytes);
}

CUresult fake_MemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
                                          CUmemAllocationGranularity_flags option)
{
    const CUresult r = fake__enter("cuMemGetAllocationGranularity", FAKE_INIT);
    must_be_prop("cuMemGetAllocationGranularity", prop);
    if (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM)
        fake__wrong("cuMemGetAllocationGranularity: option %d", (int)option);
    if (r == CUDA_SUCCESS)
        *ret_bytes = FAKE_GRANULARITY;
    return fake__leave(r);
}

static struct handle *handle_of(const char *call, CUmemGenericAllocationHandle number)
{
    LIST_FOR_EACH_SAFE (node, next, &fake.handles) {
        if ((uintptr_t)node == number)
            return CONTAINER_OF(node, struct handle, node);
    }
    fake__wrong("%s: no such handle", call);
}

static CUmemGenericAllocationHandle handle_add(struct alloc *alloc)
{
    struct handle *h = calloc(1, sizeof(*h));
    if (!h)
        fake__wrong("no memory");
    h->alloc = alloc;
    alloc->users++;
    list_push_back(&fake.handles, &h->node);
    return (uintptr_t)&h->node;
}

CUresult fake_MemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes,
                        const CUmemAllocationProp *prop, unsigned long long flags)
{
    CUresult r = fake__enter("cuMemCreate", FAKE_INIT);
    must_be_prop("cuMemCreate", prop);
    must_be_whole("cuMemCreate", bytes);
    if (flags != 0 || !fake.vmm)
        fake__wrong("cuMemCreate: flags %llu, or no device that can", flags);
    struct alloc *a = r == CUDA_SUCCESS ? alloc_make(fake__device(prop->location.id), bytes) : NULL;
    if (r == CUDA_SUCCESS && !a)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        *ret_handle = handle_add(a);
    return fake__leave(r);
}

CUresult fake_MemRelease(CUmemGenericAllocationHandle handle)
{
    const CUresult r = fake__enter("cuMemRelease", FAKE_INIT);
    struct handle *h = handle_of("cuMemRelease", handle);
    if (r == CUDA_SUCCESS) {
        alloc_put(h->alloc);
        list_remove(&h->node);
        free(h);
    }
    return fake__leave(r);
}

/* Of memory that is mapped by a handle; one more reference to it. */
CUresult fake_MemRetainAllocationHandle(CUmemGenericAllocationHandle *ret_handle, void *at)
{
    CUresult r = fake__enter("cuMemRetainAllocationHandle", FAKE_INIT);
    const struct range *x = range_with((uintptr_t)at);
    if (r == CUDA_SUCCESS && (!x || x->kind != RESERVED || !x->alloc))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret_handle = handle_add(x->alloc);
    return fake__leave(r);
}

CUresult fake_MemAddressReserve(CUdeviceptr *ret_at, size_t bytes, size_t alignment,
                                CUdeviceptr hint, unsigned long long flags)
{
    CUresult r = fake__enter("cuMemAddressReserve", FAKE_INIT);
    must_be_whole("cuMemAddressReserve", bytes);
    if (alignment != 0 || hint != 0 || flags != 0)
        fake__wrong("cuMemAddressReserve: wishes that are not known here");
    const uint64_t at = r == CUDA_SUCCESS ? addresses_take(bytes, FAKE_GRANULARITY) : 0;
    if (r == CUDA_SUCCESS && at == 0)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        *ret_at = range_add(RESERVED, at, bytes, NULL)->start;
    return fake__leave(r);
}

CUresult fake_MemAddressFree(CUdeviceptr at, size_t bytes)
{
    const CUresult r = fake__enter("cuMemAddressFree", FAKE_INIT);
    struct range *x = range_exact("cuMemAddressFree", at, bytes);
    if (x->alloc)
        fake__wrong("cuMemAddressFree: memory is mapped at %#llx", at);
    if (r == CUDA_SUCCESS)
        range_end(x);
    return fake__leave(r);
}

CUresult fake_MemMap(CUdeviceptr at, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult r = fake__enter("cuMemMap", FAKE_INIT);
    struct range *x = range_exact("cuMemMap", at, bytes);
    struct handle *h = handle_of("cuMemMap", handle);
    if (offset != 0 || flags != 0 || x->alloc)
        fake__wrong("cuMemMap: offset, flags, or a range that has memory");
    if (r == CUDA_SUCCESS && bytes > h->alloc->bytes)
        r = CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS) {
        x->alloc = h->alloc;
        x->alloc->users++;
    }
    return fake__leave(r);
}

CUresult fake_MemUnmap(CUdeviceptr at, size_t bytes)
{
    const CUresult r = fake__enter("cuMemUnmap", FAKE_INIT);
    struct range *x = range_exact("cuMemUnmap", at, bytes);
    if (!x->alloc)
        fake__wrong("cuMemUnmap: nothing is mapped at %#llx", at);
    if (r == CUDA_SUCCESS) {
        alloc_put(x->alloc);
        x->alloc = NULL;
        x->is_accessible = x->is_read_only = false;
    }
    return fake__leave(r);
}

CUresult fake_MemSetAccess(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc, size_t count)
{
    CUresult r = fake__enter("cuMemSetAccess", FAKE_INIT);
    struct range *x = range_exact("cuMemSetAccess", at, bytes);
    if (!x->alloc || count != 1 ||
        (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE &&
         desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ) ||
        desc->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        desc->location.id != x->alloc->device->ordinal)
        fake__wrong("cuMemSetAccess: nothing mapped, or not for its device");
    const bool is_read_only = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READ;
    if (r == CUDA_SUCCESS && is_read_only && !fake.read_only_maps)
        r = CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS) {
        x->is_accessible = true;
        x->is_read_only = is_read_only;
    }
    return fake__leave(r);
}

CUresult fake_MemExportToShareableHandle(void *ret_shared, CUmemGenericAllocationHandle handle,
                                         CUmemAllocationHandleType kind, unsigned long long flags)
{
    CUresult r = fake__enter("cuMemExportToShareableHandle", FAKE_INIT);
    const struct handle *h = handle_of("cuMemExportToShareableHandle", handle);
    if (kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
        fake__wrong("cuMemExportToShareableHandle: kind or flags");
    if (r == CUDA_SUCCESS) {
        const int fd = dup(h->alloc->fd); /* who wants CLOEXEC sets it */
        if (fd < 0)
            r = CUDA_ERROR_OPERATING_SYSTEM;
        else
            *(int *)ret_shared = fd;
    }
    return fake__leave(r);
}

CUresult fake_MemImportFromShareableHandle(CUmemGenericAllocationHandle *ret_handle, void *shared,
                                           CUmemAllocationHandleType kind)
{
    CUresult r = fake__enter("cuMemImportFromShareableHandle", FAKE_INIT);
    if (kind != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        fake__wrong("cuMemImportFromShareableHandle: kind");
    struct alloc *a = NULL;
    if (r == CUDA_SUCCESS)
        a = alloc_of(fcntl((int)(intptr_t)shared, F_DUPFD_CLOEXEC, 3));
    if (r == CUDA_SUCCESS && !a)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret_handle = handle_add(a);
    return fake__leave(r);
}

CUresult fake_MemGetAllocationPropertiesFromHandle(CUmemAllocationProp *ret_prop,
                                                   CUmemGenericAllocationHandle handle)
{
    const CUresult r = fake__enter("cuMemGetAllocationPropertiesFromHandle", FAKE_INIT);
    const struct handle *h = handle_of("cuMemGetAllocationPropertiesFromHandle", handle);
    if (r == CUDA_SUCCESS)
        *ret_prop = (CUmemAllocationProp){
            .type = CU_MEM_ALLOCATION_TYPE_PINNED,
            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = h->alloc->device->ordinal}};
    return fake__leave(r);
}

/* ---- cuMemAlloc, CUDA IPC ---- */

static struct range *plain_add(enum range_kind kind, struct alloc *a)
{
    const uint64_t start = addresses_take(a->bytes, FAKE_GRANULARITY);
    if (start == 0)
        fake__wrong("no addresses");
    struct range *x = range_add(kind, start, a->bytes, a);
    x->is_accessible = true;
    return x;
}

CUresult fake_MemGetInfo(size_t *ret_free, size_t *ret_total)
{
    const CUresult r = fake__enter("cuMemGetInfo", FAKE_CONTEXT);
    if (r == CUDA_SUCCESS) {
        *ret_free = free_bytes(fake__current);
        *ret_total = fake.memory_bytes;
    }
    return fake__leave(r);
}

CUresult fake_MemAlloc(CUdeviceptr *ret_at, size_t bytes)
{
    CUresult r = fake__enter("cuMemAlloc", FAKE_CONTEXT);
    if (bytes == 0)
        fake__wrong("cuMemAlloc: 0 bytes");
    struct alloc *a =
        r == CUDA_SUCCESS ? alloc_make(fake__current, ROUND_UP(bytes, FAKE_PLAIN_BYTES)) : NULL;
    if (r == CUDA_SUCCESS && !a)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        *ret_at = plain_add(PLAIN, a)->start;
    return fake__leave(r);
}

static struct range *plain_of(const char *call, uint64_t at, enum range_kind kind)
{
    struct range *x = range_with(at);
    if (!x || x->kind != kind || x->start != at || x->alloc->device != fake__current)
        fake__wrong("%s: no memory of this context at %#jx", call, (uintmax_t)at);
    return x;
}

CUresult fake_MemFree(CUdeviceptr at)
{
    const CUresult r = fake__enter("cuMemFree", FAKE_CONTEXT);
    struct range *x = plain_of("cuMemFree", at, PLAIN);
    if (r == CUDA_SUCCESS)
        range_end(x);
    return fake__leave(r);
}

CUresult fake_IpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr at)
{
    CUresult r = fake__enter("cuIpcGetMemHandle", FAKE_CONTEXT);
    const struct range *x = plain_of("cuIpcGetMemHandle", at, PLAIN);
    if (r == CUDA_SUCCESS && !fake.ipc)
        r = CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS) {
        const struct fake_cuda_ipc ipc = {.magic = FAKE_CUDA_MAGIC,
                                          .bytes = x->alloc->bytes,
                                          .pid = getpid(),
                                          .fd = x->alloc->fd,
                                          .device = x->alloc->device->number};
        memset(ret_handle, 0, sizeof(*ret_handle));
        memcpy(ret_handle, &ipc, sizeof(ipc));
    }
    return fake__leave(r);
}

static CUresult ipc_open(const CUipcMemHandle *handle, CUdeviceptr *ret_at)
{
    struct fake_cuda_ipc ipc;
    char path[64];
    memcpy(&ipc, handle, sizeof(ipc));
    if (ipc.magic != FAKE_CUDA_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    if (ipc.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", ipc.pid, ipc.fd);
    struct alloc *a = alloc_of(open(path, O_RDWR | O_CLOEXEC));
    if (!a)
        return CUDA_ERROR_MAP_FAILED;
    LIST_FOR_EACH_SAFE (node, next, &fake.ranges) {
        struct range *x = CONTAINER_OF(node, struct range, node);
        if (x->kind != IPC || x->alloc->ino != a->ino)
            continue;
        a->users = 1;
        alloc_put(a);
        x->opened++;
        *ret_at = x->start;
        return CUDA_SUCCESS;
    }
    struct range *x = plain_add(IPC, a);
    x->opened = 1;
    *ret_at = x->start;
    return CUDA_SUCCESS;
}

CUresult fake_IpcOpenMemHandle(CUdeviceptr *ret_at, CUipcMemHandle handle, unsigned flags)
{
    CUresult r = fake__enter("cuIpcOpenMemHandle", FAKE_CONTEXT);
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        fake__wrong("cuIpcOpenMemHandle: flags %#x", flags);
    if (r == CUDA_SUCCESS)
        r = ipc_open(&handle, ret_at);
    return fake__leave(r);
}

CUresult fake_IpcCloseMemHandle(CUdeviceptr at)
{
    const CUresult r = fake__enter("cuIpcCloseMemHandle", FAKE_CONTEXT);
    struct range *x = range_with(at);
    if (!x || x->kind != IPC || x->start != at)
        fake__wrong("cuIpcCloseMemHandle: nothing was opened at %#llx", at);
    if (r == CUDA_SUCCESS && --x->opened == 0)
        range_end(x);
    return fake__leave(r);
}

CUresult fake_MemGetAddressRange(CUdeviceptr *ret_base, size_t *ret_bytes, CUdeviceptr at)
{
    CUresult r = fake__enter("cuMemGetAddressRange", FAKE_CONTEXT);
    const struct range *x = range_with(at);
    if (r == CUDA_SUCCESS && !x)
        r = CUDA_ERROR_NOT_FOUND;
    if (r == CUDA_SUCCESS) {
        *ret_base = x->start;
        *ret_bytes = x->bytes;
    }
    return fake__leave(r);
}

CUresult fake_PointerGetAttribute(void *ret_data, CUpointer_attribute which, CUdeviceptr at)
{
    CUresult r = fake__enter("cuPointerGetAttribute", FAKE_CONTEXT);
    const struct range *x = range_with(at);
    if (r == CUDA_SUCCESS && (!x || !x->alloc))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return fake__leave(r);
    switch ((int)which) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)ret_data = x->alloc->device->ordinal;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned *)ret_data = x->kind == PLAIN && fake.ipc;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)ret_data = x->start;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)ret_data = x->bytes;
        break;
    default:
        fake__wrong("cuPointerGetAttribute: attribute %d", (int)which);
    }
    return fake__leave(r);
}

/* ---- host memory ---- */

static struct host *host_add(uint64_t start, uint64_t bytes, bool is_registered)
{
    struct host *h = calloc(1, sizeof(*h));
    if (!h)
        fake__wrong("no memory");
    *h = (struct host){
        .start = start, .bytes = bytes, .device = fake__current, .is_registered = is_registered};
    list_push_back(&fake.hosts, &h->node);
    return h;
}

/* Pages that are registered stay where they are until they are not: there is a limit to that. */
static uint64_t pinned_bytes(void)
{
    uint64_t bytes = 0;
    LIST_FOR_EACH_SAFE (node, next, &fake.hosts) {
        const struct host *h = CONTAINER_OF(node, struct host, node);
        bytes += h->is_registered ? h->bytes : 0;
    }
    return bytes;
}

static void host_end(struct host *h)
{
    if (!h->is_registered)
        munmap((void *)(uintptr_t)h->start, h->bytes);
    list_remove(&h->node);
    free(h);
}

CUresult fake_MemHostAlloc(void **ret_at, size_t bytes, unsigned flags)
{
    CUresult r = fake__enter("cuMemHostAlloc", FAKE_CONTEXT);
    if (bytes == 0 || flags != (CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP))
        fake__wrong("cuMemHostAlloc: %zu bytes, flags %#x", bytes, flags);
    const uint64_t whole = ROUND_UP(bytes, PAGE);
    void *at = MAP_FAILED;
    if (r == CUDA_SUCCESS)
        at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (r == CUDA_SUCCESS && at == MAP_FAILED)
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS) {
        (void)host_add((uintptr_t)at, whole, false);
        *ret_at = at;
    }
    return fake__leave(r);
}

CUresult fake_MemFreeHost(void *at)
{
    const CUresult r = fake__enter("cuMemFreeHost", FAKE_CONTEXT);
    struct host *h = host_with((uintptr_t)at);
    if (!h || h->is_registered || h->start != (uintptr_t)at)
        fake__wrong("cuMemFreeHost: %p was not allocated", at);
    if (r == CUDA_SUCCESS)
        host_end(h);
    return fake__leave(r);
}

CUresult fake_MemHostRegister(void *at, size_t bytes, unsigned flags)
{
    CUresult r = fake__enter("cuMemHostRegister", FAKE_CONTEXT);
    const uint64_t start = (uintptr_t)at;
    const unsigned wanted = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    const bool is_read_only = flags & CU_MEMHOSTREGISTER_READ_ONLY;
    if (bytes == 0 || (flags & ~(unsigned)CU_MEMHOSTREGISTER_READ_ONLY) != wanted ||
        !is_mapped(start, bytes))
        fake__wrong("cuMemHostRegister: %zu bytes at %p, flags %#x", bytes, at, flags);
    if (r == CUDA_SUCCESS && is_read_only && !fake.read_only_pins)
        r = CUDA_ERROR_NOT_SUPPORTED;
    if (r == CUDA_SUCCESS && !is_pageable(start, bytes))
        r = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (r == CUDA_SUCCESS && bytes > fake.pins_bytes - pinned_bytes())
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        host_add(start, bytes, true)->is_read_only = is_read_only;
    (void)fake__leave(r);
    if (r == CUDA_SUCCESS) /* it reads the tables of all pages; the device works on meanwhile */
        fake__sleep_us(bytes * fake.pin_us_per_mib >> 20);
    return r;
}

CUresult fake_MemHostUnregister(void *at)
{
    CUresult r = fake__enter("cuMemHostUnregister", FAKE_CONTEXT);
    struct host *h = host_with((uintptr_t)at);
    if (r == CUDA_SUCCESS && (!h || !h->is_registered || h->start != (uintptr_t)at))
        r = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (r == CUDA_SUCCESS && h->device != fake__current && h->device->is_alive)
        fake__wrong("cuMemHostUnregister: %p is registered by another context", at);
    if (r == CUDA_SUCCESS)
        host_end(h);
    return fake__leave(r);
}

CUresult fake_MemHostGetDevicePointer(CUdeviceptr *ret_at, void *host, unsigned flags)
{
    CUresult r = fake__enter("cuMemHostGetDevicePointer", FAKE_CONTEXT);
    if (flags != 0)
        fake__wrong("cuMemHostGetDevicePointer: flags %#x", flags);
    if (r == CUDA_SUCCESS && !host_with((uintptr_t)host))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        *ret_at = (uintptr_t)host + fake.host_offset;
    return fake__leave(r);
}

/* ---- accounts ---- */

void fake__memory_reset(struct fake_device *device)
{
    LIST_FOR_EACH_SAFE (node, next, &fake.ranges) {
        struct range *x = CONTAINER_OF(node, struct range, node);
        if (x->kind != RESERVED && x->alloc->device == device)
            range_end(x);
    }
    LIST_FOR_EACH_SAFE (node, next, &fake.hosts) {
        struct host *h = CONTAINER_OF(node, struct host, node);
        if (h->device == device && !(h->is_registered && fake.keep_pins))
            host_end(h);
    }
}

unsigned fake__memory_live(const struct fake_device *device, bool of_context, char *text,
                           size_t bytes)
{
    unsigned reserved = 0, plain = 0, handles = 0, hosts = 0;
    LIST_FOR_EACH_SAFE (node, next, &fake.ranges) {
        const struct range *x = CONTAINER_OF(node, struct range, node);
        /* A reservation belongs to no device: it is told of the first. */
        const struct fake_device *of = x->alloc ? x->alloc->device : &fake.device[0];
        reserved += x->kind == RESERVED && of == device;
        plain += x->kind != RESERVED && of == device;
    }
    LIST_FOR_EACH_SAFE (node, next, &fake.handles) {
        handles += CONTAINER_OF(node, struct handle, node)->alloc->device == device;
    }
    LIST_FOR_EACH_SAFE (node, next, &fake.hosts) {
        hosts += CONTAINER_OF(node, struct host, node)->device == device;
    }
    if (of_context)
        return fake__say(plain, "allocations", text, bytes) +
               fake__say(hosts, "ranges of host memory", text, bytes);
    return fake__say(reserved, "ranges of addresses", text, bytes) +
           fake__say(handles, "handles of memory", text, bytes);
}
