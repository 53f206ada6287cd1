/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From written to safe: a path's writes are synced, then durable PUTs end, then the journal learns
 * of the extents.
 *
 * A durable PUT waits for the journal only in a segment of which the journal names nothing, for
 * only there recovery would not find it (nvme_rebuild.c). Each path syncs by itself. The journal
 * takes one commit at a time. With the new extents it gets the deaths in old ones, the deletions of
 * segments that are to be reused, the write budget, and the forward mark of each path.
 */
#include "cursor.h"
#include "nvme__.h"

/* How long a durable extent waits for its commit. Recovery must read the blocks of extents that the
 * journal does not name: in 50 ms a drive that writes 4 GB/s takes 200 MB. */
#define COMMIT_NS (UINT64_C(50) * 1000000)

/* ---- sync ---- */

/* With a path out, deaths.open may not fall for long, so durable PUTs do not wait for it. */
bool nvme__have_entries(const struct nvme *n)
{
    bool up = true;
    for (uint32_t i = 0; i < n->paths; i++)
        up = up && nvme__path_up(&n->path[i]);
    return n->entries.used + n->deaths.synced + n->deaths.committing + (up ? n->deaths.open : 0) <=
           n->entries.max;
}

/* Whether recovery is certain to find the extent after a crash. */
static bool is_kept(const struct nvme *n, const struct nvme_extent *x)
{
    return x->state == NVME_X_COMMITTED ||
           ((x->state == NVME_X_SYNCED || x->state == NVME_X_COMMITTING) && n->seg[x->seg].named);
}

void nvme__durable_end(struct nvme *n, struct nvme_path *p, int status)
{
    struct tier_op *prev = NULL;
    for (struct tier_op *op = p->durable.n != 0 ? p->durable.head : NULL, *next; op != NULL;
         op = next) {
        struct nvme_entry *e = nvme__entry(n, op->loc);
        const bool late = op->deadline_ns != 0 && op->deadline_ns <= n->now_ns;
        next = op->next;
        if (is_kept(n, &n->extent[e->extent])) {
            e->state = NVME_E_WRITTEN;
            nvme__finish(n, nvme__ops_cut(&p->durable, prev), 0);
        } else if (status != 0 || late) {
            nvme__put_failed(n, nvme__ops_cut(&p->durable, prev),
                             status != 0 ? status : -ETIMEDOUT);
        } else {
            if (n->extent[e->extent].state == NVME_X_SYNCED)
                n->commit.due_ns = n->now_ns;
            prev = op;
        }
    }
}

void nvme__written(struct nvme *n, struct nvme_path *p, uint32_t extent)
{
    MUST(n->extent[extent].state == NVME_X_WRITING);
    n->extent[extent].state = NVME_X_WRITTEN;
    p->sync.written_seq = MIN(p->sync.written_seq, n->extent[extent].seq);
    nvme__extents_push(n, &p->sync.written, extent);
}

/* The extent's table may be on the medium with a torn payload behind it, so no later table may call
 * the extent synced: since_seq is set behind it. */
void nvme__extent_lost(struct nvme *n, uint32_t extent)
{
    MUST(n->extent[extent].state != NVME_X_FREE && n->extent[extent].state < NVME_X_SYNCED);
    MUST(n->deaths.open >= nvme__dead_of(&n->extent[extent]));
    n->deaths.open -= nvme__dead_of(&n->extent[extent]);
    n->extent[extent].state = NVME_X_LOST;
    nvme__extents_push(n, &n->lost, extent);
    n->store.since_seq = n->store.seq_count + 1;
    n->commit.tell_forward_mark = true;
    nvme__commit_soon(n);
}

/* A free nvme_write still names its last extent, which is freed, or not WRITING, or counted through
 * the write that uses it now. */
uint64_t nvme__safe_seq(const struct nvme *n)
{
    uint64_t open = n->store.seq_count + 1;
    for (uint32_t i = 0; i < n->writes.n; i++) {
        const struct nvme_extent *x = &n->extent[n->writes.at[i].extent];
        if (x->state == NVME_X_WRITING)
            open = MIN(open, x->seq);
    }
    for (uint32_t i = 0; i < n->paths; i++)
        open = MIN(open, MIN(n->path[i].sync.written_seq, n->path[i].sync.syncing_seq));
    return open - 1;
}

/* ---- forward marks ---- */

static uint64_t forward_mark_of(const struct nvme *n, const struct nvme_path *p)
{
    uint64_t open = nvme__sooner(n->store.seq_count + 1,
                                 nvme__sooner(p->sync.written_seq, p->sync.syncing_seq));
    if (p->hold_forward_mark || p->absent)
        return p->forward_mark;
    for (uint32_t i = 0; i < n->writes.n; i++) {
        const struct nvme_extent *x = &n->extent[n->writes.at[i].extent];
        if (x->state == NVME_X_WRITING && n->seg[x->seg].path == p->number)
            open = nvme__sooner(open, x->seq);
    }
    for (uint32_t at = n->synced.n != 0 ? n->synced.head : NVME_NONE; at != NVME_NONE;
         at = n->extent[at].next)
        if (n->seg[n->extent[at].seg].path == p->number)
            open = nvme__sooner(open, n->extent[at].seq);
    return open - 1;
}

uint32_t nvme__forward_mark_save(struct nvme *n, uint8_t ret_value[NVME_VALUE_BYTES])
{
    struct wcursor w;
    bool changed = false;
    wcursor_init(&w, ret_value, NVME_VALUE_BYTES);
    for (uint32_t i = 0; i < n->paths; i++) {
        struct nvme_path *p = &n->path[i];
        const uint64_t is = forward_mark_of(n, p);
        changed = changed || is != p->forward_mark;
        p->forward_mark = is;
        wcursor_put_u64le(&w, is);
    }
    MUST(wcursor_ok(&w));
    n->commit.tell_forward_mark = false;
    return changed ? (uint32_t)wcursor_len(&w) : 0;
}

int nvme__forward_mark_load(struct nvme *n, const void *value, uint32_t bytes)
{
    struct cursor c;
    cursor_init(&c, value, bytes);
    for (uint32_t i = 0; i < n->paths && cursor_left(&c) != 0; i++)
        n->path[i].forward_mark = cursor_u64le(&c);
    return cursor_ok(&c) ? 0 : -EUCLEAN;
}

/* ---- losses ---- */

static void lose(struct nvme *n, struct nvme_extents *list)
{
    uint32_t extent;
    while ((extent = nvme__extents_pop(n, list)) != NVME_NONE)
        nvme__extent_lost(n, extent);
}

void nvme__sync_failed(struct nvme *n, struct nvme_path *p)
{
    nvme__durable_end(n, p, -EIO);
    p->era++;
    p->sync.due_ns = UINT64_MAX;
    p->sync.written_pages = 0;
    p->sync.written_seq = p->sync.syncing_seq = UINT64_MAX;
    lose(n, &p->sync.syncing);
    lose(n, &p->sync.written);
    for (unsigned which = 0; which < NVME_CLASSES; which++) {
        const uint32_t seg = p->open[which].seg;
        if (seg == NVME_NONE)
            continue;
        n->seg[seg].broken = true;
        nvme__seg_close(n, seg);
    }
}

static void on_synced(struct nvme_io *io)
{
    struct nvme *n = io->n;
    struct nvme_path *p = &n->path[io->op.path];
    uint32_t extent;
    MUST(p->sync.busy);
    p->sync.busy = false;
    if (io->op.result < 0)
        return; /* nvme__health_io() has called nvme__sync_failed() */
    p->sync.dead_synced = p->sync.dead_syncing;
    p->sync.syncing_seq = UINT64_MAX;
    while ((extent = nvme__extents_pop(n, &p->sync.syncing)) != NVME_NONE) {
        struct nvme_extent *x = &n->extent[extent];
        const uint64_t wait = (x->flags & NVME_X_DURABLE) != 0 ? COMMIT_NS : 0;
        MUST(x->state == NVME_X_SYNCING && n->deaths.open >= nvme__dead_of(x));
        x->state = NVME_X_SYNCED;
        n->deaths.open -= nvme__dead_of(x);
        n->deaths.synced += nvme__dead_of(x);
        nvme__extents_push(n, &n->synced, extent);
        n->commit.due_ns = nvme__sooner(n->commit.due_ns, n->now_ns + wait);
    }
}

static void sync_path(struct nvme *n, struct nvme_path *p)
{
    uint32_t extent;
    const bool tables = nvme__confirming(n) && p->sync.dead_synced < p->sync.dead_wrote;
    if (p->sync.busy || !nvme__path_up(p) || (p->sync.written.n == 0 && !tables))
        return;
    if (p->durable.n == 0 && p->sync.due_ns > n->now_ns && !n->flushing && !nvme__confirming(n))
        return;
    p->sync.busy = true;
    p->sync.due_ns = UINT64_MAX;
    p->sync.written_pages = 0;
    p->sync.dead_syncing = p->sync.dead_wrote;
    p->sync.syncing_seq = p->sync.written_seq;
    p->sync.written_seq = UINT64_MAX;
    while ((extent = nvme__extents_pop(n, &p->sync.written)) != NVME_NONE) {
        n->extent[extent].state = NVME_X_SYNCING;
        nvme__extents_push(n, &p->sync.syncing, extent);
    }
    nvme__issue(n, &p->sync.io, DISK_SYNC, p, NULL, 0, 0, 0, on_synced);
}

/* ---- commit ---- */

static uint64_t nvme_sync_key_of(const struct nvme *n, const struct nvme_extent *x)
{
    return nvme__key(n->seg[x->seg].path, nvme__extent_page(n, x));
}

static void change_put(struct nvme *n, uint32_t extent)
{
    struct nvme_commit *k = &n->commit;
    struct nvme_extent *x = &n->extent[extent];
    struct nvme_value v;
    MUST(!k->busy && k->txn.n < NVME_COMMIT_MAX); /* the journal has it while busy */
    const uint32_t i = k->txn.n++;
    nvme__value(n, extent, &v);
    x->flags &= (uint8_t)~NVME_X_DIRTY;
    k->change[i] = (struct journal_change){.key = nvme_sync_key_of(n, x),
                                           .value = k->value[i],
                                           .bytes = nvme__value_encode(&v, k->value[i])};
    n->m.bytes_journal += k->change[i].bytes;
}

static void gather_new(struct nvme *n)
{
    uint32_t extent;
    while (n->commit.txn.n < NVME_COMMIT_MAX - NVME_COMMIT_KEPT &&
           (extent = nvme__extents_pop(n, &n->synced)) != NVME_NONE) {
        n->extent[extent].state = NVME_X_COMMITTING;
        change_put(n, extent);
        if (nvme__dead_of(&n->extent[extent]) != 0)
            nvme__dead_add(n, extent);
        nvme__extents_push(n, &n->commit.extents, extent);
    }
}

static void gather_dirty(struct nvme *n)
{
    uint32_t extent;
    while (n->commit.txn.n < NVME_COMMIT_MAX - NVME_COMMIT_KEPT &&
           (extent = nvme__extents_pop(n, &n->dirty.list)) != NVME_NONE) {
        struct nvme_extent *x = &n->extent[extent];
        x->flags &= (uint8_t)~NVME_X_LISTED;
        if ((x->flags & (NVME_X_DIRTY | NVME_X_UNREAD)) == NVME_X_DIRTY &&
            n->seg[x->seg].state != NVME_S_DELETING) {
            change_put(n, extent);
            nvme__dead_add(n, extent);
        }
    }
}

/* Deletes the extents of segments in state DELETING, which may take several commits. Such extents
 * may be on the list n->dirty, so it must be empty first. */
static void gather_deleted(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    if (n->dirty.list.n != 0)
        return;
    for (uint32_t seg = n->seg_use.delete_head; seg != NVME_NONE; seg = n->seg[seg].next) {
        struct nvme_seg *s = &n->seg[seg];
        while (s->extents != NVME_NONE && k->txn.n < NVME_COMMIT_MAX - NVME_COMMIT_KEPT) {
            const uint32_t extent = s->extents;
            s->extents = n->extent[extent].seg_next;
            k->change[k->txn.n++] =
                (struct journal_change){.key = nvme_sync_key_of(n, &n->extent[extent])};
            if ((n->extent[extent].flags & NVME_X_BURIED) == 0)
                nvme__dead_add(n, extent);
            n->extent[extent].next = k->deleted;
            k->deleted = extent;
            s->pending++; /* until the commit is done */
        }
    }
}

static void gather_forward_mark(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    const uint32_t i = k->txn.n;
    const uint32_t bytes = nvme__forward_mark_save(n, k->value[i]);
    if (bytes == 0)
        return;
    k->change[i] =
        (struct journal_change){.key = NVME_KEY_FORWARD, .value = k->value[i], .bytes = bytes};
    k->txn.n++;
    n->m.bytes_journal += bytes;
}

static void gather_budget(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    const uint32_t i = k->txn.n;
    if (!n->budget.changed)
        return;
    n->budget.changed = false;
    k->change[i] = (struct journal_change){
        .key = NVME_KEY_BUDGET, .value = k->value[i], .bytes = nvme__budget_save(n, k->value[i])};
    k->txn.n++;
}

static void finish_deleted(struct nvme *n)
{
    while (n->commit.deleted != NVME_NONE) {
        const uint32_t extent = n->commit.deleted;
        n->commit.deleted = n->extent[extent].next;
        MUST(n->seg[n->extent[extent].seg].pending > 0);
        n->seg[n->extent[extent].seg].pending--;
        nvme__extent_free(n, extent);
    }
    nvme__segs_deleted(n);
}

static void finish_new(struct nvme *n)
{
    uint32_t extent;
    while ((extent = nvme__extents_pop(n, &n->commit.extents)) != NVME_NONE) {
        struct nvme_extent *x = &n->extent[extent];
        MUST(x->state == NVME_X_COMMITTING && n->seg[x->seg].pending > 0);
        x->state = NVME_X_COMMITTED;
        n->seg[x->seg].named = true;
        n->seg[x->seg].pending--;
        if ((x->flags & NVME_X_DIRTY) != 0) {
            nvme__dirty(n, extent);
            nvme__commit_soon(n);
        }
        nvme__seg_look(n, x->seg);
    }
}

void nvme__journal_failed(struct nvme *n, int error)
{
    n->journal_error = error;
    n->commit.due_ns = UINT64_MAX;
    for (uint32_t i = 0; i < n->paths; i++)
        nvme__durable_end(n, &n->path[i], -EIO);
}

/* Extents that were changed while their change was on its way are dirty again. */
static void on_committed(struct journal_txn *commit)
{
    struct nvme *n = commit->ctx;
    MUST(n->commit.busy && !n->commit.telling);
    n->commit.busy = false;
    if (n->journal_error == 0 && commit->result == 0) {
        n->m.commits++;
        n->deaths.committing = 0;
        n->dirty.out = n->commit.dirty;
        n->work = true; /* durable PUTs may have waited for deaths.committing to be 0 */
        finish_new(n);
        finish_deleted(n);
        for (uint32_t i = 0; i < n->paths; i++)
            nvme__durable_end(n, &n->path[i], 0);
    } else if (n->journal_error == 0) {
        nvme__journal_failed(n, commit->result);
    }
    nvme__sync_run(n);
    nvme__call_done(n);
}

static bool has_news(const struct nvme *n)
{
    return n->synced.n != 0 || n->dirty.list.n != 0 || n->seg_use.delete_head != NVME_NONE ||
           n->commit.tell_forward_mark;
}

static bool commit_wanted(const struct nvme *n)
{
    if (n->commit.busy || n->journal_error != 0)
        return false;
    const bool due = n->commit.due_ns <= n->now_ns || n->flushing || nvme__confirming(n) ||
                     (n->seg_use.delete_head != NVME_NONE && n->seg_use.free <= nvme__held_segs(n));
    return due && (has_news(n) || n->budget.changed);
}

/* Hands the commit to the journal when its dead sectors are written, so that the journal never
 * knows more deaths than the tables. */
static void commit_go(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    if (!k->telling || !nvme__dead_run(n))
        return;
    k->telling = false;
    n->journal->ops->commit(n->journal, &k->txn);
}

static void commit_start(struct nvme *n)
{
    struct nvme_commit *k = &n->commit;
    k->txn = (struct journal_txn){.change = k->change, .done = on_committed, .ctx = n};
    k->deleted = NVME_NONE;
    k->tell_n = k->told = 0;
    n->commit.due_ns = UINT64_MAX;
    gather_new(n);
    gather_dirty(n);
    k->dirty = n->dirty.in - n->dirty.list.n;
    gather_deleted(n);
    gather_budget(n);
    gather_forward_mark(n);
    if (n->synced.n == 0 && n->dirty.list.n == 0) { /* the commit tells of all deaths */
        n->deaths.committing = n->deaths.synced;
        n->deaths.synced = 0;
    }
    if (n->synced.n != 0)
        n->commit.due_ns = n->now_ns;
    if (n->dirty.list.n != 0 || n->seg_use.delete_head != NVME_NONE)
        nvme__commit_soon(n);
    if (k->txn.n == 0) {
        n->dirty.out = k->dirty;
        return;
    }
    k->busy = k->telling = true;
    commit_go(n);
}

void nvme__sync_run(struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        if (n->path[i].durable.n != 0)
            nvme__durable_end(n, &n->path[i], n->journal_error != 0 ? -EIO : 0);
        sync_path(n, &n->path[i]);
    }
    commit_go(n);
    nvme__confirm_run(n);
    if (commit_wanted(n))
        commit_start(n);
    else if (!n->commit.busy && !has_news(n))
        n->commit.due_ns = n->budget.changed ? n->commit.due_ns : UINT64_MAX;
    if (n->flushing && nvme__sync_idle(n))
        n->flushing = false;
}

uint64_t nvme__sync_next(const struct nvme *n)
{
    uint64_t at = n->commit.busy || n->journal_error != 0 ? UINT64_MAX : n->commit.due_ns;
    for (uint32_t i = 0; i < n->paths; i++)
        if (!n->path[i].sync.busy && nvme__path_up(&n->path[i]))
            at = nvme__sooner(at, n->path[i].sync.due_ns);
    return at;
}

/* Whether nothing waits for a sync or a commit. Extents that a path has not synced do not count
 * while it is out. */
bool nvme__sync_idle(const struct nvme *n)
{
    for (uint32_t i = 0; i < n->paths; i++) {
        const struct nvme_path *p = &n->path[i];
        if (p->sync.busy || p->sync.syncing.n != 0 || p->writes != 0 ||
            (p->sync.written.n != 0 && nvme__path_up(p)))
            return false;
    }
    if (n->commit.busy || nvme__dead_busy(n))
        return false;
    return n->journal_error != 0 || !has_news(n);
}
