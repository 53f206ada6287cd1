/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cache strategies: ways to keep the K and V of a sequence from token to token. Each is a table of
 * functions in a file of its own (kv_*.c). The model calls four of them: room() before it computes
 * tokens, write() with their K and V, view() to find K and V for attention, and advance() at the
 * end. The daemon keeps blocks of a sequence: a strategy also writes such blocks (block_out) and
 * takes blocks of the daemon (adopt).
 *
 * Threads   one at a time.
 * Errors    0 or -errno. After an error a KV may only be destroyed, or truncated to 0 tokens.
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
 * The layout of a block: [layer][K|V][token][head][row]. A plane is the K, or the V, of one layer;
 * it begins at a multiple of 64 bytes. Pages, blocks of the daemon and plain tensors (one page of
 * many tokens) all have this layout, and only the functions here know it. A block of hidden states
 * has one plane per layer, [layer][token][x].
 */
struct kv_layout {
    uint32_t tokens, layers, kv_heads, head_size;
    uint32_t type[2];      /* enum kvc_type, of K and of V */
    uint64_t row_bytes[2]; /* of one head of one token, in K and in V */
    uint64_t offset[2];    /* of the K and the V plane in their layer */
    uint64_t layer_bytes, block_bytes;
};

/* Parses "q8_0:fp16" (type of K, type of V), or one type for both. -EINVAL: no such type. */
KV_MUST_USE int kv_types_parse(const char *text, uint32_t *ret_k_type, uint32_t *ret_v_type);
/* -EINVAL: the model's head size does not suit one of the types. */
KV_MUST_USE int kv_layout_make(const struct model *model, uint32_t tokens, uint32_t k_type,
                               uint32_t v_type, struct kv_layout *ret_layout);
/* Where in a block a token's K (plane 0) or V (plane 1) begins. Its heads lie side by side, and the
 * next token follows them. */
static inline uint64_t kv_at(const struct kv_layout *l, uint32_t layer, unsigned plane,
                             uint32_t token)
{
    return layer * l->layer_bytes + l->offset[plane] + token * l->kv_heads * l->row_bytes[plane];
}
/* Writes computed K and V, fp32 [n][kv_heads][head_size], to tokens first .. first + n - 1 of a
 * block, in its types. */
KV_MUST_USE int kv_rows_put(const struct kv_layout *l, uint32_t layer, uint32_t first, uint32_t n,
                            const float *k, const float *v, void *block);
/* Copies n tokens, in all layers, from one block to another, which may have other types. */
KV_MUST_USE int kv_rows_copy(const struct kv_layout *from_is, const void *from, uint32_t from_first,
                             const struct kv_layout *to_is, void *to, uint32_t to_first,
                             uint32_t n);

/* ---- what attention reads ---- */

/* The lists of pages that together have all tokens of one layer. kv_view_add() adds them in the
 * order of the tokens. */
struct kv_view {
    uint32_t lists;
    struct kvc_paged list[KVC_LISTS_MAX];
    uint32_t first[KVC_LISTS_MAX][2], last[KVC_LISTS_MAX];
};
/* Adds a list of `tokens` tokens (0: adds none) in pages of this layout. `page` has the page
 * numbers, and page p is at base + p * stride. The view borrows `page`. */
void kv_view_add(struct kv_view *view, const struct kv_layout *l, uint32_t layer, const void *base,
                 uint64_t stride, const uint32_t *page, uint32_t tokens);

/* ---- strategies ---- */

struct kv_setup {
    struct model *model;
    uint32_t tokens_max;   /* the most tokens of a sequence */
    uint32_t block_tokens; /* tokens of a page, and of a block of the daemon */
    uint32_t k_type, v_type;
    uint32_t exact_tokens; /* quantised: so many last tokens of a sequence stay fp32 */
    uint32_t seqs;         /* sequences that may share memory by `peer` */
    struct kv *peer;       /* a sequence of the same setup whose memory is shared; or NULL */
};

struct kv_usage {
    uint64_t bytes;    /* the sequence's own memory */
    uint64_t borrowed; /* memory of the daemon that is read in place */
    uint64_t copied;   /* bytes that the strategy has copied since create() */
};

struct kv_strategy {
    const char *name;
    const char *what; /* for --help */
    bool forgets;     /* keeps nothing from token to token */
    bool lossy;       /* the daemon's blocks have less precision than what was computed */
    bool needs_store; /* works only with a daemon */
    KV_MUST_USE int (*create)(const struct kv_setup *setup, struct kv **ret_kv);
    void (*destroy)(struct kv *kv);
    /* Makes room for tokens 0 .. tokens - 1. */
    KV_MUST_USE int (*room)(struct kv *kv, uint32_t tokens);
    /* Takes K and V of tokens first .. first + n - 1 at one layer; room() was called for them. x:
     * the layer's input, [n][hidden]. */
    KV_MUST_USE int (*write)(struct kv *kv, uint32_t layer, uint32_t first, uint32_t n,
                             const float *k, const float *v, const float *x);
    /* Fills the view with the first `tokens` tokens, all of which are written at this layer. */
    KV_MUST_USE int (*view)(struct kv *kv, uint32_t layer, uint32_t tokens, struct kv_view *view);
    /* The first `tokens` tokens are written at every layer; sets kv->tokens. */
    KV_MUST_USE int (*advance)(struct kv *kv, uint32_t tokens);
    /* Keeps the first `tokens` tokens, a multiple of block_tokens, and forgets the others. */
    void (*truncate)(struct kv *kv, uint32_t tokens);
    void (*usage)(const struct kv *kv, struct kv_usage *ret_usage);

    /* Name of the layout of the daemon's blocks, and their size. */
    const char *layout;
    uint64_t (*block_bytes)(const struct kv *kv);
    /* Writes block number `block` to `to`; the KV has the block's first `tokens` tokens. */
    KV_MUST_USE int (*block_out)(struct kv *kv, uint32_t block, uint32_t tokens, void *to);
    /* Takes the daemon's blocks as numbers first .. first + n - 1 of the sequence, which has all
     * blocks before them. Then the sequence has `tokens` tokens, the last of them in the last
     * block. The blocks stay valid until destroy(), or truncate() to tokens before them. */
    KV_MUST_USE int (*adopt)(struct kv *kv, const struct kvc_block *block, uint32_t first,
                             uint32_t n, uint32_t tokens);
};

/* Each strategy's own struct begins with this one. */
struct kv {
    const struct kv_strategy *is;
    struct kv_setup setup;
    uint32_t tokens; /* the KV has the K and V of the first `tokens` tokens */
};

/* The number of blocks for `tokens` tokens. */
static inline uint32_t kv_blocks(const struct kv *kv, uint32_t tokens)
{
    return (tokens + kv->setup.block_tokens - 1) / kv->setup.block_tokens;
}

extern const struct kv_strategy kv_none, kv_static, kv_doubling, kv_paged, kv_offloaded,
    kv_quantised, kv_hidden;
/* Ends with NULL. */
extern const struct kv_strategy *const kv_strategies[];

/* block_out and block_bytes of the strategies whose blocks have K and V; they read by view(). */
KV_MUST_USE int kv_block_out(struct kv *kv, uint32_t block, uint32_t tokens, void *to);
uint64_t kv_block_bytes(const struct kv *kv);

#endif
