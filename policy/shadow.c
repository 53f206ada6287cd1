/* SPDX-License-Identifier: Apache-2.0 */
#include "shadow.h"

#include <string.h>

static struct shadow_slot *slot_at(struct shadow *s, uint32_t then, struct shadow_found *last)
{
    if (then >= s->slot[s->slots - 1].begin)
        return &s->slot[s->slots - 1];
    if (then == last->then)
        return &s->slot[last->at];
    unsigned low = 0, high = s->slots - 1;
    while (high - low > 1) {
        const unsigned mid = (low + high) / 2;
        if (s->slot[mid].begin <= then)
            low = mid;
        else
            high = mid;
    }
    *last = (struct shadow_found){.then = then, .at = low};
    return &s->slot[low];
}

/* Makes one slot of the two neighbours that are narrowest for their age. */
static void slots_merge(struct shadow *s, uint32_t now)
{
    unsigned best = 0;
    float least = 3e38f;
    for (unsigned i = 0; i + 2 < s->slots; i++) {
        const float width = (float)(s->slot[i + 2].begin - s->slot[i].begin);
        const float rel = width / (float)(now - s->slot[i].begin + 1);
        if (rel < least)
            least = rel, best = i;
    }
    struct shadow_slot *a = &s->slot[best], *b = a + 1;
    a->once += b->once;
    a->twice += b->twice;
    a->before += b->before;
    memmove(b, b + 1, (s->slots - best - 2) * sizeof(*b));
    s->slots--;
    s->used = s->before = s->new_before = (struct shadow_found){0}; /* time 0 is of the first */
}

void shadow_tick(struct shadow *s, uint32_t now)
{
    if (s->slots && now - s->slot[s->slots - 1].begin < SHADOW_TICKS)
        return;
    if (s->slots == SHADOW_SLOTS)
        slots_merge(s, now);
    /* The first holds what is older than all, too. */
    s->slot[s->slots] = (struct shadow_slot){.begin = s->slots ? now : 0};
    s->slots++;
}

static uint32_t before_of(const struct ghost *g)
{
    const uint32_t gap = ghost_get_gap(g);
    return g->used > gap ? g->used - gap : 0;
}

void shadow_begin(struct shadow *s, const struct ghost *g)
{
    struct shadow_slot *slot = slot_at(s, g->used, &s->used);
    if (g->uses < 2) {
        slot->once++;
        return;
    }
    slot->twice++;
    slot_at(s, before_of(g), &s->new_before)->before++;
}

void shadow_end(struct shadow *s, const struct ghost *g)
{
    struct shadow_slot *slot = slot_at(s, g->used, &s->used);
    if (g->uses < 2) {
        slot->once--;
        return;
    }
    slot->twice--;
    slot_at(s, before_of(g), &s->before)->before--;
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
        const float begin = (float)slot->begin;
        edge_pass(&lru, begin, end, slot->once + slot->twice);
        edge_pass(&twice, begin, end, slot->before);
        end = begin;
    }
    struct edge once = {.room = twice.room, .full = twice.full, .since = (float)now + 1};
    end = (float)now;
    for (unsigned i = s->slots; i-- > 0 && !once.full;) {
        const float begin = (float)s->slot[i].begin;
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
