/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: a few pages for GET and HEAD, on a unix socket or a loopback port; the adapter of
 * libmicrohttpd.
 *
 * Threads: one of libmicrohttpd's own, which calls `answer` and nothing else of ours, one request
 * after the other. A client that sends or reads nothing costs a connection, and that for
 * HTTP_IDLE_S at most; others wait for it no longer than `answer` takes.
 */
#ifndef KVC_IO_HTTP_H
#define KVC_IO_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "err.h"

#define HTTP_CONNS_MAX 128u
#define HTTP_IDLE_S    10u
/* Descriptors that the server takes at most. */
#define HTTP_DESCRIPTORS (HTTP_CONNS_MAX + 8u)

struct http;

struct http_address {
    struct sockaddr_storage addr;
    socklen_t len;
};

struct http_request {
    const char *path;   /* decoded; "/metrics" */
    const char *accept; /* the header, "" where there is none */
};

/* body: of malloc(3), or NULL for none; http frees it. */
struct http_reply {
    unsigned status;
    const char *type; /* of the body */
    char *body;
    size_t len;
};

typedef void(http_answer_fn)(void *ctx, const struct http_request *request,
                             struct http_reply *ret_reply);

struct http_config {
    struct http_address address;
    mode_t mode; /* of the unix socket */
    http_answer_fn *answer;
    void *ctx;
};

/* "/run/kvcache/metrics.sock", "127.0.0.1:9464", "[::1]:9464". -EINVAL with `why` saying what is
 * expected: another form, a port that is none, an address that is not this machine's own loopback,
 * a path that is too long for a socket. Pure. */
KVC_WARN_UNUSED int http_address_read(const char *text, struct http_address *ret_address, char *why,
                                      size_t why_cap);

/* Listens and serves from now on. Logs what failed. -EADDRINUSE: another process listens there. */
KVC_WARN_UNUSED int http_create(const struct http_config *config, struct http **ret_http);
/* Waits for an `answer` that runs, then closes all connections. Accepts NULL, pointer to NULL. */
void http_destroy(struct http **http);

#endif
