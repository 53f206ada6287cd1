/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <lmdb.h>
#include <sys/wait.h>

#include "crash.h"
#include "hash.h"
#include "io_fixture.h"
#include "meta.h"

static struct loop *loop;
static struct meta *meta;
static struct meta_report report;

static void setup(void)
{
    scratch_make(false);
    loop = make_with(LOOP_AUTO, 0, 8, 0);
}

static void teardown(void)
{
    fault_reset();
    meta_close(&meta);
    loop_destroy(&loop);
    scratch_remove();
}

static int try_open_as(bool readonly, uint64_t map_bytes)
{
    const struct meta_config config = {
        .dir = in_scratch("journal"), .map_bytes = map_bytes, .readonly = readonly};
    return meta_open(&config, loop, &meta, &report);
}

static void must_open(void)
{
    const int r = try_open_as(false, UINT64_C(1) << 20);
    ck_assert_msg(r == 0, "%d: %s", r, report.why);
}

static void reopen(void)
{
    meta_close(&meta);
    must_open();
}

/* --- commits --- */

struct one {
    struct journal_txn commit;
    unsigned calls;
    unsigned order;
};
static unsigned done_calls;

static void note_commit(struct journal_txn *c)
{
    struct one *o = c->ctx;
    o->calls++;
    o->order = done_calls++;
}

static void begin(struct one *o, const struct journal_change *change, uint32_t n)
{
    struct journal *j = meta_journal(meta);
    *o = (struct one){.commit = {.change = change, .n = n, .done = note_commit, .result = 12345}};
    o->commit.ctx = o;
    j->ops->commit(j, &o->commit);
    ck_assert_uint_eq(o->calls, 0); /* never inline */
}

static int end(struct one *o)
{
    while (o->calls == 0)
        ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    ck_assert_uint_eq(o->calls, 1);
    return o->commit.result;
}

static int commit(const struct journal_change *change, uint32_t n)
{
    struct one o;
    begin(&o, change, n);
    return end(&o);
}

static int put_text(uint64_t key, const char *text)
{
    const struct journal_change change = {key, text, (uint32_t)strlen(text)};
    return commit(&change, 1);
}

static char walked[4096];

static int note_entry(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    const size_t used = strlen(walked);
    (void)ctx;
    ck_assert_uint_eq((uintptr_t)value % 8, 0);
    snprintf(walked + used, sizeof walked - used, "%" PRIx64 "=%.*s ", key, (int)bytes,
             (const char *)value);
    return 0;
}

static const char *contents(void)
{
    struct journal *j = meta_journal(meta);
    walked[0] = '\0';
    ck_assert_int_eq(j->ops->walk(j, note_entry, NULL), 0);
    return walked;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 280);

CASE(what_was_committed_is_there_after_a_restart_in_order_of_keys)
{
    must_open();
    ck_assert(report.fresh && !report.damaged);
    const struct journal_change changes[] = {
        {UINT64_MAX, "last", 4}, {0, "", 0}, {256, "b", 1}, {255, "a", 1}, {7, "gone", 4}};
    ck_assert_int_eq(commit(changes, 5), 0);
    const struct journal_change gone[] = {{7, NULL, 0}, {8, NULL, 0}, {255, "A", 1}};
    ck_assert_int_eq(commit(gone, 3), 0);
    reopen();
    ck_assert(!report.fresh && !report.damaged);
    ck_assert_uint_eq(report.entries, 4);
    ck_assert_str_eq(contents(), "0= ff=A 100=b ffffffffffffffff=last ");
}

CASE(it_stands_as_long_as_its_name_leads_to_it)
{
    char moved[96];
    must_open();
    const struct journal *j = meta_journal(meta);
    ck_assert_int_eq(j->ops->stands(j), 0);
    snprintf(moved, sizeof moved, "%s.moved", in_scratch("journal"));
    ck_assert_int_eq(rename(in_scratch("journal"), moved), 0);
    ck_assert_int_eq(j->ops->stands(j), -ENOENT);
    ck_assert_int_eq(rename(moved, in_scratch("journal")), 0);
    ck_assert_int_eq(j->ops->stands(j), 0);
}

/* LMDB would read its map behind the end of its file, which ends the process. */
CASE(one_that_was_cut_takes_no_commit)
{
    const struct journal_change change = {1, "a", 1};
    must_open();
    const struct journal *j = meta_journal(meta);
    ck_assert_int_eq(commit(&change, 1), 0);
    ck_assert_int_eq(j->ops->stands(j), 0);
    ck_assert_int_eq(truncate(in_scratch("journal/env/data.mdb"), 4096), 0);
    ck_assert_int_eq(j->ops->stands(j), -ENODATA);
    ck_assert_int_eq(commit(&change, 1), -ENODATA);
    ck_assert_int_eq(commit(&change, 1), -EROFS);
    reopen();
    ck_assert(report.damaged);
    ck_assert_int_eq(commit(&change, 1), 0);
}

/* LeakSanitizer asks. What LMDB has in memory after a SIGBUS is forgotten, not freed. */
static bool forgets;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return forgets;
}

/* The file may be cut between the look at its length and the end of the transaction: a page of the
 * map is missing then, and the error says the same. */
CASE(one_that_is_cut_during_commits_says_so)
{
    enum { ROUNDS = 40, N = 200 };
    static struct one all[N];
    static uint8_t value[JOURNAL_VALUE_MAX];
    crash_init(NULL);
    forgets = true;
    for (unsigned round = 0; round < ROUNDS; round++) {
        must_open();
        const struct journal_change first = {0, "a", 1};
        ck_assert_int_eq(commit(&first, 1), 0);
        static struct journal_change change[N];
        for (unsigned i = 0; i < N; i++) {
            change[i] = (struct journal_change){i, value, sizeof value};
            begin(&all[i], &change[i], 1);
        }
        const struct timespec part = {.tv_nsec = 50000 * (long)round};
        (void)nanosleep(&part, NULL);
        ck_assert_int_eq(truncate(in_scratch("journal/env/data.mdb"), 4096), 0);
        unsigned cut = 0;
        for (unsigned i = 0; i < N; i++) {
            const int r = end(&all[i]);
            ck_assert_msg(r == 0 || r == -ENODATA || (r == -EROFS && cut > 0), "commit %u: %d", i,
                          r);
            cut += r == -ENODATA;
        }
        meta_close(&meta);
        scratch_remove();
        scratch_make(false);
    }
}

CASE(commits_end_in_the_order_in_which_they_were_begun)
{
    enum { N = 300 };
    static struct one all[N];
    static struct journal_change changes[N];
    static char texts[N][8];
    must_open();
    done_calls = 0;
    for (unsigned i = 0; i < N; i++) {
        snprintf(texts[i], sizeof texts[i], "%u", i);
        changes[i] = (struct journal_change){i % 3, texts[i], (uint32_t)strlen(texts[i])};
        begin(&all[i], &changes[i], 1);
    }
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(end(&all[i]), 0);
        ck_assert_uint_eq(all[i].order, i);
    }
    struct meta_stats stats;
    meta_stats(meta, &stats);
    ck_assert_uint_eq(stats.commits, N);
    ck_assert_uint_eq(stats.changes, N);
    ck_assert_uint_le(stats.transactions, N);
    reopen();
    ck_assert_str_eq(contents(), "0=297 1=298 2=299 ");
}

CASE(close_waits_for_what_was_begun_and_says_so)
{
    struct one o;
    const struct journal_change change = {1, "one", 3};
    must_open();
    begin(&o, &change, 1);
    meta_close(&meta);
    ck_assert_uint_eq(o.calls, 1);
    ck_assert_int_eq(o.commit.result, 0);
    must_open();
    ck_assert_str_eq(contents(), "1=one ");
}

CASE(the_map_grows_when_it_is_full)
{
    enum { N = 4000 };
    static uint8_t value[JOURNAL_VALUE_MAX];
    static struct journal_change changes[N];
    must_open();
    memset(value, 'v', sizeof value);
    for (unsigned i = 0; i < N; i++)
        changes[i] = (struct journal_change){i, value, sizeof value};
    ck_assert_int_eq(commit(changes, N), 0);
    struct meta_stats stats;
    meta_stats(meta, &stats);
    ck_assert_uint_gt(stats.map_bytes, UINT64_C(4) << 20);
    reopen();
    ck_assert_uint_eq(report.entries, N);
    ck_assert_int_eq(put_text(N, "more"), 0);
}

CASE(clear_forgets_everything_for_good)
{
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    reopen();
    struct journal *j = meta_journal(meta);
    ck_assert_int_eq(j->ops->clear(j), 0);
    ck_assert_str_eq(contents(), "");
    reopen();
    ck_assert(!report.fresh && !report.damaged);
    ck_assert_str_eq(contents(), "");
    ck_assert_int_eq(put_text(2, "two"), 0);
}

static int stop_at_two(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    (void)value;
    (void)bytes;
    ++*(unsigned *)ctx;
    return key == 2 ? 77 : 0;
}

CASE(a_walk_ends_where_it_is_told_to)
{
    unsigned calls = 0;
    must_open();
    ck_assert_int_eq(put_text(1, "x"), 0);
    ck_assert_int_eq(put_text(2, "x"), 0);
    ck_assert_int_eq(put_text(3, "x"), 0);
    reopen();
    struct journal *j = meta_journal(meta);
    ck_assert_int_eq(j->ops->walk(j, stop_at_two, &calls), 77);
    ck_assert_uint_eq(calls, 2);
}

/* --- who may --- */

CASE(a_second_opener_is_refused)
{
    must_open();
    struct meta *first = meta;
    meta = NULL;
    ck_assert_int_eq(try_open_as(false, 0), -EBUSY);
    ck_assert_ptr_nonnull(strstr(report.why, "is in use by another kvcache-daemon"));
    meta_close(&first);
    must_open();
}

CASE(readonly_makes_and_changes_nothing)
{
    ck_assert_int_eq(try_open_as(true, 0), -ENOENT);
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    meta_close(&meta);
    ck_assert_int_eq(try_open_as(true, 0), 0);
    struct journal *j = meta_journal(meta);
    ck_assert_str_eq(contents(), "1=one ");
    ck_assert_int_eq(j->ops->clear(j), -EROFS);
    ck_assert_int_eq(put_text(2, "two"), -EROFS);
}

/* Writes the record that says which format it is, as a program of that format would. */
static void set_format(uint8_t version)
{
    static const char name[] = "kvcache-journal";
    uint8_t summed[sizeof name - 1 + 4] = {0};
    uint8_t record[16 + 4];
    memcpy(summed, name, sizeof name - 1);
    summed[sizeof name - 1] = version;
    const struct hash128 sum = hash_sum(summed, sizeof summed);
    memcpy(record, &sum, sizeof sum);
    memcpy(record + sizeof sum, summed + sizeof name - 1, 4);
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    MDB_val key = {sizeof name - 1, (void *)(uintptr_t)name};
    MDB_val value = {sizeof record, record};
    ck_assert_int_eq(mdb_env_create(&env), 0);
    ck_assert_int_eq(mdb_env_open(env, in_scratch("journal/env"), MDB_NOLOCK, 0600), 0);
    ck_assert_int_eq(mdb_txn_begin(env, NULL, 0, &txn), 0);
    ck_assert_int_eq(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    ck_assert_int_eq(mdb_put(txn, dbi, &key, &value, 0), 0);
    ck_assert_int_eq(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

CASE(a_newer_format_is_refused_by_name)
{
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    meta_close(&meta);
    set_format(META_FORMAT_VERSION + 1);
    ck_assert_int_eq(try_open_as(false, 0), -EPROTO);
    ck_assert_ptr_nonnull(strstr(report.why, "of format 2; this program knows 1"));
    set_format(META_FORMAT_VERSION);
    must_open();
    ck_assert_str_eq(contents(), "1=one ");
}

CASE(a_directory_without_its_file_is_damaged)
{
    must_open();
    meta_close(&meta);
    ck_assert_int_eq(unlink(in_scratch("journal/env/data.mdb")), 0);
    must_open();
    ck_assert(report.damaged);
    ck_assert_str_eq(contents(), "");
}

/* --- faults --- */

CASE(after_an_error_it_takes_no_more_until_it_is_opened_again)
{
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    ck_assert_int_eq(fault_arm("meta", 2), 0);
    ck_assert_int_eq(put_text(2, "two"), -EIO);
    fault_reset();
    ck_assert_int_eq(put_text(3, "three"), -EROFS);
    reopen();
    ck_assert_str_eq(contents(), "1=one ");
    ck_assert_int_eq(put_text(2, "two"), 0);
}

/* One call fails while the journal is made or found, takes a commit and closes. Whether it did. */
static bool with_fault(const char *point, uint64_t nth)
{
    const struct journal_change two[] = {{2, "two", 3}, {3, "three", 5}};
    ck_assert_int_eq(fault_arm(point, nth), 0);
    int committed = -1;
    const int r = try_open_as(false, UINT64_C(1) << 20);
    ck_assert_msg(r == 0 || report.why[0], "%s %u: %d", point, (unsigned)nth, r);
    if (r == 0) {
        committed = commit(two, 2);
        meta_close(&meta);
    }
    /* What strikes in the child is not counted here. */
    const bool reached = fault_count(point) >= nth || r < 0 || report.damaged;
    fault_reset();
    must_open();
    const char *all = contents();
    if (committed == 0)
        ck_assert_str_eq(all, "2=two 3=three ");
    else
        ck_assert_msg(!all[0] || strcmp(all, "2=two 3=three ") == 0, "%s", all);
    struct journal *j = meta_journal(meta);
    ck_assert_int_eq(j->ops->clear(j), 0);
    meta_close(&meta);
    return reached;
}

/* Every call into LMDB and everything else that may be refused, one at a time, where there is none
 * and where there is one: opened, anew or as it was, or refused. A commit that was told as good is
 * there, another one whole or not at all. */
static void one_by_one(const char *point)
{
    unsigned made = 0, found = 0;
    must_open();
    meta_close(&meta);
    while (with_fault(point, found + 1))
        found++;
    do {
        (void)nftw(in_scratch("journal"), scratch_remove_one, 8, FTW_DEPTH | FTW_PHYS);
    } while (with_fault(point, ++made));
    printf("%s: %u calls failed where it was found, %u where it was made\n", point, found,
           made - 1);
    ck_assert_uint_gt(found + made, 1);
}

CASE_EACH(each_refused_call_is_an_error, 7)
{
    static const char *const points[] = {"meta", "walk", "alloc", "fd", "thread", "map", "sync"};
    one_by_one(points[_i]);
}

/* --- made later --- */

static int made_err;
static unsigned made_calls;

static void note_made(void *ctx, int err)
{
    ck_assert_ptr_eq(ctx, &made_err);
    made_err = err;
    made_calls++;
}

/* There is nothing yet that it could stand in. */
static const char *begin_to_make(void)
{
    const char *dir = in_scratch("later/journal");
    const struct meta_config config = {.dir = dir, .map_bytes = UINT64_C(1) << 20};
    made_calls = 0;
    ck_assert_int_eq(meta_open(&config, loop, &meta, &report), -ENOENT);
    ck_assert_ptr_null(meta);
    ck_assert_int_eq(meta_make(&config, loop, 5, note_made, &made_err, &meta), 0);
    return dir;
}

static int await_made(void)
{
    while (made_calls == 0)
        ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
    ck_assert_uint_eq(made_calls, 1);
    return made_err;
}

CASE(what_could_not_be_made_is_made_once_it_can)
{
    const struct meta_config config = {.dir = begin_to_make()};
    ck_assert_int_eq(mkdir(in_scratch("later"), 0700), 0);
    ck_assert_int_eq(await_made(), 0);
    ck_assert_int_eq(meta_journal(meta)->ops->stands(meta_journal(meta)), 0);
    ck_assert_str_eq(contents(), "");
    ck_assert_int_eq(put_text(1, "one"), 0);
    ck_assert_uint_eq(made_calls, 1);
    meta_close(&meta);
    ck_assert_int_eq(meta_open(&config, loop, &meta, &report), 0);
    ck_assert_str_eq(contents(), "1=one ");
}

/* What stands in it would have to be read. */
CASE(one_of_an_earlier_run_is_not_made_anew)
{
    const struct meta_config config = {.dir = in_scratch("journal")};
    struct meta *other = NULL;
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    made_calls = 0;
    ck_assert_int_eq(meta_make(&config, loop, 5, note_made, &made_err, &other), 0);
    meta_close(&meta); /* which has the lock: until then it is tried again */
    ck_assert_int_eq(await_made(), -EEXIST);
    meta_close(&other);
    must_open();
    ck_assert_str_eq(contents(), "1=one ");
}

CASE(nobody_is_told_of_what_is_closed_before_it_is_made)
{
    (void)begin_to_make();
    meta_close(&meta);
    ck_assert_ptr_null(meta);
    ck_assert_int_eq(mkdir(in_scratch("later"), 0700), 0);
    ck_assert_uint_eq(made_calls, 0);
    ck_assert_int_eq(access(in_scratch("later/journal"), F_OK), -1);
}

/* --- damage --- */

static void fill(unsigned entries)
{
    static uint8_t value[200];
    memset(value, 'f', sizeof value);
    for (unsigned i = 0; i < entries;) {
        struct journal_change changes[20];
        unsigned n = 0;
        for (; n < 20 && i < entries; n++, i++)
            changes[n] = (struct journal_change){i, value, sizeof value};
        ck_assert_int_eq(commit(changes, n), 0);
    }
    for (unsigned i = 0; i < entries; i += 7) { /* and free pages */
        const struct journal_change gone = {i, NULL, 0};
        ck_assert_int_eq(commit(&gone, 1), 0);
    }
}

static int check_entry(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    uint8_t whole[200];
    memset(whole, 'f', sizeof whole);
    if (key >= 400 || bytes != sizeof whole || memcmp(value, whole, sizeof whole) != 0)
        return -1; /* an assertion for each would take most of the test's time */
    ++*(unsigned *)ctx;
    return 0;
}

static void copy_file(const char *from, const char *to)
{
    static uint8_t buf[1 << 20];
    const int in = open(from, O_RDONLY | O_CLOEXEC);
    const int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert(in >= 0 && out >= 0);
    ssize_t n;
    while ((n = read(in, buf, sizeof buf)) > 0)
        ck_assert_int_eq(write(out, buf, (size_t)n), n);
    close(in);
    close(out);
}

static void flip(const char *file, uint64_t byte, unsigned bit)
{
    uint8_t value;
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &value, 1, (off_t)byte), 1);
    value ^= (uint8_t)(1u << bit);
    ck_assert_int_eq(pwrite(fd, &value, 1, (off_t)byte), 1);
    close(fd);
}

/* Bits anywhere in the file: what opens has only entries that were put, whole, and takes commits;
 * after those it still is sound. */
CASE(flipped_bits_are_found_or_harmless)
{
    enum { ROUNDS = 300 };
    unsigned damaged = 0, missing = 0;
    char env[256], kept[256];
    struct stat st;
    snprintf(env, sizeof env, "%s/journal/env/data.mdb", scratch);
    snprintf(kept, sizeof kept, "%s/kept.mdb", scratch);
    uint64_t seed = 0x9e3779b97f4a7c15u;
    must_open();
    fill(400);
    meta_close(&meta);
    ck_assert_int_eq(stat(env, &st), 0);
    copy_file(env, kept);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned entries = 0;
        copy_file(kept, env);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        /* Half of them where it hurts most: in the heads of pages. */
        off_t at = (off_t)((seed >> 20) % (uint64_t)st.st_size);
        if (round % 2)
            at = at / 4096 * 4096 + (off_t)(seed >> 13) % 64;
        flip(env, (uint64_t)at, (unsigned)(seed >> 60) % 8);
        must_open();
        struct journal *j = meta_journal(meta);
        ck_assert_msg(j->ops->walk(j, check_entry, &entries) == 0, "round %u", round);
        damaged += report.damaged;
        if (!report.damaged) {
            missing += entries != 342;
            fill(40);
            meta_close(&meta);
            must_open();
            ck_assert_msg(!report.damaged, "round %u: bit at %ld made commits do damage: %s", round,
                          (long)at, report.why);
        }
        meta_close(&meta);
    }
    printf("%d flipped bits: %u found, %u an older state, the rest harmless\n", ROUNDS, damaged,
           missing);
    ck_assert_uint_gt(damaged, 0);
}

CASE(what_was_damaged_is_kept_aside)
{
    must_open();
    ck_assert_int_eq(put_text(1, "one"), 0);
    meta_close(&meta);
    const char *env = in_scratch("journal/env/data.mdb");
    struct stat st;
    ck_assert_int_eq(stat(env, &st), 0);
    const int fd = open(env, O_RDWR | O_CLOEXEC);
    static uint8_t junk[65536];
    memset(junk, 0x5a, sizeof junk);
    ck_assert_int_gt(pwrite(fd, junk, sizeof junk, 0), 0);
    close(fd);
    ck_assert_int_eq(try_open_as(true, 0), -EUCLEAN);
    ck_assert_ptr_nonnull(strstr(report.why, "is damaged"));
    must_open();
    ck_assert(report.damaged && !report.fresh);
    ck_assert_ptr_nonnull(report.why);
    ck_assert_str_eq(contents(), "");
    ck_assert_int_eq(put_text(2, "two"), 0);
    ck_assert_int_eq(stat(in_scratch("journal/env.bad/data.mdb"), &st), 0);
    reopen();
    ck_assert_str_eq(contents(), "2=two ");
}

/* Branch and leaf pages of both trees, by LMDB's own count. */
static unsigned pages_in_use(const char *dir)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    unsigned pages = 0;
    ck_assert_int_eq(mdb_env_create(&env), 0);
    ck_assert_int_eq(mdb_env_open(env, dir, MDB_RDONLY | MDB_NOLOCK, 0), 0);
    ck_assert_int_eq(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), 0);
    ck_assert_int_eq(mdb_dbi_open(txn, NULL, 0, &dbi), 0);
    for (MDB_dbi i = 0; i < 2; i++) {
        MDB_stat st;
        ck_assert_int_eq(mdb_stat(txn, i, &st), 0);
        ck_assert_uint_eq(st.ms_overflow_pages, 0);
        pages += (unsigned)(st.ms_branch_pages + st.ms_leaf_pages);
    }
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return pages;
}

/* One bit of each head at a time: found on each page in use, and on no other. A leaf that says that
 * it is several pages would have LMDB write memory that it does not own. */
CASE(a_damaged_head_of_a_page_in_use_is_found)
{
    static const struct {
        unsigned byte, bit;
    } heads[] = {
        {0, 0},  /* number */
        {10, 2}, /* flags: is several pages */
        {10, 1}, /* flags: has records */
        {10, 0}, /* flags: has pages below it */
        {13, 4}, /* end of the node offsets */
        {15, 6}, /* where nodes begin */
        {17, 6}, /* where the first node is */
    };
    const char *dir = in_scratch("journal/env");
    char file[300];
    struct stat st;
    snprintf(file, sizeof file, "%s/data.mdb", dir);
    must_open();
    fill(400);
    meta_close(&meta);
    ck_assert_int_eq(stat(file, &st), 0);
    const unsigned in_use = pages_in_use(dir);
    ck_assert_uint_gt(in_use, 10);
    for (unsigned h = 0; h < sizeof heads / sizeof heads[0]; h++) {
        unsigned found = 0;
        for (uint64_t page = 2; page < (uint64_t)st.st_size / 4096; page++) {
            const uint64_t at = page * 4096 + heads[h].byte;
            flip(file, at, heads[h].bit);
            const int r = try_open_as(true, 0);
            ck_assert(r == 0 || r == -EUCLEAN);
            found += r == -EUCLEAN;
            meta_close(&meta);
            flip(file, at, heads[h].bit);
        }
        ck_assert_msg(found == in_use, "bit %u of byte %u: found on %u of %u pages", heads[h].bit,
                      heads[h].byte, found, in_use);
    }
}

/* Entries of all sizes that come, change their size and go, in transactions of all sizes. */
CASE(a_sound_one_is_never_called_damaged)
{
    static uint8_t value[JOURNAL_VALUE_MAX];
    uint64_t seed = 0x9e3779b97f4a7c15u;
    must_open();
    for (unsigned round = 0; round < 400; round++) {
        struct journal_change changes[200];
        const unsigned spread = round / 100 % 2 ? 300 : 3000; /* grows, shrinks */
        const unsigned n = 1 + (unsigned)((seed >> 33) % 200);
        for (unsigned i = 0; i < n; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            const bool goes = (seed >> 40) % 10 < (spread == 300 ? 6 : 3);
            changes[i] = (struct journal_change){(seed >> 20) % 3000, goes ? NULL : value,
                                                 goes ? 0 : (seed >> 50) % (sizeof value + 1)};
        }
        ck_assert_int_eq(commit(changes, n), 0);
        if (round % 4)
            continue;
        reopen();
        ck_assert_msg(!report.damaged, "round %u: %s", round, report.why);
    }
}

/* Killed at any moment, the commits that were told as done are there. */
CASE(killed_while_it_commits_it_has_what_was_promised)
{
    for (unsigned round = 0; round < 10; round++) {
        int told[2];
        ck_assert_int_eq(pipe(told), 0);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            struct loop *mine = make_with(LOOP_EPOLL, 0, 8, 0);
            loop = mine;
            must_open();
            for (uint64_t i = 0;; i++) {
                const struct journal_change change = {i, "promise", 7};
                if (commit(&change, 1) != 0 || write(told[1], &i, sizeof i) != sizeof i)
                    _exit(1);
            }
        }
        close(told[1]);
        uint64_t last = 0;
        uint64_t n;
        for (unsigned i = 0; i < 5 + round * 7; i++)
            ck_assert_int_eq(read(told[0], &last, sizeof last), sizeof last);
        kill(pid, SIGKILL);
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        while (read(told[0], &n, sizeof n) == sizeof n)
            last = n;
        close(told[0]);
        must_open();
        ck_assert_msg(!report.damaged, "%s", report.why);
        ck_assert_uint_ge(report.entries, last + 1);
        struct journal *j = meta_journal(meta);
        ck_assert_int_eq(j->ops->clear(j), 0);
        meta_close(&meta);
    }
}
