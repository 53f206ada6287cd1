/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's end of a unix stream socket with lines and blocks on it. Blocks go out with one system
 * call from where they lie and come in to where they shall lie, so that a peer that is reached
 * through it pays for no copy but those of the kernel and its own. One thread.
 * Functions return 0 or BENCH_FAILED after saying what is wrong.
 */
#ifndef STREAM_H
#define STREAM_H

#include <stddef.h>
#include <sys/uio.h>

#include "bench.h"

struct stream {
    int fd; /* -1 = closed */
    const char *peer;
    size_t at, end;   /* of what has been received and not been taken */
    char buffer[512]; /* small: what is read past a line is copied once more */
};

/* Borrows `peer`, a name for messages. */
BENCH_MUST_USE int stream_open(const char *path, const char *peer, struct stream *ret_stream);
void stream_close(struct stream *stream);
/* Sends all; uses up `parts`. */
BENCH_MUST_USE int stream_send(struct stream *stream, struct iovec *parts, int n);
/* One line, without its end, as a string; too long a line is an error. */
BENCH_MUST_USE int stream_line(struct stream *stream, char *ret_line, size_t size);
BENCH_MUST_USE int stream_bytes(struct stream *stream, void *ret_bytes, size_t n);

#endif
