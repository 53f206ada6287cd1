/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of many keys, in slices; between two slices other requests may change anything. Handlers
 * in daemon/svc run one slice in each of their session's turns. Commits and drops in slices are in
 * core.h. Thread: the control thread.
 */
#ifndef KVC_CORE_SLICES_H
#define KVC_CORE_SLICES_H

#include "core_names.h"

/* The core's part of an acquire or lookup that takes slices. */
struct core_ask;
/* Whether a request for this sequence takes more than one slice. */
bool core_seq_is_long(const struct core *c, const struct core_seq *seq);
/* An acquire in slices, or (with `looks`) a lookup and what is done with the blocks that it finds.
 */
struct core_asking {
    struct core_acquire in; /* its pointers are borrowed until the request has ended */
    bool looks;             /* as core_lookup(): no lease is made; in.read_only: without `touch` */
    enum policy_advice advice; /* with `looks`, not 0: as core_advise() with within_ms */
    uint32_t within_ms;
    bool pins; /* with `looks`: as core_pin() with in_memory and ttl_ms; `pinned` is filled at the
                * end */
    bool in_memory;
    uint64_t ttl_ms;
    struct core_pinned pinned;
    /* With `looks`: in place of in.seq, the sequence that this name covers when the first slice
     * begins. The name counts as used now. With in.load and a waiter its blocks that are not in
     * memory are loaded; core_ask_step() then returns 1, and the request waits for them. */
    const struct core_name *name;
    uint64_t bytes_in_memory; /* result: bytes of the name that are in memory */
    uint64_t load_bytes;      /* loads of so many bytes are begun for which no request waits */
    /* With `looks`: as core_name_put() of this, whose seq is in.seq. `named` is filled at the end,
     * when the blocks that the name had before are released. named.tokens is not 0 as soon as the
     * name is put; a core_ask_cancel() after that does not undo the put. From then on the waiter
     * may be called, if it is queued (1). */
    const struct core_name_put *put;
    struct core_name_waiter *name_waiter;
    struct core_named named;
    struct core_waiter *waiter; /* borrowed; NULL: none */
    struct core_ask *ask;       /* the core's; NULL: not begun, or ended */
    /* The id of in.seq.ns when the request was made; 0: the first step sets it. If another
     * namespace has that slot at a later step, the request ends with KVC_E_NO_NAMESPACE. */
    uint32_t ns;
};
/* Runs a slice. CORE_MORE: call again in another turn; also returned while too many other requests
 * are under way. Else it returns as core_acquire(), or as core_lookup() with the prefix in
 * ret_held. Blocks that were found stay until the end; a queued waiter may be called before the
 * end. With a name also KVC_E_GONE: a block of the name was removed meanwhile, or cannot be held;
 * core_name_seq() tells what is left. */
KVC_WARN_UNUSED int core_ask_step(struct core *c, struct core_client *cl, struct core_asking *x,
                                  struct core_held *ret_held, const char **ret_why);
/* Ends the request early: no further slice runs. */
void core_ask_cancel(struct core *c, struct core_asking *x);

/* core_redeem() in slices. */
struct core_redeeming {
    uint8_t ticket[KVC_TICKET_BYTES];
    uint64_t
        lease; /* the core's: the new lease, whose id is not told yet; 0: not begun, or ended */
};
/* Runs a slice. CORE_MORE: call again in another turn. KVC_E_NO_LEASE also when the first lease
 * ended before the last slice. */
KVC_WARN_UNUSED int core_redeem_step(struct core *c, struct core_client *cl,
                                     struct core_redeeming *x, struct core_held *ret_held);
/* Ends the request early: no further slice runs. */
void core_redeem_cancel(struct core *c, struct core_client *cl, struct core_redeeming *x);

/* Runs a slice of core_lease_locs(), from the lease's block number *at on (0 at first), and moves
 * *at on. CORE_MORE: call again. KVC_E_GONE also for a block whose bytes were found to be wrong. */
KVC_WARN_UNUSED int core_lease_locs_step(struct core *c, struct core_client *cl, uint64_t lease,
                                         uint32_t shard, uint32_t *at, core_loc_fn *fn, void *ctx);

uint32_t core_lease_locs_slice(const struct core *c); /* number of locations in one slice */

/* Runs a slice of releasing the blocks of a pin that has ended; true: there is more. */
KVC_WARN_UNUSED bool core_unpin_step(struct core *c, uint64_t pin);

/* A block that was seen before, by record number and block.gen; gen 0: none. */
struct core_seen {
    uint32_t no, gen;
};
/* What core_name_forget() with `evict` would evict of a name now. Zeroed before the first slice. */
struct core_would {
    struct core_evicted evicted; /* complete after the last slice */

    uint64_t content;         /* the core's from here on: the name's content when it began */
    uint32_t ref;             /* the ref of the name from whose block, `tip`, the walk goes up */
    struct core_seen tip, at; /* at: the next block of the walk; gen 0: this ref is done */
    bool below;               /* the walk has come to `at` from its child, which has `tokens` */
    uint32_t tokens;
    bool own, goes; /* of the blocks of the walk so far: own: no other name reaches them; goes: they
                     * would be evicted */
};
/* Runs a slice. `name` is looked up by the caller for each slice; the walk begins anew when its
 * content has changed. True: there is more to do. */
KVC_WARN_UNUSED bool core_name_would_step(struct core *c, const struct core_name *name,
                                          struct core_would *x);

/* A hold, in slices, of a block with many blocks before it: how far it has come (climb.c). The
 * core's. */
#define CORE_CLIMB_WAYS 32u
struct core_climb {
    struct core_seen tip, at;  /* the block to be held; the block that the walk upwards has
                                * reached */
    uint32_t since, stride, n; /* blocks since the last noted one; blocks from one noted block to
                                * the next; number of noted ones */
    struct core_seen way[CORE_CLIMB_WAYS]; /* the n noted blocks, from the tip on */
    int err;                               /* why the tip cannot be held; 0: no error yet */
};

/* core_reserve() in slices; embedded in the caller's memory. It may be moved between two slices. */
struct core_reserving {
    struct core_reserve in; /* its pointers are borrowed until the last slice */
    uint8_t *statuses;      /* in.n statuses; borrowed as well; final after the last slice */
    uint64_t ret_reservation;

    struct core *core; /* the core's from here on */
    struct core_client *client;
    const struct core_group *group;
    struct reservation *r;
    uint32_t ns_id, at, shard;     /* id of in.ns; the next key; in.shard, or 0 for replicated
                                    * groups */
    struct core_seen before, last; /* the block of the key before `at`; the block of the last key
                                    * that has one */
    struct core_climb climb;       /* to hold `before` */
    struct tier_loc beside;        /* location of the block before: the next is taken beside it */
    uint64_t left;                 /* as unevictable_take() has it */
    bool judged;                   /* new blocks are weighed against their victims */
    bool asked;      /* core has looked whether the blocks continue a named conversation, and has
                      * cleared `judged` if so */
    bool cut;        /* durable, and a block before them cannot be read: a promise would not hold */
    uint8_t stopped; /* not 0: the status of all further keys */
};
/* To be called before the first slice. 0, KVC_E_BAD_ARGUMENT with *ret_why, KVC_E_BUSY. */
KVC_WARN_UNUSED int core_reserve_begin(struct core *c, struct core_client *cl,
                                       struct core_reserving *x, const char **ret_why);
/* Runs a slice. True: there is more to do. */
KVC_WARN_UNUSED bool core_reserve_step(struct core_reserving *x);
/* Ends the request early, or after its last slice: blocks that it has reserved are dropped. */
void core_reserve_cancel(struct core_reserving *x);

#endif
