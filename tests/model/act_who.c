/* SPDX-License-Identifier: Apache-2.0 */
/* Clients and namespaces: come, go, and are found again. */
#include <stdio.h>
#include <stdlib.h>

#include "act.h"

/* Room for one more; the address of the array may change. */
void *grow_one(void *items, int *n, int *cap, size_t size)
{
    if (*n == *cap) {
        *cap = *cap * 2 + 64;
        items = realloc(items, (size_t)*cap * size);
        MUST(items != NULL);
    }
    memset((char *)items + (size_t)*n * size, 0, size);
    ++*n;
    return items;
}

/* ---- shapes ---- */

static const uint32_t block_tokens_of[] = {1, 2, 3, 8, 16, 64, 1024};
static const uint32_t block_bytes_of[] = {64, 100, 1, 256, 1000};

static void random_group(struct model *m, struct core_group *g, uint32_t i)
{
    *g = (struct core_group){.block_tokens = block_tokens_of[rnd(m, 7)],
                             .block_bytes = block_bytes_of[rnd(m, 5)],
                             .rule = (uint8_t)(i == 0 && rnd(m, 4) ? KVC_RULE_FULL : rnd(m, 3)),
                             .flags = rnd(m, 3) ? 0 : KVC_F_REPLICATED};
    if (g->rule == KVC_RULE_WINDOW)
        g->window = 1 + rnd(m, 4 * g->block_tokens);
}

/* One of four kinds per run; the kind is told by the model's name. */
static void random_spec(struct model *m, uint32_t kind, struct core_ns_spec *spec)
{
    uint64_t keep = m->random;
    m->random = m->seed * 31 + kind + 1;
    *spec = (struct core_ns_spec){.attention = "causal", .position = "rope"};
    snprintf(spec->model, sizeof(spec->model), "kind-%u", kind / 2);
    snprintf(spec->dtype, sizeof(spec->dtype), "f%u", kind);
    spec->shards = 1 + (rnd(m, 2) ? rnd(m, M_SHARDS_MAX) : 0);
    spec->ngroups = 1 + (rnd(m, 2) ? rnd(m, M_GROUPS_MAX) : 0);
    for (uint32_t g = 0; g < spec->ngroups; g++)
        random_group(m, &spec->group[g], g);
    m->random = keep;
}

static uint32_t tokens_max_of(const struct core_ns_spec *spec)
{
    uint32_t finest = KVC_BLOCK_TOKENS_MAX, coarsest = 1;
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        finest = MIN(finest, spec->group[g].block_tokens);
        coarsest = MAX(coarsest, spec->group[g].block_tokens);
    }
    return MIN(MIN(finest * 48, coarsest * 20), 4000u);
}

/* ---- clients ---- */

void on_idle(void *ctx)
{
    struct m_client *cl = ctx;
    cl->idle++;
}

static const struct core_identity identities[] = {
    {.principal = 1, .name = "one", .tenant = "t1", .gateway = true},
    {.principal = 1, .name = "one", .tenant = "t1"},
    {.principal = 2, .name = "two", .tenant = "t2"},
    {.principal = 3, .name = "three", .tenant = "t3", .gateway = true},
};

int any_client(struct model *m)
{
    for (unsigned tries = 0; tries < 16; tries++) {
        int i = (int)rnd(m, M_CLIENTS_MAX);
        if (m->client[i].state == M_OPEN)
            return i;
    }
    return M_NONE;
}

void do_client_open(struct model *m)
{
    for (int i = 0; i < M_CLIENTS_MAX; i++) {
        struct m_client *cl = &m->client[i];
        if (cl->state == M_CLOSING && cl->idle == 1)
            cl->state = M_CLOSED;
        if (cl->state != M_CLOSED)
            continue;
        uint32_t open = 1; /* the administrator */
        for (int k = 0; k < M_CLIENTS_MAX; k++)
            open += m->client[k].state != M_CLOSED && m->client[k].idle == 0;
        *cl = (struct m_client){.who = identities[rnd(m, ARRAY_LEN(identities))]};
        int err = core_client_open(m->core, &cl->who, on_idle, cl, &cl->cl);
        HOLDS(m, err == (open < m->cfg.clients_max ? 0 : KVC_E_LIMIT));
        cl->state = err ? M_CLOSED : M_OPEN;
        return;
    }
}

/* What the end of a client, or its quarantine, does to blocks. */
static void drop_of_client(struct model *m, int client)
{
    for (int r = 0; r < m->nresv; r++) {
        const struct m_resv *v = &m->resv[r];
        for (uint32_t i = 0; v->client == client && i < v->n; i++) {
            if (v->block[i] == M_NONE)
                continue;
            const struct m_block *b = &m->block[v->block[i]];
            if (b->state == M_PENDING && b->shard[v->shard].state == M_RESERVED &&
                b->shard[v->shard].resv == r)
                m_kill_tree(m, v->block[i], KVC_MISS_DROPPED);
        }
    }
}

/* Copies are asked to stop. */
static void cancel_of_client(struct model *m, int client)
{
    for (int i = 0; i < m->ncommits; i++)
        m->commit[i]->cancelled |= m->commit[i]->client == client;
    for (unsigned i = 0; i < ARRAY_LEN(m->send); i++)
        if (m->send[i] && m->send[i]->client == client)
            m->send[i]->cancelled = true;
}

static void waiters_of_client(struct model *m, int client)
{
    for (unsigned i = 0; i < ARRAY_LEN(m->waiter); i++) {
        struct m_waiter *w = m->waiter[i];
        if (w == NULL || w->client != client)
            continue;
        core_waiter_cancel(m->core, &w->w);
        free(w);
        m->waiter[i] = NULL;
    }
}

void do_quarantine(struct model *m)
{
    int i = rnd(m, 3) ? M_NONE : any_client(m);
    if (i == M_NONE)
        return;
    waiters_of_client(m, i);
    core_client_quarantine(m->core, m->client[i].cl);
    drop_of_client(m, i);
    cancel_of_client(m, i);
    m->client[i].state = M_QUARANTINED;
}

void close_client(struct model *m, int i)
{
    struct m_client *cl = &m->client[i];
    waiters_of_client(m, i);
    for (int k = 0; k < m->nleases; k++) {
        struct m_lease *l = &m->lease[k];
        if (!l->alive || l->client != i)
            continue;
        l->alive = false;
        m_lease_settle(m, k);
    }
    drop_of_client(m, i);
    cancel_of_client(m, i);
    cl->state = M_CLOSING;
    core_client_close(m->core, cl->cl);
}

void do_client_close(struct model *m)
{
    int i = (int)rnd(m, M_CLIENTS_MAX);
    if (m->client[i].state == M_QUARANTINED || (m->client[i].state == M_OPEN && rnd(m, 4) == 0))
        close_client(m, i);
}

/* ---- namespaces ---- */

static int ns_known(struct model *m, uint32_t principal, const struct core_ns_spec *spec)
{
    for (uint32_t i = 0; i < m->nns; i++)
        if (m->ns[i].alive && m->ns[i].principal == principal &&
            memcmp(&m->ns[i].spec, spec, sizeof(*spec)) == 0)
            return (int)i;
    return M_NONE;
}

/* A slot that is empty or may be taken: one whose namespace has no record. */
static bool ns_has_room(const struct model *m)
{
    uint32_t full = 0;
    for (uint32_t i = 0; i < m->nns; i++)
        full += m->ns[i].alive && m_records(m, i) > 0;
    return full < m->cfg.namespaces_max;
}

static bool core_has_ns(struct model *m, uint32_t id)
{
    const struct core_ns *ns = core_ns_next(m->core, m->admin, id - 1);
    struct core_ns_view v;
    if (ns == NULL)
        return false;
    core_ns_view(ns, &v);
    return v.id == id;
}

/* `ns` came out of the core for this spec; returns its number in the model. */
static int ns_note(struct model *m, const struct core_ns *ns, uint32_t principal,
                   const struct core_ns_spec *spec)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    HOLDS(m, v.id != 0 && v.principal == principal);
    int known = ns_known(m, principal, spec);
    for (uint32_t i = 0; i < m->nns; i++) {
        if (!m->ns[i].alive || core_has_ns(m, m->ns[i].id))
            continue;
        HOLDS(m, m_records(m, i) == 0 && (int)i != known);
        m->ns[i].alive = false;
    }
    if (known != M_NONE) {
        HOLDS(m, m->ns[known].id == v.id);
        return known;
    }
    for (uint32_t i = 0; i < m->nns; i++)
        HOLDS(m, m->ns[i].id != v.id);
    HOLDS(m, m->nns < ARRAY_LEN(m->ns));
    m->ns[m->nns] = (struct m_ns){.alive = true,
                                  .id = v.id,
                                  .principal = principal,
                                  .spec = *spec,
                                  .tokens_max = tokens_max_of(spec)};
    return (int)m->nns++;
}

void do_ns_open(struct model *m)
{
    int c = any_client(m);
    if (c == M_NONE || m->nns + 1 >= ARRAY_LEN(m->ns))
        return;
    const struct m_client *cl = &m->client[c];
    struct core_ns_spec spec;
    random_spec(m, rnd(m, 4), &spec);
    if (rnd(m, 4) == 0)
        strcpy(spec.sub, rnd(m, 2) ? "alice" : "bob");
    struct core_ns *ns;
    struct core_similar similar[4];
    uint32_t nsimilar;
    const char *why;
    bool known = ns_known(m, cl->who.principal, &spec) != M_NONE;
    bool room = known || ns_has_room(m);
    int err = core_ns_open(m->core, cl->cl, &spec, &ns, similar, &nsimilar, &why);
    if (spec.sub[0] && !cl->who.gateway)
        HOLDS(m, err == KVC_E_DENIED && why != NULL);
    else if (!room)
        HOLDS(m, err == KVC_E_LIMIT && why != NULL);
    else
        HOLDS(m, err == 0 && ns_note(m, ns, cl->who.principal, &spec) != M_NONE);
}

/* A namespace for this client, by way of its id and perhaps a sub-tenant. */
int pick_ns(struct model *m, int client, struct core_ns **ret_ns)
{
    const struct m_client *cl = &m->client[client];
    if (m->nns == 0)
        return M_NONE;
    uint32_t i = m->nns - 1 - rnd(m, MIN(m->nns, 12u));
    for (unsigned tries = rnd(m, 12); tries > 0; tries--) /* mostly one of its own */
        if (!m->ns[i].alive || m->ns[i].principal != cl->who.principal)
            i = rnd(m, m->nns);
    const char *sub = rnd(m, 6) ? "" : rnd(m, 2) ? "alice" : "carol";
    struct core_ns_spec spec = m->ns[i].spec;
    bool mine = m->ns[i].alive && m->ns[i].principal == cl->who.principal;
    bool named = sub[0] != 0 || spec.sub[0] != 0;
    if (sub[0]) {
        memset(spec.sub, 0, sizeof(spec.sub));
        strcpy(spec.sub, sub);
    }
    bool room = ns_known(m, cl->who.principal, &spec) != M_NONE || ns_has_room(m);
    if (m->nns + 1 >= ARRAY_LEN(m->ns))
        return M_NONE;
    int err = core_ns_get(m->core, cl->cl, m->ns[i].id, (const uint8_t *)sub, (uint32_t)strlen(sub),
                          ret_ns);
    if (!mine)
        HOLDS(m, err == KVC_E_NO_NAMESPACE);
    else if (named && !cl->who.gateway)
        HOLDS(m, err == KVC_E_DENIED);
    else if (!room)
        HOLDS(m, err == KVC_E_LIMIT);
    else
        HOLDS(m, err == 0);
    return err ? M_NONE : ns_note(m, *ret_ns, cl->who.principal, &spec);
}

void random_seq(struct model *m, uint32_t ns, struct m_seq *ret)
{
    uint32_t most = m->ns[ns].tokens_max;
    uint32_t tokens = rnd(m, 3) ? most : 1 + rnd(m, most);
    m_seq_make(m, ns, rnd(m, M_SEQS), tokens, rnd(m, 4) != 0, ret);
}
