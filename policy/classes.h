/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The classes of uses of a block that policy `density` learns a life table for, and how they are
 * part of one another. Pure.
 *
 * What tells uses apart: whether the request began something or continued the chain that was asked
 * for before; how many of its blocks had never been seen (few: half are continued, many: a fifth);
 * which turn of the conversation it was; how long apart its turns are; for blocks that several
 * chains share, how often and how long apart they were used; whether the block is the chain's last,
 * which is partly filled and seldom asked for again; what the worker said.
 */
#ifndef KVC_CLASSES_H
#define KVC_CLASSES_H

#include "policy.h"
#include "survival.h"

#define CLASS_NEWS  8u
#define CLASS_TURNS 5u
#define CLASS_GAPS  6u
#define CLASS_USES  7u
#define CLASS_TIMES 24u

enum class_range {
    /* classes that blocks are in */
    CLASS_FIRST, /* [branch][news]: of a request that began something */
    CLASS_NEXT = CLASS_FIRST + 2 * CLASS_NEWS, /* [news][turn][gap]: that continued a chain */
    CLASS_SHARED = CLASS_NEXT + CLASS_NEWS * CLASS_TURNS * CLASS_GAPS, /* [uses][time] */
    CLASS_TIP = CLASS_SHARED + CLASS_USES * CLASS_TIMES,               /* [continued][news] */
    CLASS_SAID = CLASS_TIP + 2 * CLASS_NEWS,                           /* [advice][kind] */
    CLASS_SAID_KINDS = 2 * CLASS_NEWS + CLASS_NEWS * CLASS_TURNS + 2,
    CLASS_BLOCKS = CLASS_SAID + (POLICY_ADVICE_COUNT - 1) * CLASS_SAID_KINDS,
    /* classes of classes */
    CLASS_BEGUN = CLASS_BLOCKS, /* [branch][news], whatever was said */
    CLASS_NEWS_TURN = CLASS_BEGUN + 2 * CLASS_NEWS,
    CLASS_TURN_GAP = CLASS_NEWS_TURN + CLASS_NEWS * CLASS_TURNS,
    CLASS_TURN = CLASS_TURN_GAP + CLASS_TURNS * CLASS_GAPS,
    CLASS_OFTEN = CLASS_TURN + CLASS_TURNS,     /* [uses], age in units of the time between uses */
    CLASS_ANY_FIRST = CLASS_OFTEN + CLASS_USES, /* [branch] */
    CLASS_ANY_NEXT = CLASS_ANY_FIRST + 2,
    CLASS_ANY_SHARED, /* age as there */
    CLASS_ANY_TIP,
    CLASS_ANY_SAID,                                       /* [advice] */
    CLASS_OWN = CLASS_ANY_SAID + POLICY_ADVICE_COUNT - 1, /* but shared and tips */
    CLASS_ALL,
    CLASS_COUNT
};

void classes_init(struct survival_class *ret_tree); /* [CLASS_COUNT] */

/* news: how long what the request had that was never seen is, 20 being usual; 0: nothing. */
unsigned class_first(bool branch, unsigned news);
/* turn: 2 for the first continuation; gap_ms: between the conversation's turns. */
unsigned class_next(unsigned news, unsigned turn, uint64_t gap_ms);
unsigned class_shared(unsigned uses, uint64_t gap_ms);
unsigned class_tip(bool continued, unsigned news);
/* The class of a block of class `class` after this was said; NONE takes back nothing. */
unsigned class_said(unsigned class, enum policy_advice advice);
/* The class of all such blocks, whatever was said; of one of which nothing was said itself. */
unsigned class_unsaid(unsigned class);

/* Kinds of uses that are told apart where it is seen what streams through: what begins something,
 * what continues a chain, and what is shared, by how often. */
#define CLASS_FLOWS (2 + CLASS_USES)
unsigned class_flow(unsigned class);

#endif
