/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies on a CUDA device: batches of the driver, and the copy kernel with its lists of
 * fragments.
 */
#include "cuda_device.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

/* ---- batches ---- */

bool cuda_device_has_batch(const struct cuda_device *d)
{
    return !d->no_batch && cuda_has_batch(d->cu);
}

int cuda_device_copy_batch(struct cuda_device *d, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes,
                           size_t n, CUstream stream)
{
    const int rc =
        cuda_check(d, "cuMemcpyBatchAsync", cuda_copy_batch(d->cu, to, from, bytes, n, stream));
    d->no_batch = rc == -EOPNOTSUPP;
    return rc;
}

/* ---- the kernel's lists ---- */

static int load_kernel(struct cuda_device *d)
{
    const char *call;
    const CUresult r =
        cuda_load_kernel(d->cu, kvc_frags_image, kvc_frags_ptx, STRING(KVC_FRAGS_KERNEL),
                         &d->lists.module, &d->lists.kernel, &call);
    const int rc = cuda_check(d, call, r);
    return rc == -EIO ? -EOPNOTSUPP : rc;
}

int cuda_lists_open(struct cuda_device *d, uint32_t n)
{
    const struct cuda_api *cu = d->cu;
    struct cuda_lists *lists = &d->lists;
    const size_t bytes = (size_t)n * CUDA_LIST_FRAGS * sizeof(struct kvc_frag);
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    void *memory = NULL;
    CUdeviceptr at = 0;
    int rc = load_kernel(d);
    if (rc == 0)
        rc = cuda_check(d, "cuMemHostAlloc", cu->MemHostAlloc(&memory, bytes, flags));
    if (rc < 0)
        return rc;
    lists->memory = memory;
    rc = cuda_check(d, "cuMemHostGetDevicePointer", cu->MemHostGetDevicePointer(&at, memory, 0));
    for (; lists->n < n && rc == 0; lists->n++) {
        struct cuda_list *list = &lists->list[lists->n];
        const size_t first = (size_t)lists->n * CUDA_LIST_FRAGS;
        list->frag = lists->memory + first;
        list->device_addr = at + first * sizeof(struct kvc_frag);
        rc = cuda_check(d, "cuEventCreate", cu->EventCreate(&list->read, CU_EVENT_DISABLE_TIMING));
    }
    return rc;
}

/* Handles the result of a call that frees something. d->last keeps the first failure. */
static void close_one(struct cuda_device *d, const char *call, CUresult r, bool *all)
{
    if (*all && cuda_check(d, call, r) < 0)
        *all = false;
}

bool cuda_lists_close(struct cuda_device *d)
{
    const struct cuda_api *cu = d->cu;
    struct cuda_lists *lists = &d->lists;
    bool all = true;
    for (uint32_t i = 0; i < lists->n; i++) {
        const struct cuda_list *list = &lists->list[i];
        if (list->pending)
            close_one(d, "cuEventSynchronize", cu->EventSynchronize(list->read), &all);
        if (list->read)
            close_one(d, "cuEventDestroy", cu->EventDestroy(list->read), &all);
    }
    if (lists->memory)
        close_one(d, "cuMemFreeHost", cu->MemFreeHost(lists->memory), &all);
    if (lists->module)
        close_one(d, "cuModuleUnload", cu->ModuleUnload(lists->module), &all);
    *lists = (struct cuda_lists){0};
    return all;
}

int cuda_lists_wait(struct cuda_device *d)
{
    struct cuda_list *list = &d->lists.list[d->lists.at];
    int rc = 0;
    if (list->pending)
        rc = cuda_check(d, "cuEventSynchronize", d->cu->EventSynchronize(list->read));
    list->pending = list->pending && rc < 0;
    return rc;
}

bool cuda_lists_is_free(struct cuda_device *d)
{
    struct cuda_list *list = &d->lists.list[d->lists.at];
    list->pending = list->pending && d->cu->EventQuery(list->read) != CUDA_SUCCESS;
    return !list->pending;
}

uint64_t cuda_lists_pieces(const struct kvc_frag *frag)
{
    return (frag->bytes + CUDA_LIST_BYTES - 1) / CUDA_LIST_BYTES;
}

uint64_t cuda_lists_add(struct cuda_device *d, const struct kvc_frag *frag, uint64_t at)
{
    struct cuda_lists *lists = &d->lists;
    struct kvc_frag *list = lists->list[lists->at].frag;
    while (at < frag->bytes && lists->filled < CUDA_LIST_FRAGS) {
        const uint64_t left = frag->bytes - at;
        const uint64_t step = left < CUDA_LIST_BYTES ? left : CUDA_LIST_BYTES;
        list[lists->filled++] =
            (struct kvc_frag){.to = frag->to + at, .from = frag->from + at, .bytes = step};
        at += step;
    }
    return at;
}

int cuda_lists_launch(struct cuda_device *d, CUstream stream)
{
    struct cuda_lists *lists = &d->lists;
    struct cuda_list *list = &lists->list[lists->at];
    const uint32_t warps = KVC_FRAGS_THREADS / 32; /* of one block, each with a fragment */
    void *arguments[] = {&list->device_addr, &lists->filled};
    uint32_t blocks = (lists->filled + warps - 1) / warps;
    if (blocks == 0)
        return 0;
    if (blocks > KVC_FRAGS_BLOCKS)
        blocks = KVC_FRAGS_BLOCKS;
    int rc = cuda_check(d, "cuLaunchKernel",
                        d->cu->LaunchKernel(lists->kernel, blocks, 1, 1, KVC_FRAGS_THREADS, 1, 1, 0,
                                            stream, arguments, NULL));
    if (rc == 0)
        rc = cuda_check(d, "cuEventRecord", d->cu->EventRecord(list->read, stream));
    list->pending = rc == 0;
    lists->at = (lists->at + 1) % lists->n;
    lists->filled = 0;
    return rc;
}
#endif
