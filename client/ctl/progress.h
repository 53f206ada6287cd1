/* SPDX-License-Identifier: Apache-2.0 */
/* A line on stderr that shows how far a long task is. It is shown on a terminal only, and rewritten
 * in place. One thread. */
#ifndef CTL_PROGRESS_H
#define CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what;
    uint64_t total, begun_ns, shown_ns;
    bool shown;
};

void progress_begin(struct progress *p, const char *what, uint64_t total_bytes);
void progress_show(struct progress *p, uint64_t bytes);
/* Erases the line. */
void progress_end(struct progress *p);

#endif
