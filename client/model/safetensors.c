/* SPDX-License-Identifier: Apache-2.0 */
#include "safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "file_kind.h"

#define LENGTH_BYTES 8u
#define ALIGN        8u /* alignment of the data in the file; the header is padded with spaces */

/* Bits of an element. Types below one byte are missing, because nothing here needs them. */
static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

static uint32_t type_bytes(const char *name)
{
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].bytes;
    return 0;
}

/* ---- reading ---- */

static int st_bad(char why[ST_WHY_BYTES], const char *text)
{
    snprintf(why, ST_WHY_BYTES, "%s", text);
    return -EINVAL;
}

static int bad_tensor(char why[ST_WHY_BYTES], const char *name, const char *text)
{
    snprintf(why, ST_WHY_BYTES, "tensor '%.60s': %s", name, text);
    return -EINVAL;
}

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v = 0;
    for (unsigned i = LENGTH_BYTES; i-- > 0;)
        v = v << 8 | p[i];
    return v;
}

/* Reads the value as an unsigned integer; false: it is not one. */
static bool unsigned_at(const json_t *array, size_t i, uint64_t *ret)
{
    const json_t *v = json_array_get(array, i);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

/* Reads a tensor's shape. *ret_bytes: the bytes of its elements, which the offsets must span. */
static int take_shape(const json_t *shape, struct st_tensor *t, uint64_t *ret_bytes)
{
    uint64_t bytes = type_bytes(t->dtype);
    if (!json_is_array(shape) || json_array_size(shape) > ST_DIMS_MAX)
        return -EINVAL;
    t->dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < t->dims; i++)
        if (!unsigned_at(shape, i, &t->shape[i]) ||
            __builtin_mul_overflow(bytes, t->shape[i], &bytes))
            return -EINVAL;
    *ret_bytes = bytes;
    return 0;
}

static int take_tensor(const char *name, const json_t *value, uint64_t data_bytes, char *why,
                       struct st_tensor *t)
{
    const json_t *offsets = json_object_get(value, "data_offsets");
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    uint64_t end = 0, bytes = 0;
    *t = (struct st_tensor){.begin = 0};
    if (strlen(name) >= sizeof(t->name))
        return bad_tensor(why, name, "its name is too long");
    if (!dtype || strlen(dtype) >= sizeof(t->dtype) || type_bytes(dtype) == 0)
        return bad_tensor(why, name, "its dtype is none that is known");
    memcpy(t->name, name, strlen(name) + 1);
    memcpy(t->dtype, dtype, strlen(dtype) + 1);
    if (take_shape(json_object_get(value, "shape"), t, &bytes) < 0)
        return bad_tensor(why, name, "its shape is no array of sizes, or too large");
    if (json_array_size(offsets) != 2 || !unsigned_at(offsets, 0, &t->begin) ||
        !unsigned_at(offsets, 1, &end) || end < t->begin || end > data_bytes)
        return bad_tensor(why, name, "its data_offsets do not lie in the file");
    if (end - t->begin != bytes)
        return bad_tensor(why, name, "its data_offsets are not as long as dtype and shape say");
    t->bytes = bytes;
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Checks that tensors leave no holes and do not overlap, as the format demands. */
static int check_layout(const struct st_header *h, char *why)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < h->tensors; at += h->tensor[i].bytes, i++)
        if (h->tensor[i].begin != at)
            return bad_tensor(why, h->tensor[i].name,
                              "it does not begin where the one before ends");
    return at == h->data_bytes ? 0 : st_bad(why, "the tensors do not fill the file");
}

static int take_metadata(const json_t *root, char *why, struct st_header *h)
{
    const char *key;
    json_t *value;
    json_t *metadata = json_object_get(root, "__metadata__");
    if (metadata && !json_is_object(metadata))
        return st_bad(why, "__metadata__ is no object");
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return st_bad(
        why, "__metadata__ has a value that is no text");
    h->metadata = metadata ? json_incref(metadata) : json_object();
    return h->metadata ? 0 : -ENOMEM;
}

static int take_header(json_t *root, char *why, struct st_header *h)
{
    const char *key;
    json_t *value;
    int rc =
        json_is_object(root) ? take_metadata(root, why, h) : st_bad(why, "the header is no object");
    if (rc == 0 && json_object_size(root) > ST_TENSORS_MAX)
        rc = st_bad(why, "it has too many tensors");
    if (rc == 0)
        h->tensor = calloc(json_object_size(root) + 1, sizeof(*h->tensor));
    if (rc == 0 && !h->tensor)
        rc = -ENOMEM;
    if (rc < 0)
        return rc;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        rc = take_tensor(key, value, h->data_bytes, why, &h->tensor[h->tensors++]);
        if (rc < 0)
            return rc;
    }
    qsort(h->tensor, h->tensors, sizeof(*h->tensor), by_begin);
    return check_layout(h, why);
}

/* Returns the size of the file, and sets its position to the beginning. -errno. */
static int64_t size_of(FILE *file)
{
    if (fseeko(file, 0, SEEK_END) != 0)
        return -errno;
    const int64_t end = ftello(file);
    return fseeko(file, 0, SEEK_SET) != 0 || end < 0 ? -errno : end;
}

/* A hint about the kind of the file, from its first bytes; none if the file cannot seek back. */
static const char *safetensors_hint_of(FILE *file)
{
    char begin[128];
    const size_t n = fseeko(file, 0, SEEK_SET) == 0 ? fread(begin, 1, sizeof(begin), file) : 0;
    return file_kind_text_hint(begin, n);
}

static int load_header(FILE *file, char *why, struct st_header *h, char **ret_text, size_t *ret_len)
{
    uint8_t length[LENGTH_BYTES];
    const int64_t size = size_of(file);
    if (size < 0)
        return (int)size;
    if (size < (int64_t)LENGTH_BYTES || fread(length, 1, LENGTH_BYTES, file) != LENGTH_BYTES) {
        snprintf(why, ST_WHY_BYTES, "it is too short to be a safetensors file%s",
                 safetensors_hint_of(file));
        return -EINVAL;
    }
    const uint64_t n = load_u64(length);
    if (n > ST_HEADER_MAX || n > (uint64_t)size - LENGTH_BYTES) {
        snprintf(why, ST_WHY_BYTES,
                 "it is no safetensors file, or cut off: its header does not fit in it%s",
                 safetensors_hint_of(file));
        return -EINVAL;
    }
    char *text = malloc(n + 1);
    if (!text)
        return -ENOMEM;
    if (fread(text, 1, n, file) != n) {
        free(text);
        return ferror(file) ? -EIO : st_bad(why, "it is cut off in its header");
    }
    if (n == 0 || text[0] != '{') {
        free(text);
        return st_bad(why, "it is no safetensors file: its header does not begin with '{'");
    }
    h->data_at = LENGTH_BYTES + n;
    h->data_bytes = (uint64_t)size - h->data_at;
    *ret_text = text;
    *ret_len = n;
    return 0;
}

int st_read(FILE *file, char why[ST_WHY_BYTES], struct st_header *ret_header)
{
    struct st_header h = {.metadata = NULL};
    json_error_t error;
    char *text = NULL;
    size_t n = 0;
    why[0] = '\0';
    int rc = load_header(file, why, &h, &text, &n);
    json_t *root = rc == 0 ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &error) : NULL;
    if (rc == 0 && !root) {
        snprintf(why, ST_WHY_BYTES, "its header is no JSON: %.160s", error.text);
        rc = -EINVAL;
    }
    if (rc == 0)
        rc = take_header(root, why, &h);
    json_decref(root);
    free(text);
    if (rc < 0) {
        if (why[0] == '\0')
            snprintf(why, ST_WHY_BYTES, "%s", strerror(-rc));
        st_free(&h);
        return rc;
    }
    *ret_header = h;
    return 0;
}

void st_free(struct st_header *header)
{
    json_decref(header->metadata);
    free(header->tensor);
    *header = (struct st_header){.metadata = NULL};
}

const struct st_tensor *st_find(const struct st_header *header, const char *name)
{
    for (uint32_t i = 0; i < header->tensors; i++)
        if (strcmp(header->tensor[i].name, name) == 0)
            return &header->tensor[i];
    return NULL;
}

const char *st_text(const struct st_header *header, const char *key)
{
    return json_string_value(json_object_get(header->metadata, key));
}

/* ---- writing ---- */

static json_t *tensor_json(const struct st_tensor *t, uint64_t begin)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->dims; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->shape[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype, "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)begin + (json_int_t)t->bytes);
}

static int write_text(FILE *file, const char *text, uint64_t *ret_bytes)
{
    const uint64_t used = strlen(text), n = (used + ALIGN - 1) / ALIGN * ALIGN;
    uint8_t length[LENGTH_BYTES];
    if (n > ST_HEADER_MAX)
        return -E2BIG;
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        length[i] = (uint8_t)(n >> 8 * i);
    if (fseeko(file, 0, SEEK_SET) != 0)
        return -errno;
    if (fwrite(length, 1, LENGTH_BYTES, file) != LENGTH_BYTES ||
        fprintf(file, "%s%*s", text, (int)(n - used), "") < 0)
        return errno ? -errno : -EIO;
    *ret_bytes = LENGTH_BYTES + n;
    return 0;
}

int st_write_header(FILE *file, const json_t *metadata, const struct st_tensor *tensor,
                    uint32_t tensors, uint64_t *ret_bytes)
{
    json_t *root = json_object();
    uint64_t at = 0;
    int rc = root ? json_object_set(root, "__metadata__", (json_t *)(uintptr_t)metadata) : -1;
    for (uint32_t i = 0; rc == 0 && i < tensors; at += tensor[i].bytes, i++)
        rc = json_object_set_new(root, tensor[i].name, tensor_json(&tensor[i], at));
    char *text = rc == 0 ? json_dumps(root, JSON_COMPACT) : NULL;
    rc = text ? write_text(file, text, ret_bytes) : -ENOMEM;
    free(text);
    json_decref(root);
    return rc;
}
