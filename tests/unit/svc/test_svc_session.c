/* SPDX-License-Identifier: Apache-2.0 */
/* How sessions begin and end. */
#include "cases.h"
#include "svc_rig.h"

static struct srig s;
static char says[CODEC_DETAIL_MAX + 1];

static void setup(void)
{
    sr_defaults(&s);
    sr_begin(&s);
}

static void teardown(void)
{
    sr_end(&s);
}

/* ---- begin ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_worker_is_welcomed_and_greeted)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct att_welcome w;
    ck_assert_int_eq(codec_dec_att_welcome(p->last, p->last_len, &w), 0);
    ck_assert_uint_eq(w.version, KVC_PROTO_MAX);
    ck_assert_uint_eq(w.staging_bytes, 4096);
    ck_assert_int_eq(p->last_fd, 55);
    ck_assert_uint_ne(w.route[0], 0);
    ck_assert(w.principal.n == 3 && memcmp(w.principal.p, "one", 3) == 0);
    ck_assert(w.admin == 0 && w.gateway == 0);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_OK);
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE + 1, 0);
    ck_assert_int_eq(q->last_fd, -1);
    ck_assert_int_ne(memcmp(p->route, q->route, KVC_ROUTE_BYTES), 0);
}

CASE(staging_is_granted_up_to_the_limit)
{
    ck_assert_uint_eq(sr_peer(&s, 0, SR_UID_ONE, 1ull << 40)->staging_bytes, 1u << 20);
}

CASE(a_uid_without_rights_is_told_which_and_where)
{
    struct sr_peer *p = sr_connect(&s, 0, 4242);
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, 0);
    ck_assert_uint_eq(sr_welcome_status(p, says, sizeof(says)), KVC_ST_DENIED);
    ck_assert_ptr_nonnull(strstr(says, "4242"));
    ck_assert_ptr_nonnull(strstr(says, "principal"));
    ck_assert_ptr_nonnull(strstr(says, "uids"));
    ck_assert(p->closed);
    ck_assert_uint_eq(sr_metric(&s, "attaches_denied"), 1);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

CASE(no_version_in_common_is_told_by_number)
{
    struct sr_peer *p = sr_connect(&s, 0, SR_UID_ONE);
    sr_attach_hello(&s, p, KVC_PROTO_MAX + 1, KVC_PROTO_MAX + 7, 0);
    ck_assert_uint_eq(sr_welcome_status(p, says, sizeof(says)), KVC_ST_VERSION);
    ck_assert_ptr_nonnull(strstr(says, "9"));
    ck_assert(p->closed);
    p = sr_connect(&s, 1, SR_UID_ONE); /* adjacent versions meet */
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX + 1, 0);
    ck_assert_uint_eq(sr_welcome_status(p, says, sizeof(says)), KVC_ST_OK);
}

CASE(sessions_run_out)
{
    for (unsigned i = 0; i < 6; i++)
        (void)sr_connect(&s, i, SR_UID_ONE);
    sr_connect_in_vain(&s, 6, SR_UID_ONE, says, sizeof(says));
    ck_assert_ptr_nonnull(strstr(says, "6 of 6 (limits.sessions)"));
    sr_leave(&s, &s.peer[3]);
    (void)sr_connect(&s, 3, SR_UID_ONE);
}

CASE(strangers_take_no_place_of_a_principal)
{
    sr_end(&s);
    sr_defaults(&s);
    s.cfg.fair = true;
    sr_begin(&s);
    struct sr_peer *stranger = sr_connect(&s, 0, 4711);
    sr_connect_in_vain(&s, 7, 4711, says, sizeof(says));
    ck_assert_ptr_nonnull(strstr(says, "no rights"));
    static const uid_t uids[] = {SR_UID_ONE, SR_UID_TWO, SR_UID_OPS, SR_UID_GW, 1001, 1001};
    for (unsigned i = 0; i < s.cfg.sessions_max; i++)
        (void)sr_connect(&s, 1 + i, uids[i]);
    sr_connect_in_vain(&s, 7, SR_UID_TWO, says, sizeof(says));
    ck_assert_ptr_nonnull(strstr(says, "limits.sessions"));
    sr_leave(&s, stranger);
    (void)sr_connect(&s, 0, 4711);
}

CASE(no_staging_is_a_clear_refusal)
{
    s.staging_verdict = -ENOMEM;
    struct sr_peer *p = sr_connect(&s, 0, SR_UID_ONE);
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096);
    ck_assert_uint_eq(sr_welcome_status(p, says, sizeof(says)), KVC_ST_LIMIT);
    ck_assert_ptr_nonnull(strstr(says, "staging.total"));
    s.staging_verdict = 0;
    p = sr_connect(&s, 1, SR_UID_ONE);
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096);
    sr_staging_ready(&s, -ENOMEM);
    ck_assert_uint_eq(sr_welcome_status(p, says, sizeof(says)), KVC_ST_BUSY);
    ck_assert(p->closed);
}

/* ---- who is heard ---- */

CASE(only_a_known_route_is_answered)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    unsigned before = s.nreplies;
    uint8_t route[KVC_ROUTE_BYTES + 1];
    int len = codec_enc_bare(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_PING, 0));
    for (unsigned i = 0; i < KVC_ROUTE_BYTES; i++) {
        memcpy(route, p->route, KVC_ROUTE_BYTES);
        route[i] ^= 1;
        sr_send_raw(&s, route, KVC_ROUTE_BYTES, s.buf, (size_t)len);
    }
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES - 1, s.buf, (size_t)len);
    sr_send_raw(&s, route, 0, s.buf, (size_t)len);
    ck_assert_uint_eq(s.nreplies, before);
    ck_assert_uint_eq(sr_metric(&s, "unknown_routes"), KVC_ROUTE_BYTES + 2);
}

CASE(hello_comes_first)
{
    struct sr_peer *p = sr_connect(&s, 0, SR_UID_ONE);
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, 0);
    struct att_welcome w;
    ck_assert_int_eq(codec_dec_att_welcome(p->last, p->last_len, &w), 0);
    memcpy(p->route, w.route, sizeof(p->route));
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_VERSION);
    struct msg_hello wrong = {.ver_min = KVC_PROTO_MAX + 1, .ver_max = KVC_PROTO_MAX + 2};
    uint64_t corr = SR_SEND(&s, p, hello, HELLO, &wrong);
    ck_assert_uint_eq(sr_status(&s, corr), KVC_ST_VERSION);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_VERSION);
    ck_assert_uint_eq(sr_status(&s, sr_hello(&s, p)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_OK);
}

CASE(bytes_that_are_no_request_cost_the_session_and_nobody_else_anything)
{
    static const char *const junk[] = {"",         "\xc1", "hello",
                                       "\x93\x02", "\x90", "\x93\xa1x\x01\x01"};
    struct sr_peer *good = sr_peer(&s, 1, SR_UID_ONE, 0);
    for (unsigned i = 0; i < ARRAY_LEN(junk); i++) {
        struct sr_peer *p = sr_peer(&s, 0, SR_UID_TWO, 0);
        sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, junk[i], strlen(junk[i]));
        unsigned before = s.nreplies;
        (void)sr_bare(&s, p, KVC_OP_PING); /* not heard any more */
        ck_assert_uint_eq(s.nreplies, before);
        sr_turn(&s, 0);
        ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_BAD_MESSAGE);
        ck_assert(p->closed);
        ck_assert_uint_eq(sr_status(&s, sr_bare(&s, good, KVC_OP_PING)), KVC_ST_OK);
        p->conn = UINT32_MAX;
    }
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    ck_assert_uint_eq(sr_metric(&s, "sessions_dropped"), ARRAY_LEN(junk));
}

CASE(a_good_head_with_bad_arguments_costs_a_reply_alone)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    static const uint8_t extra[] = {0x94, KVC_OP_PING, 0xcc, 200, 0, 1};
    static const uint8_t longest[] = {0x93, KVC_OP_PING, 0xcc, 201, 0xce, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t unknown[] = {0x93, 99, 0xcc, 202, 0};
    static const uint8_t zero[] = {0x93, 0, 0xcc, 203, 0};
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, extra, sizeof(extra));
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, longest, sizeof(longest));
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, unknown, sizeof(unknown));
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, zero, sizeof(zero));
    ck_assert_uint_eq(sr_status(&s, 200), KVC_ST_BAD_MESSAGE);
    ck_assert_uint_eq(sr_status(&s, 201), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, 201), "deadline"));
    ck_assert_uint_eq(sr_status(&s, 202), KVC_ST_UNKNOWN_OP);
    ck_assert_uint_eq(sr_status(&s, 203), KVC_ST_UNKNOWN_OP);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_OK);
}

/* ---- attach messages ---- */

CASE(attach_messages_that_do_not_belong_end_the_session)
{
    struct att_map map = {.chunk = 1};
    uint8_t buf[64];
    int len = codec_enc_att_map(buf, sizeof(buf), &map);
    struct sr_peer *early = sr_connect(&s, 0, SR_UID_ONE); /* MAP before HELLO */
    svc_attach_message(s.svc, early->conn, buf, (size_t)len, NULL);
    struct sr_peer *twice = sr_peer(&s, 1, SR_UID_ONE, 0); /* HELLO twice */
    sr_attach_hello(&s, twice, KVC_PROTO_MIN, KVC_PROTO_MAX, 0);
    struct sr_peer *junk = sr_peer(&s, 2, SR_UID_ONE, 0);
    svc_attach_message(s.svc, junk->conn, "\xff\xff", 2, NULL);
    struct sr_peer *hasty = sr_connect(&s, 3, SR_UID_ONE); /* MAP while staging is made */
    sr_attach_hello(&s, hasty, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096);
    svc_attach_message(s.svc, hasty->conn, buf, (size_t)len, NULL);
    sr_turn(&s, 0);
    struct sr_peer *all[] = {early, twice, junk, hasty};
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_uint_eq(sr_dropped_status(all[i]), KVC_ST_BAD_MESSAGE);
        ck_assert(all[i]->closed);
        all[i]->conn = UINT32_MAX;
    }
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1); /* until its staging has been made */
    sr_staging_ready(&s, 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

CASE(chunks_go_to_their_principal_alone)
{
    static const struct {
        uid_t uid;
        uint32_t chunk;
        uint16_t status;
        int fd;
    } want[] = {{SR_UID_ONE, 1, KVC_ST_OK, 77},
                {SR_UID_TWO, 1, KVC_ST_DENIED, -1},
                {SR_UID_ONE, 404, KVC_ST_GONE, -1}};
    for (unsigned i = 0; i < 3; i++) {
        struct sr_peer *p = sr_peer(&s, i, want[i].uid, 0);
        struct att_map map = {.chunk = want[i].chunk};
        uint8_t buf[64];
        int len = codec_enc_att_map(buf, sizeof(buf), &map);
        svc_attach_message(s.svc, p->conn, buf, (size_t)len, NULL);
        struct att_chunk reply;
        ck_assert_int_eq(codec_dec_att_chunk(p->last, p->last_len, &reply), 0);
        ck_assert_uint_eq(reply.status, want[i].status);
        ck_assert_uint_eq(reply.chunk, want[i].chunk);
        ck_assert_int_eq(p->last_fd, want[i].fd);
        p->messages = 0;
    }
    svc_chunk_retired(s.svc, 9, 2);
    ck_assert(s.peer[0].messages == 1 && s.peer[1].messages == 0 && s.peer[2].messages == 1);
    struct att_retired retired;
    ck_assert_int_eq(codec_dec_att_retired(s.peer[0].last, s.peer[0].last_len, &retired), 0);
    ck_assert_uint_eq(retired.chunk, 9);
}

/* ---- end ---- */

CASE(a_connection_closes_before_it_says_anything)
{
    sr_leave(&s, sr_connect(&s, 0, SR_UID_ONE));
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(sr_metric(&s, "detaches"), 0);
}

CASE_EACH(a_connection_closes_while_its_staging_is_made, 2)
{
    static const int verdict[] = {0, -ENOMEM};
    struct sr_peer *p = sr_connect(&s, 0, SR_UID_ONE);
    sr_attach_hello(&s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, 4096);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    sr_staging_ready(&s, verdict[_i]);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(sr_metric(&s, "staging_bytes"), 0);
    ck_assert_ptr_null(s.staging[0].mem);
}

CASE(a_writer_goes_while_it_reserves_waits_and_copies)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096), *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    uint32_t ns = sr_ns(&s, p, "m");
    struct sr_blocks reserved = {.ns = ns, .chain = 1, .n = 2};
    struct sr_blocks copying = {.ns = ns, .chain = 2, .n = 2};
    struct sr_blocks both = {.ns = ns, .chain = 1, .n = 4};
    (void)sr_reserve(&s, p, &reserved);
    uint64_t store = sr_store(&s, p, &copying);
    uint64_t mine = sr_acquire(&s, p, &both, true);
    uint64_t theirs = sr_acquire(&s, q, &reserved, true);
    uint64_t also = sr_acquire(&s, q, &copying, true);
    ck_assert_uint_eq(sr_replies(&s, theirs) + sr_replies(&s, also), 0);
    sr_leave(&s, p);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_held(&s, theirs).hit_tokens, 0); /* told in that turn */
    ck_assert_ptr_nonnull(s.staging[0].mem);              /* copies still read it */
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 2);
    sr_copies(&s);
    ck_assert_ptr_null(s.staging[0].mem);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    ck_assert_uint_eq(sr_replies(&s, also), 1);
    ck_assert_uint_eq(sr_replies(&s, store) + sr_replies(&s, mine), 0); /* to whom? */
}

CASE(leases_end_with_the_connection)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    (void)sr_acquire(&s, p, &b, false);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    sr_leave(&s, p);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
}

CASE(a_session_that_is_dropped_keeps_its_leases_until_it_lets_go)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    struct sr_blocks more = {.ns = b.ns, .chain = 2, .n = 2};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    (void)sr_acquire(&s, p, &b, false);
    uint64_t store = sr_store(&s, p, &more);
    uint64_t wait = sr_acquire(&s, p, &more, true);
    sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, "junk", 4);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_BAD_MESSAGE);
    ck_assert(!p->closed); /* it may be reading */
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    ck_assert_uint_eq(sr_metric(&s, "quarantined"), 1);
    unsigned before = s.nreplies;
    (void)sr_bare(&s, p, KVC_OP_PING);
    sr_copies(&s);
    sr_turn(&s, 700000);
    ck_assert_uint_eq(s.nreplies, before);
    ck_assert_uint_eq(sr_replies(&s, store) + sr_replies(&s, wait), 0);
    svc_attach_message(s.svc, p->conn, "junk", 4, NULL); /* not heard either */
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    sr_leave(&s, p);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
    ck_assert_uint_eq(sr_metric(&s, "quarantined"), 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

/* The status of ending session `end`. */
static unsigned end_of(struct sr_peer *p, uint32_t end)
{
    const struct msg_session_end m = {.session = end};
    const uint64_t corr = SR_SEND(&s, p, session_end, SESSION_END, &m);
    return sr_status(&s, corr);
}

/* A worker that holds leases, and one that was dropped and holds them still. */
CASE_EACH(an_operator_sees_who_holds_what_and_ends_it, 2)
{
    struct sr_peer *ops = sr_peer(&s, 2, SR_UID_OPS, 0), *two = sr_peer(&s, 1, SR_UID_TWO, 0);
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    (void)sr_acquire(&s, p, &b, false);
    sr_turn(&s, 5000);
    struct kvc_session_info row[4];
    ck_assert_uint_eq(sr_rows(&s, ops, KVC_TABLE_SESSIONS, 4, row), 3);
    const struct kvc_session_info it = row[2];
    ck_assert(it.leases == 1 && it.leased_bytes > 0 && it.lease_age_ms == 5000 && !it.dropped);
    ck_assert_uint_eq(sr_rows(&s, two, KVC_TABLE_SESSIONS, 4, row), 1); /* its own */
    ck_assert_uint_eq(end_of(two, it.session), KVC_ST_GONE);
    ck_assert_uint_eq(end_of(ops, 0), KVC_ST_GONE);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 1);
    if (_i == 1) { /* dropped before, and its process does not close the connection */
        sr_send_raw(&s, p->route, KVC_ROUTE_BYTES, "junk", 4);
        sr_turn(&s, 0);
        (void)sr_rows(&s, ops, KVC_TABLE_SESSIONS, 4, row);
        ck_assert(!p->closed && row[2].dropped);
    }
    ck_assert_uint_eq(end_of(ops, it.session), KVC_ST_OK);
    sr_turn(&s, 0);
    ck_assert(p->closed);
    ck_assert_uint_eq(sr_dropped_status(p), _i == 1 ? KVC_ST_BAD_MESSAGE : KVC_ST_CANCELLED);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 2);
    ck_assert_uint_eq(sr_metric(&s, "quarantined"), 0);
    ck_assert_uint_eq(end_of(ops, it.session), KVC_ST_GONE);
}

CASE(who_could_not_be_told_that_it_was_dropped_is_told_once_it_reads)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    (void)sr_acquire(&s, p, &b, false);
    p->full = true;
    p->deaf = true;
    (void)sr_bare(&s, p, KVC_OP_PING);
    sr_turn(&s, 0);
    sr_turn(&s, 3600000);
    ck_assert(!p->closed); /* it may be reading what it holds */
    ck_assert_int_ne(codec_att_code(p->last, p->last_len), KVC_ATTACH_DROPPED);
    p->full = false;
    sr_turn(&s, 1000);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_LIMIT);
    unsigned messages = p->messages;
    sr_turn(&s, 3600000);
    ck_assert_uint_eq(p->messages, messages); /* once */
    sr_leave(&s, p);
    ck_assert_uint_eq(core_metrics(s.core)->leases, 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

CASE(after_a_lost_reply_none_follows)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    (void)sr_reserve(&s, p, &b);
    uint64_t wait = sr_acquire(&s, p, &b, true);
    p->deaf_for = 1; /* the wait's own reply is lost; that of the CANCEL would get through */
    uint64_t cancel = sr_cancel(&s, p, wait);
    ck_assert_uint_eq(sr_replies(&s, wait), 0);
    ck_assert_uint_eq(sr_replies(&s, cancel), 0);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_LIMIT);
    ck_assert_uint_eq(sr_metric(&s, "replies_lost"), 2);
}

CASE(who_takes_no_replies_is_dropped)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    p->deaf = true;
    (void)sr_bare(&s, p, KVC_OP_PING);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_LIMIT);
    ck_assert(p->closed);
    ck_assert_uint_eq(sr_metric(&s, "replies_lost"), 1);
}

/* It closes right after a release: the answer that is still owed finds nobody. */
CASE(who_has_closed_is_not_dropped)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    p->deaf = true;
    p->left = true;
    (void)sr_release(&s, p, 1);
    sr_turn(&s, 1000);
    ck_assert_uint_eq(sr_metric(&s, "replies_lost"), 1);
    ck_assert(p->closed);
    ck_assert_uint_eq(sr_metric(&s, "sessions_dropped"), 0);
    ck_assert_uint_eq(sr_metric(&s, "detaches"), 1);
}

CASE(a_leaving_daemon_says_so_and_lets_things_end)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 2};
    uint64_t store = sr_store(&s, p, &b);
    uint64_t resv =
        sr_reservation(&s, sr_reserve(&s, p, &(struct sr_blocks){.ns = b.ns, .chain = 3, .n = 1}));
    svc_shutdown(s.svc);
    ck_assert(!svc_is_quiet(s.svc));
    ck_assert_uint_eq(sr_status(&s, sr_lookup(&s, p, &b)), KVC_ST_SHUTDOWN);
    ck_assert_uint_eq(sr_status(&s, sr_acquire(&s, p, &b, true)), KVC_ST_SHUTDOWN);
    ck_assert_uint_eq(sr_status(&s, sr_hello(&s, p)), KVC_ST_SHUTDOWN);
    ck_assert_uint_eq(sr_status(&s, sr_bare(&s, p, KVC_OP_PING)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, sr_drop(&s, p, resv)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, p, 1)), KVC_ST_OK);
    sr_copies(&s);
    sr_all(&s, store, KVC_ST_OK);
    ck_assert(svc_is_quiet(s.svc));
    svc_end_all(s.svc);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_SHUTDOWN);
    ck_assert(p->closed && svc_is_empty(s.svc));
}

CASE(the_end_comes_in_every_state)
{
    (void)sr_connect(&s, 0, SR_UID_ONE);
    sr_attach_hello(&s, sr_connect(&s, 1, SR_UID_ONE), KVC_PROTO_MIN, KVC_PROTO_MAX, 4096);
    sr_staging_ready(&s, 0);
    sr_attach_hello(&s, sr_connect(&s, 2, SR_UID_ONE), KVC_PROTO_MIN, KVC_PROTO_MAX,
                    4096); /* still being made */
    struct sr_peer *busy = sr_peer(&s, 3, SR_UID_TWO, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, busy, "m"), .chain = 1, .n = 2};
    (void)sr_reserve(&s, busy, &b);
    (void)sr_acquire(&s, busy, &b, true);
    struct sr_peer *doomed = sr_peer(&s, 4, SR_UID_ONE, 0);
    sr_send_raw(&s, doomed->route, KVC_ROUTE_BYTES, "junk", 4);
    svc_end_all(s.svc);
    for (unsigned i = 0; i < 5; i++)
        ck_assert(s.peer[i].closed);
    ck_assert_uint_eq(sr_dropped_status(doomed), KVC_ST_BAD_MESSAGE);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1); /* its staging is still being made */
    ck_assert(!svc_is_empty(s.svc));
}
