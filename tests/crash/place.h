/* SPDX-License-Identifier: Apache-2.0 */
/* Where a daemon with an NVMe tier keeps its things in a test, and what holds its disk back. */
#ifndef KVC_TEST_CRASH_PLACE_H
#define KVC_TEST_CRASH_PLACE_H

#include "rig.h"

#define PLACE_PATHS_MAX 4u
#define PLACE_SETS_MAX  40u

/* A daemon's rig, store and settings. */
struct place {
    struct rig rig;
    unsigned paths;                       /* of the storage tier; 0: host memory alone */
    char store[PLACE_PATHS_MAX][96];      /* their directories */
    char list[PLACE_PATHS_MAX * 96];      /* the same with commas */
    char persist[64];                     /* host.persist, "" = off */
    char text[PLACE_SETS_MAX][480];       /* "key=value" */
    const char *sets[PLACE_SETS_MAX + 1]; /* NULL-terminated */
    unsigned nsets;
    char group[128]; /* control group that slows the daemon's disk down, "" = none */
};

/* Makes the directories; no daemon yet. `persist`: host memory in a directory of /dev/shm, so that
 * it outlives the daemon too. */
void place_make(struct place *p, unsigned paths, bool persist);
/* printf-like "key=value". Later ones win. */
void place_set(struct place *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void place_remove(struct place *p);
void place_forget_log(const struct place *p);

/* Starts the daemon as rig_begin() does, in the slow group if there is one. */
void place_begin(struct place *p, const char *fault);
/* Starts and waits; 0, or its wait status. */
int place_try(struct place *p, const char *fault);

/* The daemon's own offline check of all paths: 0, or its exit status (256 + signal). What it says
 * goes to the rig's log. */
int place_check_store(struct place *p);

/* Whether the store is locked by nobody. False after a kill: requests of the dead are on their way
 * to the disk. */
bool place_is_free(const struct place *p);

/* Writes of the daemon to the disk of its store are held to this rate from the next start on. Once.
 * 0; -ENOTSUP with a reason where this machine has no such means. */
int place_slow_down(struct place *p, uint64_t bytes_per_s, char ret_why[160]);

#endif
