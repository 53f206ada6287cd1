/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach channel's socket: datagrams, at most one descriptor each, close-on-exec. What the
 * datagrams say is codec.h's business.
 */
#ifndef KVC_CLIENT_CHANNEL_H
#define KVC_CLIENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a non-blocking connected socket, owned. -ENAMETOOLONG, or as socket(2), connect(2). */
__attribute__((warn_unused_result)) int channel__connect(const char *path);
/* pass: a descriptor to go along, which stays the caller's, or -1. 0, -EAGAIN (its queue is full),
 * another errno. */
__attribute__((warn_unused_result)) int channel__send(int fd, const void *buf, size_t len,
                                                      int pass);
/* Length of one datagram, 0 = none there, -EPIPE = the daemon is gone, -EPROTO = longer than cap,
 * or more than one descriptor. *ret_passed: an owned descriptor, or -1; set on success only. */
__attribute__((warn_unused_result)) int channel__recv(int fd, void *buf, size_t cap,
                                                      int *ret_passed);
/* Whether its other end is closed, whatever is still to be read. Takes nothing from it. */
bool channel__is_hung_up(int fd);
/* Ends the connection, also for copies of the descriptor elsewhere. Sets *fd to -1; accepts -1. */
void channel__close(int *fd);

#endif
