/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies of a signal says of which, and where. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "crash.h"
#include "thread.h"

#define FILE_NAME "cut-below-us"
#define PAGE      4096

static volatile char *lost; /* its second page is not in the file any more */
static char said[65536];

static void on_crash(void)
{
    (void)!write(STDERR_FILENO, "the hook\n", 9);
}

static void *touch(void *arg)
{
    (void)arg;
    (void)lost[PAGE];
    return NULL;
}

/* Who has started a thread names it, maybe when it runs already. */
static void *touch_when_named(void *arg)
{
    char name[16] = "";
    while (strcmp(name, "touches") != 0)
        (void)pthread_getname_np(pthread_self(), name, sizeof name);
    return touch(arg);
}

static void die_in_thread(void)
{
    pthread_t thread;
    ck_assert_int_eq(thread_start("touches", touch_when_named, NULL, &thread), 0);
    (void)pthread_join(thread, NULL);
}

static void die_here(void)
{
    (void)touch(NULL);
}

static void die_of_request(void)
{
    (void)raise(SIGSEGV);
}

static int deeper(volatile int n)
{
    volatile char room[1024] = {(char)n};
    return n == 0 ? 0 : deeper(n + 1) + room[n & 1023];
}

static void die_of_depth(void)
{
    (void)deeper(1);
}

/* What a child that dies so says on stderr. */
static int run(void (*die)(void))
{
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    ck_assert_int_eq(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        crash_init(on_crash);
        die();
        _exit(0);
    }
    close(ends[1]);
    while ((got = read(ends[0], said + n, sizeof said - 1 - n)) > 0)
        n += (size_t)got;
    close(ends[0]);
    said[n] = '\0';
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

static int touch_it(void *at)
{
    return ((volatile char *)at)[0] + 7;
}

static void live_on(void)
{
    const int whole = crash_survive(touch_it, (void *)(uintptr_t)lost);
    const int cut = crash_survive(touch_it, (void *)(uintptr_t)(lost + PAGE));
    if (whole != 7 || cut != -EFAULT || crash_survive(touch_it, (void *)(uintptr_t)lost) != 7)
        _exit(1);
    die_here(); /* there is no second life without it */
}

static void setup(void)
{
    const int fd = open(FILE_NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)2 * PAGE), 0);
    lost = mmap(NULL, (size_t)2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne((void *)(uintptr_t)lost, MAP_FAILED);
    ck_assert_int_eq(ftruncate(fd, PAGE), 0);
    close(fd);
}

static void says(const char *what)
{
    ck_assert_msg(strstr(said, what) != NULL, "'%s' is not in: %s", what, said);
}

/* Sanitizers, whose handlers were there first, end the process in their own way. */
static void ended_by(int status, int signal)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)signal;
    ck_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
#else
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == signal);
#endif
}

CASES(.setup = setup);

CASE(a_file_that_was_cut_is_named)
{
    ended_by(run(die_here), SIGBUS);
    says("fatal: SIGBUS at 0x");
    says("/" FILE_NAME ": the file has been cut");
    says("\nthe hook\n");
    ck_assert_ptr_null(strstr(strstr(said, "the hook") + 1, "the hook"));
}

CASE(the_thread_is_named)
{
    ended_by(run(die_in_thread), SIGBUS);
    says("in thread touches");
    says("/" FILE_NAME);
    says("the hook");
}

CASE(a_signal_of_a_process_has_no_address)
{
    ended_by(run(die_of_request), SIGSEGV);
    says("fatal: SIGSEGV in thread ");
    says("the hook");
}

CASE(a_stack_that_has_run_out_is_told_from_another)
{
    ended_by(run(die_of_depth), SIGSEGV);
    says("fatal: SIGSEGV at 0x");
    says("the hook");
}

CASE(who_expects_it_goes_on)
{
    ended_by(run(live_on), SIGBUS);
    says("fatal: SIGBUS at 0x");
    says("the hook");
}
