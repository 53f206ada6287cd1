/* SPDX-License-Identifier: Apache-2.0 */
/* What needs a storage tier: DRAIN, its tables, durable stores, VERIFY of it. */
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

static struct srig s;
static struct sr_storage storage;

static void without(void)
{
    sr_defaults(&s);
    sr_begin(&s);
}

static void with(void)
{
    sr_defaults(&s);
    storage = (struct sr_storage){.paths = 2};
    for (unsigned i = 0; i < 2; i++)
        storage.path[i] = (struct kvc_path){
            .path = {'/', i ? 'b' : 'a'}, .state = KVC_PATH_UP, .write_bytes = 7 + i};
    s.storage = &storage;
    sr_begin(&s);
}

static void with_little_memory(void)
{
    sr_defaults(&s);
    storage = (struct sr_storage){.paths = 0};
    s.storage = &storage;
    s.regions = 1;
    sr_begin(&s);
}

static void teardown(void)
{
    sr_end(&s);
    s.storage = NULL;
}

static uint64_t send_shutdown(struct sr_peer *p)
{
    struct msg_drain msg = {.bytes_max = 1};
    return SR_SEND(&s, p, drain, DRAIN, &msg);
}

static struct msg_drain_reply drained(uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_drain_reply reply;
    SR_READ(&s, corr, drain, &head, &reply);
    return reply;
}

static uint64_t send_verify(struct sr_peer *p, uint8_t tier)
{
    struct msg_verify msg = {.tier = tier, .bytes_max = 1};
    return SR_SEND(&s, p, verify, VERIFY, &msg);
}

/* One block, to be durable. */
static uint64_t send_store(struct sr_peer *p, uint32_t ns)
{
    static const uint8_t offset[8];
    uint8_t key[KVC_KEY_BYTES];
    sr_key(1, 0, key);
    struct msg_store msg = {
        .reserve = {.ns = ns, .flags = KVC_F_DURABLE, .keys = {key, sizeof(key)}},
        .offsets = {offset, sizeof(offset)}};
    return SR_SEND(&s, p, store, STORE, &msg);
}

static uint64_t send_reserve(struct sr_peer *p, uint32_t ns)
{
    uint8_t key[KVC_KEY_BYTES];
    sr_key(1, 0, key);
    struct msg_reserve msg = {.ns = ns, .flags = KVC_F_DURABLE, .keys = {key, sizeof(key)}};
    return SR_SEND(&s, p, reserve, RESERVE, &msg);
}

CASES(.setup = without, .teardown = teardown);

CASE(without_a_tier_what_needs_it_is_refused_by_name)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 4096);
    const uint32_t ns = sr_ns(&s, p, "m");
    const uint64_t refused[] = {send_shutdown(p), send_verify(p, KVC_TIER_NVME), send_store(p, ns),
                                send_reserve(p, ns)};
    for (unsigned i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        ck_assert_uint_eq(sr_status(&s, refused[i]), KVC_ST_BAD_ARGUMENT);
        ck_assert_ptr_nonnull(strstr(sr_detail(&s, refused[i]), "nvme.paths"));
    }
}

CASE(without_a_tier_there_are_no_paths)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 0);
    struct kvc_path path[2];
    struct kvc_writes writes;
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_PATHS, 2, path), 0);
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_WRITES, 1, &writes), 0);
}

CASES(.setup = with, .teardown = teardown);

CASE(paths_are_what_the_tier_counts)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 0);
    struct kvc_path path[2];
    struct kvc_writes writes;
    storage.writes.kept_bytes = 5;
    memset(storage.path[0].path, 'p', sizeof path[0].path);
    memcpy(storage.path[0].path + 254, "\xc3\xa9", 2); /* too long: no character is cut in two */
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_PATHS, 2, path), 2);
    ck_assert_uint_eq(strlen(path[0].path), 254);
    ck_assert_uint_eq(path[1].write_bytes, 8);
    ck_assert_str_eq(path[1].path, "/b");
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_WRITES, 1, &writes), 1);
    ck_assert_uint_eq(writes.kept_bytes, 5);
}

CASE(they_are_for_administrators)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 0);
    ck_assert_uint_eq(sr_status(&s, send_shutdown(p)), KVC_ST_DENIED);
    const enum kvc_table_id tables[] = {KVC_TABLE_PATHS, KVC_TABLE_WRITES};
    for (unsigned i = 0; i < 2; i++)
        ck_assert_uint_eq(sr_list(&s, p, &(struct msg_list){.table = tables[i]})->status,
                          KVC_ST_DENIED);
}

CASE(a_drain_with_nothing_left_is_done)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 0);
    struct msg_drain_reply r = drained(send_shutdown(p));
    ck_assert_uint_eq(r.left, 0);
    ck_assert_uint_eq(r.stop, KVC_DRAIN_GOES_ON);
}

CASE(a_drain_says_what_stops_it)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_OPS, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 3};
    (void)sr_store(&s, p, &b);
    sr_copies(&s);
    ck_assert_uint_eq(drained(send_shutdown(p)).stop, KVC_DRAIN_GOES_ON);
    storage.writes.per_day_bytes = 1000;
    storage.writes.left_bytes = 3 * 64 - 1;
    struct msg_drain_reply r = drained(send_shutdown(p));
    ck_assert_uint_eq(r.left, 3 * 64);
    ck_assert_uint_eq(r.stop, KVC_DRAIN_BUDGET);
    storage.path[0].state = storage.path[1].state = KVC_PATH_OUT;
    ck_assert_uint_eq(drained(send_shutdown(p)).stop, KVC_DRAIN_OUT);
}

/* ---- ranks ---- */

/* A namespace of two shards. */
static uint32_t open_wide(struct sr_peer *p)
{
    struct msg_ns_open msg = {.model = codec_text("wide"),
                              .position = codec_text("rope"),
                              .attention = codec_text("causal"),
                              .shards = 2,
                              .ngroups = 1};
    struct msg_reply_head head;
    struct msg_ns_open_reply reply;
    msg.groups[0] = (struct msg_group){.block_tokens = 8, .block_bytes = 64};
    const uint64_t corr = SR_SEND(&s, p, ns_open, NS_OPEN, &msg);
    SR_READ(&s, corr, ns_open, &head, &reply);
    return reply.ns;
}

/* One block of one shard, which lands. */
static uint64_t store_shard(struct sr_peer *p, uint32_t shard, uint32_t flags)
{
    static const uint8_t offset[8];
    uint8_t key[KVC_KEY_BYTES];
    sr_key(1, 0, key);
    struct msg_store msg = {
        .reserve = {.ns = open_wide(p), .flags = flags, .shard = shard, .keys = {key, sizeof(key)}},
        .offsets = {offset, sizeof(offset)}};
    const uint64_t corr =
        sr_send(&s, p, codec_enc_store(s.buf, sizeof(s.buf), sr_head(&s, KVC_OP_STORE, 300), &msg));
    for (unsigned i = 0; i < 4; i++)
        sr_copies(&s);
    return corr;
}

CASE(a_rank_waits_for_the_others_to_make_its_block_durable)
{
    struct sr_peer *one = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_peer *two = sr_peer(&s, 1, SR_UID_ONE + 1, 4096);
    const uint64_t first = store_shard(one, 0, KVC_F_DURABLE);
    ck_assert_uint_eq(sr_replies(&s, first), 0);
    const uint64_t last = store_shard(two, 1, 0);
    sr_all(&s, first, KVC_ST_OK);
    sr_all(&s, last, KVC_ST_OK);
    ck_assert_uint_eq(fake_disk_puts(s.disk, true), 2);
}

CASE(a_rank_whose_others_do_not_come_is_told_at_its_deadline)
{
    struct sr_peer *one = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_peer *two = sr_peer(&s, 1, SR_UID_ONE + 1, 4096);
    const uint64_t first = store_shard(one, 0, KVC_F_DURABLE);
    sr_turn(&s, 299);
    ck_assert_uint_eq(sr_replies(&s, first), 0);
    sr_turn(&s, 1);
    ck_assert_uint_eq(sr_status(&s, first), KVC_ST_TIMEOUT);
    ck_assert(svc_is_quiet(s.svc));
    sr_all(&s, store_shard(two, 1, 0), KVC_ST_OK); /* and the block is made durable all the same */
    ck_assert_uint_eq(fake_disk_puts(s.disk, true), 2);
}

CASE(a_rank_is_told_when_another_ends_with_its_part)
{
    struct sr_peer *one = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_peer *two = sr_peer(&s, 1, SR_UID_ONE + 1, 4096);
    uint8_t key[KVC_KEY_BYTES];
    sr_key(1, 0, key);
    struct msg_reserve msg = {.ns = open_wide(two), .shard = 1, .keys = {key, sizeof(key)}};
    const uint64_t reserved = SR_SEND(&s, two, reserve, RESERVE, &msg);
    ck_assert_uint_ne(sr_reservation(&s, reserved), 0);
    const uint64_t first = store_shard(one, 0, KVC_F_DURABLE);
    ck_assert_uint_eq(sr_replies(&s, first), 0);
    sr_leave(&s, two);
    sr_settle(&s);
    sr_all(&s, first, KVC_ST_GONE);
}

/* The others are told SHUTDOWN from now on. */
CASE(a_shutdown_does_not_wait_for_other_ranks)
{
    struct sr_peer *one = sr_peer(&s, 0, SR_UID_ONE, 4096);
    const uint64_t first = store_shard(one, 0, KVC_F_DURABLE);
    svc_shutdown(s.svc);
    sr_settle(&s);
    ck_assert_uint_eq(sr_status(&s, first), KVC_ST_SHUTDOWN);
    ck_assert(svc_is_quiet(s.svc));
}

CASES(.setup = with_little_memory, .teardown = teardown);

/* A disk that writes nothing: memory is full of blocks that are on their way there. */
CASE(a_store_that_waits_for_room_is_counted)
{
    struct sr_peer *p = sr_peer(&s, 0, SR_UID_ONE, 4096);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .n = 16};
    uint64_t corr = 0;
    for (b.chain = 1; b.chain <= 4; b.chain++) { /* 64 blocks are all that there is room for */
        corr = sr_store(&s, p, &b);
        (void)fake_tier_run(s.tier, UINT32_MAX, 0);
        sr_turn(&s, 0);
        sr_all(&s, corr, KVC_ST_OK);
    }
    corr = sr_store(&s, p, &b);
    sr_turn(&s, 1);
    ck_assert_uint_eq(sr_replies(&s, corr), 0);
    ck_assert_uint_eq(sr_metric(&s, "room_wait_ns"), 0); /* none has ended */
    for (unsigned ms = 0; ms < 10000 && sr_metric(&s, "room_wait_ns") == 0; ms++)
        sr_turn(&s, 1);
    ck_assert_uint_eq(sr_metric(&s, "room_wait_ns"), 1);
    ck_assert_uint_eq(sr_metric(&s, "room_waits_late"), 1);
    sr_copies(&s);
    sr_all(&s, corr, KVC_ST_OK);
}
