/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, one character at a time (RFC 3629). Pure. */
#ifndef KVC_WIRE_UTF8_H
#define KVC_WIRE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the character at p, where `left` bytes (1 or more) can be read. Returns its length. 0: no
 * valid character (overlong, a surrogate, beyond U+10FFFF, cut off), *ret_code is untouched. */
size_t utf8_next(const void *p, size_t left, uint32_t *ret_code);

#endif
