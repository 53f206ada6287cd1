/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a session, shared by the files of this directory.
 *
 * Life of the link: DOWN -> ATTACHING (attach channel connected, WELCOME awaited) -> GREETING
 * (control socket connected, HELLO unanswered) -> UP -> DOWN. Only kvc__down() leads back.
 * Everything runs in the caller's thread inside some call; libzmq's I/O thread only moves bytes.
 */
#ifndef KVC_CLIENT_H
#define KVC_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include <kvcache/kvcache.h>

#include "codec.h"
#include "map.h"
#include "wire.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "offsets, token ids and leases go to the wire as they are in memory");

/* Slots of requests in flight; a power of two. The daemon's own limit is lower by default. */
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
/* How often a call looks at the attach channel without a reason to. */
#define NEWS_INTERVAL_MS 10u

#define NS_PER_MS UINT64_C(1000000)

enum link_state { LINK_DOWN, LINK_ATTACHING, LINK_GREETING, LINK_UP };

/* An open namespace. `canon` is its NS_OPEN request with correlation id 0: what tells two
 * specifications apart, and what is sent again after a reconnect. */
struct kvc_ns {
    struct kvc *kvc;
    struct kvc_ns *next;
    uint32_t id;
    uint32_t epoch; /* in which it was last opened */
    int error;      /* why the daemon of that epoch refused it; 0 = open */
    uint8_t seed[KVC_KEY_BYTES];
    uint32_t groups;
    uint32_t block_bytes[KVC_GROUPS_MAX];
    size_t canon_len;
    uint8_t canon[];
};

/* A request, from its sending until its outcome has been taken. */
struct kvc_op {
    struct kvc *kvc;
    struct kvc_op *prev, *next; /* live list; next alone: free list */
    struct kvc_ns *ns;          /* where the outcome needs it, else NULL */
    struct msg_head head;
    uint64_t guard_ns; /* when the wait ends, whatever the daemon does */
    uint32_t epoch;
    bool writes_staging; /* the daemon may read staging until this is settled */
    bool done;
    int error; /* done: 0 = msg holds a reply with status OK */
    struct wire_msg msg;
    uint32_t group, blocks; /* STORE: what counts as dropped */
};

struct hold {
    struct kvc_hold pub; /* first: the caller's pointer is the struct's */
    struct kvc *kvc;
    struct hold *prev, *next; /* live list; next alone: free list */
    struct kvc_block *block;
    uint32_t block_cap, blocks;
    struct map **map; /* one reference each */
    uint32_t map_cap, maps;
};

/* What kvc_reserve returned. Handles are of the library and never repeat, because a restarted
 * daemon may give the same reservation ids again. */
struct resv {
    uint64_t handle; /* 0 = free */
    uint64_t id;
    uint32_t epoch;
    uint32_t group;
    uint32_t left; /* reserved, and not named in a commit yet */
};

/* The attach connection of an epoch that the daemon has ended; parted.c's. */
struct parted {
    struct parted *next;
    int fd;
    uint32_t epoch;
};

struct kvc {
    /* Zeroed by the kernel in a child of fork(); NULL: not supported, compare pids. */
    volatile uint8_t *not_forked;
    pid_t pid;
    struct kvc *next_session; /* of this process; fork.c's */

    char *socket;
    char name[64];
    uint64_t staging_wanted;
    uint32_t shard, timeout_ms;

    enum link_state state;
    int attach_fd; /* -1 in DOWN */
    struct wire wire;
    uint32_t epoch;
    uint64_t next_try_ns, attach_until_ns, news_ns;
    uint32_t backoff_ms;
    struct parted *parted;
    struct parted *parting;  /* room for one more, from attaching on */
    struct kvc_op *greeting; /* the HELLO of GREETING */
    uint32_t refused_chunk;  /* the last CHUNK that could not be had, */
    int refused_error;       /* and why; 0 = none since it was asked for */

    uint8_t *staging; /* of the last epoch that had one; stays mapped while down */
    uint64_t staging_bytes;
    uint32_t staging_epoch; /* of that mapping */
    uint32_t staging_asked; /* epoch in which the caller last asked for it */
    struct map_table maps;

    uint8_t *tx; /* KVC_MESSAGE_MAX bytes; pages are touched as messages grow */
    uint64_t corr;
    struct kvc_op *slot[OPS_SLOTS]; /* in flight, by correlation id */
    struct kvc_op *live_ops, *free_ops;
    struct hold *live_holds, *free_holds;
    struct resv *resv;
    uint32_t resv_cap;
    uint64_t resv_serial;
    struct kvc_ns *ns;

    struct kvc_counters counters;
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

/* ---- session.c ---- */

/* A status other than OK as the value that the API returns. */
int kvc__status_error(unsigned status);
/* Keeps the text for kvc_last_error and returns `error`. */
int kvc__fail(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Keeps a text for kvc_last_error(NULL) in this thread, and returns `error`. */
int kvc__fail_open(int error, const char *text);
/* When a call with this timeout (0 = the session's) ends. */
uint64_t kvc__deadline(const struct kvc *k, uint32_t timeout_ms);
/* Starts every call that talks: fork rule, news of the attach channel, reconnecting when it is due.
 * 0 = up; KVC_E_DOWN; -EPERM in a child of fork(). */
__attribute__((warn_unused_result)) int kvc__enter(struct kvc *k, uint64_t deadline_ns);

/* ---- fork.c ---- */

/* A session of this process from here to fork__leave. */
__attribute__((warn_unused_result)) int fork__enter(struct kvc *k);
void fork__leave(struct kvc *k);
/* Whether this process is a child of the one that opened the session. */
bool fork__is_child(const struct kvc *k);

/* ---- parted.c ---- */

/* Room for the connection that is about to be made: when it is lost there may be none. -ENOMEM. */
__attribute__((warn_unused_result)) int parted__prepare(struct kvc *k);
/* Takes the attach connection over, if blocks of this epoch are held; else leaves it. */
void parted__add(struct kvc *k);
/* Whether the daemon still keeps what was held in that epoch. */
bool parted__has(const struct kvc *k, uint32_t epoch);
/* Closes the connections of which nothing is held any more. */
void parted__sweep(struct kvc *k);

/* ---- connect.c ---- */

/* Goes on with connecting, waiting for a WELCOME until `welcome_ns` and for the rest until
 * `deadline_ns`. 0 = up, and namespaces are open again as far as there was time. Else the text says
 * why: KVC_E_DOWN (also: not yet), -EACCES, the daemon's refusal, KVC_E_BAD_MESSAGE. */
__attribute__((warn_unused_result)) int kvc__connect(struct kvc *k, uint64_t welcome_ns,
                                                     uint64_t deadline_ns);
/* Ends the link: requests in flight get `error`, mappings and leases are given up. Keeps the text.
 * Returns `error`. */
int kvc__down(struct kvc *k, int error, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Takes in what the attach channel says now. 0, or an error with the link down. */
__attribute__((warn_unused_result)) int kvc__news(struct kvc *k);
/* The mapping of a chunk, asking the daemon when it is not known yet. Borrowed. KVC_E_TIMEOUT (link
 * still up), KVC_E_DOWN, the daemon's refusal, -ENOMEM. */
__attribute__((warn_unused_result)) int kvc__chunk(struct kvc *k, uint32_t chunk, uint64_t until_ns,
                                                   struct map **ret_map);

/* ---- ops.c ---- */

/* An op with head filled in, not sent. KVC_E_BUSY: too many in flight. -ENOMEM. */
__attribute__((warn_unused_result)) int op__new(struct kvc *k, uint8_t code, uint64_t deadline_ns,
                                                struct kvc_op **ret_op);
/* Sends k->tx; `len` is what the encoder returned. */
__attribute__((warn_unused_result)) int op__send(struct kvc_op *op, int len);
/* Waits for the reply. 0 = op->msg is a reply with status OK; else op->error. */
__attribute__((warn_unused_result)) int op__await(struct kvc_op *op);
/* Handles what arrives until it is done or the time has come. */
void op__pump(struct kvc_op *op, uint64_t until_ns);
/* op__send and op__await. */
__attribute__((warn_unused_result)) int op__call(struct kvc_op *op, int len);
/* Sends k->tx and awaits nothing: a reply is discarded. The head for its encoder comes from
 * op__post_head. A failure ends the link, and with it what the message was about. */
struct msg_head op__post_head(struct kvc *k, uint8_t code);
void op__post(struct kvc *k, int len);
/* Checks what a decoder said of an OK reply's body: malformed ends the link. */
__attribute__((warn_unused_result)) int op__checked(struct kvc_op *op, int decoded);
/* Forgets it; a reply that comes later is discarded. Accepts NULL. */
void op__free(struct kvc_op *op);
/* Ends every op in flight with `error`. */
void op__fail_all(struct kvc *k, int error);
/* Frees all memory of ops. */
void op__destroy_all(struct kvc *k);

/* ---- ns.c ---- */

/* Opens or reopens; 0, the daemon's refusal, KVC_E_TIMEOUT, KVC_E_DOWN. */
__attribute__((warn_unused_result)) int ns__open(struct kvc_ns *ns, uint64_t deadline_ns);
/* kvc__enter, and the namespace open in this epoch. */
__attribute__((warn_unused_result)) int ns__enter(struct kvc_ns *ns, uint64_t deadline_ns);

/* ---- read.c, write.c ---- */

/* The outcome of an op of that kind; does not free it. */
__attribute__((warn_unused_result)) int read__finish_lookup(struct kvc_op *op,
                                                            struct kvc_prefix *ret_prefix);
__attribute__((warn_unused_result)) int read__finish_acquire(struct kvc_op *op,
                                                             struct kvc_hold **ret_hold);
__attribute__((warn_unused_result)) int write__finish_store(struct kvc_op *op,
                                                            uint8_t *ret_statuses);

/* ---- hold.c ---- */

/* An empty hold of this epoch, owned. */
__attribute__((warn_unused_result)) int hold__new(struct kvc *k, struct hold **ret_hold);
/* Fills a hold from a reply: maps chunks, checks every location. On failure its lease is ended. */
__attribute__((warn_unused_result)) int
hold__fill(struct hold *h, const struct msg_acquire_reply *r, uint64_t until_ns);
void hold__free(struct hold *h);
void hold__destroy_all(struct kvc *k);
/* Ends a lease of this epoch. Does nothing while down: it ended with the connection. */
void hold__end_lease(struct kvc *k, uint64_t lease);

/* ---- write.c ---- */

/* A reservation whose reply came too late for anybody. */
void resv__abandon(struct kvc *k, uint64_t id);

#endif
