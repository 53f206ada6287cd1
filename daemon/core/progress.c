/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Progress deadlines of reservations, and of blocks that wait for a rank. A writer that has
 * announced blocks and commits nothing for long (a hung device, a debugger, a stopped process)
 * keeps them from nobody: who waits for them is told, and who stores them takes the claim over,
 * with its room. Until then a late commit counts.
 *
 * The time is a multiple of what the writer's own steps take, from a reservation to its commit or
 * from commit to commit, within bounds. Blocks that are being copied are in progress: their copies
 * have deadlines of their own. A block of several shards of which some are there and no other is
 * claimed has the most time, from the last shard that was claimed or has landed.
 */
#include "core__.h"

/* Of the longest step lately; and no writer has less. */
#define PROGRESS_STEPS  8u
#define PROGRESS_MIN_MS 2000u
/* Waiters are looked at, and ages are told, this often. */
#define PROGRESS_LOOK_MS 50u

struct progress {
    uint64_t look_ms; /* there is nothing to do before */
};

const struct core_module progress_module = {CORE_STATE(progress)};

static uint64_t last_step_ms(const struct reservation *r)
{
    return MAX(r->since_ms, r->client->progress_ms);
}

void progress_made(struct core *c, struct reservation *r, bool announced)
{
    struct core_client *cl = r->client;
    const uint64_t step = c->now_ms - last_step_ms(r);
    if (announced) /* what is reserved and committed in one tells nothing */
        cl->step_ms = MAX(MAX(step, 1), cl->step_ms - cl->step_ms / 8);
    cl->progress_ms = c->now_ms;
}

static bool resv_is_late(const struct core *c, const struct reservation *r)
{
    const uint64_t most = c->cfg.progress_ms, step = r->client->step_ms;
    const uint64_t allowed = step ? MIN(most, MAX(PROGRESS_STEPS * step, PROGRESS_MIN_MS)) : most;
    return most > 0 && c->now_ms - last_step_ms(r) >= allowed;
}

bool part_is_late(struct core *c, const struct part *p)
{
    const struct reservation *r = part_claimed(p) ? part_resv(c, p) : NULL;
    return r && (r->leaving || resv_is_late(c, r));
}

bool block_is_late(struct core *c, const struct block *b)
{
    if (b->state != BLOCK_PENDING)
        return false;
    bool being_written = false;
    for (uint32_t i = b->where; i != CORE_NONE;) {
        const struct part *p = pool_at(c->parts, i);
        if (part_is_late(c, p))
            return true;
        being_written |= p->state != PART_DONE;
        i = p->next;
    }
    return !being_written && c->cfg.progress_ms > 0 && core__age_ms(c, b) >= c->cfg.progress_ms;
}

/* Who waits for a block whose writer is late looks again, and finds that nobody is storing it. */
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
    return c->cfg.progress_ms && c->m.blocks_pending > 0 ? c->progress->look_ms * 1000000
                                                         : UINT64_MAX;
}

void progress_step(struct core *c)
{
    if (c->now_ms < c->progress->look_ms)
        return;
    c->progress->look_ms = c->now_ms + PROGRESS_LOOK_MS;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id)
            wake_waiters(c, &c->ns[i]);
    tell_ages(c);
}
