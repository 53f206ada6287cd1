/* SPDX-License-Identifier: Apache-2.0 */
/* The section of `stats` about the paths of the storage tier. One thread. */
#ifndef CTL_PATHS_H
#define CTL_PATHS_H

#include "rows.h"

struct json_t;

struct paths {
    struct rows rows; /* empty: there is no storage tier */
    struct kvc_writes writes;
};

/* Asks the daemon for its storage paths. 0, or an error of the library. paths_free() frees them. */
__attribute__((warn_unused_result)) int paths_take(struct ctl *ctl, struct paths *ret_paths);
void paths_free(struct paths *p);
/* Prints a table of the paths; nothing if there are none. */
void paths_print(const struct paths *p, bool colour);
/* Writes why a path is out of service, and what to do, in the words of the daemon's log. */
#define PATHS_OUT_BYTES 1024u
void paths_out_text(const struct kvc_path *path, char *text, size_t cap);
/* {"paths": [...], "writes": {...}}, owned by the caller. */
struct json_t *paths_json(const struct paths *p);

#endif
