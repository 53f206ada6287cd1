/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of core asks of near copies; the end of core__.h, which includes it. */
#ifndef KVC_CORE_NEAR_CORE_H
#define KVC_CORE_NEAR_CORE_H

#include "core__.h"

/* near.c, near_fill.c, near_send.c; where there are no devices they do nothing */
uint64_t near_bytes(const struct core_config *cfg);
uint32_t near_runs(const struct core_config *cfg);
bool near_is_still(const struct core *c); /* no job is in flight */
/* Its bytes are wrong: who reads one of its copies on devices is told by the generation. */
void near_revoke(struct core *c, struct block *b);
/* Some device has a copy of it that is there. */
bool near_is_there(const struct core *c, const struct block *b);
/* The device in whose slots the blocks of seq may be read; NULL: none, or it is out. */
struct near_device;
const struct near_device *near_serving(const struct core *c, const struct core_seq *seq);
/* The part of b that seq asks for is in a slot there. */
bool near_serves(struct core *c, const struct near_device *dev, const struct core_seq *seq,
                 const struct block *b);
/* Holds that one, for a lease, or for a load together with its block. KVC_E_BUSY. */
int near_lease(struct core *c, struct lease *l, const struct near_device *dev,
               const struct core_seq *seq, const struct block *b) KVC_WARN_UNUSED;
int near_load(struct core *c, struct core_load *l, const struct near_device *dev,
              const struct core_seq *seq, struct block *b) KVC_WARN_UNUSED;
/* Bytes of its copies on devices. */
uint64_t near_held(struct core *c, const struct block *b);
/* What a lease holds on its device; what a load does. */
void near_let_go(struct core *c, struct lease *l);
void near_unload(struct core *c, struct core_load *l);
/* Asks its sends to stop. */
void near_cancel_all(struct core *c, struct core_client *cl);
/* The copies of a commit out of pages. What is wrong with it, NULL: nothing. */
const char *near_store_fault(const struct core *c, const struct core_commit *m,
                             const struct reservation *r);
/* The copy of its list of ops, which is not empty, begins or waits for its turn. */
void near_store_begin(struct core *c, struct core_commit *m);
void near_store_cancel(struct core *c, struct core_commit *m);
/* near_wait.c: those whose turn has come begin; those whose time is up end. */
void near_run_waiting(struct core *c);
/* Some may be able to begin or end now. */
bool near_has_due(const struct core *c);
void near_check(struct core *c);

#endif
