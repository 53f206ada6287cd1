/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon, a client that keeps the rules and must go on getting its bytes, and what must be true
 * when the one that does not has gone. */
#ifndef KVC_TEST_HOSTILE_H
#define KVC_TEST_HOSTILE_H

#include "peer.h"

#define HOSTILE_BT     16u
#define HOSTILE_BLOCK  8192u
#define HOSTILE_BLOCKS 32u

struct hostile {
    struct rig *rig;
    struct kvc *k;
    struct kvc_ns *ns;
    uint8_t keys[HOSTILE_BLOCKS * KVC_KEY_BYTES];
    unsigned fds;
    uint64_t rss;
};

/* Starts the daemon with `sets` (NULL-terminated, or NULL) and the client, which stores its chain.
 */
void hostile_begin(struct hostile *s, const char *const *sets);
/* The client gets its chain, every byte of it; stores it again where it was evicted. */
void hostile_serve(struct hostile *s);
/* The same, but the chain may not have been evicted. */
void hostile_serve_hit(struct hostile *s);
/* Everybody else has gone: no session, lease, reservation, call, descriptor or memory of theirs is
 * left, all room can be emptied to zero, and the daemon ends with 0. */
void hostile_end(struct hostile *s);

#endif
