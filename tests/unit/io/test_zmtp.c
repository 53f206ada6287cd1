/* SPDX-License-Identifier: Apache-2.0 */
/* What the limiter lets through of ZMTP, whole and cut at every byte. */
#include <errno.h>
#include <string.h>

#include "cases.h"
#include "zmtp.h"

#define GREETING_TEXT "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL"
#define ROUTE_TEXT    "kkkkkkkkkkkkkkkk"
#define TYPE_TEXT     "\13Socket-Type\0\0\0\6DEALER"
/* 29 bytes; the name has eight */
#define IDENTITY_TEXT(name) "\10" name "\0\0\0\20" ROUTE_TEXT
#define READY_TEXT          "\5READY" TYPE_TEXT IDENTITY_TEXT("Identity")

static struct zmtp z;
static uint8_t stream[4096];
static size_t n;
static unsigned ready;
static int verdict;

static int on_ready(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    ck_assert_ptr_eq(ctx, &ready);
    ck_assert_mem_eq(route, ROUTE_TEXT, KVC_ROUTE_BYTES);
    ready++;
    return verdict;
}

static const struct zmtp_rules rules = {.message_max = 300, .frames_max = 3, .ready = on_ready};

static void put(const void *p, size_t len)
{
    memcpy(stream + n, p, len);
    n += len;
}

static void frame(uint8_t flags, const void *p, size_t len)
{
    uint8_t head[9] = {flags, (uint8_t)len};
    if (flags & 2) {
        memset(head + 1, 0, 8);
        head[7] = (uint8_t)(len >> 8);
        head[8] = (uint8_t)len;
    }
    put(head, flags & 2 ? 9 : 2);
    put(p, len);
}

static void setup(void)
{
    memset(&z, 0, sizeof z);
    memset(stream, 0, sizeof stream);
    ready = 0;
    verdict = 0;
    memcpy(stream, GREETING_TEXT, sizeof GREETING_TEXT - 1);
    n = 64;
    frame(4, READY_TEXT, sizeof READY_TEXT - 1);
}

/* The stream in pieces of `step` bytes; what the last call returned. */
static int scan(size_t step, uint64_t *queued)
{
    int err = 0;
    memset(&z, 0, sizeof z);
    *queued = 0;
    ready = 0;
    for (size_t at = 0; at < n && !err; at += step)
        err = zmtp_scan(&z, &rules, &ready, stream + at, MIN(step, n - at), queued);
    return err;
}

static void expect(int err, uint64_t queued)
{
    for (size_t step = 1; step <= n; step++) {
        uint64_t q;
        ck_assert_int_eq(scan(step, &q), err);
        ck_assert_uint_eq(q, queued);
    }
}

CASES(.setup = setup);

CASE(what_ours_sends_passes)
{
    static const uint8_t body[300] = {1};
    frame(0, body, 17);
    frame(0, "", 0);
    frame(4, "\4PING\0\12", 7);
    frame(2, body, 300);
    frame(0, body, 255);
    expect(0, 17 + 300 + 255);
    ck_assert_uint_eq(ready, 1);
}

CASE(several_frames_are_one_message)
{
    static const uint8_t body[300] = {1};
    frame(1, body, 100);
    frame(4, "\4PONG", 5); /* between frames: changes nothing */
    frame(1, body, 100);
    frame(0, body, 100);
    frame(1, body, 9);
    expect(0, 300);
}

CASE(too_many_frames)
{
    for (unsigned i = 0; i < 4; i++) {
        frame(1, "", 0);
        frame(4, "\4PONG", 5);
    }
    expect(-EMSGSIZE, 0);
}

CASE(too_many_bytes_in_several_frames)
{
    static const uint8_t body[300] = {1};
    frame(3, body, 300);
    frame(0, body, 1);
    expect(-EMSGSIZE, 0);
}

CASE(too_many_bytes_in_one_frame)
{
    put("\2\0\0\0\0\0\0\1\x2d", 9);
    expect(-EMSGSIZE, 0);
    n -= 9;
    put("\2\xff\xff\xff\xff\xff\xff\xff\xff", 9);
    expect(-EMSGSIZE, 0);
}

CASE(other_commands_and_flags)
{
    static const struct {
        uint8_t flags;
        const char *body;
        size_t len;
    } bad[] = {{4, "\5READY", 6},
               {4, "\11SUBSCRIBEx", 11},
               {4, "", 0},
               {4, "\4PIN", 4},
               {5, "\4PONG", 5},
               {8, "x", 1},
               {0x80, "", 0},
               {4, "\4PING", 5},
               {4, "\4PING\0", 6},
               {4, READY_TEXT, sizeof READY_TEXT - 1},
               {4, "\4PON", 4},
               {4, "\5PINGx", 6},
               {6, READY_TEXT READY_TEXT, 100}};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        setup();
        frame(bad[i].flags, bad[i].body, bad[i].len);
        uint64_t q;
        ck_assert_msg(scan(1, &q) < 0, "%u", i);
        ck_assert_int_lt(scan(n, &q), 0);
        ck_assert_uint_eq(ready, 1);
    }
}

CASE(a_handshake_that_is_none)
{
    static const struct {
        const char *body;
        size_t len;
        uint8_t flags;
    } bad[] = {{"x", 1, 0},
               {"\5READY", 6, 4},
               {"\5ERROR", 6, 4},
               {READY_TEXT, sizeof READY_TEXT - 2, 4}, /* the value is cut */
               {"\5READY\10Identity\0\0\0\17kkkkkkkkkkkkkkk", 34, 4},
               {"\5READY\10Identity\xff\xff\xff\xffkkkkkkkkkkkkkkkk", 35, 4},
               {"\5READY\xffIdentity", 15, 4},
               {"\5READY\10Ident", 12, 4},
               {READY_TEXT, sizeof READY_TEXT - 1, 5},
               {READY_TEXT IDENTITY_TEXT("Identity"), sizeof READY_TEXT - 1 + 29, 4},
               {READY_TEXT IDENTITY_TEXT("identity"), sizeof READY_TEXT - 1 + 29, 4},
               {"\5READY" TYPE_TEXT IDENTITY_TEXT("identity"), 6 + 22 + 29, 4},
               {"\5READY" TYPE_TEXT IDENTITY_TEXT("IDENTITY"), 6 + 22 + 29, 4},
               {"\5READY" IDENTITY_TEXT("identity") TYPE_TEXT IDENTITY_TEXT("Identity"),
                6 + 29 + 22 + 29, 4},
               {"\5READY" IDENTITY_TEXT("Identity"), 6 + 29, 4}, /* no Socket-Type */
               {READY_TEXT TYPE_TEXT, sizeof READY_TEXT - 1 + 22, 4},
               {READY_TEXT "\0", sizeof READY_TEXT, 4},
               {READY_TEXT "\1X", sizeof READY_TEXT + 1, 4},
               {"\4PING\0\0", 7, 4}};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        setup();
        n = 64;
        frame(bad[i].flags, bad[i].body, bad[i].len);
        uint64_t q;
        ck_assert_msg(scan(1, &q) < 0, "%u", i);
        ck_assert_int_lt(scan(n, &q), 0);
        ck_assert_uint_eq(ready, 0);
    }
}

CASE(properties_of_other_names_do_no_harm)
{
    static const char more[] = READY_TEXT "\13Resource-ID\0\0\0\1r\6X-kvca\0\0\0\0\0\0\0\0\0";
    n = 64;
    frame(4, more, sizeof more - 1);
    frame(0, "x", 1);
    expect(0, 1);
    ck_assert_uint_eq(ready, 1);
}

CASE(an_older_greeting)
{
    static const struct {
        unsigned at;
        uint8_t byte;
    } bad[] = {{0, 0}, {0, 0xfe}, {9, 0x7e}, {10, 0}, {10, 1}, {10, 2}};
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        setup();
        stream[bad[i].at] = bad[i].byte;
        expect(-EPROTO, 0);
    }
}

CASE(whoever_the_guard_refuses)
{
    verdict = -EACCES;
    expect(-EACCES, 0);
}
