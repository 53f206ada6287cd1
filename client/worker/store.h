/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as the store of sequences: what it has of a prompt is read where it lies, what is
 * computed is stored while the request runs, and names stand for conversations and documents.
 *
 * What must be equal for bits to be equal is in the namespace: the weights, the types, the layout
 * of a block, the rows of a chunk, threads and BLAS's kernels.
 *
 * A daemon that is absent, or dies, costs what it would have saved: functions then return 0 and
 * have done nothing. Negative is an error of which `why` says what it is. One thread.
 */
#ifndef WORKER_STORE_H
#define WORKER_STORE_H

#include <kvcache/kvcache.h>

#include "kv.h"

#define STORE_WHY_BYTES 320u

struct store;

struct store_options {
    const char *socket;       /* NULL: the library's default */
    bool wait;                /* for blocks that another worker computes now */
    bool must_connect;        /* no daemon is an error */
    uint64_t prefill_ns;      /* of a token; with the next one 0: all that is cached is loaded */
    uint64_t prefill_fs_pair; /* of a token and one before it, in 1e-15 s: attention */
};

/* For sequences like `kv`. */
KV_MUST_USE int store_open(const struct store_options *options, const struct kv *kv,
                           char why[STORE_WHY_BYTES], struct store **ret_store);
/* Accepts NULL and a pointer to NULL. */
void store_close(struct store **store);
struct kvc *store_session(struct store *store);

/* What the store knows of one sequence. Zero at first. */
struct store_seq {
    struct kvc_hold **hold; /* of what kv reads in place */
    uint32_t holds, holds_room;
    uint32_t adopted;     /* blocks that kv has of the daemon's, partly filled ones not counted */
    uint32_t stored;      /* tokens whose blocks the daemon has, or was given */
    struct kvc_seq *keys; /* of the announced tokens */
    uint64_t reservation; /* of blocks reserved .. reserved + n - 1 */
    uint32_t reserved, n;
    uint32_t open;   /* of them, to be committed yet: the last one ends the reservation */
    uint8_t *status; /* [n] */
    bool refused;    /* a block that the daemon did not take: what follows has no parent */
};

/* Looks for tokens[0 .. n) and gives kv what is found beyond kv->tokens, at most `limit` tokens. */
KV_MUST_USE int store_take(struct store *store, struct store_seq *seq, struct kv *kv,
                           const uint32_t *tokens, uint32_t n, uint32_t limit,
                           char why[STORE_WHY_BYTES]);
/* Says that the full blocks of tokens[kv->tokens .. n) are being computed. 1, where the store
 * waits: another worker is at the first of them, or has stored it; store_take() has more now. */
KV_MUST_USE int store_announce(struct store *store, struct store_seq *seq, const struct kv *kv,
                               const uint32_t *tokens, uint32_t n, char why[STORE_WHY_BYTES]);
/* Stores those of the announced blocks that kv has by now. A strategy that needs the store gets
 * them back as the daemon's. */
KV_MUST_USE int store_commit(struct store *store, struct store_seq *seq, struct kv *kv,
                             const uint32_t *tokens, char why[STORE_WHY_BYTES]);
/* Stores all n tokens that kv has, the partly filled last block too. */
KV_MUST_USE int store_all(struct store *store, struct store_seq *seq, struct kv *kv,
                          const uint32_t *tokens, uint32_t n, char why[STORE_WHY_BYTES]);
/* Whether what kv reads of the daemon's is still what was stored. No traffic. */
bool store_is_good(const struct store_seq *seq);
/* Gives up holds and what was announced. */
void store_leave(struct store *store, struct store_seq *seq);

/* The tokens that a name stands for: their number, 0: there is none of that name. */
KV_MUST_USE int store_name_tokens(struct store *store, enum kvc_name_kind kind, const char *name,
                                  uint32_t *tokens, uint32_t max, char why[STORE_WHY_BYTES]);
/* The name stands for these n tokens from now on; on stable storage, where the daemon has some:
 * *ret_durable. Documents are pinned. */
KV_MUST_USE int store_name_put(struct store *store, enum kvc_name_kind kind, const char *name,
                               const uint32_t *tokens, uint32_t n, bool *ret_durable,
                               char why[STORE_WHY_BYTES]);

#endif
