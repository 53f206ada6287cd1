/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside daemon/core only. Everything here belongs to the control thread. */
#ifndef KVC_CORE_INTERNAL_H
#define KVC_CORE_INTERNAL_H

#include "core.h"
#include "flight.h"
#include "pool.h"
#include "share.h"

#define CORE_RUN_ENTRIES 31
#define CORE_AGE_SHIFT   4 /* a record's time of last use is kept in units of 16 ms */

enum block_state { BLOCK_FREE, BLOCK_PENDING, BLOCK_PRESENT, BLOCK_DYING };

enum block_flag {
    BLOCK_F_LINKED = 1,   /* in the index, the forest and the policy */
    BLOCK_F_WAITED = 2,   /* some waiter names it */
    BLOCK_F_PARTS = 8,    /* `where` is a list of parts, not a location */
    BLOCK_F_CORRUPT = 16, /* DYING: its bytes are not those that were stored */
    BLOCK_F_KEEP = 4      /* an eviction job found something in use at or below it */
};

#define BLOCK_COPIES_MAX 511u

/* One block: 80 bytes. The first cache line answers a lookup. */
struct block {
    struct key256 key;
    uint16_t ns; /* slot in core->ns */
    uint8_t group;
    uint8_t state;   /* enum block_state */
    uint32_t leases; /* holders: leases, and a reservation that is linking children to it */
    uint32_t used;   /* last use, core->now_ms >> CORE_AGE_SHIFT */
    uint16_t tokens : 11;
    uint16_t flags : 5;          /* enum block_flag */
    uint16_t shards_present : 7; /* of at most KVC_SHARDS_MAX */
    uint16_t copies : 9;         /* tier operations in flight, at most BLOCK_COPIES_MAX */
    uint32_t where; /* head of its parts, or the tier_loc.id of a present block of one shard */
    uint32_t gen;   /* grows when the record is given to another block */
    uint32_t children;
    uint32_t parent, child, next, prev; /* forest: record numbers or CORE_NONE */
    uint32_t depth;
};

enum part_state { PART_RESERVED = 1, PART_COPYING, PART_DONE };

/* One shard of a block that is being written, or of a block with several shards. */
struct part {
    struct tier_loc loc;
    uint32_t next;
    uint32_t resv; /* pool index of the reservation, CORE_NONE once committed */
    uint8_t shard;
    uint8_t state; /* enum part_state */
};

struct run_entry {
    uint32_t block, gen;
};
/* A piece of a list of blocks; leases and reservations are lists of runs. */
struct run {
    uint32_t next; /* pool index or CORE_NONE */
    uint32_t n;
    struct run_entry e[CORE_RUN_ENTRIES];
};

struct run_list {
    uint32_t head, tail; /* pool indices or CORE_NONE */
    uint32_t n;
};

struct core_ns {
    uint32_t id; /* slot in the low 16 bits, generation above; 0 = free slot */
    uint32_t principal;
    const char *tenant;
    struct core_ns_spec spec;
    struct key256 print; /* of identity and spec: equal prints are one namespace */
    struct key256 seed;
    uint64_t records;       /* not free, dying ones too: keeps the slot */
    uint64_t blocks, bytes; /* present */
    uint64_t used_ms;       /* when a session last named it */
};

struct core_client {
    struct core_identity who;
    void (*idle)(void *ctx);
    void *ctx;
    struct list_node leases, reservations, commits;
    uint64_t lease_bytes, claim_bytes; /* claim: reserved and not committed */
    uint32_t copies; /* in flight out of its staging, and the slice that reads for it */
    bool verifying;  /* such a slice is under way */
    bool closing;
};

struct lease {
    struct list_node node;
    uint64_t id;
    uint8_t ticket[KVC_TICKET_BYTES];
    struct core_client *client;
    uint64_t bytes;
    struct run_list blocks;
    uint32_t ngroups, tokens;
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
    uint32_t n, open; /* keys; keys not committed or dropped yet */
    uint8_t shard;
    struct run_list blocks;
};

struct core_op {
    struct tier_op op;
    struct list_node node; /* core->copying */
    struct core *core;
    struct core_client *client;
    struct core_commit *commit;
    uint32_t index; /* into commit->statuses */
    uint32_t block;
    uint32_t part;
};

struct verify_op {
    struct tier_op op;
    struct list_node node; /* core->verifying */
    struct core *core;
    struct core_verify *slice;
    uint32_t block;
    uint8_t index, shard; /* of slice->block; of the block */
};

struct core {
    struct core_config cfg;
    uint64_t now_ns, now_ms;
    struct core_metrics m;

    struct block *blocks;
    uint32_t blocks_high, free_head; /* never used above high; free records chain through next */
    uint32_t blocks_used;

    uint64_t *table; /* record number + 1 in the low half, tag above; 0 = empty */
    uint32_t table_size;
    uint64_t hash_secret[4];

    uint32_t *ghost; /* 4-way buckets of tag << 3 | reason */
    uint32_t ghost_buckets;

    struct policy *policy;
    void *policy_mem;

    struct pool *parts, *runs, *leases, *reservations, *ops, *verify_ops, *clients;
    /* Who has how much of these pools, by client; of `ns` by principal. */
    struct share run_share, lease_share, resv_share, op_share, ns_share;
    struct share slice_share; /* of slices under way, by principal */
    uint32_t *attached;       /* clients by principal */
    uint64_t lease_serial, resv_serial;

    struct core_ns *ns; /* cfg.namespaces_max */
    uint32_t ns_serial;
    struct sha256 *sha;

    struct list_node waiting, woken; /* core_waiter */
    struct list_node jobs;           /* core_evict_job */
    struct list_node copying;        /* core_op */
    struct list_node slices;         /* core_verify */
    struct list_node verifying;      /* verify_op */

    uint8_t random[512];
    uint32_t random_at;

    uint32_t found[KVC_KEYS_MAX]; /* scratch of one lookup: record numbers by group and block */
    uint32_t runlen[KVC_KEYS_MAX];
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
struct block *index_get(struct core *c, const struct core_ns *ns, uint32_t group,
                        const uint8_t *key);
void index_add(struct core *c, struct block *b);
void index_del(struct core *c, const struct block *b);
void ghost_note(struct core *c, const struct block *b, enum kvc_miss reason);
enum kvc_miss ghost_find(const struct core *c, uint64_t hash);
uint32_t index_table_size(uint32_t blocks_max);

/* block.c */
struct block *block_new(struct core *c); /* NULL: all in use */
void block_link(struct core *c, struct block *b, struct block *parent);
/* A new record that was never linked goes back. */
void block_abandon(struct core *c, struct block *b);
/* Unserved from now on: out of index, forest and policy; its room goes when nothing uses it. The
 * reason is what later lookups are told. No child may be left. */
void block_kill(struct core *c, struct block *b, enum kvc_miss reason);
/* The same for everything below it too, leaves first. */
void block_kill_tree(struct core *c, struct block *b, enum kvc_miss reason);
/* Frees the record of a DYING block that nothing uses any more. */
void block_settle(struct core *c, struct block *b);
void block_hold(struct block *b);
void block_unhold(struct core *c, struct block *b);
/* What kept it from being evicted may have ended: the policy hears of it. */
void block_freed(struct core *c, struct block *b, bool last_child);
void block_touch(struct core *c, struct block *b);
/* Touches b and its ancestors until one that was touched in this instant; keeps the order that
 * policies rely on. */
void block_touch_path(struct core *c, struct block *b);
struct part *block_part(struct core *c, const struct block *b, uint32_t shard);
struct tier_loc block_loc(struct core *c, const struct block *b, uint32_t shard);
/* All shards are there. */
void block_publish(struct core *c, struct block *b);
/* Walks a subtree, children before parents: first, then next until CORE_NONE. Ask for the next
 * before the block at hand is killed. */
uint32_t block_walk_first(const struct core *c, uint32_t root);
uint32_t block_walk_next(const struct core *c, uint32_t root, uint32_t no);
/* Somebody reads it, or has announced to write a part of it. A block of which some shards are
 * stored and nobody has announced the others is not in use: the other ranks may never come. */
bool block_in_use(struct core *c, const struct block *b);
/* Of a block that is linked. */
bool block_can_evict(void *ctx, uint32_t block_no);
void core__wake(struct core *c, const struct block *b);

/* runs: lists of blocks in fixed pieces */
void run_init(struct run_list *l);
/* KVC_E_BUSY: the pool is empty, or the client has its share. */
int run_push(struct core *c, const struct core_client *cl, struct run_list *l, uint32_t block,
             uint32_t gen) KVC_WARN_UNUSED;
void run_free(struct core *c, const struct core_client *cl, struct run_list *l);
struct run_iter {
    const struct run *r;
    uint32_t i;
};
struct run_iter run_begin(struct core *c, const struct run_list *l);
const struct run_entry *run_next(struct core *c, struct run_iter *it);

/* evict.c */
/* Room in the host tier, evicting on demand. 0, KVC_E_FULL, KVC_E_TOO_LARGE. */
int room_take(struct core *c, uint32_t principal, uint32_t bytes, struct tier_loc near,
              uint32_t owner, struct tier_loc *ret_loc) KVC_WARN_UNUSED;
/* One victim of the policy goes; false when there is none. */
bool evict_one(struct core *c);

/* ns.c */
bool ns_visible(const struct core_client *cl, const struct core_ns *ns);
struct core_ns *ns_by_id(struct core *c, uint32_t id);
/* Bit set of fields in which two namespaces differ. */
uint32_t ns_diff(const struct core_ns *a, const struct core_ns *b);

/* find.c */
/* What is remembered of a key that is not there: KVC_MISS_NEVER when nothing is. */
enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key);
/* Why `key` is not there; looks into sibling namespaces too. */
enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail);

/* verify.c */
/* Asks the client's slices to stop. */
void verify_cancel_all(struct core *c, const struct core_client *cl);

/* write.c */
/* What a client waits for before it is gone may have ended. */
void core__client_settle(struct core *c, struct core_client *cl);
/* One entry of a reservation is committed or dropped; the last one frees it. */
void resv_close_entry(struct core *c, struct reservation *r);
void resv_drop_all(struct core *c, struct reservation *r);

/* core.c */
uint32_t core__slices_max(const struct core_config *cfg);
/* Of a block that is linked. */
void core__explain(struct core *c, const struct block *b, struct core_explanation *x);

/* lease.c */
void lease_free(struct core *c, struct lease *l);

#endif
