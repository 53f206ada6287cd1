/* SPDX-License-Identifier: Apache-2.0 */
/* Quotas: shared by the files that have them by name, and that keep their limits. */
#ifndef KVC_CORE_QUOTA_INTERNAL_H
#define KVC_CORE_QUOTA_INTERNAL_H

#include "block.h"

/* A quota: what retain.h calls an owner, by name. */
struct quota {
    uint32_t payer;     /* in core->retain; 0: this is not in use */
    uint8_t scope;      /* enum kvc_scope */
    uint32_t ns;        /* id */
    uint64_t fill;      /* bytes that a region of memory holds at least, of its blocks */
    uint32_t disk_hand; /* on the way back to its limit on disk: the last record looked at, */
    uint64_t disk_seen; /* and how many were in vain */
    char tenant[KVC_STRING_MAX], sub[KVC_STRING_MAX];
};

struct quotas {
    struct quota quota[RETAIN_OWNERS];
    uint64_t guaranteed;         /* bytes in memory, by all quotas together */
    uint64_t guaranteed_regions; /* the same in regions of memory */
    bool give_due;               /* some blocks are in the lists of another owner */
    uint32_t give_at;            /* the next record that is looked at for that */
    uint32_t hand;               /* the last record that quota_disk() has looked at */
    uint32_t at;                 /* the last quota that quota_step() has looked at */
};

#endif
