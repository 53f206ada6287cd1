/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, and pages for clients that are sockets of this process. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cases.h"
#include "http.h"

static char dir[] = "/tmp/kvc-http-XXXXXX";
static char path[64];
static struct http *http;

static void answer(void *ctx, const struct http_request *request, struct http_reply *ret)
{
    char text[256];
    (void)ctx;
    (void)!snprintf(text, sizeof(text), "%s for %s", request->path, request->accept);
    *ret = (struct http_reply){.status = 200, .type = "text/plain", .body = strdup(text)};
    ck_assert_ptr_nonnull(ret->body);
    ret->len = strlen(text);
}

static int begin(const char *where)
{
    struct http_config cfg = {.mode = 0660, .answer = answer};
    char why[512];
    ck_assert_int_eq(http_address_read(where, &cfg.address, why, sizeof(why)), 0);
    return http_create(&cfg, &http);
}

static void setup(void)
{
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/m.sock", dir);
}

static void teardown(void)
{
    http_destroy(&http);
    (void)unlink(path);
    ck_assert_int_eq(rmdir(dir), 0);
}

static int client(const char *where)
{
    struct http_address a;
    char why[512];
    ck_assert_int_eq(http_address_read(where, &a, why, sizeof(why)), 0);
    int fd = socket(a.addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&a.addr, a.len), 0);
    return fd;
}

/* What comes back until the connection ends; the request asks for that. */
static const char *talk(int fd, const char *request)
{
    static char text[4096];
    size_t n = 0;
    ssize_t r;
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    while ((r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)r;
    text[n] = '\0';
    close(fd);
    return text;
}

static void assert_why(const char *where, const char *part)
{
    struct http_address a;
    char why[512] = "";
    ck_assert_int_eq(http_address_read(where, &a, why, sizeof(why)), -EINVAL);
    if (strstr(why, part) == NULL)
        ck_abort_msg("'%s' is not in: %s", part, why);
}

CASES(.setup = setup, .teardown = teardown);

CASE(addresses_of_the_loopback_and_paths_are_read)
{
    struct http_address a;
    char why[512];
    ck_assert_int_eq(http_address_read("127.0.0.1:9464", &a, why, sizeof(why)), 0);
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)&a.addr;
    ck_assert_uint_eq(in4->sin_family, AF_INET);
    ck_assert_uint_eq(ntohs(in4->sin_port), 9464);
    ck_assert_uint_eq(ntohl(in4->sin_addr.s_addr), INADDR_LOOPBACK);
    ck_assert_int_eq(http_address_read("127.1.2.3:1", &a, why, sizeof(why)), 0);
    ck_assert_int_eq(http_address_read("[::1]:65535", &a, why, sizeof(why)), 0);
    ck_assert_uint_eq(a.addr.ss_family, AF_INET6);
    ck_assert_int_eq(http_address_read("/a/b:1", &a, why, sizeof(why)), 0);
    ck_assert_uint_eq(a.addr.ss_family, AF_UNIX);
    ck_assert_str_eq(((const struct sockaddr_un *)&a.addr)->sun_path, "/a/b:1");
}

CASE(others_are_refused_by_name)
{
    static const char *const far[] = {"0.0.0.0:9464",       "10.0.0.1:9464",
                                      "128.0.0.1:80",       "[::]:9464",
                                      "[2001:db8::1]:9464", "[::ffff:127.0.0.1]:80"};
    for (unsigned i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
        assert_why(far[i], far[i]);
        assert_why(far[i], "that is no loopback address");
    }
    assert_why("localhost:9464", "the address is in digits");
    assert_why("[::1:9464", "the address is in digits");
    assert_why("::1:9464", "the address is in digits");
    assert_why(":9464", "the address is in digits");
    assert_why("127.0.0.1:0", "a number from 1 to 65535");
    assert_why("127.0.0.1:65536", "a number from 1 to 65535");
    assert_why("127.0.0.1:", "a number from 1 to 65535");
    assert_why("127.0.0.1", "such as '127.0.0.1:9464'");
    assert_why("metrics.sock", "expected a path such as");
    char longest[160] = "/";
    memset(longest + 1, 'x', 120);
    assert_why(longest, "at most 107 bytes, got one of 121");
}

CASE(a_page_is_answered_on_a_unix_socket)
{
    struct stat st;
    ck_assert_int_eq(begin(path), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0660);
    const char *text = talk(client(path), "GET /a%20b?c=d HTTP/1.1\r\nHost: x\r\nAccept: one\r\n"
                                          "Connection: close\r\n\r\n");
    ck_assert_ptr_eq(strstr(text, "HTTP/1.1 200 OK\r\n"), text);
    ck_assert_ptr_nonnull(strstr(text, "Content-Type: text/plain\r\n"));
    ck_assert_ptr_nonnull(strstr(text, "\r\n\r\n/a b for one"));
    text = talk(client(path), "HEAD /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(text, "Content-Length: 7\r\n")); /* "/h for " */
    ck_assert_str_eq(strstr(text, "\r\n\r\n"), "\r\n\r\n");
    http_destroy(&http);
    ck_assert_int_eq(stat(path, &st), -1);
}

CASE_EACH(a_page_is_answered_on_a_loopback_port, 2)
{
    static const char *const host[] = {"127.0.0.1", "[::1]"};
    char where[32];
    int err = -EADDRINUSE;
    for (unsigned port = 20000 + (unsigned)getpid() % 20000, i = 0; err == -EADDRINUSE && i < 100;
         i++) {
        snprintf(where, sizeof(where), "%s:%u", host[_i], port + i);
        err = begin(where);
    }
    if (_i == 1 && (err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT))
        return; /* a machine without IPv6 */
    ck_assert_int_eq(err, 0);
    const char *text = talk(client(where), "GET /x HTTP/1.0\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(text, " 200 OK\r\n"));
    ck_assert_ptr_nonnull(strstr(text, "\r\n\r\n/x for "));
    struct http *first = http;
    http = NULL;
    ck_assert_int_eq(begin(where), -EADDRINUSE);
    http = first;
}

CASE(a_socket_left_behind_is_replaced_and_one_in_use_is_not)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    strcpy(addr.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    close(fd);
    ck_assert_int_eq(begin(path), 0);
    struct http *first = http;
    http = NULL;
    ck_assert_int_eq(begin(path), -EADDRINUSE);
    http = first;
    ck_assert_ptr_nonnull(strstr(talk(client(path), "GET / HTTP/1.0\r\n\r\n"), " 200 OK\r\n"));
    http_destroy(&http);
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(begin(path), -EEXIST);
    ck_assert_int_eq(access(path, F_OK), 0);
}

CASE(requests_that_are_none_get_an_error_or_the_end)
{
    static const struct {
        const char *request, *reply; /* "": the connection ends */
    } cases[] = {
        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\nConnection: close\r\n\r\n",
         " 405 "},
        {"DELETE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "Allow: GET, HEAD\r\n"},
        {"GET / HTTP/1.1\r\nConnection: close\r\n\r\n", " 400 "}, /* no Host */
        {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n123456789",
         ""},
        {"\x16\x03\x01\x02\r\n\r\n", ""}, /* TLS */
        {"nonsense\r\n\r\n", ""},
    };
    ck_assert_int_eq(begin(path), 0);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = talk(client(path), cases[i].request);
        if (strstr(text, cases[i].reply) == NULL || strstr(text, " 200 ") != NULL)
            ck_abort_msg("%s\n-> %s", cases[i].request, text);
    }
    ck_assert_ptr_nonnull(strstr(talk(client(path), "GET / HTTP/1.0\r\n\r\n"), " 200 OK\r\n"));
}

CASE(a_head_beyond_all_bounds_is_refused)
{
    static char head[40000];
    ck_assert_int_eq(begin(path), 0);
    const size_t n = (size_t)snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: x\r\nA: ");
    memset(head + n, 'a', sizeof(head) - n);
    const int fd = client(path);
    size_t sent = 0;
    ssize_t r;
    while (sent < sizeof(head) &&
           (r = send(fd, head + sent, sizeof(head) - sent, MSG_NOSIGNAL)) > 0)
        sent += (size_t)r;
    char text[512] = "";
    if (read(fd, text, sizeof(text) - 1) > 0)
        ck_assert_ptr_null(strstr(text, " 200 "));
    close(fd);
    ck_assert_ptr_nonnull(strstr(talk(client(path), "GET / HTTP/1.0\r\n\r\n"), " 200 OK\r\n"));
}

/* Some say nothing, some begin a request, some do not read; there is room for one more. */
CASE(who_says_or_reads_nothing_holds_up_nobody)
{
    static const char *const says[] = {"", "GET ", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"};
    int fd[HTTP_CONNS_MAX - 1];
    ck_assert_int_eq(begin(path), 0);
    for (unsigned i = 0; i < HTTP_CONNS_MAX - 1; i++) {
        const char *text = says[i % 3];
        fd[i] = client(path);
        ck_assert_int_eq(send(fd[i], text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    }
    ck_assert_ptr_nonnull(strstr(talk(client(path), "GET / HTTP/1.0\r\n\r\n"), " 200 OK\r\n"));
    for (unsigned i = 0; i < HTTP_CONNS_MAX - 1; i++)
        close(fd[i]);
    ck_assert_ptr_nonnull(strstr(talk(client(path), "GET / HTTP/1.0\r\n\r\n"), " 200 OK\r\n"));
}
