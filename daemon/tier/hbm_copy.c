/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the HBM tier: the queues before the device, jobs, and the operations of the device that
 * they become.
 *
 * submit() -> parked (memory is on its way, or the word `after` has not come) -> waiting (for a
 * job) -> running -> done(). One that ends without having run goes from where it is to `ended`.
 */
#include "hbm__.h"

#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "sys.h"

/* --- queues --- */

static void hbm_copy_push(struct hbm_queue *q, struct device_copy *c)
{
    c->priv = NULL;
    if (q->tail != NULL)
        q->tail->priv = c;
    else
        q->head = c;
    q->tail = c;
}

static struct device_copy *hbm_copy_pop(struct hbm_queue *q)
{
    struct device_copy *c = q->head;
    if (c == NULL)
        return NULL;
    q->head = c->priv;
    if (q->head == NULL)
        q->tail = NULL;
    return c;
}

static struct hbm_queue take_all(struct hbm_queue *q)
{
    const struct hbm_queue all = *q;
    *q = (struct hbm_queue){0};
    return all;
}

/* --- the timer: what no operation's end tells --- */

static void set_timer(struct hbm *h, uint64_t first_ns)
{
    const struct itimerspec at = {
        .it_value = {.tv_nsec = (long)first_ns},
        .it_interval = {.tv_nsec = first_ns != 0 ? HBM_TICK_NS : 0},
    };
    (void)timerfd_settime(h->copies.timer, 0, &at, NULL); /* fails for bad times only */
    h->copies.ticking = first_ns != 0;
}

static bool is_idle(const struct hbm_copies *c)
{
    return list_empty(&c->running) && c->waiting.head == NULL && c->parked.head == NULL &&
           c->ended.head == NULL;
}

bool hbm__copies_run(const struct hbm *h)
{
    return h->copies.waiting.head != NULL || pool_used(h->copies.jobs) > h->copies.gated;
}

void hbm__copies_tick(struct hbm *h, uint64_t first_ns)
{
    if (!h->copies.ticking || first_ns < HBM_TICK_NS)
        set_timer(h, first_ns);
}

/* --- ending --- */

static uint64_t hbm_copy_bytes_of(const struct device_copy *c)
{
    return (uint64_t)c->n * c->bytes;
}

/* Nothing touches the copy's memory any more. */
static void hbm_copy_tell(struct hbm *h, struct device_copy *c)
{
    h->copies.inflight--;
    h->copies.inflight_bytes -= hbm_copy_bytes_of(c);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->piece[i].status == 0)
            c->piece[i].status = c->status;
    if (c->pool != NULL)
        hbm__pool_release(c->pool);
    if (c->status == 0)
        hbm__verify_copied(h, hbm_copy_bytes_of(c));
    c->done(c);
}

static void end_later(struct hbm *h, struct device_copy *c, int status)
{
    c->status = status;
    if (h->copies.ended.head == NULL)
        set_timer(h, 1);
    hbm_copy_push(&h->copies.ended, c);
}

static void tell_ended(struct hbm *h)
{
    struct hbm_queue all = take_all(&h->copies.ended);
    for (struct device_copy *c; (c = hbm_copy_pop(&all)) != NULL;)
        hbm_copy_tell(h, c);
}

/* --- parts --- */

static struct hbm_part *part_take(struct hbm_job *j)
{
    struct hbm_copies *c = &j->hbm->copies;
    if (j->nparts > 0) {
        if (j->nparts == HBM_COPY_PARTS || c->spare_parts == HBM_SPARE_PARTS)
            return NULL;
        c->spare_parts++;
    }
    struct hbm_part *p = pool_get(c->parts);
    if (p == NULL) {
        c->spare_parts -= j->nparts > 0;
        return NULL;
    }
    p->job = j;
    list_push_back(&j->parts, &p->node);
    j->nparts++;
    return p;
}

static void part_put(struct hbm_part *p)
{
    struct hbm_job *j = p->job;
    struct hbm_copies *c = &j->hbm->copies;
    list_remove(&p->node);
    if (--j->nparts > 0)
        c->spare_parts--;
    pool_put(c->parts, p);
}

static void call_off(struct hbm_job *j)
{
    for (struct list_node *n = j->parts.next; n != &j->parts; n = n->next)
        atomic_store_explicit(&CONTAINER_OF(n, struct hbm_part, node)->op.cancel, true,
                              memory_order_relaxed);
}

/* What is in flight ends, nothing more is begun. The first reason counts. */
static void hbm_copy_fail(struct hbm_job *j, int err)
{
    if (j->err == 0)
        j->err = err;
    call_off(j);
}

static void on_part(struct gpu_op *op);

/*
 * Parts of one copy run one behind the other, and none runs when the first did not begin: a part
 * waits for a word of the job that the first fragment of the part before it moves. So the deadline,
 * and `after`, are the first part's alone.
 */
static void part_submit(struct hbm_job *j, struct hbm_part *p)
{
    struct hbm_copies *c = &j->hbm->copies;
    const struct device_copy *copy = j->copy;
    const uint64_t no = pool_index(c->parts, p);
    struct gpu_mark *mark = c->mark + no * (HBM_MARKS + 1);
    struct hbm_list list = {.frag = c->frag + no * HBM_FRAGS, .mark = mark + 1};
    hbm__list(j, &list);
    MUST(list.nfrags > 0);
    const bool last = j->at.over;
    mark[0] = (struct gpu_mark){.end = 1, .value = j->submitted + 1, .word = &j->progress};
    p->op.kind = GPU_COPY;
    p->op.direction = list.direction;
    p->op.frag = list.frag;
    p->op.nfrags = list.nfrags;
    p->op.mark = last ? mark + 1 : mark;
    p->op.nmarks = last ? list.nmarks : list.nmarks + 1;
    p->op.after = j->submitted == 0 ? copy->after : &j->progress;
    p->op.after_value = j->submitted == 0 ? copy->after_value : j->submitted;
    p->op.deadline_ns = j->submitted == 0 ? copy->deadline_ns : 0;
    p->op.revoke.word = copy->revoked;
    p->op.done = on_part;
    p->op.owner = p;
    j->submitted++;
    gpu_submit(j->hbm->gpu, &p->op);
}

static void pump(struct hbm_job *j)
{
    while (!j->at.over && j->err == 0) {
        if (!hbm__is_up(j->hbm)) {
            hbm_copy_fail(j, -EIO);
            return;
        }
        struct hbm_part *p = part_take(j);
        if (p == NULL && j->nparts == 0)
            hbm_copy_fail(j, -EIO); /* no part of it will end, and take the next */
        if (p == NULL)
            return;
        part_submit(j, p);
    }
}

/* --- jobs --- */

/* Whether the piece is to be copied, and from or to a slot. */
static bool uses_slot(const struct device_copy *c, const struct device_piece *p)
{
    return p->status == 0 &&
           (c->kind == DEVICE_FILL || (c->kind == DEVICE_LOAD && p->host == NULL));
}

static void hbm_copy_hold(struct hbm *h, const struct device_copy *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (uses_slot(c, &c->piece[i]))
            hbm__slot_hold(h, c->piece[i].slot);
}

static void hbm_copy_release(struct hbm *h, const struct device_copy *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (uses_slot(c, &c->piece[i]))
            hbm__slot_release(h, c->piece[i].slot);
}

static void ungate(struct hbm_job *j)
{
    if (j->gated)
        j->hbm->copies.gated--;
    j->gated = false;
}

static void hbm_copy_serve(struct hbm *h);

/* It has no parts. Returns the copy, which has its status. */
static struct device_copy *job_put(struct hbm_job *j)
{
    struct hbm *h = j->hbm;
    struct device_copy *copy = j->copy;
    copy->status = j->err;
    list_remove(&j->node);
    pool_put(h->copies.jobs, j);
    hbm_copy_release(h, copy);
    return copy;
}

static void hbm_copy_finish(struct hbm_job *j)
{
    struct hbm *h = j->hbm;
    struct device_copy *copy = job_put(j);
    hbm_copy_serve(h); /* before whoever is told submits more */
    hbm_copy_tell(h, copy);
}

/* -EINVAL of the device's is of the daemon's making (a fragment outside its memory) and says
 * nothing of what was touched; of a copy it would tell the worker that its page numbers are wrong.
 */
static int status_of(int err)
{
    return err == -ETIMEDOUT || err == -ECANCELED ? err : -EIO;
}

static void on_part(struct gpu_op *op)
{
    struct hbm_part *p = op->owner;
    struct hbm_job *j = p->job;
    const int status = op->status;
    part_put(p);
    ungate(j);
    if (status != 0)
        hbm_copy_fail(j, status_of(status));
    pump(j);
    if (j->nparts == 0)
        hbm_copy_finish(j);
}

static bool is_gated(const struct device_copy *c)
{
    return c->after != NULL &&
           atomic_load_explicit(c->after, memory_order_acquire) < c->after_value;
}

static void hbm_copy_start(struct hbm *h, struct device_copy *copy)
{
    struct hbm_job *j = pool_get(h->copies.jobs);
    if (j == NULL) {
        end_later(h, copy, -EIO);
        return;
    }
    j->hbm = h;
    j->copy = copy;
    j->gated = is_gated(copy);
    h->copies.gated += j->gated;
    list_init(&j->parts);
    list_push_back(&h->copies.running, &j->node);
    hbm_copy_hold(h, copy);
    hbm__list_begin(j);
    pump(j);
    if (j->nparts > 0)
        return;
    ungate(j);
    copy = job_put(j);
    end_later(h, copy, copy->status);
}

/* --- which way a copy goes --- */

/* Whether the memory of its slots is there: 0, -EAGAIN, -ENOMEM, -EIO. */
static int slots_ready(struct hbm *h, const struct device_copy *c)
{
    int all = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        uint64_t addr;
        if (!uses_slot(c, &c->piece[i]))
            continue;
        const int err = hbm__slot_at(h, c->piece[i].slot, &addr);
        if (err == -EIO || err == -ENOMEM)
            return err;
        all = err < 0 ? err : all;
    }
    return all;
}

static bool is_revoked(const struct device_copy *c)
{
    return c->revoked != NULL && atomic_load_explicit(c->revoked, memory_order_acquire) != 0;
}

/* 0: it can run; -EAGAIN: not yet; else how it ends. */
static int hbm_copy_judge(struct hbm *h, const struct device_copy *c)
{
    if (h->closing || atomic_load_explicit(&c->cancel, memory_order_relaxed) || is_revoked(c))
        return -ECANCELED;
    if (!hbm__is_up(h) || (c->pool != NULL && c->pool->generation != h->generation))
        return -EIO;
    if (c->deadline_ns != 0 && clock_now_ns() >= c->deadline_ns)
        return -ETIMEDOUT;
    const int err = slots_ready(h, c);
    if (err < 0)
        return err;
    /* Words that never come take the deadline of their copies to give the jobs back: a quarter of
     * them is for copies that can run. */
    if (h->copies.gated >= h->copies.copies_max - h->copies.copies_max / 4 && is_gated(c))
        return -EAGAIN;
    return 0;
}

static bool has_job(const struct hbm *h)
{
    return pool_used(h->copies.jobs) < h->copies.copies_max;
}

static void route(struct hbm *h, struct device_copy *c)
{
    const int err = hbm_copy_judge(h, c);
    if (err == -EAGAIN)
        hbm_copy_push(&h->copies.parked, c);
    else if (err < 0)
        end_later(h, c, err);
    else if (!has_job(h))
        hbm_copy_push(&h->copies.waiting, c);
    else
        hbm_copy_start(h, c);
}

static void hbm_copy_serve(struct hbm *h)
{
    while (h->copies.waiting.head != NULL && has_job(h))
        route(h, hbm_copy_pop(&h->copies.waiting));
}

static void route_all(struct hbm *h, struct hbm_queue *q)
{
    struct hbm_queue all = take_all(q);
    for (struct device_copy *c; (c = hbm_copy_pop(&all)) != NULL;)
        route(h, c);
}

void hbm__copies_place(struct hbm *h, uint32_t place, int err)
{
    struct hbm_queue all = take_all(&h->copies.parked);
    for (struct device_copy *c; (c = hbm_copy_pop(&all)) != NULL;) {
        bool names = false;
        for (uint32_t i = 0; i < c->n && err < 0 && !names; i++)
            names = uses_slot(c, &c->piece[i]) && hbm__slot_place(h, c->piece[i].slot) == place;
        if (names)
            end_later(h, c, err == -EIO ? err : -ENOMEM);
        else
            route(h, c);
    }
}

/* --- submit --- */

static bool pages_ok(const struct device_copy *c, const struct device_piece *p)
{
    if (c->group >= c->pool->ngroups || c->bytes != c->pool->group[c->group].block_bytes)
        return false;
    for (uint32_t i = 0; i < c->pool->group[c->group].pages_per_block; i++)
        if (p->pages[i] >= c->pool->pages_max)
            return false;
    return true;
}

/* Sets what can be said of a piece by itself. Returns how many are to be copied. */
static uint32_t look_at_pieces(const struct hbm *h, struct device_copy *c)
{
    uint32_t good = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        struct device_piece *p = &c->piece[i];
        MUST(p->host != NULL || c->kind == DEVICE_LOAD);
        if (p->status < 0)
            continue;
        p->status = c->kind == DEVICE_FILL || pages_ok(c, p) ? 0 : -EINVAL;
        if (uses_slot(c, p) && !hbm__slot_holds(h, p->slot, c->bytes))
            p->status = -EINVAL;
        good += p->status == 0;
    }
    return good;
}

void hbm__copy_submit(struct device *d, struct device_copy *c)
{
    struct hbm *h = hbm__of(d);
    MUST(c->kind == DEVICE_STORE || c->kind == DEVICE_LOAD || c->kind == DEVICE_FILL);
    MUST((c->kind == DEVICE_FILL) == (c->pool == NULL) && c->bytes > 0);
    if (c->pool != NULL) {
        MUST(c->pool->hbm == h && !c->pool->closed);
        c->pool->refs++;
    }
    h->copies.inflight++;
    h->copies.inflight_bytes += hbm_copy_bytes_of(c);
    if (!h->copies.ticking)
        set_timer(h, HBM_TICK_NS);
    if (look_at_pieces(h, c) == 0)
        end_later(h, c, 0);
    else
        route(h, c);
}

/* --- time passes, the device goes --- */

static void on_timer(struct loop_watch *watch, uint32_t events)
{
    struct hbm *h = watch->ctx;
    uint64_t times;
    (void)events;
    if (read(watch->fd, &times, sizeof(times)) < 0)
        return; /* set anew meanwhile */
    tell_ended(h);
    LIST_FOR_EACH_SAFE (n, next, &h->copies.running) {
        struct hbm_job *j = CONTAINER_OF(n, struct hbm_job, node);
        if (j->called_off || !atomic_load_explicit(&j->copy->cancel, memory_order_relaxed))
            continue;
        j->called_off = true;
        if (j->at.over)
            call_off(j); /* if all of it has begun, it ends well */
        else
            hbm_copy_fail(j, -ECANCELED);
    }
    route_all(h, &h->copies.waiting);
    route_all(h, &h->copies.parked);
    hbm__verify_tick(h);
    if (is_idle(&h->copies) && hbm__verify_is_idle(h))
        set_timer(h, 0);
}

void hbm__copies_lost(struct hbm *h)
{
    route_all(h, &h->copies.waiting);
    route_all(h, &h->copies.parked);
}

/* --- made, and ended --- */

static uint32_t copies_max(const struct hbm_config *config)
{
    return config->copies_max != 0 ? config->copies_max : HBM_COPIES_AUTO;
}

static uint64_t list_bytes(void)
{
    return HBM_FRAGS * sizeof(struct kvc_frag) + (HBM_MARKS + 1) * sizeof(struct gpu_mark);
}

uint64_t hbm__copies_host_bytes(const struct hbm_config *config)
{
    const uint32_t jobs = copies_max(config), parts = jobs + HBM_SPARE_PARTS;
    return parts * list_bytes() + pool_bytes_for(sizeof(struct hbm_job), jobs) +
           pool_bytes_for(sizeof(struct hbm_part), parts);
}

int hbm__copies_create(struct hbm *h)
{
    struct hbm_copies *c = &h->copies;
    c->copies_max = copies_max(&h->config);
    const uint32_t parts = c->copies_max + HBM_SPARE_PARTS;
    int err = pool_create(&c->jobs, "copies of a device", sizeof(struct hbm_job), c->copies_max);
    if (err == 0)
        err = pool_create(&c->parts, "operations of a device", sizeof(struct hbm_part), parts);
    if (err < 0)
        return err;
    c->lists = sys_pages(parts * list_bytes());
    if (c->lists == NULL)
        return -errno;
    c->lists_bytes = parts * list_bytes();
    c->frag = c->lists;
    c->mark = (struct gpu_mark *)(void *)(c->frag + (uint64_t)parts * HBM_FRAGS);
    c->timer = sys_timerfd(TFD_NONBLOCK);
    if (c->timer < 0)
        return -errno;
    c->watch = (struct loop_watch){.fn = on_timer, .ctx = h, .fd = c->timer, .events = EPOLLIN};
    return loop_watch_add(h->loop, &c->watch);
}

static void end_all(struct hbm *h)
{
    route_all(h, &h->copies.waiting);
    route_all(h, &h->copies.parked);
    while (h->copies.ended.head != NULL) /* whoever is told may submit more, which ends too */
        tell_ended(h);
}

void hbm__copies_close(struct hbm *h)
{
    end_all(h);
    for (struct list_node *n = h->copies.running.next; n != &h->copies.running; n = n->next) {
        struct hbm_job *j = CONTAINER_OF(n, struct hbm_job, node);
        if (j->at.over)
            call_off(j);
        else
            hbm_copy_fail(j, -ECANCELED);
    }
}

void hbm__copies_destroy(struct hbm *h)
{
    struct hbm_copies *c = &h->copies;
    MUST(list_empty(&c->running));
    end_all(h);
    if (c->timer >= 0) {
        loop_watch_del(h->loop, &c->watch);
        (void)close(c->timer);
    }
    if (c->lists != NULL)
        (void)munmap(c->lists, c->lists_bytes);
    pool_destroy(&c->jobs);
    pool_destroy(&c->parts);
}
