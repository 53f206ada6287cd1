/* SPDX-License-Identifier: Apache-2.0 */
/* flock(2) with patience, and the small steps around files that must be durable. Any thread. */
#ifndef KVC_IO_DISK_LOCK_H
#define KVC_IO_DISK_LOCK_H

#include <sys/stat.h>

#include "err.h"

/* Locks (shared: against writers alone) through this descriptor; asks again every 20 ms for up to
 * wait_ms while another open file has it, and says so in the log after a second. -EBUSY: it still
 * has; or what flock(2) answered. `name` is for the log. */
KVC_WARN_UNUSED int disk_lock(int fd, const char *name, bool shared, uint32_t wait_ms);
/* One pause of that kind; false when `*waited_ms` has reached wait_ms. */
bool disk_lock_pause(const char *name, uint32_t wait_ms, uint32_t *waited_ms);

/* Which file or device it is, whatever its name. */
struct disk_id {
    dev_t dev;
    ino_t ino; /* 0: a device */
};
struct disk_id disk_id_of(const struct stat *st);
/* 0: the name leads to it, or that cannot be told. -ENOENT: to nothing, or to another file. */
int disk_id_at(const char *name, struct disk_id id);

/* fsync(2) of a descriptor, of a directory, of the directory that `path` stands in. */
KVC_WARN_UNUSED int disk_sync_fd(int fd);
KVC_WARN_UNUSED int disk_sync_dir(const char *dir);
KVC_WARN_UNUSED int disk_sync_parent(const char *path);

#endif
