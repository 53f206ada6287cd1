/* SPDX-License-Identifier: Apache-2.0 */
/*
 * meta: journal.h on LMDB, in a directory of its own.
 *
 * LMDB trusts its file: a flipped bit can make it read wild or loop. So a child process walks
 * the file before this one touches it, and whatever becomes of the child, the daemon lives: a file
 * that does not pass is moved aside (`env.bad`), and the journal begins empty, to be made again
 * from the extents' own tables.
 *
 * In the directory: `lock` (flock'ed while it is open), `env` (LMDB's), `env.new` (made aside,
 * synced, then renamed), `env.bad` (the last one that was damaged). Every commit is synchronous.
 *
 * Threads: all functions on the loop's thread. meta_open() forks: call it before the process is
 * large or has threads that hold locks of libraries other than libc's malloc. A thread `kvc-meta`
 * makes the commits. Memory: as much as was made in meta_open(), and LMDB's own per transaction.
 */
#ifndef KVC_IO_META_H
#define KVC_IO_META_H

#include "journal.h"
#include "loop.h"

#define META_FORMAT_VERSION 1u
#define META_WHY_BYTES      256u
#define META_MAP_BYTES      (UINT64_C(64) << 20)

struct meta_config {
    const char *dir;    /* made (0700) when it is not there; what it stands in must be */
    uint64_t map_bytes; /* of address space and of disk to begin with, grows; 0: META_MAP_BYTES */
    uint32_t walk_ms;   /* the longest time for the child's check; 0: 60 s */
    uint32_t lock_wait_ms; /* the longest wait for a predecessor's lock */
    bool readonly;         /* nothing is made, moved or written; commits fail with -EROFS */
};

struct meta_report {
    bool fresh;               /* there was no journal; an empty one was made */
    bool damaged;             /* it was damaged, and moved aside; an empty one was made */
    uint64_t entries;         /* that the child counted */
    char why[META_WHY_BYTES]; /* what was damaged, or why meta_open() failed; "": neither */
};

struct meta;

/*
 * Borrows the loop until meta_close(). Blocks. -EBUSY (another process has it), -EPROTO (a format
 * that is newer than this program), -EUCLEAN (damaged, and readonly), -ENOENT (readonly and not
 * there), -ENOSPC, -EAGAIN (no process or thread), -ENOMEM, and what the system answered, each with
 * report->why. Needs one watch of the loop.
 */
KVC_WARN_UNUSED int meta_open(const struct meta_config *config, struct loop *loop,
                              struct meta **ret_meta, struct meta_report *ret_report);
/* meta_make() calls it once, on the loop's thread. 0: meta_journal() may be used. -EEXIST: a
 * journal of an earlier run is there, which only meta_open() may open; it is not tried again. */
typedef void(meta_made_fn)(void *ctx, int err);
/*
 * A journal that meta_open() could not make, as its file system was full: the thread makes it, and
 * tries every pause_ms until it can, so that nothing here waits for a disk. Until then
 * meta_journal() must not be used. Borrows the loop; copies config. -EAGAIN, -ENOMEM, what the
 * system answered.
 */
KVC_WARN_UNUSED int meta_make(const struct meta_config *config, struct loop *loop,
                              uint32_t pause_ms, meta_made_fn *made, void *ctx,
                              struct meta **ret_meta);
/* Waits for the commits that were begun; then their done() runs, from here. Of meta_make(): for the
 * attempt that is under way; made() is not called any more. Accepts NULL. */
void meta_close(struct meta **meta);

struct journal *meta_journal(struct meta *meta);

struct meta_stats {
    uint64_t commits;      /* that ended well */
    uint64_t transactions; /* synchronous transactions of these; several commits may share one */
    uint64_t changes;      /* of these commits */
    uint64_t map_bytes;
    int error; /* why the journal takes no more commits; 0: it takes them */
};
void meta_stats(const struct meta *meta, struct meta_stats *ret_stats);

#endif
