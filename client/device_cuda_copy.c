/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies on the worker's stream: by the copy engine, a fragment at a time or in batches; or, where
 * fragments are small and the device reaches both sides, by one kernel for all of them.
 */
#include "device_cuda__.h"
#ifdef KVC_HAVE_CUDA

#include <errno.h>

#include "client.h"

#define LISTS 8u

/* The kernel copies if there are at least KERNEL_FRAGS fragments, of less than the size below on
 * average. Each copy by the engine costs the host some microseconds, whatever its size. */
#define KERNEL_FRAGS      16u
#define KERNEL_FRAG_BYTES (64u << 10)

/* ---- the kernel ---- */

/* Loads the kernel at the first call. False: the device takes neither its image nor its PTX, so the
 * driver makes all copies. */
static bool has_kernel(struct cuda *c)
{
    if (c->kernel_tried || !c->one_address)
        return c->gpu.lists.kernel != NULL;
    c->kernel_tried = true;
    if (cuda_lists_open(&c->gpu, LISTS) < 0)
        cuda__copy_close(c);
    return c->gpu.lists.kernel != NULL;
}

void cuda__copy_close(struct cuda *c)
{
    (void)cuda_lists_close(&c->gpu);
}

/* Copies the first fragments, and returns their number, or an error. 0: no list is free. It does
 * not wait for one, because the launch that reads it may wait for the caller. */
static int copy_by_kernel(struct cuda *c, const struct kvc_frag *frag, uint32_t n, CUstream stream)
{
    uint32_t i = 0;
    if (!cuda_lists_is_free(&c->gpu))
        return 0;
    for (; i < n && cuda_lists_pieces(&frag[i]) <= CUDA_LIST_FRAGS - c->gpu.lists.filled; i++)
        (void)cuda_lists_add(&c->gpu, &frag[i], 0);
    const int rc = cuda_lists_launch(&c->gpu, stream);
    return rc < 0 ? cuda__said(c, rc) : (int)i;
}

/* ---- the copy engine ---- */

/* Whether the stream takes batches of copies: the default stream does not. */
static bool takes_batch(const struct cuda *c, CUstream stream)
{
    return cuda_device_has_batch(&c->gpu) && stream != NULL && stream != CU_STREAM_LEGACY;
}

/* -EOPNOTSUPP: the driver does none for this device. */
static int copy_batch(struct cuda *c, const struct kvc_frag *frag, uint32_t n, CUstream stream)
{
    CUdeviceptr to[DEVICE_FRAGS], from[DEVICE_FRAGS];
    size_t bytes[DEVICE_FRAGS];
    for (uint32_t i = 0; i < n; i++) {
        to[i] = frag[i].to;
        from[i] = frag[i].from;
        bytes[i] = frag[i].bytes;
    }
    const int rc = cuda_device_copy_batch(&c->gpu, to, from, bytes, n, stream);
    return rc == -EOPNOTSUPP ? rc : cuda__said(c, rc);
}

static int copy_by_engine(struct cuda *c, const struct kvc_frag *frag, uint32_t n, bool reaches,
                          CUstream stream)
{
    int rc = -EOPNOTSUPP;
    if (n > 1 && reaches && takes_batch(c, stream))
        rc = copy_batch(c, frag, n, stream);
    if (rc != -EOPNOTSUPP)
        return rc;
    rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = cuda__check(c, "cuMemcpyAsync",
                         c->gpu.cu->MemcpyAsync(frag[i].to, frag[i].from, frag[i].bytes, stream));
    return rc;
}

/* ---- both ---- */

/* Whether the kernel should copy these fragments. reaches: the device can use both addresses of
 * each fragment. */
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
