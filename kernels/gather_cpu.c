/* SPDX-License-Identifier: Apache-2.0 */
#include "paged.h"

#include <string.h>

int kvc_gather_cpu(const struct kvc_paged *from, const uint32_t *pages, uint32_t page_count,
                   void *ret_packed, uint32_t *ret_bad_pages)
{
    int rc = paged_check(from, pages, page_count, ret_packed, ret_bad_pages);
    if (rc < 0)
        return rc;

    const unsigned char *base = from->base;
    unsigned char *packed = ret_packed;

    for (uint32_t i = 0; i < page_count; i++) {
        if (pages[i] >= from->pages_max) {
            (*ret_bad_pages)++;
            continue;
        }
        memcpy(packed + i * from->page_bytes, base + pages[i] * from->stride_bytes,
               from->page_bytes);
    }
    return 0;
}

int kvc_scatter_cpu(const struct kvc_paged *to, const uint32_t *pages, uint32_t page_count,
                    const void *packed, uint32_t *ret_bad_pages)
{
    int rc = paged_check(to, pages, page_count, packed, ret_bad_pages);
    if (rc < 0)
        return rc;

    unsigned char *base = to->base;
    const unsigned char *source = packed;

    for (uint32_t i = 0; i < page_count; i++) {
        if (pages[i] >= to->pages_max) {
            (*ret_bad_pages)++;
            continue;
        }
        memcpy(base + pages[i] * to->stride_bytes, source + i * to->page_bytes, to->page_bytes);
    }
    return 0;
}
