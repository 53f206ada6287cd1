/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a recovery, shared by nvme_recover.c, which finds extents, and nvme_tell.c, which
 * tells core.
 */
#ifndef KVC_NVME_RECOVER_H
#define KVC_NVME_RECOVER_H

#include "nvme__.h"

#define NVME_PRINT_CACHE 1024u /* namespaces that were told last */

/* What a path begins with. */
enum kind { KIND_BLANK, KIND_OURS, KIND_DAMAGED, KIND_FOREIGN, KIND_NEWER, KIND_FAILED };

struct recover {
    struct nvme *n;
    const struct nvme_recovery *r;
    struct nvme_report *report;
    enum kind kind[DISK_PATHS_MAX];
    struct nvme_super super[DISK_PATHS_MAX];
    bool whole[DISK_PATHS_MAX]; /* how far it was formatted is not certain */
    struct nvme_candidates list;
    uint64_t *stale; /* keys that have to go */
    uint32_t stales, stales_cap;
    uint64_t told[NVME_PRINT_CACHE];
    bool mine, have_key;            /* the journal is this store's */
    uint32_t epoch, journal_epoch;  /* the highest of all; the journal's */
    uint32_t known[DISK_PATHS_MAX]; /* the epoch in which the journal spoke of each path last */
    uint32_t named[DISK_PATHS_MAX]; /* blocks that the journal names where there is no store */
    int error;
};

/* The first thing that an operator should know is told. */
__attribute__((format(printf, 2, 3))) void nvme__note(struct recover *v, const char *fmt, ...);
/* nvme_tell.c: reads the tables of all candidates and tells the caller of the recovery which
 * namespaces and blocks there are. */
KVC_WARN_UNUSED int nvme__tell(struct recover *v);

#endif
