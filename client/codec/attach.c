/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the attach channel, [code, field, ...]: identity, descriptors of memory, and the end
 * of a session. They travel over the unix socket, beside the requests on the ZeroMQ socket.
 */
#include <string.h>

#include "message.h"

#define NO_ATTACH "not an attach message: an array that begins with a code from 1 to 13"

static uint32_t unpack_code(struct unpack *un, uint8_t *ret_code)
{
    uint32_t n = unpack_array(un, NO_ATTACH);
    *ret_code = (uint8_t)unpack_uint(un, KVC_ATTACH_HELLO, KVC_ATTACH_UNMAPPED, NO_ATTACH);
    if (un->err != 0)
        un->err = KVC_E_BAD_MESSAGE;
    return n;
}

int codec_att_code(const void *buf, size_t len)
{
    struct unpack un;
    uint8_t code;
    unpack_init(&un, buf, len);
    (void)unpack_code(&un, &code);
    return un.err != 0 ? un.err : code;
}

static int encode_attach(const struct schema *schema, void *buf, size_t cap, const void *msg)
{
    struct pack pk;
    pack_init(&pk, buf, cap);
    pack_array(&pk, 1u + schema->nfields);
    pack_uint(&pk, schema->ops[0]);
    message_pack_fields(&pk, schema, msg);
    return message_packed(&pk);
}

static int decode_attach(const struct schema *schema, const void *buf, size_t len, void *msg)
{
    struct unpack un;
    uint8_t code;
    unpack_init(&un, buf, len);
    uint32_t n = unpack_code(&un, &code);
    if (un.err == 0 && (code != schema->ops[0] || n != 1u + schema->nfields))
        unpack_fail(&un, KVC_E_BAD_MESSAGE, "another code, or too few or too many fields");
    unpack_fields(&un, schema, msg);
    unpack_end(&un);
    const char *wrong = un.err == 0 && schema->check != NULL ? schema->check(msg) : NULL;
    if (wrong != NULL)
        unpack_fail(&un, KVC_E_BAD_ARGUMENT, wrong);
    return un.err;
}

#define X(name)                                                                       \
    int codec_enc_att_##name(void *buf, size_t cap, const struct att_##name *msg)     \
    {                                                                                 \
        return encode_attach(&codec__att_##name, buf, cap, msg);                      \
    }                                                                                 \
    int codec_dec_att_##name(const void *buf, size_t len, struct att_##name *ret_msg) \
    {                                                                                 \
        struct att_##name msg;                                                        \
        memset(&msg, 0, sizeof(msg));                                                 \
        int rc = decode_attach(&codec__att_##name, buf, len, &msg);                   \
        if (rc == 0)                                                                  \
            *ret_msg = msg;                                                           \
        return rc;                                                                    \
    }
CODEC_ATTACH_LIST(X)
#undef X
