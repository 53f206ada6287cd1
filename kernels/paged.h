/* SPDX-License-Identifier: Apache-2.0 */
/* The argument check that the CPU and the CUDA versions share. */
#pragma once

#include <kvcache/kernels.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0, or -EINVAL as kernels.h says. Reads no memory but *paged. */
__attribute__((warn_unused_result)) int paged_check(const struct kvc_paged *paged,
                                                    const uint32_t *pages, uint32_t page_count,
                                                    const void *packed,
                                                    const uint32_t *ret_bad_pages);

#ifdef __cplusplus
}
#endif
