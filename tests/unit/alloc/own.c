/* SPDX-License-Identifier: Apache-2.0 */
#include "own.h"

#include <stdlib.h>
#include <string.h>

/* Volatile, so that the compiler cannot drop a pair of allocation and free. */
static void *volatile sink;

void own_allocate_eight_times(void)
{
    void *aligned = NULL;

    sink = malloc(8);
    free(sink);
    sink = calloc(2, 8);
    sink = realloc(sink, 64);
    sink = reallocarray(sink, 16, 8);
    free(sink);
    if (posix_memalign(&aligned, 64, 64) == 0)
        sink = aligned;
    free(sink);
    sink = aligned_alloc(64, 64);
    free(sink);
    sink = strdup("block");
    free(sink);
    sink = strndup("block", 3);
    free(sink);
}
