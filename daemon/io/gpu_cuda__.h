/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of gpu_drv_cuda share: gpu_cuda.c (opening, closing, polling), gpu_cuda_mem.c
 * (memory), gpu_cuda_pin.c (host memory), gpu_cuda_copy.c (copies), gpu_cuda_order.c (their order).
 * All on the device's own thread. Empty without CUDA.
 */
#ifndef KVC_IO_GPU_CUDA_PRIVATE_H
#define KVC_IO_GPU_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include "cuda_device.h"
#include "gpu_drv.h"
#include "gpu_span.h"

/* ---- the device ---- */

#define CUDA_STREAMS 3u /* one for each direction */
#define CUDA_TICKETS GPU_DRV_COPIES_MAX
#define CUDA_BATCH   1024u /* copies of one call */

/* gpu_cuda_order.c: more places than what is in flight needs as a rule. 64 MiB in fragments of 4
 * KiB, scattered on the device and not in host memory, are 20,480 granules of 16 KiB. 1 MiB in all.
 */
#define CUDA_TOUCH_BITS 15
#define CUDA_TOUCHES    (1u << CUDA_TOUCH_BITS)
struct cuda_touch {
    uint64_t granule;
    uint64_t ticket[CUDA_STREAMS];
};

struct gpu_dev {
    struct cuda_device cuda;       /* cuda.last.text: why() */
    CUcontext context;             /* NULL: not retained */
    bool broken;                   /* taken out: nothing is asked of it any more */
    CUstream stream[CUDA_STREAMS]; /* of direction d: d - GPU_TO_DEVICE */
    CUevent event[CUDA_TICKETS];   /* of ticket t: t % CUDA_TICKETS */
    uint64_t issued, ended;        /* the last ticket of each kind */
    struct cuda_touch touch[CUDA_TOUCHES];

    struct gpu_spans mem, pins;

    CUdeviceptr batch_to[CUDA_BATCH], batch_from[CUDA_BATCH];
    size_t batch_bytes[CUDA_BATCH];
    uint32_t batch;
};

/* What a function of gpu/ that must work has returned, or a call of the driver: 0, or -EIO with
 * why() set and the device broken. */
KVC_WARN_UNUSED int cuda__sure(struct gpu_dev *dev, int r);
KVC_WARN_UNUSED int cuda__must(struct gpu_dev *dev, const char *call, CUresult r);
/* The same for one that may fail by what it was asked: -ENOMEM when memory or what else the
 * system gives is out, -EOPNOTSUPP when the device cannot; the rest (of a call: `otherwise`) while
 * the context still answers, so that what somebody else has sent does not cost the device; -EIO. */
KVC_WARN_UNUSED int cuda__weigh(struct gpu_dev *dev, int r);
KVC_WARN_UNUSED int cuda__may(struct gpu_dev *dev, const char *call, CUresult r, int otherwise);
/* Something that undoes: whether it did. If not the device is broken. */
bool cuda__undid(struct gpu_dev *dev, bool all);
bool cuda__undone(struct gpu_dev *dev, const char *call, CUresult r);

KVC_WARN_UNUSED int cuda__alloc(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem,
                                uint64_t *ret_ticket);
/* The next ticket: of what the stream of `direction` has been given by now. */
KVC_WARN_UNUSED int cuda__ticket(struct gpu_dev *dev, enum gpu_direction direction,
                                 uint64_t *ret_ticket);
KVC_WARN_UNUSED int cuda__import(struct gpu_dev *dev, const struct device_handle *handle,
                                 struct gpu_mem *mem);
void cuda__free(struct gpu_dev *dev, struct gpu_mem *mem);
/* All that is left, as far as the device is not broken. After a reset of the context: what does not
 * go with a context. */
void cuda__free_all(struct gpu_dev *dev, bool after_reset);

KVC_WARN_UNUSED int cuda__pin(struct gpu_dev *dev, void *host, uint64_t bytes);
void cuda__unpin(struct gpu_dev *dev, void *host, uint64_t bytes);
/* All that are left, and the registrations that this context has made for others too: these fall
 * back to copies of pageable memory until one of them is pinned again. Of a broken device they go
 * when the context is reset. */
void cuda__unpin_all(struct gpu_dev *dev);
/* Whether the device reaches the memory by span->device_addr, which is made true. */
bool cuda__pin_holds(struct gpu_dev *dev, struct gpu_span *span);

/* Kernel and lists; without a kernel for this device it is 0 too. -ENOMEM, -EIO. */
KVC_WARN_UNUSED int cuda__copy_open(struct gpu_dev *dev);
void cuda__copy_close(struct gpu_dev *dev);
KVC_WARN_UNUSED int cuda__copy(struct gpu_dev *dev, enum gpu_path path,
                               enum gpu_direction direction, const struct kvc_frag *frag,
                               uint32_t n, struct gpu_revoke *revoke, uint64_t *ret_ticket);
/* Lets the stream of `direction` wait for copies before the next ticket's that touch the same
 * memory, and notes what that one touches. */
KVC_WARN_UNUSED int cuda__order(struct gpu_dev *dev, enum gpu_direction direction,
                                const struct kvc_frag *frag, uint32_t n);

#endif
#endif
