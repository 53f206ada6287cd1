/* SPDX-License-Identifier: Apache-2.0 */
#include "raw.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#define PATIENCE_MS 60000u

/* One datagram and its descriptor, -1 when it has none. */
static int receive(struct raw *r, uint8_t buf[KVC_ATTACH_MAX], unsigned timeout_ms, int *ret_fd)
{
    struct pollfd p = {.fd = r->attach, .events = POLLIN};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = buf, .iov_len = KVC_ATTACH_MAX};
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (poll(&p, 1, (int)timeout_ms) <= 0)
        return 0;
    ssize_t n = recvmsg(r->attach, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0)
        return -1;
    *ret_fd = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
    return (int)n;
}

static int attach(struct raw *r, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path)
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    r->attach = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (r->attach < 0)
        return -errno;
    return connect(r->attach, (struct sockaddr *)&addr, sizeof addr) ? -errno : 0;
}

static int welcome(struct raw *r, uint64_t staging_bytes, char *endpoint, size_t cap)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_hello hello = {.ver_min = KVC_PROTO_MIN,
                              .ver_max = KVC_PROTO_MAX,
                              .client = {(const uint8_t *)"raw", 3},
                              .staging_bytes = staging_bytes};
    struct att_welcome w;
    int len = codec_enc_att_hello(buf, sizeof buf, &hello);
    int err = len > 0 ? raw_tell(r, buf, (size_t)len) : len;
    if (err)
        return err;
    len = receive(r, buf, PATIENCE_MS, &r->staging_fd);
    if (len <= 0)
        return len < 0 ? -EPIPE : -ETIMEDOUT;
    if (codec_dec_att_welcome(buf, (size_t)len, &w) != 0)
        return -EPROTO;
    if (w.status != KVC_ST_OK)
        return -1000 - (int)w.status;
    if (w.endpoint.n >= cap)
        return -EPROTO;
    memcpy(endpoint, w.endpoint.p, w.endpoint.n);
    endpoint[w.endpoint.n] = '\0';
    memcpy(r->route, w.route, sizeof r->route);
    return 0;
}

static int dial(struct raw *r, const char *endpoint, int rcvhwm)
{
    int none = 0, small = 4096;
    r->ctx = zmq_ctx_new();
    r->sock = r->ctx ? zmq_socket(r->ctx, ZMQ_DEALER) : NULL;
    if (!r->sock)
        return -zmq_errno();
    if (zmq_setsockopt(r->sock, ZMQ_ROUTING_ID, r->route, sizeof r->route) ||
        zmq_setsockopt(r->sock, ZMQ_LINGER, &none, sizeof none) ||
        zmq_setsockopt(r->sock, ZMQ_SNDHWM, &none, sizeof none) ||
        zmq_setsockopt(r->sock, ZMQ_RCVHWM, &rcvhwm, sizeof rcvhwm) ||
        (rcvhwm && zmq_setsockopt(r->sock, ZMQ_RCVBUF, &small, sizeof small)) ||
        zmq_connect(r->sock, endpoint))
        return -zmq_errno();
    return 0;
}

static int greet(struct raw *r)
{
    struct msg_head head = raw_head(r, KVC_OP_HELLO, PATIENCE_MS);
    struct msg_hello hello = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    struct msg_reply_head reply;
    if (!raw_send(r, codec_enc_hello(r->buf, sizeof r->buf, &head, &hello)))
        return -EIO;
    int len = raw_recv(r, PATIENCE_MS);
    if (len <= 0)
        return -ETIMEDOUT;
    if (codec_dec_reply_head(r->buf, (size_t)len, &reply) != 0)
        return -EPROTO;
    return reply.status == KVC_ST_OK ? 0 : -1000 - (int)reply.status;
}

int raw_open(struct raw *r, const char *socket, uint64_t staging_bytes, int rcvhwm)
{
    char endpoint[256];
    r->attach = r->staging_fd = -1;
    r->ctx = r->sock = NULL;
    r->corr = 0;
    int err = attach(r, socket);
    if (!err)
        err = welcome(r, staging_bytes, endpoint, sizeof endpoint);
    if (!err)
        err = dial(r, endpoint, rcvhwm);
    if (!err)
        err = greet(r);
    if (err)
        raw_close(r);
    return err;
}

void raw_close(struct raw *r)
{
    if (r->sock)
        zmq_close(r->sock);
    if (r->ctx)
        zmq_ctx_term(r->ctx);
    if (r->attach >= 0)
        close(r->attach);
    if (r->staging_fd >= 0)
        close(r->staging_fd);
    r->sock = r->ctx = NULL;
    r->attach = r->staging_fd = -1;
}

struct msg_head raw_head(struct raw *r, uint8_t op, uint32_t deadline_ms)
{
    return (struct msg_head){.op = op, .corr = ++r->corr, .deadline_ms = deadline_ms};
}

bool raw_send(struct raw *r, int len)
{
    return len > 0 && zmq_send(r->sock, r->buf, (size_t)len, ZMQ_DONTWAIT) >= 0;
}

int raw_recv(struct raw *r, unsigned timeout_ms)
{
    zmq_pollitem_t item = {.socket = r->sock, .events = ZMQ_POLLIN};
    if (zmq_poll(&item, 1, (long)timeout_ms) <= 0)
        return 0;
    int n = zmq_recv(r->sock, r->buf, sizeof r->buf, ZMQ_DONTWAIT);
    return n < 0 ? 0 : n;
}

int raw_tell(struct raw *r, const void *buf, size_t len)
{
    return send(r->attach, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int raw_news(struct raw *r, uint8_t buf[KVC_ATTACH_MAX], unsigned timeout_ms)
{
    int fd = -1;
    int n = receive(r, buf, timeout_ms, &fd);
    if (fd >= 0)
        close(fd);
    return n;
}
