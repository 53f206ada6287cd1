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
 * Thread: control thread. Memory: one allocation in home_open().
 */
#ifndef KVC_TIER_HOME_H
#define KVC_TIER_HOME_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

#define HOME_NAME_BYTES 32u
#define HOME_PATH_BYTES 320u

enum arena_persist { ARENA_PERSIST_OFF, ARENA_PERSIST_DIR, ARENA_PERSIST_FDS };

/* A descriptor that waited with the service manager. */
struct home_fd {
    char name[HOME_NAME_BYTES];
    int fd; /* the home takes those whose names are its own, and leaves -1 here */
};

struct home_config {
    enum arena_persist persist;
    /* dir: absolute, made (0700) when its parent is there; borrowed until home_close() */
    const char *dir;
    /* dir: how long a lock that is held is waited for: a killed daemon keeps it until its memory is
     * unmapped. 0: not at all. */
    uint64_t wait_ms;
    void (*waits)(void *ctx); /* called once when that has taken a second; NULL: nobody is told */
    /* fds; borrowed until home_close() */
    struct home_fd *fds;
    uint32_t nfds;
    /* A service manager that refuses (negative errno), or is not there (NULL), costs the chunk its
     * future, nothing else. */
    int (*store)(void *ctx, const char *name, int fd);
    void (*remove)(void *ctx, const char *name);
    void *ctx;
};

struct home;

/* NULL, or why memory cannot be kept in this directory and what would do: "... is on ext4; ...".
 * In `text`. Changes nothing; a directory that is not there yet is fine. */
const char *home_dir_problem(const char *dir, char *text, uint32_t cap);

/* NULL, or what in the directory bears a name of ours and is not of our making, and what would do.
 * Beside a file of ours with a sound magic, or where `names` and a chunk lie side by side in whole
 * pages, one that nobody else can have had in hand is ours, and damaged: recovery unlinks it, and
 * leaves its memory to those that map it. In `text`. Changes nothing. */
const char *home_stranger(const char *dir, char *text, uint32_t cap);

/* -EBUSY: another daemon has the directory. -EINVAL: home_dir_problem() says why. -EEXIST:
 * home_stranger() does. What the system answered. Returns owned. */
KVC_WARN_UNUSED int home_open(const struct home_config *config, struct home **ret_home);
/* Leaves everything where it is. Accepts NULL. */
void home_close(struct home **home);

/* Whether what is made here outlives the process. */
bool home_keeps(const struct home *home);
/* Whether its memory is that of a hugetlbfs directory, all of it. */
bool home_is_huge(const struct home *home);
/* A line for the log: where. Borrowed. */
const char *home_text(const struct home *home);
/* Bytes that the directory's file system holds at most, and what of it is free; UINT64_MAX where
 * nothing but memory is the limit. */
void home_space(const struct home *home, uint64_t *ret_total, uint64_t *ret_free);

/* Memory for a chunk: zeroes, no page touched, of this size, 0600, named. Returns owned. `huge`:
 * from reserved huge pages; -ENOTSUP where the directory is no hugetlbfs. */
KVC_WARN_UNUSED int home_make(struct home *home, uint32_t id, uint64_t bytes, bool huge,
                              int *ret_fd);
/* From now on the chunk is wanted after this run: the service manager gets its descriptor. */
KVC_WARN_UNUSED int home_keep(struct home *home, uint32_t id, int fd);
/* The chunk is not wanted any more; descriptors stay usable. */
void home_forget(struct home *home, uint32_t id);
/* That the memory of these bytes is there: what would otherwise be a SIGBUS on a full tmpfs is
 * -ENOSPC. */
KVC_WARN_UNUSED int home_reserve(const struct home *home, int fd, uint64_t at, uint64_t bytes);

/* A chunk of the run before, each once: 1 with its id and descriptor (returns owned), 0 at the end,
 * or negative errno. One that others may have in hand (its mode, its links) is removed, and
 * counted by home_refused(). */
KVC_WARN_UNUSED int home_next(struct home *home, uint32_t *ret_id, int *ret_fd);
uint32_t home_refused(const struct home *home);

/* The one other file (names.h), of the run before or new, at least of this size. Returns owned.
 * 1: it is new; the one that was there is damaged, or may be in other hands, and is removed. */
KVC_WARN_UNUSED int home_names(struct home *home, uint64_t bytes, int *ret_fd, uint64_t *ret_bytes);

#endif
