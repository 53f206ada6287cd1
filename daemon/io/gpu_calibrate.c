/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how fast each path of a device copies, at start: fragments of each size, scattered on
 * the device and in order in host memory, as blocks are; and one copy in one piece.
 *
 * Each copy runs three times and the fastest counts: the first run touches memory, and other load
 * on the machine only makes copies slower. When the time is used up, or operations wait, the other
 * sizes stay unmeasured, so that the device starts in time. Sizes that do not fit the scratch
 * memory are not measured.
 *
 * Copies within the device are measured too, from one place to scattered ones: blocks that are in
 * slots of the device. That is also the second half of a window's cost, where the daemon brings
 * blocks in one piece and the worker scatters them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "clock.h"
#include "gpu__.h"
#include "sys.h"

#define SCRATCH_BYTES (UINT64_C(8) << 20)
/* A smaller copy ends too soon for its rate to be measured. */
#define SCRATCH_BYTES_MIN (UINT64_C(1) << 20)
#define FRAGS_MAX         2048u /* more fragments would not change the rate */
#define ROUNDS            3u
#define BUDGET_NS         UINT64_C(150000000)
/* An idle device lowers its clocks and link, and raises them under load: so long it is warmed up.
 */
#define WARM_NS  UINT64_C(50000000)
#define SPIN_NS  UINT64_C(2000000)
#define SLEEP_NS 50000L
/* A kernel takes multiprocessors from the workers' kernels, so it must have 5/4 of the engine's
 * rate; less may be noise. */
#define WORTH_QUARTERS 5u
/* In time slices, beside a worker that decodes, a kernel has half of the rate that is measured
 * here, and the worker's step takes twice as long; a copy by the engine costs the worker little
 * (docs/notes/bench-h200.md). So the kernel must have three times the engine's rate. */
#define WORTH_QUARTERS_BY_TURNS 12u
/* A prime of which no number of fragments is a multiple, so that steps of it visit all of them. */
#define STRIDE 613u

/* Sizes of pages: 1 and 2 KiB with fp8 and much tensor parallelism; 18 KiB with MLA, 16 tokens of
 * 576 values; 64 KiB with neither. Another size has the rate of the nearest one, by ratio. */
static const uint32_t sizes[GPU_CALIBRATED] = {1024, 2048, 6144, 18432, 65536, 8388608};
_Static_assert(FRAGS_MAX <= GPU_DRV_FRAGS_MAX, "one call to the driver");

struct calibration {
    const struct gpu_drv *drv;
    struct gpu_dev *dev;
    struct gpu_mem mem;
    uint8_t *host;
    uint64_t bytes;         /* of scratch, on each side */
    struct inbox *yield_to; /* measuring stops when it has an item; may be NULL */
    bool pinned;
    uint64_t until_ns;
    struct kvc_frag frag[FRAGS_MAX];
};

static int gpu_calibrate_wait_for(const struct calibration *c, uint64_t ticket, uint64_t begun_ns)
{
    const struct timespec pause = {.tv_nsec = SLEEP_NS};
    for (;;) {
        const int ended = c->drv->poll(c->dev, ticket);
        if (ended != 0)
            return ended < 0 ? ended : 0;
        if (clock_now_ns() - begun_ns > SPIN_NS)
            (void)nanosleep(&pause, NULL);
    }
}

static uint32_t frags_of(uint64_t bytes, uint64_t frag_bytes)
{
    return (uint32_t)MIN(bytes / frag_bytes, FRAGS_MAX);
}

/* Fragments from one half of the device's scratch, in order, to scattered places in the other half.
 */
static uint32_t lay_out_within(struct calibration *c, uint64_t frag_bytes)
{
    MUST(frag_bytes > 0 && c->bytes >= 2);
    const uint64_t half = c->bytes / 2, each = MIN(frag_bytes, half);
    const uint32_t n = frags_of(half, each);
    for (uint32_t i = 0; i < n; i++)
        c->frag[i] = (struct kvc_frag){c->mem.addr + half + i * STRIDE % n * each,
                                       c->mem.addr + i * each, each};
    return n;
}

static uint32_t gpu_calibrate_lay_out(struct calibration *c, enum gpu_direction direction,
                                      uint64_t frag_bytes)
{
    if (direction == GPU_ON_DEVICE)
        return lay_out_within(c, frag_bytes);
    MUST(frag_bytes > 0 && frag_bytes <= c->bytes);
    const uint32_t n = frags_of(c->bytes, frag_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t host = (uintptr_t)c->host + i * frag_bytes;
        const uint64_t device = c->mem.addr + i * STRIDE % n * frag_bytes;
        c->frag[i] = direction == GPU_TO_DEVICE ? (struct kvc_frag){device, host, frag_bytes}
                                                : (struct kvc_frag){host, device, frag_bytes};
    }
    return n;
}

static int time_copy(struct calibration *c, enum gpu_path path, enum gpu_direction direction,
                     uint32_t n, uint64_t *best_ns)
{
    uint64_t ticket;
    MUST(n > 0 && n <= FRAGS_MAX);
    const uint64_t begun = clock_now_ns();
    int err = c->drv->copy(c->dev, path, direction, c->frag, n, NULL, &ticket);
    if (err == 0)
        err = gpu_calibrate_wait_for(c, ticket, begun);
    const uint64_t took = clock_now_ns() - begun + 1; /* never 0, even if the clock stands still */
    *best_ns = MIN(*best_ns, took);
    return err < 0 ? -EIO : 0;
}

static bool has_time(const struct calibration *c)
{
    return clock_now_ns() < c->until_ns && (c->yield_to == NULL || !inbox_pending(c->yield_to));
}

/* Copies in both directions, at least once each, without counting them: raises the clocks. */
static int warm(struct calibration *c)
{
    static const enum gpu_direction ways[] = {GPU_TO_DEVICE, GPU_FROM_DEVICE};
    int err = 0;
    c->until_ns = clock_now_ns() + WARM_NS;
    for (unsigned i = 0; err == 0 && (i < ARRAY_LEN(ways) || has_time(c)); i++) {
        uint64_t ns = UINT64_MAX;
        const enum gpu_direction way = ways[i % ARRAY_LEN(ways)];
        err = time_copy(c, GPU_PATH_ENGINE, way, gpu_calibrate_lay_out(c, way, c->bytes), &ns);
    }
    return err;
}

/* The paths take turns, so that a machine that slows down slows all. A rate stays
 * as it is when there is no time for it. 0 or -EIO. */
static int gpu_calibrate_measure(struct calibration *c, unsigned paths,
                                 enum gpu_direction direction, uint64_t frag_bytes,
                                 uint64_t *ret_rates)
{
    const uint32_t n = gpu_calibrate_lay_out(c, direction, frag_bytes);
    uint64_t best_ns[GPU_PATHS] = {UINT64_MAX, UINT64_MAX};
    for (unsigned i = 0; i < ROUNDS && has_time(c); i++) {
        for (unsigned path = 0; path < paths; path++) {
            const int err = time_copy(c, (enum gpu_path)path, direction, n, &best_ns[path]);
            if (err < 0)
                return err;
        }
    }
    for (unsigned path = 0; path < paths; path++)
        if (best_ns[path] != UINT64_MAX)
            ret_rates[path] = n * c->frag[0].bytes * 1000000000 / best_ns[path];
    return 0;
}

static bool is_known(const struct gpu_rates *r, unsigned i)
{
    return r->to[i][GPU_PATH_ENGINE] != 0 && r->from[i][GPU_PATH_ENGINE] != 0 &&
           r->within[i][GPU_PATH_ENGINE] != 0;
}

/* The bound is at least the rate of every measured size: it was measured first, when the device was
 * still cold. */
static void raise_bound(struct gpu_rates *rates)
{
    for (unsigned i = 0; i < GPU_CALIBRATED && rates->plain_to != 0; i++)
        rates->plain_to = MAX(rates->plain_to, rates->to[i][GPU_PATH_ENGINE]);
    for (unsigned i = 0; i < GPU_CALIBRATED && rates->plain_from != 0; i++)
        rates->plain_from = MAX(rates->plain_from, rates->from[i][GPU_PATH_ENGINE]);
}

/* Measures first the sizes that blocks have, as the time may not suffice for all. */
static int measure_all(struct calibration *c, bool has_kernel, struct gpu_rates *rates)
{
    static const unsigned order[GPU_CALIBRATED] = {4, 3, 2, 1, 0, 5};
    const unsigned engine = GPU_PATH_ENGINE + 1, all = has_kernel ? GPU_PATHS : engine,
                   paths = c->pinned ? all : engine;
    int err = 0;
    if (rates->plain_to == 0)
        err = gpu_calibrate_measure(c, engine, GPU_TO_DEVICE, c->bytes, &rates->plain_to);
    if (err == 0 && rates->plain_from == 0)
        err = gpu_calibrate_measure(c, engine, GPU_FROM_DEVICE, c->bytes, &rates->plain_from);
    for (unsigned k = 0; err == 0 && k < GPU_CALIBRATED; k++) {
        const unsigned i = order[k];
        if (sizes[i] > c->bytes || is_known(rates, i))
            continue;
        /* Each direction by itself: if the time of this try ends after one, the next try goes on.
         */
        if (rates->to[i][GPU_PATH_ENGINE] == 0)
            err = gpu_calibrate_measure(c, paths, GPU_TO_DEVICE, sizes[i], rates->to[i]);
        if (err == 0 && rates->from[i][GPU_PATH_ENGINE] == 0)
            err = gpu_calibrate_measure(c, paths, GPU_FROM_DEVICE, sizes[i], rates->from[i]);
        if (err == 0 && rates->within[i][GPU_PATH_ENGINE] == 0)
            err = gpu_calibrate_measure(c, all, GPU_ON_DEVICE, sizes[i], rates->within[i]);
    }
    raise_bound(rates);
    return err;
}

/* 0, -EIO, -ENOMEM. */
static int with_scratch(struct calibration *c, bool has_kernel, struct gpu_rates *rates)
{
    int err = -ENOMEM;
    for (c->bytes = SCRATCH_BYTES; err < 0 && c->bytes >= SCRATCH_BYTES_MIN; c->bytes /= 2) {
        uint64_t ticket = 0;
        err = c->drv->alloc(c->dev, c->bytes, &c->mem, &ticket);
        if (err == 0) {
            err = ticket != 0 ? gpu_calibrate_wait_for(c, ticket, clock_now_ns()) : 0;
            break;
        }
        if (err == -EIO)
            return err;
    }
    if (err < 0)
        return err == -ENOMEM ? -ENOMEM : -EIO;
    memset(c->host, 1, c->bytes); /* pages that were never written may all be one */
    err = c->drv->pin(c->dev, c->host, c->bytes);
    c->pinned = err == 0;
    if (err != -EIO)
        err = warm(c);
    c->until_ns = clock_now_ns() + BUDGET_NS; /* what comes before takes what it takes */
    if (err == 0)
        err = measure_all(c, has_kernel, rates);
    if (err == 0 && c->pinned)
        c->drv->unpin(c->dev, c->host, c->bytes);
    if (err == 0)
        c->drv->free(c->dev, &c->mem);
    return err;
}

bool gpu__is_calibrated(const struct gpu_rates *r)
{
    for (unsigned i = 0; i < GPU_CALIBRATED; i++)
        if (!is_known(r, i))
            return false;
    return true;
}

int gpu__calibrate(const struct gpu_drv *drv, struct gpu_dev *dev, const struct gpu_dev_info *info,
                   struct inbox *yield_to, struct gpu_rates *ret_rates, char ret_why[GPU_WHY_BYTES])
{
    int err = -ENOMEM;
    memcpy(ret_rates->frag_bytes, sizes, sizeof(sizes));
    ret_rates->by_turns = info->by_turns;
    struct calibration *c = sys_calloc(1, sizeof(*c));
    uint8_t *host = sys_pages(SCRATCH_BYTES);
    if (c != NULL && host != NULL) {
        c->drv = drv;
        c->dev = dev;
        c->host = host;
        c->yield_to = yield_to;
        err = with_scratch(c, info->has_kernel, ret_rates);
    }
    if (err == -EIO) {
        (void)snprintf(ret_why, GPU_WHY_BYTES, "%s", drv->why(dev));
        drv->close(dev); /* only now nothing touches the host's side any more */
    }
    if (host != NULL)
        (void)munmap(host, SCRATCH_BYTES);
    free(c);
    return err;
}

uint64_t gpu_window_rate(const struct gpu_rates *rates, unsigned i)
{
    const uint64_t *rate = rates->within[i];
    const double link = (double)rates->plain_to;
    const double within = (double)MAX(rate[GPU_PATH_ENGINE], rate[GPU_PATH_KERNEL]);
    return link > 0 && within > 0 ? (uint64_t)(link * within / (link + within)) : 0;
}

enum gpu_path gpu__path(const struct gpu_rates *rates, enum gpu_direction direction,
                        uint64_t frag_bytes)
{
    uint64_t bytes = MIN(frag_bytes, sizes[GPU_CALIBRATED - 1]);
    unsigned i = 0;
    /* Nearest by ratio. */
    while (i + 1 < GPU_CALIBRATED && bytes * bytes > (uint64_t)sizes[i] * sizes[i + 1])
        i++;
    const uint64_t *rate = direction == GPU_ON_DEVICE     ? rates->within[i]
                           : direction == GPU_FROM_DEVICE ? rates->from[i]
                                                          : rates->to[i];
    const uint64_t quarters = rates->by_turns ? WORTH_QUARTERS_BY_TURNS : WORTH_QUARTERS;
    return 4 * rate[GPU_PATH_KERNEL] > quarters * rate[GPU_PATH_ENGINE] ? GPU_PATH_KERNEL
                                                                        : GPU_PATH_ENGINE;
}
