/* SPDX-License-Identifier: Apache-2.0 */
/* A Check program is its cases: what stands in a file with CASE() is run, in the order of the file.
 *
 *     CASES(.setup = setup, .teardown = teardown);
 *
 *     CASE(what_is_put_is_got)
 *     {
 *         ck_assert_int_eq(...);
 *     }
 *
 * Such a program needs no main(): kvc_check has one. A program that does more before its cases has
 * its own, which ends with `return cases_run();`. */
#ifndef KVC_CHECK_CASES_H
#define KVC_CHECK_CASES_H

#include <check.h>
#include <stdbool.h>

/* The part of n rounds that a random test runs: a third under sanitizers, which make each round
 * about three times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SHARE(n) (((n) + 2) / 3)
#else
#define CHECK_SHARE(n) (n)
#endif

/* Whether only tests with several threads run: ThreadSanitizer finds nothing in a test of one
 * thread. */
#ifdef __SANITIZE_THREAD__
#define CHECK_THREADS_ONLY 1
#else
#define CHECK_THREADS_ONLY 0
#endif

#define UNTIMED -1.0

/* How a group of cases runs: functions around each case, in the case's process. */
struct cases {
    const char *name; /* name for CK_RUN_CASE; NULL: the program's name */
    void (*setup)(void);
    void (*teardown)(void);
    /* Time limit of each case. 0: Check's own (CK_DEFAULT_TIMEOUT), or two minutes; UNTIMED: no
     * limit. */
    double timeout_s;
    bool left_out; /* the cases of this group do not run */
};

/* A case. It runs once for each i from first to end - 1, and must end with `signal` (0: normally).
 */
struct check_case {
    const TTest *test; /* NULL: not a case, but the `cases` of the cases that follow */
    int first, end, signal;
    struct cases cases;
};

/* One CASE() or CASES() of a program. `ask` is called after main() has begun. */
struct check_entry {
    const char *file;
    int line;
    struct check_case (*ask)(void);
    struct check_entry *next;
};

void check_entry_add(struct check_entry *e);

/* Runs the program's cases and returns main()'s result. 0: none failed and one has run, or all are
 * left out. CK_VERBOSITY in the environment sets how much is printed (default: normal). */
int cases_run(void);

#define CHECK_ENTRY(name_, ...)                                                    \
    static struct check_case name_##_ask(void)                                     \
    {                                                                              \
        return (struct check_case){__VA_ARGS__};                                   \
    }                                                                              \
    __attribute__((constructor)) static void name_##_add(void)                     \
    {                                                                              \
        static struct check_entry e = {                                            \
            .file = __FILE__, .line = __LINE__, .ask = name_##_ask, .next = NULL}; \
        check_entry_add(&e);                                                       \
    }

#define CHECK_CASE(name_, ...)                                             \
    static void name_(int _i);                                             \
    static const TTest name_##_test = {#name_, name_, __FILE__, __LINE__}; \
    CHECK_ENTRY(name_, .test = &name_##_test, __VA_ARGS__)                 \
    static void name_(CK_ATTRIBUTE_UNUSED int _i)

#define CHECK_NAME2(line)        cases_##line
#define CHECK_NAME(line)         CHECK_NAME2(line)
#define CHECK_ENTRY2(name_, ...) CHECK_ENTRY(name_, __VA_ARGS__)

/* Sets fields of struct cases for the cases below, up to the next CASES(). */
#define CASES(...)                                             \
    CHECK_ENTRY2(CHECK_NAME(__LINE__), .cases = {__VA_ARGS__}) \
    struct check_entry

#define CASE(name) CHECK_CASE(name, .end = 1)
/* Runs once for each row _i from 0 to n - 1. */
#define CASE_EACH(name, n)           CHECK_CASE(name, .end = (int)(n))
#define CASE_RANGE(name, from, upto) CHECK_CASE(name, .first = (int)(from), .end = (int)(upto))
/* The case must end with this signal. */
#define CASE_DIES(name, signo)         CHECK_CASE(name, .end = 1, .signal = (signo))
#define CASE_DIES_EACH(name, signo, n) CHECK_CASE(name, .end = (int)(n), .signal = (signo))

#endif
