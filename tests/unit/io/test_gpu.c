/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The contract of gpu.h, on whatever device KVC_TEST_GPU names ("cuda:0"); without it on an
 * emulated one. What only an emulated device can be told to do is in test_gpu_emu.c.
 */
#include <inttypes.h>

#include "clock.h"
#include "gpu_fixture.h"

#define MEMORY_BYTES (64 * MIB)

static const char *device_name(void)
{
    const char *name = getenv("KVC_TEST_GPU");
    return name != NULL && name[0] != '\0' ? name : "emu:0";
}

/* Two devices that are not one, where there are two. */
static const char *second_name(void)
{
    return strcmp(device_name(), "emu:0") == 0 ? "emu:1" : device_name();
}

static struct gpu_config config_of(const char *device)
{
    return (struct gpu_config){
        .device = device, .emu = {.memory_bytes = MEMORY_BYTES}, .changed = note_changed};
}

static void setup(int backend)
{
    loop = make(backend);
}

static void open_device(int backend)
{
    const struct gpu_config config = config_of(device_name());
    setup(backend);
    gpu = open_up(&config);
}

static void teardown(void)
{
    gpu_close(&gpu);
    loop_destroy(&loop);
}

CASE_BOTH_LOOPS(it_comes_up_and_says_what_it_is)
{
    static const uint8_t none[GPU_UUID_BYTES];
    open_device(_i);
    ck_assert_uint_eq(changes, 1);
    ck_assert_int_eq(change[0].state, GPU_UP);
    ck_assert_uint_ge(gpu_generation(gpu), 1);
    ck_assert_str_ne(gpu_name(gpu), "");
    ck_assert_str_eq(gpu_why(gpu), "");
    ck_assert_int_ne(memcmp(gpu_uuid(gpu), none, sizeof none), 0);
    ck_assert(gpu_is_emulated(gpu) == (strncmp(device_name(), "emu:", 4) == 0));
    ck_assert_int_ge(gpu_exports(gpu), DEVICE_HANDLE_FD);
    ck_assert_int_le(gpu_exports(gpu), DEVICE_HANDLE_EMU);
    teardown();
}

CASE_BOTH_LOOPS(what_is_submitted_before_it_is_up_waits_for_that)
{
    const struct gpu_config config = config_of(device_name());
    struct gpu_mem mem = {0};
    struct flight f = {.op = {.kind = GPU_ALLOC, .mem = &mem, .bytes = MIB}};
    setup(_i);
    ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
    begin(gpu, &f);
    ck_assert_int_eq(end_of(&f), 0);
    ck_assert_int_eq(gpu_state(gpu), GPU_UP);
    must_free(gpu, &mem);
    teardown();
}

CASE_BOTH_LOOPS(bytes_come_back)
{
    static const uint64_t sizes[] = {1,    63,      64,      65,          1024,        4096,
                                     4097, MIB + 3, 8 * MIB, 8 * MIB + 1, 20 * MIB + 7};
    struct gpu_mem mem;
    open_device(_i);
    must_alloc(gpu, &mem, 32 * MIB);
    uint8_t *out = bytes_new(32 * MIB), *back = bytes_new(32 * MIB);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t shift = i * 13 % 64; /* unaligned, and differently on the two sides */
        scramble(out, sizes[i] + 64, i);
        memset(back, 0, sizes[i] + 64);
        ck_assert_int_eq(copy_to(gpu, mem.addr + 3 * shift, out + shift, sizes[i]), 0);
        ck_assert_int_eq(copy_from(gpu, back, mem.addr + 3 * shift, sizes[i]), 0);
        must_equal(back, out + shift, sizes[i]);
        ck_assert_uint_eq(back[sizes[i]], 0);
    }
    must_free(gpu, &mem);
    ck_assert_uint_eq(mem.addr, 0);
    free(out);
    free(back);
    teardown();
}

enum { SCATTERED = 3000 };

/* Fragments of 1 to `max` bytes with gaps, in another order than they lie in; those of the packed
 * side follow each other. */
static uint32_t scatter(struct kvc_frag *frag, uint64_t scattered, uint64_t bytes, uint64_t packed,
                        uint64_t max, bool to_packed)
{
    static uint32_t order[SCATTERED];
    static uint64_t place[SCATTERED], length[SCATTERED];
    uint64_t seed = max, offset = 0;
    uint32_t n = 0;
    for (; n < SCATTERED; n++) {
        length[n] = 1 + mixed(&seed) % max;
        offset += mixed(&seed) % 77;
        if (offset + length[n] > bytes)
            break;
        place[n] = offset;
        offset += length[n];
        order[n] = n;
    }
    for (uint32_t i = n; i > 1; i--) {
        const uint32_t k = (uint32_t)(mixed(&seed) % i), swap = order[i - 1];
        order[i - 1] = order[k];
        order[k] = swap;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t there = scattered + place[order[i]], len = length[order[i]];
        frag[i] = to_packed ? (struct kvc_frag){packed, there, len}
                            : (struct kvc_frag){there, packed, len};
        packed += len;
    }
    return n;
}

CASE_BOTH_LOOPS(fragments_touch_what_they_name_and_nothing_else)
{
    static const uint64_t largest[] = {1, 50, 700, 5000, 100000};
    static struct kvc_frag frag[SCATTERED];
    const uint64_t bytes = 4 * MIB;
    struct gpu_mem mem;
    open_device(_i);
    must_alloc(gpu, &mem, bytes);
    uint8_t *packed = bytes_new(bytes), *model = bytes_new(bytes), *back = bytes_new(bytes);
    for (size_t k = 0; k < sizeof largest / sizeof largest[0]; k++) {
        scramble(model, bytes, k);
        ck_assert_int_eq(copy_to(gpu, mem.addr, model, bytes), 0);
        scramble(packed, bytes, 100 + k);
        uint32_t n = scatter(frag, mem.addr, bytes, at(packed), largest[k], false);
        ck_assert_int_eq(copy(gpu, GPU_TO_DEVICE, frag, n), 0);
        for (uint32_t i = 0; i < n; i++)
            memcpy(model + (frag[i].to - mem.addr), (const void *)(uintptr_t)frag[i].from,
                   frag[i].bytes);
        ck_assert_int_eq(copy_from(gpu, back, mem.addr, bytes), 0);
        must_equal(back, model, bytes);
        /* and the other way */
        memset(back, 0xee, bytes);
        n = scatter(frag, mem.addr, bytes, at(back), largest[k], true);
        ck_assert_int_eq(copy(gpu, GPU_FROM_DEVICE, frag, n), 0);
        uint64_t end = 0;
        for (uint32_t i = 0; i < n; end += frag[i++].bytes)
            must_equal(back + end, model + (frag[i].from - mem.addr), frag[i].bytes);
        for (; end < bytes; end++)
            if (back[end] != 0xee)
                ck_abort_msg("byte %" PRIu64 " behind the last fragment was written", end);
    }
    must_free(gpu, &mem);
    free(packed);
    free(model);
    free(back);
    teardown();
}

CASE_BOTH_LOOPS(a_copy_on_the_device_stays_there)
{
    struct gpu_mem one, two;
    open_device(_i);
    must_alloc(gpu, &one, MIB);
    must_alloc(gpu, &two, MIB);
    uint8_t *out = bytes_new(MIB), *back = bytes_new(MIB);
    scramble(out, MIB, 5);
    ck_assert_int_eq(copy_to(gpu, one.addr, out, MIB), 0);
    const struct kvc_frag frag[] = {{two.addr + MIB / 2, one.addr, MIB / 2},
                                    {two.addr, one.addr + MIB / 2, MIB / 2}};
    ck_assert_int_eq(copy(gpu, GPU_ON_DEVICE, frag, 2), 0);
    ck_assert_int_eq(copy_from(gpu, back, two.addr, MIB), 0);
    must_equal(back, out + MIB / 2, MIB / 2);
    must_equal(back + MIB / 2, out, MIB / 2);
    must_free(gpu, &one);
    must_free(gpu, &two);
    free(out);
    free(back);
    teardown();
}

CASE_BOTH_LOOPS(copies_run_in_the_order_in_which_they_were_submitted)
{
    enum { N = 200 };
    static struct flight all[N];
    static struct kvc_frag frag[N];
    static uint8_t value[N];
    struct gpu_mem mem;
    uint8_t last = 0;
    open_device(_i);
    must_alloc(gpu, &mem, 4096);
    for (unsigned i = 0; i < N; i++) {
        value[i] = (uint8_t)i;
        frag[i] = (struct kvc_frag){mem.addr, at(&value[i]), 1};
        all[i] = copy_of(GPU_TO_DEVICE, &frag[i], 1);
        begin(gpu, &all[i]);
    }
    ck_assert_int_eq(copy_from(gpu, &last, mem.addr, 1), 0);
    ck_assert_uint_eq(last, (uint8_t)(N - 1));
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(all[i].op.status, 0);
        ck_assert_uint_eq(all[i].order, all[0].order + i);
    }
    must_free(gpu, &mem);
    teardown();
}

/* What a word is after a copy of no fragments whose mark raises it to 9. */
static uint64_t raised_from(int backend, uint64_t before)
{
    _Atomic uint64_t word = before;
    const struct gpu_mark mark = {.end = 0, .value = 9};
    struct flight f = copy_of(GPU_TO_DEVICE, NULL, 0);
    open_device(backend);
    f.op.mark = &mark;
    f.op.nmarks = 1;
    f.op.ready = &word;
    ck_assert_int_eq(run(gpu, &f), 0);
    teardown();
    return word;
}

CASE_BOTH_LOOPS(a_copy_of_no_fragments_ends_well)
{
    ck_assert_uint_eq(raised_from(_i, 0), 9);
}

CASE_BOTH_LOOPS(a_word_never_goes_back)
{
    ck_assert_uint_eq(raised_from(_i, 1000), 1000);
}

/* --- marks --- */

enum { MARKS = 24, FRAGS_A_MARK = 40, MARK_FRAG_BYTES = 16384 };

/* All marks that are there now, and that what they stand for is. */
static unsigned marks_seen(const _Atomic uint64_t *word, const uint8_t *got, const uint8_t *want)
{
    const uint64_t n = atomic_load_explicit(word, memory_order_acquire) - 1000;
    ck_assert_uint_le(n, MARKS);
    must_equal(got, want, n * FRAGS_A_MARK * MARK_FRAG_BYTES);
    return (unsigned)n;
}

CASE_BOTH_LOOPS(marks_are_written_in_order_when_their_fragments_are_there)
{
    static struct kvc_frag frag[MARKS * FRAGS_A_MARK];
    static struct gpu_mark mark[MARKS];
    _Atomic uint64_t word = 1000;
    const uint64_t bytes = sizeof frag / sizeof frag[0] * MARK_FRAG_BYTES;
    struct gpu_mem mem;
    open_device(_i);
    must_alloc(gpu, &mem, bytes);
    uint8_t *out = bytes_new(bytes), *back = bytes_new(bytes);
    scramble(out, bytes, 7);
    ck_assert_int_eq(copy_to(gpu, mem.addr, out, bytes), 0);
    for (unsigned i = 0; i < MARKS * FRAGS_A_MARK; i++)
        frag[i] = (struct kvc_frag){at(back) + i * MARK_FRAG_BYTES, mem.addr + i * MARK_FRAG_BYTES,
                                    MARK_FRAG_BYTES};
    for (unsigned k = 0; k < MARKS; k++)
        mark[k] = (struct gpu_mark){.end = (k + 1) * FRAGS_A_MARK, .value = 1001 + k};
    struct flight f = copy_of(GPU_FROM_DEVICE, frag, MARKS * FRAGS_A_MARK);
    f.op.mark = mark;
    f.op.nmarks = MARKS;
    f.op.ready = &word;
    begin(gpu, &f);
    for (unsigned before = 0, n = 0; n < MARKS; before = n) {
        n = marks_seen(&word, back, out);
        ck_assert_uint_ge(n, before);
    }
    ck_assert_int_eq(end_of(&f), 0);
    must_free(gpu, &mem);
    free(out);
    free(back);
    teardown();
}

/* --- words, deadlines, cancel --- */

CASE_BOTH_LOOPS(a_copy_waits_for_its_word_and_holds_nobody_up)
{
    _Atomic uint64_t word = 41;
    struct gpu_mem mem;
    uint8_t value[3] = {1, 2, 3}, back = 0;
    open_device(_i);
    must_alloc(gpu, &mem, 4096);
    const struct kvc_frag frag = {mem.addr, at(&value[0]), 1};
    struct flight waits = copy_of(GPU_TO_DEVICE, &frag, 1);
    waits.op.after.word = &word;
    waits.op.after.value = 42;
    begin(gpu, &waits);
    ck_assert_int_eq(copy_to(gpu, mem.addr, &value[1], 1), 0);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0);
    ck_assert_uint_eq(back, 2);
    ck_assert_uint_eq(waits.calls, 0);
    atomic_store_explicit(&word, 43, memory_order_release); /* or more */
    ck_assert_int_eq(end_of(&waits), 0);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0);
    ck_assert_uint_eq(back, 1);
    must_free(gpu, &mem);
    teardown();
}

CASE_BOTH_LOOPS(what_is_cancelled_before_it_begins_copies_nothing)
{
    _Atomic uint64_t word = 0;
    struct gpu_mem mem;
    uint8_t value = 1, other = 2, back = 0;
    open_device(_i);
    must_alloc(gpu, &mem, 4096);
    ck_assert_int_eq(copy_to(gpu, mem.addr, &other, 1), 0);
    const struct kvc_frag frag = {mem.addr, at(&value), 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    _Atomic bool cancel = false;
    f.op.cancel = &cancel;
    f.op.after.word = &word;
    f.op.after.value = 1;
    begin(gpu, &f);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0); /* so it waits by now */
    atomic_store(&cancel, true);
    ck_assert_int_eq(end_of(&f), -ECANCELED);
    atomic_store(&word, 1);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0);
    ck_assert_uint_eq(back, 2);
    ck_assert_uint_eq(gpu_metrics(gpu)->failures, 0); /* it was asked for */
    must_free(gpu, &mem);
    teardown();
}

CASE_BOTH_LOOPS(what_has_not_begun_at_its_deadline_does_not)
{
    _Atomic uint64_t word = 0;
    struct gpu_mem mem;
    uint8_t value = 1;
    open_device(_i);
    must_alloc(gpu, &mem, 4096);
    const struct kvc_frag frag = {mem.addr, at(&value), 1};
    struct flight waits = copy_of(GPU_TO_DEVICE, &frag, 1), late = waits, good = waits;
    waits.op.after.word = &word;
    waits.op.after.value = 1;
    waits.op.deadline_ns = clock_now_ns() + 5 * MS;
    late.op.deadline_ns = 1;
    good.op.deadline_ns = clock_now_ns() + 600 * (uint64_t)SECOND;
    begin(gpu, &waits);
    begin(gpu, &late);
    begin(gpu, &good);
    ck_assert_int_eq(end_of(&late), -ETIMEDOUT);
    ck_assert_int_eq(end_of(&good), 0);
    ck_assert_int_eq(end_of(&waits), -ETIMEDOUT);
    must_free(gpu, &mem);
    teardown();
}

/* --- memory --- */

CASE_BOTH_LOOPS(host_memory_can_be_registered_and_let_go)
{
    struct gpu_mem mem;
    const uint64_t bytes = 2 * MIB;
    uint8_t *host = aligned_alloc(4096, bytes), *back = bytes_new(bytes);
    open_device(_i);
    must_alloc(gpu, &mem, bytes);
    ck_assert_ptr_nonnull(host);
    scramble(host, bytes, 3);
    ck_assert_int_eq(pin(gpu, host, MIB), 0);
    ck_assert_int_eq(pin(gpu, host, MIB), -EINVAL); /* it is */
    ck_assert_int_eq(pin(gpu, host + MIB - 4096, MIB), -EINVAL);
    ck_assert_int_eq(pin(gpu, host + MIB, 0), -EINVAL);
    ck_assert_int_eq(pin(gpu, host + MIB, MIB), 0);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, bytes), 0);
    ck_assert_int_eq(copy_from(gpu, back, mem.addr, bytes), 0);
    must_equal(back, host, bytes);
    must_unpin(gpu, host, MIB);
    must_unpin(gpu, host + MIB, MIB);
    ck_assert_int_eq(pin(gpu, host, bytes), 0);
    must_unpin(gpu, host, bytes);
    must_unpin(gpu, host, bytes); /* does no harm */
    must_free(gpu, &mem);
    free(host);
    free(back);
    teardown();
}

CASE_BOTH_LOOPS(more_memory_than_there_is_is_refused_and_costs_nothing)
{
    struct gpu_mem mem, huge;
    uint8_t value = 7, back = 0;
    open_device(_i);
    must_alloc(gpu, &mem, MIB);
    const uint64_t before = gpu_metrics(gpu)->memory_bytes;
    ck_assert_uint_ge(before, MIB);
    ck_assert_int_eq(alloc(gpu, &huge, UINT64_C(1) << 50), -ENOMEM);
    ck_assert_uint_eq(huge.addr, 0);
    ck_assert_int_eq(alloc(gpu, &huge, 0), -EINVAL);
    ck_assert_int_eq(gpu_state(gpu), GPU_UP);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, before);
    ck_assert_int_eq(copy_to(gpu, mem.addr, &value, 1), 0);
    ck_assert_int_eq(copy_from(gpu, &back, mem.addr, 1), 0);
    ck_assert_uint_eq(back, 7);
    must_free(gpu, &mem);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
    must_free(gpu, &huge); /* what was refused may be freed */
    teardown();
}

/* In one piece, and as the last of many. */
CASE_BOTH_LOOPS(what_is_not_memory_of_the_device_is_refused_and_not_touched)
{
    enum { MANY = 3072, EACH = 8192 }; /* a device may round memory up to 2 MiB */
    static struct kvc_frag frag[MANY];
    struct gpu_mem mem;
    uint8_t *host = bytes_new((uint64_t)MANY * EACH), *back = bytes_new((uint64_t)MANY * EACH);
    open_device(_i);
    must_alloc(gpu, &mem, (uint64_t)MANY * EACH);
    const uint64_t outside = mem.addr + mem.bytes;
    scramble(host, (uint64_t)MANY * EACH, 1);
    ck_assert_int_eq(copy_to(gpu, outside - 1, host, 2), -EINVAL);
    ck_assert_int_eq(copy_to(gpu, at(back), host, 1), -EINVAL);
    ck_assert_int_eq(copy_from(gpu, back, at(host), 1), -EINVAL);
    ck_assert_uint_eq(back[0], 0);
    for (uint32_t i = 0; i < MANY; i++)
        frag[i] =
            (struct kvc_frag){mem.addr + (uint64_t)i * EACH, at(host) + (uint64_t)i * EACH, EACH};
    frag[MANY - 1].to = outside;
    struct flight before = copy_of(GPU_TO_DEVICE, frag, MANY - 1);
    struct flight wrong = copy_of(GPU_TO_DEVICE, frag, MANY), after = before;
    begin(gpu, &before);
    begin(gpu, &wrong);
    begin(gpu, &after);
    ck_assert_int_eq(end_of(&before), 0);
    ck_assert_int_eq(end_of(&wrong), -EINVAL);
    ck_assert_int_eq(end_of(&after), 0);
    ck_assert(before.order < wrong.order && wrong.order < after.order);
    ck_assert_int_eq(copy_from(gpu, back, mem.addr, (uint64_t)(MANY - 1) * EACH), 0);
    must_equal(back, host, (uint64_t)(MANY - 1) * EACH);
    ck_assert_int_eq(gpu_state(gpu), GPU_UP);
    ck_assert_uint_eq(gpu_metrics(gpu)->failures, 4);
    ck_assert_uint_eq(gpu_metrics(gpu)->inflight_bytes, 0);
    must_free(gpu, &mem);
    free(host);
    free(back);
    teardown();
}

CASE_BOTH_LOOPS(metrics_count_what_was_done)
{
    static uint8_t value[3 * 4096];
    struct gpu_mem mem;
    open_device(_i);
    const struct gpu_metrics *m = gpu_metrics(gpu);
    must_alloc(gpu, &mem, MIB);
    const struct kvc_frag frag[] = {{mem.addr, at(value), 4096},
                                    {mem.addr + 65536, at(value) + 4096, 8192}};
    struct flight f = copy_of(GPU_TO_DEVICE, frag, 2);
    begin(gpu, &f);
    ck_assert_uint_eq(f.op.bytes, 12288);
    ck_assert_uint_eq(m->inflight_bytes, 12288);
    ck_assert_int_eq(end_of(&f), 0);
    ck_assert_uint_eq(m->inflight_bytes, 0);
    ck_assert_uint_eq(m->copies, 1);
    ck_assert_uint_eq(m->copy_bytes, 12288);
    ck_assert_uint_eq(m->copy_frags, 2);
    ck_assert_uint_eq(histo_count(&m->copy_ns), 1);
    ck_assert_uint_eq(m->failures, 0);
    ck_assert_uint_eq(m->outs, 0);
    must_free(gpu, &mem);
    teardown();
}

/* --- several, and the end --- */

CASE_BOTH_LOOPS(two_devices_know_nothing_of_each_other)
{
    const struct gpu_config config = config_of(second_name());
    struct gpu_mem mine, theirs;
    uint8_t value[2] = {1, 2}, back[2] = {0};
    open_device(_i);
    struct gpu *other = open_up(&config);
    if (gpu_is_emulated(gpu))
        ck_assert_int_ne(memcmp(gpu_uuid(gpu), gpu_uuid(other), GPU_UUID_BYTES), 0);
    must_alloc(gpu, &mine, 4096);
    must_alloc(other, &theirs, 4096);
    const struct kvc_frag frag[] = {{mine.addr, at(&value[0]), 1}, {theirs.addr, at(&value[1]), 1}};
    struct flight a = copy_of(GPU_TO_DEVICE, &frag[0], 1);
    struct flight b = copy_of(GPU_TO_DEVICE, &frag[1], 1);
    begin(gpu, &a);
    begin(other, &b);
    ck_assert_int_eq(end_of(&a), 0);
    ck_assert_int_eq(end_of(&b), 0);
    ck_assert_int_eq(copy_from(gpu, &back[0], mine.addr, 1), 0);
    must_free(gpu, &mine);
    gpu_close(&gpu);
    ck_assert_int_eq(copy_from(other, &back[1], theirs.addr, 1), 0);
    ck_assert(back[0] == 1 && back[1] == 2);
    must_free(other, &theirs);
    gpu_close(&other);
    teardown();
}

CASE_BOTH_LOOPS(closing_ends_all_that_is_in_flight)
{
    enum { N = 60 };
    static struct flight all[N];
    static struct kvc_frag frag[N];
    _Atomic uint64_t never = 0;
    struct gpu_mem mem, refused = {0};
    const uint64_t each = 256 * KIB;
    open_device(_i);
    must_alloc(gpu, &mem, N * each);
    uint8_t *out = bytes_new(N * each);
    for (unsigned i = 0; i < N; i++) {
        frag[i] = (struct kvc_frag){mem.addr + i * each, at(out) + i * each, each};
        all[i] = copy_of(GPU_TO_DEVICE, &frag[i], 1);
        if (i % 3 == 2) {
            all[i].op.after.word = &never;
            all[i].op.after.value = 1;
        }
        begin(gpu, &all[i]);
    }
    struct flight after = {.op = {.kind = GPU_ALLOC, .mem = &refused, .bytes = 4096}};
    begin(gpu, &after);
    gpu_close(&gpu);
    ck_assert_ptr_null(gpu);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_uint_eq(all[i].calls, 1);
        if (i % 3 == 2)
            ck_assert_int_eq(all[i].op.status, -ECANCELED);
        else
            ck_assert(all[i].op.status == 0 || all[i].op.status == -ECANCELED);
    }
    ck_assert_uint_eq(after.calls, 1);
    ck_assert(after.op.status == 0 || after.op.status == -ECANCELED);
    ck_assert_uint_eq(mem.addr, 0); /* it went with the device */
    free(out);
    teardown();
}

/* Frees its memory, as who is told that it all ends would. */
static struct flight follow_up;
static struct gpu_mem follow_mem;

static void submit_more(struct gpu_op *op)
{
    struct flight *f = op->ctx;
    f->calls++;
    follow_up = (struct flight){.op = {.kind = GPU_FREE, .mem = &follow_mem}};
    begin(f->gpu, &follow_up);
}

CASE_BOTH_LOOPS(what_is_submitted_while_it_closes_ends_too)
{
    _Atomic uint64_t never = 0;
    uint8_t value = 0;
    open_device(_i);
    must_alloc(gpu, &follow_mem, 4096);
    const struct kvc_frag frag = {follow_mem.addr, at(&value), 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    f.op.after.word = &never;
    f.op.after.value = 1;
    begin(gpu, &f);
    f.op.done = submit_more;
    gpu_close(&gpu);
    ck_assert_uint_eq(f.calls, 1);
    ck_assert_int_eq(f.op.status, -ECANCELED);
    ck_assert_uint_eq(follow_up.calls, 1);
    ck_assert_int_eq(follow_up.op.status, 0);
    teardown();
}

CASE_BOTH_LOOPS(it_can_be_closed_before_it_is_up)
{
    const struct gpu_config config = config_of(device_name());
    setup(_i);
    ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
    gpu_close(&gpu);
    gpu_close(&gpu);
    gpu_close(NULL);
    ck_assert_uint_eq(changes, 0); /* nobody is called from inside a call */
    teardown();
}

/* --- paths --- */

static enum gpu_path worth(const struct gpu_rates *r, const uint64_t rate[GPU_PATHS])
{
    const uint64_t quarters = r->by_turns ? 12 : 5;
    return 4 * rate[GPU_PATH_KERNEL] > quarters * rate[GPU_PATH_ENGINE] ? GPU_PATH_KERNEL
                                                                        : GPU_PATH_ENGINE;
}

CASE_BOTH_LOOPS(calibration_measures_each_path_and_a_much_faster_kernel_is_taken)
{
    struct gpu_config config = config_of(device_name());
    config.calibrate = true;
    setup(_i);
    gpu = open_up(&config);
    while (gpu_rates(gpu)->plain_to == 0) { /* the machine is too busy to find the time for any */
        gpu_close(&gpu);
        gpu = open_up(&config);
    }
    const struct gpu_rates *r = gpu_rates(gpu);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
    for (unsigned i = 0; i < GPU_CALIBRATED; i++) {
        ck_assert(i == 0 || r->frag_bytes[i] > r->frag_bytes[i - 1]);
        ck_assert_int_eq(gpu_path_of(gpu, GPU_TO_DEVICE, r->frag_bytes[i]), worth(r, r->to[i]));
        ck_assert_int_eq(gpu_path_of(gpu, GPU_FROM_DEVICE, r->frag_bytes[i]), worth(r, r->from[i]));
        ck_assert_int_eq(gpu_path_of(gpu, GPU_ON_DEVICE, r->frag_bytes[i]), worth(r, r->within[i]));
    }
    ck_assert_int_eq(gpu_path_of(gpu, GPU_TO_DEVICE, 1),
                     gpu_path_of(gpu, GPU_TO_DEVICE, r->frag_bytes[0]));
    ck_assert_int_eq(gpu_path_of(gpu, GPU_TO_DEVICE, UINT64_MAX),
                     gpu_path_of(gpu, GPU_TO_DEVICE, r->frag_bytes[GPU_CALIBRATED - 1]));
    teardown();
}

CASE_BOTH_LOOPS(without_calibration_it_is_the_engine)
{
    open_device(_i);
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 30; bytes *= 4) {
        ck_assert_int_eq(gpu_path_of(gpu, GPU_TO_DEVICE, bytes), GPU_PATH_ENGINE);
        ck_assert_int_eq(gpu_path_of(gpu, GPU_FROM_DEVICE, bytes), GPU_PATH_ENGINE);
        ck_assert_int_eq(gpu_path_of(gpu, GPU_ON_DEVICE, bytes), GPU_PATH_ENGINE);
    }
    teardown();
}

/* --- at random --- */

/*
 * Two areas of host memory, pinned and not, and two on the device; a model of all four. Copies run
 * in the order in which they were submitted, so the model copies when they are submitted. What
 * waits for a word runs at any time, in an area that nobody else touches.
 */
enum {
    OPERATIONS = 10000,
    IN_FLIGHT = 24,
    RANDOM_FRAGS = 48,
    AREAS = 4, /* 0, 1: host; 2, 3: device */
    AREA_BYTES = 384 * 1024
};

struct random_copy {
    struct flight flight;
    struct kvc_frag frag[RANDOM_FRAGS];
    struct gpu_mark mark;
    _Atomic uint64_t word, marked;
    _Atomic bool cancel;
    bool waits;
};

static struct random_copy copies[IN_FLIGHT];
static uint8_t *area[AREAS], *model[AREAS]; /* area: of the device, where it is read back to */
static uint64_t base[AREAS];
static struct gpu_mem area_mem[2];
static uint64_t random_state;

static uint64_t pick(uint64_t below)
{
    return mixed(&random_state) % below;
}

/* Fragments that do not overlap where they write: one behind the other there. */
static uint32_t random_frags(struct random_copy *c, unsigned to, unsigned from)
{
    uint64_t offset = pick(64);
    uint32_t n = 0;
    const uint64_t most = UINT64_C(1) << (4 + pick(13));
    const uint32_t want = 1 + (uint32_t)pick(RANDOM_FRAGS);
    while (n < want) {
        const uint64_t bytes = 1 + pick(most);
        if (offset + bytes > AREA_BYTES)
            break;
        c->frag[n++] =
            (struct kvc_frag){base[to] + offset, base[from] + pick(AREA_BYTES - bytes + 1), bytes};
        offset += bytes + (pick(2) ? 0 : pick(300));
    }
    return n;
}

static void begin_random(struct random_copy *c)
{
    static const unsigned ways[][2] = {{2, 0}, {3, 1}, {2, 1}, {0, 2}, {1, 3}, {0, 3}, {3, 2}};
    const unsigned *way = ways[pick(sizeof ways / sizeof ways[0])];
    const unsigned to = way[0], from = way[1];
    const enum gpu_direction direction = to >= 2 && from >= 2 ? GPU_ON_DEVICE
                                         : to >= 2            ? GPU_TO_DEVICE
                                                              : GPU_FROM_DEVICE;
    const uint32_t n = random_frags(c, to, from);
    c->flight = copy_of(direction, c->frag, n);
    atomic_store(&c->marked, 0);
    atomic_store(&c->cancel, false);
    c->mark = (struct gpu_mark){.end = n, .value = 1};
    c->flight.op.mark = &c->mark;
    c->flight.op.nmarks = (uint32_t)pick(2);
    c->flight.op.ready = &c->marked;
    c->flight.op.cancel = &c->cancel;
    c->waits = false;
    const bool refused = pick(20) == 0; /* it copies nothing */
    if (refused && pick(2))
        c->flight.op.deadline_ns = 1;
    else if (refused)
        atomic_store(&c->cancel, true);
    for (uint32_t i = 0; i < n && !refused; i++)
        memcpy(model[to] + (c->frag[i].to - base[to]), model[from] + (c->frag[i].from - base[from]),
               c->frag[i].bytes);
    begin(gpu, &c->flight);
}

/* Of a copy that begins when its word is written: then it writes what is there already, so that it
 * does not matter when. */
static void begin_waiting(struct random_copy *c, uint8_t *own, uint64_t own_device)
{
    c->frag[0] = (struct kvc_frag){own_device, at(own), 4096};
    c->flight = copy_of(GPU_TO_DEVICE, c->frag, 1);
    atomic_store(&c->word, 0);
    atomic_store(&c->marked, 0);
    atomic_store(&c->cancel, false);
    c->flight.op.after.word = &c->word;
    c->flight.op.after.value = 1;
    c->waits = true;
    begin(gpu, &c->flight);
}

static void end_random(struct random_copy *c)
{
    if (c->flight.gpu == NULL)
        return;
    if (c->waits)
        atomic_store_explicit(&c->word, 1, memory_order_release);
    const int status = end_of(&c->flight);
    if (atomic_load(&c->cancel))
        ck_assert_int_eq(status, -ECANCELED);
    else if (c->flight.op.deadline_ns != 0)
        ck_assert_int_eq(status, -ETIMEDOUT);
    else
        ck_assert_int_eq(status, 0);
    const uint64_t marks = status == 0 ? c->flight.op.nmarks : 0;
    ck_assert_uint_eq(atomic_load(&c->marked), marks);
    c->flight.gpu = NULL;
}

static void compare_all(void)
{
    for (unsigned i = 0; i < IN_FLIGHT; i++)
        end_random(&copies[i]);
    for (unsigned a = 2; a < AREAS; a++)
        ck_assert_int_eq(copy_from(gpu, area[a], base[a], AREA_BYTES), 0);
    for (unsigned a = 0; a < AREAS; a++)
        must_equal(area[a], model[a], AREA_BYTES);
}

/* Memory of the device anew, with what was in it. */
static void move_area(unsigned a)
{
    compare_all();
    must_free(gpu, &area_mem[a - 2]);
    must_alloc(gpu, &area_mem[a - 2], AREA_BYTES);
    base[a] = area_mem[a - 2].addr;
    ck_assert_int_eq(copy_to(gpu, base[a], model[a], AREA_BYTES), 0);
}

static void make_areas(void)
{
    for (unsigned a = 0; a < AREAS; a++) {
        area[a] = aligned_alloc(4096, AREA_BYTES);
        model[a] = bytes_new(AREA_BYTES);
        ck_assert_ptr_nonnull(area[a]);
        scramble(model[a], AREA_BYTES, a);
        memcpy(area[a], model[a], AREA_BYTES);
        base[a] = at(area[a]);
        if (a >= 2) {
            must_alloc(gpu, &area_mem[a - 2], AREA_BYTES);
            base[a] = area_mem[a - 2].addr;
            ck_assert_int_eq(copy_to(gpu, base[a], model[a], AREA_BYTES), 0);
        }
    }
    ck_assert_int_eq(pin(gpu, area[1], AREA_BYTES), 0);
}

CASE_BOTH_LOOPS(random_operations_do_what_a_model_does)
{
    static uint8_t own[4096], back[4096];
    struct gpu_config config = config_of(device_name());
    struct gpu_mem own_mem;
    random_state = 20261122 + (uint64_t)_i;
    printf("seed %" PRIu64 "\n", random_state);
    config.calibrate = true;             /* then both paths are used */
    config.inflight_bytes = 1024 * 1024; /* and copies wait for each other */
    setup(_i);
    gpu = open_up(&config);
    make_areas();
    must_alloc(gpu, &own_mem, 4096);
    scramble(own, 4096, 99);
    for (unsigned i = 0; i < CHECK_SHARE(CHECK_SHARE(OPERATIONS)); i++) {
        struct random_copy *c = &copies[pick(IN_FLIGHT)];
        end_random(c);
        if (pick(30) == 0)
            begin_waiting(c, own, own_mem.addr);
        else
            begin_random(c);
        if (pick(500) == 0)
            move_area(2 + (unsigned)pick(2));
    }
    compare_all();
    ck_assert_int_eq(copy_to(gpu, own_mem.addr, own, 4096), 0);
    ck_assert_int_eq(copy_from(gpu, back, own_mem.addr, 4096), 0);
    must_equal(back, own, 4096);
    ck_assert_uint_eq(gpu_metrics(gpu)->failures, 0);
    must_unpin(gpu, area[1], AREA_BYTES);
    teardown();
    for (unsigned a = 0; a < AREAS; a++) {
        free(area[a]);
        free(model[a]);
    }
}

int main(void)
{
    const char *problem = gpu_device_problem(device_name());
    if (problem != NULL) {
        printf("SKIP: %s: %s\n", device_name(), problem);
        return 77;
    }
    return cases_run();
}
