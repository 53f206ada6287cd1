/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of devices share: a device that is up, and operations that are waited for. _i of the
 * cases is the enum loop_backend. */
#ifndef TESTS_GPU_FIXTURE_H
#define TESTS_GPU_FIXTURE_H

#include <errno.h>

#include "gpu.h"
#include "io_fixture.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1) << 20)

static struct loop *loop;
static struct gpu *gpu;

/* Calls of `changed`, in order. */
struct change {
    enum gpu_state state;
    uint32_t generation;
    char why[GPU_WHY_BYTES];
};
static struct change change[64];
static unsigned changes;

static inline void note_changed(void *ctx, struct gpu *g)
{
    (void)ctx;
    ck_assert_uint_lt(changes, 64);
    change[changes] = (struct change){.state = gpu_state(g), .generation = gpu_generation(g)};
    snprintf(change[changes++].why, GPU_WHY_BYTES, "%s", gpu_why(g));
}

static inline void turn(void)
{
    ck_assert_int_ge(loop_turn(loop, GIVE_UP_NS), 0);
}

static inline void wait_for_state(struct gpu *g, enum gpu_state state)
{
    while (gpu_state(g) != state)
        turn();
}

static inline struct gpu *open_up(const struct gpu_config *config)
{
    struct gpu *g = NULL;
    const int r = gpu_open(config, loop, &g);
    ck_assert_msg(r == 0, "gpu_open %s: %s", config->device, strerror(-r));
    ck_assert_int_eq(gpu_state(g), GPU_STARTING);
    while (gpu_state(g) == GPU_STARTING)
        turn();
    ck_assert_msg(gpu_state(g) == GPU_UP, "%s: %s", config->device, gpu_why(g));
    return g;
}

/* --- operations --- */

struct flight {
    struct gpu_op op;
    struct gpu *gpu;
    unsigned calls;
    unsigned order; /* place of its end among all ends */
};
static unsigned ends;

static inline void note_done(struct gpu_op *op)
{
    struct flight *f = op->ctx;
    f->calls++;
    f->order = ends++;
    ck_assert_uint_eq(f->calls, 1);
}

static inline void begin(struct gpu *g, struct flight *f)
{
    f->gpu = g;
    f->calls = 0;
    f->op.done = note_done;
    f->op.ctx = f;
    f->op.status = 12345;
    gpu_submit(g, &f->op);
    ck_assert_uint_eq(f->calls, 0); /* `done` is never called inside the submitting call */
}

static inline int end_of(struct flight *f)
{
    while (f->calls == 0)
        turn();
    ck_assert_uint_eq(f->calls, 1);
    return f->op.status;
}

static inline int run(struct gpu *g, struct flight *f)
{
    begin(g, f);
    return end_of(f);
}

static inline int alloc(struct gpu *g, struct gpu_mem *mem, uint64_t bytes)
{
    struct flight f = {.op = {.kind = GPU_ALLOC, .mem = mem, .bytes = bytes}};
    *mem = (struct gpu_mem){0};
    return run(g, &f);
}

static inline void must_alloc(struct gpu *g, struct gpu_mem *mem, uint64_t bytes)
{
    ck_assert_int_eq(alloc(g, mem, bytes), 0);
    ck_assert_uint_ne(mem->addr, 0);
    ck_assert_uint_ge(mem->bytes, bytes);
    ck_assert_uint_eq(mem->generation, gpu_generation(g));
    ck_assert(!mem->imported);
}

static inline int import(struct gpu *g, struct gpu_mem *mem, const struct device_handle *handle)
{
    struct flight f = {.op = {.kind = GPU_IMPORT, .mem = mem, .handle = *handle}};
    *mem = (struct gpu_mem){0};
    return run(g, &f);
}

static inline void must_free(struct gpu *g, struct gpu_mem *mem)
{
    struct flight f = {.op = {.kind = GPU_FREE, .mem = mem}};
    ck_assert_int_eq(run(g, &f), 0);
}

static inline int pin(struct gpu *g, void *host, uint64_t bytes)
{
    struct flight f = {.op = {.kind = GPU_PIN, .host = host, .bytes = bytes}};
    return run(g, &f);
}

static inline void must_unpin(struct gpu *g, void *host, uint64_t bytes)
{
    struct flight f = {.op = {.kind = GPU_UNPIN, .host = host, .bytes = bytes}};
    ck_assert_int_eq(run(g, &f), 0);
}

static inline struct flight copy_of(enum gpu_direction direction, const struct kvc_frag *frag,
                                    uint32_t n)
{
    return (struct flight){
        .op = {.kind = GPU_COPY, .direction = direction, .frag = frag, .nfrags = n}};
}

static inline int copy(struct gpu *g, enum gpu_direction direction, const struct kvc_frag *frag,
                       uint32_t n)
{
    struct flight f = copy_of(direction, frag, n);
    return run(g, &f);
}

static inline uint64_t at(const void *host)
{
    return (uintptr_t)host;
}

static inline int copy_to(struct gpu *g, uint64_t device, const void *host, uint64_t bytes)
{
    const struct kvc_frag frag = {device, at(host), bytes};
    return copy(g, GPU_TO_DEVICE, &frag, 1);
}

static inline int copy_from(struct gpu *g, void *host, uint64_t device, uint64_t bytes)
{
    const struct kvc_frag frag = {at(host), device, bytes};
    return copy(g, GPU_FROM_DEVICE, &frag, 1);
}

/* --- bytes --- */

static inline uint64_t mixed(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline void scramble(uint8_t *to, uint64_t bytes, uint64_t seed)
{
    uint64_t i = 0, word;
    for (; i + 8 <= bytes; i += 8) {
        word = mixed(&seed);
        memcpy(to + i, &word, 8);
    }
    word = mixed(&seed);
    memcpy(to + i, &word, bytes - i);
}

static inline uint8_t *bytes_new(uint64_t bytes)
{
    uint8_t *p = calloc(1, bytes);
    ck_assert_ptr_nonnull(p);
    return p;
}

static inline void must_equal(const uint8_t *got, const uint8_t *want, uint64_t bytes)
{
    uint64_t i = 0;
    if (memcmp(got, want, bytes) == 0)
        return;
    while (got[i] == want[i])
        i++;
    ck_abort_msg("byte %llu of %llu: %02x instead of %02x", (unsigned long long)i,
                 (unsigned long long)bytes, got[i], want[i]);
}

#endif
