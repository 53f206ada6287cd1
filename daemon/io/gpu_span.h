/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spans of memory that a device can reach, found by address: its own memory, and with CUDA host
 * memory that is registered. On the device's own thread.
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
    struct device_range range; /* of device memory: where it is in this process */
    /* For CUDA alone. */
    uint64_t serial;      /* gpu_mem.priv; never used twice */
    int fd;               /* of exported VMM memory; else -1 */
    uint64_t cleared;     /* the ticket of the fill with zeros; 0: none */
    struct cuda_pin *pin; /* the registration, of host memory */
    uint64_t pin_serial;  /* of the registration to which device_addr belongs */
    uint64_t device_addr; /* where the device sees host memory */
};
/* Sorted by start. */
struct gpu_spans {
    struct gpu_span *at; /* free() it in the end */
    uint32_t n, room;
};

/* Makes room for one more span; -ENOMEM. */
KVC_WARN_UNUSED int gpu_span_room(struct gpu_spans *spans);
/* Adds a span, for which gpu_span_room() has made room. */
void gpu_span_add(struct gpu_spans *spans, const struct gpu_span *span);
void gpu_span_remove(struct gpu_spans *spans, struct gpu_span *span);
/* The span that contains addr. NULL: none does, and *ret_next is where the next span begins
 * (UINT64_MAX: no further span). Tries number *hint first, and sets it. The pointer is good until
 * the next add or remove. */
struct gpu_span *gpu_span_find(const struct gpu_spans *spans, uint64_t addr, uint32_t *hint,
                               uint64_t *ret_next);
/* Whether one span contains all of these bytes. */
bool gpu_span_holds(const struct gpu_spans *spans, uint64_t addr, uint64_t bytes, uint32_t *hint);

#endif
