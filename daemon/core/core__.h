/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside daemon/core only. Everything here belongs to the control thread. */
#ifndef KVC_CORE_INTERNAL_H
#define KVC_CORE_INTERNAL_H

#include "admit.h"
#include "changed.h"
#include "core_slices.h"
#include "flight.h"
#include "module.h"
#include "pool.h"
#include "promise.h"
#include "share.h"
#include "worth.h"

#define CORE_RUN_ENTRIES 31
#define CORE_AGE_SHIFT   4 /* a record's time of last use is kept in units of 16 ms */

enum block_state { BLOCK_FREE, BLOCK_PENDING, BLOCK_PRESENT, BLOCK_DYING };

enum block_flag {
    BLOCK_F_LINKED = 1,        /* in the index and the forest */
    BLOCK_F_WAITED = 2,        /* some waiter names it */
    BLOCK_F_KEEP = 4,          /* an eviction job found something in use at or below it */
    BLOCK_F_PARTS = 8,         /* `where` is a list of parts, not a location */
    BLOCK_F_CORRUPT = 0x10,    /* DYING: its bytes are not those that were stored */
    BLOCK_F_HOST = 0x20,       /* PRESENT: all its shards are in host memory */
    BLOCK_F_DISK = 0x40,       /* PRESENT: all its shards are on disk */
    BLOCK_F_UNCHECKED = 0x80,  /* HOST: found there at start and not looked at yet */
    BLOCK_F_LOADING = 0x100,   /* being loaded or checked */
    BLOCK_F_SAVING = 0x200,    /* being written to disk */
    BLOCK_F_LEAVING = 0x400,   /* SAVING so that its host copy can go: out of the policy */
    BLOCK_F_CLEAN = 0x800,     /* HOST and DISK, its host copy goes next: out of the policy */
    BLOCK_F_RING = 0x1000,     /* its number is in the ring of clean blocks; outlives the block */
    BLOCK_F_AWAITED = 0x2000,  /* some load waits for it to come */
    BLOCK_F_PROMISED = 0x4000, /* some commit waits for it to be durable; PENDING: it is to be so,
                                  whichever of its shards that was asked of */
    BLOCK_F_DURABLE = 0x8000,  /* DISK: written with a promise */
    BLOCK_F_SAFE = 0x10000,    /* was told durable, with all before it in its chain (lapse.h) */
    BLOCK_F_FOUND = 0x20000,   /* being taken over at start */
    BLOCK_F_REACHED = 0x40000, /* the same, and so is what is before it */
    BLOCK_F_TORN = 0x80000,    /* a shard on disk was lost; the others there go when it is idle */
    BLOCK_F_BY_PIN = 0x100000, /* DURABLE for pins and names alone */
    BLOCK_F_ALL = 0x1fffff
};

/* A store that waited for room in vain spares others the wait for so long. */
#define ROOM_VAIN_MS 5000u

#define BLOCK_COPIES_MAX 511u
#define BLOCK_HOLDS_MAX  ((1u << 23) - 1)
#define BLOCK_PINS_MAX   255u

/* One block: 88 bytes. The first cache line answers a lookup. */
struct block {
    struct key256 key;
    uint32_t ns : 16;       /* slot in core->ns */
    uint32_t state : 2;     /* enum block_state */
    uint32_t bound : 2;     /* tiers whose room pins, names or commits bind it to: a bit each */
    uint32_t counted : 1;   /* by the preview of an eviction (job.c); DYING: in core->ending */
    uint32_t near : 1;      /* some device has a copy of it, or is being given one (near.c) */
    uint32_t listed : 1;    /* in the pin that is being made; 0 outside of pin_add() */
    uint32_t promising : 1; /* its move, or what follows on that, writes it for a promise: bound */
    uint32_t host_pins : 8; /* of `pins`, those that keep its copy in memory too */
    /* holders: leases, loads, and a reservation that is linking children to it */
    uint32_t leases : 23;
    uint32_t copies : 9;  /* of writers and verifications, in flight, at most BLOCK_COPIES_MAX */
    uint32_t used;        /* last use; of a half block: when a shard was last claimed or landed */
    uint32_t tokens : 17; /* that it covers: 1 to KVC_BLOCK_TOKENS_MAX */
    uint32_t pins : 8;
    uint32_t moving : 7;         /* shards on their way between tiers */
    uint32_t flags : 21;         /* enum block_flag */
    uint32_t shards_present : 7; /* of at most KVC_SHARDS_MAX; wherever they are */
    uint32_t group : 4;
    uint32_t where; /* head of its parts, or the host location of a block of one shard, or 0 */
    union {
        uint32_t disk; /* location on disk of a block of one shard, or 0 */
        uint32_t wish; /* while PENDING: what was wished of it (retention.c), 0: nothing */
    };
    uint32_t gen; /* grows when the record is given to another block */
    uint32_t children;
    uint32_t parent, child, next, prev; /* forest: record numbers or CORE_NONE */
    uint32_t depth;
};

enum part_state { PART_RESERVED = 1, PART_COPYING, PART_DONE };

/* One shard of a block that is being written, or of a block with several shards. */
struct part {
    struct tier_loc loc; /* in host memory; 0: not there */
    uint32_t next;
    union {
        uint32_t resv; /* not DONE: pool index of the reservation, CORE_NONE once committed */
        struct tier_loc disk; /* DONE: on disk; 0: not there */
    };
    uint8_t shard;
    uint8_t state; /* enum part_state */
};

struct find;
struct run_entry {
    uint32_t block, gen;
};
/* A piece of a list of blocks; leases and reservations are lists of runs. */
struct run {
    uint32_t next; /* pool index or CORE_NONE */
    uint32_t n;
    struct run_entry e[CORE_RUN_ENTRIES];
};

struct run_iter {
    const struct run *r;
    uint32_t i;
};

struct run_list {
    uint32_t head, tail; /* pool indices or CORE_NONE */
    uint32_t n;
};

struct core_ns {
    uint32_t id; /* slot in the low 16 bits, generation above; 0 = free slot */
    uint32_t principal;
    const char *owner, *tenant; /* the principal's name */
    struct core_ns_spec spec;
    struct key256 print;  /* of identity and spec: equal prints are one namespace */
    uint64_t short_print; /* of it, as tiers keep it; never 0, no two have the same */
    struct key256 seed;
    uint64_t records;                    /* not free, dying ones too: keeps the slot */
    uint64_t blocks, bytes;              /* present */
    uint64_t used_ms;                    /* when a session last named it */
    uint64_t held[RETAIN_TIERS];         /* payload bytes for which room is taken */
    uint64_t pinned, leased;             /* bytes */
    uint64_t leaving;                    /* of core->leaving_bytes */
    uint32_t payer;                      /* its owner in core->retain */
    uint64_t named_bytes;                /* of blocks that names reach */
    uint64_t bound[RETAIN_TIERS];        /* of blocks that are bound there (room_bind()) */
    uint64_t near_bytes;                 /* of slots on devices */
    uint64_t unevictable;                /* bytes of slots in memory that nobody can be given now */
    uint64_t lapsed;                     /* of core->lapsed */
    uint32_t regions;                    /* of memory (regions.c), those that are its */
    uint32_t slot_bytes[KVC_GROUPS_MAX]; /* in memory, of one shard */
    uint64_t region_fill;                /* bytes that a region holds at least, of its blocks */
    struct list_node waiting;            /* core_waiter: for blocks of it */
};

struct core_client {
    struct core_identity who;
    void (*idle)(void *ctx);
    void *ctx;
    struct list_node leases, reservations, commits, sends;
    uint64_t lease_bytes, claim_bytes; /* claim: reserved and not committed */
    uint32_t copies; /* in flight out of its staging; the slice that reads for it; fills and sends
                      * of its, and copies in flight for them */
    uint64_t progress_ms; /* its last commit */
    uint64_t step_ms;     /* what it takes to one, lately (progress.c); 0: not known */
    bool verifying;       /* such a slice is under way */
    bool closing;
    uint32_t ending;         /* what is let go of in slices: leases, loads, asks, reservations */
    struct list_node loads;  /* core_load of which blocks are to be begun */
    struct list_node loader; /* of those with such (load.c) */
    struct {
        uint32_t ns; /* 0: free */
        struct core_cost cost;
    } stated[CORE_COSTS];
    uint32_t stated_next; /* whose place the next new one gets */
};

struct lease {
    struct list_node node;
    uint64_t id;
    uint8_t ticket[KVC_TICKET_BYTES];
    struct core_client *client;
    uint64_t since_ms;
    uint64_t bytes;
    struct run_list blocks;
    uint32_t ngroups, tokens;
    struct run_list near; /* what it holds on a device: numbers and serials of near copies */
    uint32_t near_device; /* which device; CORE_NONE: it has never held anything there */
    bool filled;          /* some fill has looked for its blocks */
    uint32_t uses;        /* fills, sends and copies in flight that need its blocks */
    bool ended;           /* released; it lives until its last use has ended */
    bool going;           /* its blocks are let go of in slices */
    uint32_t freed;       /* then: blocks that it holds no more */
    struct {
        uint32_t first, n;
    } group[KVC_GROUPS_MAX];
};

struct reservation {
    struct list_node node;
    uint64_t id;
    struct core_client *client;
    struct core_ns *ns;
    uint32_t group;
    uint64_t since_ms;
    uint32_t n, open; /* keys; keys not committed or dropped yet */
    uint32_t busy;    /* of open, those of a reserve or commit between slices */
    uint32_t dropped; /* entries at its end that are over, while it is dropped in slices */
    uint32_t held;    /* the block before the next slice's first key; CORE_NONE: it needs no hold */
    uint8_t shard;
    bool durable;
    bool leaving; /* in core->dropping: who reserves its blocks takes the claims over */
    struct run_list blocks;
};

struct core_op {
    struct tier_op op;
    struct list_node node; /* of all that are being copied (write.c) */
    struct core *core;
    struct core_client *client;
    struct core_commit *commit;
    uint32_t index; /* into commit->statuses */
    uint32_t block;
    uint32_t part;
    uint32_t next; /* of its commit's list */
    bool durable;
    bool gated;             /* counted as such (write.c), until its copy has ended */
    struct promise promise; /* once landed, of a durable commit */
};

/* A block on its way between tiers; its operations are a shard each. */
enum move_kind { MOVE_SAVE, MOVE_LOAD, MOVE_CHECK };
struct move {
    struct move_op *ops;
    uint32_t block;
    uint8_t kind; /* enum move_kind */
    bool durable, leaving;
    bool above;   /* for what is below it */
    bool by_pin;  /* durable for pins and names alone; durable without: its block is `promising` */
    bool unread;  /* storage could not read it */
    bool corrupt; /* these are not the bytes that were written */
    uint16_t left;
    int err;       /* the first */
    uint32_t used; /* the block's, when it began */
    uint64_t bytes;
};
struct move_op {
    struct tier_op op;
    struct core *core;
    struct move *move;
    struct move_op *next;
    uint32_t shard;
    struct hash128 want;
};

/* What an acquire waits for to be in memory. */
struct core_load {
    struct list_node node; /* client->loads, while blocks are to be begun */
    struct list_node all;  /* of loads until it has ended; then of those that go (load.c) */
    struct core_client *client;
    struct core_waiter *waiter;
    struct run_list blocks; /* held, and loaded */
    struct run_list near;   /* near copies, held with their blocks: what is not loaded */
    struct run_iter begin, pass;
    uint64_t wanted; /* bytes that were on disk alone and have not been begun */
    uint64_t bytes;  /* of all, and how many are to be loaded */
    uint32_t lacks;
    uint32_t begun, passed; /* entries; what has been passed is in memory, or will not come */
    uint32_t block, gen;    /* the first that has not been passed, and is being loaded */
    uint32_t freed;         /* going: entries that are let go of */
    bool going;
};

struct verify_op {
    struct tier_op op;
    struct list_node node; /* of all reads (verify.c) */
    struct core *core;
    struct core_verify *slice;
    uint32_t block;
    uint8_t index, shard; /* of slice->block; of the block */
    uint32_t near;        /* the near copy that is read; CORE_NONE: it is none */
    struct hash128 want;
};

/* What a lookup finds. */
struct find_room {
    uint32_t found[KVC_KEYS_MAX];
    uint32_t runlen[KVC_KEYS_MAX];
    uint64_t hash[KVC_KEYS_MAX];
};

struct core {
    struct core_config cfg;

    /* What one file alone looks at is declared there; others ask that file. */
    struct above *above;
    struct adopt *adopt; /* NULL: nothing is being taken over */
    struct asks *asks;
    struct evict *evict;
    struct ghosts *ghosts; /* buckets of them */
    struct gone *gone;
    struct host_room *host_room;
    struct lapse *lapse;
    struct leases *leases;
    struct loads *loads;
    struct moves *moves;
    struct namespaces *namespaces;
    struct pins *pins;
    struct place *place;
    struct progress *progress;
    struct promises *promises;
    struct quotas *quotas;
    struct reads *reads; /* worth.c */
    struct reclaim *reclaim;
    struct records *records;
    struct regions *regions; /* of host memory; NULL: not looked at */
    struct resvs *resvs;
    struct rules *rules;
    struct verify *verify;
    struct writes *writes;

    uint64_t now_ns, now_ms;
    uint64_t work, slice_end, looks_left; /* core_work(); the slice's end; see evict_next() */
    struct core_metrics m;

    struct block *blocks;
    uint32_t blocks_high; /* no record was ever used above */

    uint64_t *table; /* record number + 1 in the low half, tag above; 0 = empty */
    uint32_t table_size;
    uint64_t hash_secret[4];

    struct policy *policy;
    void *policy_mem;
    struct retain *retain;
    void *retain_mem;
    uint64_t found_ms; /* when all that was found at start had been taken over */

    struct pool *parts, *clients;
    struct pool *runs;              /* here: an acquire adds each block to one */
    struct share run_share;         /* of them, by client, and by principal */
    struct share unevictable_share; /* bytes of slots in memory, by principal (unevictable.c) */
    uint32_t *attached;             /* clients by principal */

    struct core_ns *ns; /* cfg.namespaces_max */

    struct list_node woken; /* core_waiter */
    struct list_node jobs;  /* core_evict_job */
    uint32_t ending; /* DYING blocks that I/O still holds, and with them their places on disk */
    struct list_node dropping; /* reservations of clients that end: let go of in slices */
    uint32_t end_left;         /* blocks that leases may still let go of at once in this turn */
    uint64_t leaving_bytes;    /* of what is being saved, to make room */
    uint64_t loading_bytes;
    uint64_t reading_bytes;  /* of them, from disk */
    uint64_t wanted_bytes;   /* by loads, and not begun */
    uint64_t largest;        /* payload, all shards: of blocks of the namespaces that have some */
    uint64_t unchecked;      /* blocks */
    uint64_t pause_ms;       /* nothing is saved before, for storage refused */
    uint64_t room_vain_ms;   /* until then nobody waits for room that storage is to make */
    struct admit admit;      /* what is written to disk, and what is written there again */
    struct names *names;     /* NULL: there are none */
    struct near_table *near; /* NULL: there are no devices */
    uint64_t ns_changes;

    /* Of the lookup at hand (ask.c). */
    uint32_t *found; /* record numbers by group and block */
    uint32_t *runlen;
    uint64_t *hash;
};

static inline struct core_ns *block_ns(struct core *c, const struct block *b)
{
    return &c->ns[b->ns];
}
static inline uint32_t block_no(const struct core *c, const struct block *b)
{
    return (uint32_t)(b - c->blocks);
}
static inline const struct core_group *block_group(struct core *c, const struct block *b)
{
    return &block_ns(c, b)->spec.group[b->group];
}
static inline uint32_t group_shards(const struct core_ns *ns, const struct core_group *g)
{
    return (g->flags & KVC_F_REPLICATED) ? 1 : ns->spec.shards;
}
/* Payload of all shards. */
static inline uint64_t block_bytes(struct core *c, const struct block *b)
{
    const struct core_group *g = block_group(c, b);
    return (uint64_t)g->block_bytes * group_shards(block_ns(c, b), g);
}
/* Of the shards that are there. */
static inline uint64_t block_bytes_present(struct core *c, const struct block *b)
{
    return (uint64_t)block_group(c, b)->block_bytes * b->shards_present;
}
static inline uint32_t core__stamp(const struct core *c)
{
    return (uint32_t)(c->now_ms >> CORE_AGE_SHIFT);
}
static inline uint64_t core__age_ms(const struct core *c, const struct block *b)
{
    return (uint64_t)(uint32_t)(core__stamp(c) - b->used) << CORE_AGE_SHIFT;
}

static inline void block_clear(struct block *b, uint32_t flags)
{
    b->flags = b->flags & ~flags & BLOCK_F_ALL;
}
static inline uint32_t block_shards(struct core *c, const struct block *b)
{
    return group_shards(block_ns(c, b), block_group(c, b));
}
/* Its order of eviction is the policy's. */
static inline bool block_in_policy(const struct block *b)
{
    return (b->flags & BLOCK_F_LINKED) && !(b->flags & (BLOCK_F_CLEAN | BLOCK_F_LEAVING)) &&
           (b->state == BLOCK_PENDING || (b->flags & BLOCK_F_HOST));
}
/* A lease may have it as it is. */
static inline bool block_ready(const struct block *b)
{
    return (b->flags & (BLOCK_F_HOST | BLOCK_F_UNCHECKED)) == BLOCK_F_HOST;
}
/* Whole: a copy in memory goes without loss. */
static inline bool block_on_disk(const struct block *b)
{
    return b->state == BLOCK_PRESENT && (b->flags & BLOCK_F_DISK);
}
static inline bool block_pinned(const struct block *b)
{
    return b->pins > 0;
}
/* On disk for good: by a promise that somebody was given, not for a pin. */
static inline bool block_promised(const struct block *b)
{
    return (b->flags & (BLOCK_F_DURABLE | BLOCK_F_BY_PIN)) == BLOCK_F_DURABLE;
}
/* Not to be let go of for room, though nobody uses it. */
static inline bool block_stays(const struct block *b)
{
    return block_pinned(b) || (b->flags & BLOCK_F_DURABLE);
}
/* Pins, names or commits bind it to this tier. */
static inline bool block_is_bound(const struct block *b, unsigned tier)
{
    return b->bound >> tier & 1u;
}
static inline bool part_claimed(const struct part *p)
{
    return p->state == PART_RESERVED && p->resv != CORE_NONE;
}

/* A client's number, for the shares. */
static inline uint32_t client_no(const struct core *c, const struct core_client *cl)
{
    return pool_index(c->clients, cl);
}

/* Without principals_max all of them count as one. */
static inline uint32_t owner_no(const struct core *c, uint32_t principal)
{
    return c->cfg.principals_max ? principal - 1 : 0;
}

/* index.c */
uint64_t ghosts_bytes(const struct core_config *cfg);
struct block *index_get(struct core *c, const struct core_ns *ns, uint32_t group,
                        const uint8_t *key);
void index_add(struct core *c, struct block *b);
void index_del(struct core *c, const struct block *b);
void ghost_note(struct core *c, const struct block *b, enum kvc_miss reason);
enum kvc_miss ghost_reason(const struct core *c, uint64_t hash);
uint32_t index_table_size(uint32_t blocks_max);

/* block.c */
uint32_t records_used(const struct core *c);
struct block *block_new(struct core *c); /* NULL: all in use */
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
/* Whether one more request may hold it: keys may come twice, and the core's own holds need some of
 * those that can be counted. */
static inline bool block_may_be_held(const struct block *b)
{
    return b->leases < BLOCK_HOLDS_MAX / 2;
}
void block_unhold(struct core *c, struct block *b);
/* A hold of the core's own ends, and nobody else hears of it. */
void block_unhold_quietly(struct core *c, struct block *b);
void block_touch(struct core *c, struct block *b);
/* Touches b and its ancestors until one that was touched in this instant; keeps the order that
 * policies rely on. Of a long chain those near b: the others have descendants, and stay. */
void block_touch_path(struct core *c, struct block *b);
struct part *block_part(struct core *c, const struct block *b, uint32_t shard);
struct tier_loc block_loc(struct core *c, const struct block *b, uint32_t shard);
void block_set_loc(struct core *c, struct block *b, uint32_t shard, struct tier_loc loc);
struct tier_loc block_disk(struct core *c, const struct block *b, uint32_t shard);
void block_set_disk(struct core *c, struct block *b, uint32_t shard, struct tier_loc loc);
/* What tiers keep of one of its shards. */
struct tier_label block_label(struct core *c, const struct block *b, uint32_t shard);
/* What leases of it read in host memory is there. Of one that is PRESENT or DYING. */
bool block_in_host(struct core *c, const struct block *b);
/* Of a PRESENT block: flags that say where it is, with all that is counted by them. */
void block_place(struct core *c, struct block *b, uint32_t set, uint32_t clear);
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
/* A record that was found at start becomes PRESENT; where it is, block_place() says. */
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
/* Of a block that is linked: nothing is below it, and it is not in use, so that it may go for good.
 */
bool block_can_evict(struct core *c, uint32_t block_no);
/* The same, or it can go from host memory to disk. The policy is asked with this. */
bool block_can_leave(void *ctx, uint32_t block_no);

/* runs: lists of blocks in fixed pieces. holder: client_no(), or run_principal() */
void run_init(struct run_list *l);
/* KVC_E_BUSY: the pool is empty, or the holder has its share. */
int run_push(struct core *c, uint32_t holder, struct run_list *l, uint32_t block,
             uint32_t gen) KVC_WARN_UNUSED;
void run_free(struct core *c, uint32_t holder, struct run_list *l);
/* The last becomes the first. Nothing is to be added afterwards. */
void run_reverse(struct core *c, struct run_list *l);
static inline uint32_t run_principal(const struct core *c, uint32_t principal)
{
    return c->cfg.clients_max + owner_no(c, principal);
}
struct run_iter run_begin(struct core *c, const struct run_list *l);
struct run_iter run_at(struct core *c, const struct run_list *l, uint32_t i); /* number i is next */
const struct run_entry *run_next(struct core *c, struct run_iter *it);

/* room.c: all room that blocks have is taken and given back here, and counted for its namespace */
/* Bytes taken in memory, by owner_no(). */
uint64_t host_room_of(const struct core *c, uint32_t owner);
/* How b is taken into host memory. */
struct welcome {
    struct tier_loc near; /* beside this, if there is room */
    bool patient;         /* KVC_E_BUSY instead of losing what is on its way to disk, or could be */
    bool judged;          /* KVC_E_NOT_WORTH if what would go for it is worth more; until something
                           * has gone */
    unsigned level;       /* judged: that it is to stay at */
    struct policy_hint hint; /* judged */
};
/* Room for one shard of b in the host tier, evicting on demand. 0, KVC_E_FULL, KVC_E_QUOTA,
 * KVC_E_TOO_LARGE. */
int host_take(struct core *c, const struct block *b, struct welcome *w,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;
void host_give(struct core *c, const struct block *b, struct tier_loc loc);
/* The same on disk, where storage makes room. must: see quota_disk(). KVC_E_NO_ROOM, _QUOTA. */
int disk_take(struct core *c, const struct block *b, struct tier_loc near, bool must,
              struct tier_loc *ret_loc) KVC_WARN_UNUSED;
void disk_give(struct core *c, const struct block *b, struct tier_loc loc);
/* Payload bytes of room that b's namespace has in a tier from now on, or no more. */
void room_count(struct core *c, struct core_ns *ns, unsigned tier, int64_t bytes);
/* With so many bytes more in memory the principal of ns has no more than its promised part of
 * memory. */
bool room_is_promised(const struct core *c, const struct core_ns *ns, uint32_t bytes);
/* What binds b to a tier may have come or gone: a pin, a name, a promise on disk, or b itself. */
void room_bind(struct core *c, struct block *b);
/* Adds where b's bytes are. */
void room_places(struct core *c, const struct block *b, struct core_places *places);

/* unevictable.c */
/* The bytes of slots that b keeps in memory whoever wants room there. */
uint64_t unevictable_of(struct core *c, const struct block *b);
/* The first hold of b has come, the last has gone. */
void unevictable_held(struct core *c, struct block *b);
void unevictable_unheld(struct core *c, struct block *b);
/* Before what may change that otherwise, or where b is in memory; and after. */
uint64_t unevictable_change(struct core *c, const struct block *b) KVC_WARN_UNUSED;
void unevictable_changed(struct core *c, struct block *b, uint64_t was);
/* The same that a first hold of b would keep there, and one more part of it that is reserved. */
static inline uint64_t unevictable_by_hold(struct core *c, const struct block *b)
{
    const bool more = b->leases == 0 && b->flags & BLOCK_F_HOST && !block_is_bound(b, 0);
    return more ? (uint64_t)block_shards(c, b) * block_ns(c, b)->slot_bytes[b->group] : 0;
}
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

/* evict.c */
/* Of two blocks, a goes before b: it is of a lower level, or of the same and used longer ago. */
bool evict_goes_first(struct core *c, const struct block *a, const struct block *b);
/* What goes next of what may leave memory so that `payer` has room: only of `within` and those
 * below it, 0: of everybody. POLICY_NO_BLOCK: none, or evict_paused(). */
uint32_t evict_next(struct core *c, uint32_t payer, uint32_t within);
/* The block that evict_next() named goes, with all below it, for what comes in so: 0,
 * KVC_E_NOT_WORTH if judged, KVC_E_FULL: not so now, it is as good as used. patient: as below. */
int evict_victim(struct core *c, uint32_t payer, uint32_t victim, bool patient,
                 struct welcome *w) KVC_WARN_UNUSED;
/* b and everything below it goes for good, unless some of it is in use, pinned or durable, or it is
 * a lot; patient: or of a higher level than b. */
bool evict_subtree(struct core *c, struct block *b, bool patient);
/* The same of what may go of it; returns how many blocks went, also added to *counter. */
uint32_t evict_tree(struct core *c, uint32_t root, uint64_t *counter);
/* One block goes, so that `payer` has a record or a part: 0, KVC_E_FULL when none can,
 * KVC_E_NOT_WORTH if judged. */
int evict_one(struct core *c, uint32_t payer, struct welcome *w) KVC_WARN_UNUSED;

/* job.c */
/* A step of the eviction job at hand; true: there is more to do. */
bool job_run(struct core *c);
/* gone.c */
void gone_step(struct core *c);
/* Storage has been asked, and has not answered. */
bool gone_is_settling(const struct core *c);
/* The next gone_step() has something to begin or to tell. */
bool gone_is_due(const struct core *c);

/* rules.c */
/* What is set now is what it began with. */
void rules_begin(struct core *c);
/* A hint was given. */
void rules_hinted(struct core *c, uint32_t advice);
uint64_t rules_hints(const struct core *c, uint32_t advice);

/* retention.c */
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
/* The policy hears that somebody asks for what f found. */
void tell_request(struct core *c, struct find *f);

/* quota.c */
/* The owner that a namespace belongs to. */
uint32_t quota_payer(const struct core *c, const struct core_ns *ns);
void quota_ns_gone(struct core *c, const struct core_ns *ns);
/* Room within hard limits for `bytes` more of ns in host memory: 0, KVC_E_QUOTA, KVC_E_BUSY if
 * patient, KVC_E_NOT_WORTH if judged. */
int quota_room(struct core *c, const struct core_ns *ns, uint32_t bytes,
               struct welcome *w) KVC_WARN_UNUSED;
/* The same on disk: what is on disk of who is over its limit goes; copies of clean blocks only for
 * what must be written (a promise), for else they would be written anew. KVC_E_QUOTA. */
int quota_disk(struct core *c, const struct core_ns *ns, uint64_t bytes, bool must) KVC_WARN_UNUSED;
/* Some of its owners has more in memory than leaves it a margin below its limit. */
bool quota_tight(const struct core *c, const struct core_ns *ns);
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
bool quota_step(struct core *c);
/* What all quotas together are guaranteed in memory: bytes, and regions that hold them. */
uint64_t quota_guaranteed(const struct core *c);
uint64_t quota_guaranteed_regions(const struct core *c);
/* Some blocks are in the lists of another owner yet. */
bool quota_is_giving(const struct core *c);
uint32_t quota_count(const struct core *c);

/* ns.c */
/* What is wrong with a specification, or NULL. */
const char *core__ns_fault(const struct core_ns_spec *s);
const char *core__ns_unsound(const struct core_ns_spec *s);
/* Digest of all that makes a namespace: equal for equal ones, also after a restart. */
int core__ns_print(struct core *c, const struct core_identity *who, const struct core_ns_spec *spec,
                   struct key256 *ret) KVC_WARN_UNUSED;
int core__ns_find_or_make(struct core *c, const struct core_identity *who,
                          const struct core_ns_spec *spec, struct core_ns **ret_ns) KVC_WARN_UNUSED;
/* The first 8 bytes of a print, as a number that is not 0. */
uint64_t core__short_print(const struct key256 *print);
struct core_ns *ns_by_print(struct core *c, uint64_t short_print);
bool ns_visible(const struct core_client *cl, const struct core_ns *ns);
struct core_ns *ns_by_id(struct core *c, uint32_t id);
/* Bit set of fields in which two namespaces differ. */
uint32_t ns_diff(const struct core_ns *a, const struct core_ns *b);
/* Another namespace of the same principal, sub-tenant and model. */
bool ns_is_sibling(const struct core_ns *ns, const struct core_ns *o);

/* find.c */
/* What is remembered of a key that is not there: KVC_MISS_NEVER when nothing is. */
enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key);
/* Why `key` is not there; looks into sibling namespaces too. */
enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail);

/* verify.c */
uint64_t verify_bytes(const struct core_config *cfg);
const struct pool *verify_pool(const struct core *c); /* verify_op */
/* The bytes in memory of one that is leased differ from what was stored: it is dropped with all
 * below it, and its readers are told, if it has not been already. */
void verify_host_is_corrupt(struct core *c, struct block *b);
/* Asks the client's slices to stop. */
void verify_cancel_all(struct core *c, const struct core_client *cl);
/* Records looked at in one slice. */
#define VERIFY_STEPS 2048u
/* Whether the slice is to look at blocks of this namespace. */
bool verify_wants_ns(const struct core_verify *v, const struct core_ns *ns);
/* How many blocks it may hold in place, of so many that there are. */
uint32_t verify_most(const struct core *c, uint64_t there);
/* Begins to read one shard of b, as the slice's block `index`; near: as in verify_op. */
void verify_read(struct core *c, struct core_verify *v, struct block *b, uint32_t index,
                 uint32_t shard, uint32_t near);
enum verdict { VERDICT_GOOD, VERDICT_SKIPPED, VERDICT_FAILED, VERDICT_CORRUPT };
/* near_verify.c: begins to read the near copies of a slice; returns how many. */
uint32_t near_verify_begin(struct core *c, struct core_verify *v);
/* Where one is, and the tier that has it; it stays until near_verify_end(). */
struct tier *near_verify_hold(struct core *c, uint32_t no, struct tier_loc *ret_loc);
void near_verify_end(struct core *c, uint32_t no);
/* Of what was read: whether it is wanted still. */
bool near_verify_is_there(const struct core *c, uint32_t no);
/* Its bytes are wrong: it goes, and who reads it is told. The block, and its other copies, stay. */
void near_verify_drop(struct core *c, uint32_t no, struct tier_view *ret_view);

/* move.c */
uint64_t moves_bytes(void);
const struct pool *move_pool(const struct core *c); /* move */
enum save_why {
    SAVE_COPY,    /* so that there is one */
    SAVE_ABOVE,   /* the same, for what builds on it and is there */
    SAVE_LEAVING, /* so that its copy in memory can go */
    SAVE_PROMISE, /* durable, for somebody who was promised that */
    SAVE_PIN      /* durable while it is pinned or named */
};
/* Begins to write a block to disk that is in host memory and not moving. KVC_E_BUSY (later),
 * KVC_E_FULL, KVC_E_QUOTA. */
int save_begin(struct core *c, struct block *b, enum save_why why) KVC_WARN_UNUSED;
/* Begins to bring a block into host memory, or to check one that was found there. KVC_E_BUSY,
 * KVC_E_FULL, KVC_E_GONE (cannot be read now). */
int load_begin(struct core *c, struct block *b) KVC_WARN_UNUSED;
/* Its disk copies can be read now. */
bool block_readable(struct core *c, const struct block *b);
/* A present block that a hit may have: in memory, or on disk and its path is in service. */
bool block_reachable(struct core *c, const struct block *b);
/* Of a block that is also on disk and not in use. */
void host_drop(struct core *c, struct block *b);
/* Gives all its room on disk back; nothing may be in flight there. */
void disk_drop(struct core *c, struct block *b);

/* above.c */
/* What it builds on is to be on disk, as it is. */
void above_want(struct core *c, const struct block *b);
/* Whether it is on disk for what builds on it there. */
bool above_carries(const struct core *c, const struct block *b);
/* Begins some of what is wanted; true: there is more that can be begun now. */
bool above_step(struct core *c);
/* A move to disk has begun, has ended: it may be one of those. */
void above_begun(struct core *c, const struct move *m);
void above_ended(struct core *c, const struct move *m);

/* worth.c */
/* A read from disk begins, beside core->reading_bytes of others; has ended, and they are left. */
void worth_read_begun(struct core *c, uint64_t bytes);
void worth_read_ended(struct core *c, uint64_t bytes, bool ok);
/* What is known of it so far. */
void worth_disk_speed(const struct core *c, struct worth_speed *ret_speed);

/* place.c */
/* Of the ring of clean blocks. */
uint64_t clean_bytes(const struct core_config *cfg);
/* So many blocks are marked as being in the ring. */
void clean_check(const struct core *c, uint64_t ring);
/* What memory cannot let go of yet, it can soon: it is being written, or room for it is made. */
bool leaving_soon(const struct core *c);
/* The oldest clean block that is not in use, and not guaranteed to another than `payer`; no longer
 * in the ring; NULL: none. */
struct block *clean_pop(struct core *c, uint32_t payer);
/* An old clean block of `within`, which stays where it is; NULL: none is near. */
struct block *clean_of(struct core *c, uint32_t within);
/* Out of the ring, into the policy. */
void clean_recall(struct core *c, struct block *b);
/* A block that the policy has not: into the ring, or back to the policy. */
void clean_push(struct core *c, struct block *b);
/* Begins to save what goes next, until enough is clean or on its way. True: there is more to do. */
bool place_fill(struct core *c);
/* The same, so that there is room for so much too, which is waited for. */
void place_want(struct core *c, uint64_t bytes);
/* Host memory had no room, whatever its limit says: what is below the limit then is in rooms of
 * other sizes, or of nobody, and counts as none. */
void place_pressed(struct core *c);
/* Stores that wait for room, as far as there is some, or none will come. */
void room_wake(struct core *c);
/* The chance that somebody asks for a block before its place on disk is written over, or would be
 * if it were written now; 1: not known. */
float disk_chance(const struct core *c, uint32_t no);

/* load.c */
uint64_t loads_bytes(const struct core_config *cfg);
const struct pool *load_pool(const struct core *c); /* core_load */
/* Clients with blocks that are to be begun to be loaded. */
uint32_t load_clients(const struct core *c);
/* Starts the loads of what f's prefix beyond `from` tokens lacks in memory, for the waiter: 1. 0:
 * it lacks nothing, or nothing can be loaded now. KVC_E_LIMIT, perhaps with *ret_why. */
int load_start(struct core *c, struct core_client *cl, const struct find *f, uint32_t from,
               struct core_waiter *waiter, const char **ret_why) KVC_WARN_UNUSED;
/* All of it is in memory, or in slots of its device. */
bool load_is_ready(struct core *c, const struct find *f, uint32_t from);
void load_pump(struct core *c);

/* promise.c */
/* To be looked at: its block, or its name, `done`, and `cancel` are set. */
void promise_add(struct core *c, struct promise *p);
/* Nobody waits for it any more. */
void promise_remove(struct core *c, struct promise *p);
/* The one behind p, NULL: the first; NULL: there is none. */
struct promise *promise_next(const struct core *c, const struct promise *p);
/* One of them is to be looked at. */
void promise_look(struct core *c);
/* block_promised() has become false: who has passed that block looks at it again. */
void promise_lost(struct core *c);
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
/* The promise of what is on disk of it ends: an ordinary copy. */
void promise_end(struct core *c, struct block *b);

/* names.c, names_hold.c; all do nothing where there are no names */
/* True while there is more to do. */
bool names_step(struct core *c);
/* Some name that has gone has blocks to let go of. */
bool names_are_leaving(const struct core *c);
/* Some name reaches it. */
bool block_named(const struct core *c, const struct block *b);
/* What comes behind it goes on from where a conversation ends, that has a name. */
bool block_goes_on(struct core *c, const struct block *b);
/* What must not go for good to make room: it is durable, or on its way to that for a name. */
bool block_kept(const struct core *c, const struct block *b);
/* The blocks that a name holds itself: calls fn for each; a non-zero return ends it and is what it
 * returns. */
int name_each_block(struct core *c, const struct core_name *nm,
                    int (*fn)(void *ctx, struct block *b), void *ctx);
/* Storage has room again. */
void names_room(struct core *c);
bool block_names_safe(const struct core *c, const struct block *b);
void block_names_mark_safe(struct core *c, struct block *b);
void names_check(struct core *c);

/* reclaim.c */
void reclaim_listen(struct core *c);
/* The copy on disk of a block that is in memory too goes; nothing may be in flight. */
void disk_forget(struct core *c, struct block *b);
bool reclaim_step(struct core *c);

/* resv.c */
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

/* write.c */
uint64_t writes_bytes(void);
const struct pool *op_pool(const struct core *c); /* core_op */
/* Of these, those that came before their words, until they are copied. */
uint32_t ops_gated(const struct core *c);
struct core_op *op_at(const struct core *c, uint32_t no);
/* The commit of an entry is over. */
void op_finish(struct core *c, struct core_op *o, uint8_t status);
/* The bytes of an entry have been copied out of pages to where they belong, or could not be. */
void op_copied(struct core *c, struct core_op *o, int status);
/* What a copy's status is to who asked for it. */
uint8_t core__copy_status(int err);
/* What a client waits for before it is gone may have ended. */
void core__client_settle(struct core *c, struct core_client *cl);

/* progress.c */
/* A commit of r has come; announced: what it brings was reserved by another request. */
void progress_made(struct core *c, struct reservation *r, bool announced);
/* It is claimed, and its writer is past its progress deadline. */
bool part_is_late(struct core *c, const struct part *p);
/* Some part of it is, or nobody has claimed what it lacks for long: it is not being stored. */
bool block_is_late(struct core *c, const struct block *b);
void progress_step(struct core *c);

/* core.c */
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
/* Of a block that is linked. */
void core__explain(struct core *c, const struct block *b, struct core_explanation *x);

/* lease.c */
uint64_t leases_bytes(const struct core_config *cfg);
const struct pool *lease_pool(const struct core *c); /* lease */
/* Leases of a client. */
uint32_t leases_of(const struct core *c, const struct core_client *cl);
void lease_free(struct core *c, struct lease *l);
/* Its client has no more to do with it: it is freed, or will be with its last use. */
void lease_end(struct core *c, struct lease *l);
/* NULL: the client has no such lease. */
struct lease *lease_by_id(struct core *c, const struct core_client *cl, uint64_t id);
/* Somebody needs its blocks, and what it holds on a device, whatever its client does. */
void lease_use(struct lease *l);
void lease_unuse(struct core *c, struct lease *l);
/* One that somebody needs so. */
struct lease *lease_in_use(const struct core *c, uint64_t id);

#include "lapse.h"
#include "near_core.h"
#include "pin.h"
#include "slice.h"

#endif
