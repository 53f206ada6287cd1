/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: the size of the header as a u64 (little-endian), the header (one JSON object:
 * name -> dtype, shape, data_offsets, and "__metadata__" with texts), and the tensors, one behind
 * another. Files are written in the published format, so that other readers accept them. A file
 * that is read is not trusted: each length is checked against the file. One thread.
 */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json_t;

#define ST_MUST_USE __attribute__((warn_unused_result))

/* The most bytes of a header; other readers have the same limit. */
#define ST_HEADER_MAX  100000000u
#define ST_TENSORS_MAX 4096u
#define ST_NAME_BYTES  64u
#define ST_DIMS_MAX    8u
#define ST_WHY_BYTES   256u

struct st_tensor {
    char name[ST_NAME_BYTES];
    char dtype[8]; /* "U8", "BF16", ... */
    uint32_t dims;
    uint64_t shape[ST_DIMS_MAX];
    uint64_t begin, bytes; /* place in the data, which begins behind the header; size */
};

struct st_header {
    struct json_t *metadata; /* an object of texts; never NULL after st_read */
    struct st_tensor *tensor;
    uint32_t tensors;
    uint64_t data_at; /* where in the file the data begins */
    uint64_t data_bytes;
};

/* Reads the header of a file, in which it seeks. 0, and st_free() frees the header; or -errno
 * (-EINVAL: not a safetensors file) with `why`, and nothing is to be freed. */
ST_MUST_USE int st_read(FILE *file, char why[ST_WHY_BYTES], struct st_header *ret_header);
/* Accepts a struct that is all zero. */
void st_free(struct st_header *header);
/* The tensor of that name; NULL: there is none. */
const struct st_tensor *st_find(const struct st_header *header, const char *name);
/* A text of the metadata, borrowed; NULL: there is none. */
const char *st_text(const struct st_header *header, const char *key);

/* Writes the header at the file's beginning, and leaves the file's position where the data begins.
 * Reads name, dtype, shape and bytes of each tensor; the tensors lie in the order given. Equal
 * names and shapes, and metadata of equal lengths, give a header of equal length, so the caller can
 * write it again later with other texts. *ret_bytes: where the data begins. -errno; -E2BIG. */
ST_MUST_USE int st_write_header(FILE *file, const struct json_t *metadata,
                                const struct st_tensor *tensor, uint32_t tensors,
                                uint64_t *ret_bytes);

#endif
