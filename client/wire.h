/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: a ZeroMQ DEALER in a context of its own. wire.c alone includes <zmq.h>.
 *
 * Threads: one at a time, the session's. A foreign error is translated to a negative errno here.
 */
#ifndef KVC_CLIENT_WIRE_H
#define KVC_CLIENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

/* How long wire__recv(.., true, ..) sleeps on this socket alone. Most replies come sooner, and cost
 * what a bare ZeroMQ reply costs; after it the caller watches the attach channel too, so this is
 * also how late a daemon's death can be noticed. */
#define WIRE_NAP_MS 2

struct wire {
    void *ctx;
    void *sock; /* NULL while disconnected */
    int fd;     /* readable on news; edge-triggered: poll it only after wire__recv returned 0 */
    bool
        quiet; /* ZeroMQ said that there is nothing, and was not called since: `fd` tells of more */
};

/* A received message. Zeroed = none. Not movable by assignment: the bytes may be inside. */
struct wire_msg {
    _Alignas(8) unsigned char opaque[64];
    const void *data;
    size_t len; /* bytes */
    bool full;
};

__attribute__((warn_unused_result)) int wire__init(struct wire *w);
/* Closes at once, dropping what is unsent. */
void wire__destroy(struct wire *w);
/* Replaces the socket. Connecting goes on in the background. */
__attribute__((warn_unused_result)) int wire__connect(struct wire *w, const char *endpoint,
                                                      const uint8_t route[KVC_ROUTE_BYTES]);
void wire__disconnect(struct wire *w);
/* Copies the bytes; never blocks. -EAGAIN: the queue is full, or the connection is gone. */
__attribute__((warn_unused_result)) int wire__send(struct wire *w, const void *buf, size_t len);
/* The same for a message, which stays as it is. */
__attribute__((warn_unused_result)) int wire__send_msg(struct wire *w, struct wire_msg *msg);
/* Whether a message is there or the connection has ended: asking took that from `fd`. Whatever it
 * says, `fd` becomes readable with the next message. */
bool wire__has_news(struct wire *w);
/* Whether no reply will ever come: the connection has ended, or thousands of requests wait to be
 * taken, and all replies were received. `quiet` is news after it. */
bool wire__is_cut(struct wire *w);
/* 1 = *ret_msg holds a message, 0 = none (yet), -EPROTO for one of several parts, other errno.
 * *ret_msg must be empty. */
__attribute__((warn_unused_result)) int wire__recv(struct wire *w, bool nap,
                                                   struct wire_msg *ret_msg);
/* Makes a message of a copy of the bytes. *ret_msg must be empty. -ENOMEM. */
__attribute__((warn_unused_result)) int wire__msg_make(struct wire_msg *ret_msg, const void *buf,
                                                       size_t len);
/* Moves the message to an empty one. */
void wire__msg_move(struct wire_msg *to, struct wire_msg *from);
/* Frees the message, if there is one. */
void wire__msg_free(struct wire_msg *msg);

#endif
