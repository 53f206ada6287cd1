/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of host memory (chunks) in which something cannot be evicted now. An acquire, pin, store
 * or load asks here, after it has asked in bytes (unevictable.c), whether its principal may keep
 * one more region.
 *
 * A region passes to another principal only when it is empty, so one slot that stays keeps all of
 * it from the others. So what is promised to principals and owners is counted in regions beside
 * bytes. Where no more regions may be kept, a block is moved into one that its principal keeps
 * already, before it is leased, pinned, reserved or loaded. A request is refused only for blocks
 * that cannot be moved. A region counts for the namespace whose slot was the first that stayed
 * there.
 */
#include <stdlib.h>

#include "block.h"
#include "regions.h"
#include "sys.h"

/* Bytes that may be moved between regions in one turn, with those that make way, and at least one
 * slot: some .5 ms. */
#define SHIFT_TURN (UINT64_C(2) << 20)
/* Bytes, moved or making way, that take as long as one unit of work. */
#define SHIFT_OF_WORK 512u

/* One region. It belongs to one principal until it is empty. */
struct region {
    uint32_t slots; /* slots that cannot be evicted now */
    uint32_t ns;    /* while there are such slots: the place in core->ns of the namespace for which
                     * it counts */
};

struct regions {
    uint64_t bytes;      /* bytes of each region */
    uint64_t shift_left; /* bytes that may yet be moved in this turn */
    struct share share;  /* regions in which something stays, by principal */
    struct region region[];
};

static struct region *region_of(struct core *c, struct tier_loc loc)
{
    return &c->mod.regions
                ->region[c->cfg.tier[CORE_HOST]->memory->region(c->cfg.tier[CORE_HOST], loc)];
}

static bool region_stays(void *ctx, uint32_t no)
{
    const struct core *c = ctx;
    return c->mod.regions->region[no].slots > 0;
}

static int regions_create(struct core *c)
{
    struct tier *host = c->cfg.tier[CORE_HOST];
    struct tier_stats st;
    host->ops->stats(host, &st);
    if (!host->memory->region || c->cfg.principals_max < 2)
        return 0; /* no region can pass to another principal */
    struct regions *r = sys_calloc(1, sizeof *r + st.regions * sizeof r->region[0]);
    if (!r)
        return -ENOMEM;
    r->bytes = st.region_bytes;
    c->mod.regions = r;
    regions_turn(c);
    host->events.ctx = c;
    host->events.stays = region_stays;
    return core__fair_share(c, &r->share, st.regions, c->cfg.principals_max);
}

static void regions_destroy(struct core *c)
{
    if (!c->mod.regions)
        return;
    c->cfg.tier[CORE_HOST]->events = (struct tier_events){0};
    share_destroy(&c->mod.regions->share);
    free(c->mod.regions);
}

uint64_t regions_region_bytes(const struct core *c)
{
    return c->mod.regions->bytes;
}

const struct share *regions_share(const struct core *c)
{
    return &c->mod.regions->share;
}

const struct core_module regions_module = {.create = regions_create, .destroy = regions_destroy};

void regions_turn(struct core *c)
{
    if (c->mod.regions)
        c->mod.regions->shift_left = SHIFT_TURN;
}

/* ---- slots that cannot be evicted ---- */

static void region_keep(struct core *c, struct core_ns *ns, struct tier_loc loc)
{
    struct region *r = region_of(c, loc);
    if (r->slots++ > 0)
        return;
    r->ns = (uint32_t)(ns - c->ns);
    ns->regions++;
    share_charge(&c->mod.regions->share, principal_index(c, ns->principal), 1);
    c->m.unevictable_regions++;
}

static void region_leave(struct core *c, struct tier_loc loc)
{
    struct region *r = region_of(c, loc);
    MUST(r->slots > 0);
    if (--r->slots > 0)
        return;
    struct core_ns *ns = &c->ns[r->ns];
    ns->regions--;
    share_give(&c->mod.regions->share, principal_index(c, ns->principal), 1);
    c->m.unevictable_regions--;
}

static void slot_count(struct core *c, const struct block *b, struct tier_loc loc, bool stays)
{
    if (loc.id && stays)
        region_keep(c, block_ns(c, b), loc);
    else if (loc.id)
        region_leave(c, loc);
}

void regions_count(struct core *c, const struct block *b, bool stays)
{
    if (!(b->flags & BLOCK_F_PARTS)) {
        slot_count(c, b, (struct tier_loc){b->where}, stays);
        return;
    }
    for (uint32_t i = b->where; i != CORE_NONE;) {
        const struct part *p = pool_at(c->parts, i);
        slot_count(c, b, p->loc, stays);
        i = p->next;
    }
}

void regions_ns_new(struct core *c, struct core_ns *ns)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    if (!c->mod.regions)
        return;
    ns->region_fill = c->mod.regions->bytes;
    for (uint32_t g = 0; g < ns->spec.ngroups; g++) {
        const uint32_t slot = ns->slot_bytes[g]; /* 0: restored, and none fits in memory */
        if (slot == 0)
            continue;
        const uint64_t slots =
            MIN(c->mod.regions->bytes, host->memory->region_fill(host, slot)) / slot;
        ns->region_fill = MIN(ns->region_fill, slots * ns->spec.group[g].block_bytes);
    }
    if (c->m.quotas > 0)
        quota_guarantee(c);
}

void regions_ns_gone(struct core *c, const struct core_ns *ns)
{
    const uint32_t no = (uint32_t)(ns - c->ns);
    for (uint32_t i = 0; ns->regions > 0 && i < c->mod.regions->share.total; i++) {
        struct region *r = &c->mod.regions->region[i];
        if (r->slots == 0 || r->ns != no)
            continue;
        uint32_t k = 0; /* a namespace of the same principal, as all are that have slots there */
        while (k == no || !c->ns[k].id || c->ns[k].principal != ns->principal ||
               c->ns[k].records == 0)
            MUST(++k < c->cfg.namespaces_max);
        r->ns = k;
        c->ns[k].regions++;
    }
}

/* ---- shares in regions ---- */

static bool has_share(const struct core *c, const struct core_ns *ns)
{
    return ns->account != 0 && retain_quota_of(c->retain, ns->account)->share[0] > 0;
}

static bool same_sizes(const struct core_ns *a, const struct core_ns *b)
{
    for (uint32_t g = 0; g < a->spec.ngroups; g++)
        for (uint32_t h = 0; h < b->spec.ngroups; h++)
            if (a->slot_bytes[g] != b->slot_bytes[h])
                return false;
    return true;
}

static void fill_of(const struct core *c, const struct core_ns *ns, struct core_share_risk *ret)
{
    const struct tier *host = c->cfg.tier[CORE_HOST];
    struct tier_stats st;
    host->ops->stats(host, &st);
    ret->fill = ret->limit = st.limit_bytes;
    for (uint32_t g = 0; host->memory->region_fill && g < ns->spec.ngroups; g++) {
        const uint64_t fill = st.regions * host->memory->region_fill(host, ns->slot_bytes[g]);
        ret->large = fill < ret->fill ? ns->spec.group[g].block_bytes : ret->large;
        ret->fill = MIN(ret->fill, fill);
    }
}

void core_share_risk(const struct core *c, const struct core_ns *ns, struct core_share_risk *ret)
{
    *ret = (struct core_share_risk){.chunks_needed = quota_guaranteed_regions(c),
                                    .chunks = c->mod.regions ? c->mod.regions->share.total : 0};
    fill_of(c, ns, ret);
    for (uint32_t i = 0; c->m.quotas > 0 && i < c->cfg.namespaces_max; i++) {
        const struct core_ns *o = &c->ns[i];
        if (o->id && o->principal == ns->principal && o->account != ns->account &&
            (has_share(c, o) || has_share(c, ns)) && !same_sizes(o, ns))
            ret->mixed = true;
    }
}

/* ---- admission ---- */

/* Whether ns may keep one more region. */
static int region_left(const struct core *c, const struct core_ns *ns)
{
    const struct share *s = &c->mod.regions->share;
    const uint64_t guaranteed = quota_guaranteed_regions(c);
    const bool full = share_left(s, principal_index(c, ns->principal)) == 0;
    if (!full && (guaranteed == 0 || s->used + guaranteed < s->total))
        return 0;
    uint64_t own = 0;
    const bool fits = guaranteed > 0 && quota_regions_left(c, ns, &own) > 0;
    if (own > 0 || (fits && !full))
        return 0;
    return full ? KVC_E_FULL : KVC_E_QUOTA;
}

/* The block for which others make way. */
struct shift {
    struct core *core;
    const struct block *block;
};

static bool may_move(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    const struct shift *s = ctx;
    struct core *c = s->core;
    const struct block *b = &c->blocks[block_no];
    (void)loc;
    return b != s->block && b->state == BLOCK_PRESENT && copy_there(b, CORE_HOST) &&
           !block_in_use(c, b) && unevictable_of(c, b) == 0;
}

static void has_moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    const struct shift *s = ctx;
    struct core *c = s->core;
    struct block *b = &c->blocks[block_no];
    if (!(b->flags & BLOCK_F_PARTS)) {
        MUST(b->where == from.id);
        b->where = to.id;
        return;
    }
    for (uint32_t i = b->where; i != CORE_NONE;) {
        struct part *p = pool_at(c->parts, i);
        if (p->loc.id == from.id) {
            p->loc = to;
            return;
        }
        i = p->next;
    }
    MUST(false); /* b has a slot there */
}

/* Moves a slot of b from a region in which nothing stays into one in which something does. */
static int slot_shift(struct core *c, const struct block *b, struct tier_loc *loc)
{
    struct shift s = {c, b};
    const struct tier_shift shift = {.ctx = &s, .may_move = may_move, .moved = has_moved};
    const uint32_t bytes = block_ns(c, b)->slot_bytes[b->group];
    struct tier *host = c->cfg.tier[CORE_HOST];
    if (c->mod.regions->shift_left == 0)
        return KVC_E_BUSY;
    const int err = host->memory->shift(host, *loc, &shift, loc);
    if (err)
        return err;
    c->mod.regions->shift_left -= MIN(c->mod.regions->shift_left, bytes);
    c->work.done += bytes / SHIFT_OF_WORK;
    c->m.blocks_shifted++;
    return 0;
}

/* Whether *loc, a slot of b, may stay (0). If not, and can_move is true, moves it to a region where
 * it may. */
static int slot_admit(struct core *c, const struct block *b, bool can_move, struct tier_loc *loc)
{
    if (region_of(c, *loc)->slots > 0)
        return 0;
    const int why = region_left(c, block_ns(c, b));
    const int err = why && can_move ? slot_shift(c, b, loc) : why;
    return err == KVC_E_NO_ROOM ? why : err;
}

/* Admits each slot of b, and `more` (may be NULL). Counts each admitted slot while it checks the
 * others, and takes the counts back at the end. */
static int parts_admit(struct core *c, const struct block *b, struct tier_loc *more)
{
    const bool can_move = b->copies == 0 && b->moving == 0;
    int err = 0;
    uint32_t end = b->where;
    while (end != CORE_NONE && !err) {
        struct part *p = pool_at(c->parts, end);
        err = p->loc.id ? slot_admit(c, b, can_move, &p->loc) : 0;
        if (err)
            break;
        slot_count(c, b, p->loc, true);
        end = p->next;
    }
    if (more && !err)
        err = slot_admit(c, b, true, more);
    for (uint32_t i = b->where; i != end;) {
        const struct part *p = pool_at(c->parts, i);
        slot_count(c, b, p->loc, false);
        i = p->next;
    }
    return err;
}

int regions_admit(struct core *c, struct block *b)
{
    if (b->flags & BLOCK_F_PARTS)
        return parts_admit(c, b, NULL);
    struct tier_loc loc = {b->where};
    const int err = slot_admit(c, b, b->copies == 0 && b->moving == 0, &loc);
    b->where = loc.id;
    return err;
}

int regions_admit_new(struct core *c, const struct block *b, struct tier_loc *loc)
{
    const bool counts = b->host_copy == COPY_FILLING || unevictable_of(c, b) > 0;
    if (!c->mod.regions)
        return 0;
    return counts ? slot_admit(c, b, true, loc) : parts_admit(c, b, loc);
}

/* ---- invariants ---- */

void regions_check(struct core *c)
{
    uint64_t all = 0;
    uint32_t *of = sys_calloc(c->cfg.namespaces_max, sizeof *of);
    MUST(of != NULL);
    for (uint32_t i = 0; c->mod.regions && i < c->mod.regions->share.total; i++) {
        const struct region *r = &c->mod.regions->region[i];
        all += r->slots > 0;
        of[r->ns] += r->slots > 0;
    }
    MUST(all == c->m.unevictable_regions && (!c->mod.regions || all == c->mod.regions->share.used));
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        MUST(of[i] == c->ns[i].regions);
    free(of);
}
