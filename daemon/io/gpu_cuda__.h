/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of gpu_drv_cuda share: gpu_cuda.c (opening, closing, polling), gpu_cuda_mem.c
 * (memory), gpu_cuda_pin.c (host memory), gpu_cuda_copy.c (copies), gpu_cuda_order.c (their order).
 * All on the device's own thread. Empty without CUDA.
 */
#ifndef KVC_IO_GPU_CUDA_PRIVATE_H
#define KVC_IO_GPU_CUDA_PRIVATE_H
#ifdef KVC_HAVE_CUDA

#include <kvcache/kernels.h>

#include "cuda_driver.h"
#include "gpu_drv.h"

/* ---- memory that the device can reach ---- */

enum cuda_span_kind { CUDA_VMM = 1, CUDA_PLAIN, CUDA_IPC, CUDA_PIN };

/* One allocation, whole: spans are disjoint, or equal (an IPC handle that was opened twice). */
struct cuda_span {
    uint64_t start, end; /* addresses as fragments name them */
    enum cuda_span_kind kind;
    uint64_t serial;  /* gpu_mem.priv; never used twice */
    int fd;           /* of VMM that is exported; else -1 */
    uint64_t cleared; /* the ticket that has filled it with zeros; 0: none */
    /* What there is of it, to be undone. */
    bool created, reserved, mapped;      /* VMM */
    bool held;                           /* PLAIN, IPC */
    CUmemGenericAllocationHandle handle; /* VMM, while `created` */
    /* PIN */
    struct cuda_pin *pin;
    uint64_t pin_serial; /* of the registration that device_addr belongs to */
    uint64_t device_addr;
};
/* Sorted by start. */
struct cuda_spans {
    struct cuda_span *at;
    uint32_t n, room;
};
/* Room for one more; -ENOMEM. */
KVC_WARN_UNUSED int cuda__span_room(struct cuda_spans *spans);
/* Into room that was made. */
void cuda__span_add(struct cuda_spans *spans, const struct cuda_span *span);
void cuda__span_remove(struct cuda_spans *spans, struct cuda_span *span);
/* The one that contains addr; else NULL, and *ret_next is where the next one begins (UINT64_MAX:
 * there is none). *hint is looked at first, and kept. A span lives until the next add or remove. */
struct cuda_span *cuda__span_find(const struct cuda_spans *spans, uint64_t addr, uint32_t *hint,
                                  uint64_t *ret_next);

/* ---- the device ---- */

#define CUDA_STREAMS    3u /* one for each direction */
#define CUDA_TICKETS    GPU_DRV_COPIES_MAX
#define CUDA_BATCH      1024u /* copies of one call */
#define CUDA_LISTS      16u   /* fragment lists on their way */
#define CUDA_LIST_FRAGS 4096u
/* What one warp of the kernel copies at a time: larger fragments are divided, so that all warps
 * have work. */
#define CUDA_LIST_BYTES (32u << 10)

/* gpu_cuda_order.c: more places than what is in flight needs as a rule. 64 MiB in fragments of 4
 * KiB, scattered on the device and not in host memory, are 20,480 granules of 16 KiB. 1 MiB in all.
 */
#define CUDA_TOUCH_BITS 15
#define CUDA_TOUCHES    (1u << CUDA_TOUCH_BITS)
struct cuda_touch {
    uint64_t granule;
    uint64_t ticket[CUDA_STREAMS];
};

/* A list of fragments in pinned memory, for one launch of the kernel. */
struct cuda_list {
    struct kvc_frag *frag; /* [CUDA_LIST_FRAGS] */
    uint64_t device_addr;
    CUevent read; /* the launch has ended */
    bool pending;
};

struct gpu_dev {
    const struct cuda_api *cu;
    CUdevice device;
    CUcontext context;    /* NULL: not retained */
    bool broken;          /* taken out: nothing is asked of it any more */
    bool vmm;             /* memory passes between processes as descriptors, else by CUDA IPC */
    uint64_t granularity; /* of VMM */
    uint64_t memory_bytes;
    CUstream stream[CUDA_STREAMS]; /* of direction d: d - GPU_TO_DEVICE */
    CUevent event[CUDA_TICKETS];   /* of ticket t: t % CUDA_TICKETS */
    uint64_t issued, ended;        /* the last ticket of each kind */
    struct cuda_touch touch[CUDA_TOUCHES];

    struct cuda_spans mem, pins;

    CUdeviceptr batch_to[CUDA_BATCH], batch_from[CUDA_BATCH];
    size_t batch_bytes[CUDA_BATCH];
    uint32_t batch;
    bool no_batch; /* the driver has refused one */

    CUmodule module;
    CUfunction kernel; /* NULL: it does not run here */
    struct kvc_frag *lists;
    struct cuda_list list[CUDA_LISTS];
    uint32_t list_at; /* the one to be filled */
    uint32_t listed;  /* fragments in it */

    char why[GPU_WHY_BYTES];
};

/* What a call that must work has returned: 0, or -EIO with why() set and the device broken. */
KVC_WARN_UNUSED int cuda__must(struct gpu_dev *dev, const char *call, CUresult r);
/* The same for a call that may fail by what it was asked: -ENOMEM when memory or what else the
 * system gives is out, -EOPNOTSUPP when the device cannot; for the rest `otherwise` while the
 * context still answers, so that what somebody else has sent does not cost the device; -EIO. */
KVC_WARN_UNUSED int cuda__may(struct gpu_dev *dev, const char *call, CUresult r, int otherwise);
/* A call that undoes something: whether it did. If not the device is broken. */
bool cuda__undone(struct gpu_dev *dev, const char *call, CUresult r);
/* A refusal of our own: err, with why() set. */
__attribute__((format(printf, 3, 4))) int cuda__refuse(struct gpu_dev *dev, int err,
                                                       const char *format, ...);

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
bool cuda__pin_holds(struct gpu_dev *dev, struct cuda_span *span);

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
