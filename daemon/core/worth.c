/* SPDX-License-Identifier: Apache-2.0 */
/* Load or recompute: which part of a prefix is worth loading, by what the disk does now. */
#include "find.h"

/* While everything is quicker computed, one block that often is loaded nevertheless: how else would
 * it be found out that the disk has become faster. */
#define PROBE_MS 1000u
/* Blocks that are looked at for one to read when nothing is known of the disk. */
#define FIRST_LOOK 4096u

/* What the blocks first .. end - 1 of a group take. */
struct span {
    uint32_t first, end;
    struct worth_load load;
};

/* Host memory's is that of the daemon's own copies into it: what reads it is the worker's. */
static struct worth_speed speed_now(struct core *c)
{
    struct tier_stats host;
    c->cfg.host->ops->stats(c->cfg.host, &host);
    c->m.host_bytes_per_s = host.bytes_per_s;
    struct worth_speed speed = {.host_bytes_per_s = host.bytes_per_s,
                                .disk_busy_bytes = c->reading_bytes,
                                .disk_wait_bytes = c->wanted_bytes};
    worth_meter_now(&c->meter, c->reading_bytes, c->now_ns, &speed);
    for (const struct list_node *node = c->loaders.next; node != &c->loaders; node = node->next)
        speed.disk_waiters++;
    return speed;
}

/* Where block i of group g is; what ends at `from` or before the asker has. */
static void add_block(struct core *c, const struct find *f, uint32_t g, uint32_t i, uint64_t sign,
                      struct worth_load *load)
{
    const uint32_t no = c->found[f->at[g] + i];
    if (no == CORE_NONE || (uint64_t)(i + 1) * f->seq->ns->spec.group[g].block_tokens <= f->from)
        return;
    const struct block *b = &c->blocks[no];
    const uint64_t bytes = block_bytes(c, b) * sign;
    if (b->flags & BLOCK_F_HOST || find_ready(c, f, b))
        load->host_bytes += bytes; /* a slot is no slower */
    else if (b->flags & BLOCK_F_LOADING)
        load->busy_bytes += bytes;
    else if (b->leases > 0 && !b->near) /* else they may be read on a device, and not loaded */
        load->shared_bytes += bytes;
    else
        load->disk_bytes += bytes;
}

/* Moves the span to what a prefix of `tokens` needs. */
static void span_move(struct core *c, const struct find *f, uint32_t g, uint32_t tokens,
                      struct span *s)
{
    uint32_t first, end;
    find_needs(f, g, tokens, &first, &end);
    for (; s->end < end; s->end++)
        add_block(c, f, g, s->end, 1, &s->load);
    for (; s->first < first; s->first++)
        add_block(c, f, g, s->first, UINT64_MAX, &s->load);
}

static struct worth_load load_of(struct core *c, const struct find *f, uint32_t tokens,
                                 struct span span[KVC_GROUPS_MAX])
{
    struct worth_load sum = {0};
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        span_move(c, f, g, tokens, &span[g]);
        sum.host_bytes += span[g].load.host_bytes;
        sum.disk_bytes += span[g].load.disk_bytes;
        sum.shared_bytes += span[g].load.shared_bytes;
        sum.busy_bytes += span[g].load.busy_bytes;
    }
    return sum;
}

static double bytes_per_token(const struct core_ns *ns)
{
    double sum = 0;
    for (uint32_t g = 0; g < ns->spec.ngroups; g++) {
        const struct core_group *p = &ns->spec.group[g];
        sum += (double)p->block_bytes * group_shards(ns, p) / p->block_tokens;
    }
    return sum;
}

/* Nothing to weigh: all of it is in memory, and that is quick enough. */
static bool is_plain(struct core *c, const struct find *f, const struct worth_cost *cost,
                     const struct worth_speed *speed)
{
    if (c->cfg.disk && !load_is_ready(c, f, f->from))
        return false;
    return worth_host_always(cost, speed, bytes_per_token(f->seq->ns));
}

uint32_t worth_cut(struct core *c, const struct find *f)
{
    const struct worth_cost cost = {f->seq->cost.ns_per_token, f->seq->cost.ns_per_token_pair};
    if (!f->seq->worth || !c->load_or_recompute || f->tokens <= f->from ||
        (cost.ns_per_token == 0 && cost.ns_per_token_pair == 0))
        return f->tokens;
    const struct worth_speed speed = speed_now(c);
    if (is_plain(c, f, &cost, &speed))
        return f->tokens;
    struct span span[KVC_GROUPS_MAX] = {0};
    struct worth w;
    worth_begin(&w, &cost, &speed, f->from, f->tokens);
    for (uint32_t tokens = 0; tokens < f->tokens;) {
        tokens += MIN(f->coarsest, f->tokens - tokens);
        if (tokens != f->tokens && !find_satisfies(c, f, tokens))
            continue;
        const struct worth_load load = load_of(c, f, tokens, span);
        worth_offer(&w, tokens, &load);
    }
    return w.ret_tokens;
}

uint64_t worth_load_now(struct core *c, const struct find *f)
{
    if (!c->cfg.disk || f->seq->absent)
        return 0;
    struct span span[KVC_GROUPS_MAX] = {0};
    const struct worth_speed speed = speed_now(c);
    struct worth_load load = load_of(c, f, f->tokens, span);
    load.host_bytes = 0;
    return (uint64_t)worth_load_ns(&speed, &load);
}

static bool probe_may(const struct core *c)
{
    return c->now_ms >= c->probe_ms && c->reading_bytes == 0 && c->wanted_bytes == 0;
}

/* Whether the block is one to be read, and so was. */
static bool probe_took(struct core *c, struct block *b)
{
    if (block_ready(b) || b->moving > 0)
        return false;
    c->probe_ms = c->now_ms + PROBE_MS;
    c->m.prefetches += load_begin(c, b) == 0;
    return true;
}

void worth_probe(struct core *c, const struct find *f)
{
    if (!probe_may(c))
        return;
    for (uint32_t g = 0; g < f->seq->ngroups; g++)
        for (uint32_t i = 0; i < f->lead[g]; i++)
            if (probe_took(c, &c->blocks[c->found[f->at[g] + i]]))
                return;
}

void worth_probe_first(struct core *c)
{
    if (!c->load_or_recompute || !c->cfg.disk || !probe_may(c) || worth_meter_knows(&c->meter))
        return;
    for (uint32_t no = 0; no < MIN(c->blocks_high, FIRST_LOOK); no++) {
        struct block *b = &c->blocks[no];
        if (b->state == BLOCK_PRESENT && !(b->flags & BLOCK_F_HOST) && probe_took(c, b))
            return;
    }
}

void core_load_or_recompute(struct core *c, bool on)
{
    c->load_or_recompute = on;
}

bool core_load_or_recompute_now(const struct core *c)
{
    return c->load_or_recompute;
}
