/* SPDX-License-Identifier: Apache-2.0 */
/* Each request, its limits, and who may ask for what. */
#include "cases.h"
#include "svc__.h"
#include "svc_rig.h"
#include "svc_rig__.h"

static struct srig s;

static void setup(void)
{
    sr_defaults(&s);
    sr_begin(&s);
}

static void teardown(void)
{
    sr_end(&s);
}

/* ---- store and load ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(what_one_stores_the_other_reads)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE + 1, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    uint64_t store = sr_store(&s, p, &b);
    ck_assert_uint_eq(sr_replies(&s, store), 0); /* when the copies are done */
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
    b.ns = sr_ns(&s, q, "m");
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, q, &b)), 24);
    struct msg_acquire_reply held = sr_held(&s, sr_acquire(&s, q, &b, false));
    ck_assert_uint_eq(held.hit_tokens, 24);
    ck_assert_uint_eq(held.groups[0].locs.n, 3 * KVC_LOC_BYTES);
    for (uint32_t i = 0; i < 3; i++) {
        struct msg_loc loc;
        struct tier_label label;
        codec_get_loc(held.groups[0].locs.p + (size_t)i * KVC_LOC_BYTES, &loc);
        struct tier_view v = {.chunk = loc.chunk, .off = loc.off, .gen = loc.gen};
        ck_assert(fake_tier_label(s.tier, &v, &label));
        ck_assert(fake_is_filled(fake_tier_bytes(s.tier, &v), 64, label.key.b, 0));
    }
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, q, held.lease)), KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
}

CASE(store_of_what_exists_says_so_at_once)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    sr_all(&s, sr_store(&s, p, &b), KVC_ST_EXISTS);
    b.n = 5;
    uint64_t more = sr_store(&s, p, &b);
    sr_copies(&s);
    struct msg_reply_head head;
    struct msg_commit_reply reply;
    SR_READ(&s, more, commit, &head, &reply);
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(reply.statuses.p[i], i < 3 ? KVC_ST_EXISTS : KVC_ST_OK);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_stored, 5);
}

CASE(what_a_store_cannot_copy_does_not_stay_reserved)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *bare = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    sr_all(&s, sr_store(&s, bare, &b), KVC_ST_BAD_ARGUMENT); /* it has no staging */
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
    ck_assert_uint_eq(core_metrics(s.core)->reservations, 0);
    b.n = 65; /* 64 fit into its staging */
    uint64_t store = sr_store(&s, p, &b);
    sr_copies(&s);
    struct msg_reply_head head;
    struct msg_commit_reply reply;
    SR_READ(&s, store, commit, &head, &reply);
    for (uint32_t i = 0; i < 65; i++)
        ck_assert_uint_eq(reply.statuses.p[i], i < 64 ? KVC_ST_OK : KVC_ST_BAD_ARGUMENT);
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
}

CASE(reserve_commit_and_drop)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b));
    ck_assert_uint_eq(sr_reservation(&s, sr_reserve(&s, q, &b)), 0);
    ck_assert_uint_eq(sr_status(&s, sr_commit(&s, q, resv, &b)), KVC_ST_GONE);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, q, resv)), KVC_ST_GONE);
    b.n = 4;
    ck_assert_uint_eq(sr_status(&s, sr_commit(&s, p, resv, &b)), KVC_ST_BAD_ARGUMENT);
    b.n = 2;
    uint64_t commit = sr_commit(&s, p, resv, &b);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK); /* the third */
    sr_copies(&s);
    sr_all(&s, commit, KVC_ST_OK);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, p, &b)), 16);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_GONE);
    ck_assert_uint_eq(sr_status(&s, sr_commit(&s, p, resv, &b)), KVC_ST_GONE);
}

CASE(token_ids_go_where_they_were_asked_for)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    static uint8_t ids[9 * 4], key[KVC_KEY_BYTES], off[8];
    struct msg_store msg = {.reserve = {.ns = sr_ns(&s, p, "m"), .keys = {key, sizeof(key)}},
                            .offsets = {off, sizeof(off)},
                            .tokens = {ids, 8 * 4}};
    uint64_t corr = SR_SEND(&s, p, store, STORE, &msg);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, corr), "tokens"));
    ck_assert_uint_eq(core_metrics(s.core)->blocks_pending, 0);
}

/* ---- waiting ---- */

CASE(a_wait_is_answered_when_the_block_lands)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b));
    uint64_t wait = sr_acquire(&s, q, &b, true);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    ck_assert_uint_eq(s.kept, 1); /* its keys are needed again */
    (void)sr_commit(&s, p, resv, &b);
    fake_tier_end(s.tier, fake_tier_op(s.tier, 0), 0);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    sr_copies(&s);
    ck_assert_uint_eq(sr_held(&s, wait).hit_tokens, 16);
    ck_assert_uint_eq(s.kept, 0);
}

CASE(a_wait_is_answered_with_what_is_there_at_its_deadline)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    struct sr_blocks more = {.ns = b.ns, .chain = 1, .first = 1, .n = 1};
    (void)sr_reserve(&s, p, &more);
    more.deadline_ms = 50;
    uint64_t wait = sr_acquire(&s, q, &more, true);
    more.deadline_ms = 0;
    uint64_t patient = sr_acquire(&s, q, &more, true);
    sr_turn(&s, 49);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    sr_turn(&s, 2);
    ck_assert_uint_eq(sr_held(&s, wait).hit_tokens, 8);
    ck_assert_uint_eq(sr_held(&s, wait).groups[0].reason, KVC_MISS_PENDING);
    sr_turn(&s, KVC_DEADLINE_DEFAULT_MS - 60);
    ck_assert_uint_eq(sr_replies(&s, patient), 0);
    ck_assert_uint_le(svc_next_ns(s.svc), s.now_ns + 60 * 1000000);
    sr_turn(&s, 20);
    ck_assert_uint_eq(sr_held(&s, patient).hit_tokens, 8);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(a_wait_that_cannot_help_is_answered_at_once)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    ck_assert_uint_eq(sr_held(&s, sr_acquire(&s, p, &b, true)).hit_tokens, 0);
    ck_assert_uint_eq(s.kept, 0);
    s.keep_fails = true;
    ck_assert_uint_eq(sr_status(&s, sr_acquire(&s, p, &b, true)), KVC_ST_BUSY);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

CASE(a_wait_survives_the_end_of_its_namespace)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b));
    uint64_t wait = sr_acquire(&s, q, &b, true);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK);
    for (unsigned i = 0; i < 20; i++) { /* all slots change hands before the wake-up */
        char name[] = "other-a";
        name[6] = (char)('a' + i);
        (void)sr_ns(&s, p, name);
    }
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, wait), KVC_ST_NO_NAMESPACE);
}

/* ---- limits ---- */

CASE(requests_in_flight_are_limited_but_letting_go_is_not)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b)), wait[8];
    for (unsigned i = 0; i < 8; i++)
        wait[i] = sr_acquire(&s, q, &b, true);
    uint64_t refused = sr_lookup(&s, q, &b);
    ck_assert_uint_eq(sr_status(&s, refused), KVC_ST_BUSY);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused), "limits.requests"));
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, q, KVC_OP_PING)), KVC_ST_OK);
    uint64_t release = sr_release(&s, q, 5);
    ck_assert_uint_eq(sr_status(&s, sr_cancel(&s, q, wait[3])), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, release), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, wait[3]), KVC_ST_CANCELLED);
    ck_assert_uint_eq(sr_status(&s, sr_lookup(&s, q, &b)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK);
    sr_turn(&s, 0);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_uint_eq(sr_replies(&s, wait[i]), 1);
}

CASE(a_release_is_answered_with_another_reply_or_soon)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    uint64_t resv = sr_reservation(&s, sr_reserve(&s, p, &b));
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, q, 5)), KVC_ST_OK); /* nothing else to come */
    uint64_t wait = sr_acquire(&s, q, &b, true);
    uint64_t with = sr_release(&s, q, 5);
    ck_assert_uint_eq(sr_replies(&s, with), 0);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, q, KVC_OP_PING)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, with), KVC_ST_OK);
    uint64_t alone = sr_release(&s, q, 5);
    sr_turn(&s, 1 + SVC_RELEASE_NS / 1000000);
    ck_assert_uint_eq(sr_status(&s, alone), KVC_ST_OK);
    uint64_t many[20];
    for (unsigned i = 0; i < 20; i++)
        many[i] = sr_release(&s, q, 5);
    ck_assert_uint_eq(sr_replies(&s, many[0]), 1);
    ck_assert_uint_eq(sr_replies(&s, many[19]), 0);
    uint64_t cancel = sr_cancel(&s, q, many[19]);
    ck_assert_uint_lt(sr_order(&s, many[19]), sr_order(&s, cancel));
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK);
    (void)sr_release(&s, q, 5);
    sr_leave(&s, q);
    sr_turn(&s, 1 + SVC_RELEASE_NS / 1000000);
}

CASE(waiting_requests_of_all_are_limited)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    uint64_t last = 0;
    (void)sr_reserve(&s, p, &b);
    for (unsigned i = 0; i < 16; i++) {
        struct sr_peer *q = i % 8 ? &s.peer[1 + i / 8] : sr_peer(&s, 1 + i / 8, SR_UID_ONE, 0);
        ck_assert_uint_eq(sr_replies(&s, sr_acquire(&s, q, &b, true)), 0);
    }
    last = sr_acquire(&s, p, &b, true);
    ck_assert_uint_eq(sr_status(&s, last), KVC_ST_BUSY);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, last), "limits.waiters"));
    ck_assert_uint_eq(sr_status(&s, sr_store(&s, p, &b)), KVC_ST_BUSY);
}

CASE(lease_bytes_are_limited)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 12};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    ck_assert_uint_eq(sr_status(&s, sr_acquire(&s, p, &b, false)), KVC_ST_OK);
    uint64_t second = sr_acquire(&s, p, &b, false);
    ck_assert_uint_eq(sr_status(&s, second), KVC_ST_LIMIT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, second), "limits.lease_bytes"));
}

/* ---- who may ---- */

CASE(anothers_namespace_and_tickets_are_not_there)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *two = sr_peer(&s, 1, SR_UID_TWO, 4096);
    struct sr_peer *friend = sr_peer(&s, 2, SR_UID_ONE + 1, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    ck_assert_uint_eq(sr_status(&s, sr_lookup(&s, two, &b)), KVC_ST_NO_NAMESPACE);
    ck_assert_uint_eq(sr_status(&s, sr_acquire(&s, two, &b, false)), KVC_ST_NO_NAMESPACE);
    ck_assert_uint_eq(sr_status(&s, sr_reserve(&s, two, &b)), KVC_ST_NO_NAMESPACE);
    ck_assert_uint_eq(sr_status(&s, sr_store(&s, two, &b)), KVC_ST_NO_NAMESPACE);
    struct msg_acquire_reply held = sr_held(&s, sr_acquire(&s, p, &b, false));
    struct msg_redeem redeem = {.shard = 0};
    memcpy(redeem.ticket, held.ticket, sizeof(redeem.ticket));
    uint64_t a = SR_SEND(&s, two, redeem, REDEEM, &redeem);
    uint64_t c = SR_SEND(&s, friend, redeem, REDEEM, &redeem);
    ck_assert_uint_eq(sr_status(&s, a), KVC_ST_NO_LEASE);
    ck_assert_uint_eq(sr_held(&s, c).hit_tokens, 16);
    redeem.shard = 5;
    uint64_t d = SR_SEND(&s, friend, redeem, REDEEM, &redeem);
    ck_assert_uint_eq(sr_status(&s, d), KVC_ST_BAD_ARGUMENT);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 2); /* the third was given back */
}

/* With blocks that hit and with none: what is asked for is wrong in itself. */
CASE(a_shard_that_is_not_there_is_refused)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    for (int hit = 0; hit < 2; hit++) {
        struct msg_acquire msg = {.seq = sr__seq(&b), .shard = 1};
        const struct msg_head *h = sr_head(&s, KVC_OP_ACQUIRE, 0);
        uint64_t a = sr_send(&s, p, codec_enc_acquire(s.buf, sizeof(s.buf), h, &msg));
        ck_assert_uint_eq(sr_status(&s, a), KVC_ST_BAD_ARGUMENT);
        (void)sr_store(&s, p, &b);
        sr_copies(&s);
    }
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
}

CASE(sub_tenants_of_a_gateway_are_apart)
{
    struct sr_peer *g = sr_peer(&s, 0, SR_UID_GW, 4096), *p = sr_peer(&s, 1, SR_UID_ONE, 0);
    struct sr_blocks alice = {.ns = sr_ns(&s, g, "m"), .chain = 1, .n = 2, .sub = "alice"};
    struct sr_blocks bob = alice, base = alice;
    bob.sub = "bob";
    base.sub = NULL;
    (void)sr_store(&s, g, &alice);
    sr_copies(&s);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, g, &alice)), 16);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, g, &bob)), 0);
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, g, &base)), 0);
    ck_assert_uint_eq(sr_held(&s, sr_acquire(&s, g, &bob, true)).hit_tokens, 0);
    ck_assert_uint_eq(sr_held(&s, sr_acquire(&s, g, &alice, true)).hit_tokens, 16);
    struct sr_blocks mine = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2, .sub = "alice"};
    ck_assert_uint_eq(sr_status(&s, sr_lookup(&s, p, &mine)), KVC_ST_DENIED);
    ck_assert_uint_eq(sr_status(&s, sr_ns_open(&s, p, "m", "alice")), KVC_ST_DENIED);
    ck_assert_uint_eq(sr_status(&s, sr_ns_open(&s, g, "m", "alice")), KVC_ST_OK);
}

CASE(statistics_are_for_administrators)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0), *ops = sr_peer(&s, 1, SR_UID_OPS, 0);
    uint64_t refused = sr_bare(&s, p, KVC_OP_STATS);
    ck_assert_uint_eq(sr_status(&s, refused), KVC_ST_DENIED);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused), "admin"));
    const struct sr_reply *r = sr_reply(&s, sr_bare(&s, ops, KVC_OP_STATS));
    struct msg_reply_head head;
    struct codec_iter it;
    struct msg_stat item;
    unsigned n = 0, sessions = 0, longest = 0;
    ck_assert_int_eq(codec_iter_begin(r->bytes, r->len, &head, &it), 0);
    while (codec_iter_stat(&it, &item) == 1) {
        n++;
        if (item.name.n == 12 && memcmp(item.name.p, "svc.sessions", 12) == 0)
            sessions = (unsigned)item.value;
        longest += item.name.n == 19 && memcmp(item.name.p, "svc.handle_ns.p9999", 19) == 0;
    }
    ck_assert_uint_gt(n, 30);
    ck_assert_uint_eq(longest, 1);
    ck_assert_uint_eq(sessions, 2);
}

CASE(lists_show_what_is_ones_own)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    struct sr_peer *ops = sr_peer(&s, 2, SR_UID_OPS, 0);
    (void)sr_ns(&s, p, "a");
    (void)sr_ns(&s, p, "b");
    (void)sr_ns(&s, two, "a");
    struct kvc_ns_info row[4];
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_NAMESPACES, 4, row), 2);
    ck_assert_uint_eq(sr_rows(&s, two, KVC_TABLE_NAMESPACES, 4, row), 1);
    ck_assert_uint_eq(sr_rows(&s, ops, KVC_TABLE_NAMESPACES, 4, row), 3);
}

/* Two rows a reply, and the next one begins behind them. */
CASE(a_list_goes_on_where_its_cursor_says)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    const uint32_t a = sr_ns(&s, p, "a"), b = sr_ns(&s, p, "b"), c = sr_ns(&s, p, "c");
    struct kvc_ns_info row[4];
    uint8_t cursor[KVC_CURSOR_MAX];
    struct msg_list msg = {.table = KVC_TABLE_NAMESPACES, .max = 2};
    msg.cursor = sr_page(&s, p, &msg, cursor, row, 2);
    ck_assert_uint_gt(msg.cursor.n, 0);
    ck_assert_uint_eq(row[0].ns, a);
    ck_assert_uint_eq(row[1].ns, b);
    msg.cursor = sr_page(&s, p, &msg, cursor, row, 1);
    ck_assert_uint_eq(msg.cursor.n, 0);
    ck_assert_uint_eq(row[0].ns, c);
    memset(cursor, 0xff, sizeof cursor);
    msg.cursor = (struct codec_bin){cursor, 8}; /* behind all there can be */
    (void)sr_page(&s, p, &msg, cursor, row, 0);
}

CASE(what_no_list_knows_is_refused)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    uint8_t cursor[9] = {0};
    struct msg_list msg = {.table = KVC_TABLE_END};
    const struct msg_reply_head *head = sr_list(&s, p, &msg);
    ck_assert_uint_eq(head->status, KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(memmem(head->detail.p, head->detail.n, "no such table", 13));
    for (uint32_t n = 1; n <= sizeof cursor; n++) {
        msg = (struct msg_list){.table = KVC_TABLE_NAMESPACES, .cursor = {cursor, n}};
        head = sr_list(&s, p, &msg);
        ck_assert_uint_eq(head->status, n == 8 ? KVC_ST_OK : KVC_ST_BAD_ARGUMENT);
    }
    msg = (struct msg_list){.table = KVC_TABLE_DOCUMENTS, .prefix = codec_text("nobody's")};
    ck_assert_uint_eq(sr_list(&s, p, &msg)->status, KVC_ST_OK);
    msg.exact = 1;
    ck_assert_uint_eq(sr_list(&s, p, &msg)->status, KVC_ST_NO_NAME);
}

CASE(evict_reaches_ones_own)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    (void)sr_ns(&s, two, "m");
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    struct msg_evict all = {.flags = 0};
    uint64_t theirs = SR_SEND(&s, two, evict, EVICT, &all);
    uint64_t mine = SR_SEND(&s, p, evict, EVICT, &all);
    sr_settle(&s);
    struct msg_reply_head head;
    struct msg_evict_reply x;
    const struct sr_reply *r = sr_reply(&s, theirs);
    ck_assert_int_eq(codec_dec_evict_reply(r->bytes, r->len, &head, &x), 0);
    ck_assert_uint_eq(x.blocks, 0);
    r = sr_reply(&s, mine);
    ck_assert_int_eq(codec_dec_evict_reply(r->bytes, r->len, &head, &x), 0);
    ck_assert(x.blocks == 3 && x.bytes == 192 && x.kept_blocks == 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
}

#define FLOOD 40u

/* Rows of the reply to `corr`, and whether it was cut. */
static uint32_t told(uint64_t corr, bool *ret_more)
{
    const struct sr_reply *r = sr_reply(&s, corr);
    struct msg_reply_head head;
    struct codec_rows rows;
    struct kvc_block_info x;
    uint32_t n = 0;
    int rc = codec_rows_read(r->bytes, r->len, codec_table(KVC_TABLE_BLOCKS), &head, &rows);
    ck_assert_int_eq(rc, 0);
    while ((rc = codec_rows_next(&rows, &x)) == 1)
        n++;
    ck_assert_int_eq(rc, 0);
    *ret_more = rows.cursor.n > 0;
    return n;
}

/* Work that one turn does for all of them together is bounded; each gets on all the same. */
CASE(many_lists_of_keys_in_one_turn_are_cut)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    (void)sr_ns(&s, p, "a");
    (void)sr_ns(&s, p, "b");
    uint8_t keys[KVC_LIST_MAX * KVC_KEY_BYTES] = {0};
    const struct msg_list msg = {
        .table = KVC_TABLE_BLOCKS, .mode = KVC_WALK_KEYS, .keys = {keys, sizeof keys}};
    uint64_t corr[FLOOD];
    for (unsigned i = 0; i < FLOOD; i++)
        corr[i] = SR_SEND(&s, p, list, LIST, &msg);
    bool more;
    ck_assert_uint_eq(told(corr[0], &more), KVC_LIST_MAX);
    ck_assert(!more);
    ck_assert_uint_eq(told(corr[FLOOD - 1], &more), 1);
    ck_assert(more);
    sr_turn(&s, 1);
    corr[0] = SR_SEND(&s, p, list, LIST, &msg);
    ck_assert_uint_eq(told(corr[0], &more), KVC_LIST_MAX);
    ck_assert(!more);
}

/* ---- the mapping ---- */

CASE(every_error_has_a_status_and_none_is_ok)
{
    for (int err = -5000; err <= 100; err++) {
        uint16_t status = status_of(err);
        ck_assert_uint_lt(status, KVC_ST_COUNT);
        ck_assert_uint_ne(status, KVC_ST_OK);
        ck_assert_str_ne(codec_status_name(status), "?");
    }
#define X(value, name, text)        \
    if (KVC_ST_##name != KVC_ST_OK) \
        ck_assert_uint_eq(status_of(KVC_E_##name), KVC_ST_##name);
    KVC_STATUS_MAP(X)
#undef X
    ck_assert_uint_eq(status_of(INT32_MIN), KVC_ST_INTERNAL);
    ck_assert_uint_eq(status_of(-ETIMEDOUT), KVC_ST_TIMEOUT);
    ck_assert_uint_eq(status_of(-ENOMEM), KVC_ST_BUSY);
    ck_assert_uint_eq(status_of(-EIO), KVC_ST_TIER);
    ck_assert_uint_eq(status_of(KVC_E_NO_ROOM), KVC_ST_FULL);
    ck_assert_uint_eq(status_of(KVC_STALE), KVC_ST_INTERNAL);
}
