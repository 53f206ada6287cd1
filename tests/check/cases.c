/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_S "120"

static struct check_entry *entries; /* files as they come, the lines of each in order */

static bool is_of_file(const struct check_entry *e, const char *file)
{
    return strcmp(e->file, file) == 0;
}

void check_entry_add(struct check_entry *e)
{
    struct check_entry **at = &entries;
    while (*at && !is_of_file(*at, e->file))
        at = &(*at)->next;
    while (*at && is_of_file(*at, e->file) && (*at)->line < e->line)
        at = &(*at)->next;
    e->next = *at;
    *at = e;
}

static TCase *group_create(Suite *suite, const struct cases *g)
{
    TCase *group = tcase_create(g->name ? g->name : program_invocation_short_name);
    tcase_add_checked_fixture(group, g->setup, g->teardown);
    if (g->timeout_s > 0)
        tcase_set_timeout(group, g->timeout_s);
    if (g->timeout_s < 0) /* UNTIMED */
        tcase_set_timeout(group, 0);
    suite_add_tcase(suite, group);
    return group;
}

static Suite *suite_of_entries(unsigned *ret_cases, unsigned *ret_left_out)
{
    Suite *suite = suite_create(program_invocation_short_name);
    const char *file = "";
    struct cases cases = {.left_out = false};
    TCase *group = NULL;
    for (struct check_entry *e = entries; e; e = e->next) {
        const struct check_case c = e->ask();
        if (!is_of_file(e, file) || !c.test) {
            file = e->file;
            cases = c.test ? (struct cases){.left_out = false} : c.cases;
            group = cases.left_out ? NULL : group_create(suite, &cases);
        }
        if (!c.test)
            continue;
        ++*ret_cases;
        *ret_left_out += !group;
        if (group && c.first < c.end)
            tcase_add_loop_test_raise_signal(group, c.test, c.signal, c.first, c.end);
    }
    return suite;
}

int cases_run(void)
{
    unsigned n = 0, left_out = 0;
    (void)setenv("CK_DEFAULT_TIMEOUT", TIMEOUT_S, 0);
    SRunner *runner = srunner_create(suite_of_entries(&n, &left_out));
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner), run = srunner_ntests_run(runner);
    srunner_free(runner);
    const bool none = run == 0 && (n == 0 || left_out < n);
    if (none)
        fputs("no case has run\n", stderr);
    return !none && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
