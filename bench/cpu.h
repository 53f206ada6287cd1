/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of other processes. */
#ifndef BENCH_CPU_H
#define BENCH_CPU_H

#include <stdint.h>

/* Processor time of all threads of a running process, in nanoseconds; 0 when unknown. */
uint64_t cpu_process_ns(int pid);
/* The same, with the processes that it started itself, but not those that these started. */
uint64_t cpu_family_ns(int pid);

#endif
