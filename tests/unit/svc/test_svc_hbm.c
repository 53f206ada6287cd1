/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for blocks that are in slots of a device and on storage, and not in host memory. */
#include "cases.h"
#include "serve.h"
#include "svc__.h"
#include "svc_rig.h"

static struct srig s;
static struct sr_storage storage;
static struct sr_peer *p;
static struct sr_pages g; /* four blocks of a chain, pages 0 to 7 */
static struct device_pool *pool;

static void setup(void)
{
    sr_defaults(&s);
    storage = (struct sr_storage){.paths = 1};
    s.storage = &storage;
    s.regions = 1;
    s.ndevices = 2;
    s.slots = 4;
    s.core_cfg.lease_bytes_max = 1u << 20;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    sr_pool(&s, p, 0, 0);
    pool = sr_pool_of(&s, p, 0);
    g = (struct sr_pages){.b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 4, .deadline_ms = 1000}};
}

static void teardown(void)
{
    for (uint32_t i = 0; i < s.ndevices; i++)
        fake_device_up(s.device[i].fake);
    sr_end(&s);
    s.storage = NULL;
}

/* ---- words ---- */

static const struct core_metrics *metrics(void)
{
    return core_metrics(s.core);
}

static void settle(void)
{
    for (unsigned i = 0; i < 20; i++) {
        sr_copies(&s);
        sr_settle(&s);
    }
}

static void store(const struct sr_blocks *b)
{
    uint64_t corr = sr_store(&s, p, b);
    settle();
    sr_all(&s, corr, KVC_ST_OK);
}

static uint32_t on_device(const struct msg_acquire_reply *reply)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < reply->groups[0].locs.n; at += KVC_LOC_BYTES) {
        struct msg_loc loc;
        codec_get_loc(reply->groups[0].locs.p + at, &loc);
        n += device_of_chunk(loc.chunk) == 1;
    }
    return n;
}

static void release(uint64_t lease)
{
    ck_assert_uint_eq(sr_status(&s, sr_release(&s, p, lease)), KVC_ST_OK);
}

/* The chain is in slots of device 0 and on storage; others have taken all of host memory. */
static void only_hbm(void)
{
    store(&g.b);
    uint64_t on = sr_acquire_on(&s, p, &g.b, 0);
    sr_device_copies(&s);
    struct msg_acquire_reply reply = sr_held(&s, on);
    ck_assert_uint_eq(on_device(&reply), 4);
    release(reply.lease);
    for (uint32_t i = 0; i < 8; i++) {
        struct sr_blocks other = {.ns = g.b.ns, .chain = 100 + i, .n = 16, .deadline_ms = 60000};
        store(&other);
    }
    struct sr_blocks probe = g.b;
    ck_assert_uint_eq(sr_hit(&s, sr_lookup(&s, p, &probe)), 32);
    ck_assert_uint_eq(metrics()->blocks_loaded, 0);
}

static uint64_t redeem(const uint8_t ticket[KVC_TICKET_BYTES])
{
    struct msg_redeem msg = {.shard = 0};
    memcpy(msg.ticket, ticket, sizeof msg.ticket);
    return SR_SEND(&s, p, redeem, REDEEM, &msg);
}

/* ---- read there ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(who_names_the_device_waits_for_no_load)
{
    only_hbm();
    struct msg_acquire_reply reply = sr_held(&s, sr_acquire_on(&s, p, &g.b, 0)); /* at once */
    ck_assert_uint_eq(reply.hit_tokens, 32);
    ck_assert_uint_eq(on_device(&reply), 4);
    ck_assert_uint_eq(metrics()->hbm_only_hits, 4);
    ck_assert_uint_eq(metrics()->loads, 0);
    release(reply.lease);
}

CASE(who_does_not_has_it_loaded)
{
    only_hbm();
    uint64_t plain = sr_acquire(&s, p, &g.b, false);
    uint64_t other = sr_acquire_on(&s, p, &g.b, 1);
    ck_assert_uint_eq(sr_replies(&s, plain) + sr_replies(&s, other), 0);
    settle();
    ck_assert_uint_eq(sr_held(&s, plain).hit_tokens, 32);
    ck_assert_uint_eq(metrics()->blocks_loaded, 4);
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_held(&s, other).hit_tokens, 32);
    ck_assert_uint_eq(metrics()->hbm_only_hits, 0);
}

CASE(pages_are_loaded_out_of_slots_alone)
{
    only_hbm();
    uint64_t load = sr_pages_load(&s, p, &g);
    ck_assert_uint_eq(fake_device_inflight(s.device[0].fake), 1);
    ck_assert_ptr_null(fake_device_copy(s.device[0].fake, 0)->piece[0].host);
    sr_device_copies(&s);
    struct msg_pages_load_reply reply = sr_loaded(&s, load);
    ck_assert_uint_eq(reply.hit_tokens, 32);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(reply.groups[0].statuses.p[i], KVC_ST_OK);
        ck_assert(sr_pages_hold(pool, 1, i, i));
    }
    ck_assert_uint_eq(metrics()->hbm_only_hits, 4);
    ck_assert_uint_eq(metrics()->loads, 0);
}

CASE(its_ticket_is_good_once_it_is_in_memory)
{
    only_hbm();
    struct msg_acquire_reply reply = sr_held(&s, sr_acquire_on(&s, p, &g.b, 0));
    ck_assert_uint_eq(sr_status(&s, redeem(reply.ticket)), KVC_ST_NO_LEASE);
    uint64_t plain = sr_acquire(&s, p, &g.b, false);
    settle();
    release(sr_held(&s, plain).lease);
    ck_assert_uint_eq(sr_held(&s, redeem(reply.ticket)).hit_tokens, 32);
}

CASE(a_rank_that_is_not_there_is_refused)
{
    only_hbm();
    struct msg_acquire_on msg;
    uint8_t keys[4 * KVC_KEY_BYTES];
    for (uint32_t i = 0; i < 4; i++)
        sr_key(1, i, &keys[(size_t)i * KVC_KEY_BYTES]);
    msg = (struct msg_acquire_on){.acquire = {.seq = {.ns = g.b.ns,
                                                      .tokens = 32,
                                                      .ngroups = 1,
                                                      .keys = {{.p = keys, .n = sizeof keys}}},
                                              .shard = 3}};
    memcpy(msg.uuid, s.device[0].uuid, sizeof msg.uuid);
    const struct msg_head *h = sr_head(&s, KVC_OP_ACQUIRE_ON, 1000);
    uint64_t on = sr_send(&s, p, codec_enc_acquire_on(s.buf, sizeof(s.buf), h, &msg));
    ck_assert_uint_eq(sr_status(&s, on), KVC_ST_BAD_ARGUMENT);
    ck_assert_uint_eq(metrics()->leases, 0);
}

/* ---- lost ---- */

/* Of five blocks four are in slots alone, and the fifth is being copied there. */
static uint64_t acquire_five(struct sr_blocks *ret_five)
{
    *ret_five = g.b;
    only_hbm();
    ret_five->first = 4;
    ret_five->n = 1;
    store(ret_five);
    ret_five->first = 0;
    ret_five->n = 5;
    const uint64_t on = sr_acquire_on(&s, p, ret_five, 0);
    ck_assert_uint_eq(sr_replies(&s, on), 0);
    return on;
}

CASE(what_went_with_the_device_is_a_miss_and_is_loaded_for_the_next)
{
    struct sr_blocks more;
    const uint64_t on = acquire_five(&more);
    fake_device_lose(s.device[0].fake);
    sr_device_copies(&s);
    struct msg_acquire_reply reply = sr_held(&s, on);
    ck_assert_uint_eq(reply.hit_tokens, 0);
    ck_assert_uint_eq(reply.lease, 0);
    ck_assert_uint_eq(reply.groups[0].reason, KVC_MISS_NOT_LOADED);
    ck_assert_uint_eq(metrics()->leases, 0);
    settle();
    ck_assert_uint_eq(metrics()->blocks_loaded, 4);
    reply = sr_held(&s, sr_acquire_on(&s, p, &more, 0));
    ck_assert_uint_eq(reply.hit_tokens, 40);
    ck_assert_uint_eq(on_device(&reply), 0);
}

/* The lease has gone with the device, and another is asked for in slices. */
CASE_EACH(who_is_called_off_while_it_looks_again_holds_nothing, 3)
{
    struct sr_blocks more;
    const uint64_t on = acquire_five(&more);
    s.core->cfg.slice_work = 1;
    s.svc->cfg.turn_work = 1;
    fake_device_lose(s.device[0].fake);
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, on), 0);
    if (_i == 0)
        (void)sr_cancel(&s, p, on);
    else if (_i == 1)
        sr_turn(&s, 1000);
    else
        sr_leave(&s, p);
    for (unsigned i = 0; i < 100; i++)
        sr_turn(&s, 0);
    if (_i == 0)
        ck_assert_uint_eq(sr_status(&s, on), KVC_ST_CANCELLED);
    if (_i == 1)
        ck_assert_uint_eq(sr_held(&s, on).hit_tokens, 0);
    ck_assert_uint_eq(sr_metric(&s, "calls"), 0);
    ck_assert_uint_eq(asks_hold(s.core) + metrics()->leases, 0);
}

CASE(a_load_whose_slots_went_says_so_of_each_block)
{
    only_hbm();
    uint64_t load = sr_pages_load(&s, p, &g);
    fake_device_lose(s.device[0].fake);
    sr_device_copies(&s);
    struct msg_pages_load_reply reply = sr_loaded(&s, load);
    ck_assert_uint_eq(reply.hit_tokens, 32);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_uint_eq(reply.groups[0].statuses.p[i], KVC_ST_TIER);
    ck_assert_uint_eq(metrics()->leases, 0);
}

CASE(a_session_that_dies_lets_go_of_its_slots)
{
    only_hbm();
    struct msg_acquire_reply reply = sr_held(&s, sr_acquire_on(&s, p, &g.b, 0));
    ck_assert_uint_ne(reply.lease, 0);
    uint64_t load = sr_pages_load(&s, p, &g);
    sr_leave(&s, p);
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, load), 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(metrics()->leases, 0);
}

/* The number of a lease that it has not been told of yet: one more than the last in the same place.
 */
static uint64_t next_lease(void)
{
    const struct msg_acquire_reply a = sr_held(&s, sr_acquire(&s, p, &g.b, false));
    (void)sr_release(&s, p, a.lease);
    return a.lease + (UINT64_C(1) << 32);
}

CASE_EACH(who_releases_what_he_has_not_been_told_of_harms_nobody, 2)
{
    store(&g.b);
    uint64_t lease = next_lease();
    const uint64_t load = sr_pages_load(&s, p, &g);
    (void)sr_release(&s, p, lease);
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, load), 1);

    lease = next_lease();
    const uint64_t fill = sr_acquire_on(&s, p, &g.b, 0);
    (void)sr_release(&s, p, lease);
    if (_i == 0)
        sr_device_copies(&s);
    else
        (void)sr_cancel(&s, p, fill);
    sr_turn(&s, 0);
    sr_device_copies(&s);
    ck_assert_uint_eq(sr_replies(&s, fill), 1);
    ck_assert_uint_eq(metrics()->leases, 0);
}
