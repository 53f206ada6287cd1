/* SPDX-License-Identifier: Apache-2.0 */
#include "must.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic(void (*)(void)) must_hook;

void err_set_must_hook(void (*hook)(void))
{
    atomic_store(&must_hook, hook);
}

_Noreturn void must_fail(const char *file, int line, const char *func, const char *expr)
{
    char text[512];
    int n = snprintf(text, sizeof(text), "%s:%d: %s: MUST(%s) failed\n", file, line, func, expr);
    if (n >= (int)sizeof(text)) {
        n = (int)sizeof(text) - 1;
        text[n - 1] = '\n';
    }
    /* The line comes before the hook: a hook that crashes must not take the reason with it. When
     * stderr does not take it either, nobody is left to tell. */
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        abort();
    /* Taken out as it is called, so that it runs once. */
    void (*hook)(void) = atomic_exchange(&must_hook, NULL);
    if (hook != NULL)
        hook();
    abort();
}
