/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: a ZeroMQ DEALER in a context of its own. wire.c alone includes <zmq.h>, and
 * translates ZeroMQ's errors to negative errnos.
 *
 * Threads: one at a time, the session's.
 */
#ifndef KVC_CLIENT_WIRE_H
#define KVC_CLIENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

/* How long wire__recv(.., true, ..) sleeps on this socket alone. Most replies come sooner, and cost
 * no more than a bare ZeroMQ reply. After the nap the caller watches the attach channel too, so it
 * notices a daemon's death at most so late. */
#define WIRE_NAP_MS 2

struct wire {
    void *ctx;
    void *sock; /* NULL while disconnected */
    int fd; /* becomes readable on news; edge-triggered: poll it only after wire__recv returned 0 */
    /* ZeroMQ had no message, and was not called since: `fd` becomes readable with the next one. */
    bool quiet;
};

/* A message; all zero = none. wire__msg_move() moves it; an assignment would not, because `data`
 * may point into `opaque`. */
struct wire_msg {
    _Alignas(8) unsigned char opaque[64]; /* a zmq_msg_t */
    const void *data;
    size_t len; /* bytes */
    bool full;  /* there is a message, which wire__msg_free() frees */
};

__attribute__((warn_unused_result)) int wire__init(struct wire *w);
/* Closes socket and context at once. Messages that were not sent yet are lost. */
void wire__destroy(struct wire *w);
/* Replaces the socket by one that connects to `endpoint` in the background. */
__attribute__((warn_unused_result)) int wire__connect(struct wire *w, const char *endpoint,
                                                      const uint8_t route[KVC_ROUTE_BYTES]);
void wire__disconnect(struct wire *w);
/* Copies the bytes; never blocks. -EAGAIN: the queue is full, or the connection is gone. */
__attribute__((warn_unused_result)) int wire__send(struct wire *w, const void *buf, size_t len);
/* The same for a message, which the caller keeps unchanged. */
__attribute__((warn_unused_result)) int wire__send_msg(struct wire *w, struct wire_msg *msg);
/* Whether a message is there, or the connection has ended. The call resets `fd`: it becomes
 * readable again only with the next message. */
bool wire__has_news(struct wire *w);
/* Whether no reply will ever come: all replies were received, and either the connection has ended
 * or the queue of unsent requests is full. Sets `quiet` anew. */
bool wire__is_cut(struct wire *w);
/* 1 = *ret_msg holds a message; 0 = none is there (yet); -EPROTO: one of several parts; another
 * errno. *ret_msg must be empty. */
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
