/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the configuration is read again from where it came from. What the table marks as live,
 * and quotas, are taken; each other difference is a warning that says what needs a restart. A file
 * with an error changes nothing.
 *
 * Thread: control.
 */
#ifndef KVC_NODE_RELOAD_H
#define KVC_NODE_RELOAD_H

#include "config.h"
#include "core.h"

void node_reload(struct config *cfg, struct core *core);
/* The quotas of the configuration. The first error, after a line in the log. */
KVC_WARN_UNUSED int node_quotas_set(const struct config *cfg, struct core *core);

#endif
