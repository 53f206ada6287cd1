/* SPDX-License-Identifier: Apache-2.0 */
/*
 * topo: which memory is near which CPUs and devices, and where chunks and copy workers go.
 *
 * A *node* here is a NUMA node that has CPUs, counted from 0 in hwloc's logical order. Nodes
 * without CPUs (memory of GPUs on some machines, CXL expansion) take no part: host-tier chunks do
 * not belong there. CPUs that the process may not use (cgroup, affinity of the thread that calls
 * topo_create) are left out.
 *
 * Thread: immutable after topo_create(), every function may run on any thread.
 */
#ifndef KVC_IO_TOPO_H
#define KVC_IO_TOPO_H

#include "err.h"

#include <stddef.h>

struct topo;

/*
 * synthetic: NULL for this machine, else an hwloc synthetic description ("node:2 core:4 pu:2"), for
 * tests; see lstopo(1). Returns 0 and *ret_topo (returns owned), -EINVAL for a description that
 * hwloc does not understand, -ENODATA for one without a usable node, -ENOMEM, or what the system
 * answered. Allocates, and takes milliseconds: at start only.
 */
KVC_WARN_UNUSED int topo_create(const char *synthetic, struct topo **ret_topo);
void topo_destroy(struct topo **topo); /* NULL and pointer to NULL are allowed */

unsigned topo_nodes(const struct topo *topo); /* at least 1 */
unsigned topo_cpus(const struct topo *topo);  /* hardware threads, at least 1 */

/*
 * The node of chunk `chunk` of `chunks_total`, all of one size: nodes get chunks in proportion to
 * their memory (resolution 1/1024), and every run of consecutive chunks from the first on keeps
 * that proportion to within one chunk or so, so that a tier that is filled in order uses all nodes
 * from the beginning. The same topology gives the same answer in every run.
 */
unsigned topo_chunk_node(const struct topo *topo, unsigned chunk, unsigned chunks_total);

/* The node whose CPUs should run copy worker `worker` of `workers_total`: nodes take turns. */
unsigned topo_worker_node(const struct topo *topo, unsigned worker, unsigned workers_total);

/*
 * Binds the calling thread to the node's CPUs. Returns 0 or -errno (a sandbox may refuse with
 * -EPERM): slower, never wrong. On a synthetic topology it does nothing.
 */
KVC_WARN_UNUSED int topo_bind_thread(const struct topo *topo, unsigned node);

/*
 * Pages of [addr, addr + bytes) that are touched from now on come from `node` while it has free
 * memory, else from another. addr is page-aligned (MUST). Returns 0 or -errno, as above.
 */
KVC_WARN_UNUSED int topo_bind_memory(const struct topo *topo, void *addr, size_t bytes,
                                     unsigned node);

/*
 * The node next to the PCI device "0000:17:00.0" (domain of 4 to 8 hex digits, as drivers print
 * it). Returns 0 and *ret_node, -EINVAL for text of another form, -ENOENT for a device that is not
 * there, -ENODATA for one that the firmware places on no node in particular.
 */
KVC_WARN_UNUSED int topo_pci_node(const struct topo *topo, const char *busid, unsigned *ret_node);

#endif
