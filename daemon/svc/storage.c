/* SPDX-License-Identifier: Apache-2.0 */
/* DRAIN, PATHS: the storage tier as operators see it. */
#include "svc__.h"

#define NO_STORAGE "there is no storage tier (nvme.paths)"

const char *svc__durable_fault(const struct svc *s, uint32_t flags)
{
    return (flags & KVC_F_DURABLE) && !s->ports.paths
               ? "flags: 32 (durable) needs a storage tier (nvme.paths)"
               : NULL;
}

/* Why a drain that has `left` to write, `off` of it kept off by quotas, will not get to its end by
 * itself. */
static uint8_t drain_stop(const struct msg_paths_reply *p, uint64_t left, uint64_t off)
{
    uint32_t up = 0;
    for (uint32_t i = 0; i < p->npaths; i++)
        up += p->paths[i].state != KVC_PATH_OUT;
    if (left == 0)
        return KVC_DRAIN_GOES_ON;
    if (up == 0)
        return KVC_DRAIN_OUT;
    if (p->writes_per_day != 0 && p->left_bytes < left - off)
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
    if (!s->ports.paths) {
        reply_error(s, rq->se, &rq->head, KVC_E_BAD_ARGUMENT, NO_STORAGE);
        return;
    }
    uint64_t off;
    struct msg_drain_reply reply = {.left = core_drain_disk(s->core, msg.bytes_max, &off)};
    struct msg_paths_reply paths = {0};
    s->ports.paths(s->ports.ctx, &paths);
    reply.stop = drain_stop(&paths, reply.left, off);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_drain_reply(s->out, sizeof s->out, &rq->head, &reply));
}

void op_paths(struct request *rq)
{
    struct svc *s = rq->s;
    int err = codec_dec_bare(rq->buf, rq->len, &rq->head);
    if (err) {
        reply_error(s, rq->se, &rq->head, err, rq->head.detail);
        return;
    }
    if (svc__denied(rq))
        return;
    struct msg_paths_reply reply = {0};
    if (s->ports.paths)
        s->ports.paths(s->ports.ctx, &reply);
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_paths_reply(s->out, sizeof s->out, &rq->head, &reply));
}
