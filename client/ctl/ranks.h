/* SPDX-License-Identifier: Apache-2.0 */
/* A session for each shard of a namespace, as the ranks of an engine have. One thread. */
#ifndef CTL_RANKS_H
#define CTL_RANKS_H

#include "ctl.h"

struct ranks {
    uint32_t n;
    struct {
        struct kvc *kvc; /* owned */
        struct kvc_ns *ns;
        uint8_t *staging; /* NULL: none was asked for */
        uint64_t staging_bytes;
    } rank[KVC_SHARDS_MAX];
};

/* Opens spec->shards sessions with `staging_bytes` of staging each, and the namespace in each.
 * rank[].staging_bytes is the size that the daemon granted. 0, or an enum ctl_exit after saying
 * what is wrong. The caller calls ranks_close() in either case. */
int ranks_open(const struct ctl *ctl, const struct kvc_ns_spec *spec, uint64_t staging_bytes,
               struct ranks *ranks);
void ranks_close(struct ranks *ranks);
/* ctl_fail() for an error of this rank's session. */
int ranks_fail(const struct ctl *ctl, const struct ranks *ranks, uint32_t rank, int error);

#endif
