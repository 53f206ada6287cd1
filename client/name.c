/* SPDX-License-Identifier: Apache-2.0 */
/* Names for conversations and documents. These calls wait for the daemon's reply. */
#include "client.h"

#include <errno.h>
#include <string.h>

/* ---- put ---- */

int kvc_name_put(struct kvc_ns *ns, enum kvc_name_kind kind, const char *name,
                 const struct kvc_seq *seq, const struct kvc_name_options *options,
                 struct kvc_named *ret_named)
{
    static const struct kvc_name_options defaults;
    const struct kvc_name_options *o = options != NULL ? options : &defaults;
    struct kvc *k = ns->kvc;
    struct kvc_op *op;
    int rc = read__check_seq(ns, seq);
    rc = rc < 0 ? rc : op__begin(k, KVC_OP_NAME_PUT, &op);
    if (rc < 0)
        return rc;
    struct msg_name_put m = {.kind = (uint8_t)kind,
                             .name = codec_text(name),
                             .flags = o->flags,
                             .priority = o->priority,
                             .ttl_ms = o->ttl_ms};
    if (o->tokens != NULL) {
        if (seq->tokens > KVC_MESSAGE_MAX / sizeof(*o->tokens)) {
            op__free(op);
            return kvc__fail(k, KVC_E_TOO_LARGE, "%u token ids do not fit one message",
                             seq->tokens);
        }
        m.ids = (struct codec_bin){.p = (const uint8_t *)o->tokens,
                                   .n = seq->tokens * (uint32_t)sizeof(*o->tokens)};
    }
    op->ns = ns;
    read__to_msg(ns, seq, &m.seq);
    struct msg_reply_head head;
    struct msg_name_put_reply r;
    rc = ns__check(ns);
    if (rc == 0)
        rc = op__call(op, codec_enc_name_put(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_name_put_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0 && ret_named != NULL)
        *ret_named = (struct kvc_named){.tokens = r.tokens, .bytes = r.bytes};
    op__free(op);
    return rc;
}

/* ---- list, show ---- */

static enum kvc_table_id table_of(unsigned kind)
{
    return kind == KVC_NAME_DOCUMENT ? KVC_TABLE_DOCUMENTS : KVC_TABLE_CONVERSATIONS;
}

struct walk {
    int (*fn)(void *ctx, const struct kvc_name_info *info);
    void *ctx;
};

static int name_walk_on(void *ctx, const void *row)
{
    const struct walk *w = ctx;
    return w->fn(w->ctx, row);
}

int kvc_name_list(struct kvc *kvc, unsigned kind, const char *prefix, const char *sub,
                  int (*fn)(void *ctx, const struct kvc_name_info *), void *ctx)
{
    const struct kvc_filter filter = {.prefix = prefix, .sub_tenant = sub};
    struct walk walk = {.fn = fn, .ctx = ctx};
    int rc = 0;
    if (kind > KVC_NAME_DOCUMENT)
        return kvc__fail(kvc, -EINVAL, "kind is %u; 0 (both), 1 or 2", kind);
    for (unsigned k = KVC_NAME_CONVERSATION; rc == 0 && k <= KVC_NAME_DOCUMENT; k++)
        if (kind == 0 || kind == k)
            rc = kvc_list(kvc, table_of(k), &filter, name_walk_on, &walk);
    return rc;
}

static int take_one(void *ctx, const void *row)
{
    memcpy(ctx, row, sizeof(struct kvc_name_info));
    return 0;
}

int kvc_name_show(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                  struct kvc_name_info *ret_info)
{
    const struct kvc_filter filter = {.prefix = name, .sub_tenant = sub, .exact = true};
    struct kvc_name_info info = {.kind = 0};
    if (kind != KVC_NAME_CONVERSATION && kind != KVC_NAME_DOCUMENT)
        return kvc__fail(kvc, -EINVAL, "kind is %u; 1 or 2", (unsigned)kind);
    int rc = kvc_list(kvc, table_of(kind), &filter, take_one, &info);
    if (rc == 0 && info.kind == 0)
        rc = kvc__fail(kvc, KVC_E_NO_NAME, "%s", kvc_error_text(KVC_E_NO_NAME));
    if (rc == 0)
        *ret_info = info;
    return rc;
}

/* ---- forget, load, tokens ---- */

static int name_forget(struct kvc *kvc, const struct msg_name_forget *m,
                       struct msg_name_forget_reply *r)
{
    struct kvc_op *op;
    struct msg_reply_head head;
    int rc = op__begin(kvc, KVC_OP_NAME_FORGET, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_name_forget(kvc->tx, KVC_MESSAGE_MAX, &op->head, m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_name_forget_reply(op->msg.data, op->msg.len, &head, r));
    op__free(op);
    return rc;
}

int kvc_name_forget(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                    bool evict)
{
    struct msg_name_forget_reply r;
    const struct msg_name_forget m = {
        .kind = (uint8_t)kind, .name = codec_text(name), .sub = codec_text(sub), .evict = evict};
    return name_forget(kvc, &m, &r);
}

int kvc_name_evict_kept(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                        bool dry_run, struct kvc_evicted *ret_evicted, struct kvc_kept *ret_kept)
{
    struct msg_name_forget_reply r;
    const struct msg_name_forget m = {.kind = (uint8_t)kind,
                                      .name = codec_text(name),
                                      .sub = codec_text(sub),
                                      .evict = 1,
                                      .dry_run = dry_run};
    const int rc = name_forget(kvc, &m, &r);
    if (rc < 0)
        return rc;
    *ret_evicted = (struct kvc_evicted){.blocks = r.blocks,
                                        .bytes = r.bytes,
                                        .kept_blocks = r.kept_blocks,
                                        .host_bytes = r.host_bytes,
                                        .nvme_bytes = r.nvme_bytes,
                                        .device_bytes = r.device_bytes};
    *ret_kept = (struct kvc_kept){.named = r.kept_named,
                                  .pinned = r.kept_pinned,
                                  .used = r.kept_used,
                                  .below = r.kept_below,
                                  .passed = r.kept_passed};
    return rc;
}

int kvc_name_evict(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                   bool dry_run, struct kvc_evicted *ret_evicted)
{
    struct kvc_kept kept;
    return kvc_name_evict_kept(kvc, kind, name, sub, dry_run, ret_evicted, &kept);
}

int kvc_name_load(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                  uint64_t ttl_ms, bool wait, uint32_t timeout_ms, uint64_t *ret_bytes)
{
    struct kvc_op *op;
    struct msg_reply_head head;
    struct msg_name_load_reply r;
    int rc = op__begin_within(kvc, KVC_OP_NAME_LOAD, timeout_ms, &op);
    if (rc < 0)
        return rc;
    struct msg_name_load m = {.kind = (uint8_t)kind,
                              .name = codec_text(name),
                              .sub = codec_text(sub),
                              .ttl_ms = ttl_ms,
                              .flags = wait ? KVC_F_WAIT : 0};
    rc = op__call(op, codec_enc_name_load(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_name_load_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0 && ret_bytes != NULL)
        *ret_bytes = r.bytes;
    op__free(op);
    return rc;
}

/* Reads ids from m->first on, as many as one reply has. Returns their number; 0 at the end. */
static int tokens_piece(struct kvc *k, const struct msg_name_tokens *m, uint32_t *tokens,
                        uint32_t max)
{
    struct kvc_op *op;
    struct msg_reply_head head;
    struct msg_name_tokens_reply r;
    int rc = op__begin(k, KVC_OP_NAME_TOKENS, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_name_tokens(k->tx, KVC_MESSAGE_MAX, &op->head, m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_name_tokens_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0) {
        const uint32_t n = r.ids.n / (uint32_t)sizeof(*tokens);
        rc = (int)(n < max ? n : max);
        if (rc > 0)
            memcpy(tokens, r.ids.p, (size_t)rc * sizeof(*tokens));
    }
    op__free(op);
    return rc;
}

int kvc_name_tokens(struct kvc *kvc, enum kvc_name_kind kind, const char *name, const char *sub,
                    uint32_t first, uint32_t *tokens, uint32_t max)
{
    struct msg_name_tokens m = {
        .kind = (uint8_t)kind, .name = codec_text(name), .sub = codec_text(sub), .first = first};
    uint32_t n = 0;
    max = max < INT32_MAX ? max : INT32_MAX;
    for (int rc = 1; rc > 0 && n < max; n += (uint32_t)rc) {
        m.first = first + n;
        rc = tokens_piece(kvc, &m, tokens + n, max - n);
        if (rc < 0)
            return rc;
    }
    return (int)n;
}
