/* SPDX-License-Identifier: Apache-2.0 */
#include <kvcache/kernels.h>

#include <string.h>

void kvc_copy_frags_cpu(const struct kvc_frag *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy((void *)(uintptr_t)list[i].to, (const void *)(uintptr_t)list[i].from, list[i].bytes);
}
