/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node: the daemon put together. The setup list in node.c starts the parts bottom-up and its mirror
 * takes them down; node_run() is the turn of the control thread.
 *
 * Thread: node_start() makes the calling thread the control thread.
 */
#ifndef KVC_NODE_H
#define KVC_NODE_H

#include "config.h"

struct node;

/* Starts everything; cfg is borrowed for the node's life and has no "auto" left; SIGHUP changes it.
 * What failed is logged, and everything started is stopped again. -ECANCELED: SIGTERM or SIGINT
 * came first. */
KVC_WARN_UNUSED int node_start(struct config *cfg, struct node **ret_node);
/* Serves until SIGTERM or SIGINT, then drains: no new requests, copies in flight end, sessions are
 * told. 0, or a negative errno when the loop failed; -EIO when a device did (hbm.exit_when_lost).
 */
KVC_WARN_UNUSED int node_run(struct node *n);
/* Accepts NULL. */
void node_stop(struct node **n);

#endif
