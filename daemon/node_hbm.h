/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices put together: hbm over gpu for each of `devices`, from the configuration; the host tier's
 * chunks registered with them; completion words of sessions.
 *
 * Thread: control thread. What fails is logged here.
 */
#ifndef KVC_NODE_HBM_H
#define KVC_NODE_HBM_H

#include "config.h"
#include "core.h"
#include "hbm.h"
#include "host.h"
#include "loop.h"
#include "metric.h"

struct node_hbm;

/* What devices need; 0 where none is configured. Watches of the loop; bytes of host memory, with
 * what sessions have on devices and the memory of emulated devices; descriptors. */
uint32_t node_hbm_loop_watches(const struct config *cfg);
uint64_t node_hbm_bytes(const struct config *cfg);
uint64_t node_hbm_descriptors(const struct config *cfg);
/* Copies of blocks that core keeps count of (core_config.hbm_max). */
uint32_t node_hbm_copies_max(const struct config *cfg);

typedef void(node_hbm_retired_fn)(void *ctx, uint32_t chunk, uint32_t principal);
/* *ret_hbm NULL: no device is configured. Devices come up later, in turns of the loop. Borrows cfg,
 * loop and host; `retired` is called when a chunk of a device is about to go. */
KVC_WARN_UNUSED int node_hbm_open(const struct config *cfg, struct loop *loop, struct host *host,
                                  node_hbm_retired_fn *retired, void *ctx,
                                  struct node_hbm **ret_hbm);
/* Call it after the core was destroyed, and before the host tier is. Waits for copies in flight.
 * Accepts NULL and a pointer to NULL. */
void node_hbm_close(struct node_hbm **hbm);
/* All devices, *ret_n of them; none where hbm is NULL. */
struct device *const *node_hbm_devices(const struct node_hbm *hbm, uint32_t *ret_n);

/* Whether the daemon must end: a device that was up is out, and hbm.exit_when_lost is set. Logs
 * that. */
bool node_hbm_ends(const struct node_hbm *hbm, const struct config *cfg);

/* Fills in a set for each device, "device<no>", and returns how many; 0 where hbm is NULL.
 * node_hbm_refresh() brings the sets up to date. */
uint32_t node_hbm_metric_sets(const struct node_hbm *hbm, struct metric_set ret[DEVICES_MAX]);
void node_hbm_refresh(struct node_hbm *hbm, const struct core *core);

/* A page of completion words, as svc_ports.words_make(). */
KVC_WARN_UNUSED int node_hbm_words_make(uint64_t bytes, int *ret_fd, void **ret_base);
void node_hbm_words_free(void *base, uint64_t bytes);

#endif
