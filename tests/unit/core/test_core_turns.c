/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits before a device: sends and commits out of pages, when as many as may copy do. */
#include <stdlib.h>

#include "cases.h"
#include "core_rig.h"

#define SLOT  64u
#define PAGES 256u
#define JOBS  4u /* so 3 may wait for words, 2 of one client */
#define SENDS 8u

static struct rig r;
static struct core_ns *ns;
static struct device_pool *pool;
static struct rig_send send[SENDS];
static struct core_held held[SENDS];
static struct rig_put put;
static struct rig_commit commit, other;
static _Atomic uint64_t word;

static void setup(void)
{
    struct core_ns_spec spec = rig_spec("m", 8, SLOT);
    rig_defaults(&r);
    r.cfg.ndevices = 2;
    r.cfg.device_copies = JOBS;
    r.cfg.blocks_max = 8192;
    rig_begin(&r);
    ns = rig_ns(&r, 1, &spec);
    pool = rig_pool(&r, 0, ns, PAGES);
    memset(send, 0, sizeof send);
    atomic_store(&word, 0);
}

static void teardown(void)
{
    fake_device_up(r.device[0]);
    rig_end(&r);
    fake_pool_destroy(&pool);
    rig_commit_free(&commit);
    rig_commit_free(&other);
    commit = other = (struct rig_commit){.done = 0};
}

/* ---- words ---- */

static unsigned copying(void)
{
    return fake_device_inflight(r.device[0]);
}

static uint64_t waiting(void)
{
    core_check(r.core);
    return core_metrics(r.core)->transfers_waiting;
}

static void end_first(int status)
{
    fake_device_end(r.device[0], fake_device_copy(r.device[0], 0), status);
}

static void run(void)
{
    (void)core_run_done(r.core);
    core_check(r.core);
}

/* All of it, with the copies of commits that follow. */
static void end_all(int status)
{
    for (run(); copying() > 0; run())
        end_first(status);
    while (fake_tier_inflight(r.tier) > 0)
        fake_tier_end(r.tier, fake_tier_op(r.tier, 0), 0);
}

static void start_after(unsigned i, unsigned client, const _Atomic uint64_t *after)
{
    rig_store(&r, client, ns, 0, 10 + i, 0, 2);
    held[i] = rig_acquire(&r, client, ns, 10 + i, 16);
    send[i].after.word = after;
    send[i].after.value = 1;
    ck_assert_int_eq(rig_send(&r, client, &held[i], 0, pool, 8 * i, &send[i]), 1);
}

static void start(unsigned i, unsigned client)
{
    start_after(i, client, NULL);
}

static void fill_up(unsigned client)
{
    for (unsigned i = 0; i < JOBS; i++)
        start(i, client);
    ck_assert_uint_eq(copying(), JOBS);
    ck_assert_uint_eq(waiting(), 0);
}

static int store(unsigned client, uint32_t n, const _Atomic uint64_t *after, struct rig_commit *m)
{
    static uint32_t chain = 100;
    put = (struct rig_put){.ns = ns, .chain = ++chain, .n = n};
    ck_assert_int_eq(rig_reserve(&r, client, &put), 0);
    m->c.transfer.after.word = after;
    m->c.transfer.after.value = 1;
    return rig_commit_pages(&r, client, &put, 0, pool, 128, m);
}

static void all_are(const uint8_t *statuses, uint32_t n, uint8_t want)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_uint_eq(statuses[i], want);
}

/* ---- turns ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(who_finds_no_copy_free_waits_and_is_served)
{
    fill_up(1);
    start(4, 1);
    ck_assert_int_eq(store(1, 2, NULL, &commit), 1);
    ck_assert_uint_eq(copying(), JOBS);
    ck_assert_uint_eq(waiting(), 2);
    run();
    ck_assert_uint_eq(waiting(), 2);
    ck_assert(!core_has_done(r.core));
    end_first(0);
    ck_assert(core_has_done(r.core));
    run();
    ck_assert_uint_eq(copying(), JOBS);
    ck_assert_uint_eq(waiting(), 1);
    end_all(0);
    for (unsigned i = 0; i <= JOBS; i++) {
        const struct key256 key = rig_key(10 + i, 1);
        ck_assert_uint_eq(send[i].done, 1);
        all_are(send[i].statuses, 2, KVC_ST_OK);
        ck_assert(rig_has_arrived(&send[i], ns, 0, 1, key.b));
    }
    ck_assert_uint_eq(commit.done, 1);
    all_are(commit.statuses, 2, KVC_ST_OK);
}

CASE(clients_take_turns)
{
    static const unsigned order[] = {4, 7, 5, 6};
    fill_up(1);
    for (unsigned i = 4; i < 7; i++)
        start(i, 1);
    start(7, 2);
    for (unsigned i = 0; i < ARRAY_LEN(order); i++) {
        end_first(0);
        run();
        ck_assert_ptr_eq(fake_device_copy(r.device[0], JOBS - 1)->pool, pool);
        ck_assert_ptr_eq(fake_device_copy(r.device[0], JOBS - 1)->piece[0].pages,
                         send[order[i]].s.group[0].pages);
    }
    end_all(0);
}

CASE(who_comes_later_does_not_pass_who_waits)
{
    fill_up(1);
    start(4, 1);
    end_first(0);
    start(5, 2);
    ck_assert_uint_eq(copying(), JOBS - 1);
    ck_assert_uint_eq(waiting(), 2);
    end_all(0);
}

CASE(another_device_is_not_waited_for)
{
    struct device_pool *there = rig_pool(&r, 1, ns, PAGES);
    fill_up(1);
    rig_store(&r, 1, ns, 0, 30, 0, 2);
    held[5] = rig_acquire(&r, 1, ns, 30, 16);
    ck_assert_int_eq(rig_send(&r, 1, &held[5], 1, there, 0, &send[5]), 1);
    ck_assert_uint_eq(fake_device_inflight(r.device[1]), 1);
    fake_device_end(r.device[1], fake_device_copy(r.device[1], 0), 0);
    end_all(0);
    fake_pool_destroy(&there);
}

/* ---- what waits for words ---- */

CASE(words_hold_up_only_others_that_wait_for_words)
{
    start_after(0, 1, &word);
    start_after(1, 1, &word);
    start_after(2, 1, &word); /* a client has two */
    run();
    ck_assert_uint_eq(copying(), 2);
    start_after(3, 2, &word);
    start_after(4, 2, &word); /* and all have three */
    run();
    ck_assert_uint_eq(copying(), 3);
    ck_assert_uint_eq(waiting(), 2);
    start(5, 1);
    ck_assert_uint_eq(copying(), 4);
    start(6, 2);
    ck_assert_uint_eq(waiting(), 3);
    fake_device_end(r.device[0], fake_device_copy(r.device[0], 3), 0);
    run();
    ck_assert_uint_eq(send[5].done, 1);
    ck_assert_uint_eq(copying(), 4);
    ck_assert_uint_eq(waiting(), 2);
    atomic_store(&word, 1);
    end_all(0);
    for (unsigned i = 0; i < 7; i++)
        all_are(send[i].statuses, 2, KVC_ST_OK);
}

CASE(a_word_that_comes_while_its_copy_waits_lets_it_begin)
{
    static _Atomic uint64_t mine;
    atomic_store(&mine, 0);
    start_after(0, 1, &word);
    start_after(1, 1, &word);
    start_after(2, 1, &mine);
    atomic_store(&mine, 1);
    rig_step(&r);
    run();
    ck_assert_uint_eq(copying(), 3);
    fake_device_end(r.device[0], fake_device_copy(r.device[0], 2), 0);
    ck_assert_uint_eq(send[2].done, 1);
    all_are(send[2].statuses, 2, KVC_ST_OK);
    atomic_store(&word, 1);
    end_all(0);
}

CASE(blocks_that_wait_for_words_are_bounded_and_the_limit_is_named)
{
    struct device_pool *large = rig_pool(&r, 0, ns, 4 * KVC_STORE_MAX);
    struct device_pool *small = pool;
    pool = large;
    ck_assert_int_eq(store(1, KVC_STORE_MAX, &word, &commit), 1);
    ck_assert_int_eq(store(1, 1, &word, &other), KVC_E_BUSY);
    ck_assert(strstr(r.why, "words"));
    ck_assert_int_eq(core_drop(r.core, r.cl[1], put.reservation), 0);
    rig_commit_free(&other);
    ck_assert_int_eq(store(1, 1, NULL, &other), 1);
    fake_device_end(r.device[0], fake_device_copy(r.device[0], 1), 0);
    atomic_store(&word, 1);
    end_all(0);
    ck_assert_uint_eq(other.done, 1);
    ck_assert_uint_eq(other.statuses[0], KVC_ST_OK);
    ck_assert_uint_eq(commit.done, 1);
    pool = small;
    fake_pool_destroy(&large);
}

/* ---- what ends without its turn ---- */

CASE(who_is_cancelled_while_it_waits_ends_in_the_next_turn)
{
    fill_up(1);
    start(4, 2);
    ck_assert_int_eq(store(2, 1, NULL, &commit), 1);
    core_cancel(r.core, &send[4].s.req);
    core_cancel(r.core, &commit.c.req);
    ck_assert_uint_eq(send[4].done + commit.done, 0);
    ck_assert(core_has_done(r.core));
    run();
    ck_assert_uint_eq(send[4].done, 1);
    all_are(send[4].statuses, 2, KVC_ST_CANCELLED);
    ck_assert_uint_eq(commit.done, 1);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_CANCELLED);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(copying(), JOBS);
    ck_assert_uint_eq(rig_lookup(&r, ns, put.chain, 8).tokens, 0);
    end_all(0);
}

CASE(who_is_past_its_deadline_ends)
{
    fill_up(1);
    start(4, 2);
    ck_assert_int_eq(store(2, 1, NULL, &commit), 1);
    send[4].s.transfer.deadline_ns = commit.c.transfer.deadline_ns = r.now_ns + 1;
    run();
    ck_assert_uint_eq(waiting(), 2);
    rig_step(&r);
    run();
    ck_assert_uint_eq(waiting(), 0);
    all_are(send[4].statuses, 2, KVC_ST_TIMEOUT);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_TIMEOUT);
    ck_assert_uint_eq(copying(), JOBS);
    end_all(0);
}

CASE(a_client_that_goes_is_idle_when_what_waited_has_ended)
{
    fill_up(1);
    start(4, 2);
    ck_assert_int_eq(store(2, 1, NULL, &commit), 1);
    rig_close(&r, 2);
    ck_assert_uint_eq(r.idle[2], 0);
    run();
    ck_assert_uint_eq(r.idle[2], 1);
    ck_assert_uint_eq(send[4].done + commit.done, 2);
    ck_assert_uint_eq(waiting(), 0);
    end_all(0);
}

CASE(a_lease_that_is_released_stays_until_its_turn_is_over)
{
    fill_up(1);
    start(4, 2);
    ck_assert_int_eq(core_release(r.core, r.cl[2], held[4].lease), 0);
    core_check(r.core);
    end_all(0);
    all_are(send[4].statuses, 2, KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(r.core)->leases, JOBS);
}

CASE(a_device_that_is_lost_ends_who_waits_for_it_too)
{
    fill_up(1);
    start(4, 2);
    ck_assert_int_eq(store(2, 1, NULL, &commit), 1);
    fake_device_lose(r.device[0]);
    end_all(-EIO);
    ck_assert_uint_eq(waiting(), 0);
    all_are(send[4].statuses, 2, KVC_ST_TIER);
    ck_assert_uint_eq(commit.statuses[0], KVC_ST_TIER);
}
