/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean": the word, of those that are known, that a wrong one was probably meant to be.
 *
 * Offer the known words one after the other. A word is near when few letters differ (inserted, left
 * out, exchanged or swapped with their neighbour: at most a third of them), when it begins with
 * what was written, or when that is one of its parts between dots. Threads: none. No allocation.
 */
#ifndef KVC_WIRE_NEAR_H
#define KVC_WIRE_NEAR_H

/* Longer words are compared by their beginnings. */
#define NEAR_BYTES_MAX 63u

struct near {
    const char *text;
    const char *best; /* NULL = nothing is near; borrowed from near_offer() */
    unsigned distance;
};

static inline struct near near_to(const char *text)
{
    return (struct near){.text = text};
}
void near_offer(struct near *n, const char *known);
/* Letters that differ, as above. */
unsigned near_distance(const char *a, const char *b);

#endif
