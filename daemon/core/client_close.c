/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends a client, when its session ends: cancels its requests, drops its reservations and releases
 * its leases. Many leases and loads are released in slices; a store that is cut between two slices
 * drops all its blocks at once.
 */
#include "admin.h"
#include "transfer_jobs.h"

void core_cancel(struct core *c, struct core_req *req)
{
    if (list_is_linked(&req->node))
        req->kind->cancel(c, req);
}

static void reqs_cancel(struct core *c, struct core_client *cl, bool stay)
{
    LIST_FOR_EACH_SAFE (node, next, &cl->reqs) {
        struct core_req *req = CONTAINER_OF(node, struct core_req, node);
        if (req->kind->stays == stay)
            req->kind->cancel(c, req);
    }
}

void core_client_quarantine(struct core *c, struct core_client *cl)
{
    for (struct list_node *node; (node = list_first(&cl->reservations));)
        resv_go(c, CONTAINER_OF(node, struct reservation, node));
    reqs_cancel(c, cl, false);
}

void core_client_close(struct core *c, struct core_client *cl)
{
    core_client_quarantine(c, cl);
    load_cancel_all(c, cl);
    LIST_FOR_EACH_SAFE (node, next, &cl->leases)
        lease_end(c, CONTAINER_OF(node, struct lease, node));
    reqs_cancel(c, cl, true);
    cl->closing = true;
    if (c->cfg.principals_max)
        c->attached[cl->who.principal]--;
    core__client_settle(c, cl);
}
