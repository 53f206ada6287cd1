/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts blocks by the time of their last use and of the use before, so that policy `density` knows
 * what LRU and LRU-2 would hit without keeping their lists. shadow_look() finds the two times since
 * when each of them would have kept everything.
 */
#include "shadow.h"

#include <string.h>

#include "slots.h"

static unsigned shadow_slot_of(const struct shadow *s, uint32_t then)
{
    return slots_at(s->begin, s->slots, then);
}

static void shadow_merge(uint32_t *count, unsigned best, unsigned slots)
{
    count[best] += count[best + 1];
    memmove(&count[best + 1], &count[best + 2], (slots - best - 2) * sizeof(*count));
}

/* The counts of slot `best` and the next, which have become one. */
static void merge_counts(struct shadow *s, unsigned best)
{
    shadow_merge(s->used, best, s->slots);
    shadow_merge(s->once, best, s->slots);
    shadow_merge(s->before, best, s->slots);
    s->slots--;
}

void shadow_tick(struct shadow *s, uint32_t now)
{
    if (s->slots && now - s->begin[s->slots - 1] < SHADOW_TICKS)
        return;
    if (s->slots == SHADOW_SLOTS)
        merge_counts(s, slots_merge(s->begin, s->slots, now));
    s->used[s->slots] = s->once[s->slots] = s->before[s->slots] = 0;
    s->begin[s->slots] = s->slots ? now : 0; /* the first holds what is older than all, too */
    s->slots++;
}

void shadow_earlier(struct shadow *s, uint64_t by)
{
    while (s->slots > 1 && s->begin[1] <= by) {
        memmove(&s->begin[1], &s->begin[2], (s->slots - 2) * sizeof(s->begin[0]));
        merge_counts(s, 0);
    }
    for (unsigned i = 1; i < s->slots; i++)
        s->begin[i] -= by;
}

static uint32_t before_of(const struct ghost *g)
{
    const uint32_t gap = ghost_get_gap(g);
    return g->used > gap ? g->used - gap : 0;
}

void shadow_begin(struct shadow *s, const struct ghost *g)
{
    const unsigned slot = shadow_slot_of(s, g->used);
    s->used[slot]++;
    if (g->uses < 2)
        s->once[slot]++;
    else
        s->before[shadow_slot_of(s, before_of(g))]++;
}

void shadow_end(struct shadow *s, const struct ghost *g)
{
    const unsigned slot = shadow_slot_of(s, g->used);
    s->used[slot]--;
    if (g->uses < 2)
        s->once[slot]--;
    else
        s->before[shadow_slot_of(s, before_of(g))]--;
}

/* Since when as many were used as there is room for; what room is left, if that is all. A slot
 * where room ends is kept in part. */
static uint32_t look_back(const struct shadow *s, const uint32_t *used, uint32_t now,
                          uint32_t *room)
{
    unsigned i = s->slots;
    while (i > 0 && used[i - 1] <= *room)
        *room -= used[--i];
    if (i == 0)
        return 0;
    const uint64_t end = i < s->slots ? s->begin[i] : now, begin = s->begin[i - 1];
    const float width = (float)(int64_t)(end - begin);
    const uint64_t part = (uint64_t)(int64_t)(width * (float)*room / (float)used[i - 1]);
    *room = 0;
    return (uint32_t)(end - part);
}

void shadow_look(struct shadow *s, uint32_t room, uint32_t now)
{
    uint32_t left = room;
    s->since_lru = look_back(s, s->used, now, &left);
    left = room;
    s->since_twice = look_back(s, s->before, now, &left);
    s->since_once = left > 0 ? look_back(s, s->once, now, &left) : now + 1;
}

bool shadow_lru_has(const struct shadow *s, const struct ghost *g)
{
    return g->used >= s->since_lru;
}

bool shadow_lru2_has(const struct shadow *s, const struct ghost *g)
{
    return g->uses < 2 ? g->used >= s->since_once : before_of(g) >= s->since_twice;
}
