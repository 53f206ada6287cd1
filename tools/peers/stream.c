/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "stream.h"

int stream_open(const char *path, const char *peer, struct stream *ret_stream)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) >=
        sizeof(address.sun_path)) {
        say_error("%s: too long for a socket's path", path);
        return BENCH_FAILED;
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        say_error("%s: connecting to %s: %s", peer, path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return BENCH_FAILED;
    }
    ret_stream->fd = fd;
    ret_stream->peer = peer;
    ret_stream->at = ret_stream->end = 0;
    return 0;
}

void stream_close(struct stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    stream->fd = -1;
}

int stream_send(struct stream *stream, struct iovec *parts, int n)
{
    while (n > 0) {
        ssize_t sent = writev(stream->fd, parts, n);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            say_error("%s: sending: %s", stream->peer, strerror(errno));
            return BENCH_FAILED;
        }
        size_t left = (size_t)sent;
        for (; n > 0 && left >= parts->iov_len; parts++, n--)
            left -= parts->iov_len;
        if (n > 0) {
            parts->iov_base = (char *)parts->iov_base + left;
            parts->iov_len -= left;
        }
    }
    return 0;
}

static int receive(struct stream *stream, void *to, size_t n, int flags, size_t *ret_n)
{
    ssize_t got;
    do
        got = recv(stream->fd, to, n, flags);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        say_error("%s: receiving: %s", stream->peer,
                  got < 0 ? strerror(errno) : "it closed the connection");
        return BENCH_FAILED;
    }
    *ret_n = (size_t)got;
    return 0;
}

int stream_line(struct stream *stream, char *ret_line, size_t size)
{
    size_t n = 0;
    for (;;) {
        if (stream->at == stream->end) {
            stream->at = stream->end = 0;
            int rc = receive(stream, stream->buffer, sizeof(stream->buffer), 0, &stream->end);
            if (rc != 0)
                return rc;
        }
        char c = stream->buffer[stream->at++];
        if (c == '\n')
            break;
        if (n + 1 == size) {
            say_error("%s: a line of more than %zu bytes", stream->peer, size);
            return BENCH_FAILED;
        }
        ret_line[n++] = c;
    }
    if (n > 0 && ret_line[n - 1] == '\r')
        n--;
    ret_line[n] = '\0';
    return 0;
}

int stream_bytes(struct stream *stream, void *ret_bytes, size_t n)
{
    char *to = ret_bytes;
    size_t have = stream->end - stream->at;
    if (have > n)
        have = n;
    memcpy(to, stream->buffer + stream->at, have);
    stream->at += have;
    while (have < n) {
        size_t got;
        int rc = receive(stream, to + have, n - have, MSG_WAITALL, &got);
        if (rc != 0)
            return rc;
        have += got;
    }
    return 0;
}
