/* SPDX-License-Identifier: Apache-2.0 */
/* Token ids from a file. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"

/* As many as one message can carry to the daemon. */
#define IDS_MAX (KVC_MESSAGE_MAX / sizeof(uint32_t))

static int from_json(const char *path, FILE *file, uint32_t **ret_ids, uint32_t *ret_n)
{
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
        rc = ctl_usage("%s: no JSON: %s (line %d)", path, error.text, error.line);
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

static int from_binary(const char *path, FILE *file, uint32_t **ret_ids, uint32_t *ret_n)
{
    const size_t cap = IDS_MAX * sizeof(uint32_t) + 1;
    uint8_t *bytes = malloc(cap);
    const size_t n = bytes ? fread(bytes, 1, cap, file) : 0;
    int rc = 0;
    if (!bytes || ferror(file)) {
        ctl_error("%s: %s", path, strerror(bytes ? EIO : ENOMEM));
        rc = CTL_FAILED;
    } else if (n == 0 || n == cap || n % sizeof(uint32_t) != 0) {
        rc = ctl_usage("%s: must be 1 to %zu token ids of 4 bytes, little-endian (a JSON array has "
                       "a name that ends in .json)",
                       path, IDS_MAX);
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
