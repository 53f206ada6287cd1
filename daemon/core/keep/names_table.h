/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of names, with what each holds and what is on its way to the journal: shared by the
 * files keep/names*.c.
 */
#ifndef KVC_CORE_NAMES_INTERNAL_H
#define KVC_CORE_NAMES_INTERNAL_H

#include "core_names.h"
#include "keep.h"
#include "wheel.h"

struct find;

/* Blocks that a name holds itself, on average: tips, and blocks that windows need. */
#define NAMES_REFS_EACH 8u
/* Partly filled first blocks that a name remembers: those of its last turns within that block. */
#define NAMES_ENDS 4u
/* Pieces of a name in the journal. */
#define NAMES_IDS      250u /* token ids of a piece */
#define NAMES_KEYS     27u  /* keys of a piece, with group and place */
#define NAMES_KEY_ROOM 37u
#define NAMES_W_KEYS   (KVC_KEYS_MAX + 1024u)
/* Changes of one commit of the journal, and names whose blocks are being saved at a time. */
#define NAMES_BATCH  256u
#define NAMES_SAVING 32u
/* Ranges of pieces to be deleted with later commits. Further ones are deleted at the next start. */
#define NAMES_STALE 4096u
/* After so long, blocks that could not be saved are tried again. */
#define NAMES_RETRY_NS UINT64_C(1000000000)
/* How often it is checked that the journal's file is where it was. */
#define NAMES_LOOK_NS UINT64_C(2000000000)
/* After so long, storage that makes room is asked again, unless it tells before. */
#define NAMES_PAUSE_MS 50u

/* Slots for puts, beside those of names: one for each put that is under way in slices, and one for
 * a put in one call. A slot that releases what a name was before is among the former. */
#define NAMES_SPARES (ASKS_MAX + 1u)

/* COMING: a spare slot takes the blocks that a name is to have. GOING: the journal still has it, or
 * it has not released all its blocks. */
enum name_state { NAME_FREE, NAME_LIVE, NAME_COMING, NAME_GOING };

struct core_name {
    uint8_t state; /* enum name_state */
    uint8_t kind;
    uint8_t priority;
    bool pinned;
    bool cut;       /* some block that it reached was removed */
    bool saved;     /* its blocks are on disk with a promise */
    bool active;    /* its promise is in core->promises */
    bool in_flight; /* its head is in the commit that is under way */
    bool evicts;    /* GOING: blocks that nothing else needs are evicted with it */
    bool gone;      /* GOING: the journal does not have it, but it still has refs */
    bool spare;     /* not a name: its slot is one of NAMES_SPARES */
    uint32_t next;  /* FREE: the next one */
    uint32_t principal;
    const char *owner, *tenant; /* borrowed from the identity */
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    uint64_t print; /* of its namespace */
    uint32_t tokens, blocks;
    uint64_t bytes;
    uint32_t refs;                         /* head of its list, CORE_NONE */
    uint32_t ids, nids;                    /* head of its pieces of token ids, CORE_NONE */
    uint64_t pin;                          /* its pin, 0: none */
    uint64_t ttl_ms, made_ms, used_ms;     /* the last two: names_now() */
    struct run_entry ends[NAMES_ENDS];     /* first blocks that it has passed, and that stayed */
    uint64_t content;                      /* grows with each put: the number of its content */
    uint64_t written;                      /* the content in the journal, 0: none */
    uint32_t written_keys, written_pieces; /* of that content: pieces of keys; all pieces but the
                                            * head */
    struct list_node write;                /* names->writing */
    struct list_node save;                 /* names->saving */
    struct list_node waiters;              /* core_name_waiter */
    struct list_node leave;                /* names->leaving, while its blocks are released */
    struct core_forgetting *forgetting;    /* who waits for the release; NULL: nobody */
    uint32_t beside; /* of the release: tokens of the block behind the next one; 0: none is */
    struct promise promise;
    struct wheel_timer ttl, retry;
    struct core *core;
};

/* A ref: a block that a name holds itself: the tip of a FULL group, or each block that another
 * group needs. */
struct name_ref {
    uint32_t block, name;
    uint32_t next_of_name, prev_of_name, next_of_block, prev_of_block; /* CORE_NONE */
    uint32_t group, place; /* place: which block of its group, counted from the first */
};

struct name_ids {
    uint32_t next, n;
    uint32_t id[NAMES_IDS];
};

/* Pieces in the journal that belong to nothing any more. */
struct name_stale {
    uint64_t content;
    uint32_t first, n;
};

struct name_commit {
    struct journal_commit commit;
    struct journal_change change[NAMES_BATCH];
    uint8_t value[NAMES_BATCH][JOURNAL_VALUE_MAX];
    uint32_t n;
    struct {
        uint32_t name, keys, pieces;
        uint64_t content; /* 0: the journal does not have it any more */
    } head[NAMES_BATCH];  /* names that are written when the commit is done */
    uint32_t nheads;
    bool in_flight;
};

struct names {
    struct core_name *name;
    uint32_t max, high, free, spares; /* spares: in use */
    uint32_t *order;                  /* the LIVE names, by kind, name, principal, sub-tenant */
    uint32_t count;
    struct share share;
    struct name_ref *ref;
    uint32_t refs_max, refs_high, refs_free, refs_used;
    struct name_ids *ids;
    uint32_t ids_max, ids_high, ids_free, ids_used;
    uint8_t *keys; /* scratch of core_name_seq() */
    struct wheel wheel;
    bool wheel_on;
    uint64_t serial;   /* of contents */
    uint64_t begun_ms; /* names_now() at core time 0 */

    struct journal *journal;
    int error;
    uint64_t look_ns; /* when the journal's file is checked next */
    struct list_node writing, saving, leaving;
    uint32_t active;
    uint64_t pause_ms; /* nothing is begun before, because storage makes room */
    struct name_commit commit;
    /* The content that is being written, piece by piece: of the first name in `writing`. */
    uint64_t w_content; /* 0: none */
    uint32_t w_name, w_pieces, w_key_pieces, w_keys, w_next, w_ids;
    uint8_t *w_key; /* w_keys x NAMES_KEY_ROOM */
    struct name_stale stale[NAMES_STALE];
    uint32_t stale_at, stale_n;
};

static inline uint64_t names_now(const struct core *c)
{
    return c->names->begun_ms + c->now_ms;
}
static inline uint32_t name_no(const struct core *c, const struct core_name *nm)
{
    return (uint32_t)(nm - c->names->name);
}

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
struct core_name *name_get(struct core *c, uint8_t kind, const char *name, uint32_t principal,
                           const char *sub);
/* Ends a name: nobody finds it any more, and its blocks are released in slices; its slot is freed
 * when the journal does not have it any more either. */
void name_go(struct core *c, struct core_name *nm);
/* Begins to release all that a slot has, in slices: name_leave(). */
void name_part(struct core *c, struct core_name *nm);
/* A spare slot for what a name is to hold; name_part() and `gone` end it. NULL, unless `must`: none
 * is free now. */
struct core_name *name_spare(struct core *c, bool must);
/* Runs a slice of releasing blocks. True: there is more to do. */
bool name_leave(struct core *c, struct core_name *nm);
/* Continues name_leave() in what is left of the slice. */
bool name_leave_more(struct core *c, struct core_name *nm);
/* name_go() and name_leave() in one piece. */
void name_end(struct core *c, struct core_name *nm);
/* Frees its slot, at once or with its last ref. */
void name_free(struct core *c, struct core_name *nm);
void name_arm(struct core *c, struct core_name *nm);
/* Begins the timers of names: they can be set from now on. */
void names_wheel(struct core *c);
/* Pins what is cached of seq for a name that has no pin. KVC_E_PIN_LIMIT, ... */
int name_pin(struct core *c, struct core_name *nm, const struct core_seq *seq) KVC_WARN_UNUSED;
/* Whether there is room for n token ids. */
bool name_ids_room(const struct names *n, uint32_t nids);
uint32_t name_ids_new(struct names *n);
void name_ids_free(struct names *n, uint32_t head);
/* Queues w until the journal has the name as it is now, and (saved) storage its blocks: 1. 0: they
 * have. */
int name_await(struct core *c, struct core_name *nm, struct core_name_waiter *w, bool saved);
/* Calls the waiters of what has been written, or (err) will not be. */
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
/* For a name that ends: the ref releases its block and holds the one before, as long as that is for
 * this name alone, or (all) to the first. Returns the block. */
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

/* For a name that ends: one block is released, evicted or counted. */
void name_leave_block(struct core *c, struct core_name *nm);

/* Whether hard limits allow all blocks that a name of f's prefix has to keep. nm: the name that
 * moves there and releases at once what it leaves, NULL: a new one. KVC_E_QUOTA. */
int name_room_for(struct core *c, struct core_name *nm, const struct find *f,
                  bool pinned) KVC_WARN_UNUSED;

/* ---- names_put.c: pieces of core_name_put(), for slices ---- */

struct name_putting {
    struct core_name *next; /* the spare slot, which nobody sees; NULL: not begun, or ended */
    struct core_name *name; /* the name after its end, unless another put was later: */
    uint64_t content;
    struct core_forgetting old; /* then: what the name was before */
    struct passed_tips passed;
    bool went;          /* some of `passed` were removed */
    bool whole;         /* in one piece: name_room_for() has allowed it */
    uint32_t group, at; /* in the prefix: the next block to be held, or raised */
    uint32_t nids, last_ids;
};
/* Begins a put of what f found, which `prefix` tells. 0; KVC_E_BUSY: too many others are under way;
 * else as core_name_put(). */
int name_put_begin(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                   const struct find *f, const struct core_prefix *prefix, struct name_putting *p,
                   const char **ret_why) KVC_WARN_UNUSED;
/* Continues a put: 0 at its end; CORE_MORE when the slice is over. KVC_E_LIMIT with *ret_why.
 * Unless it is `whole` also KVC_E_GONE and KVC_E_QUOTA, which core_name_put() may decide
 * otherwise. */
int name_put_step(struct core *c, const struct core_name_put *in, const struct find *f,
                  struct name_putting *p, const char **ret_why) KVC_WARN_UNUSED;
/* The answer to a put whose blocks of group g met `err`. 0: the whole has to be looked at, because
 * a block was removed, or the name's present blocks may make room, or a block may count twice. */
int name_put_refused(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                     uint32_t g, int err, const char **ret_why) KVC_WARN_UNUSED;
/* Makes the name, or moves it: as core_name_put(). An error leaves it as it was. */
int name_put_end(struct core *c, struct core_client *cl, const struct core_name_put *in,
                 const struct find *f, struct name_putting *p, struct core_name_waiter *waiter,
                 struct core_named *ret_named, const char **ret_why) KVC_WARN_UNUSED;
/* After the end, in slices: gives the blocks the name's priority, from the first one on; then
 * releases what the name had; then removes what it has passed. True: there is more, the slice is
 * over. */
bool name_put_settle(struct core *c, const struct find *f, struct name_putting *p);
/* Ends a put early, which then changes nothing; after its end the core releases by itself what the
 * name had. */
void name_put_drop(struct core *c, const struct find *f, struct name_putting *p);

/* ---- names_write.c ---- */

/* The name as it is, or its end, is to be written to the journal. */
void name_write(struct core *c, struct core_name *nm);
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
