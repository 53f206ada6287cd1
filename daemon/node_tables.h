/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables that are sized by the configuration are touched in the background, before they are used: a
 * page is cleared at its first use, a large one in up to milliseconds, and a turn would use many
 * for the first time.
 *
 * Thread: control thread.
 */
#ifndef KVC_NODE_TABLES_H
#define KVC_NODE_TABLES_H

#include "core.h"
#include "front.h"
#include "prefault.h"
#include "svc.h"

/* What it touches must stay until *ret_prefault is destroyed. */
KVC_WARN_UNUSED int node_tables_touch(const struct core *core, const struct svc *svc,
                                      const struct front *front, struct prefault **ret_prefault);

#endif
