/* SPDX-License-Identifier: Apache-2.0 */
#ifdef KVC_HAVE_CUDA
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "gpu_cuda__.h"

#define CUDA_LIBRARY "libcuda.so.1"

/* The driver stays loaded: it does not bear being unloaded. */
static struct {
    pthread_mutex_t lock;
    bool found;
    struct cuda_api api;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The function of this name whose calling convention is the one of CUDA `version`. */
static void *find(PFN_cuGetProcAddress_v12000 get, const char *name, int version)
{
    void *function = NULL;
    const CUresult r = get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    return r == CUDA_SUCCESS ? function : NULL;
}

/* NULL, or what is wrong. */
static const char *fill(PFN_cuGetProcAddress_v12000 get, struct cuda_api *api)
{
#define FIND(name, version)                                                            \
    api->name = (PFN_cu##name##_v##version)find(get, "cu" #name, version);             \
    if (!api->name)                                                                    \
        return "the NVIDIA driver has no cu" #name ": update it to one for CUDA 12.0 " \
               "or later (R525)";
    CUDA_CALLS(FIND)
#undef FIND
    if (api->DriverGetVersion(&api->version) != CUDA_SUCCESS || api->version < CUDA_VERSION_MIN)
        return "the NVIDIA driver is older than CUDA 12.0: update it to R525 or later";
        /* An older driver may give its older function for a version that it does not know. */
#ifdef CUDA_BATCH_OLD
    if (api->version >= CUDA_BATCH_OLD)
        api->MemcpyBatchAsyncOld =
            (PFN_cuMemcpyBatchAsync_v12080)find(get, "cuMemcpyBatchAsync", CUDA_BATCH_OLD);
#endif
#ifdef CUDA_BATCH_NEW
    if (api->version >= CUDA_BATCH_NEW)
        api->MemcpyBatchAsync =
            (PFN_cuMemcpyBatchAsync_v13000)find(get, "cuMemcpyBatchAsync", CUDA_BATCH_NEW);
#endif
    return NULL;
}

static const char *load(struct cuda_api *api)
{
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return CUDA_LIBRARY " cannot be loaded: install the NVIDIA driver or, in a container, pass "
                            "it in (--gpus all)";
    PFN_cuGetProcAddress_v12000 get =
        (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    const char *problem =
        get ? fill(get, api)
            : "the NVIDIA driver is older than CUDA 12.0: update it to R525 or later";
    if (problem)
        (void)dlclose(library);
    return problem;
}

const struct cuda_api *cuda__api(const char **ret_problem)
{
    const char *problem = NULL;
    MUST(pthread_mutex_lock(&driver.lock) == 0);
    if (!driver.found) {
        problem = load(&driver.api);
        driver.found = !problem;
    }
    MUST(pthread_mutex_unlock(&driver.lock) == 0);
    if (!problem)
        return &driver.api;
    *ret_problem = problem;
    return NULL;
}

void cuda__text(const struct cuda_api *cu, const char *call, CUresult r,
                char ret_text[GPU_WHY_BYTES])
{
    const char *name = NULL, *words = NULL;
    if (cu->GetErrorName(r, &name) != CUDA_SUCCESS || !name ||
        cu->GetErrorString(r, &words) != CUDA_SUCCESS || !words)
        snprintf(ret_text, GPU_WHY_BYTES, "%s: CUDA error %d", call, (int)r);
    else
        snprintf(ret_text, GPU_WHY_BYTES, "%s: %s (%s)", call, name, words);
}
#endif
