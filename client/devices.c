/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells the fastest way for blocks into pages, kvc_load_path(), from the rates that the daemon
 * measured.
 */
#include <string.h>

#include "client.h"
#include "device__.h"

/* The window must be faster than the engine by a quarter: a smaller gain is not worth the worker's
 * time, and may be noise. */
static uint64_t worth(uint64_t rate)
{
    return rate + rate / 4;
}

enum kvc_copy_path kvc_load_path(const struct kvc_device *device, const struct kvc_rate *rate,
                                 size_t n, uint32_t frag_bytes)
{
    const struct kvc_rate *r = NULL; /* nearest by ratio; sizes ascend */
    for (size_t i = 0; i < n; i++) {
        const struct kvc_rate *x = &rate[i];
        if (x->to_path != KVC_COPY_UNKNOWN && strcmp(x->device, device->device) == 0 &&
            (r == NULL ||
             (uint64_t)frag_bytes * frag_bytes > (uint64_t)r->fragment_bytes * x->fragment_bytes))
            r = x;
    }
    if (r == NULL)
        return KVC_COPY_UNKNOWN;
    const bool window = device->limit_bytes > 0 && r->to_window > worth(r->to_engine) &&
                        r->to_window >= r->to_kernel;
    return window ? KVC_COPY_WINDOW : (enum kvc_copy_path)r->to_path;
}
