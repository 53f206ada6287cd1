/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that the worker makes itself on its own stream: from a hold's blocks to its pages
 * (kvc_gpu_load()), and from pages into staging (kvc_gpu_stage()).
 */
#include <errno.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"

/* Fragments that are collected for one copy; neighbours are joined. */
struct scatter {
    struct device *device;
    void *stream;
    enum device_way way;
    bool is_pinned;
    bool is_apart; /* the next one is not joined to the last: they are not registered as one */
    uint32_t n;
    struct kvc_frag frag[DEVICE_FRAGS];
};

static int flush(struct scatter *s)
{
    int rc = 0;
    if (s->n > 0)
        rc = s->device->ops->copy(s->device, s->way, s->frag, s->n, s->is_pinned, s->stream);
    s->n = 0;
    return rc;
}

/* Sets the way of the next fragments. If it changes, the fragments so far are copied first. */
static int scatter_turn(struct scatter *s, enum device_way way, bool is_pinned)
{
    int rc = 0;
    if (s->way != way || s->is_pinned != is_pinned)
        rc = flush(s);
    s->way = way;
    s->is_pinned = is_pinned;
    return rc;
}

static int scatter_add(struct scatter *s, uint64_t to, uint64_t from, uint64_t bytes)
{
    if (s->n > 0 && !s->is_apart) {
        struct kvc_frag *last = &s->frag[s->n - 1];
        if (last->to + last->bytes == to && last->from + last->bytes == from) {
            last->bytes += bytes;
            return 0;
        }
    }
    int rc = s->n == DEVICE_FRAGS ? flush(s) : 0;
    s->is_apart = false;
    if (rc == 0)
        s->frag[s->n++] = (struct kvc_frag){.to = to, .from = from, .bytes = bytes};
    return rc;
}

/* Adds the fragments of one block, whose bytes are at `block`: to its pages, or from them. */
static int scatter_add_block(struct scatter *s, const struct kvc_pool_spec *spec, uint32_t group,
                             const uint32_t *pages, uint64_t block, bool to_pages)
{
    for (uint32_t i = 0; i < spec->group[group].regions; i++) {
        const struct kvc_pool_region *r = &spec->group[group].region[i];
        uint64_t base = r->base;
        if (r->mem != NULL)
            base += (uint64_t)(uintptr_t)r->mem->memory.addr;
        for (uint32_t j = 0; j < spec->group[group].pages_per_block; j++) {
            const uint64_t page = base + pages[j] * r->stride_bytes;
            int rc = 0;
            if (pages[j] != KVC_NO_PAGE)
                rc = to_pages ? scatter_add(s, page, block, r->page_bytes)
                              : scatter_add(s, block, page, r->page_bytes);
            else if (!to_pages) /* what another block left in staging is not this one's */
                memset((void *)(uintptr_t)block, 0, r->page_bytes);
            if (rc < 0)
                return rc;
            block += r->page_bytes;
        }
    }
    return 0;
}

/* ---- load ---- */

static int check_load_group(struct kvc_gpu *gpu, const struct kvc_hold *hold,
                            const struct kvc_pool_spec *spec, uint32_t group, const uint32_t *pages)
{
    struct kvc *k = gpu->kvc;
    uint64_t bytes = 0;
    uint32_t n = hold->group[group].n;
    if (n == 0)
        return 0;
    if (group >= spec->groups || pages == NULL)
        return kvc__fail(k, -EINVAL, "the hold has blocks of group %u; spec has %u groups%s", group,
                         spec->groups, pages == NULL ? ", and pages is NULL there" : "");
    int rc = pool__check_group(gpu, spec, group, false, &bytes);
    if (rc == 0)
        rc = pool__check_pages(k, pages, (uint64_t)n * spec->group[group].pages_per_block,
                               spec->pages_max, true);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (hold->group[group].block[i].bytes != bytes)
            rc = kvc__fail(k, -EINVAL, "group %u: a block has %u bytes, its pages %llu", group,
                           hold->group[group].block[i].bytes, (unsigned long long)bytes);
    }
    return rc;
}

/* Whether a chunk is registered with the driver. The first call registers it. */
static bool is_pinned(struct device *d, struct map *m)
{
    if (d->is_host)
        return false;
    if (m->pinned != NULL || m->is_pageable)
        return m->pinned != NULL;
    if (d->ops->pin(d, (void *)(uintptr_t)m->base, m->bytes, true) < 0) {
        m->is_pageable = true; /* slower, and right all the same */
        return false;
    }
    m->pinned = d;
    device__ref(d);
    return true;
}

static int load_group(struct scatter *s, const struct kvc_hold *hold,
                      const struct kvc_pool_spec *spec, uint32_t group, const uint32_t *pages)
{
    const struct hold *h = (const struct hold *)(const void *)hold;
    const struct map *last = NULL;
    uint32_t hint = 0;
    int rc = 0;
    for (uint32_t i = 0; i < hold->group[group].n && rc == 0; i++) {
        const void *slot = kvc_hold_device(hold, group, i);
        const void *data = hold->group[group].block[i].data;
        struct map *m = slot == NULL ? hold__map_of(h, data, &hint) : NULL;
        if (slot != NULL)
            rc = scatter_turn(s, DEVICE_ON_DEVICE, true);
        else
            rc = scatter_turn(s, DEVICE_FROM_HOST, m != NULL && is_pinned(s->device, m));
        s->is_apart = m != last;
        last = m;
        if (rc == 0)
            rc = scatter_add_block(s, spec, group, pages,
                                   (uint64_t)(uintptr_t)(slot != NULL ? slot : data), true);
        pages += spec->group[group].pages_per_block;
    }
    return rc;
}

int kvc_gpu_load(struct kvc_gpu *gpu, const struct kvc_hold *hold, const struct kvc_pool_spec *spec,
                 const uint32_t *const pages[KVC_GROUPS_MAX], void *stream)
{
    struct kvc *k = gpu->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this session belongs to the parent process");
    int rc = 0;
    for (uint32_t g = 0; g < KVC_GROUPS_MAX && rc == 0; g++)
        rc = check_load_group(gpu, hold, spec, g, pages[g]);
    if (rc == 0)
        rc = device__may_use(gpu->device, stream);
    struct scatter s = {.device = gpu->device, .stream = stream, .n = 0};
    for (uint32_t g = 0; g < KVC_GROUPS_MAX && rc == 0; g++) {
        if (hold->group[g].n > 0)
            rc = load_group(&s, hold, spec, g, pages[g]);
    }
    return rc < 0 ? rc : flush(&s);
}

/* ---- stage ---- */

static int check_offsets(struct kvc *k, const uint64_t *offsets, uint32_t n, uint64_t block_bytes)
{
    for (uint32_t i = 0; i < n; i++) {
        if (offsets[i] % 64 != 0 || block_bytes > k->staging.bytes ||
            offsets[i] > k->staging.bytes - block_bytes)
            return kvc__fail(k, -EINVAL,
                             "offset %u is %llu: a multiple of 64 was expected, and that %llu "
                             "bytes from there on lie within the %llu of staging",
                             i, (unsigned long long)offsets[i], (unsigned long long)block_bytes,
                             (unsigned long long)k->staging.bytes);
    }
    return 0;
}

static bool pin_staging(struct kvc_gpu *gpu)
{
    struct kvc *k = gpu->kvc;
    struct device *d = gpu->device;
    if (k->staging.pinned == NULL && !d->is_host &&
        d->ops->pin(d, k->staging.at, k->staging.bytes, false) == 0) {
        k->staging.pinned = d;
        device__ref(d);
    }
    return k->staging.pinned != NULL;
}

int kvc_gpu_stage(struct kvc_gpu *gpu, const struct kvc_pool_spec *spec, uint32_t group,
                  const uint32_t *pages, uint32_t n, const uint64_t *offsets, void *stream)
{
    struct kvc *k = gpu->kvc;
    uint64_t bytes = 0;
    int rc = kvc__enter(k, kvc__deadline(k, 0));
    if (rc == 0)
        rc = write__check_staging(k);
    if (rc < 0)
        return rc;
    if (group >= spec->groups || spec->groups > KVC_GROUPS_MAX || pages == NULL || offsets == NULL)
        return kvc__fail(k, -EINVAL, "group %u of %u, pages %p, offsets %p", group, spec->groups,
                         (const void *)pages, (const void *)offsets);
    rc = pool__check_group(gpu, spec, group, false, &bytes);
    if (rc == 0)
        rc = pool__check_pages(k, pages, (uint64_t)n * spec->group[group].pages_per_block,
                               spec->pages_max, true);
    if (rc == 0)
        rc = check_offsets(k, offsets, n, bytes);
    if (rc == 0)
        rc = device__may_use(gpu->device, stream);
    struct scatter s = {.device = gpu->device, .stream = stream, .way = DEVICE_TO_HOST, .n = 0};
    if (rc == 0)
        s.is_pinned = pin_staging(gpu);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = scatter_add_block(&s, spec, group,
                               pages + (size_t)i * spec->group[group].pages_per_block,
                               (uint64_t)(uintptr_t)k->staging.at + offsets[i], false);
    return rc < 0 ? rc : flush(&s);
}
