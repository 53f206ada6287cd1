/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines for adapters, services and main; base, tier, policy and core do not log.
 *
 *   2025-11-21T14:47:03.123Z W io/attach.c: message
 *   {"time":"2025-11-21T14:47:03.123Z","level":"warn","module":"io/attach.c","message":"..."}
 *
 * Where the descriptor leads to systemd's journal, "<6>" or another priority of syslog(3) goes
 * before it; the journal takes it off.
 *
 * Any thread may log. A line is one write(2), at most LOG_LINE_BYTES long (longer ones end in
 * "..."), formatted on the stack: nothing is allocated and no lock is taken. Control characters in
 * a message are escaped, so that text from a client cannot forge a line. errno is kept. A line that
 * the descriptor does not take (full pipe, full disk) is counted and lost; logging never waits for
 * more than write(2).
 *
 * The names collide with <syslog.h>; a file includes one of the two.
 */
#ifndef KVC_BASE_LOG_H
#define KVC_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LOG_LINE_BYTES 1024

/* The trailing underscore keeps clear of the macros of the same name. */
enum log_level { LOG_DEBUG_, LOG_INFO_, LOG_WARN_, LOG_ERROR_ };

/* Borrows `fd` until the next log_init. Before the first: info and above, as text, on stderr. */
void log_init(enum log_level level, int fd, bool json);
void log_set_level(enum log_level level);
/* Lines lost since start. */
uint64_t log_dropped(void);

#define LOG_DEBUG(...) LOG__AT(LOG_DEBUG_, __VA_ARGS__)
#define LOG_INFO(...)  LOG__AT(LOG_INFO_, __VA_ARGS__)
#define LOG_WARN(...)  LOG__AT(LOG_WARN_, __VA_ARGS__)
#define LOG_ERROR(...) LOG__AT(LOG_ERROR_, __VA_ARGS__)

/* At most `per_s` lines in one second from this call site; the next one that passes says how many
 * were held back. */
#define LOG_DEBUG_RATELIMITED(per_s, ...) LOG_RATELIMITED(LOG_DEBUG_, per_s, __VA_ARGS__)
#define LOG_INFO_RATELIMITED(per_s, ...)  LOG_RATELIMITED(LOG_INFO_, per_s, __VA_ARGS__)
#define LOG_WARN_RATELIMITED(per_s, ...)  LOG_RATELIMITED(LOG_WARN_, per_s, __VA_ARGS__)
#define LOG_ERROR_RATELIMITED(per_s, ...) LOG_RATELIMITED(LOG_ERROR_, per_s, __VA_ARGS__)

#define LOG_RATELIMITED(level, per_s, ...)                   \
    do {                                                     \
        static struct log_limit log__limit;                  \
        LOG_LIMITED(level, &log__limit, per_s, __VA_ARGS__); \
    } while (0)

/* The same for all lines that share *limit, such as those of one session. A zeroed limit is new. */
#define LOG_LIMITED(level, limit, per_s, ...)                                         \
    do {                                                                              \
        uint32_t log__held = 0;                                                       \
        if (log__on(level) && log__pass((limit), (per_s), log__second(), &log__held)) \
            log__emit((level), log__held, __FILE__, __VA_ARGS__);                     \
    } while (0)

/* The second in the high half, lines seen in that second in the low half. */
struct log_limit {
    _Atomic uint64_t state;
};

/* Below here: for the macros and their tests. */

extern _Atomic int log__level;

static inline bool log__on(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&log__level, memory_order_relaxed);
}

#define LOG__AT(level, ...) \
    (log__on(level) ? log__emit((level), 0, __FILE__, __VA_ARGS__) : (void)0)

uint32_t log__second(void);
/* Whether a line may pass in second `now_s`; *ret_held = lines held back in the last second that
 * had any, told once. */
bool log__pass(struct log_limit *limit, uint32_t per_s, uint32_t now_s, uint32_t *ret_held);
void log__emit(enum log_level level, uint32_t held, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

#endif
