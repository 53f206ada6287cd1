/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the eviction policy which blocks a request asked for, when the request is answered. */
#include "find.h"
#include "index.h"

/* Blocks that the policy is told of at once, at most: looking at so many costs it nothing
 * noticeable. */
#define TELL_PIECE  256u
#define TELL_HASHES 8u /* as much work as looking up one key */

/* Counts the work of telling; in one piece it is part of the work of looking up. True: the slice is
 * over, and the work was not done. */
static bool tell_stops(struct core *c, bool whole, uint32_t work)
{
    if (whole)
        return false;
    if (slice_over(c))
        return true;
    c->work.done += work;
    return false;
}

/* Computes the hashes of group g, and counts its leading blocks. False: the slice is over. */
static bool tell_count(struct core *c, struct find *f, struct telling *t, bool whole)
{
    const struct core_seq *seq = f->seq;
    const uint32_t slot = (uint32_t)(seq->ns - c->ns), g = t->group;
    uint64_t *hash = &c->lookup.hash[f->at[g]];
    for (uint32_t *i = &f->hashed[g]; *i < seq->n[g]; ++*i) {
        if (tell_stops(c, whole, *i % TELL_HASHES == 0 ? WORK_LOOK : 0))
            return false;
        hash[*i] = index_hash(c, slot, g, seq->keys[g] + (size_t)*i * KVC_KEY_BYTES);
    }
    if (t->hits == 0 && seq->ns->spec.group[g].rule == KVC_RULE_FULL)
        t->hits = f->lead[g];
    for (; t->hits < seq->n[g]; t->hits++) {
        if (tell_stops(c, whole, WORK_LOOK))
            return false;
        const uint8_t *key = seq->keys[g] + (size_t)t->hits * KVC_KEY_BYTES;
        const struct block *b = index_find(c, hash[t->hits], slot, g, key);
        if (!b || b->state != BLOCK_PRESENT)
            break;
    }
    return true;
}

/* Tells the policy the keys of each group. whole: in one piece. False: the slice is over. */
static bool request_tell(struct core *c, struct find *f, struct telling *t, bool whole)
{
    const struct core_seq *seq = f->seq;
    const struct policy_ops *policy = c->cfg.policy;
    const uint32_t slot = (uint32_t)(seq->ns - c->ns);
    for (; policy->request && !seq->absent && t->group < seq->ngroups;) {
        const uint32_t g = t->group;
        if (!t->counted && !tell_count(c, f, t, whole))
            return false;
        t->counted = true;
        t->part.most = MIN(TELL_PIECE, work_of_slice(c));
        const struct policy_request request = {.hash = &c->lookup.hash[f->at[g]],
                                               .n = seq->n[g],
                                               .hits = t->hits,
                                               .source = slot * KVC_GROUPS_MAX + g,
                                               .part = whole ? NULL : &t->part};
        while (request.n > 0) {
            if (tell_stops(c, whole, MIN(request.n, t->part.most) * WORK_LOOK))
                return false;
            if (!policy->request(c->policy, &request, c->now_ms))
                break;
        }
        *t = (struct telling){.group = g + 1};
    }
    return true;
}

bool tell_step(struct core *c, struct find *f, struct telling *t)
{
    return request_tell(c, f, t, false);
}

void tell_request(struct core *c, struct find *f)
{
    struct telling t = {0};
    MUST(request_tell(c, f, &t, true));
}
