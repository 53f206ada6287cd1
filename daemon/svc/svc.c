/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates and destroys the services; begins and ends a turn of node_turn(); ends all when the
 * daemon stops.
 */
#include <sys/mman.h>

#include "svc__.h"
#include "sys.h"

METRIC_DESC(svc, SVC_METRICS);

uint64_t svc_bytes(const struct svc_config *cfg)
{
    return sizeof(struct svc) + (uint64_t)svc_conns_max(cfg) * sizeof(struct session) +
           attached_bytes(cfg) + devices_bytes() + pool_bytes_for(CALL_BYTES, cfg->calls_max);
}

static int fair_share(const struct svc *s, struct share *share, uint64_t total, uint32_t holders)
{
    return share_create(share, total, s->cfg.fair ? share_each(total, holders) : 0, holders);
}

static int create_shares(struct svc *s)
{
    const struct svc_config *cfg = &s->cfg;
    const uint32_t principals = MAX(cfg->nprincipals, 1u), sessions = cfg->sessions_max;
    const uint64_t staging = cfg->staging_total ? cfg->staging_total / STAGING_UNIT : UINT32_MAX;
    int err = fair_share(s, &s->session_share, sessions, principals);
    if (!err)
        err = fair_share(s, &s->staging_share, staging, principals);
    if (!err)
        err = fair_share(s, &s->call_share, cfg->calls_max, sessions);
    if (!err)
        err = fair_share(s, &s->kept_share, SVC_KEPT_MAX, sessions);
    return err;
}

int svc_create(const struct svc_config *config, struct core *core, const struct svc_ports *ports,
               struct svc **ret_svc)
{
    struct svc *s = sys_pages(sizeof *s);
    if (!s)
        return -ENOMEM;
    (void)madvise(s, sizeof *s, MADV_HUGEPAGE);
    s->cfg = *config;
    s->core = core;
    s->ports = *ports;
    s->sessions = sys_pages((uint64_t)svc_conns_max(config) * sizeof *s->sessions);
    int err =
        s->sessions ? pool_create(&s->calls, "calls", CALL_BYTES, config->calls_max) : -ENOMEM;
    if (!err)
        err = create_shares(s);
    if (!err)
        err = work_create(s);
    if (!err)
        err = attached_create(s);
    if (!err)
        err = devices_create(s);
    if (err) {
        svc_destroy(&s);
        return err;
    }
    for (uint32_t i = 0; i < svc_conns_max(config); i++)
        session_init(s, i);
    svc_add_metrics(s, METRIC_SET(svc, "svc", &s->m));
    svc_add_metrics(s, core_metric_set(core));
    *ret_svc = s;
    return 0;
}

struct sys_range svc_memory(const struct svc *s)
{
    return (struct sys_range){(void *)s, sizeof *s};
}

void svc_destroy(struct svc **svc)
{
    struct svc *s = *svc;
    if (!s)
        return;
    pool_destroy(&s->calls);
    trace_destroy(s);
    devices_destroy(s);
    attached_destroy(s);
    work_destroy(s);
    share_destroy(&s->session_share);
    share_destroy(&s->staging_share);
    share_destroy(&s->call_share);
    share_destroy(&s->kept_share);
    if (s->sessions)
        MUST(munmap(s->sessions, (uint64_t)svc_conns_max(&s->cfg) * sizeof *s->sessions) == 0);
    MUST(munmap(s, sizeof *s) == 0);
    *svc = NULL;
}

void svc_add_metrics(struct svc *s, struct metric_set set)
{
    MUST(s->nsets < SVC_METRIC_SETS);
    s->sets[s->nsets++] = set;
}

const struct metric_set *svc_metric_sets(const struct svc *s, uint32_t *ret_n)
{
    *ret_n = s->nsets;
    return s->sets;
}

void svc_turn_begin(struct svc *s, uint64_t now_ns)
{
    if (!s->start_ns) {
        s->start_ns = now_ns;
        wheel_init(&s->wheel, now_ns);
    }
    s->now_ns = now_ns;
    s->places_left = SVC_KEY_PLACES;
    work_turn_begin(s);
    wheel_run(&s->wheel, now_ns);
}

uint64_t svc_next_ns(const struct svc *s)
{
    return MIN(work_next_ns(s), wheel_next_ns(&s->wheel));
}

void svc_turn_end(struct svc *s)
{
    work_run(s);
    for (uint32_t i = 0; s->nclose_pending > 0 && i < svc_conns_max(&s->cfg); i++)
        if (s->sessions[i].close_pending)
            session_drop(&s->sessions[i]);
}

void svc_shutdown(struct svc *s)
{
    s->stopping = true;
    for (uint32_t i = 0; i < svc_conns_max(&s->cfg); i++) {
        reply_owed(s, &s->sessions[i]);
        LIST_FOR_EACH_SAFE (node, next, &s->sessions[i].calls) {
            struct call *call = CONTAINER_OF(node, struct call, node);
            if (call->kind->shutdown)
                call->kind->shutdown(call);
        }
    }
}

bool svc_is_quiet(const struct svc *s)
{
    return s->m.calls == 0;
}

bool svc_is_empty(const struct svc *s)
{
    return s->m.sessions == 0;
}
