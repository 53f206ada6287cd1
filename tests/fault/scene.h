/* SPDX-License-Identifier: Apache-2.0 */
/* A short run of a daemon and its clients during which one operation may fail. */
#ifndef KVC_TEST_SCENE_H
#define KVC_TEST_SCENE_H

#include "rig_device.h"

/* What the daemon must be started with. */
extern const char *const scene_sets[];
/* The same settings with a storage tier in the directory `store`, so that blocks without room in
 * memory go to disk and come back. scene_play() then also stores durably. NULL-terminated; static,
 * valid until the next call. */
const char *const *scene_sets_storage(const char *store);
/* The same settings with an emulated device. scene_play() then stores out of pages, loads into them
 * and reads on the device, and does not fill the tier. Not to be combined with storage in one
 * process. */
const char *const *scene_sets_device(void);

/* Connects, stores, reads, waits, cancels, evicts, fills the tier beyond its limit with large
 * blocks, and leaves. A call may fail with an error that kvcache.h documents, and may hit less than
 * was stored. Wrong bytes, or an error that blames the caller, fail the test. Returns how many
 * calls failed. */
unsigned scene_play(const struct rig *r);
/* A client holds blocks while `stop` ends the daemon; the blocks must keep their bytes. */
void scene_end(struct rig *r, void (*stop)(struct rig *r));
/* A new client must be served in full. Nothing of earlier clients may be left. After all blocks
 * were evicted no room may be in use. Anything else fails the test. */
void scene_check(const struct rig *r);
/* scene_check() where calls may still fail. false: a call failed, and nothing is known. */
bool scene_try_check(const struct rig *r);

/* Call it last, with storage: stores a chain durably. Returns whether durability was acknowledged;
 * a call may fail. */
bool scene_promise(const struct rig *r);
/* Call it in a later run of the daemon, in which no call may fail. Blocks of the chain that are
 * cached must have the right bytes. `promised`: all blocks must be cached. */
void scene_check_promise(const struct rig *r, bool promised);

#endif
