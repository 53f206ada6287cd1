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

/* So many refusals in one piece of memory are the last. */
#define HUGE_TRIES 16u

/* Large pages for what of these bytes, which are mapped shared and writable, is whole ones; what is
 * there stays there. What is refused is left as it is: *tries gets less by one, and at 0 no more is
 * tried. */
void huge_make(uint8_t *base, uint64_t bytes, unsigned *tries);

#endif
