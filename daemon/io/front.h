/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front: the control plane's ROUTER socket; the adapter of ZeroMQ in the daemon.
 *
 * Thread: control thread; ZeroMQ has an I/O thread of its own. The socket's descriptor is
 * edge-triggered: see front_more().
 */
#ifndef KVC_IO_FRONT_H
#define KVC_IO_FRONT_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "front_limiter.h"
#include "sys.h"

struct front;

struct front_config {
    const char *endpoint; /* "ipc:///run/kvcache/control.sock" */
    unsigned mode;        /* of the socket file, 0660 */
    size_t message_max;
    int hwm;              /* messages queued per peer and direction */
    uint32_t peers_max;   /* routes admitted at one time */
    const uint32_t *uids; /* who may connect */
    uint32_t nuids;
    uint32_t kept_max; /* messages that front_keep() can hold */
};

/* One request: route and bytes are borrowed until the callback returns. */
typedef void(front_fn)(void *ctx, const void *route, size_t route_len, const void *buf, size_t len,
                       void *msg);

/* Bytes of memory that the socket takes at most. */
uint64_t front_bytes(uint32_t peers_max);
/* Binds. -EADDRINUSE, -EACCES, -ENAMETOOLONG, ... logged here. */
KVC_WARN_UNUSED int front_create(const struct front_config *config, struct front **ret_front);
void front_destroy(struct front **front);
/* Only admitted routes are heard, each over one connection: front_limiter.h. */
void front_admit(struct front *f, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid);
void front_dismiss(struct front *f, const uint8_t route[KVC_ROUTE_BYTES]);
/* See front_limiter_tick(). */
void front_tick(struct front *f, uint64_t now_ns);
void front_numbers(struct front *f, struct front_limiter_stats *ret_stats);
/* The memory that large messages are sent from, to be faulted in before it is used. */
struct sys_range front_memory(const struct front *f);
/* The descriptor that the loop watches for EPOLLIN. */
int front_fd(const struct front *f);

/* Calls fn with each of up to `max` requests; returns how many. */
unsigned front_receive(struct front *f, unsigned max, front_fn *fn, void *ctx);
/* Whether the socket has, or may have, more. Must be asked after the last receive *and* send of a
 * turn, before waiting: either may have taken the edge that would have woken the loop. */
bool front_more(struct front *f);
/* True: the socket had no message after the last receive and send, and front_fd() has not been
 * ready since (front_woke() is called when it is). Then a turn need not call front_receive() and
 * front_more(). */
bool front_idle(const struct front *f);
void front_woke(struct front *f);
/* Never blocks. 0; -EHOSTUNREACH: no such peer; -EAGAIN: it does not read, or is not connected. */
KVC_WARN_UNUSED int front_send(struct front *f, const void *route, size_t route_len,
                               const void *buf, size_t len);
/* Whether so many bytes wait for the peer to read that none of its requests should be begun: half
 * of what front_send() takes. No event tells when that ends. */
bool front_backlogged(const struct front *f, const void *route, size_t route_len);
/* Keeps the message of the running callback until front_unkeep(). Its bytes are at *ret_buf from
 * now on; more than a few dozen bytes stay where they were. NULL: kept_max messages are kept. */
void *front_keep(struct front *f, void *msg, const void **ret_buf);
void front_unkeep(struct front *f, void *kept);

#endif
