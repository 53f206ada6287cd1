/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json as a file. One thread. */
#ifndef CTL_KV_FILE_H
#define CTL_KV_FILE_H

#include "kv_model.h"

/* Opens the file and calls kv_model_read(): its result, or the errno of opening the file, with
 * `why`. */
__attribute__((warn_unused_result)) int kv_file_load(const char *path, char why[KV_WHY_BYTES],
                                                     struct kv_model *ret_model);

#endif
