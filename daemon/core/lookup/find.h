/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lookup in progress: which prefix of a sequence is cached, and whether it is worth loading.
 * Leases, loads, pins and names work on a struct find. Valid until the next one: its records are in
 * core->found. Shared inside daemon/core only.
 */
#ifndef KVC_CORE_FIND_H
#define KVC_CORE_FIND_H

#include "hbm_copies.h"

/* HOST: only blocks that are in memory, and checked, count as found; also blocks that end at `from`
 * or before, which the asker has, and blocks in slots of the asker's device. */
enum find_where { FIND_ANY, FIND_HOST };

/* The blocks first .. end - 1 of a group, and what loading them takes. */
struct span {
    uint32_t first, end;
    struct worth_load load;
};

/* Load or recompute: how far the weighing has come. */
struct weighing {
    bool begun, ended;
    uint32_t tokens; /* the prefix that is being weighed */
    struct worth worth;
    struct worth_speed speed;
    struct span span[KVC_GROUPS_MAX];
};

/* The stages of find_decide(), in their order. */
enum find_stage {
    FIND_FIT,   /* find the prefix that satisfies every group */
    FIND_READY, /* is every block that it needs ready as it is? */
    FIND_WEIGH,
    FIND_READY_CUT, /* FIND_READY for the part that is worth loading */
    FIND_COST,      /* how long does loading it take? */
    FIND_EXPLAIN
};

struct find {
    const struct core_seq *seq;
    const struct hbm_device *hbm; /* the entry of seq->on, if its slots can be read */
    enum find_where where;
    uint32_t from;
    uint32_t at[KVC_GROUPS_MAX];     /* where group g begins in core->found */
    uint32_t probed[KVC_GROUPS_MAX]; /* blocks looked at */
    uint32_t known[KVC_GROUPS_MAX];  /* leading blocks whose record core->found has from an earlier
                                      * lookup */
    uint32_t hashed[KVC_GROUPS_MAX]; /* keys whose hash is in core->hash, at the same place */
    uint32_t lead[KVC_GROUPS_MAX];   /* leading blocks present */
    uint32_t limit;                  /* in tokens: by the full groups alone */
    uint32_t coarsest;               /* block_tokens, the largest of all groups */
    uint32_t tokens;                 /* the result */
    bool cut;                        /* more is cached, and not worth loading */
    bool is_recent;                  /* `known` is of this instant: a block absent then is absent
                                      * now */
    bool linked;                     /* each found block of a full group builds on the one before */
    /* For a lookup in slices: the group that it has reached, full groups first. Blocks that it
     * found are held, as bits of `held` say. */
    uint32_t group, holds;
    uint64_t *held; /* NULL: the lookup is done in one piece */
    bool refused;   /* a block could not be held */
    uint64_t left;  /* of unevictable_take(), within a slice */
    /* State of find_decide(). */
    bool asks_ready, asks_cost; /* `unready` and load_ns are asked for */
    bool unready;
    uint8_t stage;     /* enum find_stage */
    uint32_t steps;    /* steps that are no look-up: FIND_STEPS of them count as one */
    uint32_t to, next; /* in READY and EXPLAIN: group, and block of it */
    struct weighing weighing;
};

/* Counts a step over a block that was found. True: the slice is over. */
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
    uint32_t group, hits; /* leading blocks of that group that are cached, in whatever tier */
    bool counted;         /* `hits` is complete */
    struct policy_part part;
};
/* Continues telling. True: the policy has been told all; false: the slice is over. */
bool tell_step(struct core *c, struct find *f, struct telling *t);

static inline bool ns_is_full(const struct core_ns *ns)
{
    for (uint32_t g = 0; g < ns->spec.ngroups; g++)
        if (ns->spec.group[g].rule != KVC_RULE_FULL)
            return false;
    return true;
}

/* Whether a lease on what f found may have b as it is: in host memory, or in a slot of the
 * device. */
static inline bool find_ready(struct core *c, const struct find *f, const struct block *b)
{
    return block_ready(b) || (f->hbm && hbm_copy_serves(c, f->hbm, f->seq, b));
}

/* Looks a sequence up, and decides, in one piece. */
void find_prefix(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                 struct find *ret_find, struct core_prefix *ret_prefix);
/* find_prefix() of a sequence that `was` looked up, when no block was announced since: its blocks
 * are checked again, and their keys are not looked up. `was` may be ret_find. */
void find_again(struct core *c, const struct find *was, enum find_where where,
                struct find *ret_find, struct core_prefix *ret_prefix);
/* find_prefix() in pieces: find_begin(), then find_look() until it returns true, then find_decide()
 * until it returns true. */
void find_begin(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                struct find *ret_find);
bool find_look(struct core *c, struct find *f);
/* All the rest of a lookup that has begun and is done in one piece. */
void find_whole(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* For a lookup that has begun: it may find these blocks, which are looked at before the index is.
 * They are in the order of a lease on its first `tokens` beyond f->from. */
void find_expect(struct core *c, struct find *f, uint32_t tokens, const struct run_list *blocks);
bool find_decide(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* For a lookup in slices that begins with blocks instead of keys: b is block i of group g, and is
 * held now. False: b was removed or changed, or cannot be held. */
KVC_WARN_UNUSED bool find_put(struct core *c, struct find *f, uint32_t g, uint32_t i,
                              struct block *b);
/* Why a prefix of no tokens has nothing that could be pinned or named: KVC_E_GONE, or KVC_E_TIER
 * where its copies are out of service. For FIND_ANY. */
KVC_WARN_UNUSED int find_absence(struct core *c, const struct core_seq *seq,
                                 const struct core_prefix *prefix, const char **ret_why);
void find_needs(const struct find *f, uint32_t g, uint32_t tokens, uint32_t *ret_first,
                uint32_t *ret_end);
/* Whether a prefix of so many tokens, at most those found, satisfies every group. */
bool find_satisfies(const struct core *c, const struct find *f, uint32_t tokens);
/* The block that a wait for `enough` tokens waits for, as a group and its number there: it was
 * being written when it was found. False: the prefix cannot grow by waiting. Overwrites the run
 * lengths of find_prefix(): only find_touch() may follow. */
bool find_blocker(struct core *c, struct find *f, uint32_t enough, uint32_t *ret_group,
                  uint32_t *ret_i);
void find_touch(struct core *c, const struct find *f);
/* The range of blocks of group g that a lease of f's prefix beyond `from` tokens holds. */
void find_lease(const struct find *f, uint32_t g, uint32_t from, uint32_t *ret_first,
                uint32_t *ret_end);

/* ---- find.c ---- */

/* Why a key is missing, by the ghosts: KVC_MISS_NEVER when there is none. */
enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key);
/* Why `key` is missing, by ghosts and sibling namespaces. */
enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail);

/* ---- tell.c ---- */

/* Tells the policy that a request asks for what f found. */
void tell_request(struct core *c, struct find *f);

/* ---- worth.c ---- */

/* Whether it is to be weighed how many of the found tokens are worth loading: the sequence asks for
 * it, and a cost is stated. Else all are worth it. */
bool worth_is_asked(const struct core *c, const struct find *f);
/* Continues weighing. True: *ret_tokens is known; false: the slice is over. */
bool worth_weigh(struct core *c, struct find *f, uint32_t *ret_tokens);
/* As worth_weigh(), when nothing is weighed: how long loading the blocks that are not in memory
 * takes now, in ns. */
bool worth_load_now(struct core *c, struct find *f, uint64_t *ret_ns);
/* After a cut: reads a block now and then, to see whether the disk has become faster. */
void worth_probe(struct core *c, const struct find *f);
/* A client has stated what prefill costs: if nothing is known of the disk, reads a block, so that
 * the first request can be weighed. */
void worth_probe_first(struct core *c);

#endif
