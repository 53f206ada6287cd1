/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the program fio to measure the limit of a disk: io_uring, O_DIRECT, registered buffers and
 * file, over a file that has been written once. If fio fails, its output is printed on stderr. One
 * thread.
 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdint.h>

#include "bench.h"

/* An unnamed file, which ends with this process. */
struct fio_file {
    int fd; /* -1 = none */
    uint64_t bytes;
};

/* NULL: fio can be run. Else why it cannot: static text. */
const char *fio_missing(void);
/* Makes the file in that directory and writes it once, because unwritten extents are slower. */
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
    double cpu_s_per_gb; /* processor seconds of the fio process for 1e9 bytes */
};
BENCH_MUST_USE int fio_run(const struct fio_job *job, struct fio_result *ret_result);

/* Parses fio's report, which may have other output in front of it. 0 or -EINVAL. Pure. */
BENCH_MUST_USE int fio_parse(const char *text, const char *rw, struct fio_result *ret_result);

#endif
