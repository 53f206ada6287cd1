/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of other processes. */
#ifndef BENCH_CPU_H
#define BENCH_CPU_H

#include <stdint.h>

/* Of one process that runs, all its threads, in nanoseconds; 0 when unknown. */
uint64_t cpu_process_ns(int pid);
/* Of it and what it has started itself, one level deep. */
uint64_t cpu_family_ns(int pid);

#endif
