/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps copies of a CUDA device in order. Copies run in the order in which they were begun, but two
 * directions use two engines at once. So a copy waits for an earlier one of another stream only if
 * they have memory in common, which copies of well-behaved clients never have.
 *
 * A table says for each granule of memory which copy of each stream touched it last. Copies that
 * have ended are no entries any more. A granule has one of PROBES places; when others in flight
 * have all of them, it shares the first with whatever else comes there, and a copy may wait without
 * need.
 */
#ifdef KVC_HAVE_CUDA
#include "gpu_cuda__.h"

#define GRANULE_SHIFT 14 /* 16 KiB: pages of two blocks are rarely in one granule */
#define PROBES        8u
#define SHARED        UINT64_MAX

/* The newest ticket of each stream. */
struct tickets {
    uint64_t of[CUDA_STREAMS];
};

static uint32_t gpu_cuda_order_place_of(uint64_t granule)
{
    return (uint32_t)((granule * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - CUDA_TOUCH_BITS));
}

static bool is_in_flight(const struct gpu_dev *dev, const struct cuda_touch *t)
{
    for (unsigned s = 0; s < CUDA_STREAMS; s++)
        if (t->ticket[s] > dev->ended)
            return true;
    return false;
}

static void touch(struct gpu_dev *dev, uint64_t granule, unsigned stream, uint64_t ticket,
                  struct tickets *after)
{
    const uint32_t first = gpu_cuda_order_place_of(granule);
    struct cuda_touch *mine = NULL, *empty = NULL;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct cuda_touch *t = &dev->touch[(first + i) % CUDA_TOUCHES];
        if (!is_in_flight(dev, t)) {
            empty = empty ? empty : t;
            continue;
        }
        if (t->granule != granule && t->granule != SHARED)
            continue;
        for (unsigned s = 0; s < CUDA_STREAMS; s++)
            after->of[s] = MAX(after->of[s], t->ticket[s]);
        mine = mine ? mine : t;
    }
    if (!mine && empty) {
        *empty = (struct cuda_touch){.granule = granule};
        mine = empty;
    } else if (!mine) {
        mine = &dev->touch[first];
        mine->granule = SHARED;
    }
    mine->ticket[stream] = ticket;
}

static void touch_all(struct gpu_dev *dev, uint64_t addr, uint64_t bytes, unsigned stream,
                      uint64_t ticket, struct tickets *after)
{
    MUST(bytes > 0 && stream < CUDA_STREAMS);
    const uint64_t last = (addr + (bytes - 1)) >> GRANULE_SHIFT;
    for (uint64_t granule = addr >> GRANULE_SHIFT; granule <= last; granule++)
        touch(dev, granule, stream, ticket, after);
}

int cuda__order(struct gpu_dev *dev, enum gpu_direction direction, const struct kvc_frag *frag,
                uint32_t n)
{
    const uint64_t ticket = dev->issued + 1;
    const unsigned stream = (unsigned)direction - GPU_TO_DEVICE;
    MUST(direction >= GPU_TO_DEVICE && direction <= GPU_ON_DEVICE);
    struct tickets after = {{0}};
    for (uint32_t i = 0; i < n; i++) {
        touch_all(dev, frag[i].to, frag[i].bytes, stream, ticket, &after);
        touch_all(dev, frag[i].from, frag[i].bytes, stream, ticket, &after);
    }
    int r = 0;
    for (unsigned s = 0; s < CUDA_STREAMS && r == 0; s++) {
        MUST(s == stream || after.of[s] <= dev->issued); /* a copy waits for earlier tickets only */
        if (s != stream && after.of[s] > dev->ended)
            r = cuda__must(dev, "cuStreamWaitEvent",
                           dev->cuda.cu->StreamWaitEvent(
                               dev->stream[stream], dev->event[after.of[s] % CUDA_TICKETS], 0));
    }
    return r;
}
#endif
