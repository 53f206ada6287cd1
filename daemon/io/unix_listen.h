/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unix_listen: a unix socket at a path of ours, where a daemon that was killed may have left one.
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
/* A socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) that listens there and does not block. A socket
 * file that nobody listens on is replaced; where the one that listened has just been killed, its
 * end is waited for, up to 5 s. -EADDRINUSE: somebody listens there; -EEXIST: a file that is no
 * socket; or what the kernel answered: then no file of ours stays. */
KVC_WARN_UNUSED int unix_listen(int type, const struct sockaddr_un *addr, mode_t mode, int backlog,
                                int *ret_fd);

#endif
