/* SPDX-License-Identifier: Apache-2.0 */
/* Files that become shorter under their mapping: what is claimed is mended, the rest is told. */
#include "bus.h"
#include "cases.h"
#include "crash.h"
#include "thread.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES 8192u

static uint8_t *map;
static unsigned asked;

static void setup(void)
{
    const int fd = memfd_create("cut", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(fd, BYTES), 0);
    map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    memset(map, 1, BYTES);
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    close(fd);
    asked = 0;
    (void)signal(SIGBUS, SIG_DFL); /* a sanitizer would take it over */
    crash_init(NULL);
}

static bool put_zeroes(void *ctx, void *addr)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    (void)ctx;
    asked++;
    if ((uint8_t *)addr < map || (uint8_t *)addr >= map + BYTES)
        return false;
    return mmap(map, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0) == map;
}

static bool not_mine(void *ctx, void *addr)
{
    (void)ctx;
    (void)addr;
    asked++;
    return false;
}

static void *read_second_page(void *arg)
{
    volatile const uint8_t *at = arg;
    return at[4096] == 0 ? NULL : arg;
}

CASES(.setup = setup);

CASE(who_claims_an_address_mends_it)
{
    const struct bus_claim other = {.fn = not_mine}, mine = {.fn = put_zeroes};
    ck_assert_int_eq(bus_claim(&other), 0);
    ck_assert_int_eq(bus_claim(&mine), 0);
    map[4100] = 7;
    ck_assert_uint_eq(map[4100], 7);
    ck_assert_uint_eq(map[0], 0);
    ck_assert_uint_eq(asked, 2);
    bus_unclaim(&mine);
    bus_unclaim(&other);
}

CASE(helper_threads_are_mended_too)
{
    const struct bus_claim mine = {.fn = put_zeroes};
    pthread_t thread;
    void *wrong;
    ck_assert_int_eq(bus_claim(&mine), 0);
    ck_assert_int_eq(thread_start("reader", read_second_page, map, &thread), 0);
    ck_assert_int_eq(pthread_join(thread, &wrong), 0);
    ck_assert_ptr_null(wrong);
    bus_unclaim(&mine);
}

CASE(what_nobody_claims_ends_the_process_with_a_line)
{
    const struct bus_claim gone = {.fn = put_zeroes};
    int status, out[2];
    char text[512] = "";
    ck_assert_int_eq(bus_claim(&gone), 0);
    bus_unclaim(&gone);
    ck_assert_int_eq(pipe(out), 0);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDERR_FILENO);
        _exit(read_second_page(map) == NULL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGBUS);
    ck_assert_int_gt(read(out[0], text, sizeof(text) - 1), 0);
    ck_assert_ptr_nonnull(strstr(text, "fatal: SIGBUS"));
    close(out[0]);
    close(out[1]);
}

CASE(one_claim_too_many_is_refused)
{
    static struct bus_claim claims[BUS_CLAIMS_MAX + 1];
    for (unsigned i = 0; i < BUS_CLAIMS_MAX; i++)
        ck_assert_int_eq(bus_claim(&claims[i]), 0);
    ck_assert_int_eq(bus_claim(&claims[BUS_CLAIMS_MAX]), -ENOBUFS);
    bus_unclaim(&claims[7]);
    ck_assert_int_eq(bus_claim(&claims[BUS_CLAIMS_MAX]), 0);
    for (unsigned i = 0; i <= BUS_CLAIMS_MAX; i++)
        bus_unclaim(&claims[i]);
}
