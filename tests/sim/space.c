/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces, chains of keys, and what stands in each block. */
#include "sim.h"

#include <stdio.h>

const char *sim_sub(uint32_t sub)
{
    static const char *const names[SIM_SUBS] = {"", "a", "b"};
    return names[sub];
}

static struct codec_bin text(const char *t)
{
    return (struct codec_bin){(const uint8_t *)t, (uint32_t)strlen(t)};
}

static void random_group(struct sim *s, struct msg_group *g, uint32_t i)
{
    static const uint32_t tokens[] = {4, 8, 16}, bytes[] = {64, 128, 100, 256};
    *g = (struct msg_group){.block_tokens = tokens[sim_rnd(s, 3)],
                            .block_bytes = bytes[sim_rnd(s, 4)],
                            .rule =
                                (uint8_t)(i == 0 && sim_rnd(s, 4) ? KVC_RULE_FULL : sim_rnd(s, 3)),
                            .flags = sim_rnd(s, 3) ? 0 : KVC_F_REPLICATED};
    if (g->rule == KVC_RULE_WINDOW)
        g->window = 1 + sim_rnd(s, 4 * g->block_tokens);
}

/* Specs 0 and 1 differ in one field alone, so a key may be cached in a namespace that differs. */
void sim_space_begin(struct sim *s)
{
    static const char *const dtypes[SIM_SPECS] = {"bf16", "fp8", "bf16", "bf16"};
    static const char *const models[SIM_SPECS] = {"m0", "m0", "m1", "m2"};
    for (uint32_t i = 0; i < SIM_SPECS; i++) {
        struct msg_ns_open *n = &s->spec[i];
        *n = (struct msg_ns_open){.model = text(models[i]),
                                  .dtype = text(dtypes[i]),
                                  .position = text("rope"),
                                  .attention = text("causal"),
                                  .shards = sim_rnd(s, 3) ? 1 : 1 + sim_rnd(s, 4),
                                  .flags = i == 3 ? KVC_F_TOKENS : 0,
                                  .ngroups = sim_rnd(s, 3) ? 1 : 1 + sim_rnd(s, SIM_GROUPS)};
        for (uint32_t g = 0; g < n->ngroups; g++)
            random_group(s, &n->groups[g], g);
        if (i == 1) {
            *n = s->spec[0];
            n->dtype = text(dtypes[1]);
        }
    }
    for (uint32_t i = 0; i < s->swarm.specs; i++)
        for (uint32_t g = 0; g < s->spec[i].ngroups; g++)
            SIM_TRACE(s,
                      "namespace %u, group %u: %u tokens, %u bytes, rule %u, window %u, %u shards",
                      i, g, s->spec[i].groups[g].block_tokens, s->spec[i].groups[g].block_bytes,
                      s->spec[i].groups[g].rule, s->spec[i].groups[g].window,
                      s->spec[i].groups[g].flags & KVC_F_REPLICATED ? 1 : s->spec[i].shards);
    for (uint32_t i = 0; i < SIM_CHAINS; i++) {
        s->base[i] = i ? sim_rnd(s, i) : SIM_NONE;
        s->share[i] = sim_rnd(s, 100);
    }
}

static uint32_t root_of(const struct sim *s, uint32_t chain, uint32_t end)
{
    while (s->base[chain] != SIM_NONE && end <= s->share[chain])
        chain = s->base[chain];
    return chain;
}

/* Groups with equal block_tokens have equal keys, and so have all tenants: that is the point. */
void sim_key(const struct sim *s, uint32_t chain, uint32_t bt, uint32_t end, uint8_t *ret_key)
{
    uint32_t v[3] = {root_of(s, chain, end), bt, end};
    struct hash128 h = hash_sum(v, sizeof v);
    memcpy(ret_key, h.b, 16);
    memcpy(ret_key + 16, h.b, 16);
}

void sim_fill(const struct sim_space *space, uint32_t group, const uint8_t *key, uint32_t shard,
              uint8_t *to, uint32_t bytes)
{
    uint32_t v[12] = {space->principal, space->spec, space->sub, group};
    memcpy(&v[4], key, KVC_KEY_BYTES);
    struct hash128 h = hash_sum(v, sizeof v);
    uint8_t seed[KVC_KEY_BYTES];
    memcpy(seed, h.b, 16);
    memcpy(seed + 16, h.b, 16);
    fake_fill(to, bytes, seed, shard);
}

uint32_t sim_end_of(const struct sim *s, const struct sim_seq *q, uint32_t group, uint32_t block)
{
    return MIN(q->tokens, (block + 1) * s->spec[q->space.spec].groups[group].block_tokens);
}

uint32_t sim_nkeys(const struct sim *s, const struct sim_seq *q, uint32_t group)
{
    uint32_t bt = s->spec[q->space.spec].groups[group].block_tokens;
    return q->tokens / bt + (q->partial && q->tokens % bt);
}

uint32_t sim_tokens_max(const struct sim *s, uint32_t spec)
{
    uint32_t finest = UINT32_MAX;
    for (uint32_t g = 0; g < s->spec[spec].ngroups; g++)
        finest = MIN(finest, s->spec[spec].groups[g].block_tokens);
    return finest * SIM_BLOCKS;
}

void sim_needs(const struct sim *s, uint32_t spec, uint32_t group, uint32_t tokens, uint32_t from,
               uint32_t *ret_first, uint32_t *ret_end)
{
    const struct msg_group *g = &s->spec[spec].groups[group];
    uint32_t end = (tokens + g->block_tokens - 1) / g->block_tokens, first = 0;
    if (g->rule == KVC_RULE_WINDOW)
        first = (tokens - MIN(tokens, g->window)) / g->block_tokens;
    if (g->rule == KVC_RULE_STATE && end)
        first = end - 1;
    *ret_first = MIN(end, MAX(first, from / g->block_tokens));
    *ret_end = end;
}

uint64_t sim_block_bytes(const struct sim *s, uint32_t spec, uint32_t group)
{
    const struct msg_group *g = &s->spec[spec].groups[group];
    return (uint64_t)g->block_bytes * (g->flags & KVC_F_REPLICATED ? 1 : s->spec[spec].shards);
}

struct msg_seq sim_msg_seq(struct sim *s, const struct sim_client *cl, const struct sim_seq *q)
{
    const struct msg_ns_open *spec = &s->spec[q->space.spec];
    uint32_t id = cl->ns[q->space.spec][q->space.sub];
    struct msg_seq m = {.ns = id, .tokens = q->tokens, .ngroups = spec->ngroups};
    if (!id) { /* not opened by itself: by way of the namespace without a sub-tenant */
        m.ns = cl->ns[q->space.spec][0];
        m.sub = text(sim_sub(q->space.sub));
    }
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        uint32_t n = sim_nkeys(s, q, g);
        for (uint32_t i = 0; i < n; i++)
            sim_key(s, q->chain, spec->groups[g].block_tokens, sim_end_of(s, q, g, i),
                    &s->keys[g][(size_t)i * KVC_KEY_BYTES]);
        m.keys[g] = (struct codec_bin){s->keys[g], n * KVC_KEY_BYTES};
    }
    return m;
}

void sim_span_key(const struct sim *s, const struct sim_span *p, uint32_t i, uint8_t *ret_key)
{
    uint32_t bt = s->spec[p->space.spec].groups[p->group].block_tokens;
    uint32_t end = (p->first + i + 1) * bt;
    if (i == p->n - 1 && p->last_tokens)
        end = (p->first + i) * bt + p->last_tokens;
    sim_key(s, p->chain, bt, end, ret_key);
}

/* As a confused worker names it: something of another chain, or that it is about to write. */
static void wrong_parent(struct sim *s, const struct sim_client *cl, const struct sim_span *p)
{
    uint32_t bt = s->spec[p->space.spec].groups[p->group].block_tokens;
    const uint32_t end = (1 + sim_rnd(s, p->first)) * bt;
    sim_key(s, sim_rnd(s, s->swarm.chains), bt, end, s->parent);
    for (uint32_t i = 0; i < SIM_RESVS; i++) {
        const struct sim_resv *v = &cl->resv[i];
        if (v->used && !v->asked && v->span.group == p->group &&
            memcmp(&v->span.space, &p->space, sizeof p->space) == 0)
            sim_span_key(s, &v->span, sim_rnd(s, v->span.n), s->parent);
    }
}

struct msg_reserve sim_msg_reserve(struct sim *s, const struct sim_client *cl,
                                   const struct sim_span *p)
{
    const struct msg_group *g = &s->spec[p->space.spec].groups[p->group];
    uint32_t id = cl->ns[p->space.spec][p->space.sub];
    struct msg_reserve m = {.ns = id ? id : cl->ns[p->space.spec][0],
                            .group = p->group,
                            .shard = p->shard,
                            .flags = p->durable ? KVC_F_DURABLE : 0,
                            .first_token = p->first * g->block_tokens,
                            .last_tokens = p->last_tokens};
    if (!id)
        m.sub = text(sim_sub(p->space.sub));
    if (p->first && g->rule == KVC_RULE_FULL) {
        sim_key(s, p->chain, g->block_tokens, p->first * g->block_tokens, s->parent);
        if (p->parent)
            memcpy(s->parent, p->parent, sizeof s->parent);
        else if (sim_pct(s, s->swarm.wrong_pct))
            wrong_parent(s, cl, p);
        m.parent = (struct codec_bin){s->parent, KVC_KEY_BYTES};
    }
    for (uint32_t i = 0; i < p->n; i++)
        sim_span_key(s, p, i, &s->keys[0][(size_t)i * KVC_KEY_BYTES]);
    m.keys = (struct codec_bin){s->keys[0], p->n * KVC_KEY_BYTES};
    return m;
}
