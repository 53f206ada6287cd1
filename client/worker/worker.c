/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "worker.h"

#define CONTEXT   4096u
#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Prints `w->why`, and returns EXIT_FAULT. */
static int worker_fault(struct worker *w)
{
    worker_say("%s", w->why);
    return EXIT_FAULT;
}

/* ---- beginning and end ---- */

static int model_of(struct worker *w)
{
    const struct options *o = &w->is;
    const uint64_t begin = sequence_now_ns();
    int rc = o->preset ? model_preset(o->preset, o->seed, w->why, &w->model)
                       : model_load(o->model, w->why, &w->model);
    if (rc == 0)
        rc = text_begin(o->model, w->model.is.vocab, w->why, &w->text);
    if (rc == 0)
        rc = model_begin(&w->model, o->chunk, o->threads, w->why);
    w->load_ns = sequence_now_ns() - begin;
    return rc == 0 ? 0 : worker_fault(w);
}

static struct kv_setup setup_of(struct worker *w)
{
    const struct options *o = &w->is;
    const uint32_t most = w->model.is.tokens_max;
    return (struct kv_setup){.model = &w->model,
                             .tokens_max = o->context ? o->context : MIN(most, CONTEXT),
                             .block_tokens = o->block,
                             .k_type = o->k_type,
                             .v_type = o->v_type,
                             .exact_tokens = o->exact,
                             .seqs =
                                 o->prompts + o->from_stdin > 0 ? o->prompts + o->from_stdin : 1,
                             .peer = w->seqs > 0 ? w->seq[0].kv : NULL};
}

static int store_of(struct worker *w, const struct kv *kv)
{
    const struct options *o = &w->is;
    const bool needed = o->conversation || o->document || o->strategy->needs_store || o->wait;
    if (o->no_daemon || o->strategy->forgets)
        return 0;
    const struct store_options options = {
        .socket = o->socket, .wait = o->wait, .must_connect = needed, .prefill_ns = o->prefill_ns};
    int rc = store_open(&options, kv, w->why, &w->store);
    if (rc != 0) {
        worker_say("%s", w->why);
        return rc == KVC_E_DOWN || rc == KVC_E_TIMEOUT ? EXIT_NO_DAEMON : EXIT_FAULT;
    }
    if (!kvc_is_up(store_session(w->store))) {
        if (!o->quiet)
            worker_say("no daemon answers, so it works alone (--no-daemon says so; --socket "
                       "names another)");
        store_close(&w->store);
    }
    return 0;
}

static void say_core(const struct worker *w)
{
    if (w->is.quiet || w->is.json)
        return;
    worker_say("%s, %s: %.1f MB of weights in %.1f s; BLAS core %s, attention %s, %u threads",
               w->model.is.name, w->is.strategy->name, (double)w->model.weight_bytes / 1e6,
               (double)w->load_ns / 1e9, product_core(), kvc_attend_cpu_name(), w->model.threads);
    if (w->is.model && !w->text.bpe)
        worker_say("%s has no tokenizer.json, so each byte is a token", w->is.model);
    if (getenv("OPENBLAS_CORETYPE"))
        worker_say("OPENBLAS_CORETYPE=%s chooses BLAS's kernels; others may be quicker here",
                   getenv("OPENBLAS_CORETYPE"));
}

int worker_begin(const struct options *options, struct worker **ret_worker)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (!w) {
        worker_say("no memory");
        return EXIT_FAULT;
    }
    w->is = *options;
    int rc = model_of(w);
    if (rc == 0)
        say_core(w);
    w->logits = rc == 0 ? calloc((size_t)MODEL_SEQS_MAX * w->model.is.vocab, sizeof(float)) : NULL;
    if (rc == 0 && !w->logits) {
        worker_say("no memory for logits");
        rc = EXIT_FAULT;
    }
    *ret_worker = w;
    if (rc != 0)
        worker_end(ret_worker);
    return rc;
}

void worker_end(struct worker **worker)
{
    struct worker *w = *worker;
    if (!w)
        return;
    while (w->seqs > 0)
        sequence_end(&w->seq[--w->seqs]);
    store_close(&w->store);
    text_end(&w->text);
    model_end(&w->model);
    free(w->logits);
    free(w);
    *worker = NULL;
}

/* ---- sequences ---- */

/* Begins the sequence with the tokens of the document or conversation. */
static int begin_with(struct worker *w, struct sequence *seq, enum kvc_name_kind kind,
                      const char *name)
{
    const uint32_t most = seq->kv->setup.tokens_max;
    uint32_t *token = calloc(most, sizeof(*token));
    int n = token ? store_name_tokens(w->store, kind, name, token, most, w->why)
                  : model_wrong(w->why, -ENOMEM, "no memory");
    if (n == 0 && kind == KVC_NAME_DOCUMENT && !w->is.file)
        n = model_wrong(w->why, -ENOENT, "no document '%s'; make it with --document %s --file PATH",
                        name, name);
    if (n > 0 && w->is.file)
        n = model_wrong(w->why, -EEXIST,
                        "there is a document '%s'; 'kvcachectl doc forget %s' "
                        "first, or leave out --file",
                        name, name);
    int rc = n > 0 ? sequence_append(seq, token, (uint32_t)n, w->why) : n;
    seq->known = seq->n;
    free(token);
    return rc == 0 ? 0 : worker_fault(w);
}

int worker_sequence(struct worker *w, uint32_t i)
{
    const struct kv_setup setup = setup_of(w);
    struct kv *kv;
    int rc = w->is.strategy->create(&setup, &kv);
    if (rc != 0) {
        worker_say("the %s cache of %u tokens in %s:%s: %s", w->is.strategy->name, setup.tokens_max,
                   kvc_type_name((enum kvc_type)setup.k_type),
                   kvc_type_name((enum kvc_type)setup.v_type),
                   rc == -EINVAL ? "a type does not fit the model's head size" : strerror(-rc));
        return EXIT_FAULT;
    }
    if (i == 0)
        rc = store_of(w, kv);
    sequence_init(&w->seq[i], &w->model, kv, w->store);
    w->made[i].end = TOKENIZER_NONE;
    w->seqs = i + 1;
    if (rc == 0 && w->is.conversation)
        rc = begin_with(w, &w->seq[i], KVC_NAME_CONVERSATION, w->is.conversation);
    if (rc == 0 && w->is.document)
        rc = begin_with(w, &w->seq[i], KVC_NAME_DOCUMENT, w->is.document);
    if (rc == 0 && w->is.system && w->seq[i].n == 0)
        rc = worker_say_to(w, i, TEXT_SYSTEM, w->is.system, strlen(w->is.system));
    return rc;
}

bool worker_has_turns(const struct worker *w)
{
    return w->text.chat && !w->is.raw;
}

int worker_say_to(struct worker *w, uint32_t i, enum text_role role, const char *text, size_t n)
{
    struct sequence *seq = &w->seq[i];
    struct text_tokens new = {NULL, 0};
    int rc = worker_has_turns(w)
                 ? text_message(&w->text, role, text, n, seq->token, seq->n, w->why, &new)
                 : text_raw(&w->text, w->model.is.vocab, text, n, w->why, &new);
    if (rc == 0)
        rc = sequence_append(seq, new.id, new.n, w->why);
    if (worker_has_turns(w))
        w->made[i].end = text_end_token(&w->text);
    free(new.id);
    return rc == 0 ? 0 : worker_fault(w);
}

int ids_append(struct worker *w, struct sequence *seq, const char *text)
{
    int rc = 0;
    for (const char *at = text; rc == 0 && *at;) {
        char *end;
        errno = 0;
        const unsigned long id = strtoul(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || errno || id >= w->model.is.vocab ||
            (*end && *end != ','))
            rc = model_wrong(w->why, -EINVAL,
                             "--tokens: '%.20s' is no list of token ids below %u, "
                             "as in 1,2,3",
                             at, w->model.is.vocab);
        const uint32_t token = (uint32_t)id;
        rc = rc == 0 ? sequence_append(seq, &token, 1, w->why) : rc;
        at = *end ? end + 1 : end;
    }
    return rc == 0 ? 0 : worker_fault(w);
}

/* ---- a turn ---- */

/* Collects the sequences whose turn has not ended; returns their number. */
static uint32_t going_on(struct worker *w, struct sequence **seq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->seqs; i++)
        if (w->made[i].tokens == 0 || w->seq[i].token[w->seq[i].n - 1] != w->made[i].end)
            seq[n++] = &w->seq[i];
    return n;
}

static int choose(struct worker *w, struct sequence *const *seq, uint32_t seqs,
                  void (*shown)(struct worker *w, uint32_t token))
{
    const uint32_t vocab = w->model.is.vocab;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < seqs; i++) {
        const uint32_t token = sequence_greedy(w->logits + (size_t)i * vocab, vocab);
        if (shown)
            shown(w, token);
        rc = sequence_append(seq[i], &token, 1, w->why);
        w->made[seq[i] - w->seq].tokens += rc == 0;
    }
    return rc;
}

int worker_turn(struct worker *w, void (*shown)(struct worker *w, uint32_t token),
                struct turn *ret_turn)
{
    struct sequence *seq[OPTIONS_PROMPTS_MAX] = {NULL};
    struct turn turn = {.steps = 0};
    const uint64_t begin = sequence_now_ns();
    uint32_t seqs;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < w->seqs; i++) {
        w->made[i].tokens = 0;
        rc = sequence_prefill(&w->seq[i], w->why);
    }
    for (uint32_t t = 0; rc == 0 && t < w->is.new_tokens && (seqs = going_on(w, seq)) > 0; t++) {
        rc = sequence_step(seq, seqs, w->logits, w->why);
        rc = rc == 0 ? choose(w, seq, seqs, shown) : rc;
        if (t == 0)
            turn.ttft_ns = sequence_now_ns() - begin;
        else
            turn.steps += seqs;
    }
    turn.decode_ns = sequence_now_ns() - begin - turn.ttft_ns;
    *ret_turn = turn;
    return rc == 0 ? 0 : worker_fault(w);
}

/* Sequences are settled only if they are stored, or if a chat continues them. */
int worker_keep(struct worker *w)
{
    bool durable = false;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < w->seqs && (w->store || w->is.chat); i++)
        rc = sequence_settle(&w->seq[i], w->why);
    const struct sequence *seq = &w->seq[0];
    if (rc == 0 && w->is.conversation)
        rc = store_name_put(w->store, KVC_NAME_CONVERSATION, w->is.conversation, seq->token, seq->n,
                            &durable, w->why);
    if (rc == 0 && w->is.file)
        rc = store_name_put(w->store, KVC_NAME_DOCUMENT, w->is.document, seq->token, seq->n,
                            &durable, w->why);
    if (rc == 0 && (w->is.conversation || w->is.file) && !durable && !w->is.quiet)
        worker_say("the daemon has no storage: what was kept ends with it");
    return rc == 0 ? 0 : worker_fault(w);
}
