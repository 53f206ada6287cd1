/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts which blocks names reach, so that these are protected. A block counts the names that hold
 * it themselves and its children that are reached. So a name that grows costs no more than its new
 * blocks, and one that moves off lets go of no more than what it alone reached.
 */
#include "keep.h"
#include "lapse.h"
#include "names_table.h"
#include "wants.h"

/* Children of a block that are searched for the end of a conversation. */
#define GOES_ON_LOOKS 64u

/* ---- one block ---- */

/* Raises b's base level in every tier; set: sets it, even to a lower one. */
static void name_want_level(struct core *c, struct block *b, uint32_t level, bool set)
{
    const struct core_wish wish = {.level = level, .duration_ms = RETAIN_FOR_EVER};
    wish_add(c, b, &wish, set);
}

/* The first name reaches b: protects it. */
static void name_protect(struct core *c, struct block *b)
{
    const uint64_t bytes = block_bytes(c, b);
    block_ns(c, b)->named_bytes += bytes;
    c->m.named_blocks++;
    c->m.named_bytes += bytes;
    room_bind(c, b);
}

/* No name reaches b any more. dying: b is about to be removed. A put that did not become a name has
 * raised no level, and leaves b as it was. */
static void name_release(struct core *c, struct block *b, bool dying)
{
    struct block_name *of = &c->named[block_no(c, b)];
    const uint64_t bytes = block_bytes(c, b);
    const bool raised = of->level > 0;
    const bool lapsed = block_lapsed(c, b);
    of->level = 0;
    of->safe = 0;
    lapse_changed(c, b, lapsed);
    block_ns(c, b)->named_bytes -= bytes;
    c->m.named_blocks--;
    c->m.named_bytes -= bytes;
    room_bind(c, b);
    if (dying)
        return;
    if (raised)
        name_want_level(c, b, RETAIN_DEFAULT, true);
    if (raised || !found_keeps(c))
        block_unwanted(c, b);
    block_unheld(c, b);
}

/* Counts that a name reaches the block, and blocks before it up to one that was reached already. */
static void name_reach(struct core *c, uint32_t no)
{
    for (; no != CORE_NONE && c->named[no].n++ == 0; no = c->blocks[no].parent)
        name_protect(c, &c->blocks[no]);
}

void name_raise(struct core *c, uint32_t no, uint32_t priority)
{
    for (; no != CORE_NONE && c->named[no].level < priority; no = c->blocks[no].parent) {
        name_want_level(c, &c->blocks[no], priority, false);
        c->named[no].level = priority & 0x7fu;
    }
}

static void name_unreach(struct core *c, uint32_t no)
{
    while (no != CORE_NONE) {
        struct block_name *of = &c->named[no];
        const uint32_t parent = c->blocks[no].parent;
        MUST(of->n > 0);
        if (--of->n > 0)
            return;
        name_release(c, &c->blocks[no], false);
        no = parent;
    }
}

/* ---- refs ---- */

uint32_t names_refs_left(const struct names *n)
{
    return n->refs_max - n->refs_used;
}

static void ref_link(struct core *c, uint32_t no, uint32_t block)
{
    struct names *n = c->names;
    struct name_ref *r = &n->ref[no];
    r->block = block;
    r->prev_of_block = CORE_NONE;
    r->next_of_block = c->named[block].refs - 1;
    if (r->next_of_block != CORE_NONE)
        n->ref[r->next_of_block].prev_of_block = no;
    c->named[block].refs = no + 1;
}

void name_hold(struct core *c, struct core_name *nm, uint32_t group, uint32_t place, uint32_t block)
{
    struct names *n = c->names;
    uint32_t no = n->refs_free;
    if (no != CORE_NONE)
        n->refs_free = n->ref[no].next_of_name;
    else
        no = n->refs_high++;
    MUST(no < n->refs_max);
    n->refs_used++;
    n->ref[no] = (struct name_ref){.block = block,
                                   .name = name_no(c, nm),
                                   .group = group,
                                   .place = place,
                                   .next_of_name = nm->refs,
                                   .prev_of_name = CORE_NONE};
    if (nm->refs != CORE_NONE)
        n->ref[nm->refs].prev_of_name = no;
    nm->refs = no;
    ref_link(c, no, block);
    name_reach(c, block);
}

static void ref_unlink(struct core *c, uint32_t no)
{
    struct names *n = c->names;
    const struct name_ref *r = &n->ref[no];
    if (r->next_of_block != CORE_NONE)
        n->ref[r->next_of_block].prev_of_block = r->prev_of_block;
    if (r->prev_of_block != CORE_NONE)
        n->ref[r->prev_of_block].next_of_block = r->next_of_block;
    else
        c->named[r->block].refs = r->next_of_block + 1;
}

static void ref_free(struct names *n, uint32_t no)
{
    n->ref[no].next_of_name = n->refs_free;
    n->refs_free = no;
    n->refs_used--;
}

/* Frees a ref: the name does not hold its block any more. */
static void ref_forget(struct names *n, struct core_name *nm, uint32_t no)
{
    const struct name_ref *r = &n->ref[no];
    if (r->next_of_name != CORE_NONE)
        n->ref[r->next_of_name].prev_of_name = r->prev_of_name;
    if (r->prev_of_name != CORE_NONE)
        n->ref[r->prev_of_name].next_of_name = r->next_of_name;
    else
        nm->refs = r->next_of_name;
    ref_free(n, no);
}

uint32_t name_climb(struct core *c, struct core_name *nm, uint32_t ref, bool all)
{
    struct names *n = c->names;
    const uint32_t no = n->ref[ref].block, parent = c->blocks[no].parent;
    const bool alone = c->named[no].n == 1 && parent != CORE_NONE && c->named[parent].n == 1;
    c->work.done += WORK_LOOK;
    ref_unlink(c, ref);
    if (parent != CORE_NONE && (all || alone)) {
        ref_link(c, ref, parent);
        c->named[parent].n++; /* for which this block still counts, too */
    } else {
        ref_forget(n, nm, ref);
    }
    name_unreach(c, no);
    return no;
}

void name_descend(struct core *c, struct core_name *nm, uint32_t place, uint32_t child)
{
    struct names *n = c->names;
    const uint32_t ref = nm->refs, from = n->ref[ref].block;
    MUST(c->blocks[child].parent == from);
    ref_unlink(c, ref);
    ref_link(c, ref, child);
    n->ref[ref].place = place;
    name_reach(c, child);
    name_unreach(c, from); /* its child counts for it now, so only this block's count changes */
}

static void refs_rename(struct core *c, const struct core_name *nm)
{
    struct names *n = c->names;
    for (uint32_t no = nm->refs; no != CORE_NONE; no = n->ref[no].next_of_name)
        n->ref[no].name = name_no(c, nm);
}

void names_swap_refs(struct core *c, struct core_name *a, struct core_name *b)
{
    const uint32_t refs = a->refs;
    a->refs = b->refs;
    b->refs = refs;
    refs_rename(c, a);
    refs_rename(c, b);
}

/* ---- events and questions of blocks ---- */

void names_hear(struct core *c, struct block *b, const struct block_change *x)
{
    (void)x;
    struct names *n = c->names;
    const uint32_t no = block_no(c, b);
    if (!n)
        return;
    struct block_name *of = &c->named[no];
    if (of->n == 0) {
        *of = (struct block_name){0};
        return;
    }
    for (; of->refs; of->n--) {
        const uint32_t ref = of->refs - 1;
        struct core_name *nm = &n->name[n->ref[ref].name];
        nm->cut = true;
        ref_unlink(c, ref);
        if (b->parent == CORE_NONE) {
            ref_forget(n, nm, ref);
            continue;
        }
        ref_link(c, ref, b->parent);
        c->named[b->parent].n++; /* for which this block still counts, too */
    }
    MUST(of->n == 0); /* the blocks below were removed before */
    name_release(c, &c->blocks[no], true);
    *of = (struct block_name){0};
    name_unreach(c, b->parent);
}

/* Whether a conversation ends here: it is put again when it has continued. */
static bool ends_here(const struct core *c, uint32_t block)
{
    const struct names *n = c->names;
    for (uint32_t no = c->named[block].refs; no != 0; no = n->ref[no - 1].next_of_block + 1)
        if (n->name[n->ref[no - 1].name].kind == KVC_NAME_CONVERSATION &&
            n->name[n->ref[no - 1].name].state == NAME_LIVE)
            return true;
    return false;
}

bool block_goes_on(struct core *c, const struct block *b)
{
    if (c->m.named_blocks == 0)
        return false;
    while (!block_named(c, b)) {
        if (b->parent == CORE_NONE)
            return false;
        b = &c->blocks[b->parent];
    }
    if (ends_here(c, block_no(c, b)))
        return true;
    /* No block follows one that is partly filled: a continuation is beside it. */
    unsigned looks = GOES_ON_LOOKS;
    for (uint32_t no = b->child; no != CORE_NONE && looks > 0; no = c->blocks[no].next, looks--)
        if (c->blocks[no].tokens < block_group(c, b)->block_tokens && ends_here(c, no))
            return true;
    return false;
}

int name_each_block(struct core *c, const struct core_name *nm,
                    int (*fn)(void *ctx, struct block *b), void *ctx)
{
    int rc = 0;
    for (uint32_t no = nm->refs; rc == 0 && no != CORE_NONE; no = c->names->ref[no].next_of_name)
        rc = fn(ctx, &c->blocks[c->names->ref[no].block]);
    return rc;
}

uint32_t name_cached(struct core *c, const struct core_name *nm)
{
    uint64_t tokens = nm->tokens;
    for (uint32_t no = nm->refs; no != CORE_NONE; no = c->names->ref[no].next_of_name) {
        const struct block *b = &c->blocks[c->names->ref[no].block];
        const struct core_group *g = block_group(c, b);
        if (g->rule == KVC_RULE_FULL)
            tokens = MIN(tokens, (uint64_t)b->depth * g->block_tokens + b->tokens);
    }
    if (!nm->cut)
        return (uint32_t)tokens;
    /* Remaining windows and states serve the tokens that the name had, and no others. */
    const struct core_ns *ns = ns_by_print(c, nm->print);
    uint32_t groups = 0;
    for (uint32_t g = 0; ns && g < ns->spec.ngroups; g++) {
        if (ns->spec.group[g].rule != KVC_RULE_FULL)
            return 0;
        for (uint32_t no = nm->refs; no != CORE_NONE; no = c->names->ref[no].next_of_name)
            groups += c->names->ref[no].group == g;
    }
    return ns && groups == ns->spec.ngroups ? (uint32_t)tokens : 0;
}

/* ---- saving ---- */

/* Notes whether any name is being saved, or waits for that: such a name keeps its blocks. */
static void saving_changed(struct core *c)
{
    c->names_saving = c->names->active > 0 || !list_empty(&c->names->saving);
}

static void on_saved(struct core *c, struct promise *p, uint8_t status)
{
    struct core_name *nm = p->name;
    struct tier *disk = c->cfg.tier[CORE_STORAGE];
    nm->active = false;
    c->names->active--;
    nm->saved = status == KVC_ST_OK;
    if (status == KVC_ST_BUSY && disk->storage->room_soon && disk->storage->room_soon(disk) &&
        (!disk->storage->durable_room || disk->storage->durable_room(disk))) {
        c->names->pause_ms = c->now_ms + NAMES_PAUSE_MS;
        list_push_back(&c->names->saving, &nm->save);
        return;
    }
    saving_changed(c);
    if (status == KVC_ST_BUSY)
        status = KVC_ST_FULL;
    if (!nm->saved) {
        c->m.name_save_failures++;
        wheel_add(&c->names->wheel, &nm->retry, c->now_ns + NAMES_RETRY_NS);
    }
    name_wake(c, nm, nm->saved ? 0 : -(1000 + (int)status));
}

void name_save(struct core *c, struct core_name *nm)
{
    nm->saved = false;
    if (!core_stores(c))
        return;
    if (nm->active) {
        nm->promise.await = CORE_NONE; /* the name covers another chain now */
        nm->promise.verdict = KVC_ST_OK;
        promise_look(c);
    } else if (!list_is_linked(&nm->save)) {
        list_push_back(&c->names->saving, &nm->save);
        saving_changed(c);
        (void)names_save_step(c);
    }
}

void name_save_cancel(struct core *c, struct core_name *nm)
{
    wheel_del(&c->names->wheel, &nm->retry);
    list_remove(&nm->save);
    if (nm->active) {
        promise_remove(c, &nm->promise);
        nm->active = false;
        c->names->active--;
    }
    saving_changed(c);
}

void names_room(struct core *c)
{
    if (c->names)
        c->names->pause_ms = 0;
}

bool names_save_step(struct core *c)
{
    struct names *n = c->names;
    if (c->now_ms < n->pause_ms)
        return false;
    for (struct list_node *node; n->active < NAMES_SAVING && (node = list_first(&n->saving));) {
        struct core_name *nm = CONTAINER_OF(node, struct core_name, save);
        list_remove(node);
        nm->promise = (struct promise){.name = nm, .done = on_saved};
        nm->active = true;
        n->active++;
        promise_add(c, &nm->promise);
    }
    return !list_empty(&n->saving);
}

/* ---- the rules ---- */

static void check_block(struct core *c, uint32_t no, const uint32_t *held, uint64_t *named)
{
    const struct block *b = &c->blocks[no];
    const struct block_name *of = &c->named[no];
    const bool there = b->state == BLOCK_PRESENT || b->state == BLOCK_PENDING;
    uint32_t want = held[no], listed = 0;
    for (uint32_t k = there ? b->child : CORE_NONE; k != CORE_NONE; k = c->blocks[k].next)
        want += c->named[k].n > 0;
    for (uint32_t ref = of->refs; ref; ref = c->names->ref[ref - 1].next_of_block + 1)
        listed++;
    MUST(of->n == want && listed == held[no]);
    MUST(of->n == 0 || (there && b->flags & BLOCK_F_LINKED));
    MUST(!of->safe || of->n > 0);
    MUST(!of->safe || b->parent == CORE_NONE || c->named[b->parent].safe);
    MUST(of->level == 0 ||
         (of->n > 0 && (b->parent == CORE_NONE || of->level <= c->named[b->parent].level)));
    *named += of->n > 0;
}

void names_check(struct core *c)
{
    struct names *n = c->names;
    if (!n)
        return;
    const uint64_t bytes = (uint64_t)c->cfg.blocks_max * sizeof(uint32_t);
    uint32_t *held = core__pages(bytes), refs = 0, live = 0, active = 0, spares = 0;
    uint64_t named = 0, sum = 0;
    MUST(held != NULL);
    for (uint32_t i = 0; i < n->high; i++) {
        const struct core_name *nm = &n->name[i];
        const bool holds = nm->state == NAME_LIVE || nm->state == NAME_COMING;
        live += nm->state == NAME_LIVE;
        spares += nm->state != NAME_FREE && nm->spare;
        active += nm->active;
        MUST(holds || nm->refs == CORE_NONE || list_is_linked(&nm->going));
        MUST(!list_is_linked(&nm->going) || nm->state == NAME_GOING);
        for (uint32_t no = nm->refs; no != CORE_NONE; no = n->ref[no].next_of_name) {
            MUST(n->ref[no].name == i && c->blocks[n->ref[no].block].state == BLOCK_PRESENT);
            held[n->ref[no].block]++;
            refs++;
        }
    }
    for (uint32_t no = 0; no < c->blocks_high; no++)
        check_block(c, no, held, &named);
    for (uint32_t i = 0; i < c->cfg.namespaces_max; i++)
        sum += c->ns[i].id ? c->ns[i].named_bytes : 0;
    MUST(refs == n->refs_used && live == n->count && live == c->m.names && active == n->active);
    MUST(named == c->m.named_blocks && sum == c->m.named_bytes && spares == n->spares);
    core__pages_put(held, bytes);
}
