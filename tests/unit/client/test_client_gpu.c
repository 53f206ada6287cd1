/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, their memory, completion words and pools, against a fake daemon. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client_gpu__.h"
#include "dlpack__.h"
#include "fault.h"
#include "gpu_fixture.h"

/* ---- devices ---- */

CASES(.setup = start, .teardown = stop);

CASE(a_device_needs_no_daemon)
{
    kvc = open_session(50);
    ck_assert(!kvc_is_up(kvc));
    open_gpu();
    memset(memory, 7, (size_t)REGIONS * PAGES * PAGE_BYTES);
    ck_assert_ptr_null((const void *)kvc_gpu_words(gpu));
    kvc_mem_free(&mem);
    ck_assert_ptr_null(mem);
    kvc_gpu_close(&gpu);
    ck_assert_ptr_null(gpu);
    kvc_gpu_close(&gpu);
}

CASES(.setup = start_gpu, .teardown = stop);

CASE(a_name_that_is_none_is_refused_with_what_would_be_one)
{
    static const char *const wrong[] = {"",      "emu",   "emu:",    "emu:x", "emu:1x",
                                        "gpu:0", "cuda:", "cuda:-1", "0",     "emu:4294967296"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct kvc_gpu *g = NULL;
        ck_assert_int_eq(kvc_gpu_open(kvc, wrong[i], &g), -EINVAL);
        ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "emu:<number>"));
        ck_assert_ptr_null(g);
    }
    struct kvc_gpu *g = NULL;
    ck_assert_int_eq(kvc_gpu_open(kvc, NULL, &g), -EINVAL);
}

/* The daemon's rule. */
CASE(an_emulated_device_has_any_number_of_32_bits)
{
    static const char *const names[] = {"emu:4294967295", "emu:1000000", "emu:007"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct kvc_gpu *g = NULL;
        ck_assert_msg(kvc_gpu_open(kvc, names[i], &g) == 0, "%s", kvc_last_error(kvc));
        kvc_gpu_close(&g);
    }
}

CASE(a_gpu_that_is_not_there_is_said_with_the_next_step)
{
    struct kvc_gpu *g = NULL;
    ck_assert_int_eq(kvc_gpu_open(kvc, "GPU-00000000-0000-0000-0000-000000000000", &g), -ENODEV);
    ck_assert_msg(strstr(kvc_last_error(kvc), "emu:0") != NULL ||
                      strstr(kvc_last_error(kvc), "nvidia-smi") != NULL,
                  "%s", kvc_last_error(kvc));
}

CASE(a_device_is_opened_once)
{
    struct kvc_gpu *again = NULL;
    ck_assert_int_eq(kvc_gpu_open(kvc, "emu:0", &again), -EINVAL);
    ck_assert_int_eq(kvc_gpu_open(kvc, "emu:1", &again), 0);
    kvc_gpu_close(&gpu);
    ck_assert_int_eq(kvc_gpu_open(kvc, "emu:0", &gpu), 0);
    kvc_gpu_close(&again);
}

static int count_devices(void *ctx, const void *row)
{
    const struct kvc_device *d = row;
    struct kvc_device *all = ctx;
    while (all->device[0] != '\0')
        all++;
    *all = *d;
    return 0;
}

static int take_rate(void *ctx, const void *row)
{
    struct kvc_rate *all = ctx;
    while (all->device[0] != '\0')
        all++;
    *all = *(const struct kvc_rate *)row;
    return 0;
}

static int stop_at_first(void *ctx, const void *row)
{
    (void)ctx;
    (void)row;
    return 42;
}

CASE(the_daemon_tells_of_its_devices)
{
    struct kvc_device all[3] = {0};
    struct kvc_rate rate[3] = {0};
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_DEVICES, NULL, count_devices, all), 0);
    ck_assert_str_eq(all[0].device, "emu:0");
    ck_assert(all[0].up && all[0].emulated);
    ck_assert_uint_eq(all[0].limit_bytes, 1 << 20);
    ck_assert_uint_eq(all[0].blocks, 7);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_RATES, NULL, take_rate, rate), 0);
    ck_assert_str_eq(rate[1].device, "emu:0");
    ck_assert_uint_eq(rate[1].fragment_bytes, 16384);
    ck_assert_uint_eq(rate[0].from_kernel, 4);
    ck_assert_str_eq(rate[2].device, "");
    ck_assert_str_eq(all[1].name, "NVIDIA H200");
    ck_assert_str_eq(all[1].why, "fell off the bus");
    ck_assert(!all[1].up && !all[1].emulated && all[1].outs == 3);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_DEVICES, NULL, stop_at_first, NULL), 42);
    fake_rule(&fake, KVC_OP_LIST, FAKE_BAD_BODY, 0, 1);
    ck_assert_int_eq(kvc_list(kvc, KVC_TABLE_DEVICES, NULL, stop_at_first, NULL),
                     KVC_E_BAD_MESSAGE);
}

/* ---- memory ---- */

CASE(memory_that_cannot_be_exported_is_refused)
{
    struct kvc_mem *m = NULL;
    static uint8_t mine[4096];
    ck_assert_int_eq(kvc_mem_register(gpu, mine, sizeof(mine), &m), -EOPNOTSUPP);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "kvc_gpu_load"));
    ck_assert_int_eq(kvc_mem_register(gpu, NULL, 1, &m), -EINVAL);
    void *at = NULL;
    ck_assert_int_eq(kvc_mem_alloc(gpu, 0, &at, &m), -EINVAL);
    ck_assert_int_eq(kvc_mem_alloc(gpu, UINT64_MAX, &at, &m), -EINVAL);
    ck_assert_int_eq(kvc_mem_alloc(gpu, INT64_MAX / 2, &at, &m), -ENOMEM);
    ck_assert_ptr_null(at);
    ck_assert_ptr_null(m);
}

CASE(memories_have_a_limit)
{
    static struct kvc_mem *m[KVC_MEMS_MAX];
    void *at;
    for (uint32_t i = 1; i < KVC_MEMS_MAX; i++)
        ck_assert_msg(kvc_mem_alloc(gpu, 1, &at, &m[i]) == 0, "%u: %s", i, kvc_last_error(kvc));
    ck_assert_int_eq(kvc_mem_alloc(gpu, 1, &at, &m[0]), KVC_E_LIMIT);
    kvc_mem_free(&m[17]);
    ck_assert_int_eq(kvc_mem_alloc(gpu, 1, &at, &m[0]), 0);
}

/* ---- words ---- */

CASE(words_are_shared_and_zero)
{
    volatile uint64_t *w = kvc_gpu_words(gpu);
    ck_assert_ptr_nonnull((const void *)w);
    for (uint32_t i = 0; i < KVC_WORDS; i++)
        ck_assert_uint_eq(w[i], 0);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 3, 17), 0);
    ck_assert_uint_eq(w[3], 17);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, 3, 17), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, 3, 5), 0);
    ck_assert_ptr_eq((const void *)kvc_gpu_words(gpu), (const void *)w);
    ck_assert_uint_eq(atomic_load(&fake.s->words_asked), 1);
}

CASE(words_have_numbers_and_values_with_limits)
{
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, KVC_WORDS, 1), -EINVAL);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, KVC_WORDS, 1), -EINVAL);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, UINT64_C(1) << 63), -EINVAL);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, KVC_WORDS - 1, INT64_MAX), 0);
}

CASE(a_wait_that_nobody_ends_ends_in_time)
{
    kvc_gpu_close(&gpu);
    kvc_close(&kvc);
    kvc = open_session(200);
    open_gpu();
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), 0);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, 0, 2), -ETIMEDOUT);
}

CASE(a_wait_ends_with_the_daemon)
{
    ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
    fake_kill(&fake);
    ck_assert_int_eq(kvc_gpu_wait(gpu, NULL, 0, 2), KVC_E_DOWN);
}

CASE(no_words_where_there_are_no_devices)
{
    atomic_store(&fake.s->words, FAKE_WORDS_REFUSE);
    ck_assert_ptr_null((const void *)kvc_gpu_words(gpu));
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), KVC_E_TIER);
    ck_assert(kvc_is_up(kvc));
    ck_assert_uint_eq(atomic_load(&fake.s->words_asked), 1);
}

CASE(words_that_are_not_to_be_had_now_are_asked_for_again)
{
    atomic_store(&fake.s->words, FAKE_WORDS_BUSY);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), KVC_E_BUSY);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), 0);
}

/* Without them its pages could not be taken back. _i: BUSY, none, never answered */
CASE_EACH(a_pool_is_not_without_words, 3)
{
    static const int modes[] = {FAKE_WORDS_BUSY, FAKE_WORDS_REFUSE, FAKE_WORDS_MUTE},
                     errors[] = {KVC_E_BUSY, KVC_E_TIER, KVC_E_TIMEOUT};
    kvc_gpu_close(&gpu);
    kvc_close(&kvc);
    kvc = open_session(200);
    open_gpu();
    atomic_store(&fake.s->words, modes[_i]);
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), errors[_i]);
    if (_i == 0) /* they are asked for again, with the pool */
        ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
}

CASE(words_that_do_not_come_are_not_waited_for_longer_than_the_deadline)
{
    kvc_gpu_close(&gpu);
    kvc_close(&kvc);
    atomic_store(&fake.s->words, FAKE_WORDS_MUTE);
    kvc = open_session(100);
    open_gpu();
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), KVC_E_TIMEOUT);
    ck_assert(kvc_is_up(kvc));
}

/* A page that could be cut, or is shorter than it should be, would be a SIGBUS some day. */
CASE_RANGE(words_that_cannot_be_trusted_end_the_link, FAKE_WORDS_NO_DESCRIPTOR,
           FAKE_WORDS_SHORT + 1)
{
    atomic_store(&fake.s->words, _i);
    ck_assert_ptr_null((const void *)kvc_gpu_words(gpu));
    ck_assert(!kvc_is_up(kvc));
    ck_assert_msg(strstr(kvc_last_error(kvc), "WORDS_ARE") != NULL, "%s", kvc_last_error(kvc));
}

static void reconnect(void)
{
    uint32_t epoch = kvc_epoch(kvc);
    uint64_t ms;
    fake_kill(&fake);
    fake_start(&fake);
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end;) {
        if (kvc_ping(kvc, &ms) == 0 && kvc_epoch(kvc) > epoch)
            return;
        usleep(10000);
    }
    ck_abort_msg("no reconnect: %s", kvc_last_error(kvc));
}

CASE(words_are_new_after_a_reconnect)
{
    volatile uint64_t *before = kvc_gpu_words(gpu);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 5, 9), 0);
    reconnect();
    before[5] = 10; /* a stream that is late writes to memory that is void, not to none */
    volatile uint64_t *after = kvc_gpu_words(gpu);
    ck_assert_ptr_ne((const void *)after, (const void *)before);
    ck_assert_uint_eq(after[5], 0);
}

CASE(many_reconnects_leave_no_pages_behind)
{
    for (int i = 0; i < 12; i++) {
        ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
        if (i < 11)
            reconnect();
    }
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 5, 9), 0);
}

/* ---- pools ---- */

CASE(a_pool_is_its_memory_and_a_description)
{
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_known), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_kind), KVC_HANDLE_EMU);
    ck_assert_uint_eq(atomic_load(&fake.s->mem_bytes), REGIONS * PAGES * PAGE_BYTES);
    ck_assert_mem_eq(fake.s->device, "kvc-emu\0\0\0\0\0\0\0\0", KVC_UUID_BYTES);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 1);
    struct kvc_pool *second = NULL;
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &second), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 2);
    kvc_pool_close(&pool);
    ck_assert_ptr_null(pool);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 1);
    kvc_pool_close(&second);
    kvc_pool_close(&second);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 0);
}

static bool all_dropped(void *arg)
{
    (void)arg;
    return atomic_load(&fake.s->mems_known) == 0;
}

CASE(memory_goes_with_the_last_pool_that_names_it)
{
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    kvc_mem_free(&mem);
    ck_assert_ptr_null(mem);
    memory[0] = 1; /* it is there */
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 0);
    kvc_pool_close(&pool);
    ck_assert(fake_wait_for(all_dropped, NULL));
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 1);
}

CASE(closing_the_device_closes_all_of_it)
{
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    kvc_gpu_close(&gpu);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 0);
    ck_assert(fake_wait_for(all_dropped, NULL));
}

CASE(pools_have_a_limit)
{
    struct kvc_pool_spec spec = pool_spec();
    struct kvc_pool *p[KVC_POOLS_MAX + 1] = {NULL};
    for (uint32_t i = 0; i < KVC_POOLS_MAX; i++)
        ck_assert_int_eq(kvc_pool_open(gpu, &spec, &p[i]), 0);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &p[KVC_POOLS_MAX]), KVC_E_LIMIT);
    kvc_pool_close(&p[3]);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &p[KVC_POOLS_MAX]), 0);
}

/* A pool of many memories, each with one region. */
static struct kvc_pool_spec wide_spec(struct kvc_mem *m[FAKE_POOL_REGIONS],
                                      struct kvc_pool_region region[FAKE_POOL_REGIONS])
{
    for (uint32_t i = 0; i < FAKE_POOL_REGIONS; i++) {
        void *at;
        ck_assert_int_eq(kvc_mem_alloc(gpu, PAGES * 128, &at, &m[i]), 0);
        region[i] = (struct kvc_pool_region){
            .mem = m[i], .stride_bytes = 128, .page_bytes = 128, .layer = i};
    }
    return (struct kvc_pool_spec){
        .pages_max = PAGES,
        .groups = 1,
        .group = {{.pages_per_block = PPB, .regions = FAKE_POOL_REGIONS, .region = region}}};
}

CASE(many_memories_are_given_some_at_a_time)
{
    struct kvc_mem *m[FAKE_POOL_REGIONS];
    struct kvc_pool_region region[FAKE_POOL_REGIONS];
    struct kvc_pool_spec spec = wide_spec(m, region);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_known), FAKE_POOL_REGIONS);
}

CASE(a_daemon_that_is_busy_importing_is_asked_again)
{
    struct kvc_mem *m[FAKE_POOL_REGIONS];
    struct kvc_pool_region region[FAKE_POOL_REGIONS];
    struct kvc_pool_spec spec = wide_spec(m, region);
    atomic_store(&fake.s->mem, FAKE_MEM_BUSY);
    atomic_store(&fake.s->mem_busy, 3);
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(kvc));
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), FAKE_POOL_REGIONS + 3);
}

CASE(a_daemon_that_stays_busy_is_an_error)
{
    struct kvc_pool_spec spec = pool_spec();
    atomic_store(&fake.s->mem, FAKE_MEM_BUSY);
    atomic_store(&fake.s->mem_busy, UINT32_MAX);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_BUSY);
}

CASE(memory_that_the_daemon_does_not_take_is_no_pool)
{
    struct kvc_pool_spec spec = pool_spec();
    atomic_store(&fake.s->mem, FAKE_MEM_REFUSE);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_UNKNOWN_OP);
    ck_assert_msg(strstr(kvc_last_error(kvc), "not as the test likes it") != NULL, "%s",
                  kvc_last_error(kvc));
    atomic_store(&fake.s->mem, FAKE_MEM_TAKE);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
}

CASE(memory_that_is_not_answered_for_is_not_waited_for_longer_than_the_deadline)
{
    kvc_gpu_close(&gpu);
    kvc_close(&kvc);
    kvc = open_session(100);
    open_gpu();
    struct kvc_pool_spec spec = pool_spec();
    atomic_store(&fake.s->mem, FAKE_MEM_MUTE);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_TIMEOUT);
    /* Its number is in doubt: other memory gets another. */
    void *at;
    struct kvc_mem *other;
    kvc_mem_free(&mem);
    atomic_store(&fake.s->mem, FAKE_MEM_TAKE);
    ck_assert_int_eq(kvc_mem_alloc(gpu, (uint64_t)REGIONS * PAGES * PAGE_BYTES, &at, &other), 0);
    mem = other;
    spec = pool_spec();
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(kvc));
}

CASE(a_pool_that_the_daemon_refuses_says_why)
{
    struct kvc_pool_spec spec = pool_spec();
    fake_rule(&fake, KVC_OP_POOL_OPEN, FAKE_STATUS, KVC_ST_TIER, 1);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_TIER);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "as the test says"));
    fake_rule(&fake, KVC_OP_POOL_OPEN, FAKE_OTHER_OP, 0, 1);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_BAD_MESSAGE);
    ck_assert(!kvc_is_up(kvc));
}

CASE(a_pool_needs_a_daemon)
{
    struct kvc_pool_spec spec = pool_spec();
    fake_kill(&fake);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_DOWN);
    ck_assert_ptr_null(pool);
}

CASE(a_daemon_that_dies_over_a_pool_is_noticed)
{
    struct kvc_pool_spec spec = pool_spec();
    fake_rule(&fake, KVC_OP_POOL_OPEN, FAKE_DIE, 0, 1);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_DOWN);
}

/* ---- what has come of a prefix ---- */

#define OK KVC_ST_OK
#define NO KVC_ST_TIER
static const struct {
    struct pages_have group[2];
    uint32_t groups, hit, from, want;
} cases[] = {
    /* full */
    {{{16, 0, KVC_RULE_FULL, 0, 3, (const uint8_t[]){OK, OK, OK}}}, 1, 48, 0, 48},
    {{{16, 0, KVC_RULE_FULL, 0, 3, (const uint8_t[]){OK, OK, OK}}}, 1, 40, 0, 40},
    {{{16, 0, KVC_RULE_FULL, 0, 3, (const uint8_t[]){OK, OK, NO}}}, 1, 40, 0, 32},
    {{{16, 0, KVC_RULE_FULL, 0, 3, (const uint8_t[]){NO, OK, OK}}}, 1, 48, 0, 0},
    {{{16, 0, KVC_RULE_FULL, 2, 2, (const uint8_t[]){OK, OK}}}, 1, 64, 32, 64},
    {{{16, 0, KVC_RULE_FULL, 2, 2, (const uint8_t[]){OK, NO}}}, 1, 64, 40, 48},
    {{{16, 0, KVC_RULE_FULL, 2, 2, (const uint8_t[]){NO, OK}}}, 1, 64, 32, 0},
    {{{16, 0, KVC_RULE_FULL, 0, 0, NULL}}, 1, 0, 0, 0},
    {{{16, 0, KVC_RULE_FULL, 0, 2, (const uint8_t[]){OK, OK}}}, 1, 48, 0, 32}, /* too few */
    /* window of 32: the last two or three blocks */
    {{{16, 32, KVC_RULE_WINDOW, 2, 2, (const uint8_t[]){OK, OK}}}, 1, 64, 0, 64},
    {{{16, 32, KVC_RULE_WINDOW, 2, 2, (const uint8_t[]){OK, NO}}}, 1, 64, 0, 0},
    {{{16, 32, KVC_RULE_WINDOW, 1, 3, (const uint8_t[]){OK, OK, NO}}}, 1, 64, 0, 48},
    {{{16, 32, KVC_RULE_WINDOW, 2, 2, (const uint8_t[]){OK, NO}}}, 1, 64, 32, 48},
    {{{16, 32, KVC_RULE_WINDOW, 0, 1, (const uint8_t[]){OK}}}, 1, 16, 0, 16},
    /* state: the block that ends there */
    {{{64, 0, KVC_RULE_STATE, 2, 1, (const uint8_t[]){OK}}}, 1, 192, 0, 192},
    {{{64, 0, KVC_RULE_STATE, 2, 1, (const uint8_t[]){NO}}}, 1, 192, 0, 0},
    {{{64, 0, KVC_RULE_STATE, 2, 1, (const uint8_t[]){NO}}}, 1, 192, 128, 0},
    /* full and state: it is all or nothing */
    {{{16, 0, KVC_RULE_FULL, 0, 8, (const uint8_t[]){OK, OK, OK, OK, OK, OK, OK, OK}},
      {64, 0, KVC_RULE_STATE, 1, 1, (const uint8_t[]){OK}}},
     2,
     128,
     0,
     128},
    {{{16, 0, KVC_RULE_FULL, 0, 8, (const uint8_t[]){OK, OK, OK, OK, OK, OK, OK, NO}},
      {64, 0, KVC_RULE_STATE, 1, 1, (const uint8_t[]){OK}}},
     2,
     128,
     0,
     0},
    /* full groups of other sizes: a prefix ends where blocks of both do */
    {{{16, 0, KVC_RULE_FULL, 0, 8, (const uint8_t[]){OK, OK, OK, OK, OK, NO, OK, OK}},
      {32, 0, KVC_RULE_FULL, 0, 4, (const uint8_t[]){OK, OK, OK, OK}}},
     2,
     128,
     0,
     64},
};

CASE_EACH(only_what_a_prefix_needs_must_have_come, sizeof(cases) / sizeof(cases[0]))
{
    ck_assert_uint_eq(
        pages__tokens(cases[_i].group, cases[_i].groups, cases[_i].hit, cases[_i].from),
        cases[_i].want);
}

struct wrong_spec {
    const char *text;
    void (*make)(struct kvc_pool_spec *spec);
};

static void no_groups(struct kvc_pool_spec *s)
{
    s->groups = 0;
}
static void many_groups(struct kvc_pool_spec *s)
{
    s->groups = KVC_GROUPS_MAX + 1;
}
static void no_pages(struct kvc_pool_spec *s)
{
    s->pages_max = 0;
}
static void pages_beyond(struct kvc_pool_spec *s)
{
    s->pages_max = PAGES + 1;
}
static void no_pages_a_block(struct kvc_pool_spec *s)
{
    s->group[0].pages_per_block = 0;
}
static void many_pages_a_block(struct kvc_pool_spec *s)
{
    s->group[0].pages_per_block = KVC_BLOCK_TOKENS_MAX + 1;
}
static void no_regions(struct kvc_pool_spec *s)
{
    s->group[0].regions = 0;
}
static void no_region_array(struct kvc_pool_spec *s)
{
    s->group[0].region = NULL;
}
static void many_regions(struct kvc_pool_spec *s)
{
    s->groups = 2;
    s->group[1].regions = KVC_REGIONS_MAX;
}
static void no_memory(struct kvc_pool_spec *s)
{
    (void)s;
    regions[2].mem = NULL;
}
static void no_page_bytes(struct kvc_pool_spec *s)
{
    (void)s;
    regions[1].page_bytes = 0;
}
static void short_stride(struct kvc_pool_spec *s)
{
    (void)s;
    regions[1].stride_bytes = PAGE_BYTES - 1;
}
static void layers_backwards(struct kvc_pool_spec *s)
{
    (void)s;
    regions[0].layer = 1;
}
static void wild_base(struct kvc_pool_spec *s)
{
    (void)s;
    regions[3].base = UINT64_MAX - 1;
}
static void wild_stride(struct kvc_pool_spec *s)
{
    (void)s;
    regions[3].stride_bytes = UINT64_MAX / 8;
}
static void huge_block(struct kvc_pool_spec *s)
{
    s->pages_max = 1;
    s->group[0].pages_per_block = 1024;
    regions[0].page_bytes = (uint64_t)KVC_BLOCK_BYTES_MAX / 512;
    regions[0].stride_bytes = regions[0].page_bytes;
    regions[0].base = 0;
}

static const struct wrong_spec wrong_specs[] = {
    {"groups is 0", no_groups},
    {"groups is 17", many_groups},
    {"pages_max is 0", no_pages},
    {"page 32 would end beyond", pages_beyond},
    {"pages_per_block is 0", no_pages_a_block},
    {"pages_per_block is 65537", many_pages_a_block},
    {"0 regions", no_regions},
    {"with a pointer", no_region_array},
    {"over all groups", many_regions},
    {"region 2: mem is NULL", no_memory},
    {"region 1: page_bytes is 0", no_page_bytes},
    {"region 1: page_bytes is 512, stride_bytes 511", short_stride},
    {"layer 0 comes after layer 1", layers_backwards},
    {"region 3: page 31 would end beyond", wild_base},
    {"region 3: page 31 would end beyond", wild_stride},
    {"would end beyond", huge_block},
};

CASE_EACH(a_pool_that_cannot_be_says_what_is_wrong, sizeof(wrong_specs) / sizeof(wrong_specs[0]))
{
    const struct wrong_spec *w = &wrong_specs[_i];
    struct kvc_pool_spec spec = pool_spec();
    w->make(&spec);
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), KVC_E_BAD_ARGUMENT);
    ck_assert_msg(strstr(kvc_last_error(kvc), w->text) != NULL, "'%s' is not in: %s", w->text,
                  kvc_last_error(kvc));
    ck_assert_uint_eq(atomic_load(&fake.s->mems_seen), 0);
    spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
}

CASE(memory_of_another_device_is_no_part_of_a_pool)
{
    struct kvc_gpu *other = NULL;
    ck_assert_int_eq(kvc_gpu_open(kvc, "emu:1", &other), 0);
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(other, &spec, &pool), KVC_E_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "another device"));
}

/* ---- fork ---- */

CASE(a_child_has_none_of_it)
{
    struct kvc_pool_spec spec = pool_spec();
    ck_assert_int_eq(kvc_pool_open(gpu, &spec, &pool), 0);
    ck_assert_ptr_nonnull((const void *)kvc_gpu_words(gpu));
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct kvc_gpu *g = NULL;
        struct kvc_mem *m = NULL;
        struct kvc_pool *p = NULL;
        void *at;
        int bad = kvc_gpu_open(kvc, "emu:1", &g) != -EPERM ||
                  kvc_mem_alloc(gpu, 1, &at, &m) != -EPERM ||
                  kvc_pool_open(gpu, &spec, &p) != -EPERM ||
                  kvc_gpu_signal(gpu, NULL, 0, 1) != -EPERM || kvc_gpu_words(gpu) != NULL;
        kvc_pool_close(&pool);
        kvc_gpu_close(&gpu);
        kvc_close(&kvc);
        _exit(bad);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_eq(atomic_load(&fake.s->pools_open), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->mems_dropped), 0);
    ck_assert_int_eq(kvc_gpu_signal(gpu, NULL, 0, 1), 0);
}

/* ---- refusals ---- */

static int count_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* A worker's day, on the device from beginning to end: 0 when all of it went well. */
static int a_day(void)
{
    static const uint32_t pages[8 * PPB] = {9,  4,  20, 21, 0,  31, 7, 2,
                                            15, 14, 3,  30, 11, 10, 5, 25};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
    const uint64_t offset = 0;
    struct kvc_seq seq = seq_of(8);
    struct kvc_pages_load load = {.pages = {pages}};
    struct kvc_blocks blocks = blocks_of(2);
    struct kvc_loaded l = {.tokens = 0};
    struct kvc_hold *hold = NULL;
    uint8_t st[2];
    void *at;
    int bad = 0;
    if (kvc_gpu_open(kvc, "emu:0", &gpu) < 0)
        return 1;
    mem = NULL;
    if (kvc_mem_alloc(gpu, (uint64_t)REGIONS * PAGES * PAGE_BYTES, &at, &mem) == 0) {
        memory = at;
        struct kvc_pool_spec spec = pool_spec();
        bad |= kvc_gpu_signal(gpu, NULL, 0, 1) != 0;
        bad |= kvc_acquire_on(ns, &seq, gpu, NULL, &hold) != 0 || hold->group[0].n != 3;
        if (kvc_pool_open(gpu, &spec, &pool) == 0) {
            bad |= kvc_pages_load(ns, &seq, pool, &load, &l) != 0 || l.tokens != 48;
            ck_assert(l.tokens == 0 || (l.tokens == 48 && page_is(30, 0)));
            bad |=
                kvc_pages_store(ns, &blocks, pool, pages, (struct kvc_word){0}, NULL, 0, st) != 0;
        } else {
            bad = 1;
        }
        if (hold != NULL && hold->group[0].n > 0) {
            struct DLManagedTensor *t = kvc_hold_dlpack(hold, 0, 0);
            bad |= t == NULL || kvc_gpu_load(gpu, hold, &spec, lists, NULL) != 0;
            struct DLManagedTensorVersioned *v = kvc_hold_dlpack_versioned(hold, 0, 0);
            bad |= v == NULL;
            if (t != NULL)
                t->deleter(t);
            if (v != NULL)
                v->deleter(v);
        }
        bad |= kvc_staging(kvc, NULL) == NULL ||
               kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL) != 0;
        kvc_release(kvc, &hold);
        kvc_pool_close(&pool);
    } else {
        bad = 1;
    }
    kvc_mem_free(&mem);
    kvc_gpu_close(&gpu);
    return bad;
}

static void come_up(void)
{
    uint64_t ms;
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end && !kvc_is_up(kvc);) {
        (void)!kvc_ping(kvc, &ms);
        usleep(2000);
    }
    ck_assert(kvc_is_up(kvc));
}

/* The nth call of a point is refused, for every n that there is. */
CASE_EACH(what_the_system_refuses_costs_the_call_and_nothing_else, 4)
{
    static const char *const points[] = {"alloc", "map", "fd", "send"};
    kvc_gpu_close(&gpu);
    atomic_store(&fake.s->hit_blocks, 3);
    atomic_store(&fake.s->hbm_blocks, 2);
    ck_assert_msg(a_day() == 0, "%s", kvc_last_error(kvc));
    int descriptors = count_descriptors();
    uint64_t reached = 1;
    for (uint64_t n = 1; reached >= n; n++) {
        ck_assert_int_eq(fault_arm(points[_i], n), 0);
        (void)!a_day();
        reached = fault_count(points[_i]);
        fault_reset();
        come_up();
        ck_assert_msg(a_day() == 0, "%s %llu: %s", points[_i], (unsigned long long)n,
                      kvc_last_error(kvc));
        ck_assert_int_eq(count_descriptors(), descriptors);
    }
}

/* ---- which way ---- */

CASES(.setup = start, .teardown = stop);

CASE(the_nearest_size_says_how_pages_are_filled)
{
    struct kvc_device d = {.device = "emu:0", .limit_bytes = 1};
    struct kvc_rate rate[] = {
        {.device = "emu:0", .fragment_bytes = 4096, .to_engine = 100, .to_kernel = 200},
        {.device = "emu:0", .fragment_bytes = 16384, .to_engine = 100, .to_kernel = 0},
        {.device = "emu:0", .fragment_bytes = 65536, .to_engine = 100, .to_window = 400},
        {.device = "emu:1", .fragment_bytes = 4096, .to_path = KVC_COPY_ENGINE}};
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 4096), KVC_COPY_UNKNOWN);
    rate[0].to_path = KVC_COPY_KERNEL;
    rate[1].to_path = KVC_COPY_ENGINE;
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 1), KVC_COPY_KERNEL);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 8192), KVC_COPY_KERNEL);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 8193), KVC_COPY_ENGINE);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, UINT32_MAX),
                     KVC_COPY_ENGINE); /* the third is not known */
    rate[0].to_window = 199;
    rate[1].to_window = 125;
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 4096), KVC_COPY_KERNEL);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 16384), KVC_COPY_ENGINE);
    rate[0].to_window = 200;
    rate[1].to_window = 126;
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 4096), KVC_COPY_WINDOW);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 16384), KVC_COPY_WINDOW);
    d.limit_bytes = 0; /* no slots */
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 4096), KVC_COPY_KERNEL);
    ck_assert_int_eq(kvc_load_path(&d, rate, 4, 16384), KVC_COPY_ENGINE);
}
