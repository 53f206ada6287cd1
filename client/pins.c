/* SPDX-License-Identifier: Apache-2.0 */
/* Calls about why blocks stay: pins, quotas, the eviction policy. */
#include "client.h"

#include <string.h>

/* ---- pins ---- */

int kvc_pin(struct kvc_ns *ns, const struct kvc_seq *seq, bool in_memory, uint64_t ttl_ms,
            uint64_t *ret_pin)
{
    struct kvc *kvc = ns->kvc;
    struct kvc_op *op;
    int rc = read__check_seq(ns, seq);
    rc = rc < 0 ? rc : op__begin(kvc, KVC_OP_PIN, &op);
    if (rc < 0)
        return rc;
    struct msg_pin m = {.tier = in_memory ? KVC_TIER_HOST : KVC_TIER_NONE, .ttl_ms = ttl_ms};
    struct msg_reply_head head;
    struct msg_pin_reply r;
    op->ns = ns;
    rc = ns__check(ns);
    read__to_msg(ns, seq, &m.seq);
    if (rc == 0)
        rc = op__call(op, codec_enc_pin(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_pin_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0)
        *ret_pin = r.pin;
    op__free(op);
    return rc;
}

int kvc_unpin(struct kvc *kvc, uint64_t pin)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_UNPIN, &op);
    if (rc < 0)
        return rc;
    const struct msg_unpin m = {.pin = pin};
    struct msg_reply_head head;
    rc = op__call(op, codec_enc_unpin(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    op__free(op);
    return rc;
}

/* ---- quotas ---- */

int kvc_quota_set(struct kvc *kvc, const struct kvc_quota *quota)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_QUOTA_SET, &op);
    if (rc < 0)
        return rc;
    const struct msg_quota_set m = {.scope = quota->scope,
                                    .tenant = codec_text(quota->tenant),
                                    .sub = codec_text(quota->sub_tenant),
                                    .ns = quota->ns,
                                    .host_limit = quota->host_limit,
                                    .nvme_limit = quota->nvme_limit,
                                    .host_share = quota->host_share,
                                    .nvme_share = quota->nvme_share};
    struct msg_reply_head head;
    rc = op__call(op, codec_enc_quota_set(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    op__free(op);
    return rc;
}

/* ---- policy ---- */

static void to_policy(const struct msg_policy_reply *r, struct kvc_policy_info *p)
{
    *p = (struct kvc_policy_info){.keep_percent = r->keep_percent,
                                  .load_or_recompute = r->load_or_recompute,
                                  .admission = r->admission,
                                  .pin_bytes_max = r->pin_bytes_max,
                                  .keep_percent_start = r->keep_percent_start,
                                  .load_or_recompute_start = r->load_or_recompute_start,
                                  .admission_start = r->admission_start,
                                  .pin_bytes_max_start = r->pin_bytes_max_start,
                                  .storage = r->storage,
                                  .hints = r->hints,
                                  .admits = r->admits,
                                  .pins = r->pins,
                                  .all = r->all,
                                  .writes_per_day = r->writes_per_day,
                                  .spent_bytes = r->spent_bytes,
                                  .left_bytes = r->left_bytes,
                                  .load_bytes_per_s = r->load_bytes_per_s,
                                  .load_latency_us = r->load_latency_us,
                                  .hints_ended = r->hints_ended,
                                  .hints_continue = r->hints_continue,
                                  .hints_soon = r->hints_soon,
                                  .hints_scan = r->hints_scan,
                                  .wishes = r->wishes,
                                  .wishes_ended = r->wishes_ended,
                                  .levels = r->nlevels};
    kvc__copy_text(p->name, sizeof(p->name), &r->name);
    kvc__copy_text(p->text, sizeof(p->text), &r->text);
    kvc__copy_text(p->chosen, sizeof(p->chosen), &r->chosen);
    for (uint32_t i = 0; i < r->nlevels; i++)
        p->level[i] =
            (struct kvc_level){.priority = r->levels[i].priority, .blocks = r->levels[i].blocks};
}

int kvc_policy(struct kvc *kvc, const struct kvc_policy_info *set, struct kvc_policy_info *ret_info)
{
    struct kvc_op *op;
    int rc = op__begin(kvc, KVC_OP_POLICY, &op);
    if (rc < 0)
        return rc;
    struct msg_policy m = {.action = set ? KVC_POLICY_SET : KVC_POLICY_SHOW};
    if (set) {
        m.name = codec_text(set->name);
        m.keep_percent = set->keep_percent;
        m.load_or_recompute = set->load_or_recompute;
        m.admission = set->admission;
        m.pin_bytes_max = set->pin_bytes_max;
    }
    struct msg_reply_head head;
    struct msg_policy_reply r;
    rc = op__call(op, codec_enc_policy(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_dec_policy_reply(op->msg.data, op->msg.len, &head, &r));
    if (rc == 0) {
        to_policy(&r, ret_info);
    }
    op__free(op);
    return rc;
}
