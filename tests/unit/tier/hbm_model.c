/* SPDX-License-Identifier: Apache-2.0 */
#include "hbm_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "hbm__.h"

#define SLOTS_MAX  96u
#define BLOCKS     64u /* in host memory */
#define BLOCK_ROOM (64u * 1024)
#define POOLS      3u
#define COPIES     24u
#define PIECES     6u
#define PRINCIPALS 3u
#define LOANS      24u

/* Bytes are told by where they come from: a seed, and how many. 0: anything. */
struct slot {
    bool used, labelled, dead;
    uint32_t busy;
    struct tier_loc loc;
    uint32_t principal, bytes;
    uint64_t seed;
    uint64_t gen;
};

struct pool {
    bool open; /* for the test; memory stays while `copies` */
    uint32_t copies;
    uint32_t losts; /* at the time: void when there were more */
    bool page_busy[RIG_PAGES_MAX];
    struct rig_pool p;
};

/* A worker's mapping of a chunk, which it keeps as long as it likes. */
struct loan {
    uint32_t chunk; /* 0: none */
    uint64_t inode; /* of the memory, which stays there: another has another one */
    void *at;
    uint64_t bytes;
};

struct copy {
    struct rig_copy c;
    bool used;
    bool cancelled, timed, waits;
    bool doomed; /* the device was out, or its pool void, when it was submitted */
    uint32_t losts;
    struct pool *pool;
    uint32_t slot[PIECES], block[PIECES]; /* UINT32_MAX: none */
    bool bad[PIECES];
    _Atomic uint64_t word, ready;
};

struct model {
    struct rig r;
    const struct hbm_drive *drive;
    struct slot slot[SLOTS_MAX];
    uint64_t block_seed[BLOCKS];
    uint32_t block_busy[BLOCKS];
    struct pool pool[POOLS];
    struct copy copy[COPIES];
    struct loan loan[LOANS];
    uint64_t next_seed;
    bool starved; /* at any time */
    struct hbm_counts n;
    uint8_t bytes[BLOCK_ROOM];
};
static struct model model;

static uint32_t below(struct model *m, uint32_t n)
{
    return rig_below(&m->r, n);
}

static uint8_t *block_at(struct model *m, uint32_t i)
{
    return m->r.host + (uint64_t)i * BLOCK_ROOM;
}

/* The bytes of a seed. */
static void bytes_of(uint64_t seed, uint8_t *to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 8) {
        const uint64_t word = (seed + i) * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(to + i, &word, MIN(8, n - i));
    }
}

static bool are_bytes_of(struct model *m, uint64_t seed, const uint8_t *at, uint32_t n)
{
    bytes_of(seed, m->bytes, n);
    return memcmp(at, m->bytes, n) == 0;
}

/* --- ends of copies --- */

/* What became of the pages is anything: the model takes it as it is. */
static void take_pages_as_they_are(struct pool *p, const uint32_t *pages)
{
    const struct device_pool_group *g = &p->p.spec.group[0];
    for (uint32_t i = 0; i < g->nregions; i++)
        for (uint32_t k = 0; k < g->pages_per_block; k++) {
            const struct rig_mem *mem = &p->p.mem[p->p.from[i]];
            const uint64_t at = p->p.region[i].base + pages[k] * p->p.region[i].stride_bytes;
            memcpy(mem->expect + at, mem->at + at, p->p.region[i].page_bytes);
        }
}

static void piece_ends(struct model *m, struct copy *c, uint32_t i)
{
    const struct device_piece *p = &c->c.piece[i];
    const uint32_t bytes = c->c.c.bytes;
    struct slot *s = c->slot[i] != UINT32_MAX ? &m->slot[c->slot[i]] : NULL;
    const uint32_t b = c->block[i];
    ck_assert_int_eq(p->status, c->bad[i] ? -EINVAL : c->c.c.status);
    m->n.bad_pieces += c->bad[i];
    if (c->c.c.kind == DEVICE_FILL) {
        s->seed = p->status == 0 ? m->block_seed[b] : 0;
        if (p->status == 0 && !s->dead) {
            rig_set_label(&m->r, s->loc, bytes);
            struct tier_view v;
            m->r.t->memory->view(m->r.t, s->loc, &v);
            s->labelled = true;
            s->gen = v.gen;
        }
    } else if (c->bad[i]) {
        return;
    } else if (c->c.c.kind == DEVICE_LOAD && p->status == 0) {
        bytes_of(s != NULL ? s->seed : m->block_seed[b], m->bytes, bytes);
        rig_scatter(&c->pool->p, c->c.pages[i], m->bytes);
    } else if (c->c.c.kind == DEVICE_LOAD) {
        take_pages_as_they_are(c->pool, c->c.pages[i]);
    } else if (p->status == 0) {
        rig_gather(&c->pool->p, c->c.pages[i], m->bytes);
        ck_assert_mem_eq(block_at(m, b), m->bytes, bytes);
    }
}

static void pool_unuse(struct pool *p)
{
    if (p->open || p->copies > 0)
        return;
    for (uint32_t i = 0; i < p->p.nmems; i++)
        rig_mem_unmake(&p->p.mem[i]);
    *p = (struct pool){0};
}

static void copy_done(struct device_copy *dc)
{
    struct copy *c = CONTAINER_OF((struct rig_copy *)dc->ctx, struct copy, c);
    struct model *m = &model;
    const int status = dc->status;
    ck_assert(c->used);
    ck_assert(status == 0 || (status == -ECANCELED && c->cancelled) ||
              (status == -ETIMEDOUT && c->timed) || (status == -ENOMEM && m->starved) ||
              (status == -EIO && (c->doomed || m->r.losts > c->losts)));
    ck_assert(status != 0 || dc->ready == NULL || c->ready == 5 + c->pool->p.layers ||
              c->ready == 5 /* all of it was bad */);
    for (uint32_t i = 0; i < dc->n; i++) {
        piece_ends(m, c, i);
        if (c->slot[i] != UINT32_MAX)
            m->slot[c->slot[i]].busy--;
        if (c->block[i] != UINT32_MAX)
            m->block_busy[c->block[i]]--;
        for (uint32_t k = 0; c->pool != NULL && k < c->pool->p.spec.group[0].pages_per_block; k++)
            if (c->c.pages[i][k] < RIG_PAGES_MAX)
                c->pool->page_busy[c->c.pages[i][k]] = false;
    }
    if (c->pool != NULL) {
        c->pool->copies--;
        pool_unuse(c->pool);
    }
    m->n.well += status == 0;
    m->n.failed += status != 0;
    c->used = false;
}

/* --- what is submitted --- */

static bool is_up(struct model *m)
{
    return m->r.d->ops->up(m->r.d);
}

static struct copy *copy_begin(struct model *m, enum device_copy_kind kind, struct pool *p)
{
    struct copy *c = NULL;
    for (uint32_t i = 0; i < COPIES && c == NULL; i++)
        c = m->copy[i].used ? NULL : &m->copy[i];
    if (c == NULL)
        return NULL;
    *c = (struct copy){.pool = p, .losts = m->r.losts, .ready = 5};
    c->c.c = (struct device_copy){.kind = kind,
                                  .piece = c->c.piece,
                                  .pool = p != NULL ? p->p.pool : NULL,
                                  .bytes = p != NULL ? p->p.block_bytes : 0,
                                  .done = copy_done,
                                  .ctx = &c->c};
    return c;
}

static uint32_t free_block(struct model *m)
{
    const uint32_t from = below(m, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        if (m->block_busy[(from + i) % BLOCKS] == 0)
            return (from + i) % BLOCKS;
    return UINT32_MAX;
}

/* Bytes that nobody has. */
static void block_renew(struct model *m, uint32_t b, uint32_t bytes)
{
    m->block_seed[b] = ++m->next_seed << 20;
    bytes_of(m->block_seed[b], block_at(m, b), bytes);
}

static bool take_pages(struct model *m, struct copy *c, uint32_t i)
{
    const uint32_t want = c->pool->p.spec.group[0].pages_per_block;
    uint32_t free = 0, n = 0;
    for (uint32_t k = 0; k < RIG_PAGES_MAX; k++)
        free += !c->pool->page_busy[k];
    if (free < want)
        return false;
    /* Runs of neighbours now and then. */
    for (uint32_t at = below(m, RIG_PAGES_MAX); n < want; at += below(m, 3) == 0 ? 7 : 1) {
        const uint32_t page = at % RIG_PAGES_MAX;
        if (c->pool->page_busy[page])
            continue;
        c->pool->page_busy[page] = true;
        c->c.pages[i][n++] = page;
    }
    c->c.piece[i].pages = c->c.pages[i];
    if (below(m, 30) == 0) {
        const uint32_t k = below(m, want);
        c->pool->page_busy[c->c.pages[i][k]] = false;
        c->c.pages[i][k] = RIG_PAGES_MAX + below(m, 1000);
        c->bad[i] = true;
    }
    return true;
}

static void submit(struct model *m, struct copy *c)
{
    if (c->c.c.n == 0)
        return;
    c->used = true;
    if (c->pool != NULL)
        c->pool->copies++;
    if (c->c.c.kind != DEVICE_FILL && below(m, 5) == 0) {
        c->c.c.after.word = &c->word;
        c->c.c.after.value = 1;
        c->waits = true;
    }
    if (c->c.c.kind == DEVICE_LOAD && below(m, 2) == 0) {
        c->c.c.ready = &c->ready;
        c->c.c.ready_value = 5;
    }
    if (below(m, 10) == 0) {
        c->timed = true;
        c->c.c.deadline_ns = below(m, 2) == 0 ? 1 : clock_now_ns() + below(m, 2000000);
    }
    c->doomed = !is_up(m) || (c->pool != NULL && c->pool->losts != m->r.losts);
    m->n.copies++;
    m->r.d->ops->submit(m->r.d, &c->c.c);
    ck_assert(c->used);
}

static void add_piece(struct copy *c, uint32_t slot, uint32_t block, void *host,
                      struct tier_loc loc)
{
    const uint32_t i = c->c.c.n++;
    c->slot[i] = slot;
    c->block[i] = block;
    c->c.piece[i].host = host;
    c->c.piece[i].slot = loc;
    c->c.piece[i].status = 77;
}

static struct pool *a_pool(struct model *m)
{
    struct pool *p = &m->pool[below(m, POOLS)];
    return p->open ? p : NULL;
}

static void act_store(struct model *m)
{
    struct pool *p = a_pool(m);
    struct copy *c = p != NULL ? copy_begin(m, DEVICE_STORE, p) : NULL;
    for (uint32_t n = 1 + below(m, PIECES); c != NULL && c->c.c.n < n;) {
        const uint32_t b = free_block(m);
        if (b == UINT32_MAX || !take_pages(m, c, c->c.c.n))
            break;
        m->block_busy[b]++;
        m->block_seed[b] = 0;
        add_piece(c, UINT32_MAX, b, block_at(m, b), (struct tier_loc){0});
    }
    if (c != NULL)
        submit(m, c);
}

/* A labelled slot of this size. */
static uint32_t a_slot(struct model *m, uint32_t bytes)
{
    const uint32_t from = below(m, SLOTS_MAX);
    for (uint32_t k = 0; k < SLOTS_MAX; k++) {
        const struct slot *s = &m->slot[(from + k) % SLOTS_MAX];
        if (s->used && s->labelled && !s->dead && s->bytes == bytes)
            return (from + k) % SLOTS_MAX;
    }
    return UINT32_MAX;
}

static void act_load(struct model *m)
{
    struct pool *p = a_pool(m);
    struct copy *c = p != NULL ? copy_begin(m, DEVICE_LOAD, p) : NULL;
    for (uint32_t n = 1 + below(m, PIECES); c != NULL && c->c.c.n < n;) {
        const uint32_t s = below(m, 2) == 0 ? a_slot(m, p->p.block_bytes) : UINT32_MAX;
        const uint32_t b = s == UINT32_MAX ? free_block(m) : UINT32_MAX;
        if ((s == UINT32_MAX && b == UINT32_MAX) || !take_pages(m, c, c->c.c.n))
            break;
        if (s != UINT32_MAX) {
            m->slot[s].busy++;
            add_piece(c, s, UINT32_MAX, NULL, m->slot[s].loc);
            continue;
        }
        block_renew(m, b, p->p.block_bytes);
        m->block_busy[b]++;
        add_piece(c, UINT32_MAX, b, block_at(m, b), (struct tier_loc){below(m, 1000)});
    }
    if (c != NULL)
        submit(m, c);
}

static void act_fill(struct model *m)
{
    struct copy *c = copy_begin(m, DEVICE_FILL, NULL);
    const uint32_t from = below(m, SLOTS_MAX), n = 1 + below(m, PIECES);
    for (uint32_t k = 0; c != NULL && k < SLOTS_MAX && c->c.c.n < n; k++) {
        struct slot *s = &m->slot[(from + k) % SLOTS_MAX];
        const uint32_t b = free_block(m);
        if (!s->used || s->labelled || s->dead || s->busy > 0 || b == UINT32_MAX ||
            (c->c.c.n > 0 && c->c.c.bytes != s->bytes))
            continue;
        block_renew(m, b, s->bytes);
        m->block_busy[b]++;
        s->busy++;
        c->c.c.bytes = s->bytes;
        add_piece(c, (from + k) % SLOTS_MAX, b, block_at(m, b), s->loc);
    }
    if (c != NULL)
        submit(m, c);
}

/* --- room --- */

static void slot_free(struct model *m, struct slot *s)
{
    m->r.t->ops->free(m->r.t, s->loc);
    *s = (struct slot){0};
}

static void on_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct model *m = ctx;
    ck_assert_uint_eq(m->slot[block_no].loc.id, loc.id);
    if (m->slot[block_no].busy == 0)
        slot_free(m, &m->slot[block_no]);
}

static void act_alloc(struct model *m)
{
    const struct pool *p = a_pool(m);
    const uint32_t bytes = p != NULL ? p->p.block_bytes : 1 + below(m, BLOCK_ROOM);
    const uint32_t principal = 1 + below(m, PRINCIPALS);
    struct slot *s = NULL;
    for (uint32_t i = 0; i < SLOTS_MAX && s == NULL; i++)
        s = m->slot[i].used ? NULL : &m->slot[i];
    if (s == NULL)
        return;
    const uint32_t block_no = (uint32_t)(s - m->slot);
    struct tier_loc loc;
    int err = m->r.t->ops->alloc(m->r.t, principal, bytes, (struct tier_loc){0}, block_no, &loc);
    if (err == KVC_E_NO_ROOM &&
        m->r.t->memory->evacuate(m->r.t, principal, bytes, false, on_occupant, m) > 0)
        err = m->r.t->ops->alloc(m->r.t, principal, bytes, (struct tier_loc){0}, block_no, &loc);
    if (err < 0) {
        ck_assert(err == KVC_E_NO_ROOM || err == KVC_E_BUSY);
        m->n.busy += err == KVC_E_BUSY;
        m->n.no_room++;
        return;
    }
    *s = (struct slot){.used = true, .loc = loc, .principal = principal, .bytes = bytes};
    m->n.allocs++;
}

static void act_free(struct model *m)
{
    struct slot *s = &m->slot[below(m, SLOTS_MAX)];
    if (s->used && s->busy == 0)
        slot_free(m, s);
}

/* As a worker does it that reads in place: bytes, then the generation. */
static void act_read(struct model *m)
{
    const struct slot *s = &m->slot[below(m, SLOTS_MAX)];
    struct device_handle handle;
    struct tier_view v;
    uint64_t bytes, gen;
    int fd;
    if (!s->used)
        return;
    m->r.t->memory->view(m->r.t, s->loc, &v);
    const int err = m->r.d->ops->chunk_export(m->r.d, v.chunk, s->principal, &handle, &fd, &bytes);
    if (err < 0) {
        ck_assert(!s->labelled || s->dead);
        return;
    }
    const uint8_t *memory = mmap(NULL, handle.bytes, PROT_READ, MAP_SHARED, handle.fd, 0);
    const uint8_t *header = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert(memory != MAP_FAILED && header != MAP_FAILED);
    memcpy(&gen, header + v.hdr, sizeof(gen));
    ck_assert_uint_eq(gen, v.gen);
    if (s->labelled) {
        ck_assert_uint_eq(gen, s->gen);
        ck_assert_uint_eq(v.bytes, s->bytes);
        ck_assert(are_bytes_of(m, s->seed, memory + v.off, s->bytes));
        m->n.reads++;
    }
    munmap((void *)(uintptr_t)memory, handle.bytes);
    munmap((void *)(uintptr_t)header, bytes);
}

/* --- memory that workers map --- */

static void give_back(struct model *m, struct loan *l)
{
    munmap(l->at, l->bytes);
    m->r.d->ops->chunk_give_back(m->r.d, l->chunk);
    *l = (struct loan){0};
}

static void act_lend(struct model *m)
{
    const struct slot *s = &m->slot[below(m, SLOTS_MAX)];
    struct loan *l = &m->loan[below(m, LOANS)];
    struct device_handle handle;
    struct tier_view v;
    struct stat st;
    uint64_t bytes;
    int fd;
    if (l->chunk != 0) {
        give_back(m, l);
        return;
    }
    if (!s->used)
        return;
    m->r.t->memory->view(m->r.t, s->loc, &v);
    if (m->r.d->ops->chunk_export(m->r.d, v.chunk, s->principal, &handle, &fd, &bytes) < 0)
        return;
    m->r.d->ops->chunk_lend(m->r.d, v.chunk);
    ck_assert_int_eq(fstat(handle.fd, &st), 0);
    *l = (struct loan){.chunk = v.chunk,
                       .inode = st.st_ino,
                       .at = mmap(NULL, handle.bytes, PROT_READ, MAP_SHARED, handle.fd, 0),
                       .bytes = handle.bytes};
    ck_assert(l->at != MAP_FAILED);
    m->n.lent++;
}

/* Most unmap soon what is retired. */
static void act_unmap(struct model *m)
{
    struct device_handle handle;
    uint64_t bytes;
    int fd;
    for (uint32_t i = 0; i < LOANS; i++) {
        struct loan *l = &m->loan[i];
        if (l->chunk == 0 || below(m, 3) == 0)
            continue;
        if (m->r.d->ops->chunk_export(m->r.d, l->chunk, 0, &handle, &fd, &bytes) == -ENOENT)
            give_back(m, l);
    }
}

static bool is_kept(const struct hbm *h, const struct loan *l)
{
    for (uint32_t i = 0; i < h->chunks; i++)
        if (h->chunk_mem[i].lent > 0 && h->chunk_mem[i].lent_no == (l->chunk & HBM_NUMBERS))
            return h->chunk_mem[i].room == HBM_READY;
    return false;
}

/* Memory that workers map is still there, and with that of the daemon beside it within the limit.
 */
static void check_loans(struct model *m, uint64_t limit_bytes)
{
    const struct hbm *h = CONTAINER_OF(m->r.d, struct hbm, device);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < LOANS; i++) {
        bool first = m->loan[i].chunk != 0;
        ck_assert(!first || is_kept(h, &m->loan[i]));
        for (uint32_t k = 0; k < i && first; k++)
            first = m->loan[k].chunk == 0 || m->loan[k].inode != m->loan[i].inode;
        bytes += first ? m->loan[i].bytes : 0;
    }
    for (uint32_t i = 0; i < h->chunks; i++)
        bytes += h->chunk_mem[i].lent == 0 && h->chunk_mem[i].room != HBM_NONE ? h->chunk_bytes : 0;
    ck_assert_uint_le(bytes, limit_bytes);
}

/* --- workers --- */

static void act_open(struct model *m)
{
    static const uint32_t per_block[] = {1, 4, 16};
    struct pool *p = &m->pool[below(m, POOLS)];
    uint64_t bytes[2];
    const char *why;
    if (p->open || p->copies > 0 || !is_up(m))
        return;
    rig_pool_spec(&p->p, (enum rig_layout)below(m, RIG_LAYOUTS), 1 + below(m, 6),
                  per_block[below(m, 3)], bytes);
    p->losts = m->r.losts;
    int err = 0;
    for (uint32_t i = 0; i < p->p.nmems; i++) {
        rig_mem_make(&m->r, &p->p.mem[i], bytes[i]);
        ck_assert_int_eq(rig_mem_import(&m->r, &p->p.mem[i]), 0);
        while (p->p.mem[i].err == 1)
            rig_turn(&m->r);
        err = p->p.mem[i].err != 0 ? p->p.mem[i].err : err;
    }
    ck_assert(err == 0 || m->starved);
    for (uint32_t i = 0; i < p->p.spec.group[0].nregions; i++)
        p->p.region[i].mem = p->p.mem[p->p.from[i]].mem;
    if (err == 0) {
        ck_assert_int_eq(m->r.d->ops->pool_open(m->r.d, &p->p.spec, &p->p.pool, &why), 0);
        p->open = true;
        m->n.pools++;
        return;
    }
    for (uint32_t i = 0; i < p->p.nmems; i++)
        if (p->p.mem[i].err == 0)
            m->r.d->ops->mem_drop(m->r.d, p->p.mem[i].mem);
    pool_unuse(p);
}

static void pool_close(struct model *m, struct pool *p)
{
    m->r.d->ops->pool_close(m->r.d, p->p.pool);
    for (uint32_t i = 0; i < p->p.nmems; i++)
        m->r.d->ops->mem_drop(m->r.d, p->p.mem[i].mem);
    p->open = false;
    pool_unuse(p);
}

static void act_close(struct model *m)
{
    struct pool *p = a_pool(m);
    if (p != NULL)
        pool_close(m, p);
}

/* All bytes of a pool that nobody copies to. */
static void act_look(struct model *m)
{
    const struct pool *p = a_pool(m);
    if (p != NULL && p->copies == 0)
        rig_pool_check(&p->p);
}

static void act_words(struct model *m)
{
    for (uint32_t i = 0; i < COPIES; i++)
        if (m->copy[i].used && m->copy[i].waits && below(m, 2) == 0)
            atomic_store(&m->copy[i].word, 1);
}

static void act_cancel(struct model *m)
{
    struct copy *c = &m->copy[below(m, COPIES)];
    if (!c->used)
        return;
    c->cancelled = true;
    atomic_store(&c->c.c.cancel, true);
}

/* --- the device --- */

static void act_lose(struct model *m)
{
    if (m->drive->lose == NULL || !is_up(m))
        return;
    const uint32_t before = m->r.losts;
    m->drive->lose(&m->r);
    ck_assert_uint_eq(m->r.losts, before + 1);
    m->n.losts++;
    for (uint32_t i = 0; i < SLOTS_MAX; i++) {
        struct slot *s = &m->slot[i];
        struct tier_view v;
        if (!s->used)
            continue;
        m->r.t->memory->view(m->r.t, s->loc, &v);
        ck_assert(!s->labelled || v.gen != s->gen);
        s->dead = true;
    }
}

static void act_device(struct model *m)
{
    if (!is_up(m) && m->drive->bring_back != NULL && below(m, 4) == 0)
        m->drive->bring_back(&m->r);
    /* The workers of a device that went open their pools again. */
    for (uint32_t i = 0; i < POOLS; i++)
        if (m->pool[i].open && m->pool[i].losts != m->r.losts && below(m, 4) == 0)
            pool_close(m, &m->pool[i]);
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        if (m->slot[i].dead && m->slot[i].busy == 0 && below(m, 4) == 0)
            slot_free(m, &m->slot[i]);
}

static void act(struct model *m)
{
    static void (*const acts[])(struct model *) = {
        act_store,  act_store, act_load,  act_load, act_load,   act_fill,  act_fill,  act_alloc,
        act_alloc,  act_alloc, act_free,  act_read, act_open,   act_words, act_words, act_words,
        act_device, act_look,  act_store, act_load, act_cancel, act_lend,  act_unmap, act_unmap,
    };
    const uint32_t rare = below(m, 300);
    if (rare == 0)
        act_lose(m);
    else if (rare < 4)
        act_close(m);
    else if (rare == 4 && m->drive->starve != NULL) {
        m->starved = true;
        m->drive->starve(&m->r);
    } else
        acts[below(m, ARRAY_LEN(acts))](m);
}

static bool is_busy(const struct model *m)
{
    for (uint32_t i = 0; i < COPIES; i++)
        if (m->copy[i].used)
            return true;
    return false;
}

static void wind_down(struct model *m)
{
    if (!is_up(m) && m->drive->bring_back != NULL)
        m->drive->bring_back(&m->r);
    for (uint32_t i = 0; i < COPIES; i++)
        atomic_store(&m->copy[i].word, 1);
    while (is_busy(m))
        rig_turn(&m->r);
    for (uint32_t i = 0; i < LOANS; i++)
        if (m->loan[i].chunk != 0)
            give_back(m, &m->loan[i]);
    for (uint32_t i = 0; i < POOLS; i++)
        if (m->pool[i].open) {
            rig_pool_check(&m->pool[i].p);
            pool_close(m, &m->pool[i]);
        }
    for (uint32_t i = 0; i < 4 * SLOTS_MAX; i++)
        act_read(m);
    for (uint32_t i = 0; i < SLOTS_MAX; i++)
        if (m->slot[i].used)
            slot_free(m, &m->slot[i]);
    struct tier_stats st;
    m->r.t->ops->stats(m->r.t, &st);
    ck_assert_uint_eq(st.used_bytes + st.used_slots + st.inflight_ops + st.inflight_bytes, 0);
    struct device_view v;
    do {
        rig_turn(&m->r);
        m->r.d->ops->view(m->r.d, &v);
    } while (v.imported_bytes > 0);
}

void hbm_model_run(const struct rig_config *config, const struct hbm_drive *drive, uint64_t seed,
                   uint32_t steps, struct hbm_counts *ret_counts)
{
    struct model *m = &model;
    struct device_view v;
    *m = (struct model){.drive = drive};
    rig_open(&m->r, config);
    ck_assert_uint_le(BLOCKS * BLOCK_ROOM, RIG_HOST_BYTES);
    m->r.rng = seed | 1;
    if (drive->bring_back != NULL)
        drive->bring_back(&m->r);
    for (uint32_t i = 0; i < steps; i++) {
        act(m);
        if (below(m, 3) == 0 && drive->step != NULL)
            drive->step(&m->r);
        if (below(m, 4) == 0)
            ck_assert_int_ge(loop_turn(m->r.loop, 0), 0);
        m->r.d->ops->view(m->r.d, &v);
        ck_assert_uint_le(v.memory_bytes, config->limit_bytes);
        check_loans(m, config->limit_bytes);
        if (drive->check != NULL)
            drive->check(&m->r);
    }
    wind_down(m);
    rig_close(&m->r);
    *ret_counts = m->n;
}

static uint64_t from_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

void hbm_model_case(const struct rig_config *config, const struct hbm_drive *drive, int i,
                    uint32_t steps)
{
    struct timespec now;
    struct hbm_counts n;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = from_env("KVC_SEED", (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32);
    printf("KVC_SEED=%" PRIu64 " (case %d)\n", seed, i);
    fflush(stdout);
    hbm_model_run(config, drive, seed + 2 * (uint64_t)i,
                  (uint32_t)from_env("KVC_MODEL_STEPS", steps), &n);
    printf("  %" PRIu64 " copies (%" PRIu64 " failed), %" PRIu64 " bad pieces, %" PRIu64
           " allocs (%" PRIu64 " refused, %" PRIu64 " for loans), %" PRIu64 " pools, %" PRIu64
           " reads, %" PRIu64 " loans, lost %" PRIu64 " times\n",
           n.copies, n.failed, n.bad_pieces, n.allocs, n.no_room, n.busy, n.pools, n.reads, n.lent,
           n.losts);
    /* The run went where it was meant to go. */
    ck_assert_uint_gt(4 * n.well, n.failed);
    ck_assert_uint_gt(n.failed, 0);
    ck_assert_uint_gt(n.bad_pieces, 0);
    ck_assert_uint_gt(n.allocs, 0);
    ck_assert_uint_gt(n.reads, 0);
    ck_assert_uint_gt(n.lent, 0);
    ck_assert_uint_gt(n.losts, 0);
}
