/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers of PAGES_LOAD and ACQUIRE_ON: an acquire (read.c), and then copies to a worker's pages,
 * or to slots of a device.
 */
#include "svc__.h"

const uint32_t *pages_align(struct codec_bin pages)
{
    /* Moving down by up to 3 bytes overwrites only the list's header, of two bytes or more, and the
     * end of a value before it that was read already or was moved down itself. */
    const uintptr_t at = (uintptr_t)pages.p, to = at & ~(uintptr_t)3;
    if (pages.n > 0 && to != at)
        memmove((void *)to, pages.p, pages.n);
    return (const uint32_t *)to;
}

/* A call whose hit is copied to pages, or to slots of a device. */
struct pages_call {
    struct wait_call wait;
    union {
        struct {
            const uint32_t *page[KVC_GROUPS_MAX];
            uint32_t skipped[KVC_GROUPS_MAX]; /* keys of the group that have no pages */
            struct core_send send;
            uint8_t statuses[CORE_SEND_BLOCKS];
        };
        struct {
            struct device *device;
            struct core_fill fill;
        };
    };
};
CALL_FITS(struct pages_call);

static struct pages_call *svc_pages_of_one(struct call *call)
{
    return CONTAINER_OF(call, struct pages_call, wait.lease.call);
}

static struct pages_call *pages_of_wait(struct wait_call *wait)
{
    return CONTAINER_OF(wait, struct pages_call, wait);
}

/* Begins to wait for the hit. Waits and loads end at three quarters of the time, so that copies
 * have the rest. */
static void hold_begin(struct pages_call *x)
{
    struct wait_call *wait = &x->wait;
    struct call *call = &wait->lease.call;
    const uint64_t now_ns = call->session->svc->now_ns;
    wait->prefetch = !wait->acquire.load && !wait->acquire.wait;
    const uint64_t left_ns = call->due_ns > now_ns ? call->due_ns - now_ns : 0;
    call_rearm(call, now_ns + left_ns / 4 * 3);
    wait_again(call);
}

static void hold_end(struct wait_call *x, const struct core_held *held)
{
    x->lease.held = *held;
    prefetch_short(x);
}

/* ---- PAGES_LOAD ---- */

/* How many of the group's `n` keys are skipped, because their tokens are before from_tokens. */
static uint32_t skipped(const struct core_ns_view *v, uint32_t group, uint32_t from_tokens,
                        uint32_t n)
{
    return MIN(from_tokens / v->spec->group[group].block_tokens, n);
}

static const char *pages_fault(const struct msg_pages_load *msg, const struct core_seq *seq,
                               const struct device_pages *pages)
{
    struct core_ns_view v;
    core_ns_view(seq->ns, &v);
    const char *why = core_seq_fault(seq);
    if (!why)
        why = device_pool_fault(pages, seq->ns);
    for (uint32_t g = 0; !why && g < seq->ngroups; g++) {
        const uint32_t blocks = seq->n[g] - skipped(&v, g, msg->from_tokens, seq->n[g]);
        if (msg->pages[g].pages.n / 4 != (uint64_t)blocks * pages->pages_per_block[g])
            why = "pages: pages_per_block for each key of a group but its first from_tokens / "
                  "block_tokens";
    }
    return why;
}

static void reply_loaded(const struct pages_call *x)
{
    const struct call *call = &x->wait.lease.call;
    struct svc *s = call->session->svc;
    const struct core_held *held = &x->wait.lease.held;
    struct msg_pages_load_reply reply = {.hit_tokens = held->prefix.tokens,
                                         .cached_tokens = held->prefix.cached_tokens,
                                         .ngroups = held->ngroups};
    const uint8_t *at = x->statuses;
    for (uint32_t g = 0; g < held->ngroups; g++) {
        const uint32_t n = held->lease ? held->group[g].n : 0;
        reply.groups[g] = (struct msg_group_loaded){.first = held->group[g].first,
                                                    .statuses = {at, n},
                                                    .reason = held->prefix.group[g].reason,
                                                    .detail = held->prefix.group[g].detail};
        at += n;
    }
    histo_add(&s->m.pages_ns, s->now_ns - call->begun_ns);
    s->m.replies_ok++;
    reply_send(s, call->session,
               codec_enc_pages_load_reply(s->out, sizeof s->out, &call->head, &reply));
}

static void on_sent(struct core_send *send)
{
    struct pages_call *x = CONTAINER_OF(send, struct pages_call, send);
    struct call *call = &x->wait.lease.call;
    struct session *se = call->session;
    struct svc *s = se->svc;
    if (call_tells(call))
        reply_loaded(x);
    if (se->state != SESSION_CLOSING) /* CLOSING: the lease has ended with the client */
        (void)!core_release(s->core, se->client,
                            x->wait.lease.held.lease); /* the client may have guessed its number,
                                                        * and ended it */
    call_end(s, call);
}

static void send_leave(struct call *call)
{
    core_cancel(call->session->svc->core, &svc_pages_of_one(call)->send.req);
}

static void send_shutdown(struct call *call)
{
    const struct core_send *send = &svc_pages_of_one(call)->send;
    if (!device_fence_is_pending(&send->transfer.after))
        return;
    call->err = call->err ? call->err : KVC_E_SHUTDOWN;
    send_leave(call);
}

/* A send: blocks are copied to pages. */
static const struct call_kind send_kind = {
    .leave = send_leave,
    .copies = true,
    .late = "the copies are still running; cancel before reusing the pages",
    .shutdown = send_shutdown};

static int send_start(struct pages_call *x, const char **ret_why)
{
    struct call *call = &x->wait.lease.call;
    struct svc *s = call->session->svc;
    struct device_pages *p = call->pages;
    const struct core_held *held = &x->wait.lease.held;
    struct core_send *send = &x->send;
    send->lease = held->lease;
    send->transfer.device = p->device;
    send->transfer.pool = p->pool;
    send->shard = x->wait.lease.shard;
    for (uint32_t g = 0; g < held->ngroups; g++) {
        if (held->group[g].n == 0)
            continue;
        const uint32_t ppb = p->pages_per_block[g];
        send->group[g].pages = x->page[g] + (size_t)(held->group[g].first - x->skipped[g]) * ppb;
        send->group[g].pages_per_block = ppb;
    }
    send->transfer.deadline_ns = call_copies_due(call);
    send->statuses = x->statuses;
    send->done = on_sent;
    return core_send_start(s->core, call->session->client, send, ret_why);
}

static void send_begin(struct wait_call *wait, const struct core_held *held)
{
    struct pages_call *x = pages_of_wait(wait);
    struct call *call = &wait->lease.call;
    struct svc *s = call->session->svc;
    const char *why = NULL;
    int err = 0;
    hold_end(wait, held);
    if (held->lease) {
        call->kind = &send_kind;
        call_rearm(call, call->due_ns);
        err = send_start(x, &why);
        if (err == 1 && s->stopping)
            send_shutdown(call);
        if (err == 1)
            return;
        MUST(core_release(s->core, call->session->client, held->lease) == 0);
    }
    if (err == KVC_E_TOO_LARGE && !why)
        why = "more than 4096 blocks; raise from_tokens step by step";
    if (err)
        reply_error(s, call->session, &call->head, err, why);
    else
        reply_loaded(x);
    call_end(s, call);
}

/* Puts the pool and page lists of PAGES_LOAD into the call. The lists are moved, so of the request
 * only the keys, which stand before them, may be read afterwards. */
static void pages_take(struct pages_call *x, const struct msg_pages_load *msg,
                       const struct core_seq *seq, struct device_pages *pages)
{
    struct core_ns_view v;
    core_ns_view(seq->ns, &v);
    x->wait.lease.call.pages = pages;
    pages->calls++;
    for (uint32_t g = 0; g < seq->ngroups; g++) {
        x->page[g] = pages_align(msg->pages[g].pages);
        x->skipped[g] = skipped(&v, g, msg->from_tokens, seq->n[g]);
    }
}

/* Checks PAGES_LOAD. Returns 0, or a negative error with *ret_why. */
static int load_in(struct request *rq, const struct msg_pages_load *msg,
                   const struct core_acquire *in, struct device_pages **ret_pages,
                   struct core_send *ret_send, const char **ret_why)
{
    _Atomic uint64_t *after, *ready;
    *ret_pages = device_pool(rq->se, msg->pool);
    *ret_why = *ret_pages ? NULL : NO_POOL;
    if (!*ret_why && (!device_word(rq->se, msg->after_word, &after) ||
                      !device_word(rq->se, msg->ready_word, &ready)))
        *ret_why = NO_WORDS;
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    ret_send->transfer.after = (struct device_fence){after, msg->after_value};
    ret_send->transfer.revoked = device_revoked(rq->se);
    ret_send->ready = ready;
    ret_send->ready_value = msg->ready_value;
    *ret_why = pages_fault(msg, &in->seq, *ret_pages);
    return *ret_why ? KVC_E_BAD_ARGUMENT : device_pool_lost(*ret_pages, ret_why);
}

void op_pages_load(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_pages_load msg;
    struct core_acquire in;
    struct core_send send = {0};
    struct device_pages *pages;
    const char *why = NULL;
    int err = codec_dec_pages_load(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err) {
        const struct msg_acquire want = {.seq = msg.seq,
                                         .flags = msg.flags,
                                         .from_tokens = msg.from_tokens,
                                         .wait_tokens = msg.wait_tokens};
        err = svc__want(rq, &want, &in, &why);
    }
    if (!err)
        err = load_in(rq, &msg, &in, &pages, &send, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    in.seq.on = pages->device;
    in.seq.on_shard = msg.shard;
    struct wait_call *wait = wait_new(rq, &in, msg.shard, send_begin);
    if (!wait)
        return;
    struct pages_call *x = pages_of_wait(wait);
    pages_take(x, &msg, &in.seq, pages);
    x->send = send;
    hold_begin(x);
}

/* ---- ACQUIRE_ON ---- */

/* Answers after the lease was filled as far as possible. If bytes were corrupt, or blocks were lost
 * with the device, a new lease of the rest of the prefix is taken and filled while time is left.
 * Blocks that were lost with the device begin to be loaded. */
static void reply_hbm(struct pages_call *x)
{
    struct lease_call *l = &x->wait.lease;
    struct call *call = &l->call;
    struct svc *s = call->session->svc;
    struct core_client *cl = call->session->client;
    const bool is_lost = core_lease_is_lost(s->core, cl, l->held.lease, l->shard);
    if (is_lost || core_lease_is_corrupt(s->core, cl, l->held.lease)) {
        MUST(core_release(s->core, cl, l->held.lease) == 0);
        x->wait.acquire.wait = x->wait.acquire.load = false;
        x->wait.prefetch |= is_lost;
        wait_anew(call);
        return;
    }
    reply_held(s, call->session, &call->head, &l->held, l->shard, true);
    call_end(s, call);
}

static void on_filled(struct core_fill *fill)
{
    reply_hbm(CONTAINER_OF(fill, struct pages_call, fill));
}

/* Ends the fill, and answers with the blocks that were filled. */
static void fill_finish(struct call *call)
{
    core_fill_cancel(call->session->svc->core, &svc_pages_of_one(call)->fill);
    reply_hbm(svc_pages_of_one(call));
}

static void fill_leave(struct call *call)
{
    struct core *core = call->session->svc->core;
    struct pages_call *x = svc_pages_of_one(call);
    core_fill_cancel(core, &x->fill);
    /* The client was not told of the lease, unless it has guessed the number. */
    (void)!core_release(core, call->session->client, x->wait.lease.held.lease);
}

/* A fill: blocks are copied to slots of a device. */
static const struct call_kind fill_kind = {.leave = fill_leave, .expire = fill_finish};

static void fill_begin(struct wait_call *wait, const struct core_held *held)
{
    struct pages_call *x = pages_of_wait(wait);
    struct call *call = &wait->lease.call;
    struct svc *s = call->session->svc;
    int err = KVC_E_NO_LEASE;
    hold_end(wait, held);
    if (held->lease && x->device->slots) {
        call->kind = &fill_kind;
        call_rearm(call, call->due_ns);
        x->fill = (struct core_fill){.lease = held->lease,
                                     .device = x->device->no,
                                     .shard = wait->lease.shard,
                                     .deadline_ns = call_copies_due(call),
                                     .done = on_filled};
        err = core_fill_start(s->core, call->session->client, &x->fill);
    }
    if (err == 1)
        return;
    /* Blocks that cannot be copied are read where they are. */
    reply_held(s, call->session, &call->head, held, wait->lease.shard, true);
    call_end(s, call);
}

void op_acquire_on(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_acquire_on msg;
    struct core_acquire in;
    struct device *device = NULL;
    const char *why = NULL;
    int err = codec_dec_acquire_on(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && !(device = device_by_uuid(s, msg.uuid))) {
        err = KVC_E_TIER;
        why = NO_DEVICE;
    }
    if (!err)
        err = svc__want(rq, &msg.acquire, &in, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    in.seq.on = device;
    in.seq.on_shard = msg.acquire.shard;
    struct wait_call *wait = wait_new(rq, &in, msg.acquire.shard, fill_begin);
    if (!wait)
        return;
    pages_of_wait(wait)->device = device;
    hold_begin(pages_of_wait(wait));
}
