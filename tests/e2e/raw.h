/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker without the library: attach socket, DEALER and codec. So it can do what the library
 * never does, and count each reply. No function fails the test; results say what happened.
 */
#ifndef KVC_TEST_RAW_H
#define KVC_TEST_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec.h"

struct raw {
    int attach;     /* -1: closed */
    int staging_fd; /* -1: none */
    void *ctx, *sock;
    uint64_t corr;
    uint8_t route[KVC_ROUTE_BYTES];
    uint8_t buf[KVC_MESSAGE_MAX]; /* messages are encoded and received here */
};

/* Attaches and sends HELLO. rcvhwm: most unread replies; 0 = no limit. 0, or negative: an errno,
 * or, from -1000 downwards, a refusal by the daemon. */
int raw_open(struct raw *r, const char *socket, uint64_t staging_bytes, int rcvhwm);
void raw_close(struct raw *r);
/* Makes a head with a new correlation id. */
struct msg_head raw_head(struct raw *r, uint8_t op, uint32_t deadline_ms);
/* Sends `len` bytes of r->buf. false: the socket takes no more now, or len is an encoder's error.
 */
bool raw_send(struct raw *r, int len);
/* Receives the next reply into r->buf. Returns its length, or 0: none came in time. */
int raw_recv(struct raw *r, unsigned timeout_ms);
/* Sends on the attach connection. 0 or -errno. */
int raw_tell(struct raw *r, const void *buf, size_t len);
/* Receives the next attach message. Its length; 0: none came in time; -1: the connection has ended.
 * A descriptor that comes with it is closed. */
int raw_news(struct raw *r, uint8_t buf[KVC_ATTACH_MAX], unsigned timeout_ms);

#endif
