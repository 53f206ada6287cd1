/* SPDX-License-Identifier: Apache-2.0 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <dlfcn.h>
#include <pthread.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define TOO_OLD      "the NVIDIA driver is older than CUDA 12.0: update it to R525 or later"

/* The driver stays loaded: it does not bear being unloaded. */
static struct {
    pthread_mutex_t lock;
    bool found;
    struct cuda_api api;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The function of this name with the calling convention of that version. */
static void *find(PFN_cuGetProcAddress_v12000 get, const char *name, int version)
{
    void *function = NULL;
    CUresult r = get(name, &function, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    return r == CUDA_SUCCESS ? function : NULL;
}

static const char *fill(PFN_cuGetProcAddress_v12000 get, struct cuda_api *api)
{
    const char *problem = NULL;
#define FIND(name, version)                                                         \
    api->name = (PFN_cu##name##_v##version)find(get, "cu" #name, version);          \
    if (api->name == NULL)                                                          \
        problem = "the NVIDIA driver has no cu" #name ": update it to one of CUDA " \
                  "12.0 or later (R525)";
    CUDA_CALLS(FIND)
#undef FIND
    if (problem != NULL)
        return problem;
    if (api->DriverGetVersion(&api->version) != CUDA_SUCCESS || api->version < CUDA_DRIVER_MIN)
        return TOO_OLD;
#ifdef CUDA_BATCH
    /* An older driver may give its older function for a version that it does not know. */
    if (api->version >= CUDA_BATCH)
        api->MemcpyBatchAsync =
            (PFN_cuMemcpyBatchAsync_v13000)find(get, "cuMemcpyBatchAsync", CUDA_BATCH);
#endif
    return NULL;
}

static const char *load(struct cuda_api *api)
{
    void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return CUDA_LIBRARY " cannot be loaded: install the NVIDIA driver or, in a container, pass "
                            "it in (--gpus all); or name an emulated device, emu:0";
    PFN_cuGetProcAddress_v12000 get =
        (PFN_cuGetProcAddress_v12000)dlsym(library, "cuGetProcAddress_v2");
    const char *problem = get != NULL ? fill(get, api) : TOO_OLD;
    if (problem != NULL)
        (void)dlclose(library);
    return problem;
}

const struct cuda_api *cuda__api(const char **ret_problem)
{
    const char *problem = NULL;
    (void)pthread_mutex_lock(&driver.lock);
    if (!driver.found) {
        problem = load(&driver.api);
        driver.found = problem == NULL;
    }
    (void)pthread_mutex_unlock(&driver.lock);
    if (problem == NULL)
        return &driver.api;
    *ret_problem = problem;
    return NULL;
}

#endif
