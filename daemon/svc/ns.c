/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of NS_OPEN and NS_SPEC: a worker states what its KV depends on, and gets a namespace. */
#include "svc__.h"

static bool copy_text(char *to, size_t cap, struct codec_bin from)
{
    if (from.n >= cap || (from.n && memchr(from.p, 0, from.n)))
        return false;
    if (from.n)
        memcpy(to, from.p, from.n);
    to[from.n] = 0;
    return true;
}

static int spec_of(const struct msg_ns_open *msg, struct core_ns_spec *spec, const char **ret_why)
{
    *spec = (struct core_ns_spec){.layers = msg->layers,
                                  .kv_heads = msg->kv_heads,
                                  .head_size = msg->head_size,
                                  .shards = msg->shards,
                                  .flags = msg->flags,
                                  .prefill_ns_per_token = msg->prefill_ns_per_token,
                                  .prefill_ns_per_token_pair = msg->prefill_ns_per_token_pair,
                                  .ngroups = msg->ngroups};
#define TEXT(name)                                                \
    if (!copy_text(spec->name, sizeof spec->name, msg->name)) {   \
        *ret_why = #name ": too long, or with a zero byte in it"; \
        err = KVC_E_BAD_ARGUMENT;                                 \
    }
    int err = 0;
    TEXT(model)
    TEXT(revision)
    TEXT(dtype)
    TEXT(quant)
    TEXT(layout)
    TEXT(position)
    TEXT(position_params)
    TEXT(attention)
    TEXT(lora)
    TEXT(extra)
    TEXT(sub)
#undef TEXT
    for (uint32_t g = 0; g < msg->ngroups; g++)
        spec->group[g] = (struct core_group){.block_tokens = msg->groups[g].block_tokens,
                                             .block_bytes = msg->groups[g].block_bytes,
                                             .rule = msg->groups[g].rule,
                                             .window = msg->groups[g].window,
                                             .flags = msg->groups[g].flags};
    return err;
}

void op_ns_open(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_ns_open msg;
    struct core_ns_spec spec;
    struct core_ns *ns;
    struct core_similar similar[4];
    struct msg_ns_open_reply reply = {0};
    const char *why = NULL;
    int err = codec_dec_ns_open(rq->buf, rq->len, &rq->head, &msg);
    if (err)
        why = rq->head.detail;
    if (!err)
        err = spec_of(&msg, &spec, &why);
    if (!err)
        err = core_ns_open(s->core, rq->se->client, &spec, &ns, similar, &reply.nsimilar, &why);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    session_works(rq->se);
    svc__tell_shares(s, ns);
    struct core_ns_view v;
    core_ns_view(ns, &v);
    reply.ns = v.id;
    memcpy(reply.seed, v.seed->b, sizeof reply.seed);
    for (uint32_t i = 0; i < reply.nsimilar; i++)
        reply.similar[i] = (struct msg_similar){.ns = similar[i].ns, .fields = similar[i].fields};
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_ns_open_reply(s->out, sizeof s->out, &rq->head, &reply));
}

/* ---- NS_SPEC ---- */

static void to_msg(const struct core_ns_spec *spec, struct msg_ns_open *ret_msg)
{
    *ret_msg = (struct msg_ns_open){.model = codec_text(spec->model),
                                    .revision = codec_text(spec->revision),
                                    .dtype = codec_text(spec->dtype),
                                    .quant = codec_text(spec->quant),
                                    .layout = codec_text(spec->layout),
                                    .position = codec_text(spec->position),
                                    .position_params = codec_text(spec->position_params),
                                    .attention = codec_text(spec->attention),
                                    .lora = codec_text(spec->lora),
                                    .extra = codec_text(spec->extra),
                                    .sub = codec_text(spec->sub),
                                    .layers = spec->layers,
                                    .kv_heads = spec->kv_heads,
                                    .head_size = spec->head_size,
                                    .shards = spec->shards,
                                    .flags = spec->flags,
                                    .prefill_ns_per_token = spec->prefill_ns_per_token,
                                    .prefill_ns_per_token_pair = spec->prefill_ns_per_token_pair,
                                    .ngroups = spec->ngroups};
    for (uint32_t g = 0; g < spec->ngroups; g++)
        ret_msg->groups[g] = (struct msg_group){.block_tokens = spec->group[g].block_tokens,
                                                .block_bytes = spec->group[g].block_bytes,
                                                .rule = spec->group[g].rule,
                                                .window = spec->group[g].window,
                                                .flags = spec->group[g].flags};
}

void op_ns_spec(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_ns_spec msg;
    const int err = codec_dec_ns_spec(rq->buf, rq->len, &rq->head, &msg);
    struct core_ns *ns = !err && msg.ns ? core_ns_next(s->core, rq->se->client, msg.ns - 1) : NULL;
    struct core_ns_view v = {0};
    if (ns)
        core_ns_view(ns, &v);
    if (err || v.id != msg.ns || !ns) {
        reply_error(s, rq->se, &rq->head, err ? err : KVC_E_NO_NAMESPACE,
                    err ? rq->head.detail : "there is no such namespace");
        return;
    }
    const struct svc_principal *me = rq->se->principal;
    struct msg_ns_spec_reply reply = {
        .own = v.principal == (uint32_t)(me - s->cfg.principals) + 1 &&
               strcmp(v.tenant, me->tenant) == 0 && (me->gateway || !v.spec->sub[0])};
    to_msg(v.spec, &reply.spec);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_ns_spec_reply(s->out, sizeof s->out, &rq->head, &reply));
}
