/* SPDX-License-Identifier: Apache-2.0 */
#include "shadow.h"

#include <string.h>

#include "slots.h"

static struct shadow_slot *slot_of(struct shadow *s, uint32_t then)
{
    return &s->slot[slots_at(s->begin, s->slots, then)];
}

static void make_room(struct shadow *s, uint32_t now)
{
    const unsigned best = slots_merge(s->begin, s->slots, now);
    struct shadow_slot *a = &s->slot[best], *b = a + 1;
    a->once += b->once;
    a->twice += b->twice;
    a->before += b->before;
    memmove(b, b + 1, (s->slots - best - 2) * sizeof(*b));
    s->slots--;
}

void shadow_tick(struct shadow *s, uint32_t now)
{
    if (s->slots && now - s->begin[s->slots - 1] < SHADOW_TICKS)
        return;
    if (s->slots == SHADOW_SLOTS)
        make_room(s, now);
    s->slot[s->slots] = (struct shadow_slot){0};
    s->begin[s->slots] = s->slots ? now : 0; /* the first holds what is older than all, too */
    s->slots++;
}

static uint32_t before_of(const struct ghost *g)
{
    const uint32_t gap = ghost_get_gap(g);
    return g->used > gap ? g->used - gap : 0;
}

void shadow_begin(struct shadow *s, const struct ghost *g)
{
    struct shadow_slot *slot = slot_of(s, g->used);
    if (g->uses < 2) {
        slot->once++;
        return;
    }
    slot->twice++;
    slot_of(s, before_of(g))->before++;
}

void shadow_end(struct shadow *s, const struct ghost *g)
{
    struct shadow_slot *slot = slot_of(s, g->used);
    if (g->uses < 2) {
        slot->once--;
        return;
    }
    slot->twice--;
    slot_of(s, before_of(g))->before--;
}

/* A use in a slot where room ends is kept as far as there is room for its slot. */
struct edge {
    float since, room;
    bool full;
};

static void edge_pass(struct edge *e, float begin, float end, uint32_t n)
{
    if (e->full)
        return;
    if ((float)n > e->room) {
        e->since = end - (end - begin) * e->room / (float)n;
        e->room = 0;
        e->full = true;
        return;
    }
    e->room -= (float)n;
    e->since = begin;
}

void shadow_look(struct shadow *s, uint32_t room, uint32_t now)
{
    struct edge lru = {.room = (float)room}, twice = {.room = (float)room};
    float end = (float)now;
    for (unsigned i = s->slots; i-- > 0 && !(lru.full && twice.full);) {
        const struct shadow_slot *slot = &s->slot[i];
        const float begin = (float)s->begin[i];
        edge_pass(&lru, begin, end, slot->once + slot->twice);
        edge_pass(&twice, begin, end, slot->before);
        end = begin;
    }
    struct edge once = {.room = twice.room, .full = twice.full, .since = (float)now + 1};
    end = (float)now;
    for (unsigned i = s->slots; i-- > 0 && !once.full;) {
        const float begin = (float)s->begin[i];
        edge_pass(&once, begin, end, s->slot[i].once);
        end = begin;
    }
    s->lru = lru.since;
    s->twice = twice.since;
    s->once = once.since;
}

bool shadow_lru_has(const struct shadow *s, const struct ghost *g)
{
    return (float)g->used >= s->lru;
}

bool shadow_lru2_has(const struct shadow *s, const struct ghost *g)
{
    return g->uses < 2 ? (float)g->used >= s->once : (float)before_of(g) >= s->twice;
}
