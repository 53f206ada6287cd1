/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the longest cached prefix that satisfies every group of layers, and says why it ends there.
 * LOOKUP and ACQUIRE, and all that names a sequence of tokens, begin here.
 */
#include "find.h"
#include "index.h"
#include "regions.h"

/* A request of more keys is looked up in slices. */
#define FIND_SHORT 512u

/* Keys hashed in advance: for each, a table entry and a record are being prefetched. */
#define FIND_AHEAD 16
/* A missing key is looked for in so many sibling namespaces at most, so that a miss stays cheap. */
#define FIND_SIBLINGS 16

/* Whether a block of group g ends at `tokens`: at a multiple of block_tokens, or at the end of the
 * sequence if the group's keys reach it. */
static bool is_boundary(const struct find *f, uint32_t g, uint32_t tokens)
{
    const struct core_group *p = &f->seq->ns->spec.group[g];
    if (tokens % p->block_tokens == 0)
        return tokens / p->block_tokens <= f->seq->n[g];
    return tokens == f->seq->tokens && (uint64_t)f->seq->n[g] * p->block_tokens >= tokens;
}

static uint32_t tokens_of_block(const struct find *f, uint32_t g, uint32_t i)
{
    uint32_t bt = f->seq->ns->spec.group[g].block_tokens;
    return MIN(bt, f->seq->tokens - i * bt);
}

/* Whether a PRESENT block counts as found; whether a request may wait for a PENDING one. */
static bool is_usable(struct core *c, const struct find *f, uint32_t g, uint32_t i,
                      const struct block *b)
{
    if (b->state != BLOCK_PRESENT)
        return !block_is_late(c, b);
    if (find_ready(c, f, b))
        return true;
    const uint64_t end = (uint64_t)(i + 1) * f->seq->ns->spec.group[g].block_tokens;
    if (f->where == FIND_HOST && end > f->from)
        return false;
    return block_reachable(c, b);
}

/* Holds a block that a lookup in slices found, until its last slice. */
static void find_hold(struct core *c, struct find *f, uint32_t at, struct block *b)
{
    if (b->state != BLOCK_PRESENT)
        return;
    if (!block_may_be_held(b) || unevictable_hold(c, f->seq->ns, b, &f->left) != 0) {
        f->refused = true;
        return;
    }
    block_hold(c, b);
    f->held[at / 64] |= UINT64_C(1) << at % 64;
    f->holds++;
}

bool find_put(struct core *c, struct find *f, uint32_t g, uint32_t i, struct block *b)
{
    if (b->state != BLOCK_PRESENT || b->tokens != tokens_of_block(f, g, i) ||
        !is_usable(c, f, g, i, b))
        return false;
    c->work.done += WORK_LOOK;
    c->lookup.found[f->at[g] + i] = block_no(c, b);
    find_hold(c, f, f->at[g] + i, b);
    return !f->refused;
}

static bool find_present(const struct core *c, uint32_t no)
{
    return no != CORE_NONE && c->blocks[no].state == BLOCK_PRESENT;
}

/* For a group that is not full: notes how many blocks up to block i are PRESENT without a gap. */
static void note_run(struct core *c, struct find *f, uint32_t g, uint32_t i)
{
    uint32_t *run = &c->lookup.runlen[f->at[g]];
    const bool here = find_present(c, c->lookup.found[f->at[g] + i]);
    run[i] = !here ? 0 : i > 0 ? run[i - 1] + 1 : 1;
    if (run[i] == i + 1)
        f->lead[g] = run[i];
}

/* The block that an earlier lookup found for this key, if it is still there. */
static struct block *find_known(struct core *c, const struct find *f, uint32_t g, uint32_t i,
                                const uint8_t *key)
{
    const uint32_t no = c->lookup.found[f->at[g] + i];
    struct block *b = no == CORE_NONE ? NULL : &c->blocks[no];
    const bool same = b && b->flags & BLOCK_F_LINKED && b->ns == f->seq->ns - c->ns &&
                      b->group == g && memcmp(b->key.b, key, KVC_KEY_BYTES) == 0;
    return same ? b : NULL;
}

/* The key's hash; also computes those of the next keys, and prefetches their slots. */
static uint64_t hash_ahead(struct core *c, struct find *f, uint32_t g, uint32_t i, uint32_t n)
{
    const uint32_t slot = (uint32_t)(f->seq->ns - c->ns);
    uint64_t *hash = &c->lookup.hash[f->at[g]];
    uint32_t hashed = f->hashed[g];
    for (; hashed < n && hashed < i + 2 * FIND_AHEAD; hashed++) {
        hash[hashed] = index_hash(c, slot, g, f->seq->keys[g] + (size_t)hashed * KVC_KEY_BYTES);
        index_prefetch(c, hash[hashed]);
    }
    f->hashed[g] = hashed;
    if (i + FIND_AHEAD < n)
        index_prefetch_record(c, hash[i + FIND_AHEAD]);
    return hash[i];
}

/* Finds the records of blocks 0 .. n-1 of group g, from the next one on; stops at the first that is
 * not PRESENT if `chain`. True: all are done. */
static bool find_probe(struct core *c, struct find *f, uint32_t g, uint32_t n, bool chain)
{
    const struct core_seq *seq = f->seq;
    uint32_t slot = (uint32_t)(seq->ns - c->ns);
    uint32_t *found = &c->lookup.found[f->at[g]];
    uint32_t i = f->probed[g];
    for (; i < n; i++) {
        if (f->held && slice_over(c))
            break;
        const uint8_t *key = seq->keys[g] + (size_t)i * KVC_KEY_BYTES;
        const bool known = i < f->known[g];
        struct block *b = known ? find_known(c, f, g, i, key) : NULL;
        if (!b && !(known && f->is_recent)) {
            b = index_find(c, hash_ahead(c, f, g, i, n), slot, g, key);
            c->index.probes++;
        }
        bool here = b && b->tokens == tokens_of_block(f, g, i) && is_usable(c, f, g, i, b);
        c->work.done += WORK_LOOK;
        found[i] = here ? block_no(c, b) : CORE_NONE;
        if (here && f->held)
            find_hold(c, f, f->at[g] + i, b);
        f->linked &= !chain || !here || i == 0 || b->parent == found[i - 1];
        if (!chain)
            note_run(c, f, g, i);
        if (chain && (!here || b->state != BLOCK_PRESENT)) {
            f->probed[g] = i + 1;
            return true;
        }
    }
    f->probed[g] = i;
    return i == n;
}

static bool probe_full(struct core *c, struct find *f, uint32_t g)
{
    uint32_t bt = f->seq->ns->spec.group[g].block_tokens;
    if (!find_probe(c, f, g, f->seq->n[g], true))
        return false;
    uint32_t lead = f->probed[g];
    if (lead > 0 && !find_present(c, c->lookup.found[f->at[g] + lead - 1]))
        lead--;
    f->lead[g] = lead;
    f->limit = MIN(f->limit, (uint32_t)MIN((uint64_t)lead * bt, f->seq->tokens));
    return true;
}

static bool probe_other(struct core *c, struct find *f, uint32_t g)
{
    uint32_t bt = f->seq->ns->spec.group[g].block_tokens;
    uint32_t n = MIN(f->seq->n[g], (uint32_t)(((uint64_t)f->seq->tokens + bt - 1) / bt));
    return find_probe(c, f, g, n, false);
}

/* Blocks first .. end-1 of group g that a prefix of `tokens` needs. */
void find_needs(const struct find *f, uint32_t g, uint32_t tokens, uint32_t *ret_first,
                uint32_t *ret_end)
{
    const struct core_group *p = &f->seq->ns->spec.group[g];
    uint32_t end = (uint32_t)(((uint64_t)tokens + p->block_tokens - 1) / p->block_tokens);
    uint32_t first = 0;
    if (p->rule == KVC_RULE_WINDOW && tokens > p->window)
        first = (tokens - p->window) / p->block_tokens;
    if (p->rule == KVC_RULE_STATE && end > 0)
        first = end - 1;
    *ret_first = first;
    *ret_end = end;
}

static bool group_satisfied(const struct core *c, const struct find *f, uint32_t g, uint32_t tokens)
{
    if (!is_boundary(f, g, tokens))
        return false;
    if (f->seq->ns->spec.group[g].rule == KVC_RULE_FULL || tokens == 0)
        return true;
    uint32_t first, end;
    find_needs(f, g, tokens, &first, &end);
    return c->lookup.runlen[f->at[g] + end - 1] >= end - first;
}

bool find_satisfies(const struct core *c, const struct find *f, uint32_t tokens)
{
    for (uint32_t g = 0; g < f->seq->ngroups; g++)
        if (!group_satisfied(c, f, g, tokens))
            return false;
    return true;
}

enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key)
{
    return ghost_reason(c, index_hash(c, (uint32_t)(ns - c->ns), group, key));
}

enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail)
{
    uint32_t slot = (uint32_t)(ns - c->ns);
    uint64_t hash = index_hash(c, slot, group, key);
    const struct block *b = index_find(c, hash, slot, group, key);
    if (b && b->state == BLOCK_PENDING)
        return block_is_late(c, b) ? KVC_MISS_DROPPED : KVC_MISS_PENDING;
    if (b && !block_ready(b))
        return KVC_MISS_NOT_LOADED;
    enum kvc_miss reason = ghost_reason(c, hash);
    if (reason != KVC_MISS_NEVER)
        return reason;
    uint32_t tried = 0;
    for (uint32_t i = 0; i < c->cfg.namespaces_max && tried < FIND_SIBLINGS; i++) {
        const struct core_ns *o = &c->ns[i];
        if (!o->blocks || !ns_is_sibling(ns, o))
            continue;
        tried++;
        if (group >= o->spec.ngroups || !index_get(c, o, group, key))
            continue;
        *ret_detail = ns_diff(ns, o);
        return KVC_MISS_NAMESPACE;
    }
    return KVC_MISS_NEVER;
}

/* *ret_gap: the first block of group g behind the prefix that is not there; CORE_NONE if all are.
 * False: the slice is over. */
static bool first_gap(struct core *c, struct find *f, uint32_t g, uint32_t *ret_gap)
{
    const struct core_group *p = &f->seq->ns->spec.group[g];
    if (p->rule == KVC_RULE_FULL) {
        *ret_gap = f->lead[g] < f->probed[g] ? f->lead[g] : CORE_NONE;
        return true;
    }
    const uint32_t from = f->tokens / p->block_tokens;
    for (; from + f->next < f->probed[g]; f->next++) {
        if (find_paused(c, f))
            return false;
        if (!find_present(c, c->lookup.found[f->at[g] + from + f->next]))
            break;
    }
    *ret_gap = from + f->next < f->probed[g] ? from + f->next : CORE_NONE;
    f->next = 0;
    return true;
}

static void explain_end(struct core *c, const struct find *f, uint32_t g, uint32_t gap,
                        struct core_prefix *prefix)
{
    prefix->group[g].blocks = f->lead[g];
    prefix->group[g].detail = 0;
    if (f->cut) {
        prefix->group[g].reason = KVC_MISS_NOT_WORTH;
    } else if (f->tokens == f->seq->tokens) {
        prefix->group[g].reason = KVC_MISS_NONE;
    } else if (gap == CORE_NONE) {
        prefix->group[g].reason = f->seq->ngroups > 1 ? KVC_MISS_OTHER_GROUP : KVC_MISS_NONE;
    } else {
        prefix->group[g].reason =
            (uint8_t)miss_reason(c, f->seq->ns, g, f->seq->keys[g] + (size_t)gap * KVC_KEY_BYTES,
                                 &prefix->group[g].detail);
    }
}

const char *core_seq_fault(const struct core_seq *seq)
{
    if (seq->ngroups != seq->ns->spec.ngroups)
        return "one list of keys per group of the namespace";
    uint64_t total = 0;
    for (uint32_t g = 0; g < seq->ngroups; g++) {
        uint32_t bt = seq->ns->spec.group[g].block_tokens;
        uint32_t whole = seq->tokens / bt, all = whole + (seq->tokens % bt != 0);
        if (seq->n[g] != whole && seq->n[g] != all)
            return "tokens and number of keys differ: a group takes one key per block_tokens, and "
                   "one for "
                   "a partly filled last block";
        total += seq->n[g];
    }
    return total > KVC_KEYS_MAX ? "too many keys in one request" : NULL;
}

static void find_nothing(const struct core_seq *seq, struct core_prefix *ret_prefix)
{
    *ret_prefix = (struct core_prefix){.tokens = 0};
    for (uint32_t g = 0; g < seq->ngroups; g++)
        ret_prefix->group[g].reason = seq->n[g] > 0 ? KVC_MISS_NEVER : KVC_MISS_NONE;
}

int find_absence(struct core *c, const struct core_seq *seq, const struct core_prefix *prefix,
                 const char **ret_why)
{
    for (uint32_t g = 0; g < seq->ngroups; g++) {
        const uint32_t gap = prefix->group[g].blocks;
        const struct block *b =
            gap < seq->n[g] ? index_get(c, seq->ns, g, seq->keys[g] + (size_t)gap * KVC_KEY_BYTES)
                            : NULL;
        if (!b || b->state != BLOCK_PRESENT || !copy_there(b, CORE_STORAGE) ||
            block_reachable(c, b))
            continue;
        *ret_why = "what is cached of it is on a storage path that is out of service "
                   "(kvcachectl stats paths)";
        return KVC_E_TIER;
    }
    *ret_why = "nothing of it is cached";
    return KVC_E_GONE;
}

void find_begin(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                struct find *f)
{
    *f = (struct find){.seq = seq,
                       .hbm = hbm_copy_serving(c, seq),
                       .where = where,
                       .from = from,
                       .limit = seq->tokens,
                       .coarsest = 1,
                       .linked = true};
    uint32_t at = 0;
    for (uint32_t g = 0; g < seq->ngroups && !seq->absent; g++) {
        f->at[g] = at;
        at += seq->n[g];
        f->coarsest = MAX(f->coarsest, seq->ns->spec.group[g].block_tokens);
    }
}

/* Full groups are looked up first: they limit the prefix for all other groups. */
bool find_look(struct core *c, struct find *f)
{
    const struct core_seq *seq = f->seq;
    for (; f->group < 2 * seq->ngroups; f->group++) {
        const uint32_t g = f->group % seq->ngroups;
        const bool full = seq->ns->spec.group[g].rule == KVC_RULE_FULL;
        if (full && f->group < seq->ngroups && !probe_full(c, f, g))
            return false;
        if (!full && f->group >= seq->ngroups && !probe_other(c, f, g))
            return false;
    }
    f->tokens = f->limit;
    return true;
}

/* ---- the prefix: these return true at their end, false when the slice is over ---- */

static bool decide_fit(struct core *c, struct find *f)
{
    while (!find_satisfies(c, f, f->tokens)) {
        if (find_paused(c, f))
            return false;
        f->tokens = (f->tokens - 1) / f->coarsest * f->coarsest;
    }
    return true;
}

static bool decide_ready(struct core *c, struct find *f)
{
    f->unready = false;
    for (; f->to < f->seq->ngroups && !f->unready; f->to++, f->next = 0) {
        uint32_t first, end;
        find_lease(f, f->to, f->from, &first, &end);
        for (; first + f->next < end && !f->unready; f->next++) {
            if (find_paused(c, f))
                return false;
            f->unready =
                !find_ready(c, f, &c->blocks[c->lookup.found[f->at[f->to] + first + f->next]]);
        }
    }
    f->to = f->next = 0;
    return true;
}

static bool decide_weigh(struct core *c, struct find *f, struct core_prefix *prefix)
{
    const uint32_t cached = f->tokens;
    uint32_t worth = cached;
    if (worth_is_asked(c, f) && !worth_weigh(c, f, &worth))
        return false;
    prefix->cached_tokens = cached;
    f->tokens = prefix->tokens = worth;
    f->cut = worth < cached;
    return true;
}

static bool decide_explain(struct core *c, struct find *f, struct core_prefix *prefix)
{
    for (; f->to < f->seq->ngroups; f->to++) {
        uint32_t gap;
        if (!first_gap(c, f, f->to, &gap))
            return false;
        explain_end(c, f, f->to, gap, prefix);
    }
    return true;
}

static bool prefix_decide(struct core *c, struct find *f, struct core_prefix *prefix)
{
    switch ((enum find_stage)f->stage) {
    case FIND_FIT:
        return decide_fit(c, f);
    case FIND_READY:
        return !(f->asks_ready || (core_stores(c) && worth_is_asked(c, f))) || decide_ready(c, f);
    case FIND_WEIGH:
        return decide_weigh(c, f, prefix);
    case FIND_READY_CUT:
        return !(f->asks_ready && f->unready && f->cut) || decide_ready(c, f);
    case FIND_COST:
        prefix->load_ns = 0;
        return !f->asks_cost || worth_load_now(c, f, &prefix->load_ns);
    case FIND_EXPLAIN:
        return decide_explain(c, f, prefix);
    }
    return true;
}

bool find_decide(struct core *c, struct find *f, struct core_prefix *ret_prefix)
{
    for (; f->stage <= FIND_EXPLAIN; f->stage++)
        if (!prefix_decide(c, f, ret_prefix))
            return false;
    return true;
}

void find_whole(struct core *c, struct find *f, struct core_prefix *ret_prefix)
{
    if (f->seq->absent) {
        find_nothing(f->seq, ret_prefix);
        return;
    }
    MUST(find_look(c, f));
    MUST(find_decide(c, f, ret_prefix));
}

void find_prefix(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                 struct find *f, struct core_prefix *ret_prefix)
{
    find_begin(c, seq, where, from, f);
    find_whole(c, f, ret_prefix);
}

void find_again(struct core *c, const struct find *was, enum find_where where, struct find *f,
                struct core_prefix *ret_prefix)
{
    uint32_t known[KVC_GROUPS_MAX];
    memcpy(known, was->probed, sizeof known);
    find_begin(c, was->seq, where, was->from, f);
    memcpy(f->known, known, sizeof known);
    f->is_recent = true;
    find_whole(c, f, ret_prefix);
}

void find_expect(struct core *c, struct find *f, uint32_t tokens, const struct run_list *blocks)
{
    struct find lease = *f;
    struct run_iter it = run_begin(c, blocks);
    lease.tokens = tokens;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_lease(&lease, g, f->from, &first, &end);
        for (uint32_t i = 0; i < first; i++)
            c->lookup.found[f->at[g] + i] = CORE_NONE;
        for (uint32_t i = first; i < end; i++) {
            const struct run_entry *e = run_next(c, &it);
            c->lookup.found[f->at[g] + i] = e ? e->block : CORE_NONE;
        }
        f->known[g] = MIN(end, f->seq->n[g]);
    }
}

/* ---- waiting ---- */

/* Looks at the blocks of a full group behind its first gap too, as far as they are being written.
 * Returns the tokens that the group would allow with these. */
static uint64_t reach_full(struct core *c, struct find *f, uint32_t g)
{
    const struct core_seq *seq = f->seq;
    const uint32_t bt = seq->ns->spec.group[g].block_tokens;
    /* Where all groups are full the next longer prefix is enough: a longer one waits for the same
     * block first. */
    const uint64_t far = ns_is_full(seq->ns) ? (uint64_t)f->tokens + 2 * f->coarsest : UINT64_MAX;
    uint32_t *found = &c->lookup.found[f->at[g]];
    uint32_t i = 0;
    for (; i < seq->n[g] && (uint64_t)i * bt < far; i++) {
        if (i >= f->probed[g]) {
            const uint8_t *key = seq->keys[g] + (size_t)i * KVC_KEY_BYTES;
            const struct block *b = index_get(c, seq->ns, g, key);
            c->work.done += WORK_LOOK;
            bool here = b && b->tokens == tokens_of_block(f, g, i) && is_usable(c, f, g, i, b);
            found[i] = here ? block_no(c, b) : CORE_NONE;
        }
        if (found[i] == CORE_NONE)
            break;
    }
    f->probed[g] = MAX(f->probed[g], MIN(i + 1, seq->n[g]));
    return (uint64_t)i * bt;
}

/* Computes runlen as if blocks that are being written were there; returns the tokens that full
 * groups would then allow. */
static uint32_t find_reach(struct core *c, struct find *f)
{
    uint64_t limit = f->seq->tokens;
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        if (f->seq->ns->spec.group[g].rule == KVC_RULE_FULL) {
            limit = MIN(limit, reach_full(c, f, g));
            continue;
        }
        uint32_t run = 0;
        for (uint32_t i = 0; i < f->probed[g]; i++) {
            run = c->lookup.found[f->at[g] + i] != CORE_NONE ? run + 1 : 0;
            c->lookup.runlen[f->at[g] + i] = run;
        }
    }
    return (uint32_t)limit;
}

/* Finds the first block that a prefix of `tokens` needs and that is not PRESENT. False: there is
 * none, or nobody is writing it. */
static bool first_pending(const struct core *c, const struct find *f, uint32_t tokens,
                          uint32_t *ret_group, uint32_t *ret_i)
{
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_needs(f, g, tokens, &first, &end);
        for (uint32_t i = first; i < end; i++) {
            const uint32_t no = c->lookup.found[f->at[g] + i];
            if (find_present(c, no))
                continue;
            *ret_group = g;
            *ret_i = i;
            return no != CORE_NONE;
        }
    }
    return false;
}

/* Considers the prefixes that would be cached if all blocks being written were, and that are longer
 * than the present one. Takes the shortest that has `enough`, else the longest, and finds a block
 * that it waits for. */
bool find_blocker(struct core *c, struct find *f, uint32_t enough, uint32_t *ret_group,
                  uint32_t *ret_i)
{
    uint32_t best = CORE_NONE, limit = find_reach(c, f);
    for (uint32_t tokens = limit; tokens > f->tokens;
         tokens = (tokens - 1) / f->coarsest * f->coarsest) {
        if (best != CORE_NONE && tokens < enough)
            break;
        if (find_satisfies(c, f, tokens))
            best = tokens;
    }
    return best != CORE_NONE && first_pending(c, f, best, ret_group, ret_i);
}

int core_lookup(struct core *c, const struct core_seq *seq, bool touch,
                struct core_prefix *ret_prefix, const char **ret_why)
{
    if ((*ret_why = core_seq_fault(seq)))
        return KVC_E_BAD_ARGUMENT;
    struct find f;
    find_prefix(c, seq, FIND_ANY, 0, &f, ret_prefix);
    MUST(worth_load_now(c, &f, &ret_prefix->load_ns));
    c->m.lookups++;
    if (touch) {
        tell_request(c, &f);
        find_touch(c, &f);
    }
    return 0;
}

void find_lease(const struct find *f, uint32_t g, uint32_t from, uint32_t *ret_first,
                uint32_t *ret_end)
{
    uint32_t first, end;
    find_needs(f, g, f->tokens, &first, &end);
    *ret_first = MIN(end, MAX(first, from / f->seq->ns->spec.group[g].block_tokens));
    *ret_end = end;
}

/* Counts a use of the blocks that the prefix needs, deepest first. */
void find_touch(struct core *c, const struct find *f)
{
    for (uint32_t g = 0; g < f->seq->ngroups; g++) {
        uint32_t first, end;
        find_needs(f, g, f->tokens, &first, &end);
        while (end > first)
            block_touch(c, &c->blocks[c->lookup.found[f->at[g] + --end]]);
    }
}

bool core_seq_is_long(const struct core *c, const struct core_seq *seq)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < seq->ngroups; g++)
        n += seq->n[g];
    return !seq->absent && n > MIN(FIND_SHORT, work_of_slice(c));
}
