/* SPDX-License-Identifier: Apache-2.0 */
/* Shared inside daemon/svc only; control thread. */
#ifndef KVC_SVC_INTERNAL_H
#define KVC_SVC_INTERNAL_H

#include "codec.h"
#include "core_names.h"
#include "core_slices.h"
#include "flight.h"
#include "log.h"
#include "pool.h"
#include "share.h"
#include "svc.h"
#include "wheel.h"

#define CONN_NONE UINT32_MAX /* a session without a connection */
/* In pages, so that the areas that staging makes are counted as they are made. */
#define STAGING_UNIT 4096u

/* Answers to RELEASE that a session may be owed at a time. */
#define SVC_OWED_MAX 16u

/* The answer to a RELEASE, which nobody is in a hurry for. */
struct owed {
    uint64_t corr;
    uint32_t released;
};

/* Memory of a session's on a device. Free while it has no device. */
struct device_share {
    struct session *session;
    struct device *device;
    struct device_mem *mem;
    int fd; /* while it is being imported; else -1 */
    bool importing;
    bool dropped; /* while it was being imported */
};

struct device_pages { /* a pool; not open while it has no device */
    struct device *device;
    struct device_pool *pool;
    uint32_t ngroups;
    uint32_t pages_per_block[KVC_GROUPS_MAX];
    uint32_t calls; /* that name it */
    uint64_t outs;  /* of the device, when it was opened: it is void after another */
};

struct device_loan { /* memory of a chunk on a device that the session was given */
    uint32_t chunk;
    bool recalled; /* the chunk was retired since */
};

/* What a session has on devices. */
struct device_things {
    struct device_loan *loan;
    uint32_t nloans, loans_max;
    uint32_t nrecalled;
    struct wheel_timer late; /* while some are recalled */
    _Atomic uint64_t *words; /* NULL: not asked for */
    uint32_t importing;
    struct device_share mem[KVC_MEMS_MAX];
    struct device_pages pool[KVC_POOLS_MAX];
};

enum session_state {
    SESSION_FREE,
    SESSION_CONNECTED, /* has not said who it is */
    SESSION_STAGING,   /* its staging area is being made */
    SESSION_READY,
    SESSION_DROPPED, /* ended by us; its leases stay until its process lets go */
    SESSION_CLOSING  /* gone; copies from or to its memory are still running */
};

struct session {
    uint8_t state; /* enum session_state */
    bool greeted;  /* control-plane HELLO done */
    bool doomed;   /* to be dropped at the end of the turn, for doom_status */
    bool staging_pending;
    bool admitted; /* ports.admit() has its route */
    bool deaf;     /* a reply did not reach it */
    bool told;     /* its begin is in the log, and so is its end then */
    bool forced;   /* ended by somebody: it keeps nothing, though its process may live */
    struct log_limit audits;
    uint16_t doom_status;
    const char *doom_text; /* static */
    uint32_t index, serial;
    uint32_t conn;
    uid_t uid;
    pid_t pid;
    uint32_t version, shard;
    uint32_t inflight; /* calls not answered yet */
    uint8_t route[KVC_ROUTE_BYTES];
    char name[64];
    const struct svc_principal *principal; /* NULL: its uid has no rights */
    struct core_client *client;
    uint64_t staging_units; /* counted in the share */
    void *staging;
    const uint8_t *staging_base;
    uint64_t staging_bytes;
    struct device_things *things; /* NULL: none so far */
    struct list_node calls;
    struct wheel_timer hello; /* until it has said who it is */
    struct wheel_timer tell;  /* until it could be told that it was dropped */
    struct wheel_timer pay;   /* until it is sent what it is owed */
    struct owed owed[SVC_OWED_MAX];
    uint32_t nowed;
    struct list_node work; /* calls in the order in which they have their turns */
    struct list_node busy; /* svc->busy, while there are such */
    uint64_t work_used;    /* among the sessions of its principal */
    struct svc *svc;
};

/* Of a principal. */
struct work_share {
    uint64_t used;  /* among the principals */
    uint64_t floor; /* what its session that came last had used: of sessions, when they come */
    uint32_t busy;  /* sessions */
};

struct call;

/* What becomes of a call that its handler leaves to go on: of each kind in the file that begins it.
 * One that is called off (its deadline has come, its session has ended, or a CANCEL asks for it)
 * is answered, and ends.
 */
struct call_kind {
    /* The core does no more for it, but let go of what it had. NULL: it does nothing. */
    void (*leave)(struct call *call);
    bool copies; /* leave() asks copies to stop; the call ends when they have, in their done() */
    /* Why it ends with TIMEOUT; late_of, where that depends on the call. */
    const char *late;
    const char *(*late_of)(const struct call *call);
    /* Instead of all that, at its deadline, and when a CANCEL asks for it. NULL: as above. */
    void (*expire)(struct call *call);
    void (*cancel)(struct call *call);
    /* The daemon stops: what will not come any more is not waited for. NULL: the call goes on. */
    void (*drain)(struct call *call);
};

/* What a reserve borrows. */
struct wishes {
    struct core_range range[KVC_RETAIN_MAX];
    struct core_retention retention;
};

/* A request that is not answered within its handler: what all have. A kind embeds it first. */
struct call {
    struct list_node node; /* session->calls */
    struct list_node turn; /* session->work, while it waits for its turn, or for that of a slice */
    void (*step)(struct call *call); /* what it does then */
    struct session *session;
    struct msg_head head;
    const struct call_kind *kind;
    int err;         /* it is called off with this; 0: it goes on */
    bool answered;   /* before its copies end */
    bool has_cancel; /* a CANCEL waits for this call to end */
    struct msg_head cancel;
    uint64_t begun_ns;
    struct wheel_timer timer;
    void *kept; /* the request's bytes, for those that go on reading them */
    size_t kept_bytes;
    const void *buf; /* where they are */
    size_t len;
    uint64_t due_ns;            /* its deadline; the timer may be earlier */
    struct device_pages *pages; /* of a pool; counted there. NULL: none */
    struct core_gone gone;      /* what it has removed is to stay away */
};
/* Of the largest kind: what the pool has for each. */
#define CALL_BYTES      6208u
#define CALL_FITS(type) _Static_assert(sizeof(type) <= CALL_BYTES, "calls have room for it")

/* Has a lease that nobody is told of yet. */
struct lease_call {
    struct call call;
    uint32_t shard;
    struct core_held held;
    uint8_t *locs; /* of a long lease: svc->long_locs, as far as they are told */
    uint32_t nlocs;
    /* A block of it has gone before its place was told: asks for it anew. NULL: it cannot. */
    void (*again)(struct call *call);
};

/* Waits for a hit. */
struct wait_call {
    struct lease_call lease;
    struct core_acquire acquire;
    uint32_t ns; /* the id of its namespace */
    struct core_waiter waiter;
    bool woken;                /* its waiter was called */
    bool prefetch;             /* begins to load what it does not wait for */
    struct core_asking asking; /* of many keys */
    /* What follows when the hit is held; it ends the call, or makes it another. */
    void (*then)(struct wait_call *x, const struct core_held *held);
};

/* Places (namespace and group) where the LISTs of one turn look for keys: some 100 us. When none
 * are left, each still looks for one key. */
#define SVC_KEY_PLACES 2048u

/* Replies to ACQUIRE that are made in slices; there is no room for more, which are made at once. */
#define SVC_LONG_LOCS 4u

struct svc {
    struct svc_config cfg;
    struct core *core;
    struct svc_ports ports;
    uint64_t now_ns, start_ns;
    bool draining;
    struct svc_metrics m;
    struct metric_set sets[SVC_METRIC_SETS];
    uint32_t nsets;
    struct wheel wheel;
    struct pool *calls;
    /* Who has how much: sessions and staging by principal, calls and kept bytes by session. */
    struct share session_share, staging_share, call_share, kept_share;
    struct session *sessions; /* svc_conns_max() */
    uint32_t ndoomed;
    uint32_t serial;
    struct work_share *work_share;   /* by principal */
    uint64_t work_floor;             /* of principals, when they come */
    uint64_t turn_used;              /* work of this turn */
    struct list_node busy;           /* sessions that have work */
    struct core_reserving reserving; /* of a request that may not outlive its handler */
    struct wishes wishes;
    uint32_t importing;                         /* memories of devices, over all sessions */
    uint32_t places_left;                       /* where LISTs may look for keys in this turn */
    struct ring *trace;                         /* NULL = off */
    uint32_t trace_ns;                          /* 0 = all */
    uint8_t scratch[KVC_STORE_MAX];             /* statuses of a request that does not wait */
    uint8_t locs[KVC_KEYS_MAX * KVC_LOC_BYTES]; /* of one ACQUIRE reply */
    uint8_t long_locs[SVC_LONG_LOCS][KVC_KEYS_MAX * KVC_LOC_BYTES]; /* of those told in slices */
    bool long_used[SVC_LONG_LOCS];
    struct device_region regions[KVC_REGIONS_MAX]; /* of one POOL_OPEN */
    struct msg_policy_reply policy;                /* on its way out */
    uint8_t out[KVC_MESSAGE_MAX];
};

/* The request being handled. */
struct request {
    struct svc *s;
    struct session *se;
    struct msg_head head;
    const void *buf;
    size_t len;
    void *msg;
    /* Of one that has waited: since when, its deadline, and its bytes, which call_keep() may take
     * over. */
    uint64_t begun_ns, due_ns;
    void *kept;
    size_t kept_bytes;
    bool had_room; /* it has waited for room */
};

/* When it came. */
static inline uint64_t request_begun_ns(const struct request *rq)
{
    return rq->begun_ns ? rq->begun_ns : rq->s->now_ns;
}

/* work.c */
/* Whether a request that has come may be handled at once. */
bool work_comes_first(struct session *se);
/* A call goes on in another turn, before all else of its session: `step` is called then, and again
 * until the call leaves, or ends. */
void work_go_on(struct call *call, void (*step)(struct call *call));
/* The same behind all else. */
void work_wait(struct call *call, void (*step)(struct call *call));
void work_leave(struct call *call);
/* Before a piece of a session's work; returns what work_charge() asks for. */
uint64_t work_begin(const struct svc *s);
/* What was done for a session since counts, and a request of so many bytes, which may be 0. */
void work_charge(struct session *se, uint32_t op, uint64_t begun, size_t bytes);
void work_run(struct svc *s);
/* When it has something to do: 0 = now, UINT64_MAX = nothing is there. */
uint64_t work_next_ns(const struct svc *s);

/* reply.c: exactly one of these per request */
void reply_send(struct svc *s, struct session *se, int len); /* of what was encoded into s->out */
void reply_error(struct svc *s, struct session *se, const struct msg_head *head, int err,
                 const char *detail);
/* RELEASE is answered with the session's next reply, or a little later. */
void reply_released(struct svc *s, struct session *se, const struct msg_head *head,
                    uint32_t released);
/* Sends what is owed now; what of it a session has lost by its end is forgotten. */
void reply_owed(struct svc *s, struct session *se);
void reply_forget(struct svc *s, struct session *se);
uint16_t status_of(int err); /* wire status of a negative return value; total */

/* session.c */
uint32_t principal_no(const struct svc *s, const struct svc_principal *p);
void session_doom(struct session *se, uint16_t status, const char *text);
/* The same, and its leases end too, though its process may live; of one that was dropped before,
 * what it kept. */
void session_force(struct session *se, uint16_t status, const char *text);
struct session *session_by_route(struct svc *s, const void *route, size_t len);
/* It opens a namespace: what works with blocks is told of in the log, and a tool that looks is not.
 */
void session_works(struct session *se);
uint32_t session_principal(const struct session *se);
/* Says it on the attach connection; a session that takes nothing is doomed. */
void session_say(struct session *se, const void *buf, int len, int fd);

/* attach.c */
/* One of the things that a session that has been closed waits for is over. */
void session_over(struct session *se);
/* Tells the peer and stops serving it; at the end of a turn. */
void session_drop(struct session *se);

/* call.c */
/* A zeroed struct of that kind, whose first is its call. NULL: answered BUSY. */
void *call_new(struct request *rq, const struct call_kind *kind);
/* NULL: not answered. */
void *call_try(struct request *rq, const struct call_kind *kind);
/* call_new() and call_keep(). NULL: answered. */
void *call_new_kept(struct request *rq, const struct call_kind *kind);
/* The request's bytes stay until the call has ended. False: no more can be kept. */
bool call_keep(struct request *rq, struct call *call) KVC_WARN_UNUSED;
/* It could not: the request is refused, and the call ended. */
void refuse_to_keep(struct request *rq, struct call *call);
/* They are the request's again, which goes on; request_end() frees them. */
void call_unkeep(struct request *rq, struct call *call);
/* Nothing reads them any more. */
void call_bytes_end(struct call *call);
/* The request that a call was made of, which goes on; the call is to be ended. */
void call_resume(struct call *call, struct request *ret_rq);
/* The last of every request: frees the bytes that it still has. */
void request_end(struct request *rq);
/* When its timer is to fire, from now on. */
void call_rearm(struct call *call, uint64_t due_ns);
/* What it has removed is to stay away after a crash: then `fn`. */
void call_await_gone(struct call *call, void (*fn)(struct core_gone *gone, int err));
/* What the answer says when storage does not say so (err), or not in time. */
const char *call_gone_detail(int err);
/* Copies begin until then, so that they have ended by the deadline. */
uint64_t call_copies_due(const struct call *call);
/* Answered now or before; frees it, and answers a CANCEL that waited for it. */
void call_end(struct svc *s, struct call *call);
void call_cancel_all(struct session *se);
/* Its copies have ended, and it is about to. Whether it tells what became of them; else somebody
 * has been told already why it was called off, or is now, or nobody is there. */
bool call_tells(struct call *call);
void op_cancel(struct request *rq);

/* read.c */
/* The sequence that a request names (`all`: also what is not worth loading); ns_detail() says what
 * is wrong with it. */
int svc__seq(struct request *rq, const struct msg_seq *msg, bool all,
             struct core_seq *ret_seq) KVC_WARN_UNUSED;
/* What core_ask_step() has returned, but CORE_MORE. */
typedef void(look_answer)(const struct call *call, const struct core_asking *asking, int err,
                          const struct core_held *found, const char *why);
void op_lookup(struct request *rq);
void op_acquire(struct request *rq);
void op_redeem(struct request *rq);
void op_release(struct request *rq);
void op_hint(struct request *rq);
#define LOOK_LATE "not all keys had been looked up; others had their turns too"
/* In slices; `answer` answers it. */
void look_slices(struct request *rq, const struct core_asking *asking, look_answer *answer);
/* Waits for what `in` wants; `then` follows, with the lease. NULL: answered. The caller goes on
 * with wait_again(). */
struct wait_call *wait_new(struct request *rq, const struct core_acquire *in, uint32_t shard,
                           void (*then)(struct wait_call *x, const struct core_held *held));
void wait_again(struct call *call);
/* As another kind it had a hit, which has gone: it waits again. */
void wait_anew(struct call *call);
/* It neither asks nor waits any more, and lets go of what it held. */
void wait_leave(struct call *call);
/* Begins to load what it did not wait for; of a long one its slices have begun that. */
void prefetch_short(struct wait_call *x);
/* The answer to ACQUIRE and its like; `near`: for who reads on the device, if it holds anything
 * there. A shard that does not exist ends the lease. */
void reply_held(struct svc *s, struct session *se, const struct msg_head *head,
                const struct core_held *held, uint32_t shard, bool near);
/* What ACQUIRE and its like ask for. 0, or negative with *ret_why. */
int svc__want(struct request *rq, const struct msg_acquire *msg, struct core_acquire *ret_in,
              const char **ret_why) KVC_WARN_UNUSED;

/* What one request may have loaded that it does not wait for. */
#define SVC_PREFETCH_BYTES (UINT64_C(256) << 20)

/* names.c */
void op_name_put(struct request *rq);
void op_name_forget(struct request *rq);
void op_name_load(struct request *rq);
void op_name_tokens(struct request *rq);

/* write.c */
void op_reserve(struct request *rq);
void op_commit(struct request *rq);
void op_store(struct request *rq);
void op_drop(struct request *rq);
void op_pages_store(struct request *rq);
/* Its blocks are being copied. */
extern const struct call_kind commit_kind;

/* device.c */
void device_words(struct session *se);
void device_mem(struct session *se, const struct att_mem *msg, int *fd);
void device_mem_drop(struct session *se, uint32_t mem);
void device_map_on(struct session *se, uint32_t chunk);
/* As ports.chunk_fd: of the headers of a device's chunk. */
int device_headers_fd(const struct session *se, uint32_t chunk,
                      uint64_t *ret_bytes) KVC_WARN_UNUSED;
/* Whether something is being imported for the session. */
bool device_is_importing(const struct session *se);
/* No copy touches any of it, and nothing is being imported. */
void device_end(struct session *se);
struct device *device_by_uuid(struct svc *s, const uint8_t uuid[KVC_UUID_BYTES]);
/* The session's pool of this number, or NULL. */
struct device_pages *device_pool(struct session *se, uint32_t pool);
/* The device is out, or was since the pool was opened: KVC_E_TIER with *ret_why; else 0. */
int device_pool_lost(const struct device_pages *pages, const char **ret_why) KVC_WARN_UNUSED;
/* Why its pages do not fit the namespace's blocks; NULL: they do. */
const char *device_pool_fault(const struct device_pages *pages, const struct core_ns *ns);
/* Word `no`, NULL for KVC_NO_WORD. False: the session has none. */
bool device_word(struct session *se, uint32_t no, _Atomic uint64_t **ret_word) KVC_WARN_UNUSED;
/* Whether it has not reached the value yet. */
bool device_word_is_due(const _Atomic uint64_t *word, uint64_t value);
/* What the session's worker raises when it takes its pages back; NULL: it cannot. */
const _Atomic uint64_t *device_revoked(const struct session *se);
void op_pool_open(struct request *rq);
void op_pool_close(struct request *rq);

/* lend.c */
/* The session is told of memory that the device has just exported; it has things. 0, -ENOMEM. */
int lend_chunk(struct session *se, struct device *d, uint32_t chunk) KVC_WARN_UNUSED;
/* UNMAPPED; of what it was not given nothing comes. */
void lend_unmapped(struct session *se, uint32_t chunk);
/* The chunk is retired, and the session told so. */
void lend_recall(struct session *se, uint32_t chunk);
/* Whether it may map any. */
bool lend_any(const struct session *se);
/* It maps nothing any more. */
void lend_end(struct session *se);

#define NO_DEVICE "the daemon has no such device (`devices` in its configuration; DEVICES)"
#define NO_POOL   "pool: no such pool is open in this session"
#define NO_WORDS  "a word is named, and WORDS was not asked for on the attach channel"

/* pages.c */
void op_pages_load(struct request *rq);
void op_acquire_on(struct request *rq);
/* Numbers where they are aligned; in the bytes of a request that is kept, for which the field
 * before it is not needed any more. */
const uint32_t *pages_align(struct codec_bin pages);

/* What to say when core_ns_get() fails. */
const char *ns_detail(int err);

/* ns.c */
void op_ns_open(struct request *rq);
void op_ns_spec(struct request *rq);

/* admin.c */
void op_stats(struct request *rq);
void op_list(struct request *rq);
void op_evict(struct request *rq);
void op_session_end(struct request *rq);
/* `who` may see session `se`, and end it. */
bool svc__may_see(const struct session *who, const struct session *se);

/* audit.c: what was changed or removed by hand. Not what workers do all the time, and nothing that
 * only reads. */
void audit(struct session *se, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_evicted(struct session *se, const struct core_evict_job *job);
void audit_forgotten(struct session *se, const char *name, const char *sub, bool evicts,
                     const struct core_evicted *x);
void audit_quota(struct session *se, const struct core_quota *quota);

/* The text of a message with a zero behind it; NULL when it is empty. */
const char *svc__text(char to[KVC_STRING_MAX], struct codec_bin from);
/* Whether it was, and has been answered DENIED, for lack of admin rights. */
bool svc__denied(struct request *rq);

/* trace.c; the first two only while a trace is on */
void trace__asked(struct svc *s, const struct session *se, const struct core_seq *seq);
void trace__stored(struct svc *s, const struct session *se, const struct core_reserve *in);
void op_trace(struct request *rq);
void op_trace_dump(struct request *rq);

/* storage.c */
void op_drain(struct request *rq);
/* NULL, or why a request with these flags cannot be served: it is durable, and nothing is. */
const char *svc__durable_fault(const struct svc *s, uint32_t flags);

/* keep.c */
/* A line of log where shares of memory do not hold with the blocks of this namespace, or where much
 * of memory stays empty, for they are large. */
void svc__tell_shares(struct svc *s, const struct core_ns *ns);
void op_pin(struct request *rq);
void op_unpin(struct request *rq);
void op_quota_set(struct request *rq);
void op_policy(struct request *rq);

/* inspect.c */
void op_verify(struct request *rq);

#endif
