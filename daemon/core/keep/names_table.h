/* SPDX-License-Identifier: Apache-2.0 */
/* Shared among the core's files of names. */
#ifndef KVC_CORE_NAMES_INTERNAL_H
#define KVC_CORE_NAMES_INTERNAL_H

#include "core_names.h"
#include "keep.h"
#include "wheel.h"

struct find;

/* Blocks that names hold themselves: tips, and what windows need. */
#define NAMES_REFS_EACH 8u
/* Partly filled first blocks that a name remembers: those of its last turns within that block. */
#define NAMES_ENDS 4u
/* A piece of a name as the journal has it. */
#define NAMES_IDS      250u /* token ids of one */
#define NAMES_KEYS     27u  /* keys of one, with group and place */
#define NAMES_KEY_ROOM 37u
#define NAMES_W_KEYS   (KVC_KEYS_MAX + 1024u)
/* Changes of one commit, and names whose blocks are being saved at a time. */
#define NAMES_BATCH  256u
#define NAMES_SAVING 32u
/* Pieces to be deleted in passing: ranges. What does not fit goes at the next start. */
#define NAMES_STALE 4096u
/* Blocks that could not be saved are tried again so much later. */
#define NAMES_RETRY_NS UINT64_C(1000000000)
/* So often it is asked whether the journal's file is where it was. */
#define NAMES_LOOK_NS UINT64_C(2000000000)
/* Storage that makes room is asked again so much later, unless it says so before. */
#define NAMES_PAUSE_MS 50u

/* Of puts, beside the names: each that is under way in slices has one, and one that is not, for its
 * call; those that let go of what a name was before are among the former. */
#define NAMES_SPARES (ASKS_MAX + 1u)

/* COMING: a spare slot takes the blocks that a name is to have. GOING: the journal has it still, or
 * it has not let go of all its blocks. */
enum name_state { NAME_FREE, NAME_LIVE, NAME_COMING, NAME_GOING };

struct core_name {
    uint8_t state; /* enum name_state */
    uint8_t kind;
    uint8_t priority;
    bool pinned;
    bool cut;       /* something of what it reached is gone */
    bool saved;     /* its blocks are on disk with a promise */
    bool active;    /* its promise is in core->promises */
    bool in_flight; /* its head is in the commit that is under way */
    bool evicts;    /* GOING: what nothing else needs goes with it */
    bool gone;      /* GOING: the journal does not have it, and it has refs yet */
    bool spare;     /* no name: its slot is one of NAMES_SPARES */
    uint32_t next;  /* FREE: the next one */
    uint32_t principal;
    const char *owner, *tenant; /* borrowed from the identity */
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    uint64_t print; /* of its namespace */
    uint32_t tokens, blocks;
    uint64_t bytes;
    uint32_t refs;                         /* head of its list, CORE_NONE */
    uint32_t ids, nids;                    /* head of its pieces of token ids, CORE_NONE */
    uint64_t pin;                          /* of one that is pinned, 0: none */
    uint64_t ttl_ms, made_ms, used_ms;     /* the last two: names_now() */
    struct run_entry ends[NAMES_ENDS];     /* first blocks that it has passed, and that stayed */
    uint64_t content;                      /* grows with each put: number of what it is */
    uint64_t written;                      /* the content that the journal has, 0: none */
    uint32_t written_keys, written_pieces; /* of it: pieces of keys; all but the head */
    struct list_node write;                /* names->writing */
    struct list_node save;                 /* names->saving */
    struct list_node waiters;              /* core_name_waiter */
    struct list_node leave;                /* names->leaving, while it lets go of its blocks */
    struct core_forgetting *forgetting;    /* who waits for that; NULL: nobody */
    uint32_t beside; /* of that: tokens of the block behind the next one; 0: none is */
    struct promise promise;
    struct wheel_timer ttl, retry;
    struct core *core;
};

/* A block that a name holds itself: the tip of a FULL group, each block that another group needs.
 */
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
        uint64_t content; /* 0: it is gone from there */
    } head[NAMES_BATCH];  /* names that are through when it is done */
    uint32_t nheads;
    bool in_flight;
};

struct names {
    struct core_name *name;
    uint32_t max, high, free, spares; /* spares: in use */
    uint32_t *order; /* those that are LIVE, by kind, name, principal, sub-tenant */
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
    uint64_t look_ns; /* whether it stands is asked then */
    struct list_node writing, saving, leaving;
    uint32_t active;
    uint64_t pause_ms; /* nothing is begun before: storage makes room */
    struct name_commit commit;
    /* What is being written, piece by piece: of the first in `writing`. */
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

/* A name that is not there: LIVE and in order. NULL: the table is full, or its principal's share
 * is. */
struct core_name *name_new(struct core *c, uint8_t kind, const char *name,
                           const struct core_identity *who, const char *sub);
struct core_name *name_get(struct core *c, uint8_t kind, const char *name, uint32_t principal,
                           const char *sub);
/* Nobody finds it any more, and it lets go of its blocks in slices; its slot goes when the journal
 * does not have it any more either. */
void name_go(struct core *c, struct core_name *nm);
/* It lets go of all that it has, in slices: name_leave(). */
void name_part(struct core *c, struct core_name *nm);
/* A slot that holds what a name is to hold; name_part() and `gone` are its end. NULL, unless it
 * must: none is free now. */
struct core_name *name_spare(struct core *c, bool must);
/* A slice of that. True: there is more to do. */
bool name_leave(struct core *c, struct core_name *nm);
/* What is left of the slice. */
bool name_leave_more(struct core *c, struct core_name *nm);
/* Both in one piece. */
void name_end(struct core *c, struct core_name *nm);
/* Its slot goes, at once or with its last ref. */
void name_free(struct core *c, struct core_name *nm);
void name_arm(struct core *c, struct core_name *nm);
/* Timers can be set from now on. */
void names_wheel(struct core *c);
/* Pins what is cached of seq for it, which has no pin. KVC_E_PIN_LIMIT, ... */
int name_pin(struct core *c, struct core_name *nm, const struct core_seq *seq) KVC_WARN_UNUSED;
/* Room for n token ids. false: there is none. */
bool name_ids_room(const struct names *n, uint32_t nids);
uint32_t name_ids_new(struct names *n);
void name_ids_free(struct names *n, uint32_t head);
/* 1: w waits until the journal has what it is now, and (saved) storage its blocks; 0: they have. */
int name_await(struct core *c, struct core_name *nm, struct core_name_waiter *w, bool saved);
/* Those that wait for what has come, or (err) will not. */
void name_wake(struct core *c, struct core_name *nm, int err);

/* ---- names_hold.c ---- */

/* One more block that the name holds; the pool has room (names_refs_left()). Its level is as it
 * was.
 */
void name_hold(struct core *c, struct core_name *nm, uint32_t group, uint32_t place,
               uint32_t block);
uint32_t names_refs_left(const struct names *n);
/* A block that a name reaches has this level at least, and so has all before it: none has a lower
 * one than those behind it. */
void name_raise(struct core *c, uint32_t block, uint32_t priority);
/* Of a name that goes: a ref lets go of its block, and moves to the one before, while that is for
 * this name alone or (all) to the first. Returns the block. */
uint32_t name_climb(struct core *c, struct core_name *nm, uint32_t ref, bool all);
/* The other way: its first ref moves on to a child of its block. */
void name_descend(struct core *c, struct core_name *nm, uint32_t place, uint32_t child);
/* Two names have each other's refs from now on. */
void names_swap_refs(struct core *c, struct core_name *a, struct core_name *b);
/* Its blocks are to be saved. */
void name_save(struct core *c, struct core_name *nm);
void name_save_cancel(struct core *c, struct core_name *nm);
/* True while there is more. */
bool names_save_step(struct core *c);
/* Tokens that a hit needs no more than what the name holds for. */
uint32_t name_cached(struct core *c, const struct core_name *nm);

/* ---- names_evict.c ---- */

/* Last blocks of turns that are over: partly filled, so that nothing follows them, where the name's
 * new chain has a fuller block. At most one of each group. */
struct passed_tips {
    struct run_entry e[KVC_GROUPS_MAX];
    uint32_t n;
};
/* Of the blocks that `old` holds, which is what was a name before it moved to f's prefix: it lets
 * go of them. */
void names_passed(struct core *c, struct core_name *old, const struct find *f,
                  struct passed_tips *ret);
/* They go, unless something holds them: then they go first. The name (NULL: it is none any more) is
 * where it moves to, and has let go of what it had, its pin too. Whether any went. */
bool names_let_passed_go(struct core *c, struct core_name *nm, const struct passed_tips *passed);

/* Of a name that goes: one block is let go of, evicted or counted. */
void name_leave_block(struct core *c, struct core_name *nm);

/* Whether hard limits allow all that a name of f's prefix has to keep; nm: the name that moves
 * there and lets go at once of what it leaves, NULL: a new one. KVC_E_QUOTA. */
int name_room_for(struct core *c, struct core_name *nm, const struct find *f,
                  bool pinned) KVC_WARN_UNUSED;

/* ---- names_put.c: pieces of core_name_put(), for slices ---- */

struct name_putting {
    struct core_name *next; /* nobody sees it; NULL: not begun, or at its end */
    struct core_name *name; /* that is there at its end, unless another put has come since: */
    uint64_t content;
    struct core_forgetting old; /* then: what it was */
    struct passed_tips passed;
    bool went;          /* some of these have */
    bool whole;         /* in one piece: name_room_for() has allowed it */
    uint32_t group, at; /* of the prefix: the next block that it is to hold, or to raise */
    uint32_t nids, last_ids;
};
/* Of what f found, which `prefix` tells. 0; KVC_E_BUSY: too many others are under way; else as
 * core_name_put(). */
int name_put_begin(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                   const struct find *f, const struct core_prefix *prefix, struct name_putting *p,
                   const char **ret_why) KVC_WARN_UNUSED;
/* Goes on until it is through, which is 0, or the slice is over: CORE_MORE. KVC_E_LIMIT with
 * *ret_why. Unless it is `whole` also KVC_E_GONE, KVC_E_QUOTA: core_name_put() knows better. */
int name_put_step(struct core *c, const struct core_name_put *in, const struct find *f,
                  struct name_putting *p, const char **ret_why) KVC_WARN_UNUSED;
/* What a put whose blocks of group g met `err` is told. 0: all of it has to be looked at, for
 * something has gone, or room may come of what the name has now, or a block may count twice. */
int name_put_refused(struct core *c, const struct core_client *cl, const struct core_name_put *in,
                     uint32_t g, int err, const char **ret_why) KVC_WARN_UNUSED;
/* The name is there, or has moved: as core_name_put(). An error leaves it as it was. */
int name_put_end(struct core *c, struct core_client *cl, const struct core_name_put *in,
                 const struct find *f, struct name_putting *p, struct core_name_waiter *waiter,
                 struct core_named *ret_named, const char **ret_why) KVC_WARN_UNUSED;
/* Behind the end: its blocks have the name's priority, from the first one on; what it had is let go
 * of; then what it has passed goes. True: there is more, the slice is over. */
bool name_put_settle(struct core *c, const struct find *f, struct name_putting *p);
/* It will not be, and changes nothing; or it is, and the core goes on with what it had. */
void name_put_drop(struct core *c, const struct find *f, struct name_putting *p);

/* ---- names_write.c ---- */

/* What it is, or that it goes, is to be in the journal. */
void name_write(struct core *c, struct core_name *nm);
void names_write_step(struct core *c);
/* From time to time: a journal that does not stand any more has failed. */
void names_look(struct core *c);
/* These pieces are to go from the journal. */
void name_stale(struct names *n, uint64_t content, uint32_t first, uint32_t pieces);
#define NAMES_PIECE_BITS  20u
#define NAME_HEAD_MAGIC   0x4d4e564bu /* "KVNM" */
#define NAME_HEAD_VERSION 1u

#endif
