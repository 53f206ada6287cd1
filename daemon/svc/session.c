/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions: finds one by its route, says who it is, sends to it, and marks it as to be dropped.
 * attach.c begins and ends them.
 */
#include "svc__.h"

static uint32_t strangers_max(const struct svc_config *cfg)
{
    return cfg->fair ? MAX(cfg->sessions_max / 16, 1u) : 0;
}

uint32_t svc_conns_max(const struct svc_config *cfg)
{
    return cfg->sessions_max + strangers_max(cfg);
}

void session_init(struct svc *s, uint32_t index)
{
    struct session *se = &s->sessions[index];
    *se = (struct session){.index = index, .conn = CONN_NONE, .svc = s};
    list_init(&se->calls);
    work_init(se);
}

uint32_t principal_no(const struct svc *s, const struct svc_principal *p)
{
    return (uint32_t)(p - s->cfg.principals) + 1;
}

uint32_t session_principal(const struct session *se)
{
    return principal_no(se->svc, se->principal);
}

struct session *session_by_route(struct svc *s, const void *route, size_t len)
{
    const uint8_t *r = route;
    if (len != KVC_ROUTE_BYTES)
        return NULL;
    uint32_t index = r[1] | (uint32_t)r[2] << 8;
    if (index >= s->cfg.sessions_max)
        return NULL;
    struct session *se = &s->sessions[index];
    if (se->state != SESSION_READY || memcmp(se->route, r, KVC_ROUTE_BYTES) != 0)
        return NULL;
    return se;
}

void session_close_soon(struct session *se, uint16_t status, const char *text)
{
    if (se->close_pending || se->state == SESSION_DROPPED || se->state == SESSION_CLOSING)
        return;
    se->close_pending = true;
    se->close_status = status;
    se->close_text = text;
    se->svc->nclose_pending++;
}

void session_force(struct session *se, uint16_t status, const char *text)
{
    session_close_soon(se, status, text);
    if (se->state == SESSION_DROPPED && !se->close_pending) {
        se->close_pending = true; /* drop it again, so that it also loses the memory it kept */
        se->svc->nclose_pending++;
    }
    se->forced = true;
}

void session_say(struct session *se, const void *buf, int len, int fd)
{
    struct svc *s = se->svc;
    MUST(len > 0);
    if (s->ports.attach_send(s->ports.ctx, se->conn, buf, (size_t)len, fd) != 0)
        session_close_soon(se, KVC_ST_LIMIT, "the attach connection takes no messages");
}

void session_works(struct session *se)
{
    if (se->told)
        return;
    se->told = true;
    LOG_INFO("session %u: %s, uid %u, pid %d, principal %s, staging %llu MiB", se->serial, se->name,
             (unsigned)se->uid, (int)se->pid, se->principal->name,
             (unsigned long long)(se->staging_bytes >> 20));
}
