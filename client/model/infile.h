/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that the command line names, to be read. Only a regular one: a FIFO or a terminal would be
 * waited for without end, and what cannot be read twice cannot be checked before it is used. "-" is
 * stdin: what comes there is kept in a temporary file first.
 */
#ifndef MODEL_INFILE_H
#define MODEL_INFILE_H

#include <stdio.h>

/* 0 and *ret_file, to be closed by fclose(). Else a negative errno, and *ret_why says it (static,
 * until the next call): -EISDIR, and -EINVAL for what is neither a directory nor a regular file. */
__attribute__((warn_unused_result)) int infile_open(const char *path, FILE **ret_file,
                                                    const char **ret_why);

/* All of such a file, to be freed, and *ret_n bytes. -errno; -EFBIG: it has more than `most`. */
__attribute__((warn_unused_result)) int infile_read(const char *path, size_t most, char **ret_text,
                                                    size_t *ret_n, const char **ret_why);

#endif
