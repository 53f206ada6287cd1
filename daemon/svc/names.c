/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of NAME_PUT, NAME_FORGET, NAME_LOAD and NAME_TOKENS: conversations and documents. */
#include "svc__.h"

static struct core_name_id names_id_of(uint8_t kind, const struct codec_bin *name,
                                       const struct codec_bin *sub)
{
    return (struct core_name_id){
        .kind = kind, .name = name->p, .name_bytes = name->n, .sub = sub->p, .sub_bytes = sub->n};
}

/* Finds the name of a request that was decoded with `err`. NULL: none; the request is answered. */
static struct core_name *names_find(struct request *rq, int err, uint8_t kind,
                                    const struct codec_bin *name, const struct codec_bin *sub)
{
    struct core_name *nm = NULL;
    const char *why = err ? rq->head.detail : NULL;
    if (!err) {
        const struct core_name_id id = names_id_of(kind, name, sub);
        err = core_name_find(rq->s->core, rq->se->client, &id, &nm);
        why = ns_detail(err);
    }
    if (err)
        reply_error(rq->s, rq->se, &rq->head, err, why);
    return err ? NULL : nm;
}

static void keep_text(char to[KVC_STRING_MAX], const struct codec_bin *from)
{
    memset(to, 0, KVC_STRING_MAX);
    if (from->n > 0)
        memcpy(to, from->p, from->n);
}

/* A name that a call finds again in each slice, because it may have been forgotten or replaced. */
struct sought {
    uint8_t kind;
    char name[KVC_STRING_MAX], sub[KVC_STRING_MAX];
};

static void sought_keep(struct sought *x, uint8_t kind, const struct codec_bin *name,
                        const struct codec_bin *sub)
{
    x->kind = kind;
    keep_text(x->name, name);
    keep_text(x->sub, sub);
}

static int sought_find(const struct call *call, const struct sought *x, struct core_name **ret_name)
{
    const struct core_name_id id = {.kind = x->kind,
                                    .name = (const uint8_t *)x->name,
                                    .name_bytes = (uint32_t)strlen(x->name),
                                    .sub = (const uint8_t *)x->sub,
                                    .sub_bytes = (uint32_t)strlen(x->sub)};
    return core_name_find(call->session->svc->core, call->session->client, &id, ret_name);
}

/* ---- NAME_PUT, NAME_FORGET: until it is kept ---- */

union outcome {
    struct msg_name_put_reply named;
    struct msg_name_forget_reply forgotten;
};

struct name_call {
    struct call call;
    struct core_name_waiter waiter;
    int journaled;         /* the journal's result; 1: none yet */
    bool evicts;           /* blocks are evicted too, and must not be back after a crash */
    union outcome outcome; /* the reply's values */
};

/* put.seq NULL: the put is made in one piece, without slices. */
struct put_call {
    struct name_call name;
    struct core_name_put put;
    struct core_asking asking;
};
CALL_FITS(struct put_call);

struct forget_call {
    struct name_call name;
    struct core_forgetting forgetting;
    char text[KVC_STRING_MAX], sub[KVC_STRING_MAX]; /* the name's texts */
};
CALL_FITS(struct forget_call);

static struct put_call *put_of(struct call *call)
{
    return CONTAINER_OF(call, struct put_call, name.call);
}

static struct forget_call *forget_of(struct call *call)
{
    return CONTAINER_OF(call, struct forget_call, name.call);
}

static void reply_named(struct svc *s, struct session *se, const struct msg_head *head,
                        const union outcome *o)
{
    s->m.replies_ok++;
    reply_send(s, se,
               head->op == KVC_OP_NAME_PUT
                   ? codec_enc_name_put_reply(s->out, sizeof s->out, head, &o->named)
                   : codec_enc_name_forget_reply(s->out, sizeof s->out, head, &o->forgotten));
}

/* The text of the error if the journal of names, or storage, did not take the change. */
static const char *kept_detail(uint16_t op)
{
    return op == KVC_OP_NAME_PUT
               ? "the name is there, but what it reaches is not all on stable storage"
               : "the name is removed, but the journal of names takes no commits: after a restart "
                 "it may be back (names.dir, see the daemon's log)";
}

#define NAME_LATE "it is done, but not on stable storage yet"

static void put_leave(struct call *call)
{
    struct put_call *x = put_of(call);
    core_ask_cancel(call->session->svc->core, &x->asking);
    core_name_cancel(&x->name.waiter);
}

static const char *put_late(const struct call *call)
{
    const struct put_call *x = CONTAINER_OF(call, const struct put_call, name.call);
    if (x->put.seq && x->asking.named.tokens == 0)
        return "not all keys had been looked up; the name is as it was";
    if (x->put.seq && !x->put.durable)
        return "it is done, but the name may not have let go yet of all that it was";
    return NAME_LATE;
}

/* A NAME_PUT, until the journal has it. */
static const struct call_kind put_kind = {.leave = put_leave, .late_of = put_late};

static void forget_audit(const struct forget_call *x)
{
    audit_forgotten(x->name.call.session, x->text, x->sub, x->name.evicts, &x->forgetting.evicted);
}

/* The call ends early; the core continues to release the blocks that the name held. */
static void forget_leave(struct call *call)
{
    struct forget_call *x = forget_of(call);
    core_name_cancel(&x->name.waiter);
    forget_audit(x);
    core_name_forget_cancel(&x->forgetting);
}

/* A NAME_FORGET, until the journal has it. */
static const struct call_kind forget_kind = {.leave = forget_leave, .late = NAME_LATE};

static void name_answer(struct name_call *x, int err, const char *why)
{
    struct call *call = &x->call;
    struct svc *s = call->session->svc;
    if (err)
        reply_error(s, call->session, &call->head, err, why);
    else
        reply_named(s, call->session, &call->head, &x->outcome);
    call_end(s, call);
}

static void on_name_gone(struct core_gone *gone, int err)
{
    struct name_call *x = CONTAINER_OF(gone, struct name_call, call.gone);
    name_answer(x, err, call_gone_detail(err));
}

static void kept_end(struct name_call *x, int err)
{
    if (!err && x->evicts)
        call_await_gone(&x->call, on_name_gone);
    else
        name_answer(x, err, kept_detail(x->call.head.op));
}

static void on_put(struct core_name_waiter *w, int err)
{
    struct put_call *x = CONTAINER_OF(w, struct put_call, name.waiter);
    x->name.journaled = err;
    if (!x->asking.ask) /* else slices still run, and put_go_on() ends the call */
        kept_end(&x->name, err);
}

/* Answers with the result of core. rc 1: when the journal has it; else now. */
static void kept(struct request *rq, struct put_call *x, int rc, const char *why,
                 const union outcome *reply)
{
    if (rc == 1 || (rc == 0 && x && x->name.evicts)) {
        x->name.outcome = *reply;
        if (rc == 0)
            call_await_gone(&x->name.call, on_name_gone);
        return;
    }
    if (rc)
        reply_error(rq->s, rq->se, &rq->head, rc,
                    why || rc != KVC_E_TIER ? why : kept_detail(rq->head.op));
    else
        reply_named(rq->s, rq->se, &rq->head, reply);
    if (x)
        call_end(rq->s, &x->name.call);
}

static union outcome outcome_of(const struct core_named *named)
{
    return (union outcome){.named = {.tokens = named->tokens, .bytes = named->bytes}};
}

static void put_go_on(struct call *call)
{
    struct svc *s = call->session->svc;
    struct put_call *x = put_of(call);
    struct core_held none;
    const char *why = NULL;
    const int rc = core_ask_step(s->core, call->session->client, &x->asking, &none, &why);
    if (rc == CORE_MORE) {
        work_go_on(call, put_go_on);
        return;
    }
    work_leave(call);
    call_bytes_end(call);
    if (rc < 0) {
        name_answer(&x->name, rc, why || rc != KVC_E_TIER ? why : kept_detail(KVC_OP_NAME_PUT));
        return;
    }
    x->name.outcome = outcome_of(&x->asking.named);
    x->name.evicts = x->put.durable && x->asking.named.went;
    if (rc == 0 || x->name.journaled != 1)
        kept_end(&x->name, rc ? x->name.journaled : 0);
}

/* Puts in slices: a name of many keys, or one that has had many. */
static void put_slices(struct request *rq, const struct core_name_put *in)
{
    struct put_call *x = call_new_kept(rq, &put_kind);
    if (!x)
        return;
    x->name.waiter.fn = on_put;
    x->name.journaled = 1;
    x->put = *in;
    x->asking = (struct core_asking){.in = {.seq = *in->seq},
                                     .looks = true,
                                     .put = &x->put,
                                     .name_waiter = in->durable ? &x->name.waiter : NULL};
    x->put.seq = &x->asking.in.seq;
    put_go_on(&x->name.call);
}

void op_name_put(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_name_put msg;
    struct core_seq seq;
    int err = codec_dec_name_put(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : svc__durable_fault(s, msg.flags);
    if (!err && why)
        err = KVC_E_BAD_ARGUMENT;
    if (!err && (err = svc__seq(rq, &msg.seq, true, &seq)))
        why = ns_detail(err);
    if (!err && seq.absent)
        err = KVC_E_GONE;
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    const struct core_name_put in = {.id = names_id_of(msg.kind, &msg.name, &msg.seq.sub),
                                     .seq = &seq,
                                     .pinned = msg.flags & KVC_F_PINNED,
                                     .durable = msg.flags & KVC_F_DURABLE,
                                     .priority = msg.priority,
                                     .ttl_ms = msg.ttl_ms,
                                     .ids = msg.ids.n > 0 ? msg.ids.p : NULL};
    if (core_name_put_is_long(s->core, rq->se->client, &in)) {
        put_slices(rq, &in);
        return;
    }
    struct put_call *x = in.durable ? call_new(rq, &put_kind) : NULL;
    if (in.durable && !x)
        return;
    if (x)
        x->name.waiter.fn = on_put;
    struct core_named named = {0};
    const int rc =
        core_name_put(s->core, rq->se->client, &in, x ? &x->name.waiter : NULL, &named, &why);
    const union outcome reply = outcome_of(&named);
    if (x)
        x->name.evicts = named.went;
    kept(rq, x, rc, why, &reply);
}

static union outcome forgotten(const struct core_evicted *x)
{
    return (union outcome){.forgotten = {.blocks = x->blocks,
                                         .bytes = x->bytes,
                                         .kept_blocks = x->kept,
                                         .host_bytes = x->in.host,
                                         .nvme_bytes = x->in.disk,
                                         .device_bytes = x->in.hbm,
                                         .kept_named = x->kept_named,
                                         .kept_pinned = x->kept_pinned,
                                         .kept_used = x->kept_used,
                                         .kept_below = x->kept_below,
                                         .kept_passed = x->kept_passed}};
}

/* Answers when the journal has it, and all blocks are released. */
static void forget_go_on(struct call *call)
{
    struct forget_call *x = forget_of(call);
    if (core_name_forget_step(call->session->svc->core, &x->forgetting)) {
        work_go_on(call, forget_go_on);
        return;
    }
    work_leave(call);
    if (x->name.journaled == 1)
        return;
    x->name.outcome = forgotten(&x->forgetting.evicted);
    forget_audit(x);
    kept_end(&x->name, x->name.journaled);
}

static void on_unwritten(struct core_name_waiter *w, int err)
{
    struct forget_call *x = CONTAINER_OF(w, struct forget_call, name.waiter);
    x->name.journaled = err;
    if (!x->forgetting.name)
        forget_go_on(&x->name.call);
}

/* A dry run of a forget: which blocks would be evicted. */
struct would_call {
    struct call call;
    struct sought name;
    struct core_would would;
};
CALL_FITS(struct would_call);

static const struct call_kind would_kind = {.late = LOOK_LATE};

static void would_go_on(struct call *call)
{
    struct svc *s = call->session->svc;
    struct would_call *x = CONTAINER_OF(call, struct would_call, call);
    struct core_name *nm;
    const int err = sought_find(call, &x->name, &nm);
    if (!err && core_name_would_step(s->core, nm, &x->would)) {
        work_go_on(call, would_go_on);
        return;
    }
    const union outcome would = forgotten(&x->would.evicted);
    if (err)
        reply_error(s, call->session, &call->head, err, ns_detail(err));
    else
        reply_named(s, call->session, &call->head, &would);
    call_end(s, call);
}

static void would_begin(struct request *rq, const struct msg_name_forget *msg)
{
    struct would_call *x = call_new(rq, &would_kind);
    if (!x)
        return;
    sought_keep(&x->name, msg->kind, &msg->name, &msg->sub);
    would_go_on(&x->call);
}

void op_name_forget(struct request *rq)
{
    struct msg_name_forget msg;
    const int err = codec_dec_name_forget(rq->buf, rq->len, &rq->head, &msg);
    struct core_name *nm = names_find(rq, err, msg.kind, &msg.name, &msg.sub);
    if (!nm)
        return;
    if (msg.dry_run) {
        would_begin(rq, &msg);
        return;
    }
    struct forget_call *x = call_new(rq, &forget_kind);
    if (!x)
        return;
    x->name.waiter.fn = on_unwritten;
    x->name.evicts = msg.evict;
    (void)svc__text(x->text, msg.name);
    (void)svc__text(x->sub, msg.sub);
    x->name.journaled =
        core_name_forget_begin(rq->s->core, nm, msg.evict, &x->forgetting, &x->name.waiter);
    forget_go_on(&x->name.call);
}

/* ---- NAME_LOAD ---- */

static void reply_loaded(struct svc *s, struct session *se, const struct msg_head *head,
                         uint64_t bytes)
{
    const struct msg_name_load_reply reply = {.bytes = bytes};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_name_load_reply(s->out, sizeof s->out, head, &reply));
}

static uint64_t in_memory(struct svc *s, const struct core_name *nm)
{
    struct core_name_view v;
    (void)core_name_view(s->core, nm, &v);
    return v.bytes_in_memory;
}

/* Begins to load a name's blocks, in one piece. */
static void prefetch(struct svc *s, const struct core_name *nm)
{
    struct core_seq seq;
    if (core_name_seq(s->core, nm, &seq))
        (void)core_prefetch(s->core, &seq, SVC_PREFETCH_BYTES);
}

/* A load of the blocks that a name reaches, until they are in memory. */
struct load_call {
    struct wait_call wait;
    struct sought name;
};
CALL_FITS(struct load_call);

static struct load_call *load_of(struct call *call)
{
    return CONTAINER_OF(call, struct load_call, wait.lease.call);
}

/* Answers with err, or with the bytes in memory, and ends the call. */
static void names_load_end(struct load_call *x, int err, uint64_t bytes)
{
    struct call *call = &x->wait.lease.call;
    struct svc *s = call->session->svc;
    core_waiter_cancel(s->core, &x->wait.waiter);
    if (err)
        reply_error(s, call->session, &call->head, err, NULL);
    else
        reply_loaded(s, call->session, &call->head, bytes);
    call_end(s, call);
}

/* Loads in one piece: answers, or waits on. */
static void load_whole(struct load_call *x)
{
    struct call *call = &x->wait.lease.call;
    struct svc *s = call->session->svc;
    struct core_client *cl = call->session->client;
    struct core_acquire *in = &x->wait.acquire;
    struct core_name *nm;
    struct core_held held = {0};
    const char *why = NULL;
    const int err = sought_find(call, &x->name, &nm);
    if (!err && x->wait.prefetch) {
        prefetch(s, nm);
    } else if (!err && core_name_seq(s->core, nm, &in->seq)) {
        const int rc = core_acquire(s->core, cl, in, &x->wait.waiter, &held, &why);
        if (rc == 1)
            return;
        if (rc == 0 && held.lease)
            MUST(core_release(s->core, cl, held.lease) == 0);
        /* If the session would hold more than it may, blocks are loaded as far as there is room. */
        if (rc == KVC_E_LIMIT && in->load)
            (void)core_prefetch(s->core, &in->seq, SVC_PREFETCH_BYTES);
    }
    names_load_end(x, err, err ? 0 : in_memory(s, nm));
}

/* Prepares the slices for a long name. Returns whether the name is long. */
static bool load_begin(struct load_call *x)
{
    struct wait_call *w = &x->wait;
    const struct call *call = &w->lease.call;
    struct core_name *nm;
    if (sought_find(call, &x->name, &nm) != 0 || !core_name_is_long(call->session->svc->core, nm))
        return false;
    w->asking = (struct core_asking){.in = w->acquire,
                                     .looks = true,
                                     .name = nm,
                                     .load_bytes = SVC_PREFETCH_BYTES,
                                     .waiter = &w->waiter};
    w->asking.in.load &= !w->prefetch;
    if (!w->acquire.load && !w->prefetch) /* only counts the blocks in memory */
        w->asking.load_bytes = 0;
    return true;
}

/* Runs a slice: answers, continues, or waits. */
static void load_again(struct call *call)
{
    struct svc *s = call->session->svc;
    struct load_call *x = load_of(call);
    struct core_asking *asking = &x->wait.asking;
    struct core_held none;
    const char *why = NULL;
    if (!asking->ask && !load_begin(x)) {
        work_leave(call);
        load_whole(x);
        return;
    }
    const int err = core_ask_step(s->core, call->session->client, asking, &none, &why);
    if (err == CORE_MORE) {
        work_go_on(call, load_again);
        return;
    }
    work_leave(call);
    if (err == 1 && x->wait.woken) /* it was woken before its last slice */
        work_wait(call, load_again);
    if (err == 1)
        return;
    if (err)
        load_whole(x);
    else
        names_load_end(x, 0, asking->bytes_in_memory);
}

static void on_loaded(struct core_waiter *w)
{
    struct wait_call *x = CONTAINER_OF(w, struct wait_call, waiter);
    x->acquire.load = false;
    x->woken = true;
    if (!x->asking.ask) /* else slices still run, and load_again() sees `woken` */
        work_wait(&x->lease.call, load_again);
}

/* Ends the wait, and answers with the bytes that are in memory. */
static void load_finish(struct call *call)
{
    struct core *core = call->session->svc->core;
    struct wait_call *x = &load_of(call)->wait;
    core_waiter_cancel(core, &x->waiter);
    core_ask_cancel(core, &x->asking);
    x->acquire.load = x->prefetch = false;
    work_leave(call);
    work_wait(call, load_again);
}

static const struct call_kind load_kind = {.leave = wait_leave, .expire = load_finish};

void op_name_load(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_name_load msg;
    const int err = codec_dec_name_load(rq->buf, rq->len, &rq->head, &msg);
    struct core_name *nm = names_find(rq, err, msg.kind, &msg.name, &msg.sub);
    if (!nm)
        return;
    core_name_use(s->core, nm, msg.ttl_ms);
    const bool waits = msg.flags & KVC_F_WAIT;
    if (!waits && !core_name_is_long(s->core, nm)) {
        prefetch(s, nm);
        reply_loaded(s, rq->se, &rq->head, in_memory(s, nm));
        return;
    }
    struct load_call *x = call_new(rq, &load_kind);
    if (!x)
        return;
    sought_keep(&x->name, msg.kind, &msg.name, &msg.sub);
    x->wait.acquire = (struct core_acquire){.load = waits, .unasked = true};
    x->wait.prefetch = !waits;
    x->wait.waiter.fn = on_loaded;
    load_again(&x->wait.lease.call);
}

/* ---- NAME_TOKENS ---- */

void op_name_tokens(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_name_tokens msg;
    struct msg_name_tokens_reply reply = {0};
    const int err = codec_dec_name_tokens(rq->buf, rq->len, &rq->head, &msg);
    const struct core_name *nm = names_find(rq, err, msg.kind, &msg.name, &msg.sub);
    if (!nm)
        return;
    uint8_t *ids = s->locs; /* a buffer of another reply */
    _Static_assert(sizeof s->locs >= MSG_NAME_IDS_MAX * 4u, "they have room there");
    reply.ids = (struct codec_bin){
        .p = ids,
        .n = 4 * core_name_ids(s->core, nm, msg.first, ids, MSG_NAME_IDS_MAX, &reply.tokens)};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_name_tokens_reply(s->out, sizeof s->out, &rq->head, &reply));
}
