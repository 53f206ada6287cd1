/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves a few pages (metrics) over HTTP on a thread of libmicrohttpd's; the address it listens on.
 */
#include "http.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "sys.h"
#include "units.h"
#include "unix_listen.h"

/* Line and headers of a request; longer ones are refused by the library. */
#define REQUEST_BYTES ((size_t)8 << 10)
#define BACKLOG       128

struct http {
    struct http_config cfg;
    struct MHD_Daemon *daemon;
    int fd; /* until the library has it */
};

static bool is_unix(const struct http *h)
{
    return h->cfg.address.addr.ss_family == AF_UNIX;
}

static const char *unix_path(const struct http *h)
{
    return ((const struct sockaddr_un *)&h->cfg.address.addr)->sun_path;
}

/* ---- addresses ---- */

static void http_refuse(char *why, size_t cap, const char *text, const char *hint)
{
    (void)!snprintf(
        why, cap,
        "expected a path such as '/run/kvcache/metrics.sock' or a loopback address with "
        "a port such as '127.0.0.1:9464' or '[::1]:9464', got '%.80s'%s",
        text, hint);
}

static bool is_loopback4(const struct in_addr *a)
{
    return ntohl(a->s_addr) >> 24 == 127;
}

/* *ret_local: whether it is the loopback. Negative when `host` is no address. */
static int take_host(const char *host, uint16_t port, struct http_address *ret, bool *ret_local)
{
    struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    char inner[INET6_ADDRSTRLEN + 2];
    const size_t n = strlen(host);

    *ret = (struct http_address){0};
    if (inet_pton(AF_INET, host, &in4.sin_addr) == 1) {
        *ret_local = is_loopback4(&in4.sin_addr);
        memcpy(&ret->addr, &in4, sizeof(in4));
        ret->len = sizeof(in4);
        return 0;
    }
    if (n < 3 || host[0] != '[' || host[n - 1] != ']' || n - 2 >= sizeof(inner))
        return -EINVAL;
    memcpy(inner, host + 1, n - 2);
    inner[n - 2] = '\0';
    if (inet_pton(AF_INET6, inner, &in6.sin6_addr) != 1)
        return -EINVAL;
    *ret_local = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
    memcpy(&ret->addr, &in6, sizeof(in6));
    ret->len = sizeof(in6);
    return 0;
}

static int take_port(const char *text, struct http_address *ret, char *why, size_t cap)
{
    const char *colon = strrchr(text, ':');
    char host[64];
    uint64_t port;
    bool local;

    if (colon == NULL || (size_t)(colon - text) >= sizeof(host)) {
        http_refuse(why, cap, text, "");
        return -EINVAL;
    }
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    if (units_parse_count(colon + 1, &port, NULL) < 0 || port < 1 || port > 65535) {
        http_refuse(why, cap, text, ": the port is a number from 1 to 65535");
        return -EINVAL;
    }
    if (take_host(host, (uint16_t)port, ret, &local) < 0) {
        http_refuse(why, cap, text, ": the address is in digits");
        return -EINVAL;
    }
    if (!local) {
        http_refuse(
            why, cap, text,
            ": that is no loopback address, and others than this machine must not read these "
            "pages; for them put a proxy before it");
        return -EINVAL;
    }
    return 0;
}

int http_address_read(const char *text, struct http_address *ret_address, char *why, size_t why_cap)
{
    struct http_address a = {0};
    struct sockaddr_un un;

    if (text[0] != '/') {
        const int err = take_port(text, &a, why, why_cap);
        if (err == 0)
            *ret_address = a;
        return err;
    }
    if (unix_address(text, &un) < 0) {
        (void)!snprintf(why, why_cap, "expected a path of at most %zu bytes, got one of %zu",
                        sizeof(un.sun_path) - 1, strlen(text));
        return -EINVAL;
    }
    memcpy(&a.addr, &un, sizeof(un));
    a.len = sizeof(un);
    *ret_address = a;
    return 0;
}

/* ---- requests ---- */

__attribute__((format(printf, 2, 0))) static void on_log(void *ctx, const char *fmt, va_list ap)
{
    char text[200];

    (void)ctx;
    (void)!vsnprintf(text, sizeof(text), fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    LOG_WARN_RATELIMITED(60, "metrics.listen: %s", text);
}

static enum MHD_Result send_reply(struct MHD_Connection *c, const struct http_reply *r,
                                  const char *header, const char *value)
{
    static char nothing[1];
    struct MHD_Response *response = MHD_create_response_from_buffer(
        r->len, r->body != NULL ? r->body : nothing,
        r->body != NULL ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    enum MHD_Result ok = MHD_NO;

    MUST(r->body != NULL || r->len == 0);
    if (response == NULL) {
        free(r->body);
        return MHD_NO;
    }
    if ((r->type == NULL ||
         MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, r->type) == MHD_YES) &&
        (header == NULL || MHD_add_response_header(response, header, value) == MHD_YES))
        ok = MHD_queue_response(c, r->status, response);
    MHD_destroy_response(response);
    return ok;
}

/* Called once with the headers alone, then with what there is of a body, then to answer. */
static enum MHD_Result on_request(void *ctx, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    struct http *h = ctx;
    struct http_reply reply = {0};

    (void)version;
    (void)upload;
    if (*state == NULL) {
        *state = h;
        if (strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0)
            return MHD_YES;
        reply.status = MHD_HTTP_METHOD_NOT_ALLOWED;
        return send_reply(c, &reply, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    MUST(*state == h);
    if (*upload_bytes > 0)
        return MHD_NO; /* nobody reads it: the connection ends */
    const char *accept = MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const struct http_request request = {.path = url, .accept = accept != NULL ? accept : ""};
    h->cfg.answer(h->cfg.ctx, &request, &reply);
    return send_reply(c, &reply, NULL, NULL);
}

/* ---- create and destroy ---- */

static int http_listen_at(struct http *h)
{
    const struct sockaddr *addr = (const struct sockaddr *)&h->cfg.address.addr;
    const int on = 1;

    if (is_unix(h))
        return unix_listen(SOCK_STREAM, (const struct sockaddr_un *)&h->cfg.address.addr,
                           h->cfg.mode, BACKLOG, &h->fd);
    h->fd = sys_socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK);
    if (h->fd < 0 || setsockopt(h->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(h->fd, addr, h->cfg.address.len) != 0 || listen(h->fd, BACKLOG) != 0)
        return -errno;
    return 0;
}

static int http_serve(struct http *h)
{
    errno = 0;
    h->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG, 0, NULL, NULL,
                                 on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
                                 MHD_OPTION_LISTEN_SOCKET, h->fd, MHD_OPTION_CONNECTION_LIMIT,
                                 HTTP_CONNS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S,
                                 MHD_OPTION_CONNECTION_MEMORY_LIMIT, REQUEST_BYTES,
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (h->daemon == NULL)
        return errno != 0 ? -errno : -EIO;
    h->fd = -1;
    return 0;
}

static const char *http_hint_of(int err)
{
    switch (err) {
    case -EADDRINUSE:
        return ": somebody listens there; stop it, or set metrics.listen to another place";
    case -EEXIST:
        return ": there is a file that is no socket; remove it, or set metrics.listen to another "
               "place";
    case -EAFNOSUPPORT:
        return ": the unit forbids it (RestrictAddressFamilies=); set metrics.listen to a path, or "
               "allow AF_INET or AF_INET6 in a drop-in";
    default:
        return "";
    }
}

int http_create(const struct http_config *config, struct http **ret_http)
{
    struct http *h = sys_calloc(1, sizeof(*h));

    MUST(config->answer != NULL && config->address.len > 0);
    if (h == NULL)
        return -ENOMEM;
    h->cfg = *config;
    h->fd = -1;
    int err = http_listen_at(h);
    const bool bound = err == 0;
    if (err == 0)
        err = http_serve(h);
    if (err < 0) {
        LOG_ERROR("metrics.listen: %s%s", strerror(-err), http_hint_of(err));
        if (bound && is_unix(h))
            (void)unlink(unix_path(h));
        if (h->fd >= 0)
            close(h->fd);
        free(h);
        return err;
    }
    *ret_http = h;
    return 0;
}

void http_destroy(struct http **http)
{
    struct http *h = *http;

    if (h == NULL)
        return;
    MUST(h->daemon != NULL && h->fd == -1); /* the library has closed its own */
    MHD_stop_daemon(h->daemon);
    if (is_unix(h) && unlink(unix_path(h)) != 0)
        LOG_WARN("%s stays behind: %s", unix_path(h), strerror(errno));
    free(h);
    *http = NULL;
}
