/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that is not what was expected. */
#ifndef KVC_WIRE_FILE_KIND_H
#define KVC_WIRE_FILE_KIND_H

#include <stddef.h>

/* By the first bytes of a file, `n` of them (16 are enough): "", or a text to put behind an error,
 * such as "; it is compressed (gzip): unpack it first". Constant. */
const char *file_kind_hint(const void *bytes, size_t n);

#endif
