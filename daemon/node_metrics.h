/* SPDX-License-Identifier: Apache-2.0 */
/* The node's own metrics, which `stats` shows; filled in when they are asked for. */
#ifndef KVC_NODE_METRICS_H
#define KVC_NODE_METRICS_H

#include "front.h"
#include "host.h"
#include "metric.h"
#include "stat.h"

METRIC_STRUCT(node, NODE_METRICS);

struct metric_set node_metric_set(const struct node_metrics *m);
/* Fills in the figures that other parts keep: the host tier, the control socket, the log, and the
 * count of allocations. */
void node_metrics_refresh(struct node_metrics *m, struct host *host, struct front *front);

#endif
