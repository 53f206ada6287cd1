/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon, a well-behaved client that must be served all the time, and what must hold when the
 * ill-behaved one has gone. */
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

/* Starts the daemon with `sets` (NULL-terminated, or NULL), and the client, which stores its chain.
 */
void hostile_begin(struct hostile *s, const char *const *sets);
/* The client must get its chain with the right bytes; it stores the chain again if it was evicted.
 */
void hostile_serve(struct hostile *s);
/* The same, but the chain may not have been evicted. */
void hostile_serve_hit(struct hostile *s);
/* All other clients have gone. The daemon must hold no session, lease, reservation, call,
 * descriptor or memory of theirs; it must be possible to evict all blocks; and it must exit with 0.
 */
void hostile_end(struct hostile *s);

#endif
