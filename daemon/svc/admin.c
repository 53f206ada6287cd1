/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of STATS, SESSION_END and EVICT: what operators ask of a running daemon. */
#include <stdio.h>

#include "svc__.h"

bool svc__denied(struct request *rq)
{
    if (rq->se->principal->admin)
        return false;
    reply_error(rq->s, rq->se, &rq->head, KVC_E_DENIED,
                "needs admin rights (principals: admin: true)");
    return true;
}

/* Answers a request that cannot be decoded, or that names a namespace (0: none) which does not
 * exist. */
static bool admin_refused(struct request *rq, int err, uint32_t ns)
{
    if (err)
        reply_error(rq->s, rq->se, &rq->head, err, rq->head.detail);
    else if (ns && !core_ns_exists(rq->s->core, rq->se->client, ns))
        reply_error(rq->s, rq->se, &rq->head, KVC_E_NO_NAMESPACE, "there is no such namespace");
    else
        return false;
    return true;
}

/* ---- STATS ---- */

static void add_stat(struct codec_list *l, const char *prefix, const char *name, const char *suffix,
                     bool gauge, uint64_t value)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s%s", prefix, name, suffix);
    struct msg_stat item = {.name = codec_text(full), .kind = gauge, .value = value};
    MUST(codec_list_add_stat(l, &item) == 0); /* all figures take only a part of a message */
}

static void add_histo(struct codec_list *l, const char *prefix, const char *name,
                      const struct histo *h)
{
    add_stat(l, prefix, name, ".count", false, histo_count(h));
    add_stat(l, prefix, name, ".mean", true, histo_mean(h));
    add_stat(l, prefix, name, ".p50", true, histo_quantile(h, 0.5));
    add_stat(l, prefix, name, ".p99", true, histo_quantile(h, 0.99));
    add_stat(l, prefix, name, ".p9999", true, histo_quantile(h, 0.9999));
    add_stat(l, prefix, name, ".max", true, h->max);
}

static void add_set(struct codec_list *l, const struct metric_set *set)
{
    for (unsigned i = 0; i < set->n; i++) {
        const struct metric_desc *d = &set->desc[i];
        const struct histo *h = metric_histo(set, i);
        if (h)
            add_histo(l, set->prefix, d->name, h);
        else
            add_stat(l, set->prefix, d->name, "", d->kind == METRIC_GAUGE, metric_value(set, i));
    }
}

void op_stats(struct request *rq)
{
    struct svc *s = rq->s;
    int err = codec_dec_bare(rq->buf, rq->len, &rq->head);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    if (svc__denied(rq))
        return;
    s->ports.refresh(s->ports.ctx);
    struct codec_list l;
    MUST(codec_list_begin(&l, s->out, sizeof s->out, &rq->head) == 0);
    for (uint32_t i = 0; i < s->nsets; i++)
        add_set(&l, &s->sets[i]);
    s->m.replies_ok++;
    reply_send(s, rq->se, (int)codec_list_end(&l, false));
}

/* ---- SESSION_END ---- */

bool svc__may_see(const struct session *who, const struct session *se)
{
    return se->client && (who->principal->admin || se->principal == who->principal);
}

/* The session is told at the end of the turn. */
void op_session_end(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_session_end msg;
    struct session *se = NULL;
    int err = codec_dec_session_end(rq->buf, rq->len, &rq->head, &msg);
    const char *why = rq->head.detail;
    for (uint32_t i = 0; !err && !se && i < svc_conns_max(&s->cfg); i++)
        if (s->sessions[i].serial == msg.session && svc__may_see(rq->se, &s->sessions[i]))
            se = &s->sessions[i];
    if (!err && !se) {
        err = KVC_E_GONE;
        why = "there is no such session, or it belongs to another principal";
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    audit(rq->se, "end session %u (%s, uid %u, pid %d, principal %s)", se->serial, se->name,
          (unsigned)se->uid, (int)se->pid, se->principal->name);
    session_force(se, KVC_ST_CANCELLED, "somebody with the right to has ended it");
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_bare_reply(s->out, sizeof s->out, &rq->head));
}

/* ---- EVICT ---- */

struct evict_call {
    struct call call;
    struct core_evict_job job;
    char tenant[KVC_STRING_MAX], model[KVC_STRING_MAX]; /* texts that the job borrows */
};
CALL_FITS(struct evict_call);

static void on_evicted(struct core_evict_job *job)
{
    struct call *call = &CONTAINER_OF(job, struct evict_call, job)->call;
    struct svc *s = call->session->svc;
    struct msg_evict_reply reply = {.blocks = job->ret_blocks,
                                    .bytes = job->ret_bytes,
                                    .kept_blocks = job->ret_kept,
                                    .host_bytes = job->ret_in.host,
                                    .nvme_bytes = job->ret_in.disk,
                                    .device_bytes = job->ret_in.hbm};
    audit_evicted(call->session, job);
    if (job->ret_err) {
        reply_error(s, call->session, &call->head, job->ret_err, call_gone_detail(job->ret_err));
    } else {
        s->m.replies_ok++;
        reply_send(s, call->session,
                   codec_enc_evict_reply(s->out, sizeof s->out, &call->head, &reply));
    }
    call_end(s, call);
}

/* Ends a job early; the part that is done stays done and is audited. */
static void evict_leave(struct call *call)
{
    struct evict_call *x = CONTAINER_OF(call, struct evict_call, call);
    core_cancel(call->session->svc->core, &x->job.req);
    x->job.ret_err = call->err;
    audit_evicted(call->session, &x->job);
}

static const char *evict_late(const struct call *call)
{
    return CONTAINER_OF(call, const struct evict_call, call)->job.evicted
               ? call_gone_detail(KVC_E_TIMEOUT)
               : "part of it is done; ask again with a longer deadline";
}

static const struct call_kind evict_kind = {.leave = evict_leave, .late_of = evict_late};

const char *svc__text(char to[KVC_STRING_MAX], struct codec_bin from)
{
    MUST(from.n < KVC_STRING_MAX);
    if (from.n > 0)
        memcpy(to, from.p, from.n);
    to[from.n] = '\0';
    return from.n > 0 ? to : NULL;
}

void op_evict(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_evict msg;
    int err = codec_dec_evict(rq->buf, rq->len, &rq->head, &msg);
    if (admin_refused(rq, err, msg.ns))
        return;
    struct evict_call *x = call_new(rq, &evict_kind);
    if (!x)
        return;
    x->job = (struct core_evict_job){.ns = msg.ns,
                                     .have_key = msg.key.n > 0,
                                     .older_than_ms = msg.older_than_ms,
                                     .bytes = msg.bytes,
                                     .level_below = msg.priority_below,
                                     .dry_run = msg.flags & KVC_F_DRY_RUN,
                                     .force = msg.flags & KVC_F_FORCE,
                                     .client = rq->se->client,
                                     .done = on_evicted};
    if (msg.key.n)
        memcpy(x->job.key.b, msg.key.p, sizeof x->job.key.b);
    x->job.tenant = svc__text(x->tenant, msg.tenant);
    x->job.model = svc__text(x->model, msg.model);
    core_evict_start(s->core, &x->job);
}
