/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on the CUDA device: the worker's own, which the daemon may import, and the daemon's, which
 * is mapped here.
 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>
#include <unistd.h>

#include "client.h"

int cuda__alloc(struct device *d, uint64_t bytes, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {.bytes = bytes, .kind = DEVICE_MEM_OWN};
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = cuda__said(c, cuda_mem_alloc(&c->gpu, bytes, &mem.range));
    cuda__leave(c);
    if (rc < 0)
        return rc;
    mem.addr = (void *)(uintptr_t)mem.range.at;
    mem.span = mem.range.bytes;
    mem.export = c->gpu.vmm ? DEVICE_HANDLE_FD : DEVICE_HANDLE_IPC;
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

/* Memory of cuMemCreate: a handle exports a whole mapping, of which `mem` is a part. */
static int wrap_vmm(struct cuda *c, CUdeviceptr at, struct device_mem *mem)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    int fd = -1;
    if (c->gpu.cu->PointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, at) !=
            CUDA_SUCCESS ||
        c->gpu.cu->PointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, at) !=
            CUDA_SUCCESS ||
        base > at || mem->bytes > size || at - base > size - mem->bytes)
        return not_exported(c, "the memory is not all of one allocation (register each by itself)");
    mem->span = size;
    mem->shift = at - base;
    mem->export = DEVICE_HANDLE_FD;
    if (c->gpu.cu->MemExportToShareableHandle(
            &fd, mem->range.handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
        return not_exported(c, "the memory was not made to be exported as a descriptor");
    close(fd);
    return 0;
}

static int wrap_plain(struct cuda *c, CUdeviceptr at, struct device_mem *mem)
{
    CUdeviceptr base = 0;
    size_t size = 0;
    unsigned capable = 0;
    CUipcMemHandle ipc;
    if (c->gpu.cu->PointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       at) != CUDA_SUCCESS ||
        capable == 0)
        return not_exported(c, "the memory is of a kind that CUDA IPC does not export");
    if (c->gpu.cu->MemGetAddressRange(&base, &size, at) != CUDA_SUCCESS || base > at ||
        mem->bytes > size || at - base > size - mem->bytes)
        return not_exported(c, "the memory is not all of one allocation (register each by itself)");
    if (c->gpu.cu->IpcGetMemHandle(&ipc, base) != CUDA_SUCCESS)
        return not_exported(c, "CUDA IPC does not export the memory");
    mem->range = (struct device_range){.kind = DEVICE_RANGE_PLAIN, .at = base, .bytes = size};
    mem->span = mem->bytes;
    mem->export = DEVICE_HANDLE_IPC;
    return 0;
}

int cuda__wrap(struct device *d, void *addr, uint64_t bytes, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {.addr = addr, .bytes = bytes, .kind = DEVICE_MEM_WRAPPED};
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)addr;
    CUmemGenericAllocationHandle handle = 0;
    int ordinal = -1;
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    if (c->gpu.cu->PointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at) !=
            CUDA_SUCCESS ||
        ordinal != d->ordinal) {
        rc = kvc__fail(d->kvc, -EINVAL, "there is no memory of this device at %p", addr);
    } else if (c->gpu.cu->MemRetainAllocationHandle(&handle, addr) == CUDA_SUCCESS) {
        mem.range =
            (struct device_range){.kind = DEVICE_RANGE_VMM, .created = true, .handle = handle};
        rc = wrap_vmm(c, at, &mem);
        if (rc < 0)
            (void)c->gpu.cu->MemRelease(handle);
    } else {
        rc = wrap_plain(c, at, &mem);
    }
    cuda__leave(c);
    if (rc == 0)
        *ret_mem = mem;
    return rc;
}

/* ---- between processes ---- */

int cuda__export(struct device *d, const struct device_mem *mem, struct device_handle *ret_handle)
{
    struct cuda *c = cuda__of(d);
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = cuda__said(c, cuda_mem_export(&c->gpu, &mem->range, ret_handle));
    cuda__leave(c);
    if (rc < 0)
        return rc;
    ret_handle->bytes = mem->span;
    if (ret_handle->kind == DEVICE_HANDLE_IPC)
        ret_handle->offset = (uint64_t)(uintptr_t)mem->addr - mem->range.at;
    return 0;
}

int cuda__import(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem)
{
    struct cuda *c = cuda__of(d);
    struct device_mem mem = {
        .bytes = handle->bytes, .span = handle->bytes, .kind = DEVICE_MEM_IMPORTED};
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    rc = cuda__said(c, cuda_mem_import(&c->gpu, handle, true, &mem.range));
    cuda__leave(c);
    if (rc < 0)
        return rc;
    mem.addr = (void *)(uintptr_t)(mem.range.at + handle->offset);
    *ret_mem = mem;
    return 0;
}

/* In a broken context nothing can be freed; the memory ends with the process. */
void cuda__free(struct device *d, struct device_mem *mem)
{
    struct cuda *c = cuda__of(d);
    if (cuda__enter_to_free(c)) {
        (void)cuda_mem_release(&c->gpu, &mem->range);
        cuda__leave(c);
    }
    *mem = (struct device_mem){0};
}

#endif
