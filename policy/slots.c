/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the slot of a time, and merges the two neighbours that are narrowest for their age. */
#include "slots.h"

#include <string.h>

unsigned slots_at(const uint64_t *begin, unsigned n, uint64_t then)
{
    if (n > 0 && then >= begin[n - 1])
        return n - 1; /* most begin now */
    unsigned low = 0, high = n;
    while (high - low > 1) {
        const unsigned mid = (low + high) / 2;
        if (begin[mid] <= then)
            low = mid;
        else
            high = mid;
    }
    return low;
}

unsigned slots_merge(uint64_t *begin, unsigned n, uint64_t now)
{
    unsigned best = 0;
    float least = 3e38f;
    for (unsigned i = 0; i + 2 < n; i++) {
        /* signed, for it is sooner converted */
        const float width = (float)(int64_t)(begin[i + 2] - begin[i]);
        const float rel = width / (float)(int64_t)(now - begin[i] + 1);
        if (rel < least)
            least = rel, best = i;
    }
    memmove(&begin[best + 1], &begin[best + 2], (n - best - 2) * sizeof(begin[0]));
    return best;
}
