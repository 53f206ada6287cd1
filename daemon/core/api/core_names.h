/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names: conversations and documents. A name stands for a cached chain; a block is protected as
 * long as some name reaches it. The handlers in daemon/svc/names.c call these functions.
 *
 * A name reaches the blocks that a hit of its tokens needs; in FULL groups these are all blocks up
 * to its last one, its tip. In memory such a block has the highest priority that a name gave it.
 * With storage it is written to disk with a promise as soon as possible. The promise is lent: when
 * no name reaches the block any more, it is an ordinary one in memory and on disk, unless a durable
 * commit has promised it for good. Eviction on request passes it over, unless forced.
 *
 * A name belongs to a principal and a sub-tenant. A conversation and a document may have the same
 * name. Names outlive a run when there is a journal: each put, use and end is written to it, in
 * this order. At start names are read back after all blocks; a name then reaches the blocks of it
 * that are left.
 *
 * Threads, errors, memory: as core.h says.
 */
#ifndef KVC_CORE_NAMES_H
#define KVC_CORE_NAMES_H

#include "core.h"
#include "journal.h"

struct core_name; /* one name; valid until the next call that is not const */

/* Which name is meant: that of the client's principal. If its principal has no such name and just
 * one other has, a client with admin rights means that one. */
struct core_name_id {
    uint8_t kind;        /* enum kvc_name_kind */
    const uint8_t *name; /* not zero-terminated, as sub; both borrowed */
    uint32_t name_bytes; /* 1 to KVC_STRING_MAX - 1 */
    const uint8_t *sub;  /* sub-tenant; 0 bytes: none */
    uint32_t sub_bytes;
};

/* A request that waits for the journal. Zeroed before its first use. Queued until fn is called or
 * core_name_cancel(). */
struct core_name_waiter {
    struct list_node node;
    void (*fn)(struct core_name_waiter *w, int err); /* called from core_background_step() */
    uint64_t content;                                /* the core's: the content to be written */
    bool saved;                                      /* the core's: it waits also until the blocks
                                                      * are on disk */
};

struct core_name_put {
    struct core_name_id id;
    const struct core_seq *seq; /* the sequence of the name, in the namespace of id.sub */
    bool pinned, durable;       /* pinned: the blocks are pinned too; durable: the waiter waits
                                 * until they are on stable storage */
    uint32_t priority;          /* 0: KVC_PRIORITY_DEFAULT */
    uint64_t ttl_ms;            /* 0: for ever */
    const uint8_t *ids; /* seq->tokens token ids, each u32 little-endian; NULL: none are kept */
};
struct core_named {
    uint32_t tokens; /* length of the cached prefix, which the name covers */
    uint64_t bytes;  /* bytes of the blocks that a hit of these tokens needs */
    bool went;       /* a block that the name left was removed: core_gone_await() tells when the
                      * removal outlives a crash */
};
/* Makes a name, or moves it to the prefix of the sequence that is cached. The name may leave a
 * partly filled last block. This block is removed when the new chain has a fuller block in its
 * place and nothing else (such as another name, or a durable commit) keeps it.
 *
 * 0: done. 1: the name is made, and the waiter is queued until the name is in the journal and, if
 * durable, its blocks are on stable storage. fn's err is then 0, or says why that cannot be
 * (KVC_E_FULL: no room for promises; KVC_E_TIER): the name is there, but its blocks are protected
 * in memory alone. Without a waiter the caller does not learn when the name is written.
 *
 * KVC_E_GONE: nothing of the sequence is cached. KVC_E_LIMIT with *ret_why. KVC_E_QUOTA: names,
 * pins and commits together would keep more on disk than a hard limit allows. KVC_E_BAD_ARGUMENT.
 */
KVC_WARN_UNUSED int core_name_put(struct core *c, struct core_client *cl,
                                  const struct core_name_put *in, struct core_name_waiter *waiter,
                                  struct core_named *ret_named, const char **ret_why);
/* Whether the new sequence, or the name as it is now, is so long that the put is to be done in
 * slices, by core_ask_step(). */
bool core_name_put_is_long(struct core *c, const struct core_client *cl,
                           const struct core_name_put *in);
/* Takes a queued waiter off: its fn is not called. No error if it is not queued. */
void core_name_cancel(struct core_name_waiter *waiter);

/* Finds a name. KVC_E_NO_NAME; KVC_E_DENIED: id has a sub-tenant, and the client is no gateway. */
KVC_WARN_UNUSED int core_name_find(struct core *c, const struct core_client *cl,
                                   const struct core_name_id *id, struct core_name **ret_name);
/* Which blocks went with a name, and why the others stayed. A passed block is the last one of an
 * earlier turn: partly filled, and left by the name when it moved on. */
struct core_evicted {
    uint64_t blocks, bytes;          /* evicted blocks, passed ones too, and their bytes */
    uint64_t kept;                   /* blocks of the name that stay: the sum of the counts below */
    uint64_t kept_named;             /* blocks that other names reach */
    uint64_t kept_pinned, kept_used; /* pinned blocks; blocks in use */
    uint64_t kept_below;             /* blocks that stay build on them */
    uint64_t kept_passed;            /* passed blocks that a durable commit has promised, or that
                                      * are in use */
    struct core_places in;           /* `bytes` by tier */
};
/* Ends a name. evict not NULL: those of its blocks are evicted that nothing else holds, reaches,
 * pins or builds on, and *evict says how many. 0; 1: the waiter is queued until the journal has
 * the end; KVC_E_TIER: the name has ended, but its journal takes no more changes, so the next run
 * may have the name again. */
KVC_WARN_UNUSED int core_name_forget(struct core *c, struct core_name *name,
                                     struct core_evicted *evict, struct core_name_waiter *waiter);
/* core_name_forget() in slices. core_name_forget_begin() returns the same as core_name_forget();
 * afterwards the name is not found any more. Its blocks are released by core_name_forget_step(), or
 * else by core_background_step(). `evicted` is complete after the last slice. */
struct core_forgetting {
    struct core_name *name; /* the core's; NULL: all blocks are released */
    struct core_evicted evicted;
};
KVC_WARN_UNUSED int core_name_forget_begin(struct core *c, struct core_name *name, bool evict,
                                           struct core_forgetting *x,
                                           struct core_name_waiter *waiter);
/* Runs a slice. True: there is more. */
KVC_WARN_UNUSED bool core_name_forget_step(struct core *c, struct core_forgetting *x);
/* The caller runs no more slices, and its x is not written any more; core_background_step()
 * releases the rest. */
void core_name_forget_cancel(struct core_forgetting *x);
/* Whether the name covers so many blocks that they are to be looked at in slices, by
 * core_ask_step() with core_asking.name. */
bool core_name_is_long(struct core *c, const struct core_name *name);
/* Counts a use of the name, and of its blocks unless it is long. ttl_ms: the time that the name
 * lives from now on without a use; UINT64_MAX: unchanged. */
void core_name_use(struct core *c, struct core_name *name, uint64_t ttl_ms);
/* The sequence that the name covers now, for lookups. The core owns its keys; they are valid until
 * the next call of this function. False: nothing is left of the name. */
bool core_name_seq(struct core *c, const struct core_name *name, struct core_seq *ret_seq);
/* Copies up to `max` token ids of the name to `out`, from number `first` on, each u32
 * little-endian. Returns how many it copied. *ret_tokens: how many the name has. */
uint32_t core_name_ids(const struct core *c, const struct core_name *name, uint32_t first,
                       uint8_t *out, uint32_t max, uint32_t *ret_tokens);

struct core_name_view {
    uint8_t kind;
    const char *name, *principal, *tenant, *sub, *model; /* borrowed from the name */
    uint32_t ns;                                         /* id; 0: its namespace is not there */
    uint32_t tokens, tokens_cached; /* tokens when it was put; those of them that are cached now */
    uint32_t blocks;                /* number of its blocks when it was put */
    uint64_t bytes, bytes_in_memory,
        bytes_on_disk;                /* payload when it was put; now in memory; now on disk */
    uint64_t age_ms, idle_ms, ttl_ms; /* time since it was made; since its last use; 0: for ever */
    uint32_t priority;
    bool pinned, has_ids; /* has_ids: token ids were put with it */
    struct key256 tip;    /* the last block of group 0 */
};
/* Fills the view, and looks at each block of the name for that. Returns how many blocks it looked
 * at. */
uint32_t core_name_view(struct core *c, const struct core_name *name,
                        struct core_name_view *ret_view);
/* A list of names in their order. */
struct core_name_list {
    uint8_t kind;          /* enum kvc_name_kind */
    const uint8_t *prefix; /* only names that begin so */
    uint32_t prefix_bytes;
    const uint8_t *sub; /* only names of this sub-tenant, unless it is empty */
    uint32_t sub_bytes;
    const uint8_t *cursor; /* where the list continues; 0 bytes: at the start */
    uint32_t cursor_bytes;
};
/* Writes the cursor with which a list continues behind this name: bytes that only this core can
 * read. Returns how many bytes. */
#define CORE_NAME_CURSOR_MAX 320u
uint32_t core_name_cursor(const struct core_name *name, uint8_t ret_cursor[CORE_NAME_CURSOR_MAX]);
/* Finds the first name of the list behind in->cursor that the client may see; *ret_name NULL: there
 * are no more. KVC_E_BAD_ARGUMENT: the bytes are no cursor. */
KVC_WARN_UNUSED int core_name_next(struct core *c, const struct core_client *cl,
                                   const struct core_name_list *in, struct core_name **ret_name);

/* ---- restart ---- */

struct core_names_found {
    uint32_t names;  /* names that were read back */
    uint32_t partly; /* of `names`, those that reach fewer blocks than before, or none */
    uint32_t nobody; /* names that were not read back: their principal does not exist now, or there
                      * was no room */
    uint32_t pieces; /* pieces in the journal that belong to no name, and are deleted */
    bool damaged;    /* the journal was damaged, and has been begun anew */
};
/* Recovers the names of the run before. To be called once, after core_recover_end() and before the
 * first request. From now on changes are written to the journal (borrowed; NULL: there is none).
 * `who` as in core_ns_restore(). 0, or the journal's error. Blocks whose promises were lent to
 * names that were not recovered become ordinary ones.
 *
 * Ages continue: now_ms is the present time on the clock that core_names_now_ms() told in the run
 * before. 0: it is unknown. Then the time since the newest change in the journal does not count;
 * without any change the clock begins with wall_ms. */
KVC_WARN_UNUSED int core_names_open(struct core *c, struct journal *journal, uint64_t now_ms,
                                    uint64_t wall_ms, core_who_fn *who, void *ctx,
                                    struct core_names_found *ret_found);
/* The time of the clock by which names age, in milliseconds. After core_names_open(); 0:
 * limits.names is 0. */
uint64_t core_names_now_ms(const struct core *c);
/* From now on no commit of the journal begins; one that is under way ends as usual. To be called
 * before the journal is closed. */
void core_names_stop(struct core *c);
/* Tells that the journal could not be opened: names live without it, as if it had failed later. */
void core_names_fail(struct core *c, int err);
/* Gives core a journal that was made after the start, and is empty: from now on all names, and
 * their changes, are written to it. Only after core_names_fail(), in a run without a journal. */
void core_names_begin(struct core *c, struct journal *journal);
/* The error after which the journal takes no more changes; 0: it takes them. Names live on without
 * a journal. */
int core_names_error(const struct core *c);
/* Whether no change is on its way to the journal. */
bool core_names_is_quiet(const struct core *c);
/* Bytes of memory for names, for the budget that the daemon prints. */
uint64_t core_names_bytes(const struct core_config *config);

#endif
