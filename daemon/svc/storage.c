/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handler of DRAIN, which writes to disk what memory alone has; and the check of requests that need
 * a storage tier.
 */
#include "svc__.h"

#define NO_STORAGE "there is no storage tier (nvme.paths)"

const char *svc__durable_fault(const struct svc *s, uint32_t flags)
{
    return (flags & KVC_F_DURABLE) && !s->ports.path
               ? "flags: 32 (durable) needs a storage tier (nvme.paths)"
               : NULL;
}

/* Why a drain will not end by itself. left: what it still has to write; off: the part of that which
 * quotas keep off storage. */
static uint8_t drain_stop(const struct svc *s, uint64_t left, uint64_t off)
{
    struct kvc_path path;
    struct kvc_writes writes;
    uint32_t up = 0;
    for (uint32_t i = 0; s->ports.path(s->ports.ctx, i, &path); i++)
        up += path.state != KVC_PATH_OUT;
    s->ports.writes(s->ports.ctx, &writes);
    if (left == 0)
        return KVC_DRAIN_GOES_ON;
    if (up == 0)
        return KVC_DRAIN_OUT;
    if (writes.per_day_bytes != 0 && writes.left_bytes < left - off)
        return KVC_DRAIN_BUDGET;
    return off > 0 ? KVC_DRAIN_QUOTA : KVC_DRAIN_GOES_ON;
}

void op_drain(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_drain msg;
    int err = codec_dec_drain(rq->buf, rq->len, &rq->head, &msg);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    if (svc__denied(rq))
        return;
    if (!s->ports.path) {
        reply_error(s, rq->se, &rq->head, KVC_E_BAD_ARGUMENT, NO_STORAGE);
        return;
    }
    uint64_t off;
    struct msg_drain_reply reply = {.left = core_drain_disk(s->core, msg.bytes_max, &off)};
    reply.stop = drain_stop(s, reply.left, off);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_drain_reply(s->out, sizeof s->out, &rq->head, &reply));
}
