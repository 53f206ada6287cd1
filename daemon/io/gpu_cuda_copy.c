/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a CUDA device: a walk over the fragments of a copy. Neighbours are joined, and what
 * would cross the end of a registration is divided, since the driver refuses ranges registered in
 * part.
 */
#ifdef KVC_HAVE_CUDA
#include "gpu_cuda__.h"
#include "log.h"

#define LISTS 16u

/* One run of bytes on both sides, in addresses that the driver takes. */
struct piece {
    uint64_t to, from;
    uint64_t bytes;
    const struct gpu_span *to_span, *from_span; /* NULL: host memory that is not registered */
};

struct walk {
    struct gpu_dev *dev;
    struct gpu_revoke *revoke;
    CUstream stream;
    bool by_kernel;
    bool to_device, from_device;
    uint32_t to_hint, from_hint;
    struct piece pending; /* bytes 0: none */
};

/* ---- handing pieces to the driver: -ECANCELED when it was revoked ---- */

static int copy_one(struct walk *w, uint64_t to, uint64_t from, uint64_t bytes)
{
    if (gpu_is_revoked(w->revoke))
        return -ECANCELED;
    return cuda__must(w->dev, "cuMemcpyAsync",
                      w->dev->cuda.cu->MemcpyAsync(to, from, bytes, w->stream));
}

static int copy_singly(struct walk *w)
{
    const struct gpu_dev *dev = w->dev;
    int r = 0;
    for (uint32_t i = 0; i < dev->batch && r == 0; i++)
        r = copy_one(w, dev->batch_to[i], dev->batch_from[i], dev->batch_bytes[i]);
    return r;
}

static int copy_many(struct walk *w)
{
    struct gpu_dev *dev = w->dev;
    if (gpu_is_revoked(w->revoke))
        return -ECANCELED;
    const int r = cuda_device_copy_batch(&dev->cuda, dev->batch_to, dev->batch_from,
                                         dev->batch_bytes, dev->batch, w->stream);
    if (r != -EOPNOTSUPP)
        return cuda__sure(dev, r);
    LOG_INFO("gpu: no batches of copies, each is a call of its own: %s", dev->cuda.last.text);
    return copy_singly(w);
}

static int flush_batch(struct walk *w)
{
    struct gpu_dev *dev = w->dev;
    const int r = dev->batch > 1 ? copy_many(w) : copy_singly(w);
    dev->batch = 0;
    return r;
}

static int add_to_batch(struct walk *w, const struct piece *p)
{
    struct gpu_dev *dev = w->dev;
    dev->batch_to[dev->batch] = p->to;
    dev->batch_from[dev->batch] = p->from;
    dev->batch_bytes[dev->batch] = p->bytes;
    dev->batch++;
    return dev->batch < CUDA_BATCH ? 0 : flush_batch(w);
}

static int flush_list(struct walk *w)
{
    struct gpu_dev *dev = w->dev;
    if (dev->cuda.lists.filled == 0)
        return 0;
    if (gpu_is_revoked(w->revoke)) {
        dev->cuda.lists.filled = 0;
        return -ECANCELED;
    }
    return cuda__sure(dev, cuda_lists_launch(&dev->cuda, w->stream));
}

static int add_to_list(struct walk *w, const struct piece *p)
{
    struct gpu_dev *dev = w->dev;
    const struct kvc_frag frag = {.to = p->to, .from = p->from, .bytes = p->bytes};
    int r = 0;
    for (uint64_t at = 0; at < p->bytes && r == 0;) {
        if (dev->cuda.lists.filled == 0)
            r = cuda__sure(dev, cuda_lists_wait(&dev->cuda));
        if (r < 0)
            return r;
        at = cuda_lists_add(&dev->cuda, &frag, at);
        if (dev->cuda.lists.filled == CUDA_LIST_FRAGS)
            r = flush_list(w);
    }
    return r;
}

/* Gives the pending piece to the driver. Batch and kernel need memory that the device can access:
 * its own, or registered host memory. */
static int emit(struct walk *w)
{
    const struct piece p = w->pending;
    w->pending.bytes = 0;
    if (p.bytes == 0)
        return 0;
    if (p.to_span && p.from_span && w->by_kernel)
        return add_to_list(w, &p);
    if (p.to_span && p.from_span && cuda_device_has_batch(&w->dev->cuda))
        return add_to_batch(w, &p);
    return copy_one(w, p.to, p.from, p.bytes);
}

/* ---- the walk ---- */

/* Lowers *bytes so that the bytes from `addr` on are all in one span, or all in none. */
static void side(struct walk *w, bool is_device, uint32_t *hint, uint64_t *addr, uint64_t *bytes,
                 const struct gpu_span **ret_span)
{
    struct gpu_dev *dev = w->dev;
    uint64_t next = UINT64_MAX;
    struct gpu_span *span = gpu_span_find(is_device ? &dev->mem : &dev->pins, *addr, hint, &next);
    *bytes = MIN(*bytes, (span ? span->end : next) - *addr);
    *ret_span = span;
    if (is_device || !span)
        return;
    if (cuda__pin_holds(dev, span))
        *addr = span->device_addr + (*addr - span->start);
    else
        *ret_span = NULL;
}

static bool joins(const struct piece *a, const struct piece *b)
{
    return a->bytes > 0 && a->to + a->bytes == b->to && a->from + a->bytes == b->from &&
           a->to_span == b->to_span && a->from_span == b->from_span;
}

static int gpu_cuda_copy_add(struct walk *w, const struct kvc_frag *frag)
{
    uint64_t step = 0;
    for (uint64_t at = 0; at < frag->bytes; at += step) {
        struct piece p = {.to = frag->to + at, .from = frag->from + at};
        step = frag->bytes - at;
        side(w, w->to_device, &w->to_hint, &p.to, &step, &p.to_span);
        side(w, w->from_device, &w->from_hint, &p.from, &step, &p.from_span);
        p.bytes = step;
        if (joins(&w->pending, &p)) {
            w->pending.bytes += step;
            continue;
        }
        const int r = emit(w);
        if (r < 0)
            return r;
        w->pending = p;
    }
    return 0;
}

/* Refuses an address outside the device's memory: the copy would break the context, or touch other
 * memory. */
static int gpu_cuda_copy_check(struct walk *w, const struct kvc_frag *frag, uint32_t n)
{
    const struct gpu_spans *mem = &w->dev->mem;
    for (uint32_t i = 0; i < n; i++) {
        const struct kvc_frag *f = &frag[i];
        if ((w->to_device && !gpu_span_holds(mem, f->to, f->bytes, &w->to_hint)) ||
            (w->from_device && !gpu_span_holds(mem, f->from, f->bytes, &w->from_hint)))
            return cuda_refuse(&w->dev->cuda, -EINVAL,
                               "fragment %u (to %#jx, from %#jx, %ju bytes) is not in memory of "
                               "this device",
                               i, (uintmax_t)f->to, (uintmax_t)f->from, (uintmax_t)f->bytes);
    }
    return 0;
}

static int copy_all(struct walk *w, const struct kvc_frag *frag, uint32_t n)
{
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++)
        r = gpu_cuda_copy_add(w, &frag[i]);
    if (r == 0)
        r = emit(w);
    if (r == 0)
        r = flush_batch(w);
    if (r == 0)
        r = flush_list(w);
    if (r == -ECANCELED)
        w->dev->batch = w->dev->cuda.lists.filled = 0;
    return r;
}

int cuda__copy(struct gpu_dev *dev, enum gpu_path path, enum gpu_direction direction,
               const struct kvc_frag *frag, uint32_t n, struct gpu_revoke *revoke,
               uint64_t *ret_ticket)
{
    MUST(path < GPU_PATHS && direction >= GPU_TO_DEVICE && direction <= GPU_ON_DEVICE);
    MUST(dev->issued - dev->ended < CUDA_TICKETS);
    if (dev->broken)
        return -EIO;
    struct walk w = {.dev = dev,
                     .revoke = revoke,
                     .stream = dev->stream[direction - GPU_TO_DEVICE],
                     .by_kernel = path == GPU_PATH_KERNEL && dev->cuda.lists.kernel,
                     .to_device = direction != GPU_FROM_DEVICE,
                     .from_device = direction != GPU_TO_DEVICE};
    int r = gpu_cuda_copy_check(&w, frag, n);
    if (r == 0)
        r = cuda__order(dev, direction, frag, n);
    if (r == 0)
        r = copy_all(&w, frag, n);
    if (r == 0 || r == -ECANCELED) /* the ticket stands for the copies given so far */
        r = cuda__ticket(dev, direction, ret_ticket);
    return r;
}

/* ---- birth and death ---- */

int cuda__copy_open(struct gpu_dev *dev)
{
    const int r = cuda__weigh(dev, cuda_lists_open(&dev->cuda, LISTS));
    if (r != -EOPNOTSUPP)
        return r;
    LOG_INFO("gpu: no copies by kernel, the copy engine does all: %s", dev->cuda.last.text);
    cuda__copy_close(dev);
    return dev->broken ? -EIO : 0;
}

void cuda__copy_close(struct gpu_dev *dev)
{
    (void)cuda__undid(dev, cuda_lists_close(&dev->cuda));
}
#endif
