/* SPDX-License-Identifier: Apache-2.0 */
/* Any message of the protocol by its name: decodes it, prints it as the vector files do, encodes it
 * again. */
#ifndef KVC_GOLDEN_MESSAGES_H
#define KVC_GOLDEN_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema.h"

enum message_family { MESSAGE_REQUEST, MESSAGE_REPLY, MESSAGE_ATTACH, MESSAGE_LIST, MESSAGE_HEAD };

/* Room for any message struct. */
union message_room {
    _Alignas(16) uint8_t bytes[65536];
};

struct message_kind {
    const char *name; /* "lookup", "lookup_reply", "att_hello", "error", "head", ... */
    enum message_family family;
    const struct schema *schema; /* schema of the fields after the head; of a list: of its items */
    uint8_t op;
    /* ret_head: a struct msg_head or struct msg_reply_head, or unused, depending on the family. */
    int (*dec)(const void *buf, size_t len, void *ret_head, void *ret_msg);
    int (*enc)(void *buf, size_t cap, const void *head, const void *msg);
};

extern const struct message_kind message_kinds[];
extern const size_t message_kinds_n;
/* NULL: no message has that name. */
const struct message_kind *message_find(const char *name);

/* The result of decoding some bytes. */
struct message_outcome {
    int rc;           /* return value of the decoder; of a list its first error, or 0 */
    char detail[600]; /* detail of the head; "" if it has none */
    char *text;       /* the message as in the vector files if rc is 0, else NULL */
    uint8_t *out;     /* the message encoded again if rc is 0 */
    int out_len;      /* what the encoder returned */
};
struct message_outcome message_recode(const struct message_kind *kind, const void *buf, size_t len);
void message_outcome_free(struct message_outcome *o);

/* The lines of a request or reply, from its struct. The caller frees them. */
char *message_print(const struct message_kind *kind, const void *head, const void *msg);

#endif
