/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of HBM copies, the devices and their jobs: shared by hbm_copies.c and the files
 * serve/transfer*.c.
 */
#ifndef KVC_CORE_HBM_TABLE_H
#define KVC_CORE_HBM_TABLE_H

#include "hbm_copies.h"

/* The number of jobs (sends, batches of fills, commits out of pages) that are under way at a time
 * on a device, if the configuration does not set it. */
#define TRANSFERS_AUTO 256u
/* How many blocks of a job have their bytes in host memory checked at a time; one bit each. */
#define TRANSFER_SUMS 32u

/* An HBM copy: one shard of a block in a slot of a device. */
struct hbm_copy {
    uint32_t block, gen; /* the record of its block */
    uint32_t serial;     /* a number that no other copy ever has */
    uint32_t next; /* number of the next copy in its bucket, or CORE_NONE; not set while NONE */
    struct tier_loc loc;   /* its slot; 0: state is NONE, and the slot was freed */
    uint32_t holds;        /* number of holds, of leases and loads */
    uint32_t copies;       /* number of device copies in flight to it or from it, and of reads by
                            * verifications */
    uint8_t device, shard; /* number of its device; shard of its block */
    uint8_t state; /* enum copy_state: FILLING; READY; NONE: lookups do not find it any more, and it
                    * is freed when its last hold and its last copy in flight have ended */
    bool mine;     /* the lease that is being looked at holds it (hbm_copy_mark()); else false */
    struct list_node waiters; /* core_fill: fills that wait until it is READY */
};

/* A client's queue before a device, each list in order of arrival. */
struct transfer_line {
    struct list_node node; /* in hbm_device.lines, while it has entries */
    struct list_node ready,
        fenced; /* core_transfer; fenced: those whose word was not reached yet */
};

struct hbm_device {
    struct device *device;
    struct share share;         /* of jobs, by principal */
    struct share fenced;        /* of jobs that wait for words, by client */
    struct transfer_line *line; /* by client_no() */
    struct list_node lines;     /* transfer_line: clients in the order of their turns */
    uint32_t ready_n, fenced_n; /* number of transfers in `ready` and `fenced` of all lines */
    struct policy *policy;      /* over numbers of HBM copies; NULL: the device has no room */
    void *policy_mem;
    struct core_hbm_stats stats;
};

/* A part of a job, which is one device copy: pieces of one size, consecutive in the job. */
struct transfer_part {
    struct device_copy copy;
    uint32_t first; /* number of its first piece in the job */
    uint32_t looked,
        looking; /* number of pieces that were checked; that are being checked (transfer_sum.c) */
    bool given;  /* it was given to the device */
    bool over;   /* it has ended */
};
/* The check of one block's bytes in host memory. */
struct transfer_sum {
    struct tier_op op;
    struct transfer_job *job;
    uint32_t part, piece; /* part: of the job; piece: of the part */
    struct hash128 want;
};
/* A job. Its pieces are transfer_piece(); transfer_what() stands beside each: for FILL and LOAD an
 * HBM copy's number or CORE_NONE, for STORE the number of the entry's core_op. */
struct transfer_job {
    struct list_node node; /* hbm_table.in_flight */
    struct core *core;
    uint32_t principal_index; /* its holder in hbm_device.share: principal_index() */
    const struct transfer_kind *kind;
    bool fenced;     /* it began before its word was reached: it counts in dev->fenced */
    uint32_t holder; /* the client_no() for which it counts in dev->fenced */
    struct hbm_device *dev;
    struct lease *lease;            /* for FILL and LOAD: the lease, in use until the job ends */
    struct core_transfer *transfer; /* for LOAD and STORE: the transfer that it serves */
    uint32_t pieces, parts;         /* how many it has */
    uint32_t begun, left;           /* parts that were submitted; parts that have not ended */
    uint32_t sums;                  /* bit set: members of `sum` that are in flight */
    uint8_t rank;                   /* the shard of its request */
    struct transfer_sum sum[TRANSFER_SUMS];
    struct transfer_part part[KVC_GROUPS_MAX];
};

/* What a job is for: a fill, a send (LOAD) or a commit out of pages (STORE). */
struct transfer_kind {
    enum device_copy_kind copy;
    /* Called when a part has ended. */
    void (*ended)(struct core *c, struct transfer_job *job, struct transfer_part *part);
    /* For a transfer that was queued, one of them is called once: run() when it gets a job; drop()
     * when it is cancelled (-ECANCELED) or past its deadline (-ETIMEDOUT). */
    void (*run)(struct core *c, struct core_transfer *t, struct transfer_job *job);
    void (*drop)(struct core *c, struct core_transfer *t, int status);
};

struct hbm_table {
    struct pool *entries; /* hbm_copy */
    uint32_t *bucket;     /* by hash: number of the first HBM copy of each bucket, or CORE_NONE */
    uint32_t buckets_log2;
    uint32_t serial; /* of the copy that was made last */
    uint32_t ndevices;
    struct hbm_device dev[DEVICES_MAX];
    uint32_t jobs_each; /* jobs of each device */
    struct pool *jobs;
    struct list_node in_flight; /* transfer_job */
    struct device_piece *piece; /* CORE_SEND_BLOCKS for each job */
    uint32_t *what;             /* by piece: see struct transfer_job */
    uint32_t *from; /* by piece: the record whose bytes in host memory are checked before the copy;
                     * CORE_NONE: none */
    bool due;       /* the queues are to be looked at now */
    uint64_t look_ns; /* the time of the next look at them otherwise, for deadlines and words */
};

static inline struct hbm_copy *hbm_copy_at(const struct core *c, uint32_t no)
{
    return pool_at(c->hbm->entries, no);
}
static inline uint32_t hbm_copy_no(const struct core *c, const struct hbm_copy *e)
{
    return pool_index(c->hbm->entries, e);
}
/* The shard of b that rank `shard` reads: 0 if b has one shard, for all ranks. */
static inline uint32_t hbm_shard(struct core *c, const struct block *b, uint32_t shard)
{
    return block_shards(c, b) == 1 ? 0 : shard;
}

/* hbm_copies.c */
/* The device's copy of b's shard; NULL: it has none. */
struct hbm_copy *hbm_copy_find(const struct core *c, const struct block *b, uint32_t shard,
                               const struct hbm_device *dev);
/* Makes a new HBM copy and takes its slot. It is FILLING, and the device copy into it counts as in
 * flight. 0, KVC_E_FULL, KVC_E_TOO_LARGE. */
int hbm_copy_take(struct core *c, struct hbm_device *dev, const struct block *b, uint32_t shard,
                  struct tier_loc beside, struct hbm_copy **ret_copy) KVC_WARN_UNUSED;
/* The device copy into e, which is FILLING, has landed: makes e READY. */
void hbm_copy_ready(struct core *c, struct hbm_copy *e);
/* The device copy into e has failed, or is not wanted any more: frees the slot at once, because no
 * reader was told of it. */
void hbm_copy_fail(struct core *c, struct hbm_copy *e);
/* The bytes of e are wrong: changes its generation, so that readers notice. */
void hbm_copy_invalidate_one(struct core *c, struct hbm_copy *e);
/* To be called when a hold or a device copy of e has ended. If none is left, frees e if it is NONE
 * or its block is not PRESENT, else lets the policy evict it again. */
void hbm_copy_settle(struct core *c, struct hbm_copy *e);
/* Holds e for the lease. 0, KVC_E_BUSY. */
int hbm_copy_hold(struct core *c, struct lease *l, struct hbm_copy *e) KVC_WARN_UNUSED;
/* Sets `mine` of all copies that the lease holds, or clears it. */
void hbm_copy_mark(struct core *c, const struct lease *l, bool mine);
uint64_t hbm_copy_hash(struct core *c, const struct block *b, uint32_t shard);

#endif
