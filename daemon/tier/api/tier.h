/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract between core and a tier. All functions are called on the control thread.
 *
 * A tier owns room. Core asks for room before it writes (alloc), moves bytes with operations
 * (submit), and gives room back (free). submit() returns void and never calls back inline; done()
 * runs exactly once, on the control thread, whatever happens; between the two the operation and its
 * buffer belong to the tier. Every operation has a deadline; a tier that cannot keep it completes
 * it with -ETIMEDOUT once nothing will touch the buffer any more.
 */
#ifndef KVC_TIER_H
#define KVC_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "hash.h"
#include "inbox.h"

/* Room for one shard of one block; 0 is no room. The number means something to its tier only. */
struct tier_loc {
    uint32_t id;
};

/* Where a worker finds the bytes, for tiers that workers map. */
struct tier_view {
    uint32_t chunk;
    uint32_t bytes;
    uint64_t off; /* payload */
    uint64_t hdr; /* 64-bit generation */
    uint64_t gen;
};

/* What a tier keeps beside the payload, so that the block can be found and trusted again without
 * the index, after a restart too. */
struct tier_label {
    struct key256 key;
    struct key256 parent; /* all zero: has_parent is false */
    uint64_t print;       /* of the namespace, the same after a restart; never 0 */
    uint32_t ns;          /* its id, of this run alone */
    uint32_t group;
    uint32_t shard;
    uint32_t tokens;
    bool has_parent;
    bool durable;  /* stored with a promise: reclaim never drops it */
    bool by_pin;   /* durable for pins and names, which may end */
    uint8_t level; /* core's: what outlives a restart of how long it is to be kept; 0: nothing */
};

enum tier_op_kind {
    TIER_PUT = 1,    /* src -> loc, checksummed as it lands */
    TIER_VERIFY = 2, /* the bytes at loc are read and checksummed; it must be published */
    TIER_GET = 3,    /* loc -> dst, whole pages; nobody has looked at them when done() runs */
    TIER_SEAL = 4    /* the bytes are at loc already (GET of another tier put them there): they are
                      * checksummed, with the precedence of a PUT; then publish() */
};

/* `tier_op.flags` */
enum tier_op_flag {
    TIER_F_DURABLE = 1, /* PUT: done() not before bytes and journal are on stable storage */
    TIER_F_AWAITED = 2  /* VERIFY of host memory: with the precedence of a PUT */
};

struct tier_op {
    enum tier_op_kind kind;
    uint32_t flags;
    struct tier_loc loc;
    const void *src; /* of PUT: borrowed until done() */
    void *dst;       /* of GET: room for whole pages, page-aligned; the tier's until done() */
    uint32_t bytes;  /* of payload; the room behind it is whole pages */
    struct tier_label label;
    uint64_t deadline_ns;
    void (*done)(struct tier_op *op);
    void *owner;

    int status; /* result: 0, -ECANCELED, -EIO, -ETIMEDOUT, -ENOSPC */
    /* XXH3-128 of what loc holds: result of PUT, VERIFY, SEAL. Of PUT into storage it is
     * given: storage does not look at payload. */
    struct hash128 sum;
    _Atomic bool cancel;    /* set by core; work not started is then skipped */
    struct tier_op *next;   /* the tier's */
    struct inbox_item item; /* the tier's: brings the result back to the control thread */
    void *priv;             /* the tier's */
    uint64_t begun_ns;      /* the tier's */
};

/* Of a tier, at least the part that is for what comes and goes. */
#define TIER_PASSING 8u

struct tier_stats {
    uint64_t limit_bytes;   /* of slots */
    uint64_t lasting_bytes; /* of it, what may stay whoever wants room */
    uint64_t used_bytes;    /* slots handed out x slot bytes */
    uint64_t used_slots;
    uint64_t mapped_bytes;  /* chunks that exist */
    uint64_t faulted_bytes; /* of them, touched in advance so far */
    uint64_t inflight_ops;
    uint64_t inflight_bytes;
    uint64_t bytes_per_s; /* of memory: at which a thread copied of late, at best; 0: unknown */
    uint64_t turn_ms; /* a log: how long a place lasts, since what is reclaimed next was written at
                       * most; 0: not known yet */
    uint32_t regions; /* parts of memory that belong to one principal each, until they are empty; 0:
                       * there are none */
    uint64_t region_bytes; /* of slots that one holds, at least, where none is large in it */
};

struct tier;

/* Called by evacuate() for each occupied location in the room that it wants emptied. */
typedef void(tier_occupant_fn)(void *ctx, struct tier_loc loc, uint32_t owner);

/* Called by shift(): whether the content of loc may have another place; that it has. */
struct tier_shift {
    void *ctx;
    bool (*may_move)(void *ctx, struct tier_loc loc, uint32_t owner);
    void (*moved)(void *ctx, uint32_t owner, struct tier_loc from, struct tier_loc to);
};

/* What is to go down to slower storage, as a PUT of it would be. */
struct tier_demotion {
    struct tier_loc loc;
    uint32_t owner, principal;
    uint32_t bytes; /* of payload */
    struct tier_label label;
    uint64_t deadline_ns;
};

/* What core asks of every tier. */
struct tier_ops {
    const char *name;
    /* Room of `bytes` for `principal`, next to `beside` where that can be (beside.id 0 = anywhere);
     * `owner` is core's block index, given back by evacuate. 0; KVC_E_NO_ROOM (evict something of
     * the tier and try again); KVC_E_TOO_LARGE (never); KVC_E_BUSY (room is coming by itself, and
     * nothing should be evicted for it: of storage, events.room tells; of a device, workers are to
     * unmap a chunk first); KVC_E_TIER (all of it is out of service, and evicting helps nobody). */
    int (*alloc)(struct tier *t, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                 uint32_t owner, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
    /* Room back. From this call on its generation differs, so a late reader sees KVC_STALE. No
     * operation may be in flight on it. */
    void (*free)(struct tier *t, struct tier_loc loc);
    /* From this call on the generation of what is published at loc differs, so that who reads it
     * sees KVC_STALE; the room stays taken. For bytes that turned out to be wrong: a storage tier
     * counts them. */
    void (*revoke)(struct tier *t, struct tier_loc loc);
    void (*submit)(struct tier *t, struct tier_op *op);
    /* The slot now holds `op`'s bytes and label: stamps the header. Call after done() with status
     * 0. */
    void (*publish)(struct tier *t, const struct tier_op *op);
    struct hash128 (*sum)(const struct tier *t, struct tier_loc loc);
    /* What a block of `bytes` takes, 0 when it can never fit. */
    uint32_t (*slot_bytes)(const struct tier *t, uint32_t bytes);
    void (*stats)(const struct tier *t, struct tier_stats *ret_stats);
};

/* What core asks of memory, whose slots workers map. */
struct tier_memory_ops {
    void (*view)(const struct tier *t, struct tier_loc loc, struct tier_view *ret_view);
    /* After KVC_E_NO_ROOM, when evicting what helps() is not enough (fragmentation, or room that
     * belongs to another principal): picks the cheapest region whose emptying makes room for
     * `bytes` of `principal`, reports its occupants to `each`, and hands nothing of it out until it
     * is empty; then it is room by itself. `each` may free any location, this one included; it must
     * not call alloc or evacuate. Returns the number of occupants reported; 0 if there is no such
     * region, or if the limit alone is in the way. A region that cannot be emptied now (leases)
     * stays reserved; the next call picks another one and may give up an older one. Of other
     * principals' regions it picks none of which events.stays() is true. others: it picks one of
     * those, whatever it costs, if there is any; else, of the principal's own, one without slots of
     * this size, and where nothing stays if there is such a one. */
    uint32_t (*evacuate)(struct tier *t, uint32_t principal, uint32_t bytes, bool others,
                         tier_occupant_fn *each, void *ctx);
    /* After KVC_E_NO_ROOM: whether freeing loc brings room for `bytes` of `principal` nearer. True
     * for any loc while only the limit is in the way (several may have to go), for slots of the
     * same kind, for the last slot of what then is a large enough run, and for what is left of a
     * region that is being evacuated for this principal. */
    bool (*helps)(const struct tier *t, struct tier_loc loc, uint32_t principal, uint32_t bytes);

    /* Of the CPU's memory, which other tiers read and write. NULL where it is a device's. */

    /* The payload of room that was handed out: page-aligned, whole pages. */
    void *(*payload)(const struct tier *t, struct tier_loc loc);
    /* The region of loc, below tier_stats.regions. NULL: there are none, nor is there shift(). */
    uint32_t (*region)(const struct tier *t, struct tier_loc loc);
    /* Bytes of such slots (slot_bytes()) that an empty region holds. NULL as region(). */
    uint64_t (*region_fill)(const struct tier *t, uint32_t slot_bytes);
    /* The room at loc, with what is in it, for room of its size in a region of the same principal
     * of which events.stays() is true: free room, or that of an occupant that may move, which then
     * is at loc. Copies payload in this call. loc has no operation in flight, nor has who may move;
     * what was published is so at its new place. KVC_E_NO_ROOM: none was found, of some that were
     * looked at. */
    int (*shift)(struct tier *t, struct tier_loc loc, const struct tier_shift *s,
                 struct tier_loc *ret_loc) KVC_WARN_UNUSED;
};

/* What core asks of storage: a log, which says ahead of need what is to go. */
struct tier_storage_ops {
    /* Operations submitted so far are what there is for now: neighbours become one I/O, and it
     * starts. Called once a turn, last. */
    void (*kick)(struct tier *t);
    /* Whether what is at loc can be read now: false while its path is taken out. */
    bool (*readable)(const struct tier *t, struct tier_loc loc);
    /* Room must be made ahead of need: reports the occupants of the region that is to go next, each
     * once, at most `max` a call; goes on with the same region until it is empty. For each, core
     * calls keep() or free(), now or later. Returns how many were reported; 0: no region is needed
     * now, or all that can be told has been told. */
    uint32_t (*reclaim)(struct tier *t, uint32_t max, tier_occupant_fn *each, void *ctx);
    /* The occupant moves to new room (read, checked and written again within the write budget):
     * core is told by events.moved or events.lost. Until then loc can be read as ever, and core may
     * free() it, which ends the move untold. false: it cannot be (no budget, no room, path taken
     * out); core then frees it. */
    bool (*keep)(struct tier *t, struct tier_loc loc, uint32_t owner);
    /* As keep(), but to slower storage behind this: the occupant is not worth its place. NULL:
     * there is none behind it. */
    bool (*demote)(struct tier *t, const struct tier_demotion *what);
    /* Whether what is at loc would be in faster storage if it were stored anew, and may be. NULL:
     * all is equally fast. */
    bool (*faster)(const struct tier *t, struct tier_loc loc, uint32_t bytes);
    /* What is at loc is no promise any more, if it was published as durable: it is reclaimed like
     * any other from now on. May be NULL. */
    void (*unpromise)(struct tier *t, struct tier_loc loc);
    /* Bytes by which the write budget has grown since the last call; UINT64_MAX: there is none. May
     * be NULL: none. */
    uint64_t (*granted)(struct tier *t);
    /* Whether the write budget and the room allow `bytes` more, for a block that was last used
     * age_ms ago. When the budget is short, younger ones come first. Takes neither budget nor
     * room; what the budget alone refuses is counted in the tier's figures. */
    bool (*admits)(const struct tier *t, uint32_t bytes, uint64_t age_ms);
    /* Room is short now, and being made: events.room follows. Who can wait does better than to let
     * go of what has no other place. */
    bool (*room_soon)(const struct tier *t);
    /* Whether there is room for promises, which may not have all of the tier. May be NULL: yes. */
    bool (*promises)(const struct tier *t);
    /* op->done(): what was freed before this call stays away when the process is killed or the
     * power fails. op->status 0; -EIO: nobody can say so, the journal takes no commits. Nothing
     * else of op is read. May be NULL: what is freed stays away at once. */
    void (*settle)(struct tier *t, struct tier_op *op);
};

/* What a storage tier tells core by itself, on the control thread, from its callbacks or kick();
 * and what memory asks. */
struct tier_events {
    void *ctx;
    /* Whether something in the region stays now, whoever wants room. NULL: nothing does. */
    bool (*stays)(void *ctx, uint32_t region);
    /* keep() or demote() ended well: the block is at `to` now, and `from` is not core's any more.
     * After demote(), who reads `from` still reads the block there. */
    void (*moved)(void *ctx, uint32_t owner, struct tier_loc from, struct tier_loc to);
    /* What was at loc is no more (a failed fsync, a path that lost its data, a failed keep()): the
     * room is free, nothing is to be called for it. No operation of core's is in flight on it:
     * those end first, with -EIO. */
    void (*lost)(void *ctx, uint32_t owner, struct tier_loc loc);
    /* Room or budget, or a path, has come back. */
    void (*room)(void *ctx);
};

struct tier {
    const struct tier_ops *ops;
    const struct tier_memory_ops *memory;   /* NULL: it is storage */
    const struct tier_storage_ops *storage; /* NULL: it is memory */
    struct tier_events events; /* set by core before the first operation; may be empty */
};

#endif
