/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of many keys, a slice of work at a time; between two slices anything may happen. Commits
 * and drops in slices are in core.h. Thread: as there.
 */
#ifndef KVC_CORE_SLICES_H
#define KVC_CORE_SLICES_H

#include "core_names.h"

/* An acquire, or a lookup, of so many keys that it takes slices; the core's. */
struct core_ask;
/* Whether it takes more than one. */
bool core_seq_is_long(const struct core *c, const struct core_seq *seq);
struct core_asking {
    struct core_acquire in;    /* what it points to is borrowed until it has ended */
    bool looks;                /* core_lookup(): no lease; in.read_only: without `touch` */
    enum policy_advice advice; /* with `looks`: core_advise(), within_ms */
    uint32_t within_ms;
    bool pins; /* with `looks`: core_pin(), in_memory, ttl_ms; at its end there is `pinned` */
    bool in_memory;
    uint64_t ttl_ms;
    struct core_pinned pinned;
    /* With `looks`: what this name covers when the first slice begins, in place of in.seq. It
     * counts as used now; what of it is not in memory is loaded, and waited for with in.load and a
     * waiter (1). */
    const struct core_name *name;
    uint64_t bytes_in_memory; /* of the name; told */
    uint64_t load_bytes;      /* of what is not in memory, and not waited for, so much is begun */
    /* With `looks`: core_name_put() of this, whose seq is in.seq; at its end, when what the name
     * was is let go of, there is `named`. That it is put shows in named.tokens before, also to who
     * cancels then: the waiter, if it is queued (1), may be called from then on. */
    const struct core_name_put *put;
    struct core_name_waiter *name_waiter;
    struct core_named named;
    struct core_waiter *waiter; /* borrowed; NULL: none */
    struct core_ask *ask;       /* NULL: not begun, or at its end */
    /* The id of in.seq.ns when it was asked for; 0: at the first step. If another namespace has
     * got its place since: KVC_E_NO_NAMESPACE. */
    uint32_t ns;
};
/* A slice. CORE_MORE: there is another to come, also while too many others have begun. Else as
 * core_acquire(), or core_lookup() with the prefix in ret_held. Blocks that it has found stay until
 * its end; a waiter that it has queued may be called before that. Of a name also KVC_E_GONE: some
 * of it has gone meanwhile, or cannot be held; core_name_seq() has what is left. */
KVC_WARN_UNUSED int core_ask_step(struct core *c, struct core_client *cl, struct core_asking *x,
                                  struct core_held *ret_held, const char **ret_why);
/* No further slice. */
void core_ask_cancel(struct core *c, struct core_asking *x);

/* core_redeem(). */
struct core_redeeming {
    uint8_t ticket[KVC_TICKET_BYTES];
    uint64_t
        lease; /* the core's: the new one, which nobody is told of; 0: not begun, or at its end */
};
/* A slice. CORE_MORE. KVC_E_NO_LEASE also when the first lease ended before the last slice. */
KVC_WARN_UNUSED int core_redeem_step(struct core *c, struct core_client *cl,
                                     struct core_redeeming *x, struct core_held *ret_held);
/* No further slice. */
void core_redeem_cancel(struct core *c, struct core_client *cl, struct core_redeeming *x);

/* core_lease_locs() from number *at on, a slice of them. CORE_MORE; KVC_E_GONE also for a block
 * that went bad after the first slice. */
KVC_WARN_UNUSED int core_lease_locs_step(struct core *c, struct core_client *cl, uint64_t lease,
                                         uint32_t shard, uint32_t *at, core_loc_fn *fn, void *ctx);

uint32_t core_lease_locs_slice(const struct core *c); /* as many as a slice tells */

/* A slice of letting go of the blocks of a pin that has ended; true: there is more. */
KVC_WARN_UNUSED bool core_unpin_step(struct core *c, uint64_t pin);

/* A block as it was seen; gen 0: none. */
struct core_seen {
    uint32_t no, gen;
};
/* What core_name_forget() with `evict` would take of a name now; all 0 before the first slice. */
struct core_would {
    struct core_evicted evicted; /* whole after the last slice */

    uint64_t content;         /* the core's from here on: what the name was when it began */
    uint32_t ref;             /* of the name, from whose block, */
    struct core_seen tip, at; /* tip, it goes up: the next block; gen 0: no more from this one */
    bool below;               /* it comes from the block behind that, which has `tokens` */
    uint32_t tokens;
    bool own, goes; /* no other name reaches those behind; they would go */
};
/* A slice; the name is the one that is found now, and it begins anew when that has changed.
 * True: there is more. */
KVC_WARN_UNUSED bool core_name_would_step(struct core *c, const struct core_name *name,
                                          struct core_would *x);

/* How far a block that has many before it is held; the core's. */
#define CORE_CLIMB_WAYS 32u
struct core_climb {
    struct core_seen tip, at;  /* the block; where the way up has come to */
    uint32_t since, stride, n; /* blocks behind the last one noted, and up to the next one */
    struct core_seen way[CORE_CLIMB_WAYS]; /* n that are noted, from the tip on */
    int err;                               /* why it cannot be held */
};

/* core_reserve(); embedded in its owner's memory, and may be moved between two of them. */
struct core_reserving {
    struct core_reserve in; /* all that it points to is borrowed until the last slice */
    uint8_t *statuses;      /* in.n, borrowed as well; final after the last slice */
    uint64_t ret_reservation;

    struct core *core; /* the core's from here on */
    struct core_client *client;
    const struct core_group *group;
    struct reservation *r;
    uint32_t ns_id, at, shard;     /* shard: 0 for replicated groups */
    struct core_seen before, last; /* the block of the key before; the last one that there was */
    struct core_climb climb;       /* to hold the former */
    struct tier_loc near;          /* where the block before landed */
    uint64_t left;                 /* of unevictable_take() */
    bool judged;                   /* new blocks, beside what would go for them */
    bool asked;                    /* whether they go on from a conversation, which are not */
    bool cut;        /* durable, and a block before it cannot be read: a promise would not hold */
    uint8_t stopped; /* what is told of all keys from there on */
};
/* Before its first slice. 0, KVC_E_BAD_ARGUMENT with *ret_why, KVC_E_BUSY. */
KVC_WARN_UNUSED int core_reserve_begin(struct core *c, struct core_client *cl,
                                       struct core_reserving *x, const char **ret_why);
/* A slice. True: there is more to do. */
KVC_WARN_UNUSED bool core_reserve_step(struct core_reserving *x);
/* No further slice, also behind the last one: what it has reserved is dropped. */
void core_reserve_cancel(struct core_reserving *x);

#endif
