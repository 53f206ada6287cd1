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

/* What the promise still covers for one who holds this much. */
static uint64_t lacks(const struct share *s, uint64_t held)
{
    return s->each > held ? s->each - held : 0;
}

bool share_take(struct share *s, uint32_t holder, uint64_t n)
{
    MUST(holder < s->holders);
    const uint64_t held = s->held[holder];
    if (n > s->total - s->used)
        return false;
    const uint64_t owed = s->owed - lacks(s, held) + lacks(s, held + n);
    if (s->total - s->used - n < owed)
        return false;
    s->held[holder] += n;
    s->used += n;
    s->owed = owed;
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
