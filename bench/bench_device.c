/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "perf.h"

/* How often to look whether all is over while copies may wait for words that another process
 * raises. */
#define LOOK_NS INT64_C(1000000)

/* ---- operations ---- */

static unsigned ended;

static void note_end(struct gpu_op *op)
{
    (void)op;
    ended++;
}

static int bench_device_turn(struct bench_device *d, int64_t timeout_ns)
{
    const int rc = loop_turn(d->loop, timeout_ns);
    if (rc < 0)
        say_error("waiting: %s", strerror(-rc));
    return rc < 0 ? BENCH_FAILED : 0;
}

static int bench_device_check(const struct bench_device *d, const struct gpu_op *op,
                              const char *what)
{
    if (op->status == 0)
        return 0;
    say_error("%s: %s: %s%s%s", d->name, what, strerror(-op->status),
              gpu_why(d->gpu)[0] ? ": " : "", gpu_why(d->gpu));
    return BENCH_FAILED;
}

int bench_device_run(struct bench_device *d, struct gpu_op *op, const char *what)
{
    const unsigned before = ended;
    int rc = 0;
    op->done = note_end;
    gpu_submit(d->gpu, op);
    while (rc == 0 && ended == before)
        rc = bench_device_turn(d, -1);
    return rc != 0 ? rc : bench_device_check(d, op, what);
}

/* ---- fragments ---- */

void bench_device_lay_out(struct bench_device *d, enum gpu_direction direction, uint64_t frag_bytes)
{
    uint64_t seed = 1;
    d->direction = direction;
    d->frag_bytes = frag_bytes;
    d->nfrags = (uint32_t)(d->bytes / frag_bytes);
    d->next = 0;
    for (uint32_t i = 0; i < d->nfrags; i++) /* where each lies on the device */
        d->frag[i].to = i;
    for (uint32_t i = d->nfrags; i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t k = (uint32_t)((seed >> 33) % i);
        const uint64_t swap = d->frag[k].to;
        d->frag[k].to = d->frag[i - 1].to;
        d->frag[i - 1].to = swap;
    }
    for (uint32_t i = 0; i < d->nfrags; i++) {
        const uint64_t host = (uintptr_t)d->host + i * frag_bytes;
        const uint64_t device = d->mem.addr + d->frag[i].to * frag_bytes;
        const bool to = direction == GPU_TO_DEVICE;
        d->frag[i] = (struct kvc_frag){to ? device : host, to ? host : device, frag_bytes};
    }
}

uint32_t bench_device_next(struct bench_device *d, uint32_t *ret_first)
{
    const uint64_t n = MIN(MAX(BENCH_DEVICE_OP_BYTES / d->frag_bytes, 1u), d->nfrags);
    if (d->next + n > d->nfrags)
        d->next = 0;
    *ret_first = (uint32_t)d->next;
    d->next += n;
    return (uint32_t)n;
}

/* ---- many of them ---- */

/* Static, because after a turn that failed the device still has some of its operations. */
static struct flight {
    const struct bench_flood *flood;
    struct gpu_op op[BENCH_DEVICE_DEPTH];
    bool has_ended[BENCH_DEVICE_DEPTH]; /* cancelled copies end before earlier ones */
    uint64_t submitted, reaped, bytes, until;
    bool over;
    _Atomic bool cancel;
} the_flight;

static void note_flight(struct gpu_op *op)
{
    the_flight.has_ended[op - the_flight.op] = true;
}

static void submit_next(struct bench_device *d, struct flight *f)
{
    struct gpu_op *op = &f->op[f->submitted % BENCH_DEVICE_DEPTH];
    uint32_t first;
    *op = (struct gpu_op){.kind = GPU_COPY, .cancel = &f->cancel, .done = note_flight};
    f->has_ended[f->submitted % BENCH_DEVICE_DEPTH] = false;
    if (f->flood->next != NULL) {
        f->flood->next(f->flood->ctx, f->submitted, op);
    } else {
        op->direction = d->direction;
        op->path = f->flood->path;
        op->nfrags = bench_device_next(d, &first);
        op->frag = d->frag + first;
    }
    f->submitted++;
    gpu_submit(d->gpu, op);
}

static bool is_next_there(const struct flight *f)
{
    return f->reaped < f->submitted && f->has_ended[f->reaped % BENCH_DEVICE_DEPTH];
}

static int bench_device_reap(const struct bench_device *d, struct flight *f)
{
    const struct gpu_op *op = &f->op[f->reaped++ % BENCH_DEVICE_DEPTH];
    if (f->over && op->status == -ECANCELED)
        return 0;
    f->bytes += op->bytes;
    return bench_device_check(d, op, "copy");
}

static void look_whether_over(struct flight *f)
{
    if (f->over)
        return;
    f->over = f->flood->is_over != NULL ? f->flood->is_over(f->flood->ctx) : now_ns() >= f->until;
    if (f->over && f->flood->is_over != NULL)
        atomic_store_explicit(&f->cancel, true, memory_order_relaxed);
}

int bench_device_flood(struct bench_device *d, const struct bench_flood *flood, double *ret_rate)
{
    struct flight *f = &the_flight;
    const uint64_t begun = now_ns();
    int rc = 0, waited = 0;
    *f = (struct flight){.flood = flood, .until = begun + (uint64_t)(flood->seconds * 1e9)};
    do {
        while (is_next_there(f)) {
            const int bad = bench_device_reap(d, f);
            rc = rc != 0 ? rc : bad;
        }
        look_whether_over(f);
        f->over = f->over || rc != 0;
        while (!f->over && f->submitted - f->reaped < BENCH_DEVICE_DEPTH)
            submit_next(d, f);
        if (f->reaped < f->submitted && !is_next_there(f))
            waited = bench_device_turn(d, flood->is_over != NULL ? LOOK_NS : -1);
    } while (waited == 0 && f->reaped < f->submitted);
    *ret_rate = (double)f->bytes / ((double)(now_ns() - begun) * 1e-9);
    return rc != 0 ? rc : waited;
}

/* ---- opening ---- */

static int open_gpu(struct bench_device *d, uint64_t extra)
{
    const struct loop_config loop = {.watches_max = 4};
    const struct gpu_config config = {
        .device = d->name,
        .calibrate = true,
        .emu = {.memory_bytes = d->bytes + extra + (UINT64_C(64) << 20)}};
    int rc = loop_create(&loop, &d->loop);
    if (rc == 0)
        rc = gpu_open(&config, d->loop, &d->gpu);
    if (rc < 0) {
        say_error("%s: %s", d->name, strerror(-rc));
        return BENCH_FAILED;
    }
    while (gpu_state(d->gpu) == GPU_STARTING) {
        rc = bench_device_turn(d, -1);
        if (rc != 0)
            return rc;
    }
    if (gpu_state(d->gpu) != GPU_UP) {
        say_error("%s is out: %s", d->name, gpu_why(d->gpu));
        return BENCH_FAILED;
    }
    return 0;
}

int bench_device_open(struct bench_device *d, const char *name, uint64_t bytes, uint64_t extra,
                      uint64_t smallest)
{
    *d = (struct bench_device){.name = name, .bytes = bytes};
    int rc = open_gpu(d, extra);
    if (rc != 0)
        return rc;
    struct gpu_op alloc = {.kind = GPU_ALLOC, .mem = &d->mem, .bytes = bytes};
    rc = bench_device_run(d, &alloc, "memory");
    if (rc != 0)
        return rc;
    d->frag = calloc(bytes / smallest, sizeof(*d->frag));
    d->host = perf_private_memory(bytes);
    if (!d->frag || !d->host) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    struct gpu_op pin = {.kind = GPU_PIN, .host = d->host, .bytes = bytes};
    return bench_device_run(d, &pin, "registering host memory");
}

void bench_device_close(struct bench_device *d)
{
    gpu_close(&d->gpu);
    loop_destroy(&d->loop);
    if (d->host)
        munmap(d->host, d->bytes);
    free(d->frag);
    d->host = NULL;
    d->frag = NULL;
}
