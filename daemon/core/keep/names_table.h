/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of names, with the blocks that each name holds and the changes on their way to the
 * journal: shared by the files keep/names*.c.
 */
#ifndef KVC_CORE_NAMES_INTERNAL_H
#define KVC_CORE_NAMES_INTERNAL_H

#include "core_names.h"
#include "keep.h"
#include "wheel.h"

struct find;

/* The pool of refs has so many for each name: its tips, and blocks that windows need. */
#define NAMES_REFS_EACH 8u
/* How many passed first blocks a name remembers: a sequence shorter than one block has put them one
 * after the other, each partly filled. */
#define NAMES_ENDS 4u
/* The pieces of a name in the journal. */
#define NAMES_IDS      250u /* token ids in a piece */
#define NAMES_KEYS     27u  /* keys in a piece, each with group and place */
#define NAMES_KEY_ROOM 37u  /* bytes of such a key */
#define NAMES_W_KEYS   (KVC_KEYS_MAX + 1024u)
/* The most changes in one commit of the journal; the most names whose blocks are being saved. */
#define NAMES_BATCH  256u
#define NAMES_SAVING 32u
/* How many ranges of stale pieces are noted, to be deleted with later commits. Further ones are
 * deleted at the next start. */
#define NAMES_STALE 4096u
/* Blocks that could not be saved are tried again after this time. */
#define NAMES_RETRY_NS UINT64_C(1000000000)
/* The time between two checks that the journal's file is still there. */
#define NAMES_LOOK_NS UINT64_C(2000000000)
/* While storage makes room it is asked again after this time, unless it tells before. */
#define NAMES_PAUSE_MS 50u

/* Slots for puts, beside those of names: one for each put that is under way in slices, and one for
 * a put in one call. After a put in slices its slot releases the blocks that the name had before.
 */
#define NAMES_SPARES (ASKS_MAX + 1u)

/* LIVE: clients find the name. COMING: a spare slot that takes the blocks that a name is to have.
 * GOING: the name has ended, but the journal still has it, or it has blocks to release. */
enum name_state { NAME_FREE, NAME_LIVE, NAME_COMING, NAME_GOING };

struct core_name {
    uint8_t state; /* enum name_state */
    uint8_t kind;
    uint8_t priority;
    bool pinned;
    bool cut;       /* some block that it reached was removed */
    bool saved;     /* its blocks are on disk with a promise */
    bool active;    /* its blocks are being saved: its promise is under way (promise.c) */
    bool in_flight; /* the journal's commit that is under way writes its head */
    bool evicts;    /* GOING: blocks that nothing else needs are evicted with it */
    bool gone;      /* GOING: the journal does not have it, but it still has refs */
    bool spare;     /* the slot is one of NAMES_SPARES, not one of a name */
    uint32_t next;  /* FREE: the next free slot */
    uint32_t principal;
    const char *principal_name, *tenant; /* the principal's; borrowed from the identity */
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    uint64_t print;          /* core_ns.short_print of its namespace */
    uint32_t tokens, blocks; /* when it was put */
    uint64_t bytes;          /* when it was put */
    uint32_t refs;           /* its first ref: index in names->ref, or CORE_NONE */
    uint32_t ids, nids; /* its first piece of token ids: index in names->ids, or CORE_NONE; number
                         * of its ids */
    uint64_t pin;       /* id of its pin; 0: none */
    uint64_t ttl_ms, made_ms, used_ms; /* 0: for ever; the other two: names_now() when it was made,
                                        * and last used */
    struct run_entry ends[NAMES_ENDS]; /* first blocks that it has passed, and that stayed */
    uint64_t content;                  /* the number of its content; each put gives a higher one */
    uint64_t written;                  /* number of the content that the journal has; 0: none */
    uint32_t written_keys, written_pieces; /* of that content: number of pieces with keys; of all
                                            * pieces but the head */
    struct list_node write;                /* names->writing */
    struct list_node save;                 /* names->saving */
    struct list_node waiters;           /* core_name_waiter: requests that wait for the journal */
    struct list_node going;             /* names->going, while its blocks are released */
    struct core_forgetting *forgetting; /* the request that releases its blocks; NULL: none */
    uint32_t beside; /* while its blocks are released: tokens of its block that was behind the next
                      * one; 0: it had none there */
    struct promise promise;
    struct wheel_timer ttl, retry;
    struct core *core;
};

/* A ref: a block that a name holds itself. Of a FULL group this is the last block, the tip; of
 * other groups each block that a hit needs. */
struct name_ref {
    uint32_t block, name; /* record number; index in names->name */
    uint32_t next_of_name, prev_of_name, next_of_block, prev_of_block; /* indices in names->ref, or
                                                                        * CORE_NONE */
    uint32_t group, place; /* place: the block's number in its group, from 0 */
};

/* A piece of a list of token ids. */
struct name_ids {
    uint32_t next, n; /* next piece: index in names->ids, or CORE_NONE; ids of this piece */
    uint32_t id[NAMES_IDS];
};

/* Pieces in the journal that belong to no name any more: n from number `first` on, of a content. */
struct name_stale {
    uint64_t content;
    uint32_t first, n;
};

/* The commit of the journal: the one that is under way, or is being filled. */
struct name_commit {
    struct journal_txn commit;
    struct journal_change change[NAMES_BATCH];
    uint8_t value[NAMES_BATCH][JOURNAL_VALUE_MAX]; /* the bytes of each change */
    uint32_t n;                                    /* number of changes */
    struct {
        uint32_t name, keys, pieces; /* index in names->name; its written_keys and written_pieces
                                      * when the commit is done */
        uint64_t content;            /* its `written` then; 0: the journal has it no more */
    } head[NAMES_BATCH];             /* names whose heads the commit writes or deletes */
    uint32_t nheads;
    bool in_flight;
};

struct names {
    struct core_name *name;           /* the slots */
    uint32_t max, high, free, spares; /* number of slots; those from `high` on were never used;
                                       * first free one; number of spare ones in use */
    uint32_t *order;                  /* the LIVE names, by kind, name, principal, sub-tenant */
    uint32_t count;                   /* entries of `order` */
    struct share share;               /* of names, by principal */
    struct name_ref
        *ref; /* refs and pieces of ids: _max, _high, _free as for slots; _used: in use */
    uint32_t refs_max, refs_high, refs_free, refs_used;
    struct name_ids *ids;
    uint32_t ids_max, ids_high, ids_free, ids_used;
    uint8_t *keys; /* the keys that core_name_seq() returns */
    struct wheel wheel;
    bool wheel_on;     /* timers can be set: names_wheel() was called */
    uint64_t serial;   /* the content number that was given last */
    uint64_t begun_ms; /* names_now() at core time 0 */

    struct journal *journal; /* borrowed; NULL: there is none */
    int error;               /* core_names_error() */
    uint64_t look_ns;        /* when the journal's file is checked next */
    /* core_name: to be written to the journal; whose blocks are to be saved; that release blocks.
     */
    struct list_node writing, saving, going;
    uint32_t active;   /* number of names that are `active` */
    uint64_t pause_ms; /* before this time no saving begins, because storage makes room */
    struct name_commit commit;
    /* The content that is being written, piece by piece: of the first name in `writing`. */
    uint64_t w_content; /* its number; 0: none */
    /* Index of its name; number of pieces, of pieces with keys, of keys; the next piece, from 1 on;
     * the next piece of token ids. */
    uint32_t w_name, w_pieces, w_key_pieces, w_keys, w_next, w_ids;
    uint8_t *w_key;                       /* w_keys x NAMES_KEY_ROOM */
    struct name_stale stale[NAMES_STALE]; /* a ring: stale_n ranges from index stale_at on */
    uint32_t stale_at, stale_n;
};

/* The present time of the clock by which names age: core_names_now_ms(). */
static inline uint64_t names_now(const struct core *c)
{
    return c->names->begun_ms + c->now_ms;
}
static inline uint32_t name_no(const struct core *c, const struct core_name *nm)
{
    return (uint32_t)(nm - c->names->name);
}

/* Copies n bytes as a zero-terminated text; the rest of `to` is zero, so texts can be compared as
 * bytes. */
static inline void name_text(char to[KVC_STRING_MAX], const uint8_t *from, uint32_t n)
{
    MUST(n < KVC_STRING_MAX);
    memset(to, 0, KVC_STRING_MAX);
    if (n > 0)
        memcpy(to, from, n);
}

/* ---- names.c ---- */

/* Makes a name that does not exist: LIVE and in order. NULL: the table is full, or the principal
 * has its share. */
struct core_name *name_new(struct core *c, uint8_t kind, const char *name,
                           const struct core_identity *who, const char *sub);
/* The LIVE name with these; NULL: there is none. */
struct core_name *name_get(struct core *c, uint8_t kind, const char *name, uint32_t principal,
                           const char *sub);
/* Ends a name: it is not found any more, and its blocks are released in slices. Its slot is freed
 * when these are released and the journal has the name no more. */
void name_go(struct core *c, struct core_name *nm);
/* Begins to release all blocks, ids and the pin of a slot, in slices: name_let_go(). */
void name_part(struct core *c, struct core_name *nm);
/* A spare slot for the blocks that a name is to hold; name_part() and `gone` end it. NULL, unless
 * `must`: none is free now. */
struct core_name *name_spare(struct core *c, bool must);
/* Runs a slice of releasing blocks. True: there is more to do. */
bool name_let_go(struct core *c, struct core_name *nm);
/* Continues name_let_go() in what is left of the slice. */
bool name_let_go_more(struct core *c, struct core_name *nm);
/* name_go() and name_let_go() in one piece. */
void name_end(struct core *c, struct core_name *nm);
/* Frees the name's slot, at once or with its last ref. */
void name_free(struct core *c, struct core_name *nm);
/* Sets the timer of the name's time to live anew. */
void name_arm(struct core *c, struct core_name *nm);
/* Begins the timers of names: from now on they can be set. */
void names_wheel(struct core *c);
/* Pins what is cached of seq for a name that has no pin. KVC_E_PIN_LIMIT, ... */
int name_pin(struct core *c, struct core_name *nm, const struct core_seq *seq) KVC_WARN_UNUSED;
/* Whether there is room for n token ids. */
bool name_ids_room(const struct names *n, uint32_t nids);
uint32_t name_ids_new(struct names *n);
void name_ids_free(struct names *n, uint32_t head);
/* Queues w until the journal has the name as it is now, and (saved) its blocks are on disk with a
 * promise: 1. 0: that is so already. */
int name_await(struct core *c, struct core_name *nm, struct core_name_waiter *w, bool saved);
/* Calls those waiters of the name whose content has been written, or (err) cannot be. */
void name_wake(struct core *c, struct core_name *nm, int err);

/* ---- names_hold.c ---- */

/* Makes the name hold one more block; the pool has room (names_refs_left()). The block's level
 * stays. */
void name_hold(struct core *c, struct core_name *nm, uint32_t group, uint32_t place,
               uint32_t block);
uint32_t names_refs_left(const struct names *n);
/* Raises a block that a name reaches, and all before it, to this level at least: no block has a
 * lower level than those behind it. */
void name_raise(struct core *c, uint32_t block, uint32_t priority);
/* For a name that ends: the ref releases its block, and moves to the block before it, if both are
 * reached by this name alone, or (all) if there is one; else the ref ends. Returns the record
 * number of the released block. */
uint32_t name_climb(struct core *c, struct core_name *nm, uint32_t ref, bool all);
/* The reverse: the name's first ref moves on to a child of its block. */
void name_descend(struct core *c, struct core_name *nm, uint32_t place, uint32_t child);
/* Exchanges the refs of two names. */
void names_swap_refs(struct core *c, struct core_name *a, struct core_name *b);
/* Begins to save the name's blocks: to write them to disk with a promise. */
void name_save(struct core *c, struct core_name *nm);
void name_save_cancel(struct core *c, struct core_name *nm);
/* Runs a step of saving; true: there is more. */
bool names_save_step(struct core *c);
/* How many of the name's tokens are still cached, by the blocks that it holds. */
uint32_t name_cached(struct core *c, const struct core_name *nm);

/* ---- names_evict.c ---- */

/* Last blocks of turns that have ended: partly filled, so that nothing follows them, where the
 * name's new chain has a fuller block. At most one for each group. */
struct passed_tips {
    struct run_entry e[KVC_GROUPS_MAX];
    uint32_t n;
};
/* Finds these among the blocks that `old` holds, which is what a name was before it moved to f's
 * prefix: it releases them. */
void names_passed(struct core *c, struct core_name *old, const struct find *f,
                  struct passed_tips *ret);
/* Removes these blocks, unless something holds them; then they are to be evicted first. nm (NULL:
 * the name has ended) has moved there, and has released what it had, its pin too. Returns whether
 * any was removed. */
bool names_let_passed_go(struct core *c, struct core_name *nm, const struct passed_tips *passed);

/* For a name that ends: releases one block, and evicts or counts it. */
void name_let_go_block(struct core *c, struct core_name *nm);

/* Whether hard limits allow all blocks that a name of f's prefix has to keep. nm: the name that
 * moves to this prefix, and releases at once the blocks that it leaves; NULL: a new name. 0,
 * KVC_E_QUOTA. */
int name_room_for(struct core *c, struct core_name *nm, const struct find *f,
                  bool pinned) KVC_WARN_UNUSED;

/* ---- names_put.c: pieces of core_name_put(), for slices ---- */

struct name_putting {
    struct core_name *next; /* the spare slot that takes the blocks; NULL: not begun, or ended */
    struct core_name *name; /* after name_put_end(): the name */
    uint64_t content;       /* its content then; another one: a later put has moved the name */
    struct core_forgetting old; /* after name_put_end(): the release of what the name had before */
    struct passed_tips passed;
    bool went;               /* some of `passed` were removed */
    bool whole;              /* the put is done in one piece, and name_room_for() has allowed it */
    uint32_t group, at;      /* the next block of the prefix to be held, or raised */
    uint32_t nids, last_ids; /* token ids copied so far; their last piece */
};
/* Begins a put of the blocks that f found. 0; KVC_E_BUSY: too many other puts are under way; else
 * as core_name_put(). */
int name_put_begin(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                   const struct find *f, const struct core_prefix *prefix, struct name_putting *p,
                   const char **ret_why) KVC_WARN_UNUSED;
/* Continues a put: 0 at its end; CORE_MORE when the slice is over. KVC_E_LIMIT with *ret_why.
 * Unless it is `whole` also KVC_E_GONE and KVC_E_QUOTA, which core_name_put() may decide
 * otherwise. */
int name_put_step(struct core *c, const struct core_name_put *in, const struct find *f,
                  struct name_putting *p, const char **ret_why) KVC_WARN_UNUSED;
/* The error of a put in slices in whose group g `err` came up. 0: core_name_put() in one piece has
 * to decide, because a block was removed, or the name's present blocks may make room, or a block
 * may count twice. */
int name_put_refused(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                     uint32_t g, int err, const char **ret_why) KVC_WARN_UNUSED;
/* Makes the name, or moves it: returns as core_name_put(). After an error the name is as before. */
int name_put_end(struct core *c, struct core_client *cl, const struct core_name_put *in,
                 const struct find *f, struct name_putting *p, struct core_name_waiter *waiter,
                 struct core_named *ret_named, const char **ret_why) KVC_WARN_UNUSED;
/* After name_put_end(), in slices: gives the blocks the name's priority, from the first one on;
 * then releases the blocks that the name had before; then removes passed ones. True: there is more,
 * the slice is over. */
bool name_put_settle(struct core *c, const struct find *f, struct name_putting *p);
/* Ends a put early: before name_put_end() the name stays as it was; after it background steps
 * release the blocks that the name had before. */
void name_put_drop(struct core *c, const struct find *f, struct name_putting *p);

/* ---- names_write.c ---- */

/* Queues the name, as it is now, or its end, for the journal. */
void name_write(struct core *c, struct core_name *nm);
/* Begins a commit of queued changes, if none is under way. */
void names_write_step(struct core *c);
/* Checks from time to time whether the journal's file is still there; if not, the journal has
 * failed. */
void names_look(struct core *c);
/* Notes pieces to be deleted from the journal. */
void name_stale(struct names *n, uint64_t content, uint32_t first, uint32_t pieces);
#define NAMES_PIECE_BITS  20u
#define NAME_HEAD_MAGIC   0x4d4e564bu /* "KVNM" */
#define NAME_HEAD_VERSION 1u

#endif
