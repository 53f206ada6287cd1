/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon that a benchmark runs against: one that runs already, or one of its own, started in a
 * private temporary directory and gone with it. Or another server, which ours is compared with. One
 * rig per process; one thread.
 */
#ifndef BENCH_RIG_H
#define BENCH_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "bench.h"

#define RIG_SETS_MAX   32
#define RIG_TEXT_BYTES 96
/* Where another server than ours must listen, seen from its working directory. */
#define RIG_SERVER_SOCKET "server.sock"

struct rig;

struct rig_options {
    const char *socket;                      /* of a running daemon; NULL = start one */
    const char *daemon_path;                 /* NULL = kvcache-daemon beside this program */
    char sets[RIG_SETS_MAX][RIG_TEXT_BYTES]; /* "host.limit=2GiB", for the daemon's --set */
    size_t n_sets;
    /* Where the daemon shall keep blocks on storage: a directory of its own is made in this one,
     * given to it as nvme.paths, and removed with all that is in it. NULL = none. */
    const char *store_in;
    /* A server to compare with instead of kvcache-daemon: its command, found in PATH and run in the
     * private directory, in which it must listen on the stream socket RIG_SERVER_SOCKET and may
     * leave files. Ends with NULL. */
    const char *const *server;
    /* The daemon's configuration file, where --set does not do, and whoever may reach its sockets;
     * NULL = none, and they are for the caller's uid alone. */
    const char *config;
};

/* Adds a --set; `format` makes "key=value". */
__attribute__((format(printf, 2, 3))) void rig_set(struct rig_options *options, const char *format,
                                                   ...);
/* 0 once a daemon accepts connections, or an enum bench_exit after saying what is wrong. */
BENCH_MUST_USE int rig_start(const struct rig_options *options, struct rig **ret_rig);
/* Ends the daemon and starts it again with the same options, over the store that it has left. The
 * rig is still to be stopped when this fails. */
BENCH_MUST_USE int rig_restart(const struct rig_options *options, struct rig *rig);
const char *rig_socket(const struct rig *rig);
/* Its process, 0 when the daemon was running before. */
int rig_pid(const struct rig *rig);
/* What the files of its store take on the file system now: those that the blocks are in, and all
 * others (the journal). 0 without store_in. */
void rig_store_bytes(const struct rig *rig, uint64_t *ret_store, uint64_t *ret_other);
/* 0 = runs, or a negative errno after saying how the daemon ended and what it said last. */
BENCH_MUST_USE int rig_check(struct rig *rig);
/* Ends the daemon and removes its directory. Accepts NULL and a pointer to NULL. */
void rig_stop(struct rig **rig);

/* For a child process that inherits the rig: forget it, so that leaving does not end it. */
void rig_disown(void);

#endif
