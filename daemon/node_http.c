/* SPDX-License-Identifier: Apache-2.0 */
#include "node_http.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "exposition.h"
#include "http.h"
#include "inbox.h"
#include "log.h"
#include "sys.h"

/* Memory of a connection: the library's, and the page that is being sent. */
#define CONN_BYTES ((uint64_t)128 << 10)

enum phase { STARTING, READY, STOPPING };

struct node_http {
    struct http *http;
    struct loop *loop;
    struct loop_watch watch;
    struct inbox inbox;
    struct inbox_item item; /* posted to ask the control thread for copies */
    _Atomic(enum phase) phase;
    pthread_mutex_t lock;
    pthread_cond_t taken;
    bool asked;        /* under `lock`. True: the control thread owns `copies`; false: the answering
                        * thread does */
    bool closing;      /* under `lock` */
    uint64_t taken_ns; /* answering thread: when the copies were made; 0: never */
    struct node_http_source source; /* valid from READY on */
    struct metric_set *copies;      /* copies of source.sets and of their values */
};

static bool node_http_is_on(const struct config *cfg)
{
    return cfg->metrics.listen[0] != '\0';
}

uint64_t node_http_descriptors(const struct config *cfg)
{
    return node_http_is_on(cfg) ? HTTP_DESCRIPTORS : 0;
}

uint64_t node_http_bytes(const struct config *cfg)
{
    return node_http_is_on(cfg) ? HTTP_CONNS_MAX * CONN_BYTES : 0;
}

/* ---- the control thread's side ---- */

static uint64_t set_bytes(const struct metric_set *set)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < set->n; i++) {
        const uint64_t size =
            set->desc[i].kind == METRIC_HISTO ? sizeof(struct histo) : sizeof(uint64_t);
        bytes = MAX(bytes, set->desc[i].offset + size);
    }
    return bytes;
}

static void copy_all(struct node_http *h)
{
    h->source.refresh(h->source.ctx);
    for (uint32_t i = 0; i < h->source.nsets; i++)
        memcpy((void *)(uintptr_t)h->copies[i].base, h->source.sets[i].base,
               set_bytes(&h->source.sets[i]));
}

static void on_asked(struct loop_watch *w, uint32_t events)
{
    struct node_http *h = w->ctx;
    (void)events;
    if (inbox_take(&h->inbox) == NULL)
        return;
    copy_all(h);
    (void)pthread_mutex_lock(&h->lock);
    h->asked = false;
    (void)pthread_cond_signal(&h->taken);
    (void)pthread_mutex_unlock(&h->lock);
}

/* ---- the side of who answers ---- */

static struct timespec deadline(void)
{
    const uint64_t at = clock_now_ns() + NODE_HTTP_WAIT_NS;
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000),
                             .tv_nsec = (long)(at % 1000000000)};
}

/* Gets fresh copies of the metrics. -ETIMEDOUT: the control thread did not make them in time, or is
 * closing. */
static int node_http_ask(struct node_http *h)
{
    const struct timespec until = deadline();
    int err = 0;
    if (h->taken_ns != 0 && clock_now_ns() - h->taken_ns < h->source.fresh_ns)
        return 0;
    (void)pthread_mutex_lock(&h->lock);
    if (!h->asked) { /* true: an earlier request timed out and is still posted */
        h->asked = true;
        inbox_post(&h->inbox, &h->item);
    }
    while (h->asked && !h->closing && err != ETIMEDOUT)
        err = pthread_cond_timedwait(&h->taken, &h->lock, &until);
    err = h->asked ? -ETIMEDOUT : 0;
    (void)pthread_mutex_unlock(&h->lock);
    if (!err)
        h->taken_ns = clock_now_ns();
    return err;
}

static void reply_text(struct http_reply *r, unsigned status, const char *text)
{
    r->status = status;
    r->type = "text/plain; charset=utf-8";
    r->body = sys_strdup(text);
    r->len = r->body != NULL ? strlen(text) : 0;
}

static void reply_late(struct http_reply *r)
{
    reply_text(r, 503, "the control thread has not answered for 2 s\n");
}

static void reply_metrics(struct node_http *h, const char *accept, struct http_reply *r)
{
    static const char *const types[] = {
        [EXPOSITION_TEXT] = "text/plain; version=0.0.4; charset=utf-8",
        [EXPOSITION_OPENMETRICS] = "application/openmetrics-text; version=1.0.0; charset=utf-8"};
    const enum exposition form = strstr(accept, "application/openmetrics-text") != NULL
                                     ? EXPOSITION_OPENMETRICS
                                     : EXPOSITION_TEXT;
    const uint32_t n = h->source.nsets;
    const size_t len = exposition_write(h->copies, n, KVC_VERSION, form, NULL, 0);
    char *body = sys_malloc(len);
    if (body == NULL) {
        reply_text(r, 503, "no memory for the page\n");
        return;
    }
    MUST(exposition_write(h->copies, n, KVC_VERSION, form, body, len) == len);
    *r = (struct http_reply){.status = 200, .type = types[form], .body = body, .len = len};
}

/* In STARTING the control thread is not asked, because it may read storage for long. */
static void node_http_answer(void *ctx, const struct http_request *request, struct http_reply *r)
{
    struct node_http *h = ctx;
    const enum phase phase = atomic_load_explicit(&h->phase, memory_order_acquire);
    const bool health = strcmp(request->path, "/healthz") == 0;
    const bool ready = strcmp(request->path, "/readyz") == 0;
    if (!health && !ready && strcmp(request->path, "/metrics") != 0)
        reply_text(r, 404, "there are /metrics, /healthz and /readyz\n");
    else if (phase == STARTING)
        reply_text(r, health ? 200 : 503, "starting\n");
    else if (ready && phase == STOPPING)
        reply_text(r, 503, "stopping\n");
    else if (node_http_ask(h) < 0)
        reply_late(r);
    else if (health)
        reply_text(r, 200, "alive\n");
    else if (ready)
        reply_text(r, 200, "ready\n");
    else
        reply_metrics(h, request->accept, r);
}

/* ---- open and close ---- */

static int cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    int err = pthread_condattr_init(&attr);
    if (err)
        return -err;
    err = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (!err)
        err = pthread_cond_init(cond, &attr);
    (void)pthread_condattr_destroy(&attr);
    return -err;
}

static int node_http_start(struct node_http *h, const struct config *cfg)
{
    struct http_config http = {.mode = cfg->socket_mode, .answer = node_http_answer, .ctx = h};
    char why[256];
    int err = http_address_read(cfg->metrics.listen, &http.address, why, sizeof why);
    MUST(err == 0); /* the configuration was checked */
    err = inbox_create(&h->inbox);
    if (err)
        return err;
    h->watch =
        (struct loop_watch){.fn = on_asked, .ctx = h, .fd = inbox_fd(&h->inbox), .events = EPOLLIN};
    err = loop_watch_add(h->loop, &h->watch);
    return err ? err : http_create(&http, &h->http);
}

int node_http_open(const struct config *cfg, struct loop *loop, struct node_http **ret_http)
{
    *ret_http = NULL;
    if (!node_http_is_on(cfg))
        return 0;
    struct node_http *h = sys_calloc(1, sizeof *h);
    if (h == NULL)
        return -ENOMEM;
    int err = cond_init(&h->taken);
    if (err) {
        free(h);
        return err;
    }
    MUST(pthread_mutex_init(&h->lock, NULL) == 0);
    h->inbox.fd = -1;
    h->loop = loop;
    err = node_http_start(h, cfg);
    if (err) {
        node_http_close(&h);
        return err;
    }
    LOG_INFO("metrics: /metrics, /healthz and /readyz on %s", cfg->metrics.listen);
    *ret_http = h;
    return 0;
}

int node_http_ready(struct node_http *h, const struct node_http_source *source)
{
    uint64_t bytes = source->nsets * sizeof *h->copies;
    if (h == NULL)
        return 0;
    for (uint32_t i = 0; i < source->nsets; i++)
        bytes += set_bytes(&source->sets[i]);
    h->copies = sys_calloc(1, bytes);
    if (h->copies == NULL)
        return -ENOMEM;
    char *base = (char *)(h->copies + source->nsets);
    for (uint32_t i = 0; i < source->nsets; i++) {
        h->copies[i] = source->sets[i];
        h->copies[i].base = base;
        base += set_bytes(&source->sets[i]);
    }
    h->source = *source;
    atomic_store_explicit(&h->phase, READY, memory_order_release);
    return 0;
}

void node_http_stopping(struct node_http *h)
{
    if (h != NULL)
        atomic_store_explicit(&h->phase, STOPPING, memory_order_release);
}

void node_http_close(struct node_http **http)
{
    struct node_http *h = *http;
    if (h == NULL)
        return;
    (void)pthread_mutex_lock(&h->lock);
    h->closing = true;
    (void)pthread_cond_signal(&h->taken);
    (void)pthread_mutex_unlock(&h->lock);
    http_destroy(&h->http);
    loop_watch_del(h->loop, &h->watch);
    inbox_destroy(&h->inbox);
    (void)pthread_cond_destroy(&h->taken);
    (void)pthread_mutex_destroy(&h->lock);
    free(h->copies);
    free(h);
    *http = NULL;
}
