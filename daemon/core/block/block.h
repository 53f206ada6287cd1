/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lowest layer of the core: block records, index, chains, the copies of a block and the room
 * that they take. Layers above it (space, lookup, keep, serve) call these functions; it knows none
 * of them.
 */
#ifndef KVC_CORE_BLOCK_H
#define KVC_CORE_BLOCK_H

#include "slice.h"
#include "state.h"

/* ---- memory.c ---- */

/* Zeroed pages, to be freed by core__pages_put(); NULL: no memory. */
void *core__pages(uint64_t bytes);
void core__pages_put(void *p, uint64_t bytes); /* accepts NULL */
/* How many slices of verifications may be under way at a time. */
uint32_t core__slices_max(const struct core_config *cfg);
/* Makes *s a share of `total` for so many holders. With cfg.fair equal parts of half of it are
 * promised to them. */
int core__fair_share(const struct core *c, struct share *s, uint64_t total,
                     uint32_t holders) KVC_WARN_UNUSED;
/* Makes a pool of n objects, and a share of it for `holders` holders. core__shared_pool_free()
 * frees both, also after an error. */
int core__shared_pool(const struct core *c, struct pool **ret_pool, struct share *share,
                      const char *name, size_t bytes, uint32_t n, uint32_t holders) KVC_WARN_UNUSED;
void core__shared_pool_free(struct pool **pool, struct share *share);

/* ---- index.c ---- */

uint64_t ghosts_bytes(const struct core_config *cfg);
/* The linked block of a key; NULL: there is none. */
struct block *index_get(struct core *c, const struct core_ns *ns, uint32_t group,
                        const uint8_t *key);
void index_add(struct core *c, struct block *b);
void index_del(struct core *c, const struct block *b);
/* Notes why the key of b will be missing. Ghosts are bounded in number: later ones replace it. */
void ghost_note(struct core *c, const struct block *b, enum kvc_miss reason);
/* Why the key with this index_hash() is missing; KVC_MISS_NEVER: no ghost tells. */
enum kvc_miss ghost_reason(const struct core *c, uint64_t hash);
/* Number of entries of core->index.table for so many blocks. */
uint32_t index_table_size(uint32_t blocks_max);

/* ---- runs.c ---- */

/* Lists of blocks in pieces of fixed size, which are taken out of the holder's share of core->runs.
 * holder: client_no() or run_principal(). */
static inline uint32_t run_principal(const struct core *c, uint32_t principal)
{
    return c->cfg.clients_max + principal_index(c, principal);
}
void run_init(struct run_list *l);
/* KVC_E_BUSY: the pool is empty, or the holder has its share. */
int run_push(struct core *c, uint32_t holder, struct run_list *l, uint32_t block,
             uint32_t gen) KVC_WARN_UNUSED;
void run_free(struct core *c, uint32_t holder, struct run_list *l);
/* Reverses the list. Nothing may be added to it afterwards. */
void run_reverse(struct core *c, struct run_list *l);
struct run_iter run_begin(struct core *c, const struct run_list *l);
/* An iterator whose next entry is number i, from 0. */
struct run_iter run_at(struct core *c, const struct run_list *l, uint32_t i);
/* The next entry; NULL: the list has ended. */
const struct run_entry *run_next(struct core *c, struct run_iter *it);

/* ---- ns_find.c ---- */

struct core_ns *ns_by_print(struct core *c, uint64_t short_print); /* NULL: there is none */
/* Whether the client may see ns: the client is an administrator, or ns is of its principal and, if
 * it has a sub-tenant, the client is a gateway. */
bool ns_visible(const struct core_client *cl, const struct core_ns *ns);
struct core_ns *ns_by_id(struct core *c, uint32_t id); /* NULL: there is none */
/* Bit set of enum kvc_ns_field: the fields in which two namespaces differ. */
uint32_t ns_diff(const struct core_ns *a, const struct core_ns *b);
/* Whether o is another namespace of the same principal, sub-tenant and model. */
bool ns_is_sibling(const struct core_ns *ns, const struct core_ns *o);

/* ---- client.c ---- */

/* Frees a closed client that has nothing left, and calls its `idle`. To be called when a copy of
 * the client has ended, and when a lease, load, ask or reservation of it was released in slices. */
void core__client_settle(struct core *c, struct core_client *cl);
/* A kind of request: commit, send, verification, evict job. */
struct core_req_kind {
    void (*cancel)(struct core *c, struct core_req *req); /* asks a request under way to stop */
    bool stays; /* it goes on while its client is in quarantine, and is cancelled when the client is
                 * closed */
};
/* The request is under way from now on, until the caller takes it off the list. */
void req_begin(struct core_client *cl, struct core_req *req, const struct core_req_kind *kind);

/* ---- block.c ---- */

uint32_t records_used(const struct core *c);
/* Takes a free record; the caller fills in key, namespace, group and tokens. state: PENDING or
 * FOUND. NULL: all records are in use. */
struct block *block_new(struct core *c, enum block_state state);
/* Moves b along an edge of the table in block.c. The caller updates all counts that depend on the
 * state. */
void block_state_set(struct block *b, enum block_state to);
/* Puts b into the index, under its parent (NULL: none), and tells the policy. cost: the writer's
 * cost of prefill. */
void block_link(struct core *c, struct block *b, struct block *parent,
                const struct core_cost *cost);
/* Frees a record that was never linked and has no parts. */
void block_abandon(struct core *c, struct block *b);
/* Makes a PENDING or PRESENT block DYING: takes it out of index, chain and policy. Its room is
 * freed when nothing uses it. Later lookups are told the reason. b must have no children. */
void block_kill(struct core *c, struct block *b, enum kvc_miss reason);
/* block_kill() of b and of all blocks below it, leaves first. */
void block_kill_tree(struct core *c, struct block *b, enum kvc_miss reason);
/* Begins a hold: b is not evicted until block_unhold(), which may free the record. */
void block_hold(struct core *c, struct block *b);
void block_unhold(struct core *c, struct block *b);
/* block_unhold() without telling the hearers, for short holds of the core's own. */
void block_unhold_quietly(struct core *c, struct block *b);
/* Counts a use of b now, and tells the policy. */
void block_touch(struct core *c, struct block *b);
/* Touches b and its ancestors, up to one that was touched in this instant, in the order that
 * policies rely on. In a long chain only the nearest TOUCH_MAX are touched: the others have
 * descendants, so they are not evicted before these. */
void block_touch_path(struct core *c, struct block *b);
/* The part of this shard; NULL: there is none. b must have BLOCK_F_PARTS. */
struct part *block_part(struct core *c, const struct block *b, uint32_t shard);
/* The label that tiers keep beside the bytes of one shard. */
struct tier_label block_label(struct core *c, const struct block *b, uint32_t shard);
/* Whether a lease on b can read it in host memory. b is PRESENT or DYING. */
bool block_in_host(struct core *c, const struct block *b);
/* What the policy is told of a new block b. parent: a record number or POLICY_NO_BLOCK. */
struct policy_hint block_hint(struct core *c, const struct block *b, uint32_t parent,
                              uint32_t depth, const struct core_cost *cost);
/* Tells the policy of b, and puts b into its order of eviction. */
void block_known(struct core *c, struct block *b, uint32_t parent, const struct core_cost *cost);
/* block_enter() puts b back into the policy's order of eviction; block_park() takes it out. */
void block_enter(struct core *c, struct block *b);
void block_park(struct core *c, struct block *b);
/* Makes a PENDING block PRESENT, because all its shards are in memory: lookups find it from now
 * on. */
void block_publish(struct core *c, struct block *b);
/* Makes a block that recovery found PRESENT; its copies and their states are set already. bytes:
 * its payload. */
void block_found(struct core *c, struct block *b, uint64_t bytes);
/* A walk over a subtree, children before parents: block_walk_first(), then block_walk_next() until
 * CORE_NONE. The caller gets the next block before it kills the present one. */
uint32_t block_walk_first(const struct core *c, uint32_t root);
uint32_t block_walk_next(const struct core *c, uint32_t root, uint32_t no);
/* The number of blocks of a subtree, its root included. */
uint32_t block_tree_size(const struct core *c, uint32_t root);
/* Whether b is held, being copied or moved, or a writer has claimed a part of it. A block of which
 * some shards are stored and no other is claimed is not in use: the other ranks may never come. */
bool block_in_use(struct core *c, const struct block *b);
/* block_in_use(), without moves between tiers: for callers who may remove a block that is being
 * moved. */
bool block_held(struct core *c, const struct block *b);
/* Whether b may be evicted for good to make room: it is not in use, pinned or durable, and
 * block_kept() is false. The caller evicts first the blocks that build on it. */
bool block_may_go(struct core *c, const struct block *b);
/* Whether b's copy in memory may be dropped without loss: the block is on disk as well, is not in
 * use, and no pin keeps this copy. */
bool copy_may_drop(struct core *c, const struct block *b);
/* Whether b may leave memory: it is not in use, no pin keeps it in memory, and if it is pinned or
 * has children it can be kept on disk. The policy calls this for its candidates. ctx: the core. */
bool block_can_leave(void *ctx, uint32_t block_no);
/* A hold may keep all blocks before its block. Runs a slice of releasing these blocks after such
 * holds have ended, upwards; true: there are more. */
bool unhold_step(struct core *c);
uint32_t unhold_waiting(const struct core *c); /* chains that are still to be released */
void unhold_turn(struct core *c);              /* a turn begins */
/* Whether one more request may hold b. Requests get only half of BLOCK_HOLDS_MAX: a request may
 * name a key twice, and the core needs holds of its own. */
static inline bool block_may_be_held(const struct block *b)
{
    return b->holds < BLOCK_HOLDS_MAX / 2;
}

/* ---- places.c ---- */

/* Sets the state of b's copy in a tier, and updates all counts that depend on it. Allowed edges:
 * places.c. */
void copy_set(struct core *c, struct block *b, enum core_tier tier, enum copy_state to);
/* Makes b DYING, and its copies COPY_NONE; only a copy that is being read into memory keeps its
 * state. */
void copies_die(struct core *c, struct block *b);
/* Counts the copies of a block that recovery found and that is PRESENT now. */
void copies_found(struct core *c, struct block *b);
/* Whether b is on disk, and storage can read all its shards now. */
bool block_readable(struct core *c, const struct block *b);
/* Whether a PRESENT block can serve a hit: it is in memory, or on disk on a path that is in
 * service. */
bool block_reachable(struct core *c, const struct block *b);
/* The location of a shard of b in a tier; id 0: it is not there. A shard that is being written to
 * disk has no location there yet. */
struct tier_loc copy_loc(struct core *c, const struct block *b, enum core_tier tier,
                         uint32_t shard);
void copy_set_loc(struct core *c, struct block *b, enum core_tier tier, uint32_t shard,
                  struct tier_loc loc);
/* Frees the room of one shard of b in a tier, and subtracts it from the account of b. */
void copy_give(struct core *c, const struct block *b, enum core_tier tier, struct tier_loc loc);
/* copy_give() of all shards that have a location of the tier in b's record. No reader may have been
 * told these locations. */
void copy_give_all(struct core *c, struct block *b, enum core_tier tier);
/* Drops the copy in memory of a block that is also on disk and not in use. */
void host_drop(struct core *c, struct block *b);
/* Frees all room of b on disk; no I/O may be in flight there. */
void disk_drop(struct core *c, struct block *b);
/* Makes b's copy on disk an ordinary one, and ends storage's promise for it, if it was written
 * durably for pins and names and b has neither any more. */
void block_unwanted(struct core *c, struct block *b);

/* ---- room.c ---- */

/* Payload bytes for which a principal has room in memory, by principal_index(). */
uint64_t host_room_of(const struct core *c, uint32_t principal_index);
/* Counts payload bytes for which ns has taken room in a tier, or (negative) has given it back. */
void room_count(struct core *c, struct core_ns *ns, unsigned tier, int64_t bytes);
/* Whether so many bytes more would still be within the part of memory that is promised to the
 * principal of ns. */
bool room_is_promised(const struct core *c, const struct core_ns *ns, uint32_t bytes);
/* Sets b->bound anew, with its counts. To be called when a pin, a name or a promise on disk has
 * begun or ended, and when b or a copy of it has changed its state. */
void room_bind(struct core *c, struct block *b);

/* ---- unevictable.c ---- */

/* Bytes of b's slots in memory that cannot be evicted now. */
uint64_t unevictable_of(struct core *c, const struct block *b);
/* unevictable_held() counts that the first hold of b has begun, unevictable_unheld() that its last
 * hold has ended. */
void unevictable_held(struct core *c, struct block *b);
void unevictable_unheld(struct core *c, struct block *b);
/* A caller that changes what unevictable_of() depends on, or b's location in memory, calls
 * unevictable_change() before, and passes its result as `was` to unevictable_changed() after. */
uint64_t unevictable_change(struct core *c, const struct block *b) KVC_WARN_UNUSED;
void unevictable_changed(struct core *c, struct block *b, uint64_t was);
/* Bytes that one more reserved part of b would make unevictable. */
uint64_t unevictable_by_part(struct core *c, const struct block *b);
/* Whether `bytes` more of ns may be unevictable. *left: the bytes that are known to be left for
 * this request, 0 at first; shrinks by `bytes`. 0; KVC_E_FULL: the rest of memory is promised to
 * principals; KVC_E_QUOTA: the rest is promised to shares of other owners. */
int unevictable_take(struct core *c, const struct core_ns *ns, uint64_t bytes,
                     uint64_t *left) KVC_WARN_UNUSED;
/* Whether b, which is on disk alone, may be loaded: if it is held, its slots will be unevictable.
 */
bool unevictable_may_load(struct core *c, const struct block *b);
/* The error, with its text, of a lease that unevictable_take() or regions_admit() refused. */
int unevictable_refused(int err, const char **ret_why) KVC_WARN_UNUSED;
/* Bytes that a first hold of b would make unevictable. */
static inline uint64_t unevictable_by_hold(struct core *c, const struct block *b)
{
    const bool more = b->holds == 0 && copy_there(b, CORE_HOST) && !block_is_bound(b, CORE_HOST);
    return more ? (uint64_t)block_shards(c, b) * block_ns(c, b)->slot_bytes[b->group] : 0;
}

/* ---- quota.c ---- */

/* The owner in core->retain for which a namespace's blocks count: its narrowest quota. */
uint32_t quota_account(const struct core *c, const struct core_ns *ns);
/* The namespace is removed: its quota ends. */
void quota_ns_gone(struct core *c, const struct core_ns *ns);
/* How much of the bytes that are guaranteed on disk storage can keep there, in percent. */
uint32_t quota_disk_percent(const struct core *c);
/* Whether `bytes` more of ns may be bound to a tier. 0. KVC_E_QUOTA: the bytes bound there would
 * exceed a hard limit, or leave less than is guaranteed to others. KVC_E_PIN_LIMIT: pins would
 * leave hardly any memory for other blocks. */
int quota_bind(const struct core *c, const struct core_ns *ns, unsigned tier,
               uint64_t bytes) KVC_WARN_UNUSED;
/* Bytes of slots in memory that may become unevictable for ns, without touching what is guaranteed
 * to others. Shares are guaranteed only as far as they leave a part of the tier for blocks that
 * come and go. *ret_own: the part of these bytes that is within its own share; it comes before the
 * parts that principals are promised. */
uint64_t quota_unevictable_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own);
/* Bytes in memory that all quotas together guarantee, and the number of regions that hold them. */
uint64_t quota_guaranteed(const struct core *c);
uint64_t quota_guaranteed_regions(const struct core *c);
/* Whether some blocks are still in the policy's lists of another owner, because quotas changed. */
bool quota_is_giving(const struct core *c);
uint32_t quota_count(const struct core *c);

/* ---- clean.c ---- */

/* Memory of the ring of clean blocks. */
uint64_t clean_bytes(const struct core_config *cfg);
/* For core_check(). ring: number of blocks that are marked as being in the ring. */
void clean_check(const struct core *c, uint64_t ring);
/* Takes the oldest clean block out of the ring that is not in use and not guaranteed to another
 * owner than `account`; NULL: there is none. The block is still PARKED_CLEAN. */
struct block *clean_pop(struct core *c, uint32_t account);
/* An old clean block of `within` or an owner below it, which stays in the ring; NULL: there is none
 * among the oldest. */
struct block *clean_of(struct core *c, uint32_t within);
/* Makes b not clean any more, if it is clean; the caller decides where it goes. */
void clean_end(struct core *c, struct block *b);
/* Takes a clean block back from the ring into the policy's order. */
void clean_recall(struct core *c, struct block *b);
/* Puts a parked block into the ring; if that is full, back into the policy's order. */
void clean_push(struct core *c, struct block *b);
/* Whether b is in the ring, or the ring has a place for it. */
bool clean_takes(struct core *c, const struct block *b);
/* Drops the copy on disk of a block that is in memory too; no I/O may be in flight there. */
void disk_forget(struct core *c, struct block *b);

/* ---- lapse.c ---- */

/* Marks b and all blocks before it as durable for names (block_names_safe()). */
void block_names_mark_safe(struct core *c, struct block *b);

/* ---- wish.c ---- */

/* The wish for block i of a reservation. False: there is none. */
bool wish_of(const struct core_reserve *in, uint32_t block_tokens, uint32_t i,
             struct core_wish *ret_wish);
/* Why these wishes are refused; NULL: they are not. */
const char *wish_fault(const struct core_retention *r);
/* Adds a wish for b, or (set) replaces its wishes: core_wish(). */
void wish_add(struct core *c, struct block *b, const struct core_wish *wish, bool set);
/* A PENDING block has become PRESENT: the time of the wish that was noted for it runs from now. */
void wish_begin(struct core *c, struct block *b);
/* The part of b's wish that a label on disk keeps: its base level + 1; 0: no base. */
uint8_t wish_label(const struct core *c, const struct block *b);
/* Ends wishes whose time is over, some at a call. True: there are more. */
bool wish_step(struct core *c);

/* ---- resv.c ---- */

uint64_t resvs_bytes(const struct core_config *cfg);
const struct pool *resv_pool(const struct core *c); /* reservation */
/* The number of a client's reservations. */
uint32_t resvs_of(const struct core *c, const struct core_client *cl);
/* The reservation of a part that is claimed. */
struct reservation *part_resv(const struct core *c, const struct part *p);
/* NULL: the pool is empty, or the client has its share. */
struct reservation *resv_new(struct core *c, struct core_client *cl);
/* NULL: the client has no such reservation, or it is between two slices. */
struct reservation *resv_by_id(struct core *c, const struct core_client *cl, uint64_t id);
/* The part (and block) of an entry that this reservation may still commit; NULL: it may not. */
struct part *resv_entry_part(struct core *c, const struct reservation *r, const struct run_entry *e,
                             struct block **ret_block);
/* Closes one open entry of r, which is committed or dropped; frees r with its last open entry. */
void resv_close_entry(struct core *c, struct reservation *r);
/* Drops entries that are reserved and not committed, from the last one on, until the slice is over.
 * True: there are more. The caller has an entry open, so that r is not freed. */
bool resv_drop_some(struct core *c, struct reservation *r);
/* Ends a reservation that its client does not need any more. It is dropped at once, or in slices if
 * much was dropped in this turn already; its client is not freed before. */
void resv_go(struct core *c, struct reservation *r);
/* resv_go() of a reservation that is between two slices: the caller has an entry open that counts
 * in r->busy. */
void resv_go_busy(struct core *c, struct reservation *r);
/* Runs a slice of dropping the reservations that have ended; true: there is more. */
bool resv_step(struct core *c);
bool resvs_are_going(const struct core *c); /* whether resv_step() has reservations to drop */

/* ---- late.c ---- */

/* Notes a commit of r. announced: its blocks were reserved by an earlier request, so the time since
 * then tells the writer's pace. */
void progress_made(struct core *c, struct reservation *r, bool announced);
/* Whether the part is claimed, and its writer is past its progress deadline. */
bool part_is_late(struct core *c, const struct part *p);
/* Whether requests should not wait for b, which is PENDING: a part of it is late, or shards that it
 * lacks have not been claimed for long. */
bool block_is_late(struct core *c, const struct block *b);

/* ---- climb.c ---- */

/* In these functions *held is the record number of the block that the caller holds; CORE_NONE:
 * none.
 *
 * Holds b, which is PRESENT, in place of *held, in slices. Between two slices *held may be a block
 * before b. 0: b is held, or has so many holds that one more cannot be counted. CORE_MORE; KVC_E_*:
 * as unevictable_hold(). */
int climb_step(struct core *c, struct core_climb *x, struct block *b,
               uint32_t *held) KVC_WARN_UNUSED;
/* climb_step() of a block in one piece. */
int climb_hold(struct core *c, struct block *b, uint32_t *held) KVC_WARN_UNUSED;
/* Ends the hold of *held, if there is one. */
void climb_let_go(struct core *c, uint32_t *held);

/* ---- gone.c ---- */

/* Ends the waits of core_gone_await() that storage has answered, and asks it for the next ones. */
void gone_step(struct core *c);
/* Whether storage was asked (tier_storage_ops.confirm_frees) and has not answered. */
bool gone_is_confirming(const struct core *c);
/* Whether the next gone_step() has something to begin or to tell. */
bool gone_is_due(const struct core *c);

#endif
