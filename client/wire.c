/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket of a session; the only file of the library that includes ZeroMQ. */
#include "wire.h"

#include <errno.h>
#include <string.h>

#include <zmq.h>

#include "fault.h"

_Static_assert(sizeof(zmq_msg_t) <= sizeof(((struct wire_msg *)0)->opaque),
               "wire_msg has room for a zmq_msg_t");
_Static_assert(_Alignof(zmq_msg_t) <= 8, "wire_msg is aligned for a zmq_msg_t");

static zmq_msg_t *zm(struct wire_msg *msg)
{
    return (zmq_msg_t *)(void *)msg->opaque;
}

/* zmq_errno() is an errno, or a number of ZeroMQ's own above it. */
static int wire_failed(void)
{
    int e = zmq_errno();
    return e > 0 && e < ZMQ_HAUSNUMERO ? -e : -EIO;
}

/* A fault point for tests, before a call of ZeroMQ. */
static void *wire_refused(int error)
{
    errno = error;
    return NULL;
}

static void wire_fill(struct wire_msg *msg)
{
    msg->data = zmq_msg_data(zm(msg));
    msg->len = zmq_msg_size(zm(msg));
    msg->full = true;
}

int wire__init(struct wire *w)
{
    *w = (struct wire){.fd = -1};
    w->ctx = FAULT(alloc) ? wire_refused(ENOMEM) : zmq_ctx_new();
    if (w->ctx == NULL)
        return wire_failed();
    /* So zmq_ctx_term() does not wait for earlier sockets. */
    if (zmq_ctx_set(w->ctx, ZMQ_BLOCKY, 0) != 0 || zmq_ctx_set(w->ctx, ZMQ_IO_THREADS, 1) != 0) {
        int rc = wire_failed();
        wire__destroy(w);
        return rc;
    }
    return 0;
}

void wire__destroy(struct wire *w)
{
    wire__disconnect(w);
    if (w->ctx != NULL) {
        while (zmq_ctx_term(w->ctx) != 0 && zmq_errno() == EINTR) {
        }
    }
    w->ctx = NULL;
}

void wire__disconnect(struct wire *w)
{
    if (w->sock != NULL)
        (void)zmq_close(w->sock); /* fails only for what is no socket */
    w->sock = NULL;
    w->fd = -1;
}

static int set_int(void *sock, int option, int value)
{
    return zmq_setsockopt(sock, option, &value, sizeof(value));
}

static int set_up(void *sock, const char *endpoint, const uint8_t route[KVC_ROUTE_BYTES],
                  int *ret_fd)
{
    int64_t max = KVC_MESSAGE_MAX;
    size_t size = sizeof(*ret_fd);
    /* ZeroMQ must not reconnect: the route is valid only for the daemon that gave it. The
     * high-water marks are above the number of requests that a session may have in flight, and
     * bound the queue for a stopped daemon. */
    if (zmq_setsockopt(sock, ZMQ_ROUTING_ID, route, KVC_ROUTE_BYTES) != 0 ||
        zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max, sizeof(max)) != 0 ||
        set_int(sock, ZMQ_LINGER, 0) != 0 || set_int(sock, ZMQ_SNDHWM, 4096) != 0 ||
        set_int(sock, ZMQ_RCVHWM, 4096) != 0 || set_int(sock, ZMQ_RECONNECT_IVL, -1) != 0 ||
        set_int(sock, ZMQ_RCVTIMEO, WIRE_NAP_MS) != 0 || zmq_connect(sock, endpoint) != 0 ||
        zmq_getsockopt(sock, ZMQ_FD, ret_fd, &size) != 0)
        return wire_failed();
    return 0;
}

int wire__connect(struct wire *w, const char *endpoint, const uint8_t route[KVC_ROUTE_BYTES])
{
    wire__disconnect(w);
    void *sock = FAULT(fd) ? wire_refused(EMFILE) : zmq_socket(w->ctx, ZMQ_DEALER);
    if (sock == NULL)
        return wire_failed();
    int fd = -1;
    int rc = set_up(sock, endpoint, route, &fd);
    if (rc < 0) {
        (void)zmq_close(sock);
        return rc;
    }
    w->sock = sock;
    w->fd = fd;
    w->quiet = false;
    return 0;
}

int wire__send(struct wire *w, const void *buf, size_t len)
{
    w->quiet = false;
    if (FAULT(send))
        return -EAGAIN;
    while (zmq_send(w->sock, buf, len, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() != EINTR)
            return wire_failed();
    }
    return 0;
}

int wire__send_msg(struct wire *w, struct wire_msg *msg)
{
    w->quiet = false;
    if (FAULT(send))
        return -EAGAIN;
    zmq_msg_t copy; /* long messages are shared, not copied */
    (void)zmq_msg_init(&copy);
    if (zmq_msg_copy(&copy, zm(msg)) != 0)
        return wire_failed();
    while (zmq_msg_send(&copy, w->sock, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() == EINTR)
            continue;
        int rc = wire_failed();
        (void)zmq_msg_close(&copy);
        return rc;
    }
    return 0;
}

/* Whether ZeroMQ's events say that the connection has ended. A DEALER queues messages until it is
 * connected, so it is not writable only after the connection's end, or when the queue is full. */
static bool says_cut(int events)
{
    return (events & (ZMQ_POLLIN | ZMQ_POLLOUT)) == 0;
}

/* ZeroMQ's events. If it fails: readable and writable, so that the next receive gets the error. */
static int events_of(struct wire *w)
{
    int events = 0;
    size_t size = sizeof(events);
    int rc;
    do {
        rc = zmq_getsockopt(w->sock, ZMQ_EVENTS, &events, &size);
    } while (rc != 0 && zmq_errno() == EINTR);
    if (rc != 0)
        return ZMQ_POLLIN | ZMQ_POLLOUT;
    w->quiet = (events & ZMQ_POLLIN) == 0 && !says_cut(events);
    return events;
}

bool wire__has_news(struct wire *w)
{
    if (w->quiet)
        return false;
    int events = events_of(w);
    return (events & ZMQ_POLLIN) != 0 || says_cut(events);
}

bool wire__is_cut(struct wire *w)
{
    return says_cut(events_of(w));
}

int wire__recv(struct wire *w, bool nap, struct wire_msg *ret_msg)
{
    zmq_msg_t *m = zm(ret_msg);
    (void)zmq_msg_init(m);
    w->quiet = false;
    if (zmq_msg_recv(m, w->sock, nap ? 0 : ZMQ_DONTWAIT) < 0) {
        int rc = wire_failed();
        (void)zmq_msg_close(m);
        w->quiet = rc == -EAGAIN;
        return rc == -EAGAIN || rc == -EINTR ? 0 : rc;
    }
    if (zmq_msg_more(m)) {
        (void)zmq_msg_close(m);
        return -EPROTO;
    }
    wire_fill(ret_msg);
    return 1;
}

int wire__msg_make(struct wire_msg *ret_msg, const void *buf, size_t len)
{
    if (FAULT(alloc) || zmq_msg_init_size(zm(ret_msg), len) != 0)
        return -ENOMEM;
    memcpy(zmq_msg_data(zm(ret_msg)), buf, len);
    wire_fill(ret_msg);
    return 0;
}

void wire__msg_move(struct wire_msg *to, struct wire_msg *from)
{
    (void)zmq_msg_init(zm(to));
    (void)zmq_msg_move(zm(to), zm(from));
    wire_fill(to);
    wire__msg_free(from);
}

void wire__msg_free(struct wire_msg *msg)
{
    if (msg->full)
        (void)zmq_msg_close(zm(msg));
    msg->full = false;
    msg->data = NULL;
    msg->len = 0;
}
