/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a file of the command line for reading. Only regular files are accepted: reading a FIFO or
 * a terminal might wait for ever, and a file that cannot be read twice cannot be checked before it
 * is used. "-" is stdin, which is first copied to a temporary file.
 */
#ifndef MODEL_INFILE_H
#define MODEL_INFILE_H

#include <stdio.h>

/* 0, and the caller closes *ret_file with fclose(). Else a negative errno, with a text in *ret_why
 * (valid until the next call). -EISDIR: a directory; -EINVAL: not a regular file. */
__attribute__((warn_unused_result)) int infile_open(const char *path, FILE **ret_file,
                                                    const char **ret_why);

/* Reads a whole file: *ret_n bytes, which the caller frees. -errno as above; -EFBIG: it has more
 * than `most` bytes. */
__attribute__((warn_unused_result)) int infile_read(const char *path, size_t most, char **ret_text,
                                                    size_t *ret_n, const char **ret_why);

#endif
