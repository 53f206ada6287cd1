/* SPDX-License-Identifier: Apache-2.0 */
/* Large pages of shared memory: where files are mapped, what stays, what is refused. */
#include "cases.h"
#include "huge.h"
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGE ((size_t)2 << 20)
#define BYTES (4 * LARGE)

static int make(size_t bytes)
{
    const int fd = sys_memfd("huge", MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static uint8_t *map(int fd, size_t bytes)
{
    uint8_t *p = sys_map_file(bytes, PROT_READ | PROT_WRITE, fd);
    ck_assert_ptr_ne(p, MAP_FAILED);
    return p;
}

static uint64_t touched_bytes(int fd)
{
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* Bytes that are mapped as large pages in the mapping that begins at p. */
static uint64_t large_bytes(const void *p)
{
    static const char name[] = "ShmemPmdMapped:";
    char line[256], begin[32];
    uint64_t kib = 0;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "re");
    ck_assert_ptr_nonnull(f);
    const int n = snprintf(begin, sizeof(begin), "%lx-", (unsigned long)(uintptr_t)p);
    while (fgets(line, sizeof(line), f) != NULL) {
        here = here || strncmp(line, begin, (size_t)n) == 0;
        if (!here || strncmp(line, name, sizeof(name) - 1) != 0)
            continue;
        kib = strtoull(line + sizeof(name) - 1, NULL, 10);
        break;
    }
    (void)fclose(f);
    return kib * 1024;
}

/* Whether memory that nobody can use lies right before p or right behind end. */
static bool has_slack(const uint8_t *p, const uint8_t *end)
{
    char line[256];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        char *at;
        const uintptr_t first = strtoull(line, &at, 16);
        const uintptr_t last = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
        if (strncmp(at, " ---p", 5) == 0)
            found = found || last == (uintptr_t)p || first == (uintptr_t)end;
    }
    (void)fclose(f);
    return found;
}

CASE(a_file_is_mapped_at_a_multiple_of_a_large_page_and_nothing_is_left_beside_it)
{
    const size_t sizes[] = {LARGE, LARGE + 4096, 3 * LARGE - 100};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const int fd = make(sizes[i]);
        uint8_t *p = map(fd, sizes[i]);
        const size_t span = (sizes[i] + 4095) / 4096 * 4096;
        ck_assert_uint_eq((uintptr_t)p % LARGE, 0);
        ck_assert(!has_slack(p, p + span));
        p[0] = p[sizes[i] - 1] = 1;
        ck_assert_int_eq(munmap(p, span), 0);
        ck_assert_int_eq(close(fd), 0);
    }
}

CASE(a_small_file_is_mapped_too)
{
    const int fd = make(8192);
    uint8_t *p = map(fd, 8192);
    p[8191] = 7;
    ck_assert_int_eq(munmap(p, 8192), 0);
    ck_assert_int_eq(close(fd), 0);
}

CASE(what_cannot_be_mapped_is_refused_with_its_reason)
{
    const int fd = make(BYTES);
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    const int ro = sys_open(path, O_RDONLY, 0);
    ck_assert_int_ge(ro, 0);
    ck_assert_ptr_eq(sys_map_file(BYTES, PROT_READ | PROT_WRITE, ro), MAP_FAILED);
    ck_assert_int_eq(errno, EACCES);
    ck_assert_int_eq(close(ro), 0);
    ck_assert_int_eq(close(fd), 0);
}

/* Another thread's memory, which comes and goes all the time. */
static void *map_and_unmap(void *arg)
{
    const atomic_bool *stop = arg;
    while (!atomic_load(stop)) {
        char *p = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ck_assert_ptr_ne(p, MAP_FAILED);
        p[0] = p[LARGE - 1] = 1; /* a fault, if somebody else has unmapped it */
        ck_assert_int_eq(munmap(p, LARGE), 0);
    }
    return NULL;
}

/* As pages of the reserved pool are, where there are none. */
CASE(a_mapping_that_fails_takes_nobody_elses_memory)
{
    static atomic_bool stop;
    pthread_t thread;
    const int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
    if (fd < 0) {
        puts("SKIP: a_mapping_that_fails_takes_nobody_elses_memory: the kernel has no hugetlbfs");
        return;
    }
    ck_assert_int_eq(ftruncate(fd, (off_t)1 << 46), 0); /* more than any machine has */
    ck_assert_int_eq(pthread_create(&thread, NULL, map_and_unmap, &stop), 0);
    for (unsigned i = 0; i < 20000; i++)
        ck_assert_ptr_eq(sys_map_file((size_t)1 << 46, PROT_READ | PROT_WRITE, fd), MAP_FAILED);
    atomic_store(&stop, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(close(fd), 0);
}

CASE(pages_are_large_or_it_was_refused)
{
    const int fd = make(BYTES);
    uint8_t *p = map(fd, BYTES);
    unsigned tries = HUGE_TRIES;
    huge_make(p, BYTES, &tries);
    ck_assert_uint_eq(large_bytes(p) / LARGE + (HUGE_TRIES - tries), BYTES / LARGE);
    ck_assert_int_eq(munmap(p, BYTES), 0);
    ck_assert_int_eq(close(fd), 0);
}

CASE(what_is_there_stays_there)
{
    const int fd = make(BYTES);
    uint8_t *p = map(fd, BYTES);
    unsigned tries = HUGE_TRIES;
    for (size_t at = 0; at < BYTES; at += 3 * 4096)
        memset(p + at, (int)(at / 4096 % 251) + 1, 4096);
    huge_make(p, BYTES, &tries);
    for (size_t at = 0; at < BYTES; at += 4096) {
        uint8_t want[4096];
        memset(want, at % (3 * sizeof(want)) == 0 ? (int)(at / 4096 % 251) + 1 : 0, sizeof(want));
        ck_assert_mem_eq(p + at, want, sizeof(want));
    }
    ck_assert_int_eq(munmap(p, BYTES), 0);
    ck_assert_int_eq(close(fd), 0);
}

CASE(only_whole_large_pages_are_touched)
{
    const int fd = make(BYTES);
    uint8_t *p = map(fd, BYTES);
    unsigned tries = HUGE_TRIES;
    huge_make(p + 4096, LARGE, &tries);
    ck_assert_uint_eq(touched_bytes(fd), 0);
    ck_assert_uint_eq(tries, HUGE_TRIES);
    ck_assert_int_eq(munmap(p, BYTES), 0);
    ck_assert_int_eq(close(fd), 0);
}

CASE(after_the_last_try_nothing_is_touched)
{
    const int fd = make(BYTES);
    uint8_t *p = map(fd, BYTES);
    unsigned tries = 2;
    ck_assert_int_eq(mprotect(p, BYTES, PROT_READ), 0); /* which cannot be populated for writing */
    huge_make(p, BYTES, &tries);
    ck_assert_uint_eq(tries, 0);
    ck_assert_int_eq(mprotect(p, BYTES, PROT_READ | PROT_WRITE), 0);
    huge_make(p, BYTES, &tries);
    ck_assert_uint_eq(touched_bytes(fd), 0);
    ck_assert_int_eq(munmap(p, BYTES), 0);
    ck_assert_int_eq(close(fd), 0);
}
