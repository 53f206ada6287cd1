/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true after every turn, and after some. */
#include <stdlib.h>

#include "admin.h"
#include "devices.h"
#include "sim.h"
#include "svc__.h"

#define SEEN_MAX   (1u << 13)
#define CORE_EVERY 16u /* turns */

struct sim_seen {
    uint64_t told[SEEN_MAX]; /* reservations that a client has been told of */
    uint32_t n;
    struct {
        uint32_t chunk;
        uint64_t off, gen, who;
    } at[SEEN_MAX];
};

void sim_check_begin(struct sim *s)
{
    s->seen = calloc(1, sizeof *s->seen);
    MUST(s->seen != NULL);
}

void sim_check_end(struct sim *s)
{
    free(s->seen);
}

/* ---- locations ---- */

void sim_check_seen(struct sim *s, const struct tier_view *v, const struct sim_space *space,
                    uint32_t group, const uint8_t *key, uint32_t shard)
{
    uint32_t w[5] = {space->principal, space->spec, space->sub, group, shard};
    uint64_t who = hash_u64(key, KVC_KEY_BYTES, hash_u64(w, sizeof w, 1));
    uint64_t at[3] = {v->chunk, v->off, v->gen};
    uint32_t i = (uint32_t)hash_u64(at, sizeof at, 2) % SEEN_MAX;
    if (s->seen->n > SEEN_MAX / 2) {
        memset(s->seen->at, 0, sizeof s->seen->at);
        s->seen->n = 0;
    }
    for (; s->seen->at[i].who; i = (i + 1) % SEEN_MAX) {
        if (s->seen->at[i].chunk != v->chunk || s->seen->at[i].off != v->off ||
            s->seen->at[i].gen != v->gen)
            continue;
        SIM_CHECK(s, s->seen->at[i].who == who, "generation %llu of a slot means two blocks",
                  (unsigned long long)v->gen);
        return;
    }
    s->seen->n++;
    s->seen->at[i].chunk = v->chunk;
    s->seen->at[i].off = v->off;
    s->seen->at[i].gen = v->gen;
    s->seen->at[i].who = who;
}

/* Where two share a place the younger one stays, and the older passes: nothing is held against it.
 */
void sim_check_told(struct sim *s, uint64_t reservation)
{
    uint32_t i = (uint32_t)hash_u64(&reservation, sizeof reservation, 3) % SEEN_MAX;
    s->seen->told[i] = MAX(s->seen->told[i], reservation);
}

/* Nothing stays reserved that no client knows of: what a STORE did not copy is given up. */
static void check_reservations(struct sim *s, const struct core_client *cl)
{
    struct list_node *head = (struct list_node *)(uintptr_t)&cl->reservations;
    LIST_FOR_EACH_SAFE (node, next, head) {
        uint64_t id = CONTAINER_OF(node, struct reservation, node)->id;
        uint32_t i = (uint32_t)hash_u64(&id, sizeof id, 3) % SEEN_MAX;
        SIM_CHECK(s, s->seen->told[i] >= id, "reservation %llu is of nobody",
                  (unsigned long long)id);
    }
}

void sim_check_lease(struct sim *s, const struct sim_client *cl, const struct sim_lease *l)
{
    const struct msg_ns_open *spec = &s->spec[l->seq.space.spec];
    for (uint32_t i = 0; i < l->n; i++) {
        const struct tier_view *v = &l->loc[i].view;
        uint32_t g = l->loc[i].group, bytes = spec->groups[g].block_bytes;
        uint32_t shard = spec->groups[g].flags & KVC_F_REPLICATED ? 0 : l->shard;
        uint8_t key[KVC_KEY_BYTES], want[SIM_SLOT];
        struct tier_label label;
        sim_key(s, l->seq.chain, spec->groups[g].block_tokens,
                sim_end_of(s, &l->seq, g, l->loc[i].block), key);
        const uint8_t *at = fake_tier_bytes(s->tier, v);
        SIM_CHECK(s, at && fake_tier_label(s->tier, v, &label),
                  "block %u of lease %llu of client %u is gone", l->loc[i].block,
                  (unsigned long long)l->id, sim_index(s, cl));
        SIM_CHECK(
            s,
            memcmp(label.key.b, key, sizeof key) == 0 && label.group == g && label.shard == shard,
            "block %u of lease %llu is another one", l->loc[i].block, (unsigned long long)l->id);
        sim_fill(&l->seq.space, g, key, shard, want, bytes);
        SIM_CHECK(s, v->bytes >= bytes && memcmp(at, want, bytes) == 0,
                  "block %u of lease %llu of client %u has wrong bytes", l->loc[i].block,
                  (unsigned long long)l->id, sim_index(s, cl));
        sim_check_seen(s, v, &l->seq.space, g, key, shard);
        s->totals->bytes_checked += bytes;
    }
    s->totals->locs_checked += l->n;
}

static void check_leases(struct sim *s, const struct sim_client *cl)
{
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        if (cl->lease[i].id)
            sim_check_lease(s, cl, &cl->lease[i]);
}

/* ---- the core's view ---- */

struct core_ns *sim_core_ns(struct sim *s, const struct sim_client *cl,
                            const struct sim_space *space)
{
    struct core_client *observer = s->observer[cl->principal];
    uint32_t id = cl->ns[space->spec][space->sub];
    struct core_ns *ns = ns_by_id(s->core, id);
    if (id)
        return ns;
    struct core_ns *base = ns_by_id(s->core, cl->ns[space->spec][0]);
    struct core_ns_view b, v;
    if (!base)
        return NULL;
    core_ns_view(base, &b);
    for (ns = core_ns_next(s->core, observer, 0); ns; ns = core_ns_next(s->core, observer, v.id)) {
        core_ns_view(ns, &v);
        if (v.principal == b.principal && strcmp(v.spec->sub, sim_sub(space->sub)) == 0 &&
            strcmp(v.spec->model, b.spec->model) == 0 && strcmp(v.spec->dtype, b.spec->dtype) == 0)
            return ns;
    }
    return NULL;
}

struct core_seq sim_core_seq(struct sim *s, struct core_ns *ns, const struct sim_seq *q)
{
    struct core_seq c = {.ns = ns, .tokens = q->tokens};
    c.ngroups = s->spec[q->space.spec].ngroups;
    for (uint32_t g = 0; g < c.ngroups; g++) {
        c.n[g] = sim_nkeys(s, q, g);
        c.keys[g] = s->keys[g];
        for (uint32_t i = 0; i < c.n[g]; i++)
            sim_key(s, q->chain, s->spec[q->space.spec].groups[g].block_tokens,
                    sim_end_of(s, q, g, i), &s->keys[g][(size_t)i * KVC_KEY_BYTES]);
    }
    return c;
}

/* Nobody waits for what is there, nor for what nobody writes. */
static void check_waiter(struct sim *s, const struct sim_client *cl, const struct sim_req *r)
{
    if (core_has_done(s->core) || s->disk)
        return; /* it may be about to be woken; or waits for what is loaded, or for room */
    SIM_CHECK(s, core_metrics(s->core)->blocks_pending > 0,
              "client %u waits (request %llu) and nothing is being written", sim_index(s, cl),
              (unsigned long long)r->corr);
    struct core_ns *ns = sim_core_ns(s, cl, &r->seq.space);
    struct core_prefix found;
    const char *why;
    if (!ns || r->any)
        return;
    struct core_seq q = sim_core_seq(s, ns, &r->seq);
    MUST(core_lookup(s->core, &q, false, &found, &why) == 0);
    uint32_t enough = r->wait_tokens ? MIN(r->wait_tokens, r->seq.tokens) : r->seq.tokens;
    SIM_CHECK(s, found.tokens < enough,
              "client %u waits (request %llu) for %u tokens and %u are there", sim_index(s, cl),
              (unsigned long long)r->corr, enough, found.tokens);
}

/* ---- requests ---- */

static void check_request(struct sim *s, const struct sim_client *cl, const struct sim_req *r)
{
    if (r->op == KVC_OP_CANCEL) {
        SIM_CHECK(s, sim_tier_of(s, cl, r->target) > 0 || s->slices, "CANCEL %llu is not answered",
                  (unsigned long long)r->corr);
        return;
    }
    const bool turns = s->slices && svc_next_ns(s->svc) == 0; /* it may have its turns */
    SIM_CHECK(s, s->now_ns < r->due_ns + WHEEL_TICK_NS || (turns && r->op == KVC_OP_ACQUIRE),
              "request %llu, operation %u: its deadline passed", (unsigned long long)r->corr,
              r->op);
    SIM_CHECK(s, svc_next_ns(s->svc) <= r->due_ns + WHEEL_TICK_NS,
              "nothing will wake the daemon at the deadline of request %llu",
              (unsigned long long)r->corr);
    if (r->op == KVC_OP_RELEASE || turns || (s->slices && r->op == KVC_OP_VERIFY))
        return;
    const bool stores = r->op == KVC_OP_COMMIT || (r->op == KVC_OP_STORE && !s->disk);
    if (stores && r->span.durable) /* for storage, and for other shards that may never come */
        return;
    if (stores || r->op == KVC_OP_VERIFY)
        SIM_CHECK(s, sim_tier_of(s, cl, r->corr) > 0,
                  "every operation of request %llu has ended, no reply",
                  (unsigned long long)r->corr);
    else if (r->op == KVC_OP_EVICT)
        SIM_CHECK(s,
                  s->more || s->nflights || sim_hbm_inflight(s) ||
                      (s->disk && fake_disk_inflight(s->disk)),
                  "an eviction is not done and nothing wakes the daemon");
    else
        check_waiter(s, cl, r);
}

static void check_client(struct sim *s, struct sim_client *cl)
{
    SIM_CHECK(s, !cl->doomed || cl->state == CL_OFF || cl->state == CL_DROPPED,
              "client %u should have been dropped", sim_index(s, cl));
    SIM_CHECK(s, cl->state != CL_OPEN || s->now_ns < cl->opened_ns + 5000 * SIM_MS + WHEEL_TICK_NS,
              "client %u says nothing and keeps its place", sim_index(s, cl));
    if (cl->state == CL_OPEN)
        SIM_CHECK(s, svc_next_ns(s->svc) <= cl->opened_ns + 5001 * SIM_MS,
                  "nothing will wake the daemon for client %u", sim_index(s, cl));
    for (uint32_t i = 0; cl->state == CL_READY && i < SIM_REQS; i++)
        if (cl->req[i].used && cl->req[i].delivered && !cl->req[i].timed_out)
            check_request(s, cl, &cl->req[i]);
}

/* ---- gauges, counted again ---- */

static uint64_t known_bytes(const struct sim_client *cl)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        n += cl->lease[i].id ? cl->lease[i].bytes : 0;
    return n;
}

static void check_session(struct sim *s, const struct session *se)
{
    const struct sim_client *cl = NULL;
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        if (s->client[i].state != CL_OFF && s->client[i].conn == se->conn)
            cl = &s->client[i];
    SIM_CHECK(s, (cl != NULL) == (se->state != SESSION_FREE && se->state != SESSION_CLOSING),
              "session %u has no connection, or one too many", se->index);
    /* What is always heard may have to wait for its turn, too. */
    SIM_CHECK(s, se->inflight <= s->svc_cfg.requests_max + (s->slices ? SIM_REQS : 0),
              "%u requests of one session in flight", se->inflight);
    if (!cl || !se->client)
        return;
    uint64_t bytes = core_client_lease_bytes(se->client);
    SIM_CHECK(s, bytes <= s->core_cfg.lease_bytes_max, "%llu bytes under lease, %llu allowed",
              (unsigned long long)bytes, (unsigned long long)s->core_cfg.lease_bytes_max);
    if (!cl->lost && cl->state == CL_READY && !s->slices)
        check_reservations(s, se->client);
    SIM_CHECK(s, cl->lost || bytes == known_bytes(cl) || (s->slices && bytes > known_bytes(cl)),
              "client %u: %llu bytes under lease, it knows %llu", sim_index(s, cl),
              (unsigned long long)bytes, (unsigned long long)known_bytes(cl));
}

static void check_sessions(struct sim *s)
{
    const struct svc *v = s->svc;
    uint64_t sessions = 0, quarantined = 0, calls = 0, leased = 0, staging = 0, kept = 0,
             commits = 0, ready = 0;
    for (uint32_t i = 0; i < svc_conns_max(&v->cfg); i++) {
        const struct session *se = &v->sessions[i];
        uint32_t inflight = 0;
        sessions += se->state != SESSION_FREE;
        ready += se->state == SESSION_READY;
        quarantined += se->state == SESSION_DROPPED;
        leased += se->client ? core_client_lease_bytes(se->client) : 0;
        staging += se->staging_bytes;
        LIST_FOR_EACH_SAFE (node, next, &se->calls) {
            const struct call *call = CONTAINER_OF(node, struct call, node);
            kept += call->kept != NULL;
            commits += call->kind == &commit_kind;
            inflight++;
        }
        SIM_CHECK(s, inflight == se->inflight, "session %u: %u calls, %u in flight", i, inflight,
                  se->inflight);
        calls += inflight;
        check_session(s, se);
    }
    SIM_CHECK(s, s->draining || ready == s->admitted, "%u routes are let in, %llu sessions ready",
              s->admitted, (unsigned long long)ready);
    uint64_t made = 0;
    for (uint32_t i = 0; i < SIM_STAGINGS; i++)
        made += s->staging[i].made ? s->staging[i].bytes : 0;
    SIM_CHECK(s, sessions == v->m.sessions && quarantined == v->m.quarantined,
              "gauges of sessions");
    SIM_CHECK(s, calls == v->m.calls && kept == s->kept,
              "%llu calls, the gauge has %llu; %llu of %u kept", (unsigned long long)calls,
              (unsigned long long)v->m.calls, (unsigned long long)kept, s->kept);
    leased += sim_hbm_leased(s);
    commits += sim_hbm_commits(s);
    SIM_CHECK(s, leased == core_metrics(s->core)->leased_bytes, "gauge of leased bytes");
    SIM_CHECK(s, commits == core_metrics(s->core)->commits_in_flight, "gauge of commits in flight");
    SIM_CHECK(s, staging == v->m.staging_bytes && staging == made, "gauge of staging");
}

/* What the core has taken of the tier, block by block, is what the tier has given. */
static void check_room(struct sim *s)
{
    struct core *c = s->core;
    const struct tier *host = s->core_cfg.tier[CORE_HOST];
    struct tier_stats t;
    uint64_t slots = 0, bytes = 0;
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        if (b->state == BLOCK_FREE)
            continue;
        uint32_t n = !(b->flags & BLOCK_F_PARTS) && b->where;
        for (uint32_t i = b->where; b->flags & BLOCK_F_PARTS && i != CORE_NONE;) {
            const struct part *p = pool_at(c->parts, i);
            n += p->loc.id != 0;
            i = p->next;
        }
        slots += n;
        bytes += (uint64_t)n * host->ops->slot_bytes(host, block_group(c, b)->block_bytes);
    }
    uint64_t namespaces = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        namespaces += c->ns[i].id != 0;
    SIM_CHECK(s, namespaces == c->m.namespaces, "gauge of namespaces");
    host->ops->stats(host, &t);
    SIM_CHECK(s, slots == t.used_slots && bytes == t.used_bytes,
              "blocks take %llu slots and %llu bytes, the tier has given %llu and %llu",
              (unsigned long long)slots, (unsigned long long)bytes,
              (unsigned long long)t.used_slots, (unsigned long long)t.used_bytes);
    SIM_CHECK(s, t.inflight_ops == s->nflights, "operations in flight");
}

/* Every block of a full group that is there stands on blocks that are there. */
static void check_orphans(struct sim *s)
{
    struct core *c = s->core;
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        if (b->state != BLOCK_PRESENT || b->parent == CORE_NONE)
            continue;
        const struct block *p = &c->blocks[b->parent];
        SIM_CHECK(s, p->state == BLOCK_PRESENT || p->state == BLOCK_PENDING,
                  "a block without the one before it");
    }
}

void sim_check_turn(struct sim *s)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        if (s->client[i].state != CL_OFF)
            check_client(s, &s->client[i]);
    check_sessions(s);
    check_leases(s, &s->client[sim_rnd(s, SIM_CLIENTS)]);
    if (s->turn % CORE_EVERY)
        return;
    core_check(s->core);
    check_room(s);
    check_orphans(s);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        check_leases(s, &s->client[i]);
}
