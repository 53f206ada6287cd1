/* SPDX-License-Identifier: Apache-2.0 */
#include "svc_rig__.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "log.h"

static const struct svc_principal principals[] = {
    {.name = "ops", .tenant = "t0", .uids = {SR_UID_OPS}, .nuids = 1, .admin = true},
    {.name = "one", .tenant = "t1", .uids = {SR_UID_ONE, SR_UID_ONE + 1}, .nuids = 2},
    {.name = "two", .tenant = "t2", .uids = {SR_UID_TWO}, .nuids = 1},
    {.name = "gate", .tenant = "t3", .uids = {SR_UID_GW}, .nuids = 1, .gateway = true},
};

/* ---- ports ---- */

static struct sr_peer *peer_by_route(struct srig *s, const uint8_t *route)
{
    for (unsigned i = 0; i < SR_PEERS; i++)
        if (memcmp(s->peer[i].route, route, KVC_ROUTE_BYTES) == 0)
            return &s->peer[i];
    return NULL;
}

static int port_reply(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], const void *buf, size_t len)
{
    struct srig *s = ctx;
    struct sr_peer *p = peer_by_route(s, route);
    ck_assert_ptr_nonnull(p);
    if (p->deaf_for > 0) {
        p->deaf_for--;
        return -EAGAIN;
    }
    if (p->deaf)
        return -EAGAIN;
    ck_assert_uint_lt(s->nreplies, SR_REPLIES);
    struct sr_reply *r = &s->reply[s->nreplies++];
    struct msg_reply_head head;
    ck_assert_int_eq(codec_dec_reply_head(buf, len, &head), 0);
    r->corr = head.corr;
    memcpy(r->route, route, KVC_ROUTE_BYTES);
    r->bytes = malloc(len);
    ck_assert_ptr_nonnull(r->bytes);
    memcpy(r->bytes, buf, len);
    r->len = len;
    return 0;
}

static bool port_backlogged(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    const struct sr_peer *p = peer_by_route(ctx, route);
    return p && p->backlogged;
}

static bool port_path(void *ctx, uint32_t i, struct kvc_path *ret_path)
{
    const struct srig *s = ctx;
    if (i >= s->storage->paths)
        return false;
    *ret_path = s->storage->path[i];
    return true;
}

static void port_writes(void *ctx, struct kvc_writes *ret_writes)
{
    const struct srig *s = ctx;
    *ret_writes = s->storage->writes;
}

static struct sr_peer *peer_by_conn(struct srig *s, uint32_t conn)
{
    for (unsigned i = 0; i < SR_PEERS; i++)
        if (s->peer[i].conn == conn)
            return &s->peer[i];
    ck_abort_msg("no such connection");
}

static int port_attach_send(void *ctx, uint32_t conn, const void *buf, size_t len, int fd)
{
    struct sr_peer *p = peer_by_conn(ctx, conn);
    ck_assert(!p->closed && len <= sizeof(p->last));
    if (p->full || p->left)
        return p->left ? -EPIPE : -EAGAIN;
    memcpy(p->last, buf, len);
    p->last_len = len;
    p->last_fd = fd;
    p->messages++;
    return 0;
}

static void port_attach_close(void *ctx, uint32_t conn)
{
    struct sr_peer *p = peer_by_conn(ctx, conn);
    ck_assert(!p->closed);
    p->closed = true;
}

/* What the front holds of a message; keep() takes the bytes out of it. */
struct message {
    uint8_t *bytes;
};

static void *port_keep(void *ctx, void *msg, const void **ret_buf)
{
    struct srig *s = ctx;
    struct message *m = msg, *kept;
    if (s->keep_fails)
        return NULL;
    kept = malloc(sizeof(*kept));
    ck_assert(kept != NULL && m->bytes != NULL);
    *kept = *m;
    m->bytes = NULL;
    *ret_buf = kept->bytes;
    s->kept++;
    return kept;
}

static void port_unkeep(void *ctx, void *kept)
{
    struct srig *s = ctx;
    struct message *m = kept;
    s->kept--;
    free(m->bytes);
    free(m);
}

static int port_staging_make(void *ctx, uint64_t bytes, uint64_t tag)
{
    struct srig *s = ctx;
    if (s->staging_verdict)
        return s->staging_verdict;
    ck_assert_uint_lt(s->nstaging, ARRAY_LEN(s->staging));
    s->staging[s->nstaging++] = (struct sr_staging){.tag = tag, .bytes = bytes};
    return 0;
}

static void port_staging_free(void *ctx, void *staging)
{
    struct sr_staging *g = staging;
    (void)ctx;
    ck_assert_ptr_nonnull(g->mem);
    free(g->mem);
    g->mem = NULL;
}

static int port_chunk_fd(void *ctx, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes)
{
    (void)ctx;
    if (chunk == 404)
        return -ENOENT;
    if (principal != 2)
        return -EACCES;
    *ret_bytes = 4096;
    return 77;
}

static void port_refresh(void *ctx)
{
    struct srig *s = ctx;
    s->refreshed++;
}

/* ---- life ---- */

void sr_defaults(struct srig *s)
{
    memset(s, 0, sizeof(*s));
    s->cfg = (struct svc_config){.sessions_max = 6,
                                 .requests_max = 8,
                                 .calls_max = 16,
                                 .staging_session_max = 1u << 20,
                                 .endpoint = "ipc:///somewhere",
                                 .server = "test 1",
                                 .policy_chosen = "a test",
                                 .turn_work = UINT32_MAX, /* all is handled where it comes in */
                                 .principals = principals,
                                 .nprincipals = ARRAY_LEN(principals)};
    s->core_cfg = (struct core_config){.blocks_max = 1024,
                                       .slice_work = UINT32_MAX,
                                       .clients_max = 6,
                                       .namespaces_max = 16,
                                       .leases_max = 32,
                                       .commits_max = 32,
                                       .lease_bytes_max = 16 * BLOCK_BYTES,
                                       .policy = &policy_lru};
    s->regions = 16;
    for (unsigned i = 0; i < SR_PEERS; i++)
        s->peer[i].conn = UINT32_MAX;
}

void sr_begin(struct srig *s)
{
    log_init(LOG_ERROR_, STDERR_FILENO, false);
    struct fake_tier_config tier = {
        .regions = s->regions, .region_bytes = 64 * BLOCK_BYTES, .slot_align = 64, .seed = 5};
    s->tier = fake_tier_create(&tier);
    s->core_cfg.tier[CORE_HOST] = fake_tier_of(s->tier);
    const struct fake_disk_config disk = {.slots = 4096, .region_slots = 64, .seed = 5};
    s->disk = s->storage ? fake_disk_create(&disk) : NULL;
    s->core_cfg.tier[CORE_STORAGE] = s->disk ? fake_disk_of(s->disk) : NULL;
    sr__devices_begin(s);
    ck_assert_int_eq(core_create(&s->core_cfg, &s->core), 0);
    struct svc_ports ports = {.ctx = s,
                              .reply = port_reply,
                              .backlogged = port_backlogged,
                              .attach_send = port_attach_send,
                              .attach_close = port_attach_close,
                              .keep = port_keep,
                              .unkeep = port_unkeep,
                              .staging_make = port_staging_make,
                              .staging_free = port_staging_free,
                              .chunk_fd = port_chunk_fd,
                              .refresh = port_refresh};
    if (s->storage) {
        ports.path = port_path;
        ports.writes = port_writes;
    }
    sr__device_ports(&ports);
    ck_assert_int_eq(svc_create(&s->cfg, s->core, &ports, &s->svc), 0);
    s->now_ns = 5000000000;
    sr_turn(s, 0);
}

static void on_job(struct core_evict_job *job)
{
    job->client = NULL;
}

static void on_idle(void *ctx)
{
    (void)ctx;
}

static void evict_all(struct srig *s)
{
    struct core_identity ops = {.principal = 1, .name = "ops", .tenant = "t0", .admin = true};
    struct core_client *cl;
    ck_assert_int_eq(core_client_open(s->core, &ops, on_idle, NULL, &cl), 0);
    struct core_evict_job job = {.client = cl, .force = true, .done = on_job};
    core_evict_start(s->core, &job);
    while (core_background_step(s->core))
        continue;
    ck_assert_uint_eq(job.ret_kept, 0);
    core_client_close(s->core, cl);
}

void sr_end(struct srig *s)
{
    svc_end_all(s->svc);
    for (unsigned i = 0; i < s->nstaging; i++)
        if (!s->staging[i].ready)
            sr_staging_ready(s, -ENOMEM);
    while (fake_tier_inflight(s->tier) > 0 || (s->disk && fake_disk_inflight(s->disk) > 0) ||
           sr__devices_are_busy(s)) {
        for (uint32_t i = 0; i < s->ndevices; i++)
            while (s->device[i].imports > 0)
                sr_imported(s, i, 0);
        sr_device_copies(s);
        sr_copies(s);
    }
    for (unsigned i = 0; i < 1000 && !svc_is_empty(s->svc); i++) /* large leases end in slices */
        sr_turn(s, 0);
    ck_assert(svc_is_empty(s->svc) && svc_is_quiet(s->svc));
    for (unsigned i = 0; i < s->nstaging; i++)
        ck_assert_ptr_null(s->staging[i].mem);
    ck_assert_uint_eq(s->kept, 0);
    ck_assert_uint_eq(sr_metric(s, "staging_bytes"), 0);
    ck_assert_uint_eq(sr_metric(s, "quarantined"), 0);
    core_check(s->core);
    evict_all(s);
    svc_destroy(&s->svc);
    core_destroy(&s->core);
    sr__devices_end(s);
    fake_tier_destroy(&s->tier);
    if (s->disk)
        fake_disk_destroy(&s->disk);
    for (unsigned i = 0; i < s->nreplies; i++)
        free(s->reply[i].bytes);
}

void sr_turn(struct srig *s, uint64_t ms)
{
    s->now_ns += ms * 1000000;
    core_tick(s->core, s->now_ns);
    svc_turn_begin(s->svc, s->now_ns);
    (void)core_run_done(s->core);
    (void)core_background_step(s->core);
    svc_turn_end(s->svc);
    if (s->disk)
        s->core_cfg.tier[CORE_STORAGE]->storage->kick(s->core_cfg.tier[CORE_STORAGE]);
    core_check(s->core);
}

void sr_settle(struct srig *s)
{
    while (core_background_step(s->core))
        continue;
    sr_turn(s, 0);
    sr_turn(s, 0);
}

void sr_copies(struct srig *s)
{
    (void)fake_tier_run(s->tier, UINT32_MAX, 0);
    if (s->disk)
        (void)fake_disk_run(s->disk, UINT32_MAX, 0);
    sr_turn(s, 0);
}

/* ---- attach channel ---- */

static int connect_as(struct srig *s, unsigned i, uid_t uid)
{
    static uint32_t conns;
    s->peer[i] = (struct sr_peer){.conn = ++conns, .last_fd = -1};
    return svc_attach_open(s->svc, s->peer[i].conn, uid, 4711);
}

struct sr_peer *sr_connect(struct srig *s, unsigned i, uid_t uid)
{
    ck_assert_int_eq(connect_as(s, i, uid), 0);
    return &s->peer[i];
}

void sr_connect_in_vain(struct srig *s, unsigned i, uid_t uid, char *ret_detail, size_t cap)
{
    ck_assert_int_eq(connect_as(s, i, uid), -EMFILE);
    ck_assert_uint_eq(sr_welcome_status(&s->peer[i], ret_detail, cap), KVC_ST_LIMIT);
    s->peer[i].conn = UINT32_MAX;
}

void sr_attach_hello(struct srig *s, struct sr_peer *p, uint32_t ver_min, uint32_t ver_max,
                     uint64_t staging_bytes)
{
    struct att_hello msg = {.ver_min = ver_min,
                            .ver_max = ver_max,
                            .client = {(const uint8_t *)"test", 4},
                            .staging_bytes = staging_bytes};
    int len = codec_enc_att_hello(s->buf, sizeof(s->buf), &msg);
    ck_assert_int_gt(len, 0);
    svc_attach_message(s->svc, p->conn, s->buf, (size_t)len, NULL);
}

void sr_staging_ready(struct srig *s, int err)
{
    unsigned i = 0;
    while (i < s->nstaging && s->staging[i].ready)
        i++;
    ck_assert_uint_lt(i, s->nstaging);
    struct sr_staging *g = &s->staging[i];
    g->ready = true;
    g->mem = err ? NULL : calloc(1, g->bytes);
    svc_staging_ready(s->svc, g->tag, err, err ? NULL : g, err ? -1 : 55, g->mem, g->bytes);
}

static bool read_welcome(struct sr_peer *p, struct att_welcome *ret)
{
    if (codec_att_code(p->last, p->last_len) != KVC_ATTACH_WELCOME)
        return false;
    ck_assert_int_eq(codec_dec_att_welcome(p->last, p->last_len, ret), 0);
    return true;
}

struct sr_peer *sr_peer(struct srig *s, unsigned i, uid_t uid, uint64_t staging_bytes)
{
    struct sr_peer *p = sr_connect(s, i, uid);
    sr_attach_hello(s, p, KVC_PROTO_MIN, KVC_PROTO_MAX, staging_bytes);
    if (staging_bytes > 0)
        sr_staging_ready(s, 0);
    struct att_welcome w;
    ck_assert(read_welcome(p, &w) && w.status == KVC_ST_OK);
    memcpy(p->route, w.route, sizeof(p->route));
    p->staging_bytes = w.staging_bytes;
    if (staging_bytes > 0)
        p->staging = s->staging[s->nstaging - 1].mem;
    const uint64_t hello = sr_hello(s, p);
    if (sr_replies(s, hello) == 0) /* others had the turn */
        sr_turn(s, 0);
    ck_assert_uint_eq(sr_status(s, hello), KVC_ST_OK);
    return p;
}

void sr_leave(struct srig *s, struct sr_peer *p)
{
    svc_attach_closed(s->svc, p->conn);
    p->conn = UINT32_MAX;
    memset(p->route, 0, sizeof(p->route));
}

uint16_t sr_welcome_status(const struct sr_peer *p, char *ret_detail, size_t cap)
{
    struct sr_peer copy = *p;
    struct att_welcome w;
    ck_assert(read_welcome(&copy, &w));
    ck_assert_uint_lt(w.detail.n, cap);
    if (w.detail.n)
        memcpy(ret_detail, w.detail.p, w.detail.n);
    ret_detail[w.detail.n] = 0;
    return w.status;
}

uint16_t sr_dropped_status(const struct sr_peer *p)
{
    struct att_dropped d;
    ck_assert_int_eq(codec_att_code(p->last, p->last_len), KVC_ATTACH_DROPPED);
    ck_assert_int_eq(codec_dec_att_dropped(p->last, p->last_len, &d), 0);
    ck_assert_uint_gt(d.detail.n, 0);
    return d.status;
}

/* ---- requests ---- */

const struct msg_head *sr_head(struct srig *s, uint8_t op, uint32_t deadline_ms)
{
    static struct msg_head head;
    head = (struct msg_head){.op = op, .corr = ++s->corr, .deadline_ms = deadline_ms};
    return &head;
}

void sr_send_raw(struct srig *s, const uint8_t *route, size_t route_len, const void *buf,
                 size_t len)
{
    struct message m = {.bytes = malloc(len ? len : 1)};
    uint8_t *bytes = m.bytes;
    ck_assert_ptr_nonnull(bytes);
    memcpy(bytes, buf, len);
    svc_request(s->svc, route, route_len, bytes, len, &m);
    free(m.bytes);
}

uint64_t sr_send(struct srig *s, struct sr_peer *p, int len)
{
    ck_assert_int_gt(len, 0);
    uint64_t corr = s->corr;
    sr_send_raw(s, p->route, sizeof(p->route), s->buf, (size_t)len);
    return corr;
}

unsigned sr_replies(const struct srig *s, uint64_t corr)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->nreplies; i++)
        n += s->reply[i].corr == corr;
    return n;
}

const struct sr_reply *sr_reply(const struct srig *s, uint64_t corr)
{
    ck_assert_uint_eq(sr_replies(s, corr), 1);
    return &s->reply[sr_order(s, corr)];
}

unsigned sr_order(const struct srig *s, uint64_t corr)
{
    unsigned i = 0;
    while (i < s->nreplies && s->reply[i].corr != corr)
        i++;
    return i;
}

unsigned sr_status(const struct srig *s, uint64_t corr)
{
    const struct sr_reply *r = sr_reply(s, corr);
    struct msg_reply_head head;
    ck_assert_int_eq(codec_dec_reply_head(r->bytes, r->len, &head), 0);
    return head.status;
}

const char *sr_detail(const struct srig *s, uint64_t corr)
{
    static char text[CODEC_DETAIL_MAX + 1];
    const struct sr_reply *r = sr_reply(s, corr);
    struct msg_reply_head head;
    ck_assert_int_eq(codec_dec_reply_head(r->bytes, r->len, &head), 0);
    if (head.detail.n)
        memcpy(text, head.detail.p, head.detail.n);
    text[head.detail.n] = 0;
    return text;
}

uint64_t sr_hello(struct srig *s, struct sr_peer *p)
{
    struct msg_hello msg = {.ver_min = KVC_PROTO_MIN, .ver_max = KVC_PROTO_MAX};
    return SR_SEND(s, p, hello, HELLO, &msg);
}

uint64_t sr_bare(struct srig *s, struct sr_peer *p, uint8_t op)
{
    return sr_send(s, p, codec_enc_bare(s->buf, sizeof(s->buf), sr_head(s, op, 0)));
}

static struct codec_rows list(struct srig *s, struct sr_peer *p, const struct msg_list *msg,
                              struct msg_reply_head *head)
{
    struct codec_rows rows = {.table = codec_table(msg->table)};
    const uint64_t corr =
        sr_send(s, p, codec_enc_list(s->buf, sizeof s->buf, sr_head(s, KVC_OP_LIST, 0), msg));
    const struct sr_reply *r = sr_reply(s, corr);
    if (rows.table == NULL)
        ck_assert_int_eq(codec_dec_reply_head(r->bytes, r->len, head), 0);
    else if (codec_rows_read(r->bytes, r->len, rows.table, head, &rows) != 0)
        ck_assert_uint_ne(head->status, KVC_ST_OK);
    return rows;
}

const struct msg_reply_head *sr_list(struct srig *s, struct sr_peer *p, const struct msg_list *msg)
{
    static struct msg_reply_head head;
    (void)list(s, p, msg, &head);
    return &head;
}

static uint32_t take_rows(struct codec_rows *rows, uint32_t max, uint8_t *ret_rows)
{
    const uint32_t n = rows->left;
    uint8_t none[2048];
    int rc = 1;
    ck_assert_uint_le(n, max);
    for (uint32_t i = 0; rc == 1; i++)
        rc = codec_rows_next(rows, i < n ? ret_rows + (size_t)i * rows->table->row_bytes : none);
    ck_assert_int_eq(rc, 0);
    return n;
}

struct codec_bin sr_page(struct srig *s, struct sr_peer *p, const struct msg_list *msg,
                         uint8_t cursor[KVC_CURSOR_MAX], void *ret_rows, uint32_t n)
{
    struct msg_reply_head head;
    struct codec_rows rows = list(s, p, msg, &head);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    ck_assert_uint_eq(take_rows(&rows, n, ret_rows), n);
    if (rows.cursor.n > 0)
        memcpy(cursor, rows.cursor.p, rows.cursor.n);
    return (struct codec_bin){cursor, rows.cursor.n};
}

uint32_t sr_rows(struct srig *s, struct sr_peer *p, enum kvc_table_id table, uint32_t max,
                 void *ret_rows)
{
    struct msg_reply_head head;
    const struct msg_list msg = {.table = (uint8_t)table};
    struct codec_rows rows = list(s, p, &msg, &head);
    ck_assert_uint_eq(head.status, KVC_ST_OK);
    const uint32_t n = take_rows(&rows, max, ret_rows);
    ck_assert_uint_eq(rows.cursor.n, 0);
    return n;
}

static struct codec_bin text(const char *t)
{
    return (struct codec_bin){(const uint8_t *)t, t ? (uint32_t)strlen(t) : 0};
}

uint64_t sr_ns_open(struct srig *s, struct sr_peer *p, const char *model, const char *sub)
{
    struct msg_ns_open msg = {.model = text(model),
                              .sub = text(sub),
                              .position = text("rope"),
                              .attention = text("causal"),
                              .shards = 1,
                              .ngroups = 1};
    msg.groups[0] = (struct msg_group){.block_tokens = BLOCK_TOKENS, .block_bytes = BLOCK_BYTES};
    return SR_SEND(s, p, ns_open, NS_OPEN, &msg);
}

uint32_t sr_ns(struct srig *s, struct sr_peer *p, const char *model)
{
    struct msg_reply_head head;
    struct msg_ns_open_reply reply;
    SR_READ(s, sr_ns_open(s, p, model, NULL), ns_open, &head, &reply);
    return reply.ns;
}

void sr_key(uint32_t chain, uint32_t i, uint8_t ret_key[KVC_KEY_BYTES])
{
    uint32_t v[2] = {chain, i};
    struct hash128 h = hash_sum(v, sizeof(v));
    memcpy(ret_key, &h, sizeof(h));
    memcpy(ret_key + sizeof(h), &h, sizeof(h));
}

static struct codec_bin keys_of(const struct sr_blocks *b, uint32_t first)
{
    static uint8_t keys[KVC_STORE_MAX * KVC_KEY_BYTES];
    uint32_t n = b->first + b->n - first;
    for (uint32_t i = 0; i < n; i++)
        sr_key(b->chain, first + i, keys + (size_t)i * KVC_KEY_BYTES);
    return (struct codec_bin){keys, n * KVC_KEY_BYTES};
}

struct msg_reserve sr__reserve(const struct sr_blocks *b)
{
    static uint8_t parent[KVC_KEY_BYTES];
    struct msg_reserve msg = {.ns = b->ns,
                              .sub = text(b->sub),
                              .first_token = b->first * BLOCK_TOKENS,
                              .keys = keys_of(b, b->first)};
    if (b->first > 0) {
        sr_key(b->chain, b->first - 1, parent);
        msg.parent = (struct codec_bin){parent, sizeof(parent)};
    }
    return msg;
}

uint64_t sr_reserve(struct srig *s, struct sr_peer *p, const struct sr_blocks *b)
{
    struct msg_reserve msg = sr__reserve(b);
    const struct msg_head *h = sr_head(s, KVC_OP_RESERVE, b->deadline_ms);
    return sr_send(s, p, codec_enc_reserve(s->buf, sizeof(s->buf), h, &msg));
}

/* Fills staging from its start and says where. */
static struct codec_bin stage(struct sr_peer *p, const struct sr_blocks *b)
{
    static uint8_t offsets[KVC_STORE_MAX * 8];
    for (uint32_t i = 0; i < b->n; i++) {
        uint8_t key[KVC_KEY_BYTES];
        uint64_t off = (uint64_t)i * BLOCK_BYTES;
        sr_key(b->chain, b->first + i, key);
        if (p->staging != NULL && off + BLOCK_BYTES <= p->staging_bytes)
            fake_fill(p->staging + off, BLOCK_BYTES, key, 0);
        for (unsigned k = 0; k < 8; k++)
            offsets[i * 8 + k] = (uint8_t)(off >> 8 * k);
    }
    return (struct codec_bin){offsets, b->n * 8};
}

uint64_t sr_store(struct srig *s, struct sr_peer *p, const struct sr_blocks *b)
{
    struct msg_store msg = {.reserve = sr__reserve(b), .offsets = stage(p, b)};
    const struct msg_head *h = sr_head(s, KVC_OP_STORE, b->deadline_ms);
    return sr_send(s, p, codec_enc_store(s->buf, sizeof(s->buf), h, &msg));
}

uint64_t sr_commit(struct srig *s, struct sr_peer *p, uint64_t reservation,
                   const struct sr_blocks *b)
{
    struct msg_commit msg = {.reservation = reservation, .offsets = stage(p, b)};
    const struct msg_head *h = sr_head(s, KVC_OP_COMMIT, b->deadline_ms);
    return sr_send(s, p, codec_enc_commit(s->buf, sizeof(s->buf), h, &msg));
}

struct msg_seq sr__seq(const struct sr_blocks *b)
{
    struct msg_seq seq = {
        .ns = b->ns, .sub = text(b->sub), .tokens = (b->first + b->n) * BLOCK_TOKENS, .ngroups = 1};
    seq.keys[0] = keys_of(b, 0);
    return seq;
}

uint64_t sr_lookup(struct srig *s, struct sr_peer *p, const struct sr_blocks *b)
{
    struct msg_lookup msg = {.seq = sr__seq(b)};
    const struct msg_head *h = sr_head(s, KVC_OP_LOOKUP, b->deadline_ms);
    return sr_send(s, p, codec_enc_lookup(s->buf, sizeof(s->buf), h, &msg));
}

uint64_t sr_acquire(struct srig *s, struct sr_peer *p, const struct sr_blocks *b, bool wait)
{
    struct msg_acquire msg = {.seq = sr__seq(b), .flags = wait ? KVC_F_WAIT : 0};
    const struct msg_head *h = sr_head(s, KVC_OP_ACQUIRE, b->deadline_ms);
    return sr_send(s, p, codec_enc_acquire(s->buf, sizeof(s->buf), h, &msg));
}

uint64_t sr_release(struct srig *s, struct sr_peer *p, uint64_t lease)
{
    uint8_t le[8];
    for (unsigned k = 0; k < 8; k++)
        le[k] = (uint8_t)(lease >> 8 * k);
    struct msg_release msg = {.leases = {le, sizeof(le)}};
    return SR_SEND(s, p, release, RELEASE, &msg);
}

uint64_t sr_cancel(struct srig *s, struct sr_peer *p, uint64_t target)
{
    struct msg_cancel msg = {.target = target};
    return SR_SEND(s, p, cancel, CANCEL, &msg);
}

uint64_t sr_drop(struct srig *s, struct sr_peer *p, uint64_t reservation)
{
    struct msg_drop msg = {.reservation = reservation};
    return SR_SEND(s, p, drop, DROP, &msg);
}

/* ---- replies ---- */

uint64_t sr_reservation(const struct srig *s, uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_reserve_reply reply;
    SR_READ(s, corr, reserve, &head, &reply);
    return reply.reservation;
}

struct msg_acquire_reply sr_held(const struct srig *s, uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_acquire_reply reply;
    SR_READ(s, corr, acquire, &head, &reply);
    return reply;
}

uint32_t sr_hit(const struct srig *s, uint64_t corr)
{
    struct msg_reply_head head;
    struct msg_lookup_reply reply;
    SR_READ(s, corr, lookup, &head, &reply);
    return reply.hit_tokens;
}

void sr_all(const struct srig *s, uint64_t corr, uint8_t status)
{
    struct msg_reply_head head;
    struct msg_commit_reply reply;
    SR_READ(s, corr, commit, &head, &reply);
    for (uint32_t i = 0; i < reply.statuses.n; i++)
        ck_assert_uint_eq(reply.statuses.p[i], status);
}

uint64_t sr_metric(const struct srig *s, const char *name)
{
    const struct metric_set *set = &s->svc->sets[0];
    int i = metric_find(set, name);
    ck_assert_int_ge(i, 0);
    return metric_value(set, (unsigned)i);
}
