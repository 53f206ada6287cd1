/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "err.h"

_Atomic int log__level = LOG_INFO_;

static _Atomic int log_fd = STDERR_FILENO;
static _Atomic bool log_json, log_is_journal;
static _Atomic uint64_t dropped;

/* Room for the text after the message: " (4294967295 more held back)", quote, brace, newline. */
#define TAIL_BYTES 48

/* systemd.exec(5): JOURNAL_STREAM has device and inode of a descriptor that leads to the journal.
 */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char at[64];
    if (stream == NULL || fstat(fd, &st) != 0)
        return false;
    snprintf(at, sizeof(at), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(at, stream) == 0;
}

void log_init(enum log_level level, int fd, bool json)
{
    atomic_store(&log_fd, fd);
    atomic_store(&log_is_journal, is_journal(fd));
    atomic_store(&log_json, json);
    log_set_level(level);
}

void log_set_level(enum log_level level)
{
    atomic_store(&log__level, (int)level);
}

uint64_t log_dropped(void)
{
    return atomic_load(&dropped);
}

uint32_t log__second(void)
{
    return (uint32_t)(clock_now_ns() / 1000000000u);
}

bool log__pass(struct log_limit *limit, uint32_t per_s, uint32_t now_s, uint32_t *ret_held)
{
    uint64_t old = atomic_load_explicit(&limit->state, memory_order_relaxed), new;
    uint32_t seen, held;
    do {
        seen = (uint32_t)old;
        held = 0;
        uint32_t second = (uint32_t)(old >> 32);
        if (now_s > second && per_s > 0) {
            held = seen > per_s ? seen - per_s : 0;
            second = now_s;
            seen = 0;
        }
        if (seen < UINT32_MAX)
            seen++;
        new = (uint64_t)second << 32 | seen;
    } while (!atomic_compare_exchange_weak_explicit(&limit->state, &old, new, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (seen > per_s)
        return false;
    *ret_held = held;
    return true;
}

struct line {
    char text[LOG_LINE_BYTES];
    size_t len, cap;
};

/* Appends all of the text. False: it does not fit, and nothing is appended. */
static bool log_put(struct line *l, const char *text, size_t n)
{
    if (n > l->cap - l->len)
        return false;
    memcpy(l->text + l->len, text, n);
    l->len += n;
    return true;
}

__attribute__((format(printf, 2, 3))) static void putf(struct line *l, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n > 0)
        (void)log_put(l, text,
                      MIN((size_t)n, sizeof(text) - 1)); /* all callers' texts are bounded */
}

/* UTC from the day number, without gmtime_r: its first call reads the time zone and allocates. */
static void put_time(struct line *l)
{
    const uint64_t ms = clock_wall_ms();
    const unsigned in_day = (unsigned)(ms / 1000 % 86400);
    unsigned days = (unsigned)(ms / 86400000u), year = 1970, month = 0;
    static const uint8_t month_days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (;; year++) {
        const unsigned leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        if (days >= 365 + leap) {
            days -= 365 + leap;
            continue;
        }
        for (unsigned n; days >= (n = month_days[month] + (month == 1 ? leap : 0)); month++)
            days -= n;
        break;
    }
    putf(l, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", year, month + 1, days + 1, in_day / 3600,
         in_day / 60 % 60, in_day % 60, (unsigned)(ms % 1000));
}

/* Length of the printable UTF-8 sequence at s. 0: s has a control character, or is not UTF-8. */
static size_t printable(const unsigned char *s)
{
    if (s[0] < 0x80)
        return s[0] >= 0x20 && s[0] != 0x7f ? 1 : 0;
    const size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    /* Overlong forms, surrogates, above U+10FFFF, and the controls U+0080 to U+009F. */
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f) ||
        (s[0] == 0xc2 && s[1] < 0xa0))
        return 0;
    return n;
}

/* Appends the message. Bytes that are not printable are escaped; "..." ends a message that is cut.
 */
static void put_message(struct line *l, const char *msg, bool json)
{
    l->cap = sizeof(l->text) - TAIL_BYTES;
    for (const unsigned char *s = (const unsigned char *)msg; *s != '\0';) {
        char esc[8];
        const size_t n = printable(s);
        bool fits;
        if (n == 0) {
            const int len = snprintf(esc, sizeof(esc), json ? "\\u%04x" : "\\x%02x",
                                     json && *s >= 0x80 ? 0xfffdu : *s);
            fits = log_put(l, *s == '\n' ? "\\n" : esc, *s == '\n' ? 2 : (size_t)len);
        } else if (json && (*s == '"' || *s == '\\')) {
            esc[0] = '\\';
            esc[1] = (char)*s;
            fits = log_put(l, esc, 2);
        } else {
            fits = log_put(l, (const char *)s, n);
        }
        if (!fits)
            break;
        s += n == 0 ? 1 : n;
        if (*s == '\0') {
            l->cap = sizeof(l->text);
            return;
        }
    }
    l->cap = sizeof(l->text);
    if (*msg != '\0')
        (void)log_put(l, "...", 3);
}

/* The last two parts of a path, directory and file, whichever path the compiler was given. */
static const char *module_of(const char *file)
{
    const char *at = file + strlen(file);
    for (unsigned slashes = 0; at > file; at--)
        if (at[-1] == '/' && ++slashes == 2)
            break;
    return at;
}

void log__emit(enum log_level level, uint32_t held, const char *file, const char *fmt, ...)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    const int saved_errno = errno;
    const bool json = atomic_load(&log_json);
    char msg[LOG_LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    if (vsnprintf(msg, sizeof(msg), fmt, ap) < 0)
        msg[0] = '\0';
    va_end(ap);

    struct line l = {.cap = sizeof(l.text)};
    if (atomic_load(&log_is_journal))
        putf(&l, "<%c>", "7643"[level]);
    if (json) {
        putf(&l, "{\"time\":\"");
        put_time(&l);
        putf(&l, "\",\"level\":\"%s\",\"module\":\"%.64s\",\"message\":\"", names[level],
             module_of(file));
    } else {
        put_time(&l);
        putf(&l, " %c %.64s: ", "DIWE"[level], module_of(file));
    }
    put_message(&l, msg, json);
    if (held > 0)
        putf(&l, " (%u more held back)", held);
    putf(&l, "%s", json ? "\"}\n" : "\n");

    ssize_t n;
    do {
        n = write(atomic_load(&log_fd), l.text, l.len);
    } while (n < 0 && errno == EINTR);
    if (n != (ssize_t)l.len)
        atomic_fetch_add(&dropped, 1);
    errno = saved_errno;
}
