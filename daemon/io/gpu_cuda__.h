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
#define CUDA_BATCH   1024u /* copies of one call of the driver */

/* Places of the table of gpu_cuda_order.c: usually more than the copies in flight touch. 64 MiB in
 * fragments of 4 KiB, scattered on the device and not in host memory, touch 20,480 granules of 16
 * KiB. The table takes 1 MiB. */
#define CUDA_TOUCH_BITS 15
#define CUDA_TOUCHES    (1u << CUDA_TOUCH_BITS)
struct cuda_touch {
    uint64_t granule;
    uint64_t ticket[CUDA_STREAMS];
};

struct gpu_dev {
    struct cuda_device cuda; /* cuda.last.text: why() */
    CUcontext context;       /* NULL: not retained */
    bool broken;             /* an error took it out: the driver is not called for it any more */
    CUstream stream[CUDA_STREAMS]; /* that of direction d is stream[d - GPU_TO_DEVICE] */
    CUevent event[CUDA_TICKETS];   /* that of ticket t is event[t % CUDA_TICKETS] */
    uint64_t issued, ended;        /* the last ticket that was issued; the last that has ended */
    struct cuda_touch touch[CUDA_TOUCHES];

    struct gpu_spans mem, pins;

    CUdeviceptr batch_to[CUDA_BATCH], batch_from[CUDA_BATCH];
    size_t batch_bytes[CUDA_BATCH];
    uint32_t batch;
};

/* For the result of a call that may not fail, of a function of gpu/ (sure) or of the driver (must):
 * returns 0, or -EIO with why() set and the device broken. */
KVC_WARN_UNUSED int cuda__sure(struct gpu_dev *dev, int r);
KVC_WARN_UNUSED int cuda__must(struct gpu_dev *dev, const char *call, CUresult r);
/* The same for a call that may fail by its arguments. -ENOMEM: memory or another resource is out;
 * -EOPNOTSUPP: the device cannot do it; -EIO: the context does not answer. Any other error comes
 * back as it is (of the driver: as `otherwise`), so that a bad handle of a worker does not take the
 * device out. */
KVC_WARN_UNUSED int cuda__weigh(struct gpu_dev *dev, int r);
KVC_WARN_UNUSED int cuda__may(struct gpu_dev *dev, const char *call, CUresult r, int otherwise);
/* For the result of a call that undoes something: returns whether it did; else the device is
 * broken. */
bool cuda__undid(struct gpu_dev *dev, bool all);
bool cuda__undone(struct gpu_dev *dev, const char *call, CUresult r);

KVC_WARN_UNUSED int cuda__alloc(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem,
                                uint64_t *ret_ticket);
/* Issues the next ticket: it ends with the work that the stream of `direction` has been given. */
KVC_WARN_UNUSED int cuda__ticket(struct gpu_dev *dev, enum gpu_direction direction,
                                 uint64_t *ret_ticket);
KVC_WARN_UNUSED int cuda__import(struct gpu_dev *dev, const struct device_handle *handle,
                                 struct gpu_mem *mem);
void cuda__free(struct gpu_dev *dev, struct gpu_mem *mem);
/* Frees all memory that is left, unless the device is broken. after_reset: frees only what a reset
 * of the context has not freed. */
void cuda__free_all(struct gpu_dev *dev, bool after_reset);

KVC_WARN_UNUSED int cuda__pin(struct gpu_dev *dev, void *host, uint64_t bytes);
void cuda__unpin(struct gpu_dev *dev, void *host, uint64_t bytes);
/* Unpins all host memory that is left, and ends the registrations that this context made for other
 * devices too: these copy it as pageable memory until one of them pins it again. Of a broken device
 * the reset of the context ends them. */
void cuda__unpin_all(struct gpu_dev *dev);
/* Whether the host memory of the span is registered now; sets span->device_addr to where the device
 * sees it. */
bool cuda__pin_holds(struct gpu_dev *dev, struct gpu_span *span);

/* Loads the copy kernel and makes its lists. 0, also where no kernel fits this device; -ENOMEM,
 * -EIO. */
KVC_WARN_UNUSED int cuda__copy_open(struct gpu_dev *dev);
void cuda__copy_close(struct gpu_dev *dev);
KVC_WARN_UNUSED int cuda__copy(struct gpu_dev *dev, enum gpu_path path,
                               enum gpu_direction direction, const struct kvc_frag *frag,
                               uint32_t n, struct gpu_revoke *revoke, uint64_t *ret_ticket);
/* Call it before a copy: the stream of `direction` waits for earlier copies that touch the same
 * memory. Notes what the next ticket's copy touches. */
KVC_WARN_UNUSED int cuda__order(struct gpu_dev *dev, enum gpu_direction direction,
                                const struct kvc_frag *frag, uint32_t n);

#endif
#endif
