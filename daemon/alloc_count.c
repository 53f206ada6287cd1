/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc_count.h"

#include <stdbool.h>
#include <stddef.h>

/* Names that the linker's --wrap makes: __real_X is the X of libc, __wrap_X takes its callers. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_reallocarray(void *old, size_t count, size_t bytes);
int __real_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t length_max);

void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_reallocarray(void *old, size_t count, size_t bytes);
int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t length_max);

static _Thread_local bool armed;
static _Thread_local uint64_t calls;

void alloc_count_arm(void)
{
    armed = true;
}

uint64_t alloc_count_read(void)
{
    return calls;
}

static inline void count_call(void)
{
    if (armed)
        calls++;
}

void *__wrap_malloc(size_t bytes)
{
    count_call();
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    count_call();
    return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    count_call();
    return __real_realloc(old, bytes);
}

void *__wrap_reallocarray(void *old, size_t count, size_t bytes)
{
    count_call();
    return __real_reallocarray(old, count, bytes);
}

int __wrap_posix_memalign(void **ret_memory, size_t alignment, size_t bytes)
{
    count_call();
    return __real_posix_memalign(ret_memory, alignment, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    count_call();
    return __real_aligned_alloc(alignment, bytes);
}

char *__wrap_strdup(const char *text)
{
    count_call();
    return __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t length_max)
{
    count_call();
    return __real_strndup(text, length_max);
}
