/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of a name's blocks it alone keeps: what is evicted when the name is forgotten, and what
 * more it needs within quotas when it moves to another chain.
 */
#include "keep.h"
#include "lapse.h"
#include "names_table.h"

/* Marks of blocks in each_own(): TIP: looked at as the block of a ref; BELOW: reached from a child;
 * OWN: no other name reaches it. NEW: in the prefix that the name moves to (mark_new()). */
enum mark { MARK_TIP = 1, MARK_BELOW = 2, MARK_OWN = 4, MARK_WALKED = 7, MARK_NEW = 8, MARKS = 15 };

/* ---- blocks that no other name reaches ---- */

/* How many refs nm has on the block; UINT32_MAX: another name has one too. */
static uint32_t refs_of(const struct core *c, const struct core_name *nm, uint32_t block)
{
    const struct names *n = c->names;
    uint32_t mine = 0;
    for (uint32_t ref = c->named[block].refs; ref; ref = n->ref[ref - 1].next_of_block + 1) {
        if (n->ref[ref - 1].name != name_no(c, nm))
            return UINT32_MAX;
        mine++;
    }
    return mine;
}

/* Whether the block is nm's alone. below: nm was followed here from a child, which no other name
 * reaches either. */
static bool is_own(const struct core *c, const struct core_name *nm, uint32_t block, bool below)
{
    const struct block_name *of = &c->named[block];
    if (of->n > 1 + (uint32_t)below && of->refs == 0)
        return false;
    const uint32_t mine = refs_of(c, nm, block);
    return mine != UINT32_MAX && of->n == mine + below;
}

/* Whether b is in pins beside the name's own, which has a block once, however often its refs do. */
static bool is_pinned_by_others(const struct core_name *nm, const struct block *b)
{
    return b->pins > (nm->pin ? 1 : 0);
}

typedef bool(own_fn)(void *ctx, struct core *c, const struct core_name *nm, struct block *b,
                     bool below);

/* From each tip up, as far as no other name reaches the blocks and fn agrees. A name may reach a
 * block by many refs and from many children: each way it is looked at once. */
static void each_own(struct core *c, const struct core_name *nm, own_fn *fn, void *ctx)
{
    struct names *n = c->names;
    for (uint32_t ref = nm->refs; ref != CORE_NONE; ref = n->ref[ref].next_of_name) {
        bool below = false;
        for (uint32_t no = n->ref[ref].block; no != CORE_NONE; no = c->blocks[no].parent) {
            const unsigned looked = below ? MARK_BELOW : MARK_TIP;
            if (c->named[no].marks & (looked | MARK_OWN))
                break;
            c->named[no].marks = (c->named[no].marks | looked) & MARKS;
            if (!is_own(c, nm, no, below) || !fn(ctx, c, nm, &c->blocks[no], below))
                break;
            c->named[no].marks = (c->named[no].marks | MARK_OWN) & MARKS;
            below = true;
        }
    }
    for (uint32_t ref = nm->refs; ref != CORE_NONE; ref = n->ref[ref].next_of_name)
        for (uint32_t no = n->ref[ref].block; no != CORE_NONE && c->named[no].marks & MARK_WALKED;
             no = c->blocks[no].parent)
            c->named[no].marks &= MARK_NEW;
}

/* ---- last blocks of turns that are over ---- */

void names_passed(struct core *c, struct core_name *old, const struct find *f,
                  struct passed_tips *ret)
{
    const struct names *n = c->names;
    ret->n = 0;
    for (uint32_t no = old->refs, next; no != CORE_NONE; no = next) {
        const struct name_ref *r = &n->ref[no];
        const struct block *b = &c->blocks[r->block];
        uint32_t first, end;
        next = r->next_of_name;
        if (block_ns(c, b) != f->seq->ns || b->tokens == block_group(c, b)->block_tokens)
            continue;
        find_needs(f, r->group, f->tokens, &first, &end);
        if (r->place < first || r->place >= end || ret->n == KVC_GROUPS_MAX)
            continue;
        const struct block *now = &c->blocks[c->lookup.found[f->at[r->group] + r->place]];
        if (now->parent != b->parent || now->tokens <= b->tokens)
            continue;
        ret->e[ret->n++] = (struct run_entry){r->block, b->gen};
        (void)name_climb(c, old, no, false);
    }
}

static bool is_free(struct core *c, const struct block *b)
{
    return b->state == BLOCK_PRESENT && !block_named(c, b) && !block_pinned(b) && !block_held(c, b);
}

/* Remembers the passed block if it is the first of its chain: the name's blocks do not lead to it
 * then, because they are in another chain. */
static void remember_first(const struct core *c, struct core_name *nm, struct run_entry e)
{
    if (c->blocks[e.block].parent != CORE_NONE)
        return;
    memmove(&nm->ends[1], &nm->ends[0], sizeof nm->ends - sizeof nm->ends[0]);
    nm->ends[0] = e;
}

bool names_let_passed_go(struct core *c, struct core_name *nm, const struct passed_tips *passed)
{
    bool went = false;
    for (uint32_t i = 0; i < passed->n; i++) {
        struct block *b = &c->blocks[passed->e[i].block];
        if (b->gen != passed->e[i].gen || block_named(c, b))
            continue;
        if (is_free(c, b) && !block_promised(b) && !block_lapsed(c, b) && !b->promising) {
            block_kill(c, b, KVC_MISS_EVICTED);
            went = true;
        } else if (b->state == BLOCK_PRESENT) {
            wish_add(c, b, &(struct core_wish){.level = 0, .duration_ms = RETAIN_FOR_EVER}, true);
            if (nm)
                remember_first(c, nm, passed->e[i]);
        }
    }
    return went;
}

/* Whether a name has passed b, and b could not be removed then: its level was set to 0. */
static bool is_passed(const struct core *c, const struct block *b)
{
    return retain_is_in(c->retain, block_no(c, b)) && retain_base(c->retain, block_no(c, b)) == 0;
}

/* Whether b was found at start, where the levels that names gave are lost, and not used since. */
static bool is_unused(const struct core *c, const struct block *b)
{
    const uint32_t found = (uint32_t)(c->recovered_ms >> CORE_AGE_SHIFT);
    return c->m.blocks_recovered > 0 && (int32_t)(b->used - found) <= 0;
}

/* Whether b is the last block of a turn that has ended. beside: tokens of the name's block that has
 * the same parent; 0: none. */
static bool is_end(struct core *c, const struct block *b, uint32_t beside)
{
    return b->tokens < block_group(c, b)->block_tokens && b->state == BLOCK_PRESENT &&
           !block_named(c, b) && (is_passed(c, b) || (b->tokens < beside && is_unused(c, b)));
}

static bool may_go_with_parent(struct core *c, const struct block *b, uint32_t beside)
{
    return is_end(c, b, beside) && is_free(c, b);
}

/* ---- counts for the reply ---- */

static void count_gone(struct core *c, const struct block *b, struct core_evicted *x)
{
    x->blocks++;
    x->bytes += block_bytes_present(c, b);
    room_places(c, b, &x->in);
}

/* Counts a block that stays though no other name reaches it: as pinned, else as in use, else in
 * *why. */
static void count_kept(struct core *c, const struct block *b, bool pinned, uint64_t *why,
                       struct core_evicted *x)
{
    why = pinned ? &x->kept_pinned : block_held(c, b) ? &x->kept_used : why;
    ++*why;
    x->kept++;
}

/* Counts the last blocks of turns that build on b as kept. */
static void count_ends_beside(struct core *c, const struct core_name *nm, const struct block *b,
                              uint32_t beside, struct core_evicted *x)
{
    for (uint32_t no = b->child; no != CORE_NONE; no = c->blocks[no].next)
        if (is_end(c, &c->blocks[no], beside))
            count_kept(c, &c->blocks[no], is_pinned_by_others(nm, &c->blocks[no]), &x->kept_passed,
                       x);
}

static void count_kept_named(struct core_evicted *x)
{
    x->kept_named++;
    x->kept++;
}

/* The i-th first block of a chain that nm remembers to have passed. NULL: none, or the block is
 * not the last one of an ended turn any more. */
static struct block *first_end(struct core *c, const struct core_name *nm, uint32_t i)
{
    struct block *b = &c->blocks[nm->ends[i].block];
    return nm->ends[i].gen != 0 && b->gen == nm->ends[i].gen && is_end(c, b, 0) ? b : NULL;
}

/* ---- dry run: what an eviction would remove ---- */

/* Whether this ref counts its block. A key may be in a window twice, so a block without a parent
 * may have several refs of nm: the first of them counts it. */
static bool counts_it(struct core *c, const struct core_name *nm, uint32_t ref)
{
    const struct names *n = c->names;
    const uint32_t block = n->ref[ref].block;
    uint32_t first = c->named[block].refs - 1;
    if (c->blocks[block].parent != CORE_NONE)
        return true;
    for (; n->ref[first].name != name_no(c, nm); first = n->ref[first].next_of_block)
        c->work.done += WORK_LOOK;
    return first == ref;
}

/* The walk reaches a block from the one behind it, unless it is the name's last one. With a block
 * that would be evicted, the last blocks of turns that build on it would be, too. */
static void would_look(struct core *c, const struct core_name *nm, struct block *b,
                       struct core_would *x)
{
    const bool pinned = is_pinned_by_others(nm, b);
    const uint32_t beside = x->below ? x->tokens : 0;
    uint32_t passed = 0;
    c->work.done += WORK_LOOK + b->children;
    x->own = x->own && is_own(c, nm, block_no(c, b), x->below);
    for (uint32_t no = b->child; x->own && no != CORE_NONE; no = c->blocks[no].next)
        passed += may_go_with_parent(c, &c->blocks[no], beside);
    x->goes = x->own && x->goes && b->state == BLOCK_PRESENT && !pinned && !block_held(c, b) &&
              b->children == passed + x->below;
    if (x->goes)
        count_gone(c, b, &x->evicted);
    else if (x->own)
        count_kept(c, b, pinned, &x->evicted.kept_below, &x->evicted);
    else
        count_kept_named(&x->evicted);
    if (!x->goes)
        count_ends_beside(c, nm, b, beside, &x->evicted);
    for (uint32_t no = b->child; x->goes && no != CORE_NONE; no = c->blocks[no].next)
        if (may_go_with_parent(c, &c->blocks[no], beside))
            count_gone(c, &c->blocks[no], &x->evicted);
    x->below = true;
    x->tokens = b->tokens;
}

/* Continues at the next ref of the name, and its block. */
static void would_go_to(struct core *c, const struct core_name *nm, uint32_t ref,
                        struct core_would *x)
{
    x->ref = ref;
    x->below = false;
    x->own = x->goes = true;
    x->tip = block_seen(c, ref == CORE_NONE ? NULL : &c->blocks[c->names->ref[ref].block]);
    x->at = x->tip;
    if (ref != CORE_NONE && !counts_it(c, nm, ref))
        x->at = block_seen(c, NULL);
}

static void would_begin(struct core *c, const struct core_name *nm, struct core_would *x)
{
    *x = (struct core_would){.content = nm->content};
    for (uint32_t i = 0; i < NAMES_ENDS; i++) {
        const struct block *b = first_end(c, nm, i);
        if (b && is_free(c, b))
            count_gone(c, b, &x->evicted);
        else if (b)
            count_kept(c, b, is_pinned_by_others(nm, b), &x->evicted.kept_passed, &x->evicted);
    }
    would_go_to(c, nm, nm->refs, x);
}

/* Whether neither the name nor the block where the last slice stopped has changed. */
static bool would_stands(const struct core *c, const struct core_name *nm,
                         const struct core_would *x)
{
    if (x->content != nm->content)
        return false;
    return x->ref == CORE_NONE ||
           (seen_block(c, x->tip) && c->names->ref[x->ref].block == x->tip.no &&
            (x->at.gen == 0 || seen_block(c, x->at)));
}

bool core_name_would_step(struct core *c, const struct core_name *nm, struct core_would *x)
{
    work_slice(c);
    if (!would_stands(c, nm, x))
        would_begin(c, nm, x);
    while (x->ref != CORE_NONE) {
        if (slice_over(c))
            return true;
        struct block *b = seen_block(c, x->at);
        c->work.done += WORK_LOOK;
        if (b)
            would_look(c, nm, b, x);
        if (b && b->parent != CORE_NONE)
            x->at = block_seen(c, &c->blocks[b->parent]);
        else
            would_go_to(c, nm, c->names->ref[x->ref].next_of_name, x);
    }
    return false;
}

/* ---- eviction ---- */

static void evict_block(struct core *c, struct block *b)
{
    c->m.blocks_evicted_admin++;
    block_kill(c, b, KVC_MISS_EVICTED);
}

/* Evicts b with its children that are last blocks of ended turns, where the name's block had
 * `beside` tokens. True: b is evicted. */
static bool evict_with_passed(struct core *c, struct block *b, uint32_t beside,
                              struct core_evicted *evicted)
{
    if (!is_free(c, b))
        return false;
    for (uint32_t no = b->child; no != CORE_NONE; no = c->blocks[no].next)
        if (!may_go_with_parent(c, &c->blocks[no], beside))
            return false;
    while (b->child != CORE_NONE) {
        count_gone(c, &c->blocks[b->child], evicted);
        evict_block(c, &c->blocks[b->child]);
    }
    count_gone(c, b, evicted);
    evict_block(c, b);
    return true;
}

static void evict_first_ends(struct core *c, const struct core_name *nm,
                             struct core_evicted *evicted)
{
    for (uint32_t i = 0; i < NAMES_ENDS; i++) {
        struct block *b = first_end(c, nm, i);
        if (b && !evict_with_passed(c, b, 0, evicted))
            count_kept(c, b, block_pinned(b), &evicted->kept_passed, evicted);
    }
}

/* Whether nm has another ref on b, a block without a parent: a key may be in a window twice. */
static bool has_it_again(const struct core *c, const struct core_name *nm, const struct block *b)
{
    const struct names *n = c->names;
    uint32_t ref = b->parent == CORE_NONE ? c->named[block_no(c, b)].refs : 0;
    while (ref && n->ref[ref - 1].name != name_no(c, nm))
        ref = n->ref[ref - 1].next_of_block + 1;
    return ref != 0;
}

/* Releases one block, the last first. It is evicted at once, unless something needs it: then the
 * blocks before it stay too, because it builds on them. */
void name_let_go_block(struct core *c, struct core_name *nm)
{
    struct core_evicted none, *x = nm->forgetting ? &nm->forgetting->evicted : &none;
    struct block *b = &c->blocks[name_climb(c, nm, nm->refs, nm->evicts)];
    const uint32_t beside = nm->beside;
    if (!nm->evicts || has_it_again(c, nm, b))
        return;
    nm->beside = b->parent == CORE_NONE ? 0 : b->tokens;
    if (evict_with_passed(c, b, beside, x))
        return;
    count_ends_beside(c, nm, b, beside, x);
    if (!block_named(c, b)) {
        count_kept(c, b, block_pinned(b), &x->kept_below, x);
        return;
    }
    count_kept_named(x);
}

int core_name_forget_begin(struct core *c, struct core_name *nm, bool evict,
                           struct core_forgetting *x, struct core_name_waiter *waiter)
{
    *x = (struct core_forgetting){.name = nm};
    if (evict)
        evict_first_ends(c, nm, &x->evicted);
    nm->evicts = evict;
    nm->forgetting = x;
    name_go(c, nm);
    if (!waiter)
        return 0;
    /* A journal that has failed still has the name: the next run may read it. */
    if (c->names->error)
        return KVC_E_TIER;
    return nm->gone ? 0 : name_await(c, nm, waiter, false);
}

bool core_name_forget_step(struct core *c, struct core_forgetting *x)
{
    return x->name && name_let_go(c, x->name);
}

void core_name_forget_cancel(struct core_forgetting *x)
{
    if (x->name)
        x->name->forgetting = NULL;
    x->name = NULL;
}

int core_name_forget(struct core *c, struct core_name *nm, struct core_evicted *evict,
                     struct core_name_waiter *waiter)
{
    struct core_forgetting x;
    const int rc = core_name_forget_begin(c, nm, evict != NULL, &x, waiter);
    while (core_name_forget_step(c, &x))
        continue;
    if (evict)
        *evict = x.evicted;
    return rc;
}

/* ---- room for the blocks of a put ---- */

struct release {
    const struct core_ns *ns; /* the namespace that the name moves to: others have other quotas */
    unsigned tier;
    uint64_t bytes;
};

/* Adds b's bytes to x if they become unbound when the name moves: only this name binds b, and its
 * new prefix does not need b. Always true: the walk goes on. */
static bool would_release(void *ctx, struct core *c, const struct core_name *nm, struct block *b,
                          bool below)
{
    struct release *x = ctx;
    (void)below;
    if (block_ns(c, b) != x->ns || c->named[block_no(c, b)].marks & MARK_NEW ||
        is_pinned_by_others(nm, b) || (x->tier == 1 && (block_promised(b) || b->promising)))
        return true;
    x->bytes += block_is_bound(b, x->tier) ? block_bytes(c, b) : 0;
    return true;
}

/* on: marks each block of f's prefix with MARK_NEW, and returns the bytes of those not yet bound to
 * the tier. Else takes the marks away, and returns 0. */
static uint64_t mark_new(struct core *c, const struct find *f, unsigned tier, bool on)
{
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_needs(f, g, f->tokens, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            const uint32_t no = c->lookup.found[f->at[g] + i];
            const struct block *b = &c->blocks[no];
            struct block_name *of = &c->named[no];
            if (on && !(of->marks & MARK_NEW)) /* a key may come twice */
                bytes += block_is_bound(b, tier) ? 0 : block_bytes(c, b);
            of->marks = (on ? of->marks | MARK_NEW : of->marks & MARK_WALKED) & MARKS;
        }
    }
    return bytes;
}

int name_room_for(struct core *c, struct core_name *nm, const struct find *f, bool pinned)
{
    struct release release = {.ns = f->seq->ns, .tier = core_stores(c) ? 1 : 0};
    if (!core_stores(c) && !pinned)
        return 0;
    const uint64_t fresh = mark_new(c, f, release.tier, true);
    int err = quota_bind(c, f->seq->ns, release.tier, fresh);
    if (err && nm) {
        each_own(c, nm, would_release, &release);
        err = quota_bind(c, f->seq->ns, release.tier, fresh - MIN(fresh, release.bytes));
    }
    (void)mark_new(c, f, release.tier, false);
    return err;
}
