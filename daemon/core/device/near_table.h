/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of near copies, the devices and their jobs: shared by near.c and the files
 * serve/near_*.c.
 */
#ifndef KVC_CORE_NEAR_INTERNAL_H
#define KVC_CORE_NEAR_INTERNAL_H

#include "near_core.h"

/* Jobs (sends, batches of fills, commits out of pages) that are under way at a time on a device. */
#define NEAR_JOBS_AUTO 256u
/* Blocks of a job whose bytes in host memory are checked at a time; one bit each. */
#define NEAR_SUMS 32u

/* A near copy: one shard of a block in a slot of a device. */
struct near_copy {
    uint32_t block, gen; /* the record of its block */
    uint32_t serial;     /* unique to this copy, also over time */
    uint32_t next;       /* next in its bucket, CORE_NONE; not set while NONE */
    struct tier_loc loc; /* 0: NONE, and its room was given back */
    uint32_t holds;      /* of leases */
    uint32_t copies;     /* in flight, to it or from it; and reads of verification */
    uint8_t device, shard;
    uint8_t state; /* enum copy_state: FILLING, READY, or NONE: lookups do not find it any more; it
                    * is freed with its last hold and its last copy in flight */
    bool mine;     /* it is of the lease that is being looked at; else false */
    struct list_node waiters; /* core_fill: fills that wait for its copy */
};

/* A client's queue before a device, each list in order of arrival. */
struct near_line {
    struct list_node node;         /* in near_device.lines, while it has entries */
    struct list_node ready, gated; /* core_transfer; gated: for a word that was not reached yet */
};

struct near_device {
    struct device *device;
    struct share share;        /* of jobs, by principal */
    struct share gated;        /* of jobs that wait for words, by client */
    struct near_line *line;    /* by client */
    struct list_node lines;    /* near_line: clients in the order of their turns */
    uint32_t ready_n, gated_n; /* core_transfer in them */
    struct policy *policy;     /* over numbers of near copies; NULL: the device has no room */
    void *policy_mem;
    struct core_near_stats stats;
};

/* One device copy: pieces of one size, consecutive among those of its job. */
struct near_part {
    struct device_copy copy;
    uint32_t first;
    uint32_t looked, looking; /* pieces that were checked, that are being checked; see near_sum.c */
    bool given;               /* it was given to the device */
    bool over;
};
/* The check of one block's bytes in host memory. */
struct near_sum {
    struct tier_op op;
    struct near_job *job;
    uint32_t part, piece; /* part: of the job; piece: of the part */
    struct hash128 want;
};
/* A job. Its pieces are near_piece(); near_what() stands beside each: for FILL and LOAD a near
 * copy's number or CORE_NONE, for STORE the number of the entry's core_op. */
struct near_job {
    struct list_node node; /* near_table.jobs */
    struct core *core;
    uint32_t owner; /* in near_table.share */
    const struct near_kind *kind;
    bool gated;      /* began before its word was reached: counted in dev->gated, */
    uint32_t holder; /* for this client */
    struct near_device *dev;
    struct lease *lease;            /* for FILL and LOAD: the lease, in use until the job ends */
    struct core_transfer *transfer; /* for LOAD and STORE: what it serves */
    uint32_t pieces, parts;
    uint32_t begun, left; /* parts that were submitted; parts that have not ended */
    uint32_t sums;        /* bit set: members of `sum` that are in flight */
    uint8_t rank;         /* the shard of its request */
    struct near_sum sum[NEAR_SUMS];
    struct near_part part[KVC_GROUPS_MAX];
};

/* What a job is for: a fill, a send (LOAD) or a commit out of pages (STORE). */
struct near_kind {
    enum device_copy_kind copy;
    /* Called when a part has ended. */
    void (*ended)(struct core *c, struct near_job *job, struct near_part *part);
    /* For a transfer that was queued: run, when it gets a job; drop, when it never will
     * (-ECANCELED, -ETIMEDOUT). */
    void (*run)(struct core *c, struct core_transfer *t, struct near_job *job);
    void (*drop)(struct core *c, struct core_transfer *t, int status);
};

struct near_table {
    struct pool *entries; /* near */
    uint32_t *bucket;     /* first near copy of each bucket */
    uint32_t buckets_log2;
    uint32_t serial;
    uint32_t ndevices;
    struct near_device dev[DEVICES_MAX];
    uint32_t jobs_each; /* jobs of each device */
    struct pool *jobs;
    struct list_node in_flight; /* near_job */
    struct device_piece *piece; /* CORE_SEND_BLOCKS for each job */
    uint32_t *what;
    uint32_t *from;   /* beside each piece: the block in host memory that is checked first,
                       * CORE_NONE */
    bool due;         /* the queues are to be looked at, */
    uint64_t look_ns; /* else at this time: deadlines, words */
};

static inline struct near_copy *near_at(const struct core *c, uint32_t no)
{
    return pool_at(c->near->entries, no);
}
static inline uint32_t near_no(const struct core *c, const struct near_copy *e)
{
    return pool_index(c->near->entries, e);
}
/* The shard under which a rank's part of b is kept. */
static inline uint32_t near_shard(struct core *c, const struct block *b, uint32_t shard)
{
    return block_shards(c, b) == 1 ? 0 : shard;
}

/* near.c */
/* The device's copy of b's shard; NULL: it has none. */
struct near_copy *near_find(const struct core *c, const struct block *b, uint32_t shard,
                            const struct near_device *dev);
/* Makes a new one, FILLING, whose copy counts as in flight, and takes its slot. KVC_E_FULL,
 * KVC_E_TOO_LARGE. */
int near_take(struct core *c, struct near_device *dev, const struct block *b, uint32_t shard,
              struct tier_loc beside, struct near_copy **ret_near) KVC_WARN_UNUSED;
/* Makes it NONE: lookups do not find it any more. */
void near_void(struct core *c, struct near_copy *e);
/* The copy into one that is FILLING has landed: it is READY. */
void near_ready(struct core *c, struct near_copy *e);
/* The copy into one has failed, or is not wanted any more: nobody was told of it, so its slot is
 * freed at once. */
void near_fail(struct core *c, struct near_copy *e);
/* Its bytes are wrong: changes its generation, so that readers notice. */
void near_revoke_one(struct core *c, struct near_copy *e);
/* A hold or a copy of it has ended: frees it if it is NONE, else it may be evicted again. */
void near_settle(struct core *c, struct near_copy *e);
/* Holds it for the lease. KVC_E_BUSY. */
int near_hold(struct core *c, struct lease *l, struct near_copy *e) KVC_WARN_UNUSED;
/* Sets `mine` of all copies that the lease holds, or clears it. */
void near_mark(struct core *c, const struct lease *l, bool mine);
uint64_t near_hash(struct core *c, const struct block *b, uint32_t shard);

#endif
