/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Retention hints of clients (wishes): from a reservation, or for blocks that exist, to the levels
 * in policy/retain.h.
 */
#include "block.h"

/* Wishes that end in one step. */
#define WISH_STEP 1024u

/* ---- the wish of a block of a reservation ---- */

const char *wish_fault(const struct core_retention *r)
{
    if (r->n > KVC_RETAIN_MAX)
        return "retention: too many ranges";
    if (r->has_decode && r->decode.level > RETAIN_MAX)
        return "retention: priorities are 0 to 100";
    for (uint32_t i = 0; i < r->n; i++) {
        const struct core_range *x = &r->range[i];
        if (x->wish.level > RETAIN_MAX)
            return "retention: priorities are 0 to 100";
        if (x->end_token && x->end_token <= x->first_token)
            return "retention: a range ends before it begins";
    }
    return NULL;
}

bool wish_of(const struct core_reserve *in, uint32_t block_tokens, uint32_t i,
             struct core_wish *ret_wish)
{
    const struct core_retention *r = in->retention;
    if (!r)
        return false;
    if (in->decoded && r->has_decode) {
        *ret_wish = r->decode;
        return true;
    }
    const uint64_t first = in->first_token + (uint64_t)i * block_tokens;
    const uint32_t tokens = i == in->n - 1 && in->last_tokens ? in->last_tokens : block_tokens;
    for (uint32_t k = 0; k < r->n; k++) {
        const struct core_range *x = &r->range[k];
        if (x->first_token >= first + tokens || (x->end_token && x->end_token <= first))
            continue;
        *ret_wish = x->wish;
        return true;
    }
    return false;
}

/* ---- while a block is being written: its level, and how long ---- */

/* The parts of block.wish: one more than the level; a mark; the duration in units or, with the
 * mark, in 256 units; 0: for ever. */
#define WISH_LEVEL_SHIFT 25u
#define WISH_LONG        (1u << 24)
#define WISH_TIME_MASK   (WISH_LONG - 1)

static uint32_t wish_pack(const struct core_wish *w)
{
    const uint64_t ms = w->duration_ms;
    uint64_t units = ms / RETAIN_UNIT_MS + (ms % RETAIN_UNIT_MS != 0);
    uint32_t mark = 0;
    if (units > WISH_TIME_MASK) {
        units = MIN(units / 256 + 1, WISH_TIME_MASK);
        mark = WISH_LONG;
    }
    return (w->level + 1) << WISH_LEVEL_SHIFT | mark | (uint32_t)units;
}

static struct core_wish wish_unpack(uint32_t packed)
{
    const uint64_t units = packed & WISH_TIME_MASK;
    return (struct core_wish){.level = (packed >> WISH_LEVEL_SHIFT) - 1,
                              .duration_ms =
                                  units * RETAIN_UNIT_MS * (packed & WISH_LONG ? 256 : 1)};
}

/* Whether a is above b, as for two wishes with an end (core_retention). A wish without end is only
 * replaced by one that is above it. */
static bool wish_is_above(const struct core_wish *a, const struct core_wish *b)
{
    if (a->level != b->level)
        return a->level > b->level;
    return a->duration_ms == RETAIN_FOR_EVER ||
           (b->duration_ms != RETAIN_FOR_EVER && a->duration_ms > b->duration_ms);
}

/* ---- blocks ---- */

static uint64_t wish_end(const struct core *c, const struct core_wish *w)
{
    const uint64_t most = UINT64_MAX / 2;
    return w->duration_ms == RETAIN_FOR_EVER ? RETAIN_FOR_EVER
                                             : c->now_ms + MIN(w->duration_ms, most);
}

void wish_add(struct core *c, struct block *b, const struct core_wish *wish, bool set)
{
    if (b->state == BLOCK_PENDING) {
        const struct core_wish was = wish_unpack(b->wish);
        if (set || !b->wish || wish_is_above(wish, &was))
            b->wish = wish_pack(wish);
        return;
    }
    if (b->state == BLOCK_PRESENT)
        retain_wish(c->retain, block_no(c, b), wish->level, wish_end(c, wish), set, c->now_ms);
}

void wish_begin(struct core *c, struct block *b)
{
    const uint32_t packed = b->wish;
    b->disk = 0;
    if (!packed)
        return;
    const struct core_wish wish = wish_unpack(packed);
    retain_wish(c->retain, block_no(c, b), wish.level, wish_end(c, &wish), false, c->now_ms);
}

uint8_t wish_label(const struct core *c, const struct block *b)
{
    const uint32_t no = block_no(c, b);
    if (b->state == BLOCK_PENDING)
        return b->wish & (WISH_TIME_MASK | WISH_LONG) ? 0 : (uint8_t)(b->wish >> WISH_LEVEL_SHIFT);
    if (!retain_is_in(c->retain, no) || retain_base(c->retain, no) > RETAIN_MAX)
        return 0;
    return (uint8_t)(retain_base(c->retain, no) + 1);
}

bool wish_step(struct core *c)
{
    uint32_t ended;
    const bool more = retain_tick(c->retain, c->now_ms, WISH_STEP, &ended);
    c->m.wishes_ended += ended;
    return more;
}
