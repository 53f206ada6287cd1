/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu.c (control thread), gpu_thread.c (the device's thread) and gpu_calibrate.c share.
 *
 * Two inboxes: operations go to the device's thread in `orders`, and come back ended in `results`.
 * Reports about the device (up, out, measured) come back the same way, so that their order is true:
 * the control thread knows of memory that was allocated before the device went out.
 */
#ifndef KVC_IO_GPU__H
#define KVC_IO_GPU__H

#include "gpu_drv.h"

/* A report of the device's thread: the device is up, is out, or its rates were measured. */
struct gpu_told {
    struct inbox_item item;
    _Atomic bool on_its_way; /* posted, and the control thread has not taken it yet */
    struct gpu_dev_info info;
    struct gpu_rates rates;
    uint32_t generation;
    bool
        measured; /* `up`: rates were measured, or config.calibrate is false; else memory was out */
    char why[GPU_WHY_BYTES]; /* `out`: the reason */
};

/* The piece of one copy() of the driver, or an alloc() whose memory is filled with zeros. */
struct gpu_batch {
    struct gpu_op *op;
    uint64_t ticket, bytes;
    uint64_t given_ns;
    uint64_t ready; /* as gpu_piece.ready */
    bool last;      /* the last batch of `op` */
};

/* A range of host memory that is registered. */
struct gpu_pin {
    uint64_t at, bytes;
};
#define GPU_PINS_MAX 16384u

/* Copies in order of submission, linked through gpu_op.next. */
struct gpu_copies {
    struct gpu_op *head;
    struct gpu_op **tail;
};

struct gpu_thread {
    struct gpu_dev *dev; /* NULL: the device is not up */
    struct gpu_rates rates;
    uint32_t generation; /* how often the device has come up */
    uint64_t retry_at_ns;
    struct gpu_copies copies; /* copies that the driver was not, or not wholly, given */
    struct gpu_copies allocs; /* allocs that wait for a free batch */
    struct gpu_op *pins;      /* pins that have not begun, the newest first */
    uint64_t pin_at_ns;       /* while copies are under way: when the next pin may begin */
    struct kvc_frag frag[GPU_DRV_FRAGS_MAX]; /* of the piece that is being made */
    struct gpu_batch batch[GPU_DRV_COPIES_MAX];
    uint32_t first, nbatches;
    uint64_t inflight_bytes; /* sum over the batches */
    struct gpu_pin *pin;     /* GPU_PINS_MAX, ascending */
    uint32_t npins, pin_hit;
    uint64_t moved_ns;      /* when the thread last did something */
    uint64_t ended_ns;      /* when the end of a batch was last noticed */
    uint64_t ns_per_mib;    /* moving average of what batches took; 0: none ended yet */
    uint64_t swept_ns;      /* when all waiting copies were last looked at */
    uint64_t measure_at_ns; /* when unknown rates are measured next; 0: all are known */
    bool readable;          /* the descriptor of `orders` was readable */
    bool stopping;
};

struct gpu {
    /* constant */
    const struct gpu_drv *drv;
    struct gpu_config config;
    uint64_t piece_bytes; /* the most bytes of one copy() of the driver */

    /* any thread */
    struct inbox orders;  /* struct gpu_op, `bell`, `refusal` and `late` */
    struct inbox results; /* struct gpu_op, `up`, `out` and `measured` */
    struct inbox_item bell;
    struct inbox_item refusal;
    struct inbox_item late;
    char refused[GPU_WHY_BYTES];       /* why `refusal` was posted; constant from then on */
    char late_why[GPU_WHY_BYTES];      /* why `late` was posted; constant from then on, as is: */
    uint32_t late_generation;          /* the device to close when the driver's call has returned */
    struct gpu_told up, out, measured; /* measured: rates alone */
    _Atomic uint64_t since_ns;         /* when the thread began its current step; 0: it sleeps */
    _Atomic uint32_t waiting;          /* copies whose `after` word has not come */

    /* the device's thread */
    _Alignas(64) struct gpu_thread thread;
};

static inline void gpu__copies_init(struct gpu_copies *copies)
{
    copies->head = NULL;
    copies->tail = &copies->head;
}

static inline void gpu__copies_push(struct gpu_copies *copies, struct gpu_op *op)
{
    op->next = NULL;
    *copies->tail = op;
    copies->tail = &op->next;
}

/* Removes the operation to which `link` points: &copies->head, or &next of the one before it. */
static inline struct gpu_op *gpu__copies_take(struct gpu_copies *copies, struct gpu_op **link)
{
    struct gpu_op *op = *link;
    *link = op->next;
    if (op->next == NULL)
        copies->tail = link;
    return op;
}

/* The device's thread; arg: the struct gpu. */
void *gpu__main(void *arg);
/* On the control thread: ends the operations that the device's thread has handed back. */
void gpu__deliver(struct gpu *g);
/* On the control thread: operations that are submitted from now on end in gpu_close(). */
void gpu__begin_close(struct gpu *g);
/* Measures the rates that are still 0, on the device's thread, while no copy runs; leaves no memory
 * on the device. A rate that cannot be measured stays 0. Stops early when yield_to (may be NULL)
 * has an item. 0; -ENOMEM: no memory, nothing was measured; -EIO with the reason: the device is
 * closed. */
KVC_WARN_UNUSED int gpu__calibrate(const struct gpu_drv *drv, struct gpu_dev *dev,
                                   const struct gpu_dev_info *info, struct inbox *yield_to,
                                   struct gpu_rates *ret_rates, char ret_why[GPU_WHY_BYTES]);
/* Whether copies of all fragment sizes have been measured. */
bool gpu__is_calibrated(const struct gpu_rates *rates);
enum gpu_path gpu__path(const struct gpu_rates *rates, enum gpu_direction direction,
                        uint64_t frag_bytes);

#endif
