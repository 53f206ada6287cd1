/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds whose block is evicted: the lowest level of retention, then the owner, before a policy
 * names the block.
 *
 * Lists are kept in the order of their levels, so a victim is looked for from the front. Wishes
 * that end are found by groups of blocks: each group knows a time before which nothing in it ends.
 * A tick reads one number per group, then the groups in which something ends.
 */
#include "retain.h"

#include <string.h>

#define LISTS  POLICY_LISTS_MAX
#define LEVELS (RETAIN_MAX + 1)
/* Lists beyond the one that each owner can always have. */
#define LISTS_MORE  (LISTS - RETAIN_OWNERS)
#define GROUP_SHIFT 8u
#define NO_LIST     UINT32_MAX

struct retain_list {
    uint32_t blocks;
    uint8_t owner, level;
    bool used;
};

struct retain_owner {
    bool used, ended;
    uint8_t above, depth;
    uint32_t blocks, lists;
    struct retain_quota quota;
    uint64_t held[RETAIN_TIERS];
    uint64_t most[RETAIN_TIERS]; /* what may be held: the limit, or what was above it */
};

struct retain {
    uint32_t blocks_max, groups;
    const struct policy_ops *ops;
    struct policy *policy;
    struct retain_owner owner[RETAIN_OWNERS];
    struct retain_list list[LISTS];
    uint8_t order[LISTS];              /* the lists that are in use, by level */
    uint32_t nlists, more;             /* in use; of them, those beyond the first of their owners */
    uint8_t at[RETAIN_OWNERS][LEVELS]; /* list of owner and level; 0: none, but for the first */
    uint32_t next;                     /* nothing ends before; 0: nothing ends */
    uint32_t *due;                     /* the same by group of blocks */
    /* By block: */
    uint32_t *until;               /* in units, 0: for ever */
    uint8_t *level, *base, *whose; /* base: one more than it, 0: none; whose: likewise */
    uint8_t *in;                   /* its list */
};

static uint32_t groups_of(uint32_t blocks_max)
{
    return (blocks_max >> GROUP_SHIFT) + 1;
}

size_t retain_mem_bytes(uint32_t blocks_max)
{
    return sizeof(struct retain) + (size_t)groups_of(blocks_max) * 4 + (size_t)blocks_max * 8;
}

static uint32_t list_new(struct retain *r, uint32_t owner, unsigned level);

struct retain *retain_init(void *mem, uint32_t blocks_max, const struct policy_ops *ops,
                           struct policy *policy)
{
    struct retain *r = mem;
    r->blocks_max = blocks_max;
    r->groups = groups_of(blocks_max);
    r->ops = ops;
    r->policy = policy;
    r->due = (uint32_t *)(r + 1);
    r->until = r->due + r->groups;
    r->level = (uint8_t *)(r->until + blocks_max);
    r->base = r->level + blocks_max;
    r->whose = r->base + blocks_max;
    r->in = r->whose + blocks_max;
    const struct retain_quota none = {.limit = {RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}};
    r->owner[0].used = true;
    r->owner[0].quota = none;
    (void)list_new(r, 0, RETAIN_DEFAULT);
    return r;
}

/* ---- lists ---- */

/* The first one is everybody's default level; it is never free. */
static uint32_t list_at(const struct retain *r, uint32_t owner, unsigned level)
{
    const uint32_t list = r->at[owner][level];
    return list || (owner == 0 && level == RETAIN_DEFAULT) ? list : NO_LIST;
}

static uint32_t list_new(struct retain *r, uint32_t owner, unsigned level)
{
    struct retain_owner *o = &r->owner[owner];
    uint32_t list = 0;
    while (r->list[list].used)
        list++;
    r->list[list] =
        (struct retain_list){.owner = (uint8_t)owner, .level = (uint8_t)level, .used = true};
    r->at[owner][level] = (uint8_t)list;
    uint32_t at = r->nlists++;
    for (; at > 0 && r->list[r->order[at - 1]].level > level; at--)
        r->order[at] = r->order[at - 1];
    r->order[at] = (uint8_t)list;
    r->more += o->lists++ > 0;
    return list;
}

static void list_end(struct retain *r, uint32_t list)
{
    struct retain_list *l = &r->list[list];
    l->used = false;
    r->at[l->owner][l->level] = 0;
    r->more -= --r->owner[l->owner].lists > 0;
    uint32_t at = 0;
    while (r->order[at] != list)
        at++;
    r->nlists--;
    memmove(&r->order[at], &r->order[at + 1], r->nlists - at);
}

static uint32_t list_nearest(const struct retain *r, uint32_t owner, unsigned level)
{
    for (unsigned by = 1;; by++) {
        uint32_t list = level + by < LEVELS ? list_at(r, owner, level + by) : NO_LIST;
        if (list == NO_LIST && by <= level)
            list = list_at(r, owner, level - by);
        if (list != NO_LIST)
            return list;
    }
}

static uint32_t list_for(struct retain *r, uint32_t owner, unsigned level)
{
    const uint32_t list = list_at(r, owner, level);
    if (list != NO_LIST)
        return list;
    if (r->owner[owner].lists == 0 || r->more < LISTS_MORE)
        return list_new(r, owner, level);
    return list_nearest(r, owner, level);
}

static void list_join(struct retain *r, uint32_t block, uint32_t list)
{
    r->in[block] = (uint8_t)list;
    r->list[list].blocks++;
}

static void list_part(struct retain *r, uint32_t block)
{
    const uint32_t list = r->in[block];
    if (--r->list[list].blocks == 0 && list != 0)
        list_end(r, list);
}

/* Its level or owner is another one now. */
static void move(struct retain *r, uint32_t block, uint64_t now_ms)
{
    const uint32_t list = list_for(r, retain_owner(r, block), r->level[block]);
    if (list == r->in[block])
        return;
    /* Joined first: a list that is left and comes again at once would be asked for two meanings. */
    r->list[list].blocks++;
    list_part(r, block);
    r->in[block] = (uint8_t)list;
    r->ops->assign(r->policy, block, (uint8_t)list, now_ms);
}

/* ---- owners ---- */

bool retain_owner_is(const struct retain *r, uint32_t owner)
{
    return owner < RETAIN_OWNERS && r->owner[owner].used && !r->owner[owner].ended;
}

bool retain_is_within(const struct retain *r, uint32_t owner, uint32_t above)
{
    while (owner != above && owner != 0)
        owner = r->owner[owner].above;
    return owner == above;
}

uint32_t retain_owner_above(const struct retain *r, uint32_t owner)
{
    return r->owner[owner].above;
}

uint32_t retain_owner_add(struct retain *r, uint32_t above)
{
    uint32_t no = 1;
    while (no < RETAIN_OWNERS && r->owner[no].used)
        no++;
    if (no == RETAIN_OWNERS || r->owner[above].depth + 1 >= (int)RETAIN_TREE)
        return RETAIN_NO_OWNER;
    const struct retain_quota none = {.limit = {RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}};
    r->owner[no] = (struct retain_owner){
        .used = true, .above = (uint8_t)above, .depth = (uint8_t)(r->owner[above].depth + 1)};
    retain_owner_set(r, no, &none);
    return no;
}

void retain_owner_set(struct retain *r, uint32_t owner, const struct retain_quota *quota)
{
    struct retain_owner *o = &r->owner[owner];
    o->quota = *quota;
    for (unsigned t = 0; t < RETAIN_TIERS; t++)
        o->most[t] = o->held[t] > quota->limit[t] ? o->held[t] : quota->limit[t];
}

/* Depths of all that is below, deepest last: at most RETAIN_TREE rounds. */
static void deepen(struct retain *r)
{
    for (unsigned round = 0; round < RETAIN_TREE; round++)
        for (uint32_t i = 1; i < RETAIN_OWNERS; i++)
            if (r->owner[i].used)
                r->owner[i].depth = (uint8_t)(r->owner[r->owner[i].above].depth + 1);
}

bool retain_owner_place(struct retain *r, uint32_t owner, uint32_t above)
{
    struct retain_owner *o = &r->owner[owner];
    uint32_t deepest = 0;
    for (uint32_t i = 1; i < RETAIN_OWNERS; i++)
        if (r->owner[i].used && retain_is_within(r, i, owner) && r->owner[i].depth > deepest)
            deepest = r->owner[i].depth;
    if (r->owner[above].depth + 1u + (deepest - o->depth) >= RETAIN_TREE ||
        retain_is_within(r, above, owner))
        return false;
    const uint32_t before = o->above;
    for (unsigned t = 0; t < RETAIN_TIERS; t++) {
        retain_count(r, above, t, (int64_t)o->held[t]); /* first: what both have does not shrink */
        retain_count(r, before, t, -(int64_t)o->held[t]);
    }
    o->above = (uint8_t)above;
    deepen(r);
    return true;
}

static void owner_forget(struct retain *r, uint32_t owner)
{
    struct retain_owner *o = &r->owner[owner];
    if (o->ended && o->blocks == 0)
        o->used = false;
}

void retain_owner_end(struct retain *r, uint32_t owner)
{
    const struct retain_quota none = {.limit = {RETAIN_NO_LIMIT, RETAIN_NO_LIMIT}};
    retain_owner_set(r, owner, &none);
    r->owner[owner].ended = true;
    owner_forget(r, owner);
}

const struct retain_quota *retain_quota_of(const struct retain *r, uint32_t owner)
{
    return &r->owner[owner].quota;
}

void retain_count(struct retain *r, uint32_t owner, unsigned tier, int64_t bytes)
{
    for (;; owner = r->owner[owner].above) {
        struct retain_owner *o = &r->owner[owner];
        o->held[tier] += (uint64_t)bytes;
        const uint64_t limit = o->quota.limit[tier];
        if (bytes < 0)
            o->most[tier] = o->held[tier] > limit ? o->held[tier] : limit;
        if (owner == 0)
            return;
    }
}

uint64_t retain_held(const struct retain *r, uint32_t owner, unsigned tier)
{
    return r->owner[owner].held[tier];
}

uint32_t retain_over(const struct retain *r, uint32_t owner, unsigned tier, uint64_t bytes)
{
    for (; owner != 0; owner = r->owner[owner].above) {
        const struct retain_owner *o = &r->owner[owner];
        const uint64_t limit = o->quota.limit[tier], held = o->held[tier];
        if (held > limit || bytes > limit - held)
            return owner;
    }
    return RETAIN_NO_OWNER;
}

bool retain_protects(const struct retain *r, uint32_t owner, uint32_t taker, unsigned tier,
                     uint64_t bytes)
{
    for (; owner != 0; owner = r->owner[owner].above) {
        const struct retain_owner *o = &r->owner[owner];
        const uint64_t share = o->quota.share[tier];
        if (share == 0 || (o->held[tier] > share && o->held[tier] - share >= bytes))
            continue;
        if (!retain_is_within(r, taker, owner))
            return true;
    }
    return false;
}

bool retain_keeps(const struct retain *r, uint32_t owner, unsigned tier, uint64_t bytes,
                  uint32_t percent)
{
    for (; owner != 0; owner = r->owner[owner].above) {
        const struct retain_owner *o = &r->owner[owner];
        const uint64_t all = o->quota.share[tier],
                       share = percent == 100 ? all : all / 100 * percent;
        if (share > 0 && (o->held[tier] <= share || o->held[tier] - share < bytes))
            return true;
    }
    return false;
}

/* ---- blocks ---- */

bool retain_is_in(const struct retain *r, uint32_t block)
{
    return r->whose[block] != 0;
}

unsigned retain_level(const struct retain *r, uint32_t block)
{
    return retain_is_in(r, block) ? r->level[block] : RETAIN_DEFAULT;
}

uint32_t retain_owner(const struct retain *r, uint32_t block)
{
    return r->whose[block] - 1u;
}

uint64_t retain_until(const struct retain *r, uint32_t block)
{
    return (uint64_t)r->until[block] * RETAIN_UNIT_MS;
}

unsigned retain_base(const struct retain *r, uint32_t block)
{
    return r->base[block] ? r->base[block] - 1u : RETAIN_MAX + 1;
}

uint8_t retain_enter(struct retain *r, uint32_t block, uint32_t owner)
{
    r->whose[block] = (uint8_t)(owner + 1);
    r->level[block] = RETAIN_DEFAULT;
    r->base[block] = 0;
    r->until[block] = 0;
    r->owner[owner].blocks++;
    list_join(r, block, list_for(r, owner, RETAIN_DEFAULT));
    return r->in[block];
}

void retain_leave(struct retain *r, uint32_t block)
{
    const uint32_t owner = retain_owner(r, block);
    list_part(r, block);
    r->whose[block] = 0;
    r->until[block] = 0;
    r->owner[owner].blocks--;
    owner_forget(r, owner);
}

void retain_give(struct retain *r, uint32_t block, uint32_t owner, uint64_t now_ms)
{
    const uint32_t before = retain_owner(r, block);
    if (before == owner)
        return;
    r->whose[block] = (uint8_t)(owner + 1);
    r->owner[owner].blocks++;
    move(r, block, now_ms);
    r->owner[before].blocks--;
    owner_forget(r, before);
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static void set_until(struct retain *r, uint32_t block, uint32_t until)
{
    uint32_t *due = &r->due[block >> GROUP_SHIFT];
    r->until[block] = until;
    *due = least(*due, until);
    r->next = least(r->next, until);
}

/* Time stops with 32 bits, after 8.7 years: wishes that are to end have ended then. */
static uint32_t whole_units(uint64_t ms)
{
    const uint64_t units = ms / RETAIN_UNIT_MS;
    return units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

/* An end, rounded up. */
static uint32_t units_of(uint64_t until_ms)
{
    const uint32_t units = whole_units(until_ms);
    return units < UINT32_MAX && until_ms % RETAIN_UNIT_MS != 0 ? units + 1 : units;
}

static unsigned base_level(const struct retain *r, uint32_t block)
{
    return r->base[block] ? r->base[block] - 1u : RETAIN_DEFAULT;
}

void retain_wish(struct retain *r, uint32_t block, unsigned level, uint64_t until_ms, bool set,
                 uint64_t now_ms)
{
    const uint32_t until = units_of(until_ms), now = whole_units(now_ms);
    if (set)
        r->base[block] = 0;
    uint32_t end = set || r->until[block] <= now ? 0 : r->until[block];
    unsigned timed = r->level[block];
    if (until == 0 && !(set && level == RETAIN_DEFAULT)) {
        r->base[block] = level + 1 > r->base[block] ? (uint8_t)(level + 1) : r->base[block];
    } else if (until > now && (end == 0 || level > timed)) {
        timed = level;
        end = until;
    } else if (until > now && level == timed && until > end) {
        end = until;
    }
    if (r->base[block] && timed < r->base[block])
        end = 0;
    r->level[block] = (uint8_t)(end ? timed : base_level(r, block));
    set_until(r, block, end);
    move(r, block, now_ms);
}

/* Of one group; false: `left` came to 0 before its end. */
static bool end_group(struct retain *r, uint32_t group, uint32_t now, uint64_t now_ms,
                      uint32_t *left)
{
    const uint32_t first = group << GROUP_SHIFT;
    const uint32_t room = r->blocks_max - first, n = 1u << GROUP_SHIFT;
    uint32_t due = 0;
    for (uint32_t b = first; b < first + (room < n ? room : n); b++) {
        if (r->until[b] == 0 || r->until[b] > now) {
            due = least(due, r->until[b]);
            continue;
        }
        if (*left == 0)
            return false;
        --*left;
        r->until[b] = 0;
        r->level[b] = (uint8_t)base_level(r, b);
        move(r, b, now_ms);
    }
    r->due[group] = due;
    return true;
}

bool retain_tick(struct retain *r, uint64_t now_ms, uint32_t max, uint32_t *ret_ended)
{
    const uint32_t now = whole_units(now_ms);
    *ret_ended = 0;
    if (r->next == 0 || r->next > now)
        return false;
    uint32_t next = 0, left = max, looks = max / 16 + 1;
    for (uint32_t g = 0; g < r->groups; g++) {
        if (r->due[g] != 0 && r->due[g] <= now &&
            (looks-- == 0 || !end_group(r, g, now, now_ms, &left))) {
            *ret_ended = max - left;
            return true;
        }
        next = least(next, r->due[g]);
    }
    r->next = next;
    *ret_ended = max - left;
    return false;
}

/* Those of `owner` and above it, below `above`, that hold less than is guaranteed to them in tier
 * 0: the highest first. */
static unsigned lacking(const struct retain *r, uint32_t owner, uint32_t above,
                        uint32_t ret_owners[RETAIN_TREE])
{
    uint32_t path[RETAIN_TREE];
    unsigned depth = 0, n = 0;
    for (; owner != above && owner != 0; owner = r->owner[owner].above)
        path[depth++] = owner;
    while (depth-- > 0) {
        const struct retain_owner *o = &r->owner[path[depth]];
        if (o->held[0] < o->quota.share[0])
            ret_owners[n++] = path[depth];
    }
    return n;
}

bool retain_lacks(const struct retain *r, uint32_t owner)
{
    uint32_t lack[RETAIN_TREE];
    return lacking(r, owner, 0, lack) > 0;
}

/* How many of them it is within: what is outside goes first. */
static unsigned within_of(const struct retain *r, uint32_t owner, const uint32_t *owners,
                          unsigned n)
{
    unsigned i = 0;
    while (i < n && retain_is_within(r, owner, owners[i]))
        i++;
    return i;
}

uint32_t retain_victim(struct retain *r, uint32_t owner, uint32_t within, uint64_t bytes,
                       uint64_t now_ms, policy_can_evict_fn *can_evict, void *ctx)
{
    uint32_t lack[RETAIN_TREE], best = POLICY_NO_BLOCK;
    const unsigned n = lacking(r, owner, within, lack);
    float best_worth = 0;
    unsigned level = 0, inside = 0;
    for (uint32_t i = 0; i < r->nlists; i++) {
        const uint32_t no = r->order[i];
        const struct retain_list *l = &r->list[no];
        if (best != POLICY_NO_BLOCK && inside == 0 && l->level != level)
            return best;
        if (l->blocks == 0 || (within && !retain_is_within(r, l->owner, within)) ||
            retain_protects(r, l->owner, owner, 0, bytes))
            continue;
        const unsigned in = within_of(r, l->owner, lack, n);
        if (best != POLICY_NO_BLOCK && (in > inside || (in == inside && l->level != level)))
            continue;
        const uint32_t block = r->ops->victim(r->policy, (uint8_t)no, now_ms, can_evict, ctx);
        if (block == POLICY_NO_BLOCK)
            continue;
        const float worth = r->ops->rank(r->policy, block, now_ms);
        if (best == POLICY_NO_BLOCK || in < inside || worth < best_worth) {
            best = block;
            best_worth = worth;
            level = l->level;
            inside = in;
        }
    }
    return best;
}

bool retain_admits(struct retain *r, uint32_t owner, const struct policy_hint *hint, unsigned level,
                   uint32_t victim, uint64_t now_ms)
{
    uint32_t lack[RETAIN_TREE];
    const unsigned n = lacking(r, owner, 0, lack);
    if (!r->ops->admits || within_of(r, retain_owner(r, victim), lack, n) < n)
        return true;
    if (level != r->level[victim])
        return level > r->level[victim] || level >= RETAIN_DEFAULT;
    return r->ops->admits(r->policy, hint, victim, now_ms);
}

void retain_levels(const struct retain *r, uint64_t ret_blocks[RETAIN_MAX + 1])
{
    memset(ret_blocks, 0, LEVELS * sizeof *ret_blocks);
    for (uint32_t i = 0; i < r->nlists; i++) {
        const struct retain_list *l = &r->list[r->order[i]];
        ret_blocks[l->level] += l->blocks;
    }
}

/* ---- for tests ---- */

static bool owners_are_sound(const struct retain *r, const uint32_t *blocks)
{
    uint32_t lists[RETAIN_OWNERS] = {0}, more = 0;
    for (uint32_t i = 0; i < r->nlists; i++)
        more += lists[r->list[r->order[i]].owner]++ > 0;
    for (uint32_t i = 0; i < RETAIN_OWNERS; i++) {
        const struct retain_owner *o = &r->owner[i];
        if (!o->used)
            continue;
        if (o->blocks != blocks[i] || o->lists != lists[i] || (o->ended && o->blocks == 0))
            return false;
        for (unsigned t = 0; t < RETAIN_TIERS; t++)
            if (i != 0 && o->held[t] > o->most[t])
                return false;
    }
    return more == r->more && more <= LISTS_MORE;
}

bool retain_is_sound(const struct retain *r)
{
    uint32_t in_list[LISTS] = {0}, blocks[RETAIN_OWNERS] = {0};
    for (uint32_t b = 0; b < r->blocks_max; b++) {
        if (!retain_is_in(r, b))
            continue;
        const uint32_t owner = retain_owner(r, b), due = r->due[b >> GROUP_SHIFT];
        const bool timed = r->until[b] != 0;
        if (r->list[r->in[b]].owner != owner || !r->owner[owner].used)
            return false;
        if (timed ? r->next > r->until[b] || due > r->until[b] || !r->next || !due
                  : r->level[b] != base_level(r, b))
            return false;
        in_list[r->in[b]]++;
        blocks[owner]++;
    }
    for (uint32_t i = 0; i < r->nlists; i++) {
        const uint32_t no = r->order[i];
        const struct retain_list *l = &r->list[no];
        const bool sorted = i == 0 || r->list[r->order[i - 1]].level <= l->level;
        if (l->blocks != in_list[no] || (l->blocks == 0 && no != 0) || !sorted ||
            list_at(r, l->owner, l->level) != no)
            return false;
    }
    return owners_are_sound(r, blocks);
}
