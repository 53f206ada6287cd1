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
 * A memfd that is sealed with F_SEAL_FUTURE_WRITE can never be mapped writable again, not even by
 * the next run; so only those of `off` are sealed so. The others are safe from other uids (mode
 * 0600), but not from other processes of the daemon's own uid.
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
    /* dir: how long to wait for the directory's lock, which a killed daemon holds until its memory
     * is unmapped. 0: not at all. */
    uint64_t wait_ms;
    void (*waits)(void *ctx); /* called once when the wait has taken a second; may be NULL */
    /* fds; borrowed until backing_close() */
    struct backing_fd *fds;
    uint32_t nfds;
    /* fds: hands a descriptor to the service manager. If it refuses (negative errno), or store is
     * NULL, the chunk ends with this run, and nothing else fails. */
    int (*store)(void *ctx, const char *name, int fd);
    void (*remove)(void *ctx, const char *name);
    void *ctx;
};

struct backing;

/* NULL, or `text`: why memory cannot be kept in this directory, and what would help: "... is on
 * ext4; ...". Changes nothing. A directory that does not exist yet is no problem. */
const char *backing_dir_problem(const char *dir, char *text, uint32_t cap);

/* NULL, or `text`: which file of the directory has a name of this format but was not made by a
 * daemon, and what would help. A damaged file counts as the daemon's if no other uid can have had
 * it and it lies beside a file with a sound magic, or `names` and a chunk lie side by side in whole
 * pages; recovery unlinks it and leaves its memory to processes that map it. Changes nothing. */
const char *backing_stranger(const char *dir, char *text, uint32_t cap);

/* -EBUSY: another daemon has the directory. -EINVAL: backing_dir_problem() says why. -EEXIST:
 * backing_stranger() says why. Others are of system calls. Returns owned. */
KVC_WARN_UNUSED int backing_open(const struct backing_config *config, struct backing **ret_backing);
/* Leaves everything where it is. Accepts NULL. */
void backing_close(struct backing **backing);

/* Whether chunks that are made here outlive the process. */
bool backing_keeps(const struct backing *backing);
/* Whether all of its memory is in a hugetlbfs directory. */
bool backing_is_huge(const struct backing *backing);
/* Where chunks are, as a line for the log. Borrowed. */
const char *backing_text(const struct backing *backing);
/* Bytes that the directory's file system holds at most, and how many are free. UINT64_MAX: memory
 * alone is the limit. */
void backing_space(const struct backing *backing, uint64_t *ret_total, uint64_t *ret_free);

/* Makes memory for a chunk: of this size, zeroes, no page touched, mode 0600. *ret_fd is the
 * caller's. huge: from reserved huge pages; -ENOTSUP: the directory is no hugetlbfs. */
KVC_WARN_UNUSED int backing_make(struct backing *backing, uint32_t id, uint64_t bytes, bool huge,
                                 int *ret_fd);
/* The chunk must outlive this run from now on: fds gives its descriptor to the service manager. */
KVC_WARN_UNUSED int backing_keep(struct backing *backing, uint32_t id, int fd);
/* The chunk must not outlive this run any more. Its descriptors stay usable. */
void backing_forget(struct backing *backing, uint32_t id);
/* Allocates the memory of these bytes. -ENOSPC: the tmpfs is full, so an access would be SIGBUS. */
KVC_WARN_UNUSED int backing_reserve(const struct backing *backing, int fd, uint64_t at,
                                    uint64_t bytes);

/* The next chunk of the run before: 1 with its id and descriptor, which is the caller's; 0 at the
 * end; or negative errno. A chunk that other uids may have opened (by its mode or links) is
 * removed, and backing_refused() counts it. */
KVC_WARN_UNUSED int backing_next(struct backing *backing, uint32_t *ret_id, int *ret_fd);
uint32_t backing_refused(const struct backing *backing);

/* Opens or makes the file of ns_records.h, with at least this size. *ret_fd is the caller's. 1: it
 * is new; one that was damaged, or that other uids may have opened, was removed. */
KVC_WARN_UNUSED int backing_names(struct backing *backing, uint64_t bytes, int *ret_fd,
                                  uint64_t *ret_bytes);

#endif
