/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated device: memory is memfds, a thread of its own copies, and it fails when told to.
 * Tests and benchmarks run on it where there is no GPU.
 *
 * A copy moves its bytes when it is due, not when it begins: a reader or writer that is too early
 * finds wrong bytes, as with a real device.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "device_name.h"
#include "emu_mem.h"
#include "gpu__.h"
#include "gpu_span.h"
#include "sys.h"
#include "thread.h"

#define MEMORY_DEFAULT (UINT64_C(1) << 30)
#define PAGE_BYTES     UINT64_C(4096)

struct emu_job {
    uint32_t n;
    enum gpu_path path;
    uint64_t due_ns; /* 0: at once */
    struct gpu_revoke *revoke;
    bool fails;
};

struct gpu_dev {
    /* the device's thread */
    struct gpu_emu_config config;
    uint64_t used_bytes;
    struct gpu_spans mem;
    uint32_t mem_hit;
    bool broken;
    char why[GPU_WHY_BYTES];
    uint64_t given;   /* number of copies given: the ticket of the last one */
    uint64_t link_ns; /* when all copies given so far end, at bytes_per_s */
    pthread_t id;
    bool started;

    /* under `lock`; a job that was given belongs to the copying thread until it has ended */
    pthread_mutex_t lock;
    pthread_cond_t work;
    uint64_t queued;
    bool stop;
    struct emu_job job[GPU_DRV_COPIES_MAX];
    struct kvc_frag (*frag)[GPU_DRV_FRAGS_MAX]; /* by job: its fragments */

    /* any thread */
    _Atomic uint64_t ended;
    _Atomic bool failed; /* true: no further job is copied */
};

/* --- faults --- */

enum emu_fault { EMU_WELL, EMU_STICKY, EMU_LOST, EMU_OOM };

static enum emu_fault gpu_emu_look(const char *file)
{
    static const char *const words[] = {"", "sticky", "lost", "oom"};
    char text[16] = "";
    const int fd = file != NULL ? sys_open(file, O_RDONLY, 0) : -1;
    if (fd >= 0) {
        const ssize_t n = read(fd, text, sizeof(text) - 1);
        text[n > 0 ? (size_t)n : 0] = '\0';
        (void)close(fd);
    }
    text[strcspn(text, " \t\r\n")] = '\0';
    for (unsigned i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(text, words[i]) == 0)
            return (enum emu_fault)i;
    return EMU_WELL;
}

static int break_down(struct gpu_dev *d, const char *why)
{
    if (!d->broken)
        (void)snprintf(d->why, sizeof(d->why), "%s", why);
    d->broken = true;
    return -EIO;
}

/* Called before each operation: the fault file's error. 0, -EIO or -ENOMEM. */
static int strike(struct gpu_dev *d)
{
    if (d->broken)
        return -EIO;
    switch (gpu_emu_look(d->config.fault_file)) {
    case EMU_STICKY:
        return break_down(d, "the fault file says sticky: every operation fails");
    case EMU_LOST:
        return break_down(d, "the fault file says lost: the device is gone");
    case EMU_OOM:
        return -ENOMEM;
    default:
        return 0;
    }
}

/* --- memory --- */

static void mem_drop(struct gpu_dev *d, struct gpu_span *span)
{
    if (span->range.has_file)
        d->used_bytes -= span->range.bytes;
    emu_mem_free(&span->range);
}

static void mem_add(struct gpu_dev *d, struct gpu_span *span, uint64_t bytes, struct gpu_mem *mem)
{
    span->start = span->range.at;
    span->end = span->range.at + bytes;
    gpu_span_add(&d->mem, span);
    mem->addr = span->start;
    mem->bytes = bytes;
}

static int emu_alloc(struct gpu_dev *d, uint64_t bytes, struct gpu_mem *mem, uint64_t *ret_ticket)
{
    struct gpu_span span = {.fd = -1};
    int err = strike(d);
    if (err == 0 && bytes > d->config.memory_bytes)
        err = -ENOMEM;
    if (err == 0 && ROUND_UP(bytes, PAGE_BYTES) > d->config.memory_bytes - d->used_bytes)
        err = -ENOMEM;
    if (err == 0)
        err = gpu_span_room(&d->mem);
    if (err == 0)
        err = emu_mem_make(bytes, EMU_FOR_READING, &span.range);
    if (err < 0)
        return err;
    d->used_bytes += span.range.bytes;
    mem_add(d, &span, bytes, mem);
    emu_mem_export(&span.range, bytes, &mem->handle);
    *ret_ticket = 0; /* a new file is zero */
    return 0;
}

static int emu_import(struct gpu_dev *d, const struct device_handle *handle, struct gpu_mem *mem)
{
    struct gpu_span span = {.fd = -1};
    int err = strike(d);
    if (err < 0)
        return err;
    if (handle->kind == DEVICE_HANDLE_FD || handle->kind == DEVICE_HANDLE_IPC)
        return -EOPNOTSUPP;
    err = gpu_span_room(&d->mem);
    if (err == 0)
        err = emu_mem_import(handle, false, &span.range);
    if (err == 0)
        mem_add(d, &span, handle->bytes, mem);
    return err;
}

static void emu_free(struct gpu_dev *d, struct gpu_mem *mem)
{
    uint64_t next;
    struct gpu_span *span = gpu_span_find(&d->mem, mem->addr, &d->mem_hit, &next);
    MUST(span != NULL && span->start == mem->addr);
    mem_drop(d, span);
    gpu_span_remove(&d->mem, span);
}

static int emu_pin(struct gpu_dev *d, void *host, uint64_t bytes)
{
    (void)host;
    (void)bytes;
    return strike(d);
}

static void emu_unpin(struct gpu_dev *d, void *host, uint64_t bytes)
{
    (void)d;
    (void)host;
    (void)bytes;
}

/* --- the copying thread --- */

/* Called with the lock held. False: the thread must stop. */
static bool wait_until_due(struct gpu_dev *d, uint64_t due_ns)
{
    const struct timespec ts = {.tv_sec = (time_t)(due_ns / 1000000000),
                                .tv_nsec = (long)(due_ns % 1000000000)};
    while (!d->stop && due_ns != 0 && clock_now_ns() < due_ns)
        (void)pthread_cond_timedwait(&d->work, &d->lock, &ts);
    return !d->stop;
}

static void *emu_main(void *arg)
{
    struct gpu_dev *d = arg;
    (void)pthread_mutex_lock(&d->lock);
    for (uint64_t ticket = 1; !d->stop; ticket++) {
        while (!d->stop && d->queued < ticket)
            (void)pthread_cond_wait(&d->work, &d->lock);
        const struct emu_job *job = &d->job[ticket % GPU_DRV_COPIES_MAX];
        if (d->stop || !wait_until_due(d, job->due_ns))
            break;
        (void)pthread_mutex_unlock(&d->lock);
        if (job->fails) {
            atomic_store_explicit(&d->failed, true, memory_order_release);
            return NULL;
        }
        const struct kvc_frag *frag = d->frag[ticket % GPU_DRV_COPIES_MAX];
        if (gpu_is_revoked(job->revoke))
            ; /* it ends with nothing copied */
        else if (job->path == GPU_PATH_KERNEL)
            kvc_copy_frags_cpu(frag, job->n);
        else
            kvc_stream_frags_cpu(frag, job->n);
        atomic_store_explicit(&d->ended, ticket, memory_order_release);
        (void)pthread_mutex_lock(&d->lock);
    }
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

static uint64_t due_ns(struct gpu_dev *d, const struct kvc_frag *frag, uint32_t n)
{
    const struct gpu_emu_config *config = &d->config;
    if (config->latency_ns == 0 && config->bytes_per_s == 0)
        return 0;
    const uint64_t now = clock_now_ns();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += frag[i].bytes;
    d->link_ns = MAX(d->link_ns, now);
    if (config->bytes_per_s > 0)
        d->link_ns += (uint64_t)((double)bytes * 1e9 / (double)config->bytes_per_s);
    return MAX(d->link_ns, now + config->latency_ns);
}

static bool are_addresses(struct gpu_dev *d, enum gpu_direction direction,
                          const struct kvc_frag *frag, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (direction != GPU_FROM_DEVICE &&
            !gpu_span_holds(&d->mem, frag[i].to, frag[i].bytes, &d->mem_hit))
            return false;
        if (direction != GPU_TO_DEVICE &&
            !gpu_span_holds(&d->mem, frag[i].from, frag[i].bytes, &d->mem_hit))
            return false;
    }
    return true;
}

static int emu_copy(struct gpu_dev *d, enum gpu_path path, enum gpu_direction direction,
                    const struct kvc_frag *frag, uint32_t n, struct gpu_revoke *revoke,
                    uint64_t *ret_ticket)
{
    MUST(n > 0 && n <= GPU_DRV_FRAGS_MAX);
    MUST(d->given - atomic_load_explicit(&d->ended, memory_order_relaxed) < GPU_DRV_COPIES_MAX);
    if (d->broken)
        return -EIO;
    /* A failure of a copy shows later, when the copy is polled. */
    const bool fails = strike(d) == -EIO;
    if (!fails && !are_addresses(d, direction, frag, n))
        return -EINVAL;
    const uint64_t ticket = ++d->given;
    struct emu_job *job = &d->job[ticket % GPU_DRV_COPIES_MAX];
    *job = (struct emu_job){
        .n = n, .path = path, .due_ns = due_ns(d, frag, n), .revoke = revoke, .fails = fails};
    memcpy(d->frag[ticket % GPU_DRV_COPIES_MAX], frag, n * sizeof(frag[0]));
    (void)pthread_mutex_lock(&d->lock);
    d->queued = ticket;
    (void)pthread_cond_signal(&d->work);
    (void)pthread_mutex_unlock(&d->lock);
    *ret_ticket = ticket;
    return 0;
}

static int emu_poll(struct gpu_dev *d, uint64_t ticket)
{
    if (atomic_load_explicit(&d->ended, memory_order_acquire) >= ticket)
        return 1;
    return atomic_load_explicit(&d->failed, memory_order_acquire) ? -EIO : 0;
}

/* --- open, close --- */

static void emu_close(struct gpu_dev *d)
{
    (void)pthread_mutex_lock(&d->lock);
    d->stop = true;
    (void)pthread_cond_signal(&d->work);
    (void)pthread_mutex_unlock(&d->lock);
    if (d->started)
        (void)pthread_join(d->id, NULL); /* ends after its current copy */
    for (uint32_t i = 0; i < d->mem.n; i++)
        mem_drop(d, &d->mem.at[i]);
    if (d->frag != NULL)
        (void)munmap(d->frag, GPU_DRV_COPIES_MAX * sizeof(d->frag[0]));
    (void)pthread_cond_destroy(&d->work);
    (void)pthread_mutex_destroy(&d->lock);
    free(d->mem.at);
    free(d);
}

static int gpu_emu_start(struct gpu_dev *d)
{
    d->frag = sys_pages(GPU_DRV_COPIES_MAX * sizeof(d->frag[0]));
    if (d->frag == NULL)
        return -ENOMEM;
    const int err = thread_start("kvc-emu", emu_main, d, &d->id);
    d->started = err == 0;
    return err;
}

static void describe(const char *device, struct gpu_dev_info *ret_info)
{
    struct device_name name;
    const bool is_name = device_name_parse(device, &name);
    MUST(is_name);                                              /* gpu_open() has looked */
    *ret_info = (struct gpu_dev_info){.free_bytes = UINT64_MAX, /* what is not there is -ENOMEM */
                                      .name = "emulated",
                                      .exports = DEVICE_HANDLE_EMU,
                                      .has_kernel = true};
    device_name_emu_uuid(name.number, ret_info->uuid);
}

static int emu_open(const struct gpu_config *config, struct gpu_dev **ret_dev,
                    struct gpu_dev_info *ret_info, char ret_why[GPU_WHY_BYTES])
{
    const enum emu_fault fault = gpu_emu_look(config->emu.fault_file);
    if (fault == EMU_STICKY || fault == EMU_LOST) {
        (void)snprintf(ret_why, GPU_WHY_BYTES, "the fault file %s says %s", config->emu.fault_file,
                       fault == EMU_LOST ? "lost" : "sticky");
        return fault == EMU_LOST ? -ENODEV : -EIO;
    }
    struct gpu_dev *d = sys_calloc(1, sizeof(*d));
    pthread_condattr_t attr;
    if (d == NULL)
        return -ENOMEM;
    d->config = config->emu;
    if (d->config.memory_bytes == 0)
        d->config.memory_bytes = MEMORY_DEFAULT;
    (void)pthread_condattr_init(&attr); /* none of these four can fail with glibc */
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&d->work, &attr);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_condattr_destroy(&attr);
    const int err = gpu_emu_start(d);
    if (err < 0) {
        emu_close(d);
        return err;
    }
    describe(config->device, ret_info);
    *ret_dev = d;
    return 0;
}

static const char *emu_why(const struct gpu_dev *d)
{
    return d->why;
}

/* NULL (no problem): emulation needs nothing of the machine. */
static const char *emu_problem(void)
{
    return NULL;
}

const struct gpu_drv gpu_drv_emu = {.name = "emu",
                                    .problem = emu_problem,
                                    .open = emu_open,
                                    .close = emu_close,
                                    .alloc = emu_alloc,
                                    .import = emu_import,
                                    .free = emu_free,
                                    .pin = emu_pin,
                                    .unpin = emu_unpin,
                                    .copy = emu_copy,
                                    .poll = emu_poll,
                                    .why = emu_why};
