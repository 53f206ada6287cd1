/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_disk.h"

#include <stdlib.h>
#include <string.h>

#define OPS_MAX 8192u
#define SECTOR  512u

struct written {
    struct written *next;
    uint64_t serial, off, bytes;
    uint8_t data[];
};

struct fake_disk {
    struct disk disk;
    uint64_t bytes, random, ops, serial, fail_in;
    int fail_error;
    unsigned fail_per_mille, misdirect_per_mille;
    bool off;
    struct {
        uint8_t *now, *stable;
        uint8_t *away; /* NULL: zeros */
        uint64_t written;
        int broken;
        bool stalled, gone, cut;
        uint64_t bad_off, bad_bytes; /* cannot be read */
        struct written *log, **tail; /* not synced, in order of completion */
    } path[DISK_PATHS_MAX];
    struct disk_op *op[OPS_MAX];
    unsigned inflight;
    void (*on_submit)(void *ctx, const struct disk_op *op);
    void *ctx;
};

uint64_t fake_rand(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x9e3779b97f4a7c15) >> 16;
}

static struct fake_disk *of(const struct disk *d)
{
    return (struct fake_disk *)(uintptr_t)d;
}

static void disk_submit(struct disk *disk, struct disk_op *op)
{
    struct fake_disk *d = of(disk);
    uint64_t sum = 0;
    MUST(op->path < disk->paths && d->inflight < OPS_MAX && op->done != NULL);
    for (uint32_t i = 0; i < op->iovs; i++) {
        MUST(((uintptr_t)op->iov[i].iov_base | op->iov[i].iov_len) % DISK_PAGE_BYTES == 0);
        MUST(op->iov[i].iov_len != 0);
        sum += op->iov[i].iov_len;
    }
    MUST(op->iovs <= DISK_IOV_MAX && sum == op->bytes && op->off % DISK_PAGE_BYTES == 0);
    MUST((op->kind == DISK_SYNC) == (op->iovs == 0) && op->off + op->bytes <= d->bytes);
    d->ops++;
    op->priv[0] = d->serial; /* a sync covers what has this or less */
    op->priv[1] = 0;
    op->priv[2] = d->off;
    if (d->on_submit != NULL && !d->off)
        d->on_submit(d->ctx, op);
    if (d->fail_in != 0 && --d->fail_in == 0)
        op->priv[1] = (uint64_t)-d->fail_error;
    d->op[d->inflight++] = op;
}

static uint64_t disk_bytes(const struct disk *disk, uint32_t path)
{
    (void)path;
    return of(disk)->bytes;
}

static int disk_stands(const struct disk *disk, uint32_t path)
{
    return of(disk)->path[path].gone ? -ENOENT : of(disk)->path[path].cut ? -ENODATA : 0;
}

static const struct disk_ops disk_ops = {
    .submit = disk_submit, .bytes = disk_bytes, .stands = disk_stands};

struct fake_disk *fake_disk_create(uint32_t paths, uint64_t bytes, uint64_t seed)
{
    struct fake_disk *d = calloc(1, sizeof(*d));
    MUST(d != NULL && paths <= DISK_PATHS_MAX && bytes % DISK_PAGE_BYTES == 0);
    d->disk = (struct disk){&disk_ops, paths};
    d->bytes = bytes;
    d->random = seed * 2 + 1;
    for (uint32_t i = 0; i < paths; i++) {
        d->path[i].now = calloc(1, bytes);
        d->path[i].stable = calloc(1, bytes);
        d->path[i].tail = &d->path[i].log;
        MUST(d->path[i].now != NULL && d->path[i].stable != NULL);
    }
    return d;
}

static void drop_log(struct fake_disk *d, uint32_t path)
{
    for (struct written *w = d->path[path].log, *next; w != NULL; w = next) {
        next = w->next;
        free(w);
    }
    d->path[path].log = NULL;
    d->path[path].tail = &d->path[path].log;
}

void fake_disk_destroy(struct fake_disk **disk)
{
    struct fake_disk *d = *disk;
    MUST(d->inflight == 0);
    for (uint32_t i = 0; i < d->disk.paths; i++) {
        drop_log(d, i);
        free(d->path[i].now);
        free(d->path[i].stable);
        free(d->path[i].away);
    }
    free(d);
    *disk = NULL;
}

struct disk *fake_disk_of(struct fake_disk *d)
{
    return &d->disk;
}

/* ---- the medium ---- */

static void land(struct fake_disk *d, const struct disk_op *op)
{
    uint64_t off = op->off;
    if (fake_rand(&d->random) % 1000 < d->misdirect_per_mille)
        off = fake_rand(&d->random) % ((d->bytes - op->bytes) / DISK_PAGE_BYTES + 1) *
              DISK_PAGE_BYTES;
    struct written *w = malloc(sizeof(*w) + op->bytes);
    MUST(w != NULL);
    *w = (struct written){.serial = ++d->serial, .off = off, .bytes = op->bytes};
    uint64_t at = 0;
    for (uint32_t i = 0; i < op->iovs; i++) {
        memcpy(w->data + at, op->iov[i].iov_base, op->iov[i].iov_len);
        at += op->iov[i].iov_len;
    }
    memcpy(d->path[op->path].now + off, w->data, op->bytes);
    if (off + op->bytes > d->path[op->path].written)
        d->path[op->path].written = off + op->bytes;
    *d->path[op->path].tail = w;
    d->path[op->path].tail = &w->next;
}

static void make_stable(struct fake_disk *d, const struct disk_op *op)
{
    struct written **at = &d->path[op->path].log;
    while (*at != NULL && (*at)->serial <= op->priv[0]) {
        struct written *w = *at;
        memcpy(d->path[op->path].stable + w->off, w->data, w->bytes);
        *at = w->next;
        free(w);
    }
    if (*at == NULL)
        d->path[op->path].tail = at;
}

static bool is_bad(const struct fake_disk *d, const struct disk_op *op)
{
    const uint64_t from = d->path[op->path].bad_off, to = from + d->path[op->path].bad_bytes;
    return op->kind == DISK_READ && op->off < to && from < op->off + op->bytes;
}

/* Sectors, pages, or all of it; each with even odds, all or none. */
static void land_incomplete(struct fake_disk *d, uint8_t *to, const struct written *w)
{
    const uint64_t odds = fake_rand(&d->random) % 4;
    const uint64_t unit = fake_rand(&d->random) % 2 != 0 ? SECTOR : DISK_PAGE_BYTES;
    for (uint64_t at = 0; at < w->bytes; at += unit)
        if (odds == 3 || (odds != 0 && fake_rand(&d->random) % 2 != 0))
            memcpy(to + w->off + at, w->data + at, unit);
}

static void end(struct fake_disk *d, struct disk_op *op)
{
    op->result = (int64_t)op->bytes;
    if (d->off) {
        if (op->kind == DISK_WRITE && op->priv[2] == 0 && fake_rand(&d->random) % 2 != 0)
            land(d, op); /* it was on its way */
        op->result = -EIO;
    } else if (op->priv[1] != 0) {
        op->result = -(int64_t)op->priv[1];
    } else if (d->path[op->path].broken != 0) {
        op->result = d->path[op->path].broken;
    } else if (is_bad(d, op) || fake_rand(&d->random) % 1000 < d->fail_per_mille) {
        op->result = -EIO;
    } else if (op->kind == DISK_WRITE) {
        land(d, op);
    } else if (op->kind == DISK_SYNC) {
        make_stable(d, op);
    } else {
        uint64_t at = op->off;
        for (uint32_t i = 0; i < op->iovs; i++) {
            memcpy(op->iov[i].iov_base, d->path[op->path].now + at, op->iov[i].iov_len);
            at += op->iov[i].iov_len;
        }
    }
    op->done(op);
}

unsigned fake_disk_run(struct fake_disk *d, unsigned n)
{
    unsigned ended = 0;
    for (unsigned tries = 0; ended < n && d->inflight != 0 && tries < 4 * n; tries++) {
        const unsigned i = (unsigned)(fake_rand(&d->random) % d->inflight);
        struct disk_op *op = d->op[i];
        if (d->path[op->path].stalled && !d->off)
            continue;
        d->op[i] = d->op[--d->inflight];
        end(d, op);
        ended++;
    }
    return ended;
}

unsigned fake_disk_inflight(const struct fake_disk *d)
{
    return d->inflight;
}

uint64_t fake_disk_ops(const struct fake_disk *d)
{
    return d->ops;
}

void fake_disk_fail_nth(struct fake_disk *d, uint64_t n, int error)
{
    d->fail_in = n;
    d->fail_error = error;
}

void fake_disk_fail(struct fake_disk *d, unsigned per_mille)
{
    d->fail_per_mille = per_mille;
}

void fake_disk_misdirect(struct fake_disk *d, unsigned per_mille)
{
    d->misdirect_per_mille = per_mille;
}

void fake_disk_break(struct fake_disk *d, uint32_t path, int error)
{
    d->path[path].broken = error;
}

void fake_disk_cut(struct fake_disk *d, uint32_t path, bool cut)
{
    d->path[path].cut = cut;
}

void fake_disk_stall(struct fake_disk *d, uint32_t path, bool stalled)
{
    d->path[path].stalled = stalled;
}

void fake_disk_unreadable(struct fake_disk *d, uint32_t path, uint64_t off, uint64_t bytes)
{
    d->path[path].bad_off = off;
    d->path[path].bad_bytes = bytes;
}

void fake_disk_unlink(struct fake_disk *d, uint32_t path, bool gone)
{
    d->path[path].gone = gone;
}

void fake_disk_wipe(struct fake_disk *d, uint32_t path, uint64_t bytes)
{
    drop_log(d, path);
    memset(d->path[path].now, 0, bytes);
    memcpy(d->path[path].stable, d->path[path].now, d->bytes);
}

void fake_disk_swap(struct fake_disk *d, uint32_t path)
{
    uint8_t *away = d->path[path].away != NULL ? d->path[path].away : calloc(1, d->bytes);
    MUST(away != NULL && d->inflight == 0);
    drop_log(d, path);
    d->path[path].away = d->path[path].now;
    d->path[path].now = away;
    memcpy(d->path[path].stable, away, d->bytes);
}

uint8_t *fake_disk_bytes(struct fake_disk *d, uint32_t path)
{
    return d->path[path].now;
}

const uint8_t *fake_disk_stable(const struct fake_disk *d, uint32_t path)
{
    return d->path[path].stable;
}

uint64_t fake_disk_written(const struct fake_disk *d, uint32_t path)
{
    return d->path[path].written;
}

void fake_disk_on_submit(struct fake_disk *d, void (*fn)(void *ctx, const struct disk_op *op),
                         void *ctx)
{
    d->on_submit = fn;
    d->ctx = ctx;
}

/* ---- journal ---- */

struct entry {
    struct entry *next;
    uint64_t key;
    uint32_t bytes;
    uint8_t value[JOURNAL_VALUE_MAX];
};
struct pending {
    struct pending *next;
    struct journal_txn *commit;
    uint32_t n;
    bool late;             /* begun when the machine was off already */
    struct entry change[]; /* bytes UINT32_MAX: the key goes */
};
struct fake_journal {
    struct journal journal;
    uint64_t random, commits, fail_in;
    int fail_error, dead;
    bool off, damaged, gone;
    struct entry *entry; /* in order of keys */
    struct entry *kept;
    struct pending *first, **tail;
    struct pending *left; /* what had not been reported when the machine went off */
    unsigned inflight;
    void (*on_commit)(void *ctx, const struct journal_txn *c);
    void *ctx;
};

static struct entry *copy_of(const struct entry *from)
{
    struct entry *first = NULL, **at = &first;
    for (; from != NULL; from = from->next) {
        *at = malloc(sizeof(**at));
        MUST(*at != NULL);
        **at = *from;
        at = &(*at)->next;
    }
    *at = NULL;
    return first;
}

static void drop(struct entry **list)
{
    while (*list != NULL) {
        struct entry *e = *list;
        *list = e->next;
        free(e);
    }
}

static void set(struct fake_journal *j, const struct entry *change)
{
    struct entry **at = &j->entry;
    while (*at != NULL && (*at)->key < change->key)
        at = &(*at)->next;
    if (*at != NULL && (*at)->key == change->key) {
        struct entry *old = *at;
        *at = old->next;
        free(old);
    }
    if (change->bytes == UINT32_MAX)
        return;
    struct entry *e = malloc(sizeof(*e));
    MUST(e != NULL);
    *e = *change;
    e->next = *at;
    *at = e;
}

static void journal_commit(struct journal *journal, struct journal_txn *c)
{
    struct fake_journal *j = (struct fake_journal *)journal;
    struct pending *p = calloc(1, sizeof(*p) + c->n * sizeof(p->change[0]));
    MUST(p != NULL && c->done != NULL && c->n != 0);
    p->commit = c;
    p->n = c->n;
    p->late = j->off;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct journal_change *from = &c->change[i];
        MUST(from->bytes <= JOURNAL_VALUE_MAX);
        p->change[i].key = from->key;
        p->change[i].bytes = from->value != NULL ? from->bytes : UINT32_MAX;
        if (from->value != NULL)
            memcpy(p->change[i].value, from->value, from->bytes);
    }
    j->commits++;
    if (j->fail_in != 0 && --j->fail_in == 0)
        j->dead = j->fail_error;
    *j->tail = p;
    j->tail = &p->next;
    j->inflight++;
    if (j->on_commit != NULL && !j->off && j->dead == 0)
        j->on_commit(j->ctx, c);
}

unsigned fake_journal_run(struct fake_journal *j, unsigned n)
{
    unsigned ended = 0;
    for (; ended < n && j->first != NULL; ended++) {
        struct pending *p = j->first;
        struct journal_txn *c = p->commit;
        j->first = p->next;
        if (j->first == NULL)
            j->tail = &j->first;
        j->inflight--;
        c->result = j->off ? -EIO : j->dead;
        for (uint32_t i = 0; c->result == 0 && i < p->n; i++)
            set(j, &p->change[i]);
        if (j->off && j->dead == 0 && !p->late) {
            struct pending **last = &j->left;
            while (*last != NULL)
                last = &(*last)->next;
            p->next = NULL;
            *last = p;
        } else {
            free(p);
        }
        c->done(c);
    }
    return ended;
}

int fake_journal_each(const struct fake_journal *j, journal_each_fn *each, void *ctx)
{
    int r = 0;
    for (const struct entry *e = j->entry; e != NULL && r == 0; e = e->next)
        r = each(ctx, e->key, e->value, e->bytes);
    return r;
}

static int journal_walk(struct journal *journal, journal_each_fn *each, void *ctx)
{
    const struct fake_journal *j = (const struct fake_journal *)journal;
    const int r = fake_journal_each(j, each, ctx);
    return r == 0 && j->damaged ? -EUCLEAN : r;
}

static int journal_clear(struct journal *journal)
{
    struct fake_journal *j = (struct fake_journal *)journal;
    if (j->off)
        return -EIO;
    drop(&j->entry);
    j->damaged = false;
    return 0;
}

static int journal_stands(const struct journal *journal)
{
    return ((const struct fake_journal *)journal)->gone ? -ENOENT : 0; /* its first member */
}

static const struct journal_ops journal_ops = {.commit = journal_commit,
                                               .walk = journal_walk,
                                               .clear = journal_clear,
                                               .stands = journal_stands};

struct fake_journal *fake_journal_create(uint64_t seed)
{
    struct fake_journal *j = calloc(1, sizeof(*j));
    MUST(j != NULL);
    j->journal.ops = &journal_ops;
    j->random = seed * 2 + 1;
    j->tail = &j->first;
    return j;
}

void fake_journal_destroy(struct fake_journal **journal)
{
    struct fake_journal *j = *journal;
    MUST(j->inflight == 0 && j->left == NULL);
    j->off = false;
    MUST(journal_clear(&j->journal) == 0);
    drop(&j->kept);
    free(j);
    *journal = NULL;
}

struct journal *fake_journal_of(struct fake_journal *j)
{
    return &j->journal;
}

unsigned fake_journal_inflight(const struct fake_journal *j)
{
    return j->inflight;
}

uint64_t fake_journal_commits(const struct fake_journal *j)
{
    return j->commits;
}

void fake_journal_fail_nth(struct fake_journal *j, uint64_t n, int error)
{
    j->fail_in = n;
    j->fail_error = error;
}

void fake_journal_unlink(struct fake_journal *j)
{
    j->gone = true;
}

void fake_journal_damage(struct fake_journal *j)
{
    j->damaged = true;
}

void fake_journal_keep(struct fake_journal *j)
{
    drop(&j->kept);
    j->kept = copy_of(j->entry);
}

void fake_journal_back(struct fake_journal *j)
{
    MUST(j->inflight == 0);
    drop(&j->entry);
    j->entry = copy_of(j->kept);
}

void fake_journal_on_commit(struct fake_journal *j,
                            void (*fn)(void *ctx, const struct journal_txn *c), void *ctx)
{
    j->on_commit = fn;
    j->ctx = ctx;
}

/* ---- the machine ---- */

void fake_off(struct fake_disk *d, struct fake_journal *j)
{
    d->off = j->off = true;
    d->misdirect_per_mille = 0;
}

static void lose_power(struct fake_disk *d, uint32_t path)
{
    for (const struct written *w = d->path[path].log; w != NULL; w = w->next)
        land_incomplete(d, d->path[path].stable, w);
    memcpy(d->path[path].now, d->path[path].stable, d->bytes);
    drop_log(d, path);
}

void fake_on(struct fake_disk *d, struct fake_journal *j, bool power)
{
    MUST(d->inflight == 0 && j->inflight == 0);
    for (uint32_t i = 0; i < d->disk.paths; i++) {
        if (power)
            lose_power(d, i);
        d->path[i].broken = 0;
        d->path[i].stalled = false;
    }
    uint64_t stay = 0;
    for (const struct pending *p = j->left; p != NULL; p = p->next)
        stay++;
    stay = fake_rand(&j->random) % (stay + 1);
    while (j->left != NULL) {
        struct pending *p = j->left;
        j->left = p->next;
        for (uint32_t i = 0; stay != 0 && i < p->n; i++)
            set(j, &p->change[i]);
        stay -= stay != 0;
        free(p);
    }
    d->off = j->off = false;
    d->fail_in = j->fail_in = 0;
    d->fail_per_mille = d->misdirect_per_mille = 0;
    j->dead = 0;
}
