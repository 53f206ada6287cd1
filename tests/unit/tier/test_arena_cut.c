/* SPDX-License-Identifier: Apache-2.0 */
/* Files of chunks that another process makes shorter under a running arena. */
#include "arena.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bus.h"
#include "cases.h"
#include "crash.h"
#include "warm_fixture.h"

static uint32_t told;

static void free_it(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    ck_assert_uint_eq(block_no, 7);
    told++;
    arena_free(ctx, loc);
}

/* Another process cuts the file of a chunk. */
CASE(a_chunk_that_is_cut_is_emptied_and_replaced)
{
    struct kept k;
    if (!kept_begin(&k))
        return;
    const struct arena_config config = config_of(&k, ARENA_PERSIST_DIR);
    struct arena *a = start(&k, &config);
    struct arena_recovery r;
    struct tier_loc loc[3];
    struct tier_view before, after;
    struct arena_stats st;
    char path[128];
    arena_recover(a, NULL, NULL, &r);
    crash_init(NULL);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(arena_alloc(a, 1, 8192, (struct tier_loc){0}, 7, &loc[i]), 0);
    arena_view(a, loc[0], &before);
    ck_assert_int_eq(arena_has_lost(a), ARENA_LOSS_NONE);
    snprintf(path, sizeof(path), "%s/chunk-%u", k.dir, before.chunk);
    ck_assert_int_eq(truncate(path, 4096), 0);

    memset(arena_payload(a, loc[0]), 1, 8192);

    ck_assert_int_eq(arena_has_lost(a), ARENA_LOSS_NEW);
    told = 0;
    ck_assert_uint_eq(arena_lost(a, free_it, a), 1);
    ck_assert_uint_eq(told, 3);
    ck_assert_int_eq(arena_has_lost(a), ARENA_LOSS_NONE);
    arena_check(a);
    arena_stats(a, &st);
    ck_assert_uint_eq(st.chunks_retired, 1);
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(arena_alloc(a, 1, 8192, (struct tier_loc){0}, 7, &loc[0]), 0);
    arena_view(a, loc[0], &after);
    ck_assert_uint_ne(after.chunk, before.chunk);
    arena_destroy(&a);
    kept_end(&k);
}

static void keep_it(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)ctx;
    (void)loc;
    (void)block_no;
    told++;
}

/* More of them than there are regions to empty. */
CASE(what_is_in_use_in_chunks_that_are_cut_is_told_of_again)
{
    struct kept k;
    if (!kept_begin(&k))
        return;
    const struct arena_config config = config_of(&k, ARENA_PERSIST_DIR);
    struct arena *a = start(&k, &config);
    struct arena_recovery r;
    struct tier_loc loc[6];
    struct arena_stats st;
    struct tier_view v;
    char path[128];
    arena_recover(a, NULL, NULL, &r);
    crash_init(NULL);
    for (unsigned i = 0; i < 6; i++) /* one to a chunk */
        ck_assert_int_eq(arena_alloc(a, 1, 3 * MIB / 2, (struct tier_loc){0}, 7, &loc[i]), 0);
    for (unsigned i = 0; i < 6; i++) {
        arena_view(a, loc[i], &v);
        snprintf(path, sizeof(path), "%s/chunk-%u", k.dir, v.chunk);
        ck_assert_int_eq(truncate(path, 0), 0);
        memset(arena_payload(a, loc[i]), 1, 8192);
    }
    told = 0;
    ck_assert_uint_eq(arena_lost(a, keep_it, NULL), ARENA_EVACUATIONS_MAX);
    ck_assert_uint_eq(told, ARENA_EVACUATIONS_MAX);
    ck_assert_int_eq(arena_has_lost(a), ARENA_LOSS_KNOWN);
    ck_assert_uint_eq(arena_evacuate(a, 2, 3 * MIB / 2, false, keep_it, NULL),
                      0); /* none is given up */
    arena_check(a);
    told = 0;
    for (unsigned i = 0; i < 4; i++)
        (void)arena_lost(a, free_it, a);
    ck_assert_uint_eq(told, 6);
    ck_assert_int_eq(arena_has_lost(a), ARENA_LOSS_NONE);
    arena_check(a);
    arena_stats(a, &st);
    ck_assert_uint_eq(st.chunks_retired, 6);
    ck_assert_uint_eq(st.used_bytes, 0);
    arena_destroy(&a);
    kept_end(&k);
}
