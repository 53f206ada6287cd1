/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fatal signal (SIGSEGV, SIGBUS, SIGILL, SIGFPE) says why before it ends the process: one line on
 * stderr with the signal, the address, the thread, and the file that is mapped there, if one is.
 * Only system calls that a signal handler may make; no allocation, no lock. Then the signal has the
 * effect that it would have had. A SIGBUS that a claim mends (bus.h) is not fatal.
 */
#ifndef KVC_BASE_CRASH_H
#define KVC_BASE_CRASH_H

#include <signal.h>

#include "err.h"

/* For the whole process, from the thread whose stack may run out: its handler has a stack of its
 * own, those of others run on theirs. `hook` (may be NULL) is called behind the line, once. */
void crash_init(void (*hook)(void));
/* fn(ctx), or -EFAULT when a page of a mapped file that it touches is not there any more (SIGBUS):
 * it was left where it was, so what it worked on may only be forgotten. After crash_init(), any
 * thread, not nested. */
KVC_WARN_UNUSED int crash_survive(int (*fn)(void *ctx), void *ctx);
/* The signals that it is about: nobody may block them, for a blocked one ends the process at once.
 */
void crash_signals(sigset_t *ret_set);

#endif
