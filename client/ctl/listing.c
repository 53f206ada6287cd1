/* SPDX-License-Identifier: Apache-2.0 */
#include "listing.h"

#include <jansson.h>
#include <stdio.h>

#include "json.h"

struct listing listing_begin(const struct ctl *ctl, const char *const *heads)
{
    return (struct listing){.table = table_create(heads), .array = ctl->json ? json_array() : NULL};
}

int listing_end(struct ctl *ctl, struct listing *l, int rc, const char *key, const char *none,
                int empty)
{
    const bool some = table_rows(l->table) > 0 || json_array_size(l->array) > 0;
    if (rc < 0)
        rc = ctl_fail(ctl, rc);
    else if (l->array)
        json_print(json_pack("{s:O}", key, l->array));
    else if (some)
        table_print(l->table, stdout, ctl->colour);
    else
        puts(none);
    json_decref(l->array);
    table_destroy(&l->table);
    return rc != 0 ? rc : some ? CTL_OK : empty;
}
