/* SPDX-License-Identifier: Apache-2.0 */
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether the target is no regular file, so that it is written to directly under its own name: a
 * pipe behind /dev/stdout has no other. */
static bool is_stream(const char *path)
{
    struct stat there;
    return stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode);
}

/* The realpath() of a file that exists; else the name as it was given. */
static int resolve(const char *path, char target[PATH_MAX])
{
    struct stat link;
    if (!is_stream(path)) {
        if (realpath(path, target))
            return 0;
        if (errno != ENOENT || lstat(path, &link) == 0)
            return -errno; /* a dangling symlink, too */
    }
    int n = snprintf(target, PATH_MAX, "%s", path);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* Gives the new file the rights and the owner of the target, or those of any new file. */
static int dress(int fd, const struct stat *old)
{
    mode_t mask = umask(0);
    umask(mask);
    if (old && geteuid() == 0 && fchown(fd, old->st_uid, old->st_gid) < 0)
        return -errno;
    return fchmod(fd, old ? old->st_mode & 07777 : 0666 & ~mask) < 0 ? -errno : 0;
}

static int open_beside(struct outfile *out, const struct stat *old)
{
    const char *slash = strrchr(out->target, '/');
    int dir = slash ? (int)(slash - out->target) + 1 : 0;
    int n = snprintf(out->temp, sizeof(out->temp), "%.*s.%.200s.XXXXXX", dir, out->target,
                     out->target + dir);
    if (n < 0 || (size_t)n >= sizeof(out->temp)) {
        out->temp[0] = '\0';
        return -ENAMETOOLONG;
    }
    int fd = mkostemp(out->temp, O_CLOEXEC);
    if (fd < 0) {
        out->temp[0] = '\0';
        return -errno;
    }
    int rc = dress(fd, old);
    out->file = rc < 0 ? NULL : fdopen(fd, "w");
    if (out->file)
        return 0;
    rc = rc < 0 ? rc : -errno;
    close(fd);
    unlink(out->temp);
    out->temp[0] = '\0';
    return rc;
}

int outfile_open(struct outfile *out, const char *path, enum outfile_use use)
{
    struct stat old;
    out->file = NULL;
    out->temp[0] = '\0';
    out->to_stdout = !strcmp(path, "-");
    if (out->to_stdout) {
        out->file = tmpfile();
        return out->file ? 0 : -errno;
    }
    int rc = resolve(path, out->target);
    if (rc < 0)
        return rc;
    if (stat(out->target, &old) < 0)
        return errno == ENOENT ? open_beside(out, NULL) : -errno;
    if (S_ISDIR(old.st_mode))
        return -EISDIR;
    if (S_ISREG(old.st_mode))
        return access(out->target, W_OK) < 0 ? -errno : open_beside(out, &old);
    if (use == OUTFILE_PLACES)
        return -ESPIPE;
    int fd = open(out->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -errno;
    out->file = fdopen(fd, "w");
    if (out->file)
        return 0;
    rc = -errno;
    close(fd);
    return rc;
}

static int copy_out(FILE *file)
{
    char piece[1 << 16];
    size_t n;
    rewind(file);
    while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
        if (fwrite(piece, 1, n, stdout) != n)
            return errno ? -errno : -EIO;
    return ferror(file) ? -EIO : fflush(stdout) != 0 ? -errno : 0;
}

int outfile_keep(struct outfile *out)
{
    FILE *file = out->file;
    int rc = ferror(file) ? -EIO : 0;
    if (fflush(file) != 0)
        rc = -errno;
    if (rc == 0 && out->to_stdout)
        rc = copy_out(file);
    if (rc == 0 && out->temp[0] && fsync(fileno(file)) < 0)
        rc = -errno;
    out->file = NULL;
    if (fclose(file) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && out->temp[0] && rename(out->temp, out->target) < 0)
        rc = -errno;
    if (rc < 0 && out->temp[0])
        unlink(out->temp);
    out->temp[0] = '\0';
    return rc;
}

void outfile_drop(struct outfile *out)
{
    if (out->file)
        fclose(out->file);
    out->file = NULL;
    if (out->temp[0])
        unlink(out->temp);
    out->temp[0] = '\0';
}
