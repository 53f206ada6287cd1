/* SPDX-License-Identifier: Apache-2.0 */
/* Says what kind of file was given where another kind was expected. */
#ifndef KVC_WIRE_FILE_KIND_H
#define KVC_WIRE_FILE_KIND_H

#include <stddef.h>

/* By the first bytes of a file, `n` of them (16 are enough): "", or a text to put behind an error,
 * such as "; it is compressed (gzip): unpack it first". Constant. */
const char *file_kind_hint(const void *bytes, size_t n);

/* The same where JSON, YAML or safetensors is expected: names lines of values with commas, CSV,
 * too. Some 100 bytes are enough. */
const char *file_kind_text_hint(const void *bytes, size_t n);

#endif
