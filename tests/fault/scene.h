/* SPDX-License-Identifier: Apache-2.0 */
/* A short life of a daemon and its clients, in which one thing may go wrong. */
#ifndef KVC_TEST_SCENE_H
#define KVC_TEST_SCENE_H

#include "rig_device.h"

/* What the daemon must be started with. */
extern const char *const scene_sets[];
/* The same with a storage tier in the directory `store`, so that what memory has no room for goes
 * to disk and comes back. NULL-terminated; static, of the last call. scene_play() then also stores
 * with a promise. */
const char *const *scene_sets_storage(const char *store);
/* The same with an emulated device. scene_play() then stores out of pages, loads into them and
 * reads on the device, instead of filling the tier. Not with storage in one process. */
const char *const *scene_sets_device(void);

/* Connects, stores, reads, waits, cancels, evicts, fills the tier beyond its limit with large
 * blocks, and leaves. A call may fail with an error that kvcache.h documents, and hit less than was
 * stored. It fails the test when bytes are wrong or an error tells the caller of a fault of its
 * own. Returns how many calls failed. */
unsigned scene_play(const struct rig *r);
/* A client that holds blocks across the daemon's end (`stop`): what it reads is what was stored. */
void scene_end(struct rig *r, void (*stop)(struct rig *r));
/* A fresh client is served in full, nothing of earlier clients is left, and once all is evicted
 * nothing is accounted for any more. Anything else fails the test. */
void scene_check(const struct rig *r);
/* scene_check() where a call may still fail; false: one did, and nothing is known. */
bool scene_try_check(const struct rig *r);

/* With storage, last: stores a chain with a promise. Whether it was given. A call may fail. */
bool scene_promise(const struct rig *r);
/* In a later run of the daemon, where no call may fail: the chain has the right bytes as far as it
 * is there, and it is all there when it was promised. */
void scene_check_promise(const struct rig *r, bool promised);

#endif
