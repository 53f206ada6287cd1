/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_gpu.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "emu_mem.h"
#include "list.h"
#include "sys.h"

#define PINS_MAX 64u
/* begun_ns of what was in flight when the device went. */
#define DOOMED UINT64_MAX

struct fake_mem {
    struct list_node node;
    struct gpu_mem *mem;
    struct device_range range;
    uint64_t bytes;
    bool is_void;
};

/* What has been made of a copy whose fragments are made as they are needed. */
struct fake_piece {
    struct gpu_piece p;
    struct kvc_frag frag[FAKE_GPU_PIECE_FRAGS];
};

struct fake_ops {
    struct gpu_op *head, *tail;
};

struct gpu {
    struct gpu_config config;
    enum gpu_state state;
    uint32_t generation;
    bool closing;
    struct list_node mems;
    struct fake_ops memory, copies;
    uint32_t waiting[GPU_NOTHING + 1], seen[GPU_NOTHING + 1];
    uint32_t fail_n[GPU_NOTHING + 1];
    int fail_err[GPU_NOTHING + 1];
    uint64_t peak_bytes;
    uint32_t last_frags;
    const struct fake_mem *hit; /* what was found last */
    const void *pinned[PINS_MAX];
    struct gpu_metrics metrics;
    struct gpu_rates rates;
    uint8_t uuid[GPU_UUID_BYTES];
};

/* --- lists of operations --- */

static void push(struct fake_ops *ops, struct gpu_op *op)
{
    op->next = NULL;
    if (ops->tail != NULL)
        ops->tail->next = op;
    else
        ops->head = op;
    ops->tail = op;
}

static void take(struct fake_ops *ops, struct gpu_op *op)
{
    struct gpu_op *before = NULL;
    for (struct gpu_op *o = ops->head; o != op; o = o->next)
        before = o;
    if (before != NULL)
        before->next = op->next;
    else
        ops->head = op->next;
    if (ops->tail == op)
        ops->tail = before;
}

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

static void end(struct gpu *g, struct gpu_op *op, int status)
{
    take(op->kind == GPU_COPY ? &g->copies : &g->memory, op);
    g->last_frags = op->kind == GPU_COPY ? op->nfrags : g->last_frags;
    free(piece_of(op));
    g->waiting[op->kind]--;
    op->status = status;
    if (status < 0 && status != -ECANCELED && status != -ETIMEDOUT)
        g->metrics.failures++;
    op->done(op);
}

/* --- memory --- */

static bool holds(const struct fake_mem *m, uint64_t at, uint64_t bytes)
{
    const uint64_t begin = m->range.at;
    return !m->is_void && at >= begin && at - begin < m->bytes && bytes <= m->bytes - (at - begin);
}

/* Whether these bytes are in one piece of memory that is there. */
static bool is_memory(struct gpu *g, uint64_t at, uint64_t bytes)
{
    if (g->hit != NULL && holds(g->hit, at, bytes))
        return true;
    for (struct list_node *n = g->mems.next; n != &g->mems; n = n->next) {
        g->hit = CONTAINER_OF(n, struct fake_mem, node);
        if (holds(g->hit, at, bytes))
            return true;
    }
    return false;
}

static void gauge(struct gpu *g, const struct fake_mem *m, bool more)
{
    uint64_t *bytes = m->mem->imported ? &g->metrics.imported_bytes : &g->metrics.memory_bytes;
    *bytes = more ? *bytes + m->bytes : *bytes - m->bytes;
    g->peak_bytes = MAX(g->peak_bytes, g->metrics.memory_bytes);
}

static void add(struct gpu *g, struct gpu_mem *mem, const struct device_range *range,
                uint64_t bytes)
{
    struct fake_mem *m = calloc(1, sizeof(*m));
    ck_assert_ptr_nonnull(m);
    m->range = *range;
    m->mem = mem;
    m->bytes = bytes;
    mem->addr = range->at;
    mem->bytes = bytes;
    mem->generation = g->generation;
    mem->priv = m;
    list_push_back(&g->mems, &m->node);
    gauge(g, m, true);
}

static int alloc(struct gpu *g, struct gpu_op *op)
{
    struct device_range range;
    ck_assert_int_eq(emu_mem_make(op->bytes, EMU_FOR_WRITING, &range), 0);
    emu_mem_export(&range, op->bytes, &op->mem->handle);
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
    const struct device_copy *c = op->next_piece != NULL ? op->owner : NULL;
    for (uint32_t i = 0; c != NULL && i < c->n; i++) {
        const struct device_piece *p = &c->piece[i];
        const bool in_slot = c->kind == DEVICE_FILL || (c->kind == DEVICE_LOAD && p->host == NULL);
        if (in_slot && p->status == 0)
            ck_assert(p->slot_addr >= end_at || p->slot_addr + c->bytes <= begin);
    }
}

static void release(struct gpu *g, struct fake_mem *m)
{
    for (const struct gpu_op *op = g->copies.head; op != NULL; op = op->next)
        must_not_name(op, m->range.at, m->range.at + m->bytes);
    for (const struct gpu_op *op = g->copies.head; op != NULL; op = op->next)
        for (uint32_t i = op->at; i < frags_there(op); i++) {
            const uint64_t begin = m->range.at, end_at = begin + m->bytes;
            ck_assert(op->frag[i].to >= end_at || op->frag[i].to + op->frag[i].bytes <= begin);
            ck_assert(op->frag[i].from >= end_at || op->frag[i].from + op->frag[i].bytes <= begin);
        }
    if (!m->is_void)
        gauge(g, m, false);
    emu_mem_free(&m->range);
    list_remove(&m->node);
    g->hit = NULL;
    *m->mem = (struct gpu_mem){0};
    free(m);
}

static void pin(struct gpu *g, const struct gpu_op *op, bool on)
{
    for (uint32_t i = 0; i < PINS_MAX; i++)
        if (g->pinned[i] == (on ? NULL : op->host)) {
            g->pinned[i] = on ? op->host : NULL;
            return;
        }
    ck_assert(!on);
}

static int run_memory(struct gpu *g, struct gpu_op *op)
{
    if (op->kind == GPU_NOTHING)
        return 0;
    if (op->kind == GPU_FREE) {
        ck_assert_ptr_nonnull(op->mem->priv);
        release(g, op->mem->priv);
        return 0;
    }
    if (op->kind == GPU_UNPIN) {
        pin(g, op, false);
        return 0;
    }
    if (g->closing)
        return -ECANCELED;
    if (g->state != GPU_UP || op->begun_ns == DOOMED)
        return -EIO;
    if (g->fail_n[op->kind] > 0) {
        g->fail_n[op->kind]--;
        return g->fail_err[op->kind];
    }
    if (op->kind == GPU_PIN) {
        pin(g, op, true);
        return 0;
    }
    return op->kind == GPU_ALLOC ? alloc(g, op) : import(g, op);
}

uint32_t fake_gpu_memory(struct gpu *g)
{
    uint32_t n = 0;
    /* What the ends of these submit has to wait. */
    for (uint32_t left = g->waiting[GPU_ALLOC] + g->waiting[GPU_IMPORT] + g->waiting[GPU_FREE] +
                         g->waiting[GPU_PIN] + g->waiting[GPU_UNPIN] + g->waiting[GPU_NOTHING];
         left > 0; left--) {
        struct gpu_op *op = g->memory.head;
        end(g, op, run_memory(g, op));
        n++;
    }
    return n;
}

/* --- copies --- */

static void must_be_memory(struct gpu *g, enum gpu_direction direction, const struct kvc_frag *f,
                           bool first)
{
    ck_assert_uint_gt(f->bytes, 0);
    ck_assert(direction == GPU_FROM_DEVICE || is_memory(g, f->to, f->bytes));
    ck_assert(direction == GPU_TO_DEVICE || is_memory(g, f->from, f->bytes));
    if (!first)
        return;
    /* Host memory is no memory of the device's. */
    ck_assert(direction != GPU_FROM_DEVICE || !is_memory(g, f->to, 1));
    ck_assert(direction != GPU_TO_DEVICE || !is_memory(g, f->from, 1));
}

static bool is_cancelled(const struct gpu *g, const struct gpu_op *op)
{
    return g->closing ||
           (op->cancel != NULL && atomic_load_explicit(op->cancel, memory_order_relaxed));
}

/* 1: it may run; 0: not yet; else how it ends. */
static int may_run(const struct gpu *g, const struct gpu_op *op)
{
    if (g->state != GPU_UP || op->begun_ns == DOOMED)
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
            must_be_memory(g, op->direction, f, op->at == 0);
            memcpy((void *)(uintptr_t)f->to, (const void *)(uintptr_t)f->from, f->bytes);
            op->at++;
        }
        if (op->at < frags_there(op))
            return 0;
    }
}

static void count(struct gpu *g, const struct gpu_op *op)
{
    g->metrics.copies++;
    g->metrics.copy_bytes += op->bytes;
    g->metrics.copy_frags += op->nfrags;
}

uint32_t fake_gpu_copy(struct gpu *g, uint32_t frags)
{
    uint32_t left = frags;
    for (struct gpu_op *op = g->copies.head, *next; op != NULL; op = next) {
        next = op->next;
        int may = may_run(g, op);
        if (may > 0)
            may = left > 0 ? copy_some(g, op, &left) : 0;
        if (may == 0)
            continue;
        if (may > 0)
            count(g, op);
        end(g, op, MIN(may, 0));
        next = g->copies.head; /* whatever became of the list */
        if (left == 0)
            break;
    }
    return frags - left;
}

void fake_gpu_run(struct gpu *g)
{
    for (bool moved = true; moved;) {
        const uint32_t before = g->waiting[GPU_COPY];
        const uint32_t frags = fake_gpu_copy(g, UINT32_MAX);
        const uint32_t memory = fake_gpu_memory(g);
        moved = frags > 0 || memory > 0 || g->waiting[GPU_COPY] != before;
    }
}

/* --- up and out --- */

static void tell(struct gpu *g)
{
    if (g->config.changed != NULL && !g->closing)
        g->config.changed(g->config.ctx, g);
}

void fake_gpu_up(struct gpu *g)
{
    ck_assert_int_ne(g->state, GPU_UP);
    g->state = GPU_UP;
    g->generation++;
    memset(g->uuid, 0x42, sizeof(g->uuid));
    tell(g);
}

void fake_gpu_lose(struct gpu *g)
{
    ck_assert_int_eq(g->state, GPU_UP);
    g->state = GPU_OUT;
    g->metrics.outs++;
    for (struct gpu_op *op = g->memory.head; op != NULL; op = op->next)
        op->begun_ns = DOOMED;
    for (struct gpu_op *op = g->copies.head; op != NULL; op = op->next)
        op->begun_ns = DOOMED;
    memset(g->pinned, 0, sizeof(g->pinned));
    for (struct list_node *n = g->mems.next; n != &g->mems; n = n->next) {
        struct fake_mem *m = CONTAINER_OF(n, struct fake_mem, node);
        if (m->is_void)
            continue;
        gauge(g, m, false);
        if (!m->mem->imported)
            memset((void *)(uintptr_t)m->range.at, FAKE_GPU_VOID, m->bytes);
        m->is_void = true;
        m->mem->addr = 0;
    }
    tell(g);
}

/* --- gpu.h --- */

const char *gpu_name_problem(const char *device)
{
    return strncmp(device, "emu:", 4) == 0 ? NULL : "only emu:<number> can be here";
}

const char *gpu_cuda_text(void)
{
    return "no CUDA";
}

int gpu_open(const struct gpu_config *config, struct loop *loop, struct gpu **ret_gpu)
{
    ck_assert_ptr_nonnull(loop);
    struct gpu *g = sys_calloc(1, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    g->config = *config;
    g->state = GPU_STARTING;
    list_init(&g->mems);
    *ret_gpu = g;
    return 0;
}

void gpu_close(struct gpu **gpu)
{
    if (gpu == NULL || *gpu == NULL)
        return;
    struct gpu *g = *gpu;
    g->closing = true;
    fake_gpu_run(g);
    ck_assert_ptr_null(g->copies.head);
    LIST_FOR_EACH_SAFE (n, next, &g->mems) {
        release(g, CONTAINER_OF(n, struct fake_mem, node));
    }
    free(g);
    *gpu = NULL;
}

void gpu_submit(struct gpu *g, struct gpu_op *op)
{
    ck_assert_ptr_nonnull(op->done);
    op->status = 0;
    op->at = 0;
    op->begun_ns = 0;
    op->given_bytes = 0;
    g->waiting[op->kind]++;
    g->seen[op->kind]++;
    if (op->kind != GPU_COPY) {
        push(&g->memory, op);
        return;
    }
    if (op->next_piece != NULL) {
        ck_assert_uint_gt(op->bytes, 0);
        op->nfrags = 0;
        op->frag = NULL;
    } else {
        op->bytes = 0;
        ck_assert(op->nfrags > 0 && op->nmarks == 0);
        for (uint32_t i = 0; i < op->nfrags; i++)
            op->bytes += op->frag[i].bytes;
    }
    push(&g->copies, op);
}

uint32_t gpu_waiting(const struct gpu *g)
{
    uint32_t n = 0;
    for (const struct gpu_op *op = g->copies.head; op != NULL; op = op->next)
        n += may_run(g, op) == 0;
    return n;
}

enum gpu_state gpu_state(const struct gpu *g)
{
    return g->state;
}

const char *gpu_why(const struct gpu *g)
{
    return g->state == GPU_OUT ? "it was taken out by the test" : "";
}

uint32_t gpu_generation(const struct gpu *g)
{
    return g->generation;
}

const char *gpu_name(const struct gpu *g)
{
    (void)g;
    return "fake";
}

const uint8_t *gpu_uuid(const struct gpu *g)
{
    return g->uuid;
}

bool gpu_is_emulated(const struct gpu *g)
{
    (void)g;
    return true;
}

enum device_handle_kind gpu_exports(const struct gpu *g)
{
    (void)g;
    return DEVICE_HANDLE_EMU;
}

const struct gpu_rates *gpu_rates(const struct gpu *g)
{
    return &g->rates;
}

enum gpu_path gpu_path_of(const struct gpu *g, enum gpu_direction direction, uint64_t frag_bytes)
{
    (void)g;
    (void)frag_bytes;
    return direction == GPU_FROM_DEVICE ? GPU_PATH_KERNEL : GPU_PATH_ENGINE;
}

const struct gpu_metrics *gpu_metrics(const struct gpu *g)
{
    return &g->metrics;
}

/* --- what a test asks --- */

void fake_gpu_fail(struct gpu *g, enum gpu_op_kind kind, uint32_t n, int err)
{
    ck_assert(kind == GPU_ALLOC || kind == GPU_IMPORT || kind == GPU_PIN);
    g->fail_n[kind] = n;
    g->fail_err[kind] = err;
}

uint64_t fake_gpu_peak_bytes(const struct gpu *g)
{
    return g->peak_bytes;
}

uint32_t fake_gpu_mems(const struct gpu *g)
{
    uint32_t n = 0;
    for (struct list_node *node = g->mems.next; node != &g->mems; node = node->next)
        n++;
    return n;
}

uint32_t fake_gpu_waiting(const struct gpu *g, enum gpu_op_kind kind)
{
    return g->waiting[kind];
}

uint32_t fake_gpu_seen(const struct gpu *g, enum gpu_op_kind kind)
{
    return g->seen[kind];
}

uint32_t fake_gpu_last_frags(const struct gpu *g)
{
    return g->last_frags;
}

bool fake_gpu_is_pinned(const struct gpu *g, const void *host)
{
    for (uint32_t i = 0; i < PINS_MAX; i++)
        if (g->pinned[i] == host)
            return true;
    return false;
}
