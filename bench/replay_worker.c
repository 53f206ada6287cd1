/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pattern.h"
#include "replay_worker.h"

enum { OFFSET_ALIGN = 64 };

int replay_fail(struct replay_worker *w, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(w->slot->why, sizeof(w->slot->why), format, args);
    va_end(args);
    w->slot->error = error;
    return error;
}

int replay_fail_call(struct replay_worker *w, int error, const char *call)
{
    const char *text = kvc_last_error(w->kvc);
    return replay_fail(w, error, "%s: %s: %s", call, kvc_error_name(error),
                       text[0] ? text : kvc_error_text(error));
}

static int open_namespace(struct replay_worker *w)
{
    const struct replay_plan *plan = w->plan;
    char extra[32];
    snprintf(extra, sizeof(extra), "run %016llx", (unsigned long long)plan->run);
    struct kvc_ns_spec spec = {
        .model = plan->model ? plan->model->name : "replay",
        .dtype = "bf16",
        .layout = "opaque",
        .position = "rope",
        .attention = "causal",
        .extra = extra,
        .layers = plan->model ? plan->model->layers : 1,
        .kv_heads = plan->model ? plan->model->kv_heads : 1,
        .head_size = plan->model ? plan->model->head_size : 64,
        .groups = 1,
        .group = {{.block_tokens = plan->block_tokens,
                   .block_bytes = plan->block_bytes,
                   .rule = KVC_RULE_FULL}},
    };
    int rc = kvc_ns_open(w->kvc, &spec, &w->ns);
    return rc < 0 ? replay_fail_call(w, rc, "opening the namespace") : 0;
}

static int open_session(struct replay_worker *w)
{
    uint64_t bytes = w->plan->device ? 0 : REPLAY_HALVES * w->plan->batch_blocks * w->stride;
    struct kvc_options options = {.socket = w->plan->socket,
                                  .name = "kvcachebench",
                                  .staging_bytes = bytes,
                                  .timeout_ms = 60000,
                                  .must_connect = true};
    int rc = kvc_open(&options, &w->kvc);
    if (rc < 0)
        return replay_fail_call(w, rc, "connecting");
    uint64_t granted;
    w->staging = kvc_staging(w->kvc, &granted);
    if (bytes > 0 && (!w->staging || granted < bytes)) {
        return replay_fail(w, KVC_E_TOO_LARGE,
                           "the daemon grants %llu bytes of staging and %llu are needed; raise its "
                           "staging.session_max",
                           (unsigned long long)(w->staging ? granted : 0),
                           (unsigned long long)bytes);
    }
    rc = open_namespace(w);
    return rc == 0 && w->plan->device ? replay_device_open(w) : rc;
}

/* A hash id names the block and all before it. Chaining the ids makes keys as an engine has them.
 */
static int derive_keys(struct replay_worker *w, const struct trace_request *request)
{
    const uint64_t *ids = &w->plan->trace->ids[request->first];
    const uint8_t *parent = kvc_ns_seed(w->ns);
    for (uint32_t i = 0; i < request->blocks; i++) {
        uint32_t tokens[2] = {(uint32_t)ids[i], (uint32_t)(ids[i] >> 32)};
        uint8_t *key = w->keys + (size_t)i * KVC_KEY_BYTES;
        int rc = kvc_hash_chain(parent, tokens, 2, 2, NULL, 0, key);
        if (rc < 0)
            return replay_fail_call(w, rc, "hashing");
        parent = key;
    }
    return 0;
}

/* Called before the hold is checked for staleness: bytes of a stale slot do not count as wrong. */
static void check_contents(struct replay_worker *w, const struct kvc_hold *hold,
                           struct replay_read *ret_read)
{
    struct replay_read read = {.hits = hold->group[0].n};
    for (uint32_t i = 0; i < read.hits; i++) {
        const struct kvc_block *block = &hold->group[0].block[i];
        const uint8_t *key = w->keys + (size_t)(hold->group[0].first + i) * KVC_KEY_BYTES;
        const void *hbm = w->device ? kvc_hold_device(hold, 0, i) : NULL;
        const void *data = hbm ? hbm : block->data;
        uint64_t wrong = data && block->bytes == w->plan->block_bytes
                             ? pattern_wrong_bytes(key, data, block->bytes)
                             : w->plan->block_bytes;
        read.hbm += hbm != NULL;
        read.wrong_bytes += wrong;
        read.wrong_blocks += wrong != 0;
    }
    *ret_read = read;
}

static uint32_t tokens_reused(const struct replay_worker *w, const struct trace_request *request,
                              uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * w->plan->block_tokens;
    if (request->input_tokens && tokens > request->input_tokens)
        tokens = request->input_tokens;
    return (uint32_t)tokens;
}

void replay_count_read(struct replay_worker *w, const struct trace_request *request,
                       const struct replay_read *read)
{
    w->counts->wrong_bytes += read->wrong_bytes;
    w->counts->wrong_blocks += read->wrong_blocks;
    atomic_fetch_add_explicit(&w->slot->wrong_bytes, read->wrong_bytes, memory_order_relaxed);
    w->counts->hits += read->hits;
    w->counts->hbm_blocks += read->hbm;
    w->counts->loaded_bytes += (uint64_t)read->hits * w->plan->block_bytes;
    w->counts->reused_tokens += tokens_reused(w, request, read->hits);
}

/* Returns how many leading blocks of the request were read, with right or wrong bytes, but not
 * stale. */
static uint32_t read_hold(struct replay_worker *w, const struct trace_request *request,
                          const struct kvc_hold *hold)
{
    struct replay_read read;
    check_contents(w, hold, &read);
    if (kvc_hold_check(hold) == KVC_STALE) {
        w->counts->stale++;
        return 0;
    }
    replay_count_read(w, request, &read);
    return read.hits;
}

static int hold_prefix(struct replay_worker *w, const struct trace_request *request,
                       const struct kvc_prefix *prefix, struct kvc_hold **ret_hold)
{
    struct kvc_seq seq = {.tokens = request->blocks * w->plan->block_tokens,
                          .group = {{.keys = w->keys, .n = request->blocks}}};
    struct kvc_acquire_options options = {.flags = w->plan->wait ? KVC_F_WAIT : 0};
    struct kvc_hold *hold = NULL;
    uint64_t begun = now_ns();
    int rc = w->device ? kvc_acquire_on(w->ns, &seq, replay_device_gpu(w), &options, &hold)
                       : kvc_acquire(w->ns, &seq, &options, &hold);
    uint64_t acquired = now_ns();
    if (rc < 0)
        return replay_fail_call(w, rc, "acquire");
    lat_add(&w->slot->tally.acquire, acquired - begun);
    w->counts->lookup_differs += hold->prefix.tokens != prefix->tokens;
    *ret_hold = hold;
    return 0;
}

/* Does what a scheduler does first and the engine does then. *ret_hold: a hold, where blocks are
 * read in place. */
static int read_prefix(struct replay_worker *w, const struct trace_request *request,
                       struct kvc_hold **ret_hold, uint32_t *ret_hits)
{
    struct kvc_seq seq = {.tokens = request->blocks * w->plan->block_tokens,
                          .group = {{.keys = w->keys, .n = request->blocks}}};
    struct kvc_prefix prefix;
    uint64_t begun = now_ns();
    int rc = kvc_lookup(w->ns, &seq, 0, &prefix);
    if (rc < 0)
        return replay_fail_call(w, rc, "lookup");
    lat_add(&w->slot->tally.lookup, now_ns() - begun);
    if (w->device && replay_device_turn(w))
        return replay_device_load(w, request, &prefix, ret_hits);
    struct kvc_hold *hold = NULL;
    rc = hold_prefix(w, request, &prefix, &hold);
    if (rc < 0)
        return rc;
    *ret_hits = hold->group[0].n ? read_hold(w, request, hold) : 0;
    *ret_hold = hold;
    return 0;
}

static int wait_batch(struct replay_worker *w, struct replay_batch *batch)
{
    if (!batch->op)
        return 0;
    int rc = kvc_wait(&batch->op, NULL, NULL, w->statuses);
    if (rc < 0)
        return replay_fail_call(w, rc, "store");
    lat_add(&w->slot->tally.store, now_ns() - batch->begun_ns);
    for (uint32_t i = 0; i < batch->n; i++) {
        switch (w->statuses[i]) {
        case KVC_ST_OK:
            w->counts->stored_blocks++;
            w->counts->stored_bytes += w->plan->block_bytes;
            break;
        case KVC_ST_EXISTS:
        case KVC_ST_PENDING:
            w->counts->stored_already++;
            break;
        case KVC_ST_FULL:
        case KVC_ST_NO_PARENT:
            w->counts->refused_full++;
            break;
        case KVC_ST_NOT_WORTH:
            w->counts->refused_not_worth++;
            break;
        default:
            w->counts->refused_other++;
        }
    }
    return 0;
}

static int replay_worker_begin_store(struct replay_worker *w, unsigned half,
                                     const struct kvc_blocks *blocks, struct kvc_op **ret_op)
{
    for (uint32_t i = 0; i < blocks->n; i++) {
        w->offsets[i] = ((uint64_t)half * w->plan->batch_blocks + i) * w->stride;
        pattern_fill(blocks->keys + (size_t)i * KVC_KEY_BYTES, w->staging + w->offsets[i],
                     w->plan->block_bytes);
    }
    return kvc_store_begin(w->ns, blocks, w->offsets, NULL, 0, ret_op);
}

static int begin_batch(struct replay_worker *w, unsigned half, uint32_t first, uint32_t n)
{
    struct replay_batch *batch = &w->batch[half];
    const uint8_t *keys = w->keys + (size_t)first * KVC_KEY_BYTES;
    struct kvc_blocks blocks = {.parent = first ? keys - KVC_KEY_BYTES : NULL,
                                .keys = keys,
                                .n = n,
                                .first_token = first * w->plan->block_tokens};
    batch->n = n;
    batch->begun_ns = now_ns();
    int rc = w->device ? replay_device_store(w, half, &blocks, &batch->op)
                       : replay_worker_begin_store(w, half, &blocks, &batch->op);
    return rc < 0 ? replay_fail_call(w, rc, "store") : 0;
}

static int store_rest(struct replay_worker *w, const struct trace_request *request, uint32_t hits)
{
    unsigned half = 0;
    int rc = 0;
    for (uint32_t first = hits; rc == 0 && first < request->blocks;) {
        uint32_t n = request->blocks - first;
        if (n > w->plan->batch_blocks)
            n = w->plan->batch_blocks;
        rc = wait_batch(w, &w->batch[half]);
        if (rc == 0)
            rc = begin_batch(w, half, first, n);
        first += n;
        half = (half + 1) % REPLAY_HALVES;
    }
    for (unsigned i = 0; rc == 0 && i < REPLAY_HALVES; i++)
        rc = wait_batch(w, &w->batch[(half + i) % REPLAY_HALVES]);
    return rc;
}

static int one_request(struct replay_worker *w, const struct trace_request *request)
{
    struct kvc_hold *hold = NULL;
    uint32_t hits = 0;
    int rc = derive_keys(w, request);
    if (w->device)
        replay_device_deal(w);
    if (rc == 0)
        rc = read_prefix(w, request, &hold, &hits);
    if (rc < 0)
        return rc;
    w->counts->requests++;
    w->counts->accesses += request->blocks;
    w->counts->input_tokens += tokens_reused(w, request, request->blocks);
    /* Released only now: while the hold lasts, other workers' blocks cannot evict its end, so the
     * rest finds its parent. */
    rc = store_rest(w, request, hits);
    kvc_release(w->kvc, &hold);
    if (rc == 0 && !kvc_is_up(w->kvc))
        rc = replay_fail(w, KVC_E_DOWN, "the daemon went away");
    return rc;
}

static int allocate(struct replay_worker *w)
{
    uint32_t blocks_max = w->plan->trace->blocks_max;
    w->stride = (w->plan->block_bytes + OFFSET_ALIGN - 1) / OFFSET_ALIGN * OFFSET_ALIGN;
    w->keys = malloc((size_t)blocks_max * KVC_KEY_BYTES);
    w->statuses = malloc(w->plan->batch_blocks);
    w->offsets = malloc(w->plan->batch_blocks * sizeof(*w->offsets));
    return w->keys && w->statuses && w->offsets ? 0 : replay_fail(w, -ENOMEM, "out of memory");
}

/* All workers start together, so that none is alone with an empty cache. */
static void wait_for_start(struct replay_shared *shared)
{
    struct timespec pause = {.tv_nsec = 1000000};
    atomic_fetch_add(&shared->ready, 1);
    while (!atomic_load(&shared->go))
        nanosleep(&pause, NULL);
}

int replay_work(const struct replay_plan *plan, uint32_t worker, struct replay_shared *shared)
{
    struct replay_slot *slot = &shared->slot[worker];
    struct replay_worker w = {.plan = plan, .slot = slot, .counts = &slot->tally.counts};
    int rc = allocate(&w);
    if (rc == 0)
        rc = open_session(&w);
    if (rc == 0)
        wait_for_start(shared);
    while (rc == 0) {
        uint64_t i = atomic_fetch_add(&shared->next, 1);
        if (i >= plan->trace->n_requests)
            break;
        const struct trace_request *request = &plan->trace->requests[i];
        if (request->blocks > 0)
            rc = one_request(&w, request);
        atomic_fetch_add_explicit(&slot->done, 1, memory_order_relaxed);
    }
    replay_device_close(&w);
    kvc_close(&w.kvc);
    free(w.keys);
    free(w.statuses);
    free(w.offsets);
    return rc;
}
