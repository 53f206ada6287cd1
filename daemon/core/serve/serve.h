/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of clients: lookups, leases, loads, stores, copies to and from devices. core.h has
 * what handlers call; this header has what core's other files call.
 */
#ifndef KVC_CORE_SERVE_H
#define KVC_CORE_SERVE_H

#include "keep.h"

/* ---- load.c ---- */

uint64_t loads_bytes(const struct core_config *cfg);
const struct pool *load_pool(const struct core *c); /* of core_load */
/* Begins a load for the waiter, of the blocks that f's prefix beyond `from` tokens needs and memory
 * lacks. 1: it has begun; 0: there is nothing to load, or nothing can be loaded now. KVC_E_LIMIT,
 * perhaps with *ret_why. */
int load_start(struct core *c, struct core_client *cl, const struct find *f, uint32_t from,
               struct core_waiter *waiter, const char **ret_why) KVC_WARN_UNUSED;
/* Whether all blocks that f's prefix beyond `from` tokens needs are in memory, or in slots of the
 * asker's device. */
bool load_is_ready(struct core *c, const struct find *f, uint32_t from);
/* Begins to read further blocks of loads, as far as there is room; clients take turns. */
void load_pump(struct core *c);
/* Ends a load that no request needs any more: releases its blocks and frees it, in slices if it has
 * many. */
void load_free(struct core *c, struct core_load *l);
void load_cancel_all(struct core *c, const struct core_client *cl);
/* Runs a slice of releasing the blocks of ended loads; true: there are more. */
bool load_step(struct core *c);
bool loads_are_going(const struct core *c); /* whether ended loads have blocks to release */
/* Makes a load; NULL: none is free. If load_go() is not called, or fails, load_free() ends it. */
struct core_load *load_new(struct core *c, struct core_client *cl);
/* Adds b to the load, which holds it, and loads it if it is not ready. holds: how often the caller
 * itself holds b. left: as unevictable_take() has it. */
int load_add(struct core *c, struct core_load *l, const struct find *f, struct block *b,
             uint32_t holds, uint64_t *left, const char **ret_why) KVC_WARN_UNUSED;
/* Begins the load: 1. KVC_E_LIMIT: the client would exceed its lease bytes. */
int load_go(struct core *c, struct core_load *l, struct core_waiter *waiter) KVC_WARN_UNUSED;
/* Begins to load b, for which no request waits, if it has at most *left bytes; these are
 * subtracted. 1: b is being loaded; 0: b need not be loaded; else an error: no further load can
 * begin now. */
int load_ahead(struct core *c, const struct find *f, struct block *b,
               uint64_t *left) KVC_WARN_UNUSED;

/* ---- lease.c ---- */

uint64_t leases_bytes(const struct core_config *cfg);
const struct pool *lease_pool(const struct core *c); /* of leases */
/* The number of a client's leases. */
uint32_t leases_of(const struct core *c, const struct core_client *cl);
/* Releases all that a lease holds and frees it, in one piece. */
void lease_free(struct core *c, struct lease *l);
/* Ends a lease for its client: the lease is freed now, or when its last use has ended. */
void lease_end(struct core *c, struct lease *l);
/* NULL: the client has no such lease. */
struct lease *lease_by_id(struct core *c, const struct core_client *cl, uint64_t id);
/* From lease_use() to lease_unuse() the lease keeps its blocks, and what it holds on a device, even
 * if its client releases it. For fills, sends and copies. */
void lease_use(struct lease *l);
void lease_unuse(struct core *c, struct lease *l);
/* The lease of this id; it must be between lease_use() and lease_unuse(). */
struct lease *lease_in_use(const struct core *c, uint64_t id);
/* To be called when a turn begins. */
void lease_turn(struct core *c);
/* Runs a slice of releasing the blocks of large leases that have ended; true: there are more. */
bool lease_step(struct core *c);
bool leases_are_going(const struct core *c); /* whether such leases have blocks to release */
/* Queues the waiter if the prefix may grow by waiting; returns whether it did. */
bool find_wait(struct core *c, const struct core_acquire *in, struct find *f,
               struct core_waiter *waiter);
/* Fills in the answer's prefix, and counts the request in the metrics; before the lease is made. */
void find_count(struct core *c, const struct core_acquire *in, const struct find *f,
                const struct core_waiter *waiter, struct core_prefix *prefix);
/* Makes a lease of f's prefix without its blocks; NULL: none is free. */
struct lease *lease_begin(struct core *c, struct core_client *cl, const struct find *f,
                          uint32_t from);
/* Adds a block that f found to the lease, which holds it. left: as unevictable_take() has it. */
int lease_add_found(struct core *c, struct lease *l, const struct find *f, struct block *b,
                    uint64_t *left, const char **ret_why) KVC_WARN_UNUSED;
/* The request of the waiter (NULL: none) is answered: ends the load that holds blocks for it. */
void waiter_done(struct core *c, struct core_waiter *waiter);
/* Fills in the answer for a lease that has all its blocks. */
void lease_held(struct core *c, const struct lease *l, struct core_held *held);

/* ---- write.c ---- */

uint64_t writes_bytes(void);
const struct pool *op_pool(const struct core *c); /* of core_op */
/* How many operations have not been copied whose words were not reached when they began. */
uint32_t ops_fenced(const struct core *c);
struct core_op *op_at(const struct core *c, uint32_t no);
/* Tells that the device has copied the bytes of an operation out of pages (status 0), or could
 * not. */
void op_copied(struct core *c, struct core_op *o, int status);
/* The block's status (KVC_ST_*) for the error of its copy. */
uint8_t core__copy_status(int err);

/* ---- transfer_send.c ---- */

extern const struct core_req_kind send_req;

/* ---- transfer_store.c ---- */

/* Why a commit out of pages cannot be copied; NULL: it can. */
const char *transfer_store_fault(const struct core *c, const struct core_commit *m,
                                 const struct reservation *r);
/* Begins the device's copy of the commit's list of core_op, which is not empty, or queues it. */
void transfer_store_begin(struct core *c, struct core_commit *m);
void transfer_store_cancel(struct core *c, struct core_commit *m);

/* ---- advice.c ---- */

/* The range of blocks of group g for which advice on the chain may be. It is for those blocks that
 * no other chain shares: from the last one back to the first that is_shared(). */
void own_range(const struct find *f, uint32_t g, uint32_t *ret_first, uint32_t *ret_end);
bool is_shared(const struct block *b, bool is_last);

/* ---- ask.c ---- */

uint64_t asks_bytes(void);
/* The number of holds that asks have, for core_check(). */
uint64_t asks_hold(const struct core *c);
/* Runs a slice of releasing the blocks of asks that were cancelled or have ended; true: there are
 * more. */
bool ask_step(struct core *c);
bool asks_are_going(const struct core *c); /* whether such asks have blocks to release */

/* ---- progress.c ---- */

/* From time to time wakes requests that wait for blocks of late writers. */
void progress_step(struct core *c);

/* ---- ns.c ---- */

/* Why a specification is not valid; NULL: it is. */
const char *core__ns_fault(const struct core_ns_spec *s);
/* Why KV of this specification must not be reused; NULL: it may be. */
const char *core__ns_unsound(const struct core_ns_spec *s);
/* The digest of identity and specification: equal for equal namespaces, also after a restart. */
int core__ns_print(struct core *c, const struct core_identity *who, const struct core_ns_spec *spec,
                   struct key256 *ret) KVC_WARN_UNUSED;
int core__ns_find_or_make(struct core *c, const struct core_identity *who,
                          const struct core_ns_spec *spec, struct core_ns **ret_ns) KVC_WARN_UNUSED;
/* The first 8 bytes of a print, as a number that is not 0. */
uint64_t core__short_print(const struct key256 *print);

#endif
