/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the arena's chunks with the loop, piece by piece, and counts which pieces are
 * registered.
 */
#include "pins.h"

#include <stdlib.h>

#include "list.h"
#include "sys.h"

/* Size of a piece: a millisecond of the control thread. Larger if the loop has too few buffers. */
#define PIECE_MIN (UINT64_C(16) << 20)
#define PIECE_MAX (UINT64_C(64) << 20)

struct pins {
    struct loop *loop;
    uint64_t chunk_bytes, piece_bytes;
    uint32_t chunks; /* the chunks below this number are registered, others are not */
    uint32_t pieces; /* of each chunk */
    struct pins_stats stats;
    uint32_t done[]; /* of each chunk, how many pieces are registered */
};

static uint64_t piece_bytes(uint32_t chunks, uint64_t chunk_bytes)
{
    uint64_t bytes = MIN(PIECE_MIN, chunk_bytes);
    while (bytes < PIECE_MAX && bytes < chunk_bytes &&
           chunks * ((chunk_bytes + bytes - 1) / bytes) > LOOP_BUFFERS_MAX)
        bytes *= 2;
    return MIN(bytes, chunk_bytes);
}

static uint32_t pieces_of(uint32_t chunks, uint64_t chunk_bytes)
{
    MUST(chunk_bytes > 0);
    const uint64_t bytes = piece_bytes(chunks, chunk_bytes);
    return (uint32_t)((chunk_bytes + bytes - 1) / bytes);
}

unsigned pins_buffers(uint32_t chunks, uint64_t chunk_bytes)
{
    const uint64_t n = (uint64_t)chunks * pieces_of(chunks, chunk_bytes);
    return (unsigned)MIN(n, LOOP_BUFFERS_MAX);
}

int pins_create(struct loop *loop, unsigned buffers, uint32_t chunks, uint64_t chunk_bytes,
                struct pins **ret_pins)
{
    const uint32_t pieces = pieces_of(chunks, chunk_bytes);
    const uint32_t held = MIN(chunks, buffers / pieces);
    struct pins *p = sys_calloc(1, sizeof(*p) + held * sizeof(p->done[0]));
    if (p == NULL)
        return -ENOMEM;
    p->loop = loop;
    p->chunk_bytes = chunk_bytes;
    p->piece_bytes = piece_bytes(chunks, chunk_bytes);
    p->chunks = held;
    p->pieces = pieces;
    *ret_pins = p;
    return 0;
}

void pins_destroy(struct pins **pins)
{
    free(*pins);
    *pins = NULL;
}

static uint64_t pins_bytes_of(const struct pins *p, uint32_t piece)
{
    return MIN(p->piece_bytes, p->chunk_bytes - piece * p->piece_bytes);
}

bool pins_is_done(const struct pins *p, uint32_t no)
{
    return p->stats.error != 0 || no >= p->chunks || p->done[no] == p->pieces;
}

bool pins_step(struct pins *p, uint32_t no, uint8_t *base)
{
    if (pins_is_done(p, no))
        return false;
    const uint32_t piece = p->done[no];
    MUST(piece < p->pieces && base != NULL);
    const int err = loop_buffer_set(p->loop, no * p->pieces + piece, base + piece * p->piece_bytes,
                                    pins_bytes_of(p, piece));
    if (err < 0) {
        p->stats.error = err;
        return false;
    }
    p->stats.bytes += pins_bytes_of(p, piece);
    return ++p->done[no] < p->pieces;
}

void pins_forget(struct pins *p, uint32_t no)
{
    if (no >= p->chunks)
        return;
    MUST(p->done[no] <= p->pieces);
    while (p->done[no] > 0) {
        const uint32_t piece = --p->done[no];
        const int err = loop_buffer_set(p->loop, no * p->pieces + piece, NULL, 0);
        if (err < 0) /* the loop does not use it any more; the kernel keeps the pages */
            p->stats.error = err;
        MUST(p->stats.bytes >= pins_bytes_of(p, piece));
        p->stats.bytes -= pins_bytes_of(p, piece);
    }
}

void pins_stats(const struct pins *p, struct pins_stats *ret_stats)
{
    *ret_stats = p->stats;
}
