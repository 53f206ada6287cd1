/* SPDX-License-Identifier: Apache-2.0 */
#include "front.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zmq.h>

#include "fault.h"
#include "log.h"
#include "pool.h"
#include "sys.h"

struct front {
    void *ctx, *socket;
    int fd;
    struct pool *kept; /* zmq_msg_t */
    bool asked;        /* the socket said that it has nothing, and nothing was sent since */
};

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

static int set_options(void *socket, const struct front_config *cfg)
{
    int64_t message_max = (int64_t)cfg->message_max;
    int err = set_int(socket, ZMQ_ROUTER_MANDATORY, 1);
    if (!err)
        err = set_int(socket, ZMQ_LINGER, 200);
    if (!err)
        err = set_int(socket, ZMQ_SNDHWM, cfg->hwm);
    if (!err)
        err = set_int(socket, ZMQ_RCVHWM, cfg->hwm);
    if (!err)
        err = set_int(socket, ZMQ_ROUTER_HANDOVER, 0);
    if (!err)
        err = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_max, sizeof message_max);
    return err;
}

/* ZeroMQ creates the file by the umask; its mode is set before anybody can know a route. */
static int bind_endpoint(struct front *f, const struct front_config *cfg)
{
    if (set_options(f->socket, cfg) || zmq_bind(f->socket, cfg->endpoint)) {
        int err = zmq_errno();
        LOG_ERROR("control socket %s: %s", cfg->endpoint, zmq_strerror(err));
        return -err;
    }
    const char *path = strstr(cfg->endpoint, "ipc://") == cfg->endpoint ? cfg->endpoint + 6 : NULL;
    if (path && chmod(path, cfg->mode)) {
        int err = errno;
        LOG_ERROR("control socket %s: chmod: %s", path, strerror(err));
        return -err;
    }
    return 0;
}

/* A fault point before a call of ZeroMQ's. */
static void *refused(int err)
{
    errno = err;
    return NULL;
}

int front_create(const struct front_config *config, struct front **ret_front)
{
    struct front *f = sys_calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    int err = pool_create(&f->kept, "kept messages", sizeof(zmq_msg_t), config->kept_max);
    if (!err) {
        f->ctx = FAULT(alloc) ? refused(ENOMEM) : zmq_ctx_new();
        f->socket = !f->ctx ? NULL : FAULT(fd) ? refused(EMFILE) : zmq_socket(f->ctx, ZMQ_ROUTER);
        if (!f->socket)
            err = -zmq_errno();
    }
    if (!err)
        err = bind_endpoint(f, config);
    size_t n = sizeof f->fd;
    if (!err && zmq_getsockopt(f->socket, ZMQ_FD, &f->fd, &n))
        err = -zmq_errno();
    if (err) {
        front_destroy(&f);
        return err;
    }
    *ret_front = f;
    return 0;
}

void front_destroy(struct front **front)
{
    struct front *f = *front;
    if (!f)
        return;
    if (f->socket)
        zmq_close(f->socket);
    if (f->ctx)
        zmq_ctx_term(f->ctx);
    pool_destroy(&f->kept);
    free(f);
    *front = NULL;
}

int front_fd(const struct front *f)
{
    return f->fd;
}

/* Reads what is left of a message that has too many frames; a DEALER of ours sends one. */
static bool skip_rest(void *socket, zmq_msg_t *msg)
{
    bool extra = false;
    while (zmq_msg_more(msg)) {
        extra = true;
        if (zmq_msg_recv(msg, socket, ZMQ_DONTWAIT) < 0)
            break;
    }
    return extra;
}

/* 0: a message was handled; -EAGAIN: none. */
static int recv_one(struct front *f, front_fn *fn, void *ctx)
{
    zmq_msg_t route, body;
    zmq_msg_init(&route);
    zmq_msg_init(&body);
    int err = 0;
    if (zmq_msg_recv(&route, f->socket, ZMQ_DONTWAIT) < 0) {
        err = -zmq_errno();
    } else if (zmq_msg_more(&route)) {
        if (zmq_msg_recv(&body, f->socket, ZMQ_DONTWAIT) < 0)
            err = -zmq_errno();
        /* Several frames are no request of this protocol: as one without bytes it fails to parse.
         */
        else if (skip_rest(f->socket, &body))
            fn(ctx, zmq_msg_data(&route), zmq_msg_size(&route), "", 0, &body);
        else
            fn(ctx, zmq_msg_data(&route), zmq_msg_size(&route), zmq_msg_data(&body),
               zmq_msg_size(&body), &body);
    }
    zmq_msg_close(&route);
    zmq_msg_close(&body);
    return err == -EINTR ? 0 : err;
}

unsigned front_drain(struct front *f, unsigned max, front_fn *fn, void *ctx)
{
    unsigned n = 0;
    for (; n < max; n++) {
        int err = recv_one(f, fn, ctx);
        f->asked = err == -EAGAIN;
        if (f->asked)
            break;
        if (err)
            LOG_ERROR_RATELIMITED(1, "control socket: receive: %s", zmq_strerror(-err));
    }
    return n;
}

bool front_more(struct front *f)
{
    if (f->asked)
        return false;
    int events = 0;
    size_t n = sizeof events;
    MUST(zmq_getsockopt(f->socket, ZMQ_EVENTS, &events, &n) == 0);
    return events & ZMQ_POLLIN;
}

int front_send(struct front *f, const void *route, size_t route_len, const void *buf, size_t len)
{
    f->asked = false;
    if (FAULT(send))
        return -EAGAIN;
    if (zmq_send(f->socket, route, route_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0)
        return -zmq_errno();
    /* The peer was found and has room: the second frame of a message always follows its first. */
    if (zmq_send(f->socket, buf, len, ZMQ_DONTWAIT) < 0)
        return -zmq_errno();
    return 0;
}

void *front_keep(struct front *f, void *msg)
{
    zmq_msg_t *kept = pool_get(f->kept);
    if (!kept)
        return NULL;
    zmq_msg_init(kept);
    MUST(zmq_msg_move(kept, msg) == 0);
    return kept;
}

void front_unkeep(struct front *f, void *kept)
{
    zmq_msg_close(kept);
    pool_put(f->kept, kept);
}
