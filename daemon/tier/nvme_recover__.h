/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a recovery, shared by nvme_recover.c, which finds extents, and nvme_tell.c, which
 * tells core.
 */
#ifndef KVC_NVME_RECOVER_H
#define KVC_NVME_RECOVER_H

#include "nvme__.h"

#define NVME_PRINT_CACHE 1024u /* namespaces that were told last */

/* Whose store a path has, by its superblocks. */
enum kind { KIND_BLANK, KIND_OURS, KIND_DAMAGED, KIND_FOREIGN, KIND_NEWER, KIND_FAILED };

struct recover {
    struct nvme *n;
    const struct nvme_recovery *r;
    struct nvme_report *report;
    enum kind kind[DISK_PATHS_MAX];
    struct nvme_super super[DISK_PATHS_MAX];
    /* One superblock is bad: nvme_super.formatted of the other may be too low, so a rebuild reads
     * all segments of the path. */
    bool whole[DISK_PATHS_MAX];
    struct nvme_candidates list;
    uint64_t *stale; /* keys of the journal that recovery deletes */
    uint32_t stales, stales_cap;
    uint64_t told[NVME_PRINT_CACHE]; /* namespaces that were told: x at x % NVME_PRINT_CACHE */
    bool mine;                       /* the journal's NVME_KEY_STORE names this store */
    bool have_key;                   /* the journal has NVME_KEY_STORE */
    uint32_t epoch;                  /* the highest in superblocks, journal and generations */
    uint32_t journal_epoch;          /* the one in NVME_KEY_STORE */
    uint32_t known[DISK_PATHS_MAX];  /* each path's epoch in NVME_KEY_STORE */
    uint32_t named[DISK_PATHS_MAX];  /* blocks that the journal has on a path that is empty now */
    int error;                       /* negative: of pump() or a table; it ends the recovery */
};

/* Sets report->note, if it is not set yet. */
__attribute__((format(printf, 2, 3))) void nvme__note(struct recover *v, const char *fmt, ...);
/* nvme_tell.c: reads the tables of all candidates and tells the caller of the recovery which
 * namespaces and blocks there are. */
KVC_WARN_UNUSED int nvme__tell(struct recover *v);

#endif
