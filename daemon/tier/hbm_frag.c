/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the list of fragments of a device copy, from blocks and page numbers; a part at a time. */
#include "hbm__.h"

static const struct hbm_group *group_of(const struct device_copy *c)
{
    return &c->pool->group[c->group];
}

static bool by_layers(const struct device_copy *c)
{
    return c->kind == DEVICE_LOAD && c->ready != NULL;
}

/* --- the cursor --- */

/* Regions from `first` to the end of its layer, or all of them; a FILL has one, the piece. */
static void layer_begin(struct hbm_job *j, uint32_t first)
{
    const struct device_copy *c = j->copy;
    struct hbm_cursor *at = &j->at;
    at->first = first;
    at->end = 1;
    at->slots = false;
    at->piece = 0;
    at->region = first;
    at->page = 0;
    if (c->kind == DEVICE_FILL)
        return;
    const struct hbm_group *g = group_of(c);
    at->end = g->nregions;
    if (by_layers(c))
        for (at->end = first + 1; at->end < g->nregions; at->end++)
            if (g->region[at->end].layer != g->region[first].layer)
                break;
}

void hbm__list_begin(struct hbm_job *j)
{
    layer_begin(j, 0);
}

static void layer_end(struct hbm_job *j)
{
    j->at.layers++;
    if (j->copy->kind == DEVICE_FILL || j->at.end == group_of(j->copy)->nregions)
        j->at.over = true;
    else
        layer_begin(j, j->at.end);
}

/* Whether the piece is one of those whose turn it is. */
static bool hbm_frag_is_due(const struct hbm_job *j, const struct device_piece *p)
{
    const bool from_slot = j->copy->kind == DEVICE_LOAD && p->host == NULL;
    return p->status == 0 && from_slot == j->at.slots;
}

/* The cursor to the next fragment of the layer; false: there is none. */
static bool hbm_frag_settle(struct hbm_job *j)
{
    struct hbm_cursor *at = &j->at;
    for (;; at->piece++) {
        if (at->piece == j->copy->n) {
            if (at->slots || j->copy->kind != DEVICE_LOAD)
                return false;
            at->slots = true;
            at->piece = 0;
        }
        if (hbm_frag_is_due(j, &j->copy->piece[at->piece]))
            return true;
    }
}

static void advance(struct hbm_job *j)
{
    struct hbm_cursor *at = &j->at;
    if (j->copy->kind != DEVICE_FILL && ++at->page < group_of(j->copy)->pages_per_block)
        return;
    at->page = 0;
    if (++at->region < at->end)
        return;
    at->region = at->first;
    at->piece++;
}

/* --- one fragment --- */

static uint64_t slot_addr(struct hbm_job *j, struct tier_loc loc)
{
    if (j->at.slot != loc.id) {
        const int err = hbm__slot_at(j->hbm, loc, &j->at.slot_addr);
        MUST(err == 0);
        j->at.slot = loc.id;
    }
    return j->at.slot_addr;
}

static enum gpu_direction direction_of(const struct hbm_job *j)
{
    if (j->copy->kind == DEVICE_STORE)
        return GPU_FROM_DEVICE;
    return j->at.slots ? GPU_ON_DEVICE : GPU_TO_DEVICE;
}

/* *ret_mem: the worker's memory that it is in; NULL: none. */
static struct kvc_frag frag_at(struct hbm_job *j, const struct device_mem **ret_mem)
{
    const struct device_copy *c = j->copy;
    const struct device_piece *p = &c->piece[j->at.piece];
    *ret_mem = NULL;
    if (c->kind == DEVICE_FILL)
        return (struct kvc_frag){slot_addr(j, p->slot), (uintptr_t)p->host, c->bytes};
    const struct hbm_region *r = &group_of(c)->region[j->at.region];
    const uint32_t page = p->pages[j->at.page];
    *ret_mem = r->mem;
    MUST(page < c->pool->pages_max); /* nobody has changed the list since submit() looked */
    const uint64_t in_page = r->mem->mem.addr + r->base + page * r->stride_bytes;
    const uint64_t in_block = (j->at.slots ? slot_addr(j, p->slot) : (uintptr_t)p->host) + r->at +
                              j->at.page * r->page_bytes;
    if (c->kind == DEVICE_STORE)
        return (struct kvc_frag){in_block, in_page, r->page_bytes};
    return (struct kvc_frag){in_page, in_block, r->page_bytes};
}

/* Behind the last one where it goes on there; not into what a mark is waiting for. One fragment
 * never leaves one allocation, nor one piece of host memory that is registered by itself: workers'
 * memory is compared, and payloads of two chunks never touch, for each begins with its headers. */
static bool hbm_frag_merge(struct hbm_list *list, const struct kvc_frag *f,
                           const struct device_mem *mem)
{
    const uint32_t marked = list->nmarks > 0 ? list->mark[list->nmarks - 1].end : 0;
    if (list->nfrags == marked || list->mem != mem)
        return false;
    struct kvc_frag *last = &list->frag[list->nfrags - 1];
    if (last->to + last->bytes != f->to || last->from + last->bytes != f->from)
        return false;
    last->bytes += f->bytes;
    return true;
}

void hbm__list(struct hbm_job *j, struct hbm_list *list)
{
    list->nfrags = 0;
    list->nmarks = 0;
    while (!j->at.over) {
        /* A mark is in the list of the last fragment before it: each fragment has room for one. */
        if (!hbm_frag_settle(j)) {
            layer_end(j);
            if (by_layers(j->copy))
                list->mark[list->nmarks++] = (struct gpu_mark){
                    .end = list->nfrags,
                    .value = j->copy->ready_value + j->at.layers,
                    .word = j->copy->ready,
                };
            continue;
        }
        const struct device_mem *mem;
        const struct kvc_frag f = frag_at(j, &mem);
        if (list->nfrags == 0)
            list->direction = direction_of(j);
        else if (list->direction != direction_of(j) || list->nmarks == HBM_MARKS)
            return;
        if (!hbm_frag_merge(list, &f, mem)) {
            if (list->nfrags == HBM_FRAGS)
                return;
            list->frag[list->nfrags++] = f;
            list->mem = mem;
        }
        advance(j);
    }
}
