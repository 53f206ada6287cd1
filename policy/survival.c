/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life tables of policy `density`. survival_begin() and survival_end() count uses and hits by class
 * and age; survival_tick() moves uses under way to older ages; work_out() makes chances of a hit
 * from the counts, and the scores from these; survival_score() is what eviction asks.
 */
#include "survival.h"

#include <math.h>
#include <string.h>

#include "round.h"
#include "slots.h"

#define FIRST_LOG2_MS 4u /* the first bucket ends at 16 ms; two buckets for each doubling */
/* Buckets from LATE (262 s) on have few hits: what is known of the class above counts for more. */
#define LATE           29u
#define LATER          32u
#define STRENGTH_EARLY 0.6f
#define STRENGTH_LATE  2.0f
#define DEPTH_MAX      16u /* of the tree: a class and those above it */
/* A slot is this long, or shorter where so many uses begin, but not shorter than time is told. */
#define SLOT_MS   1000u
#define SLOT_USES 100.0f
/* Of one use: with less of it left time would not go on, and hits by time be 0 / 0. */
#define ALIVE_MIN 1e-9
#define WINDOW    20000.0f
/* Chance of a hit in each bucket that nothing is known of: buckets grow with age, so worth falls.
 * Those before this one, of a quarter of a second together, are as good by time as it. */
#define BASE       0.015f
#define BASE_FIRST 9u
#define PRIOR_MAX  0.9f

struct table {
    float hit[SURVIVAL_BUCKETS];  /* uses that ended with a hit at that age */
    float past[SURVIVAL_BUCKETS]; /* uses that outlived that age */
    float chance[SURVIVAL_BUCKETS];
    float uses;
    bool seen;
};

/* Apart from the rest, for it is read most. */
struct scores {
    float at[SURVIVAL_BUCKETS + 1]; /* at the bucket's begin */
};

struct slot {
    uint32_t bucket; /* that its uses are in; SURVIVAL_BUCKETS: they outlived all */
    uint32_t row;    /* of alive and some */
};

/* Of a class, while a slot passes: what passes in those below it, and in those beside whose table
 * it is. */
struct passing {
    float below, beside;
};

struct survival {
    unsigned classes, words; /* words: of a set of classes */
    unsigned seen, next;     /* classes that had a use; the one of them that is worked out next */
    unsigned slots;
    float begun; /* in the youngest slot */
    uint64_t now_ms;
    uint64_t begin_ms[SURVIVAL_SLOTS]; /* slots.h */
    struct slot slot[SURVIVAL_SLOTS];
    struct table *table;
    struct scores *score;
    float *alive;            /* [SURVIVAL_SLOTS][classes] */
    uint64_t *some;          /* [SURVIVAL_SLOTS][words]: classes that may be in a row of alive */
    uint64_t *todo;          /* [words]: classes that slot_pass() has before it */
    struct passing *passing; /* all 0 but in slot_pass() */
    uint16_t *seen_class;    /* ascending */
    const struct survival_class *tree;
    double width[SURVIVAL_BUCKETS];         /* of the buckets, in seconds */
    float per_ms[SURVIVAL_BUCKETS];         /* of the bucket's width */
    float base[SURVIVAL_BUCKETS];           /* chance of a hit that nothing is known of */
    float strength[SURVIVAL_BUCKETS];       /* times that of the class */
    uint64_t edge_ms[SURVIVAL_BUCKETS + 1]; /* where buckets begin */
};

static uint64_t edge_ms(unsigned bucket)
{
    if (bucket == 0)
        return 0;
    uint64_t base = 1ull << (FIRST_LOG2_MS + (bucket - 1) / 2);
    return bucket % 2 ? base : base + base * 27 / 65;
}

/* SURVIVAL_BUCKETS: older than all are. */
static unsigned survival_bucket_of(const struct survival *s, uint64_t age_ms)
{
    if (age_ms < 1u << FIRST_LOG2_MS)
        return 0;
    const unsigned log2 = 63u - (unsigned)__builtin_clzll(age_ms);
    const unsigned bucket = 2 * (log2 - FIRST_LOG2_MS) + 1;
    if (bucket >= SURVIVAL_BUCKETS)
        return SURVIVAL_BUCKETS;
    return bucket + (age_ms >= s->edge_ms[bucket + 1]);
}

static unsigned words_of(unsigned classes)
{
    return (classes + 63) / 64;
}

size_t survival_mem_bytes(unsigned classes)
{
    return round64(sizeof(struct survival)) + round64(classes * sizeof(struct table)) +
           round64(classes * sizeof(struct scores)) +
           (SURVIVAL_SLOTS + 1) * words_of(classes) * sizeof(uint64_t) +
           classes * (SURVIVAL_SLOTS * sizeof(float) + sizeof(struct passing) + sizeof(uint16_t));
}

static void work_out(struct survival *s, unsigned class);

static void init_buckets(struct survival *s)
{
    for (unsigned i = 0; i <= SURVIVAL_BUCKETS; i++)
        s->edge_ms[i] = edge_ms(i);
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++) {
        s->width[i] = (double)(edge_ms(i + 1) - edge_ms(i)) * 1e-3;
        s->per_ms[i] = 1 / (float)(edge_ms(i + 1) - edge_ms(i));
        s->strength[i] = i < LATE ? STRENGTH_EARLY : STRENGTH_LATE;
        s->base[i] = BASE;
    }
    for (unsigned i = 0; i < BASE_FIRST; i++)
        s->base[i] = BASE * (float)(s->width[i] / s->width[BASE_FIRST]);
}

struct survival *survival_init(void *mem, unsigned classes, const struct survival_class *tree)
{
    struct survival *s = mem;
    char *at = (char *)mem + round64(sizeof(*s));
    s->classes = classes;
    s->words = words_of(classes);
    s->tree = tree;
    s->table = (struct table *)at;
    at += round64(classes * sizeof(struct table));
    s->score = (struct scores *)at;
    at += round64(classes * sizeof(struct scores));
    s->some = (uint64_t *)at;
    s->todo = s->some + (size_t)SURVIVAL_SLOTS * s->words;
    s->alive = (float *)(s->todo + s->words);
    s->passing = (struct passing *)(s->alive + (size_t)SURVIVAL_SLOTS * classes);
    s->seen_class = (uint16_t *)(s->passing + classes);
    for (uint32_t i = 0; i < SURVIVAL_SLOTS; i++)
        s->slot[i].row = i;
    init_buckets(s);
    for (unsigned c = classes; c-- > 0;)
        work_out(s, c);
    return s;
}

static void set_add(uint64_t *set, unsigned class)
{
    set[class / 64] |= UINT64_C(1) << class % 64;
}

static unsigned set_take(uint64_t *word)
{
    const unsigned bit = (unsigned)__builtin_ctzll(*word);
    *word &= *word - 1;
    return bit;
}

static uint64_t *some_of(struct survival *s, const struct slot *slot)
{
    return s->some + (size_t)slot->row * s->words;
}

static float *alive_of(struct survival *s, const struct slot *slot)
{
    return s->alive + (size_t)slot->row * s->classes;
}

/* Uses of a class that began then are under way. */
static void survival_join(struct survival *s, const struct slot *slot, unsigned class, float weight)
{
    alive_of(s, slot)[class] += weight;
    set_add(some_of(s, slot), class);
}

static const struct slot *slot_at(const struct survival *s, uint64_t then_ms)
{
    return &s->slot[slots_at(s->begin_ms, s->slots, then_ms)];
}

/* Walks from a class over all those that it is part of. */
static unsigned next_up(const struct survival *s, unsigned from, unsigned at)
{
    if (at == from && s->tree[from].beside != SURVIVAL_NONE)
        return s->tree[from].beside;
    if (at == s->tree[from].beside)
        return s->tree[from].above;
    return s->tree[at].above;
}

/* The bucket of the class above, and of those above that, for one of this class. */
static unsigned bucket_above(const struct survival_class *at, unsigned bucket)
{
    const int above = (int)bucket + at->shift;
    if (above < 0)
        return 0;
    return (unsigned)above < SURVIVAL_BUCKETS ? (unsigned)above : SURVIVAL_BUCKETS - 1;
}

static unsigned bucket_in(const struct survival *s, unsigned from, unsigned at, unsigned bucket)
{
    const struct survival_class *c = &s->tree[from];
    return at == from || at == c->beside ? bucket : bucket_above(c, bucket);
}

static void survival_pass(struct table *t, unsigned from, unsigned to, float uses)
{
    for (unsigned i = from; i < to; i++)
        t->past[i] += uses;
}

/* In the tables above a class whose ages are told in other units there. */
static void pass_above(struct survival *s, const struct survival_class *at, unsigned from,
                       unsigned to, float uses)
{
    for (unsigned n = at->above; n != SURVIVAL_NONE; n = s->tree[n].above)
        for (unsigned i = from; i < to; i++)
            s->table[n].past[bucket_above(at, i)] += uses;
}

/* Uses of a class outlive these buckets, and so do those of the classes below it. */
static void class_pass(struct survival *s, unsigned class, float own, unsigned from, unsigned to)
{
    const struct survival_class *at = &s->tree[class];
    const struct passing passing = s->passing[class];
    const float all = own + passing.below + passing.beside;
    if (!(all > 0))
        return;
    s->passing[class] = (struct passing){0};
    survival_pass(&s->table[class], from, to, all);
    if (at->beside != SURVIVAL_NONE) {
        s->passing[at->beside].beside += own;
        set_add(s->todo, at->beside);
    }
    if (at->shift != 0)
        pass_above(s, at, from, to, own);
    if (at->above != SURVIVAL_NONE) {
        s->passing[at->above].below += (at->shift != 0 ? 0 : own) + passing.below;
        set_add(s->todo, at->above);
    }
}

/* The uses of a slot outlive all buckets from theirs to `to`. What is above a class comes after it,
 * so that each table is written once. */
static void slot_pass(struct survival *s, struct slot *slot, unsigned to)
{
    const float *alive = alive_of(s, slot);
    memcpy(s->todo, some_of(s, slot), s->words * sizeof(*s->todo));
    for (unsigned w = 0; w < s->words; w++)
        while (s->todo[w]) {
            const unsigned class = w * 64 + set_take(&s->todo[w]);
            class_pass(s, class, alive[class], slot->bucket, to);
        }
    slot->bucket = to;
}

static void survival_make_room(struct survival *s)
{
    const unsigned best = slots_merge(s->begin_ms, s->slots, s->now_ms);
    struct slot *a = &s->slot[best], *b = a + 1;
    float *from = alive_of(s, b);
    uint64_t *some = some_of(s, b);
    if (b->bucket < a->bucket)
        slot_pass(s, b, a->bucket);
    for (unsigned w = 0; w < s->words; w++)
        while (some[w]) {
            const unsigned class = w * 64 + set_take(&some[w]);
            survival_join(s, a, class, from[class]);
            from[class] = 0;
        }
    uint32_t row = b->row;
    memmove(b, b + 1, (s->slots - best - 2) * sizeof(*b));
    s->slots--;
    s->slot[s->slots].row = row;
}

void survival_tick(struct survival *s, uint64_t now_ms)
{
    s->now_ms = now_ms;
    const uint64_t since = s->slots ? now_ms - s->begin_ms[s->slots - 1] : SLOT_MS;
    if (since < SLOT_MS && (since == 0 || s->begun < SLOT_USES))
        return;
    s->begun = 0;
    for (unsigned i = 0; i < s->slots; i++) {
        struct slot *slot = &s->slot[i];
        const uint64_t begin = s->begin_ms[i];
        const uint64_t end = i + 1 < s->slots ? s->begin_ms[i + 1] : now_ms;
        const uint64_t age = now_ms - (begin + (end - begin) / 2);
        if (slot->bucket < SURVIVAL_BUCKETS && age >= s->edge_ms[slot->bucket + 1])
            slot_pass(s, slot, survival_bucket_of(s, age));
    }
    if (s->slots == SURVIVAL_SLOTS)
        survival_make_room(s);
    struct slot *slot = &s->slot[s->slots];
    *slot = (struct slot){.row = slot->row};
    s->begin_ms[s->slots++] = now_ms;
}

static void forget_half(struct table *t)
{
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
        t->hit[i] *= 0.5f, t->past[i] *= 0.5f;
    t->uses *= 0.5f;
}

/* Of a class that is used for the first time, and those above it: they are worked out from now on,
 * what is above first. */
static void see(struct survival *s, unsigned class)
{
    unsigned path[DEPTH_MAX], n = 0;
    for (unsigned c = class; c != SURVIVAL_NONE && n < DEPTH_MAX; c = next_up(s, class, c))
        if (!s->table[c].seen)
            path[n++] = c;
    while (n > 0) {
        const unsigned c = path[--n];
        unsigned at = s->seen++;
        for (; at > 0 && s->seen_class[at - 1] > c; at--)
            s->seen_class[at] = s->seen_class[at - 1];
        s->seen_class[at] = (uint16_t)c;
        s->table[c].seen = true;
        work_out(s, c);
    }
}

void survival_begin(struct survival *s, unsigned class, float weight)
{
    if (!s->table[class].seen)
        see(s, class);
    survival_join(s, &s->slot[s->slots - 1], class, weight);
    s->begun += weight;
    for (unsigned n = class; n != SURVIVAL_NONE; n = next_up(s, class, n)) {
        struct table *t = &s->table[n];
        t->uses += weight;
        if (t->uses > WINDOW)
            forget_half(t);
    }
}

static void survival_leave(struct survival *s, unsigned class, float weight, uint64_t then_ms)
{
    float *alive = &alive_of(s, slot_at(s, then_ms))[class];
    *alive = *alive > weight ? *alive - weight : 0;
}

void survival_end(struct survival *s, unsigned class, float weight, uint64_t then_ms,
                  uint64_t now_ms, bool hit)
{
    survival_leave(s, class, weight, then_ms);
    if (!hit)
        return;
    const unsigned bucket = survival_bucket_of(s, now_ms - then_ms);
    if (bucket == SURVIVAL_BUCKETS) /* it was counted as one that outlived all */
        return;
    for (unsigned n = class; n != SURVIVAL_NONE; n = next_up(s, class, n))
        s->table[n].hit[bucket_in(s, class, n, bucket)] += weight;
}

void survival_move(struct survival *s, unsigned from, unsigned to, float weight, uint64_t then_ms)
{
    if (!s->table[to].seen)
        see(s, to);
    survival_leave(s, from, weight, then_ms);
    survival_join(s, slot_at(s, then_ms), to, weight);
}

/* The chances that are believed in before anything of the class is seen. */
static void believe(const struct survival *s, const struct survival_class *at,
                    float ret[restrict SURVIVAL_BUCKETS])
{
    const float *above = at->above == SURVIVAL_NONE ? s->base : s->table[at->above].chance;
    for (unsigned i = 0; i < LATE; i++)
        ret[i] = at->factor;
    for (unsigned i = LATE; i < LATER; i++)
        ret[i] = at->late;
    for (unsigned i = LATER; i < SURVIVAL_BUCKETS; i++)
        ret[i] = at->later;
    if (at->shift == 0)
        for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
            ret[i] *= above[i];
    else
        for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
            ret[i] *= above[bucket_above(at, i)];
    if (at->beside != SURVIVAL_NONE) {
        const float *beside = s->table[at->beside].chance;
        const float *whole = s->table[s->tree[at->beside].above].chance;
        for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
            ret[i] *= beside[i] / whole[i];
    }
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
        ret[i] = ret[i] < PRIOR_MAX ? ret[i] : PRIOR_MAX;
}

/* Observations and beliefs of a class, per bucket; in arrays, so that several buckets are computed
 * at once. */
struct weighed {
    float seen[SURVIVAL_BUCKETS], likely[SURVIVAL_BUCKETS]; /* parts of the chance of a hit */
    float believed[SURVIVAL_BUCKETS];                       /* how much of it is belief */
    float came[SURVIVAL_BUCKETS]; /* of the hits that were believed in, times what is not belief */
};

static void weigh(const struct survival *s, unsigned class, struct weighed *restrict w)
{
    const struct table *t = &s->table[class];
    const struct survival_class *at = &s->tree[class];
    float prior[SURVIVAL_BUCKETS];
    believe(s, at, prior);
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++) {
        const float strength = at->strength * s->strength[i] + at->hits / prior[i];
        const float each = 1 / (t->hit[i] + t->past[i] + strength);
        const float came = (t->hit[i] / prior[i] + strength) * each;
        w->seen[i] = t->hit[i] * each;
        w->believed[i] = strength * each;
        w->likely[i] = prior[i] * w->believed[i];
        w->came[i] = (came < 1 ? came : 1) * (1 - w->believed[i]);
    }
}

/* Of those who enter the first bucket, `hits` have been hit and `time` seconds been kept when a
 * bucket begins. */
struct life {
    double hits[SURVIVAL_BUCKETS + 1], time[SURVIVAL_BUCKETS + 1];
};

static void live(const struct survival *s, const struct weighed *w, float doubt_most,
                 float *restrict ret_chance, struct life *restrict ret)
{
    double alive = 1;
    float part = 1; /* of the hits that were believed in at younger ages, those that came */
    ret->hits[0] = ret->time[0] = 0;
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++) {
        const float doubt = 1 - part < doubt_most ? 1 - part : doubt_most;
        const float chance = w->seen[i] + w->likely[i] * (1 - doubt * w->believed[i]);
        const double hit = alive * (double)chance, left = alive * (1 - (double)chance);
        part = part * w->believed[i] + w->came[i];
        ret_chance[i] = chance;
        ret->hits[i + 1] = ret->hits[i] + hit;
        ret->time[i + 1] = ret->time[i] + (alive - hit * 0.5) * s->width[i];
        alive = left > ALIVE_MIN ? left : ALIVE_MIN;
    }
}

/* Scores: a bucket's is the steepest slope from its point (time, hits) to any later one, which is
 * the first edge of the upper hull of the points from it on. */
static void score(const struct life *life, float *restrict ret)
{
    struct point {
        double hits, time;
    } hull[SURVIVAL_BUCKETS + 2];
    float more[SURVIVAL_BUCKETS], later[SURVIVAL_BUCKETS];
    struct point *top = &hull[1];
    *top = (struct point){life->hits[SURVIVAL_BUCKETS], life->time[SURVIVAL_BUCKETS]};
    hull[0] = (struct point){-HUGE_VAL, top->time + 1}; /* nobody goes there */
    for (unsigned i = SURVIVAL_BUCKETS; i-- > 0;) {
        const struct point at = {life->hits[i], life->time[i]};
        while ((top[-1].hits - at.hits) * (top->time - at.time) >=
               (top->hits - at.hits) * (top[-1].time - at.time))
            top--;
        more[i] = (float)(top->hits - at.hits);
        later[i] = (float)(top->time - at.time);
        *++top = at;
    }
    for (unsigned i = 0; i < SURVIVAL_BUCKETS; i++)
        ret[i] = more[i] / later[i];
    ret[SURVIVAL_BUCKETS] = ret[SURVIVAL_BUCKETS - 1] * 0.5f;
}

static void work_out(struct survival *s, unsigned class)
{
    struct weighed weighed;
    struct life life;
    weigh(s, class, &weighed);
    live(s, &weighed, s->tree[class].doubt, s->table[class].chance, &life);
    score(&life, s->score[class].at);
}

void survival_learn(struct survival *s)
{
    if (s->seen == 0)
        return;
    s->next = s->next ? s->next - 1 : s->seen - 1; /* a class comes after those above it */
    work_out(s, s->seen_class[s->next]);
}

float survival_score(const struct survival *s, unsigned class, uint64_t age_ms)
{
    const unsigned i = survival_bucket_of(s, age_ms);
    const float *score = s->score[class].at;
    if (i == SURVIVAL_BUCKETS) /* of older ones nothing is known: it falls as with LRU */
        return score[i] * ((float)s->edge_ms[i] / (float)age_ms);
    const float part = (float)(int64_t)(age_ms - s->edge_ms[i]) * s->per_ms[i];
    return score[i] + (score[i + 1] - score[i]) * part;
}

float survival_chance(const struct survival *s, unsigned class, uint64_t age_ms, uint64_t for_ms)
{
    const struct table *t = &s->table[class];
    const float end = (float)(age_ms + for_ms);
    float at = (float)age_ms, none = 1;
    for (unsigned i = survival_bucket_of(s, age_ms); i < SURVIVAL_BUCKETS && at < end; i++) {
        const float edge = (float)s->edge_ms[i + 1], to = edge < end ? edge : end;
        none *= 1 - t->chance[i] * (to - at) * s->per_ms[i];
        at = to;
    }
    return 1 - none;
}
