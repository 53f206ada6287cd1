/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGBUS: an access to mapped memory whose file no longer has the page, because somebody made the
 * file shorter, its file system is full, or a device failed. Whoever maps such memory may claim
 * its addresses and put something else there. What nobody mends ends the process (crash.h, whose
 * handler asks here).
 *
 * Threads: claims come and go on the control thread; their functions run on any thread, in a signal
 * handler.
 */
#ifndef KVC_BASE_BUS_H
#define KVC_BASE_BUS_H

#include <stdbool.h>

#include "err.h"

/* Whether `addr` is the claim's and the access may be tried again. Only what signal-safety(7)
 * allows. */
typedef bool(bus_fn)(void *ctx, void *addr);

struct bus_claim {
    bus_fn *fn;
    void *ctx;
};

#define BUS_CLAIMS_MAX 64u

/* Borrows the claim until bus_unclaim(). -ENOBUFS: there are BUS_CLAIMS_MAX. */
KVC_WARN_UNUSED int bus_claim(const struct bus_claim *claim);
/* One that is not there is fine. No other thread may touch its memory any more. */
void bus_unclaim(const struct bus_claim *claim);
/* Whether some claim has mended this address. For the signal handler. */
bool bus_is_mended(void *addr);

#endif
