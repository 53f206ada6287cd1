/* SPDX-License-Identifier: Apache-2.0 */
/* Fixtures made for Check, outside of a Check test: a failed assertion of theirs ends the process
 * in a way that libFuzzer sees. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>

#include "fuzz.h"

void _ck_assert_failed(const char *file, int line, const char *expr, const char *msg, ...)
{
    char text[512] = "";
    va_list ap;
    va_start(ap, msg);
    if (msg != NULL && vsnprintf(text, sizeof(text), msg, ap) < 0)
        text[0] = '\0';
    va_end(ap);
    fuzz_fail(file, line, expr, "%s", text);
}

void _mark_point(const char *file, int line)
{
    (void)file;
    (void)line;
}
