/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random messages there and back, and random damage. The seed is printed; KVC_SEED=<n> repeats a
 * run, KVC_ROUNDS=<n> makes it longer or shorter.
 */
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "field.h"
#include "messages.h"
#include "vectors.h"

static uint64_t rng;
static uint8_t noise[65536]; /* what random blobs point into */

/* splitmix64 */
static uint64_t next(void)
{
    uint64_t z = rng += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint64_t below(uint64_t n)
{
    return next() % n;
}

static unsigned env_number(const char *name, unsigned otherwise)
{
    const char *s = getenv(name);
    return s != NULL ? (unsigned)strtoul(s, NULL, 10) : otherwise;
}

static void start(void)
{
    rng = env_number("KVC_SEED", 20260101);
    printf("KVC_SEED=%llu\n", (unsigned long long)rng);
    fflush(stdout);
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)next();
}

/* ---- random messages ---- */

/* min, max, or something between, small numbers more often. */
static uint64_t pick(uint64_t min, uint64_t max)
{
    uint64_t span = max - min;
    switch (below(6)) {
    case 0:
        return min;
    case 1:
        return max;
    case 2:
        return span == UINT64_MAX ? next() : min + below(span + 1);
    default:
        return min + below((span < 300 ? span : 300) + 1);
    }
}

static struct codec_bin pick_text(uint64_t min, uint64_t max)
{
    static const char pool[] =
        "layers=32;theta=500000 \xc3\xa9\xe7\x89\x88\xf0\x9f\xa6\x99 0123456789 "
        "abcdefghijklmnopqrst"
        "\t\"quoted\\\" and a good deal more of it, so that the longest field of the protocol has "
        "something to take its characters from, however many they are, up to five hundred and "
        "twelve "
        "of them: the quick brown fox jumps over the lazy dog, and then it does so again, and once "
        "more, until all of the letters are used up and nobody can say that there were not enough "
        "of "
        "them to fill a field with, which is what this is for; it ends "
        "here.........................";
    uint64_t n = pick(min, max);
    n = n < sizeof(pool) - 1 ? n : sizeof(pool) - 1;
    struct codec_bin s = {.p = (const uint8_t *)pool, .n = (uint32_t)n};
    while (s.n > 0 && s.n < sizeof(pool) - 1 && (s.p[s.n] & 0xc0) == 0x80)
        s.n--; /* no character cut in two; every minimum is 0 or 1, and the first one is ASCII */
    return s;
}

static struct codec_bin pick_blob(const struct field *f)
{
    uint64_t n = pick(f->min, f->max);
    uint64_t most = (below(50) == 0 ? sizeof(noise) / 2 : 512) / f->unit;
    n = n < most ? n : most;
    struct codec_bin s = {.p = noise + below(sizeof(noise) / 2), .n = (uint32_t)(n * f->unit)};
    if (n == 0 && below(2) == 0)
        s.p = NULL;
    return s;
}

static void fill_plain(const struct field *f, uint8_t *at)
{
    struct codec_bin s;
    switch ((enum field_kind)f->kind) {
    case FIELD_UINT:
        field_put_uint(at, f->width, pick(f->min, f->max));
        break;
    case FIELD_FLAGS:
        field_put_uint(at, f->width, next() & f->max);
        break;
    case FIELD_STRING: /* of rows alone */
        break;
    case FIELD_TEXT:
    case FIELD_DETAIL:
        s = pick_text(f->min, f->max);
        memcpy(at, &s, sizeof(s));
        break;
    case FIELD_BLOB:
        s = pick_blob(f);
        memcpy(at, &s, sizeof(s));
        break;
    case FIELD_FIXED:
        memcpy(at, noise + below(sizeof(noise) - f->width), f->width);
        at[0] |= 1; /* a route does not begin with 0 */
        break;
    case FIELD_MAGIC:
    case FIELD_ARRAY:
        break;
    }
}

static void fill(const struct schema *schema, uint8_t *msg)
{
    for (uint32_t i = 0; i < schema->nfields; i++) {
        const struct field *f = &schema->fields[i];
        if (f->kind != FIELD_ARRAY) {
            fill_plain(f, msg + f->at);
            continue;
        }
        uint64_t n = pick(f->min, f->max);
        field_put_uint(msg + f->count_at, sizeof(uint32_t), n);
        for (uint64_t k = 0; k < n; k++)
            fill(f->items, msg + f->at + k * f->items->size);
    }
}

/* Wishes at random, and of values that are let in. */
static void settle_retain(struct codec_bin *retain)
{
    static uint8_t bytes[KVC_RETAIN_MAX * KVC_RETAIN_BYTES];
    for (uint32_t at = 0; at < retain->n; at += KVC_RETAIN_BYTES) {
        struct msg_retain wish = {.first_token = (uint32_t)pick(0, UINT32_MAX - 1),
                                  .priority = (uint32_t)pick(0, KVC_PRIORITY_MAX),
                                  .duration_ms = pick(0, UINT64_MAX)};
        wish.end_token = below(2) ? 0 : (uint32_t)pick(wish.first_token + 1u, UINT32_MAX);
        codec_put_retain(bytes + at, &wish);
    }
    retain->p = bytes;
}

/* Regions at random, and of values that are let in. */
static void settle_pool(struct msg_pool_open *msg)
{
    static uint8_t bytes[KVC_REGIONS_MAX / KVC_GROUPS_MAX * KVC_REGION_BYTES];
    uint32_t layer = 0;
    for (size_t at = 0; at < sizeof(bytes); at += KVC_REGION_BYTES) {
        struct msg_region region = {.mem = (uint32_t)pick(0, KVC_MEMS_MAX - 1),
                                    .layer = layer += (uint32_t)pick(0, 1),
                                    .base = pick(0, UINT64_MAX),
                                    .page_bytes = pick(1, UINT64_MAX)};
        region.stride_bytes = pick(region.page_bytes, UINT64_MAX);
        codec_put_region(bytes + at, &region);
    }
    for (uint32_t i = 0; i < msg->ngroups; i++) {
        uint32_t n = msg->groups[i].regions.n;
        msg->groups[i].regions =
            (struct codec_bin){bytes, n < sizeof(bytes) ? n : (uint32_t)sizeof(bytes)};
    }
}

static uint32_t settled_word(uint32_t word)
{
    return word % (KVC_WORDS + 1) == KVC_WORDS ? KVC_NO_WORD : word % (KVC_WORDS + 1);
}

/* Of devices. Returns whether it was one of theirs. */
static bool settle_device(const struct message_kind *kind, union message_room *room)
{
    if (kind->schema == &codec__req_pool_open) {
        settle_pool((struct msg_pool_open *)room->bytes);
    } else if (kind->schema == &codec__req_pages_load) {
        struct msg_pages_load *msg = (struct msg_pages_load *)room->bytes;
        msg->after_word = settled_word(msg->after_word);
        msg->ready_word = settled_word(msg->ready_word);
        msg->ngroups = msg->seq.ngroups;
    } else if (kind->schema == &codec__req_pages_store) {
        struct msg_pages_store *msg = (struct msg_pages_store *)room->bytes;
        msg->after_word = settled_word(msg->after_word);
        msg->reserve.keys = (struct codec_bin){noise, msg->reserve.keys.n % 8192 / 32 * 32 + 32};
        msg->pages = (struct codec_bin){noise, msg->reserve.keys.n / 8 * (uint32_t)pick(1, 3)};
        settle_retain(&msg->reserve.retain);
    } else if (kind->schema == &codec__att_mem) {
        struct att_mem *msg = (struct att_mem *)room->bytes;
        bool ipc = msg->kind == KVC_HANDLE_IPC;
        msg->ipc = (struct codec_bin){noise, ipc ? KVC_IPC_BYTES : 0};
        msg->offset = ipc && msg->bytes <= UINT64_MAX - msg->offset ? msg->offset : 0;
    } else if (kind->schema == &codec__att_chunk_on) {
        struct att_chunk_on *msg = (struct att_chunk_on *)room->bytes;
        msg->status = msg->kind == 0 ? msg->status | 1u : KVC_ST_OK;
        msg->ipc = (struct codec_bin){noise, msg->kind == KVC_HANDLE_IPC ? KVC_IPC_BYTES : 0};
    } else {
        return false;
    }
    return true;
}

static void settle_quota(struct msg_quota_set *msg)
{
    const struct codec_bin one = codec_text("a"), none = codec_text("");
    const bool ns = msg->scope == KVC_SCOPE_NS;
    msg->ns = ns ? msg->ns | 1 : 0;
    msg->tenant = ns ? none : msg->tenant.n ? msg->tenant : one;
    msg->sub = msg->scope != KVC_SCOPE_SUB ? none : msg->sub.n ? msg->sub : one;
    if (msg->host_share > msg->host_limit)
        msg->host_share = msg->host_limit;
    if (msg->nvme_share > msg->nvme_limit)
        msg->nvme_share = msg->nvme_limit;
}

static void settle_list(struct msg_list *msg)
{
    if (msg->table != KVC_TABLE_CONVERSATIONS && msg->table != KVC_TABLE_DOCUMENTS) {
        msg->prefix.n = msg->sub.n = 0;
        msg->exact = 0;
    }
    if (msg->table != KVC_TABLE_BLOCKS) {
        msg->ns = msg->group = msg->mode = msg->depth = msg->keys.n = 0;
    } else if (msg->mode != KVC_WALK_KEYS || msg->keys.n == 0) {
        msg->keys = (struct codec_bin){noise, msg->mode == KVC_WALK_ROOTS ? 0 : KVC_KEY_BYTES};
    }
    msg->group = msg->mode >= KVC_WALK_MATCH ? 0 : msg->group;
    if (msg->mode == KVC_WALK_MATCH)
        msg->depth = 1 + msg->depth % (8 * KVC_KEY_BYTES);
    msg->exact = msg->exact && msg->prefix.n != 0;
    msg->cursor.n = msg->exact ? 0 : msg->cursor.n;
}

/* Of what is kept: names, pins, quotas, the policy. */
static void settle_kept(const struct message_kind *kind, union message_room *room)
{
    if (kind->schema == &codec__req_name_put) {
        struct msg_name_put *msg = (struct msg_name_put *)room->bytes;
        if (msg->ids.n != 0)
            msg->seq.tokens = msg->ids.n / 4;
    } else if (kind->schema == &codec__req_list) {
        settle_list((struct msg_list *)room->bytes);
    } else if (kind->schema == &codec__req_pin) {
        struct msg_pin *msg = (struct msg_pin *)room->bytes;
        msg->tier = msg->tier % 2 ? KVC_TIER_HOST : KVC_TIER_NONE;
    } else if (kind->schema == &codec__req_verify) {
        struct msg_verify *msg = (struct msg_verify *)room->bytes;
        msg->tier = msg->tier == 3 ? KVC_TIER_HBM : msg->tier;
    } else if (kind->schema == &codec__req_name_forget) {
        struct msg_name_forget *msg = (struct msg_name_forget *)room->bytes;
        msg->dry_run = msg->dry_run && msg->evict;
    } else if (kind->schema == &codec__req_quota_set) {
        settle_quota((struct msg_quota_set *)room->bytes);
    } else if (kind->schema == &codec__req_policy) {
        struct msg_policy *msg = (struct msg_policy *)room->bytes;
        if (msg->action == KVC_POLICY_SHOW)
            *msg = (struct msg_policy){.action = KVC_POLICY_SHOW};
    }
}

/* What spans fields is put right. */
static void settle(const struct message_kind *kind, union message_room *room)
{
    if (kind->schema == &codec__req_ns_open) {
        struct msg_ns_open *msg = (struct msg_ns_open *)room->bytes;
        for (uint32_t i = 0; i < msg->ngroups; i++) {
            bool is_window = msg->groups[i].rule == KVC_RULE_WINDOW;
            msg->groups[i].window = is_window ? msg->groups[i].window | 1 : 0;
        }
    } else if (kind->schema == &codec__req_store) {
        struct msg_store *msg = (struct msg_store *)room->bytes;
        msg->reserve.keys.n = msg->reserve.keys.n % 8192 / 32 * 32 + 32;
        msg->offsets.n = msg->reserve.keys.n / 4;
        msg->offsets.p = noise;
        msg->reserve.keys.p = noise;
        settle_retain(&msg->reserve.retain);
    } else if (kind->schema == &codec__req_reserve) {
        settle_retain(&((struct msg_reserve *)room->bytes)->retain);
    } else if (kind->schema == &codec__req_lookup) {
        struct msg_lookup *msg = (struct msg_lookup *)room->bytes;
        if (msg->flags & KVC_F_READ_ONLY)
            msg->flags &= KVC_F_READ_ONLY | KVC_F_ALL;
    } else if (kind->schema == &codec__req_hint) {
        struct msg_hint *msg = (struct msg_hint *)room->bytes;
        msg->within_ms = msg->kind == KVC_HINT_SOON ? msg->within_ms : 0;
    } else if (kind->schema == &codec__req_commit) {
        struct msg_commit *msg = (struct msg_commit *)room->bytes;
        uint32_t n = msg->offsets.n / 8;
        msg->first = msg->first + n > KVC_STORE_MAX ? KVC_STORE_MAX - n : msg->first;
    } else if (kind->schema == &codec__req_name_put) {
        struct msg_name_put *msg = (struct msg_name_put *)room->bytes;
        msg->seq.tokens = msg->ids.n / 4;
    } else if (kind->schema == &codec__req_list) {
        settle_list((struct msg_list *)room->bytes);
    } else if (kind->schema == &codec__req_trace) {
        struct msg_trace *msg = (struct msg_trace *)room->bytes;
        bool on = msg->action == KVC_TRACE_ON;
        msg->ns = on ? msg->ns : 0;
        msg->bytes = on && msg->bytes >= KVC_TRACE_BYTES_MIN ? msg->bytes : 0;
    } else if (kind->schema == &codec__req_hello || kind->schema == &codec__att_hello) {
        uint32_t *versions = (uint32_t *)(void *)room->bytes; /* ver_min, ver_max come first */
        if (versions[0] > versions[1])
            versions[0] = versions[1];
    } else if (!settle_device(kind, room)) {
        settle_kept(kind, room);
    }
}

union any_head {
    struct msg_head request;
    struct msg_reply_head reply;
};

static void fill_head(const struct message_kind *kind, union any_head *head)
{
    memset(head, 0, sizeof(*head));
    if (kind->family == MESSAGE_REPLY || kind->op == KVC_OP_REPLY) {
        head->reply.op = kind->op == KVC_OP_REPLY ? (uint8_t)below(KVC_OP_REPLY) : kind->op;
        head->reply.corr = pick(0, UINT64_MAX);
        if (kind->op != KVC_OP_REPLY)
            return;
        head->reply.status = (uint16_t)pick(1, UINT16_MAX);
        head->reply.detail = pick_text(0, CODEC_DETAIL_MAX);
    } else if (kind->family == MESSAGE_REQUEST) {
        head->request.op = kind->op;
        head->request.corr = pick(0, UINT64_MAX);
        head->request.deadline_ms = (uint32_t)pick(0, KVC_DEADLINE_MAX_MS);
    }
}

/* A message of a random kind. Returns its length. */
static int make(uint8_t *out, size_t cap, const struct message_kind **ret_kind, char **ret_text)
{
    const struct message_kind *kind;
    do {
        kind = &message_kinds[below(message_kinds_n)];
    } while (kind->enc == NULL);
    union message_room room;
    union any_head head;
    memset(&room, 0, kind->schema->size);
    fill(kind->schema, room.bytes);
    settle(kind, &room);
    fill_head(kind, &head);
    *ret_kind = kind;
    *ret_text = message_print(kind, &head, room.bytes);
    return kind->enc(out, cap, &head, room.bytes);
}

CASES(.timeout_s = 300);

CASE(random_messages_come_back)
{
    static uint8_t bytes[KVC_MESSAGE_MAX];
    start();
    unsigned rounds = env_number("KVC_ROUNDS", 20000);
    for (unsigned i = 0; i < rounds; i++) {
        const struct message_kind *kind;
        char *text;
        int len = make(bytes, sizeof(bytes), &kind, &text);
        ck_assert_msg(len > 0, "round %u: %s: not written: %d\n%s", i, kind->name, len, text);
        struct message_outcome o = message_recode(kind, bytes, (size_t)len);
        ck_assert_msg(o.rc == 0, "round %u: %s: refused: %s\n%s", i, kind->name, o.detail, text);
        ck_assert_msg(strcmp(o.text, text) == 0, "round %u: %s: wrote\n%sread\n%s", i, kind->name,
                      text, o.text);
        ck_assert_msg(o.out_len == len && memcmp(o.out, bytes, (size_t)len) == 0,
                      "round %u: %s: written otherwise the second time\n%s", i, kind->name, text);
        message_outcome_free(&o);
        free(text);
    }
}

/* ---- damage ---- */

static size_t damage(uint8_t *bytes, size_t len, size_t cap)
{
    static const uint8_t likely[] = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1,
                                     0xc4, 0xc5, 0xc6, 0xc7, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf,
                                     0xd0, 0xd3, 0xd4, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xff};
    size_t at = below(len), n = 1 + below(8);
    uint8_t byte = below(2) == 0 ? likely[below(sizeof(likely))] : (uint8_t)next();
    switch (below(6)) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << below(8));
        return len;
    case 1:
        bytes[at] = byte;
        return len;
    case 2: /* cut out */
        n = n < len - at ? n : len - at;
        memmove(bytes + at, bytes + at + n, len - at - n);
        return len - n;
    case 3: /* put in */
        if (len + n > cap)
            return len;
        memmove(bytes + at + n, bytes + at, len - at);
        memset(bytes + at, byte, n);
        return len + n;
    case 4:
        return at;
    default: { /* from elsewhere in the message */
        size_t from = below(len);
        n = n < len - at ? n : len - at;
        n = n < len - from ? n : len - from;
        memmove(bytes + at, bytes + from, n);
        return len;
    }
    }
}

/* Whatever is accepted is one msgpack object, and is the same message when it is written and read
 * again. Returns whether it was. */
static bool check_damaged(const struct message_kind *kind, const uint8_t *bytes, size_t len)
{
    struct message_outcome o = message_recode(kind, bytes, len);
    ck_assert(o.rc == 0 || o.rc == KVC_E_BAD_MESSAGE || o.rc == KVC_E_BAD_ARGUMENT ||
              (kind->family == MESSAGE_REPLY || kind->family == MESSAGE_LIST));
    bool taken = o.rc == 0;
    if (taken && o.out_len > 0) {
        msgpack_unpacked object;
        msgpack_unpacked_init(&object);
        size_t used = 0;
        int rc = msgpack_unpack_next(&object, (const char *)bytes, len, &used);
        ck_assert_msg(rc == MSGPACK_UNPACK_SUCCESS && used == len, "%s: msgpack-c refuses: %d",
                      kind->name, rc);
        msgpack_unpacked_destroy(&object);
        struct message_outcome again = message_recode(kind, o.out, (size_t)o.out_len);
        ck_assert_msg(again.rc == 0 && strcmp(again.text, o.text) == 0, "%s: read\n%sthen\n%s",
                      kind->name, o.text, again.rc == 0 ? again.text : again.detail);
        message_outcome_free(&again);
    }
    message_outcome_free(&o);
    return taken;
}

CASE(random_damage_does_no_harm)
{
    static const char *const files[] = {"requests.txt", "replies.txt", "attach.txt"};
    start();
    struct vectors set[3];
    for (int f = 0; f < 3; f++)
        set[f] = vectors_load(files[f]);
    unsigned rounds = env_number("KVC_ROUNDS", 30000), taken = 0, tried = 0;
    for (unsigned i = 0; i < rounds; i++) {
        const struct vectors *from = &set[below(3)];
        const struct vector *v = &from->v[below(from->n)];
        if (v->len > 4096)
            continue;
        size_t cap = v->len + 64, len = v->len;
        uint8_t *bytes = malloc(cap);
        memcpy(bytes, v->bytes, v->len);
        for (uint64_t k = 1 + below(4); k > 0 && len > 0; k--)
            len = damage(bytes, len, cap);
        uint8_t *exact = malloc(len != 0 ? len : 1);
        memcpy(exact, bytes, len);
        taken += check_damaged(message_find(v->message), exact, len);
        tried++;
        check_damaged(&message_kinds[below(message_kinds_n)], exact, len);
        free(exact);
        free(bytes);
    }
    /* Damage that nothing survives, or that nothing comes of, tests nothing. */
    ck_assert_uint_gt(taken, tried / 100);
    ck_assert_uint_lt(taken, tried / 2);
    for (int f = 0; f < 3; f++)
        vectors_free(&set[f]);
}

CASE(random_bytes_do_no_harm)
{
    start();
    unsigned rounds = env_number("KVC_ROUNDS", 20000);
    for (unsigned i = 0; i < rounds; i++) {
        size_t len = below(200);
        uint8_t *bytes = malloc(len + 1);
        for (size_t k = 0; k < len; k++)
            bytes[k] = (uint8_t)next();
        if (len > 3 && below(2) == 0)
            memcpy(bytes, (uint8_t[]){(uint8_t)(0x90 + below(16)), (uint8_t)below(17), 1}, 3);
        uint8_t *exact = realloc(bytes, len != 0 ? len : 1);
        for (size_t k = 0; k < message_kinds_n; k++)
            check_damaged(&message_kinds[k], exact, len);
        free(exact);
    }
}
