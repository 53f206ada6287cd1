/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach channel's socket: datagrams that carry at most one descriptor each. codec.h encodes
 * and decodes the datagrams. Descriptors are close-on-exec.
 */
#ifndef KVC_CLIENT_CHANNEL_H
#define KVC_CLIENT_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns a non-blocking connected socket, owned. -ENAMETOOLONG, or as socket(2), connect(2). */
__attribute__((warn_unused_result)) int channel__connect(const char *path);
/* Sends one datagram, with the descriptor `pass`, which stays the caller's, or without one (-1). 0;
 * -EAGAIN: the queue is full; another errno. */
__attribute__((warn_unused_result)) int channel__send(int fd, const void *buf, size_t len,
                                                      int pass);
/* Receives one datagram: its length, or 0 = none is there. -EPIPE: the daemon is gone; -EPROTO: the
 * datagram is longer than cap, or has several descriptors; another errno. *ret_passed: its
 * descriptor, which the caller owns, or -1; set on success only. */
__attribute__((warn_unused_result)) int channel__recv(int fd, void *buf, size_t cap,
                                                      int *ret_passed);
/* Whether the daemon's end is closed, even if datagrams are still to be read. Reads nothing. */
bool channel__is_hung_up(int fd);
/* Ends the connection, for copies of the descriptor in other processes too. Sets *fd to -1; accepts
 * -1. */
void channel__close(int *fd);

#endif
