/* SPDX-License-Identifier: Apache-2.0 */
/* The end of main() of a Check program that makes its suite itself, for cases that depend on what
 * the program is asked for. Others: cases.h. */
#ifndef KVC_CHECK_RUN_H
#define KVC_CHECK_RUN_H

#include <stdlib.h>

#include "cases.h"

/* Runs the suite, frees it and gives main()'s result: 0 when no test failed. CK_VERBOSITY in the
 * environment says how much is printed (normal without it). */
static inline int check_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
