/* SPDX-License-Identifier: Apache-2.0 */
/*
 * front_limiter: stands between ZeroMQ and the kernel on the control socket.
 *
 * libzmq calls accept4(), recv(), send(), epoll_ctl() and close() through the dynamic linker, and a
 * definition in the program is found before libc's. front_limiter.c defines them: for every
 * descriptor that is not one of the control socket's they are the bare system calls.
 * docs/notes/io-front.md says why, and what each of them does for the control socket's.
 *
 * Threads: create, destroy, admit, dismiss and the accounts belong to the control thread; the
 * defined functions run on ZeroMQ's I/O thread. One mutex between them, never held across a call of
 * the kernel that can wait. One limiter per process. Nothing is allocated after create.
 */
#ifndef KVC_IO_FRONT_LIMITER_H
#define KVC_IO_FRONT_LIMITER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvcache/proto.h>

#include "err.h"

struct front_limiter;

struct front_limiter_config {
    uint32_t peers_max;   /* sessions: routes that may speak at one time */
    const uint32_t *uids; /* who may connect; copied */
    uint32_t nuids;
    uint64_t message_max;
};

/* Since start. */
struct front_limiter_stats {
    uint64_t refused; /* connections turned away: rights, too many, no such session */
    uint64_t cut;     /* connections ended because of what they sent */
    uint64_t shed;    /* newcomers turned away because no descriptor was left */
    uint64_t paused;  /* reads put off because the peer's requests wait to be handled */
};

/* Guards connections that are accepted from `listener` from now on. -ENOMEM, -EMFILE; -EBUSY: the
 * process has a limiter. */
KVC_WARN_UNUSED int front_limiter_create(const struct front_limiter_config *config, int listener,
                                         struct front_limiter **ret_limiter);
/* After ZeroMQ's context has ended. Accepts NULL. */
void front_limiter_destroy(struct front_limiter **limiter);
/* Bytes that requests and replies queued in ZeroMQ can take: for the memory budget. */
uint64_t front_limiter_bytes(uint32_t peers_max);
/* Descriptors that connections can take. */
uint32_t front_limiter_descriptors(uint32_t peers_max, uint32_t nuids);

/* From now on a process of `uid` may connect with this route. Bytes 1 and 2 of a route (the lower
 * first) are a number below peers_max that no other admitted route has (MUST). */
void front_limiter_admit(struct front_limiter *g, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid);
/* The route is not admitted any more, and its connection is ended. Ignores a route that is not
 * admitted. */
void front_limiter_dismiss(struct front_limiter *g, const uint8_t route[KVC_ROUTE_BYTES]);

/* Call it when a request of this route was taken off ZeroMQ's queue. -EPROTO: no connection that
 * named this route has sent so many bytes, so another peer sent the request: drop it unanswered. */
KVC_WARN_UNUSED int front_limiter_taken(struct front_limiter *g, const void *route,
                                        size_t route_len, uint64_t bytes);
/* Call it before a reply is given to ZeroMQ. -EAGAIN: too many bytes wait for this peer to read
 * them; -EHOSTUNREACH: the route is not admitted, or not connected. On failure nothing may be sent.
 */
KVC_WARN_UNUSED int front_limiter_sending(struct front_limiter *g, const void *route,
                                          size_t route_len, uint64_t bytes);

/* Whether so many bytes wait for this peer to read that none of its requests should be begun: half
 * of what front_limiter_sending() takes. The other half is for replies to requests begun before. */
bool front_limiter_backlogged(struct front_limiter *g, const void *route, size_t route_len);
/* What was announced with front_limiter_sending() was not sent after all. */
void front_limiter_unsent(struct front_limiter *g, const void *route, size_t route_len,
                          uint64_t bytes);
/* Call it at least once a second. While other peers wait for room, it ends connections whose large
 * message has been in progress for too long. */
void front_limiter_tick(struct front_limiter *g, uint64_t now_ns);

void front_limiter_stats(struct front_limiter *g, struct front_limiter_stats *ret_stats);

#endif
