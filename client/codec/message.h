/* SPDX-License-Identifier: Apache-2.0 */
/* Heads and bodies by schema, for the functions of codec.h. Private to the codec. */
#ifndef KVC_CODEC_MESSAGE_H
#define KVC_CODEC_MESSAGE_H

#include "codec.h"
#include "pack.h"
#include "schema.h"
#include "unpack.h"

/* -EINVAL in pk->err: an array with more items than its C member holds. */
void message_pack_fields(struct pack *pk, const struct schema *schema, const void *msg);
void message_pack_reply_head(struct pack *pk, const struct msg_head *head, uint16_t status,
                             uint32_t nfields);
/* The length, or the error. */
int message_packed(const struct pack *pk);

/* Reads [op | REPLY, corr, status and, unless OK, the detail and the end. Whatever is wrong,
 * *ret_head is usable. Returns the number of fields after the status. */
uint32_t message_unpack_reply_head(struct unpack *un, struct msg_reply_head *ret_head);
/* KVC_E_* of a status that is not OK; one that this version does not know is INTERNAL. */
int message_error(uint16_t status);
/* ---- list.c, for rows.c ---- */

/* Room for the number of items behind what is packed; 0 or the error. */
int list__start(struct codec_list *list, const struct pack *pk);
int list__add(struct codec_list *list, const struct schema *schema, const void *item);
/* The items move up to their number. Returns the length. */
size_t list__close(struct codec_list *list);

bool message_has_op(const struct schema *schema, uint8_t op);

#endif
