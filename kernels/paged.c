/* SPDX-License-Identifier: Apache-2.0 */
#include "paged.h"

#include <errno.h>
#include <stdbool.h>

/* False when start + count * each does not fit an address. */
static bool region_end(uintptr_t start, uint64_t count, uint64_t each, uintptr_t *ret_end)
{
    uint64_t bytes = 0;
    uintptr_t end = 0;

    if (__builtin_mul_overflow(count, each, &bytes) || __builtin_add_overflow(start, bytes, &end))
        return false;
    *ret_end = end;
    return true;
}

int paged_check(const struct kvc_paged *paged, const uint32_t *pages, uint32_t page_count,
                const void *packed, const uint32_t *ret_bad_pages)
{
    if (!paged || !paged->base || !ret_bad_pages)
        return -EINVAL;
    if (paged->page_bytes == 0 || paged->stride_bytes < paged->page_bytes)
        return -EINVAL;
    if (page_count == 0)
        return 0;
    if (!pages || !packed)
        return -EINVAL;

    uintptr_t base = (uintptr_t)paged->base;
    uintptr_t out = (uintptr_t)packed;
    uintptr_t base_end = 0;
    uintptr_t out_end = 0;

    if (!region_end(base, paged->pages_max, paged->stride_bytes, &base_end) ||
        !region_end(out, page_count, paged->page_bytes, &out_end))
        return -EINVAL;
    if (out < base_end && base < out_end)
        return -EINVAL;
    return 0;
}
