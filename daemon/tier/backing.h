/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the arena's memory comes from, and where it waits for the next run of the daemon.
 *
 *   off   memfds of this process alone
 *   dir   named files in a directory of tmpfs or hugetlbfs: `chunk-<id>` and `names`. The
 *         directory is locked, so that two daemons never share it.
 *   fds   memfds of which the service manager (systemd's descriptor store) holds a descriptor too:
 * `kvc-chunk-<id>` and `kvc-names`. It gives them back at the next start.
 *
 * A memfd that is sealed with F_SEAL_FUTURE_WRITE can never be mapped writable again, by the next
 * run neither; so only those of `off` are. Descriptors of chunks otherwise are safe from other uids
 * (mode 0600), not from other processes of the daemon's own.
 *
 * Thread: control thread. Memory: one allocation in backing_open().
 */
#ifndef KVC_TIER_BACKING_H
#define KVC_TIER_BACKING_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define HOME_NAME_BYTES 32u
#define HOME_PATH_BYTES 320u

enum arena_persist { ARENA_PERSIST_OFF, ARENA_PERSIST_DIR, ARENA_PERSIST_FDS };

/* A descriptor that waited with the service manager. */
struct backing_fd {
    char name[HOME_NAME_BYTES];
    int fd; /* the backing takes those whose names are its own, and leaves -1 here */
};

struct backing_config {
    enum arena_persist persist;
    /* dir: absolute, made (0700) when its parent is there; borrowed until backing_close() */
    const char *dir;
    /* dir: how long a lock that is held is waited for: a killed daemon keeps it until its memory is
     * unmapped. 0: not at all. */
    uint64_t wait_ms;
    void (*waits)(void *ctx); /* called once when that has taken a second; NULL: nobody is told */
    /* fds; borrowed until backing_close() */
    struct backing_fd *fds;
    uint32_t nfds;
    /* A service manager that refuses (negative errno), or is not there (NULL), costs the chunk its
     * future, nothing else. */
    int (*store)(void *ctx, const char *name, int fd);
    void (*remove)(void *ctx, const char *name);
    void *ctx;
};

struct backing;

/* NULL, or why memory cannot be kept in this directory and what would do: "... is on ext4; ...".
 * In `text`. Changes nothing; a directory that is not there yet is fine. */
const char *backing_dir_problem(const char *dir, char *text, uint32_t cap);

/* NULL, or what in the directory bears a name of ours and is not of our making, and what would do.
 * Beside a file of ours with a sound magic, or where `names` and a chunk lie side by side in whole
 * pages, one that nobody else can have had in hand is ours, and damaged: recovery unlinks it, and
 * leaves its memory to those that map it. In `text`. Changes nothing. */
const char *backing_stranger(const char *dir, char *text, uint32_t cap);

/* -EBUSY: another daemon has the directory. -EINVAL: backing_dir_problem() says why. -EEXIST:
 * backing_stranger() does. What the system answered. Returns owned. */
KVC_WARN_UNUSED int backing_open(const struct backing_config *config, struct backing **ret_backing);
/* Leaves everything where it is. Accepts NULL. */
void backing_close(struct backing **backing);

/* Whether what is made here outlives the process. */
bool backing_keeps(const struct backing *backing);
/* Whether its memory is that of a hugetlbfs directory, all of it. */
bool backing_is_huge(const struct backing *backing);
/* A line for the log: where. Borrowed. */
const char *backing_text(const struct backing *backing);
/* Bytes that the directory's file system holds at most, and what of it is free; UINT64_MAX where
 * nothing but memory is the limit. */
void backing_space(const struct backing *backing, uint64_t *ret_total, uint64_t *ret_free);

/* Memory for a chunk: zeroes, no page touched, of this size, 0600, named. Returns owned. `huge`:
 * from reserved huge pages; -ENOTSUP where the directory is no hugetlbfs. */
KVC_WARN_UNUSED int backing_make(struct backing *backing, uint32_t id, uint64_t bytes, bool huge,
                                 int *ret_fd);
/* From now on the chunk is wanted after this run: the service manager gets its descriptor. */
KVC_WARN_UNUSED int backing_keep(struct backing *backing, uint32_t id, int fd);
/* The chunk is not wanted any more; descriptors stay usable. */
void backing_forget(struct backing *backing, uint32_t id);
/* That the memory of these bytes is there: what would otherwise be a SIGBUS on a full tmpfs is
 * -ENOSPC. */
KVC_WARN_UNUSED int backing_reserve(const struct backing *backing, int fd, uint64_t at,
                                    uint64_t bytes);

/* A chunk of the run before, each once: 1 with its id and descriptor (returns owned), 0 at the end,
 * or negative errno. One that others may have in hand (its mode, its links) is removed, and
 * counted by backing_refused(). */
KVC_WARN_UNUSED int backing_next(struct backing *backing, uint32_t *ret_id, int *ret_fd);
uint32_t backing_refused(const struct backing *backing);

/* The one other file (ns_records.h), of the run before or new, at least of this size. Returns
 * owned. 1: it is new; the one that was there is damaged, or may be in other hands, and is removed.
 */
KVC_WARN_UNUSED int backing_names(struct backing *backing, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_bytes);

#endif
