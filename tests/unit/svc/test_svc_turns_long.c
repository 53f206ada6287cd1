/* SPDX-License-Identifier: Apache-2.0 */
/* What made a turn long is told: which operation, of which session, with how much work. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cases.h"
#include "clock.h"
#include "svc__.h"
#include "svc_rig.h"
#include "svc_rig__.h"
#include "turn.h"

/* A slice takes so long that its processor time is read, whatever else the machine does. */
#define BLOCKS 4096u
#define SLICE  (2048u * 17)
#define TRIES  20u

static struct srig s;
static struct sr_peer *p, *q;
static struct sr_blocks all;

/* A slice announces half of the blocks; a turn has one slice. */
static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.slice_work = SLICE;
    s.core_cfg.blocks_max = 2 * BLOCKS;
    s.regions = BLOCKS / 64;
    s.cfg.turn_work = 1;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    sr_turn(&s, 0);
    all = (struct sr_blocks){.ns = sr_ns(&s, q, "m"), .chain = 1, .n = BLOCKS};
    sr_turn(&s, 0);
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_thread("control"), 0);
}

static void teardown(void)
{
    flight_fini();
    sr_end(&s);
}

static uint32_t index_of(const struct sr_peer *peer)
{
    return session_by_route(s.svc, peer->route, KVC_ROUTE_BYTES)->index;
}

/* The record of the turn's longest piece is this one. */
static bool is_told(uint32_t op, const struct sr_peer *of, uint64_t units)
{
    static char text[1 << 16];
    char wanted[96];
    (void)turn_end(0);
    const int fd = memfd_create("flight", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flight_dump(fd), 0);
    const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    (void)close(fd);
    (void)snprintf(wanted, sizeof(wanted), "PIECE        a=%u b=%u c=%llu\n", op, index_of(of),
                   (unsigned long long)units);
    return strstr(text, wanted) != NULL;
}

/* A machine that takes the processor away in another piece makes that the longest one. */
static void expect_soon(bool (*try)(void))
{
    unsigned tries = 1;
    while (!try() && ++tries <= TRIES) {
        teardown();
        setup();
    }
    ck_assert_uint_le(tries, TRIES);
}

static bool slice_is_told(void)
{
    (void)sr_reserve(&s, q, &all); /* its first slice */
    core_tick(s.core, s.now_ns);
    svc_turn_begin(s.svc, s.now_ns);
    turn_begin(clock_now_ns());
    const uint64_t before = core_work(s.core);
    svc_turn_end(s.svc);
    ck_assert_uint_ge(core_work(s.core) - before, SLICE);
    const bool is = is_told(KVC_OP_RESERVE, q, core_work(s.core) - before);
    sr_leave(&s, q);
    return is;
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_slice_is_told_by_its_operation_session_and_work)
{
    expect_soon(slice_is_told);
}

static bool request_is_told(void)
{
    const struct msg_reserve msg = {.ns = all.ns, .keys = sr__seq(&all).keys[0]};
    const int len = codec_enc_reserve(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_RESERVE, 0), &msg);
    core_tick(s.core, s.now_ns);
    svc_turn_begin(s.svc, s.now_ns);
    turn_begin(clock_now_ns());
    const uint64_t before = core_work(s.core);
    (void)sr_send(&s, q, len); /* its first slice */
    ck_assert_uint_ge(core_work(s.core) - before, SLICE);
    const bool is = is_told(KVC_OP_RESERVE, q, core_work(s.core) - before);
    sr_leave(&s, q);
    return is;
}

CASE(a_request_is_told_in_the_same_way)
{
    expect_soon(request_is_told);
}
