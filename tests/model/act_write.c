/* SPDX-License-Identifier: Apache-2.0 */
/* Reserve, commit, drop. */
#include <stdlib.h>

#include "act.h"

/* ---- reserve ---- */

struct reserving {
    const struct core_reserve *in;
    const uint8_t *statuses;
    uint32_t ns, shard;
    bool full, judged;
    uint8_t stopped;       /* what is told of all that follows; 0: nothing yet */
    int cur, resv, wanted; /* the block itself, where FULL was said of one that exists */
};

/* Found out in the middle of a call: what built on it must turn out to be gone too (m_sync). */
static void evicted(struct model *m, int b)
{
    HOLDS(m, !m_in_use(m, b) && m->block[b].pins == 0);
    m->block[b].state = M_DEAD;
    m->block[b].reason = KVC_MISS_EVICTED;
}

static void took_shard(struct model *m, struct reserving *x, int b, uint32_t i)
{
    m->block[b].shard[x->shard].state = M_RESERVED;
    m->block[b].shard[x->shard].resv = x->resv;
    m->resv[x->resv].block[i] = b;
}

static void check_reserved_known(struct model *m, struct reserving *x, int b, uint32_t i,
                                 uint32_t tokens)
{
    uint8_t st = x->statuses[i];
    x->cur = b;
    if (m->block[b].tokens != tokens) {
        HOLDS(m, st == KVC_ST_BAD_ARGUMENT);
        x->cur = M_NONE;
    } else if (m->block[b].state == M_PRESENT) {
        HOLDS(m, st == KVC_ST_EXISTS);
    } else if (m->block[b].shard[x->shard].state != M_ABSENT) {
        HOLDS(m, st == KVC_ST_PENDING);
    } else {
        HOLDS(m, st == KVC_ST_OK || st == KVC_ST_FULL);
        if (st == KVC_ST_OK)
            took_shard(m, x, b, i);
        else
            x->wanted = b;
    }
}

static void check_reserved(struct model *m, struct reserving *x, uint32_t i)
{
    const struct core_reserve *in = x->in;
    const uint8_t *key = in->keys + (size_t)i * KVC_KEY_BYTES;
    uint8_t st = x->statuses[i];
    uint32_t bt = m->ns[x->ns].spec.group[in->group].block_tokens;
    uint32_t tokens = i == in->n - 1 && in->last_tokens ? in->last_tokens : bt;
    if (x->stopped) {
        HOLDS(m, st == x->stopped);
        return;
    }
    int b = m_find(m, x->ns, in->group, key);
    /* It may have been evicted for a key before it. */
    bool fresh = st != KVC_ST_EXISTS && st != KVC_ST_PENDING && st != KVC_ST_BAD_ARGUMENT;
    if (b != M_NONE && fresh && (m->block[b].state == M_PRESENT || m_was_replaced(m, b))) {
        evicted(m, b);
        b = M_NONE;
    }
    if (b != M_NONE) {
        check_reserved_known(m, x, b, i, tokens);
    } else if (x->full && x->cur == M_NONE && (i > 0 || in->parent)) {
        HOLDS(m, st == KVC_ST_NO_PARENT);
    } else {
        HOLDS(m, st == KVC_ST_OK || st == KVC_ST_FULL || (st == KVC_ST_NOT_WORTH && x->judged));
        if (st == KVC_ST_OK) {
            x->cur = m_block_new(m, x->ns, in->group, key, tokens, x->full ? x->cur : M_NONE);
            took_shard(m, x, x->cur, i);
        }
    }
    x->stopped = st == KVC_ST_FULL || st == KVC_ST_NOT_WORTH ? st : 0;
}

/* FULL is the truth: at most what the call itself was holding could have gone. */
static void check_full(struct model *m, int parent, int wanted)
{
    uint64_t parts = 0;
    for (int i = m->first_live; i < m->nblocks; i++) {
        const struct m_block *b = &m->block[i];
        bool listed = b->state == M_PENDING || m_shards(m, b) > 1;
        for (uint32_t s = 0; b->state != M_DEAD && listed && s < M_SHARDS_MAX; s++)
            parts += b->shard[s].state != M_ABSENT;
    }
    if (parts >= m->cfg.blocks_max) /* each shard of a block takes a piece of index too */
        return;
    for (int i = m->first_live; i < m->nblocks; i++)
        HOLDS(m, i == parent || i == wanted || !m_may_evict(m, i));
}

static void run_reserve(struct model *m, int client, struct core_ns *ns, uint32_t ns_no,
                        const struct core_reserve *in)
{
    uint8_t statuses[M_KEYS_MAX];
    uint64_t id = 77;
    const char *why;
    const struct m_ns *space = &m->ns[ns_no];
    const struct core_group *g = &space->spec.group[in->group];
    struct reserving x = {
        .in = in, .statuses = statuses, .ns = ns_no, .cur = M_NONE, .wanted = M_NONE};
    (void)ns;
    x.full = g->rule == KVC_RULE_FULL;
    x.shard = g->flags & KVC_F_REPLICATED ? 0 : in->shard;
    x.judged = m->cfg.admission && in->judged && space->spec.ngroups == 1 &&
               (space->spec.shards == 1 || g->flags & KVC_F_REPLICATED);
    int parent = in->parent ? m_find(m, ns_no, in->group, in->parent) : M_NONE;
    bool bad = x.full && ((in->parent == NULL) != (in->first_token == 0) ||
                          (parent != M_NONE && m->block[parent].tokens < g->block_tokens));
    uint32_t alive = 0;
    for (int i = 0; i < m->nresv; i++)
        alive += m_resv_alive(m, i);
    int err = core_reserve(m->core, m->client[client].cl, in, &id, statuses, &why);
    if (bad || alive == m->cfg.commits_max) {
        HOLDS(m, err == (bad ? KVC_E_BAD_ARGUMENT : KVC_E_BUSY) && id == 77);
        return;
    }
    HOLDS(m, err == 0);
    m->resv = grow_one(m->resv, &m->nresv, &m->cap_resv, sizeof(*m->resv));
    x.resv = m->nresv - 1;
    m->resv[x.resv] = (struct m_resv){
        .id = id, .client = client, .ns = ns_no, .group = in->group, .shard = x.shard, .n = in->n};
    for (uint32_t i = 0; i < in->n; i++)
        m->resv[x.resv].block[i] = M_NONE;
    x.cur = parent;
    int before_full = M_NONE;
    for (uint32_t i = 0; i < in->n; i++) {
        before_full = x.stopped ? before_full : x.cur;
        check_reserved(m, &x, i);
    }
    m_sync(m, true);
    if (x.stopped == KVC_ST_FULL)
        check_full(m, before_full, x.wanted);
    HOLDS(m, (id != 0) == m_resv_alive(m, x.resv));
}

/* What is wished changes what goes first, and nothing that the model foresees. */
static const struct core_retention *some_wishes(struct model *m)
{
    static struct core_range range[2];
    static struct core_retention wishes;
    for (unsigned i = 0; i < 2; i++)
        range[i] = (struct core_range){.first_token = rnd(m, 60),
                                       .wish = {rnd(m, RETAIN_MAX + 1), rnd(m, 2) * rnd(m, 900)}};
    wishes = (struct core_retention){.range = range,
                                     .n = rnd(m, 3),
                                     .has_decode = rnd(m, 2),
                                     .decode = {rnd(m, RETAIN_MAX + 1), 0}};
    return rnd(m, 2) ? &wishes : NULL;
}

void do_reserve(struct model *m)
{
    static struct m_seq s, lie;
    int c = any_client(m);
    struct core_ns *ns;
    int ns_no = c == M_NONE ? M_NONE : pick_ns(m, c, &ns);
    if (ns_no == M_NONE)
        return;
    random_seq(m, (uint32_t)ns_no, &s);
    const struct core_ns_spec *spec = &m->ns[ns_no].spec;
    uint32_t group = rnd(m, spec->ngroups);
    uint32_t bt = spec->group[group].block_tokens;
    if (s.n[group] == 0)
        return;
    uint32_t first = rnd(m, 2) ? 0 : rnd(m, s.n[group]);
    uint32_t n = rnd(m, 4) ? s.n[group] - first : 1 + rnd(m, s.n[group] - first);
    bool partly = first + n == s.n[group] && s.n[group] * bt > s.tokens;
    struct core_reserve in = {.ns = ns,
                              .group = group,
                              .shard = rnd(m, spec->shards),
                              .parent = first ? s.keys[group][first - 1] : NULL,
                              .first_token = first * bt,
                              .judged = m->nresv % 8 != 0,
                              .keys = s.keys[group][first],
                              .n = n,
                              .last_tokens = partly ? s.tokens % bt : 0,
                              .decoded = rnd(m, 4) == 0,
                              .retention = some_wishes(m)};
    if (rnd(m, 20) == 0) { /* a worker that is wrong about the parent */
        random_seq(m, (uint32_t)ns_no, &lie);
        if (lie.n[group] > 0)
            in.parent = lie.keys[group][rnd(m, lie.n[group])];
    }
    run_reserve(m, c, ns, (uint32_t)ns_no, &in);
}

/* ---- commit, drop ---- */

static void commit_close(struct m_commit *k)
{
    free(k->staging);
    free(k->pages);
    k->staging = NULL;
    k->pages = NULL;
    fake_pool_destroy(&k->pool);
}

static void copy_over(struct model *m, struct m_copy *y, uint8_t st)
{
    y->op = NULL;
    y->host = NULL;
    y->waits = false;
    m->block[y->block].copies--;
    m->client[y->client].copies--;
    y->commit->expect[y->entry] = st;
}

/* Entries that waited for the device until they were cancelled, or out of time. */
static void turn_never_came(struct model *m, const struct m_commit *k)
{
    for (int i = 0; i < m->ncopies; i++) {
        struct m_copy *y = &m->copy[i];
        if (!y->waits || y->commit != k)
            continue;
        HOLDS(m, k->cancelled || m->now_ns >= k->c.deadline_ns);
        const bool dead = m->block[y->block].state == M_DEAD;
        if (!dead)
            m_kill_tree(m, y->block, KVC_MISS_DROPPED);
        copy_over(m, y, dead ? KVC_ST_GONE : k->cancelled ? KVC_ST_CANCELLED : KVC_ST_TIMEOUT);
    }
}

static void on_commit_done(struct core_commit *c)
{
    struct m_commit *k = (struct m_commit *)(void *)c;
    struct model *m = k->model;
    k->done++;
    turn_never_came(m, k);
    HOLDS(m, k->done == 1 && memcmp(k->statuses, k->expect, c->n) == 0);
    for (int i = 0; i < m->ncopies; i++)
        HOLDS(m, (m->copy[i].op == NULL && m->copy[i].host == NULL && !m->copy[i].waits) ||
                     m->copy[i].commit != k);
    commit_close(k);
}

/* Out of staging: of the commit at hand. Out of pages: what the device has copied. */
void on_submit(void *ctx, struct tier_op *op)
{
    struct model *m = ctx;
    if (op->kind == TIER_PUT) {
        m->put[m->nputs++] = op;
        return;
    }
    const void *host = fake_tier_memory(m->tier, op->loc);
    int i = 0;
    while (i < m->ncopies && m->copy[i].host != host)
        i++;
    HOLDS(m, op->kind == TIER_SEAL && i < m->ncopies && !m->copy[i].commit->cancelled);
    HOLDS(m, memcmp(op->label.key.b, m->block[m->copy[i].block].key, KVC_KEY_BYTES) == 0);
    m->copy[i].op = op;
    m->copy[i].host = NULL;
}

void on_pages_begin(struct model *m, const struct device_copy *copy)
{
    uint32_t n = 0;
    for (int i = 0; i < m->ncopies && n < copy->n; i++) {
        struct m_copy *y = &m->copy[i];
        if (!y->waits || y->commit->pool != copy->pool)
            continue;
        const struct m_commit *k = y->commit;
        HOLDS(m, copy->piece[n].pages == &k->pages[y->entry * k->c.pages_per_block]);
        y->host = copy->piece[n++].host;
        y->waits = false;
    }
    HOLDS(m, n == 0 || n == copy->n);
}

void on_pages_end(struct model *m, const struct device_copy *copy)
{
    for (uint32_t n = 0; n < copy->n; n++) {
        int i = 0, status = copy->piece[n].status;
        while (i < m->ncopies && m->copy[i].host != copy->piece[n].host)
            i++;
        HOLDS(m, i < m->ncopies);
        struct m_copy *y = &m->copy[i];
        if (status == 0 && y->commit->cancelled)
            status = -ECANCELED;
        if (m->block[y->block].state == M_DEAD) {
            copy_over(m, y, KVC_ST_GONE);
        } else if (status != 0) {
            m_kill_tree(m, y->block, KVC_MISS_DROPPED);
            copy_over(m, y, m_status(status));
        }
    }
}

void on_end(void *ctx, struct tier_op *op)
{
    struct model *m = ctx;
    int i = 0;
    while (i < m->ncopies && m->copy[i].op != op)
        i++;
    HOLDS(m, i < m->ncopies);
    struct m_copy *y = &m->copy[i];
    struct m_block *b = &m->block[y->block];
    uint8_t st = KVC_ST_OK;
    if (b->state == M_DEAD) {
        st = KVC_ST_GONE;
    } else if (op->status != 0) {
        m_kill_tree(m, y->block, KVC_MISS_DROPPED);
        st = m_status(op->status);
    } else {
        uint32_t done = 0;
        b->shard[y->shard].state = M_DONE;
        for (uint32_t s = 0; s < M_SHARDS_MAX; s++)
            done += b->shard[s].state == M_DONE;
        if (done == m_shards(m, b))
            b->state = M_PRESENT;
    }
    copy_over(m, y, st);
}

static void put_offset(uint8_t *to, uint64_t v)
{
    for (unsigned i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

/* Where entry i's bytes are; sometimes nowhere, or where they may not be. */
static uint64_t random_offset(struct model *m, uint32_t i, uint32_t step, uint64_t staging_bytes)
{
    switch (rnd(m, 24)) {
    case 0:
        return UINT64_MAX;
    case 1:
        return (uint64_t)i * step + 1 + rnd(m, 63);
    case 2:
        return ROUND_UP(staging_bytes, 64) + 64;
    case 3:
        return UINT64_MAX - 63;
    default:
        return (uint64_t)i * step;
    }
}

static bool entry_is_open(const struct model *m, int resv, uint32_t i)
{
    const struct m_resv *r = &m->resv[resv];
    if (i >= r->n || r->block[i] == M_NONE)
        return false;
    const struct m_block *b = &m->block[r->block[i]];
    return b->state == M_PENDING && b->shard[r->shard].state == M_RESERVED &&
           b->shard[r->shard].resv == resv;
}

/* Predicts entry i; true when a copy of it will fly. */
static bool expect_entry(struct model *m, struct m_commit *k, int resv, uint32_t i, uint32_t bytes)
{
    uint64_t off = 0;
    for (unsigned b = 8; k->offsets && b-- > 0;)
        off = off << 8 | k->offsets[i * 8 + b];
    if (off == UINT64_MAX)
        return false;
    if (!entry_is_open(m, resv, k->c.first + i)) {
        k->expect[i] = KVC_ST_GONE;
        return false;
    }
    if (k->offsets &&
        (off % 64 != 0 || off > k->c.staging_bytes || bytes > k->c.staging_bytes - off)) {
        k->expect[i] = KVC_ST_BAD_ARGUMENT;
        return false;
    }
    return true;
}

/* Entry i's bytes, where it has any. */
static bool fill_entry(const struct model *m, const struct m_resv *r, uint32_t entry, uint8_t *to)
{
    if (entry >= r->n || r->block[entry] == M_NONE)
        return false;
    fake_fill(to, m->ns[r->ns].spec.group[r->group].block_bytes, m->block[r->block[entry]].key,
              r->shard);
    return true;
}

static void out_of_staging(struct model *m, const struct m_resv *r, struct m_commit *k)
{
    uint32_t n = k->c.n, step = ROUND_UP(m->ns[r->ns].spec.group[r->group].block_bytes, 64);
    k->offsets = malloc(n * 8);
    k->staging = malloc((size_t)n * step + 1);
    MUST(k->offsets != NULL && k->staging != NULL);
    for (uint32_t i = 0; i < n; i++) {
        put_offset(k->offsets + i * 8, random_offset(m, i, step, (uint64_t)n * step));
        (void)fill_entry(m, r, k->c.first + i, k->staging + (size_t)i * step);
    }
    k->c.offsets = k->offsets;
    k->c.staging = k->staging;
    k->c.staging_bytes = (uint64_t)n * step;
}

static void out_of_pages(struct model *m, const struct m_resv *r, struct m_commit *k)
{
    struct fake_pool_group shape[M_GROUPS_MAX] = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}};
    const uint32_t device = rnd(m, M_DEVICES), n = k->c.n;
    uint8_t block[1024];
    k->pages = some_pages(m, m->ns[r->ns].spec.group[r->group].block_bytes, n, &shape[r->group]);
    const uint32_t ppb = shape[r->group].pages_per_block;
    k->pool = fake_pool_create(m->device[device], n * ppb, r->group + 1, shape);
    for (uint32_t i = 0; i < n; i++)
        if (pages_fit(&k->pages[i * ppb], ppb, n * ppb) && fill_entry(m, r, k->c.first + i, block))
            fake_pool_put(k->pool, r->group, &k->pages[i * ppb], block);
    k->c.transfer.device = m->devices[device];
    k->c.transfer.pool = k->pool;
    k->c.pages = k->pages;
    k->c.pages_per_block = ppb;
    k->c.deadline_ns = m->now_ns + (uint64_t)m->ncommits % 4 * M_WAIT_NS;
    if (rnd(m, 3) == 0) {
        k->c.transfer.after = (struct device_fence){&k->after, 1 + rnd(m, 3)};
    }
}

static struct m_commit *commit_new(struct model *m, int resv, int client, uint32_t first,
                                   uint32_t n)
{
    const struct m_resv *r = &m->resv[resv];
    struct m_commit *k = calloc(1, sizeof(*k));
    MUST(k != NULL);
    k->model = m;
    k->client = client;
    memset(k->statuses, 0xee, sizeof(k->statuses));
    memset(k->expect, 0xee, sizeof(k->expect));
    k->c = (struct core_commit){.reservation = r->id,
                                .first = first,
                                .n = n,
                                .statuses = k->statuses,
                                .done = on_commit_done};
    if (m->cfg.ndevices > 0 && rnd(m, 2))
        out_of_pages(m, r, k);
    else
        out_of_staging(m, r, k);
    m->commit = grow_one(m->commit, &m->ncommits, &m->cap_commits, sizeof(struct m_commit *));
    m->commit[m->ncommits - 1] = k;
    return k;
}

static const struct device_copy *copy_of(struct model *m, const struct m_commit *k)
{
    for (unsigned d = 0; k->pool && d < m->cfg.ndevices; d++)
        for (unsigned i = 0; i < fake_device_inflight(m->device[d]); i++)
            if (fake_device_copy(m->device[d], i)->pool == k->pool)
                return fake_device_copy(m->device[d], i);
    return NULL;
}

/* The copies that were submitted are the entries that were valid, in their order. */
static void note_copies(struct model *m, struct m_commit *k, int resv, int client,
                        const bool *flies)
{
    const struct m_resv *r = &m->resv[resv];
    const struct device_copy *copy = copy_of(m, k);
    const bool waits = k->pool && !copy;
    const uint32_t n = copy ? copy->n : waits ? k->c.left : m->nputs;
    uint32_t at = 0;
    HOLDS(m, (k->pool || !copy) && (!k->pool || m->nputs == 0));
    HOLDS(m, !waits || core_metrics(m->core)->transfers_waiting > 0);
    for (uint32_t i = 0; i < k->c.n; i++) {
        if (!flies[i])
            continue;
        HOLDS(m, at < n);
        struct m_block *b = &m->block[r->block[k->c.first + i]];
        HOLDS(m, waits  ? true
                 : copy ? copy->piece[at].pages == &k->pages[i * k->c.pages_per_block]
                        : memcmp(m->put[at]->label.key.b, b->key, KVC_KEY_BYTES) == 0);
        b->shard[r->shard].state = M_COPYING;
        b->copies++;
        m->client[client].copies++;
        m->copy = grow_one(m->copy, &m->ncopies, &m->cap_copies, sizeof(*m->copy));
        m->copy[m->ncopies - 1] = (struct m_copy){.op = k->pool ? NULL : m->put[at],
                                                  .host = copy ? copy->piece[at].host : NULL,
                                                  .waits = waits,
                                                  .commit = k,
                                                  .entry = i,
                                                  .shard = r->shard,
                                                  .block = r->block[k->c.first + i],
                                                  .client = client};
        at++;
    }
    HOLDS(m, at == n);
}

static int any_resv(struct model *m)
{
    return m->nresv ? m->nresv - 1 - (int)rnd(m, (uint32_t)MIN(m->nresv, 8)) : M_NONE;
}

void do_commit(struct model *m)
{
    int resv = any_resv(m);
    if (resv == M_NONE)
        return;
    const struct m_resv *r = &m->resv[resv];
    int client = rnd(m, 16) ? r->client : any_client(m);
    if (client == M_NONE || m->client[client].state != M_OPEN)
        return;
    uint32_t first = rnd(m, 2) ? 0 : rnd(m, r->n);
    uint32_t n = rnd(m, 2) ? r->n - first : 1 + rnd(m, r->n - first);
    if (rnd(m, 32) == 0)
        n = MIN(n + r->n, (uint32_t)M_KEYS_MAX);
    struct m_commit *k = commit_new(m, resv, client, first, n);
    bool alive = m_resv_alive(m, resv) && r->client == client;
    bool inside = first + n <= r->n, flies[M_KEYS_MAX] = {false}, any = false;
    uint32_t bytes = m->ns[r->ns].spec.group[r->group].block_bytes;
    for (uint32_t i = 0; alive && inside && i < n; i++) {
        flies[i] = expect_entry(m, k, resv, i, bytes);
        any |= flies[i];
    }
    m->nputs = 0;
    const char *why;
    int err = core_commit(m->core, m->client[client].cl, &k->c, &why);
    if (!alive || !inside)
        HOLDS(m, err == (alive ? KVC_E_BAD_ARGUMENT : KVC_E_GONE) && m->nputs == 0);
    else
        HOLDS(m, err == any && k->done == 0);
    if (err == 1) {
        note_copies(m, k, resv, client, flies);
        return;
    }
    if (err == 0)
        HOLDS(m, memcmp(k->statuses, k->expect, n) == 0);
    commit_close(k);
    k->done = 1;
}

void do_commit_cancel(struct model *m)
{
    struct m_commit *k = m->ncommits ? m->commit[rnd(m, (uint32_t)m->ncommits)] : NULL;
    if (k == NULL || k->done > 0)
        return;
    k->cancelled = true;
    core_cancel(m->core, &k->c.req);
}

void do_drop(struct model *m)
{
    int resv = any_resv(m);
    if (resv == M_NONE)
        return;
    const struct m_resv *r = &m->resv[resv];
    int client = rnd(m, 8) ? r->client : any_client(m);
    if (client == M_NONE || m->client[client].state != M_OPEN)
        return;
    bool alive = m_resv_alive(m, resv) && r->client == client;
    HOLDS(m, core_drop(m->core, m->client[client].cl, r->id) == (alive ? 0 : KVC_E_GONE));
    for (uint32_t i = 0; alive && i < r->n; i++)
        if (entry_is_open(m, resv, i))
            m_kill_tree(m, r->block[i], KVC_MISS_DROPPED);
}
