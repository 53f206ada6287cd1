/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests from a corpus name namespaces, leases and reservations that no daemon has. This puts in
 * those that the daemon at hand gave out, so that the requests reach further. Works from the
 * schemas: a new message with fields of these names needs no line here.
 */
#ifndef KVC_FUZZ_ADAPT_H
#define KVC_FUZZ_ADAPT_H

#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

#define ADAPT_KEPT 8u

struct adapt {
    uint64_t ns[ADAPT_KEPT], reservation[ADAPT_KEPT], lease[ADAPT_KEPT], cursor[ADAPT_KEPT];
    uint8_t ticket[ADAPT_KEPT][KVC_TICKET_BYTES];
    uint64_t target; /* of a CANCEL: the corr of some request */
    unsigned nns, nreservation, nlease, nticket, ncursor;
};

/* Keeps what a reply gives; other bytes are ignored. */
void adapt_learn(struct adapt *a, const void *reply, size_t len);
/* The request with its ids replaced; `pick` chooses among those kept. Its length, or 0 when it does
 * not decode, or does not fit. */
size_t adapt_request(const struct adapt *a, uint8_t pick, uint64_t corr, const void *in, size_t len,
                     void *out, size_t cap);
/* Any message [x, corr, ...] with another corr, the rest byte for byte. The same result. */
size_t adapt_corr(uint64_t corr, const void *in, size_t len, void *out, size_t cap);

#endif
