/* SPDX-License-Identifier: Apache-2.0 */
/* Directories and settings of a daemon with an NVMe tier in a test, and a control group that slows
 * its disk down. */
#ifndef KVC_TEST_CRASH_PLACE_H
#define KVC_TEST_CRASH_PLACE_H

#include "rig.h"

#define PLACE_PATHS_MAX 4u
#define PLACE_SETS_MAX  40u

/* A daemon's rig, store and settings. */
struct place {
    struct rig rig;
    unsigned paths;                       /* paths of the storage tier; 0: no storage tier */
    char store[PLACE_PATHS_MAX][96];      /* directories of the paths */
    char list[PLACE_PATHS_MAX * 96];      /* the directories, separated by commas */
    char persist[64];                     /* host.persist, "" = off */
    char text[PLACE_SETS_MAX][480];       /* "key=value" */
    const char *sets[PLACE_SETS_MAX + 1]; /* NULL-terminated */
    unsigned nsets;
    char group[128]; /* control group that slows the daemon's disk down; "" = none */
};

/* Makes the directories and starts no daemon. persist: host memory is in a directory of /dev/shm,
 * so that it outlives the daemon. */
void place_make(struct place *p, unsigned paths, bool persist);
/* Adds a setting "key=value", made as by printf. A later one of the same key wins. */
void place_set(struct place *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void place_remove(struct place *p);
void place_forget_log(const struct place *p);

/* Starts the daemon as rig_begin() does; in the slowing control group if there is one. */
void place_begin(struct place *p, const char *fault);
/* Starts the daemon and waits. 0: it serves; else its wait status. */
int place_try(struct place *p, const char *fault);

/* Runs the daemon's own offline check of all paths. 0, or its exit status (256 + signal). Its
 * output goes to the rig's log. */
int place_check_store(struct place *p);

/* Whether no process locks the store. After a kill it stays locked while requests of the dead
 * process are on their way to the disk. */
bool place_is_free(const struct place *p);

/* Limits the daemon's writes to its store's disk to this rate, from the next start on. Call it
 * once. 0; -ENOTSUP with a reason: this machine cannot do that. */
int place_slow_down(struct place *p, uint64_t bytes_per_s, char ret_why[160]);

#endif
