/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach: the unix socket (SOCK_SEQPACKET) through which workers get descriptors. A worker's
 * session lives as long as its connection.
 *
 * Thread: control thread. A connection ends when its peer closes it or its process is gone, also
 * when a child of that process still holds the socket (the peer's pidfd is watched beside it).
 */
#ifndef KVC_IO_ATTACH_H
#define KVC_IO_ATTACH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"
#include "loop.h"

struct attach;

struct attach_handlers {
    void *ctx;
    /* Negative: the connection is refused and closed, closed() does not follow. */
    int (*opened)(void *ctx, uint32_t conn, uid_t uid, pid_t pid);
    /* *fd: the descriptor that came with the message; -1: none came, or several. If *fd still names
     * a descriptor on return, it is closed. */
    void (*message)(void *ctx, uint32_t conn, const void *buf, size_t len, int *fd);
    /* The connection is gone; `conn` may be used again for another. */
    void (*closed)(void *ctx, uint32_t conn);
};

struct attach_config {
    const char *path; /* of the socket; an old file is removed, a live listener is -EADDRINUSE */
    unsigned mode;
    uint32_t conns_max;
};

/* Each connection takes two watches of the loop. Errors are logged here. */
KVC_WARN_UNUSED int attach_create(const struct attach_config *config, struct loop *loop,
                                  const struct attach_handlers *handlers,
                                  struct attach **ret_attach);
/* Closes all connections without calling closed(). */
void attach_destroy(struct attach **attach);
/* One datagram, with a descriptor unless fd is -1. Never blocks: -EAGAIN when the peer does not
 * read, -EPIPE when it is gone. */
KVC_WARN_UNUSED int attach_send(struct attach *a, uint32_t conn, const void *buf, size_t len,
                                int fd);
/* Closes the connection; closed() does not follow. Messages sent before still reach the peer. */
void attach_close(struct attach *a, uint32_t conn);
/* Accepts no new connections from now on. */
void attach_stop(struct attach *a);

#endif
