/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between core and a tier. All functions are called on the control thread.
 *
 * A tier owns room. Core asks for room before it writes (alloc), moves bytes with operations
 * (submit), and gives room back (free). submit() returns void and never calls back inline; done()
 * runs exactly once, on the control thread, whatever happens; between the two the operation and its
 * buffer belong to the tier. An operation may have a deadline; a tier that cannot keep it completes
 * it with -ETIMEDOUT once nothing will touch the buffer any more.
 */
#ifndef KVC_TIER_H
#define KVC_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "hash.h"
#include "inbox.h"

/* Room for one shard of one block; 0: no room. Only the tier that gave the number out can read it.
 */
struct tier_loc {
    uint32_t id;
};

/* Where a worker finds the bytes, for tiers that workers map. */
struct tier_view {
    uint32_t chunk;
    uint32_t bytes;
    uint64_t off; /* of the payload in the chunk, bytes */
    uint64_t hdr; /* of the slot's 64-bit generation in the chunk, bytes */
    uint64_t gen; /* the generation now: if hdr holds another one, the bytes are stale */
};

/* What a tier keeps beside the payload, so that the block can be found and trusted again without
 * the index, after a restart too. */
struct tier_label {
    struct key256 key;
    struct key256 parent; /* all zero where has_parent is false */
    uint64_t print;       /* of the namespace, the same after a restart; never 0 */
    uint32_t ns;          /* id of the namespace, valid in this run alone */
    uint32_t group;
    uint32_t shard;
    uint32_t tokens;
    bool has_parent;
    bool durable;  /* stored by a durable PUT: reclaim never drops it */
    bool by_pin;   /* durable only because of pins and names, which may end */
    uint8_t level; /* what core keeps of a block's wish over a restart; 0: no wish */
};

enum tier_op_kind {
    TIER_PUT = 1,    /* src -> loc, checksummed as it lands */
    TIER_VERIFY = 2, /* the bytes at loc are read and checksummed; they must have a label */
    TIER_GET = 3,    /* loc -> dst, whole pages; the tier does not check the bytes */
    TIER_SEAL = 4    /* the GET of another tier has put the bytes at loc: they are checksummed, with
                      * the precedence of a PUT; core then calls set_label() */
};

/* `tier_op.flags` */
enum tier_op_flag {
    TIER_F_DURABLE = 1, /* PUT: done() runs when recovery is certain to find the block */
    TIER_F_AWAITED = 2  /* VERIFY of host memory: with the precedence of a PUT */
};

struct tier_op {
    enum tier_op_kind kind;
    uint32_t flags;
    struct tier_loc loc;
    const void *src; /* of PUT: borrowed until done() */
    void *dst;       /* of GET: page-aligned, whole pages; only the tier uses it until done() */
    uint32_t bytes;  /* of payload; src and dst have room for whole pages */
    struct tier_label label;
    uint64_t deadline_ns; /* monotonic clock; 0: none */
    void (*done)(struct tier_op *op);
    void *ctx; /* the caller's */

    int status; /* result: 0, -ECANCELED, -EIO, -ETIMEDOUT, -ENOSPC */
    /* XXH3-128 of the payload at loc: the result of PUT, VERIFY and SEAL. For a PUT into storage
     * core gives it, since storage does not read the payload. */
    struct hash128 sum;
    _Atomic bool cancel;    /* set by core; work not started is then skipped */
    struct tier_op *next;   /* the tier's */
    struct inbox_item item; /* the tier's: brings the result back to the control thread */
    void *priv;             /* the tier's */
    uint64_t begun_ns;      /* the tier's */
};

/* One n-th of a tier at least is for blocks that are not bound there. */
#define TIER_PASSING 8u

struct tier_stats {
    uint64_t limit_bytes;   /* of slots */
    uint64_t lasting_bytes; /* of limit_bytes, those that bound blocks may take */
    uint64_t used_bytes;    /* of slots handed out, whole slots */
    uint64_t used_slots;
    uint64_t mapped_bytes;  /* chunks that exist */
    uint64_t faulted_bytes; /* of mapped_bytes, those touched in advance so far */
    uint64_t inflight_ops;
    uint64_t inflight_bytes;
    uint64_t bytes_per_s; /* memory: speed of one thread's fastest copies of late; 0: unknown */
    uint64_t turn_ms; /* storage: age of the segment that was reclaimed last, which is how long a
                       * block stays before reclaim reaches it; 0: not known yet */
    uint32_t regions; /* memory: parts that belong to one principal until they are empty; 0: none */
    uint64_t region_bytes; /* of slots that a region holds at least, if no slot in it is large */
};

struct tier;

/* Called by evacuate() and reclaim() for each occupied location that they want emptied. */
typedef void(tier_occupant_fn)(void *ctx, struct tier_loc loc, uint32_t block_no);

/* What shift() asks and tells core. may_move: whether the content of loc may get another place.
 * moved: the content of `from`, which is of block `block_no`, is at `to` now. */
struct tier_shift {
    void *ctx;
    bool (*may_move)(void *ctx, struct tier_loc loc, uint32_t block_no);
    void (*moved)(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to);
};

/* A block that must go down to slower storage, described as for a PUT. */
struct tier_demotion {
    struct tier_loc loc;
    uint32_t block_no, principal;
    uint32_t bytes; /* of payload */
    struct tier_label label;
    uint64_t deadline_ns;
};

/* What core asks of every tier. */
struct tier_ops {
    const char *name;
    /* Room of `bytes` for `principal`, next to `beside` where that can be (beside.id 0 = anywhere);
     * `block_no` is core's number of the content, which evacuate gives back: of the block's record,
     * or of the copy on a device. 0; KVC_E_NO_ROOM (evict something of the tier and try again);
     * KVC_E_TOO_LARGE (never); KVC_E_BUSY (room is coming by itself, and nothing should be evicted
     * for it: of storage, events.room tells; of a device, workers are to unmap a chunk first);
     * KVC_E_TIER (all of it is out of service, and evicting helps nobody). */
    int (*alloc)(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                 uint32_t block_no, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
    /* Gives room back. From this call on the slot's generation differs, so a late reader sees
     * KVC_STALE. No operation may be in flight on loc. */
    void (*free)(struct tier *t, struct tier_loc loc);
    /* For labelled bytes that turned out to be wrong: from this call on the slot's generation
     * differs, so a reader sees KVC_STALE. The room stays taken. A storage tier counts the block.
     */
    void (*invalidate)(struct tier *t, struct tier_loc loc);
    void (*submit)(struct tier *t, struct tier_op *op);
    /* The room holds the bytes and label of `op` now: a memory tier writes label, sum and a new
     * generation to the slot's header. Core calls it after done() with status 0. */
    void (*set_label)(struct tier *t, const struct tier_op *op);
    /* The sum that was stored with the block at loc. */
    struct hash128 (*sum)(const struct tier *t, struct tier_loc loc);
    /* Bytes of room that a block of `bytes` takes; 0: it can never fit. */
    uint32_t (*slot_bytes)(const struct tier *t, uint32_t bytes);
    void (*stats)(const struct tier *t, struct tier_stats *ret_stats);
};

/* What core asks of memory, whose slots workers map. */
struct tier_memory_ops {
    void (*view)(const struct tier *t, struct tier_loc loc, struct tier_view *ret_view);
    /* After KVC_E_NO_ROOM, when evicting what helps() is not enough (fragmentation, or room that
     * belongs to another principal): picks the cheapest slots whose emptying makes room for `bytes`
     * of `principal`: some in a region of the principal, or all in a region of another. Reports
     * their occupants to `each`, and hands none of these slots out until all are empty; then they
     * are room by themselves. `each` may free any location, this one included; it must not call
     * alloc or evacuate. Returns the number of occupants reported; 0 if there are no such slots, or
     * if the limit alone is in the way. Slots that cannot be emptied now (leases) stay reserved;
     * the next call picks others and may give up the oldest. It never picks another principal's
     * region for which events.stays() is true. others: it prefers another principal's region,
     * whatever that costs. If there is none, it picks slots of other sizes of the principal's own,
     * first where events.stays() is false. */
    uint32_t (*evacuate)(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                         tier_occupant_fn *each, void *ctx);
    /* After KVC_E_NO_ROOM: whether freeing loc brings room for `bytes` of `principal` nearer. True
     * for any loc while only the limit is in the way (several may have to go), for slots of the
     * same kind, for the last slot of what then is a large enough run, and for what is left of
     * an evacuation for this principal. */
    bool (*helps)(const struct tier *t, struct tier_loc loc, uint32_t principal, uint32_t bytes);

    /* The next four are of host memory, which other tiers read and write. NULL: device memory. */

    /* The payload of room that was handed out: page-aligned, whole pages. */
    void *(*payload)(const struct tier *t, struct tier_loc loc);
    /* Number of the region of loc, below tier_stats.regions. NULL: the tier has no regions, and no
     * shift(). */
    uint32_t (*region)(const struct tier *t, struct tier_loc loc);
    /* Bytes of slots of this size (as slot_bytes() returns it) that an empty region holds. NULL:
     * the tier has no regions. */
    uint64_t (*region_fill)(const struct tier *t, uint32_t slot_bytes);
    /* Moves the block at loc into a region of the same principal for which events.stays() is true:
     * into a free slot, or in exchange for an occupant that may move, which then is at loc. Copies
     * the payload in this call. No operation may be in flight on either block. A labelled block
     * keeps its label. KVC_E_NO_ROOM: no such slot among those that the call looked at. */
    int (*shift)(struct tier *t, struct tier_loc loc, const struct tier_shift *s,
                 struct tier_loc *ret_loc) KVC_WARN_UNUSED;
};

/* What core asks of storage: a log, which says ahead of need which blocks must go. */
struct tier_storage_ops {
    /* Core has submitted all operations of this turn: neighbours become one I/O, and it starts.
     * Core calls it once a turn, last. */
    void (*kick)(struct tier *t);
    /* Whether the block at loc can be read now: false while its path is taken out. */
    bool (*readable)(const struct tier *t, struct tier_loc loc);
    /* Makes room ahead of need: reports the occupants of the segment that is emptied next, each
     * once, at most `max` a call; goes on with that segment until it is empty. For each, core calls
     * keep() or free(), now or later. Returns how many were reported. 0: no segment must be emptied
     * now, all its occupants were reported, or those that are worth keeping have no room now. */
    uint32_t (*reclaim)(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx);
    /* The occupant moves to new room: read, checked and written again within the write budget. The
     * end is events.moved or events.lost. Until then loc can be read as before, and core may free()
     * it, which ends the move without an event. false: it cannot move now (no budget, no room, path
     * taken out). Core then demotes it or frees it, or asks again later if it must stay. */
    bool (*keep)(struct tier *t, struct tier_loc loc, uint32_t block_no);
    /* As keep(), but to slower storage behind this tier, for an occupant that is not worth its
     * place. NULL: no storage is behind it. */
    bool (*demote)(struct tier *t, const struct tier_demotion *what);
    /* Whether the block at loc may be stored anew and would then be in faster storage. NULL: all
     * storage is equally fast. */
    bool (*faster)(const struct tier *t, struct tier_loc loc, uint32_t bytes);
    /* The block at loc need not be durable any more, if its label says durable: reclaim may
     * drop it from now on. May be NULL. */
    void (*make_ordinary)(struct tier *t, struct tier_loc loc);
    /* Bytes by which the write budget has grown since the last call; UINT64_MAX, or the function is
     * NULL: writes have no budget. */
    uint64_t (*granted)(struct tier *t);
    /* Whether the write budget and the room allow `bytes` more, for a block that was last used
     * age_ms ago. When the budget is short, younger blocks come first. Takes neither budget nor
     * room. The tier's figures count what the budget alone refuses. */
    bool (*admits)(const struct tier *t, uint32_t bytes, uint64_t age_ms);
    /* Whether room is short now and is being made: events.room follows. A caller that can wait
     * should, rather than drop a block that has no other copy. */
    bool (*room_soon)(const struct tier *t);
    /* Whether new durable PUTs have room: durable blocks may take a part of the tier only. NULL:
     * always true. */
    bool (*durable_room)(const struct tier *t);
    /* Makes sure that blocks freed before this call stay away after a kill or a power failure, then
     * calls op->done(). op->status: 0; -EIO: that is not certain, for the journal takes no commits,
     * or a table could not be read at start. The tier reads nothing else of op. NULL: freed blocks
     * stay away at once. */
    void (*confirm_frees)(struct tier *t, struct tier_op *op);
};

/* What a storage tier tells core on its own, and what a memory tier asks core. Called on the
 * control thread, from the tier's callbacks or from kick(); stays() inside evacuate() and shift().
 */
struct tier_events {
    void *ctx;
    /* Whether the region has a block that may not be evicted now. NULL: no region has. */
    bool (*stays)(void *ctx, uint32_t region);
    /* keep() or demote() has succeeded: the block is at `to` now, and core must not use `from` any
     * more. After demote(), reads of `from` in flight still get the block. */
    void (*moved)(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to);
    /* The block at loc is lost (a failed fsync, a path that lost its data, a failed keep()). The
     * tier has freed loc; core calls nothing for it. Core's operations on loc have ended before,
     * with -EIO. */
    void (*lost)(void *ctx, uint32_t block_no, struct tier_loc loc);
    /* Room or write budget has grown, or a path is back in service. */
    void (*room)(void *ctx);
};

struct tier {
    const struct tier_ops *ops;
    const struct tier_memory_ops *memory;   /* NULL: it is storage */
    const struct tier_storage_ops *storage; /* NULL: it is memory */
    struct tier_events events; /* set by core before the first operation; may be empty */
};

#endif
