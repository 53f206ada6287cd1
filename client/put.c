/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvc_put(): stores the blocks of a sequence that are missing. It looks up which ones are missing,
 * has the caller write them to staging or takes them from pages, and stores as many at a time as
 * there is room for.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"
#include "sys.h"

/* Offsets in staging are multiples of it. */
#define STAGING_ALIGN 64u
/* How often a put begins again with an earlier block, because a parent was evicted meanwhile. */
#define PARENTS_LOST_MAX 3u

/* ---- consecutive blocks ---- */

/* The blocks of one put__blocks(): `b` as for kvc_store, but of any number. */
struct batch {
    struct kvc_ns *ns;
    const struct kvc_blocks *b;
    const struct source *from;
    const uint32_t *tokens; /* of these blocks; NULL: not given */
    size_t ntokens;
    uint32_t block_tokens, block_bytes, stride_bytes;
    bool chained; /* a block needs the one before it */
    uint8_t *statuses;
    uint8_t *staging; /* NULL: pages that the daemon reads itself */
};

static bool is_good(uint8_t status)
{
    return status == KVC_ST_OK || status == KVC_ST_EXISTS || status == KVC_ST_PENDING;
}

/* Tokens in blocks first .. first + n - 1 of the batch. */
static uint32_t batch_tokens(const struct batch *x, uint32_t first, uint32_t n)
{
    const bool is_cut = first + n == x->b->n && x->b->last_tokens != 0;
    return n * x->block_tokens - (is_cut ? x->block_tokens - x->b->last_tokens : 0);
}

static uint32_t pages_per_block(const struct batch *x)
{
    return x->from->pool->group[x->b->group].pages_per_block;
}

static const uint32_t *batch_pages(const struct batch *x, uint32_t i)
{
    return x->from->pages + (size_t)i * pages_per_block(x);
}

static bool has_pages(const struct batch *x, uint32_t i)
{
    const uint32_t *pages = batch_pages(x, i);
    uint32_t j = 0;
    while (j < pages_per_block(x) && pages[j] == KVC_NO_PAGE)
        j++;
    return j < pages_per_block(x);
}

/* *ret_blocks: how many blocks fit one request. Calls kvc_staging() if they go through staging. */
static int batch_room(struct batch *x, uint32_t *ret_blocks)
{
    struct kvc *k = x->ns->kvc;
    uint64_t most = KVC_STORE_MAX, bytes = 0;
    if (x->from->pool != NULL && !pool__is_host(x->from->pool)) {
        *ret_blocks = (uint32_t)kvc__min(most, KVC_PAGES_MAX / pages_per_block(x));
        return 0;
    }
    int rc = kvc__enter(k, kvc__deadline(k, 0));
    if (rc < 0)
        return rc;
    x->staging = kvc_staging(k, &bytes);
    if (x->staging == NULL)
        return write__check_staging(k);
    most = kvc__min(most, bytes / x->stride_bytes);
    if (most == 0)
        return kvc__fail(k, -EINVAL, "a block has %u bytes, and staging %llu: give kvc_open more",
                         x->block_bytes, (unsigned long long)bytes);
    *ret_blocks = (uint32_t)most;
    return 0;
}

/* Has the caller write up to `most` blocks, from `first` on, to staging. *ret_n: how many it wrote.
 */
static int batch_fill(const struct batch *x, uint32_t first, uint32_t most, uint32_t *ret_n)
{
    const uint32_t step = x->chained ? most : 1;
    uint32_t n = 0;
    int rc = 0;
    while (n < most && rc == 0) {
        const struct kvc_run run = {.group = x->b->group,
                                    .first = x->b->first_token / x->block_tokens + first + n,
                                    .n = step,
                                    .first_token =
                                        x->b->first_token + (first + n) * x->block_tokens,
                                    .tokens = batch_tokens(x, first + n, step),
                                    .block_bytes = x->block_bytes,
                                    .stride_bytes = x->stride_bytes,
                                    .data = x->staging + (size_t)n * x->stride_bytes};
        rc = x->from->fill(x->from->ctx, &run);
        n += rc == 0 ? step : 0;
    }
    *ret_n = n;
    return rc < 0 ? rc : 0;
}

/* Brings up to `most` blocks, from `first` on, to staging, unless the daemon reads their pages.
 * *ret_n: how many the caller has. */
static int batch_bring(const struct batch *x, uint32_t first, uint32_t most, uint64_t *offsets,
                       uint32_t *ret_n)
{
    for (uint32_t i = 0; i < most; i++)
        offsets[i] = (uint64_t)i * x->stride_bytes;
    if (x->from->fill != NULL)
        return batch_fill(x, first, most, ret_n);
    uint32_t n = 0;
    while (n < most && has_pages(x, first + n))
        n++;
    *ret_n = n;
    if (n == 0 || x->staging == NULL)
        return 0;
    const struct kvc_pool_spec spec = pool__spec(x->from->pool);
    return kvc_gpu_stage(x->from->pool->gpu, &spec, x->b->group, batch_pages(x, first), n, offsets,
                         NULL);
}

static int batch_send(const struct batch *x, uint32_t first, uint32_t n, const uint64_t *offsets)
{
    struct kvc_blocks b = *x->b;
    const uint32_t *tokens = NULL;
    size_t ntokens = 0;
    b.n = n;
    b.keys += (size_t)first * KVC_KEY_BYTES;
    b.parent = first > 0 ? b.keys - KVC_KEY_BYTES : x->b->parent;
    b.first_token += first * x->block_tokens;
    b.last_tokens = first + n == x->b->n ? x->b->last_tokens : 0;
    if (x->tokens != NULL) {
        const size_t before = (size_t)first * x->block_tokens;
        ntokens = x->ntokens > before ? x->ntokens - before : 0;
        ntokens = kvc__min(ntokens, batch_tokens(x, first, n));
        tokens = ntokens > 0 ? x->tokens + before : NULL;
    }
    if (x->staging == NULL)
        return kvc_pages_store(x->ns, &b, x->from->pool, batch_pages(x, first), x->from->after,
                               tokens, ntokens, x->statuses + first);
    return kvc_store(x->ns, &b, offsets, tokens, ntokens, x->statuses + first);
}

/* The caller does not have block `first`, or (a chain) the `asked` blocks from there on: sets their
 * statuses. In a chain no later block can be stored either. Returns how many blocks got a status.
 */
static uint32_t batch_lacks(const struct batch *x, uint32_t first, uint32_t asked)
{
    const uint32_t left = x->b->n - first;
    const uint32_t lacking = x->chained && x->from->fill != NULL ? asked : 1;
    memset(x->statuses + first, KVC_ST_NO_STORE, lacking);
    if (!x->chained)
        return lacking;
    memset(x->statuses + first + lacking, KVC_ST_NO_PARENT, left - lacking);
    return left;
}

int put__blocks(struct kvc_ns *ns, const struct kvc_blocks *b, const struct source *from,
                const uint32_t *tokens, size_t ntokens, uint8_t *statuses)
{
    const struct msg_group *g = &ns->group[b->group];
    struct batch x = {.ns = ns,
                      .b = b,
                      .from = from,
                      .tokens = tokens,
                      .ntokens = ntokens,
                      .block_tokens = g->block_tokens,
                      .block_bytes = g->block_bytes,
                      .stride_bytes = (g->block_bytes + STAGING_ALIGN - 1) & ~(STAGING_ALIGN - 1),
                      .chained = g->rule == KVC_RULE_FULL,
                      .statuses = statuses};
    uint64_t offsets[KVC_STORE_MAX];
    uint32_t i = 0, room = 0;
    while (i < b->n) {
        uint32_t n = 0;
        int rc = batch_room(&x, &room);
        const uint32_t asked = (uint32_t)kvc__min(room, b->n - i);
        if (rc < 0)
            return write__dropped(ns->kvc, b->n - i, g->block_bytes, rc);
        rc = batch_bring(&x, i, asked, offsets, &n);
        if (rc == 0 && n > 0)
            rc = batch_send(&x, i, n, offsets); /* which counts what it drops */
        if (rc < 0)
            return write__dropped(ns->kvc, b->n - i - n, g->block_bytes, rc);
        i += n;
        if (i < b->n && n < asked)
            i += batch_lacks(&x, i, asked - n);
        if (x.chained && i < b->n && !is_good(statuses[i - 1])) {
            memset(statuses + i, KVC_ST_NO_PARENT, b->n - i);
            i = b->n;
        }
    }
    return 0;
}

/* ---- a sequence ---- */

/* The state of one kvc_put. */
struct putting {
    struct kvc_ns *ns;
    const struct kvc_put *put;
    const struct kvc_seq *seq;
    uint32_t there[KVC_GROUPS_MAX]; /* leading blocks that the daemon has */
    uint8_t *statuses;              /* of the group that is being stored */
    struct kvc_put_result result;
};

static int check_put(struct kvc_ns *ns, const struct kvc_put *put)
{
    struct kvc *k = ns->kvc;
    const unsigned known = KVC_F_DURABLE | KVC_F_DECODED | KVC_F_ADMIT | KVC_F_NO_STORE;
    if ((put->fill == NULL) == (put->pool == NULL))
        return kvc__fail(k, -EINVAL, "one of fill and pool says where the blocks come from");
    if ((put->flags & ~known) != 0)
        return kvc__fail(k, -EINVAL,
                         "flags are %#x: DURABLE, DECODED, ADMIT and NO_STORE are known here",
                         put->flags);
    if (put->seq == NULL && put->tokens == NULL && put->ntokens > 0)
        return kvc__fail(k, -EINVAL, "neither seq nor tokens were given");
    if (put->seq != NULL && put->tokens != NULL && put->ntokens != put->seq->tokens)
        return kvc__fail(k, -EINVAL, "ntokens is %u, and the sequence has %u", put->ntokens,
                         put->seq->tokens);
    if (put->after != NULL && (put->pool == NULL || pool__is_host(put->pool)))
        return host__check_after(k, *put->after);
    return 0;
}

static int check_pools(const struct putting *p)
{
    struct kvc *k = p->ns->kvc;
    int rc = 0;
    for (uint32_t g = 0; g < p->ns->groups && p->put->pool != NULL && rc == 0; g++) {
        rc = pages__check_pool(p->ns, p->put->pool, g);
        if (rc == 0 && p->seq->group[g].n > 0 && p->put->pages[g] == NULL)
            rc = kvc__fail(k, -EINVAL, "group %u: pages is NULL", g);
    }
    return rc;
}

static int ask_there(struct putting *p)
{
    struct kvc_prefix prefix;
    int rc = kvc_lookup(p->ns, p->seq, KVC_F_READ_ONLY | KVC_F_ALL, &prefix);
    for (uint32_t g = 0; g < p->ns->groups && rc == 0; g++)
        p->there[g] = prefix.group[g].blocks;
    return rc;
}

/* Stores the blocks of a group from `first` on. */
static int put_from(struct putting *p, uint32_t group, uint32_t first)
{
    const struct kvc_put *put = p->put;
    const uint32_t bt = p->ns->group[group].block_tokens, n = p->seq->group[group].n;
    const uint8_t *keys = p->seq->group[group].keys + (size_t)first * KVC_KEY_BYTES;
    const uint64_t before = (uint64_t)first * bt;
    const bool with_tokens = p->ns->with_tokens && put->tokens != NULL && put->ntokens > before;
    const struct kvc_blocks b = {.group = group,
                                 .parent = first > 0 ? keys - KVC_KEY_BYTES : NULL,
                                 .keys = keys,
                                 .n = n - first,
                                 .first_token = (uint32_t)before,
                                 .last_tokens =
                                     (uint64_t)n * bt > p->seq->tokens ? p->seq->tokens % bt : 0,
                                 .sub_tenant = p->seq->sub_tenant,
                                 .flags = put->flags,
                                 .retain = put->retain,
                                 .nretain = put->nretain};
    struct source from = {.fill = put->fill, .ctx = put->ctx, .pool = put->pool};
    if (put->pool != NULL)
        from.pages = put->pages[group] + (size_t)first * put->pool->group[group].pages_per_block;
    if (put->after != NULL)
        from.after = *put->after;
    memset(p->statuses, KVC_ST_EXISTS, first);
    return put__blocks(p->ns, &b, &from, with_tokens ? put->tokens + before : NULL,
                       with_tokens ? put->ntokens - before : 0, p->statuses + first);
}

/* The first block of a group that may not be stored yet. If from_tokens is the sequence's end, a
 * partly filled last block counts as stored, too. */
static uint32_t put_first(const struct putting *p, uint32_t group)
{
    const uint32_t from = p->put->from_tokens, n = p->seq->group[group].n;
    uint32_t first = from / p->ns->group[group].block_tokens;
    if (from == 0)
        first = p->there[group];
    else if (from >= p->seq->tokens)
        first = n;
    return first < n ? first : n;
}

/* Stores a group. If a parent is gone, it looks up again, and begins with the first missing block.
 */
static int put_group(struct putting *p, uint32_t group)
{
    const struct msg_group *g = &p->ns->group[group];
    const uint32_t n = p->seq->group[group].n;
    uint32_t first = put_first(p, group);
    int rc = 0;
    for (uint32_t lost = 0; rc == 0; lost++) {
        rc = first < n ? put_from(p, group, first) : 0;
        const bool is_lost = rc == 0 && first > 0 && first < n && g->rule == KVC_RULE_FULL &&
                             p->statuses[first] == KVC_ST_NO_PARENT;
        if (!is_lost || lost == PARENTS_LOST_MAX)
            break;
        rc = ask_there(p);
        first = (uint32_t)kvc__min(first, p->there[group]);
    }
    if (rc == 0 && first == n)
        memset(p->statuses, KVC_ST_EXISTS, n);
    return rc;
}

static void count_group(struct putting *p, uint32_t group)
{
    const struct msg_group *g = &p->ns->group[group];
    const uint32_t n = p->seq->group[group].n;
    struct kvc_put_result *r = &p->result;
    uint32_t good = 0;
    while (good < n && is_good(p->statuses[good]))
        good++;
    const uint64_t tokens = kvc__min((uint64_t)good * g->block_tokens, p->seq->tokens);
    if (g->rule == KVC_RULE_FULL && tokens < r->tokens)
        r->tokens = (uint32_t)tokens;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t status = p->statuses[i];
        r->group[group].stored += status == KVC_ST_OK;
        r->group[group].there += status != KVC_ST_OK && is_good(status);
        if (!is_good(status) && r->group[group].left++ == 0)
            r->group[group].status = status;
    }
    r->bytes += (uint64_t)r->group[group].stored * g->block_bytes;
}

static int put_seq(struct putting *p)
{
    struct kvc *k = p->ns->kvc;
    int rc = read__check_chains(p->ns, p->seq);
    if (rc == 0)
        rc = check_pools(p);
    if (rc == 0 && p->put->from_tokens == 0 && (p->put->flags & KVC_F_NO_STORE) == 0)
        rc = ask_there(p);
    p->result.tokens = p->seq->tokens;
    for (uint32_t g = 0; g < p->ns->groups && rc == 0; g++) {
        const uint32_t n = p->seq->group[g].n;
        uint8_t *own = NULL;
        p->statuses = p->put->statuses[g];
        if (p->statuses == NULL)
            p->statuses = own = sys_malloc(n + 1u);
        if (p->statuses == NULL)
            return kvc__fail(k, -ENOMEM, "out of memory");
        if (p->put->flags & KVC_F_NO_STORE)
            memset(p->statuses, KVC_ST_NO_STORE, n);
        else
            rc = put_group(p, g);
        if (rc == 0)
            count_group(p, g);
        free(own);
    }
    return rc;
}

int kvc_put(struct kvc_ns *ns, const struct kvc_put *put, struct kvc_put_result *ret_result)
{
    struct putting p = {.ns = ns, .put = put, .seq = put->seq};
    struct kvc_seq *own = NULL;
    int rc = check_put(ns, put);
    if (rc == 0 && put->seq == NULL) {
        rc = kvc_seq_new(ns, put->tokens, put->ntokens, put->extra, put->extra_bytes, &own);
        p.seq = own;
    }
    if (rc == 0)
        rc = put_seq(&p);
    kvc_seq_free(&own);
    if (rc == 0 && ret_result != NULL)
        *ret_result = p.result;
    return rc;
}
