/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of metrics.listen, with this thread as the control thread. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cases.h"
#include "node_http.h"

#define SHOP_METRICS(X) X(COUNTER, hits, "lookups that found")
METRIC_STRUCT(shop, SHOP_METRICS);
METRIC_DESC(shop, SHOP_METRICS);

#define CONNS 100u

static char dir[] = "/tmp/kvc-pages-XXXXXX";
static struct config cfg;
static struct loop *loop;
static struct node_http *pages;
static struct shop_metrics shop;
static unsigned refreshed;

static void refresh(void *ctx)
{
    ((struct shop_metrics *)ctx)->hits++;
    refreshed++;
}

static void setup(void)
{
    const struct loop_config lc = {.watches_max = 8};
    strcpy(strrchr(dir, '-'), "-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(cfg.metrics.listen, sizeof(cfg.metrics.listen), "%s/m.sock", dir);
    cfg.socket_mode = 0600;
    ck_assert_int_eq(loop_create(&lc, &loop), 0);
    ck_assert_int_eq(node_http_open(&cfg, loop, &pages), 0);
    ck_assert_ptr_nonnull(pages);
}

static void teardown(void)
{
    node_http_close(&pages);
    loop_destroy(&loop);
    ck_assert_int_eq(rmdir(dir), 0);
}

static void serve_fresh(uint64_t fresh_ns)
{
    static struct metric_set set; /* borrowed from now on */
    set = METRIC_SET(shop, "shop", &shop);
    const struct node_http_source source = {
        .sets = &set, .nsets = 1, .refresh = refresh, .ctx = &shop, .fresh_ns = fresh_ns};
    ck_assert_int_eq(node_http_ready(pages, &source), 0);
}

static void serve(void)
{
    serve_fresh(0);
}

static int ask(const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    char text[128];
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/m.sock", dir);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    const int n = snprintf(text, sizeof(text), "GET %s HTTP/1.0\r\n\r\n", path);
    ck_assert_int_eq(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return fd;
}

/* The reply, for which the loop turns if `turns`. */
static const char *reply(int fd, bool turns)
{
    static char text[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t n = 0;
    ssize_t r;
    while (turns && poll(&p, 1, 0) == 0)
        ck_assert_int_ge(loop_turn(loop, 1000000), 0);
    while ((r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
        n += (size_t)r;
    text[n] = '\0';
    close(fd);
    return text;
}

static void assert_reply(const char *path, bool turns, const char *status, const char *body)
{
    const char *text = reply(ask(path), turns);
    if (strstr(text, status) == NULL || strstr(text, body) == NULL)
        ck_abort_msg("%s: %s with '%s' was expected:\n%s", path, status, body, text);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_daemon_that_starts_is_alive_and_not_ready)
{
    assert_reply("/healthz", false, " 200 ", "starting");
    assert_reply("/readyz", false, " 503 ", "starting");
    assert_reply("/metrics", false, " 503 ", "starting");
    assert_reply("/", false, " 404 ", "/metrics, /healthz and /readyz");
}

CASE(one_that_serves_is_ready_and_its_metrics_are_of_now)
{
    serve();
    assert_reply("/healthz", true, " 200 ", "alive");
    assert_reply("/readyz", true, " 200 ", "ready");
    assert_reply("/metrics", true, " 200 ", "\nkvcache_shop_hits_total 3\n");
    assert_reply("/metrics", true, " 200 ", "\nkvcache_shop_hits_total 4\n");
    assert_reply("/", true, " 404 ", "there are");
    ck_assert_uint_eq(refreshed, 4);
}

CASE(one_that_stops_is_alive_and_not_ready)
{
    serve();
    node_http_stopping(pages);
    assert_reply("/healthz", true, " 200 ", "alive");
    assert_reply("/readyz", false, " 503 ", "stopping");
    assert_reply("/metrics", true, " 200 ", "kvcache_shop_hits_total 2\n");
}

/* What was asked for meanwhile is not taken for the answer to the next one. */
CASE(one_that_hangs_is_not_alive_until_it_turns_again)
{
    serve();
    assert_reply("/healthz", false, " 503 ", "has not answered for 2 s");
    ck_assert_uint_eq(refreshed, 0);
    ck_assert_int_ge(loop_turn(loop, 0), 0);
    ck_assert_uint_eq(refreshed, 1);
    assert_reply("/metrics", true, " 200 ", "kvcache_shop_hits_total 2\n");
}

CASE(many_at_once_are_all_answered)
{
    int fd[CONNS];
    serve();
    for (unsigned i = 0; i < CONNS; i++)
        fd[i] = ask("/metrics");
    for (unsigned i = 0; i < CONNS; i++)
        ck_assert_ptr_nonnull(strstr(reply(fd[i], true), "kvcache_shop_hits_total "));
    ck_assert_uint_eq(refreshed, CONNS);
}

/* The control thread, which does not turn any more, is not asked for what is fresh. */
CASE(a_fresh_copy_answers_all_who_ask)
{
    serve_fresh(UINT64_MAX);
    assert_reply("/healthz", true, " 200 ", "alive");
    for (unsigned i = 0; i < CONNS; i++)
        assert_reply("/metrics", false, " 200 ", "kvcache_shop_hits_total ");
    assert_reply("/readyz", false, " 200 ", "ready");
    ck_assert_uint_eq(refreshed, 1);
}

CASE(who_waits_is_let_go_at_the_end)
{
    serve();
    const int fd = ask("/metrics");
    struct pollfd p = {.fd = fd, .events = POLLIN};
    (void)poll(&p, 1, 50); /* so that it waits, as a rule */
    node_http_close(&pages);
    ck_assert_ptr_null(strstr(reply(fd, false), " 200 "));
}

CASE(without_an_address_there_is_nothing)
{
    struct node_http *none;
    struct config off = {0};
    ck_assert_int_eq(node_http_open(&off, loop, &none), 0);
    ck_assert_ptr_null(none);
    ck_assert_uint_eq(node_http_bytes(&off) + node_http_descriptors(&off), 0);
    ck_assert_int_eq(node_http_ready(none, &(struct node_http_source){0}), 0);
    node_http_stopping(none);
    node_http_close(&none);
}
