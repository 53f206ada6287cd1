/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "flight.h"

static char text[4 << 20];

static void teardown(void)
{
    flight_fini();
}

static char legend[4096];

/* The lines that begin with '#' go from `text` to `legend`. */
static void take_legend(void)
{
    char *from = strstr(text, "\n# ");
    if (from == NULL)
        return;
    char *to = ++from;
    while (*to == '#')
        to = strchr(to, '\n') + 1;
    ck_assert_uint_lt((size_t)(to - from), sizeof(legend));
    memcpy(legend, from, (size_t)(to - from));
    legend[to - from] = '\0';
    memmove(from, to, strlen(to) + 1);
}

static const char *dump(void)
{
    const int fd = memfd_create("flight", 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flight_dump(fd), 0);
    const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    (void)close(fd);
    take_legend();
    return text;
}

static unsigned count_of(const char *what)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

CASES(.teardown = teardown);

CASE(nothing_is_recorded_before_init_or_registration)
{
    FLIGHT(TURN, 1, 2, 3);
    ck_assert_str_eq(dump(), "");
    ck_assert_int_eq(flight_thread("early"), -ENODEV);
    ck_assert_int_eq(flight_init(2, 64), 0);
    FLIGHT(TURN, 1, 2, 3);
    ck_assert_ptr_null(strstr(dump(), "TURN"));
}

CASE(a_record_reads_as_a_line)
{
    ck_assert_int_eq(flight_init(2, 64), 0);
    ck_assert_int_eq(flight_thread("control"), 0);
    FLIGHT(DROP_SESSION, 7, 1932, UINT64_C(0xfedcba9876543210));
    FLIGHT(ERROR, 0, 0, UINT32_MAX);
    ck_assert_ptr_nonnull(
        strstr(dump(), " control  DROP_SESSION a=7 b=1932 c=0xfedcba9876543210\n"));
    ck_assert_ptr_nonnull(strstr(text, " control  ERROR        a=0 b=0 c=4294967295\n"));
    ck_assert_ptr_nonnull(strstr(text, "1 threads, the last 63 events"));
}

CASE(a_dump_says_what_its_numbers_are)
{
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_thread("control"), 0);
    (void)dump();
    ck_assert_ptr_nonnull(strstr(legend, "# REQ          a operation, b session, c request id\n"));
    ck_assert_ptr_nonnull(strstr(legend, "# EVICT "));
}

CASE(a_full_ring_keeps_the_last)
{
    ck_assert_int_eq(flight_init(1, 16), 0);
    ck_assert_int_eq(flight_thread("t"), 0);
    for (unsigned i = 0; i < 1000; i++)
        FLIGHT(REQ, i, 0, 0);
    (void)dump();
    ck_assert_uint_eq(count_of("REQ"), 15);
    ck_assert_ptr_null(strstr(text, "a=984 "));
    ck_assert_ptr_nonnull(strstr(text, "a=985 "));
    ck_assert_ptr_nonnull(strstr(text, "a=999 "));
}

CASE(wrong_sizes_and_a_second_init_are_refused)
{
    ck_assert_int_eq(flight_init(0, 64), -EINVAL);
    ck_assert_int_eq(flight_init(1025, 64), -EINVAL);
    ck_assert_int_eq(flight_init(1, 100), -EINVAL);
    ck_assert_int_eq(flight_init(1, 0), -EINVAL);
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_init(1, 64), -EALREADY);
}

static void *register_too(void *arg)
{
    *(int *)arg = flight_thread("other");
    FLIGHT(TURN, 4242, 0, 0);
    return NULL;
}

CASE(a_thread_too_many_goes_on_without_a_ring)
{
    pthread_t thread;
    int r = 0;
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_thread("a name that is much too long"), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, register_too, &r), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(r, -ENOSPC);
    FLIGHT(TURN, 1, 1, 1);
    ck_assert_ptr_null(strstr(dump(), "a=4242"));
    ck_assert_ptr_nonnull(strstr(text, " a name that is  TURN "));
    ck_assert_int_eq(flight_thread("renamed"), 0);
    ck_assert_ptr_nonnull(strstr(dump(), " renamed "));
}

enum { THREADS = 4, EVENTS = 20000 };

static _Atomic bool stop;

static void *record(void *arg)
{
    char name[8];
    snprintf(name, sizeof(name), "w%d", *(int *)arg);
    if (flight_thread(name) < 0)
        return NULL;
    /* b and c repeat a: a torn record would show. */
    for (unsigned i = 0; i < EVENTS || !stop; i++)
        FLIGHT(COPY_DONE, i, i, i);
    return NULL;
}

/* Dumps while all write: each line whole, times never going back, and each thread's numbers without
 * gaps backwards. */
static void check_dump(void)
{
    double last = 0;
    unsigned next[THREADS] = {0};
    (void)dump();
    char *line = strchr(text, '\n');
    ck_assert_ptr_nonnull(line);
    for (line++; *line != '\0'; line = strchr(line, '\n') + 1) {
        double t;
        unsigned id, a, b, c;
        ck_assert_int_eq(sscanf(line, "%lf w%u COPY_DONE a=%u b=%u c=%u", &t, &id, &a, &b, &c), 5);
        ck_assert(a == b && b == c);
        ck_assert_msg(t >= last, "time goes back at: %.60s", line);
        ck_assert_uint_lt(id, THREADS);
        ck_assert(next[id] == 0 || a >= next[id]);
        next[id] = a + 1;
        last = t;
    }
}

CASE(a_dump_while_threads_record_shows_whole_records_in_order)
{
    pthread_t threads[THREADS];
    int ids[THREADS];
    ck_assert_int_eq(flight_init(THREADS, 256), 0);
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, record, &ids[i]), 0);
    }
    for (unsigned i = 0; i < 20; i++)
        check_dump();
    stop = true;
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    check_dump();
    ck_assert_uint_eq(count_of("COPY_DONE"), THREADS * 255); /* rings outlive their threads */
}

CASE(a_dump_that_cannot_write_says_so)
{
    const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_dump(fd), -ENOSPC);
    (void)close(fd);
    (void)dump(); /* and the next one works */
    ck_assert_str_ne(text, "");
}

CASE(a_failed_must_dumps)
{
    (void)close(STDERR_FILENO);
    const int fd = open("flight-stderr", O_RDWR | O_CREAT | O_TRUNC, 0600);
    ck_assert_int_eq(fd, STDERR_FILENO);
    ck_assert_int_eq(flight_init(1, 64), 0);
    ck_assert_int_eq(flight_thread("control"), 0);
    err_set_must_hook(flight_dump_stderr);
    FLIGHT(EVICT, 5, 6, 7);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        MUST(pid != 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_gt(n, 0);
    text[n] = '\0';
    ck_assert_ptr_nonnull(strstr(text, "MUST(pid != 0)"));
    ck_assert_ptr_nonnull(strstr(text, "EVICT        a=5 b=6 c=7"));
}
