/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of kept chunks, and the records beside them. */
#include "home.h"

#include <check.h>
#include <string.h>
#include <sys/stat.h>

#include "check_run.h"
#include "names.h"
#include "warm_fixture.h"

START_TEST(a_directory_on_a_disk_is_refused_by_the_name_of_its_file_system)
{
    char text[512];
    struct stat st;
    ck_assert_ptr_nonnull(home_dir_problem("relative", text, sizeof(text)));
    ck_assert_ptr_nonnull(home_dir_problem("/nowhere/at/all", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "/nowhere/at/all"));
    ck_assert_ptr_nonnull(home_dir_problem("/proc", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "is on proc"));
    ck_assert_ptr_nonnull(strstr(text, "tmpfs or hugetlbfs"));
    ck_assert_ptr_nonnull(home_dir_problem("/proc/version", text, sizeof(text)));
    ck_assert_ptr_nonnull(strstr(text, "not a directory"));
    if (stat("/dev/shm", &st) == 0 && (st.st_mode & 022) != 0) {
        ck_assert_ptr_nonnull(home_dir_problem("/dev/shm", text, sizeof(text)));
        ck_assert_ptr_nonnull(strstr(text, "writable for nobody else"));
        ck_assert_ptr_null(home_dir_problem("/dev/shm/kvcache-that-is-not", text, sizeof(text)));
    }
    const struct home_config config = {.persist = ARENA_PERSIST_DIR, .dir = "/proc"};
    struct home *home = NULL;
    ck_assert_int_eq(home_open(&config, &home), -EINVAL);
}
END_TEST

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

START_TEST(names_are_there_again_and_those_that_went_are_not)
{
    struct kept k;
    uint8_t record[NAMES_RECORD_MAX];
    uint8_t store[16];
    struct home *home = NULL;
    struct names *n = NULL;
    if (!kept_begin(&k))
        return;
    const struct home_config config = config_of(&k, ARENA_PERSIST_DIR).home;
    ck_assert_int_eq(home_open(&config, &home), 0);
    ck_assert_int_eq(names_open(home, 8, &n), 0);
    ck_assert(!names_is_old(n));
    memcpy(store, names_store(n), sizeof(store));
    for (uint64_t print = 1; print <= 8; print++) {
        memset(record, (int)print, sizeof(record));
        ck_assert_int_eq(names_put(n, print, record, 100 + (uint32_t)print), 0);
    }
    ck_assert_int_eq(names_put(n, 9, record, 10), -ENOSPC);
    ck_assert_int_eq(names_put(n, 0, record, 10), -EINVAL);
    ck_assert_int_eq(names_put(n, 1, record, NAMES_RECORD_MAX + 1), -EINVAL);
    names_set_next_chunk(n, 77);
    names_sweep(n); /* all were put */
    ck_assert_uint_eq(names_count(n), 8);
    for (uint64_t print = 1; print <= 7; print++)
        ck_assert(names_has(n, print));
    ck_assert(!names_has(n, 9));
    names_sweep(n); /* 8 was not asked for */
    ck_assert_uint_eq(names_count(n), 7);
    ck_assert(!names_has(n, 8));
    names_close(&n);

    ck_assert_int_eq(names_open(home, 8, &n), 0);

    uint64_t sum = 0;
    ck_assert(names_is_old(n));
    ck_assert_mem_eq(store, names_store(n), sizeof(store));
    ck_assert_uint_eq(names_next_chunk(n), 77);
    ck_assert_uint_eq(names_each(n, take_name, &sum), 6);
    ck_assert_uint_eq(sum, 1 + 2 + 3 + 4 + 5 + 6 + 7);
    ck_assert(!names_has(n, 3));
    memset(record, 3, sizeof(record));
    ck_assert_int_eq(names_put(n, 3, record, 103), 0);
    names_close(&n);
    home_close(&home);
    kept_end(&k);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("tier/home");
    TCase *t = tcase_create("home");
    tcase_add_test(t, a_directory_on_a_disk_is_refused_by_the_name_of_its_file_system);
    tcase_add_test(t, names_are_there_again_and_those_that_went_are_not);
    suite_add_tcase(s, t);
    return check_run(s);
}
