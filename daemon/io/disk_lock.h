/* SPDX-License-Identifier: Apache-2.0 */
/* flock(2) with patience, and the small steps around files that must be durable. Any thread. */
#ifndef KVC_IO_DISK_LOCK_H
#define KVC_IO_DISK_LOCK_H

#include <sys/stat.h>

#include "err.h"

/* Takes the lock of this descriptor's file (shared: excludes writers alone). While another open
 * file has the lock, tries again every 20 ms for up to wait_ms; after a second the log says so.
 * -EBUSY: it is still locked; or the errno of flock(2). `name` is for the log. */
KVC_WARN_UNUSED int disk_lock(int fd, const char *name, bool shared, uint32_t wait_ms);
/* Makes one such pause; false: *waited_ms has reached wait_ms. */
bool disk_lock_pause(const char *name, uint32_t wait_ms, uint32_t *waited_ms);

/* Identifies a file or device, whatever its name. */
struct disk_id {
    dev_t dev;
    ino_t ino; /* 0: a device */
};
struct disk_id disk_id_of(const struct stat *st);
/* 0: `name` leads to the file `id`, or that is unknown. -ENOENT: it leads nowhere, or to another
 * file. */
int disk_id_at(const char *name, struct disk_id id);

/* fsync(2) of a descriptor, of a directory, of the directory that `path` stands in. */
KVC_WARN_UNUSED int disk_sync_fd(int fd);
KVC_WARN_UNUSED int disk_sync_dir(const char *dir);
KVC_WARN_UNUSED int disk_sync_parent(const char *path);

#endif
