/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of fp32 into each type in which KV is stored (fp16, q8_0 and so on), and back. */
#include "attend__.h"
#include "numeric_row.h"

static int quantise_check(enum kvc_type type, uint32_t head_size, uintptr_t plain, uintptr_t kept,
                          char *why)
{
    if ((unsigned)type >= KVC_TYPES)
        return attend__refuse(why, "type %u; types are 0 to %u", (unsigned)type, KVC_TYPES - 1);
    if (kvc_row_bytes(type, head_size) == 0)
        return attend__refuse(
            why, "%s has no rows of %u values; a multiple of %u up to %u", kvc_type_name(type),
            head_size, type == KVC_Q8_0 || type == KVC_Q4_0 ? BLOCK_VALUES : 16, KVC_HEAD_SIZE_MAX);
    if (plain % sizeof(float) != 0)
        return attend__refuse(why, "address and stride of fp32 must be multiples of 4");
    if (kept % attend__type_alignment(type) != 0)
        return attend__refuse(why, "address and stride of %s must be multiples of %u",
                              kvc_type_name(type), attend__type_alignment(type));
    return 0;
}

int kvc_quantise(enum kvc_type type, uint32_t head_size, uint64_t rows, const float *from,
                 uint64_t from_stride, void *to, uint64_t to_stride, char ret_why[KVC_WHY_BYTES])
{
    const int rc = quantise_check(type, head_size, (uintptr_t)from | from_stride,
                                  (uintptr_t)to | to_stride, ret_why);
    if (rc != 0)
        return rc;
    for (uint64_t i = 0; i < rows; i++)
        row_quantise(type, head_size,
                     (const float *)(const void *)((const char *)from + i * from_stride),
                     (uint8_t *)to + i * to_stride);
    return 0;
}

int kvc_dequantise(enum kvc_type type, uint32_t head_size, uint64_t rows, const void *from,
                   uint64_t from_stride, float *to, uint64_t to_stride, char ret_why[KVC_WHY_BYTES])
{
    const int rc = quantise_check(type, head_size, (uintptr_t)to | to_stride,
                                  (uintptr_t)from | from_stride, ret_why);
    if (rc != 0)
        return rc;
    for (uint64_t i = 0; i < rows; i++) {
        const uint8_t *row = (const uint8_t *)from + i * from_stride;
        float *values = (float *)(void *)((char *)to + i * to_stride);
        for (uint32_t at = 0; at < head_size; at++)
            values[at] = row_value(type, row, at);
    }
    return 0;
}
