/* SPDX-License-Identifier: Apache-2.0 */
/* Memory on a CUDA device: allocated, exported to another process, imported from one. */
#include "cuda_device.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "fault.h"

/* CUDA IPC exports whole pieces of so many bytes or more: with an allocation also other memory that
 * lies in its piece. */
#define CUDA_IPC_BYTES (UINT64_C(2) << 20)

_Static_assert(sizeof(CUipcMemHandle) == DEVICE_IPC_BYTES, "an IPC handle passes whole");

static uint64_t round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* The result of a call that used a handle of another process: -EIO becomes -EINVAL. */
static int check_theirs(struct cuda_device *d, const char *call, CUresult r)
{
    const int rc = cuda_check(d, call, r);
    return rc == -EIO ? -EINVAL : rc;
}

/* Releases a range that was not completed. Returns `err`; d->last stays the failure that caused it.
 */
static int cuda_mem_give_up(struct cuda_device *d, struct device_range *range, int err)
{
    const struct cuda_failure first = d->last;
    (void)cuda_mem_release(d, range);
    d->last = first;
    return err;
}

/* ---- VMM ---- */

static CUresult set_access(struct cuda_device *d, const struct device_range *range,
                           bool is_read_only)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->id},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READ};
    if (is_read_only && d->cu->MemSetAccess(range->at, range->bytes, &access, 1) == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    /* Not every driver knows memory that is for reading alone. */
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return d->cu->MemSetAccess(range->at, range->bytes, &access, 1);
}

/* Maps range->handle, which may be of another process, at `bytes` bytes of new addresses. */
static int vmm_map(struct cuda_device *d, struct device_range *range, uint64_t bytes,
                   bool is_read_only)
{
    CUdeviceptr at = 0;
    int rc = cuda_check(d, "cuMemAddressReserve", d->cu->MemAddressReserve(&at, bytes, 0, 0, 0));
    if (rc < 0)
        return rc;
    range->at = at;
    range->bytes = bytes;
    range->reserved = true;
    rc = check_theirs(d, "cuMemMap", d->cu->MemMap(at, bytes, 0, range->handle, 0));
    if (rc < 0)
        return rc;
    range->mapped = true;
    return check_theirs(d, "cuMemSetAccess", set_access(d, range, is_read_only));
}

static int vmm_alloc(struct cuda_device *d, uint64_t bytes, struct device_range *range)
{
    const CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = d->id}};
    const uint64_t whole = round_up(bytes, d->granularity);
    CUmemGenericAllocationHandle handle = 0;
    range->kind = DEVICE_RANGE_VMM;
    int rc = cuda_check(d, "cuMemCreate", d->cu->MemCreate(&handle, whole, &prop, 0));
    if (rc < 0)
        return rc;
    range->handle = handle;
    range->created = true;
    rc = vmm_map(d, range, whole, false);
    return rc == -EINVAL ? -EIO : rc;
}

static int vmm_import(struct cuda_device *d, const struct device_handle *handle, bool is_read_only,
                      struct device_range *range)
{
    CUmemGenericAllocationHandle made = 0;
    CUmemAllocationProp prop = {0};
    if (!d->vmm)
        return cuda_refuse(d, -EOPNOTSUPP, "this device takes no descriptors of memory");
    if (handle->fd < 0 || handle->offset != 0 || handle->bytes > UINT64_MAX - d->granularity)
        return cuda_refuse(d, -EINVAL, "a descriptor of memory stands for all of it");
    range->kind = DEVICE_RANGE_VMM;
    int rc =
        check_theirs(d, "cuMemImportFromShareableHandle",
                     d->cu->MemImportFromShareableHandle(&made, (void *)(intptr_t)handle->fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    if (rc < 0)
        return rc;
    range->handle = made;
    range->created = true;
    rc = check_theirs(d, "cuMemGetAllocationPropertiesFromHandle",
                      d->cu->MemGetAllocationPropertiesFromHandle(&prop, made));
    if (rc < 0)
        return rc;
    if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE || prop.location.id != d->id)
        return cuda_refuse(d, -EINVAL, "memory of another device, or of none");
    /* More than there is cannot be mapped: to drivers it is something that they do not support. */
    rc = vmm_map(d, range, round_up(handle->bytes, d->granularity), is_read_only);
    return rc == -EOPNOTSUPP ? -EINVAL : rc;
}

static int vmm_export(struct cuda_device *d, const struct device_range *range,
                      struct device_handle *handle)
{
    int fd = -1;
    if (FAULT(fd))
        return cuda_refuse(d, -EMFILE, "no descriptor for memory on the device");
    const int rc = cuda_check(d, "cuMemExportToShareableHandle",
                              d->cu->MemExportToShareableHandle(
                                  &fd, range->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    if (rc < 0)
        return rc;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* fails for no open descriptor */
    *handle = (struct device_handle){
        .kind = DEVICE_HANDLE_FD, .fd = fd, .owned = true, .bytes = range->bytes};
    return 0;
}

/* ---- CUDA IPC ---- */

static int plain_alloc(struct cuda_device *d, uint64_t bytes, struct device_range *range)
{
    const uint64_t whole = round_up(bytes, CUDA_IPC_BYTES);
    CUdeviceptr at = 0;
    range->kind = DEVICE_RANGE_PLAIN;
    const int rc = cuda_check(d, "cuMemAlloc", d->cu->MemAlloc(&at, whole));
    if (rc < 0)
        return rc;
    range->at = at;
    range->bytes = whole;
    range->held = true;
    return 0;
}

static int ipc_import(struct cuda_device *d, const struct device_handle *handle,
                      struct device_range *range)
{
    const struct cuda_api *cu = d->cu;
    CUipcMemHandle ipc;
    CUdeviceptr at = 0, base = 0;
    size_t bytes = 0;
    int ordinal = -1;
    memcpy(&ipc, handle->ipc, sizeof(ipc));
    range->kind = DEVICE_RANGE_IPC;
    int rc = check_theirs(d, "cuIpcOpenMemHandle",
                          cu->IpcOpenMemHandle(&at, ipc, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    if (rc < 0)
        return rc;
    range->at = at; /* its bytes are not known yet */
    range->held = true;
    rc = check_theirs(d, "cuPointerGetAttribute",
                      cu->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at));
    if (rc < 0)
        return rc;
    if (ordinal != d->id)
        return cuda_refuse(d, -EINVAL, "memory of another device");
    rc = check_theirs(d, "cuMemGetAddressRange", cu->MemGetAddressRange(&base, &bytes, at));
    if (rc < 0)
        return rc;
    if (base != at || handle->offset > bytes || handle->bytes > bytes - handle->offset)
        return cuda_refuse(d, -EINVAL, "memory of %zu bytes, said to have %ju at %ju", bytes,
                           (uintmax_t)handle->bytes, (uintmax_t)handle->offset);
    range->bytes = bytes;
    return 0;
}

static int ipc_export(struct cuda_device *d, const struct device_range *range,
                      struct device_handle *handle)
{
    CUipcMemHandle ipc;
    const int rc = cuda_check(d, "cuIpcGetMemHandle", d->cu->IpcGetMemHandle(&ipc, range->at));
    if (rc < 0)
        return rc;
    *handle = (struct device_handle){.kind = DEVICE_HANDLE_IPC, .fd = -1, .bytes = range->bytes};
    memcpy(handle->ipc, &ipc, sizeof(ipc));
    return 0;
}

/* ---- both ---- */

int cuda_mem_alloc(struct cuda_device *d, uint64_t bytes, struct device_range *ret_range)
{
    *ret_range = (struct device_range){.fd = -1};
    const int rc = d->vmm ? vmm_alloc(d, bytes, ret_range) : plain_alloc(d, bytes, ret_range);
    return rc < 0 ? cuda_mem_give_up(d, ret_range, rc) : 0;
}

int cuda_mem_export(struct cuda_device *d, const struct device_range *range,
                    struct device_handle *ret_handle)
{
    return range->kind == DEVICE_RANGE_VMM ? vmm_export(d, range, ret_handle)
                                           : ipc_export(d, range, ret_handle);
}

int cuda_mem_import(struct cuda_device *d, const struct device_handle *handle, bool is_read_only,
                    struct device_range *ret_range)
{
    *ret_range = (struct device_range){.fd = -1};
    if (handle->kind != DEVICE_HANDLE_FD && handle->kind != DEVICE_HANDLE_IPC)
        return cuda_refuse(d, -EOPNOTSUPP, "handles of kind %u are not CUDA's", handle->kind);
    if (handle->bytes == 0 || handle->bytes > d->memory_bytes)
        return cuda_refuse(d, -EINVAL, "memory said to have %ju bytes on a device of %ju",
                           (uintmax_t)handle->bytes, (uintmax_t)d->memory_bytes);
    const int rc = handle->kind == DEVICE_HANDLE_FD ? vmm_import(d, handle, is_read_only, ret_range)
                                                    : ipc_import(d, handle, ret_range);
    return rc < 0 ? cuda_mem_give_up(d, ret_range, rc) : 0;
}

/* Whether a call that undoes something has worked. d->last keeps the first failure, because later
 * ones follow from it. */
static bool undone(struct cuda_device *d, const char *call, CUresult r, bool *all)
{
    if (*all && cuda_check(d, call, r) < 0)
        *all = false;
    return r == CUDA_SUCCESS;
}

bool cuda_mem_release(struct cuda_device *d, struct device_range *range)
{
    const struct cuda_api *cu = d->cu;
    bool all = true;
    if (range->mapped)
        range->mapped = !undone(d, "cuMemUnmap", cu->MemUnmap(range->at, range->bytes), &all);
    if (range->reserved && !range->mapped)
        range->reserved =
            !undone(d, "cuMemAddressFree", cu->MemAddressFree(range->at, range->bytes), &all);
    if (range->created)
        range->created = !undone(d, "cuMemRelease", cu->MemRelease(range->handle), &all);
    if (range->held && range->kind == DEVICE_RANGE_PLAIN)
        range->held = !undone(d, "cuMemFree", cu->MemFree(range->at), &all);
    if (range->held && range->kind == DEVICE_RANGE_IPC)
        range->held = !undone(d, "cuIpcCloseMemHandle", cu->IpcCloseMemHandle(range->at), &all);
    if (all)
        *range = (struct device_range){.fd = -1};
    return all;
}
#endif
