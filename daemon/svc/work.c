/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whose turn it is. A request is handled when it is received, unless others are due: then
 * it is kept and waits behind those of its session. A long request continues in slices. Principals
 * take turns, and the sessions of each, by the work that was done for them.
 */
#include <stdlib.h>

#include "svc__.h"
#include "sys.h"
#include "turn.h"

/* TURN_WORK: work after which a turn begins no further slice. TURN_REQUESTS: so many times
 * TURN_WORK, after which it begins no further request. Most requests find their data in the CPU's
 * caches, and take less time than they count. */
#define TURN_WORK     1024u
#define TURN_REQUESTS 4u
/* Units that a request costs beside what core counts; and bytes of it that cost one unit. */
#define REQUEST_WORK  16u
#define REQUEST_BYTES 256u
/* A session that had at most this much more work than the others is served at once, so that small,
 * rare requests do not wait for the slices of others. */
#define WORK_CREDIT 1024u

/* Backlogged peers are looked at again after this time: no event says that they have read their
 * replies. */
#define BACKLOG_NS 1000000u

/* Work done for a principal's sessions. */
struct work_share {
    uint64_t used;  /* work done for it, compared among the principals */
    uint64_t floor; /* session_work.used of its session that was served last: where new sessions
                     * begin */
    uint32_t busy;  /* sessions that have work */
};

struct work_state {
    uint64_t floor;            /* where the `used` of a principal begins */
    uint64_t turn_used;        /* work of this turn */
    struct list_node busy;     /* session_work.busy of sessions that have work */
    struct work_share share[]; /* by principal */
};

int work_create(struct svc *s)
{
    const uint32_t n = MAX(s->cfg.nprincipals, 1u);
    s->work = sys_calloc(1, sizeof *s->work + n * sizeof s->work->share[0]);
    if (!s->work)
        return -ENOMEM;
    list_init(&s->work->busy);
    return 0;
}

void work_destroy(struct svc *s)
{
    free(s->work);
    s->work = NULL;
}

void work_init(struct session *se)
{
    list_init(&se->work.calls);
}

void work_turn_begin(struct svc *s)
{
    s->work->turn_used = 0;
}

static uint64_t turn_work(const struct svc *s, uint64_t times)
{
    return times * (s->cfg.turn_work ? s->cfg.turn_work : TURN_WORK);
}

static bool turn_over(const struct svc *s, uint64_t times)
{
    return s->work->turn_used >= turn_work(s, times);
}

static struct work_share *work_share_of(const struct session *se)
{
    return &se->svc->work->share[session_principal(se) - 1];
}

/* Raises the counts of a session, and of its principal, that had nothing to do: being idle earns no
 * turns. */
static void lift(struct session *se)
{
    struct work_share *p = work_share_of(se);
    if (!list_empty(&se->work.calls))
        return;
    if (p->busy == 0)
        p->used = MAX(p->used, se->svc->work->floor);
    se->work.used = MAX(se->work.used, p->floor);
}

static bool is_before(const struct session *a, const struct session *b, uint64_t credit)
{
    const struct work_share *p = work_share_of(a), *q = work_share_of(b);
    return p == q ? a->work.used < b->work.used + credit : p->used < q->used + credit;
}

/* Whether the session reads its replies more slowly than it asks: its requests wait until it has
 * read some. */
static bool is_backlogged(const struct session *se)
{
    const struct svc_ports *ports = &se->svc->ports;
    return ports->backlogged && ports->backlogged(ports->ctx, se->route);
}

/* The session that is served next. Of the sessions that have work and take replies, it is the one
 * with least work done, of the principal with least work done. */
static struct session *next_session(const struct svc *s)
{
    struct session *best = NULL;
    LIST_FOR_EACH_SAFE (node, next, &s->work->busy) {
        struct session *se = CONTAINER_OF(node, struct session, work.busy);
        if (!is_backlogged(se) && (!best || is_before(se, best, 0)))
            best = se;
    }
    return best;
}

uint64_t work_begin(const struct svc *s)
{
    turn_piece(TURN_BETWEEN, 0, 0);
    return core_work(s->core);
}

void work_charge(struct session *se, uint32_t op, uint64_t begun, size_t bytes)
{
    struct svc *s = se->svc;
    struct work_share *p = work_share_of(se);
    const uint64_t core_units = core_work(s->core) - begun;
    const uint64_t units = core_units + REQUEST_WORK + bytes / REQUEST_BYTES;
    p->floor = MAX(p->floor, se->work.used);
    s->work->floor = MAX(s->work->floor, p->used);
    se->work.used += units;
    p->used += units;
    s->work->turn_used += units;
    histo_add(&s->m.handle_ns, turn_piece(op, se->index, core_units));
}

bool work_comes_first(struct session *se)
{
    struct svc *s = se->svc;
    lift(se);
    if (!list_empty(&se->work.calls) || turn_over(s, TURN_REQUESTS) || is_backlogged(se))
        return false;
    const struct session *other = next_session(s);
    return !other || is_before(se, other, WORK_CREDIT);
}

static void work_link(struct call *call, bool first)
{
    struct session *se = call->session;
    lift(se);
    if (list_empty(&se->work.calls)) {
        list_push_back(&se->svc->work->busy, &se->work.busy);
        work_share_of(se)->busy++;
    }
    if (first)
        list_push_front(&se->work.calls, &call->turn);
    else
        list_push_back(&se->work.calls, &call->turn);
}

void work_go_on(struct call *call, void (*step)(struct call *call))
{
    struct svc *s = call->session->svc;
    call->step = step;
    /* A slice counts as a large request: further requests wait for the next turn. */
    s->work->turn_used = MAX(s->work->turn_used, turn_work(s, TURN_REQUESTS));
    if (!list_is_linked(&call->turn))
        work_link(call, true);
}

void work_wait(struct call *call, void (*step)(struct call *call))
{
    call->step = step;
    if (!list_is_linked(&call->turn))
        work_link(call, false);
}

void work_leave(struct call *call)
{
    struct session *se = call->session;
    if (!list_is_linked(&call->turn))
        return;
    list_remove(&call->turn);
    if (!list_empty(&se->work.calls))
        return;
    list_remove(&se->work.busy);
    work_share_of(se)->busy--;
}

void work_run(struct svc *s)
{
    for (bool first = true; first || !turn_over(s, 1); first = false) {
        struct session *se = next_session(s);
        if (!se)
            return;
        struct call *call = CONTAINER_OF(list_first(&se->work.calls), struct call, turn);
        const uint32_t op = call->head.op;
        const uint64_t begun = work_begin(s);
        call->step(call);
        work_charge(se, op, begun, 0);
        s->m.slices++;
    }
}

uint64_t work_next_ns(const struct svc *s)
{
    if (list_empty(&s->work->busy))
        return UINT64_MAX;
    return next_session(s) ? 0 : s->now_ns + BACKLOG_NS;
}
