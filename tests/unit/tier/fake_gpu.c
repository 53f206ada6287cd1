/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_gpu.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "emu_mem.h"
#include "gpu__.h"
#include "log.h"

#define PINS_MAX 64u

struct fake_mem {
    struct list_node node;
    struct device_range range;
    uint64_t bytes;
    bool imported, is_void;
};

/* What has been made of a copy whose fragments are made as they are needed. */
struct fake_piece {
    struct gpu_piece p;
    struct kvc_frag frag[FAKE_GPU_PIECE_FRAGS];
};

/* Copies wait in gpu_thread.copies, all else in gpu_thread.allocs. */
struct gpu_dev {
    struct list_node mems;
    uint32_t waiting[GPU_NOTHING + 1], seen[GPU_NOTHING + 1];
    uint32_t fail_n[GPU_NOTHING + 1];
    int fail_err[GPU_NOTHING + 1];
    uint64_t bytes, peak_bytes; /* allocated */
    uint32_t last_frags;
    uint32_t ended;             /* operations */
    bool closing;               /* gpu_close() has begun */
    const struct fake_mem *hit; /* what was found last */
    const void *pinned[PINS_MAX];
};

static struct gpu_dev *dev_of(struct gpu *g)
{
    struct gpu_dev *d = g->thread.dev;
    if (d == NULL) {
        d = calloc(1, sizeof(*d));
        ck_assert_ptr_nonnull(d);
        list_init(&d->mems);
        g->thread.dev = d;
    }
    return d;
}

/* The test is the device's thread. */
void *gpu__main(void *arg)
{
    (void)arg;
    return NULL;
}

/* --- operations --- */

static struct fake_piece *piece_of(const struct gpu_op *op)
{
    return op->next_piece != NULL && op->frag != NULL
               ? CONTAINER_OF((struct kvc_frag(*)[FAKE_GPU_PIECE_FRAGS])(uintptr_t)op->frag,
                              struct fake_piece, frag)
               : NULL;
}

/* Fragments that are there to be copied, from op->at on. */
static uint32_t frags_there(const struct gpu_op *op)
{
    const struct fake_piece *made = piece_of(op);
    return made != NULL ? made->p.n : op->next_piece != NULL ? 0 : op->nfrags;
}

static void accept_op(struct gpu *g, struct gpu_op *op)
{
    struct gpu_dev *d = dev_of(g);
    d->waiting[op->kind]++;
    d->seen[op->kind]++;
    if (op->next_piece != NULL)
        op->frag = NULL;
    else
        ck_assert(op->kind != GPU_COPY || (op->nfrags > 0 && op->nmarks == 0));
    gpu__copies_push(op->kind == GPU_COPY ? &g->thread.copies : &g->thread.allocs, op);
}

/* What has been submitted by now. */
static struct gpu_dev *take_orders(struct gpu *g)
{
    for (struct inbox_item *item = inbox_take(&g->orders); item != NULL;) {
        struct inbox_item *next = inbox_next(item);
        accept_op(g, CONTAINER_OF(item, struct gpu_op, item));
        item = next;
    }
    return dev_of(g);
}

static void end(struct gpu *g, struct gpu_op *op, int status)
{
    struct gpu_dev *d = dev_of(g);
    d->last_frags = op->kind == GPU_COPY ? op->nfrags : d->last_frags;
    free(piece_of(op));
    d->waiting[op->kind]--;
    d->ended++;
    op->status = status;
    inbox_post(&g->results, &op->item);
}

/* The control thread hears of it now, not in its next turn. */
static void deliver(struct gpu *g)
{
    gpu__deliver(g);
}

/* The device has not gone since. */
static bool is_of_now(const struct gpu *g, const struct gpu_op *op)
{
    return gpu_state(g) == GPU_UP && op->generation == gpu_generation(g);
}

/* --- memory --- */

static bool holds(const struct fake_mem *m, uint64_t at, uint64_t bytes)
{
    const uint64_t begin = m->range.at;
    return !m->is_void && at >= begin && at - begin < m->bytes && bytes <= m->bytes - (at - begin);
}

/* Whether these bytes are in one piece of memory that is there. */
static bool is_memory(struct gpu_dev *d, uint64_t at, uint64_t bytes)
{
    if (d->hit != NULL && holds(d->hit, at, bytes))
        return true;
    for (struct list_node *n = d->mems.next; n != &d->mems; n = n->next) {
        d->hit = CONTAINER_OF(n, struct fake_mem, node);
        if (holds(d->hit, at, bytes))
            return true;
    }
    return false;
}

static void add(struct gpu *g, struct gpu_mem *mem, const struct device_range *range,
                uint64_t bytes)
{
    struct gpu_dev *d = dev_of(g);
    struct fake_mem *m = calloc(1, sizeof(*m));
    ck_assert_ptr_nonnull(m);
    *m = (struct fake_mem){.range = *range, .bytes = bytes, .imported = mem->imported};
    mem->addr = range->at;
    mem->bytes = bytes;
    mem->generation = gpu_generation(g);
    mem->priv = m;
    list_push_back(&d->mems, &m->node);
    d->bytes += m->imported ? 0 : bytes;
    d->peak_bytes = MAX(d->peak_bytes, d->bytes);
}

static int alloc(struct gpu *g, struct gpu_op *op)
{
    struct device_range range;
    ck_assert_int_eq(emu_mem_make(op->bytes, EMU_FOR_WRITING, &range), 0);
    emu_mem_export(&range, op->bytes, &op->mem->handle);
    range.has_file = false; /* gpu.c closes it */
    add(g, op->mem, &range, op->bytes);
    memset((void *)(uintptr_t)op->mem->addr, FAKE_GPU_FRESH, 4096);
    return 0;
}

static int import(struct gpu *g, struct gpu_op *op)
{
    struct device_range range;
    if (op->handle.kind == DEVICE_HANDLE_IPC)
        return -EOPNOTSUPP;
    ck_assert_int_ge(fcntl(op->handle.fd, F_GETFD), 0); /* it is open still */
    const int err = emu_mem_import(&op->handle, false, &range);
    if (err < 0)
        return err;
    op->mem->imported = true;
    add(g, op->mem, &range, op->handle.bytes);
    return 0;
}

/* A copy in flight names no slot in [begin, end): its fragments may not be made yet. */
static void must_not_name(const struct gpu_op *op, uint64_t begin, uint64_t end_at)
{
    const struct device_copy *c = op->next_piece != NULL ? op->ctx : NULL;
    for (uint32_t i = 0; c != NULL && i < c->n; i++) {
        const struct device_piece *p = &c->piece[i];
        const bool in_slot = c->kind == DEVICE_FILL || (c->kind == DEVICE_LOAD && p->host == NULL);
        if (in_slot && p->status == 0)
            ck_assert(p->slot_addr >= end_at || p->slot_addr + c->bytes <= begin);
    }
}

static void become_void(struct gpu_dev *d, struct fake_mem *m)
{
    if (!m->is_void && !m->imported)
        d->bytes -= m->bytes;
    m->is_void = true;
}

static void drop(struct gpu_dev *d, struct fake_mem *m)
{
    become_void(d, m);
    emu_mem_free(&m->range);
    list_remove(&m->node);
    d->hit = NULL;
    free(m);
}

static void release(struct gpu *g, struct fake_mem *m)
{
    const uint64_t begin = m->range.at, end_at = begin + m->bytes;
    for (const struct gpu_op *op = g->thread.copies.head; op != NULL; op = op->next) {
        must_not_name(op, begin, end_at);
        for (uint32_t i = op->at; i < frags_there(op); i++) {
            ck_assert(op->frag[i].to >= end_at || op->frag[i].to + op->frag[i].bytes <= begin);
            ck_assert(op->frag[i].from >= end_at || op->frag[i].from + op->frag[i].bytes <= begin);
        }
    }
    drop(dev_of(g), m);
}

static void pin(struct gpu_dev *d, const struct gpu_op *op, bool on)
{
    for (uint32_t i = 0; i < PINS_MAX; i++)
        if (d->pinned[i] == (on ? NULL : op->host)) {
            d->pinned[i] = on ? op->host : NULL;
            return;
        }
    ck_assert(!on);
}

static int run_memory(struct gpu *g, struct gpu_op *op)
{
    struct gpu_dev *d = dev_of(g);
    if (op->kind == GPU_FREE) {
        ck_assert_ptr_nonnull(op->mem->priv);
        release(g, op->mem->priv);
        op->mem->priv = NULL;
        return 0;
    }
    if (op->kind == GPU_UNPIN) {
        pin(d, op, false);
        return 0;
    }
    if (d->closing)
        return -ECANCELED;
    if (!is_of_now(g, op))
        return -EIO;
    if (d->fail_n[op->kind] > 0) {
        d->fail_n[op->kind]--;
        return d->fail_err[op->kind];
    }
    if (op->kind == GPU_PIN) {
        pin(d, op, true);
        return 0;
    }
    return op->kind == GPU_ALLOC ? alloc(g, op) : import(g, op);
}

uint32_t fake_gpu_memory(struct gpu *g)
{
    struct gpu_copies *ops = &g->thread.allocs;
    uint32_t n = 0;
    for (take_orders(g); ops->head != NULL; n++) {
        struct gpu_op *op = gpu__copies_take(ops, &ops->head);
        end(g, op, run_memory(g, op));
    }
    deliver(g); /* what the ends of these submit has to wait */
    return n;
}

/* --- copies --- */

static void must_be_memory(struct gpu_dev *d, enum gpu_direction direction,
                           const struct kvc_frag *f, bool first)
{
    ck_assert_uint_gt(f->bytes, 0);
    ck_assert(direction == GPU_FROM_DEVICE || is_memory(d, f->to, f->bytes));
    ck_assert(direction == GPU_TO_DEVICE || is_memory(d, f->from, f->bytes));
    if (!first)
        return;
    /* Host memory is no memory of the device's. */
    ck_assert(direction != GPU_FROM_DEVICE || !is_memory(d, f->to, 1));
    ck_assert(direction != GPU_TO_DEVICE || !is_memory(d, f->from, 1));
}

static bool is_cancelled(const struct gpu *g, const struct gpu_op *op)
{
    return g->thread.dev->closing ||
           (op->cancel != NULL && atomic_load_explicit(op->cancel, memory_order_relaxed));
}

/* 1: it may run; 0: not yet; else how it ends. */
static int may_run(const struct gpu *g, const struct gpu_op *op)
{
    if (!is_of_now(g, op))
        return -EIO;
    if (op->begun_ns != 0)
        return 1;
    if (is_cancelled(g, op))
        return -ECANCELED;
    if (op->deadline_ns != 0 && clock_now_ns() >= op->deadline_ns)
        return -ETIMEDOUT;
    return !device_fence_is_pending(&op->after);
}

static void make_piece(struct gpu_op *op)
{
    struct fake_piece *made = piece_of(op);
    if (made == NULL) {
        made = calloc(1, sizeof(*made));
        ck_assert_ptr_nonnull(made);
        op->frag = made->frag;
    }
    op->next_piece(op, made->frag, FAKE_GPU_PIECE_FRAGS, FAKE_GPU_PIECE_BYTES, &made->p);
    ck_assert(made->p.n > 0 && made->p.n <= FAKE_GPU_PIECE_FRAGS &&
              made->p.bytes <= FAKE_GPU_PIECE_BYTES);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < made->p.n; i++)
        bytes += made->frag[i].bytes;
    ck_assert_uint_eq(bytes, made->p.bytes);
    op->given_bytes += bytes;
    ck_assert_uint_le(op->given_bytes, op->bytes);
    ck_assert(made->p.last == (op->given_bytes == op->bytes));
    op->nfrags += made->p.n;
    op->direction = made->p.direction;
    op->at = 0;
}

/* The fragments that were there have been copied: 1: it is over; 0: there are more; -ECANCELED. */
static int go_on(const struct gpu *g, struct gpu_op *op)
{
    const struct fake_piece *made = piece_of(op);
    if (op->next_piece == NULL)
        return 1;
    if (made != NULL && made->p.ready != 0)
        atomic_store_explicit(op->ready, made->p.ready, memory_order_release);
    if (made != NULL && made->p.last)
        return 1;
    if (is_cancelled(g, op))
        return -ECANCELED;
    make_piece(op);
    return 0;
}

/* Up to `frags` of one copy: 0: it is not over; 1: it is; -ECANCELED. */
static int copy_some(struct gpu *g, struct gpu_op *op, uint32_t *frags)
{
    op->begun_ns = 1;
    for (;;) {
        if (op->at == frags_there(op)) {
            const int over = go_on(g, op);
            if (over != 0)
                return over;
        }
        for (; op->at < frags_there(op) && *frags > 0; --*frags) {
            const struct kvc_frag *f = &op->frag[op->at];
            must_be_memory(dev_of(g), op->direction, f, op->at == 0);
            memcpy((void *)(uintptr_t)f->to, (const void *)(uintptr_t)f->from, f->bytes);
            op->at++;
        }
        if (op->at < frags_there(op))
            return 0;
    }
}

uint32_t fake_gpu_copy(struct gpu *g, uint32_t frags)
{
    struct gpu_copies *ops = &g->thread.copies;
    uint32_t left = frags, waiting = 0;
    take_orders(g);
    for (struct gpu_op **link = &ops->head; *link != NULL;) {
        struct gpu_op *op = *link;
        int may = may_run(g, op);
        waiting += may == 0;
        if (may > 0)
            may = left > 0 ? copy_some(g, op, &left) : 0;
        if (may == 0)
            link = &op->next;
        else
            end(g, gpu__copies_take(ops, link), MIN(may, 0));
    }
    atomic_store_explicit(&g->waiting, waiting, memory_order_relaxed);
    deliver(g);
    return frags - left;
}

void fake_gpu_run(struct gpu *g)
{
    for (bool moved = true; moved;) {
        const uint32_t before = dev_of(g)->ended;
        const uint32_t frags = fake_gpu_copy(g, UINT32_MAX);
        const uint32_t memory = fake_gpu_memory(g);
        moved = frags > 0 || memory > 0 || dev_of(g)->ended != before || inbox_pending(&g->orders);
    }
}

/* --- up, out, closed --- */

static void tell(struct gpu *g, struct gpu_told *told)
{
    log_set_level(LOG_ERROR_); /* the test knows */
    inbox_post(&g->results, &told->item);
    deliver(g);
}

void fake_gpu_up(struct gpu *g)
{
    ck_assert_int_ne(gpu_state(g), GPU_UP);
    g->up.generation = gpu_generation(g) + 1;
    g->up.info = (struct gpu_dev_info){
        .name = "fake", .exports = DEVICE_HANDLE_EMU, .has_kernel = true, .free_bytes = UINT64_MAX};
    memset(g->up.info.uuid, 0x42, sizeof(g->up.info.uuid));
    tell(g, &g->up);
}

void fake_gpu_lose(struct gpu *g)
{
    struct gpu_dev *d = dev_of(g);
    ck_assert_int_eq(gpu_state(g), GPU_UP);
    memset(d->pinned, 0, sizeof(d->pinned));
    for (struct list_node *n = d->mems.next; n != &d->mems; n = n->next) {
        struct fake_mem *m = CONTAINER_OF(n, struct fake_mem, node);
        if (!m->is_void && !m->imported)
            memset((void *)(uintptr_t)m->range.at, FAKE_GPU_VOID, m->bytes);
        become_void(d, m);
    }
    (void)snprintf(g->out.why, sizeof(g->out.why), "it was taken out by the test");
    tell(g, &g->out);
}

/* The thread's last turn. */
void __real_gpu_close(struct gpu **gpu);
void __wrap_gpu_close(struct gpu **gpu);
void __wrap_gpu_close(struct gpu **gpu)
{
    struct gpu_dev *d = NULL;
    if (gpu != NULL && *gpu != NULL) {
        d = dev_of(*gpu);
        gpu__begin_close(*gpu);
        d->closing = true;
        fake_gpu_run(*gpu);
        ck_assert_ptr_null((*gpu)->thread.copies.head);
    }
    __real_gpu_close(gpu);
    if (d == NULL)
        return;
    LIST_FOR_EACH_SAFE (n, next, &d->mems)
        drop(d, CONTAINER_OF(n, struct fake_mem, node));
    free(d);
}

/* --- what a test asks --- */

void fake_gpu_fail(struct gpu *g, enum gpu_op_kind kind, uint32_t n, int err)
{
    ck_assert(kind == GPU_ALLOC || kind == GPU_IMPORT || kind == GPU_PIN);
    dev_of(g)->fail_n[kind] = n;
    dev_of(g)->fail_err[kind] = err;
}

uint64_t fake_gpu_peak_bytes(struct gpu *g)
{
    return dev_of(g)->peak_bytes;
}

uint32_t fake_gpu_mems(struct gpu *g)
{
    const struct gpu_dev *d = dev_of(g);
    uint32_t n = 0;
    for (struct list_node *node = d->mems.next; node != &d->mems; node = node->next)
        n++;
    return n;
}

uint32_t fake_gpu_waiting(struct gpu *g, enum gpu_op_kind kind)
{
    return take_orders(g)->waiting[kind];
}

uint32_t fake_gpu_seen(struct gpu *g, enum gpu_op_kind kind)
{
    return take_orders(g)->seen[kind];
}

uint32_t fake_gpu_last_frags(struct gpu *g)
{
    return dev_of(g)->last_frags;
}

bool fake_gpu_is_pinned(struct gpu *g, const void *host)
{
    for (uint32_t i = 0; i < PINS_MAX; i++)
        if (dev_of(g)->pinned[i] == host)
            return true;
    return false;
}
