/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: fills, sends, words, copies that end, devices that are lost. Which blocks get room on a
 * device is the core's to choose; what a lease was once told of stays where it is, what others hold
 * there is found, and what arrives in pages is what was stored.
 */
#include <stdlib.h>

#include "act.h"

#define JOBS_AUTO 256u /* of a device, at a time */

uint8_t m_status(int err)
{
    switch (err) {
    case 0:
        return KVC_ST_OK;
    case -ECANCELED:
        return KVC_ST_CANCELLED;
    case -ETIMEDOUT:
        return KVC_ST_TIMEOUT;
    case -EINVAL:
        return KVC_ST_BAD_ARGUMENT;
    default:
        return KVC_ST_TIER;
    }
}

/* On the device; each request has one copy in flight at least. */
static bool copies_are_many(const struct model *m, uint32_t device)
{
    const uint32_t most = m->cfg.device_copies ? m->cfg.device_copies : JOBS_AUTO;
    return fake_device_inflight(m->device[device]) >= most ||
           core_metrics(m->core)->transfers_waiting > 0;
}

/* ---- pages ---- */

uint32_t *some_pages(struct model *m, uint32_t bytes, uint32_t n, struct fake_pool_group *ret_shape)
{
    const uint32_t regions = bytes % 4 == 0 ? 4 : 1;
    const uint32_t ppb = bytes / regions % 2 == 0 ? 2 : 1, pages = n * ppb;
    uint32_t *page = malloc((pages + 1) * sizeof(*page));
    MUST(page != NULL);
    for (uint32_t i = 0; i < pages; i++) {
        const uint32_t k = rnd(m, i + 1);
        page[i] = page[k];
        page[k] = i;
    }
    for (uint32_t i = 0; i < pages; i++)
        if (rnd(m, 400) == 0)
            page[i] = rnd(m, 2) ? UINT32_MAX : pages;
    *ret_shape = (struct fake_pool_group){
        .pages_per_block = ppb, .regions = regions, .page_bytes = bytes / regions / ppb};
    return page;
}

bool pages_fit(const uint32_t *pages, uint32_t n, uint32_t pages_max)
{
    for (uint32_t i = 0; i < n; i++)
        if (pages[i] >= pages_max)
            return false;
    return true;
}

/* ---- fills ---- */

/* Mostly one that is alive. */
static int some_lease(struct model *m)
{
    const int i = any_lease(m);
    if (i == M_NONE || rnd(m, 8) == 0)
        return i;
    for (int k = i; k >= 0 && k > i - 200; k--)
        if (m->lease[k].alive)
            return k;
    return i;
}

static void use(struct model *m, int lease, int client)
{
    m->lease[lease].uses++;
    m->client[client].hbm++;
}

static void unuse(struct model *m, int lease, int client)
{
    m->lease[lease].uses--;
    m->client[client].hbm--;
    m_lease_settle(m, lease);
}

/* Marks the blocks of which others hold this shard on the device. */
static void mark_held(struct model *m, int device, uint32_t shard)
{
    m->marks++;
    for (int i = 0; i < m->nleases; i++) {
        const struct m_lease *l = &m->lease[i];
        for (uint32_t s = 0; l->held && l->device == device && s < M_SHARDS_MAX; s++)
            for (uint32_t k = 0; l->hbm[s] && k < l->n; k++) {
                struct m_block *b = &m->block[l->block[k]];
                if (l->hbm[s][k].life == m->life[device] && b->state == M_PRESENT &&
                    (s == shard || m_shards(m, b) == 1))
                    b->mark = m->marks;
            }
    }
}

static uint32_t marked(const struct model *m, const struct m_lease *l)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n += m->block[l->block[i]].mark == m->marks;
    return n;
}

static void on_filled(struct core_fill *f)
{
    struct m_fill *x = (struct m_fill *)(void *)f;
    struct model *m = x->model;
    unsigned i = 0;
    while (i < ARRAY_LEN(m->fill) && m->fill[i] != x)
        i++;
    HOLDS(m, i < ARRAY_LEN(m->fill));
    m->fill[i] = NULL;
    if (m->lease[x->lease].alive) {
        HOLDS(m, f->ret_blocks == m_check_hbm(m, x->lease, f->shard));
        HOLDS(m, f->ret_blocks >= x->least || x->life != m->life[f->device]);
    } else {
        HOLDS(m, f->ret_blocks == 0);
    }
    unuse(m, x->lease, x->client);
    free(x);
}

static int fill_verdict(const struct model *m, const struct m_fill *x, bool mine)
{
    const struct m_lease *l = &m->lease[x->lease];
    if (!mine)
        return KVC_E_NO_LEASE;
    if (x->f.device >= m->cfg.ndevices || x->f.shard >= m->ns[l->ns].spec.shards ||
        (l->device != M_NONE && l->device != (int)x->f.device))
        return KVC_E_BAD_ARGUMENT;
    return 0;
}

static void fill_started(struct model *m, struct m_fill *x, unsigned slot, int err)
{
    struct m_lease *l = &m->lease[x->lease];
    const bool up = fake_device_is_up(m->device[x->f.device]);
    HOLDS(m, up || (err == 0 && x->f.ret_blocks == 0));
    if (err == 1 || x->f.ret_blocks > 0)
        l->device = (int)x->f.device;
    if (err == 1) {
        m->fill[slot] = x;
        use(m, x->lease, x->client);
        return;
    }
    if (up) {
        HOLDS(m, x->f.ret_blocks == m_check_hbm(m, x->lease, x->f.shard));
        HOLDS(m, x->f.ret_blocks >= x->least);
    }
    free(x);
}

void do_fill(struct model *m)
{
    const int i = some_lease(m);
    const unsigned slot = rnd(m, ARRAY_LEN(m->fill));
    if (m->cfg.ndevices == 0 || i == M_NONE || m->fill[slot])
        return;
    const struct m_lease *l = &m->lease[i];
    const int client = rnd(m, 16) ? l->client : any_client(m);
    if (client == M_NONE || m->client[client].state != M_OPEN)
        return;
    struct m_fill *x = calloc(1, sizeof(*x));
    MUST(x != NULL);
    const uint32_t shards = m->ns[l->ns].spec.shards;
    *x = (struct m_fill){
        .f = {.lease = l->id,
              .device = l->device != M_NONE && rnd(m, 4) ? (uint32_t)l->device : rnd(m, M_DEVICES),
              .shard = rnd(m, 16) ? rnd(m, shards) : shards,
              .deadline_ns = m->now_ns,
              .done = on_filled},
        .model = m,
        .lease = i,
        .client = client};
    if (rnd(m, 24) == 0)
        x->f.device = M_DEVICES;
    const int verdict = fill_verdict(m, x, l->alive && l->client == client);
    if (verdict == 0) {
        x->life = m->life[x->f.device];
        mark_held(m, (int)x->f.device, x->f.shard);
        x->least = marked(m, l);
    }
    m->filling = x;
    const int err = core_fill_start(m->core, m->client[client].cl, &x->f);
    m->filling = NULL;
    HOLDS(m, verdict ? err == verdict
                     : err >= 0 || (err == KVC_E_BUSY && copies_are_many(m, x->f.device)));
    if (err >= 0)
        fill_started(m, x, slot, err);
    else
        free(x);
}

void do_fill_cancel(struct model *m)
{
    const unsigned i = rnd(m, ARRAY_LEN(m->fill));
    struct m_fill *x = m->fill[i];
    if (!x)
        return;
    m->fill[i] = NULL;
    core_fill_cancel(m->core, &x->f);
    unuse(m, x->lease, x->client);
    free(x);
}

/* ---- sends ---- */

static void check_arrived(struct model *m, const struct m_send *x)
{
    const struct m_lease *l = &m->lease[x->lease];
    uint8_t block[1024];
    for (uint32_t g = 0; g < l->ngroups; g++) {
        const uint32_t ppb = x->s.group[g].pages_per_block;
        for (uint32_t i = x->first[g]; i < x->first[g + 1]; i++) {
            const struct m_block *b = &m->block[l->block[i]];
            if (x->statuses[i] != KVC_ST_OK)
                continue;
            fake_pool_get(x->pool, g, x->s.group[g].pages + (i - x->first[g]) * ppb, block);
            HOLDS(m, fake_is_filled(block, m->ns[b->ns].spec.group[g].block_bytes, b->key,
                                    m_shards(m, b) == 1 ? 0 : x->s.shard));
        }
    }
}

static void send_free(struct m_send *x)
{
    for (uint32_t g = 0; g < M_GROUPS_MAX; g++)
        free(x->pages[g]);
    fake_pool_destroy(&x->pool);
    free(x);
}

static void on_sent(struct core_send *s)
{
    struct m_send *x = (struct m_send *)(void *)s;
    struct model *m = x->model;
    const struct m_lease *l = &m->lease[x->lease];
    unsigned slot = 0;
    bool all = true;
    while (slot < ARRAY_LEN(m->send) && m->send[slot] != x)
        slot++;
    HOLDS(m, slot < ARRAY_LEN(m->send) && l->held);
    m->send[slot] = NULL;
    if (!x->begun) /* it waited, and its turn never came */
        memset(x->expect, x->cancelled ? KVC_ST_CANCELLED : KVC_ST_TIMEOUT, l->n);
    HOLDS(m, x->begun || x->cancelled || m->now_ns >= s->transfer.deadline_ns);
    HOLDS(m, memcmp(x->statuses, x->expect, l->n) == 0);
    for (uint32_t i = 0; i < l->n; i++) {
        HOLDS(m, x->cancelled || x->statuses[i] != KVC_ST_CANCELLED);
        all &= x->statuses[i] == KVC_ST_OK;
    }
    check_arrived(m, x);
    HOLDS(m, !s->ready || !all || atomic_load(s->ready) == s->ready_value + x->layers);
    unuse(m, x->lease, x->client);
    send_free(x);
}

static void send_pages(struct model *m, struct m_send *x)
{
    const struct m_lease *l = &m->lease[x->lease];
    struct fake_pool_group shape[M_GROUPS_MAX];
    uint32_t pages_max = 1, count[M_GROUPS_MAX] = {0};
    for (uint32_t i = 0; i < l->n; i++)
        count[m->block[l->block[i]].group]++;
    for (uint32_t g = 0; g < l->ngroups; g++) {
        x->first[g + 1] = x->first[g] + count[g];
        x->pages[g] = some_pages(m, m->ns[l->ns].spec.group[g].block_bytes, count[g], &shape[g]);
        x->s.group[g].pages = x->pages[g];
        x->s.group[g].pages_per_block = shape[g].pages_per_block;
        pages_max = MAX(pages_max, count[g] * shape[g].pages_per_block);
        x->layers += count[g] ? shape[g].regions : 0;
    }
    const bool wrong = rnd(m, 24) == 0;
    for (uint32_t g = 0; wrong && g < l->ngroups; g++)
        shape[g].page_bytes++;
    x->wrong = wrong;
    x->pool = fake_pool_create(m->device[x->device], pages_max, l->ngroups, shape);
    x->s.transfer.pool = x->pool;
}

static struct m_send *send_new(struct model *m, int lease, int client)
{
    const struct m_lease *l = &m->lease[lease];
    struct m_send *x = calloc(1, sizeof(*x));
    MUST(x != NULL);
    x->model = m;
    x->lease = lease;
    x->client = client;
    x->device = (int)rnd(m, M_DEVICES);
    x->s =
        (struct core_send){.lease = l->id,
                           .transfer = {.device = m->devices[x->device],
                                        .deadline_ns = m->now_ns + (uint64_t)lease % 4 * M_WAIT_NS},
                           .shard = rnd(m, m->ns[l->ns].spec.shards),
                           .statuses = x->statuses,
                           .done = on_sent};
    memset(x->statuses, 0xee, sizeof(x->statuses));
    memset(x->expect, 0xee, sizeof(x->expect));
    if (rnd(m, 2)) {
        x->s.ready_value = rnd(m, 100);
        x->ready = x->s.ready_value;
        x->s.ready = &x->ready;
    }
    if (rnd(m, 3) == 0) {
        x->s.transfer.after = (struct device_fence){&x->after, 1 + rnd(m, 3)};
    }
    send_pages(m, x);
    return x;
}

void do_send(struct model *m)
{
    const int i = some_lease(m);
    const unsigned slot = rnd(m, ARRAY_LEN(m->send));
    if (m->cfg.ndevices == 0 || i == M_NONE || m->send[slot])
        return;
    const struct m_lease *l = &m->lease[i];
    const int client = rnd(m, 16) ? l->client : any_client(m);
    if (client == M_NONE || m->client[client].state != M_OPEN)
        return;
    struct m_send *x = send_new(m, i, client);
    const bool mine = l->alive && l->client == client;
    const int verdict = !mine ? KVC_E_NO_LEASE : x->wrong ? KVC_E_BAD_ARGUMENT : 1;
    const char *why = NULL;
    if (verdict == 1)
        m->send[slot] = x;
    const int err = core_send_start(m->core, m->client[client].cl, &x->s, &why);
    HOLDS(m, err == verdict);
    HOLDS(m, err != KVC_E_BAD_ARGUMENT || why != NULL);
    if (err == 1) {
        use(m, i, client);
    } else {
        send_free(x);
    }
}

void do_send_cancel(struct model *m)
{
    struct m_send *x = m->send[rnd(m, ARRAY_LEN(m->send))];
    if (!x)
        return;
    x->cancelled = true;
    core_cancel(m->core, &x->s.req);
}

/* ---- copies ---- */

void on_device_submit(void *ctx, struct device_copy *copy)
{
    struct model *m = ctx;
    if (copy->kind == DEVICE_LOAD)
        for (unsigned i = 0; i < ARRAY_LEN(m->send); i++)
            if (m->send[i] && m->send[i]->pool == copy->pool)
                m->send[i]->begun = true;
    if (copy->kind == DEVICE_STORE)
        on_pages_begin(m, copy);
    if (copy->kind != DEVICE_FILL)
        return;
    HOLDS(m, m->filling != NULL && m->nflights < ARRAY_LEN(m->flight));
    m->flight[m->nflights++] =
        (struct m_flight){.copy = copy, .lease = m->filling->lease, .client = m->filling->client};
    use(m, m->filling->lease, m->filling->client);
}

static void fill_ended(struct model *m, const struct device_copy *copy)
{
    uint32_t i = 0;
    while (i < m->nflights && m->flight[i].copy != copy)
        i++;
    HOLDS(m, i < m->nflights);
    const struct m_flight f = m->flight[i];
    m->flight[i] = m->flight[--m->nflights];
    unuse(m, f.lease, f.client);
}

static void load_ended(struct model *m, const struct device_copy *copy)
{
    unsigned i = 0;
    while (i < ARRAY_LEN(m->send) && (!m->send[i] || m->send[i]->pool != copy->pool))
        i++;
    HOLDS(m, i < ARRAY_LEN(m->send));
    struct m_send *x = m->send[i];
    const uint32_t first = x->first[copy->group];
    HOLDS(m, first + copy->n == x->first[copy->group + 1]);
    for (uint32_t k = 0; k < copy->n; k++)
        x->expect[first + k] = m_status(copy->piece[k].status);
}

void on_device_end(void *ctx, struct device_copy *copy)
{
    struct model *m = ctx;
    switch (copy->kind) {
    case DEVICE_FILL:
        fill_ended(m, copy);
        return;
    case DEVICE_LOAD:
        load_ended(m, copy);
        return;
    case DEVICE_STORE:
        on_pages_end(m, copy);
        return;
    }
}

/* ---- what happens ---- */

void do_words(struct model *m)
{
    for (unsigned i = 0; i < ARRAY_LEN(m->send); i++)
        if (m->send[i])
            atomic_fetch_add(&m->send[i]->after, rnd(m, 3));
    for (int i = MAX(0, m->ncommits - 64); i < m->ncommits; i++)
        atomic_fetch_add(&m->commit[i]->after, rnd(m, 3));
}

void do_device(struct model *m)
{
    if (m->cfg.ndevices == 0)
        return;
    const unsigned i = rnd(m, M_DEVICES);
    if (!fake_device_is_up(m->device[i])) {
        fake_device_up(m->device[i]);
    } else if (rnd(m, 12) == 0) {
        m->life[i]++;
        fake_device_lose(m->device[i]);
    }
}

void do_device_copies(struct model *m)
{
    for (unsigned i = 0; i < m->cfg.ndevices; i++)
        (void)fake_device_run(m->device[i], 1 + rnd(m, 4), rnd(m, 8) ? 0 : 20);
}

void do_look_hbm(struct model *m)
{
    for (int i = 0; i < m->nleases; i++)
        for (uint32_t s = 0; m->lease[i].alive && s < m->ns[m->lease[i].ns].spec.shards; s++)
            (void)m_check_hbm(m, i, s);
}
