/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leases: a lease holds blocks in place while a worker reads them. ACQUIRE makes one, REDEEM a
 * second one, RELEASE ends it. A request that has to wait, for a load or for a writer, waits here.
 */
#include "regions.h"
#include "serve.h"

struct leases {
    struct pool *pool;
    struct share share;     /* of leases, by client */
    struct list_node going; /* leases whose blocks are being released in slices */
    uint64_t serial;
    uint8_t random[512]; /* for tickets */
    uint32_t random_at;
};

uint64_t leases_bytes(const struct core_config *cfg)
{
    return pool_bytes_for(sizeof(struct lease), cfg->leases_max);
}

static int leases_create(struct core *c)
{
    const struct core_config *cfg = &c->cfg;
    struct leases *l = c->mod.leases;
    l->random_at = sizeof l->random;
    list_init(&l->going);
    return core__shared_pool(c, &l->pool, &l->share, "leases", sizeof(struct lease),
                             cfg->leases_max, cfg->clients_max);
}

static void leases_destroy(struct core *c)
{
    core__shared_pool_free(&c->mod.leases->pool, &c->mod.leases->share);
}

const struct core_module leases_module = {CORE_STATE(leases), .create = leases_create,
                                          .destroy = leases_destroy};

const struct pool *lease_pool(const struct core *c)
{
    return c->mod.leases->pool;
}

uint32_t leases_of(const struct core *c, const struct core_client *cl)
{
    return (uint32_t)c->mod.leases->share.held[client_no(c, cl)];
}

bool leases_are_going(const struct core *c)
{
    return !list_empty(&c->mod.leases->going);
}

static void ticket_random(struct leases *l, uint8_t *out, uint32_t n)
{
    if (l->random_at + n > sizeof l->random) {
        MUST(hash_random(l->random, sizeof l->random) == 0);
        l->random_at = 0;
    }
    memcpy(out, &l->random[l->random_at], n);
    memset(&l->random[l->random_at], 0, n);
    l->random_at += n;
}

static struct lease *lease_new(struct core *c, struct core_client *cl)
{
    struct leases *all = c->mod.leases;
    struct lease *l = share_get(&all->share, client_no(c, cl), all->pool);
    if (!l)
        return NULL;
    uint32_t no = pool_index(all->pool, l);
    l->id = ++all->serial << 32 | (no + 1);
    l->client = cl;
    l->since_ms = c->now_ms;
    l->hbm_device = CORE_NONE;
    run_init(&l->blocks);
    run_init(&l->hbm);
    /* The number finds the lease again; 96 random bits make it a secret. */
    memcpy(l->ticket, &no, sizeof no);
    ticket_random(all, l->ticket + sizeof no, KVC_TICKET_BYTES - sizeof no);
    list_push_back(&cl->leases, &l->node);
    c->m.leases++;
    return l;
}

/* Takes the lease off its client, and out of the client's counts. */
static void lease_uncount(struct core *c, struct lease *l)
{
    MUST(l->uses == 0);
    hbm_copy_let_go(c, l); /* first: HBM copies are freed before their blocks */
    l->client->lease_bytes -= l->bytes;
    c->m.leased_bytes -= l->bytes;
    l->bytes = 0;
}

/* Releases the lease's blocks, `all` or until the slice is over. True: some are left. */
static bool lease_unhold(struct core *c, struct lease *l, bool all)
{
    struct run_iter it = run_at(c, &l->blocks, l->freed);
    for (; l->freed < l->blocks.n; l->freed++) {
        if (!all && slice_over(c))
            return true;
        struct block *b = &c->blocks[run_next(c, &it)->block];
        c->work.done += WORK_LOOK;
        block_ns(c, b)->leased -= block_bytes(c, b);
        block_unhold(c, b);
    }
    return false;
}

static void lease_put(struct core *c, struct lease *l)
{
    run_free(c, client_no(c, l->client), &l->blocks);
    c->m.leases--;
    list_remove(&l->node);
    share_put(&c->mod.leases->share, client_no(c, l->client), c->mod.leases->pool, l);
}

void lease_free(struct core *c, struct lease *l)
{
    lease_uncount(c, l);
    (void)lease_unhold(c, l, true);
    lease_put(c, l);
}

void lease_turn(struct core *c)
{
    c->work.end_left = work_of_slice(c);
}

/* Frees an ended lease: at once, or in slices if much was released in this turn already. */
static void lease_go(struct core *c, struct lease *l)
{
    if (l->blocks.n <= c->work.end_left) {
        c->work.end_left -= l->blocks.n;
        lease_free(c, l);
        return;
    }
    lease_uncount(c, l);
    list_remove(&l->node);
    list_push_back(&c->mod.leases->going, &l->node);
    l->going = true;
    l->client->going++;
}

bool lease_step(struct core *c)
{
    struct list_node *node = list_first(&c->mod.leases->going);
    if (!node)
        return false;
    struct lease *l = CONTAINER_OF(node, struct lease, node);
    struct core_client *cl = l->client;
    work_slice(c);
    if (lease_unhold(c, l, false))
        return true;
    lease_put(c, l);
    cl->going--;
    core__client_settle(c, cl);
    return leases_are_going(c);
}

void lease_end(struct core *c, struct lease *l)
{
    l->ended = true;
    if (l->uses == 0)
        lease_go(c, l);
}

void lease_use(struct lease *l)
{
    l->uses++;
}

void lease_unuse(struct core *c, struct lease *l)
{
    MUST(l->uses > 0);
    if (--l->uses == 0 && l->ended)
        lease_go(c, l);
}

struct lease *lease_in_use(const struct core *c, uint64_t id)
{
    struct lease *l = pool_at(c->mod.leases->pool, (uint32_t)id - 1);
    MUST(l && l->id == id && l->uses > 0);
    return l;
}

struct lease *lease_by_id(struct core *c, const struct core_client *cl, uint64_t id)
{
    uint32_t no = (uint32_t)id - 1;
    if (no >= pool_count(c->mod.leases->pool))
        return NULL;
    struct lease *l = pool_at(c->mod.leases->pool, no);
    return l && l->id == id && l->client == cl && !l->ended ? l : NULL;
}

/* Adds record `no` to the lease. left: as unevictable_take() has it. */
static int lease_add(struct core *c, struct lease *l, uint32_t no, uint64_t *left,
                     const char **ret_why)
{
    struct block *b = &c->blocks[no];
    uint64_t bytes = block_bytes(c, b);
    if (l->client->lease_bytes + bytes > c->cfg.lease_bytes_max || !block_may_be_held(b))
        return KVC_E_LIMIT;
    int err = unevictable_hold(c, block_ns(c, b), b, left);
    if (err)
        return unevictable_refused(err, ret_why);
    err = run_push(c, client_no(c, l->client), &l->blocks, no, b->gen);
    if (err)
        return err;
    block_hold(c, b);
    l->bytes += bytes;
    l->client->lease_bytes += bytes;
    block_ns(c, b)->leased += bytes;
    c->m.leased_bytes += bytes;
    return 0;
}

static void held_of(const struct lease *l, struct core_held *held)
{
    held->lease = l->id;
    memcpy(held->ticket, l->ticket, sizeof held->ticket);
    held->ngroups = l->ngroups;
    for (uint32_t g = 0; g < l->ngroups; g++) {
        held->group[g].first = l->group[g].first;
        held->group[g].n = l->group[g].n;
    }
}

void lease_held(struct core *c, const struct lease *l, struct core_held *held)
{
    c->m.bytes_leased += l->bytes;
    c->m.hbm_only_hits += l->hbm.n;
    held_of(l, held);
}

struct lease *lease_begin(struct core *c, struct core_client *cl, const struct find *f,
                          uint32_t from)
{
    struct lease *l = lease_new(c, cl);
    if (!l)
        return NULL;
    l->ngroups = f->seq->ngroups;
    l->tokens = f->tokens;
    for (uint32_t g = 0; g < l->ngroups; g++) {
        uint32_t first, end;
        find_lease(f, g, from, &first, &end);
        l->group[g].first = first;
        l->group[g].n = end - first;
    }
    return l;
}

int lease_add_found(struct core *c, struct lease *l, const struct find *f, struct block *b,
                    uint64_t *left, const char **ret_why)
{
    int err = lease_add(c, l, block_no(c, b), left, ret_why);
    if (!err && !block_ready(b)) /* then it was found on the device */
        err = hbm_copy_lease(c, l, f->hbm, f->seq, b);
    return err;
}

/* The blocks that f's prefix needs and that end after the tokens that the lease begins with. */
static int lease_found(struct core *c, struct lease *l, const struct find *f, const char **ret_why)
{
    uint64_t left = 0;
    for (uint32_t g = 0; g < l->ngroups; g++) {
        const uint32_t first = l->group[g].first;
        for (uint32_t i = 0; i < l->group[g].n; i++) {
            struct block *b = &c->blocks[c->lookup.found[f->at[g] + first + i]];
            int err = lease_add_found(c, l, f, b, &left, ret_why);
            if (err)
                return err;
        }
    }
    return 0;
}

/* How many tokens were cached, now or when loads began, but not worth loading. */
static uint32_t not_worth(const struct find *f, const struct core_waiter *waiter,
                          const struct core_prefix *prefix)
{
    if (f->cut)
        return prefix->cached_tokens - f->tokens;
    const bool cut = waiter && waiter->worth < waiter->cached && f->tokens >= waiter->worth;
    return cut && f->tokens < waiter->cached ? waiter->cached - f->tokens : 0;
}

/* Adds to the answer what the lookup before the loads had found. */
static void add_asked(const struct find *f, const struct core_waiter *waiter,
                      struct core_prefix *prefix)
{
    if (!waiter)
        return;
    prefix->cached_tokens = MAX(prefix->cached_tokens, waiter->cached);
    for (uint32_t g = 0; g < f->seq->ngroups && not_worth(f, waiter, prefix) > 0; g++)
        prefix->group[g].reason = KVC_MISS_NOT_WORTH;
}

static uint32_t lease_beyond(uint32_t tokens, uint32_t from)
{
    return tokens - MIN(tokens, from);
}

/* Counts the acquire; blocks that the client has already do not count as asked for. */
static void count_acquire(struct core *c, const struct find *f, uint32_t from,
                          const struct core_waiter *waiter, const struct core_prefix *prefix)
{
    const uint32_t hit = lease_beyond(f->tokens, from),
                   missed = lease_beyond(f->seq->tokens, from) - hit;
    const uint32_t decided = MIN(not_worth(f, waiter, prefix), missed);
    c->m.acquires++;
    c->m.tokens_hit += hit;
    if (waiter && waiter->cached > 0)
        c->m.tokens_loaded += lease_beyond(f->tokens, MAX(from, waiter->in_memory));
    c->m.tokens_recomputed_by_decision += decided;
    c->m.tokens_recomputed_by_miss += missed - decided;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_lease(f, g, from, &first, &end);
        c->m.blocks_asked +=
            lease_beyond(f->seq->n[g], from / f->seq->ns->spec.group[g].block_tokens);
        c->m.blocks_hit += end - first;
    }
}

static void wait_on(struct core *c, const struct core_acquire *in, struct core_waiter *waiter,
                    struct block *b)
{
    waiter->block = block_no(c, b);
    waiter->gen = b->gen;
    waiter->keys = 0;
    for (uint32_t g = 0; g < in->seq.ngroups; g++)
        waiter->keys += in->seq.n[g];
    b->flags |= BLOCK_F_WAITED;
    list_push_back(&c->ns[in->seq.ns - c->ns].waiting, &waiter->node);
    c->m.waits++;
}

/* Notes the chain that the waiter has found: it is valid as long as its last block is there. */
static void wait_note(struct core *c, const struct find *f, struct core_waiter *waiter)
{
    const uint32_t lead = f->lead[0];
    waiter->chained = f->seq->ngroups == 1 && f->linked && lead > 0 &&
                      f->seq->ns->spec.group[0].rule == KVC_RULE_FULL;
    if (!waiter->chained)
        return;
    waiter->lead = lead;
    waiter->last = c->lookup.found[f->at[0] + lead - 1];
    waiter->last_gen = c->blocks[waiter->last].gen;
}

bool find_wait(struct core *c, const struct core_acquire *in, struct find *f,
               struct core_waiter *waiter)
{
    uint32_t enough = in->wait_tokens ? MIN(in->wait_tokens, in->seq.tokens) : in->seq.tokens;
    if (!in->wait || in->seq.absent || f->tokens >= enough || f->cut)
        return false;
    uint32_t g, i;
    if (!find_blocker(c, f, enough, &g, &i))
        return false;
    wait_note(c, f, waiter);
    c->work.done += WORK_LOOK;
    struct block *b = index_get(c, in->seq.ns, g, in->seq.keys[g] + (size_t)i * KVC_KEY_BYTES);
    if (b && b->state == BLOCK_PENDING)
        wait_on(c, in, waiter, b);
    else /* an earlier slice has found it PENDING, and now it is not: all is looked up again */
        list_push_back(&c->woken, &waiter->node);
    return true;
}

void find_count(struct core *c, const struct core_acquire *in, const struct find *f,
                const struct core_waiter *waiter, struct core_prefix *prefix)
{
    add_asked(f, waiter, prefix);
    if (!in->unasked)
        count_acquire(c, f, in->from_tokens, waiter, prefix);
}

bool core_wait_again(struct core *c, const struct core_acquire *in, struct core_waiter *waiter)
{
    const struct core_seq *seq = &in->seq;
    if (!waiter->chained || !in->wait || seq->absent)
        return false;
    const struct block *last = &c->blocks[waiter->last];
    c->work.done += 2 * WORK_LOOK;
    if (last->gen != waiter->last_gen || !(last->flags & BLOCK_F_LINKED))
        return false;
    const uint32_t bt = seq->ns->spec.group[0].block_tokens, i = waiter->lead;
    struct block *b = index_get(c, seq->ns, 0, seq->keys[0] + (size_t)i * KVC_KEY_BYTES);
    if (!b || b->state != BLOCK_PENDING || b->tokens != MIN(bt, seq->tokens - i * bt))
        return false;
    if (block_is_late(c, b)) /* then nobody waits for b */
        return false;
    wait_on(c, in, waiter, b);
    return true;
}

/* Begins to load the blocks that f found, and notes in the waiter what was in memory and cached. 1:
 * the load has begun. */
static int load_all(struct core *c, struct core_client *cl, const struct core_acquire *in,
                    struct core_waiter *waiter, const struct find *f,
                    const struct core_prefix *prefix, const char **ret_why)
{
    int got = load_start(c, cl, f, in->from_tokens, waiter, ret_why);
    if (got != 1)
        return got;
    struct find memory;
    struct core_prefix there;
    waiter->worth = f->tokens;
    waiter->cached = prefix->cached_tokens;
    find_again(c, f, FIND_HOST, &memory, &there);
    waiter->in_memory = memory.tokens;
    return 1;
}

/* Finds the prefix in any tier. For a request that has waited for loads, the loaded blocks are
 * looked at first. */
static void find_any(struct core *c, const struct core_acquire *in,
                     const struct core_waiter *waiter, struct find *f, struct core_prefix *prefix)
{
    const struct core_load *l = waiter ? waiter->load : NULL;
    find_begin(c, &in->seq, FIND_ANY, in->from_tokens, f);
    if (l && l->hbm.n == 0 && !in->seq.absent)
        find_expect(c, f, waiter->worth, &l->blocks);
    find_whole(c, f, prefix);
}

/* Finds the prefix in memory, and on the device. 1: the request waits, for loads or for a longer
 * prefix. */
static int find_in_memory(struct core *c, struct core_client *cl, const struct core_acquire *in,
                          struct core_waiter *waiter, struct find *f, struct core_prefix *prefix,
                          const char **ret_why)
{
    uint32_t cached = 0;
    if (core_stores(c) || c->unchecked > 0) {
        find_any(c, in, waiter, f, prefix);
        if (load_is_ready(c, f, in->from_tokens))
            return find_wait(c, in, f, waiter);
        int got = in->load ? 1 : 0;
        if (in->load && waiter)
            got = load_all(c, cl, in, waiter, f, prefix, ret_why);
        if (got != 0)
            return got;
        cached = prefix->cached_tokens;
        find_again(c, f, FIND_HOST, f, prefix);
    } else {
        find_prefix(c, &in->seq, FIND_HOST, in->from_tokens, f, prefix);
    }
    prefix->cached_tokens = MAX(prefix->cached_tokens, cached);
    return find_wait(c, in, f, waiter);
}

void waiter_done(struct core *c, struct core_waiter *waiter)
{
    if (waiter && waiter->load)
        load_free(c, waiter->load);
    if (waiter)
        waiter->in_memory = waiter->worth = waiter->cached = 0;
}

int core_acquire(struct core *c, struct core_client *cl, const struct core_acquire *in,
                 struct core_waiter *waiter, struct core_held *ret_held, const char **ret_why)
{
    *ret_why = core_seq_fault(&in->seq);
    if (!*ret_why && in->read_only && in->load)
        *ret_why = "read_only: nothing is loaded for it";
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    struct find f;
    struct core_held held = {0};
    int err = find_in_memory(c, cl, in, waiter, &f, &held.prefix, ret_why);
    if (err)
        return err;
    find_count(c, in, &f, waiter, &held.prefix);
    held.ngroups = in->seq.ngroups;
    if (f.tokens > in->from_tokens) {
        struct lease *l = lease_begin(c, cl, &f, in->from_tokens);
        err = l ? lease_found(c, l, &f, ret_why) : KVC_E_BUSY;
        if (!err)
            lease_held(c, l, &held);
        else if (l)
            lease_free(c, l);
    }
    if (!err && !in->read_only) {
        if (!in->unasked)
            tell_request(c, &f);
        find_touch(c, &f);
    }
    if (!err)
        *ret_held = held;
    if (!err && f.cut && !in->read_only)
        worth_probe(c, &f);
    waiter_done(c, waiter);
    return err;
}

void core_waiter_cancel(struct core *c, struct core_waiter *waiter)
{
    if (waiter->bytes > 0 && list_is_linked(&waiter->node))
        c->disk.room_vain_ms = c->now_ms + ROOM_VAIN_MS;
    list_remove(&waiter->node);
    if (waiter->load)
        load_free(c, waiter->load);
}

void lease_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    /* Where all groups are full, no longer prefix is complete before the block that is waited for.
     * Elsewhere one may be that does not need it: made of blocks that were announced later. */
    bool any = b->state == BLOCK_PRESENT && !ns_is_full(block_ns(c, b));
    if (!any && !(b->flags & BLOCK_F_WAITED))
        return;
    uint32_t no = block_no(c, b);
    LIST_FOR_EACH_SAFE (node, next, &c->ns[b->ns].waiting) {
        struct core_waiter *w = CONTAINER_OF(node, struct core_waiter, node);
        c->work.done += WORK_LOOK;
        if (!any && (w->block != no || w->gen != b->gen))
            continue;
        list_remove(&w->node);
        list_push_back(&c->woken, &w->node);
    }
    block_clear(&c->blocks[no], BLOCK_F_WAITED);
}

/* Whether bytes of one of the lease's blocks were found to be wrong: a view of that block made now
 * would have its present generation, so a reader would not notice. */
static bool is_corrupt(struct core *c, const struct lease *l)
{
    struct run_iter it = run_begin(c, &l->blocks);
    for (const struct run_entry *e; (e = run_next(c, &it));)
        if (c->blocks[e->block].flags & BLOCK_F_CORRUPT)
            return true;
    return false;
}

bool core_lease_is_corrupt(struct core *c, struct core_client *cl, uint64_t lease)
{
    const struct lease *l = lease_by_id(c, cl, lease);
    return l && is_corrupt(c, l);
}

static struct lease *lease_by_ticket(struct core *c, const struct core_client *cl,
                                     const uint8_t ticket[KVC_TICKET_BYTES])
{
    uint32_t no;
    memcpy(&no, ticket, sizeof no);
    struct lease *l =
        no < pool_count(c->mod.leases->pool) ? pool_at(c->mod.leases->pool, no) : NULL;
    uint8_t differs = 0;
    for (uint32_t i = 0; l && i < KVC_TICKET_BYTES; i++)
        differs |= l->ticket[i] ^ ticket[i];
    return l && !differs && !l->ended && l->client->who.principal == cl->who.principal ? l : NULL;
}

static struct lease *redeem_begin(struct core *c, struct core_client *cl, const struct lease *from)
{
    struct lease *l = lease_new(c, cl);
    if (!l)
        return NULL;
    l->ngroups = from->ngroups;
    l->tokens = from->tokens;
    memcpy(l->group, from->group, sizeof l->group);
    return l;
}

/* Adds the blocks of `from` that l does not have yet. Each must be readable without the device of
 * `from`. The generation of a corrupt block has changed, so it must not be told. */
static int redeem_blocks(struct core *c, struct lease *l, const struct lease *from, bool all)
{
    const char *why;
    uint64_t left = 0;
    struct run_iter it = run_at(c, &from->blocks, l->blocks.n);
    while (l->blocks.n < from->blocks.n) {
        if (!all && slice_over(c))
            return CORE_MORE;
        const uint32_t no = run_next(c, &it)->block;
        const struct block *b = &c->blocks[no];
        c->work.done += WORK_LOOK;
        if (b->flags & BLOCK_F_CORRUPT || !block_in_host(c, b))
            return KVC_E_NO_LEASE;
        int err = lease_add(c, l, no, &left, &why); /* `from` holds it, so no bytes are added */
        if (err)
            return err;
    }
    return 0;
}

static int ticket_redeem(struct core *c, struct core_client *cl, struct core_redeeming *x, bool all,
                         struct core_held *ret_held)
{
    const struct lease *from = lease_by_ticket(c, cl, x->ticket);
    struct lease *l = x->lease ? lease_by_id(c, cl, x->lease)
                      : from   ? redeem_begin(c, cl, from)
                               : NULL;
    int err = !from ? KVC_E_NO_LEASE : l ? redeem_blocks(c, l, from, all) : KVC_E_BUSY;
    x->lease = l ? l->id : 0;
    if (err == CORE_MORE)
        return err;
    if (err) {
        core_redeem_cancel(c, cl, x);
        return err;
    }
    struct core_held held = {.prefix = {.tokens = l->tokens, .cached_tokens = l->tokens}};
    held_of(l, &held);
    *ret_held = held;
    x->lease = 0;
    return 0;
}

int core_redeem_step(struct core *c, struct core_client *cl, struct core_redeeming *x,
                     struct core_held *ret_held)
{
    work_slice(c);
    return ticket_redeem(c, cl, x, false, ret_held);
}

void core_redeem_cancel(struct core *c, struct core_client *cl, struct core_redeeming *x)
{
    struct lease *l = x->lease ? lease_by_id(c, cl, x->lease) : NULL;
    if (l)
        lease_end(c, l);
    x->lease = 0;
}

int core_redeem(struct core *c, struct core_client *cl, const uint8_t ticket[KVC_TICKET_BYTES],
                struct core_held *ret_held)
{
    struct core_redeeming x = {.lease = 0};
    memcpy(x.ticket, ticket, sizeof x.ticket);
    return ticket_redeem(c, cl, &x, true, ret_held);
}

static int loc_tell(struct core *c, const struct block *b, uint32_t shard, core_loc_fn *fn,
                    void *ctx)
{
    const uint32_t s = group_shards(block_ns(c, b), block_group(c, b)) == 1 ? 0 : shard;
    const struct tier *host = c->cfg.tier[CORE_HOST];
    struct tier_view view;
    if (!block_in_host(c, b))
        return KVC_E_GONE;
    host->memory->view(host, copy_loc(c, b, CORE_HOST, s), &view);
    fn(ctx, &view);
    return 0;
}

/* Whether the lease's namespace has that shard. */
static bool has_shard(struct core *c, const struct lease *l, uint32_t shard)
{
    struct run_iter it = run_begin(c, &l->blocks);
    const struct run_entry *first = run_next(c, &it);
    return !first || shard < block_ns(c, &c->blocks[first->block])->spec.shards;
}

int core_lease_locs(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard,
                    core_loc_fn *fn, void *ctx)
{
    const struct lease *l = lease_by_id(c, cl, lease);
    if (!l)
        return KVC_E_NO_LEASE;
    if (!has_shard(c, l, shard))
        return KVC_E_BAD_ARGUMENT;
    int err = 0;
    struct run_iter it = run_begin(c, &l->blocks);
    for (const struct run_entry *e; !err && (e = run_next(c, &it));)
        err = loc_tell(c, &c->blocks[e->block], shard, fn, ctx);
    return err;
}

/* Telling so many locations is as much work as looking up one key. */
#define LOCS_WORK 8u

uint32_t core_lease_locs_slice(const struct core *c)
{
    return work_of_slice(c) * LOCS_WORK / WORK_LOOK;
}

int core_lease_locs_step(struct core *c, struct core_client *cl, uint64_t lease, uint32_t shard,
                         uint32_t *at, core_loc_fn *fn, void *ctx)
{
    const struct lease *l = lease_by_id(c, cl, lease);
    if (!l)
        return KVC_E_NO_LEASE;
    if (!has_shard(c, l, shard))
        return KVC_E_BAD_ARGUMENT;
    work_slice(c);
    struct run_iter it = run_at(c, &l->blocks, *at);
    for (; *at < l->blocks.n; ++*at) {
        if (slice_over(c))
            return CORE_MORE;
        c->work.done += *at % LOCS_WORK == 0 ? WORK_LOOK : 0;
        const struct block *b = &c->blocks[run_next(c, &it)->block];
        /* The generation of a corrupt block has changed, so a view made now would match. */
        const int err = b->flags & BLOCK_F_CORRUPT ? KVC_E_GONE : loc_tell(c, b, shard, fn, ctx);
        if (err)
            return err;
    }
    return 0;
}

int core_release(struct core *c, struct core_client *cl, uint64_t lease)
{
    struct lease *l = lease_by_id(c, cl, lease);
    if (!l)
        return KVC_E_NO_LEASE;
    lease_end(c, l);
    return 0;
}
