/* SPDX-License-Identifier: Apache-2.0 */
/* A model's config.json as a file. One thread. */
#ifndef CTL_KV_FILE_H
#define CTL_KV_FILE_H

#include "kv_model.h"

/* What kv_model_read() says, or the errno of opening the file; `why` says it. */
__attribute__((warn_unused_result)) int kv_file_load(const char *path, char why[KV_WHY_BYTES],
                                                     struct kv_model *ret_model);

#endif
