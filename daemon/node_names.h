/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of conversations and documents (names), which outlive the daemon by it: io's meta
 * under core's names. Its directory is `names.dir`; else `names.db` beside the storage tier's
 * journal; else in the directory of host.persist, if files can be made there; else none.
 *
 * Thread: control thread. What fails is logged here.
 */
#ifndef KVC_NODE_NAMES_H
#define KVC_NODE_NAMES_H

#include "config.h"
#include "core.h"
#include "loop.h"

struct node_names;

/* Watches that the journal adds to the loop. */
uint32_t node_names_loop_watches(const struct config *cfg);
/* Bytes of memory: the core's names, and the journal's pages. */
uint64_t node_names_bytes(const struct config *cfg, const struct core_config *core);
/* *ret_names NULL: no directory was found, and names end with the daemon. Borrows the loop. */
KVC_WARN_UNUSED int node_names_open(const struct config *cfg, struct loop *loop,
                                    struct node_names **ret_names);
/* Waits for commits in flight. Accepts NULL and a pointer to NULL. */
void node_names_close(struct node_names **names);
/* Gives the names of the journal to the core. Call it after all blocks were recovered, also where
 * `names` is NULL. `who` as in core_ns_restore(). */
KVC_WARN_UNUSED int node_names_recover(struct node_names *names, struct core *core,
                                       core_who_fn *who, void *ctx);
/* Once a turn: logs that the journal has failed. Accepts NULL. */
void node_names_turn(struct node_names *names, const struct core *core);

#endif
