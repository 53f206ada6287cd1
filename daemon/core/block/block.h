/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: records, index and chains, and the room that they have. Knows nobody above. */
#ifndef KVC_CORE_BLOCK_H
#define KVC_CORE_BLOCK_H

#include "slice.h"
#include "state.h"

/* ---- memory.c ---- */

void *core__pages(uint64_t bytes);
void core__pages_put(void *p, uint64_t bytes);
uint32_t core__slices_max(const struct core_config *cfg);
/* A share of so much, with equal parts promised to so many holders where `fair` is on. */
int core__fair_share(const struct core *c, struct share *s, uint64_t total,
                     uint32_t holders) KVC_WARN_UNUSED;
/* A pool of n, and such a share of it; freed also when that failed. */
int core__shared_pool(const struct core *c, struct pool **ret_pool, struct share *share,
                      const char *name, size_t bytes, uint32_t n, uint32_t holders) KVC_WARN_UNUSED;
void core__shared_pool_free(struct pool **pool, struct share *share);

/* ---- index.c ---- */

uint64_t ghosts_bytes(const struct core_config *cfg);
struct block *index_get(struct core *c, const struct core_ns *ns, uint32_t group,
                        const uint8_t *key);
void index_add(struct core *c, struct block *b);
void index_del(struct core *c, const struct block *b);
void ghost_note(struct core *c, const struct block *b, enum kvc_miss reason);
enum kvc_miss ghost_reason(const struct core *c, uint64_t hash);
uint32_t index_table_size(uint32_t blocks_max);

/* ---- runs.c ---- */

/* Lists of blocks in fixed pieces. holder: client_no(), or run_principal() */
static inline uint32_t run_principal(const struct core *c, uint32_t principal)
{
    return c->cfg.clients_max + owner_no(c, principal);
}
void run_init(struct run_list *l);
/* KVC_E_BUSY: the pool is empty, or the holder has its share. */
int run_push(struct core *c, uint32_t holder, struct run_list *l, uint32_t block,
             uint32_t gen) KVC_WARN_UNUSED;
void run_free(struct core *c, uint32_t holder, struct run_list *l);
/* The last becomes the first. Nothing is to be added afterwards. */
void run_reverse(struct core *c, struct run_list *l);
struct run_iter run_begin(struct core *c, const struct run_list *l);
struct run_iter run_at(struct core *c, const struct run_list *l, uint32_t i); /* number i is next */
const struct run_entry *run_next(struct core *c, struct run_iter *it);

/* ---- ns_find.c ---- */

struct core_ns *ns_by_print(struct core *c, uint64_t short_print);
bool ns_visible(const struct core_client *cl, const struct core_ns *ns);
struct core_ns *ns_by_id(struct core *c, uint32_t id);
/* Bit set of fields in which two namespaces differ. */
uint32_t ns_diff(const struct core_ns *a, const struct core_ns *b);
/* Another namespace of the same principal, sub-tenant and model. */
bool ns_is_sibling(const struct core_ns *ns, const struct core_ns *o);

/* ---- client.c ---- */

/* What a client waits for before it is gone may have ended. */
void core__client_settle(struct core *c, struct core_client *cl);
struct core_req_kind {
    void (*cancel)(struct core *c, struct core_req *req); /* of one that is under way */
    bool stays; /* while its client is in quarantine; not when that is closed */
};
/* It is under way, until it is taken off its list. */
void req_begin(struct core_client *cl, struct core_req *req, const struct core_req_kind *kind);

/* ---- block.c ---- */

uint32_t records_used(const struct core *c);
/* PENDING or FOUND. NULL: all in use. */
struct block *block_new(struct core *c, enum block_state state);
/* Along an edge of the table in block.c; what is counted by the state is the caller's. */
void block_state_set(struct block *b, enum block_state to);
void block_link(struct core *c, struct block *b, struct block *parent,
                const struct core_cost *cost);
/* A new record that was never linked goes back. */
void block_abandon(struct core *c, struct block *b);
/* Unserved from now on: out of index, forest and policy; its room goes when nothing uses it. The
 * reason is what later lookups are told. No child may be left. */
void block_kill(struct core *c, struct block *b, enum kvc_miss reason);
/* The same for everything below it too, leaves first. */
void block_kill_tree(struct core *c, struct block *b, enum kvc_miss reason);
void block_hold(struct core *c, struct block *b);
void block_unhold(struct core *c, struct block *b);
/* A hold of the core's own ends, and nobody else hears of it. */
void block_unhold_quietly(struct core *c, struct block *b);
void block_touch(struct core *c, struct block *b);
/* Touches b and its ancestors until one that was touched in this instant; keeps the order that
 * policies rely on. Of a long chain those near b: the others have descendants, and stay. */
void block_touch_path(struct core *c, struct block *b);
struct part *block_part(struct core *c, const struct block *b, uint32_t shard);
/* What tiers keep of one of its shards. */
struct tier_label block_label(struct core *c, const struct block *b, uint32_t shard);
/* What leases of it read in host memory is there. Of one that is PRESENT or DYING. */
bool block_in_host(struct core *c, const struct block *b);
/* What the policy is told of a block that comes in now. parent: or POLICY_NO_BLOCK. */
struct policy_hint block_hint(struct core *c, const struct block *b, uint32_t parent,
                              uint32_t depth, const struct core_cost *cost);
/* The policy hears of it, and has it in its order. */
void block_known(struct core *c, struct block *b, uint32_t parent, const struct core_cost *cost);
/* Back into the policy's order, and out of it. */
void block_enter(struct core *c, struct block *b);
void block_park(struct core *c, struct block *b);
/* All shards are there. */
void block_publish(struct core *c, struct block *b);
/* A record that was found at start becomes PRESENT; which copies it has, it says. */
void block_found(struct core *c, struct block *b, uint64_t bytes);
/* Walks a subtree, children before parents: first, then next until CORE_NONE. Ask for the next
 * before the block at hand is killed. */
uint32_t block_walk_first(const struct core *c, uint32_t root);
uint32_t block_walk_next(const struct core *c, uint32_t root, uint32_t no);
/* Blocks of a subtree, its root too. */
uint32_t block_tree_size(const struct core *c, uint32_t root);
/* Somebody reads it, or has announced to write a part of it. A block of which some shards are
 * stored and nobody has announced the others is not in use: the other ranks may never come. */
bool block_in_use(struct core *c, const struct block *b);
/* The same, but for being on its way between tiers: for those who may take it away even so. */
bool block_held(struct core *c, const struct block *b);
/* For good, to make room: nobody uses it, and nobody was promised it. What builds on it goes first.
 */
bool block_may_go(struct core *c, const struct block *b);
/* The copy in memory alone, without loss: it is on disk as well. */
bool copy_may_drop(struct core *c, const struct block *b);
/* Nothing builds on it and nobody uses it, or it can go from host memory to disk. The policy is
 * asked with this. */
bool block_can_leave(void *ctx, uint32_t block_no);
/* A slice of letting go of what was held before a block in its chain; true: there is more.
 */
bool unhold_step(struct core *c);
uint32_t unhold_waiting(const struct core *c); /* blocks from which that goes on */
void unhold_turn(struct core *c);              /* a turn begins */
/* Whether one more request may hold it: keys may come twice, and the core's own holds need some of
 * those that can be counted. */
static inline bool block_may_be_held(const struct block *b)
{
    return b->leases < BLOCK_HOLDS_MAX / 2;
}

/* ---- places.c ---- */

/* The state of its copy in a tier, with all that is counted by that. Allowed edges: places.c. */
void copy_set(struct core *c, struct block *b, enum core_tier tier, enum copy_state to);
/* It becomes DYING: it has no copy any more, but for those that are being read or written. */
void copies_die(struct core *c, struct block *b);
/* It is PRESENT now, with the copies that were found: they are counted from here on. */
void copies_found(struct core *c, struct block *b);
/* Its disk copies can be read now. */
bool block_readable(struct core *c, const struct block *b);
/* A present block that a hit may have: in memory, or on disk and its path is in service. */
bool block_reachable(struct core *c, const struct block *b);
/* Where a shard of it is, 0: it is not in that tier. What is on its way there is not told. */
struct tier_loc copy_loc(struct core *c, const struct block *b, enum core_tier tier,
                         uint32_t shard);
void copy_set_loc(struct core *c, struct block *b, enum core_tier tier, uint32_t shard,
                  struct tier_loc loc);
/* Room of one of its shards is given back, and counted for who pays for it. */
void copy_give(struct core *c, const struct block *b, enum core_tier tier, struct tier_loc loc);
/* The same of all shards that its record has in the tier. Nobody may be told of them. */
void copy_give_all(struct core *c, struct block *b, enum core_tier tier);
/* Of a block that is also on disk and not in use. */
void host_drop(struct core *c, struct block *b);
/* Gives all its room on disk back; nothing may be in flight there. */
void disk_drop(struct core *c, struct block *b);
/* The promise of a copy that was written for pins and names ends, if none of them is left: it is an
 * ordinary copy. */
void block_unwanted(struct core *c, struct block *b);

/* ---- room.c ---- */

/* Bytes taken in memory, by owner_no(). */
uint64_t host_room_of(const struct core *c, uint32_t owner);
/* Payload bytes of room that b's namespace has in a tier from now on, or no more. */
void room_count(struct core *c, struct core_ns *ns, unsigned tier, int64_t bytes);
/* With so many bytes more in memory the principal of ns has no more than its promised part of
 * memory. */
bool room_is_promised(const struct core *c, const struct core_ns *ns, uint32_t bytes);
/* What binds b to a tier may have come or gone: a pin, a name, a promise on disk, or b itself. */
void room_bind(struct core *c, struct block *b);

/* ---- unevictable.c ---- */

/* The bytes of slots that b keeps in memory whoever wants room there. */
uint64_t unevictable_of(struct core *c, const struct block *b);
/* The first hold of b has come, the last has gone. */
void unevictable_held(struct core *c, struct block *b);
void unevictable_unheld(struct core *c, struct block *b);
/* Before what may change that otherwise, or where b is in memory; and after. */
uint64_t unevictable_change(struct core *c, const struct block *b) KVC_WARN_UNUSED;
void unevictable_changed(struct core *c, struct block *b, uint64_t was);
uint64_t unevictable_by_part(struct core *c, const struct block *b);
/* Whether `bytes` more of ns may be kept there. *left: what is known to be left for this request,
 * at first 0; it becomes less by them. 0; KVC_E_FULL: principals are promised the rest;
 * KVC_E_QUOTA: shares of other owners are. */
int unevictable_take(struct core *c, const struct core_ns *ns, uint64_t bytes,
                     uint64_t *left) KVC_WARN_UNUSED;
/* Whether b, which is on disk alone, may be loaded for who holds it. */
bool unevictable_may_load(struct core *c, const struct block *b);
/* What a lease is told that is refused by these. */
int unevictable_refused(int err, const char **ret_why) KVC_WARN_UNUSED;
/* The same that a first hold of b would keep there, and one more part of it that is reserved. */
static inline uint64_t unevictable_by_hold(struct core *c, const struct block *b)
{
    const bool more = b->leases == 0 && copy_there(b, CORE_HOST) && !block_is_bound(b, CORE_HOST);
    return more ? (uint64_t)block_shards(c, b) * block_ns(c, b)->slot_bytes[b->group] : 0;
}

/* ---- quota.c ---- */

/* The owner that a namespace belongs to. */
uint32_t quota_payer(const struct core *c, const struct core_ns *ns);
void quota_ns_gone(struct core *c, const struct core_ns *ns);
/* Of what is guaranteed on disk, as much as can be kept there, in percent. */
uint32_t quota_disk_percent(const struct core *c);
/* Whether `bytes` more of ns may be bound to a tier: 0; KVC_E_QUOTA when all that is bound there
 * would be above a hard limit, or leave less than is guaranteed to others, which could then not be
 * kept; KVC_E_PIN_LIMIT when pins would leave hardly any memory for all the rest. */
int quota_bind(const struct core *c, const struct core_ns *ns, unsigned tier,
               uint64_t bytes) KVC_WARN_UNUSED;
/* Bytes of slots in memory that may yet be unevictable there for ns, beside what is guaranteed to
 * others: all shares together hold against that as far as they leave the tier its passing part.
 * *ret_own: of them, within its own share, which goes before what principals are promised. */
uint64_t quota_unevictable_left(const struct core *c, const struct core_ns *ns, uint64_t *ret_own);
/* What all quotas together are guaranteed in memory: bytes, and regions that hold them. */
uint64_t quota_guaranteed(const struct core *c);
uint64_t quota_guaranteed_regions(const struct core *c);
/* Some blocks are in the lists of another owner yet. */
bool quota_is_giving(const struct core *c);
uint32_t quota_count(const struct core *c);

/* ---- clean.c ---- */

/* Of the ring of clean blocks. */
uint64_t clean_bytes(const struct core_config *cfg);
/* So many blocks are marked as being in the ring. */
void clean_check(const struct core *c, uint64_t ring);
/* The oldest clean block that is not in use, and not guaranteed to another than `payer`; no longer
 * in the ring; NULL: none. */
struct block *clean_pop(struct core *c, uint32_t payer);
/* An old clean block of `within`, which stays where it is; NULL: none is near. */
struct block *clean_of(struct core *c, uint32_t within);
/* It is clean no more, if it was. */
void clean_end(struct core *c, struct block *b);
/* Out of the ring, into the policy. */
void clean_recall(struct core *c, struct block *b);
/* A block that the policy has not: into the ring, or back to the policy. */
void clean_push(struct core *c, struct block *b);
/* It is in the ring, or there is a place for it. */
bool clean_takes(struct core *c, const struct block *b);
/* The copy on disk of a block that is in memory too goes; nothing may be in flight. */
void disk_forget(struct core *c, struct block *b);

/* ---- lapse.c ---- */

void block_names_mark_safe(struct core *c, struct block *b);

/* ---- wish.c ---- */

/* The wish for a block of a reservation, as far as there is one. */
bool wish_of(const struct core_reserve *in, uint32_t block_tokens, uint32_t i,
             struct core_wish *ret_wish);
const char *wish_fault(const struct core_retention *r);
void wish_add(struct core *c, struct block *b, const struct core_wish *wish, bool set);
/* What was wished while it was PENDING counts from now. */
void wish_begin(struct core *c, struct block *b);
/* What labels keep of it. */
uint8_t wish_label(const struct core *c, const struct block *b);
bool wish_step(struct core *c);

/* ---- resv.c ---- */

uint64_t resvs_bytes(const struct core_config *cfg);
const struct pool *resv_pool(const struct core *c); /* reservation */
/* Reservations of a client. */
uint32_t resvs_of(const struct core *c, const struct core_client *cl);
/* That of a part that is claimed. */
struct reservation *part_resv(const struct core *c, const struct part *p);
/* NULL: the pool is empty, or the client has its share. */
struct reservation *resv_new(struct core *c, struct core_client *cl);
/* NULL: the client has no such reservation, or it is between two slices. */
struct reservation *resv_by_id(struct core *c, const struct core_client *cl, uint64_t id);
/* The block and part of an entry that is still this reservation's to commit, else NULL. */
struct part *resv_entry_part(struct core *c, const struct reservation *r, const struct run_entry *e,
                             struct block **ret_block);
/* One entry of a reservation is committed or dropped; the last one frees it. */
void resv_close_entry(struct core *c, struct reservation *r);
void resv_drop_all(struct core *c, struct reservation *r);
/* Drops a slice of what is reserved, from the last entry on. True: there is more to do.
 * The caller has an entry open. */
bool resv_drop_some(struct core *c, struct reservation *r);
/* All of it, now; as above. */
void resv_drop_open(struct core *c, struct reservation *r);
/* Nobody has to do with it any more: it is dropped at once, unless others have let go of
 * much in this turn; then in slices. The client lasts until then. */
void resv_go(struct core *c, struct reservation *r);
/* The same of one that is between two slices: it has an entry open that counts as busy. */
void resv_leave(struct core *c, struct reservation *r);
/* A slice of what is left so; true: there is more. */
bool resv_step(struct core *c);

/* ---- late.c ---- */

/* A commit of r has come; announced: what it brings was reserved by another request. */
void progress_made(struct core *c, struct reservation *r, bool announced);
/* It is claimed, and its writer is past its progress deadline. */
bool part_is_late(struct core *c, const struct part *p);
/* Some part of it is, or nobody has claimed what it lacks for long: it is not being stored. */
bool block_is_late(struct core *c, const struct block *b);

/* ---- climb.c ---- */

/* *held is the block that the caller holds, CORE_NONE: none. */
/* Goes on to hold b, which is PRESENT, in place of *held, in slices; between two of them a block
 * before it may be *held. 0: b is, or by others as often as may be. CORE_MORE; KVC_E_*: as
 * unevictable_hold(). */
int climb_step(struct core *c, struct core_climb *x, struct block *b,
               uint32_t *held) KVC_WARN_UNUSED;
/* The same at once. */
int climb_hold(struct core *c, struct block *b, uint32_t *held) KVC_WARN_UNUSED;
void climb_let_go(struct core *c, uint32_t *held);

/* ---- gone.c ---- */

void gone_step(struct core *c);
/* Storage has been asked, and has not answered. */
bool gone_is_settling(const struct core *c);
/* The next gone_step() has something to begin or to tell. */
bool gone_is_due(const struct core *c);

#endif
