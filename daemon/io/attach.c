/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach socket: accepts workers, passes descriptors to them, and watches their processes. svc
 * (daemon/svc/attach.c) hears what arrives.
 */
#include "attach.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvcache/proto.h>

#include "fault.h"
#include "fd_reserve.h"
#include "log.h"
#include "sys.h"
#include "unix_listen.h"

#define ACCEPTS_PER_TURN  16
#define MESSAGES_PER_TURN 16
#define BACKLOG_MIN       64u /* all workers may connect at once */

struct conn {
    struct attach *a;
    int fd, pidfd; /* -1 = none */
    struct loop_watch watch, life;
};

struct attach {
    struct loop *loop;
    struct attach_handlers on;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int fd;
    struct fd_reserve reserve;
    struct loop_watch watch;
    uint32_t conns_max;
    struct conn conns[];
};

static uint32_t conn_no(const struct conn *c)
{
    return (uint32_t)(c - c->a->conns);
}

static void conn_close(struct conn *c)
{
    loop_watch_del(c->a->loop, &c->watch);
    loop_watch_del(c->a->loop, &c->life);
    if (c->pidfd >= 0)
        close(c->pidfd);
    close(c->fd);
    c->fd = c->pidfd = -1;
}

static void conn_gone(struct conn *c)
{
    MUST(c->fd >= 0);
    conn_close(c);
    c->a->on.closed(c->a->on.ctx, conn_no(c));
}

/* The descriptor of a message, or -1. There is room for one. If more came, the kernel has closed
 * the others (MSG_CTRUNC), and none is used: it is unknown which one was meant. */
static int descriptor_of(struct msghdr *m)
{
    int fd = -1;
    struct cmsghdr *h = CMSG_FIRSTHDR(m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS &&
        h->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(h), sizeof fd);
    if (m->msg_flags & MSG_CTRUNC) {
        LOG_WARN_RATELIMITED(1, "a worker sent several descriptors at once, or there is no room "
                                "for one; closed them");
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    return fd;
}

/* 1 = a message was handled, 0 = none, negative = the connection has ended. */
static int conn_recv(struct conn *c)
{
    uint8_t buf[KVC_ATTACH_MAX + 1];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = sizeof buf};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = CMSG_LEN(sizeof(int))}; /* CMSG_SPACE has room for two */
    ssize_t n = recvmsg(c->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    int fd = descriptor_of(&m); /* also of an empty datagram, which ends the connection */
    if (n == 0) {
        if (fd >= 0)
            close(fd);
        return -EPIPE;
    }
    /* A message that is too long is passed on with one byte too many: it then fails to parse. */
    c->a->on.message(c->a->on.ctx, conn_no(c), buf, (size_t)n, &fd);
    /* The handler did not take the descriptor: the request was refused, or needs none. */
    if (fd >= 0)
        close(fd);
    return 1;
}

static void on_conn(struct loop_watch *w, uint32_t events)
{
    struct conn *c = w->ctx;
    MUST(c->fd >= 0 && conn_no(c) < c->a->conns_max);
    int rc = events & EPOLLIN ? 1 : -EPIPE;
    for (unsigned i = 0; i < MESSAGES_PER_TURN && rc == 1; i++) {
        rc = conn_recv(c);
        if (c->fd < 0)
            return; /* closed by its own message */
    }
    if (rc < 0)
        conn_gone(c);
}

static void on_exit_of_peer(struct loop_watch *w, uint32_t events)
{
    (void)events;
    conn_gone(w->ctx);
}

static int conn_watch(struct conn *c)
{
    c->watch = (struct loop_watch){.fn = on_conn, .ctx = c, .fd = c->fd, .events = EPOLLIN};
    c->life =
        (struct loop_watch){.fn = on_exit_of_peer, .ctx = c, .fd = c->pidfd, .events = EPOLLIN};
    int err = loop_watch_add(c->a->loop, &c->watch);
    if (!err && c->pidfd >= 0)
        err = loop_watch_add(c->a->loop, &c->life);
    return err;
}

static void conn_accept(struct attach *a, int fd)
{
    struct conn *c = NULL;
    for (uint32_t i = 0; i < a->conns_max && !c; i++)
        if (a->conns[i].fd < 0)
            c = &a->conns[i];
    struct ucred who;
    socklen_t n = sizeof who;
    if (!c || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n)) {
        LOG_WARN_RATELIMITED(1, "attach: no room for another connection (limits.sessions)");
        close(fd);
        return;
    }
    c->a = a;
    c->fd = fd;
    /* If this fails, or the pid is another process's by now, the session still ends when the peer
     * closes the connection. */
    c->pidfd = sys_peer_pidfd(fd, who.pid);
    int err = conn_watch(c);
    if (!err)
        err = a->on.opened(a->on.ctx, conn_no(c), who.uid, who.pid);
    if (!err) {
        on_conn(&c->watch,
                EPOLLIN); /* if the peer has gone already, the place is free for the next */
        return;
    }
    LOG_WARN_RATELIMITED(1, "attach: connection of uid %u refused: %s", (unsigned)who.uid,
                         err_name(err));
    conn_close(c);
}

static void on_listen(struct loop_watch *w, uint32_t events)
{
    struct attach *a = w->ctx;
    (void)events;
    for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = sys_accept(a->fd, SOCK_NONBLOCK);
        const int err = fd < 0 ? errno : 0;
        if (fd_reserve_needed(err))
            fd_reserve_turn_away(&a->reserve, a->fd);
        if (err && err != EAGAIN && err != EINTR && err != ECONNABORTED)
            LOG_ERROR_RATELIMITED(1, "attach: accept: %s", strerror(err));
        if (err)
            return;
        conn_accept(a, fd);
    }
}

static int attach_listen_at(struct attach *a, const struct attach_config *cfg)
{
    struct sockaddr_un addr;
    int err = unix_address(cfg->path, &addr);
    if (!err)
        err = unix_listen(SOCK_SEQPACKET, &addr, cfg->mode, (int)MAX(BACKLOG_MIN, cfg->conns_max),
                          &a->fd);
    if (err)
        return err;
    memcpy(a->path, addr.sun_path, sizeof a->path);
    a->watch = (struct loop_watch){.fn = on_listen, .ctx = a, .fd = a->fd, .events = EPOLLIN};
    return loop_watch_add(a->loop, &a->watch);
}

int attach_create(const struct attach_config *config, struct loop *loop,
                  const struct attach_handlers *handlers, struct attach **ret_attach)
{
    struct attach *a = sys_calloc(1, sizeof *a + config->conns_max * sizeof a->conns[0]);
    if (!a)
        return -ENOMEM;
    a->loop = loop;
    a->on = *handlers;
    a->fd = -1;
    a->reserve.fd = -1;
    a->conns_max = config->conns_max;
    for (uint32_t i = 0; i < a->conns_max; i++)
        a->conns[i] = (struct conn){.a = a, .fd = -1};
    int err = fd_reserve_open(&a->reserve);
    if (!err)
        err = attach_listen_at(a, config);
    if (err) {
        LOG_ERROR("attach socket %s: %s%s", config->path, strerror(-err),
                  err == -EADDRINUSE ? ": another kvcache-daemon serves here; stop it or give "
                                       "another runtime_dir"
                                     : "");
        attach_destroy(&a);
        return err;
    }
    *ret_attach = a;
    return 0;
}

void attach_stop(struct attach *a)
{
    if (a->fd < 0)
        return;
    loop_watch_del(a->loop, &a->watch);
    close(a->fd);
    a->fd = -1;
    if (a->path[0])
        unlink(a->path);
}

void attach_destroy(struct attach **attach)
{
    struct attach *a = *attach;
    if (!a)
        return;
    attach_stop(a);
    fd_reserve_close(&a->reserve);
    for (uint32_t i = 0; i < a->conns_max; i++)
        if (a->conns[i].fd >= 0)
            conn_close(&a->conns[i]);
    free(a);
    *attach = NULL;
}

int attach_send(struct attach *a, uint32_t conn, const void *buf, size_t len, int fd)
{
    MUST(conn < a->conns_max && a->conns[conn].fd >= 0);
    if (FAULT(send))
        return -EAGAIN;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = sizeof control.bytes;
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(h), &fd, sizeof fd);
    }
    if (sendmsg(a->conns[conn].fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 0;
    return errno == ECONNRESET ? -EPIPE : -errno; /* the peer has gone and left messages unread */
}

void attach_close(struct attach *a, uint32_t conn)
{
    MUST(conn < a->conns_max && a->conns[conn].fd >= 0);
    conn_close(&a->conns[conn]);
}
