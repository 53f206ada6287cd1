/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arena memory as registered buffers of the loop, so that I/O on storage need not find its pages
 * each time. Chunks are registered in pieces, one at a time, once they have a principal and have
 * been faulted in: registering takes the loop's thread about 60 ms a GiB. Where it is refused
 * (epoll, RLIMIT_MEMLOCK) I/O works without it.
 *
 * Thread: the loop's. Memory: all of it is allocated in pins_create().
 */
#ifndef KVC_TIER_PINS_H
#define KVC_TIER_PINS_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "loop.h"

struct pins;

/* How many of the loop's buffers so many chunks take: loop_config.buffers_max, 0 to
 * LOOP_BUFFERS_MAX. */
unsigned pins_buffers(uint32_t chunks, uint64_t chunk_bytes);

/* `buffers`: what pins_buffers() said, which the loop (borrowed) was made with. -ENOMEM. */
KVC_WARN_UNUSED int pins_create(struct loop *loop, unsigned buffers, uint32_t chunks,
                                uint64_t chunk_bytes, struct pins **ret_pins);
/* Leaves the memory registered until the loop is destroyed, which must come later. */
void pins_destroy(struct pins **pins);

/* Registers the next piece of chunk `no`, which lies at base. True: the chunk has more pieces. */
bool pins_step(struct pins *pins, uint32_t no, uint8_t *base);
/* Whether chunk `no` is registered whole, or the loop has refused and nothing is registered any
 * more. */
bool pins_is_done(const struct pins *pins, uint32_t no);
/* The chunk's memory is about to be freed, or has another base from now on. */
void pins_forget(struct pins *pins, uint32_t no);

struct pins_stats {
    uint64_t bytes; /* registered */
    int error;      /* why no more are registered: 0 or -errno */
};
void pins_stats(const struct pins *pins, struct pins_stats *ret_stats);

#endif
