/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

struct fuzz_tally fuzz_tally;

void fuzz_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    /* Not stdio's: a target may have put another stream there. */
    dprintf(2, "%s:%d: broken: %s: %s\n", file, line, cond, n >= 0 ? text : "");
    abort();
}

void *fuzz_copy(const void *p, size_t n)
{
    void *copy = malloc(n != 0 ? n : 1);
    FUZZ_CHECK(copy != NULL, "no memory");
    if (n != 0)
        memcpy(copy, p, n);
    return copy;
}

char *fuzz_text(const void *p, size_t n)
{
    char *text = malloc(n + 1);
    FUZZ_CHECK(text != NULL, "no memory");
    if (n != 0)
        memcpy(text, p, n);
    text[n] = '\0';
    return text;
}

uint64_t fuzz_open_fds(void)
{
    uint64_t open = 0;
    for (int fd = 0; fd < 64; fd++)
        open |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
    return open;
}
