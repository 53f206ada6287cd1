/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "clock.h"
#include "flight.h"
#include "turn.h"

#define MS 1000000u

static char text[1 << 16];

static void setup(void)
{
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_thread("control"), 0);
    (void)turn_end(UINT64_MAX);
}

static void teardown(void)
{
    flight_fini();
}

/* The values of the only record of this event; false: there is none. */
static bool record(const char *event, unsigned long value[3])
{
    const int fd = memfd_create("flight", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flight_dump(fd), 0);
    const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    (void)close(fd);
    char name[32];
    (void)snprintf(name, sizeof(name), " control  %-12s a=", event);
    const char *at = strstr(text, name);
    if (at == NULL)
        return false;
    ck_assert_ptr_null(strstr(at + 1, name));
    char *end = strstr(at, "a=");
    for (unsigned i = 0; i < 3; i++) {
        value[i] = strtoul(end + 2, &end, 10); /* behind "a=", "b=" and "c=" */
        end += *end == ' ';
    }
    ck_assert_int_eq(*end, '\n');
    return true;
}

static void compute(uint64_t ns)
{
    const uint64_t until = clock_thread_ns() + ns;
    while (clock_thread_ns() < until)
        continue;
}

static void wait_for(uint64_t ns)
{
    const struct timespec ts = {.tv_nsec = (long)ns};
    ck_assert_int_eq(nanosleep(&ts, NULL), 0);
}

CASES(.setup = setup, .teardown = teardown);

CASE(of_a_long_turn_what_computed_longest_is_kept)
{
    unsigned long turn[3], piece[3];
    turn_begin(clock_now_ns());
    compute(5 * MS);
    (void)turn_piece(TURN_READY, 0, 0);
    compute(40 * MS);
    ck_assert_uint_ge(turn_piece(5, 7, 1024), 40 * MS);
    wait_for(200 * MS); /* longer, but it was others' time */
    ck_assert_uint_ge(turn_piece(4, 1, 16), 200 * MS);
    const struct turn_times t = turn_end(2 * MS);
    ck_assert_uint_ge(t.ns, 245 * MS);
    ck_assert_uint_ge(t.cpu_ns, 45 * MS);
    ck_assert_uint_le(t.cpu_ns, t.ns - 100 * MS);
    ck_assert(record("PIECE", piece));
    ck_assert_uint_eq(piece[0], 5);
    ck_assert_uint_eq(piece[1], 7);
    ck_assert_uint_eq(piece[2], 1024);
    ck_assert(record("TURN", turn));
    ck_assert_uint_eq(turn[0], t.ns / 1000);
    ck_assert_uint_eq(turn[1], t.cpu_ns / 1000);
    ck_assert_uint_ge(turn[2], 39000);
    ck_assert_uint_lt(turn[2], turn[1]);
}

/* What submits I/O computes while the turn waits for work. */
CASE(what_was_computed_before_a_turn_is_its_processor_time)
{
    unsigned long turn[3];
    compute(20 * MS);
    turn_begin(clock_now_ns());
    const struct turn_times t = turn_end(2 * MS);
    ck_assert_uint_ge(t.cpu_ns, 20 * MS);
    ck_assert_uint_ge(t.cpu_ns, t.ns);
    ck_assert(record("TURN", turn));
}

CASE(of_a_turn_within_the_limit_nothing_is_kept)
{
    unsigned long value[3];
    turn_begin(clock_now_ns());
    (void)turn_piece(5, 7, 1024);
    (void)turn_end(UINT64_MAX);
    ck_assert(!record("TURN", value));
    ck_assert(!record("PIECE", value));
}

CASE(the_legend_has_all_pieces)
{
    unsigned long value[3];
    ck_assert(!record("TURN", value));
#define HAS(number, name, what) ck_assert_ptr_nonnull(strstr(text, #number " " what ", "));
    TURN_PIECES(HAS)
#undef HAS
}
