// SPDX-License-Identifier: Apache-2.0
// The scheduler of fibres, and kernels by name. Each kernel is compiled from its .cu with
// cuda_fibres.h before it.
#include "fibres.h"
#include "cuda_fibres.h"

#include <kvcache/attention.h>
#include <kvcache/kernels.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace fibres
{

enum { STACK_BYTES = 128 << 10 };

thread_local block *here;

void wrong(const char *what)
{
    fprintf(stderr, "cuda_fibres: %s\n", what);
    abort();
}

// ---- stacks ----

static void fibre_main();

#ifdef __x86_64__
// swapcontext() asks the kernel for the signal mask each time; a launch has millions of them.
extern "C" void fibres_switch(void **from, void *to);
__asm__(".text\n"
        ".type fibres_switch, @function\n"
        "fibres_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size fibres_switch, . - fibres_switch\n");

static void switch_to(fibre *from, fibre *to)
{
    fibres_switch(&from->sp, to->sp);
}

// Six registers, the address that the switch returns to, and none for fibre_main() to return to.
static void prepare(fibre *f)
{
    void **top = (void **)(void *)(f->stack + STACK_BYTES) - 2;
    top[0] = (void *)fibre_main;
    top[1] = nullptr;
    f->sp = top - 6;
    memset(f->sp, 0, 6 * sizeof(void *));
}
#else
static void switch_to(fibre *from, fibre *to)
{
    ucontext_t here_at;
    ucontext_t *next = (ucontext_t *)to->sp;
    from->sp = &here_at;
    swapcontext(&here_at, next);
}

static void prepare(fibre *f)
{
    ucontext_t *at = (ucontext_t *)(void *)f->stack; // its lowest bytes: stacks grow down to there
    getcontext(at);
    at->uc_stack.ss_sp = f->stack + sizeof(*at);
    at->uc_stack.ss_size = STACK_BYTES - sizeof(*at);
    at->uc_link = nullptr;
    makecontext(at, fibre_main, 0);
    f->sp = at;
}
#endif

#ifdef __SANITIZE_ADDRESS__
static void leave(fibre *from, fibre *to, const void *stack, size_t bytes, bool for_good)
{
    __sanitizer_start_switch_fiber(for_good ? nullptr : &from->fake, stack, bytes);
    switch_to(from, to);
}
static void arrive(const fibre *f, const void **ret_stack, size_t *ret_bytes)
{
    __sanitizer_finish_switch_fiber(f->fake, ret_stack, ret_bytes);
}
#else
static void leave(fibre *from, fibre *to, const void *, size_t, bool)
{
    switch_to(from, to);
}
static void arrive(const fibre *, const void **, size_t *)
{
}
#endif

void yield()
{
    fibre *f = &here->all[here->now];
    leave(f, &here->home, here->home_stack, here->home_bytes, false);
    arrive(f, &here->home_stack, &here->home_bytes);
}

// ---- copies ----

void copy_later(void *to, const void *from, size_t bytes)
{
    fibre *f = &here->all[here->now];
    if (bytes != 4 && bytes != 8 && bytes != 16)
        wrong("a copy has 4, 8 or 16 bytes");
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        wrong("an address is not a multiple of the size of what is copied");
    if (f->ncopies == f->copies_max) {
        f->copies_max = f->copies_max > 0 ? 2 * f->copies_max : 64;
        f->copies = (copy *)realloc(f->copies, f->copies_max * sizeof(copy));
        if (!f->copies)
            wrong("no memory");
    }
    memset(to, 0xff, bytes);
    f->copies[f->ncopies++] = {to, from, (unsigned)bytes, f->group};
}

void copies_close()
{
    here->all[here->now].group++;
}

void copies_wait(size_t groups)
{
    fibre *f = &here->all[here->now];
    unsigned left = 0;
    for (unsigned i = 0; i < f->ncopies; i++)
        if (f->copies[i].group + groups < f->group)
            memcpy(f->copies[i].to, f->copies[i].from, f->copies[i].bytes);
        else
            f->copies[left++] = f->copies[i];
    f->ncopies = left;
}

// ---- a launch ----

static void thread_begin(fibre *f)
{
    block *b = here;
    f->flat = b->backwards ? b->threads - 1 - b->begun : b->begun;
    b->begun++;
    f->thread.x = f->flat % b->size.x;
    f->thread.y = f->flat / b->size.x % b->size.y;
    f->thread.z = f->flat / b->size.x / b->size.y;
}

static void thread_end(const fibre *f)
{
    if (f->ncopies > 0)
        wrong("a thread has ended before its copies");
    meeting *warp = &here->warp[f->flat / WARP_LANES];
    here->moves++;
    here->whole.members--;
    warp->members--;
    hold_if_all(&here->whole);
    hold_if_all(warp);
}

// Threads that wait for nobody need no stack of their own: one after the other on this one.
static void fibre_main()
{
    fibre *f = &here->all[here->now];
    f->fake = nullptr;
    arrive(f, &here->home_stack, &here->home_bytes);
    while (here->begun < here->threads) {
        thread_begin(f);
        here->body(here->ctx);
        thread_end(f);
    }
    f->flat = THREADS_MAX;
    leave(f, &here->home, here->home_stack, here->home_bytes, true);
}

static void fibre_run(unsigned i)
{
    fibre *f = &here->all[i];
    const void *stack;
    size_t bytes;
    here->now = i;
    leave(&here->home, f, f->stack, STACK_BYTES, false);
    arrive(&here->home, &stack, &bytes);
}

static void fibre_new()
{
    fibre *f = &here->all[here->fibres];
    if (!f->stack && !(f->stack = (char *)malloc(STACK_BYTES)))
        wrong("no memory");
    prepare(f);
    fibre_run(here->fibres++);
}

static void block_run()
{
    block *b = here;
    b->fibres = b->begun = 0;
    b->threads = b->size.x * b->size.y * b->size.z;
    b->whole = {b->threads, 0, 0};
    for (unsigned first = 0; first < b->threads; first += WARP_LANES) {
        const unsigned rest = b->threads - first, lanes = WARP_LANES;
        b->warp[first / WARP_LANES] = {rest < lanes ? rest : lanes, 0, 0};
    }
    while (b->begun < b->threads)
        fibre_new();
    while (b->whole.members > 0) {
        const uint64_t moves = b->moves;
        for (unsigned i = 0; i < b->fibres; i++)
            if (b->all[i].flat < THREADS_MAX)
                fibre_run(i);
        if (b->moves == moves)
            wrong("threads of a block wait for each other for ever");
    }
}

static void blocks_run(bool backwards)
{
    const cuda_dim grid = here->grid;
    const unsigned blocks = grid.x * grid.y * grid.z;
    for (unsigned i = 0; i < blocks; i++) {
        const unsigned at = backwards ? blocks - 1 - i : i;
        here->index = {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
        block_run();
    }
}

// Runs body(ctx) as each thread of each block. `backwards`: threads and blocks in that order.
static void launch(cuda_dim grid, cuda_dim size, bool backwards, void (*body)(void *), void *ctx)
{
    const uint64_t threads = (uint64_t)size.x * size.y * size.z;
    if (threads > THREADS_MAX || threads == 0)
        wrong("a block has 1 to 1,024 threads");
    here = (block *)calloc(1, sizeof(*here));
    if (!here)
        wrong("no memory");
    here->size = size;
    here->grid = grid;
    here->body = body;
    here->ctx = ctx;
    here->backwards = backwards;
    blocks_run(backwards);
    for (const fibre &f : here->all) {
        free(f.copies);
        free(f.stack);
    }
    free(here);
    here = nullptr;
}

} // namespace fibres

// ---- kernels ----

extern "C" {
void KVC_FRAGS_KERNEL(const struct kvc_frag *list, uint32_t n);
void KVC_DECODE_KERNEL(const uint32_t *kv, uint64_t words, uint32_t *ret_sum);
void KVC_ATTEND_KERNEL(struct kvc_attention a, uint32_t parts, float *work);
void KVC_ATTEND_MERGE_KERNEL(struct kvc_attention a, uint32_t states, float *work);
void KVC_QUANTISE_KERNEL(struct kvc_rows rows);
void KVC_DEQUANTISE_KERNEL(struct kvc_rows rows);
/* rules.cu */
void rules_neighbour(uint32_t *ret_neighbour);
void rules_uneven(uint32_t *ret_sum);
void rules_lane_missing(uint32_t *ret_sum);
void rules_copies(const uint32_t *from, uint32_t *ret, uint32_t waits);
}

namespace
{

template <typename T> T arg(void *args, unsigned i)
{
    return *static_cast<T *>(static_cast<void *const *>(args)[i]);
}

void run_frags(void *a)
{
    KVC_FRAGS_KERNEL(arg<const struct kvc_frag *>(a, 0), arg<uint32_t>(a, 1));
}

void run_decode(void *a)
{
    KVC_DECODE_KERNEL(arg<const uint32_t *>(a, 0), arg<uint64_t>(a, 1), arg<uint32_t *>(a, 2));
}

void run_attend(void *a)
{
    KVC_ATTEND_KERNEL(arg<struct kvc_attention>(a, 0), arg<uint32_t>(a, 1), arg<float *>(a, 2));
}

void run_merge(void *a)
{
    KVC_ATTEND_MERGE_KERNEL(arg<struct kvc_attention>(a, 0), arg<uint32_t>(a, 1),
                            arg<float *>(a, 2));
}

void run_quantise(void *a)
{
    KVC_QUANTISE_KERNEL(arg<struct kvc_rows>(a, 0));
}

void run_dequantise(void *a)
{
    KVC_DEQUANTISE_KERNEL(arg<struct kvc_rows>(a, 0));
}

template <void (*kernel)(uint32_t *)> void run_rule(void *a)
{
    kernel(arg<uint32_t *>(a, 0));
}

void run_copies(void *a)
{
    rules_copies(arg<const uint32_t *>(a, 0), arg<uint32_t *>(a, 1), arg<uint32_t>(a, 2));
}

#define STRING(name)  STRING_(name)
#define STRING_(name) #name

const struct {
    const char *name;
    void (*run)(void *args);
} kernels[] = {{STRING(KVC_FRAGS_KERNEL), run_frags},
               {STRING(KVC_DECODE_KERNEL), run_decode},
               {STRING(KVC_ATTEND_KERNEL), run_attend},
               {STRING(KVC_ATTEND_MERGE_KERNEL), run_merge},
               {STRING(KVC_QUANTISE_KERNEL), run_quantise},
               {STRING(KVC_DEQUANTISE_KERNEL), run_dequantise},
               {"rules_neighbour", run_rule<rules_neighbour>},
               {"rules_uneven", run_rule<rules_uneven>},
               {"rules_lane_missing", run_rule<rules_lane_missing>},
               {"rules_copies", run_copies}};

} // namespace

void fibres_run(const char *kernel, const unsigned grid[3], const unsigned block[3], bool backwards,
                void *const *args)
{
    for (const auto &known : kernels)
        if (strcmp(known.name, kernel) == 0) {
            fibres::launch({grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, backwards,
                           known.run, const_cast<void **>(args));
            return;
        }
    fibres::wrong("there is no such kernel");
}
