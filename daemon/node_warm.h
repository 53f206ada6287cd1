/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host memory that outlives the daemon (host.persist): where its chunks are, what is found in them
 * at start, and the records of the namespaces that they belong to.
 *
 * Thread: control thread. Zeroed before the first use.
 */
#ifndef KVC_NODE_WARM_H
#define KVC_NODE_WARM_H

#include "config.h"
#include "core.h"
#include "host.h"

struct node_warm {
    struct core *core;
    struct host *host;
    core_who_fn *who;
    void *who_ctx;
    uint64_t prints[CONFIG_PRINCIPALS_MAX + 1]; /* by number of principal */
    uint64_t seen;                              /* core_ns_changes() of the walk that ended last */
    uint64_t walking;                           /* of the one under way */
    uint32_t cursor;
    bool on, is_walking, is_full;
    uint32_t lost_pause;    /* turns until memory that was cut is looked at again */
    struct backing_fd *fds; /* that waited with the service manager */
    uint32_t nfds, fds_cap;
};

/* Takes what the service manager kept for this process. Before there are other threads. */
KVC_WARN_UNUSED int node_warm_take(struct node_warm *w);
/* The host tier has what it wants: the manager may forget the rest. */
void node_warm_taken(struct node_warm *w);
/* Frees, and closes what nobody has taken. */
void node_warm_close(struct node_warm *w);

/* Fills in what of the host tier's configuration is about this; *ret borrows w and cfg. */
void node_warm_config(struct node_warm *w, const struct config *cfg, struct host_config *ret);
/* What is there goes to the core; core_recover_end() is the caller's. Locks on storage are held. */
void node_warm_recover(struct node_warm *w, struct host *host, struct core *core, core_who_fn *who,
                       void *ctx);
/* Once a turn: namespaces that came get their records beside the chunks. Whether memory is kept or
 * not: blocks in memory that another process cut are dropped. */
void node_warm_turn(struct node_warm *w);

#endif
