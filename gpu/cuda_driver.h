/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, found at run time: its functions, and differences between its versions. For the
 * daemon, the library and the bench; empty without CUDA.
 *
 * Threads: any may call cuda_find(). The others need a current context, like the driver's own
 * functions.
 */
#ifndef KVC_GPU_CUDA_DRIVER_H
#define KVC_GPU_CUDA_DRIVER_H
#ifdef KVC_HAVE_CUDA

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#define CUDA_VERSION_MIN 12000 /* the oldest driver that is used: CUDA 12.0, R525 */
#define CUDA_TEXT_BYTES  256u
/* CU_DEVICE_ATTRIBUTE_MPS_ENABLED, which came with CUDA 12.4. */
#define CUDA_ATTRIBUTE_MPS ((CUdevice_attribute)133)

/* X(name without "cu", CUDA version that defines its parameters): type PFN_cu<name>_v<version>. */
#define CUDA_CALLS(X)                              \
    X(DriverGetVersion, 2020)                      \
    X(Init, 2000)                                  \
    X(GetErrorName, 6000)                          \
    X(GetErrorString, 6000)                        \
    X(DeviceGetCount, 2000)                        \
    X(DeviceGet, 2000)                             \
    X(DeviceGetName, 2000)                         \
    X(DeviceGetUuid, 11040)                        \
    X(DeviceGetAttribute, 2000)                    \
    X(DeviceTotalMem, 3020)                        \
    X(DevicePrimaryCtxSetFlags, 11000)             \
    X(DevicePrimaryCtxRetain, 7000)                \
    X(DevicePrimaryCtxRelease, 11000)              \
    X(DevicePrimaryCtxReset, 11000)                \
    X(CtxSetCurrent, 4000)                         \
    X(CtxPushCurrent, 4000)                        \
    X(CtxPopCurrent, 4000)                         \
    X(CtxSynchronize, 2000)                        \
    X(CtxGetStreamPriorityRange, 5050)             \
    X(StreamCreateWithPriority, 5050)              \
    X(StreamDestroy, 4000)                         \
    X(StreamQuery, 2000)                           \
    X(StreamIsCapturing, 10000)                    \
    X(StreamWaitEvent, 3020)                       \
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
    X(MemGetInfo, 3020)                            \
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
    X(MemsetD8, 3020)                              \
    X(MemsetD8Async, 3020)                         \
    X(MemcpyAsync, 4000)                           \
    X(StreamWriteValue64, 11070)                   \
    X(StreamWaitValue64, 11070)

/* Batches of copies came with CUDA 12.8, and lost a parameter with 13.0. Older headers have neither
 * function. */
#if CUDA_VERSION >= 12080
#define CUDA_BATCH_OLD 12080
#endif
#if CUDA_VERSION >= 13000
#define CUDA_BATCH_NEW 13000
#endif

struct cuda_api {
#define CUDA__FIELD(name, version) PFN_cu##name##_v##version name;
    CUDA_CALLS(CUDA__FIELD)
#undef CUDA__FIELD
#ifdef CUDA_BATCH_OLD
    PFN_cuMemcpyBatchAsync_v12080 MemcpyBatchAsyncOld; /* NULL: the driver does not have it */
#endif
#ifdef CUDA_BATCH_NEW
    PFN_cuMemcpyBatchAsync_v13000 MemcpyBatchAsync;
#endif
    int version; /* of the driver: 1000 * major + 10 * minor */
};

/* Loads the driver; later calls return the same. NULL: there is no usable driver, *ret_problem (a
 * static text) names what to do, and the next call tries again. */
const struct cuda_api *cuda_find(const char **ret_problem);

/* Writes a failure as a text: "cuMemMap: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". */
void cuda_text(const struct cuda_api *cu, const char *call, CUresult r,
               char ret_text[CUDA_TEXT_BYTES]);

bool cuda_has_batch(const struct cuda_api *cu);
/* Makes n copies, in any order, between addresses that the device reaches. `stream` is not the
 * default stream. CUDA_ERROR_NOT_SUPPORTED: the driver has no batches, or not for this device, and
 * nothing was copied. */
CUresult cuda_copy_batch(const struct cuda_api *cu, CUdeviceptr *to, CUdeviceptr *from,
                         size_t *bytes, size_t n, CUstream stream);

/* Loads a kernel from its image, or else from its PTX (kvcache/kernels.h), which the driver
 * compiles. The PTX is for drivers older than the compiler that made the image, and for devices for
 * which the image has no code. After a failure there is no module; the result is that of the
 * driver's call *ret_call, which failed last. */
CUresult cuda_load_kernel(const struct cuda_api *cu, const void *image, const void *ptx,
                          const char *name, CUmodule *ret_module, CUfunction *ret_kernel,
                          const char **ret_call);

#endif
#endif
