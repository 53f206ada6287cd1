/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGHUP: the configuration is read again from the same file and --set texts. Quotas, and keys that
 * config_table marks as live, take their new values; each other difference is logged as a warning
 * that a restart is needed. A file with an error changes nothing.
 *
 * Thread: control thread.
 */
#ifndef KVC_NODE_RELOAD_H
#define KVC_NODE_RELOAD_H

#include "config.h"
#include "core.h"

void node_reload(struct config *cfg, struct core *core);
/* Gives the quotas of the configuration to the core. Returns the first error, which it logs. */
KVC_WARN_UNUSED int node_quotas_set(const struct config *cfg, struct core *core);

#endif
