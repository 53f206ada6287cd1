/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted array of the memory that a device can reach, searched by address. */
#include "gpu_span.h"

#include <string.h>

#include "sys.h"

#define SPANS_FIRST 16u

int gpu_span_room(struct gpu_spans *spans)
{
    if (spans->n < spans->room)
        return 0;
    const uint32_t room = spans->room ? 2 * spans->room : SPANS_FIRST;
    struct gpu_span *at = sys_realloc(spans->at, room * sizeof(*at));
    if (at == NULL)
        return -ENOMEM;
    spans->at = at;
    spans->room = room;
    return 0;
}

/* How many begin at addr or before. */
static uint32_t count_up_to(const struct gpu_spans *spans, uint64_t addr)
{
    uint32_t low = 0, high = spans->n;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (spans->at[middle].start <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void gpu_span_add(struct gpu_spans *spans, const struct gpu_span *span)
{
    MUST(spans->n < spans->room);
    const uint32_t i = count_up_to(spans, span->start);
    memmove(&spans->at[i + 1], &spans->at[i], (spans->n - i) * sizeof(*span));
    spans->at[i] = *span;
    spans->n++;
}

void gpu_span_remove(struct gpu_spans *spans, struct gpu_span *span)
{
    const uint32_t i = (uint32_t)(span - spans->at);
    MUST(i < spans->n);
    spans->n--;
    memmove(span, span + 1, (spans->n - i) * sizeof(*span));
}

struct gpu_span *gpu_span_find(const struct gpu_spans *spans, uint64_t addr, uint32_t *hint,
                               uint64_t *ret_next)
{
    if (*hint < spans->n) {
        struct gpu_span *guess = &spans->at[*hint];
        if (addr >= guess->start && addr < guess->end)
            return guess;
    }
    const uint32_t after = count_up_to(spans, addr);
    if (after > 0 && addr < spans->at[after - 1].end) {
        *hint = after - 1;
        return &spans->at[after - 1];
    }
    *ret_next = after < spans->n ? spans->at[after].start : UINT64_MAX;
    return NULL;
}

bool gpu_span_holds(const struct gpu_spans *spans, uint64_t addr, uint64_t bytes, uint32_t *hint)
{
    uint64_t next;
    const struct gpu_span *span = gpu_span_find(spans, addr, hint, &next);
    return span != NULL && bytes <= span->end - addr;
}
