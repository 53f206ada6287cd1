/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue before a device: sends and commits out of pages that wait because as many copies as may
 * be are under way there. They wait in memory of their owners.
 *
 * Clients take turns. A copy that waits for a word is passed by others, and once its word has come
 * it is held up by no copy that still waits for one. A job that ends says that somebody's turn may
 * have come; words and deadlines are looked at from time to time. While a copy is queued others are
 * in flight, so turns come.
 */
#include "near_jobs.h"
#include "serve.h"

/* The longest delay with which deadlines and words are noticed, in ns. */
#define NEAR_LOOK_NS 1000000u

static struct core_turn *turn_at(struct list_node *node)
{
    return CONTAINER_OF(node, struct core_turn, node);
}

static bool word_has_come(const struct core_turn *turn)
{
    return !near_is_gated(turn->after, turn->after_value);
}

static struct near_line *near_wait_line_of(const struct core *c, struct near_device *dev,
                                           const struct core_client *cl)
{
    return &dev->line[client_no(c, cl)];
}

static void turn_enqueue(struct core *c, struct near_device *dev, struct core_turn *turn)
{
    struct near_line *line = near_wait_line_of(c, dev, turn->client);
    if (!list_is_linked(&line->node))
        list_push_back(&dev->lines, &line->node);
    list_push_back(turn->gated ? &line->gated : &line->ready, &turn->node);
    *(turn->gated ? &dev->gated_n : &dev->ready_n) += 1;
}

static void turn_dequeue(struct near_device *dev, struct near_line *line, struct core_turn *turn)
{
    list_remove(&turn->node);
    *(turn->gated ? &dev->gated_n : &dev->ready_n) -= 1;
    if (list_empty(&line->ready) && list_empty(&line->gated))
        list_remove(&line->node);
}

struct near_job *near_begin(struct core *c, struct core_turn *turn, const struct device *device)
{
    struct near_device *dev = near_device_of(c, device);
    list_init(&turn->node);
    turn->device = dev->device->no;
    turn->gated = !word_has_come(turn);
    turn->cancelled = false;
    struct near_job *job = near_job_new(c, turn->client, turn->kind, dev, turn->gated);
    if (job) {
        job->turn = turn;
        return job;
    }
    turn_enqueue(c, dev, turn);
    c->m.near_waiting++;
    c->near->due = true; /* others that wait may not be before it in everything */
    return NULL;
}

void near_cancel(struct core *c, struct core_turn *turn)
{
    if (list_is_linked(&turn->node)) {
        turn->cancelled = true;
        c->near->due = true;
        return;
    }
    LIST_FOR_EACH_SAFE (node, next, &c->near->in_flight) {
        struct near_job *job = CONTAINER_OF(node, struct near_job, node);
        if (job->turn == turn)
            near_job_cancel(job);
    }
}

/* ---- those who end ---- */

/* Whether a queued turn is to end: -ECANCELED or -ETIMEDOUT; 0: it stays queued. */
static int turn_verdict(const struct core *c, const struct core_turn *turn)
{
    if (turn->cancelled)
        return -ECANCELED;
    return turn->deadline_ns && c->now_ns >= turn->deadline_ns ? -ETIMEDOUT : 0;
}

/* Looks through one list of a line; turns that are to end are moved to `over`. */
static void near_wait_look_at(struct core *c, struct near_device *dev, struct near_line *line,
                              struct list_node *list, struct list_node *over)
{
    LIST_FOR_EACH_SAFE (node, next, list) {
        struct core_turn *turn = turn_at(node);
        if (turn_verdict(c, turn) != 0) {
            turn_dequeue(dev, line, turn);
            list_push_back(over, &turn->node);
        } else if (turn->gated && word_has_come(turn)) {
            turn_dequeue(dev, line, turn);
            turn->gated = false;
            turn_enqueue(c, dev, turn);
        }
    }
}

static void look_through(struct core *c, struct near_device *dev)
{
    struct list_node over;
    list_init(&over);
    LIST_FOR_EACH_SAFE (node, next, &dev->lines) {
        struct near_line *line = CONTAINER_OF(node, struct near_line, node);
        near_wait_look_at(c, dev, line, &line->ready, &over);
        near_wait_look_at(c, dev, line, &line->gated, &over);
    }
    for (struct list_node *node; (node = list_first(&over));) {
        struct core_turn *turn = turn_at(node);
        const int status = turn_verdict(c, turn);
        list_remove(node);
        c->m.near_waiting--;
        turn->kind->drop(c, turn, status);
    }
}

/* ---- those who begin ---- */

static bool line_begin(struct core *c, struct near_device *dev, struct near_line *line,
                       struct list_node *node)
{
    if (!node)
        return false;
    struct core_turn *turn = turn_at(node);
    struct near_job *job = near_job_take(c, turn->client, turn->kind, dev, turn->gated);
    if (!job)
        return false;
    turn_dequeue(dev, line, turn);
    c->m.near_waiting--;
    job->turn = turn;
    turn->kind->run(c, turn, job);
    return true;
}

/* Begins turns, one line after the other, until none of the lines can begin any. */
static void device_serve(struct core *c, struct near_device *dev)
{
    struct near_line *stop = NULL; /* the first in a row that could not */
    for (struct list_node *node; (node = list_first(&dev->lines));) {
        struct near_line *line = CONTAINER_OF(node, struct near_line, node);
        if (line == stop || dev->share.used == dev->share.total)
            return;
        list_remove(node);
        list_push_back(&dev->lines, node);
        if (line_begin(c, dev, line, list_first(&line->ready)) ||
            line_begin(c, dev, line, list_first(&line->gated)))
            stop = NULL;
        else if (!stop)
            stop = line;
    }
}

void near_run_waiting(struct core *c)
{
    struct near_table *t = c->near;
    if (!t || c->m.near_waiting == 0 || (!t->due && c->now_ns < t->look_ns))
        return;
    t->due = false;
    t->look_ns = c->now_ns + NEAR_LOOK_NS;
    for (uint32_t i = 0; i < t->ndevices; i++) {
        look_through(c, &t->dev[i]);
        device_serve(c, &t->dev[i]);
    }
}

bool near_has_due(const struct core *c)
{
    return c->near && c->near->due && c->m.near_waiting > 0;
}

static uint32_t each_of(struct core *c, struct list_node *list,
                        void (*fn)(struct core *c, struct core_turn *, void *ctx), void *ctx)
{
    uint32_t n = 0;
    LIST_FOR_EACH_SAFE (node, next, list) {
        fn(c, turn_at(node), ctx);
        n++;
    }
    return n;
}

void near_each_waiting(struct core *c, void (*fn)(struct core *c, struct core_turn *, void *ctx),
                       void *ctx)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < c->near->ndevices; i++) {
        struct near_device *dev = &c->near->dev[i];
        uint32_t ready_n = 0, gated_n = 0;
        LIST_FOR_EACH_SAFE (node, next, &dev->lines) {
            struct near_line *line = CONTAINER_OF(node, struct near_line, node);
            MUST(!list_empty(&line->ready) || !list_empty(&line->gated));
            ready_n += each_of(c, &line->ready, fn, ctx);
            gated_n += each_of(c, &line->gated, fn, ctx);
        }
        MUST(ready_n == dev->ready_n && gated_n == dev->gated_n);
        MUST(ready_n + gated_n == 0 || dev->share.used > 0); /* the end of these jobs sets `due` */
        n += ready_n + gated_n;
    }
    MUST(n == c->m.near_waiting);
}
