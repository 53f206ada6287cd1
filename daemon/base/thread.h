/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread: starting a helper thread, behind the fault point `thread`. Signals are the control
 * thread's: a thread that is started here has all of them blocked.
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

#endif
