/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon, a client that keeps the rules and must go on getting its bytes, and what must be true
 * when the one that does not has gone. */
#ifndef KVC_TEST_SCENE_H
#define KVC_TEST_SCENE_H

#include "peer.h"

#define SCENE_BT     16u
#define SCENE_BLOCK  8192u
#define SCENE_BLOCKS 32u

struct scene {
    struct rig rig;
    struct kvc *k;
    struct kvc_ns *ns;
    uint8_t keys[SCENE_BLOCKS * KVC_KEY_BYTES];
    unsigned fds;
    uint64_t rss;
};

/* Starts the daemon with `sets` (NULL-terminated, or NULL) and the client, which stores its chain.
 */
void scene_begin(struct scene *s, const char *const *sets);
/* The client gets its chain, every byte of it; stores it again where it was evicted. */
void scene_serve(struct scene *s);
/* The same, but the chain may not have been evicted. */
void scene_serve_hit(struct scene *s);
/* Everybody else has gone: no session, lease, reservation, call, descriptor or memory of theirs is
 * left, all room can be emptied to zero, and the daemon ends with 0. */
void scene_end(struct scene *s);

#endif
