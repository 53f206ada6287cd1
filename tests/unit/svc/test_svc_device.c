/* SPDX-License-Identifier: Apache-2.0 */
/* What sessions have on devices: words, memory, pools; and who may say what. */
#include <stdlib.h>

#include "cases.h"
#include "svc_rig.h"

static struct srig s;
static struct sr_peer *p;

static void begin(uint32_t devices)
{
    sr_defaults(&s);
    s.ndevices = devices;
    s.slots = 4;
    sr_begin(&s);
    p = sr_peer(&s, 0, SR_UID_ONE, 0);
}

static void setup(void)
{
    begin(2);
}

static void teardown(void)
{
    sr_end(&s);
}

static uint16_t words_status(struct sr_peer *peer)
{
    struct att_words msg = {0};
    struct att_words_are reply;
    (void)sr_attach_send(&s, peer, codec_enc_att_words(s.buf, sizeof(s.buf), &msg), -1);
    ck_assert_int_eq(codec_dec_att_words_are(peer->last, peer->last_len, &reply), 0);
    ck_assert((reply.status == KVC_ST_OK) == (peer->last_fd >= 0));
    ck_assert((reply.status == KVC_ST_OK) == (reply.bytes == KVC_WORDS_BYTES));
    return reply.status;
}

/* ---- words ---- */

CASES(.setup = setup, .teardown = teardown);

CASE(a_session_gets_one_page_of_words)
{
    ck_assert_uint_eq(words_status(p), KVC_ST_OK);
    ck_assert_uint_eq(s.words, 1);
    ck_assert_uint_eq(sr_fds(&s), 0); /* closed once it was sent */
    ck_assert_uint_eq(words_status(p), KVC_ST_BAD_ARGUMENT);
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_TWO, 0);
    ck_assert_uint_eq(words_status(q), KVC_ST_OK);
    ck_assert_uint_eq(s.words, 2);
    sr_leave(&s, p);
    ck_assert_uint_eq(s.words, 1);
}

CASE(words_that_cannot_be_made_can_be_asked_for_again)
{
    s.words_verdict = -ENOMEM;
    ck_assert_uint_eq(words_status(p), KVC_ST_BUSY);
    s.words_verdict = 0;
    ck_assert_uint_eq(words_status(p), KVC_ST_OK);
}

CASE(without_devices_there_are_neither_words_nor_memory)
{
    sr_end(&s);
    begin(0);
    ck_assert_uint_eq(words_status(p), KVC_ST_BAD_ARGUMENT);
    ck_assert(!sr_mem(&s, p, 0, 0, sr_fd(&s)));
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_TIER);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 0)), KVC_ST_TIER);
    struct sr_blocks b = {.ns = sr_ns(&s, p, "m"), .chain = 1, .n = 1};
    ck_assert_uint_eq(sr_status(&s, sr_acquire_on(&s, p, &b, 0)), KVC_ST_TIER);
    struct kvc_device none;
    struct kvc_rate rate;
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_DEVICES, 1, &none), 0);
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_RATES, 1, &rate), 0);
}

/* ---- memory ---- */

CASE(memory_is_answered_when_it_is_there)
{
    unsigned before = p->messages;
    ck_assert(sr_mem(&s, p, 5, 1, sr_fd(&s)));
    ck_assert_uint_eq(p->messages, before);
    ck_assert_uint_eq(sr_fds(&s), 1);
    sr_imported(&s, 1, 0);
    ck_assert_uint_eq(sr_mem_is(p, 5), KVC_ST_OK);
    ck_assert_uint_eq(sr_fds(&s), 0); /* what the import borrowed is closed */
    ck_assert_uint_eq(sr_metric(&s, "mems"), 1);
    sr_mem_drop(&s, p, 5);
    ck_assert_uint_eq(s.device[1].nmems, 0);
    ck_assert_uint_eq(sr_metric(&s, "mems"), 0);
    ck_assert(sr_mem(&s, p, 5, 0, sr_fd(&s))); /* the number is free */
    sr_imported(&s, 0, 0);
    ck_assert_uint_eq(sr_mem_is(p, 5), KVC_ST_OK);
}

CASE(an_import_that_fails_says_why_and_frees_the_number)
{
    static const struct {
        int err;
        uint16_t status;
    } cases[] = {{-EINVAL, KVC_ST_BAD_ARGUMENT},
                 {-EOPNOTSUPP, KVC_ST_UNKNOWN_OP},
                 {-ENOMEM, KVC_ST_FULL},
                 {-EMFILE, KVC_ST_BUSY},
                 {-EIO, KVC_ST_TIER}};
    for (unsigned i = 0; i < 5; i++) {
        ck_assert(sr_mem(&s, p, 0, 0, sr_fd(&s)));
        sr_imported(&s, 0, cases[i].err);
        ck_assert_uint_eq(sr_mem_is(p, 0), cases[i].status);
        ck_assert_uint_eq(sr_fds(&s), 0);
        s.device[0].verdict = cases[i].err; /* and one that cannot even begin */
        ck_assert(!sr_mem(&s, p, 0, 0, sr_fd(&s)));
        ck_assert_uint_eq(sr_mem_is(p, 0), cases[i].status);
        s.device[0].verdict = 0;
    }
    ck_assert_uint_eq(sr_metric(&s, "mems"), 0);
}

CASE(memory_that_cannot_be_is_refused_and_its_descriptor_not_taken)
{
    ck_assert(!sr_mem(&s, p, 0, 0, -1)); /* none came, or several */
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_BAD_ARGUMENT);
    ck_assert(!sr_mem(&s, p, 0, 9, sr_fd(&s))); /* no such device: all zeroes */
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_TIER);
    ck_assert(sr_mem(&s, p, 0, 0, sr_fd(&s)));
    ck_assert(!sr_mem(&s, p, 0, 1, sr_fd(&s))); /* in use: under way */
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_BAD_ARGUMENT);
    sr_imported(&s, 0, 0);
    ck_assert(!sr_mem(&s, p, 0, 1, sr_fd(&s))); /* and when it is there */
    ck_assert_uint_eq(sr_mem_is(p, 0), KVC_ST_BAD_ARGUMENT);
}

/* Bytes instead of a descriptor; one that comes along is nobody's. */
CASE(memory_by_ipc_takes_no_descriptor)
{
    uint8_t ipc[KVC_IPC_BYTES] = {1, 2, 3};
    struct att_mem msg = {
        .mem = 1, .kind = KVC_HANDLE_IPC, .bytes = 4096, .offset = 512, .ipc = {ipc, sizeof(ipc)}};
    memcpy(msg.uuid, s.device[0].uuid, sizeof(msg.uuid));
    ck_assert(!sr_attach_send(&s, p, codec_enc_att_mem(s.buf, sizeof(s.buf), &msg), sr_fd(&s)));
    sr_imported(&s, 0, 0);
    ck_assert_uint_eq(sr_mem_is(p, 1), KVC_ST_OK);
}

CASE(memory_dropped_before_it_is_there_goes_when_it_comes)
{
    ck_assert(sr_mem(&s, p, 3, 0, sr_fd(&s)));
    sr_mem_drop(&s, p, 3);
    ck_assert_uint_eq(s.device[0].dropped, 0); /* its descriptor is in use */
    ck_assert(!sr_mem(&s, p, 3, 0, sr_fd(&s)));
    ck_assert_uint_eq(sr_mem_is(p, 3), KVC_ST_BAD_ARGUMENT);
    sr_imported(&s, 0, 0);
    ck_assert_uint_eq(sr_mem_is(p, 3), KVC_ST_CANCELLED);
    ck_assert_uint_eq(s.device[0].dropped, 1);
    ck_assert_uint_eq(sr_fds(&s), 0);
    ck_assert(sr_mem(&s, p, 3, 0, sr_fd(&s)));
    sr_mem_drop(&s, p, 3);
    sr_imported(&s, 0, -EINVAL); /* and one that never was */
    ck_assert_uint_eq(sr_mem_is(p, 3), KVC_ST_BAD_ARGUMENT);
    sr_mem_drop(&s, p, 3); /* of nothing: nothing */
    sr_mem_drop(&s, p, 1023);
    ck_assert(!p->closed);
}

/* A flood holds so many descriptors and no more. */
CASE(imports_under_way_are_bounded)
{
    unsigned taken = 0;
    for (uint32_t i = 0; i < KVC_MEMS_MAX; i++)
        taken += sr_mem(&s, p, i, i % 2, sr_fd(&s));
    ck_assert_uint_eq(taken, 64);
    ck_assert_uint_eq(sr_fds(&s), 64);
    ck_assert_uint_eq(sr_mem_is(p, KVC_MEMS_MAX - 1), KVC_ST_BUSY);
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_TWO, 0); /* others have their own */
    ck_assert(sr_mem(&s, q, 0, 0, sr_fd(&s)));
    sr_imported(&s, 0, 0);
    ck_assert(sr_mem(&s, p, 100, 0, sr_fd(&s)));
}

CASE(a_session_that_ends_waits_for_its_imports)
{
    ck_assert_uint_eq(words_status(p), KVC_ST_OK);
    ck_assert(sr_mem(&s, p, 0, 0, sr_fd(&s)));
    ck_assert(sr_mem(&s, p, 1, 1, sr_fd(&s)));
    ck_assert(sr_mem(&s, p, 2, 1, sr_fd(&s)));
    sr_imported(&s, 0, 0);
    sr_leave(&s, p);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    ck_assert_uint_eq(s.words, 1);
    sr_imported(&s, 1, 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 1);
    sr_imported(&s, 1, -EIO);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
    ck_assert_uint_eq(s.device[0].nmems + s.device[1].nmems, 0);
    ck_assert_uint_eq(s.device[0].dropped + s.device[1].dropped, 2);
    ck_assert_uint_eq(s.words, 0);
    ck_assert_uint_eq(sr_fds(&s), 0);
}

CASE(messages_about_devices_before_hello_end_the_session)
{
    struct sr_peer *q = sr_connect(&s, 1, SR_UID_TWO);
    ck_assert(!sr_mem(&s, q, 0, 0, sr_fd(&s)));
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(q), KVC_ST_BAD_MESSAGE);
    q->conn = UINT32_MAX;
    static const char bad[] = "\x97\x09\x00"; /* MEM, cut off, with a descriptor */
    int fd = sr_fd(&s), left = fd;
    svc_attach_message(s.svc, p->conn, bad, sizeof(bad) - 1, &left);
    ck_assert_int_eq(left, fd);
    sr_turn(&s, 0);
    ck_assert_uint_eq(sr_dropped_status(p), KVC_ST_BAD_MESSAGE);
    p->conn = UINT32_MAX;
}

/* ---- pools ---- */

CASE(a_pool_opens_in_memory_that_is_there)
{
    sr_pool(&s, p, 7, 1);
    ck_assert_uint_eq(s.device[1].pools, 1);
    ck_assert_uint_eq(sr_metric(&s, "pools"), 1);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 7, 1)), KVC_ST_BAD_ARGUMENT);
    sr_mem_drop(&s, p, 0); /* the device keeps the mapping */
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 7)), KVC_ST_OK);
    ck_assert_uint_eq(s.device[1].pools, 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 7)), KVC_ST_BAD_ARGUMENT);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 7, 1)), KVC_ST_BAD_ARGUMENT);
}

CASE(a_pool_names_no_memory_but_the_sessions_own_on_its_device)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE + 1, 0);
    sr_pool(&s, q, 0, 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 0)), KVC_ST_BAD_ARGUMENT);
    ck_assert(sr_mem(&s, p, 0, 1, sr_fd(&s)));
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 1)), KVC_ST_BAD_ARGUMENT); /* not yet */
    sr_imported(&s, 1, 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 0)), KVC_ST_BAD_ARGUMENT); /* other */
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 9)), KVC_ST_TIER);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 0, 1)), KVC_ST_OK);
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 1)), KVC_ST_BAD_ARGUMENT);
    /* Its number 0 is another pool than that of q. */
    ck_assert_uint_eq(sr_status(&s, sr_pool_close(&s, p, 0)), KVC_ST_OK);
    ck_assert_uint_eq(s.device[0].pools, 1);
}

CASE(what_the_device_says_of_a_pool_is_passed_on)
{
    uint8_t region[KVC_REGION_BYTES];
    struct msg_pool_open msg = {.pages_max = 64, .ngroups = 1};
    ck_assert(sr_mem(&s, p, 0, 0, sr_fd(&s)));
    sr_imported(&s, 0, 0);
    codec_put_region(region, &(struct msg_region){.stride_bytes = 128, .page_bytes = 64});
    msg.groups[0] =
        (struct msg_pool_group){.pages_per_block = 1, .regions = {region, sizeof(region)}};
    memcpy(msg.uuid, s.device[0].uuid, sizeof(msg.uuid));
    const struct msg_head *h = sr_head(&s, KVC_OP_POOL_OPEN, 0);
    uint64_t open = sr_send(&s, p, codec_enc_pool_open(s.buf, sizeof(s.buf), h, &msg));
    ck_assert_uint_eq(sr_status(&s, open), KVC_ST_BAD_ARGUMENT);
    ck_assert_str_eq(sr_detail(&s, open), "a region ends beyond its memory");
}

CASE(a_group_has_so_many_regions_and_no_more)
{
    static uint8_t regions[1025 * KVC_REGION_BYTES];
    struct msg_pool_open msg = {.pages_max = 1, .ngroups = 1};
    ck_assert(sr_mem(&s, p, 0, 0, sr_fd(&s)));
    sr_imported(&s, 0, 0);
    for (size_t i = 0; i < 1025; i++)
        codec_put_region(regions + i * KVC_REGION_BYTES,
                         &(struct msg_region){.stride_bytes = 1, .page_bytes = 1});
    msg.groups[0] =
        (struct msg_pool_group){.pages_per_block = 1, .regions = {regions, sizeof(regions)}};
    memcpy(msg.uuid, s.device[0].uuid, sizeof(msg.uuid));
    const struct msg_head *h = sr_head(&s, KVC_OP_POOL_OPEN, 0);
    uint64_t open = sr_send(&s, p, codec_enc_pool_open(s.buf, sizeof(s.buf), h, &msg));
    ck_assert_uint_eq(sr_status(&s, open), KVC_ST_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(sr_detail(&s, open), "1024"));
}

CASE(a_session_that_ends_takes_pools_and_memory_along)
{
    sr_pool(&s, p, 0, 0);
    ck_assert_uint_eq(sr_status(&s, sr_pool_open(&s, p, 1, 0)), KVC_ST_OK);
    sr_leave(&s, p);
    ck_assert_uint_eq(s.device[0].pools, 0);
    ck_assert_uint_eq(s.device[0].nmems, 0);
    ck_assert_uint_eq(sr_metric(&s, "pools"), 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

/* ---- the daemon's memory ---- */

static uint16_t headers(struct sr_peer *peer, uint32_t chunk, int *ret_fd)
{
    struct att_map msg = {.chunk = chunk};
    struct att_chunk reply;
    (void)sr_attach_send(&s, peer, codec_enc_att_map(s.buf, sizeof(s.buf), &msg), -1);
    ck_assert_int_eq(codec_dec_att_chunk(peer->last, peer->last_len, &reply), 0);
    ck_assert_uint_eq(reply.chunk, chunk);
    ck_assert_uint_eq(reply.bytes, reply.status == KVC_ST_OK ? 8192 : 0);
    *ret_fd = peer->last_fd;
    return reply.status;
}

static struct att_chunk_on memory(struct sr_peer *peer, uint32_t chunk)
{
    struct att_map_on msg = {.chunk = chunk};
    struct att_chunk_on reply;
    (void)sr_attach_send(&s, peer, codec_enc_att_map_on(s.buf, sizeof(s.buf), &msg), -1);
    ck_assert_int_eq(codec_dec_att_chunk_on(peer->last, peer->last_len, &reply), 0);
    ck_assert_uint_eq(reply.chunk, chunk);
    return reply;
}

CASE(a_chunk_of_a_device_comes_in_two_parts)
{
    const uint32_t chunk = 2u << DEVICE_CHUNK_SHIFT | 5;
    int fd;
    ck_assert_uint_eq(headers(p, chunk, &fd), KVC_ST_OK);
    ck_assert_int_eq(fd, 99);
    struct att_chunk_on on = memory(p, chunk);
    ck_assert_uint_eq(on.status, KVC_ST_OK);
    ck_assert_mem_eq(on.uuid, s.device[1].uuid, KVC_UUID_BYTES);
    ck_assert_uint_eq(on.kind, KVC_HANDLE_EMU);
    ck_assert_uint_eq(on.bytes, 1u << 16);
    ck_assert_int_eq(p->last_fd, 88);
    on = memory(p, 1u << DEVICE_CHUNK_SHIFT | 7); /* by bytes */
    ck_assert_uint_eq(on.kind, KVC_HANDLE_IPC);
    ck_assert_uint_eq(on.ipc.n, KVC_IPC_BYTES);
    ck_assert_int_eq(p->last_fd, -1);
}

CASE(a_chunk_of_a_device_goes_to_its_principal_alone)
{
    static const struct {
        uid_t uid;
        uint32_t chunk;
        uint16_t map, map_on;
    } want[] = {{SR_UID_TWO, 1u << DEVICE_CHUNK_SHIFT | 1, KVC_ST_DENIED, KVC_ST_DENIED},
                {SR_UID_ONE, 1u << DEVICE_CHUNK_SHIFT | 404, KVC_ST_GONE, KVC_ST_GONE},
                {SR_UID_ONE, 3u << DEVICE_CHUNK_SHIFT | 1, KVC_ST_GONE, KVC_ST_GONE},
                {SR_UID_ONE, 0xff000001, KVC_ST_GONE, KVC_ST_GONE},
                {SR_UID_ONE, 1, KVC_ST_OK, KVC_ST_GONE}}; /* of host memory */
    for (unsigned i = 0; i < 4; i++) {
        struct sr_peer *q = sr_peer(&s, 1, want[i].uid, 0);
        int fd;
        ck_assert_uint_eq(headers(q, want[i].chunk, &fd), want[i].map);
        ck_assert_int_eq(fd, -1);
        ck_assert_uint_eq(memory(q, want[i].chunk).status, want[i].map_on);
        ck_assert_int_eq(q->last_fd, -1);
        sr_leave(&s, q);
    }
    ck_assert_uint_eq(memory(p, want[4].chunk).status, want[4].map_on);
    fake_device_lose(s.device[0].fake);
    ck_assert_uint_eq(memory(p, 1u << DEVICE_CHUNK_SHIFT | 1).status, KVC_ST_TIER);
    fake_device_up(s.device[0].fake);
}

/* ---- until it is unmapped ---- */

#define CHUNK_0 (1u << DEVICE_CHUNK_SHIFT | 3)
#define CHUNK_1 (2u << DEVICE_CHUNK_SHIFT | 3)

static void unmapped(struct sr_peer *peer, uint32_t chunk)
{
    struct att_unmapped msg = {.chunk = chunk};
    (void)sr_attach_send(&s, peer, codec_enc_att_unmapped(s.buf, sizeof(s.buf), &msg), -1);
}

CASE(memory_is_lent_to_each_session_until_it_says_so)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_ONE, 0);
    ck_assert_uint_eq(memory(p, CHUNK_0).status, KVC_ST_OK);
    ck_assert_uint_eq(memory(p, CHUNK_0).status, KVC_ST_OK); /* the same, again */
    ck_assert_uint_eq(memory(p, CHUNK_1).status, KVC_ST_OK);
    ck_assert_uint_eq(s.device[0].lent, 1);
    ck_assert_uint_eq(memory(q, CHUNK_0).status, KVC_ST_OK);
    ck_assert_uint_eq(s.device[0].lent, 2);
    svc_chunk_retired(s.svc, CHUNK_0, 2);
    ck_assert_uint_eq(sr_metric(&s, "recalled"), 2);
    unmapped(p, CHUNK_0);
    ck_assert_uint_eq(s.device[0].lent, 1);
    ck_assert_uint_eq(s.device[0].last_given_back, CHUNK_0);
    unmapped(p, CHUNK_0); /* what it has not: nothing */
    unmapped(p, CHUNK_0 + 1);
    unmapped(p, 5);
    unmapped(p, UINT32_MAX);
    ck_assert_uint_eq(s.device[0].lent, 1);
    ck_assert_uint_eq(sr_metric(&s, "recalled"), 1);
    sr_leave(&s, q);
    ck_assert_uint_eq(s.device[0].lent, 0);
    ck_assert_uint_eq(sr_metric(&s, "recalled"), 0);
    ck_assert_uint_eq(s.device[1].lent, 1);
    unmapped(p, CHUNK_1); /* which is not retired */
    ck_assert_uint_eq(s.device[1].lent, 0);
    ck_assert_uint_eq(memory(p, CHUNK_1).status, KVC_ST_OK);
    ck_assert_uint_eq(s.device[1].lent, 1);
}

CASE(memory_that_is_refused_is_not_lent)
{
    struct sr_peer *q = sr_peer(&s, 1, SR_UID_TWO, 0);
    ck_assert_uint_eq(memory(q, CHUNK_0).status, KVC_ST_DENIED);
    ck_assert_uint_eq(memory(p, CHUNK_0 - 3 + 404).status, KVC_ST_GONE);
    ck_assert_uint_eq(s.device[0].lent, 0);
}

/* Closing its connection frees nothing while the process lives and maps. */
CASE(a_session_that_is_dropped_has_its_memory_until_it_closes)
{
    ck_assert_uint_eq(memory(p, CHUNK_0).status, KVC_ST_OK);
    svc_chunk_retired(s.svc, CHUNK_0, 2);
    s.buf[0] = 0xc1;
    (void)sr_attach_send(&s, p, 1, -1);
    svc_turn_end(s.svc);
    ck_assert(!p->closed);
    ck_assert_uint_eq(sr_metric(&s, "quarantined"), 1);
    ck_assert_uint_eq(s.device[0].lent, 1);
    sr_leave(&s, p);
    ck_assert_uint_eq(s.device[0].lent, 0);
    ck_assert_uint_eq(sr_metric(&s, "sessions"), 0);
}

CASE(a_session_that_does_not_unmap_is_named_and_goes_on)
{
    for (uint32_t i = 0; i < 40; i++)
        ck_assert_uint_eq(memory(p, CHUNK_0 + i).status, KVC_ST_OK);
    ck_assert_uint_eq(s.device[0].lent, 40);
    sr_turn(&s, SVC_RECALL_NS / 1000000 * 2);
    ck_assert_uint_eq(sr_metric(&s, "recalls_late"), 0); /* nothing was retired */
    svc_chunk_retired(s.svc, CHUNK_0, 2);
    svc_chunk_retired(s.svc, CHUNK_0 + 39, 2);
    sr_turn(&s, SVC_RECALL_NS / 1000000 + 1000);
    ck_assert_uint_eq(sr_metric(&s, "recalls_late"), 1);
    unmapped(p, CHUNK_0);
    sr_turn(&s, SVC_RECALL_NS / 1000000 + 1000);
    ck_assert_uint_eq(sr_metric(&s, "recalls_late"), 2);
    ck_assert(!p->closed);
    unmapped(p, CHUNK_0 + 39);
    sr_turn(&s, SVC_RECALL_NS / 1000000 * 2);
    ck_assert_uint_eq(sr_metric(&s, "recalls_late"), 2);
    ck_assert_uint_eq(s.device[0].lent, 38);
}

/* ---- what is told of them ---- */

CASE(everybody_is_told_of_the_devices)
{
    fake_device_lose(s.device[1].fake);
    struct kvc_device device[2];
    struct kvc_rate rate[2];
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_DEVICES, 2, device), 2);
    ck_assert_uint_eq(sr_rows(&s, p, KVC_TABLE_RATES, 2, rate), 2);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_mem_eq(device[i].uuid, s.device[i].uuid, KVC_UUID_BYTES);
    ck_assert(device[0].up && !device[1].up);
    ck_assert_str_eq(device[0].why, "");
    ck_assert_str_eq(device[1].why, "it was lost");
    ck_assert_str_eq(rate[0].device, device[0].device);
    ck_assert_uint_eq(rate[0].fragment_bytes, 4096);
    ck_assert_uint_eq(rate[0].to_engine, 7);
    ck_assert_uint_eq(rate[0].to_path, KVC_COPY_ENGINE);
    ck_assert_uint_eq(rate[0].from_path, KVC_COPY_UNKNOWN);
    fake_device_up(s.device[1].fake);
}
