/* SPDX-License-Identifier: Apache-2.0 */
/* Workers with paged memory on a device, through a real daemon. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"
#include "gpu_rig.h"

#define BLOCKS 24u

static struct rig rig;
static struct gpu_worker a, b;
static uint8_t keys[1024 * KVC_KEY_BYTES], statuses[1024];
static uint32_t pages[GPU_PAGES], others[GPU_PAGES];
static uint64_t random_state;
static const struct kvc_word at_once;

static void start_with(const char *const *more)
{
    const char *sets[8] = {gpu_rig_setting("32MiB"), "hbm.chunk=2MiB"};
    for (uint32_t i = 2; more != NULL && *more != NULL; more++)
        sets[i++] = *more;
    const char *seed = getenv("KVC_SEED");
    random_state = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)getpid();
    printf("KVC_SEED=%llu\n", (unsigned long long)random_state);
    rig_start(&rig, sets);
}

static void setup(void)
{
    start_with(NULL);
}

static void teardown(void)
{
    gpu_close(&a);
    gpu_close(&b);
    rig_stop(&rig);
    rig_clean(&rig);
}

static const uint8_t *key_of(uint32_t block)
{
    return keys + (size_t)block * KVC_KEY_BYTES;
}

/* Blocks `first` to `n` - 1 of the chain lie in these pages. */
static void compute(struct gpu_worker *w, const uint32_t *list, uint32_t first, uint32_t n)
{
    uint8_t block[RIG_BLOCK];
    for (uint32_t i = first; i < n; i++) {
        rig_fill(key_of(i), block, sizeof(block));
        gpu_put_block(w, list + (size_t)(i - first) * GPU_PPB, block);
    }
}

static bool holds(struct gpu_worker *w, const uint32_t *list, uint32_t block)
{
    uint8_t bytes[RIG_BLOCK];
    gpu_get_block(w, list, bytes);
    return rig_check(key_of(block), bytes, sizeof(bytes));
}

static struct kvc_blocks blocks_of(uint32_t n)
{
    return (struct kvc_blocks){.keys = keys, .n = n};
}

static void store_all(struct gpu_worker *w, const uint32_t *list, uint32_t n)
{
    struct kvc_blocks blocks = blocks_of(n);
    int rc = kvc_pages_store(w->ns, &blocks, w->pool, list, at_once, NULL, 0, statuses);
    ck_assert_msg(rc == 0, "kvc_pages_store: %s: %s", kvc_error_name(rc), kvc_last_error(w->k));
    for (uint32_t i = 0; i < n; i++)
        ck_assert_msg(statuses[i] == KVC_ST_OK, "block %u: status %u", i, statuses[i]);
}

static struct kvc_loaded load_from(struct gpu_worker *w, const uint32_t *list, uint32_t n,
                                   uint32_t from_tokens)
{
    struct kvc_loaded l = {.tokens = 0};
    struct kvc_seq seq = rig_seq(keys, n, GPU_BT);
    struct kvc_pages_load load = {.from_tokens = from_tokens, .pages = {list}};
    int rc = kvc_pages_load(w->ns, &seq, w->pool, &load, &l);
    ck_assert_msg(rc == 0, "kvc_pages_load: %s: %s", kvc_error_name(rc), kvc_last_error(w->k));
    return l;
}

static bool is_emulated(void)
{
    return strncmp(gpu_rig_device(), "emu:", 4) == 0;
}

/* ---- pages to pages ---- */

CASES(.setup = setup, .teardown = teardown, .timeout_s = 240);

/* What one worker stores another loads into other pages, whatever the layout of each. */
CASE_EACH(blocks_go_from_pages_to_pages, (GPU_LAYOUTS * GPU_LAYOUTS))
{
    enum gpu_layout from = (enum gpu_layout)(_i / (int)GPU_LAYOUTS),
                    to = (enum gpu_layout)(_i % (int)GPU_LAYOUTS);
    if ((from < GPU_TOGETHER) != (to < GPU_TOGETHER))
        return; /* their blocks are not the same */
    gpu_open(&a, &rig, from);
    gpu_open(&b, &rig, to);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
    gpu_pick_pages(&random_state, GPU_PAGES, others);
    compute(&a, pages, 0, BLOCKS);
    store_all(&a, pages, BLOCKS);
    for (uint32_t i = 0; i < GPU_PAGES; i++)
        gpu_fill_page(&b, others[i], 0x5a);
    struct kvc_loaded l = load_from(&b, others, BLOCKS, 0);
    ck_assert_uint_eq(l.tokens, BLOCKS * GPU_BT);
    ck_assert_uint_eq(l.group[0].n, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert_msg(holds(&b, others + (size_t)i * GPU_PPB, i), "block %u", i);
    for (uint32_t i = BLOCKS * GPU_PPB; i < GPU_PAGES; i++)
        ck_assert_msg(gpu_page_is(&b, others[i], 0x5a), "page %u was touched", others[i]);
    /* And they are what a worker without a device gets. */
    ck_assert_uint_eq(rig_load(b.k, b.ns, keys, BLOCKS, GPU_BT, RIG_BLOCK), BLOCKS);
    ck_assert_uint_ge(gpu_device(b.k).copies, 2);
}

CASE(a_worker_loads_what_it_does_not_have)
{
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, 10, GPU_BT, RIG_BLOCK, statuses), 10);
    gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
    struct kvc_loaded l = load_from(&a, pages, BLOCKS, 3 * GPU_BT + 5);
    ck_assert_uint_eq(l.tokens, 10 * GPU_BT);
    ck_assert_uint_eq(l.prefix.group[0].reason, KVC_MISS_NEVER);
    ck_assert_uint_eq(l.group[0].first, 3);
    ck_assert_uint_eq(l.group[0].n, 7);
    for (uint32_t i = 3; i < 10; i++)
        ck_assert(holds(&a, pages + (size_t)(i - 3) * GPU_PPB, i));
    ck_assert_uint_eq(load_from(&a, pages, BLOCKS, 10 * GPU_BT).tokens, 0);
    rig_keys(a.ns, 2, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(load_from(&a, pages, BLOCKS, 0).tokens, 0);
}

CASE(a_store_of_what_is_there_says_so)
{
    struct kvc_blocks blocks = blocks_of(8);
    gpu_open(&a, &rig, GPU_ACROSS);
    rig_keys(a.ns, 1, GPU_BT, 8, keys);
    gpu_pick_pages(&random_state, 8 * GPU_PPB, pages);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, 5, GPU_BT, RIG_BLOCK, statuses), 5);
    compute(&a, pages, 0, 8);
    ck_assert_int_eq(kvc_pages_store(a.ns, &blocks, a.pool, pages, at_once, NULL, 0, statuses), 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(statuses[i], i < 5 ? KVC_ST_EXISTS : KVC_ST_OK);
    ck_assert_uint_eq(rig_load(a.k, a.ns, keys, 8, GPU_BT, RIG_BLOCK), 8);
}

CASE(words_order_the_copies_and_the_workers_stream)
{
    struct kvc_op *op = NULL;
    struct kvc_result r;
    struct kvc_blocks blocks = blocks_of(8);
    struct kvc_word after = {.word = 1, .value = 1};
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, 8, keys);
    gpu_pick_pages(&random_state, 16 * GPU_PPB, pages);
    volatile uint64_t *words = kvc_gpu_words(a.gpu);
    ck_assert_ptr_nonnull((const void *)words);
    ck_assert_int_eq(kvc_pages_store_begin(a.ns, &blocks, a.pool, pages, after, NULL, 0, &op), 0);
    rig_sleep_ms(30);
    compute(&a, pages, 0, 8); /* only now */
    ck_assert_int_eq(kvc_gpu_signal(a.gpu, gpu_stream(), 0, 1), 0);
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(r.statuses[i], KVC_ST_OK);
    ck_assert_uint_eq(rig_load(a.k, a.ns, keys, 8, GPU_BT, RIG_BLOCK), 8);

    struct kvc_seq seq = rig_seq(keys, 8, GPU_BT);
    struct kvc_pages_load load = {.after = {.word = 2, .value = 7},
                                  .ready = {.word = 3, .value = 100},
                                  .pages = {pages + 8 * GPU_PPB}};
    for (uint32_t i = 8 * GPU_PPB; i < 16 * GPU_PPB; i++)
        gpu_fill_page(&a, pages[i], 0x11);
    ck_assert_int_eq(kvc_pages_load_begin(a.ns, &seq, a.pool, &load, &op), 0);
    rig_sleep_ms(30);
    ck_assert_uint_eq(words[2], 0);
    for (uint32_t i = 8 * GPU_PPB; i < 16 * GPU_PPB; i++)
        ck_assert(gpu_page_is(&a, pages[i], 0x11));
    ck_assert_int_eq(kvc_gpu_signal(a.gpu, gpu_stream(), 1, 7), 0);
    for (uint64_t end = rig_now_ms() + 20000; rig_now_ms() < end && words[2] < 100 + GPU_LAYERS;)
        (void)kvc_progress(a.k);
    ck_assert_uint_eq(words[2], 100 + GPU_LAYERS);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert(holds(&a, pages + (size_t)(8 + i) * GPU_PPB, i));
    ck_assert_int_eq(kvc_finish(&op, &r), 0);
}

/* ---- slots ---- */

CASE(blocks_come_onto_the_device_and_are_read_there)
{
    uint8_t bytes[RIG_BLOCK];
    struct kvc_hold *hold = NULL;
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
    for (int turn = 0; turn < 3; turn++) {
        uint32_t hbm = 0;
        int rc = kvc_acquire_on(a.ns, &seq, a.gpu, NULL, &hold);
        ck_assert_msg(rc == 0, "kvc_acquire_on: %s", kvc_last_error(a.k));
        ck_assert_uint_eq(hold->group[0].n, BLOCKS);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            const void *at = kvc_hold_device(hold, 0, i);
            ck_assert((at == NULL) == (hold->group[0].block[i].data != NULL));
            hbm += at != NULL;
            if (at != NULL)
                gpu_get(&a, bytes, (uint64_t)(uintptr_t)at, sizeof(bytes));
            else
                memcpy(bytes, hold->group[0].block[i].data, sizeof(bytes));
            ck_assert_msg(rig_check(key_of(i), bytes, sizeof(bytes)), "block %u", i);
        }
        ck_assert_int_eq(kvc_hold_check(hold), 0);
        ck_assert_uint_eq(hbm, BLOCKS);
        kvc_release(a.k, &hold);
    }
    struct kvc_device d = gpu_device(a.k);
    ck_assert_uint_eq(d.fills, BLOCKS);
    ck_assert_uint_eq(d.hits, 2 * BLOCKS);
    ck_assert_uint_eq(d.blocks, BLOCKS);
    /* From a slot into pages, without host memory. */
    gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
    ck_assert_uint_eq(load_from(&a, pages, BLOCKS, 0).tokens, BLOCKS * GPU_BT);
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert(holds(&a, pages + (size_t)i * GPU_PPB, i));
}

/* ---- the worker's own copies ---- */

CASE_EACH(a_worker_that_copies_itself_needs_no_pool, GPU_LAYOUTS)
{
    enum gpu_layout layout = (enum gpu_layout)_i;
    const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
    uint64_t offsets[BLOCKS];
    struct kvc_hold *hold = NULL;
    gpu_open(&a, &rig, layout);
    kvc_pool_close(&a.pool);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    gpu_pick_pages(&random_state, 2 * BLOCKS * GPU_PPB, pages);
    compute(&a, pages + BLOCKS * GPU_PPB, 0, BLOCKS);
    struct kvc_pool_spec spec = gpu_spec(&a);
    struct kvc_blocks blocks = blocks_of(BLOCKS);
    ck_assert_ptr_nonnull(kvc_staging(a.k, NULL));
    for (uint32_t i = 0; i < BLOCKS; i++)
        offsets[i] = (uint64_t)(BLOCKS - i) * RIG_BLOCK;
    ck_assert_int_eq(
        kvc_gpu_stage(a.gpu, &spec, 0, pages + BLOCKS * GPU_PPB, BLOCKS, offsets, gpu_stream()), 0);
    gpu_sync();
    ck_assert_int_eq(kvc_store(a.ns, &blocks, offsets, NULL, 0, statuses), 0);
    ck_assert_uint_eq(rig_load(a.k, a.ns, keys, BLOCKS, GPU_BT, RIG_BLOCK), BLOCKS);

    struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT), half = rig_seq(keys, BLOCKS / 2, GPU_BT);
    ck_assert_int_eq(kvc_acquire_on(a.ns, &half, a.gpu, NULL, &hold), 0);
    kvc_release(a.k, &hold);
    for (int hbm = 0; hbm < 2; hbm++) {
        for (uint32_t i = 0; i < BLOCKS * GPU_PPB; i++)
            gpu_fill_page(&a, pages[i], 0x33);
        int rc = hbm ? kvc_acquire_on(a.ns, &seq, a.gpu, NULL, &hold)
                     : kvc_acquire(a.ns, &seq, NULL, &hold);
        ck_assert_int_eq(rc, 0);
        ck_assert_int_eq(kvc_gpu_load(a.gpu, hold, &spec, lists, gpu_stream()), 0);
        for (uint32_t i = 0; i < BLOCKS; i++)
            ck_assert(holds(&a, pages + (size_t)i * GPU_PPB, i));
        ck_assert_int_eq(kvc_hold_check(hold), 0);
        kvc_release(a.k, &hold);
    }
}

/* ---- ends ---- */

#define ABORTS       1000u
#define ABORT_BLOCKS 8u

/* Pages that were given back: what they were filled with, until they are used again. */
struct given {
    bool is_given;
    uint8_t byte;
};
static struct given given[GPU_PAGES];

static void give_back(const uint32_t *list, uint32_t n, uint8_t byte)
{
    for (uint32_t i = 0; i < n; i++) {
        gpu_fill_page(&a, list[i], byte);
        given[list[i]] = (struct given){.is_given = true, .byte = byte};
    }
}

static void take(const uint32_t *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        given[list[i]].is_given = false;
}

static void nothing_was_written_late(uint32_t turn)
{
    for (uint32_t i = 0; i < GPU_PAGES; i++) {
        if (given[i].is_given)
            ck_assert_msg(gpu_page_is(&a, i, given[i].byte), "turn %u: a late write to page %u",
                          turn, i);
    }
}

static struct kvc_op *begin_load(void)
{
    struct kvc_op *op = NULL;
    struct kvc_seq seq = rig_seq(keys, ABORT_BLOCKS, GPU_BT);
    struct kvc_pages_load load = {.timeout_ms = 1 + gpu_random(&random_state, 100),
                                  .pages = {pages}};
    int rc = kvc_pages_load_begin(a.ns, &seq, a.pool, &load, &op);
    ck_assert_msg(rc == 0, "kvc_pages_load_begin: %s", kvc_last_error(a.k));
    return op;
}

static struct kvc_op *begin_store(void)
{
    struct kvc_op *op = NULL;
    struct kvc_blocks blocks = blocks_of(ABORT_BLOCKS);
    compute(&a, pages, 0, ABORT_BLOCKS);
    int rc = kvc_pages_store_begin(a.ns, &blocks, a.pool, pages, at_once, NULL, 0, &op);
    if (rc == KVC_E_DOWN)
        return NULL;
    ck_assert_msg(rc == 0, "kvc_pages_store_begin: %s", kvc_last_error(a.k));
    return op;
}

static uint32_t in_flight; /* of those that were aborted */

/* Ends the request in one of the ways that there are; the pages are the worker's then. */
static void abort_it(struct kvc_op *op)
{
    struct kvc_result r;
    in_flight += !kvc_done(op);
    switch (gpu_random(&random_state, 8)) {
    case 0: /* runs out of time, or is done */
        (void)!kvc_finish(&op, &r);
        return;
    case 1:
        kvc_pool_close(&a.pool);
        (void)!kvc_finish(&op, &r);
        break;
    default:
        ck_assert_int_eq(kvc_cancel(op), 0);
        (void)!kvc_finish(&op, &r);
        return;
    }
    gpu_open_pool(&a);
}

/* The session again, over the same memory as far as the test is concerned: all is given anew. */
static void another_session(void)
{
    gpu_close(&a);
    gpu_open(&a, &rig, GPU_APART);
    memset(given, 0, sizeof(given));
}

/* A store that was ended early may have stored all the same: what it stored is what was there. */
static void what_was_stored_is_right(void)
{
    struct kvc_seq seq = rig_seq(keys, ABORT_BLOCKS, GPU_BT);
    struct kvc_hold *hold = NULL;
    ck_assert_int_eq(kvc_acquire(a.ns, &seq, NULL, &hold), 0);
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        ck_assert_msg(rig_check(key_of(i), hold->group[0].block[i].data, RIG_BLOCK),
                      "block %u was stored after its pages were given back", i);
    kvc_release(a.k, &hold);
}

static void setup_slow(void);

CASES(.setup = setup_slow, .teardown = teardown, .timeout_s = 240);

CASE(pages_are_the_workers_again_when_a_request_has_ended)
{
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, ABORT_BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, ABORT_BLOCKS, GPU_BT, RIG_BLOCK, statuses),
                      ABORT_BLOCKS);
    for (uint32_t turn = 0; turn < ABORTS; turn++) {
        bool is_store = gpu_random(&random_state, 3) == 0;
        rig_keys(a.ns, is_store ? 1000 + turn : 1, GPU_BT, ABORT_BLOCKS, keys);
        gpu_pick_pages(&random_state, ABORT_BLOCKS * GPU_PPB, pages);
        take(pages, ABORT_BLOCKS * GPU_PPB);
        struct kvc_op *op = is_store ? begin_store() : begin_load();
        for (uint32_t i = gpu_random(&random_state, 4); i > 0 && op != NULL; i--) {
            usleep(gpu_random(&random_state, 600));
            (void)kvc_progress(a.k);
        }
        if (op != NULL)
            abort_it(op);
        give_back(pages, ABORT_BLOCKS * GPU_PPB, (uint8_t)(1 + turn % 255));
        if (is_store)
            what_was_stored_is_right();
        if (turn % 50 == 49)
            nothing_was_written_late(turn);
        if (turn % 250 == 249)
            another_session();
    }
    rig_sleep_ms(100);
    nothing_was_written_late(ABORTS);
    struct kvc_device d = gpu_device(a.k);
    ck_assert_uint_eq(d.failures, 0);
    printf("%u of %u were in flight when they were ended\n", in_flight, ABORTS);
    ck_assert_uint_gt(in_flight, ABORTS / 10);
}

/* The worker's memory on an emulated device, mapped once more: to be looked at when the session has
 * gone. */
static uint8_t *map_again(const struct gpu_worker *w)
{
    char link[64], name[64];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, name, sizeof(name) - 1);
        name[n > 0 ? n : 0] = '\0';
        if (strstr(name, "kvcache-emulated-device") == NULL)
            continue;
        uint8_t *at = mmap(NULL, GPU_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        ck_assert_ptr_ne(at, MAP_FAILED);
        /* Several sessions may have such memory: the same bytes tell which. */
        uint8_t *first = (uint8_t *)(uintptr_t)w->at, before = *first;
        *first = (uint8_t)(before + 1);
        bool is_it = *at == *first;
        *first = before;
        if (is_it && *at == before)
            return at;
        munmap(at, GPU_BYTES);
    }
    ck_abort_msg("no memory of an emulated device");
}

CASE(a_session_that_is_closed_leaves_no_copy_behind)
{
    bool is_emulated = strncmp(gpu_rig_device(), "emu:", 4) == 0;
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    uint64_t alone = gpu_device(a.k).imported_bytes;
    for (int turn = 0; turn < 20; turn++) {
        struct kvc_op *op = NULL;
        struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
        struct kvc_pages_load load = {.pages = {pages}};
        gpu_open(&b, &rig, GPU_APART);
        uint8_t *again = is_emulated ? map_again(&b) : NULL;
        gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
        ck_assert_int_eq(kvc_pages_load_begin(b.ns, &seq, b.pool, &load, &op), 0);
        usleep(gpu_random(&random_state, 3000));
        if (turn % 2 == 0)
            kvc_close(&b.k); /* of all that is of it, in whatever order */
        gpu_close(&b);
        if (again == NULL)
            continue;
        memset(again, turn + 1, GPU_BYTES);
        rig_sleep_ms(10);
        uint64_t i = 0;
        while (i < GPU_BYTES && again[i] == (uint8_t)(turn + 1))
            i++;
        ck_assert_msg(i == GPU_BYTES, "turn %d: a late write to byte %llu", turn,
                      (unsigned long long)i);
        munmap(again, GPU_BYTES);
    }
    /* What the sessions had is gone from the daemon. */
    for (uint64_t end = rig_now_ms() + 20000;
         rig_now_ms() < end && gpu_device(a.k).imported_bytes != alone;)
        rig_sleep_ms(10);
    ck_assert_uint_eq(gpu_device(a.k).imported_bytes, alone);
}

static const char *const slow[] = {"hbm.emu_bandwidth=64MiB", "hbm.emu_latency=1ms", NULL};

static void setup_slow(void)
{
    start_with(slow);
}

CASE(a_daemon_that_is_killed_writes_to_no_page_afterwards)
{
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    for (int turn = 0; turn < 5; turn++) {
        struct kvc_op *op = NULL;
        struct kvc_result r;
        struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
        struct kvc_pages_load load = {.pages = {pages}};
        if (turn > 0) { /* the memory and the pool are made known again by themselves */
            const char *sets[] = {gpu_rig_setting("32MiB"), "hbm.chunk=2MiB", slow[0], slow[1],
                                  NULL};
            rig_restart(&rig, sets);
            for (uint64_t end = rig_now_ms() + 30000; rig_now_ms() < end && !kvc_is_up(a.k);) {
                uint64_t ms;
                (void)!kvc_ping(a.k, &ms);
                rig_sleep_ms(5);
            }
            for (uint64_t end = rig_now_ms() + 30000; rig_now_ms() < end && !gpu_device_is_up(a.k);)
                rig_sleep_ms(5);
        }
        rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
        ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses),
                          BLOCKS);
        gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
        for (uint64_t end = rig_now_ms() + 30000;
             rig_now_ms() < end && load_from(&a, pages, BLOCKS, 0).tokens != BLOCKS * GPU_BT;)
            rig_sleep_ms(5);
        for (uint32_t i = 0; i < BLOCKS; i++)
            ck_assert(holds(&a, pages + (size_t)i * GPU_PPB, i));
        ck_assert_int_eq(kvc_pages_load_begin(a.ns, &seq, a.pool, &load, &op), 0);
        usleep(gpu_random(&random_state, 3000));
        rig_kill(&rig);
        ck_assert_int_eq(kvc_finish(&op, &r), 0);
        memset(given, 0, sizeof(given));
        give_back(pages, BLOCKS * GPU_PPB, (uint8_t)(turn + 1));
        rig_sleep_ms(50);
        nothing_was_written_late((uint32_t)turn);
    }
    rig_restart(&rig, NULL); /* teardown stops it */
}

/* ---- a daemon that is stopped, and goes on later ---- */

#define LATE_MS    300 /* before the emulated device executes a copy */
#define LATE_TURNS 100

static const char *const late[] = {"hbm.emu_latency=300ms", NULL};

static void setup_late(void)
{
    start_with(late);
    gpu_open(&a, &rig, GPU_APART);
    gpu_pick_pages(&random_state, GPU_PAGES, others);
    memcpy(pages, others, sizeof(pages));
    memset(given, 0, sizeof(given));
}

/* The request is in flight; the worker gives it up, and somebody else has the pages. Returns
 * whether the daemon was stopped before its device began: an emulated one stops with it. */
static bool give_up_while_stopped(struct kvc_op *op, uint64_t begun_ms)
{
    struct kvc_result r;
    siginfo_t is;
    rig_sleep_ms(50);
    ck_assert_int_eq(kill(rig.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitid(P_PID, (id_t)rig.pid, &is, WSTOPPED), 0);
    bool in_time = rig_now_ms() - begun_ms < LATE_MS;
    (void)!kvc_cancel(op);
    ck_assert(kvc_done(op));
    (void)!kvc_finish(&op, &r);
    give_back(pages, BLOCKS * GPU_PPB, 0x11);
    ck_assert_int_eq(kill(rig.pid, SIGCONT), 0);
    return in_time;
}

/* The worker is served again, by the same device: what that had before has ended by then. */
static void load_into_other_pages(void)
{
    const uint32_t *list = others + BLOCKS * GPU_PPB;
    struct kvc_loaded l = {.tokens = 0};
    for (uint64_t end = rig_now_ms() + 60000; rig_now_ms() < end && l.tokens == 0;)
        l = load_from(&a, list, BLOCKS, 0);
    ck_assert_uint_eq(l.tokens, BLOCKS * GPU_BT);
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert(holds(&a, list + (size_t)i * GPU_PPB, i));
}

/* What the fake driver was given stops with the daemon and goes on with it: a device does not. */
CASES(.setup = setup_late, .teardown = teardown, .left_out = getenv("FAKE_CUDA_DELAY_US") != NULL,
      .timeout_s = 240);

CASE(a_daemon_that_was_stopped_writes_to_no_page_that_was_given_up)
{
    struct kvc_op *op = NULL;
    struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
    struct kvc_pages_load load = {.pages = {pages}};
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    bool in_time = false;
    for (unsigned turn = 0; turn < LATE_TURNS && !in_time; turn++) {
        const uint64_t begun_ms = rig_now_ms();
        take(pages, BLOCKS * GPU_PPB);
        ck_assert_int_eq(kvc_pages_load_begin(a.ns, &seq, a.pool, &load, &op), 0);
        in_time = give_up_while_stopped(op, begun_ms);
        load_into_other_pages();
    }
    ck_assert(in_time);
    nothing_was_written_late(0);
}

CASE(a_daemon_that_was_stopped_keeps_nothing_of_pages_that_were_given_up)
{
    struct kvc_op *op = NULL;
    struct kvc_blocks blocks = blocks_of(BLOCKS);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    rig_keys(a.ns, 2, GPU_BT, BLOCKS, keys);
    compute(&a, pages, 0, BLOCKS);
    const uint64_t begun_ms = rig_now_ms();
    ck_assert_int_eq(kvc_pages_store_begin(a.ns, &blocks, a.pool, pages, at_once, NULL, 0, &op), 0);
    (void)!give_up_while_stopped(op, begun_ms); /* what was read before is right all the same */
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    load_into_other_pages();
    rig_keys(a.ns, 2, GPU_BT, BLOCKS, keys);
    struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
    struct kvc_hold *hold = NULL;
    ck_assert_int_eq(kvc_acquire(a.ns, &seq, NULL, &hold), 0);
    for (uint32_t i = 0; i < hold->group[0].n; i++) /* one that was quick enough */
        ck_assert(rig_check(key_of(i), hold->group[0].block[i].data, RIG_BLOCK));
    kvc_release(a.k, &hold);
    nothing_was_written_late(0);
}

/* ---- failures ---- */

static char fault_file[128];

static void setup_fault(void)
{
    static char setting[160];
    snprintf(fault_file, sizeof(fault_file), "/tmp/kvc-e2e-fault-%d", (int)getpid());
    snprintf(setting, sizeof(setting), "hbm.emu_fault=%s", fault_file);
    const char *const more[] = {setting, NULL};
    start_with(more);
}

static void say_fault(const char *word)
{
    FILE *f = fopen(fault_file, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs(word, f), 0);
    ck_assert_int_eq(fclose(f), 0);
}

static void setup_lost(void)
{
    snprintf(fault_file, sizeof(fault_file), "/tmp/kvc-e2e-fault-%d", (int)getpid());
    say_fault("lost");
    setup_fault();
}

static void teardown_fault(void)
{
    unlink(fault_file);
    teardown();
}

CASES(.setup = setup_lost, .teardown = teardown_fault, .left_out = !is_emulated());

CASE(a_device_that_never_came_up_is_listed_as_it_was_configured)
{
    struct kvc *k = rig_open(&rig, 0);
    struct kvc_device d = {.up = true};
    for (uint64_t end = rig_now_ms() + 30000; rig_now_ms() < end && d.why[0] == '\0';)
        d = gpu_device(k);
    ck_assert(!d.up);
    ck_assert_str_eq(d.device, gpu_rig_device());
    kvc_close(&k);
}

CASES(.setup = setup_fault, .teardown = teardown_fault, .left_out = !is_emulated(),
      .timeout_s = 240);

CASE(memory_that_the_device_has_not_is_said_to_be_so)
{
    gpu_open(&a, &rig, GPU_APART);
    kvc_pool_close(&a.pool);
    say_fault("oom");
    struct kvc_mem *mem;
    void *at;
    ck_assert_int_eq(kvc_mem_alloc(a.gpu, GPU_BYTES, &at, &mem), 0);
    struct kvc_pool_spec spec = gpu_spec(&a);
    for (uint32_t i = 0; i < a.regions; i++)
        a.region[i].mem = mem;
    ck_assert_int_eq(kvc_pool_open(a.gpu, &spec, &a.pool), KVC_E_FULL);
    ck_assert_msg(strstr(kvc_last_error(a.k), "no memory left") != NULL, "%s", kvc_last_error(a.k));
    say_fault("");
    ck_assert_int_eq(kvc_pool_open(a.gpu, &spec, &a.pool), 0);
}

CASE(a_device_that_fails_costs_hits_and_nothing_else)
{
    struct kvc_blocks blocks = blocks_of(BLOCKS);
    struct kvc_hold *hold = NULL;
    gpu_open(&a, &rig, GPU_APART);
    rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
    ck_assert_uint_eq(rig_store(a.k, a.ns, keys, 0, BLOCKS, GPU_BT, RIG_BLOCK, statuses), BLOCKS);
    struct kvc_seq seq = rig_seq(keys, BLOCKS, GPU_BT);
    gpu_pick_pages(&random_state, BLOCKS * GPU_PPB, pages);
    ck_assert_int_eq(kvc_acquire_on(a.ns, &seq, a.gpu, NULL, &hold), 0);
    kvc_release(a.k, &hold);
    say_fault("sticky");
    for (int i = 0; i < 5; i++) {
        ck_assert_uint_eq(load_from(&a, pages, BLOCKS, 0).tokens, 0);
        rig_keys(a.ns, 2, GPU_BT, BLOCKS, keys);
        int rc = kvc_pages_store(a.ns, &blocks, a.pool, pages, at_once, NULL, 0, statuses);
        ck_assert_msg(rc == KVC_E_TIER || (rc == 0 && statuses[0] == KVC_ST_TIER), "%s: %s",
                      kvc_error_name(rc), kvc_last_error(a.k));
        rig_keys(a.ns, 1, GPU_BT, BLOCKS, keys);
        ck_assert_int_eq(kvc_acquire_on(a.ns, &seq, a.gpu, NULL, &hold), 0);
        for (uint32_t j = 0; j < hold->group[0].n; j++)
            ck_assert_ptr_null(kvc_hold_device(hold, 0, j));
        kvc_release(a.k, &hold);
    }
    ck_assert(!gpu_device(a.k).up);
    ck_assert_uint_eq(rig_load(a.k, a.ns, keys, BLOCKS, GPU_BT, RIG_BLOCK), BLOCKS);
    say_fault("");
    for (uint64_t end = rig_now_ms() + 60000; rig_now_ms() < end && !gpu_device(a.k).up;)
        rig_sleep_ms(20);
    struct kvc_loaded l = {.tokens = 0};
    for (uint64_t end = rig_now_ms() + 20000; rig_now_ms() < end && l.tokens == 0;) {
        l = load_from(&a, pages, BLOCKS, 0);
        rig_sleep_ms(20);
    }
    ck_assert_uint_eq(l.tokens, BLOCKS * GPU_BT);
    for (uint32_t i = 0; i < BLOCKS; i++)
        ck_assert(holds(&a, pages + (size_t)i * GPU_PPB, i));
}

/* ---- a device under two names ---- */

struct listing {
    uint32_t n, up;
    char why[512], uuid[KVC_STRING_MAX];
};

static int note_device(void *ctx, const void *row)
{
    const struct kvc_device *d = row;
    struct listing *l = ctx;
    l->n++;
    l->up += d->up;
    if (d->up)
        snprintf(l->uuid, sizeof(l->uuid), "%s", d->device);
    else
        snprintf(l->why, sizeof(l->why), "%s: %s", d->device, d->why);
    return 0;
}

static struct listing devices(struct kvc *k)
{
    struct listing l = {.n = 0};
    ck_assert_int_eq(kvc_list(k, KVC_TABLE_DEVICES, NULL, note_device, &l), 0);
    return l;
}

CASES(.setup = setup, .teardown = teardown, .left_out = is_emulated(), .timeout_s = 240);

/* By its ordinal and by its UUID; workers find the one that is up. */
CASE(a_device_that_is_named_twice_is_used_once)
{
    char twice[256];
    gpu_open(&a, &rig, GPU_APART);
    snprintf(twice, sizeof(twice), "hbm.devices=%s,%s", gpu_rig_device(), devices(a.k).uuid);
    gpu_close(&a);
    rig_stop(&rig);
    const char *sets[] = {twice, NULL};
    rig_restart(&rig, sets);
    struct kvc *k = rig_open(&rig, 0);
    struct listing l = devices(k);
    for (uint64_t end = rig_now_ms() + 30000;
         rig_now_ms() < end && (l.up == 0 || strstr(l.why, "same device") == NULL);)
        l = devices(k);
    kvc_close(&k);
    ck_assert_uint_eq(l.n, 2);
    ck_assert_uint_eq(l.up, 1);
    ck_assert_msg(strstr(l.why, "same device") != NULL && strstr(l.why, "0000-0000") == NULL, "%s",
                  l.why);
    k = rig_open(&rig, 0);
    struct kvc_gpu *gpu = NULL;
    struct kvc_mem *mem = NULL;
    void *at;
    struct kvc_pool *pool = NULL;
    ck_assert_int_eq(kvc_gpu_open(k, gpu_rig_device(), &gpu), 0);
    ck_assert_int_eq(kvc_mem_alloc(gpu, 4096, &at, &mem), 0);
    const struct kvc_pool_region region = {
        .mem = mem, .stride_bytes = 4096, .page_bytes = 4096, .layer = 0};
    const struct kvc_pool_spec spec = {
        .pages_max = 1,
        .groups = 1,
        .group = {{.pages_per_block = 1, .regions = 1, .region = &region}}};
    ck_assert_msg(kvc_pool_open(gpu, &spec, &pool) == 0, "%s", kvc_last_error(k));
    kvc_close(&k);
}

int main(void)
{
    if (gpu_rig_problem() != NULL) {
        printf("SKIP: %s\n", gpu_rig_problem());
        return 77;
    }
    return cases_run();
}
