/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores in steps: RESERVE, COMMIT, DROP, and STORE, which is all of them in one request. put.c
 * builds kvc_put() on these.
 */
#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sys.h"

#define RESV_INDEX_BITS 20u

/* ---- reservations ---- */

/* What kvc_reserve returned. The library chooses the handles and never repeats one, because a
 * restarted daemon may give the same reservation ids again. */
struct resv {
    uint64_t handle; /* serial number and place in the table; 0: this place is free */
    uint64_t id;     /* the daemon's */
    uint32_t epoch;
    uint32_t group;
    uint32_t left; /* reserved blocks that no commit has named yet */
};

struct resv_table {
    uint64_t serial; /* of the handle that was made last */
    uint32_t cap;
    struct resv at[];
};

/* Doubles the table; all new places are free. */
static int resv_grow(struct kvc *k)
{
    struct resv_table *t = k->resvs;
    const uint32_t old = t != NULL ? t->cap : 0;
    if (old >= 1u << RESV_INDEX_BITS)
        return kvc__fail(k, KVC_E_LIMIT, "too many reservations: commit or drop some");
    const uint32_t cap = old == 0 ? 64 : 2 * old;
    t = sys_realloc(t, sizeof(*t) + cap * sizeof(t->at[0]));
    if (t == NULL)
        return kvc__fail(k, -ENOMEM, "out of memory");
    if (old == 0)
        t->serial = 0;
    memset(t->at + old, 0, (cap - old) * sizeof(t->at[0]));
    t->cap = cap;
    k->resvs = t;
    return 0;
}

static int resv_new(struct kvc *k, struct resv **ret_resv)
{
    const struct resv_table *t = k->resvs;
    uint32_t i = 0;
    while (t != NULL && i < t->cap && t->at[i].handle != 0)
        i++;
    int rc = t == NULL || i == t->cap ? resv_grow(k) : 0;
    if (rc < 0)
        return rc;
    struct resv *r = &k->resvs->at[i];
    *r = (struct resv){.handle = ++k->resvs->serial << RESV_INDEX_BITS | i, .epoch = k->epoch};
    *ret_resv = r;
    return 0;
}

static struct resv *resv_find(struct kvc *k, uint64_t handle)
{
    struct resv_table *t = k->resvs;
    uint64_t i = handle & ((1u << RESV_INDEX_BITS) - 1);
    return t != NULL && handle != 0 && i < t->cap && t->at[i].handle == handle ? &t->at[i] : NULL;
}

/* Commits have named `blocks` more blocks of the reservation. Frees its place after the last one.
 */
static void resv_used(struct resv *r, uint32_t blocks)
{
    r->left -= blocks < r->left ? blocks : r->left;
    if (r->left == 0)
        r->handle = 0;
}

/* ---- what stores have in common ---- */

int write__dropped(struct kvc *k, uint32_t blocks, uint32_t block_bytes, int error)
{
    if (!kvc__is_miss(error))
        return error;
    k->counters.stores_dropped_blocks += blocks;
    k->counters.stores_dropped_bytes += (uint64_t)blocks * block_bytes;
    return error == KVC_E_TIMEOUT ? error : KVC_E_DOWN;
}

int write__check_blocks(struct kvc_ns *ns, const struct kvc_blocks *b)
{
    struct kvc *k = ns->kvc;
    if (b->group >= ns->groups)
        return kvc__fail(k, -EINVAL, "group is %u; the namespace has %u", b->group, ns->groups);
    if (b->n < 1 || b->n > KVC_STORE_MAX || b->keys == NULL)
        return kvc__fail(k, -EINVAL, "%u blocks in one call; it must be 1 to %u, with keys", b->n,
                         KVC_STORE_MAX);
    if (b->nretain > KVC_RETAIN_MAX || (b->nretain > 0 && b->retain == NULL))
        return kvc__fail(k, -EINVAL, "nretain is %u: a pointer, and at most %u, were expected",
                         b->nretain, KVC_RETAIN_MAX);
    return 0;
}

int write__check_tokens(struct kvc *k, const uint32_t *tokens, size_t ntokens)
{
    if (ntokens > KVC_MESSAGE_MAX / sizeof(*tokens) || (ntokens > 0 && tokens == NULL))
        return kvc__fail(k, -EINVAL, "ntokens is %zu: a pointer, and at most %zu, were expected",
                         ntokens, KVC_MESSAGE_MAX / sizeof(*tokens));
    return 0;
}

int write__check_staging(struct kvc *k)
{
    if (k->staging.at == NULL || k->staging.epoch != k->epoch)
        return kvc__fail(k, -EINVAL, "no staging area: give staging_bytes to kvc_open%s",
                         k->staging.wanted != 0 ? " (the daemon granted none)" : "");
    if (k->staging.asked != k->epoch)
        return kvc__fail(k, KVC_E_DOWN,
                         "the staging area was not asked for in this connection, so nothing that "
                         "lies in it counts: call kvc_staging, fill it, and store then");
    return 0;
}

struct msg_reserve write__to_msg(const struct kvc_ns *ns, const struct kvc_blocks *b,
                                 struct wish_bytes *room)
{
    for (uint32_t i = 0; i < b->nretain; i++) {
        struct msg_retain wish = {.first_token = b->retain[i].first_token,
                                  .end_token = b->retain[i].end_token,
                                  .priority = b->retain[i].priority,
                                  .duration_ms = b->retain[i].duration_ms};
        codec_put_retain(room->bytes + (size_t)i * KVC_RETAIN_BYTES, &wish);
    }
    return (struct msg_reserve){
        .ns = ns->id,
        .sub = codec_text(b->sub_tenant),
        .flags = b->flags,
        .group = b->group,
        .shard = ns->kvc->shard,
        .parent = {.p = b->parent, .n = b->parent != NULL ? KVC_KEY_BYTES : 0},
        .first_token = b->first_token,
        .keys = {.p = b->keys, .n = b->n * KVC_KEY_BYTES},
        .last_tokens = b->last_tokens,
        .retain = {.p = room->bytes, .n = b->nretain * KVC_RETAIN_BYTES}};
}

static struct codec_bin bin_of(const void *p, size_t bytes)
{
    return (struct codec_bin){.p = p, .n = (uint32_t)bytes};
}

int write__new_op(struct kvc_ns *ns, uint8_t code, enum half half, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    uint64_t deadline = kvc__deadline(k, 0);
    int rc = half == BLOCKING ? kvc__enter(k, deadline) : kvc__look(k);
    if (rc == 0)
        rc = ns__check(ns);
    if (rc == 0 && code == KVC_OP_STORE)
        rc = write__check_staging(k);
    if (rc == 0)
        rc = op__new(k, code, deadline, ret_op);
    if (rc < 0)
        return rc;
    (*ret_op)->ns = ns;
    (*ret_op)->listed = half == BEGINNING;
    (*ret_op)->borrows = code != KVC_OP_RESERVE;
    return 0;
}

int write__decline(struct kvc_ns *ns, uint8_t code, uint32_t blocks, enum half half,
                   struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    if (fork__is_child(k))
        return kvc__fail(k, -EPERM, "this session belongs to the parent process");
    struct kvc_op *op = NULL;
    int rc = op__new_unsent(k, code, &op);
    if (rc < 0)
        return rc;
    op->ns = ns;
    op->listed = half == BEGINNING;
    op->blocks = blocks;
    op->declined = true;
    op__complete(op, 0);
    watch__update(k);
    *ret_op = op;
    return 0;
}

static int all_declined(const struct kvc_op *op, uint8_t *statuses)
{
    memset(statuses, KVC_ST_NO_STORE, op->blocks);
    return 0;
}

/* ---- reserve ---- */

static int take_reservation(struct kvc_op *op, uint64_t *ret_reservation, uint8_t *statuses)
{
    struct kvc *k = op->kvc;
    struct msg_reply_head head;
    struct msg_reserve_reply reply;
    int rc = codec_dec_reserve_reply(op->msg.data, op->msg.len, &head, &reply);
    rc = op__checked(op, rc == 0 && reply.statuses.n != op->blocks ? KVC_E_BAD_MESSAGE : rc);
    if (rc < 0)
        return rc;
    uint32_t reserved = 0;
    for (uint32_t i = 0; i < op->blocks; i++)
        reserved += reply.statuses.p[i] == KVC_ST_OK;
    if ((reserved > 0) != (reply.reservation != 0))
        return op__checked(op, KVC_E_BAD_MESSAGE);
    uint64_t handle = 0;
    if (reserved > 0) {
        struct resv *r = NULL;
        rc = resv_new(k, &r);
        if (rc < 0) {
            if (op->epoch == k->epoch)
                op__post_drop(k, reply.reservation);
            return rc;
        }
        r->id = reply.reservation;
        r->epoch = op->epoch; /* the link may have gone since the reply came */
        r->group = op->group;
        r->left = reserved;
        handle = r->handle;
    }
    memcpy(statuses, reply.statuses.p, op->blocks);
    *ret_reservation = handle;
    return 0;
}

static int begin_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks, enum half half,
                         struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    int rc = write__check_blocks(ns, blocks);
    if (rc < 0)
        return rc;
    if (blocks->flags & KVC_F_NO_STORE)
        return write__decline(ns, KVC_OP_RESERVE, blocks->n, half, ret_op);
    struct kvc_op *op = NULL;
    rc = write__new_op(ns, KVC_OP_RESERVE, half, &op);
    if (rc == 0) {
        struct wish_bytes wishes;
        struct msg_reserve m = write__to_msg(ns, blocks, &wishes);
        op->group = blocks->group;
        op->blocks = blocks->n;
        rc = op__send(op, codec_enc_reserve(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc < 0) {
        op__free(op);
        return write__dropped(k, blocks->n, ns->group[blocks->group].block_bytes, rc);
    }
    *ret_op = op;
    return 0;
}

int kvc_reserve_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks, struct kvc_op **ret_op)
{
    return begin_reserve(ns, blocks, BEGINNING, ret_op);
}

int write__finish_reserve(struct kvc_op *op, uint64_t *ret_reservation, uint8_t *ret_statuses)
{
    if (op->declined) {
        *ret_reservation = 0;
        return all_declined(op, ret_statuses);
    }
    int rc = op__await(op);
    if (rc == 0)
        rc = take_reservation(op, ret_reservation, ret_statuses);
    return write__dropped(op->kvc, op->blocks, op->ns->group[op->group].block_bytes, rc);
}

int kvc_reserve(struct kvc_ns *ns, const struct kvc_blocks *blocks, uint64_t *ret_reservation,
                uint8_t *statuses)
{
    struct kvc_op *op = NULL;
    int rc = begin_reserve(ns, blocks, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = write__finish_reserve(op, ret_reservation, statuses);
    op__free(op);
    return rc;
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

static uint32_t count_named(const uint8_t *offsets, uint32_t n)
{
    uint32_t named = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t offset;
        memcpy(&offset, offsets + 8 * (size_t)i, 8);
        named += offset != UINT64_MAX;
    }
    return named;
}

/* How many blocks of a COMMIT belong to the reservation no longer, by their statuses. */
static uint32_t count_ended(const struct kvc_op *op, const uint8_t *statuses)
{
    struct msg_head head;
    struct msg_commit m;
    uint32_t ended = 0;
    if (codec_dec_commit(op->sent.data, op->sent.len, &head, &m) < 0)
        return 0;
    for (uint32_t i = 0; i < m.offsets.n / 8; i++) {
        if (statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_GONE)
            ended += count_named(m.offsets.p + 8 * (size_t)i, 1);
    }
    return ended;
}

static int send_commit(struct kvc_op *op, const struct resv *r, uint32_t first,
                       const uint64_t *offsets, uint32_t n, const uint32_t *tokens, size_t ntokens)
{
    struct kvc *k = op->kvc;
    struct msg_commit m = {.reservation = r->id,
                           .first = first,
                           .offsets = bin_of(offsets, 8u * (size_t)n),
                           .tokens = bin_of(tokens, 4 * ntokens)};
    return op__send(op, codec_enc_commit(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
}

static int begin_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first, uint32_t n,
                        const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                        enum half half, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    if (n < 1 || n > KVC_STORE_MAX || offsets == NULL)
        return kvc__fail(k, -EINVAL, "%u blocks in one call; it must be 1 to %u, with offsets", n,
                         KVC_STORE_MAX);
    int rc = write__check_tokens(k, tokens, ntokens);
    if (rc < 0)
        return rc;
    struct kvc_op *op = NULL;
    rc = write__new_op(ns, KVC_OP_COMMIT, half, &op);
    if (rc == -EPERM)
        return rc;
    struct resv *r = resv_find(k, reservation);
    uint32_t group = r != NULL && r->group < ns->groups ? r->group : 0;
    uint32_t block_bytes = r != NULL ? ns->group[group].block_bytes : 0;
    uint32_t named = count_named((const uint8_t *)(const void *)offsets, n);
    if (rc == 0 && r == NULL)
        rc = kvc__fail(k, KVC_E_GONE, "no such reservation: committed whole, dropped or void");
    if (rc == 0 && r->epoch != k->epoch)
        rc = kvc__fail(k, KVC_E_DOWN, "the daemon is a new one; the reservation was of the old");
    if (rc == 0)
        rc = write__check_staging(k);
    if (rc == 0) {
        op->reservation = reservation;
        op->group = group;
        op->blocks = n;
        rc = send_commit(op, r, first, offsets, n, tokens, ntokens);
    }
    if (rc < 0) {
        op__free(op);
        if (r != NULL && kvc__is_down(rc))
            resv_used(r, named);
        return write__dropped(k, named, block_bytes, rc);
    }
    *ret_op = op;
    return 0;
}

int kvc_commit_begin(struct kvc_ns *ns, uint64_t reservation, uint32_t first, uint32_t n,
                     const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                     struct kvc_op **ret_op)
{
    return begin_commit(ns, reservation, first, n, offsets, tokens, ntokens, BEGINNING, ret_op);
}

int write__finish_commit(struct kvc_op *op, uint8_t *ret_statuses)
{
    struct kvc *k = op->kvc;
    struct msg_head head;
    struct msg_commit m;
    int rc = op__await(op);
    if (rc == 0)
        rc = take_statuses(op, op->blocks, ret_statuses);
    uint32_t named = 0;
    if (codec_dec_commit(op->sent.data, op->sent.len, &head, &m) == 0)
        named = count_named(m.offsets.p, m.offsets.n / 8);
    struct resv *r = resv_find(k, op->reservation);
    if (r != NULL)
        resv_used(r, rc == KVC_E_GONE   ? r->left
                     : kvc__is_down(rc) ? named
                     : rc == 0          ? count_ended(op, ret_statuses)
                                        : 0);
    return write__dropped(k, named, op->ns->group[op->group].block_bytes, rc);
}

int kvc_commit(struct kvc_ns *ns, uint64_t reservation, uint32_t first, uint32_t n,
               const uint64_t *offsets, const uint32_t *tokens, size_t ntokens, uint8_t *statuses)
{
    struct kvc_op *op = NULL;
    if (statuses == NULL)
        return kvc__fail(ns->kvc, -EINVAL, "statuses is NULL");
    int rc = begin_commit(ns, reservation, first, n, offsets, tokens, ntokens, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = write__finish_commit(op, statuses);
    op__free(op);
    return rc;
}

/* ---- drop ---- */

static int begin_drop(struct kvc *k, uint64_t reservation, enum half half, struct kvc_op **ret_op)
{
    uint64_t deadline = kvc__deadline(k, 0);
    int rc = half == BLOCKING ? kvc__enter(k, deadline) : kvc__look(k);
    struct resv *r = resv_find(k, reservation);
    if (rc == -EPERM || r == NULL)
        return rc == -EPERM ? rc : kvc__fail(k, KVC_E_GONE, "no such reservation");
    bool current = rc == 0 && r->epoch == k->epoch;
    if (rc == KVC_E_TIMEOUT && r->epoch == k->epoch)
        op__post_drop(k, r->id); /* nobody waits for a daemon that is silent */
    struct kvc_op *op = NULL;
    rc = op__new(k, KVC_OP_DROP, deadline, &op);
    if (rc < 0)
        return rc;
    op->listed = half == BEGINNING;
    struct msg_drop m = {.reservation = r->id};
    r->handle = 0;
    if (!current) { /* it ended with its connection */
        op__complete(op, 0);
        watch__update(k);
    } else {
        rc = op__send(op, codec_enc_drop(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc < 0 && !kvc__is_down(rc)) {
        op__free(op);
        return rc;
    }
    *ret_op = op;
    return 0;
}

int kvc_drop_begin(struct kvc *kvc, uint64_t reservation, struct kvc_op **ret_op)
{
    return begin_drop(kvc, reservation, BEGINNING, ret_op);
}

int write__finish_drop(struct kvc_op *op)
{
    struct msg_reply_head head;
    int rc = op__await(op);
    if (rc == 0 && op->msg.full)
        rc = op__checked(op, codec_dec_bare_reply(op->msg.data, op->msg.len, &head));
    return rc == KVC_E_DOWN ? 0 : rc;
}

int kvc_drop(struct kvc *kvc, uint64_t reservation)
{
    struct kvc_op *op = NULL;
    int rc = begin_drop(kvc, reservation, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = write__finish_drop(op);
    op__free(op);
    return rc;
}

/* ---- store ---- */

static int write_begin_store(struct kvc_ns *ns, const struct kvc_blocks *blocks,
                             const uint64_t *offsets, const uint32_t *tokens, size_t ntokens,
                             enum half half, struct kvc_op **ret_op)
{
    struct kvc *k = ns->kvc;
    int rc = write__check_blocks(ns, blocks);
    if (rc == 0)
        rc = write__check_tokens(k, tokens, ntokens);
    if (rc == 0 && offsets == NULL)
        rc = kvc__fail(k, -EINVAL, "offsets is NULL");
    if (rc == 0 && count_named((const uint8_t *)(const void *)offsets, blocks->n) < blocks->n)
        rc = kvc__fail(k, -EINVAL,
                       "UINT64_MAX is no offset: a store is of blocks that are in "
                       "staging; leave blocks out with reserve and commit");
    if (rc < 0)
        return rc;
    if (blocks->flags & KVC_F_NO_STORE)
        return write__decline(ns, KVC_OP_STORE, blocks->n, half, ret_op);
    struct kvc_op *op = NULL;
    rc = write__new_op(ns, KVC_OP_STORE, half, &op);
    if (rc == 0) {
        struct wish_bytes wishes;
        struct msg_store m = {.reserve = write__to_msg(ns, blocks, &wishes),
                              .offsets = bin_of(offsets, 8u * (size_t)blocks->n),
                              .tokens = bin_of(tokens, 4 * ntokens)};
        op->group = blocks->group;
        op->blocks = blocks->n;
        rc = op__send(op, codec_enc_store(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    }
    if (rc < 0) {
        op__free(op);
        return write__dropped(k, blocks->n, ns->group[blocks->group].block_bytes, rc);
    }
    *ret_op = op;
    return 0;
}

int kvc_store_begin(struct kvc_ns *ns, const struct kvc_blocks *blocks, const uint64_t *offsets,
                    const uint32_t *tokens, size_t ntokens, struct kvc_op **ret_op)
{
    return write_begin_store(ns, blocks, offsets, tokens, ntokens, BEGINNING, ret_op);
}

int write__finish_store(struct kvc_op *op, uint8_t *ret_statuses)
{
    int rc = op__await(op);
    if (rc == 0 && ret_statuses == NULL)
        rc = kvc__fail(op->kvc, -EINVAL, "a store's outcome needs room for its statuses");
    if (rc == 0)
        rc = op->declined ? all_declined(op, ret_statuses)
                          : take_statuses(op, op->blocks, ret_statuses);
    return write__dropped(op->kvc, op->blocks, op->ns->group[op->group].block_bytes, rc);
}

int kvc_store(struct kvc_ns *ns, const struct kvc_blocks *blocks, const uint64_t *offsets,
              const uint32_t *tokens, size_t ntokens, uint8_t *statuses)
{
    struct kvc_op *op = NULL;
    int rc = write_begin_store(ns, blocks, offsets, tokens, ntokens, BLOCKING, &op);
    if (rc < 0)
        return rc;
    rc = write__finish_store(op, statuses);
    op__free(op);
    return rc;
}
