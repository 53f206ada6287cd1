/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of fuzz targets that are kept in files; README.md describes the packed form. A file that
 * cannot be read ends the process with a line on stderr. */
#ifndef KVC_FUZZ_CORPUS_H
#define KVC_FUZZ_CORPUS_H

#include <stddef.h>
#include <stdint.h>

struct corpus_input {
    uint8_t *bytes; /* allocated with exactly `len` bytes */
    size_t len;
    char *name; /* "FILE:LINE" of a packed file, else the file */
};

struct corpus {
    struct corpus_input *in;
    size_t n;
};

/* Adds the inputs of a packed file (its name ends in .txt), a file that is one input, or all files
 * of a directory. */
void corpus_add(struct corpus *c, const char *path);
/* Adds a copy of one input. */
void corpus_add_bytes(struct corpus *c, const char *name, const void *bytes, size_t len);
void corpus_free(struct corpus *c);

#endif
