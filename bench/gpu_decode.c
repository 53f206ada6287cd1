/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode as the device sees it: kernels that read all of the KV, one behind the other, a few
 * launched ahead as engines do, on a stream as engines have it. What they add up says whether they
 * have read everything.
 */
#include "gpu_bench.h"

#ifndef KVC_HAVE_CUDA

int gpu_decode_open(const char *device, uint64_t kv_bytes, struct gpu_decode **ret_decode)
{
    (void)kv_bytes;
    (void)ret_decode;
    say_error("%s: built without CUDA", device);
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
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_cuda__.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

#define AHEAD         4u                   /* steps launched and not ended yet */
#define WARM_NS       UINT64_C(50000000)   /* not counted: until loads are in full swing */
#define FILL          0x01                 /* every byte of the KV */
#define WORD_SUM      UINT32_C(0x01010101) /* of one word of it */
/* CU_DEVICE_ATTRIBUTE_MPS_ENABLED of CUDA 12.4; an older driver does not know it. */
#define ATTRIBUTE_MPS ((CUdevice_attribute)133)

struct gpu_decode {
    struct gpu_dev *dev;
    struct gpu_mem kv, sum;
    CUmodule module;
    CUfunction kernel;
    unsigned blocks;
    bool mps;
    uint32_t expected; /* sum */
    /* the steps' thread's, from start to wait */
    pthread_t thread;
    bool runs;
    _Atomic bool over;
    uint64_t wanted_ns;
    uint64_t launched, counted, counted_ns;
    int rc;
};

static int failed(const struct gpu_decode *g, const char *what)
{
    say_error("decode steps: %s: %s", what, g->dev->why);
    return BENCH_FAILED;
}

static int must(struct gpu_decode *g, const char *call, CUresult r)
{
    return cuda__must(g->dev, call, r) < 0 ? failed(g, "the device is out") : 0;
}

/* ---- opening ---- */

static int look(struct gpu_decode *g)
{
    const struct cuda_api *cu = g->dev->cu;
    int processors = 0, mps = 0;
    const int rc = must(g, "cuDeviceGetAttribute",
                        cu->DeviceGetAttribute(
                            &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, g->dev->device));
    g->blocks = KVC_DECODE_BLOCKS * (unsigned)processors;
    g->mps = cu->DeviceGetAttribute(&mps, ATTRIBUTE_MPS, g->dev->device) == CUDA_SUCCESS && mps;
    return rc;
}

static int make(struct gpu_decode *g, uint64_t kv_bytes)
{
    const struct cuda_api *cu = g->dev->cu;
    const char *const name = STRING(KVC_DECODE_KERNEL);
    int rc = must(g, "cuModuleLoadData", cu->ModuleLoadData(&g->module, kvc_decode_image));
    if (rc == 0)
        rc = must(g, "cuModuleGetFunction", cu->ModuleGetFunction(&g->kernel, g->module, name));
    if (rc == 0 && (gpu_drv_cuda.alloc(g->dev, kv_bytes, &g->kv) < 0 ||
                    gpu_drv_cuda.alloc(g->dev, sizeof(uint32_t), &g->sum) < 0))
        rc = failed(g, "memory for KV");
    if (rc == 0)
        rc = must(g, "cuMemsetD8", cu->MemsetD8(g->kv.addr, FILL, kv_bytes));
    if (rc == 0)
        rc = must(g, "cuCtxSynchronize", cu->CtxSynchronize());
    return rc == 0 ? look(g) : rc;
}

int gpu_decode_open(const char *device, uint64_t kv_bytes, struct gpu_decode **ret_decode)
{
    const struct gpu_config config = {.device = device};
    struct gpu_dev_info info;
    char why[GPU_WHY_BYTES] = "";
    struct gpu_decode *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    *ret_decode = g;
    if (gpu_drv_cuda.open(&config, &g->dev, &info, why) < 0) {
        say_error("%s: %s", device, why);
        return BENCH_FAILED;
    }
    return make(g, kv_bytes);
}

void gpu_decode_close(struct gpu_decode **decode)
{
    struct gpu_decode *g = *decode;
    *decode = NULL;
    if (g == NULL)
        return;
    if (g->dev != NULL) {
        if (g->module != NULL && !g->dev->broken)
            (void)cuda__undone(g->dev, "cuModuleUnload", g->dev->cu->ModuleUnload(g->module));
        if (g->kv.addr != 0)
            gpu_drv_cuda.free(g->dev, &g->kv);
        if (g->sum.addr != 0)
            gpu_drv_cuda.free(g->dev, &g->sum);
        gpu_drv_cuda.close(g->dev);
    }
    free(g);
}

bool gpu_decode_has_mps(const struct gpu_decode *g)
{
    return g->mps;
}

/* ---- steps ---- */

static int launch(struct gpu_decode *g)
{
    const struct cuda_api *cu = g->dev->cu;
    uint64_t words = g->kv.bytes / sizeof(uint32_t);
    void *arguments[] = {&g->kv.addr, &words, &g->sum.addr};
    int rc = must(g, "cuLaunchKernel",
                  cu->LaunchKernel(g->kernel, g->blocks, 1, 1, KVC_DECODE_THREADS, 1, 1, 0,
                                   g->dev->stream[0], arguments, NULL));
    if (rc == 0)
        rc = must(g, "cuEventRecord",
                  cu->EventRecord(g->dev->event[g->launched % AHEAD], g->dev->stream[0]));
    g->expected += (uint32_t)words * WORD_SUM;
    g->launched++;
    return rc;
}

static int await_step(struct gpu_decode *g, uint64_t step)
{
    return must(g, "cuEventSynchronize", g->dev->cu->EventSynchronize(g->dev->event[step % AHEAD]));
}

/* Time counts from the end of one step to the end of another. */
static int run_steps(struct gpu_decode *g)
{
    const uint64_t warm = now_ns() + WARM_NS;
    uint64_t ended = 0, first = 0, first_ns = 0, last_ns = 0;
    int rc = must(g, "cuCtxSetCurrent", g->dev->cu->CtxSetCurrent(g->dev->context));
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
        must(g, "cuMemcpyAsync",
             g->dev->cu->MemcpyAsync((uintptr_t)&sum, g->sum.addr, sizeof(sum), g->dev->stream[0]));
    if (rc == 0)
        rc = must(g, "cuCtxSynchronize", g->dev->cu->CtxSynchronize());
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
