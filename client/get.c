/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes sequences out of token ids, and reads the cached prefix of one in a single call: kvc_get().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "sys.h"

/* ---- sequences ---- */

static uint32_t get_blocks_of(uint32_t tokens, uint32_t block_tokens)
{
    return tokens / block_tokens + (tokens % block_tokens != 0);
}

/* Waits for the namespace's seed, which comes with the first reply to NS_OPEN. */
static int await_seed(struct kvc_ns *ns)
{
    struct kvc *k = ns->kvc;
    int rc = ns->has_seed ? 0 : kvc__enter(k, kvc__deadline(k, 0));
    if (rc == 0)
        rc = ns__check(ns);
    if (rc == 0 && !ns->has_seed)
        rc = kvc__fail(k, KVC_E_DOWN, "no daemon has opened the namespace yet: it has no keys");
    return rc;
}

int kvc_seq_new(struct kvc_ns *ns, const uint32_t *tokens, uint32_t ntokens, const void *extra,
                size_t extra_bytes, struct kvc_seq **ret_seq)
{
    struct kvc *k = ns->kvc;
    size_t total = 0;
    int rc = await_seed(ns);
    if (rc < 0)
        return rc;
    for (uint32_t g = 0; g < ns->groups; g++)
        total += get_blocks_of(ntokens, ns->group[g].block_tokens);
    struct kvc_seq *seq = sys_malloc(sizeof(*seq) + total * KVC_KEY_BYTES);
    if (seq == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    *seq = (struct kvc_seq){.tokens = ntokens};
    uint8_t *at = (uint8_t *)(seq + 1);
    for (uint32_t g = 0; g < ns->groups && rc >= 0; g++) {
        const uint32_t bt = ns->group[g].block_tokens;
        seq->group[g].keys = at;
        seq->group[g].n = get_blocks_of(ntokens, bt);
        rc = kvc_hash_chain(ns->seed, tokens, ntokens, bt, extra, extra_bytes, at);
        at += (size_t)seq->group[g].n * KVC_KEY_BYTES;
    }
    if (rc < 0) {
        free(seq);
        return kvc__fail(k, rc, "the tokens have no keys (%s)", kvc_error_name(rc));
    }
    *ret_seq = seq;
    return 0;
}

void kvc_seq_free(struct kvc_seq **seq)
{
    if (seq == NULL)
        return;
    free(*seq);
    *seq = NULL;
}

/* ---- reading ---- */

/* How many of the hold's blocks, from block `i` on, lie at equal distances. */
static uint32_t run_length(const struct kvc_block *block, uint32_t i, uint32_t n,
                           uint64_t *ret_stride)
{
    const uint64_t at = (uint64_t)(uintptr_t)block[i].data;
    uint32_t len = 1;
    *ret_stride = block[i].bytes;
    if (i + 1 < n && (uint64_t)(uintptr_t)block[i + 1].data > at)
        *ret_stride = (uint64_t)(uintptr_t)block[i + 1].data - at;
    while (i + len < n && (uint64_t)(uintptr_t)block[i + len].data == at + len * *ret_stride)
        len++;
    return len;
}

static int take_group(const struct kvc_ns *ns, const struct kvc_hold *hold, uint32_t group,
                      uint32_t seq_tokens, const struct kvc_get *get)
{
    const uint32_t bt = ns->group[group].block_tokens, n = hold->group[group].n;
    const struct kvc_block *block = hold->group[group].block;
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0;) {
        struct kvc_run run = {.group = group,
                              .first = hold->group[group].first + i,
                              .block_bytes = block[i].bytes,
                              .data = (void *)(uintptr_t)block[i].data};
        run.n = run_length(block, i, n, &run.stride_bytes);
        run.first_token = run.first * bt;
        run.tokens = (uint32_t)kvc__min((uint64_t)run.n * bt, seq_tokens - run.first_token);
        rc = get->take(get->ctx, &run);
        i += run.n;
    }
    return rc;
}

static int get_seq(struct kvc_ns *ns, const struct kvc_get *get, const struct kvc_seq *seq,
                   struct kvc_got *ret_got)
{
    struct kvc_hold *hold = NULL;
    int rc = read__check_chains(ns, seq);
    if (rc == 0)
        rc = kvc_acquire(ns, seq, &get->acquire, &hold);
    if (rc < 0)
        return rc;
    struct kvc_got got = {.prefix = hold->prefix};
    for (uint32_t g = 0; g < ns->groups && rc == 0; g++)
        rc = take_group(ns, hold, g, seq->tokens, get);
    const bool is_more = hold->lease != 0 && hold->prefix.tokens > get->acquire.from_tokens;
    if (rc == 0 && is_more && kvc_hold_check(hold) == 0)
        got.tokens = hold->prefix.tokens;
    kvc_release(ns->kvc, &hold);
    if (rc == 0)
        *ret_got = got;
    return rc;
}

int kvc_get(struct kvc_ns *ns, const struct kvc_get *get, struct kvc_got *ret_got)
{
    struct kvc *k = ns->kvc;
    struct kvc_seq *own = NULL;
    if (get->take == NULL || (get->seq == NULL && get->tokens == NULL && get->ntokens > 0))
        return kvc__fail(k, -EINVAL, "take is NULL, or neither seq nor tokens were given");
    if (get->seq == NULL) {
        int rc = kvc_seq_new(ns, get->tokens, get->ntokens, get->extra, get->extra_bytes, &own);
        if (kvc__is_miss(rc)) {
            k->counters.lookups_down++;
            *ret_got = (struct kvc_got){.tokens = 0};
            return 0;
        }
        if (rc < 0)
            return rc;
    }
    int rc = get_seq(ns, get, get->seq != NULL ? get->seq : own, ret_got);
    kvc_seq_free(&own);
    return rc;
}
