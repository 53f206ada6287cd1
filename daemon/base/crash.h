/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before a fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE) ends the process, its handler writes one
 * line to stderr: the signal, the address, the thread, and the file that is mapped there, if one
 * is. The handler makes only system calls that are allowed there, allocates nothing and takes no
 * lock. Then the signal has its usual effect. A SIGBUS that a claim mends (bus.h) is not fatal.
 */
#ifndef KVC_BASE_CRASH_H
#define KVC_BASE_CRASH_H

#include <signal.h>

#include "err.h"

/* Installs the handlers for the whole process. On the calling thread they run on a stack of their
 * own, so that an overflow of its stack is reported too; on other threads on the thread's stack.
 * `hook` (may be NULL) is called once, after the line. */
void crash_init(void (*hook)(void));
/* Calls fn(ctx) and returns its result. -EFAULT: fn touched a page that its mapped file no longer
 * has (SIGBUS), and was abandoned at that access: the caller may only discard the data that fn
 * worked on. After crash_init(); any thread; not nested. */
KVC_WARN_UNUSED int crash_survive(int (*fn)(void *ctx), void *ctx);
/* The fatal signals. No thread may block them: a blocked one ends the process at once, without the
 * line. */
void crash_signals(sigset_t *ret_set);

#endif
