/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers' memory on a device and the pools in it. Imported memory is freed when its user has
 * dropped it and no region of a pool names it. A pool is freed when it is closed and has no copy in
 * flight.
 */
#include "hbm__.h"

#include <stdlib.h>
#include <unistd.h>

#include "sys.h"

/* --- memory --- */

static void mem_end(struct device_mem *m)
{
    list_remove(&m->node);
    if (m->fd >= 0)
        (void)close(m->fd);
    free(m);
}

static void on_freed(struct gpu_op *op)
{
    mem_end(op->ctx);
}

static void mem_pump(struct device_mem *m)
{
    if (m->room != HBM_READY || !m->dropped || m->refs > 0 || m->hbm->closing)
        return;
    m->room = HBM_FREEING;
    m->op = (struct gpu_op){.kind = GPU_FREE, .mem = &m->mem, .done = on_freed, .ctx = m};
    gpu_submit(m->hbm->gpu, &m->op);
}

static bool is_void(const struct device_mem *m)
{
    return !hbm__is_up(m->hbm) || m->mem.generation != m->hbm->generation;
}

static int import_error(int err)
{
    return err == -EINVAL || err == -EOPNOTSUPP || err == -ENOMEM ? err : -EIO;
}

static void on_imported(struct gpu_op *op)
{
    struct device_mem *m = op->ctx;
    device_mem_fn *fn = m->dropped ? NULL : m->fn;
    void *ctx = m->ctx;
    int err = op->status < 0 ? import_error(op->status) : 0;
    (void)close(m->fd);
    m->fd = -1;
    if (op->status < 0) {
        mem_end(m);
    } else {
        m->room = HBM_READY;
        if (is_void(m)) {
            err = -EIO;
            m->dropped = true;
        }
        mem_pump(m);
    }
    if (fn != NULL)
        fn(ctx, err);
}

int hbm__mem_import(struct device *d, const struct device_handle *handle, device_mem_fn *fn,
                    void *ctx, struct device_mem **ret_mem)
{
    struct hbm *h = hbm__of(d);
    if (!hbm__is_up(h))
        return -EIO;
    struct device_mem *m = sys_calloc(1, sizeof(*m));
    if (m == NULL)
        return -ENOMEM;
    m->hbm = h;
    m->room = HBM_ALLOCATING;
    m->fn = fn;
    m->ctx = ctx;
    m->fd = -1;
    m->op = (struct gpu_op){
        .kind = GPU_IMPORT,
        .mem = &m->mem,
        .handle = *handle,
        .done = on_imported,
        .ctx = m,
    };
    /* A copy of the descriptor: the caller may drop the memory and close its own earlier. */
    if (handle->fd >= 0) {
        m->fd = sys_dup(handle->fd);
        if (m->fd < 0) {
            const int err = -errno;
            free(m);
            return err;
        }
        m->op.handle.fd = m->fd;
    }
    list_push_back(&h->mems, &m->node);
    *ret_mem = m;
    gpu_submit(h->gpu, &m->op);
    return 0;
}

void hbm__mem_drop(struct device *d, struct device_mem *m)
{
    MUST(m->hbm == hbm__of(d) && !m->dropped);
    m->dropped = true;
    mem_pump(m);
}

/* --- whether a pool is valid --- */

static const char *region_problem(const struct hbm *h, uint32_t pages_max,
                                  const struct device_region *r)
{
    uint64_t last, end;
    if (r->mem == NULL || r->mem->hbm != h)
        return "a region's memory is not memory of this device";
    if (r->mem->room != HBM_READY || r->mem->dropped)
        return "a region's memory is not imported (yet, or any more)";
    if (is_void(r->mem))
        return "a region's memory went with the device: import it again";
    if (r->page_bytes == 0)
        return "a region's page_bytes must be at least 1";
    if (r->stride_bytes < r->page_bytes)
        return "a region's stride_bytes must be at least its page_bytes";
    if (__builtin_mul_overflow((uint64_t)(pages_max - 1), r->stride_bytes, &last) ||
        __builtin_add_overflow(last, r->page_bytes, &end) ||
        __builtin_add_overflow(end, r->base, &end) || end > r->mem->mem.bytes)
        return "a region ends beyond its memory: base + (pages_max - 1) * stride_bytes + "
               "page_bytes must not be more than the memory's bytes";
    return NULL;
}

static const char *group_problem(const struct hbm *h, uint32_t pages_max,
                                 const struct device_pool_group *g)
{
    uint64_t bytes = 0;
    if (g->pages_per_block == 0 || g->pages_per_block > pages_max)
        return "a group's pages_per_block must be 1 to pages_max";
    if (g->nregions == 0 || g->nregions > DEVICE_REGIONS_MAX)
        return "a group must have 1 to 1024 regions";
    for (uint32_t i = 0; i < g->nregions; i++) {
        const struct device_region *r = &g->region[i];
        const char *problem = region_problem(h, pages_max, r);
        if (problem != NULL)
            return problem;
        if (i > 0 && r->layer < r[-1].layer)
            return "a group's regions must be in the order of their layers";
        if (__builtin_add_overflow(bytes, r->page_bytes, &bytes))
            return "a group's pages must add up to less than 4GiB for a block";
    }
    if (__builtin_mul_overflow(bytes, (uint64_t)g->pages_per_block, &bytes) || bytes > UINT32_MAX)
        return "a group's pages must add up to less than 4GiB for a block";
    return NULL;
}

static const char *spec_problem(const struct hbm *h, const struct device_pool_spec *spec)
{
    if (spec->pages_max == 0)
        return "a pool's pages_max must be at least 1";
    if (spec->ngroups == 0 || spec->ngroups > KVC_GROUPS_MAX)
        return "a pool must have 1 to 16 groups";
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        const char *problem = group_problem(h, spec->pages_max, &spec->group[g]);
        if (problem != NULL)
            return problem;
    }
    return NULL;
}

/* --- pools --- */

static void group_set(struct hbm_group *to, const struct device_pool_group *from)
{
    uint64_t at = 0;
    to->pages_per_block = from->pages_per_block;
    to->nregions = from->nregions;
    for (uint32_t i = 0; i < from->nregions; i++) {
        const struct device_region *r = &from->region[i];
        to->region[i] = (struct hbm_region){
            .mem = r->mem,
            .addr = r->mem->mem.addr + r->base,
            .stride_bytes = r->stride_bytes,
            .page_bytes = r->page_bytes,
            .at = at,
            .layer = r->layer,
        };
        r->mem->refs++;
        at += r->page_bytes * from->pages_per_block;
    }
    to->block_bytes = (uint32_t)at;
}

int hbm__pool_open(struct device *d, const struct device_pool_spec *spec,
                   struct device_pool **ret_pool, const char **ret_why)
{
    struct hbm *h = hbm__of(d);
    const char *problem = spec_problem(h, spec);
    if (problem != NULL) {
        *ret_why = problem;
        return -EINVAL;
    }
    uint32_t regions = 0;
    for (uint32_t g = 0; g < spec->ngroups; g++)
        regions += spec->group[g].nregions;
    struct device_pool *p = sys_calloc(1, sizeof(*p) + regions * sizeof(p->regions[0]));
    if (p == NULL)
        return -ENOMEM;
    p->hbm = h;
    p->generation = h->generation;
    p->pages_max = spec->pages_max;
    p->ngroups = spec->ngroups;
    p->refs = 1;
    regions = 0;
    for (uint32_t g = 0; g < spec->ngroups; g++) {
        p->group[g].region = p->regions + regions;
        group_set(&p->group[g], &spec->group[g]);
        regions += spec->group[g].nregions;
    }
    list_push_back(&h->pools, &p->node);
    *ret_pool = p;
    return 0;
}

static void pool_end(struct device_pool *p)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        for (uint32_t i = 0; i < p->group[g].nregions; i++) {
            struct device_mem *m = p->group[g].region[i].mem;
            m->refs--;
            mem_pump(m);
        }
    list_remove(&p->node);
    free(p);
}

void hbm__pool_release(struct device_pool *p)
{
    MUST(p->refs > 0);
    if (--p->refs == 0)
        pool_end(p);
}

void hbm__pool_close(struct device *d, struct device_pool *p)
{
    MUST(p->hbm == hbm__of(d) && !p->closed);
    p->closed = true;
    hbm__pool_release(p);
}

uint64_t hbm__pool_block_bytes(const struct device_pool *p, uint32_t group)
{
    return group < p->ngroups ? p->group[group].block_bytes : 0;
}

/* --- the end of all --- */

void hbm__pools_destroy(struct hbm *h)
{
    LIST_FOR_EACH_SAFE (n, next, &h->pools) {
        pool_end(CONTAINER_OF(n, struct device_pool, node));
    }
    LIST_FOR_EACH_SAFE (n, next, &h->mems) {
        mem_end(CONTAINER_OF(n, struct device_mem, node));
    }
}
