/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that keeps no rule: the attach channel and the control socket byte by byte, without
 * libkvcache and without libzmq. What the daemon would never be sent by ours can be sent from here.
 *
 * Functions that receive wait for a long time at most (a loaded machine) and fail the test after
 * it; a closed connection is a result, not a failure.
 */
#ifndef KVC_TEST_PEER_H
#define KVC_TEST_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec.h"
#include "rig.h"

#define PEER_CLOSED (-1)

struct peer {
    const struct rig *rig;
    int attach, control; /* -1: none */
    uint16_t status;     /* of WELCOME */
    uint8_t route[KVC_ROUTE_BYTES];
    uint64_t staging_bytes;
    int staging_fd;
    uint8_t *staging;
    uint64_t corr;
};

/* ---- attach ---- */

/* A bare connection; -1 when it is refused. */
int peer_attach_socket(const struct rig *r);
/* One datagram. Its length, or PEER_CLOSED; *ret_fd is what came with it, or -1. */
int peer_datagram(int attach, uint8_t buf[KVC_ATTACH_MAX], int *ret_fd);
/* Connects and says HELLO; the status of WELCOME (p->status), PEER_CLOSED when there was none. */
int peer_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
               uint64_t staging_bytes);
/* The two halves of it; false: the connection is refused. */
bool peer_say_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
                    uint64_t staging_bytes);
int peer_welcome(struct peer *p);
/* All of it: HELLO, control connection, control HELLO. Fails the test when one does not work. */
void peer_open(struct peer *p, const struct rig *r, uint64_t staging_bytes);
/* Its last part, on p->control, which is connected. */
void peer_open_control(struct peer *p);
/* Whatever is open. */
void peer_close(struct peer *p);
/* The descriptor of a chunk, or minus the status. */
int peer_map(struct peer *p, uint32_t chunk);

/* ---- control ---- */

int peer_control_socket(const struct rig *r); /* a bare connection; -1 */
/* Greeting and READY with this route (`n` bytes, at most 255), and the daemon's. The connection may
 * be closed by then: see peer_is_cut(). */
void peer_greet(int control, const void *route, size_t n);
/* Writes all of it, or as much as the daemon takes before it closes; false when it closed. */
bool peer_write(int control, const void *buf, size_t n);
/* A frame's head and its body. flags: 1 more, 2 long (chosen by itself), 4 command. */
bool peer_frame(int control, uint8_t flags, const void *buf, size_t n);
/* The daemon closes the connection (after whatever it still sends). */
bool peer_is_cut(int control);
/* The next message, skipping commands; its length or PEER_CLOSED. */
int peer_message(int control, uint8_t *buf, size_t cap);

/* ---- requests ---- */

struct msg_head peer_head(struct peer *p, uint8_t op);
/* Sends what was encoded into `buf` and waits for the reply to head.corr, which lands in `buf`.
 * Returns its status, or PEER_CLOSED; *ret_len is the reply's length. */
int peer_ask(struct peer *p, const struct msg_head *head, uint8_t *buf, int len, int *ret_len);
int peer_ping(struct peer *p); /* the status */
/* Opens a namespace like rig_ns() does. The status. */
int peer_ns(struct peer *p, const char *model, uint32_t block_tokens, uint32_t block_bytes,
            uint32_t *ret_ns, uint8_t ret_seed[KVC_KEY_BYTES]);
/* Keys of a chain below `seed`, as rig_keys() makes them. */
void peer_keys(const uint8_t *seed, uint32_t chain, uint32_t block_tokens, uint32_t n,
               uint8_t *keys);
/* The request, without the reply. `statuses` may be NULL. Returns the status. */
int peer_store(struct peer *p, const struct msg_store *msg, uint8_t *statuses);
int peer_reserve(struct peer *p, const struct msg_reserve *msg, uint64_t *ret_reservation,
                 uint8_t *statuses);
int peer_acquire(struct peer *p, const struct msg_acquire *msg, uint64_t *ret_lease,
                 struct msg_loc *ret_first);

/* ---- the daemon, seen from outside ---- */

unsigned daemon_descriptors(const struct rig *r);
uint64_t daemon_rss_bytes(const struct rig *r);
bool daemon_lives(const struct rig *r);

#endif
