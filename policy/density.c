/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `density`, the default: evicts the block with the fewest expected hits per byte and
 * second.
 *
 * Every use of a block belongs to a class (classes.h). How uses of a class continue is learned
 * (survival.h), from blocks in the cache and, while their hashes are remembered (ghost.h), from
 * evicted ones. A block's worth is the hits per second that its class promises at its age, over the
 * best time to keep it, times what a hit saves per byte. The victim is the block of least worth
 * (order.h). Where LRU or LRU-2 is seen to hit more, their victim is evicted instead (shadow.h,
 * selector.h).
 *
 * A walk: density_request() ends and begins uses; density_insert() and density_touch() put blocks
 * into the order; density_victim() asks it. docs/notes/policy-density.md has the formulas.
 */
#include <string.h>

#include "classes.h"
#include "flow.h"
#include "ghost.h"
#include "order.h"
#include "policy.h"
#include "round.h"
#include "selector.h"
#include "shadow.h"
#include "survival.h"

#define LEARN_EACH 4u   /* classes whose scores are worked out at each request */
#define ASKED_MAX  256u /* blocks of a piece whose ghosts are kept; of more: found again */
#define AHEAD      12u  /* ghosts are prefetched so many blocks ahead */
/* Uses that a shared block's mean time between uses is taken over: GAP_USES, or a part of its uses
 * where that is more. Popularity drifts; that of system prompts, which have most uses, least. */
#define GAP_USES      3u
#define GAP_USES_MOST 16u
#define GAP_USES_PART 8u /* one in so many of its uses */
#define TURN_USES     12u
#define SHARED_LOG2   2u
#define REPEATS       3u      /* of its last block: a chain that does not grow is no conversation */
#define VALUES_MEAN   1024.0f /* blocks that the mean of saves per byte is taken over */
/* Of requests that begin something: the mean number of new blocks is LENGTH for classes.c. The mean
 * is over LENGTHS_MEAN requests; the first one counts as LENGTHS_FIRST. */
#define LENGTH        20.0f
#define LENGTH_MAX    10000.0f
#define LENGTHS_MEAN  1024.0f
#define LENGTHS_FIRST 128.0f
/* Evicted new blocks: uses that hits are summed over, and uses that came as expected at first. */
#define GONE_WINDOW 500.0f
#define GONE_PRIOR  30.0f
#define NEWS_LEAST  (1 / NEWS_MOST)
#define NEWS_MOST   1.5f
#define STAY_PART   16u /* of the blocks: evictions between two measures of how long blocks stay */
#define STAY_MEAN   4.0f
#define STAY_SEEN   0.3f   /* of a stay: later returns say too little of what is evicted now */
#define ADMIT       0.99f  /* of the victim's worth: a block that is worth as much is admitted */
#define ONCE        1e-12f /* LRU-2: blocks used once are evicted before all others */
/* GHOST_MS: a year, and half of it. When `now` reaches the first, the base of times moves so that
 * it is the second. Uses longer ago than that count as uses at the base. */
#define NOW_MAX  (UINT32_C(1) << 31)
#define NOW_KEPT (UINT32_C(1) << 30)

/* The last chance that chance_of() worked out, for a class, a time of use and now. */
struct expected {
    uint32_t class, used, now;
    float chance;
};

struct policy {
    uint64_t base; /* GHOST_MS: times of 32 bits count from here */
    uint32_t now;  /* GHOST_MS */
    uint64_t now_ms;
    float common;         /* mean of saves per byte; 0 until the first is known */
    float values;         /* blocks in that mean */
    float length;         /* mean of the new blocks of requests that begin something; 0: none yet */
    float lengths;        /* requests in that mean */
    uint32_t victim;      /* that density_victim() named last */
    uint32_t in;          /* blocks in the order or aside */
    uint32_t went, since; /* blocks that were evicted since then */
    float stay;           /* GHOST_MS: how long a block stays */
    float expected, hits; /* of evicted new blocks, within a part of such a stay */
    float news;           /* worth of a new block, by what its class says */
    struct expected last;
    struct selector selector;
    struct flow flow;
    struct survival *survival;
    struct ghost_table *ghost;
    struct order *order;
    struct shadow shadow;
    struct survival_class tree[CLASS_COUNT];
};

static size_t density_mem_bytes(const struct policy_config *config)
{
    return round64(sizeof(struct policy)) + round64(survival_mem_bytes(CLASS_COUNT)) +
           round64(ghost_mem_bytes(config->blocks_max)) +
           order_mem_bytes(config->blocks_max, CLASS_BLOCKS, config->lists_max);
}

static struct policy *density_init(void *mem, const struct policy_config *config)
{
    struct policy *p = mem;
    char *at = (char *)mem + round64(sizeof(*p));
    classes_init(p->tree);
    p->survival = survival_init(at, CLASS_COUNT, p->tree);
    at += round64(survival_mem_bytes(CLASS_COUNT));
    p->ghost = ghost_init(at, config->blocks_max);
    at += round64(ghost_mem_bytes(config->blocks_max));
    p->order = order_init(at, config->blocks_max, CLASS_BLOCKS, config->lists_max);
    p->common = p->news = 1;
    flow_init(&p->flow);
    p->victim = POLICY_NO_BLOCK;
    return p;
}

static uint32_t earlier(uint32_t time, uint64_t by)
{
    return time > by ? (uint32_t)(time - by) : 0;
}

/* Walks over all blocks and ghosts: a tenth of a second for ten million blocks, twice a year. */
static void begin_anew(struct policy *p, uint64_t by)
{
    p->base += by;
    ghost_earlier(p->ghost, by);
    order_earlier(p->order, by);
    shadow_earlier(&p->shadow, by);
    p->since = earlier(p->since, by);
    p->went = p->since > 0 ? p->went : 0; /* since 0: unknown */
    p->last = (struct expected){0};
}

static void set_now(struct policy *p, uint64_t now_ms)
{
    const uint64_t now = now_ms / GHOST_MS;
    if (now - p->base >= NOW_MAX)
        begin_anew(p, now - p->base - NOW_KEPT);
    p->now = (uint32_t)(now - p->base);
    p->now_ms = now * GHOST_MS;
}

static uint32_t time_of(const struct policy *p, uint64_t ms)
{
    const uint64_t time = ms / GHOST_MS;
    if (time < p->base)
        return 0;
    return time - p->base < UINT32_MAX ? (uint32_t)(time - p->base) : UINT32_MAX;
}

static uint64_t ms_of(uint32_t ticks)
{
    return (uint64_t)ticks * GHOST_MS;
}

static uint64_t at_ms(const struct policy *p, uint32_t time)
{
    return (p->base + time) * GHOST_MS;
}

/* ---- uses ---- */

/* The blocks of one request are used and evicted together, so they count as about one use. */
static float weight_of(const struct ghost *g)
{
    return 1.0f / (float)(1u << g->size);
}

static void use_ends(struct policy *p, const struct ghost *g, bool hit)
{
    survival_end(p->survival, g->class, weight_of(g), at_ms(p, g->used), p->now_ms, hit);
}

static void use_begins(struct policy *p, struct ghost *g, unsigned class)
{
    g->class = (uint16_t) class;
    g->used = p->now;
    survival_begin(p->survival, class, weight_of(g));
    flow_begins(&p->flow, class, p->in, p->now);
}

/* Uses of one class that began at the same time, as those of one request do: counted at once. */
struct run {
    unsigned class;
    uint32_t used;
    float weight;
};

static void run_ends(struct policy *p, struct run *run)
{
    if (run->weight > 0)
        survival_end(p->survival, run->class, run->weight, at_ms(p, run->used), p->now_ms, true);
    run->weight = 0;
}

static void run_begins(struct policy *p, struct run *run)
{
    if (run->weight > 0)
        survival_begin(p->survival, run->class, run->weight);
    run->weight = 0;
}

static bool is_of_run(const struct run *run, const struct ghost *g)
{
    return run->class == g->class && run->used == g->used;
}

static void run_add(struct run *run, const struct ghost *g)
{
    run->class = g->class;
    run->used = g->used;
    run->weight += weight_of(g);
}

static struct ghost *remember(struct policy *p, uint64_t hash)
{
    struct ghost gone;
    struct ghost *g = ghost_add(p->ghost, hash, p->now, &gone);
    if (gone.tag) {
        shadow_end(&p->shadow, &gone);
        use_ends(p, &gone, false);
    }
    return g;
}

/* ---- evicted new blocks ---- */

/* What is learned of new blocks is an average over all that is remembered, but it changes: at first
 * popular blocks come for their first time, later blocks that nobody wants again. So the hits
 * expected of evicted new blocks, within a part of a block's stay, are compared with those that
 * come. */
static bool is_news(unsigned class)
{
    return class < CLASS_FIRST + CLASS_NEWS;
}

static void look_at_news(struct policy *p)
{
    const float news = (p->hits + GONE_PRIOR) / (p->expected + GONE_PRIOR);
    p->news = news < NEWS_LEAST ? NEWS_LEAST : news > NEWS_MOST ? NEWS_MOST : news;
    if (p->hits + p->expected > GONE_WINDOW)
        p->hits *= 0.5f, p->expected *= 0.5f;
}

/* How long after its eviction a block's return counts. */
static float seen_for(const struct policy *p)
{
    return p->stay * STAY_SEEN;
}

/* Blocks of one request are mostly evicted together, so the last chance is kept. */
static float chance_of(struct policy *p, const struct ghost *g, uint32_t age)
{
    struct expected *e = &p->last;
    if (e->class != g->class || e->used != g->used || e->now != p->now)
        *e = (struct expected){.class = g->class,
                               .used = g->used,
                               .now = p->now,
                               .chance = survival_chance(p->survival, g->class, ms_of(age),
                                                         ms_of((uint32_t)seen_for(p)))};
    return e->chance;
}

/* How long a block stays, by Little's law: blocks in the cache by blocks evicted in a time. */
static void look_at_stay(struct policy *p)
{
    if (p->since == 0) {
        p->since = p->now;
        return;
    }
    if (++p->went <= p->in / STAY_PART)
        return;
    const float stay = (float)(p->now - p->since) * (float)p->in / (float)p->went;
    p->stay += (stay - p->stay) / STAY_MEAN;
    p->since = p->now;
    p->went = 0;
}

/* A block is evicted or refused. That counts once for a use, however often the block is offered. */
static void went(struct policy *p, struct ghost *g)
{
    if (!is_news(g->class) || g->gone != 0)
        return;
    const uint32_t unused = p->now > g->used ? p->now - g->used : 0;
    ghost_set_gone(g, unused > 0 ? unused : 1);
    p->expected += weight_of(g) * chance_of(p, g, unused);
    look_at_news(p);
}

/* A block leaves the cache: if it is the last victim, by eviction. */
static void goes(struct policy *p, uint32_t block)
{
    const struct order_node *n = order_node(p->order, block);
    if (block != p->victim)
        return;
    p->victim = POLICY_NO_BLOCK;
    look_at_stay(p);
    struct ghost *g = is_news(n->class) ? ghost_find(p->ghost, n->hash) : NULL;
    if (g)
        went(p, g);
}

static void is_back(struct policy *p, struct ghost *g)
{
    if (g->gone == 0)
        return;
    if (is_news(g->class) && (float)(p->now - g->used) <= (float)ghost_get_gone(g) + seen_for(p)) {
        p->hits += weight_of(g);
        look_at_news(p);
    }
    g->gone = 0;
}

/* ---- requests ---- */

/* A piece of a request, and the ghosts of its blocks; NULL: none. */
struct asked {
    const struct policy_request *r;
    uint32_t first, end; /* blocks of the piece */
    struct ghost *ghost[ASKED_MAX];
};

static void density_look_up(struct policy *p, struct asked *asked)
{
    const uint32_t all = asked->end - asked->first, n = all < ASKED_MAX ? all : ASKED_MAX;
    const uint64_t *hash = &asked->r->hash[asked->first];
    for (uint32_t i = 0; i < n && i < AHEAD; i++)
        ghost_prefetch(p->ghost, hash[i]);
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            ghost_prefetch(p->ghost, hash[i + AHEAD]);
        asked->ghost[i] = ghost_find(p->ghost, hash[i]);
    }
}

static struct ghost *ghost_asked(struct policy *p, const struct asked *asked, uint32_t i)
{
    const uint32_t k = i - asked->first;
    return k < ASKED_MAX ? asked->ghost[k] : ghost_find(p->ghost, asked->r->hash[i]);
}

/* The ghost of a block after others were added: it may have been overwritten, or be new (a block
 * that one request names twice). */
static struct ghost *ghost_now(struct policy *p, const struct asked *asked, uint32_t i)
{
    const uint64_t hash = asked->r->hash[i];
    const uint32_t k = i - asked->first;
    struct ghost *g = k < ASKED_MAX ? asked->ghost[k] : NULL;
    return g && ghost_is_of(g, hash) ? g : ghost_find(p->ghost, hash);
}

struct chain {
    unsigned class, tip; /* classes of its blocks, and of its last one */
    unsigned turn;
    unsigned size, shared; /* log2 */
};

static unsigned log2_of(uint32_t n)
{
    return 31u - (unsigned)__builtin_clz(n);
}

/* A block may be of two tokens or of 512, and prompts be short or long: how long what is new is, is
 * told beside what is usual. */
static unsigned length_of(const struct policy *p, unsigned news)
{
    const float length = p->length > 0 ? (float)news * LENGTH / p->length : (float)news;
    if (news == 0)
        return 0;
    return length < 1 ? 1 : length < LENGTH_MAX ? (unsigned)(length + 0.5f) : (unsigned)LENGTH_MAX;
}

static void learn_length(struct policy *p, unsigned news)
{
    if (p->length <= 0)
        p->length = (float)news;
    if (p->lengths < LENGTHS_MEAN)
        p->lengths++;
    p->length += ((float)news - p->length) / (LENGTHS_FIRST + p->lengths);
}

/* log2 of the blocks that count as one use, for shared blocks. A shared block teaches more than
 * others: four count as one use; of a long document, which is one thing, a quarter of its known
 * blocks. */
static unsigned shared_size(unsigned size, unsigned known)
{
    const unsigned log2 = known ? log2_of(known) : 0;
    const unsigned shared = log2 > 2 * SHARED_LOG2 ? log2 - SHARED_LOG2 : SHARED_LOG2;
    return size < shared ? size : shared;
}

/* State of a request between its pieces: all its blocks are looked at before one of them counts. */
struct told {
    bool looked;          /* all blocks were looked at; now each is used */
    bool no_lru, no_lru2; /* the prefix that LRU, LRU-2 would have had is over */
    uint32_t at;
    uint32_t known, lru, lru2;
    struct ghost deepest; /* ghost of the deepest known block, as it was */
    struct chain chain;   /* valid once `looked` */
};
_Static_assert(sizeof(struct told) <= sizeof(((struct policy_part *)NULL)->state),
               "policy_part.state holds it");

/* Counts the known blocks of a piece, and the leading ones that LRU and LRU-2 would have had. */
static void density_look_at(struct policy *p, const struct asked *asked, struct told *t)
{
    const struct ghost *deepest = NULL;
    if (t->at == 0)
        shadow_look(&p->shadow, p->in, p->now);
    for (; t->at < asked->end; t->at++) {
        const struct ghost *g = ghost_asked(p, asked, t->at);
        t->no_lru = t->no_lru || !g || !shadow_lru_has(&p->shadow, g);
        t->no_lru2 = t->no_lru2 || !g || !shadow_lru2_has(&p->shadow, g);
        t->lru += !t->no_lru;
        t->lru2 += !t->no_lru2;
        if (g) {
            deepest = g;
            t->known++;
        }
    }
    if (deepest)
        t->deepest = *deepest;
}

/* Classes of a request's blocks. It continues a chain if its known blocks are those of one earlier
 * request (but perhaps its last one), nobody else has used them, and the chain grows. */
static struct chain density_chain_of(struct policy *p, uint32_t n, const struct told *t)
{
    const struct ghost *deepest = &t->deepest;
    const unsigned known = t->known, news = n - known;
    struct chain c = {.turn = 1, .size = log2_of(n)};
    c.shared = shared_size(c.size, known);
    bool continued = known > 1 && deepest->left <= 1 && deepest->uses <= deepest->turn &&
                     deepest->uses < REPEATS;
    if (!continued && news > 0)
        learn_length(p, news);
    const unsigned length = length_of(p, news);
    if (continued) {
        c.turn = deepest->turn < UINT8_MAX ? deepest->turn + 1u : UINT8_MAX;
        c.class = class_next(length, c.turn, ms_of(ghost_gap(deepest, p->now, TURN_USES)));
    } else {
        c.class = class_first(known > 1, length);
    }
    c.tip = class_tip(continued, length);
    return c;
}

/* The chain's last block, asked for the first time; later it is full, or a chain by itself. */
static bool is_tip(const struct ghost *g)
{
    return g->left == 0 && g->uses == 1;
}

static unsigned class_of(const struct chain *c, const struct ghost *g)
{
    if (is_tip(g))
        return c->tip;
    return g->uses > c->turn ? class_shared(g->uses, ms_of(ghost_get_gap(g))) : c->class;
}

static unsigned gap_uses(const struct ghost *g)
{
    const unsigned part = g->uses / GAP_USES_PART;
    return part < GAP_USES ? GAP_USES : part < GAP_USES_MOST ? part : GAP_USES_MOST;
}

/* One use of block i: ends the use before it, and begins this one. */
static void use(struct policy *p, const struct chain *c, const struct asked *asked, uint32_t i,
                struct run *ended, struct run *begun)
{
    const uint32_t left = asked->r->n - 1 - i;
    struct ghost *g = ghost_now(p, asked, i);
    if (g) {
        shadow_end(&p->shadow, g);
        is_back(p, g);
        if (g->used == p->now) /* named twice by one request: it begins before it ends */
            run_begins(p, begun);
        if (!is_of_run(ended, g))
            run_ends(p, ended);
        run_add(ended, g);
        flow_is_back(&p->flow, g->class);
        ghost_set_gap(g, ghost_gap(g, p->now, gap_uses(g)));
    } else {
        g = remember(p, asked->r->hash[i]);
    }
    g->uses += g->uses < UINT8_MAX;
    g->turn = (uint8_t)c->turn;
    g->left = (left < GHOST_LEFT_MAX ? left : GHOST_LEFT_MAX) & GHOST_LEFT_MAX;
    g->size = (is_tip(g) ? 0 : g->uses > c->turn ? c->shared : c->size) & 31u;
    g->class = (uint16_t)class_of(c, g);
    g->used = p->now;
    shadow_begin(&p->shadow, g);
    if (!is_of_run(begun, g))
        run_begins(p, begun);
    run_add(begun, g);
    flow_begins(&p->flow, g->class, p->in, p->now);
}

/* Brings all that depends on time up to now. */
static void tick(struct policy *p, uint64_t now_ms)
{
    set_now(p, now_ms);
    survival_tick(p->survival, p->now_ms);
    shadow_tick(&p->shadow, p->now);
}

static void use_all(struct policy *p, const struct asked *asked, struct told *t)
{
    struct run ended = {0}, begun = {0};
    for (; t->at < asked->end; t->at++)
        use(p, &t->chain, asked, t->at, &ended, &begun);
    run_ends(p, &ended);
    run_begins(p, &begun);
}

/* Handles a piece of a request. True: another one follows. */
static bool density_hear(struct policy *p, const struct policy_request *r, struct told *t)
{
    const uint32_t left = r->n - t->at, most = r->part ? r->part->most : left;
    struct asked asked = {.r = r, .first = t->at, .end = t->at + (most < left ? most : left)};
    density_look_up(p, &asked);
    if (!t->looked) {
        density_look_at(p, &asked, t);
        if (t->at < r->n)
            return true;
        selector_request(&p->selector, r->hits, t->lru, t->lru2);
        t->chain = density_chain_of(p, r->n, t);
        t->looked = true;
        t->at = 0;
        if (asked.first > 0)
            return true;
    }
    use_all(p, &asked, t);
    return t->at < r->n;
}

static bool density_request(struct policy *p, const struct policy_request *r, uint64_t now_ms)
{
    struct told t = {0};
    if (r->part)
        memcpy(&t, r->part->state, sizeof t);
    tick(p, now_ms);
    for (unsigned i = 0; i < LEARN_EACH && t.at == 0 && !t.looked; i++)
        survival_learn(p->survival);
    if (r->n == 0)
        return false;
    const bool more = density_hear(p, r, &t);
    if (r->part)
        memcpy(r->part->state, &t, sizeof t);
    return more;
}

static void density_advise(struct policy *p, enum policy_advice advice, uint32_t within_ms,
                           const uint32_t *block, uint32_t n, uint64_t now_ms)
{
    (void)within_ms;
    tick(p, now_ms);
    for (uint32_t i = 0; i < n; i++) {
        struct order_node *node = order_node(p->order, block[i]);
        unsigned class = class_said(node->class, advice);
        struct ghost *g = ghost_find(p->ghost, node->hash);
        if (g) {
            survival_move(p->survival, g->class, class, weight_of(g), at_ms(p, g->used));
            g->class = (uint16_t) class;
        }
        order_out(p->order, block[i]);
        node->class = (uint16_t) class;
        if (node->state == ORDER_IN)
            order_young(p->order, block[i], p->now, p->common);
    }
}

/* ---- blocks ---- */

static bool has_value(const struct policy_hint *hint)
{
    return hint->saves > 0 && hint->bytes > 0;
}

static float value_of(const struct policy *p, const struct policy_hint *hint)
{
    return has_value(hint) ? (float)hint->saves / (float)hint->bytes : p->common;
}

static void learn_value(struct policy *p, const struct policy_hint *hint)
{
    if (!has_value(hint))
        return;
    if (p->values < VALUES_MEAN)
        p->values++;
    p->common += (value_of(p, hint) - p->common) / p->values;
}

/* A block that nobody asked for, such as a decoded one, has its parent's class. */
static unsigned class_unknown(const struct policy *p, const struct policy_hint *hint)
{
    const struct order_node *up =
        hint->parent == POLICY_NO_BLOCK ? NULL : order_node(p->order, hint->parent);
    return up && up->state != ORDER_UNKNOWN ? up->class : class_first(false, 1);
}

static struct ghost *unknown(struct policy *p, const struct policy_hint *hint)
{
    struct ghost *g = remember(p, hint->hash);
    g->uses = g->turn = 1;
    g->size = log2_of(hint->depth + 1) & 31u;
    use_begins(p, g, class_unknown(p, hint));
    shadow_begin(&p->shadow, g);
    return g;
}

static struct ghost *known(struct policy *p, const struct policy_hint *hint)
{
    struct ghost *g = ghost_find(p->ghost, hint->hash);
    return g ? g : unknown(p, hint);
}

/* order_node.gap of a block: packed; 0 if it was used once. */
static uint16_t gap_of(const struct ghost *g)
{
    return g->uses < 2 ? 0 : g->gap > 0 ? g->gap : 1;
}

static void density_prefetch(const struct policy *p, uint64_t hash)
{
    ghost_prefetch(p->ghost, hash);
}

static void density_insert(struct policy *p, uint32_t block, const struct policy_hint *hint,
                           uint64_t now_ms)
{
    tick(p, now_ms);
    struct order_node *n = order_node(p->order, block);
    struct ghost *g = known(p, hint);
    g->kept = true;
    p->in++;
    learn_value(p, hint);
    *n = (struct order_node){.hash = hint->hash,
                             .class = g->class,
                             .gap = gap_of(g),
                             .list = hint->list,
                             .used = time_of(p, hint->used_ms),
                             .value = value_of(p, hint)};
    if (hint->parent != POLICY_NO_BLOCK) {
        const struct order_node *up = order_node(p->order, hint->parent);
        if (up->state != ORDER_UNKNOWN && up->used < n->used)
            n->used = up->used;
        if (order_behind(p->order, block, hint->parent))
            return;
    }
    order_young(p->order, block, p->now, p->common);
}

static void density_touch(struct policy *p, uint32_t block, uint64_t now_ms)
{
    set_now(p, now_ms);
    struct order_node *n = order_node(p->order, block);
    if (n->state == ORDER_UNKNOWN)
        return;
    struct ghost *g = ghost_find(p->ghost, n->hash);
    order_out(p->order, block);
    if (g) {
        g->kept = true;
        n->class = g->class;
        n->gap = gap_of(g);
    }
    n->used = p->now;
    if (n->state == ORDER_IN)
        order_young(p->order, block, p->now, p->common);
}

static bool density_is_in(const struct order_node *n)
{
    return n->state == ORDER_IN || n->state == ORDER_ASIDE;
}

static void density_remove(struct policy *p, uint32_t block)
{
    struct order_node *n = order_node(p->order, block);
    if (n->state == ORDER_UNKNOWN)
        return;
    goes(p, block);
    struct ghost *g = ghost_find(p->ghost, n->hash);
    if (g)
        g->kept = false;
    p->in -= density_is_in(n);
    order_out(p->order, block);
    n->state = ORDER_UNKNOWN;
}

static void density_park(struct policy *p, uint32_t block)
{
    struct order_node *n = order_node(p->order, block);
    goes(p, block);
    order_out(p->order, block);
    p->in -= density_is_in(n);
    if (n->state != ORDER_UNKNOWN)
        n->state = ORDER_PARKED;
}

static void density_unpark(struct policy *p, uint32_t block, uint64_t now_ms)
{
    set_now(p, now_ms);
    if (order_node(p->order, block)->state != ORDER_PARKED)
        return;
    p->in++;
    order_young(p->order, block, p->now, p->common);
}

static void density_assign(struct policy *p, uint32_t block, uint8_t list, uint64_t now_ms)
{
    set_now(p, now_ms);
    struct order_node *n = order_node(p->order, block);
    if (n->state == ORDER_UNKNOWN)
        return;
    order_out(p->order, block);
    n->list = list;
    n->used = p->now;
    if (n->state == ORDER_IN)
        order_young(p->order, block, p->now, p->common);
}

/* A block that was put aside had reached the old end, so all blocks that stayed are younger. */
static void density_release(struct policy *p, uint32_t block, bool last)
{
    struct order_node *n = order_node(p->order, block);
    if (n->state != ORDER_ASIDE)
        return;
    if (last) {
        order_old(p->order, block, p->now, p->common);
        return;
    }
    n->used = p->now;
    order_young(p->order, block, p->now, p->common);
}

static uint32_t age_of(const struct order_node *n, uint32_t now)
{
    return now > n->used ? now - n->used : 0;
}

static float promised_at(const struct policy *p, const struct order_node *n, uint32_t now)
{
    const float news = is_news(n->class) ? p->news : 1;
    return survival_score(p->survival, n->class, ms_of(age_of(n, now))) * n->value * news;
}

static float worth_at(const void *ctx, const struct order_node *n, uint32_t now)
{
    const struct policy *p = ctx;
    return promised_at(p, n, now) * flow_part(&p->flow, n->class);
}

/* Worth of a block with its advice, by its worth without. */
static float advised(const struct policy *p, const struct order_node *n, uint32_t now)
{
    const unsigned unsaid = class_unsaid(n->class);
    const uint64_t age_ms = ms_of(age_of(n, now));
    if (unsaid == n->class)
        return 1;
    const float all = survival_score(p->survival, unsaid, age_ms);
    return all > 0 ? survival_score(p->survival, n->class, age_ms) / all : 1;
}

static float lru_at(const void *ctx, const struct order_node *n, uint32_t now)
{
    return advised(ctx, n, now) / ((float)age_of(n, now) + 1);
}

static float lru2_at(const void *ctx, const struct order_node *n, uint32_t now)
{
    const float age = (float)age_of(n, now) + 1;
    const float worth = n->gap == 0 ? ONCE / age : 1 / (age + (float)ghost_unpack_gap(n->gap));
    return worth * advised(ctx, n, now);
}

static order_worth_fn *order_by(const struct policy *p)
{
    static order_worth_fn *const orders[SELECTOR_ORDERS] = {
        [SELECTOR_LEARNED] = worth_at, [SELECTOR_LRU] = lru_at, [GUARD_LRU2] = lru2_at};
    return orders[p->selector.order];
}

/* Compares the worth that the block would have after density_insert(). A block that nobody asked
 * for gets a ghost too: a request for it soon teaches what such a store is worth. */
static bool density_admits(struct policy *p, const struct policy_hint *hint, uint32_t victim,
                           uint64_t now_ms)
{
    tick(p, now_ms);
    struct ghost *g = ghost_find(p->ghost, hint->hash);
    /* LRU-2 would admit no block that nobody asked for yet. */
    order_worth_fn *const worth = g ? order_by(p) : worth_at;
    if (!g)
        g = unknown(p, hint);
    const struct order_node n = {
        .class = g->class, .gap = gap_of(g), .used = p->now, .value = value_of(p, hint)};
    const float new = worth(p, &n, p->now), old = worth(p, order_node(p->order, victim), p->now);
    if (new >= old * ADMIT)
        return true;
    went(p, g);
    return false;
}

static uint32_t density_victim(struct policy *p, uint8_t list, uint64_t now_ms,
                               policy_can_evict_fn *can_evict, void *ctx)
{
    set_now(p, now_ms);
    for (;;) {
        uint32_t block = order_least(p->order, list, p->now, order_by(p), p);
        if (block == POLICY_NO_BLOCK || can_evict(ctx, block)) {
            p->victim = block;
            if (block != POLICY_NO_BLOCK)
                ghost_prefetch(p->ghost, order_node(p->order, block)->hash); /* evicted next */
            return block;
        }
        order_out(p->order, block);
        order_node(p->order, block)->state = ORDER_ASIDE;
    }
}

/* For a tier below: without flow_part(), which counts against the room of this one. */
static float density_worth(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    return promised_at(p, order_node(p->order, block), time_of(p, now_ms));
}

static float density_rank(const struct policy *p, uint32_t block, uint64_t now_ms)
{
    return worth_at(p, order_node(p->order, block), time_of(p, now_ms));
}

static float density_chance(const struct policy *p, uint32_t block, uint64_t for_ms,
                            uint64_t now_ms)
{
    const struct order_node *n = order_node(p->order, block);
    const float news = is_news(n->class) ? p->news : 1;
    const uint64_t age_ms = ms_of(age_of(n, time_of(p, now_ms)));
    const float chance = news * survival_chance(p->survival, n->class, age_ms, for_ms);
    return chance < 1 ? chance : 1;
}

const struct policy_ops policy_density = {
    .name = "density",
    .help = "expected hits per byte-second, learned",
    .mem_bytes = density_mem_bytes,
    .init = density_init,
    .insert = density_insert,
    .touch = density_touch,
    .remove = density_remove,
    .park = density_park,
    .unpark = density_unpark,
    .assign = density_assign,
    .release = density_release,
    .victim = density_victim,
    .worth = density_worth,
    .rank = density_rank,
    .chance = density_chance,
    .admits = density_admits,
    .prefetch = density_prefetch,
    .request = density_request,
    .advise = density_advise,
};
