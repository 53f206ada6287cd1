/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "policy_rig.h"

#define NONE  POLICY_NO_BLOCK
#define CHAIN 4u /* blocks of a request here */

static struct rig rig;

static void setup(void)
{
    rig_open(&rig, &policy_density);
}

static void teardown(void)
{
    rig_close(&rig);
}

static uint64_t name_of(uint64_t content)
{
    return (content + 1) * 0x9e3779b97f4a7c15u;
}

/* A request of CHAIN blocks (of `news` that nobody asked for before, the last of them) that the
 * cache has none of and keeps none of: the policy only learns from it. */
static void ask(uint64_t content, unsigned news, uint64_t fresh)
{
    uint64_t hash[CHAIN];
    for (unsigned i = 0; i < CHAIN; i++)
        hash[i] = name_of(content * 100 + i + (i >= CHAIN - news ? fresh * 10 : 0));
    const struct policy_request request = {.hash = hash, .n = CHAIN};
    rig.ops->request(rig.p, &request, rig.now_ms);
}

/* The first block of such a request comes into the cache. */
static void keep(uint32_t block, uint64_t content, uint8_t list)
{
    const struct policy_hint hint = {.hash = name_of(content * 100),
                                     .parent = NONE,
                                     .bytes = 4096,
                                     .list = list,
                                     .used_ms = rig.now_ms};
    rig.ops->insert(rig.p, block, &hint, rig.now_ms);
}

/* Two kinds of requests, told apart by where they branch off: those that change their last block
 * only come back within seconds when `tails`, the wholly new ones otherwise. */
static void live(unsigned rounds, bool tails, uint64_t from)
{
    for (unsigned i = 0; i < rounds; i++) {
        const uint64_t content = from + i;
        ask(content, CHAIN, 0);
        for (unsigned again = 0; again < 6 && tails == (i % 2 == 0); again++) {
            rig.now_ms += 2000;
            ask(content, 1, again + 1);
        }
        rig.now_ms += 5000;
    }
}

static float worth_now(uint32_t block)
{
    return rig.ops->worth(rig.p, block, rig.now_ms);
}

CASES(.setup = setup, .teardown = teardown);

CASE(at_a_cold_start_the_oldest_goes)
{
    for (uint32_t i = 0; i < 40; i++) {
        rig_insert(&rig, (i * 7) % 40, NONE);
        rig.now_ms += 100 * i;
    }
    for (uint32_t i = 0; i < 40; i += 3) {
        rig_touch(&rig, (i * 7) % 40);
        rig.now_ms += 100;
    }
    for (uint32_t pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < 40; i++) {
            if ((i % 3 == 0) != (pass == 1))
                continue;
            const uint32_t block = rig_victim(&rig, 0);
            ck_assert_uint_eq(block, (i * 7) % 40);
            rig.ops->remove(rig.p, block);
        }
    ck_assert_uint_eq(rig_victim(&rig, 0), NONE);
}

CASE(a_chain_goes_leaf_first_after_a_touch_too)
{
    rig_insert(&rig, 1, NONE);
    rig_insert(&rig, 2, 1);
    rig_insert(&rig, 3, 2);
    rig.now_ms = 9000;
    for (uint32_t b = 3; b >= 1; b--)
        rig_touch(&rig, b);
    rig_insert(&rig, 4, 3);
    RIG_EXPECT(&rig, 4, 3, 2, 1);
}

CASE(what_comes_back_is_worth_more_than_what_does_not)
{
    live(600, true, 0);
    ask(50000, CHAIN, 0); /* wholly new, and continued twice */
    ask(50000, 1, 1);
    rig.now_ms += 2000;
    ask(50000, 1, 2);
    keep(1, 50000, 0);
    ask(60000, CHAIN, 0); /* younger, and wholly new */
    keep(2, 60000, 0);
    ck_assert(worth_now(1) > worth_now(2));
    ck_assert_uint_eq(rig_victim(&rig, 0), 2);
}

static float worth_of_continued(uint32_t block, uint64_t content)
{
    ask(content, CHAIN, 0);
    rig.now_ms += 2000;
    ask(content, 1, 1);
    keep(block, content, 0);
    return worth_now(block);
}

/* Block 1 came back again and again, blocks 2 and up are younger, and were asked for once. */
static void keep_old_and_once(unsigned blocks)
{
    live(600, true, 0);
    for (unsigned i = 0; i < 3; i++) {
        ask(50000, i == 0 ? CHAIN : 1, i);
        rig.now_ms += 2000;
    }
    keep(1, 50000, 0);
    for (uint32_t b = 2; b <= blocks; b++) {
        rig.now_ms += 1000;
        ask(60000 + b, CHAIN, 0);
        keep(b, 60000 + b, 0);
    }
}

static void expect_in_turn(uint32_t first, uint32_t last)
{
    for (uint32_t b = first; b <= last; b++) {
        ck_assert_uint_eq(rig_victim(&rig, 0), b);
        rig.ops->remove(rig.p, b);
    }
}

/* Nothing of what is asked for is said to be in the cache. LRU would have what comes twice in a
 * row, and LRU-2 would not: all that was used twice longer ago is in its way. */
static void lru_leads(void)
{
    keep_old_and_once(40);
    ck_assert_uint_ne(rig_victim(&rig, 0), 1);
    for (unsigned i = 0; i < 400; i++) {
        ask(70000 + i, CHAIN, 0);
        ask(70000 + i, CHAIN, 0);
        rig.now_ms += 1000;
        rig_victim(&rig, 0);
    }
}

CASE(where_lru_hits_more_the_oldest_goes)
{
    lru_leads();
    expect_in_turn(1, 40);
}

/* LRU-2 would have what is asked for among many that come once, and LRU would not. */
static void lru2_leads(void)
{
    keep_old_and_once(40);
    for (unsigned i = 0; i < 900; i++) {
        ask(i % 12 == 0 ? 70000 : 80000 + i, CHAIN, 0);
        rig.now_ms += 100;
    }
}

CASE(where_lru2_hits_more_what_was_used_once_goes)
{
    lru2_leads();
    expect_in_turn(2, 40);
    expect_in_turn(1, 1);
}

/* A class that came back for long and does not any more. */
CASE(old_habits_are_forgotten)
{
    live(400, true, 0);
    const float before = worth_of_continued(1, 50000);
    for (unsigned i = 0; i < 3000; i++) {
        ask(100000 + i, CHAIN, 0);
        rig.now_ms += 2000;
        ask(100000 + i, 1, 1);
        rig.now_ms += 5000;
    }
    const float after = worth_of_continued(2, 60000);
    ck_assert_msg(after < before * 0.5f, "%g, then %g", (double)before, (double)after);
}

/* Four blocks that are asked for every 2,003 ms: times that are no whole number of the unit in
 * which the policy keeps them, and each request in a second of its own. */
CASE(what_comes_back_every_two_seconds_is_worth_half_a_hit_a_second)
{
    rig.now_ms = 7;
    for (unsigned i = 0; i < 200; i++) {
        ask(1, CHAIN, 0);
        rig.now_ms += 2003;
    }
    ask(1, CHAIN, 0);
    keep(1, 1, 0);
    const float worth = worth_now(1);
    ck_assert_msg(worth > 0.4f && worth < 0.65f, "%g hits a second", (double)worth);
}

static float chance_within(uint32_t block, uint64_t for_ms)
{
    return rig.ops->chance(rig.p, block, for_ms, rig.now_ms);
}

CASE(what_comes_back_every_two_seconds_is_asked_for_within_three)
{
    for (unsigned i = 0; i < 200; i++) {
        ask(1, CHAIN, 0);
        rig.now_ms += 2003;
    }
    ask(1, CHAIN, 0);
    keep(1, 1, 0);
    const float soon = chance_within(1, 100), later = chance_within(1, 3000);
    ck_assert_msg(soon < 0.1f && later > 0.8f && later <= 1, "%g in .1 s, %g in 3 s", (double)soon,
                  (double)later);
}

/* Chains of one block, of which nobody asks for any again. */
CASE(what_never_comes_back_has_no_chance)
{
    for (uint64_t i = 0; i < 2000; i++) {
        const uint64_t hash = name_of(i * 100);
        const struct policy_request request = {.hash = &hash, .n = 1};
        rig.ops->request(rig.p, &request, rig.now_ms);
        rig.now_ms += 100;
    }
    keep(1, 1999, 0);
    ck_assert_msg(chance_within(1, 10000) < 0.03f, "%g", (double)chance_within(1, 10000));
}

/* A document of one block that is asked for every two seconds, among 500 that nobody asks for
 * again: it is a last block too, and not like theirs. */
CASE(last_blocks_that_come_back_are_told_apart)
{
    const uint64_t document = name_of(70000 * 100);
    for (uint64_t i = 0; i < 500; i++) {
        const uint64_t hash[] = {name_of(i * 100), document,
                                 name_of((i < 100 ? i : i - 100) * 100)};
        for (unsigned k = 0; k < 3; k++) {
            const struct policy_request request = {.hash = &hash[k], .n = 1};
            rig.ops->request(rig.p, &request, rig.now_ms);
            rig.now_ms += 1000;
        }
    }
    keep(1, 70000, 0);
    keep(2, 399, 0);
    ck_assert_msg(worth_now(1) > worth_now(2) * 4, "%g and %g", (double)worth_now(1),
                  (double)worth_now(2));
}

/* Chains of one block, of which nobody asks for any again. */
CASE(what_never_comes_back_loses_worth)
{
    keep(1, 70000, 0);
    const float before = worth_now(1);
    rig.ops->remove(rig.p, 1);
    for (uint64_t i = 0; i < 500; i++) {
        const uint64_t hash = name_of(i * 100);
        const struct policy_request request = {.hash = &hash, .n = 1};
        rig.ops->request(rig.p, &request, rig.now_ms);
        rig.now_ms += 1500;
    }
    keep(1, 499, 0);
    ck_assert_msg(worth_now(1) < before * 0.5f, "%g, then %g", (double)before,
                  (double)worth_now(1));
}

#define LONG 20u

/* Chains that share their beginnings, in pieces of `most` or (0) whole. */
static void ask_long(struct rig *to, uint64_t i, uint32_t most)
{
    uint64_t hash[LONG];
    for (uint32_t k = 0; k < LONG; k++)
        hash[k] = name_of(i % 7 * 1000 + k + (k >= i % LONG ? i * 50 : 0));
    struct policy_part part = {.most = most};
    const struct policy_request request = {
        .hash = hash, .n = LONG, .hits = i % 3, .part = most ? &part : NULL};
    unsigned pieces = 1;
    while (to->ops->request(to->p, &request, to->now_ms))
        pieces++;
    ck_assert_uint_eq(pieces, !most || most >= LONG ? 1 : 2 * ((LONG + most - 1) / most));
}

/* _i: blocks of a piece. */
CASE_RANGE(a_request_in_pieces_counts_as_one_in_one_piece, 1, LONG + 2)
{
    struct rig whole;
    rig_open(&whole, &policy_density);
    for (uint64_t i = 0; i < 600; i++) {
        ask_long(&rig, i, (uint32_t)_i);
        ask_long(&whole, i, 0);
        whole.now_ms = rig.now_ms += 700 + i % 11 * 400;
    }
    for (uint32_t i = 0; i < RIG_BLOCKS; i++) {
        const struct policy_hint hint = {.hash = name_of(i % 7 * 1000 + i / 7),
                                         .parent = NONE,
                                         .bytes = 4096,
                                         .used_ms = rig.now_ms};
        rig.ops->insert(rig.p, i, &hint, rig.now_ms);
        whole.ops->insert(whole.p, i, &hint, rig.now_ms);
        const float a = worth_now(i), b = whole.ops->worth(whole.p, i, rig.now_ms);
        ck_assert_msg(a - b <= a * 1e-3f && b - a <= a * 1e-3f, "%u: %g, %g", i, (double)a,
                      (double)b);
    }
    rig_close(&whole);
}

/* Two documents with another question each time, one often and one seldom: as conversations that
 * have many turns they would be of one class, of all that take longer than two minutes. */
CASE(a_chain_that_does_not_grow_is_no_conversation)
{
    for (uint64_t i = 0; i < 400; i++) {
        ask(100, 1, i);
        if (i % 10 == 0)
            ask(200, 1, i);
        ask(1000 + i, CHAIN, 0);
        rig.now_ms += 200000;
    }
    ask(100, 1, 400);
    ask(200, 1, 400);
    keep(1, 100, 0);
    keep(2, 200, 0);
    rig.now_ms += 100000;
    ck_assert_msg(worth_now(1) > worth_now(2) * 3, "%g and %g", (double)worth_now(1),
                  (double)worth_now(2));
}

/* New things that all came back once, and then do no more; what goes for want of room shows it
 * sooner (`gone`) than what is taken away for other reasons. */
static float worth_of_news(bool gone, bool again)
{
    for (uint64_t i = 0; i < 600; i++) {
        const uint64_t content = 1000 + i;
        ask(content, CHAIN, 0);
        keep(1, content, 0);
        rig.now_ms += 4000;
        if (gone)
            ck_assert_uint_eq(rig_victim(&rig, 0), 1);
        rig.ops->remove(rig.p, 1);
        rig.now_ms += 2000;
        if (i < 200 || again)
            ask(content, CHAIN, 0);
        rig.now_ms += 10000;
    }
    ask(70000, CHAIN, 0);
    keep(1, 70000, 0);
    const float worth = worth_now(1);
    rig_close(&rig);
    rig_open(&rig, &policy_density);
    return worth;
}

CASE(what_became_of_news_that_went_tells_what_news_is_worth)
{
    const float unseen = worth_of_news(false, false), seen = worth_of_news(true, false);
    ck_assert_msg(seen < unseen * 0.9f && seen > unseen * 0.5f, "%g, and %g of what went",
                  (double)unseen, (double)seen);
    const float back = worth_of_news(false, true), went = worth_of_news(true, true);
    ck_assert_msg(went > back * 0.9f && went < back * 1.6f, "%g, and %g of what went", (double)back,
                  (double)went);
}

static bool admits_at(uint64_t content, uint32_t saves, uint32_t victim)
{
    const struct policy_hint hint = {.hash = name_of(content * 100),
                                     .parent = NONE,
                                     .bytes = 4096,
                                     .saves = saves,
                                     .used_ms = rig.now_ms};
    return rig.ops->admits(rig.p, &hint, victim, rig.now_ms);
}

static bool admits(uint64_t content, uint32_t victim)
{
    return admits_at(content, 0, victim);
}

CASE(at_first_all_is_taken)
{
    keep(1, 1, 0);
    for (uint64_t i = 2; i < 50; i++) {
        rig.now_ms += 1000;
        ask(i, CHAIN, 0);
        ck_assert(admits(i, 1));
    }
}

/* A document every two seconds, and between them what nobody asks for again. */
CASE(what_is_used_less_than_what_would_go_for_it_is_not_taken)
{
    for (uint64_t i = 0; i < 400; i++) {
        ask(70000, CHAIN, 0);
        ask(i, CHAIN, 0);
        rig.now_ms += 2000;
    }
    keep(1, 70000, 0); /* used two seconds ago */
    keep(2, 0, 0);
    ask(500, CHAIN, 0);
    ck_assert(!admits(500, 1));
    ck_assert(admits(500, 2));
    ask(70000, CHAIN, 0);
    ck_assert(admits(70000, 2));
    rig.now_ms += 4000000; /* so long that the document is forgotten, too */
    ask(501, CHAIN, 0);
    ck_assert(admits(501, 1));
}

/* A document that is asked for each second, and something new beside it: of 300 that go each comes
 * back; others, cheap ones, are offered or not, not taken, and do not come back. */
static void news_each_second(unsigned rounds, bool offered)
{
    for (uint64_t i = 0; i < rounds; i++) {
        const bool back = i < 300;
        ask(70000, CHAIN, 0);
        ask(i, CHAIN, 0);
        keep(1, back ? i : 70000, 0);
        rig.now_ms += 100;
        if (back)
            ck_assert_uint_eq(rig_victim(&rig, 0), 1);
        else if (offered)
            ck_assert(!admits_at(i, 1, 1));
        rig.ops->remove(rig.p, 1);
        rig.now_ms += 150;
        if (back)
            ask(i, CHAIN, 0);
        rig.now_ms += 750;
    }
}

/* Of one more; then all is as in the beginning. */
static float worth_of_one_more(void)
{
    ask(902, CHAIN, 0);
    keep(2, 902, 0);
    const float worth = worth_now(2);
    rig_close(&rig);
    rig_open(&rig, &policy_density);
    return worth;
}

/* Of what was not taken it is seen as of what goes what it is worth. */
static float worth_of_not_taken(bool told)
{
    news_each_second(900, told);
    return worth_of_one_more();
}

CASE(what_was_not_taken_tells_what_news_is_worth)
{
    const float untold = worth_of_not_taken(false), told = worth_of_not_taken(true);
    ck_assert_msg(told < untold * 0.95f, "%g, and %g when told", (double)untold, (double)told);
}

/* The same block, not taken, is offered again and again. */
static float worth_after_offers(unsigned offers)
{
    news_each_second(600, false);
    keep(1, 70000, 0);
    ask(901, CHAIN, 0);
    for (unsigned i = 0; i < offers; i++)
        ck_assert(!admits_at(901, 1, 1));
    return worth_of_one_more();
}

CASE(what_is_not_taken_counts_once_however_often_it_is_offered)
{
    const float once = worth_after_offers(1), often = worth_after_offers(1000);
    ck_assert_msg(!(often < once), "%g, and %g", (double)once, (double)often);
}

/* What nobody asked for is offered, not taken at first, and asked for right after, each time
 * something else; beside it a document is asked for all the time. Also where LRU-2's order is
 * followed, which would take none of it. */
CASE_EACH(a_store_before_the_first_request_is_learned_from, 2)
{
    unsigned taken = 0;
    if (_i == 1)
        lru2_leads();
    for (uint64_t i = 0; i < 200 && _i == 0; i++) {
        ask(70000, CHAIN, 0);
        ask(80000 + i, CHAIN, 0);
        rig.now_ms += 1000;
    }
    keep(1, 70000, 0);
    ck_assert(!admits(300000, 1));
    for (uint64_t i = 300001; i < 300200; i++) {
        taken += admits(i, 1);
        rig.now_ms += 50;
        ask(i, CHAIN, 0);
        ask(70000, CHAIN, 0);
        rig.ops->remove(rig.p, 1);
        keep(1, 70000, 0);
        rig.now_ms += 950;
    }
    ck_assert_msg(taken > 150, "%u of 199", taken);
}

/* A document that a tenant asks for every two seconds, and then not; new blocks of another tenant
 * pass through. Between victims of the two the new ones go. */
CASE(what_passes_through_goes_before_other_lists)
{
    for (unsigned i = 0; i < 100; i++) {
        ask(70000, CHAIN, 0);
        rig.now_ms += 2000;
    }
    keep(1, 70000, 0);
    rig.now_ms += 200000;
    for (uint64_t i = 0; i < 100; i++)
        ask(i, CHAIN, 0);
    keep(2, 99, 1);
    ck_assert_uint_eq(rig_victim(&rig, 0), 1);
    ck_assert_uint_eq(rig_victim(&rig, 1), 2);
    const float hot = rig.ops->rank(rig.p, 1, rig.now_ms),
                new = rig.ops->rank(rig.p, 2, rig.now_ms);
    ck_assert_msg(hot > new, "%g, new %g", (double)hot, (double)new);
}

CASE(lists_are_apart)
{
    keep(1, 1, 0);
    keep(2, 2, 1);
    ck_assert_uint_eq(rig_victim(&rig, 0), 1);
    ck_assert_uint_eq(rig_victim(&rig, 1), 2);
    ck_assert_uint_eq(rig_victim(&rig, 2), NONE);
    rig.ops->assign(rig.p, 1, 2, rig.now_ms);
    ck_assert_uint_eq(rig_victim(&rig, 0), NONE);
    ck_assert_uint_eq(rig_victim(&rig, 2), 1);
}

CASE(what_is_parked_keeps_its_age_and_its_worth)
{
    rig_insert(&rig, 1, NONE);
    rig.now_ms = 50000;
    rig_insert(&rig, 2, NONE);
    const float worth = worth_now(1);
    rig.ops->park(rig.p, 1);
    ck_assert_uint_eq(rig_victim(&rig, 0), 2);
    ck_assert(!(worth_now(1) < worth) && !(worth_now(1) > worth));
    rig.ops->unpark(rig.p, 1, rig.now_ms);
    RIG_EXPECT(&rig, 1, 2);
}

CASE(a_block_in_use_is_asked_for_once)
{
    rig_insert(&rig, 1, NONE);
    rig.now_ms = 5000;
    rig_insert(&rig, 2, NONE);
    rig.refused[1] = true;
    for (unsigned i = 0; i < 5; i++)
        ck_assert_uint_eq(rig_victim(&rig, 0), 2);
    ck_assert_uint_eq(rig.asked[1], 1);
    rig.refused[1] = false;
    rig.ops->release(rig.p, 1, true);
    RIG_EXPECT(&rig, 1, 2);
}

CASE(saves_and_bytes_count)
{
    static const uint32_t saves[] = {100, 900, 100}, bytes[] = {4096, 4096, 65536};
    for (uint32_t i = 0; i < 3; i++) {
        const struct policy_hint hint = {.hash = name_of(i),
                                         .parent = NONE,
                                         .bytes = bytes[i],
                                         .saves = saves[i],
                                         .used_ms = rig.now_ms};
        rig.ops->insert(rig.p, i, &hint, rig.now_ms);
    }
    ck_assert(worth_now(1) > worth_now(0));
    RIG_EXPECT(&rig, 2, 0, 1);
}

/* ---- what a worker says ---- */

static void end(uint32_t block)
{
    rig.ops->advise(rig.p, POLICY_ADVICE_ENDED, 0, &block, 1, rig.now_ms);
}

static void passes(uint32_t block)
{
    rig.ops->advise(rig.p, POLICY_ADVICE_SCAN, 0, &block, 1, rig.now_ms);
}

/* Documents that are said to be read in passing are asked for again 2 s later, each time; others
 * never. */
CASE(what_comes_back_is_not_read_in_passing_for_long)
{
    for (unsigned i = 0; i < 800; i++) {
        ask(i, CHAIN, 0);
        if (i % 2 == 0) {
            keep(1, i, 0);
            passes(1);
            rig.ops->remove(rig.p, 1);
            rig.now_ms += 2000;
            ask(i, CHAIN, 0);
        }
        rig.now_ms += 2000;
    }
    ask(9000, CHAIN, 0);
    keep(1, 9000, 0);
    ask(9002, CHAIN, 0);
    keep(2, 9002, 0);
    passes(2);
    RIG_EXPECT(&rig, 1, 2);
}

CASE_EACH(a_hint_counts_in_the_orders_of_others_too, 2)
{
    if (_i == 0)
        lru_leads();
    else
        lru2_leads();
    passes(40);
    expect_in_turn(40, 40);
    expect_in_turn(_i == 0 ? 1 : 2, 39);
}

CASE(a_hint_is_believed_at_first)
{
    ask(1, CHAIN, 0);
    keep(1, 1, 0);
    rig.now_ms = 5000;
    ask(2, CHAIN, 0);
    keep(2, 2, 0);
    end(2);
    RIG_EXPECT(&rig, 2, 1);
}

/* Chains that are said to have ended are continued 2 s later, the others never. */
CASE(a_hint_that_is_always_wrong_is_not_believed_for_long)
{
    for (unsigned i = 0; i < 800; i++) {
        ask(i, CHAIN, 0);
        if (i % 2 == 0) {
            keep(1, i, 0);
            end(1);
            rig.now_ms += 2000;
            ask(i, 1, 1);
            rig.ops->remove(rig.p, 1);
        }
        rig.now_ms += 5000;
    }
    ask(50000, CHAIN, 0);
    keep(1, 50000, 0);
    end(1);
    ask(60000, CHAIN, 0);
    keep(2, 60000, 0);
    ck_assert(worth_now(1) > worth_now(2));
}

/* ---- the whole ---- */

CASE(memory_is_bounded_and_a_block_costs_little)
{
    struct policy_config config = {.blocks_max = 1u << 20, .lists_max = 1};
    const size_t million = rig.ops->mem_bytes(&config);
    config.blocks_max = 1u << 21;
    const size_t two = rig.ops->mem_bytes(&config);
    ck_assert_uint_le(million, 128u << 20);
    ck_assert_uint_le(two - million, 96ull << 20);
    for (unsigned i = 0; i < 40000; i++) /* more names than it has room for: ASan watches */
        ask(i, CHAIN, 0);
}

static uint32_t story(void)
{
    uint32_t sum = 0;
    live(200, true, 0);
    for (uint32_t i = 0; i < 500; i++) {
        rig.now_ms += 300;
        ask(70000 + i % 90, 1 + i % CHAIN, i / 90);
        if (i >= RIG_BLOCKS) {
            const uint32_t block = rig_victim(&rig, 0);
            sum = sum * 31 + block;
            rig.ops->remove(rig.p, block);
            keep(block, 70000 + i % 90, 0);
        } else {
            keep(i, 70000 + i % 90, 0);
        }
    }
    return sum;
}

CASE(the_same_story_has_the_same_end)
{
    const uint32_t first = story();
    rig_close(&rig);
    rig_open(&rig, &policy_density);
    ck_assert_uint_eq(story(), first);
}
