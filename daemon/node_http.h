/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of metrics.listen: /metrics, /healthz, /readyz.
 *
 * Metrics belong to the control thread. The thread that answers asks it for a copy of them, waits
 * for that up to NODE_HTTP_WAIT_NS, and writes its text out of the copy.
 *
 * Thread: control thread; the pages are answered by the one of http.h.
 */
#ifndef KVC_NODE_HTTP_H
#define KVC_NODE_HTTP_H

#include "config.h"
#include "loop.h"
#include "metric.h"

#define NODE_HTTP_WAIT_NS 2000000000ull
/* However many ask however often, the control thread makes four copies a second. */
#define NODE_HTTP_FRESH_NS 250000000ull

struct node_http;

/* Metrics that are brought up to date by refresh(). */
struct node_http_source {
    const struct metric_set *sets;
    uint32_t nsets;
    void (*refresh)(void *ctx);
    void *ctx;
    uint64_t fresh_ns; /* a copy so young answers without the control thread */
};

/* What it takes, 0 where it is off: descriptors; memory. */
uint64_t node_http_descriptors(const struct config *cfg);
uint64_t node_http_bytes(const struct config *cfg);

/* *ret_http NULL: it is off. Until node_http_ready() the daemon is alive and not ready. What failed
 * is logged. */
KVC_WARN_UNUSED int node_http_open(const struct config *cfg, struct loop *loop,
                                   struct node_http **ret_http);
/* The daemon serves from now on. Borrows what the sets name; copies the sets. -ENOMEM. */
KVC_WARN_UNUSED int node_http_ready(struct node_http *h, const struct node_http_source *source);
/* It serves no longer: not ready, and alive while it turns. */
void node_http_stopping(struct node_http *h);
/* Before what the sets name goes. Accepts NULL and pointer to NULL. */
void node_http_close(struct node_http **http);

#endif
