/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: conversations and documents. A name stands for a cached chain; blocks that a name reaches
 * are protected as long as some name reaches them. The handlers in daemon/svc/names.c call these.
 *
 * A name reaches the blocks that a hit of its tokens needs; in FULL groups these are all up to its
 * tip. Such a block has the name's priority in memory (the highest that a name gave it). With
 * storage it is written to disk with a promise as soon as possible. The promise is lent: when its
 * last name ends, or moves off it, the block is an ordinary one everywhere, unless a durable commit
 * has promised it for good. Eviction on request passes it over, unless forced.
 *
 * Names belong to a principal and a sub-tenant, and the two kinds are apart. They outlive a run
 * when there is a journal: each put, use and end is written to it, in their order. At start they
 * are read back after all blocks; a name then reaches what is left.
 *
 * Threads, errors, memory: as core.h says.
 */
#ifndef KVC_CORE_NAMES_H
#define KVC_CORE_NAMES_H

#include "core.h"
#include "journal.h"

struct core_name; /* one name; valid until the next call that is not const */

/* Which name is meant. A client means a name of its own principal. One with admin rights may also
 * mean another principal's: if its own has none of this name, and just one other has. */
struct core_name_id {
    uint8_t kind; /* enum kvc_name_kind */
    const uint8_t *name;
    uint32_t name_bytes; /* 1 to KVC_STRING_MAX - 1 */
    const uint8_t *sub;
    uint32_t sub_bytes;
};

/* A request that waits for the journal. Zeroed before its first use. Queued until fn is called or
 * core_name_cancel(). */
struct core_name_waiter {
    struct list_node node;
    void (*fn)(struct core_name_waiter *w, int err); /* from core_placement_step() */
    uint64_t content;                                /* the core's */
    bool saved;                                      /* the core's: waits until the blocks are on
                                                      * disk, too */
};

struct core_name_put {
    struct core_name_id id;
    const struct core_seq *seq; /* id.sub is its namespace's */
    bool pinned, durable;
    uint32_t priority;  /* 0 = KVC_PRIORITY_DEFAULT */
    uint64_t ttl_ms;    /* 0 = for ever */
    const uint8_t *ids; /* u32 little-endian x seq->tokens, or NULL */
};
struct core_named {
    uint32_t tokens;
    uint64_t bytes; /* of the blocks that a hit of these tokens needs */
    bool went; /* a block that the name left was removed: core_gone_await() tells when that outlives
                * a crash */
};
/* Makes a name, or moves it to what is cached of the sequence. A partly filled last block that it
 * leaves is removed when the new chain has a fuller one in its place and nothing else reaches or
 * holds it (a durable commit does).
 *
 * 0. 1: the name is made, and the waiter is queued until the name is in the journal and, if
 * durable, its blocks are on stable storage. fn's err then is 0, or why that cannot be (KVC_E_FULL:
 * no room for promises; KVC_E_TIER): the name is there and its blocks are protected in memory
 * alone. Without `durable` and without a waiter nothing is waited for.
 *
 * KVC_E_GONE: nothing of it is cached. KVC_E_LIMIT with *ret_why. KVC_E_QUOTA: what names, pins and
 * commits keep would be above a hard limit on disk. KVC_E_BAD_ARGUMENT. */
KVC_WARN_UNUSED int core_name_put(struct core *c, struct core_client *cl,
                                  const struct core_name_put *in, struct core_name_waiter *waiter,
                                  struct core_named *ret_named, const char **ret_why);
/* Whether the put, or the name as it is, is so long that it is to be put in slices:
 * core_ask_step(). */
bool core_name_put_is_long(struct core *c, const struct core_client *cl,
                           const struct core_name_put *in);
void core_name_cancel(struct core_name_waiter *waiter);

/* Finds a name. KVC_E_NO_NAME; KVC_E_DENIED: a sub-tenant is named, and the client is no
 * gateway. */
KVC_WARN_UNUSED int core_name_find(struct core *c, const struct core_client *cl,
                                   const struct core_name_id *id, struct core_name **ret_name);
struct core_evicted {
    uint64_t blocks, bytes; /* including last blocks that the name has passed */
    /* Other blocks that the name reaches, and passed last blocks of turns beside them: the sum of
     * the counts below. */
    uint64_t kept;
    uint64_t kept_named; /* reached by other names */
    uint64_t kept_pinned, kept_used;
    uint64_t kept_below;  /* blocks that stay build on them: other names' blocks, or those above */
    uint64_t kept_passed; /* passed last blocks: a durable commit has promised them, or they were in
                           * use */
    struct core_places in;
};
/* Ends a name. evict: NULL, or blocks of the name that nothing else holds, reaches, pins or builds
 * on are evicted, and *evict says which. 0; 1: the waiter is queued as by core_name_put(), for the
 * journal; KVC_E_TIER: the name has ended, but its journal takes nothing more, so the next run may
 * have it again. */
KVC_WARN_UNUSED int core_name_forget(struct core *c, struct core_name *name,
                                     struct core_evicted *evict, struct core_name_waiter *waiter);
/* core_name_forget() in slices. After core_name_forget_begin(), which returns what
 * core_name_forget() does, nobody finds the name. Then its blocks are released: by
 * core_name_forget_step(), or by core_placement_step() itself. `evicted` is complete after the last
 * slice. */
struct core_forgetting {
    struct core_name *name; /* the core's; NULL: all blocks are released */
    struct core_evicted evicted;
};
KVC_WARN_UNUSED int core_name_forget_begin(struct core *c, struct core_name *name, bool evict,
                                           struct core_forgetting *x,
                                           struct core_name_waiter *waiter);
/* Runs a slice. True: there is more. */
KVC_WARN_UNUSED bool core_name_forget_step(struct core *c, struct core_forgetting *x);
/* The core continues by itself, and tells nobody. */
void core_name_forget_cancel(struct core_forgetting *x);
/* Whether the name is so long that the blocks it covers are looked at in slices: core_ask_step()
 * with `name`. */
bool core_name_is_long(struct core *c, const struct core_name *name);
/* Counts a use of the name, and of its blocks unless it is long. ttl_ms: UINT64_MAX = as it was. */
void core_name_use(struct core *c, struct core_name *name, uint64_t ttl_ms);
/* The sequence that the name covers now, for lookups. The core owns its keys, until the next call
 * of this. False: nothing is left of the name. */
bool core_name_seq(struct core *c, const struct core_name *name, struct core_seq *ret_seq);
/* Copies up to `max` token ids from `first` on to `out`, little-endian; returns how many.
 * *ret_tokens: how many there are. */
uint32_t core_name_ids(const struct core *c, const struct core_name *name, uint32_t first,
                       uint8_t *out, uint32_t max, uint32_t *ret_tokens);

struct core_name_view {
    uint8_t kind;
    const char *name, *principal, *tenant, *sub, *model; /* borrowed from the name */
    uint32_t ns;                                         /* 0: not open */
    uint32_t tokens, tokens_cached;
    uint32_t blocks;
    uint64_t bytes, bytes_in_memory, bytes_on_disk; /* bytes: as it was put */
    uint64_t age_ms, idle_ms, ttl_ms;
    uint32_t priority;
    bool pinned, has_ids;
    struct key256 tip;
};
/* Fills the view; looks at each block. Returns how many blocks. */
uint32_t core_name_view(struct core *c, const struct core_name *name,
                        struct core_name_view *ret_view);
/* A list of names in their order. */
struct core_name_list {
    uint8_t kind;
    const uint8_t *prefix;
    uint32_t prefix_bytes;
    const uint8_t *sub; /* only names of this sub-tenant, unless it is empty */
    uint32_t sub_bytes;
    const uint8_t *cursor; /* where the list continues; 0 bytes: at the start */
    uint32_t cursor_bytes;
};
/* The cursor of a list after this name: bytes that mean something to this core alone. Returns how
 * many. */
#define CORE_NAME_CURSOR_MAX 320u
uint32_t core_name_cursor(const struct core_name *name, uint8_t ret_cursor[CORE_NAME_CURSOR_MAX]);
/* The first name behind the cursor that the client may see; *ret_name NULL: there are no more.
 * KVC_E_BAD_ARGUMENT: the bytes are no cursor. */
KVC_WARN_UNUSED int core_name_next(struct core *c, const struct core_client *cl,
                                   const struct core_name_list *in, struct core_name **ret_name);

/* ---- restart ---- */

struct core_names_found {
    uint32_t names;  /* read back */
    uint32_t partly; /* those of them that reach less than they did, or nothing */
    uint32_t nobody; /* not read back: of principals that are not there now, or for want of room */
    uint32_t pieces; /* pieces that belong to no name, and are deleted */
    bool damaged;    /* the journal was damaged, and has been begun anew */
};
/* Recovers the names of the run before: once, after core_recover_end(), before the first request.
 * From now on the journal (borrowed; NULL: there is none) is written. `who` as in
 * core_ns_restore(). An error is the journal's.
 *
 * Ages continue: now_ms is the present time on the clock that core_names_now_ms() told in the run
 * before. 0: it is unknown; then the time since the newest note does not count, and the clock
 * begins with wall_ms where there is no note. Blocks whose promises were lent to names that are no
 * more become ordinary ones. */
KVC_WARN_UNUSED int core_names_open(struct core *c, struct journal *journal, uint64_t now_ms,
                                    uint64_t wall_ms, core_who_fn *who, void *ctx,
                                    struct core_names_found *ret_found);
/* The clock by which names age, in milliseconds. After core_names_open(); 0: limits.names is 0. */
uint64_t core_names_now_ms(const struct core *c);
/* Begins no more commits of the journal; one that is under way ends as usual. Before the journal is
 * closed. */
void core_names_stop(struct core *c);
/* The journal could not be opened: names live without it, as if it had failed later. */
void core_names_fail(struct core *c, int err);
/* The journal could be made later, and is empty: from now on all names, and their changes, are
 * written to it. Only after core_names_fail() of a run that had none. */
void core_names_begin(struct core *c, struct journal *journal);
/* The error because of which the journal takes nothing more; 0: it does. Names live on without
 * it. */
int core_names_error(const struct core *c);
/* Whether nothing is on its way to the journal. */
bool core_names_is_quiet(const struct core *c);
/* Memory of names, for the printed budget. */
uint64_t core_names_bytes(const struct core_config *config);

#endif
