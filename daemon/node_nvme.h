/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage tier put together: disk_file and meta of io under nvme, from the configuration.
 *
 * Thread: control thread. What fails is logged here.
 */
#ifndef KVC_NODE_NVME_H
#define KVC_NODE_NVME_H

#include "config.h"
#include "core.h"
#include "loop.h"
#include "metric.h"

struct node_nvme;
struct kvc_path;
struct kvc_writes;

/* File operations and watches that the tier needs in the loop. Without nvme.paths all of these
 * functions return 0. */
uint32_t node_nvme_loop_ops(const struct config *cfg);
uint32_t node_nvme_loop_watches(const struct config *cfg);
/* Bytes of memory: the tier, and the journal's pages. cfg has no "auto" left. */
uint64_t node_nvme_bytes(const struct config *cfg);
uint64_t node_nvme_journal_bytes(const struct config *cfg);

/* Whether the file systems of nvme.paths and of the journal have room for nvme.limit; *ret_largest:
 * bytes of the largest store that is a file. Changes nothing. */
KVC_WARN_UNUSED bool node_nvme_fits(const struct config *cfg, uint64_t *ret_largest);

/* Locks and opens paths and journal; waits for the I/O of a predecessor. Borrows cfg and loop. */
KVC_WARN_UNUSED int node_nvme_open(const struct config *cfg, struct loop *loop, uint64_t now_ns,
                                   struct node_nvme **ret_nvme);
/* No I/O may be in flight. Accepts NULL and a pointer to NULL. */
void node_nvme_close(struct node_nvme **nvme);
/* NULL gives NULL. */
struct tier *node_nvme_tier(struct node_nvme *nvme);
/* Namespaces' records come from this core from now on. */
void node_nvme_set_core(struct node_nvme *nvme, struct core *core);
/* Reads the stores and gives their blocks to the core; the caller then calls core_recover_end().
 * `who` as in core_ns_restore(). Blocks, turns the loop meanwhile, and reports its progress.
 * -ECANCELED: *terminate, which a callback of the loop sets, was true; I/O that does not end then
 * ends the process. */
KVC_WARN_UNUSED int node_nvme_recover(struct node_nvme *nvme, core_who_fn *who, void *ctx,
                                      const bool *terminate);

/* ---- in the turn; all accept NULL ---- */
void node_nvme_tick(struct node_nvme *nvme, uint64_t now_ns);
uint64_t node_nvme_next_ns(const struct node_nvme *nvme); /* UINT64_MAX: no timer */
void node_nvme_kick(struct node_nvme *nvme);
/* Takes no more operations and flushes; turns until node_nvme_is_quiet(). */
void node_nvme_stop(struct node_nvme *nvme);
bool node_nvme_is_quiet(const struct node_nvme *nvme);

/* Figures of path i (false: there is no such path), and of all writes. */
bool node_nvme_path(const struct node_nvme *nvme, uint32_t i, struct kvc_path *ret_path);
void node_nvme_writes(const struct node_nvme *nvme, struct kvc_writes *ret_writes);
struct metric_set node_nvme_metric_set(const struct node_nvme *nvme);

#endif
