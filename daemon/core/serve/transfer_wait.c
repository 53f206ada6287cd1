/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue before a device. Sends and commits out of pages wait here while all jobs of the device
 * are taken. Each waits in the caller's memory.
 *
 * Clients take turns. A copy whose word has not come is passed by others. When a job ends, the next
 * waiting copy may begin; words and deadlines are looked at from time to time. While a copy is
 * queued others are in flight, so some job ends.
 */
#include "serve.h"
#include "transfer_jobs.h"

/* The longest delay with which deadlines and words are noticed, in ns. */
#define TRANSFER_LOOK_NS 1000000u

static struct core_transfer *transfer_at(struct list_node *node)
{
    return CONTAINER_OF(node, struct core_transfer, node);
}

static struct transfer_line *transfer_wait_line_of(const struct core *c, struct hbm_device *dev,
                                                   const struct core_client *cl)
{
    return &dev->line[client_no(c, cl)];
}

static void transfer_enqueue(struct core *c, struct hbm_device *dev, struct core_transfer *t)
{
    struct transfer_line *line = transfer_wait_line_of(c, dev, t->client);
    if (!list_is_linked(&line->node))
        list_push_back(&dev->lines, &line->node);
    list_push_back(t->fenced ? &line->fenced : &line->ready, &t->node);
    *(t->fenced ? &dev->fenced_n : &dev->ready_n) += 1;
}

static void transfer_dequeue(struct hbm_device *dev, struct transfer_line *line,
                             struct core_transfer *t)
{
    list_remove(&t->node);
    *(t->fenced ? &dev->fenced_n : &dev->ready_n) -= 1;
    if (list_empty(&line->ready) && list_empty(&line->fenced))
        list_remove(&line->node);
}

struct transfer_job *transfer_begin(struct core *c, struct core_transfer *t,
                                    const struct transfer_kind *kind, struct core_client *cl)
{
    struct hbm_device *dev = hbm_device_of(c, t->device);
    list_init(&t->node);
    t->kind = kind;
    t->client = cl;
    t->fenced = device_fence_is_pending(&t->after);
    t->cancelled = false;
    struct transfer_job *job = transfer_job_new(c, t->client, t->kind, dev, t->fenced);
    if (job) {
        job->transfer = t;
        return job;
    }
    transfer_enqueue(c, dev, t);
    c->m.transfers_waiting++;
    c->hbm->due = true; /* t may begin before transfers that wait already */
    return NULL;
}

void transfer_cancel(struct core *c, struct core_transfer *t)
{
    if (list_is_linked(&t->node)) {
        t->cancelled = true;
        c->hbm->due = true;
        return;
    }
    LIST_FOR_EACH_SAFE (node, next, &c->hbm->in_flight) {
        struct transfer_job *job = CONTAINER_OF(node, struct transfer_job, node);
        if (job->transfer == t)
            transfer_job_cancel(job);
    }
}

/* ---- transfers that end in the queue ---- */

/* Whether a queued transfer is to end: -ECANCELED or -ETIMEDOUT; 0: it stays queued. */
static int transfer_verdict(const struct core *c, const struct core_transfer *t)
{
    if (t->cancelled)
        return -ECANCELED;
    return t->deadline_ns && c->now_ns >= t->deadline_ns ? -ETIMEDOUT : 0;
}

/* Looks through one list of a line; transfers that are to end are moved to `over`. */
static void transfer_wait_look_at(struct core *c, struct hbm_device *dev,
                                  struct transfer_line *line, struct list_node *list,
                                  struct list_node *over)
{
    LIST_FOR_EACH_SAFE (node, next, list) {
        struct core_transfer *t = transfer_at(node);
        if (transfer_verdict(c, t) != 0) {
            transfer_dequeue(dev, line, t);
            list_push_back(over, &t->node);
        } else if (t->fenced && !device_fence_is_pending(&t->after)) {
            transfer_dequeue(dev, line, t);
            t->fenced = false;
            transfer_enqueue(c, dev, t);
        }
    }
}

static void look_through(struct core *c, struct hbm_device *dev)
{
    struct list_node over;
    list_init(&over);
    LIST_FOR_EACH_SAFE (node, next, &dev->lines) {
        struct transfer_line *line = CONTAINER_OF(node, struct transfer_line, node);
        transfer_wait_look_at(c, dev, line, &line->ready, &over);
        transfer_wait_look_at(c, dev, line, &line->fenced, &over);
    }
    for (struct list_node *node; (node = list_first(&over));) {
        struct core_transfer *t = transfer_at(node);
        const int status = transfer_verdict(c, t);
        list_remove(node);
        c->m.transfers_waiting--;
        t->kind->drop(c, t, status);
    }
}

/* ---- transfers that begin ---- */

static bool line_begin(struct core *c, struct hbm_device *dev, struct transfer_line *line,
                       struct list_node *node)
{
    if (!node)
        return false;
    struct core_transfer *t = transfer_at(node);
    struct transfer_job *job = transfer_job_take(c, t->client, t->kind, dev, t->fenced);
    if (!job)
        return false;
    transfer_dequeue(dev, line, t);
    c->m.transfers_waiting--;
    job->transfer = t;
    t->kind->run(c, t, job);
    return true;
}

/* Begins transfers, one of each line in turn, until no line can begin one. */
static void device_serve(struct core *c, struct hbm_device *dev)
{
    struct transfer_line *stop =
        NULL; /* first of the lines that could begin nothing since the last that could */
    for (struct list_node *node; (node = list_first(&dev->lines));) {
        struct transfer_line *line = CONTAINER_OF(node, struct transfer_line, node);
        if (line == stop || dev->share.used == dev->share.total)
            return;
        list_remove(node);
        list_push_back(&dev->lines, node);
        if (line_begin(c, dev, line, list_first(&line->ready)) ||
            line_begin(c, dev, line, list_first(&line->fenced)))
            stop = NULL;
        else if (!stop)
            stop = line;
    }
}

void transfer_run_waiting(struct core *c)
{
    struct hbm_table *t = c->hbm;
    if (!t || c->m.transfers_waiting == 0 || (!t->due && c->now_ns < t->look_ns))
        return;
    t->due = false;
    t->look_ns = c->now_ns + TRANSFER_LOOK_NS;
    for (uint32_t i = 0; i < t->ndevices; i++) {
        look_through(c, &t->dev[i]);
        device_serve(c, &t->dev[i]);
    }
}

bool transfer_has_due(const struct core *c)
{
    return c->hbm && c->hbm->due && c->m.transfers_waiting > 0;
}

static uint32_t each_of(struct core *c, struct list_node *list,
                        void (*fn)(struct core *c, struct core_transfer *, void *ctx), void *ctx)
{
    uint32_t n = 0;
    LIST_FOR_EACH_SAFE (node, next, list) {
        fn(c, transfer_at(node), ctx);
        n++;
    }
    return n;
}

void transfer_each_waiting(struct core *c,
                           void (*fn)(struct core *c, struct core_transfer *, void *ctx), void *ctx)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->hbm->ndevices; i++) {
        struct hbm_device *dev = &c->hbm->dev[i];
        uint32_t ready_n = 0, fenced_n = 0;
        LIST_FOR_EACH_SAFE (node, next, &dev->lines) {
            struct transfer_line *line = CONTAINER_OF(node, struct transfer_line, node);
            MUST(!list_empty(&line->ready) || !list_empty(&line->fenced));
            ready_n += each_of(c, &line->ready, fn, ctx);
            fenced_n += each_of(c, &line->fenced, fn, ctx);
        }
        MUST(ready_n == dev->ready_n && fenced_n == dev->fenced_n);
        MUST(ready_n + fenced_n == 0 ||
             dev->share.used > 0); /* when these jobs end, `due` is set */
        n += ready_n + fenced_n;
    }
    MUST(n == c->m.transfers_waiting);
}
