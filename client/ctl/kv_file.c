/* SPDX-License-Identifier: Apache-2.0 */
#include "kv_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "infile.h"

#define FILE_MAX ((size_t)16 << 20)

int kv_file_load(const char *path, char why[KV_WHY_BYTES], struct kv_model *ret_model)
{
    char *text;
    size_t n;
    const char *fault;
    int rc = infile_read(path, FILE_MAX, &text, &n, &fault);
    if (rc == -EISDIR) {
        snprintf(why, KV_WHY_BYTES, "%s: is a directory; name the config.json in it", path);
        return -EINVAL;
    }
    if (rc < 0) {
        snprintf(why, KV_WHY_BYTES, "%s: %s", path, fault);
        return rc;
    }
    rc = kv_model_read(path, text, n, why, ret_model);
    free(text);
    return rc;
}
