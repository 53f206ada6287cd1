/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of RESERVE, COMMIT, STORE, PAGES_STORE and DROP: the way of a store. */
#include "svc__.h"

static const struct core_retention *wishes_of(const struct msg_reserve *msg, struct wishes *room)
{
    const uint32_t n = msg->retain.n / KVC_RETAIN_BYTES;
    if (n == 0)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        struct msg_retain m;
        codec_get_retain(msg->retain.p + (size_t)i * KVC_RETAIN_BYTES, &m);
        room->range[i] = (struct core_range){
            .first_token = m.first_token,
            .end_token = m.end_token,
            .wish = {.level = m.priority, .duration_ms = m.duration_ms},
        };
    }
    room->retention = (struct core_retention){.range = room->range, .n = n};
    return &room->retention;
}

static int reserve_in(struct request *rq, const struct msg_reserve *msg, struct wishes *wishes,
                      struct core_reserve *ret_in)
{
    struct core_reserve in = {.group = msg->group,
                              .shard = msg->shard,
                              .parent = msg->parent.n ? msg->parent.p : NULL,
                              .first_token = msg->first_token,
                              .keys = msg->keys.p,
                              .n = msg->keys.n / KVC_KEY_BYTES,
                              .last_tokens = msg->last_tokens,
                              .durable = msg->flags & KVC_F_DURABLE,
                              .decoded = msg->flags & KVC_F_DECODED,
                              .cost = core_ns_cost(rq->se->client, msg->ns),
                              .retention = wishes_of(msg, wishes)};
    int err = core_ns_get(rq->s->core, rq->se->client, msg->ns, msg->sub.p, msg->sub.n, &in.ns);
    if (!err)
        *ret_in = in;
    return err;
}

/* ---- waiting for room ---- */

/* The longest wait for room; then the store takes the room that is free. Healthy drives write what
 * one store has to displace in a tenth of that. */
#define ROOM_WAIT_NS        (UINT64_C(50) * 1000000)
#define ROOM_WAIT_RECORD_NS (UINT64_C(10) * 1000000) /* longer waits are recorded, one by one */

struct room_call {
    struct call call;
    struct core_waiter waiter;
};
CALL_FITS(struct room_call);

static struct room_call *room_of(struct call *call)
{
    return CONTAINER_OF(call, struct room_call, call);
}

static void count_wait(struct svc *s, const struct call *call)
{
    const uint64_t waited = s->now_ns - call->begun_ns;
    histo_add(&s->m.room_wait_ns, waited);
    s->m.room_waits_late += waited >= ROOM_WAIT_NS;
    if (waited >= ROOM_WAIT_RECORD_NS)
        FLIGHT(ROOM_WAIT, waited / 1000000, call->session->index,
               core_metrics(s->core)->saving_bytes);
}

/* The wait for room has ended: the store continues. */
static void room_finish(struct call *call)
{
    struct svc *s = call->session->svc;
    struct request rq;
    count_wait(s, call);
    core_waiter_cancel(s->core, &room_of(call)->waiter);
    call_resume(call, &rq);
    rq.had_room = true;
    call_end(s, call);
    if (s->now_ns >= rq.due_ns)
        reply_error(s, rq.se, &rq.head, KVC_E_TIMEOUT, "no room was made in time");
    else if (rq.head.op == KVC_OP_RESERVE)
        op_reserve(&rq);
    else if (rq.head.op == KVC_OP_STORE)
        op_store(&rq);
    else
        op_pages_store(&rq);
    request_end(&rq);
}

static void write_on_room(struct core_waiter *w)
{
    room_finish(&CONTAINER_OF(w, struct room_call, waiter)->call);
}

static void room_leave(struct call *call)
{
    core_waiter_cancel(call->session->svc->core, &room_of(call)->waiter);
}

static const struct call_kind room_kind = {.leave = room_leave, .expire = room_finish};

/* Lets the request wait when its victims are being written to disk. False: it continues, also when
 * no call is free. */
static bool wait_for_room(struct request *rq, const struct core_reserve *in)
{
    struct svc *s = rq->s;
    struct core_ns_view v;
    core_ns_view(in->ns, &v);
    if (rq->had_room || in->group >= v.spec->ngroups)
        return false;
    const uint64_t bytes = (uint64_t)in->n * v.spec->group[in->group].block_bytes;
    if (!core_store_must_wait(s->core, bytes, NULL))
        return false;
    struct room_call *x = call_new(rq, &room_kind);
    if (!x)
        return true; /* answered */
    struct call *call = &x->call;
    x->waiter.fn = write_on_room;
    const bool kept = call_keep(rq, call);
    if (!kept || !core_store_must_wait(s->core, bytes, &x->waiter)) {
        if (kept)
            call_unkeep(rq, call); /* the request continues and still reads its bytes */
        call_end(s, call);
        return false;
    }
    /* Waits for at most half of the remaining time, because the copies need some too. */
    const uint64_t left_ns = call->due_ns > s->now_ns ? call->due_ns - s->now_ns : 0;
    call_rearm(call, s->now_ns + MIN(left_ns / 2, ROOM_WAIT_NS));
    return true;
}

/* ---- reserving, in slices ---- */

/* A call of RESERVE, of COMMIT, or of a request that is both. */
struct write_call {
    struct call call;
    struct core_reserving reserving;
    struct wishes wishes;
    struct core_commit commit;
    uint8_t statuses[KVC_STORE_MAX];
};
CALL_FITS(struct write_call);

static struct write_call *write_of(struct call *call)
{
    return CONTAINER_OF(call, struct write_call, call);
}

/* Moves a reserve to `to`, and its wishes, which it borrows, to `wishes`. */
static void reserving_move(struct core_reserving *to, const struct core_reserving *from,
                           struct wishes *wishes)
{
    *to = *from;
    if (!to->in.retention)
        return;
    *wishes = *CONTAINER_OF(from->in.retention, struct wishes, retention);
    wishes->retention.range = wishes->range;
    to->in.retention = &wishes->retention;
}

/* Drops what the call has reserved. */
static void reserve_leave(struct call *call)
{
    core_reserve_cancel(&write_of(call)->reserving);
}

/* Reserving: RESERVE; STORE and PAGES_STORE until they copy. */
static const struct call_kind reserve_kind = {
    .leave = reserve_leave,
    .late = "not all blocks had been reserved; those that were are dropped"};

/* The first slice was not enough: keeps the request, which continues in later turns. */
static void reserve_goes_on(struct request *rq, struct call *call, void (*step)(struct call *call))
{
    if (!call->kept && !call_keep(rq, call)) {
        reserve_leave(call);
        refuse_to_keep(rq, call);
        return;
    }
    work_go_on(call, step);
}

/* ---- RESERVE ---- */

static void reply_reserve(struct svc *s, struct session *se, const struct msg_head *head,
                          const struct core_reserving *x)
{
    if (s->trace)
        trace__stored(s, se, &x->in);
    const struct msg_reserve_reply reply = {.reservation = x->ret_reservation,
                                            .statuses = {x->statuses, x->in.n}};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_reserve_reply(s->out, sizeof s->out, head, &reply));
}

static void reserve_step(struct call *call)
{
    struct svc *s = call->session->svc;
    struct core_reserving *x = &write_of(call)->reserving;
    if (core_reserve_step(x))
        return;
    reply_reserve(s, call->session, &call->head, x);
    call_end(s, call);
}

/* Continues a reserve whose first slice, `begun`, was not enough. */
static void reserve_long(struct request *rq, struct core_reserving *begun)
{
    struct write_call *x = call_new(rq, &reserve_kind);
    if (!x) {
        core_reserve_cancel(begun);
        return;
    }
    reserving_move(&x->reserving, begun, &x->wishes);
    x->reserving.statuses = x->statuses;
    memcpy(x->statuses, begun->statuses, begun->in.n);
    reserve_goes_on(rq, &x->call, reserve_step);
}

void op_reserve(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_reserve msg;
    struct wishes wishes;
    uint8_t statuses[KVC_STORE_MAX];
    struct core_reserving x = {.statuses = statuses};
    const char *why = NULL;
    int err = codec_dec_reserve(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (why = svc__durable_fault(s, msg.flags)))
        err = KVC_E_BAD_ARGUMENT;
    if (!err && (err = reserve_in(rq, &msg, &wishes, &x.in)))
        why = ns_detail(err);
    if (!err && wait_for_room(rq, &x.in))
        return;
    if (!err)
        err = core_reserve_begin(s->core, rq->se->client, &x, &why);
    if (err)
        reply_error(s, rq->se, &rq->head, err, why);
    else if (core_reserve_step(&x))
        reserve_long(rq, &x);
    else
        reply_reserve(s, rq->se, &rq->head, &x);
}

/* ---- COMMIT ---- */

static void reply_commit(struct svc *s, struct session *se, const struct msg_head *head,
                         const uint8_t *statuses, uint32_t n)
{
    struct msg_commit_reply reply = {.statuses = {statuses, n}};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_commit_reply(s->out, sizeof s->out, head, &reply));
}

static const char *commit_late(const struct call *call)
{
    return call->pages ? "copies may still be running, cancel before reusing the pages; what was "
                         "to be durable is not known to be"
                       : "copies may still be running, cancel before reusing the staging area; "
                         "what was to be durable is not known to be";
}

static void commit_leave(struct call *call)
{
    core_cancel(call->session->svc->core,
                &write_of(call)->commit.req); /* the call may end in here */
}

/* The daemon stops: a commit does not wait for its word, or for the shards of other ranks. */
static void commit_shutdown(struct call *call)
{
    const struct core_commit *m = &write_of(call)->commit;
    if (!core_commit_lacks_shards(call->session->svc->core, m) &&
        !(call->pages && core_commit_is_early(m)))
        return;
    call->err = call->err ? call->err : KVC_E_SHUTDOWN;
    commit_leave(call);
}

const struct call_kind commit_kind = {
    .leave = commit_leave, .copies = true, .late_of = commit_late, .shutdown = commit_shutdown};

static void on_commit_done(struct core_commit *m)
{
    struct write_call *x = CONTAINER_OF(m, struct write_call, commit);
    struct call *call = &x->call;
    struct svc *s = call->session->svc;
    histo_add(&s->m.commit_ns, s->now_ns - call->begun_ns);
    if (call_tells(call))
        reply_commit(s, call->session, &call->head, x->statuses, m->n);
    call_end(s, call);
}

/* The error in the token ids of a commit; NULL: none. There must be no more than its blocks hold,
 * and none if the namespace was opened without them. */
static const char *tokens_fault(const struct core_ns *ns, uint32_t group, uint32_t blocks,
                                struct codec_bin tokens)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    if (!(v.spec->flags & KVC_F_TOKENS))
        return tokens.n ? "tokens: the namespace was opened without them" : NULL;
    uint64_t most = (uint64_t)blocks * v.spec->group[group].block_tokens * 4;
    if (tokens.n % 4)
        return "tokens: not a multiple of 4 bytes";
    return tokens.n > most ? "tokens: more than the blocks hold" : NULL;
}

/* Called after the last slice. rc 1: copies are in flight; else the call is answered. */
static void commit_sliced(struct call *call, int rc)
{
    struct svc *s = call->session->svc;
    work_leave(call);
    if (rc == 1 && s->stopping)
        commit_shutdown(call);
    if (rc == 1)
        return;
    const struct write_call *x = write_of(call);
    reply_commit(s, call->session, &call->head, x->statuses, x->commit.n);
    call_end(s, call);
}

static void commit_step(struct call *call)
{
    const int rc = core_commit_step(call->session->svc->core, &write_of(call)->commit);
    if (rc != CORE_MORE)
        commit_sliced(call, rc);
}

/* The first slice was not enough, and the request cannot be kept. It is answered after the last
 * copy that was begun, because copies read the worker's memory. */
static void commit_give_up(struct call *call)
{
    call->err = KVC_E_BUSY;
    commit_leave(call);
}

/* Drops what a STORE has reserved, because nobody would commit it. */
static void store_leave(const struct write_call *x)
{
    const struct session *se = x->call.session;
    int err = core_drop(se->svc->core, se->client, x->commit.reservation);
    MUST(err == 0 || err == KVC_E_GONE);
}

/* Begins the copies of `x`, or answers. rq: NULL, the request is kept. */
static void commit_run(struct request *rq, struct write_call *x)
{
    struct call *call = &x->call;
    struct svc *s = call->session->svc;
    struct session *se = call->session;
    struct core_commit *m = &x->commit;
    const char *why = NULL;
    if (!call->pages) {
        m->staging = se->staging_base;
        m->staging_bytes = se->staging_bytes;
    }
    m->deadline_ns = call->pages ? call_copies_due(call) : call->due_ns;
    m->statuses = x->statuses;
    m->done = on_commit_done;
    call->kind = &commit_kind;
    int rc = core_commit_begin(s->core, se->client, m, &why);
    if (rc) {
        reply_error(s, se, &call->head, rc, why);
        if (m->store)
            store_leave(x);
        call_end(s, call);
        return;
    }
    rc = core_commit_step(s->core, m);
    if (rc != CORE_MORE)
        commit_sliced(call, rc);
    else if (call->kept || call_keep(rq, call))
        work_go_on(call, commit_step);
    else
        commit_give_up(call);
}

void op_commit(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_commit msg;
    const char *why = NULL;
    int err = codec_dec_commit(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    struct core_ns *ns;
    uint32_t group;
    err = core_reservation(s->core, rq->se->client, msg.reservation, &ns, &group);
    if (!err && (why = tokens_fault(ns, group, msg.offsets.n / 8, msg.tokens)))
        err = KVC_E_BAD_ARGUMENT;
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    struct write_call *x = call_new(rq, &commit_kind);
    if (!x)
        return;
    memset(x->statuses, KVC_ST_OK, msg.offsets.n / 8);
    x->commit = (struct core_commit){.reservation = msg.reservation,
                                     .first = msg.first,
                                     .n = msg.offsets.n / 8,
                                     .offsets = msg.offsets.p};
    commit_run(rq, x);
}

/* ---- STORE ---- */

/* Makes a store's argument for core_reserve(), and checks its token ids. */
static int store_in(struct request *rq, const struct msg_reserve *msg, struct codec_bin tokens,
                    struct wishes *wishes, struct core_reserve *ret_in, const char **ret_why)
{
    if ((*ret_why = svc__durable_fault(rq->s, msg->flags)))
        return KVC_E_BAD_ARGUMENT;
    int err = reserve_in(rq, msg, wishes, ret_in);
    if (err) {
        *ret_why = ns_detail(err);
        return err;
    }
    ret_in->judged = !(msg->flags & KVC_F_ADMIT);
    *ret_why = NULL;
    if (ret_in->group < KVC_GROUPS_MAX)
        *ret_why = tokens_fault(ret_in->ns, ret_in->group, ret_in->n, tokens);
    return *ret_why ? KVC_E_BAD_ARGUMENT : 0;
}

/* Reserving has ended: begins the copies of the reserved blocks. */
static void store_reserved(struct request *rq, struct write_call *x)
{
    struct call *call = &x->call;
    struct svc *s = call->session->svc;
    const struct core_reserving *r = &x->reserving;
    if (s->trace)
        trace__stored(s, call->session, &r->in);
    if (!r->ret_reservation) {
        reply_commit(s, call->session, &call->head, x->statuses, r->in.n);
        call_end(s, call);
        return;
    }
    x->commit.reservation = r->ret_reservation;
    x->commit.n = r->in.n;
    x->commit.store = true;
    commit_run(rq, x);
}

static void store_copy(struct call *call)
{
    store_reserved(NULL, write_of(call));
}

static void store_step(struct call *call)
{
    if (!core_reserve_step(&write_of(call)->reserving))
        work_go_on(call, store_copy);
}

/* Reserves blocks, copies them from the source in x->commit, and answers. */
static void write_store_run(struct request *rq, struct write_call *x, const struct core_reserve *in)
{
    struct svc *s = rq->s;
    const char *why = NULL;
    const struct core_reserving wanted = {.in = *in, .statuses = x->statuses};
    reserving_move(&x->reserving, &wanted, &x->wishes);
    int err = core_reserve_begin(s->core, rq->se->client, &x->reserving, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        call_end(s, &x->call);
    } else if (!core_reserve_step(&x->reserving)) {
        store_reserved(rq, x);
    } else {
        reserve_goes_on(rq, &x->call, store_step);
    }
}

void op_store(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_store msg;
    struct core_reserve in;
    struct wishes wishes;
    const char *why = NULL;
    int err = codec_dec_store(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    else
        err = store_in(rq, &msg.reserve, msg.tokens, &wishes, &in, &why);
    if (!err && msg.offsets.n / 8 != in.n) {
        err = KVC_E_BAD_ARGUMENT;
        why = "offsets: one per key";
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    if (wait_for_room(rq, &in))
        return;
    struct write_call *x = call_new(rq, &reserve_kind);
    if (!x)
        return;
    x->commit = (struct core_commit){.offsets = msg.offsets.p};
    write_store_run(rq, x, &in);
}

/* Checks that pool, words and pages fit the blocks, and finds where they are. */
static int pages_in(struct request *rq, const struct msg_pages_store *msg,
                    const struct core_reserve *in, struct device_pages **ret_pages,
                    struct core_commit *ret_commit, const char **ret_why)
{
    struct device_pages *p = device_pool(rq->se, msg->pool);
    _Atomic uint64_t *after;
    *ret_why = p ? device_pool_fault(p, in->ns) : NO_POOL;
    if (!*ret_why && in->group >= p->ngroups)
        *ret_why = "group: the namespace has fewer groups";
    if (!*ret_why && !device_word(rq->se, msg->after_word, &after))
        *ret_why = NO_WORDS;
    if (!*ret_why && msg->pages.n / 4 != (uint64_t)in->n * p->pages_per_block[in->group])
        *ret_why = "pages: pages_per_block for each key";
    if (*ret_why)
        return KVC_E_BAD_ARGUMENT;
    const int err = device_pool_lost(p, ret_why);
    if (err)
        return err;
    *ret_pages = p;
    *ret_commit = (struct core_commit){.pages_per_block = p->pages_per_block[in->group],
                                       .transfer = {.device = p->device,
                                                    .pool = p->pool,
                                                    .after = {after, msg->after_value},
                                                    .revoked = device_revoked(rq->se)}};
    return 0;
}

void op_pages_store(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_pages_store msg;
    struct core_reserve in;
    struct core_commit commit;
    struct device_pages *pages;
    struct wishes wishes;
    const char *why = NULL;
    int err = codec_dec_pages_store(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    else
        err = store_in(rq, &msg.reserve, msg.tokens, &wishes, &in, &why);
    if (!err)
        err = pages_in(rq, &msg, &in, &pages, &commit, &why);
    if (!err && core_commit_is_early(&commit))
        in.judged = false; /* admission does not apply: others may wait for the blocks */
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    if (wait_for_room(rq, &in))
        return;
    struct write_call *x = call_new_kept(rq, &reserve_kind);
    if (!x)
        return;
    x->call.pages = pages;
    pages->calls++;
    x->commit = commit;
    x->commit.pages = pages_align(msg.pages);
    write_store_run(rq, x, &in);
}

static void reply_drop(struct svc *s, struct session *se, const struct msg_head *head)
{
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_bare_reply(s->out, sizeof s->out, head));
}

struct drop_call {
    struct call call;
    uint64_t reservation;
};
CALL_FITS(struct drop_call);

static uint64_t drop_what(const struct call *call)
{
    return CONTAINER_OF(call, const struct drop_call, call)->reservation;
}

/* Finishes a DROP, and answers it. */
static void drop_finish(struct call *call)
{
    struct svc *s = call->session->svc;
    const int err = core_drop(s->core, call->session->client, drop_what(call));
    MUST(err == 0 || err == KVC_E_GONE);
    reply_drop(s, call->session, &call->head);
    call_end(s, call);
}

/* A DROP that has begun is finished on CANCEL and at its deadline; the session's end drops the rest
 * too. */
static const struct call_kind drop_kind = {.expire = drop_finish, .cancel = drop_finish};

static void drop_step(struct call *call)
{
    struct svc *s = call->session->svc;
    const int rc = core_drop_step(s->core, call->session->client, drop_what(call));
    if (rc != CORE_MORE)
        drop_finish(call);
}

void op_drop(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_drop msg;
    struct drop_call *x;
    int err = codec_dec_drop(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err)
        err = core_drop_step(s->core, rq->se->client, msg.reservation);
    if (err < 0) {
        reply_error(s, rq->se, &rq->head, err, why);
    } else if (err == 0) {
        reply_drop(s, rq->se, &rq->head);
    } else if ((x = call_new(rq, &drop_kind)) != NULL) {
        x->reservation = msg.reservation;
        work_go_on(&x->call, drop_step);
    }
}
