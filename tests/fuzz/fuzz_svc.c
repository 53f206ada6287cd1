/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's services over a core on a fake tier: several peers attach, send, leave, and copies
 * end, in the order that the input says (records.h). Every request with a good head gets exactly
 * one reply while its session lives; at the end nothing is left.
 */
#include <stdlib.h>
#include <string.h>

#include "adapt.h"
#include "fuzz.h"
#include "hash.h"
#include "records.h"
#include "svc_rig.h"

#define STEPS_MAX 512u

enum verb {
    CONNECT,       /* arg: peer, uid */
    ATTACH,        /* arg: peer; the bytes of an attach message */
    LEAVE,         /* arg: peer */
    REQUEST,       /* arg: peer; the bytes of a request */
    REQUEST_FIT,   /* the same with ids that the daemon gave out, by the first byte */
    TURN,          /* arg: how much later */
    COPIES,        /* arg: how many end, and how */
    STAGING_READY, /* arg: well or not */
    DEAF,          /* arg: peer */
    NO_ROOM,       /* arg: keep() and staging_make() fail */
    RETIRED,       /* arg: chunk, principal */
    ODD_ROUTE,     /* arg: its length; a request from nobody */
    READY,         /* arg: peer, uid: connected, welcomed and greeted */
    BLOCKS,        /* arg: peer; a request of the rig's own chains, by five bytes */
    DRAIN,
    SAME_TURN, /* arg: so many steps follow without a turn between them */
    DEVICE,    /* arg: peer; what it, or the device, does, by five bytes */
    VERBS
};

static struct srig s;
static struct adapt ids;
static struct {
    unsigned sent; /* requests with a good head */
    bool lives;
} life[SR_PEERS];
static uint32_t conns;
static unsigned learned, same_turn;
static uint64_t random_count;

/* Routes and tickets: the same in each run of an input. */
int __wrap_hash_random(void *buf, size_t n);
int __wrap_hash_random(void *buf, size_t n)
{
    uint8_t *to = buf;
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)((++random_count * 0x9e3779b97f4a7c15u) >> 56);
    return 0;
}

static uid_t uid_of(uint8_t arg)
{
    static const uid_t uids[] = {SR_UID_OPS, SR_UID_ONE, SR_UID_TWO, SR_UID_GW, SR_UID_ONE + 1, 77};
    return uids[arg / SR_PEERS % 6];
}

static bool is_connected(const struct sr_peer *p)
{
    return p->conn != UINT32_MAX && !p->closed;
}

static bool staging_pending(void)
{
    for (unsigned i = 0; i < s.nstaging; i++)
        if (!s.staging[i].ready)
            return true;
    return false;
}

/* A peer is alive from its WELCOME on until it is told that it is not. */
static void look_at(unsigned i)
{
    struct sr_peer *p = &s.peer[i];
    int code = codec_att_code(p->last, p->last_len);
    struct att_welcome w;
    if (p->last_len == 0 || p->conn == UINT32_MAX)
        return;
    if (code == KVC_ATTACH_DROPPED || p->closed) {
        life[i].lives = false;
    } else if (code == KVC_ATTACH_WELCOME && !life[i].lives) {
        FUZZ_CHECK(codec_dec_att_welcome(p->last, p->last_len, &w) == 0, "a broken WELCOME");
        FUZZ_CHECK(w.status == KVC_ST_OK || w.detail.n > 0, "a refusal without a reason");
        memcpy(p->route, w.route, sizeof(p->route));
        life[i].lives = w.status == KVC_ST_OK;
        life[i].sent = 0;
    }
}

static void look(void)
{
    for (unsigned i = 0; i < SR_PEERS; i++)
        look_at(i);
    for (; learned < s.nreplies; learned++)
        adapt_learn(&ids, s.reply[learned].bytes, s.reply[learned].len);
}

static void leave(unsigned i)
{
    if (is_connected(&s.peer[i]))
        svc_attach_closed(s.svc, s.peer[i].conn);
    s.peer[i] = (struct sr_peer){.conn = UINT32_MAX, .last_fd = -1};
    life[i].lives = false;
}

static void connect_peer(unsigned i, uid_t uid)
{
    leave(i);
    s.peer[i].conn = ++conns;
    if (svc_attach_open(s.svc, conns, uid, 4711) < 0)
        s.peer[i].conn = UINT32_MAX;
}

static void ready(unsigned i, uint8_t arg)
{
    static const uint64_t wanted[] = {0, 4096, 1 << 20, 65536};
    leave(i);
    if (sr_metric(&s, "sessions") >= s.cfg.sessions_max || staging_pending() ||
        s.nstaging >= ARRAY_LEN(s.staging) - 1 || s.staging_verdict != 0 || uid_of(arg) == 77)
        return;
    connect_peer(i, uid_of(arg));
    sr_attach_hello(&s, &s.peer[i], KVC_PROTO_MIN, KVC_PROTO_MAX, wanted[arg / 48 % 4]);
    if (staging_pending())
        sr_staging_ready(&s, 0);
    look();
    if (life[i].lives) {
        (void)sr_hello(&s, &s.peer[i]);
        life[i].sent++;
    }
}

/* The length is the sender's, the bytes are the message's own block. */
static void request(unsigned i, const void *bytes, size_t len)
{
    struct msg_head head;
    if (!life[i].lives)
        return;
    life[i].sent += codec_dec_head(bytes, len, &head) == 0;
    ids.target = s.corr;
    sr_send_raw(&s, s.peer[i].route, KVC_ROUTE_BYTES, bytes, len);
}

static void request_fit(unsigned i, const struct record *r)
{
    static uint8_t out[1u << 18];
    uint8_t pick = r->len > 0 ? r->bytes[0] : 0;
    const uint8_t *in = r->len > 0 ? r->bytes + 1 : r->bytes;
    size_t left = r->len > 0 ? r->len - 1 : 0;
    size_t n = adapt_request(&ids, pick, ++s.corr, in, left, out, sizeof(out));
    if (n > 0)
        request(i, out, n);
    else
        request(i, in, left);
}

static void look_inside(struct sr_peer *p, const struct sr_blocks *b, uint8_t what)
{
    uint8_t key[KVC_KEY_BYTES];
    uint64_t cursor = what / 16 % 2 && ids.ncursor > 0 ? ids.cursor[b->n % ADAPT_KEPT] : 0;
    const uint64_t at = htole64(cursor);
    struct msg_list walk = {.table = KVC_TABLE_BLOCKS,
                            .ns = b->ns,
                            .mode = what / 32 % (KVC_WALK_KEYS + 1),
                            .max = b->n,
                            .cursor = {(const uint8_t *)&at, cursor ? sizeof(at) : 0}};
    struct msg_verify verify = {.ns = what / 64 ? b->ns : 0, .bytes_max = 64, .cursor = cursor};
    struct msg_trace trace = {.action = what / 32 % 3, .ns = what / 128 ? b->ns : 0};
    struct msg_trace_dump dump = {.ns = what / 128 ? b->ns : 0, .cursor = cursor};
    uint8_t *to = s.buf;
    size_t cap = sizeof(s.buf);
    sr_key(b->chain, b->first + b->n - 1, key);
    if (walk.mode != KVC_WALK_ROOTS)
        walk.keys = (struct codec_bin){key, sizeof(key)};
    if (walk.mode == KVC_WALK_MATCH)
        walk.depth = 64;
    if (what % 4 == 0)
        (void)sr_send(&s, p, codec_enc_list(to, cap, sr_head(&s, KVC_OP_LIST, 0), &walk));
    else if (what % 4 == 1)
        (void)sr_send(&s, p, codec_enc_verify(to, cap, sr_head(&s, KVC_OP_VERIFY, 0), &verify));
    else if (what % 4 == 2)
        (void)sr_send(&s, p, codec_enc_trace(to, cap, sr_head(&s, KVC_OP_TRACE, 0), &trace));
    else
        (void)sr_send(&s, p,
                      codec_enc_trace_dump(to, cap, sr_head(&s, KVC_OP_TRACE_DUMP, 0), &dump));
}

static void blocks(unsigned i, const struct record *r)
{
    uint8_t at[5] = {0};
    struct sr_peer *p = &s.peer[i];
    memcpy(at, r->bytes, r->len < 5 ? r->len : 5);
    struct sr_blocks b = {.ns = ids.nns > 0 ? (uint32_t)ids.ns[at[0] % ADAPT_KEPT] : 1,
                          .chain = at[1] % 3,
                          .first = at[1] / 16u % 4,
                          .n = 1 + at[2] % 12u,
                          .deadline_ms = 1 + at[2]};
    uint64_t reservation = ids.reservation[at[3] / 16 % ADAPT_KEPT];
    if (!life[i].lives)
        return;
    life[i].sent++;
    switch (at[3] % 9) {
    case 0:
        (void)sr_ns_open(&s, p, at[1] % 2 ? "a" : "b", NULL);
        break;
    case 1:
        (void)sr_lookup(&s, p, &b);
        break;
    case 2:
        (void)sr_acquire(&s, p, &b, at[1] / 64 % 2);
        break;
    case 3:
        (void)sr_reserve(&s, p, &b);
        break;
    case 4:
        (void)sr_commit(&s, p, reservation, &b);
        break;
    case 5:
        (void)sr_store(&s, p, &b);
        break;
    case 6:
        (void)sr_cancel(&s, p, s.corr);
        break;
    case 7:
        (void)sr_release(&s, p, ids.lease[at[1] % ADAPT_KEPT]);
        break;
    default:
        look_inside(p, &b, at[4]);
    }
}

/* Of the rig's own pool, and what becomes of the devices. */
static void device_itself(struct sr_peer *p, uint8_t what, uint8_t how)
{
    struct sr_device *d = &s.device[how % SR_DEVICES];
    switch (what % 6) {
    case 0:
        (void)fake_device_run(d->fake, 1 + how % 8u, how >= 128 ? 50 : 0);
        break;
    case 1:
        if (d->imports > 0)
            sr_imported(&s, how % SR_DEVICES, how >= 192 ? -EINVAL : how >= 128 ? -EIO : 0);
        break;
    case 2:
        fake_device_lose(d->fake);
        break;
    case 3:
        fake_device_up(d->fake);
        break;
    case 4:
        if (is_connected(p))
            sr_mem_drop(&s, p, how % 3u);
        break;
    default:
        if (is_connected(p) && s.next_fd < SR_FDS - 2)
            (void)sr_mem(&s, p, how % 3u, how / 4u % 3u, how % 32 ? sr_fd(&s) : -1);
    }
}

static void device(unsigned i, const struct record *r)
{
    uint8_t at[5] = {0};
    struct sr_peer *p = &s.peer[i];
    memcpy(at, r->bytes, r->len < 5 ? r->len : 5);
    struct sr_pages g = {.b = {.ns = ids.nns > 0 ? (uint32_t)ids.ns[at[0] % ADAPT_KEPT] : 1,
                               .chain = at[1] % 3,
                               .n = 1 + at[2] % 12u,
                               .deadline_ms = 1 + at[2]},
                         .pool = at[1] / 64,
                         .at = at[1] / 4 % 16,
                         .from_tokens = at[2] % 64u,
                         .flags = at[2] >= 128 ? KVC_F_WAIT : 0};
    if (at[3] % 8 >= 5) {
        device_itself(p, at[3] / 8, at[4]);
        return;
    }
    if (!life[i].lives)
        return;
    life[i].sent++;
    if (at[3] % 8 == 0)
        (void)sr_pool_open(&s, p, g.pool, at[4] % 3u);
    else if (at[3] % 8 == 1)
        (void)sr_pool_close(&s, p, g.pool);
    else if (at[3] % 8 == 2)
        (void)sr_pages_store(&s, p, &g);
    else if (at[3] % 8 == 3)
        (void)sr_pages_load(&s, p, &g);
    else
        (void)sr_acquire_on(&s, p, &g.b, at[4] % 3u);
}

static void staging_ready(uint8_t arg)
{
    if (staging_pending())
        sr_staging_ready(&s, arg % 4 == 3 ? -ENOMEM : 0);
}

static void later(uint8_t arg)
{
    static const uint32_t ms[] = {0, 1, 10, 100, 1000, 5001, 40000, 600001};
    sr_turn(&s, ms[arg % 8]);
}

static void attach(unsigned i, const struct record *r)
{
    if (!is_connected(&s.peer[i]) || s.nstaging >= ARRAY_LEN(s.staging) - 1)
        return;
    uint8_t *bytes = fuzz_copy(r->bytes, r->len);
    int fd = s.next_fd < SR_FDS - 2 ? sr_fd(&s) : -1;
    (void)sr_attach_raw(&s, &s.peer[i], bytes, r->len, fd);
    free(bytes);
}

static void step(const struct record *r)
{
    unsigned i = r->arg % SR_PEERS;
    switch ((enum verb)(r->verb % VERBS)) {
    case CONNECT:
        connect_peer(i, uid_of(r->arg));
        break;
    case ATTACH:
        attach(i, r);
        break;
    case LEAVE:
        leave(i);
        break;
    case REQUEST:
        request(i, r->bytes, r->len);
        break;
    case REQUEST_FIT:
        request_fit(i, r);
        break;
    case TURN:
        later(r->arg);
        break;
    case COPIES:
        (void)fake_tier_run(s.tier, 1 + r->arg % 16u, r->arg >= 128 ? 50 : 0);
        break;
    case STAGING_READY:
        staging_ready(r->arg);
        break;
    case DEAF:
        s.peer[i].deaf = !s.peer[i].deaf;
        break;
    case NO_ROOM:
        s.keep_fails = r->arg & 1;
        s.staging_verdict = r->arg & 2 ? -ENOMEM : 0;
        break;
    case RETIRED:
        svc_chunk_retired(s.svc, r->arg, r->arg % 5u);
        break;
    case ODD_ROUTE:
        sr_send_raw(&s, r->bytes, r->arg % 20u < r->len ? r->arg % 20u : r->len, r->bytes, r->len);
        break;
    case READY:
        ready(i, r->arg);
        break;
    case BLOCKS:
        blocks(i, r);
        break;
    case DRAIN:
        svc_shutdown(s.svc);
        break;
    case SAME_TURN:
        same_turn = 1 + r->arg % 8u;
        break;
    case DEVICE:
        device(i, r);
        break;
    case VERBS:
        break;
    }
}

static void check_answered(void)
{
    for (unsigned i = 0; i < SR_PEERS; i++) {
        unsigned n = 0;
        for (unsigned k = 0; life[i].lives && k < s.nreplies; k++)
            n += memcmp(s.reply[k].route, s.peer[i].route, KVC_ROUTE_BYTES) == 0;
        FUZZ_CHECK(!life[i].lives || n == life[i].sent, "peer %u: %u requests, %u replies", i,
                   life[i].sent, n);
    }
}

static void begin(void)
{
    sr_defaults(&s);
    s.core_cfg.blocks_max = 160; /* soon full, and soon made */
    s.ndevices = SR_DEVICES;
    s.slots = 2;
    sr_begin(&s);
    memset(&ids, 0, sizeof(ids));
    memset(life, 0, sizeof(life));
    learned = 0;
    same_turn = 0;
    random_count = 0;
}

/* Copies end, deadlines pass: nobody waits for a reply any more. */
static void finish(void)
{
    for (unsigned i = 0; i < 3; i++) {
        sr_device_copies(&s);
        while (fake_tier_inflight(s.tier) > 0)
            sr_copies(&s);
        sr_turn(&s, 600001);
        sr_settle(&s);
        look();
    }
    check_answered();
    FUZZ_CHECK(svc_is_quiet(s.svc), "requests wait beyond their deadline");
    sr_end(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct records in = records_of(data, size);
    struct record r;
    begin();
    for (unsigned n = 0; n < STEPS_MAX && s.nreplies < SR_REPLIES - 64 && records_next(&in, &r);
         n++) {
        step(&r);
        if (same_turn > 0)
            same_turn--;
        else
            sr_turn(&s, 0);
        look();
    }
    *(sr_metric(&s, "replies_ok") > 0 ? &fuzz_tally.taken : &fuzz_tally.refused) += 1;
    finish();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
    return records_mutate(data, size, max_size, seed);
}
