/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes the fragments of a device copy, from blocks and page numbers: a piece at a time, on the
 * device's thread, when the device can take one.
 */
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

/* Sets the cursor to regions from `first` to the end of its layer, or to the last one if the copy
 * does not go by layers. A FILL has no regions and counts as one. */
static void layer_begin(const struct device_copy *c, struct hbm_cursor *at, uint32_t first)
{
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

void hbm__list_begin(struct device_copy *c)
{
    struct hbm_cursor *at = &hbm__copy(c)->at;
    *at = (struct hbm_cursor){.layers = 0};
    layer_begin(c, at, 0);
}

/* Ends a layer and begins the next one. False: this was the last. */
static bool layer_end(const struct device_copy *c, struct hbm_cursor *at)
{
    at->layers++;
    if (c->kind == DEVICE_FILL || at->end == group_of(c)->nregions)
        return false;
    layer_begin(c, at, at->end);
    return true;
}

/* Whether the piece belongs to this pass: a LOAD takes pieces from host memory first, then those
 * from slots. Failed pieces are skipped. */
static bool hbm_frag_is_due(const struct device_copy *c, const struct hbm_cursor *at)
{
    const struct device_piece *p = &c->piece[at->piece];
    const bool from_slot = c->kind == DEVICE_LOAD && p->host == NULL;
    return p->status == 0 && from_slot == at->slots;
}

/* Moves the cursor to the next fragment of the layer. False: there is none. */
static bool hbm_frag_next(const struct device_copy *c, struct hbm_cursor *at)
{
    for (;; at->piece++) {
        if (at->piece == c->n) {
            if (at->slots || c->kind != DEVICE_LOAD)
                return false;
            at->slots = true;
            at->piece = 0;
        }
        if (hbm_frag_is_due(c, at))
            return true;
    }
}

static void advance(const struct device_copy *c, struct hbm_cursor *at)
{
    at->done_bytes = 0;
    if (c->kind != DEVICE_FILL && ++at->page < group_of(c)->pages_per_block)
        return;
    at->page = 0;
    if (++at->region < at->end)
        return;
    at->region = at->first;
    at->piece++;
}

/* --- one fragment --- */

static enum gpu_direction direction_of(const struct device_copy *c, const struct hbm_cursor *at)
{
    if (c->kind == DEVICE_STORE)
        return GPU_FROM_DEVICE;
    return at->slots ? GPU_ON_DEVICE : GPU_TO_DEVICE;
}

/* The rest of the fragment at the cursor. *ret_mem: the worker's memory of it; NULL: a FILL's. */
static struct kvc_frag frag_at(const struct device_copy *c, const struct hbm_cursor *at,
                               const struct device_mem **ret_mem)
{
    const struct device_piece *p = &c->piece[at->piece];
    const uint64_t done = at->done_bytes;
    *ret_mem = NULL;
    if (c->kind == DEVICE_FILL)
        return (struct kvc_frag){p->slot_addr + done, (uintptr_t)p->host + done, c->bytes - done};
    const struct hbm_region *r = &group_of(c)->region[at->region];
    const uint32_t page = p->pages[at->page];
    *ret_mem = r->mem;
    MUST(page < c->pool->pages_max); /* submit() has checked it, and the list cannot change since */
    const uint64_t in_page = r->addr + page * r->stride_bytes + done;
    const uint64_t in_block =
        (at->slots ? p->slot_addr : (uintptr_t)p->host) + r->at + at->page * r->page_bytes + done;
    if (c->kind == DEVICE_STORE)
        return (struct kvc_frag){in_block, in_page, r->page_bytes - done};
    return (struct kvc_frag){in_page, in_block, r->page_bytes - done};
}

/* State while one piece is made. */
struct making {
    struct kvc_frag *frag;
    struct gpu_piece *piece;
    uint32_t frags_max, marked; /* marked: fragments before the last mark (end of a layer) */
    uint64_t bytes_max;
    const struct device_mem *mem; /* of the last fragment */
};

/* Appends `f` to the last fragment where both are adjacent, unless a mark lies between them. A
 * fragment stays in one allocation and in one registered piece of host memory: `mem` is compared,
 * and payloads of two chunks never touch, for each chunk begins with its headers. */
static bool hbm_frag_merge(const struct making *x, const struct kvc_frag *f,
                           const struct device_mem *mem)
{
    if (x->piece->n == x->marked || x->mem != mem)
        return false;
    struct kvc_frag *last = &x->frag[x->piece->n - 1];
    if (last->to + last->bytes != f->to || last->from + last->bytes != f->from)
        return false;
    last->bytes += f->bytes;
    return true;
}

/* Adds what fits of the next fragment; false: the piece is full. */
static bool hbm_frag_add(struct making *x, const struct device_copy *c, struct hbm_cursor *at)
{
    struct gpu_piece *piece = x->piece;
    const struct device_mem *mem;
    struct kvc_frag f = frag_at(c, at, &mem);
    const uint64_t left = x->bytes_max - piece->bytes, all = f.bytes;
    if (piece->n == 0)
        piece->direction = direction_of(c, at);
    else if (piece->direction != direction_of(c, at) || f.bytes > left)
        return false;
    f.bytes = MIN(f.bytes, left);
    if (!hbm_frag_merge(x, &f, mem)) {
        if (piece->n == x->frags_max)
            return false;
        x->frag[piece->n++] = f;
        x->mem = mem;
    }
    piece->bytes += f.bytes;
    if (f.bytes == all)
        advance(c, at);
    else
        at->done_bytes += f.bytes;
    return true;
}

void hbm__next_piece(struct gpu_op *op, struct kvc_frag *frag, uint32_t frags_max,
                     uint64_t bytes_max, struct gpu_piece *ret_piece)
{
    struct device_copy *c = op->ctx;
    struct hbm_cursor *at = &hbm__copy(c)->at;
    struct making x = {
        .frag = frag, .piece = ret_piece, .frags_max = frags_max, .bytes_max = bytes_max};
    *ret_piece = (struct gpu_piece){.frag = frag};
    for (;;) {
        if (hbm_frag_next(c, at)) {
            if (!hbm_frag_add(&x, c, at))
                return;
            continue;
        }
        ret_piece->last = !layer_end(c, at);
        if (by_layers(c)) {
            ret_piece->ready = c->ready_value + at->layers;
            x.marked = ret_piece->n;
        }
        if (ret_piece->last || (by_layers(c) && ret_piece->bytes >= GPU_PIECE_ENOUGH))
            return;
    }
}
