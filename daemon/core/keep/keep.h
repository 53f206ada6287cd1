/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why blocks stay: promises, pins and names. And what keeps them true: reconciliation, storage's
 * questions, verification.
 */
#ifndef KVC_CORE_KEEP_H
#define KVC_CORE_KEEP_H

#include "find.h"

/* A pin: a client's or operator's order that blocks stay. */
struct pin {
    uint64_t id;     /* serial above, pool index + 1 below; 0: it is being made */
    uint64_t end_ms; /* 0: none */
    uint64_t bytes;
    uint32_t ns, principal, tokens; /* ns: id */
    const char *owner, *tenant;
    bool in_memory, of_name;
    struct run_list blocks;
    uint32_t held;  /* of `blocks`, those that it has pinned: all, but while it is being made */
    uint32_t freed; /* of `held`, the first ones, which it has released: none before its end */
    struct key256 tip;
    bool going;            /* it has ended: nobody sees it */
    struct list_node node; /* while `going`: in core->pins->going */
    struct run_iter at;    /* where its end continues */
};

/* ---- promise.c ---- */

/* Adds a promise, to be looked at in the next step: its block, or its name, `done`, and `cancel`
 * are set. */
void promise_add(struct core *c, struct promise *p);
/* Removes a promise that nobody waits for any more. */
void promise_remove(struct core *c, struct promise *p);
/* The promise behind p, NULL: the first; returns NULL at the end. */
struct promise *promise_next(const struct core *c, const struct promise *p);
/* The next promise_step() looks at the promises again. */
void promise_look(struct core *c);
uint32_t promise_count(const struct core *c);
/* How many blocks were looked at, for all promises so far. */
uint64_t promise_looks(const struct core *c);
/* Ends promises that are kept or have failed, some at a call, and calls their done(). Due: there is
 * more for another call. */
void promise_step(struct core *c);
bool promise_is_due(const struct core *c);
/* Begins to make a block durable that exists, as far as possible now; nobody waits for it. */
void promise_begin(struct core *c, struct block *b);
/* Begins what one block needs to be durable: 0, or what save_begin() and load_begin() return. */
int promise_make(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;

/* ---- pin.c ---- */

/* Runs a step of the pins that end. True: there is more to do at once. */
bool pin_step(struct core *c);
/* From now on pinned blocks are evicted too, or (false) no more. */
void pins_force(struct core *c, bool forced);
/* Pins in use, including those that are being made or released in slices; whether some are being
 * released. */
uint32_t pins_used(const struct core *c);
bool pins_are_going(const struct core *c);
void pins_check(struct core *c);
uint32_t pins_of_runs(const struct core_config *cfg);
/* Makes a pin without blocks, which nobody sees yet; NULL: none is free. */
struct pin *pin_new(struct core *c, const struct core_pin *in, const struct find *f);
/* Adds blocks first .. end-1 of group g to a pin. A key that is there twice counts once. After an
 * error pin_drop() or pin_leave() follows. */
int pin_add(struct core *c, struct pin *p, const struct find *f, uint32_t g, uint32_t first,
            uint32_t end) KVC_WARN_UNUSED;
void pin_begin(struct core *c, struct pin *p, uint64_t ttl_ms, struct core_pinned *ret_pinned);
/* Releases the pin's blocks, and frees it. */
void pin_drop(struct core *c, struct pin *p);
/* pin_drop() of a pin that has not begun; in slices if it has many blocks. */
void pin_leave(struct core *c, struct pin *p);

/* ---- names.c ---- */

/* Runs a step of names that end, or are written or saved; true: there is more to do. */
bool names_step(struct core *c);
/* Whether a name that has ended has blocks to release. */
bool names_are_leaving(const struct core *c);
/* The shape of what the name covers, by groups, without its keys. False: nothing. */
bool name_shape(struct core *c, const struct core_name *nm, struct core_seq *ret_seq);
/* Puts the blocks that the name holds itself into f, in slices. For full groups the last block is
 * in *ret_tip, and not held yet. False: not all that the name covers can be found from there. */
KVC_WARN_UNUSED bool name_find_tips(struct core *c, const struct core_name *nm, struct find *f,
                                    struct core_seen ret_tip[KVC_GROUPS_MAX]);

/* ---- names_hold.c ---- */

/* Whether b is the end of a conversation that has a name, so that blocks behind it continue
 * that. */
bool block_goes_on(struct core *c, const struct block *b);
/* Calls fn for each block that the name holds itself; a non-zero return of fn ends the walk and is
 * returned. */
int name_each_block(struct core *c, const struct core_name *nm,
                    int (*fn)(void *ctx, struct block *b), void *ctx);
/* Storage has room again: names that wait for it are saved. */
void names_room(struct core *c);
void names_check(struct core *c);

/* ---- verify.c ---- */

enum verdict { VERDICT_GOOD, VERDICT_SKIPPED, VERDICT_FAILED, VERDICT_CORRUPT };
/* Records that one slice looks at. */
#define VERIFY_STEPS 2048u
uint64_t verify_bytes(const struct core_config *cfg);
const struct pool *verify_pool(const struct core *c); /* verify_op */
/* The bytes in memory of a leased block differ from those that were stored: drops the block with
 * all below it, and tells its readers, if that was not done already. */
void verify_host_is_corrupt(struct core *c, struct block *b);
/* Whether the slice is to look at blocks of this namespace. */
bool verify_wants_ns(const struct core_verify *v, const struct core_ns *ns);
/* How many blocks a slice may hold in place, of so many that are stored. */
uint32_t verify_most(const struct core *c, uint64_t there);
/* Begins to read one shard of b, as the slice's block `index`; hbm: as in verify_op. */
void verify_read(struct core *c, struct core_verify *v, struct block *b, uint32_t index,
                 uint32_t shard, uint32_t hbm);

/* ---- verify_hbm.c ---- */

/* Begins to read the HBM copies of a slice; returns how many. */
uint32_t hbm_verify_begin(struct core *c, struct core_verify *v);
/* The place of an HBM copy, and the tier that has it; the copy stays until hbm_verify_end(). */
struct tier *hbm_verify_hold(struct core *c, uint32_t no, struct tier_loc *ret_loc);
void hbm_verify_end(struct core *c, uint32_t no);
/* Whether an HBM copy that was read is still wanted. */
bool hbm_verify_is_there(const struct core *c, uint32_t no);
/* Its bytes are wrong: drops the HBM copy, and tells its readers. The block, and its other copies,
 * stay. */
void hbm_verify_drop(struct core *c, uint32_t no, struct tier_view *ret_view);

/* ---- reclaim.c ---- */

void reclaim_listen(struct core *c);
bool reclaim_step(struct core *c);

/* ---- reconcile.c ---- */

/* Begins copies that blocks lack, some at a call. True: there is more that can be begun now. */
bool reconcile_step(struct core *c);

#endif
