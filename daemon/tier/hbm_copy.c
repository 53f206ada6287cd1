/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the HBM tier. Each is one gpu_op, and io/gpu.c looks at its fence, its deadline and its
 * cancel flag. Here a copy waits only for the memory of its slots. A copy that ends without
 * touching the device also ends by a gpu_op, so that done() never runs inside submit().
 */
#include "hbm__.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "sys.h"

/* --- the timer: for deadlines and cancels, which no operation's end reports --- */

static void set_timer(struct hbm *h, uint64_t first_ns)
{
    const struct itimerspec at = {
        .it_value = {.tv_nsec = (long)first_ns},
        .it_interval = {.tv_nsec = first_ns != 0 ? HBM_TICK_NS : 0},
    };
    (void)timerfd_settime(h->copies.timer, 0, &at, NULL); /* fails for bad times only */
    h->copies.ticking = first_ns != 0;
}

void hbm__copies_tick(struct hbm *h, uint64_t first_ns)
{
    if (!h->copies.ticking || first_ns < HBM_TICK_NS)
        set_timer(h, first_ns);
}

bool hbm__copies_run(const struct hbm *h)
{
    return h->copies.begun > gpu_waiting(h->gpu);
}

/* --- beginning and ending --- */

static struct device_copy *hbm_copy_of(struct hbm_copy *p)
{
    return (struct device_copy *)(void *)((uint8_t *)p - offsetof(struct device_copy, priv));
}

static uint64_t hbm_copy_bytes_of(const struct device_copy *c)
{
    return (uint64_t)c->n * c->bytes;
}

/* Whether the piece is copied from or to a slot. */
static bool uses_slot(const struct device_copy *c, const struct device_piece *p)
{
    return p->status == 0 &&
           (c->kind == DEVICE_FILL || (c->kind == DEVICE_LOAD && p->host == NULL));
}

static void hbm_copy_each_slot(struct hbm *h, const struct device_copy *c,
                               void (*fn)(struct hbm *h, struct tier_loc loc))
{
    for (uint32_t i = 0; i < c->n; i++)
        if (uses_slot(c, &c->piece[i]))
            fn(h, c->piece[i].slot);
}

/* The status for a copy. -EINVAL of a gpu_op is a defect of the daemon (a fragment outside its
 * memory), and does not say what was touched. In a copy it would blame the worker's page numbers:
 * so -EIO. */
static int status_of(int err)
{
    return err == 0 || err == -ETIMEDOUT || err == -ECANCELED ? err : -EIO;
}

/* The copy has ended: nothing touches its memory any more. */
static void on_ended(struct gpu_op *op)
{
    struct device_copy *c = op->ctx;
    const struct hbm_copy *p = hbm__copy(c);
    struct hbm *h = p->hbm;
    if (p->begun) {
        h->copies.begun--;
        c->status = status_of(op->status);
        hbm_copy_each_slot(h, c, hbm__slot_release);
    }
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

static void hbm_copy_end(struct hbm *h, struct device_copy *c, int status)
{
    struct hbm_copy *p = hbm__copy(c);
    c->status = status;
    p->op = (struct gpu_op){.kind = GPU_NOTHING, .done = on_ended, .ctx = c};
    gpu_submit(h->gpu, &p->op);
}

static void hbm_copy_begin(struct hbm *h, struct device_copy *c)
{
    struct hbm_copy *p = hbm__copy(c);
    p->begun = true;
    h->copies.begun++;
    hbm_copy_each_slot(h, c, hbm__slot_hold);
    hbm__list_begin(c);
    p->op = (struct gpu_op){.kind = GPU_COPY,
                            .next_piece = hbm__next_piece,
                            .ready = c->ready,
                            .after = c->after,
                            .deadline_ns = c->deadline_ns,
                            .cancel = &c->cancel,
                            .revoke.word = c->revoked,
                            .done = on_ended,
                            .ctx = c};
    for (uint32_t i = 0; i < c->n; i++)
        p->op.bytes += c->piece[i].status == 0 ? c->bytes : 0;
    gpu_submit(h->gpu, &p->op);
}

/* --- which way a copy goes --- */

/* Finds the addresses of the copy's slots: 0, -EAGAIN (memory is not there yet), -ENOMEM, -EIO. */
static int find_slots(struct hbm *h, struct device_copy *c)
{
    int all = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        if (!uses_slot(c, &c->piece[i]))
            continue;
        const int err = hbm__slot_at(h, c->piece[i].slot, &c->piece[i].slot_addr);
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

/* 0: the copy can begin; -EAGAIN: not yet; else the status with which it ends. */
static int hbm_copy_judge(struct hbm *h, struct device_copy *c)
{
    if (h->closing || atomic_load_explicit(&c->cancel, memory_order_relaxed) || is_revoked(c))
        return -ECANCELED;
    if (!hbm__is_up(h) || (c->pool != NULL && c->pool->generation != h->generation))
        return -EIO;
    if (c->deadline_ns != 0 && clock_now_ns() >= c->deadline_ns)
        return -ETIMEDOUT;
    return find_slots(h, c);
}

static void route(struct hbm *h, struct device_copy *c)
{
    const int err = hbm_copy_judge(h, c);
    if (err == -EAGAIN) {
        list_push_back(&h->copies.parked, &hbm__copy(c)->node);
        hbm__copies_tick(h, HBM_TICK_NS);
    } else if (err < 0) {
        hbm_copy_end(h, c, err);
    } else {
        hbm_copy_begin(h, c);
    }
}

static bool names_chunk(const struct hbm *h, const struct device_copy *c, uint32_t chunk)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (uses_slot(c, &c->piece[i]) && hbm__slot_chunk(h, c->piece[i].slot) == chunk)
            return true;
    return false;
}

void hbm__copies_chunk(struct hbm *h, uint32_t chunk, int err)
{
    struct list_node all;
    list_init(&all);
    for (struct list_node *n; (n = list_first(&h->copies.parked)) != NULL;) {
        list_remove(n);
        list_push_back(&all, n);
    }
    for (struct list_node *n; (n = list_first(&all)) != NULL;) {
        struct device_copy *c = hbm_copy_of(CONTAINER_OF(n, struct hbm_copy, node));
        list_remove(n);
        if (err < 0 && names_chunk(h, c, chunk))
            hbm_copy_end(h, c, err == -EIO ? err : -ENOMEM);
        else
            route(h, c);
    }
}

void hbm__copies_look(struct hbm *h)
{
    hbm__copies_chunk(h, 0, 0);
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

/* Checks each piece and sets its status. Returns how many will be copied. */
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
    struct hbm_copy *p = hbm__copy(c);
    MUST(c->kind == DEVICE_STORE || c->kind == DEVICE_LOAD || c->kind == DEVICE_FILL);
    MUST((c->kind == DEVICE_FILL) == (c->pool == NULL) && c->bytes > 0);
    if (c->pool != NULL) {
        MUST(c->pool->hbm == h && !c->pool->closed);
        c->pool->refs++;
    }
    p->hbm = h;
    p->begun = false;
    list_init(&p->node);
    h->copies.inflight++;
    h->copies.inflight_bytes += hbm_copy_bytes_of(c);
    if (look_at_pieces(h, c) == 0)
        hbm_copy_end(h, c, 0);
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
        return; /* the timer was set anew meanwhile */
    hbm__copies_look(h);
    hbm__verify_tick(h);
    if (list_empty(&h->copies.parked) && hbm__verify_is_idle(h))
        set_timer(h, 0);
}

/* --- made, and ended --- */

int hbm__copies_create(struct hbm *h)
{
    struct hbm_copies *c = &h->copies;
    c->timer = sys_timerfd(TFD_NONBLOCK);
    if (c->timer < 0)
        return -errno;
    c->watch = (struct loop_watch){.fn = on_timer, .ctx = h, .fd = c->timer, .events = EPOLLIN};
    return loop_watch_add(h->loop, &c->watch);
}

void hbm__copies_destroy(struct hbm *h)
{
    struct hbm_copies *c = &h->copies;
    MUST(c->inflight == 0);
    if (c->timer < 0)
        return;
    loop_watch_del(h->loop, &c->watch);
    (void)close(c->timer);
}
