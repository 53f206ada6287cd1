/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations of several principals and sizes against a list of what is handed out: slots do
 * not overlap, accounting is exact, eviction as core does it always ends with room, and everything
 * comes back. KVC_SEED=n repeats a run, KVC_MODEL_STEPS=n makes it longer.
 */
#include "arena.h"
#include "cases.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB      (1024u * 1024u)
#define LIVE_MAX 8192u
#define PATIENCE 6u /* core has more; here drains are to happen often */

struct live {
    struct tier_loc loc;
    uint32_t bytes;
    uint32_t principal;
    uint64_t gen;
    uint64_t stamp;
    bool used;
    bool leased;
};

struct model {
    struct arena *a;
    struct live live[LIVE_MAX]; /* block_no is the index */
    uint32_t order[LIVE_MAX];   /* indices in use */
    uint32_t n;
    uint32_t free[LIVE_MAX];
    uint32_t nfree;
    uint64_t used_bytes;
    uint64_t rng;
    uint64_t limit;
    uint64_t retired;
    uint32_t kept;      /* leased occupants of the last evacuate */
    uint32_t stays;     /* of four chunks that one in which something stays */
    uint64_t counts[5]; /* allocs, evictions, drains, refusals, shifts */
};

static uint64_t next_random(struct model *m)
{
    m->rng ^= m->rng << 13;
    m->rng ^= m->rng >> 7;
    m->rng ^= m->rng << 17;
    return m->rng;
}

static uint32_t below(struct model *m, uint32_t n)
{
    return (uint32_t)(next_random(m) >> 16) % n;
}

static uint64_t *first_word(struct model *m, const struct live *l)
{
    return arena_payload(m->a, l->loc);
}

static uint64_t *last_word(struct model *m, const struct live *l)
{
    uint8_t *p = arena_payload(m->a, l->loc);
    return (uint64_t *)(void *)(p + arena_slot_bytes(l->bytes) - sizeof(uint64_t));
}

static void verify(struct model *m, uint32_t i)
{
    const struct live *l = &m->live[i];
    struct tier_view v;
    arena_view(m->a, l->loc, &v);
    ck_assert_uint_eq(v.gen, l->gen);
    ck_assert_uint_eq(v.bytes, l->bytes);
    ck_assert_uint_eq(*first_word(m, l), l->stamp);
    ck_assert_uint_eq(*last_word(m, l), l->stamp ^ UINT64_MAX);
    const struct hash128 sum = arena_sum(m->a, l->loc);
    ck_assert_int_eq(memcmp(&sum, &l->stamp, sizeof l->stamp), 0);
    uint64_t bytes;
    ck_assert_int_ge(arena_chunk_fd(m->a, v.chunk, l->principal, &bytes), 0);
    ck_assert_uint_le(v.off + arena_slot_bytes(l->bytes), bytes);
}

static void drop(struct model *m, uint32_t i)
{
    struct live *l = &m->live[i];
    verify(m, i);
    arena_free(m->a, l->loc);
    m->used_bytes -= arena_slot_bytes(l->bytes);
    l->used = false;
    for (uint32_t k = 0; k < m->n; k++)
        if (m->order[k] == i) {
            m->order[k] = m->order[--m->n];
            break;
        }
    m->free[m->nfree++] = i;
}

static void drain_each(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    struct model *m = ctx;
    ck_assert(m->live[block_no].used);
    ck_assert_uint_eq(m->live[block_no].loc.id, loc.id);
    if (m->live[block_no].leased) {
        m->kept++;
        return;
    }
    drop(m, block_no);
    /* Core evicts subtrees: others may go as well. */
    if (m->n > 0 && below(m, 4) == 0 && !m->live[m->order[0]].leased)
        drop(m, m->order[0]);
}

/* A victim that is not leased, or UINT32_MAX. */
static uint32_t victim(struct model *m)
{
    const uint32_t from = m->n > 0 ? below(m, m->n) : 0;
    for (uint32_t k = 0; k < m->n; k++) {
        const uint32_t i = m->order[(from + k) % m->n];
        if (!m->live[i].leased)
            return i;
    }
    return UINT32_MAX;
}

/* As core makes room: victims in the policy's order, and a region is emptied when too many were
 * evicted in vain. */
static int take_room(struct model *m, uint32_t principal, uint32_t bytes, struct tier_loc beside,
                     uint32_t block_no, struct tier_loc *ret_loc)
{
    uint32_t in_vain = 0;
    bool emptied = false;
    for (;;) {
        const int err = arena_alloc(m->a, principal, bytes, beside, block_no, ret_loc);
        if (err != KVC_E_NO_ROOM)
            return err;
        /* A region that was emptied is room, as far as the limit goes. */
        ck_assert(!emptied || m->used_bytes + arena_slot_bytes(bytes) > m->limit);
        emptied = false;
        if (in_vain >= PATIENCE) {
            in_vain = 0;
            m->counts[2]++;
            m->kept = 0;
            if (arena_evacuate(m->a, principal, bytes, below(m, 2), drain_each, m) > 0) {
                emptied = m->kept == 0;
                continue;
            }
        }
        const uint32_t v = victim(m);
        if (v == UINT32_MAX)
            return KVC_E_FULL;
        in_vain += !arena_helps(m->a, m->live[v].loc, principal, bytes);
        m->counts[1]++;
        drop(m, v);
    }
}

static void see(struct model *m, struct live *l)
{
    struct tier_view v;
    arena_view(m->a, l->loc, &v);
    l->gen = v.gen;
}

/* ---- into chunks in which something stays ---- */

static bool stays(void *ctx, uint32_t no)
{
    const struct model *m = ctx;
    return no % 4 == m->stays;
}

static bool may_move(void *ctx, struct tier_loc loc, uint32_t block_no)
{
    const struct model *m = ctx;
    ck_assert(m->live[block_no].used);
    ck_assert_uint_eq(m->live[block_no].loc.id, loc.id);
    return !m->live[block_no].leased;
}

static void moved(void *ctx, uint32_t block_no, struct tier_loc from, struct tier_loc to)
{
    struct model *m = ctx;
    const uint64_t gen = m->live[block_no].gen;
    ck_assert_uint_eq(m->live[block_no].loc.id, from.id);
    m->live[block_no].loc = to;
    see(m, &m->live[block_no]);
    ck_assert_uint_ne(m->live[block_no].gen, gen);
}

static void shift(struct model *m, uint32_t i)
{
    const struct tier_shift want = {.ctx = m, .may_move = may_move, .moved = moved};
    struct live *l = &m->live[i];
    struct tier_loc to;
    if (l->leased || stays(m, arena_chunk_of(m->a, l->loc)))
        return;
    if (arena_shift(m->a, l->loc, &want, &to) == 0) {
        ck_assert(stays(m, arena_chunk_of(m->a, to)));
        l->loc = to;
        const uint64_t gen = l->gen;
        see(m, l);
        ck_assert_uint_ne(l->gen, gen);
        m->counts[4]++;
    }
    verify(m, i);
    m->stays = below(m, 4);
}

static void store(struct model *m, bool evict)
{
    static const uint32_t sizes[] = {4096, 5000, 16384, 65536, 65536, 65536, 300000, 1u << 20};
    if (m->nfree == 0)
        return;
    const uint32_t i = m->free[m->nfree - 1];
    struct live *l = &m->live[i];
    struct live made = {.bytes = sizes[below(m, 8)], .principal = 1 + below(m, 3), .used = true};
    const struct tier_loc beside = {m->n > 0 ? m->live[m->order[m->n - 1]].loc.id : 0};
    const int err = evict ? take_room(m, made.principal, made.bytes, beside, i, &made.loc)
                          : arena_alloc(m->a, made.principal, made.bytes, beside, i, &made.loc);
    m->counts[err == 0 ? 0 : 3]++;
    if (err != 0) {
        ck_assert_int_eq(err, evict ? KVC_E_FULL : KVC_E_NO_ROOM);
        return;
    }
    /* take_room() frees others: the index stays ours only if it is still the last free one. */
    for (uint32_t k = 0; k < m->nfree; k++)
        if (m->free[k] == i) {
            m->free[k] = m->free[--m->nfree];
            break;
        }
    made.stamp = next_random(m);
    made.leased = below(m, 16) == 0;
    *l = made;
    *first_word(m, l) = l->stamp;
    *last_word(m, l) = l->stamp ^ UINT64_MAX;
    const struct tier_label label = {.tokens = (uint16_t)l->stamp};
    struct hash128 sum = {{0}};
    memcpy(&sum, &l->stamp, sizeof l->stamp);
    arena_set_label(m->a, l->loc, &label, &sum, l->bytes);
    see(m, l);
    m->order[m->n++] = i;
    m->used_bytes += arena_slot_bytes(l->bytes);
}

static void check(struct model *m)
{
    struct arena_stats st;
    arena_stats(m->a, &st);
    ck_assert_uint_eq(st.used_bytes, m->used_bytes);
    ck_assert_uint_eq(st.used_slots, m->n);
    ck_assert_uint_le(st.used_bytes, m->limit);
}

static void on_retired(void *ctx, uint32_t chunk, uint32_t principal)
{
    struct model *m = ctx;
    (void)chunk;
    ck_assert_uint_ge(principal, 1);
    m->retired++;
}

static uint64_t from_env(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 0) : fallback;
}

static void run(uint64_t seed, uint64_t chunk_bytes, uint64_t steps)
{
    static struct model model;
    struct model *m = &model;
    *m = (struct model){.rng = seed | 1, .limit = 24 * MIB, .nfree = LIVE_MAX};
    const struct arena_config config = {.limit_bytes = m->limit, .chunk_bytes = chunk_bytes};
    for (uint32_t i = 0; i < LIVE_MAX; i++)
        m->free[i] = i;
    ck_assert_int_eq(arena_create(&config, &m->a), 0);
    arena_set_retired(m->a, on_retired, m);
    arena_set_stays(m->a, stays, m);
    for (uint64_t step = 0; step < steps; step++) {
        const uint32_t what = below(m, 100);
        if (what < 60)
            store(m, what < 50);
        else if (m->n > 0 && what < 80)
            drop(m, m->order[below(m, m->n)]);
        else if (m->n > 0 && what < 90)
            shift(m, m->order[below(m, m->n)]);
        else if (m->n > 0 && what < 98)
            verify(m, m->order[below(m, m->n)]);
        else if (m->n > 0) /* leases come and go */
            for (uint32_t k = 0; k < m->n; k++)
                m->live[m->order[k]].leased = below(m, 16) == 0;
        check(m);
        if (step % 64 == 0)
            arena_check(m->a);
    }
    for (uint32_t k = 0; k < m->n; k++)
        verify(m, m->order[k]);
    while (m->n > 0)
        drop(m, m->order[0]);
    arena_check(m->a);
    struct arena_stats st;
    arena_stats(m->a, &st);
    ck_assert_uint_eq(st.slabs, 0);
    ck_assert_uint_eq(st.used_bytes, 0);
    ck_assert_uint_eq(st.evacuating_bytes, 0);
    ck_assert_uint_eq(st.chunks_retired, m->retired);
    printf("  %" PRIu64 " allocs, %" PRIu64 " evictions, %" PRIu64 " drains, %" PRIu64
           " refused, %" PRIu64 " shifts, %" PRIu64 " chunks retired\n",
           m->counts[0], m->counts[1], m->counts[2], m->counts[3], m->counts[4], m->retired);
    /* The run went where it was meant to go. */
    ck_assert_uint_gt(m->counts[1], 0);
    ck_assert_uint_gt(m->counts[2], 0);
    ck_assert_uint_gt(m->counts[4], 0);
    ck_assert_uint_gt(m->retired, 0);
    arena_destroy(&m->a);
}

CASE_EACH(random_operations_agree_with_the_model, 4)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed =
        from_env("KVC_SEED", (uint64_t)now.tv_nsec ^ (uint64_t)getpid() << 32) + (uint64_t)_i;
    const uint64_t steps = from_env("KVC_MODEL_STEPS", 10000);
    printf("KVC_SEED=%" PRIu64 " (case %d)\n", seed - (uint64_t)_i, _i);
    fflush(stdout);
    run(seed, _i % 2 == 0 ? 2 * MIB : 4 * MIB, steps);
}
