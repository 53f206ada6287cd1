/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker by hand: attach socket, DEALER and codec without the library, so that it can do what the
 * library never would and count each reply. Nothing here fails the test; results say what happened.
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
    uint8_t buf[KVC_MESSAGE_MAX]; /* what is sent from, and received into */
};

/* Attaches and greets. rcvhwm: replies that may wait here unread, 0 = as many as come. 0, or
 * negative: errno, or -1000 and below: the refusal of the daemon. */
int raw_open(struct raw *r, const char *socket, uint64_t staging_bytes, int rcvhwm);
void raw_close(struct raw *r);
/* A head with a new correlation id. */
struct msg_head raw_head(struct raw *r, uint8_t op, uint32_t deadline_ms);
/* Sends `len` bytes of r->buf; false: it takes no more just now, or len is an encoder's error. */
bool raw_send(struct raw *r, int len);
/* The next reply, into r->buf: its length, or 0 when none came within the time. */
int raw_recv(struct raw *r, unsigned timeout_ms);
/* Sends on the attach connection; -errno. */
int raw_tell(struct raw *r, const void *buf, size_t len);
/* The next attach message: its length, 0: none within the time, -1: the connection has ended. A
 * descriptor that comes with it is closed. */
int raw_news(struct raw *r, uint8_t buf[KVC_ATTACH_MAX], unsigned timeout_ms);

#endif
