/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pages of metrics.listen: /metrics, /healthz, /readyz.
 *
 * Metrics belong to the control thread. The thread that answers asks it for a copy of them, waits
 * for that up to NODE_HTTP_WAIT_NS, and writes its text out of the copy.
 *
 * Thread: all functions on the control thread; the thread of http.h answers the pages.
 */
#ifndef KVC_NODE_HTTP_H
#define KVC_NODE_HTTP_H

#include "config.h"
#include "loop.h"
#include "metric.h"

#define NODE_HTTP_WAIT_NS 2000000000ull
/* The control thread makes at most four copies a second, however often pages are asked for. */
#define NODE_HTTP_FRESH_NS 250000000ull

struct node_http;

/* Metrics that are brought up to date by refresh(). */
struct node_http_source {
    const struct metric_set *sets;
    uint32_t nsets;
    void (*refresh)(void *ctx);
    void *ctx;
    uint64_t fresh_ns; /* a copy that is not older answers without the control thread */
};

/* Descriptors, and bytes of memory, that the pages take; 0 where metrics.listen is empty. */
uint64_t node_http_descriptors(const struct config *cfg);
uint64_t node_http_bytes(const struct config *cfg);

/* *ret_http NULL: metrics.listen is empty. Until node_http_ready(), /healthz answers that the
 * daemon lives and /readyz that it is not ready. Logs what failed. */
KVC_WARN_UNUSED int node_http_open(const struct config *cfg, struct loop *loop,
                                   struct node_http **ret_http);
/* The daemon serves from now on. Copies the sets, and borrows the metrics that they name. -ENOMEM.
 */
KVC_WARN_UNUSED int node_http_ready(struct node_http *h, const struct node_http_source *source);
/* The daemon stops: from now on it is not ready, and it counts as alive while it turns. */
void node_http_stopping(struct node_http *h);
/* Call it before the metrics that the sets name are freed. Accepts NULL and a pointer to NULL. */
void node_http_close(struct node_http **http);

#endif
