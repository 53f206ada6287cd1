/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier: tier.h over a log of fixed segments on one or more paths.
 *
 * Blocks that are put in one turn are gathered into extents: a table of pages with the labels and
 * sums of its blocks, checksummed with the store's UUID and the segment's generation, and behind it
 * the payloads, each on whole pages, written from where they lie. An extent is one write. The index
 * of what is where is in memory; the journal has one entry per extent, committed after the data has
 * been synced, and says after a restart which extents count; without it they are found again from
 * the tables. Room is reused only when no extent of a segment is in the journal any more.
 * docs/notes/tier-nvme.md has the order of all this, docs/notes/tier-nvme-recovery.md what recovery
 * finds after each crash.
 *
 * Thread: control thread. Memory: all of it is allocated in nvme_create(). It knows neither files
 * nor LMDB: disk.h and journal.h are given, so that the simulation runs the same code.
 */
#ifndef KVC_TIER_NVME_H
#define KVC_TIER_NVME_H

#include "disk.h"
#include "journal.h"
#include "metric.h"
#include "stat.h"
#include "tier.h"

#define NVME_FORMAT_VERSION 1u
#define NVME_RECORD_MAX     4000u

struct nvme;

struct nvme_config {
    struct disk *disk;       /* borrowed */
    struct journal *journal; /* borrowed */
    uint64_t limit_bytes;   /* of all that is written to the paths: superblocks, tables, payloads */
    uint64_t segment_bytes; /* 0: the lesser of 256 MiB and a path / 64 */
    /* Bit i: path i is new on purpose, and what the journal says is there has gone. Without it a
     * path that is empty and should not be stays out, as it is: perhaps it is not mounted. */
    uint32_t replaced;
    uint64_t extent_bytes; /* 0: 2 MiB: payload gathered into one write, unless a block is larger */
    uint64_t queue_bytes;  /* in flight at most: read; written: half of it. 0: 64 MiB */
    uint32_t blocks_max;   /* locations that can be in use */
    uint64_t write_per_day; /* bytes; 0: no limit */
    uint64_t write_burst;   /* bytes that may be saved up; 0: an eighth of a day's */
    uint64_t io_timeout_ns; /* an I/O that takes longer takes its path out; 0: 5 s */
    uint64_t retry_ns;      /* then it is tried again; 0: 1 s, doubling to 60 s */
    uint64_t sync_ns;       /* what is not durable is journalled this often; 0: 1 s */
    uint64_t now_ns;        /* monotonic; and the wall clock, for the write budget */
    uint64_t wall_ns;
    /* The record of a namespace by its print, for the tables: bytes, 0 = unknown. */
    uint32_t (*record)(void *ctx, uint64_t print, uint8_t ret_record[NVME_RECORD_MAX]);
    void *ctx;
};

/* Whether a path may be written, by what it begins with: NULL when that is a store of any version,
 * or zeroes; else what an operator should know. NVME_LOOK_BYTES go beyond where file systems,
 * volumes and swap have their signatures. */
#define NVME_LOOK_BYTES 131072u
const char *nvme_head_problem(const uint8_t *head, uint64_t bytes);
/* How long a path is that begins so; 0: it does not say. */
uint64_t nvme_head_length(const uint8_t *head, uint64_t bytes);

/* NULL, or what is wrong with the configuration, in words. */
const char *nvme_config_problem(const struct nvme_config *config);
/* Memory it will take. */
uint64_t nvme_footprint(const struct nvme_config *config);
KVC_WARN_UNUSED int nvme_create(const struct nvme_config *config, struct nvme **ret_nvme);
/* Every operation must have ended: nvme_stop() and then turns until nvme_is_quiet(). Accepts
 * NULL.*/
void nvme_destroy(struct nvme **nvme);
struct tier *nvme_tier(struct nvme *nvme);

struct nvme_found {
    struct tier_label label;
    uint32_t bytes;
    struct hash128 sum;
    struct tier_loc loc;
    uint64_t order; /* grows with the time at which it was written */
};
#define NVME_NO_ROOM (UINT32_MAX - 1)
/* What the caller does with what is found. */
struct nvme_recovery {
    void *ctx;
    /* One turn of whatever makes operations of disk and journal end; blocks a while. Negative ends
     * the recovery with that. */
    int (*pump)(void *ctx);
    void (*ns)(void *ctx, const uint8_t *record, uint32_t bytes); /* before the blocks of it */
    /* `block` will be called soon, probably, with this label. NULL: nobody wants to know. */
    void (*soon)(void *ctx, const struct tier_label *label);
    /* The number that the tier is to report as `owner` from now on, or UINT32_MAX: not needed, or
     * NVME_NO_ROOM: not now; what was promised then stays for a later start. Promises come first,
     * then the rest, in both the newest first: of two copies of a block the second is not needed.
     */
    uint32_t (*block)(void *ctx, const struct nvme_found *found);
    /* All has been told and nothing was written: a negative answer ends the recovery with that, and
     * the store stays as it was. NULL: go on. */
    int (*approve)(void *ctx);
};
struct nvme_report {
    bool fresh;   /* there was nothing, or of an older format: formatted anew */
    bool rebuilt; /* the journal was missing, damaged or old: found again from the tables */
    uint32_t extents, blocks, blocks_dropped, tables_damaged;
    uint32_t blocks_over; /* of those dropped: there was no room, for `blocks_max` is too low */
    uint32_t
        extents_forward; /* that the journal did not have yet, found behind those that it had */
    uint32_t
        blocks_torn; /* of these and of a rebuild: had not been synced, are not whole, not told */
    uint32_t blocks_gone, promises_gone; /* where no path is any more, or it ends earlier */
    uint32_t paths_empty; /* bits of those that are out, for they hold nothing, and should */
    uint64_t bytes;
    uint64_t segment_bytes; /* that it has: those of its first start */
    char note[256];         /* "" or what an operator should know */
};
/* At start, once, before anything else: opens or formats the store. Blocking. -EBUSY..: negative
 * errno with report->note: a format that is newer than this program, paths of different stores, I/O
 * errors on all paths. */
KVC_WARN_UNUSED int nvme_recover(struct nvme *nvme, const struct nvme_recovery *r,
                                 struct nvme_report *ret_report);

/* Once a turn, first. Timers: sync, formatting, retries, deadlines of I/Os. */
void nvme_tick(struct nvme *nvme, uint64_t now_ns, uint64_t wall_ns);
/* When nvme_tick() must run next at the latest; UINT64_MAX = no timer. */
uint64_t nvme_next_ns(const struct nvme *nvme);
/* Everything put so far is synced and journalled as soon as can be. */
void nvme_flush(struct nvme *nvme);
/* Takes no more operations (they end with -ECANCELED), flushes. */
void nvme_stop(struct nvme *nvme);
bool nvme_is_quiet(const struct nvme *nvme);

enum nvme_path_state { NVME_PATH_FORMATTING, NVME_PATH_UP, NVME_PATH_OUT };
struct nvme_path_stats {
    enum nvme_path_state state;
    int error; /* why it is out: -EIO, -ENOSPC, -EROFS, -ETIMEDOUT, ...; -ENOENT: its name leads
                * elsewhere; -ENODATA: it has become shorter; -ESTALE: it is not this store's */
    uint64_t bytes, used_bytes, formatted_bytes;
    uint64_t reads, writes, syncs, read_bytes, write_bytes, errors, outs;
    uint64_t queued, queued_bytes;
    const struct histo *read_ns, *write_ns; /* of I/Os; borrowed */
};
/* 0: in service; else as nvme_path_stats.error. And that of the journal. */
int nvme_path_error(const struct nvme *nvme, uint32_t path);
int nvme_journal_error(const struct nvme *nvme);
/* Shards of blocks that were read there and were not what had been stored. */
uint64_t nvme_path_corrupt(const struct nvme *nvme, uint32_t path);
void nvme_path_stats(const struct nvme *nvme, uint32_t path, struct nvme_path_stats *ret_stats);

METRIC_STRUCT(nvme, NVME_METRICS);
struct metric_set nvme_metric_set(const struct nvme *nvme);

/* Walks a store without changing it; lines of what is wrong go to `say`. Returns how many, or
 * -errno. payload: also reads and checks all payloads. *ret_report: what is there, by the journal,
 * or by the tables where that is NULL, damaged or another store's. */
KVC_WARN_UNUSED int nvme_check(struct disk *disk, struct journal *journal, bool payload,
                               int (*pump)(void *ctx), void *ctx,
                               void (*say)(void *ctx, const char *line),
                               struct nvme_report *ret_report);

#endif
