/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify: what the daemon and its service manager say to each other: ready, stopping, status,
 * watchdog, and descriptors that are kept for the next instance.
 *
 * Nothing here waits for the manager, and without one ($NOTIFY_SOCKET, $LISTEN_PID, $WATCHDOG_USEC
 * unset) nothing is said and nothing is found: none of it is an error. The manager's answers do
 * not exist: a descriptor was stored when the next instance finds it.
 *
 * Threads: the control thread; notify_take_fds() before there are others, since it changes the
 * environment. Functions return 1 (said), 0 (there is no manager) or a negative errno.
 */
#ifndef KVC_IO_NOTIFY_H
#define KVC_IO_NOTIFY_H

#include "err.h"

#define NOTIFY_NAME_MAX 255u

/* Whether a service manager listens. */
bool notify_is_managed(void);

KVC_WARN_UNUSED int notify_ready(void);
KVC_WARN_UNUSED int notify_stopping(void);
/* One line for people; what is behind a newline is left out. */
KVC_WARN_UNUSED int notify_status(const char *text);
/* Asks the manager to wait for the start for `ns` more from now on. */
KVC_WARN_UNUSED int notify_extend(uint64_t ns);

/* How long the manager waits for a sign of life, in nanoseconds: say one at half of it. 0: it does
 * not wait for any. */
uint64_t notify_watchdog_interval_ns(void);
KVC_WARN_UNUSED int notify_watchdog(void);

/*
 * The manager keeps a duplicate of fd under `name` (1 to NOTIFY_NAME_MAX printable ASCII
 * characters without ':': -EINVAL) over a restart, up to FileDescriptorStoreMax= of them all: more
 * are dropped without a word. Under one name there may be several; each open file once.
 */
KVC_WARN_UNUSED int notify_store_fd(const char *name, int fd);
/* The manager closes the descriptors that it has under that name. */
KVC_WARN_UNUSED int notify_remove_fd(const char *name);

/* `fd` is the callee's from here on, with CLOEXEC. */
typedef void notify_take_fn(void *ctx, const char *name, int fd);

/* Calls `take` with each descriptor that the manager passed to this process, once: it then clears
 * the environment variables that announce them. Returns how many, or a negative errno without a
 * call. */
KVC_WARN_UNUSED int notify_take_fds(notify_take_fn *take, void *ctx);

#endif
