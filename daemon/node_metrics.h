/* SPDX-License-Identifier: Apache-2.0 */
/* What `stats` tells of the node itself; filled in when asked for. */
#ifndef KVC_NODE_METRICS_H
#define KVC_NODE_METRICS_H

#include "front.h"
#include "host.h"
#include "metric.h"
#include "stat.h"

METRIC_STRUCT(node, NODE_METRICS);

struct metric_set node_metric_set(const struct node_metrics *m);
/* All that others know: the host tier, the control socket, log and allocations. */
void node_metrics_refresh(struct node_metrics *m, struct host *host, struct front *front);

#endif
