/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon as the store of sequences. Cached blocks of a prompt are read in place, computed
 * blocks are stored while the request runs, and names stand for conversations and documents.
 *
 * The namespace has all on which the bits of KV depend: the weights, the types, the layout of a
 * block, the rows of a chunk, the number of threads, and BLAS's kernels.
 *
 * Without a daemon, or after its death, the functions return 0 and do nothing, and the worker
 * computes everything. A negative value is an error, and `why` explains it. One thread.
 */
#ifndef WORKER_STORE_H
#define WORKER_STORE_H

#include <kvcache/kvcache.h>

#include "kv.h"

#define STORE_WHY_BYTES 320u

struct store;

struct store_options {
    const char *socket;       /* NULL: the library's default */
    bool wait;                /* wait for blocks that another worker is computing */
    bool must_connect;        /* the absence of a daemon is an error */
    uint64_t prefill_ns;      /* time to compute a token, without attention to others */
    uint64_t prefill_fs_pair; /* time of attention to one earlier token, in 1e-15 s; if both are 0,
                                 all that is cached is loaded */
};

/* Opens a session and a namespace for sequences like `kv`. */
KV_MUST_USE int store_open(const struct store_options *options, const struct kv *kv,
                           char why[STORE_WHY_BYTES], struct store **ret_store);
/* Accepts NULL and a pointer to NULL. */
void store_close(struct store **store);
struct kvc *store_session(struct store *store);

/* The store's state of one sequence. All zero at first. */
struct store_seq {
    struct kvc_hold **hold; /* the holds of the blocks that kv reads in place */
    uint32_t holds, holds_room;
    uint32_t adopted; /* full blocks of the daemon that kv uses */
    uint32_t stored;  /* the daemon has, or was given, the blocks of the first `stored` tokens */
    struct kvc_seq *keys; /* of the announced tokens */
    uint64_t reservation; /* of blocks reserved .. reserved + n - 1; 0: none */
    uint32_t reserved, n;
    uint32_t open;   /* reserved blocks that are not committed yet */
    uint8_t *status; /* [n]: what kvc_reserve said of each */
    bool refused;    /* the daemon did not take a block, so no later block has a parent */
};

/* Looks up tokens[0 .. n), and gives kv the cached blocks beyond kv->tokens, up to `limit` tokens.
 */
KV_MUST_USE int store_take(struct store *store, struct store_seq *seq, struct kv *kv,
                           const uint32_t *tokens, uint32_t n, uint32_t limit,
                           char why[STORE_WHY_BYTES]);
/* Tells the daemon that this worker computes the full blocks of tokens[kv->tokens .. n). 1 (only
 * with store_options.wait): another worker computes the first of them, or has stored it, and
 * store_take() finds more. */
KV_MUST_USE int store_announce(struct store *store, struct store_seq *seq, const struct kv *kv,
                               const uint32_t *tokens, uint32_t n, char why[STORE_WHY_BYTES]);
/* Stores the announced blocks that kv has by now. A strategy that needs the store then adopts them
 * from the daemon. */
KV_MUST_USE int store_commit(struct store *store, struct store_seq *seq, struct kv *kv,
                             const uint32_t *tokens, char why[STORE_WHY_BYTES]);
/* Stores all n tokens of kv, those of a partly filled last block included. */
KV_MUST_USE int store_all(struct store *store, struct store_seq *seq, struct kv *kv,
                          const uint32_t *tokens, uint32_t n, char why[STORE_WHY_BYTES]);
/* Whether the daemon's blocks that kv reads have not changed since they were stored. Sends
 * nothing. */
bool store_is_good(const struct store_seq *seq);
/* Releases the sequence's holds and drops its reservation. */
void store_leave(struct store *store, struct store_seq *seq);

/* Reads the tokens of a name, and returns their number; 0: there is no such name. */
KV_MUST_USE int store_name_tokens(struct store *store, enum kvc_name_kind kind, const char *name,
                                  uint32_t *tokens, uint32_t max, char why[STORE_WHY_BYTES]);
/* Makes the name stand for these n tokens. Documents are pinned. *ret_durable: the daemon has
 * storage, and the name and its blocks are on it. */
KV_MUST_USE int store_name_put(struct store *store, enum kvc_name_kind kind, const char *name,
                               const uint32_t *tokens, uint32_t n, bool *ret_durable,
                               char why[STORE_WHY_BYTES]);

#endif
