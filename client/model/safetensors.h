/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors files: a u64 little-endian with the bytes of a header, the header (one JSON object:
 * name -> dtype, shape, data_offsets, and "__metadata__" with texts), and the tensors, one behind
 * the other. Written by the published format, so that every reader of it takes the file; what is
 * read is believed in nothing: each length is checked against the file. One thread.
 */
#ifndef MODEL_SAFETENSORS_H
#define MODEL_SAFETENSORS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json_t;

#define ST_MUST_USE __attribute__((warn_unused_result))

/* Of a header; readers elsewhere have the same limit. */
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
    uint64_t begin, bytes; /* in the data: behind the header */
};

struct st_header {
    struct json_t *metadata; /* an object of texts; never NULL after st_read */
    struct st_tensor *tensor;
    uint32_t tensors;
    uint64_t data_at; /* in the file, of the first tensor's first byte */
    uint64_t data_bytes;
};

/* The header of a file that can be sought in. 0, or -errno (-EINVAL: no such file) with `why`
 * saying what is wrong and nothing to be freed. */
ST_MUST_USE int st_read(FILE *file, char why[ST_WHY_BYTES], struct st_header *ret_header);
/* Accepts what st_read() has not filled, if it is zero. */
void st_free(struct st_header *header);
/* NULL: there is none of that name. */
const struct st_tensor *st_find(const struct st_header *header, const char *name);
/* A text of the metadata, NULL if there is none. Borrowed. */
const char *st_text(const struct st_header *header, const char *key);

/* Writes the header at the file's beginning, and leaves the file there where the data begins. Of
 * the tensors the names, dtypes, shapes and bytes count; they lie in the order given. The same
 * names and shapes and metadata of the same lengths make a header of the same length: so it can be
 * written again when all texts are known. *ret_bytes: header and what is before it. -errno;
 * -E2BIG. */
ST_MUST_USE int st_write_header(FILE *file, const struct json_t *metadata,
                                const struct st_tensor *tensor, uint32_t tensors,
                                uint64_t *ret_bytes);

#endif
