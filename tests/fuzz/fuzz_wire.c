/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes as every message there is. The input is one message. Each decoder takes or refuses it; what
 * it takes is written again, no longer than it came, and read again to the same; msgpack-c reads it
 * as one object of the same bytes.
 */
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "messages.h"

/* Encoders clip texts for people, so a longer one does not come back as it was. */
static int may_be_clipped(const struct message_kind *kind, size_t size)
{
    if (size <= CODEC_DETAIL_MAX)
        return 0;
    for (unsigned i = 0; i < kind->schema->nfields; i++)
        if (kind->schema->fields[i].kind == FIELD_DETAIL)
            return 1;
    return kind->family == MESSAGE_HEAD;
}

static void check_other_reader(const char *name, const uint8_t *data, size_t size)
{
    msgpack_unpacked object;
    size_t at = 0;
    msgpack_unpacked_init(&object);
    msgpack_unpack_return rc = msgpack_unpack_next(&object, (const char *)data, size, &at);
    FUZZ_CHECK(rc == MSGPACK_UNPACK_SUCCESS && at == size &&
                   object.data.type == MSGPACK_OBJECT_ARRAY,
               "%s: msgpack-c says %d after %zu of %zu bytes", name, (int)rc, at, size);
    msgpack_unpacked_destroy(&object);
}

static void check_again(const struct message_kind *kind, const struct message_outcome *first,
                        size_t size)
{
    uint8_t *bytes = fuzz_copy(first->out, (size_t)first->out_len);
    struct message_outcome again = message_recode(kind, bytes, (size_t)first->out_len);
    /* Rows are written with all columns of their table, also those that were not there. */
    const bool rows = kind->family == MESSAGE_LIST && kind->op == KVC_OP_LIST;
    FUZZ_CHECK(rows || (size_t)first->out_len <= size, "%s: %zu bytes became %d", kind->name, size,
               first->out_len);
    FUZZ_CHECK(again.rc == 0, "%s: what was written is refused: %d %s", kind->name, again.rc,
               again.detail);
    FUZZ_CHECK(may_be_clipped(kind, size) || strcmp(first->text, again.text) == 0,
               "%s reads otherwise:\n%s\n%s", kind->name, first->text, again.text);
    FUZZ_CHECK(again.out_len == first->out_len &&
                   memcmp(again.out, first->out, (size_t)first->out_len) == 0,
               "%s is written otherwise", kind->name);
    message_outcome_free(&again);
    free(bytes);
}

/* What a decoder refuses leaves the message alone and has a reason; a good head is given back. */
static void check_refusal(const struct message_kind *kind, const uint8_t *data, size_t size)
{
    static union message_room msg, before;
    const size_t bytes = kind->schema->size;
    struct msg_head head, only;
    if (kind->family != MESSAGE_REQUEST)
        return;
    memset(&msg, 0x5a, bytes);
    memset(&before, 0x5a, bytes);
    int rc = kind->dec(data, size, &head, &msg);
    int headed = codec_dec_head(data, size, &only);
    FUZZ_CHECK(rc == 0 || rc == KVC_E_BAD_MESSAGE || rc == KVC_E_BAD_ARGUMENT, "%s: %d", kind->name,
               rc);
    FUZZ_CHECK(rc == 0 || memcmp(&msg, &before, bytes) == 0, "%s wrote to it", kind->name);
    FUZZ_CHECK(rc == 0 || (head.detail != NULL && head.detail[0] != '\0'), "%s: no reason",
               kind->name);
    FUZZ_CHECK(headed == 0 || rc != 0, "%s has no head", kind->name);
    FUZZ_CHECK(headed != 0 || (head.op == only.op && head.corr == only.corr), "%s lost its head",
               kind->name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned long taken = 0;
    int code = codec_att_code(data, size);
    FUZZ_CHECK(code == KVC_E_BAD_MESSAGE ||
                   (code >= KVC_ATTACH_HELLO && code <= KVC_ATTACH_UNMAPPED),
               "attach code %d", code);
    for (size_t i = 0; i < message_kinds_n; i++) {
        const struct message_kind *kind = &message_kinds[i];
        struct message_outcome o = message_recode(kind, data, size);
        check_refusal(kind, data, size);
        if (o.rc == 0 && kind->family != MESSAGE_HEAD)
            check_other_reader(kind->name, data, size);
        /* "error" is asked to write a reply with status OK as well, which it does not. */
        FUZZ_CHECK(o.rc != 0 || kind->enc == NULL || o.out_len > 0 || kind->family == MESSAGE_HEAD,
                   "%s: written with %d", kind->name, o.out_len);
        if (o.rc == 0 && o.out_len > 0)
            check_again(kind, &o, size);
        taken += o.rc == 0 && kind->family != MESSAGE_HEAD;
        message_outcome_free(&o);
    }
    *(taken > 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    return 0;
}
