/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <string.h>

static int check_seq(struct kvc_ns *ns, const struct kvc_seq *seq)
{
    struct kvc *k = ns->kvc;
    uint64_t total = 0;
    for (uint32_t g = 0; g < ns->groups; g++) {
        if (seq->group[g].n > 0 && seq->group[g].keys == NULL)
            return kvc__fail(k, -EINVAL, "group %u has %u keys, but its pointer is NULL", g,
                             seq->group[g].n);
        total += seq->group[g].n;
    }
    if (total > KVC_KEYS_MAX)
        return kvc__fail(k, -EINVAL, "%llu keys in one request; at most %u",
                         (unsigned long long)total, KVC_KEYS_MAX);
    return 0;
}

static void to_msg(const struct kvc_ns *ns, const struct kvc_seq *seq, struct msg_seq *m)
{
    m->ns = ns->id;
    m->sub = codec_text(seq->sub_tenant);
    m->tokens = seq->tokens;
    m->ngroups = ns->groups;
    for (uint32_t g = 0; g < ns->groups; g++)
        m->keys[g] =
            (struct codec_bin){.p = seq->group[g].keys, .n = seq->group[g].n * KVC_KEY_BYTES};
}

/* An op that is done before it begins: no daemon. Its outcome is a miss. */
static int new_op(struct kvc_ns *ns, uint8_t code, uint64_t deadline_ns, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    int down = ns__enter(ns, deadline_ns);
    if (down < 0 && !kvc__is_down(down))
        return down;
    /* A miss needs no time left. */
    uint64_t until = down < 0 ? kvc__now() + NS_PER_MS : deadline_ns;
    struct kvc_op *op;
    int rc = op__new(k, code, until, &op);
    if (rc < 0)
        return rc;
    op->ns = ns;
    if (down < 0) {
        op->done = true;
        op->error = down;
    }
    *ret_op = op;
    return 0;
}

/* Sends what the encoder made. A daemon that is gone is no error yet. */
static int begin(struct kvc_op *op, int len, struct kvc_op **ret_op)
{
    int rc = op__send(op, len);
    if (rc < 0 && !kvc__is_down(rc)) {
        op__free(op);
        return rc;
    }
    *ret_op = op;
    return 0;
}

/* ---- lookup ---- */

int kvc_lookup_begin(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                     struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    struct kvc_op *op = NULL;
    int rc = check_seq(ns, seq);
    if (rc == 0)
        rc = new_op(ns, KVC_OP_LOOKUP, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    if (op->done) {
        *ret_op = op;
        return 0;
    }
    struct msg_lookup m = {.flags = flags};
    to_msg(ns, seq, &m.seq);
    return begin(op, codec_enc_lookup(k->tx, KVC_MESSAGE_MAX, &op->head, &m), ret_op);
}

int read__finish_lookup(struct kvc_op *op, struct kvc_prefix *ret_prefix)
{
    struct kvc *k = op->kvc;
    int rc = op__await(op);
    if (kvc__is_miss(rc)) {
        k->counters.lookups_down++;
        if (ret_prefix != NULL)
            *ret_prefix = (struct kvc_prefix){.tokens = 0};
        return 0;
    }
    if (rc < 0)
        return rc;
    struct msg_reply_head head;
    struct msg_lookup_reply r;
    rc = codec_dec_lookup_reply(op->msg.data, op->msg.len, &head, &r);
    rc = op__checked(op, rc == 0 && r.ngroups != op->ns->groups ? KVC_E_BAD_MESSAGE : rc);
    if (rc < 0 || ret_prefix == NULL)
        return rc;
    memset(ret_prefix, 0, sizeof(*ret_prefix));
    ret_prefix->tokens = r.hit_tokens;
    for (uint32_t g = 0; g < r.ngroups; g++) {
        ret_prefix->group[g].blocks = r.groups[g].blocks;
        ret_prefix->group[g].reason = r.groups[g].reason;
        ret_prefix->group[g].detail = r.groups[g].detail;
    }
    return 0;
}

int kvc_lookup(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
               struct kvc_prefix *ret_prefix)
{
    struct kvc_op *op;
    int rc = kvc_lookup_begin(ns, seq, flags, &op);
    return rc < 0 ? rc : kvc_wait(&op, ret_prefix, NULL, NULL);
}

/* ---- acquire and redeem ---- */

int kvc_acquire_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                      const struct kvc_acquire_options *options, struct kvc_op **ret_op)
{
    static const struct kvc_acquire_options defaults;
    const struct kvc_acquire_options *o = options != NULL ? options : &defaults;
    struct kvc *k = ns->kvc;
    if (o->timeout_ms > KVC_DEADLINE_MAX_MS)
        return kvc__fail(k, -EINVAL, "timeout_ms is %u; at most %u", o->timeout_ms,
                         KVC_DEADLINE_MAX_MS);
    struct kvc_op *op = NULL;
    int rc = check_seq(ns, seq);
    if (rc == 0)
        rc = new_op(ns, KVC_OP_ACQUIRE, kvc__deadline(k, o->timeout_ms), &op);
    if (rc < 0)
        return rc;
    if (op->done) {
        *ret_op = op;
        return 0;
    }
    struct msg_acquire m = {.flags = o->flags,
                            .shard = k->shard,
                            .from_tokens = o->from_tokens,
                            .wait_tokens = o->wait_tokens};
    to_msg(ns, seq, &m.seq);
    return begin(op, codec_enc_acquire(k->tx, KVC_MESSAGE_MAX, &op->head, &m), ret_op);
}

/* A hold from an OK reply. */
static int take_lease(struct kvc_op *op, struct hold *h)
{
    struct msg_reply_head head;
    struct msg_acquire_reply r;
    int rc = codec_dec_acquire_reply(op->msg.data, op->msg.len, &head, &r);
    rc = op__checked(op, rc == 0 && r.ngroups != op->ns->groups ? KVC_E_BAD_MESSAGE : rc);
    if (rc < 0)
        return rc;
    /* The link may have gone since the reply came, and its leases with it. */
    if (op->epoch != op->kvc->epoch || op->kvc->state != LINK_UP)
        return KVC_E_DOWN;
    uint64_t until = kvc__now() + GRACE_MS * NS_PER_MS;
    return hold__fill(h, &r, until > op->guard_ns ? until : op->guard_ns);
}

int read__finish_acquire(struct kvc_op *op, struct kvc_hold **ret_hold)
{
    struct kvc *k = op->kvc;
    struct hold *h;
    int rc = op__await(op);
    int made = hold__new(k, &h);
    if (made < 0) {
        struct msg_reply_head head;
        struct msg_acquire_reply r;
        if (rc == 0 && codec_dec_acquire_reply(op->msg.data, op->msg.len, &head, &r) == 0 &&
            r.lease != 0 && op->epoch == k->epoch)
            hold__end_lease(k, r.lease);
        return made;
    }
    if (rc == 0)
        rc = take_lease(op, h);
    if (kvc__is_miss(rc) || rc == KVC_E_GONE) { /* GONE: the chunk of a block */
        k->counters.lookups_down += kvc__is_miss(rc);
        hold__free(h);
        rc = hold__new(k, &h); /* an empty one; the memory is that of the last line */
    }
    if (rc < 0) {
        hold__free(h);
        return rc;
    }
    *ret_hold = &h->pub;
    return 0;
}

int kvc_acquire(struct kvc_ns *ns, const struct kvc_seq *seq,
                const struct kvc_acquire_options *options, struct kvc_hold **ret_hold)
{
    struct kvc_op *op;
    int rc = kvc_acquire_begin(ns, seq, options, &op);
    return rc < 0 ? rc : kvc_wait(&op, NULL, ret_hold, NULL);
}

int kvc_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
               struct kvc_hold **ret_hold)
{
    struct kvc *k = ns->kvc;
    struct kvc_op *op;
    int rc = new_op(ns, KVC_OP_REDEEM, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    if (!op->done) {
        struct msg_redeem m = {.shard = k->shard};
        memcpy(m.ticket, ticket, sizeof(m.ticket));
        rc = op__send(op, codec_enc_redeem(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc == 0 || kvc__is_down(rc))
        rc = read__finish_acquire(op, ret_hold);
    op__free(op);
    return rc;
}
