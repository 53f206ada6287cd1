/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What meta.c (directory, thread) is made of: meta_db.c, the adapter of LMDB, meta_pages.c,
 * which looks at LMDB's file before LMDB does, and meta_walk.c, the child in which that happens. A
 * database is used by one thread at a time.
 */
#ifndef KVC_IO_META_PRIVATE_H
#define KVC_IO_META_PRIVATE_H

#include "meta.h"

struct meta_db;

struct meta__found {
    uint64_t entries;
    char why[META_WHY_BYTES]; /* of a failure */
};

/* Opens the environment in `dir`, which must hold one. -EUCLEAN: LMDB or we find it damaged;
 * -EPROTO: of a newer format; -errno. `ret_why` (META_WHY_BYTES) says what failed. */
KVC_WARN_UNUSED int meta__db_open(const char *dir, uint64_t map_bytes, bool readonly,
                                  struct meta_db **ret_db, char *ret_why);
void meta__db_close(struct meta_db **db);

/* Makes an environment in `dir`, which must exist and be empty, and reserves map_bytes for it where
 * the file system can. All of it is on stable storage afterwards, except `dir`'s own name. */
KVC_WARN_UNUSED int meta__db_make(const char *dir, uint64_t map_bytes, char *ret_why);

/* 0: the file is as long as after the last commit; -ENODATA: it is shorter, which is logged. */
KVC_WARN_UNUSED int meta__db_stands(const struct meta_db *db);

/* All changes of a list of commits in one synchronous transaction; grows the map when it must. */
KVC_WARN_UNUSED int meta__db_commit(struct meta_db *db, const struct journal_txn *first);
/* As journal.h's. */
KVC_WARN_UNUSED int meta__db_walk(struct meta_db *db, journal_each_fn *each, void *ctx);
KVC_WARN_UNUSED int meta__db_clear(struct meta_db *db);
uint64_t meta__db_map_bytes(const struct meta_db *db);
/* The length of data.mdb after the last commit; if it becomes shorter, commits are refused. */
uint64_t meta__db_file_bytes(const struct meta_db *db);

/* Checks each page of data.mdb in `dir`, without LMDB: it is used once or free, and of the kind
 * that it says. -EUCLEAN: damaged, `ret_why` (META_WHY_BYTES) says how; -errno: the file cannot be
 * read. An unreadable page is a SIGBUS, so only the child may call this. */
KVC_WARN_UNUSED int meta__pages_check(const char *dir, char *ret_why);

/* Only the child may call this, as LMDB may crash or loop on a damaged file. Checks the pages;
 * opens the environment, checks order and sums of the entries, and that each is found; then begins
 * a transaction and aborts it. Writes nothing. */
KVC_WARN_UNUSED int meta__db_check(const char *dir, uint64_t map_bytes, bool readonly,
                                   struct meta__found *ret_found);

/* meta__db_check() in a child process; -EUCLEAN also when the child dies or takes longer than
 * limit_ms. */
KVC_WARN_UNUSED int meta__walk(const char *dir, uint64_t map_bytes, bool readonly,
                               uint32_t limit_ms, struct meta__found *ret_found);

#endif
