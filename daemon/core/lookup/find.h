/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One lookup in progress: which prefix of a sequence is cached, and whether it is worth loading.
 * Leases, loads, pins and names work on a struct find. It is valid until the next lookup begins,
 * because the records that it found are in core->lookup.found. Shared inside daemon/core only.
 */
#ifndef KVC_CORE_FIND_H
#define KVC_CORE_FIND_H

#include "hbm_copies.h"

/* Which stored blocks count as found. ANY: those that can be reached in any tier. HOST: only those
 * that are in memory and checked, or in slots of the asker's device; and in any tier those that end
 * at find.from or before, because the asker has them. */
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
    FIND_FIT,       /* find the prefix that satisfies every group */
    FIND_READY,     /* look whether every block that the prefix needs is ready as it is */
    FIND_WEIGH,     /* find the part of it that is worth loading */
    FIND_READY_CUT, /* FIND_READY for that part */
    FIND_COST,      /* estimate how long loading it takes */
    FIND_EXPLAIN    /* find the reason why the prefix ends, for each group */
};

struct find {
    const struct core_seq *seq;
    const struct hbm_device *hbm; /* core's entry of the device seq->on; NULL: its slots cannot be
                                   * read, or there is none */
    enum find_where where;
    uint32_t from;                   /* tokens that the asker has already */
    uint32_t at[KVC_GROUPS_MAX];     /* where group g begins in core->lookup.found */
    uint32_t probed[KVC_GROUPS_MAX]; /* by group: number of leading blocks that were looked up */
    uint32_t known[KVC_GROUPS_MAX]; /* number of leading blocks whose records core->lookup.found has
                                     * from an earlier lookup */
    uint32_t hashed[KVC_GROUPS_MAX]; /* number of keys whose hash is in core->lookup.hash, at the
                                      * same place */
    uint32_t lead[KVC_GROUPS_MAX];   /* number of leading blocks that are PRESENT */
    uint32_t limit;                  /* tokens of the longest prefix that all full groups allow */
    uint32_t coarsest;               /* the largest block_tokens of all groups */
    uint32_t tokens;                 /* the result: length of the prefix */
    bool cut;       /* the prefix was made shorter: the rest is cached, and not worth loading */
    bool is_recent; /* `known` was looked up in this instant: a block that was absent then is
                     * absent now */
    bool linked;    /* each found block of a full group builds on the one before */
    /* For a lookup in slices: the group that it has reached, full groups first; the number of
     * blocks that it holds. */
    uint32_t group, holds;
    uint64_t *held; /* bits by place in core->lookup.found: the block there is held; NULL: the
                     * lookup is done in one piece, and holds none */
    bool refused;   /* a block could not be held */
    uint64_t left;  /* as unevictable_take() has it, within a slice */
    /* State of find_decide(). */
    bool asks_ready, asks_cost; /* the caller wants `unready`; it wants core_prefix.load_ns */
    bool unready;               /* some block that the prefix needs is not ready */
    uint8_t stage;              /* enum find_stage */
    uint32_t steps;    /* steps that look no key up: FIND_STEPS of them count as one look */
    uint32_t to, next; /* in READY and EXPLAIN: the next group, and the next block of it */
    struct weighing weighing;
};

/* Counts a step that looks at a found block. True: the slice is over. */
#define FIND_STEPS 8u /* as much work as looking up one key */
static inline bool find_paused(struct core *c, struct find *f)
{
    if (f->held && slice_over(c))
        return true;
    c->work.done += f->steps++ % FIND_STEPS == 0 ? WORK_LOOK : 0;
    return false;
}

/* Which part of a request the policy has been told of. Zeroed before the first tell_step(). */
struct telling {
    uint32_t group, hits; /* the next group; number of its leading blocks that are cached, in any
                           * tier */
    bool counted;         /* `hits` is complete */
    struct policy_part part;
};
/* Continues telling. True: the policy has been told all; false: the slice is over. */
bool tell_step(struct core *c, struct find *f, struct telling *t);

/* Whether all groups of ns are full: have rule FULL. */
static inline bool ns_is_full(const struct core_ns *ns)
{
    for (uint32_t g = 0; g < ns->spec.ngroups; g++)
        if (ns->spec.group[g].rule != KVC_RULE_FULL)
            return false;
    return true;
}

/* Whether a lease on the blocks that f found may have b as it is: in host memory, or in a slot of
 * the asker's device. */
static inline bool find_ready(struct core *c, const struct find *f, const struct block *b)
{
    return block_ready(b) || (f->hbm && hbm_copy_serves(c, f->hbm, f->seq, b));
}

/* A whole lookup in one piece. */
void find_prefix(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                 struct find *ret_find, struct core_prefix *ret_prefix);
/* find_prefix() of the sequence of an earlier lookup `was`, if no block was announced since: the
 * blocks that it found are checked again, and keys are not looked up. `was` may be ret_find. */
void find_again(struct core *c, const struct find *was, enum find_where where,
                struct find *ret_find, struct core_prefix *ret_prefix);
/* find_prefix() in pieces: find_begin(); then find_look(), which looks keys up, until it returns
 * true; then find_decide(), which fills in *ret_prefix, until it returns true. */
void find_begin(struct core *c, const struct core_seq *seq, enum find_where where, uint32_t from,
                struct find *ret_find);
bool find_look(struct core *c, struct find *f);
/* find_look() and find_decide() in one piece, after find_begin(). */
void find_whole(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* To be called after find_begin(): names blocks that the lookup is likely to find, so that it need
 * not look their keys up. They are in the order of a lease on the first `tokens` beyond f->from. */
void find_expect(struct core *c, struct find *f, uint32_t tokens, const struct run_list *blocks);
bool find_decide(struct core *c, struct find *f, struct core_prefix *ret_prefix);
/* For a lookup in slices that begins with blocks instead of keys: puts b in as block i of group g,
 * and holds it. False: b does not fit there any more, or cannot be held. */
KVC_WARN_UNUSED bool find_put(struct core *c, struct find *f, uint32_t g, uint32_t i,
                              struct block *b);
/* The error of a pin or name for whose sequence FIND_ANY has found a prefix of no tokens.
 * KVC_E_GONE: nothing is cached; KVC_E_TIER: the copies cannot be read now. */
KVC_WARN_UNUSED int find_absence(struct core *c, const struct core_seq *seq,
                                 const struct core_prefix *prefix, const char **ret_why);
/* The range of blocks of group g that a hit of `tokens` needs: first .. end - 1. */
void find_needs(const struct find *f, uint32_t g, uint32_t tokens, uint32_t *ret_first,
                uint32_t *ret_end);
/* Whether every group has the blocks that a hit of so many tokens needs. tokens: at most those that
 * full groups allow. */
bool find_satisfies(const struct core *c, const struct find *f, uint32_t tokens);
/* Finds the block for which a wait for `enough` tokens waits: one that is being written, as a group
 * and its number there. False: the prefix cannot grow by waiting. Overwrites core->lookup.runlen;
 * of f only find_touch() may be called afterwards. */
bool find_blocker(struct core *c, struct find *f, uint32_t enough, uint32_t *ret_group,
                  uint32_t *ret_i);
/* Touches the blocks that the prefix needs. */
void find_touch(struct core *c, const struct find *f);
/* The range of blocks of group g that a lease of f's prefix beyond `from` tokens holds. */
void find_lease(const struct find *f, uint32_t g, uint32_t from, uint32_t *ret_first,
                uint32_t *ret_end);

/* ---- find.c ---- */

/* Why a key is missing, by its ghost; KVC_MISS_NEVER: it has none. */
enum kvc_miss miss_trace(struct core *c, const struct core_ns *ns, uint32_t group,
                         const uint8_t *key);
/* Why a key is missing, by its ghost and by sibling namespaces that have it. *ret_detail: the
 * fields in which such a namespace differs (ns_diff()). */
enum kvc_miss miss_reason(struct core *c, const struct core_ns *ns, uint32_t group,
                          const uint8_t *key, uint32_t *ret_detail);

/* ---- tell.c ---- */

/* Tells the policy, in one piece, which blocks the request asked for and which of them f found. */
void tell_request(struct core *c, struct find *f);

/* ---- worth.c ---- */

/* Whether the part of the prefix that is worth loading is to be found: the sequence asks for that,
 * and a cost is stated. Else the whole prefix is worth loading. */
bool worth_is_asked(const struct core *c, const struct find *f);
/* Continues weighing. True: *ret_tokens is known; false: the slice is over. */
bool worth_weigh(struct core *c, struct find *f, uint32_t *ret_tokens);
/* Estimates how long loading those blocks takes now that are not in memory, in ns; in slices, as
 * worth_weigh(). For lookups that are not weighed. */
bool worth_load_now(struct core *c, struct find *f, uint64_t *ret_ns);
/* To be called after a cut (find.cut): now and then reads a block, to learn whether the disk has
 * become faster. */
void worth_probe(struct core *c, const struct find *f);
/* To be called when a client has stated a cost of prefill: if the speed of the disk is not known,
 * reads a block, so that the first request can be weighed. */
void worth_probe_first(struct core *c);

#endif
