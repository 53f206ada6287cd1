/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spare: a descriptor kept back, so that a listener can turn a newcomer away when there is no other
 * left. Without it accept() fails with EMFILE, the newcomer stays in the queue, and whoever waits
 * for the listener never sleeps again.
 *
 * Threads: a struct spare belongs to one thread.
 */
#ifndef KVC_IO_SPARE_H
#define KVC_IO_SPARE_H

#include "err.h"

struct spare {
    int fd; /* -1: lost to somebody else; taken back as soon as there is one */
};

/* -EMFILE, ... */
KVC_WARN_UNUSED int spare_open(struct spare *s);
void spare_close(struct spare *s);
/* Whether accept() failed with `err` because the process or the system has no room. */
bool spare_needed(int err);
/* Accepts one newcomer from the non-blocking `listener` and closes it. Never blocks; when the spare
 * is lost and there is none to be had, waits a millisecond so that a level-triggered caller does
 * not spin. */
void spare_turn_away(struct spare *s, int listener);

#endif
