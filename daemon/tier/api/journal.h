/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small durable map from u64 to bytes: what a storage tier finds again after a restart. Two
 * implementations: daemon/io/meta.c on LMDB, with a thread of its own, and the simulation's.
 *
 * Thread: control thread. A transaction is atomic: after a crash all of it is there or none.
 * Transactions take effect in the order in which they were handed to commit(). The journal stores a
 * checksum with each value: it hands out the bytes that were put, or says that the entry is
 * damaged.
 */
#ifndef KVC_TIER_JOURNAL_H
#define KVC_TIER_JOURNAL_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

#define JOURNAL_VALUE_MAX 1024u

struct journal_change {
    uint64_t key;
    const void *value; /* NULL: the key is deleted; a key that does not exist is no error */
    uint32_t bytes;    /* at most JOURNAL_VALUE_MAX */
};

/* A transaction: changes that commit() makes durable together. */
struct journal_txn {
    const struct journal_change *change; /* borrowed with their values until done() */
    uint32_t n;
    int result; /* 0: all is on stable storage; -errno: nothing of it is, and the journal refuses
                 * commits (-EROFS) until it is opened again */
    void (*done)(struct journal_txn *txn); /* once, on the control thread, never inline */
    void *ctx;                             /* the caller's */

    struct journal_txn *next; /* for the journal alone */
};

struct journal;

/* For each entry, in order of keys. Nonzero ends the walk and is returned. */
typedef int journal_each_fn(void *ctx, uint64_t key, const void *value, uint32_t bytes);

struct journal_ops {
    void (*commit)(struct journal *j, struct journal_txn *txn);
    /* At start, before the first commit; blocks. -EUCLEAN: an entry is damaged; the walk ends. */
    int (*walk)(struct journal *j, journal_each_fn *each, void *ctx) KVC_WARN_UNUSED;
    /* Deletes all entries, on stable storage when it returns. At start, before the first commit. */
    int (*clear)(struct journal *j) KVC_WARN_UNUSED;
    /* Whether the journal's file is still in place: as disk_ops.stands. */
    int (*stands)(const struct journal *j);
};

struct journal {
    const struct journal_ops *ops;
};

#endif
