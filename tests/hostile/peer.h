/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that breaks every rule: it writes the attach channel and the control socket byte by
 * byte, without libkvcache and libzmq. So it can send what those never send.
 *
 * Functions that receive wait for long (the machine may be loaded), and then fail the test. A
 * closed connection is a result, not a failure.
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
    uint16_t status;     /* the status of WELCOME */
    uint8_t route[KVC_ROUTE_BYTES];
    uint64_t staging_bytes;
    int staging_fd;
    uint8_t *staging;
    uint64_t corr;
};

/* ---- attach ---- */

/* Connects only; -1: the connection is refused. */
int peer_attach_socket(const struct rig *r);
/* Receives one datagram. Its length, or PEER_CLOSED; *ret_fd: the descriptor that came with it, or
 * -1. */
int peer_datagram(int attach, uint8_t buf[KVC_ATTACH_MAX], int *ret_fd);
/* Connects and sends HELLO. The status of WELCOME, which is p->status too; PEER_CLOSED: none came.
 */
int peer_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
               uint64_t staging_bytes);
/* The two halves of peer_hello(). false: the connection is refused. */
bool peer_say_hello(struct peer *p, const struct rig *r, uint32_t ver_min, uint32_t ver_max,
                    uint64_t staging_bytes);
int peer_welcome(struct peer *p);
/* HELLO, control connection and control HELLO. Fails the test if one of them fails. */
void peer_open(struct peer *p, const struct rig *r, uint64_t staging_bytes);
/* The last part of peer_open(), on p->control, which is connected. */
void peer_open_control(struct peer *p);
/* Closes whatever is open. */
void peer_close(struct peer *p);
/* The descriptor of a chunk, or a negative status. */
int peer_map(struct peer *p, uint32_t chunk);

/* ---- control ---- */

int peer_control_socket(const struct rig *r); /* connects only; -1: refused */
/* Sends the greeting and READY with this route (`n` bytes, at most 255), and receives the daemon's.
 * The daemon may have closed the connection then: see peer_is_cut(). */
void peer_greet(int control, const void *route, size_t n);
/* Writes until the daemon has taken all, or closes; false: it closed. */
bool peer_write(int control, const void *buf, size_t n);
/* Sends a frame, head and body. flags: 1 more, 2 long (set by itself), 4 command. */
bool peer_frame(int control, uint8_t flags, const void *buf, size_t n);
/* Whether the daemon closes the connection; what it sends before that is skipped. */
bool peer_is_cut(int control);
/* Receives the next message and skips commands. Its length, or PEER_CLOSED. */
int peer_message(int control, uint8_t *buf, size_t cap);

/* ---- requests ---- */

struct msg_head peer_head(struct peer *p, uint8_t op);
/* Sends the request that was encoded into `buf` and waits for the reply to head.corr, which
 * replaces it in `buf`. Returns the reply's status, or PEER_CLOSED; *ret_len: its length. */
int peer_ask(struct peer *p, const struct msg_head *head, uint8_t *buf, int len, int *ret_len);
int peer_ping(struct peer *p); /* the status */
/* Opens a namespace like that of rig_ns(). Returns the status. */
int peer_ns(struct peer *p, const char *model, uint32_t block_tokens, uint32_t block_bytes,
            uint32_t *ret_ns, uint8_t ret_seed[KVC_KEY_BYTES]);
/* Makes the keys of a chain under `seed`, as rig_keys() does. */
void peer_keys(const uint8_t *seed, uint32_t chain, uint32_t block_tokens, uint32_t n,
               uint8_t *keys);
/* Each sends one request and waits for its reply. `statuses` may be NULL. Returns the reply's
 * status. */
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
