/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows the bytes of one ZeroMQ connection, frame by frame, and refuses those no worker of ours
 * sends.
 */
#include "zmtp.h"

#include <string.h>
#include <strings.h>

#define GREETING_BYTES 64u
#define FLAG_MORE      1u
#define FLAG_LONG      2u
#define FLAG_COMMAND   4u

enum phase { PHASE_GREETING, PHASE_HEAD, PHASE_BODY };

/* ThreadSanitizer cannot see how ZeroMQ hands its memory to the control thread. So the functions
 * that read these bytes are not instrumented, and call no function that is. */
#define UNWATCHED __attribute__((no_sanitize("thread")))

/* Whether byte number `at` of the greeting fits: ff, eight bytes of any value, a byte with bit 0
 * set, the version. Else the protocol is older. */
static bool greeting_fits(unsigned at, uint8_t byte)
{
    if (at == 0)
        return byte == 0xff;
    if (at == 9)
        return byte & 1;
    return at != 10 || byte >= 3;
}

static uint64_t get_u64be(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

/* Parses the properties of a READY: name with a length of one byte, value with one of four
 * (big-endian). The route is the value of Identity. libzmq takes the last property of exactly that
 * name; others may take the first in any spelling. So an ambiguous Identity is refused. */
static int parse_properties(const uint8_t *p, size_t n, const uint8_t **ret_route)
{
    static const char identity[] = "Identity", type[] = "Socket-Type";
    const uint8_t *route = NULL;
    unsigned identities = 0, types = 0;
    while (n > 0) {
        const size_t len = p[0];
        if (n < 1 + len + 4)
            return -EPROTO;
        const char *name = (const char *)p + 1;
        const uint8_t *at = p + 1 + len;
        const size_t value =
            (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | (size_t)at[3];
        if (n - 1 - len - 4 < value)
            return -EPROTO;
        if (len == sizeof identity - 1 && strncasecmp(name, identity, len) == 0) {
            if (memcmp(name, identity, len) != 0 || value != KVC_ROUTE_BYTES)
                return -EPROTO;
            identities++;
            route = at + 4;
        }
        types += len == sizeof type - 1 && strncasecmp(name, type, len) == 0;
        n -= 1 + len + 4 + value;
        p = at + 4 + value;
    }
    if (identities != 1 || types != 1)
        return -EPROTO;
    *ret_route = route;
    return 0;
}

static bool is_named(const struct zmtp *z, const char *name, size_t len)
{
    return z->kept > len && z->command[0] == len && memcmp(z->command + 1, name, len) == 0;
}

static int command_end(struct zmtp *z, const struct zmtp_rules *rules, void *ctx)
{
    if (z->ready) /* libzmq reads the two bytes of a PING's lifetime without looking */
        return (is_named(z, "PING", 4) && z->kept >= 7) || is_named(z, "PONG", 4) ? 0 : -EPROTO;
    if (!is_named(z, "READY", 5))
        return -EPROTO;
    const uint8_t *route;
    int err = parse_properties(z->command + 6, z->kept - 6, &route);
    if (err)
        return err;
    z->ready = true;
    return rules->ready(ctx, route);
}

static int frame_end(struct zmtp *z, const struct zmtp_rules *rules, void *ctx, uint64_t *queued)
{
    MUST(z->phase == PHASE_BODY && z->left == 0);
    z->phase = PHASE_HEAD;
    z->have = 0;
    if (z->flags & FLAG_COMMAND)
        return command_end(z, rules, ctx);
    if (z->flags & FLAG_MORE)
        return 0;
    *queued += z->bytes;
    z->bytes = 0;
    z->frames = 0;
    return 0;
}

static int frame_begin(struct zmtp *z, const struct zmtp_rules *rules)
{
    MUST(z->have == (z->head[0] & FLAG_LONG ? 9 : 2) && z->bytes <= rules->message_max);
    z->flags = z->head[0];
    z->left = z->flags & FLAG_LONG ? get_u64be(z->head + 1) : z->head[1];
    z->phase = PHASE_BODY;
    z->kept = 0;
    if (z->flags & FLAG_COMMAND)
        return z->flags & FLAG_MORE                                    ? -EPROTO
               : z->left > (z->ready ? ZMTP_PING_MAX : ZMTP_READY_MAX) ? -EMSGSIZE
                                                                       : 0;
    if (!z->ready || z->flags & ~(FLAG_MORE | FLAG_LONG))
        return -EPROTO;
    if (++z->frames > rules->frames_max || z->left > rules->message_max - z->bytes)
        return -EMSGSIZE;
    z->bytes += z->left;
    return 0;
}

UNWATCHED static void keep(struct zmtp *z, const uint8_t *p, size_t n)
{
    MUST(z->kept <= sizeof z->command && n <= sizeof z->command - z->kept);
    for (size_t i = 0; i < n; i++)
        z->command[z->kept++] = p[i];
}

UNWATCHED int zmtp_scan(struct zmtp *z, const struct zmtp_rules *rules, void *ctx, const uint8_t *p,
                        size_t n, uint64_t *queued)
{
    int err = 0;
    for (size_t take; n > 0 && err == 0; p += take, n -= take) {
        take = 1;
        switch ((enum phase)z->phase) {
        case PHASE_GREETING:
            if (!greeting_fits(z->have, *p))
                return -EPROTO;
            if (++z->have == GREETING_BYTES)
                z->phase = PHASE_HEAD, z->have = 0;
            break;
        case PHASE_HEAD:
            z->head[z->have++] = *p;
            if (z->have == (z->head[0] & FLAG_LONG ? 9 : 2))
                err = frame_begin(z, rules);
            if (!err && z->phase == PHASE_BODY && z->left == 0)
                err = frame_end(z, rules, ctx, queued);
            break;
        case PHASE_BODY:
            take = (size_t)MIN(z->left, (uint64_t)n);
            if (z->flags & FLAG_COMMAND)
                keep(z, p, take);
            z->left -= take;
            if (z->left == 0)
                err = frame_end(z, rules, ctx, queued);
            break;
        }
    }
    return err;
}
