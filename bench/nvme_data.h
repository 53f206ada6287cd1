/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks on storage for `kvcachebench nvme`, and reading and writing them through the daemon. One
 * thread and one session with many requests in flight. Each request uses its own part of the
 * session's staging, which must hold all that one request stores. Functions return 0, or an enum
 * bench_exit after printing what is wrong.
 */
#ifndef BENCH_NVME_DATA_H
#define BENCH_NVME_DATA_H

#include "perf.h"

/* Bytes that one request asks for; a block that is larger is asked for alone. */
#define NVME_UNIT_BYTES (UINT64_C(2) << 20)
#define NVME_DEPTH_MAX  64

/* Blocks on storage, as units: chains of `chain` blocks. A request reads a whole unit. */
struct nvme_data {
    struct kvc_ns *ns;
    uint64_t block_bytes;
    uint32_t chain, units;
    /* Neighbours in a unit, and units read in turn, do not lie side by side on storage. */
    bool scattered;
    uint8_t *keys;   /* keys of the blocks, unit by unit */
    uint32_t *order; /* the order in which units are read, again and again */
    uint64_t next;
};

/* What the daemon says of its storage tier up to now. The difference of two says what was done in
 * between. */
struct nvme_counts {
    bool there; /* the daemon has a storage tier */
    uint64_t accepted_bytes, written_bytes, read_bytes, writes, reads, gets;
    uint64_t now_ns, cpu_ns;
};
BENCH_MUST_USE int nvme_counts(struct perf_session *session, struct nvme_counts *ret_counts);

/* Stores about `bytes` of blocks in a new namespace and waits until they are on disk. After each
 * step_bytes, a small part of the daemon's memory, it waits too. scattered: it stores the first
 * block of every unit, then the second of every unit, and so on, like turns of many conversations.
 * The units are then read in a fixed shuffled order. Free *ret_data with nvme_data_drop(), also
 * after a failure. */
BENCH_MUST_USE int nvme_data_make(struct perf_session *session, uint64_t block_bytes,
                                  uint32_t chain, uint64_t bytes, bool scattered, uint32_t depth,
                                  uint64_t step_bytes, struct nvme_data *ret_data);
void nvme_data_drop(struct nvme_data *data);
/* Reads all units and compares every byte. BENCH_WRONG: bytes differ; BENCH_FAILED: a unit is not
 * cached. */
BENCH_MUST_USE int nvme_check(struct perf_session *session, struct nvme_data *data, uint32_t depth);

struct nvme_run {
    struct nvme_counts before, after; /* at the run's beginning and at its end */
    uint64_t bytes;                   /* payload bytes that were acquired or stored */
    uint64_t refused_blocks;          /* stores only: blocks refused because memory had no room */
    double seconds;
};
/* Acquires units and releases each at once, with `depth` requests in flight. */
BENCH_MUST_USE int nvme_read(struct perf_session *session, struct nvme_data *data, uint32_t depth,
                             double seconds, struct nvme_run *ret_run);
/* Stores new blocks in the session's namespace, in units of `chain`, with `depth` requests in
 * flight. */
BENCH_MUST_USE int nvme_write(struct perf_session *session, uint64_t block_bytes, uint32_t chain,
                              uint32_t depth, double seconds, struct nvme_run *ret_run);

#endif
