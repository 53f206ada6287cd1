/* SPDX-License-Identifier: Apache-2.0 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "fault.h"

_Static_assert(sizeof(CUipcMemHandle) == KVC_IPC_BYTES, "an IPC handle passes whole");

/* CUDA IPC exports the piece of 2 MiB or more that an allocation lies in. */
#define IPC_BYTES (UINT64_C(2) << 20)

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* ---- virtual memory ---- */

static void unmap(struct cuda *c, struct device_mem *mem)
{
    /* In a context that is broken nothing is undone: it goes with the process. */
    if (mem->base != 0 && c->cu->MemUnmap(mem->base, mem->room) == CUDA_SUCCESS)
        (void)c->cu->MemAddressFree(mem->base, mem->room);
    if (mem->handle != 0)
        (void)c->cu->MemRelease(mem->handle);
    mem->base = 0;
    mem->handle = 0;
}

/* Gives mem->handle `bytes` of addresses. On failure nothing of that is left. */
static int map(struct cuda *c, struct device_mem *mem, uint64_t bytes, bool is_read_only)
{
    CUdeviceptr at = 0;
    int rc = cuda__check(c, "cuMemAddressReserve", c->cu->MemAddressReserve(&at, bytes, 0, 0, 0));
    if (rc < 0)
        return rc;
    rc = cuda__check(c, "cuMemMap", c->cu->MemMap(at, bytes, 0, mem->handle, 0));
    if (rc < 0) {
        (void)c->cu->MemAddressFree(at, bytes);
        return rc;
    }
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->id},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    CUresult r = CUDA_ERROR_NOT_SUPPORTED;
    if (is_read_only)
        r = c->cu->MemSetAccess(at, bytes, &access, 1);
    if (r != CUDA_SUCCESS) { /* not every driver knows memory that is for reading alone */
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        r = c->cu->MemSetAccess(at, bytes, &access, 1);
    }
    mem->base = at;
    mem->room = bytes;
    return cuda__check(c, "cuMemSetAccess", r);
}

static int alloc_vmm(struct cuda *c, uint64_t bytes, struct device_mem *mem)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = c->id}};
    uint64_t whole = round_up(bytes, c->granularity);
    CUmemGenericAllocationHandle handle = 0;
    int rc = cuda__check(c, "cuMemCreate", c->cu->MemCreate(&handle, whole, &prop, 0));
    if (rc < 0)
        return rc;
    mem->handle = handle;
    mem->export = KVC_HANDLE_FD;
    mem->span = whole;
    rc = map(c, mem, whole, false);
    if (rc < 0)
        unmap(c, mem);
    return rc;
}

static int alloc_plain(struct cuda *c, uint64_t bytes, struct device_mem *mem)
{
    uint64_t whole = round_up(bytes, IPC_BYTES);
    CUdeviceptr at = 0;
    int rc = cuda__check(c, "cuMemAlloc", c->cu->MemAlloc(&at, whole));
    if (rc < 0)
        return rc;
    mem->base = at;
    mem->room = whole;
    mem->span = whole;
    mem->export = KVC_HANDLE_IPC;
    return 0;
}

int cuda__alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {.bytes = bytes, .kind = DEVICE_MEM_OWN, .fd = -1};
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = c->vmm ? alloc_vmm(c, bytes, &mem) : alloc_plain(c, bytes, &mem);
    cuda__leave(c);
    if (rc < 0)
        return rc;
    mem.addr = (void *)(uintptr_t)mem.base;
    *ret_mem = mem;
    return 0;
}

/* ---- the caller's memory ---- */

static int not_exported(struct cuda *c, const char *why)
{
    return kvc__fail(c->dev.kvc, -EOPNOTSUPP,
                     "%s: take memory of kvc_mem_alloc, or copy with kvc_gpu_load and "
                     "kvc_gpu_stage",
                     why);
}

/* Memory of cuMemCreate: all that one handle maps is exported, and the memory is a part of it. */
static int adopt_vmm(struct cuda *c, CUdeviceptr at, struct device_mem *mem)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    int fd = -1;
    if (c->cu->PointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at) !=
            CUDA_SUCCESS ||
        c->cu->PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at) != CUDA_SUCCESS ||
        base > at || mem->bytes > size || at - base > size - mem->bytes)
        return not_exported(c, "the memory is not all of one allocation (register each by itself)");
    mem->span = size;
    mem->shift = at - base;
    mem->export = KVC_HANDLE_FD;
    if (c->cu->MemExportToShareableHandle(
            &fd, mem->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return not_exported(c, "the memory was not made to be exported as a descriptor");
    close(fd);
    return 0;
}

static int adopt_plain(struct cuda *c, CUdeviceptr at, struct device_mem *mem)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned capable = 0;
    CUipcMemHandle ipc;
    if (c->cu->PointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at) !=
            CUDA_SUCCESS ||
        capable == 0)
        return not_exported(c, "the memory is of a kind that CUDA IPC does not export");
    if (c->cu->MemGetAddressRange(&base, &size, at) != CUDA_SUCCESS || base > at ||
        mem->bytes > size || at - base > size - mem->bytes)
        return not_exported(c, "the memory is not all of one allocation (register each by itself)");
    if (c->cu->IpcGetMemHandle(&ipc, base) != CUDA_SUCCESS)
        return not_exported(c, "CUDA IPC does not export the memory");
    mem->base = base;
    mem->span = mem->bytes;
    mem->export = KVC_HANDLE_IPC;
    return 0;
}

int cuda__adopt(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {.addr = addr, .bytes = bytes, .kind = DEVICE_MEM_ADOPTED, .fd = -1};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)addr;
    CUmemGenericAllocationHandle handle = 0;
    int ordinal = -1;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    if (c->cu->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) !=
            CUDA_SUCCESS ||
        ordinal != d->ordinal) {
        rc = kvc__fail(d->kvc, -EINVAL, "there is no memory of this device at %p", addr);
    } else if (c->cu->MemRetainAllocationHandle(&handle, addr) == CUDA_SUCCESS) {
        mem.handle = handle;
        rc = adopt_vmm(c, at, &mem);
        if (rc < 0)
            (void)c->cu->MemRelease(handle);
    } else {
        rc = adopt_plain(c, at, &mem);
    }
    cuda__leave(c);
    if (rc == 0)
        *ret_mem = mem;
    return rc;
}

/* ---- between processes ---- */

static int export_fd(struct cuda *c, const struct device_mem *mem, struct device_handle *handle)
{
    int fd = -1;
    if (FAULT(fd))
        return kvc__fail(c->dev.kvc, -EMFILE, "no descriptor for memory on the device");
    int rc = cuda__check(c, "cuMemExportToShareableHandle",
                         c->cu->MemExportToShareableHandle(
                             &fd, mem->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (rc < 0)
        return rc;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* fails for no open descriptor */
    handle->fd = fd;
    handle->owned = true;
    handle->bytes = mem->span;
    return 0;
}

static int export_ipc(struct cuda *c, const struct device_mem *mem, struct device_handle *handle)
{
    CUipcMemHandle ipc;
    int rc = cuda__check(c, "cuIpcGetMemHandle", c->cu->IpcGetMemHandle(&ipc, mem->base));
    if (rc < 0)
        return rc;
    memcpy(handle->ipc, &ipc, sizeof(handle->ipc));
    handle->bytes = mem->span;
    handle->offset = (uint64_t)(uintptr_t)mem->addr - mem->base;
    return 0;
}

int cuda__export(struct device *d, const struct device_mem *mem, struct device_handle *ret_handle)
{
    struct cuda *c = cuda__of(d);
    struct device_handle handle = {.kind = mem->export, .fd = -1};
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = mem->export == KVC_HANDLE_FD ? export_fd(c, mem, &handle) : export_ipc(c, mem, &handle);
    cuda__leave(c);
    if (rc == 0)
        *ret_handle = handle;
    return rc;
}

static int import_fd(struct cuda *c, const struct device_handle *handle, struct device_mem *mem)
{
    CUmemGenericAllocationHandle h = 0;
    CUmemAllocationProp prop = {0};
    if (!c->vmm)
        return kvc__fail(c->dev.kvc, -EOPNOTSUPP, "this device takes no descriptors of memory");
    int rc =
        cuda__check(c, "cuMemImportFromShareableHandle",
                    c->cu->MemImportFromShareableHandle(&h, (void *)(intptr_t)handle->fd,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (rc < 0)
        return rc;
    mem->handle = h;
    rc = cuda__check(c, "cuMemGetAllocationPropertiesFromHandle",
                     c->cu->MemGetAllocationPropertiesFromHandle(&prop, h));
    if (rc == 0 && (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != c->id))
        rc = kvc__fail(c->dev.kvc, -EINVAL, "the memory is of another device");
    if (rc == 0 && (handle->offset != 0 || handle->bytes > UINT64_MAX - c->granularity))
        rc = kvc__fail(c->dev.kvc, -EINVAL, "a descriptor of memory stands for all of it");
    /* More than there is cannot be mapped. */
    if (rc == 0)
        rc = map(c, mem, round_up(handle->bytes, c->granularity), true);
    if (rc < 0)
        unmap(c, mem);
    mem->addr = (void *)(uintptr_t)mem->base;
    return rc;
}

static int import_ipc(struct cuda *c, const struct device_handle *handle, struct device_mem *mem)
{
    CUipcMemHandle ipc;
    CUdeviceptr at = 0, base = 0;
    size_t size = 0;
    memcpy(&ipc, handle->ipc, sizeof(ipc));
    int rc = cuda__check(c, "cuIpcOpenMemHandle",
                         c->cu->IpcOpenMemHandle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (rc < 0)
        return rc;
    rc = cuda__check(c, "cuMemGetAddressRange", c->cu->MemGetAddressRange(&base, &size, at));
    if (rc == 0 && (base != at || handle->offset > size || handle->bytes > size - handle->offset))
        rc = kvc__fail(c->dev.kvc, -EINVAL, "memory of %zu bytes, said to have %llu at %llu", size,
                       (unsigned long long)handle->bytes, (unsigned long long)handle->offset);
    if (rc < 0)
        (void)c->cu->IpcCloseMemHandle(at);
    mem->base = rc < 0 ? 0 : at;
    mem->room = 0; /* an IPC mapping */
    mem->addr = (void *)(uintptr_t)(at + handle->offset);
    return rc;
}

int cuda__import(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {
        .bytes = handle->bytes, .span = handle->bytes, .kind = DEVICE_MEM_IMPORTED, .fd = -1};
    if (handle->kind != KVC_HANDLE_FD && handle->kind != KVC_HANDLE_IPC)
        return kvc__fail(d->kvc, -EOPNOTSUPP, "handles of kind %u are not CUDA's", handle->kind);
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = handle->kind == KVC_HANDLE_FD ? import_fd(c, handle, &mem) : import_ipc(c, handle, &mem);
    cuda__leave(c);
    if (rc == 0)
        *ret_mem = mem;
    return rc;
}

void cuda__free(struct device *d, struct device_mem *mem)
{
    struct cuda *c = cuda__of(d);
    if (cuda__enter_to_free(c)) {
        if (mem->handle != 0)
            unmap(c, mem); /* of adopted memory the reference to the handle alone: base is 0 */
        else if (mem->kind == DEVICE_MEM_OWN)
            (void)c->cu->MemFree(mem->base);
        else if (mem->kind == DEVICE_MEM_IMPORTED)
            (void)c->cu->IpcCloseMemHandle(mem->base);
        cuda__leave(c);
    }
    *mem = (struct device_mem){.fd = -1};
}

#endif
