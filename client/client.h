/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a session, shared by the files of this directory.
 *
 * Life of the link: DOWN -> ATTACHING (attach channel connected, WELCOME awaited) -> GREETING
 * (control socket connected, HELLO unanswered) -> REOPENING (an epoch begins; known namespaces are
 * being opened) -> UP -> DOWN. Only kvc__down() and kvc__lost() lead back to DOWN.
 *
 * Life of an op: NEW -> SENT -> DONE. Four stages may come between. PARKED: the request waits
 * until its namespace and its pool are open. CHUNKS: an acquire waits for chunks. QUIESCING: an op
 * that borrows the caller's memory was answered too late, and waits for the reply to its CANCEL.
 * DAEMON_EXIT: the link has ended, and an op that borrows pages waits until the daemon's copies
 * have ended.
 *
 * Arriving messages move ops on. Only op__await() and functions like it wait. Everything runs in
 * the caller's thread inside a call; libzmq's I/O thread only moves bytes.
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

/* The caller's requests in flight, parked ones included. The daemon's limit is lower by default. */
#define OPS_MAX 1024u
/* Buckets of the hash table that finds a request by its correlation id. */
#define OPS_SLOTS 1024u
/* How long after its deadline a reply is still awaited: the daemon answers at the deadline, and its
 * answer travels. Also how long the reply to a CANCEL is awaited. */
#define GRACE_MS 250u
/* Pause between two attempts to connect: the first one, and the longest. */
#define RECONNECT_MIN_MS 100u
#define RECONNECT_MAX_MS 2000u
/* How long a call other than kvc_open waits for a WELCOME. If the daemon needs longer (it
 * pre-faults the staging area), later calls look again until WELCOME_MAX_MS have passed. */
#define WELCOME_WAIT_MS 250u
#define WELCOME_MAX_MS  30000u
/* How long the daemon's copies from and to pages may go on after the link has ended, where the
 * library does not know that the daemon's process has ended. */
#define DAEMON_EXIT_MS   2000u
#define DAEMON_EXITS_MAX 4u
/* How long a call waits for the reply to the PING that asks a silent daemon for a sign of life.
 * Counted from the sending of the PING, so all calls together wait for it once. */
#define PROBE_WAIT_MS 125u
/* A call reads the attach channel when it was not read for so long. */
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

/* A namespace that kvc_ns_open returned. `canon` is its NS_OPEN request with correlation id 0: two
 * specifications are equal if these bytes are, and a reconnect sends them again. */
struct kvc_ns {
    struct kvc *kvc;
    struct kvc_ns *next;
    uint32_t id;            /* the daemon's number; 0: no daemon has opened it yet */
    uint32_t epoch;         /* in which a daemon last opened or refused it; 0: is to be opened */
    int error;              /* why the daemon of that epoch refused it; 0 = open */
    bool has_seed;          /* `seed` is valid: a daemon has opened the namespace */
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
    struct kvc_op *prev, *next; /* in the live list; `next` also in the free list */
    struct kvc_op *ready_prev, *ready_next;
    struct kvc_op *slot_next; /* in the bucket of its correlation id */
    struct kvc_ns *ns;        /* the request's namespace, where the outcome needs it; else NULL */
    struct msg_head head;
    uint64_t grace_ns; /* when the wait for the reply ends, whatever the daemon does */
    uint32_t epoch;    /* of the link when the op was made */
    enum op_stage stage;
    bool listed;     /* kvc_next hands the op out when it is done */
    bool ready;      /* in the ready list */
    bool borrows;    /* the daemon may touch staging or pages until this op is done */
    bool is_callers; /* counts against OPS_MAX */
    bool retried;    /* sent a second time, because the daemon had removed its namespace */
    bool owns_ns;    /* NS_OPEN: `ns` is not in the session's list, and is freed with the op */
    bool is_overdue; /* the library cancelled the op, because its time was up */
    bool declined;   /* RESERVE, STORE: KVC_F_NO_STORE; nothing was sent */
    int error;       /* in DONE and QUIESCING: the outcome; 0 = `msg` has a reply with status OK */
    /* Of the library's own requests: takes the op over when its reply has come, or is given up.
     * When the link goes down such an op is freed without this call. NULL: a request of the caller.
     */
    void (*then)(struct kvc_op *op);
    /* Of the caller's requests: handles a reply with status OK, and completes the op now or later.
     * NULL: the reply is the outcome. */
    void (*arrived)(struct kvc_op *op);
    /* Frees what the request still owns when the op is freed; or NULL. */
    void (*let_go)(struct kvc_op *op);
    struct kvc_op *partner; /* of a CANCEL the op that it cancels, of that op its CANCEL; or NULL */
    uint32_t ns_id;         /* the namespace number in `sent` */
    struct wire_msg sent;   /* the request, if it may be sent again or is needed later */
    struct wire_msg msg;    /* the reply */
    struct hold *hold;      /* ACQUIRE, REDEEM: the outcome until the caller takes it; or NULL */
    uint64_t reservation;   /* COMMIT: handle */
    uint32_t group, blocks; /* what the counters add if the request is dropped */
    void *user;             /* kvc_op_set_user */
    /* PAGES_LOAD, PAGES_STORE: the pool of the pages; NULL: the caller has closed it. POOL_OPEN:
     * the pool that is opened. */
    struct kvc_pool *pool;
    /* PAGES_LOAD: when the op is done, word number ready_word - 1 of the page of ready_epoch is
     * raised to ready_at. ready_word 0 = none. */
    uint32_t ready_word, ready_epoch;
    uint64_t ready_at;
};

/* A lease and pointers to its blocks. Freed holds keep their arrays for the next hold. */
struct hold {
    struct kvc_hold pub; /* first: the caller's pointer to it is also the pointer to the hold */
    struct kvc *kvc;
    struct hold *prev, *next; /* in the live list; `next` also in the free list */
    struct kvc_block *block;  /* of all groups, one behind another */
    uint32_t block_cap, blocks;
    const void **slot; /* on_device: of each block its device address, or NULL */
    uint32_t slot_cap;
    bool is_live;     /* in the live list */
    bool on_device;   /* the hold is of kvc_acquire_on, and `slot` is filled */
    struct map **map; /* the mappings of the blocks; the hold has one reference to each entry */
    uint32_t map_cap, maps;
};

/* The attach connection of an epoch that has ended, open while holds of that epoch are read;
 * orphan.c's. */
struct orphan {
    struct orphan *next;
    int fd;
    uint32_t epoch;
};

/* The daemon of an epoch that has ended, and whose copies may still run; daemon_exit.c's. */
struct daemon_exit {
    int pidfd; /* of the daemon's process; -1: this entry is free */
    uint32_t epoch;
};

/* The descriptors behind kvc_fd; watch.c's. All are -1 until kvc_fd was called. */
struct watch {
    int epoll, event, timer; /* `epoll` is the caller's; it watches the other two and the link */
    bool raised;             /* `event` is readable */
    bool blind;              /* a descriptor could not be added to `epoll` */
    uint64_t armed_ns;       /* when `timer` becomes readable; 0 = never */
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
    uint64_t corr;                           /* correlation id of the last request */
    struct kvc_op *slot[OPS_SLOTS];          /* undone ops by correlation id; chains of slot_next */
    struct kvc_op *live, *free;              /* allocated ops: not freed yet; to be used again */
    struct kvc_op *ready_first, *ready_last; /* listed and done: kvc_next hands them out */
    uint32_t ready_n;
    uint32_t in_flight; /* the caller's undone ops */
};

/* All holds of a session; hold.c's. */
struct holds {
    struct hold *live, *free; /* not released yet; to be used again */
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
    struct fork_guard *fork; /* fork.c's: tells a child of fork() */

    /* news__take(), which link.c cannot call by name: handles a datagram of the attach channel. 0,
     * or an error with the link down. */
    int (*take_news)(struct kvc *k, const uint8_t *buf, size_t len, int passed);

    /* The options of kvc_open. */
    char *socket;
    char name[64];
    uint32_t shard, timeout_ms;
    bool must_connect;

    enum link_state state;
    int attach_fd; /* -1 in DOWN */
    struct wire wire;
    uint32_t epoch;           /* number of the link; 0: never connected */
    uint64_t next_try_ns;     /* DOWN: no attempt to connect before this time */
    uint64_t attach_until_ns; /* ATTACHING, GREETING: when the attempt is given up */
    uint64_t news_ns;         /* when the attach channel was last read */
    uint32_t backoff_ms;      /* pause before the attempt after the next one */
    int down_error;           /* error with which the link last went down */
    /* Since when the daemon is silent: a request's time passed, and no message has come since. 0 =
     * it is not silent. No call waits for a silent daemon. */
    uint64_t silent_ns;
    bool is_probed;     /* a PING of the library's own is unanswered */
    uint32_t reopening; /* REOPENING: namespaces whose NS_OPEN is unanswered */
    struct orphan *orphans;
    /* Allocated when the link is made, because its end must not fail; NULL only while DOWN. */
    struct orphan *next_orphan;
    struct asked *asked; /* questions about chunks; link.c's. NULL: none was ever asked */
    struct daemon_exit exit[DAEMON_EXITS_MAX];
    struct watch watch;

    struct staging staging;
    struct map_table maps;

    struct kvc_gpu *gpus;
    struct word_pages words;
    struct mems mems;
    struct kvc_pool *pool[KVC_POOLS_MAX];

    uint8_t *tx; /* KVC_MESSAGE_MAX bytes, in which requests are encoded */
    struct ops ops;
    struct holds holds;
    struct resv_table *resvs; /* write.c's; NULL: nothing was ever reserved */
    struct kvc_ns *ns;

    struct kvc_counters counters;
    uint8_t statuses[KVC_STORE_MAX]; /* that the last kvc_finish handed out */
    char error[512];                 /* kvc_last_error */
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

/* The same as an argument of poll(2), at most one minute. */
static inline int kvc__poll_ms(uint64_t until_ns)
{
    uint32_t ms = kvc__ms_until(until_ns);
    return ms > 60000 ? 60000 : (int)ms;
}

/* The deadline of a call that begins now with this timeout; 0 = the session's timeout. */
static inline uint64_t kvc__deadline(const struct kvc *k, uint32_t timeout_ms)
{
    return kvc__now() + NS_PER_MS * (timeout_ms != 0 ? timeout_ms : k->timeout_ms);
}

/* Whether a call may wait for the link (BLOCKING), or is the begin half of async.h and may not. */
enum half { BLOCKING, BEGINNING };

/* The daemon is absent, or is shutting down: a read is a miss, and a store is dropped. */
static inline bool kvc__is_down(int error)
{
    return error == KVC_E_DOWN || error == KVC_E_SHUTDOWN;
}

/* A read is a miss also when the daemon does not answer in time. */
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

/* From here to fork__leave the fork handlers know the session. -ENOMEM, or another errno. */
__attribute__((warn_unused_result)) int fork__enter(struct kvc *k);
void fork__leave(struct kvc *k);
/* Whether this process is a child of the one that opened the session. */
bool fork__is_child(const struct kvc *k);
/* Between these two calls no other thread of this process forks. A child closes the descriptors
 * that it finds in the sessions, so a new descriptor must be stored there before a fork. */
void fork__forbid(void);
void fork__allow(void);

/* ---- daemon_exit.c ---- */

/* The link ends while the daemon may be copying from or to pages. Call it before attach_fd is
 * closed. Returns whether the daemon's process is known to have ended already. */
bool daemon_exit__begin(struct kvc *k);
/* True: the op has to wait for the daemon's exit, is in DAEMON_EXIT now, and will complete with
 * `error`. */
__attribute__((warn_unused_result)) bool daemon_exit__takes(struct kvc_op *op, int error);
/* Waits until the daemon's process has ended, or until the op's grace deadline. */
void daemon_exit__wait(const struct kvc_op *op);
/* Completes the ops whose daemon has ended by now. Does not wait. */
void daemon_exit__look(struct kvc *k);
/* Closes all pidfds, in a child of fork() too. */
void daemon_exit__close(struct kvc *k);

/* ---- orphan.c ---- */

/* Allocates next_orphan, so that orphan__add() cannot fail. -ENOMEM. */
__attribute__((warn_unused_result)) int orphan__prepare(struct kvc *k);
/* Takes attach_fd over if blocks of this epoch are held; else leaves it open for the caller to
 * close. `tell`: the daemon does not know yet that the session ends. */
void orphan__add(struct kvc *k, bool tell);
/* Whether the daemon of that earlier epoch still keeps the blocks that are held: false if it has
 * died since. */
bool orphan__has(const struct kvc *k, uint32_t epoch);
/* Closes the connections of epochs of which no hold is left. */
void orphan__sweep(struct kvc *k);

/* ---- watch.c ---- */

/* The caller's loop watches this descriptor from now on, or no more. Accept -1; do nothing before
 * kvc_fd was called. */
void watch__add(struct kvc *k, int fd);
void watch__remove(struct kvc *k, int fd);
/* Makes the caller's descriptor readable now, or at the next deadline, as the session's state asks
 * for. Every call that receives, sends or completes ends with this one. */
void watch__update(struct kvc *k);
void watch__close(struct kvc *k);

/* ---- staging.c ---- */

/* Unregisters the area from its device, before other memory takes its addresses. */
void staging__unpin(struct kvc *k);
/* The link ends. If the daemon may still read the area, other memory takes its addresses, so that
 * the daemon reads what was stored. */
void staging__leave(struct kvc *k);
/* Maps the area of the epoch that begins. 0; -EPROTO: the file is shorter than `bytes`; another
 * errno, and the session has no staging then. */
__attribute__((warn_unused_result)) int staging__map(struct kvc *k, int fd, uint64_t bytes);
/* The caller has asked for the new area: unmaps the one before. */
void staging__forget_before(struct kvc *k);
void staging__destroy(struct kvc *k);

/* ---- op_life.c ---- */

/* Makes an op that is never sent: the caller completes it with op__complete(). -ENOMEM. */
__attribute__((warn_unused_result)) int op__new_unsent(struct kvc *k, uint8_t code,
                                                       struct kvc_op **ret_op);
/* Makes an op of the library's own that is to be sent. -ENOMEM; KVC_E_TIMEOUT: the deadline has
 * passed. */
__attribute__((warn_unused_result)) int op__new_own(struct kvc *k, uint8_t code,
                                                    uint64_t deadline_ns, struct kvc_op **ret_op);
/* Makes an op of the caller's that is to be sent. Also KVC_E_BUSY: OPS_MAX are in flight. */
__attribute__((warn_unused_result)) int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns,
                                                struct kvc_op **ret_op);
/* The undone op with this correlation id; NULL: there is none. */
struct kvc_op *op__find(struct kvc *k, uint64_t corr);
/* Leave: op__find() finds the op no more; does nothing for an op that has left. Enter: op__find()
 * finds it again. A new op is entered already. */
void op__slot_enter(struct kvc_op *op);
void op__slot_leave(struct kvc_op *op);
/* Ends the op with this outcome. An op of the library's own goes to its `then`. */
void op__end(struct kvc_op *op, int error);
/* The op is DONE with this outcome. An op that is done already only gets the new outcome. */
void op__complete(struct kvc_op *op, int error);
/* Frees the op. If it is in flight, its reply will be discarded. Accepts NULL. */
void op__free(struct kvc_op *op);
void op__destroy_all(struct kvc *k);

/* ---- link.c ---- */

/* Ends the link: requests in flight end with `error`, and mappings and leases are given up. Holds
 * last (orphan.c), and staging becomes the caller's own memory if the daemon might still read it.
 * Keeps the text for kvc_last_error. Returns `error`. */
int kvc__down(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same when the daemon is gone, so that no hold lasts. */
int kvc__lost(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The daemon has sent a malformed message: ends the link, and returns KVC_E_BAD_MESSAGE. */
int kvc__malformed(struct kvc *k, const char *what);
/* Handles DROPPED, which ends the link. Returns the error with which it ended. */
int kvc__dropped(struct kvc *k, const uint8_t *buf, size_t len);
/* Receives the next datagram: its length, or 0 = none is there. *ret_passed: a descriptor that came
 * with it, owned, or -1. An error has ended the link. */
__attribute__((warn_unused_result)) int kvc__datagram(struct kvc *k, uint8_t buf[KVC_ATTACH_MAX],
                                                      int *ret_passed);
/* Handles all datagrams that have arrived. 0, or an error with the link down. */
__attribute__((warn_unused_result)) int kvc__news(struct kvc *k);
/* Sends on the attach channel, and waits until `until_ns` for room. `len` is what the encoder
 * returned; `pass` is a descriptor that goes along and stays the caller's, or -1. KVC_E_TIMEOUT: no
 * room; other errors have ended the link. */
__attribute__((warn_unused_result)) int kvc__tell(struct kvc *k, const void *buf, int len, int pass,
                                                  uint64_t until_ns);
/* Tells the daemon which of its device memory this process has unmapped. False: the connection did
 * not take all of it, and a later call tells the rest. */
bool kvc__tell_unmapped(struct kvc *k);
/* The two questions about a chunk: its host memory, or its memory on a device. */
#define ASK_MAP UINT64_C(0)
#define ASK_ON  (UINT64_C(1) << 32)
/* Asks the daemon for a chunk (ASK_*), unless that question is unanswered. 0, or an error; the link
 * may be down then. */
__attribute__((warn_unused_result)) int kvc__ask_chunk(struct kvc *k, uint64_t what,
                                                       uint32_t chunk);
/* The daemon has answered this question: it may be asked again. */
void kvc__chunk_answered(struct kvc *k, uint64_t what, uint32_t chunk);
/* Every question may be asked again, answered or not. */
void kvc__forget_asked(struct kvc *k);

/* ---- connect.c ---- */

/* Continues to connect. Waits until `welcome_ns` for the WELCOME, and until `deadline_ns` for the
 * rest; for a time that has passed it does not wait. 0 = up. Else kvc_last_error says why:
 * KVC_E_DOWN (also: not yet), -EACCES, the daemon's refusal, KVC_E_BAD_MESSAGE. */
__attribute__((warn_unused_result)) int kvc__connect(struct kvc *k, uint64_t welcome_ns,
                                                     uint64_t deadline_ns);
/* In REOPENING: the NS_OPEN of one namespace was answered or given up. After the last one the link
 * is up. */
void kvc__reopened_one(struct kvc *k);
/* Begins every call that sends and may wait: refuses a child of fork() (fork.c), reads the attach
 * channel, and reconnects when that is due. 0 = up; KVC_E_DOWN; KVC_E_TIMEOUT: up, but the daemon
 * is silent; -EPERM in a child of fork(). */
__attribute__((warn_unused_result)) int kvc__enter(struct kvc *k, uint64_t deadline_ns);
/* The same without waiting: a link that is not up takes the steps that it can take now. */
__attribute__((warn_unused_result)) int kvc__look(struct kvc *k);

/* ---- ops.c ---- */

/* Sends the request in k->tx, or parks it until its namespace is open. `len` is what the encoder
 * returned. On failure the op is done. */
__attribute__((warn_unused_result)) int op__send(struct kvc_op *op, int len);
/* Sends a request that was parked. On failure the op is done. */
void op__resend(struct kvc_op *op);
/* Handles one message, and waits for it until `until_ns`. 1 = handled one; 0 = none came in time;
 * an error has ended the link. `nap`: the call may block in zmq_recv(). */
__attribute__((warn_unused_result)) int op__pump(struct kvc *k, uint64_t until_ns, bool nap);
/* Waits for the outcome. 0 = op->msg is a reply with status OK; else op->error, with its text. */
__attribute__((warn_unused_result)) int op__await(struct kvc_op *op);
/* op__send and op__await. */
__attribute__((warn_unused_result)) int op__call(struct kvc_op *op, int len);
/* Keeps the text of the op's outcome for kvc_last_error. */
void op__explain(struct kvc_op *op);
/* `decoded` is what the decoder of the reply returned. If it failed, the link ends. Returns 0 or
 * KVC_E_BAD_MESSAGE. */
__attribute__((warn_unused_result)) int op__checked(struct kvc_op *op, int decoded);
/* The head of a request whose reply nobody awaits, and the sending of that request from k->tx. */
struct msg_head op__post_head(struct kvc *k, uint8_t code);
void op__post(struct kvc *k, int len);
/* Ends a lease or a reservation of this epoch. Does nothing while the link is down, whose end has
 * ended them. */
void op__post_release(struct kvc *k, uint64_t lease);
void op__post_drop(struct kvc *k, uint64_t reservation);

/* ---- quiesce.c ---- */

/* A request's time has passed and no message came: the daemon is silent. Sends it a PING; no call
 * waits for the daemon before it has sent something. */
void op__silent(struct kvc *k);
/* Ends the ops whose grace deadline has passed. */
void op__expire(struct kvc *k);
/* Waits for the daemon's exit, and completes the op. */
void op__await_exit(struct kvc_op *op);
/* Cancels an op whose memory the daemon may be reading or writing, and waits for the reply to
 * CANCEL; without a reply the link goes down. */
void op__quiesce(struct kvc_op *op);
/* Ends a request for pages, and waits until nothing touches the pages any more. */
void op__stop(struct kvc_op *op);
/* The same for all requests for pages of this pool; NULL: of any pool. */
void op__stop_all(struct kvc *k, const struct kvc_pool *p);

/* ---- ns.c ---- */

/* Sends NS_OPEN again, unless one is in flight; ops parked for the namespace continue when the
 * reply comes. An error: it could not be sent. */
__attribute__((warn_unused_result)) int ns__reopen(struct kvc_ns *ns);
/* 0: a request may name the namespace, now or once it is open again. Else the daemon's refusal. */
__attribute__((warn_unused_result)) int ns__check(struct kvc_ns *ns);
__attribute__((warn_unused_result)) int ns__finish(struct kvc_op *op, struct kvc_ns **ret_ns);
/* Whether requests of this operation carry the namespace's number. */
bool ns__names(uint8_t code);
/* Encodes a request that was sent or parked into k->tx again, with the namespace's present number.
 * Returns what the encoder returned. */
__attribute__((warn_unused_result)) int ns__renumber(struct kvc_op *op);

/* ---- read.c ---- */

/* The sequence has keys, and not too many: 0, or -EINVAL with its text. */
__attribute__((warn_unused_result)) int read__check_seq(struct kvc_ns *ns,
                                                        const struct kvc_seq *seq);
/* The same, and each group has as many keys as the sequence has blocks. */
__attribute__((warn_unused_result)) int read__check_chains(struct kvc_ns *ns,
                                                           const struct kvc_seq *seq);
/* The sequence as a part of a request; *m borrows the keys. */
void read__to_msg(const struct kvc_ns *ns, const struct kvc_seq *seq, struct msg_seq *m);

/* Before the session closes: waits up to 250 ms for the replies to hints. */
void read__flush_hints(struct kvc *k);

/* Makes an op of a call that reads. If there is no daemon, the op is done already, and its outcome
 * is a miss. */
__attribute__((warn_unused_result)) int read__new_op(struct kvc_ns *ns, uint8_t code,
                                                     uint64_t deadline_ns, enum half half,
                                                     struct kvc_op **ret_op);
/* Sends the request that the encoder made. A daemon or device that is gone is no error here: the op
 * is done then, and a miss. */
__attribute__((warn_unused_result)) int read__begin(struct kvc_op *op, int len,
                                                    struct kvc_op **ret_op);
/* Waits for the op, and hands out its outcome; does not free the op. */
__attribute__((warn_unused_result)) int read__finish_lookup(struct kvc_op *op,
                                                            struct kvc_prefix *ret_prefix);
__attribute__((warn_unused_result)) int read__finish_acquire(struct kvc_op *op,
                                                             struct kvc_hold **ret_hold);
/* read__finish_acquire where ret_hold may be NULL: -EINVAL then. */
__attribute__((warn_unused_result)) int read__finish_hold(struct kvc_op *op,
                                                          struct kvc_hold **ret_hold);
/* Continues an ACQUIRE or REDEEM whose reply has come, or which waits for chunks: completes it if
 * all its chunks are mapped. `refused` is 0, or why the daemon does not give `chunk`. */
void read__go_on(struct kvc_op *op, uint32_t chunk, int refused);

/* ---- hold.c ---- */

/* Makes an empty hold of this epoch, which the caller owns. -ENOMEM. */
__attribute__((warn_unused_result)) int hold__new(struct kvc *k, struct hold **ret_hold);
/* Fills a hold from a reply, and checks every location. 0 = filled; 1 = some chunks are not mapped
 * yet and were asked for: call it again when they have come; or an error. on_device: locations may
 * be on a device. */
__attribute__((warn_unused_result)) int
hold__fill(struct hold *h, const struct msg_acquire_reply *r, bool on_device);
/* The hold's mapping that contains `p`; NULL: none does. The search begins at *hint, which becomes
 * the place where it ended. */
struct map *hold__map_of(const struct hold *h, const void *p, uint32_t *hint);
/* Whether a block of the reply is in that chunk. */
bool hold__needs(const struct msg_acquire_reply *r, uint32_t chunk);
/* Whether the daemon keeps the memory of blocks that were held in that epoch, so that their
 * generations can be believed. */
bool hold__is_kept(const struct kvc *k, uint32_t epoch);
/* Frees the hold, and ends its lease if that is of this epoch. */
void hold__discard(struct hold *h);
void hold__destroy_all(struct kvc *k);

/* ---- write.c ---- */

/* Counts the blocks as dropped if `error` says that the daemon is absent or did not answer. Returns
 * KVC_E_DOWN or KVC_E_TIMEOUT then, else `error`. */
int write__dropped(struct kvc *k, uint32_t blocks, uint32_t block_bytes, int error);
/* Check a caller's arguments: 0, or -EINVAL with its text. */
__attribute__((warn_unused_result)) int write__check_blocks(struct kvc_ns *ns,
                                                            const struct kvc_blocks *b);
__attribute__((warn_unused_result)) int write__check_tokens(struct kvc *k, const uint32_t *tokens,
                                                            size_t ntokens);
/* Whether staging may be stored from: not before the caller has called kvc_staging() in this epoch,
 * because it may have been filled in an earlier one. 0; KVC_E_DOWN; -EINVAL: there is no staging.
 */
__attribute__((warn_unused_result)) int write__check_staging(struct kvc *k);
/* The wishes of one request, encoded. */
struct wish_bytes {
    uint8_t bytes[KVC_RETAIN_MAX * KVC_RETAIN_BYTES];
};
/* The blocks as a part of a request; it borrows from all arguments. */
struct msg_reserve write__to_msg(const struct kvc_ns *ns, const struct kvc_blocks *b,
                                 struct wish_bytes *room);
/* Makes an op of a call that stores. */
__attribute__((warn_unused_result)) int write__new_op(struct kvc_ns *ns, uint8_t code,
                                                      enum half half, struct kvc_op **ret_op);
/* For blocks with KVC_F_NO_STORE: makes an op that is done already, whether there is a daemon or
 * not. */
__attribute__((warn_unused_result)) int write__decline(struct kvc_ns *ns, uint8_t code,
                                                       uint32_t blocks, enum half half,
                                                       struct kvc_op **ret_op);
/* Wait for the op, and hand out its outcome; they do not free the op. */
__attribute__((warn_unused_result)) int write__finish_store(struct kvc_op *op,
                                                            uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int write__finish_commit(struct kvc_op *op,
                                                             uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int
write__finish_reserve(struct kvc_op *op, uint64_t *ret_reservation, uint8_t *ret_statuses);
__attribute__((warn_unused_result)) int write__finish_drop(struct kvc_op *op);

/* ---- admin.c ---- */

/* Calls kvc__enter() and makes an op whose deadline is the session's timeout, or timeout_ms from
 * now (0 = the session's; at most KVC_DEADLINE_MAX_MS). */
__attribute__((warn_unused_result)) int op__begin(struct kvc *k, uint8_t code,
                                                  struct kvc_op **ret_op);
__attribute__((warn_unused_result)) int
op__begin_within(struct kvc *k, uint8_t code, uint32_t timeout_ms, struct kvc_op **ret_op);
/* Copy a text as a string that ends with a zero, cut to the room that there is. */
void kvc__copy_text(char *to, size_t cap, const struct codec_bin *from);
void kvc__copy_string(char to[KVC_STRING_MAX], const struct codec_bin *from);

/* ---- put.c ---- */

/* Where the bytes of blocks come from: a callback, or pages of a pool. */
struct source {
    int (*fill)(void *ctx, const struct kvc_run *run); /* NULL: from `pool` */
    void *ctx;
    struct kvc_pool *pool;
    const uint32_t *pages; /* page numbers of the call's blocks */
    struct kvc_word after; /* pools on a device: pages are read once this word has its value */
};
/* Stores any number of consecutive blocks, in as many pieces as staging demands. Otherwise like
 * kvc_store. Blocks that the caller does not have get the status NO_STORE. */
__attribute__((warn_unused_result)) int put__blocks(struct kvc_ns *ns, const struct kvc_blocks *b,
                                                    const struct source *from,
                                                    const uint32_t *tokens, size_t ntokens,
                                                    uint8_t *statuses);

/* ---- news.c ---- */

/* Handles one datagram that came after the WELCOME; the value of kvc.take_news. */
__attribute__((warn_unused_result)) int news__take(struct kvc *k, const uint8_t *buf, size_t len,
                                                   int passed);

/* ---- session.c ---- */

__attribute__((warn_unused_result)) int session__finish_ping(struct kvc_op *op,
                                                             uint64_t *ret_uptime_ms);

#endif
