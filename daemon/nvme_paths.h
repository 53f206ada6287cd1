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
    int err; /* with NVME_PLACE_NONE: the positive errno of stat(2); 0: a file of another type */
};

struct nvme_paths {
    struct store_path path[DISK_PATHS_MAX];
    uint32_t n;
    char journal[NVME_PATH_FILE_BYTES]; /* directory */
};

/* The directory of `path`, without its last slash; "/" stays. */
void nvme_paths_dir_of(const char *path, char ret[NVME_PATH_FILE_BYTES]);
/* Parses "/a,/b" and looks at each path; spaces beside commas are ignored. journal "": beside
 * the first path's file. -EINVAL with `why` naming the entry: not absolute, empty, too long, given
 * twice, too many. */
KVC_WARN_UNUSED int nvme_paths_read(const char *list, const char *journal,
                                    struct nvme_paths *ret_paths, char *why, size_t why_cap);
/* Bit i of *ret_bits: `list` names path i, in the spelling of nvme.paths. -EINVAL with `why`: an
 * entry is none of the paths. */
KVC_WARN_UNUSED int nvme_paths_find(const struct nvme_paths *paths, const char *list,
                                    uint32_t *ret_bits, char *why, size_t why_cap);
/* Bytes that the stores can grow to: what they have, and what is free on their file systems, less
 * the room of a journal and a names.db that are to be made there (of names.db only where that
 * leaves room for a store); and the sizes of devices. */
uint64_t nvme_paths_room(const struct nvme_paths *paths);
/* The nvme.limit whose equal shares give every file the size of the largest store file; devices add
 * at most their own size. 0: no store file exists. */
uint64_t nvme_paths_kept(const struct nvme_paths *paths);
/* The smallest useful nvme.limit for so many paths, in whole MiB. */
uint64_t nvme_paths_least(const struct config *cfg, uint32_t paths);
/* Bytes that are missing where path i is to have bytes[i] and a missing journal is made: of the
 * file system that lacks most, with a directory on it in ret_dir. 0: all of them report enough
 * room. */
uint64_t nvme_paths_missing(const struct nvme_paths *paths, const uint64_t *bytes,
                            char ret_dir[NVME_PATH_FILE_BYTES]);
/* The file of the secret that outlives a run: beside the journal. */
void nvme_paths_secret(const struct nvme_paths *paths, char ret_file[NVME_PATH_FILE_BYTES]);

#endif
