/* SPDX-License-Identifier: Apache-2.0 */
#include "adapt.h"

#include <endian.h>
#include <string.h>

#include "cursor.h"
#include "field.h"
#include "messages.h"

/* ---- learning ---- */

static void keep(uint64_t *list, unsigned *n, uint64_t id)
{
    if (id != 0)
        list[(*n)++ % ADAPT_KEPT] = id;
}

/* Of replies that come in pieces. */
static void learn_cursor(struct adapt *a, uint8_t op, const void *reply, size_t len)
{
    static struct msg_verify_reply verify;
    static struct msg_trace_dump_reply dump;
    struct msg_reply_head head;
    struct codec_rows rows;
    struct kvc_block_info row;
    uint64_t at;
    const struct kvc_table *blocks = codec_table(KVC_TABLE_BLOCKS);
    if (op == KVC_OP_LIST && codec_rows_read(reply, len, blocks, &head, &rows) == 0) {
        while (codec_rows_next(&rows, &row) == 1)
            ;
        if (rows.cursor.n == sizeof(at)) {
            memcpy(&at, rows.cursor.p, sizeof(at));
            keep(a->cursor, &a->ncursor, le64toh(at));
        }
    } else if (op == KVC_OP_VERIFY && codec_dec_verify_reply(reply, len, &head, &verify) == 0)
        keep(a->cursor, &a->ncursor, verify.cursor);
    else if (op == KVC_OP_TRACE_DUMP && codec_dec_trace_dump_reply(reply, len, &head, &dump) == 0)
        keep(a->cursor, &a->ncursor, dump.cursor);
}

void adapt_learn(struct adapt *a, const void *reply, size_t len)
{
    struct msg_reply_head head;
    struct msg_ns_open_reply ns;
    struct msg_reserve_reply reserve;
    struct msg_acquire_reply acquire;
    if (codec_dec_reply_head(reply, len, &head) < 0 || head.status != KVC_ST_OK)
        return;
    if (head.op == KVC_OP_NS_OPEN && codec_dec_ns_open_reply(reply, len, &head, &ns) == 0) {
        keep(a->ns, &a->nns, ns.ns);
    } else if (head.op == KVC_OP_RESERVE &&
               codec_dec_reserve_reply(reply, len, &head, &reserve) == 0) {
        keep(a->reservation, &a->nreservation, reserve.reservation);
    } else if (head.op == KVC_OP_ACQUIRE &&
               codec_dec_acquire_reply(reply, len, &head, &acquire) == 0) {
        keep(a->lease, &a->nlease, acquire.lease);
        memcpy(a->ticket[a->nticket++ % ADAPT_KEPT], acquire.ticket, KVC_TICKET_BYTES);
    } else {
        learn_cursor(a, head.op, reply, len);
    }
}

/* ---- replacing ---- */

static uint64_t one_of(const uint64_t *list, unsigned n, uint8_t pick)
{
    return list[pick % (n < ADAPT_KEPT ? n : ADAPT_KEPT)];
}

/* Of LIST. */
static void put_cursor(uint64_t cursor, uint8_t *at)
{
    static uint64_t bytes;
    const struct codec_bin blob = {(const uint8_t *)&bytes, sizeof(bytes)};
    bytes = htole64(cursor);
    memcpy(at, &blob, sizeof(blob));
}

static void replace_field(const struct adapt *a, uint8_t pick, const struct field *f, uint8_t *at)
{
    static const uint8_t zero;
    const char *dot = strrchr(f->name, '.');
    const char *name = dot != NULL ? dot + 1 : f->name;
    name += strspn(name, " ");
    if (strcmp(name, "ns") == 0 && a->nns > 0)
        field_put_uint(at, f->width, one_of(a->ns, a->nns, pick));
    else if (strcmp(name, "reservation") == 0 && a->nreservation > 0)
        field_put_uint(at, f->width, one_of(a->reservation, a->nreservation, pick));
    else if (strcmp(name, "cursor") == 0 && a->ncursor > 0 && pick % 2 == 0 &&
             f->kind == FIELD_BLOB)
        put_cursor(one_of(a->cursor, a->ncursor, pick), at);
    else if (strcmp(name, "cursor") == 0 && a->ncursor > 0 && pick % 2 == 0)
        field_put_uint(at, f->width, one_of(a->cursor, a->ncursor, pick));
    else if (strcmp(name, "target") == 0)
        field_put_uint(at, f->width, a->target);
    else if (strcmp(name, "ticket") == 0 && a->nticket > 0)
        memcpy(at, a->ticket[pick % (a->nticket < ADAPT_KEPT ? a->nticket : ADAPT_KEPT)],
               KVC_TICKET_BYTES);
    else if (strcmp(name, "leases") == 0) {
        struct codec_bin leases = {(const uint8_t *)a->lease, 0};
        leases.n = (a->nlease < ADAPT_KEPT ? a->nlease : ADAPT_KEPT) * sizeof(a->lease[0]);
        if (leases.n == 0)
            leases = (struct codec_bin){&zero, 0};
        memcpy(at, &leases, sizeof(leases));
    }
}

size_t adapt_request(const struct adapt *a, uint8_t pick, uint64_t corr, const void *in, size_t len,
                     void *out, size_t cap)
{
    struct msg_head head;
    static union message_room msg;
    if (codec_dec_head(in, len, &head) < 0)
        return 0;
    for (size_t i = 0; i < message_kinds_n; i++) {
        const struct message_kind *kind = &message_kinds[i];
        if (kind->family != MESSAGE_REQUEST || kind->op != head.op)
            continue;
        if (kind->dec(in, len, &head, &msg) < 0)
            return 0;
        for (unsigned k = 0; k < kind->schema->nfields; k++)
            replace_field(a, pick, &kind->schema->fields[k],
                          msg.bytes + kind->schema->fields[k].at);
        head.corr = corr;
        int n = kind->enc(out, cap, &head, &msg);
        return n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Past one unsigned integer of any width. */
static void skip_uint(struct cursor *c)
{
    uint8_t first = cursor_u8(c);
    if (first >= 0xcc && first <= 0xcf)
        cursor_skip(c, (size_t)1 << (first - 0xcc));
    else if (first >= 0x80)
        c->bad = true;
}

size_t adapt_corr(uint64_t corr, const void *in, size_t len, void *out, size_t cap)
{
    struct cursor c;
    uint8_t *to = out;
    cursor_init(&c, in, len);
    uint8_t first = cursor_u8(&c);
    if (first == 0xdc || first == 0xdd)
        cursor_skip(&c, first == 0xdc ? 2 : 4);
    else if ((first & 0xf0) != 0x90)
        return 0;
    skip_uint(&c);
    if (!cursor_ok(&c))
        return 0;
    size_t head = len - cursor_left(&c);
    skip_uint(&c);
    size_t rest = cursor_left(&c);
    if (!cursor_ok(&c) || head + 9 + rest > cap)
        return 0;
    memcpy(to, in, head);
    to[head] = 0xcf;
    for (unsigned i = 0; i < 8; i++)
        to[head + 1 + i] = (uint8_t)(corr >> (56 - 8 * i));
    if (rest != 0)
        memcpy(to + head + 9, c.p, rest);
    return head + 9 + rest;
}
