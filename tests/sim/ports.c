/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's sockets, descriptors and staging pool are to services. */
#include <stdlib.h>

#include "sim.h"

const struct svc_principal sim_principals[SIM_PRINCIPALS] = {
    {.name = "one", .tenant = "t1", .uids = {1000}, .nuids = 1},
    {.name = "two", .tenant = "t2", .uids = {1001}, .nuids = 1},
    {.name = "gate", .tenant = "t3", .uids = {1002}, .nuids = 1, .gateway = true},
    {.name = "ops", .tenant = "t4", .uids = {0}, .nuids = 1, .admin = true},
};
const uid_t sim_uid[SIM_PRINCIPALS + 1] = {1000, 1001, 1002, 0, 4242};

static struct sim_client *by_conn(struct sim *s, uint32_t conn)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        if (s->client[i].state != CL_OFF && s->client[i].conn == conn)
            return &s->client[i];
    sim_fail(s, "the daemon names connection %u, which is closed", conn);
}

void sim_client_gone(struct sim *s, struct sim_client *cl)
{
    (void)s;
    uint32_t life = cl->life + 1;
    *cl = (struct sim_client){.life = life};
    for (uint32_t i = 0; i < SIM_SLOTS; i++)
        cl->slot_req[i] = SIM_NONE;
}

static int port_reply(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], const void *buf, size_t len)
{
    struct sim *s = ctx;
    struct sim_client *cl = NULL;
    for (uint32_t i = 0; i < SIM_CLIENTS && !cl; i++)
        if (s->client[i].state == CL_READY &&
            memcmp(s->client[i].route, route, KVC_ROUTE_BYTES) == 0)
            cl = &s->client[i];
    SIM_CHECK(s, cl, "a reply to somebody whose session has ended");
    if (cl->deaf) {
        SIM_TRACE(s, "client %u takes no reply", sim_index(s, cl));
        cl->doomed = cl->lost = true;
        s->totals->refused++;
        return -EAGAIN;
    }
    SIM_CHECK(s, s->nanswers < ARRAY_LEN(s->answer), "more replies than requests");
    struct sim_answer *a = &s->answer[s->nanswers++];
    *a = (struct sim_answer){
        .client = sim_index(s, cl), .life = cl->life, .len = len, .bytes = malloc(len)};
    SIM_CHECK(s, a->bytes, "no memory");
    memcpy(a->bytes, buf, len);
    return 0;
}

/* ---- attach channel ---- */

static void on_welcome(struct sim *s, struct sim_client *cl, const void *buf, size_t len, int fd)
{
    struct att_welcome w;
    SIM_CHECK(s, codec_dec_att_welcome(buf, len, &w) == 0, "a WELCOME that cannot be read");
    const bool turned_away = cl->state == CL_CONNECTING && w.status == KVC_ST_LIMIT;
    SIM_CHECK(s,
              turned_away || cl->state == CL_HELLO ||
                  (cl->state == CL_OPEN && s->speaking != SIM_NONE),
              "WELCOME %s without a HELLO", codec_status_name(w.status));
    s->totals->welcomes[w.status]++;
    SIM_TRACE(s, "client %u: WELCOME %s", sim_index(s, cl), codec_status_name(w.status));
    if (w.status != KVC_ST_OK) {
        cl->state = CL_DROPPED;
        return;
    }
    cl->state = CL_READY;
    memcpy(cl->route, w.route, sizeof cl->route);
    SIM_CHECK(s, (fd >= 0) == (w.staging_bytes > 0),
              "staging without a descriptor, or the reverse");
    SIM_CHECK(s, w.admin == sim_principals[cl->principal].admin, "rights of somebody else");
    cl->staging = NULL;
    cl->staging_bytes = w.staging_bytes;
    for (uint32_t i = 0; i < SIM_STAGINGS; i++) {
        const struct sim_staging *g = &s->staging[i];
        if (g->used && g->made && g->client == sim_index(s, cl) && g->life == cl->life)
            cl->staging = g->mem;
    }
    SIM_CHECK(s, !w.staging_bytes || cl->staging, "WELCOME before its staging area is there");
}

/* Some of those who are turned away cannot be told. */
static bool takes_nothing(struct sim *s, const struct sim_client *cl, int code)
{
    if (cl->state == CL_CONNECTING)
        return cl->conn % 8 == 0;
    return code != KVC_ATTACH_DROPPED && sim_rnd(s, 1000) < s->swarm.attach_fail_pm;
}

static int port_attach_send(void *ctx, uint32_t conn, const void *buf, size_t len, int fd)
{
    struct sim *s = ctx;
    struct sim_client *cl = by_conn(s, conn);
    int code = codec_att_code(buf, len);
    if (takes_nothing(s, cl, code)) {
        SIM_TRACE(s, "client %u: attach message %d is refused", sim_index(s, cl), code);
        cl->doomed = true;
        s->totals->refused++;
        return -EAGAIN;
    }
    struct att_chunk chunk;
    struct att_dropped d;
    sim_told(s, &s->totals->digest.rest, buf, len);
    switch (code) {
    case KVC_ATTACH_WELCOME:
        on_welcome(s, cl, buf, len, fd);
        return 0;
    case KVC_ATTACH_CHUNK:
        SIM_CHECK(s, codec_dec_att_chunk(buf, len, &chunk) == 0, "a CHUNK that cannot be read");
        SIM_CHECK(s,
                  (chunk.status == KVC_ST_OK) == (s->chunk_answer >= 0) &&
                      fd == (s->chunk_answer < 0 ? -1 : s->chunk_answer),
                  "CHUNK: %s, descriptor %d", codec_status_name(chunk.status), fd);
        return 0;
    case KVC_ATTACH_RETIRED:
        return 0;
    case KVC_ATTACH_DROPPED:
        SIM_CHECK(s, codec_dec_att_dropped(buf, len, &d) == 0, "a DROPPED that cannot be read");
        SIM_CHECK(s, d.status != KVC_ST_OK && d.detail.n > 0, "DROPPED without a reason");
        SIM_TRACE(s, "client %u: DROPPED %s: %.*s", sim_index(s, cl), codec_status_name(d.status),
                  (int)d.detail.n, (const char *)d.detail.p);
        s->totals->drops[d.status]++;
        cl->state = CL_DROPPED;
        return 0;
    default:
        sim_fail(s, "attach message with code %d", code);
    }
}

static void port_attach_close(void *ctx, uint32_t conn)
{
    struct sim *s = ctx;
    struct sim_client *cl = by_conn(s, conn);
    SIM_TRACE(s, "client %u: closed by the daemon", sim_index(s, cl));
    for (uint32_t i = 0; i < SIM_LEASES && !s->ending; i++)
        SIM_CHECK(s, !cl->lease[i].id, "client %u is closed while it holds lease %llu",
                  sim_index(s, cl), (unsigned long long)cl->lease[i].id);
    sim_client_gone(s, cl);
}

static int port_chunk_fd(void *ctx, uint32_t chunk, uint32_t principal, uint64_t *ret_bytes)
{
    struct sim *s = ctx;
    (void)principal;
    static const int answers[] = {7, 8, -ENOENT, -EACCES};
    s->chunk_answer = answers[chunk % ARRAY_LEN(answers)];
    if (s->chunk_answer >= 0)
        *ret_bytes = s->tier_cfg.region_bytes;
    return s->chunk_answer;
}

/* Who is let in is heard until it is shut out; when the daemon leaves, nobody is shut out. */
static void port_admit(void *ctx, const uint8_t route[KVC_ROUTE_BYTES], uid_t uid)
{
    struct sim *s = ctx;
    (void)route;
    (void)uid;
    s->admitted++;
}

static void port_dismiss(void *ctx, const uint8_t route[KVC_ROUTE_BYTES])
{
    struct sim *s = ctx;
    (void)route;
    SIM_CHECK(s, s->admitted > 0, "more routes shut out than let in");
    s->admitted--;
}

static void port_refresh(void *ctx)
{
    (void)ctx;
}

/* ---- requests that wait ---- */

static void *port_keep(void *ctx, void *msg, const void **ret_buf)
{
    struct sim *s = ctx;
    struct sim_message **m = msg;
    if (sim_pct(s, s->swarm.keep_fail_pct))
        return NULL;
    void *kept = *m;
    SIM_CHECK(s, kept, "a message is kept twice");
    *ret_buf = (*m)->bytes;
    *m = NULL;
    s->kept++;
    return kept;
}

static void port_unkeep(void *ctx, void *kept)
{
    struct sim *s = ctx;
    SIM_CHECK(s, s->kept > 0, "more messages let go than kept");
    s->kept--;
    free(kept);
}

/* ---- staging ---- */

static int port_staging_make(void *ctx, uint64_t bytes, uint64_t tag)
{
    struct sim *s = ctx;
    if (sim_pct(s, s->swarm.staging_fail_pct))
        return -ENOMEM;
    for (uint32_t i = 0; i < SIM_STAGINGS; i++) {
        struct sim_staging *g = &s->staging[i];
        if (g->used)
            continue;
        *g = (struct sim_staging){.used = true,
                                  .tag = tag,
                                  .bytes = bytes,
                                  .ready_ns =
                                      s->now_ns + sim_rnd(s, s->swarm.staging_ms + 1) * SIM_MS,
                                  .client = s->speaking,
                                  .life = s->client[s->speaking].life};
        return 0;
    }
    return -ENOMEM;
}

static void port_staging_free(void *ctx, void *staging)
{
    struct sim *s = ctx;
    struct sim_staging *g = staging;
    SIM_CHECK(s, g->used && g->made, "a staging area is freed twice");
    for (uint32_t i = 0; i < s->nflights; i++)
        SIM_CHECK(s, s->flight[i].src < g->mem || s->flight[i].src >= g->mem + g->bytes,
                  "staging is freed under a copy");
    free(g->mem);
    *g = (struct sim_staging){0};
}

void sim_staging_step(struct sim *s, bool all)
{
    for (uint32_t i = 0; i < SIM_STAGINGS; i++) {
        struct sim_staging *g = &s->staging[i];
        if (!g->used || g->made || (!all && g->ready_ns > s->now_ns))
            continue;
        bool fails = sim_pct(s, s->swarm.staging_fail_pct);
        SIM_TRACE(s, "staging of client %u is %s", g->client, fails ? "refused" : "ready");
        if (fails) {
            uint64_t tag = g->tag;
            *g = (struct sim_staging){0};
            svc_staging_ready(s->svc, tag, -ENOMEM, NULL, -1, NULL, 0);
            continue;
        }
        g->mem = calloc(1, g->bytes);
        SIM_CHECK(s, g->mem, "no memory");
        g->made = true;
        svc_staging_ready(s->svc, g->tag, 0, g, 55, g->mem, g->bytes);
    }
}

struct svc_ports sim_ports(struct sim *s)
{
    return (struct svc_ports){.ctx = s,
                              .reply = port_reply,
                              .attach_send = port_attach_send,
                              .attach_close = port_attach_close,
                              .keep = port_keep,
                              .unkeep = port_unkeep,
                              .staging_make = port_staging_make,
                              .staging_free = port_staging_free,
                              .refresh = port_refresh,
                              .admit = port_admit,
                              .dismiss = port_dismiss,
                              .chunk_fd = port_chunk_fd};
}
