/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the comparing benchmarks share: their options (each command's table says which it takes),
 * memory to compare with, and rounds. In each round the daemon and the limits are measured in turn,
 * so that a machine that becomes slower affects all of them alike.
 */
#ifndef BENCH_PERF_H
#define BENCH_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/kvcache.h>

#include "bench.h"
#include "bench_rig.h"
#include "reader.h"

#define PERF_SIZES_MAX 16
#define PERF_SIDES_MAX 4
#define PERF_PAIRS_MAX 101
/* More than the part of any processor's cache that could falsify a measurement. */
#define PERF_WORKING_SET (UINT64_C(1) << 30)

/* Fields that are set before the options are read are the defaults. */
struct perf_args {
    const char *bench;
    const char *socket;
    const char *daemon_path;
    bool json, compare;
    double seconds; /* length of one measurement */
    uint64_t pairs;
    uint64_t sizes[PERF_SIZES_MAX]; /* block bytes, or keys of a lookup */
    size_t n_sizes;
    uint64_t batch;   /* blocks of a request; 0 = the default for the block size */
    uint64_t depth;   /* requests in flight */
    uint64_t against; /* second block size to compare with; 0 = none */
};

/* Rows that several tables of struct perf_args have. */
#define PERF_SECONDS_PAIRS                                                                   \
    {"--seconds S", "of one measurement (default 1)",                                        \
     ARG_NUMBER(struct perf_args, seconds, 0.01, 3600)},                                     \
    {                                                                                        \
        "--pairs N", "measurements of each, taking turns; medians are reported (default 5)", \
            ARG_COUNT(struct perf_args, pairs, 1, PERF_PAIRS_MAX)                            \
    }
#define PERF_DAEMON_JSON                                                                         \
    {"--daemon PATH", "the daemon to start otherwise", ARG_TEXT(struct perf_args, daemon_path)}, \
    {                                                                                            \
        "--json", "one JSON object per line on stdout", ARG_FLAG(struct perf_args, json)         \
    }

/* Takes an option's value "64KiB,2MiB" into `sizes` of the struct perf_args at `ctx`. */
BENCH_MUST_USE int perf_take_sizes(void *ctx, const char *text);
uint64_t perf_batch(const struct perf_args *args, uint64_t block_bytes);

/* One side of a comparison: `run` works for about `seconds` and returns a rate or a time. */
struct perf_side {
    const char *what;                                         /* "memcpy"; NULL for the daemon */
    int (*run)(void *ctx, double seconds, double *ret_value); /* 0 or an enum bench_exit */
    double value;                                             /* result: the median */
};
/* Side 0 is the daemon. Each round runs all sides, in order in even rounds and in reverse order in
 * odd ones. */
BENCH_MUST_USE int perf_rounds(const struct perf_args *args, void *ctx, struct perf_side *sides,
                               size_t n_sides);

/* Call it before a daemon is started whose memory is compared with other memory. It takes the
 * scattered pages of the machine, which are slower, until the process ends, so that neither side
 * gets them. */
void perf_level_memory(const struct perf_args *args);

/* A session on a rig that was started with `options`, and a namespace whose blocks have one size.
 */
struct perf_session {
    struct rig *rig;
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint8_t *staging;
    uint64_t staging_bytes;
    uint32_t namespaces;
};
/* Sets the options of a daemon with `bytes` of host memory for blocks of the smallest measured
 * size. */
void perf_room(const struct perf_args *args, uint64_t bytes, struct rig_options *options);
BENCH_MUST_USE int perf_open(const struct rig_options *options, uint64_t staging_bytes,
                             struct perf_session *ret_session);
/* Opens the namespace of that name; every session of this uid opens the same one. 0 or an error of
 * the library. */
BENCH_MUST_USE int perf_ns_open(struct kvc *kvc, uint64_t block_bytes, const char *name,
                                struct kvc_ns **ret_ns);
/* Opens a namespace that nobody has used, as session->ns. */
BENCH_MUST_USE int perf_namespace(struct perf_session *session, uint64_t block_bytes);
/* Waits, at most a minute, until the daemon has prefaulted its memory. It does so in the background
 * after its start, and the state after that is what is to be measured. */
BENCH_MUST_USE int perf_settle(struct perf_session *session);
/* Waits until the daemon writes nothing any more: its store is formatted, and all stored blocks are
 * on disk. */
BENCH_MUST_USE int perf_quiet(struct rig *rig, const char *what);
/* Waits until all blocks that only memory has are on storage, except those that the daemon will not
 * write. 0 or an error of the library. */
BENCH_MUST_USE int perf_drain(struct kvc *kvc);
/* Reads one statistic; 0 if no statistic has that name. */
BENCH_MUST_USE int perf_stat(struct kvc *kvc, const char *name, uint64_t *ret_value);
void perf_close(struct perf_session *session);
/* Prints which error a call of the library returned; returns the enum bench_exit that fits it. */
int perf_fail(const struct perf_session *session, int error, const char *call);
/* 0 if all statuses are OK; else BENCH_FAILED after printing one that is not. */
BENCH_MUST_USE int perf_statuses(const uint8_t *statuses, uint32_t n);

/* Makes a key that differs from that of every other (stream, index). */
void perf_key(uint64_t stream, uint64_t index, uint8_t key[KVC_KEY_BYTES]);

/* Memory whose pages have been touched. NULL after printing why there is none. */
void *perf_shared_memory(uint64_t bytes, int *ret_fd);
/* The same, of large pages where the kernel has some, as the daemon's memory is. */
void *perf_private_memory(uint64_t bytes);
/* Uses a result of perf_read(), so that the compiler keeps the reads. */
void perf_keep(uint64_t value);

#endif
