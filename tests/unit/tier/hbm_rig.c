/* SPDX-License-Identifier: Apache-2.0 */
#include "hbm_rig.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emu_mem.h"

/* --- the rig --- */

static void on_lost(void *ctx, struct device *d)
{
    struct rig *r = ctx;
    ck_assert_ptr_eq(r->d, d);
    r->losts++;
}

static void on_up(void *ctx, struct device *d)
{
    struct rig *r = ctx;
    ck_assert_ptr_eq(r->d, d);
    r->ups++;
}

static void on_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    struct rig *r = ctx;
    r->retired++;
    r->last_retired = chunk;
    r->last_principal = principal;
}

void rig_open(struct rig *r, const struct rig_config *config)
{
    const struct hbm_config hc = {
        .gpu = {.device = config->device != NULL ? config->device : "emu:0",
                .retry_ns = 1000000,
                .inflight_bytes = config->inflight_bytes,
                .emu = {.latency_ns = config->latency_ns,
                        .memory_bytes = config->memory_bytes,
                        .fault_file = config->fault_file}},
        .no = 2,
        .limit_bytes = config->limit_bytes,
        .chunk_bytes = config->chunk_bytes,
    };
    *r = (struct rig){.step = config->step, .rng = 88172645463325252u};
    r->loop = fixture_loop(LOOP_AUTO);
    ck_assert_int_eq(hbm_create(&hc, r->loop, &r->hbm), 0);
    r->d = hbm_device(r->hbm);
    r->t = r->d->slots;
    r->d->events = (struct device_events){.ctx = r, .lost = on_lost, .up = on_up};
    hbm_set_retired_cb(r->hbm, on_retired, r);
    r->host =
        mmap(NULL, RIG_HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(r->host, MAP_FAILED);
}

void rig_close(struct rig *r)
{
    hbm_destroy(&r->hbm);
    loop_destroy(&r->loop);
    (void)munmap(r->host, RIG_HOST_BYTES);
}

void rig_turn(struct rig *r)
{
    if (r->step != NULL)
        r->step(hbm_gpu(r->hbm));
    ck_assert_int_ge(loop_turn(r->loop, r->step != NULL ? 0 : 1000000), 0);
}

uint64_t rig_random(struct rig *r)
{
    r->rng ^= r->rng << 13;
    r->rng ^= r->rng >> 7;
    r->rng ^= r->rng << 17;
    return r->rng;
}

uint32_t rig_below(struct rig *r, uint32_t n)
{
    return (uint32_t)(rig_random(r) >> 16) % n;
}

void rig_scribble(struct rig *r, void *at, uint64_t bytes)
{
    uint8_t *to = at;
    for (uint64_t i = 0; i < bytes; i += 8) {
        const uint64_t word = rig_random(r);
        memcpy(to + i, &word, MIN(8, bytes - i));
    }
}

/* --- a worker's memory --- */

void rig_mem_make(struct rig *r, struct rig_mem *m, uint64_t bytes)
{
    *m = (struct rig_mem){.bytes = bytes, .err = 1};
    ck_assert_int_eq(emu_mem_make(bytes, EMU_FOR_WRITING, &m->range), 0);
    m->at = (uint8_t *)(uintptr_t)m->range.at;
    m->expect = malloc(bytes);
    ck_assert_ptr_nonnull(m->expect);
    rig_scribble(r, m->at, bytes);
    memcpy(m->expect, m->at, bytes);
}

static void on_import(void *ctx, int err)
{
    struct rig_mem *m = ctx;
    ck_assert_int_eq(m->err, 1); /* once */
    m->err = err;
}

int rig_mem_import(struct rig *r, struct rig_mem *m)
{
    struct device_handle handle;
    emu_mem_export(&m->range, m->bytes, &handle);
    m->err = 1;
    return r->d->ops->mem_import(r->d, &handle, on_import, m, &m->mem);
}

void rig_mem_unmake(struct rig_mem *m)
{
    emu_mem_free(&m->range);
    free(m->expect);
}

void rig_mem_check(const struct rig_mem *m)
{
    ck_assert_mem_eq(m->at, m->expect, m->bytes);
}

/* --- pools --- */

/* Bytes of a page that one token has in one region. */
static uint32_t page_bytes_of(enum rig_layout layout, uint32_t pages_per_block)
{
    static const uint32_t bytes[RIG_LAYOUTS] = {256, 512, 384, 1152 / 16 * 3 + 1};
    return bytes[layout] * (16 / pages_per_block);
}

static void add_region(struct rig_pool *p, unsigned from, uint32_t layer, uint64_t base,
                       uint64_t stride, uint32_t page_bytes)
{
    const uint32_t i = p->spec.group[0].nregions++;
    ck_assert_uint_lt(i, RIG_REGIONS);
    p->from[i] = (uint8_t)from;
    p->region[i] = (struct device_region){
        .base = base, .stride_bytes = stride, .page_bytes = page_bytes, .layer = layer};
}

/* Memory does not begin with page 0, so that a base that is forgotten shows. */
#define BASE 64u

void rig_pool_spec(struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block, uint64_t ret_bytes[2])
{
    const uint32_t page = page_bytes_of(layout, pages_per_block);
    const uint64_t all = (uint64_t)RIG_PAGES_MAX * page;
    *p = (struct rig_pool){.layers = layers,
                           .nmems = layout == RIG_KV_APART ? 2 : 1,
                           .spec = {.pages_max = RIG_PAGES_MAX, .ngroups = 1}};
    p->spec.group[0] =
        (struct device_pool_group){.pages_per_block = pages_per_block, .region = p->region};
    for (uint32_t l = 0; l < layers; l++) {
        if (layout == RIG_ACROSS) {
            add_region(p, 0, l, BASE + (uint64_t)l * page, (uint64_t)layers * page, page);
        } else if (layout == RIG_KV_APART) {
            add_region(p, 0, l, BASE + l * all, page, page);
            add_region(p, 1, l, BASE + l * all, page, page);
        } else {
            /* A gap behind each page of MLA's. */
            const uint64_t stride = layout == RIG_MLA ? page + 31 : page;
            add_region(p, 0, l, BASE + l * RIG_PAGES_MAX * stride, stride, page);
        }
    }
    p->block_bytes = p->spec.group[0].nregions * page * pages_per_block;
    for (uint32_t i = 0; i < 2; i++)
        ret_bytes[i] = 0;
    for (uint32_t i = 0; i < p->spec.group[0].nregions; i++) {
        const struct device_region *r = &p->region[i];
        const uint64_t end = r->base + (RIG_PAGES_MAX - 1) * r->stride_bytes + r->page_bytes;
        ret_bytes[p->from[i]] = MAX(ret_bytes[p->from[i]], end);
    }
}

void rig_pool_open(struct rig *r, struct rig_pool *p, enum rig_layout layout, uint32_t layers,
                   uint32_t pages_per_block)
{
    uint64_t bytes[2];
    const char *why = NULL;
    rig_pool_spec(p, layout, layers, pages_per_block, bytes);
    for (uint32_t i = 0; i < p->nmems; i++) {
        rig_mem_make(r, &p->mem[i], bytes[i]);
        ck_assert_int_eq(rig_mem_import(r, &p->mem[i]), 0);
        RIG_UNTIL(r, p->mem[i].err != 1);
        ck_assert_int_eq(p->mem[i].err, 0);
    }
    for (uint32_t i = 0; i < p->spec.group[0].nregions; i++)
        p->region[i].mem = p->mem[p->from[i]].mem;
    const int err = r->d->ops->pool_open(r->d, &p->spec, &p->pool, &why);
    ck_assert_msg(err == 0, "%s", why);
    ck_assert_uint_eq(r->d->ops->pool_block_bytes(p->pool, 0), p->block_bytes);
}

void rig_pool_check(const struct rig_pool *p)
{
    for (uint32_t i = 0; i < p->nmems; i++)
        rig_mem_check(&p->mem[i]);
}

void rig_pool_close(struct rig *r, struct rig_pool *p)
{
    r->d->ops->pool_close(r->d, p->pool);
    for (uint32_t i = 0; i < p->nmems; i++) {
        r->d->ops->mem_drop(r->d, p->mem[i].mem);
        rig_mem_unmake(&p->mem[i]);
    }
}

/* The contract's words, as loops: for each region the bytes of its pages, one after the other. */
void rig_gather(const struct rig_pool *p, const uint32_t *pages, uint8_t *ret_block)
{
    for (uint32_t i = 0; i < p->spec.group[0].nregions; i++)
        for (uint32_t k = 0; k < p->spec.group[0].pages_per_block; k++) {
            const struct device_region *r = &p->region[i];
            memcpy(ret_block, p->mem[p->from[i]].expect + r->base + pages[k] * r->stride_bytes,
                   r->page_bytes);
            ret_block += r->page_bytes;
        }
}

void rig_scatter(struct rig_pool *p, const uint32_t *pages, const uint8_t *block)
{
    for (uint32_t i = 0; i < p->spec.group[0].nregions; i++)
        for (uint32_t k = 0; k < p->spec.group[0].pages_per_block; k++) {
            const struct device_region *r = &p->region[i];
            memcpy(p->mem[p->from[i]].expect + r->base + pages[k] * r->stride_bytes, block,
                   r->page_bytes);
            block += r->page_bytes;
        }
}

bool rig_layers_are(const struct rig_pool *p, const uint32_t *pages, const uint8_t *block,
                    uint64_t first, uint64_t end)
{
    for (uint32_t i = 0; i < p->spec.group[0].nregions; i++) {
        const struct device_region *r = &p->region[i];
        for (uint32_t k = 0; k < p->spec.group[0].pages_per_block; k++, block += r->page_bytes)
            if (r->layer >= first && r->layer < end &&
                memcmp(p->mem[p->from[i]].at + r->base + pages[k] * r->stride_bytes, block,
                       r->page_bytes) != 0)
                return false;
    }
    return true;
}

/* --- copies --- */

static void on_done(struct device_copy *copy)
{
    struct rig_copy *c = copy->ctx;
    c->dones++;
}

void rig_copy_init(struct rig *r, struct rig_copy *c, enum device_copy_kind kind,
                   struct rig_pool *p, uint32_t n)
{
    const uint32_t per_block = p->spec.group[0].pages_per_block;
    uint32_t all[RIG_PAGES_MAX];
    *c = (struct rig_copy){.c = {.kind = kind,
                                 .pool = p->pool,
                                 .bytes = p->block_bytes,
                                 .piece = c->piece,
                                 .n = n,
                                 .done = on_done,
                                 .ctx = c}};
    ck_assert_uint_le(n, RIG_PIECES);
    ck_assert_uint_le(n * per_block, RIG_PAGES_MAX);
    for (uint32_t i = 0; i < RIG_PAGES_MAX; i++)
        all[i] = i;
    for (uint32_t i = RIG_PAGES_MAX - 1; i > 0; i--) {
        const uint32_t j = rig_below(r, i + 1), page = all[i];
        all[i] = all[j];
        all[j] = page;
    }
    for (uint32_t i = 0; i < n; i++) {
        memcpy(c->pages[i], all + i * per_block, per_block * sizeof(all[0]));
        c->piece[i] =
            (struct device_piece){.host = r->host + (uint64_t)i * ROUND_UP(p->block_bytes, 4096),
                                  .pages = c->pages[i],
                                  .status = 77};
    }
}

void rig_submit(struct rig *r, struct rig_copy *c)
{
    c->dones = 0;
    r->d->ops->submit(r->d, &c->c);
    ck_assert_uint_eq(c->dones, 0); /* never inline */
}

void rig_copy_anew(struct rig_copy *c)
{
    for (uint32_t i = 0; i < c->c.n; i++)
        c->piece[i].status = 77;
}

int rig_copy(struct rig *r, struct rig_copy *c)
{
    rig_submit(r, c);
    RIG_UNTIL(r, c->dones > 0);
    ck_assert_uint_eq(c->dones, 1);
    return c->c.status;
}

int rig_fill_slot(struct rig *r, struct tier_loc loc, const void *bytes, uint32_t n)
{
    struct rig_copy c = {.c = {.kind = DEVICE_FILL, .bytes = n, .n = 1, .done = on_done}};
    c.c.piece = c.piece;
    c.c.ctx = &c;
    c.piece[0] = (struct device_piece){.host = (void *)(uintptr_t)bytes, .slot = loc, .status = 77};
    const int err = rig_copy(r, &c);
    ck_assert(err == 0 || c.piece[0].status == err);
    return c.piece[0].status;
}

void rig_set_label(struct rig *r, struct tier_loc loc, uint32_t bytes)
{
    const struct tier_op op = {.kind = TIER_PUT,
                               .loc = loc,
                               .bytes = bytes,
                               .label = {.key = {{9}}, .ns = 1, .print = 5},
                               .sum = {.b = {1, 2, 3}}};
    r->t->ops->set_label(r->t, &op);
}

struct tier_loc rig_fill(struct rig *r, uint32_t principal, const void *bytes, uint32_t n)
{
    struct tier_loc loc;
    ck_assert_int_eq(rig_alloc(r, principal, n, &loc), 0);
    ck_assert_int_eq(rig_fill_slot(r, loc, bytes, n), 0);
    rig_set_label(r, loc, n);
    return loc;
}

/* ---- room ---- */

int rig_alloc(struct rig *r, uint32_t principal, uint32_t bytes, struct tier_loc *ret_loc)
{
    return r->t->ops->alloc(r->t, principal, bytes, (struct tier_loc){0}, 1, ret_loc);
}

struct tier_view rig_view(struct rig *r, struct tier_loc loc)
{
    struct tier_view v;
    r->t->memory->view(r->t, loc, &v);
    return v;
}

void rig_free_all(struct rig *r, struct rig_victims *v)
{
    while (v->n > 0)
        r->t->ops->free(r->t, v->loc[--v->n]);
}

static void on_occupant(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct rig_victims *v = ctx;
    (void)block_no;
    v->loc[v->n++] = loc;
}

uint32_t rig_drain(struct rig *r, uint32_t principal, uint32_t bytes)
{
    static struct rig_victims victims;
    const uint32_t n = r->t->memory->evacuate(r->t, principal, bytes, false, on_occupant, &victims);
    rig_free_all(r, &victims);
    return n;
}

int rig_export(struct rig *r, uint32_t chunk, uint32_t principal)
{
    struct device_handle handle;
    uint64_t bytes;
    int fd;
    return r->d->ops->chunk_export(r->d, chunk, principal, &handle, &fd, &bytes);
}
