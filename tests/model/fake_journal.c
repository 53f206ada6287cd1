/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_journal.h"

#include <stdlib.h>
#include <string.h>

#include "list.h"

#define ENTRIES_MAX 8192u

struct entry {
    uint64_t key;
    uint32_t bytes;
    uint8_t *value;
};

struct fake_journal {
    struct journal journal;
    struct entry entry[ENTRIES_MAX]; /* in order of keys */
    uint32_t n, damaged;
    bool used; /* since the last crash */
    bool gone;
    struct journal_txn *first, *last;
};

static struct fake_journal *of(struct journal *j)
{
    return CONTAINER_OF(j, struct fake_journal, journal);
}

static uint32_t place_of(const struct fake_journal *f, uint64_t key)
{
    uint32_t at = 0;
    while (at < f->n && f->entry[at].key < key)
        at++;
    return at;
}

void fake_journal_drop(struct fake_journal *f, uint32_t at)
{
    MUST(at < f->n);
    free(f->entry[at].value);
    memmove(&f->entry[at], &f->entry[at + 1], (f->n - at - 1) * sizeof f->entry[0]);
    f->n--;
}

static void apply(struct fake_journal *f, const struct journal_change *c)
{
    const uint32_t at = place_of(f, c->key);
    if (at < f->n && f->entry[at].key == c->key)
        fake_journal_drop(f, at);
    if (!c->value)
        return;
    MUST(f->n < ENTRIES_MAX && c->bytes <= JOURNAL_VALUE_MAX);
    memmove(&f->entry[at + 1], &f->entry[at], (f->n - at) * sizeof f->entry[0]);
    f->entry[at] = (struct entry){.key = c->key, .bytes = c->bytes, .value = malloc(c->bytes + 1)};
    MUST(f->entry[at].value != NULL);
    memcpy(f->entry[at].value, c->value, c->bytes);
    f->n++;
}

static void journal_commit(struct journal *j, struct journal_txn *c)
{
    struct fake_journal *f = of(j);
    MUST(c->n > 0 && c->done != NULL);
    f->used = true;
    c->next = NULL;
    if (f->last)
        f->last->next = c;
    else
        f->first = c;
    f->last = c;
}

static int journal_walk(struct journal *j, journal_each_fn *each, void *ctx)
{
    struct fake_journal *f = of(j);
    MUST(!f->used);
    for (uint32_t i = 0; i < f->n; i++) {
        if (i == f->damaged)
            return -EUCLEAN;
        int rc = each(ctx, f->entry[i].key, f->entry[i].value, f->entry[i].bytes);
        if (rc)
            return rc;
    }
    return 0;
}

static int journal_clear(struct journal *j)
{
    struct fake_journal *f = of(j);
    MUST(!f->used);
    while (f->n > 0)
        fake_journal_drop(f, f->n - 1);
    f->damaged = UINT32_MAX;
    return 0;
}

static int journal_stands(const struct journal *j)
{
    return ((const struct fake_journal *)j)->gone ? -ENOENT : 0; /* its first member */
}

struct fake_journal *fake_journal_create(void)
{
    static const struct journal_ops ops = {.commit = journal_commit,
                                           .walk = journal_walk,
                                           .clear = journal_clear,
                                           .stands = journal_stands};
    struct fake_journal *f = calloc(1, sizeof *f);
    MUST(f != NULL);
    f->journal.ops = &ops;
    f->damaged = UINT32_MAX;
    return f;
}

void fake_journal_destroy(struct fake_journal **journal)
{
    if (!*journal)
        return;
    while ((*journal)->n > 0)
        fake_journal_drop(*journal, (*journal)->n - 1);
    free(*journal);
    *journal = NULL;
}

struct journal *fake_journal_of(struct fake_journal *f)
{
    return &f->journal;
}

unsigned fake_journal_run(struct fake_journal *f, int err)
{
    struct journal_txn *c = f->first;
    unsigned n = 0;
    f->first = f->last = NULL; /* what done() begins is for the next time */
    for (struct journal_txn *next; c; c = next, n++) {
        next = c->next;
        for (uint32_t i = 0; !err && i < c->n; i++)
            apply(f, &c->change[i]);
        c->result = err;
        c->done(c);
    }
    return n;
}

void fake_journal_crash(struct fake_journal *f)
{
    f->first = f->last = NULL;
    f->used = false;
}

void fake_journal_damage(struct fake_journal *f, uint32_t at)
{
    f->damaged = at;
}

void fake_journal_unlink(struct fake_journal *f)
{
    f->gone = true;
}

uint32_t fake_journal_entries(const struct fake_journal *f)
{
    return f->n;
}
