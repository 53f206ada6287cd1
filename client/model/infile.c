/* SPDX-License-Identifier: Apache-2.0 */
#include "infile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFIFO:
        return "a FIFO";
    case S_IFSOCK:
        return "a socket";
    case S_IFCHR:
    case S_IFBLK:
        return "a device";
    default:
        return "of another kind";
    }
}

static int infile_fail(int error, const char **ret_why)
{
    *ret_why = strerror(-error);
    return error;
}

static int infile_judge(const struct stat *st, const char **ret_why)
{
    static char text[64];
    if (S_ISREG(st->st_mode))
        return 0;
    if (S_ISDIR(st->st_mode))
        return infile_fail(-EISDIR, ret_why);
    snprintf(text, sizeof(text), "must be a regular file, and is %s", kind(st->st_mode));
    *ret_why = text;
    return -EINVAL;
}

/* Copies stdin, up to its end, to a temporary file, because a pipe cannot be read at any offset. */
static int spool(FILE **ret_file, const char **ret_why)
{
    char piece[1 << 16];
    ssize_t n = 0;
    errno = 0;
    FILE *file = tmpfile();
    while (file && (n = read(STDIN_FILENO, piece, sizeof(piece))) > 0)
        if (fwrite(piece, 1, (size_t)n, file) != (size_t)n)
            break;
    if (!file || n != 0 || fflush(file) != 0) {
        int rc = infile_fail(errno ? -errno : -EIO, ret_why);
        if (file)
            (void)fclose(file);
        return rc;
    }
    rewind(file);
    *ret_file = file;
    return 0;
}

int infile_open(const char *path, FILE **ret_file, const char **ret_why)
{
    struct stat st;
    if (!strcmp(path, "-"))
        return spool(ret_file, ret_why);
    /* Judges the path before it opens it, because opening alone has an effect on some devices. */
    if (stat(path, &st) < 0)
        return infile_fail(-errno, ret_why);
    int rc = infile_judge(&st, ret_why);
    if (rc < 0)
        return rc;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0)
        return infile_fail(-errno, ret_why);
    /* Judges again, because the path may name another file by now. */
    rc = fstat(fd, &st) < 0 ? infile_fail(-errno, ret_why) : infile_judge(&st, ret_why);
    FILE *file = rc == 0 ? fdopen(fd, "rb") : NULL;
    if (!file) {
        rc = rc < 0 ? rc : infile_fail(-errno, ret_why);
        close(fd);
        return rc;
    }
    *ret_file = file;
    return 0;
}

int infile_read(const char *path, size_t most, char **ret_text, size_t *ret_n, const char **ret_why)
{
    static char longer[64];
    FILE *file = NULL;
    int rc = infile_open(path, &file, ret_why);
    if (!file)
        return rc;
    char *text = malloc(most + 1);
    const size_t n = text ? fread(text, 1, most + 1, file) : 0;
    if (!text)
        rc = infile_fail(-ENOMEM, ret_why);
    else if (ferror(file))
        rc = infile_fail(-EIO, ret_why);
    else if (n > most) {
        (void)snprintf(longer, sizeof(longer), "has more than %zu MiB", most >> 20);
        *ret_why = longer;
        rc = -EFBIG;
    }
    (void)fclose(file);
    if (rc < 0) {
        free(text);
        return rc;
    }
    *ret_text = text;
    *ret_n = n;
    return 0;
}
