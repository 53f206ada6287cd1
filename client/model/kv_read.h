/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a config.json by its keys, with errors that name them. Of kv_*.c only. One thread. */
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

/* Says what is wrong with a key. */
__attribute__((format(printf, 3, 4))) void reader_say(const struct reader *r, const char *field,
                                                      const char *format, ...);
/* In sight of who calls, also of an analyser, that it fails. */
#define refuse(...) (reader_say(__VA_ARGS__), -EINVAL)

/* NULL: missing, or null. */
const struct json_t *reader_get(const struct reader *r, const char *field);
/* The first of several names that is there, else the first one. */
const char *reader_named(const struct reader *r, const char *const *names);
/* `otherwise` where the field is missing; 0 = it must be there. */
__attribute__((warn_unused_result)) int reader_number(const struct reader *r, const char *field,
                                                      uint32_t otherwise, const char *what,
                                                      uint32_t *ret);
/* The same for a value that is not at the top; `field` is how it is called. */
__attribute__((warn_unused_result)) int reader_number_of(const struct reader *r,
                                                         const struct json_t *v, const char *field,
                                                         const char *what, uint32_t *ret);
/* null, false, 0, and what has nothing in it: as good as missing. */
bool reader_is_off(const struct json_t *v);

/* In this order: what the layers are, what each of them keeps, and that no key is left over that
 * may change that. 0, or -EINVAL with `why`. */
__attribute__((warn_unused_result)) int kv_kinds_read(const struct reader *r, struct kv_model *m);
__attribute__((warn_unused_result)) int kv_heads_read(const struct reader *r, struct kv_model *m);
__attribute__((warn_unused_result)) int kv_unread_check(const struct reader *r,
                                                        const struct kv_model *m);

#endif
