/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loans: device memory of the daemon's that sessions may map, from CHUNK_ON until UNMAPPED or the
 * end of the session. The device keeps the memory that long, because freeing it would free nothing
 * while a process maps it.
 */
#include <stdlib.h>

#include "svc__.h"
#include "sys.h"

static struct device_loan *lend_find(const struct device_things *t, uint32_t chunk)
{
    for (uint32_t i = 0; t && i < t->nloans; i++)
        if (t->loan[i].chunk == chunk)
            return &t->loan[i];
    return NULL;
}

static int lend_reserve(struct device_things *t)
{
    if (t->nloans < t->loans_max)
        return 0;
    const uint32_t max = t->loans_max ? 2 * t->loans_max : 16;
    struct device_loan *loan = sys_realloc(t->loan, max * sizeof *loan);
    if (!loan)
        return -ENOMEM;
    t->loan = loan;
    t->loans_max = max;
    return 0;
}

int lend_chunk(struct session *se, struct device *d, uint32_t chunk)
{
    struct device_things *t = se->things;
    if (lend_find(t, chunk))
        return 0;
    if (lend_reserve(t))
        return -ENOMEM;
    t->loan[t->nloans++] = (struct device_loan){.chunk = chunk};
    d->ops->chunk_lend(d, chunk);
    return 0;
}

static void give_back(struct session *se, struct device_loan *loan)
{
    struct svc *s = se->svc;
    struct device_things *t = se->things;
    struct device *d = s->cfg.devices[device_of_chunk(loan->chunk) - 1];
    const uint32_t chunk = loan->chunk;
    t->nrecalled -= loan->recalled;
    s->m.recalled -= loan->recalled;
    *loan = t->loan[--t->nloans];
    if (t->nrecalled == 0)
        wheel_del(&s->wheel, &t->late);
    d->ops->chunk_give_back(d, chunk);
}

void lend_unmapped(struct session *se, uint32_t chunk)
{
    struct device_loan *loan = lend_find(se->things, chunk);
    if (loan)
        give_back(se, loan);
}

/* Logs a session that keeps recalled memory. The session is not ended: its process would still map
 * the memory, and the daemon would no longer see that. */
static void is_late(void *ctx, uint64_t now_ns)
{
    struct session *se = ctx;
    struct svc *s = se->svc;
    s->m.recalls_late++;
    LOG_WARN_RATELIMITED(20,
                         "session %u (%s, uid %u, pid %d) has not unmapped %u chunks of device "
                         "memory that were retired; until it does, or ends, there is less room",
                         se->serial, se->name, (unsigned)se->uid, (int)se->pid,
                         se->things->nrecalled);
    wheel_add(&s->wheel, &se->things->late, now_ns + SVC_RECALL_NS);
}

void lend_recall(struct session *se, uint32_t chunk)
{
    struct svc *s = se->svc;
    struct device_things *t = se->things;
    struct device_loan *loan = lend_find(t, chunk);
    if (!loan || loan->recalled)
        return;
    loan->recalled = true;
    s->m.recalled++;
    if (t->nrecalled++ > 0)
        return;
    t->late.fn = is_late;
    t->late.ctx = se;
    wheel_add(&s->wheel, &t->late, s->now_ns + SVC_RECALL_NS);
}

bool lend_any(const struct session *se)
{
    return se->things && se->things->nloans > 0;
}

void lend_end(struct session *se)
{
    struct device_things *t = se->things;
    while (t && t->nloans > 0)
        give_back(se, &t->loan[t->nloans - 1]);
    if (t)
        free(t->loan);
}
