/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts a name to a chain of blocks (NAME_PUT). A spare slot takes the blocks, from the root on, and
 * the token ids, in slices; no request sees it. Then it changes places with what the name was,
 * which lets go of its blocks in slices.
 */
#include "keep.h"
#include "names_table.h"

/* Blocks for which a quota is asked at once, or that a group without chains adds at once. */
#define PUT_PIECE 256u

/* How many refs a name of f's prefix takes, and how many blocks and bytes a hit needs. */
static uint32_t count_needs(const struct find *f, uint32_t *ret_blocks, uint64_t *ret_bytes)
{
    uint32_t refs = 0;
    *ret_blocks = 0;
    *ret_bytes = 0;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        const struct core_group *p = &f->seq->ns->spec.group[g];
        uint32_t first, end;
        find_needs(f, g, f->tokens, &first, &end);
        refs += p->rule == KVC_RULE_FULL ? end > 0 : end - first;
        *ret_blocks += end - first;
        *ret_bytes += (uint64_t)(end - first) * p->block_bytes * group_shards(f->seq->ns, p);
    }
    return refs;
}

static const char no_refs[] =
    "names hold too many blocks of window and state groups (limits.names)";
static const char no_ids[] = "no room for its token ids (limits.name_tokens)";
static const char no_pins[] =
    "the budget of pinned bytes (policy.pin_limit), or of pins, is exhausted";
static const char no_name[] = "there are as many names as may be (limits.names)";

/* The name as it is before the put; NULL: there is none yet. */
static struct core_name *name_now(struct core *c, const struct core_client *cl,
                                  const struct core_name_put *in)
{
    char name[KVC_STRING_MAX];
    name_text(name, in->id.name, in->id.name_bytes);
    return name_get(c, in->id.kind, name, cl->who.principal, in->seq->ns->spec.sub);
}

int name_put_begin(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                   const struct find *f, const struct core_prefix *prefix, struct name_putting *p,
                   const char **ret_why)
{
    uint32_t blocks;
    uint64_t bytes;
    *ret_why = c->names ? NULL : "names are off (limits.names)";
    if (*ret_why)
        return KVC_E_LIMIT;
    if (f->tokens == 0)
        return find_absence(c, in->seq, prefix, ret_why);
    if (count_needs(f, &blocks, &bytes) > names_refs_left(c->names))
        *ret_why = no_refs;
    else if (in->ids && !name_ids_room(c->names, in->seq->tokens))
        *ret_why = no_ids;
    else if (!name_now(c, cl, in) &&
             share_left(&c->names->share, principal_index(c, cl->who.principal)) == 0)
        *ret_why = no_name;
    if (*ret_why)
        return KVC_E_LIMIT;
    struct core_name *next = name_spare(c, p->whole);
    if (!next)
        return KVC_E_BUSY;
    names_wheel(c);
    next->blocks = blocks;
    next->bytes = bytes;
    *p = (struct name_putting){.next = next, .whole = p->whole, .last_ids = CORE_NONE};
    return 0;
}

/* ---- blocks ---- */

/* The blocks first .. end-1 of group g that the put adds one by one. In one piece that is the last
 * one of a chain: the others follow from it. */
static bool range_of(const struct find *f, const struct name_putting *p, uint32_t g,
                     uint32_t *ret_first, uint32_t *ret_end)
{
    const bool full = f->seq->ns->spec.group[g].rule == KVC_RULE_FULL;
    find_needs(f, g, f->tokens, ret_first, ret_end);
    if (full && p->whole && *ret_end > 0)
        *ret_first = *ret_end - 1;
    return full;
}

/* Whether hard limits allow that blocks from .. from+n-1 stay on disk, while the blocks that the
 * name leaves are still kept. Pins check their limits themselves. */
static int may_keep(struct core *c, const struct find *f, uint32_t g, uint32_t from, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = from; core_stores(c) && i < from + n; i++) {
        const struct block *b = &c->blocks[c->lookup.found[f->at[g] + i]];
        bytes += block_is_bound(b, CORE_STORAGE) ? 0 : block_bytes(c, b);
    }
    return quota_bind(c, f->seq->ns, CORE_STORAGE, bytes);
}

/* Whether block i is still PRESENT as it was found; chain: and builds on block i-1. */
static bool is_next(const struct core *c, const struct find *f, uint32_t g, uint32_t i, bool chain)
{
    const uint32_t *found = &c->lookup.found[f->at[g]];
    return c->blocks[found[i]].state == BLOCK_PRESENT &&
           (!chain || c->blocks[found[i]].parent == (i > 0 ? found[i - 1] : CORE_NONE));
}

static int hold_piece(struct core *c, const struct find *f, struct name_putting *p, uint32_t from,
                      uint32_t n, bool chain)
{
    const uint32_t *found = &c->lookup.found[f->at[p->group]];
    const int err = p->whole ? 0 : may_keep(c, f, p->group, from, n);
    if (err)
        return err;
    for (uint32_t i = from; i < from + n; i++) {
        c->work.done += 2 * WORK_LOOK;
        if (!p->whole && !is_next(c, f, p->group, i, chain))
            return KVC_E_GONE;
        if (chain && i > 0)
            name_descend(c, p->next, i, found[i]);
        else if (names_refs_left(c->names) == 0)
            return KVC_E_LIMIT;
        else
            name_hold(c, p->next, p->group, i, found[i]);
    }
    return 0;
}

static int hold_step(struct core *c, const struct find *f, struct name_putting *p)
{
    for (; !p->next->cut && p->group < f->seq->ngroups; p->group++, p->at = 0) {
        uint32_t first, end;
        const bool full = range_of(f, p, p->group, &first, &end);
        for (uint32_t n; first + p->at < end; p->at += n) {
            if (slice_over(c))
                return CORE_MORE;
            /* A key may come twice in a group that is no chain: its bytes count in one piece. */
            n = full ? MIN(MIN(end - first - p->at, PUT_PIECE), work_of_slice(c)) : end - first;
            const int err = hold_piece(c, f, p, first + p->at, n, full && !p->whole);
            if (err)
                return err;
        }
    }
    return p->next->cut ? KVC_E_GONE : 0;
}

/* ---- token ids ---- */

static bool ids_step(struct core *c, const struct core_name_put *in, struct name_putting *p)
{
    struct names *n = c->names;
    const uint32_t nids = in->ids ? in->seq->tokens : 0;
    while (p->nids < nids && !slice_over(c) && name_ids_room(n, 1)) {
        const uint32_t no = name_ids_new(n), some = MIN(NAMES_IDS, nids - p->nids);
        c->work.done += 8 * WORK_LOOK; /* a kilobyte, and perhaps a page that is new */
        n->ids[no].n = some;
        memcpy(n->ids[no].id, in->ids + (size_t)p->nids * 4, (size_t)some * 4);
        if (p->last_ids == CORE_NONE)
            p->next->ids = no;
        else
            n->ids[p->last_ids].next = no;
        p->last_ids = no;
        p->nids += some;
    }
    return p->nids == nids;
}

int name_put_step(struct core *c, const struct core_name_put *in, const struct find *f,
                  struct name_putting *p, const char **ret_why)
{
    const int rc = hold_step(c, f, p);
    if (rc == KVC_E_LIMIT)
        *ret_why = no_refs;
    if (rc || ids_step(c, in, p))
        return rc;
    if (slice_over(c))
        return CORE_MORE;
    *ret_why = no_ids;
    return KVC_E_LIMIT;
}

/* ---- refusals ---- */

static const char *room_detail(int err)
{
    return err == KVC_E_PIN_LIMIT
               ? "host memory would be full of what is pinned in it"
               : "it would have to keep more than a quota allows, or than is left beside "
                 "what is guaranteed to others (kvcachectl quota show)";
}

int name_put_refused(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                     uint32_t g, int err, const char **ret_why)
{
    if (err == KVC_E_LIMIT && !*ret_why)
        *ret_why = no_pins;
    if (err != KVC_E_QUOTA && err != KVC_E_PIN_LIMIT)
        return err == KVC_E_LIMIT ? err : 0;
    if (in->seq->ns->spec.group[g].rule != KVC_RULE_FULL || name_now(c, cl, in))
        return 0;
    *ret_why = err == KVC_E_QUOTA
                   ? room_detail(err)
                   : "the budget of pinned bytes (policy.pin_limit) is exhausted, or host memory "
                     "would be full of what is pinned in it";
    return err;
}

/* ---- the end ---- */

/* A slot that is no name any more begins to release its blocks, in later slices. */
static void leave_begin(struct core *c, struct core_name *old)
{
    name_part(c, old);
    name_free(c, old); /* with its last ref */
}

/* The name that this put made. NULL: it was ended or put again since. */
static struct core_name *name_put_is(const struct name_putting *p)
{
    return p->name->state == NAME_LIVE && p->name->content == p->content ? p->name : NULL;
}

/* Raises the blocks' levels, from the first one on. False: the slice is over before the last
 * one. */
static bool raise_step(struct core *c, const struct find *f, struct name_putting *p)
{
    const struct core_name *nm = name_put_is(p);
    if (!nm)
        return true;
    for (; p->group < f->seq->ngroups; p->group++, p->at = 0) {
        uint32_t first, end;
        (void)range_of(f, p, p->group, &first, &end);
        for (; first + p->at < end; p->at++) {
            if (slice_over(c))
                return false;
            const uint32_t no = c->lookup.found[f->at[p->group] + first + p->at];
            c->work.done += WORK_LOOK;
            if (block_named(c, &c->blocks[no]))
                name_raise(c, no, nm->priority);
        }
    }
    return true;
}

bool name_put_settle(struct core *c, const struct find *f, struct name_putting *p)
{
    if (!p->name)
        return false;
    if (!raise_step(c, f, p) || (p->old.name && name_let_go_more(c, p->old.name)))
        return true;
    p->went |= names_let_passed_go(c, name_put_is(p), &p->passed);
    p->passed.n = 0;
    return false;
}

/* Settles a put in one piece. all: completely; else as far as nobody else continues it:
 * name_let_go_step() releases old blocks by itself. */
static void put_settle(struct core *c, const struct find *f, struct name_putting *p, bool all)
{
    do
        work_slice(c);
    while (name_put_settle(c, f, p) &&
           (all || p->passed.n > 0 || (p->group < f->seq->ngroups && name_put_is(p))));
    core_name_forget_cancel(&p->old);
}

void name_put_drop(struct core *c, const struct find *f, struct name_putting *p)
{
    if (p->next)
        leave_begin(c, p->next);
    while (p->next && name_let_go(c, p->next) && p->whole) /* the last spare slot is free again */
        continue;
    p->next = NULL;
    if (p->name)
        put_settle(c, f, p, false);
}

/* Exchanges the contents of nm and `next`. */
static void change_places(struct core *c, struct core_name *nm, struct core_name *next)
{
    const uint32_t ids = nm->ids;
    const uint64_t pin = nm->pin;
    names_swap_refs(c, nm, next);
    nm->ids = next->ids;
    next->ids = ids;
    nm->pin = next->pin;
    next->pin = pin;
    nm->blocks = next->blocks;
    nm->bytes = next->bytes;
    nm->cut = false;
}

int name_put_end(struct core *c, struct core_client *cl, const struct core_name_put *in,
                 const struct find *f, struct name_putting *p, struct core_name_waiter *waiter,
                 struct core_named *ret_named, const char **ret_why)
{
    const struct core_ns *ns = in->seq->ns;
    struct core_name *old = p->next;
    struct core_name *nm = name_now(c, cl, in);
    const bool fresh = !nm;
    if (fresh) {
        char name[KVC_STRING_MAX];
        name_text(name, in->id.name, in->id.name_bytes);
        nm = name_new(c, in->id.kind, name, &cl->who, ns->spec.sub);
    }
    if (!nm) { /* other names were made since, and no slot is left */
        name_put_drop(c, f, p);
        *ret_why = no_name;
        return KVC_E_LIMIT;
    }
    nm->used_ms = names_now(c);
    if (fresh)
        nm->made_ms = nm->used_ms;
    nm->priority = (uint8_t)(in->priority ? in->priority : KVC_PRIORITY_DEFAULT);
    nm->pinned = in->pinned;
    nm->ttl_ms = in->ttl_ms;
    nm->print = ns->short_print;
    nm->tokens = f->tokens;
    nm->nids = p->nids;
    nm->content = ++c->names->serial;
    change_places(c, nm, old);
    p->next = NULL;
    p->name = nm;
    p->content = nm->content;
    p->group = p->at = 0;
    names_passed(c, old, f, &p->passed);
    p->old.name = old;
    old->forgetting = &p->old;
    leave_begin(c, old);
    if (p->whole) /* limits may have counted on the room of the old blocks */
        put_settle(c, f, p, true);
    name_arm(c, nm);
    c->m.names_put++;
    name_write(c, nm);
    name_save(c, nm);
    *ret_named = (struct core_named){.tokens = nm->tokens, .bytes = nm->bytes, .went = p->went};
    return waiter ? name_await(c, nm, waiter, in->durable) : 0;
}

/* ---- a put in one piece ---- */

/* Puts the name in one piece, on the blocks that f found and limits allow. */
static int put_whole(struct core *c, const struct core_name_put *in, struct find *f,
                     struct name_putting *p, const char **ret_why)
{
    struct core_prefix prefix;
    int err = in->pinned ? name_pin(c, p->next, in->seq) : 0;
    if (err) {
        *ret_why = no_pins;
        return err;
    }
    find_prefix(c, in->seq, FIND_ANY, 0, f, &prefix);
    if (f->tokens == 0)
        return find_absence(c, in->seq, &prefix, ret_why);
    do {
        work_slice(c);
        err = name_put_step(c, in, f, p, ret_why);
    } while (err == CORE_MORE);
    if (!err)
        find_touch(c, f);
    return err;
}

bool core_name_put_is_long(struct core *c, const struct core_client *cl,
                           const struct core_name_put *in)
{
    const struct core_name *nm = c->names ? name_now(c, cl, in) : NULL;
    return core_seq_is_long(c, in->seq) || (nm && core_name_is_long(c, nm));
}

int core_name_put(struct core *c, struct core_client *cl, const struct core_name_put *in,
                  struct core_name_waiter *waiter, struct core_named *ret_named,
                  const char **ret_why)
{
    struct find f;
    struct core_prefix prefix;
    struct name_putting p = {.whole = true};
    *ret_why = core_seq_fault(in->seq);
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    find_prefix(c, in->seq, FIND_ANY, 0, &f, &prefix);
    int err = name_put_begin(c, cl, in, &f, &prefix, &p, ret_why);
    if (err)
        return err;
    err = name_room_for(c, name_now(c, cl, in), &f, in->pinned);
    if (err)
        *ret_why = room_detail(err);
    else
        err = put_whole(c, in, &f, &p, ret_why);
    if (!err)
        return name_put_end(c, cl, in, &f, &p, waiter, ret_named, ret_why);
    name_put_drop(c, &f, &p);
    return err;
}
