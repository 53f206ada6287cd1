/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a client, the core's view of one session, and tells when it is gone: when it is closed, no
 * copy touches its staging, and it has nothing left to release. client_close.c begins its end.
 */
#include "block.h"

void core__client_settle(struct core *c, struct core_client *cl)
{
    if (!cl->closing || cl->copies > 0 || cl->going > 0)
        return;
    void (*idle)(void *) = cl->idle;
    void *ctx = cl->ctx;
    pool_put(c->clients, cl);
    idle(ctx);
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
    list_init(&cl->reqs);
    if (c->cfg.principals_max)
        c->attached[who->principal]++;
    *ret_client = cl;
    return 0;
}

void req_begin(struct core_client *cl, struct core_req *req, const struct core_req_kind *kind)
{
    req->kind = kind;
    list_init(&req->node);
    list_push_back(&cl->reqs, &req->node);
}

uint64_t core_client_lease_bytes(const struct core_client *cl)
{
    return cl->lease_bytes;
}
