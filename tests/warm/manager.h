/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stand-in for the service manager in the test's own process. It listens on NOTIFY_SOCKET, keeps
 * descriptors that come with FDSTORE=1, and drops them with FDSTOREREMOVE=1. Each daemon that the
 * test starts gets copies of them (LISTEN_FDS, LISTEN_FDNAMES, LISTEN_PID). sd_notify(3) and
 * sd_listen_fds(3) describe this. One per process; its own thread reads the socket.
 */
#ifndef KVC_TEST_MANAGER_H
#define KVC_TEST_MANAGER_H

#include <stdint.h>

#define MANAGER_FDS_MAX 256u

struct manager_stats {
    uint32_t stored, refused, removed; /* numbers of descriptors since the start */
    uint32_t held;                     /* descriptors in the store now */
    uint32_t ready, watchdogs, stopping;
};

/* From now on each process that this one forks and that calls exec is a service. max:
 * FileDescriptorStoreMax=. */
void manager_begin(uint32_t max);
/* Empties the store, as `systemctl stop` does. */
void manager_forget(void);
void manager_stats(struct manager_stats *ret_stats);
void manager_end(void);

#endif
