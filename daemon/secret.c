/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "remedy.h"
#include "sys.h"

static int sync_directory_of(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const size_t len = slash ? (size_t)(slash - path) : 1;
    if (len >= sizeof dir)
        return -ENAMETOOLONG;
    memcpy(dir, slash ? path : ".", len);
    dir[len] = '\0';
    int fd = sys_open(len ? dir : "/", O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return -errno;
    int err = fsync(fd) ? -errno : 0;
    close(fd);
    return err;
}

static int secret_write(const char *path, const struct key256 *secret)
{
    int fd = sys_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int err = 0;
    ssize_t n = write(fd, secret->b, sizeof secret->b);
    if (n < 0 || fsync(fd))
        err = -errno;
    if (!err && n != sizeof secret->b)
        err = -EIO;
    if (close(fd) && !err)
        err = -errno;
    return err;
}

/* Written aside and renamed: a start that is killed half way leaves no half secret, which the next
 * one would refuse. */
static int secret_make(const char *path, struct key256 *secret)
{
    char aside[PATH_MAX];
    int n = snprintf(aside, sizeof aside, "%s.new", path);
    if (n < 0 || (size_t)n >= sizeof aside)
        return -ENAMETOOLONG;
    int err = hash_random(secret->b, sizeof secret->b);
    if (!err)
        err = secret_write(aside, secret);
    if (!err && rename(aside, path))
        err = -errno;
    if (err)
        unlink(aside);
    return err ? err : sync_directory_of(path);
}

static int secret_read(int fd, const char *path, struct key256 *secret)
{
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    if (st.st_mode & 077) {
        LOG_ERROR("secret_file %s: others can read it; chmod 600 it, or name another", path);
        return -EPERM;
    }
    if (!S_ISREG(st.st_mode) || st.st_size != sizeof secret->b ||
        read(fd, secret->b, sizeof secret->b) != sizeof secret->b) {
        LOG_ERROR("secret_file %s: expected a file of 32 bytes; remove it to have one made", path);
        return -EINVAL;
    }
    return 0;
}

int secret_load(const char *path, struct key256 *ret_secret)
{
    char remedy[REMEDY_BYTES];
    struct key256 secret;
    int err;
    if (!path[0]) {
        err = hash_random(secret.b, sizeof secret.b);
    } else {
        int fd = sys_open(path, O_RDONLY | O_NOFOLLOW, 0);
        err = fd >= 0           ? secret_read(fd, path, &secret)
              : errno == ENOENT ? secret_make(path, &secret)
                                : -errno;
        if (fd >= 0)
            close(fd);
        if (err)
            LOG_ERROR("secret_file %s: %s%s", path, err_name(err),
                      remedy_of(err, path, false, remedy));
    }
    if (!err)
        *ret_secret = secret;
    return err;
}
