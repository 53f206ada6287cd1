/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of random fragments in all directions, by both paths, against a loop over memcpy(). */
#ifndef TESTS_CUDA_COPIES_H
#define TESTS_CUDA_COPIES_H
#ifdef KVC_HAVE_CUDA

#include "cuda_fixture.h"

enum cuda_pins { NOT_PINNED, PINNED, IN_PARTS };
enum { AREA = 1 << 20, FRAGS = 600 };

struct world {
    unsigned char *host, *seen, *expected[2]; /* expected[0]: of host; expected[1]: of area a */
    struct gpu_mem a, b;
    struct kvc_frag frag[FRAGS];
    uint64_t random;
};

static inline uint64_t some_bytes(struct world *w, uint64_t at)
{
    static const uint64_t sizes[] = {1, 3, 4, 12, 16, 100, 128, 4096, 4096, 9000, 40000};
    const uint64_t bytes = sizes[next_random(&w->random) % ARRAY_LEN(sizes)];
    return MIN(bytes, AREA - at);
}

/* Draws fragments that share no byte on the written side. On the other side they lie anywhere, or
 * move along, so that some are neighbours on both sides. */
static inline uint32_t draw(struct world *w, uint64_t to, uint64_t from)
{
    uint32_t n = 0;
    uint64_t at = 0, source = 0;
    while (n < FRAGS && at < AREA) {
        const uint64_t bytes = some_bytes(w, at);
        if (source + bytes > AREA || next_random(&w->random) % 3 != 0)
            source =
                next_random(&w->random) % (AREA - bytes + 1) & ~(next_random(&w->random) & 15u);
        w->frag[n++] = (struct kvc_frag){.to = to + at, .from = from + source, .bytes = bytes};
        source += bytes;
        at += bytes + (next_random(&w->random) % 3 ? 0 : next_random(&w->random) % 64);
    }
    return n;
}

static inline void expect(struct world *w, unsigned char *to, uint64_t to_base,
                          const unsigned char *from, uint64_t from_base, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(to + (w->frag[i].to - to_base), from + (w->frag[i].from - from_base),
               w->frag[i].bytes);
}

static inline void try_paths(struct world *w, enum gpu_path path)
{
    const uint64_t host = (uintptr_t)w->host;
    fill(w->host, AREA, w->random);
    memcpy(w->expected[0], w->host, AREA);

    uint32_t n = draw(w, w->a.addr, host);
    expect(w, w->expected[1], w->a.addr, w->host, host, n);
    ck_assert_int_eq(wait_for(dev, must_copy(dev, path, GPU_TO_DEVICE, w->frag, n)), 1);

    n = draw(w, w->b.addr, w->a.addr);
    ck_assert_int_eq(wait_for(dev, must_copy(dev, path, GPU_ON_DEVICE, w->frag, n)), 1);
    copy_from(dev, w->seen, w->a.addr, AREA);
    ck_assert_mem_eq(w->seen, w->expected[1], AREA);
    unsigned char *b = host_memory(AREA);
    expect(w, b, w->b.addr, w->expected[1], w->a.addr, n);
    copy_from(dev, w->seen, w->b.addr, AREA);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = w->frag[i].to - w->b.addr;
        ck_assert_mem_eq(w->seen + at, b + at, w->frag[i].bytes);
    }
    free(b);

    n = draw(w, host, w->a.addr);
    expect(w, w->expected[0], host, w->expected[1], w->a.addr, n);
    ck_assert_int_eq(wait_for(dev, must_copy(dev, path, GPU_FROM_DEVICE, w->frag, n)), 1);
    ck_assert_mem_eq(w->host, w->expected[0], AREA);
}

/* Parts of the area; the second one follows the first directly. */
static const uint64_t parts[][2] = {{8192, 65536}, {8192 + 65536, 12288}, {AREA / 2, AREA / 4}};

static inline void pin_as(unsigned char *host, enum cuda_pins pins)
{
    if (pins == PINNED)
        must_pin(dev, host, AREA);
    for (size_t i = 0; pins == IN_PARTS && i < ARRAY_LEN(parts); i++)
        must_pin(dev, host + parts[i][0], parts[i][1]);
}

static inline void unpin_as(unsigned char *host, enum cuda_pins pins)
{
    if (pins == PINNED)
        gpu_drv_cuda.unpin(dev, host, AREA);
    for (size_t i = 0; pins == IN_PARTS && i < ARRAY_LEN(parts); i++)
        gpu_drv_cuda.unpin(dev, host + parts[i][0], parts[i][1]);
}

/* Copies on the open device. */
static inline void copy_random_fragments(enum cuda_pins pins, uint64_t seed)
{
    struct world w = {.random = seed};
    w.host = host_memory(AREA);
    w.seen = host_memory(AREA);
    w.expected[0] = host_memory(AREA);
    w.expected[1] = host_memory(AREA);
    w.a = alloc(dev, AREA);
    w.b = alloc(dev, AREA);
    copy_to(dev, w.a.addr, w.host, AREA);
    pin_as(w.host, pins);
    for (unsigned round = 0; round < 6; round++)
        try_paths(&w, round % 2 ? GPU_PATH_KERNEL : GPU_PATH_ENGINE);
    unpin_as(w.host, pins);
    gpu_drv_cuda.free(dev, &w.a);
    gpu_drv_cuda.free(dev, &w.b);
    free(w.host);
    free(w.seen);
    free(w.expected[0]);
    free(w.expected[1]);
}

#endif
#endif
