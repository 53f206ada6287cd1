/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of kept chunks, and the records beside them. */
#include "backing.h"

#include <string.h>
#include <sys/stat.h>

#include "cases.h"
#include "host.h"
#include "layout.h"
#include "ns_records.h"
#include "tier_fixture.h"
#include "warm_fixture.h"

CASE(a_directory_on_a_disk_is_refused_by_the_name_of_its_file_system)
{
    char text[512];
    struct stat st;
    ck_assert_ptr_nonnull(backing_dir_problem("relative", text, sizeof(text)));
    ck_assert_ptr_nonnull(backing_dir_problem("/nowhere/at/all", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "/nowhere/at/all"));
    ck_assert_ptr_nonnull(backing_dir_problem("/proc", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "is on proc"));
    ck_assert_ptr_nonnull(strstr(text, "tmpfs or hugetlbfs"));
    ck_assert_ptr_nonnull(backing_dir_problem("/proc/version", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "not a directory"));
    if (stat("/dev/shm", &st) == 0 && (st.st_mode & 022) != 0) {
        ck_assert_ptr_nonnull(backing_dir_problem("/dev/shm", text, sizeof(text)));
        ck_assert_ptr_nonnull(strstr(text, "writable for nobody else"));
        ck_assert_ptr_null(backing_dir_problem("/dev/shm/kvcache-that-is-not", text, sizeof(text)));
    }
    const struct backing_config config = {.persist = ARENA_PERSIST_DIR, .dir = "/proc"};
    struct backing *backing = NULL;
    ck_assert_int_eq(backing_open(&config, &backing), -EINVAL);
}

/* --- names --- */

static bool take_name(void *ctx, uint64_t print, const uint8_t *record, uint32_t bytes)
{
    uint64_t *sum = ctx;
    ck_assert_uint_eq(bytes, 100 + print);
    for (uint32_t i = 0; i < bytes; i++)
        ck_assert_uint_eq(record[i], print);
    *sum += print;
    return print != 3;
}

CASE(names_are_there_again_and_those_that_went_are_not)
{
    struct kept k;
    uint8_t record[NAMES_RECORD_MAX];
    uint8_t store[16];
    struct backing *backing = NULL;
    struct ns_records *n = NULL;
    if (!kept_begin(&k))
        return;
    const struct backing_config config = config_of(&k, ARENA_PERSIST_DIR).backing;
    ck_assert_int_eq(backing_open(&config, &backing), 0);
    ck_assert_int_eq(ns_records_open(backing, 8, &n), 0);
    ck_assert(!ns_records_is_old(n));
    memcpy(store, ns_records_store(n), sizeof(store));
    for (uint64_t print = 1; print <= 8; print++) {
        memset(record, (int)print, sizeof(record));
        ck_assert_int_eq(ns_records_put(n, print, record, 100 + (uint32_t)print), 0);
    }
    ck_assert_int_eq(ns_records_put(n, 9, record, 10), -ENOSPC);
    ck_assert_int_eq(ns_records_put(n, 0, record, 10), -EINVAL);
    ck_assert_int_eq(ns_records_put(n, 1, record, NAMES_RECORD_MAX + 1), -EINVAL);
    ns_records_set_next_chunk(n, 77);
    ns_records_sweep(n); /* all were put */
    ck_assert_uint_eq(ns_records_count(n), 8);
    for (uint64_t print = 1; print <= 7; print++)
        ck_assert(ns_records_has(n, print));
    ck_assert(!ns_records_has(n, 9));
    ns_records_sweep(n); /* 8 was not asked for */
    ck_assert_uint_eq(ns_records_count(n), 7);
    ck_assert(!ns_records_has(n, 8));
    ns_records_close(&n);

    ck_assert_int_eq(ns_records_open(backing, 8, &n), 0);

    uint64_t sum = 0;
    ck_assert(ns_records_is_old(n));
    ck_assert_mem_eq(store, ns_records_store(n), sizeof(store));
    ck_assert_uint_eq(ns_records_next_chunk(n), 77);
    ck_assert_uint_eq(ns_records_each(n, take_name, &sum), 6);
    ck_assert_uint_eq(sum, 1 + 2 + 3 + 4 + 5 + 6 + 7);
    ck_assert(!ns_records_has(n, 3));
    memset(record, 3, sizeof(record));
    ck_assert_int_eq(ns_records_put(n, 3, record, 103), 0);
    ns_records_close(&n);
    backing_close(&backing);
    kept_end(&k);
}

/* --- damage --- */

static uint32_t keep_none(void *ctx, const struct arena_found *found)
{
    (void)ctx, (void)found;
    return UINT32_MAX;
}

static void overwrite(const struct kept *k, const char *name)
{
    static const uint8_t rubbish[LAYOUT_PAGE_BYTES] = {1, 2, 3};
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", k->dir, name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, rubbish, sizeof(rubbish), 0), sizeof(rubbish));
    close(fd);
}

/* A start; what it found in place of `names`. */
static void run(struct kept *k, struct arena_recovery *ret_recovery, bool *ret_old, bool *ret_lost)
{
    const struct arena_config config = config_of(k, ARENA_PERSIST_DIR);
    struct arena *a = start(k, &config);
    arena_recover(a, keep_none, NULL, ret_recovery);
    *ret_old = ns_records_is_old(arena_names(a));
    *ret_lost = ns_records_was_lost(arena_names(a));
    arena_destroy(&a);
}

/* A run that has stored nothing has no file with its magic but this one. */
CASE(a_damaged_names_file_is_made_anew)
{
    struct kept k;
    struct arena_recovery r;
    bool old, lost;
    if (!kept_begin(&k))
        return;
    run(&k, &r, &old, &lost);
    ck_assert(!old && !lost);
    overwrite(&k, "names");

    run(&k, &r, &old, &lost);

    ck_assert(!old && lost);
    ck_assert_uint_eq(r.damaged + r.foreign, 0);
    run(&k, &r, &old, &lost);
    ck_assert(old && !lost);
    kept_end(&k);
}

CASE(the_log_says_that_names_was_damaged)
{
    struct kept k;
    struct arena_recovery r;
    bool old, lost, said = false;
    if (!kept_begin(&k))
        return;
    run(&k, &r, &old, &lost);
    overwrite(&k, "names");
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    const struct host_config config = {.arena = config_of(&k, ARENA_PERSIST_DIR),
                                       .copier = {.threads = 1, .inflight_bytes = 4 * MIB}};
    const struct host_recovery none = {.block = keep_none};

    ck_assert_int_eq(host_create(&config, loop, &h), 0);

    host_recover(h, &none, &r);
    for (unsigned i = 0; host_recovery_note(h, i) != NULL; i++)
        said |= strstr(host_recovery_note(h, i), "'names' was damaged") != NULL;
    ck_assert(said);
    host_destroy(&h);
    loop_destroy(&loop);
    kept_end(&k);
}

CASE(a_directory_in_which_all_is_damaged_is_begun_anew)
{
    struct kept k;
    struct arena_recovery r;
    char name[HOME_NAME_BYTES];
    bool old, lost;
    if (!kept_begin(&k))
        return;
    run(&k, &r, &old, &lost);
    overwrite(&k, "names");
    for (unsigned id = 1; id <= 7; id++) {
        snprintf(name, sizeof(name), "chunk-%u", id);
        overwrite(&k, name);
    }

    run(&k, &r, &old, &lost);

    ck_assert(!old && lost);
    ck_assert_uint_eq(r.damaged, 7);
    kept_end(&k);
}

/* Others may have made them: their mode, or their size, is none of ours. */
CASE(notes_beside_damaged_chunks_refuse_the_start_and_stay)
{
    struct kept k;
    struct arena_recovery r;
    char path[512], text[512];
    struct stat st;
    bool old, lost;
    if (!kept_begin(&k))
        return;
    const struct arena_config config = config_of(&k, ARENA_PERSIST_DIR);
    snprintf(path, sizeof(path), "%s/names", k.dir);
    for (int i = 0; i < 2; i++) {
        struct arena *a = NULL;
        run(&k, &r, &old, &lost);
        overwrite(&k, "names");
        if (i == 0)
            ck_assert_int_eq(chmod(path, 0644), 0);
        else
            ck_assert_int_eq(truncate(path, 100), 0);

        ck_assert_int_eq(arena_create(&config, &a), -EEXIST);

        ck_assert_ptr_nonnull(backing_stranger(k.dir, text, sizeof(text)));
        ck_assert_ptr_nonnull(strstr(text, path));
        ck_assert_int_eq(stat(path, &st), 0);
        ck_assert(i == 0 || st.st_size == 100);
        ck_assert_int_eq(unlink(path), 0);
    }
    kept_end(&k);
}
