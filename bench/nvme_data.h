/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks that lie on storage, and the reading and writing of them through the daemon: for
 * `kvcachebench nvme`. One thread, one session, many requests in flight; each has its part of the
 * session's staging, which must be as large as what one request stores. Functions return 0 or an
 * enum bench_exit after saying what is wrong.
 */
#ifndef BENCH_NVME_DATA_H
#define BENCH_NVME_DATA_H

#include "perf.h"

/* A request asks for this much, or for one block that is larger. */
#define NVME_UNIT_BYTES (UINT64_C(2) << 20)
#define NVME_DEPTH_MAX  64

/* Units that are read whole, each a chain of `chain` blocks. */
struct nvme_data {
    struct kvc_ns *ns;
    uint64_t block_bytes;
    uint32_t chain, units;
    bool scattered;  /* the blocks of a unit are no neighbours, nor are units read after another */
    uint8_t *keys;   /* unit by unit */
    uint32_t *order; /* in which units are read, round and round */
    uint64_t next;
};

/* What the daemon says of its storage tier; differences of two are what was done between. */
struct nvme_counts {
    bool there; /* it has such a tier */
    uint64_t accepted_bytes, written_bytes, read_bytes, writes, reads, gets;
    uint64_t now_ns, cpu_ns;
};
BENCH_MUST_USE int nvme_counts(struct perf_session *session, struct nvme_counts *ret_counts);

/* About `bytes` of blocks in a namespace of their own, all on disk; waits for that after each
 * step_bytes, which must be a small part of the daemon's memory. scattered: first the first block
 * of each unit is stored, then the second of each, and so on, as turns of many conversations would
 * be; and units are read in a fixed order without neighbours. *ret_data goes with nvme_data_drop(),
 * also after a failure. */
BENCH_MUST_USE int nvme_data_make(struct perf_session *session, uint64_t block_bytes,
                                  uint32_t chain, uint64_t bytes, bool scattered, uint32_t depth,
                                  uint64_t step_bytes, struct nvme_data *ret_data);
void nvme_data_drop(struct nvme_data *data);
/* Reads all units and compares every byte. BENCH_WRONG; BENCH_FAILED when one is not there. */
BENCH_MUST_USE int nvme_check(struct perf_session *session, struct nvme_data *data, uint32_t depth);

struct nvme_run {
    struct nvme_counts before, after; /* at its beginning and its end */
    uint64_t bytes;                   /* that the worker has had in hand, or has stored */
    uint64_t refused_blocks;          /* of stores: no room just then */
    double seconds;
};
/* Acquires units, `depth` requests in flight, and releases them at once. */
BENCH_MUST_USE int nvme_read(struct perf_session *session, struct nvme_data *data, uint32_t depth,
                             double seconds, struct nvme_run *ret_run);
/* Stores new blocks in the session's namespace, units of `chain`, `depth` requests in flight. */
BENCH_MUST_USE int nvme_write(struct perf_session *session, uint64_t block_bytes, uint32_t chain,
                              uint32_t depth, double seconds, struct nvme_run *ret_run);

#endif
