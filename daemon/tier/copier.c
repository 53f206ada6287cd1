/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copy threads `kvc-copy-N` of the host tier: the queue before them, and the way back. A
 * store's bytes pass here from staging to their slot: copier_submit() queues, thread_main() copies
 * (copier_copy.c), copier_on_results() ends operations on the control thread.
 */
#include "copier.h"

#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "fault.h"
#include "list.h"
#include "sys.h"
#include "thread.h"

/* Results are handed over at least this often, so that a block is visible soon after its copy,
 * and not much more often, for each may cost the control thread a wake-up. */
#define COPIER_BATCH_BYTES  (UINT64_C(1) << 20)
#define COPIER_THREADS_AUTO 4u
/* Speed is measured over MEASURE_BYTES, or over a pause's fewer bytes, but at least MEASURE_MIN:
 * for less the clock is too coarse. A speed below the best one lowers it by 1 / MEASURE_DECAY of
 * the gap. */
#define MEASURE_BYTES (UINT64_C(256) << 10)
#define MEASURE_MIN   (UINT64_C(64) << 10)
#define MEASURE_DECAY 64u
/* Credit of checks with the threads. Small, so that copies submitted later overtake checks. */
#define COPIER_CHECK_CREDIT (UINT64_C(1) << 20)
/* copier_turn() sums blocks of at most this part of its turn: larger ones are worth a thread. */
#define COPIER_HERE_SHARE 4u
/* While copies wait, this many bytes are copied for one that is checked. */
#define COPIER_COPY_WEIGHT 16u

struct op_queue {
    struct tier_op *head;
    struct tier_op **tail;
};

struct copy_thread {
    struct copier *copier;
    pthread_t thread;
    unsigned no;
    /* Posted once when the thread is taken off the idle list. With a condition variable a burst
     * of submissions signals sleepers that are awake already, and glibc 2.36 can lose a wake-up
     * among several waiters. */
    sem_t wake;
    struct copy_thread *next; /* idle list; under the copier's lock */
    _Alignas(64) uint8_t step[COPIER_STEP_BYTES];
};

/* Operations that wait for credit, and the credit: in all, and the part that threads have. */
struct gate {
    struct op_queue waiting;
    uint64_t credit_bytes, granted_bytes;
};

struct copier {
    /* shared, under `lock` */
    pthread_mutex_t lock;
    struct op_queue copies, checks;
    uint64_t copied_bytes;    /* of copies begun since the last check began */
    struct copy_thread *idle; /* the thread that fell asleep last is first: its cache is warmest */
    bool stop;
    int bind_err;

    /* any thread */
    struct inbox results;
    _Atomic uint64_t bytes_per_s; /* see measured(); 0: not measured yet */

    /* control thread */
    _Alignas(64) struct loop *loop;
    struct loop_watch watch;
    struct gate copy_gate, check_gate;
    struct op_queue here; /* for copier_turn() */
    uint64_t here_bytes, turn_bytes;
    struct op_queue ended; /* their done() must be called */
    uint32_t finish_left;  /* how many more done() this turn may call */
    struct copier_stats stats;
    struct histo copy_ns;
    const struct topo *topo;
    unsigned threads_max;
    unsigned started;
    bool inbox_made;
    struct copy_thread *threads;
};

static void queue_init(struct op_queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_push(struct op_queue *q, struct tier_op *op)
{
    op->next = NULL;
    *q->tail = op;
    q->tail = &op->next;
}

static struct tier_op *queue_pop(struct op_queue *q)
{
    struct tier_op *op = q->head;
    if (op == NULL)
        return NULL;
    q->head = op->next;
    if (q->head == NULL)
        q->tail = &q->head;
    return op;
}

/* Whether the operation is a check, which copies overtake. */
static bool is_check(const struct tier_op *op)
{
    return op->kind == TIER_VERIFY && (op->flags & TIER_F_AWAITED) == 0;
}

/* --- copy threads --- */

/* Runs the operation and sets its status. step: scratch for a PUT. */
static void copier_run(uint8_t *step, struct tier_op *op)
{
    if (atomic_load_explicit(&op->cancel, memory_order_relaxed))
        op->status = -ECANCELED;
    else if (op->deadline_ns != 0 && clock_now_ns() >= op->deadline_ns)
        op->status = -ETIMEDOUT;
    else if (FAULT(copy))
        op->status = -EIO;
    else if (op->kind != TIER_PUT)
        op->status = copier_sum(op->priv, op->bytes, &op->cancel, &op->sum);
    else
        op->status = copier_copy(op->priv, op->src, op->bytes, step, &op->cancel, &op->sum);
}

static void copier_hand_over(struct copier *c, struct op_queue *done)
{
    for (struct tier_op *op; (op = queue_pop(done)) != NULL;)
        inbox_post(&c->results, &op->item);
}

/* Whether the operation is cancelled or late. Then it ends at once, which costs copies nothing. */
static bool is_over(const struct tier_op *op)
{
    return atomic_load_explicit(&op->cancel, memory_order_relaxed) ||
           (op->deadline_ns != 0 && clock_now_ns() >= op->deadline_ns);
}

/* Under the lock. */
static struct tier_op *pop_next(struct copier *c)
{
    const struct tier_op *check = c->checks.head;
    if (c->stop)
        return NULL;
    if (check != NULL && (c->copies.head == NULL ||
                          c->copied_bytes / COPIER_COPY_WEIGHT >= check->bytes || is_over(check))) {
        c->copied_bytes = 0;
        return queue_pop(&c->checks);
    }
    struct tier_op *op = queue_pop(&c->copies);
    if (op != NULL && check != NULL)
        c->copied_bytes += op->bytes;
    return op;
}

static struct tier_op *try_next(struct copier *c)
{
    (void)pthread_mutex_lock(&c->lock);
    struct tier_op *op = pop_next(c);
    (void)pthread_mutex_unlock(&c->lock);
    return op;
}

/* Waits for the next operation. NULL: the thread must end. */
static struct tier_op *wait_next(struct copy_thread *t)
{
    struct copier *c = t->copier;
    for (;;) {
        (void)pthread_mutex_lock(&c->lock);
        const bool stop = c->stop;
        struct tier_op *op = pop_next(c);
        if (op == NULL && !stop) {
            t->next = c->idle;
            c->idle = t;
        }
        (void)pthread_mutex_unlock(&c->lock);
        if (op != NULL || stop)
            return op;
        while (sem_wait(&t->wake) != 0)
            ; /* a signal; there are none here, but debuggers send some */
    }
}

/* Takes up to n threads off the idle list. Under the lock. */
static struct copy_thread *take_idle(struct copier *c, unsigned n)
{
    struct copy_thread *taken = NULL;
    for (unsigned i = 0; i < n && c->idle != NULL; i++) {
        struct copy_thread *const t = c->idle;
        c->idle = t->next;
        t->next = taken;
        taken = t;
    }
    return taken;
}

static void wake(struct copy_thread *t)
{
    while (t != NULL) {
        struct copy_thread *const next = t->next; /* before t runs and uses it again */
        (void)sem_post(&t->wake);
        t = next;
    }
}

static void bind(struct copy_thread *t)
{
    struct copier *c = t->copier;
    if (c->topo == NULL)
        return;
    const int err = topo_bind_thread(c->topo, topo_worker_node(c->topo, t->no, c->threads_max));
    if (err == 0)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->bind_err = err;
    (void)pthread_mutex_unlock(&c->lock);
}

/* Copies that one thread makes without a pause. begun_ns 0: none yet. */
struct span {
    uint64_t begun_ns, bytes;
};

/* Updates the speed: the fastest of late. A slower copy may have been disturbed, so it counts
 * little. */
static void measured(struct copier *c, struct span *span)
{
    const uint64_t took_ns = span->bytes >= MEASURE_MIN ? clock_thread_ns() - span->begun_ns : 0;
    if (took_ns > 0) {
        const uint64_t rate = span->bytes * UINT64_C(1000000000) / took_ns;
        uint64_t best = atomic_load_explicit(&c->bytes_per_s, memory_order_relaxed);
        best = rate > best ? rate : best - (best - rate) / MEASURE_DECAY;
        atomic_store_explicit(&c->bytes_per_s, best, memory_order_relaxed);
    }
    *span = (struct span){0};
}

static void run_measured(struct copy_thread *t, struct tier_op *op, struct span *span)
{
    if (op->kind == TIER_PUT && span->begun_ns == 0)
        span->begun_ns = clock_thread_ns();
    copier_run(t->step, op);
    if (op->kind != TIER_PUT || op->status != 0)
        *span = (struct span){0};
    else if ((span->bytes += op->bytes) >= MEASURE_BYTES)
        measured(t->copier, span);
}

static void *thread_main(void *arg)
{
    struct copy_thread *t = arg;
    struct copier *c = t->copier;
    struct op_queue done;
    struct span span = {0};
    queue_init(&done);
    bind(t);
    for (struct tier_op *op; (op = wait_next(t)) != NULL;) {
        uint64_t bytes = 0;
        do {
            /* So that copies that have ended do not wait for a check to end. */
            if (is_check(op))
                copier_hand_over(c, &done);
            run_measured(t, op, &span);
            bytes += op->bytes;
            queue_push(&done, op);
            if (bytes >= COPIER_BATCH_BYTES) {
                copier_hand_over(c, &done);
                bytes = 0;
            }
        } while ((op = try_next(c)) != NULL);
        measured(c, &span);
        copier_hand_over(c, &done);
    }
    return NULL;
}

static int start_thread(struct copier *c, unsigned no)
{
    struct copy_thread *t = &c->threads[no];
    t->copier = c;
    t->no = no;
    char name[24];
    (void)snprintf(name, sizeof(name), "kvc-copy-%u", no);
    return thread_start(name, thread_main, t, &t->thread);
}

/* --- control thread --- */

static void gate_init(struct gate *g, uint64_t credit_bytes)
{
    queue_init(&g->waiting);
    g->credit_bytes = credit_bytes;
}

static struct gate *gate_of(struct copier *c, const struct tier_op *op)
{
    return is_check(op) ? &c->check_gate : &c->copy_gate;
}

/* Moves operations for which there is credit to *ret_next. Returns how many. */
static unsigned gate_open(struct gate *g, struct op_queue *ret_next)
{
    unsigned n = 0;
    queue_init(ret_next);
    while (g->waiting.head != NULL &&
           (g->granted_bytes == 0 ||
            g->waiting.head->bytes <= g->credit_bytes - MIN(g->credit_bytes, g->granted_bytes))) {
        struct tier_op *op = queue_pop(&g->waiting);
        g->granted_bytes += op->bytes;
        queue_push(ret_next, op);
        n++;
    }
    return n;
}

/* `next` must not be used afterwards. */
static void queue_append(struct op_queue *q, struct op_queue *next)
{
    if (next->head == NULL)
        return;
    *q->tail = next->head;
    q->tail = next->tail;
}

static void feed(struct copier *c)
{
    struct op_queue copies, checks;
    const unsigned n = gate_open(&c->copy_gate, &copies) + gate_open(&c->check_gate, &checks);
    if (n == 0)
        return;
    MUST(c->stats.waiting_ops >= n);
    c->stats.waiting_ops -= n;
    (void)pthread_mutex_lock(&c->lock);
    queue_append(&c->copies, &copies);
    queue_append(&c->checks, &checks);
    struct copy_thread *const threads = take_idle(c, n);
    (void)pthread_mutex_unlock(&c->lock);
    wake(threads);
}

static void copier_finish(struct copier *c, struct tier_op *op)
{
    MUST(c->stats.inflight_ops > 0 && c->stats.inflight_bytes >= op->bytes);
    c->stats.inflight_ops--;
    c->stats.inflight_bytes -= op->bytes;
    c->stats.done_ops++;
    if (op->status == 0)
        c->stats.done_bytes += op->bytes;
    if (op->status == 0 && op->kind == TIER_PUT)
        histo_add(&c->copy_ns, clock_now_ns() - op->begun_ns);
    op->done(op);
}

static void copier_reap(struct copier *c)
{
    struct inbox_item *first = inbox_take(&c->results);
    /* Credit first, so that the threads have work while done() runs. */
    for (struct inbox_item *i = first; i != NULL;) {
        struct tier_op *op = CONTAINER_OF(i, struct tier_op, item);
        i = inbox_next(i);
        MUST(gate_of(c, op)->granted_bytes >= op->bytes); /* its flags are as they were */
        gate_of(c, op)->granted_bytes -= op->bytes;
        queue_push(&c->ended, op);
    }
    if (c->stats.waiting_ops > 0)
        feed(c);
}

/* Calls done() of as many operations as this turn still may. */
static void finish_some(struct copier *c)
{
    for (struct tier_op *op; c->finish_left > 0 && (op = queue_pop(&c->ended)) != NULL;) {
        c->finish_left--;
        copier_finish(c, op);
    }
}

static void copier_on_results(struct loop_watch *watch, uint32_t events)
{
    struct copier *c = watch->ctx;
    (void)events;
    copier_reap(c);
    finish_some(c);
}

void copier_submit(struct copier *c, struct tier_op *op, void *dst)
{
    MUST(!c->stop && op->done != NULL);
    MUST(op->kind == TIER_VERIFY || op->kind == TIER_SEAL ||
         (op->kind == TIER_PUT && op->src != NULL));
    op->priv = dst;
    op->begun_ns = clock_now_ns();
    c->stats.inflight_ops++;
    c->stats.inflight_bytes += op->bytes;
    if (op->kind != TIER_PUT && !is_check(op) && op->bytes <= c->turn_bytes / COPIER_HERE_SHARE &&
        op->bytes <= c->turn_bytes - c->here_bytes) {
        c->here_bytes += op->bytes;
        queue_push(&c->here, op);
        return;
    }
    c->stats.waiting_ops++;
    queue_push(&gate_of(c, op)->waiting, op);
    feed(c);
}

void copier_turn(struct copier *c)
{
    finish_some(c);
    c->finish_left = COPIER_TURN_OPS;
    struct op_queue now = c->here;
    if (now.head == NULL)
        return;
    queue_init(&c->here);
    c->here_bytes = 0;
    for (struct tier_op *op; (op = queue_pop(&now)) != NULL;) {
        copier_run(NULL, op);
        copier_finish(c, op);
    }
}

bool copier_is_due(const struct copier *c)
{
    return c->here.head != NULL || c->ended.head != NULL;
}

void copier_stats(const struct copier *c, struct copier_stats *ret_stats)
{
    *ret_stats = c->stats;
    ret_stats->copy_ns = &c->copy_ns;
    ret_stats->bytes_per_s = atomic_load_explicit(&c->bytes_per_s, memory_order_relaxed);
    pthread_mutex_t *lock = (pthread_mutex_t *)&c->lock; /* logically const */
    (void)pthread_mutex_lock(lock);
    ret_stats->bind_err = c->bind_err;
    (void)pthread_mutex_unlock(lock);
}

/* --- create, destroy --- */

unsigned copier_threads_auto(unsigned cpus)
{
    return MIN(MAX(cpus, 1), COPIER_THREADS_AUTO);
}

static void *alloc_zeroed(size_t bytes)
{
    void *p = sys_aligned_alloc(64, ROUND_UP(bytes, 64));
    if (p != NULL)
        memset(p, 0, bytes);
    return p;
}

static int copier_start(struct copier *c)
{
    c->threads = alloc_zeroed(c->threads_max * sizeof(c->threads[0]));
    if (c->threads == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < c->threads_max; i++)
        (void)sem_init(&c->threads[i].wake, 0, 0); /* 0 is in range: cannot fail */
    int err = inbox_create(&c->results);
    if (err < 0)
        return err;
    c->inbox_made = true;
    c->watch = (struct loop_watch){
        .fn = copier_on_results, .ctx = c, .fd = inbox_fd(&c->results), .events = EPOLLIN};
    err = loop_watch_add(c->loop, &c->watch);
    for (; err == 0 && c->started < c->threads_max; c->started += err == 0)
        err = start_thread(c, c->started);
    return err;
}

int copier_create(const struct copier_config *config, struct loop *loop, struct copier **ret_copier)
{
    if (config->threads > COPIER_THREADS_MAX || config->inflight_bytes < COPIER_INFLIGHT_MIN)
        return -EINVAL;
    struct copier *c = alloc_zeroed(sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    c->loop = loop;
    c->topo = config->topo;
    c->threads_max = config->threads;
    if (c->threads_max == 0) {
        const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        c->threads_max = copier_threads_auto(cpus > 0 ? (unsigned)cpus : 1);
    }
    c->stats.threads = c->threads_max;
    queue_init(&c->copies);
    queue_init(&c->checks);
    queue_init(&c->here);
    queue_init(&c->ended);
    c->finish_left = COPIER_TURN_OPS;
    c->turn_bytes = config->turn_bytes;
    gate_init(&c->copy_gate, config->inflight_bytes);
    gate_init(&c->check_gate, COPIER_CHECK_CREDIT);
    (void)pthread_mutex_init(&c->lock, NULL); /* default attributes: cannot fail with glibc */
    const int err = copier_start(c);
    if (err < 0) {
        copier_destroy(&c);
        return err;
    }
    *ret_copier = c;
    return 0;
}

void copier_destroy(struct copier **copier)
{
    if (copier == NULL || *copier == NULL)
        return;
    struct copier *c = *copier;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    struct copy_thread *const threads = take_idle(c, UINT_MAX);
    (void)pthread_mutex_unlock(&c->lock);
    wake(threads);
    for (unsigned i = 0; i < c->started; i++)
        (void)pthread_join(c->threads[i].thread, NULL);
    for (unsigned i = 0; c->threads != NULL && i < c->threads_max; i++)
        (void)sem_destroy(&c->threads[i].wake);
    if (c->inbox_made) {
        struct tier_op *op;
        loop_watch_del(c->loop, &c->watch);
        copier_reap(c); /* may start operations that waited for credit */
        while ((op = queue_pop(&c->ended)) != NULL)
            copier_finish(c, op);
        while ((op = queue_pop(&c->here)) != NULL || (op = queue_pop(&c->copies)) != NULL ||
               (op = queue_pop(&c->checks)) != NULL ||
               (op = queue_pop(&c->copy_gate.waiting)) != NULL ||
               (op = queue_pop(&c->check_gate.waiting)) != NULL) {
            op->status = -ECANCELED;
            copier_finish(c, op);
        }
        inbox_destroy(&c->results);
    }
    (void)pthread_mutex_destroy(&c->lock);
    free(c->threads);
    free(c);
    *copier = NULL;
}
