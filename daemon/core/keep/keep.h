/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why blocks stay: promises, pins and names. And the background work on them: reconciliation begins
 * missing copies, storage asks which blocks it may reclaim, verification reads bytes again.
 */
#ifndef KVC_CORE_KEEP_H
#define KVC_CORE_KEEP_H

#include "find.h"

/* A pin: a client's or operator's order that blocks stay. */
struct pin {
    uint64_t id;     /* serial in the upper half, pool index + 1 below; 0: it is being made */
    uint64_t end_ms; /* the time at which it ends; 0: it has no end */
    uint64_t bytes;  /* payload of its blocks */
    uint32_t ns, principal, tokens;      /* ns: id */
    const char *principal_name, *tenant; /* the principal's name and tenant; borrowed */
    bool in_memory, of_name;             /* as in core_pin */
    struct run_list blocks;
    uint32_t held;     /* how many of `blocks` it has pinned: all, unless it is being made */
    uint32_t freed;    /* how many of these it has released, from the first on: 0 before its end */
    struct key256 tip; /* as in core_pin_view */
    bool going;        /* it has ended: clients do not see it, and its blocks are being released */
    struct list_node node; /* while `going`: in core->mod.pins->going */
    struct run_iter at;    /* while `going`: the next block to be released */
};

/* ---- promise.c ---- */

/* Adds a promise; the next promise_step() looks at it. The caller has set its block and gen, or its
 * name, and `done` and `cancel`. */
void promise_add(struct core *c, struct promise *p);
/* Removes a promise that is not needed any more; its done() is not called. */
void promise_remove(struct core *c, struct promise *p);
/* The promise behind p, NULL: the first; returns NULL at the end. */
struct promise *promise_next(const struct core *c, const struct promise *p);
/* Makes the next promise_step() look at all promises again. */
void promise_look(struct core *c);
uint32_t promise_count(const struct core *c);
/* How many blocks were looked at for promises since the start. */
uint64_t promise_looks(const struct core *c);
/* Looks at promises, some at a call; ends those that are kept or have failed, and calls their
 * done(). */
void promise_step(struct core *c);
/* Whether promise_step() has more to do at once. */
bool promise_is_due(const struct core *c);
/* Begins to make b durable, with all blocks before it, as far as possible now; no request waits. */
void promise_begin(struct core *c, struct block *b);
/* Begins the write of b with a promise, or first its load if memory lacks it. 0, or an error of
 * save_begin(), load_begin() or quota_bind(). */
int promise_make(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;

/* ---- pin.c ---- */

/* Ends pins whose time is over, and releases blocks of ended ones, in slices. True: there is more
 * to do at once. */
bool pin_step(struct core *c);
/* Sets whether pinned blocks may be evicted now, by an eviction job with force. */
void pins_force(struct core *c, bool forced);
/* The number of pins, including those that are being made or released in slices. */
uint32_t pins_used(const struct core *c);
/* Whether some pins are being released in slices. */
bool pins_are_going(const struct core *c);
void pins_check(struct core *c);
/* How many runs of core->runs the lists of all pins may take. */
uint32_t pins_of_runs(const struct core_config *cfg);
/* Makes a pin without blocks, which clients do not see yet; NULL: none is free. */
struct pin *pin_new(struct core *c, const struct core_pin *in, const struct find *f);
/* Adds blocks first .. end - 1 of group g to a pin; a block that is in it already counts once.
 * After an error the caller calls pin_drop() or pin_leave(). */
int pin_add(struct core *c, struct pin *p, const struct find *f, uint32_t g, uint32_t first,
            uint32_t end) KVC_WARN_UNUSED;
/* Makes a pin that has all its blocks visible, and starts its time. */
void pin_begin(struct core *c, struct pin *p, uint64_t ttl_ms, struct core_pinned *ret_pinned);
/* Releases the pin's blocks, and frees it. */
void pin_drop(struct core *c, struct pin *p);
/* pin_drop() of a pin that has not begun; in slices if it has many blocks. */
void pin_leave(struct core *c, struct pin *p);

/* ---- names.c ---- */

/* Runs a step of all background work on names: names that end, that are written to the journal, or
 * whose blocks are saved. True: there is more to do. */
bool names_step(struct core *c);
/* Whether some name that has ended has blocks to release. */
bool names_are_going(const struct core *c);
/* The sequence that the name covers, without keys: namespace, tokens, blocks of each group. False:
 * the name covers nothing. */
bool name_shape(struct core *c, const struct core_name *nm, struct core_seq *ret_seq);
/* Puts the blocks that the name holds itself into f, for a lookup in slices. Of a full group the
 * last block is in *ret_tip, and not held yet. False: from these blocks not all can be found that
 * the name covers. */
KVC_WARN_UNUSED bool name_find_tips(struct core *c, const struct core_name *nm, struct find *f,
                                    struct core_seen ret_tip[KVC_GROUPS_MAX]);

/* ---- names_hold.c ---- */

/* Whether b is the last block of a named conversation, so that new blocks behind b continue it. */
bool block_goes_on(struct core *c, const struct block *b);
/* Calls fn for each block that the name holds itself; a non-zero return of fn ends the walk and is
 * returned. */
int name_each_block(struct core *c, const struct core_name *nm,
                    int (*fn)(void *ctx, struct block *b), void *ctx);
/* Tells that storage has room again: names whose blocks wait for room are saved. */
void names_room(struct core *c);
void names_check(struct core *c);

/* ---- verify.c ---- */

enum verdict { VERDICT_GOOD, VERDICT_SKIPPED, VERDICT_FAILED, VERDICT_CORRUPT };
/* The most records that one slice looks at. */
#define VERIFY_STEPS 2048u
uint64_t verify_bytes(const struct core_config *cfg);
const struct pool *verify_pool(const struct core *c); /* of verify_op */
/* The bytes in memory of a leased block differ from those that were stored: removes the block with
 * all blocks below it, and changes its generation so that readers notice; once. */
void verify_host_is_corrupt(struct core *c, struct block *b);
/* Whether the slice is to look at blocks of this namespace. */
bool verify_wants_ns(const struct core_verify *v, const struct core_ns *ns);
/* The most blocks that a slice may read at a time; `there`: number of all such blocks. Blocks that
 * are read are not evicted. */
uint32_t verify_most(const struct core *c, uint64_t there);
/* Begins to read one shard of b, as the slice's block `index`; hbm: as in verify_op. */
void verify_read(struct core *c, struct core_verify *v, struct block *b, uint32_t index,
                 uint32_t shard, uint32_t hbm);

/* ---- verify_hbm.c ---- */

/* Begins to read the HBM copies of a slice; returns how many. */
uint32_t hbm_verify_begin(struct core *c, struct core_verify *v);
/* The location of HBM copy `no`, and its device's tier; the copy stays until hbm_verify_end(). */
struct tier *hbm_verify_hold(struct core *c, uint32_t no, struct tier_loc *ret_loc);
void hbm_verify_end(struct core *c, uint32_t no);
/* Whether an HBM copy that was read, and its block, are still in use for lookups. */
bool hbm_verify_is_there(const struct core *c, uint32_t no);
/* The bytes of the HBM copy are wrong: drops it, and changes its generation so that readers notice.
 * The block, and its other copies, stay. */
void hbm_verify_drop(struct core *c, uint32_t no, struct tier_view *ret_view);

/* ---- reclaim.c ---- */

/* Sets the functions that storage calls when it has moved or lost a block, or has room again. */
void reclaim_listen(struct core *c);
/* Decides for blocks in a segment that storage reclaims whether they are kept, some at a call.
 * True: there is more to do. */
bool reclaim_step(struct core *c);

/* ---- reconcile.c ---- */

/* Begins wanted copies (wants.h) that blocks lack, some at a call. True: more can be begun now. */
bool reconcile_step(struct core *c);

#endif
