/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `nvme.paths` names: the files and devices of the storage tier, and what lies beside the
 * first one. Looks at the file system and changes nothing. Before any other thread, or on the
 * control thread.
 */
#ifndef KVC_NVME_PATHS_H
#define KVC_NVME_PATHS_H

#include "config.h"
#include "disk_file.h"

#define NVME_PATH_FILE_BYTES (CONFIG_PATH_BYTES + 32)

#define NVME_PATHS_NAMES "names.db" /* beside the journal */

/* Fewer segments than these leave no room to move anything. */
#define NVME_PATHS_SEGMENTS_MIN 8u

enum nvme_place { NVME_PLACE_NONE, NVME_PLACE_DIR, NVME_PLACE_FILE, NVME_PLACE_DEVICE };

struct store_path {
    char given[CONFIG_PATH_BYTES];
    char file[NVME_PATH_FILE_BYTES]; /* the store: `given`, or the file in that directory */
    enum nvme_place place;
    int err; /* NONE: the positive errno of looking at it, or 0 for what is none of the three */
};

struct nvme_paths {
    struct store_path path[DISK_PATHS_MAX];
    uint32_t n;
    char journal[NVME_PATH_FILE_BYTES]; /* directory */
};

/* The directory of `path`, without its last slash; "/" stays. */
void nvme_paths_dir_of(const char *path, char ret[NVME_PATH_FILE_BYTES]);
/* Takes "/a,/b" apart and looks at each; spaces beside commas are passed over. journal "": beside
 * the first path's file. -EINVAL with `why` naming the entry: not absolute, empty, too long, given
 * twice, too many. */
KVC_WARN_UNUSED int nvme_paths_read(const char *list, const char *journal,
                                    struct nvme_paths *ret_paths, char *why, size_t why_cap);
/* The bits of those that `list` names, as nvme.paths does. -EINVAL with `why`: one is none of them.
 */
KVC_WARN_UNUSED int nvme_paths_find(const struct nvme_paths *paths, const char *list,
                                    uint32_t *ret_bits, char *why, size_t why_cap);
/* Bytes that the stores can grow to: what is free on their file systems, less what a journal and a
 * names.db that are to be made there take (that one only where a store is left beside it), and what
 * they have already; sizes of devices. */
uint64_t nvme_paths_room(const struct nvme_paths *paths);
/* The limit whose equal shares leave every store as large as the largest one is; 0: there is none
 * but on devices, which keep their size. */
uint64_t nvme_paths_kept(const struct nvme_paths *paths);
/* The least nvme.limit of use for so many paths, in whole MiB. */
uint64_t nvme_paths_least(const struct config *cfg, uint32_t paths);
/* Bytes that the file systems are short of when path i is to have bytes[i], and a journal is to be
 * made where there is none: of the one that is shortest, with a directory on it; 0: all fits, as
 * far as they say. */
uint64_t nvme_paths_missing(const struct nvme_paths *paths, const uint64_t *bytes,
                            char ret_dir[NVME_PATH_FILE_BYTES]);
/* The secret that outlives a run: beside the journal. */
void nvme_paths_secret(const struct nvme_paths *paths, char ret_file[NVME_PATH_FILE_BYTES]);

#endif
