/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An output file that appears whole or not at all. Bytes are written to a new file beside the
 * target, which replaces the target at the end. Until then, and after any failure, the target is
 * unchanged. If the target is a symlink, the file that it names is replaced. A target that is not a
 * regular file (a device, a FIFO) is written to directly, and never removed; opening a FIFO waits
 * for a reader. "-" is stdout, to which all bytes are copied at the end. One thread.
 */
#ifndef CTL_OUTFILE_H
#define CTL_OUTFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct outfile {
    FILE *file; /* to write to; NULL = not open */
    char target[PATH_MAX];
    char temp[PATH_MAX]; /* path of the new file; "" = the target itself is written to */
    bool to_stdout;      /* `file` is a temporary file, which outfile_keep() copies to stdout */
};

enum outfile_use {
    OUTFILE_STREAM, /* written from beginning to end */
    OUTFILE_PLACES  /* the caller seeks: -ESPIPE for an existing target that is no regular file */
};

/* Opens the new file. 0, or a negative errno with nothing changed. */
__attribute__((warn_unused_result)) int outfile_open(struct outfile *out, const char *path,
                                                     enum outfile_use use);
/* Closes the new file, which replaces the target. 0, or a negative errno and the target is
 * unchanged. */
__attribute__((warn_unused_result)) int outfile_keep(struct outfile *out);
/* Removes the new file, if one is open; the target is unchanged. */
void outfile_drop(struct outfile *out);

#endif
