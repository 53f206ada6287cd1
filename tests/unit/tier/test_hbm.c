/* SPDX-License-Identifier: Apache-2.0 */
/* The HBM tier's room, workers' memory and pools, and a device that comes and goes. */
#include "cases.h"
#include "fake_gpu.h"
#include "hbm__.h"
#include "hbm_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fault.h"

#define LIMIT (16 * RIG_MIB)
#define CHUNK (2 * RIG_MIB)

static const struct rig_config usual = {
    .limit_bytes = LIMIT, .chunk_bytes = CHUNK, .step = fake_gpu_run};

static struct rig rig;
static struct rig_pool pool;
static struct rig_copy copy;

static struct gpu *gpu(void)
{
    return hbm_gpu(rig.hbm);
}

static void begin(void)
{
    rig_open(&rig, &usual);
    fake_gpu_up(gpu());
}

static int export_of(uint32_t chunk, uint32_t principal, struct device_handle *ret_handle,
                     int *ret_fd, uint64_t *ret_bytes)
{
    return rig.d->ops->chunk_export(rig.d, chunk, principal, ret_handle, ret_fd, ret_bytes);
}

/* --- slots --- */

CASE(a_worker_reads_a_block_in_place)
{
    struct device_handle handle;
    struct tier_stats st;
    uint64_t bytes, gen;
    struct stat headers;
    int fd;
    begin();
    rig_scribble(&rig, rig.host, 100000);

    const struct tier_loc loc = rig_fill(&rig, 7, rig.host, 100000);

    const struct tier_view v = rig_view(&rig, loc);
    ck_assert_uint_eq(device_of_chunk(v.chunk), rig.d->no + 1);
    ck_assert_int_eq(export_of(v.chunk, 7, &handle, &fd, &bytes), 0);
    const uint8_t *memory = mmap(NULL, handle.bytes, PROT_READ, MAP_SHARED, handle.fd, 0);
    const uint8_t *header = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert(memory != MAP_FAILED && header != MAP_FAILED);
    ck_assert_uint_eq(handle.bytes, CHUNK);
    ck_assert_mem_eq(memory + v.off, rig.host, 100000);
    memcpy(&gen, header + v.hdr, sizeof(gen));
    ck_assert_uint_eq(gen, v.gen);
    ck_assert_uint_eq(v.bytes, 100000);
    const struct hash128 sum = rig.t->ops->sum(rig.t, loc);
    ck_assert_uint_eq(sum.b[1], 2);
    /* The header descriptor is for reading, and has headers alone. */
    ck_assert_ptr_eq(mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    ck_assert_int_eq(fstat(fd, &headers), 0);
    ck_assert_uint_le((uint64_t)headers.st_blocks * 512, 64 * 1024);

    rig.t->ops->stats(rig.t, &st);
    ck_assert_uint_eq(st.used_slots, 1);
    ck_assert_uint_eq(st.used_bytes, rig.t->ops->slot_bytes(rig.t, 100000));
    ck_assert_uint_eq(st.mapped_bytes, CHUNK);
    rig.t->ops->free(rig.t, loc);
    memcpy(&gen, header + v.hdr, sizeof(gen));
    ck_assert_uint_ne(gen, v.gen); /* the late reader's check */
    munmap((void *)(uintptr_t)memory, handle.bytes);
    munmap((void *)(uintptr_t)header, bytes);
    rig_close(&rig);
}

CASE(room_is_there_while_the_device_is_up)
{
    struct tier_loc loc;
    rig_open(&rig, &usual);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), KVC_E_NO_ROOM);
    ck_assert_int_eq(rig_alloc(&rig, 1, UINT32_MAX, &loc), KVC_E_TOO_LARGE);
    ck_assert_uint_eq(rig.ups, 0);
    fake_gpu_up(gpu());
    ck_assert_uint_eq(rig.ups, 1);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), 0);
    ck_assert_int_eq(rig_alloc(&rig, 1, CHUNK, &loc), KVC_E_TOO_LARGE);
    ck_assert_uint_eq(rig.t->ops->slot_bytes(rig.t, CHUNK), 0);
    ck_assert_uint_eq(rig.t->ops->slot_bytes(rig.t, 4097), 8192);
    ck_assert_ptr_null(rig.t->memory->payload);
    rig_close(&rig);
}

CASE(an_invalidated_slot_has_another_generation)
{
    begin();
    const struct tier_loc loc = rig_fill(&rig, 1, rig.host, 4096);
    const struct tier_view before = rig_view(&rig, loc);
    rig.t->ops->invalidate(rig.t, loc);
    ck_assert_uint_ne(rig_view(&rig, loc).gen, before.gen);
    ck_assert_uint_eq(rig_view(&rig, loc).chunk, before.chunk);
    rig_close(&rig);
}

CASE(a_chunk_is_exported_to_its_principal_when_it_is_there)
{
    struct tier_loc loc;
    begin();
    ck_assert_int_eq(rig_alloc(&rig, 5, 4096, &loc), 0);
    const uint32_t chunk = rig_view(&rig, loc).chunk;
    ck_assert_int_eq(rig_export(&rig, chunk, 5), -EIO); /* not there yet */
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == 1);
    ck_assert_int_eq(rig_export(&rig, chunk, 5), 0);
    ck_assert_int_eq(rig_export(&rig, chunk, 6), -EACCES);
    ck_assert_int_eq(rig_export(&rig, chunk + 1, 5), -ENOENT);
    ck_assert_int_eq(rig_export(&rig, chunk & HBM_NUMBERS, 5), -ENOENT); /* host memory's */
    ck_assert_int_eq(rig_export(&rig, chunk + (1u << DEVICE_CHUNK_SHIFT), 5), -ENOENT);
    ck_assert_int_eq(rig_export(&rig, (rig.d->no + 1) << DEVICE_CHUNK_SHIFT, 5), -ENOENT);
    rig_close(&rig);
}

/* A copy to memory that is on its way waits, others go on. */
CASE(a_fill_waits_for_its_memory)
{
    struct rig_copy fill = {0};
    struct tier_loc loc;
    begin();
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), 0);
    rig_copy_init(&rig, &fill, DEVICE_FILL, &pool, 1);
    fill.c.pool = NULL;
    fill.c.bytes = 4096;
    fill.piece[0].slot = loc;
    rig_submit(&rig, &fill);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_COPY), 0);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 1);
    rig_submit(&rig, &copy);
    ck_assert_uint_gt(fake_gpu_copy(gpu(), 10), 0);
    ck_assert_uint_eq(copy.dones, 1);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_ALLOC), 1);
    RIG_UNTIL(&rig, fill.dones);
    ck_assert_int_eq(fill.c.status, 0);
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

CASE_EACH(no_memory_ends_a_copy_and_the_next_one_tries_again, 2)
{
    struct tier_loc loc, second;
    begin();
    fake_gpu_fail(gpu(), GPU_ALLOC, 2, _i == 0 ? -ENOMEM : -EMFILE);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), 0);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), -ENOMEM);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), -ENOMEM);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), -EIO);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), 0);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), 0);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_ALLOC), 3);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &second), 0);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_ALLOC), 3);
    rig_close(&rig);
}

/* --- the limit, and whose memory it is --- */

static void take_room(uint32_t principal, uint32_t bytes, struct tier_loc *ret_loc)
{
    for (;;) {
        const int err = rig_alloc(&rig, principal, bytes, ret_loc);
        if (err == 0)
            return;
        ck_assert_int_eq(err, KVC_E_NO_ROOM);
        ck_assert_uint_gt(rig_drain(&rig, principal, bytes), 0);
    }
}

/* Principals come and go, and what is left of the one before is drained; now and then the device is
 * slow. */
CASE(the_limit_holds_while_chunks_change_hands)
{
    static struct rig_victims held[2];
    struct tier_loc loc;
    begin();
    for (uint32_t i = 0; i < 1000; i++) {
        const uint32_t bytes = 4096 + rig_below(&rig, 900 * 1024);
        struct rig_victims *mine = &held[i / 16 % 2];
        if (i % 16 == 0)
            rig_free_all(&rig, mine);
        const int err = rig_alloc(&rig, 1 + i / 16 % 5, bytes, &loc);
        if (err == KVC_E_NO_ROOM) {
            rig_free_all(&rig, &held[1 - i / 16 % 2]);
            continue;
        }
        ck_assert_int_eq(err, 0);
        mine->loc[mine->n++] = loc;
        if (i % 3 != 0)
            ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, bytes), 0);
        ck_assert_uint_le(fake_gpu_peak_bytes(gpu()), LIMIT);
        ck_assert_uint_le(gpu_metrics(gpu())->memory_bytes +
                              fake_gpu_waiting(gpu(), GPU_ALLOC) * (uint64_t)CHUNK,
                          LIMIT);
    }
    ck_assert_uint_gt(rig.retired, 100);
    ck_assert_uint_eq(fake_gpu_peak_bytes(gpu()), LIMIT); /* all of it is used */
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_FREE) + fake_gpu_waiting(gpu(), GPU_ALLOC) == 0);
    rig_close(&rig);
}

/* The old memory goes first, with what it held. */
CASE(a_chunk_that_changes_hands_is_other_memory)
{
    struct tier_loc loc;
    begin();
    take_room(1, 1500 * 1024, &loc);
    const uint32_t first = rig_view(&rig, loc).chunk;
    for (unsigned i = 1; i < LIMIT / CHUNK; i++)
        take_room(1, 1500 * 1024, &loc);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == LIMIT / CHUNK);
    ck_assert_uint_eq(rig.retired, 0);

    take_room(2, 4096, &loc);

    ck_assert_uint_eq(rig.retired, 1);
    ck_assert_uint_eq(rig.last_retired, first);
    ck_assert_uint_eq(rig.last_principal, 1);
    ck_assert_int_eq(rig_export(&rig, first, 1), -ENOENT);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_FREE), 1);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_ALLOC), 0);
    ck_assert_uint_eq(fake_gpu_memory(gpu()), 1);
    ck_assert_uint_eq(fake_gpu_mems(gpu()), LIMIT / CHUNK - 1);
    ck_assert_uint_eq(fake_gpu_waiting(gpu(), GPU_ALLOC), 1);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), 0);
    ck_assert_uint_ne(rig_view(&rig, loc).chunk, first);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 2), 0);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), -EACCES);
    rig_close(&rig);
}

/* Before the device has got to it. */
CASE_EACH(memory_on_its_way_to_the_one_before_is_not_for_the_next, 2)
{
    struct tier_loc loc, own;
    begin();
    take_room(1, 1500 * 1024, &own);
    for (unsigned i = 1; i < LIMIT / CHUNK; i++)
        take_room(1, 1500 * 1024, &loc);
    if (_i == 1)
        fake_gpu_fail(gpu(), GPU_ALLOC, 1, -ENOMEM);
    rig.t->ops->free(rig.t, own);
    take_room(2, 4096, &loc); /* its place */
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), 0);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == LIMIT / CHUNK);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_ALLOC), LIMIT / CHUNK + 1);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_FREE), _i == 0);
    rig_close(&rig);
}

CASE(numbers_of_chunks_come_round_past_those_in_use)
{
    struct tier_loc loc[3];
    begin();
    rig.hbm->last_no = HBM_NUMBERS - 1;
    const uint32_t device = (rig.d->no + 1) << DEVICE_CHUNK_SHIFT;
    ck_assert_int_eq(rig_alloc(&rig, 1, 1500 * 1024, &loc[0]), 0);
    ck_assert_uint_eq(rig_view(&rig, loc[0]).chunk, device | HBM_NUMBERS);
    ck_assert_int_eq(rig_alloc(&rig, 1, 1500 * 1024, &loc[1]), 0);
    ck_assert_uint_eq(rig_view(&rig, loc[1]).chunk, device | 1);
    rig.hbm->last_no = HBM_NUMBERS - 1;
    ck_assert_int_eq(rig_alloc(&rig, 1, 1500 * 1024, &loc[2]), 0);
    ck_assert_uint_eq(rig_view(&rig, loc[2]).chunk, device | 2);
    ck_assert_uint_eq(device_of_chunk(rig_view(&rig, loc[2]).chunk), rig.d->no + 1);
    rig_close(&rig);
}

CASE(helps_and_drain_are_the_arenas)
{
    struct tier_loc loc, last;
    begin();
    take_room(1, 4096, &last);
    ck_assert(rig.t->memory->helps(rig.t, last, 1, 4096));
    while (rig_alloc(&rig, 1, 1500 * 1024, &loc) == 0)
        last = loc;
    ck_assert(rig.t->memory->helps(rig.t, last, 1, 1500 * 1024));
    rig_close(&rig);
}

/* --- the device goes --- */

CASE(a_lost_device_takes_its_blocks_with_it)
{
    struct tier_loc loc, unpublished;
    begin();
    loc = rig_fill(&rig, 1, rig.host, 4096);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &unpublished), 0);
    ck_assert_int_eq(rig_fill_slot(&rig, unpublished, rig.host, 4096), 0);
    const struct tier_view before = rig_view(&rig, loc);
    fake_gpu_lose(gpu());
    ck_assert_uint_eq(rig.losts, 1);
    /* Readers see it, at once and for good. */
    ck_assert_uint_ne(rig_view(&rig, loc).gen, before.gen);
    ck_assert_uint_eq(rig.retired, 1);
    ck_assert_uint_eq(rig.last_retired, before.chunk);
    ck_assert_int_eq(rig_export(&rig, before.chunk, 1), -ENOENT);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), KVC_E_NO_ROOM);

    fake_gpu_up(gpu());
    ck_assert_uint_eq(rig.ups, 2);
    struct tier_loc fresh = rig_fill(&rig, 1, rig.host, 4096);
    const uint64_t gen = rig_view(&rig, unpublished).gen;
    rig_set_label(&rig, unpublished, 4096); /* too late */
    ck_assert_uint_eq(rig_view(&rig, unpublished).gen, gen);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, fresh).chunk, 1), 0);
    ck_assert_uint_ne(rig_view(&rig, fresh).chunk, before.chunk); /* other memory, other number */
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), -ENOENT);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, unpublished).chunk, 1), -ENOENT);
    ck_assert_int_eq(rig_fill_slot(&rig, loc, rig.host, 4096), -EIO);
    struct tier_stats st;
    rig.t->ops->stats(rig.t, &st);
    ck_assert_uint_eq(st.used_slots, 3); /* taken until they are freed */
    rig.t->ops->free(rig.t, loc);
    rig.t->ops->free(rig.t, unpublished);
    loc = rig_fill(&rig, 1, rig.host, 4096);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), 0);
    rig_close(&rig);
}

CASE(a_lost_block_is_not_loaded)
{
    begin();
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    const struct tier_loc loc = rig_fill(&rig, 1, rig.host, pool.block_bytes);
    rig_pool_close(&rig, &pool);
    fake_gpu_lose(gpu());
    fake_gpu_up(gpu());
    (void)rig_fill(&rig, 1, rig.host, pool.block_bytes); /* memory is there again */
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    rig_copy_init(&rig, &copy, DEVICE_LOAD, &pool, 1);
    copy.piece[0].host = NULL;
    copy.piece[0].slot = loc;
    ck_assert_int_eq(rig_copy(&rig, &copy), -EIO);
    rig_pool_check(&pool);
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

/* The memory is freed when nothing touches it any more, and then asked for again. */
CASE_EACH(a_device_goes_while_it_fills, 3)
{
    struct rig_copy fill = {0};
    struct tier_loc loc;
    begin();
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    ck_assert_int_eq(rig_alloc(&rig, 1, 4096, &loc), 0);
    rig_copy_init(&rig, &fill, DEVICE_FILL, &pool, 1);
    fill.c.pool = NULL;
    fill.c.bytes = 4096;
    fill.piece[0].slot = loc;
    rig_submit(&rig, &fill);
    if (_i >= 1)
        (void)fake_gpu_memory(gpu()); /* else it waits for its memory */
    fake_gpu_lose(gpu());
    if (_i == 2)
        fake_gpu_up(gpu()); /* before the copy has ended */
    const struct gpu_mem *mem = &rig.hbm->chunk_mem[0].mem;
    ck_assert(_i == 0 || mem->priv != NULL); /* not freed */
    RIG_UNTIL(&rig, fill.dones);
    ck_assert_int_eq(fill.c.status, _i == 2 ? fill.c.status : -EIO);
    if (_i != 2)
        fake_gpu_up(gpu());
    rig.t->ops->free(rig.t, loc);
    rig_pool_close(&rig, &pool);
    loc = rig_fill(&rig, 1, rig.host, 4096);
    ck_assert_int_eq(rig_export(&rig, rig_view(&rig, loc).chunk, 1), 0);
    ck_assert_uint_eq(fake_gpu_mems(gpu()), 1);
    rig_close(&rig);
}

CASE(void_pools_and_memory_can_be_let_go_of)
{
    const char *why = NULL;
    struct device_pool *again;
    begin();
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    fake_gpu_lose(gpu());
    struct rig_mem late;
    rig_mem_make(&rig, &late, 4096);
    ck_assert_int_eq(rig_mem_import(&rig, &late), -EIO); /* it is out */
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &pool.spec, &again, &why), -EINVAL);
    fake_gpu_up(gpu());
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &pool.spec, &again, &why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "import it again"));
    rig_pool_close(&rig, &pool);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == 0);
    rig_mem_unmake(&late);
    rig_close(&rig);
}

CASE(a_device_that_never_comes_up_lost_nothing)
{
    rig_open(&rig, &usual);
    struct device_view v;
    rig.d->ops->view(rig.d, &v);
    ck_assert(!v.up && !rig.d->ops->up(rig.d));
    ck_assert_ptr_nonnull(strstr(hbm_note(rig.hbm), "starting"));
    rig_close(&rig);
    ck_assert_uint_eq(rig.losts, 0);
}

/* --- workers' memory --- */

CASE_EACH(memory_that_cannot_be_imported_says_so_and_is_gone, 5)
{
    static const int errors[] = {-EINVAL, -EOPNOTSUPP, -ENOMEM, -EIO, -EMFILE};
    struct rig_mem m;
    begin();
    rig_mem_make(&rig, &m, 8192);
    fake_gpu_fail(gpu(), GPU_IMPORT, 1, errors[_i]);
    ck_assert_int_eq(rig_mem_import(&rig, &m), 0);
    ck_assert_int_eq(m.err, 1); /* later */
    RIG_UNTIL(&rig, m.err != 1);
    ck_assert_int_eq(m.err, errors[_i] == -EMFILE ? -EIO : errors[_i]);
    ck_assert_uint_eq(gpu_metrics(gpu())->imported_bytes, 0);
    rig_mem_unmake(&m);
    rig_close(&rig);
}

/* Its descriptor is closed too, before the device gets there. */
CASE_EACH(memory_is_dropped_before_it_was_imported, 2)
{
    struct rig_mem m;
    begin();
    rig_mem_make(&rig, &m, 8192);
    if (_i == 1)
        fake_gpu_fail(gpu(), GPU_IMPORT, 1, -ENOMEM);
    ck_assert_int_eq(rig_mem_import(&rig, &m), 0);
    rig.d->ops->mem_drop(rig.d, m.mem);
    rig_mem_unmake(&m);
    m.err = 1;
    RIG_UNTIL(&rig,
              fake_gpu_seen(gpu(), GPU_FREE) == (_i == 0) &&
                  fake_gpu_waiting(gpu(), GPU_IMPORT) + fake_gpu_waiting(gpu(), GPU_FREE) == 0);
    ck_assert_int_eq(m.err, 1); /* nobody was told */
    ck_assert_uint_eq(fake_gpu_mems(gpu()), 0);
    rig_close(&rig);
}

CASE_EACH(an_import_ends_with_the_device_or_with_all, 2)
{
    struct rig_mem m;
    begin();
    rig_mem_make(&rig, &m, 8192);
    ck_assert_int_eq(rig_mem_import(&rig, &m), 0);
    if (_i == 0) {
        fake_gpu_lose(gpu());
        RIG_UNTIL(&rig, m.err != 1);
        rig_close(&rig);
    } else {
        rig_close(&rig);
    }
    ck_assert_int_eq(m.err, -EIO);
    rig_mem_unmake(&m);
}

CASE(a_refused_allocation_or_descriptor_is_an_error)
{
    struct rig_mem m;
    struct device_pool *p;
    const char *why;
    begin();
    rig_mem_make(&rig, &m, 8192);
    ck_assert_int_eq(fault_arm("alloc", 1), 0);
    ck_assert_int_eq(rig_mem_import(&rig, &m), -ENOMEM);
    ck_assert_int_eq(fault_arm("fd", 1), 0);
    ck_assert_int_eq(rig_mem_import(&rig, &m), -EMFILE);
    fault_reset();
    rig_mem_unmake(&m);
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    ck_assert_int_eq(fault_arm("alloc", 1), 0);
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &pool.spec, &p, &why), -ENOMEM);
    fault_reset();
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

/* --- pools --- */

enum {
    AS_IT_IS,
    NO_PAGES,
    NO_GROUPS,
    MANY_GROUPS,
    NO_PAGE_IN_BLOCK,
    MANY_PAGES_IN_BLOCK,
    NO_REGIONS,
    MANY_REGIONS,
    NO_MEMORY,
    PAGE_EMPTY,
    STRIDE_SHORT,
    ENDS_BEYOND,
    BASE_WRAPS,
    STRIDE_WRAPS,
    PAGE_WRAPS,
    LAYERS_BACK,
    SPOILS
};

static const char *const spoiled[SPOILS] = {
    [NO_PAGES] = "pages_max",
    [NO_GROUPS] = "1 to 16 groups",
    [MANY_GROUPS] = "1 to 16 groups",
    [NO_PAGE_IN_BLOCK] = "pages_per_block",
    [MANY_PAGES_IN_BLOCK] = "pages_per_block",
    [NO_REGIONS] = "1 to 1024 regions",
    [MANY_REGIONS] = "1 to 1024 regions",
    [NO_MEMORY] = "not memory of this device",
    [PAGE_EMPTY] = "page_bytes",
    [STRIDE_SHORT] = "stride_bytes",
    [ENDS_BEYOND] = "ends beyond",
    [BASE_WRAPS] = "ends beyond",
    [STRIDE_WRAPS] = "ends beyond",
    [PAGE_WRAPS] = "ends beyond",
    [LAYERS_BACK] = "layers",
};

static void spoil(struct device_pool_spec *spec, struct device_region *r, int how)
{
    struct device_pool_group *g = &spec->group[0];
    const uint64_t whole = pool.mem[0].bytes;
    switch (how) {
    case NO_PAGES:
        spec->pages_max = 0;
        break;
    case NO_GROUPS:
        spec->ngroups = 0;
        break;
    case MANY_GROUPS:
        spec->ngroups = KVC_GROUPS_MAX + 1;
        break;
    case NO_PAGE_IN_BLOCK:
        g->pages_per_block = 0;
        break;
    case MANY_PAGES_IN_BLOCK:
        g->pages_per_block = RIG_PAGES_MAX + 1;
        break;
    case NO_REGIONS:
        g->nregions = 0;
        break;
    case MANY_REGIONS:
        g->nregions = DEVICE_REGIONS_MAX + 1;
        break;
    case NO_MEMORY:
        r[1].mem = NULL;
        break;
    case PAGE_EMPTY:
        r[1].page_bytes = 0;
        break;
    case STRIDE_SHORT:
        r[1].stride_bytes = r[1].page_bytes - 1;
        break;
    case ENDS_BEYOND:
        r[1].base = whole - (RIG_PAGES_MAX - 1) * r[1].stride_bytes - r[1].page_bytes + 1;
        break;
    case BASE_WRAPS:
        r[1].base = UINT64_MAX - 100;
        break;
    case STRIDE_WRAPS:
        r[1].stride_bytes = UINT64_MAX / (RIG_PAGES_MAX - 1) + 2;
        break;
    case PAGE_WRAPS:
        r[1].page_bytes = r[1].stride_bytes = UINT64_MAX - 3;
        break;
    case LAYERS_BACK:
        r[1].layer = 0;
        r[0].layer = 1;
        break;
    default:
        break;
    }
}

CASE_RANGE(a_pool_that_does_not_fit_its_memory_is_refused_in_words, AS_IT_IS, SPOILS)
{
    struct device_region region[RIG_REGIONS];
    struct device_pool_spec spec;
    struct device_pool *p = NULL;
    const char *why = NULL;
    begin();
    rig_pool_open(&rig, &pool, RIG_KV_TOGETHER, 3, 4);
    spec = pool.spec;
    memcpy(region, pool.region, sizeof(region));
    spec.group[0].region = region;
    spoil(&spec, region, _i);
    const int err = rig.d->ops->pool_open(rig.d, &spec, &p, &why);
    if (spoiled[_i] == NULL) {
        ck_assert_int_eq(err, 0);
        rig.d->ops->pool_close(rig.d, p);
    } else {
        ck_assert_int_eq(err, -EINVAL);
        ck_assert_ptr_null(p);
        ck_assert_msg(strstr(why, spoiled[_i]) != NULL, "%s", why);
    }
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

CASE(a_region_may_end_where_its_memory_ends)
{
    struct device_pool *p;
    const char *why;
    begin();
    rig_pool_open(&rig, &pool, RIG_KV_TOGETHER, 3, 4);
    struct device_region *r = &pool.region[2];
    r->base = pool.mem[0].bytes - (RIG_PAGES_MAX - 1) * r->stride_bytes - r->page_bytes;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &pool.spec, &p, &why), 0);
    rig.d->ops->pool_close(rig.d, p);
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

/* Regions may lie on top of each other: a block can be larger than the memory. */
CASE(a_block_is_less_than_4_gib)
{
    struct rig_mem m;
    struct device_region region[DEVICE_REGIONS_MAX];
    struct device_pool_spec spec = {
        .pages_max = 2, .ngroups = 1, .group[0] = {.pages_per_block = 2, .region = region}};
    struct device_pool *p;
    const char *why;
    begin();
    rig_mem_make(&rig, &m, 4 * RIG_MIB);
    ck_assert_int_eq(rig_mem_import(&rig, &m), 0);
    RIG_UNTIL(&rig, m.err == 0);
    for (uint32_t i = 0; i < DEVICE_REGIONS_MAX; i++)
        region[i] = (struct device_region){
            .mem = m.mem, .stride_bytes = 2 * RIG_MIB, .page_bytes = 2 * RIG_MIB, .layer = i};
    spec.group[0].nregions = DEVICE_REGIONS_MAX;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &p, &why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "less than 4GiB"));
    region[7].page_bytes--;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &p, &why), 0);
    ck_assert_uint_eq(rig.d->ops->pool_block_bytes(p, 0), UINT32_MAX - 1);
    rig.d->ops->pool_close(rig.d, p);
    rig.d->ops->mem_drop(rig.d, m.mem);
    rig_close(&rig);
    rig_mem_unmake(&m);
}

CASE(a_pool_is_in_memory_that_has_been_imported)
{
    struct rig_mem m;
    struct device_region region = {.page_bytes = 64, .stride_bytes = 64};
    struct device_pool_spec spec = {
        .pages_max = 16,
        .ngroups = 1,
        .group[0] = {.pages_per_block = 1, .nregions = 1, .region = &region}};
    struct device_pool *p;
    const char *why;
    begin();
    rig_mem_make(&rig, &m, 4096);
    ck_assert_int_eq(rig_mem_import(&rig, &m), 0);
    region.mem = m.mem;
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &p, &why), -EINVAL);
    ck_assert_ptr_nonnull(strstr(why, "not imported"));
    RIG_UNTIL(&rig, m.err == 0);
    ck_assert_int_eq(rig.d->ops->pool_open(rig.d, &spec, &p, &why), 0);
    rig.d->ops->mem_drop(rig.d, m.mem); /* the pool keeps it */
    RIG_UNTIL(&rig, true);
    ck_assert_uint_eq(fake_gpu_mems(gpu()), 1);
    rig.d->ops->pool_close(rig.d, p);
    RIG_UNTIL(&rig, fake_gpu_mems(gpu()) == 0);
    rig_mem_unmake(&m);
    rig_close(&rig);
}

/* --- host memory --- */

CASE(host_memory_is_registered_when_the_device_is_up)
{
    rig_open(&rig, &usual);
    hbm_pin_host(rig.hbm, rig.host, 4096);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_PIN), 0);
    fake_gpu_up(gpu());
    RIG_UNTIL(&rig, fake_gpu_is_pinned(gpu(), rig.host));
    fake_gpu_fail(gpu(), GPU_PIN, 1, -ENOMEM); /* costs speed only */
    hbm_pin_host(rig.hbm, rig.host + 4096, 4096);
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_PIN) == 0);
    ck_assert(!fake_gpu_is_pinned(gpu(), rig.host + 4096));
    fake_gpu_lose(gpu());
    fake_gpu_up(gpu());
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_PIN) == 0);
    ck_assert(fake_gpu_is_pinned(gpu(), rig.host)); /* again, and this time both */
    ck_assert(fake_gpu_is_pinned(gpu(), rig.host + 4096));
    hbm_unpin_host(rig.hbm, rig.host, 4096);
    hbm_unpin_host(rig.hbm, rig.host + 8192, 4096); /* never was */
    hbm_pin_host(rig.hbm, rig.host + 8192, 4096);
    hbm_unpin_host(rig.hbm, rig.host + 8192, 4096); /* right behind */
    ck_assert_uint_eq(hbm_leaving_bytes(rig.hbm), 8192);
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_UNPIN) == 0);
    ck_assert_uint_eq(hbm_leaving_bytes(rig.hbm), 0);
    ck_assert(!fake_gpu_is_pinned(gpu(), rig.host));
    ck_assert(!fake_gpu_is_pinned(gpu(), rig.host + 8192));
    ck_assert(fake_gpu_is_pinned(gpu(), rig.host + 4096));
    rig_close(&rig);
}

/* The device went while it was asked, and was back before it was heard. */
CASE(a_registration_that_fell_between_is_asked_for_again)
{
    begin();
    hbm_pin_host(rig.hbm, rig.host, 4096);
    fake_gpu_lose(gpu());
    fake_gpu_up(gpu());
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_PIN) == 0);
    ck_assert(fake_gpu_is_pinned(gpu(), rig.host));
    rig_close(&rig);
}

CASE(registered_memory_is_bounded)
{
    rig_open(&rig, &usual);
    for (uint32_t i = 0; i < HBM_PINS_MAX + 10; i++)
        hbm_pin_host(rig.hbm, (void *)(uintptr_t)((i + 1) * UINT64_C(4096)), 4096);
    for (uint32_t i = 0; i < HBM_PINS_MAX + 10; i++)
        hbm_unpin_host(rig.hbm, (void *)(uintptr_t)((i + 1) * UINT64_C(4096)), 4096);
    RIG_UNTIL(&rig, fake_gpu_waiting(gpu(), GPU_UNPIN) == 0);
    ck_assert_uint_eq(fake_gpu_seen(gpu(), GPU_UNPIN), HBM_PINS_MAX);
    rig_close(&rig);
}

/* --- made, asked, refused --- */

CASE(the_view_is_what_the_device_says)
{
    struct device_view v;
    begin();
    rig_pool_open(&rig, &pool, RIG_MLA, 2, 1);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 3);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    (void)rig_fill(&rig, 1, rig.host, 5000);
    struct gpu_rates *rates = (struct gpu_rates *)(uintptr_t)gpu_rates(gpu());
    *rates = (struct gpu_rates){.frag_bytes = {1024, 2048}, .plain_to = 5, .plain_from = 6};
    rates->to[1][GPU_PATH_ENGINE] = 11;
    rates->to[1][GPU_PATH_KERNEL] = 12;
    rates->from[1][GPU_PATH_ENGINE] = 13;
    rates->from[1][GPU_PATH_KERNEL] = 17;
    rates->within[1][GPU_PATH_KERNEL] = 20;
    rig.d->ops->view(rig.d, &v);
    ck_assert(v.up && v.emulated && rig.d->ops->up(rig.d));
    ck_assert_str_eq(v.name, "fake");
    ck_assert_str_eq(v.why, "");
    ck_assert_uint_eq(v.uuid[15], 0x42);
    ck_assert_uint_eq(v.limit_bytes, LIMIT);
    ck_assert_uint_eq(v.used_bytes, 8192);
    ck_assert_uint_eq(v.memory_bytes, CHUNK);
    ck_assert_uint_eq(v.imported_bytes, pool.mem[0].bytes);
    ck_assert_uint_eq(v.copies, 2);
    ck_assert_uint_eq(v.copy_bytes, 3 * pool.block_bytes + 5000);
    ck_assert_uint_eq(v.plain_to, 5);
    ck_assert_uint_eq(v.plain_from, 6);
    ck_assert_uint_eq(v.rate[1].frag_bytes, 2048);
    ck_assert_uint_eq(v.rate[1].to_engine, 11);
    ck_assert_uint_eq(v.rate[1].to_kernel, 12);
    ck_assert_uint_eq(v.rate[1].from_engine, 13);
    ck_assert_uint_eq(v.rate[1].from_kernel, 17);
    ck_assert_uint_eq(v.rate[1].to_window, 4); /* one after the other: 1 / (1/5 + 1/20) */
    ck_assert_uint_eq(v.rate[0].to_window, 0);
    ck_assert_uint_eq(v.rate[1].to_path, KVC_COPY_ENGINE); /* as gpu_path_of() says */
    ck_assert_uint_eq(v.rate[1].from_path, KVC_COPY_KERNEL);
    ck_assert_uint_eq(v.rate[0].to_path, KVC_COPY_UNKNOWN);
    ck_assert_uint_eq(v.rate[0].from_path, KVC_COPY_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(hbm_note(rig.hbm), "16 MiB for blocks in 8 chunks of 2 MiB; up"));
    fake_gpu_lose(gpu());
    rig.d->ops->view(rig.d, &v);
    ck_assert(!v.up && !rig.d->ops->up(rig.d));
    ck_assert_uint_eq(v.outs, 1);
    ck_assert_str_eq(v.why, "it was taken out by the test");
    ck_assert_ptr_nonnull(strstr(hbm_note(rig.hbm), "out: it was taken out by the test"));
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

CASE(a_device_without_room_copies_between_host_and_pages)
{
    struct rig_config config = usual;
    config.limit_bytes = 0;
    config.chunk_bytes = 0;
    rig_open(&rig, &config);
    ck_assert_ptr_null(rig.t);
    fake_gpu_up(gpu());
    rig_pool_open(&rig, &pool, RIG_ACROSS, 2, 1);
    rig_copy_init(&rig, &copy, DEVICE_STORE, &pool, 3);
    ck_assert_int_eq(rig_copy(&rig, &copy), 0);
    ck_assert_int_eq(rig_export(&rig, (rig.d->no + 1) << DEVICE_CHUNK_SHIFT | 1, 1), -ENOENT);
    ck_assert_ptr_nonnull(strstr(hbm_note(rig.hbm), "no room for blocks"));
    fake_gpu_lose(gpu());
    rig_pool_close(&rig, &pool);
    rig_close(&rig);
}

CASE(chunks_fit_the_limit)
{
    static const uint64_t limits[] = {8, 9, 100, 511, 512, 4096, 81920};
    for (unsigned i = 0; i < ARRAY_LEN(limits); i++) {
        const struct hbm_config config = {.gpu = {.device = "emu:0"},
                                          .limit_bytes = limits[i] * RIG_MIB};
        ck_assert_ptr_null(hbm_config_problem(&config));
        const uint64_t chunk = hbm__chunk_bytes(&config);
        ck_assert_uint_ge(chunk, 2 * RIG_MIB);
        ck_assert_uint_le(chunk, 64 * RIG_MIB);
        ck_assert_uint_ge(config.limit_bytes / chunk, 4);
        ck_assert_uint_gt(hbm_host_bytes(&config), 0);
        /* Headers and tables are a small part of what they are for. */
        ck_assert_uint_le(hbm_host_bytes(&config), config.limit_bytes / 10 + 24 * RIG_MIB);
    }
}

CASE(a_bad_config_is_refused_in_words)
{
    const struct hbm_config good = {.gpu = {.device = "emu:0"}, .limit_bytes = LIMIT};
    struct hbm_config bad;
    struct hbm *h = NULL;
    ck_assert_ptr_null(hbm_config_problem(&good));
#define BAD(field, value, words)                                        \
    do {                                                                \
        bad = good;                                                     \
        bad.field = (value);                                            \
        ck_assert_ptr_nonnull(hbm_config_problem(&bad));                \
        ck_assert_ptr_nonnull(strstr(hbm_config_problem(&bad), words)); \
        ck_assert_int_eq(hbm_create(&bad, NULL, &h), -EINVAL);          \
    } while (0)
    BAD(no, DEVICES_MAX, "16 devices");
    BAD(gpu.device, NULL, "emu:<number>");
    BAD(gpu.device, "tpu:0", "emu:<number>");
    BAD(limit_bytes, 8 * RIG_MIB - 1, "8MiB");
    BAD(limit_bytes, (UINT64_C(8) << 40) + 1, "8TiB");
    BAD(chunk_bytes, 3 * RIG_MIB, "multiple of 2MiB");
    BAD(chunk_bytes, UINT64_C(2) << 30, "1GiB");
    BAD(chunk_bytes, LIMIT, "half of its limit");
    bad = good;
    bad.limit_bytes = UINT64_C(1) << 40;
    bad.chunk_bytes = CHUNK;
    ck_assert_ptr_nonnull(strstr(hbm_config_problem(&bad), "16384 chunks"));
}

CASE(create_unwinds_whatever_fails)
{
    static const char *const points[] = {"alloc", "map", "fd", "thread"};
    const struct hbm_config config = {
        .gpu = {.device = "emu:0"}, .limit_bytes = LIMIT, .chunk_bytes = CHUNK};
    struct loop *loop = fixture_loop(LOOP_AUTO);
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            struct hbm *h = NULL;
            ck_assert_int_eq(fault_arm(points[p], nth), 0);
            const int err = hbm_create(&config, loop, &h);
            const bool reached = fault_count(points[p]) >= nth;
            ck_assert_int_eq(err != 0, reached);
            ck_assert_int_eq(h == NULL, reached);
            hbm_destroy(&h);
            fault_reset();
            if (!reached)
                break;
        }
    }
    hbm_destroy(NULL);
    ck_assert_ptr_null(hbm_device(NULL));
    loop_destroy(&loop);
}
