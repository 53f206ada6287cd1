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
    /* Hashes of name and uids, by the principal's number: others mean another principal. */
    uint64_t prints[CONFIG_PRINCIPALS_MAX + 1];
    uint64_t seen;    /* core_ns_changes() when the last whole walk over namespaces began */
    uint64_t walking; /* the same of the walk under way */
    uint32_t cursor;  /* of core_ns_prints() */
    /* on: host.persist is not "off"; is_walking: a walk over the namespaces is under way; is_full:
     * a record could not be written, and the log says so. */
    bool on, is_walking, is_full;
    uint32_t lost_pause;    /* turns until chunks that were cut are looked at again */
    struct backing_fd *fds; /* descriptors that the service manager kept */
    uint32_t nfds, fds_cap;
};

/* Takes the descriptors that the service manager kept for this process. Before there are other
 * threads. */
KVC_WARN_UNUSED int node_warm_take(struct node_warm *w);
/* The host tier has taken the descriptors that it can use: removes the rest from the manager. */
void node_warm_taken(struct node_warm *w);
/* Frees the list, and closes the descriptors that were not taken. */
void node_warm_close(struct node_warm *w);

/* Fills in the part of the host tier's configuration that is about persistence; *ret borrows w and
 * cfg. */
void node_warm_config(struct node_warm *w, const struct config *cfg, struct host_config *ret);
/* Gives the blocks that are found in the chunks to the core; the caller then calls
 * core_recover_end(). The locks of the storage tier are held. */
void node_warm_recover(struct node_warm *w, struct host *host, struct core *core, core_who_fn *who,
                       void *ctx);
/* Once a turn: writes the records of new namespaces beside the chunks. Also without host.persist:
 * drops blocks whose memory another process cut off. */
void node_warm_turn(struct node_warm *w);

#endif
