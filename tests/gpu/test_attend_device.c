/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and rows on a real device: random problems, and the bits of the CPU. The same kernels
 * run on fibres in test_cuda_kernels; here they are what ptxas makes of them.
 */
#ifndef KVC_HAVE_CUDA
#include <stdio.h>
int main(void)
{
    puts("SKIP: built without CUDA (no nvcc was found, or KVC_CUDA=OFF)");
    return 77;
}
#else
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attend_case.h"
#include "cases.h"
#include "cuda_driver.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

#define BUFFERS_MAX 32u
#define SEEDS       100u

static const struct cuda_api *cu;
static CUfunction attend, merge, quantise, dequantise;

/* A copy on the device of memory of the host. */
static struct buffer {
    CUdeviceptr at;
    const char *host;
    size_t bytes;
} buffers[BUFFERS_MAX];
static unsigned nbuffers;

static void must(const char *call, CUresult r)
{
    char text[CUDA_TEXT_BYTES];
    if (r != CUDA_SUCCESS)
        cuda_text(cu, call, r, text);
    ck_assert_msg(r == CUDA_SUCCESS, "%s", text);
}

static CUfunction function_load(const char *name)
{
    CUmodule module;
    CUfunction function;
    const char *call = "";
    must(call,
         cuda_load_kernel(cu, kvc_attend_image, kvc_attend_ptx, name, &module, &function, &call));
    return function;
}

static CUresult device_open(const char **ret_problem)
{
    CUdevice device;
    CUcontext context;
    cu = cuda_find(ret_problem);
    if (!cu)
        return CUDA_ERROR_NOT_FOUND;
    *ret_problem = "the driver has no device";
    CUresult r = cu->Init(0);
    if (r == CUDA_SUCCESS)
        r = cu->DeviceGet(&device, 0);
    if (r == CUDA_SUCCESS)
        r = cu->DevicePrimaryCtxRetain(&context, device);
    return r == CUDA_SUCCESS ? cu->CtxSetCurrent(context) : r;
}

static void setup(void)
{
    const char *problem = NULL;
    ck_assert_msg(device_open(&problem) == CUDA_SUCCESS, "%s", problem);
    attend = function_load(STRING(KVC_ATTEND_KERNEL));
    merge = function_load(STRING(KVC_ATTEND_MERGE_KERNEL));
    quantise = function_load(STRING(KVC_QUANTISE_KERNEL));
    dequantise = function_load(STRING(KVC_DEQUANTISE_KERNEL));
}

/* ---- memory ---- */

static void copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    must("cuMemcpyAsync", cu->MemcpyAsync(to, from, bytes, NULL));
    must("cuCtxSynchronize", cu->CtxSynchronize());
}

static void *on_device(const void *host, size_t bytes)
{
    struct buffer *b = &buffers[nbuffers++];
    ck_assert_uint_le(nbuffers, BUFFERS_MAX);
    *b = (struct buffer){.host = host, .bytes = bytes};
    must("cuMemAlloc", cu->MemAlloc(&b->at, bytes > 0 ? bytes : 1));
    if (bytes > 0)
        copy(b->at, (uintptr_t)host, bytes);
    return (void *)(uintptr_t)b->at;
}

/* Where an address of the host lies on the device. */
static void *moved(const void *host)
{
    for (unsigned i = 0; i < nbuffers; i++) {
        const struct buffer *b = &buffers[i];
        if ((const char *)host >= b->host && (const char *)host < b->host + b->bytes)
            return (void *)(uintptr_t)(b->at + (uintptr_t)host - (uintptr_t)b->host);
    }
    return NULL;
}

static void buffers_free(void)
{
    while (nbuffers > 0)
        must("cuMemFree", cu->MemFree(buffers[--nbuffers].at));
}

static void launch(CUfunction function, const unsigned grid[3], unsigned threads, void **args)
{
    must("cuLaunchKernel",
         cu->LaunchKernel(function, grid[0], grid[1], grid[2], threads, 1, 1, 0, NULL, args, NULL));
    must("cuCtxSynchronize", cu->CtxSynchronize());
}

/* ---- attention ---- */

static void list_move(struct kvc_paged *list, uint32_t seqs, struct attend_laid *l, uint32_t i)
{
    for (uint32_t p = 2 * i; p < 2 * i + 2; p++)
        on_device(l->pages[p], l->page_bytes[p]);
    list->k.base = moved(list->k.base);
    list->v.base = moved(list->v.base);
    list->page = on_device(list->page, list->pages * sizeof(uint32_t));
    list->first = on_device(list->first, (seqs + 1) * sizeof(uint32_t));
    list->last_tokens = on_device(list->last_tokens, seqs * sizeof(uint32_t));
}

static void attend_on_device(const struct attend_case *c, struct attend_laid *l, uint32_t blocks)
{
    char why[KVC_WHY_BYTES] = "";
    struct kvc_attend_plan plan;
    struct kvc_attention a = l->a;
    ck_assert_msg(kvc_attend_plan(&a, blocks, &plan, why) == 0, "%s", why);
    for (uint32_t i = 0; i < a.lists; i++)
        list_move(&a.list[i], a.seqs, l, i);
    if (a.dropped)
        a.dropped = on_device(a.dropped, a.seqs * sizeof(uint32_t));
    a.q_first = on_device(a.q_first, (a.seqs + 1) * sizeof(uint32_t));
    a.q = on_device(c->q, l->out_bytes);
    a.out = on_device(l->out, l->out_bytes);
    char *nothing = malloc(plan.work_bytes + 1);
    ck_assert_ptr_nonnull(nothing);
    memset(nothing, 0xff, plan.work_bytes);
    void *work = on_device(nothing, plan.work_bytes);
    const unsigned grid[3] = {plan.x, plan.y, plan.z},
                   merges[3] = {plan.x, KVC_ATTEND_ROWS, plan.z};
    void *args[] = {&a, &plan.parts, &work}, *merge_args[] = {&a, &plan.y, &work};
    if (plan.x > 0) {
        launch(attend, grid, KVC_ATTEND_THREADS, args);
        launch(merge, merges, KVC_ATTEND_MERGE_THREADS, merge_args);
        copy((uintptr_t)l->out, (uintptr_t)a.out, l->out_bytes);
    }
    free(nothing);
    buffers_free();
}

static void one_attention(uint64_t seed)
{
    uint64_t random = seed;
    struct attend_case c;
    struct attend_laid laid;
    case_choose(&c, &random);
    case_fill(&c, &random);
    case_lay(&c, 0, (int)(seed % 2), &random, &laid);
    float *twin = laid_twin(&laid);
    attend_on_device(&c, &laid, 1 + case_below(&random, 600));
    laid_assert_bits(&laid, twin, seed);
    free(twin);
    laid_free(&laid);
    case_free(&c);
}

CASES(.setup = setup);

CASE(attention_is_the_twins)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        one_attention(seed);
}

/* ---- rows ---- */

CASE_EACH(rows_are_those_of_the_twin, KVC_TYPES)
{
    const enum kvc_type type = (enum kvc_type)_i;
    const unsigned grid[3] = {64, 1, 1};
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        uint64_t random = seed;
        const uint32_t n = 32 * (1 + case_below(&random, 8)), rows = 1 + case_below(&random, 200);
        const uint64_t row_bytes = kvc_row_bytes(type, n), wide = n * sizeof(float);
        float *x = calloc(rows, wide), *y = calloc(rows, wide), *z = calloc(rows, wide);
        uint8_t *kept = calloc(rows, row_bytes), *twin = calloc(rows, row_bytes);
        ck_assert(x && y && z && kept && twin);
        for (uint64_t i = 0; i < (uint64_t)rows * n; i++)
            x[i] = case_below(&random, 4) ? case_normal(&random) : 0;
        struct kvc_rows down = {type,     n,
                                rows,     on_device(x, rows * wide),
                                wide,     on_device(kept, rows * row_bytes),
                                row_bytes},
                        up = {type, n, rows, down.to, row_bytes, on_device(y, rows * wide), wide};
        launch(quantise, grid, KVC_ROWS_THREADS, (void *[]){&down});
        launch(dequantise, grid, KVC_ROWS_THREADS, (void *[]){&up});
        copy((uintptr_t)kept, (uintptr_t)down.to, rows * row_bytes);
        copy((uintptr_t)y, (uintptr_t)up.to, rows * wide);
        ck_assert_int_eq(kvc_quantise(type, n, rows, x, wide, twin, row_bytes, NULL), 0);
        ck_assert_int_eq(kvc_dequantise(type, n, rows, twin, row_bytes, z, wide, NULL), 0);
        ck_assert_msg(memcmp(kept, twin, rows * row_bytes) == 0, "kept, seed %ju", (uintmax_t)seed);
        ck_assert_msg(memcmp(y, z, rows * wide) == 0, "read, seed %ju", (uintmax_t)seed);
        buffers_free();
        free(twin);
        free(kept);
        free(z);
        free(y);
        free(x);
    }
}

/* In a process of its own: the tests are forked, and a driver that was initialised does not survive
 * that. */
static bool is_there(void)
{
    int status = 1;
    const pid_t pid = fork();
    if (pid == 0) {
        const char *problem = NULL;
        const bool there = device_open(&problem) == CUDA_SUCCESS;
        if (!there)
            printf("SKIP: %s\n", problem);
        (void)fflush(stdout);
        _exit(there ? 0 : 1);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

int main(void)
{
    if (!is_there())
        return 77;
    return cases_run();
}
#endif
