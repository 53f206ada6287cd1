/* SPDX-License-Identifier: Apache-2.0 */
#include "secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "sys.h"

static int secret_make(const char *path, struct key256 *secret)
{
    int err = hash_random(secret->b, sizeof secret->b);
    if (err)
        return err;
    int fd = sys_open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return -errno;
    ssize_t n = write(fd, secret->b, sizeof secret->b);
    if (n < 0 || fsync(fd))
        err = -errno;
    if (!err && n != sizeof secret->b)
        err = -EIO;
    if (close(fd) && !err)
        err = -errno;
    if (err)
        unlink(path); /* half a secret would be refused at the next start */
    return err;
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
            LOG_ERROR("secret_file %s: %s", path, err_name(err));
    }
    if (!err)
        *ret_secret = secret;
    return err;
}
