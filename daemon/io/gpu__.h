/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gpu.c (control thread), gpu_thread.c (the device's thread) and gpu_calibrate.c share.
 *
 * Two inboxes: operations go to the device's thread, and come back ended. What the thread has to
 * say of the device itself goes the same way, so that it is heard in order: memory that was
 * allocated before the device went out is known before that.
 */
#ifndef KVC_IO_GPU__H
#define KVC_IO_GPU__H

#include "gpu_drv.h"

/* The device is up, or out. */
struct gpu_told {
    struct inbox_item item;
    _Atomic bool on_its_way; /* the control thread has not heard it yet */
    struct gpu_dev_info info;
    struct gpu_rates rates;
    uint32_t generation;
    bool measured; /* up: there was memory for it, or it was not wished */
    char why[GPU_WHY_BYTES];
};

/* The piece of one copy() of the driver, or an alloc() whose memory is filled with zeros. */
struct gpu_batch {
    struct gpu_op *op;
    uint64_t ticket, bytes;
    uint64_t given_ns;
    uint64_t ready; /* as gpu_piece.ready */
    bool last;      /* of op */
};

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
    struct gpu_dev *dev; /* NULL: it is not up */
    struct gpu_rates rates;
    uint32_t generation; /* of the last time that it was up */
    uint64_t retry_at_ns;
    struct gpu_copies copies; /* not, or not wholly, given to the driver */
    struct gpu_copies allocs; /* that the driver has no room for yet */
    struct gpu_op *pins;      /* that have not begun, the newest first */
    uint64_t pin_at_ns;       /* when the next one may begin, while there are copies */
    struct kvc_frag frag[GPU_DRV_FRAGS_MAX]; /* of the piece that is being made */
    struct gpu_batch batch[GPU_DRV_COPIES_MAX];
    uint32_t first, nbatches;
    uint64_t inflight_bytes; /* of batches */
    struct gpu_pin *pin;     /* GPU_PINS_MAX, ascending */
    uint32_t npins, pin_hit;
    uint64_t moved_ns;      /* when something happened last */
    uint64_t ended_ns;      /* when a batch was seen to have ended last */
    uint64_t ns_per_mib;    /* what batches have taken lately */
    uint64_t swept_ns;      /* when copies that wait for room were looked at last */
    uint64_t measure_at_ns; /* not all rates are known: when that is tried next; 0: they are */
    bool readable;          /* the inbox's descriptor was */
    bool stopping;
};

struct gpu {
    /* constant */
    const struct gpu_drv *drv;
    struct gpu_config config;
    uint64_t piece_bytes; /* given to the driver at once, at most */

    /* any thread */
    struct inbox orders;  /* struct gpu_op, `bell`, `refusal` and `late` */
    struct inbox results; /* struct gpu_op, `up`, `out` and `measured` */
    struct inbox_item bell;
    struct inbox_item refusal;
    struct inbox_item late;
    char refused[GPU_WHY_BYTES];       /* why: constant once `refusal` is posted */
    char late_why[GPU_WHY_BYTES];      /* constant once `late` is posted, as is: */
    uint32_t late_generation;          /* the device that is to go, once the thread is back */
    struct gpu_told up, out, measured; /* measured: rates alone */
    _Atomic uint64_t since_ns;         /* when the thread began what it is at; 0: it rests */
    _Atomic uint32_t waiting;          /* copies whose word has not come */

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

/* The one that `link` leads to: &copies->head, or &next of the one before it. */
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
/* On the device's thread, which has opened it, and while no copy runs; leaves no memory on it. What
 * is known already is not measured, what could not be stays 0; no more is measured once something
 * is in yield_to (NULL: never). 0; -ENOMEM: no memory, nothing was measured; or -EIO with the
 * reason, and then the device is closed. */
KVC_WARN_UNUSED int gpu__calibrate(const struct gpu_drv *drv, struct gpu_dev *dev,
                                   const struct gpu_dev_info *info, struct inbox *yield_to,
                                   struct gpu_rates *ret_rates, char ret_why[GPU_WHY_BYTES]);
/* Whether fragments of each size have been measured. */
bool gpu__is_calibrated(const struct gpu_rates *rates);
enum gpu_path gpu__path(const struct gpu_rates *rates, enum gpu_direction direction,
                        uint64_t frag_bytes);

#endif
