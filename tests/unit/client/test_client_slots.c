/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks on a device that are read in place, and copies that the worker makes itself. */
#include <sys/wait.h>
#include <unistd.h>

#include "dlpack__.h"
#include "gpu_fixture.h"

static struct kvc_hold *hold;

/* `blocks` of the sequence, the first `hbm` of them on the device. */
static int acquire(uint32_t blocks, uint32_t hbm)
{
    struct kvc_seq seq = seq_of(8);
    atomic_store(&fake.s->hit_blocks, blocks);
    atomic_store(&fake.s->hbm_blocks, hbm);
    hold = NULL;
    return kvc_acquire_on(ns, &seq, gpu, NULL, &hold);
}

static void release_hold(void)
{
    kvc_release(kvc, &hold);
}

/* ---- reading in place ---- */

CASES(.setup = start_gpu, .teardown = stop);

CASE(blocks_are_on_the_device_or_in_host_memory)
{
    ck_assert_msg(acquire(6, 4) == 0, "%s", kvc_last_error(kvc));
    ck_assert_uint_eq(hold->group[0].n, 6);
    ck_assert_uint_eq(hold->prefix.tokens, 96);
    for (uint32_t i = 0; i < 6; i++) {
        const struct kvc_block *b = &hold->group[0].block[i];
        const uint8_t *hbm = kvc_hold_device(hold, 0, i);
        ck_assert_uint_eq(b->bytes, FAKE_BLOCK_BYTES);
        if (i < 4) {
            ck_assert_ptr_null(b->data);
            ck_assert(is_filled(hbm, fake_hbm_byte(0, i), FAKE_BLOCK_BYTES));
        } else {
            ck_assert_ptr_null(hbm);
            ck_assert(is_filled(b->data, fake_byte(0, i), FAKE_BLOCK_BYTES));
        }
        ck_assert_uint_eq(*b->gen_at, b->gen);
    }
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    ck_assert_ptr_null(kvc_hold_device(hold, 0, 6));
    ck_assert_ptr_null(kvc_hold_device(hold, 1, 0));
    ck_assert_ptr_null(kvc_hold_device(hold, KVC_GROUPS_MAX, 0));
    release_hold();
}

CASE(memory_of_a_chunk_is_asked_for_once)
{
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(acquire(6, 4), 0);
        release_hold();
    }
    ck_assert_uint_eq(atomic_load(&fake.s->maps_on_asked), 1);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_asked), 2); /* its headers, and host memory */
    atomic_store(&fake.s->blocks_a_chunk, 2);
    ck_assert_int_eq(acquire(8, 8), 0);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert(is_filled(kvc_hold_device(hold, 0, i), fake_hbm_byte(i / 2, i % 2), 64));
    release_hold();
    ck_assert_uint_eq(atomic_load(&fake.s->maps_on_asked), 4);
}

CASE(a_slot_that_was_given_away_is_stale)
{
    ck_assert_int_eq(acquire(2, 2), 0);
    fake.chunk[0][FAKE_SLOT_BYTES] ^= 1;
    ck_assert_int_eq(kvc_hold_check(hold), KVC_STALE);
    release_hold();
}

CASE(no_hit_and_no_daemon_are_misses)
{
    ck_assert_int_eq(acquire(0, 0), 0);
    ck_assert_uint_eq(hold->lease, 0);
    release_hold();
    fake_kill(&fake);
    ck_assert_int_eq(acquire(2, 2), 0);
    ck_assert_uint_eq(hold->lease, 0);
    ck_assert_ptr_null(kvc_hold_device(hold, 0, 0));
    release_hold();
}

CASE(a_device_that_the_daemon_does_not_have_is_a_miss)
{
    struct kvc_seq seq = seq_of(8);
    struct kvc_gpu *other = NULL;
    atomic_store(&fake.s->hit_blocks, 3);
    ck_assert_int_eq(kvc_gpu_open(kvc, "emu:7", &other), 0);
    ck_assert_int_eq(kvc_acquire_on(ns, &seq, other, NULL, &hold), 0);
    ck_assert_uint_eq(hold->lease, 0);
    release_hold();
    ck_assert_int_eq(kvc_acquire_on(ns, &seq, NULL, NULL, &hold), -EINVAL);
}

static bool one_released(void *arg)
{
    (void)arg;
    return atomic_load(&fake.s->leases_released) == 1;
}

static bool one_unmapped(void *arg)
{
    (void)arg;
    return atomic_load(&fake.s->unmapped) == 1;
}

/* What MAP_ON is answered; what the acquire returns; whether the link is up afterwards. */
static const struct {
    enum fake_hbm hbm;
    int rc;
    bool up;
} answers[] = {
    {FAKE_HBM_GONE, 0, true},
    {FAKE_HBM_OUT, 0, true},
    {FAKE_HBM_NO_DESCRIPTOR, KVC_E_BAD_MESSAGE, false},
    {FAKE_HBM_FILE, -EINVAL, true},
    {FAKE_HBM_UNSEALED, -EINVAL, true},
    {FAKE_HBM_SHORT, -EINVAL, true},
    {FAKE_HBM_OTHER, -ENODEV, true},
    {FAKE_HBM_KIND, -EINVAL, true},
    {FAKE_HBM_SMALL, KVC_E_BAD_MESSAGE, false},
};

CASE_EACH(memory_that_cannot_be_read_is_not_touched, sizeof(answers) / sizeof(answers[0]))
{
    atomic_store(&fake.s->hbm, answers[_i].hbm);
    int rc = acquire(3, 3);
    ck_assert_msg(rc == answers[_i].rc, "%d: %s", rc, kvc_last_error(kvc));
    ck_assert(kvc_is_up(kvc) == answers[_i].up);
    if (rc == 0)
        ck_assert_uint_eq(hold->lease, 0);
    if (answers[_i].up)
        ck_assert(fake_wait_for(one_released, NULL));
    /* What came and was not mapped is nobody's to wait for. */
    if (rc < 0 && answers[_i].up)
        ck_assert(fake_wait_for(one_unmapped, NULL));
    else
        ck_assert_uint_eq(atomic_load(&fake.s->unmapped), 0);
    release_hold();
    if (!answers[_i].up)
        return;
    atomic_store(&fake.s->hbm, FAKE_HBM_GIVE);
    ck_assert_int_eq(acquire(3, 3), 0);
    ck_assert(is_filled(kvc_hold_device(hold, 0, 2), fake_hbm_byte(0, 2), FAKE_BLOCK_BYTES));
    release_hold();
}

CASE(memory_that_does_not_come_is_a_miss)
{
    struct kvc_seq seq = seq_of(8);
    struct kvc_acquire_options o = {.timeout_ms = 100};
    atomic_store(&fake.s->hbm, FAKE_HBM_MUTE);
    atomic_store(&fake.s->hit_blocks, 3);
    atomic_store(&fake.s->hbm_blocks, 3);
    ck_assert_int_eq(kvc_acquire_on(ns, &seq, gpu, &o, &hold), 0);
    ck_assert_uint_eq(hold->lease, 0);
    release_hold();
}

CASE(a_block_on_a_device_that_nobody_asked_for_ends_the_link)
{
    struct kvc_seq seq = seq_of(8);
    atomic_store(&fake.s->hit_blocks, 3);
    atomic_store(&fake.s->chunk_id, FAKE_HBM | 1);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), KVC_E_BAD_MESSAGE);
    ck_assert(!kvc_is_up(kvc));
}

CASE(a_location_outside_of_its_memory_ends_the_link)
{
    atomic_store(&fake.s->wrong_loc, true);
    ck_assert_int_eq(acquire(3, 3), KVC_E_BAD_MESSAGE);
}

CASE(a_chunk_that_is_retired_stays_while_it_is_held)
{
    uint64_t ms;
    ck_assert_int_eq(acquire(3, 3), 0);
    atomic_store(&fake.s->retire, (FAKE_HBM | 0) + 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_int_ge(kvc_progress(kvc), 0); /* RETIRED was sent before the reply */
    ck_assert(is_filled(kvc_hold_device(hold, 0, 1), fake_hbm_byte(0, 1), FAKE_BLOCK_BYTES));
    ck_assert_uint_eq(atomic_load(&fake.s->unmapped), 0);
    release_hold();
    ck_assert(fake_wait_for(one_unmapped, NULL));
    ck_assert_int_eq(acquire(3, 3), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_on_asked), 2);
    release_hold();
}

/* Nobody reads it: the next call says so. */
CASE(a_chunk_that_is_retired_is_unmapped_at_the_next_call)
{
    uint64_t ms;
    ck_assert_int_eq(acquire(3, 3), 0);
    release_hold();
    atomic_store(&fake.s->retire, (FAKE_HBM | 0) + 1);
    ck_assert_int_eq(kvc_ping(kvc, &ms), 0);
    ck_assert_int_ge(kvc_progress(kvc), 0); /* RETIRED was sent before the reply */
    ck_assert(fake_wait_for(one_unmapped, NULL));
}

CASE(a_device_that_is_closed_is_unmapped)
{
    ck_assert_int_eq(acquire(3, 3), 0);
    release_hold();
    kvc_gpu_close(&gpu);
    ck_assert(fake_wait_for(one_unmapped, NULL));
    open_gpu();
    ck_assert_int_eq(acquire(3, 3), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->maps_on_asked), 2);
    release_hold();
}

CASE(a_hold_outlives_its_device)
{
    ck_assert_int_eq(acquire(3, 2), 0);
    kvc_gpu_close(&gpu);
    ck_assert(is_filled(kvc_hold_device(hold, 0, 1), fake_hbm_byte(0, 1), FAKE_BLOCK_BYTES));
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    release_hold();
    open_gpu();
    ck_assert_int_eq(acquire(3, 2), 0);
    kvc_close(&kvc);
}

CASE(a_daemon_that_dies_makes_holds_stale_and_readable)
{
    uint64_t ms;
    ck_assert_int_eq(acquire(3, 3), 0);
    fake_kill(&fake);
    (void)!kvc_ping(kvc, &ms);
    ck_assert(is_filled(kvc_hold_device(hold, 0, 1), fake_hbm_byte(0, 1), FAKE_BLOCK_BYTES));
    ck_assert_int_eq(kvc_hold_check(hold), KVC_STALE);
    release_hold();
    fake_start(&fake);
}

CASE(a_request_that_must_be_sent_again_names_the_device_again)
{
    fake_rule(&fake, KVC_OP_ACQUIRE_ON, FAKE_STATUS, KVC_ST_NO_NAMESPACE, 1);
    ck_assert_int_eq(acquire(3, 2), 0);
    ck_assert_ptr_nonnull(kvc_hold_device(hold, 0, 1));
    ck_assert_uint_eq(atomic_load(&fake.s->requests[KVC_OP_ACQUIRE_ON]), 2);
    release_hold();
}

/* ---- DLPack ---- */

/* What a consumer reads before it takes the bytes. */
static bool is_block_in_host_memory(const struct dl_tensor *t)
{
    return t->ndim == 1 && t->shape[0] == FAKE_BLOCK_BYTES && t->strides[0] == 1 &&
           t->byte_offset == 0 && t->device.type == DL_CPU && t->device.id == 0 &&
           t->dtype.code == DL_UINT && t->dtype.bits == 8 && t->dtype.lanes == 1;
}

CASE(a_block_is_a_tensor)
{
    ck_assert_int_eq(acquire(3, 2), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct DLManagedTensor *t = kvc_hold_dlpack(hold, 0, i);
        ck_assert_ptr_nonnull(t);
        ck_assert(is_block_in_host_memory(&t->dl_tensor));
        uint8_t byte = i < 2 ? fake_hbm_byte(0, i) : fake_byte(0, i);
        ck_assert(is_filled(t->dl_tensor.data, byte, FAKE_BLOCK_BYTES));
        t->deleter(t);
    }
    ck_assert_ptr_null(kvc_hold_dlpack(hold, 0, 3));
    release_hold();
}

CASE(a_versioned_tensor_may_only_be_read)
{
    ck_assert_int_eq(acquire(3, 2), 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct DLManagedTensorVersioned *t = kvc_hold_dlpack_versioned(hold, 0, i);
        ck_assert_ptr_nonnull(t);
        ck_assert_uint_eq(t->version.major, 1);
        ck_assert_uint_eq(t->flags, 1); /* DLPACK_FLAG_BITMASK_READ_ONLY */
        ck_assert(is_block_in_host_memory(&t->dl_tensor));
        uint8_t byte = i < 2 ? fake_hbm_byte(0, i) : fake_byte(0, i);
        ck_assert(is_filled(t->dl_tensor.data, byte, FAKE_BLOCK_BYTES));
        t->deleter(t);
    }
    ck_assert_ptr_null(kvc_hold_dlpack_versioned(hold, 0, 3));
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "no such block"));
    release_hold();
}

CASE(a_block_of_an_ordinary_hold_is_a_tensor_too)
{
    struct kvc_seq seq = seq_of(8);
    atomic_store(&fake.s->hit_blocks, 2);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    struct DLManagedTensor *t = kvc_hold_dlpack(hold, 0, 1);
    ck_assert_ptr_eq(t->dl_tensor.data, hold->group[0].block[1].data);
    t->deleter(t);
    release_hold();
}

/* ---- the worker's own copies ---- */

/* Layouts of the same block: two layers with K and V each, of PPB pages. */
enum layout { APART, TOGETHER, ACROSS };

/* Regions in plain memory of the worker's, which nobody exports. */
static struct kvc_pool_spec spec_of_layout(enum layout layout, uint8_t *at)
{
    uint64_t base = (uint64_t)(uintptr_t)at;
    struct kvc_pool_spec spec = pool_spec();
    for (uint32_t r = 0; r < REGIONS; r++) {
        uint64_t page = PAGE_BYTES;
        regions[r] = (struct kvc_pool_region){
            .base = base + r * PAGES * page, .stride_bytes = page, .page_bytes = page};
        if (layout == TOGETHER) { /* K and V of a layer in one page */
            regions[r].base = base + (r / 2) * PAGES * 2 * page + (r % 2) * page;
            regions[r].stride_bytes = 2 * page;
        } else if (layout == ACROSS) { /* all layers in one page */
            regions[r].base = base + r * page;
            regions[r].stride_bytes = REGIONS * page;
        }
        regions[r].layer = r / 2;
    }
    return spec;
}

static const uint8_t *own_page(uint32_t region, uint32_t page)
{
    return (const uint8_t *)(uintptr_t)(regions[region].base + page * regions[region].stride_bytes);
}

CASE_RANGE(a_worker_copies_a_hold_into_pages_of_any_layout, APART, ACROSS + 1)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    static const uint32_t pages[] = {5, 6, 1, 0, 31, 12, 7, 8};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
    struct kvc_pool_spec spec = spec_of_layout((enum layout)_i, own);
    ck_assert_int_eq(acquire(4, 2), 0);
    ck_assert_msg(kvc_gpu_load(gpu, hold, &spec, lists, NULL) == 0, "%s", kvc_last_error(kvc));
    uint32_t filled = 0;
    for (uint32_t b = 0; b < 4; b++) {
        uint8_t byte = b < 2 ? fake_hbm_byte(0, b) : fake_byte(0, b);
        for (uint32_t j = 0; j < PPB; j++) {
            for (uint32_t r = 0; r < REGIONS; r++)
                ck_assert(is_filled(own_page(r, pages[b * PPB + j]), byte, PAGE_BYTES));
        }
    }
    for (size_t i = 0; i < sizeof(own); i++)
        filled += own[i] != 0;
    ck_assert_uint_eq(filled, 4 * FAKE_BLOCK_BYTES);
    release_hold();
}

/* Different bytes in each page of a block: the order of regions and pages. */
CASE_RANGE(a_block_goes_into_its_pages_region_by_region, APART, ACROSS + 1)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    static const uint32_t pages[] = {9, 3};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
    struct kvc_pool_spec spec = spec_of_layout((enum layout)_i, own);
    uint8_t *block = fake.chunk[0] + FAKE_PAYLOAD_AT;
    for (uint32_t i = 0; i < REGIONS * PPB; i++)
        memset(block + (size_t)i * PAGE_BYTES, (int)(100 + i), PAGE_BYTES);
    ck_assert_int_eq(acquire(1, 0), 0);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), 0);
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t j = 0; j < PPB; j++)
            ck_assert(is_filled(own_page(r, pages[j]), (uint8_t)(100 + r * PPB + j), PAGE_BYTES));
    }
    release_hold();
}

CASE(a_load_of_the_workers_own_names_what_is_wrong)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    uint32_t pages[] = {5, 6, 1, PAGES};
    const uint32_t *const none[KVC_GROUPS_MAX] = {NULL}, *const lists[KVC_GROUPS_MAX] = {pages};
    struct kvc_pool_spec spec = spec_of_layout(APART, own);
    ck_assert_int_eq(acquire(2, 1), 0);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, none, NULL), -EINVAL);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "page number 3 is 32"));
    pages[3] = 2;
    spec.groups = 0;
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), -EINVAL);
    spec = spec_of_layout(APART, own);
    spec.group[0].regions = 3;
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), -EINVAL);
    ck_assert_ptr_nonnull(strstr(kvc_last_error(kvc), "a block has 4096 bytes, its pages 3072"));
    spec.group[0].regions = 0;
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), KVC_E_BAD_ARGUMENT);
    for (size_t i = 0; i < sizeof(own); i++)
        ck_assert_uint_eq(own[i], 0);
    release_hold();
}

CASE(more_fragments_than_one_copy_takes)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    static struct kvc_pool_region tiny[2048];
    static const uint32_t pages[] = {3, 1, 0};
    const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
    /* A block of 2,048 regions of 2 bytes, none beside another. */
    for (uint32_t r = 0; r < 2048; r++)
        tiny[r] = (struct kvc_pool_region){.base = (uint64_t)(uintptr_t)own + r * 4,
                                           .stride_bytes = 8192,
                                           .page_bytes = 2,
                                           .layer = r};
    struct kvc_pool_spec spec = {
        .pages_max = 4,
        .groups = 1,
        .group = {{.pages_per_block = 1, .regions = 2048, .region = tiny}}};
    ck_assert_int_eq(acquire(3, 1), 0);
    ck_assert_int_eq(kvc_gpu_load(gpu, hold, &spec, lists, NULL), 0);
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t r = 0; r < 2048; r++) {
            const uint8_t *at = own + (size_t)pages[b] * 8192 + (size_t)r * 4;
            uint8_t byte = b < 1 ? fake_hbm_byte(0, b) : fake_byte(0, b);
            ck_assert(at[0] == byte && at[1] == byte && at[2] == 0 && at[3] == 0);
        }
    }
    release_hold();
}

CASE_RANGE(a_worker_copies_pages_to_staging_and_stores_them, APART, ACROSS + 1)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    static const uint32_t pages[] = {9, 3, 4, 5};
    static const uint64_t offsets[] = {8192, 64};
    struct kvc_pool_spec spec = spec_of_layout((enum layout)_i, own);
    struct kvc_blocks blocks = blocks_of(2);
    uint8_t st[2];
    for (uint32_t r = 0; r < REGIONS; r++) {
        for (uint32_t p = 0; p < 4; p++)
            memset((uint8_t *)(uintptr_t)own_page(r, pages[p]), (int)(r * 10 + p + 1), PAGE_BYTES);
    }
    const uint8_t *staging = kvc_staging(kvc, NULL);
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 2, offsets, NULL), 0);
    for (uint32_t b = 0; b < 2; b++) {
        for (uint32_t i = 0; i < REGIONS * PPB; i++)
            ck_assert(is_filled(staging + offsets[b] + (size_t)i * PAGE_BYTES,
                                (uint8_t)(i / PPB * 10 + b * PPB + i % PPB + 1), PAGE_BYTES));
    }
    ck_assert_int_eq(kvc_store(ns, &blocks, offsets, NULL, 0, st), 0);
    ck_assert_uint_eq(atomic_load(&fake.s->stored_byte), staging[64]);
}

CASE(staging_that_is_not_there_is_not_written_to)
{
    static uint8_t own[REGIONS * PAGES * PAGE_BYTES];
    static const uint32_t pages[] = {9, 3};
    uint64_t offset = 1;
    struct kvc_pool_spec spec = spec_of_layout(APART, own);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), -EINVAL);
    offset = STAGING_BYTES - FAKE_BLOCK_BYTES + 64;
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), -EINVAL);
    offset = UINT64_MAX - 63;
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), -EINVAL);
    offset = 0;
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 1, pages, 1, &offset, NULL), -EINVAL);
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, NULL, 1, &offset, NULL), -EINVAL);
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, NULL, NULL), -EINVAL);
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), 0);
    fake_kill(&fake);
    ck_assert_int_ge(kvc_progress(kvc), 0);
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), KVC_E_DOWN);
    fake_start(&fake);
    for (uint64_t end = fake_now_ms() + 20000; fake_now_ms() < end && !kvc_is_up(kvc);) {
        uint64_t ms;
        usleep(10000);
        (void)!kvc_ping(kvc, &ms);
    }
    /* Not before it was asked for again: it is another area. */
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), KVC_E_DOWN);
    ck_assert_ptr_nonnull(kvc_staging(kvc, NULL));
    ck_assert_int_eq(kvc_gpu_stage(gpu, &spec, 0, pages, 1, &offset, NULL), 0);
}

CASE(a_child_frees_what_its_parent_holds)
{
    int status;
    ck_assert_int_eq(acquire(3, 2), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct kvc_pool_spec spec = pool_spec();
        struct kvc_seq seq = seq_of(8);
        struct kvc_hold *mine = NULL;
        static const uint32_t pages[8];
        const uint32_t *const lists[KVC_GROUPS_MAX] = {pages};
        int bad = kvc_gpu_load(gpu, hold, &spec, lists, NULL) != -EPERM ||
                  kvc_acquire_on(ns, &seq, gpu, NULL, &mine) != -EPERM;
        kvc_release(kvc, &hold);
        kvc_gpu_close(&gpu);
        kvc_close(&kvc);
        _exit(bad);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert(is_filled(kvc_hold_device(hold, 0, 1), fake_hbm_byte(0, 1), FAKE_BLOCK_BYTES));
    ck_assert_int_eq(kvc_hold_check(hold), 0);
    release_hold();
}
