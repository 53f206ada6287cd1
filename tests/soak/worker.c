/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of the soak: lives some seconds, does mixed work, compares every byte that it reads.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "raw.h"
#include "soak.h"

#define BT         16u
#define KEYS_MAX   96u
#define STAGING    (8u << 20)
#define LONG_MS    60000u /* a reply that is not there by then is none */
#define CHAINS     40u    /* conversations that the workers of a principal share */
#define KINDS      4u
#define RANKS      2u
#define UNKNOWN_OP 99

/* Namespaces: small, large and ragged blocks, and blocks in two shards. */
static const struct {
    const char *model;
    uint32_t block_bytes, shards, keys_max;
} kinds[KINDS] = {{"small", 8192, 1, KEYS_MAX},
                  {"large", 768u << 10, 1, 10},
                  {"ragged", 12345, 1, 48},
                  {"shards", 40000, RANKS, 32}};

struct worker {
    struct soak_slot *slot;
    struct soak_shared *sh;
    const struct rig *rig;
    uint64_t seed, ends_ms;
    struct kvc *k[RANKS];
    struct kvc_ns *ns[RANKS][KINDS];
    uint8_t keys[KEYS_MAX * KVC_KEY_BYTES];
    uint8_t statuses[KEYS_MAX];
    uint64_t offsets[KEYS_MAX];
};

static struct worker me;
static struct raw raw;

static uint64_t dice(uint64_t n)
{
    return soak_random(&me.seed) % n;
}

static bool goes_on(void)
{
    return !me.sh->stop && rig_now_ms() < me.ends_ms;
}

/* ---- counting ---- */

/* A call that sent one request has returned. True: with an answer that is of use. */
static bool answered(unsigned rank, const char *what, int err)
{
    me.slot->sent++;
    if (err == KVC_E_TIMEOUT || err == KVC_E_DOWN) {
        fprintf(stderr, "pid %d: %s: no answer: %s\n", (int)getpid(), what,
                kvc_last_error(me.k[rank]));
        return false;
    }
    me.slot->replied++;
    if (err == KVC_E_BUSY || err == KVC_E_LIMIT || err == KVC_E_FULL) {
        me.slot->refused++;
        return false;
    }
    if (err == KVC_E_GONE || err == KVC_E_CANCELLED || err == KVC_E_NO_LEASE)
        return false; /* evicted, called off or released in the meantime */
    if (err) {
        me.slot->faults++;
        fprintf(stderr, "pid %d: %s: %s: %s\n", (int)getpid(), what, kvc_error_name(err),
                kvc_last_error(me.k[rank]));
    }
    return err == 0;
}

static uint64_t misses_for_want_of_an_answer(unsigned rank)
{
    struct kvc_counters c;
    kvc_get_counters(me.k[rank], &c);
    return c.lookups_down;
}

/* The same for what the library turns into a miss. */
static bool read_answered(unsigned rank, const char *what, int err, uint64_t misses)
{
    bool none = misses_for_want_of_an_answer(rank) != misses;
    return answered(rank, what, none ? KVC_E_TIMEOUT : err);
}

/* The outcome of what was called off. The library awaits the answer to a CANCEL for a short time of
 * its own, which a stopped worker or a busy machine can exceed; it disconnects then, and may find
 * no room for its staging when it comes back. Such a worker has had its life. */
static bool outcome_answered(const char *what, int err, uint64_t misses)
{
    if (kvc_is_up(me.k[0]))
        return read_answered(0, what, err, misses);
    me.slot->late++;
    me.ends_ms = 0;
    return false;
}

/* ---- bytes ---- */

/* Each shard of a block has bytes of its own. */
static void shard_key(const uint8_t *key, unsigned rank, uint8_t out[KVC_KEY_BYTES])
{
    memcpy(out, key, KVC_KEY_BYTES);
    out[3] ^= (uint8_t)(rank * 0x5a);
}

static void compare(unsigned rank, const struct kvc_hold *hold, uint32_t bytes)
{
    uint64_t wrong = 0;
    uint32_t n = hold->group[0].n;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t key[KVC_KEY_BYTES];
        const struct kvc_block *b = &hold->group[0].block[i];
        shard_key(me.keys + (size_t)(hold->group[0].first + i) * KVC_KEY_BYTES, rank, key);
        wrong += b->bytes != bytes || !rig_check(key, b->data, bytes);
    }
    if (kvc_hold_check(hold) == KVC_STALE) {
        me.slot->stale++;
        return;
    }
    me.slot->blocks_hit += n;
    me.slot->wrong += wrong;
}

static void fill(unsigned rank, uint8_t *staging, uint32_t kind, uint32_t first, uint32_t n)
{
    uint64_t stride = (kinds[kind].block_bytes + 63ull) / 64 * 64;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t key[KVC_KEY_BYTES];
        me.offsets[i] = i * stride;
        shard_key(me.keys + (size_t)(first + i) * KVC_KEY_BYTES, rank, key);
        rig_fill(key, staging + me.offsets[i], kinds[kind].block_bytes);
    }
}

static void count_statuses(uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        switch (me.statuses[i]) {
        case KVC_ST_OK:
            me.slot->blocks_stored++;
            break;
        case KVC_ST_FULL:
        case KVC_ST_NOT_WORTH:
        case KVC_ST_BUSY:
        case KVC_ST_LIMIT:
            me.slot->refused++;
            break;
        case KVC_ST_EXISTS:
        case KVC_ST_PENDING:
        case KVC_ST_NO_PARENT: /* evicted between the acquire and now */
        case KVC_ST_GONE:
        case KVC_ST_CANCELLED:
            break;
        default:
            me.slot->faults++;
            fprintf(stderr, "pid %d: block %u: status %u\n", (int)getpid(), i, me.statuses[i]);
        }
    }
}

/* ---- acts of a talker ---- */

/* How many blocks of staging size fit; `first` is 0 or a block whose parent is known. */
static struct kvc_blocks blocks_of(uint32_t kind, uint32_t first, uint32_t n, uint64_t room)
{
    uint64_t stride = (kinds[kind].block_bytes + 63ull) / 64 * 64;
    uint64_t fit = room / stride;
    return (struct kvc_blocks){.parent =
                                   first ? me.keys + (size_t)(first - 1) * KVC_KEY_BYTES : NULL,
                               .keys = me.keys + (size_t)first * KVC_KEY_BYTES,
                               .n = (uint32_t)(n < fit ? n : fit),
                               .first_token = first * BT};
}

/* A turn of a conversation: what is cached is read, the rest is stored. */
static void talk(uint32_t kind, uint32_t n)
{
    struct kvc_seq seq = rig_seq(me.keys, n, BT);
    for (unsigned rank = 0; rank < kinds[kind].shards; rank++) {
        struct kvc_hold *hold = NULL;
        uint64_t misses = misses_for_want_of_an_answer(rank), room;
        uint32_t hit = 0;
        int err = kvc_acquire(me.ns[rank][kind], &seq, NULL, &hold);
        if (read_answered(rank, "acquire", err, misses)) {
            hit = hold->group[0].n;
            if (dice(4) == 0)
                rig_sleep_ms((unsigned)dice(30)); /* held while others need room */
            compare(rank, hold, kinds[kind].block_bytes);
        }
        uint8_t *staging = kvc_staging(me.k[rank], &room);
        struct kvc_blocks b =
            staging ? blocks_of(kind, hit, n - hit, room) : (struct kvc_blocks){.n = 0};
        if (b.n > 0) {
            fill(rank, staging, kind, hit, b.n);
            err = kvc_store(me.ns[rank][kind], &b, me.offsets, NULL, 0, me.statuses);
            if (answered(rank, "store", err))
                count_statuses(b.n);
        }
        kvc_release(me.k[rank], &hold);
    }
}

static void look(uint32_t kind, uint32_t n)
{
    struct kvc_seq seq = rig_seq(me.keys, n, BT);
    struct kvc_prefix p;
    uint64_t misses = misses_for_want_of_an_answer(0);
    int err = kvc_lookup(me.ns[0][kind], &seq, dice(2) ? KVC_F_TOUCH : 0, &p);
    if (read_answered(0, "lookup", err, misses) && p.tokens > n * BT)
        me.slot->faults++;
}

/* Announces, stores a part, drops the rest, or leaves it to the end of the session. */
static void announce(uint32_t kind, uint32_t n)
{
    uint64_t room, reservation = 0;
    uint8_t *staging = kvc_staging(me.k[0], &room);
    if (!staging || kinds[kind].shards > 1)
        return;
    struct kvc_blocks b = blocks_of(kind, 0, n, room);
    if (!answered(0, "reserve", kvc_reserve(me.ns[0][kind], &b, &reservation, me.statuses)))
        return;
    if (!reservation)
        return;
    uint32_t half = b.n / 2 + 1;
    fill(0, staging, kind, 0, half);
    for (uint32_t i = 0; i < half; i++)
        if (me.statuses[i] != KVC_ST_OK)
            me.offsets[i] = UINT64_MAX;
    int err = kvc_commit(me.ns[0][kind], reservation, 0, half, me.offsets, NULL, 0, me.statuses);
    (void)answered(0, "commit", err);
    if (dice(4))
        (void)answered(0, "drop", kvc_drop(me.k[0], reservation));
}

/* Waits for what somebody may be storing, at most until a short deadline. That answer and the
 * library's patience can come at the same moment on a busy machine: counted apart. */
static void wait_a_little(uint32_t kind, uint32_t n)
{
    struct kvc_seq seq = rig_seq(me.keys, n, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 1 + (uint32_t)dice(200)};
    struct kvc_hold *hold = NULL;
    uint64_t misses = misses_for_want_of_an_answer(0);
    int err = kvc_acquire(me.ns[0][kind], &seq, &o, &hold);
    if (misses_for_want_of_an_answer(0) != misses)
        me.slot->late++;
    else if (answered(0, "acquire with WAIT", err))
        compare(0, hold, kinds[kind].block_bytes);
    kvc_release(me.k[0], &hold);
}

static void wait_and_cancel(uint32_t kind, uint32_t n)
{
    struct kvc_seq seq = rig_seq(me.keys, n, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT};
    struct kvc_hold *hold = NULL;
    struct kvc_op *op;
    uint64_t misses = misses_for_want_of_an_answer(0);
    int err = kvc_acquire_begin(me.ns[0][kind], &seq, &o, &op);
    if (err) {
        (void)answered(0, "acquire_begin", err);
        return;
    }
    (void)!kvc_cancel(op); /* its own reply shows in what becomes of the other */
    if (outcome_answered("cancelled acquire", kvc_wait(&op, NULL, &hold, NULL), misses))
        compare(0, hold, kinds[kind].block_bytes);
    kvc_release(me.k[0], &hold);
}

/* The second rank reads what the first one holds, by its ticket. */
static void redeem(uint32_t kind, uint32_t n)
{
    struct kvc_seq seq = rig_seq(me.keys, n, BT);
    struct kvc_hold *first = NULL, *second = NULL;
    uint64_t misses = misses_for_want_of_an_answer(0);
    int err = kvc_acquire(me.ns[0][kind], &seq, NULL, &first);
    unsigned rank = kinds[kind].shards - 1;
    if (read_answered(0, "acquire", err, misses) && first->lease) {
        misses = misses_for_want_of_an_answer(rank);
        err = kvc_redeem(me.ns[rank][kind], first->ticket, &second);
        if (read_answered(rank, "redeem", err, misses))
            compare(rank, second, kinds[kind].block_bytes);
    }
    /* In any order. */
    struct kvc_hold **holds[2] = {&first, &second};
    unsigned one = (unsigned)dice(2);
    kvc_release(NULL, holds[one]);
    kvc_release(NULL, holds[!one]);
}

/* Begins to store, calls it off, and writes over the staging area the moment that the library says
 * that it may. What became visible must be whole all the same. */
static void reuse_early(uint32_t kind, uint32_t n)
{
    uint64_t room;
    struct kvc_op *op;
    uint8_t *staging = kvc_staging(me.k[0], &room);
    if (!staging || kinds[kind].shards > 1)
        return;
    struct kvc_blocks b = blocks_of(kind, 0, n, room);
    fill(0, staging, kind, 0, b.n);
    int err = kvc_store_begin(me.ns[0][kind], &b, me.offsets, NULL, 0, &op);
    if (err) {
        (void)answered(0, "store_begin", err);
        return;
    }
    if (dice(3))
        (void)!kvc_cancel(op);
    err = kvc_wait(&op, NULL, NULL, me.statuses);
    memset(staging, 0xee, b.n * (kinds[kind].block_bytes + 63ull) / 64 * 64);
    if (outcome_answered("cancelled store", err, misses_for_want_of_an_answer(0)))
        count_statuses(b.n);
}

static void give_room(void)
{
    struct kvc_evict_filter f = {.older_than_ms = dice(3) ? 500 + dice(3000) : 0,
                                 .bytes = dice(16u << 20)};
    struct kvc_evicted out;
    (void)answered(0, "evict", kvc_evict(me.k[0], &f, &out));
}

static void act(void)
{
    uint32_t kind = (uint32_t)dice(KINDS);
    uint32_t n = 1 + (uint32_t)dice(kinds[kind].keys_max);
    rig_keys(me.ns[0][kind], (uint32_t)(kind * 1000 + dice(CHAINS)), BT, n, me.keys);
    switch (dice(16)) {
    case 0:
        look(kind, n);
        break;
    case 1:
        announce(kind, n);
        break;
    case 2:
        wait_a_little(kind, n);
        break;
    case 3:
        wait_and_cancel(kind, n);
        break;
    case 4:
    case 5:
        redeem(kind, n);
        break;
    case 6:
    case 7:
        reuse_early(kind, n);
        break;
    case 8:
        if (dice(8) == 0)
            give_room();
        break;
    default:
        talk(kind, n);
    }
}

/* ---- life of a talker ---- */

/* NULL: the daemon has no room for one more just now. */
static struct kvc *join(unsigned rank, uint64_t staging_bytes)
{
    struct kvc_options o = {.socket = me.rig->socket,
                            .name = "talk",
                            .staging_bytes = staging_bytes,
                            .shard = rank,
                            .timeout_ms = LONG_MS,
                            .must_connect = true};
    struct kvc *k = NULL;
    if (kvc_open(&o, &k) == 0)
        return k;
    me.slot->refused++;
    return NULL;
}

static bool open_namespaces(unsigned rank)
{
    for (uint32_t i = 0; i < KINDS; i++) {
        if (rank >= kinds[i].shards)
            continue;
        struct kvc_ns_spec spec = rig_spec(kinds[i].model, BT, kinds[i].block_bytes);
        spec.shards = kinds[i].shards;
        if (!answered(rank, "ns_open", kvc_ns_open(me.k[rank], &spec, &me.ns[rank][i])))
            return false;
    }
    return true;
}

static int talker(void)
{
    /* At its limit staging is refused: such a worker reads. */
    for (unsigned rank = 0; rank < RANKS; rank++) {
        me.k[rank] = join(rank, dice(6) ? STAGING : 0);
        for (unsigned i = 0; !me.k[rank] && i < 200 && goes_on(); i++) {
            rig_sleep_ms(20);
            me.k[rank] = join(rank, 0);
        }
    }
    if (me.k[0] && me.k[1] && open_namespaces(0) && open_namespaces(1)) {
        while (goes_on())
            act();
    }
    for (unsigned rank = 0; rank < RANKS; rank++)
        kvc_close(&me.k[rank]);
    return 0;
}

/* ---- requests by hand ---- */

static struct codec_bin text(const char *s)
{
    return (struct codec_bin){(const uint8_t *)s, (uint32_t)strlen(s)};
}

/* One of a few requests, good and bad; its length in raw.buf. */
static int encode_some(struct msg_head *ret_head)
{
    static uint8_t keys[8 * KVC_KEY_BYTES];
    struct msg_seq seq = {.ns = 1 + (uint32_t)dice(12),
                          .tokens = 8 * BT,
                          .ngroups = 1,
                          .keys[0] = {keys, sizeof keys}};
    struct msg_lookup lookup = {.seq = seq};
    struct msg_acquire acquire = {.flags = KVC_F_WAIT, .seq = seq};
    struct msg_cancel cancel = {.target = raw.corr - dice(4)};
    struct msg_ns_open open = {.model = text("by hand"),
                               .shards = (uint32_t)dice(2), /* 0 is refused */
                               .ngroups = 1,
                               .groups[0] = {.block_tokens = BT, .block_bytes = 4096}};
    struct msg_drop drop = {.reservation = dice(1000)};
    for (unsigned i = 0; i < sizeof keys; i++)
        keys[i] = (uint8_t)dice(256);
    static const uint8_t codes[] = {KVC_OP_PING,    KVC_OP_LOOKUP, KVC_OP_ACQUIRE, KVC_OP_CANCEL,
                                    KVC_OP_NS_OPEN, KVC_OP_DROP,   KVC_OP_STATS,   UNKNOWN_OP};
    struct msg_head h = raw_head(&raw, codes[dice(sizeof codes)], 1 + (uint32_t)dice(300));
    int len;
    *ret_head = h;
    switch (h.op) {
    case KVC_OP_LOOKUP:
        return codec_enc_lookup(raw.buf, sizeof raw.buf, &h, &lookup);
    case KVC_OP_ACQUIRE:
        return codec_enc_acquire(raw.buf, sizeof raw.buf, &h, &acquire);
    case KVC_OP_CANCEL:
        return codec_enc_cancel(raw.buf, sizeof raw.buf, &h, &cancel);
    case KVC_OP_NS_OPEN:
        return codec_enc_ns_open(raw.buf, sizeof raw.buf, &h, &open);
    case KVC_OP_DROP:
        return codec_enc_drop(raw.buf, sizeof raw.buf, &h, &drop);
    case UNKNOWN_OP: /* the encoder knows no such: it goes in afterwards */
        h.op = KVC_OP_PING;
        len = codec_enc_bare(raw.buf, sizeof raw.buf, &h);
        raw.buf[1] = UNKNOWN_OP;
        return len;
    default:
        return codec_enc_bare(raw.buf, sizeof raw.buf, &h);
    }
}

/* Sends a burst and wants one reply to each, of whatever status. */
static void burst(void)
{
    uint64_t waiting[32];
    unsigned n = 0, left;
    for (unsigned want = 1 + (unsigned)dice(32); n < want; n++) {
        struct msg_head h;
        int len = encode_some(&h);
        if (!raw_send(&raw, len)) {
            fprintf(stderr, "pid %d: operation %u: encoded as %d\n", (int)getpid(), h.op, len);
            me.slot->faults++;
            return;
        }
        waiting[n] = h.corr;
    }
    me.slot->sent += n;
    left = n;
    while (left > 0) {
        struct msg_reply_head head;
        int len = raw_recv(&raw, LONG_MS);
        if (len <= 0)
            return; /* sent and not replied */
        bool known = false;
        if (codec_dec_reply_head(raw.buf, (size_t)len, &head) == 0)
            for (unsigned i = 0; i < n && !known; i++)
                if ((known = waiting[i] == head.corr))
                    waiting[i] = 0;
        me.slot->replied += known;
        me.slot->faults += !known; /* no request of ours, or a second reply to one */
        left -= known;
    }
}

static int auditor(void)
{
    if (raw_open(&raw, me.rig->socket, 0, 0)) {
        me.slot->refused++;
        return 0;
    }
    while (goes_on())
        burst();
    raw_close(&raw);
    return 0;
}

/* ---- bad messages ---- */

/* Sends noise where a message belongs: it must be told or cut off. */
static void misbehave(void)
{
    uint8_t news[KVC_ATTACH_MAX];
    if (raw_open(&raw, me.rig->socket, dice(3) ? 0 : 4096, 0)) {
        me.slot->refused++;
        rig_sleep_ms(20);
        return;
    }
    size_t len = 1 + dice(200);
    for (size_t i = 0; i < len; i++)
        raw.buf[i] = (uint8_t)dice(256);
    switch (dice(4)) {
    case 0:
        (void)raw_tell(&raw, raw.buf, len);
        break;
    case 1:
        raw.buf[0] = 0xc1; /* what MessagePack never uses */
        (void)raw_send(&raw, (int)len);
        break;
    case 2:
        raw_close(&raw); /* in the middle of a conversation */
        return;
    default: /* a good head, and then noise: answered */
        raw.buf[0] = 0x94;
        raw.buf[1] = KVC_OP_LOOKUP;
        raw.buf[2] = 1;
        raw.buf[3] = 100;
        (void)raw_send(&raw, (int)len);
        (void)raw_recv(&raw, 200);
        raw_close(&raw);
        return;
    }
    me.slot->sent++;
    int n;
    do /* a chunk may be retired meanwhile */
        n = raw_news(&raw, news, LONG_MS);
    while (n > 0 && codec_att_code(news, (size_t)n) != KVC_ATTACH_DROPPED);
    me.slot->replied += n != 0;
    raw_close(&raw);
}

static int rogue(void)
{
    while (goes_on())
        misbehave();
    return 0;
}

int soak_worker(const struct rig *rig, struct soak_shared *sh, unsigned slot)
{
    me.rig = rig;
    me.sh = sh;
    me.slot = &sh->slot[slot];
    me.seed = me.slot->seed;
    me.ends_ms = rig_now_ms() + me.slot->life_ms;
    if (me.slot->uid != geteuid()) {
        if (setresuid(me.slot->uid, me.slot->uid, me.slot->uid))
            return 1;
        /* Both are taken away by the change. */
        if (prctl(PR_SET_DUMPABLE, 1) || prctl(PR_SET_PDEATHSIG, SIGKILL))
            return 1;
    }
    switch ((enum soak_role)me.slot->role) {
    case SOAK_AUDIT:
        return auditor();
    case SOAK_ROGUE:
        return rogue();
    default:
        return talker();
    }
}
