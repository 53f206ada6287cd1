/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies on the worker's stream: by the copy engine, a fragment at a time or in batches; or, where
 * fragments are small and the device reaches both sides, by one kernel for all of them.
 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>

#include "client.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

/* The kernel's turn: at least so many fragments, of less than so many bytes on the average. A copy
 * that the engine makes costs some microseconds of the host's, whatever its size. */
#define KERNEL_FRAGS      16u
#define KERNEL_FRAG_BYTES (64u << 10)
/* What one warp copies at a time. */
#define LIST_BYTES (32u << 10)

/* ---- the kernel ---- */

static int make_lists(struct cuda *c)
{
    void *at = NULL;
    int rc =
        cuda__check(c, "cuMemHostAlloc",
                    c->cu->MemHostAlloc(&at, sizeof(struct kvc_frag) * CUDA_LISTS * CUDA_LIST_FRAGS,
                                        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    if (rc < 0)
        return rc;
    c->lists = at;
    for (uint32_t i = 0; i < CUDA_LISTS && rc == 0; i++) {
        c->list[i].frag = c->lists + (size_t)i * CUDA_LIST_FRAGS;
        rc = cuda__check(c, "cuEventCreate",
                         c->cu->EventCreate(&c->list[i].read, CU_EVENT_DISABLE_TIMING));
    }
    return rc;
}

/* A device that takes neither the image nor the PTX copies without the kernel. */
static bool has_kernel(struct cuda *c)
{
    if (c->kernel_tried || !c->one_address)
        return c->kernel != NULL;
    c->kernel_tried = true;
    CUfunction kernel = NULL;
    const char *call;
    if (cuda_load_kernel(c->cu, kvc_frags_image, kvc_frags_ptx, STRING(KVC_FRAGS_KERNEL),
                         &c->module, &kernel, &call) == CUDA_SUCCESS &&
        make_lists(c) == 0)
        c->kernel = kernel;
    return c->kernel != NULL;
}

void cuda__copy_close(struct cuda *c)
{
    for (uint32_t i = 0; i < CUDA_LISTS; i++) {
        if (c->list[i].is_pending) /* the kernel reads it */
            (void)c->cu->EventSynchronize(c->list[i].read);
        if (c->list[i].read != NULL)
            (void)c->cu->EventDestroy(c->list[i].read);
    }
    if (c->module != NULL)
        (void)c->cu->ModuleUnload(c->module);
    if (c->lists != NULL)
        (void)c->cu->MemFreeHost(c->lists);
}

/* A list that no kernel reads; NULL: none now. Waiting for one could be waiting for the caller. */
static struct cuda_list *free_list(struct cuda *c)
{
    struct cuda_list *l = &c->list[c->list_at];
    if (l->is_pending && c->cu->EventQuery(l->read) != CUDA_SUCCESS)
        return NULL;
    l->is_pending = false;
    return l;
}

static int launch(struct cuda *c, struct cuda_list *l, uint32_t n, CUstream stream)
{
    const uint32_t warps = KVC_FRAGS_THREADS / 32; /* of one block, each with a fragment */
    uint64_t list = (uint64_t)(uintptr_t)l->frag;
    void *arguments[] = {&list, &n};
    uint32_t blocks = (n + warps - 1) / warps;
    if (blocks > KVC_FRAGS_BLOCKS)
        blocks = KVC_FRAGS_BLOCKS;
    int rc = cuda__check(c, "cuLaunchKernel",
                         c->cu->LaunchKernel(c->kernel, blocks, 1, 1, KVC_FRAGS_THREADS, 1, 1, 0,
                                             stream, arguments, NULL));
    if (rc == 0)
        rc = cuda__check(c, "cuEventRecord", c->cu->EventRecord(l->read, stream));
    l->is_pending = rc == 0;
    c->list_at = (c->list_at + 1) % CUDA_LISTS;
    return rc;
}

/* Copies the first fragments, divided so that all warps have work: how many, 0 when there is no
 * list now, or an error. */
static int copy_by_kernel(struct cuda *c, const struct kvc_frag *frag, uint32_t n, CUstream stream)
{
    struct cuda_list *l = free_list(c);
    uint32_t used = 0, i = 0;
    if (l == NULL)
        return 0;
    for (; i < n; i++) {
        uint64_t pieces = (frag[i].bytes + LIST_BYTES - 1) / LIST_BYTES;
        if (pieces > CUDA_LIST_FRAGS - used)
            break;
        for (uint64_t at = 0; at < frag[i].bytes; at += LIST_BYTES) {
            uint64_t left = frag[i].bytes - at;
            l->frag[used++] = (struct kvc_frag){.to = frag[i].to + at,
                                                .from = frag[i].from + at,
                                                .bytes = left < LIST_BYTES ? left : LIST_BYTES};
        }
    }
    int rc = used > 0 ? launch(c, l, used, stream) : 0;
    return rc < 0 ? rc : (int)i;
}

/* ---- the copy engine ---- */

/* The default stream takes no batches. */
static bool takes_batch(const struct cuda *c, CUstream stream)
{
    return !c->no_batch && cuda_has_batch(c->cu) && stream != NULL && stream != CU_STREAM_LEGACY;
}

static CUresult copy_batch(struct cuda *c, const struct kvc_frag *frag, uint32_t n, CUstream stream)
{
    CUdeviceptr to[DEVICE_FRAGS], from[DEVICE_FRAGS];
    size_t bytes[DEVICE_FRAGS];
    for (uint32_t i = 0; i < n; i++) {
        to[i] = frag[i].to;
        from[i] = frag[i].from;
        bytes[i] = frag[i].bytes;
    }
    return cuda_copy_batch(c->cu, to, from, bytes, n, stream);
}

static int copy_by_engine(struct cuda *c, const struct kvc_frag *frag, uint32_t n, bool reaches,
                          CUstream stream)
{
    if (n > 1 && reaches && takes_batch(c, stream)) {
        const CUresult r = copy_batch(c, frag, n, stream);
        if (r != CUDA_ERROR_NOT_SUPPORTED)
            return cuda__check(c, "cuMemcpyBatchAsync", r);
        c->no_batch = true; /* the driver has it, and does not do it for this device */
    }
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = cuda__check(c, "cuMemcpyAsync",
                         c->cu->MemcpyAsync(frag[i].to, frag[i].from, frag[i].bytes, stream));
    return rc;
}

/* ---- both ---- */

/* reaches: the device reaches both sides, by the addresses that the fragments name. */
static bool is_for_kernel(const struct kvc_frag *frag, uint32_t n, bool reaches)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += frag[i].bytes;
    return reaches && n >= KERNEL_FRAGS && bytes / n < KERNEL_FRAG_BYTES;
}

int cuda__copy(struct device *d, enum device_way way, const struct kvc_frag *frag, uint32_t n,
               bool is_pinned, void *stream)
{
    struct cuda *c = cuda__of(d);
    bool reaches = way == DEVICE_ON_DEVICE || (is_pinned && c->one_address);
    int rc = cuda__enter(c);
    if (rc < 0)
        return rc;
    int done = 0;
    if (is_for_kernel(frag, n, reaches) && has_kernel(c))
        done = copy_by_kernel(c, frag, n, stream);
    rc = done < 0 ? done : 0;
    if (rc == 0 && (uint32_t)done < n)
        rc = copy_by_engine(c, frag + done, n - (uint32_t)done, reaches, stream);
    cuda__leave(c);
    return rc;
}

#endif
