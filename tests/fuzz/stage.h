/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library without a daemon: the calls of a session run as they are, and what the daemon would
 * send is what the input says (records.h). Nothing sleeps: the linker sends the library's clock,
 * its poll() and its control socket (wire.h) here, and time passes when nothing comes any more. The
 * attach channel is a real socket pair with real descriptors.
 */
#ifndef KVC_FUZZ_STAGE_H
#define KVC_FUZZ_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/kvcache.h>

#include "records.h"

/* Verbs of a record; those from STAGE_CALL on are for the target. */
enum stage_verb {
    STAGE_DATAGRAM,      /* on the attach channel */
    STAGE_DATAGRAM_FILE, /* arg: size of the file whose descriptor comes with it */
    STAGE_DATAGRAM_TWO,  /* two descriptors */
    STAGE_MESSAGE,       /* on the control socket, as it is */
    STAGE_REPLY,         /* the same with the correlation id of the last request */
    STAGE_HANG_UP,       /* the daemon closes the attach channel */
    STAGE_BROKEN,        /* arg: how the control socket fails */
    STAGE_LATER,         /* arg: time passes */
    STAGE_CALL
};

/* `tame`: the WELCOME comes by itself, HELLO and NS_OPEN get a good answer, and each MAP a chunk of
 * 1 MiB. */
void stage_begin(const uint8_t *data, size_t size, bool tame);
/* Every descriptor and mapping of the library must be gone. */
void stage_end(void);
/* The next record that is a call; what comes before it happens. False at the end. */
bool stage_next_call(struct record *ret);

#endif
