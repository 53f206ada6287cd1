/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookup and acquire: how a worker reads. kvc_acquire() sends ACQUIRE, acquired() takes the reply,
 * read__go_on() fills the hold once its chunks are mapped.
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#include "client_gpu__.h"

int read__check_seq(struct kvc_ns *ns, const struct kvc_seq *seq)
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

int read__check_chains(struct kvc_ns *ns, const struct kvc_seq *seq)
{
    int rc = read__check_seq(ns, seq);
    for (uint32_t g = 0; g < ns->groups && rc == 0; g++) {
        const uint32_t bt = ns->group[g].block_tokens, full = seq->tokens / bt;
        if (seq->group[g].n != full && (seq->group[g].n != full + 1 || seq->tokens % bt == 0))
            rc =
                kvc__fail(ns->kvc, -EINVAL, "group %u has %u keys; %u tokens are %u blocks of %u%s",
                          g, seq->group[g].n, seq->tokens, full, bt,
                          seq->tokens % bt != 0 ? ", and a partly filled one" : "");
    }
    return rc;
}

void read__to_msg(const struct kvc_ns *ns, const struct kvc_seq *seq, struct msg_seq *m)
{
    m->ns = ns->id;
    m->sub = codec_text(seq->sub_tenant);
    m->tokens = seq->tokens;
    m->ngroups = ns->groups;
    for (uint32_t g = 0; g < ns->groups; g++)
        m->keys[g] =
            (struct codec_bin){.p = seq->group[g].keys, .n = seq->group[g].n * KVC_KEY_BYTES};
}

int read__new_op(struct kvc_ns *ns, uint8_t code, uint64_t deadline_ns, enum half half,
                 struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    int down = half == BLOCKING ? kvc__enter(k, deadline_ns) : kvc__look(k);
    if (down == 0)
        down = ns__check(ns);
    struct kvc_op *op;
    int rc = down == 0 ? op__new(k, code, deadline_ns, &op) : down;
    if (kvc__is_miss(rc)) { /* a miss needs no daemon, and no time */
        down = rc;
        rc = op__new_unsent(k, code, &op);
    }
    if (rc < 0)
        return rc;
    op->ns = ns;
    op->listed = half == BEGINNING;
    if (down < 0) {
        op__complete(op, down);
        watch__update(k);
    }
    *ret_op = op;
    return 0;
}

int read__begin(struct kvc_op *op, int len, struct kvc_op **ret_op)
{
    int rc = op__send(op, len);
    if (rc < 0 && !kvc__is_down(rc) && rc != KVC_E_TIER) {
        op__free(op);
        return rc;
    }
    *ret_op = op;
    return 0;
}

/* ---- lookup ---- */

static int begin_lookup(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                        enum half half, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    struct kvc_op *op = NULL;
    int rc = read__check_seq(ns, seq);
    if (rc == 0)
        rc = read__new_op(ns, KVC_OP_LOOKUP, kvc__deadline(k, 0), half, &op);
    if (rc < 0)
        return rc;
    if (op->stage == OP_DONE) {
        *ret_op = op;
        return 0;
    }
    struct msg_lookup m = {.flags = flags};
    read__to_msg(ns, seq, &m.seq);
    return read__begin(op, codec_enc_lookup(k->tx, KVC_MESSAGE_MAX, &op->head, &m), ret_op);
}

int kvc_lookup_begin(struct kvc_ns *ns, const struct kvc_seq *seq, unsigned flags,
                     struct kvc_op **ret_op)
{
    return begin_lookup(ns, seq, flags, BEGINNING, ret_op);
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
    ret_prefix->cached_tokens = r.cached_tokens;
    ret_prefix->load_us = r.load_us;
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
    struct kvc_op *op = NULL;
    if (ret_prefix == NULL)
        return kvc__fail(ns->kvc, -EINVAL, "ret_prefix is NULL");
    int rc = begin_lookup(ns, seq, flags, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = read__finish_lookup(op, ret_prefix);
    op__free(op);
    return rc;
}

/* ---- acquire and redeem ---- */

/* The op is freed: releases a hold that the caller has not taken. */
static void read_give_up(struct kvc_op *op)
{
    if (op->hold != NULL)
        hold__discard(op->hold);
    op->hold = NULL;
}

static void acquired(struct kvc_op *op)
{
    read__go_on(op, 0, 0);
}

/* Makes an op whose outcome is a hold. */
static int new_hold_op(struct kvc_ns *ns, uint8_t code, uint64_t deadline_ns, enum half half,
                       struct kvc_op **ret_op)
{
    int rc = read__new_op(ns, code, deadline_ns, half, ret_op);
    if (rc < 0)
        return rc;
    (*ret_op)->arrived = acquired;
    (*ret_op)->let_go = read_give_up;
    return 0;
}

static int send_acquire(struct kvc_op *op, const struct msg_acquire *m, const struct kvc_gpu *gpu,
                        struct kvc_op **ret_op)
{
    void *tx = op->kvc->tx;
    if (gpu == NULL)
        return read__begin(op, codec_enc_acquire(tx, KVC_MESSAGE_MAX, &op->head, m), ret_op);
    struct msg_acquire_on on = {.acquire = *m};
    memcpy(on.uuid, gpu->device->uuid, sizeof(on.uuid));
    return read__begin(op, codec_enc_acquire_on(tx, KVC_MESSAGE_MAX, &op->head, &on), ret_op);
}

/* gpu: the daemon first copies the blocks to this device; NULL: to none. */
static int begin_acquire(struct kvc_ns *ns, const struct kvc_seq *seq, const struct kvc_gpu *gpu,
                         const struct kvc_acquire_options *options, enum half half,
                         struct kvc_op **ret_op)
{
    static const struct kvc_acquire_options defaults;
    const struct kvc_acquire_options *o = options != NULL ? options : &defaults;
    struct kvc *k = ns->kvc;
    if (o->timeout_ms > KVC_DEADLINE_MAX_MS)
        return kvc__fail(k, -EINVAL, "timeout_ms is %u; at most %u", o->timeout_ms,
                         KVC_DEADLINE_MAX_MS);
    struct kvc_op *op = NULL;
    int rc = read__check_seq(ns, seq);
    if (rc == 0)
        rc = new_hold_op(ns, gpu != NULL ? KVC_OP_ACQUIRE_ON : KVC_OP_ACQUIRE,
                         kvc__deadline(k, o->timeout_ms), half, &op);
    if (rc < 0)
        return rc;
    if (op->stage == OP_DONE) {
        *ret_op = op;
        return 0;
    }
    struct msg_acquire m = {.flags = o->flags,
                            .shard = k->shard,
                            .from_tokens = o->from_tokens,
                            .wait_tokens = o->wait_tokens};
    read__to_msg(ns, seq, &m.seq);
    return send_acquire(op, &m, gpu, ret_op);
}

int kvc_acquire_begin(struct kvc_ns *ns, const struct kvc_seq *seq,
                      const struct kvc_acquire_options *options, struct kvc_op **ret_op)
{
    return begin_acquire(ns, seq, NULL, options, BEGINNING, ret_op);
}

/* The lease has come, but chunks are missing: the op waits for them, at least until its grace
 * deadline. */
static void await_chunks(struct kvc_op *op)
{
    uint64_t until = kvc__now() + GRACE_MS * NS_PER_MS;
    if (op->grace_ns < until)
        op->grace_ns = until;
    op->stage = OP_CHUNKS;
}

void read__go_on(struct kvc_op *op, uint32_t chunk, int refused)
{
    struct kvc *k = op->kvc;
    struct msg_reply_head head;
    struct msg_acquire_reply r;
    int rc = codec_dec_acquire_reply(op->msg.data, op->msg.len, &head, &r);
    rc = op__checked(op, rc == 0 && r.ngroups != op->ns->groups ? KVC_E_BAD_MESSAGE : rc);
    if (rc < 0) {
        op__complete(op, rc);
        return;
    }
    if (op->hold == NULL && hold__new(k, &op->hold) < 0) {
        if (r.lease != 0)
            op__post_release(k, r.lease);
        op__complete(op, -ENOMEM);
        return;
    }
    op->hold->pub.lease = r.lease;
    rc = refused < 0 && hold__needs(&r, chunk)
             ? refused
             : hold__fill(op->hold, &r, op->head.op == KVC_OP_ACQUIRE_ON);
    if (rc == 1) {
        if (op->stage != OP_CHUNKS)
            await_chunks(op);
        return;
    }
    if (rc < 0)
        read_give_up(op);
    op__complete(op, rc);
}

int read__finish_acquire(struct kvc_op *op, struct kvc_hold **ret_hold)
{
    struct kvc *k = op->kvc;
    int rc = op__await(op);
    /* The link may have ended since the reply came, and then the lease has ended, too. */
    if (rc == 0 && op->hold->blocks > 0 && !hold__is_kept(k, op->hold->pub.epoch))
        rc = KVC_E_DOWN;
    if (rc < 0)
        read_give_up(op);
    /* These are misses: GONE (the chunk of a block has gone) and TIER (there is no such device). */
    bool is_out = rc == KVC_E_TIER && op->head.op == KVC_OP_ACQUIRE_ON;
    if (kvc__is_miss(rc) || rc == KVC_E_GONE || is_out) {
        k->counters.lookups_down += kvc__is_miss(rc);
        rc = hold__new(k, &op->hold);
    }
    if (rc < 0)
        return rc;
    *ret_hold = &op->hold->pub;
    op->hold = NULL;
    return 0;
}

int read__finish_hold(struct kvc_op *op, struct kvc_hold **ret_hold)
{
    struct kvc *k = op->kvc;
    struct kvc_hold *hold = NULL;
    int rc = read__finish_acquire(op, &hold);
    if (rc < 0)
        return rc;
    if (ret_hold == NULL) {
        kvc_release(k, &hold);
        return kvc__fail(k, -EINVAL, "no output for the hold; it is released");
    }
    *ret_hold = hold;
    return 0;
}

/* Hands out the op's hold, and frees the op. */
static int end_hold(struct kvc_op *op, struct kvc_hold **ret_hold)
{
    int rc = read__finish_hold(op, ret_hold);
    op__free(op);
    return rc;
}

int kvc_acquire(struct kvc_ns *ns, const struct kvc_seq *seq,
                const struct kvc_acquire_options *options, struct kvc_hold **ret_hold)
{
    struct kvc_op *op = NULL;
    int rc = begin_acquire(ns, seq, NULL, options, BLOCKING, &op);
    return rc < 0 ? rc : end_hold(op, ret_hold);
}

int kvc_acquire_on(struct kvc_ns *ns, const struct kvc_seq *seq, struct kvc_gpu *gpu,
                   const struct kvc_acquire_options *options, struct kvc_hold **ret_hold)
{
    struct kvc_op *op = NULL;
    if (gpu == NULL || gpu->kvc != ns->kvc || gpu->device->is_host)
        return kvc__fail(ns->kvc, -EINVAL, "gpu is NULL, of another session, or the device 'host'");
    int rc = begin_acquire(ns, seq, gpu, options, BLOCKING, &op);
    return rc < 0 ? rc : end_hold(op, ret_hold);
}

static int begin_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES], enum half half,
                        struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    struct kvc_op *op;
    int rc = new_hold_op(ns, KVC_OP_REDEEM, kvc__deadline(k, 0), half, &op);
    if (rc < 0)
        return rc;
    if (op->stage == OP_DONE) {
        *ret_op = op;
        return 0;
    }
    struct msg_redeem m = {.shard = k->shard};
    memcpy(m.ticket, ticket, sizeof(m.ticket));
    return read__begin(op, codec_enc_redeem(k->tx, KVC_MESSAGE_MAX, &op->head, &m), ret_op);
}

int kvc_redeem_begin(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
                     struct kvc_op **ret_op)
{
    return begin_redeem(ns, ticket, BEGINNING, ret_op);
}

int kvc_redeem(struct kvc_ns *ns, const uint8_t ticket[KVC_TICKET_BYTES],
               struct kvc_hold **ret_hold)
{
    struct kvc_op *op = NULL;
    int rc = begin_redeem(ns, ticket, BLOCKING, &op);
    return rc < 0 ? rc : end_hold(op, ret_hold);
}

/* ---- hint ---- */

/* kvc_close waits so long for the replies to hints: requests that the daemon has not read are lost
 * with the socket. */
#define HINTS_CLOSE_MS 250u

/* The reply to a hint is ignored: a hint may be lost. */
static void hinted(struct kvc_op *op)
{
    op__free(op);
}

static bool hints_left(const struct kvc *k)
{
    for (const struct kvc_op *op = k->ops.live; op != NULL; op = op->next)
        if (op->then == hinted && op->stage != OP_DONE)
            return true;
    return false;
}

void read__flush_hints(struct kvc *k)
{
    const uint64_t until_ns = kvc__now() + HINTS_CLOSE_MS * NS_PER_MS;
    while (k->state == LINK_UP && hints_left(k) && op__pump(k, until_ns, true) > 0) {
    }
}

int kvc_hint(struct kvc_ns *ns, const struct kvc_seq *seq, enum kvc_hint_kind kind,
             uint32_t within_ms)
{
    struct kvc *k = ns->kvc;
    if (kind < KVC_HINT_ENDED || kind > KVC_HINT_SCAN)
        return kvc__fail(k, -EINVAL, "kind is %d; it must be 1 to 4", (int)kind);
    int rc = read__check_seq(ns, seq);
    if (rc < 0)
        return rc;
    rc = kvc__look(k);
    if (rc < 0)
        return kvc__is_miss(rc) ? 0 : rc;
    struct kvc_op *op;
    rc = ns__check(ns);
    if (rc == 0)
        rc = op__new(k, KVC_OP_HINT, kvc__deadline(k, 0), &op);
    if (rc < 0)
        return rc;
    op->ns = ns;
    struct msg_hint m = {.kind = (uint8_t)kind, .within_ms = kind == KVC_HINT_SOON ? within_ms : 0};
    read__to_msg(ns, seq, &m.seq);
    rc = op__send(op, codec_enc_hint(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc < 0)
        op__free(op);
    else
        op->then = hinted;
    return kvc__is_down(rc) ? 0 : rc;
}
