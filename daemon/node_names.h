/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where conversations and documents are noted, so that they outlive the daemon: io's meta under
 * core's names, in a directory of its own. `names.dir`; else `names.db` beside the storage tier's
 * journal; else in the directory of host.persist, if files can be made there; else there is none.
 *
 * Thread: control thread. What fails is logged here.
 */
#ifndef KVC_NODE_NAMES_H
#define KVC_NODE_NAMES_H

#include "config.h"
#include "core.h"
#include "loop.h"

struct node_names;

/* Watches that it adds to the loop. */
uint32_t node_names_loop_watches(const struct config *cfg);
/* Memory: of the core's names, and of the journal's pages. */
uint64_t node_names_bytes(const struct config *cfg, const struct core_config *core);
/* *ret_names NULL: there is no such directory, and names end with the daemon. Borrows the loop. */
KVC_WARN_UNUSED int node_names_open(const struct config *cfg, struct loop *loop,
                                    struct node_names **ret_names);
/* Waits for what is on its way. Accepts NULL and a pointer to NULL. */
void node_names_close(struct node_names **names);
/* After all blocks were taken over, also where `names` is NULL. `who` as in core_ns_restore(). */
KVC_WARN_UNUSED int node_names_recover(struct node_names *names, struct core *core,
                                       core_who_fn *who, void *ctx);
/* In the turn: tells when the journal has failed. Accepts NULL. */
void node_names_turn(struct node_names *names, const struct core *core);

#endif
