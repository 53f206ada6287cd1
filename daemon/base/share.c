/* SPDX-License-Identifier: Apache-2.0 */
#include "share.h"

#include <stdlib.h>

#include "sys.h"

uint64_t share_each(uint64_t total, uint32_t holders)
{
    const uint64_t half = total / 2 / holders;
    return half > 0 ? half : MIN(total / holders, 1);
}

int share_create(struct share *s, uint64_t total, uint64_t each, uint32_t holders)
{
    MUST(holders > 0 && each <= total / holders);
    uint64_t *held = sys_calloc(holders, sizeof *held);
    if (!held)
        return -ENOMEM;
    *s = (struct share){
        .total = total, .each = each, .owed = each * holders, .holders = holders, .held = held};
    return 0;
}

void share_destroy(struct share *s)
{
    free(s->held);
    *s = (struct share){0};
}

/* How many units of its guarantee a holder with `held` units has not taken. */
static uint64_t lacks(const struct share *s, uint64_t held)
{
    return s->each > held ? s->each - held : 0;
}

uint64_t share_left(const struct share *s, uint32_t holder)
{
    MUST(holder < s->holders);
    const uint64_t left = s->total - MIN(s->total, s->used);
    return MIN(left, lacks(s, s->held[holder]) + left - MIN(left, s->owed));
}

void share_charge(struct share *s, uint32_t holder, uint64_t n)
{
    const uint64_t held = s->held[holder];
    s->owed = s->owed - lacks(s, held) + lacks(s, held + n);
    s->held[holder] += n;
    s->used += n;
}

bool share_take(struct share *s, uint32_t holder, uint64_t n)
{
    if (n > share_left(s, holder))
        return false;
    share_charge(s, holder, n);
    return true;
}

void share_give(struct share *s, uint32_t holder, uint64_t n)
{
    MUST(holder < s->holders && n <= s->held[holder]);
    const uint64_t held = s->held[holder];
    s->owed = s->owed - lacks(s, held) + lacks(s, held - n);
    s->held[holder] -= n;
    s->used -= n;
}

void *share_get(struct share *s, uint32_t holder, struct pool *pool)
{
    if (!share_take(s, holder, 1))
        return NULL;
    void *obj = pool_get(pool);
    if (!obj)
        share_give(s, holder, 1);
    return obj;
}

void share_put(struct share *s, uint32_t holder, struct pool *pool, void *obj)
{
    share_give(s, holder, 1);
    pool_put(pool, obj);
}
