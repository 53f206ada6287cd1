/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queues of policy `density`, and the search for the block of least worth among their old ends.
 * order_least() looks at all queues once in ORDER_LOOKS decisions, and at a few of them otherwise.
 */
#include "order.h"

#include "round.h"

#include "policy.h"

#define FIRST_BAND_TICKS 6u  /* log2: the first band is about a second */
#define PASS_MOST        32u /* blocks of a queue that pass to another band at a time */
#define KEPT             16u /* queues that a look keeps; the others of ORDER_FEW come after it */

/* Its two ends as complements of block numbers: 0 is POLICY_NO_BLOCK, so that zeroed memory is
 * empty queues. Most of the queues are never used, and their memory is never touched. */
struct queue {
    uint32_t not_young, not_old;
};

/* Queues that may hold the least. */
struct few {
    uint32_t n, looks;  /* looks: until all queues are looked at again */
    uint32_t now;       /* when `old` and `worth` were right */
    order_worth_fn *by; /* what `worth` is */
    uint32_t queue[ORDER_FEW];
    uint32_t old[ORDER_FEW]; /* the block at its old end, or POLICY_NO_BLOCK: not known */
    float worth[ORDER_FEW];
};

struct order {
    unsigned queues, words, lists;
    uint32_t blocks;
    struct order_node *node;
    struct queue *queue; /* [lists][queues] */
    uint64_t *some;      /* [lists][words]: queues that may have blocks */
    struct few *few;     /* [lists] */
};

static unsigned queues_of(unsigned classes)
{
    return classes * ORDER_BANDS * ORDER_VALUES;
}

static size_t nodes_bytes(uint32_t blocks_max)
{
    return round64(blocks_max * sizeof(struct order_node));
}

static size_t queues_bytes(unsigned classes, unsigned lists)
{
    return round64((size_t)lists * queues_of(classes) * sizeof(struct queue));
}

static size_t some_bytes(unsigned classes, unsigned lists)
{
    return round64((size_t)lists * ((queues_of(classes) + 63) / 64) * sizeof(uint64_t));
}

size_t order_mem_bytes(uint32_t blocks_max, unsigned classes, unsigned lists)
{
    return round64(sizeof(struct order)) + nodes_bytes(blocks_max) + queues_bytes(classes, lists) +
           some_bytes(classes, lists) + lists * sizeof(struct few);
}

struct order *order_init(void *mem, uint32_t blocks_max, unsigned classes, unsigned lists)
{
    struct order *o = mem;
    char *at = (char *)mem + round64(sizeof(*o));
    o->queues = queues_of(classes);
    o->words = (o->queues + 63) / 64;
    o->lists = lists;
    o->blocks = blocks_max;
    o->node = (struct order_node *)at;
    at += nodes_bytes(blocks_max);
    o->queue = (struct queue *)at;
    at += queues_bytes(classes, lists);
    o->some = (uint64_t *)at;
    o->few = (struct few *)(at + some_bytes(classes, lists));
    return o;
}

struct order_node *order_node(struct order *o, uint32_t block)
{
    return &o->node[block];
}

static unsigned band_of(uint32_t age)
{
    age >>= FIRST_BAND_TICKS;
    unsigned band = age ? (33u - (unsigned)__builtin_clz(age)) / 2 : 0;
    return band < ORDER_BANDS ? band : ORDER_BANDS - 1;
}

static unsigned number_of(const struct order_node *n)
{
    return (n->class * ORDER_VALUES + n->step) * ORDER_BANDS + n->band;
}

static struct queue *queue_of(struct order *o, const struct order_node *n)
{
    return &o->queue[(size_t)n->list * o->queues + number_of(n)];
}

/* A queue that had no block has one. */
static void mark(struct order *o, const struct order_node *n)
{
    unsigned q = number_of(n);
    uint64_t *word = &o->some[(size_t)n->list * o->words + q / 64], bit = 1ull << (q % 64);
    if (*word & bit)
        return;
    *word |= bit;
    struct few *few = &o->few[n->list];
    if (few->looks && few->n < ORDER_FEW) {
        few->old[few->n] = POLICY_NO_BLOCK;
        few->queue[few->n++] = q;
    } else
        few->looks = 0;
}

static void link_between(struct order *o, uint32_t block, uint32_t younger, uint32_t older)
{
    struct order_node *n = &o->node[block];
    struct queue *q = queue_of(o, n);
    n->younger = younger;
    n->older = older;
    if (younger == POLICY_NO_BLOCK)
        q->not_young = ~block;
    else
        o->node[younger].older = block;
    if (older == POLICY_NO_BLOCK)
        q->not_old = ~block;
    else
        o->node[older].younger = block;
    n->state = ORDER_IN;
    mark(o, n);
}

static void choose_queue(struct order_node *n, uint32_t now, float common)
{
    n->band = (uint8_t)band_of(now - n->used);
    n->step = (uint8_t)(n->value < common * 0.5f ? 0 : n->value <= common * 2 ? 1 : 2);
}

void order_young(struct order *o, uint32_t block, uint32_t now, float common)
{
    choose_queue(&o->node[block], now, common);
    link_between(o, block, POLICY_NO_BLOCK, ~queue_of(o, &o->node[block])->not_young);
}

void order_old(struct order *o, uint32_t block, uint32_t now, float common)
{
    choose_queue(&o->node[block], now, common);
    link_between(o, block, ~queue_of(o, &o->node[block])->not_old, POLICY_NO_BLOCK);
}

bool order_behind(struct order *o, uint32_t block, uint32_t younger)
{
    struct order_node *n = &o->node[block], *y = &o->node[younger];
    if (y->state != ORDER_IN || y->class != n->class || y->list != n->list)
        return false;
    n->band = y->band;
    n->step = y->step;
    link_between(o, block, younger, y->older);
    return true;
}

void order_out(struct order *o, uint32_t block)
{
    struct order_node *n = &o->node[block];
    if (n->state != ORDER_IN)
        return;
    struct queue *q = queue_of(o, n);
    if (n->younger == POLICY_NO_BLOCK)
        q->not_young = ~n->older;
    else
        o->node[n->younger].older = n->older;
    if (n->older == POLICY_NO_BLOCK)
        q->not_old = ~n->younger;
    else
        o->node[n->older].younger = n->younger;
}

void order_earlier(struct order *o, uint64_t by)
{
    for (uint32_t i = 0; i < o->blocks; i++) {
        struct order_node *n = &o->node[i];
        if (n->state != ORDER_UNKNOWN)
            n->used = n->used > by ? (uint32_t)(n->used - by) : 0;
    }
    for (unsigned l = 0; l < o->lists; l++)
        o->few[l].looks = 0;
}

/* The old end of a queue, after those that are too old for it have passed to the next band. After a
 * pause these may be all that there are: they pass in steps, and the oldest is at the old end
 * whether it has passed or not. None leaves out a band, so that none overtakes older ones. */
static uint32_t old_end(struct order *o, unsigned list, unsigned number, uint32_t now)
{
    struct queue *q = &o->queue[(size_t)list * o->queues + number];
    for (unsigned n_passed = 0; q->not_old != 0 && n_passed < PASS_MOST; n_passed++) {
        uint32_t block = ~q->not_old;
        struct order_node *n = &o->node[block];
        if (band_of(now - n->used) <= n->band)
            break;
        order_out(o, block);
        n->band++;
        link_between(o, block, POLICY_NO_BLOCK, ~queue_of(o, n)->not_young);
    }
    return ~q->not_old;
}

static unsigned most_of(const struct few *few)
{
    unsigned most = 0;
    for (unsigned i = 1; i < few->n; i++)
        if (few->worth[i] > few->worth[most])
            most = i;
    return most;
}

static void keep_if_less(struct few *few, unsigned queue, uint32_t old, float worth, unsigned *most)
{
    if (few->n == KEPT && worth >= few->worth[*most])
        return;
    unsigned at = few->n < KEPT ? few->n++ : *most;
    few->queue[at] = queue;
    few->old[at] = old;
    few->worth[at] = worth;
    *most = most_of(few);
}

static void look_at_all(struct order *o, unsigned list, uint32_t now, order_worth_fn *worth,
                        const void *ctx)
{
    struct few *few = &o->few[list];
    uint64_t *some = &o->some[(size_t)list * o->words];
    unsigned most = 0;
    few->n = few->looks = 0;
    few->now = now;
    few->by = worth;
    for (unsigned w = 0; w < o->words; w++) {
        /* Blocks pass to the next band, so to a queue further on, perhaps of the same word. */
        for (uint64_t todo = UINT64_MAX; some[w] & todo;) {
            unsigned bit = (unsigned)__builtin_ctzll(some[w] & todo);
            todo = bit < 63 ? UINT64_MAX << (bit + 1) : 0;
            uint32_t block = old_end(o, list, w * 64 + bit, now);
            if (block == POLICY_NO_BLOCK)
                some[w] &= ~(1ull << bit);
            else
                keep_if_less(few, w * 64 + bit, block, worth(ctx, &o->node[block], now), &most);
        }
    }
    few->looks = ORDER_LOOKS;
}

/* Most of the few are as they were at the last decision. */
static uint32_t least_of_few(struct order *o, unsigned list, uint32_t now, order_worth_fn *worth,
                             const void *ctx)
{
    struct few *few = &o->few[list];
    uint32_t best = POLICY_NO_BLOCK;
    float least = 0;
    for (unsigned i = 0; i < few->n; i++) {
        uint32_t block = ~o->queue[(size_t)list * o->queues + few->queue[i]].not_old;
        if (block == POLICY_NO_BLOCK) {
            few->old[i] = POLICY_NO_BLOCK;
            continue;
        }
        if (block != few->old[i] || now != few->now) {
            block = few->old[i] = old_end(o, list, few->queue[i], now);
            if (block == POLICY_NO_BLOCK)
                continue;
            few->worth[i] = worth(ctx, &o->node[block], now);
        }
        const float w = few->worth[i];
        if (best != POLICY_NO_BLOCK &&
            (w > least || (w >= least && o->node[block].used >= o->node[best].used)))
            continue;
        best = block;
        least = w;
    }
    few->now = now;
    return best;
}

uint32_t order_least(struct order *o, unsigned list, uint32_t now, order_worth_fn *worth,
                     const void *ctx)
{
    struct few *few = &o->few[list];
    uint32_t block = POLICY_NO_BLOCK;
    if (few->looks && few->by == worth) {
        few->looks--;
        block = least_of_few(o, list, now, worth, ctx);
    }
    if (block == POLICY_NO_BLOCK) {
        look_at_all(o, list, now, worth, ctx);
        block = least_of_few(o, list, now, worth, ctx);
    }
    return block;
}
