/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processor's twin of the kernel that stands for a decode step in measurements: it reads KV
 * and adds it up.
 */
#include <kvcache/kernels.h>

void kvc_decode_cpu(const uint32_t *kv, uint64_t words, uint32_t *ret_sum)
{
    uint32_t sum = 0;
    for (uint64_t i = 0; i < words; i++)
        sum += kv[i];
    *ret_sum += sum;
}
