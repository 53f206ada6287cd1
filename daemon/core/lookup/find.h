/* SPDX-License-Identifier: Apache-2.0 */
/* One lookup in progress; shared inside daemon/core only. Valid until the next one: its records are
 * in core->found. */
#ifndef KVC_CORE_FIND_H
#define KVC_CORE_FIND_H

#include "near_core.h"

/* HOST: what is not in memory, and checked, is not there; but for blocks that end at `from` or
 * before, which the asker has, and for what is in slots of the asker's device. */
enum find_where { FIND_ANY, FIND_HOST };

/* What the blocks first .. end - 1 of a group take. */
struct span {
    uint32_t first, end;
    struct worth_load load;
};

/* Load or recompute, as far as it has been weighed. */
struct weighing {
    bool begun, ended;
    uint32_t tokens; /* the prefix that is being weighed */
    struct worth worth;
    struct worth_speed speed;
    struct span span[KVC_GROUPS_MAX];
};

/* What find_decide() does, one after the other. */
enum find_stage {
    FIND_FIT,   /* which prefix satisfies every group */
    FIND_READY, /* whether all that it needs is ready as it is */
    FIND_WEIGH,
    FIND_READY_CUT, /* the same of what is worth loading */
    FIND_COST,      /* what loading it takes */
    FIND_EXPLAIN
};

struct find {
    const struct core_seq *seq;
    const struct near_device *near; /* of seq->on, if its slots can be read */
    enum find_where where;
    uint32_t from;
    uint32_t at[KVC_GROUPS_MAX];     /* of group g in core->found */
    uint32_t probed[KVC_GROUPS_MAX]; /* blocks looked at */
    uint32_t known[KVC_GROUPS_MAX];  /* blocks of which core->found has what was found before */
    uint32_t hashed[KVC_GROUPS_MAX]; /* keys whose hash is in core->hash, at the same place */
    uint32_t lead[KVC_GROUPS_MAX];   /* leading blocks present */
    uint32_t limit;                  /* tokens, by the full groups alone */
    uint32_t coarsest;               /* block_tokens, the largest of all groups */
    uint32_t tokens;                 /* the result */
    bool cut;                        /* more is there, and not worth loading */
    bool is_recent;                  /* `known` is of this instant: what was absent is absent */
    bool linked; /* each block of a full group that is there builds on the one before */
    /* Of one that goes on in slices: where it is, by groups, those that are full first; what is
     * there is held, by bits of `held`. */
    uint32_t group, holds;
    uint64_t *held; /* NULL: it is done in one piece */
    bool refused;   /* one could not be held */
    uint64_t left;  /* of unevictable_take(), within a slice */
    /* Of find_decide(). */
    bool asks_ready, asks_cost; /* `unready` and load_ns are asked for */
    bool unready;
    uint8_t stage;     /* enum find_stage */
    uint32_t steps;    /* what is no look-up counts as one, so many times */
    uint32_t to, next; /* in READY and EXPLAIN: group, and block of it */
    struct weighing weighing;
};

/* A step over a block that has been found. True: the slice is over. */
#define FIND_STEPS 8u /* as much work as looking up one key */
static inline bool find_paused(struct core *c, struct find *f)
{
    if (f->held && slice_over(c))
        return true;
    c->work += f->steps++ % FIND_STEPS == 0 ? WORK_LOOK : 0;
    return false;
}

/* How far the policy has been told of a request, by groups. */
struct telling {
    uint32_t group, hits; /* of that group, leading blocks that are there, in whatever tier */
    bool counted;         /* those are all */
    struct policy_part part;
};
/* Goes on with it until it is through, which is true, or the slice is over. */
bool tell_step(struct core *c, struct find *f, struct telling *t);

static inline bool ns_is_full(const struct core_ns *ns)
{
    for (uint32_t g = 0; g < ns->spec.ngroups; g++)
        if (ns->spec.group[g].rule != KVC_RULE_FULL)
            return false;
    return true;
}

/* A lease on what f found may have b as it is: in host memory, or in a slot of the device. */
static inline bool find_ready(struct core *c, const struct find *f, const struct block *b)
{
    return block_ready(b) || (f->near && near_serves(c, f->near, f->seq, b));
}

/* NULL, or what is wrong with the sequence. */
void find_prefix(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                 struct find *ret_find, struct core_prefix *ret_prefix);
/* The same as find_prefix() of a sequence that `was` was, before which no block came to be: its
 * blocks are looked at again, and their keys are not looked up. `was` may be ret_find. */
void find_again(struct core *c, const struct find *was, enum find_where where,
                struct find *ret_find, struct core_prefix *ret_prefix);
/* The same in pieces: begun, then looked for until true, then decided until true. */
void find_begin(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                struct find *ret_find);
bool find_look(struct core *c, struct find *f);
/* Of one that has begun and is done in one piece: all the rest of it. */
void find_whole(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* Of one that has begun: what it looks for may be these blocks, which are looked at before the
 * index is. In the order of a lease on its first `tokens` beyond f->from. */
void find_expect(struct core *c, struct find *f, uint32_t tokens, const struct run_list *blocks);
bool find_decide(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* Of one in slices that begins with blocks instead of keys: b is block i of group g, and is held.
 * False: it is not there as it was, or cannot be held. */
KVC_WARN_UNUSED bool find_put(struct core *c, struct find *f, uint32_t g, uint32_t i,
                              struct block *b);
void find_nothing(const struct core_seq *seq, struct core_prefix *ret_prefix);
/* Why a prefix of no tokens holds nothing that could be kept: KVC_E_GONE, or KVC_E_TIER where its
 * copies are out of service. FIND_ANY. */
KVC_WARN_UNUSED int find_absence(struct core *c, const struct core_seq *seq,
                                 const struct core_prefix *prefix, const char **ret_why);
void find_needs(const struct find *f, uint32_t g, uint32_t tokens, uint32_t *ret_first,
                uint32_t *ret_end);
/* Whether a prefix of so many tokens, at most those found, satisfies every group. */
bool find_satisfies(const struct core *c, const struct find *f, uint32_t tokens);
/* The block whose arrival or end a wait for `enough` tokens waits for, as a group and its number
 * there: it was being written when it was found. False: the prefix cannot grow by waiting. Takes
 * find_prefix()'s run lengths: find_touch() may follow, no other. */
bool find_blocker(struct core *c, struct find *f, uint32_t enough, uint32_t *ret_group,
                  uint32_t *ret_i);
void find_touch(struct core *c, const struct find *f);
/* The first and end of what a lease of f's prefix beyond `from` tokens takes of group g. */
void find_lease(const struct find *f, uint32_t g, uint32_t from, uint32_t *ret_first,
                uint32_t *ret_end);

/* ---- find.c ---- */

/* What is remembered of a key that is not there: KVC_MISS_NEVER when nothing is. */
enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key);
/* Why `key` is not there; looks into sibling namespaces too. */
enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail);

/* ---- tell.c ---- */

/* The policy hears that somebody asks for what f found. */
void tell_request(struct core *c, struct find *f);

/* ---- worth.c ---- */

/* Whether how many of the tokens found are worth loading is to be weighed: the sequence
 * asks for it, and its namespace states a cost. Else all are. */
bool worth_is_asked(const struct core *c, const struct find *f);
/* Goes on with it until that is known, which is true, or the slice is over; *ret_tokens. */
bool worth_weigh(struct core *c, struct find *f, uint32_t *ret_tokens);
/* The same of what loading what is not in memory takes now, in ns, when nothing is weighed. */
bool worth_load_now(struct core *c, struct find *f, uint64_t *ret_ns);
/* After a cut: sees now and then whether the disk has become faster. */
void worth_probe(struct core *c, const struct find *f);
/* Somebody has stated what prefill costs: where nothing is known of the disk, a block is read, so
 * that the first request can be weighed. */
void worth_probe_first(struct core *c);

#endif
