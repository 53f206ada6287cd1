/* SPDX-License-Identifier: Apache-2.0 */
/* What administrators are told of a block: where it is, why it stays, or why it is not there. */
#include "admin.h"
#include "index.h"

void core__explain(struct core *c, const struct block *b, struct core_explanation *x)
{
    const struct core_ns *ns = block_ns(c, b);
    const struct core_group *g = block_group(c, b);
    const struct tier *host = c->cfg.host;
    *x = (struct core_explanation){
        .ns = ns->id,
        .group = b->group,
        .state = b->state == BLOCK_PRESENT ? KVC_BLOCK_PRESENT : KVC_BLOCK_PENDING,
        .reason = b->state == BLOCK_PRESENT ? KVC_MISS_NONE : KVC_MISS_PENDING,
        .tokens = b->tokens,
        .shards = group_shards(ns, g),
        .shards_present = b->shards_present,
        .leases = b->leases,
        .children = b->children,
        .bytes = block_bytes_present(c, b),
        .age_ms = core__age_ms(c, b),
        .level = retain_level(c->retain, block_no(c, b)),
        .pins = b->pins,
        .pinned_in_memory = b->host_pins > 0,
    };
    const uint64_t until = retain_until(c->retain, block_no(c, b));
    x->level_left_ms = until ? MAX(until, c->now_ms + 1) - c->now_ms : 0;
    if (b->state != BLOCK_PRESENT)
        return;
    x->tiers = (copy_there(b, CORE_HOST) ? CORE_IN_HOST : 0u) |
               (copy_there(b, CORE_DISK) ? CORE_ON_DISK : 0u) |
               (near_is_there(c, b) ? CORE_ON_DEVICE : 0u);
    x->durable = block_is_durable(b);
    x->reason = block_reachable(c, b) ? KVC_MISS_NONE : KVC_MISS_NOT_LOADED;
    if (copy_there(b, CORE_HOST))
        host->memory->view(host, copy_loc(c, b, CORE_HOST, 0), &x->view);
}

uint32_t core_explain(struct core *c, struct core_client *cl, uint32_t ns_id, const uint8_t *key,
                      void (*fn)(void *ctx, const struct core_explanation *), void *ctx)
{
    struct core_explanation x, absent = {.ns = ns_id, .reason = KVC_MISS_NEVER};
    bool found = false;
    uint32_t places = 1;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++) {
        struct core_ns *ns = &c->ns[i];
        if (!ns_visible(cl, ns) || (ns_id && ns->id != ns_id))
            continue;
        places += ns->spec.ngroups;
        for (uint32_t g = 0; g < ns->spec.ngroups; g++) {
            const struct block *b = index_get(c, ns, g, key);
            if (b) {
                core__explain(c, b, &x);
                fn(ctx, &x);
                found = true;
                continue;
            }
            /* In which other namespace it is, this loop finds out by itself if it looks at all. */
            uint32_t detail = 0;
            enum kvc_miss reason =
                ns_id ? miss_reason(c, ns, g, key, &detail) : miss_trace(c, ns, g, key);
            if (reason == KVC_MISS_NEVER || absent.reason != KVC_MISS_NEVER)
                continue;
            absent.reason = (uint8_t)reason;
            absent.ns = ns->id;
            absent.group = g;
            absent.detail = detail;
        }
    }
    if (!found)
        fn(ctx, &absent);
    return places;
}
