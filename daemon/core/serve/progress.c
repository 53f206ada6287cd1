/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for writers that are late (late.c), and wakes the requests that wait for what these have
 * announced.
 */
#include "serve.h"

/* How often waiters are looked at, and the ages of leases and reservations are updated in the
 * metrics. */
#define PROGRESS_LOOK_MS 50u

struct progress {
    uint64_t look_ms; /* time of the next look */
};

const struct core_module progress_module = {CORE_STATE(progress)};

/* Wakes requests that wait for a block whose writer is late: they look it up again, and find that
 * nobody is storing it. */
static void wake_waiters(struct core *c, struct core_ns *ns)
{
    LIST_FOR_EACH_SAFE (node, next, &ns->waiting) {
        struct core_waiter *w = CONTAINER_OF(node, struct core_waiter, node);
        const struct block *b = &c->blocks[w->block];
        if (b->gen != w->gen || !block_is_late(c, b))
            continue;
        list_remove(&w->node);
        list_push_back(&c->woken, &w->node);
    }
}

static void tell_ages(struct core *c)
{
    const struct core_client *cl;
    struct core_client_view v;
    c->m.lease_oldest_ms = c->m.reservation_oldest_ms = 0;
    POOL_FOR_EACH (cl, i, c->clients) {
        core_client_view(c, cl, &v);
        c->m.lease_oldest_ms = MAX(c->m.lease_oldest_ms, v.lease_age_ms);
        c->m.reservation_oldest_ms = MAX(c->m.reservation_oldest_ms, v.reservation_age_ms);
    }
}

uint64_t core_next_ns(const struct core *c)
{
    return c->cfg.progress_ms && c->m.blocks_pending > 0 ? c->mod.progress->look_ms * 1000000
                                                         : UINT64_MAX;
}

void progress_step(struct core *c)
{
    if (c->now_ms < c->mod.progress->look_ms)
        return;
    c->mod.progress->look_ms = c->now_ms + PROGRESS_LOOK_MS;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id)
            wake_waiters(c, &c->ns[i]);
    tell_ages(c);
}

void core_client_view(const struct core *c, const struct core_client *cl,
                      struct core_client_view *ret_view)
{
    const struct list_node *l = list_first(&cl->leases), *r = list_first(&cl->reservations);
    *ret_view = (struct core_client_view){
        .leases = leases_of(c, cl),
        .reservations = resvs_of(c, cl),
        .leased_bytes = cl->lease_bytes,
        .reserved_bytes = cl->claim_bytes,
        .lease_age_ms = l ? c->now_ms - CONTAINER_OF(l, const struct lease, node)->since_ms : 0,
        .reservation_age_ms =
            r ? c->now_ms - CONTAINER_OF(r, const struct reservation, node)->since_ms : 0,
    };
}
