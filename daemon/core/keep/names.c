/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of names, conversations and documents, in order: finding one, using one, its time to
 * live and its end. names_put.c sets what a name covers.
 */
#include <stdlib.h>

#include "keep.h"
#include "names_table.h"
#include "sys.h"

/* ---- memory ---- */

static uint32_t refs_max(const struct core_config *cfg)
{
    return cfg->names_max * NAMES_REFS_EACH;
}

static uint32_t ids_max(const struct core_config *cfg)
{
    return (uint32_t)MIN(cfg->name_ids_bytes / sizeof(struct name_ids), UINT32_MAX / 2);
}

static uint32_t slots_max(const struct core_config *cfg)
{
    return cfg->names_max + NAMES_SPARES;
}

/* Sizes of the tables of names, in the order in which names_create() allocates them. */
struct sizes {
    uint64_t names, name, order, ref, of, ids, keys, w_key;
};

static struct sizes sizes_of(const struct core_config *cfg)
{
    return (struct sizes){.names = sizeof(struct names),
                          .name = (uint64_t)slots_max(cfg) * sizeof(struct core_name),
                          .order = (uint64_t)cfg->names_max * sizeof(uint32_t),
                          .ref = (uint64_t)refs_max(cfg) * sizeof(struct name_ref),
                          .of = (uint64_t)cfg->blocks_max * sizeof(struct block_name),
                          .ids = (uint64_t)ids_max(cfg) * sizeof(struct name_ids),
                          .keys = (uint64_t)KVC_KEYS_MAX * KVC_KEY_BYTES,
                          .w_key = (uint64_t)NAMES_W_KEYS * NAMES_KEY_ROOM};
}

uint64_t core_names_bytes(const struct core_config *cfg)
{
    const struct sizes z = sizes_of(cfg);
    return cfg->names_max == 0
               ? 0
               : z.names + z.name + z.order + z.ref + z.of + z.ids + z.keys + z.w_key;
}

static int names_create(struct core *c)
{
    if (c->cfg.names_max == 0)
        return 0;
    const struct sizes z = sizes_of(&c->cfg);
    struct names *n = core__pages(z.names);
    if (!n)
        return -ENOMEM;
    c->names = n;
    n->max = c->cfg.names_max;
    n->refs_max = refs_max(&c->cfg);
    n->ids_max = ids_max(&c->cfg);
    n->free = n->refs_free = n->ids_free = CORE_NONE;
    list_init(&n->writing);
    list_init(&n->saving);
    list_init(&n->going);
    n->name = core__pages(z.name);
    n->order = core__pages(z.order);
    n->ref = core__pages(z.ref);
    c->named = core__pages(z.of);
    n->ids = z.ids ? core__pages(z.ids) : NULL;
    n->keys = core__pages(z.keys);
    n->w_key = core__pages(z.w_key);
    if (!n->name || !n->order || !n->ref || !c->named || (z.ids && !n->ids) || !n->keys ||
        !n->w_key)
        return -ENOMEM;
    return core__fair_share(c, &n->share, n->max, MAX(c->cfg.principals_max, 1u));
}

static void names_destroy(struct core *c)
{
    struct names *n = c->names;
    if (!n)
        return;
    const struct sizes z = sizes_of(&c->cfg);
    share_destroy(&n->share);
    core__pages_put(n->name, z.name);
    core__pages_put(n->order, z.order);
    core__pages_put(n->ref, z.ref);
    core__pages_put(c->named, z.of);
    core__pages_put(n->ids, z.ids);
    core__pages_put(n->keys, z.keys);
    core__pages_put(n->w_key, z.w_key);
    core__pages_put(n, z.names);
    c->names = NULL;
}

const struct core_module names_module = {.create = names_create, .destroy = names_destroy};

/* ---- order ---- */

static int name_compare(const struct core_name *a, uint8_t kind, const char *name,
                        uint32_t principal, const char *sub)
{
    if (a->kind != kind)
        return a->kind < kind ? -1 : 1;
    const int by_name = strcmp(a->name, name);
    if (by_name != 0)
        return by_name;
    if (a->principal != principal)
        return a->principal < principal ? -1 : 1;
    return strcmp(a->sub, sub);
}

/* The number of names that come before this one in the table's order. */
static uint32_t name_rank(const struct names *n, uint8_t kind, const char *name, uint32_t principal,
                          const char *sub)
{
    uint32_t low = 0, high = n->count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (name_compare(&n->name[n->order[mid]], kind, name, principal, sub) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct core_name *name_get(struct core *c, uint8_t kind, const char *name, uint32_t principal,
                           const char *sub)
{
    const struct names *n = c->names;
    const uint32_t at = name_rank(n, kind, name, principal, sub);
    if (at == n->count || name_compare(&n->name[n->order[at]], kind, name, principal, sub) != 0)
        return NULL;
    return &n->name[n->order[at]];
}

static void on_ttl(void *ctx, uint64_t now_ns);
static void on_retry(void *ctx, uint64_t now_ns);

/* Takes a free slot; the caller knows that there is one. */
static struct core_name *name_slot_take(struct core *c, enum name_state state)
{
    struct names *n = c->names;
    uint32_t no = n->free;
    if (no != CORE_NONE)
        n->free = n->name[no].next;
    else
        no = n->high++;
    MUST(no < n->max + NAMES_SPARES); /* the share counts the names */
    struct core_name *nm = &n->name[no];
    *nm = (struct core_name){.state = (uint8_t)state,
                             .refs = CORE_NONE,
                             .ids = CORE_NONE,
                             .ttl = {.fn = on_ttl, .ctx = nm},
                             .retry = {.fn = on_retry, .ctx = nm},
                             .core = c};
    list_init(&nm->waiters);
    return nm;
}

struct core_name *name_new(struct core *c, uint8_t kind, const char *name,
                           const struct core_identity *who, const char *sub)
{
    struct names *n = c->names;
    if (!share_take(&n->share, principal_index(c, who->principal), 1))
        return NULL;
    struct core_name *nm = name_slot_take(c, NAME_LIVE);
    nm->kind = kind;
    nm->principal = who->principal;
    nm->principal_name = who->name;
    nm->tenant = who->tenant;
    memcpy(nm->name, name, strlen(name));
    memcpy(nm->sub, sub, strlen(sub));
    const uint32_t at = name_rank(n, kind, name, who->principal, sub);
    memmove(&n->order[at + 1], &n->order[at], (n->count - at) * sizeof *n->order);
    n->order[at] = name_no(c, nm);
    n->count++;
    c->m.names++;
    return nm;
}

/* The last spare is for a put in one call, which frees it again within the call. */
struct core_name *name_spare(struct core *c, bool must)
{
    struct names *n = c->names;
    MUST(n->spares < NAMES_SPARES);
    if (n->spares + !must >= NAMES_SPARES)
        return NULL;
    n->spares++;
    struct core_name *nm = name_slot_take(c, NAME_COMING);
    nm->spare = true;
    return nm;
}

void name_free(struct core *c, struct core_name *nm)
{
    struct names *n = c->names;
    if (list_is_linked(&nm->going)) {
        nm->gone = true;
        return;
    }
    if (nm->spare)
        n->spares--;
    else
        share_give(&n->share, principal_index(c, nm->principal), 1);
    nm->state = NAME_FREE;
    nm->next = n->free;
    n->free = name_no(c, nm);
}

int name_pin(struct core *c, struct core_name *nm, const struct core_seq *seq)
{
    const struct core_pin in = {.seq = *seq, .of_name = true};
    struct core_pinned pinned;
    const char *why;
    int err = core_pin(c, &in, &pinned, &why);
    if (err)
        return err;
    MUST(nm->pin == 0);
    nm->pin = pinned.id;
    return 0;
}

void name_part(struct core *c, struct core_name *nm)
{
    if (nm->pin && core_unpin(c, NULL, nm->pin) != CORE_MORE)
        nm->pin = 0;
    name_ids_free(c->names, nm->ids);
    nm->ids = CORE_NONE;
    nm->state = NAME_GOING;
    list_push_back(&c->names->going, &nm->going);
}

void name_go(struct core *c, struct core_name *nm)
{
    struct names *n = c->names;
    const uint32_t at = name_rank(n, nm->kind, nm->name, nm->principal, nm->sub);
    MUST(at < n->count && n->order[at] == name_no(c, nm));
    memmove(&n->order[at], &n->order[at + 1], (n->count - at - 1) * sizeof *n->order);
    n->count--;
    c->m.names--;
    wheel_del(&n->wheel, &nm->ttl);
    name_save_cancel(c, nm);
    name_wake(c, nm, KVC_E_NO_NAME); /* requests that waited for its write or save */
    name_part(c, nm);
    name_write(c, nm);
}

bool name_let_go(struct core *c, struct core_name *nm)
{
    work_slice(c);
    return name_let_go_more(c, nm);
}

/* Pinned blocks are not evicted, so the name's pin ends first. */
bool name_let_go_more(struct core *c, struct core_name *nm)
{
    if (nm->pin && core_unpin_step(c, nm->pin))
        return true;
    nm->pin = 0;
    while (nm->refs != CORE_NONE) {
        if (slice_over(c))
            return true;
        name_let_go_block(c, nm);
    }
    list_remove(&nm->going);
    if (nm->forgetting)
        nm->forgetting->name = NULL;
    if (nm->gone)
        name_free(c, nm);
    return false;
}

void name_end(struct core *c, struct core_name *nm)
{
    name_go(c, nm);
    while (name_let_go(c, nm))
        continue;
}

/* Releases blocks of names that have ended, one name after the other; true: more is left. */
static bool name_let_go_step(struct core *c)
{
    struct list_node *node = list_first(&c->names->going);
    return node && (name_let_go(c, CONTAINER_OF(node, struct core_name, going)) ||
                    !list_empty(&c->names->going));
}

bool names_are_going(const struct core *c)
{
    return c->names && !list_empty(&c->names->going);
}

/* ---- token ids ---- */

bool name_ids_room(const struct names *n, uint32_t nids)
{
    return (nids + NAMES_IDS - 1) / NAMES_IDS <= n->ids_max - n->ids_used;
}

uint32_t name_ids_new(struct names *n)
{
    uint32_t no = n->ids_free;
    if (no != CORE_NONE)
        n->ids_free = n->ids[no].next;
    else
        no = n->ids_high++;
    MUST(no < n->ids_max);
    n->ids_used++;
    n->ids[no].next = CORE_NONE;
    n->ids[no].n = 0;
    return no;
}

void name_ids_free(struct names *n, uint32_t head)
{
    for (uint32_t no = head; no != CORE_NONE;) {
        const uint32_t next = n->ids[no].next;
        n->ids[no].next = n->ids_free;
        n->ids_free = no;
        n->ids_used--;
        no = next;
    }
}

uint32_t core_name_ids(const struct core *c, const struct core_name *nm, uint32_t first,
                       uint8_t *out, uint32_t max, uint32_t *ret_tokens)
{
    const struct names *n = c->names;
    uint32_t got = 0, at = nm->ids;
    *ret_tokens = nm->nids;
    for (; at != CORE_NONE && first >= n->ids[at].n; at = n->ids[at].next)
        first -= n->ids[at].n;
    for (; at != CORE_NONE && got < max; at = n->ids[at].next, first = 0) {
        const uint32_t take = MIN(n->ids[at].n - first, max - got);
        memcpy(out + (size_t)got * 4, &n->ids[at].id[first], (size_t)take * 4);
        got += take;
    }
    return got;
}

/* ---- waiting ---- */

static bool is_done(const struct core *c, const struct core_name *nm,
                    const struct core_name_waiter *w)
{
    const bool written = nm->state == NAME_GOING ? nm->written == 0
                                                 : !c->names->journal || nm->written >= w->content;
    return written && (!w->saved || nm->saved);
}

void name_wake(struct core *c, struct core_name *nm, int err)
{
    const int dead = c->names->error ? KVC_E_TIER : 0;
    LIST_FOR_EACH_SAFE (node, next, &nm->waiters) {
        struct core_name_waiter *w = CONTAINER_OF(node, struct core_name_waiter, node);
        const bool done = is_done(c, nm, w);
        if (!done && !err && !dead)
            continue;
        list_remove(node);
        w->fn(w, done ? 0 : err ? err : dead);
    }
}

void core_name_cancel(struct core_name_waiter *waiter)
{
    list_remove(&waiter->node);
}

int name_await(struct core *c, struct core_name *nm, struct core_name_waiter *w, bool saved)
{
    *w = (struct core_name_waiter){.fn = w->fn, .content = nm->content, .saved = saved};
    if (c->names->error)
        return KVC_E_TIER;
    if (is_done(c, nm, w))
        return 0;
    list_push_back(&nm->waiters, &w->node);
    return 1;
}

void name_arm(struct core *c, struct core_name *nm)
{
    if (nm->ttl_ms == 0) {
        wheel_del(&c->names->wheel, &nm->ttl);
        return;
    }
    const uint64_t now = names_now(c), idle = now - MIN(now, nm->used_ms);
    const uint64_t left = nm->ttl_ms - MIN(nm->ttl_ms, idle);
    wheel_add(&c->names->wheel, &nm->ttl, c->now_ns + MIN(left, UINT64_MAX / 2000000) * 1000000);
}

/* ---- find, list ---- */

/* For a client with admin rights: the only name with this text. NULL: none, or several. */
static struct core_name *only_one(struct core *c, uint8_t kind, const char *name, const char *sub)
{
    const struct names *n = c->names;
    struct core_name *found = NULL;
    for (uint32_t at = name_rank(n, kind, name, 0, ""); at < n->count; at++) {
        struct core_name *nm = &n->name[n->order[at]];
        if (nm->kind != kind || strcmp(nm->name, name) != 0)
            break;
        if (strcmp(nm->sub, sub) != 0)
            continue;
        if (found)
            return NULL;
        found = nm;
    }
    return found;
}

int core_name_find(struct core *c, const struct core_client *cl, const struct core_name_id *id,
                   struct core_name **ret_name)
{
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    if (id->sub_bytes > 0 && !cl->who.gateway && !cl->who.admin)
        return KVC_E_DENIED;
    if (!c->names)
        return KVC_E_NO_NAME;
    name_text(name, id->name, id->name_bytes);
    name_text(sub, id->sub, id->sub_bytes);
    struct core_name *nm = name_get(c, id->kind, name, cl->who.principal, sub);
    if (!nm && cl->who.admin)
        nm = only_one(c, id->kind, name, sub);
    if (!nm)
        return KVC_E_NO_NAME;
    *ret_name = nm;
    return 0;
}

uint32_t core_name_cursor(const struct core_name *nm, uint8_t ret_cursor[CORE_NAME_CURSOR_MAX])
{
    const uint32_t name = (uint32_t)strlen(nm->name), sub = (uint32_t)strlen(nm->sub);
    memcpy(ret_cursor, &nm->principal, sizeof nm->principal);
    ret_cursor[4] = (uint8_t)name;
    memcpy(ret_cursor + 5, nm->name, name);
    memcpy(ret_cursor + 5 + name, nm->sub, sub);
    return 5 + name + sub;
}

/* The place in order at which a list continues. */
static int list_at(const struct core *c, const struct core_name_list *in, uint32_t *ret_at)
{
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    uint32_t principal;
    if (in->cursor_bytes == 0) {
        name_text(name, in->prefix, in->prefix_bytes);
        *ret_at = name_rank(c->names, in->kind, name, 0, "");
        return 0;
    }
    const uint8_t *p = in->cursor;
    if (in->cursor_bytes < 5 || p[4] >= KVC_STRING_MAX || in->cursor_bytes < 5u + p[4] ||
        in->cursor_bytes - 5 - p[4] >= KVC_STRING_MAX)
        return KVC_E_BAD_ARGUMENT;
    memcpy(&principal, p, sizeof principal);
    name_text(name, p + 5, p[4]);
    name_text(sub, p + 5 + p[4], in->cursor_bytes - 5 - p[4]);
    const struct names *n = c->names;
    *ret_at = name_rank(n, in->kind, name, principal, sub);
    *ret_at += *ret_at < n->count &&
               name_compare(&n->name[n->order[*ret_at]], in->kind, name, principal, sub) == 0;
    return 0;
}

int core_name_next(struct core *c, const struct core_client *cl, const struct core_name_list *in,
                   struct core_name **ret_name)
{
    const struct names *n = c->names;
    uint32_t at = 0;
    *ret_name = NULL;
    int err = n ? list_at(c, in, &at) : 0;
    for (; !err && n && at < n->count; at++) {
        struct core_name *nm = &n->name[n->order[at]];
        if (nm->kind != in->kind ||
            (in->prefix_bytes > 0 &&
             strncmp(nm->name, (const char *)in->prefix, in->prefix_bytes) != 0))
            break;
        if (!cl->who.admin &&
            (nm->principal != cl->who.principal || (nm->sub[0] && !cl->who.gateway)))
            continue;
        if (in->sub_bytes > 0 &&
            (strlen(nm->sub) != in->sub_bytes || memcmp(nm->sub, in->sub, in->sub_bytes) != 0))
            continue;
        *ret_name = nm;
        break;
    }
    return err;
}

/* ---- the blocks of a name ---- */

struct where {
    struct core *c;
    struct core_name_view *view;
    uint32_t n;
};

static int count_where(void *ctx, struct block *b)
{
    struct where *w = ctx;
    for (;;) {
        const uint64_t bytes = block_bytes(w->c, b);
        w->view->bytes_in_memory += copy_there(b, CORE_HOST) ? bytes : 0;
        w->view->bytes_on_disk += copy_there(b, CORE_STORAGE) ? bytes : 0;
        w->n++;
        if (block_group(w->c, b)->rule != KVC_RULE_FULL || b->parent == CORE_NONE)
            return 0;
        b = &w->c->blocks[b->parent];
    }
}

/* The block of the first ref of nm in group 0; NULL: none. */
static const struct block *tip_of(const struct core *c, const struct core_name *nm)
{
    const struct block *tip = NULL;
    for (uint32_t no = nm->refs; no != CORE_NONE; no = c->names->ref[no].next_of_name)
        if (c->names->ref[no].group == 0 && !tip)
            tip = &c->blocks[c->names->ref[no].block];
    return tip;
}

uint32_t core_name_view(struct core *c, const struct core_name *nm, struct core_name_view *ret_view)
{
    const uint64_t now = names_now(c);
    const struct core_ns *ns = ns_by_print(c, nm->print);
    struct where w = {.c = c, .view = ret_view};
    *ret_view = (struct core_name_view){.kind = nm->kind,
                                        .name = nm->name,
                                        .principal = nm->principal_name,
                                        .tenant = nm->tenant,
                                        .sub = nm->sub,
                                        .model = ns ? ns->spec.model : "",
                                        .ns = ns ? ns->id : 0,
                                        .tokens = nm->tokens,
                                        .tokens_cached = name_cached(c, nm),
                                        .blocks = nm->blocks,
                                        .bytes = nm->bytes,
                                        .age_ms = now - MIN(now, nm->made_ms),
                                        .idle_ms = now - MIN(now, nm->used_ms),
                                        .ttl_ms = nm->ttl_ms,
                                        .priority = nm->priority,
                                        .pinned = nm->pinned,
                                        .has_ids = nm->nids > 0};
    const struct block *tip = tip_of(c, nm);
    if (tip)
        ret_view->tip = tip->key;
    (void)name_each_block(c, nm, count_where, &w);
    return w.n;
}

bool name_shape(struct core *c, const struct core_name *nm, struct core_seq *ret_seq)
{
    struct core_ns *ns = ns_by_print(c, nm->print);
    *ret_seq = (struct core_seq){.ns = ns, .tokens = name_cached(c, nm)};
    if (!ns || ret_seq->tokens == 0)
        return false;
    ret_seq->ngroups = ns->spec.ngroups;
    for (uint32_t g = 0; g < ret_seq->ngroups; g++) {
        const uint32_t bt = ns->spec.group[g].block_tokens;
        ret_seq->n[g] = (ret_seq->tokens + bt - 1) / bt;
    }
    return true;
}

bool name_find_tips(struct core *c, const struct core_name *nm, struct find *f,
                    struct core_seen ret_tip[KVC_GROUPS_MAX])
{
    if (nm->cut && f->seq->ngroups > 1) /* some groups have more tokens left than others */
        return false;
    f->tokens = f->seq->tokens;
    for (uint32_t no = nm->refs; no != CORE_NONE; no = c->names->ref[no].next_of_name) {
        const struct name_ref *r = &c->names->ref[no];
        struct block *b = &c->blocks[r->block];
        const bool full = f->seq->ns->spec.group[r->group].rule == KVC_RULE_FULL;
        const uint32_t n = f->seq->n[r->group], i = full ? b->depth : r->place;
        if (i >= n || (full && i + 1 != n) || (!full && !find_put(c, f, r->group, i, b)))
            return false;
        if (full)
            ret_tip[r->group] = block_seen(c, b);
    }
    return true;
}

bool core_name_is_long(struct core *c, const struct core_name *nm)
{
    struct core_seq seq;
    return name_shape(c, nm, &seq) && core_seq_is_long(c, &seq);
}

bool core_name_seq(struct core *c, const struct core_name *nm, struct core_seq *ret_seq)
{
    struct core_seq seq;
    uint32_t at = 0;
    if (!name_shape(c, nm, &seq))
        return false;
    const struct core_ns *ns = seq.ns;
    for (uint32_t g = 0; g < seq.ngroups; g++) {
        seq.keys[g] = c->names->keys + (size_t)at * KVC_KEY_BYTES;
        at += seq.n[g];
        MUST(at <= KVC_KEYS_MAX);
        memset(c->names->keys + (size_t)(at - seq.n[g]) * KVC_KEY_BYTES, 0,
               (size_t)seq.n[g] * KVC_KEY_BYTES);
    }
    for (uint32_t no = nm->refs; no != CORE_NONE; no = c->names->ref[no].next_of_name) {
        const uint32_t g = c->names->ref[no].group;
        const struct block *b = &c->blocks[c->names->ref[no].block];
        const bool full = ns->spec.group[g].rule == KVC_RULE_FULL;
        uint32_t i = full ? b->depth : c->names->ref[no].place;
        for (;; i--) {
            const size_t from = (size_t)(seq.keys[g] - c->names->keys);
            if (i < seq.n[g])
                memcpy(c->names->keys + from + (size_t)i * KVC_KEY_BYTES, b->key.b, KVC_KEY_BYTES);
            if (!full || b->parent == CORE_NONE)
                break;
            b = &c->blocks[b->parent];
        }
    }
    *ret_seq = seq;
    return true;
}

/* ---- use and end ---- */

void core_name_use(struct core *c, struct core_name *nm, uint64_t ttl_ms)
{
    struct core_seq seq;
    struct core_prefix prefix;
    struct find f;
    nm->used_ms = names_now(c);
    if (ttl_ms != UINT64_MAX)
        nm->ttl_ms = ttl_ms;
    name_arm(c, nm);
    name_write(c, nm);
    if (core_name_is_long(c, nm) || !core_name_seq(c, nm, &seq))
        return;
    find_prefix(c, &seq, FIND_ANY, 0, &f, &prefix);
    find_touch(c, &f);
}

static void on_ttl(void *ctx, uint64_t now_ns)
{
    struct core_name *nm = ctx;
    (void)now_ns;
    nm->core->m.names_expired++;
    name_go(nm->core, nm);
}

static void on_retry(void *ctx, uint64_t now_ns)
{
    struct core_name *nm = ctx;
    (void)now_ns;
    name_save(nm->core, nm);
}

void names_wheel(struct core *c)
{
    if (!c->names->wheel_on)
        wheel_init(&c->names->wheel, c->now_ns);
    c->names->wheel_on = true;
}

bool names_step(struct core *c)
{
    struct names *n = c->names;
    if (!n)
        return false;
    if (n->wheel_on)
        (void)wheel_run(&n->wheel, c->now_ns);
    names_look(c);
    bool more = name_let_go_step(c);
    more |= names_save_step(c);
    names_write_step(c);
    return more;
}
