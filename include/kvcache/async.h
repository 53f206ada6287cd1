/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvcache for a caller's loop: requests in flight.
 *
 * Calls of <kvcache/kvcache.h> in two halves. *_begin sends the request and returns an op; the op
 * is done when its outcome is there; kvc_finish (or kvc_wait) hands the outcome out and frees the
 * op. Up to the daemon's limits.requests (256 by default) may be in flight, what is begun beyond
 * ends with KVC_E_BUSY. A session has 1,024 at most, those that wait for a namespace included:
 * begin returns KVC_E_BUSY for the next one. The inputs may be reused once begin returns, staging
 * once the op is finished. Replies come in any order.
 *
 * Begin halves, kvc_progress, kvc_next, kvc_cancel_begin, kvc_release, and kvc_finish of an op that
 * is done never wait, whatever the daemon does: absent, frozen, or dying. (They copy and make
 * system calls; none of these sleeps.) A session that is down goes on with connecting in them, step
 * by step. A request that is begun while the session is not up is done at once: a lookup, acquire
 * or redeem as a miss, a namespace with a handle that opens itself later; what stores fails in its
 * begin half with KVC_E_DOWN, like a ping. The other functions wait as said above;
 * kvc_open waits for the daemon up to the session's timeout (no_wait: not at all), kvc_close up to
 * 250 ms for it to take hints that it has not answered yet, and for libzmq's threads to end, which
 * does not depend on the daemon.
 *
 * A loop:
 *
 *     poll for POLLIN on kvc_fd(kvc), with everything else
 *     kvc_progress(kvc);
 *     while (kvc_next(kvc, &op) > 0) {
 *         struct kvc_result r;
 *         int rc = kvc_finish(&op, &r);       r.kind, r.user say whose it is
 *     }
 */
#ifndef KVCACHE_ASYNC_H
#define KVCACHE_ASYNC_H

#include <kvcache/kvcache.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_ABI_ASYNC KVC_ABI(kvc_result)

struct kvc_op; /* a request that was begun */

/* An outcome. Of the fields after `user` those of the request's kind are set. */
struct kvc_result {
    uint8_t kind;             /* enum kvc_op_code: which begin half */
    void *user;               /* kvc_op_set_user */
    struct kvc_prefix prefix; /* LOOKUP, PAGES_LOAD */
    struct kvc_hold *hold;    /* ACQUIRE, REDEEM: to be released, whatever it contains */
    struct kvc_ns *ns;        /* NS_OPEN: borrowed from the session */
    uint64_t reservation;     /* RESERVE: 0 = nothing was reserved */
    uint64_t uptime_ms;       /* PING */
    const uint8_t *statuses;  /* RESERVE, COMMIT, STORE, PAGES_STORE: n of them, borrowed until the
                                 next kvc_finish of this session */
    uint32_t n;
};

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

/* A word of the caller's that stays with the op; NULL at first. */
KVC_API void kvc_op_set_user(struct kvc_op *op, void *user);
KVC_API void *kvc_op_user(const struct kvc_op *op);
/* Whether its outcome is there. No traffic: kvc_progress takes in what has come. */
KVC_API bool kvc_done(const struct kvc_op *op);

/* Hands out what the call that waits would: its return value, its outputs in *ret_result (of which
 * kind and user are set on failure too; the call's outputs are zero then). Waits for the op if it
 * is not done, at most as long as that call. Frees *op and sets it to NULL whatever it returns. */
KVC_API KVC_MUST_USE int kvc_finish(struct kvc_op **op, struct kvc_result *ret_result);
/* kvc_finish for a lookup, an acquire or redeem, a store or commit. Exactly one of the outputs is
 * used, that of the op's kind; the others may be NULL. */
KVC_API KVC_MUST_USE int kvc_wait(struct kvc_op **op, struct kvc_prefix *ret_prefix,
                                  struct kvc_hold **ret_hold, uint8_t *ret_statuses);
/* Ends a request early. Returns when nothing will touch this session's staging for it any more; the
 * op is then finished as usual and gives KVC_E_CANCELLED or its outcome. Waits for up to 250 ms. */
KVC_API KVC_MUST_USE int kvc_cancel(struct kvc_op *op);
/* The same without waiting: the op is done some time later, 250 ms at most. */
KVC_API KVC_MUST_USE int kvc_cancel_begin(struct kvc_op *op);

/* The descriptor that a poll, epoll, io_uring or asyncio loop watches for POLLIN; never read or
 * written. Readable (level-triggered) while kvc_progress has something to do or kvc_next something
 * to hand out: replies, the daemon's death, deadlines, connecting. The same one until kvc_close,
 * which closes it; made by the first call. -EPERM, -EMFILE, -ENOMEM, ... */
KVC_API KVC_MUST_USE int kvc_fd(struct kvc *kvc);
/* Does what can be done now: receives replies, notices the daemon's end, ends what is beyond its
 * deadline, goes on with connecting. Returns how many ops kvc_next has; -EPERM. Without kvc_fd it
 * may be called now and then instead. */
KVC_API int kvc_progress(struct kvc *kvc);
/* 1 = *ret_op is done and has not been handed out before, in the order in which they became done;
 * 0 = none; -EPERM. The op is the caller's to finish; one that is finished without having been
 * handed out is not handed out any more. No traffic. */
KVC_API KVC_MUST_USE int kvc_next(struct kvc *kvc, struct kvc_op **ret_op);

#ifdef __cplusplus
}
#endif
#endif
