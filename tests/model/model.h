/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A naive model of the core: plain arrays, linear searches, no reuse of anything. It is told what
 * the core was asked. Where the core has a choice (which block to evict, whether there is room), it
 * is told the choice too and checks that the core may choose so. It predicts everything else.
 */
#ifndef KVC_TEST_MODEL_H
#define KVC_TEST_MODEL_H

#include <kvcache/rows.h>

#include "core.h"
#include "fake_device.h"
#include "fake_tier.h"

#define M_SHARDS_MAX  4
#define M_GROUPS_MAX  3
#define M_KEYS_MAX    160 /* most keys of a group in a sequence */
#define M_CLIENTS_MAX 8
#define M_SEQS        12
#define M_PINS_MAX    6
#define M_DEVICES     2
#define M_BLOCKS_MAX  (M_KEYS_MAX * M_GROUPS_MAX) /* most blocks of a lease */
#define M_NONE        (-1)

/* Fails the run and prints the condition. */
#define HOLDS(m, cond) ((cond) ? (void)0 : model_fail((m), __FILE__, __LINE__, #cond))

enum m_state { M_PENDING, M_PRESENT, M_DEAD };
enum m_shard_state { M_ABSENT, M_RESERVED, M_COPYING, M_DONE };

struct m_ns {
    bool alive;
    uint32_t id, principal;
    struct core_ns_spec spec;
    uint32_t tokens_max;
};

struct m_block {
    uint32_t ns, group; /* indexes of model.ns and of its group */
    uint8_t key[KVC_KEY_BYTES];
    uint32_t tokens;
    enum m_state state;
    int parent;
    struct {
        enum m_shard_state state;
        int resv;
    } shard[M_SHARDS_MAX];
    uint32_t leases, copies;
    uint32_t pins;
    uint32_t mark;        /* equals model.marks: the block is counted already in this walk */
    enum kvc_miss reason; /* valid for a dead block */
    int older;            /* next block of the hash bucket; made earlier */
};

struct m_resv {
    uint64_t id;
    int client;
    uint32_t ns, group, shard, n;
    int block[M_KEYS_MAX]; /* M_NONE: not reserved */
};

/* Where a lease was told that a shard of a block is on its device. */
struct m_hbm {
    uint32_t life; /* life of the device (model.life); 0: the shard is not on it */
    struct tier_view view;
};

struct m_lease {
    bool alive, held;                /* alive: not released; held: its blocks are held */
    uint32_t uses;                   /* fills, copies of fills and sends that have not ended */
    int device;                      /* device of its fills, or M_NONE */
    struct m_hbm *hbm[M_SHARDS_MAX]; /* n entries for each shard; NULL: no fill has ended */
    uint64_t id;
    uint8_t ticket[KVC_TICKET_BYTES];
    int client;
    uint32_t tokens, ngroups, n;
    uint32_t ns;
    uint64_t bytes;
    int block[M_BLOCKS_MAX];
};

struct m_pin {
    uint64_t id; /* 0: the entry is free */
    int n, block[M_BLOCKS_MAX];
};

struct m_commit {
    struct core_commit c; /* must be first: done() gets it */
    struct model *model;
    uint32_t done; /* how often done() ran */
    int client;
    bool cancelled;
    uint8_t *staging, *offsets;
    struct device_pool *pool; /* pool of a commit out of pages */
    uint32_t *pages;
    _Atomic uint64_t after;
    uint8_t statuses[M_KEYS_MAX], expect[M_KEYS_MAX];
};

struct m_copy {
    struct tier_op *op; /* NULL: ended, or not begun by the tier */
    const void *host;   /* host memory to which a device copies; NULL: no device copies */
    bool waits;         /* waits with its commit for the device */
    struct m_commit *commit;
    uint32_t entry, shard;
    int block, client;
};

/* A sequence in the form in which the core is asked for it. */
struct m_seq {
    uint32_t ns, tokens, n[M_GROUPS_MAX];
    uint8_t keys[M_GROUPS_MAX][M_KEYS_MAX][KVC_KEY_BYTES];
};

struct m_waiter {
    struct core_waiter w; /* must be first: fn gets it */
    struct model *model;
    bool waiting;
    int client;
    uint32_t from, enough;
    struct m_seq seq;
};

struct m_fill {
    struct core_fill f; /* must be first: done() gets it */
    struct model *model;
    int lease, client;
    uint32_t life;  /* life of the device when the fill began */
    uint32_t least; /* blocks that others held on the device when the fill began */
};

/* A device copy of a fill. */
struct m_flight {
    struct device_copy *copy;
    int lease, client;
};

struct m_send {
    struct core_send s; /* must be first: done() gets it */
    struct model *model;
    int lease, client, device;
    bool begun;                       /* the device has its copy */
    bool cancelled, wrong;            /* wrong: the blocks of its pool have other sizes */
    uint32_t first[M_GROUPS_MAX + 1]; /* the first block of each group in the lease */
    uint32_t layers;
    struct device_pool *pool; /* belongs to this send */
    uint32_t *pages[M_GROUPS_MAX];
    _Atomic uint64_t after, ready;
    uint8_t statuses[M_BLOCKS_MAX], expect[M_BLOCKS_MAX];
};

struct m_client {
    enum { M_CLOSED, M_OPEN, M_QUARANTINED, M_CLOSING } state;
    struct core_client *cl;
    struct core_identity who;
    uint32_t copies, idle; /* idle: how often the core reported it idle */
    uint32_t hbm;          /* fills, copies of fills and sends that have not ended */
    uint64_t lease_bytes;
};

struct model {
    uint64_t seed, random;
    uint32_t turn, last;
    struct core *core;
    struct core_config cfg;
    struct fake_tier *tier;
    struct fake_device *device[M_DEVICES];
    struct device *devices[M_DEVICES];
    uint32_t life[M_DEVICES]; /* grows each time that the device is lost */
    uint64_t now_ns;
    struct core_client *admin;

    struct m_ns ns[512];
    uint32_t nns;
    struct m_block *block;
    int nblocks, cap, first_live; /* all blocks below first_live are dead and forgotten */
    int bucket[4096];
    struct m_resv *resv;
    int nresv, cap_resv;
    struct m_lease *lease;
    int nleases, cap_lease;
    struct m_commit **commit;
    int ncommits, cap_commits;
    struct m_copy *copy;
    int ncopies, cap_copies;
    struct tier_op *put[M_KEYS_MAX]; /* submitted by the commit that is being begun */
    uint32_t nputs;
    struct m_pin pin[M_PINS_MAX];
    struct m_fill *fill[16];
    struct m_send *send[16];
    struct m_flight flight[256];
    uint32_t nflights, marks;
    const struct m_fill *filling; /* the fill whose copies are being submitted */
    struct m_waiter *waiter[16];
    struct m_client client[M_CLIENTS_MAX];
    int share_of[M_SEQS]; /* for each sequence another one with which it shares its beginning */
    uint32_t share_part[M_SEQS]; /* the shared part, in 64ths */
};

_Noreturn void model_fail(const struct model *m, const char *file, int line, const char *cond);
uint32_t rnd(struct model *m, uint32_t below);

/* ---- sequences ---- */
void m_seq_make(struct model *m, uint32_t ns, uint32_t which, uint32_t tokens, bool partial,
                struct m_seq *ret);
void m_seq_core(const struct model *m, const struct m_seq *s, struct core_ns *ns,
                struct core_seq *ret);

/* ---- blocks ---- */
int m_find(const struct model *m, uint32_t ns, uint32_t group, const uint8_t *key);
int m_block_new(struct model *m, uint32_t ns, uint32_t group, const uint8_t *key, uint32_t tokens,
                int parent);
void m_kill_tree(struct model *m, int block, enum kvc_miss reason);
bool m_has_children(const struct model *m, int block);
bool m_in_use(const struct model *m, int block);
bool m_may_evict(const struct model *m, int block);
uint32_t m_shards(const struct model *m, const struct m_block *b);
uint64_t m_bytes(const struct model *m, const struct m_block *b);
/* m_shards_done() counts the shards that are stored. */
uint32_t m_shards_done(const struct m_block *b);
uint64_t m_bytes_present(const struct model *m, const struct m_block *b);
/* Whether the block, or one that builds on it, is in use. */
bool m_is_kept(const struct model *m, int block);
bool m_resv_alive(const struct model *m, int resv);
uint32_t m_records(const struct model *m, uint32_t ns);

/* ---- lookup ---- */
struct m_hit {
    uint32_t tokens; /* tokens of the hit */
    uint32_t most;   /* tokens of the hit if all pending blocks were present */
    /* Blocks that the hit needs. */
    uint32_t lead[M_GROUPS_MAX], first[M_GROUPS_MAX], end[M_GROUPS_MAX];
    int block[M_GROUPS_MAX][M_KEYS_MAX];
    bool any_pending;
};
void m_lookup(const struct model *m, const struct m_seq *s, struct m_hit *ret);
void m_check_reasons(struct model *m, const struct m_seq *s, const struct m_hit *hit,
                     const struct core_prefix *prefix);

/* ---- comparing the core with the model ---- */
/* Calls fn for each row that the core has about a key in a namespace. */
void m_tell(const struct model *m, uint32_t ns, const uint8_t *key,
            void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx);
/* Whether the core has no block with this key any more, or another one. */
bool m_was_replaced(const struct model *m, int block);
/* Finds out which blocks the core evicted, and checks that it was allowed to. */
void m_sync(struct model *m, bool may_evict);
void m_check_totals(struct model *m);
void m_check_lease(struct model *m, int lease);
/* Frees the blocks of a lease that is released and not in use. */
void m_lease_settle(struct model *m, int lease);
/* Checks where the blocks of a filled lease are. Returns how many are on the device. */
uint32_t m_check_hbm(struct model *m, int lease, uint32_t shard);

#endif
