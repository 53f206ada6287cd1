/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>

void model_fail(const struct model *m, const char *file, int line, const char *cond)
{
    fprintf(stderr, "%s:%d: seed %llu, turn %u: does not hold: %s\n", file, line,
            (unsigned long long)m->seed, m->turn, cond);
    abort();
}

uint32_t rnd(struct model *m, uint32_t below)
{
    return (uint32_t)(fake_random(&m->random) % below);
}

/* ---- sequences ---- */

static uint64_t token_at(const struct model *m, uint32_t which, uint32_t pos, uint32_t tokens_max)
{
    while (m->share_of[which] != M_NONE && pos < m->share_part[which] * tokens_max / 64)
        which = (uint32_t)m->share_of[which];
    uint64_t v[2] = {which, pos};
    return hash_u64(v, sizeof(v), 1);
}

void m_seq_make(struct model *m, uint32_t ns, uint32_t which, uint32_t tokens, bool partial,
                struct m_seq *ret)
{
    const struct m_ns *space = &m->ns[ns];
    ret->ns = ns;
    ret->tokens = tokens;
    for (uint32_t g = 0; g < space->spec.ngroups; g++) {
        uint32_t bt = space->spec.group[g].block_tokens;
        struct {
            struct hash128 parent[2];
            uint64_t token;
        } link = {0};
        ret->n[g] = tokens / bt + (partial && tokens % bt != 0);
        for (uint32_t i = 0; i < ret->n[g]; i++) {
            for (uint32_t pos = i * bt; pos < MIN((i + 1) * bt, tokens); pos++) {
                link.token = token_at(m, which, pos, space->tokens_max);
                link.parent[0] = hash_sum(&link, sizeof(link));
            }
            link.token = ~UINT64_C(0); /* the end of a block */
            link.parent[1] = hash_sum(&link, sizeof(link));
            memcpy(ret->keys[g][i], link.parent, KVC_KEY_BYTES);
        }
    }
}

void m_seq_core(const struct model *m, const struct m_seq *s, struct core_ns *ns,
                struct core_seq *ret)
{
    *ret = (struct core_seq){.ns = ns, .tokens = s->tokens, .ngroups = m->ns[s->ns].spec.ngroups};
    for (uint32_t g = 0; g < ret->ngroups; g++) {
        ret->keys[g] = s->keys[g][0];
        ret->n[g] = s->n[g];
    }
}

/* ---- blocks ---- */

static uint32_t bucket_of(uint32_t ns, uint32_t group, const uint8_t *key)
{
    return (uint32_t)hash_u64(key, KVC_KEY_BYTES, (uint64_t)ns << 8 | group) % 4096;
}

/* The last block of that name, dead or alive. */
static int m_last(const struct model *m, uint32_t ns, uint32_t group, const uint8_t *key)
{
    for (int i = m->bucket[bucket_of(ns, group, key)]; i != M_NONE; i = m->block[i].older) {
        const struct m_block *b = &m->block[i];
        if (b->ns == ns && b->group == group && memcmp(b->key, key, KVC_KEY_BYTES) == 0)
            return i;
    }
    return M_NONE;
}

int m_find(const struct model *m, uint32_t ns, uint32_t group, const uint8_t *key)
{
    int i = m_last(m, ns, group, key);
    return i != M_NONE && m->block[i].state != M_DEAD ? i : M_NONE;
}

int m_block_new(struct model *m, uint32_t ns, uint32_t group, const uint8_t *key, uint32_t tokens,
                int parent)
{
    if (m->nblocks == m->cap) {
        m->cap = m->cap * 2 + 1024;
        m->block = realloc(m->block, (size_t)m->cap * sizeof(*m->block));
        MUST(m->block != NULL);
    }
    uint32_t k = bucket_of(ns, group, key);
    int no = m->nblocks++;
    struct m_block *b = &m->block[no];
    *b = (struct m_block){
        .ns = ns, .group = group, .tokens = tokens, .parent = parent, .older = m->bucket[k]};
    memcpy(b->key, key, KVC_KEY_BYTES);
    m->bucket[k] = no;
    return no;
}

bool m_has_children(const struct model *m, int block)
{
    for (int i = m->first_live; i < m->nblocks; i++)
        if (m->block[i].parent == block && m->block[i].state != M_DEAD)
            return true;
    return false;
}

void m_kill_tree(struct model *m, int block, enum kvc_miss reason)
{
    for (int i = m->first_live; i < m->nblocks; i++)
        if (m->block[i].parent == block && m->block[i].state != M_DEAD)
            m_kill_tree(m, i, reason);
    m->block[block].state = M_DEAD;
    m->block[block].reason = reason;
}

uint32_t m_shards(const struct model *m, const struct m_block *b)
{
    const struct core_ns_spec *spec = &m->ns[b->ns].spec;
    return spec->group[b->group].flags & KVC_F_REPLICATED ? 1 : spec->shards;
}

uint64_t m_bytes(const struct model *m, const struct m_block *b)
{
    return (uint64_t)m->ns[b->ns].spec.group[b->group].block_bytes * m_shards(m, b);
}

uint32_t m_shards_done(const struct m_block *b)
{
    uint32_t done = 0;
    for (uint32_t s = 0; s < M_SHARDS_MAX; s++)
        done += b->shard[s].state == M_DONE;
    return done;
}

uint64_t m_bytes_present(const struct model *m, const struct m_block *b)
{
    return (uint64_t)m->ns[b->ns].spec.group[b->group].block_bytes * m_shards_done(b);
}

/* Leased, or somebody is to write or is writing a shard of it. */
static bool in_use(const struct m_block *b)
{
    bool used = b->leases > 0;
    for (uint32_t s = 0; b->state == M_PENDING && s < M_SHARDS_MAX; s++)
        used |= b->shard[s].state == M_RESERVED || b->shard[s].state == M_COPYING;
    return used;
}

bool m_in_use(const struct model *m, int block)
{
    return in_use(&m->block[block]);
}

bool m_may_evict(const struct model *m, int block)
{
    const struct m_block *b = &m->block[block];
    return b->state != M_DEAD && !in_use(b) && b->pins == 0 && !m_has_children(m, block);
}

bool m_is_kept(const struct model *m, int block)
{
    const struct m_block *b = &m->block[block];
    if (in_use(b) || b->pins > 0)
        return true;
    for (int i = m->first_live; i < m->nblocks; i++)
        if (m->block[i].parent == block && m->block[i].state != M_DEAD && m_is_kept(m, i))
            return true;
    return false;
}

bool m_resv_alive(const struct model *m, int resv)
{
    const struct m_resv *r = &m->resv[resv];
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->block[i] == M_NONE)
            continue;
        const struct m_block *b = &m->block[r->block[i]];
        if (b->state == M_PENDING && b->shard[r->shard].state == M_RESERVED &&
            b->shard[r->shard].resv == resv)
            return true;
    }
    return false;
}

static bool has_record(const struct m_block *b)
{
    return b->state != M_DEAD || b->leases > 0 || b->copies > 0;
}

uint32_t m_records(const struct model *m, uint32_t ns)
{
    uint32_t n = 0;
    for (int i = m->first_live; i < m->nblocks; i++)
        n += m->block[i].ns == ns && has_record(&m->block[i]);
    return n;
}

/* ---- lookup ---- */

static uint32_t end_of(const struct m_seq *s, uint32_t bt, uint32_t i)
{
    return MIN((i + 1) * bt, s->tokens);
}

static bool is_needed(const struct core_group *p, const struct m_seq *s, uint32_t i, uint32_t hit)
{
    uint32_t start = i * p->block_tokens, end = end_of(s, p->block_tokens, i);
    uint32_t from = hit > p->window ? hit - p->window : 0;
    if (p->rule == KVC_RULE_FULL)
        return start < hit;
    if (p->rule == KVC_RULE_WINDOW)
        return start < hit && end > from;
    return end == hit;
}

/* By the words of the protocol: the end of one of its blocks, and what the rule needs is there. */
static bool satisfies(const struct model *m, const struct m_seq *s, uint32_t g,
                      const enum m_state *state, uint32_t hit, bool pending_too)
{
    const struct core_group *p = &m->ns[s->ns].spec.group[g];
    bool boundary = hit == 0;
    for (uint32_t i = 0; i < s->n[g]; i++) {
        boundary |= end_of(s, p->block_tokens, i) == hit;
        bool here = state[i] == M_PRESENT || (pending_too && state[i] == M_PENDING);
        if (is_needed(p, s, i, hit) && !here)
            return false;
    }
    return boundary;
}

static uint32_t longest(const struct model *m, const struct m_seq *s,
                        enum m_state state[][M_KEYS_MAX], bool pending_too)
{
    const struct core_ns_spec *spec = &m->ns[s->ns].spec;
    for (uint32_t hit = s->tokens; hit > 0; hit--) {
        bool maybe = true, all = true;
        for (uint32_t g = 0; maybe && g < spec->ngroups; g++)
            maybe = hit % spec->group[g].block_tokens == 0 || hit == s->tokens;
        for (uint32_t g = 0; maybe && all && g < spec->ngroups; g++)
            all = satisfies(m, s, g, state[g], hit, pending_too);
        if (maybe && all)
            return hit;
    }
    return 0;
}

void m_lookup(const struct model *m, const struct m_seq *s, struct m_hit *ret)
{
    const struct core_ns_spec *spec = &m->ns[s->ns].spec;
    enum m_state state[M_GROUPS_MAX][M_KEYS_MAX];
    memset(ret, 0, sizeof(*ret));
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        uint32_t bt = spec->group[g].block_tokens;
        for (uint32_t i = 0; i < s->n[g]; i++) {
            int b = m_find(m, s->ns, g, s->keys[g][i]);
            bool fits = b != M_NONE && m->block[b].tokens == end_of(s, bt, i) - i * bt;
            ret->block[g][i] = b;
            state[g][i] = fits ? m->block[b].state : M_DEAD;
            ret->any_pending |= state[g][i] == M_PENDING;
        }
        while (ret->lead[g] < s->n[g] && state[g][ret->lead[g]] == M_PRESENT)
            ret->lead[g]++;
    }
    ret->tokens = longest(m, s, state, false);
    ret->most = longest(m, s, state, true);
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        bool any = false;
        for (uint32_t i = 0; i < s->n[g]; i++) {
            if (ret->tokens == 0 || !is_needed(&spec->group[g], s, i, ret->tokens))
                continue;
            if (!any)
                ret->first[g] = i;
            ret->end[g] = i + 1;
            any = true;
        }
    }
}

/* Somebody else of the same owner has this key, at least in state `least`. */
static bool sibling_has(const struct model *m, uint32_t ns, uint32_t group, const uint8_t *key,
                        enum m_state least)
{
    for (uint32_t i = 0; i < m->nns; i++) {
        const struct m_ns *o = &m->ns[i];
        if (i == ns || !o->alive || o->principal != m->ns[ns].principal)
            continue;
        if (group >= o->spec.ngroups || strcmp(o->spec.sub, m->ns[ns].spec.sub) != 0 ||
            strcmp(o->spec.model, m->ns[ns].spec.model) != 0)
            continue;
        int b = m_find(m, i, group, key);
        if (b != M_NONE && m->block[b].state >= least)
            return true;
    }
    return false;
}

/* The trace of what is gone is bounded, so it may have been forgotten; it may not be wrong. */
static void check_absence(struct model *m, uint32_t ns, uint32_t group, const uint8_t *key,
                          enum kvc_miss reason)
{
    int last = m_last(m, ns, group, key);
    if (last != M_NONE && m->block[last].state == M_PENDING) {
        HOLDS(m, reason == KVC_MISS_PENDING);
        return;
    }
    if (reason == KVC_MISS_NAMESPACE) {
        HOLDS(m, sibling_has(m, ns, group, key, M_PENDING));
        return;
    }
    if (reason == KVC_MISS_NEVER) {
        HOLDS(m, !sibling_has(m, ns, group, key, M_PRESENT));
        return;
    }
    for (; last != M_NONE; last = m->block[last].older) {
        const struct m_block *b = &m->block[last];
        bool same = b->ns == ns && b->group == group && memcmp(b->key, key, KVC_KEY_BYTES) == 0;
        if (same && b->state == M_DEAD) /* it may be present again, shorter or longer */
            break;
    }
    HOLDS(m, last != M_NONE && reason == m->block[last].reason);
}

void m_check_reasons(struct model *m, const struct m_seq *s, const struct m_hit *hit,
                     const struct core_prefix *prefix)
{
    const struct core_ns_spec *spec = &m->ns[s->ns].spec;
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        const struct core_group *p = &spec->group[g];
        enum kvc_miss reason = prefix->group[g].reason;
        HOLDS(m, prefix->group[g].blocks == hit->lead[g]);
        if (hit->tokens == s->tokens) {
            HOLDS(m, reason == KVC_MISS_NONE);
            continue;
        }
        uint32_t i = p->rule == KVC_RULE_FULL ? 0 : hit->tokens / p->block_tokens;
        for (; i < s->n[g]; i++) {
            int b = hit->block[g][i];
            uint32_t tokens = end_of(s, p->block_tokens, i) - i * p->block_tokens;
            if (b == M_NONE || m->block[b].state != M_PRESENT || m->block[b].tokens != tokens)
                break;
        }
        if (i < s->n[g])
            check_absence(m, s->ns, g, s->keys[g][i], reason);
        else
            HOLDS(m, reason == (spec->ngroups > 1 ? KVC_MISS_OTHER_GROUP : KVC_MISS_NONE));
    }
}

/* ---- the core against the model ---- */

struct seen {
    const struct m_block *b;
    uint32_t ns, n;
    struct kvc_block_info x;
};

static void on_block(void *ctx, const struct kvc_block_info *x)
{
    struct seen *seen = ctx;
    if (x->state == KVC_BLOCK_ABSENT || x->ns != seen->ns || x->group != seen->b->group)
        return;
    seen->x = *x;
    seen->n++;
}

void m_tell(const struct model *m, uint32_t ns, const uint8_t *key,
            void (*fn)(void *ctx, const struct kvc_block_info *), void *ctx)
{
    uint64_t cursor = 0;
    uint32_t places = 1;
    const struct core_walk in = {.ns = ns,
                                 .mode = KVC_WALK_KEYS,
                                 .key = key,
                                 .keys = 1,
                                 .limit = UINT32_MAX,
                                 .places = &places};
    MUST(core_walk(m->core, m->admin, &in, fn, ctx, &cursor) == 0 && cursor == 0);
}

static void check_explained(struct model *m, int no, const struct kvc_block_info *x)
{
    const struct m_block *b = &m->block[no];
    uint32_t children = 0;
    for (int i = m->first_live; i < m->nblocks; i++)
        children += m->block[i].parent == no && m->block[i].state != M_DEAD;
    HOLDS(m, x->state == (b->state == M_PRESENT ? KVC_BLOCK_PRESENT : KVC_BLOCK_PENDING));
    HOLDS(m, x->tokens == b->tokens && x->shards == m_shards(m, b) &&
                 x->shards_present == m_shards_done(b));
    HOLDS(m,
          x->leases == b->leases && x->children == children && x->bytes == m_bytes_present(m, b));
}

bool m_was_replaced(const struct model *m, int block)
{
    const struct m_block *b = &m->block[block];
    uint32_t done = 0;
    for (uint32_t s = 0; s < M_SHARDS_MAX; s++)
        done += b->shard[s].state == M_DONE;
    struct seen seen = {.b = b, .ns = m->ns[b->ns].id};
    m_tell(m, seen.ns, b->key, on_block, &seen);
    return seen.n == 0 || seen.x.shards_present < done;
}

void m_sync(struct model *m, bool may_evict)
{
    int *gone = NULL, ngone = 0;
    gone = malloc((size_t)(m->nblocks - m->first_live + 1) * sizeof(*gone));
    MUST(gone != NULL);
    for (int i = m->first_live; i < m->nblocks; i++) {
        const struct m_block *b = &m->block[i];
        if (b->state == M_DEAD)
            continue;
        struct seen seen = {.b = b, .ns = m->ns[b->ns].id};
        m_tell(m, seen.ns, b->key, on_block, &seen);
        HOLDS(m, seen.n <= 1);
        if (seen.n == 0) {
            HOLDS(m, may_evict && !in_use(b) && b->pins == 0);
            gone[ngone++] = i;
        }
    }
    for (int i = 0; i < ngone; i++) {
        m->block[gone[i]].state = M_DEAD;
        m->block[gone[i]].reason = KVC_MISS_EVICTED;
    }
    free(gone);
    for (int i = m->first_live; i < m->nblocks; i++) { /* descendants before ancestors */
        const struct m_block *b = &m->block[i];
        HOLDS(m, b->state == M_DEAD || b->parent == M_NONE || m->block[b->parent].state != M_DEAD);
    }
    while (m->first_live < m->nblocks && !has_record(&m->block[m->first_live]))
        m->first_live++;
    if (m->turn % 4 != 0) /* it is quadratic */
        return;
    for (int i = m->first_live; i < m->nblocks; i++) {
        const struct m_block *b = &m->block[i];
        struct seen seen = {.b = b, .ns = m->ns[b->ns].id};
        if (b->state == M_DEAD)
            continue;
        m_tell(m, seen.ns, b->key, on_block, &seen);
        check_explained(m, i, &seen.x);
    }
}

static uint32_t slots_of(const struct m_block *b)
{
    uint32_t n = 0;
    for (uint32_t s = 0; has_record(b) && s < M_SHARDS_MAX; s++)
        n += b->shard[s].state != M_ABSENT;
    return n;
}

void m_check_totals(struct model *m)
{
    const struct core_metrics *x = core_metrics(m->core);
    uint64_t present = 0, pending = 0, bytes = 0, slots = 0, leases = 0, leased = 0, resvs = 0;
    uint64_t flying = 0;
    for (int i = m->first_live; i < m->nblocks; i++) {
        const struct m_block *b = &m->block[i];
        present += b->state == M_PRESENT;
        pending += b->state == M_PENDING;
        bytes += b->state == M_PRESENT ? m_bytes(m, b) : 0;
        slots += slots_of(b);
    }
    for (int i = 0; i < m->nleases; i++) {
        leases += m->lease[i].held;
        leased += m->lease[i].held ? m->lease[i].bytes : 0;
    }
    for (int i = 0; i < m->nresv; i++)
        resvs += m_resv_alive(m, i);
    for (int i = 0; i < m->ncopies; i++)
        flying += m->copy[i].op != NULL;
    struct tier_stats st;
    fake_tier_of(m->tier)->ops->stats(fake_tier_of(m->tier), &st);
    HOLDS(m, x->blocks_present == present && x->blocks_pending == pending);
    HOLDS(m, x->bytes_present == bytes && st.used_slots == slots);
    HOLDS(m, x->leases == leases && x->leased_bytes == leased && x->reservations == resvs);
    HOLDS(m, st.inflight_ops == flying);
    for (int i = 0; i < M_CLIENTS_MAX; i++) {
        const struct m_client *cl = &m->client[i];
        if (cl->state == M_OPEN || cl->state == M_QUARANTINED)
            HOLDS(m, core_client_lease_bytes(cl->cl) == cl->lease_bytes && cl->idle == 0);
        if (cl->state == M_CLOSING)
            HOLDS(m, cl->idle == (cl->copies + cl->hbm == 0));
    }
}

struct lease_walk {
    struct model *m;
    const struct m_lease *l;
    uint32_t i, shard, hbm;
};

static void check_view(struct model *m, const struct lease_walk *w, const struct fake_tier *tier,
                       const struct m_block *b, const struct tier_view *v)
{
    uint32_t shard = m_shards(m, b) == 1 ? 0 : w->shard;
    struct tier_label label;
    const uint8_t *at = fake_tier_bytes(tier, v);
    HOLDS(m, at != NULL && fake_tier_label(tier, v, &label));
    HOLDS(m, memcmp(label.key.b, b->key, KVC_KEY_BYTES) == 0 && label.shard == shard);
    HOLDS(m, label.ns == m->ns[b->ns].id && label.group == b->group);
    uint32_t bytes = m->ns[b->ns].spec.group[b->group].block_bytes;
    HOLDS(m, v->bytes >= bytes && fake_is_filled(at, bytes, b->key, shard));
}

static void on_loc(void *ctx, const struct tier_view *v)
{
    struct lease_walk *w = ctx;
    HOLDS(w->m, w->i < w->l->n);
    check_view(w->m, w, w->m->tier, &w->m->block[w->l->block[w->i++]], v);
}

static bool same_view(const struct tier_view *a, const struct tier_view *b)
{
    return a->chunk == b->chunk && a->off == b->off && a->gen == b->gen && a->bytes == b->bytes;
}

/* What was on the device stays there, at its place, while the lease and the device live. */
static void on_hbm(void *ctx, const struct tier_view *v)
{
    struct lease_walk *w = ctx;
    struct model *m = w->m;
    HOLDS(m, w->i < w->l->n);
    struct m_hbm *hbm = &w->l->hbm[w->shard][w->i];
    const struct m_block *b = &m->block[w->l->block[w->i++]];
    const uint32_t device = device_of_chunk(v->chunk);
    if (device == 0) {
        HOLDS(m, w->l->device == M_NONE || hbm->life != m->life[w->l->device]);
        check_view(m, w, m->tier, b, v);
        return;
    }
    HOLDS(m, (int)device - 1 == w->l->device);
    HOLDS(m, hbm->life != m->life[device - 1] || same_view(&hbm->view, v));
    check_view(m, w, fake_device_slots(m->device[device - 1]), b, v);
    hbm->life = m->life[device - 1];
    hbm->view = *v;
    w->hbm++;
}

uint32_t m_check_hbm(struct model *m, int lease, uint32_t shard)
{
    struct m_lease *l = &m->lease[lease];
    if (!l->hbm[shard])
        l->hbm[shard] = calloc(l->n + 1, sizeof(struct m_hbm));
    MUST(l->hbm[shard] != NULL);
    struct lease_walk w = {.m = m, .l = l, .shard = shard};
    HOLDS(m, core_lease_locs_hbm(m->core, m->client[l->client].cl, l->id, shard, on_hbm, &w) == 0);
    HOLDS(m, w.i == l->n);
    return w.hbm;
}

void m_lease_settle(struct model *m, int lease)
{
    struct m_lease *l = &m->lease[lease];
    if (l->alive || !l->held || l->uses > 0)
        return;
    l->held = false;
    m->client[l->client].lease_bytes -= l->bytes;
    for (uint32_t b = 0; b < l->n; b++)
        m->block[l->block[b]].leases--;
    for (uint32_t s = 0; s < M_SHARDS_MAX; s++) {
        free(l->hbm[s]);
        l->hbm[s] = NULL;
    }
}

void m_check_lease(struct model *m, int lease)
{
    const struct m_lease *l = &m->lease[lease];
    uint32_t shards = m->ns[l->ns].spec.shards;
    struct core_client *cl = m->client[l->client].cl;
    for (uint32_t shard = 0; shard < shards; shard++) {
        struct lease_walk w = {.m = m, .l = l, .shard = shard};
        HOLDS(m, core_lease_locs(m->core, cl, l->id, shard, on_loc, &w) == 0);
        HOLDS(m, w.i == l->n);
    }
    struct lease_walk w = {.m = m, .l = l};
    HOLDS(m, core_lease_locs(m->core, cl, l->id, shards, on_loc, &w) == KVC_E_BAD_ARGUMENT);
}
