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
        uint8_t *staging; /* NULL without */
        uint64_t staging_bytes;
    } rank[KVC_SHARDS_MAX];
};

/* Opens spec->shards sessions and the namespace in each; staging_bytes of staging are asked for in
 * each, and how much it got is in rank[].staging_bytes. 0, or an enum ctl_exit after saying what is
 * wrong; ranks_close() in any case. */
int ranks_open(const struct ctl *ctl, const struct kvc_ns_spec *spec, uint64_t staging_bytes,
               struct ranks *ranks);
void ranks_close(struct ranks *ranks);
/* ctl_fail() for an error of this rank's session. */
int ranks_fail(const struct ctl *ctl, const struct ranks *ranks, uint32_t rank, int error);

#endif
