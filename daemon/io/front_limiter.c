/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits what peers of the control socket can make ZeroMQ do: bytes queued, connections, malformed
 * frames. It defines libc's functions that ZeroMQ calls, so that all bytes pass here first
 * (front_limiter.h). For descriptors of others they are the bare system calls.
 */
/* With _FORTIFY_SOURCE libc's headers define recv() as an inline function. */
#undef _FORTIFY_SOURCE
#include "front_limiter.h"

#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "fd_reserve.h"
#include "sys.h"
#include "zmtp.h"

/* A request is one frame. A few more are accepted, so that their sender gets an answer. */
#define FRAMES_MAX 8u
/* A uid may have one connection without a route for each of its sessions that is not connected, so
 * that any number of workers can start at once; and so many more. */
#define GREETING_MORE 8u
/* Bytes that one peer may have queued in each direction, beside the message in progress. */
#define QUEUED_ONE_MAX (8u << 20)
/* Bytes that all peers may have queued; and bytes that each may have queued even beyond that. */
#define QUEUED_ALL_MAX (32u << 20)
#define QUEUED_EACH    (64u << 10)
/* A message of more than QUEUED_EACH needs room in QUEUED_ALL_MAX before more than the first bytes
 * of it are read. While another peer waits for room, such a message must be complete after this
 * time. */
#define UNFINISHED_NS (2ull * 1000 * 1000 * 1000)
/* malloc() maps larger pieces anew, so memory that ZeroMQ reserves for an announced message costs
 * nothing until its bytes come. */
#define MAPPED_FROM (128 << 10)
/* A connection whose descriptor is not below this number is refused. */
#define FDS_MAX (1u << 20)

struct peer {
    uint8_t route[KVC_ROUTE_BYTES];
    uid_t uid;
    bool live;
    struct conn *conn; /* NULL: not connected */
    /* Bytes queued, changed under the lock. Bytes that an earlier connection of the same peer left
     * in ZeroMQ's queue still count. */
    _Atomic uint64_t in, out;
};

struct conn {
    int fd;
    uint32_t uid_no; /* of uids[], whose `greeting` counts it while it has no peer */
    _Atomic(struct peer *) peer;
    atomic_bool dismissed;
    struct conn *next_free;
    struct zmtp zmtp; /* I/O thread */
    /* From here on under the lock. */
    uint64_t large;          /* bytes of the common room that a large message in progress has */
    _Atomic uint64_t wanted; /* bytes of room for which that message waits */
    uint64_t since_ns;       /* when that message got its room last, or was cut off */
    int epoll_fd;            /* of ZeroMQ, where the connection is in it; -1: it is not */
    struct epoll_event event;
    bool held; /* not read: ZeroMQ's EPOLLIN is masked out */
};

struct uid_account {
    uid_t uid;
    uint32_t greeting; /* connections that have not named a route yet */
    uint32_t awaited;  /* admitted routes that are not connected */
};

struct front_limiter {
    int listener;
    struct fd_reserve reserve; /* I/O thread */
    struct zmtp_rules rules;
    uint32_t peers_max, nuids;
    pthread_mutex_t lock;
    struct peer *peers;
    struct uid_account *uids;
    struct conn *conns, *free;
    _Atomic uint64_t in, out;
    uint64_t large;          /* sum of conn.large; under the lock, as is: */
    uint32_t nheld, turn_of; /* connections with `held`; the peer at which let_read() begins next */
    _Atomic uint64_t refused, cut, shed, paused;
};

/* Any thread looks here first, and goes no further when the descriptor is not of a connection here:
 * a thread that closes some file must not use a limiter that is being destroyed. */
static _Atomic uint16_t by_fd[FDS_MAX]; /* 1 + number of the connection; pages come as used */
static atomic_int listener_fd = -1;
static _Atomic(struct front_limiter *) the_limiter;

static void front_limiter_count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

uint32_t front_limiter_descriptors(uint32_t peers_max, uint32_t nuids)
{
    return peers_max + nuids * GREETING_MORE + 1;
}

uint64_t front_limiter_bytes(uint32_t peers_max)
{
    /* Requests: queued and large ones in progress share QUEUED_ALL_MAX; beside it each peer may
     * have three times QUEUED_EACH: queued, in progress, and read before the limiter could stop it.
     * Replies: QUEUED_ALL_MAX, and QUEUED_EACH for each peer. */
    return 2ull * QUEUED_ALL_MAX + (uint64_t)peers_max * 4 * QUEUED_EACH;
}

/* ---- connections; the lock is held ---- */

/* NULL: the descriptor is not of a connection here. Called without the lock. */
static struct conn *conn_of_fd(int fd, struct front_limiter **ret_limiter)
{
    if (fd < 0 || (uint32_t)fd >= FDS_MAX)
        return NULL;
    uint16_t no = atomic_load_explicit(&by_fd[fd], memory_order_acquire);
    if (!no)
        return NULL;
    *ret_limiter = atomic_load_explicit(&the_limiter, memory_order_acquire);
    return &(*ret_limiter)->conns[no - 1];
}

static struct uid_account *account_of(struct front_limiter *g, uid_t uid)
{
    for (uint32_t i = 0; i < g->nuids; i++)
        if (g->uids[i].uid == uid)
            return &g->uids[i];
    return NULL;
}

static bool conn_open(struct front_limiter *g, int fd, uid_t uid)
{
    struct uid_account *who = account_of(g, uid);
    struct conn *c = g->free;
    if (!who || !c || (uint32_t)fd >= FDS_MAX || who->greeting >= who->awaited + GREETING_MORE)
        return false;
    who->greeting++;
    g->free = c->next_free;
    c->fd = fd;
    c->uid_no = (uint32_t)(who - g->uids);
    c->zmtp = (struct zmtp){0};
    c->large = c->since_ns = 0;
    c->epoll_fd = -1;
    c->held = false;
    atomic_store(&c->wanted, 0);
    atomic_store(&c->peer, NULL);
    atomic_store(&c->dismissed, false);
    atomic_store_explicit(&by_fd[fd], (uint16_t)(c - g->conns + 1), memory_order_release);
    return true;
}

/* Counts admitted peers that are not connected. more 1: `p` is not connected (any more); -1: it is
 * connected, or was dismissed. A uid that may not connect has no account. */
static void front_limiter_await(struct front_limiter *g, const struct peer *p, int more)
{
    struct uid_account *who = account_of(g, p->uid);
    if (who)
        who->awaited += (uint32_t)more;
}

/* Whether a peer must not queue more: it has its own limit, or all have theirs and it has
 * QUEUED_EACH. */
static bool front_limiter_is_full(const _Atomic uint64_t *one, const _Atomic uint64_t *all)
{
    uint64_t mine = atomic_load_explicit(one, memory_order_relaxed);
    return mine > QUEUED_ONE_MAX ||
           (mine > QUEUED_EACH && atomic_load_explicit(all, memory_order_relaxed) > QUEUED_ALL_MAX);
}

static bool may_read(const struct front_limiter *g, const struct conn *c, const struct peer *p)
{
    return !front_limiter_is_full(&p->in, &g->in) &&
           (c->wanted == 0 || g->in + g->large + c->wanted <= (uint64_t)QUEUED_ALL_MAX);
}

/* Gives the large message the room for which it waited. */
static void go_on(struct front_limiter *g, struct conn *c)
{
    g->large += c->wanted;
    c->large += c->wanted;
    atomic_store(&c->wanted, 0);
    c->since_ns = clock_now_ns();
}

static void listen_to(const struct conn *c, bool input)
{
    struct epoll_event e = c->event;
    if (!input)
        e.events &= ~(uint32_t)EPOLLIN;
    if (c->epoll_fd >= 0) /* it is in the epoll set, so changing its mask cannot fail */
        MUST(syscall(SYS_epoll_ctl, c->epoll_fd, EPOLL_CTL_MOD, c->fd, &e) == 0);
}

/* Room may have become free: lets held connections be read, beginning with another peer each time.
 */
static void let_read(struct front_limiter *g)
{
    const uint32_t first = g->nheld > 0 ? g->turn_of++ : 0;
    for (uint32_t i = 0; g->nheld > 0 && i < g->peers_max; i++) {
        struct peer *p = &g->peers[(first + i) % g->peers_max];
        struct conn *c = p->conn;
        if (!c || !c->held || !may_read(g, c, p))
            continue;
        go_on(g, c);
        c->held = false;
        g->nheld--;
        listen_to(c, true);
    }
}

static void forget_waiting(struct front_limiter *g, struct conn *c)
{
    g->large -= c->large;
    g->nheld -= c->held;
    c->large = 0;
    c->held = false;
}

static void conn_gone(struct front_limiter *g, struct conn *c)
{
    struct peer *p = atomic_load(&c->peer);
    atomic_store_explicit(&by_fd[c->fd], 0, memory_order_release);
    if (p) {
        p->conn = NULL;
        front_limiter_await(g, p, 1);
        g->in -= p->in;   /* p->in stays: ZeroMQ still hands these requests out */
        g->out -= p->out; /* replies that the peer has not read are lost */
        p->out = 0;
    } else if (!atomic_load(&c->dismissed)) {
        g->uids[c->uid_no].greeting--;
    }
    c->next_free = g->free;
    g->free = c;
    forget_waiting(g, c);
    let_read(g);
}

static struct peer *peer_of(struct front_limiter *g, const uint8_t *route)
{
    uint32_t no = route[1] | (uint32_t)route[2] << 8;
    struct peer *p = no < g->peers_max ? &g->peers[no] : NULL;
    return p && p->live && memcmp(p->route, route, KVC_ROUTE_BYTES) == 0 ? p : NULL;
}

/* ---- calls of the control thread ---- */

void front_limiter_admit(struct front_limiter *g, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid)
{
    uint32_t no = route[1] | (uint32_t)route[2] << 8;
    MUST(no < g->peers_max);
    struct peer *p = &g->peers[no];
    pthread_mutex_lock(&g->lock);
    MUST(!p->live && !p->conn);
    memcpy(p->route, route, KVC_ROUTE_BYTES);
    p->uid = uid;
    p->live = true;
    front_limiter_await(g, p, 1);
    pthread_mutex_unlock(&g->lock);
}

void front_limiter_dismiss(struct front_limiter *g, const uint8_t route[KVC_ROUTE_BYTES])
{
    pthread_mutex_lock(&g->lock);
    struct peer *p = peer_of(g, route);
    if (p) {
        p->live = false;
        if (p->conn) {
            g->in -= p->in;
            g->out -= p->out;
            atomic_store(&p->conn->dismissed, true);
            atomic_store(&p->conn->peer, NULL);
            forget_waiting(g, p->conn);
            listen_to(p->conn, true);
            (void)shutdown(p->conn->fd, SHUT_RDWR); /* still open: close() takes the lock */
            p->conn = NULL;
        } else {
            front_limiter_await(g, p, -1);
        }
        p->in = p->out = 0;
        let_read(g);
    }
    pthread_mutex_unlock(&g->lock);
}

int front_limiter_taken(struct front_limiter *g, const void *route, size_t route_len,
                        uint64_t bytes)
{
    int err = 0; /* also for a dismissed route: svc finds no session for the request */
    if (route_len != KVC_ROUTE_BYTES)
        return -EPROTO;
    pthread_mutex_lock(&g->lock);
    struct peer *p = peer_of(g, route);
    if (p && p->in >= bytes) {
        p->in -= bytes;
        if (p->conn)
            g->in -= bytes;
        let_read(g);
    } else if (p) {
        err = -EPROTO;
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

int front_limiter_sending(struct front_limiter *g, const void *route, size_t route_len,
                          uint64_t bytes)
{
    int err = -EHOSTUNREACH;
    if (route_len != KVC_ROUTE_BYTES)
        return err;
    pthread_mutex_lock(&g->lock);
    struct peer *p = peer_of(g, route);
    if (p && p->conn)
        err = front_limiter_is_full(&p->out, &g->out) ? -EAGAIN : 0;
    if (!err) {
        p->out += bytes;
        g->out += bytes;
    }
    pthread_mutex_unlock(&g->lock);
    return err;
}

/* Without the lock: only the calling thread admits and dismisses peers. */
bool front_limiter_backlogged(struct front_limiter *g, const void *route, size_t route_len)
{
    const struct peer *p = route_len == KVC_ROUTE_BYTES ? peer_of(g, route) : NULL;
    if (!p)
        return false;
    const uint64_t mine = atomic_load_explicit(&p->out, memory_order_relaxed);
    return mine > QUEUED_ONE_MAX / 2 ||
           (mine > QUEUED_EACH &&
            atomic_load_explicit(&g->out, memory_order_relaxed) > QUEUED_ALL_MAX / 2);
}

void front_limiter_unsent(struct front_limiter *g, const void *route, size_t route_len,
                          uint64_t bytes)
{
    if (route_len != KVC_ROUTE_BYTES)
        return;
    pthread_mutex_lock(&g->lock);
    struct peer *p = peer_of(g, route);
    if (p && p->conn) {
        bytes = MIN(bytes, p->out);
        p->out -= bytes;
        g->out -= bytes;
    }
    pthread_mutex_unlock(&g->lock);
}

void front_limiter_tick(struct front_limiter *g, uint64_t now_ns)
{
    pthread_mutex_lock(&g->lock);
    for (uint32_t i = 0; g->nheld > 0 && i < g->peers_max; i++) {
        struct conn *c = g->peers[i].conn;
        if (!c || c->large == 0 || c->held || now_ns < c->since_ns + UNFINISHED_NS)
            continue;
        front_limiter_count(&g->cut);
        c->since_ns = now_ns; /* so that it is cut once; close() gives its room back */
        (void)shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&g->lock);
}

void front_limiter_stats(struct front_limiter *g, struct front_limiter_stats *ret_stats)
{
    *ret_stats = (struct front_limiter_stats){
        .refused = g->refused, .cut = g->cut, .shed = g->shed, .paused = g->paused};
}

/* ---- on ZeroMQ's I/O thread ---- */

/* close() is replaced below for the whole process. ThreadSanitizer must see each call: otherwise a
 * thread that gets the same descriptor number later seems to race with the thread that had it. */
#ifdef __SANITIZE_THREAD__
int __interceptor_close(int fd);
#endif

static int bare_close(int fd)
{
#ifdef __SANITIZE_THREAD__
    return __interceptor_close(fd);
#else
    return (int)syscall(SYS_close, fd);
#endif
}

static int bare_accept(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    return FAULT(fd) ? (errno = EMFILE, -1) : (int)syscall(SYS_accept4, fd, addr, len, flags);
}

/* accept4() fails, and `counter` counts it. libzmq aborts the process at an error that it does not
 * expect; it expects ECONNABORTED. */
static int nobody(_Atomic uint64_t *counter)
{
    front_limiter_count(counter);
    errno = ECONNABORTED;
    return -1;
}

/* Whether the peer hung up while it waited to be accepted; bytes that it sent are dropped. */
static bool is_dead(int fd)
{
    struct pollfd end = {.fd = fd};
    return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP);
}

static int limiter_accept(struct front_limiter *g, int flags)
{
    int fd = bare_accept(g->listener, NULL, NULL, flags);
    if (fd < 0) {
        if (!fd_reserve_needed(errno))
            return fd;
        fd_reserve_turn_away(&g->reserve, g->listener);
        return nobody(&g->shed);
    }
    struct ucred who;
    socklen_t n = sizeof who;
    if (is_dead(fd)) { /* it must not take a place */
        (void)bare_close(fd);
        errno = ECONNABORTED;
        return -1;
    }
    bool fits = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0;
    if (fits) {
        pthread_mutex_lock(&g->lock);
        fits = conn_open(g, fd, who.uid);
        pthread_mutex_unlock(&g->lock);
    }
    if (fits)
        return fd;
    (void)bare_close(fd);
    return nobody(&g->refused);
}

struct reading {
    struct front_limiter *g;
    struct conn *c;
    bool refused;
};

/* The connection has named its route. Accepts it if the route is of a session of the same uid that
 * has no connection, and of which no request of an earlier connection is still queued. */
static int on_ready(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    struct reading *r = ctx;
    struct front_limiter *g = r->g;
    pthread_mutex_lock(&g->lock);
    struct peer *p = peer_of(g, route);
    if (p && !p->conn && p->in == 0 && p->uid == g->uids[r->c->uid_no].uid) {
        g->uids[r->c->uid_no].greeting--;
        p->conn = r->c;
        front_limiter_await(g, p, -1);
        atomic_store(&r->c->peer, p);
    } else {
        r->refused = true;
    }
    pthread_mutex_unlock(&g->lock);
    return r->refused ? -EACCES : 0;
}

/* Counts `queued` bytes of complete messages. A large message in progress needs room for the bytes
 * that it has announced. */
static void charge(struct front_limiter *g, struct conn *c, uint64_t queued)
{
    pthread_mutex_lock(&g->lock);
    struct peer *p = atomic_load(&c->peer);
    if (p) {
        const uint64_t begun = c->zmtp.bytes > QUEUED_EACH ? c->zmtp.bytes : 0;
        p->in += queued;
        g->in += queued;
        if (queued > 0) { /* the message that was in progress is complete */
            g->large -= c->large;
            c->large = 0;
        }
        if (begun > c->large)
            atomic_store(&c->wanted, begun - c->large);
    }
    pthread_mutex_unlock(&g->lock);
}

/* Returns whether the connection must not be read now. Then EPOLLIN is masked out until let_read(),
 * as ZeroMQ, whose events are level-triggered, would ask again at once. A connection whose peer has
 * hung up is not held. */
static bool front_limiter_hold(struct front_limiter *g, struct conn *c)
{
    struct pollfd end = {.fd = c->fd};
    bool held = false;
    pthread_mutex_lock(&g->lock);
    struct peer *p = atomic_load(&c->peer);
    if (p && may_read(g, c, p)) {
        if (c->wanted > 0)
            go_on(g, c);
    } else if (p && poll(&end, 1, 0) == 0) {
        held = true;
        g->nheld += !c->held;
        c->held = true;
        listen_to(c, false);
        front_limiter_count(&g->paused);
    }
    pthread_mutex_unlock(&g->lock);
    return held;
}

static ssize_t limiter_recv(struct front_limiter *g, struct conn *c, void *buf, size_t cap,
                            int flags)
{
    struct peer *p = atomic_load_explicit(&c->peer, memory_order_acquire);
    struct reading r = {.g = g, .c = c};
    uint64_t queued = 0;
    if (p && (c->wanted > 0 || front_limiter_is_full(&p->in, &g->in)) && front_limiter_hold(g, c)) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t n = syscall(SYS_recvfrom, c->fd, buf, cap, flags, NULL, NULL);
    if (n <= 0)
        return n;
    if (zmtp_scan(&c->zmtp, &g->rules, &r, buf, (size_t)n, &queued) != 0) {
        front_limiter_count(r.refused ? &g->refused : &g->cut);
        errno = ECONNRESET;
        return -1;
    }
    if (queued > 0 || c->zmtp.bytes > QUEUED_EACH)
        charge(g, c, queued);
    return n;
}

/* Remembers the event mask that ZeroMQ sets; while the connection is held, EPOLLIN stays masked. */
static int limiter_epoll_ctl(struct front_limiter *g, struct conn *c, int epoll_fd, int op,
                             struct epoll_event *event)
{
    pthread_mutex_lock(&g->lock);
    struct epoll_event e = event ? *event : (struct epoll_event){0};
    if (c->held)
        e.events &= ~(uint32_t)EPOLLIN;
    int rc = (int)syscall(SYS_epoll_ctl, epoll_fd, op, c->fd, event ? &e : NULL);
    if (rc == 0) {
        c->epoll_fd = op == EPOLL_CTL_DEL ? -1 : epoll_fd;
        if (event)
            c->event = *event;
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* Bytes written include a few bytes of framing per message, so a backlog counts as slightly smaller
 * than it is; at 0 the count is exact again. */
static void sent(struct front_limiter *g, struct conn *c, uint64_t bytes)
{
    pthread_mutex_lock(&g->lock);
    struct peer *p = atomic_load(&c->peer);
    if (p) {
        uint64_t n = MIN(bytes, p->out);
        p->out -= n;
        g->out -= n;
    }
    pthread_mutex_unlock(&g->lock);
}

/* ---- in place of libc's, for every caller in the process ---- */

#define IN_PLACE_OF_LIBC __attribute__((visibility("default")))

IN_PLACE_OF_LIBC int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
    if (fd < 0 || fd != atomic_load_explicit(&listener_fd, memory_order_acquire))
        return (int)syscall(SYS_accept4, fd, addr, len, flags);
    return limiter_accept(atomic_load_explicit(&the_limiter, memory_order_acquire), flags);
}

IN_PLACE_OF_LIBC ssize_t recv(int fd, void *buf, size_t n, int flags)
{
    struct front_limiter *g;
    struct conn *c = conn_of_fd(fd, &g);
    return c ? limiter_recv(g, c, buf, n, flags)
             : syscall(SYS_recvfrom, fd, buf, n, flags, NULL, NULL);
}

IN_PLACE_OF_LIBC int epoll_ctl(int epoll_fd, int op, int fd, struct epoll_event *event)
{
    struct front_limiter *g;
    struct conn *c = conn_of_fd(fd, &g);
    return c ? limiter_epoll_ctl(g, c, epoll_fd, op, event)
             : (int)syscall(SYS_epoll_ctl, epoll_fd, op, fd, event);
}

IN_PLACE_OF_LIBC ssize_t send(int fd, const void *buf, size_t n, int flags)
{
    struct front_limiter *g;
    struct conn *c = conn_of_fd(fd, &g);
    ssize_t done = syscall(SYS_sendto, fd, buf, n, flags, NULL, 0);
    if (c && done > 0)
        sent(g, c, (uint64_t)done);
    return done;
}

IN_PLACE_OF_LIBC int close(int fd)
{
    struct front_limiter *g;
    struct conn *c = conn_of_fd(fd, &g);
    if (!c)
        return bare_close(fd);
    pthread_mutex_lock(&g->lock);
    conn_gone(g, c);
    int rc = bare_close(fd); /* under the lock, so that no shutdown() meets another file's number */
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- create, destroy ---- */

static int make_tables(struct front_limiter *g, const struct front_limiter_config *cfg)
{
    const uint32_t conns = front_limiter_descriptors(cfg->peers_max, cfg->nuids);
    if (conns > UINT16_MAX)
        return -EINVAL;
    g->peers = sys_calloc(cfg->peers_max, sizeof *g->peers);
    g->uids = sys_calloc(MAX(cfg->nuids, 1u), sizeof *g->uids);
    g->conns = sys_calloc(conns, sizeof *g->conns);
    if (!g->peers || !g->uids || !g->conns)
        return -ENOMEM;
    for (uint32_t i = 0; i < cfg->nuids; i++)
        g->uids[i].uid = cfg->uids[i];
    for (uint32_t i = conns; i-- > 0; g->free = &g->conns[i])
        g->conns[i].next_free = g->free;
    return 0;
}

int front_limiter_create(const struct front_limiter_config *config, int listener,
                         struct front_limiter **ret_limiter)
{
    if (atomic_load(&the_limiter))
        return -EBUSY;
    struct front_limiter *g = sys_calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    (void)mallopt(M_MMAP_THRESHOLD, MAPPED_FROM); /* fails with a sanitizer's allocator */
    g->listener = listener;
    g->reserve.fd = -1;
    g->peers_max = config->peers_max;
    g->nuids = config->nuids;
    g->rules = (struct zmtp_rules){
        .message_max = config->message_max, .frames_max = FRAMES_MAX, .ready = on_ready};
    (void)pthread_mutex_init(&g->lock, NULL); /* default attributes: cannot fail with glibc */
    int err = make_tables(g, config);
    if (!err)
        err = fd_reserve_open(&g->reserve);
    if (err) {
        front_limiter_destroy(&g);
        return err;
    }
    atomic_store_explicit(&the_limiter, g, memory_order_release);
    atomic_store_explicit(&listener_fd, listener, memory_order_release);
    *ret_limiter = g;
    return 0;
}

void front_limiter_destroy(struct front_limiter **limiter)
{
    struct front_limiter *g = *limiter;
    if (!g)
        return;
    if (atomic_load(&the_limiter) == g) {
        atomic_store(&listener_fd, -1);
        atomic_store(&the_limiter, NULL);
    }
    fd_reserve_close(&g->reserve);
    (void)pthread_mutex_destroy(&g->lock);
    free(g->peers);
    free(g->uids);
    free(g->conns);
    free(g);
    *limiter = NULL;
}
