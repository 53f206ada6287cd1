/* SPDX-License-Identifier: Apache-2.0 */
#include "key_find.h"

#include <stdio.h>
#include <string.h>

/* If several keys begin so, at most so many are printed; the walk ends after one more. */
enum { TOLD_MAX = 8 };

struct found {
    uint32_t n; /* TOLD_MAX + 1: there are more */
    uint8_t key[TOLD_MAX][KVC_KEY_BYTES];
};

/* Adds a key, unless it is there: a key may be in several namespaces and groups. */
static int key_find_add(void *ctx, const void *row)
{
    struct found *f = ctx;
    const struct kvc_block_info *w = row;
    for (uint32_t i = 0; i < f->n; i++)
        if (memcmp(f->key[i], w->key, KVC_KEY_BYTES) == 0)
            return 0;
    if (f->n < TOLD_MAX)
        memcpy(f->key[f->n], w->key, KVC_KEY_BYTES);
    return ++f->n > TOLD_MAX;
}

static int say_several(const struct found *f, const char *begin)
{
    char text[KEY_TEXT_BYTES];
    ctl_error("the keys of several blocks begin with %s; give more digits of one of them:", begin);
    for (uint32_t i = 0; i < f->n && i < TOLD_MAX; i++)
        fprintf(stderr, "  %s\n", key_format(f->key[i], text));
    if (f->n > TOLD_MAX)
        fputs("  and others\n", stderr);
    return CTL_USAGE;
}

int key_find(const struct ctl *ctl, uint32_t ns, struct key_arg *key)
{
    struct found found = {.n = 0};
    char begin[KEY_TEXT_BYTES];
    if (key->digits == KEY_DIGITS)
        return 0;
    const struct kvc_filter match = {
        .mode = KVC_WALK_MATCH, .ns = ns, .keys = key->key, .n = 1, .depth = 4 * key->digits};
    const int rc = kvc_list(ctl->kvc, KVC_TABLE_BLOCKS, &match, key_find_add, &found);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    key_format(key->key, begin);
    begin[key->digits] = '\0';
    if (found.n > 1)
        return say_several(&found, begin);
    if (found.n == 0) {
        ctl_error("no block whose key begins with %s is cached%s; 'kvcachectl explain' says why a "
                  "block is not there, by its whole key",
                  begin, ns ? " in that namespace" : "");
        return CTL_NOTHING;
    }
    memcpy(key->key, found.key[0], KVC_KEY_BYTES);
    key->digits = KEY_DIGITS;
    return 0;
}
