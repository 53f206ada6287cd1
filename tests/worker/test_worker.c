/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcache-worker and a daemon: whatever part of a sequence the daemon has, in whatever tier, stored
 * by whom, the logits are bit for bit those of recomputation.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bits.h"
#include "cases.h"
#include "rig.h"

static struct rig rig;
static char why[MODEL_WHY_BYTES], paths[128];
static const char *const storage[] = {paths,
                                      "host.limit=32MiB",
                                      "nvme.limit=160MiB",
                                      "nvme.segment=4MiB",
                                      "memory.budget=1GiB",
                                      "staging.total=512MiB",
                                      NULL};

static int on_path(void *ctx, const void *row)
{
    const struct kvc_path *p = row;
    *(uint8_t *)ctx = p->state;
    return 0;
}

/* Promises want the room of a store that is formatted. */
static void await_formatted(void)
{
    struct kvc *k = rig_open(&rig, 0);
    uint8_t state = KVC_PATH_FORMATTING;
    for (unsigned i = 0; i < 6000 && state != KVC_PATH_UP; i++) {
        ck_assert_int_eq(kvc_list(k, KVC_TABLE_PATHS, NULL, on_path, &state), 0);
        rig_sleep_ms(10);
    }
    ck_assert_uint_eq(state, KVC_PATH_UP);
    kvc_close(&k);
}

static void setup(void)
{
    char dir[80];
    rig_dir(&rig);
    snprintf(dir, sizeof dir, "%s/store", rig.dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    snprintf(paths, sizeof paths, "nvme.paths=%s", dir);
    rig_restart(&rig, storage);
    await_formatted();
    bits_begin();
}

static void teardown(void)
{
    bits_end();
    rig_stop(&rig);
    rig_clean(&rig);
}

static struct store *open_store(const struct bits_setup *setup, bool wait)
{
    const struct store_options options = {.socket = rig.socket, .wait = wait, .must_connect = true};
    struct kv *kv = bits_kv(setup);
    struct store *store = NULL;
    ck_assert_msg(store_open(&options, kv, why, &store) == 0, "%s", why);
    kv->is->destroy(kv);
    return store;
}

/* A turn of a sequence that nobody has begun in this process: logits, and tokens of the daemon's.
 */
static uint32_t turn(struct store *store, const struct bits_setup *setup, const uint32_t *token,
                     uint32_t n, uint32_t known, float *ret_logits)
{
    struct sequence seq;
    sequence_init(&seq, &bits_model, bits_kv(setup), store);
    seq.known = known;
    bits_turn(&seq, token, n, ret_logits);
    const uint32_t taken = seq.prefill.taken;
    ck_assert_msg(sequence_settle(&seq, why) == 0, "%s", why);
    sequence_end(&seq);
    return taken;
}

/* ---- random sequences ---- */

/* Those that lose nothing: quantised with fp32 as its small types. */
static const struct kv_strategy *const strategies[] = {&kv_paged,  &kv_static,    &kv_doubling,
                                                       &kv_hidden, &kv_offloaded, &kv_quantised};
static const uint32_t blocks[] = {2, 8, 16, 64, 1024};
#define STRATEGIES (sizeof(strategies) / sizeof(strategies[0]))
#define SETUPS     (5 * STRATEGIES)
#define LONGEST    1500u
#define MEMORY     24u /* earlier sequences that a new one may go on from */

static unsigned rounds(void)
{
    const char *text = getenv("KVC_ROUNDS");
    return text ? (unsigned)strtoul(text, NULL, 10) : CHECK_SHARE(1050);
}

CASES(.setup = setup, .teardown = teardown, .timeout_s = 600);

CASE(any_sequence_has_the_logits_of_recomputation)
{
    static uint32_t past[MEMORY][LONGEST], length[MEMORY];
    static uint64_t taken[SETUPS], partial;
    static uint32_t
        mine[SETUPS]; /* what the setup has stored last: a quarter goes on from others' */
    struct store *store[SETUPS];
    struct bits_setup setups[SETUPS];
    const unsigned all = rounds();
    for (uint32_t i = 0; i < SETUPS; i++) {
        setups[i] =
            (struct bits_setup){.strategy = strategies[i / 5], .block = blocks[i % 5], .exact = 32};
        store[i] = open_store(&setups[i], false);
    }
    for (unsigned r = 0; r < all; r++) {
        const uint32_t which = r % SETUPS, block = setups[which].block;
        const uint32_t from = bits_below(4) > 0 ? mine[which] : bits_below(MEMORY);
        const uint32_t to = bits_below(MEMORY);
        static uint32_t token[LONGEST];
        static float want[BITS_VOCAB], logits[BITS_VOCAB];
        uint32_t shared = bits_below(4) > 0 ? length[from] : bits_below(length[from] + 1);
        const uint32_t more = 1 + bits_below(block == 1024 && bits_below(3) == 0 ? 1200 : 90);
        shared = shared + more > LONGEST ? 0 : shared;
        memcpy(token, past[from], shared * sizeof(*token));
        bits_tokens(token + shared, more);
        const uint32_t n = shared + more;
        const uint32_t got = turn(store[which], &setups[which], token, n, shared, logits);
        bits_recompute(&setups[which], token, n, want);
        ck_assert_msg(bits_same(want, logits), "round %u: %s, blocks of %u, %u tokens, %u taken", r,
                      setups[which].strategy->name, block, n, got);
        taken[which] += got;
        partial += got % block != 0;
        memcpy(past[to], token, n * sizeof(*token));
        length[to] = n;
        mine[which] = to;
    }
    for (uint32_t i = 0; i < SETUPS; i++) {
        ck_assert_msg(all < 1000 || taken[i] > 0, "%s, blocks of %u: nothing was taken",
                      setups[i].strategy->name, setups[i].block);
        store_close(&store[i]);
    }
    ck_assert(all < 150 || partial > 0);
}

/* ---- memory ---- */

#define N 300u

CASE(what_is_offloaded_takes_two_layers_and_what_the_daemon_has_not)
{
    const struct bits_setup offloaded = {.strategy = &kv_offloaded, .block = 16};
    uint32_t token[N];
    float logits[BITS_VOCAB];
    struct kv_usage usage;
    struct sequence seq;
    struct store *store = open_store(&offloaded, false);
    bits_tokens(token, N);
    sequence_init(&seq, &bits_model, bits_kv(&offloaded), store);
    bits_turn(&seq, token, N, logits);
    seq.kv->is->usage(seq.kv, &usage);
    const uint64_t block = kv_offloaded.block_bytes(seq.kv), whole = (N - 1) / 16;
    ck_assert_uint_eq(usage.borrowed, whole * block);
    ck_assert_uint_eq(usage.bytes, whole * block * 2 / bits_model.is.layers + block);
    sequence_end(&seq);
    store_close(&store);
}

CASE(hidden_states_are_stored_and_not_k_and_v)
{
    const struct bits_setup hidden = {.strategy = &kv_hidden, .block = 16};
    struct store *store = open_store(&hidden, false);
    uint32_t token[N];
    float logits[BITS_VOCAB];
    bits_tokens(token, N);
    (void)turn(store, &hidden, token, N, 0, logits);
    struct kvc *k = store_session(store);
    const struct model_config *c = &bits_model.is;
    ck_assert_uint_eq(rig_stat(k, "core.bytes_stored"),
                      (N + 15) / 16 * 16 * (uint64_t)c->layers * c->hidden * sizeof(float));
    store_close(&store);
}

/* 2 n d L H: K and V, tokens, head size, layers, heads, of 4 bytes each; of whole blocks. */
CASE(what_the_daemon_stores_is_as_the_formula_says)
{
    const struct model_config *c = &bits_model.is;
    const uint64_t token_bytes = 2ull * c->head_size * c->layers * c->kv_heads * sizeof(float);
    static const uint32_t sizes[] = {2, 16, 64};
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const struct bits_setup setup = {.strategy = &kv_paged, .block = sizes[i]};
        struct store *store = open_store(&setup, false);
        struct kvc *k = store_session(store);
        const uint64_t before = rig_stat(k, "core.bytes_stored");
        const uint64_t memory = rig_stat(k, "core.bytes_in_memory");
        uint32_t token[N];
        float logits[BITS_VOCAB];
        bits_tokens(token, N);
        (void)turn(store, &setup, token, N, 0, logits);
        const uint64_t n = (N + sizes[i] - 1) / sizes[i] * sizes[i];
        ck_assert_uint_eq(rig_stat(k, "core.bytes_stored") - before, n * token_bytes);
        ck_assert_uint_eq(rig_stat(k, "core.bytes_in_memory") - memory, n * token_bytes);
        store_close(&store);
    }
}

/* ---- tiers, processes, deaths ---- */

static const struct bits_setup paged = {.strategy = &kv_paged, .block = 16};

static void check_again(const uint32_t *token, uint32_t n, uint32_t known, uint32_t least)
{
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    struct store *store = open_store(&paged, false);
    const uint32_t taken = turn(store, &paged, token, n, known, logits);
    ck_assert_uint_ge(taken, least);
    bits_recompute(&paged, token, n, want);
    ck_assert(bits_same(want, logits));
    store_close(&store);
}

CASE(a_conversation_goes_on_after_both_have_died)
{
    uint32_t token[N + 20], said[N];
    float logits[BITS_VOCAB];
    bool durable = false;
    bits_tokens(token, N + 20);
    struct store *store = open_store(&paged, false);
    ck_assert_uint_eq(turn(store, &paged, token, N, 0, logits), 0);
    ck_assert_msg(store_name_put(store, KVC_NAME_CONVERSATION, "anna", token, N, &durable, why) ==
                      0,
                  "%s", why);
    ck_assert(durable);
    rig_kill(&rig);
    store_close(&store);
    rig_restart(&rig, storage);
    store = open_store(&paged, false);
    ck_assert_int_eq(store_name_tokens(store, KVC_NAME_CONVERSATION, "anna", said, N, why), N);
    ck_assert_mem_eq(said, token, sizeof(said));
    ck_assert_int_eq(store_name_tokens(store, KVC_NAME_CONVERSATION, "anna", said, N - 1, why),
                     -ENOSPC); /* not a part of it */
    store_close(&store);
    check_again(token, N + 20, N, N); /* the partly filled last block too */
}

CASE(what_went_to_storage_and_came_back_is_the_same)
{
    enum { LONG = 1200, OTHERS = 40 };
    static uint32_t token[LONG], other[LONG];
    float logits[BITS_VOCAB];
    struct store *store = open_store(&paged, false);
    bits_tokens(token, LONG);
    (void)turn(store, &paged, token, LONG, 0, logits);
    struct kvc *k = store_session(store);
    for (uint32_t i = 0; i < OTHERS; i++) { /* 94 MiB, of which memory holds a third */
        bits_tokens(other, LONG);
        (void)turn(store, &paged, other, LONG, 0, logits);
    }
    ck_assert_uint_gt(rig_stat(k, "nvme.bytes_written"), 0);
    const uint64_t before = rig_stat(k, "core.blocks_loaded");
    check_again(token, LONG, 0, LONG - 16);
    ck_assert_uint_gt(rig_stat(k, "core.blocks_loaded"), before);
    store_close(&store);
}

/* A worker in a process of its own. */
static int worker(const char *role, uint64_t arg)
{
    uint32_t token[N];
    float logits[BITS_VOCAB];
    (void)role;
    bits_begin();
    for (uint32_t i = 0; i < N; i++)
        token[i] = (uint32_t)(i * i + arg) % BITS_VOCAB;
    struct store *store = open_store(&paged, true);
    (void)turn(store, &paged, token, N, 0, logits);
    store_close(&store);
    bits_end();
    return 0;
}

CASE(another_process_has_computed_it)
{
    uint32_t token[N];
    int status = -1;
    for (uint32_t i = 0; i < N; i++)
        token[i] = (i * i + 7) % BITS_VOCAB;
    const pid_t pid = rig_spawn(&rig, "worker", 7);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    check_again(token, N, 0, N - 1);
}

CASE(the_daemon_dies_while_its_blocks_are_read)
{
    uint32_t token[N];
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    struct sequence seq, *of = &seq;
    struct store *store = open_store(&paged, false);
    bits_tokens(token, N);
    (void)turn(store, &paged, token, N, 0, logits);
    sequence_init(&seq, &bits_model, bits_kv(&paged), store);
    ck_assert_int_eq(sequence_append(&seq, token, N, why), 0);
    ck_assert_int_eq(sequence_prefill(&seq, why), 0);
    ck_assert_uint_eq(seq.prefill.taken, N - 1);
    rig_kill(&rig);
    for (unsigned i = 0; i < 1000 && store_is_good(&seq.stored); i++)
        rig_sleep_ms(10);
    ck_assert_msg(sequence_step(&of, 1, logits, why) == 0, "%s", why);
    ck_assert_uint_eq(seq.prefill.taken, 0); /* all was computed again */
    bits_recompute(&paged, token, N, want);
    ck_assert(bits_same(want, logits));
    ck_assert_msg(sequence_settle(&seq, why) == 0, "%s", why);
    sequence_end(&seq);
    store_close(&store);
    rig_restart(&rig, storage);
}

/* ---- load or recompute ---- */

/* A token costs less than a read that takes 200 ms, and the chunk that it is computed in ten times
 * as much. The first prompt is loaded because nothing is known of the disk yet. */
CASE(a_short_prompt_costs_a_whole_chunk)
{
    enum { SHORT = 3, DELAY_MS = 200 };
    const struct bits_setup setup = {.strategy = &kv_paged, .block = 2};
    const uint64_t token_ns = DELAY_MS * UINT64_C(1000000) / SHORT * 4 / 5;
    const struct store_options options = {
        .socket = rig.socket, .must_connect = true, .prefill_ns = token_ns};
    uint32_t token[2][SHORT];
    float logits[BITS_VOCAB];
    struct store *store = open_store(&setup, false);
    for (uint32_t i = 0; i < 2; i++) {
        bits_tokens(token[i], SHORT);
        token[i][0] = i;
        (void)turn(store, &setup, token[i], SHORT, 0, logits);
    }
    rig_drain(store_session(store));
    store_close(&store);
    rig_stop(&rig);
    ck_assert_int_eq(rig_try(&rig, storage, "read:1-=200ms"), 0);
    struct kv *kv = bits_kv(&setup);
    ck_assert_msg(store_open(&options, kv, why, &store) == 0, "%s", why);
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_uint_eq(turn(store, &setup, token[i], SHORT, 0, logits), SHORT - 1);
    kv->is->destroy(kv);
    store_close(&store);
}

/* ---- a daemon without room ---- */

/* A session writes no more than half of memory at once: the rest of the prompt is refused, and its
 * reservation ends with the last block that was not. */
CASE(a_prompt_that_the_daemon_has_no_room_for_is_computed_all_the_same)
{
    enum { LONG = 3000 };
    static uint32_t token[LONG];
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    struct rig small;
    rig_start(&small, (const char *const[]){"host.limit=8MiB", NULL});
    const struct rig large = rig;
    rig = small;
    struct store *store = open_store(&paged, false);
    bits_tokens(token, LONG);
    for (uint32_t i = 0; i < 2; i++)
        (void)turn(store, &paged, token, LONG - i, 0, logits);
    bits_recompute(&paged, token, LONG - 1, want);
    ck_assert(bits_same(want, logits));
    store_close(&store);
    rig_stop(&small);
    rig_clean(&small);
    rig = large;
}

/* ---- damage ---- */

static uint32_t wrong_block;

/* One cache line of one block on its way to the daemon. */
static int damaged_out(struct kv *kv, uint32_t block, uint32_t tokens, void *to)
{
    const int rc = kv_paged.block_out(kv, block, tokens, to);
    const uint32_t line = bits_below((uint32_t)kv_paged.block_bytes(kv) / 64);
    for (uint32_t i = 0; rc == 0 && block == wrong_block && i < 64; i++)
        ((uint8_t *)to)[64 * line + i] ^= 0xff;
    return rc;
}

CASE(a_block_that_was_wrong_when_it_was_stored_changes_the_answer)
{
    const unsigned trials = CHECK_SHARE(100);
    struct kv_strategy damaging = kv_paged;
    uint32_t token[128], changed = 0;
    float want[BITS_VOCAB], logits[BITS_VOCAB];
    struct store *store = open_store(&paged, false);
    damaging.block_out = damaged_out;
    for (unsigned i = 0; i < trials; i++) {
        struct sequence seq;
        bits_tokens(token, 128);
        wrong_block = bits_below(7);
        sequence_init(&seq, &bits_model, bits_kv(&paged), store);
        seq.kv->is = &damaging;
        bits_turn(&seq, token, 128, want);
        sequence_end(&seq);
        ck_assert_uint_ge(turn(store, &paged, token, 128, 0, logits), 112);
        changed += !bits_same(want, logits);
    }
    printf("a block that was wrong: %u of %u answers changed\n", changed, trials);
    ck_assert_msg(changed * 100 >= trials * 95, "%u of %u answers changed", changed, trials);
    store_close(&store);
}

/* Inverts a byte of the first place in the store's files that has these bytes. */
static void damage_store(const void *bytes, size_t n)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/store/kvcache.store", rig.dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "%s", path);
    const off_t size = lseek(fd, 0, SEEK_END);
    char *all = malloc((size_t)size);
    ck_assert_ptr_nonnull(all);
    ck_assert_int_eq(pread(fd, all, (size_t)size, 0), size);
    char *found = memmem(all, (size_t)size, bytes, n);
    ck_assert_ptr_nonnull(found);
    const char byte = (char)(found[5] ^ 0xff);
    ck_assert_int_eq(pwrite(fd, &byte, 1, found + 5 - all), 1);
    free(all);
    close(fd);
}

CASE(a_block_that_is_damaged_after_its_commit_is_a_miss)
{
    uint32_t token[N];
    uint8_t block[32768];
    float logits[BITS_VOCAB], want[BITS_VOCAB];
    bool durable = false;
    struct sequence seq;
    struct store *store = open_store(&paged, false);
    bits_tokens(token, N);
    sequence_init(&seq, &bits_model, bits_kv(&paged), store);
    bits_turn(&seq, token, N, want);
    ck_assert_int_eq(sequence_settle(&seq, why), 0);
    ck_assert_uint_eq(kv_paged.block_bytes(seq.kv), sizeof(block));
    ck_assert_int_eq(kv_paged.block_out(seq.kv, 3, 16, block), 0);
    ck_assert_msg(store_name_put(store, KVC_NAME_DOCUMENT, "d", token, N, &durable, why) == 0, "%s",
                  why);
    ck_assert(durable);
    sequence_end(&seq);
    store_close(&store);
    rig_kill(&rig);
    damage_store(block + 3 * sizeof(block) / 4, 64); /* K of the last layer: no other has it */
    rig_restart(&rig, storage);
    store = open_store(&paged, false);
    const uint32_t taken = turn(store, &paged, token, N, 0, logits);
    ck_assert_uint_eq(taken, 3 * 16);
    ck_assert(bits_same(want, logits));
    store_close(&store);
}

/* ---- early reuse ---- */

CASE(who_waits_takes_what_another_worker_computes)
{
    uint32_t token[N];
    float logits[BITS_VOCAB];
    struct sequence first;
    int status = -1;
    for (uint32_t i = 0; i < N; i++)
        token[i] = (i * i + 9) % BITS_VOCAB;
    struct store *store = open_store(&paged, true);
    sequence_init(&first, &bits_model, bits_kv(&paged), store);
    ck_assert_int_eq(sequence_append(&first, token, N, why), 0);
    ck_assert_int_eq(store_announce(store, &first.stored, first.kv, token, N - 1, why), 0);
    const pid_t pid = rig_spawn(&rig, "worker", 9); /* finds all announced, and waits */
    struct kvc *k = store_session(store);
    for (unsigned i = 0; i < 1000 && rig_stat(k, "core.waits") == 0; i++)
        rig_sleep_ms(10);
    ck_assert_msg(sequence_prefill(&first, why) == 0, "%s", why);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    bits_recompute(&paged, token, N, logits);
    sequence_end(&first);
    store_close(&store);
}

/* Between looking and announcing another worker may have stored the first block, or all. */
CASE(who_waits_takes_what_was_stored_since_it_looked)
{
    uint32_t token[N];
    float logits[BITS_VOCAB];
    struct sequence late;
    for (uint32_t i = 0; i < N; i++)
        token[i] = (i * i + 11) % BITS_VOCAB;
    struct store *store = open_store(&paged, true), *other = open_store(&paged, false);
    sequence_init(&late, &bits_model, bits_kv(&paged), store);
    ck_assert_int_eq(store_take(store, &late.stored, late.kv, token, N, N - 1, why), 0);
    ck_assert_uint_eq(late.kv->tokens, 0);
    ck_assert_uint_eq(turn(other, &paged, token, N, 0, logits), 0);
    ck_assert_int_eq(store_announce(store, &late.stored, late.kv, token, N - 1, why), 1);
    ck_assert_int_eq(sequence_append(&late, token, N, why), 0);
    ck_assert_msg(sequence_prefill(&late, why) == 0, "%s", why);
    ck_assert_uint_eq(late.prefill.taken, N - 1);
    sequence_end(&late);
    store_close(&other);
    store_close(&store);
}

int main(int argc, char **argv)
{
    if (argc == 1)
        bits_seed();
    return rig_main(argc, argv, &rig, worker);
}
