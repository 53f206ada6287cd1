/* SPDX-License-Identifier: Apache-2.0 */
/* A session that lies, guesses and hoards; one of the same principal must not notice. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "hash.h"
#include "hostile.h"

#define KEYS 64u

static struct hostile s;
static struct peer p;
static uint32_t ns;
static uint8_t seed[KVC_KEY_BYTES], keys[4096 * KVC_KEY_BYTES], statuses[KVC_STORE_MAX];
static uint64_t offsets[KVC_STORE_MAX];

static void setup(void)
{
    static const char *const sets[] = {"limits.sessions=8", "limits.leases=64", "limits.waiters=64",
                                       "limits.requests=1000", NULL};
    hostile_begin(&s, sets);
    peer_open(&p, s.rig, 1u << 20);
    ck_assert_int_eq(peer_ns(&p, "hostile", HOSTILE_BT, HOSTILE_BLOCK, &ns, seed), KVC_ST_OK);
    peer_keys(seed, 1, HOSTILE_BT, 4096, keys);
    for (unsigned i = 0; i < KVC_STORE_MAX; i++)
        offsets[i] = i % KEYS * HOSTILE_BLOCK;
}

static void teardown(void)
{
    peer_close(&p);
    hostile_end(&s);
}

static struct codec_bin keys_bin(uint32_t first, uint32_t n)
{
    return (struct codec_bin){keys + (size_t)first * KVC_KEY_BYTES, n * KVC_KEY_BYTES};
}

static struct codec_bin offsets_bin(uint32_t n)
{
    return (struct codec_bin){(const uint8_t *)offsets, n * 8};
}

static struct msg_store store_of(uint32_t n)
{
    return (struct msg_store){.reserve = {.ns = ns, .keys = keys_bin(0, n)},
                              .offsets = offsets_bin(n)};
}

static struct msg_acquire acquire_of(uint32_t n, uint32_t flags)
{
    return (struct msg_acquire){
        .seq = {.ns = ns, .tokens = n * HOSTILE_BT, .ngroups = 1, .keys[0] = keys_bin(0, n)},
        .flags = flags};
}

static uint32_t release(struct peer *who, uint64_t lease)
{
    uint8_t buf[256];
    struct msg_head head = peer_head(who, KVC_OP_RELEASE);
    struct msg_release msg = {.leases = {(const uint8_t *)&lease, 8}};
    struct msg_reply_head rh;
    struct msg_release_reply reply;
    int len = codec_enc_release(buf, sizeof buf, &head, &msg);
    ck_assert_int_eq(peer_ask(who, &head, buf, len, &len), KVC_ST_OK);
    ck_assert_int_eq(codec_dec_release_reply(buf, (size_t)len, &rh, &reply), 0);
    return reply.released;
}

/* ---- staging ---- */

static atomic_bool stop;

static void *scribble(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; !atomic_load(&stop); i++)
        memset(p.staging + i % 128 * HOSTILE_BLOCK, (int)(i & 0xff), HOSTILE_BLOCK);
    return NULL;
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

/* What is served is what the checksum covers, and never changes once it is there. */
CASE(staging_that_changes_all_the_time)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, scribble, NULL), 0);
    for (unsigned round = 0; round < 40; round++) {
        uint64_t lease;
        struct msg_loc loc;
        peer_keys(seed, 100 + round, HOSTILE_BT, KEYS, keys);
        struct msg_store store = store_of(KEYS);
        ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
        for (unsigned i = 0; i < KEYS; i++)
            ck_assert_uint_eq(statuses[i], KVC_ST_OK);
        struct msg_acquire acquire = acquire_of(1, 0);
        ck_assert_int_eq(peer_acquire(&p, &acquire, &lease, &loc), KVC_ST_OK);
        int fd = peer_map(&p, loc.chunk);
        ck_assert_int_ge(fd, 0);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        const uint8_t *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(map, MAP_FAILED);
        struct hash128 before = hash_sum(map + loc.off, HOSTILE_BLOCK), sum;
        memcpy(&sum, map + loc.hdr + 16, sizeof sum); /* struct slot_header, daemon/tier/layout.h */
        ck_assert(hash128_equal(&before, &sum));
        rig_sleep_ms(2);
        struct hash128 after = hash_sum(map + loc.off, HOSTILE_BLOCK);
        ck_assert(hash128_equal(&before, &after));
        munmap((void *)(uintptr_t)map, (size_t)st.st_size);
        close(fd);
        ck_assert_uint_eq(release(&p, lease), 1);
        if (round % 8 == 0)
            hostile_serve(&s);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

CASE(staging_keeps_its_size)
{
    ck_assert_int_lt(ftruncate(p.staging_fd, 0), 0);
    ck_assert_int_lt(ftruncate(p.staging_fd, (off_t)p.staging_bytes * 2), 0);
    ck_assert_int_lt(fcntl(p.staging_fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    /* Holes are zeros to the daemon. */
    ck_assert_int_eq(fallocate(p.staging_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                               (off_t)p.staging_bytes),
                     0);
    struct msg_store store = store_of(KEYS);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    ck_assert_uint_eq(statuses[0], KVC_ST_OK);
}

/* ---- lies ---- */

CASE(offsets_outside_of_staging)
{
    static const uint64_t bad[] = {1u << 20,
                                   (1u << 20) - 64,
                                   (1u << 20) - HOSTILE_BLOCK + 64,
                                   UINT64_MAX - 1,
                                   UINT64_MAX - 63,
                                   INT64_MAX,
                                   1,
                                   63,
                                   UINT64_MAX / 64 * 64};
    const unsigned n = sizeof bad / sizeof bad[0];
    for (unsigned i = 0; i < n; i++) {
        peer_keys(seed, 200 + i, HOSTILE_BT, 2, keys);
        offsets[0] = bad[i];
        struct msg_store store = store_of(1);
        ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
        ck_assert_uint_eq(statuses[0], KVC_ST_BAD_ARGUMENT);
    }
    offsets[0] = offsets[1] = (1u << 20) - HOSTILE_BLOCK; /* the last block, twice: allowed */
    struct msg_store store = store_of(2);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    ck_assert(statuses[0] == KVC_ST_OK && statuses[1] == KVC_ST_OK);
    rig_wait_stat(s.k, "core.reservations", 0);
}

CASE(lies_about_shapes)
{
    struct msg_store good = store_of(2), bad[16];
    unsigned n = 0;
    for (unsigned i = 0; i < 16; i++)
        bad[i] = good;
    bad[n++].reserve.ns = ns + 1;
    bad[n++].reserve.ns = 0;
    bad[n++].reserve.ns = UINT32_MAX;
    bad[n++].reserve.group = 1;
    bad[n++].reserve.group = UINT32_MAX;
    bad[n++].reserve.shard = 1;
    bad[n++].reserve.shard = UINT32_MAX;
    bad[n++].reserve.last_tokens = HOSTILE_BT + 1;
    bad[n++].reserve.last_tokens = UINT32_MAX;
    bad[n++].reserve.first_token = 1;
    bad[n++].reserve.first_token = HOSTILE_BT; /* and no parent */
    bad[n++].reserve.parent = keys_bin(5, 1);  /* and first_token 0 */
    bad[n++].reserve.sub = (struct codec_bin){(const uint8_t *)"alice", 5};
    bad[n].offsets.n = 8, n++;
    bad[n].offsets.n = 0, n++;
    bad[n].tokens = (struct codec_bin){keys, 8}, n++;
    for (unsigned i = 0; i < n; i++) {
        int status = peer_store(&p, &bad[i], statuses);
        ck_assert_msg(status != KVC_ST_OK && status != PEER_CLOSED, "lie %u: %d", i, status);
    }
    struct msg_acquire lie = acquire_of(4, 0);
    lie.seq.tokens = UINT32_MAX;
    uint64_t lease;
    ck_assert_int_eq(peer_acquire(&p, &lie, &lease, NULL), KVC_ST_BAD_ARGUMENT);
    lie.seq.tokens = 1;
    ck_assert_int_eq(peer_acquire(&p, &lie, &lease, NULL), KVC_ST_BAD_ARGUMENT);
    lie = acquire_of(4, 0);
    lie.seq.ngroups = 2;
    ck_assert_int_eq(peer_acquire(&p, &lie, &lease, NULL), KVC_ST_BAD_ARGUMENT);
    lie = acquire_of(4, 0);
    lie.shard = 63;
    lie.from_tokens = UINT32_MAX;
    (void)peer_acquire(&p, &lie, &lease, NULL);
    ck_assert_int_eq(peer_ping(&p), KVC_ST_OK);
    hostile_serve_hit(&s);
}

/* A key says which tokens a block holds: the same key again with another length is one lie too
 * many, and changes nothing of what is there. */
CASE(a_key_stored_twice_changes_nothing)
{
    struct msg_store store = store_of(4);
    memset(p.staging, 1, p.staging_bytes);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    memset(p.staging, 2, p.staging_bytes);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_EXISTS);
    store.reserve.last_tokens = 3;
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    ck_assert_uint_eq(statuses[3], KVC_ST_BAD_ARGUMENT);
    struct kvc_ns *same = rig_ns(s.k, "hostile", HOSTILE_BT, HOSTILE_BLOCK);
    struct kvc_seq seq = rig_seq(keys, 4, HOSTILE_BT);
    struct kvc_hold *hold;
    ck_assert_int_eq(kvc_acquire(same, &seq, NULL, &hold), 0);
    ck_assert_uint_eq(hold->group[0].n, 4);
    for (unsigned i = 0; i < 4; i++)
        for (unsigned b = 0; b < HOSTILE_BLOCK; b++)
            ck_assert_uint_eq(((const uint8_t *)hold->group[0].block[i].data)[b], 1);
    kvc_release(s.k, &hold);
}

/* ---- what belongs to another session ---- */

static int drop(struct peer *who, uint64_t reservation)
{
    uint8_t buf[256];
    struct msg_head head = peer_head(who, KVC_OP_DROP);
    struct msg_drop msg = {.reservation = reservation};
    int len = codec_enc_drop(buf, sizeof buf, &head, &msg);
    return peer_ask(who, &head, buf, len, &len);
}

static int commit(struct peer *who, uint64_t reservation)
{
    uint8_t buf[256];
    struct msg_head head = peer_head(who, KVC_OP_COMMIT);
    struct msg_commit msg = {.reservation = reservation, .offsets = offsets_bin(1)};
    int len = codec_enc_commit(buf, sizeof buf, &head, &msg);
    return peer_ask(who, &head, buf, len, &len);
}

CASE(ids_of_others_and_of_nobody)
{
    struct peer other;
    uint64_t reservation, lease;
    struct msg_loc loc;
    peer_open(&other, s.rig, 65536);
    struct msg_store store = store_of(4);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    struct msg_acquire acquire = acquire_of(4, 0);
    ck_assert_int_eq(peer_acquire(&p, &acquire, &lease, &loc), KVC_ST_OK);
    struct msg_reserve reserve = {
        .ns = ns, .parent = keys_bin(3, 1), .first_token = 4 * HOSTILE_BT, .keys = keys_bin(4, 4)};
    ck_assert_int_eq(peer_reserve(&p, &reserve, &reservation, statuses), KVC_ST_OK);
    ck_assert_uint_ne(reservation, 0);
    ck_assert_int_eq(commit(&other, reservation), KVC_ST_GONE);
    ck_assert_int_eq(drop(&other, reservation), KVC_ST_GONE);
    ck_assert_uint_eq(release(&other, lease), 0);
    for (uint64_t i = 0; i < 200; i++) {
        uint64_t guess = i < 100 ? i : (uint64_t)rand() << 32 | i % 70;
        ck_assert_int_eq(drop(&other, guess), KVC_ST_GONE);
        ck_assert_int_eq(commit(&other, guess), KVC_ST_GONE);
        ck_assert_uint_eq(release(&other, guess), 0);
        int fd = peer_map(&other, (uint32_t)(1000 + guess));
        ck_assert_int_eq(fd, -KVC_ST_GONE);
    }
    ck_assert_int_lt(peer_map(&other, 0), 0);
    ck_assert_int_lt(peer_map(&other, UINT32_MAX), 0);
    for (unsigned i = 0; i < 100; i++) { /* a ticket's number is known, its secret is not */
        uint8_t buf[1024];
        struct msg_head head = peer_head(&other, KVC_OP_REDEEM);
        struct msg_redeem redeem = {.ticket = {(uint8_t)i}};
        int len = codec_enc_redeem(buf, sizeof buf, &head, &redeem);
        ck_assert_int_eq(peer_ask(&other, &head, buf, len, &len), KVC_ST_NO_LEASE);
    }
    ck_assert_uint_eq(release(&p, lease), 1); /* it is all still there */
    ck_assert_int_eq(drop(&p, reservation), KVC_ST_OK);
    peer_close(&other);
}

/* ---- hoarding ---- */

CASE(leases_held_to_the_limit_leave_others_theirs)
{
    uint64_t lease;
    struct msg_store store = store_of(2);
    ck_assert_int_eq(peer_store(&p, &store, statuses), KVC_ST_OK);
    struct msg_acquire acquire = acquire_of(2, 0);
    int status;
    unsigned held = 0;
    while ((status = peer_acquire(&p, &acquire, &lease, NULL)) == KVC_ST_OK)
        ck_assert_uint_lt(++held, 64);
    ck_assert_int_eq(status, KVC_ST_BUSY);
    for (unsigned i = 0; i < 20; i++)
        hostile_serve_hit(&s);
}

CASE(reservations_never_committed_leave_others_theirs)
{
    uint64_t reservation;
    unsigned made = 0;
    int status = KVC_ST_OK;
    for (uint32_t i = 0; status == KVC_ST_OK; i++) { /* one by one: empties the pool of them */
        peer_keys(seed, 1000 + i, HOSTILE_BT, 1, keys);
        struct msg_reserve reserve = {.ns = ns, .keys = keys_bin(0, 1)};
        status = peer_reserve(&p, &reserve, &reservation, statuses);
        made += status == KVC_ST_OK;
        ck_assert_uint_lt(made, 64);
    }
    ck_assert_int_eq(status, KVC_ST_BUSY);
    hostile_serve(&s);
}

CASE(room_reserved_and_never_filled_leaves_others_half)
{
    uint64_t reservation;
    uint32_t got = 0;
    peer_keys(seed, 1, HOSTILE_BT, 4096, keys);
    struct msg_reserve reserve = {.ns = ns, .keys = keys_bin(0, 4096)}; /* 32 MiB of 16 */
    ck_assert_int_eq(peer_reserve(&p, &reserve, &reservation, statuses), KVC_ST_OK);
    for (unsigned i = 0; i < 4096; i++)
        got += statuses[i] == KVC_ST_OK;
    ck_assert_uint_eq(got, (8u << 20) / HOSTILE_BLOCK);
    hostile_serve(&s);
}

CASE(waiting_requests_leave_others_theirs)
{
    uint64_t reservation;
    uint8_t buf[4096];
    struct msg_reserve reserve = {.ns = ns, .keys = keys_bin(0, 2)};
    ck_assert_int_eq(peer_reserve(&p, &reserve, &reservation, statuses), KVC_ST_OK);
    for (unsigned i = 0; i < 200; i++) {
        struct msg_acquire wait = acquire_of(2, KVC_F_WAIT);
        struct msg_head head = peer_head(&p, KVC_OP_ACQUIRE);
        int len = codec_enc_acquire(buf, sizeof buf, &head, &wait);
        ck_assert(peer_frame(p.control, 0, buf, (size_t)len));
    }
    struct kvc_evict_filter all = {0};
    struct kvc_evicted gone;
    for (unsigned i = 0; i < 10; i++) { /* an eviction and a store are such requests as well */
        ck_assert_int_eq(kvc_evict(s.k, &all, &gone), 0);
        hostile_serve(&s);
    }
}

CASE(a_thousand_requests_in_flight_are_answered_one_by_one)
{
    enum { MANY = 1000 }; /* more are queued than ZeroMQ takes, and the session is dropped */
    static uint8_t reply[KVC_MESSAGE_MAX], seen[MANY + 100];
    uint8_t buf[4096];
    uint64_t first = p.corr + 1;
    unsigned answered = 0;
    for (unsigned i = 0; i < MANY; i++) {
        struct msg_head head = peer_head(&p, KVC_OP_LOOKUP);
        struct msg_lookup lookup = {.seq = acquire_of(8, 0).seq};
        int len = codec_enc_lookup(buf, sizeof buf, &head, &lookup);
        ck_assert(peer_frame(p.control, 0, buf, (size_t)len));
        if (i % 200 == 0)
            hostile_serve_hit(&s);
    }
    while (answered < MANY) {
        struct msg_reply_head h;
        int len = peer_message(p.control, reply, sizeof reply);
        ck_assert_int_gt(len, 0);
        ck_assert_int_eq(codec_dec_reply_head(reply, (size_t)len, &h), 0);
        ck_assert_uint_eq(seen[h.corr - first]++, 0);
        answered++;
    }
}

CASE(many_namespaces_of_one_session)
{
    uint32_t id;
    uint8_t other[KVC_KEY_BYTES];
    for (unsigned i = 0; i < 3000; i++) {
        char model[16];
        snprintf(model, sizeof model, "m%u", i);
        ck_assert_int_eq(peer_ns(&p, model, HOSTILE_BT, HOSTILE_BLOCK, &id, other), KVC_ST_OK);
    }
    hostile_serve_hit(&s); /* one that holds blocks is not recycled */
    ck_assert_uint_le(rig_stat(s.k, "core.namespaces"), 1024);
}

/* ---- workers that hang ---- */

static void setup_hung(void)
{
    static const char *const sets[] = {"limits.reserve_progress=1s", NULL};
    hostile_begin(&s, sets);
    peer_open(&p, s.rig, 1u << 20);
    ck_assert_int_eq(peer_ns(&p, "hostile", HOSTILE_BT, HOSTILE_BLOCK, &ns, seed), KVC_ST_OK);
    peer_keys(seed, 1, HOSTILE_BT, KEYS, keys);
    for (unsigned i = 0; i < KEYS; i++)
        offsets[i] = i * HOSTILE_BLOCK;
}

/* With so long a deadline that the reply does not come by it. */
static uint8_t wait_reason(struct peer *who)
{
    static uint8_t buf[65536];
    const struct msg_acquire msg = acquire_of(4, KVC_F_WAIT);
    struct msg_head head = peer_head(who, KVC_OP_ACQUIRE);
    struct msg_reply_head rh;
    struct msg_acquire_reply reply;
    head.deadline_ms = 300000;
    int len = codec_enc_acquire(buf, sizeof buf, &head, &msg);
    ck_assert_int_eq(peer_ask(who, &head, buf, len, &len), KVC_ST_OK);
    ck_assert_int_eq(codec_dec_acquire_reply(buf, (size_t)len, &rh, &reply), 0);
    ck_assert_uint_eq(reply.lease, 0);
    return reply.groups[0].reason;
}

CASES(.setup = setup_hung, .teardown = teardown, .timeout_s = 600);

CASE(what_a_hung_writer_announced_is_stored_by_others)
{
    struct peer q;
    uint64_t id;
    const struct msg_reserve reserve = {.ns = ns, .keys = keys_bin(0, 4)};
    peer_open(&q, s.rig, 1u << 20);
    ck_assert_int_eq(peer_ns(&q, "hostile", HOSTILE_BT, HOSTILE_BLOCK, &ns, seed), KVC_ST_OK);
    ck_assert_int_eq(peer_reserve(&p, &reserve, &id, statuses), KVC_ST_OK);
    ck_assert_uint_eq(statuses[3], KVC_ST_OK);
    ck_assert_uint_eq(wait_reason(&q), KVC_MISS_DROPPED);
    const struct msg_store store = store_of(4);
    ck_assert_int_eq(peer_store(&q, &store, statuses), KVC_ST_OK);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_uint_eq(statuses[i], KVC_ST_OK);
    ck_assert_int_eq(commit(&p, id), KVC_ST_GONE); /* it is told */
    ck_assert_uint_eq(rig_stat(s.k, "core.blocks_taken_over"), 4);
    peer_close(&q);
}

struct oldest {
    uint32_t session;
    uint64_t leased;
};

static int find_holder(void *ctx, const void *row)
{
    struct oldest *o = ctx;
    const struct kvc_session_info *x = row;
    if (x->leases > 0)
        *o = (struct oldest){x->session, x->leased_bytes};
    return 0;
}

CASE(leases_of_a_hung_reader_are_ended_by_an_operator)
{
    uint64_t lease;
    struct oldest o = {0};
    const struct msg_store store = store_of(4);
    const struct msg_acquire acquire = acquire_of(4, 0);
    ck_assert_int_eq(peer_store(&p, &store, NULL), KVC_ST_OK);
    ck_assert_int_eq(peer_acquire(&p, &acquire, &lease, NULL), KVC_ST_OK);
    ck_assert_int_eq(kvc_list(s.k, KVC_TABLE_SESSIONS, NULL, find_holder, &o), 0);
    ck_assert_uint_eq(o.leased, 4 * HOSTILE_BLOCK);
    ck_assert_int_eq(kvc_session_end(s.k, o.session), 0); /* p does not close */
    rig_wait_stat(s.k, "core.leases", 0);
    rig_wait_stat(s.k, "svc.sessions", 1);
    ck_assert_int_eq(kvc_session_end(s.k, o.session), KVC_E_GONE);
}
