/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes for blocks that exist, and hints for the policy on what becomes of a chain (HINT). */
#include "serve.h"

int core_wish(struct core *c, const struct core_seq *seq, uint32_t from_tokens,
              const struct core_wish *wish, bool set, const char **ret_why)
{
    if ((*ret_why = core_seq_fault(seq)))
        return KVC_E_BAD_ARGUMENT;
    if (wish->level > RETAIN_MAX) {
        *ret_why = "priorities are 0 to 100";
        return KVC_E_BAD_ARGUMENT;
    }
    struct find f;
    struct core_prefix prefix;
    int n = 0;
    find_prefix(c, seq, FIND_ANY, 0, &f, &prefix);
    for (uint32_t g = 0; !seq->absent && g < seq->ngroups; g++) {
        uint32_t first, end;
        find_lease(&f, g, from_tokens, &first, &end);
        c->m.wishes += end - MIN(first, end);
        for (; end > first; n++) /* deepest first: a parent is younger than its children */
            wish_add(c, &c->blocks[c->lookup.found[f.at[g] + --end]], wish, set);
    }
    return n;
}

void own_range(const struct find *f, uint32_t g, uint32_t *ret_first, uint32_t *ret_end)
{
    find_needs(f, g, f->tokens, ret_first, ret_end);
    if (f->seq->ns->spec.group[g].rule == KVC_RULE_FULL)
        *ret_end = f->lead[g];
}

bool is_shared(const struct block *b, bool is_last)
{
    return b->children > 1 || (is_last && b->children > 0);
}

/* Puts the blocks of group g that are cached and that no other chain shares into
 * core->lookup.runlen, deepest first; find_prefix() does not need it any more. Returns how many. */
static uint32_t own_blocks(struct core *c, const struct find *f, uint32_t g)
{
    uint32_t first, end, n = 0;
    own_range(f, g, &first, &end);
    for (; end > first; n++) {
        const uint32_t no = c->lookup.found[f->at[g] + --end];
        if (is_shared(&c->blocks[no], n == 0))
            break;
        c->lookup.runlen[n] = no;
    }
    return n;
}

int core_advise(struct core *c, const struct core_seq *seq, enum policy_advice advice,
                uint32_t within_ms, const char **ret_why)
{
    if ((*ret_why = core_seq_fault(seq)))
        return KVC_E_BAD_ARGUMENT;
    if (advice == POLICY_ADVICE_NONE || advice >= POLICY_ADVICE_COUNT) {
        *ret_why = "no such hint";
        return KVC_E_BAD_ARGUMENT;
    }
    struct find f;
    struct core_prefix prefix;
    uint32_t all = 0;
    find_prefix(c, seq, FIND_ANY, 0, &f, &prefix);
    for (uint32_t g = 0; !seq->absent && g < seq->ngroups; g++) {
        const uint32_t n = own_blocks(c, &f, g);
        if (n > 0 && c->cfg.policy->advise)
            c->cfg.policy->advise(c->policy, advice, within_ms, c->lookup.runlen, n, c->now_ms);
        all += n;
    }
    c->m.advice++;
    c->hinted[advice]++;
    if (advice == POLICY_ADVICE_SOON)
        (void)core_prefetch(c, seq, UINT64_MAX);
    return (int)all;
}
