/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on a CUDA device. Kernels of kvc_attend are launched as an engine would launch them, on
 * a copy of the pages that the CPU attends to; kvc_decode only reads this copy.
 */
#include "attention.h"

#ifndef KVC_HAVE_CUDA

int attention_device_open(const char *name, const struct kvc_attention *a, const void *kv,
                          uint64_t kv_bytes, struct attention_device **ret_device)
{
    (void)a, (void)kv, (void)kv_bytes, (void)ret_device;
    say_error("%s: built without CUDA", name);
    return BENCH_FAILED;
}

void attention_device_close(struct attention_device **device)
{
    (void)device;
}

int attention_device_run(struct attention_device *d, double seconds, double *ret_calls)
{
    (void)d, (void)seconds, (void)ret_calls;
    return BENCH_FAILED;
}

int attention_device_read(struct attention_device *d, double seconds, double *ret_calls)
{
    (void)d, (void)seconds, (void)ret_calls;
    return BENCH_FAILED;
}

int attention_device_out(struct attention_device *d, float *ret_out)
{
    (void)d, (void)ret_out;
    return BENCH_FAILED;
}

#else
#include <kvcache/kernels.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

#define BUFFERS_MAX     9u
#define CALLS_AT_A_TIME 4u /* calls that are launched before the device is waited for */
#define BLOCKS_EACH     8u /* blocks for each multiprocessor: see kvc_attend_plan() */
#define DEVICE_NAME     "cuda:"

static const struct cuda_api *cu;

struct attention_device {
    CUdevice device;
    CUcontext context; /* the fields below are valid once it is not NULL */
    CUmodule attend_module, merge_module, decode_module;
    CUfunction attend, merge, decode;
    CUdeviceptr buffer[BUFFERS_MAX];
    uint32_t nbuffers;
    unsigned processors;
    struct kvc_attention a; /* with addresses on the device */
    struct kvc_attend_plan plan;
    CUdeviceptr kv, work, sum;
    uint64_t kv_bytes, out_bytes;
};

static int must(const char *call, CUresult r)
{
    char text[CUDA_TEXT_BYTES];
    if (r == CUDA_SUCCESS)
        return 0;
    cuda_text(cu, call, r, text);
    say_error("attention on a device: %s", text);
    return BENCH_FAILED;
}

/* ---- opening ---- */

static int device_find(struct attention_device *d, const char *name)
{
    const size_t head = strlen(DEVICE_NAME);
    const char *problem = NULL;
    uint64_t ordinal = 0;
    int n = 0, processors = 0;
    if (strncmp(name, DEVICE_NAME, head) != 0 ||
        args_count(say_usage, "device", name + head, 0, 63, &ordinal) != 0)
        return say_usage("--device: '%s' is not cuda:<number>", name);
    cu = cuda_find(&problem);
    if (cu == NULL) {
        say_error("%s: %s", name, problem);
        return BENCH_FAILED;
    }
    int rc = must("cuInit", cu->Init(0));
    if (rc == 0)
        rc = must("cuDeviceGetCount", cu->DeviceGetCount(&n));
    if (rc == 0 && ordinal >= (uint64_t)n) {
        say_error("%s: the driver has %d devices", name, n);
        return BENCH_FAILED;
    }
    if (rc == 0)
        rc = must("cuDeviceGet", cu->DeviceGet(&d->device, (int)ordinal));
    if (rc == 0)
        rc = must("cuDeviceGetAttribute",
                  cu->DeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                         d->device));
    d->processors = (unsigned)processors;
    return rc;
}

static int device_enter(struct attention_device *d)
{
    CUcontext context = NULL;
    int rc = must("cuDevicePrimaryCtxRetain", cu->DevicePrimaryCtxRetain(&context, d->device));
    if (rc != 0)
        return rc;
    d->context = context;
    return must("cuCtxSetCurrent", cu->CtxSetCurrent(context));
}

static int device_load(struct attention_device *d)
{
    const char *call = "";
    CUresult r = cuda_load_kernel(cu, kvc_attend_image, kvc_attend_ptx, STRING(KVC_ATTEND_KERNEL),
                                  &d->attend_module, &d->attend, &call);
    if (r == CUDA_SUCCESS)
        r = cuda_load_kernel(cu, kvc_attend_image, kvc_attend_ptx, STRING(KVC_ATTEND_MERGE_KERNEL),
                             &d->merge_module, &d->merge, &call);
    if (r == CUDA_SUCCESS)
        r = cuda_load_kernel(cu, kvc_decode_image, kvc_decode_ptx, STRING(KVC_DECODE_KERNEL),
                             &d->decode_module, &d->decode, &call);
    return must(call, r);
}

/* Copies `bytes` of the host's memory to the device; from NULL: fills it with bytes that are no
 * numbers. */
static int device_copy(struct attention_device *d, const void *from, uint64_t bytes,
                       CUdeviceptr *ret)
{
    int rc = must("cuMemAlloc", cu->MemAlloc(&d->buffer[d->nbuffers], bytes > 0 ? bytes : 1));
    if (rc != 0)
        return rc;
    *ret = d->buffer[d->nbuffers++];
    if (from != NULL)
        return must("cuMemcpyAsync", cu->MemcpyAsync(*ret, (uintptr_t)from, bytes, NULL));
    return must("cuMemsetD8", cu->MemsetD8(*ret, 0xff, bytes));
}

/* Makes the host's problem on the device: copies everything that it names. */
static int device_fill(struct attention_device *d, const void *kv)
{
    struct kvc_paged *list = &d->a.list[0];
    const uint64_t queries = d->a.q_first[d->a.seqs],
                   floats = queries * d->a.heads * d->a.head_size;
    const uint64_t v_offset = (uint64_t)((const char *)list->v.base - (const char *)list->k.base);
    CUdeviceptr at[6] = {0};
    d->out_bytes = floats * sizeof(float);
    int rc = device_copy(d, kv, d->kv_bytes, &d->kv);
    const struct {
        const void *from;
        uint64_t bytes;
    } copies[] = {{list->page, list->pages * sizeof(uint32_t)},
                  {list->first, (d->a.seqs + 1) * sizeof(uint32_t)},
                  {list->last_tokens, d->a.seqs * sizeof(uint32_t)},
                  {d->a.q_first, (d->a.seqs + 1) * sizeof(uint32_t)},
                  {d->a.q, d->out_bytes},
                  {NULL, d->out_bytes}};
    for (size_t i = 0; rc == 0 && i < sizeof(copies) / sizeof(copies[0]); i++)
        rc = device_copy(d, copies[i].from, copies[i].bytes, &at[i]);
    if (rc == 0)
        rc = device_copy(d, NULL, d->plan.work_bytes, &d->work);
    if (rc == 0)
        rc = device_copy(d, NULL, sizeof(uint32_t), &d->sum);
    list->k.base = (const void *)(uintptr_t)d->kv;
    list->v.base = (const void *)(uintptr_t)(d->kv + v_offset);
    list->page = (const uint32_t *)(uintptr_t)at[0];
    list->first = (const uint32_t *)(uintptr_t)at[1];
    list->last_tokens = (const uint32_t *)(uintptr_t)at[2];
    d->a.q_first = (const uint32_t *)(uintptr_t)at[3];
    d->a.q = (const float *)(uintptr_t)at[4];
    d->a.out = (float *)(uintptr_t)at[5];
    return rc == 0 ? must("cuCtxSynchronize", cu->CtxSynchronize()) : rc;
}

int attention_device_open(const char *name, const struct kvc_attention *a, const void *kv,
                          uint64_t kv_bytes, struct attention_device **ret_device)
{
    char why[KVC_WHY_BYTES] = "";
    struct attention_device *d = calloc(1, sizeof(*d));
    if (d == NULL) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    *ret_device = d;
    d->a = *a;
    d->kv_bytes = kv_bytes;
    int rc = device_find(d, name);
    if (rc == 0 && kvc_attend_plan(a, BLOCKS_EACH * d->processors, &d->plan, why) != 0) {
        say_error("%s", why);
        rc = BENCH_FAILED;
    }
    if (rc == 0)
        rc = device_enter(d);
    if (rc == 0)
        rc = device_load(d);
    return rc == 0 ? device_fill(d, kv) : rc;
}

/* Accepts a device that was opened in part. */
void attention_device_close(struct attention_device **device)
{
    struct attention_device *d = *device;
    *device = NULL;
    if (d == NULL)
        return;
    CUmodule modules[] = {d->attend_module, d->merge_module, d->decode_module};
    for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++)
        if (modules[i])
            (void)must("cuModuleUnload", cu->ModuleUnload(modules[i]));
    for (uint32_t i = 0; i < d->nbuffers; i++)
        (void)must("cuMemFree", cu->MemFree(d->buffer[i]));
    if (d->context)
        (void)must("cuDevicePrimaryCtxRelease", cu->DevicePrimaryCtxRelease(d->device));
    free(d);
}

/* ---- running ---- */

static int launch_attend(struct attention_device *d)
{
    const struct kvc_attend_plan *p = &d->plan;
    uint32_t parts = p->parts, states = p->y;
    void *attend[] = {&d->a, &parts, &d->work}, *merge[] = {&d->a, &states, &d->work};
    const int rc =
        must("cuLaunchKernel", cu->LaunchKernel(d->attend, p->x, p->y, p->z, KVC_ATTEND_THREADS, 1,
                                                1, 0, NULL, attend, NULL));
    return rc == 0 ? must("cuLaunchKernel",
                          cu->LaunchKernel(d->merge, p->x, KVC_ATTEND_ROWS, p->z,
                                           KVC_ATTEND_MERGE_THREADS, 1, 1, 0, NULL, merge, NULL))
                   : rc;
}

static int launch_decode(struct attention_device *d)
{
    uint64_t words = d->kv_bytes / sizeof(uint32_t) / 4 * 4;
    void *arguments[] = {&d->kv, &words, &d->sum};
    return must("cuLaunchKernel",
                cu->LaunchKernel(d->decode, KVC_DECODE_BLOCKS * d->processors, 1, 1,
                                 KVC_DECODE_THREADS, 1, 1, 0, NULL, arguments, NULL));
}

/* Measures calls per second, with a few launched ahead. */
static int device_rate(struct attention_device *d, int (*launch)(struct attention_device *d),
                       double seconds, double *ret_calls)
{
    int rc = launch(d);
    if (rc == 0)
        rc = must("cuCtxSynchronize", cu->CtxSynchronize());
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t calls = 0;
    do {
        for (uint32_t i = 0; rc == 0 && i < CALLS_AT_A_TIME; i++)
            rc = launch(d);
        if (rc == 0)
            rc = must("cuCtxSynchronize", cu->CtxSynchronize());
        calls += CALLS_AT_A_TIME;
    } while (rc == 0 && now_ns() < until);
    *ret_calls = (double)calls / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}

int attention_device_run(struct attention_device *d, double seconds, double *ret_calls)
{
    return device_rate(d, launch_attend, seconds, ret_calls);
}

int attention_device_read(struct attention_device *d, double seconds, double *ret_calls)
{
    return device_rate(d, launch_decode, seconds, ret_calls);
}

int attention_device_out(struct attention_device *d, float *ret_out)
{
    int rc = launch_attend(d);
    if (rc == 0)
        rc = must("cuCtxSynchronize", cu->CtxSynchronize());
    if (rc == 0)
        rc = must("cuMemcpyAsync",
                  cu->MemcpyAsync((uintptr_t)ret_out, (uintptr_t)d->a.out, d->out_bytes, NULL));
    return rc == 0 ? must("cuCtxSynchronize", cu->CtxSynchronize()) : rc;
}
#endif
