/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What storage is written for: which blocks are worth a write when they leave memory, and which are
 * worth another one when their place on disk is reclaimed. Pure; no allocation.
 *
 * Both are thresholds on policy_ops.worth, moved so that a wanted part of what is offered is above
 * them. For blocks that leave memory, that is the part that the write budget pays for; for blocks
 * on disk, the part that is worth keeping over its age there. Only the order of worths counts, not
 * their size. Besides, a write must be worth its bytes, however little other blocks are worth: a
 * block that nobody is expected to ask for before its place is overwritten is not written, and not
 * written again.
 */
#ifndef KVC_ADMIT_H
#define KVC_ADMIT_H

#include <stdbool.h>
#include <stdint.h>

#define QUANTILE_WINDOW 2048u

/* A quantile of the last values: exact, and looked up anew every few of them. */
struct quantile {
    float value[QUANTILE_WINDOW];
    uint32_t seen;
    float share; /* of the values are to be below it, 0 to 1 */
    float at;
    float equal, credit; /* the part of the values equal to `at` that is above; what it has saved */
};
void quantile_init(struct quantile *q, float share);
void quantile_add(struct quantile *q, float value);
/* Whether this value is among the upper 1 - share. Of equal values the right part is: one answer is
 * for one question. True while nothing is known. */
bool quantile_above(struct quantile *q, float value);

/* Of what is on disk, the part that is not worth writing again, in percent: what a daemon begins
 * with, and what its simulator takes. Less hits more and writes more
 * (docs/notes/policy-admission.md). */
#define ADMIT_KEEP_PERCENT 45u

/* Writing a block has to promise so many hits until its place is written over
 * (docs/notes/policy-admission.md). */
#define ADMIT_CHANCE 0.08f

struct admit {
    struct quantile write, keep;
    bool limited;
    uint32_t offers;               /* since the balance was last struck */
    float granted, offered, again; /* bytes, the older the less they count */
    float saved;                   /* granted and not spent; below 0: the other way round */
};

/* keep_percent: of what is on disk, the part that is not worth writing again. Until admit_grant is
 * called for the first time there is no budget: everything is written. */
void admit_init(struct admit *a, unsigned keep_percent);
/* The budget grows; what a write takes is taken off by admit_write and admit_keep. Saved up at most
 * what it was granted lately. */
void admit_grant(struct admit *a, float bytes);
/* A block that leaves memory: whether it is to be written. Learns from it. chance: that somebody
 * asks for it before its place would be written over, 1 where that is not known. must: whatever it
 * is worth (its descendants are on disk, and go with it): yes. */
bool admit_write(struct admit *a, float worth, float chance, uint32_t bytes, bool must);
/* A block on disk, drawn at random: learns from it. */
void admit_sample(struct admit *a, float worth);
/* Whether a block on disk is to be written again; chance as above. must: yes. */
bool admit_keep(struct admit *a, float worth, float chance, uint32_t bytes, bool must);

#endif
