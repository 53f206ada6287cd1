/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of kvc_attend share.
 *
 * A block of rows (queries times the heads that share a KV head) goes along its tokens tile by
 * tile; tiles begin at multiples of 64 tokens of the sequence. attend_isa has what is computed of a
 * tile, attend.c says which tiles, and whose.
 */
#ifndef KERNELS_ATTEND_PRIVATE_H
#define KERNELS_ATTEND_PRIVATE_H

#include <kvcache/attention.h>
#include <stdbool.h>

#define ATTEND_ROWS 96u /* of a block: so often is a tile used that was brought in once */

/* What is known of each row's attention so far: the largest score m, sum l of e^(score - m), and
 * acc, the sum of e^(score - m) times V. l is 0 before the first token. */
struct attend_state {
    float *acc; /* [rows][head_size] */
    float *m, *l;
};

/* The rows of a tile's tokens; of tokens that are not there a row of zeros. */
struct attend_tile {
    struct attend_rows {
        const void *row[KVC_TILE_TOKENS];
        uint32_t type[KVC_TILE_TOKENS], bytes[KVC_TILE_TOKENS];
    } k, v;
};

/* Memory of one thread. */
struct attend_scratch {
    _Alignas(64) float keys[KVC_HEAD_SIZE_MAX * KVC_TILE_TOKENS]; /* [head_size][64] */
    float values[KVC_TILE_TOKENS * KVC_HEAD_SIZE_MAX];            /* [64][head_size] */
    float weights[ATTEND_ROWS * KVC_TILE_TOKENS];                 /* [rows][64] */
    float q[ATTEND_ROWS * KVC_HEAD_SIZE_MAX]; /* [rows][head_size], times scale */
    float part_acc[ATTEND_ROWS * KVC_HEAD_SIZE_MAX], part_m[ATTEND_ROWS], part_l[ATTEND_ROWS];
    float all_acc[ATTEND_ROWS * KVC_HEAD_SIZE_MAX], all_m[ATTEND_ROWS], all_l[ATTEND_ROWS];
    uint32_t from[ATTEND_ROWS], to[ATTEND_ROWS]; /* of a tile: the tokens that a row sees */
    struct attend_tile tile[2];                  /* the one that is attended to, and the next */
};

struct attend_isa {
    const char *name;
    bool (*is_here)(void);
    /* One tile into `state`: scores, weights, sums, for s->q, from and to. `next` is fetched
     * meanwhile. */
    void (*step)(struct attend_scratch *s, const struct attend_tile *tile,
                 const struct attend_tile *next, uint32_t rows, uint32_t head_size,
                 const struct attend_state *state);
};

extern const struct attend_isa attend__plain;
#ifdef __x86_64__
extern const struct attend_isa attend__avx2, attend__avx512;
#endif

/* The best that this machine has. */
const struct attend_isa *attend__best(void);
/* kvc_attend_cpu() with this one. */
KVC_MUST_USE int attend__run(const struct attend_isa *isa, const struct kvc_attention *a,
                             struct kvc_threads *threads, char why[KVC_WHY_BYTES]);

/* ---- attend_check.c ---- */

/* 0 or -EINVAL; the rest of the code takes for granted what is checked here. */
KVC_MUST_USE int attend__check(const struct kvc_attention *a, char why[KVC_WHY_BYTES]);
/* -EINVAL, and the text when somebody wants it. */
KVC_MUST_USE int attend__refuse(char why[KVC_WHY_BYTES], const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Tokens of sequence s in a list. */
uint32_t attend__list_tokens(const struct kvc_paged *list, uint32_t s);
uint32_t attend__type_alignment(uint32_t type);

/* ---- threads.c ---- */

typedef void attend_item_fn(void *ctx, uint64_t item, struct attend_scratch *scratch);
/* Runs item 0 to items - 1, each once, in any order, and returns when all have ended. */
void attend__each(struct kvc_threads *t, uint64_t items, attend_item_fn *run, void *ctx);
uint32_t attend__threads(const struct kvc_threads *t);
/* Memory that stays until it is asked for again, aligned to 64 bytes; NULL: there is none. */
void *attend__memory(struct kvc_threads *t, size_t bytes);

#endif
