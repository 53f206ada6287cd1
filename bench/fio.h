/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fio as the limit of a disk: io_uring, O_DIRECT, registered buffers and file, over a file that has
 * been written once. Runs the program; what it said is on stderr when it fails. One thread.
 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdint.h>

#include "bench.h"

/* An unnamed file that goes with this process. */
struct fio_file {
    int fd; /* -1 = none */
    uint64_t bytes;
};

/* NULL, or why fio cannot be run: static text. */
const char *fio_missing(void);
/* Makes the file in that directory and writes it once: unwritten extents are slower. */
BENCH_MUST_USE int fio_lay(const char *dir, uint64_t bytes, struct fio_file *ret_file);
void fio_drop(struct fio_file *file);

struct fio_job {
    const struct fio_file *file;
    const char *rw; /* "read", "randread", "write" */
    uint64_t io_bytes, depth;
    double seconds;
};
struct fio_result {
    double bytes_per_s;
    double cpu_s_per_gb; /* of its process, for 1e9 bytes */
};
BENCH_MUST_USE int fio_run(const struct fio_job *job, struct fio_result *ret_result);

/* Its report, what it printed before that included. 0 or -EINVAL. Pure. */
BENCH_MUST_USE int fio_parse(const char *text, const char *rw, struct fio_result *ret_result);

#endif
