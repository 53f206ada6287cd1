/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The write budget of storage: tokens are bytes, refilled by the wall clock and kept in the
 * journal. While half of what can be saved up is there, everything may be written. Below that only
 * blocks younger than an age may be; the age falls while tokens run out, and rises while they
 * gather.
 */
#include "cursor.h"
#include "nvme__.h"

#define DAY_S      UINT64_C(86400)
#define SECOND_NS  UINT64_C(1000000000)
#define AGE_MAX_MS (30 * DAY_S * 1000)
#define AGE_MIN_MS UINT64_C(100)
#define AWAY_MAX_S (8 * DAY_S) /* most seconds that one refill counts: they fill any bucket */

static int64_t burst(const struct nvme *n)
{
    return (int64_t)n->c.write_burst;
}

static void refill(struct nvme *n)
{
    struct nvme_budget *b = &n->budget;
    if (n->wall_ns < b->wall_ns) { /* the clock was set back: no tokens for that time */
        b->wall_ns = n->wall_ns;
        return;
    }
    const uint64_t s = (n->wall_ns - b->wall_ns) / SECOND_NS;
    if (s == 0)
        return;
    const uint64_t counted = s < AWAY_MAX_S ? s : AWAY_MAX_S, rate = n->c.write_per_day;
    const uint64_t more = rate / DAY_S * counted + rate % DAY_S * counted / DAY_S;
    b->wall_ns += s * SECOND_NS;
    const int64_t before = b->tokens;
    b->tokens = more > (uint64_t)burst(n) || b->tokens + (int64_t)more > burst(n)
                    ? burst(n)
                    : b->tokens + (int64_t)more;
    b->granted += (uint64_t)(b->tokens - before);
    if (n->wall_ns < b->day_ns || n->wall_ns - b->day_ns >= DAY_S * SECOND_NS) {
        b->day_ns = n->wall_ns;
        b->spent = 0;
    }
}

void nvme__budget_start(struct nvme *n, bool fresh)
{
    n->budget = (struct nvme_budget){.tokens = fresh ? burst(n) : 0,
                                     .granted = fresh ? (uint64_t)burst(n) : 0,
                                     .wall_ns = n->wall_ns,
                                     .day_ns = n->wall_ns,
                                     .age_max_ms = DAY_S * 1000,
                                     .step_ns = n->now_ns};
}

int nvme__budget_load(struct nvme *n, const void *value, uint32_t bytes)
{
    struct cursor c;
    struct nvme_budget b = n->budget;
    cursor_init(&c, value, bytes);
    b.tokens = (int64_t)cursor_u64le(&c);
    b.wall_ns = cursor_u64le(&c);
    b.day_ns = cursor_u64le(&c);
    b.spent = cursor_u64le(&c);
    if (!cursor_ok(&c) || cursor_left(&c) != 0)
        return -EUCLEAN;
    b.tokens = MIN(b.tokens, burst(n));
    b.granted = b.tokens > 0 ? (uint64_t)b.tokens : 0;
    n->budget = b;
    if (n->c.write_per_day != 0)
        refill(n);
    return 0;
}

uint32_t nvme__budget_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES])
{
    struct wcursor w;
    wcursor_init(&w, ret_value, NVME_VALUE_BYTES);
    wcursor_put_u64le(&w, (uint64_t)n->budget.tokens);
    wcursor_put_u64le(&w, n->budget.wall_ns);
    wcursor_put_u64le(&w, n->budget.day_ns);
    wcursor_put_u64le(&w, n->budget.spent);
    MUST(wcursor_ok(&w));
    return (uint32_t)wcursor_len(&w);
}

void nvme__budget_spend(struct nvme *n, uint64_t bytes)
{
    n->budget.spent += bytes;
    if (n->c.write_per_day == 0)
        return;
    n->budget.tokens -= (int64_t)bytes;
    n->budget.changed = true;
}

void nvme__budget_tick(struct nvme *n)
{
    struct nvme_budget *b = &n->budget;
    if (n->c.write_per_day == 0)
        return;
    const int64_t before = b->tokens;
    refill(n);
    if (before < burst(n) / 2 && b->tokens >= burst(n) / 2)
        n->tell_room = true;
    for (; n->now_ns - b->step_ns >= SECOND_NS; b->step_ns += SECOND_NS) {
        if (n->now_ns - b->step_ns > 3600 * SECOND_NS)
            b->step_ns = n->now_ns - 3600 * SECOND_NS;
        if (b->tokens < burst(n) / 4)
            b->age_max_ms = MAX(b->age_max_ms - b->age_max_ms / 8, AGE_MIN_MS);
        else if (b->tokens > burst(n) / 2)
            b->age_max_ms = MIN(b->age_max_ms + b->age_max_ms / 8, AGE_MAX_MS);
    }
}

uint64_t nvme__budget_next(const struct nvme *n)
{
    if (n->c.write_per_day == 0 || n->budget.tokens >= burst(n))
        return UINT64_MAX;
    return n->budget.step_ns + SECOND_NS;
}

uint64_t nvme__granted(struct tier *t)
{
    struct nvme *n = nvme__of(t);
    if (n->c.write_per_day == 0)
        return UINT64_MAX;
    const uint64_t granted = n->budget.granted;
    n->budget.granted = 0;
    return granted;
}

bool nvme__admits(const struct tier *t, uint32_t bytes, uint64_t age_ms)
{
    struct nvme *n = nvme__of(t);
    const uint32_t pages = nvme__pages(bytes);
    if (n->stopping || n->journal_error != 0 || !nvme__put_fits(n, pages))
        return false;
    if (n->c.write_per_day == 0 || n->budget.tokens >= burst(n) / 2)
        return true;
    if (n->budget.tokens > (int64_t)bytes && age_ms <= n->budget.age_max_ms)
        return true;
    n->m.budget_refused++;
    return false;
}
