/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the configuration comes to: the values that host tier, core and services are made with, and
 * the memory and descriptors that all parts take. Pure functions of a configuration without "auto";
 * nothing is opened or allocated.
 */
#ifndef KVC_NODE_CONFIG_H
#define KVC_NODE_CONFIG_H

#include "budget.h"
#include "config.h"
#include "core.h"
#include "host.h"
#include "svc.h"

#define NODE_FLIGHT_THREADS 64u /* threads that the flight recorder has room for */

struct topo;

/* Without `buffers`, and without what host.persist sets. `topo` is borrowed for the host tier's
 * life; NULL: no placement. */
struct host_config node_host_config(const struct config *cfg, const struct topo *topo);
/* Registered buffers of the loop, for I/O on storage; 0 without nvme.paths. */
unsigned node_buffers(const struct config *cfg);
/* Without tiers, devices and the secret. */
struct core_config node_core_config(const struct config *cfg);
/* Without the endpoint, principals and devices. */
struct svc_config node_svc_config(const struct config *cfg);
/* Connections to the attach socket. */
uint32_t node_conns_max(const struct config *cfg);
/* Writes the uids of all principals to `out` and returns how many: at most CONFIG_PRINCIPALS_MAX *
 * CONFIG_UIDS_MAX. */
uint32_t node_uids(const struct config *cfg, uint32_t *out);
/* Fills cfg->nprincipals entries of `out`. */
void node_principals(const struct config *cfg, struct svc_principal *out);

/* The memory that the parts take; a budget_inputs_fn. */
void node_budget_inputs(const struct config *cfg, void *ctx, struct budget_inputs *ret);
/* File descriptors that the parts may hold at once. */
uint64_t node_descriptors(const struct config *cfg);

#endif
