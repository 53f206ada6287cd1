/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Did you mean": the word, of those that are known, that a wrong one was probably meant to be.
 *
 * Offer the known words one after the other. A word is similar when few letters differ (inserted,
 * left out, exchanged or swapped with their neighbour: at most a third of them), when it begins
 * with what was written, or when that is one of its parts between dots. Threads: none. No
 * allocation.
 */
#ifndef KVC_WIRE_SIMILAR_H
#define KVC_WIRE_SIMILAR_H

/* Longer words are compared by their beginnings. */
#define SIMILAR_BYTES_MAX 63u

struct similar {
    const char *text;
    const char *best; /* the most similar word offered, borrowed; NULL = none is similar */
    unsigned distance;
};

static inline struct similar similar_to(const char *text)
{
    return (struct similar){.text = text};
}
void similar_offer(struct similar *n, const char *known);
/* How many letters differ, counted as above. */
unsigned similar_distance(const char *a, const char *b);

#endif
