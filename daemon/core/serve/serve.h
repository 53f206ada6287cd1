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
const struct pool *load_pool(const struct core *c); /* core_load */
/* Starts loading the blocks that f's prefix beyond `from` tokens needs and memory lacks, for the
 * waiter: 1. 0: it lacks nothing, or nothing can be loaded now. KVC_E_LIMIT, perhaps with
 * *ret_why. */
int load_start(struct core *c, struct core_client *cl, const struct find *f, uint32_t from,
               struct core_waiter *waiter, const char **ret_why) KVC_WARN_UNUSED;
/* Whether all blocks of it are in memory, or in slots of its device. */
bool load_is_ready(struct core *c, const struct find *f, uint32_t from);
void load_pump(struct core *c);
/* Ends a load that nobody waits for any more: frees it, in slices where it holds much. */
void load_free(struct core *c, struct core_load *l);
void load_cancel_all(struct core *c, const struct core_client *cl);
/* Runs a slice of releasing the blocks of ended loads; true: there are more. */
bool load_step(struct core *c);
bool loads_are_leaving(const struct core *c); /* whether there are some */
/* Makes a load; NULL: none is free. load_free() ends it until load_go() has begun it. */
struct core_load *load_new(struct core *c, struct core_client *cl);
/* The load holds b too, which the caller holds `holds` times, and which is to be loaded, or is
 * ready. left: of unevictable_take(). */
int load_add(struct core *c, struct core_load *l, const struct find *f, struct block *b,
             uint32_t holds, uint64_t *left, const char **ret_why) KVC_WARN_UNUSED;
/* Begins the load: 1. KVC_E_LIMIT: the client would hold too much. */
int load_go(struct core *c, struct core_load *l, struct core_waiter *waiter) KVC_WARN_UNUSED;
/* Begins to load b within *left bytes, unless it is ready. 1: it is under way; 0: it need not be
 * loaded; negative: no more can be begun. */
int load_ahead(struct core *c, const struct find *f, struct block *b,
               uint64_t *left) KVC_WARN_UNUSED;

/* ---- lease.c ---- */

uint64_t leases_bytes(const struct core_config *cfg);
const struct pool *lease_pool(const struct core *c); /* lease */
/* The number of a client's leases. */
uint32_t leases_of(const struct core *c, const struct core_client *cl);
void lease_free(struct core *c, struct lease *l);
/* Ends a lease for its client: it is freed, or will be with its last use. */
void lease_end(struct core *c, struct lease *l);
/* NULL: the client has no such lease. */
struct lease *lease_by_id(struct core *c, const struct core_client *cl, uint64_t id);
/* A fill, send or copy needs the lease's blocks, and what it holds on a device, even if its client
 * releases it. */
void lease_use(struct lease *l);
void lease_unuse(struct core *c, struct lease *l);
/* The lease of this id that is in such use. */
struct lease *lease_in_use(const struct core *c, uint64_t id);
/* A turn begins. */
void lease_turn(struct core *c);
/* Runs a slice of releasing the blocks of large leases that have ended; true: there are more. */
bool lease_step(struct core *c);
bool leases_are_leaving(const struct core *c); /* whether there are some */
/* Queues the waiter, if the prefix may grow by waiting. */
bool find_wait(struct core *c, const struct core_acquire *in, struct find *f,
               struct core_waiter *waiter);
/* Before the lease is made: fills the answer's prefix, and counts the request. */
void find_count(struct core *c, const struct core_acquire *in, const struct find *f,
                const struct core_waiter *waiter, struct core_prefix *prefix);
/* Makes a lease of f's prefix without its blocks; NULL: none is free. */
struct lease *lease_begin(struct core *c, struct core_client *cl, const struct find *f,
                          uint32_t from);
/* Adds a block that f found to the lease. left: of unevictable_take(). */
int lease_add_found(struct core *c, struct lease *l, const struct find *f, struct block *b,
                    uint64_t *left, const char **ret_why) KVC_WARN_UNUSED;
/* The waiter is answered. */
void waiter_done(struct core *c, struct core_waiter *waiter);
void lease_held(struct core *c, const struct lease *l, struct core_held *held);

/* ---- write.c ---- */

uint64_t writes_bytes(void);
const struct pool *op_pool(const struct core *c); /* core_op */
/* How many of these wait for their words, or are not copied yet since. */
uint32_t ops_fenced(const struct core *c);
struct core_op *op_at(const struct core *c, uint32_t no);
/* The device has copied the bytes of an entry out of pages, or could not. */
void op_copied(struct core *c, struct core_op *o, int status);
/* The status of a copy as its client is told it. */
uint8_t core__copy_status(int err);

/* ---- transfer_send.c ---- */

extern const struct core_req_kind send_req;

/* ---- transfer_store.c ---- */

/* Why a commit out of pages cannot be copied; NULL: it can. */
const char *transfer_store_fault(const struct core *c, const struct core_commit *m,
                                 const struct reservation *r);
/* Begins the copy of its list of ops, which is not empty, or queues it. */
void transfer_store_begin(struct core *c, struct core_commit *m);
void transfer_store_cancel(struct core *c, struct core_commit *m);

/* ---- advice.c ---- */

/* The blocks of group g that advice on the chain may concern. It concerns those that no other chain
 * shares, from the last one on. */
void own_range(const struct find *f, uint32_t g, uint32_t *ret_first, uint32_t *ret_end);
bool is_shared(const struct block *b, bool is_last);

/* ---- ask.c ---- */

uint64_t asks_bytes(void);
/* How many holds asks have, for core_check(). */
uint64_t asks_hold(const struct core *c);
/* Runs a slice of releasing what asks hold that nobody waits for any more; true: there is more. */
bool ask_step(struct core *c);
bool asks_are_leaving(const struct core *c); /* whether there are some */

/* ---- progress.c ---- */

void progress_step(struct core *c);

/* ---- ns.c ---- */

/* Why a specification is refused, or NULL; why blocks of it would not be sound, or NULL. */
const char *core__ns_fault(const struct core_ns_spec *s);
const char *core__ns_unsound(const struct core_ns_spec *s);
/* The digest of all that makes a namespace: equal for equal ones, also after a restart. */
int core__ns_print(struct core *c, const struct core_identity *who, const struct core_ns_spec *spec,
                   struct key256 *ret) KVC_WARN_UNUSED;
int core__ns_find_or_make(struct core *c, const struct core_identity *who,
                          const struct core_ns_spec *spec, struct core_ns **ret_ns) KVC_WARN_UNUSED;
/* The first 8 bytes of a print, as a number that is not 0. */
uint64_t core__short_print(const struct key256 *print);

#endif
