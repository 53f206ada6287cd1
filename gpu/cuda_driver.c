/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_driver.h"
#ifdef KVC_HAVE_CUDA

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define TOO_OLD      "the NVIDIA driver is older than CUDA 12.0: update it to R525 or later"

/* ---- finding it ---- */

/* The driver is never unloaded, because it cannot be unloaded safely. */
static struct {
    pthread_mutex_t lock;
    bool found;
    struct cuda_api api;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The function of this name whose calling convention is the one of CUDA `version`. */
static void *cuda_driver_find(PFN_cuGetProcAddress_v12000 get, const char *name, int version)
{
    void *function = NULL;
    const CUresult r = get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    return r == CUDA_SUCCESS ? function : NULL;
}

/* Finds all functions. NULL, or a static text of what is wrong. */
static const char *cuda_driver_fill(PFN_cuGetProcAddress_v12000 get, struct cuda_api *api)
{
    const char *problem = NULL;
#define FIND(name, version)                                                               \
    api->name = (PFN_cu##name##_v##version)cuda_driver_find(get, "cu" #name, version);    \
    if (!api->name)                                                                       \
        problem = "the NVIDIA driver has no cu" #name ": update it to one for CUDA 12.0 " \
                  "or later (R525)";
    CUDA_CALLS(FIND)
#undef FIND
    if (problem)
        return problem;
    if (api->DriverGetVersion(&api->version) != CUDA_SUCCESS || api->version < CUDA_VERSION_MIN)
        return TOO_OLD;
        /* An older driver may give its older function for a version that it does not know. */
#ifdef CUDA_BATCH_OLD
    if (api->version >= CUDA_BATCH_OLD)
        api->MemcpyBatchAsyncOld = (PFN_cuMemcpyBatchAsync_v12080)cuda_driver_find(
            get, "cuMemcpyBatchAsync", CUDA_BATCH_OLD);
#endif
#ifdef CUDA_BATCH_NEW
    if (api->version >= CUDA_BATCH_NEW)
        api->MemcpyBatchAsync = (PFN_cuMemcpyBatchAsync_v13000)cuda_driver_find(
            get, "cuMemcpyBatchAsync", CUDA_BATCH_NEW);
#endif
    return NULL;
}

static const char *cuda_driver_load(struct cuda_api *api)
{
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return CUDA_LIBRARY " cannot be loaded: install the NVIDIA driver or, in a container, pass "
                            "it in (--gpus all); or name an emulated device, emu:0";
    PFN_cuGetProcAddress_v12000 get =
        (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    const char *problem = get ? cuda_driver_fill(get, api) : TOO_OLD;
    if (problem)
        (void)dlclose(library);
    return problem;
}

const struct cuda_api *cuda_find(const char **ret_problem)
{
    const char *problem = NULL;
    (void)pthread_mutex_lock(&driver.lock); /* fails for none that is initialised so */
    if (!driver.found) {
        problem = cuda_driver_load(&driver.api);
        driver.found = !problem;
    }
    (void)pthread_mutex_unlock(&driver.lock);
    if (!problem)
        return &driver.api;
    *ret_problem = problem;
    return NULL;
}

void cuda_text(const struct cuda_api *cu, const char *call, CUresult r,
               char ret_text[CUDA_TEXT_BYTES])
{
    const char *name = NULL, *words = NULL;
    if (cu->GetErrorName(r, &name) != CUDA_SUCCESS || !name ||
        cu->GetErrorString(r, &words) != CUDA_SUCCESS || !words)
        (void)snprintf(ret_text, CUDA_TEXT_BYTES, "%s: CUDA error %d", call, (int)r);
    else
        (void)snprintf(ret_text, CUDA_TEXT_BYTES, "%s: %s (%s)", call, name, words);
}

/* ---- what not every version has ---- */

#ifdef CUDA_BATCH_OLD
bool cuda_has_batch(const struct cuda_api *cu)
{
#ifdef CUDA_BATCH_NEW
    if (cu->MemcpyBatchAsync)
        return true;
#endif
    return cu->MemcpyBatchAsyncOld;
}

CUresult cuda_copy_batch(const struct cuda_api *cu, CUdeviceptr *to, CUdeviceptr *from,
                         size_t *bytes, size_t n, CUstream stream)
{
    CUmemcpyAttributes attributes = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                     .flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE};
    size_t from_first = 0;
#ifdef CUDA_BATCH_NEW
    if (cu->MemcpyBatchAsync)
        return cu->MemcpyBatchAsync(to, from, bytes, n, &attributes, &from_first, 1, stream);
#endif
    size_t failed = SIZE_MAX;
    if (!cu->MemcpyBatchAsyncOld)
        return CUDA_ERROR_NOT_SUPPORTED;
    return cu->MemcpyBatchAsyncOld(to, from, bytes, n, &attributes, &from_first, 1, &failed,
                                   stream);
}
#else
bool cuda_has_batch(const struct cuda_api *cu)
{
    (void)cu;
    return false;
}

CUresult cuda_copy_batch(const struct cuda_api *cu, CUdeviceptr *to, CUdeviceptr *from,
                         size_t *bytes, size_t n, CUstream stream)
{
    (void)cu;
    (void)to;
    (void)from;
    (void)bytes;
    (void)n;
    (void)stream;
    return CUDA_ERROR_NOT_SUPPORTED;
}
#endif

CUresult cuda_load_kernel(const struct cuda_api *cu, const void *image, const void *ptx,
                          const char *name, CUmodule *ret_module, CUfunction *ret_kernel,
                          const char **ret_call)
{
    CUmodule module = NULL;
    *ret_call = "cuModuleLoadData";
    CUresult r = cu->ModuleLoadData(&module, image);
    if (r != CUDA_SUCCESS)
        r = cu->ModuleLoadData(&module, ptx);
    if (r != CUDA_SUCCESS)
        return r;
    *ret_call = "cuModuleGetFunction";
    r = cu->ModuleGetFunction(ret_kernel, module, name);
    if (r == CUDA_SUCCESS)
        *ret_module = module;
    else
        (void)cu->ModuleUnload(module); /* what is wrong with it the first error has told */
    return r;
}
#endif
