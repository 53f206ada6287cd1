/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MUST(): what the code relies on of itself, checked in every build. Wrong input of a caller or of
 * another process is an error that is returned, never a MUST. This is for the library and its
 * codec; the daemon's files have the same lines from err.h, and no compiler takes both where they
 * differ.
 *
 * Threads: any.
 */
#ifndef KVC_WIRE_MUST_H
#define KVC_WIRE_MUST_H

/* `cond` has no side effect. On failure: one line on stderr, then the hook, then abort(). */
#define MUST(cond) \
    (__builtin_expect(!!(cond), 1) ? (void)0 : must_fail(__FILE__, __LINE__, __func__, #cond))

_Noreturn void must_fail(const char *file, int line, const char *func, const char *expr);

/* What runs between the line on stderr and abort(), once; NULL takes it out. */
void err_set_must_hook(void (*hook)(void));

#endif
