/* SPDX-License-Identifier: Apache-2.0 */
/* Arena: exact limits, slots and generations, slabs that come and go, chunks that change hands. */
#include "arena.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cases.h"
#include "fault.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

static const struct tier_loc anywhere = {0};

static struct arena *make(uint64_t limit, uint64_t chunk)
{
    const struct arena_config config = {.limit_bytes = limit, .chunk_bytes = chunk};
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    return a;
}

static struct tier_loc must_alloc(struct arena *a, uint32_t principal, uint32_t bytes)
{
    struct tier_loc loc = {0};
    ck_assert_int_eq(arena_alloc(a, principal, bytes, anywhere, 7, &loc), 0);
    ck_assert_uint_ne(loc.id, 0);
    return loc;
}

static struct tier_view view_of(struct arena *a, struct tier_loc loc)
{
    struct tier_view v;
    arena_view(a, loc, &v);
    return v;
}

static struct arena_stats stats_of(struct arena *a)
{
    struct arena_stats st;
    arena_stats(a, &st);
    return st;
}

/* Allocates until it is refused; locs[] receives the slots. */
static uint32_t fill(struct arena *a, uint32_t principal, uint32_t bytes, struct tier_loc *locs,
                     uint32_t max)
{
    uint32_t n = 0;
    struct tier_loc loc;
    int err;
    while (n < max && (err = arena_alloc(a, principal, bytes, anywhere, n, &loc)) == 0)
        locs[n++] = loc;
    if (n < max)
        ck_assert_int_eq(err, KVC_E_NO_ROOM);
    return n;
}

/* --- sizes --- */

CASE_EACH(one_size_reaches_the_limit_exactly_and_not_more, 13)
{
    static const uint32_t sizes[] = {1,         4096,      4097,      12 * KIB,  28 * KIB,
                                     60 * KIB,  64 * KIB,  100 * KIB, 200 * KIB, 240 * KIB,
                                     244 * KIB, 252 * KIB, 256 * KIB};
    static struct tier_loc locs[20000];
    const uint64_t limit = 37 * MIB + 3;
    const uint32_t slot = arena_slot_bytes(sizes[_i]);
    struct arena *a = make(limit, 4 * MIB);

    const uint32_t n = fill(a, 1, sizes[_i], locs, ARRAY_LEN(locs));

    ck_assert_uint_eq(n, limit / slot);
    ck_assert_uint_eq(stats_of(a).used_bytes, (uint64_t)n * slot);
    ck_assert_uint_eq(stats_of(a).used_slots, n);
    arena_check(a);
    for (uint32_t i = 0; i < n; i++)
        arena_free(a, locs[i]);
    arena_check(a);
    ck_assert_uint_eq(stats_of(a).slabs, 0);
    ck_assert_uint_eq(stats_of(a).used_bytes, 0);
    arena_destroy(&a);
}

CASE(sizes_hold_for_limits_from_mib_to_tib)
{
    for (uint64_t limit = ARENA_LIMIT_MIN; limit <= ARENA_LIMIT_MAX; limit *= 8) {
        const struct arena_config config = {.limit_bytes = limit + 12345, .prefault = true};
        if (config.limit_bytes > ARENA_LIMIT_MAX)
            break;
        struct arena_sizes s;
        ck_assert_ptr_null(arena_config_problem(&config));
        arena_sizes(&config, &s);
        ck_assert_uint_ge(s.chunk_bytes, 4 * MIB);
        ck_assert_uint_le(s.chunk_bytes, ARENA_CHUNK_MAX);
        ck_assert_uint_eq(s.chunk_bytes % (2 * MIB), 0);
        /* A tenth of the limit and three chunks is what exactness costs at most. */
        ck_assert_uint_le(s.chunks * s.chunk_bytes,
                          config.limit_bytes + config.limit_bytes / 10 + 3 * s.chunk_bytes);
        ck_assert_uint_le(s.prefault_bytes, s.chunks * s.chunk_bytes);
        /* 16 bytes of tables per 4 KiB, rounding aside. */
        ck_assert_uint_le(s.table_bytes, s.chunks * s.chunk_bytes / 256 + 4 * MIB);
        const uint32_t sixteenth = (uint32_t)(s.chunk_bytes / 16);
        for (uint32_t bytes = 4096; bytes <= sixteenth; bytes += bytes / 3 + 4096) {
            const uint32_t slot = arena_slot_bytes(bytes);
            if (slot > sixteenth)
                continue;
            ck_assert_uint_eq(arena_reach_bytes(&config, bytes), config.limit_bytes / slot * slot);
        }
    }
}

CASE(a_config_out_of_range_is_refused_in_words)
{
    static const struct {
        struct arena_config config;
        const char *word;
    } bad[] = {
        {{.limit_bytes = 0}, "host.limit"},
        {{.limit_bytes = ARENA_LIMIT_MAX + 1}, "host.limit"},
        {{.limit_bytes = 64 * MIB, .chunk_bytes = 3 * MIB}, "host.chunk"},
        {{.limit_bytes = 64 * MIB, .chunk_bytes = MIB}, "host.chunk"},
        {{.limit_bytes = 64 * MIB, .chunk_bytes = 2 * ARENA_CHUNK_MAX}, "host.chunk"},
        {{.limit_bytes = 64 * MIB, .chunk_bytes = 128 * MIB}, "host.chunk"},
        {{.limit_bytes = UINT64_C(1) << 40, .chunk_bytes = 2 * MIB}, "16384"},
    };
    for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
        const char *problem = arena_config_problem(&bad[i].config);
        struct arena *a = NULL;
        ck_assert_ptr_nonnull(problem);
        ck_assert_ptr_nonnull(strstr(problem, bad[i].word));
        ck_assert_int_eq(arena_create(&bad[i].config, &a), -EINVAL);
        ck_assert_ptr_null(a);
    }
}

CASE(a_block_larger_than_a_chunk_is_too_large_and_the_largest_fits)
{
    const struct arena_config config = {.limit_bytes = 16 * MIB, .chunk_bytes = 4 * MIB};
    struct arena_sizes s;
    struct tier_loc loc = {99};
    struct arena *a = make(config.limit_bytes, config.chunk_bytes);
    arena_sizes(&config, &s);

    ck_assert_int_eq(arena_alloc(a, 1, (uint32_t)s.largest_bytes + 1, anywhere, 0, &loc),
                     KVC_E_TOO_LARGE);
    ck_assert_uint_eq(loc.id, 99);
    loc = must_alloc(a, 1, (uint32_t)s.largest_bytes);

    ck_assert_uint_eq(view_of(a, loc).bytes, s.largest_bytes);
    memset(arena_payload(a, loc), 0x5a, s.largest_bytes);
    arena_check(a);
    arena_destroy(&a);
}

/* --- slots --- */

CASE(payloads_are_page_aligned_and_the_view_leads_to_them)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    const struct tier_loc loc = must_alloc(a, 3, 70000);
    const struct tier_view v = view_of(a, loc);
    uint64_t bytes = 0;
    const int fd = arena_chunk_fd(a, v.chunk, 3, &bytes);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_eq(bytes, 4 * MIB);
    ck_assert_uint_eq(v.bytes, 70000);
    ck_assert_uint_eq(v.off % 4096, 0);

    memset(arena_payload(a, loc), 0xc3, v.bytes);

    uint8_t last = 0;
    uint64_t gen = 0;
    ck_assert_int_eq(pread(fd, &last, 1, (off_t)(v.off + v.bytes - 1)), 1);
    ck_assert_int_eq(pread(fd, &gen, sizeof(gen), (off_t)v.hdr), sizeof(gen));
    ck_assert_uint_eq(last, 0xc3);
    ck_assert_uint_eq(gen, v.gen);
    arena_destroy(&a);
}

CASE(every_change_of_a_slot_changes_its_generation)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    const struct tier_label label = {.key = {{1, 2, 3}}, .ns = 9, .group = 15, .shard = 63};
    const struct hash128 sum = {{4, 5, 6}};
    (void)must_alloc(a, 1, 4096); /* keeps the slab in being */
    const struct tier_loc loc = must_alloc(a, 1, 4096);
    const struct tier_view born = view_of(a, loc);
    uint64_t bytes;
    const int fd = arena_chunk_fd(a, born.chunk, 1, &bytes);

    arena_set_label(a, loc, &label, &sum, 4000);
    const struct tier_view labelled = view_of(a, loc);
    arena_invalidate(a, loc);
    const struct tier_view invalid = view_of(a, loc);
    arena_free(a, loc);
    uint64_t freed = 0;
    ck_assert_int_eq(pread(fd, &freed, sizeof(freed), (off_t)born.hdr), sizeof(freed));
    const struct tier_loc again = must_alloc(a, 1, 4096);
    const struct tier_view reborn = view_of(a, again);

    ck_assert_uint_eq(again.id, loc.id);
    ck_assert_uint_eq(labelled.bytes, 4000);
    ck_assert_uint_ne(born.gen, 0);
    ck_assert_uint_gt(labelled.gen, born.gen);
    ck_assert_uint_gt(invalid.gen, labelled.gen);
    ck_assert_uint_gt(freed, invalid.gen);
    ck_assert_uint_gt(reborn.gen, freed);
    arena_destroy(&a);
}

CASE(a_label_that_was_set_is_in_the_header)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    const struct tier_label label = {.key = {{1, 2, 3}}, .ns = 9, .group = 15, .shard = 63};
    const struct hash128 sum = {{4, 5, 6}};
    const struct tier_loc loc = must_alloc(a, 1, 9000);
    arena_set_label(a, loc, &label, &sum, 9000);
    const struct tier_view v = view_of(a, loc);
    uint64_t bytes;
    uint8_t header[128];
    const int fd = arena_chunk_fd(a, v.chunk, 1, &bytes);
    ck_assert_int_eq(pread(fd, header, sizeof(header), (off_t)v.hdr), sizeof(header));
    const struct hash128 read_back = arena_sum(a, loc);
    ck_assert(hash128_equal(&read_back, &sum));
    ck_assert_mem_eq(header + 16, sum.b, sizeof(sum.b));
    ck_assert_mem_eq(header + 32, label.key.b, sizeof(label.key.b));
    ck_assert_uint_eq(header[110], 15);
    ck_assert_uint_eq(header[111], 63);
    arena_destroy(&a);
}

CASE(two_starts_do_not_share_generations)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    struct arena *b = make(16 * MIB, 4 * MIB);
    const uint64_t first = view_of(a, must_alloc(a, 1, 4096)).gen;
    const uint64_t second = view_of(b, must_alloc(b, 1, 4096)).gen;
    ck_assert_uint_ne(first, second);
    arena_destroy(&a);
    arena_destroy(&b);
}

CASE(beside_gives_the_next_slot_also_when_others_allocate_between)
{
    struct arena *a = make(64 * MIB, 4 * MIB);
    struct tier_loc one = must_alloc(a, 1, 64 * KIB);
    struct tier_loc holes[4];
    for (unsigned i = 0; i < 4; i++)
        holes[i] = must_alloc(a, 1, 64 * KIB);
    const struct tier_loc two = must_alloc(a, 1, 64 * KIB);
    for (unsigned i = 0; i < 4; i++)
        arena_free(a, holes[i]);

    struct tier_loc next;
    ck_assert_int_eq(arena_alloc(a, 1, 64 * KIB, two, 0, &next), 0);

    ck_assert_uint_eq(view_of(a, next).off, view_of(a, two).off + 64 * KIB);
    ck_assert_int_eq(arena_alloc(a, 1, 64 * KIB, one, 0, &next), 0);
    ck_assert_uint_eq(view_of(a, next).off, view_of(a, one).off + 64 * KIB);
    /* Of another size, of another principal, or gone: a hint that is no use is no harm. */
    ck_assert_int_eq(arena_alloc(a, 1, 32 * KIB, one, 0, &next), 0);
    ck_assert_int_eq(arena_alloc(a, 2, 64 * KIB, one, 0, &next), 0);
    arena_free(a, one);
    ck_assert_int_eq(arena_alloc(a, 1, 64 * KIB, one, 0, &next), 0);
    ck_assert_int_eq(arena_alloc(a, 1, 64 * KIB, (struct tier_loc){UINT32_MAX}, 0, &next), 0);
    arena_check(a);
    arena_destroy(&a);
}

CASE(blocks_stored_one_after_another_are_neighbours)
{
    struct arena *a = make(64 * MIB, 8 * MIB);
    struct tier_loc loc = anywhere;
    uint64_t before = 0;
    unsigned breaks = 0;
    for (unsigned i = 0; i < 64; i++) {
        ck_assert_int_eq(arena_alloc(a, 1, 64 * KIB, loc, 0, &loc), 0);
        const uint64_t off = view_of(a, loc).off;
        breaks += i > 0 && off != before + 64 * KIB;
        before = off;
    }
    ck_assert_uint_le(breaks, 1); /* 64 blocks are two slabs */
    arena_destroy(&a);
}

CASE_DIES(freeing_what_is_not_handed_out_aborts, 6)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    (void)must_alloc(a, 1, 4096);
    const struct tier_loc loc = must_alloc(a, 1, 4096);
    arena_free(a, loc);
    arena_free(a, loc);
}

/* --- evacuate, helps --- */

struct evictor {
    struct arena *a;
    struct tier_loc *locs; /* zeroed as they are freed; block_no is the index */
    uint32_t calls;
    uint32_t spare; /* number of the block that stays; UINT32_MAX: none */
};

static void evict(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct evictor *e = ctx;
    e->calls++;
    ck_assert_uint_eq(e->locs[block_no].id, loc.id);
    if (block_no == e->spare)
        return;
    e->locs[block_no].id = 0;
    arena_free(e->a, loc);
}

static void count_only(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)loc;
    (void)block_no;
    ++*(uint32_t *)ctx;
}

CASE(a_full_arena_makes_room_for_another_size_by_evacuation)
{
    static struct tier_loc locs[20000];
    struct arena *a = make(16 * MIB, 4 * MIB);
    const uint32_t n = fill(a, 1, 16 * KIB, locs, ARRAY_LEN(locs));
    ck_assert_uint_eq(n, 16 * MIB / (16 * KIB));
    struct evictor e = {.a = a, .locs = locs, .spare = UINT32_MAX};
    struct tier_loc big = {0};
    unsigned rounds = 0;
    /* Fresh chunks may still be there: then only the limit is in the way. */
    for (uint32_t i = 0; i < n && arena_alloc(a, 1, 2 * MIB, anywhere, 0, &big) != 0; i++) {
        if (arena_evacuate(a, 1, 2 * MIB, false, evict, &e) == 0) {
            ck_assert(arena_helps(a, locs[i], 1, 2 * MIB));
            arena_free(a, locs[i]);
            locs[i].id = 0;
        }
        rounds++;
    }
    ck_assert_uint_ne(big.id, 0);
    ck_assert_uint_gt(rounds, 0);
    arena_check(a);
    arena_destroy(&a);
}

/*
 * All chunks belong to `principal`, each with one slab of two slots (locs[2i] and locs[2i + 1]; the
 * sizes differ from chunk to chunk, 32 KiB in the first) and a run of free pages on either side.
 */
static struct arena *full_of(uint32_t principal, struct tier_loc *locs, uint32_t *ret_n)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    const uint32_t chunks = (uint32_t)(stats_of(a).mapped_bytes / (4 * MIB));
    struct tier_loc big[7];
    ck_assert_uint_eq(chunks, ARRAY_LEN(big));
    for (uint32_t i = 0; i < chunks; i++) /* more than half of a chunk each */
        big[i] = must_alloc(a, principal, 2200 * KIB);
    ck_assert_uint_eq(stats_of(a).chunks_owned, chunks);
    for (uint32_t i = 0; i < 2 * chunks; i++) /* a slab takes all that a chunk has left */
        ck_assert_int_eq(arena_alloc(a, principal, (32 + 4 * (i / 2)) * KIB, anywhere, i, &locs[i]),
                         0);
    for (uint32_t i = 0; i < chunks; i++)
        arena_free(a, big[i]);
    for (uint32_t i = 0; i < chunks; i++)
        ck_assert_uint_eq(view_of(a, locs[2 * i]).chunk, view_of(a, locs[2 * i + 1]).chunk);
    arena_check(a);
    *ret_n = 2 * chunks;
    return a;
}

CASE(evacuation_of_own_chunks_takes_the_cheapest_run)
{
    struct tier_loc locs[64];
    uint32_t n;
    struct arena *a = full_of(1, locs, &n);
    struct evictor e = {.a = a, .locs = locs, .spare = UINT32_MAX};
    const uint32_t cheapest = view_of(a, locs[0]).chunk;
    struct tier_loc big;
    ck_assert_int_eq(arena_alloc(a, 1, 3 * MIB, anywhere, 0, &big), KVC_E_NO_ROOM);
    ck_assert(!arena_helps(a, locs[0], 1, 3 * MIB)); /* its neighbour is still there */

    ck_assert_uint_eq(arena_evacuate(a, 1, 3 * MIB, false, evict, &e), 2);

    ck_assert_uint_eq(e.calls, 2);
    big = must_alloc(a, 1, 3 * MIB);
    ck_assert_uint_eq(view_of(a, big).chunk, cheapest);
    ck_assert_uint_eq(stats_of(a).evacuating_bytes, 0);
    ck_assert_uint_eq(stats_of(a).chunks_retired, 0);
    arena_check(a);
    arena_destroy(&a);
}

CASE(evacuation_has_nothing_to_do_when_only_the_limit_is_in_the_way)
{
    static struct tier_loc locs[4096];
    struct arena *a = make(8 * MIB, 4 * MIB);
    const uint32_t n = fill(a, 1, 64 * KIB, locs, ARRAY_LEN(locs));
    uint32_t calls = 0;
    ck_assert_uint_eq(n, 128);
    ck_assert_uint_eq(arena_evacuate(a, 2, MIB, false, count_only, &calls), 0);
    ck_assert_uint_eq(calls, 0);
    for (uint32_t i = 0; i < 16; i++) {
        struct tier_loc loc;
        ck_assert_int_eq(arena_alloc(a, 2, MIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
        ck_assert(arena_helps(a, locs[i], 2, MIB));
        arena_free(a, locs[i]);
    }
    (void)must_alloc(a, 2, MIB);
    arena_destroy(&a);
}

static void note(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    (void)block_no;
    *(struct tier_loc *)ctx = loc;
}

/* _i: where others are to make room, the cheaper region in an own chunk stays. */
CASE_EACH(others_make_room_whatever_it_costs, 2)
{
    struct arena *a = make(16 * MIB, 4 * MIB);
    const struct tier_loc large = must_alloc(a, 2, 2200 * KIB), small = must_alloc(a, 2, 4 * KIB);
    struct tier_loc loc, seen = {0};
    for (uint32_t i = 1; i < stats_of(a).mapped_bytes / (4 * MIB); i++)
        (void)must_alloc(a, 1, 2200 * KIB);
    arena_free(a, large);
    ck_assert_int_eq(arena_alloc(a, 2, 3 * MIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
    ck_assert_uint_eq(arena_evacuate(a, 2, 3 * MIB, _i > 0, note, &seen), 1);
    ck_assert_uint_ne(seen.id, 0);
    ck_assert_int_eq(view_of(a, seen).chunk == view_of(a, small).chunk, _i == 0);
    arena_check(a);
    arena_destroy(&a);
}

/* Chunks, and no limit beside their number. */
static struct arena *make_two(void)
{
    const struct arena_config config = {
        .limit_bytes = 8 * MIB, .chunk_bytes = 4 * MIB, .chunks = 2};
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    return a;
}

static bool stays_in(void *ctx, uint32_t no)
{
    return *(uint32_t *)ctx == no;
}

/* _i: of one principal alone, who is to have room gives none of that size, dear as the rest is. */
CASE_EACH(who_is_to_have_room_keeps_its_own, 2)
{
    static struct tier_loc locs[4096];
    struct arena *a = make_two();
    const struct tier_loc large = must_alloc(a, 1, 1200 * KIB);
    const uint32_t n = fill(a, 1, 4 * KIB, locs, ARRAY_LEN(locs));
    ck_assert_uint_gt(n, 1000);
    struct tier_loc loc, seen = {0};
    ck_assert_int_eq(arena_alloc(a, 1, 1200 * KIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
    ck_assert_uint_gt(arena_evacuate(a, 1, 1200 * KIB, _i > 0, note, &seen), 0);
    ck_assert_int_eq(seen.id == large.id, _i == 0);
    arena_check(a);
    arena_destroy(&a);
}

/* _i: some of it might stay in the region that is chosen. */
CASE_EACH(who_is_to_have_room_gets_it_where_nothing_stays, 2)
{
    static struct tier_loc locs[4096];
    struct arena *a = make_two();
    const uint32_t n = fill(a, 1, 4 * KIB, locs, ARRAY_LEN(locs));
    uint32_t kept = arena_chunk_no(a, locs[0]);
    for (uint32_t k = 0; k < n && k < 300; k++) /* it is the cheapest */
        if (k % 128 != 0)
            arena_free(a, locs[k]);
    arena_set_stays(a, stays_in, &kept);
    struct tier_loc loc, seen = {0};
    ck_assert_int_eq(arena_alloc(a, 1, 600 * KIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
    ck_assert_uint_gt(arena_evacuate(a, 1, 600 * KIB, _i > 0, note, &seen), 0);
    ck_assert_int_eq(arena_chunk_no(a, seen) == kept, _i == 0);
    arena_check(a);
    arena_destroy(&a);
}

CASE(a_region_with_a_leased_block_is_held_until_it_goes)
{
    struct tier_loc locs[64];
    uint32_t n;
    struct arena *a = full_of(1, locs, &n);
    struct evictor e = {.a = a, .locs = locs, .spare = 0};
    /* Principal 2 owns nothing and no chunk is free. */
    struct tier_loc loc;
    ck_assert_int_eq(arena_alloc(a, 2, 4 * KIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
    arena_free(a, locs[1]);

    ck_assert_uint_eq(arena_evacuate(a, 2, 4 * KIB, false, evict, &e), 1);

    ck_assert_uint_eq(e.calls, 1);
    ck_assert_uint_gt(stats_of(a).evacuating_bytes, 0);
    ck_assert_int_eq(arena_alloc(a, 2, 4 * KIB, anywhere, 0, &loc), KVC_E_NO_ROOM);
    ck_assert(arena_helps(a, locs[0], 2, 4 * KIB));
    const uint32_t chunk = view_of(a, locs[0]).chunk;
    for (unsigned i = 0; i < 64; i++) { /* the chunk's principal gets nothing of it any more */
        ck_assert_int_eq(arena_alloc(a, 1, 4 * KIB, locs[0], 0, &loc), 0);
        ck_assert_uint_ne(view_of(a, loc).chunk, chunk);
    }
    arena_check(a);
    arena_free(a, locs[0]); /* the lease ends */
    arena_check(a);
    ck_assert_uint_eq(stats_of(a).evacuating_bytes, 0);
    ck_assert_int_eq(arena_alloc(a, 2, 4 * KIB, anywhere, 0, &loc), 0);
    arena_destroy(&a);
}

CASE(the_fifth_evacuation_gives_up_the_oldest)
{
    struct tier_loc locs[64];
    uint32_t n;
    struct arena *a = full_of(1, locs, &n);
    uint32_t seen = 0;
    uint64_t held = 0;
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t before = seen;
        const uint32_t reported = arena_evacuate(a, 2, 4 * KIB, false, count_only, &seen);
        ck_assert_uint_gt(reported, 0);
        ck_assert_uint_eq(seen - before, reported);
        arena_check(a);
    }
    held = stats_of(a).evacuating_bytes;
    for (unsigned i = 0; i < 8; i++) {
        (void)!arena_evacuate(a, 2, 4 * KIB, false, count_only, &seen);
        arena_check(a);
    }
    ck_assert_uint_le(stats_of(a).evacuating_bytes, held + 4 * MIB);
    for (uint32_t i = 0; i < n; i++)
        arena_free(a, locs[i]);
    arena_check(a);
    ck_assert_uint_eq(stats_of(a).evacuating_bytes, 0);
    ck_assert_uint_eq(stats_of(a).slabs, 0);
    ck_assert_uint_ge(stats_of(a).chunks_retired, 1);
    arena_destroy(&a);
}

CASE(helps_tells_what_frees_a_usable_run)
{
    struct tier_loc locs[64];
    uint32_t n;
    struct arena *a = full_of(1, locs, &n);
    /* For principal 2 nothing helps but the last block of a chunk. */
    ck_assert(!arena_helps(a, locs[0], 2, 64 * KIB));
    uint32_t last = 0;
    for (uint32_t i = 1; i < n; i++) {
        if (view_of(a, locs[i]).chunk == view_of(a, locs[0]).chunk) {
            ck_assert(!arena_helps(a, locs[0], 2, 64 * KIB));
            arena_free(a, locs[i]);
            locs[i].id = 0;
        } else {
            last = i;
        }
    }
    ck_assert(arena_helps(a, locs[0], 2, 64 * KIB));
    ck_assert(!arena_helps(a, locs[last], 2, 64 * KIB));
    arena_free(a, locs[0]);
    (void)must_alloc(a, 2, 64 * KIB);
    arena_destroy(&a);
}

/* --- handover --- */

struct retired {
    uint32_t n;
    uint32_t chunk[16];
    uint32_t principal;
};

static void on_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    struct retired *r = ctx;
    r->chunk[r->n++] = chunk;
    r->principal = principal;
}

CASE(a_chunk_that_changes_hands_is_a_new_memfd_with_a_new_id)
{
    struct arena *a = make(8 * MIB, 2 * MIB);
    struct retired r = {0};
    arena_set_retired(a, on_retired, &r);
    /* Principal 1 owns every chunk in turn, then frees all. */
    static struct tier_loc locs[4096];
    struct arena_stats st = stats_of(a);
    const uint32_t chunks = (uint32_t)(st.mapped_bytes / (2 * MIB));
    uint32_t n = 0;
    int fds[64];
    uint32_t ids[64];
    while (stats_of(a).chunks_owned < chunks) {
        ck_assert_int_eq(arena_alloc(a, 1, 1100 * KIB, anywhere, 0, &locs[n]), 0);
        uint64_t bytes;
        ids[n] = view_of(a, locs[n]).chunk;
        const int fd = arena_chunk_fd(a, ids[n], 1, &bytes);
        ck_assert_int_ge(fd, 0);
        fds[n] = dup(fd); /* what a worker would hold */
        memset(arena_payload(a, locs[n]), 0x77, 1100 * KIB);
        n++;
        if (stats_of(a).used_bytes + 1100 * KIB > 8 * MIB)
            break;
    }
    const bool all_owned = stats_of(a).chunks_owned == chunks;
    for (uint32_t i = 0; i < n; i++)
        arena_free(a, locs[i]);
    const uint64_t owned = stats_of(a).chunks_owned;

    /* Free chunks first, then those of principal 1. */
    static struct tier_loc mine[4096];
    const uint32_t m = fill(a, 2, 4 * KIB, mine, ARRAY_LEN(mine));

    ck_assert_uint_eq(m, 8 * MIB / (4 * KIB));
    ck_assert_uint_ge(r.n, all_owned ? 1 : 0);
    ck_assert_uint_ge(r.n + chunks - owned, 4);
    ck_assert_uint_eq(r.principal, 1);
    for (uint32_t i = 0; i < r.n; i++) {
        uint64_t bytes;
        ck_assert_int_eq(arena_chunk_fd(a, r.chunk[i], 1, &bytes), -ENOENT);
        ck_assert_int_eq(arena_chunk_fd(a, r.chunk[i], 2, &bytes), -ENOENT);
    }
    for (uint32_t i = 0; i < m; i++) { /* no id twice */
        uint64_t bytes;
        const uint32_t id = view_of(a, mine[i]).chunk;
        for (uint32_t j = 0; j < n; j++)
            ck_assert_uint_ne(id, ids[j]);
        ck_assert_int_eq(arena_chunk_fd(a, id, 1, &bytes), -EACCES);
        ck_assert_int_ge(arena_chunk_fd(a, id, 2, &bytes), 0);
    }
    arena_check(a);
    arena_destroy(&a); /* waits for the last truncation, and makes none of its own */
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct stat stat_buf;
        bool gone = false;
        for (uint32_t j = 0; j < r.n; j++)
            gone = gone || r.chunk[j] == ids[i];
        ck_assert_int_eq(fstat(fds[i], &stat_buf), 0);
        ck_assert_int_eq(stat_buf.st_size, gone ? 0 : 2 * MIB);
        left += !gone;
        close(fds[i]);
    }
    ck_assert_uint_eq(left, n - r.n);
}

CASE(a_refused_memfd_leaves_the_chunk_and_is_tried_again_later)
{
    struct tier_loc locs[64];
    uint32_t n;
    struct arena *a = full_of(1, locs, &n);
    for (uint32_t i = 0; i < n; i++)
        arena_free(a, locs[i]);
    struct tier_loc loc;
    ck_assert_int_eq(fault_arm("fd", 1), 0);

    ck_assert_int_eq(arena_alloc(a, 2, 4096, anywhere, 0, &loc), KVC_E_NO_ROOM);

    arena_check(a);
    fault_reset();
    unsigned tries = 0;
    while (arena_alloc(a, 2, 4096, anywhere, 0, &loc) == KVC_E_NO_ROOM)
        ck_assert_uint_lt(++tries, 1000);
    arena_check(a);
    arena_destroy(&a);
}

CASE(create_unwinds_whatever_fails)
{
    static const char *const points[] = {"alloc", "map", "fd", "thread"};
    const struct arena_config config = {.limit_bytes = 8 * MIB, .chunk_bytes = 2 * MIB};
    unsigned failures = 0;
    for (unsigned p = 0; p < ARRAY_LEN(points); p++) {
        for (uint64_t nth = 1;; nth++) {
            struct arena *a = NULL;
            ck_assert_int_eq(fault_arm(points[p], nth), 0);
            const int err = arena_create(&config, &a);
            const bool reached = fault_count(points[p]) >= nth;
            fault_reset();
            ck_assert_int_eq(err != 0, reached);
            arena_destroy(&a);
            if (!reached)
                break;
            ck_assert_ptr_null(a);
            failures++;
        }
    }
    ck_assert_uint_ge(failures, 3 * 5); /* two descriptors and a mapping for each chunk at least */
}

CASE(prefault_reaches_its_target_and_stats_say_so)
{
    const struct arena_config config = {
        .limit_bytes = 24 * MIB, .chunk_bytes = 4 * MIB, .prefault = true};
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    struct arena_stats st = stats_of(a);
    ck_assert_uint_gt(st.prefault_bytes, config.limit_bytes);
    while (st.faulted_bytes < st.prefault_bytes && st.prefault_error == 0) {
        (void)usleep(1000);
        st = stats_of(a);
    }
    ck_assert_int_eq(st.prefault_error, 0);
    const struct tier_loc loc = must_alloc(a, 1, 4096);
    uint64_t bytes;
    struct stat stat_buf;
    const int fd = arena_chunk_fd(a, view_of(a, loc).chunk, 1, &bytes);
    ck_assert_int_eq(fstat(fd, &stat_buf), 0);
    ck_assert_uint_eq((uint64_t)stat_buf.st_blocks * 512, bytes);
    arena_destroy(&a);
}

CASE(destroy_stops_a_prefault_that_has_just_begun)
{
    const struct arena_config config = {.limit_bytes = UINT64_C(512) * MIB, .prefault = true};
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    arena_destroy(&a);
    ck_assert_ptr_null(a);
}

CASE(a_fault_that_fails_ends_prefault_and_nothing_else)
{
    const struct arena_config config = {
        .limit_bytes = 8 * MIB, .chunk_bytes = 2 * MIB, .prefault = true};
    struct arena *a = NULL;
    /* Tables pass once and chunks twice (size, mapping); the calls after that are steps of the
     * prefault, of which this is the second. */
    struct arena_sizes sizes;
    arena_sizes(&config, &sizes);
    ck_assert_int_eq(fault_arm("map", 2 * sizes.chunks + 3), 0);
    ck_assert_int_eq(arena_create(&config, &a), 0);
    struct arena_stats st = stats_of(a);
    while (st.faulted_bytes < st.prefault_bytes && st.prefault_error == 0) {
        (void)usleep(1000);
        st = stats_of(a);
    }
    ck_assert_int_eq(st.prefault_error, -ENOMEM);
    ck_assert_uint_eq(st.faulted_bytes,
                      2 * MIB); /* the first step: a chunk is smaller than 4 MiB */
    (void)must_alloc(a, 1, 4096);
    arena_destroy(&a);
}

CASE(huge_pages_fall_back_with_a_reason_or_are_required)
{
    struct arena_config config = {.limit_bytes = UINT64_C(1) << 40, .huge = ARENA_HUGE_REQUIRE};
    struct arena *a = NULL;
    /* No machine that runs this test has a TiB of huge pages to spare. */
    ck_assert_int_lt(arena_create(&config, &a), 0);
    ck_assert_ptr_null(a);
    config.limit_bytes = 8 * MIB;
    config.huge = ARENA_HUGE_TRY;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    struct arena_report r;
    arena_report(a, &r);
    ck_assert((r.hugetlb_chunks == r.sizes.chunks) == (r.huge_err == 0));
    (void)must_alloc(a, 1, 4096);
    arena_destroy(&a);
}

CASE(chunks_go_to_the_nodes_of_a_synthetic_machine)
{
    struct topo *topo = NULL;
    ck_assert_int_eq(topo_create("node:2 core:2 pu:1", &topo), 0);
    const struct arena_config config = {.limit_bytes = 16 * MIB, .topo = topo};
    struct arena *a = NULL;
    ck_assert_int_eq(arena_create(&config, &a), 0);
    struct arena_report r;
    arena_report(a, &r);
    ck_assert_int_eq(r.numa_err, 0);
    arena_destroy(&a);
    topo_destroy(&topo);
}
