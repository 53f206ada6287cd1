/* SPDX-License-Identifier: Apache-2.0 */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <zmq.h>

#include "fake__.h"

/* Longer than any load of the machine delays a fork. */
#define ANSWER_MS 40000

uint64_t fake_now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

bool fake_wait_for(bool (*done)(void *), void *arg)
{
    for (uint64_t end = fake_now_ms() + 5000; fake_now_ms() < end;) {
        if (done(arg))
            return true;
        usleep(1000);
    }
    return done(arg);
}

uint8_t fake_byte(uint32_t chunk, uint32_t slot)
{
    return (uint8_t)(16 * chunk + slot + 1);
}

/* ---- attach channel ---- */

void att_send(int fd, const void *buf, int len, int pass)
{
    NEED(len > 0);
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = (size_t)len};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (pass >= 0) {
        mh.msg_control = control;
        mh.msg_controllen = sizeof(control);
        struct cmsghdr *c = CMSG_FIRSTHDR(&mh);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &pass, sizeof(int));
    }
    (void)sendmsg(fd, &mh, MSG_NOSIGNAL);
}

struct codec_bin text(const char *s)
{
    return (struct codec_bin){.p = (const uint8_t *)s, .n = (uint32_t)strlen(s)};
}

static int make_staging(struct daemon *d, uint64_t bytes)
{
    int fd = memfd_create("staging", MFD_CLOEXEC);
    NEED(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    if (d->staging != NULL)
        munmap(d->staging, d->staging_bytes);
    d->staging = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    d->staging_bytes = bytes;
    NEED(d->staging != MAP_FAILED);
    return fd;
}

static void welcome(struct daemon *d, int conn, const struct att_hello *hello)
{
    uint8_t buf[KVC_ATTACH_MAX];
    int mode = atomic_load(&d->s->attach);
    if (mode == FAKE_MUTE)
        return;
    if (mode == FAKE_NONSENSE) {
        att_send(conn, "\x93\x02nonsense", 10, -1);
        return;
    }
    struct att_welcome w = {.version = KVC_PROTO_MAX,
                            .session = 7,
                            .endpoint = text(d->endpoint),
                            .staging_bytes = hello->staging_bytes,
                            .principal = text("tester"),
                            .tenant = text("default")};
    for (size_t i = 0; i < sizeof(w.route); i++)
        w.route[i] = (uint8_t)(atomic_load(&d->s->attaches) * 31 + i + 1) | 1;
    memcpy(d->route, w.route, sizeof(d->route));
    if (mode == FAKE_DENY) {
        w.status = KVC_ST_DENIED;
        w.detail = text("uid 4711 is in no principal; add it to principals[].uids");
        w.staging_bytes = 0;
    } else if (mode == FAKE_OTHER_VERSION) {
        w.status = KVC_ST_VERSION;
        w.detail = text("this daemon speaks versions 7 to 9");
        w.staging_bytes = 0;
    }
    if (mode == FAKE_HALF_STAGING)
        w.staging_bytes /= 2;
    int fd = w.staging_bytes != 0 ? make_staging(d, w.staging_bytes) : -1;
    att_send(conn, buf, codec_enc_att_welcome(buf, sizeof(buf), &w),
             mode == FAKE_NO_DESCRIPTOR ? -1 : fd);
    if (fd >= 0)
        close(fd);
}

static void give_chunk(struct daemon *d, int conn, uint32_t chunk)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_chunk c = {.chunk = chunk, .bytes = FAKE_CHUNK_BYTES};
    int mode = atomic_load(&d->s->chunk);
    atomic_fetch_add(&d->s->maps_asked, 1);
    if (mode == FAKE_CHUNK_MUTE)
        return;
    if (mode == FAKE_CHUNK_REFUSE || mode == FAKE_CHUNK_GONE) {
        c.status = mode == FAKE_CHUNK_REFUSE ? KVC_ST_DENIED : KVC_ST_GONE;
        c.detail = text("not this principal's chunk");
        c.bytes = 0;
        att_send(conn, buf, codec_enc_att_chunk(buf, sizeof(buf), &c), -1);
        return;
    }
    if (mode == FAKE_CHUNK_SHORT)
        c.bytes *= 2;
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", d->f->chunk_fd[chunk % FAKE_CHUNKS]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NEED(fd >= 0);
    att_send(conn, buf, codec_enc_att_chunk(buf, sizeof(buf), &c), fd);
    close(fd);
}

static void hang_up(struct daemon *d, int *conn)
{
    close(*conn);
    *conn = -1;
    atomic_store(&d->s->attach_open, false);
}

/* With the descriptor that comes along. */
static ssize_t att_recv(int conn, uint8_t *buf, size_t cap, int *ret_passed)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = buf, .iov_len = cap};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control,
                        .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(conn, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
    if (c != NULL && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_passed, CMSG_DATA(c), sizeof(int));
    return n;
}

static void attach_readable(struct daemon *d, int *conn)
{
    uint8_t buf[KVC_ATTACH_MAX];
    int passed = -1;
    ssize_t n = att_recv(*conn, buf, sizeof(buf), &passed);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        hang_up(d, conn);
        return;
    }
    struct att_hello hello;
    struct att_map map;
    bool *greeted = &d->greeted[conn - d->conn];
    if (gpu_attach(d, *conn, buf, (size_t)n, passed)) {
        /* devices */
    } else if (codec_dec_att_hello(buf, (size_t)n, &hello) == 0 && *greeted) {
        atomic_fetch_add(&d->s->ended, 1);
    } else if (codec_dec_att_hello(buf, (size_t)n, &hello) == 0) {
        *greeted = true;
        d->last_conn = *conn;
        gpu_session_ended(d);
        welcome(d, *conn, &hello);
    } else if (codec_dec_att_map(buf, (size_t)n, &map) == 0) {
        give_chunk(d, *conn, map.chunk);
    }
    if (passed >= 0)
        close(passed);
}

static void turn_away(struct daemon *d, int fd)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_welcome w = {.status = KVC_ST_LIMIT, .detail = text("all of 7 places are taken")};
    struct pollfd hello = {.fd = fd, .events = POLLIN};
    if (atomic_fetch_add(&d->s->attaches, 1) % 2 == 1)
        NEED(poll(&hello, 1, 20000) == 1);
    att_send(fd, buf, codec_enc_att_welcome(buf, sizeof(buf), &w), -1);
    close(fd);
}

static void attach_accept(struct daemon *d)
{
    int fd = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    if (atomic_load(&d->s->attach) == FAKE_FULL) {
        turn_away(d, fd);
        return;
    }
    for (int i = 0; i < CONNS; i++) {
        if (d->conn[i] < 0) {
            d->conn[i] = fd;
            d->greeted[i] = false;
            atomic_fetch_add(&d->s->attaches, 1);
            atomic_store(&d->s->attach_open, true);
            return;
        }
    }
    close(fd);
}

/* ---- answers ---- */

static void reply(struct daemon *d, const void *buf, size_t len)
{
    (void)zmq_send(d->router, d->route, sizeof(d->route), ZMQ_SNDMORE);
    (void)zmq_send(d->router, buf, len, 0);
}

static int answer_ns_open(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_ns_open m;
    int rc = codec_dec_ns_open(in, len, &h, &m);
    if (rc < 0)
        return codec_enc_error(out, cap, &h, (uint16_t)(-rc - 1000), h.detail);
    if (m.attention.n == 13 && memcmp(m.attention.p, "bidirectional", 13) == 0)
        return codec_enc_error(out, cap, &h, KVC_ST_UNSOUND, "attention is bidirectional");
    struct msg_ns_open_reply r = {.ns = ++d->ns + 100 * atomic_load(&d->s->instance)};
    memset(r.seed, (int)atomic_load(&d->s->instance), sizeof(r.seed));
    return codec_enc_ns_open_reply(out, cap, &h, &r);
}

static int answer_lookup(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_lookup m;
    if (codec_dec_lookup(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    atomic_store(&d->s->last_ns, m.seq.ns);
    uint32_t hit = atomic_load(&d->s->hit_blocks);
    struct msg_lookup_reply r = {.hit_tokens = 16 * hit,
                                 .cached_tokens = 16 * hit + 8,
                                 .load_us = 1000 * hit,
                                 .ngroups = m.seq.ngroups};
    for (uint32_t g = 0; g < r.ngroups; g++)
        r.groups[g] = (struct msg_group_hit){.blocks = hit, .reason = KVC_MISS_EVICTED};
    return codec_enc_lookup_reply(out, cap, &h, &r);
}

int lease(struct daemon *d, const struct msg_head *h, uint32_t ngroups, uint32_t hbm, uint8_t *out,
          size_t cap)
{
    uint32_t hit = atomic_load(&d->s->hit_blocks);
    uint32_t a_chunk = atomic_load(&d->s->blocks_a_chunk);
    uint8_t locs[64 * KVC_LOC_BYTES];
    NEED(hit <= 64);
    for (uint32_t i = 0; i < hit; i++) {
        uint32_t c = atomic_load(&d->s->chunk_id) + (a_chunk != 0 ? i / a_chunk : 0);
        c |= i < hbm ? FAKE_HBM : 0;
        uint32_t slot = (a_chunk != 0 ? i % a_chunk : i) % FAKE_SLOTS;
        struct msg_loc l = {.chunk = c,
                            .bytes = FAKE_BLOCK_BYTES,
                            .off = slot * FAKE_SLOT_BYTES + FAKE_PAYLOAD_AT,
                            .hdr = slot * FAKE_SLOT_BYTES,
                            .gen = 1000 * (c % FAKE_CHUNKS) + slot + 1};
        if (atomic_load(&d->s->wrong_loc))
            l.off = FAKE_CHUNK_BYTES - 1;
        codec_put_loc(locs + (size_t)i * KVC_LOC_BYTES, &l);
    }
    struct msg_acquire_reply r = {
        .hit_tokens = 16 * hit,
        .cached_tokens = 16 * hit + 8,
        .lease = hit == 0 || atomic_load(&d->s->lease_without) ? 0 : ++d->lease,
        .ngroups = ngroups};
    memset(r.ticket, 0x5a, sizeof(r.ticket));
    r.groups[0] = (struct msg_group_locs){.locs = {.p = locs, .n = hit * KVC_LOC_BYTES},
                                          .reason = KVC_MISS_NEVER};
    for (uint32_t g = 1; g < ngroups; g++)
        r.groups[g].locs.p = locs;
    return codec_enc_acquire_reply(out, cap, h, &r);
}

static int answer_acquire(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_acquire m;
    if (codec_dec_acquire(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    atomic_store(&d->s->last_ns, m.seq.ns);
    return lease(d, &h, m.seq.ngroups, 0, out, cap);
}

static int answer_redeem(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_redeem m;
    NEED(codec_dec_redeem(in, len, &h, &m) == 0);
    atomic_store(&d->s->last_ticket_shard, m.shard);
    if (m.ticket[0] != 0x5a)
        return codec_enc_error(out, cap, &h, KVC_ST_NO_LEASE, "no such ticket");
    return lease(d, &h, 1, 0, out, cap);
}

static int answer_release(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_release m;
    NEED(codec_dec_release(in, len, &h, &m) == 0);
    uint64_t last;
    memcpy(&last, m.leases.p + m.leases.n - 8, 8);
    atomic_store(&d->s->released, last);
    atomic_fetch_add(&d->s->leases_released, m.leases.n / 8);
    struct msg_release_reply r = {.released = m.leases.n / 8};
    return codec_enc_release_reply(out, cap, &h, &r);
}

void statuses(struct daemon *d, uint8_t *out, uint32_t n)
{
    uint32_t from = atomic_load(&d->s->statuses_from);
    for (uint32_t i = 0; i < n; i++)
        out[i] = from != 0 && i >= from ? KVC_ST_EXISTS : KVC_ST_OK;
}

static void note_wishes(struct daemon *d, const struct msg_reserve *m)
{
    struct msg_retain wish = {0};
    if (m->retain.n > 0)
        codec_get_retain(m->retain.p + m->retain.n - KVC_RETAIN_BYTES, &wish);
    atomic_store(&d->s->wish_n, m->retain.n / KVC_RETAIN_BYTES);
    atomic_store(&d->s->wish_flags, m->flags);
    atomic_store(&d->s->wish_last, (uint64_t)wish.priority << 32 | (uint32_t)wish.duration_ms);
}

static int answer_reserve(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_reserve m;
    uint8_t st[KVC_STORE_MAX];
    if (codec_dec_reserve(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    atomic_store(&d->s->last_ns, m.ns);
    note_wishes(d, &m);
    uint32_t n = m.keys.n / KVC_KEY_BYTES;
    statuses(d, st, n);
    struct msg_reserve_reply r = {.reservation = ++d->reservation, .statuses = {.p = st, .n = n}};
    return codec_enc_reserve_reply(out, cap, &h, &r);
}

static int commit(struct daemon *d, const struct msg_head *h, const struct codec_bin *offsets,
                  const struct codec_bin *tokens, uint8_t *out, size_t cap)
{
    uint8_t st[KVC_STORE_MAX];
    uint32_t n = offsets->n / 8;
    statuses(d, st, n);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t off;
        memcpy(&off, offsets->p + 8 * (size_t)i, 8);
        if (off == UINT64_MAX)
            continue;
        if (d->staging == NULL || off >= d->staging_bytes)
            st[i] = KVC_ST_BAD_ARGUMENT;
        else
            atomic_store(&d->s->stored_byte, d->staging[off]);
    }
    atomic_store(&d->s->tokens_seen, tokens->n / 4);
    struct msg_commit_reply r = {.statuses = {.p = st, .n = n}};
    return codec_enc_commit_reply(out, cap, h, &r);
}

static int answer_commit(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_commit m;
    NEED(codec_dec_commit(in, len, &h, &m) == 0);
    return commit(d, &h, &m.offsets, &m.tokens, out, cap);
}

static int answer_store(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_store m;
    if (codec_dec_store(in, len, &h, &m) < 0)
        return codec_enc_error(out, cap, &h, KVC_ST_BAD_ARGUMENT, h.detail);
    atomic_store(&d->s->last_ns, m.reserve.ns);
    note_wishes(d, &m.reserve);
    return commit(d, &h, &m.offsets, &m.tokens, out, cap);
}

static int answer_cancel(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_cancel m;
    NEED(codec_dec_cancel(in, len, &h, &m) == 0);
    atomic_store(&d->s->cancelled, m.target);
    gpu_late(d, true);
    struct msg_cancel_reply r = {.found = 0};
    for (size_t i = 0; i < sizeof(d->later) / sizeof(d->later[0]); i++) {
        struct later *l = &d->later[i];
        if (l->corr != m.target || l->corr == 0)
            continue;
        uint8_t buf[256];
        struct msg_head target = {.op = l->op, .corr = l->corr};
        reply(d, buf,
              (size_t)codec_enc_error(buf, sizeof(buf), &target, KVC_ST_CANCELLED, "cancelled"));
        l->corr = 0;
        r.found = 1;
    }
    return codec_enc_cancel_reply(out, cap, &h, &r);
}

/* Two namespaces a page; after UINT32_MAX pages, the first one again and again. */
/* Of each key a page with its two places, and one before it that has nothing. */
static int blocks_list(const struct msg_list *m, const struct msg_head *h, uint8_t *out, size_t cap)
{
    struct codec_list l;
    const struct kvc_table *table = codec_table(KVC_TABLE_BLOCKS);
    const uint8_t at = m->cursor.n == 1 ? m->cursor.p[0] : 0, next = at + 1;
    const uint32_t keys = m->keys.n / KVC_KEY_BYTES;
    NEED(m->mode == KVC_WALK_KEYS && codec_rows_begin(&l, out, cap, h, table) == 0);
    for (uint32_t copy = 0; at % 2 == 1 && copy < 2; copy++) {
        struct kvc_block_info row = {.ns = m->ns + copy, .state = KVC_BLOCK_PRESENT, .tokens = 16};
        memcpy(row.key, m->keys.p + (size_t)(at / 2) * KVC_KEY_BYTES, sizeof(row.key));
        NEED(codec_rows_add(&l, table, &row) == 0);
    }
    return codec_rows_end(&l, (struct codec_bin){.p = &next, .n = next < 2 * keys});
}

static int answer_list(struct daemon *d, const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_list m;
    struct codec_list l;
    const uint32_t pages = atomic_load(&d->s->list_pages);
    uint8_t after = 0;
    NEED(codec_dec_list(in, len, &h, &m) == 0);
    if (m.table == KVC_TABLE_DEVICES || m.table == KVC_TABLE_RATES)
        return gpu_list(&m, &h, out, cap);
    const struct kvc_table *table = codec_table(m.table);
    if (m.table == KVC_TABLE_BLOCKS)
        return blocks_list(&m, &h, out, cap);
    NEED(m.table == KVC_TABLE_NAMESPACES);
    if (m.cursor.n == 1)
        after = m.cursor.p[0];
    NEED(codec_rows_begin(&l, out, cap, &h, table) == 0);
    for (int i = 0; i < 2; i++) {
        const struct kvc_ns_info row = {.ns = ++after, .principal = "tester", .model = "llama"};
        NEED(codec_rows_add(&l, table, &row) == 0);
    }
    if (pages == UINT32_MAX)
        after = 2;
    return codec_rows_end(&l, (struct codec_bin){.p = &after, .n = after < 2 * pages});
}

static int answer_ns_spec(const uint8_t *in, size_t len, uint8_t *out, size_t cap)
{
    struct msg_head h;
    struct msg_ns_spec m;
    NEED(codec_dec_ns_spec(in, len, &h, &m) == 0);
    if (m.ns == 404)
        return codec_enc_error(out, cap, &h, KVC_ST_NO_NAMESPACE, "there is no such namespace");
    const struct msg_ns_spec_reply r = {
        .own = 1,
        .spec = {.model = text("llama"),
                 .position_params = text("theta=10000"),
                 .sub = text("alice"),
                 .head_size = 128,
                 .shards = 4,
                 .flags = KVC_F_TOKENS,
                 .prefill_ns_per_token = 55,
                 .ngroups = 2,
                 .groups = {{.block_tokens = 16, .block_bytes = FAKE_BLOCK_BYTES},
                            {.block_tokens = 64,
                             .block_bytes = 3,
                             .rule = KVC_RULE_WINDOW,
                             .window = 4096,
                             .flags = KVC_F_REPLICATED}}}};
    return codec_enc_ns_spec_reply(out, cap, &h, &r);
}

static int answer_stats(uint8_t *out, size_t cap, const struct msg_head *h)
{
    struct codec_list l;
    struct msg_stat a = {.name = text("hits"), .kind = 0, .value = 12};
    struct msg_stat b = {.name = text("blocks"), .kind = 1, .value = 34};
    NEED(codec_list_begin(&l, out, cap, h) == 0);
    NEED(codec_list_add_stat(&l, &a) == 0 && codec_list_add_stat(&l, &b) == 0);
    return (int)codec_list_end(&l, false);
}

static int answer_rest(struct daemon *d, const struct msg_head *h, const uint8_t *in, size_t len,
                       uint8_t *out, size_t cap)
{
    struct msg_head head;
    struct msg_drop drop;
    struct msg_evict evict;
    struct msg_hint hint;
    struct msg_hello_reply hello = {.version = KVC_PROTO_MAX, .server = text("fake")};
    struct msg_ping_reply ping = {.uptime_ms = 4242};
    switch (h->op) {
    case KVC_OP_HELLO:
        return codec_enc_hello_reply(out, cap, h, &hello);
    case KVC_OP_PING:
        return codec_enc_ping_reply(out, cap, h, &ping);
    case KVC_OP_DROP:
        NEED(codec_dec_drop(in, len, &head, &drop) == 0);
        atomic_store(&d->s->dropped_reservation, drop.reservation);
        return codec_enc_bare_reply(out, cap, h);
    case KVC_OP_HINT:
        NEED(codec_dec_hint(in, len, &head, &hint) == 0);
        atomic_store(&d->s->last_ns, hint.seq.ns);
        atomic_store(&d->s->hint, (uint32_t)hint.kind << 24 | hint.within_ms);
        return codec_enc_bare_reply(out, cap, h);
    case KVC_OP_STATS:
        return answer_stats(out, cap, h);
    case KVC_OP_EVICT:
        NEED(codec_dec_evict(in, len, &head, &evict) == 0);
        return codec_enc_evict_reply(
            out, cap, h,
            &(struct msg_evict_reply){.blocks = evict.flags == KVC_F_DRY_RUN ? 5 : 4,
                                      .bytes = evict.bytes,
                                      .kept_blocks = evict.key.n});
    default:
        return codec_enc_error(out, cap, h, KVC_ST_UNKNOWN_OP, "no such operation");
    }
}

static int answer(struct daemon *d, const struct msg_head *h, const uint8_t *in, size_t len,
                  uint8_t *out, size_t cap)
{
    int n = gpu_answer(d, h, in, len, out, cap);
    if (n != 0)
        return n;
    switch (h->op) {
    case KVC_OP_NS_OPEN:
        return answer_ns_open(d, in, len, out, cap);
    case KVC_OP_LOOKUP:
        return answer_lookup(d, in, len, out, cap);
    case KVC_OP_ACQUIRE:
        return answer_acquire(d, in, len, out, cap);
    case KVC_OP_REDEEM:
        return answer_redeem(d, in, len, out, cap);
    case KVC_OP_RELEASE:
        return answer_release(d, in, len, out, cap);
    case KVC_OP_RESERVE:
        return answer_reserve(d, in, len, out, cap);
    case KVC_OP_COMMIT:
        return answer_commit(d, in, len, out, cap);
    case KVC_OP_STORE:
        return answer_store(d, in, len, out, cap);
    case KVC_OP_CANCEL:
        return answer_cancel(d, in, len, out, cap);
    case KVC_OP_LIST:
        return answer_list(d, in, len, out, cap);
    case KVC_OP_NS_SPEC:
        return answer_ns_spec(in, len, out, cap);
    default:
        return answer_rest(d, h, in, len, out, cap);
    }
}

/* ---- the script ---- */

/* A copy: one that is used up may be another by now. */
static bool take_rule(struct daemon *d, uint8_t op, struct fake_rule *ret)
{
    for (int i = 0; i < FAKE_RULES; i++) {
        struct fake_rule *r = &d->s->rule[i];
        if (r->op == op && r->times > 0) {
            *ret = *r;
            r->times--;
            return true;
        }
    }
    return false;
}

static void keep(struct daemon *d, const struct msg_head *h, const void *buf, size_t len,
                 const struct fake_rule *r)
{
    struct later *l = d->later, *end = d->later + sizeof(d->later) / sizeof(d->later[0]);
    while (l < end && l->corr != 0)
        l++;
    NEED(l < end && len <= sizeof(l->buf));
    *l = (struct later){.len = len,
                        .at_ms = fake_now_ms() + r->delay_ms,
                        .corr = h->corr,
                        .op = h->op,
                        .after_next = r->what == FAKE_AFTER_NEXT,
                        .silent = r->what == FAKE_SILENCE};
    memcpy(l->buf, buf, len);
}

static void flush_later(struct daemon *d, bool another_answered, uint64_t but)
{
    for (size_t i = 0; i < sizeof(d->later) / sizeof(d->later[0]); i++) {
        struct later *l = &d->later[i];
        if (l->corr == 0 || l->silent || l->corr == but)
            continue;
        if (l->after_next ? another_answered : fake_now_ms() >= l->at_ms) {
            reply(d, l->buf, l->len);
            l->corr = 0;
        }
    }
}

static void say_on_attach(struct daemon *d)
{
    uint8_t buf[KVC_ATTACH_MAX];
    struct att_dropped m = {.status = KVC_ST_LIMIT, .detail = text("too much of everything")};
    att_send(d->last_conn, buf, codec_enc_att_dropped(buf, sizeof(buf), &m), -1);
}

static void control_open(struct daemon *d)
{
    static unsigned no;
    snprintf(d->endpoint, sizeof(d->endpoint), "ipc://%s/control.%u.%u", d->f->dir,
             (unsigned)getpid(), no++);
    const int no_mark = 0; /* or replies are dropped beyond it */
    d->router = zmq_socket(d->ctx, ZMQ_ROUTER);
    NEED(d->router != NULL &&
         zmq_setsockopt(d->router, ZMQ_SNDHWM, &no_mark, sizeof(no_mark)) == 0 &&
         zmq_bind(d->router, d->endpoint) == 0);
}

static void hang_up_last(struct daemon *d)
{
    for (int i = 0; i < CONNS; i++) {
        if (d->conn[i] == d->last_conn)
            hang_up(d, &d->conn[i]);
    }
}

static void misbehave(struct daemon *d, const struct fake_rule *r, const struct msg_head *h,
                      const uint8_t *in, size_t in_len, size_t len)
{
    uint8_t buf[512];
    struct msg_head other = *h;
    struct msg_ping_reply ping = {.uptime_ms = 1};
    switch (r->what) {
    case FAKE_STATUS:
        reply(d, buf, (size_t)codec_enc_error(buf, sizeof(buf), h, r->status, "as the test says"));
        break;
    case FAKE_GARBAGE:
        reply(d, "\xc1\xc1\xc1", 3);
        break;
    case FAKE_BAD_BODY: /* [op | REPLY, corr, OK], and nothing after the head */
        NEED(h->corr < 0x80);
        buf[0] = 0x93;
        buf[1] = 0xcc;
        buf[2] = h->op | KVC_OP_REPLY;
        buf[3] = (uint8_t)h->corr;
        buf[4] = KVC_ST_OK;
        reply(d, buf, 5);
        break;
    case FAKE_OTHER_OP:
        other.op = KVC_OP_PING;
        reply(d, buf, (size_t)codec_enc_ping_reply(buf, sizeof(buf), &other, &ping));
        break;
    case FAKE_TWO_PARTS:
        (void)zmq_send(d->router, d->route, sizeof(d->route), ZMQ_SNDMORE);
        (void)zmq_send(d->router, d->tx, len, ZMQ_SNDMORE);
        (void)zmq_send(d->router, "x", 1, 0);
        break;
    case FAKE_STRAY_FIRST:
        other.corr += 1024 * 100; /* the slot of the one that is awaited */
        len = (size_t)answer(d, &other, in, in_len, d->tx, sizeof(d->tx));
        reply(d, buf,
              (size_t)codec_enc_error(buf, sizeof(buf), &other, KVC_ST_INTERNAL, "to nobody"));
        reply(d, d->tx, len);
        break;
    case FAKE_DIE:
        raise(SIGKILL);
        break;
    case FAKE_HANG_UP:
        hang_up_last(d);
        break;
    case FAKE_CUT:
        NEED(zmq_close(d->router) == 0);
        control_open(d);
        break;
    case FAKE_DROPPED:
        say_on_attach(d);
        break;
    default:
        keep(d, h, d->tx, len, r);
        break;
    }
}

static void serve(struct daemon *d, const uint8_t *in, size_t in_len)
{
    struct msg_head h;
    if (codec_dec_head(in, in_len, &h) < 0)
        return;
    struct fake_rule rule = {.op = 0};
    const bool rules = take_rule(d, h.op, &rule);
    atomic_fetch_add(&d->s->requests[h.op], 1);
    atomic_store(&d->s->deadline_ms, h.deadline_ms);
    uint32_t retire = atomic_exchange(&d->s->retire, 0);
    if (retire != 0) {
        uint8_t buf[KVC_ATTACH_MAX];
        struct att_retired m = {.chunk = retire - 1};
        att_send(d->last_conn, buf, codec_enc_att_retired(buf, sizeof(buf), &m), -1);
    }
    int n = answer(d, &h, in, in_len, d->tx, sizeof(d->tx));
    NEED(n > 0);
    if (rules) {
        misbehave(d, &rule, &h, in, in_len, (size_t)n);
        flush_later(d, false, 0);
    } else {
        reply(d, d->tx, (size_t)n);
        flush_later(d, true, h.corr);
    }
}

static bool serve_one(struct daemon *d)
{
    uint8_t route[64];
    zmq_msg_t msg;
    int n = zmq_recv(d->router, route, sizeof(route), ZMQ_DONTWAIT);
    if (n < 0)
        return false;
    NEED(zmq_msg_init(&msg) == 0 && zmq_msg_recv(&msg, d->router, 0) >= 0);
    if (n == KVC_ROUTE_BYTES && memcmp(route, d->route, KVC_ROUTE_BYTES) == 0)
        serve(d, zmq_msg_data(&msg), zmq_msg_size(&msg));
    zmq_msg_close(&msg);
    return true;
}

static void set_up(struct daemon *d)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", d->f->path);
    unlink(a.sun_path);
    d->ctx = zmq_ctx_new();
    control_open(d);
    d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    NEED(d->listener >= 0 && bind(d->listener, (struct sockaddr *)&a, sizeof(a)) == 0 &&
         listen(d->listener, 8) == 0);
    for (int i = 0; i < CONNS; i++)
        d->conn[i] = -1;
}

/* Dies with the process that made it, also if that has died already: nobody else would end it, and
 * who runs the tests waits for its standard output to be closed. */
static void die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(98);
}

_Noreturn static void run(struct fake *f, int ready, pid_t parent)
{
    static struct daemon d;
    die_with(parent);
    d.f = f;
    d.s = f->s;
    atomic_fetch_add(&d.s->instance, 1);
    set_up(&d);
    pid_t pid = getpid();
    NEED(write(ready, &pid, sizeof(pid)) == sizeof(pid));
    for (;;) {
        zmq_pollitem_t p[2 + CONNS] = {{.socket = d.router, .events = ZMQ_POLLIN},
                                       {.fd = d.listener, .events = ZMQ_POLLIN}};
        int n = 2, at[CONNS];
        for (int i = 0; i < CONNS; i++) {
            if (d.conn[i] >= 0) {
                at[n - 2] = i;
                p[n++] = (zmq_pollitem_t){.fd = d.conn[i], .events = ZMQ_POLLIN};
            }
        }
        (void)zmq_poll(p, n, 5);
        for (int i = 2; i < n; i++) {
            if (p[i].revents != 0)
                attach_readable(&d, &d.conn[at[i - 2]]);
        }
        if (p[1].revents != 0)
            attach_accept(&d);
        while (serve_one(&d)) {
        }
        flush_later(&d, false, 0);
        gpu_late(&d, false);
    }
}

/* ---- the test's side ---- */

/* Starts and reaps daemons for the test. It is forked before there is any thread, as a daemon made
 * of a process with threads could have none of its own under ThreadSanitizer; and its daemons have
 * no copy of the test's connections. */
_Noreturn static void launch(struct fake *f, int commands, int pids, pid_t parent)
{
    char c;
    pid_t pid = 0, self = getpid();
    die_with(parent);
    while (read(commands, &c, 1) == 1) {
        if (c == 's') {
            pid = fork();
            NEED(pid >= 0);
            if (pid == 0)
                run(f, pids, self);
        } else {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            NEED(write(pids, &pid, sizeof(pid)) == sizeof(pid));
        }
    }
    _exit(0);
}

static void start_launcher(struct fake *f)
{
    int commands[2], pids[2];
    NEED(pipe2(commands, O_CLOEXEC) == 0 && pipe2(pids, O_CLOEXEC) == 0);
    pid_t self = getpid();
    f->launcher = fork();
    NEED(f->launcher >= 0);
    if (f->launcher == 0) {
        close(commands[1]);
        launch(f, commands[0], pids[1], self);
    }
    close(commands[0]);
    close(pids[1]);
    f->commands = commands[1];
    f->pids = pids[0];
}

void fake_create(struct fake *f)
{
    memset(f, 0, sizeof(*f));
    snprintf(f->dir, sizeof(f->dir), "/tmp/kvc-fake-XXXXXX");
    NEED(mkdtemp(f->dir) != NULL);
    snprintf(f->path, sizeof(f->path), "%s/attach.sock", f->dir);
    f->s = mmap(NULL, sizeof(*f->s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(f->s != MAP_FAILED);
    for (uint32_t c = 0; c < FAKE_CHUNKS; c++) {
        f->chunk_fd[c] = memfd_create("chunk", MFD_CLOEXEC);
        NEED(f->chunk_fd[c] >= 0 && ftruncate(f->chunk_fd[c], FAKE_CHUNK_BYTES) == 0);
        f->chunk[c] =
            mmap(NULL, FAKE_CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->chunk_fd[c], 0);
        NEED(f->chunk[c] != MAP_FAILED);
        for (uint32_t i = 0; i < FAKE_SLOTS; i++) {
            uint8_t *slot = f->chunk[c] + (size_t)i * FAKE_SLOT_BYTES;
            uint64_t gen = 1000 * c + i + 1;
            memcpy(slot, &gen, sizeof(gen));
            memset(slot + FAKE_PAYLOAD_AT, fake_byte(c, i), FAKE_BLOCK_BYTES);
        }
    }
    gpu_create(f);
    start_launcher(f);
}

/* What the launcher or a daemon says. One that has failed says nothing, while the launcher keeps
 * the pipe open. */
static pid_t hear(struct fake *f)
{
    pid_t pid;
    struct pollfd p = {.fd = f->pids, .events = POLLIN};
    int rc;
    do {
        rc = poll(&p, 1, ANSWER_MS);
    } while (rc < 0 && errno == EINTR);
    NEED(rc == 1 && read(f->pids, &pid, sizeof(pid)) == sizeof(pid));
    return pid;
}

void fake_start(struct fake *f)
{
    NEED(write(f->commands, "s", 1) == 1);
    f->pid = hear(f);
}

void fake_kill(struct fake *f)
{
    if (f->pid == 0)
        return;
    NEED(write(f->commands, "k", 1) == 1);
    (void)hear(f);
    f->pid = 0;
}

void fake_destroy(struct fake *f)
{
    fake_kill(f);
    close(f->commands);
    close(f->pids);
    waitpid(f->launcher, NULL, 0);
    for (int c = 0; c < FAKE_CHUNKS; c++) {
        munmap(f->chunk[c], FAKE_CHUNK_BYTES);
        close(f->chunk_fd[c]);
    }
    gpu_destroy(f);
    munmap(f->s, sizeof(*f->s));
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf '%s'", f->dir);
    NEED(system(cmd) == 0);
}

void fake_rule(struct fake *f, uint8_t op, enum fake_what what, uint16_t status, uint32_t times)
{
    for (int i = 0; i < FAKE_RULES; i++) {
        struct fake_rule *r = &f->s->rule[i];
        if (r->op == 0 || r->times == 0) {
            *r = (struct fake_rule){.op = op, .what = what, .status = status, .times = times};
            return;
        }
    }
    NEED(!"a free rule");
}
