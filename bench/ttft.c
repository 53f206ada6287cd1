/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time to first token of kvcache-worker's model in this process. A prompt is computed, or its K and
 * V come from the benchmark's own daemon, out of host memory or out of storage, in fp32 or in
 * smaller types. Each time is shown beside its bound, which is measured in the same rounds.
 */
#include "ttft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capacity.h"
#include "fio.h"
#include "out.h"
#include "progress.h"

#define FIO_LEAST    (UINT64_C(64) << 20) /* least size of fio's file */
#define FIO_MOST     (UINT64_C(1) << 30)
#define FIO_IO       (UINT64_C(2) << 20) /* the daemon's largest I/O */
#define FIO_DEPTH    8u
#define FIO_SECONDS  0.5
#define DISK_LEAST   (UINT64_C(128) << 20)
#define DELAY_MAX    10000u
#define SETTLE_TRIES 30000u
/* a way that takes no longer than so many times the other one is as quick. */
#define AS_QUICK 1.1

static const char help[] =
    "Usage: kvcachebench ttft [OPTIONS]\n"
    "\n"
    "Time to the first token of a prompt, with kvcache-worker's model: computed again, or its K "
    "and V loaded from a daemon of its own, out of host memory, or out of storage after a restart; "
    "in fp32, and in the types of --types. Bounds are measured in the same rounds: BLAS's own time "
    "for the same products; a copy of K and V, or their bytes at the speed of fio, and a decode "
    "step. Logits of fp32 must be bit for bit those of the computation, else the exit code is 1.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachebench ttft --svg ttft.svg\n"
    "  kvcachebench ttft --tokens 2048 --types q8_0,q8_0:q4_0 --rounds 9\n"
    "  kvcachebench ttft --choose --read-delay-ms 50\n";

void ttft_add(struct ttft_times *times, double s)
{
    if (times->n < TTFT_ROUNDS_MAX)
        times->s[times->n++] = s;
}

double ttft_median(const struct ttft_times *times)
{
    struct ttft_times sorted = *times;
    return sorted.n > 0 ? out_median(sorted.s, sorted.n) : 0;
}

static int ttft_failed(const struct ttft *t)
{
    say_error("%s", t->why);
    return BENCH_FAILED;
}

/* ---- prompts ---- */

static struct kv_setup setup_of(struct ttft *t, const struct ttft_variant *v)
{
    uint32_t longest = 1;
    for (size_t i = 0; i < t->lengths; i++)
        longest = t->length[i].tokens > longest ? t->length[i].tokens : longest;
    return (struct kv_setup){.model = &t->model,
                             .tokens_max = longest + 1,
                             .block_tokens = (uint32_t)t->block,
                             .k_type = v->types.type[0],
                             .v_type = v->types.type[1],
                             .seqs = 2,
                             .peer = v->keeper};
}

/* Makes a sequence with the prompt appended. */
static int sequence_begin(struct ttft *t, const struct ttft_variant *v, struct store *store,
                          const struct ttft_length *l, struct sequence *ret_seq)
{
    const struct kv_setup setup = setup_of(t, v);
    struct kv *kv;
    int rc = v->is->create(&setup, &kv);
    if (rc != 0) {
        say_error("no cache of %u tokens in %s: %s", setup.tokens_max, v->types.name,
                  strerror(-rc));
        return BENCH_FAILED;
    }
    sequence_init(ret_seq, &t->model, kv, store);
    if (sequence_append(ret_seq, l->token, l->tokens, t->why) == 0)
        return 0;
    sequence_end(ret_seq);
    return ttft_failed(t);
}

/* Runs from the prompt to the logits of its first token. */
static int ttft_turn(struct ttft *t, const struct ttft_variant *v, struct store *store,
                     const struct ttft_length *l, double *ret_s, uint32_t *ret_taken)
{
    struct sequence seq, *one = &seq;
    int rc = sequence_begin(t, v, store, l, &seq);
    if (rc != 0)
        return rc;
    const uint64_t begin = now_ns();
    rc = sequence_prefill(&seq, t->why);
    rc = rc == 0 ? sequence_step(&one, 1, t->logits, t->why) : rc;
    *ret_s = (double)(now_ns() - begin) * 1e-9;
    *ret_taken = seq.prefill.taken;
    sequence_end(&seq);
    return rc == 0 ? 0 : ttft_failed(t);
}

/* Compares logits with the first ones of the case. */
static int same_logits(const struct ttft *t, const struct ttft_length *l, struct ttft_case *c,
                       const char *what)
{
    const size_t bytes = t->model.is.vocab * sizeof(float);
    if (!c->want && (c->want = malloc(bytes)))
        memcpy(c->want, t->logits, bytes);
    if (c->want && memcmp(c->want, t->logits, bytes) == 0)
        return 0;
    say_error("%u tokens: logits from %s are not those of before", l->tokens, what);
    return BENCH_WRONG;
}

/* Computes the prompt and stores it in the daemon. */
static int prompt_store(struct ttft *t, const struct ttft_variant *v, const struct ttft_length *l)
{
    struct sequence seq;
    int rc = sequence_begin(t, v, v->store, l, &seq);
    if (rc != 0)
        return rc;
    rc = sequence_prefill(&seq, t->why);
    rc = rc == 0 ? sequence_settle(&seq, t->why) : rc;
    sequence_end(&seq);
    return rc == 0 ? 0 : ttft_failed(t);
}

/* Runs a turn whose prompt comes from the daemon, except the last token, which is computed. */
static int turn_loaded(struct ttft *t, size_t variant, struct ttft_length *l, const char *what,
                       struct ttft_times *times)
{
    const struct ttft_variant *v = &t->variant[variant];
    double s;
    uint32_t taken;
    int rc = ttft_turn(t, v, v->store, l, &s, &taken);
    if (rc != 0)
        return rc;
    if (taken != l->tokens - 1) {
        say_error("%u tokens, %s: the daemon had %u of them", l->tokens, v->types.name, taken);
        return BENCH_FAILED;
    }
    ttft_add(times, s);
    return same_logits(t, l, &l->of[variant], what);
}

/* ---- the daemon ---- */

static int stores_open(struct ttft *t)
{
    for (size_t i = 0; i < t->variants; i++) {
        struct ttft_variant *v = &t->variant[i];
        const struct store_options options = {.socket = rig_socket(t->rig), .must_connect = true};
        if (store_open(&options, v->keeper, t->why, &v->store) != 0)
            return ttft_failed(t);
    }
    return perf_settle(&(struct perf_session){.kvc = store_session(t->variant[0].store)});
}

static void stores_close(struct ttft *t)
{
    for (size_t i = 0; i < t->variants; i++)
        store_close(&t->variant[i].store);
}

/* Starts a daemon with room for all prompts in all variants, in memory and on storage. */
static int daemon_start(struct ttft *t)
{
    uint64_t bytes = 0;
    for (size_t v = 0; v < t->variants; v++) {
        const struct kv *kv = t->variant[v].keeper;
        const uint64_t slot = capacity_slot_bytes(kv->is->block_bytes(kv));
        for (size_t i = 0; i < t->lengths; i++)
            bytes += kv_blocks(kv, t->length[i].tokens) * slot;
    }
    t->options = (struct rig_options){.daemon_path = t->daemon_path, .store_in = t->dir};
    rig_set(&t->options, "host.limit=%" PRIu64, bytes * 5 / 4 + (UINT64_C(64) << 20));
    rig_set(&t->options, "nvme.limit=%" PRIu64, 2 * bytes + DISK_LEAST);
    rig_set(&t->options, "log.level=warn");
    int rc = rig_start(&t->options, &t->rig);
    rc = rc == 0 ? perf_quiet(t->rig, "has formatted its store") : rc;
    return rc == 0 ? stores_open(t) : rc;
}

/* Restarts the daemon; then storage alone has the prompts. */
static int daemon_restart(struct ttft *t)
{
    stores_close(t);
    const int rc = rig_restart(&t->options, t->rig);
    return rc == 0 ? stores_open(t) : rc;
}

/* ---- rounds ---- */

static int variants_open(struct ttft *t)
{
    for (size_t i = 0; i < t->variants; i++) {
        struct ttft_variant *v = &t->variant[i];
        v->is = i == 0 ? &kv_paged : &kv_quantised;
        const struct kv_setup setup = setup_of(t, v);
        const int rc = v->is->create(&setup, &v->keeper);
        if (rc != 0) {
            say_error("--types %s: %s", v->types.name,
                      rc == -EINVAL ? "does not fit the model's head size" : strerror(-rc));
            return BENCH_USAGE;
        }
        for (size_t n = 0; n < t->lengths; n++)
            t->length[n].of[i].bytes =
                v->is->block_bytes(v->keeper) * t->length[n].tokens / t->block;
    }
    return 0;
}

static int prompts_make(struct ttft *t)
{
    t->logits = calloc(t->model.is.vocab, sizeof(*t->logits));
    for (size_t i = 0; i < t->lengths; i++) {
        struct ttft_length *l = &t->length[i];
        l->token = calloc(l->tokens, sizeof(*l->token));
        if (!l->token || !t->logits) {
            say_error("out of memory");
            return BENCH_FAILED;
        }
        worker_model_prompt(&t->model, t->which.seed * 1000 + i, l->token, l->tokens);
        if (l->tokens + 1 > t->model.is.tokens_max)
            return say_usage("--tokens %u: %s takes %u", l->tokens, t->model.is.name,
                             t->model.is.tokens_max - 1);
    }
    return 0;
}

static int recompute(struct ttft *t, struct ttft_length *l, struct ttft_times *times)
{
    double s;
    uint32_t taken;
    int rc = ttft_turn(t, &t->variant[0], NULL, l, &s, &taken);
    if (rc == 0)
        ttft_add(times, s);
    return rc == 0 ? same_logits(t, l, &l->of[0], "computation") : rc;
}

static int round_in_memory(struct ttft *t, struct ttft_length *l)
{
    int rc = recompute(t, l, &l->recompute);
    rc = rc == 0 ? ttft_bound_blas(t, l) : rc;
    for (size_t v = 0; rc == 0 && v < t->variants; v++) {
        rc = turn_loaded(t, v, l, "host memory", &l->of[v].host);
        rc = rc == 0 ? ttft_bound_load(t, l, v) : rc;
    }
    return rc;
}

/* Asks what the daemon recommends when it knows the cost of a token. Call it before anything is
 * loaded. */
static int choice(struct ttft *t, struct store *chooser, struct ttft_length *l, bool *ret_loaded)
{
    double s;
    uint32_t taken;
    const int rc = ttft_turn(t, &t->variant[0], chooser, l, &s, &taken);
    if (rc != 0)
        return rc;
    l->choices++;
    l->loads += taken > 0;
    *ret_loaded = taken == l->tokens - 1;
    if (*ret_loaded)
        ttft_add(&l->of[0].storage, s);
    return same_logits(t, l, &l->of[0], "the quicker source");
}

static int round_from_storage(struct ttft *t, struct ttft_length *l, struct store *chooser)
{
    bool loaded = false;
    int rc = chooser ? choice(t, chooser, l, &loaded) : 0;
    for (size_t v = loaded ? 1 : 0; rc == 0 && v < t->variants; v++)
        rc = turn_loaded(t, v, l, "storage", &l->of[v].storage);
    if (rc == 0 && chooser)
        rc = recompute(t, l, &l->beside);
    return rc;
}

/* A worker states its costs when it starts, long before its first prompt. By then the daemon has
 * read a block to measure the disk. */
static int chooser_settle(struct store *chooser)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    uint64_t loads = 1;
    int rc = 0;
    for (unsigned i = 0; rc == 0 && loads > 0 && i < SETTLE_TRIES; i++) {
        rc = perf_stat(store_session(chooser), "core.loads_in_flight", &loads);
        nanosleep(&pause, NULL);
    }
    return rc < 0 ? say_exit_code(rc) : 0;
}

static int chooser_open(struct ttft *t, struct store **ret_store)
{
    const struct store_options options = {.socket = rig_socket(t->rig),
                                          .must_connect = true,
                                          .prefill_ns = (uint64_t)t->prefill_ns,
                                          .prefill_fs_pair = (uint64_t)t->prefill_fs_pair};
    if (store_open(&options, t->variant[0].keeper, t->why, ret_store) != 0)
        return ttft_failed(t);
    return chooser_settle(*ret_store);
}

static int rounds_in_memory(struct ttft *t)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < t->lengths; i++)
        for (size_t v = 0; rc == 0 && v < t->variants; v++) {
            progress_show(true, "ttft: storing %u tokens, %s", t->length[i].tokens,
                          t->variant[v].types.name);
            rc = prompt_store(t, &t->variant[v], &t->length[i]);
        }
    for (uint64_t r = 0; rc == 0 && r < t->rounds; r++)
        for (size_t i = 0; rc == 0 && i < t->lengths; i++) {
            progress_show(true, "ttft: host memory, round %" PRIu64 " of %" PRIu64 ", %u tokens",
                          r + 1, t->rounds, t->length[i].tokens);
            rc = round_in_memory(t, &t->length[i]);
        }
    return rc;
}

static int disk_speed(struct ttft *t, const struct fio_file *file)
{
    const struct fio_job job = {
        .file = file, .rw = "read", .io_bytes = FIO_IO, .depth = FIO_DEPTH, .seconds = FIO_SECONDS};
    struct fio_result result;
    const int rc = fio_run(&job, &result);
    if (rc == 0)
        ttft_add(&t->disk, result.bytes_per_s);
    return rc;
}

/* Fits the cost of a token and of a pair; n tokens have n * n / 2 pairs. Least squares of the
 * relative error, so that short prompts count as much as long ones. A chunk is always computed
 * whole. */
static void costs_fit(struct ttft *t)
{
    double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
    for (size_t i = 0; i < t->lengths; i++) {
        const struct ttft_length *l = &t->length[i];
        const double ns = ttft_median(&l->recompute) * 1e9, n = l->tokens;
        const double chunks = (double)((l->tokens - 1) / t->model.chunk + 1);
        const double a = chunks * t->model.chunk / ns, b = n * n / 2 / ns;
        aa += a * a;
        ab += a * b;
        bb += b * b;
        a1 += a;
        b1 += b;
    }
    const double det = aa * bb - ab * ab;
    double token = det > 0 ? (a1 * bb - b1 * ab) / det : 0;
    double pair = det > 0 ? (b1 * aa - a1 * ab) / det : -1;
    if (pair < 0 || token < 1) {
        pair = 0;
        token = a1 / aa;
    }
    t->prefill_ns = token > 1 ? token : 1;
    t->prefill_fs_pair = pair * 1e6;
}

/* Size of a file that holds some prompts. */
static uint64_t fio_bytes(const struct ttft *t)
{
    const uint64_t bytes = 4 * t->length[t->lengths - 1].of[0].bytes / FIO_IO * FIO_IO;
    return bytes < FIO_LEAST ? FIO_LEAST : bytes > FIO_MOST ? FIO_MOST : bytes;
}

static int rounds_from_storage(struct ttft *t)
{
    struct fio_file file = {.fd = -1};
    const int drained = perf_drain(store_session(t->variant[0].store));
    int rc = drained < 0 ? say_exit_code(drained) : 0;
    t->no_disk = t->read_delay_ms > 0 ? "--read-delay-ms" : fio_missing();
    if (rc == 0 && !t->no_disk)
        rc = fio_lay(t->dir, fio_bytes(t), &file);
    costs_fit(t);
    for (uint64_t r = 0; rc == 0 && r < t->rounds; r++) {
        struct store *chooser = NULL;
        progress_show(true, "ttft: storage, round %" PRIu64 " of %" PRIu64, r + 1, t->rounds);
        rc = daemon_restart(t);
        if (rc == 0 && t->choose)
            rc = chooser_open(t, &chooser);
        for (size_t i = 0; rc == 0 && i < t->lengths; i++)
            rc = round_from_storage(t, &t->length[i], chooser);
        store_close(&chooser);
        if (rc == 0 && !t->no_disk)
            rc = disk_speed(t, &file);
    }
    fio_drop(&file);
    return rc;
}

/* A choice was right if it took the quicker way, or one as quick; a wrong one costs the difference.
 */
static void ttft_judge(struct ttft *t)
{
    for (size_t i = 0; i < t->lengths; i++) {
        struct ttft_length *l = &t->length[i];
        const double compute = ttft_median(&l->beside), load = ttft_median(&l->of[0].storage);
        const uint32_t computed = l->choices - l->loads;
        const bool load_right = load <= AS_QUICK * compute,
                   compute_right = compute <= AS_QUICK * load;
        l->right = (load_right ? l->loads : 0) + (compute_right ? computed : 0);
        l->lost_s = (load_right ? 0 : l->loads * (load - compute)) +
                    (compute_right ? 0 : computed * (compute - load));
        l->quicker_s = l->choices * (load < compute ? load : compute);
    }
}

/* ---- the command ---- */

static int ttft_take_tokens(void *ctx, const char *text)
{
    struct ttft *t = ctx;
    char copy[256];
    if ((size_t)snprintf(copy, sizeof(copy), "%s", text) >= sizeof(copy))
        return say_usage("--tokens: the list is too long");
    char *rest = copy;
    t->lengths = 0;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        uint64_t n;
        if (t->lengths == TTFT_LENGTHS_MAX)
            return say_usage("--tokens: at most %u lengths", TTFT_LENGTHS_MAX);
        const int rc = args_count(say_usage, "tokens", item, 2, TTFT_TOKENS_MAX, &n);
        if (rc != 0)
            return rc;
        if (t->lengths > 0 && n <= t->length[t->lengths - 1].tokens)
            return say_usage("--tokens %s: from small to large", text);
        t->length[t->lengths++].tokens = (uint32_t)n;
    }
    return 0;
}

static int ttft_take_types(void *ctx, const char *text)
{
    struct ttft *t = ctx;
    struct worker_types list[TTFT_VARIANTS_MAX - 1];
    size_t n = 0;
    const int rc = worker_types_list(text, list, TTFT_VARIANTS_MAX - 1, &n);
    for (size_t i = 0; rc == 0 && i < n; i++)
        t->variant[1 + i].types = list[i];
    t->variants = 1 + n;
    return rc;
}

static const struct arg option_table[] = {
    WORKER_MODEL_OPTIONS(struct ttft, which),
    {"--tokens LIST",
     "lengths of prompts, rising (default 128,512,2048; --choose: 16,32, ... 4096)",
     ARG_DO(ttft_take_tokens)},
    {"--types LIST", "of K and V beside fp32, as in q8_0,q8_0:q4_0 (default q8_0)",
     ARG_DO(ttft_take_types)},
    {"--block N", "tokens of a block (default 16)", ARG_COUNT(struct ttft, block, 1, 1024)},
    {"--rounds N", "of each, taking turns; medians are reported (default 5, at most 25)",
     ARG_COUNT(struct ttft, rounds, 1, TTFT_ROUNDS_MAX)},
    {"--dir DIR", "where the daemon keeps blocks on storage (default .)",
     ARG_TEXT(struct ttft, dir)},
    {"--choose",
     "does the daemon, told what a token costs, load what is quicker loaded and leave the rest to "
     "be computed? fp32 alone. Right is what took at most 1.1 times as long as the other, by "
     "medians of the same rounds",
     ARG_FLAG(struct ttft, choose)},
    {"--read-delay-ms N", "each read from storage takes so much longer: a slow disk",
     ARG_COUNT(struct ttft, read_delay_ms, 1, DELAY_MAX)},
    {"--svg FILE", "plot time over length", ARG_TEXT(struct ttft, svg)},
    {"--daemon PATH", "the daemon to start", ARG_TEXT(struct ttft, daemon_path)},
    {"--json", "one JSON object per line on stdout", ARG_FLAG(struct ttft, json)},
    {0},
};

static int ttft_parse(int argc, char **argv, struct ttft *t)
{
    int rc = opt_take_only(argc, argv, option_table, help, t);
    if (rc != 0)
        return rc;
    worker_types_name(&t->variant[0].types);
    if (t->variants == 0)
        rc = ttft_take_types(t, "q8_0");
    if (t->choose)
        t->variants = 1;
    if (rc == 0 && t->lengths == 0)
        rc =
            ttft_take_tokens(t, t->choose ? "16,32,64,128,256,512,1024,2048,4096" : "128,512,2048");
    return rc;
}

static void ttft_close(struct ttft *t)
{
    progress_clear();
    stores_close(t);
    rig_stop(&t->rig);
    ttft_bounds_close(t);
    for (size_t i = 0; i < t->lengths; i++) {
        free(t->length[i].token);
        for (size_t v = 0; v < t->variants; v++) {
            struct ttft_case *c = &t->length[i].of[v];
            free(c->want);
            if (c->resident)
                c->resident->is->destroy(c->resident);
        }
    }
    for (size_t v = 0; v < t->variants; v++)
        if (t->variant[v].keeper)
            t->variant[v].is->destroy(t->variant[v].keeper);
    model_end(&t->model);
    free(t->logits);
}

static int ttft_measure(struct ttft *t)
{
    progress_show(true, "ttft: making the model's weights");
    int rc = worker_model_open(&t->which, &t->model);
    rc = rc == 0 ? prompts_make(t) : rc;
    rc = rc == 0 ? variants_open(t) : rc;
    rc = rc == 0 ? ttft_bounds_open(t) : rc;
    rc = rc == 0 ? daemon_start(t) : rc;
    rc = rc == 0 ? rounds_in_memory(t) : rc;
    rc = rc == 0 ? rounds_from_storage(t) : rc;
    progress_clear();
    if (rc == 0) {
        ttft_judge(t);
        ttft_report(t);
    }
    return rc == 0 && t->svg ? ttft_plot(t) : rc;
}

int cmd_ttft(int argc, char **argv)
{
    static struct ttft t;
    t = (struct ttft){.which = {.preset = "125m", .seed = 1}, .block = 16, .rounds = 5, .dir = "."};
    char delay[48];
    int rc = ttft_parse(argc, argv, &t);
    if (rc != 0)
        return rc < 0 ? BENCH_OK : rc;
    (void)snprintf(delay, sizeof(delay), "read:1-=%" PRIu64 "ms", t.read_delay_ms);
    if (t.read_delay_ms > 0 && setenv("KVC_FAULT", delay, 1) != 0) {
        say_error("out of memory");
        return BENCH_FAILED;
    }
    rc = ttft_measure(&t);
    ttft_close(&t);
    return rc;
}
