/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MUST(): what the code relies on of itself, checked in every build. Wrong input of a caller or of
 * another process is an error that is returned, never a MUST. The daemon's files have it by err.h.
 *
 * Threads: any.
 */
#ifndef KVC_WIRE_MUST_H
#define KVC_WIRE_MUST_H

/* `cond` has no side effect. On failure: one line on stderr, then the hook, then abort(). */
#define MUST(cond) \
    (__builtin_expect(!!(cond), 1) ? (void)0 : must_fail(__FILE__, __LINE__, __func__, #cond))

_Noreturn void must_fail(const char *file, int line, const char *func, const char *expr);

/* What runs between the line on stderr and abort(): the flight recorder's dump. One per process,
 * NULL takes it out. It runs on the failing thread, possibly in a signal handler, and at most once:
 * a MUST that fails inside it, or on another thread meanwhile, aborts at once. */
void err_set_must_hook(void (*hook)(void));

#endif
