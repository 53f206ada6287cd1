/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache for a caller's loop: requests in flight.
 *
 * Here a call of <kvcache/kvcache.h> has two halves. *_begin sends the request and returns an op.
 * The op is done when its outcome is known. kvc_finish (or kvc_wait) returns the outcome and frees
 * the op. Replies come in any order.
 *
 * The caller may reuse a request's inputs once the begin half returns, and its bytes in staging
 * once the op is finished.
 *
 * A session may have as many requests in flight as the daemon's limits.requests says (256 by
 * default); further ones end with KVC_E_BUSY. The library itself allows 1,024, which includes
 * requests that wait for a namespace to be opened; the begin half of the next one returns
 * KVC_E_BUSY.
 *
 * These functions never wait, even if the daemon is absent, frozen or dying: the begin halves,
 * kvc_progress, kvc_next, kvc_cancel_begin, kvc_release, and kvc_finish of an op that is done.
 * (They copy and make system calls; none of these sleeps.) If the session is down, they continue to
 * connect it, step by step. The other functions wait as <kvcache/kvcache.h> says. kvc_open waits
 * for the daemon up to the session's timeout (no_wait: not at all). kvc_close waits up to 250 ms
 * until the daemon has answered hints, and also until libzmq's threads have ended, which does not
 * depend on the daemon.
 *
 * A request that is begun while the session is not up is done at once. A lookup, acquire or redeem
 * is a miss. A namespace gets a handle that opens itself later. The begin halves of a store and of
 * a ping return KVC_E_DOWN.
 *
 * A loop:
 *
 *     poll for POLLIN on kvc_fd(kvc), with everything else
 *     kvc_progress(kvc);
 *     while (kvc_next(kvc, &op) > 0) {
 *         struct kvc_result r;
 *         int rc = kvc_finish(&op, &r);       r.kind and r.user tell which request it was
 *     }
 */
#ifndef KVCACHE_ASYNC_H
#define KVCACHE_ASYNC_H

#include <kvcache/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_ABI_ASYNC KVC_ABI(kvc_result)

struct kvc_op; /* a request that was begun and is not finished; belongs to its session */

/* An outcome. Of the fields after `user` only those of the request's kind are set; others are 0. */
struct kvc_result {
    uint8_t kind;             /* enum kvc_op_code: which begin half made the op */
    void *user;               /* the pointer that kvc_op_set_user gave the op; NULL: none */
    struct kvc_prefix prefix; /* LOOKUP, PAGES_LOAD */
    struct kvc_hold *hold;    /* ACQUIRE, REDEEM: the caller must release it, even if it is empty */
    struct kvc_ns *ns;        /* NS_OPEN: owned by the session */
    uint64_t reservation;     /* RESERVE: 0 = nothing was reserved */
    uint64_t uptime_ms;       /* PING */
    const uint8_t *statuses;  /* RESERVE, COMMIT, STORE, PAGES_STORE: enum kvc_status, one for each
                                 block; valid until the next kvc_finish of this session. NULL: n
                                 is 0 */
    uint32_t n;               /* statuses */
};

/* The begin halves. Each does what the call of the same name without _begin does, and *ret_op is
 * the caller's, who must finish it. An error means that there is no op. */

KVC_API KVC_MUST_USE int kvc_ping_begin(struct kvc *kvc, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_ns_open_begin(struct kvc *kvc, const struct kvc_ns_spec *spec,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_lookup_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                          unsigned flags, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_acquire_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                                           const struct kvc_acquire_options *options,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_redeem_begin(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                                          struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_reserve_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                           struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_commit_begin(struct kvc_ns *ns, uint64_t reservation, uint32_t first,
                                          uint32_t n, const uint64_t *offsets,
                                          const uint32_t *tokens, size_t ntokens,
                                          struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                                         const uint64_t *offsets, const uint32_t *tokens,
                                         size_t ntokens, struct kvc_op **ret_op);
KVC_API KVC_MUST_USE int kvc_drop_begin(struct kvc *kvc, uint64_t reservation,
                                        struct kvc_op **ret_op);

/* Sets or returns a pointer of the caller's that the library keeps with the op; NULL at first. */
KVC_API void kvc_op_set_user(struct kvc_op *op, void *user);
KVC_API void *kvc_op_user(const struct kvc_op *op);
/* Whether the op's outcome is known. Receives nothing; kvc_progress does. */
KVC_API bool kvc_done(const struct kvc_op *op);

/* Returns what the waiting call would return, and puts its outputs into *ret_result. On failure
 * kind and user are set too, and the outputs are zero. Waits for the op if it is not done, at most
 * as long as the waiting call would. Always frees *op and sets it to NULL. -EINVAL: no op. */
KVC_API KVC_MUST_USE int kvc_finish(struct kvc_op **op, struct kvc_result *ret_result);
/* kvc_finish with other outputs: ret_prefix for a lookup or pages load, ret_hold for an acquire or
 * redeem, ret_statuses for a store, commit or pages store. The outputs of other kinds may be NULL.
 * -EINVAL: the output of the op's kind is missing. */
KVC_API KVC_MUST_USE int kvc_wait(struct kvc_op **op, struct kvc_prefix *ret_prefix,
                                  struct kvc_hold **ret_hold, uint8_t *ret_statuses);
/* Ends a request early. Waits, up to 250 ms, until nothing uses this session's staging for the
 * request any more. The caller then finishes the op as usual, which returns KVC_E_CANCELLED or the
 * request's outcome. */
KVC_API KVC_MUST_USE int kvc_cancel(struct kvc_op *op);
/* kvc_cancel without waiting: the op becomes done later, after 250 ms at most. */
KVC_API KVC_MUST_USE int kvc_cancel_begin(struct kvc_op *op);

/* The descriptor that a poll, epoll, io_uring or asyncio loop watches for POLLIN. The caller must
 * not read, write or close it. It is readable (level-triggered) while kvc_progress has something to
 * do (a reply, the daemon's death, a deadline, connecting) or kvc_next has an op to return. The
 * first call makes it; it stays the same until kvc_close closes it. -EPERM (a child of fork()),
 * -EMFILE, -ENOMEM, ... */
KVC_API KVC_MUST_USE int kvc_fd(struct kvc *kvc);
/* Does all work that is due, without waiting: receives replies, notices the daemon's end, ends
 * requests whose deadline has passed, continues to connect. Returns the number of ops that kvc_next
 * can return; -EPERM in a child of fork(). A caller that does not use kvc_fd may call it now and
 * then instead. */
KVC_API int kvc_progress(struct kvc *kvc);
/* Returns each op that is done once, in the order in which they became done: 1 = *ret_op is such an
 * op, which the caller must finish; 0 = there is none; -EPERM in a child of fork(). An op that was
 * finished before is not returned. Receives nothing. */
KVC_API KVC_MUST_USE int kvc_next(struct kvc *kvc, struct kvc_op **ret_op);

#ifdef __cplusplus
}
#endif
#endif
