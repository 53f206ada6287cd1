/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "product.h"
#include "store.h"

#define STAGING_BYTES (UINT64_C(16) << 20)
#define ALIGN         64u
#define LONG_MS       60000u /* for another worker's prefill, and for loads from storage */

struct store {
    struct kvc *kvc;
    struct kvc_ns *ns;
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint32_t chunk;                       /* tokens that are computed at a time, or none of them */
    uint64_t prefill_ns, prefill_fs_pair; /* as in options */
    bool wait;
};

__attribute__((format(printf, 3, 4))) static int store_wrong(char *why, int error,
                                                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, STORE_WHY_BYTES, format, args);
    va_end(args);
    return error;
}

/* Writes the error of a call to `why` and returns it; 0 if the error is only that there is no
 * daemon. */
static int call_failed(const struct store *s, const char *what, int error, char *why)
{
    if (error == KVC_E_DOWN || error == KVC_E_TIMEOUT || error == KVC_E_BUSY)
        return 0;
    return store_wrong(why, error, "%s: %s: %.200s", what, kvc_error_name(error),
                       kvc_last_error(s->kvc));
}

/* ---- the session ---- */

static int spec_open(struct store *s, const struct store_options *o, const struct kv *kv, char *why)
{
    const struct kv_setup *setup = &kv->setup;
    const struct model *m = setup->model;
    char extra[KVC_PARAMS_MAX], theta[KVC_PARAMS_MAX], exact[48] = "";
    const char *k_type = kvc_type_name((enum kvc_type)setup->k_type);
    const char *v_type = kvc_type_name((enum kvc_type)setup->v_type);
    if (kv->is->lossy)
        (void)snprintf(exact, sizeof(exact), ", %s, last %u exact", kv->is->name,
                       setup->exact_tokens);
    (void)snprintf(extra, sizeof(extra), "chunk %u, threads %u, blas %s, attention split %u%s",
                   m->chunk, m->threads, product_core(), MODEL_SPLIT_TOKENS, exact);
    (void)snprintf(theta, sizeof(theta), "theta %.9g", m->is.rope_theta);
    const struct kvc_ns_spec spec = {
        .model = m->is.name,
        .revision = m->is.revision,
        .dtype = k_type,
        .quant = v_type,
        .layout = kv->is->layout,
        .position = "rope",
        .position_params = theta,
        .attention = "causal",
        .extra = extra,
        .layers = m->is.layers,
        .kv_heads = m->is.kv_heads,
        .head_size = m->is.head_size,
        .prefill_ns_per_token = o->prefill_ns,
        .prefill_ns_per_token_pair = o->prefill_fs_pair,
        .groups = 1,
        .group = {{.block_tokens = s->block_tokens, .block_bytes = (uint32_t)s->block_bytes}}};
    const int rc = kvc_ns_open(s->kvc, &spec, &s->ns);
    return rc == 0 ? 0
                   : store_wrong(why, rc, "the daemon opens no namespace: %s: %.200s",
                                 kvc_error_name(rc), kvc_last_error(s->kvc));
}

int store_open(const struct store_options *o, const struct kv *kv, char why[STORE_WHY_BYTES],
               struct store **ret_store)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return store_wrong(why, -ENOMEM, "no memory");
    s->block_tokens = kv->setup.block_tokens;
    s->block_bytes = kv->is->block_bytes(kv);
    s->wait = o->wait;
    s->chunk = kv->setup.model->chunk;
    s->prefill_ns = o->prefill_ns;
    s->prefill_fs_pair = o->prefill_fs_pair;
    const uint64_t blocks = 2 * ((s->block_bytes + ALIGN - 1) / ALIGN * ALIGN);
    const struct kvc_options options = {.socket = o->socket,
                                        .name = "kvcache-worker",
                                        .staging_bytes =
                                            blocks > STAGING_BYTES ? blocks : STAGING_BYTES,
                                        .must_connect = o->must_connect};
    int rc = s->block_bytes <= KVC_BLOCK_BYTES_MAX
                 ? kvc_open(&options, &s->kvc)
                 : store_wrong(why, -E2BIG,
                               "blocks of %u tokens are %ju bytes, and %u is the most; "
                               "take a smaller --block",
                               s->block_tokens, (uintmax_t)s->block_bytes, KVC_BLOCK_BYTES_MAX);
    if (rc < 0 && rc != -E2BIG)
        (void)store_wrong(why, rc,
                          "no daemon: %s: %.200s; start one, or name its socket with "
                          "--socket",
                          kvc_error_name(rc), kvc_last_error(NULL));
    rc = rc == 0 ? spec_open(s, o, kv, why) : rc;
    if (rc != 0)
        store_close(&s);
    else
        *ret_store = s;
    return rc;
}

void store_close(struct store **store)
{
    if (!*store)
        return;
    kvc_close(&(*store)->kvc);
    free(*store);
    *store = NULL;
}

struct kvc *store_session(struct store *s)
{
    return s->kvc;
}

/* ---- taking ---- */

bool store_is_good(const struct store_seq *seq)
{
    for (uint32_t i = 0; i < seq->holds; i++)
        if (kvc_hold_check(seq->hold[i]) != 0)
            return false;
    return true;
}

static int hold_keep(struct store_seq *seq, struct kvc_hold *hold)
{
    if (seq->holds == seq->holds_room) {
        const uint32_t room = 2 * seq->holds + 4;
        struct kvc_hold **grown = realloc(seq->hold, room * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        seq->hold = grown;
        seq->holds_room = room;
    }
    seq->hold[seq->holds++] = hold;
    return 0;
}

/* Gives kv the hold's blocks. Bytes that were copied from them count only after kvc_hold_check().
 */
static int take_hold(struct store *s, struct store_seq *seq, struct kv *kv, struct kvc_hold *hold,
                     uint32_t tokens, char *why)
{
    int rc = hold_keep(seq, hold);
    if (rc != 0) {
        kvc_release(s->kvc, &hold);
        return store_wrong(why, rc, "no memory");
    }
    rc = kv->is->adopt(kv, hold->group[0].block, hold->group[0].first, hold->group[0].n, tokens);
    if (rc != 0)
        return store_wrong(why, rc, "the %s cache does not take the daemon's blocks: %s",
                           kv->is->name, strerror(-rc));
    seq->adopted = tokens / s->block_tokens;
    return 0;
}

/* ---- load or recompute ---- */

/* How many chunks it takes to compute tokens from .. to - 1. */
static uint64_t chunks(const struct store *s, uint32_t from, uint32_t to)
{
    return to > from ? (to - 1) / s->chunk - from / s->chunk + 1 : 0;
}

/* The time that the cached tokens from .. cached - 1 save, of the tokens up to `last` that are
 * needed. A chunk is always computed whole, so a few tokens cost as much as a whole chunk. */
static double saved_ns(const struct store *s, uint32_t from, uint32_t cached, uint32_t last)
{
    const double whole = (double)(chunks(s, from, last) - chunks(s, cached, last)) * s->chunk;
    const double pairs = ((double)cached + from) * ((double)cached - from) / 2;
    return (double)s->prefill_ns * whole + 1e-6 * (double)s->prefill_fs_pair * pairs;
}

/* The daemon compares loading with computing by a cost per token; this function does so by the cost
 * of whole chunks. KVC_F_ALL: loading all cached tokens is quicker. 0: the daemon decides. */
static unsigned worth_flag(struct store *s, const struct kvc_seq *keys, uint32_t from)
{
    struct kvc_prefix p;
    if (s->prefill_ns == 0 && s->prefill_fs_pair == 0)
        return 0;
    if (kvc_lookup(s->ns, keys, KVC_F_ALL, &p) < 0)
        return 0; /* acquire will return the error */
    const uint32_t last = keys->tokens - 1, cached = p.tokens < last ? p.tokens : last;
    return cached > from && (double)p.load_us * 1e3 <= saved_ns(s, from, cached, last) ? KVC_F_ALL
                                                                                       : 0;
}

/* ---- acquire ---- */

/* Holds the cached blocks of tokens[0 .. n) that end after `from`. NULL: there are none. */
static int store_acquire(struct store *s, const uint32_t *tokens, uint32_t n, uint32_t from,
                         struct kvc_hold **ret_hold, char *why)
{
    struct kvc_acquire_options options = {
        .flags = s->wait ? KVC_F_WAIT : 0, .from_tokens = from, .timeout_ms = LONG_MS};
    struct kvc_seq *keys;
    struct kvc_hold *hold = NULL;
    int rc = kvc_seq_new(s->ns, tokens, n, NULL, 0, &keys);
    if (rc < 0)
        return call_failed(s, "keys", rc, why);
    options.flags |= worth_flag(s, keys, from);
    rc = kvc_acquire(s->ns, keys, &options, &hold);
    kvc_seq_free(&keys);
    *ret_hold = NULL;
    /* More blocks are cached than a session may hold, so they are computed. */
    if (rc == KVC_E_LIMIT)
        return 0;
    if (rc < 0)
        return call_failed(s, "acquire", rc, why);
    if (hold->lease == 0 || hold->group[0].n == 0)
        kvc_release(s->kvc, &hold);
    *ret_hold = hold;
    return 0;
}

int store_take(struct store *s, struct store_seq *seq, struct kv *kv, const uint32_t *tokens,
               uint32_t n, uint32_t limit, char why[STORE_WHY_BYTES])
{
    struct kvc_hold *hold = NULL;
    int rc = store_acquire(s, tokens, n, kv->tokens, &hold, why);
    if (rc != 0 || !hold)
        return rc;
    const uint32_t got = hold->prefix.tokens < limit ? hold->prefix.tokens : limit;
    if (got <= kv->tokens) {
        kvc_release(s->kvc, &hold);
        return 0;
    }
    rc = take_hold(s, seq, kv, hold, got, why);
    if (rc == 0 && !store_is_good(seq)) {
        kv->is->truncate(kv, 0);
        store_leave(s, seq);
    }
    seq->stored = kv->tokens / s->block_tokens * s->block_tokens;
    return rc;
}

/* The sequence adopts the blocks that it has stored from the daemon, and frees its own pages. */
static int exchange(struct store *s, struct store_seq *seq, struct kv *kv, const uint32_t *tokens,
                    char *why)
{
    struct kvc_hold *hold = NULL;
    const uint32_t from = seq->adopted * s->block_tokens;
    if (!kv->is->needs_store || seq->stored <= from)
        return 0;
    int rc = store_acquire(s, tokens, seq->stored, from, &hold, why);
    if (rc == 0 && hold)
        rc = take_hold(s, seq, kv, hold, hold->prefix.tokens, why);
    return rc;
}

void store_leave(struct store *s, struct store_seq *seq)
{
    for (uint32_t i = 0; i < seq->holds; i++)
        kvc_release(s->kvc, &seq->hold[i]);
    /* A reservation of a daemon that has died need not be dropped. */
    if (seq->reservation != 0 && kvc_drop(s->kvc, seq->reservation) < 0)
        seq->reservation = 0;
    kvc_seq_free(&seq->keys);
    free(seq->status);
    free(seq->hold);
    *seq = (struct store_seq){0};
}

/* ---- storing ---- */

static const uint8_t *store_key_at(const struct kvc_seq *keys, uint32_t block)
{
    return block == UINT32_MAX ? NULL : keys->group[0].keys + (size_t)block * KVC_KEY_BYTES;
}

static void announced_end(struct store *s, struct store_seq *seq)
{
    if (seq->reservation != 0 && kvc_drop(s->kvc, seq->reservation) < 0)
        seq->refused = true; /* the daemon has died, and the announced blocks with it */
    seq->reservation = 0;
    seq->n = seq->open = 0;
    kvc_seq_free(&seq->keys);
    free(seq->status);
    seq->status = NULL;
}

int store_announce(struct store *s, struct store_seq *seq, const struct kv *kv,
                   const uint32_t *tokens, uint32_t n, char why[STORE_WHY_BYTES])
{
    announced_end(s, seq);
    seq->refused = false;
    const uint32_t first = kv->tokens / s->block_tokens, past = n / s->block_tokens;
    if (past <= first)
        return 0;
    seq->reserved = first;
    seq->n = past - first < KVC_STORE_MAX ? past - first : KVC_STORE_MAX;
    seq->status = calloc(seq->n, 1);
    if (!seq->status)
        return store_wrong(why, -ENOMEM, "no memory");
    int rc = kvc_seq_new(s->ns, tokens, (first + seq->n) * s->block_tokens, NULL, 0, &seq->keys);
    if (rc == 0) {
        const struct kvc_blocks blocks = {.parent = store_key_at(seq->keys, first - 1),
                                          .keys = store_key_at(seq->keys, first),
                                          .n = seq->n,
                                          .first_token = first * s->block_tokens};
        rc = kvc_reserve(s->ns, &blocks, &seq->reservation, seq->status);
    }
    if (rc < 0) {
        announced_end(s, seq);
        return call_failed(s, "reserve", rc, why);
    }
    for (uint32_t i = 0; i < seq->n; i++)
        seq->open += seq->status[i] == KVC_ST_OK;
    /* EXISTS: the block was stored since store_take() looked. */
    return s->wait && (seq->status[0] == KVC_ST_PENDING || seq->status[0] == KVC_ST_EXISTS);
}

/* Commits blocks first .. first + n - 1 of the announced ones, through staging. */
static int commit_piece(struct store *s, struct store_seq *seq, struct kv *kv, uint32_t first,
                        uint32_t n, uint8_t *staging, char *why)
{
    enum { PIECE = 64 };
    uint64_t offset[PIECE];
    uint8_t status[PIECE];
    const uint64_t stride = (s->block_bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint32_t named = 0;
    n = n < PIECE ? n : PIECE;
    for (uint32_t i = 0; i < n; i++) {
        offset[i] = UINT64_MAX;
        if (seq->status[first + i] != KVC_ST_OK)
            continue;
        named++;
        offset[i] = i * stride;
        const int rc =
            kv->is->block_out(kv, seq->reserved + first + i, s->block_tokens, staging + offset[i]);
        if (rc != 0)
            return store_wrong(why, rc, "the %s cache has lost block %u", kv->is->name,
                               seq->reserved + first + i);
    }
    const int rc =
        named > 0 ? kvc_commit(s->ns, seq->reservation, first, n, offset, NULL, 0, status) : 0;
    if (rc < 0) { /* GONE: the reservation belongs to a daemon that has been replaced */
        seq->refused = true;
        return rc == KVC_E_GONE ? 0 : call_failed(s, "commit", rc, why);
    }
    seq->open -= named;
    if (seq->open == 0)
        seq->reservation = 0;
    return (int)n;
}

int store_commit(struct store *s, struct store_seq *seq, struct kv *kv, const uint32_t *tokens,
                 char why[STORE_WHY_BYTES])
{
    uint64_t bytes = 0;
    const uint32_t has = kv->tokens / s->block_tokens;
    const uint64_t stride = (s->block_bytes + ALIGN - 1) / ALIGN * ALIGN;
    uint32_t at = seq->stored / s->block_tokens;
    at = at > seq->reserved ? at - seq->reserved : 0;
    while (seq->reservation != 0 && !seq->refused && at < seq->n && seq->reserved + at < has) {
        uint8_t *staging = kvc_staging(s->kvc, &bytes);
        const uint64_t room = staging ? bytes / stride : 0;
        if (room == 0)
            break; /* the daemon has died, or grants less staging than a block */
        uint64_t n = has - seq->reserved - at;
        n = n < seq->n - at ? n : seq->n - at;
        const int done =
            commit_piece(s, seq, kv, at, (uint32_t)(n < room ? n : room), staging, why);
        if (done <= 0)
            return done;
        at += (uint32_t)done;
        seq->stored = (seq->reserved + at) * s->block_tokens;
    }
    return exchange(s, seq, kv, tokens, why);
}

struct filling {
    struct kv *kv;
    int error;
};

static int fill_run(void *ctx, const struct kvc_run *run)
{
    struct filling *f = ctx;
    const uint32_t per = f->kv->setup.block_tokens;
    for (uint32_t i = 0; i < run->n; i++) {
        const uint32_t rest = run->tokens - i * per;
        const int rc = f->kv->is->block_out(f->kv, run->first + i, rest < per ? rest : per,
                                            (char *)run->data + i * run->stride_bytes);
        if (rc != 0)
            return 1; /* kv has not these tokens any more; the daemon may have them */
    }
    return 0;
}

int store_all(struct store *s, struct store_seq *seq, struct kv *kv, const uint32_t *tokens,
              uint32_t n, char why[STORE_WHY_BYTES])
{
    struct filling filling = {.kv = kv};
    announced_end(s, seq);
    const struct kvc_put put = {.tokens = tokens,
                                .ntokens = n,
                                .from_tokens = seq->stored,
                                .flags = KVC_F_ADMIT,
                                .fill = fill_run,
                                .ctx = &filling};
    struct kvc_put_result result = {.tokens = 0};
    const int rc = kvc_put(s->ns, &put, &result);
    if (rc < 0)
        return call_failed(s, "put", rc, why);
    seq->refused = false;
    seq->stored = result.tokens / s->block_tokens * s->block_tokens;
    return exchange(s, seq, kv, tokens, why);
}

/* ---- names ---- */

int store_name_tokens(struct store *s, enum kvc_name_kind kind, const char *name, uint32_t *tokens,
                      uint32_t max, char why[STORE_WHY_BYTES])
{
    uint64_t bytes;
    int rc = kvc_name_load(s->kvc, kind, name, NULL, UINT64_MAX, true, LONG_MS, &bytes);
    struct kvc_name_info info = {0};
    if (rc == 0)
        rc = kvc_name_show(s->kvc, kind, name, NULL, &info);
    if (rc == 0 && info.has_tokens && info.tokens > max)
        return store_wrong(why, -ENOSPC,
                           "'%s' has %u tokens, and a sequence is of %u at most; --context sets "
                           "it, up to what the model has",
                           name, info.tokens, max);
    if (rc == 0)
        rc = kvc_name_tokens(s->kvc, kind, name, NULL, 0, tokens, max);
    if (rc >= 0 || rc == KVC_E_NO_NAME)
        return rc < 0 ? 0 : rc;
    return store_wrong(why, rc, "%s: %s: %.200s", name, kvc_error_name(rc), kvc_last_error(s->kvc));
}

int store_name_put(struct store *s, enum kvc_name_kind kind, const char *name,
                   const uint32_t *tokens, uint32_t n, bool *ret_durable, char why[STORE_WHY_BYTES])
{
    struct kvc_name_options options = {.flags = KVC_F_DURABLE, .tokens = tokens};
    struct kvc_named named;
    struct kvc_seq *keys;
    options.flags |= kind == KVC_NAME_DOCUMENT ? KVC_F_PINNED : 0;
    int rc = kvc_seq_new(s->ns, tokens, n, NULL, 0, &keys);
    if (rc == 0) {
        rc = kvc_name_put(s->ns, kind, name, keys, &options, &named);
        *ret_durable = rc == 0;
        if (rc == KVC_E_BAD_ARGUMENT) { /* without storage nothing can be durable */
            options.flags &= ~(unsigned)KVC_F_DURABLE;
            rc = kvc_name_put(s->ns, kind, name, keys, &options, &named);
        }
        kvc_seq_free(&keys);
    }
    if (rc == 0)
        return 0;
    return store_wrong(why, rc, "%s is not kept: %s: %.200s", name, kvc_error_name(rc),
                       kvc_last_error(s->kvc));
}
