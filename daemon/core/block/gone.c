/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells when a removal outlives a crash. A request that removes blocks (EVICT, NAME_FORGET) is
 * answered after that, not before.
 *
 * A block that I/O holds when it is killed keeps its place on disk until that I/O has ended. Then
 * storage has to say that all removals so far outlive a crash (tier_storage_ops.confirm_frees).
 * Memory that outlives the process needs nothing: a slot's header is void when the slot is freed
 * or invalidated.
 */
#include "block.h"

struct gone {
    struct list_node next; /* core_gone that wait for the next confirm_frees() */
    struct list_node now;  /* those that the call under way, or just ended, serves */
    struct tier_op op;
    enum { GONE_IDLE, GONE_CONFIRMING, GONE_CONFIRMED } state;
};

static int gone_create(struct core *c)
{
    list_init(&c->mod.gone->next);
    list_init(&c->mod.gone->now);
    return 0;
}

const struct core_module gone_module = {CORE_STATE(gone), .create = gone_create};

bool gone_is_confirming(const struct core *c)
{
    return c->mod.gone->state == GONE_CONFIRMING;
}

void core_gone_await(struct core *c, struct core_gone *g)
{
    list_push_back(&c->mod.gone->next, &g->node);
}

void core_gone_cancel(struct core_gone *g)
{
    list_remove(&g->node);
}

static void gone_on_confirmed(struct tier_op *op)
{
    struct core *c = op->ctx;
    c->mod.gone->state = GONE_CONFIRMED;
}

static void gone_tell(struct core *c)
{
    const int err = c->mod.gone->op.status ? KVC_E_TIER : 0;
    for (struct list_node *node; (node = list_first(&c->mod.gone->now));) {
        struct core_gone *g = CONTAINER_OF(node, struct core_gone, node);
        list_remove(node);
        g->fn(g, err);
    }
}

bool gone_is_due(const struct core *c)
{
    return c->mod.gone->state == GONE_CONFIRMED ||
           (c->mod.gone->state == GONE_IDLE && !list_empty(&c->mod.gone->next) &&
            c->disk.dying == 0);
}

void gone_step(struct core *c)
{
    if (c->mod.gone->state == GONE_CONFIRMED) {
        c->mod.gone->state = GONE_IDLE;
        gone_tell(c);
    }
    if (!gone_is_due(c))
        return;
    for (struct list_node *node; (node = list_first(&c->mod.gone->next));) {
        list_remove(node);
        list_push_back(&c->mod.gone->now, node);
    }
    c->mod.gone->op = (struct tier_op){.done = gone_on_confirmed, .ctx = c};
    if (core_stores(c) && c->cfg.tier[CORE_STORAGE]->storage->confirm_frees) {
        c->mod.gone->state = GONE_CONFIRMING;
        c->cfg.tier[CORE_STORAGE]->storage->confirm_frees(c->cfg.tier[CORE_STORAGE],
                                                          &c->mod.gone->op);
        return;
    }
    gone_tell(c);
}
