/* SPDX-License-Identifier: Apache-2.0 */
#include "node_metrics.h"

METRIC_DESC(node, NODE_METRICS);

struct metric_set node_metric_set(const struct node_metrics *m)
{
    return METRIC_SET(node, "daemon", m);
}
