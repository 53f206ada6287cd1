/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread's half of a device: it gives operations to the device's thread, which hands
 * them back ended, with reports about the device between them.
 *
 * Descriptors that are handed out are duplicates, and closed here. The driver may close its own at
 * any time on the device's thread. Then a number that the control thread is about to send to a
 * worker could already be another file's.
 */
#include <ctype.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "clock.h"
#include "device_name.h"
#include "fault.h"
#include "gpu__.h"
#include "log.h"
#include "sys.h"
#include "thread.h"
#include "units.h"

#define INFLIGHT_DEFAULT (UINT64_C(64) << 20)
#define RETRY_DEFAULT_NS UINT64_C(5000000000)
#define RECALIBRATE_NS   UINT64_C(60000000000)
#define STUCK_NS         UINT64_C(30000000000)
/* The timer that looks for a stuck call fires so often in STUCK_NS. */
#define STUCK_SHARE 4u
/* A piece is at most this part of the credit, so that the driver has the next piece while it copies
 * one. */
#define PIECE_SHARE     8u
#define PIECE_BYTES_MAX (UINT64_C(8) << 20)
#define PIECE_BYTES_MIN UINT64_C(4096)

/* --- devices --- */

/* NULL: this binary has no driver for a device of that kind. */
static const struct gpu_drv *driver_of(const struct device_name *name)
{
    if (name->kind == DEVICE_NAME_EMULATED)
        return &gpu_drv_emu;
#ifdef KVC_HAVE_CUDA
    return &gpu_drv_cuda;
#else
    return NULL;
#endif
}

/* Returns NULL and sets *ret_drv; or returns what is wrong with the name. */
static const char *find_driver(const char *device, const struct gpu_drv **ret_drv)
{
    struct device_name name;
    if (!device_name_parse(device, &name))
        return "a device is GPU-<uuid> or MIG-<uuid> as 'nvidia-smi -L' prints it, cuda:<number>, "
               "or "
               "emu:<number> "
               "for an emulated one";
    *ret_drv = driver_of(&name);
    return *ret_drv != NULL ? NULL
                            : "this binary was built without CUDA: build it with -DKVC_CUDA=ON, or "
                              "use emu:<number>";
}

const char *gpu_name_problem(const char *device)
{
    const struct gpu_drv *drv;
    return find_driver(device, &drv);
}

const char *gpu_device_problem(const char *device)
{
    const struct gpu_drv *drv = NULL;
    const char *problem = find_driver(device, &drv);
    return problem != NULL ? problem : drv->problem();
}

const char *gpu_cuda_text(void)
{
#ifdef KVC_HAVE_CUDA
    const char *problem = gpu_drv_cuda.problem();
    return problem != NULL ? problem : "built with CUDA, and its driver is there";
#else
    return "built without CUDA";
#endif
}

/* --- the control thread's part --- */

struct gpu_control {
    struct gpu gpu; /* first: aligned for the device's thread */
    struct loop *loop;
    struct loop_watch watch; /* of gpu.results */
    pthread_t id;            /* the device's thread, if `started` */
    bool orders_made, results_made, started;
    bool calling; /* a callback runs */
    bool closing; /* gpu_close() has begun */
    bool stuck;   /* out because a call of the driver does not come back */
    bool ticking; /* the timer runs */
    int timer;    /* finds a call that does not come back, while the thread has work; -1: none */
    struct loop_watch tick; /* of the timer */
    uint32_t flying;        /* operations that have not ended */
    /* The device as the control thread knows it: older than what the device's thread knows. */
    enum gpu_state state;
    uint32_t generation;
    struct gpu_dev_info info;
    struct gpu_rates rates;
    char why[GPU_WHY_BYTES];       /* why it is out; "" while it is not */
    char device[GPU_NAME_BYTES];   /* its name in the configuration */
    struct list_node mems;         /* gpu_mem.link: allocated or imported, not being freed */
    struct gpu_copies after_close; /* operations that were submitted while gpu_close() ran */
    struct gpu_metrics metrics;
};

static struct gpu_control *control_of(const struct gpu *g)
{
    return CONTAINER_OF(g, struct gpu_control, gpu);
}

/* --- what comes back --- */

static uint64_t *gauge_of(struct gpu_control *c, const struct gpu_mem *mem)
{
    return mem->imported ? &c->metrics.imported_bytes : &c->metrics.memory_bytes;
}

static void void_all(struct gpu_control *c)
{
    LIST_FOR_EACH_SAFE (node, next, &c->mems) {
        struct gpu_mem *mem = CONTAINER_OF(node, struct gpu_mem, link);
        if (mem->addr != 0)
            *gauge_of(c, mem) -= mem->bytes;
        mem->addr = 0;
    }
}

static void log_up(const struct gpu_control *c)
{
    char to[UNITS_TEXT_BYTES], from[UNITS_TEXT_BYTES];
    const char *mps = c->info.mps ? ", by MPS" : "";
    if (c->rates.plain_to == 0 || c->rates.plain_from == 0)
        LOG_INFO("gpu %s: %s is up%s", c->device, c->info.name, mps);
    else
        LOG_INFO("gpu %s: %s is up%s: %s to it, %s from it", c->device, c->info.name, mps,
                 units_format_rate(c->rates.plain_to, to),
                 units_format_rate(c->rates.plain_from, from));
}

static void log_unmeasured(const struct gpu_control *c, const struct gpu_told *told)
{
    if (!c->gpu.config.calibrate || gpu__is_calibrated(&c->rates))
        return;
    LOG_WARN("gpu %s: %s, so the copy engine makes the copies of the sizes that are not measured, "
             "even where a kernel would be faster; the rest is measured when the device is idle",
             c->device,
             told->measured ? "not all sizes of copies could be measured in time"
                            : "it has no memory (1 MiB) to measure copies with");
}

static void log_lack(const struct gpu_control *c)
{
    char there[UNITS_TEXT_BYTES], wanted[UNITS_TEXT_BYTES];
    if (c->info.free_bytes >= c->gpu.config.wanted_bytes)
        return;
    LOG_WARN("gpu %s: %s of its memory are free, and hbm.devices gives blocks %s: others have the "
             "rest. Blocks take what there is; what workers want to allocate later may fail. Lower "
             "the limit, or end what has the memory (nvidia-smi lists it)",
             c->device, units_format_bytes(c->info.free_bytes, there),
             units_format_bytes(c->gpu.config.wanted_bytes, wanted));
}

/* Asks config.refuse whether the device that came up must not be used; if so, operations that are
 * submitted from now on fail. `changed` is called when the thread has closed the device and has
 * reported it as out. */
static bool is_refused(struct gpu_control *c, const struct gpu_told *told)
{
    if (c->closing || c->gpu.config.refuse == NULL)
        return false;
    const char *why = c->gpu.config.refuse(c->gpu.config.ctx, told->info.uuid);
    if (why == NULL)
        return false;
    c->state = GPU_OUT;
    (void)snprintf(c->gpu.refused, sizeof c->gpu.refused, "%s", why);
    memcpy(c->why, c->gpu.refused, sizeof c->why);
    inbox_post(&c->gpu.orders, &c->gpu.refusal);
    return true;
}

static void gpu_hear(struct gpu_control *c, struct gpu_told *told)
{
    const bool was_stuck = c->stuck;
    c->stuck = c->stuck && told == &c->gpu.measured;
    if (told == &c->gpu.measured) {
        c->rates = told->rates;
        if (gpu__is_calibrated(&c->rates))
            LOG_INFO("gpu %s: copies of all sizes have been measured by now", c->device);
        atomic_store_explicit(&told->on_its_way, false, memory_order_release);
        return;
    }
    if (told == &c->gpu.up && is_refused(c, told)) {
        atomic_store_explicit(&told->on_its_way, false, memory_order_release);
        return;
    }
    if (told == &c->gpu.up) {
        c->state = GPU_UP;
        c->generation = told->generation;
        c->info = told->info;
        c->rates = told->rates;
        c->why[0] = '\0';
        log_up(c);
        log_unmeasured(c, told);
        log_lack(c);
    } else {
        c->state = GPU_OUT;
        memcpy(c->why, told->why, sizeof c->why);
        c->metrics.outs += was_stuck ? 0 : 1;
        void_all(c);
        LOG_WARN("gpu %s: is out: %s", c->device, c->why);
    }
    atomic_store_explicit(&told->on_its_way, false, memory_order_release);
    if (!c->closing && c->gpu.config.changed != NULL)
        c->gpu.config.changed(c->gpu.config.ctx, &c->gpu);
}

static void gpu_forget(struct gpu_mem *mem)
{
    list_remove(&mem->link);
    if (!mem->imported && mem->handle.kind != 0 && mem->handle.fd >= 0)
        (void)close(mem->handle.fd);
    *mem = (struct gpu_mem){.handle = {.fd = -1}};
}

static void finish_copy(struct gpu_control *c, const struct gpu_op *op)
{
    c->metrics.inflight_bytes -= op->bytes;
    if (op->status < 0)
        return;
    c->metrics.copies++;
    c->metrics.copy_bytes += op->bytes;
    c->metrics.copy_frags += op->nfrags;
    histo_add(&c->metrics.copy_ns, op->begun_ns); /* how long it ran, by now */
}

/* Whether operations of this kind end with 0 whatever the device does. */
static bool ends_well(const struct gpu_op *op)
{
    return op->kind == GPU_FREE || op->kind == GPU_UNPIN || op->kind == GPU_NOTHING;
}

/* Makes an operation fail that ended well after the device was given up: the caller was told that
 * all is lost. */
static void end_too_late(struct gpu_op *op)
{
    if (op->status < 0 || ends_well(op))
        return;
    op->status = -EIO;
    if (op->kind == GPU_ALLOC && op->mem->handle.kind != 0 && op->mem->handle.fd >= 0)
        (void)close(op->mem->handle.fd);
    if (op->kind == GPU_ALLOC || op->kind == GPU_IMPORT)
        *op->mem = (struct gpu_mem){.handle = {.fd = -1}};
}

static void gpu_finish(struct gpu_control *c, struct gpu_op *op)
{
    c->flying--;
    if (c->stuck)
        end_too_late(op);
    if (op->status < 0 && op->status != -ECANCELED && op->status != -ETIMEDOUT)
        c->metrics.failures++;
    if (op->kind == GPU_COPY) {
        finish_copy(c, op);
    } else if (op->kind == GPU_FREE) {
        *gauge_of(c, op->mem) -= op->bytes;
        gpu_forget(op->mem);
    } else if ((op->kind == GPU_ALLOC || op->kind == GPU_IMPORT) && op->status == 0) {
        *gauge_of(c, op->mem) += op->mem->bytes;
        list_push_back(&c->mems, &op->mem->link);
    }
    op->done(op);
}

void gpu__deliver(struct gpu *g)
{
    struct gpu_control *c = control_of(g);
    c->calling = true;
    for (struct inbox_item *item = inbox_take(&g->results); item != NULL;) {
        struct inbox_item *next = inbox_next(item);
        if (item == &g->up.item || item == &g->out.item || item == &g->measured.item)
            gpu_hear(c, CONTAINER_OF(item, struct gpu_told, item));
        else
            gpu_finish(c, CONTAINER_OF(item, struct gpu_op, item));
        item = next;
    }
    c->calling = false;
}

static void gpu_on_results(struct loop_watch *watch, uint32_t events)
{
    (void)events;
    gpu__deliver(watch->ctx);
}

/* --- a call of the driver that does not come back --- */

static void set_timer(struct gpu_control *c, bool on)
{
    const uint64_t ns = on ? MAX(c->gpu.config.stuck_ns / STUCK_SHARE, UINT64_C(1000000)) : 0;
    const struct timespec each = {.tv_sec = (time_t)(ns / 1000000000),
                                  .tv_nsec = (long)(ns % 1000000000)};
    const struct itimerspec at = {.it_interval = each, .it_value = each};
    (void)timerfd_settime(c->timer, 0, &at, NULL); /* fails for bad times only */
    c->ticking = on;
}

/* Whether operations in flight still run is unknown, so they stay in flight; the device gets no new
 * ones. */
static void gpu_give_up(struct gpu_control *c)
{
    char limit[UNITS_TEXT_BYTES];
    c->stuck = true;
    c->state = GPU_OUT;
    (void)snprintf(c->gpu.late_why, sizeof c->gpu.late_why,
                   "a call of its driver has not come back for %s; what was in flight ends when it "
                   "does, or with the daemon (dmesg may name an Xid)",
                   units_format_duration_ns(c->gpu.config.stuck_ns, limit));
    memcpy(c->why, c->gpu.late_why, sizeof c->why);
    c->metrics.outs++;
    void_all(c);
    LOG_ERROR("gpu %s: is out: %s", c->device, c->why);
    c->gpu.late_generation = c->generation;
    inbox_post(&c->gpu.orders, &c->gpu.late);
    if (!c->closing && c->gpu.config.changed != NULL)
        c->gpu.config.changed(c->gpu.config.ctx, &c->gpu);
}

static void on_tick(struct loop_watch *watch, uint32_t events)
{
    struct gpu_control *c = watch->ctx;
    uint64_t ticks;
    (void)events;
    if (read(c->timer, &ticks, sizeof ticks) < 0)
        return; /* not yet */
    const uint64_t since = atomic_load_explicit(&c->gpu.since_ns, memory_order_relaxed);
    const uint64_t now = clock_now_ns();
    if (since != 0 && now > since && now - since >= c->gpu.config.stuck_ns && c->state != GPU_OUT)
        gpu_give_up(c);
    if (c->flying == 0 && c->state != GPU_STARTING)
        set_timer(c, false);
}

/* --- operations --- */

static void prepare_copy(struct gpu_control *c, struct gpu_op *op)
{
    atomic_store_explicit(&op->revoke.seen, false, memory_order_relaxed);
    if (op->next_piece != NULL) {
        MUST(op->bytes > 0);
        op->nfrags = 0; /* counted as they are made */
        op->given = false;
    } else {
        MUST(op->nfrags <= GPU_FRAGS_MAX);
        MUST(op->direction >= GPU_TO_DEVICE && op->direction <= GPU_ON_DEVICE);
        op->bytes = 0;
        for (uint32_t i = 0; i < op->nfrags; i++) {
            MUST(op->frag[i].bytes > 0);
            op->bytes += op->frag[i].bytes;
        }
        op->given = op->nfrags == 0;
    }
    c->metrics.inflight_bytes += op->bytes;
}

/* Takes the memory off the list: from here on the device's thread may use the struct, so void_all()
 * must not. */
static void prepare_free(struct gpu_op *op)
{
    op->bytes = op->mem->addr != 0 ? op->mem->bytes : 0;
    if (list_is_linked(&op->mem->link))
        list_remove(&op->mem->link);
}

void gpu_submit(struct gpu *g, struct gpu_op *op)
{
    struct gpu_control *c = control_of(g);
    MUST(op->done != NULL && op->kind >= GPU_ALLOC && op->kind <= GPU_NOTHING);
    op->status = 0;
    op->begun_ns = 0;
    op->part_bytes = 0;
    op->given_bytes = 0;
    op->turn = 0;
    op->waits = false;
    op->at = 0;
    op->mark_at = 0;
    /* Its addresses are those of the generation that this thread knows. If the device has gone out
     * since, they mean nothing any more, even when it is up again. */
    op->generation = c->state == GPU_STARTING ? 1 : c->state == GPU_UP ? c->generation : 0;
    if (op->kind == GPU_COPY)
        prepare_copy(c, op);
    else if (op->kind == GPU_FREE)
        prepare_free(op);
    c->flying++;
    if (!c->ticking && !c->closing)
        set_timer(c, true);
    if (c->closing) {
        gpu__copies_push(&c->after_close, op);
    } else if (op->kind == GPU_NOTHING) {
        inbox_post(&c->gpu.results, &op->item);
    } else if (c->stuck && op->kind != GPU_FREE && op->kind != GPU_UNPIN) {
        op->status = -EIO;
        inbox_post(&c->gpu.results, &op->item);
    } else {
        inbox_post(&c->gpu.orders, &op->item);
    }
}

/* --- open, close --- */

static int gpu_start(struct gpu_control *c)
{
    c->gpu.thread.pin = sys_calloc(GPU_PINS_MAX, sizeof(c->gpu.thread.pin[0]));
    if (c->gpu.thread.pin == NULL)
        return -ENOMEM;
    c->timer = sys_timerfd(TFD_NONBLOCK);
    if (c->timer < 0)
        return -errno;
    int err = inbox_create(&c->gpu.orders);
    c->orders_made = err == 0;
    if (err == 0) {
        err = inbox_create(&c->gpu.results);
        c->results_made = err == 0;
    }
    if (err < 0)
        return err;
    c->watch = (struct loop_watch){
        .fn = gpu_on_results, .ctx = &c->gpu, .fd = inbox_fd(&c->gpu.results), .events = EPOLLIN};
    c->tick = (struct loop_watch){.fn = on_tick, .ctx = c, .fd = c->timer, .events = EPOLLIN};
    err = loop_watch_add(c->loop, &c->watch);
    if (err == 0)
        err = loop_watch_add(c->loop, &c->tick);
    if (err == 0) {
        set_timer(c, true);
        err = thread_start("kvc-gpu", gpu__main, &c->gpu, &c->id);
        c->started = err == 0;
    }
    return err;
}

static void configure(struct gpu_control *c, const struct gpu_config *config)
{
    c->gpu.config = *config;
    memcpy(c->device, config->device, strlen(config->device) + 1);
    c->gpu.config.device = c->device;
    if (c->gpu.config.inflight_bytes == 0)
        c->gpu.config.inflight_bytes = INFLIGHT_DEFAULT;
    c->metrics.credit_bytes = c->gpu.config.inflight_bytes;
    if (c->gpu.config.retry_ns == 0)
        c->gpu.config.retry_ns = RETRY_DEFAULT_NS;
    if (c->gpu.config.stuck_ns == 0)
        c->gpu.config.stuck_ns = STUCK_NS;
    if (c->gpu.config.recalibrate_ns == 0)
        c->gpu.config.recalibrate_ns = RECALIBRATE_NS;
    const uint64_t share = c->gpu.config.inflight_bytes / PIECE_SHARE;
    c->gpu.piece_bytes = MAX(MIN(share, PIECE_BYTES_MAX), PIECE_BYTES_MIN);
}

void gpu__begin_close(struct gpu *g)
{
    control_of(g)->closing = true;
}

static void end_after_close(struct gpu_control *c)
{
    while (c->after_close.head != NULL) {
        struct gpu_op *op = gpu__copies_take(&c->after_close, &c->after_close.head);
        op->status = ends_well(op) ? 0 : -ECANCELED;
        gpu_finish(c, op);
    }
}

/* Also ends what gpu_open() has begun when it fails. */
static void control_close(struct gpu_control *c)
{
    MUST(!c->calling);
    gpu__begin_close(&c->gpu);
    if (c->stuck)
        LOG_WARN("gpu %s: waiting for %s; a SIGKILL is safe", c->device, c->why);
    if (c->started) {
        inbox_post(&c->gpu.orders, &c->gpu.bell);
        (void)pthread_join(c->id, NULL);
    }
    loop_watch_del(c->loop, &c->watch);
    loop_watch_del(c->loop, &c->tick);
    if (c->timer >= 0)
        (void)close(c->timer);
    if (c->results_made) {
        gpu__deliver(&c->gpu);
        end_after_close(c);
        inbox_destroy(&c->gpu.results);
    }
    if (c->orders_made)
        inbox_destroy(&c->gpu.orders);
    LIST_FOR_EACH_SAFE (node, next, &c->mems)
        gpu_forget(CONTAINER_OF(node, struct gpu_mem, link));
    free(c->gpu.thread.pin);
    free(c);
}

int gpu_open(const struct gpu_config *config, struct loop *loop, struct gpu **ret_gpu)
{
    const struct gpu_drv *drv = NULL;
    if (find_driver(config->device, &drv) != NULL)
        return -EINVAL;
    struct gpu_control *c = sys_aligned_alloc(64, sizeof(*c));
    if (c == NULL)
        return -ENOMEM;
    memset(c, 0, sizeof(*c));
    c->loop = loop;
    c->timer = -1;
    c->gpu.drv = drv;
    configure(c, config);
    list_init(&c->mems);
    gpu__copies_init(&c->after_close);
    gpu__copies_init(&c->gpu.thread.copies);
    gpu__copies_init(&c->gpu.thread.allocs);
    const int err = gpu_start(c);
    if (err < 0) {
        control_close(c);
        return err;
    }
    *ret_gpu = &c->gpu;
    return 0;
}

void gpu_close(struct gpu **gpu)
{
    if (gpu == NULL || *gpu == NULL)
        return;
    control_close(control_of(*gpu));
    *gpu = NULL;
}

/* --- what is known --- */

uint32_t gpu_waiting(const struct gpu *g)
{
    return atomic_load_explicit(&g->waiting, memory_order_relaxed);
}

enum gpu_state gpu_state(const struct gpu *g)
{
    return control_of(g)->state;
}

const char *gpu_why(const struct gpu *g)
{
    return control_of(g)->why;
}

uint32_t gpu_generation(const struct gpu *g)
{
    return control_of(g)->generation;
}

const char *gpu_name(const struct gpu *g)
{
    return control_of(g)->info.name;
}

const uint8_t *gpu_uuid(const struct gpu *g)
{
    return control_of(g)->info.uuid;
}

bool gpu_is_emulated(const struct gpu *g)
{
    return g->drv == &gpu_drv_emu;
}

bool gpu_has_kernel(const struct gpu *g)
{
    return control_of(g)->info.has_kernel;
}

enum device_handle_kind gpu_exports(const struct gpu *g)
{
    return control_of(g)->info.exports;
}

const struct gpu_rates *gpu_rates(const struct gpu *g)
{
    return &control_of(g)->rates;
}

enum gpu_path gpu_path_of(const struct gpu *g, enum gpu_direction direction, uint64_t frag_bytes)
{
    return gpu__path(&control_of(g)->rates, direction, frag_bytes);
}

const struct gpu_metrics *gpu_metrics(const struct gpu *g)
{
    return &control_of(g)->metrics;
}
