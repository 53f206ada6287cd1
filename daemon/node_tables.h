/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables whose size the configuration gives are touched in the background, before they are used.
 * Otherwise the kernel clears each page at its first use, which takes up to milliseconds for a
 * large page, and a turn may be the first to use many pages.
 *
 * Thread: control thread.
 */
#ifndef KVC_NODE_TABLES_H
#define KVC_NODE_TABLES_H

#include "core.h"
#include "front.h"
#include "prefault.h"
#include "svc.h"

/* The tables must stay until *ret_prefault is destroyed. */
KVC_WARN_UNUSED int node_tables_touch(const struct core *core, const struct svc *svc,
                                      const struct front *front, struct prefault **ret_prefault);

#endif
