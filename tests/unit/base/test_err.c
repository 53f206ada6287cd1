/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "err.h"

static void hook_says_so(void)
{
    (void)!write(STDERR_FILENO, "[hook]\n", 7);
}

static void hook_fails_itself(void)
{
    (void)!write(STDERR_FILENO, "[hook]\n", 7);
    MUST(1 + 1 == 3);
}

/* Runs a failing MUST in a child with that hook; what it wrote to stderr, and that it died of
 * SIGABRT. */
static void fail_in_child(void (*hook)(void), char *ret_text, size_t cap)
{
    int fds[2], status = 0;
    ck_assert_int_eq(pipe(fds), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)dup2(fds[1], STDERR_FILENO);
        err_set_must_hook(hook);
        MUST(strlen("") == 1);
        _exit(0);
    }
    (void)close(fds[1]);
    size_t len = 0;
    for (ssize_t n; len < cap - 1 && (n = read(fds[0], ret_text + len, cap - 1 - len)) > 0;)
        len += (size_t)n;
    ret_text[len] = '\0';
    (void)close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

CASE(must_names_the_place_and_the_condition)
{
    char text[1024];
    fail_in_child(NULL, text, sizeof(text));
    ck_assert_ptr_nonnull(strstr(text, "test_err.c:"));
    ck_assert_ptr_nonnull(strstr(text, "fail_in_child"));
    ck_assert_ptr_nonnull(strstr(text, "strlen(\"\") == 1"));
}

CASE(the_hook_runs_after_the_line)
{
    char text[1024];
    fail_in_child(hook_says_so, text, sizeof(text));
    const char *line = strstr(text, "MUST("), *hook = strstr(text, "[hook]");
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_nonnull(hook);
    ck_assert(line < hook);
}

CASE(a_hook_that_fails_does_not_run_again)
{
    char text[4096];
    fail_in_child(hook_fails_itself, text, sizeof(text));
    const char *first = strstr(text, "[hook]");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, "[hook]"));
    ck_assert_ptr_nonnull(strstr(first, "1 + 1 == 3"));
}

CASE(must_evaluates_once_and_passes_what_is_true)
{
    int calls = 0;
    MUST(++calls == 1);
    ck_assert_int_eq(calls, 1);
}

CASE(names_of_errors)
{
    ck_assert_str_eq(err_name(0), "OK");
    ck_assert_str_eq(err_name(-ENOMEM), "ENOMEM");
    ck_assert_str_eq(err_name(ENOMEM), "ENOMEM");
    ck_assert_str_eq(err_name(KVC_E_FULL), "KVC_E_FULL");
    ck_assert_str_eq(err_name(KVC_STALE), "KVC_STALE");
    ck_assert_str_eq(err_name(KVC_E_DOWN), "KVC_E_DOWN");
    ck_assert_str_eq(err_name(-999), "unknown error");
    ck_assert_str_eq(err_name(-100000), "unknown error");
    ck_assert_str_eq(err_name(INT32_MIN), "unknown error");
}

CASE(every_status_has_a_name_of_its_own)
{
    for (int a = 1; a < KVC_ST_COUNT; a++) {
        ck_assert_ptr_eq(strstr(err_name(-(1000 + a)), "KVC_E_"), err_name(-(1000 + a)));
        for (int b = 1; b < a; b++)
            ck_assert_str_ne(err_name(-(1000 + a)), err_name(-(1000 + b)));
    }
}

CASE(small_macros)
{
    static const int five[5];
    ck_assert_uint_eq(ARRAY_LEN(five), 5);
    ck_assert(IS_POW2(1u) && IS_POW2(64u));
    ck_assert(!IS_POW2(0u) && !IS_POW2(3u));
    ck_assert_int_eq(ROUND_UP(0, 8), 0);
    ck_assert_int_eq(ROUND_UP(1, 8), 8);
    ck_assert_int_eq(ROUND_UP(16, 8), 16);
    ck_assert_int_eq(ROUND_UP(7, 3), 9);
    ck_assert_int_eq(MIN(2, 3), 2);
    ck_assert_int_eq(MAX(2, 3), 3);
}
