/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile bytes, connections and descriptors on both sockets. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "hostile.h"

static struct hostile s;
static uint8_t big[KVC_MESSAGE_MAX];

static void setup(void)
{
    /* Exactly the descriptors that the daemon says it needs with these, and a few. */
    static const char *const sets[] = {"limits.sessions=16", NULL};
    hostile_begin(&s, sets);
}

/* All workers of a node start again while the daemon is held up: nobody may have to come twice, for
 * ZeroMQ does not. */
static void all_come_at_once(void)
{
    enum { ALL = 250 };
    static struct peer p[ALL];
    ck_assert_int_eq(kill(s.rig->pid, SIGSTOP), 0);
    for (unsigned i = 0; i < ALL; i++)
        ck_assert(peer_say_hello(&p[i], s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 0));
    ck_assert_int_eq(kill(s.rig->pid, SIGCONT), 0);
    for (unsigned i = 0; i < ALL; i++)
        ck_assert_int_eq(peer_welcome(&p[i]), KVC_ST_OK);
    ck_assert_int_eq(kill(s.rig->pid, SIGSTOP), 0);
    for (unsigned i = 0; i < ALL; i++) {
        p[i].control = peer_control_socket(s.rig);
        ck_assert_int_ge(p[i].control, 0);
    }
    ck_assert_int_eq(kill(s.rig->pid, SIGCONT), 0);
    for (unsigned i = ALL; i-- > 0;) /* the last first: nobody's greeting is another's */
        peer_open_control(&p[i]);
    for (unsigned i = 0; i < ALL; i++)
        peer_close(&p[i]);
}

static void setup_crowd(void)
{
    static const char *const sets[] = {"limits.sessions=300", NULL};
    hostile_begin(&s, sets);
    all_come_at_once(); /* what is allocated for so many is there afterwards */
    rig_wait_stat(s.k, "svc.sessions", 1);
    s.rss = daemon_rss_bytes(s.rig);
}

static void teardown(void)
{
    hostile_end(&s);
}

/* ---- who may speak ---- */

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

CASE(a_route_that_nobody_has_is_not_connected)
{
    struct peer p;
    uint8_t route[KVC_ROUTE_BYTES] = "k\1\0random";
    for (unsigned i = 0; i < 64; i++) {
        route[15] = (uint8_t)i;
        route[1] = (uint8_t)i; /* every session's number, and some beyond */
        p.control = peer_control_socket(s.rig);
        peer_greet(p.control, route, sizeof route);
        ck_assert(peer_is_cut(p.control));
        close(p.control);
    }
    for (unsigned n = 0; n < 255; n += n < 20 ? 1 : 47) { /* and of other lengths */
        p.control = peer_control_socket(s.rig);
        memset(big, 'k', n);
        if (n == KVC_ROUTE_BYTES)
            big[0] = 'x';
        peer_greet(p.control, big, n);
        ck_assert(peer_is_cut(p.control));
        close(p.control);
    }
    hostile_serve_hit(&s);
}

CASE(a_route_has_one_connection)
{
    struct peer p;
    peer_open(&p, s.rig, 0);
    for (unsigned i = 0; i < 8; i++) {
        int second = peer_control_socket(s.rig);
        peer_greet(second, p.route, sizeof p.route);
        ck_assert(peer_is_cut(second));
        close(second);
        ck_assert_int_eq(peer_ping(&p), KVC_ST_OK);
    }
    close(p.control); /* it may connect again once the first has gone */
    int status = PEER_CLOSED;
    for (unsigned i = 0; i < 1000 && status == PEER_CLOSED; i++) {
        p.control = peer_control_socket(s.rig);
        peer_greet(p.control, p.route, sizeof p.route);
        status = peer_ping(&p);
        if (status == PEER_CLOSED)
            close(p.control);
    }
    ck_assert_int_eq(status, KVC_ST_OK);
    peer_close(&p);
}

CASE(with_its_session_goes_its_connection)
{
    struct peer p;
    peer_open(&p, s.rig, 0);
    close(p.attach);
    p.attach = -1;
    ck_assert(peer_is_cut(p.control));
    int again = peer_control_socket(s.rig);
    peer_greet(again, p.route, sizeof p.route);
    ck_assert(peer_is_cut(again));
    close(again);
    peer_close(&p);
}

/* ---- framing ---- */

static const struct {
    const char *what, *bytes;
    size_t n;
} garbage[] = {
    {"text", "GET / HTTP/1.1\r\n\r\n", 18},
    {"zeros", "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16},
    {"a ZMTP 1 identity", "\x11\0kkkkkkkkkkkkkkkk", 18},
    {"a ZMTP 2 greeting", "\xff\0\0\0\0\0\0\0\1\x7f\1\5\0\0", 14},
    {"an unversioned greeting", "\xff\0\0\0\0\0\0\0\1\0\3", 11},
};

CASE_EACH(garbage_on_the_control_socket_is_cut, sizeof garbage / sizeof garbage[0])
{
    int fd = peer_control_socket(s.rig);
    (void)peer_write(fd, garbage[_i].bytes, garbage[_i].n);
    ck_assert_msg(peer_is_cut(fd), "%s", garbage[_i].what);
    close(fd);
    hostile_serve_hit(&s);
}

CASE(random_bytes_on_both_sockets)
{
    uint64_t r = 88172645463325252u;
    for (unsigned i = 0; i < 200; i++) {
        int control = peer_control_socket(s.rig), attach = peer_attach_socket(s.rig);
        uint8_t bytes[600] = {0};
        for (unsigned k = 0; k < sizeof bytes; k++)
            r ^= r << 13, r ^= r >> 7, r ^= r << 17, bytes[k] = (uint8_t)r;
        if (i % 2) /* past the greeting */
            memcpy(bytes, "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL\0\0\0\0\0\0\0", 24);
        (void)peer_write(control, bytes, 1 + r % sizeof bytes);
        if (attach >= 0)
            (void)send(attach, bytes, r % sizeof bytes, MSG_NOSIGNAL);
        if (attach >= 0)
            close(attach);
        close(control);
        if (i % 50 == 0)
            hostile_serve_hit(&s);
    }
}

/* Without the limiter this grows the daemon by every byte that is sent. */
CASE(a_message_of_endless_frames_is_cut)
{
    struct peer p;
    peer_open(&p, s.rig, 0);
    uint64_t sent = 0;
    while (sent < 256u << 20 && peer_frame(p.control, 1, big, 65536))
        sent += 65536;
    ck_assert_uint_lt(sent, 64u << 20);
    ck_assert(peer_is_cut(p.control));
    ck_assert_uint_ge(rig_stat(s.k, "daemon.control_cut"), 1);
    peer_close(&p);
}

CASE(empty_frames_without_end_are_cut)
{
    struct peer p;
    peer_open(&p, s.rig, 0);
    unsigned sent = 0;
    while (sent < 1000000 && peer_frame(p.control, 1, "", 0))
        sent++;
    ck_assert_uint_lt(sent, 1000000);
    peer_close(&p);
}

CASE(several_frames_cost_the_session)
{
    struct peer p;
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_dropped why;
    int fd;
    peer_open(&p, s.rig, 0);
    ck_assert(peer_frame(p.control, 1, "a", 1) && peer_frame(p.control, 0, "b", 1));
    int len = peer_datagram(p.attach, buf, &fd);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_dec_att_dropped(buf, (size_t)len, &why), 0);
    ck_assert_uint_eq(why.status, KVC_ST_BAD_MESSAGE);
    ck_assert(peer_is_cut(p.control));
    peer_close(&p);
}

CASE_EACH(commands_that_ours_do_not_send_are_cut, 6)
{
    static const struct {
        const char *bytes;
        size_t n;
    } command[] = {{"\5READY", 6}, {"\11SUBSCRIBEabc", 13}, {"\5ERROR\0", 7},
                   {"", 0},        {"\4PONY", 5},           {"\4PING", 5}};
    struct peer p;
    peer_open(&p, s.rig, 0);
    ck_assert(peer_frame(p.control, 4, "\4PING\0\0", 7)); /* this one may be sent */
    ck_assert_int_eq(peer_ping(&p), KVC_ST_OK);
    (void)peer_frame(p.control, 4, command[_i].bytes, command[_i].n);
    ck_assert(peer_is_cut(p.control));
    peer_close(&p);
}

CASE_EACH(a_frame_that_is_too_large_is_cut_at_its_head, 4)
{
    static const uint8_t size[][8] = {{0, 0, 0, 0, 0, 0x80, 0, 1},
                                      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
                                      {0x80},
                                      {0, 0, 0, 1}};
    struct peer p;
    uint8_t head[9] = {2};
    peer_open(&p, s.rig, 0);
    memcpy(head + 1, size[_i], 8);
    (void)peer_write(p.control, head, sizeof head);
    ck_assert(peer_is_cut(p.control));
    peer_close(&p);
}

CASE(half_messages_and_half_heads_wait_without_harm)
{
    struct peer p[12];
    for (unsigned i = 0; i < 12; i++) {
        peer_open(&p[i], s.rig, 0);
        uint8_t head[9] = {2, 0, 0, 0, 0, 0, 0x3f, 0xff, 0xff};
        ck_assert(peer_write(p[i].control, head, i % 3 ? sizeof head : i % 9));
        if (i % 3 == 2)
            ck_assert(peer_write(p[i].control, big, 100000));
    }
    for (unsigned i = 0; i < 20; i++)
        hostile_serve_hit(&s);
    for (unsigned i = 0; i < 12; i++)
        peer_close(&p[i]);
}

/* One name for the limiter and another for ZeroMQ would let a worker speak for another session. */
CASE_EACH(a_handshake_with_two_meanings_is_cut, 4)
{
    static const char *const names[][2] = {
        {"Identity", "Identity"}, {"identity", "Identity"}, {"Identity", "IDENTITY"}, {"identity"}};
    struct peer victim, p;
    peer_open(&victim, s.rig, 0);
    ck_assert_int_eq(peer_hello(&p, s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 0), KVC_ST_OK);
    uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    uint8_t ready[128] = "\5READY\13Socket-Type\0\0\0\6DEALER", buf[64];
    size_t n = 6 + 12 + 4 + 6;
    for (unsigned i = 0; i < 2 && names[_i][i]; i++) {
        ready[n] = 8;
        memcpy(ready + n + 1, names[_i][i], 8);
        memcpy(ready + n + 9, "\0\0\0\20", 4);
        memcpy(ready + n + 13, i ? victim.route : p.route, KVC_ROUTE_BYTES);
        n += 13 + KVC_ROUTE_BYTES;
    }
    struct msg_head head = {.op = KVC_OP_PING, .corr = 1};
    int len = codec_enc_bare(buf, sizeof buf, &head);
    p.control = peer_control_socket(s.rig);
    if (peer_write(p.control, greeting, sizeof greeting) && peer_frame(p.control, 4, ready, n))
        (void)peer_frame(p.control, 0, buf, (size_t)len);
    ck_assert(peer_is_cut(p.control));
    ck_assert_int_eq(peer_ping(&victim), KVC_ST_OK);
    peer_close(&p);
    peer_close(&victim);
}

/* Five do not fit at once: the fifth waits, and those that do not end theirs lose their place. */
CASE(large_messages_that_do_not_end_make_room_for_others)
{
    enum { MANY = 5 };
    struct peer p[MANY];
    static const uint8_t head[9] = {2, 0, 0, 0, 0, 0, 0x80, 0, 0};
    for (unsigned i = 0; i < MANY; i++) {
        peer_open(&p[i], s.rig, 0);
        ck_assert(peer_write(p[i].control, head, sizeof head));
        ck_assert_msg(peer_write(p[i].control, big, sizeof big - 1), "%u", i);
    }
    ck_assert_uint_ge(rig_stat(s.k, "daemon.control_cut"), 1);
    ck_assert_uint_ge(rig_stat(s.k, "daemon.control_paused"), 1);
    ck_assert_uint_le(rig_stat(s.k, "daemon.control_paused"), 1000); /* waiting is not asking */
    hostile_serve_hit(&s);
    for (unsigned i = 0; i < MANY; i++)
        peer_close(&p[i]);
}

/* ---- floods ---- */

CASE(requests_without_reading_replies_end_in_a_drop)
{
    struct peer p;
    uint8_t buf[64];
    peer_open(&p, s.rig, 0);
    struct msg_head head = peer_head(&p, KVC_OP_STATS); /* a small request with a large reply */
    int len = codec_enc_bare(buf, sizeof buf, &head);
    unsigned sent = 0;
    while (sent < 200000 && peer_frame(p.control, 0, buf, (size_t)len)) {
        if (++sent % 10000 == 0)
            hostile_serve_hit(&s);
    }
    ck_assert_uint_lt(sent, 200000);
    rig_wait_stat(s.k, "svc.sessions", 1);
    peer_close(&p);
}

static void flood(struct peer *p, size_t n, unsigned times)
{
    for (unsigned i = 0; i < times && peer_frame(p->control, 0, big, n); i++)
        continue;
}

/* Well-formed head, nonsense behind: each costs a reply, which nobody reads. */
CASE(big_messages_do_not_pile_up)
{
    struct peer p[4];
    struct msg_head head = {.op = KVC_OP_PING, .corr = 1};
    int status;
    uint8_t bare[16];
    memset(big, 0xc0, sizeof big);
    int len = codec_enc_bare(bare, sizeof bare, &head);
    ck_assert_int_gt(len, 0);
    memcpy(big, bare, (size_t)len);
    for (unsigned i = 0; i < 4; i++)
        peer_open(&p[i], s.rig, 0);
    fflush(NULL);
    pid_t pid[4];
    for (unsigned i = 0; i < 4; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            flood(&p[i], sizeof big - 1, 100);
            _exit(0);
        }
    }
    uint64_t most = 0;
    unsigned running = 4;
    while (running > 0) {
        hostile_serve_hit(&s);
        uint64_t now = daemon_rss_bytes(s.rig);
        most = now > most ? now : most;
        while (running > 0 && waitpid(-1, &status, WNOHANG) > 0)
            running--;
    }
    ck_assert_msg(most < s.rss + (160u << 20), "%llu bytes at most, %llu before",
                  (unsigned long long)most, (unsigned long long)s.rss);
    for (unsigned i = 0; i < 4; i++)
        peer_close(&p[i]);
}

CASE(a_stopped_client_holds_nobody_up)
{
    struct peer p;
    peer_open(&p, s.rig, 4096);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        uint8_t buf[64];
        struct msg_head head = peer_head(&p, KVC_OP_STATS);
        int len = codec_enc_bare(buf, sizeof buf, &head);
        for (unsigned i = 0; i < 500; i++)
            (void)peer_frame(p.control, 0, buf, (size_t)len);
        raise(SIGSTOP);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
    for (unsigned i = 0; i < 50; i++)
        hostile_serve_hit(&s);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    peer_close(&p);
}

/* ---- descriptors ---- */

/* Without the limiter libzmq ends the process when accept() finds no descriptor left. */
CASE(connections_without_end_leave_room_for_others)
{
    enum { MANY = 3000 };
    static int fd[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        fd[i] = i % 2 ? peer_control_socket(s.rig) : peer_attach_socket(s.rig);
        if (i % 500 == 0)
            hostile_serve_hit(&s);
    }
    ck_assert_uint_le(daemon_descriptors(s.rig), s.fds + 200);
    hostile_serve_hit(&s);
    for (unsigned i = 0; i < MANY; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    rig_wait_stat(s.k, "svc.sessions", 1);
    struct peer p; /* and a newcomer gets in */
    peer_open(&p, s.rig, 4096);
    peer_close(&p);
}

/* Its limit is lowered behind its back: what it counted on at its start is not there. */
CASE(when_no_descriptor_is_left_newcomers_are_turned_away)
{
    enum { MANY = 60 };
    int fd[MANY];
    struct rlimit before, few;
    ck_assert_int_eq(prlimit(s.rig->pid, RLIMIT_NOFILE, NULL, &before), 0);
    few = (struct rlimit){.rlim_cur = s.fds + 8, .rlim_max = before.rlim_max};
    ck_assert_int_eq(prlimit(s.rig->pid, RLIMIT_NOFILE, &few, NULL), 0);
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < MANY; i++)
            fd[i] = i % 2 ? peer_control_socket(s.rig) : peer_attach_socket(s.rig);
        for (unsigned i = 0; i < 20; i++)
            hostile_serve_hit(&s);
        for (unsigned i = 0; i < MANY; i++)
            if (fd[i] >= 0)
                close(fd[i]);
    }
    ck_assert_uint_ge(rig_stat(s.k, "daemon.control_shed"), 1);
    ck_assert_int_eq(prlimit(s.rig->pid, RLIMIT_NOFILE, &before, NULL), 0);
    hostile_serve_hit(&s); /* behind it, nobody is turned away any more whose turn came before */
    struct peer p;
    peer_open(&p, s.rig, 4096);
    peer_close(&p);
}

/* More than there are places for, all of them gone before the daemon comes to accept them. */
CASE(the_dead_in_the_queues_keep_nobody_out)
{
    for (unsigned round = 0; round < 4; round++) {
        struct peer p;
        ck_assert_int_eq(kill(s.rig->pid, SIGSTOP), 0);
        for (unsigned i = 0; i < 40; i++) {
            close(peer_attach_socket(s.rig));
            close(peer_control_socket(s.rig));
        }
        ck_assert(peer_say_hello(&p, s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096));
        p.control = peer_control_socket(s.rig);
        ck_assert_int_eq(kill(s.rig->pid, SIGCONT), 0);
        ck_assert_int_eq(peer_welcome(&p), KVC_ST_OK);
        peer_open_control(&p);
        peer_close(&p);
        hostile_serve_hit(&s);
    }
}

CASES(.setup = setup_crowd, .teardown = teardown, .timeout_s = 300);

CASE(all_come_at_once_and_get_in)
{
    all_come_at_once();
}

static void send_descriptors(int attach, unsigned n, const void *bytes, size_t len)
{
    union {
        char bytes[CMSG_SPACE(253 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    int fds[253];
    for (unsigned i = 0; i < n; i++)
        fds[i] = attach;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_SPACE(n * sizeof(int))};
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    h->cmsg_level = SOL_SOCKET;
    h->cmsg_type = SCM_RIGHTS;
    h->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(h), fds, n * sizeof(int));
    (void)sendmsg(attach, &m, MSG_NOSIGNAL);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

CASE(foreign_descriptors_are_closed)
{
    static const unsigned counts[] = {1, 2, 15, 16, 17, 64, 252, 253};
    struct att_map map = {.chunk = 1};
    uint8_t buf[KVC_ATTACH_MAX];
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct peer p;
        int fd;
        peer_open(&p, s.rig, 0);
        int len = codec_enc_att_map(buf, sizeof buf, &map);
        for (unsigned k = 0; k < 20; k++) {
            send_descriptors(p.attach, counts[i], buf, (size_t)len);
            int n = peer_datagram(p.attach, buf, &fd);
            ck_assert_int_gt(n, 0); /* the message itself is answered */
            if (fd >= 0)
                close(fd);
            ck_assert_int_eq(codec_enc_att_map(buf, sizeof buf, &map), len);
        }
        ck_assert_uint_le(daemon_descriptors(s.rig), s.fds + 8);
        send_descriptors(p.attach, counts[i], "junk", 4);
        peer_close(&p);
        int bare = peer_attach_socket(s.rig); /* before HELLO, and left unread */
        send_descriptors(bare, counts[i], "x", 1);
        close(bare);
    }
}

/* ---- handshakes, versions, steps ---- */

CASE(handshakes_that_stop_half_way_keep_nobody_out)
{
    int fd[40];
    for (unsigned i = 0; i < 40; i++) {
        uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
        fd[i] = peer_control_socket(s.rig);
        (void)peer_write(fd[i], greeting, i * 2 < 64 ? i * 2 : 64);
        hostile_serve_hit(&s);
    }
    for (unsigned i = 0; i < 40; i++)
        close(fd[i]);
}

CASE(other_versions_are_told_the_range)
{
    static const struct {
        uint32_t min, max;
        int status;
    } range[] = {{0, 0, KVC_ST_VERSION},
                 {KVC_PROTO_MAX + 1, KVC_PROTO_MAX + 9, KVC_ST_VERSION},
                 {UINT32_MAX, UINT32_MAX, KVC_ST_VERSION},
                 {0, UINT32_MAX, KVC_ST_OK},
                 {KVC_PROTO_MIN, KVC_PROTO_MIN, KVC_ST_OK},
                 {9, 1, KVC_ST_VERSION}};
    for (unsigned i = 0; i < sizeof range / sizeof range[0]; i++) {
        struct peer p;
        int status = peer_hello(&p, s.rig, range[i].min, range[i].max, 0);
        /* Bounds the wrong way round may also be no HELLO at all. */
        ck_assert(status == range[i].status || (range[i].min > range[i].max && status < 0));
        peer_close(&p);
    }
    struct peer p;
    uint8_t buf[256];
    peer_open(&p, s.rig, 0);
    struct msg_hello newer = {.ver_min = KVC_PROTO_MAX + 1, .ver_max = KVC_PROTO_MAX + 1};
    struct msg_head head = peer_head(&p, KVC_OP_HELLO);
    int len = codec_enc_hello(buf, sizeof buf, &head, &newer);
    ck_assert_int_eq(peer_ask(&p, &head, buf, len, &len), KVC_ST_VERSION);
    peer_close(&p);
}

/* What a worker does, step by step; it goes after each of them. */
static void take_steps(unsigned steps)
{
    struct peer p = {.attach = -1, .control = -1, .staging_fd = -1};
    uint32_t ns = 0;
    uint8_t seed[KVC_KEY_BYTES], keys[4 * KVC_KEY_BYTES], bytes[512], zero[32] = {0};
    uint64_t reservation = 0, lease = 0;
    int fd;
    if (steps == 1)
        p.attach = peer_attach_socket(s.rig);
    if (steps == 2) {
        p.attach = peer_attach_socket(s.rig);
        ck_assert_int_gt(send(p.attach, "k", 1, MSG_NOSIGNAL), 0);
    }
    if (steps >= 3)
        ck_assert_int_eq(peer_hello(&p, s.rig, KVC_PROTO_MIN, KVC_PROTO_MAX, 65536), KVC_ST_OK);
    if (steps >= 4)
        p.control = peer_control_socket(s.rig);
    if (steps == 5)
        ck_assert(peer_write(p.control, "\xff\0\0\0\0", 5));
    if (steps >= 6)
        peer_greet(p.control, p.route, sizeof p.route);
    if (steps >= 7) {
        struct msg_head head = peer_head(&p, KVC_OP_HELLO);
        struct msg_hello hello = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
        int len = codec_enc_hello(bytes, sizeof bytes, &head, &hello);
        ck_assert(peer_frame(p.control, 0, bytes, (size_t)len));
    }
    if (steps >= 8)
        ck_assert_int_eq(peer_ns(&p, "steps", HOSTILE_BT, HOSTILE_BLOCK, &ns, seed), KVC_ST_OK);
    if (steps < 8) {
        peer_close(&p);
        return;
    }
    peer_keys(seed, steps, HOSTILE_BT, 4, keys);
    struct msg_reserve reserve = {.ns = ns, .keys = {keys, sizeof keys}};
    if (steps == 9)
        ck_assert_int_eq(peer_reserve(&p, &reserve, &reservation, NULL), KVC_ST_OK);
    if (steps == 10) { /* in the middle of a store: the copies may be running */
        struct msg_store store = {.reserve = reserve, .offsets = {zero, sizeof zero}};
        struct msg_head head = peer_head(&p, KVC_OP_STORE);
        int len = codec_enc_store(bytes, sizeof bytes, &head, &store);
        ck_assert(peer_frame(p.control, 0, bytes, (size_t)len));
    }
    if (steps >= 11) {
        struct msg_store store = {.reserve = reserve, .offsets = {zero, sizeof zero}};
        ck_assert_int_eq(peer_store(&p, &store, NULL), KVC_ST_OK);
    }
    if (steps >= 12) {
        struct msg_acquire acquire = {
            .seq = {
                .ns = ns, .tokens = 4 * HOSTILE_BT, .ngroups = 1, .keys[0] = {keys, sizeof keys}}};
        struct msg_loc loc;
        ck_assert_int_eq(peer_acquire(&p, &acquire, &lease, &loc), KVC_ST_OK);
        ck_assert_uint_ne(lease, 0);
        if (steps >= 13 && (fd = peer_map(&p, loc.chunk)) >= 0)
            close(fd);
    }
    if (steps == 14) { /* waits for a block that nobody will store */
        uint8_t more[8 * KVC_KEY_BYTES];
        peer_keys(seed, 99, HOSTILE_BT, 8, more);
        struct msg_reserve other = {.ns = ns, .keys = {more, sizeof more}};
        ck_assert_int_eq(peer_reserve(&p, &other, &reservation, NULL), KVC_ST_OK);
        struct msg_acquire wait = {.seq = {.ns = ns,
                                           .tokens = 8 * HOSTILE_BT,
                                           .ngroups = 1,
                                           .keys[0] = {more, sizeof more}},
                                   .flags = KVC_F_WAIT};
        struct msg_head head = peer_head(&p, KVC_OP_ACQUIRE);
        int len = codec_enc_acquire(bytes, sizeof bytes, &head, &wait);
        ck_assert(peer_frame(p.control, 0, bytes, (size_t)len));
    }
    if (steps == 15) { /* the control connection first */
        close(p.control);
        p.control = -1;
    }
    peer_close(&p);
}

CASE(a_worker_goes_at_every_step)
{
    for (unsigned steps = 1; steps <= 15; steps++) {
        for (unsigned times = 0; times < 4; times++)
            take_steps(steps);
        hostile_serve_hit(&s);
    }
}
