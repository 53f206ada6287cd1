/* SPDX-License-Identifier: Apache-2.0 */
#include "node_metrics.h"

#include "alloc_count.h"
#include "log.h"

METRIC_DESC(node, NODE_METRICS);

struct metric_set node_metric_set(const struct node_metrics *m)
{
    return METRIC_SET(node, "daemon", m);
}

void node_metrics_refresh(struct node_metrics *m, struct host *host, struct front *front)
{
    struct tier_stats t;
    const struct tier *tier = host_tier(host);
    tier->ops->stats(tier, &t);
    m->host_limit_bytes = t.limit_bytes;
    m->host_used_bytes = t.used_bytes;
    m->host_used_slots = t.used_slots;
    m->host_mapped_bytes = t.mapped_bytes;
    m->host_faulted_bytes = t.faulted_bytes;
    m->copies_in_flight = t.inflight_ops;
    m->copy_bytes_in_flight = t.inflight_bytes;
    struct pins_stats pins;
    host_pins_stats(host, &pins);
    m->host_registered_bytes = pins.bytes;
    m->host_copy_ns = *host_copy_ns(host);
    m->control_allocs = alloc_count_read();
    m->log_lines_lost = log_dropped();
    struct front_limiter_stats limiter;
    front_numbers(front, &limiter);
    m->control_refused = limiter.refused;
    m->control_cut = limiter.cut;
    m->control_shed = limiter.shed;
    m->control_paused = limiter.paused;
}
