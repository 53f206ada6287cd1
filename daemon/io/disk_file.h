/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk_file: disk.h over the loop: directories, files and block devices.
 *
 * A path is a directory (the file `kvcache.store` in it is meant), a regular file, or a block
 * device. It is locked through the descriptor that its I/O uses. The kernel keeps that descriptor's
 * file, and so the lock, until the last I/O on it has ended, also when the process was killed. So
 * the process that holds the lock knows that no I/O of a predecessor is under way any more.
 *
 * Threads: all functions on the loop's thread; disk_file_probe() on any. Memory: all of it is
 * allocated in disk_file_open(). What fails is said in words and not logged.
 */
#ifndef KVC_IO_DISK_FILE_H
#define KVC_IO_DISK_FILE_H

#include "disk.h"
#include "loop.h"

#define DISK_FILE_NAME       "kvcache.store"
#define DISK_FILE_WHY_BYTES  384
#define DISK_FILE_INFLIGHT   64u
#define DISK_FILE_PATH_BYTES 4096u
#define DISK_FILE_HEAD_BYTES 131072u

struct disk_file_path {
    const char *name; /* borrowed until disk_file_close() */
    /* Bytes that the path shall hold, rounded down to whole pages. A missing file is made, and a
     * shorter one extended; a longer one keeps its end until disk_file_cut(). A device must not be
     * smaller. 0: the length of the file, or the size of the device. */
    uint64_t bytes;
};

struct disk_file_config {
    const struct disk_file_path *paths;
    uint32_t count; /* 1 to DISK_PATHS_MAX */
    uint32_t
        inflight_max; /* I/Os with the kernel per path, the rest waits; 0: DISK_FILE_INFLIGHT */
    uint32_t lock_wait_ms; /* for a predecessor's I/O to end */
    bool create;           /* makes files (0600) that are not there */
    bool readonly;         /* nothing is made, sized or written; a shared lock; writes: -EROFS */
    bool direct;           /* O_DIRECT where the file system takes it */
    /* Decides by its first DISK_FILE_HEAD_BYTES (zeroes behind its end) whether an existing file or
     * device may be sized and written: NULL, or in words why not. Called for all paths whose
     * beginning can be read, before any is sized. If the function is NULL, all may be
     * overwritten. */
    const char *(*problem)(const uint8_t *head, uint64_t bytes);
    /* The length of a store, as its beginning says; 0: it does not say. If the file is shorter, it
     * has lost its end, and disk_file_note() says that. If the function is NULL, no length is
     * known. */
    uint64_t (*length)(const uint8_t *head, uint64_t bytes);
};

struct disk_file;

/* Operations that the loop must have room for: its ops_max, beside what others need. */
uint32_t disk_file_ops(const struct disk_file_config *config);

/*
 * Borrows the loop until disk_file_close(). Blocks for up to lock_wait_ms, and while a file gets
 * its room. On failure `ret_why` names path and reason: -EINVAL (configuration, no such kind of
 * file, or something that may not be written over), -EBUSY (another process has it, or it is
 * mounted), -ENOSPC (no room, or the device is too small), -ENOENT, -ENOMEM, -EMFILE and what the
 * system answered; a file that was made for nothing is gone again, one that exists keeps the size
 * it had.
 */
KVC_WARN_UNUSED int disk_file_open(const struct disk_file_config *config, struct loop *loop,
                                   struct disk_file **ret_disk, char ret_why[DISK_FILE_WHY_BYTES]);
/* Undoes what disk_file_open() did to files, for a start that is given up: removes files that it
 * made, and cuts files that it extended to their former length. */
void disk_file_unmake(struct disk_file *disk);
/* No operation may be in flight (MUST): turn the loop until all are done. Accepts NULL. */
void disk_file_close(struct disk_file **disk);

struct disk *disk_file_disk(struct disk_file *disk);

/* The file or device that has the path's bytes (DIRECTORY/kvcache.store of a directory), and
 * whether its I/O bypasses the page cache. */
const char *disk_file_name(const struct disk_file *disk, uint32_t path);
bool disk_file_is_direct(const struct disk_file *disk, uint32_t path);
/* Cuts a file that is longer than the bytes that it shall hold. The caller has recovered its
 * contents first: a start that fails before that must leave the file as it was. 0 or a negative
 * errno. */
KVC_WARN_UNUSED int disk_file_cut(struct disk_file *disk, uint32_t path);
/* Frees the room of an empty file that will not be used; a device stays as it is. 0 or a negative
 * errno. */
KVC_WARN_UNUSED int disk_file_give_back(struct disk_file *disk, uint32_t path);
/* The bytes that the path was to hold when it was opened; and the length of its file or device now,
 * UINT64_MAX: unknown. */
uint64_t disk_file_bytes(const struct disk_file *disk, uint32_t path);
uint64_t disk_file_length(const struct disk_file *disk, uint32_t path);
/* What an operator should know: no O_DIRECT here, no reserved room there, a file that others may
 * read. "" when all is well. */
const char *disk_file_note(const struct disk_file *disk);

/* What a path is before it is opened, by which the default of nvme.limit is decided. */
struct disk_file_room {
    bool is_device;
    bool exists;                     /* the file does, or it is a device */
    uint64_t bytes;                  /* of the device, or of the file as it is */
    uint64_t free;                   /* bytes of the file system, without those kept for root; of a
                                      * device 0 */
    char file[DISK_FILE_PATH_BYTES]; /* as disk_file_name() */
};
KVC_WARN_UNUSED int disk_file_probe(const char *name, struct disk_file_room *ret_room,
                                    char ret_why[DISK_FILE_WHY_BYTES]);

#endif
