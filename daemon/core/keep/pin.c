/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pins (PIN, UNPIN): lists of blocks that stay on request, and how often each block is in one.
 * reconcile_step() begins what a pinned block lacks: a copy in memory, or a durable one on disk.
 */
#include <stdlib.h>

#include "keep.h"
#include "regions.h"
#include "wants.h"

struct pins {
    struct pool *pool;      /* of struct pin; NULL: pins are switched off */
    struct share share;     /* shares of the pool, by principal */
    uint64_t serial;        /* of the pin that was made last */
    uint64_t bytes_max;     /* the most pinned bytes of a tenant; 0: no limit */
    uint64_t next_ms;       /* the time before which no pin ends; 0: no pin has an end */
    struct list_node going; /* pins that have ended, whose blocks are being released in slices */
    bool forced;            /* an eviction job that forces is evicting a pinned block */
};

static int pins_create(struct core *c)
{
    struct pins *pins = c->mod.pins;
    pins->bytes_max = c->cfg.pin_bytes_max;
    list_init(&pins->going);
    if (c->cfg.pins_max == 0)
        return 0;
    return core__shared_pool(c, &pins->pool, &pins->share, "pins", sizeof(struct pin),
                             c->cfg.pins_max, MAX(c->cfg.principals_max, 1u));
}

static void pins_destroy(struct core *c)
{
    core__shared_pool_free(&c->mod.pins->pool, &c->mod.pins->share);
}

const struct core_module pins_module = {CORE_STATE(pins), .create = pins_create,
                                        .destroy = pins_destroy};

uint32_t pins_used(const struct core *c)
{
    return pool_used(c->mod.pins->pool);
}

bool pins_are_going(const struct core *c)
{
    return !list_empty(&c->mod.pins->going);
}

void pins_force(struct core *c, bool forced)
{
    c->mod.pins->forced = forced;
}

/* The runs for all pins together: blocks of a quarter of the index, and a run for each pin. */
uint32_t pins_of_runs(const struct core_config *cfg)
{
    return cfg->pins_max ? cfg->blocks_max / 4 / CORE_RUN_ENTRIES + cfg->pins_max : 0;
}

/* ---- counts ---- */

static void count_pinned(struct core *c, const struct block *b, bool more)
{
    const uint64_t bytes = block_bytes(c, b), by = more ? bytes : -bytes;
    c->m.pinned_blocks += more ? 1 : -1ull;
    c->m.pinned_bytes += by;
    block_ns(c, b)->pinned += by;
}

/* A pinned block is removed: its bytes are bad or lost, its writer drops a block before it, or an
 * operator forces it. Never for room. */
void pin_hear(struct core *c, struct block *b, const struct block_change *x)
{
    if (b->pins == 0)
        return;
    MUST(x->reason != KVC_MISS_EVICTED || c->mod.pins->forced);
    count_pinned(c, b, false);
    b->pins = b->host_pins = 0;
    room_bind(c, b);
    c->m.blocks_unpinned++;
}

static void block_pin(struct core *c, struct block *b, bool in_memory)
{
    if (b->pins++ == 0)
        count_pinned(c, b, true);
    b->host_pins += in_memory;
    room_bind(c, b);
    if (in_memory && block_is_clean(b))
        clean_recall(c, b);
    unmet_add(c, b);
}

static void block_unpin(struct core *c, const struct pin *p, struct block *b)
{
    MUST(b->pins > 0);
    b->host_pins -= p->in_memory;
    if (--b->pins == 0) {
        count_pinned(c, b, false);
        if (p->id || !found_keeps(c)) /* a refused pin changes nothing */
            block_unwanted(c, b);
    }
    room_bind(c, b);
    block_unheld(c, b);
}

/* The block of an entry, as long as the entry pins it. */
static struct block *pinned_block(struct core *c, const struct run_entry *e)
{
    struct block *b = &c->blocks[e->block];
    return b->gen == e->gen && b->flags & BLOCK_F_LINKED ? b : NULL;
}

/* ---- the budget ---- */

static uint64_t tenant_pinned(const struct core *c, const char *tenant)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        if (c->ns[i].id && strcmp(c->ns[i].tenant, tenant) == 0)
            sum += c->ns[i].pinned;
    return sum;
}

void core_pin_budget(struct core *c, uint64_t bytes_max)
{
    c->mod.pins->bytes_max = bytes_max;
}

uint64_t core_pin_budget_now(const struct core *c)
{
    return c->mod.pins->bytes_max;
}

/* ---- pins ---- */

/* Bytes that a pin adds: to the budget, and to what is bound to each tier. */
struct added {
    uint64_t budget, bound[RETAIN_TIERS];
};

static void count_added(struct core *c, const struct pin *p, const struct block *b,
                        struct added *added)
{
    const uint64_t bytes = block_bytes(c, b);
    const bool binds[RETAIN_TIERS] = {p->in_memory || !core_stores(c), core_stores(c)};
    added->budget += b->pins ? 0 : bytes;
    for (unsigned t = 0; t < RETAIN_TIERS; t++)
        added->bound[t] += binds[t] && !block_is_bound(b, t) ? bytes : 0;
}

/* Adds one block to the pin. A key may be there twice, and counts once. */
static int collect_one(struct core *c, struct pin *p, struct block *b, struct added *added)
{
    if (b->listed)
        return 0;
    if (b->pins == BLOCK_PINS_MAX ||
        run_push(c, run_principal(c, p->principal), &p->blocks, block_no(c, b), b->gen) != 0)
        return KVC_E_LIMIT;
    p->bytes += block_bytes(c, b);
    count_added(c, p, b, added);
    b->listed = 1;
    return 0;
}

/* Whether limits allow the bytes in `added`. For a name's pin, name_room_for() has checked what is
 * bound. */
static int pin_allowed(struct core *c, const struct core_ns *ns, const struct pin *p,
                       const struct added *added)
{
    const uint64_t max = c->mod.pins->bytes_max;
    int err = 0;
    for (unsigned t = 0; t < RETAIN_TIERS && !err && !p->of_name; t++)
        err = quota_bind(c, ns, t, added->bound[t]);
    if (!err && max && added->budget > 0 && tenant_pinned(c, ns->tenant) + added->budget > max)
        err = KVC_E_PIN_LIMIT;
    return err;
}

static void pin_free(struct core *c, struct pin *p)
{
    run_free(c, run_principal(c, p->principal), &p->blocks);
    share_put(&c->mod.pins->share, principal_index(c, p->principal), c->mod.pins->pool, p);
}

struct pin *pin_new(struct core *c, const struct core_pin *in, const struct find *f)
{
    const struct core_ns *ns = in->seq.ns;
    struct pin *p =
        c->cfg.pins_max
            ? share_get(&c->mod.pins->share, principal_index(c, ns->principal), c->mod.pins->pool)
            : NULL;
    if (!p)
        return NULL;
    *p = (struct pin){.ns = ns->id,
                      .principal = ns->principal,
                      .principal_name = ns->principal_name,
                      .tenant = ns->tenant,
                      .tokens = f->tokens,
                      .in_memory = in->in_memory,
                      .of_name = in->of_name};
    run_init(&p->blocks);
    return p;
}

/* Releases the pin's blocks. True: not all, the slice is over. */
static bool pin_let_go(struct core *c, struct pin *p, bool all)
{
    if (p->freed == 0)
        p->at = run_begin(c, &p->blocks);
    for (; p->freed < p->held; p->freed++) {
        if (!all && slice_over(c))
            return true;
        struct block *b = pinned_block(c, run_next(c, &p->at));
        c->work.done += WORK_LOOK;
        if (b)
            block_unpin(c, p, b);
    }
    return false;
}

static int pin_hold(struct core *c, struct pin *p, struct block *b)
{
    const bool binds = c->mod.regions && (p->in_memory || !core_stores(c));
    const int err = binds && unevictable_by_hold(c, b) > 0 ? regions_admit(c, b) : 0;
    if (err)
        return err == KVC_E_FULL ? KVC_E_PIN_LIMIT : err;
    block_pin(c, b, p->in_memory);
    p->held++;
    return 0;
}

int pin_add(struct core *c, struct pin *p, const struct find *f, uint32_t g, uint32_t first,
            uint32_t end)
{
    const uint32_t *found = &c->lookup.found[f->at[g]];
    struct added added = {0};
    int err = 0;
    for (uint32_t i = first; i < end && !err; i++) {
        err = collect_one(c, p, &c->blocks[found[i]], &added);
        if (g == 0)
            p->tip = c->blocks[found[i]].key;
    }
    if (!err)
        err = pin_allowed(c, f->seq->ns, p, &added);
    for (uint32_t i = first; i < end; i++) {
        struct block *b = &c->blocks[found[i]];
        if (b->listed && !err)
            err = pin_hold(c, p, b);
        b->listed = 0;
    }
    c->m.pins_refused += err == KVC_E_PIN_LIMIT;
    return err;
}

void pin_drop(struct core *c, struct pin *p)
{
    (void)pin_let_go(c, p, true);
    pin_free(c, p);
}

void pin_begin(struct core *c, struct pin *p, uint64_t ttl_ms, struct core_pinned *ret_pinned)
{
    MUST(p->held == p->blocks.n);
    p->id = ++c->mod.pins->serial << 32 | (pool_index(c->mod.pins->pool, p) + 1);
    if (ttl_ms)
        p->end_ms = c->now_ms + MIN(ttl_ms, UINT64_MAX / 2);
    if (p->end_ms && (!c->mod.pins->next_ms || p->end_ms < c->mod.pins->next_ms))
        c->mod.pins->next_ms = p->end_ms;
    c->m.pins++;
    c->m.pins_taken++;
    *ret_pinned = (struct core_pinned){
        .id = p->id, .tokens = p->tokens, .blocks = p->blocks.n, .bytes = p->bytes};
}

int core_pin(struct core *c, const struct core_pin *in, struct core_pinned *ret_pinned,
             const char **ret_why)
{
    if ((*ret_why = core_seq_fault(&in->seq)))
        return KVC_E_BAD_ARGUMENT;
    struct find f;
    struct core_prefix prefix;
    find_prefix(c, &in->seq, FIND_ANY, 0, &f, &prefix);
    if (in->seq.absent || f.tokens == 0)
        return find_absence(c, &in->seq, &prefix, ret_why);
    struct pin *p = pin_new(c, in, &f);
    if (!p)
        return KVC_E_LIMIT;
    int err = 0;
    for (uint32_t g = 0; g < in->seq.ngroups && !err; g++) {
        uint32_t first, end;
        find_needs(&f, g, f.tokens, &first, &end);
        err = pin_add(c, p, &f, g, first, end);
    }
    if (err)
        pin_drop(c, p);
    else
        pin_begin(c, p, in->ttl_ms, ret_pinned);
    return err;
}

static struct pin *pin_by_id(struct core *c, uint64_t id)
{
    const uint32_t no = (uint32_t)id - 1;
    struct pin *p = c->cfg.pins_max && no < pool_count(c->mod.pins->pool)
                        ? pool_at(c->mod.pins->pool, no)
                        : NULL;
    return p && p->id == id ? p : NULL;
}

/* Ends a pin, at once unless much was released in this turn; true: there is more to do. */
static bool pin_end(struct core *c, struct pin *p)
{
    if (p->held <= c->work.end_left) {
        c->work.end_left -= p->held;
        pin_drop(c, p);
        return false;
    }
    p->going = true;
    list_push_back(&c->mod.pins->going, &p->node);
    return true;
}

void pin_leave(struct core *c, struct pin *p)
{
    (void)pin_end(c, p);
}

static bool pin_go(struct core *c, struct pin *p)
{
    c->m.pins--;
    return pin_end(c, p);
}

/* Runs a slice of ending a pin; true: there is more. */
static bool pin_go_on(struct core *c, struct pin *p)
{
    work_slice(c);
    if (pin_let_go(c, p, false))
        return true;
    list_remove(&p->node);
    pin_free(c, p);
    return false;
}

static bool may_see(const struct core_client *cl, const struct pin *p)
{
    return !p->going &&
           (!cl || (!p->of_name && (cl->who.admin || cl->who.principal == p->principal)));
}

int core_unpin(struct core *c, const struct core_client *cl, uint64_t id)
{
    struct pin *p = pin_by_id(c, id);
    if (!p || !may_see(cl, p))
        return KVC_E_NO_NAME;
    return pin_go(c, p) ? CORE_MORE : 0;
}

bool core_unpin_step(struct core *c, uint64_t id)
{
    struct pin *p = pin_by_id(c, id);
    return p && pin_go_on(c, p);
}

bool core_pin_next(struct core *c, const struct core_client *cl, uint64_t *cursor,
                   struct core_pin_view *ret_view)
{
    const uint32_t n = c->cfg.pins_max ? pool_count(c->mod.pins->pool) : 0;
    for (uint32_t i = (uint32_t)*cursor; i < n; i++) {
        const struct pin *p = pool_at(c->mod.pins->pool, i);
        if (!p || !p->id || !may_see(cl, p))
            continue;
        const struct core_ns *ns = ns_by_id(c, p->ns);
        *ret_view = (struct core_pin_view){
            .id = p->id,
            .bytes = p->bytes,
            .left_ms = p->end_ms ? MAX(p->end_ms, c->now_ms + 1) - c->now_ms : 0,
            .ns = p->ns,
            .tokens = p->tokens,
            .blocks = p->blocks.n,
            .principal = p->principal_name,
            .tenant = p->tenant,
            .sub = ns ? ns->spec.sub : "",
            .in_memory = p->in_memory,
            .tip = p->tip};
        *cursor = i + 1;
        return true;
    }
    return false;
}

/* ---- steps ---- */

static void pins_end_due(struct core *c)
{
    uint64_t next = 0;
    if (!c->mod.pins->next_ms || c->now_ms < c->mod.pins->next_ms)
        return;
    struct pin *p;
    POOL_FOR_EACH (p, i, c->mod.pins->pool) {
        if (!p->end_ms || p->going)
            continue;
        if (p->end_ms <= c->now_ms) {
            c->m.pins_ended++;
            (void)pin_go(c, p);
        } else if (!next || p->end_ms < next) {
            next = p->end_ms;
        }
    }
    c->mod.pins->next_ms = next;
}

/* Runs a step of the pins that have ended, one after the other; true: there is more. */
static bool unpin_step(struct core *c)
{
    struct list_node *node = list_first(&c->mod.pins->going);
    return node &&
           (pin_go_on(c, CONTAINER_OF(node, struct pin, node)) || !list_empty(&c->mod.pins->going));
}

bool pin_step(struct core *c)
{
    if (!c->cfg.pins_max)
        return false;
    pins_end_due(c);
    return unpin_step(c);
}

/* ---- for core_check() ---- */

/* Checks that each block is in as many pins as it says, and that as many want it in memory. */
void pins_check(struct core *c)
{
    uint8_t *count = sys_calloc(c->blocks_high + 1ull, 2);
    uint64_t pins = 0, blocks = 0;
    MUST(count != NULL);
    const struct pin *p;
    POOL_FOR_EACH (p, i, c->mod.pins->pool) {
        pins += p->id != 0 && !p->going;
        const bool refused = p->going && p->id == 0; /* its last blocks were not pinned */
        MUST((p->held == p->blocks.n || refused) && (p->freed == 0 || p->going));
        struct run_iter it = run_at(c, &p->blocks, p->freed);
        for (uint32_t left = p->held - p->freed; left > 0; left--) {
            const struct run_entry *e = run_next(c, &it);
            const struct block *b = &c->blocks[e->block];
            if (b->gen != e->gen || !(b->flags & BLOCK_F_LINKED))
                continue;
            count[2 * e->block]++;
            count[2 * e->block + 1] += p->in_memory;
        }
    }
    for (uint32_t no = 0; no < c->blocks_high; no++) {
        const struct block *b = &c->blocks[no];
        MUST(b->pins == count[2 * no] && b->host_pins == count[2 * no + 1]);
        MUST(b->pins == 0 || b->state == BLOCK_PRESENT);
        MUST(b->host_pins == 0 || !block_is_clean(b));
        blocks += b->pins > 0;
    }
    MUST(pins == c->m.pins && blocks == c->m.pinned_blocks);
    free(count);
}
