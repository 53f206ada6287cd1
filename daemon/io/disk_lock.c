/* SPDX-License-Identifier: Apache-2.0 */
#include "disk_lock.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "sys.h"

#define PAUSE_MS 20u

bool disk_lock_pause(uint32_t wait_ms, uint32_t *waited_ms)
{
    if (*waited_ms >= wait_ms)
        return false;
    const uint32_t ms = MIN(PAUSE_MS, wait_ms - *waited_ms);
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
    *waited_ms += ms;
    return true;
}

int disk_lock(int fd, bool shared, uint32_t wait_ms)
{
    uint32_t waited_ms = 0;
    while (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (!disk_lock_pause(wait_ms, &waited_ms))
            return -EBUSY;
    }
    return 0;
}

int disk_sync_fd(int fd)
{
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
