/* SPDX-License-Identifier: Apache-2.0 */
/*
 * offloaded: K and V of two layers are resident: of the layer that attends, and of the next one,
 * which a thread brings in meanwhile. The rest is with the daemon (OffloadedCache of transformers
 * keeps it in host memory behind a GPU). Blocks that are not full, or that the daemon has not taken
 * yet, are in pages of the sequence. With a GPU the two layers would be in its memory; here they
 * show what such a cache needs and copies.
 */
#include <errno.h>
#include <kvcache/kvcache.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "kv_pages.h"
#include "model.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define NO_LAYER  UINT32_MAX

/* Resident memory for K and V of one layer, block by block. */
struct resident {
    char *memory;
    uint32_t layer, blocks; /* layer and number of blocks that are resident; NO_LAYER: none */
};

struct offloaded {
    struct kv kv;
    struct kv_layout l;
    const char **given; /* the first blocks, in the daemon's memory */
    uint32_t n, room;
    uint32_t *page;      /* 0, 1, 2, ...: numbers of resident blocks */
    struct kv_table own; /* pages of the other blocks */
    uint64_t copied;
    /* Shared with the thread, under the lock. */
    struct resident two[2];
    uint32_t wanted; /* the layer that is to be brought in; NO_LAYER: none */
    bool stop;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread;
};

/* ---- the two layers ---- */

static void layer_bring(struct offloaded *o, struct resident *r, uint32_t layer)
{
    for (uint32_t b = r->layer == layer ? r->blocks : 0; b < o->n; b++) {
        memcpy(r->memory + b * o->l.layer_bytes, o->given[b] + layer * o->l.layer_bytes,
               o->l.layer_bytes);
        o->copied += o->l.layer_bytes;
    }
    r->layer = layer;
    r->blocks = o->n;
}

static void *bringer(void *arg)
{
    struct offloaded *o = arg;
    (void)pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        if (o->wanted == NO_LAYER) {
            (void)pthread_cond_wait(&o->changed, &o->lock);
            continue;
        }
        const uint32_t layer = o->wanted;
        (void)pthread_mutex_unlock(&o->lock);
        /* The lock is not needed: nobody else uses this one meanwhile. */
        layer_bring(o, &o->two[layer % 2], layer);
        (void)pthread_mutex_lock(&o->lock);
        o->wanted = NO_LAYER;
        (void)pthread_cond_broadcast(&o->changed);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Waits until the thread is idle. Called and returns with the lock held. */
static void bringer_await(struct offloaded *o)
{
    while (o->wanted != NO_LAYER)
        (void)pthread_cond_wait(&o->changed, &o->lock);
}

/* Waits until the layer is resident, and has the thread bring in the next one. */
static const struct resident *layer_get(struct offloaded *o, uint32_t layer)
{
    struct resident *r = &o->two[layer % 2];
    const uint32_t next = (layer + 1) % o->l.layers;
    (void)pthread_mutex_lock(&o->lock);
    bringer_await(o);
    if (r->layer != layer || r->blocks != o->n)
        layer_bring(o, r, layer);
    if (next % 2 != layer % 2) {
        o->wanted = next;
        (void)pthread_cond_broadcast(&o->changed);
    }
    (void)pthread_mutex_unlock(&o->lock);
    return r;
}

/* ---- the strategy ---- */

static void offloaded_destroy(struct kv *kv)
{
    struct offloaded *o = (struct offloaded *)kv;
    if (o->has_thread) {
        (void)pthread_mutex_lock(&o->lock);
        o->stop = true;
        (void)pthread_cond_broadcast(&o->changed);
        (void)pthread_mutex_unlock(&o->lock);
        (void)pthread_join(o->thread, NULL);
    }
    (void)pthread_cond_destroy(&o->changed);
    (void)pthread_mutex_destroy(&o->lock);
    table_destroy(&o->own);
    free(o->given);
    free(o->page);
    free(o->two[0].memory);
    free(o->two[1].memory);
    free(o);
}

static int offloaded_create(const struct kv_setup *s, struct kv **ret_kv)
{
    struct offloaded *o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    o->kv = (struct kv){.is = &kv_offloaded, .setup = *s};
    o->wanted = o->two[0].layer = o->two[1].layer = NO_LAYER;
    (void)pthread_mutex_init(&o->lock, NULL);
    (void)pthread_cond_init(&o->changed, NULL);
    int rc = kv_layout_make(s->model, s->block_tokens, s->k_type, s->v_type, &o->l);
    if (rc == 0 && s->peer)
        o->own.pool = kv_pool_share(((struct offloaded *)s->peer)->own.pool);
    else if (rc == 0)
        rc = kv_pool_create(o->l.block_bytes, kv_blocks(&o->kv, s->tokens_max) * s->seqs,
                            &o->own.pool);
    if (rc == 0)
        rc = -pthread_create(&o->thread, NULL, bringer, o);
    o->has_thread = rc == 0;
    if (rc != 0) {
        offloaded_destroy(&o->kv);
        return rc;
    }
    *ret_kv = &o->kv;
    return 0;
}

static int offloaded_room(struct kv *kv, uint32_t tokens)
{
    struct offloaded *o = (struct offloaded *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens);
    return blocks <= o->n ? 0 : table_grow(&o->own, blocks - o->n);
}

static int offloaded_write(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n,
                           const float *k, const float *v, const float *x)
{
    const struct offloaded *o = (const struct offloaded *)kv;
    (void)x;
    return table_write(&o->own, &o->l, o->n, layer, first, n, k, v);
}

static int offloaded_view(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view)
{
    struct offloaded *o = (struct offloaded *)kv;
    const uint32_t given = MIN(tokens, o->n * o->l.tokens);
    if (given > 0)
        kv_view_add(view, &o->l, 0, layer_get(o, layer)->memory, o->l.layer_bytes, o->page, given);
    kv_view_add(view, &o->l, layer, o->own.pool->base, o->l.block_bytes, o->own.page,
                tokens - given);
    return 0;
}

static int offloaded_advance(struct kv *kv, uint32_t tokens)
{
    kv->tokens = tokens;
    return 0;
}

static void offloaded_truncate(struct kv *kv, uint32_t tokens)
{
    struct offloaded *o = (struct offloaded *)kv;
    const uint32_t blocks = kv_blocks(kv, tokens);
    (void)pthread_mutex_lock(&o->lock);
    bringer_await(o);
    kv->tokens = MIN(kv->tokens, tokens);
    table_cut(&o->own, blocks > o->n ? blocks - o->n : 0);
    o->n = MIN(o->n, blocks);
    for (unsigned i = 0; i < 2; i++)
        o->two[i].blocks = MIN(o->two[i].blocks, o->n);
    (void)pthread_mutex_unlock(&o->lock);
}

static void offloaded_usage(const struct kv *kv, struct kv_usage *ret_usage)
{
    struct offloaded *o = (struct offloaded *)(uintptr_t)kv;
    (void)pthread_mutex_lock(&o->lock);
    bringer_await(o);
    (void)pthread_mutex_unlock(&o->lock);
    *ret_usage =
        (struct kv_usage){.bytes = o->own.n * o->l.block_bytes + 2 * o->n * o->l.layer_bytes,
                          .borrowed = o->n * o->l.block_bytes,
                          .copied = o->copied};
}

/* Makes room for the addresses of n blocks of the daemon. */
static int given_grow(struct offloaded *o, uint32_t n)
{
    if (n <= o->room)
        return 0;
    const uint32_t room = 2 * n;
    const char **given = realloc(o->given, room * sizeof(*given));
    o->given = given ? given : o->given;
    uint32_t *page = given ? realloc(o->page, room * sizeof(*page)) : NULL;
    o->page = page ? page : o->page;
    for (unsigned i = 0; page && i < 2; i++) {
        char *memory = realloc(o->two[i].memory, room * o->l.layer_bytes);
        o->two[i].memory = memory ? memory : o->two[i].memory;
        page = memory ? page : NULL;
    }
    if (!page)
        return -ENOMEM;
    for (uint32_t b = 0; b < room; b++)
        page[b] = b;
    o->room = room;
    return 0;
}

/* Full blocks of the daemon replace the sequence's own pages. A last block that is partly filled is
 * copied, because the sequence will write to it. */
static int offloaded_adopt(struct kv *kv, const struct kvc_block *block, uint32_t first, uint32_t n,
                           uint32_t tokens)
{
    struct offloaded *o = (struct offloaded *)kv;
    const uint32_t per = o->l.tokens, whole = MIN(n, tokens / per - first);
    if (first != o->n)
        return -EINVAL;
    (void)pthread_mutex_lock(&o->lock);
    bringer_await(o);
    int rc = given_grow(o, o->n + whole);
    for (uint32_t b = 0; rc == 0 && b < whole; b++) {
        if (o->own.n > 0)
            table_shift(&o->own);
        o->given[o->n++] = block[b].data;
    }
    (void)pthread_mutex_unlock(&o->lock);
    if (rc == 0 && tokens > kv->tokens) {
        const uint32_t rest = tokens - (first + whole) * per;
        rc = offloaded_room(kv, tokens);
        if (rc == 0 && rest > 0)
            rc = kv_rows_copy(&o->l, block[whole].data, 0, &o->l,
                              pool_page(o->own.pool, o->own.page[0]), 0, rest);
        kv->tokens = tokens;
    }
    return rc;
}

const struct kv_strategy kv_offloaded = {
    .name = "offloaded",
    .what = "two layers resident, the rest with the daemon",
    .needs_store = true,
    .create = offloaded_create,
    .destroy = offloaded_destroy,
    .room = offloaded_room,
    .write = offloaded_write,
    .view = offloaded_view,
    .advance = offloaded_advance,
    .truncate = offloaded_truncate,
    .usage = offloaded_usage,
    .layout = "[layer][K|V][token][head][size]",
    .block_bytes = kv_block_bytes,
    .block_out = kv_block_out,
    .adopt = offloaded_adopt,
};
