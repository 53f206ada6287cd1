/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy is a walk over its fragments: neighbours are joined, and what would cross the end of a
 * registration is divided, since the driver refuses ranges that are registered in part.
 */
#ifdef KVC_HAVE_CUDA
#include "gpu_cuda__.h"
#include "log.h"

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

/* One run of bytes on both sides, in addresses that the driver takes. */
struct piece {
    uint64_t to, from;
    uint64_t bytes;
    const struct cuda_span *to_span, *from_span; /* NULL: host memory that is not registered */
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
    return cuda__must(w->dev, "cuMemcpyAsync", w->dev->cu->MemcpyAsync(to, from, bytes, w->stream));
}

static bool has_batch(const struct gpu_dev *dev)
{
    return !dev->no_batch && cuda_has_batch(dev->cu);
}

static int copy_singly(struct walk *w)
{
    const struct gpu_dev *dev = w->dev;
    int r = 0;
    for (uint32_t i = 0; i < dev->batch && r == 0; i++)
        r = copy_one(w, dev->batch_to[i], dev->batch_from[i], dev->batch_bytes[i]);
    return r;
}

/* A driver has the function, and yet may not do it for this device (virtual GPUs): it says so
 * before it copies anything. */
static int copy_many(struct walk *w)
{
    struct gpu_dev *dev = w->dev;
    if (gpu_is_revoked(w->revoke))
        return -ECANCELED;
    const CUresult r = cuda_copy_batch(dev->cu, dev->batch_to, dev->batch_from, dev->batch_bytes,
                                       dev->batch, w->stream);
    if (r != CUDA_ERROR_NOT_SUPPORTED)
        return cuda__must(dev, "cuMemcpyBatchAsync", r);
    dev->no_batch = true;
    cuda_text(dev->cu, "cuMemcpyBatchAsync", r, dev->why);
    LOG_INFO("gpu: no batches of copies, each is a call of its own: %s", dev->why);
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
    struct cuda_list *list = &dev->list[dev->list_at];
    const uint32_t warps = KVC_FRAGS_THREADS / 32; /* of one block, each with a fragment */
    void *arguments[] = {&list->device_addr, &dev->listed};
    if (dev->listed == 0)
        return 0;
    if (gpu_is_revoked(w->revoke)) {
        dev->listed = 0;
        return -ECANCELED;
    }
    const unsigned blocks = MIN(KVC_FRAGS_BLOCKS, (dev->listed + warps - 1) / warps);
    int r = cuda__must(dev, "cuLaunchKernel",
                       dev->cu->LaunchKernel(dev->kernel, blocks, 1, 1, KVC_FRAGS_THREADS, 1, 1, 0,
                                             w->stream, arguments, NULL));
    if (r == 0)
        r = cuda__must(dev, "cuEventRecord", dev->cu->EventRecord(list->read, w->stream));
    list->pending = true;
    dev->list_at = (dev->list_at + 1) % CUDA_LISTS;
    dev->listed = 0;
    return r;
}

static int add_to_list(struct walk *w, const struct piece *p)
{
    struct gpu_dev *dev = w->dev;
    uint64_t step = 0;
    for (uint64_t at = 0; at < p->bytes; at += step) {
        struct cuda_list *list = &dev->list[dev->list_at];
        step = MIN(p->bytes - at, CUDA_LIST_BYTES);
        if (list->pending) {
            const int r =
                cuda__must(dev, "cuEventSynchronize", dev->cu->EventSynchronize(list->read));
            if (r < 0)
                return r;
            list->pending = false;
        }
        list->frag[dev->listed++] =
            (struct kvc_frag){.to = p->to + at, .from = p->from + at, .bytes = step};
        const int r = dev->listed < CUDA_LIST_FRAGS ? 0 : flush_list(w);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Batch and kernel want memory that the device reaches by itself. */
static int emit(struct walk *w)
{
    const struct piece p = w->pending;
    w->pending.bytes = 0;
    if (p.bytes == 0)
        return 0;
    if (p.to_span && p.from_span && w->by_kernel)
        return add_to_list(w, &p);
    if (p.to_span && p.from_span && has_batch(w->dev))
        return add_to_batch(w, &p);
    return copy_one(w, p.to, p.from, p.bytes);
}

/* ---- the walk ---- */

/* The first bytes from `addr` on that are in one span or in none: *bytes is lowered. */
static void side(struct walk *w, bool is_device, uint32_t *hint, uint64_t *addr, uint64_t *bytes,
                 const struct cuda_span **ret_span)
{
    struct gpu_dev *dev = w->dev;
    uint64_t next = UINT64_MAX;
    struct cuda_span *span =
        cuda__span_find(is_device ? &dev->mem : &dev->pins, *addr, hint, &next);
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

static int add(struct walk *w, const struct kvc_frag *frag)
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

static bool is_ours(const struct gpu_dev *dev, uint64_t addr, uint64_t bytes, uint32_t *hint)
{
    uint64_t next;
    const struct cuda_span *span = cuda__span_find(&dev->mem, addr, hint, &next);
    return span && bytes <= span->end - addr;
}

/* What lies beyond the device's memory would take the device out, and may be somebody else's. */
static int check(struct walk *w, const struct kvc_frag *frag, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct kvc_frag *f = &frag[i];
        if ((w->to_device && !is_ours(w->dev, f->to, f->bytes, &w->to_hint)) ||
            (w->from_device && !is_ours(w->dev, f->from, f->bytes, &w->from_hint)))
            return cuda__refuse(w->dev, -EINVAL,
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
        r = add(w, &frag[i]);
    if (r == 0)
        r = emit(w);
    if (r == 0)
        r = flush_batch(w);
    if (r == 0)
        r = flush_list(w);
    if (r == -ECANCELED)
        w->dev->batch = w->dev->listed = 0;
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
                     .by_kernel = path == GPU_PATH_KERNEL && dev->kernel,
                     .to_device = direction != GPU_FROM_DEVICE,
                     .from_device = direction != GPU_TO_DEVICE};
    int r = check(&w, frag, n);
    if (r == 0)
        r = cuda__order(dev, direction, frag, n);
    if (r == 0)
        r = copy_all(&w, frag, n);
    if (r == 0 || r == -ECANCELED) /* the ticket is of what was given */
        r = cuda__ticket(dev, direction, ret_ticket);
    return r;
}

/* ---- birth and death ---- */

/* 0 without a kernel, too: a device or a driver that takes neither image nor PTX. */
static int load_kernel(struct gpu_dev *dev)
{
    const char *call;
    const CUresult said =
        cuda_load_kernel(dev->cu, kvc_frags_image, kvc_frags_ptx, STRING(KVC_FRAGS_KERNEL),
                         &dev->module, &dev->kernel, &call);
    const int r = cuda__may(dev, call, said, -EOPNOTSUPP);
    if (r == -EOPNOTSUPP)
        LOG_INFO("gpu: no copies by kernel, the copy engine does all: %s", dev->why);
    return r == -EOPNOTSUPP ? 0 : r;
}

static int make_lists(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
    const size_t bytes = (size_t)CUDA_LISTS * CUDA_LIST_FRAGS * sizeof(struct kvc_frag);
    const unsigned flags = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
    void *lists = NULL;
    CUdeviceptr at = 0;
    int r = cuda__may(dev, "cuMemHostAlloc", cu->MemHostAlloc(&lists, bytes, flags), -EIO);
    if (r < 0)
        return r;
    dev->lists = lists;
    r = cuda__must(dev, "cuMemHostGetDevicePointer", cu->MemHostGetDevicePointer(&at, lists, 0));
    for (uint32_t i = 0; i < CUDA_LISTS && r == 0; i++) {
        struct cuda_list *list = &dev->list[i];
        list->frag = dev->lists + (size_t)i * CUDA_LIST_FRAGS;
        list->device_addr = at + (uint64_t)i * CUDA_LIST_FRAGS * sizeof(struct kvc_frag);
        r = cuda__may(dev, "cuEventCreate", cu->EventCreate(&list->read, CU_EVENT_DISABLE_TIMING),
                      -EIO);
    }
    return r;
}

int cuda__copy_open(struct gpu_dev *dev)
{
    const int r = load_kernel(dev);
    return r < 0 || !dev->kernel ? r : make_lists(dev);
}

void cuda__copy_close(struct gpu_dev *dev)
{
    const struct cuda_api *cu = dev->cu;
    for (uint32_t i = 0; i < CUDA_LISTS; i++)
        if (dev->list[i].read)
            (void)cuda__undone(dev, "cuEventDestroy", cu->EventDestroy(dev->list[i].read));
    if (dev->lists)
        (void)cuda__undone(dev, "cuMemFreeHost", cu->MemFreeHost(dev->lists));
    if (dev->module)
        (void)cuda__undone(dev, "cuModuleUnload", cu->ModuleUnload(dev->module));
}
#endif
