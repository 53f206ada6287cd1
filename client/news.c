/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles the datagrams of the attach channel after the WELCOME: chunks that arrive or retire,
 * words, memory, DROPPED. Each goes to the file of its subject.
 */
#include "client.h"

#include <errno.h>
#include <string.h>

#include "client_gpu__.h"

/* The question about this chunk was answered: continues the requests that wait for chunks. refused:
 * 0, or the error. */
static void chunk_came(struct kvc *k, uint64_t what, uint32_t chunk, int refused)
{
    kvc__chunk_answered(k, what, chunk);
    struct kvc_op *op = k->ops.live;
    while (op != NULL && k->state != LINK_DOWN) {
        struct kvc_op *next = op->next;
        if (op->stage == OP_CHUNKS)
            read__go_on(op, chunk, refused);
        op = next;
    }
}

static int take_chunk(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_chunk c;
    if (codec_dec_att_chunk(buf, len, &c) < 0)
        return kvc__malformed(k, "CHUNK");
    int rc = 0;
    if (c.status != KVC_ST_OK) {
        rc = kvc__fail(k, kvc__status_error(c.status), "chunk %u: %.*s", c.chunk, (int)c.detail.n,
                       (const char *)c.detail.p);
    } else {
        rc = passed < 0 ? -EINVAL : map__add(&k->maps, c.chunk, passed, c.bytes);
        if (rc == -EINVAL)
            return kvc__malformed(k, "CHUNK (no descriptor, or one of a shorter file)");
        if (rc < 0)
            rc = kvc__fail(k, rc, "cannot map chunk %u of %llu bytes: %s", c.chunk,
                           (unsigned long long)c.bytes, strerrordesc_np(-rc));
    }
    chunk_came(k, ASK_MAP, c.chunk, rc);
    return k->state == LINK_DOWN ? k->down_error : 0;
}

static int take_chunk_on(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    uint32_t chunk = 0;
    int rc = device__chunk_on(k, buf, len, passed, &chunk);
    if (k->state == LINK_DOWN)
        return rc;
    chunk_came(k, ASK_ON, chunk, rc);
    return k->state == LINK_DOWN ? k->down_error : 0;
}

/* Continues the pools that wait for a memory or for words. rc: the handler's result; 1 = an answer
 * came, 0 = no pool waits for it, or an error. */
static int pools_go_on(struct kvc *k, int rc)
{
    if (rc <= 0)
        return rc;
    pool__mem_came(k);
    return k->state == LINK_DOWN ? k->down_error : 0;
}

int news__take(struct kvc *k, const uint8_t *buf, size_t len, int passed)
{
    struct att_retired r;
    switch (codec_att_code(buf, len)) {
    case KVC_ATTACH_CHUNK:
        return take_chunk(k, buf, len, passed);
    case KVC_ATTACH_RETIRED:
        if (codec_dec_att_retired(buf, len, &r) < 0)
            return kvc__malformed(k, "RETIRED");
        map__retire(&k->maps, r.chunk);
        kvc__tell_unmapped(k);
        return 0;
    case KVC_ATTACH_DROPPED:
        return kvc__dropped(k, buf, len);
    case KVC_ATTACH_WORDS_ARE:
        return pools_go_on(k, words__are(k, buf, len, passed));
    case KVC_ATTACH_MEM_IS:
        return pools_go_on(k, mem__is(k, buf, len));
    case KVC_ATTACH_CHUNK_ON:
        return take_chunk_on(k, buf, len, passed);
    default:
        return kvc__malformed(k, "attach message");
    }
}
