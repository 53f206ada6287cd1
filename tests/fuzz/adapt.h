/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of a corpus name namespaces, leases and reservations that no daemon has. This replaces
 * them by ids that the running daemon gave out, so that the requests reach further. It works by the
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
    uint64_t target; /* for CANCEL: the corr of some request */
    unsigned nns, nreservation, nlease, nticket, ncursor;
};

/* Keeps the ids that a reply gives; bytes that are no reply are ignored. */
void adapt_learn(struct adapt *a, const void *reply, size_t len);
/* Copies the request with its ids replaced; `pick` chooses among the ids that were kept. Returns
 * its length; 0: it cannot be decoded, or does not fit. */
size_t adapt_request(const struct adapt *a, uint8_t pick, uint64_t corr, const void *in, size_t len,
                     void *out, size_t cap);
/* Copies any message [x, corr, ...] with another corr and all other bytes unchanged. Returns as
 * adapt_request(). */
size_t adapt_corr(uint64_t corr, const void *in, size_t len, void *out, size_t cap);

#endif
