/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load or recompute: which part of a found prefix is quicker loaded than computed again, by the
 * speed that the disk has now. A request asks for that if it states what prefill costs.
 */
#include "find.h"

/* While everything is quicker computed, one block is loaded this often all the same, because
 * nothing else would show that the disk has become faster. */
#define PROBE_MS 1000u
/* Blocks that are looked at for one to read when nothing is known of the disk. */
#define FIRST_LOOK 4096u

struct weigh {
    bool is_on;        /* reads are weighed against recomputation */
    uint64_t probe_ms; /* time before which no probe begins */
};

static int worth_create(struct core *c)
{
    c->mod.weigh->is_on = c->cfg.load_or_recompute;
    return 0;
}

const struct core_module worth_module = {CORE_STATE(weigh), .create = worth_create};

/* The number of clients that have blocks to load. */
static uint32_t loaders_count(const struct core *c)
{
    uint32_t n = 0;
    for (const struct list_node *node = c->loaders.next; node != &c->loaders; node = node->next)
        n++;
    return n;
}

/* The speeds now. For host memory it is the speed of the daemon's own copies into it, because the
 * daemon does not see how fast workers read it. */
static struct worth_speed speed_now(struct core *c)
{
    struct tier_stats host;
    c->cfg.tier[CORE_HOST]->ops->stats(c->cfg.tier[CORE_HOST], &host);
    c->m.host_bytes_per_s = host.bytes_per_s;
    struct worth_speed speed = {.host_bytes_per_s = host.bytes_per_s,
                                .disk_busy_bytes = c->moving.reading_bytes,
                                .disk_wait_bytes = c->moving.wanted_bytes,
                                .disk_waiters = loaders_count(c)};
    reads_disk_speed(c, &speed);
    return speed;
}

/* Adds block i of group g to the load, by where it is. Blocks that end at `from` or before count as
 * nothing, because the asker has them. */
static void worth_add_block(struct core *c, const struct find *f, uint32_t g, uint32_t i,
                            uint64_t sign, struct worth_load *load)
{
    const uint32_t no = c->lookup.found[f->at[g] + i];
    if (no == CORE_NONE || (uint64_t)(i + 1) * f->seq->ns->spec.group[g].block_tokens <= f->from)
        return;
    const struct block *b = &c->blocks[no];
    const uint64_t bytes = block_bytes(c, b) * sign;
    if (copy_there(b, CORE_HOST) || find_ready(c, f, b))
        load->host_bytes += bytes; /* a slot of a device counts here: it is no slower */
    else if (block_loading(b))
        load->busy_bytes += bytes;
    else if (b->holds > 0 && !b->hbm) /* with HBM copies the holders may not load b */
        load->shared_bytes += bytes;
    else
        load->disk_bytes += bytes;
}

/* Moves the span to what a prefix of `tokens` needs. False: the slice is over. */
static bool span_move(struct core *c, struct find *f, uint32_t g, uint32_t tokens)
{
    struct span *s = &f->weighing.span[g];
    uint32_t first, end;
    find_needs(f, g, tokens, &first, &end);
    for (; s->end < end; s->end++) {
        if (find_paused(c, f))
            return false;
        worth_add_block(c, f, g, s->end, 1, &s->load);
    }
    for (; s->first < first; s->first++) {
        if (find_paused(c, f))
            return false;
        worth_add_block(c, f, g, s->first, UINT64_MAX, &s->load);
    }
    return true;
}

static bool load_of(struct core *c, struct find *f, uint32_t tokens, struct worth_load *ret_sum)
{
    struct worth_load sum = {0};
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        if (!span_move(c, f, g, tokens))
            return false;
        const struct worth_load *load = &f->weighing.span[g].load;
        sum.host_bytes += load->host_bytes;
        sum.disk_bytes += load->disk_bytes;
        sum.shared_bytes += load->shared_bytes;
        sum.busy_bytes += load->busy_bytes;
    }
    *ret_sum = sum;
    return true;
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

/* Whether there is nothing to weigh: all of it is in memory, and that is quick enough. */
static bool is_plain(const struct core *c, const struct find *f, const struct worth_cost *cost)
{
    if (core_stores(c) && f->unready)
        return false;
    return worth_host_always(cost, &f->weighing.speed, bytes_per_token(f->seq->ns));
}

bool worth_is_asked(const struct core *c, const struct find *f)
{
    return f->seq->worth && c->mod.weigh->is_on && f->tokens > f->from &&
           (f->seq->cost.ns_per_token != 0 || f->seq->cost.ns_per_token_pair != 0);
}

static void weigh_begin(struct core *c, struct find *f)
{
    const struct worth_cost cost = {f->seq->cost.ns_per_token, f->seq->cost.ns_per_token_pair};
    struct weighing *x = &f->weighing;
    *x = (struct weighing){.begun = true, .speed = speed_now(c)};
    x->ended = is_plain(c, f, &cost);
    worth_begin(&x->worth, &cost, &x->speed, f->from, f->tokens);
    x->tokens = MIN(f->coarsest, f->tokens);
}

bool worth_weigh(struct core *c, struct find *f, uint32_t *ret_tokens)
{
    struct weighing *x = &f->weighing;
    struct worth_load load;
    if (!x->begun)
        weigh_begin(c, f);
    *ret_tokens = f->tokens;
    if (x->ended)
        return true;
    for (;; x->tokens += MIN(f->coarsest, f->tokens - x->tokens)) {
        if (find_paused(c, f))
            return false;
        if (x->tokens == f->tokens || find_satisfies(c, f, x->tokens)) {
            if (!load_of(c, f, x->tokens, &load))
                return false;
            worth_offer(&x->worth, x->tokens, &load);
        }
        if (x->tokens == f->tokens)
            break;
    }
    *ret_tokens = x->worth.ret_tokens;
    return true;
}

bool worth_load_now(struct core *c, struct find *f, uint64_t *ret_ns)
{
    struct worth_load load;
    *ret_ns = 0;
    if (!core_stores(c) || f->seq->absent)
        return true;
    if (f->weighing.begun) /* start anew: the weighing has moved the spans */
        f->weighing = (struct weighing){.begun = false};
    if (!load_of(c, f, f->tokens, &load))
        return false;
    load.host_bytes = 0;
    const struct worth_speed speed = speed_now(c);
    *ret_ns = (uint64_t)worth_load_ns(&speed, &load);
    return true;
}

static bool probe_may(const struct core *c)
{
    return c->now_ms >= c->mod.weigh->probe_ms && c->moving.reading_bytes == 0 &&
           c->moving.wanted_bytes == 0;
}

/* Begins to read the block as a probe, unless it is in memory or moving. Returns whether that was
 * tried. */
static bool probe_took(struct core *c, struct block *b)
{
    if (block_ready(b) || b->moving > 0)
        return false;
    c->mod.weigh->probe_ms = c->now_ms + PROBE_MS;
    c->m.prefetches += load_begin(c, b) == 0;
    return true;
}

void worth_probe(struct core *c, const struct find *f)
{
    if (!probe_may(c))
        return;
    for (uint32_t g = 0; g < f->seq->ngroups; g++)
        for (uint32_t i = 0; i < f->lead[g]; i++)
            if (probe_took(c, &c->blocks[c->lookup.found[f->at[g] + i]]))
                return;
}

void worth_probe_first(struct core *c)
{
    if (!c->mod.weigh->is_on || !core_stores(c) || !probe_may(c) || reads_are_known(c))
        return;
    for (uint32_t no = 0; no < MIN(c->blocks_high, FIRST_LOOK); no++) {
        struct block *b = &c->blocks[no];
        if (b->state == BLOCK_PRESENT && !copy_there(b, CORE_HOST) && probe_took(c, b))
            return;
    }
}

void core_load_or_recompute(struct core *c, bool on)
{
    c->mod.weigh->is_on = on;
}

bool core_load_or_recompute_now(const struct core *c)
{
    return c->mod.weigh->is_on;
}
