/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies without the device's thread, which would divide them: pinned host memory and one
 * cuMemcpyAsync().
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_bench.h"
#include "gpu_drv.h"

#define PLAIN_BYTES (UINT64_C(256) << 20)
#define PAUSE_NS    20000L

struct gpu_plain {
    const struct bench_device *device;
    const struct gpu_drv *drv;
    struct gpu_dev *dev;
    struct gpu_mem mem;
    uint64_t bytes;
    bool pinned;
};

static int gpu_plain_failed(const struct gpu_plain *p, const char *what, int error)
{
    const char *why = p->dev != NULL ? p->drv->why(p->dev) : "";
    say_error("%s: %s: %s%s%s", p->device->name, what, strerror(-error), why[0] ? ": " : "", why);
    return BENCH_FAILED;
}

static int gpu_plain_wait_for(struct gpu_plain *p, const char *what, uint64_t ticket)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    int rc;
    while ((rc = p->drv->poll(p->dev, ticket)) == 0)
        (void)nanosleep(&pause, NULL);
    return rc < 0 ? gpu_plain_failed(p, what, rc) : 0;
}

static int copy(struct gpu_plain *p, enum gpu_direction direction)
{
    const uint64_t host = (uintptr_t)p->device->host;
    const bool to = direction == GPU_TO_DEVICE;
    const struct kvc_frag frag = {to ? p->mem.addr : host, to ? host : p->mem.addr, p->bytes};
    uint64_t ticket;
    const int rc = p->drv->copy(p->dev, GPU_PATH_ENGINE, direction, &frag, 1, NULL, &ticket);
    return rc < 0 ? gpu_plain_failed(p, "a plain copy", rc)
                  : gpu_plain_wait_for(p, "a plain copy", ticket);
}

static int gpu_plain_make(struct gpu_plain *p)
{
    const struct gpu_config config = {.device = p->device->name,
                                      .emu = {.memory_bytes = p->bytes + (UINT64_C(64) << 20)}};
    struct gpu_dev_info info;
    char why[GPU_WHY_BYTES] = "";
    int rc = p->drv->open(&config, &p->dev, &info, why);
    if (rc < 0) {
        say_error("%s: %s", p->device->name, why);
        return BENCH_FAILED;
    }
    uint64_t ticket = 0;
    rc = p->drv->alloc(p->dev, p->bytes, &p->mem, &ticket);
    if (rc < 0)
        return gpu_plain_failed(p, "memory for a plain copy", rc);
    rc = ticket != 0 ? gpu_plain_wait_for(p, "memory for a plain copy", ticket) : 0;
    if (rc != 0)
        return rc;
    /* All of the memory, as the device registered it, because a part of registered memory cannot be
     * registered again. */
    rc = p->drv->pin(p->dev, p->device->host, p->device->bytes);
    p->pinned = rc == 0;
    return rc < 0 ? gpu_plain_failed(p, "registering host memory", rc)
                  : copy(p, GPU_TO_DEVICE); /* touches the memory */
}

int gpu_plain_open(struct bench_device *d, struct gpu_plain **ret_plain)
{
    struct gpu_plain *p = calloc(1, sizeof(*p));
    if (p == NULL) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    p->device = d;
    p->bytes = MIN(PLAIN_BYTES, d->bytes);
    p->drv = &gpu_drv_emu;
#ifdef KVC_HAVE_CUDA
    if (!gpu_is_emulated(d->gpu))
        p->drv = &gpu_drv_cuda;
#endif
    *ret_plain = p;
    return gpu_plain_make(p);
}

void gpu_plain_close(struct gpu_plain **plain)
{
    struct gpu_plain *p = *plain;
    *plain = NULL;
    if (p == NULL)
        return;
    if (p->pinned)
        p->drv->unpin(p->dev, p->device->host, p->device->bytes);
    if (p->mem.addr != 0)
        p->drv->free(p->dev, &p->mem);
    if (p->dev != NULL)
        p->drv->close(p->dev);
    free(p);
}

int gpu_plain_run(struct gpu_plain *p, enum gpu_direction direction, double seconds,
                  double *ret_rate)
{
    const uint64_t begun = now_ns(), until = begun + (uint64_t)(seconds * 1e9);
    uint64_t bytes = 0;
    int rc = 0;
    do {
        rc = copy(p, direction);
        bytes += p->bytes;
    } while (rc == 0 && now_ns() < until);
    *ret_rate = (double)bytes / ((double)(now_ns() - begun) * 1e-9);
    return rc;
}
