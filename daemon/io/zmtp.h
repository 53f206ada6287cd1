/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zmtp: scans the bytes of one incoming connection of the control socket, and reports bytes that no
 * worker of ours would send. It keeps no payload; ZeroMQ decodes the same bytes.
 *
 * What passes (ZMTP 3, https://rfc.zeromq.org/spec/23/): a greeting of version 3 or later; as
 * first command one READY, with one Socket-Type and one Identity, spelled so, which is a route
 * (properties of other names may stand beside them); then messages of at most message_max bytes in
 * at most frames_max frames, with PING and PONG between them. Refused: unversioned greetings and
 * those of versions 1 and 2, other commands, a second READY, and more frames or bytes than these.
 *
 * Threads: none of its own; a struct zmtp belongs to one thread. Allocates nothing.
 */
#ifndef KVC_IO_ZMTP_H
#define KVC_IO_ZMTP_H

#include <stddef.h>
#include <stdint.h>

#include <kvcache/proto.h>

#include "err.h"

#define ZMTP_READY_MAX 512u /* bytes of a READY command; libzmq's own has about 60 */
#define ZMTP_PING_MAX  64u  /* bytes of a command after that */

struct zmtp_rules {
    uint64_t message_max; /* bytes of one message, all frames */
    uint32_t frames_max;  /* of one message */
    /* Called once per connection, when the peer has named its route. Negative: the connection is to
     * be closed. */
    int (*ready)(void *ctx, const uint8_t route[KVC_ROUTE_BYTES]);
};

/* All zero at first; private to zmtp.c, but for `bytes`. */
struct zmtp {
    uint64_t left;  /* bytes of the frame's body that are still to come */
    uint64_t bytes; /* of the message in progress, as its frames' heads have announced */
    uint32_t frames;
    uint32_t kept; /* bytes in `command` */
    uint8_t phase;
    uint8_t have; /* bytes of the greeting or of the frame's head */
    uint8_t flags;
    bool ready;
    uint8_t head[9];
    uint8_t command[ZMTP_READY_MAX];
};

/* The next n bytes of the connection. Adds the bytes of messages that are now complete to *queued.
 * Negative: the connection is to be closed (-EPROTO, -EMSGSIZE, or what ready() returned), and
 * nothing more of it may be given. */
KVC_WARN_UNUSED int zmtp_scan(struct zmtp *z, const struct zmtp_rules *rules, void *ctx,
                              const uint8_t *p, size_t n, uint64_t *queued);

#endif
