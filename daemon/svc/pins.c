/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of PIN, UNPIN, QUOTA_SET and POLICY: what stays in the cache, and who holds its room. */
#include <stdio.h>

#include "svc__.h"
#include "units.h"

/* A warning says that large blocks leave host memory empty if more than 1 / FILL_SHARE of it stays
 * empty. Chunks of FILL_BLOCKS blocks leave little empty. */
#define FILL_SHARE  8u
#define FILL_BLOCKS 16u

static void keep_fail(struct request *rq, int err, const char *why)
{
    reply_error(rq->s, rq->se, &rq->head, err, why);
}

static void keep_answer(struct request *rq, int len)
{
    rq->s->m.replies_ok++;
    reply_send(rq->s, rq->se, len);
}

/* ---- pins ---- */

static const char *pin_detail(const struct svc *s, int err, const char *why)
{
    struct core_policy_view v;
    core_policy_view(s->core, &v);
    if (err == KVC_E_LIMIT && !v.pins)
        return "nothing can be pinned: policy.pin_limit is 0";
    switch (err) {
    case KVC_E_PIN_LIMIT:
        return "the tenant's budget of pinned bytes (policy.pin_limit) would be exceeded, or seven "
               "eighths of host memory by the pins in memory of all";
    case KVC_E_QUOTA:
        return "pins, names and durable commits would have to keep more than a quota allows, "
               "or than is left beside what is guaranteed to others (kvcachectl quota show)";
    case KVC_E_BUSY:
        return "too much would have to be moved in memory at once; try again";
    case KVC_E_LIMIT:
        return "too many pins, or too many on one block";
    default:
        return why;
    }
}

static void reply_pinned(struct svc *s, struct session *se, const struct msg_head *head,
                         const struct core_pinned *pinned)
{
    char bytes[UNITS_TEXT_BYTES];
    audit(se, "pin %llu: %u blocks, %s", (unsigned long long)pinned->id, pinned->blocks,
          units_format_bytes(pinned->bytes, bytes));
    const struct msg_pin_reply reply = {.pin = pinned->id, .bytes = pinned->bytes};
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_pin_reply(s->out, sizeof s->out, head, &reply));
}

static void pin_answer(const struct call *call, const struct core_asking *asking, int err,
                       const struct core_held *found, const char *why)
{
    struct svc *s = call->session->svc;
    (void)found;
    if (err)
        reply_error(s, call->session, &call->head, err, pin_detail(s, err, why));
    else
        reply_pinned(s, call->session, &call->head, &asking->pinned);
}

/* Pins in slices, for many keys. */
static void pin_slices(struct request *rq, const struct core_pin *pin)
{
    look_slices(rq,
                &(struct core_asking){.in = {.seq = pin->seq, .read_only = true},
                                      .looks = true,
                                      .pins = true,
                                      .in_memory = pin->in_memory,
                                      .ttl_ms = pin->ttl_ms},
                pin_answer);
}

void op_pin(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_pin msg;
    struct core_pinned pinned;
    struct core_pin pin = {0};
    const char *why = NULL;
    int err = codec_dec_pin(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err && (err = svc__seq(rq, &msg.seq, true, &pin.seq)))
        why = ns_detail(err);
    if (!err) {
        pin.in_memory = msg.tier == KVC_TIER_HOST;
        pin.ttl_ms = msg.ttl_ms;
        if (core_seq_is_long(s->core, &pin.seq)) {
            pin_slices(rq, &pin);
            return;
        }
        err = core_pin(s->core, &pin, &pinned, &why);
        why = err ? pin_detail(s, err, why) : NULL;
    }
    if (err) {
        keep_fail(rq, err, why);
        return;
    }
    reply_pinned(s, rq->se, &rq->head, &pinned);
}

static void reply_unpinned(struct svc *s, struct session *se, const struct msg_head *head)
{
    s->m.replies_ok++;
    reply_send(s, se, codec_enc_bare_reply(s->out, sizeof s->out, head));
}

struct unpin_call {
    struct call call;
    uint64_t pin;
};
CALL_FITS(struct unpin_call);

/* An unpin that releases blocks in slices. If the call ends early, the core continues by itself. */
static const struct call_kind unpin_kind = {.late =
                                                "the pin has ended, and lets go of its blocks yet"};

static void unpin_go_on(struct call *call)
{
    struct svc *s = call->session->svc;
    if (core_unpin_step(s->core, CONTAINER_OF(call, struct unpin_call, call)->pin)) {
        work_go_on(call, unpin_go_on);
        return;
    }
    reply_unpinned(s, call->session, &call->head);
    call_end(s, call);
}

void op_unpin(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_unpin msg;
    int err = codec_dec_unpin(rq->buf, rq->len, &rq->head, &msg);
    const char *why = rq->head.detail;
    if (!err && (err = core_unpin(s->core, rq->se->client, msg.pin)) < 0)
        why = "there is no such pin, or it belongs to another principal";
    if (err < 0) {
        keep_fail(rq, err, why);
        return;
    }
    audit(rq->se, "unpin %llu", (unsigned long long)msg.pin);
    /* Without a free call the reply is sent before all blocks are released. */
    struct unpin_call *x = err == CORE_MORE ? call_try(rq, &unpin_kind) : NULL;
    if (!x) {
        reply_unpinned(s, rq->se, &rq->head);
        return;
    }
    x->pin = msg.pin;
    work_go_on(&x->call, unpin_go_on);
}

/* ---- quotas ---- */

static const char *quota_detail(int err)
{
    switch (err) {
    case KVC_E_LIMIT:
        return "too many quotas";
    case KVC_E_NO_NAMESPACE:
        return "ns: there is no such namespace";
    case KVC_E_BUSY:
        return "a quota that was removed is not empty yet; try again";
    default:
        return NULL;
    }
}

#define QUOTA_WHY_BYTES 256u

/* The error if a quota's shares guarantee more than the tier has; NULL: none. Shares set before the
 * tier became this small (a path is out, a new configuration) may stay, but not grow. */
static const char *share_fault(struct core *c, const struct core_quota *quota,
                               char why[QUOTA_WHY_BYTES])
{
    for (unsigned t = 0; t < RETAIN_TIERS; t++) {
        char sum[UNITS_TEXT_BYTES], there[UNITS_TEXT_BYTES];
        const uint64_t limit = core_tier_shareable(c, t);
        const uint64_t with = core_quota_promised(c, t, quota);
        if (with <= limit || with <= core_quota_promised(c, t, NULL))
            continue;
        (void)snprintf(why, QUOTA_WHY_BYTES,
                       "%s_share: all shares together would be %s (%llu bytes), and of %s %s "
                       "(%llu bytes) can be guaranteed; give less, or take from another's "
                       "(kvcachectl quota show)",
                       t == 0 ? "host" : "nvme", units_format_bytes(with, sum),
                       (unsigned long long)with, t == 0 ? "host memory" : "storage",
                       units_format_bytes(limit, there), (unsigned long long)limit);
        return why;
    }
    return NULL;
}

static void tell_fill(const struct core_ns_view *v, const struct core_share_risk *risk)
{
    char block[UNITS_TEXT_BYTES], fill[UNITS_TEXT_BYTES], limit[UNITS_TEXT_BYTES],
        chunk[UNITS_TEXT_BYTES];
    uint64_t better = 1;
    while (better < (uint64_t)risk->large * FILL_BLOCKS)
        better *= 2;
    LOG_WARN_RATELIMITED(1,
                         "namespace %u (%s): blocks of %s fill at most %s of host.limit's %s, for "
                         "each chunk has room for a few and a rest that none fits in; set "
                         "host.chunk to %s, or make the blocks smaller",
                         v->id, v->spec->model, units_format_bytes(risk->large, block),
                         units_format_bytes(risk->fill, fill),
                         units_format_bytes(risk->limit, limit), units_format_bytes(better, chunk));
}

void svc__tell_shares(struct svc *s, const struct core_ns *ns)
{
    struct core_share_risk risk;
    struct core_ns_view v;
    core_share_risk(s->core, ns, &risk);
    core_ns_view(ns, &v);
    if (risk.fill < risk.limit - risk.limit / FILL_SHARE)
        tell_fill(&v, &risk);
    if (risk.chunks_needed > risk.chunks)
        LOG_WARN_RATELIMITED(1,
                             "quotas: with blocks as large as those of namespace %u (%s), host "
                             "shares need %llu chunks of host memory, and there are %llu: others' "
                             "leases may keep a part of them; set a larger host.chunk, or a "
                             "smaller host_share",
                             v.id, v.spec->model, (unsigned long long)risk.chunks_needed,
                             (unsigned long long)risk.chunks);
    if (risk.mixed)
        LOG_WARN_RATELIMITED(
            1,
            "quotas: namespace %u (%s) has blocks of other sizes than another "
            "owner's of the same principal, and a host_share is guaranteed to one "
            "of the two: leases of the other may keep all of it but what is stored "
            "there already; give the one with the share a principal of its own",
            v.id, v.spec->model);
}

void op_quota_set(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_quota_set msg;
    int err = codec_dec_quota_set(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        keep_fail(rq, err, rq->head.detail);
        return;
    }
    if (svc__denied(rq))
        return;
    char tenant[KVC_STRING_MAX], sub[KVC_STRING_MAX];
    const struct core_quota quota = {
        .scope = msg.scope,
        .tenant = svc__text(tenant, msg.tenant),
        .sub = svc__text(sub, msg.sub),
        .ns = msg.ns,
        .bytes = {.limit = {msg.host_limit, msg.nvme_limit},
                  .share = {msg.host_share, msg.nvme_share}},
    };
    char text[QUOTA_WHY_BYTES];
    const char *why = share_fault(s->core, &quota, text);
    if (why) {
        keep_fail(rq, KVC_E_BAD_ARGUMENT, why);
        return;
    }
    err = core_quota_set(s->core, &quota);
    if (err) {
        keep_fail(rq, err, quota_detail(err));
        return;
    }
    audit_quota(rq->se, &quota);
    if (quota.scope == KVC_SCOPE_NS && quota.bytes.share[0] > 0) {
        const struct core_ns *ns = core_ns_next(s->core, rq->se->client, quota.ns - 1);
        MUST(ns != NULL); /* core_quota_set() has found it */
        svc__tell_shares(s, ns);
    }
    keep_answer(rq, codec_enc_bare_reply(s->out, sizeof s->out, &rq->head));
}

/* ---- policy ---- */

/* Whether the request asks for another policy than the one of this run. */
static bool other_policy(const struct svc *s, const struct msg_policy *msg)
{
    const char *name = core_policy(s->core)->name;
    return msg->name.n > 0 &&
           (msg->name.n != strlen(name) || memcmp(msg->name.p, name, msg->name.n) != 0);
}

/* Fills in figures that show what other principals do: for administrators only. */
static void tell_learned(const struct svc *s, const struct core_policy_view *v,
                         struct msg_policy_reply *reply)
{
    const struct core_metrics *m = core_metrics(s->core);
    if (s->ports.writes) {
        struct kvc_writes writes;
        s->ports.writes(s->ports.ctx, &writes);
        reply->writes_per_day = writes.per_day_bytes;
        reply->spent_bytes = writes.spent_bytes;
        reply->left_bytes = writes.left_bytes;
    }
    reply->all = 1;
    reply->load_bytes_per_s = v->disk_bytes_per_s;
    reply->load_latency_us = v->disk_latency_ns / 1000;
    reply->hints_ended = v->hinted[POLICY_ADVICE_ENDED];
    reply->hints_continue = v->hinted[POLICY_ADVICE_CONTINUE];
    reply->hints_soon = v->hinted[POLICY_ADVICE_SOON];
    reply->hints_scan = v->hinted[POLICY_ADVICE_SCAN];
    reply->wishes = m->wishes;
    reply->wishes_ended = m->wishes_ended;
    for (uint32_t i = 0; i <= RETAIN_MAX; i++)
        if (v->level_blocks[i])
            reply->levels[reply->nlevels++] =
                (struct msg_level_item){.priority = i, .blocks = v->level_blocks[i]};
}

static void tell_policy(const struct svc *s, bool all, struct msg_policy_reply *reply)
{
    const struct policy_ops *ops = core_policy(s->core);
    struct core_policy_view v;
    core_policy_view(s->core, &v);
    *reply = (struct msg_policy_reply){.name = codec_text(ops->name),
                                       .text = codec_text(ops->help),
                                       .chosen = codec_text(s->cfg.policy_chosen),
                                       .keep_percent = v.now.keep_percent,
                                       .load_or_recompute = v.now.load_or_recompute,
                                       .admission = v.now.admission,
                                       .pin_bytes_max = v.now.pin_bytes_max,
                                       .keep_percent_start = v.start.keep_percent,
                                       .load_or_recompute_start = v.start.load_or_recompute,
                                       .admission_start = v.start.admission,
                                       .pin_bytes_max_start = v.start.pin_bytes_max,
                                       .storage = s->ports.path != NULL,
                                       .hints = v.hints,
                                       .admits = v.admits,
                                       .pins = v.pins};
    if (all)
        tell_learned(s, &v, reply);
}

void op_policy(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_policy msg;
    struct msg_policy_reply reply;
    int err = codec_dec_policy(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        keep_fail(rq, err, rq->head.detail);
        return;
    }
    if (msg.action == KVC_POLICY_SET && svc__denied(rq))
        return;
    if (msg.action == KVC_POLICY_SET && other_policy(s, &msg)) {
        keep_fail(rq, KVC_E_BAD_ARGUMENT,
                  "name: another policy takes a restart (policy.eviction in the configuration)");
        return;
    }
    if (msg.action == KVC_POLICY_SET) {
        core_keep_percent(s->core, msg.keep_percent);
        core_load_or_recompute(s->core, msg.load_or_recompute);
        core_admission(s->core, msg.admission);
        core_pin_budget(s->core, msg.pin_bytes_max);
        audit(rq->se,
              "policy: keep %u %%, load or recompute %u, admission %u, pin limit %llu bytes",
              (unsigned)msg.keep_percent, (unsigned)msg.load_or_recompute, (unsigned)msg.admission,
              (unsigned long long)msg.pin_bytes_max);
    }
    tell_policy(s, rq->se->principal->admin, &reply);
    keep_answer(rq, codec_enc_policy_reply(s->out, sizeof s->out, &rq->head, &reply));
}
