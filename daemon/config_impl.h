/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the config_*.c files and budget.c alone. */
#ifndef KVC_CONFIG_IMPL_H
#define KVC_CONFIG_IMPL_H

#include "config.h"

/* A configuration in the making. */
struct config__load {
    const char *file; /* as messages name it */
    struct config *cfg;
    struct config_errors *errors;
    bool paths; /* whether config__check_paths() is called */
};

/* config_load(), with or without a look at the file system. */
KVC_WARN_UNUSED int config__load_given(const struct config_given *given, bool paths,
                                       struct config *ret, struct config_errors *ret_errors);

/* Adds an error. where NULL is the file; line 0 is none; key may be empty. Text beyond the limit is
 * cut. */
__attribute__((format(printf, 5, 6))) void config__error(struct config_errors *errors,
                                                         const char *where, unsigned line,
                                                         const char *key, const char *fmt, ...);
/* The same at the place where the value of `key` (of the table) came from. */
__attribute__((format(printf, 4, 5))) void config__error_at(const struct config *cfg,
                                                            struct config_errors *errors,
                                                            const char *key, const char *fmt, ...);

/* Reads and applies l->file. Every error goes to l->errors. */
void config__yaml(struct config__load *l);

/* `text` as a YAML scalar in double quotes, ASCII alone. -EINVAL when it is not UTF-8, -ENOSPC,
 * -ENOMEM. */
#define CONFIG__QUOTED_BYTES (6 * CONFIG_LIST_BYTES + 8) /* room for any text of the table */
KVC_WARN_UNUSED int config__yaml_quote(const char *text, char *buf, size_t cap);

/* One value of the table. where NULL is the file. */
void config__set(struct config__load *l, const char *where, unsigned line, const char *key,
                 const char *value);

/* Refuses values that contradict each other. Numbers that are still "auto" are not checked. */
void config__check_values(const struct config *cfg, struct config_errors *errors);
/* Directories and files that must exist. */
void config__check_paths(const struct config *cfg, struct config_errors *errors);

/* Writes a user's text to `buf`, in quotes, cut and printable. Returns buf. */
#define CONFIG__SHOWN_BYTES 72
const char *config__shown(const char *text, char buf[CONFIG__SHOWN_BYTES]);

#endif
