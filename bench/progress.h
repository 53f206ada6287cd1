/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line on stderr that says how far a long run is: rewritten in place on a terminal, one line
 * every ten seconds elsewhere. One thread.
 */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

#include <stdbool.h>

/* Shows the text, unless it was shown moments ago and `force` is false. */
__attribute__((format(printf, 2, 3))) void progress_show(bool force, const char *format, ...);
/* Takes the line away, so that something else can be printed there. */
void progress_clear(void);

#endif
