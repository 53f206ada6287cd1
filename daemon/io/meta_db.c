/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapter of LMDB; the only file that includes lmdb.h.
 *
 * A record of the journal: key 8 bytes big-endian, so that LMDB's order is that of the numbers;
 * value XXH3-128 of key and value, then the value. One more record, with a longer key, has the
 * format's version. MDB_NOLOCK: meta.c's flock keeps other processes out, and in this one readers
 * and the writer are never at work together. Neither MDB_NOSYNC nor MDB_NOMETASYNC.
 */
#include "meta__.h"

#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "disk_lock.h"
#include "fault.h"
#include "hash.h"
#include "log.h"
#include "sys.h"

#define KEY_BYTES  8u
#define SUM_BYTES  ((uint32_t)sizeof(struct hash128))
#define HEADER_KEY "kvcache-journal"
#define MAP_MAX    (UINT64_C(1) << 42)
#define RECORD_MAX (SUM_BYTES + JOURNAL_VALUE_MAX)

struct meta_db {
    MDB_env *env;
    MDB_dbi dbi;
    uint64_t map_bytes;
    uint64_t file_bytes; /* length of the file after the last commit: pages below it may be read */
    bool readonly;
    char dir[4096];
};

/* --- errors --- */

static bool in_child;

static bool struck(void)
{
    return in_child ? FAULT(walk) : FAULT(meta);
}

#define CALL(call) (struck() ? EIO : (call))

static int to_errno(int rc)
{
    if (rc >= 0)
        return -rc;
    switch (rc) {
    case MDB_MAP_FULL:
        return -ENOSPC;
    case MDB_TXN_FULL:
        return -E2BIG;
    case MDB_PANIC:
        return -EIO;
    case MDB_NOTFOUND:
        return -ENOENT;
    default:
        return -EUCLEAN;
    }
}

/* Writes the error to ret_why; NULL: to the log. Returns -errno. */
static int meta_db_failed(const struct meta_db *db, char *ret_why, const char *what, int rc)
{
    if (ret_why)
        snprintf(ret_why, META_WHY_BYTES, "%s: %s", what, mdb_strerror(rc));
    else
        LOG_ERROR_RATELIMITED(5, "journal %s: %s: %s", db->dir, what, mdb_strerror(rc));
    return to_errno(rc);
}

static int damaged(char *ret_why, const char *what)
{
    if (ret_why)
        snprintf(ret_why, META_WHY_BYTES, "%s", what);
    return -EUCLEAN;
}

/* --- records --- */

static void key_put(uint64_t key, uint8_t ret_bytes[KEY_BYTES])
{
    for (unsigned i = 0; i < KEY_BYTES; i++)
        ret_bytes[i] = (uint8_t)(key >> (56 - 8 * i));
}

static uint64_t key_get(const void *bytes)
{
    const uint8_t *b = bytes;
    uint64_t key = 0;
    for (unsigned i = 0; i < KEY_BYTES; i++)
        key = key << 8 | b[i];
    return key;
}

static struct hash128 sum_of(const MDB_val *key, const void *value, size_t bytes)
{
    uint8_t all[sizeof HEADER_KEY + JOURNAL_VALUE_MAX];
    MUST(key->mv_size + bytes <= sizeof all);
    memcpy(all, key->mv_data, key->mv_size);
    if (bytes > 0)
        memcpy(all + key->mv_size, value, bytes);
    return hash_sum(all, key->mv_size + bytes);
}

static int meta_db_put(const struct meta_db *db, MDB_txn *txn, MDB_val *key, const void *value,
                       size_t bytes)
{
    MDB_val v = {.mv_size = SUM_BYTES + bytes};
    const struct hash128 sum = sum_of(key, value, bytes);
    const int rc = CALL(mdb_put(txn, db->dbi, key, &v, MDB_RESERVE));
    if (rc != 0)
        return rc;
    memcpy(v.mv_data, &sum, SUM_BYTES);
    if (bytes > 0)
        memcpy((uint8_t *)v.mv_data + SUM_BYTES, value, bytes);
    return 0;
}

static bool is_whole(const MDB_val *key, const MDB_val *v)
{
    if (v->mv_size < SUM_BYTES || v->mv_size > RECORD_MAX)
        return false;
    const uint8_t *value = (const uint8_t *)v->mv_data + SUM_BYTES;
    const struct hash128 sum = sum_of(key, value, v->mv_size - SUM_BYTES);
    return memcmp(&sum, v->mv_data, SUM_BYTES) == 0;
}

static bool is_header(const MDB_val *key)
{
    return key->mv_size == sizeof HEADER_KEY - 1 &&
           memcmp(key->mv_data, HEADER_KEY, key->mv_size) == 0;
}

static MDB_val header_key(void)
{
    return (MDB_val){.mv_size = sizeof HEADER_KEY - 1, .mv_data = (void *)(uintptr_t)HEADER_KEY};
}

static int put_header(const struct meta_db *db, MDB_txn *txn)
{
    const uint8_t version[4] = {META_FORMAT_VERSION & 0xff, META_FORMAT_VERSION >> 8 & 0xff,
                                META_FORMAT_VERSION >> 16 & 0xff, META_FORMAT_VERSION >> 24};
    MDB_val key = header_key();
    return meta_db_put(db, txn, &key, version, sizeof version);
}

static int check_header(const struct meta_db *db, MDB_txn *txn, char *ret_why)
{
    MDB_val key = header_key();
    MDB_val v;
    const int rc = CALL(mdb_get(txn, db->dbi, &key, &v));
    if (rc == MDB_NOTFOUND)
        return damaged(ret_why, "it has no header");
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_get", rc);
    if (!is_whole(&key, &v) || v.mv_size != SUM_BYTES + 4)
        return damaged(ret_why, "its header is damaged");
    const uint8_t *b = (const uint8_t *)v.mv_data + SUM_BYTES;
    const uint32_t version =
        b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    if (version == META_FORMAT_VERSION)
        return 0;
    snprintf(ret_why, META_WHY_BYTES, "it is of format %u; this program knows %u", version,
             META_FORMAT_VERSION);
    return version > META_FORMAT_VERSION ? -EPROTO : -EUCLEAN;
}

/* --- opening --- */

static int meta_db_begin(const struct meta_db *db, bool readonly, MDB_txn **ret_txn)
{
    return CALL(mdb_txn_begin(db->env, NULL, readonly ? MDB_RDONLY : 0, ret_txn));
}

/* Commits. The transaction has ended after this, also on an error. */
static int meta_db_end(MDB_txn *txn)
{
    if (struck()) {
        mdb_txn_abort(txn);
        return EIO;
    }
    return mdb_txn_commit(txn);
}

static int open_env(struct meta_db *db, char *ret_why)
{
    int rc = CALL(mdb_env_create(&db->env));
    if (rc != 0) {
        db->env = NULL;
        return meta_db_failed(db, ret_why, "mdb_env_create", rc);
    }
    rc = CALL(mdb_env_set_mapsize(db->env, db->map_bytes));
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_env_set_mapsize", rc);
    const unsigned flags = MDB_NOLOCK | MDB_NOTLS | (db->readonly ? MDB_RDONLY : 0u);
    rc = CALL(mdb_env_open(db->env, db->dir, flags, 0600));
    if (rc == EBADF && db->readonly) /* LMDB tried to create the file's content */
        return damaged(ret_why, "its file is empty");
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_env_open", rc);
    MDB_envinfo info;
    rc = CALL(mdb_env_info(db->env, &info));
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_env_info", rc);
    db->map_bytes = info.me_mapsize;
    return 0;
}

static int open_dbi(struct meta_db *db, char *ret_why)
{
    MDB_txn *txn;
    int rc = meta_db_begin(db, true, &txn);
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_txn_begin", rc);
    rc = CALL(mdb_dbi_open(txn, NULL, 0, &db->dbi));
    if (rc != 0) {
        mdb_txn_abort(txn);
        return meta_db_failed(db, ret_why, "mdb_dbi_open", rc);
    }
    rc = meta_db_end(txn);
    return rc != 0 ? meta_db_failed(db, ret_why, "mdb_txn_commit", rc) : 0;
}

/* Length of the file. 0: unknown. */
static uint64_t length(const struct meta_db *db)
{
    struct stat st;
    mdb_filehandle_t fd;
    return mdb_env_get_fd(db->env, &fd) == 0 && fstat(fd, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static int db_new(const char *dir, uint64_t map_bytes, bool readonly, struct meta_db **ret_db,
                  char *ret_why)
{
    struct meta_db *db = sys_calloc(1, sizeof *db);
    if (!db) {
        snprintf(ret_why, META_WHY_BYTES, "no memory");
        return -ENOMEM;
    }
    snprintf(db->dir, sizeof db->dir, "%s", dir);
    db->map_bytes = map_bytes;
    db->readonly = readonly;
    int r = open_env(db, ret_why);
    if (r == 0)
        r = open_dbi(db, ret_why);
    if (r < 0) {
        meta__db_close(&db);
        return r;
    }
    *ret_db = db;
    return 0;
}

int meta__db_open(const char *dir, uint64_t map_bytes, bool readonly, struct meta_db **ret_db,
                  char *ret_why)
{
    struct meta_db *db = NULL;
    MDB_txn *txn;
    int r = db_new(dir, map_bytes, readonly, &db, ret_why);
    if (r < 0)
        return r;
    const int rc = meta_db_begin(db, true, &txn);
    if (rc != 0) {
        r = meta_db_failed(db, ret_why, "mdb_txn_begin", rc);
    } else {
        r = check_header(db, txn, ret_why);
        mdb_txn_abort(txn);
    }
    if (r < 0) {
        meta__db_close(&db);
        return r;
    }
    db->file_bytes = length(db);
    *ret_db = db;
    return 0;
}

void meta__db_close(struct meta_db **db)
{
    if (!db || !*db)
        return;
    if ((*db)->env)
        mdb_env_close((*db)->env);
    free(*db);
    *db = NULL;
}

uint64_t meta__db_map_bytes(const struct meta_db *db)
{
    return db->map_bytes;
}

uint64_t meta__db_file_bytes(const struct meta_db *db)
{
    return db->file_bytes;
}

/* --- making --- */

/* Reserves room behind the file's end, so that no transaction meets a full disk. A file system that
 * cannot reserve is no error. */
static int meta_db_reserve(const struct meta_db *db)
{
    mdb_filehandle_t fd;
    int rc = CALL(mdb_env_get_fd(db->env, &fd));
    if (rc != 0)
        return rc;
    if (sys_fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)db->map_bytes) < 0 && errno != EOPNOTSUPP)
        return errno;
    return 0;
}

static int fill_new(struct meta_db *db, char *ret_why)
{
    MDB_txn *txn;
    int rc = meta_db_reserve(db);
    if (rc != 0)
        return meta_db_failed(db, ret_why, "room for it", rc);
    rc = meta_db_begin(db, false, &txn);
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_txn_begin", rc);
    rc = put_header(db, txn);
    if (rc != 0)
        mdb_txn_abort(txn);
    else
        rc = meta_db_end(txn);
    if (rc == 0)
        rc = CALL(mdb_env_sync(db->env, 1));
    if (rc != 0)
        return meta_db_failed(db, ret_why, "its first transaction", rc);
    mdb_filehandle_t fd;
    rc = CALL(mdb_env_get_fd(db->env, &fd));
    if (rc == 0)
        rc = -disk_sync_fd(fd); /* also syncs size and room, which LMDB's fdatasync() may not */
    return rc != 0 ? meta_db_failed(db, ret_why, "fsync", rc) : 0;
}

int meta__db_make(const char *dir, uint64_t map_bytes, char *ret_why)
{
    struct meta_db *db = NULL;
    int r = db_new(dir, map_bytes, false, &db, ret_why);
    if (r < 0)
        return r;
    r = fill_new(db, ret_why);
    meta__db_close(&db);
    if (r < 0)
        return r;
    r = disk_sync_dir(dir);
    if (r < 0)
        snprintf(ret_why, META_WHY_BYTES, "fsync: %s", strerror(-r));
    return r;
}

/* --- commits --- */

int meta__db_stands(const struct meta_db *db)
{
    const uint64_t found = length(db);
    if (found >= db->file_bytes)
        return 0;
    LOG_ERROR_RATELIMITED(5, "journal %s: data.mdb has %llu bytes and had %llu: somebody cut it",
                          db->dir, (unsigned long long)found, (unsigned long long)db->file_bytes);
    return -ENODATA;
}

static int apply(const struct meta_db *db, MDB_txn *txn, const struct journal_change *change)
{
    uint8_t bytes[KEY_BYTES];
    key_put(change->key, bytes);
    MDB_val key = {.mv_size = sizeof bytes, .mv_data = bytes};
    if (change->value)
        return meta_db_put(db, txn, &key, change->value, change->bytes);
    const int rc = CALL(mdb_del(txn, db->dbi, &key, NULL));
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int try_commit(const struct meta_db *db, const struct journal_txn *first,
                      const char **ret_what)
{
    MDB_txn *txn;
    *ret_what = "mdb_txn_begin";
    int rc = meta_db_begin(db, false, &txn);
    if (rc != 0)
        return rc;
    *ret_what = "a change";
    for (const struct journal_txn *c = first; rc == 0 && c; c = c->next)
        for (uint32_t i = 0; rc == 0 && i < c->n; i++)
            rc = apply(db, txn, &c->change[i]);
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    *ret_what = "mdb_txn_commit";
    return meta_db_end(txn);
}

/* Doubles the map; no transaction may be open. If the room cannot be reserved, a transaction that
 * needs it will fail. */
static int meta_db_grow(struct meta_db *db)
{
    if (db->map_bytes >= MAP_MAX)
        return MDB_MAP_FULL;
    const int rc = CALL(mdb_env_set_mapsize(db->env, 2 * db->map_bytes));
    if (rc != 0)
        return rc;
    db->map_bytes *= 2;
    (void)meta_db_reserve(db);
    return 0;
}

int meta__db_commit(struct meta_db *db, const struct journal_txn *first)
{
    const char *what = "";
    /* LMDB reads through its map: if the file was truncated, that would be SIGBUS. */
    int rc = meta__db_stands(db);
    if (rc < 0)
        return rc;
    while ((rc = try_commit(db, first, &what)) == MDB_MAP_FULL) {
        what = "mdb_env_set_mapsize";
        rc = meta_db_grow(db);
        if (rc != 0)
            break;
    }
    if (rc != 0)
        return meta_db_failed(db, NULL, what, rc);
    db->file_bytes = MAX(db->file_bytes, length(db));
    return 0;
}

int meta__db_clear(struct meta_db *db)
{
    MDB_txn *txn;
    int rc = meta_db_begin(db, false, &txn);
    if (rc != 0)
        return meta_db_failed(db, NULL, "mdb_txn_begin", rc);
    rc = CALL(mdb_drop(txn, db->dbi, 0));
    if (rc == 0)
        rc = put_header(db, txn);
    if (rc != 0)
        mdb_txn_abort(txn);
    else
        rc = meta_db_end(txn);
    return rc != 0 ? meta_db_failed(db, NULL, "mdb_drop", rc) : 0;
}

/* --- walks --- */

/* Calls `each` for every record, also for the header. `each` returns 0 to go on. */
static int for_all(const struct meta_db *db, MDB_txn *txn, char *ret_why,
                   int (*each)(void *ctx, const MDB_val *key, const MDB_val *v), void *ctx)
{
    MDB_cursor *cursor;
    MDB_val key;
    MDB_val v;
    int rc = CALL(mdb_cursor_open(txn, db->dbi, &cursor));
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_cursor_open", rc);
    int r = 0;
    rc = CALL(mdb_cursor_get(cursor, &key, &v, MDB_FIRST));
    while (r == 0 && rc == 0) {
        r = each(ctx, &key, &v);
        if (r == 0)
            rc = CALL(mdb_cursor_get(cursor, &key, &v, MDB_NEXT));
    }
    mdb_cursor_close(cursor);
    if (r == 0 && rc != 0 && rc != MDB_NOTFOUND)
        return meta_db_failed(db, ret_why, "mdb_cursor_get", rc);
    return r;
}

struct handing {
    journal_each_fn *each;
    void *ctx;
};

static int hand_out(void *ctx, const MDB_val *key, const MDB_val *v)
{
    const struct handing *h = ctx;
    _Alignas(16) uint8_t value[JOURNAL_VALUE_MAX]; /* LMDB does not align values */
    if (is_header(key))
        return 0;
    if (key->mv_size != KEY_BYTES || !is_whole(key, v))
        return -EUCLEAN;
    const size_t bytes = v->mv_size - SUM_BYTES;
    memcpy(value, (const uint8_t *)v->mv_data + SUM_BYTES, bytes);
    return h->each(h->ctx, key_get(key->mv_data), value, (uint32_t)bytes);
}

int meta__db_walk(struct meta_db *db, journal_each_fn *each, void *ctx)
{
    MDB_txn *txn;
    const int rc = meta_db_begin(db, true, &txn);
    if (rc != 0)
        return meta_db_failed(db, NULL, "mdb_txn_begin", rc);
    struct handing h = {.each = each, .ctx = ctx};
    const int r = for_all(db, txn, NULL, hand_out, &h);
    mdb_txn_abort(txn);
    return r;
}

/* --- the child's look at everything --- */

struct look {
    const struct meta_db *db;
    MDB_txn *txn;
    MDB_val before;
    uint64_t entries;
    char *why;
};

static int look_at_entry(void *ctx, const MDB_val *key, const MDB_val *v)
{
    struct look *l = ctx;
    MDB_val k = *key;
    MDB_val found;
    if (l->before.mv_data && mdb_cmp(l->txn, l->db->dbi, &l->before, key) >= 0)
        return damaged(l->why, "its entries are out of order");
    if ((!is_header(key) && key->mv_size != KEY_BYTES) || !is_whole(key, v))
        return damaged(l->why, "an entry is damaged");
    if (mdb_get(l->txn, l->db->dbi, &k, &found) != 0 || found.mv_data != v->mv_data)
        return damaged(l->why, "an entry cannot be found by its key");
    l->before = *key;
    l->entries++;
    return 0;
}

static int look_at_entries(struct look *l)
{
    int rc = meta_db_begin(l->db, true, &l->txn);
    if (rc != 0)
        return meta_db_failed(l->db, l->why, "mdb_txn_begin", rc);
    const int r = for_all(l->db, l->txn, l->why, look_at_entry, l);
    mdb_txn_abort(l->txn);
    return r;
}

/* Tries what the first commit will do, then aborts the transaction. */
static int rehearse(const struct meta_db *db, char *ret_why)
{
    MDB_txn *txn;
    int rc = meta_db_begin(db, false, &txn);
    if (rc != 0)
        return meta_db_failed(db, ret_why, "mdb_txn_begin", rc);
    rc = put_header(db, txn);
    mdb_txn_abort(txn);
    return rc != 0 && rc != MDB_MAP_FULL ? meta_db_failed(db, ret_why, "mdb_put", rc) : 0;
}

int meta__db_check(const char *dir, uint64_t map_bytes, bool readonly,
                   struct meta__found *ret_found)
{
    struct meta_db *db = NULL;
    struct look l = {.why = ret_found->why};
    in_child = true;
    int r = meta__pages_check(dir, l.why);
    if (r == 0)
        r = meta__db_open(dir, map_bytes, readonly, &db, l.why);
    if (r < 0)
        return r;
    l.db = db;
    r = look_at_entries(&l);
    if (r == 0 && !readonly)
        r = rehearse(db, l.why);
    meta__db_close(&db);
    if (r == 0)
        ret_found->entries = l.entries - 1; /* without the header */
    return r;
}
