/* SPDX-License-Identifier: Apache-2.0 */
/* The reader: one function for everything whose bytes are read for a comparison. Pure. */
#ifndef BENCH_READER_H
#define BENCH_READER_H

#include <stdint.h>

/* Reads every byte; returns a sum that depends on each. `from` is aligned to 8 bytes. */
uint64_t perf_read(const void *from, uint64_t bytes);

#endif
