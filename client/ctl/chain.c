/* SPDX-License-Identifier: Apache-2.0 */
#include "chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "key_find.h"

/* ---- the command line ---- */

int chain_check(const struct chain_ask *ask)
{
    if (!ask->ns)
        return ctl_usage("in which namespace? Give --ns ID; 'kvcachectl ns' lists them");
    if (!ask->tip.digits && !ask->tokens)
        return ctl_usage("which blocks? Give --tip KEY for the last one, or --tokens FILE; "
                         "'kvcachectl blocks --ns %u' shows the sequences",
                         ask->ns);
    return 0;
}

int chain_read(struct chain_ask *ask)
{
    return ask->tokens ? tokens_read(ask->tokens, &ask->ids, &ask->nids) : 0;
}

void chain_ask_free(struct chain_ask *ask)
{
    free(ask->ids);
    ask->ids = NULL;
}

/* ---- the namespace ---- */

int chain_open_ns(const struct ctl *ctl, uint32_t ns, struct chain *chain)
{
    bool own = false;
    int rc = kvc_ns_spec_of(ctl->kvc, ns, &chain->spec, &own);
    if (rc == 0 && !own) {
        ctl_error("namespace %u belongs to another principal, and only that one's processes can "
                  "use its blocks: run this as one of its users ('kvcachectl ns' shows the "
                  "principal, 'principals' in the daemon's configuration its uids)",
                  ns);
        return CTL_DENIED;
    }
    if (rc == 0)
        rc = kvc_ns_open(ctl->kvc, chain->spec, &chain->ns);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (kvc_ns_id(chain->ns) != ns) {
        ctl_error("namespace %u has gone, and there is another one of its kind now: %u", ns,
                  kvc_ns_id(chain->ns));
        return CTL_NOTHING;
    }
    return 0;
}

uint32_t chain_blocks(const struct kvc_ns_spec *spec, uint32_t group, uint32_t tokens)
{
    const uint32_t size = spec->group[group].block_tokens;
    return tokens / size + (tokens % size != 0);
}

/* ---- keys ---- */

/* Allocates the keys of a sequence of `tokens` tokens. */
static int chain_make_room(struct chain *chain, uint32_t tokens)
{
    uint64_t keys = 0;
    for (uint32_t g = 0; g < chain->spec->groups; g++)
        keys += chain_blocks(chain->spec, g, tokens);
    if (keys > KVC_KEYS_MAX) {
        ctl_error("%u tokens take %llu blocks; one sequence may have %u", tokens,
                  (unsigned long long)keys, KVC_KEYS_MAX);
        return CTL_FAILED;
    }
    for (uint32_t g = 0; g < chain->spec->groups; g++) {
        chain->seq.group[g].n = chain_blocks(chain->spec, g, tokens);
        chain->seq.group[g].keys =
            calloc(chain->seq.group[g].n ? chain->seq.group[g].n : 1, KVC_KEY_BYTES);
        if (!chain->seq.group[g].keys) {
            ctl_error("out of memory");
            return CTL_FAILED;
        }
    }
    chain->seq.tokens = tokens;
    return 0;
}

static uint8_t *chain_keys_of(const struct chain *chain, uint32_t group)
{
    return (uint8_t *)(uintptr_t)chain->seq.group[group].keys; /* the chain owns them */
}

static int hash_group(const struct chain *chain, uint32_t group)
{
    const int n = kvc_hash_chain(kvc_ns_seed(chain->ns), chain->ids, chain->seq.tokens,
                                 chain->spec->group[group].block_tokens, NULL, 0,
                                 chain_keys_of(chain, group));
    if (n >= 0)
        return 0;
    ctl_error("keys cannot be made: %s", kvc_error_text(n));
    return CTL_FAILED;
}

int chain_hash(struct chain *chain, uint32_t tokens)
{
    int rc = chain_make_room(chain, tokens);
    for (uint32_t g = 0; rc == 0 && g < chain->spec->groups; g++)
        rc = hash_group(chain, g);
    return rc;
}

/* Where a block is. */
struct place {
    const struct kvc_ns_spec *spec;
    uint32_t group;
    bool found;
    char why[160];
};

/* Keeps the first group that has the block, but prefers a group of full attention, in which all
 * earlier blocks must be cached too. */
static int add_place(void *ctx, const void *row)
{
    struct place *p = ctx;
    const struct kvc_block_info *x = row;
    if (x->state != KVC_BLOCK_PRESENT) {
        if (!p->found)
            snprintf(p->why, sizeof(p->why), "%s",
                     x->state == KVC_BLOCK_PENDING ? "it is being stored right now"
                                                   : kvc_miss_text(x->reason));
        return 0;
    }
    const bool full = x->group < p->spec->groups && p->spec->group[x->group].rule == KVC_RULE_FULL;
    if (x->group < p->spec->groups &&
        (!p->found || (full && p->spec->group[p->group].rule != KVC_RULE_FULL))) {
        p->group = x->group;
        p->found = true;
    }
    return 0;
}

struct walk {
    struct chain *chain;
    uint32_t group, depth; /* depth: of the next block; UINT32_MAX at the first */
    int error;             /* an enum ctl_exit */
};

static int take_block(void *ctx, const void *row)
{
    struct walk *walk = ctx;
    const struct kvc_block_info *w = row;
    struct chain *chain = walk->chain;
    if (walk->depth == UINT32_MAX) {
        const uint64_t tokens =
            (uint64_t)w->depth * chain->spec->group[walk->group].block_tokens + w->tokens;
        walk->error = tokens > UINT32_MAX ? CTL_FAILED : chain_make_room(chain, (uint32_t)tokens);
        walk->depth = w->depth;
    }
    if (walk->error != 0 || w->depth != walk->depth || w->depth >= chain->seq.group[walk->group].n)
        return 1;
    memcpy(chain_keys_of(chain, walk->group) + (size_t)w->depth * KVC_KEY_BYTES, w->key,
           KVC_KEY_BYTES);
    walk->depth--;
    return 0;
}

/* Reads the keys of the tip's group, from the tip to the first block of its sequence. */
static int walk_up(const struct ctl *ctl, uint32_t ns, const uint8_t *tip, uint32_t group,
                   struct chain *chain)
{
    struct walk walk = {.chain = chain, .group = group, .depth = UINT32_MAX};
    const struct kvc_filter up = {
        .mode = KVC_WALK_UP, .ns = ns, .group = group, .keys = tip, .n = 1};
    const int rc = kvc_list(ctl->kvc, KVC_TABLE_BLOCKS, &up, take_block, &walk);
    if (rc < 0 && rc != KVC_E_GONE)
        return ctl_fail(ctl, rc);
    if (walk.error != 0)
        return walk.error;
    if (rc != 0 || walk.depth != UINT32_MAX || chain->seq.tokens == 0) {
        ctl_error("blocks before that one are not cached (any more); 'kvcachectl blocks' shows "
                  "what is there");
        return CTL_NOTHING;
    }
    return 0;
}

/* Fills the keys of the other groups: the same keys if the block size is equal, else keys from the
 * ids. */
static int fill_groups(struct chain *chain, uint32_t from)
{
    const uint32_t size = chain->spec->group[from].block_tokens;
    for (uint32_t g = 0; g < chain->spec->groups; g++) {
        if (g == from)
            continue;
        if (chain->spec->group[g].block_tokens == size) {
            memcpy(chain_keys_of(chain, g), chain_keys_of(chain, from),
                   (size_t)chain->seq.group[from].n * KVC_KEY_BYTES);
            continue;
        }
        if (!chain->ids)
            return ctl_usage("which token ids? Group %u has blocks of %u tokens and the tip's of "
                             "%u, so its keys have to be made of them: give --tokens FILE",
                             g, chain->spec->group[g].block_tokens, size);
        const int rc = hash_group(chain, g);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int from_tip(const struct ctl *ctl, uint32_t ns, const uint8_t *tip, uint32_t nids,
                    struct chain *chain)
{
    struct place place = {.spec = chain->spec};
    const struct kvc_filter where = {.mode = KVC_WALK_KEYS, .ns = ns, .keys = tip, .n = 1};
    int rc = kvc_list(ctl->kvc, KVC_TABLE_BLOCKS, &where, add_place, &place);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if (!place.found) {
        ctl_error("the last block is not cached in namespace %u: %s", ns, place.why);
        return CTL_NOTHING;
    }
    rc = walk_up(ctl, ns, tip, place.group, chain);
    if (rc == 0 && chain->ids && nids != chain->seq.tokens) {
        ctl_error("there are %u token ids, and the sequence has %u tokens", nids,
                  chain->seq.tokens);
        return CTL_USAGE;
    }
    return rc == 0 ? fill_groups(chain, place.group) : rc;
}

int chain_find(const struct ctl *ctl, struct chain_ask *ask, struct chain *chain)
{
    chain->ids = ask->ids;
    ask->ids = NULL;
    int rc = chain_open_ns(ctl, ask->ns, chain);
    if (rc == 0 && !ask->tip.digits)
        return chain_hash(chain, ask->nids);
    if (rc == 0)
        rc = key_find(ctl, ask->ns, &ask->tip);
    return rc == 0 ? from_tip(ctl, ask->ns, ask->tip.key, ask->nids, chain) : rc;
}

/* ---- names ---- */

const char *chain_kind_name(unsigned kind)
{
    return kind == KVC_NAME_DOCUMENT ? "document" : "conversation";
}

int chain_show_name(const struct ctl *ctl, enum kvc_name_kind kind, const char *name,
                    const char *sub, struct kvc_name_info *ret_info)
{
    const int rc = kvc_name_show(ctl->kvc, kind, name, sub, ret_info);
    if (rc == KVC_E_NO_NAME) {
        ctl_error("there is no %s '%s' that you may see; 'kvcachectl %s list' shows those that "
                  "there are",
                  chain_kind_name(kind), name, kind == KVC_NAME_DOCUMENT ? "doc" : "conv");
        return CTL_NOTHING;
    }
    return rc < 0 ? ctl_fail(ctl, rc) : 0;
}

/* Loads the token ids that came with the name: all of them, or none. */
static int load_ids(const struct ctl *ctl, const struct kvc_name_info *info, const char *sub,
                    struct chain *chain)
{
    if (!info->has_tokens || info->tokens == 0)
        return 0;
    chain->ids = malloc((size_t)info->tokens * sizeof(*chain->ids));
    if (!chain->ids) {
        ctl_error("out of memory");
        return CTL_FAILED;
    }
    const int rc =
        kvc_name_tokens(ctl->kvc, info->kind, info->name, sub, 0, chain->ids, info->tokens);
    if (rc < 0)
        return ctl_fail(ctl, rc);
    if ((uint32_t)rc != info->tokens) {
        ctl_error("it has changed while it was being read; run it again");
        return CTL_FAILED;
    }
    return 0;
}

int chain_of_name(const struct ctl *ctl, const struct kvc_name_info *info, const char *sub,
                  struct chain *chain)
{
    if (info->ns == 0) {
        ctl_error("'%s' is of a namespace that is not there: nothing of it is cached", info->name);
        return CTL_NOTHING;
    }
    if (info->tokens_cached < info->tokens) {
        ctl_error("of the %u tokens of '%s' %u are cached; the others have to be computed again",
                  info->tokens, info->name, info->tokens_cached);
        return CTL_NOTHING;
    }
    int rc = chain_open_ns(ctl, info->ns, chain);
    if (rc == 0)
        rc = load_ids(ctl, info, sub, chain);
    if (rc == 0)
        rc = from_tip(ctl, info->ns, info->tip, info->tokens, chain);
    return rc;
}

void chain_free(struct chain *chain)
{
    for (uint32_t g = 0; chain->spec && g < chain->spec->groups; g++)
        free(chain_keys_of(chain, g));
    free(chain->spec);
    free(chain->ids);
    *chain = (struct chain){.ids = NULL};
}
