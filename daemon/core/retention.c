/* SPDX-License-Identifier: Apache-2.0 */
/* What is wished of blocks, what is said of chains, and who asks for them: on its way to
 * policy/retain.h and the policy. */
#include "find.h"
#include "index.h"

/* Wishes that end in one step. */
#define WISH_STEP 1024u

/* ---- the wish of a block of a reservation ---- */

const char *wish_fault(const struct core_retention *r)
{
    if (r->n > KVC_RETAIN_MAX)
        return "retention: too many ranges";
    if (r->has_decode && r->decode.level > RETAIN_MAX)
        return "retention: priorities are 0 to 100";
    for (uint32_t i = 0; i < r->n; i++) {
        const struct core_range *x = &r->range[i];
        if (x->wish.level > RETAIN_MAX)
            return "retention: priorities are 0 to 100";
        if (x->end_token && x->end_token <= x->first_token)
            return "retention: a range ends before it begins";
    }
    return NULL;
}

bool wish_of(const struct core_reserve *in, uint32_t block_tokens, uint32_t i,
             struct core_wish *ret_wish)
{
    const struct core_retention *r = in->retention;
    if (!r)
        return false;
    if (in->decoded && r->has_decode) {
        *ret_wish = r->decode;
        return true;
    }
    const uint64_t first = in->first_token + (uint64_t)i * block_tokens;
    const uint32_t tokens = i == in->n - 1 && in->last_tokens ? in->last_tokens : block_tokens;
    for (uint32_t k = 0; k < r->n; k++) {
        const struct core_range *x = &r->range[k];
        if (x->first_token >= first + tokens || (x->end_token && x->end_token <= first))
            continue;
        *ret_wish = x->wish;
        return true;
    }
    return false;
}

/* ---- while a block is being written: its level, and how long ---- */

/* Of block.wish: one more than the level; a mark; the duration in units or, with the mark, in as
 * many times 256; 0: for ever. */
#define WISH_LEVEL_SHIFT 25u
#define WISH_LONG        (1u << 24)
#define WISH_TIME_MASK   (WISH_LONG - 1)

static uint32_t wish_pack(const struct core_wish *w)
{
    const uint64_t ms = w->duration_ms;
    uint64_t units = ms / RETAIN_UNIT_MS + (ms % RETAIN_UNIT_MS != 0);
    uint32_t mark = 0;
    if (units > WISH_TIME_MASK) {
        units = MIN(units / 256 + 1, WISH_TIME_MASK);
        mark = WISH_LONG;
    }
    return (w->level + 1) << WISH_LEVEL_SHIFT | mark | (uint32_t)units;
}

static struct core_wish wish_unpack(uint32_t packed)
{
    const uint64_t units = packed & WISH_TIME_MASK;
    return (struct core_wish){.level = (packed >> WISH_LEVEL_SHIFT) - 1,
                              .duration_ms =
                                  units * RETAIN_UNIT_MS * (packed & WISH_LONG ? 256 : 1)};
}

/* As of two wishes with an end; none without end is lost to one that is not above it. */
static bool wish_is_above(const struct core_wish *a, const struct core_wish *b)
{
    if (a->level != b->level)
        return a->level > b->level;
    return a->duration_ms == RETAIN_FOR_EVER ||
           (b->duration_ms != RETAIN_FOR_EVER && a->duration_ms > b->duration_ms);
}

/* ---- blocks ---- */

static uint64_t wish_end(const struct core *c, const struct core_wish *w)
{
    const uint64_t most = UINT64_MAX / 2;
    return w->duration_ms == RETAIN_FOR_EVER ? RETAIN_FOR_EVER
                                             : c->now_ms + MIN(w->duration_ms, most);
}

void wish_add(struct core *c, struct block *b, const struct core_wish *wish, bool set)
{
    if (b->state == BLOCK_PENDING) {
        const struct core_wish was = wish_unpack(b->wish);
        if (set || !b->wish || wish_is_above(wish, &was))
            b->wish = wish_pack(wish);
        return;
    }
    if (b->state == BLOCK_PRESENT)
        retain_wish(c->retain, block_no(c, b), wish->level, wish_end(c, wish), set, c->now_ms);
}

void wish_begin(struct core *c, struct block *b)
{
    const uint32_t packed = b->wish;
    b->disk = 0;
    if (!packed)
        return;
    const struct core_wish wish = wish_unpack(packed);
    retain_wish(c->retain, block_no(c, b), wish.level, wish_end(c, &wish), false, c->now_ms);
}

uint8_t wish_label(const struct core *c, const struct block *b)
{
    const uint32_t no = block_no(c, b);
    if (b->state == BLOCK_PENDING)
        return b->wish & (WISH_TIME_MASK | WISH_LONG) ? 0 : (uint8_t)(b->wish >> WISH_LEVEL_SHIFT);
    if (!retain_is_in(c->retain, no) || retain_base(c->retain, no) > RETAIN_MAX)
        return 0;
    return (uint8_t)(retain_base(c->retain, no) + 1);
}

bool wish_step(struct core *c)
{
    uint32_t ended;
    const bool more = retain_tick(c->retain, c->now_ms, WISH_STEP, &ended);
    c->m.wishes_ended += ended;
    return more;
}

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
            wish_add(c, &c->blocks[c->found[f.at[g] + --end]], wish, set);
    }
    return n;
}

/* ---- advice ---- */

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

/* Blocks of group g that are there and that no other chain shares, deepest first, into core->runlen
 * (which find_prefix() has done with). */
static uint32_t own_blocks(struct core *c, const struct find *f, uint32_t g)
{
    uint32_t first, end, n = 0;
    own_range(f, g, &first, &end);
    for (; end > first; n++) {
        const uint32_t no = c->found[f->at[g] + --end];
        if (is_shared(&c->blocks[no], n == 0))
            break;
        c->runlen[n] = no;
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
            c->cfg.policy->advise(c->policy, advice, within_ms, c->runlen, n, c->now_ms);
        all += n;
    }
    c->m.advice++;
    rules_hinted(c, advice);
    if (advice == POLICY_ADVICE_SOON)
        (void)core_prefetch(c, seq, UINT64_MAX);
    return (int)all;
}

/* ---- requests ---- */

/* Blocks that are told at once, at most: a policy looks at so many at no loss. */
#define TELL_PIECE  256u
#define TELL_HASHES 8u /* as much work as looking up one key */

/* Work of telling, which in one piece is part of what looking up counts for. True: the slice is
 * over, and it was not done. */
static bool tell_stops(struct core *c, bool whole, uint32_t work)
{
    if (whole)
        return false;
    if (slice_over(c))
        return true;
    c->work += work;
    return false;
}

/* Hashes of group g, and its leading blocks that are there. False: the slice is over. */
static bool tell_count(struct core *c, struct find *f, struct telling *t, bool whole)
{
    const struct core_seq *seq = f->seq;
    const uint32_t slot = (uint32_t)(seq->ns - c->ns), g = t->group;
    uint64_t *hash = &c->hash[f->at[g]];
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

/* Group by group. */
static bool tell(struct core *c, struct find *f, struct telling *t, bool whole)
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
        const struct policy_request request = {.hash = &c->hash[f->at[g]],
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
    return tell(c, f, t, false);
}

void tell_request(struct core *c, struct find *f)
{
    struct telling t = {0};
    MUST(tell(c, f, &t, true));
}
