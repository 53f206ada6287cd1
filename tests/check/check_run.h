/* SPDX-License-Identifier: Apache-2.0 */
/* The end of every Check program's main(). */
#ifndef KVC_CHECK_RUN_H
#define KVC_CHECK_RUN_H

#include <check.h>
#include <stdlib.h>

/* How much of n a random test does: sanitizers make each of it three times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CHECK_SHARE(n) (((n) + 2) / 3)
#else
#define CHECK_SHARE(n) (n)
#endif

/* Whether only what has several threads is run: of one thread ThreadSanitizer has nothing to say.
 */
#ifdef __SANITIZE_THREAD__
#define CHECK_THREADS_ONLY 1
#else
#define CHECK_THREADS_ONLY 0
#endif

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
