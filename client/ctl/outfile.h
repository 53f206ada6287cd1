/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that appears whole or not at all. What is written goes to a new file beside the target,
 * which takes the target's place when all of it is there; until then, and when anything fails, the
 * target is what it was. A symlink stays, and the file that it names is replaced. A target that is
 * no regular file (a device, a FIFO) is written to as it is, and never removed; of a FIFO that
 * waits for who reads it. "-" is stdout, which gets all of it at the end. One thread.
 */
#ifndef CTL_OUTFILE_H
#define CTL_OUTFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

struct outfile {
    FILE *file; /* to write to; NULL = not open */
    char target[PATH_MAX];
    char temp[PATH_MAX]; /* "" = the target itself is written to */
    bool to_stdout;      /* a temporary file, which is copied there when it is whole */
};

enum outfile_use {
    OUTFILE_STREAM, /* written from its begin to its end */
    OUTFILE_PLACES  /* written in places: -ESPIPE for what is there and is no regular file */
};

/* 0, or a negative errno with nothing changed. */
__attribute__((warn_unused_result)) int outfile_open(struct outfile *out, const char *path,
                                                     enum outfile_use use);
/* Ends what was opened: 0 and the target is what was written, or a negative errno and it is what it
 * was before. */
__attribute__((warn_unused_result)) int outfile_keep(struct outfile *out);
/* Ends what was opened, if anything was: the target is what it was before. */
void outfile_drop(struct outfile *out);

#endif
