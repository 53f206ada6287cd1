/* SPDX-License-Identifier: Apache-2.0 */
/* Reads token ids from a file of numbers or of JSON, for --tokens; says what a wrong file seems to
 * be. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "file_kind.h"

/* As many ids as one message to the daemon can carry. */
#define IDS_MAX (KVC_MESSAGE_MAX / sizeof(uint32_t))

/* A static text that says what the file seems to be, by its first bytes. Seeks back to its
 * beginning. */
static const char *tokens_hint_of(FILE *file)
{
    char begin[128];
    rewind(file);
    const char *hint = file_kind_text_hint(begin, fread(begin, 1, sizeof(begin), file));
    rewind(file);
    return hint;
}

static int from_json(const char *path, FILE *file, uint32_t **ret_ids, uint32_t *ret_n)
{
    const char *hint = tokens_hint_of(file);
    json_error_t error;
    json_t *array = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    const size_t n = json_array_size(array);
    uint32_t *ids = n > 0 && n <= IDS_MAX ? malloc(n * sizeof(*ids)) : NULL;
    size_t i = 0;
    for (; ids && i < n; i++) {
        const json_t *v = json_array_get(array, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
            break;
        ids[i] = (uint32_t)json_integer_value(v);
    }
    const bool good = ids && i == n;
    int rc = 0;
    if (!array)
        rc = ctl_usage("%s: no JSON: %s (line %d)%s", path, error.text, error.line, hint);
    else if (n == 0 || n > IDS_MAX)
        rc = ctl_usage("%s: must be a JSON array of 1 to %zu token ids", path, IDS_MAX);
    else if (!good)
        rc = ctl_usage("%s: element %zu is no token id (0 to 4294967295)", path, i);
    json_decref(array);
    if (rc != 0) {
        free(ids);
        return rc;
    }
    *ret_ids = ids;
    *ret_n = (uint32_t)n;
    return 0;
}

/* Whether all bytes are digits and separators: binary ids of no model look so. */
static bool is_text(const uint8_t *bytes, size_t n)
{
    size_t i = 0;
    while (i < n && bytes[i] != '\0' && strchr("0123456789,; \t\r\n[]", bytes[i]))
        i++;
    return i == n;
}

/* For an error message: what else the file may be, if its first id is above those of any model. */
static const char *tokens_kind_of(const uint8_t *bytes, size_t n)
{
    const bool far = n >= 4 && (bytes[2] >= 8 || bytes[3] != 0);
    const char *hint = far ? file_kind_hint(bytes, n) : "";
    return hint[0] || !is_text(bytes, n) ? hint : "; it is text";
}

static int from_binary(const char *path, FILE *file, uint32_t **ret_ids, uint32_t *ret_n)
{
    const size_t cap = IDS_MAX * sizeof(uint32_t) + 1;
    uint8_t *bytes = malloc(cap);
    const size_t n = bytes ? fread(bytes, 1, cap, file) : 0;
    int rc = 0;
    if (!bytes || ferror(file)) {
        ctl_error("%s: %s", path, strerror(bytes ? EIO : ENOMEM));
        rc = CTL_FAILED;
    } else if (n == 0 || n == cap || n % sizeof(uint32_t) != 0 || tokens_kind_of(bytes, n)[0]) {
        rc = ctl_usage("%s: must be 1 to %zu token ids of 4 bytes, little-endian (a JSON array has "
                       "a name that ends in .json)%s",
                       path, IDS_MAX, n > 0 ? tokens_kind_of(bytes, n) : "; it is empty");
    }
    if (rc != 0) {
        free(bytes);
        return rc;
    }
    uint32_t *ids = (uint32_t *)(void *)bytes;
    for (size_t i = 0; i < n / sizeof(*ids); i++) {
        const uint8_t *p = bytes + 4 * i;
        ids[i] = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    }
    *ret_ids = ids;
    *ret_n = (uint32_t)(n / sizeof(*ids));
    return 0;
}

int tokens_read(const char *path, uint32_t **ret_ids, uint32_t *ret_n)
{
    const size_t len = strlen(path);
    FILE *file = ctl_open(path);
    if (!file)
        return CTL_USAGE;
    const bool json = len > 5 && strcmp(path + len - 5, ".json") == 0;
    const int rc =
        json ? from_json(path, file, ret_ids, ret_n) : from_binary(path, file, ret_ids, ret_n);
    fclose(file);
    return rc;
}
