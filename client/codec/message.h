/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes and reads one message by its schema: the head that each message begins with, and the
 * fields of its body. message.c builds the functions of codec.h on these; list.c, rows.c and
 * attach.c use them too. Private to the codec.
 */
#ifndef KVC_CODEC_MESSAGE_H
#define KVC_CODEC_MESSAGE_H

#include "codec.h"
#include "pack.h"
#include "schema.h"
#include "unpack.h"

/* Packs each field of `msg`. Sets pk->err to -EINVAL if an array has more items than its C member
 * holds. */
void message_pack_fields(struct pack *pk, const struct schema *schema, const void *msg);
void message_pack_reply_head(struct pack *pk, const struct msg_head *head, uint16_t status,
                             uint32_t nfields);
/* The length of the packed message, or pk->err where packing failed. */
int message_packed(const struct pack *pk);

/* Reads [op | REPLY, corr, status and, if the status is not OK, the detail and the end. *ret_head
 * is usable even if the rest is invalid. Returns the number of fields after the status. */
uint32_t message_unpack_reply_head(struct unpack *un, struct msg_reply_head *ret_head);
/* Maps a status that is not OK to KVC_E_*. A status that this version does not know is INTERNAL. */
int message_error(uint16_t status);
/* ---- list.c; rows.c uses these, too ---- */

/* Begins a list behind what `pk` holds and leaves room for the number of items. 0, or the error of
 * `pk`; -ENOSPC. */
int list__start(struct codec_list *list, const struct pack *pk);
int list__add(struct codec_list *list, const struct schema *schema, const void *item);
/* Writes the number of items and moves the items up to it. Returns the length of the message. */
size_t list__close(struct codec_list *list);

#endif
