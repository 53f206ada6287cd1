/* SPDX-License-Identifier: Apache-2.0 */
#include "null_tier.h"

#include <stdlib.h>
#include <string.h>

#include "list.h"

#define SEGMENTS       64u
#define SEGMENT_BLOCKS 4096u
#define UNREADY        UINT32_MAX

enum place_state { PLACE_FREE, PLACE_TAKEN, PLACE_KEPT };

struct place {
    uint32_t block_no;
    uint8_t state; /* enum place_state */
};

struct log {
    struct place *place;
    uint32_t segment, segments;
    uint32_t head, end; /* head: next place to write in the open segment; end: the segment's end */
    /* next: the segment that is opened next; told: up to which place core was told of it. */
    uint32_t next, told;
    /* live: number of blocks in each segment; begin: where writing begins in it, or UNREADY. */
    uint32_t *live, *begin;
    uint64_t *written_ms; /* time of the last write to each segment, plus one; 0: never */
    uint32_t vain;        /* number of segments in a row that had no room when they were opened */
    uint64_t now_ms;
    uint64_t budget, granted; /* bytes */
    /* bounded: there is a budget; refused: there was no room, and events.room must be called. */
    bool bounded, refused;
    struct null_written written;
};

struct null_tier {
    struct tier tier;
    uint32_t slots, bytes, used;
    uint32_t high, n_free, *free; /* memory: numbers below `high` were given out before */
    struct tier_op *first, **end; /* submitted operations */
    struct log log;
};

static struct null_tier *of(const struct tier *t)
{
    return CONTAINER_OF((struct tier *)(uintptr_t)t, struct null_tier, tier);
}

/* ---- both ---- */

static void null_submit(struct tier *t, struct tier_op *op)
{
    struct null_tier *n = of(t);
    op->next = NULL;
    *n->end = op;
    n->end = &op->next;
}

static void null_set_label(struct tier *t, const struct tier_op *op)
{
    (void)t;
    (void)op;
}

static void null_invalidate(struct tier *t, struct tier_loc loc)
{
    (void)t;
    (void)loc;
}

static struct hash128 null_sum(const struct tier *t, struct tier_loc loc)
{
    (void)t;
    (void)loc;
    return (struct hash128){0};
}

static uint32_t null_slot_bytes(const struct tier *t, uint32_t bytes)
{
    (void)t;
    return bytes;
}

static void null_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct null_tier *n = of(t);
    const uint64_t limit = (uint64_t)n->slots * n->bytes;
    *ret = (struct tier_stats){.limit_bytes = limit,
                               .lasting_bytes = limit,
                               .used_bytes = (uint64_t)n->used * n->bytes,
                               .used_slots = n->used,
                               .mapped_bytes = limit};
}

static unsigned ops_run(struct null_tier *n)
{
    unsigned ended = 0;
    for (struct tier_op *op; (op = n->first); ended++) {
        n->first = op->next;
        if (!n->first)
            n->end = &n->first;
        op->status = 0;
        op->sum = (struct hash128){0};
        op->done(op);
    }
    return ended;
}

/* ---- memory ---- */

static int host_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                      uint32_t block_no, struct tier_loc *ret_loc)
{
    struct null_tier *n = of(t);
    (void)principal;
    (void)bytes;
    (void)beside;
    (void)block_no;
    if (n->used == n->slots)
        return KVC_E_NO_ROOM;
    n->used++;
    ret_loc->id = n->n_free ? n->free[--n->n_free] : ++n->high;
    return 0;
}

static void host_free(struct tier *t, struct tier_loc loc)
{
    struct null_tier *n = of(t);
    n->free[n->n_free++] = loc.id;
    n->used--;
}

static uint32_t host_evacuate(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                              tier_occupant_fn *each, void *ctx)
{
    (void)t;
    (void)principal;
    (void)bytes;
    (void)others;
    (void)each;
    (void)ctx;
    return 0;
}

static bool host_helps(const struct tier *t, struct tier_loc loc, uint32_t principal,
                       uint32_t bytes)
{
    (void)t;
    (void)loc;
    (void)principal;
    (void)bytes;
    return true;
}

static void host_view(const struct tier *t, struct tier_loc loc, struct tier_view *ret)
{
    (void)loc;
    *ret = (struct tier_view){.bytes = of(t)->bytes};
}

/* No payload exists, because nobody reads or writes it. */
static void *host_payload(const struct tier *t, struct tier_loc loc)
{
    (void)loc;
    return of(t)->free;
}

static const struct tier_ops host_ops = {
    .name = "null memory",
    .alloc = host_alloc,
    .free = host_free,
    .invalidate = null_invalidate,
    .submit = null_submit,
    .set_label = null_set_label,
    .sum = null_sum,
    .slot_bytes = null_slot_bytes,
    .stats = null_stats,
};

static const struct tier_memory_ops host_memory_ops = {
    .view = host_view,
    .evacuate = host_evacuate,
    .helps = host_helps,
    .payload = host_payload,
};

/* ---- a log ---- */

/* Most segments in a row that are emptied without any room gained. */
#define VAIN_MAX 4u

static uint32_t segment_end(const struct null_tier *n, uint32_t segment)
{
    const uint32_t end = (segment + 1) * n->log.segment;
    return end < n->slots ? end : n->slots;
}

static uint32_t room_left(const struct log *l)
{
    return l->end - l->head;
}

static bool next_is_ready(const struct log *l)
{
    return l->live[l->next] == 0 || l->begin[l->next] != UNREADY;
}

/* Opens the next segment, if it has been emptied. */
static bool log_advance(struct null_tier *n)
{
    struct log *l = &n->log;
    if (!next_is_ready(l))
        return false;
    if (l->live[l->next] == 0)
        l->begin[l->next] = 0;
    l->head = l->next * l->segment + l->begin[l->next];
    l->end = segment_end(n, l->next);
    l->begin[l->next] = UNREADY;
    l->written_ms[l->next] = l->now_ms + 1;
    l->next = (l->next + 1) % l->segments;
    l->told = l->next * l->segment;
    l->vain = room_left(l) ? 0 : l->vain + 1;
    return true;
}

static int log_alloc(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                     uint32_t block_no, struct tier_loc *ret_loc)
{
    struct null_tier *n = of(t);
    struct log *l = &n->log;
    (void)principal;
    (void)beside;
    if (l->bounded && l->budget < bytes)
        return KVC_E_BUSY;
    while (room_left(l) == 0)
        if (!log_advance(n)) {
            l->refused = true;
            return KVC_E_BUSY;
        }
    const uint32_t at = l->head++;
    l->place[at] = (struct place){.block_no = block_no, .state = PLACE_TAKEN};
    l->live[at / l->segment]++;
    l->budget -= l->bounded ? bytes : 0;
    l->written.first++;
    n->used++;
    *ret_loc = (struct tier_loc){at + 1};
    return 0;
}

static void place_free(struct null_tier *n, uint32_t at)
{
    n->log.place[at].state = PLACE_FREE;
    n->log.live[at / n->log.segment]--;
    n->used--;
}

static void log_free(struct tier *t, struct tier_loc loc)
{
    struct null_tier *n = of(t);
    struct log *l = &n->log;
    MUST(l->place[loc.id - 1].state != PLACE_FREE);
    if (l->place[loc.id - 1].state == PLACE_KEPT && l->bounded)
        l->budget += n->bytes;
    place_free(n, loc.id - 1);
}

static void log_kick(struct tier *t)
{
    (void)t;
}

static bool log_readable(const struct tier *t, struct tier_loc loc)
{
    (void)t;
    (void)loc;
    return true;
}

/* Whether a segment must be emptied: when the open one is nearly full. */
static bool log_wants_room(const struct log *l)
{
    return room_left(l) <= l->segment / 4 && !next_is_ready(l);
}

static uint32_t log_reclaim(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx)
{
    struct null_tier *n = of(t);
    struct log *l = &n->log;
    uint32_t told = 0;
    if (!log_wants_room(l))
        return 0;
    for (const uint32_t end = segment_end(n, l->next); l->told < end && told < max; l->told++) {
        if (l->place[l->told].state != PLACE_TAKEN)
            continue;
        told++;
        each(ctx, (struct tier_loc){l->told + 1}, l->place[l->told].block_no);
    }
    return told;
}

static bool log_keep(struct tier *t, struct tier_loc loc, uint32_t block_no)
{
    struct null_tier *n = of(t);
    struct log *l = &n->log;
    (void)block_no;
    if (l->vain >= VAIN_MAX || (l->bounded && l->budget < n->bytes))
        return false;
    l->budget -= l->bounded ? n->bytes : 0;
    l->place[loc.id - 1].state = PLACE_KEPT;
    return true;
}

/* Moves the kept blocks of the segment that is emptied to its beginning, once no other block is
 * left in it. */
static unsigned log_settle(struct null_tier *n)
{
    struct log *l = &n->log;
    const uint32_t begin = l->next * l->segment, end = segment_end(n, l->next);
    if (!log_wants_room(l) || l->told < end)
        return 0;
    for (uint32_t i = begin; i < end; i++)
        if (l->place[i].state == PLACE_TAKEN)
            return 0;
    uint32_t to = begin;
    for (uint32_t i = begin; i < end; i++) {
        if (l->place[i].state != PLACE_KEPT)
            continue;
        const uint32_t block_no = l->place[i].block_no;
        l->place[i].state = PLACE_FREE;
        l->place[to] = (struct place){.block_no = block_no, .state = PLACE_TAKEN};
        if (to++ != i)
            n->tier.events.moved(n->tier.events.ctx, block_no, (struct tier_loc){i + 1},
                                 (struct tier_loc){to});
    }
    l->written.again += to - begin;
    l->begin[l->next] = to - begin;
    return 1;
}

static unsigned log_tell_room(struct null_tier *n)
{
    struct log *l = &n->log;
    if (!l->refused || !next_is_ready(l))
        return 0;
    l->refused = false;
    n->tier.events.room(n->tier.events.ctx);
    return 1;
}

static bool log_admits(const struct tier *t, uint32_t bytes, uint64_t age_ms)
{
    (void)age_ms;
    return !of(t)->log.bounded || of(t)->log.budget >= bytes;
}

static uint64_t log_granted(struct tier *t)
{
    struct log *l = &of(t)->log;
    const uint64_t granted = l->granted;
    l->granted = 0;
    return l->bounded ? granted : UINT64_MAX;
}

static bool log_room_soon(const struct tier *t)
{
    return log_wants_room(&of(t)->log) || of(t)->log.refused;
}

static void log_stats(const struct tier *t, struct tier_stats *ret)
{
    const struct log *l = &of(t)->log;
    null_stats(t, ret);
    if (l->written_ms[l->next] > 0)
        ret->turn_ms = l->now_ms + 1 - l->written_ms[l->next];
}

static const struct tier_ops log_ops = {
    .name = "null log",
    .alloc = log_alloc,
    .free = log_free,
    .invalidate = null_invalidate,
    .submit = null_submit,
    .set_label = null_set_label,
    .sum = null_sum,
    .slot_bytes = null_slot_bytes,
    .stats = log_stats,
};

static const struct tier_storage_ops log_storage_ops = {
    .kick = log_kick,
    .readable = log_readable,
    .reclaim = log_reclaim,
    .keep = log_keep,
    .granted = log_granted,
    .admits = log_admits,
    .room_soon = log_room_soon,
};

void null_log_tick(struct null_tier *t, uint64_t now_ms)
{
    t->log.now_ms = now_ms;
}

void null_log_grant(struct null_tier *t, uint64_t bytes)
{
    struct log *l = &t->log;
    const bool was_short = l->budget < t->bytes;
    l->bounded = true;
    l->budget += bytes;
    l->granted += bytes;
    if (was_short && l->budget >= t->bytes && t->tier.events.room)
        t->tier.events.room(t->tier.events.ctx);
}

uint32_t null_log_segment(const struct null_tier *t)
{
    return t->log.segment;
}

struct null_written null_log_written(const struct null_tier *t)
{
    return t->log.written;
}

/* ---- both ---- */

unsigned null_tier_run(struct null_tier *t)
{
    unsigned done = ops_run(t);
    if (t->log.place) {
        done += log_settle(t);
        done += log_tell_room(t);
        done += log_wants_room(&t->log) && t->log.told < segment_end(t, t->log.next);
    }
    return done;
}

struct tier *null_tier_of(struct null_tier *t)
{
    return &t->tier;
}

void null_tier_destroy(struct null_tier **tier)
{
    if (!tier || !*tier)
        return;
    free((*tier)->free);
    free((*tier)->log.place);
    free((*tier)->log.live);
    free((*tier)->log.begin);
    free((*tier)->log.written_ms);
    free(*tier);
    *tier = NULL;
}

static struct null_tier *null_create(const struct tier *tier, uint32_t slots, uint32_t bytes)
{
    struct null_tier *n = calloc(1, sizeof(*n));
    if (!n)
        return NULL;
    n->tier = *tier;
    n->slots = slots;
    n->bytes = bytes;
    n->end = &n->first;
    return n;
}

struct null_tier *null_host_create(uint32_t slots, uint32_t block_bytes)
{
    const struct tier tier = {.ops = &host_ops, .memory = &host_memory_ops};
    struct null_tier *n = null_create(&tier, slots, block_bytes);
    if (n)
        n->free = malloc((slots ? slots : 1) * sizeof(*n->free));
    if (n && !n->free)
        null_tier_destroy(&n);
    return n;
}

struct null_tier *null_log_create(uint32_t places, uint32_t block_bytes)
{
    const struct tier tier = {.ops = &log_ops, .storage = &log_storage_ops};
    struct null_tier *n = null_create(&tier, places, block_bytes);
    if (!n)
        return NULL;
    struct log *l = &n->log;
    l->segment = places / SEGMENTS ? places / SEGMENTS : 1;
    if (l->segment > SEGMENT_BLOCKS)
        l->segment = SEGMENT_BLOCKS;
    l->segments = (places + l->segment - 1) / l->segment;
    l->place = calloc(places, sizeof(*l->place));
    l->live = calloc(l->segments, sizeof(*l->live));
    l->begin = malloc(l->segments * sizeof(*l->begin));
    l->written_ms = calloc(l->segments, sizeof(*l->written_ms));
    if (!l->place || !l->live || !l->begin || !l->written_ms) {
        null_tier_destroy(&n);
        return NULL;
    }
    memset(l->begin, 0xff, l->segments * sizeof(*l->begin));
    return n;
}
