/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA device share: device_cuda.c (opening, host memory, words),
 * device_cuda_mem.c (memory on it), device_cuda_copy.c (copies), device_cuda_api.c (the driver's
 * functions). Empty without CUDA. The primary context of the device is made current in each call,
 * and what was current before is so again behind it.
 */
#ifndef KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#define KVC_CLIENT_DEVICE_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include <cuda.h>
#include <cudaTypedefs.h>
#include <kvcache/kernels.h>

#include "device__.h"

#define CUDA_DRIVER_MIN 12000 /* 12.0, R525 */

/* Name without "cu", CUDA version whose calling convention is meant. */
#define CUDA_CALLS(X)                              \
    X(DriverGetVersion, 2020)                      \
    X(Init, 2000)                                  \
    X(GetErrorName, 6000)                          \
    X(GetErrorString, 6000)                        \
    X(DeviceGetCount, 2000)                        \
    X(DeviceGet, 2000)                             \
    X(DeviceGetUuid, 11040)                        \
    X(DeviceGetAttribute, 2000)                    \
    X(DevicePrimaryCtxRetain, 7000)                \
    X(DevicePrimaryCtxRelease, 11000)              \
    X(CtxPushCurrent, 4000)                        \
    X(CtxPopCurrent, 4000)                         \
    X(EventCreate, 2000)                           \
    X(EventDestroy, 4000)                          \
    X(EventRecord, 2000)                           \
    X(EventQuery, 2000)                            \
    X(EventSynchronize, 2000)                      \
    X(ModuleLoadData, 2000)                        \
    X(ModuleUnload, 2000)                          \
    X(ModuleGetFunction, 2000)                     \
    X(LaunchKernel, 4000)                          \
    X(MemAlloc, 3020)                              \
    X(MemFree, 3020)                               \
    X(MemGetAddressRange, 3020)                    \
    X(PointerGetAttribute, 4000)                   \
    X(IpcGetMemHandle, 4010)                       \
    X(IpcOpenMemHandle, 11000)                     \
    X(IpcCloseMemHandle, 4010)                     \
    X(MemGetAllocationGranularity, 10020)          \
    X(MemCreate, 10020)                            \
    X(MemRelease, 10020)                           \
    X(MemRetainAllocationHandle, 11000)            \
    X(MemAddressReserve, 10020)                    \
    X(MemAddressFree, 10020)                       \
    X(MemMap, 10020)                               \
    X(MemUnmap, 10020)                             \
    X(MemSetAccess, 10020)                         \
    X(MemExportToShareableHandle, 10020)           \
    X(MemImportFromShareableHandle, 10020)         \
    X(MemGetAllocationPropertiesFromHandle, 10020) \
    X(MemHostAlloc, 2020)                          \
    X(MemFreeHost, 2000)                           \
    X(MemHostRegister, 6050)                       \
    X(MemHostUnregister, 4000)                     \
    X(MemHostGetDevicePointer, 3020)               \
    X(MemcpyAsync, 4000)                           \
    X(StreamWriteValue64, 11070)                   \
    X(StreamWaitValue64, 11070)

/* A batch of copies came with 12.8, and lost an argument with 13.0: only the latter is used. */
#if CUDA_VERSION >= 13000
#define CUDA_BATCH 13000
#endif

struct cuda_api {
#define CUDA__FIELD(name, version) PFN_cu##name##_v##version name;
    CUDA_CALLS(CUDA__FIELD)
#undef CUDA__FIELD
#ifdef CUDA_BATCH
    PFN_cuMemcpyBatchAsync_v13000 MemcpyBatchAsync; /* NULL: the driver has none */
#endif
    int version; /* of the driver: 1000 * major + 10 * minor */
};
/* Finds the driver, at the first call that can. NULL with *ret_problem, a static text that names
 * the next step. Any thread. */
const struct cuda_api *cuda__api(const char **ret_problem);

/* Lists of fragments for the kernel, in pinned memory. */
#define CUDA_LISTS      8u
#define CUDA_LIST_FRAGS 4096u
struct cuda_list {
    struct kvc_frag *frag;
    CUevent read; /* the kernel has ended */
    bool is_pending;
};

struct cuda {
    struct device dev; /* first */
    const struct cuda_api *cu;
    CUdevice id;
    CUcontext context;
    bool vmm;            /* memory can be made to be exported as a descriptor */
    bool read_only_pins; /* read-only host memory can be registered */
    bool words;          /* streams write and await 64-bit words */
    bool one_address;    /* registered host memory has the same address on the device */
    size_t granularity;

    CUmodule module;
    CUfunction kernel; /* NULL: copies are the driver's alone */
    bool kernel_tried;
    struct kvc_frag *lists;
    struct cuda_list list[CUDA_LISTS];
    uint32_t list_at;
};

static inline struct cuda *cuda__of(struct device *d)
{
    return (struct cuda *)(void *)d;
}
/* Before and after calls of the driver. enter: 0, or -EIO with its text. */
__attribute__((warn_unused_result)) int cuda__enter(struct cuda *c);
void cuda__leave(struct cuda *c);
/* Whether the driver may be called to free things: not in a child of fork(). Enters it then. */
__attribute__((warn_unused_result)) bool cuda__enter_to_free(struct cuda *c);
/* What a call has returned: 0, or -ENOMEM, -EOPNOTSUPP, -EIO with its text. */
__attribute__((warn_unused_result)) int cuda__check(struct cuda *c, const char *call, CUresult r);

__attribute__((warn_unused_result)) int cuda__alloc(struct device *d, uint64_t bytes,
                                                    struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__adopt(struct device *d, void *addr, uint64_t bytes,
                                                    struct device_mem *ret_mem);
__attribute__((warn_unused_result)) int cuda__export(struct device *d, const struct device_mem *mem,
                                                     struct device_handle *ret_handle);
__attribute__((warn_unused_result)) int
cuda__import(struct device *d, const struct device_handle *handle, struct device_mem *ret_mem);
void cuda__free(struct device *d, struct device_mem *mem);

__attribute__((warn_unused_result)) int cuda__copy(struct device *d, enum device_way way,
                                                   const struct device_frag *frag, uint32_t n,
                                                   bool is_pinned, void *stream);
/* In the context. */
void cuda__copy_close(struct cuda *c);

#endif
#endif
