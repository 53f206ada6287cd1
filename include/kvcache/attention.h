/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over paged KV, in place, and the types that KV is kept in (library kvc_attend).
 *
 * One call is the attention of one layer for a batch of sequences. Decode is a call with one query
 * a sequence; causal prefill in chunks is a call with the chunk's queries, whose keys are in a list
 * like all others. All of a sequence's K and V are read where they lie, whatever type they have.
 *
 * Bits      The result of a query is a function of the values of its q, K and V as they are kept,
 *           of its position, and of scale, window and split_tokens. It is the same, bit for bit,
 *           whatever the page size, the order of pages, the strides, and how a sequence is divided
 *           into lists; whatever chunk the query came in and what else is in the batch; whatever
 *           the number of threads; with plain C, AVX2 and AVX-512, and on CUDA. Values must be
 *           finite: where one of a sequence's is not, the results of all its queries are
 *           unspecified, also of those that do not see that token. How it is computed is said
 *           in docs/notes/kernels-attention.md.
 * Memory    all is borrowed until the call returns. Nothing is written but `out`.
 * Threads   any; calls that are given the same kvc_threads come one after the other.
 * Errors    0, -EINVAL or -ENOMEM. Of what is refused, ret_why says what it is and what would be
 *           right; it may be NULL. Nothing is written then. There is no slow way for what is
 *           refused: what is accepted is read in place at the speed of its type.
 */
#ifndef KVCACHE_ATTENTION_H
#define KVCACHE_ATTENTION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef KVC_MUST_USE
#define KVC_MUST_USE __attribute__((warn_unused_result))
#endif

#define KVC_WHY_BYTES       200u   /* of an error's text */
#define KVC_HEAD_SIZE_MAX   512u   /* values in a row */
#define KVC_PAGE_TOKENS_MAX 65536u /* of one page */
#define KVC_LISTS_MAX       4u     /* page lists of one sequence */
#define KVC_TILE_TOKENS     64u    /* attention goes on by so many tokens */

/* ---- types ---- */

/*
 * How a row is kept: the K, or the V, of one token and one head, head_size values. Values above
 * what a type holds: fp16 and bf16 round to infinity, fp8 to its largest (448).
 *
 * row bytes for n values   alignment
 */
enum kvc_type {
    KVC_F32 = 0,  /* 4 n        4  */
    KVC_F16 = 1,  /* 2 n        2  IEEE binary16, rounded to nearest even, as the next two are */
    KVC_BF16 = 2, /* 2 n        2  the upper half of fp32 */
    KVC_F8 = 3,   /* n          1  e4m3 without infinities (OCP's, vLLM's fp8_e4m3), no scale */
    KVC_Q8_0 = 4, /* n/32 * 34  2  blocks of llama.cpp: fp16 scale, 32 int8; n a multiple of 32 */
    KVC_Q4_0 = 5, /* n/32 * 18  2  the same: fp16 scale, 16 bytes, value i in the low half of byte
                   *               i, value i + 16 in the high half, 8 added */
    KVC_I8 = 6,   /* 4 + n      4  fp32 scale (largest / 127), n int8 */
};
#define KVC_TYPES 7u

/* "fp32", "fp16", "bf16", "fp8", "q8_0", "q4_0", "int8"; NULL: no such type. */
const char *kvc_type_name(enum kvc_type type);

/* 0: there is no such row. head_size is a multiple of 16 up to KVC_HEAD_SIZE_MAX. */
uint32_t kvc_row_bytes(enum kvc_type type, uint32_t head_size);

/*
 * `rows` rows of fp32 into rows of a type, and back. Strides are in bytes, from one row to the
 * next. Addresses and strides are multiples of the alignment of the type (above) and of 4 for fp32.
 * Dequantising is exact for every type but q8_0, q4_0 and int8, where it is one fp32 product of the
 * scale and the integer: what attention reads is what kvc_dequantise gives.
 */
KVC_MUST_USE int kvc_quantise(enum kvc_type type, uint32_t head_size, uint64_t rows,
                              const float *from, uint64_t from_stride, void *to, uint64_t to_stride,
                              char ret_why[KVC_WHY_BYTES]);
KVC_MUST_USE int kvc_dequantise(enum kvc_type type, uint32_t head_size, uint64_t rows,
                                const void *from, uint64_t from_stride, float *to,
                                uint64_t to_stride, char ret_why[KVC_WHY_BYTES]);

/* ---- paged KV ---- */

/*
 * Where the rows of K, or of V, lie: that of page p, token t of the page, head h begins at
 *     base + p * page_stride + t * token_stride + h * head_stride
 * (bytes). NHD, HND, K and V in one page or apart are strides. base and the strides are multiples
 * of the type's alignment.
 */
struct kvc_plane {
    const void *base;
    uint64_t page_stride, token_stride, head_stride;
    uint32_t type; /* enum kvc_type */
};

/*
 * Pages, and for each sequence s of a batch its list of them: page[first[s]] to
 * page[first[s + 1] - 1], all full but the last, which holds last_tokens[s] (1 to page_tokens; not
 * read where the list is empty). Plain tensors are such pages too: one of so many tokens.
 */
struct kvc_paged {
    struct kvc_plane k, v;
    uint32_t page_tokens; /* 1 to KVC_PAGE_TOKENS_MAX */
    uint32_t pages;       /* that the memory has: page numbers are below */
    const uint32_t *page;
    const uint32_t *first;       /* [seqs + 1] */
    const uint32_t *last_tokens; /* [seqs] */
};

/* ---- attention ---- */

/*
 * A sequence's tokens are those of its list in list[0], then those in list[1], and so on: old
 * tokens in a small type and the last ones exact, cached pages and a chunk that has just been
 * computed. Its queries are its last tokens. The query at position p sees the tokens up to p, with
 * a window only the last `window` of these.
 *
 * q and out are [queries][heads][head_size]; sequence s has the queries q_first[s] to
 * q_first[s + 1] - 1, at least none. Query head i reads KV head i / (heads / kv_heads): MHA, GQA
 * and MQA are this number.
 *
 * split_tokens  The sequence is divided at its multiples, each part is attended to by itself, and
 *     the parts are merged in order by their log-sum-exp: a multiple of 64, or 0 for one part. It
 *     changes the last bits and is what lets several threads, or multiprocessors, share a sequence:
 *     fix it for good (512 suits) where results are compared.
 * dropped  Tokens before the first listed one, which no query's window reaches any more: positions
 *     count them, and bits are as if they were there. NULL: none.
 */
struct kvc_attention {
    uint32_t seqs, heads, kv_heads, head_size;
    float scale;     /* of scores: 1 / sqrt(head_size), mostly */
    uint32_t window; /* 0: none */
    uint32_t split_tokens;
    uint32_t lists; /* 1 to KVC_LISTS_MAX */
    struct kvc_paged list[KVC_LISTS_MAX];
    const uint32_t *dropped; /* [seqs], or NULL */
    const uint32_t *q_first; /* [seqs + 1] */
    const float *q;
    float *out; /* does not overlap what is read */
};

/* Threads that attend together, the caller's among them. `threads` is 1 to 1,024. -EAGAIN: the
 * system has none left. */
struct kvc_threads;
KVC_MUST_USE int kvc_threads_create(uint32_t threads, struct kvc_threads **ret_threads);
void kvc_threads_destroy(struct kvc_threads **threads);

/* threads == NULL: the caller's thread alone, with memory that is allocated for the call. */
KVC_MUST_USE int kvc_attend_cpu(const struct kvc_attention *attention, struct kvc_threads *threads,
                                char ret_why[KVC_WHY_BYTES]);

/* What kvc_attend_cpu() uses here: "avx512", "avx2" or "plain". */
const char *kvc_attend_cpu_name(void);

/* ---- on a device ---- */

/*
 * Device code for cuModuleLoadData() and cuLaunchKernel() (image: below, where the build has CUDA).
 * All addresses in the arguments are the device's; whoever launches has checked them: the kernels
 * check nothing, kvc_attend_plan() does.
 *
 *   KVC_ATTEND_KERNEL        (struct kvc_attention, uint32_t parts, float *work)
 *   KVC_ATTEND_MERGE_KERNEL  (struct kvc_attention, uint32_t states, float *work)
 *       one after the other on one stream: grid (x, y, z), blocks of KVC_ATTEND_THREADS, then
 *       (x, KVC_ATTEND_ROWS, z) of KVC_ATTEND_MERGE_THREADS; states is y. work is device memory, a
 *       multiple of 4.
 *       Rows at multiples of 16 are the fastest, then 8 and 4; others, q8_0 and q4_0 with an odd
 *       number of blocks, and 64 tokens that have several types, are several times slower.
 *   KVC_QUANTISE_KERNEL, KVC_DEQUANTISE_KERNEL  (struct kvc_rows)
 *       a warp a row, blocks of KVC_ROWS_THREADS, any grid; what kvc_quantise() checks holds.
 */
#define KVC_ATTEND_KERNEL        kvc_attend
#define KVC_ATTEND_MERGE_KERNEL  kvc_attend_merge
#define KVC_ATTEND_THREADS       32u
#define KVC_ATTEND_MERGE_THREADS 128u
#define KVC_ATTEND_ROWS          8u
#define KVC_QUANTISE_KERNEL      kvc_quantise_rows
#define KVC_DEQUANTISE_KERNEL    kvc_dequantise_rows
#define KVC_ROWS_THREADS         256u

struct kvc_rows {
    uint32_t type, head_size;
    uint64_t rows;
    const void *from;
    uint64_t from_stride;
    void *to;
    uint64_t to_stride;
};

struct kvc_attend_plan {
    uint32_t x, y, z, parts;
    uint64_t work_bytes;
};
/*
 * Checks as kvc_attend_cpu() does, and divides the work. `a` is the attention with page lists,
 * dropped and q_first in the host's memory, for they are read here; bases, q and out are not.
 * `blocks`: that keep the device busy, 8 for each multiprocessor. It changes no bit.
 */
KVC_MUST_USE int kvc_attend_plan(const struct kvc_attention *a, uint32_t blocks,
                                 struct kvc_attend_plan *ret_plan, char ret_why[KVC_WHY_BYTES]);

#ifdef KVC_HAVE_CUDA
extern const unsigned char kvc_attend_image[], kvc_attend_ptx[]; /* for a driver that is older */
extern const size_t kvc_attend_image_bytes;
#endif

#ifdef __cplusplus
}
#endif

#endif
