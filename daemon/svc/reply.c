/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends replies, the last step of each request; and the one mapping from return values to wire
 * statuses.
 */
#include "svc__.h"

uint16_t status_of(int err)
{
    if (err <= KVC_E_BAD_MESSAGE && err > -1000 - KVC_ST_COUNT)
        return (uint16_t)(-err - 1000);
    switch (err) {
    case KVC_E_NO_ROOM:
        return KVC_ST_FULL;
    case -EINVAL:
        return KVC_ST_BAD_ARGUMENT;
    case -EACCES:
    case -EPERM:
        return KVC_ST_DENIED;
    case -ETIMEDOUT:
        return KVC_ST_TIMEOUT;
    case -ECANCELED:
        return KVC_ST_CANCELLED;
    case -EAGAIN:
    case -ENOMEM:
    case -EMFILE:
    case -ENFILE:
        return KVC_ST_BUSY;
    case -EIO:
        return KVC_ST_TIER;
    default:
        return KVC_ST_INTERNAL;
    }
}

const char *ns_detail(int err)
{
    return err == KVC_E_DENIED
               ? "only a gateway session may name a sub-tenant (principals: gateway: true)"
               : NULL;
}

static void send_out(struct svc *s, struct session *se, int len)
{
    MUST(len > 0);
    /* After a reply was lost no other may arrive: a client that gets the reply to a CANCEL assumes
     * that the request's own reply came before. */
    int err =
        se->unreachable ? -EPIPE : s->ports.reply(s->ports.ctx, se->route, s->out, (size_t)len);
    if (!err)
        return;
    se->unreachable = true;
    s->m.replies_lost++;
    session_close_soon(se, KVC_ST_LIMIT, "the session does not take its replies");
}

void reply_send(struct svc *s, struct session *se, int len)
{
    send_out(s, se, len);
    reply_owed(s, se);
}

void reply_owed(struct svc *s, struct session *se)
{
    wheel_del(&s->wheel, &se->owed.pay);
    for (uint32_t i = 0; i < se->owed.n; i++) {
        const struct msg_head head = {.op = KVC_OP_RELEASE, .corr = se->owed.reply[i].corr};
        const struct msg_release_reply reply = {.released = se->owed.reply[i].released};
        send_out(s, se, codec_enc_release_reply(s->out, sizeof s->out, &head, &reply));
    }
    se->owed.n = 0;
}

void reply_forget(struct svc *s, struct session *se)
{
    wheel_del(&s->wheel, &se->owed.pay);
    se->owed.n = 0;
}

static void pay(void *ctx, uint64_t now_ns)
{
    struct session *se = ctx;
    (void)now_ns;
    reply_owed(se->svc, se);
}

/* A separate message would wake threads on both sides, and libkvcache does not wait for the reply
 * to a RELEASE. So while another request of the session is in flight, the reply is sent together
 * with that request's. */
void reply_released(struct svc *s, struct session *se, const struct msg_head *head,
                    uint32_t released)
{
    s->m.replies_ok++;
    se->owed.reply[se->owed.n++] = (struct owed){.corr = head->corr, .released = released};
    if (s->stopping || se->inflight == 0 || se->owed.n == SVC_OWED_MAX ||
        (head->deadline_ms != 0 && head->deadline_ms * UINT64_C(1000000) <= 2 * SVC_RELEASE_NS)) {
        reply_owed(s, se);
    } else if (!wheel_armed(&se->owed.pay)) {
        se->owed.pay.fn = pay;
        se->owed.pay.ctx = se;
        wheel_add(&s->wheel, &se->owed.pay, s->now_ns + SVC_RELEASE_NS);
    }
}

void reply_error(struct svc *s, struct session *se, const struct msg_head *head, int err,
                 const char *detail)
{
    uint16_t status = status_of(err);
    s->m.replies_error++;
    if (status == KVC_ST_TIMEOUT)
        s->m.replies_timeout++;
    if (!detail)
        detail = codec_status_text(status);
    reply_send(s, se, codec_enc_error(s->out, sizeof s->out, head, status, detail));
}
