/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the core: the block record, what refers to it, and struct core, which all files of
 * the core share. Everything here belongs to the control thread.
 */
#ifndef KVC_CORE_STATE_H
#define KVC_CORE_STATE_H

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

enum block_state {
    BLOCK_FREE,
    BLOCK_FOUND,   /* recovery has found it */
    BLOCK_REACHED, /* recovery has found it, and all blocks before it in its chain */
    BLOCK_PENDING, /* announced; some shard is not stored yet */
    BLOCK_PRESENT, /* all shards are stored: lookups find it */
    BLOCK_DYING    /* removed from the index; its record is freed when nothing uses it any more */
};

/* The copy of a block in one tier: all its shards there. A PENDING block has no copy yet: its parts
 * say how far each shard is. */
enum copy_state {
    COPY_NONE,
    COPY_FILLING,   /* the block is being read into memory */
    COPY_SUSPECT,   /* found in memory at start, and not checked yet */
    COPY_CHECKING,  /* found in memory at start, and being checked */
    COPY_READY,     /* readable; on disk: without a promise */
    COPY_FOR_PIN,   /* on disk: written durably, for pins and names alone */
    COPY_DURABLE,   /* on disk: written durably, for a commit whose client is promised that */
    COPY_INCOMPLETE /* on disk: a shard was lost; the others are freed when the block is idle */
};

/* Why a block that is in memory is not in the policy's order of eviction. */
enum block_parked {
    PARKED_NOT,     /* it is in the order, or the policy does not know it (block_in_policy()) */
    PARKED_LEAVING, /* being written to disk, so that its copy in memory can be dropped */
    PARKED_CLEAN    /* in the ring of blocks whose copies in memory are dropped next (clean.c) */
};

enum block_flag {
    BLOCK_F_LINKED = 1,     /* in the index, in its chain and known to the policy */
    BLOCK_F_WAITED = 2,     /* a core_waiter waits for this block */
    BLOCK_F_KEEP = 4,       /* an eviction job found that this block or one below it is in use;
                             * during recovery: its key's parent is not linked yet */
    BLOCK_F_PARTS = 8,      /* `where` is a list of parts, not a location */
    BLOCK_F_CORRUPT = 0x10, /* DYING: its bytes are not those that were stored */
    BLOCK_F_RING = 0x20,    /* the ring of clean blocks has this record's number; stays set when
                             * the record is given to another block */
    BLOCK_F_AWAITED = 0x40, /* a load waits for it */
    BLOCK_F_DURABLE_WANTED = 0x80, /* a promise waits until it is durable; PENDING: a writer of one
                                    * of its shards asked for that, for the whole block */
    BLOCK_F_SAFE = 0x100,          /* a client was told that it is durable, with all blocks before
                                    * it (lapse.h) */
    BLOCK_F_ALL = 0x1ff
};

/* After a store has waited for room in vain, no store waits for room during this time. */
#define ROOM_VAIN_MS 5000u

#define BLOCK_COPIES_MAX 511u
#define BLOCK_HOLDS_MAX  ((1u << 23) - 1)
#define BLOCK_PINS_MAX   255u

/* One block: 88 bytes. The first cache line answers a lookup. */
struct block {
    struct key256 key;
    uint32_t ns : 16;       /* slot in core->ns */
    uint32_t bound : 2;     /* bit set of enum core_tier: where pins, names or commits keep it */
    uint32_t counted : 1;   /* a dry run of an eviction has counted it (bulk_evict.c); DYING:
                             * core->disk.dying counts it */
    uint32_t hbm : 1;       /* a device has a copy of it, or is being given one (hbm_copies.c) */
    uint32_t listed : 1;    /* the pin that is being made has it already; 0 outside of pin_add() */
    uint32_t promising : 1; /* it is being written to disk for a promise, or will be when its
                             * present move ends; it counts as bound to disk */
    uint32_t host_pins : 8; /* how many of its pins keep its copy in memory too */
    uint32_t holds : 23;    /* number of holds, of leases, loads, reservations and the like; not
                             * evicted while there is one */
    uint32_t copies : 9;    /* number of copies in flight, of writers and verifications: at most
                             * BLOCK_COPIES_MAX */
    uint32_t used;        /* core__stamp() of its last use; while it lacks shards: of the last time
                           * when a shard was claimed or has landed */
    uint32_t tokens : 17; /* tokens that it covers: 1 to KVC_BLOCK_TOKENS_MAX */
    uint32_t pins : 8;    /* number of pins that have it */
    uint32_t moving : 7;  /* number of shards that move between tiers, or are checked in memory */
    uint32_t flags : 9;   /* enum block_flag */
    uint32_t state : 3;   /* enum block_state */
    uint32_t host_copy : 3;      /* enum copy_state */
    uint32_t disk_copy : 3;      /* enum copy_state */
    uint32_t parked : 2;         /* enum block_parked */
    uint32_t shards_present : 7; /* number of shards that are stored, in any tier: at most
                                  * KVC_SHARDS_MAX */
    uint32_t group : 4;          /* number of its group in its namespace */
    uint32_t where; /* with BLOCK_F_PARTS: the first of its parts, a number in core->parts or
                     * CORE_NONE; else its location in host memory, 0: none */
    union {
        uint32_t disk; /* location on disk of a block of one shard; 0: none */
        uint32_t wish; /* while PENDING: its retention wish (wish.c), 0: none */
    };
    uint32_t gen;                       /* grows when the record is given to another block */
    uint32_t children;                  /* number of blocks that build on it directly */
    uint32_t parent, child, next, prev; /* the tree of chains: parent, first child, siblings; record
                                         * numbers or CORE_NONE. FREE: next free record */
    uint32_t depth;                     /* number of blocks before it in its chain */
};

/* How names protect a block: they do while n is not 0. */
struct block_name {
    uint32_t n;         /* number of refs on the block, and of its children that names reach */
    uint32_t level : 7; /* the highest priority that a name gave it; 0: none yet */
    uint32_t safe : 1;  /* the block and all blocks before it were made durable, for names or for
                         * commits */
    uint32_t marks : 4; /* marks of a walk over what names reach (names_evict.c); 0 outside of it */
    uint32_t refs;      /* the first ref on it: its index in names->ref + 1; 0: none */
};

enum part_state { PART_RESERVED = 1, PART_COPYING, PART_DONE };

/* One shard of a block that is being written, or of a block with several shards. */
struct part {
    struct tier_loc loc; /* its location in host memory; 0: it is not there */
    uint32_t next;       /* next part of the block: its number in core->parts, or CORE_NONE */
    union {
        uint32_t resv; /* not DONE: pool index of the reservation that may commit it; CORE_NONE: it
                        * was committed */
        struct tier_loc disk; /* DONE: its location on disk; 0: it is not there */
    };
    uint8_t shard;
    uint8_t state; /* enum part_state */
};

struct find;
/* A block as an entry of a list: its record's number, and block.gen as it was then. */
struct run_entry {
    uint32_t block, gen;
};
/* A piece of a list of blocks; leases, loads, reservations and pins have such lists. */
struct run {
    uint32_t next; /* next piece: its number in core->runs, or CORE_NONE */
    uint32_t n;    /* entries of this piece */
    struct run_entry e[CORE_RUN_ENTRIES];
};

/* The place of the next entry in a list. */
struct run_iter {
    const struct run *r;
    uint32_t i; /* index in r->e */
};

/* A list of blocks, in pieces. */
struct run_list {
    uint32_t head, tail; /* first and last piece: numbers in core->runs, or CORE_NONE */
    uint32_t n;          /* entries of all pieces */
};

/* The low bits of a namespace's id: its slot in core->ns. */
#define NS_ID_SLOT_BITS 16

/* A namespace, or a free slot for one. */
struct core_ns {
    uint32_t id; /* slot in the low 16 bits, generation above; 0: the slot is free */
    uint32_t principal;
    const char *principal_name, *tenant; /* names of the principal, and of its tenant */
    struct core_ns_spec spec;
    struct key256 print;  /* digest of identity and spec: equal prints are one namespace */
    uint64_t short_print; /* the first 8 bytes of `print`, which tiers keep; never 0, and no two
                           * namespaces have the same */
    struct key256 seed;   /* keys are hashes over it; all namespaces of a principal, tenant and
                           * sub-tenant have the same */
    uint64_t records;     /* records in use, of DYING blocks too: the slot is kept until it is 0 */
    uint64_t blocks, bytes;       /* PRESENT blocks, and their payload bytes */
    uint64_t used_ms;             /* when a session last named this namespace */
    uint64_t held[RETAIN_TIERS];  /* payload bytes of the room that its blocks take, by tier */
    uint64_t pinned, leased;      /* payload bytes of pinned blocks, each block once; of leased
                                   * blocks, each block once for each lease */
    uint64_t leaving;             /* its part of core->moving.leaving_bytes */
    uint32_t account;             /* its owner in core->retain, whose quota counts its bytes */
    uint64_t named_bytes;         /* payload bytes of blocks that names reach */
    uint64_t bound[RETAIN_TIERS]; /* payload bytes of blocks that are bound to the tier
                                   * (room_bind()) */
    uint64_t hbm_bytes;           /* bytes of its slots on devices */
    uint64_t unevictable;         /* bytes of slots in memory that cannot be evicted now */
    uint64_t lapsed;              /* number of lapsed blocks (lapse.h) */
    uint32_t regions;             /* regions of memory (regions.c) that count for this
                                   * namespace */
    uint32_t slot_bytes[KVC_GROUPS_MAX]; /* bytes of a slot in memory for one shard, by group */
    uint64_t region_fill;     /* payload bytes of its blocks that fit one empty region: the
                               * least over its groups */
    struct list_node waiting; /* core_waiter: requests that wait for its blocks */
};

/* A client: the holder of leases, loads, reservations and requests. */
struct core_client {
    struct core_identity who;
    void (*idle)(void *ctx); /* core_client_open(): called when the client has been freed */
    void *ctx;
    struct list_node leases, reservations, reqs;
    uint64_t lease_bytes, claim_bytes; /* payload bytes of its leases' blocks; payload bytes that it
                                        * has reserved and not committed */
    uint32_t copies;      /* number of copies in flight out of its staging, plus the number of its
                           * slices of verification, fills and sends, and of their copies */
    uint64_t progress_ms; /* core->now_ms of its last commit; 0: none yet */
    uint64_t step_ms;     /* the longest time lately from a reservation or commit to its next commit
                           * (late.c); 0: not known */
    bool verifying;       /* a slice of its verification is under way */
    bool closing;         /* core_client_close() was called: it is freed when nothing of it is
                           * left */
    uint32_t going;       /* number of its leases, loads, asks and reservations that have ended and
                           * are being released in slices */
    struct costs *costs;  /* costs of prefill that it stated (ns.c); NULL: none yet */
};

struct lease {
    struct list_node node;
    uint64_t id;
    uint8_t ticket[KVC_TICKET_BYTES];
    struct core_client *client;
    uint64_t since_ms;      /* core->now_ms when it was made */
    uint64_t bytes;         /* payload bytes of its blocks */
    struct run_list blocks; /* the blocks that it holds, group by group */
    uint32_t ngroups, tokens;
    struct run_list hbm; /* HBM copies that it holds, as entries of number and serial */
    uint32_t hbm_device; /* number of the device of these copies; CORE_NONE: it never held any */
    bool filled;         /* a fill has looked for its blocks */
    uint32_t uses;       /* number of fills, sends and copies in flight that need its blocks */
    bool ended;          /* the client has released it; it is freed when its last use has ended */
    bool going;          /* its blocks are being released in slices */
    uint32_t freed; /* while `going`: how many of its blocks were released, from the first on */
    struct {
        uint32_t first, n; /* the place of the first block in its group, and their number */
    } group[KVC_GROUPS_MAX];
};

struct reservation {
    struct list_node node;
    uint64_t id;
    struct core_client *client;
    struct core_ns *ns;
    uint32_t group;
    uint64_t since_ms; /* core->now_ms when it was made */
    uint32_t n, open;  /* number of keys; number of entries that may still be committed, or that a
                        * running request holds open. At 0 the reservation is freed */
    uint32_t busy;     /* of `open`, those of a reserve or commit that is between two slices */
    uint32_t dropped;  /* while it is dropped in slices: how many entries were, from the last on */
    uint32_t held;     /* record that it holds until its next slice, as the parent of the next key's
                        * block; CORE_NONE: none */
    uint8_t shard;
    bool durable;
    bool going; /* it has ended and is being dropped in slices; other reservations may take its
                 * claims over at once */
    struct run_list blocks;
};

/* A copy of one shard into a tier, of a commit. */
struct core_op {
    struct tier_op op;
    struct list_node node; /* among all operations whose bytes are being copied (write.c) */
    struct core *core;
    struct core_client *client;
    struct core_commit *commit;
    uint32_t index; /* of the block's status in commit->statuses */
    uint32_t block; /* record number */
    uint32_t part;  /* number in core->parts */
    uint32_t next;  /* next operation of a commit out of pages: its number (op_at()), CORE_NONE */
    bool durable;
    bool fenced;            /* counted in ops_fenced() (write.c), until its copy has ended */
    struct promise promise; /* of a durable commit, when its copy has landed */
};

/* The move of a block between memory and disk, or the check of a block that was found in memory at
 * start. It has an operation for each shard. */
enum move_kind { MOVE_SAVE, MOVE_LOAD, MOVE_CHECK };
struct move {
    struct move_op *ops; /* one for each shard */
    uint32_t block;      /* record number */
    uint8_t kind;        /* enum move_kind */
    bool durable;        /* SAVE: the block is written durably */
    bool leaving;        /* SAVE: written so that the copy in memory can be dropped */
    bool ancestor;       /* SAVE: begun because blocks on disk build on it (SAVE_ANCESTOR) */
    bool by_pin;         /* SAVE: durable for pins and names alone; with `durable` and without
                          * `by_pin` the block is `promising` */
    bool unread;         /* LOAD: storage could not read a shard */
    bool corrupt;        /* LOAD, CHECK: the bytes are not those that were stored */
    uint16_t left;       /* operations that have not ended */
    int err;             /* the first error of its operations, or 0 */
    uint32_t used;       /* the block's `used` when the move began */
    uint64_t bytes;      /* payload of all shards */
};
struct move_op {
    struct tier_op op;
    struct core *core;
    struct move *move;
    struct move_op *next; /* next operation of the move, or NULL */
    uint32_t shard;
    struct hash128 want; /* LOAD, CHECK: the sum that the bytes must have */
};

/* A load: the blocks that an acquire waits for until they are in memory. */
struct core_load {
    struct list_node node; /* among its client's loads (load.c), while blocks are to be begun */
    struct list_node all;  /* among all loads until it has ended; then, while `going`, among those
                            * whose blocks are being released (load.c) */
    struct core_client *client;
    struct core_waiter *waiter; /* woken when the load has ended; borrowed */
    struct run_list blocks;     /* blocks that it holds, and loads where memory lacks them */
    struct run_list hbm; /* HBM copies that it holds with their blocks, which are not loaded */
    struct run_iter begin, pass; /* in `blocks`: the next entry whose load is to begin; the next
                                  * one that is to be passed */
    uint64_t wanted;             /* its part of core->moving.wanted_bytes */
    uint64_t bytes;              /* payload of all its blocks */
    uint32_t lacks;              /* number of `blocks` that memory lacked when they were added */
    uint32_t begun, passed;      /* number of `blocks` whose load was begun; number of those that
                                  * were passed: each is in memory, or will not be loaded */
    uint32_t block, gen; /* the block being loaded that is to be passed next; CORE_NONE: none */
    uint32_t freed;      /* while `going`: how many of `blocks` were released */
    bool going;          /* it has ended, and its blocks are being released in slices */
};

/* A read of one shard, by a verification. */
struct verify_op {
    struct tier_op op;
    struct list_node node; /* among all reads of verifications (verify.c) */
    struct core *core;
    struct core_verify *slice;
    uint32_t block;       /* record number */
    uint8_t index, shard; /* index: in slice->block; shard: of the block */
    uint32_t hbm; /* number of the HBM copy that is read; CORE_NONE: memory or disk is read */
    struct hash128 want; /* the sum that the bytes must have */
};

/* Room for the results of a lookup: the fields of core->lookup point to one. */
struct find_room {
    uint32_t found[KVC_KEYS_MAX];
    uint32_t runlen[KVC_KEYS_MAX];
    uint64_t hash[KVC_KEYS_MAX];
};

/* The private state of modules (module.h), by folder. Each struct is declared in the file named
 * here; other files call that file's functions. */
struct core_modules {
    /* block/ */
    struct clean *clean;         /* clean.c: the ring of clean blocks */
    struct gone *gone;           /* gone.c: waits until removals outlive a crash */
    struct host_room *host_room; /* room.c: bytes taken in memory, by principal */
    struct quotas *quotas;       /* quota_table.h: the quotas of all owners */
    struct records *records;     /* block.c: free records; chains that are being released */
    struct regions *regions;     /* regions.c: regions of memory; NULL: they are not counted */
    struct resvs *resvs;         /* resv.c: all reservations */
    struct unmet *unmet;         /* wants.c: blocks that may lack a copy that they are to have */
    /* space/ */
    struct evict *evict; /* evict.c: the place of the search for leaves on disk */
    struct moves *moves; /* move.c: moves between memory and disk under way */
    struct place *place; /* place.c: blocks written to disk ahead of need; stores that wait */
    struct reads *reads; /* reads.c: how fast storage reads */
    /* lookup/ */
    struct weigh *weigh; /* worth.c: whether loading is weighed against recomputing */
    /* keep/ */
    struct pins *pins;           /* pin.c: all pins */
    struct promises *promises;   /* promise.c: durable commits that wait until they are durable */
    struct reclaim *reclaim;     /* reclaim.c: what storage may drop to make room on disk */
    struct reconcile *reconcile; /* reconcile.c: the present pass over the set of `unmet` */
    struct verify *verify;       /* verify.c: verifications under way */
    /* serve/ */
    struct asks *asks;             /* ask.c: lookups of many keys, done in slices */
    struct leases *leases;         /* lease.c: all leases */
    struct loads *loads;           /* load.c: all loads */
    struct namespaces *namespaces; /* ns.c: the shares of core->ns; costs of prefill */
    struct progress *progress;     /* progress.c: the time of the next look at late writers */
    struct writes *writes;         /* write.c: commits in flight */
    /* boot/ */
    struct recovery *recovery; /* recover.c; NULL: no recovery is under way */
    /* admin/ */
    struct rules *rules; /* rules.c: the rules with which the daemon began */
};

/* Work, in units of core_work(), and what bounds it in a turn (slice.h). */
struct core_work {
    uint64_t done;       /* work done since the start: core_work() */
    uint64_t slice_end;  /* the value of `done` at which the present slice is over */
    uint64_t looks_left; /* blocks that evict_next() may still look at in the present slice */
    uint32_t end_left;   /* work that may still be done at once in this turn to release leases,
                          * loads, asks, reservations and pins that end; for more they are released
                          * in slices */
};

/* The index: a hash table from keys to records (index.c, index.h). */
struct core_index {
    uint64_t *table; /* record number + 1 in the low half, the low half of index_hash() of the key
                      * above it; 0: the slot is empty */
    uint32_t size;   /* slots of the table */
    uint64_t secret[4];    /* random numbers of index_hash() */
    uint64_t probes;       /* number of keys that were looked up */
    struct ghosts *ghosts; /* why keys that are gone are missing: an array of buckets (index.c) */
};

/* The lookup in progress: its results, in the room of its request or of asks (ask.c). */
struct core_lookup {
    uint32_t *found;  /* record numbers by group and block */
    uint32_t *runlen; /* of groups that are not full, at the same places: how many blocks up to
                       * this one are there without a gap */
    uint64_t *hash;   /* index_hash() of the keys, at the same places */
};

/* Payload bytes of blocks that move between memory and disk, or are about to. */
struct core_moving {
    uint64_t leaving_bytes; /* being written to disk, so that the copies in memory can be dropped */
    uint64_t loading_bytes; /* being loaded from disk, or checked in memory */
    uint64_t reading_bytes; /* of loading_bytes, those read from disk */
    uint64_t wanted_bytes;  /* on disk alone: loads want them, and have not begun to read them */
};

/* What is to be written to disk, and what core knows of the room there. */
struct core_disk {
    struct admit admit;    /* decides which blocks are written to disk, and which are written there
                            * again */
    uint64_t pause_ms;     /* before this time no block is written to disk to make room in memory,
                            * because storage refused a write */
    uint64_t room_vain_ms; /* before this time no store waits for room that storage is to make on
                            * disk, because one has waited in vain */
    uint64_t turn_ms;      /* how long a place on disk lasts, as in tier_stats; 0: not known */
    uint32_t dying;        /* number of DYING blocks that were PRESENT and whose room on disk is not
                            * freed yet, because a copy or move of them is in flight */
};

struct core {
    struct core_config cfg;
    const struct block_subscriber *subscribers; /* the hearers of block_changed(), in their order;
                                                 * the `hear` of the last row is NULL */
    struct core_modules mod;

    uint64_t now_ns, now_ms; /* the time of core_tick() */
    struct core_work work;
    struct core_metrics m;

    struct block *blocks; /* the records: cfg.blocks_max */
    uint32_t blocks_high; /* records from this number on were never used */

    struct core_index index;

    struct policy *policy; /* the order of eviction, in policy_mem */
    void *policy_mem;
    struct retain *retain; /* levels of blocks, and what each owner has; in retain_mem */
    void *retain_mem;
    uint64_t recovered_ms; /* now_ms at core_recover_end() */

    struct pool *parts, *clients;   /* struct part, struct core_client */
    struct pool *runs;              /* struct run: pieces of all lists of blocks */
    struct share run_share;         /* shares of `runs`, by client and by principal */
    struct share unevictable_share; /* bytes of slots in memory that cannot be evicted now, by
                                     * principal (unevictable.c) */
    uint32_t *attached;             /* number of open clients, by principal */

    struct core_ns *ns;  /* cfg.namespaces_max slots */
    uint64_t ns_changes; /* how often a namespace was made or removed */

    struct list_node woken;   /* core_waiter: the done queue, for core_run_done() */
    struct list_node jobs;    /* core_evict_job: evictions on request that are under way */
    struct list_node loaders; /* clients with blocks to load (struct loader of load.c) */
    struct core_moving moving;
    uint64_t largest; /* payload bytes of the largest block, with all shards, among namespaces that
                       * have blocks */
    uint64_t unchecked; /* number of blocks that were found in memory at start and are not
                         * checked yet */
    struct core_disk disk;
    struct names *names;                  /* names_table.h; NULL: there are no names */
    struct block_name *named;             /* by record number; NULL: there are no names */
    bool names_saving;                    /* a name is being saved, or is to be */
    struct hbm_table *hbm;                /* hbm_table.h; NULL: there are no devices */
    bool admission;                       /* without storage: a block of less worth than its victims
                                           * is not stored (core_admission()) */
    uint64_t hinted[POLICY_ADVICE_COUNT]; /* number of hints given, by kind */
    uint64_t promises_lost;               /* how often block_promised() of a block has become
                                           * false */

    struct core_lookup lookup;
};

/* Whether there is storage; else blocks are in memory alone. */
static inline bool core_stores(const struct core *c)
{
    return c->cfg.tier[CORE_STORAGE] != NULL;
}
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
/* Payload of the shards that are stored. */
static inline uint64_t block_bytes_present(struct core *c, const struct block *b)
{
    return (uint64_t)block_group(c, b)->block_bytes * b->shards_present;
}
/* The present time as block.used keeps it, in units of 1 << CORE_AGE_SHIFT ms; it wraps around. */
static inline uint32_t core__stamp(const struct core *c)
{
    return (uint32_t)(c->now_ms >> CORE_AGE_SHIFT);
}
/* The time since b's last use. */
static inline uint64_t core__age_ms(const struct core *c, const struct block *b)
{
    return (uint64_t)(uint32_t)(core__stamp(c) - b->used) << CORE_AGE_SHIFT;
}

/* Tells the hearers of this event. The record may be free afterwards: changed.h. */
static inline void block_changed(struct core *c, struct block *b, const struct block_change *x)
{
    for (const struct block_subscriber *s = c->subscribers; s->hear; s++)
        if (s->on & x->what)
            s->hear(c, b, x);
}
/* Tells the hearers that a hold, a copy, a pin or a name of b has ended. */
static inline void block_unheld(struct core *c, struct block *b)
{
    block_changed(c, b, &(struct block_change){.what = BLOCK_UNHELD});
}

static inline void block_clear(struct block *b, uint32_t flags)
{
    b->flags = b->flags & ~flags & BLOCK_F_ALL;
}
static inline uint32_t block_shards(struct core *c, const struct block *b)
{
    return group_shards(block_ns(c, b), block_group(c, b));
}

static inline enum copy_state copy_state(const struct block *b, enum core_tier tier)
{
    return (enum copy_state)(tier == CORE_HOST ? b->host_copy : b->disk_copy);
}
/* Whether all shards of b are in this tier, though readers may have to wait until these have been
 * checked. */
static inline bool copy_there(const struct block *b, enum core_tier tier)
{
    return 1u << copy_state(b, tier) & (1u << COPY_SUSPECT | 1u << COPY_CHECKING |
                                        1u << COPY_READY | 1u << COPY_FOR_PIN | 1u << COPY_DURABLE);
}
/* Whether b's copy on disk was written durably, for a commit, a pin or a name: a crash does not
 * lose it. */
static inline bool block_is_durable(const struct block *b)
{
    return b->disk_copy == COPY_FOR_PIN || b->disk_copy == COPY_DURABLE;
}
/* Whether b is being read into memory, or being checked there. */
static inline bool block_loading(const struct block *b)
{
    return b->host_copy == COPY_FILLING || b->host_copy == COPY_CHECKING;
}
/* Whether b is being written to disk. */
static inline bool block_saving(const struct block *b)
{
    return b->moving > 0 && !block_loading(b);
}
/* Whether b is in memory alone. */
static inline bool block_is_dirty(const struct block *b)
{
    return copy_there(b, CORE_HOST) && !copy_there(b, CORE_STORAGE);
}
static inline bool block_is_clean(const struct block *b)
{
    return b->parked == PARKED_CLEAN;
}
/* Whether b is in the policy's order of eviction. */
static inline bool block_in_policy(const struct block *b)
{
    return (b->flags & BLOCK_F_LINKED) && b->parked == PARKED_NOT &&
           (b->state == BLOCK_PENDING || copy_there(b, CORE_HOST));
}
/* Whether a lease may have b's copy in memory as it is. */
static inline bool block_ready(const struct block *b)
{
    return b->host_copy == COPY_READY;
}
/* Whether b is whole on disk, so that its copy in memory can be dropped without loss. */
static inline bool block_on_disk(const struct block *b)
{
    return b->state == BLOCK_PRESENT && copy_there(b, CORE_STORAGE);
}
static inline bool block_pinned(const struct block *b)
{
    return b->pins > 0;
}
/* Whether b's copy on disk was written durably for a commit, not for pins and names alone. */
static inline bool block_promised(const struct block *b)
{
    return b->disk_copy == COPY_DURABLE;
}
/* Whether b is not evicted for room, though nobody uses it. */
static inline bool block_stays(const struct block *b)
{
    return block_pinned(b) || block_is_durable(b);
}
/* Whether a name reaches b. */
static inline bool block_named(const struct core *c, const struct block *b)
{
    return c->named && c->named[block_no(c, b)].n > 0;
}
/* Whether b is marked as durable with all blocks before it, if only for names. */
static inline bool block_names_safe(const struct core *c, const struct block *b)
{
    return c->named && c->named[block_no(c, b)].safe;
}
/* Whether b must not be evicted for good: it is durable or pinned, or a name reaches it while any
 * name is being saved. */
static inline bool block_kept(const struct core *c, const struct block *b)
{
    return block_stays(b) || (c->names_saving && block_named(c, b));
}
/* Whether pins, names or commits bind b to this tier. */
static inline bool block_is_bound(const struct block *b, unsigned tier)
{
    return b->bound >> tier & 1u;
}
static inline bool part_claimed(const struct part *p)
{
    return p->state == PART_RESERVED && p->resv != CORE_NONE;
}

/* Whether the client's principal owns ns. */
static inline bool ns_is_of(const struct core_client *cl, const struct core_ns *ns)
{
    return ns->id && ns->principal == cl->who.principal;
}

/* A client's number, for the shares. */
static inline uint32_t client_no(const struct core *c, const struct core_client *cl)
{
    return pool_index(c->clients, cl);
}

/* A principal's index in the shares. Without principals_max all of them count as one. */
static inline uint32_t principal_index(const struct core *c, uint32_t principal)
{
    return c->cfg.principals_max ? principal - 1 : 0;
}

#endif
