/* SPDX-License-Identifier: Apache-2.0 */
#include "admit.h"
#include "cases.h"

static struct admit a;
static struct quantile q;
static uint64_t r;

static void setup(void)
{
    r = 88172645463325252u;
}

static float draw(void)
{
    r ^= r << 13, r ^= r >> 7, r ^= r << 17;
    return (float)(r >> 40) / (float)(1u << 24);
}

static bool near(double value, double want, double by)
{
    return value > want - by && value < want + by;
}

/* ---- quantile ---- */

CASES(.setup = setup);

CASE(the_upper_part_is_above)
{
    quantile_init(&q, 0.75f);
    for (unsigned i = 0; i < QUANTILE_WINDOW; i++)
        quantile_add(&q, (float)(i * 389 % QUANTILE_WINDOW)); /* 0 to 2047, shuffled */
    ck_assert(!quantile_above(&q, 1535));
    ck_assert(quantile_above(&q, 1536));
}

/* Worths may be spread over many orders of magnitude, or all below 0. */
CASE(only_the_order_of_values_counts)
{
    quantile_init(&q, 0.5f);
    for (unsigned i = 0; i < QUANTILE_WINDOW; i++)
        quantile_add(&q, i % 2 ? -1e30f : -1e-30f);
    ck_assert(!quantile_above(&q, -1e29f));
    ck_assert(quantile_above(&q, -1e-31f));
}

CASE(of_equal_values_the_right_part_is_above)
{
    quantile_init(&q, 0.7f);
    unsigned above = 0;
    for (unsigned i = 0; i < 10000; i++) {
        quantile_add(&q, 3);
        above += quantile_above(&q, 3);
    }
    ck_assert(near(above, 3000, 50));
}

CASE(old_values_are_forgotten)
{
    quantile_init(&q, 0.5f);
    for (unsigned i = 0; i < 3 * QUANTILE_WINDOW; i++)
        quantile_add(&q, 1000 + draw());
    for (unsigned i = 0; i < QUANTILE_WINDOW; i++)
        quantile_add(&q, draw());
    ck_assert(quantile_above(&q, 0.6f));
    ck_assert(!quantile_above(&q, 0.4f));
}

CASE(all_or_nothing)
{
    quantile_init(&q, 0);
    quantile_add(&q, 5);
    ck_assert(quantile_above(&q, -5));
    quantile_init(&q, 1);
    ck_assert(quantile_above(&q, 5)); /* while nothing is known */
    quantile_add(&q, 5);
    ck_assert(!quantile_above(&q, 6));
}

/* ---- admission ---- */

CASE(without_a_budget_everything_is_written)
{
    admit_init(&a, 80);
    unsigned written = 0;
    for (unsigned i = 0; i < 10000; i++)
        written += admit_write(&a, draw(), 1, 4096, false);
    ck_assert_uint_eq(written, 10000);
}

CASE(a_budget_goes_to_what_is_worth_most)
{
    admit_init(&a, 80);
    unsigned written = 0, good = 0;
    for (unsigned i = 0; i < 100000; i++) {
        const float worth = draw();
        admit_grant(&a, 0.25f * 4096);
        if (!admit_write(&a, worth, 1, 4096, false))
            continue;
        written++;
        good += worth > 0.75f;
    }
    ck_assert_msg(near(written, 25000, 500), "%u", written);
    ck_assert_msg(good > written * 9 / 10, "%u of %u", good, written);
}

CASE(what_must_be_written_is_paid_for_first)
{
    admit_init(&a, 80);
    unsigned written = 0, must = 0;
    for (unsigned i = 0; i < 100000; i++) {
        const bool is = draw() < 0.2f;
        admit_grant(&a, 0.4f * 4096);
        written += admit_write(&a, draw(), 1, 4096, is);
        must += is;
    }
    ck_assert_msg(near(written, 40000, 800), "%u", written);
    ck_assert_uint_gt(written, must);
}

CASE(what_reclaim_writes_is_taken_off)
{
    admit_init(&a, 80);
    unsigned written = 0, kept = 0;
    for (unsigned i = 0; i < 100000; i++) {
        admit_grant(&a, 0.5f * 4096);
        admit_sample(&a, draw());
        written += admit_write(&a, draw(), 1, 4096, false);
        kept += admit_keep(&a, draw(), 1, 4096, false);
    }
    ck_assert_msg(near(kept, 20000, 1000), "%u", kept);
    ck_assert_msg(near(written + kept, 50000, 1000), "%u", written + kept);
}

CASE(reclaim_alone_does_not_exceed_the_budget)
{
    admit_init(&a, 0);
    unsigned written = 0;
    for (unsigned i = 0; i < 100000; i++) {
        admit_grant(&a, 0.1f * 4096);
        admit_sample(&a, draw());
        written += admit_write(&a, draw(), 1, 4096, false);
        written += admit_keep(&a, draw(), 1, 4096, false);
    }
    ck_assert_msg(near(written, 10000, 1000), "%u", written);
}

CASE(a_budget_that_is_not_used_buys_no_flood_later)
{
    admit_init(&a, 80);
    for (unsigned i = 0; i < 100000; i++)
        admit_grant(&a, 4096);
    unsigned written = 0;
    for (unsigned i = 0; i < 100000; i++) {
        admit_grant(&a, 0.1f * 4096);
        written += admit_write(&a, draw(), 1, 4096, false);
    }
    ck_assert_msg(written < 20000, "%u", written);
}

/* However little the rest is worth. */
CASE(what_promises_no_hit_is_not_written)
{
    unsigned written = 0, kept = 0;
    admit_init(&a, 45);
    for (unsigned i = 0; i < 1000; i++) {
        admit_sample(&a, draw());
        written += admit_write(&a, 1 + draw(), 0.9f * ADMIT_CHANCE, 4096, false);
        kept += admit_keep(&a, 1 + draw(), 0.9f * ADMIT_CHANCE, 4096, false);
    }
    ck_assert_uint_eq(written, 0);
    ck_assert_uint_eq(kept, 0);
    ck_assert(admit_write(&a, 0, 0, 4096, true));
    ck_assert(admit_keep(&a, 0, 0, 4096, true));
    ck_assert(admit_write(&a, 0, ADMIT_CHANCE, 4096, false));
    ck_assert(admit_keep(&a, 2, ADMIT_CHANCE, 4096, false));
}
