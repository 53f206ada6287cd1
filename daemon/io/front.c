/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket, where requests arrive and replies leave: a ZeroMQ ROUTER. front_receive()
 * hands each message to svc, front_send() sends a reply; front_limiter.c keeps peers within their
 * limits.
 */
#include "front.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "fault.h"
#include "log.h"
#include "pool.h"
#include "sys.h"

#define BACKLOG_MIN 128u
/* Long, so that a slow worker is not cut off: with its connection libkvcache loses its session. */
#define HANDSHAKE_MS 10000

/* Replies of at least so many bytes are sent from buffers that stay, called rooms. malloc() would
 * map each anew (front_limiter.c) at the cost of a page fault per page: a millisecond for the reply
 * to a long ACQUIRE. */
#define ROOM_FROM  (128u << 10)
#define ROOM_BYTES (33u << 17) /* a little more than the reply with KVC_KEYS_MAX locations */
#define ROOMS      8u

struct front {
    void *ctx, *socket;
    uint8_t *rooms;
    _Atomic uint32_t free_rooms; /* bits; set by ZeroMQ's threads, cleared by the control thread */
    struct front_limiter *limiter;
    int fd;
    struct pool *kept; /* zmq_msg_t */
    bool asked;        /* the socket had no message when asked last, and nothing was sent since */
    bool idle;         /* the same, and its descriptor will be ready when a message comes */
};

static int set_int(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof value);
}

static int front_set_options(void *socket, const struct front_config *cfg)
{
    int64_t message_max = (int64_t)cfg->message_max;
    int err = set_int(socket, ZMQ_ROUTER_MANDATORY, 1);
    if (!err)
        err = set_int(socket, ZMQ_LINGER, 200);
    if (!err)
        err = set_int(socket, ZMQ_SNDHWM, cfg->hwm);
    if (!err)
        err = set_int(socket, ZMQ_RCVHWM, cfg->hwm);
    /* The limiter allows one connection at a time per route; a new one takes the route over from
     * what ZeroMQ still has of the old one. */
    if (!err)
        err = set_int(socket, ZMQ_ROUTER_HANDOVER, 1);
    if (!err)
        err = set_int(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS);
    if (!err)
        err = zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &message_max, sizeof message_max);
    return err;
}

/* Makes the listening socket here and not in ZeroMQ, so that the limiter knows it, and its file has
 * the right mode before it listens. */
static int front_listen_at(const char *path, unsigned mode, uint32_t backlog)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof addr.sun_path)
        return -ENAMETOOLONG;
    memcpy(addr.sun_path, path, strlen(path) + 1);
    /* A socket file here is an earlier daemon's: a daemon that serves would hold attach.sock. */
    if (unlink(path) && errno != ENOENT)
        return -errno;
    int fd = FAULT(fd) ? (errno = EMFILE, -1)
                       : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int err = 0;
    if (bind(fd, (const struct sockaddr *)&addr, sizeof addr) || chmod(path, mode) ||
        listen(fd, (int)backlog))
        err = -errno;
    if (!err)
        return fd;
    close(fd);
    return err;
}

static int bind_endpoint(struct front *f, const struct front_config *cfg)
{
    const char *path = strchr(cfg->endpoint, '/') + 2;
    const struct front_limiter_config limiter = {.peers_max = cfg->peers_max,
                                                 .uids = cfg->uids,
                                                 .nuids = cfg->nuids,
                                                 .message_max = cfg->message_max};
    MUST(strncmp(cfg->endpoint, "ipc://", 6) == 0);
    /* Room for all workers at once: ZeroMQ in a worker does not try again if the queue is full. */
    const uint32_t all = front_limiter_descriptors(cfg->peers_max, cfg->nuids);
    int fd = front_listen_at(path, cfg->mode, MAX(BACKLOG_MIN, all));
    int err = fd < 0 ? fd : front_limiter_create(&limiter, fd, &f->limiter);
    if (!err && (set_int(f->socket, ZMQ_USE_FD, fd) || front_set_options(f->socket, cfg) ||
                 zmq_bind(f->socket, cfg->endpoint)))
        err = -zmq_errno();
    if (!err)
        return 0;
    LOG_ERROR("control socket %s: %s", cfg->endpoint, zmq_strerror(-err));
    if (fd >= 0)
        close(fd); /* after a bind that succeeds ZeroMQ owns it */
    return err;
}

/* A fault point before a call of ZeroMQ's. */
static void *front_refused(int err)
{
    errno = err;
    return NULL;
}

uint64_t front_bytes(uint32_t peers_max)
{
    return front_limiter_bytes(peers_max) + ROOMS * ROOM_BYTES;
}

static int create_rooms(struct front *f)
{
    f->rooms = sys_pages(ROOMS * ROOM_BYTES);
    if (!f->rooms)
        return -ENOMEM;
    (void)madvise(f->rooms, ROOMS * ROOM_BYTES, MADV_HUGEPAGE);
    atomic_init(&f->free_rooms, (1u << ROOMS) - 1);
    return 0;
}

int front_create(const struct front_config *config, struct front **ret_front)
{
    struct front *f = sys_calloc(1, sizeof *f);
    if (!f)
        return -ENOMEM;
    int err = pool_create(&f->kept, "kept messages", sizeof(zmq_msg_t), config->kept_max);
    if (!err)
        err = create_rooms(f);
    if (!err) {
        f->ctx = FAULT(alloc) ? front_refused(ENOMEM) : zmq_ctx_new();
        f->socket = !f->ctx     ? NULL
                    : FAULT(fd) ? front_refused(EMFILE)
                                : zmq_socket(f->ctx, ZMQ_ROUTER);
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
    front_limiter_destroy(&f->limiter);
    pool_destroy(&f->kept);
    if (f->rooms)
        MUST(munmap(f->rooms, ROOMS * ROOM_BYTES) == 0);
    free(f);
    *front = NULL;
}

struct sys_range front_memory(const struct front *f)
{
    return (struct sys_range){f->rooms, ROOMS * ROOM_BYTES};
}

int front_fd(const struct front *f)
{
    return f->fd;
}

/* Reads the remaining frames of a message with too many; our DEALER sends one frame. Returns their
 * bytes. */
static uint64_t skip_rest(void *socket, zmq_msg_t *msg)
{
    uint64_t bytes = 0;
    while (zmq_msg_more(msg)) {
        if (zmq_msg_recv(msg, socket, ZMQ_DONTWAIT) < 0)
            break;
        bytes += zmq_msg_size(msg);
    }
    return bytes;
}

static void front_hand_over(struct front *f, zmq_msg_t *route, zmq_msg_t *body, front_fn *fn,
                            void *ctx)
{
    const bool several = zmq_msg_more(body);
    uint64_t bytes = zmq_msg_size(body);
    if (several)
        bytes += skip_rest(f->socket, body);
    if (front_limiter_taken(f->limiter, zmq_msg_data(route), zmq_msg_size(route), bytes)) {
        LOG_WARN_RATELIMITED(1, "control socket: a message of no session is not handled");
        return;
    }
    /* A message of several frames is no request: it is passed on without bytes, and fails to parse.
     */
    fn(ctx, zmq_msg_data(route), zmq_msg_size(route), several ? "" : zmq_msg_data(body),
       several ? 0 : zmq_msg_size(body), body);
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
        else
            front_hand_over(f, &route, &body, fn, ctx);
    }
    zmq_msg_close(&route);
    zmq_msg_close(&body);
    return err == -EINTR ? 0 : err;
}

unsigned front_receive(struct front *f, unsigned max, front_fn *fn, void *ctx)
{
    unsigned n = 0;
    for (; n < max; n++) {
        int err = recv_one(f, fn, ctx);
        f->idle = f->asked = err == -EAGAIN;
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
    f->idle = (events & ZMQ_POLLIN) == 0;
    return !f->idle;
}

bool front_idle(const struct front *f)
{
    return f->idle;
}

void front_woke(struct front *f)
{
    f->idle = false;
}

/* Called by a thread of ZeroMQ when it has sent the bytes of the room. */
static void room_free(void *data, void *hint)
{
    struct front *f = hint;
    const size_t no = (size_t)((uint8_t *)data - f->rooms) / ROOM_BYTES;
    atomic_fetch_or_explicit(&f->free_rooms, UINT32_C(1) << no, memory_order_release);
}

/* Takes the first free room, usually one whose pages were touched. NULL: none is free. */
static void *room_take(struct front *f)
{
    const uint32_t have = atomic_load_explicit(&f->free_rooms, memory_order_acquire);
    if (!have)
        return NULL;
    const uint32_t no = (uint32_t)__builtin_ctz(have);
    atomic_fetch_and_explicit(&f->free_rooms, ~(UINT32_C(1) << no), memory_order_acquire);
    return f->rooms + (size_t)no * ROOM_BYTES;
}

static int body_make(struct front *f, const void *buf, size_t len, zmq_msg_t *ret_msg)
{
    void *room = len >= ROOM_FROM && len <= ROOM_BYTES ? room_take(f) : NULL;
    if (room && zmq_msg_init_data(ret_msg, room, len, room_free, f) != 0) {
        room_free(room, f);
        return -ENOMEM;
    }
    if (!room && zmq_msg_init_size(ret_msg, len) != 0)
        return -ENOMEM;
    memcpy(zmq_msg_data(ret_msg), buf, len);
    return 0;
}

bool front_backlogged(const struct front *f, const void *route, size_t route_len)
{
    return front_limiter_backlogged(f->limiter, route, route_len);
}

int front_send(struct front *f, const void *route, size_t route_len, const void *buf, size_t len)
{
    f->idle = f->asked = false;
    if (FAULT(send))
        return -EAGAIN;
    zmq_msg_t body;
    int err = front_limiter_sending(f->limiter, route, route_len, len);
    if (err)
        return err;
    /* ZeroMQ takes the second frame of a message whenever it took the first. */
    err = body_make(f, buf, len, &body) ? -EAGAIN : 0;
    if (!err && (zmq_send(f->socket, route, route_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
                 zmq_msg_send(&body, f->socket, ZMQ_DONTWAIT) < 0)) {
        err = -zmq_errno();
        zmq_msg_close(&body);
    }
    if (err)
        front_limiter_unsent(f->limiter, route, route_len, len);
    return err;
}

void *front_keep(struct front *f, void *msg, const void **ret_buf)
{
    zmq_msg_t *kept = pool_get(f->kept);
    if (!kept)
        return NULL;
    zmq_msg_init(kept);
    MUST(zmq_msg_move(kept, msg) == 0);
    *ret_buf = zmq_msg_data(kept); /* a small message lies in its zmq_msg_t */
    return kept;
}

void front_unkeep(struct front *f, void *kept)
{
    zmq_msg_close(kept);
    pool_put(f->kept, kept);
}

void front_admit(struct front *f, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid)
{
    front_limiter_admit(f->limiter, route, uid);
}

void front_dismiss(struct front *f, const uint8_t route[KVC_ROUTE_BYTES])
{
    front_limiter_dismiss(f->limiter, route);
}

void front_numbers(struct front *f, struct front_limiter_stats *ret_stats)
{
    front_limiter_stats(f->limiter, ret_stats);
}

void front_tick(struct front *f, uint64_t now_ns)
{
    front_limiter_tick(f->limiter, now_ns);
}
