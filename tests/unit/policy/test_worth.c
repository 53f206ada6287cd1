/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"
#include "worth.h"

#define MS  UINT64_C(1000000)
#define SEC UINT64_C(1000000000)
#define MIB (UINT64_C(1) << 20)

/* 16 tokens a block of 2 MiB; a token costs 50 us to compute. */
#define BT    16u
#define BLOCK (2 * MIB)
static const struct worth_cost cost = {.ns_per_token = 50000};
#define BLOCK_PREFILL_NS (BT * 50000.0)

static struct worth_speed disk_of(uint64_t mib_per_s)
{
    return (struct worth_speed){.host_bytes_per_s = 16384 * MIB,
                                .disk_bytes_per_s = mib_per_s * MIB};
}

/* Blocks of which bit i of `on_disk` says where they are. */
static uint32_t cut_of(const struct worth_speed *speed, uint32_t blocks, uint64_t on_disk,
                       uint32_t from)
{
    struct worth w;
    struct worth_load load = {0};
    worth_begin(&w, &cost, speed, from, blocks * BT);
    for (uint32_t i = 0; i < blocks; i++) {
        if ((i + 1) * BT > from)
            *(on_disk >> i & 1 ? &load.disk_bytes : &load.host_bytes) += BLOCK;
        worth_offer(&w, (i + 1) * BT, &load);
    }
    return w.ret_tokens;
}

CASE(a_quick_disk_is_worth_it_and_a_slow_one_is_not)
{
    /* 800 us to compute a block: 2.5 GiB/s break even. */
    struct worth_speed quick = disk_of(3000), slow = disk_of(2000);
    ck_assert_uint_eq(cut_of(&quick, 32, UINT64_MAX, 0), 32 * BT);
    ck_assert_uint_eq(cut_of(&slow, 32, UINT64_MAX, 0), 0);
}

CASE(the_cut_is_where_memory_ends)
{
    struct worth_speed slow = disk_of(2000);
    ck_assert_uint_eq(cut_of(&slow, 32, 0xffff0000, 0), 16 * BT);
}

CASE(a_gap_on_disk_is_loaded_for_what_is_in_memory_behind_it)
{
    struct worth_speed slow = disk_of(2000);
    ck_assert_uint_eq(cut_of(&slow, 32, 0xf0, 0), 32 * BT);
    slow = disk_of(100); /* 4 blocks take 80 ms, computing 28 takes 22 */
    ck_assert_uint_eq(cut_of(&slow, 32, 0xf0, 0), 4 * BT);
}

CASE(a_disk_of_which_nothing_is_known_is_tried)
{
    struct worth_speed unknown = disk_of(0);
    ck_assert_uint_eq(cut_of(&unknown, 32, UINT64_MAX, 0), 32 * BT);
}

CASE(latency_counts_once)
{
    struct worth_speed late = disk_of(1000000);
    late.disk_latency_ns = (uint64_t)(8 * BLOCK_PREFILL_NS);
    ck_assert_uint_eq(cut_of(&late, 8, UINT64_MAX, 0), 0);
    ck_assert_uint_eq(cut_of(&late, 9, UINT64_MAX, 0), 9 * BT);
}

CASE(what_others_read_comes_first)
{
    struct worth_speed busy = disk_of(5000); /* twice as quick as needed */
    ck_assert_uint_eq(cut_of(&busy, 32, UINT64_MAX, 0), 32 * BT);
    busy.disk_busy_bytes = 64 * BLOCK;
    ck_assert_uint_eq(cut_of(&busy, 32, UINT64_MAX, 0), 0);
}

CASE(who_waits_takes_turns)
{
    struct worth_speed busy = disk_of(8000); /* 3.1 times as quick as needed */
    busy.disk_wait_bytes = 10000 * BLOCK;
    busy.disk_waiters = 2; /* so ours comes in three times the time */
    ck_assert_uint_eq(cut_of(&busy, 32, UINT64_MAX, 0), 32 * BT);
    busy.disk_waiters = 3;
    ck_assert_uint_eq(cut_of(&busy, 32, UINT64_MAX, 0), 0);
}

CASE(what_another_loads_already_is_not_read_twice)
{
    struct worth_speed speed = disk_of(1000);
    speed.disk_wait_bytes = 8 * BLOCK;
    speed.disk_waiters = 1;
    struct worth_load shared = {.shared_bytes = 8 * BLOCK};
    struct worth_load alone = {.disk_bytes = 8 * BLOCK};
    ck_assert_double_eq_tol(worth_load_ns(&speed, &shared), 16e6, 1);
    ck_assert_double_eq_tol(worth_load_ns(&speed, &alone), 32e6, 1);
}

CASE(what_the_asker_has_is_neither_loaded_nor_computed)
{
    struct worth_speed late = disk_of(1000000);
    late.disk_latency_ns = (uint64_t)(8 * BLOCK_PREFILL_NS);
    ck_assert_uint_eq(cut_of(&late, 16, UINT64_MAX, 0), 16 * BT);
    ck_assert_uint_eq(cut_of(&late, 16, UINT64_MAX, 8 * BT), 8 * BT);
}

CASE(deep_tokens_cost_more)
{
    const struct worth_cost pairs = {.ns_per_token = 1000, .ns_per_token_pair = 2000000};
    /* 1 us, and 2 ns for each token before it: 100 x 1 us + 2 ns x (100 x 150). */
    ck_assert_double_eq_tol(worth_prefill_ns(&pairs, 100, 200), 100e3 + 2 * 15000, 1e-3);
}

/* ---- the least of all, against all ---- */

static uint64_t seed;

static uint64_t below(uint64_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (seed >> 33) % n;
}

CASE_EACH(no_other_cut_is_better, 10)
{
    seed = (uint64_t)_i + 1;
    for (unsigned round = 0; round < 2000; round++) {
        struct worth_cost c = {below(100000), below(2) ? below(3000000) : 0};
        struct worth_speed speed = disk_of(1 + below(5000));
        speed.disk_latency_ns = below(20 * MS);
        const uint32_t blocks = 1 + (uint32_t)below(40);
        struct worth_load load[41] = {{0}};
        struct worth w;
        c.ns_per_token++;
        worth_begin(&w, &c, &speed, 0, blocks * BT);
        for (uint32_t i = 1; i <= blocks; i++) {
            load[i] = load[i - 1];
            *(below(2) ? &load[i].disk_bytes : &load[i].host_bytes) += BLOCK;
            worth_offer(&w, i * BT, &load[i]);
        }
        double got = worth_load_ns(&speed, &load[w.ret_tokens / BT]) +
                     worth_prefill_ns(&c, w.ret_tokens, blocks * BT);
        for (uint32_t i = 0; i <= blocks; i++) {
            double other =
                worth_load_ns(&speed, &load[i]) + worth_prefill_ns(&c, i * BT, blocks * BT);
            ck_assert_msg(got <= other * (1 + 1e-9),
                          "seed %llu: cut at %u blocks costs %f, at %u %f",
                          (unsigned long long)_i + 1, w.ret_tokens / BT, got, i, other);
        }
    }
}

/* ---- the meter ---- */

static struct worth_speed speed_at(const struct worth_meter *m, uint64_t inflight, uint64_t now)
{
    struct worth_speed speed = {0};
    worth_meter_now(m, inflight, now, &speed);
    return speed;
}

/* A load of 32 MiB, 2 MiB at a time, that comes at a steady rate after `late`. */
static uint64_t read_much(struct worth_meter *m, uint64_t now, uint64_t mib_per_s, uint64_t late)
{
    uint64_t inflight = 0;
    for (unsigned i = 0; i < 16; i++, inflight += BLOCK)
        worth_meter_begin(m, BLOCK, inflight, now);
    now += late;
    for (unsigned i = 0; i < 16; i++) {
        now += 2 * SEC / mib_per_s;
        inflight -= BLOCK;
        worth_meter_end(m, BLOCK, true, inflight, now);
    }
    return now;
}

CASE(the_rate_is_found_out)
{
    struct worth_meter m = {0};
    uint64_t now = SEC;
    ck_assert_uint_eq(speed_at(&m, 0, now).disk_bytes_per_s, 0);
    for (unsigned i = 0; i < 8; i++)
        now = read_much(&m, now, 1000, 0) + SEC;
    ck_assert_uint_ge(speed_at(&m, 0, now).disk_bytes_per_s, 950 * MIB);
    ck_assert_uint_le(speed_at(&m, 0, now).disk_bytes_per_s, 1050 * MIB);
    for (unsigned i = 0; i < 8; i++)
        now = read_much(&m, now, 100, 0) + SEC;
    ck_assert_uint_le(speed_at(&m, 0, now).disk_bytes_per_s, 120 * MIB);
}

CASE(few_bytes_that_come_late_are_latency)
{
    struct worth_meter m = {0};
    uint64_t now = read_much(&m, SEC, 1000, 0) + SEC;
    for (unsigned i = 0; i < 6; i++, now += SEC) {
        worth_meter_begin(&m, 65536, 0, now);
        now += 2 * SEC;
        worth_meter_end(&m, 65536, true, 0, now);
    }
    struct worth_speed s = speed_at(&m, 0, now);
    ck_assert_uint_ge(s.disk_latency_ns, 1900 * MS);
    ck_assert_uint_ge(s.disk_bytes_per_s, 900 * MIB);
}

CASE(a_read_that_does_not_come_counts_before_it_does)
{
    struct worth_meter m = {0};
    uint64_t now = read_much(&m, SEC, 1000, 0) + SEC;
    worth_meter_begin(&m, 64 * MIB, 0, now);
    ck_assert_uint_ge(speed_at(&m, 64 * MIB, now + 10 * MS).disk_bytes_per_s, 900 * MIB);
    ck_assert_uint_le(speed_at(&m, 64 * MIB, now + 2 * SEC).disk_bytes_per_s, 33 * MIB);
}

CASE(what_comes_late_and_at_once_is_slow)
{
    struct worth_meter m = {0};
    uint64_t now = SEC, inflight = 0;
    for (unsigned i = 0; i < 64; i++, inflight += BLOCK)
        worth_meter_begin(&m, BLOCK, inflight, now);
    now += 2 * SEC;
    for (unsigned i = 0; i < 64; i++) {
        inflight -= BLOCK;
        worth_meter_end(&m, BLOCK, true, inflight, now += 100000);
    }
    ck_assert_uint_le(speed_at(&m, 0, now).disk_bytes_per_s, 64 * MIB);
    ck_assert_uint_ge(speed_at(&m, 0, now).disk_bytes_per_s, 60 * MIB);
}

CASE(what_fails_says_nothing_of_the_rate)
{
    struct worth_meter m = {0};
    worth_meter_begin(&m, 64 * MIB, 0, SEC);
    worth_meter_end(&m, 64 * MIB, false, 0, SEC + MS);
    ck_assert_uint_eq(speed_at(&m, 0, 2 * SEC).disk_bytes_per_s, 0);
}

CASE(one_quick_read_raises_what_was_slow)
{
    struct worth_meter m = {0};
    uint64_t now = read_much(&m, SEC, 10, 0) + SEC;
    ck_assert_uint_le(speed_at(&m, 0, now).disk_bytes_per_s, 12 * MIB);
    worth_meter_begin(&m, BLOCK, 0, now);
    worth_meter_end(&m, BLOCK, true, 0, now + MS);
    ck_assert_uint_ge(speed_at(&m, 0, now + SEC).disk_bytes_per_s, 900 * MIB);
}

/* A read alone: what the disk is like when it begins and when it is over. */
static uint64_t read_alone(struct worth_meter *m, uint64_t now, uint64_t bytes, uint64_t ns)
{
    worth_meter_begin(m, bytes, 0, now);
    worth_meter_end(m, bytes, true, 0, now + ns);
    return now + ns + SEC;
}

static uint64_t load_ns(const struct worth_meter *m, uint64_t now, uint64_t bytes)
{
    const struct worth_speed speed = speed_at(m, 0, now);
    const struct worth_load load = {.disk_bytes = bytes};
    return (uint64_t)worth_load_ns(&speed, &load);
}

/* One block in 50 ms is no rate: 64 of them were taken to last 3.2 s, and were not tried. */
CASE(the_first_small_read_is_latency)
{
    struct worth_meter m = {0};
    uint64_t now = read_alone(&m, SEC, 65536, 50 * MS);
    ck_assert_uint_eq(load_ns(&m, now, 65536), 50 * MS);
    ck_assert_uint_eq(load_ns(&m, now, 4 * MIB), 50 * MS);
    now = read_alone(&m, now, MIB, 51 * MS); /* it takes no longer: still no rate */
    ck_assert_uint_eq(speed_at(&m, 0, now).disk_bytes_per_s, 0);
    now = read_much(&m, now, 1000, 50 * MS);
    ck_assert_uint_le(load_ns(&m, now, 65536), 60 * MS);
}

/* Of 100 MiB/s, found out without a read that is deep. */
CASE(small_reads_that_take_as_long_as_they_are_large_tell_the_rate)
{
    struct worth_meter m = {0};
    uint64_t now = read_alone(&m, SEC, 65536, MS);
    now = read_alone(&m, now, 2 * MIB, 20 * MS);
    ck_assert_uint_ge(load_ns(&m, now, 2 * MIB), 19 * MS);
    ck_assert_uint_le(load_ns(&m, now, 2 * MIB), 22 * MS);
    ck_assert_uint_le(load_ns(&m, now, 65536), 2 * MS);
}
