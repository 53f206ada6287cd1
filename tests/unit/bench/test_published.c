/* SPDX-License-Identifier: Apache-2.0 */
/* Policies as they were published, on traces that can be followed by hand. */
#include <errno.h>

#include "cases.h"
#include "sim_rig.h"

#define BLOCKS 40u

/* Which requests hit (how many blocks), of each policy in turn. */
struct story {
    const char *requests;
    uint32_t room;
    const char *lru, *fifo, *lfu, *aging, *lru2, *slru, *arc, *s3fifo, *sieve;
};

static void tell(const struct story *s)
{
    const char *const want[] = {s->lru,  s->fifo, s->lfu,    s->aging, s->lru2,
                                s->slru, s->arc,  s->s3fifo, s->sieve};
    make(s->requests);
    for (unsigned i = 0; sim_published_at(i); i++) {
        ck_assert_uint_lt(i, sizeof(want) / sizeof(want[0]));
        ck_assert_int_eq(sim_published(forest, sim_published_at(i), s->room, hits, &counts), 0);
        printf("%s\n", sim_published_at(i));
        expect_hits(want[i]);
    }
}

CASES(.setup = setup, .teardown = teardown);

/* Those that go by use let the deepest block go, the queues the one that came first. */
CASE(a_chain_longer_than_the_room)
{
    tell(&(struct story){"1 2 3 4, 1 2 3 4", 3, "0 3", "0 0", "0 3", "0 3", "0 3", "0 3", "0 3",
                         "0 0", "0 0"});
}

/* 1 was used twice when 3 comes: FIFO and S3-FIFO let it go, for it came first. LRU-2 finds 2 again
 * at the end, whose last use but one it remembers. */
CASE(one_that_is_used_more_often)
{
    tell(&(struct story){"1, 2, 1, 3, 1, 2, 4, 1, 2, 3, 1, 2", 2, "0 0 1 0 1 0 0 0 0 0 0 0",
                         "0 0 1 0 0 0 0 0 0 0 0 0", "0 0 1 0 1 0 0 1 0 0 1 0",
                         "0 0 1 0 1 0 0 1 0 0 1 0", "0 0 1 0 1 0 0 1 1 0 1 1",
                         "0 0 1 0 1 0 0 1 0 0 1 0", "0 0 1 0 1 0 0 0 0 0 0 0",
                         "0 0 1 0 0 0 0 0 0 0 0 0", "0 0 1 0 1 0 0 0 0 0 0 0"});
}

/* Two that were used twice, and four that come once: with aging LFU forgets the two. */
CASE(a_scan_past_two_that_were_used_twice)
{
    const char *gone = "0 1 0 1 0 0 0 0 0 0 0 0 0 0", *there = "0 1 0 1 0 0 0 0 1 1 0 0 1 1";
    tell(&(struct story){"1, 1, 2, 2, 3, 4, 5, 6, 1, 2, 7, 3, 1, 2", 3, gone, gone, there, gone,
                         there, there, there, gone, gone});
}

/* Two come again soon after they went, which ARC and S3-FIFO notice. */
CASE(a_long_scan_past_two_that_came_again)
{
    const char *gone = "0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0",
               *there = "0 0 0 0 0 0 0 0 0 0 0 0 0 1 1 0 0 0 0 0 0 0 0 0 0 1 1 0";
    tell(&(struct story){"1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 1, 2, 12, 13, 14, 15, 16, 17, "
                         "18, 19, 20, 21, 1, 2, 11",
                         10, gone, gone, there, there, there, there, there, there, there});
}

/* With room for all that there is each hits what was asked for before, and nothing goes. */
CASE(room_for_all)
{
    const char *all = "0 2 0 3 2 0";
    tell(&(struct story){"1 2 3, 1 2 4, 5, 1 2 3, 1 2, 6", 6, all, all, all, all, all, all, all,
                         all, all});
    ck_assert_uint_eq(counts.evicted, 0);
}

/* Many chains at random: no policy hits more than the bound, and none hits nothing. */
CASE(none_is_better_than_belady)
{
    unsigned random = 1;
    for (unsigned r = 0; r < 2000; r++) {
        char line[128];
        random = random * 1103515245u + 12345u;
        const unsigned chain = (random >> 16) % BLOCKS, tail = (random >> 8) % 3;
        snprintf(line, sizeof(line), "{\"timestamp\": %u, \"hash_ids\": [%u, %u, %u]}", r, chain,
                 100 + chain, 1000 + 3 * chain + tail);
        ask(line);
    }
    ck_assert_int_eq(sim_forest_create(&trace, &forest), 0);
    ck_assert_int_eq(sim_belady(forest, 60, hits, &counts), 0);
    const uint64_t bound = counts.host_hits;
    for (unsigned i = 0; sim_published_at(i); i++) {
        ck_assert_int_eq(sim_published(forest, sim_published_at(i), 60, hits, &counts), 0);
        ck_assert_uint_le(counts.host_hits, bound);
        ck_assert_uint_gt(counts.host_hits, bound / 4);
        ck_assert_uint_gt(counts.evicted, 0);
    }
}

CASE(names_that_are_none)
{
    make("1");
    ck_assert_int_eq(sim_published(forest, "published-clock", 4, hits, &counts), -EINVAL);
    ck_assert_int_eq(sim_published(forest, "published-lru", 0, hits, &counts), -EINVAL);
}
