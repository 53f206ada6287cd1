/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unix_listen: makes a unix socket at a path where a daemon that was killed may have left one.
 *
 * Thread: any.
 */
#ifndef KVC_IO_UNIX_LISTEN_H
#define KVC_IO_UNIX_LISTEN_H

#include <sys/types.h>
#include <sys/un.h>

#include "err.h"

/* The address of that path, or -ENAMETOOLONG. */
KVC_WARN_UNUSED int unix_address(const char *path, struct sockaddr_un *ret_addr);
/* Makes a non-blocking socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) that listens there. Replaces
 * a socket file on which no process listens; waits up to 5 s for the end of a listener that was
 * just killed. -EADDRINUSE: a process listens there; -EEXIST: the file is no socket; or the
 * kernel's errno. On failure no file of ours stays. */
KVC_WARN_UNUSED int unix_listen(int type, const struct sockaddr_un *addr, mode_t mode, int backlog,
                                int *ret_fd);

#endif
