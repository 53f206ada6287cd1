/* SPDX-License-Identifier: Apache-2.0 */
/* The host tier through tier.h: store, publish, view, and a late reader. */
#include "cases.h"
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "tier_fixture.h"

#define MIB (1024u * 1024u)

static const struct host_config config = {
    .arena = {.limit_bytes = 16 * MIB, .chunk_bytes = 4 * MIB},
    .copier = {.threads = 2, .inflight_bytes = 4 * MIB},
};

static void on_done(struct tier_op *op)
{
    ++*(unsigned *)op->ctx;
}

/* alloc, submit, publish of one block; returns where it is. */
static struct tier_loc store(struct tier *t, struct loop *loop, uint32_t principal, const void *src,
                             uint32_t bytes, struct hash128 *ret_sum)
{
    unsigned done = 0;
    struct tier_op op = {.kind = TIER_PUT,
                         .src = src,
                         .bytes = bytes,
                         .label = {.key = {{7}}, .ns = 3},
                         .done = on_done,
                         .ctx = &done};
    ck_assert_int_eq(t->ops->alloc(t, principal, bytes, (struct tier_loc){0}, 1, &op.loc), 0);
    t->ops->submit(t, &op);
    TURN_UNTIL(loop, done);
    ck_assert_uint_eq(done, 1);
    ck_assert_int_eq(op.status, 0);
    t->ops->set_label(t, &op);
    *ret_sum = op.sum;
    return op.loc;
}

CASE_EACH(a_stored_block_is_read_back_by_descriptor_and_offset, 2)
{
    struct loop *loop = fixture_loop(_i == 0 ? LOOP_AUTO : LOOP_EPOLL);
    struct host *h = NULL;
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    struct tier *t = host_tier(h);
    static uint8_t src[100000];
    for (unsigned i = 0; i < sizeof(src); i++)
        src[i] = (uint8_t)(i * 31 + i / 256);
    struct hash128 sum;
    struct tier_view v;
    struct tier_stats st;
    uint64_t bytes;

    const struct tier_loc loc = store(t, loop, 5, src, sizeof(src), &sum);

    t->memory->view(t, loc, &v);
    const int fd = host_chunk_fd(h, v.chunk, 5, &bytes);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(host_chunk_fd(h, v.chunk, 6, &bytes), -EACCES);
    ck_assert_int_eq(host_chunk_fd(h, 12345, 5, &bytes), -ENOENT);
    const uint8_t *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(map, MAP_FAILED);
    ck_assert_uint_eq(v.bytes, sizeof(src));
    ck_assert_mem_eq(map + v.off, src, sizeof(src));
    uint64_t gen;
    memcpy(&gen, map + v.hdr, sizeof(gen));
    ck_assert_uint_eq(gen, v.gen);
    const struct hash128 kept = t->ops->sum(t, loc);
    ck_assert(hash128_equal(&kept, &sum));
    t->ops->stats(t, &st);
    ck_assert_uint_eq(st.used_slots, 1);
    ck_assert_uint_eq(st.used_bytes, t->ops->slot_bytes(t, sizeof(src)));

    t->ops->free(t, loc);
    memcpy(&gen, map + v.hdr, sizeof(gen));
    ck_assert_uint_ne(gen, v.gen); /* the late reader's check */
    munmap((void *)(uintptr_t)map, bytes);
    host_destroy(&h);
    loop_destroy(&loop);
}

static void count_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    (void)chunk;
    ck_assert_uint_eq(principal, 1);
    ++*(unsigned *)ctx;
}

static void free_it(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct tier *t = ctx;
    ck_assert_uint_eq(block_no, 1);
    t->ops->free(t, loc);
}

CASE(room_passes_to_another_principal_by_drain)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    unsigned retired = 0;
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    host_set_retired_cb(h, count_retired, &retired);
    struct tier *t = host_tier(h);
    struct tier_loc loc;
    while (t->ops->alloc(t, 1, 2200 * 1024, (struct tier_loc){0}, 1, &loc) == 0)
        ;
    struct arena_stats st;
    host_arena_stats(h, &st);
    ck_assert_uint_eq(st.chunks_owned * 4 * MIB, st.mapped_bytes); /* nothing is free */
    ck_assert_int_eq(t->ops->alloc(t, 2, 1024, (struct tier_loc){0}, 1, &loc), KVC_E_NO_ROOM);

    ck_assert_uint_eq(t->memory->evacuate(t, 2, 1024, false, free_it, t), 1);

    ck_assert_uint_eq(retired, 1);
    ck_assert_int_eq(t->ops->alloc(t, 2, 1024, (struct tier_loc){0}, 1, &loc), 0);
    ck_assert(t->memory->helps(t, loc, 2, 1024));
    host_destroy(&h);
    loop_destroy(&loop);
}

/* Chunks that somebody was told of, and not yet that they go. */
struct told {
    unsigned ready, gone;
    void *base[16];
    uint64_t leaving; /* bytes of chunks that go: what is answered when asked */
};

static void on_ready(void *ctx, void *base, uint64_t bytes)
{
    struct told *told = ctx;
    ck_assert_uint_eq(bytes, 4 * MIB);
    for (unsigned i = 0; i < told->ready; i++)
        ck_assert_ptr_ne(told->base[i], base);
    told->base[told->ready++] = base;
}

static void on_gone(void *ctx, void *base, uint64_t bytes)
{
    struct told *told = ctx;
    unsigned i = 0;
    while (i < told->ready && told->base[i] != base)
        i++;
    ck_assert_uint_lt(i, told->ready);
    ck_assert_uint_eq(bytes, 4 * MIB);
    *(volatile uint8_t *)base = 1; /* its pages are still there */
    told->base[i] = NULL;
    told->gone++;
}

CASE(devices_hear_of_chunks_that_were_not_faulted_in_before)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    struct told told = {0};
    struct tier_loc loc;
    struct arena_stats st;
    ck_assert(!config.arena.prefault);
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    struct tier *t = host_tier(h);
    host_set_ready_cb(h, on_ready, on_gone, NULL, &told);
    ck_assert_int_eq(t->ops->alloc(t, 1, 1024, (struct tier_loc){0}, 1, &loc), 0);
    while (told.ready == 0)
        host_turn(h);
    for (unsigned i = 0; i < 10000; i++)
        host_turn(h);
    ck_assert_uint_eq(told.ready, 1);
    host_arena_stats(h, &st);
    ck_assert_uint_eq(st.faulted_bytes, 4 * MIB); /* that one alone */
    host_set_ready_cb(h, NULL, NULL, NULL, NULL);
    t->ops->free(t, loc);
    host_destroy(&h);
    loop_destroy(&loop);
}

static uint64_t on_leaving(void *ctx)
{
    const struct told *told = ctx;
    return told->leaving;
}

/* One chunk is in the budget beside the limit, others are not. */
CASE(retired_memory_that_is_registered_counts_against_the_limit)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    struct tier_loc loc[64];
    struct told told = {0};
    unsigned all = 0, fewer = 0;
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    struct tier *t = host_tier(h);
    host_set_ready_cb(h, on_ready, on_gone, on_leaving, &told);
    while (t->ops->alloc(t, 1, MIB, (struct tier_loc){0}, 1, &loc[all]) == 0)
        all++;
    told.leaving = 4 * MIB;
    host_turn(h);
    t->ops->free(t, loc[--all]);
    ck_assert_int_eq(t->ops->alloc(t, 1, MIB, (struct tier_loc){0}, 1, &loc[all++]), 0);
    told.leaving = 6 * MIB;
    host_turn(h);
    while (t->ops->alloc(t, 1, MIB, (struct tier_loc){0}, 1, &loc[all]) != 0) {
        ck_assert_uint_gt(all, 0);
        t->ops->free(t, loc[--all]);
        fewer++;
    }
    ck_assert_uint_eq(fewer, 3); /* 2 MiB, and what is handed out now */
    told.leaving = 0;
    host_turn(h);
    ck_assert_int_eq(t->ops->alloc(t, 1, MIB, (struct tier_loc){0}, 1, &loc[all + 1]), 0);
    host_set_ready_cb(h, NULL, NULL, NULL, NULL);
    host_destroy(&h);
    loop_destroy(&loop);
}

/* Of each chunk once, when it has a principal; and before it passes to another. */
CASE(devices_hear_of_chunks_that_come_and_go)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    struct told told = {0};
    struct host_config faulted = config;
    faulted.arena.prefault = true;
    ck_assert_int_eq(host_create(&faulted, loop, &h), 0);
    struct tier *t = host_tier(h);
    host_set_ready_cb(h, on_ready, on_gone, NULL, &told);
    for (unsigned i = 0; i < 1000; i++)
        host_turn(h);
    ck_assert_uint_eq(told.ready, 0); /* they are nobody's */

    struct tier_loc locs[8], others[8];
    unsigned n = 0, m = 0;
    while (n < 8 && t->ops->alloc(t, 1, 2200 * 1024, (struct tier_loc){0}, 1, &locs[n]) == 0)
        n++;
    while (told.ready < 3) /* the last ones may never be faulted in */
        host_turn(h);
    for (unsigned i = 0; i < 10000; i++)
        host_turn(h);
    ck_assert_uint_le(told.ready, n);

    for (unsigned i = 0; i < n; i++)
        t->ops->free(t, locs[i]);
    ck_assert_uint_eq(told.gone, 0); /* they are still its own */
    while (m < n && t->ops->alloc(t, 2, 2200 * 1024, (struct tier_loc){0}, 1, &others[m]) == 0)
        m++;
    ck_assert_uint_eq(m, n);
    ck_assert_uint_eq(told.gone, told.ready);
    const unsigned before = told.ready;
    while (told.ready == before) /* and those that came for them */
        host_turn(h);

    host_set_ready_cb(h, NULL, NULL, NULL, NULL);
    const unsigned gone = told.gone;
    for (unsigned i = 0; i < m; i++)
        t->ops->free(t, others[i]);
    ck_assert_int_eq(t->ops->alloc(t, 3, 2200 * 1024, (struct tier_loc){0}, 1, &locs[0]), 0);
    t->ops->free(t, locs[0]);
    ck_assert_uint_eq(told.gone, gone); /* nobody asks any more */
    host_destroy(&h);
    loop_destroy(&loop);
}

CASE(slot_bytes_rounds_up_and_is_0_for_what_never_fits)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    struct tier *t = host_tier(h);
    struct tier_loc loc;
    ck_assert_uint_eq(t->ops->slot_bytes(t, 1), 4096);
    ck_assert_uint_eq(t->ops->slot_bytes(t, 4096), 4096);
    ck_assert_uint_eq(t->ops->slot_bytes(t, 4097), 8192);
    ck_assert_uint_eq(t->ops->slot_bytes(t, 4 * MIB - 8192), 4 * MIB - 8192);
    ck_assert_uint_eq(t->ops->slot_bytes(t, 4 * MIB - 8191), 0);
    ck_assert_uint_eq(t->ops->slot_bytes(t, UINT32_MAX), 0);
    ck_assert_int_eq(t->ops->alloc(t, 1, UINT32_MAX, (struct tier_loc){0}, 1, &loc),
                     KVC_E_TOO_LARGE);
    host_destroy(&h);
    loop_destroy(&loop);
}

CASE(the_notes_and_the_budget_are_complete)
{
    struct loop *loop = fixture_loop(LOOP_AUTO);
    struct host *h = NULL;
    struct host_budget b;
    ck_assert_int_eq(host_create(&config, loop, &h), 0);
    for (unsigned i = 0; i < HOST_NOTES; i++) {
        const char *note = host_note(h, i);
        ck_assert_ptr_nonnull(note);
        ck_assert_uint_gt(strlen(note), 10);
        printf("  %s\n", note);
    }
    ck_assert_ptr_null(host_note(h, HOST_NOTES));
    host_budget(&config, &b);
    ck_assert_uint_eq(b.slots_bytes, 16 * MIB);
    ck_assert_uint_eq(host_footprint(&config),
                      b.slots_bytes + b.overhead_bytes + b.spare_bytes + b.table_bytes);
    host_destroy(&h);
    ck_assert_ptr_null(host_tier(NULL));
    loop_destroy(&loop);
}

CASE(create_unwinds_whatever_fails)
{
    static const char *const points[] = {"alloc", "map", "fd", "thread"};
    struct loop *loop = fixture_loop(LOOP_AUTO);
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            struct host *h = NULL;
            ck_assert_int_eq(fault_arm(points[p], nth), 0);
            const int err = host_create(&config, loop, &h);
            const bool reached = fault_count(points[p]) >= nth;
            ck_assert_int_eq(err != 0, reached);
            ck_assert_int_eq(h == NULL, reached);
            host_destroy(&h);
            fault_reset();
            if (!reached)
                break;
        }
    }
    loop_destroy(&loop);
}

CASE(a_bad_config_is_refused_in_words)
{
    struct host_config bad = config;
    struct host *h = NULL;
    bad.copier.inflight_bytes = 5;
    ck_assert_ptr_nonnull(strstr(host_config_problem(&bad), "copy.inflight"));
    ck_assert_int_eq(host_create(&bad, NULL, &h), -EINVAL);
    bad = config;
    bad.copier.threads = 65;
    ck_assert_ptr_nonnull(strstr(host_config_problem(&bad), "copy.threads"));
    ck_assert_ptr_null(host_config_problem(&config));
}
