/* SPDX-License-Identifier: Apache-2.0 */
/* What a verb lists: rows of a table, or with --json items of an array. One thread. */
#ifndef CTL_LISTING_H
#define CTL_LISTING_H

#include "ctl.h"
#include "table.h"

struct json_t;

struct listing {
    struct table *table;
    struct json_t *array; /* NULL without --json */
};

/* `heads` as table_create() has them. Owned; listing_end() frees it. */
struct listing listing_begin(const struct ctl *ctl, const char *const *heads);
/* `rc` of the library's walk: negative is told as ctl_fail() does. Else shows what was listed, the
 * array under `key`; of an empty table `none`, on a line. Returns an enum ctl_exit: `empty` when
 * nothing was listed. */
int listing_end(struct ctl *ctl, struct listing *l, int rc, const char *key, const char *none,
                int empty);

#endif
