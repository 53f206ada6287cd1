/* SPDX-License-Identifier: Apache-2.0 */
#include "node_config.h"

#include <stdio.h>

#include "front.h"
#include "front_limiter.h"
#include "node_hbm.h"
#include "node_http.h"
#include "node_names.h"
#include "node_nvme.h"
#include "node_warm.h"

#define PINS_MAX     4096u      /* names that are pinned, and pins by hand */
#define SUM_PER_TURN (1u << 20) /* bytes read from storage that a turn sums: some 100 us */

struct host_config node_host_config(const struct config *cfg, const struct topo *topo)
{
    const struct topo *placed = cfg->host.numa == CONFIG_NUMA_OFF ? NULL : topo;
    return (struct host_config){.arena = {.limit_bytes = cfg->host.limit,
                                          .chunk_bytes = cfg->host.chunk,
                                          .huge = (enum arena_huge)cfg->host.huge_pages,
                                          .prefault = cfg->host.prefault,
                                          .topo = placed},
                                .copier = {.threads = cfg->copy.threads,
                                           .inflight_bytes = cfg->copy.inflight,
                                           .topo = placed,
                                           .turn_bytes = SUM_PER_TURN}};
}

unsigned node_buffers(const struct config *cfg)
{
    const struct host_config host = node_host_config(cfg, NULL);
    return cfg->nvme.paths[0] != '\0' ? host_buffers(&host) : 0;
}

/* Bytes that one tenant may pin. */
static uint64_t pin_bytes(const struct config *cfg)
{
    const uint64_t nvme = cfg->nvme.paths[0] != '\0' ? cfg->nvme.limit : 0;
    return (cfg->host.limit + nvme) / 100 * cfg->policy.pin_limit;
}

struct core_config node_core_config(const struct config *cfg)
{
    return (struct core_config){.blocks_max = cfg->index.blocks,
                                .clients_max = cfg->limits.sessions,
                                .namespaces_max = cfg->limits.namespaces,
                                .leases_max = cfg->limits.leases,
                                .commits_max = cfg->limits.waiters,
                                .names_max = cfg->limits.names,
                                .name_ids_bytes = cfg->limits.name_tokens,
                                .lease_bytes_max = cfg->limits.lease_bytes,
                                .claim_bytes_max = cfg->host.limit / 2,
                                .progress_ms = cfg->limits.reserve_progress / 1000000,
                                .fair = true,
                                .principals_max = cfg->nprincipals,
                                .policy = policy_by_name(cfg->policy.eviction),
                                .pins_max = cfg->policy.pin_limit ? PINS_MAX : 0,
                                .pin_bytes_max = pin_bytes(cfg),
                                .ndevices = cfg->hbm.devices.n,
                                .hbm_max = node_hbm_copies_max(cfg),
                                .hbm_policy = policy_by_name(cfg->hbm.eviction),
                                .hbm_verify = cfg->hbm.verify,
                                .admission = cfg->policy.admission,
                                .load_or_recompute = cfg->policy.load_or_recompute};
}

struct svc_config node_svc_config(const struct config *cfg)
{
    return (struct svc_config){.sessions_max = cfg->limits.sessions,
                               .requests_max = cfg->limits.requests,
                               .calls_max = cfg->limits.waiters,
                               .staging_session_max = cfg->staging.session_max,
                               .staging_total = cfg->staging.total,
                               .fair = true,
                               .server = "kvcache-daemon " KVC_VERSION};
}

void node_budget_inputs(const struct config *cfg, void *ctx, struct budget_inputs *ret)
{
    (void)ctx;
    struct core_config core = node_core_config(cfg);
    struct svc_config svc = node_svc_config(cfg);
    struct host_config host = node_host_config(cfg, NULL);
    struct node_warm warm = {0};
    struct core_budget b;
    node_warm_config(&warm, cfg, &host);
    core_budget(&core, &b);
    *ret = (struct budget_inputs){
        .host_footprint_bytes = host_footprint(&host),
        .index_bytes = b.blocks + b.table + b.ghosts + b.parts + b.clean,
        .policy_bytes = b.policy + b.retain,
        .lease_bytes = b.leases + b.commits + b.pins,
        .session_bytes = svc_bytes(&svc),
        .namespace_bytes = b.namespaces,
        .names_bytes = node_names_bytes(cfg, &core),
        .flight_bytes = (uint64_t)NODE_FLIGHT_THREADS * cfg->flight.records * 32,
        .copy_bytes = (uint64_t)MAX(cfg->copy.threads, 4u) << 20,
        .nvme_bytes = node_nvme_bytes(cfg),
        .journal_bytes = node_nvme_journal_bytes(cfg),
        .device_bytes = node_hbm_bytes(cfg),
        .hbm_bytes = b.hbm,
        .front_bytes = front_bytes(cfg->limits.sessions) + SVC_KEPT_MAX + node_http_bytes(cfg)};
}

uint32_t node_conns_max(const struct config *cfg)
{
    const struct svc_config svc = node_svc_config(cfg);
    return svc_conns_max(&svc);
}

uint32_t node_uids(const struct config *cfg, uint32_t *out)
{
    uint32_t n = 0;
    for (unsigned i = 0; i < cfg->nprincipals; i++)
        for (unsigned k = 0; k < cfg->principals[i].nuids; k++)
            out[n++] = cfg->principals[i].uids[k];
    return n;
}

void node_principals(const struct config *cfg, struct svc_principal *out)
{
    for (unsigned i = 0; i < cfg->nprincipals; i++) {
        const struct config_principal *p = &cfg->principals[i];
        snprintf(out[i].name, sizeof out[i].name, "%s", p->name);
        snprintf(out[i].tenant, sizeof out[i].tenant, "%s", p->tenant);
        for (unsigned k = 0; k < p->nuids; k++)
            out[i].uids[k] = p->uids[k];
        out[i].nuids = p->nuids;
        out[i].gateway = p->gateway;
        out[i].admin = p->admin;
    }
}

/* A session has four: attach connection, pidfd, staging, and staging that is being freed. A chunk
 * has two. The limiter bounds connections to the control socket. */
uint64_t node_descriptors(const struct config *cfg)
{
    const uint64_t chunks = cfg->host.limit / cfg->host.chunk * 17 / 16 + 4;
    uint32_t nuids = 0;
    for (unsigned i = 0; i < cfg->nprincipals; i++)
        nuids += cfg->principals[i].nuids;
    return 4ull * node_conns_max(cfg) + 2 * chunks + node_hbm_descriptors(cfg) +
           front_limiter_descriptors(cfg->limits.sessions, nuids) + node_http_descriptors(cfg) +
           128;
}
