/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A safetensors file, and a document in it, as 'kvcachectl doc import' reads them. What is refused
 * has a reason, and leaves nothing behind; of what is taken each block lies in the file, and
 * written again it reads the same.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "docfile.h"
#include "fuzz.h"

static FILE *file_of(const void *bytes, size_t n)
{
    const int fd = memfd_create("document", MFD_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "w+") : NULL;
    FUZZ_CHECK(file != NULL && fwrite(bytes, 1, n, file) == n && fflush(file) == 0, "no file");
    return file;
}

static void check_header(const struct st_header *h, size_t size)
{
    uint64_t at = 0;
    FUZZ_CHECK(h->metadata != NULL && h->data_at + h->data_bytes == size, "data of %llu bytes",
               (unsigned long long)h->data_bytes);
    for (uint32_t i = 0; i < h->tensors; i++) {
        const struct st_tensor *t = &h->tensor[i];
        FUZZ_CHECK(t->begin == at && t->bytes <= h->data_bytes - at && t->dims <= ST_DIMS_MAX,
                   "tensor %u begins at %llu", i, (unsigned long long)t->begin);
        FUZZ_CHECK(st_find(h, t->name) == t, "tensor %u is not found by its name", i);
        at += t->bytes;
    }
    FUZZ_CHECK(at == h->data_bytes, "holes");
}

/* The same document from a header of our own making. */
static void check_again(const struct docfile *doc, uint64_t data_bytes)
{
    struct st_tensor *tensor = calloc(docfile_tensors(doc, NULL), sizeof(*tensor));
    json_t *metadata = docfile_metadata(doc);
    char why[ST_WHY_BYTES];
    struct st_header h = {.metadata = NULL};
    struct docfile again;
    uint64_t bytes = 0;
    FILE *file = file_of("", 0);
    FUZZ_CHECK(tensor != NULL && metadata != NULL, "no memory");
    const uint32_t tensors = docfile_tensors(doc, tensor);
    FUZZ_CHECK(st_write_header(file, metadata, tensor, tensors, &bytes) == 0 && fflush(file) == 0,
               "cannot be written");
    FUZZ_CHECK(bytes % 8 == 0 && ftruncate(fileno(file), (off_t)(bytes + data_bytes)) == 0,
               "a header of %llu bytes", (unsigned long long)bytes);
    FUZZ_CHECK(st_read(file, why, &h) == 0, "what was written is refused: %s", why);
    FUZZ_CHECK(docfile_load(&h, why, &again) == 0, "what was written is refused: %s", why);
    json_t *same = docfile_metadata(&again);
    FUZZ_CHECK(same != NULL && json_equal(same, metadata) && json_equal(metadata, h.metadata),
               "it differs");
    json_decref(same);
    json_decref(metadata);
    docfile_free(&again);
    st_free(&h);
    free(tensor);
    fclose(file);
}

/* As somebody would who means it: else hardly anything changed would be taken. */
static void mend_sum(struct st_header *h)
{
    char sum[DOC_HEADER_SUM_BYTES];
    FUZZ_CHECK(docfile_sum(h->metadata, sum) == 0, "no sum");
    FUZZ_CHECK(json_object_set_new(h->metadata, "header_sum", json_string(sum)) == 0, "no memory");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[ST_WHY_BYTES] = "";
    struct st_header h = {.metadata = NULL};
    struct docfile doc;
    FILE *file = file_of(data, size);
    if (st_read(file, why, &h) < 0) {
        FUZZ_CHECK(why[0] != '\0' && h.metadata == NULL && h.tensor == NULL, "no reason");
        fuzz_tally.refused++;
        fclose(file);
        return 0;
    }
    check_header(&h, size);
    int rc = docfile_load(&h, why, &doc);
    if (rc == -EBADMSG) {
        docfile_free(&doc);
        mend_sum(&h);
        rc = docfile_load(&h, why, &doc);
    }
    if (rc == 0) {
        check_again(&doc, h.data_bytes);
        fuzz_tally.taken++;
    } else {
        FUZZ_CHECK(why[0] != '\0', "no reason");
        fuzz_tally.refused++;
    }
    docfile_free(&doc);
    st_free(&h);
    fclose(file);
    return 0;
}
