/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, one character at a time (RFC 3629). Pure. */
#ifndef KVC_WIRE_UTF8_H
#define KVC_WIRE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at p, of which `left` bytes (1 or more) are there, and which one it is. 0:
 * none, that is overlong forms, surrogates, beyond U+10FFFF, cut off; *ret_code is untouched. */
size_t utf8_next(const void *p, size_t left, uint32_t *ret_code);

#endif
