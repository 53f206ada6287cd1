/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd_reserve: a descriptor kept back, so that a listener can turn a newcomer away when no other
 * descriptor is left. Without it accept() fails with EMFILE, the newcomer stays in the queue, and a
 * loop that waits for the listener wakes at once, again and again.
 *
 * Threads: a struct fd_reserve belongs to one thread.
 */
#ifndef KVC_IO_FD_RESERVE_H
#define KVC_IO_FD_RESERVE_H

#include "err.h"

struct fd_reserve {
    int fd; /* -1: another part of the process took it; opened again as soon as that works */
};

/* 0, or the negative errno of open(2), such as -EMFILE. */
KVC_WARN_UNUSED int fd_reserve_open(struct fd_reserve *s);
void fd_reserve_close(struct fd_reserve *s);
/* Whether accept() failed with `err` because the process or the system has no room. */
bool fd_reserve_needed(int err);
/* Accepts one newcomer from the non-blocking `listener` and closes it. Never blocks; when the
 * reserve is lost and there is none to be had, waits a millisecond so that a level-triggered caller
 * does not spin. */
void fd_reserve_turn_away(struct fd_reserve *s, int listener);

#endif
