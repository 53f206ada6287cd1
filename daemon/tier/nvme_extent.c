/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of extents, one for each write on disk, and the lists on which extents wait for the
 * next step.
 */
#include "nvme__.h"

uint32_t nvme__extent_new(struct nvme *n)
{
    uint32_t id = n->extents.free;
    if (id != NVME_NONE)
        n->extents.free = n->extent[id].next;
    else if (n->extents.fresh < n->extents.max)
        id = n->extents.fresh++;
    else
        return NVME_NONE;
    n->extent[id] =
        (struct nvme_extent){.first = NVME_NONE, .next = NVME_NONE, .seg_next = NVME_NONE};
    n->extents.used++;
    return id;
}

void nvme__extent_free(struct nvme *n, uint32_t extent)
{
    struct nvme_extent *x = &n->extent[extent];
    MUST(x->live == 0 && x->state != NVME_X_FREE && (x->flags & NVME_X_LISTED) == 0);
    x->state = NVME_X_FREE;
    x->next = n->extents.free;
    n->extents.free = extent;
    n->extents.used--;
}

void nvme__extents_push(struct nvme *n, struct nvme_extents *list, uint32_t extent)
{
    MUST(n->extent[extent].state != NVME_X_FREE);
    n->extent[extent].next = NVME_NONE;
    if (list->n++ == 0)
        list->head = extent;
    else
        n->extent[list->tail].next = extent;
    list->tail = extent;
}

uint32_t nvme__extents_pop(struct nvme *n, struct nvme_extents *list)
{
    if (list->n == 0)
        return NVME_NONE;
    const uint32_t extent = list->head;
    list->head = n->extent[extent].next;
    list->n--;
    n->extent[extent].next = NVME_NONE;
    return extent;
}

void nvme__dirty(struct nvme *n, uint32_t extent)
{
    MUST(n->extent[extent].state == NVME_X_COMMITTED &&
         (n->extent[extent].flags & NVME_X_LISTED) == 0);
    n->extent[extent].flags |= NVME_X_LISTED;
    nvme__extents_push(n, &n->dirty.list, extent);
    n->dirty.in++;
}

/* Dead are blocks without an entry. Records of namespaces never are while the segment lives. */
void nvme__value(const struct nvme *n, uint32_t extent, struct nvme_value *ret)
{
    const struct nvme_extent *x = &n->extent[extent];
    *ret = (struct nvme_value){.flags = (x->flags & NVME_X_DURABLE) != 0 ? NVME_T_DURABLE : 0,
                               .pages = x->pages,
                               .items = x->items,
                               .head_pages = x->head_pages,
                               .records = x->records,
                               .gen = n->seg[x->seg].gen,
                               .seq = x->seq,
                               .sum = x->sum};
    for (uint32_t i = x->records; i < x->items; i++)
        ret->dead[i / 8] |= (uint8_t)(1u << i % 8);
    for (uint32_t id = x->first; id != NVME_NONE; id = n->entry[id].next) {
        const uint32_t item = n->entry[id].item;
        MUST(item < x->items && n->entry[id].extent == extent);
        ret->dead[item / 8] &= (uint8_t) ~(1u << item % 8);
    }
}
