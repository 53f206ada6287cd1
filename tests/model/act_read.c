/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup, acquire, redeem, release, and waiting. */
#include <stdlib.h>

#include "act.h"

/* ---- reading ---- */

static void note_lease(struct model *m, int client, const struct core_held *held, uint32_t ns,
                       const int *blocks, uint32_t n)
{
    m->lease = grow_one(m->lease, &m->nleases, &m->cap_lease, sizeof(*m->lease));
    struct m_lease *l = &m->lease[m->nleases - 1];
    l->alive = l->held = true;
    l->device = M_NONE;
    l->id = held->lease;
    memcpy(l->ticket, held->ticket, sizeof(l->ticket));
    l->client = client;
    l->tokens = held->prefix.tokens;
    l->ngroups = held->ngroups;
    l->n = n;
    l->ns = ns;
    for (uint32_t i = 0; i < n; i++) {
        l->block[i] = blocks[i];
        m->block[blocks[i]].leases++;
        l->bytes += m_bytes(m, &m->block[blocks[i]]);
    }
    m->client[client].lease_bytes += l->bytes;
    m_check_lease(m, m->nleases - 1);
}

static uint32_t leases_held(const struct model *m)
{
    uint32_t n = 0;
    for (int i = 0; i < m->nleases; i++)
        n += m->lease[i].held;
    return n;
}

/* What a lease of these blocks must give: 0, BUSY or LIMIT. */
static int lease_verdict(const struct model *m, int client, const int *blocks, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += m_bytes(m, &m->block[blocks[i]]);
    if (leases_held(m) == m->cfg.leases_max)
        return KVC_E_BUSY;
    return m->client[client].lease_bytes + bytes > m->cfg.lease_bytes_max ? KVC_E_LIMIT : 0;
}

/* The answer of an acquire that did not wait. */
static void check_acquired(struct model *m, int client, const struct m_seq *s,
                           const struct m_hit *hit, uint32_t from, int err,
                           const struct core_held *held)
{
    const struct core_ns_spec *spec = &m->ns[s->ns].spec;
    static int blocks[M_BLOCKS_MAX];
    uint32_t n = 0, first[M_GROUPS_MAX] = {0}, count[M_GROUPS_MAX] = {0};
    for (uint32_t g = 0; g < spec->ngroups && hit->tokens > from; g++) {
        uint32_t bt = spec->group[g].block_tokens;
        for (uint32_t i = hit->first[g]; i < hit->end[g]; i++) {
            if (MIN((i + 1) * bt, s->tokens) <= from)
                continue;
            if (count[g]++ == 0)
                first[g] = i;
            blocks[n++] = hit->block[g][i];
        }
    }
    int verdict = n ? lease_verdict(m, client, blocks, n) : 0;
    HOLDS(m, err == verdict);
    if (err)
        return;
    HOLDS(m, held->prefix.tokens == hit->tokens && (held->lease != 0) == (n > 0));
    HOLDS(m, held->ngroups == spec->ngroups);
    m_check_reasons(m, s, hit, &held->prefix);
    for (uint32_t g = 0; n && g < spec->ngroups; g++)
        HOLDS(m, held->group[g].first == first[g] && held->group[g].n == count[g]);
    if (n)
        note_lease(m, client, held, s->ns, blocks, n);
}

static int ask(struct model *m, int client, const struct m_seq *s, struct core_ns *ns,
               uint32_t from, uint32_t enough, struct core_waiter *w)
{
    struct core_acquire in = {.from_tokens = from, .wait_tokens = enough, .wait = w != NULL};
    struct m_hit *hit = malloc(sizeof(*hit));
    struct core_held held;
    const char *why;
    MUST(hit != NULL);
    m_lookup(m, s, hit);
    m_seq_core(m, s, ns, &in.seq);
    int err = core_acquire(m->core, m->client[client].cl, &in, w, &held, &why);
    uint32_t goal = enough ? MIN(enough, s->tokens) : s->tokens;
    bool waits = w != NULL && hit->tokens < goal && hit->most > hit->tokens;
    HOLDS(m, (err == 1) == waits);
    if (err != 1)
        check_acquired(m, client, s, hit, from, err, &held);
    free(hit);
    return err;
}

static void on_wake(struct core_waiter *cw)
{
    struct m_waiter *w = (struct m_waiter *)(void *)cw;
    struct model *m = w->model;
    HOLDS(m, w->waiting);
    struct core_ns *ns;
    int err = core_ns_get(m->core, m->client[w->client].cl, m->ns[w->seq.ns].id, NULL, 0, &ns);
    HOLDS(m, err == (m->ns[w->seq.ns].alive ? 0 : KVC_E_NO_NAMESPACE));
    if (!err)
        err = ask(m, w->client, &w->seq, ns, w->from, w->enough, &w->w);
    if (err == 1)
        return;
    for (unsigned i = 0; i < ARRAY_LEN(m->waiter); i++)
        if (m->waiter[i] == w)
            m->waiter[i] = NULL;
    free(w);
}

void do_acquire(struct model *m)
{
    int c = any_client(m);
    struct core_ns *ns;
    int ns_no = c == M_NONE ? M_NONE : pick_ns(m, c, &ns);
    if (ns_no == M_NONE)
        return;
    struct m_waiter *w = calloc(1, sizeof(*w));
    MUST(w != NULL);
    w->model = m;
    w->client = c;
    w->w.fn = on_wake;
    random_seq(m, (uint32_t)ns_no, &w->seq);
    w->from = rnd(m, 3) ? 0 : rnd(m, w->seq.tokens + 1);
    w->enough = rnd(m, 2) ? 0 : rnd(m, w->seq.tokens + 2);
    unsigned slot = rnd(m, ARRAY_LEN(m->waiter));
    bool wait = rnd(m, 2) && m->waiter[slot] == NULL;
    int err = ask(m, c, &w->seq, ns, w->from, w->enough, wait ? &w->w : NULL);
    if (err != 1) {
        free(w);
        return;
    }
    w->waiting = true;
    m->waiter[slot] = w;
}

void do_waiter_deadline(struct model *m)
{
    unsigned i = rnd(m, ARRAY_LEN(m->waiter));
    struct m_waiter *w = m->waiter[i];
    struct core_ns *ns;
    if (w == NULL)
        return;
    core_waiter_cancel(m->core, &w->w);
    m->waiter[i] = NULL;
    if (core_ns_get(m->core, m->client[w->client].cl, m->ns[w->seq.ns].id, NULL, 0, &ns) == 0)
        HOLDS(m, ask(m, w->client, &w->seq, ns, w->from, w->enough, NULL) != 1);
    free(w);
}

void do_lookup(struct model *m)
{
    static struct m_seq s;
    static struct m_hit hit;
    int c = any_client(m);
    struct core_ns *ns;
    int ns_no = c == M_NONE ? M_NONE : pick_ns(m, c, &ns);
    if (ns_no == M_NONE)
        return;
    random_seq(m, (uint32_t)ns_no, &s);
    m_lookup(m, &s, &hit);
    struct core_seq in;
    struct core_prefix prefix;
    const char *why;
    m_seq_core(m, &s, ns, &in);
    HOLDS(m, core_lookup(m->core, &in, rnd(m, 2), &prefix, &why) == 0);
    HOLDS(m, prefix.tokens == hit.tokens);
    m_check_reasons(m, &s, &hit, &prefix);
    in.n[0] += 2; /* neither whole blocks nor those and a partly filled one */
    HOLDS(m, core_lookup(m->core, &in, false, &prefix, &why) == KVC_E_BAD_ARGUMENT && why);
}

int any_lease(struct model *m)
{
    return m->nleases ? m->nleases - 1 - (int)rnd(m, (uint32_t)MIN(m->nleases, 12)) : M_NONE;
}

void do_release(struct model *m)
{
    int i = any_lease(m);
    if (i == M_NONE)
        return;
    struct m_lease *l = &m->lease[i];
    int client = rnd(m, 8) ? l->client : any_client(m);
    if (client == M_NONE || m->client[client].state != M_OPEN)
        return;
    bool mine = l->alive && l->client == client;
    HOLDS(m, core_release(m->core, m->client[client].cl, l->id) == (mine ? 0 : KVC_E_NO_LEASE));
    if (!mine)
        return;
    l->alive = false;
    m_lease_settle(m, i);
}

void do_redeem(struct model *m)
{
    int i = any_lease(m), c = any_client(m);
    if (i == M_NONE || c == M_NONE)
        return;
    struct m_lease l = m->lease[i];
    bool forged = rnd(m, 8) == 0;
    if (forged)
        l.ticket[rnd(m, KVC_TICKET_BYTES)] ^= 1 + (uint8_t)rnd(m, 255);
    struct core_held held;
    uint32_t principal = m->client[l.client].who.principal;
    bool good = l.alive && !forged && principal == m->client[c].who.principal;
    int want = good ? lease_verdict(m, c, l.block, l.n) : KVC_E_NO_LEASE;
    HOLDS(m, core_redeem(m->core, m->client[c].cl, l.ticket, &held) == want);
    if (want)
        return;
    HOLDS(m, held.prefix.tokens == l.tokens && held.ngroups == l.ngroups && held.lease != l.id);
    HOLDS(m, memcmp(held.ticket, l.ticket, KVC_TICKET_BYTES) != 0);
    note_lease(m, c, &held, l.ns, l.block, l.n);
}
