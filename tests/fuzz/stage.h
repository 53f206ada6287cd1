/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library without a daemon. The calls of a session run as they are; the input says what the
 * daemon sends (records.h). Nothing sleeps: the linker replaces the library's clock, its poll() and
 * its control socket (wire.h) by functions here, and time passes when no more messages come. The
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

/* Verbs of a record; those from STAGE_CALL on belong to the target. */
enum stage_verb {
    STAGE_DATAGRAM,      /* a datagram on the attach channel */
    STAGE_DATAGRAM_FILE, /* the same with a descriptor; arg: size of its file */
    STAGE_DATAGRAM_TWO,  /* the same with two descriptors */
    STAGE_MESSAGE,       /* a message on the control socket, unchanged */
    STAGE_REPLY,         /* the same with the correlation id of the last request */
    STAGE_HANG_UP,       /* the daemon closes the attach channel */
    STAGE_BROKEN,        /* arg: how the control socket fails */
    STAGE_LATER,         /* arg: time passes */
    STAGE_CALL
};

/* tame: WELCOME comes by itself, HELLO and NS_OPEN get a valid reply, and each MAP gets a chunk of
 * 1 MiB. */
void stage_begin(const uint8_t *data, size_t size, bool tame);
/* Fails unless the library has closed every descriptor and mapping. */
void stage_end(void);
/* Executes records up to the next one that is a call, which it returns. False: the input has ended.
 */
bool stage_next_call(struct record *ret);

#endif
