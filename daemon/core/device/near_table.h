/* SPDX-License-Identifier: Apache-2.0 */
/* Shared among the core's files of devices. */
#ifndef KVC_CORE_NEAR_INTERNAL_H
#define KVC_CORE_NEAR_INTERNAL_H

#include "near_core.h"

/* Sends, batches of fills, and commits out of pages, under way at a time on a device. */
#define NEAR_JOBS_AUTO 256u
/* Blocks of a job whose bytes in host memory are being checked at a time; one bit each. */
#define NEAR_SUMS 32u

/* A near copy: one shard of a block in a slot of a device. */
struct near_copy {
    uint32_t block, gen; /* its record */
    uint32_t serial;     /* no other has or had it */
    uint32_t next;       /* of its bucket, CORE_NONE; not of what is NONE */
    struct tier_loc loc; /* 0: NONE, and its room has been given back */
    uint32_t holds;      /* of leases */
    uint32_t copies;     /* in flight, to it or from it; and reads of verification */
    uint8_t device, shard;
    uint8_t state; /* enum copy_state: FILLING, READY, or NONE: not found any more, it goes
                    * with its last hold and its last copy in flight */
    bool mine;     /* of the lease that is being looked at; else false */
    struct list_node waiters; /* core_fill: wait for its copy */
};

/* What a client has waiting before a device, each list in order of arrival. */
struct near_line {
    struct list_node node;         /* near_device.lines, while it has some */
    struct list_node ready, gated; /* core_turn; gated: for a word that has not come */
};

struct near_device {
    struct device *device;
    struct share share;        /* of jobs, by principal */
    struct share gated;        /* of jobs that wait for words, by client */
    struct near_line *line;    /* by client */
    struct list_node lines;    /* who is next */
    uint32_t ready_n, gated_n; /* core_turn in them */
    struct policy *policy;     /* over numbers of near copies; NULL: there is no room on it */
    void *policy_mem;
    struct core_near_stats stats;
};

/* What one device copy is about: pieces of one size, one after the other among those of its job. */
struct near_part {
    struct device_copy copy;
    uint32_t first;
    uint32_t looked, looking; /* pieces that were, that are being checked; see near_sum.c */
    bool given;               /* to the device */
    bool over;
};
/* One block's bytes in host memory, being checked. */
struct near_sum {
    struct tier_op op;
    struct near_job *job;
    uint32_t part, piece; /* of the job; of the part */
    struct hash128 want;
};
/* Pieces are near_piece()'s; `what` stands beside each: of FILL and LOAD a near copy's number or
 * CORE_NONE, of STORE the number of the entry's core_op. */
struct near_job {
    struct list_node node; /* near_table.jobs */
    struct core *core;
    uint32_t owner; /* in near_table.share */
    const struct near_kind *kind;
    bool gated;      /* began before its word came: counted in dev->gated, */
    uint32_t holder; /* for this client */
    struct near_device *dev;
    struct lease *lease;    /* of FILL and LOAD: in use */
    struct core_turn *turn; /* of LOAD and STORE: whose it is */
    uint32_t pieces, parts;
    uint32_t begun, left; /* parts that were submitted; that have not ended */
    uint32_t sums;        /* bit set of `sum`: in flight */
    uint8_t rank;         /* the shard of its request */
    struct near_sum sum[NEAR_SUMS];
    struct near_part part[KVC_GROUPS_MAX];
};

/* What a job is for. */
struct near_kind {
    enum device_copy_kind copy;
    /* A part has ended. */
    void (*ended)(struct core *c, struct near_job *job, struct near_part *part);
    /* Of one that has waited: its turn has come, or (-ECANCELED, -ETIMEDOUT) it never will. */
    void (*run)(struct core *c, struct core_turn *turn, struct near_job *job);
    void (*drop)(struct core *c, struct core_turn *turn, int status);
};

struct near_table {
    struct pool *entries; /* near */
    uint32_t *bucket;     /* first near copy of each */
    uint32_t buckets_log2;
    uint32_t serial;
    uint32_t ndevices;
    struct near_device dev[DEVICES_MAX];
    uint32_t jobs_each; /* of each device */
    struct pool *jobs;
    struct list_node in_flight; /* near_job */
    struct device_piece *piece; /* CORE_SEND_BLOCKS for each job */
    uint32_t *what;
    uint32_t *from;   /* beside each: the block in host memory that is checked first, CORE_NONE */
    bool due;         /* who waits is to be looked at, */
    uint64_t look_ns; /* else then: deadlines, words */
};

static inline struct near_copy *near_at(const struct core *c, uint32_t no)
{
    return pool_at(c->near->entries, no);
}
static inline uint32_t near_no(const struct core *c, const struct near_copy *e)
{
    return pool_index(c->near->entries, e);
}
/* The shard under which a rank's part of it is kept. */
static inline uint32_t near_shard(struct core *c, const struct block *b, uint32_t shard)
{
    return block_shards(c, b) == 1 ? 0 : shard;
}

/* near.c */
/* NULL: the device has none. */
struct near_copy *near_find(const struct core *c, const struct block *b, uint32_t shard,
                            const struct near_device *dev);
/* A new one, FILLING, whose copy counts as in flight. KVC_E_FULL, KVC_E_TOO_LARGE. */
int near_take(struct core *c, struct near_device *dev, const struct block *b, uint32_t shard,
              struct tier_loc beside, struct near_copy **ret_near) KVC_WARN_UNUSED;
/* Not found any more. */
void near_void(struct core *c, struct near_copy *e);
/* The copy into one has ended: it has landed, and is FILLING. */
void near_ready(struct core *c, struct near_copy *e);
/* It has not, or is not wanted any more: nobody was told of it, so its room goes at once. */
void near_fail(struct core *c, struct near_copy *e);
/* Its bytes are wrong: who reads it is told by the generation. */
void near_revoke_one(struct core *c, struct near_copy *e);
/* A hold or a copy of it has ended: it is freed if it is of no use, else it may go again. */
void near_settle(struct core *c, struct near_copy *e);
/* For the lease. KVC_E_BUSY. */
int near_hold(struct core *c, struct lease *l, struct near_copy *e) KVC_WARN_UNUSED;
/* Sets `mine` of all that the lease holds, or clears it. */
void near_mark(struct core *c, const struct lease *l, bool mine);
uint64_t near_hash(struct core *c, const struct block *b, uint32_t shard);

#endif
