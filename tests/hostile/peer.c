/* SPDX-License-Identifier: Apache-2.0 */
#include "peer.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvcache/kvcache.h>

/* Longer than any machine under load takes; only a failure waits for it. */
#define LONG_MS 60000

static int connect_to(const char *path, int type)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(path), sizeof addr.sun_path);
    strcpy(addr.sun_path, path);
    for (unsigned i = 0; i < 10000; i++) {
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        ck_assert_int_ge(fd, 0);
        if (connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0)
            return fd;
        int err = errno;
        close(fd);
        if (err != EAGAIN) /* the listener's queue is full: a moment later it is not */
            return -1;
        rig_sleep_ms(2);
    }
    return -1;
}

static bool wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    int rc;
    do {
        rc = poll(&p, 1, LONG_MS);
    } while (rc < 0 && errno == EINTR);
    return rc > 0;
}

/* ---- attach ---- */

int peer_attach_socket(const struct rig *r)
{
    return connect_to(r->socket, SOCK_SEQPACKET);
}

int peer_datagram(int attach, uint8_t buf[KVC_ATTACH_MAX], int *ret_fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = KVC_ATTACH_MAX};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    *ret_fd = -1;
    ck_assert_msg(wait_for(attach, POLLIN), "the daemon says nothing on the attach channel");
    ssize_t n = recvmsg(attach, &m, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return PEER_CLOSED;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(h), sizeof *ret_fd);
    return (int)n;
}

bool peer_say_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
                    uint64_t staging_bytes)
{
    struct att_hello hello = {.ver_min = ver_min,
                              .ver_max = ver_max,
                              .client = {(const uint8_t *)"peer", 4},
                              .staging_bytes = staging_bytes};
    uint8_t buf[KVC_ATTACH_MAX];
    *p = (struct peer){.rig = r, .attach = peer_attach_socket(r), .control = -1, .staging_fd = -1};
    if (p->attach < 0)
        return false;
    int len = codec_enc_att_hello(buf, sizeof buf, &hello);
    ck_assert_int_gt(len, 0);
    return send(p->attach, buf, (size_t)len, MSG_NOSIGNAL) == len;
}

int peer_welcome(struct peer *p)
{
    struct att_welcome welcome;
    uint8_t buf[KVC_ATTACH_MAX];
    int len = peer_datagram(p->attach, buf, &p->staging_fd);
    if (len < 0 || codec_dec_att_welcome(buf, (size_t)len, &welcome) != 0)
        return PEER_CLOSED;
    p->status = welcome.status;
    if (p->status != KVC_ST_OK)
        return p->status;
    memcpy(p->route, welcome.route, sizeof p->route);
    p->staging_bytes = welcome.staging_bytes;
    if (p->staging_fd < 0)
        return p->status;
    void *map = mmap(NULL, p->staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->staging_fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    p->staging = map;
    return p->status;
}

int peer_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
               uint64_t staging_bytes)
{
    return peer_say_hello(p, r, ver_min, ver_max, staging_bytes) ? peer_welcome(p) : PEER_CLOSED;
}

void peer_open_control(struct peer *p)
{
    uint8_t buf[256];
    int len;
    peer_greet(p->control, p->route, sizeof p->route);
    struct msg_head head = peer_head(p, KVC_OP_HELLO);
    struct msg_hello hello = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    len = codec_enc_hello(buf, sizeof buf, &head, &hello);
    ck_assert_int_eq(peer_ask(p, &head, buf, len, &len), KVC_ST_OK);
}

void peer_open(struct peer *p, const struct rig *r, uint64_t staging_bytes)
{
    ck_assert_int_eq(peer_hello(p, r, KVC_PROTO_MIN, KVC_PROTO_MAX, staging_bytes), KVC_ST_OK);
    p->control = peer_control_socket(r);
    ck_assert_int_ge(p->control, 0);
    peer_open_control(p);
}

void peer_close(struct peer *p)
{
    if (p->staging)
        munmap(p->staging, p->staging_bytes);
    int *fds[] = {&p->staging_fd, &p->control, &p->attach};
    for (unsigned i = 0; i < 3; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
    p->staging = NULL;
}

int peer_map(struct peer *p, uint32_t chunk)
{
    struct att_map map = {.chunk = chunk};
    struct att_chunk reply;
    uint8_t buf[KVC_ATTACH_MAX];
    int fd, len = codec_enc_att_map(buf, sizeof buf, &map);
    ck_assert_int_eq(send(p->attach, buf, (size_t)len, MSG_NOSIGNAL), len);
    len = peer_datagram(p->attach, buf, &fd);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_dec_att_chunk(buf, (size_t)len, &reply), 0);
    ck_assert((reply.status == KVC_ST_OK) == (fd >= 0));
    return reply.status == KVC_ST_OK ? fd : -(int)reply.status;
}

/* ---- control ---- */

int peer_control_socket(const struct rig *r)
{
    char path[128];
    snprintf(path, sizeof path, "%s/control.sock", r->dir);
    return connect_to(path, SOCK_STREAM);
}

bool peer_write(int control, const void *buf, size_t n)
{
    const uint8_t *at = buf;
    while (n > 0) {
        ssize_t done = send(control, at, n, MSG_NOSIGNAL);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (errno != EAGAIN || !wait_for(control, POLLOUT)) {
            return false;
        }
    }
    return true;
}

bool peer_frame(int control, uint8_t flags, const void *buf, size_t n)
{
    uint8_t head[9] = {flags, (uint8_t)n};
    size_t len = 2;
    if (n > 255) {
        head[0] |= 2;
        for (unsigned i = 0; i < 8; i++)
            head[1 + i] = (uint8_t)(n >> (56 - 8 * i));
        len = 9;
    }
    return peer_write(control, head, len) && peer_write(control, buf, n);
}

/* n bytes exactly; false when the connection ends before. */
static bool read_all(int control, void *buf, size_t n)
{
    uint8_t *at = buf;
    while (n > 0) {
        ssize_t done = recv(control, at, n, 0);
        if (done > 0) {
            at += done;
            n -= (size_t)done;
        } else if (done == 0 || errno != EAGAIN) {
            return false;
        } else {
            ck_assert_msg(wait_for(control, POLLIN), "the daemon says nothing");
        }
    }
    return true;
}

void peer_greet(int control, const void *route, size_t n)
{
    uint8_t greeting[64] = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
    uint8_t ready[512] = "\5READY\13Socket-Type\0\0\0\6DEALER\10Identity\0\0\0";
    const size_t fixed = 6 + 12 + 4 + 6 + 9 + 3;
    ready[fixed] = (uint8_t)n;
    memcpy(ready + fixed + 1, route, n);
    if (!peer_write(control, greeting, sizeof greeting) ||
        !peer_frame(control, 4, ready, fixed + 1 + n))
        return;
    /* libzmq takes messages for a part of the handshake until it has sent its own READY. */
    uint8_t theirs[64 + 2];
    if (read_all(control, theirs, sizeof theirs))
        (void)read_all(control, ready, theirs[65]);
}

bool peer_is_cut(int control)
{
    uint8_t buf[4096];
    for (;;) {
        ssize_t n = recv(control, buf, sizeof buf, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return true;
        if (n < 0 && !wait_for(control, POLLIN))
            return false;
    }
}

int peer_message(int control, uint8_t *buf, size_t cap)
{
    for (;;) {
        uint8_t head[9];
        if (!read_all(control, head, 2))
            return PEER_CLOSED;
        uint64_t n = head[1];
        if (head[0] & 2) {
            if (!read_all(control, head + 2, 7))
                return PEER_CLOSED;
            for (unsigned i = n = 0; i < 8; i++)
                n = n << 8 | head[1 + i];
        }
        ck_assert_uint_le(n, cap);
        if (!read_all(control, buf, n))
            return PEER_CLOSED;
        if (!(head[0] & 4))
            return (int)n;
    }
}

/* ---- requests ---- */

struct msg_head peer_head(struct peer *p, uint8_t op)
{
    return (struct msg_head){.op = op, .corr = ++p->corr, .deadline_ms = LONG_MS};
}

int peer_ask(struct peer *p, const struct msg_head *head, uint8_t *buf, int len, int *ret_len)
{
    static uint8_t reply[KVC_MESSAGE_MAX];
    struct msg_reply_head h;
    ck_assert_int_gt(len, 0);
    if (!peer_frame(p->control, 0, buf, (size_t)len))
        return PEER_CLOSED;
    do {
        len = peer_message(p->control, reply, sizeof reply);
        if (len < 0)
            return PEER_CLOSED;
        ck_assert_int_eq(codec_dec_reply_head(reply, (size_t)len, &h), 0);
    } while (h.corr != head->corr);
    memcpy(buf, reply, (size_t)len);
    *ret_len = len;
    return h.status;
}

int peer_ping(struct peer *p)
{
    uint8_t buf[1024];
    struct msg_head head = peer_head(p, KVC_OP_PING);
    int len = codec_enc_bare(buf, sizeof buf, &head);
    return peer_ask(p, &head, buf, len, &len);
}

static struct codec_bin text(const char *s)
{
    return (struct codec_bin){(const uint8_t *)s, (uint32_t)strlen(s)};
}

int peer_ns(struct peer *p, const char *model, uint32_t block_tokens, uint32_t block_bytes,
            uint32_t *ret_ns, uint8_t ret_seed[KVC_KEY_BYTES])
{
    uint8_t buf[4096];
    struct msg_head head = peer_head(p, KVC_OP_NS_OPEN);
    struct msg_ns_open open = {.model = text(model),
                               .revision = text("1"),
                               .dtype = text("bf16"),
                               .layout = text("NHD"),
                               .position = text("rope"),
                               .attention = text("causal"),
                               .layers = 2,
                               .kv_heads = 2,
                               .head_size = 64,
                               .shards = 1,
                               .ngroups = 1,
                               .groups[0] = {.block_tokens = block_tokens,
                                             .block_bytes = block_bytes,
                                             .rule = KVC_RULE_FULL}};
    int len = codec_enc_ns_open(buf, sizeof buf, &head, &open);
    int status = peer_ask(p, &head, buf, len, &len);
    struct msg_reply_head rh;
    struct msg_ns_open_reply reply;
    if (status != KVC_ST_OK)
        return status;
    ck_assert_int_eq(codec_dec_ns_open_reply(buf, (size_t)len, &rh, &reply), 0);
    *ret_ns = reply.ns;
    memcpy(ret_seed, reply.seed, KVC_KEY_BYTES);
    return status;
}

void peer_keys(const uint8_t *seed, uint32_t chain, uint32_t block_tokens, uint32_t n,
               uint8_t *keys)
{
    uint32_t *tokens = calloc((size_t)n * block_tokens, sizeof *tokens);
    ck_assert_ptr_nonnull(tokens);
    for (uint32_t i = 0; i < n * block_tokens; i++)
        tokens[i] = chain * 1000003u + i;
    ck_assert_int_eq(
        kvc_hash_chain(seed, tokens, (size_t)n * block_tokens, block_tokens, NULL, 0, keys),
        (int)n);
    free(tokens);
}

static uint8_t room[KVC_MESSAGE_MAX];

int peer_store(struct peer *p, const struct msg_store *msg, uint8_t *statuses)
{
    struct msg_head head = peer_head(p, KVC_OP_STORE);
    struct msg_reply_head rh;
    struct msg_commit_reply reply;
    int len = codec_enc_store(room, sizeof room, &head, msg);
    int status = peer_ask(p, &head, room, len, &len);
    if (status == KVC_ST_OK && statuses) {
        ck_assert_int_eq(codec_dec_commit_reply(room, (size_t)len, &rh, &reply), 0);
        memcpy(statuses, reply.statuses.p, reply.statuses.n);
    }
    return status;
}

int peer_reserve(struct peer *p, const struct msg_reserve *msg, uint64_t *ret_reservation,
                 uint8_t *statuses)
{
    struct msg_head head = peer_head(p, KVC_OP_RESERVE);
    struct msg_reply_head rh;
    struct msg_reserve_reply reply;
    int len = codec_enc_reserve(room, sizeof room, &head, msg);
    int status = peer_ask(p, &head, room, len, &len);
    if (status == KVC_ST_OK) {
        ck_assert_int_eq(codec_dec_reserve_reply(room, (size_t)len, &rh, &reply), 0);
        *ret_reservation = reply.reservation;
        if (statuses)
            memcpy(statuses, reply.statuses.p, reply.statuses.n);
    }
    return status;
}

int peer_acquire(struct peer *p, const struct msg_acquire *msg, uint64_t *ret_lease,
                 struct msg_loc *ret_first)
{
    struct msg_head head = peer_head(p, KVC_OP_ACQUIRE);
    struct msg_reply_head rh;
    struct msg_acquire_reply reply;
    int len = codec_enc_acquire(room, sizeof room, &head, msg);
    int status = peer_ask(p, &head, room, len, &len);
    if (status == KVC_ST_OK) {
        ck_assert_int_eq(codec_dec_acquire_reply(room, (size_t)len, &rh, &reply), 0);
        *ret_lease = reply.lease;
        if (reply.lease && ret_first)
            codec_get_loc(reply.groups[0].locs.p, ret_first);
    }
    return status;
}

/* ---- the daemon ---- */

unsigned daemon_descriptors(const struct rig *r)
{
    char path[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)r->pid);
    DIR *d = opendir(path);
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

uint64_t daemon_rss_bytes(const struct rig *r)
{
    char path[64];
    unsigned long long size, resident, shared;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)r->pid);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%llu %llu %llu", &size, &resident, &shared), 3);
    fclose(f);
    return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

bool daemon_lives(const struct rig *r)
{
    return kill(r->pid, 0) == 0;
}
