/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged streams on the control socket itself, without a session: what the daemon reads along with
 * ZeroMQ and refuses must be cut off. */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "corpus.h"
#include "hostile_bytes.h"
#include "mutate.h"
#include "zmtp.h"

#define SILENCE_MS 120000
#define INPUT_MAX  8192u

static int connect_control(const struct rig *r)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_lt(snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/control.sock", r->dir),
                     (int)sizeof(addr.sun_path));
    for (unsigned i = 0; connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0; i++) {
        ck_assert_uint_lt(i, 2000);
        rig_sleep_ms(10);
    }
    return fd;
}

/* No route is known here. */
static int nobody(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    (void)ctx;
    (void)route;
    return -EACCES;
}

static bool must_be_cut(const uint8_t *bytes, size_t len)
{
    static const struct zmtp_rules rules = {KVC_MESSAGE_MAX, 1, nobody};
    struct zmtp z;
    uint64_t queued = 0;
    memset(&z, 0, sizeof(z));
    return len > 0 && zmtp_scan(&z, &rules, NULL, bytes, len, &queued) < 0;
}

/* The daemon's own greeting comes first. */
static bool is_cut(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    uint8_t buf[512];
    while (poll(&p, 1, SILENCE_MS) > 0)
        if (recv(fd, buf, sizeof(buf), 0) <= 0)
            return true;
    return false;
}

static void send_one(const struct rig *r, const uint8_t *bytes, size_t len, struct tally *t)
{
    int fd = connect_control(r);
    /* It may be cut off before all is sent. */
    if (len > 0)
        (void)!send(fd, bytes, len, MSG_NOSIGNAL);
    if (!must_be_cut(bytes, len))
        t->ok++; /* the beginning of something good: it is the sender's turn */
    else if (is_cut(fd))
        t->dropped++;
    else
        t->silent++;
    close(fd);
}

struct tally hostile_stream(const struct rig *r, uint64_t n, uint64_t seed)
{
    static uint8_t buf[INPUT_MAX];
    struct corpus c = {0};
    struct tally t = {0};
    uint64_t state = mutate_seed(seed);
    hostile_corpus(&c, "zmtp");
    for (uint64_t i = 0; i < n; i++) {
        const struct corpus_input *in = &c.in[mutate_below(&state, (uint32_t)c.n)];
        /* The first byte is for the target. */
        size_t len = in->len > 0 ? in->len - 1 : 0;
        len = len < INPUT_MAX ? len : INPUT_MAX;
        if (len > 0)
            memcpy(buf, in->bytes + 1, len);
        if (mutate_below(&state, 8) > 0)
            len = mutate(&state, buf, len, INPUT_MAX);
        send_one(r, buf, len, &t);
    }
    corpus_free(&c);
    return t;
}
