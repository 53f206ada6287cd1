/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes names to the journal, one commit at a time, so that they outlive a restart. NAME_PUT and
 * NAME_FORGET wait for that.
 *
 * A name is pieces under the number of its content: keys, then token ids, and last its head. The
 * same commit removes the head of what the name was before. So after a crash a name is there as it
 * was or as it is. Pieces without a head belong to nothing.
 */
#include "cursor.h"
#include "keep.h"
#include "names_table.h"

static uint64_t names_write_key_of(uint64_t content, uint32_t piece)
{
    return content << NAMES_PIECE_BITS | piece;
}

static bool names_write_room_for(const struct name_commit *m, uint32_t n)
{
    return m->n + n <= NAMES_BATCH;
}

/* Adds a change to the commit; the caller writes its value. */
static uint8_t *write_change(struct name_commit *m, uint64_t key)
{
    m->change[m->n] = (struct journal_change){.key = key};
    return m->value[m->n++];
}

static void write_put(struct name_commit *m, uint32_t bytes)
{
    MUST(bytes <= JOURNAL_VALUE_MAX);
    m->change[m->n - 1].value = m->value[m->n - 1];
    m->change[m->n - 1].bytes = bytes;
}

void name_stale(struct names *n, uint64_t content, uint32_t first, uint32_t pieces)
{
    struct name_stale *last =
        n->stale_n ? &n->stale[(n->stale_at + n->stale_n - 1) % NAMES_STALE] : NULL;
    if (pieces == 0)
        return;
    if (last && last->content == content && last->first + last->n == first) {
        last->n += pieces;
        return;
    }
    if (n->stale_n == NAMES_STALE)
        return; /* the next start deletes these pieces */
    n->stale[(n->stale_at + n->stale_n++) % NAMES_STALE] =
        (struct name_stale){.content = content, .first = first, .n = pieces};
}

static void stale_sweep(struct names *n)
{
    struct name_commit *m = &n->commit;
    while (n->stale_n > 0 && names_write_room_for(m, 1)) {
        struct name_stale *s = &n->stale[n->stale_at];
        (void)write_change(m, names_write_key_of(s->content, s->first++));
        if (--s->n > 0)
            continue;
        n->stale_at = (n->stale_at + 1) % NAMES_STALE;
        n->stale_n--;
    }
}

/* ---- one name ---- */

static void names_write_put_text(struct wcursor *w, const char *text)
{
    const size_t n = strlen(text);
    wcursor_put_u8(w, (uint8_t)n);
    wcursor_put(w, text, n);
}

/* Encodes a head; names_read.c decodes it. */
static uint32_t put_head(const struct core_name *nm, uint32_t key_pieces, uint8_t *value)
{
    struct wcursor w;
    wcursor_init(&w, value, JOURNAL_VALUE_MAX);
    wcursor_put_u32le(&w, NAME_HEAD_MAGIC);
    wcursor_put_u32le(&w, NAME_HEAD_VERSION);
    wcursor_put_u8(&w, nm->kind);
    wcursor_put_u8(&w, nm->priority);
    wcursor_put_u8(&w, nm->pinned);
    names_write_put_text(&w, nm->name);
    names_write_put_text(&w, nm->sub);
    names_write_put_text(&w, nm->principal_name);
    names_write_put_text(&w, nm->tenant);
    wcursor_put_u64le(&w, nm->print);
    wcursor_put_u32le(&w, nm->tokens);
    wcursor_put_u32le(&w, nm->blocks);
    wcursor_put_u64le(&w, nm->bytes);
    wcursor_put_u64le(&w, nm->ttl_ms);
    wcursor_put_u64le(&w, nm->made_ms);
    wcursor_put_u64le(&w, nm->used_ms);
    wcursor_put_u32le(&w, key_pieces);
    wcursor_put_u32le(&w, nm->nids);
    MUST(wcursor_ok(&w)); /* four texts of 127 bytes leave a third of the room */
    return (uint32_t)wcursor_len(&w);
}

static void note_key(struct names *n, uint32_t group, uint32_t place, const struct key256 *key)
{
    struct wcursor w;
    MUST(n->w_keys < NAMES_W_KEYS);
    wcursor_init(&w, n->w_key + (size_t)n->w_keys++ * NAMES_KEY_ROOM, NAMES_KEY_ROOM);
    wcursor_put_u8(&w, (uint8_t)group);
    wcursor_put_u32le(&w, place);
    wcursor_put(&w, key->b, KVC_KEY_BYTES);
}

/* Notes the keys of the blocks that the name holds. In FULL groups, behind the tip's, those of
 * blocks ever further before it, so that most of the chain is found again when its end is lost. */
static void note_keys(struct core *c, const struct core_name *nm)
{
    struct names *n = c->names;
    n->w_keys = 0;
    for (uint32_t no = nm->refs; no != CORE_NONE; no = n->ref[no].next_of_name) {
        const struct name_ref *r = &n->ref[no];
        const struct block *b = &c->blocks[r->block];
        if (block_group(c, b)->rule != KVC_RULE_FULL) {
            note_key(n, r->group, r->place, &b->key);
            continue;
        }
        const uint32_t tip = b->depth;
        for (uint32_t back = 0;; b = &c->blocks[b->parent]) {
            if (tip - b->depth == back || b->parent == CORE_NONE) {
                note_key(n, r->group, b->depth, &b->key);
                back = MAX(1u, 2 * back);
            }
            if (b->parent == CORE_NONE)
                break;
        }
    }
}

static void write_begin(struct core *c, const struct core_name *nm)
{
    struct names *n = c->names;
    note_keys(c, nm);
    n->w_name = name_no(c, nm);
    n->w_content = nm->content;
    n->w_key_pieces = (n->w_keys + NAMES_KEYS - 1) / NAMES_KEYS;
    n->w_pieces = n->w_key_pieces + (nm->nids + NAMES_IDS - 1) / NAMES_IDS;
    n->w_ids = nm->ids;
    n->w_next = 1;
}

/* Gives up the content that is being written: its pieces will be deleted from the journal. */
static void names_write_give_up(struct names *n)
{
    if (n->w_content)
        name_stale(n, n->w_content, 1, n->w_next - 1);
    n->w_content = 0;
}

static void put_piece(struct names *n)
{
    struct name_commit *m = &n->commit;
    uint8_t *value = write_change(m, names_write_key_of(n->w_content, n->w_next));
    if (n->w_next <= n->w_key_pieces) {
        const uint32_t first = (n->w_next - 1) * NAMES_KEYS,
                       keys = MIN(NAMES_KEYS, n->w_keys - first);
        memcpy(value, n->w_key + (size_t)first * NAMES_KEY_ROOM, (size_t)keys * NAMES_KEY_ROOM);
        write_put(m, keys * NAMES_KEY_ROOM);
    } else {
        const struct name_ids *ids = &n->ids[n->w_ids];
        memcpy(value, ids->id, (size_t)ids->n * 4);
        write_put(m, ids->n * 4);
        n->w_ids = ids->next;
    }
    n->w_next++;
}

static void note_head(struct core *c, struct core_name *nm, uint64_t content, uint32_t keys,
                      uint32_t pieces)
{
    struct name_commit *m = &c->names->commit;
    m->head[m->nheads].name = name_no(c, nm);
    m->head[m->nheads].content = content;
    m->head[m->nheads].keys = keys;
    m->head[m->nheads++].pieces = pieces;
    nm->in_flight = true;
}

static void drop_written(struct names *n, const struct core_name *nm)
{
    if (!nm->written)
        return;
    (void)write_change(&n->commit, names_write_key_of(nm->written, 0));
    name_stale(n, nm->written, 1, nm->written_pieces);
}

/* Adds a name's pieces to the commit. False: the commit is full before the last one. */
static bool write_one(struct core *c, struct core_name *nm)
{
    struct names *n = c->names;
    struct name_commit *m = &n->commit;
    const bool same = n->w_content == nm->content && n->w_name == name_no(c, nm);
    if (!same || nm->state == NAME_GOING)
        names_write_give_up(n);
    if (!names_write_room_for(m, 2))
        return false;
    if (nm->state == NAME_GOING) {
        drop_written(n, nm);
        note_head(c, nm, 0, 0, 0);
        return true;
    }
    if (nm->written == nm->content) { /* the name was used, not changed: only its head is new */
        write_put(
            m, put_head(nm, nm->written_keys, write_change(m, names_write_key_of(nm->content, 0))));
        note_head(c, nm, nm->content, nm->written_keys, nm->written_pieces);
        return true;
    }
    if (!n->w_content)
        write_begin(c, nm);
    for (; n->w_next <= n->w_pieces; put_piece(n))
        if (!names_write_room_for(m, 1))
            return false;
    if (!names_write_room_for(m, 2))
        return false;
    write_put(m,
              put_head(nm, n->w_key_pieces, write_change(m, names_write_key_of(nm->content, 0))));
    drop_written(n, nm);
    note_head(c, nm, nm->content, n->w_key_pieces, n->w_pieces);
    n->w_content = 0;
    return true;
}

/* ---- commits ---- */

void name_write(struct core *c, struct core_name *nm)
{
    struct names *n = c->names;
    const bool known = nm->written || nm->in_flight;
    if (n->journal && !n->error && (nm->state == NAME_LIVE || known)) {
        if (!list_is_linked(&nm->write))
            list_push_back(&n->writing, &nm->write);
        return;
    }
    list_remove(&nm->write);
    if (nm->state == NAME_GOING)
        name_free(c, nm);
}

static void write_landed(struct core *c, uint32_t i)
{
    const struct name_commit *m = &c->names->commit;
    struct core_name *nm = &c->names->name[m->head[i].name];
    nm->in_flight = false;
    nm->written = m->head[i].content;
    nm->written_keys = m->head[i].keys;
    nm->written_pieces = m->head[i].pieces;
    c->m.names_written++;
    name_wake(c, nm, 0);
    if (nm->state != NAME_GOING)
        return;
    if (nm->written)
        name_write(c, nm);
    else
        name_free(c, nm);
}

/* The journal has failed: names live on in memory alone. */
static void journal_lost(struct core *c)
{
    struct names *n = c->names;
    for (uint32_t i = 0; i < n->high; i++) {
        struct core_name *nm = &n->name[i];
        if (nm->state == NAME_FREE)
            continue;
        nm->in_flight = false;
        name_wake(c, nm, KVC_E_TIER);
        name_write(c, nm);
    }
}

void core_names_fail(struct core *c, int err)
{
    MUST(err < 0);
    if (!c->names)
        return;
    c->names->error = err;
    c->m.names_error = (uint64_t)-err;
    journal_lost(c);
}

void core_names_begin(struct core *c, struct journal *journal)
{
    struct names *n = c->names;
    MUST(n && n->error && !n->journal);
    n->journal = journal;
    n->error = 0;
    c->m.names_error = 0;
    for (uint32_t i = 0; i < n->high; i++)
        if (n->name[i].state == NAME_LIVE)
            name_write(c, &n->name[i]);
}

/* The error of the journal if its file's name leads elsewhere: the next start would read another
 * file. */
static int journal_standing(const struct names *n)
{
    return n->journal && n->journal->ops->stands ? n->journal->ops->stands(n->journal) : 0;
}

void names_look(struct core *c)
{
    struct names *n = c->names;
    if (n->error || c->now_ns < n->look_ns)
        return;
    n->look_ns = c->now_ns + NAMES_LOOK_NS;
    const int gone = journal_standing(n);
    if (gone < 0)
        core_names_fail(c, gone);
}

static void on_done(struct journal_txn *commit)
{
    struct core *c = commit->ctx;
    struct names *n = c->names;
    const uint32_t heads = n->commit.nheads;
    n->commit.in_flight = false;
    /* After a failure all waiters were called already, and slots may have other names now. */
    if (n->error)
        return;
    const int err = commit->result ? commit->result : journal_standing(n);
    if (err) {
        core_names_fail(c, err);
        return;
    }
    for (uint32_t i = 0; i < heads; i++)
        write_landed(c, i);
    names_write_step(c);
}

void names_write_step(struct core *c)
{
    struct names *n = c->names;
    struct name_commit *m = &n->commit;
    if (!n->journal || n->error || m->in_flight || (list_empty(&n->writing) && n->stale_n == 0))
        return;
    m->n = m->nheads = 0;
    for (struct list_node *node; (node = list_first(&n->writing));) {
        struct core_name *nm = CONTAINER_OF(node, struct core_name, write);
        if (!write_one(c, nm))
            break;
        list_remove(node);
    }
    stale_sweep(n);
    if (m->n == 0)
        return;
    m->in_flight = true;
    m->commit = (struct journal_txn){.change = m->change, .n = m->n, .done = on_done, .ctx = c};
    n->journal->ops->commit(n->journal, &m->commit);
}

void core_names_stop(struct core *c)
{
    if (c->names)
        c->names->journal = NULL;
}

int core_names_error(const struct core *c)
{
    return c->names ? c->names->error : 0;
}

bool core_names_is_quiet(const struct core *c)
{
    const struct names *n = c->names;
    return !n || (!n->commit.in_flight &&
                  (!n->journal || n->error || (list_empty(&n->writing) && n->stale_n == 0)));
}
