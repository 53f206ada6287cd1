/* SPDX-License-Identifier: Apache-2.0 */
/* Why blocks stay: promises, pins and names; and whether their bytes are what was stored. */
#ifndef KVC_CORE_KEEP_H
#define KVC_CORE_KEEP_H

#include "find.h"

/* Somebody's wish that blocks stay. */
struct pin {
    uint64_t id;     /* serial above, pool index + 1 below; 0: it is being made */
    uint64_t end_ms; /* 0: none */
    uint64_t bytes;
    uint32_t ns, principal, tokens; /* ns: id */
    const char *owner, *tenant;
    bool in_memory, of_name;
    struct run_list blocks;
    uint32_t held;  /* of `blocks`, those that it has pinned: all, but while it comes */
    uint32_t freed; /* of `held`, the first ones, which it has let go of: none before its end */
    struct key256 tip;
    bool going;            /* it has ended, nobody sees it */
    struct list_node node; /* then: core->pins->going */
    struct run_iter at;    /* where its end goes on */
};

/* ---- promise.c ---- */

/* To be looked at: its block, or its name, `done`, and `cancel` are set. */
void promise_add(struct core *c, struct promise *p);
/* Nobody waits for it any more. */
void promise_remove(struct core *c, struct promise *p);
/* The one behind p, NULL: the first; NULL: there is none. */
struct promise *promise_next(const struct core *c, const struct promise *p);
/* One of them is to be looked at. */
void promise_look(struct core *c);
uint32_t promise_count(const struct core *c);
/* At blocks, for all promises so far. */
uint64_t promise_looks(const struct core *c);
/* Ends what can be ended, some at a call; calls out. Due: there is more for another call. */
void promise_step(struct core *c);
bool promise_is_due(const struct core *c);
/* A block that exists is to be durable, as far as can be begun now; nobody waits for it. */
void promise_begin(struct core *c, struct block *b);
/* Begins what one block needs to be durable: 0, or what save_begin() and load_begin() return. */
int promise_make(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;

/* ---- pin.c ---- */

/* A step of the pins that end. True: there is more to do at once. */
bool pin_step(struct core *c);
/* What is pinned goes too, from now on or no more. */
void pins_force(struct core *c, bool forced);
/* Also those that are being made, or let go of in slices; these. */
uint32_t pins_used(const struct core *c);
bool pins_are_going(const struct core *c);
void pins_check(struct core *c);
uint32_t pins_of_runs(const struct core_config *cfg);
/* A pin without its blocks yet, which nobody sees; NULL: none is free. */
struct pin *pin_new(struct core *c, const struct core_pin *in, const struct find *f);
/* Pins blocks first .. end-1 of group g too. A key that comes twice within them counts once. When
 * that fails, pin_drop() or pin_leave() is to follow. */
int pin_add(struct core *c, struct pin *p, const struct find *f, uint32_t g, uint32_t first,
            uint32_t end) KVC_WARN_UNUSED;
void pin_begin(struct core *c, struct pin *p, uint64_t ttl_ms, struct core_pinned *ret_pinned);
/* What it has goes, and it too. */
void pin_drop(struct core *c, struct pin *p);
/* The same of one that has not begun; in slices if it has many blocks. */
void pin_leave(struct core *c, struct pin *p);

/* ---- names.c ---- */

/* True while there is more to do. */
bool names_step(struct core *c);
/* Some name that has gone has blocks to let go of. */
bool names_are_leaving(const struct core *c);
/* What the name covers, by groups; its keys are not told. False: nothing. */
bool name_shape(struct core *c, const struct core_name *nm, struct core_seq *ret_seq);
/* Into f, in slices, what the name holds itself; of full groups its last block is in *ret_tip, and
 * not held yet. False: not all that it covers can be found from there. */
KVC_WARN_UNUSED bool name_find_tips(struct core *c, const struct core_name *nm, struct find *f,
                                    struct core_seen ret_tip[KVC_GROUPS_MAX]);

/* ---- names_hold.c ---- */

/* What comes behind it goes on from where a conversation ends, that has a name. */
bool block_goes_on(struct core *c, const struct block *b);
/* The blocks that a name holds itself: calls fn for each; a non-zero return ends it and is what it
 * returns. */
int name_each_block(struct core *c, const struct core_name *nm,
                    int (*fn)(void *ctx, struct block *b), void *ctx);
/* Storage has room again. */
void names_room(struct core *c);
void names_check(struct core *c);

/* ---- verify.c ---- */

enum verdict { VERDICT_GOOD, VERDICT_SKIPPED, VERDICT_FAILED, VERDICT_CORRUPT };
/* Records looked at in one slice. */
#define VERIFY_STEPS 2048u
uint64_t verify_bytes(const struct core_config *cfg);
const struct pool *verify_pool(const struct core *c); /* verify_op */
/* The bytes in memory of one that is leased differ from what was stored: it is dropped with all
 * below it, and its readers are told, if it has not been already. */
void verify_host_is_corrupt(struct core *c, struct block *b);
/* Whether the slice is to look at blocks of this namespace. */
bool verify_wants_ns(const struct core_verify *v, const struct core_ns *ns);
/* How many blocks it may hold in place, of so many that there are. */
uint32_t verify_most(const struct core *c, uint64_t there);
/* Begins to read one shard of b, as the slice's block `index`; near: as in verify_op. */
void verify_read(struct core *c, struct core_verify *v, struct block *b, uint32_t index,
                 uint32_t shard, uint32_t near);

/* ---- near_verify.c ---- */

/* Begins to read the near copies of a slice; returns how many. */
uint32_t near_verify_begin(struct core *c, struct core_verify *v);
/* Where one is, and the tier that has it; it stays until near_verify_end(). */
struct tier *near_verify_hold(struct core *c, uint32_t no, struct tier_loc *ret_loc);
void near_verify_end(struct core *c, uint32_t no);
/* Of what was read: whether it is wanted still. */
bool near_verify_is_there(const struct core *c, uint32_t no);
/* Its bytes are wrong: it goes, and who reads it is told. The block, and its other copies, stay. */
void near_verify_drop(struct core *c, uint32_t no, struct tier_view *ret_view);

/* ---- reclaim.c ---- */

void reclaim_listen(struct core *c);
bool reclaim_step(struct core *c);

/* ---- reconcile.c ---- */

/* Begins what blocks lack, some at a call. True: there is more that can be begun now. */
bool reconcile_step(struct core *c);

#endif
