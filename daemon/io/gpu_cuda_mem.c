/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory on a CUDA device: the daemon's own, exported to workers, and workers' memory, imported
 * from them.
 */
#ifdef KVC_HAVE_CUDA
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "gpu_cuda__.h"

/* ---- what there is of an allocation ---- */

static uint64_t next_serial(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* Releases as much of the memory as it can. True: all of it. */
static bool gpu_cuda_mem_release(struct gpu_dev *dev, struct gpu_span *s)
{
    if (s->cleared > dev->ended && !dev->broken &&
        !cuda__undone(dev, "cuEventSynchronize",
                      dev->cuda.cu->EventSynchronize(dev->event[s->cleared % CUDA_TICKETS])))
        return false;
    const bool all = cuda_mem_release(&dev->cuda, &s->range);
    if (s->fd >= 0)
        (void)close(s->fd);
    s->fd = -1;
    return cuda__undid(dev, all);
}

/* Gives up memory that was not made completely. What cannot be released now is released when the
 * device is closed. */
static int gpu_cuda_mem_give_up(struct gpu_dev *dev, struct gpu_span *s, int err)
{
    if (s->range.kind != 0 && (dev->broken || !gpu_cuda_mem_release(dev, s)))
        gpu_span_add(&dev->mem, s);
    return dev->broken ? -EIO : err;
}

static void gpu_cuda_mem_hand_over(struct gpu_dev *dev, struct gpu_span *s,
                                   const struct gpu_mem *made, struct gpu_mem *mem)
{
    s->serial = next_serial();
    gpu_span_add(&dev->mem, s);
    mem->addr = made->addr;
    mem->bytes = made->bytes;
    mem->handle = made->handle;
    mem->imported = made->imported;
    mem->priv = (void *)(uintptr_t)s->serial;
}

static void span_set(struct gpu_span *s)
{
    s->start = s->range.at;
    s->end = s->range.at + s->range.bytes;
}

/* Exports the memory; `s` owns the descriptor. Memory that cannot be exported is no error. */
static int export(struct gpu_dev *dev, struct gpu_span *s, struct device_handle *handle)
{
    struct device_handle made;
    const int r = cuda__weigh(dev, cuda_mem_export(&dev->cuda, &s->range, &made));
    if (r == -EOPNOTSUPP && s->range.kind == DEVICE_RANGE_PLAIN)
        return 0;
    if (r < 0)
        return r;
    s->fd = made.fd;
    made.owned = false;
    made.bytes = handle->bytes;
    *handle = made;
    return 0;
}

/* Zeroes the memory: a process that imports it can read it all, and CUDA does not promise that it
 * is empty. On a stream, because a synchronous call would wait for all copies. */
static int gpu_cuda_mem_clear(struct gpu_dev *dev, struct gpu_span *s)
{
    MUST(dev->issued - dev->ended < CUDA_TICKETS);
    int r = cuda__may(dev, "cuMemsetD8Async",
                      dev->cuda.cu->MemsetD8Async(s->start, 0, s->end - s->start,
                                                  dev->stream[GPU_ON_DEVICE - GPU_TO_DEVICE]),
                      -EIO);
    return r < 0 ? r : cuda__ticket(dev, GPU_ON_DEVICE, &s->cleared);
}

/* ---- for gpu_drv.h ---- */

int cuda__alloc(struct gpu_dev *dev, uint64_t bytes, struct gpu_mem *mem, uint64_t *ret_ticket)
{
    MUST(bytes > 0);
    if (dev->broken)
        return -EIO;
    if (bytes > dev->cuda.memory_bytes)
        return cuda_refuse(&dev->cuda, -ENOMEM, "the device has %ju bytes",
                           (uintmax_t)dev->cuda.memory_bytes);
    int r = gpu_span_room(&dev->mem);
    if (r < 0)
        return cuda_refuse(&dev->cuda, r, "no memory for another range of memory");
    struct gpu_span s = {.fd = -1};
    struct gpu_mem made = {.bytes = bytes, .handle = {.fd = -1, .bytes = bytes}};
    r = cuda__weigh(dev, cuda_mem_alloc(&dev->cuda, bytes, &s.range));
    span_set(&s);
    if (r == 0)
        r = export(dev, &s, &made.handle);
    if (r == 0)
        r = gpu_cuda_mem_clear(dev, &s);
    if (r < 0)
        return gpu_cuda_mem_give_up(dev, &s, r);
    made.addr = s.start;
    gpu_cuda_mem_hand_over(dev, &s, &made, mem);
    *ret_ticket = s.cleared;
    return 0;
}

int cuda__import(struct gpu_dev *dev, const struct device_handle *handle, struct gpu_mem *mem)
{
    if (dev->broken)
        return -EIO;
    int r = gpu_span_room(&dev->mem);
    if (r < 0)
        return cuda_refuse(&dev->cuda, r, "no memory for another range of memory");
    struct gpu_span s = {.fd = -1};
    r = cuda__weigh(dev, cuda_mem_import(&dev->cuda, handle, false, &s.range));
    span_set(&s);
    if (r < 0)
        return gpu_cuda_mem_give_up(dev, &s, r);
    const struct gpu_mem made = {.addr = s.start + handle->offset,
                                 .bytes = handle->bytes,
                                 .handle.fd = -1,
                                 .imported = true};
    gpu_cuda_mem_hand_over(dev, &s, &made, mem);
    return 0;
}

/* Memory of an earlier generation of the device is not found: it was freed with the context. */
void cuda__free(struct gpu_dev *dev, struct gpu_mem *mem)
{
    const uint64_t serial = (uintptr_t)mem->priv;
    uint32_t i = 0;
    while (i < dev->mem.n && dev->mem.at[i].serial != serial)
        i++;
    /* If the device is broken, closing it frees the memory. */
    if (i < dev->mem.n && !dev->broken && gpu_cuda_mem_release(dev, &dev->mem.at[i]))
        gpu_span_remove(&dev->mem, &dev->mem.at[i]);
}

void cuda__free_all(struct gpu_dev *dev, bool after_reset)
{
    for (uint32_t i = dev->mem.n; i > 0; i--) {
        struct gpu_span *s = &dev->mem.at[i - 1];
        if (after_reset)
            s->range.held = false;
        else if (dev->broken)
            return;
        if (gpu_cuda_mem_release(dev, s) || after_reset)
            gpu_span_remove(&dev->mem, s);
    }
}
#endif
