/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads replies that are lists, one item at a time, so that neither side needs room for
 * all items. STATS is one; rows.c builds the reply of LIST on it.
 */
#include <errno.h>
#include <string.h>

#include "message.h"

/* The number of items is known only at the end. Until then the list leaves room for the longest
 * array header. Then it moves the items up to the shortest header, so that the encoding is
 * canonical. */
enum { COUNT_ROOM = 5 };

int list__start(struct codec_list *list, const struct pack *pk)
{
    if (pk->err != 0)
        return pk->err;
    if (pk->cap - pk->len < COUNT_ROOM)
        return -ENOSPC;
    *list = (struct codec_list){
        .buf = pk->buf, .cap = pk->cap, .len = pk->len + COUNT_ROOM, .count_at = pk->len};
    return 0;
}

int codec_list_begin(struct codec_list *list, void *buf, size_t cap, const struct msg_head *head)
{
    struct pack pk;
    pack_init(&pk, buf, cap);
    message_pack_reply_head(&pk, head, KVC_ST_OK, 2);
    size_t more_at = pk.len;
    pack_uint(&pk, 0);
    const int rc = list__start(list, &pk);
    if (rc == 0)
        list->more_at = more_at;
    return rc;
}

int list__add(struct codec_list *list, const struct schema *schema, const void *item)
{
    struct pack pk;
    if (list->full)
        return -ENOSPC;
    pack_init(&pk, list->buf + list->len, list->cap - list->len);
    pack_array(&pk, schema->nfields);
    message_pack_fields(&pk, schema, item);
    if (pk.err != 0) {
        list->full = pk.err == -ENOSPC;
        return pk.err;
    }
    list->len += pk.len;
    list->count++;
    return 0;
}

int codec_list_add_stat(struct codec_list *list, const struct msg_stat *item)
{
    return list__add(list, &codec__item_stat, item);
}

size_t list__close(struct codec_list *list)
{
    struct pack pk;
    uint8_t *items = list->buf + list->count_at + COUNT_ROOM;
    size_t items_bytes = list->len - list->count_at - COUNT_ROOM;
    pack_init(&pk, list->buf + list->count_at, COUNT_ROOM);
    pack_array(&pk, list->count);
    memmove(list->buf + list->count_at + pk.len, items, items_bytes);
    list->len = list->count_at + pk.len + items_bytes;
    return list->len;
}

size_t codec_list_end(struct codec_list *list, bool more)
{
    list->buf[list->more_at] = more ? 1 : 0;
    return list__close(list);
}

int codec_iter_begin(const void *buf, size_t len, struct msg_reply_head *ret_head,
                     struct codec_iter *ret_iter)
{
    struct unpack un;
    uint8_t more = 0;
    unpack_init(&un, buf, len);
    uint32_t n = message_unpack_reply_head(&un, ret_head);
    if (un.err == 0 && ret_head->op != KVC_OP_STATS)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "a reply to an operation that has no list");
    if (un.err == 0 && ret_head->status != KVC_ST_OK)
        return message_error(ret_head->status);
    if (un.err == 0 && n != 2)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "the reply has too few or too many fields");
    unpack_fields(&un, &codec__rep_list, &more);
    uint32_t left = unpack_array(&un, "items must be an array of arrays");
    if (un.err != 0) {
        ret_head->detail = codec_text(un.detail);
        return un.err;
    }
    *ret_iter = (struct codec_iter){.p = un.c.p, .end = un.c.end, .left = left, .more = more == 1};
    return 0;
}

/* An invalid item is not skipped: every further call fails at it. */
int codec_iter_stat(struct codec_iter *iter, struct msg_stat *ret_item)
{
    const struct schema *schema = &codec__item_stat;
    struct msg_stat item = {.kind = 0};
    struct unpack un;
    unpack_init(&un, iter->p, (size_t)(iter->end - iter->p));
    if (iter->left == 0) {
        unpack_end(&un);
        return un.err;
    }
    uint32_t n = unpack_array(&un, "an item must be an array");
    if (un.err == 0 && n != schema->nfields)
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "an item has too few or too many fields");
    unpack_fields(&un, schema, &item);
    if (un.err != 0)
        return un.err;
    *ret_item = item;
    iter->p = un.c.p;
    iter->left--;
    return 1;
}
