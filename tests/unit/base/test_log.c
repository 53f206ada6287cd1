/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "err.h"
#include "log.h"

static int fd = -1;
static char text[1 << 20];

static void setup(void)
{
    fd = memfd_create("log", 0);
    ck_assert_int_ge(fd, 0);
    log_init(LOG_INFO_, fd, false);
}

static void teardown(void)
{
    (void)close(fd);
}

static const char *written(void)
{
    const ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    ck_assert_int_ge(n, 0);
    text[n] = '\0';
    return text;
}

/* 2025-11-21T14:47:03.123Z */
static void assert_time(const char *s)
{
    static const char form[] = "dddd-dd-ddTdd:dd:dd.dddZ";
    for (unsigned i = 0; form[i] != '\0'; i++)
        ck_assert_msg(form[i] == 'd' ? isdigit((unsigned char)s[i]) : s[i] == form[i],
                      "at %u of %s", i, s);
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_line_has_time_level_module_and_message)
{
    LOG_WARN("chunk %d of %s", 7, "uid 1000");
    assert_time(written());
    ck_assert_str_eq(text + 24, " W base/test_log.c: chunk 7 of uid 1000\n");
}

CASE(a_line_to_the_journal_begins_with_its_priority)
{
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(fd, &st), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    ck_assert_int_eq(setenv("JOURNAL_STREAM", stream, 1), 0);
    log_init(LOG_DEBUG_, fd, true);
    LOG_DEBUG("a");
    LOG_INFO("b");
    LOG_WARN("c");
    LOG_ERROR("d");
    static const char *const begin[] = {"<7>{", "<6>{", "<4>{", "<3>{"};
    const char *line = written();
    for (unsigned i = 0; i < 4; i++, line = strchr(line, '\n') + 1)
        ck_assert_msg(strncmp(line, begin[i], 4) == 0, "%s", line);
    /* A descriptor that leads elsewhere. */
    ck_assert_int_eq(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    log_init(LOG_INFO_, fd, false);
    LOG_INFO("e");
    ck_assert_ptr_eq(strstr(written(), "<6>2"), NULL);
}

CASE(the_date_is_the_one_that_the_c_library_gives)
{
    char before[32], after[32];
    time_t t = time(NULL);
    struct tm tm;
    strftime(before, sizeof(before), "%Y-%m-%dT%H:%M", gmtime_r(&t, &tm));
    LOG_INFO("x");
    t = time(NULL);
    strftime(after, sizeof(after), "%Y-%m-%dT%H:%M", gmtime_r(&t, &tm));
    const char *line = written();
    ck_assert(strncmp(line, before, 16) == 0 || strncmp(line, after, 16) == 0);
}

CASE(lines_below_the_level_are_not_written)
{
    LOG_DEBUG("unseen");
    ck_assert_str_eq(written(), "");
    log_set_level(LOG_DEBUG_);
    LOG_DEBUG("seen");
    ck_assert_ptr_nonnull(strstr(written(), " D "));
    log_set_level(LOG_ERROR_);
    LOG_WARN("unseen");
    ck_assert_ptr_null(strstr(written(), "unseen"));
}

CASE(a_message_cannot_forge_a_line)
{
    LOG_INFO("name 'a\nb\x1b[2J\x7f\xff \xc2\x85 \xc3\xa9'");
    ck_assert_ptr_nonnull(
        strstr(written(), "name 'a\\nb\\x1b[2J\\x7f\\xff \\xc2\\x85 \xc3\xa9'\n"));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
}

CASE(json_is_escaped)
{
    log_init(LOG_INFO_, fd, true);
    LOG_ERROR("say \"hi\" \\ \n\x01\xff");
    const char *line = written();
    ck_assert_ptr_eq(strstr(line, "{\"time\":\""), line);
    assert_time(line + 9);
    ck_assert_str_eq(line + 33, "\",\"level\":\"error\",\"module\":\"base/test_log.c\","
                                "\"message\":\"say \\\"hi\\\" \\\\ \\n\\u0001\\ufffd\"}\n");
}

CASE(a_long_line_is_cut_and_still_whole)
{
    char message[4 * LOG_LINE_BYTES];
    memset(message, 'x', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    LOG_INFO("%s", message);
    const char *line = written();
    ck_assert_uint_le(strlen(line), LOG_LINE_BYTES);
    ck_assert_str_eq(line + strlen(line) - 5, "x...\n");
    memset(message, '\x01', sizeof(message) - 1); /* escapes must be cut between, never inside */
    log_init(LOG_INFO_, fd, true);
    LOG_INFO("%s", message);
    line = strchr(written(), '\n') + 1;
    ck_assert_str_eq(line + strlen(line) - 12, "\\u0001...\"}\n");
}

CASE(an_empty_message_is_a_line)
{
    LOG_INFO("%s", "");
    ck_assert_str_eq(written() + 24, " I base/test_log.c: \n");
}

CASE(errno_is_kept_and_a_lost_line_is_counted)
{
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(full, 0);
    log_init(LOG_INFO_, full, false);
    const uint64_t before = log_dropped();
    errno = ENOTTY;
    LOG_INFO("lost");
    ck_assert_int_eq(errno, ENOTTY);
    ck_assert_uint_eq(log_dropped(), before + 1);
    (void)close(full);
}

CASE(a_call_site_passes_so_many_lines_a_second_and_then_tells)
{
    struct log_limit limit = {0};
    uint32_t held = 99;
    unsigned passed = 0;
    for (unsigned i = 0; i < 10; i++)
        passed += log__pass(&limit, 3, 100, &held);
    ck_assert_uint_eq(passed, 3);
    ck_assert_uint_eq(held, 0);
    ck_assert(log__pass(&limit, 3, 105, &held));
    ck_assert_uint_eq(held, 7);
    ck_assert(log__pass(&limit, 3, 105, &held)); /* told once */
    ck_assert_uint_eq(held, 0);
    ck_assert(
        log__pass(&limit, 3, 104, &held)); /* another thread's late clock opens no new second */
    ck_assert(!log__pass(&limit, 3, 105, &held));
}

CASE(limited_lines_say_how_many_were_held_back)
{
    for (unsigned i = 0; i < 100; i++)
        LOG_WARN_RATELIMITED(0, "never");
    ck_assert_str_eq(written(), "");
    LOG_WARN_RATELIMITED(1, "site of its own");
    ck_assert_ptr_nonnull(strstr(written(), "site of its own\n"));
    log__emit(LOG_WARN_, 12, "a/b/c.c", "message");
    ck_assert_ptr_nonnull(strstr(written(), "W b/c.c: message (12 more held back)\n"));
}

CASE(lines_that_share_a_limit_hold_back_no_others)
{
    struct log_limit noisy = {0}, quiet = {0};
    for (unsigned i = 0; i < 10; i++)
        LOG_LIMITED(LOG_WARN_, &noisy, 0, "noisy");
    LOG_LIMITED(LOG_WARN_, &quiet, 1, "quiet");
    ck_assert_ptr_null(strstr(written(), "noisy"));
    ck_assert_ptr_nonnull(strstr(written(), "quiet\n"));
}

enum { WRITERS = 4, LINES = 500 };

static void *write_lines(void *arg)
{
    for (int i = 0; i < LINES; i++)
        LOG_INFO("thread %d line %d end", *(int *)arg, i);
    return NULL;
}

CASE(lines_of_many_threads_are_not_mixed)
{
    (void)close(fd);
    char path[] = "log-XXXXXX";
    fd = mkostemp(path, O_APPEND);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(unlink(path), 0);
    log_init(LOG_INFO_, fd, false);
    pthread_t threads[WRITERS];
    int ids[WRITERS];
    for (int i = 0; i < WRITERS; i++) {
        ids[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, &ids[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    int next[WRITERS] = {0}, lines = 0;
    (void)written();
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, lines++) {
        int id, number, used = 0;
        *end = '\0';
        ck_assert_int_eq(
            sscanf(line + 24, " I base/test_log.c: thread %d line %d end%n", &id, &number, &used),
            2);
        ck_assert_int_eq(line[24 + used], '\0');
        ck_assert_int_eq(number, next[id]++);
    }
    ck_assert_int_eq(lines, WRITERS * LINES);
}
