/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transparent pages of 2 MiB for shared memory, whatever shmem_enabled says but "deny": the kernel
 * is asked for them outright (MADV_COLLAPSE, Linux 6.1). Storage is read into and written from one
 * piece of memory then, not 4 KiB at a time, and copies and workers' reads miss the TLB less.
 *
 * Threads: any.
 */
#ifndef KVC_WIRE_HUGE_H
#define KVC_WIRE_HUGE_H

#include <stdint.h>

/* After so many refusals in one piece of memory the kernel is not asked again. */
#define HUGE_TRIES 16u

/* Asks for a large page for each whole 2 MiB of these bytes, which are mapped shared and writable.
 * Their contents stay. A refusal leaves the memory as it is and lowers *tries by one; at 0 nothing
 * more is tried. */
void huge_make(uint8_t *base, uint64_t bytes, unsigned *tries);

#endif
