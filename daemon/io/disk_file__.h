/* SPDX-License-Identifier: Apache-2.0 */
/* What disk_file.c (operations) and disk_file_open.c (opening a path) share. Loop's thread. */
#ifndef KVC_IO_DISK_FILE_PRIVATE_H
#define KVC_IO_DISK_FILE_PRIVATE_H

#include "disk_file.h"
#include "disk_lock.h"
#include "list.h"

/* One I/O with the loop. */
struct disk_io {
    struct loop_file_op file;
    struct disk_file *disk;
    struct disk_op *op;
    int fault; /* negative errno with which a test lets it fail; 0: none */
    struct disk_io *next;
};

struct disk_path {
    int fd;
    bool is_direct, is_device;
    bool made;       /* disk_file_open() made the file, and removes it when it fails */
    uint64_t before; /* length of the file when it was opened */
    uint64_t bytes;
    struct disk_id id; /* of the file or device: no two paths have the same */
    uint32_t inflight;
    struct disk_io *free; /* list: inflight_max less `inflight` of them */
    struct disk_op *queue_head;
    struct disk_op *queue_tail;
    char name[DISK_FILE_PATH_BYTES];
};

struct disk_file {
    struct disk disk; /* disk.paths: how many are open */
    struct loop *loop;
    bool readonly;
    uint32_t inflight_max;
    struct disk_io *ios;
    struct disk_path paths[DISK_PATHS_MAX];
    char note[2 * DISK_FILE_WHY_BYTES];
};

/* Opens and locks path i, and reads its size. disk_file_close() closes it if disk.paths counts it.
 * On failure the path is closed again, and ret_why (DISK_FILE_WHY_BYTES) says why. */
KVC_WARN_UNUSED int disk_file__open_path(struct disk_file *d, const struct disk_file_config *config,
                                         uint32_t i, char *ret_why);
/* The length of the file or device now; UINT64_MAX: unknown. */
uint64_t disk_file__length(const struct disk_path *p);
/* Gives an opened path its size. ret_why as above. */
KVC_WARN_UNUSED int disk_file__size_path(struct disk_file *d, const struct disk_file_config *config,
                                         uint32_t i, char *ret_why);

#endif
