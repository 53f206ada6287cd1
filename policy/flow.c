/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lowers the worth of kinds of uses that stream through the cache and do not return: flow_begins()
 * and flow_is_back() count, flow_part() is the factor that policy `density` multiplies worth with.
 */
#include "flow.h"

#include "ghost.h"

/* Counts are halved when twice as many uses have begun: a part of the room, and at least LEAST. */
#define ROOM_PART 16u
#define LEAST     8u
/* Where a smaller part than this comes back, worth falls with its square: a scan of as much as
 * there is room for halves the part 16 times. It does not fall so far that what is worth less than
 * other blocks of its kind could not be told any more. */
#define FEW      0.0065f
#define PART_MIN 1e-3f
#define QUIET    (600u * 1000 / GHOST_MS)

static void flow_forget(struct flow *f, unsigned i)
{
    f->begun[i] = f->back[i] = 1;
}

void flow_init(struct flow *f)
{
    for (unsigned i = 0; i < CLASS_FLOWS; i++)
        flow_forget(f, i);
    for (unsigned c = 0; c < CLASS_BLOCKS; c++)
        f->of[c] = (uint8_t)class_flow(c);
}

void flow_is_back(struct flow *f, unsigned class)
{
    const unsigned i = f->of[class];
    if (f->back[i] < f->begun[i])
        f->back[i]++;
}

void flow_begins(struct flow *f, unsigned class, uint32_t room, uint32_t now)
{
    const unsigned i = f->of[class];
    const uint32_t most = room / ROOM_PART > LEAST ? room / ROOM_PART : LEAST;
    if (now - f->last[i] > QUIET)
        flow_forget(f, i);
    f->last[i] = now;
    if (++f->begun[i] < 2 * (float)most)
        return;
    f->begun[i] *= 0.5f;
    f->back[i] *= 0.5f;
}

float flow_part(const struct flow *f, unsigned class)
{
    const unsigned i = f->of[class];
    const float part = f->back[i] / (f->begun[i] * FEW);
    if (part >= 1)
        return 1;
    return part > PART_MIN ? part * part : PART_MIN * PART_MIN;
}
