/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sequence.h"

_Static_assert(MODEL_WHY_BYTES == STORE_WHY_BYTES, "one text");

#define MIN(a, b)   ((a) < (b) ? (a) : (b))
#define ROUNDS_MAX  8u /* attempts to take blocks while another worker is ahead each time */
#define RETRIES_MAX 3u /* attempts of a prefill during which the daemon dies */

uint64_t sequence_now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sequence_init(struct sequence *seq, struct model *model, struct kv *kv, struct store *store)
{
    *seq = (struct sequence){.model = model, .kv = kv, .store = store};
}

void sequence_end(struct sequence *seq)
{
    if (seq->kv)
        seq->kv->is->destroy(seq->kv);
    if (seq->store)
        store_leave(seq->store, &seq->stored);
    free(seq->token);
    *seq = (struct sequence){0};
}

int sequence_append(struct sequence *seq, const uint32_t *token, uint32_t n,
                    char why[MODEL_WHY_BYTES])
{
    const uint32_t most = MIN(seq->model->is.tokens_max, seq->kv->setup.tokens_max);
    if (n > most - seq->n)
        return model_wrong(why, -ENOSPC,
                           "%u tokens and %u more are longer than the longest "
                           "sequence, %u; --context sets it, up to the model's %u",
                           seq->n, n, most, seq->model->is.tokens_max);
    if (seq->n + n > seq->room) {
        const uint32_t room = 2 * (seq->n + n);
        uint32_t *grown = realloc(seq->token, room * sizeof(*grown));
        if (!grown)
            return model_wrong(why, -ENOMEM, "no memory for %u tokens", room);
        seq->token = grown;
        seq->room = room;
    }
    if (n > 0)
        memcpy(seq->token + seq->n, token, n * sizeof(*token));
    seq->n += n;
    return 0;
}

/* ---- prefill ---- */

/* Takes the blocks that the daemon has. The last block of a name may be partly filled; only a
 * sequence that ends there has it. With the option `wait`, waits while another worker computes the
 * next blocks. */
static int prefill_take(struct sequence *seq, char *why)
{
    const uint32_t last = seq->n - 1;
    int rc = 1;
    for (unsigned round = 0; rc == 1 && round < ROUNDS_MAX; round++) {
        rc = store_take(seq->store, &seq->stored, seq->kv, seq->token, seq->n, last, why);
        if (rc == 0 && seq->kv->tokens < seq->known && seq->known <= last)
            rc = store_take(seq->store, &seq->stored, seq->kv, seq->token, seq->known, seq->known,
                            why);
        if (rc == 0)
            rc = store_announce(seq->store, &seq->stored, seq->kv, seq->token, last, why);
    }
    return rc < 0 ? rc : 0;
}

/* Computes the tokens from kv->tokens to `end`, chunk by chunk, and stores each block that becomes
 * full. */
static int compute(struct sequence *seq, uint32_t end, char *why)
{
    struct kv *kv = seq->kv;
    const uint32_t chunk = seq->model->chunk;
    int rc = 0;
    while (rc == 0 && kv->tokens < end) {
        const uint32_t first = kv->tokens, n = MIN(chunk - first % chunk, end - first);
        rc = model_chunk(seq->model, kv, seq->token + first, first, n, NULL, why);
        if (rc == 0 && seq->store)
            rc = store_commit(seq->store, &seq->stored, kv, seq->token, why);
    }
    if (rc == 0)
        seq->settled = kv->tokens;
    return rc;
}

/* Forgets all tokens, because the daemon's blocks among them are no longer valid. */
static void start_over(struct sequence *seq)
{
    seq->kv->is->truncate(seq->kv, 0);
    seq->settled = 0;
    if (seq->store)
        store_leave(seq->store, &seq->stored);
}

static bool is_good(const struct sequence *seq)
{
    return !seq->store || store_is_good(&seq->stored);
}

int sequence_prefill(struct sequence *seq, char why[MODEL_WHY_BYTES])
{
    if (seq->n == 0 || seq->n - 1 < seq->kv->tokens)
        return model_wrong(why, -EINVAL, "nothing is said: a turn has a token or more");
    int rc = 0;
    for (unsigned tries = 0; rc == 0 && tries < RETRIES_MAX; tries++) {
        if (!is_good(seq))
            start_over(seq);
        const uint64_t begin = sequence_now_ns();
        const uint32_t had = seq->kv->tokens;
        if (seq->store && !seq->kv->is->forgets)
            rc = prefill_take(seq, why);
        seq->prefill.taken = seq->kv->tokens - (had < seq->kv->tokens ? had : seq->kv->tokens);
        seq->prefill.take_ns = sequence_now_ns() - begin;
        seq->prefill.computed = seq->n - 1 - seq->kv->tokens;
        rc = rc == 0 ? compute(seq, seq->n - 1, why) : rc;
        seq->prefill.compute_ns = sequence_now_ns() - begin - seq->prefill.take_ns;
        if (is_good(seq))
            return rc;
    }
    return rc != 0 ? rc : model_wrong(why, -EIO, "the daemon died again and again");
}

/* ---- decode ---- */

int sequence_step(struct sequence *const *seq, uint32_t seqs, float *logits,
                  char why[MODEL_WHY_BYTES])
{
    struct kv *kv[MODEL_SEQS_MAX] = {NULL};
    uint32_t token[MODEL_SEQS_MAX] = {0};
    int rc = 0;
    if (seqs > MODEL_SEQS_MAX)
        return model_wrong(why, -E2BIG, "%u sequences; %u at once", seqs, MODEL_SEQS_MAX);
    for (uint32_t i = 0; rc == 0 && i < seqs; i++) {
        if (seq[i]->kv->is->forgets)
            start_over(seq[i]);
        /* Usually nothing to do, unless the cache forgets its tokens or its daemon has died. */
        if (seq[i]->kv->tokens + 1 != seq[i]->n || !is_good(seq[i]))
            rc = sequence_prefill(seq[i], why);
        kv[i] = seq[i]->kv;
        token[i] = seq[i]->token[seq[i]->n - 1];
    }
    if (rc == 0)
        rc = model_step(seq[0]->model, seqs, kv, token, logits, why);
    for (uint32_t i = 0; rc == 0 && i < seqs; i++)
        if (!is_good(seq[i])) { /* the daemon died while its blocks were read */
            start_over(seq[i]);
            rc = sequence_prefill(seq[i], why);
            if (rc == 0)
                rc = model_step(seq[i]->model, 1, &kv[i], &token[i],
                                logits + (size_t)i * seq[i]->model->is.vocab, why);
        }
    return rc;
}

int sequence_settle(struct sequence *seq, char why[MODEL_WHY_BYTES])
{
    const uint32_t block = seq->kv->setup.block_tokens;
    if (seq->kv->is->forgets)
        return 0;
    if (!is_good(seq))
        start_over(seq);
    if (seq->kv->tokens > seq->settled)
        seq->kv->is->truncate(seq->kv, seq->settled / block * block);
    int rc = compute(seq, seq->n, why);
    if (rc == 0 && seq->store)
        rc = store_all(seq->store, &seq->stored, seq->kv, seq->token, seq->n, why);
    return rc;
}

uint32_t sequence_greedy(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}
