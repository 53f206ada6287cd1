/* SPDX-License-Identifier: Apache-2.0 */
/* Clients: how they begin, and when they are gone. */
#include "block.h"

void core__client_settle(struct core *c, struct core_client *cl)
{
    if (!cl->closing || cl->copies > 0 || cl->ending > 0)
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
    list_init(&cl->commits);
    list_init(&cl->loads);
    list_init(&cl->sends);
    if (c->cfg.principals_max)
        c->attached[who->principal]++;
    *ret_client = cl;
    return 0;
}

uint64_t core_client_lease_bytes(const struct core_client *cl)
{
    return cl->lease_bytes;
}
