/* SPDX-License-Identifier: Apache-2.0 */
/* What stays, and who holds the room: pins, quotas, usage, the policy; and NS_SPEC. */
#include <stdlib.h>

#include "cases.h"
#include "policy.h"
#include "svc_rig.h"

#define KIB UINT64_C(1024)

static struct srig s;
static struct sr_peer *one, *two, *ops;
static uint32_t ns; /* of one, with chain 1 of 4 blocks of 64 bytes */

static void setup(void)
{
    sr_defaults(&s);
    s.core_cfg.pins_max = 8;
    s.core_cfg.pin_bytes_max = 4 * KIB;
    sr_begin(&s);
    one = sr_peer(&s, 0, SR_UID_ONE, 4096);
    two = sr_peer(&s, 1, SR_UID_TWO, 0);
    ops = sr_peer(&s, 2, SR_UID_OPS, 0);
    struct sr_blocks b = {.ns = sr_ns(&s, one, "m"), .chain = 1, .n = 4};
    const uint64_t stored = sr_store(&s, one, &b);
    sr_copies(&s);
    sr_all(&s, stored, KVC_ST_OK);
    ns = b.ns;
}

static void teardown(void)
{
    sr_end(&s);
}

#define SEND(p, OP, name, msg) \
    sr_send(&s, (p), codec_enc_##name(s.buf, sizeof s.buf, sr_head(&s, KVC_OP_##OP, 0), (msg)))

#define TAKE(corr, name, ret)                                                                   \
    do {                                                                                        \
        struct msg_reply_head taken;                                                            \
        const struct sr_reply *bytes = sr_reply(&s, corr);                                      \
        ck_assert_int_eq(codec_dec_##name##_reply(bytes->bytes, bytes->len, &taken, (ret)), 0); \
    } while (0)

/* ---- pins ---- */

static uint64_t send_pin(struct sr_peer *p, uint32_t chain, uint32_t blocks, uint64_t ttl_ms)
{
    static uint8_t keys[64 * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < blocks; i++)
        sr_key(chain, i, keys + (size_t)i * KVC_KEY_BYTES);
    const struct msg_pin m = {.seq = {.ns = ns,
                                      .tokens = blocks * 8,
                                      .ngroups = 1,
                                      .keys[0] = {keys, blocks * KVC_KEY_BYTES}},
                              .ttl_ms = ttl_ms};
    return SEND(p, PIN, pin, &m);
}

/* How many it sees; the first one is kept. */
static struct kvc_pin_info first;
static uint32_t pins_of(struct sr_peer *p)
{
    struct kvc_pin_info row[8];
    const uint32_t n = sr_rows(&s, p, KVC_TABLE_PINS, 8, row);
    first = row[0];
    return n;
}

static uint64_t send_evict(struct sr_peer *p, uint32_t flags)
{
    const struct msg_evict m = {.flags = flags};
    const uint64_t corr = SEND(p, EVICT, evict, &m);
    sr_settle(&s);
    return corr;
}

CASES(.setup = setup, .teardown = teardown);

CASE(a_pin_holds_is_listed_and_ends)
{
    struct msg_pin_reply pin;
    struct msg_evict_reply evicted;
    uint8_t tip[KVC_KEY_BYTES];
    TAKE(send_pin(one, 1, 3, 0), pin, &pin);
    ck_assert_uint_eq(pin.bytes, 3 * 64);
    TAKE(send_evict(one, 0), evict, &evicted);
    ck_assert_uint_eq(evicted.blocks, 1);
    ck_assert_uint_eq(evicted.kept_blocks, 3);
    ck_assert_uint_eq(pins_of(one), 1);
    sr_key(1, 2, tip);
    ck_assert_uint_eq(first.pin, pin.pin);
    ck_assert_uint_eq(first.ns, ns);
    ck_assert_uint_eq(first.tokens, 24);
    ck_assert_str_eq(first.sub_tenant, "");
    ck_assert_mem_eq(first.tip, tip, sizeof tip);
    const struct msg_unpin m = {.pin = pin.pin};
    ck_assert_uint_eq(sr_status(&s, SEND(one, UNPIN, unpin, &m)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, SEND(one, UNPIN, unpin, &m)), KVC_ST_NO_NAME);
    TAKE(send_evict(one, 0), evict, &evicted);
    ck_assert_uint_eq(evicted.blocks, 3);
}

CASE(a_pin_is_its_principals)
{
    struct msg_pin_reply pin;
    TAKE(send_pin(one, 1, 3, 0), pin, &pin);
    const struct msg_unpin m = {.pin = pin.pin};
    ck_assert_uint_eq(pins_of(two), 0);
    ck_assert_uint_eq(pins_of(ops), 1);
    ck_assert_uint_eq(sr_status(&s, SEND(two, UNPIN, unpin, &m)), KVC_ST_NO_NAME);
    ck_assert_uint_eq(sr_status(&s, SEND(ops, UNPIN, unpin, &m)), KVC_ST_OK);
}

CASE(what_cannot_be_pinned_is_refused_whole)
{
    ck_assert_uint_eq(sr_status(&s, send_pin(one, 2, 3, 0)), KVC_ST_GONE);
    const struct msg_policy small = {.action = KVC_POLICY_SET, .pin_bytes_max = 100};
    ck_assert_uint_eq(sr_status(&s, SEND(ops, POLICY, policy, &small)), KVC_ST_OK);
    const uint64_t refused = send_pin(one, 1, 3, 0);
    ck_assert_uint_eq(sr_status(&s, refused), KVC_ST_PIN_LIMIT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused), "policy.pin_limit"));
    ck_assert_uint_eq(pins_of(one), 0);
}

CASE(a_pin_with_a_time_to_live_goes)
{
    struct msg_pin_reply pin;
    TAKE(send_pin(one, 1, 4, 5000), pin, &pin);
    sr_turn(&s, 4000);
    ck_assert_uint_eq(pins_of(one), 1);
    ck_assert_uint_eq(first.left_ms, 1000);
    sr_turn(&s, 2000);
    sr_settle(&s);
    ck_assert_uint_eq(pins_of(one), 0);
}

CASE(force_evicts_what_is_pinned)
{
    struct msg_pin_reply pin;
    struct msg_evict_reply evicted;
    TAKE(send_pin(one, 1, 4, 0), pin, &pin);
    TAKE(send_evict(one, KVC_F_FORCE | KVC_F_DRY_RUN), evict, &evicted);
    ck_assert_uint_eq(evicted.blocks, 4);
    TAKE(send_evict(one, KVC_F_FORCE), evict, &evicted);
    ck_assert_uint_eq(evicted.blocks, 4);
}

/* ---- quotas, usage ---- */

/* How many there are; the first one is kept. */
static struct kvc_quota quota;
static uint32_t quotas(void)
{
    struct kvc_quota row[8];
    const uint32_t n = sr_rows(&s, ops, KVC_TABLE_QUOTAS, 8, row);
    quota = row[0];
    return n;
}

CASE(quotas_are_for_administrators)
{
    const struct msg_quota_set m = {
        .scope = KVC_SCOPE_NS, .ns = ns, .host_limit = KIB, .nvme_limit = UINT64_MAX};
    ck_assert_uint_eq(sr_status(&s, SEND(one, QUOTA_SET, quota_set, &m)), KVC_ST_DENIED);
    const struct msg_list list = {.table = KVC_TABLE_QUOTAS};
    ck_assert_uint_eq(sr_list(&s, one, &list)->status, KVC_ST_DENIED);
    ck_assert_uint_eq(quotas(), 0);
}

CASE(a_quota_bounds_and_is_removed)
{
    struct msg_quota_set m = {
        .scope = KVC_SCOPE_NS, .ns = ns, .host_limit = 4 * 64, .nvme_limit = UINT64_MAX};
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &m)), KVC_ST_OK);
    sr_settle(&s);
    ck_assert_uint_eq(quotas(), 1);
    ck_assert_uint_eq(quota.scope, KVC_SCOPE_NS);
    ck_assert_str_eq(quota.tenant, "t1");
    ck_assert_uint_eq(quota.ns, ns);
    ck_assert_uint_eq(quota.host_limit, 4 * 64);
    ck_assert_uint_eq(quota.nvme_limit, UINT64_MAX);
    ck_assert_uint_eq(quota.host_bytes, 4 * 64);
    struct msg_pin_reply pin;
    TAKE(send_pin(one, 1, 4, 0), pin, &pin);
    struct sr_blocks more = {.ns = ns, .chain = 2, .n = 1};
    const uint64_t stored = sr_store(&s, one, &more);
    sr_copies(&s);
    sr_all(&s, stored, KVC_ST_QUOTA);
    m.host_limit = UINT64_MAX;
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &m)), KVC_ST_OK);
    ck_assert_uint_eq(quotas(), 0);
    m.ns = 4711;
    m.host_limit = KIB;
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &m)), KVC_ST_NO_NAMESPACE);
}

CASE(usage_says_who_holds_what)
{
    struct msg_pin_reply pin;
    struct kvc_ns_info row[2];
    TAKE(send_pin(one, 1, 2, 0), pin, &pin);
    ck_assert_uint_eq(sr_rows(&s, one, KVC_TABLE_NAMESPACES, 2, row), 1);
    ck_assert_uint_eq(row[0].ns, ns);
    ck_assert_uint_eq(row[0].blocks, 4);
    ck_assert_uint_eq(row[0].host_bytes, 4 * 64);
    ck_assert_uint_eq(row[0].nvme_bytes, 0);
    ck_assert_uint_eq(row[0].pinned_bytes, 2 * 64);
    ck_assert_str_eq(row[0].principal, "one");
    ck_assert_uint_eq(sr_rows(&s, two, KVC_TABLE_NAMESPACES, 2, row), 0);
    ck_assert_uint_eq(sr_rows(&s, ops, KVC_TABLE_NAMESPACES, 2, row), 1);
}

/* ---- shares ---- */

#define ROOM (UINT64_C(16) * 64 * 64) /* of the rig's host memory */

CASE(shares_that_promise_more_than_there_is_are_refused)
{
    struct msg_quota_set a = {.scope = KVC_SCOPE_TENANT,
                              .tenant = codec_text("a"),
                              .host_limit = UINT64_MAX,
                              .nvme_limit = UINT64_MAX,
                              .host_share = ROOM / 2};
    struct msg_quota_set b = a;
    b.tenant = codec_text("b");
    b.host_share = ROOM / 2 + 1;
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &a)), KVC_ST_OK);
    const uint64_t refused = SEND(ops, QUOTA_SET, quota_set, &b);
    ck_assert_uint_eq(sr_status(&s, refused), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused), "(65537 bytes)"));
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused), "(65536 bytes)"));
    ck_assert_uint_eq(quotas(), 1);
    b.host_share--;
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &b)), KVC_ST_OK);
    /* In the share of its tenant, up to that. */
    struct msg_quota_set sub = a;
    sub.scope = KVC_SCOPE_SUB;
    sub.sub = codec_text("x");
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &sub)), KVC_ST_OK);
    sub.sub = codec_text("y");
    sub.host_share = 1;
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &sub)), KVC_ST_BAD_ARGUMENT);
    a.host_share = ROOM / 2 - 1; /* less may always be asked for */
    ck_assert_uint_eq(sr_status(&s, SEND(ops, QUOTA_SET, quota_set, &a)), KVC_ST_OK);
}

/* ---- the policy ---- */

CASE(the_policy_is_told_and_set_by_administrators)
{
    const struct msg_policy show = {.action = KVC_POLICY_SHOW};
    struct msg_policy set = {.action = KVC_POLICY_SET,
                             .keep_percent = 7,
                             .load_or_recompute = 1,
                             .admission = 1,
                             .pin_bytes_max = 99};
    struct msg_policy_reply r;
    TAKE(SEND(one, POLICY, policy, &show), policy, &r);
    ck_assert_uint_eq(r.name.n, strlen(s.core_cfg.policy->name));
    ck_assert_uint_eq(sr_status(&s, SEND(one, POLICY, policy, &set)), KVC_ST_DENIED);
    set.name = codec_text("another");
    ck_assert_uint_eq(sr_status(&s, SEND(ops, POLICY, policy, &set)), KVC_ST_BAD_ARGUMENT);
    TAKE(SEND(one, POLICY, policy, &show), policy, &r);
    ck_assert_uint_ne(r.pin_bytes_max, 99);
    ck_assert_uint_eq(r.admission, 0);
    set.name = codec_text(s.core_cfg.policy->name);
    TAKE(SEND(ops, POLICY, policy, &set), policy, &r);
    TAKE(SEND(one, POLICY, policy, &show), policy, &r);
    ck_assert_uint_eq(r.keep_percent, 7);
    ck_assert_uint_eq(r.load_or_recompute, 1);
    ck_assert_uint_eq(r.admission, 1);
    ck_assert(core_admission_now(s.core));
    ck_assert_uint_eq(r.pin_bytes_max, 99);
    set.load_or_recompute = 0;
    TAKE(SEND(ops, POLICY, policy, &set), policy, &r);
    ck_assert_uint_eq(r.load_or_recompute, 0);
    ck_assert_uint_eq(r.admission, 1);
}

CASE(the_policy_tells_what_was_set_and_to_administrators_what_was_learned)
{
    const struct msg_policy show = {.action = KVC_POLICY_SHOW};
    struct msg_policy_reply before, r;
    TAKE(SEND(one, POLICY, policy, &show), policy, &before);
    ck_assert_uint_eq(before.all, 0);
    ck_assert_uint_eq(before.nlevels, 0);
    ck_assert_uint_eq(before.pin_bytes_max, before.pin_bytes_max_start);
    const struct msg_policy set = {.action = KVC_POLICY_SET,
                                   .keep_percent = 7,
                                   .load_or_recompute = 1,
                                   .admission = 1,
                                   .pin_bytes_max = 99};
    TAKE(SEND(ops, POLICY, policy, &set), policy, &r);
    ck_assert_uint_eq(r.keep_percent, 7);
    ck_assert_uint_eq(r.keep_percent_start, before.keep_percent);
    ck_assert_uint_eq(r.load_or_recompute_start, before.load_or_recompute);
    ck_assert_uint_eq(before.admission, 0);
    ck_assert_uint_eq(r.admission, 1);
    ck_assert_uint_eq(r.admission_start, 0);
    ck_assert_uint_eq(r.pin_bytes_max_start, before.pin_bytes_max);
    ck_assert_uint_eq(r.all, 1);
    ck_assert_uint_eq(r.storage, 0);
    ck_assert_uint_eq(r.hints, s.core_cfg.policy->advise != NULL);
    ck_assert_uint_eq(r.admits, s.core_cfg.policy->admits != NULL);
    ck_assert_uint_eq(r.pins, 1);
    ck_assert_uint_eq(r.chosen.n, strlen("a test"));
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < r.nlevels; i++)
        blocks += r.levels[i].blocks;
    struct core_metrics m = *core_metrics(s.core);
    ck_assert_uint_eq(blocks, m.blocks_present);
    ck_assert_uint_gt(blocks, 0);
}

/* ---- NS_SPEC ---- */

CASE(a_namespace_tells_what_it_was_opened_with)
{
    struct msg_ns_spec m = {.ns = ns};
    struct msg_ns_spec_reply r;
    TAKE(SEND(one, NS_SPEC, ns_spec, &m), ns_spec, &r);
    ck_assert_uint_eq(r.own, 1);
    ck_assert_mem_eq(r.spec.model.p, "m", 1);
    ck_assert_uint_eq(r.spec.groups[0].block_tokens, 8);
    ck_assert_uint_eq(r.spec.groups[0].block_bytes, 64);
    /* With it, NS_OPEN gives the same. */
    uint64_t corr = SEND(one, NS_OPEN, ns_open, &r.spec);
    struct msg_ns_open_reply opened;
    TAKE(corr, ns_open, &opened);
    ck_assert_uint_eq(opened.ns, ns);
    TAKE(SEND(ops, NS_SPEC, ns_spec, &m), ns_spec, &r);
    ck_assert_uint_eq(r.own, 0);
    ck_assert_uint_eq(sr_status(&s, SEND(two, NS_SPEC, ns_spec, &m)), KVC_ST_NO_NAMESPACE);
    for (uint32_t i = 0; i < 2; i++) {
        m.ns = i ? UINT32_MAX : 0;
        ck_assert_uint_eq(sr_status(&s, SEND(ops, NS_SPEC, ns_spec, &m)), KVC_ST_NO_NAMESPACE);
    }
}
