/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers of LOOKUP, ACQUIRE, REDEEM, RELEASE and HINT: the way of a hit, and of a request that
 * waits for one.
 */
#include "clock.h"
#include "cursor.h"
#include "svc__.h"

int svc__seq(struct request *rq, const struct msg_seq *msg, bool all, struct core_seq *ret_seq)
{
    struct core_seq seq = {.tokens = msg->tokens,
                           .ngroups = msg->ngroups,
                           .worth = !all,
                           .cost = core_ns_cost(rq->se->client, msg->ns)};
    struct core_ns *ns;
    int err =
        core_ns_find(rq->s->core, rq->se->client, msg->ns, msg->sub.p, msg->sub.n, &ns, &seq.ns);
    if (err)
        return err;
    seq.absent = !ns;
    if (ns)
        seq.ns = ns;
    for (uint32_t g = 0; g < msg->ngroups; g++) {
        seq.keys[g] = msg->keys[g].p;
        seq.n[g] = msg->keys[g].n / KVC_KEY_BYTES;
    }
    *ret_seq = seq;
    return 0;
}

/* Sends the reply to LOOKUP. */
static void reply_looked(struct svc *s, struct session *se, const struct msg_head *head,
                         uint64_t begun_ns, const struct core_seq *seq,
                         const struct core_prefix *prefix, bool prefetch)
{
    if (prefetch)
        (void)core_prefetch(s->core, seq, SVC_PREFETCH_BYTES);
    struct msg_lookup_reply reply = {.hit_tokens = prefix->tokens,
                                     .cached_tokens = prefix->cached_tokens,
                                     .load_us = (prefix->load_ns + 999) / 1000,
                                     .ngroups = seq->ngroups};
    for (uint32_t g = 0; g < seq->ngroups; g++)
        reply.groups[g] = (struct msg_group_hit){.blocks = prefix->group[g].blocks,
                                                 .reason = prefix->group[g].reason,
                                                 .detail = prefix->group[g].detail};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_lookup_reply(s->out, sizeof s->out, head, &reply));
    histo_add(&s->m.lookup_ns, clock_now_ns() - begun_ns);
}

/* ---- lookups in slices ---- */

struct look_call {
    struct call call;
    struct core_asking asking;
    look_answer *answer;
};
CALL_FITS(struct look_call);

static struct look_call *look_of(struct call *call)
{
    return CONTAINER_OF(call, struct look_call, call);
}

static void look_leave(struct call *call)
{
    core_ask_cancel(call->session->svc->core, &look_of(call)->asking);
}

static const struct call_kind look_kind = {.leave = look_leave, .late = LOOK_LATE};

static void look_step(struct call *call)
{
    struct svc *s = call->session->svc;
    struct look_call *x = look_of(call);
    struct core_held found = {0};
    const char *why = NULL;
    const int err = core_ask_step(s->core, call->session->client, &x->asking, &found, &why);
    if (err == CORE_MORE) {
        work_go_on(call, look_step);
        return;
    }
    x->answer(call, &x->asking, err, &found, why);
    call_end(s, call);
}

void look_slices(struct request *rq, const struct core_asking *asking, look_answer *answer)
{
    struct look_call *x = call_new_kept(rq, &look_kind);
    if (!x)
        return;
    x->asking = *asking;
    x->answer = answer;
    look_step(&x->call);
}

/* ---- LOOKUP ---- */

static void lookup_answer(const struct call *call, const struct core_asking *asking, int err,
                          const struct core_held *found, const char *why)
{
    struct svc *s = call->session->svc;
    if (err)
        reply_error(s, call->session, &call->head, err, why);
    else
        reply_looked(s, call->session, &call->head, call->begun_ns, &asking->in.seq, &found->prefix,
                     false);
}

static void look_begin(struct request *rq, const struct msg_lookup *msg, const struct core_seq *seq)
{
    const struct core_asking asking = {
        .in = {.seq = *seq, .read_only = !(msg->flags & KVC_F_TOUCH)},
        .looks = true,
        .load_bytes = msg->flags & KVC_F_PREFETCH ? SVC_PREFETCH_BYTES : 0};
    look_slices(rq, &asking, lookup_answer);
}

void op_lookup(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_lookup msg;
    struct core_seq seq;
    struct core_prefix prefix;
    const char *why = NULL;
    int err = codec_dec_lookup(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (err = svc__seq(rq, &msg.seq, msg.flags & KVC_F_ALL, &seq)))
        why = ns_detail(err);
    if (!err && core_seq_is_long(s->core, &seq)) {
        look_begin(rq, &msg, &seq);
        return;
    }
    if (!err)
        err = core_lookup(s->core, &seq, msg.flags & KVC_F_TOUCH, &prefix, &why);
    if (err)
        reply_error(s, rq->se, &rq->head, err, why);
    else
        reply_looked(s, rq->se, &rq->head, request_begun_ns(rq), &seq, &prefix,
                     msg.flags & KVC_F_PREFETCH);
}

struct loc_writer {
    uint8_t *to;
    uint32_t n;
};

static void put_loc(void *ctx, const struct tier_view *v)
{
    struct loc_writer *w = ctx;
    struct msg_loc loc = {
        .chunk = v->chunk, .bytes = v->bytes, .off = v->off, .hdr = v->hdr, .gen = v->gen};
    codec_put_loc(&w->to[(size_t)w->n++ * KVC_LOC_BYTES], &loc);
}

#define SHARD_DETAIL "shard: the namespace has fewer shards"

/* Sends the reply with the lease's locations, which are at `at`. */
static void reply_locs(struct svc *s, struct session *se, const struct msg_head *head,
                       const struct core_held *held, const uint8_t *at, uint32_t n)
{
    struct msg_acquire_reply reply = {.hit_tokens = held->prefix.tokens,
                                      .cached_tokens = held->prefix.cached_tokens,
                                      .lease = held->lease,
                                      .ngroups = held->ngroups};
    memcpy(reply.ticket, held->ticket, sizeof reply.ticket);
    for (uint32_t g = 0; g < held->ngroups; g++) {
        uint32_t bytes = held->group[g].n * KVC_LOC_BYTES;
        reply.groups[g] = (struct msg_group_locs){.first = held->group[g].first,
                                                  .locs = {at, bytes},
                                                  .reason = held->prefix.group[g].reason,
                                                  .detail = held->prefix.group[g].detail};
        at += bytes;
    }
    FLIGHT(LEASE, n, held->lease, se->index);
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_acquire_reply(s->out, sizeof s->out, head, &reply));
}

void reply_held(struct svc *s, struct session *se, const struct msg_head *head,
                const struct core_held *held, uint32_t shard, bool hbm)
{
    struct loc_writer w = {.to = s->locs};
    if (held->lease) {
        int err = hbm ? core_lease_locs_hbm(s->core, se->client, held->lease, shard, put_loc, &w)
                      : core_lease_locs(s->core, se->client, held->lease, shard, put_loc, &w);
        if (err) {
            (void)!core_release(s->core, se->client, held->lease); /* the client may have guessed
                                                                    * its number, and ended it */
            reply_error(s, se, head, err, err == KVC_E_BAD_ARGUMENT ? SHARD_DETAIL : NULL);
            return;
        }
    }
    reply_locs(s, se, head, held, s->locs, w.n);
}

static const char *acquire_detail(int err, const char *why)
{
    if (err == KVC_E_LIMIT && !why)
        return "the session's leases reach their limit (limits.lease_bytes)";
    if (err == KVC_E_BUSY && !why)
        return "too many leases (limits.leases)";
    return why;
}

/* ---- leases whose locations are told in slices ---- */

static struct lease_call *lease_of(struct call *call)
{
    return CONTAINER_OF(call, struct lease_call, call);
}

static uint8_t *locs_take(struct svc *s)
{
    for (uint32_t i = 0; i < SVC_LONG_LOCS; i++)
        if (!s->long_locs.used[i]) {
            s->long_locs.used[i] = true;
            return s->long_locs.at[i];
        }
    return NULL;
}

static void locs_free(struct lease_call *x)
{
    struct long_locs *l = &x->call.session->svc->long_locs;
    if (x->locs)
        l->used[(size_t)(x->locs - l->at[0]) / sizeof l->at[0]] = false;
    x->locs = NULL;
}

/* Ends the lease of a call whose client will not be told of the lease. */
static void locs_leave(struct lease_call *x)
{
    const struct session *se = x->call.session;
    if (x->locs)
        (void)!core_release(se->svc->core, se->client, x->held.lease);
    locs_free(x);
}

/* Begins to make the locations in slices. False: one slice is enough, or no buffer is free. */
static bool locs_begin(struct lease_call *x, const struct core_held *held)
{
    struct svc *s = x->call.session->svc;
    uint64_t n = 0;
    for (uint32_t g = 0; g < held->ngroups; g++)
        n += held->group[g].n;
    x->locs = held->lease && n > core_lease_locs_slice(s->core) ? locs_take(s) : NULL;
    x->held = *held;
    x->nlocs = 0;
    return x->locs != NULL;
}

/* Makes a slice of the locations. After the last one it sends the reply. */
static void locs_step(struct call *call)
{
    struct svc *s = call->session->svc;
    struct core_client *cl = call->session->client;
    struct lease_call *x = lease_of(call);
    struct loc_writer w = {.to = x->locs, .n = x->nlocs};
    const int err =
        core_lease_locs_step(s->core, cl, x->held.lease, x->shard, &x->nlocs, put_loc, &w);
    if (err == CORE_MORE) {
        work_go_on(call, locs_step);
        return;
    }
    if (err)
        locs_leave(x);
    if (err == KVC_E_GONE && x->again) {
        x->again(call);
        return;
    }
    if (err) /* NO_LEASE of an acquire: the client may have guessed its number, and ended it */
        reply_error(s, call->session, &call->head, err == KVC_E_GONE ? KVC_E_NO_LEASE : err,
                    err == KVC_E_BAD_ARGUMENT ? SHARD_DETAIL : NULL);
    else
        reply_locs(s, call->session, &call->head, &x->held, x->locs, x->nlocs);
    locs_free(x);
    histo_add(&s->m.acquire_ns, clock_now_ns() - call->begun_ns);
    call_end(s, call);
}

/* ---- waiting for a hit ---- */

CALL_FITS(struct wait_call);

static struct wait_call *wait_of(struct call *call)
{
    return CONTAINER_OF(call, struct wait_call, lease.call);
}

static bool wait_is_long(const struct wait_call *x)
{
    return core_seq_is_long(x->lease.call.session->svc->core, &x->acquire.seq);
}

/* Asks core for a slice of the acquire, or, if it is short, for all of it. Returns 1: it waits. */
static int wait_ask(struct wait_call *x, struct core_held *ret_held, const char **ret_why)
{
    struct core *core = x->lease.call.session->svc->core;
    struct core_client *cl = x->lease.call.session->client;
    /* The namespace may have been removed meanwhile, and another have its place. */
    int err = core_ns_get(core, cl, x->ns, NULL, 0, &x->acquire.seq.ns);
    if (err)
        return err;
    if (!x->asking.ask && !wait_is_long(x))
        return core_acquire(core, cl, &x->acquire, &x->waiter, ret_held, ret_why);
    x->asking.in = x->acquire;
    x->asking.waiter = &x->waiter;
    if (!x->asking.ask)
        x->asking.load_bytes = x->prefetch ? SVC_PREFETCH_BYTES : 0;
    return core_ask_step(core, cl, &x->asking, ret_held, ret_why);
}

static void wait_woken(struct call *call);

/* Asks again: answers, continues, waits, or calls `then`. */
void wait_again(struct call *call)
{
    struct svc *s = call->session->svc;
    struct wait_call *x = wait_of(call);
    struct core_held held;
    const char *why = NULL;
    const int err = wait_ask(x, &held, &why);
    if (err == CORE_MORE) {
        work_go_on(call, wait_again);
        return;
    }
    work_leave(call);
    if (err == 1 && x->woken) /* it was woken before its last slice */
        work_wait(call, wait_woken);
    if (err == 1)
        return;
    histo_add(&s->m.wait_ns, s->now_ns - call->begun_ns);
    if (!err) {
        x->then(x, &held);
        return;
    }
    core_ask_cancel(s->core, &x->asking);
    reply_error(s, call->session, &call->head, err, acquire_detail(err, why));
    call_end(s, call);
}

/* Runs in the call's turn after its waiter was called. Often another writer has begun the block
 * meanwhile, and the call waits again. */
static void wait_woken(struct call *call)
{
    struct core *core = call->session->svc->core;
    struct wait_call *x = wait_of(call);
    x->woken = false;
    if (core_ns_get(core, call->session->client, x->ns, NULL, 0, &x->acquire.seq.ns) == 0 &&
        core_wait_again(core, &x->acquire, &x->waiter))
        work_leave(call);
    else
        wait_again(call);
}

void prefetch_short(struct wait_call *x)
{
    if (x->prefetch && !wait_is_long(x))
        (void)core_prefetch(x->lease.call.session->svc->core, &x->acquire.seq, SVC_PREFETCH_BYTES);
}

static void acquired(struct wait_call *x, const struct core_held *held)
{
    struct call *call = &x->lease.call;
    struct svc *s = call->session->svc;
    prefetch_short(x);
    if (locs_begin(&x->lease, held)) {
        work_go_on(call, locs_step);
        return;
    }
    reply_held(s, call->session, &call->head, held, x->lease.shard, false);
    histo_add(&s->m.acquire_ns, clock_now_ns() - call->begun_ns);
    call_end(s, call);
}

static void on_wake(struct core_waiter *w)
{
    struct wait_call *x = CONTAINER_OF(w, struct wait_call, waiter);
    x->acquire.load = false; /* its loads have ended; those that failed are not tried again */
    x->woken = true;
    if (x->asking.ask) /* slices still run, and wait_again() sees `woken` */
        return;
    if (wait_is_long(x))
        work_wait(&x->lease.call, wait_woken);
    else
        wait_woken(&x->lease.call);
}

/* Answers a waiting acquire with what is in memory. */
static void wait_finish(struct call *call)
{
    struct core *core = call->session->svc->core;
    struct wait_call *x = wait_of(call);
    x->acquire.wait = x->acquire.load = false;
    if (x->lease.locs) /* the hit is found, and slices of the reply are being made */
        return;
    core_waiter_cancel(core, &x->waiter);
    core_ask_cancel(core, &x->asking);
    work_leave(call);
    if (wait_is_long(x))
        work_wait(call, wait_again);
    else
        wait_again(call);
}

void wait_leave(struct call *call)
{
    struct core *core = call->session->svc->core;
    struct wait_call *x = wait_of(call);
    locs_leave(&x->lease);
    core_ask_cancel(core, &x->asking);
    core_waiter_cancel(core, &x->waiter);
}

static const struct call_kind wait_kind = {
    .leave = wait_leave, .expire = wait_finish, .shutdown = wait_finish};

void wait_anew(struct call *call)
{
    call->kind = &wait_kind;
    wait_again(call);
}

/* The keys are read again at every wake-up, so the request's bytes stay. */
struct wait_call *wait_new(struct request *rq, const struct core_acquire *in, uint32_t shard,
                           void (*then)(struct wait_call *x, const struct core_held *held))
{
    struct wait_call *x = call_new_kept(rq, &wait_kind);
    if (!x)
        return NULL;
    struct core_ns_view v;
    core_ns_view(in->seq.ns, &v);
    x->acquire = *in;
    x->ns = v.id;
    x->lease.shard = shard;
    x->lease.again = wait_again;
    x->waiter.fn = on_wake;
    x->then = then;
    return x;
}

/* ---- ACQUIRE ---- */

static void wait_begin(struct request *rq, const struct core_acquire *in, uint32_t shard)
{
    struct wait_call *x = wait_new(rq, in, shard, acquired);
    if (!x)
        return;
    x->prefetch = !in->wait && !in->load && !in->read_only;
    wait_again(&x->lease.call);
}

int svc__want(struct request *rq, const struct msg_acquire *msg, struct core_acquire *ret_in,
              const char **ret_why)
{
    struct core_acquire in = {.from_tokens = msg->from_tokens,
                              .wait_tokens = msg->wait_tokens,
                              .read_only = msg->flags & KVC_F_READ_ONLY,
                              .load = !(msg->flags & (KVC_F_NO_LOAD | KVC_F_READ_ONLY)),
                              .wait = msg->flags & KVC_F_WAIT};
    int err = svc__seq(rq, &msg->seq, msg->flags & KVC_F_ALL, &in.seq);
    if (err) {
        *ret_why = ns_detail(err);
        return err;
    }
    struct core_ns_view ns;
    core_ns_view(in.seq.ns, &ns);
    if (msg->shard >= ns.spec->shards) { /* an error also without a hit */
        *ret_why = SHARD_DETAIL;
        return KVC_E_BAD_ARGUMENT;
    }
    if (rq->s->trace && !in.read_only && core_seq_fault(&in.seq) == NULL)
        trace__asked(rq->s, rq->se, &in.seq);
    *ret_in = in;
    return 0;
}

void op_acquire(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_acquire msg;
    struct core_acquire in;
    struct core_held held;
    const char *why = NULL;
    int err = codec_dec_acquire(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    else
        err = svc__want(rq, &msg, &in, &why);
    if (!err) {
        if (in.wait || core_seq_is_long(s->core, &in.seq)) {
            wait_begin(rq, &in, msg.shard);
            return;
        }
        err = core_acquire(s->core, rq->se->client, &in, NULL, &held, &why);
        if (err == 1) {
            wait_begin(rq, &in, msg.shard);
            return;
        }
        if (!err && !in.load && !in.read_only)
            (void)core_prefetch(s->core, &in.seq, SVC_PREFETCH_BYTES);
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, acquire_detail(err, why));
        return;
    }
    reply_held(s, rq->se, &rq->head, &held, msg.shard, false);
    histo_add(&s->m.acquire_ns, clock_now_ns() - request_begun_ns(rq));
}

/* ---- REDEEM ---- */

struct redeem_call {
    struct lease_call lease;
    struct core_redeeming redeeming;
};
CALL_FITS(struct redeem_call);

static struct redeem_call *redeem_of(struct call *call)
{
    return CONTAINER_OF(call, struct redeem_call, lease.call);
}

static void redeem_leave(struct call *call)
{
    struct redeem_call *x = redeem_of(call);
    locs_leave(&x->lease);
    core_redeem_cancel(call->session->svc->core, call->session->client, &x->redeeming);
}

static const struct call_kind redeem_kind = {
    .leave = redeem_leave, .late = "not all blocks had been held; others had their turns too"};

static void redeem_step(struct call *call)
{
    struct svc *s = call->session->svc;
    struct core_client *cl = call->session->client;
    struct redeem_call *x = redeem_of(call);
    struct core_held held;
    int err = core_redeem_step(s->core, cl, &x->redeeming, &held);
    if (err == CORE_MORE) {
        work_go_on(call, redeem_step);
        return;
    }
    if (!err && locs_begin(&x->lease, &held)) {
        work_go_on(call, locs_step);
        return;
    }
    /* Between two slices a block may turn out corrupt. */
    if (!err && core_lease_is_corrupt(s->core, cl, held.lease)) {
        (void)!core_release(s->core, cl, held.lease);
        err = KVC_E_NO_LEASE;
    }
    if (err)
        reply_error(s, call->session, &call->head, err, acquire_detail(err, NULL));
    else
        reply_held(s, call->session, &call->head, &held, x->lease.shard, false);
    call_end(s, call);
}

void op_redeem(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_redeem msg;
    struct core_held held;
    struct core_redeeming x = {.lease = 0};
    int err = codec_dec_redeem(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    memcpy(x.ticket, msg.ticket, sizeof x.ticket);
    err = core_redeem_step(s->core, rq->se->client, &x, &held);
    struct redeem_call *call = err == CORE_MORE ? call_new(rq, &redeem_kind) : NULL;
    if (call) {
        call->lease.shard = msg.shard;
        call->redeeming = x;
        work_go_on(&call->lease.call, redeem_step);
    } else if (err == CORE_MORE) {
        core_redeem_cancel(s->core, rq->se->client,
                           &x); /* no call was free, and the request was refused */
    } else if (err) {
        reply_error(s, rq->se, &rq->head, err, acquire_detail(err, NULL));
    } else {
        reply_held(s, rq->se, &rq->head, &held, msg.shard, false);
    }
}

void op_release(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_release msg;
    uint32_t released = 0;
    int err = codec_dec_release(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    for (uint32_t at = 0; at + 8 <= msg.leases.n; at += 8)
        if (core_release(s->core, rq->se->client, cursor_le64(msg.leases.p + at)) == 0)
            released++;
    reply_released(s, rq->se, &rq->head, released);
}

static enum policy_advice advice_of(uint8_t kind)
{
    switch ((enum kvc_hint_kind)kind) {
    case KVC_HINT_ENDED:
        return POLICY_ADVICE_ENDED;
    case KVC_HINT_CONTINUE:
        return POLICY_ADVICE_CONTINUE;
    case KVC_HINT_SOON:
        return POLICY_ADVICE_SOON;
    case KVC_HINT_SCAN:
        return POLICY_ADVICE_SCAN;
    }
    return POLICY_ADVICE_NONE;
}

static void reply_hinted(struct svc *s, struct session *se, const struct msg_head *head)
{
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_bare_reply(s->out, sizeof s->out, head));
}

static void hint_answer(const struct call *call, const struct core_asking *asking, int err,
                        const struct core_held *found, const char *why)
{
    struct svc *s = call->session->svc;
    (void)asking;
    (void)found;
    if (err)
        reply_error(s, call->session, &call->head, err, why);
    else
        reply_hinted(s, call->session, &call->head);
}

void op_hint(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_hint msg;
    struct core_seq seq;
    const char *why = NULL;
    int err = codec_dec_hint(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (err = svc__seq(rq, &msg.seq, true, &seq)))
        why = ns_detail(err);
    const enum policy_advice advice = err ? POLICY_ADVICE_NONE : advice_of(msg.kind);
    if (!err && advice && core_seq_is_long(s->core, &seq)) {
        const struct core_asking asking = {.in = {.seq = seq, .read_only = true},
                                           .looks = true,
                                           .advice = advice,
                                           .within_ms = msg.within_ms,
                                           .load_bytes =
                                               advice == POLICY_ADVICE_SOON ? UINT64_MAX : 0};
        look_slices(rq, &asking, hint_answer);
        return;
    }
    if (!err)
        err = core_advise(s->core, &seq, advice, msg.within_ms, &why);
    if (err < 0)
        reply_error(s, rq->se, &rq->head, err, why);
    else
        reply_hinted(s, rq->se, &rq->head);
}
