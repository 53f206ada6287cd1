/* SPDX-License-Identifier: Apache-2.0 */
/* The codec by hand: what its header promises beyond the golden vectors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "codec.h"

static uint8_t buf[KVC_MESSAGE_MAX];

static struct codec_bin text(const char *s)
{
    return (struct codec_bin){.p = (const uint8_t *)s, .n = (uint32_t)strlen(s)};
}

static void expect_hex(const char *hex, const void *bytes, int len)
{
    char got[4096];
    ck_assert_int_ge(len, 0);
    ck_assert_int_lt(2 * len, (int)sizeof(got));
    for (int i = 0; i < len; i++)
        snprintf(got + 2 * i, 3, "%02x", ((const uint8_t *)bytes)[i]);
    ck_assert_str_eq(got, hex);
}

static bool is_filled(const void *p, uint8_t with, size_t n)
{
    const uint8_t *bytes = p;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

/* ---- members by name, so that no table can be wrong twice ---- */

CASE(members_are_where_the_protocol_has_them)
{
    struct msg_head head = {.corr = 9, .deadline_ms = 7};
    struct msg_acquire acquire = {.seq = {.ns = 1,
                                          .sub = text("s"),
                                          .tokens = 2,
                                          .ngroups = 2,
                                          .keys = {{(const uint8_t *)"", 0}, {NULL, 0}}},
                                  .flags = KVC_F_WAIT,
                                  .shard = 3,
                                  .from_tokens = 4,
                                  .wait_tokens = 5};
    expect_hex("9b0509070"
               "1a1730292c400c40001030405",
               buf, codec_enc_acquire(buf, sizeof(buf), &head, &acquire));

    struct msg_commit commit = {
        .reservation = 1, .first = 2, .offsets = text("12345678"), .tokens = text("abcd")};
    expect_hex("9709090701"
               "02c4083132333435363738c40461626364",
               buf, codec_enc_commit(buf, sizeof(buf), &head, &commit));

    struct msg_evict evict = {.flags = KVC_F_DRY_RUN, .ns = 1, .older_than_ms = 2, .bytes = 3};
    expect_hex("9b1009070401c4000203a0a000", buf, codec_enc_evict(buf, sizeof(buf), &head, &evict));
}

CASE(an_acquire_reply_is_read_member_by_member)
{
    uint8_t locs[2 * KVC_LOC_BYTES];
    struct msg_loc loc = {.chunk = 1, .bytes = 2, .off = 3, .hdr = 4, .gen = 5}, back;
    codec_put_loc(locs, &loc);
    loc.gen = UINT64_C(0x8877665544332211);
    codec_put_loc(locs + KVC_LOC_BYTES, &loc);
    struct msg_head head = {.op = KVC_OP_REDEEM, .corr = 77};
    struct msg_acquire_reply in = {.hit_tokens = 10,
                                   .lease = 11,
                                   .ticket = "0123456789abcde",
                                   .ngroups = 2,
                                   .groups = {{.first = 12, .locs = {locs, sizeof(locs)}},
                                              {.first = 13, .reason = 14, .detail = 15}}};
    struct msg_acquire_reply out;
    struct msg_reply_head rhead;
    int len = codec_enc_acquire_reply(buf, sizeof(buf), &head, &in);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_dec_acquire_reply(buf, (size_t)len, &rhead, &out), 0);
    ck_assert_uint_eq(rhead.op, KVC_OP_REDEEM);
    ck_assert_uint_eq(rhead.corr, 77);
    ck_assert_uint_eq(out.hit_tokens, 10);
    ck_assert_uint_eq(out.lease, 11);
    ck_assert_mem_eq(out.ticket, "0123456789abcde", 16);
    ck_assert_uint_eq(out.ngroups, 2);
    ck_assert_uint_eq(out.groups[0].first, 12);
    ck_assert_uint_eq(out.groups[0].locs.n, sizeof(locs));
    ck_assert(out.groups[0].locs.p > buf && out.groups[0].locs.p < buf + len); /* borrowed */
    ck_assert_uint_eq(out.groups[1].first, 13);
    ck_assert_uint_eq(out.groups[1].reason, 14);
    ck_assert_uint_eq(out.groups[1].detail, 15);
    codec_get_loc(out.groups[0].locs.p + KVC_LOC_BYTES, &back);
    ck_assert_uint_eq(back.chunk, 1);
    ck_assert_uint_eq(back.bytes, 2);
    ck_assert_uint_eq(back.off, 3);
    ck_assert_uint_eq(back.hdr, 4);
    ck_assert_uint_eq(back.gen, UINT64_C(0x8877665544332211));
}

CASE(a_location_is_little_endian)
{
    uint8_t loc[KVC_LOC_BYTES];
    codec_put_loc(loc,
                  &(struct msg_loc){.chunk = 1, .bytes = 0x0203, .off = 4, .hdr = 5, .gen = 6});
    expect_hex("0100000003020000"
               "040000000000000005000000000000000600000000000000",
               loc, sizeof(loc));
}

CASE(messages_of_devices_are_where_the_protocol_has_them)
{
    struct msg_head head = {.corr = 9, .deadline_ms = 7};
    struct msg_pages_load load = {.seq = {.ns = 1, .tokens = 2, .ngroups = 1},
                                  .flags = KVC_F_ALL,
                                  .shard = 3,
                                  .from_tokens = 4,
                                  .wait_tokens = 5,
                                  .pool = 6,
                                  .after_word = 7,
                                  .after_value = 8,
                                  .ready_word = 9,
                                  .ready_value = 10,
                                  .ngroups = 1,
                                  .pages = {{text("abcd")}}};
    expect_hex("dc0011280907"
               "01a00291c400cd020003040506070809"
               "0a91c40461626364",
               buf, codec_enc_pages_load(buf, sizeof(buf), &head, &load));

    struct att_mem mem = {
        .mem = 1, .uuid = "0123456789abcde", .kind = KVC_HANDLE_FD, .bytes = 2, .ipc = {NULL, 0}};
    expect_hex("970901c410"
               "303132333435363738396162636465000102"
               "00c400",
               buf, codec_enc_att_mem(buf, sizeof(buf), &mem));
}

CASE(a_region_is_little_endian)
{
    uint8_t bytes[KVC_REGION_BYTES];
    struct msg_region region = {.mem = 1,
                                .layer = 2,
                                .base = 3,
                                .stride_bytes = 0x0405,
                                .page_bytes = 6},
                      back;
    codec_put_region(bytes, &region);
    expect_hex("0100000002000000"
               "0300000000000000"
               "0504000000000000"
               "0600000000000000"
               "0000000000000000",
               bytes, sizeof(bytes));
    codec_get_region(bytes, &back);
    ck_assert_mem_eq(&back, &region, sizeof(region));
}

/* ---- heads ---- */

CASE(a_good_head_is_read_whatever_follows)
{
    static const struct {
        const char *bytes;
        size_t len;
        uint8_t op;
        uint32_t deadline_ms;
    } cases[] = {
        {"\x93\x63\x07\x05", 4, 99, 5},                /* no such operation */
        {"\x93\x00\x07\x05", 4, 0, 5},                 /* nor this */
        {"\x93\x7f\x07\x05", 4, 127, 5},               /* nor this */
        {"\x94\x04\x07\x05\xc1", 5, 4, 5},             /* then nonsense */
        {"\x94\x04\x07\x05\x00\x00\x00", 7, 4, 5},     /* then bytes too many */
        {"\xdd\x00\x00\x00\x03\x04\x07\x05", 8, 4, 5}, /* not the shortest header */
        {"\x93\x04\x07\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 12, 4, UINT32_MAX},
        {"\x93\x04\x07\xce\xff\xff\xff\xff", 8, 4, UINT32_MAX},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct msg_head head;
        ck_assert_int_eq(codec_dec_head(cases[i].bytes, cases[i].len, &head), 0);
        ck_assert_uint_eq(head.op, cases[i].op);
        ck_assert_uint_eq(head.corr, 7);
        ck_assert_uint_eq(head.deadline_ms, cases[i].deadline_ms);
        ck_assert_ptr_null(head.detail);
    }
}

/* So that it can be answered. */
CASE(a_bad_request_still_gives_its_head)
{
    struct msg_lookup msg;
    struct msg_head head;
    memset(&msg, 0xaa, sizeof(msg));
    ck_assert_int_eq(codec_dec_lookup("\x94\x04\x07\x05\xc0", 5, &head, &msg), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(head.op, KVC_OP_LOOKUP);
    ck_assert_uint_eq(head.corr, 7);
    ck_assert_ptr_nonnull(head.detail);
    ck_assert(is_filled(&msg, 0xaa, sizeof(msg)));
}

CASE(a_bad_head_is_all_zero)
{
    struct msg_head head;
    struct msg_reply_head rhead;
    memset(&head, 0xaa, sizeof(head));
    memset(&rhead, 0xaa, sizeof(rhead));
    ck_assert_int_eq(codec_dec_head("\x93\x04\x07\xc0", 4, &head), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(head.op, 0);
    ck_assert_uint_eq(head.corr, 0);
    ck_assert_uint_eq(head.deadline_ms, 0);
    ck_assert_int_eq(codec_dec_reply_head(NULL, 0, &rhead), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(rhead.op, 0);
    ck_assert_uint_eq(rhead.corr, 0);
    ck_assert_uint_eq(rhead.status, KVC_ST_OK);
    ck_assert_uint_gt(rhead.detail.n, 0);
}

/* ---- errors ---- */

CASE(every_status_comes_back_as_its_error)
{
    struct msg_head head = {.op = KVC_OP_PING, .corr = 5};
    for (unsigned status = 1; status <= UINT16_MAX; status += status < 40 ? 1 : 997) {
        struct msg_ping_reply msg = {.uptime_ms = 123};
        struct msg_reply_head rhead;
        int len = codec_enc_error(buf, sizeof(buf), &head, (uint16_t)status, "why");
        ck_assert_int_gt(len, 0);
        int expected = status < KVC_ST_COUNT ? -(1000 + (int)status) : KVC_E_INTERNAL;
        ck_assert_int_eq(codec_dec_ping_reply(buf, (size_t)len, &rhead, &msg), expected);
        ck_assert_uint_eq(rhead.status, status);
        ck_assert_uint_eq(rhead.corr, 5);
        ck_assert_uint_eq(rhead.detail.n, 3);
        ck_assert_mem_eq(rhead.detail.p, "why", 3);
        ck_assert_uint_eq(msg.uptime_ms, 123);
    }
}

CASE(a_malformed_reply_is_told_from_a_daemon_that_complains)
{
    struct msg_head head = {.op = KVC_OP_PING, .corr = 5};
    struct msg_ping_reply msg;
    struct msg_reply_head rhead;
    ck_assert_int_eq(codec_dec_ping_reply("\x94\xcc\x82\x05\x00\xc0", 6, &rhead, &msg),
                     KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(rhead.status, KVC_ST_OK);
    ck_assert_uint_gt(rhead.detail.n, 0);
    int len = codec_enc_error(buf, sizeof(buf), &head, KVC_ST_BAD_MESSAGE, NULL);
    ck_assert_int_eq(codec_dec_ping_reply(buf, (size_t)len, &rhead, &msg), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(rhead.status, KVC_ST_BAD_MESSAGE);
    ck_assert_uint_eq(rhead.detail.n, 0);
}

CASE(a_long_detail_is_clipped_between_characters)
{
    struct msg_head head = {.op = KVC_OP_PING};
    struct msg_reply_head rhead;
    char detail[CODEC_DETAIL_MAX + 8];
    for (unsigned lead = 0; lead < 3; lead++) {
        memset(detail, 'x', sizeof(detail));
        detail[sizeof(detail) - 1] = '\0';
        /* A character of 3 bytes that begins `lead` bytes before the limit. */
        memcpy(detail + CODEC_DETAIL_MAX - lead, "\xe7\x89\x88", 3);
        int len = codec_enc_error(buf, sizeof(buf), &head, KVC_ST_BUSY, detail);
        ck_assert_int_gt(len, 0);
        ck_assert_int_eq(codec_dec_reply_head(buf, (size_t)len, &rhead), 0);
        ck_assert_uint_eq(rhead.detail.n, CODEC_DETAIL_MAX - lead);
        ck_assert_int_eq(rhead.detail.p[rhead.detail.n - 1], 'x');
    }
    struct att_dropped dropped = {.status = KVC_ST_LIMIT, .detail = text(detail)}, out;
    int len = codec_enc_att_dropped(buf, KVC_ATTACH_MAX, &dropped);
    ck_assert_int_eq(codec_dec_att_dropped(buf, (size_t)len, &out), 0);
    ck_assert_uint_le(out.detail.n, CODEC_DETAIL_MAX);
}

CASE(what_has_no_message_is_refused)
{
    struct msg_head head = {.op = KVC_OP_LOOKUP};
    struct msg_ping_reply ping = {0};
    struct msg_lookup_reply hits = {.ngroups = KVC_GROUPS_MAX + 1};
    struct msg_lookup lookup = {.seq.ngroups = KVC_GROUPS_MAX + 1};
    struct msg_ns_open ns = {.ngroups = UINT32_MAX};
    struct msg_ns_open_reply reply = {.nsimilar = 5};
    ck_assert_int_eq(codec_enc_ping_reply(buf, sizeof(buf), &head, &ping), -EINVAL);
    ck_assert_int_eq(codec_enc_bare(buf, sizeof(buf), &head), -EINVAL);
    ck_assert_int_eq(codec_enc_bare_reply(buf, sizeof(buf), &head), -EINVAL);
    ck_assert_int_eq(codec_enc_error(buf, sizeof(buf), &head, KVC_ST_OK, "fine"), -EINVAL);
    ck_assert_int_eq(codec_enc_lookup(buf, sizeof(buf), &head, &lookup), -EINVAL);
    ck_assert_int_eq(codec_enc_lookup_reply(buf, sizeof(buf), &head, &hits), -EINVAL);
    ck_assert_int_eq(codec_enc_ns_open(buf, sizeof(buf), &head, &ns), -EINVAL);
    head.op = KVC_OP_NS_OPEN;
    ck_assert_int_eq(codec_enc_ns_open_reply(buf, sizeof(buf), &head, &reply), -EINVAL);
}

/* ---- sizes ---- */

CASE(the_largest_messages_fit_their_channel)
{
    static uint8_t blob[KVC_KEYS_MAX * KVC_LOC_BYTES];
    static char name[KVC_PARAMS_MAX];
    memset(name, 'n', sizeof(name) - 1);
    struct msg_head head = {.op = KVC_OP_ACQUIRE, .corr = UINT64_MAX, .deadline_ms = 600000};
    struct msg_acquire acquire = {.seq = {.ns = 1, .ngroups = 1, .keys = {{blob, sizeof(blob)}}}};
    struct msg_acquire_reply held = {.ngroups = 1, .groups = {{.locs = {blob, sizeof(blob)}}}};
    struct msg_acquire out;
    struct msg_acquire_reply rout;
    struct msg_reply_head rhead;
    int len = codec_enc_acquire(buf, sizeof(buf), &head, &acquire);
    ck_assert_int_eq(codec_dec_acquire(buf, (size_t)len, &head, &out), 0);
    ck_assert_uint_eq(out.seq.keys[0].n, sizeof(blob));
    len = codec_enc_acquire_reply(buf, sizeof(buf), &head, &held);
    ck_assert_int_eq(codec_dec_acquire_reply(buf, (size_t)len, &rhead, &rout), 0);
    ck_assert_uint_eq(rout.groups[0].locs.n, sizeof(blob));

    struct att_welcome welcome = {.detail = {(const uint8_t *)name, 255},
                                  .route = "route",
                                  .endpoint = {(const uint8_t *)name, 255},
                                  .principal = {(const uint8_t *)name, 127},
                                  .tenant = {(const uint8_t *)name, 127}};
    len = codec_enc_att_welcome(buf, KVC_ATTACH_MAX, &welcome);
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_att_code(buf, (size_t)len), KVC_ATTACH_WELCOME);
}

/* ---- lists ---- */

static int read_stats(const void *bytes, size_t len, bool *ret_more)
{
    struct msg_reply_head head;
    struct codec_iter iter;
    struct msg_stat stat;
    int n = 0, rc = codec_iter_begin(bytes, len, &head, &iter);
    if (rc != 0)
        return rc;
    while ((rc = codec_iter_stat(&iter, &stat)) == 1) {
        char name[32];
        snprintf(name, sizeof(name), "s%d", n);
        ck_assert_uint_eq(stat.name.n, strlen(name));
        ck_assert_mem_eq(stat.name.p, name, stat.name.n);
        ck_assert_uint_eq(stat.value, (uint64_t)n);
        n++;
    }
    *ret_more = iter.more;
    return rc == 0 ? n : rc;
}

static int add_stats(struct codec_list *list, int n)
{
    for (int i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof(name), "s%d", i);
        struct msg_stat stat = {.name = text(name), .value = (uint64_t)i};
        int rc = codec_list_add_stat(list, &stat);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* Either side of each width that the count can have. */
CASE(a_list_of_any_length_comes_back)
{
    static const int counts[] = {0, 1, 15, 16, 255, 65535, 65536, 100000};
    struct msg_head head = {.op = KVC_OP_STATS, .corr = UINT64_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        struct codec_list list;
        bool more;
        ck_assert_int_eq(codec_list_begin(&list, buf, sizeof(buf), &head), 0);
        ck_assert_int_eq(add_stats(&list, counts[i]), 0);
        size_t len = codec_list_end(&list, i % 2 == 1);
        ck_assert_int_eq(read_stats(buf, len, &more), counts[i]);
        ck_assert_int_eq(more, i % 2 == 1);
    }
}

CASE(a_full_list_keeps_what_fitted)
{
    struct msg_head head = {.op = KVC_OP_STATS, .corr = 3};
    int most = 0;
    for (size_t cap = 0; cap < 400; cap++) {
        struct codec_list list;
        bool more = false;
        uint8_t *out = malloc(cap + 1);
        int rc = codec_list_begin(&list, out, cap, &head);
        if (rc == 0) {
            ck_assert_int_eq(add_stats(&list, 100), -ENOSPC);
            ck_assert(list.full);
            struct msg_stat tiny = {.name = text("t")};
            ck_assert_int_eq(codec_list_add_stat(&list, &tiny), -ENOSPC);
            size_t len = codec_list_end(&list, true);
            ck_assert_uint_le(len, cap);
            int n = read_stats(out, len, &more);
            ck_assert_int_ge(n, most);
            ck_assert(more);
            most = n;
        } else {
            ck_assert_int_eq(rc, -ENOSPC);
            ck_assert_int_eq(most, 0);
        }
        free(out);
    }
    ck_assert_int_gt(most, 30);
}

CASE(an_error_in_a_list_stays)
{
    /* Two items announced, the second one malformed. */
    static const char bytes[] = "\x95\xcc\x8d\x01\x00\x00\x92\x93\xa1s\x00\x01\x93\xa1s\xc0\x01";
    struct msg_reply_head head;
    struct codec_iter iter;
    struct msg_stat stat;
    ck_assert_int_eq(codec_iter_begin(bytes, sizeof(bytes) - 1, &head, &iter), 0);
    ck_assert_int_eq(codec_iter_stat(&iter, &stat), 1);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(codec_iter_stat(&iter, &stat), KVC_E_BAD_MESSAGE);
    ck_assert_uint_eq(stat.value, 1);
}

/* ---- rows ---- */

/* The table of namespaces of another release: some columns of it, two that are not known here. */
struct other_row {
    uint64_t blocks, later;
    char model[KVC_STRING_MAX], word[KVC_PARAMS_MAX];
    uint8_t tip[KVC_KEY_BYTES];
};
#define OTHER(t, n)                                                              \
    {                                                                            \
        .name = #n, .type = KVC_COLUMN_##t, .at = offsetof(struct other_row, n), \
        .bytes = sizeof(((struct other_row *)0)->n)                              \
    }
static const struct kvc_column other_columns[] = {
    OTHER(U64, later), OTHER(U64, blocks), OTHER(TEXT, word), OTHER(KEY, tip), OTHER(NAME, model)};
static const struct kvc_table other = {.name = "namespaces",
                                       .id = KVC_TABLE_NAMESPACES,
                                       .row_bytes = sizeof(struct other_row),
                                       .columns = 5,
                                       .column = other_columns};

CASE(rows_of_another_release_are_read_by_name)
{
    const struct msg_head head = {.op = KVC_OP_LIST, .corr = 9};
    const struct other_row row = {.blocks = 12, .later = UINT64_MAX, .model = "m", .word = "w"};
    struct codec_list list;
    struct codec_rows rows;
    struct msg_reply_head got;
    struct kvc_ns_info ns;
    ck_assert_int_eq(codec_rows_begin(&list, buf, sizeof(buf), &head, &other), 0);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(codec_rows_add(&list, &other, &row), 0);
    const int len = codec_rows_end(&list, codec_text("more"));
    ck_assert_int_gt(len, 0);
    ck_assert_int_eq(codec_rows_read(buf, (size_t)len, codec_table(1), &got, &rows), 0);
    for (int i = 0; i < 3; i++) {
        memset(&ns, 0xff, sizeof(ns));
        ck_assert_int_eq(codec_rows_next(&rows, &ns), 1);
        ck_assert_uint_eq(ns.blocks, 12);
        ck_assert_str_eq(ns.model, "m");
        ck_assert_uint_eq(ns.ns, 0);
        ck_assert_str_eq(ns.tenant, "");
    }
    ck_assert_int_eq(codec_rows_next(&rows, &ns), 0);
    ck_assert_uint_eq(rows.cursor.n, 4);
}

CASE(a_reply_of_rows_that_is_full_keeps_what_fitted)
{
    const struct msg_head head = {.op = KVC_OP_LIST, .corr = 9};
    const struct kvc_table *table = codec_table(KVC_TABLE_NAMESPACES);
    const struct kvc_ns_info row = {.ns = 1, .model = "m"};
    for (size_t cap = 0; cap < 600; cap++) {
        struct codec_list list;
        struct codec_rows rows;
        struct msg_reply_head got;
        struct kvc_ns_info ns;
        uint32_t n = 0;
        uint8_t *out = malloc(cap + 1);
        if (codec_rows_begin(&list, out, cap, &head, table) == 0) {
            while (codec_rows_add(&list, table, &row) == 0)
                n++;
            const int len = codec_rows_end(&list, (struct codec_bin){NULL, 0});
            ck_assert(len == -ENOSPC || ((size_t)len <= cap && len > 0));
            if (len > 0) {
                ck_assert_int_eq(codec_rows_read(out, (size_t)len, table, &got, &rows), 0);
                ck_assert_uint_eq(rows.left, n);
                while (codec_rows_next(&rows, &ns) == 1)
                    n--;
                ck_assert_uint_eq(n, 0);
            }
        }
        free(out);
    }
}

CASE(a_list_that_was_refused_gives_the_status)
{
    struct msg_head head = {.op = KVC_OP_STATS, .corr = 3};
    struct msg_reply_head rhead;
    struct codec_iter iter;
    int len = codec_enc_error(buf, sizeof(buf), &head, KVC_ST_DENIED, "not yours");
    ck_assert_int_eq(codec_iter_begin(buf, (size_t)len, &rhead, &iter), KVC_E_DENIED);
    ck_assert_uint_eq(rhead.detail.n, 9);
}

/* ---- names ---- */

CASE(every_number_has_a_name)
{
    for (unsigned i = 0; i < KVC_ST_COUNT; i++) {
        ck_assert_str_ne(codec_status_name(i), "?");
        ck_assert_uint_gt(strlen(codec_status_text(i)), 3);
    }
    for (unsigned i = 0; i < KVC_MISS_COUNT; i++) {
        ck_assert_str_ne(codec_miss_name(i), "?");
        ck_assert_uint_gt(strlen(codec_miss_text(i)), 3);
    }
    for (unsigned i = 0; i < KVC_NS_FIELD_COUNT; i++)
        ck_assert_str_ne(codec_field_name(i), "?");
    ck_assert_str_eq(codec_status_name(KVC_ST_NO_PARENT), "NO_PARENT");
    ck_assert_str_eq(codec_miss_name(KVC_MISS_EVICTED), "EVICTED");
    ck_assert_str_eq(codec_field_name(KVC_NS_FIELD_KV_HEADS), "kv_heads");
    ck_assert_str_eq(codec_status_name(KVC_ST_COUNT), "?");
    ck_assert_str_eq(codec_miss_name(255), "?");
    ck_assert_str_eq(codec_field_name(UINT32_MAX), "?");
    ck_assert_uint_gt(strlen(codec_status_text(65535)), 3);
    ck_assert_uint_gt(strlen(codec_miss_text(65535)), 3);
}
