/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handlers of TRACE and TRACE_DUMP, and what other handlers record while a trace is on: a ring of
 * requests with their keys and hits, which kvcachebench replays.
 */
#include <stdlib.h>

#include "ring.h"
#include "svc__.h"
#include "sys.h"

/* Ids in one reply to TRACE_DUMP: 2 MiB of them, or one record. */
#define DUMP_IDS (8u * KVC_KEYS_MAX)

_Static_assert(KVC_TRACE_BYTES_MIN == RING_BYTES_MIN && KVC_TRACE_BYTES_MAX == RING_BYTES_MAX,
               "the limits that clients are told");

struct trace {
    struct ring *ring;
    uint32_t ns; /* the id of the namespace that is recorded; 0: all */
};

void trace_destroy(struct svc *s)
{
    if (s->trace)
        ring_destroy(&s->trace->ring);
    free(s->trace);
    s->trace = NULL;
}

static struct ring_chain trace_chain_of(const struct session *se, const struct core_ns *ns)
{
    struct core_ns_view v;
    core_ns_view(ns, &v);
    return (struct ring_chain){
        .ns = v.id, .session = se->serial, .block_tokens = v.spec->group[0].block_tokens};
}

static bool recorded(const struct svc *s, const struct ring_chain *chain)
{
    return !s->trace->ns || s->trace->ns == chain->ns;
}

void trace__asked(struct svc *s, const struct session *se, const struct core_seq *seq)
{
    struct ring_chain chain = trace_chain_of(se, seq->ns);
    if (!recorded(s, &chain))
        return;
    chain.tokens = seq->tokens;
    chain.keys = seq->keys[0];
    chain.n = seq->n[0];
    ring_asked(s->trace->ring, &chain, s->now_ns);
}

void trace__stored(struct svc *s, const struct session *se, const struct core_reserve *in)
{
    struct ring_chain chain = trace_chain_of(se, in->ns);
    if (in->group != 0 || !recorded(s, &chain))
        return;
    uint32_t last = in->last_tokens ? in->last_tokens : chain.block_tokens;
    chain.first_token = in->first_token;
    chain.tokens = (in->n - 1) * chain.block_tokens + last;
    chain.parent = in->parent;
    chain.keys = in->keys;
    chain.n = in->n;
    ring_stored(s->trace->ring, &chain);
}

/* ---- TRACE ---- */

static int trace_on(struct svc *s, struct session *se, const struct msg_trace *msg,
                    const char **ret_why)
{
    if (s->trace) {
        *ret_why = "a trace is being recorded already; end that first";
        return KVC_E_EXISTS;
    }
    uint64_t bytes = msg->bytes ? msg->bytes : RING_BYTES_DEFAULT;
    s->trace = sys_calloc(1, sizeof *s->trace);
    if (!s->trace)
        return -ENOMEM;
    int err = ring_create(bytes, s->now_ns, &s->trace->ring);
    if (err) {
        trace_destroy(s);
        return err;
    }
    s->trace->ns = msg->ns;
    audit(se, "trace: on, in %llu KiB of memory beside memory.budget",
          (unsigned long long)(bytes >> 10));
    return 0;
}

static void trace_off(struct svc *s, struct session *se)
{
    if (!s->trace)
        return;
    trace_destroy(s);
    audit(se, "trace: off");
}

static struct msg_trace_reply state_of(const struct svc *s)
{
    struct ring_state st;
    if (!s->trace)
        return (struct msg_trace_reply){.on = 0};
    ring_state(s->trace->ring, &st);
    return (struct msg_trace_reply){.on = 1,
                                    .ns = s->trace->ns,
                                    .bytes = st.bytes,
                                    .used_bytes = st.used_bytes,
                                    .records = st.end - st.first,
                                    .dropped = st.first,
                                    .age_ms = (s->now_ns - st.begun_ns) / 1000000};
}

void op_trace(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_trace msg;
    int err = codec_dec_trace(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err && svc__denied(rq))
        return;
    if (!err && msg.ns && !core_ns_exists(s->core, rq->se->client, msg.ns)) {
        err = KVC_E_NO_NAMESPACE;
        why = "there is no such namespace";
    }
    if (!err && msg.action == KVC_TRACE_ON)
        err = trace_on(s, rq->se, &msg, &why);
    struct msg_trace_reply reply = state_of(s);
    if (!err && msg.action == KVC_TRACE_OFF) /* after state_of(): the reply has the last state */
        trace_off(s, rq->se);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_trace_reply(s->out, sizeof s->out, &rq->head, &reply));
}

/* ---- TRACE_DUMP ---- */

/* Fills the reply with records from the cursor on. Records of other namespaces are skipped. */
static void fill_dump(const struct svc *s, const struct msg_trace_dump *msg,
                      struct msg_trace_dump_reply *reply)
{
    struct ring_state st;
    ring_state(s->trace->ring, &st);
    uint64_t no = msg->cursor ? msg->cursor - 1 : st.first, ids = 0;
    reply->lost = no < st.first ? st.first - no : 0;
    no = MAX(no, st.first);
    reply->nitems = 0;
    for (uint32_t steps = 0; no < st.end && steps < KVC_TRACE_MAX; no++, steps++) {
        struct ring_record rec;
        ring_at(s->trace->ring, no, &rec);
        if (msg->ns && rec.ns != msg->ns)
            continue;
        if (reply->nitems > 0 && ids + rec.n > DUMP_IDS)
            break;
        ids += rec.n;
        reply->items[reply->nitems++] = (struct msg_trace_item){
            .ns = rec.ns,
            .block_tokens = rec.block_tokens,
            .timestamp_ms = rec.timestamp_ms,
            .input_tokens = rec.input_tokens,
            .output_tokens = rec.output_tokens,
            .ids = {(const uint8_t *)rec.ids, rec.n * (uint32_t)sizeof(uint64_t)}};
    }
    reply->cursor = no < st.end ? no + 1 : 0;
}

void op_trace_dump(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_trace_dump msg;
    struct msg_trace_dump_reply reply;
    int err = codec_dec_trace_dump(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    if (!err && svc__denied(rq))
        return;
    if (!err && !s->trace) {
        err = KVC_E_GONE;
        why = "no trace is being recorded";
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    fill_dump(s, &msg, &reply);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_trace_dump_reply(s->out, sizeof s->out, &rq->head, &reply));
}
