/* SPDX-License-Identifier: Apache-2.0 */
/* What `stats` tells of the node itself; filled in when asked for. */
#ifndef KVC_NODE_METRICS_H
#define KVC_NODE_METRICS_H

#include "front.h"
#include "host.h"
#include "metric.h"

#define NODE_METRICS(X)                                                                        \
    X(GAUGE, uptime_ms, "time since the start")                                                \
    X(COUNTER, turns, "turns of the control thread")                                           \
    X(HISTO, turn_ns, "a turn of the control thread, without its wait for work")               \
    X(HISTO, turn_cpu_ns, "processor time of a turn")                                          \
    X(COUNTER, control_allocs, "allocations by our objects on the control thread after start") \
    X(COUNTER, chunks_retired, "chunks that changed hands")                                    \
    X(COUNTER, log_lines_lost, "log lines that could not be written")                          \
    X(COUNTER, control_refused, "control connections turned away: rights, number, no session") \
    X(COUNTER, control_cut, "control connections ended for what they sent")                    \
    X(COUNTER, control_shed, "control connections turned away for lack of descriptors")        \
    X(COUNTER, control_paused, "reads put off because a peer's requests fill its share")       \
    X(GAUGE, host_limit_bytes, "host tier: limit of slots")                                    \
    X(GAUGE, host_used_bytes, "host tier: slots in use")                                       \
    X(GAUGE, host_used_slots, "host tier: slots in use, counted")                              \
    X(GAUGE, host_mapped_bytes, "host tier: chunks")                                           \
    X(GAUGE, host_faulted_bytes, "host tier: of the chunks, touched in advance so far")        \
    X(GAUGE, host_registered_bytes, "host tier: registered with io_uring for storage I/O")     \
    X(GAUGE, copies_in_flight, "host tier: copies in flight")                                  \
    X(GAUGE, copy_bytes_in_flight, "host tier: bytes of copies in flight")
METRIC_STRUCT(node, NODE_METRICS);

struct metric_set node_metric_set(const struct node_metrics *m);
/* All that others know: the host tier, the control socket, log and allocations. */
void node_metrics_refresh(struct node_metrics *m, struct host *host, struct front *front);

#endif
