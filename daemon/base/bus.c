/* SPDX-License-Identifier: Apache-2.0 */
#include "bus.h"

#include <stdatomic.h>

static _Atomic(const struct bus_claim *) claims[BUS_CLAIMS_MAX];

bool bus_is_mended(void *addr)
{
    for (unsigned i = 0; i < BUS_CLAIMS_MAX; i++) {
        const struct bus_claim *claim = atomic_load_explicit(&claims[i], memory_order_acquire);
        if (claim != NULL && claim->fn(claim->ctx, addr))
            return true;
    }
    return false;
}

int bus_claim(const struct bus_claim *claim)
{
    for (unsigned i = 0; i < BUS_CLAIMS_MAX; i++) {
        const struct bus_claim *none = NULL;
        if (atomic_compare_exchange_strong(&claims[i], &none, claim))
            return 0;
    }
    return -ENOBUFS;
}

void bus_unclaim(const struct bus_claim *claim)
{
    for (unsigned i = 0; i < BUS_CLAIMS_MAX; i++) {
        const struct bus_claim *mine = claim;
        (void)atomic_compare_exchange_strong(&claims[i], &mine, NULL);
    }
}
