/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens one path of the storage tier: finds out whether it is a directory, a file or a device,
 * locks it, and gives it its size.
 */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "disk_file__.h"
#include "disk_lock.h"
#include "fault.h"
#include "sys.h"

#define PAGE_DOWN(x) ((x) / DISK_PAGE_BYTES * DISK_PAGE_BYTES)

/* One path while it is being opened. */
struct opening {
    const struct disk_file_config *config;
    const struct disk_file_path *want;
    struct disk_file *disk;
    struct disk_path *path;
    char *why;
};

__attribute__((format(printf, 3, 4))) static int refuse(char *ret_why, int err, const char *fmt,
                                                        ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(ret_why, DISK_FILE_WHY_BYTES, fmt, args);
    va_end(args);
    return err;
}

static int refuse_sys(const struct opening *o, int err, const char *what)
{
    return refuse(o->why, err, "%s: %s: %s", o->path->name, what, strerror(-err));
}

__attribute__((format(printf, 2, 3))) static void note(struct disk_file *d, const char *fmt, ...)
{
    const size_t used = strlen(d->note);
    MUST(used < sizeof d->note);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(d->note + used, sizeof d->note - used, fmt, args);
    va_end(args);
}

/* --- what a path is --- */

/* Finds the file that `name` means, and its stat. ret_st->st_mode 0: it does not exist. */
static int disk_file_open_look(const char *name, char ret_file[DISK_FILE_PATH_BYTES],
                               struct stat *ret_st, char *ret_why)
{
    struct stat st;
    int n = snprintf(ret_file, DISK_FILE_PATH_BYTES, "%s", name);
    const bool is_there = stat(name, &st) == 0;
    if (!is_there && errno != ENOENT)
        return refuse(ret_why, -errno, "%s: %s", name, strerror(errno));
    if (is_there && S_ISDIR(st.st_mode)) {
        const char *slash = name[0] && name[strlen(name) - 1] == '/' ? "" : "/";
        n = snprintf(ret_file, DISK_FILE_PATH_BYTES, "%s%s%s", name, slash, DISK_FILE_NAME);
        if (stat(ret_file, &st) != 0) {
            if (errno != ENOENT)
                return refuse(ret_why, -errno, "%s: %s", ret_file, strerror(errno));
            st.st_mode = 0;
        }
    } else if (!is_there) {
        if (name[0] == '\0' || name[strlen(name) - 1] == '/')
            return refuse(ret_why, -ENOENT, "%s: there is no such directory", name);
        st.st_mode = 0;
    }
    if (n < 0 || (size_t)n >= DISK_FILE_PATH_BYTES)
        return refuse(ret_why, -ENAMETOOLONG, "%s: the path is too long", name);
    if (st.st_mode != 0 && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return refuse(ret_why, -EINVAL,
                      "%s: is neither a directory, nor a regular file, nor a block device",
                      ret_file);
    *ret_st = st;
    return 0;
}

static int device_bytes(int fd, uint64_t *ret_bytes)
{
    uint64_t bytes = 0;
    if (ioctl(fd, BLKGETSIZE64, &bytes) < 0)
        return -errno;
    *ret_bytes = bytes;
    return 0;
}

static int room_of_device(struct disk_file_room *room, char *ret_why)
{
    const int fd = sys_open(room->file, O_RDONLY, 0);
    int r = fd < 0 ? -errno : device_bytes(fd, &room->bytes);
    if (fd >= 0)
        (void)close(fd);
    return r < 0 ? refuse(ret_why, r, "%s: %s", room->file, strerror(-r)) : 0;
}

static int room_of_fs(struct disk_file_room *room, char *ret_why)
{
    char dir[DISK_FILE_PATH_BYTES];
    struct statvfs fs;
    snprintf(dir, sizeof dir, "%s", room->file);
    char *slash = strrchr(dir, '/');
    if (slash)
        slash[slash == dir] = '\0';
    if (statvfs(slash ? dir : ".", &fs) < 0)
        return refuse(ret_why, -errno, "%s: %s", slash ? dir : ".", strerror(errno));
    room->free = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}

int disk_file_probe(const char *name, struct disk_file_room *ret_room,
                    char ret_why[DISK_FILE_WHY_BYTES])
{
    struct stat st;
    static const struct disk_file_room nothing;
    *ret_room = nothing;
    const int r = disk_file_open_look(name, ret_room->file, &st, ret_why);
    if (r < 0)
        return r;
    ret_room->exists = st.st_mode != 0;
    ret_room->is_device = S_ISBLK(st.st_mode);
    if (ret_room->is_device)
        return room_of_device(ret_room, ret_why);
    if (ret_room->exists)
        ret_room->bytes = (uint64_t)st.st_size;
    return room_of_fs(ret_room, ret_why);
}

/* --- opening --- */

/* O_EXCL refuses a device that is mounted, or whose killed predecessor still has I/O in flight. So
 * EBUSY is tried again, as for a lock. */
static int open_device(const struct opening *o, int flags)
{
    uint32_t waited_ms = 0;
    int fd;
    do {
        fd = sys_open(o->path->name, flags | O_EXCL, 0);
    } while (fd < 0 && errno == EBUSY &&
             disk_lock_pause(o->path->name, o->config->lock_wait_ms, &waited_ms));
    return fd < 0 ? -errno : fd;
}

static int disk_file_open_one(const struct opening *o, int flags, bool exists)
{
    if (exists || !o->config->create) {
        const int fd = sys_open(o->path->name, flags, 0);
        return fd < 0 ? -errno : fd;
    }
    const int fd = sys_open(o->path->name, flags | O_CREAT | O_EXCL, 0600);
    o->path->made = fd >= 0;
    return fd < 0 ? -errno : fd;
}

static int open_fd(const struct opening *o, bool exists)
{
    const int flags = o->config->readonly ? O_RDONLY : O_RDWR;
    int fd = o->path->is_device ? open_device(o, flags) : disk_file_open_one(o, flags, exists);
    if (fd == -EBUSY)
        return refuse(o->why, fd, "%s: is mounted, or in use by another program", o->path->name);
    if (fd == -ENOENT && !o->config->create)
        return refuse(o->why, fd, "%s: there is no store", o->path->name);
    if (fd < 0)
        return refuse_sys(o, fd, o->path->made || !exists ? "cannot be made" : "cannot be opened");
    o->path->fd = fd;
    return 0;
}

/* Sets O_DIRECT on the open descriptor, so that the lock and the I/O are on the same file. */
static void make_direct(const struct opening *o)
{
    const int flags = fcntl(o->path->fd, F_GETFL);
    o->path->is_direct = flags >= 0 && fcntl(o->path->fd, F_SETFL, flags | O_DIRECT) == 0;
    if (!o->path->is_direct)
        note(o->disk, "%s%s: no O_DIRECT here: I/O goes through the page cache",
             o->disk->note[0] ? "; " : "", o->path->name);
}

static int disk_file_open_lock(const struct opening *o)
{
    struct stat st;
    if (fstat(o->path->fd, &st) < 0)
        return refuse_sys(o, -errno, "fstat");
    o->path->id = disk_id_of(&st);
    for (uint32_t i = 0; i < o->disk->disk.paths; i++) {
        const struct disk_path *other = &o->disk->paths[i];
        if (other->id.dev == o->path->id.dev && other->id.ino == o->path->id.ino)
            return refuse(o->why, -EINVAL, "%s: is the same file as %s", o->path->name,
                          other->name);
    }
    const int r =
        disk_lock(o->path->fd, o->path->name, o->config->readonly, o->config->lock_wait_ms);
    if (r == -EBUSY)
        return refuse(o->why, r, "%s: is in use by another kvcache-daemon", o->path->name);
    return r < 0 ? refuse_sys(o, r, "flock") : 0;
}

/* --- its size --- */

static int size_device(const struct opening *o)
{
    uint64_t bytes = 0;
    const int r = device_bytes(o->path->fd, &bytes);
    if (r < 0)
        return refuse_sys(o, r, "its size");
    if (bytes < o->want->bytes)
        return refuse(o->why, -ENOSPC, "%s: has %llu bytes; %llu are asked for", o->path->name,
                      (unsigned long long)bytes, (unsigned long long)o->want->bytes);
    o->path->bytes = PAGE_DOWN(o->want->bytes ? o->want->bytes : bytes);
    return 0;
}

uint64_t disk_file__length(const struct disk_path *p)
{
    struct stat st;
    uint64_t bytes = UINT64_MAX;
    if (p->is_device)
        return device_bytes(p->fd, &bytes) < 0 ? UINT64_MAX : bytes;
    return fstat(p->fd, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

/* Makes the file at least `bytes` long, and reserves its room if the file system can. A longer file
 * keeps its length until disk_file_cut(). */
static int disk_file_open_reserve(const struct opening *o, uint64_t before, uint64_t bytes)
{
    if (sys_fallocate(o->path->fd, 0, (off_t)bytes) == 0)
        return 0;
    const int err = errno;
    if (err == EOPNOTSUPP) {
        note(o->disk, "%s%s: no room can be reserved here: it may run out while it is written",
             o->disk->note[0] ? "; " : "", o->path->name);
        return before < bytes && sys_ftruncate(o->path->fd, (off_t)bytes) < 0 ? -errno : 0;
    }
    /* Gives back the room that fallocate() took before it failed. */
    if (before < bytes && sys_ftruncate(o->path->fd, (off_t)before) < 0)
        return -errno;
    return -err;
}

static int size_file(const struct opening *o)
{
    struct stat st;
    if (fstat(o->path->fd, &st) < 0)
        return refuse_sys(o, -errno, "fstat");
    const uint64_t before = (uint64_t)st.st_size;
    const uint64_t bytes = PAGE_DOWN(o->want->bytes ? o->want->bytes : before);
    if (bytes == 0 && o->config->readonly)
        return refuse(o->why, -EINVAL, "%s: there is no store: it is empty", o->path->name);
    if (bytes == 0)
        return refuse(o->why, -EINVAL, "%s: how large it shall be is not given", o->path->name);
    if ((st.st_mode & 077) != 0 && !o->config->readonly)
        note(o->disk, "%s%s: others than its owner have rights to it (mode %04o; it wants 0600)",
             o->disk->note[0] ? "; " : "", o->path->name, (unsigned)(st.st_mode & 07777));
    if (o->config->readonly) {
        o->path->bytes = MIN(bytes, PAGE_DOWN(before));
        return 0;
    }
    int r = disk_file_open_reserve(o, before, bytes);
    if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG)
        return refuse(o->why, r, "%s: there is no room for %llu bytes: %s", o->path->name,
                      (unsigned long long)bytes, strerror(-r));
    if (r < 0)
        return refuse_sys(o, r, "cannot get its room");
    o->path->before = before;
    o->path->bytes = bytes;
    r = disk_sync_fd(o->path->fd);
    if (r == 0 && o->path->made)
        r = disk_sync_parent(o->path->name);
    return r < 0 ? refuse_sys(o, r, "fsync") : 0;
}

static void look_at_length(const struct opening *o, uint64_t wanted)
{
    const uint64_t found = disk_file__length(o->path);
    if (found < wanted)
        note(o->disk,
             "%s%s: has %llu bytes, and its store was made with %llu: somebody cut it, and what "
             "was behind is gone",
             o->disk->note[0] ? "; " : "", o->path->name, (unsigned long long)found,
             (unsigned long long)wanted);
}

/* Refuses a file with other content than a store: the path may be mistyped, and no other data may
 * be overwritten. */
static int look_inside(const struct opening *o)
{
    uint8_t *head = sys_calloc(1, DISK_FILE_HEAD_BYTES);
    uint64_t got = 0;
    ssize_t n = 0;
    if (!head)
        return refuse_sys(o, -ENOMEM, "its beginning");
    do {
        n = pread(o->path->fd, head + got, DISK_FILE_HEAD_BYTES - got, (off_t)got);
        got += n > 0 ? (uint64_t)n : 0;
    } while ((n > 0 && got < DISK_FILE_HEAD_BYTES) || (n < 0 && errno == EINTR));
    const char *problem = n < 0 ? NULL : o->config->problem(head, DISK_FILE_HEAD_BYTES);
    if (n >= 0 && !problem && o->config->length)
        look_at_length(o, o->config->length(head, DISK_FILE_HEAD_BYTES));
    free(head);
    return problem ? refuse(o->why, -EINVAL, "%s: %s", o->path->name, problem) : 0;
}

int disk_file__open_path(struct disk_file *d, const struct disk_file_config *config, uint32_t i,
                         char *ret_why)
{
    const struct opening o = {.config = config,
                              .want = &config->paths[i],
                              .disk = d,
                              .path = &d->paths[i],
                              .why = ret_why};
    struct stat st;
    MUST(i == d->disk.paths && i < DISK_PATHS_MAX && o.path->fd < 0);
    int r = disk_file_open_look(o.want->name, o.path->name, &st, ret_why);
    if (r < 0)
        return r;
    o.path->is_device = S_ISBLK(st.st_mode);
    r = open_fd(&o, st.st_mode != 0);
    if (r < 0)
        return r;
    r = disk_file_open_lock(&o);
    if (r == 0 && config->problem && !config->readonly && !o.path->made)
        r = look_inside(&o);
    if (r < 0) {
        if (o.path->made)
            (void)unlink(o.path->name);
        (void)close(o.path->fd);
        o.path->fd = -1;
    }
    return r;
}

int disk_file__size_path(struct disk_file *d, const struct disk_file_config *config, uint32_t i,
                         char *ret_why)
{
    const struct opening o = {.config = config,
                              .want = &config->paths[i],
                              .disk = d,
                              .path = &d->paths[i],
                              .why = ret_why};
    MUST(i < d->disk.paths && o.path->fd >= 0 && o.path->inflight == 0);
    const int r = o.path->is_device ? size_device(&o) : size_file(&o);
    if (r == 0 && config->direct)
        make_direct(&o);
    return r;
}
