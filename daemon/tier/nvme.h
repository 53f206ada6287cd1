/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier: tier.h over a log of fixed segments on one or more paths.
 *
 * Blocks that are put in one turn are gathered into extents: a table of pages with the labels and
 * sums of its blocks, checksummed with the store's UUID and the segment's generation, and behind it
 * the payloads, each on whole pages, written from where they lie. An extent is one write. The index
 * of all blocks is in memory; the journal has one entry per extent, committed after the data has
 * been synced. After a restart the journal says which extents count; without a journal recovery
 * finds them from the tables. Room is reused only when no extent of a segment is in the journal any
 * more. docs/notes/tier-nvme.md has the order of all this, docs/notes/tier-nvme-recovery.md what
 * recovery finds after each crash.
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

/* What each path must have room for: its header and some segments. */
#define NVME_PATH_HEADER_BYTES 16384u
#define NVME_PATH_SEGMENTS_MIN 4u
#define NVME_PATH_BYTES_MIN(segment_bytes) \
    (NVME_PATH_HEADER_BYTES + NVME_PATH_SEGMENTS_MIN * (uint64_t)(segment_bytes))

struct nvme;

struct nvme_config {
    struct disk *disk;       /* borrowed */
    struct journal *journal; /* borrowed */
    uint64_t limit_bytes;   /* of all that is written to the paths: superblocks, tables, payloads */
    uint64_t segment_bytes; /* 0: the lesser of 256 MiB and a path / 64 */
    /* Bit i: path i was replaced on purpose, and its blocks in the journal are gone. Without the
     * bit an empty path that should have blocks stays out and untouched: it may not be mounted. */
    uint32_t replaced;
    uint64_t extent_bytes;  /* payload of one write at most, unless a block is larger; 0: 2 MiB */
    uint64_t queue_bytes;   /* most bytes of reads in flight; of writes half of it; 0: 64 MiB */
    uint32_t blocks_max;    /* locations that can be in use */
    uint64_t write_per_day; /* bytes; 0: no limit */
    uint64_t write_burst;   /* bytes that may be saved up; 0: an eighth of a day's */
    uint64_t io_timeout_ns; /* an I/O that takes longer takes its path out; 0: 5 s */
    uint64_t retry_ns; /* after this a path that is out is tried again, doubling to 60 s; 0: 1 s */
    uint64_t sync_ns; /* blocks that are not durable are synced and journalled this often; 0: 1 s */
    uint64_t now_ns;  /* monotonic clock */
    uint64_t wall_ns; /* wall clock, for the write budget */
    /* Writes the record of the namespace with this print, for the tables. Returns its bytes; 0:
     * unknown. NULL: no records. */
    uint32_t (*record)(void *ctx, uint64_t print, uint8_t ret_record[NVME_RECORD_MAX]);
    void *ctx;
};

/* Whether a path that begins with `head` may be written. NULL: yes, `head` is a store of any
 * version or zeroes. Else the reason, for an operator. NVME_LOOK_BYTES are enough to see the
 * signatures of file systems, volumes and swap. */
#define NVME_LOOK_BYTES 131072u
const char *nvme_head_problem(const uint8_t *head, uint64_t bytes);
/* Bytes of the path, as its superblock in `head` says; 0: `head` does not say. */
uint64_t nvme_head_length(const uint8_t *head, uint64_t bytes);

/* NULL, or what is wrong with the configuration, in words. */
const char *nvme_config_problem(const struct nvme_config *config);
/* Bytes of memory that nvme_create() will take. */
uint64_t nvme_footprint(const struct nvme_config *config);
KVC_WARN_UNUSED int nvme_create(const struct nvme_config *config, struct nvme **ret_nvme);
/* Every operation must have ended: call nvme_stop(), then run turns until nvme_is_quiet(). Accepts
 * NULL. */
void nvme_destroy(struct nvme **nvme);
struct tier *nvme_tier(struct nvme *nvme);

struct nvme_found {
    struct tier_label label;
    uint32_t bytes;
    struct hash128 sum;
    struct tier_loc loc;
    uint64_t order; /* grows with the time at which the block was written */
};
#define NVME_NO_ROOM (UINT32_MAX - 1)
/* The caller's part of a recovery. */
struct nvme_recovery {
    void *ctx;
    /* Runs one turn of the loop on which operations of disk and journal end; may block for a while.
     * A negative result ends the recovery with it. */
    int (*pump)(void *ctx);
    void (*ns)(void *ctx, const uint8_t *record,
               uint32_t bytes); /* before the blocks of this namespace */
    /* A hint: `block` will probably be called soon with this label. May be NULL. */
    void (*soon)(void *ctx, const struct tier_label *label);
    /* A block was found. Returns the number that the tier reports as `block_no` from now on;
     * UINT32_MAX: the block is not needed; NVME_NO_ROOM: there is no room now, and a durable block
     * stays for a later start. Durable blocks come first, then the others, the newest first in
     * both. So of two copies of a block the second is not needed. */
    uint32_t (*block)(void *ctx, const struct nvme_found *found);
    /* Called when all blocks are told and nothing is written yet. A negative result ends the
     * recovery with it, and the store stays as it was. May be NULL. */
    int (*approve)(void *ctx);
};
struct nvme_report {
    bool fresh;   /* there was no store, or one of an older format: it was formatted anew */
    bool rebuilt; /* the journal was missing, damaged or old: blocks were found from the tables */
    uint32_t extents, blocks, blocks_dropped, tables_damaged;
    uint32_t blocks_over; /* of blocks_dropped, those without room, for `blocks_max` is too low */
    /* Extents that the journal did not name yet, found behind those that it names. */
    uint32_t extents_forward;
    /* Of extents_forward and of a rebuild, blocks that were not synced and are not whole. */
    uint32_t blocks_torn;
    /* Blocks whose path is gone or is shorter now; how many of them are durable. */
    uint32_t blocks_gone, durable_gone;
    uint32_t paths_empty; /* bit i: path i is out because it is empty and should have blocks */
    uint64_t bytes;
    uint64_t segment_bytes; /* of this store, chosen at its first start */
    char note[256];         /* "" or what an operator should know */
};
/* Opens or formats the store. Called once, at start, before any other call; blocks. On failure a
 * negative errno with a reason in ret_report->note: a format that is newer than this program, paths
 * of different stores, I/O errors on all paths. */
KVC_WARN_UNUSED int nvme_recover(struct nvme *nvme, const struct nvme_recovery *r,
                                 struct nvme_report *ret_report);

/* Runs the timers: sync, formatting, retries, deadlines of I/Os. Called once a turn, first. */
void nvme_tick(struct nvme *nvme, uint64_t now_ns, uint64_t wall_ns);
/* When nvme_tick() must run next at the latest; UINT64_MAX = no timer. */
uint64_t nvme_next_ns(const struct nvme *nvme);
/* All blocks put so far are synced and journalled as soon as possible. */
void nvme_flush(struct nvme *nvme);
/* Takes no more operations (they end with -ECANCELED), and flushes. */
void nvme_stop(struct nvme *nvme);
/* No operation, I/O, move, sync or commit is under way or waiting. */
bool nvme_is_quiet(const struct nvme *nvme);

enum nvme_path_state { NVME_PATH_FORMATTING, NVME_PATH_UP, NVME_PATH_OUT };
struct nvme_path_stats {
    enum nvme_path_state state;
    int error; /* why the path is out: -EIO, -ENOSPC, -EROFS, -ETIMEDOUT, ...; -ENOENT: its name
                * leads to another file or none; -ENODATA: it is shorter now; -ESTALE: it has
                * another store */
    uint64_t bytes, used_bytes, formatted_bytes;
    uint64_t reads, writes, syncs, read_bytes, write_bytes, errors, outs;
    uint64_t queued, queued_bytes;
    const struct histo *read_ns, *write_ns; /* of I/Os; borrowed */
};
/* 0: the path is in service; else nvme_path_stats.error. */
int nvme_path_error(const struct nvme *nvme, uint32_t path);
/* 0: the journal works; else the negative errno that ended it. */
int nvme_journal_error(const struct nvme *nvme);
/* Shards that were read from the path with other bytes than were stored. */
uint64_t nvme_path_corrupt(const struct nvme *nvme, uint32_t path);
void nvme_path_stats(const struct nvme *nvme, uint32_t path, struct nvme_path_stats *ret_stats);

METRIC_STRUCT(nvme, NVME_METRICS);
struct metric_set nvme_metric_set(const struct nvme *nvme);

/* Walks a store without changing it, and says each defect to `say`, one line each. Returns the
 * number of lines, or -errno. payload: also reads and checks all payloads. *ret_report describes
 * the store by its journal; by its tables if the journal is NULL, damaged or another store's. */
KVC_WARN_UNUSED int nvme_check(struct disk *disk, struct journal *journal, bool payload,
                               int (*pump)(void *ctx), void *ctx,
                               void (*say)(void *ctx, const char *line),
                               struct nvme_report *ret_report);

#endif
