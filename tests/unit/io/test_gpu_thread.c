/* SPDX-License-Identifier: Apache-2.0 */
/* What a device's thread gives to its driver: a spy stands before that of the emulated device. */
#include "gpu__.h"
#include "gpu_fixture.h"

/* What copy() was given; the device's thread writes it, and who has seen done() may read it. */
static struct {
    enum gpu_path path;
    uint32_t n;
    uint64_t bytes;
} given[4096];
static unsigned ngiven;
static uint64_t bytes_there, most_there; /* given, and not ended yet */
static uint64_t oldest;                  /* not ended */
static struct gpu_drv spy;
/* Written when so many pieces have been given. */
static _Atomic uint64_t word;
static unsigned word_at;
static _Atomic bool *cancels; /* so is this; NULL: nothing */
static _Atomic bool fails;    /* the next poll */

/* In its order: C for a copy, for a registration the first byte of the memory. */
static char story[sizeof(given) / sizeof(given[0])];
static size_t told;
static _Atomic bool holds, is_held; /* registrations */

static int spy_pin(struct gpu_dev *dev, void *host, uint64_t bytes)
{
    story[told++] = *(const char *)host;
    atomic_store(&is_held, true);
    while (atomic_load(&holds))
        (void)usleep(100);
    return gpu_drv_emu.pin(dev, host, bytes);
}

static int spy_copy(struct gpu_dev *dev, enum gpu_path path, enum gpu_direction direction,
                    const struct kvc_frag *frag, uint32_t n, struct gpu_revoke *revoke,
                    uint64_t *ret_ticket)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += frag[i].bytes;
    story[told++] = 'C';
    given[ngiven].path = path;
    given[ngiven].n = n;
    given[ngiven++].bytes = bytes;
    bytes_there += bytes;
    most_there = MAX(most_there, bytes_there);
    if (ngiven == word_at) {
        atomic_store_explicit(&word, 1, memory_order_release);
        if (cancels != NULL)
            atomic_store(cancels, true);
    }
    return gpu_drv_emu.copy(dev, path, direction, frag, n, revoke, ret_ticket);
}

static int spy_poll(struct gpu_dev *dev, uint64_t ticket)
{
    if (atomic_exchange(&fails, false))
        return -EIO;
    const int ended = gpu_drv_emu.poll(dev, ticket);
    if (ended > 0)
        bytes_there -= given[oldest++].bytes;
    return ended;
}

/* The thread looks at neither before the next operation is posted to it. */
static void open_spied(uint64_t inflight_bytes)
{
    const struct gpu_config config = {.device = "emu:0",
                                      .inflight_bytes = inflight_bytes,
                                      .retry_ns = MS,
                                      .changed = note_changed};
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    spy = gpu_drv_emu;
    spy.copy = spy_copy;
    spy.poll = spy_poll;
    spy.pin = spy_pin;
    gpu->drv = &spy;
}

static void close_spied(void)
{
    gpu_close(&gpu);
    loop_destroy(&loop);
}

static void set_rates(uint64_t engine, uint64_t kernel)
{
    for (unsigned i = 0; i < GPU_CALIBRATED; i++) {
        struct gpu_rates *r = &gpu->thread.rates;
        uint64_t *const all[] = {r->to[i], r->from[i], r->within[i]};
        for (unsigned k = 0; k < ARRAY_LEN(all); k++) {
            all[k][GPU_PATH_ENGINE] = engine;
            all[k][GPU_PATH_KERNEL] = kernel;
        }
    }
}

static enum gpu_path path_of(enum gpu_direction direction, uint64_t to, uint64_t from,
                             uint64_t bytes)
{
    const struct kvc_frag frag[] = {{to, from, bytes / 2}, {to + bytes / 2, from + bytes / 2, 1}};
    ck_assert_int_eq(copy(gpu, direction, frag, 2), 0);
    return given[ngiven - 1].path;
}

CASE(a_kernel_gets_registered_memory_only)
{
    static uint8_t host[4 * 4096];
    struct gpu_mem mem;
    open_spied(0);
    must_alloc(gpu, &mem, sizeof host);
    set_rates(100, 126);
    const uint64_t h = at(host) + 4096, d = mem.addr;
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h, 4096), GPU_PATH_ENGINE);
    ck_assert_int_eq(pin(gpu, host + 4096, 8192), 0);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h, 4096), GPU_PATH_KERNEL);
    ck_assert_int_eq(path_of(GPU_FROM_DEVICE, h, d, 4096), GPU_PATH_KERNEL);
    ck_assert_int_eq(path_of(GPU_FROM_DEVICE, h + 4096, d, 4096), GPU_PATH_KERNEL);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h - 1, 4096), GPU_PATH_ENGINE);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h + 8192 - 2048, 4096), GPU_PATH_ENGINE);
    ck_assert_int_eq(path_of(GPU_ON_DEVICE, d + 8192, d, 4096), GPU_PATH_KERNEL);
    set_rates(100, 125);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h, 4096), GPU_PATH_ENGINE); /* not worth it */
    set_rates(100, 126);
    must_unpin(gpu, host + 4096, 8192);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, d, h, 4096), GPU_PATH_ENGINE);
    must_free(gpu, &mem);
    close_spied();
}

static enum gpu_path path_asked(enum gpu_path path, uint64_t to, const void *from)
{
    const struct kvc_frag frag = {to, at(from), 4096};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    f.op.path = (uint8_t)(1 + path);
    ck_assert_int_eq(run(gpu, &f), 0);
    return given[ngiven - 1].path;
}

CASE(a_copy_takes_the_path_that_it_names)
{
    static uint8_t host[4096];
    struct gpu_mem mem;
    open_spied(0);
    must_alloc(gpu, &mem, sizeof host);
    set_rates(1, 2);
    ck_assert_int_eq(path_asked(GPU_PATH_KERNEL, mem.addr, host), GPU_PATH_ENGINE);
    ck_assert_int_eq(pin(gpu, host, sizeof host), 0);
    ck_assert_int_eq(path_asked(GPU_PATH_ENGINE, mem.addr, host), GPU_PATH_ENGINE);
    set_rates(2, 1);
    ck_assert_int_eq(path_asked(GPU_PATH_KERNEL, mem.addr, host), GPU_PATH_KERNEL);
    must_unpin(gpu, host, sizeof host);
    must_free(gpu, &mem);
    close_spied();
}

/* Each takes as long as many copies do. */
CASE(registrations_go_one_at_a_time_between_copies_the_newest_first)
{
    static uint8_t host[4][4096];
    struct flight pins[4], unpin = {.op = {.kind = GPU_UNPIN, .host = host[1], .bytes = 4096}};
    struct gpu_mem mem;
    open_spied(0);
    must_alloc(gpu, &mem, 4096);
    atomic_store(&holds, true);
    for (unsigned i = 0; i < 4; i++) {
        host[i][0] = (uint8_t)('a' + i);
        pins[i] = (struct flight){.op = {.kind = GPU_PIN, .host = host[i], .bytes = 4096}};
        begin(gpu, &pins[i]);
        while (!atomic_load(&is_held))
            (void)usleep(100);
    }
    const struct kvc_frag frag = {mem.addr, at(host[0]), 1};
    struct flight copied = copy_of(GPU_TO_DEVICE, &frag, 1);
    begin(gpu, &copied);
    begin(gpu, &unpin); /* of one that has not begun */
    atomic_store(&holds, false);
    ck_assert_int_eq(end_of(&copied), 0);
    ck_assert_int_eq(end_of(&unpin), 0);
    ck_assert_int_eq(end_of(&pins[1]), -ECANCELED);
    ck_assert_uint_lt(pins[1].order, unpin.order);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(end_of(&pins[i]), i == 1 ? -ECANCELED : 0);
    ck_assert_mem_eq(story, "aCdc", 5);
    ck_assert_int_eq(pin(gpu, host[1], 4096), 0);
    must_free(gpu, &mem);
    close_spied();
}

CASE(registrations_that_have_not_begun_end_with_the_device)
{
    static uint8_t host[2][4096];
    struct flight pins[2];
    open_spied(0);
    atomic_store(&holds, true);
    for (unsigned i = 0; i < 2; i++) {
        pins[i] = (struct flight){.op = {.kind = GPU_PIN, .host = host[i], .bytes = 4096}};
        begin(gpu, &pins[i]);
    }
    atomic_store(&holds, false);
    gpu_close(&gpu);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_uint_eq(pins[i].calls, 1);
    loop_destroy(&loop);
}

CASE(registrations_go_with_the_device)
{
    static uint8_t host[4096];
    struct gpu_mem mem;
    open_spied(0);
    ck_assert_int_eq(pin(gpu, host, sizeof host), 0);
    must_alloc(gpu, &mem, 4096);
    atomic_store(&fails, true);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, 1), -EIO);
    wait_for_state(gpu, GPU_UP);
    must_free(gpu, &mem);
    set_rates(1, 2);
    must_alloc(gpu, &mem, 4096);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, mem.addr, at(host), 4096), GPU_PATH_ENGINE);
    must_unpin(gpu, host, sizeof host);
    ck_assert_int_eq(pin(gpu, host, sizeof host), 0);
    ck_assert_int_eq(path_of(GPU_TO_DEVICE, mem.addr, at(host), 4096), GPU_PATH_KERNEL);
    must_free(gpu, &mem);
    close_spied();
}

CASE(the_nearest_size_that_was_measured_decides)
{
    struct gpu_rates r = {.frag_bytes = {1024, 2048, 6144, 18432, 65536, 8388608}};
    const struct {
        uint64_t bytes;
        unsigned nearest;
    } want[] = {{1, 0},
                {1448, 0},
                {1449, 1},
                {3547, 1},
                {3548, 2},
                {10641, 2},
                {10642, 3},
                {34755, 3},
                {34756, 4},
                {741455, 4},
                {741456, 5},
                {16 << 20, 5},
                {UINT64_C(1) << 40, 5}};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        memset(r.to, 0, sizeof r.to);
        memset(r.from, 0, sizeof r.from);
        memset(r.within, 0, sizeof r.within);
        ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, want[i].bytes), GPU_PATH_ENGINE);
        r.to[want[i].nearest][GPU_PATH_KERNEL] = 1;
        ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, want[i].bytes), GPU_PATH_KERNEL);
        ck_assert_int_eq(gpu__path(&r, GPU_ON_DEVICE, want[i].bytes), GPU_PATH_ENGINE);
        ck_assert_int_eq(gpu__path(&r, GPU_FROM_DEVICE, want[i].bytes), GPU_PATH_ENGINE);
        r.from[want[i].nearest][GPU_PATH_KERNEL] = 1;
        ck_assert_int_eq(gpu__path(&r, GPU_FROM_DEVICE, want[i].bytes), GPU_PATH_KERNEL);
        r.within[want[i].nearest][GPU_PATH_KERNEL] = 1;
        ck_assert_int_eq(gpu__path(&r, GPU_ON_DEVICE, want[i].bytes), GPU_PATH_KERNEL);
    }
    r.to[0][GPU_PATH_ENGINE] = 100;
    r.to[0][GPU_PATH_KERNEL] = 125;
    ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, 1), GPU_PATH_ENGINE);
    r.to[0][GPU_PATH_KERNEL] = 126;
    ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, 1), GPU_PATH_KERNEL);
    r.by_turns = true;
    r.to[0][GPU_PATH_KERNEL] = 300;
    ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, 1), GPU_PATH_ENGINE);
    r.to[0][GPU_PATH_KERNEL] = 301;
    ck_assert_int_eq(gpu__path(&r, GPU_TO_DEVICE, 1), GPU_PATH_KERNEL);
}

CASE_EACH(a_large_copy_is_given_in_pieces_within_the_credit, 4)
{
    enum { SMALL = 10000 };
    static struct kvc_frag small[SMALL];
    static const uint64_t credits[] = {1, 100000, 3 * MIB, 0};
    const uint64_t credit = credits[_i] > 0 ? credits[_i] : 64 * MIB;
    const uint64_t piece = MAX(MIN(credit / 8, 8 * MIB), 4096);
    struct gpu_mem mem;
    open_spied(credits[_i]);
    must_alloc(gpu, &mem, 20 * MIB);
    uint8_t *host = bytes_new(20 * MIB), *back = bytes_new(20 * MIB);
    scramble(host, 20 * MIB, 1);
    for (uint32_t i = 0; i < SMALL; i++)
        small[i] = (struct kvc_frag){mem.addr + i * 100, at(host) + i * 100, 1 + i % 100};
    ck_assert_int_eq(copy(gpu, GPU_TO_DEVICE, small, SMALL), 0);
    const bool is_large = credit < 20 * MIB;
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, is_large ? 4 * MIB : 20 * MIB), 0);
    ck_assert_int_eq(copy_from(gpu, back, mem.addr, 4 * MIB), 0);
    must_equal(back, host, 4 * MIB);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < ngiven; i++) {
        bytes += given[i].bytes;
        ck_assert_uint_le(given[i].bytes, piece);
        ck_assert_uint_le(given[i].n, GPU_DRV_FRAGS_MAX);
    }
    ck_assert_uint_eq(bytes, gpu_metrics(gpu)->copy_bytes);
    ck_assert_uint_le(most_there, MAX(credit, piece));
    must_free(gpu, &mem);
    free(host);
    free(back);
    close_spied();
}

CASE(pieces_end_at_marks_when_they_are_large_enough)
{
    enum { N = 64, EACH = 256 * 1024 };
    static struct kvc_frag frag[N];
    static _Atomic uint64_t seen;
    const struct gpu_mark mark[] = {{2, 1}, {6, 2}, {20, 3}, {64, 4}};
    static const uint32_t want[] = {6, 14, 32, 12}; /* fragments: 2 are too few, 32 are 8 MiB */
    struct gpu_mem mem;
    open_spied(0);
    must_alloc(gpu, &mem, N * EACH);
    uint8_t *host = bytes_new(N * EACH);
    for (uint32_t i = 0; i < N; i++)
        frag[i] = (struct kvc_frag){mem.addr + i * EACH, at(host) + i * EACH, EACH};
    struct flight f = copy_of(GPU_TO_DEVICE, frag, N);
    f.op.mark = mark;
    f.op.nmarks = 4;
    f.op.ready = &seen;
    ck_assert_int_eq(run(gpu, &f), 0);
    ck_assert_uint_eq(seen, 4);
    ck_assert_uint_eq(ngiven, 4);
    for (unsigned i = 0; i < ngiven; i++)
        ck_assert_uint_eq(given[i].n, want[i]);
    must_free(gpu, &mem);
    free(host);
    close_spied();
}

CASE(an_earlier_copy_whose_word_comes_goes_before_the_rest_of_a_later_one)
{
    enum { PIECES = 400, AT = 20, CREDIT = 8 };
    const uint64_t bytes = PIECES * 32 * KIB;
    static uint8_t value = 7;
    struct gpu_mem mem, other;
    open_spied(CREDIT * 32 * KIB);
    must_alloc(gpu, &mem, bytes);
    must_alloc(gpu, &other, 4096);
    uint8_t *host = bytes_new(bytes);
    const struct kvc_frag late = {other.addr, at(&value), 1}, large = {mem.addr, at(host), bytes};
    struct flight waits = copy_of(GPU_TO_DEVICE, &late, 1),
                  runs = copy_of(GPU_TO_DEVICE, &large, 1);
    waits.op.after.word = &word;
    waits.op.after.value = 1;
    word_at = AT;
    begin(gpu, &waits);
    begin(gpu, &runs);
    ck_assert_int_eq(end_of(&waits), 0);
    ck_assert_int_eq(end_of(&runs), 0);
    ck_assert_uint_eq(ngiven, PIECES + 1);
    unsigned when = 0;
    while (given[when].bytes != 1)
        when++;
    ck_assert_uint_ge(when, AT);
    ck_assert_uint_le(when, AT + CREDIT);
    must_free(gpu, &mem);
    must_free(gpu, &other);
    free(host);
    close_spied();
}

/* ---- what is measured ---- */

static char fault_file[64];

static void say_fault(const char *text)
{
    FILE *f = fopen(fault_file, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(text, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

/* Less memory than it would like is better than none. */
CASE_EACH(calibration_makes_do_with_less_memory, 3)
{
    const uint64_t memory[] = {2 * MIB, MIB, MIB - 4096};
    const struct gpu_config config = {.device = "emu:0",
                                      .calibrate = true,
                                      .changed = note_changed,
                                      .emu = {.memory_bytes = memory[_i]}};
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    const struct gpu_rates *r = gpu_rates(gpu);
    for (unsigned i = 0; i + 1 < GPU_CALIBRATED && _i == 2; i++)
        ck_assert_uint_eq(r->to[i][GPU_PATH_ENGINE], 0);
    ck_assert_uint_eq(r->plain_to > 0, _i < 2);
    ck_assert_uint_eq(r->to[GPU_CALIBRATED - 1][GPU_PATH_ENGINE], 0); /* 8 MiB */
    struct gpu_mem mem;
    must_alloc(gpu, &mem, memory[_i]); /* it has left nothing */
    must_free(gpu, &mem);
    close_spied();
}

CASE(what_could_not_be_measured_is_when_there_is_memory)
{
    (void)snprintf(fault_file, sizeof fault_file, "/tmp/kvc-gpu-thread-%d", (int)getpid());
    const struct gpu_config config = {.device = "emu:0",
                                      .calibrate = true,
                                      .recalibrate_ns = 1,
                                      .changed = note_changed,
                                      .emu = {.fault_file = fault_file}};
    say_fault("oom");
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    ck_assert_uint_eq(gpu_rates(gpu)->plain_to, 0);
    say_fault("");
    while (!gpu__is_calibrated(gpu_rates(gpu)))
        turn();
    const struct gpu_rates *r = gpu_rates(gpu);
    for (unsigned i = 0; i < GPU_CALIBRATED; i++) {
        ck_assert_uint_le(r->to[i][GPU_PATH_ENGINE], r->plain_to);
        ck_assert_uint_le(r->from[i][GPU_PATH_ENGINE], r->plain_from);
        ck_assert_uint_gt(gpu_window_rate(r, i), 0);
        ck_assert_uint_lt(gpu_window_rate(r, i), r->plain_to);
    }
    ck_assert_uint_eq(changes, 1);
    unlink(fault_file);
    close_spied();
}

/* A page of its own size each: what is measured of another says little of its round trips. */
CASE(the_sizes_that_pages_have_are_measured)
{
    static const uint32_t sizes[] = {1024, 2048, 6144, 18432, 65536};
    const struct gpu_config config = {
        .device = "emu:0", .calibrate = true, .changed = note_changed};
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        ck_assert_uint_eq(gpu_rates(gpu)->frag_bytes[i], sizes[i]);
    close_spied();
}

/* Somebody waits, so nothing is measured: what is copied is what does not count. */
CASE(clocks_are_warm_before_anything_counts)
{
    open_spied(0);
    struct gpu_rates rates = {.frag_bytes = {0}};
    struct gpu_dev_info about = {.has_kernel = true};
    struct inbox waits;
    struct inbox_item who;
    char why[GPU_WHY_BYTES];
    ck_assert_int_eq(inbox_create(&waits), 0);
    inbox_post(&waits, &who);
    ck_assert_int_eq(gpu__calibrate(&spy, gpu->thread.dev, &about, &waits, &rates, why), 0);
    ck_assert_uint_eq(rates.plain_to + rates.plain_from, 0);
    ck_assert_uint_eq(ngiven, 2); /* to and fro */
    ck_assert_uint_eq(given[0].bytes + given[1].bytes, 16 * MIB);
    inbox_destroy(&waits);
    close_spied();
}

/* No try is long enough for two copies, so each must leave less to the next. */
CASE(a_slow_device_is_measured_by_and_by)
{
    const struct gpu_config config = {.device = "emu:0",
                                      .calibrate = true,
                                      .recalibrate_ns = 1,
                                      .changed = note_changed,
                                      .emu = {.latency_ns = UINT64_C(160000000)}};
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    while (!gpu__is_calibrated(gpu_rates(gpu)))
        turn();
    for (unsigned i = 0; i < GPU_CALIBRATED; i++)
        ck_assert(gpu_rates(gpu)->to[i][GPU_PATH_KERNEL] > 0 &&
                  gpu_rates(gpu)->from[i][GPU_PATH_KERNEL] > 0 &&
                  gpu_rates(gpu)->within[i][GPU_PATH_KERNEL] > 0);
    close_spied();
}

/* ---- what is refused ---- */

static unsigned asked;

static const char *refuse(void *ctx, const uint8_t uuid[GPU_UUID_BYTES])
{
    (void)ctx;
    asked++;
    ck_assert_uint_eq(uuid[GPU_UUID_BYTES - 1], 7);
    return "it is the same device as another";
}

/* What was submitted before it was known ends too, and it is not tried again. */
CASE(a_device_that_is_refused_is_out_for_good)
{
    const struct gpu_config config = {
        .device = "emu:7", .retry_ns = 1, .changed = note_changed, .refuse = refuse};
    static const uint8_t none[GPU_UUID_BYTES];
    struct gpu_mem early = {0}, late = {0};
    loop = make(LOOP_AUTO);
    ck_assert_int_eq(gpu_open(&config, loop, &gpu), 0);
    struct flight f = {.op = {.kind = GPU_ALLOC, .mem = &early, .bytes = 4096}};
    begin(gpu, &f);
    while (changes == 0)
        turn();
    ck_assert_int_eq(change[0].state, GPU_OUT);
    ck_assert_str_eq(change[0].why, "it is the same device as another");
    ck_assert_int_eq(memcmp(gpu_uuid(gpu), none, GPU_UUID_BYTES), 0);
    (void)end_of(&f);
    ck_assert_uint_eq(early.addr, 0);
    ck_assert_int_eq(alloc(gpu, &late, 4096), -EIO);
    ck_assert_int_eq(alloc(gpu, &late, 4096), -EIO);
    ck_assert_uint_eq(asked, 1);
    ck_assert_uint_eq(changes, 1);
    ck_assert_uint_eq(gpu_metrics(gpu)->memory_bytes, 0);
    close_spied();
}

/* ---- what is taken back ---- */

static _Atomic uint64_t revoked;

/* Raised by the spy when so many pieces have been given. */
CASE(no_piece_is_given_of_a_copy_that_was_taken_back)
{
    enum { PIECES = 64, AT = 5, EACH = 32 * 1024 };
    const uint64_t bytes = (uint64_t)PIECES * EACH;
    struct gpu_mem mem;
    open_spied(8 * EACH);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes);
    const struct kvc_frag frag = {mem.addr, at(host), bytes};
    static _Atomic uint64_t seen;
    const struct gpu_mark mark = {1, 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    f.op.revoke.word = &word;
    f.op.mark = &mark;
    f.op.nmarks = 1;
    f.op.ready = &seen;
    word_at = AT;
    ck_assert_int_eq(run(gpu, &f), -ECANCELED);
    ck_assert_uint_eq(ngiven, AT);
    ck_assert_uint_eq(seen, 0);
    ck_assert_uint_eq(gpu_metrics(gpu)->failures, 0);
    ck_assert_int_eq(copy_to(gpu, mem.addr, host, EACH), 0); /* others go on */
    must_free(gpu, &mem);
    free(host);
    close_spied();
}

/* ---- fragments that are made as they are needed ---- */

enum { MADE_PIECES = 64, MADE_BYTES = 32 * 1024 };

struct made {
    uint64_t to, from, bytes; /* of a piece */
    unsigned pieces;
};
static struct made made;

static void make_next(struct gpu_op *op, struct kvc_frag *frag, uint32_t frags_max,
                      uint64_t bytes_max, struct gpu_piece *ret_piece)
{
    struct made *m = op->ctx;
    const uint64_t off = m->pieces++ * m->bytes, half = m->bytes / 2;
    ck_assert(frags_max == GPU_DRV_FRAGS_MAX && bytes_max == MADE_BYTES);
    frag[0] = (struct kvc_frag){m->to + off, m->from + off, half};
    frag[1] = (struct kvc_frag){frag[0].to + half, frag[0].from + half, half};
    *ret_piece = (struct gpu_piece){.frag = frag,
                                    .n = 2,
                                    .bytes = m->bytes,
                                    .direction = GPU_TO_DEVICE,
                                    .ready = m->pieces,
                                    .last = m->pieces == MADE_PIECES};
}

static void on_made(struct gpu_op *op)
{
    CONTAINER_OF(op, struct flight, op)->calls++;
}

/* All of it; or until it is cancelled, or the device is closed, which what was given outlives. */
CASE_EACH(pieces_are_made_as_the_driver_takes_them, 3)
{
    enum { AT = 5, CREDIT = 8 };
    const uint64_t bytes = (uint64_t)MADE_PIECES * MADE_BYTES;
    static _Atomic uint64_t seen;
    static _Atomic bool cancel;
    struct gpu_mem mem;
    open_spied(CREDIT * MADE_BYTES);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes), *back = bytes_new(bytes);
    scramble(host, bytes, 3);
    made = (struct made){.to = mem.addr, .from = at(host), .bytes = MADE_BYTES};
    cancels = _i == 1 ? &cancel : NULL;
    word_at = AT;
    struct flight f = {.op = {.kind = GPU_COPY,
                              .bytes = bytes,
                              .next_piece = make_next,
                              .ready = &seen,
                              .cancel = &cancel,
                              .done = on_made,
                              .ctx = &made}};
    gpu_submit(gpu, &f.op);
    while (_i < 2 && f.calls == 0)
        turn();
    if (_i == 2) {
        while (atomic_load(&word) == 0)
            (void)usleep(100);
        gpu_close(&gpu);
    }
    ck_assert_uint_eq(f.calls, 1);
    ck_assert_int_eq(f.op.status, _i == 0 || made.pieces == MADE_PIECES ? 0 : -ECANCELED);
    ck_assert_uint_eq(made.pieces, _i == 0 ? MADE_PIECES : _i == 1 ? AT : made.pieces);
    ck_assert_uint_eq(f.op.nfrags, 2 * made.pieces);
    /* A bad end tells nothing. */
    ck_assert(seen == made.pieces || (f.op.status != 0 && seen == made.pieces - 1));
    if (_i < 2) {
        ck_assert_int_eq(copy_from(gpu, back, mem.addr, (uint64_t)made.pieces * MADE_BYTES), 0);
        must_equal(back, host, (uint64_t)made.pieces * MADE_BYTES);
        must_free(gpu, &mem);
    }
    free(host);
    free(back);
    close_spied();
}

/* Their words come at once. */
CASE(copies_that_make_pieces_take_turns)
{
    enum { TURN = 4 };
    const uint64_t bytes = (uint64_t)MADE_PIECES * MADE_BYTES;
    static _Atomic uint64_t seen[2], go;
    struct made of[2];
    struct flight f[2];
    struct gpu_mem mem;
    open_spied(8 * MADE_BYTES);
    must_alloc(gpu, &mem, bytes);
    uint8_t *host = bytes_new(bytes);
    for (unsigned i = 0; i < 2; i++) {
        of[i] = (struct made){.to = mem.addr, .from = at(host), .bytes = MADE_BYTES / (1 + i)};
        f[i] = (struct flight){.op = {.kind = GPU_COPY,
                                      .bytes = MADE_PIECES * of[i].bytes,
                                      .next_piece = make_next,
                                      .ready = &seen[i],
                                      .after = {&go, 1},
                                      .done = on_made,
                                      .ctx = &of[i]}};
        gpu_submit(gpu, &f[i].op);
    }
    while (gpu_waiting(gpu) < 2)
        (void)usleep(100);
    atomic_store(&go, 1);
    while (f[0].calls + f[1].calls < 2)
        turn();
    ck_assert_uint_eq(ngiven, 2 * MADE_PIECES);
    for (unsigned i = TURN; i < ngiven; i++)
        ck_assert_uint_ne(given[i].bytes, given[i - TURN].bytes);
    ck_assert_uint_eq(gpu_waiting(gpu), 0);
    must_free(gpu, &mem);
    free(host);
    close_spied();
}

CASE(what_waits_for_its_word_ends_when_it_is_taken_back)
{
    static uint8_t value = 7;
    static _Atomic uint64_t never;
    struct gpu_mem mem;
    open_spied(0);
    must_alloc(gpu, &mem, 4096);
    const struct kvc_frag frag = {mem.addr, at(&value), 1};
    struct flight f = copy_of(GPU_TO_DEVICE, &frag, 1);
    f.op.revoke.word = &revoked;
    f.op.after.word = &never;
    f.op.after.value = 1;
    begin(gpu, &f);
    atomic_store(&revoked, 1);
    ck_assert_int_eq(end_of(&f), -ECANCELED);
    ck_assert_uint_eq(ngiven, 0);
    must_free(gpu, &mem);
    close_spied();
}

/* Bytes that are read after the memory was taken back may be somebody else's: the copy did not end
 * well, even if the driver had all of it, and even if the word is lowered again. */
CASE(a_copy_that_was_given_whole_does_not_end_well_once_it_is_taken_back)
{
    const struct gpu_config config = {
        .device = "emu:0", .changed = note_changed, .emu = {.latency_ns = 50 * MS}};
    struct gpu_mem mem;
    uint8_t host[4096];
    loop = make(LOOP_AUTO);
    gpu = open_up(&config);
    must_alloc(gpu, &mem, sizeof host);
    memset(host, 0x5a, sizeof host);
    const struct kvc_frag frag = {at(host), mem.addr, sizeof host};
    struct flight f = copy_of(GPU_FROM_DEVICE, &frag, 1);
    f.op.revoke.word = &revoked;
    begin(gpu, &f);
    (void)nanosleep(&(struct timespec){.tv_nsec = 10 * (long)MS}, NULL);
    atomic_store(&revoked, 1);
    ck_assert_int_eq(end_of(&f), -ECANCELED);
    for (size_t i = 0; i < sizeof host; i++)
        ck_assert_uint_eq(host[i], 0x5a); /* an emulated device looks when it is due */
    must_free(gpu, &mem);
    close_spied();
}
