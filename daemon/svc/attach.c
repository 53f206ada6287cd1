/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The attach channel, a unix socket: a worker says who it is, gets memory to map, and its session
 * begins and ends here. Requests come over another socket (dispatch.c).
 */
#include <stdio.h>
#include <stdlib.h>

#include "svc__.h"
#include "sys.h"

#define HELLO_DEADLINE_NS UINT64_C(5000000000)
#define TELL_AGAIN_NS     UINT64_C(50000000)

/* What attach.c knows of a session. */
struct attached_session {
    bool staging_pending;     /* its staging area is being made */
    bool admitted;            /* ports.admit() was called with its route */
    uint64_t staging_units;   /* counted in staging_share */
    void *staging;            /* for ports.staging_free(); NULL: none */
    struct wheel_timer hello; /* limit for its HELLO */
    struct wheel_timer tell;  /* when a dropped session is told again that it was dropped */
};

struct attached {
    uint32_t serial;                   /* of the session that began last */
    struct attached_session session[]; /* by session.index */
};

uint64_t attached_bytes(const struct svc_config *cfg)
{
    return sizeof(struct attached) + (uint64_t)svc_conns_max(cfg) * sizeof(struct attached_session);
}

int attached_create(struct svc *s)
{
    s->attached = sys_calloc(1, attached_bytes(&s->cfg));
    return s->attached ? 0 : -ENOMEM;
}

void attached_destroy(struct svc *s)
{
    free(s->attached);
    s->attached = NULL;
}

static struct attached_session *attached_of(const struct session *se)
{
    return &se->svc->attached->session[se->index];
}

static const struct svc_principal *principal_of(const struct svc *s, uid_t uid)
{
    for (uint32_t i = 0; i < s->cfg.nprincipals; i++)
        for (uint32_t k = 0; k < s->cfg.principals[i].nuids; k++)
            if (s->cfg.principals[i].uids[k] == uid)
                return &s->cfg.principals[i];
    return NULL;
}

/* Makes the session's route: the first byte is not 0 (ZeroMQ keeps those for itself), then the
 * session's number and 104 random bits. */
static int make_route(struct session *se)
{
    int err = hash_random(se->route, sizeof se->route);
    se->route[0] = 'k';
    se->route[1] = (uint8_t)se->index;
    se->route[2] = (uint8_t)(se->index >> 8);
    return err;
}

/* ---- ends ---- */

/* Takes a free session. Peers without a principal have a few places of their own, behind all
 * others, so that they take none that is guaranteed to a principal; and an admitted session has a
 * number below sessions_max. */
static struct session *place_take(struct svc *s, const struct svc_principal *p)
{
    const bool apart = !p && s->cfg.fair;
    const uint32_t end = apart ? svc_conns_max(&s->cfg) : s->cfg.sessions_max;
    for (uint32_t i = apart ? s->cfg.sessions_max : 0; i < end; i++) {
        if (s->sessions[i].state != SESSION_FREE)
            continue;
        if (p && !share_take(&s->session_share, principal_no(s, p) - 1, 1))
            return NULL;
        return &s->sessions[i];
    }
    return NULL;
}

static void place_give(struct svc *s, const struct svc_principal *p)
{
    if (p)
        share_give(&s->session_share, principal_no(s, p) - 1, 1);
}

static void session_free(struct session *se)
{
    struct svc *s = se->svc;
    struct attached_session *a = attached_of(se);
    place_give(s, se->principal);
    if (a->staging_units)
        share_give(&s->staging_share, principal_no(s, se->principal) - 1, a->staging_units);
    if (a->staging) {
        s->ports.staging_free(s->ports.ctx, a->staging);
        s->m.staging_bytes -= se->staging_bytes;
    }
    device_end(se);
    *a = (struct attached_session){0};
    session_init(s, se->index);
    s->m.sessions--;
}

/* Receives nothing from the session any more. When the daemon stops, replies that were sent before
 * still arrive. */
static void session_mute(struct session *se)
{
    struct svc *s = se->svc;
    struct attached_session *a = attached_of(se);
    reply_forget(s, se);
    if (a->admitted && !s->stopping && s->ports.dismiss)
        s->ports.dismiss(s->ports.ctx, se->route);
    a->admitted = false;
}

void session_over(struct session *se)
{
    if (se->state == SESSION_CLOSING && !se->client && !attached_of(se)->staging_pending &&
        !device_is_importing(se))
        session_free(se);
}

/* No copy of the core touches the session's memory any more. */
static void session_idle(void *ctx)
{
    struct session *se = ctx;
    MUST(se->state == SESSION_CLOSING && list_empty(&se->calls));
    se->client = NULL;
    session_over(se);
}

/* Closes a session whose connection is closed: its process reads and writes nothing any more. */
static void session_close(struct session *se)
{
    struct svc *s = se->svc;
    struct attached_session *a = attached_of(se);
    wheel_del(&s->wheel, &a->hello);
    session_mute(se);
    wheel_del(&s->wheel, &a->tell);
    FLIGHT(DETACH, (uint32_t)se->uid, se->index, (uint64_t)se->pid);
    if (se->state == SESSION_DROPPED)
        s->m.quarantined--;
    if (se->client) {
        if (se->told)
            LOG_INFO("session %u (%s, uid %u, pid %d) ended", se->serial, se->name,
                     (unsigned)se->uid, (int)se->pid);
        else
            LOG_DEBUG("session %u ended", se->serial);
        s->m.detaches++;
    }
    if (se->close_pending)
        s->nclose_pending--;
    se->close_pending = false;
    se->conn = CONN_NONE;
    se->state = SESSION_CLOSING;
    call_cancel_all(se);
    if (se->client)
        core_client_close(s->core, se->client);
    else
        session_over(se);
}

static int tell_dropped(struct session *se)
{
    struct svc *s = se->svc;
    struct att_dropped msg = {.status = se->close_status, .detail = codec_text(se->close_text)};
    uint8_t buf[KVC_ATTACH_MAX];
    int len = codec_enc_att_dropped(buf, sizeof buf, &msg);
    MUST(len > 0);
    return s->ports.attach_send(s->ports.ctx, se->conn, buf, (size_t)len, -1);
}

/* Tells a dropped session again that it was dropped, because its attach connection was full,
 * perhaps the very reason to drop it. Untold, it would keep its leases and wait for replies that
 * never come. A process that has ended is noticed as such. */
static void tell_again(void *ctx, uint64_t now_ns)
{
    struct session *se = ctx;
    if (tell_dropped(se) != 0)
        wheel_add(&se->svc->wheel, &attached_of(se)->tell, now_ns + TELL_AGAIN_NS);
}

/* Tells the peer and stops serving it. A session that holds nothing is closed at once. One that may
 * still be reading, or map a device's memory, keeps that until it closes the connection or its
 * process ends. A session that has closed both its connections has ended and is not dropped: the
 * control connection's end was only noticed first, by a reply that was still owed. */
void session_drop(struct session *se)
{
    struct svc *s = se->svc;
    /* The session was dropped before, and is now forced to give up what it kept; or both its
     * connections are closed. */
    const bool again = se->state == SESSION_DROPPED;
    const int err = again ? 0 : tell_dropped(se);
    if (again || (err == -EPIPE && se->unreachable && se->close_status == KVC_ST_LIMIT)) {
        s->ports.attach_close(s->ports.ctx, se->conn);
        session_close(se);
        return;
    }
    s->nclose_pending--;
    se->close_pending = false;
    FLIGHT(DROP_SESSION, se->close_status, se->index, 0);
    LOG_WARN_RATELIMITED(20, "session %u (%s, uid %u, pid %d) dropped: %s", se->serial, se->name,
                         (unsigned)se->uid, (int)se->pid, se->close_text);
    s->m.sessions_dropped++;
    session_mute(se);
    const bool holds =
        !se->forced && se->client && (core_client_lease_bytes(se->client) > 0 || lend_any(se));
    if (holds) {
        se->state = SESSION_DROPPED;
        s->m.quarantined++;
        call_cancel_all(se);
        core_client_quarantine(s->core, se->client);
        if (err) {
            struct wheel_timer *tell = &attached_of(se)->tell;
            tell->fn = tell_again;
            tell->ctx = se;
            wheel_add(&s->wheel, tell, s->now_ns + TELL_AGAIN_NS);
        }
        return;
    }
    /* Closing the connection tells the peer the same. */
    s->ports.attach_close(s->ports.ctx, se->conn);
    session_close(se);
}

void svc_end_all(struct svc *s)
{
    for (uint32_t i = 0; i < svc_conns_max(&s->cfg); i++) {
        struct session *se = &s->sessions[i];
        if (se->state == SESSION_FREE || se->state == SESSION_CLOSING)
            continue;
        if (se->state != SESSION_DROPPED) {
            session_close_soon(se, KVC_ST_SHUTDOWN, "the daemon is shutting down");
            session_drop(se);
        }
        if (se->conn == CONN_NONE)
            continue;
        s->ports.attach_close(s->ports.ctx, se->conn);
        session_close(se);
    }
}

/* ---- attach channel ---- */

static struct session *session_by_conn(struct svc *s, uint32_t conn)
{
    for (uint32_t i = 0; i < svc_conns_max(&s->cfg); i++)
        if (s->sessions[i].conn == conn)
            return &s->sessions[i];
    return NULL;
}

/* A connection that says nothing must not keep a place from one that would. */
static void hello_expired(void *ctx, uint64_t now_ns)
{
    (void)now_ns;
    session_close_soon(ctx, KVC_ST_TIMEOUT, "it connected and did not say HELLO");
}

/* Tells a peer that it gets no session; the caller closes the connection. */
static void tell_no_place(struct svc *s, uint32_t conn, const struct svc_principal *p)
{
    char text[256];
    uint8_t buf[KVC_ATTACH_MAX];
    if (p)
        snprintf(text, sizeof text,
                 "no session is left for principal %s: %llu of %u (limits.sessions) are in use, "
                 "and what the others are promised is kept for them",
                 p->name, (unsigned long long)s->m.sessions, s->cfg.sessions_max);
    else
        snprintf(text, sizeof text, "too many connect at once whose uid has no rights here");
    struct att_welcome msg = {.status = KVC_ST_LIMIT, .detail = codec_text(text)};
    int len = codec_enc_att_welcome(buf, sizeof buf, &msg);
    MUST(len > 0);
    /* A peer that cannot be told notices that the connection ends. */
    (void)!s->ports.attach_send(s->ports.ctx, conn, buf, (size_t)len, -1);
}

int svc_attach_open(struct svc *s, uint32_t conn, uid_t uid, pid_t pid)
{
    const struct svc_principal *principal = principal_of(s, uid);
    struct session *se = place_take(s, principal);
    if (!se) {
        tell_no_place(s, conn, principal);
        return -EMFILE;
    }
    se->state = SESSION_CONNECTED;
    se->principal = principal;
    struct wheel_timer *hello = &attached_of(se)->hello;
    hello->fn = hello_expired;
    hello->ctx = se;
    wheel_add(&s->wheel, hello, s->now_ns + HELLO_DEADLINE_NS);
    se->conn = conn;
    se->uid = uid;
    se->pid = pid;
    se->serial = ++s->attached->serial;
    memcpy(se->name, "?", 2);
    s->m.sessions++;
    return 0;
}

static void send_welcome(struct session *se, const struct att_welcome *msg, int fd)
{
    uint8_t buf[KVC_ATTACH_MAX];
    session_say(se, buf, codec_enc_att_welcome(buf, sizeof buf, msg), fd);
}

static void attach_refuse(struct session *se, uint16_t status, const char *text)
{
    LOG_WARN_RATELIMITED(5, "attach refused: %s", text);
    struct att_welcome msg = {.status = status, .detail = codec_text(text)};
    send_welcome(se, &msg, -1);
    se->svc->ports.attach_close(se->svc->ports.ctx, se->conn);
    session_close(se);
}

static void welcome(struct session *se, int fd)
{
    struct svc *s = se->svc;
    struct core_identity who = {.principal = principal_no(s, se->principal),
                                .name = se->principal->name,
                                .tenant = se->principal->tenant,
                                .gateway = se->principal->gateway,
                                .admin = se->principal->admin};
    if (make_route(se) || core_client_open(s->core, &who, session_idle, se, &se->client)) {
        attach_refuse(se, KVC_ST_BUSY, "no room for another session");
        return;
    }
    se->state = SESSION_READY;
    attached_of(se)->admitted = true;
    if (s->ports.admit)
        s->ports.admit(s->ports.ctx, se->route, se->uid);
    s->m.attaches++;
    FLIGHT(ATTACH, (uint32_t)se->uid, se->index, (uint64_t)se->pid);
    LOG_DEBUG("session %u: %s, uid %u, pid %d", se->serial, se->name, (unsigned)se->uid,
              (int)se->pid);
    struct att_welcome msg = {.status = KVC_ST_OK,
                              .version = se->version,
                              .session = se->serial,
                              .endpoint = codec_text(s->cfg.endpoint),
                              .staging_bytes = se->staging_bytes,
                              .principal = codec_text(se->principal->name),
                              .tenant = codec_text(se->principal->tenant),
                              .admin = se->principal->admin,
                              .gateway = se->principal->gateway};
    memcpy(msg.route, se->route, sizeof msg.route);
    send_welcome(se, &msg, fd);
}

static void attach_hello(struct session *se, const struct att_hello *msg)
{
    struct svc *s = se->svc;
    struct attached_session *a = attached_of(se);
    wheel_del(&s->wheel, &a->hello);
    char text[256];
    uint32_t name = MIN(msg->client.n, (uint32_t)sizeof se->name - 1);
    for (uint32_t i = 0; i < name; i++) {
        uint8_t ch = msg->client.p[i];
        se->name[i] = ch >= ' ' && ch < 0x7f ? (char)ch : '?';
    }
    se->name[name] = 0;
    if (!se->principal) {
        s->m.attaches_denied++;
        snprintf(
            text, sizeof text,
            "uid %u has no rights here; the operator can add it to a principal's `uids` in the "
            "daemon's configuration",
            (unsigned)se->uid);
        attach_refuse(se, KVC_ST_DENIED, text);
        return;
    }
    if (msg->ver_min > KVC_PROTO_MAX || msg->ver_max < KVC_PROTO_MIN) {
        snprintf(text, sizeof text,
                 "this daemon speaks protocol versions %u to %u, the client %u to %u",
                 KVC_PROTO_MIN, KVC_PROTO_MAX, msg->ver_min, msg->ver_max);
        attach_refuse(se, KVC_ST_VERSION, text);
        return;
    }
    se->version = MIN(msg->ver_max, KVC_PROTO_MAX);
    if (msg->staging_bytes == 0) {
        welcome(se, -1);
        return;
    }
    uint64_t bytes = MIN(msg->staging_bytes, s->cfg.staging_session_max);
    uint64_t tag = (uint64_t)se->serial << 32 | se->index;
    uint64_t units = (bytes + STAGING_UNIT - 1) / STAGING_UNIT;
    int err =
        share_take(&s->staging_share, principal_no(s, se->principal) - 1, units) ? 0 : -ENOSPC;
    if (!err) {
        a->staging_units = units; /* given back with the session */
        err = s->ports.staging_make(s->ports.ctx, bytes, tag);
    }
    if (err) {
        attach_refuse(se, KVC_ST_LIMIT, "no room for its staging area (staging.total)");
        return;
    }
    se->state = SESSION_STAGING;
    a->staging_pending = true;
}

void svc_staging_ready(struct svc *s, uint64_t tag, int err, void *staging, int fd,
                       const uint8_t *base, uint64_t bytes)
{
    struct session *se = &s->sessions[(uint32_t)tag];
    struct attached_session *a = attached_of(se);
    MUST(a->staging_pending && se->serial == (uint32_t)(tag >> 32));
    a->staging_pending = false;
    if (!err) {
        a->staging = staging;
        se->staging_base = base;
        se->staging_bytes = bytes;
        s->m.staging_bytes += bytes;
    }
    if (se->state == SESSION_CLOSING) {
        session_over(se);
        return;
    }
    if (err) {
        attach_refuse(se, status_of(err), "its staging area could not be made");
        return;
    }
    welcome(se, fd);
}

static void attach_map(struct session *se, const struct att_map *msg)
{
    struct svc *s = se->svc;
    uint64_t bytes = 0;
    int fd = device_of_chunk(msg->chunk)
                 ? device_headers_fd(se, msg->chunk, &bytes)
                 : s->ports.chunk_fd(s->ports.ctx, msg->chunk, session_principal(se), &bytes);
    struct att_chunk reply = {.status = KVC_ST_OK, .chunk = msg->chunk, .bytes = bytes};
    if (fd < 0) {
        reply.status = fd == -EACCES ? KVC_ST_DENIED : KVC_ST_GONE;
        reply.detail = codec_text(fd == -EACCES ? "the chunk belongs to another principal"
                                                : "there is no such chunk any more");
    }
    uint8_t buf[KVC_ATTACH_MAX];
    session_say(se, buf, codec_enc_att_chunk(buf, sizeof buf, &reply), fd < 0 ? -1 : fd);
}

/* Handles a message of a session that was welcomed. False: it cannot be read. */
static bool attach_ready(struct session *se, int code, const void *buf, size_t len, int *fd)
{
    union {
        struct att_map map;
        struct att_words words;
        struct att_mem mem;
        struct att_mem_drop drop;
        struct att_map_on map_on;
        struct att_unmapped unmapped;
    } msg;
    switch (code) {
    case KVC_ATTACH_MAP:
        if (codec_dec_att_map(buf, len, &msg.map) != 0)
            return false;
        attach_map(se, &msg.map);
        return true;
    case KVC_ATTACH_WORDS:
        if (codec_dec_att_words(buf, len, &msg.words) != 0)
            return false;
        device_words(se);
        return true;
    case KVC_ATTACH_MEM:
        if (codec_dec_att_mem(buf, len, &msg.mem) != 0)
            return false;
        device_mem(se, &msg.mem, fd);
        return true;
    case KVC_ATTACH_MEM_DROP:
        if (codec_dec_att_mem_drop(buf, len, &msg.drop) != 0)
            return false;
        device_mem_drop(se, msg.drop.mem);
        return true;
    case KVC_ATTACH_MAP_ON:
        if (codec_dec_att_map_on(buf, len, &msg.map_on) != 0)
            return false;
        device_map_on(se, msg.map_on.chunk);
        return true;
    case KVC_ATTACH_UNMAPPED:
        if (codec_dec_att_unmapped(buf, len, &msg.unmapped) != 0)
            return false;
        lend_unmapped(se, msg.unmapped.chunk);
        return true;
    default:
        return false;
    }
}

void svc_attach_message(struct svc *s, uint32_t conn, const void *buf, size_t len, int *fd)
{
    struct session *se = session_by_conn(s, conn);
    MUST(se != NULL);
    struct att_hello hello;
    int none = -1;
    int code = codec_att_code(buf, len);
    if (se->state == SESSION_DROPPED)
        return;
    if (se->state == SESSION_CONNECTED && code == KVC_ATTACH_HELLO &&
        codec_dec_att_hello(buf, len, &hello) == 0) {
        attach_hello(se, &hello);
    } else if (se->state != SESSION_READY || !attach_ready(se, code, buf, len, fd ? fd : &none)) {
        s->m.bad_messages++;
        session_close_soon(se, KVC_ST_BAD_MESSAGE,
                           "its attach message cannot be parsed or does not belong here");
    }
}

void svc_attach_closed(struct svc *s, uint32_t conn)
{
    struct session *se = session_by_conn(s, conn);
    MUST(se != NULL);
    session_close(se);
}

void svc_chunk_retired(struct svc *s, uint32_t chunk, uint32_t principal)
{
    struct att_retired msg = {.chunk = chunk};
    uint8_t buf[64];
    int len = codec_enc_att_retired(buf, sizeof buf, &msg);
    for (uint32_t i = 0; i < svc_conns_max(&s->cfg); i++) {
        struct session *se = &s->sessions[i];
        if (se->state != SESSION_READY || principal_no(s, se->principal) != principal)
            continue;
        session_say(se, buf, len, -1);
        lend_recall(se, chunk);
    }
}
