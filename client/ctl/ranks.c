/* SPDX-License-Identifier: Apache-2.0 */
#include "ranks.h"

int ranks_fail(const struct ctl *ctl, const struct ranks *ranks, uint32_t rank, int error)
{
    struct ctl of_rank = *ctl;
    of_rank.kvc = ranks->rank[rank].kvc;
    return ctl_fail(&of_rank, error);
}

static int open_one(const struct ctl *ctl, const struct kvc_ns_spec *spec, uint64_t staging_bytes,
                    struct ranks *ranks)
{
    const uint32_t i = ranks->n;
    const struct kvc_options options = {.socket = ctl->socket,
                                        .name = "kvcachectl",
                                        .staging_bytes = staging_bytes,
                                        .shard = i,
                                        .timeout_ms = ctl->timeout_ms,
                                        .must_connect = true};
    int rc = kvc_open(&options, &ranks->rank[i].kvc);
    if (rc < 0)
        return ranks_fail(ctl, ranks, i, rc);
    ranks->n++;
    rc = kvc_ns_open(ranks->rank[i].kvc, spec, &ranks->rank[i].ns);
    if (rc < 0)
        return ranks_fail(ctl, ranks, i, rc);
    if (staging_bytes > 0)
        ranks->rank[i].staging = kvc_staging(ranks->rank[i].kvc, &ranks->rank[i].staging_bytes);
    return 0;
}

int ranks_open(const struct ctl *ctl, const struct kvc_ns_spec *spec, uint64_t staging_bytes,
               struct ranks *ranks)
{
    int rc = 0;
    const uint32_t shards = spec->shards ? spec->shards : 1;
    *ranks = (struct ranks){.n = 0};
    while (rc == 0 && ranks->n < shards)
        rc = open_one(ctl, spec, staging_bytes, ranks);
    return rc;
}

void ranks_close(struct ranks *ranks)
{
    for (uint32_t i = 0; i < ranks->n; i++)
        kvc_close(&ranks->rank[i].kvc);
    ranks->n = 0;
}
