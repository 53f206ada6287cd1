/* SPDX-License-Identifier: Apache-2.0 */
/* BLOCKS: what is cached, block by block. */
#include "svc__.h"

static void put_walked(void *ctx, const struct core_walked *w)
{
    struct msg_blocks_reply *reply = ctx;
    MUST(reply->nitems < KVC_BLOCKS_MAX);
    struct msg_block_item *item = &reply->items[reply->nitems++];
    *item = (struct msg_block_item){
        .parent = {w->parent ? w->parent->b : NULL, w->parent ? KVC_KEY_BYTES : 0},
        .depth = w->depth,
        .state = w->x.state,
        .tokens = w->x.tokens,
        .shards = w->x.shards,
        .shards_present = w->x.shards_present,
        .leases = w->x.leases,
        .children = w->x.children,
        .bytes = w->x.bytes,
        .age_ms = w->x.age_ms,
        .tier = w->x.state == KVC_BLOCK_PRESENT ? KVC_TIER_HOST : KVC_TIER_NONE,
        .chunk = w->x.view.chunk,
        .off = w->x.view.off};
    memcpy(item->key, w->key->b, sizeof item->key);
}

static const char *walk_detail(int err)
{
    switch (err) {
    case KVC_E_NO_NAMESPACE:
        return "there is no such namespace";
    case KVC_E_BAD_ARGUMENT:
        return "group: no such group in the namespace";
    case KVC_E_GONE:
        return "the block at which the walk stood is gone; start again";
    default:
        return NULL;
    }
}

void op_blocks(struct request *rq)
{
    struct svc *s = rq->s;
    struct msg_blocks msg;
    struct msg_blocks_reply reply;
    int err = codec_dec_blocks(rq->buf, rq->len, &rq->head, &msg);
    const char *why = err ? rq->head.detail : NULL;
    reply.nitems = 0;
    if (!err) {
        struct core_walk walk = {.ns = msg.ns,
                                 .group = msg.group,
                                 .mode = msg.mode,
                                 .key = msg.key.p,
                                 .depth = msg.depth,
                                 .limit = msg.limit,
                                 .cursor = msg.cursor};
        err = core_walk(s->core, rq->se->client, &walk, put_walked, &reply, &reply.cursor);
        why = walk_detail(err);
    }
    if (err) {
        reply_error(s, rq->se, &rq->head, err, why);
        return;
    }
    s->m.replies_ok++;
    reply_send(s, rq->se, codec_enc_blocks_reply(s->out, sizeof s->out, &rq->head, &reply));
}
