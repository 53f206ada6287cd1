/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts uses of blocks into the classes of policy `density`, and builds the tree in which a class
 * that has seen little learns from the ones above it. Constants at the top are the beliefs that
 * hold before anything was seen.
 */
#include "classes.h"

/* As how many uses the knowledge of the classes above counts. */
#define STRENGTH       48
#define STRENGTH_BOTH  100 /* of two classes */
#define STRENGTH_BEGUN 96  /* of one that is almost the same */
#define STRENGTH_LONG  24  /* of one that is believed to be another */

/* survival_class.doubt; 0 for shared classes, whose ages count in times between their uses. */
#define DOUBT 0.5f

#define HITS       4  /* of a class that shares its shape with others */
#define GAP_BUCKET 29 /* that an age of the time between uses is in, of what is in such units */

#define SECOND 1000u

enum { KIND_NEXT = 2 * CLASS_NEWS, KIND_SHARED = KIND_NEXT + CLASS_NEWS * CLASS_TURNS, KIND_TIP };

/* How much more likely another hit is believed to be for a block that was asked for again, until
 * more is known: as LRU-2, ARC and S3-FIFO believe. */
#define AGAIN 2.0f

/* And of blocks used from 2, 4, 8, ... 128 times on, once they were not used for one to two times
 * their usual time: what all ask for comes back after a pause, though no pause was seen yet. */
static const float often[CLASS_USES] = {1, 1, 1, 1, 4, 8, 16};

/* Of what begins something and is as long as can be told apart, how likely a hit in the first four
 * minutes is believed to be beside other new things, until more is known: a sweep over documents
 * that are read once is through before that is learned, and what it pushes out is gone. */
#define LONG_NEWS 0.03f

/* How much more likely a hit is believed to be than without this advice, until more is known. A
 * block read in passing (SCAN) is evicted before all others, until such blocks are seen to return.
 */
static const float believed[POLICY_ADVICE_COUNT] = {
    [POLICY_ADVICE_NONE] = 1, [POLICY_ADVICE_ENDED] = 0.02f, [POLICY_ADVICE_CONTINUE] = 1.5f,
    [POLICY_ADVICE_SOON] = 2, [POLICY_ADVICE_SCAN] = 1e-5f,
};

static void under(struct survival_class *tree, unsigned class, unsigned above, unsigned beside)
{
    tree[class] =
        (struct survival_class){.above = (uint16_t)above,
                                .beside = (uint16_t)beside,
                                .factor = 1,
                                .late = 1,
                                .later = 1,
                                .doubt = DOUBT,
                                .strength = beside == SURVIVAL_NONE ? STRENGTH : STRENGTH_BOTH};
}

static void under_each(struct survival_class *tree, unsigned first, unsigned n, unsigned above,
                       unsigned each)
{
    for (unsigned i = 0; i < n; i++)
        under(tree, first + i, above + i / each, SURVIVAL_NONE);
}

static void is_long_news(struct survival_class *class)
{
    class->factor = LONG_NEWS;
    class->strength = STRENGTH_LONG;
}

/* The part of a class that advice leaves: its kind. */
static unsigned classes_kind_of(unsigned class)
{
    if (class < CLASS_NEXT)
        return class - CLASS_FIRST;
    if (class < CLASS_SHARED)
        return KIND_NEXT + (class - CLASS_NEXT) / CLASS_GAPS;
    if (class < CLASS_SAID)
        return class < CLASS_TIP ? KIND_SHARED : KIND_TIP;
    return (class - CLASS_SAID) % CLASS_SAID_KINDS;
}

/* The node above all classes of a kind, with any advice. */
static unsigned of_kind(unsigned kind)
{
    if (kind < KIND_NEXT)
        return CLASS_BEGUN + kind;
    if (kind < KIND_SHARED)
        return CLASS_NEWS_TURN + kind - KIND_NEXT;
    return kind == KIND_SHARED ? CLASS_OWN : CLASS_ANY_TIP;
}

void classes_init(struct survival_class *ret_tree)
{
    struct survival_class *t = ret_tree;
    for (unsigned n = 0; n < CLASS_NEWS; n++)
        for (unsigned turn = 0; turn < CLASS_TURNS; turn++) {
            unsigned news_turn = CLASS_NEWS_TURN + n * CLASS_TURNS + turn;
            under(t, news_turn, CLASS_TURN + turn, SURVIVAL_NONE);
            for (unsigned g = 0; g < CLASS_GAPS; g++)
                under(t, CLASS_NEXT + (n * CLASS_TURNS + turn) * CLASS_GAPS + g, news_turn,
                      CLASS_TURN_GAP + turn * CLASS_GAPS + g);
        }
    under_each(t, CLASS_TURN_GAP, CLASS_TURNS * CLASS_GAPS, CLASS_TURN, CLASS_GAPS);
    under_each(t, CLASS_TURN, CLASS_TURNS, CLASS_ANY_NEXT, CLASS_TURNS);
    under_each(t, CLASS_FIRST, 2 * CLASS_NEWS, CLASS_BEGUN, 1);
    under_each(t, CLASS_BEGUN, 2 * CLASS_NEWS, CLASS_ANY_FIRST, CLASS_NEWS);
    for (unsigned i = 0; i < 2 * CLASS_NEWS; i++)
        t[CLASS_FIRST + i].strength = t[CLASS_BEGUN + i].strength = STRENGTH_BEGUN;
    for (unsigned i = CLASS_NEWS - 1; i < 2 * CLASS_NEWS; i += CLASS_NEWS)
        is_long_news(&t[CLASS_BEGUN + i]);
    for (unsigned i = 0; i < CLASS_USES * CLASS_TIMES; i++) {
        under(t, CLASS_SHARED + i, CLASS_OFTEN + i / CLASS_TIMES, SURVIVAL_NONE);
        t[CLASS_SHARED + i].shift = (int16_t)(GAP_BUCKET - 2 * (int)(i % CLASS_TIMES));
        t[CLASS_SHARED + i].hits = HITS;
        t[CLASS_SHARED + i].doubt = 0;
    }
    under_each(t, CLASS_OFTEN, CLASS_USES, CLASS_ANY_SHARED, CLASS_USES);
    for (unsigned i = 0; i < CLASS_USES; i++) {
        t[CLASS_OFTEN + i].doubt = 0;
        t[CLASS_OFTEN + i].later = often[i];
    }
    under_each(t, CLASS_TIP, 2 * CLASS_NEWS, CLASS_ANY_TIP, 2 * CLASS_NEWS);
    is_long_news(&t[CLASS_TIP + CLASS_NEWS - 1]); /* all blocks before it stay as long as it does */
    for (unsigned i = CLASS_ANY_FIRST; i < CLASS_ALL; i++)
        under(t, i, CLASS_ALL, SURVIVAL_NONE);
    under_each(t, CLASS_ANY_FIRST, 3, CLASS_OWN, 3);
    for (unsigned a = 1; a < POLICY_ADVICE_COUNT; a++) {
        unsigned any = CLASS_ANY_SAID + a - 1;
        under(t, any, CLASS_OWN, SURVIVAL_NONE);
        t[any].factor = t[any].late = t[any].later = believed[a];
        for (unsigned k = 0; k < CLASS_SAID_KINDS; k++)
            under(t, CLASS_SAID + (a - 1) * CLASS_SAID_KINDS + k, of_kind(k), any);
    }
    under(t, CLASS_ANY_SHARED, SURVIVAL_NONE, SURVIVAL_NONE);
    under(t, CLASS_ALL, SURVIVAL_NONE, SURVIVAL_NONE);
    t[CLASS_ANY_SHARED].doubt = t[CLASS_ALL].doubt = 0;
    t[CLASS_ANY_NEXT].factor = t[CLASS_ANY_NEXT].late = t[CLASS_ANY_NEXT].later = AGAIN;
    t[CLASS_ANY_SHARED].factor = t[CLASS_ANY_SHARED].late = t[CLASS_ANY_SHARED].later = AGAIN;
}

static unsigned log2_of(uint64_t x)
{
    return x ? 63u - (unsigned)__builtin_clzll(x) : 0;
}

static unsigned least_of(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* 0, 1, 2, 3 to 4, 5 to 8, ... */
static unsigned step_of_news(unsigned news)
{
    return news <= 1 ? news : least_of(CLASS_NEWS - 1, log2_of(news - 1) + 2);
}

/* 2, 3, 4 to 5, 6 to 11, more */
static unsigned step_of_turn(unsigned turn)
{
    return turn < 4 ? turn - 2 : turn < 6 ? 2 : turn < 12 ? 3 : 4;
}

/* Below 8 s, 16 s, ... 128 s, more. */
static unsigned step_of_gap(uint64_t gap_ms)
{
    return gap_ms < 8 * SECOND ? 0 : least_of(CLASS_GAPS - 1, log2_of(gap_ms / (8 * SECOND)) + 1);
}

unsigned class_first(bool branch, unsigned news)
{
    return CLASS_FIRST + branch * CLASS_NEWS + step_of_news(news);
}

unsigned class_next(unsigned news, unsigned turn, uint64_t gap_ms)
{
    return CLASS_NEXT + (step_of_news(news) * CLASS_TURNS + step_of_turn(turn)) * CLASS_GAPS +
           step_of_gap(gap_ms);
}

unsigned class_shared(unsigned uses, uint64_t gap_ms)
{
    unsigned time = least_of(CLASS_TIMES - 1, log2_of(gap_ms / 16));
    return CLASS_SHARED + least_of(CLASS_USES - 1, log2_of(uses) - 1) * CLASS_TIMES + time;
}

unsigned class_tip(bool continued, unsigned news)
{
    return CLASS_TIP + continued * CLASS_NEWS + step_of_news(news);
}

/* Shared blocks: how often and how long apart they were used says more than a worker's advice. */
static bool is_shared(unsigned class)
{
    return class >= CLASS_SHARED && class < CLASS_TIP;
}

unsigned class_said(unsigned class, enum policy_advice advice)
{
    if (advice == POLICY_ADVICE_NONE || is_shared(class))
        return class;
    return CLASS_SAID + (advice - 1u) * CLASS_SAID_KINDS + classes_kind_of(class);
}

unsigned class_unsaid(unsigned class)
{
    return class < CLASS_SAID ? class : of_kind(classes_kind_of(class));
}

unsigned class_flow(unsigned class)
{
    if (is_shared(class))
        return 2 + (class - CLASS_SHARED) / CLASS_TIMES;
    if (class >= CLASS_TIP && class < CLASS_SAID)
        return class >= CLASS_TIP + CLASS_NEWS;
    const unsigned kind = classes_kind_of(class);
    return kind >= KIND_NEXT && kind < KIND_SHARED;
}
