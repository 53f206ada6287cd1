/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory that the daemon will allocate, computed before it is allocated: one line per part with
 * its reason, a total, and the limit that the total must stay under. The configuration's "auto"
 * values are decided from these sums.
 *
 * A start allocates what the lines say and no more. Runs before any other thread.
 */
#ifndef KVC_BUDGET_H
#define KVC_BUDGET_H

#include "config.h"

#define BUDGET_LINES_MAX    24u
#define BUDGET_REASON_BYTES 68u
#define BUDGET_TABLE_BYTES  4096u
#define BUDGET_SOURCE_BYTES 512u

/* How much memory there is for this process. */
struct budget_limit {
    uint64_t bytes;
    char source[BUDGET_SOURCE_BYTES]; /* the file that says so: ".../memory.max" or "MemTotal" */
};

/*
 * The lowest memory.max and memory.high of this process's cgroup and those above it (version 2),
 * else the lowest memory.limit_in_bytes (version 1); MemTotal where no limit is set, or where it is
 * lower. `root` is put before /proc and /sys/fs/cgroup; it is "" outside of tests. 0, or a negative
 * errno: /proc/meminfo cannot be read, or descriptors or memory are out (-EMFILE, -ENFILE, -ENOMEM)
 * where a cgroup's file is read. So a limit that could not be read never counts as no limit.
 */
KVC_WARN_UNUSED int budget_memory_limit(const char *root, struct budget_limit *ret);

/* Bytes that each part takes under a configuration without "auto", as computed by that part. */
struct budget_inputs {
    uint64_t
        host_footprint_bytes; /* slots of host.limit with headers, tables and rounding to chunks */
    uint64_t index_bytes;     /* of index.blocks */
    uint64_t policy_bytes;    /* of index.blocks */
    uint64_t lease_bytes;     /* of limits.leases, their lists of blocks and waiters */
    uint64_t session_bytes;   /* of limits.sessions and limits.requests, without staging */
    uint64_t namespace_bytes; /* of limits.namespaces */
    uint64_t names_bytes;     /* of limits.names and limits.name_tokens */
    uint64_t flight_bytes;    /* of flight.records */
    uint64_t copy_bytes;      /* of copy.threads: stacks and queues */
    uint64_t front_bytes;     /* loop, ZeroMQ queues and message buffers */
    uint64_t nvme_bytes;      /* of the storage tier: index, queues, tables being written */
    uint64_t journal_bytes;   /* of the journal: pages of its file that are in use */
    uint64_t device_bytes;    /* of devices: headers, tables, memory of emulated ones */
    uint64_t hbm_bytes;       /* of the copies on devices for which the index has room */
};

/* Must succeed. No value may fall when host.limit rises. */
typedef void budget_inputs_fn(const struct config *cfg, void *ctx, struct budget_inputs *ret);

struct budget_line {
    const char *name;
    const char *key; /* the key to lower when the total is too large; NULL: none lowers this line */
    uint64_t bytes;
    char reason[BUDGET_REASON_BYTES];
};

struct budget {
    struct budget_line lines[BUDGET_LINES_MAX];
    unsigned nlines;
    uint64_t total_bytes;
    uint64_t budget_bytes; /* memory.budget, decided */
    char budget_reason[BUDGET_REASON_BYTES];
    struct budget_limit limit;
};

/* The lines and their total. cfg has no "auto" left (MUST). */
void budget_compute(const struct config *cfg, const struct budget_inputs *inputs,
                    struct budget *ret);

/*
 * Decides every "auto" of cfg and checks the whole again. 0: *cfg has no "auto" left, and
 * *ret_budget tells how it adds up. -EINVAL: the values contradict each other or do not fit the
 * limit; *ret_errors says which key to change, *cfg is as it was, and *ret_budget is filled if it
 * got that far, else its nlines is 0.
 */
KVC_WARN_UNUSED int config_resolve_auto(struct config *cfg, const struct budget_limit *limit,
                                        budget_inputs_fn *inputs, void *ctx,
                                        struct budget *ret_budget,
                                        struct config_errors *ret_errors);

/* The table as people read it, at most 100 columns wide, each line ending in a newline; buf. */
const char *budget_format(const struct budget *b, char *buf, size_t cap);

#endif
