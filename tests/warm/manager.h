/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the service manager, in the test's own process: it listens on NOTIFY_SOCKET, keeps
 * descriptors that come with FDSTORE=1, drops them with FDSTOREREMOVE=1, and hands copies of them
 * to every daemon that the test starts (LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID), as sd_notify(3)
 * and sd_listen_fds(3) describe. One per process; a thread of its own reads the socket.
 */
#ifndef KVC_TEST_MANAGER_H
#define KVC_TEST_MANAGER_H

#include <stdint.h>

#define MANAGER_FDS_MAX 256u

struct manager_stats {
    uint32_t stored, refused, removed; /* descriptors, since the start */
    uint32_t held;                     /* now */
    uint32_t ready, watchdogs, stopping;
};

/* From here on every process that this one forks, and that then calls exec, is a service.
 * max: FileDescriptorStoreMax=. */
void manager_begin(uint32_t max);
/* What `systemctl stop` does to the store. */
void manager_forget(void);
void manager_stats(struct manager_stats *ret_stats);
void manager_end(void);

#endif
