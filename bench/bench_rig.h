/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon that a benchmark runs against. It runs already, or the rig starts it in a private
 * temporary directory, which is removed with it. In place of the daemon the rig can start a server
 * of another kind, for a comparison. One rig per process; one thread.
 */
#ifndef BENCH_RIG_H
#define BENCH_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "bench.h"

#define RIG_SETS_MAX   32
#define RIG_TEXT_BYTES 96
/* The socket on which a server of another kind must listen; relative to its working directory. */
#define RIG_SERVER_SOCKET "server.sock"

struct rig;

struct rig_options {
    const char *socket;                      /* of a running daemon; NULL = start one */
    const char *daemon_path;                 /* NULL = kvcache-daemon beside this program */
    char sets[RIG_SETS_MAX][RIG_TEXT_BYTES]; /* "host.limit=2GiB", for the daemon's --set */
    size_t n_sets;
    /* Directory in which the rig makes the store's own directory, gives it to the daemon as
     * nvme.paths, and removes it with all that it contains. NULL = no storage. */
    const char *store_in;
    /* Command of a server that is started instead of kvcache-daemon; ends with NULL. It is found in
     * PATH and runs in the private directory, where it may leave files. It must listen on the
     * stream socket RIG_SERVER_SOCKET. */
    const char *const *server;
    /* The daemon's configuration file, for what --set cannot say; the uids that it names may then
     * reach the sockets. NULL = no file; only the caller's uid may reach them. */
    const char *config;
};

/* Adds a --set; `format` makes "key=value". */
__attribute__((format(printf, 2, 3))) void rig_set(struct rig_options *options, const char *format,
                                                   ...);
/* 0 as soon as the daemon accepts connections; else an enum bench_exit after printing what is
 * wrong. */
BENCH_MUST_USE int rig_start(const struct rig_options *options, struct rig **ret_rig);
/* Ends the daemon and starts it again with the same options and the store that it left. Call
 * rig_stop() even if this fails. */
BENCH_MUST_USE int rig_restart(const struct rig_options *options, struct rig *rig);
const char *rig_socket(const struct rig *rig);
/* The daemon's process; 0 if the rig did not start it. */
int rig_pid(const struct rig *rig);
/* Bytes that files of the store take on the file system now: those that hold blocks, and all others
 * (the journal). Both are 0 without store_in. */
void rig_store_bytes(const struct rig *rig, uint64_t *ret_store, uint64_t *ret_other);
/* 0: the daemon runs. A negative errno: it has ended; how, and its last output, have been printed.
 */
BENCH_MUST_USE int rig_check(struct rig *rig);
/* Ends the daemon and removes its directory. Accepts NULL and a pointer to NULL. */
void rig_stop(struct rig **rig);

/* Call it in a child process that has inherited the rig: the child's exit then does not end the
 * daemon. */
void rig_disown(void);

#endif
