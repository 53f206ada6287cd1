/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control thread's half of a device: operations are given to the device's thread and come back
 * ended, and news of the device arrives between them.
 *
 * Descriptors that are handed out are duplicates, and closed here. The device's thread may lose the
 * driver's own at any time, and a number that the control thread is about to send to a worker must
 * not be another file's by then.
 */
#include <ctype.h>
#include <fcntl.h>
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
/* How often it is looked whether it is. */
#define STUCK_SHARE 4u
/* Of the credit, so that the driver has the next piece while it works on one. */
#define PIECE_SHARE     8u
#define PIECE_BYTES_MAX (UINT64_C(8) << 20)
#define PIECE_BYTES_MIN UINT64_C(4096)

/* --- devices --- */

/* NULL: this binary has none for it. */
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

/* NULL, and the driver; or what is wrong. */
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

/* --- what comes back --- */

static uint64_t *gauge_of(struct gpu *g, const struct gpu_mem *mem)
{
    return mem->imported ? &g->metrics.imported_bytes : &g->metrics.memory_bytes;
}

static void void_all(struct gpu *g)
{
    LIST_FOR_EACH_SAFE (node, next, &g->mems) {
        struct gpu_mem *mem = CONTAINER_OF(node, struct gpu_mem, link);
        if (mem->addr != 0)
            *gauge_of(g, mem) -= mem->bytes;
        mem->addr = 0;
    }
}

static void log_up(const struct gpu *g)
{
    char to[UNITS_TEXT_BYTES], from[UNITS_TEXT_BYTES];
    const char *mps = g->info.mps ? ", by MPS" : "";
    if (g->rates.plain_to == 0 || g->rates.plain_from == 0)
        LOG_INFO("gpu %s: %s is up%s", g->device, g->info.name, mps);
    else
        LOG_INFO("gpu %s: %s is up%s: %s to it, %s from it", g->device, g->info.name, mps,
                 units_format_rate(g->rates.plain_to, to),
                 units_format_rate(g->rates.plain_from, from));
}

static void log_unmeasured(const struct gpu *g, const struct gpu_told *told)
{
    if (!g->config.calibrate || gpu__is_calibrated(&g->rates))
        return;
    LOG_WARN("gpu %s: %s: until then the copy engine makes the copies whose size is not known, "
             "even where a kernel would be faster; it is tried again when the device is idle",
             g->device,
             told->measured ? "not all sizes of copies could be measured in time"
                            : "it has no memory (1 MiB) to measure copies with");
}

static void log_lack(const struct gpu *g)
{
    char there[UNITS_TEXT_BYTES], wanted[UNITS_TEXT_BYTES];
    if (g->info.free_bytes >= g->config.wanted_bytes)
        return;
    LOG_WARN("gpu %s: %s of its memory are free, and hbm.devices gives blocks %s: others have the "
             "rest. Blocks take what there is; what workers want to allocate later may fail. Lower "
             "the limit, or end what has the memory (nvidia-smi lists it)",
             g->device, units_format_bytes(g->info.free_bytes, there),
             units_format_bytes(g->config.wanted_bytes, wanted));
}

/* Nothing that is submitted from now on reaches it. It is heard to be out when the thread has
 * closed it, as of any other. */
static bool is_refused(struct gpu *g, const struct gpu_told *told)
{
    if (g->closing || g->config.refuse == NULL)
        return false;
    const char *why = g->config.refuse(g->config.ctx, told->info.uuid);
    if (why == NULL)
        return false;
    g->state = GPU_OUT;
    (void)snprintf(g->refused, sizeof g->refused, "%s", why);
    memcpy(g->why, g->refused, sizeof g->why);
    inbox_post(&g->orders, &g->refusal);
    return true;
}

static void gpu_hear(struct gpu *g, struct gpu_told *told)
{
    const bool was_stuck = g->stuck;
    g->stuck = g->stuck && told == &g->measured;
    if (told == &g->measured) {
        g->rates = told->rates;
        if (gpu__is_calibrated(&g->rates))
            LOG_INFO("gpu %s: copies of all sizes have been measured by now", g->device);
        atomic_store_explicit(&told->on_its_way, false, memory_order_release);
        return;
    }
    if (told == &g->up && is_refused(g, told)) {
        atomic_store_explicit(&told->on_its_way, false, memory_order_release);
        return;
    }
    if (told == &g->up) {
        g->state = GPU_UP;
        g->generation = told->generation;
        g->info = told->info;
        g->rates = told->rates;
        g->why[0] = '\0';
        log_up(g);
        log_unmeasured(g, told);
        log_lack(g);
    } else {
        g->state = GPU_OUT;
        memcpy(g->why, told->why, sizeof g->why);
        g->metrics.outs += was_stuck ? 0 : 1;
        void_all(g);
        LOG_WARN("gpu %s: is out: %s", g->device, g->why);
    }
    atomic_store_explicit(&told->on_its_way, false, memory_order_release);
    if (!g->closing && g->config.changed != NULL)
        g->config.changed(g->config.ctx, g);
}

static void gpu_forget(struct gpu_mem *mem)
{
    list_remove(&mem->link);
    if (!mem->imported && mem->handle.kind != 0 && mem->handle.fd >= 0)
        (void)close(mem->handle.fd);
    *mem = (struct gpu_mem){.handle = {.fd = -1}};
}

static void finish_copy(struct gpu *g, const struct gpu_op *op)
{
    g->metrics.inflight_bytes -= op->bytes;
    if (op->status < 0)
        return;
    g->metrics.copies++;
    g->metrics.copy_bytes += op->bytes;
    g->metrics.copy_frags += op->nfrags;
    histo_add(&g->metrics.copy_ns, op->begun_ns); /* how long it ran, by now */
}

/* Whatever the device does. */
static bool ends_well(const struct gpu_op *op)
{
    return op->kind == GPU_FREE || op->kind == GPU_UNPIN || op->kind == GPU_NOTHING;
}

/* It ended well when the device had been given up: its owner has been told that all is lost. */
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

static void gpu_finish(struct gpu *g, struct gpu_op *op)
{
    g->flying--;
    if (g->stuck)
        end_too_late(op);
    if (op->status < 0 && op->status != -ECANCELED && op->status != -ETIMEDOUT)
        g->metrics.failures++;
    if (op->kind == GPU_COPY) {
        finish_copy(g, op);
    } else if (op->kind == GPU_FREE) {
        *gauge_of(g, op->mem) -= op->bytes;
        gpu_forget(op->mem);
    } else if ((op->kind == GPU_ALLOC || op->kind == GPU_IMPORT) && op->status == 0) {
        *gauge_of(g, op->mem) += op->mem->bytes;
        list_push_back(&g->mems, &op->mem->link);
    }
    op->done(op);
}

static void deliver(struct gpu *g)
{
    g->calling = true;
    for (struct inbox_item *item = inbox_take(&g->results); item != NULL;) {
        struct inbox_item *next = inbox_next(item);
        if (item == &g->up.item || item == &g->out.item || item == &g->measured.item)
            gpu_hear(g, CONTAINER_OF(item, struct gpu_told, item));
        else
            gpu_finish(g, CONTAINER_OF(item, struct gpu_op, item));
        item = next;
    }
    g->calling = false;
}

static void gpu_on_results(struct loop_watch *watch, uint32_t events)
{
    (void)events;
    deliver(watch->ctx);
}

/* --- a call of the driver that does not come back --- */

static void set_timer(struct gpu *g, bool on)
{
    const uint64_t ns = on ? MAX(g->config.stuck_ns / STUCK_SHARE, UINT64_C(1000000)) : 0;
    const struct timespec each = {.tv_sec = (time_t)(ns / 1000000000),
                                  .tv_nsec = (long)(ns % 1000000000)};
    const struct itimerspec at = {.it_interval = each, .it_value = each};
    (void)timerfd_settime(g->timer, 0, &at, NULL); /* fails for bad times only */
    g->ticking = on;
}

/* Nothing is known of what is in flight, so it stays so; nothing more is given to the device. */
static void gpu_give_up(struct gpu *g)
{
    char limit[UNITS_TEXT_BYTES];
    g->stuck = true;
    g->state = GPU_OUT;
    (void)snprintf(g->late_why, sizeof g->late_why,
                   "a call of its driver has not come back for %s; what was in flight ends when it "
                   "does, or with the daemon (dmesg may name an Xid)",
                   units_format_duration_ns(g->config.stuck_ns, limit));
    memcpy(g->why, g->late_why, sizeof g->why);
    g->metrics.outs++;
    void_all(g);
    LOG_ERROR("gpu %s: is out: %s", g->device, g->why);
    g->late_generation = g->generation;
    inbox_post(&g->orders, &g->late);
    if (!g->closing && g->config.changed != NULL)
        g->config.changed(g->config.ctx, g);
}

static void on_tick(struct loop_watch *watch, uint32_t events)
{
    struct gpu *g = watch->ctx;
    uint64_t ticks;
    (void)events;
    if (read(g->timer, &ticks, sizeof ticks) < 0)
        return; /* not yet */
    const uint64_t since = atomic_load_explicit(&g->since_ns, memory_order_relaxed);
    const uint64_t now = clock_now_ns();
    if (since != 0 && now > since && now - since >= g->config.stuck_ns && g->state != GPU_OUT)
        gpu_give_up(g);
    if (g->flying == 0 && g->state != GPU_STARTING)
        set_timer(g, false);
}

/* --- operations --- */

static void prepare_copy(struct gpu *g, struct gpu_op *op)
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
    g->metrics.inflight_bytes += op->bytes;
}

/* From here on the device's thread may look at it, and going out does not touch it any more. */
static void prepare_free(struct gpu_op *op)
{
    op->bytes = op->mem->addr != 0 ? op->mem->bytes : 0;
    if (list_is_linked(&op->mem->link))
        list_remove(&op->mem->link);
}

void gpu_submit(struct gpu *g, struct gpu_op *op)
{
    MUST(op->done != NULL && op->kind >= GPU_ALLOC && op->kind <= GPU_NOTHING);
    op->status = 0;
    op->begun_ns = 0;
    op->part_bytes = 0;
    op->given_bytes = 0;
    op->turn = 0;
    op->waits = false;
    op->at = 0;
    op->mark_at = 0;
    /* What it names is of the device as this thread knows it: if that has gone out since, even when
     * it is back, the addresses mean nothing any more. */
    op->generation = g->state == GPU_STARTING ? 1 : g->state == GPU_UP ? g->generation : 0;
    if (op->kind == GPU_COPY)
        prepare_copy(g, op);
    else if (op->kind == GPU_FREE)
        prepare_free(op);
    g->flying++;
    if (!g->ticking && !g->closing)
        set_timer(g, true);
    if (g->closing) {
        gpu__copies_push(&g->after_close, op);
    } else if (op->kind == GPU_NOTHING) {
        inbox_post(&g->results, &op->item);
    } else if (g->stuck && op->kind != GPU_FREE && op->kind != GPU_UNPIN) {
        op->status = -EIO;
        inbox_post(&g->results, &op->item);
    } else {
        inbox_post(&g->orders, &op->item);
    }
}

/* --- open, close --- */

static int gpu_start(struct gpu *g)
{
    g->thread.pin = sys_calloc(GPU_PINS_MAX, sizeof(g->thread.pin[0]));
    if (g->thread.pin == NULL)
        return -ENOMEM;
    g->timer = sys_timerfd(TFD_NONBLOCK);
    if (g->timer < 0)
        return -errno;
    int err = inbox_create(&g->orders);
    g->orders_made = err == 0;
    if (err == 0) {
        err = inbox_create(&g->results);
        g->results_made = err == 0;
    }
    if (err < 0)
        return err;
    g->watch = (struct loop_watch){
        .fn = gpu_on_results, .ctx = g, .fd = inbox_fd(&g->results), .events = EPOLLIN};
    g->tick = (struct loop_watch){.fn = on_tick, .ctx = g, .fd = g->timer, .events = EPOLLIN};
    err = loop_watch_add(g->loop, &g->watch);
    if (err == 0)
        err = loop_watch_add(g->loop, &g->tick);
    if (err == 0) {
        set_timer(g, true);
        err = thread_start("kvc-gpu", gpu__main, g, &g->id);
        g->started = err == 0;
    }
    return err;
}

static void configure(struct gpu *g, const struct gpu_config *config)
{
    g->config = *config;
    memcpy(g->device, config->device, strlen(config->device) + 1);
    g->config.device = g->device;
    if (g->config.inflight_bytes == 0)
        g->config.inflight_bytes = INFLIGHT_DEFAULT;
    g->metrics.credit_bytes = g->config.inflight_bytes;
    if (g->config.retry_ns == 0)
        g->config.retry_ns = RETRY_DEFAULT_NS;
    if (g->config.stuck_ns == 0)
        g->config.stuck_ns = STUCK_NS;
    if (g->config.recalibrate_ns == 0)
        g->config.recalibrate_ns = RECALIBRATE_NS;
    const uint64_t share = g->config.inflight_bytes / PIECE_SHARE;
    g->piece_bytes = MAX(MIN(share, PIECE_BYTES_MAX), PIECE_BYTES_MIN);
}

int gpu_open(const struct gpu_config *config, struct loop *loop, struct gpu **ret_gpu)
{
    const struct gpu_drv *drv = NULL;
    if (find_driver(config->device, &drv) != NULL)
        return -EINVAL;
    struct gpu *g = sys_aligned_alloc(64, sizeof(*g));
    if (g == NULL)
        return -ENOMEM;
    memset(g, 0, sizeof(*g));
    g->loop = loop;
    g->timer = -1;
    g->drv = drv;
    configure(g, config);
    list_init(&g->mems);
    gpu__copies_init(&g->after_close);
    gpu__copies_init(&g->thread.copies);
    gpu__copies_init(&g->thread.allocs);
    const int err = gpu_start(g);
    if (err < 0) {
        gpu_close(&g);
        return err;
    }
    *ret_gpu = g;
    return 0;
}

static void end_after_close(struct gpu *g)
{
    while (g->after_close.head != NULL) {
        struct gpu_op *op = gpu__copies_take(&g->after_close, &g->after_close.head);
        op->status = ends_well(op) ? 0 : -ECANCELED;
        gpu_finish(g, op);
    }
}

void gpu_close(struct gpu **gpu)
{
    if (gpu == NULL || *gpu == NULL)
        return;
    struct gpu *g = *gpu;
    MUST(!g->calling);
    g->closing = true;
    if (g->stuck)
        LOG_WARN("gpu %s: waiting for %s; a SIGKILL is safe", g->device, g->why);
    if (g->started) {
        inbox_post(&g->orders, &g->bell);
        (void)pthread_join(g->id, NULL);
    }
    loop_watch_del(g->loop, &g->watch);
    loop_watch_del(g->loop, &g->tick);
    if (g->timer >= 0)
        (void)close(g->timer);
    if (g->results_made) {
        deliver(g);
        end_after_close(g);
        inbox_destroy(&g->results);
    }
    if (g->orders_made)
        inbox_destroy(&g->orders);
    LIST_FOR_EACH_SAFE (node, next, &g->mems)
        gpu_forget(CONTAINER_OF(node, struct gpu_mem, link));
    free(g->thread.pin);
    free(g);
    *gpu = NULL;
}

/* --- what is known --- */

uint32_t gpu_waiting(const struct gpu *g)
{
    return atomic_load_explicit(&g->waiting, memory_order_relaxed);
}

enum gpu_state gpu_state(const struct gpu *g)
{
    return g->state;
}

const char *gpu_why(const struct gpu *g)
{
    return g->why;
}

uint32_t gpu_generation(const struct gpu *g)
{
    return g->generation;
}

const char *gpu_name(const struct gpu *g)
{
    return g->info.name;
}

const uint8_t *gpu_uuid(const struct gpu *g)
{
    return g->info.uuid;
}

bool gpu_is_emulated(const struct gpu *g)
{
    return g->drv == &gpu_drv_emu;
}

bool gpu_has_kernel(const struct gpu *g)
{
    return g->info.has_kernel;
}

enum device_handle_kind gpu_exports(const struct gpu *g)
{
    return g->info.exports;
}

const struct gpu_rates *gpu_rates(const struct gpu *g)
{
    return &g->rates;
}

enum gpu_path gpu_path_of(const struct gpu *g, enum gpu_direction direction, uint64_t frag_bytes)
{
    return gpu__path(&g->rates, direction, frag_bytes);
}

const struct gpu_metrics *gpu_metrics(const struct gpu *g)
{
    return &g->metrics;
}
