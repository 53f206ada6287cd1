/* SPDX-License-Identifier: Apache-2.0 */
/* Life tables of uses, and the time between them. */
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "ghost.h"
#include "survival.h"

#define LITTLE 1e-3f /* uses that what is believed counts for: as good as none */

/* Two classes that differ by four buckets in how fast all goes, four times, and the one above. */
enum { QUICK, SLOW, ABOVE, CLASSES };

static const struct survival_class tree[CLASSES] = {
    [QUICK] = {.above = ABOVE,
               .beside = SURVIVAL_NONE,
               .factor = 1,
               .late = 1,
               .later = 1,
               .strength = LITTLE},
    [SLOW] = {.above = ABOVE,
              .beside = SURVIVAL_NONE,
              .factor = 1,
              .late = 1,
              .later = 1,
              .strength = LITTLE,
              .shift = -4},
    [ABOVE] = {.above = SURVIVAL_NONE,
               .beside = SURVIVAL_NONE,
               .factor = 1,
               .late = 1,
               .later = 1,
               .strength = LITTLE},
};

static struct survival *s;

static void *zeroed(size_t bytes)
{
    bytes = (bytes + 63) / 64 * 64;
    void *mem = aligned_alloc(64, bytes);
    ck_assert_ptr_nonnull(mem);
    return memset(mem, 0, bytes);
}

static void begin(const struct survival_class *classes)
{
    s = survival_init(zeroed(survival_mem_bytes(CLASSES)), CLASSES, classes);
}

static void setup(void)
{
    begin(tree);
}

static void teardown(void)
{
    free(s);
}

static void learn(void)
{
    for (unsigned i = 0; i < 2 * CLASSES; i++)
        survival_learn(s);
}

/* Every second one of two uses begins that is hit `after_ms` later, or never. */
static void live(unsigned class, unsigned seconds, unsigned after_ms, bool every)
{
    const uint64_t step = 1000;
    for (uint64_t i = 0; i < seconds; i++) {
        const uint64_t now = i * step;
        survival_tick(s, now);
        const uint64_t then = now - after_ms;
        if (now >= after_ms && (every || (then / step) % 2 == 0))
            survival_end(s, class, 1, then, now, true);
        survival_begin(s, class, 1);
    }
    learn();
}

static void expect_hbm(float is, float want, const char *what)
{
    ck_assert_msg(is > want * 0.75f && is < want * 1.35f, "%s: %g, not about %g", what, (double)is,
                  (double)want);
}

CASES(.setup = setup, .teardown = teardown);

/* Half of them are hit at 4 s, so a second of keeping is worth 1/8 until then. There are more
 * seconds than slots: those of old ones are merged, and used again. */
CASE(uses_are_counted_once_however_old_they_grow)
{
    live(QUICK, 2000, 4000, false);
    expect_hbm(survival_score(s, QUICK, 0), 0.125f, "at first");
    const float late = survival_score(s, QUICK, 30000);
    ck_assert_msg(late < 1e-4f, "of those that were not hit at 4 s: %g", (double)late);
}

CASE(the_chance_of_a_hit_grows_with_the_time_that_it_is_given)
{
    live(QUICK, 2000, 4000, false);
    expect_hbm(survival_chance(s, QUICK, 0, 8000), 0.5f, "until 8 s");
    ck_assert(survival_chance(s, QUICK, 0, 2000) < 0.05f);
    ck_assert(survival_chance(s, QUICK, 8000, 60000) < 0.05f);
    ck_assert(survival_chance(s, QUICK, 1000, 0) <= 0);
    const float year = survival_chance(s, QUICK, 0, UINT64_C(365) * 24 * 3600 * 1000);
    ck_assert(year >= survival_chance(s, QUICK, 0, 8000) && year <= 1);
}

/* A thousand that are never hit, among some that are hit at 4 s: when the slots begin to be used
 * again they still are a thousand. */
CASE(slots_are_counted_apart)
{
    survival_tick(s, 0);
    survival_begin(s, QUICK, 1000);
    live(QUICK, 120, 4000, true);
    expect_hbm(survival_score(s, QUICK, 0), 120.0f / 1120 / 4, "at first");
}

CASE(a_class_that_nobody_saw_yet_is_like_the_one_above_in_its_own_time)
{
    live(QUICK, 600, 4000, true);
    survival_begin(s, SLOW, 1);
    learn();
    expect_hbm(survival_score(s, QUICK, 0), 0.25f, "what comes back in 4 s");
    expect_hbm(survival_score(s, SLOW, 0), 0.0625f, "four times slower");
}

CASE(a_class_that_moved_in_is_worked_out_too)
{
    live(QUICK, 600, 4000, true);
    survival_move(s, QUICK, SLOW, 1, 599000);
    learn();
    ck_assert(survival_score(s, SLOW, 0) > 0);
    ck_assert(survival_score(s, SLOW, 0) < survival_score(s, QUICK, 0));
}

/* A thousand of a class grow 30 s old, and none is hit; of another one nothing is known. Nobody has
 * seen what comes later, and it is believed to be less of those. */
CASE(what_did_not_come_at_one_age_is_doubted_at_the_next)
{
    const float doubts[] = {0, 0.5f, 0.9f};
    float late[3], part[3];
    for (unsigned i = 0; i < 3; i++) {
        struct survival_class doubtful[CLASSES];
        memcpy(doubtful, tree, sizeof(tree));
        for (unsigned c = 0; c < CLASSES; c++)
            doubtful[c].strength = 10;
        doubtful[QUICK].doubt = doubts[i];
        doubtful[SLOW].shift = 0;
        teardown();
        begin(doubtful);
        survival_tick(s, 0);
        survival_begin(s, QUICK, 1000);
        for (uint64_t at = 1000; at <= 30000; at += 1000)
            survival_tick(s, at);
        survival_begin(s, SLOW, 1);
        learn();
        late[i] = survival_chance(s, QUICK, 60000, 60000);
        part[i] = survival_score(s, QUICK, 10000) / survival_score(s, SLOW, 10000);
    }
    expect_hbm(late[1], late[0] / 2, "by half");
    expect_hbm(late[2], late[0] / 10, "nine tenths");
    expect_hbm(part[0], 1, "as much as of any");
    expect_hbm(part[1], 0.5f, "half");
}

/* Beyond the last bucket a use counts as one that outlived all: hits there are no sign that all
 * that has grown so old comes back at once. */
CASE(what_is_older_than_all_ages_is_worth_less_the_older_it_is)
{
    const uint64_t day = UINT64_C(24) * 3600 * 1000;
    for (uint64_t d = 0; d <= 800; d += 2) {
        survival_tick(s, d * day);
        if (d >= 400)
            survival_end(s, QUICK, 1, (d - 400) * day, d * day, true);
        survival_begin(s, QUICK, 1);
    }
    learn();
    const float year = survival_score(s, QUICK, 365 * day);
    ck_assert(year > 0);
    ck_assert(survival_chance(s, QUICK, 0, 280 * day) < 0.01f);
    expect_hbm(survival_score(s, QUICK, 730 * day), year / 2, "in another year");
}

/* Slow for a class of the quickest, so that all its late ages are one age of the class above, at
 * which nearly all are hit. */
CASE(what_is_nearly_always_hit_has_a_worth_at_any_age)
{
    static const struct survival_class quickest[CLASSES] = {
        [QUICK] = {.above = ABOVE,
                   .beside = SURVIVAL_NONE,
                   .factor = 1,
                   .late = 1,
                   .later = 1,
                   .strength = 10,
                   .shift = 21},
        [SLOW] = {.above = ABOVE,
                  .beside = SURVIVAL_NONE,
                  .factor = 1,
                  .late = 1,
                  .later = 1,
                  .strength = LITTLE},
        [ABOVE] = {.above = SURVIVAL_NONE,
                   .beside = SURVIVAL_NONE,
                   .factor = 1,
                   .late = 1,
                   .later = 1,
                   .strength = LITTLE},
    };
    teardown();
    begin(quickest);
    live(QUICK, 4000, 600000, true);
    for (uint64_t hours = 0; hours < 24 * 365; hours = 2 * hours + 1) {
        const float score = survival_score(s, QUICK, hours * 3600 * 1000);
        ck_assert_msg(score > 0 && score < 1, "after %llu hours: %g", (unsigned long long)hours,
                      (double)score);
    }
}

/* Those of one moment, too, when later ones are far apart. */
CASE(a_time_between_uses_that_was_nothing_grows)
{
    struct ghost g = {.tag = 1, .used = 1000, .uses = 2};
    for (unsigned i = 0; i < 60; i++) {
        ghost_set_gap(&g, ghost_gap(&g, g.used + 25000, 24));
        g.used += 25000;
        g.uses++;
    }
    ck_assert_uint_gt(ghost_get_gap(&g), 12500);
}

CASE(a_pause_counts_as_eight_times_the_mean_at_most)
{
    struct ghost g = {.tag = 1, .used = 1000, .uses = 4};
    ghost_set_gap(&g, 100);
    ck_assert_uint_eq(ghost_gap(&g, 1000 + 300, 24), 150);
    ck_assert_uint_eq(ghost_gap(&g, 1000 + 800, 24), 275);
    ck_assert_uint_eq(ghost_gap(&g, 1000 + 1000000, 24), 275);
}

CASE(the_first_time_between_uses_is_taken_as_it_is)
{
    const struct ghost g = {.tag = 1, .used = 1000, .uses = 1};
    ck_assert_uint_eq(ghost_gap(&g, 1000 + 70000, 24), 70000);
}

/* Nine that share a set of eight; the table has 2^14 sets or more, by the low bits. */
CASE(what_is_in_the_cache_is_remembered_longest)
{
    void *mem = zeroed(ghost_mem_bytes(1));
    struct ghost_table *t = ghost_init(mem, 1);
    struct ghost gone;
    for (uint64_t i = 1; i <= 10; i++) {
        struct ghost *g = ghost_add(t, i << 40, (uint32_t)i, &gone);
        g->used = (uint32_t)i;
        g->kept = i == 1;
        ck_assert_uint_eq(gone.used, i <= 8 ? 0 : i - 7);
    }
    ck_assert_ptr_nonnull(ghost_find(t, UINT64_C(1) << 40));
    for (uint64_t i = 1; i <= 10; i++) {
        struct ghost *g = ghost_find(t, i << 40);
        if (g)
            g->kept = true;
    }
    ghost_add(t, UINT64_C(11) << 40, 11, &gone);
    ck_assert_uint_eq(gone.used, 1);
    free(mem);
}

CASE(what_was_used_once_is_forgotten_four_times_as_soon)
{
    for (unsigned old = 300; old <= 500; old += 200) {
        void *mem = zeroed(ghost_mem_bytes(1));
        struct ghost_table *t = ghost_init(mem, 1);
        struct ghost gone;
        for (uint64_t i = 1; i <= 8; i++) {
            struct ghost *g = ghost_add(t, i << 40, 0, &gone);
            g->used = i == 1 ? 1000 - old : 900;
            g->uses = i == 1 ? 2 : 1;
        }
        ghost_add(t, UINT64_C(9) << 40, 1000, &gone);
        ck_assert_uint_eq(gone.used, old == 300 ? 900 : 500);
        free(mem);
    }
}
