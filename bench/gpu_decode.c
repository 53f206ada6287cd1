/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode as a device sees it. Kernels that read all of the KV run one after another, a few launched
 * ahead, on a stream, as with engines. Their sum shows whether they have read everything.
 */
#include "gpu_bench.h"

#ifndef KVC_HAVE_CUDA

int gpu_decode_open(const struct bench_device *d, uint64_t kv_bytes, struct gpu_decode **ret_decode)
{
    (void)kv_bytes;
    (void)ret_decode;
    say_error("%s: built without CUDA", d->name);
    return BENCH_FAILED;
}

void gpu_decode_close(struct gpu_decode **decode)
{
    (void)decode;
}

bool gpu_decode_has_mps(const struct gpu_decode *decode)
{
    (void)decode;
    return false;
}

int gpu_decode_start(struct gpu_decode *decode, double seconds)
{
    (void)decode;
    (void)seconds;
    return BENCH_FAILED;
}

bool gpu_decode_is_over(const struct gpu_decode *decode)
{
    (void)decode;
    return true;
}

int gpu_decode_wait(struct gpu_decode *decode, double *ret_step)
{
    (void)decode;
    (void)ret_step;
    return BENCH_FAILED;
}

#else
#include <kvcache/kernels.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

#define AHEAD    4u /* steps that are launched and have not ended */
/* Steps before that time are not counted, because loads have not reached full speed. */
#define WARM_NS  UINT64_C(50000000)
#define FILL     0x01                 /* every byte of the KV */
#define WORD_SUM UINT32_C(0x01010101) /* sum of the bytes of one word, each FILL */

static const struct cuda_api *cu;

struct gpu_decode {
    CUdevice device;
    CUcontext context; /* the fields below are valid once it is not NULL */
    CUdeviceptr kv, sum;
    uint64_t kv_bytes;
    CUmodule module;
    CUfunction kernel;
    CUstream stream;
    CUevent event[AHEAD];
    unsigned blocks;
    bool mps;
    uint32_t expected; /* the sum of all words */
    /* the steps' thread's, from start to wait */
    pthread_t thread;
    bool runs;
    _Atomic bool over;
    uint64_t wanted_ns;
    uint64_t launched, counted, counted_ns;
    int rc;
};

static bool is_out; /* the device has failed in this process */

static int must(const char *call, CUresult r)
{
    const char *name = NULL;
    if (r == CUDA_SUCCESS)
        return 0;
    if (cu->GetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
        name = "an unknown error";
    is_out = true;
    say_error("decode steps: %s: %s (%d)", call, name, (int)r);
    return BENCH_FAILED;
}

/* ---- opening ---- */

static int find_calls(void)
{
    const char *problem = NULL;
    cu = cuda_find(&problem);
    if (cu == NULL)
        say_error("decode steps: %s", problem);
    return cu == NULL ? BENCH_FAILED : 0;
}

static int gpu_decode_find_device(struct gpu_decode *g, const struct bench_device *d)
{
    int n = 0;
    int rc = must("cuDeviceGetCount", cu->DeviceGetCount(&n));
    for (int i = 0; i < n && rc == 0; i++) {
        CUuuid uuid;
        rc = must("cuDeviceGet", cu->DeviceGet(&g->device, i));
        if (rc == 0)
            rc = must("cuDeviceGetUuid", cu->DeviceGetUuid(&uuid, g->device));
        if (rc == 0 && memcmp(uuid.bytes, gpu_uuid(d->gpu), GPU_UUID_BYTES) == 0)
            return 0;
    }
    if (rc == 0)
        say_error("decode steps: %s is not among the driver's %d devices", d->name, n);
    return BENCH_FAILED;
}

static int enter(struct gpu_decode *g)
{
    CUcontext context = NULL;
    int rc = must("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&context, g->device));
    if (rc != 0)
        return rc;
    g->context = context;
    return must("cuCtxSetCurrent", cu->CtxSetCurrent(context));
}

static int gpu_decode_look(struct gpu_decode *g)
{
    int processors = 0, mps = 0;
    const int rc = must(
        "cuDeviceGetAttribute",
        cu->DeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->device));
    g->blocks = KVC_DECODE_BLOCKS * (unsigned)processors;
    g->mps = cu->DeviceGetAttribute(&mps, CUDA_ATTRIBUTE_MPS, g->device) == CUDA_SUCCESS && mps;
    return rc;
}

static int load_kernel(struct gpu_decode *g)
{
    const char *call = "";
    const CUresult said =
        cuda_load_kernel(cu, kvc_decode_image, kvc_decode_ptx, STRING(KVC_DECODE_KERNEL),
                         &g->module, &g->kernel, &call);
    int rc = must(call, said);
    if (rc == 0)
        rc = must("cuStreamCreateWithPriority",
                  cu->StreamCreateWithPriority(&g->stream, CU_STREAM_NON_BLOCKING, 0));
    for (unsigned i = 0; i < AHEAD && rc == 0; i++)
        rc = must("cuEventCreate", cu->EventCreate(&g->event[i], CU_EVENT_DISABLE_TIMING));
    return rc;
}

static int make_memory(struct gpu_decode *g)
{
    int rc = must("cuMemAlloc", cu->MemAlloc(&g->kv, g->kv_bytes));
    if (rc == 0)
        rc = must("cuMemAlloc", cu->MemAlloc(&g->sum, sizeof(uint32_t)));
    if (rc == 0)
        rc = must("cuMemsetD8", cu->MemsetD8(g->kv, FILL, g->kv_bytes));
    if (rc == 0)
        rc = must("cuMemsetD8", cu->MemsetD8(g->sum, 0, sizeof(uint32_t)));
    return rc == 0 ? must("cuCtxSynchronize", cu->CtxSynchronize()) : rc;
}

int gpu_decode_open(const struct bench_device *d, uint64_t kv_bytes, struct gpu_decode **ret_decode)
{
    struct gpu_decode *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    *ret_decode = g;
    g->kv_bytes = kv_bytes;
    int rc = find_calls();
    if (rc == 0)
        rc = gpu_decode_find_device(g, d);
    if (rc == 0)
        rc = enter(g);
    if (rc == 0)
        rc = gpu_decode_look(g);
    if (rc == 0)
        rc = load_kernel(g);
    return rc == 0 ? make_memory(g) : rc;
}

/* Accepts an object that was opened in part. A failed device has been reported, and ends with the
 * process. */
void gpu_decode_close(struct gpu_decode **decode)
{
    struct gpu_decode *g = *decode;
    *decode = NULL;
    if (g == NULL)
        return;
    if (is_out) { /* the process's end frees everything */
        free(g);
        return;
    }
    for (unsigned i = 0; i < AHEAD; i++)
        if (g->event[i])
            (void)must("cuEventDestroy", cu->EventDestroy(g->event[i]));
    if (g->stream)
        (void)must("cuStreamDestroy", cu->StreamDestroy(g->stream));
    if (g->module)
        (void)must("cuModuleUnload", cu->ModuleUnload(g->module));
    if (g->kv)
        (void)must("cuMemFree", cu->MemFree(g->kv));
    if (g->sum)
        (void)must("cuMemFree", cu->MemFree(g->sum));
    if (g->context)
        (void)must("cuDevicePrimaryCtxRelease", cu->DevicePrimaryCtxRelease(g->device));
    free(g);
}

bool gpu_decode_has_mps(const struct gpu_decode *g)
{
    return g->mps;
}

/* ---- steps ---- */

static int launch(struct gpu_decode *g)
{
    uint64_t words = g->kv_bytes / sizeof(uint32_t);
    void *arguments[] = {&g->kv, &words, &g->sum};
    int rc = must("cuLaunchKernel", cu->LaunchKernel(g->kernel, g->blocks, 1, 1, KVC_DECODE_THREADS,
                                                     1, 1, 0, g->stream, arguments, NULL));
    if (rc == 0)
        rc = must("cuEventRecord", cu->EventRecord(g->event[g->launched % AHEAD], g->stream));
    g->expected += (uint32_t)words * WORD_SUM;
    g->launched++;
    return rc;
}

static int await_step(struct gpu_decode *g, uint64_t step)
{
    return must("cuEventSynchronize", cu->EventSynchronize(g->event[step % AHEAD]));
}

/* Measures from the end of one step to the end of a later one. */
static int run_steps(struct gpu_decode *g)
{
    const uint64_t warm = now_ns() + WARM_NS;
    uint64_t ended = 0, first = 0, first_ns = 0, last_ns = 0;
    int rc = must("cuCtxSetCurrent", cu->CtxSetCurrent(g->context));
    g->launched = 0;
    while (rc == 0 && (first_ns == 0 || ended == first || last_ns - first_ns < g->wanted_ns)) {
        while (rc == 0 && g->launched < ended + AHEAD)
            rc = launch(g);
        if (rc == 0)
            rc = await_step(g, ended++);
        last_ns = now_ns();
        if (first_ns == 0 && last_ns >= warm) {
            first_ns = last_ns;
            first = ended;
        }
    }
    g->counted = ended - first;
    g->counted_ns = last_ns - first_ns;
    atomic_store_explicit(&g->over, true, memory_order_release);
    while (rc == 0 && ended < g->launched)
        rc = await_step(g, ended++);
    return rc;
}

static void *steps_main(void *arg)
{
    struct gpu_decode *g = arg;
    g->rc = run_steps(g);
    atomic_store_explicit(&g->over, true, memory_order_release);
    return NULL;
}

int gpu_decode_start(struct gpu_decode *g, double seconds)
{
    g->wanted_ns = (uint64_t)(seconds * 1e9);
    atomic_store_explicit(&g->over, false, memory_order_relaxed);
    const int error = pthread_create(&g->thread, NULL, steps_main, g);
    g->runs = error == 0;
    if (error != 0)
        say_error("a thread for decode steps: %s", strerror(error));
    return error != 0 ? BENCH_FAILED : 0;
}

bool gpu_decode_is_over(const struct gpu_decode *g)
{
    return atomic_load_explicit(&g->over, memory_order_acquire);
}

static int check_sum(struct gpu_decode *g)
{
    uint32_t sum = 0;
    int rc =
        must("cuMemcpyAsync", cu->MemcpyAsync((uintptr_t)&sum, g->sum, sizeof(sum), g->stream));
    if (rc == 0)
        rc = must("cuCtxSynchronize", cu->CtxSynchronize());
    if (rc == 0 && sum != g->expected) {
        say_error("decode steps have added up %#x instead of %#x: not every byte was read", sum,
                  g->expected);
        rc = BENCH_WRONG;
    }
    return rc;
}

int gpu_decode_wait(struct gpu_decode *g, double *ret_step)
{
    if (!g->runs)
        return BENCH_FAILED;
    (void)pthread_join(g->thread, NULL);
    g->runs = false;
    if (g->rc != 0)
        return g->rc;
    *ret_step = (double)g->counted_ns * 1e-9 / (double)g->counted;
    return check_sum(g);
}
#endif
