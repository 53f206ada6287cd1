/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small durable map from u64 to bytes: what a storage tier finds again after a restart. Two
 * implementations: daemon/io/meta.c on LMDB, with a thread of its own, and the simulation's.
 *
 * Thread: control thread. A commit is atomic: after a crash all of it is there or none. Commits
 * take effect in the order in which they were begun. Values carry a checksum of their own, which
 * the journal adds and takes off: what it hands out is what was put, or it says that it is damaged.
 */
#ifndef KVC_TIER_JOURNAL_H
#define KVC_TIER_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define JOURNAL_VALUE_MAX 1024u

struct journal_change {
    uint64_t key;
    const void *value; /* NULL: the key goes; a key that is not there is no error */
    uint32_t bytes;    /* at most JOURNAL_VALUE_MAX */
};

struct journal_commit {
    const struct journal_change *change; /* borrowed with their values until done() */
    uint32_t n;
    int result; /* 0: on stable storage; -errno: none of it, and the journal takes no more commits
                 * (-EROFS) until it is opened again */
    void (*done)(struct journal_commit *commit); /* once, on the control thread, never inline */
    void *owner;

    struct journal_commit *next; /* the journal's */
};

struct journal;

/* For each entry, in order of keys. Nonzero ends the walk and is returned. */
typedef int journal_each_fn(void *ctx, uint64_t key, const void *value, uint32_t bytes);

struct journal_ops {
    void (*commit)(struct journal *j, struct journal_commit *commit);
    /* At start, before the first commit, blocking. -EUCLEAN: a damaged entry (the walk ends). */
    int (*walk)(struct journal *j, journal_each_fn *each, void *ctx) KVC_WARN_UNUSED;
    /* Forgets everything, on stable storage when it returns; before the first commit. */
    int (*clear)(struct journal *j) KVC_WARN_UNUSED;
    /* As disk.h's. */
    int (*stands)(const struct journal *j);
};

struct journal {
    const struct journal_ops *ops;
};

#endif
