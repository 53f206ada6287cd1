/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A naive model of the core: plain arrays, linear rules, nothing ever reused. It is told what the
 * core was asked and what it answered where the core has a choice (what it evicts, what it has room
 * for), checks that the choice was allowed, and predicts all the rest.
 */
#ifndef KVC_TEST_MODEL_H
#define KVC_TEST_MODEL_H

#include <kvcache/rows.h>

#include "core.h"
#include "fake_device.h"
#include "fake_tier.h"

#define M_SHARDS_MAX  4
#define M_GROUPS_MAX  3
#define M_KEYS_MAX    160 /* of one group of one sequence */
#define M_CLIENTS_MAX 8
#define M_SEQS        12
#define M_PINS_MAX    6
#define M_DEVICES     2
#define M_BLOCKS_MAX  (M_KEYS_MAX * M_GROUPS_MAX) /* of one lease */
#define M_NONE        (-1)

/* Fails the run, and says which. */
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
    uint32_t ns, group; /* index into model.ns */
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
    uint32_t mark;        /* model.marks: counted this time */
    enum kvc_miss reason; /* once dead */
    int older;            /* the block before it in its bucket */
};

struct m_resv {
    uint64_t id;
    int client;
    uint32_t ns, group, shard, n;
    int block[M_KEYS_MAX]; /* M_NONE: not reserved */
};

/* Where a lease was told that a block's shard is on its device. */
struct m_hbm {
    uint32_t life; /* of the device, 0: it is not there */
    struct tier_view view;
};

struct m_lease {
    bool alive, held;                /* not released; its blocks are held */
    uint32_t uses;                   /* fills, copies of fills, sends that have not ended */
    int device;                      /* the one that it has been filled on, or M_NONE */
    struct m_hbm *hbm[M_SHARDS_MAX]; /* n each; NULL: nothing is known */
    uint64_t id;
    uint8_t ticket[KVC_TICKET_BYTES];
    int client;
    uint32_t tokens, ngroups, n;
    uint32_t ns;
    uint64_t bytes;
    int block[M_BLOCKS_MAX];
};

struct m_pin {
    uint64_t id; /* 0: free */
    int n, block[M_BLOCKS_MAX];
};

struct m_commit {
    struct core_commit c; /* first: what done() gets */
    struct model *model;
    uint32_t done; /* times done() ran */
    int client;
    bool cancelled;
    uint8_t *staging, *offsets;
    struct device_pool *pool; /* out of pages: the commit's own */
    uint32_t *pages;
    _Atomic uint64_t after;
    uint8_t statuses[M_KEYS_MAX], expect[M_KEYS_MAX];
};

struct m_copy {
    struct tier_op *op; /* NULL: over, or not begun by the tier: */
    const void *host;   /* where the device copies to; NULL: it does not */
    bool waits;         /* with its commit, for the device */
    struct m_commit *commit;
    uint32_t entry, shard;
    int block, client;
};

/* A sequence as the core is asked for it. */
struct m_seq {
    uint32_t ns, tokens, n[M_GROUPS_MAX];
    uint8_t keys[M_GROUPS_MAX][M_KEYS_MAX][KVC_KEY_BYTES];
};

struct m_waiter {
    struct core_waiter w; /* first: what fn gets */
    struct model *model;
    bool waiting;
    int client;
    uint32_t from, enough;
    struct m_seq seq;
};

struct m_fill {
    struct core_fill f; /* first: what done() gets */
    struct model *model;
    int lease, client;
    uint32_t life;  /* of the device when it began */
    uint32_t least; /* blocks that others held on the device then */
};

/* A copy of a fill. */
struct m_flight {
    struct device_copy *copy;
    int lease, client;
};

struct m_send {
    struct core_send s; /* first: what done() gets */
    struct model *model;
    int lease, client, device;
    bool begun;                       /* the device has it */
    bool cancelled, wrong;            /* wrong: the pool's blocks have other bytes */
    uint32_t first[M_GROUPS_MAX + 1]; /* block of the lease that each group begins with */
    uint32_t layers;
    struct device_pool *pool; /* its own */
    uint32_t *pages[M_GROUPS_MAX];
    _Atomic uint64_t after, ready;
    uint8_t statuses[M_BLOCKS_MAX], expect[M_BLOCKS_MAX];
};

struct m_client {
    enum { M_CLOSED, M_OPEN, M_QUARANTINED, M_CLOSING } state;
    struct core_client *cl;
    struct core_identity who;
    uint32_t copies, idle; /* idle: times the core said so */
    uint32_t hbm;          /* fills, copies of fills, sends that have not ended */
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
    uint32_t life[M_DEVICES]; /* grows when it is lost */
    uint64_t now_ns;
    struct core_client *admin;

    struct m_ns ns[512];
    uint32_t nns;
    struct m_block *block;
    int nblocks, cap, first_live; /* below first_live all are dead and let go */
    int bucket[4096];
    struct m_resv *resv;
    int nresv, cap_resv;
    struct m_lease *lease;
    int nleases, cap_lease;
    struct m_commit **commit;
    int ncommits, cap_commits;
    struct m_copy *copy;
    int ncopies, cap_copies;
    struct tier_op *put[M_KEYS_MAX]; /* submitted by the commit at hand */
    uint32_t nputs;
    struct m_pin pin[M_PINS_MAX];
    struct m_fill *fill[16];
    struct m_send *send[16];
    struct m_flight flight[256];
    uint32_t nflights, marks;
    const struct m_fill *filling; /* whose copies are being submitted */
    struct m_waiter *waiter[16];
    struct m_client client[M_CLIENTS_MAX];
    int share_of[M_SEQS];        /* the sequence that it shares a beginning with */
    uint32_t share_part[M_SEQS]; /* how much of it, in 64ths */
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
/* Of the shards that are stored. */
uint32_t m_shards_done(const struct m_block *b);
uint64_t m_bytes_present(const struct model *m, const struct m_block *b);
/* In use at or below. */
bool m_is_kept(const struct model *m, int block);
bool m_resv_alive(const struct model *m, int resv);
uint32_t m_records(const struct model *m, uint32_t ns);

/* ---- lookup ---- */
struct m_hit {
    uint32_t tokens; /* the hit */
    uint32_t most;   /* what it would be if all that is pending were there */
    uint32_t lead[M_GROUPS_MAX], first[M_GROUPS_MAX], end[M_GROUPS_MAX]; /* needed blocks */
    int block[M_GROUPS_MAX][M_KEYS_MAX];
    bool any_pending;
};
void m_lookup(const struct model *m, const struct m_seq *s, struct m_hit *ret);
void m_check_reasons(struct model *m, const struct m_seq *s, const struct m_hit *hit,
                     const struct core_prefix *prefix);

/* ---- the core against the model ---- */
/* The core has nothing of that name any more, or another. */
/* The rows of a key in a namespace. */
void m_tell(const struct model *m, uint32_t ns, const uint8_t *key,
            void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx);
bool m_was_replaced(const struct model *m, int block);
/* Finds out what the core evicted; it must have been allowed to. */
void m_sync(struct model *m, bool may_evict);
void m_check_totals(struct model *m);
void m_check_lease(struct model *m, int lease);
/* Released, and nothing uses it: its blocks are free. */
void m_lease_settle(struct model *m, int lease);
/* Where a filled lease's blocks are; returns how many are on the device. */
uint32_t m_check_hbm(struct model *m, int lease, uint32_t shard);

#endif
