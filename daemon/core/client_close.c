/* SPDX-License-Identifier: Apache-2.0 */
/* Clients end; where they leave much behind that takes slices. */
#include "admin.h"
#include "near_jobs.h"

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
