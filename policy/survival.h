/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life tables of the uses of blocks, learned online: how likely is it that a block of a class that
 * was last used so long ago is used again, and when. Pure.
 *
 * A use begins, and ends with the next use of the same block (a hit) or when nobody watches the
 * block any more (censored: it counts for the ages that it reached, and says nothing of later
 * ones). The estimate is the actuarial one, per bucket of age: hits in it over those who entered it
 * (Kaplan and Meier 1958, grouped). So blocks that are not in the cache any more still count, while
 * their hash is remembered.
 *
 * Uses that are under way are not kept one by one but counted, by class and by slot of time in
 * which they began. Slots are narrow when young and merged when old, so their number is fixed.
 *
 * Classes form a tree. A class that has seen little is drawn towards the one above it, and the root
 * towards a table that says the same for every class: worth falls with age, which is LRU.
 */
#ifndef KVC_SURVIVAL_H
#define KVC_SURVIVAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SURVIVAL_BUCKETS 64u /* to a year and a half */
#define SURVIVAL_SLOTS   64u
#define SURVIVAL_NONE    UINT16_MAX

struct survival;

/* A class is drawn towards the one above it (which has a greater number; SURVIVAL_NONE: the root,
 * the last of all). One that is part of two, `above` and `beside` (a greater number, too), is drawn
 * towards the chance in `above`, times that in `beside`, over that in the class above `beside`.
 * With a shift the ages of the class above are in units of a time of the class's own (`shift`
 * buckets for it), so that classes which differ in how fast all goes share one table. */
struct survival_class {
    uint16_t above, beside;
    float factor;   /* what is believed before anything is seen: hits are so much more likely than
                     * there, */
    float late;     /* so much from 262 s on, */
    float later;    /* and so much from 742 s on; of classes below a shift these are multiples of
                     * their own time: about .7 and 2 */
    float strength; /* uses that this counts for */
    float hits;     /* and in each bucket as many more as have so many hits */
    float doubt;    /* Where hits were fewer than believed, as many fewer are believed in at greater
                     * ages that few have reached, by up to this part. Else uses that came to
                     * nothing would be worth as much as any, for what nobody has waited for yet. */
    int16_t shift;  /* so many buckets on is what counts above: not for a class with `beside` */
};

/* `tree` is borrowed for good. mem: zeroed, 64-byte aligned. */
size_t survival_mem_bytes(unsigned classes);
struct survival *survival_init(void *mem, unsigned classes, const struct survival_class *tree);

void survival_begin(struct survival *s, unsigned class, float weight);
/* A use that began at `then` ends now. */
void survival_end(struct survival *s, unsigned class, float weight, uint64_t then_ms,
                  uint64_t now_ms, bool hit);
/* It goes on as one of another class. */
void survival_move(struct survival *s, unsigned from, unsigned to, float weight, uint64_t then_ms);
/* Before the others, when time may have passed. */
void survival_tick(struct survival *s, uint64_t now_ms);
/* Works out the scores of the next class of all in turn. */
void survival_learn(struct survival *s);

/* Expected hits per second of keeping a block of this class and age (ms), over the best time to
 * keep it. */
float survival_score(const struct survival *s, unsigned class, uint64_t age_ms);
/* The chance of a hit before it is `for_ms` older. */
float survival_chance(const struct survival *s, unsigned class, uint64_t age_ms, uint64_t for_ms);

#endif
