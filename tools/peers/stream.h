/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's end of a unix stream socket that carries lines and blocks. A block is sent from its
 * place by one system call, and received into its place. So a peer behind such a socket pays for no
 * copies but the kernel's and its own. One thread. Functions return 0, or BENCH_FAILED after
 * printing what is wrong.
 */
#ifndef STREAM_H
#define STREAM_H

#include <stddef.h>
#include <sys/uio.h>

#include "bench.h"

struct stream {
    int fd; /* -1 = closed */
    const char *peer;
    size_t at, end; /* the bytes of `buffer` that were received and not yet taken */
    /* Small, because block bytes that are read behind a line are copied once more. */
    char buffer[512];
};

/* Connects. Borrows `peer`, a name for messages. */
BENCH_MUST_USE int stream_open(const char *path, const char *peer, struct stream *ret_stream);
void stream_close(struct stream *stream);
/* Sends all parts; changes `parts`. */
BENCH_MUST_USE int stream_send(struct stream *stream, struct iovec *parts, int n);
/* Receives one line, without its end, as a string. A line that is too long is an error. */
BENCH_MUST_USE int stream_line(struct stream *stream, char *ret_line, size_t size);
BENCH_MUST_USE int stream_bytes(struct stream *stream, void *ret_bytes, size_t n);

#endif
