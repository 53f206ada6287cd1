/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's thread, `kvc-gpu`; it alone calls the driver. gpu__main() takes operations from its
 * inbox, gives copies to the driver in pieces, and posts their ends back to gpu.c.
 *
 * It sleeps in its inbox while it has nothing to do. No event wakes it when a copy ends or a word
 * comes, so it polls for these: without a pause at first, and then less often.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "gpu__.h"

/* After so many pieces of a copy with `next_piece` other copies have their turn: a worker that
 * loads a few blocks does not wait for one that loads thousands. */
#define TURN_PIECES 4u
/* The thread does not sleep for so long after it did something. */
#define SPIN_NS UINT64_C(20000)
/* A sleep costs up to 25 us of processor time on some machines. So the thread sleeps for this part
 * of the time that earlier batches let it expect for a batch. For a batch that takes longer, or a
 * word, which may take seconds, the sleeps grow with the time that has passed. */
#define EXPECTED(ns)      ((ns) / 4 * 3)
#define SLEEP_SHARE       8u
#define SLEEP_NS_MIN      UINT64_C(20000)
#define SLEEP_NS_MAX      UINT64_C(200000)
#define SLEEP_NS_MAX_LONG UINT64_C(1000000)
#define LONG_NS           UINT64_C(20000000)
/* Batches of fewer bytes do not count for the expected rate. */
#define TELLING_BYTES UINT64_C(65536)
/* While the driver is full, only so often are all waiting copies checked for a cancel or a
 * deadline: checking all costs more than checking the first. */
#define SWEEP_NS UINT64_C(200000)
/* The kernel's default adds 50 us to each sleep. */
#define TIMER_SLACK_NS 1000ul
/* Rates that could not be measured at start are measured when the device was idle for so long. */
#define IDLE_NS UINT64_C(1000000000)
/* The pause before the thread looks again whether the control thread has taken its reports. */
#define UNHEARD_NS UINT64_C(1000000)

/* --- telling the control thread --- */

static void set_waits(struct gpu *g, struct gpu_op *op, bool waits)
{
    if (op->waits == waits)
        return;
    op->waits = waits;
    atomic_fetch_add_explicit(&g->waiting, waits ? 1u : UINT32_MAX, memory_order_relaxed);
}

static void gpu_thread_end(struct gpu *g, struct gpu_op *op, int status)
{
    set_waits(g, op, false);
    op->status = status;
    inbox_post(&g->results, &op->item);
}

static void gpu_thread_tell(struct gpu *g, struct gpu_told *told)
{
    MUST(!atomic_load_explicit(&told->on_its_way, memory_order_acquire));
    told->generation = g->thread.generation;
    told->rates = g->thread.rates;
    atomic_store_explicit(&told->on_its_way, true, memory_order_relaxed);
    inbox_post(&g->results, &told->item);
}

static void gpu_thread_tell_out(struct gpu *g, int err, const char *why)
{
    /* Copied before the driver is closed, whose text it is. */
    (void)snprintf(g->out.why, sizeof g->out.why, "%s", why[0] != '\0' ? why : strerror(-err));
    g->thread.retry_at_ns = clock_now_ns() + g->config.retry_ns;
}

/* Empties the struct of an alloc that fails; the driver frees the memory with the device. */
static void forget_alloc(const struct gpu_op *op)
{
    if (op->mem->handle.fd >= 0 && op->mem->handle.kind != DEVICE_HANDLE_IPC)
        (void)close(op->mem->handle.fd);
    *op->mem = (struct gpu_mem){.handle = {.fd = -1}};
}

/* --- up and out --- */

static void try_open(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    char why[GPU_WHY_BYTES] = "";
    MUST(t->dev == NULL && t->nbatches == 0);
    const bool again = t->retry_at_ns != 0;
    int err = g->drv->open(&g->config, &t->dev, &g->up.info, why);
    g->up.measured = true;
    if (err == 0 && g->config.calibrate) {
        memset(&t->rates, 0, sizeof t->rates);
        err = gpu__calibrate(g->drv, t->dev, &g->up.info, NULL, &t->rates, why);
        g->up.measured = err != -ENOMEM;
        err = err == -ENOMEM ? 0 : err;
        t->measure_at_ns =
            gpu__is_calibrated(&t->rates) ? 0 : clock_now_ns() + g->config.recalibrate_ns;
    }
    if (err < 0) {
        t->dev = NULL;
        gpu_thread_tell_out(g, err, why);
        if (!again)
            gpu_thread_tell(g, &g->out);
        return;
    }
    t->generation++;
    gpu_thread_tell(g, &g->up);
}

static void end_pins(struct gpu *g, int status)
{
    while (g->thread.pins != NULL) {
        struct gpu_op *op = g->thread.pins;
        g->thread.pins = op->next;
        gpu_thread_end(g, op, status);
    }
}

/* Ends all operations with -EIO: first those with the driver, in the order in which they began. */
static void gpu_thread_fail_all(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    for (; t->nbatches > 0; t->nbatches--) {
        const struct gpu_batch *b = &t->batch[t->first];
        if (b->op->kind == GPU_ALLOC)
            forget_alloc(b->op);
        if (b->last)
            gpu_thread_end(g, b->op, -EIO);
        t->first = (t->first + 1) % GPU_DRV_COPIES_MAX;
    }
    t->inflight_bytes = 0;
    while (t->copies.head != NULL)
        gpu_thread_end(g, gpu__copies_take(&t->copies, &t->copies.head), -EIO);
    while (t->allocs.head != NULL)
        gpu_thread_end(g, gpu__copies_take(&t->allocs, &t->allocs.head), -EIO);
    end_pins(g, -EIO);
}

/* The driver has closed the device: reports that, and ends all operations. */
static void is_gone(struct gpu *g)
{
    g->thread.dev = NULL;
    g->thread.npins = 0;
    gpu_thread_tell(g, &g->out);
    gpu_thread_fail_all(g);
}

static void take_out_for(struct gpu *g, int err, const char *why)
{
    gpu_thread_tell_out(g, err, why);
    g->drv->close(g->thread.dev);
    is_gone(g);
}

static void take_out(struct gpu *g, int err)
{
    take_out_for(g, err, g->drv->why(g->thread.dev));
}

/* The control thread has refused the device: closes it, and does not open it again in this run.
 * Only another configuration can help. */
static void gpu_thread_refused(struct gpu *g)
{
    if (g->thread.dev != NULL)
        take_out_for(g, -EEXIST, g->refused);
    g->thread.retry_at_ns = UINT64_MAX;
}

/* Whether the control thread has received the last reports. Then no later operation in the inbox
 * can mean the device as it was before, and both messages may be used again. */
static bool may_open(const struct gpu *g)
{
    return !atomic_load_explicit(&g->up.on_its_way, memory_order_acquire) &&
           !atomic_load_explicit(&g->out.on_its_way, memory_order_acquire);
}

static void reopen(struct gpu *g)
{
    const uint64_t now = clock_now_ns();
    if (now < g->thread.retry_at_ns)
        return;
    if (may_open(g))
        try_open(g);
    else
        g->thread.retry_at_ns = now + MIN(g->config.retry_ns, UNHEARD_NS);
}

/* --- memory --- */

/* The first pin that ends behind `at`. */
static uint32_t pin_find(const struct gpu_thread *t, uint64_t at)
{
    uint32_t low = 0, high = t->npins;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (t->pin[mid].at + t->pin[mid].bytes <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool pin_holds(const struct gpu_pin *pin, uint64_t at, uint64_t bytes)
{
    return at >= pin->at && bytes <= pin->bytes && at - pin->at <= pin->bytes - bytes;
}

static bool is_pinned(struct gpu_thread *t, uint64_t at, uint64_t bytes)
{
    if (t->pin_hit >= t->npins || !pin_holds(&t->pin[t->pin_hit], at, bytes))
        t->pin_hit = pin_find(t, at);
    return t->pin_hit < t->npins && pin_holds(&t->pin[t->pin_hit], at, bytes);
}

static int gpu_thread_pin(struct gpu *g, const struct gpu_op *op)
{
    struct gpu_thread *t = &g->thread;
    const uint64_t at = (uintptr_t)op->host;
    const uint32_t i = pin_find(t, at);
    if (op->bytes == 0 || (i < t->npins && t->pin[i].at - at < op->bytes) ||
        (i < t->npins && pin_holds(&t->pin[i], at, 1)))
        return -EINVAL; /* nothing, or registered already */
    if (t->npins == GPU_PINS_MAX)
        return -ENOMEM;
    const int err = g->drv->pin(t->dev, op->host, op->bytes);
    if (err < 0)
        return err;
    memmove(&t->pin[i + 1], &t->pin[i], (t->npins - i) * sizeof(t->pin[0]));
    t->pin[i] = (struct gpu_pin){.at = at, .bytes = op->bytes};
    t->npins++;
    return 0;
}

/* Ends the GPU_PIN of this memory if it has not begun. */
static void cancel_pin(struct gpu *g, const void *host)
{
    for (struct gpu_op **link = &g->thread.pins; *link != NULL; link = &(*link)->next) {
        struct gpu_op *op = *link;
        if (op->host != host)
            continue;
        *link = op->next;
        gpu_thread_end(g, op, -ECANCELED);
        return;
    }
}

static void unpin(struct gpu *g, const struct gpu_op *op)
{
    struct gpu_thread *t = &g->thread;
    cancel_pin(g, op->host);
    const uint32_t i = pin_find(t, (uintptr_t)op->host);
    if (i == t->npins || t->pin[i].at != (uintptr_t)op->host)
        return; /* its registration ended when the device went out */
    g->drv->unpin(t->dev, op->host, t->pin[i].bytes);
    t->npins--;
    memmove(&t->pin[i], &t->pin[i + 1], (t->npins - i) * sizeof(t->pin[0]));
}

/* 0: the memory is ready when *ret_ticket has ended; if op->status is negative then, end_alloc()
 * frees it. */
static int alloc(struct gpu *g, struct gpu_op *op, uint64_t *ret_ticket)
{
    struct gpu_mem got = {.handle = {.fd = -1}};
    const int err =
        op->bytes == 0 ? -EINVAL : g->drv->alloc(g->thread.dev, op->bytes, &got, ret_ticket);
    if (err < 0)
        return err;
    if (got.handle.fd >= 0 && got.handle.kind != DEVICE_HANDLE_IPC) {
        const int fd = FAULT(fd) ? -1 : fcntl(got.handle.fd, F_DUPFD_CLOEXEC, 0);
        got.handle.fd = fd;
        op->status = fd < 0 ? -EMFILE : 0;
    }
    got.generation = g->thread.generation;
    *op->mem = got;
    return 0;
}

/* Ends an alloc whose ticket has ended. */
static void end_alloc(struct gpu *g, struct gpu_op *op)
{
    if (op->status < 0) {
        g->drv->free(g->thread.dev, op->mem);
        forget_alloc(op);
    }
    gpu_thread_end(g, op, op->status);
}

static int import(struct gpu *g, struct gpu_op *op)
{
    struct gpu_mem got = {.handle = {.fd = -1}};
    const int err =
        op->handle.bytes == 0 ? -EINVAL : g->drv->import(g->thread.dev, &op->handle, &got);
    if (err < 0)
        return err;
    got.imported = true;
    got.generation = g->thread.generation;
    *op->mem = got;
    return 0;
}

static bool is_of_now(const struct gpu_thread *t, const struct gpu_op *op)
{
    return t->dev != NULL && op->generation == t->generation;
}

static bool is_busy(const struct gpu_thread *t)
{
    return t->nbatches > 0 || t->copies.head != NULL || t->allocs.head != NULL;
}

/* Runs a FREE, UNPIN or IMPORT, which take no ticket. Returns how it ends. */
static int run_memory(struct gpu *g, struct gpu_op *op)
{
    const struct gpu_thread *t = &g->thread;
    const bool up = t->dev != NULL;
    if (op->kind == GPU_UNPIN) {
        if (up)
            unpin(g, op);
        return 0;
    }
    if (op->kind == GPU_FREE) {
        if (up && op->mem->generation == t->generation)
            g->drv->free(t->dev, op->mem);
        return 0;
    }
    return is_of_now(t, op) ? import(g, op) : -EIO;
}

/* Ends the operation; -EIO takes the device out, if the operation was for its current generation.
 */
static void end_or_take_out(struct gpu *g, struct gpu_op *op, int status)
{
    if (status == -EIO && is_of_now(&g->thread, op))
        take_out(g, status);
    gpu_thread_end(g, op, status);
}

static void put_batch(struct gpu_thread *t, const struct gpu_batch *batch)
{
    MUST(t->nbatches < GPU_DRV_COPIES_MAX);
    t->batch[(t->first + t->nbatches++) % GPU_DRV_COPIES_MAX] = *batch;
    t->inflight_bytes += batch->bytes;
}

/* Begins as many allocs as there are free batches. Returns whether it began or ended any. */
static bool run_allocs(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    bool moved = false;
    while (t->allocs.head != NULL && t->nbatches < GPU_DRV_COPIES_MAX) {
        struct gpu_op *op = gpu__copies_take(&t->allocs, &t->allocs.head);
        uint64_t ticket = 0;
        const int err = alloc(g, op, &ticket);
        moved = true;
        if (err < 0)
            end_or_take_out(g, op, err);
        else if (ticket == 0)
            end_alloc(g, op);
        else
            put_batch(t, &(struct gpu_batch){
                             .op = op, .ticket = ticket, .given_ns = clock_now_ns(), .last = true});
    }
    return moved;
}

/* Runs one pin. It holds up copies, so while copies are under way it waits until these had as long
 * as the last pin took. Returns whether one ran. */
static bool run_pin(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    const uint64_t begun = clock_now_ns();
    struct gpu_op *op = t->pins;
    if (op == NULL || (is_busy(t) && begun < t->pin_at_ns))
        return false;
    t->pins = op->next;
    const int status = gpu_thread_pin(g, op);
    const uint64_t now = clock_now_ns();
    t->pin_at_ns = now + (now - begun);
    end_or_take_out(g, op, status);
    return true;
}

/* --- copies --- */

static bool is_mark(const struct gpu_op *op, uint32_t *at_mark, uint32_t end)
{
    while (*at_mark < op->nmarks && op->mark[*at_mark].end < end)
        ++*at_mark;
    return *at_mark < op->nmarks && op->mark[*at_mark].end == end;
}

/* The next piece of a fragment that is larger than a piece. */
static void cut_fragment(struct gpu *g, struct gpu_op *op, struct gpu_piece *p)
{
    const struct kvc_frag *f = &op->frag[op->at];
    const uint64_t left = f->bytes - op->part_bytes;
    p->bytes = MIN(left, g->piece_bytes);
    g->thread.frag[0] =
        (struct kvc_frag){f->to + op->part_bytes, f->from + op->part_bytes, p->bytes};
    p->frag = g->thread.frag;
    p->n = 1;
    op->part_bytes = p->bytes == left ? 0 : op->part_bytes + p->bytes;
    op->at += p->bytes == left;
}

/* The next piece of a copy of `frag`. */
static void cut(struct gpu *g, struct gpu_op *op, struct gpu_piece *p)
{
    const struct kvc_frag *f = &op->frag[op->at];
    uint32_t mark = op->mark_at;
    *p = (struct gpu_piece){.frag = f, .direction = op->direction};
    if (op->part_bytes > 0 || f->bytes > g->piece_bytes) {
        cut_fragment(g, op, p);
    } else {
        do {
            p->bytes += f[p->n++].bytes;
            if (p->bytes >= GPU_PIECE_ENOUGH && is_mark(op, &mark, op->at + p->n))
                break;
        } while (p->n < GPU_DRV_FRAGS_MAX && op->at + p->n < op->nfrags &&
                 f[p->n].bytes <= g->piece_bytes - p->bytes);
        op->at += p->n;
    }
    for (; op->mark_at < op->nmarks && op->mark[op->mark_at].end <= op->at; op->mark_at++)
        p->ready = op->mark[op->mark_at].value;
    p->last = op->at == op->nfrags;
}

/* A kernel reads and writes host memory by itself, and only where that is registered. */
static enum gpu_path choose(struct gpu *g, const struct gpu_op *op, const struct gpu_piece *p)
{
    const uint64_t frag_bytes = op->next_piece != NULL ? p->bytes / p->n : op->bytes / op->nfrags;
    const enum gpu_path path = op->path != 0
                                   ? (enum gpu_path)(op->path - 1)
                                   : gpu__path(&g->thread.rates, p->direction, frag_bytes);
    if (path == GPU_PATH_ENGINE || p->direction == GPU_ON_DEVICE)
        return path;
    for (uint32_t i = 0; i < p->n; i++) {
        const struct kvc_frag *f = &p->frag[i];
        if (!is_pinned(&g->thread, p->direction == GPU_TO_DEVICE ? f->from : f->to, f->bytes))
            return GPU_PATH_ENGINE;
    }
    return path;
}

static void raise_ready(struct gpu_op *op, uint64_t value)
{
    /* A word never goes back, also where a load that began later has ended before. */
    if (value != 0 && atomic_load_explicit(op->ready, memory_order_relaxed) < value)
        atomic_store_explicit(op->ready, value, memory_order_release);
}

/* Ends a copy of which all pieces have ended. If its memory was taken back meanwhile, nobody knows
 * what was copied, so it ends with -ECANCELED. */
static void end_whole(struct gpu *g, struct gpu_op *op, uint64_t ready)
{
    if (gpu_is_revoked(&op->revoke)) {
        gpu_thread_end(g, op, -ECANCELED);
        return;
    }
    raise_ready(op, ready);
    op->begun_ns = clock_now_ns() - op->begun_ns;
    gpu_thread_end(g, op, 0);
}

static bool is_cancelled(const struct gpu_op *op)
{
    return op->cancel != NULL && atomic_load_explicit(op->cancel, memory_order_relaxed);
}

enum { GIVE_FULL, GIVE_ALL, GIVE_TURN };

/* Gives pieces of the copy to the driver. GIVE_ALL: the driver has the whole copy; GIVE_FULL: the
 * credit or the batches are used up; GIVE_TURN: other copies come first; -ECANCELED: it was revoked
 * or cancelled; -EIO, and other errors of the driver. */
static int give(struct gpu *g, struct gpu_op *op)
{
    struct gpu_thread *t = &g->thread;
    while (!op->given) {
        if (gpu_is_revoked(&op->revoke) ||
            (op->next_piece != NULL && (t->stopping || is_cancelled(op))))
            return -ECANCELED;
        const uint64_t most = MIN(op->bytes - op->given_bytes, g->piece_bytes);
        if (t->nbatches == GPU_DRV_COPIES_MAX ||
            (t->nbatches > 0 && t->inflight_bytes + most > g->config.inflight_bytes))
            return GIVE_FULL;
        if (op->next_piece != NULL && op->turn == TURN_PIECES) {
            op->turn = 0;
            return GIVE_TURN;
        }
        struct gpu_piece p;
        if (op->next_piece != NULL)
            op->next_piece(op, t->frag, GPU_DRV_FRAGS_MAX, g->piece_bytes, &p);
        else
            cut(g, op, &p);
        uint64_t ticket;
        const int err =
            g->drv->copy(t->dev, choose(g, op, &p), p.direction, p.frag, p.n, &op->revoke, &ticket);
        if (err < 0)
            return err;
        op->nfrags += op->next_piece != NULL ? p.n : 0;
        op->given_bytes += p.bytes;
        op->given = p.last;
        op->turn++;
        put_batch(t, &(struct gpu_batch){.op = op,
                                         .ticket = ticket,
                                         .bytes = p.bytes,
                                         .given_ns = clock_now_ns(),
                                         .ready = p.ready,
                                         .last = p.last});
    }
    return GIVE_ALL;
}

/* Ends the copy with `status`, after those of its pieces that the driver has. */
static void gpu_thread_refuse(struct gpu *g, struct gpu_op *op, int status)
{
    struct gpu_thread *t = &g->thread;
    op->status = status;
    for (uint32_t i = t->nbatches; i > 0; i--) {
        struct gpu_batch *b = &t->batch[(t->first + i - 1) % GPU_DRV_COPIES_MAX];
        if (b->op == op) {
            b->last = true;
            return;
        }
    }
    gpu_thread_end(g, op, status);
}

/* 1: the copy may begin, or has begun; 0: not yet; negative: the status with which it must end
 * before it has begun. */
static int may_run(struct gpu_op *op, uint64_t now)
{
    if (op->begun_ns != 0)
        return 1;
    if (is_cancelled(op) || gpu_is_revoked(&op->revoke))
        return -ECANCELED;
    if (op->deadline_ns != 0 && now >= op->deadline_ns)
        return -ETIMEDOUT;
    return !device_fence_is_pending(&op->after);
}

/* Gives copies to the driver in the order of submission, as far as there is room. Returns whether
 * any piece was given or any copy ended. */
static bool feed(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    const uint64_t now = clock_now_ns();
    const bool sweep = now - t->swept_ns >= SWEEP_NS;
    bool moved = false, full = false;
    if (sweep)
        t->swept_ns = now;
    for (struct gpu_op **link = &t->copies.head; *link != NULL && (sweep || !full);) {
        struct gpu_op *op = *link;
        const int may = may_run(op, now);
        set_waits(g, op, may == 0);
        if (may < 0) {
            moved = true;
            gpu_thread_end(g, gpu__copies_take(&t->copies, link), may);
            continue;
        }
        if (may == 0 || full) {
            link = &op->next;
            continue;
        }
        const uint32_t before = t->nbatches;
        op->begun_ns = op->begun_ns != 0 ? op->begun_ns : now;
        const int given = give(g, op);
        if (given == -EIO) {
            take_out(g, given);
            return true;
        }
        moved = moved || given != GIVE_FULL || t->nbatches > before;
        full = given == GIVE_FULL;
        if (full) {
            link = &op->next;
            continue;
        }
        (void)gpu__copies_take(&t->copies, link);
        if (given == GIVE_TURN)
            gpu__copies_push(&t->copies, op);
        else if (given < 0)
            gpu_thread_refuse(g, op, given);
        else if (op->bytes == 0) /* a copy of nothing */
            end_whole(g, op, op->nmarks > 0 ? op->mark[op->nmarks - 1].value : 0);
    }
    return moved;
}

/* One batch at a time is copied: it begins when it is given, or when the one before it ends. */
static uint64_t batch_begun_ns(const struct gpu_thread *t, const struct gpu_batch *b)
{
    return MAX(b->given_ns, t->ended_ns);
}

static void learn(struct gpu_thread *t, const struct gpu_batch *b)
{
    const uint64_t now = clock_now_ns();
    if (b->bytes >= TELLING_BYTES) {
        const double took = (double)(now - batch_begun_ns(t, b));
        const uint64_t ns = (uint64_t)(took * (double)(UINT64_C(1) << 20) / (double)b->bytes);
        t->ns_per_mib = t->ns_per_mib == 0 ? ns : (3 * t->ns_per_mib + ns) / 4;
    }
    t->ended_ns = now;
}

/* Takes the batches that have ended, in their order. Returns whether any had. */
static bool gpu_thread_reap(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    bool moved = false;
    while (t->nbatches > 0) {
        const struct gpu_batch b = t->batch[t->first];
        const int ended = g->drv->poll(t->dev, b.ticket);
        if (ended == 0)
            break;
        moved = true;
        if (ended < 0) {
            take_out(g, ended);
            break;
        }
        learn(t, &b);
        t->first = (t->first + 1) % GPU_DRV_COPIES_MAX;
        t->nbatches--;
        MUST(t->inflight_bytes >= b.bytes);
        t->inflight_bytes -= b.bytes;
        if (b.op->kind == GPU_ALLOC)
            end_alloc(g, b.op);
        else if (b.last && b.op->status < 0)
            gpu_thread_end(g, b.op, b.op->status);
        else if (b.last)
            end_whole(g, b.op, b.ready);
        else if (!gpu_is_revoked(&b.op->revoke))
            raise_ready(b.op, b.ready);
    }
    return moved;
}

/* --- the thread --- */

static void accept_op(struct gpu *g, struct gpu_op *op)
{
    struct gpu_thread *t = &g->thread;
    if (op->kind == GPU_FREE || op->kind == GPU_UNPIN || op->kind == GPU_IMPORT) {
        end_or_take_out(g, op, run_memory(g, op));
    } else if (!is_of_now(t, op)) {
        gpu_thread_end(g, op, -EIO);
    } else if (op->kind == GPU_PIN) {
        op->next = t->pins;
        t->pins = op;
    } else {
        MUST(op->kind == GPU_ALLOC || op->kind == GPU_COPY);
        gpu__copies_push(op->kind == GPU_ALLOC ? &t->allocs : &t->copies, op);
    }
}

/* A call of the driver took so long that the control thread gave the device up, and has returned
 * now: closes the device. If the device was opened since, its generation differs, and it stays. */
static void was_late(struct gpu *g)
{
    if (g->thread.dev != NULL && g->thread.generation == g->late_generation)
        take_out_for(g, -ETIMEDOUT, g->late_why);
}

/* Notes when a step begins, by which the control thread finds a call that does not return. So a
 * step must have only a few calls of the driver. */
static void begin_step(struct gpu *g)
{
    atomic_store_explicit(&g->since_ns, clock_now_ns(), memory_order_relaxed);
}

/* Takes all orders. Returns whether there were any. */
static bool gpu_thread_take(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    if (!t->readable && !inbox_pending(&g->orders))
        return false;
    t->readable = false;
    struct inbox_item *item = inbox_take(&g->orders);
    const bool moved = item != NULL;
    while (item != NULL) {
        struct inbox_item *next = inbox_next(item);
        begin_step(g);
        if (item == &g->bell)
            t->stopping = true;
        else if (item == &g->refusal)
            gpu_thread_refused(g);
        else if (item == &g->late)
            was_late(g);
        else
            accept_op(g, CONTAINER_OF(item, struct gpu_op, item));
        item = next;
    }
    return moved;
}

static void cancel_unbegun(struct gpu *g)
{
    struct gpu_copies *copies = &g->thread.copies;
    for (struct gpu_op **link = &copies->head; *link != NULL;) {
        if ((*link)->begun_ns == 0)
            gpu_thread_end(g, gpu__copies_take(copies, link), -ECANCELED);
        else
            link = &(*link)->next;
    }
    while (g->thread.allocs.head != NULL)
        gpu_thread_end(g, gpu__copies_take(&g->thread.allocs, &g->thread.allocs.head), -ECANCELED);
    end_pins(g, -ECANCELED);
}

/* When the thread may measure rates that are still unknown; UINT64_MAX: all are known. */
static uint64_t measure_at_ns(const struct gpu_thread *t)
{
    return t->measure_at_ns == 0 ? UINT64_MAX : MAX(t->measure_at_ns, t->moved_ns + IDLE_NS);
}

static void measure_again(struct gpu *g)
{
    struct gpu_thread *t = &g->thread;
    char why[GPU_WHY_BYTES] = "";
    if (is_busy(t) || t->pins != NULL || clock_now_ns() < measure_at_ns(t) ||
        inbox_pending(&g->orders) ||
        atomic_load_explicit(&g->measured.on_its_way, memory_order_acquire))
        return;
    const int err = gpu__calibrate(g->drv, t->dev, &g->up.info, &g->orders, &t->rates, why);
    t->measure_at_ns =
        gpu__is_calibrated(&t->rates) ? 0 : clock_now_ns() + g->config.recalibrate_ns;
    if (err == 0) {
        gpu_thread_tell(g, &g->measured);
    } else if (err == -EIO) {
        gpu_thread_tell_out(g, err, why);
        is_gone(g);
    }
}

/* How long to sleep from now until the oldest batch may have ended. */
static uint64_t expected_ns(const struct gpu_thread *t, uint64_t now)
{
    const struct gpu_batch *b = &t->batch[t->first];
    const uint64_t ns = (b->bytes >> 10) * t->ns_per_mib >> 10;
    const uint64_t due = batch_begun_ns(t, b) + EXPECTED(ns);
    return due > now ? due - now : 0;
}

/* How long the thread may sleep; UINT64_MAX: until an order comes. */
static uint64_t sleep_ns(const struct gpu *g)
{
    const struct gpu_thread *t = &g->thread;
    const uint64_t now = clock_now_ns();
    if (t->dev == NULL)
        return t->retry_at_ns > now ? t->retry_at_ns - now : 0;
    if (!is_busy(t) && t->pins != NULL)
        return 0;
    if (!is_busy(t)) {
        const uint64_t at = measure_at_ns(t);
        return at == UINT64_MAX ? at : at > now ? at - now : SLEEP_NS_MAX;
    }
    const uint64_t since = now - t->moved_ns;
    const uint64_t expected = t->nbatches > 0 ? expected_ns(t, now) : 0;
    if (expected > SPIN_NS)
        return MIN(expected, SLEEP_NS_MAX_LONG);
    if (since < SPIN_NS)
        return 0;
    const uint64_t most = t->nbatches > 0 || since < LONG_NS ? SLEEP_NS_MAX : SLEEP_NS_MAX_LONG;
    return MIN(MAX(since / SLEEP_SHARE, SLEEP_NS_MIN), most);
}

static void rest(struct gpu *g)
{
    const uint64_t ns = sleep_ns(g);
    if (ns == 0 || inbox_pending(&g->orders))
        return;
    const struct timespec ts = {.tv_sec = (time_t)(ns / 1000000000),
                                .tv_nsec = (long)(ns % 1000000000)};
    struct pollfd fd = {.fd = inbox_fd(&g->orders), .events = POLLIN};
    atomic_store_explicit(&g->since_ns, 0, memory_order_relaxed);
    /* An error (a signal, no memory in the kernel) only means that it did not sleep. */
    g->thread.readable = ppoll(&fd, 1, ns == UINT64_MAX ? NULL : &ts, NULL) > 0;
}

void *gpu__main(void *arg)
{
    struct gpu *g = arg;
    struct gpu_thread *t = &g->thread;
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS); /* without it sleeps are longer */
    begin_step(g);
    try_open(g);
    while (!t->stopping || is_busy(t)) {
        begin_step(g);
        bool moved = gpu_thread_take(g);
        if (t->stopping)
            cancel_unbegun(g);
        else if (t->dev == NULL)
            reopen(g);
        if (t->dev != NULL)
            moved |= run_allocs(g);
        if (t->dev != NULL)
            moved |= gpu_thread_reap(g);
        if (t->dev != NULL && t->copies.head != NULL)
            moved |= feed(g);
        if (t->dev != NULL)
            moved |= run_pin(g);
        if (moved)
            t->moved_ns = clock_now_ns();
        if (t->dev != NULL && !t->stopping)
            measure_again(g);
        if (!t->stopping || is_busy(t))
            rest(g);
    }
    MUST(t->pins == NULL); /* is_busy() does not count them */
    if (t->dev != NULL)
        g->drv->close(t->dev);
    return NULL;
}
