/* SPDX-License-Identifier: Apache-2.0 */
/* What is reused: by workers that ask at once, with blocks of all sizes, after a scan. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cases.h"
#include "rig.h"

#define MIB (1u << 20)

static struct rig rig;
static struct kvc *k;
static uint8_t statuses[KVC_STORE_MAX];

static void start(const char *const *sets)
{
    rig_start(&rig, sets);
    k = rig_open(&rig, 4 * MIB);
}

static void teardown(void)
{
    kvc_close(&k);
    rig_stop(&rig);
    rig_clean(&rig);
}

/* ---- workers that ask for one new prefix at once ---- */

#define BT      16u
#define WORKERS 24u
#define PREFIX  256u /* blocks: 4,096 tokens */

static pthread_barrier_t gate;
static _Atomic uint32_t computed[PREFIX];

struct worker {
    pthread_t thread;
    struct kvc *k;
    struct kvc_ns *ns;
    uint8_t keys[PREFIX * KVC_KEY_BYTES];
    bool ok;
};

/* Of the blocks that this worker got to write, `per` at a time. */
static bool compute(struct worker *w, uint64_t reservation, const uint8_t *got, uint32_t first,
                    uint32_t n)
{
    enum { PER = 32 };
    uint8_t said[PER];
    uint8_t *staging = kvc_staging(w->k, NULL);
    for (uint32_t at = 0; at < n; at += PER) {
        uint64_t offsets[PER];
        uint32_t named = 0;
        for (uint32_t i = 0; i < PER && at + i < n; i++) {
            offsets[i] = got[at + i] == KVC_ST_OK ? (uint64_t)i * RIG_BLOCK : UINT64_MAX;
            if (got[at + i] != KVC_ST_OK)
                continue;
            atomic_fetch_add(&computed[first + at + i], 1);
            rig_fill(w->keys + (size_t)(first + at + i) * KVC_KEY_BYTES, staging + offsets[i],
                     RIG_BLOCK);
            named++;
        }
        const uint32_t here = n - at < PER ? n - at : PER;
        if (named > 0 && kvc_commit(w->ns, reservation, at, here, offsets, NULL, 0, said) != 0)
            return false;
        for (uint32_t i = 0; named > 0 && i < here; i++)
            if (said[i] != KVC_ST_OK)
                return false;
    }
    return true;
}

/* What a worker does about a prompt: takes what is there, and waits for what comes; announces what
 * nobody has, and computes what nobody else has announced. Its rounds are few, for in each all
 * comes, or all is announced. */
static bool serve(struct worker *w)
{
    struct kvc_seq seq = rig_seq(w->keys, PREFIX, BT);
    struct kvc_acquire_options o = {.flags = KVC_F_WAIT, .timeout_ms = 60000};
    uint8_t got[PREFIX];
    for (unsigned round = 0; round < 4; round++) {
        struct kvc_hold *hold;
        if (kvc_acquire(w->ns, &seq, &o, &hold) != 0)
            return false;
        const uint32_t have = hold->group[0].n;
        bool right = true;
        for (uint32_t i = 0; i < have; i++)
            right &= rig_check(w->keys + (size_t)i * KVC_KEY_BYTES, hold->group[0].block[i].data,
                               RIG_BLOCK);
        kvc_release(w->k, &hold);
        if (!right || have == PREFIX)
            return right;
        uint64_t reservation;
        struct kvc_blocks b = {.parent =
                                   have > 0 ? w->keys + (size_t)(have - 1) * KVC_KEY_BYTES : NULL,
                               .keys = w->keys + (size_t)have * KVC_KEY_BYTES,
                               .n = PREFIX - have,
                               .first_token = have * BT};
        if (kvc_reserve(w->ns, &b, &reservation, got) != 0)
            return false;
        if (reservation != 0 && !compute(w, reservation, got, have, PREFIX - have))
            return false;
    }
    return false;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    pthread_barrier_wait(&gate);
    w->ok = serve(w);
    return NULL;
}

CASES(.timeout_s = 280);

CASE(workers_that_ask_at_once_compute_a_prefix_once)
{
    static struct worker workers[WORKERS];
    start(NULL);
    ck_assert_int_eq(pthread_barrier_init(&gate, NULL, WORKERS), 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        workers[i].k = rig_open(&rig, MIB);
        workers[i].ns = rig_ns(workers[i].k, "m", BT, RIG_BLOCK);
        rig_keys(workers[i].ns, 1, BT, PREFIX, workers[i].keys);
    }
    for (uint32_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    for (uint32_t i = 0; i < PREFIX; i++)
        ck_assert_msg(atomic_load(&computed[i]) == 1, "block %u was computed %u times", i,
                      atomic_load(&computed[i]));
    for (uint32_t i = 0; i < WORKERS; i++) {
        ck_assert_msg(workers[i].ok, "worker %u: %s", i, kvc_last_error(workers[i].k));
        kvc_close(&workers[i].k);
    }
    pthread_barrier_destroy(&gate);
    teardown();
}

/* ---- blocks of all sizes ---- */

/* Input and output lengths of requests of the conversation trace (those below 4,000 tokens). */
static const struct {
    uint32_t input, output;
} lengths[] = {{2290, 316}, {2012, 354}, {915, 355},  {1053, 26},  {1477, 615}, {3806, 309},
               {2293, 31},  {1110, 240}, {3628, 555}, {2038, 524}, {1902, 587}, {1066, 324},
               {898, 324},  {2350, 355}, {934, 421},  {898, 57},   {3184, 195}, {2651, 366},
               {2133, 347}, {1424, 290}, {954, 48},   {1322, 514}, {916, 265},  {2885, 613}};
#define STREAMS     (sizeof lengths / sizeof lengths[0])
#define TOKENS_MAX  4608u
#define TOKEN_BYTES 64u

/* A request: its input goes on where another one's tokens end, or leaves them on the way. */
static uint32_t tokens[STREAMS][TOKENS_MAX];
static uint32_t inputs[STREAMS], ends[STREAMS];

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

static void make_streams(void)
{
    uint32_t fresh = 1;
    seed = 1;
    for (uint32_t i = 0; i < STREAMS; i++) {
        inputs[i] = lengths[i].input;
        ends[i] = lengths[i].input + lengths[i].output;
        ends[i] = ends[i] < TOKENS_MAX ? ends[i] : TOKENS_MAX;
        inputs[i] = inputs[i] < ends[i] ? inputs[i] : ends[i];
        const uint32_t from = i > 0 ? below(i) : 0;
        uint32_t shared = i > 0 && below(4) > 0 ? ends[from] : 0;
        if (shared > 0 && below(2))
            shared = below(shared);
        for (uint32_t t = 0; t < ends[i]; t++)
            tokens[i][t] = t < shared ? tokens[from][t] : fresh++;
    }
}

/* By hand: whole blocks of the longest prefix that any request before had, or will have said. */
static uint32_t predicted(uint32_t i, uint32_t bt)
{
    uint32_t best = 0;
    for (uint32_t j = 0; j < i; j++) {
        uint32_t same = 0;
        while (same < inputs[i] && same < ends[j] && tokens[i][same] == tokens[j][same])
            same++;
        best = same / bt * bt > best ? same / bt * bt : best;
    }
    return best;
}

static uint32_t keys_of(const struct kvc_ns *ns, const uint32_t *ids, uint32_t n, uint32_t bt,
                        uint8_t *keys)
{
    int made = kvc_hash_chain(kvc_ns_seed(ns), ids, n, bt, NULL, 0, keys);
    ck_assert_int_ge(made, 0);
    return (uint32_t)made;
}

static uint32_t reused(struct kvc_ns *ns, const uint32_t *ids, uint32_t n, uint32_t bt)
{
    static uint8_t keys[TOKENS_MAX * KVC_KEY_BYTES];
    struct kvc_seq seq = {.tokens = n, .group[0] = {.keys = keys}};
    struct kvc_hold *hold;
    seq.group[0].n = keys_of(ns, ids, n, bt, keys);
    ck_assert_int_eq(kvc_acquire(ns, &seq, NULL, &hold), 0);
    for (uint32_t i = 0; i < hold->group[0].n; i++)
        ck_assert(rig_check(keys + (size_t)i * KVC_KEY_BYTES, hold->group[0].block[i].data,
                            bt * TOKEN_BYTES));
    const uint32_t got = hold->prefix.tokens;
    kvc_release(k, &hold);
    return got;
}

/* Whole blocks: the rest is not a block yet. */
static void store(struct kvc_ns *ns, const uint32_t *ids, uint32_t n, uint32_t bt)
{
    static uint8_t keys[TOKENS_MAX * KVC_KEY_BYTES];
    const uint32_t blocks = keys_of(ns, ids, n / bt * bt, bt, keys);
    (void)rig_store(k, ns, keys, 0, blocks, bt, bt * TOKEN_BYTES, statuses);
    for (uint32_t i = 0; i < blocks; i++)
        ck_assert(statuses[i] == KVC_ST_OK || statuses[i] == KVC_ST_EXISTS);
}

CASE_EACH(tokens_are_reused_as_predicted_by_hand, 4)
{
    static const uint32_t sizes[] = {2, 8, 16, 64};
    static const char *const sets[] = {"host.limit=256MiB", NULL};
    const uint32_t bt = sizes[_i];
    uint32_t total = 0;
    make_streams();
    start(sets);
    struct kvc_ns *ns = rig_ns(k, "m", bt, bt * TOKEN_BYTES);
    for (uint32_t i = 0; i < STREAMS; i++) {
        const uint32_t want = predicted(i, bt);
        ck_assert_uint_eq(reused(ns, tokens[i], inputs[i], bt), want);
        store(ns, tokens[i], ends[i], bt);
        total += want;
    }
    ck_assert_uint_ge(total, 10000);
    ck_assert_uint_eq(rig_stat(k, "core.tokens_hit"), total);
    teardown();
}

CASE(of_80_cached_tokens_64_or_80_are_reused)
{
    static const uint32_t sizes[][2] = {{2, 80}, {8, 80}, {16, 80}, {64, 64}};
    uint32_t ids[200];
    for (uint32_t i = 0; i < 200; i++)
        ids[i] = i + 7;
    start(NULL);
    for (unsigned i = 0; i < 4; i++) {
        const uint32_t bt = sizes[i][0];
        struct kvc_ns *ns = rig_ns(k, "m", bt, bt * TOKEN_BYTES);
        store(ns, ids, 80, bt);
        ck_assert_uint_eq(reused(ns, ids, 200, bt), sizes[i][1]);
    }
    teardown();
}

/* ---- a scan ---- */

#define DOCS 32u
#define TURN 256u /* blocks: 2 MiB */
#define DOC  320u /* 2.5 MiB; all of them five times what memory holds */

/* As a worker does: it asks, computes the rest, and stores that. Returns what it found. */
static uint32_t request(struct kvc_ns *ns, uint32_t chain, uint32_t n)
{
    static uint8_t keys[DOC * KVC_KEY_BYTES];
    rig_keys(ns, chain, BT, n, keys);
    const uint32_t found = rig_load(k, ns, keys, n, BT, RIG_BLOCK);
    if (found < n)
        ck_assert_uint_eq(rig_store(k, ns, keys, found, n, BT, RIG_BLOCK, statuses), n - found);
    return found;
}

/* With hints: time is another here than people's. Without: tests/unit/bench/test_simulate.c. Before
 * it, chats that end, all of them, after their third turn. */
CASE_EACH(a_scan_of_one_time_documents_does_not_evict_a_conversation, 2)
{
    static uint8_t keys[DOC * KVC_KEY_BYTES];
    start(NULL);
    struct kvc_ns *ns = rig_ns(k, "m", BT, RIG_BLOCK);
    for (uint32_t i = 0; i < 150u * (uint32_t)_i; i++)
        for (uint32_t turn = 1; turn <= 3; turn++)
            (void)request(ns, 1000 + i, 20 * turn);
    (void)request(ns, 0, TURN / 2);
    ck_assert_uint_eq(request(ns, 0, TURN), TURN / 2);
    for (uint32_t i = 1; i <= DOCS; i++) {
        ck_assert_uint_eq(request(ns, i, DOC), 0);
        rig_keys(ns, i, BT, DOC, keys);
        const struct kvc_seq seq = rig_seq(keys, DOC, BT);
        ck_assert_int_eq(kvc_hint(ns, &seq, KVC_HINT_SCAN, 0), 0);
    }
    ck_assert_uint_ge(request(ns, 0, TURN), TURN * 95 / 100);
    ck_assert_uint_ge(rig_stat(k, "core.blocks_evicted"), DOCS * DOC / 2);
    teardown();
}
