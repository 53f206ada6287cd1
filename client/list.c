/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvc_list(): walks one of the daemon's tables (pins, quotas and others), page by page, for tools.
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#define ROW_BYTES_MAX 2048u
#define X(number, table, text, row) \
    _Static_assert(sizeof(struct row) <= ROW_BYTES_MAX, "rows have room here");
KVC_TABLE_MAP(X)
#undef X

const struct kvc_table *kvc_table(enum kvc_table_id table)
{
    return codec_table(table);
}

/* Where the next page begins: a copy, because the op's message is freed. */
struct place {
    uint8_t cursor[KVC_CURSOR_MAX];
    uint32_t n;
};

/* Whether the next page begins where this one began, which would be an endless walk. */
static bool is_stuck(const struct place *at, const struct codec_bin *next)
{
    return next->n > 0 && next->n == at->n && memcmp(next->p, at->cursor, next->n) == 0;
}

static int walk_rows(struct kvc_op *op, struct codec_rows *rows, struct place *at,
                     int (*fn)(void *ctx, const void *row), void *ctx)
{
    _Alignas(8) uint8_t row[ROW_BYTES_MAX];
    int rc, ended = 0;
    while ((rc = codec_rows_next(rows, row)) > 0 && ended == 0)
        ended = fn(ctx, row);
    if (ended != 0)
        return ended;
    rc = op__checked(op, rc < 0 || !is_stuck(at, &rows->cursor) ? rc : KVC_E_BAD_MESSAGE);
    if (rc == 0 && (at->n = rows->cursor.n) > 0)
        memcpy(at->cursor, rows->cursor.p, at->n);
    return rc;
}

static int list_page(struct kvc *k, const struct kvc_table *table, const struct kvc_filter *filter,
                     struct place *at, int (*fn)(void *ctx, const void *row), void *ctx)
{
    struct kvc_op *op;
    struct msg_reply_head head;
    struct codec_rows rows;
    int rc = op__begin(k, KVC_OP_LIST, &op);
    if (rc < 0)
        return rc;
    struct msg_list m = {.table = (uint8_t)table->id, .cursor = {.p = at->cursor, .n = at->n}};
    if (filter != NULL) {
        m.prefix = codec_text(filter->prefix);
        m.exact = filter->exact;
        m.sub = codec_text(filter->sub_tenant);
        m.ns = filter->ns;
        m.group = filter->group;
        m.mode = (uint8_t)filter->mode;
        m.keys = (struct codec_bin){.p = filter->keys, .n = filter->n * KVC_KEY_BYTES};
        m.depth = filter->depth;
    }
    rc = op__call(op, codec_enc_list(k->tx, KVC_MESSAGE_MAX, &op->head, &m));
    if (rc == 0)
        rc = op__checked(op, codec_rows_read(op->msg.data, op->msg.len, table, &head, &rows));
    if (rc == 0)
        rc = walk_rows(op, &rows, at, fn, ctx);
    op__free(op);
    return rc;
}

int kvc_list(struct kvc *kvc, enum kvc_table_id table, const struct kvc_filter *filter,
             int (*fn)(void *ctx, const void *row), void *ctx)
{
    const struct kvc_table *t = codec_table(table);
    struct place at = {.n = 0};
    int rc;
    if (t == NULL)
        return kvc__fail(kvc, -EINVAL, "there is no table %d", (int)table);
    do
        rc = list_page(kvc, t, filter, &at, fn, ctx);
    while (rc == 0 && at.n > 0);
    return rc;
}
