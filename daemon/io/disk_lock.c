/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File locks with a bounded wait, and fsync of files and their directories; for storage and
 * journals.
 */
#include "disk_lock.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "log.h"
#include "sys.h"

#define PAUSE_MS 20u
#define LOUD_MS  1000u

bool disk_lock_pause(const char *name, uint32_t wait_ms, uint32_t *waited_ms)
{
    if (*waited_ms >= wait_ms)
        return false;
    const uint32_t ms = MIN(PAUSE_MS, wait_ms - *waited_ms);
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
    *waited_ms += ms;
    if (*waited_ms >= LOUD_MS && *waited_ms - ms < LOUD_MS)
        LOG_INFO("%s: another process has it; waiting up to %u s for it to let go", name,
                 wait_ms / 1000);
    return true;
}

int disk_lock(int fd, const char *name, bool shared, uint32_t wait_ms)
{
    uint32_t waited_ms = 0;
    MUST(fd >= 0);
    while (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (!disk_lock_pause(name, wait_ms, &waited_ms))
            return -EBUSY;
    }
    return 0;
}

struct disk_id disk_id_of(const struct stat *st)
{
    return S_ISBLK(st->st_mode) ? (struct disk_id){.dev = st->st_rdev}
                                : (struct disk_id){.dev = st->st_dev, .ino = st->st_ino};
}

int disk_id_at(const char *name, struct disk_id id)
{
    struct stat st;
    if (stat(name, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? -ENOENT : 0;
    const struct disk_id is = disk_id_of(&st);
    return is.dev == id.dev && is.ino == id.ino ? 0 : -ENOENT;
}

int disk_sync_fd(int fd)
{
    MUST(fd >= 0);
    if (FAULT(sync))
        return -EIO;
    return fsync(fd) < 0 ? -errno : 0;
}

int disk_sync_dir(const char *dir)
{
    const int fd = sys_open(dir, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return -errno;
    const int r = disk_sync_fd(fd);
    (void)close(fd);
    return r;
}

int disk_sync_parent(const char *path)
{
    char dir[PATH_MAX] = ".";
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    if (len >= sizeof dir)
        return -ENAMETOOLONG;
    if (len > 0) {
        memcpy(dir, path, len);
        dir[len] = '\0';
    }
    return disk_sync_dir(dir);
}
