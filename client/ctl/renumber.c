/* SPDX-License-Identifier: Apache-2.0 */
#include "renumber.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024u

struct entry {
    uint64_t large;
    uint64_t small; /* the small number + 1; 0 = empty */
};

/* Open addressing, at most half full, slots a power of two. */
struct renumber {
    struct entry *entries;
    uint64_t slots, n;
};

static void *zeroed(uint64_t n, size_t bytes)
{
    void *p = calloc(n, bytes);
    if (!p) {
        fputs("kvcachectl: out of memory\n", stderr);
        abort();
    }
    return p;
}

struct renumber *renumber_create(void)
{
    struct renumber *r = zeroed(1, sizeof(*r));
    r->slots = FIRST_SLOTS;
    r->entries = zeroed(r->slots, sizeof(*r->entries));
    return r;
}

void renumber_destroy(struct renumber **r)
{
    if (*r)
        free((*r)->entries);
    free(*r);
    *r = NULL;
}

static struct entry *renumber_find(const struct renumber *r, uint64_t large)
{
    uint64_t at = (large * UINT64_C(0x9e3779b97f4a7c15)) >> 20;
    for (;; at++) {
        struct entry *e = &r->entries[at & (r->slots - 1)];
        if (e->small == 0 || e->large == large)
            return e;
    }
}

static void renumber_grow(struct renumber *r)
{
    struct renumber old = *r;
    r->slots *= 2;
    r->entries = zeroed(r->slots, sizeof(*r->entries));
    for (uint64_t i = 0; i < old.slots; i++)
        if (old.entries[i].small)
            *renumber_find(r, old.entries[i].large) = old.entries[i];
    free(old.entries);
}

uint64_t renumber_id(struct renumber *r, uint64_t large)
{
    struct entry *e = renumber_find(r, large);
    if (e->small)
        return e->small - 1;
    if (2 * (r->n + 1) > r->slots) {
        renumber_grow(r);
        e = renumber_find(r, large);
    }
    *e = (struct entry){.large = large, .small = r->n + 1};
    return r->n++;
}

uint64_t renumber_count(const struct renumber *r)
{
    return r->n;
}
