/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: how they begin, and how they end, which takes slices where they leave much behind. */
#include "near__.h"

void core__client_settle(struct core *c, struct core_client *cl)
{
    if (!cl->closing || cl->copies > 0 || cl->ending > 0)
        return;
    void (*idle)(void *) = cl->idle;
    void *ctx = cl->ctx;
    pool_put(c->clients, cl);
    idle(ctx);
}

void resv_leave(struct core *c, struct reservation *r)
{
    const uint64_t work = (uint64_t)r->blocks.n * WORK_BLOCK;
    MUST(r->busy == 1);
    if (work <= c->end_left) {
        c->end_left -= work;
        r->busy = 0;
        resv_drop_open(c, r);
        return;
    }
    r->leaving = true;
    r->client->ending++;
    list_remove(&r->node);
    list_push_back(&c->dropping, &r->node);
}

void resv_go(struct core *c, struct reservation *r)
{
    MUST(r->busy == 0);
    r->busy = 1;
    r->open++;
    resv_leave(c, r);
}

bool resv_step(struct core *c)
{
    struct list_node *node = list_first(&c->dropping);
    if (!node)
        return false;
    struct reservation *r = CONTAINER_OF(node, struct reservation, node);
    struct core_client *cl = r->client;
    work_slice(c);
    if (resv_drop_some(c, r))
        return true;
    MUST(r->open == 1);
    r->busy = 0;
    resv_close_entry(c, r);
    cl->ending--;
    core__client_settle(c, cl);
    return !list_empty(&c->dropping);
}

int core_client_open(struct core *c, const struct core_identity *who, void (*idle)(void *ctx),
                     void *ctx, struct core_client **ret_client)
{
    MUST(!c->cfg.principals_max || who->principal <= c->cfg.principals_max);
    struct core_client *cl = pool_get(c->clients);
    if (!cl)
        return KVC_E_LIMIT;
    cl->who = *who;
    cl->idle = idle;
    cl->ctx = ctx;
    list_init(&cl->leases);
    list_init(&cl->reservations);
    list_init(&cl->commits);
    list_init(&cl->loads);
    list_init(&cl->sends);
    if (c->cfg.principals_max)
        c->attached[who->principal]++;
    *ret_client = cl;
    return 0;
}

void core_client_quarantine(struct core *c, struct core_client *cl)
{
    for (struct list_node *node; (node = list_first(&cl->reservations));)
        resv_go(c, CONTAINER_OF(node, struct reservation, node));
    LIST_FOR_EACH_SAFE (node, next, &cl->commits)
        core_commit_cancel(c, CONTAINER_OF(node, struct core_commit, node));
    near_cancel_all(c, cl);
    verify_cancel_all(c, cl);
}

void core_client_close(struct core *c, struct core_client *cl)
{
    core_client_quarantine(c, cl);
    load_cancel_all(c, cl);
    LIST_FOR_EACH_SAFE (node, next, &cl->leases)
        lease_end(c, CONTAINER_OF(node, struct lease, node));
    LIST_FOR_EACH_SAFE (node, next, &c->jobs) {
        struct core_evict_job *job = CONTAINER_OF(node, struct core_evict_job, node);
        if (job->client == cl)
            core_evict_cancel(c, job);
    }
    cl->closing = true;
    if (c->cfg.principals_max)
        c->attached[cl->who.principal]--;
    core__client_settle(c, cl);
}

uint64_t core_client_lease_bytes(const struct core_client *cl)
{
    return cl->lease_bytes;
}
