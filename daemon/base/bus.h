/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGBUS: an access to mapped memory whose file no longer has the page, because somebody made the
 * file shorter, its file system is full, or a device failed. The owner of such a mapping may claim
 * its addresses, with a function that mends them: it maps other memory there. A SIGBUS that no
 * claim mends ends the process (crash.h, whose handler calls bus_is_mended()).
 *
 * Threads: claims come and go on the control thread; their functions run on any thread, in a signal
 * handler.
 */
#ifndef KVC_BASE_BUS_H
#define KVC_BASE_BUS_H

#include <stdbool.h>

#include "err.h"

/* True: `addr` is the claim's, and the access may be repeated. Runs in a signal handler, so it may
 * only do what signal-safety(7) allows. */
typedef bool(bus_fn)(void *ctx, void *addr);

struct bus_claim {
    bus_fn *fn;
    void *ctx;
};

#define BUS_CLAIMS_MAX 64u

/* Borrows the claim until bus_unclaim(). -ENOBUFS: BUS_CLAIMS_MAX claims exist. */
KVC_WARN_UNUSED int bus_claim(const struct bus_claim *claim);
/* Ignores a claim that was not made. No other thread may touch the claim's memory any more. */
void bus_unclaim(const struct bus_claim *claim);
/* Calls the claims, and returns whether one has mended this address. For the signal handler. */
bool bus_is_mended(void *addr);

#endif
