/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restart: reads the names of the run before out of the journal, piece by piece, and binds them to
 * the blocks that were recovered.
 */
#include "cursor.h"
#include "keep.h"
#include "names_table.h"

struct reader {
    struct core *c;
    core_who_fn *who;
    void *ctx;
    struct core_names_found *found;
    uint64_t content;     /* number of the content whose pieces are being read */
    struct core_name *nm; /* the name being read; NULL: its head was bad or names no principal */
    bool alone;           /* no principal owns the name: its pieces stay in the journal */
    uint32_t key_pieces, last_ids;
    uint64_t held;      /* groups of FULL of which a block is held */
    uint64_t newest_ms; /* the latest time in any head */
};

/* ---- heads ---- */

struct head {
    uint8_t kind, priority, pinned;
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    char principal_name[KVC_STRING_MAX], tenant[KVC_STRING_MAX];
    uint64_t print, bytes, ttl_ms, made_ms, used_ms;
    uint32_t tokens, blocks, key_pieces, nids;
};

static void names_read_take_text(struct cursor *r, char to[KVC_STRING_MAX])
{
    const size_t n = cursor_u8(r);
    const uint8_t *at = cursor_take(r, n);
    if (!at || n >= KVC_STRING_MAX || memchr(at, 0, n)) {
        r->bad = true;
        return;
    }
    memcpy(to, at, n);
}

static bool names_read_take_head(const void *value, uint32_t bytes, struct head *h)
{
    struct cursor r;
    *h = (struct head){.kind = 0};
    cursor_init(&r, value, bytes);
    if (cursor_u32le(&r) != NAME_HEAD_MAGIC || cursor_u32le(&r) != NAME_HEAD_VERSION)
        return false;
    h->kind = cursor_u8(&r);
    h->priority = cursor_u8(&r);
    h->pinned = cursor_u8(&r);
    names_read_take_text(&r, h->name);
    names_read_take_text(&r, h->sub);
    names_read_take_text(&r, h->principal_name);
    names_read_take_text(&r, h->tenant);
    h->print = cursor_u64le(&r);
    h->tokens = cursor_u32le(&r);
    h->blocks = cursor_u32le(&r);
    h->bytes = cursor_u64le(&r);
    h->ttl_ms = cursor_u64le(&r);
    h->made_ms = cursor_u64le(&r);
    h->used_ms = cursor_u64le(&r);
    h->key_pieces = cursor_u32le(&r);
    h->nids = cursor_u32le(&r);
    return cursor_ok(&r) && cursor_left(&r) == 0 && h->name[0] && h->priority <= KVC_PRIORITY_MAX &&
           (h->kind == KVC_NAME_CONVERSATION || h->kind == KVC_NAME_DOCUMENT);
}

static void name_fill(struct core_name *nm, const struct head *h)
{
    nm->priority = h->priority;
    nm->pinned = h->pinned != 0;
    nm->print = h->print;
    nm->bytes = h->bytes;
    nm->ttl_ms = h->ttl_ms;
    nm->made_ms = h->made_ms;
    nm->used_ms = h->used_ms;
    nm->tokens = h->tokens;
    nm->blocks = h->blocks;
}

/* A later content of the same name replaces `old`. */
static void name_supersede(struct reader *r, struct core_name *old)
{
    name_stale(r->c->names, old->written, 0, old->written_pieces + 1);
    old->written = 0;
    r->found->names--;
    name_end(r->c, old);
}

static void on_head(struct reader *r, const void *value, uint32_t bytes)
{
    struct head h;
    if (!names_read_take_head(value, bytes, &h)) {
        name_stale(r->c->names, r->content, 0, 1);
        r->found->pieces++;
        return;
    }
    r->newest_ms = MAX(r->newest_ms, MAX(h.made_ms, h.used_ms));
    const struct core_identity *id = r->who(r->ctx, h.principal_name);
    struct core_name *old = id ? name_get(r->c, h.kind, h.name, id->principal, h.sub) : NULL;
    if (old)
        name_supersede(r, old);
    if (id && strcmp(id->tenant, h.tenant) == 0)
        r->nm = name_new(r->c, h.kind, h.name, id, h.sub);
    if (!r->nm) {
        r->alone = true;
        r->found->nobody++;
        return;
    }
    name_fill(r->nm, &h);
    r->nm->content = r->nm->written = r->content;
    r->nm->written_keys = h.key_pieces;
    r->nm->written_pieces = h.key_pieces + (h.nids + NAMES_IDS - 1) / NAMES_IDS;
    r->nm->nids = h.nids;
    r->key_pieces = h.key_pieces;
    r->last_ids = CORE_NONE;
    r->held = 0;
    r->found->names++;
}

/* ---- pieces ---- */

static void hold_key(struct reader *r, const struct core_ns *ns, uint32_t group, uint32_t place,
                     const uint8_t *key)
{
    struct core *c = r->c;
    const bool full = ns->spec.group[group].rule == KVC_RULE_FULL;
    if (full && r->held & UINT64_C(1) << group)
        return;
    const struct block *b = index_get(c, ns, group, key);
    if (!b || b->state != BLOCK_PRESENT || names_refs_left(c->names) == 0) {
        r->nm->cut = true;
        return;
    }
    r->held |= UINT64_C(1) << group;
    name_hold(c, r->nm, group, place, block_no(c, b));
    name_raise(c, block_no(c, b), r->nm->priority);
}

static void on_keys(struct reader *r, const uint8_t *value, uint32_t bytes)
{
    const struct core_ns *ns = ns_by_print(r->c, r->nm->print);
    struct cursor at;
    cursor_init(&at, value, bytes);
    while (ns && cursor_left(&at) >= NAMES_KEY_ROOM) {
        const uint32_t group = cursor_u8(&at), place = cursor_u32le(&at);
        const uint8_t *key = cursor_take(&at, KVC_KEY_BYTES);
        if (group < ns->spec.ngroups && strcmp(ns->principal_name, r->nm->principal_name) == 0)
            hold_key(r, ns, group, place, key);
    }
}

static void on_ids(struct reader *r, const uint8_t *value, uint32_t bytes)
{
    struct names *n = r->c->names;
    if (bytes % 4 || bytes > NAMES_IDS * 4 || !name_ids_room(n, 1))
        return; /* too few, in the end */
    const uint32_t no = name_ids_new(n);
    n->ids[no].n = bytes / 4;
    memcpy(n->ids[no].id, value, bytes);
    if (r->last_ids == CORE_NONE)
        r->nm->ids = no;
    else
        n->ids[r->last_ids].next = no;
    r->last_ids = no;
}

/* All pieces of the name were read: ends it. */
static void end_name(struct reader *r)
{
    struct core_name *nm = r->nm;
    struct names *n = r->c->names;
    uint32_t ids = 0;
    if (!nm)
        return;
    for (uint32_t no = nm->ids; no != CORE_NONE; no = n->ids[no].next)
        ids += n->ids[no].n;
    if (ids != nm->nids) {
        name_ids_free(n, nm->ids);
        nm->ids = CORE_NONE;
        nm->nids = 0;
    }
    nm->cut |= nm->refs == CORE_NONE;
    r->found->partly += nm->cut;
    r->nm = NULL;
}

static int names_read_on_piece(void *ctx, uint64_t key, const void *value, uint32_t bytes)
{
    struct reader *r = ctx;
    const uint64_t content = key >> NAMES_PIECE_BITS;
    const uint32_t piece = key & ((1u << NAMES_PIECE_BITS) - 1);
    if (content != r->content) {
        end_name(r);
        r->content = content;
        r->alone = false;
    }
    r->c->names->serial = MAX(r->c->names->serial, content);
    if (piece == 0)
        on_head(r, value, bytes);
    else if (r->nm && piece <= r->key_pieces)
        on_keys(r, value, bytes);
    else if (r->nm)
        on_ids(r, value, bytes);
    else if (!r->alone) {
        name_stale(r->c->names, content, piece, 1);
        r->found->pieces++;
    }
    return 0;
}

/* ---- the journal ---- */

/* Begins a new journal: names that were read before the damage are written again. */
static int begin_anew(struct core *c, struct journal *journal)
{
    struct names *n = c->names;
    n->stale_n = 0;
    for (uint32_t i = 0; i < n->high; i++)
        if (n->name[i].state == NAME_LIVE)
            n->name[i].written = 0;
    return journal->ops->clear(journal);
}

static void keep_all(struct core *c)
{
    struct names *n = c->names;
    for (uint32_t i = 0; i < n->high; i++) {
        struct core_name *nm = &n->name[i];
        if (nm->state != NAME_LIVE)
            continue;
        name_arm(c, nm);
        name_save(c, nm);
        struct core_seq seq;
        if (nm->pinned && (!core_name_seq(c, nm, &seq) || name_pin(c, nm, &seq) != 0))
            nm->pinned = false;
        if (!nm->written)
            name_write(c, nm);
    }
}

/* Where the names' clock begins: never before the times that are noted. */
static uint64_t begin_ms(const struct reader *r, uint64_t now_ms, uint64_t wall_ms)
{
    if (now_ms == 0 && r->newest_ms == 0)
        return wall_ms;
    return MAX(now_ms, r->newest_ms);
}

int core_names_open(struct core *c, struct journal *journal, uint64_t now_ms, uint64_t wall_ms,
                    core_who_fn *who, void *ctx, struct core_names_found *ret_found)
{
    *ret_found = (struct core_names_found){.names = 0};
    if (!c->names)
        return 0;
    names_wheel(c);
    struct reader r = {.c = c, .who = who, .ctx = ctx, .found = ret_found};
    int err = journal ? journal->ops->walk(journal, names_read_on_piece, &r) : 0;
    end_name(&r);
    if (err == -EUCLEAN) {
        ret_found->damaged = true;
        err = begin_anew(c, journal);
    }
    if (err)
        return err;
    c->names->journal = journal;
    c->names->begun_ms = begin_ms(&r, now_ms, wall_ms) - c->now_ms;
    keep_all(c);
    return 0;
}

uint64_t core_names_now_ms(const struct core *c)
{
    return c->names ? names_now(c) : 0;
}
