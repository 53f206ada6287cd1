/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for operators and tools (kvcache/admin.h): statistics, explanations of a miss, walks over
 * blocks, verification, traces, the end of a session. Also the start of every op without blocks:
 * op__begin().
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#include "sys.h"

int op__begin_within(struct kvc *k, uint8_t code, uint32_t timeout_ms, struct kvc_op **ret_op)
{
    if (timeout_ms > KVC_DEADLINE_MAX_MS) {
        kvc__fail(k, -EINVAL, "timeout_ms is %u; at most %u", timeout_ms, KVC_DEADLINE_MAX_MS);
        return -EINVAL;
    }
    const uint64_t deadline = kvc__deadline(k, timeout_ms);
    int rc = kvc__enter(k, deadline);
    return rc < 0 ? rc : op__new(k, code, deadline, ret_op);
}

int op__begin(struct kvc *k, uint8_t code, struct kvc_op **ret_op)
{
    return op__begin_within(k, code, 0, ret_op);
}

void kvc__copy_text(char *to, size_t cap, const struct codec_bin *from)
{
    size_t n = from->n < cap ? from->n : cap - 1;
    if (n > 0)
        memcpy(to, from->p, n);
    to[n] = '\0';
}

void kvc__copy_string(char to[KVC_STRING_MAX], const struct codec_bin *from)
{
    kvc__copy_text(to, KVC_STRING_MAX, from);
}

/* ---- stats ---- */

static int walk_stats(struct kvc_op *op, int (*fn)(void *ctx, const struct kvc_stat *), void *ctx)
{
    struct msg_reply_head head;
    struct codec_iter it;
    struct msg_stat item;
    int rc = op__checked(op, codec_iter_begin(op->msg.data, op->msg.len, &head, &it));
    if (rc < 0)
        return rc;
    while ((rc = codec_iter_stat(&it, &item)) > 0) {
        struct kvc_stat s = {.gauge = item.kind != 0, .value = item.value};
        uint32_t n = item.name.n < sizeof(s.name) ? item.name.n : (uint32_t)sizeof(s.name) - 1;
        if (n > 0)
            memcpy(s.name, item.name.p, n);
        int ended = fn(ctx, &s);
        if (ended != 0)
            return ended;
    }
    rc = op__checked(op, rc);
    if (rc == 0 && it.more)
        rc = kvc__fail(op->kvc, KVC_E_TOO_LARGE,
                       "the daemon has more statistics than fit a message");
    return rc;
}

int kvc_stats(struct kvc *kvc, int (*fn)(void *ctx, const struct kvc_stat *), void *ctx)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_STATS, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_bare(kvc->tx, KVC_MESSAGE_MAX, &op->head));
    if (rc == 0)
        rc = walk_stats(op, fn, ctx);
    op__free(op);
    return rc;
}

/* ---- one namespace ---- */

static const char *keep_text(char **at, const struct codec_bin *from)
{
    char *text = *at;
    kvc__copy_text(text, from->n + 1, from);
    *at += from->n + 1;
    return text;
}

/* One piece of memory: the struct, and its texts behind it. */
static struct kvc_ns_spec *to_spec(const struct msg_ns_open *m)
{
    const size_t texts = m->model.n + m->revision.n + m->dtype.n + m->quant.n + m->layout.n +
                         m->position.n + m->position_params.n + m->attention.n + m->lora.n +
                         m->extra.n + m->sub.n + 11;
    struct kvc_ns_spec *s = sys_calloc(1, sizeof(*s) + texts);
    if (s == NULL)
        return NULL;
    char *at = (char *)(s + 1);
    *s = (struct kvc_ns_spec){.model = keep_text(&at, &m->model),
                              .revision = keep_text(&at, &m->revision),
                              .dtype = keep_text(&at, &m->dtype),
                              .quant = keep_text(&at, &m->quant),
                              .layout = keep_text(&at, &m->layout),
                              .position = keep_text(&at, &m->position),
                              .position_params = keep_text(&at, &m->position_params),
                              .attention = keep_text(&at, &m->attention),
                              .lora = keep_text(&at, &m->lora),
                              .extra = keep_text(&at, &m->extra),
                              .sub_tenant = keep_text(&at, &m->sub),
                              .layers = m->layers,
                              .kv_heads = m->kv_heads,
                              .head_size = m->head_size,
                              .shards = m->shards,
                              .with_tokens = (m->flags & KVC_F_TOKENS) != 0,
                              .prefill_ns_per_token = m->prefill_ns_per_token,
                              .prefill_ns_per_token_pair = m->prefill_ns_per_token_pair,
                              .groups = m->ngroups};
    for (uint32_t i = 0; i < m->ngroups; i++)
        s->group[i] =
            (struct kvc_group_spec){.block_tokens = m->groups[i].block_tokens,
                                    .block_bytes = m->groups[i].block_bytes,
                                    .rule = (enum kvc_rule)m->groups[i].rule,
                                    .window = m->groups[i].window,
                                    .replicated = (m->groups[i].flags & KVC_F_REPLICATED) != 0};
    return s;
}

int kvc_ns_spec_of(struct kvc *kvc, uint32_t ns, struct kvc_ns_spec **ret_spec, bool *ret_own)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_NS_SPEC, &op);
    if (rc < 0)
        return rc;
    const struct msg_ns_spec m = {.ns = ns};
    struct msg_reply_head head;
    struct msg_ns_spec_reply reply;
    rc = op__call(op, codec_enc_ns_spec(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_ns_spec_reply(op->msg.data, op->msg.len, &head, &reply));
    struct kvc_ns_spec *spec = rc == 0 ? to_spec(&reply.spec) : NULL;
    if (rc == 0 && spec == NULL)
        rc = kvc__fail(kvc, -ENOMEM, "out of memory");
    if (rc == 0) {
        *ret_spec = spec;
        if (ret_own != NULL)
            *ret_own = reply.own != 0;
    }
    op__free(op);
    return rc;
}

/* ---- verify ---- */

static void take_verified(const struct msg_verify_reply *r, struct kvc_verified *v)
{
    *v = (struct kvc_verified){.cursor = r->cursor,
                               .bytes = r->bytes,
                               .blocks = r->blocks,
                               .skipped = r->skipped,
                               .failed = r->failed,
                               .corrupt = r->ncorrupt};
    for (uint32_t i = 0; i < r->ncorrupt; i++) {
        const struct msg_corrupt_item *x = &r->corrupt[i];
        v->found[i] = (struct kvc_corrupt){.ns = x->ns,
                                           .group = x->group,
                                           .shard = x->shard,
                                           .chunk = x->chunk,
                                           .below = x->below,
                                           .tier = x->tier,
                                           .off = x->off};
        memcpy(v->found[i].key, x->key, sizeof(x->key));
    }
}

int kvc_verify_slice(struct kvc *kvc, const struct kvc_verify *verify,
                     struct kvc_verified *ret_verified)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_VERIFY, &op);
    if (rc < 0)
        return rc;
    struct msg_verify m = {.ns = verify->ns,
                           .tier = (uint8_t)verify->tier,
                           .cursor = verify->cursor,
                           .bytes_max = verify->bytes_max};
    struct msg_reply_head head;
    struct msg_verify_reply reply;
    rc = op__call(op, codec_enc_verify(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_verify_reply(op->msg.data, op->msg.len, &head, &reply));
    if (rc == 0)
        take_verified(&reply, ret_verified);
    op__free(op);
    return rc;
}

/* ---- trace ---- */

int kvc_trace(struct kvc *kvc, enum kvc_trace_action action, uint32_t ns, uint64_t bytes,
              struct kvc_trace_state *ret_state)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_TRACE, &op);
    if (rc < 0)
        return rc;
    struct msg_trace m = {.action = (uint8_t)action, .ns = ns, .bytes = bytes};
    struct msg_reply_head head;
    struct msg_trace_reply r;
    rc = op__call(op, codec_enc_trace(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_trace_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0)
        *ret_state = (struct kvc_trace_state){.on = r.on != 0,
                                              .ns = r.ns,
                                              .bytes = r.bytes,
                                              .used_bytes = r.used_bytes,
                                              .records = r.records,
                                              .dropped = r.dropped,
                                              .age_ms = r.age_ms};
    op__free(op);
    return rc;
}

static int dump_piece(const struct msg_trace_dump_reply *piece,
                      int (*fn)(void *ctx, const struct kvc_trace_record *), void *ctx)
{
    for (uint32_t i = 0; i < piece->nitems; i++) {
        const struct msg_trace_item *x = &piece->items[i];
        struct kvc_trace_record out = {.ns = x->ns,
                                       .block_tokens = x->block_tokens,
                                       .input_tokens = x->input_tokens,
                                       .output_tokens = x->output_tokens,
                                       .timestamp_ms = x->timestamp_ms,
                                       .n = x->ids.n / (uint32_t)sizeof(uint64_t),
                                       .ids = x->ids.p};
        int ended = fn(ctx, &out);
        if (ended != 0)
            return ended;
    }
    return 0;
}

int kvc_trace_dump(struct kvc *kvc, uint32_t ns,
                   int (*fn)(void *ctx, const struct kvc_trace_record *), void *ctx,
                   uint64_t *ret_lost)
{
    struct msg_trace_dump m = {.ns = ns};
    struct msg_trace_dump_reply piece = {0};
    struct msg_reply_head head;
    uint64_t lost = 0;
    int rc;
    do {
        struct kvc_op *op;
        rc = op__begin(kvc, KVC_OP_TRACE_DUMP, &op);
        if (rc < 0)
            return rc;
        rc = op__call(op, codec_enc_trace_dump(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
        if (rc == 0)
            rc = op__checked(op,
                             codec_dec_trace_dump_reply(op->msg.data, op->msg.len, &head, &piece));
        if (rc == 0)
            rc = dump_piece(&piece, fn, ctx);
        if (rc == 0 && piece.cursor != 0 && piece.cursor <= m.cursor)
            rc = op__checked(op, KVC_E_BAD_MESSAGE); /* else it might never end */
        op__free(op);
        m.cursor = piece.cursor;
        lost += rc == 0 ? piece.lost : 0;
    } while (rc == 0 && m.cursor != 0);
    if (rc == 0)
        *ret_lost = lost;
    return rc;
}

/* ---- storage ---- */

int kvc_drain(struct kvc *kvc, uint64_t bytes_max, struct kvc_drained *ret_drained)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_DRAIN, &op);
    if (rc < 0)
        return rc;
    struct msg_drain m = {.bytes_max = bytes_max};
    struct msg_reply_head head;
    struct msg_drain_reply r;
    rc = op__call(op, codec_enc_drain(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_drain_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0)
        *ret_drained = (struct kvc_drained){.left = r.left, .stop = r.stop};
    op__free(op);
    return rc;
}

/* ---- evict ---- */

int kvc_evict(struct kvc *kvc, const struct kvc_evict_filter *filter,
              struct kvc_evicted *ret_evicted)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_EVICT, &op);
    if (rc < 0)
        return rc;
    struct msg_evict m = {.flags = (filter->dry_run ? KVC_F_DRY_RUN : 0u) |
                                   (filter->force ? KVC_F_FORCE : 0u),
                          .ns = filter->ns,
                          .key = {.p = filter->key, .n = filter->key != NULL ? KVC_KEY_BYTES : 0},
                          .older_than_ms = filter->older_than_ms,
                          .bytes = filter->bytes,
                          .tenant = codec_text(filter->tenant),
                          .model = codec_text(filter->model),
                          .priority_below = filter->priority_below};
    struct msg_reply_head head;
    struct msg_evict_reply reply;
    rc = op__call(op, codec_enc_evict(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_evict_reply(op->msg.data, op->msg.len, &head, &reply));
    if (rc == 0)
        *ret_evicted = (struct kvc_evicted){.blocks = reply.blocks,
                                            .bytes = reply.bytes,
                                            .kept_blocks = reply.kept_blocks,
                                            .host_bytes = reply.host_bytes,
                                            .nvme_bytes = reply.nvme_bytes,
                                            .device_bytes = reply.device_bytes};
    op__free(op);
    return rc;
}

/* ---- sessions ---- */

int kvc_session_end(struct kvc *kvc, uint32_t session)
{
    const struct msg_session_end m = {.session = session};
    struct msg_reply_head head;
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_SESSION_END, &op);
    if (rc < 0)
        return rc;
    rc = op__call(op, codec_enc_session_end(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    op__free(op);
    return rc;
}
