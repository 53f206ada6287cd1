/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache strategy: where the K and V of a sequence are kept between the tokens, as a table of
 * functions, one file each (kv_*.c). The model asks a strategy four things: is there room, here are
 * K and V, where do they lie, that was all. What the daemon keeps of a sequence are blocks; a
 * strategy also says what is in a block, and takes blocks in that the daemon has.
 *
 * Threads   one at a time.
 * Errors    0 or -errno; a KV that had an error is destroyed or truncated to 0, nothing else.
 */
#ifndef WORKER_KV_H
#define WORKER_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvcache/attention.h>

#define KV_MUST_USE __attribute__((warn_unused_result))

struct model;
struct kv;
struct kvc_block;

/* ---- a block ---- */

/*
 * What is where in a block: [layer][K|V][token][head][row], each plane begins at a multiple of 64
 * bytes. Pages, blocks of the daemon and plain tensors (one page of many tokens) are all laid out
 * so, and nothing else knows it. A block of hidden states is one plane a layer, [layer][token][x].
 */
struct kv_layout {
    uint32_t tokens, layers, kv_heads, head_size;
    uint32_t type[2];      /* enum kvc_type, of K and of V */
    uint64_t row_bytes[2]; /* of a token and a head */
    uint64_t offset[2];    /* of the plane in its layer */
    uint64_t layer_bytes, block_bytes;
};

/* "q8_0:fp16" (of K, of V), or one for both. -EINVAL: there is no such type. */
KV_MUST_USE int kv_types_parse(const char *text, uint32_t *ret_k_type, uint32_t *ret_v_type);
/* -EINVAL: a type has no such row. */
KV_MUST_USE int kv_layout_make(const struct model *model, uint32_t tokens, uint32_t k_type,
                               uint32_t v_type, struct kv_layout *ret_layout);
/* Of a token in a block: its heads lie side by side, and the next token behind them. */
static inline uint64_t kv_at(const struct kv_layout *l, uint32_t layer, unsigned plane,
                             uint32_t token)
{
    return layer * l->layer_bytes + l->offset[plane] + token * l->kv_heads * l->row_bytes[plane];
}
/* K and V as computed, fp32 [n][kv_heads][head_size], into tokens first .. of a block; and tokens
 * of a block, all layers of them, into those of another, which may have other types. */
KV_MUST_USE int kv_rows_put(const struct kv_layout *l, uint32_t layer, uint32_t first, uint32_t n,
                            const float *k, const float *v, void *block);
KV_MUST_USE int kv_rows_copy(const struct kv_layout *from_is, const void *from, uint32_t from_first,
                             const struct kv_layout *to_is, void *to, uint32_t to_first,
                             uint32_t n);

/* ---- what attention reads ---- */

/* Of one layer: the lists of pages that have all tokens. Filled by kv_view_add() in their order. */
struct kv_view {
    uint32_t lists;
    struct kvc_paged list[KVC_LISTS_MAX];
    uint32_t first[KVC_LISTS_MAX][2], last[KVC_LISTS_MAX];
};
/* `tokens` tokens (0: none, and no list) in pages of this layout: page p is at base + p * stride.
 * `page` is borrowed as long as the view is used. */
void kv_view_add(struct kv_view *view, const struct kv_layout *l, uint32_t layer, const void *base,
                 uint64_t stride, const uint32_t *page, uint32_t tokens);

/* ---- strategies ---- */

struct kv_setup {
    struct model *model;
    uint32_t tokens_max;   /* of a sequence */
    uint32_t block_tokens; /* of a page, and of a block of the daemon's */
    uint32_t k_type, v_type;
    uint32_t exact_tokens; /* quantised: the last ones that stay fp32 */
    uint32_t seqs;         /* that may share memory by `peer` */
    struct kv *peer;       /* NULL, or a sequence of the same setup whose memory is shared */
};

struct kv_usage {
    uint64_t bytes;    /* memory that is kept for the sequence */
    uint64_t borrowed; /* of the daemon's memory, read in place */
    uint64_t copied;   /* bytes that the strategy moved, its life long */
};

struct kv_strategy {
    const char *name;
    const char *what; /* for --help */
    bool forgets;     /* keeps nothing between the tokens */
    bool lossy;       /* what the daemon has is not what was computed */
    bool needs_store; /* works with a daemon only */
    KV_MUST_USE int (*create)(const struct kv_setup *setup, struct kv **ret_kv);
    void (*destroy)(struct kv *kv);
    /* For tokens 0 .. tokens - 1. */
    KV_MUST_USE int (*room)(struct kv *kv, uint32_t tokens);
    /* K and V of tokens first .. first + n - 1, for which there is room; x: what the layer had as
     * its input, [n][hidden]. */
    KV_MUST_USE int (*write)(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n,
                             const float *k, const float *v, const float *x);
    /* `tokens` of them, all written at this layer. */
    KV_MUST_USE int (*view)(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view);
    /* Tokens up to here are written at every layer: kv->tokens. */
    KV_MUST_USE int (*advance)(struct kv *kv, uint32_t tokens);
    /* Forgets the tokens from here on; a multiple of block_tokens. */
    void (*truncate)(struct kv *kv, uint32_t tokens);
    void (*usage)(const struct kv *kv, struct kv_usage *ret_usage);

    /* Blocks of the daemon: their layout's name and size. */
    const char *layout;
    uint64_t (*block_bytes)(const struct kv *kv);
    /* The bytes of a block of which the first `tokens` tokens are there. */
    KV_MUST_USE int (*block_out)(struct kv *kv, uint32_t block, uint32_t tokens, void *to);
    /* Blocks of the daemon, numbers first .. first + n - 1 of the sequence, which has all before
     * them; then it has its tokens up to `tokens`, in the last of them. They last until `destroy`
     * or `truncate` to less. */
    KV_MUST_USE int (*adopt)(struct kv *kv, const struct kvc_block *block, uint32_t first,
                             uint32_t n, uint32_t tokens);
};

/* Each strategy's own struct begins with it. */
struct kv {
    const struct kv_strategy *is;
    struct kv_setup setup;
    uint32_t tokens; /* whose K and V are there */
};

/* So many blocks have `tokens` tokens. */
static inline uint32_t kv_blocks(const struct kv *kv, uint32_t tokens)
{
    return (tokens + kv->setup.block_tokens - 1) / kv->setup.block_tokens;
}

extern const struct kv_strategy kv_none, kv_static, kv_doubling, kv_paged, kv_offloaded,
    kv_quantised, kv_hidden;
/* Ends with NULL. */
extern const struct kv_strategy *const kv_strategies[];

/* For strategies whose blocks have K and V: what block_out and block_bytes are, by `view`. */
KV_MUST_USE int kv_block_out(struct kv *kv, uint32_t block, uint32_t tokens, void *to);
uint64_t kv_block_bytes(const struct kv *kv);

#endif
