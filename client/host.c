/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvc_pages_load() and kvc_pages_store() for the device "host", whose pages are memory of this
 * process. The library copies in the caller's thread, from a hold or to staging. The daemon has no
 * access to the pages.
 */
#include <errno.h>
#include <string.h>

#include "client.h"
#include "client_gpu__.h"

static void fill_loaded(const struct kvc_hold *hold, struct kvc_pool *pool, uint32_t from_tokens,
                        bool is_stale)
{
    struct kvc_loaded *l = &pool->loaded;
    uint8_t *at = pool->statuses;
    *l = (struct kvc_loaded){.prefix = hold->prefix};
    for (uint32_t g = 0; g < pool->groups; g++) {
        l->group[g].first = hold->group[g].first;
        l->group[g].n = hold->group[g].n;
        l->group[g].statuses = at;
        memset(at, is_stale ? KVC_ST_GONE : KVC_ST_OK, hold->group[g].n);
        at += hold->group[g].n;
    }
    if (!is_stale && hold->prefix.tokens > from_tokens)
        l->tokens = hold->prefix.tokens;
}

/* The caller's page numbers begin at the block that contains from_tokens. The hold may begin with a
 * later block, so earlier numbers are skipped. */
static int load_held(struct kvc_ns *ns, const struct kvc_hold *hold, struct kvc_pool *pool,
                     const struct kvc_pages_load *load)
{
    const struct kvc_pool_spec spec = pool__spec(pool);
    const uint32_t *pages[KVC_GROUPS_MAX] = {NULL};
    for (uint32_t g = 0; g < ns->groups; g++) {
        const uint32_t skipped = load->from_tokens / ns->group[g].block_tokens;
        if (hold->group[g].n > 0)
            pages[g] = load->pages[g] +
                       (size_t)(hold->group[g].first - skipped) * pool->group[g].pages_per_block;
    }
    return kvc_gpu_load(pool->gpu, hold, &spec, pages, NULL);
}

int host__load(struct kvc_ns *ns, const struct kvc_seq *seq, struct kvc_pool *pool,
               const struct kvc_pages_load *load, struct kvc_loaded *ret_loaded)
{
    struct kvc *k = ns->kvc;
    struct kvc_hold *hold = NULL;
    if (load->after.word != 0 || load->ready.word != 0)
        return kvc__fail(k, -EINVAL,
                         "a pool on the device 'host' has no words: all is done when it returns");
    const struct kvc_acquire_options options = {.flags = load->flags,
                                                .from_tokens = load->from_tokens,
                                                .wait_tokens = load->wait_tokens,
                                                .timeout_ms = load->timeout_ms};
    int rc = kvc_acquire(ns, seq, &options, &hold);
    if (rc < 0)
        return rc;
    rc = load_held(ns, hold, pool, load);
    if (rc == 0) {
        fill_loaded(hold, pool, load->from_tokens, kvc_hold_check(hold) != 0);
        *ret_loaded = pool->loaded;
    }
    kvc_release(k, &hold);
    return rc;
}

int host__check_after(struct kvc *k, struct kvc_word after)
{
    if (after.word == 0)
        return 0;
    return kvc__fail(k, -EINVAL,
                     "after names a word, and host memory has no words: what is stored from there "
                     "is written before the call; after is for a pool on a device");
}

int host__store(struct kvc_ns *ns, const struct kvc_blocks *blocks, struct kvc_pool *pool,
                const uint32_t *pages, struct kvc_word after, const uint32_t *tokens,
                size_t ntokens, uint8_t *statuses)
{
    const struct source from = {.pool = pool, .pages = pages};
    int rc = host__check_after(ns->kvc, after);
    if (rc < 0)
        return rc;
    if (blocks->flags & KVC_F_NO_STORE) {
        memset(statuses, KVC_ST_NO_STORE, blocks->n);
        return 0;
    }
    return put__blocks(ns, blocks, &from, tokens, ntokens, statuses);
}
