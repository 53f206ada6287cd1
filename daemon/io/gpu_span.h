/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device can reach: its memory, and for CUDA host memory that is registered; found by
 * address. On the device's own thread.
 */
#ifndef KVC_IO_GPU_SPAN_H
#define KVC_IO_GPU_SPAN_H

#include <stdbool.h>
#include <stdint.h>

#include "device_range.h"
#include "err.h"

/* One allocation, whole, or one range of host memory: spans are disjoint, or equal (an IPC handle
 * that was opened twice). */
struct gpu_span {
    uint64_t start, end;       /* addresses as fragments name them */
    struct device_range range; /* of memory of the device */
    /* CUDA's */
    uint64_t serial;      /* gpu_mem.priv; never used twice */
    int fd;               /* of VMM that is exported; else -1 */
    uint64_t cleared;     /* the ticket that has filled it with zeros; 0: none */
    struct cuda_pin *pin; /* of host memory */
    uint64_t pin_serial;  /* of the registration that device_addr belongs to */
    uint64_t device_addr;
};
/* Sorted by start. */
struct gpu_spans {
    struct gpu_span *at; /* free() it in the end */
    uint32_t n, room;
};

/* Room for one more; -ENOMEM. */
KVC_WARN_UNUSED int gpu_span_room(struct gpu_spans *spans);
/* Into room that was made. */
void gpu_span_add(struct gpu_spans *spans, const struct gpu_span *span);
void gpu_span_remove(struct gpu_spans *spans, struct gpu_span *span);
/* The one that contains addr; else NULL, and *ret_next is where the next one begins (UINT64_MAX:
 * there is none). *hint is looked at first, and kept. A span lives until the next add or remove. */
struct gpu_span *gpu_span_find(const struct gpu_spans *spans, uint64_t addr, uint32_t *hint,
                               uint64_t *ret_next);
/* Whether one contains all of these bytes. */
bool gpu_span_holds(const struct gpu_spans *spans, uint64_t addr, uint64_t bytes, uint32_t *hint);

#endif
