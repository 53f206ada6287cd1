/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the keys of a config.json, with errors that name the key. For kv_*.c only. One thread. */
#ifndef MODEL_KV_READ_H
#define MODEL_KV_READ_H

#include <errno.h>

#include "kv_model.h"

struct json_t;

struct reader {
    const char *path;
    const struct json_t *root;   /* the whole file */
    const struct json_t *object; /* the part of it that describes the text model */
    char *why;                   /* KV_WHY_BYTES */
};

/* Writes to r->why what is wrong with a key. */
__attribute__((format(printf, 3, 4))) void reader_say(const struct reader *r, const char *field,
                                                      const char *format, ...);
/* reader_say(), and -EINVAL as its value: a macro, so that a reader and an analyser see the error.
 */
#define refuse(...) (reader_say(__VA_ARGS__), -EINVAL)

/* The value of a key; NULL: the key is missing, or its value is null. */
const struct json_t *reader_get(const struct reader *r, const char *field);
/* The first of these names that is a key of the object; if none is, the first name. */
const char *reader_named(const struct reader *r, const char *const *names);
/* Reads a number; `otherwise` is its value if the key is missing (0 = the key must be there). */
__attribute__((warn_unused_result)) int reader_number(const struct reader *r, const char *field,
                                                      uint32_t otherwise, const char *what,
                                                      uint32_t *ret);
/* The same for a value that is not directly in the object; `field` is its name for messages. */
__attribute__((warn_unused_result)) int reader_number_of(const struct reader *r,
                                                         const struct json_t *v, const char *field,
                                                         const char *what, uint32_t *ret);
/* Whether the value means the same as a missing key: null, false, 0, or empty. */
bool reader_is_off(const struct json_t *v);

/* The steps of reading a model, in this order: the kinds of the layers; what each layer keeps; and
 * that no other key may change these sizes. 0, or -EINVAL with `why`. */
__attribute__((warn_unused_result)) int kv_kinds_read(const struct reader *r, struct kv_model *m);
__attribute__((warn_unused_result)) int kv_heads_read(const struct reader *r, struct kv_model *m);
__attribute__((warn_unused_result)) int kv_unread_check(const struct reader *r,
                                                        const struct kv_model *m);

#endif
