/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a session, shared by the files of this directory.
 *
 * Life of the link: DOWN -> ATTACHING (attach channel connected, WELCOME awaited) -> GREETING
 * (control socket connected, HELLO unanswered) -> REOPENING (an epoch begins; known namespaces are
 * being opened) -> UP -> DOWN. Only kvc__down() leads back.
 *
 * Life of an op: NEW -> SENT -> DONE. Between them a request may be PARKED until its namespace and
 * its pool are open, an acquire may wait for CHUNKS, and what has come too late and borrows the
 * caller's memory is QUIESCING until its CANCEL is answered. When the link ends, an op that borrows
 * pages is in DAEMON_EXIT until the daemon's copies have ended. Arriving messages move
 * ops on; nothing but op__await and its like waits.
 *
 * Everything runs in the caller's thread inside some call; libzmq's I/O thread only moves bytes.
 */
#ifndef KVC_CLIENT_H
#define KVC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <kvcache/admin.h>
#include <kvcache/async.h>
#include <kvcache/gpu.h>
#include <kvcache/kvcache.h>

#include "codec.h"
#include "map.h"
#include "must.h"
#include "wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "offsets, token ids and leases go to the wire as they are in memory");

/* Requests of the caller in flight, parked ones too. The daemon's own limit is lower by default. */
#define OPS_MAX 1024u
/* Buckets in which a request is found by its correlation id. */
#define OPS_SLOTS 1024u
/* How long after its deadline a reply is still awaited: the daemon answers at the deadline, and its
 * answer travels. Also how long the reply to a CANCEL is awaited. */
#define GRACE_MS         250u
#define RECONNECT_MIN_MS 100u
#define RECONNECT_MAX_MS 2000u
/* How long a call other than kvc_open waits for a WELCOME; a daemon that needs longer (it
 * pre-faults the staging area) is asked again by later calls, until the attach is given up. */
#define WELCOME_WAIT_MS 250u
#define WELCOME_MAX_MS  30000u
/* How long the daemon's copies from and to pages may go on after the link has ended, where it is
 * not known that its process has. */
#define DAEMON_EXIT_MS   2000u
#define DAEMON_EXITS_MAX 4u
/* How long a call waits for the answer to the probe of a daemon that let a request's time pass;
 * counted from the probe's sending, so that all calls together wait for it once. */
#define PROBE_WAIT_MS 125u
/* How often a call looks at the attach channel without a reason to. */
#define NEWS_INTERVAL_MS 10u

#define NS_PER_MS UINT64_C(1000000)

enum link_state { LINK_DOWN, LINK_ATTACHING, LINK_GREETING, LINK_REOPENING, LINK_UP };
enum op_stage {
    OP_NEW,
    OP_SENT,
    OP_PARKED,
    OP_CHUNKS,
    OP_QUIESCING,
    OP_DAEMON_EXIT,
    OP_DONE,
    OP_FREE /* in the free list */
};

/* An open namespace. `canon` is its NS_OPEN request with correlation id 0: what tells two
 * specifications apart, and what is sent again after a reconnect. */
struct kvc_ns {
    struct kvc *kvc;
    struct kvc_ns *next;
    uint32_t id;
    uint32_t epoch;         /* in which it was last opened */
    int error;              /* why the daemon of that epoch refused it; 0 = open */
    bool has_seed;          /* a daemon has opened it */
    struct kvc_op *opening; /* NS_OPEN in flight, for which parked ops wait; else NULL */
    uint8_t seed[KVC_KEY_BYTES];
    bool with_tokens;
    uint32_t groups;
    struct msg_group group[KVC_GROUPS_MAX];
    size_t canon_len;
    uint8_t canon[];
};

/* A request, from its making until its outcome has been taken. */
struct kvc_op {
    struct kvc *kvc;
    struct kvc_op *prev, *next; /* live list; next alone: free list */
    struct kvc_op *ready_prev, *ready_next;
    struct kvc_op *slot_next;
    struct kvc_ns *ns; /* where the outcome needs it, else NULL */
    struct msg_head head;
    uint64_t grace_ns; /* when the wait ends, whatever the daemon does */
    uint32_t epoch;
    enum op_stage stage;
    bool listed;     /* to be handed out by kvc_next when it is done */
    bool ready;      /* in the ready list */
    bool borrows;    /* the daemon may touch staging or pages until this op is done */
    bool is_callers; /* counts against OPS_MAX */
    bool retried;    /* sent again because the daemon had let its namespace go */
    bool owns_ns;    /* NS_OPEN: ns is not in the session's list */
    bool is_overdue; /* cancelled by the library, for its time was up */
    bool declined;   /* RESERVE, STORE: KVC_F_NO_STORE; nothing was sent */
    int error;       /* DONE, QUIESCING: 0 = msg holds a reply with status OK */
    /* Set for the library's own requests: takes the op over when its reply came or is given up.
     * When the link goes down they are freed without it. */
    void (*then)(struct kvc_op *op);
    /* Of the caller's: what a reply with status OK brings; it completes the op, or sees to that.
     * NULL: the reply is the outcome. */
    void (*arrived)(struct kvc_op *op);
    /* What a request leaves behind that is freed, whatever came of it; or NULL. */
    void (*let_go)(struct kvc_op *op);
    struct kvc_op *partner; /* of a CANCEL its target, of a target its CANCEL, else NULL */
    uint32_t ns_id;         /* that `sent` names */
    struct wire_msg sent;   /* the request, of ops that may be sent again or need it later */
    struct wire_msg msg;    /* the reply */
    struct hold *hold;      /* ACQUIRE, REDEEM: filled, until it is taken */
    uint64_t reservation;   /* COMMIT: handle */
    uint32_t group, blocks; /* what counts as dropped */
    void *user;
    /* PAGES_LOAD, PAGES_STORE: whose pages; NULL when that was closed. POOL_OPEN: the pool. */
    struct kvc_pool *pool;
    /* PAGES_LOAD: number + 1 of the word, on the page of this epoch, that is to be ready_at at
     * least when it is done; 0 = none. */
    uint32_t ready_word, ready_epoch;
    uint64_t ready_at;
};

struct hold {
    struct kvc_hold pub; /* first: the caller's pointer is the struct's */
    struct kvc *kvc;
    struct hold *prev, *next; /* live list; next alone: free list */
    struct kvc_block *block;
    uint32_t block_cap, blocks;
    const void **slot; /* of each block: its device address, or NULL */
    uint32_t slot_cap;
    bool is_live;     /* in the live list */
    bool on_device;   /* of ACQUIRE_ON: `slot` is filled */
    struct map **map; /* one reference each */
    uint32_t map_cap, maps;
};

/* The attach connection of an epoch that has ended; orphan.c's. */
struct orphan {
    struct orphan *next;
    int fd;
    uint32_t epoch;
};

/* The daemon of an epoch whose copies may still run; daemon_exit.c's. */
struct daemon_exit {
    int pidfd; /* -1: free, or its end cannot be told */
    uint32_t epoch;
};

/* What the caller's loop watches; watch.c's. All -1 until kvc_fd was called. */
struct watch {
    int epoll, event, timer;
    bool raised;       /* event is readable */
    bool blind;        /* a descriptor could not be added */
    uint64_t armed_ns; /* when timer becomes readable; 0 = never */
};

/* The staging area; staging.c maps and unmaps it. */
struct staging {
    uint64_t wanted; /* bytes that kvc_open asks of the daemon */
    uint8_t *at;     /* of the last epoch that had an area; stays mapped while the link is down */
    uint64_t bytes;
    uint32_t epoch;        /* in which `at` was mapped */
    uint32_t asked;        /* epoch in which the caller last called kvc_staging() */
    struct device *pinned; /* the device with which `at` is registered, counted; or NULL */
    uint8_t *before;       /* an older area: the caller may write to it until kvc_staging() */
    uint64_t before_bytes;
};

/* All ops of a session; op_life.c keeps the lists. */
struct ops {
    uint64_t corr;                  /* correlation id of the last request */
    struct kvc_op *slot[OPS_SLOTS]; /* undone ops by correlation id; chains of slot_next */
    struct kvc_op *live, *free;
    struct kvc_op *ready_first, *ready_last; /* listed and done: kvc_next hands them out */
    uint32_t ready_n;
    uint32_t in_flight; /* the caller's undone ops */
};

struct holds {
    struct hold *live, *free;
};

/* Completion words; words.c has the pages, stream.c asks for them. */
struct word_pages {
    struct words *pages; /* the newest first */
    uint32_t asked;      /* epoch in which WORDS was sent */
    uint32_t given;      /* epoch of the page that the caller has seen last */
    int error;           /* why epoch `asked` has no page; 0: it has one, or no answer came yet */
};

/* Memories on devices; mem.c's. A memory's number names it to the daemon. */
struct mems {
    struct kvc_mem *by_no[KVC_MEMS_MAX];
    uint32_t void_epoch[KVC_MEMS_MAX]; /* epoch in which this number must not be given again */
    uint32_t asked;                    /* MEM requests that are unanswered */
};

struct kvc {
    struct fork_guard *fork; /* fork.c's */

    /* Takes in a datagram of the attach channel: 0, or an error with the link down. */
    int (*take_news)(struct kvc *k, const uint8_t *buf, size_t len, int passed);

    char *socket;
    char name[64];
    uint32_t shard, timeout_ms;
    bool must_connect;

    enum link_state state;
    int attach_fd; /* -1 in DOWN */
    struct wire wire;
    uint32_t epoch;
    uint64_t next_try_ns, attach_until_ns, news_ns;
    uint32_t backoff_ms;
    int down_error; /* what the link went down with */
    /* Since when the daemon is silent: it let a wait pass without a word, and has said nothing
     * since; 0 = it is not. Nobody waits for a silent daemon. */
    uint64_t silent_ns;
    bool is_probed;     /* a PING of the library's own is unanswered */
    uint32_t reopening; /* namespaces unanswered in REOPENING */
    struct orphan *orphans;
    struct orphan
        *next_orphan; /* for the next session that ends: it must not fail; NULL only while DOWN */
    struct asked *asked; /* questions about chunks; link.c's. NULL: none was ever asked */
    struct daemon_exit exit[DAEMON_EXITS_MAX];
    struct watch watch;

    struct staging staging;
    struct map_table maps;

    struct kvc_gpu *gpus;
    struct word_pages words;
    struct mems mems;
    struct kvc_pool *pool[KVC_POOLS_MAX];

    uint8_t *tx; /* KVC_MESSAGE_MAX bytes; pages are touched as messages grow */
    struct ops ops;
    struct holds holds;
    struct resv_table *resvs; /* write.c's; NULL: nothing was ever reserved */
    struct kvc_ns *ns;

    struct kvc_counters counters;
    uint8_t statuses[KVC_STORE_MAX]; /* of the last kvc_finish */
    char error[512];
};

static inline uint64_t kvc__now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t kvc__min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whole milliseconds from now until then, rounded up; 0 when it has passed. */
static inline uint32_t kvc__ms_until(uint64_t then_ns)
{
    uint64_t now = kvc__now();
    return then_ns <= now ? 0 : (uint32_t)((then_ns - now + NS_PER_MS - 1) / NS_PER_MS);
}

/* The same for poll(2). */
static inline int kvc__poll_ms(uint64_t until_ns)
{
    uint32_t ms = kvc__ms_until(until_ns);
    return ms > 60000 ? 60000 : (int)ms;
}

/* When a call with this timeout (0 = the session's) ends. */
static inline uint64_t kvc__deadline(const struct kvc *k, uint32_t timeout_ms)
{
    return kvc__now() + NS_PER_MS * (timeout_ms != 0 ? timeout_ms : k->timeout_ms);
}

/* Whether a call may wait for the link. */
enum half { BLOCKING, BEGINNING };

/* No daemon, or one that is going: a miss, or a dropped store. */
static inline bool kvc__is_down(int error)
{
    return error == KVC_E_DOWN || error == KVC_E_SHUTDOWN;
}

/* For who reads it is all one whether there is no daemon or one that does not answer in time. */
static inline bool kvc__is_miss(int error)
{
    return kvc__is_down(error) || error == KVC_E_TIMEOUT;
}

/* ---- error_names.c ---- */

/* A status other than OK as the value that the API returns. */
int kvc__status_error(unsigned status);
/* Keeps the text for kvc_last_error and returns `error`. */
int kvc__fail(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- fork.c ---- */

/* A session of this process from here to fork__leave. */
__attribute__((warn_unused_result)) int fork__enter(struct kvc *k);
void fork__leave(struct kvc *k);
/* Whether this process is a child of the one that opened the session. */
bool fork__is_child(const struct kvc *k);
/* Between them no other thread of this process forks: a child closes the descriptors that it finds
 * in the sessions, so they must be there as soon as they are open. */
void fork__hold_off(void);
void fork__go_on(void);

/* ---- daemon_exit.c ---- */

/* The link ends while the daemon may be copying from or to pages. Before attach_fd is closed.
 * Returns whether the daemon's process is known to have ended already. */
bool daemon_exit__begin(struct kvc *k);
/* Whether this op has to wait for the daemon's exit: takes it over then. */
__attribute__((warn_unused_result)) bool daemon_exit__takes(struct kvc_op *op, int error);
/* Waits for that exit, until the op's grace deadline at most. */
void daemon_exit__wait(const struct kvc_op *op);
/* Completes what has ended by now. */
void daemon_exit__look(struct kvc *k);
/* Closes what is left, in a child of fork() too. */
void daemon_exit__close(struct kvc *k);

/* ---- orphan.c ---- */

/* Allocates what the next parting needs. -ENOMEM. */
__attribute__((warn_unused_result)) int orphan__prepare(struct kvc *k);
/* Takes the attach connection over, if blocks of this epoch are held; else leaves it. `tell`: the
 * daemon does not know yet that the session ends. */
void orphan__add(struct kvc *k, bool tell);
/* Whether the daemon still keeps what was held in that epoch: not when it has died since. */
bool orphan__has(const struct kvc *k, uint32_t epoch);
/* Closes the connections of which nothing is held any more. */
void orphan__sweep(struct kvc *k);

/* ---- watch.c ---- */

/* A descriptor of the link has come, or is about to be closed. */
void watch__add(struct kvc *k, int fd);
void watch__remove(struct kvc *k, int fd);
/* Makes the caller's descriptor readable now or later, as the session's state asks for. Everything
 * that receives, sends or completes ends with it. */
void watch__update(struct kvc *k);
void watch__close(struct kvc *k);

/* ---- staging.c ---- */

/* Registered with a device no more: it is about to be other memory. */
void staging__unpin(struct kvc *k);
/* The link ends: what the daemon may still read is its own from now on. */
void staging__leave(struct kvc *k);
/* The area of the epoch that begins. 0; -EPROTO: the file is shorter than that; another error, with
 * no staging then. */
__attribute__((warn_unused_result)) int staging__map(struct kvc *k, int fd, uint64_t bytes);
/* The caller has asked for the new area. */
void staging__forget_before(struct kvc *k);
void staging__destroy(struct kvc *k);

/* ---- op_life.c ---- */

/* An op that is never sent: the next call is op__complete(). -ENOMEM. */
__attribute__((warn_unused_result)) int op__new_unsent(struct kvc *k, uint8_t code,
                                                       struct kvc_op **ret_op);
/* One of the library's own, with head filled in, to be sent. Also KVC_E_TIMEOUT. */
__attribute__((warn_unused_result)) int op__new_own(struct kvc *k, uint8_t code,
                                                    uint64_t deadline_ns, struct kvc_op **ret_op);
/* One of the caller's. Also KVC_E_BUSY: OPS_MAX are in flight. */
__attribute__((warn_unused_result)) int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns,
                                                struct kvc_op **ret_op);
/* The op that awaits the reply with this id; NULL: none does. */
struct kvc_op *op__find(struct kvc *k, uint64_t corr);
/* From its making on an op is found; then again from `enter`, and not from `leave`. */
void op__slot_enter(struct kvc_op *op);
void op__slot_leave(struct kvc_op *op);
/* Ends the op with this outcome; one of the library's own is taken over (then). */
void op__end(struct kvc_op *op, int error);
/* Ends the op with this outcome. */
void op__complete(struct kvc_op *op, int error);
/* Accepts NULL. A request in flight is given up: its reply will be discarded. */
void op__free(struct kvc_op *op);
void op__destroy_all(struct kvc *k);

/* ---- link.c ---- */

/* Ends the link: requests in flight get `error`, mappings and leases are given up; but holds last
 * (orphan.c), and staging becomes memory of the caller's own if the daemon might still read it.
 * Keeps the text. Returns `error`. */
int kvc__down(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same when the daemon is no more: nothing lasts. */
int kvc__lost(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* A message of the daemon's that cannot be: ends the link, and returns KVC_E_BAD_MESSAGE. */
int kvc__malformed(struct kvc *k, const char *what);
/* DROPPED: ends the link. */
int kvc__dropped(struct kvc *k, const uint8_t *buf, size_t len);
/* Length of the next datagram, 0 = none; an error has ended the link. */
__attribute__((warn_unused_result)) int kvc__datagram(struct kvc *k, uint8_t buf[KVC_ATTACH_MAX],
                                                      int *ret_passed);
/* Takes in what the attach channel says now. 0, or an error with the link down. */
__attribute__((warn_unused_result)) int kvc__news(struct kvc *k);
/* Sends on the attach channel, with a descriptor or -1, waiting for room until then. `len` is what
 * the encoder returned. KVC_E_TIMEOUT; other errors have ended the link. */
__attribute__((warn_unused_result)) int kvc__tell(struct kvc *k, const void *buf, int len, int pass,
                                                  uint64_t until_ns);
/* Tells the daemon which of its device memory is mapped no more; all of what there is to say, or
 * (false) as much as the connection takes. */
bool kvc__tell_unmapped(struct kvc *k);
/* What is asked for of a chunk: itself, or its memory on a device. */
#define ASK_MAP UINT64_C(0)
#define ASK_ON  (UINT64_C(1) << 32)
/* Has the daemon asked for a chunk, once. 0, or an error with the link down. */
__attribute__((warn_unused_result)) int kvc__ask_chunk(struct kvc *k, uint64_t what,
                                                       uint32_t chunk);
/* That question has its answer. */
void kvc__chunk_answered(struct kvc *k, uint64_t what, uint32_t chunk);
/* No question is unanswered any more: each may be asked again. */
void kvc__forget_asked(struct kvc *k);

/* ---- connect.c ---- */

/* Goes on with connecting, waiting for a WELCOME until `welcome_ns` and for the rest until
 * `deadline_ns`; times that have passed mean not at all. 0 = up. Else the text says why: KVC_E_DOWN
 * (also: not yet), -EACCES, the daemon's refusal, KVC_E_BAD_MESSAGE. */
__attribute__((warn_unused_result)) int kvc__connect(struct kvc *k, uint64_t welcome_ns,
                                                     uint64_t deadline_ns);
/* One of the namespaces for which REOPENING waits has its answer. */
void kvc__reopened_one(struct kvc *k);
/* Starts every call that talks and may wait: fork rule, news of the attach channel, reconnecting
 * when it is due. 0 = up; KVC_E_DOWN; KVC_E_TIMEOUT: up, and the daemon is silent; -EPERM in a
 * child of fork(). */
__attribute__((warn_unused_result)) int kvc__enter(struct kvc *k, uint64_t deadline_ns);
/* The same without waiting: a link that is not up yet goes as far as it can. */
__attribute__((warn_unused_result)) int kvc__look(struct kvc *k);

/* ---- ops.c ---- */

/* Sends k->tx, or parks it until its namespace is open; `len` is what the encoder returned. On
 * failure the op is done. */
__attribute__((warn_unused_result)) int op__send(struct kvc_op *op, int len);
/* Sends what was parked. On failure the op is done. */
void op__resend(struct kvc_op *op);
/* Handles one message, waiting for it until then: 1. 0 = the time has come; an error has ended the
 * link. `nap`: the reply is expected on the control socket soon. */
__attribute__((warn_unused_result)) int op__pump(struct kvc *k, uint64_t until_ns, bool nap);
/* Waits for the outcome. 0 = op->msg is a reply with status OK; else op->error, with its text. */
__attribute__((warn_unused_result)) int op__await(struct kvc_op *op);
/* op__send and op__await. */
__attribute__((warn_unused_result)) int op__call(struct kvc_op *op, int len);
/* The texts of an outcome, for kvc_last_error. */
void op__explain(struct kvc_op *op);
/* A reply that cannot be decoded ends the link: returns 0, or KVC_E_BAD_MESSAGE. */
__attribute__((warn_unused_result)) int op__checked(struct kvc_op *op, int decoded);
/* A request whose reply nobody awaits. */
struct msg_head op__post_head(struct kvc *k, uint8_t code);
void op__post(struct kvc *k, int len);
/* Ends a lease or a reservation of this epoch. While down, does nothing: the link's end did it. */
void op__post_release(struct kvc *k, uint64_t lease);
void op__post_drop(struct kvc *k, uint64_t reservation);

/* ---- quiesce.c ---- */

/* The daemon let a wait pass without a word: it is asked for a sign of life, and nobody waits for
 * it before it has given one. */
void op__silent(struct kvc *k);
/* Ends what waits beyond its grace deadline. */
void op__expire(struct kvc *k);
/* Waits for the daemon's exit, and completes the op. */
void op__await_exit(struct kvc_op *op);
/* Asks the daemon to end a store that may be reading staging, and waits for the answer; without one
 * the link goes down. */
void op__quiesce(struct kvc_op *op);
/* Ends a request for pages, and waits until nothing touches them any more. */
void op__stop(struct kvc_op *op);
/* Ends what touches pages of the pool (NULL: of any) and waits until nothing does. */
void op__stop_all(struct kvc *k, const struct kvc_pool *p);

/* ---- ns.c ---- */

/* Opens it again; ops parked for it go on when the answer comes. Nothing if that is under way. An
 * error: it cannot be asked for. */
__attribute__((warn_unused_result)) int ns__reopen(struct kvc_ns *ns);
/* Whether a request may name it, now or after reopening. 0, or the daemon's refusal. */
__attribute__((warn_unused_result)) int ns__check(struct kvc_ns *ns);
__attribute__((warn_unused_result)) int ns__finish(struct kvc_op *op, struct kvc_ns **ret_ns);
/* Whether requests of this operation carry the namespace's id. */
bool ns__names(uint8_t code);
/* A request that was sent or parked, encoded into k->tx with the namespace's id of now. */
__attribute__((warn_unused_result)) int ns__renumber(struct kvc_op *op);

/* ---- read.c ---- */

/* Keys are there, and not too many: 0, or -EINVAL with its text. */
__attribute__((warn_unused_result)) int read__check_seq(struct kvc_ns *ns,
                                                        const struct kvc_seq *seq);
/* The same, and as many of them as the sequence has blocks. */
__attribute__((warn_unused_result)) int read__check_chains(struct kvc_ns *ns,
                                                           const struct kvc_seq *seq);
void read__to_msg(const struct kvc_ns *ns, const struct kvc_seq *seq, struct msg_seq *m);

/* Before the session closes: waits a little until the daemon has its hints. */
void read__flush_hints(struct kvc *k);

/* An op, or one that is done before it begins: no daemon. Its outcome is a miss. */
__attribute__((warn_unused_result)) int read__new_op(struct kvc_ns *ns, uint8_t code,
                                                     uint64_t deadline_ns, enum half half,
                                                     struct kvc_op **ret_op);
/* Sends what the encoder made. A daemon that is gone is no error yet, nor is a device. */
__attribute__((warn_unused_result)) int read__begin(struct kvc_op *op, int len,
                                                    struct kvc_op **ret_op);
/* The outcome of an op of that kind, waiting for it; does not free the op. */
__attribute__((warn_unused_result)) int read__finish_lookup(struct kvc_op *op,
                                                            struct kvc_prefix *ret_prefix);
__attribute__((warn_unused_result)) int read__finish_acquire(struct kvc_op *op,
                                                             struct kvc_hold **ret_hold);
/* read__finish_acquire for a caller who may have given no place for the hold: -EINVAL then. */
__attribute__((warn_unused_result)) int read__finish_hold(struct kvc_op *op,
                                                          struct kvc_hold **ret_hold);
/* An ACQUIRE or REDEEM that waits for chunks, or has its reply now: completes it if it can be.
 * `refused` is 0, or why the daemon does not give `chunk`. */
void read__go_on(struct kvc_op *op, uint32_t chunk, int refused);

/* ---- hold.c ---- */

/* An empty hold of this epoch, owned. */
__attribute__((warn_unused_result)) int hold__new(struct kvc *k, struct hold **ret_hold);
/* Fills a hold from a reply: asks for chunks, checks every location. 0; 1 = chunks have been asked
 * for, call it again when they came; an error. on_device: locations may be on a device. */
__attribute__((warn_unused_result)) int
hold__fill(struct hold *h, const struct msg_acquire_reply *r, bool on_device);
/* The mapping that host memory at `p` of one of its blocks lies in; `hint` is looked at first, and
 * kept. */
struct map *hold__map_of(const struct hold *h, const void *p, uint32_t *hint);
/* Whether a block of the reply is in that chunk. */
bool hold__needs(const struct msg_acquire_reply *r, uint32_t chunk);
/* Whether the blocks' memory is sure to be there, and a generation in it that tells. */
bool hold__is_kept(const struct kvc *k, uint32_t epoch);
/* Ends its lease, if that is of this epoch, and frees it. */
void hold__discard(struct hold *h);
void hold__destroy_all(struct kvc *k);

/* ---- write.c ---- */

/* Counts blocks that the cache will not get, when that is for want of a daemon or of its answer.
 * Returns KVC_E_DOWN or KVC_E_TIMEOUT then, else `error`. */
int write__dropped(struct kvc *k, uint32_t blocks, uint32_t block_bytes, int error);
/* 0, or -EINVAL with its text. */
__attribute__((warn_unused_result)) int write__check_blocks(struct kvc_ns *ns,
                                                            const struct kvc_blocks *b);
__attribute__((warn_unused_result)) int write__check_tokens(struct kvc *k, const uint32_t *tokens,
                                                            size_t ntokens);
/* What lies in staging was put there in an earlier connection, or by nobody: it must not be stored
 * under these keys. 0, KVC_E_DOWN, -EINVAL. */
__attribute__((warn_unused_result)) int write__check_staging(struct kvc *k);
/* The wishes of one request, as they travel. */
struct wishes {
    uint8_t bytes[KVC_RETAIN_MAX * KVC_RETAIN_BYTES];
};
/* Borrows all that it is given. */
struct msg_reserve write__to_msg(const struct kvc_ns *ns, const struct kvc_blocks *b,
                                 struct wishes *room);
/* An op for a call that stores. */
__attribute__((warn_unused_result)) int write__new_op(struct kvc_ns *ns, uint8_t code,
                                                      enum half half, struct kvc_op **ret_op);
/* What wishes not to be stored is answered here, whether there is a daemon or not. */
__attribute__((warn_unused_result)) int write__decline(struct kvc_ns *ns, uint8_t code,
                                                       uint32_t blocks, enum half half,
                                                       struct kvc_op **ret_op);
/* As in read.c. */
__attribute__((warn_unused_result)) int write__finish_store(struct kvc_op *op,
                                                            uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int write__finish_commit(struct kvc_op *op,
                                                             uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int
write__finish_reserve(struct kvc_op *op, uint64_t *ret_reservation, uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int write__finish_drop(struct kvc_op *op);

/* ---- admin.c ---- */

/* An op for a call of its own, after kvc__enter: within the session's timeout, or within timeout_ms
 * (0 = the session's), at most KVC_DEADLINE_MAX_MS. */
__attribute__((warn_unused_result)) int op__begin(struct kvc *k, uint8_t code,
                                                  struct kvc_op **ret_op);
__attribute__((warn_unused_result)) int
op__begin_within(struct kvc *k, uint8_t code, uint32_t timeout_ms, struct kvc_op **ret_op);
/* A text with a zero behind it, cut to cap - 1 bytes. */
void kvc__copy_text(char *to, size_t cap, const struct codec_bin *from);
void kvc__copy_string(char to[KVC_STRING_MAX], const struct codec_bin *from);

/* ---- put.c ---- */

/* Where the bytes of blocks come from: a callback, or pages. */
struct source {
    int (*fill)(void *ctx, const struct kvc_run *run);
    void *ctx;
    struct kvc_pool *pool;
    const uint32_t *pages; /* of the blocks of the call */
    struct kvc_word after; /* of pools that the daemon reads */
};
/* Stores consecutive blocks, any number, in as many pieces as room demands. As kvc_store otherwise;
 * what the caller does not have is NO_STORE. */
__attribute__((warn_unused_result)) int put__blocks(struct kvc_ns *ns, const struct kvc_blocks *b,
                                                    const struct source *from,
                                                    const uint32_t *tokens, size_t ntokens,
                                                    uint8_t *statuses);

/* ---- news.c ---- */

/* One datagram of a session that has been welcomed; for take_news. */
__attribute__((warn_unused_result)) int news__take(struct kvc *k, const uint8_t *buf, size_t len,
                                                   int passed);

/* ---- session.c ---- */

__attribute__((warn_unused_result)) int session__finish_ping(struct kvc_op *op,
                                                             uint64_t *ret_uptime_ms);

#endif
