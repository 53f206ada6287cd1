/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the benchmarks that compare have in common: where options go (each command's table says
 * which it takes), memory to compare with, and rounds in which ours and the limits take turns, so
 * that a machine that slows down slows all.
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
/* Larger than any processor's cache share that matters here. */
#define PERF_WORKING_SET (UINT64_C(1) << 30)

/* Presets hold the defaults. */
struct perf_args {
    const char *bench;
    const char *socket;
    const char *daemon_path;
    bool json, compare;
    double seconds; /* of one measurement */
    uint64_t pairs;
    uint64_t sizes[PERF_SIZES_MAX]; /* block bytes, or keys of a lookup */
    size_t n_sizes;
    uint64_t batch;   /* blocks; 0 = the default for the size */
    uint64_t depth;   /* requests in flight */
    uint64_t against; /* block bytes to compare with; 0 = none */
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

/* Of a table of options: "64KiB,2MiB" into `sizes` of the struct perf_args at `ctx`. */
BENCH_MUST_USE int perf_take_sizes(void *ctx, const char *text);
uint64_t perf_batch(const struct perf_args *args, uint64_t block_bytes);

/* One thing that is measured: `run` works for about `seconds` and returns a rate or a time. */
struct perf_side {
    const char *what;                                         /* "memcpy"; NULL for ours */
    int (*run)(void *ctx, double seconds, double *ret_value); /* 0 or an enum bench_exit */
    double value;                                             /* result: the median */
};
/* Side 0 is ours. Each round runs all sides, forth in even rounds and back in odd ones. */
BENCH_MUST_USE int perf_rounds(const struct perf_args *args, void *ctx, struct perf_side *sides,
                               size_t n_sides);

/* Call before a daemon is started whose memory is compared with other memory: keeps the pages that
 * are slower than the rest from both, until the process ends. */
void perf_level_memory(const struct perf_args *args);

/* A session on a rig that was started with `options`, and a namespace of blocks of this size. */
struct perf_session {
    struct rig *rig;
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint8_t *staging;
    uint64_t staging_bytes;
    uint32_t namespaces;
};
/* For a daemon with host memory for so many bytes, in blocks of the smallest size that is measured.
 */
void perf_room(const struct perf_args *args, uint64_t bytes, struct rig_options *options);
BENCH_MUST_USE int perf_open(const struct rig_options *options, uint64_t staging_bytes,
                             struct perf_session *ret_session);
/* The namespace of that name, the same for every session of this uid: 0 or an error of the library.
 */
BENCH_MUST_USE int perf_ns_open(struct kvc *kvc, uint64_t block_bytes, const char *name,
                                struct kvc_ns **ret_ns);
/* One that nobody has used. */
BENCH_MUST_USE int perf_namespace(struct perf_session *session, uint64_t block_bytes);
/* A daemon touches its memory in the background after its start. What is measured is the state in
 * which it spends its life: waits until that is done, at most a minute. */
BENCH_MUST_USE int perf_settle(struct perf_session *session);
/* Until the daemon writes nothing any more: its store is formatted, what was put is on disk. */
BENCH_MUST_USE int perf_quiet(struct rig *rig, const char *what);
/* Until all that only memory holds is on storage, or as much of it as will be. 0 or an error of the
 * library. */
BENCH_MUST_USE int perf_drain(struct kvc *kvc);
/* One statistic; 0 when there is none of that name. */
BENCH_MUST_USE int perf_stat(struct kvc *kvc, const char *name, uint64_t *ret_value);
void perf_close(struct perf_session *session);
/* Says what a call of the library failed with; returns the fitting enum bench_exit. */
int perf_fail(const struct perf_session *session, int error, const char *call);
/* All statuses are OK, or BENCH_FAILED after saying which is not. */
BENCH_MUST_USE int perf_statuses(const uint8_t *statuses, uint32_t n);

/* A key that no other (stream, index) gives. */
void perf_key(uint64_t stream, uint64_t index, uint8_t key[KVC_KEY_BYTES]);

/* Pages touched. NULL after saying why. */
void *perf_shared_memory(uint64_t bytes, int *ret_fd);
/* Of large pages where the kernel has some, as the daemon's memory is. */
void *perf_private_memory(uint64_t bytes);
/* Keeps a result of perf_read alive. */
void perf_keep(uint64_t value);

#endif
