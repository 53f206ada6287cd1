/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of quotas: shared by quota.c, which finds them by name, and space/quota_limit.c, which
 * enforces their limits.
 */
#ifndef KVC_CORE_QUOTA_INTERNAL_H
#define KVC_CORE_QUOTA_INTERNAL_H

#include "block.h"

/* A quota: tenant, sub-tenant or namespace, and its owner in core->retain, which has the limits. */
struct quota {
    uint32_t account;   /* its owner in core->retain; 0: this entry is free */
    uint8_t scope;      /* enum kvc_scope */
    uint32_t ns;        /* for KVC_SCOPE_NS: id of its namespace */
    uint64_t fill;      /* the least bytes of its blocks that fill a region of memory */
    uint32_t disk_hand; /* while its bytes on disk are above the limit: the last record looked at */
    uint64_t disk_seen; /* meanwhile: number of records that were looked at in vain */
    char tenant[KVC_STRING_MAX], sub[KVC_STRING_MAX];
};

struct quotas {
    struct quota quota[RETAIN_OWNERS];
    uint64_t guaranteed;         /* bytes in memory that all quotas together guarantee */
    uint64_t guaranteed_regions; /* number of regions of memory that hold these bytes */
    bool give_due;               /* some blocks are still in the policy's lists of another owner,
                                  * because quotas changed */
    uint32_t give_at;            /* the next record to be looked at for such a block */
    uint32_t hand;               /* the last record that quota_disk() has looked at */
    uint32_t at;                 /* the last quota that quota_step() has looked at */
};

#endif
