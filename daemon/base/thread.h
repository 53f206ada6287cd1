/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread: starting a helper thread, behind the fault point `thread`. Signals are the control
 * thread's: a thread that is started here has all of them blocked, but for those of crash.h.
 *
 * Threads: any.
 */
#ifndef KVC_BASE_THREAD_H
#define KVC_BASE_THREAD_H

#include <pthread.h>

#include "err.h"

/* `name` shows in top(1) and is cut to 15 bytes. Negative errno of pthread_create(3). */
KVC_WARN_UNUSED int thread_start(const char *name, void *(*main)(void *arg), void *arg,
                                 pthread_t *ret_thread);

/* Asks the scheduler to let the calling thread, and those that it starts from here on, run soon
 * after they are woken, in short slices (Linux 6.12; else nothing changes). Their share of the
 * processor stays as it was. For threads that others wait for, beside threads that compute. 0, or a
 * negative errno. */
int thread_prompt(void);

#endif
