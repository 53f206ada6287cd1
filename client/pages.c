/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon loads blocks into a worker's pages, and stores blocks from them: PAGES_LOAD and
 * PAGES_STORE. These requests name a pool, and are parked until it is open.
 */
#include <errno.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"

static uint32_t word_number(const struct kvc_word *w)
{
    return w->word == 0 ? KVC_NO_WORD : w->word - 1;
}

static struct codec_bin pages_bin(const uint32_t *pages, uint64_t n)
{
    return (struct codec_bin){.p = (const uint8_t *)pages, .n = (uint32_t)(4 * n)};
}

int pages__check_pool(struct kvc_ns *ns, const struct kvc_pool *pool, uint32_t group)
{
    struct kvc *k = ns->kvc;
    if (pool == NULL || pool->gpu->kvc != k)
        return kvc__fail(k, -EINVAL, "pool is NULL, or of another session");
    if (pool->groups != ns->groups)
        return kvc__fail(k, -EINVAL, "the pool has %u groups, the namespace %u", pool->groups,
                         ns->groups);
    if (pool->group[group].block_bytes != ns->group[group].block_bytes)
        return kvc__fail(k, -EINVAL,
                         "group %u: a block is %llu bytes of pages, but block_bytes of the "
                         "namespace is %u",
                         group, (unsigned long long)pool->group[group].block_bytes,
                         ns->group[group].block_bytes);
    return 0;
}

/* ---- load ---- */

/* How many page numbers a load has for a group. */
static uint64_t pages_of_one(const struct kvc_ns *ns, const struct kvc_seq *seq,
                             const struct kvc_pool *pool, const struct kvc_pages_load *load,
                             uint32_t group)
{
    uint32_t skipped = load->from_tokens / ns->group[group].block_tokens;
    uint32_t n = seq->group[group].n;
    return (uint64_t)(n > skipped ? n - skipped : 0) * pool->group[group].pages_per_block;
}

static int check_load(struct kvc_ns *ns, const struct kvc_seq *seq, const struct kvc_pool *pool,
                      const struct kvc_pages_load *load)
{
    struct kvc *k = ns->kvc;
    uint64_t total = 0;
    if (load == NULL || load->timeout_ms > KVC_DEADLINE_MAX_MS)
        return kvc__fail(k, -EINVAL, "load is NULL, or its timeout_ms above %u",
                         KVC_DEADLINE_MAX_MS);
    if ((load->flags & ~(unsigned)(KVC_F_WAIT | KVC_F_NO_LOAD | KVC_F_ALL)) != 0)
        return kvc__fail(k, -EINVAL, "flags are %#x: WAIT, NO_LOAD and ALL are known here",
                         load->flags);
    int rc = read__check_seq(ns, seq);
    for (uint32_t g = 0; g < ns->groups && rc == 0; g++) {
        rc = pages__check_pool(ns, pool, g);
        uint64_t n = rc == 0 ? pages_of_one(ns, seq, pool, load, g) : 0;
        total += n;
        if (rc == 0 && n > 0 && load->pages[g] == NULL)
            rc = kvc__fail(k, -EINVAL, "group %u: pages is NULL", g);
        if (rc == 0 && n <= KVC_PAGES_MAX)
            rc = pool__check_pages(k, load->pages[g], n, pool->pages_max, pool__is_host(pool));
    }
    if (rc == 0 && total > KVC_PAGES_MAX)
        rc = kvc__fail(k, -EINVAL, "%llu page numbers in one request; at most %u",
                       (unsigned long long)total, KVC_PAGES_MAX);
    if (rc == 0 && load->ready.word != 0 && load->ready.value > (uint64_t)INT64_MAX - pool->layers)
        rc = kvc__fail(k, -EINVAL, "ready.value is %llu; with the layers it must be below 2^63",
                       (unsigned long long)load->ready.value);
    return rc;
}

static int send_load(struct kvc_op *op, const struct kvc_seq *seq, const struct kvc_pool *pool,
                     const struct kvc_pages_load *load, struct kvc_op **ret_op)
{
    struct kvc_ns *ns = op->ns;
    struct msg_pages_load m = {.flags = load->flags,
                               .shard = op->kvc->shard,
                               .from_tokens = load->from_tokens,
                               .wait_tokens = load->wait_tokens,
                               .pool = pool->no,
                               .after_word = word_number(&load->after),
                               .after_value = load->after.word != 0 ? load->after.value : 0,
                               .ready_word = word_number(&load->ready),
                               .ready_value = load->ready.word != 0 ? load->ready.value : 0,
                               .ngroups = ns->groups};
    read__to_msg(ns, seq, &m.seq);
    for (uint32_t g = 0; g < ns->groups; g++)
        m.pages[g].pages = pages_bin(load->pages[g], pages_of_one(ns, seq, pool, load, g));
    return read__begin(op, codec_enc_pages_load(op->kvc->tx, KVC_MESSAGE_MAX, &op->head, &m),
                       ret_op);
}

/* Checks the words of a load. If the caller has not seen this epoch's page, the load is a miss, and
 * the word `ready` is raised so that a stream that waits for it continues. */
static int check_words(struct kvc_op *op, const struct kvc_pool *pool,
                       const struct kvc_pages_load *load)
{
    struct kvc *k = op->kvc;
    int rc = words__check(k, load->after.word, load->after.value);
    if (rc == 0)
        rc = words__check(k, load->ready.word, load->ready.value);
    if ((rc < 0 && !kvc__is_down(rc)) || load->ready.word == 0)
        return rc;
    op->ready_word = load->ready.word;
    op->ready_at = load->ready.value + pool->layers;
    op->ready_epoch = k->words.given;
    return rc;
}

static int no_halves(struct kvc *k)
{
    return kvc__fail(k, -EOPNOTSUPP,
                     "pages on the device 'host' are copied by the caller's thread: kvc_pages_load "
                     "and kvc_pages_store, or kvc_gpu_load and kvc_gpu_stage, wait for that");
}

static int begin_load(struct kvc_ns *ns, const struct kvc_seq *seq, struct kvc_pool *pool,
                      const struct kvc_pages_load *load, enum half half, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    struct kvc_op *op = NULL;
    int rc = check_load(ns, seq, pool, load);
    if (rc == 0 && pool__is_host(pool))
        rc = no_halves(k);
    if (rc == 0)
        rc = read__new_op(ns, KVC_OP_PAGES_LOAD, kvc__deadline(k, load->timeout_ms), half, &op);
    if (rc < 0)
        return rc;
    op->pool = pool;
    op->borrows = true;
    rc = op->stage == OP_DONE ? 0 : check_words(op, pool, load);
    if (rc < 0 && !kvc__is_down(rc)) {
        op__free(op);
        return rc;
    }
    if (rc < 0) {
        op__complete(op, rc);
        watch__update(k);
    }
    if (op->stage != OP_DONE)
        return send_load(op, seq, pool, load, ret_op);
    *ret_op = op;
    return 0;
}

int kvc_pages_load_begin(struct kvc_ns *ns, const struct kvc_seq *seq, struct kvc_pool *pool,
                         const struct kvc_pages_load *load, struct kvc_op **ret_op)
{
    return begin_load(ns, seq, pool, load, BEGINNING, ret_op);
}

/* ---- what has come ---- */

/* Whether a group has all blocks that its rule asks for in a prefix of `tokens` tokens. If not,
 * *ret_most is the longest prefix that may have them. */
static bool has(const struct pages_have *g, uint32_t tokens, bool is_hit, uint32_t from_tokens,
                uint32_t *ret_most)
{
    uint32_t bt = g->block_tokens;
    uint32_t end = tokens / bt + (tokens % bt != 0);
    if (tokens % bt != 0 && !is_hit) {
        *ret_most = tokens - tokens % bt;
        return false;
    }
    uint32_t begin = 0;
    if (g->rule == KVC_RULE_WINDOW && tokens > g->window)
        begin = (tokens - g->window) / bt;
    else if (g->rule == KVC_RULE_STATE && end > 0)
        begin = end - 1;
    for (uint32_t i = end; i > begin; i--) {
        uint32_t block = i - 1;
        if ((uint64_t)(block + 1) * bt <= from_tokens)
            return true;
        if (block >= g->first && block - g->first < g->n &&
            g->statuses[block - g->first] == KVC_ST_OK)
            continue;
        /* A shorter prefix does without what comes last here; of a full group, without this one. */
        *ret_most = g->rule == KVC_RULE_FULL ? block * bt : (end - 1) * bt;
        return false;
    }
    return true;
}

uint32_t pages__tokens(const struct pages_have *group, uint32_t groups, uint32_t hit,
                       uint32_t from_tokens)
{
    uint32_t tokens = hit;
    for (uint32_t g = 0; g < groups && tokens > from_tokens;) {
        uint32_t most = 0;
        if (has(&group[g], tokens, tokens == hit, from_tokens, &most)) {
            g++;
            continue;
        }
        tokens = most;
        g = 0;
    }
    return tokens > from_tokens ? tokens : 0;
}

/* ---- load: the outcome ---- */

/* Checks the groups of a reply: each names blocks of the request, with one status for each. */
static int check_reply(const struct kvc_ns *ns, const struct msg_pages_load_reply *r)
{
    uint64_t total = 0;
    if (r->ngroups != ns->groups)
        return KVC_E_BAD_MESSAGE;
    for (uint32_t g = 0; g < r->ngroups; g++) {
        total += r->groups[g].statuses.n;
        if (r->groups[g].first > KVC_KEYS_MAX || total > KVC_KEYS_MAX)
            return KVC_E_BAD_MESSAGE;
    }
    return 0;
}

static void fill_loaded(struct kvc_op *op, uint32_t from_tokens,
                        const struct msg_pages_load_reply *r)
{
    const struct kvc_ns *ns = op->ns;
    struct kvc_pool *pool = op->pool;
    struct kvc_loaded *l = &pool->loaded;
    struct pages_have have[KVC_GROUPS_MAX];
    uint8_t *at = pool->statuses;
    *l =
        (struct kvc_loaded){.prefix = {.tokens = r->hit_tokens, .cached_tokens = r->cached_tokens}};
    for (uint32_t g = 0; g < r->ngroups; g++) {
        const struct msg_group_loaded *from = &r->groups[g];
        if (from->statuses.n > 0)
            memcpy(at, from->statuses.p, from->statuses.n);
        l->group[g].first = from->first;
        l->group[g].n = from->statuses.n;
        l->group[g].statuses = at;
        l->prefix.group[g].blocks = from->first + from->statuses.n;
        l->prefix.group[g].reason = from->reason;
        l->prefix.group[g].detail = from->detail;
        have[g] = (struct pages_have){.block_tokens = ns->group[g].block_tokens,
                                      .window = ns->group[g].window,
                                      .rule = ns->group[g].rule,
                                      .first = from->first,
                                      .n = from->statuses.n,
                                      .statuses = at};
        at += from->statuses.n;
    }
    l->tokens = pages__tokens(have, r->ngroups, r->hit_tokens, from_tokens);
}

/* The reply to a request was TIER: the device does not exist, is out of service, or was so since
 * the pool was opened. Then the pool is void. (TIER as a block's status is about that block.) */
static void note_tier(struct kvc_op *op, int rc)
{
    if (rc == KVC_E_TIER && op->pool != NULL && op->msg.full && op->pool->epoch == op->epoch)
        op->pool->is_void = true;
}

static int take_load(struct kvc_op *op)
{
    struct msg_reply_head head;
    struct msg_pages_load_reply r;
    struct msg_head sent_head;
    struct msg_pages_load sent;
    int rc = codec_dec_pages_load_reply(op->msg.data, op->msg.len, &head, &r);
    rc = op__checked(op, rc == 0 ? check_reply(op->ns, &r) : rc);
    if (rc == 0)
        rc = codec_dec_pages_load(op->sent.data, op->sent.len, &sent_head, &sent);
    if (rc == 0)
        fill_loaded(op, sent.from_tokens, &r);
    return rc;
}

/* Waits for the op. If the library cancelled it, the caller gets TIMEOUT, not CANCELLED. */
static int pages_await(struct kvc_op *op)
{
    int rc = op__await(op);
    if (rc == KVC_E_CANCELLED && op->is_overdue)
        rc = op->error = kvc__fail(op->kvc, KVC_E_TIMEOUT, "no reply within %u ms; cancelled",
                                   op->head.deadline_ms);
    return rc;
}

int pages__finish_load(struct kvc_op *op, struct kvc_prefix *ret_prefix)
{
    struct kvc *k = op->kvc;
    int rc = pages_await(op);
    note_tier(op, rc);
    if (op->pool == NULL)
        return kvc__fail(k, KVC_E_CANCELLED, "the pool was closed meanwhile");
    op->pool->loaded = (struct kvc_loaded){.tokens = 0};
    if (rc == 0)
        rc = take_load(op);
    if (kvc__is_miss(rc) || rc == KVC_E_TIER) {
        k->counters.lookups_down += kvc__is_miss(rc);
        rc = 0;
    }
    if (rc == 0 && ret_prefix != NULL)
        *ret_prefix = op->pool->loaded.prefix;
    return rc;
}

void kvc_pages_loaded(const struct kvc_pool *pool, struct kvc_loaded *ret_loaded)
{
    *ret_loaded = pool->loaded;
}

int kvc_pages_load(struct kvc_ns *ns, const struct kvc_seq *seq, struct kvc_pool *pool,
                   const struct kvc_pages_load *load, struct kvc_loaded *ret_loaded)
{
    struct kvc_op *op = NULL;
    if (pool != NULL && pool__is_host(pool)) {
        int err = check_load(ns, seq, pool, load);
        return err < 0 ? err : host__load(ns, seq, pool, load, ret_loaded);
    }
    int rc = begin_load(ns, seq, pool, load, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = pages__finish_load(op, NULL);
    op__free(op);
    watch__update(ns->kvc);
    if (rc == 0)
        kvc_pages_loaded(pool, ret_loaded);
    return rc;
}

/* ---- store ---- */

static int check_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                       const struct kvc_pool *pool, const uint32_t *pages)
{
    struct kvc *k = ns->kvc;
    int rc = write__check_blocks(ns, blocks);
    if (rc == 0)
        rc = pages__check_pool(ns, pool, blocks->group);
    if (rc < 0)
        return rc;
    uint64_t n = (uint64_t)blocks->n * pool->group[blocks->group].pages_per_block;
    if (pages == NULL || n > KVC_PAGES_MAX)
        return kvc__fail(k, -EINVAL,
                         "%llu page numbers in one request; a pointer, and at most %u, were "
                         "expected",
                         (unsigned long long)n, KVC_PAGES_MAX);
    return pool__check_pages(k, pages, n, pool->pages_max, pool__is_host(pool));
}

static int send_store(struct kvc_op *op, const struct kvc_blocks *blocks,
                      const struct kvc_pool *pool, const uint32_t *pages, struct kvc_word after,
                      const uint32_t *tokens, size_t ntokens)
{
    struct wish_bytes wishes;
    uint64_t n = (uint64_t)blocks->n * pool->group[blocks->group].pages_per_block;
    struct msg_pages_store m = {
        .reserve = write__to_msg(op->ns, blocks, &wishes),
        .pool = pool->no,
        .after_word = word_number(&after),
        .after_value = after.word != 0 ? after.value : 0,
        .pages = pages_bin(pages, n),
        .tokens = {.p = (const uint8_t *)tokens, .n = (uint32_t)(4 * ntokens)}};
    return op__send(op, codec_enc_pages_store(op->kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
}

static int pages_begin_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                             struct kvc_pool *pool, const uint32_t *pages, struct kvc_word after,
                             const uint32_t *tokens, size_t ntokens, enum half half,
                             struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    int rc = check_store(ns, blocks, pool, pages);
    if (rc == 0)
        rc = write__check_tokens(k, tokens, ntokens);
    if (rc == 0 && pool__is_host(pool))
        rc = no_halves(k);
    if (rc < 0)
        return rc;
    if (blocks->flags & KVC_F_NO_STORE)
        return write__decline(ns, KVC_OP_PAGES_STORE, blocks->n, half, ret_op);
    struct kvc_op *op = NULL;
    rc = write__new_op(ns, KVC_OP_PAGES_STORE, half, &op);
    if (rc == 0) {
        op->pool = pool;
        op->group = blocks->group;
        op->blocks = blocks->n;
        rc = words__check(k, after.word, after.value);
    }
    if (rc == 0)
        rc = send_store(op, blocks, pool, pages, after, tokens, ntokens);
    if (rc < 0) {
        op__free(op);
        return write__dropped(k, blocks->n, ns->group[blocks->group].block_bytes, rc);
    }
    *ret_op = op;
    return 0;
}

int kvc_pages_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks, struct kvc_pool *pool,
                          const uint32_t *pages, struct kvc_word after, const uint32_t *tokens,
                          size_t ntokens, struct kvc_op **ret_op)
{
    return pages_begin_store(ns, blocks, pool, pages, after, tokens, ntokens, BEGINNING, ret_op);
}

int pages__finish_store(struct kvc_op *op, uint8_t *ret_statuses)
{
    (void)pages_await(op);
    int rc = write__finish_store(op, ret_statuses);
    note_tier(op, rc);
    return rc;
}

int kvc_pages_store(struct kvc_ns *ns, const struct kvc_blocks *blocks, struct kvc_pool *pool,
                    const uint32_t *pages, struct kvc_word after, const uint32_t *tokens,
                    size_t ntokens, uint8_t *statuses)
{
    struct kvc_op *op = NULL;
    if (statuses == NULL)
        return kvc__fail(ns->kvc, -EINVAL, "statuses is NULL");
    if (pool != NULL && pool__is_host(pool)) {
        int err = check_store(ns, blocks, pool, pages);
        if (err == 0)
            err = write__check_tokens(ns->kvc, tokens, ntokens);
        return err < 0 ? err
                       : host__store(ns, blocks, pool, pages, after, tokens, ntokens, statuses);
    }
    int rc = pages_begin_store(ns, blocks, pool, pages, after, tokens, ntokens, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = pages__finish_store(op, statuses);
    op__free(op);
    watch__update(ns->kvc);
    return rc;
}
