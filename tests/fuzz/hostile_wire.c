/* SPDX-License-Identifier: Apache-2.0 */
/* Damaged messages over real sockets. A sender has one message under way, so that whose answer it
 * is is never a question. */
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt.h"
#include "channel.h"
#include "codec.h"
#include "corpus.h"
#include "hostile_bytes.h"
#include "mutate.h"
#include "records.h"
#include "wire.h"

#define SENDERS      8u
#define SILENCE_MS   120000u
#define CANCEL_MS    200u
#define INPUT_MAX    65536u
#define CORR_OF_OURS 0xfedcba9800000000u

struct sender {
    int fd; /* attach channel; -1 = none */
    struct wire wire;
    struct adapt ids;
    uint64_t corr;    /* of ours, for what is not damaged */
    bool waiting;     /* for what becomes of a message */
    bool quiet;       /* the message has no answer: MEM_DROP */
    bool has_head;    /* it can be answered; else it must be dropped */
    bool welcomed;    /* attach: the datagram under way is not the first */
    uint64_t target;  /* its corr */
    uint64_t sent_ms; /* when */
    bool cancelled;
};

struct run {
    const struct rig *rig;
    struct corpus corpus;
    size_t *good, ngood; /* those that the daemon may get: most of what is sent is made of them */
    struct tally tally;
    uint64_t state, left;
    struct sender sender[SENDERS];
    uint8_t buf[INPUT_MAX];
};

enum outcome { NOTHING, OK, ERROR, DROPPED };

/* ---- one datagram, one reply ---- */

static void hang_up(struct sender *s)
{
    wire__disconnect(&s->wire);
    channel__close(&s->fd);
    s->ids = (struct adapt){0};
    s->welcomed = false;
}

/* The next datagram, without its descriptor. Its length, 0 = none yet, negative = closed. */
static int next_datagram(struct sender *s, uint8_t buf[KVC_ATTACH_MAX])
{
    int passed = -1;
    int n = channel__recv(s->fd, buf, KVC_ATTACH_MAX, &passed);
    if (passed >= 0)
        close(passed);
    return n;
}

static void wait_a_moment(struct sender *s)
{
    struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = s->wire.fd, .events = POLLIN}};
    (void)poll(p, 2, 5);
}

static void connect_attach(struct run *run, struct sender *s)
{
    for (unsigned i = 0; i < 2000; i++) {
        s->fd = channel__connect(run->rig->socket);
        if (s->fd >= 0)
            return;
        rig_sleep_ms(10); /* its backlog is full for a moment */
    }
    ck_abort_msg("the daemon takes no connection any more: %s", strerror(-s->fd));
}

/* The reply to a request of ours that is not damaged. */
static bool ask(struct sender *s, int len, const uint8_t *buf, uint64_t corr)
{
    ck_assert_int_gt(len, 0);
    if (wire__send(&s->wire, buf, (size_t)len) < 0)
        return false;
    for (uint64_t begun = rig_now_ms(); rig_now_ms() - begun < SILENCE_MS;) {
        struct wire_msg msg = {.full = false};
        struct msg_reply_head head;
        if (wire__recv(&s->wire, false, &msg) == 1) {
            adapt_learn(&s->ids, msg.data, msg.len);
            bool mine = codec_dec_reply_head(msg.data, msg.len, &head) == 0 && head.corr == corr;
            wire__msg_free(&msg);
            if (mine)
                return head.status == KVC_ST_OK;
        } else {
            wait_a_moment(s);
        }
    }
    return false;
}

static int attach_hello(uint8_t buf[KVC_ATTACH_MAX], uint64_t staging_bytes)
{
    struct att_hello hello = {.ver_min = KVC_PROTO_MIN,
                              .ver_max = KVC_PROTO_MAX,
                              .client = {(const uint8_t *)"hostile", 7},
                              .staging_bytes = staging_bytes};
    return codec_enc_att_hello(buf, KVC_ATTACH_MAX, &hello);
}

static bool await_welcome(struct sender *s, uint8_t buf[KVC_ATTACH_MAX], struct att_welcome *ret)
{
    for (uint64_t begun = rig_now_ms(); rig_now_ms() - begun < SILENCE_MS;) {
        int n = next_datagram(s, buf);
        if (n != 0)
            return n > 0 && codec_dec_att_welcome(buf, (size_t)n, ret) == 0 &&
                   ret->status == KVC_ST_OK;
        wait_a_moment(s);
    }
    return false;
}

static void open_namespace(struct sender *s, uint8_t *buf, size_t cap)
{
    static const uint8_t model[] = "hostile", rope[] = "rope", causal[] = "causal";
    struct msg_head head = {.op = KVC_OP_NS_OPEN, .corr = ++s->corr};
    struct msg_ns_open open = {.model = {model, 7},
                               .position = {rope, 4},
                               .attention = {causal, 6},
                               .shards = 1,
                               .ngroups = 1};
    open.groups[0] = (struct msg_group){.block_tokens = 16, .block_bytes = 4096};
    ck_assert(ask(s, codec_enc_ns_open(buf, cap, &head, &open), buf, head.corr));
}

/* A session as it should be, with a namespace. */
static void begin_session(struct run *run, struct sender *s)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_welcome w;
    char endpoint[256] = "";
    connect_attach(run, s);
    ck_assert_int_eq(channel__send(s->fd, buf, (size_t)attach_hello(buf, 65536), -1), 0);
    ck_assert_msg(await_welcome(s, buf, &w), "no WELCOME");
    memcpy(endpoint, w.endpoint.p, w.endpoint.n < 255 ? w.endpoint.n : 255);
    ck_assert_int_eq(wire__connect(&s->wire, endpoint, w.route), 0);
    struct msg_head head = {.op = KVC_OP_HELLO, .corr = ++s->corr};
    struct msg_hello hello = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    ck_assert(ask(s, codec_enc_hello(buf, sizeof(buf), &head, &hello), buf, head.corr));
    open_namespace(s, buf, sizeof(buf));
}

/* ---- damage ---- */

static const struct corpus_input *any(struct run *run)
{
    if (run->ngood == 0 || mutate_below(&run->state, 4) == 0)
        return &run->corpus.in[mutate_below(&run->state, (uint32_t)run->corpus.n)];
    return &run->corpus.in[run->good[mutate_below(&run->state, (uint32_t)run->ngood)]];
}

static bool is_request(const struct corpus_input *in)
{
    struct msg_head head;
    return codec_dec_head(in->bytes, in->len, &head) == 0;
}

static bool is_of_a_worker(const struct corpus_input *in)
{
    int code = codec_att_code(in->bytes, in->len);
    return code == KVC_ATTACH_HELLO || code == KVC_ATTACH_MAP || code == KVC_ATTACH_WORDS ||
           code == KVC_ATTACH_MEM || code == KVC_ATTACH_MAP_ON;
}

static void choose_good(struct run *run, bool (*is_good)(const struct corpus_input *))
{
    run->good = calloc(run->corpus.n, sizeof(*run->good));
    ck_assert_ptr_nonnull(run->good);
    for (size_t i = 0; i < run->corpus.n; i++)
        if (is_good(&run->corpus.in[i]))
            run->good[run->ngood++] = i;
}

/* The next message into run->buf: some as they are, some with ids that this daemon gave out, most
 * of them damaged. */
static size_t next_message(struct run *run, const struct sender *s)
{
    const struct corpus_input *in = any(run);
    size_t len = 0;
    if (mutate_below(&run->state, 2) == 0)
        len = adapt_request(&s->ids, (uint8_t)mutate_below(&run->state, 256), s->corr, in->bytes,
                            in->len, run->buf, INPUT_MAX);
    if (len == 0) {
        len = in->len < INPUT_MAX ? in->len : INPUT_MAX;
        if (len != 0)
            memcpy(run->buf, in->bytes, len);
    }
    uint32_t what = mutate_below(&run->state, 10);
    if (what == 0) {
        in = any(run);
        len = mutate_splice(&run->state, run->buf, len, INPUT_MAX, in->bytes, in->len);
    }
    return what == 1 ? len : mutate(&run->state, run->buf, len, INPUT_MAX);
}

/* ---- what becomes of it ---- */

static enum outcome look_at_attach(struct sender *s)
{
    uint8_t buf[KVC_ATTACH_MAX];
    for (;;) {
        int n = next_datagram(s, buf);
        if (n == 0)
            return NOTHING;
        if (n < 0 || codec_att_code(buf, (size_t)n) == KVC_ATTACH_DROPPED)
            return DROPPED; /* others are RETIRED: news for all */
    }
}

static enum outcome look_at_wire(struct sender *s)
{
    struct wire_msg msg = {.full = false};
    struct msg_reply_head head;
    while (wire__recv(&s->wire, false, &msg) == 1) {
        int rc = codec_dec_reply_head(msg.data, msg.len, &head);
        ck_assert_msg(rc == 0, "the daemon sent what is no reply");
        adapt_learn(&s->ids, msg.data, msg.len);
        wire__msg_free(&msg);
        if (s->has_head && head.corr == s->target)
            return head.status == KVC_ST_OK ? OK : ERROR;
    }
    return look_at_attach(s);
}

/* Requests that wait as long as they asked for are called off: the answer comes then. */
static void call_off(struct sender *s)
{
    uint8_t buf[64];
    struct msg_head head = {.op = KVC_OP_CANCEL, .corr = CORR_OF_OURS + ++s->corr};
    struct msg_cancel msg = {.target = s->target};
    if (s->cancelled || !s->has_head || rig_now_ms() - s->sent_ms < CANCEL_MS)
        return;
    s->cancelled = true;
    int len = codec_enc_cancel(buf, sizeof(buf), &head, &msg);
    ck_assert_int_gt(len, 0);
    (void)!wire__send(&s->wire, buf, (size_t)len);
}

static void count(struct tally *t, enum outcome o)
{
    t->ok += o == OK;
    t->error += o == ERROR;
    t->dropped += o == DROPPED;
    t->silent += o == NOTHING;
}

static bool is_silent(const struct sender *s)
{
    return rig_now_ms() - s->sent_ms > SILENCE_MS;
}

/* Each sender in turn sends, or looks whether it was answered, until all are done. */
static void drive(struct run *run, void (*send)(struct run *, struct sender *),
                  enum outcome (*look)(struct sender *))
{
    for (bool busy = true; busy;) {
        bool progress = false;
        busy = false;
        for (unsigned i = 0; i < SENDERS; i++) {
            struct sender *s = &run->sender[i];
            if (!s->waiting && run->left > 0) {
                run->left--;
                send(run, s);
                progress = true;
            }
            enum outcome o = s->waiting ? look(s) : NOTHING;
            if (s->waiting && (o != NOTHING || is_silent(s))) {
                count(&run->tally, o);
                s->waiting = false;
                progress = true;
                if (o == DROPPED || o == NOTHING)
                    hang_up(s);
            }
            busy |= s->waiting || run->left > 0;
        }
        if (!progress)
            rig_sleep_ms(1);
    }
}

static struct run *begin_run(const struct rig *r, uint64_t n, uint64_t seed)
{
    struct run *run = calloc(1, sizeof(*run));
    ck_assert_ptr_nonnull(run);
    run->rig = r;
    run->left = n;
    run->state = mutate_seed(seed);
    for (unsigned i = 0; i < SENDERS; i++) {
        run->sender[i].fd = -1;
        ck_assert_int_eq(wire__init(&run->sender[i].wire), 0);
    }
    return run;
}

static struct tally end_run(struct run *run)
{
    struct tally t = run->tally;
    for (unsigned i = 0; i < SENDERS; i++) {
        hang_up(&run->sender[i]);
        wire__destroy(&run->sender[i].wire);
    }
    corpus_free(&run->corpus);
    free(run->good);
    free(run);
    return t;
}

/* ---- requests ---- */

static void send_request(struct run *run, struct sender *s)
{
    struct msg_head head;
    if (s->fd < 0)
        begin_session(run, s);
    size_t len = next_message(run, s);
    s->has_head = codec_dec_head(run->buf, len, &head) == 0;
    s->target = head.corr;
    s->sent_ms = rig_now_ms();
    s->waiting = true;
    s->cancelled = false;
    ck_assert_int_eq(wire__send(&s->wire, run->buf, len), 0);
}

static enum outcome look_for_reply(struct sender *s)
{
    enum outcome o = look_at_wire(s);
    if (o == NOTHING)
        call_off(s);
    return o;
}

struct tally hostile_wire(const struct rig *r, uint64_t n, uint64_t seed)
{
    struct run *run = begin_run(r, n, seed);
    hostile_corpus(&run->corpus, "wire");
    choose_good(run, is_request);
    drive(run, send_request, look_for_reply);
    return end_run(run);
}

/* ---- attach messages ---- */

/* The corpus holds series of datagrams with what else happens; here each counts for itself. */
static void take_datagrams(struct run *run)
{
    struct corpus all = run->corpus;
    run->corpus = (struct corpus){0};
    for (size_t i = 0; i < all.n; i++) {
        struct records in = records_of(all.in[i].bytes, all.in[i].len);
        struct record r;
        while (records_next(&in, &r))
            if (r.len > 0)
                corpus_add_bytes(&run->corpus, all.in[i].name, r.bytes, r.len);
    }
    corpus_free(&all);
}

static void greet(struct run *run, struct sender *s)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_welcome w;
    connect_attach(run, s);
    ck_assert_int_eq(channel__send(s->fd, buf, (size_t)attach_hello(buf, 0), -1), 0);
    ck_assert_msg(await_welcome(s, buf, &w), "no WELCOME");
    s->welcomed = true;
}

static void send_datagram(struct run *run, struct sender *s)
{
    /* Half of them are the first message of a connection, the others come after a good HELLO. */
    if (s->fd >= 0 && mutate_below(&run->state, 2) == 0)
        hang_up(s);
    if (s->fd < 0 && mutate_below(&run->state, 2) == 0)
        greet(run, s);
    else if (s->fd < 0)
        connect_attach(run, s);
    const struct corpus_input *in = any(run);
    const int wanted = s->welcomed ? KVC_ATTACH_MAP : KVC_ATTACH_HELLO;
    for (unsigned i = 0; i < 8 && codec_att_code(in->bytes, in->len) != wanted; i++)
        in = any(run);
    size_t len = in->len < INPUT_MAX ? in->len : INPUT_MAX;
    memcpy(run->buf, in->bytes, len);
    if (mutate_below(&run->state, 8) > 0)
        len = mutate(&run->state, run->buf, len, INPUT_MAX);
    struct att_mem_drop drop;
    struct att_unmapped unmapped;
    s->sent_ms = rig_now_ms();
    s->waiting = true;
    s->quiet = s->welcomed && (codec_dec_att_mem_drop(run->buf, len, &drop) == 0 ||
                               codec_dec_att_unmapped(run->buf, len, &unmapped) == 0);
    ck_assert_int_eq(channel__send(s->fd, run->buf, len, -1), 0);
}

static enum outcome look_for_datagram(struct sender *s)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_welcome w;
    struct att_chunk c;
    struct att_words_are words;
    struct att_mem_is mem;
    struct att_chunk_on on;
    int n = next_datagram(s, buf);
    if (n == 0)
        return s->quiet ? OK : NOTHING;
    switch (n < 0 ? n : codec_att_code(buf, (size_t)n)) {
    case KVC_ATTACH_WELCOME:
        ck_assert(!s->welcomed && codec_dec_att_welcome(buf, (size_t)n, &w) == 0);
        s->welcomed = w.status == KVC_ST_OK;
        if (!s->welcomed)
            hang_up(s); /* as the daemon does */
        return s->welcomed ? OK : ERROR;
    case KVC_ATTACH_CHUNK:
        ck_assert(s->welcomed && codec_dec_att_chunk(buf, (size_t)n, &c) == 0);
        return c.status == KVC_ST_OK ? OK : ERROR;
    case KVC_ATTACH_WORDS_ARE:
        ck_assert(s->welcomed && codec_dec_att_words_are(buf, (size_t)n, &words) == 0);
        return words.status == KVC_ST_OK ? OK : ERROR;
    case KVC_ATTACH_MEM_IS:
        ck_assert(s->welcomed && codec_dec_att_mem_is(buf, (size_t)n, &mem) == 0);
        return mem.status == KVC_ST_OK ? OK : ERROR;
    case KVC_ATTACH_CHUNK_ON:
        ck_assert(s->welcomed && codec_dec_att_chunk_on(buf, (size_t)n, &on) == 0);
        return on.status == KVC_ST_OK ? OK : ERROR;
    case KVC_ATTACH_RETIRED:
        return NOTHING;
    default:
        return DROPPED;
    }
}

struct tally hostile_attach(const struct rig *r, uint64_t n, uint64_t seed)
{
    struct run *run = begin_run(r, n, seed);
    hostile_corpus(&run->corpus, "attach");
    take_datagrams(run);
    choose_good(run, is_of_a_worker);
    drive(run, send_datagram, look_for_datagram);
    return end_run(run);
}
