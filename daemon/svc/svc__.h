/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of the services, sessions and calls, and what the files of daemon/svc call of each
 * other. Not for other directories. Control thread only.
 */
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
/* Staging is counted in pages, because its areas are made of pages. */
#define STAGING_UNIT 4096u

/* Replies to RELEASE that may be owed to a session at a time. */
#define SVC_OWED_MAX 16u

/* A reply to a RELEASE that is not sent yet: no client waits for it. */
struct owed {
    uint64_t corr;
    uint32_t released;
};

/* Memory of a session on a device, which the daemon imports. Unused while `device` is
 * NULL. */
struct device_import {
    struct session *session;
    struct device *device;
    struct device_mem *mem;
    int fd; /* its descriptor while it is being imported; else -1 */
    bool importing;
    bool dropped; /* the session dropped it while it was being imported */
};

struct device_pages { /* a pool of pages; not open while `device` is NULL */
    struct device *device;
    struct device_pool *pool;
    uint32_t ngroups;
    uint32_t pages_per_block[KVC_GROUPS_MAX];
    uint32_t calls; /* calls in flight that name the pool */
    uint64_t outs;  /* how often the device had failed when the pool was opened: another failure
                     * makes it void */
};

struct device_loan { /* memory of a chunk on a device that the session was given */
    uint32_t chunk;
    bool recalled; /* the chunk was retired since then */
};

/* All that a session has on devices: loans, words, memories, pools. */
struct device_things {
    struct device_loan *loan;
    uint32_t nloans, loans_max;
    uint32_t nrecalled;      /* loans with `recalled` */
    struct wheel_timer late; /* runs while loans are recalled: logs a session that is late */
    _Atomic uint64_t *words; /* NULL: the session did not ask for words */
    uint32_t importing;      /* entries of `mem` that are being imported */
    struct device_import mem[KVC_MEMS_MAX];
    struct device_pages pool[KVC_POOLS_MAX];
};

/* The replies that reply.c owes a session. */
struct session_owed {
    struct wheel_timer pay; /* when they are sent at the latest */
    struct owed reply[SVC_OWED_MAX];
    uint32_t n;
};

/* What work.c knows of a session. */
struct session_work {
    struct list_node calls; /* call.turn, in the order of their turns */
    struct list_node busy;  /* among the sessions that have calls here */
    uint64_t used;          /* work done for the session, compared among those of its principal */
};

enum session_state {
    SESSION_FREE,
    SESSION_CONNECTED, /* the HELLO of its attach connection was not received yet */
    SESSION_STAGING,   /* its staging area is being made */
    SESSION_READY,
    SESSION_DROPPED, /* ended by the daemon; its leases stay until its process has ended or
                      * closed */
    SESSION_CLOSING  /* closed; copies from or to its memory are still running */
};

struct session {
    uint8_t state;           /* enum session_state */
    bool greeted;            /* the HELLO of its control socket was answered */
    bool close_pending;      /* to be dropped at the end of the turn, with close_status */
    bool unreachable;        /* a reply could not be delivered */
    bool told;               /* its begin is in the log, and its end will be */
    bool forced;             /* ended by an operator: its leases end, though its process may live */
    struct log_limit audits; /* of the session's lines in the audit log */
    uint16_t close_status;
    const char *close_text; /* static */
    uint32_t index;         /* in svc.sessions */
    uint32_t serial;        /* by which operators name it: no other session of this run has it */
    uint32_t conn;          /* its attach connection; CONN_NONE: closed */
    uid_t uid;
    pid_t pid;
    uint32_t version;
    uint32_t inflight; /* calls not answered yet */
    uint8_t route[KVC_ROUTE_BYTES];
    char name[64];
    const struct svc_principal *principal; /* NULL: its uid has no rights */
    struct core_client *client;
    const uint8_t *staging_base; /* NULL: it has no staging area */
    uint64_t staging_bytes;
    struct device_things *things; /* NULL: nothing on devices so far */
    struct list_node calls;
    struct session_owed owed;
    struct session_work work;
    struct svc *svc;
};

struct call;

/* A kind of calls: how they are called off. Each file that begins calls declares its kinds. A call
 * that is called off (its deadline has passed, its session has ended, or a CANCEL names it) is
 * answered, and ends. */
struct call_kind {
    /* Withdraws what the call has in the core, and releases what it held. NULL: it has nothing
     * there. */
    void (*leave)(struct call *call);
    bool copies; /* leave() cancels copies, and the call ends when the last one has ended */
    /* The text of its TIMEOUT; late_of: where that depends on the call. */
    const char *late;
    const char *(*late_of)(const struct call *call);
    /* Called instead of all that: expire() at the deadline, cancel() when a CANCEL names the call.
     * NULL: as above. */
    void (*expire)(struct call *call);
    void (*cancel)(struct call *call);
    /* The daemon stops: ends waits that nothing would end any more. NULL: the call continues. */
    void (*shutdown)(struct call *call);
};

/* Retention wishes that a reserve borrows. */
struct wishes {
    struct core_range range[KVC_RETAIN_MAX];
    struct core_retention retention;
};

/* A request that is not answered within its handler: the part that all kinds have. A kind embeds it
 * as its first member. */
struct call {
    struct list_node node; /* session->calls */
    struct list_node turn; /* session->work.calls, while the call waits for its turn, or for the
                            * turn of its next slice */
    void (*step)(struct call *call); /* called in its turn */
    struct session *session;
    struct msg_head head;
    const struct call_kind *kind;
    int err;         /* it is called off with this error; 0: it continues */
    bool answered;   /* it is answered before its copies have ended */
    bool has_cancel; /* a CANCEL waits for this call to end */
    struct msg_head cancel;
    uint64_t begun_ns;
    struct wheel_timer timer;
    void *kept; /* the request's bytes, if the call still reads them */
    size_t kept_bytes;
    const void *buf; /* where these bytes are */
    size_t len;
    uint64_t due_ns;            /* its deadline; the timer may be earlier */
    struct device_pages *pages; /* the pool that the call names, counted there. NULL: none */
    struct core_gone gone;      /* waits until the call's removals outlive a crash */
};
/* Bytes of the largest kind of call, which each entry of the pool has. */
#define CALL_BYTES      6208u
#define CALL_FITS(type) _Static_assert(sizeof(type) <= CALL_BYTES, "calls have room for it")

/* A call with a lease of which the client was not told yet. */
struct lease_call {
    struct call call;
    uint32_t shard;
    struct core_held held;
    uint8_t *locs; /* for a long lease: one of svc->long_locs.at, filled slice by slice */
    uint32_t nlocs;
    /* Acquires anew, because a block was removed before its location was told. NULL: the call
     * cannot. */
    void (*again)(struct call *call);
};

/* A call that waits for a hit: loads, or blocks that are being written. */
struct wait_call {
    struct lease_call lease;
    struct core_acquire acquire;
    uint32_t ns; /* the id of its namespace */
    struct core_waiter waiter;
    bool woken;                /* its waiter was called */
    bool prefetch;             /* begins to load blocks that it does not wait for */
    struct core_asking asking; /* the acquire in slices, if it has many keys */
    /* Called when the hit is held: ends the call, or makes it another kind. */
    void (*then)(struct wait_call *x, const struct core_held *held);
};

/* How many pairs of namespace and group all LISTs of one turn search for keys: some 100 us. After
 * that each LIST still looks for one key. */
#define SVC_KEY_PLACES 2048u

/* Replies to ACQUIRE that may be made in slices at a time; further ones are made in one piece. */
#define SVC_LONG_LOCS 4u

/* Locations of replies that are made in slices. */
struct long_locs {
    bool used[SVC_LONG_LOCS];
    uint8_t at[SVC_LONG_LOCS][KVC_KEYS_MAX * KVC_LOC_BYTES];
};

/* Of attach.c, device.c, trace.c and work.c. */
struct attached;
struct devices;
struct trace;
struct work_state;

struct svc {
    struct svc_config cfg;
    struct core *core;
    struct svc_ports ports;
    uint64_t now_ns, start_ns;
    bool stopping;
    struct svc_metrics m;
    struct metric_set sets[SVC_METRIC_SETS];
    uint32_t nsets;
    struct wheel wheel;
    struct pool *calls;
    /* Shares: sessions and staging by principal, calls and kept bytes by session. */
    struct share session_share, staging_share, call_share, kept_share;
    struct session *sessions; /* svc_conns_max() */
    uint32_t nclose_pending;  /* sessions with close_pending */
    struct work_state *work;
    struct attached *attached;
    struct devices *devices;
    struct trace *trace;  /* NULL = off */
    uint32_t places_left; /* of SVC_KEY_PLACES: what LISTs may still search in this turn */
    uint8_t locs[KVC_KEYS_MAX * KVC_LOC_BYTES]; /* of one ACQUIRE reply */
    struct long_locs long_locs;
    uint8_t out[KVC_MESSAGE_MAX]; /* the reply that is being encoded */
};

/* The request being handled. */
struct request {
    struct svc *s;
    struct session *se;
    struct msg_head head;
    const void *buf;
    size_t len;
    void *msg;
    /* For a request that has waited: since when, its deadline, and its bytes, which call_keep() may
     * take over. */
    uint64_t begun_ns, due_ns;
    void *kept;
    size_t kept_bytes;
    bool had_room; /* the request has waited for room already, and does not wait again */
};

/* When the request was received. */
static inline uint64_t request_begun_ns(const struct request *rq)
{
    return rq->begun_ns ? rq->begun_ns : rq->s->now_ns;
}

/* work.c */
int work_create(struct svc *s) KVC_WARN_UNUSED; /* -ENOMEM */
void work_destroy(struct svc *s);
void work_init(struct session *se);
void work_turn_begin(struct svc *s);
/* Whether a request that was just received may be handled at once. */
bool work_comes_first(struct session *se);
/* The call continues in another turn, before all other calls of its session: `step` is called then,
 * and again until work_leave(), or the end of the call. */
void work_go_on(struct call *call, void (*step)(struct call *call));
/* work_go_on(), but behind all other calls of its session. */
void work_wait(struct call *call, void (*step)(struct call *call));
void work_leave(struct call *call);
/* To be called before a piece of work for a session; returns `begun` of work_charge(). */
uint64_t work_begin(const struct svc *s);
/* Charges the session for the work done since `begun`, in a request or call of operation op, and
 * for a message of so many bytes, which may be 0. */
void work_charge(struct session *se, uint32_t op, uint64_t begun, size_t bytes);
void work_run(struct svc *s);
/* When work_run() has something to do: 0 = now, UINT64_MAX = nothing waits. */
uint64_t work_next_ns(const struct svc *s);

/* reply.c: exactly one of these per request */
void reply_send(struct svc *s, struct session *se, int len); /* sends s->out, in which `len` bytes
                                                              * were encoded */
void reply_error(struct svc *s, struct session *se, const struct msg_head *head, int err,
                 const char *detail);
/* Answers a RELEASE with the session's next reply, or a little later. */
void reply_released(struct svc *s, struct session *se, const struct msg_head *head,
                    uint32_t released);
/* Sends the replies that are owed now. reply_forget() discards them, for a session that has
 * ended. */
void reply_owed(struct svc *s, struct session *se);
void reply_forget(struct svc *s, struct session *se);
uint16_t status_of(int err); /* wire status of a negative return value; total */

/* session.c */
/* Makes the session a free one. */
void session_init(struct svc *s, uint32_t index);
uint32_t principal_no(const struct svc *s, const struct svc_principal *p);
void session_close_soon(struct session *se, uint16_t status, const char *text);
/* session_close_soon(), but the session's leases end too, though its process may live; of a dropped
 * session, those that it kept. */
void session_force(struct session *se, uint16_t status, const char *text);
struct session *session_by_route(struct svc *s, const void *route, size_t len);
/* The session opens a namespace, so it works with blocks: its begin is logged. A tool that only
 * looks is not logged. */
void session_works(struct session *se);
uint32_t session_principal(const struct session *se);
/* Sends a message on the attach connection; a session that takes nothing is to be closed. */
void session_say(struct session *se, const void *buf, int len, int fd);

/* attach.c */
uint64_t attached_bytes(const struct svc_config *cfg); /* memory that attached_create() allocates */
int attached_create(struct svc *s) KVC_WARN_UNUSED;    /* -ENOMEM */
void attached_destroy(struct svc *s);
/* Call it when something has ended for which a closed session waits: after the last such thing the
 * session is freed. */
void session_over(struct session *se);
/* Tells the peer that its session is dropped, and stops serving it; at the end of a turn. */
void session_drop(struct session *se);

/* call.c */
/* Makes a zeroed struct of that kind, which begins with its call. NULL: answered BUSY. */
void *call_new(struct request *rq, const struct call_kind *kind);
/* call_new() that does not answer when it returns NULL. */
void *call_try(struct request *rq, const struct call_kind *kind);
/* call_new() and call_keep(). NULL: answered. */
void *call_new_kept(struct request *rq, const struct call_kind *kind);
/* The request's bytes stay until the call has ended. False: no more can be kept. */
bool call_keep(struct request *rq, struct call *call) KVC_WARN_UNUSED;
/* call_keep() has failed: refuses the request, and ends the call. */
void refuse_to_keep(struct request *rq, struct call *call);
/* Gives the kept bytes back to the request, which continues; request_end() frees them. */
void call_unkeep(struct request *rq, struct call *call);
/* Frees the kept bytes, which nothing reads any more. */
void call_bytes_end(struct call *call);
/* Makes the request again of which the call was made, to continue it; the caller ends the call. */
void call_resume(struct call *call, struct request *ret_rq);
/* Ends a request: frees the bytes that it still has. To be called last, for every request. */
void request_end(struct request *rq);
/* Sets when the call's timer fires from now on. */
void call_rearm(struct call *call, uint64_t due_ns);
/* Waits until the call's removals outlive a crash: then `fn` is called. */
void call_await_gone(struct call *call, void (*fn)(struct core_gone *gone, int err));
/* The text of the answer when storage failed to make the removals durable (err), or took too long.
 */
const char *call_gone_detail(int err);
/* The time until which copies may begin, so that they have ended by the deadline. */
uint64_t call_copies_due(const struct call *call);
/* Frees a call that is answered, and answers a CANCEL that waited for it. */
void call_end(struct svc *s, struct call *call);
void call_cancel_all(struct session *se);
/* The copies of the call have ended, and it is about to end. True: the caller sends its result.
 * False: it was answered before, or is answered here with the reason why it was called off, or its
 * session has ended. */
bool call_tells(struct call *call);
void op_cancel(struct request *rq);

/* read.c */
/* Makes the sequence that a request names (`all`: also the part that is not worth loading).
 * ns_detail() has the text of an error. */
int svc__seq(struct request *rq, const struct msg_seq *msg, bool all,
             struct core_seq *ret_seq) KVC_WARN_UNUSED;
/* Called with what core_ask_step() has returned at last: anything but CORE_MORE. */
typedef void(look_answer)(const struct call *call, const struct core_asking *asking, int err,
                          const struct core_held *found, const char *why);
void op_lookup(struct request *rq);
void op_acquire(struct request *rq);
void op_redeem(struct request *rq);
void op_release(struct request *rq);
void op_hint(struct request *rq);
#define LOOK_LATE "not all keys had been looked up; others had their turns too"
/* Looks up in slices; `answer` sends the reply. */
void look_slices(struct request *rq, const struct core_asking *asking, look_answer *answer);
/* Makes a call that waits for what `in` wants; `then` is called with the lease. NULL: answered. The
 * caller continues with wait_again(). */
struct wait_call *wait_new(struct request *rq, const struct core_acquire *in, uint32_t shard,
                           void (*then)(struct wait_call *x, const struct core_held *held));
void wait_again(struct call *call);
/* The call, of another kind by now, had a hit, whose blocks were removed: it waits again. */
void wait_anew(struct call *call);
/* Ends its asking and waiting, and releases what it held. */
void wait_leave(struct call *call);
/* Begins to load blocks that it did not wait for; a long request's slices have begun that
 * already. */
void prefetch_short(struct wait_call *x);
/* Sends the reply to ACQUIRE and its like. `hbm`: the client reads on the device, if the lease
 * holds anything there. A shard that does not exist ends the lease. */
void reply_held(struct svc *s, struct session *se, const struct msg_head *head,
                const struct core_held *held, uint32_t shard, bool hbm);
/* Makes the acquire that ACQUIRE and its like ask for. 0, or negative with *ret_why. */
int svc__want(struct request *rq, const struct msg_acquire *msg, struct core_acquire *ret_in,
              const char **ret_why) KVC_WARN_UNUSED;

/* Bytes that one request may have loaded without waiting for them. */
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
/* A commit whose blocks are being copied. */
extern const struct call_kind commit_kind;

/* device.c */
uint64_t devices_bytes(void);                      /* memory that devices_create() allocates */
int devices_create(struct svc *s) KVC_WARN_UNUSED; /* -ENOMEM */
void devices_destroy(struct svc *s);
void device_words(struct session *se);
void device_mem(struct session *se, const struct att_mem *msg, int *fd);
void device_mem_drop(struct session *se, uint32_t mem);
void device_map_on(struct session *se, uint32_t chunk);
/* ports.chunk_fd() for the headers of a device's chunk. */
int device_headers_fd(const struct session *se, uint32_t chunk,
                      uint64_t *ret_bytes) KVC_WARN_UNUSED;
/* Whether something is being imported for the session. */
bool device_is_importing(const struct session *se);
/* Frees what the session has on devices. No copy touches any of it, and nothing is being
 * imported. */
void device_end(struct session *se);
struct device *device_by_uuid(struct svc *s, const uint8_t uuid[KVC_UUID_BYTES]);
/* The session's pool of this number, or NULL. */
struct device_pages *device_pool(struct session *se, uint32_t pool);
/* KVC_E_TIER with *ret_why: the device is out of service, or was since the pool was opened; else
 * 0. */
int device_pool_lost(const struct device_pages *pages, const char **ret_why) KVC_WARN_UNUSED;
/* Why its pages do not fit the namespace's blocks; NULL: they do. */
const char *device_pool_fault(const struct device_pages *pages, const struct core_ns *ns);
/* The session's word `no`, NULL for KVC_NO_WORD. False: it has no words. */
bool device_word(struct session *se, uint32_t no, _Atomic uint64_t **ret_word) KVC_WARN_UNUSED;
/* The word that the session's worker raises when it takes its pages back; NULL: it cannot. */
const _Atomic uint64_t *device_revoked(const struct session *se);
void op_pool_open(struct request *rq);
void op_pool_close(struct request *rq);

/* lend.c */
/* Tells the session of memory that the device has just exported; the session has `things`. 0,
 * -ENOMEM. */
int lend_chunk(struct session *se, struct device *d, uint32_t chunk) KVC_WARN_UNUSED;
/* UNMAPPED was received. A chunk that the session was not given is ignored. */
void lend_unmapped(struct session *se, uint32_t chunk);
/* The chunk is retired: tells the session. */
void lend_recall(struct session *se, uint32_t chunk);
/* Whether the session may map any device memory. */
bool lend_any(const struct session *se);
/* The session maps no device memory any more. */
void lend_end(struct session *se);

#define NO_DEVICE "the daemon has no such device (`devices` in its configuration; kvcachectl gpu)"
#define NO_POOL   "pool: no such pool is open in this session"
#define NO_WORDS  "a word is named, and WORDS was not asked for on the attach channel"

/* pages.c */
void op_pages_load(struct request *rq);
void op_acquire_on(struct request *rq);
/* Moves page numbers to where they are aligned, within the kept bytes of a request. They overwrite
 * the field before, which is not needed any more. */
const uint32_t *pages_align(struct codec_bin pages);

/* The text of the reply when core_ns_get() fails. */
const char *ns_detail(int err);

/* ns.c */
void op_ns_open(struct request *rq);
void op_ns_spec(struct request *rq);

/* admin.c */
void op_stats(struct request *rq);
void op_list(struct request *rq);
void op_evict(struct request *rq);
void op_session_end(struct request *rq);
/* Whether `who` may see session `se`, and end it. */
bool svc__may_see(const struct session *who, const struct session *se);

/* audit.c: changes and removals by hand. Not the regular work of workers, and nothing that only
 * reads. */
void audit(struct session *se, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_evicted(struct session *se, const struct core_evict_job *job);
void audit_forgotten(struct session *se, const char *name, const char *sub, bool evicts,
                     const struct core_evicted *x);
void audit_quota(struct session *se, const struct core_quota *quota);

/* Copies a text of a message to `to`, with a zero behind it; NULL when it is empty. */
const char *svc__text(char to[KVC_STRING_MAX], struct codec_bin from);
/* Whether the request is refused for lack of admin rights; it has been answered DENIED then. */
bool svc__denied(struct request *rq);

/* trace.c */
void trace_destroy(struct svc *s);
/* Both only while a trace is on. */
void trace__asked(struct svc *s, const struct session *se, const struct core_seq *seq);
void trace__stored(struct svc *s, const struct session *se, const struct core_reserve *in);
void op_trace(struct request *rq);
void op_trace_dump(struct request *rq);

/* storage.c */
void op_drain(struct request *rq);
/* Why a request with these flags cannot be served: it is durable, and no storage is. NULL: it
 * can. */
const char *svc__durable_fault(const struct svc *s, uint32_t flags);

/* pins.c */
/* Logs a line where shares of memory do not hold with the blocks of this namespace, or where much
 * of memory stays empty because they are large. */
void svc__tell_shares(struct svc *s, const struct core_ns *ns);
void op_pin(struct request *rq);
void op_unpin(struct request *rq);
void op_quota_set(struct request *rq);
void op_policy(struct request *rq);

/* inspect.c */
void op_verify(struct request *rq);

#endif
