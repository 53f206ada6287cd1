/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

#define RESV_INDEX_BITS 20u

/* ---- reservations ---- */

static int resv_new(struct kvc *k, struct resv **ret_resv)
{
    uint32_t i = 0;
    while (i < k->resv_cap && k->resv[i].handle != 0)
        i++;
    if (i == k->resv_cap) {
        if (i >= 1u << RESV_INDEX_BITS)
            return kvc__fail(k, KVC_E_LIMIT, "too many reservations: commit or drop some");
        uint32_t cap = i == 0 ? 64 : 2 * i;
        struct resv *r = sys_realloc(k->resv, cap * sizeof(*r));
        if (r == NULL)
            return kvc__fail(k, -ENOMEM, "out of memory");
        memset(r + i, 0, (cap - i) * sizeof(*r));
        k->resv = r;
        k->resv_cap = cap;
    }
    k->resv[i] =
        (struct resv){.handle = ++k->resv_serial << RESV_INDEX_BITS | i, .epoch = k->epoch};
    *ret_resv = &k->resv[i];
    return 0;
}

static struct resv *resv_find(struct kvc *k, uint64_t handle)
{
    uint64_t i = handle & ((1u << RESV_INDEX_BITS) - 1);
    return handle != 0 && i < k->resv_cap && k->resv[i].handle == handle ? &k->resv[i] : NULL;
}

/* Forgets it once all of it has been named. */
static void resv_used(struct resv *r, uint32_t blocks)
{
    r->left -= blocks < r->left ? blocks : r->left;
    if (r->left == 0)
        r->handle = 0;
}

void resv__abandon(struct kvc *k, uint64_t id)
{
    if (k->state != LINK_UP)
        return; /* it ended with the connection */
    struct msg_drop m = {.reservation = id};
    struct msg_head head = op__post_head(k, KVC_OP_DROP);
    op__post(k, codec_enc_drop(k->tx, KVC_MESSAGE_MAX, &head, &m));
}

/* ---- what stores have in common ---- */

/* Counts blocks that the cache will not get, when that is for want of a daemon or of its answer.
 * Returns KVC_E_DOWN or KVC_E_TIMEOUT then, else `error`. */
static int dropped(struct kvc *k, uint32_t blocks, uint32_t block_bytes, int error)
{
    if (!kvc__is_miss(error))
        return error;
    k->counters.stores_dropped_blocks += blocks;
    k->counters.stores_dropped_bytes += (uint64_t)blocks * block_bytes;
    return error == KVC_E_TIMEOUT ? error : KVC_E_DOWN;
}

static int check_blocks(struct kvc_ns *ns, const struct kvc_blocks *b)
{
    struct kvc *k = ns->kvc;
    if (b->group >= ns->groups)
        return kvc__fail(k, -EINVAL, "group is %u; the namespace has %u", b->group, ns->groups);
    if (b->n < 1 || b->n > KVC_STORE_MAX || b->keys == NULL)
        return kvc__fail(k, -EINVAL, "%u blocks in one call; it must be 1 to %u, with keys", b->n,
                         KVC_STORE_MAX);
    return 0;
}

static int check_tokens(struct kvc *k, const uint32_t *tokens, size_t ntokens)
{
    if (ntokens > KVC_MESSAGE_MAX / sizeof(*tokens) || (ntokens > 0 && tokens == NULL))
        return kvc__fail(k, -EINVAL, "ntokens is %zu: a pointer, and at most %zu, were expected",
                         ntokens, KVC_MESSAGE_MAX / sizeof(*tokens));
    return 0;
}

/* What lies in staging was put there in an earlier connection, or by nobody: it must not be stored
 * under these keys. */
static int check_staging(struct kvc *k)
{
    if (k->staging == NULL || k->staging_epoch != k->epoch)
        return kvc__fail(k, -EINVAL, "no staging area: give staging_bytes to kvc_open%s",
                         k->staging_wanted != 0 ? " (the daemon granted none)" : "");
    if (k->staging_asked != k->epoch)
        return kvc__fail(k, KVC_E_DOWN,
                         "the daemon is a new one and the staging area is empty "
                         "again: call kvc_staging and fill it anew");
    return 0;
}

static struct msg_reserve to_msg(const struct kvc_ns *ns, const struct kvc_blocks *b)
{
    return (struct msg_reserve){
        .ns = ns->id,
        .sub = codec_text(b->sub_tenant),
        .group = b->group,
        .shard = ns->kvc->shard,
        .parent = {.p = b->parent, .n = b->parent != NULL ? KVC_KEY_BYTES : 0},
        .first_token = b->first_token,
        .keys = {.p = b->keys, .n = b->n * KVC_KEY_BYTES},
        .last_tokens = b->last_tokens};
}

static struct codec_bin bin_of(const void *p, size_t bytes)
{
    return (struct codec_bin){.p = p, .n = (uint32_t)bytes};
}

/* ---- reserve ---- */

static int take_reservation(struct kvc_op *op, const struct kvc_blocks *b,
                            uint64_t *ret_reservation, uint8_t *statuses)
{
    struct kvc *k = op->kvc;
    struct msg_reply_head head;
    struct msg_reserve_reply reply;
    int rc = codec_dec_reserve_reply(op->msg.data, op->msg.len, &head, &reply);
    rc = op__checked(op, rc == 0 && reply.statuses.n != b->n ? KVC_E_BAD_MESSAGE : rc);
    if (rc < 0)
        return rc;
    uint32_t reserved = 0;
    for (uint32_t i = 0; i < b->n; i++)
        reserved += reply.statuses.p[i] == KVC_ST_OK;
    if ((reserved > 0) != (reply.reservation != 0))
        return op__checked(op, KVC_E_BAD_MESSAGE);
    uint64_t handle = 0;
    if (reserved > 0) {
        struct resv *r = NULL;
        rc = resv_new(k, &r);
        if (rc < 0) {
            resv__abandon(k, reply.reservation);
            return rc;
        }
        r->id = reply.reservation;
        r->group = b->group;
        r->left = reserved;
        handle = r->handle;
    }
    memcpy(statuses, reply.statuses.p, b->n);
    *ret_reservation = handle;
    return 0;
}

int kvc_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks, uint64_t *ret_reservation,
                uint8_t *statuses)
{
    struct kvc *k = ns->kvc;
    uint64_t deadline = kvc__deadline(k, 0);
    int rc = check_blocks(ns, blocks);
    if (rc < 0)
        return rc;
    struct kvc_op *op = NULL;
    rc = ns__enter(ns, deadline);
    if (rc == 0)
        rc = op__new(k, KVC_OP_RESERVE, deadline, &op);
    if (rc == 0) {
        struct msg_reserve m = to_msg(ns, blocks);
        rc = op__call(op, codec_enc_reserve(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc == 0)
        rc = take_reservation(op, blocks, ret_reservation, statuses);
    op__free(op);
    return dropped(k, blocks->n, ns->block_bytes[blocks->group], rc);
}

/* ---- commit ---- */

static int take_statuses(struct kvc_op *op, uint32_t n, uint8_t *statuses)
{
    struct msg_reply_head head;
    struct msg_commit_reply reply;
    int rc = codec_dec_commit_reply(op->msg.data, op->msg.len, &head, &reply);
    rc = op__checked(op, rc == 0 && reply.statuses.n != n ? KVC_E_BAD_MESSAGE : rc);
    if (rc == 0)
        memcpy(statuses, reply.statuses.p, n);
    return rc;
}

/* *ret_ended: how many of the blocks named are the reservation's no longer. */
static int send_commit(struct kvc *k, const struct msg_commit *m, const uint64_t *offsets,
                       uint64_t deadline_ns, uint8_t *statuses, uint32_t *ret_ended)
{
    uint32_t n = m->offsets.n / 8;
    struct kvc_op *op;
    int rc = op__new(k, KVC_OP_COMMIT, deadline_ns, &op);
    if (rc < 0)
        return rc;
    op->writes_staging = true;
    rc = op__call(op, codec_enc_commit(k->tx, KVC_MESSAGE_MAX, &op->head, m));
    if (rc == 0)
        rc = take_statuses(op, n, statuses);
    for (uint32_t i = 0; i < n && rc == 0; i++)
        *ret_ended +=
            offsets[i] != UINT64_MAX && (statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_GONE);
    op__free(op);
    return rc;
}

int kvc_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first, uint32_t n,
               const uint64_t *offsets, const uint32_t *tokens, size_t ntokens, uint8_t *statuses)
{
    struct kvc *k = ns->kvc;
    uint64_t deadline = kvc__deadline(k, 0);
    if (n < 1 || n > KVC_STORE_MAX || offsets == NULL || statuses == NULL)
        return kvc__fail(k, -EINVAL,
                         "%u blocks in one call; it must be 1 to %u, with offsets and statuses", n,
                         KVC_STORE_MAX);
    int rc = check_tokens(k, tokens, ntokens);
    if (rc < 0)
        return rc;
    uint32_t named = 0;
    for (uint32_t i = 0; i < n; i++)
        named += offsets[i] != UINT64_MAX;

    rc = ns__enter(ns, deadline);
    struct resv *r = resv_find(k, reservation); /* reconnecting moves none */
    if (r == NULL && rc == 0)
        return kvc__fail(k, KVC_E_GONE, "no such reservation: committed whole, dropped or void");
    uint32_t block_bytes = r != NULL && r->group < ns->groups ? ns->block_bytes[r->group] : 0;
    if (rc == 0 && r->epoch != k->epoch)
        rc = kvc__fail(k, KVC_E_DOWN, "the daemon is a new one; the reservation was of the old");
    if (rc == 0)
        rc = check_staging(k);
    uint32_t ended = 0;
    if (rc == 0) {
        struct msg_commit m = {.reservation = r->id,
                               .first = first,
                               .offsets = bin_of(offsets, 8u * (size_t)n),
                               .tokens = bin_of(tokens, 4 * ntokens)};
        rc = send_commit(k, &m, offsets, deadline, statuses, &ended);
    }
    if (r != NULL)
        resv_used(r, rc == KVC_E_GONE ? r->left : kvc__is_down(rc) ? named : ended);
    return dropped(k, named, block_bytes, rc);
}

int kvc_drop(struct kvc *kvc, uint64_t reservation)
{
    uint64_t deadline = kvc__deadline(kvc, 0);
    int rc = kvc__enter(kvc, deadline);
    struct resv *r = resv_find(kvc, reservation);
    if (rc == -EPERM || r == NULL)
        return rc == -EPERM ? rc : kvc__fail(kvc, KVC_E_GONE, "no such reservation");
    uint64_t id = r->id;
    bool current = rc == 0 && r->epoch == kvc->epoch;
    r->handle = 0;
    if (!current)
        return 0; /* it ended with its connection */
    struct kvc_op *op;
    rc = op__new(kvc, KVC_OP_DROP, deadline, &op);
    if (rc < 0)
        return rc;
    struct msg_drop m = {.reservation = id};
    rc = op__call(op, codec_enc_drop(kvc->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0) {
        struct msg_reply_head head;
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    }
    op__free(op);
    return rc == KVC_E_DOWN ? 0 : rc;
}

/* ---- store ---- */

int kvc_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks, const uint64_t *offsets,
                    const uint32_t *tokens, size_t ntokens, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    uint64_t deadline = kvc__deadline(k, 0);
    int rc = check_blocks(ns, blocks);
    if (rc == 0)
        rc = check_tokens(k, tokens, ntokens);
    if (rc == 0 && offsets == NULL)
        rc = kvc__fail(k, -EINVAL, "offsets is NULL");
    if (rc < 0)
        return rc;
    struct kvc_op *op = NULL;
    rc = ns__enter(ns, deadline);
    if (rc == 0)
        rc = check_staging(k);
    if (rc == 0)
        rc = op__new(k, KVC_OP_STORE, deadline, &op);
    if (rc == 0) {
        struct msg_store m = {.reserve = to_msg(ns, blocks),
                              .offsets = bin_of(offsets, 8u * (size_t)blocks->n),
                              .tokens = bin_of(tokens, 4 * ntokens)};
        op->ns = ns;
        op->group = blocks->group;
        op->blocks = blocks->n;
        op->writes_staging = true;
        rc = op__send(op, codec_enc_store(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc < 0) {
        op__free(op);
        return dropped(k, blocks->n, ns->block_bytes[blocks->group], rc);
    }
    *ret_op = op;
    return 0;
}

int write__finish_store(struct kvc_op *op, uint8_t *ret_statuses)
{
    int rc = op__await(op);
    if (rc == 0 && ret_statuses == NULL)
        rc = kvc__fail(op->kvc, -EINVAL, "a store's outcome needs room for its statuses");
    if (rc == 0)
        rc = take_statuses(op, op->blocks, ret_statuses);
    return dropped(op->kvc, op->blocks, op->ns->block_bytes[op->group], rc);
}

int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks, const uint64_t *offsets,
              const uint32_t *tokens, size_t ntokens, uint8_t *statuses)
{
    struct kvc_op *op;
    int rc = kvc_store_begin(ns, blocks, offsets, tokens, ntokens, &op);
    return rc < 0 ? rc : kvc_wait(&op, NULL, NULL, statuses);
}
