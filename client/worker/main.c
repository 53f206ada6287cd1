/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcache-worker: takes the options, runs the model over the prompts, and prints what was
 * computed and what came from the cache.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "product.h"
#include "stdfds.h"
#include "worker.h"

#define FILE_MAX (16u << 20) /* more than the longest sequence */

/* Appends a whole file as one message. */
static int file_append(struct worker *w, uint32_t i, enum text_role role, FILE *file,
                       const char *name)
{
    char *text = malloc(FILE_MAX + 1u);
    if (!text) {
        worker_say("no memory for %s", name);
        return EXIT_FAULT;
    }
    const size_t n = fread(text, 1, FILE_MAX + 1u, file);
    int rc = EXIT_FAULT;
    if (ferror(file))
        worker_say("%s: %s", name, strerror(errno));
    else if (n > FILE_MAX)
        worker_say("%s: longer than 16 MiB; no sequence is", name);
    else
        rc = worker_say_to(w, i, role, text, n);
    free(text);
    return rc;
}

static int document_append(struct worker *w, uint32_t i)
{
    FILE *file = fopen(w->is.file, "rbe");
    if (!file) {
        worker_say("%s: %s", w->is.file, strerror(errno));
        return EXIT_FAULT;
    }
    const int rc = file_append(w, i, TEXT_SYSTEM, file, w->is.file);
    (void)fclose(file);
    return rc;
}

/* ---- what came of it ---- */

static void put_made(const struct worker *w, uint32_t i, FILE *to)
{
    const struct sequence *s = &w->seq[i];
    struct text_out out = {.n = 0};
    for (uint32_t t = s->n - w->made[i].tokens; t < s->n; t++)
        text_put(&w->text, &out, s->token[t], to);
    text_put_end(&out, to);
}

static json_t *made_json(const struct worker *w, uint32_t i)
{
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    if (to) {
        put_made(w, i, to);
        (void)fclose(to);
    }
    json_t *json = text ? json_stringn(text, n) : json_null();
    free(text);
    return json;
}

static json_t *sequence_json(const struct worker *w, uint32_t i)
{
    const struct sequence *s = &w->seq[i];
    const uint32_t made = w->made[i].tokens;
    json_t *tokens = json_array(), *all = json_object();
    struct kv_usage usage;
    s->kv->is->usage(s->kv, &usage);
    for (uint32_t t = s->n - made; t < s->n; t++)
        json_array_append_new(tokens, json_integer(s->token[t]));
    json_object_set_new(all, "prompt_tokens", json_integer(s->n - made));
    json_object_set_new(all, "from_daemon_tokens", json_integer(s->prefill.taken));
    json_object_set_new(all, "computed_tokens", json_integer(s->prefill.computed));
    json_object_set_new(all, "take_ns", json_integer((json_int_t)s->prefill.take_ns));
    json_object_set_new(all, "prefill_ns", json_integer((json_int_t)s->prefill.compute_ns));
    json_object_set_new(all, "kv_bytes", json_integer((json_int_t)usage.bytes));
    json_object_set_new(all, "borrowed_bytes", json_integer((json_int_t)usage.borrowed));
    json_object_set_new(all, "copied_bytes", json_integer((json_int_t)usage.copied));
    json_object_set_new(
        all, "block_bytes",
        json_integer(
            (json_int_t)(w->is.strategy->block_bytes ? w->is.strategy->block_bytes(s->kv) : 0)));
    json_object_set_new(all, "tokens", tokens);
    json_object_set_new(all, "text", made_json(w, i));
    return all;
}

static double rate_of(const struct turn *turn)
{
    return turn->decode_ns > 0 ? (double)turn->steps * 1e9 / (double)turn->decode_ns : 0;
}

static void main_print_json(const struct worker *w, const struct turn *turn)
{
    json_t *all = json_object(), *sequences = json_array();
    for (uint32_t i = 0; i < w->seqs; i++)
        json_array_append_new(sequences, sequence_json(w, i));
    json_object_set_new(all, "model", json_string(w->model.is.name));
    json_object_set_new(all, "strategy", json_string(w->is.strategy->name));
    json_object_set_new(all, "k_type", json_string(kvc_type_name((enum kvc_type)w->is.k_type)));
    json_object_set_new(all, "v_type", json_string(kvc_type_name((enum kvc_type)w->is.v_type)));
    json_object_set_new(all, "blas_core", json_string(product_core()));
    json_object_set_new(all, "attention", json_string(kvc_attend_cpu_name()));
    json_object_set_new(all, "threads", json_integer(w->model.threads));
    json_object_set_new(all, "chunk_tokens", json_integer(w->model.chunk));
    json_object_set_new(all, "weight_bytes", json_integer((json_int_t)w->model.weight_bytes));
    json_object_set_new(all, "ttft_ns", json_integer((json_int_t)turn->ttft_ns));
    json_object_set_new(all, "tokens_per_s", json_real(rate_of(turn)));
    json_object_set_new(all, "sequences", sequences);
    json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

static void main_print_text(const struct worker *w, const struct turn *turn)
{
    for (uint32_t i = 0; i < w->seqs; i++) {
        const struct sequence *s = &w->seq[i];
        put_made(w, i, stdout);
        putchar('\n');
        if (w->is.quiet)
            continue;
        worker_say("%u tokens: %u from the daemon in %.2f ms, %u computed in %.1f ms",
                   s->n - w->made[i].tokens, s->prefill.taken, (double)s->prefill.take_ns / 1e6,
                   s->prefill.computed, (double)s->prefill.compute_ns / 1e6);
    }
    if (!w->is.quiet && w->is.new_tokens > 0)
        worker_say("first token after %.2f ms, then %.1f tokens/s", (double)turn->ttft_ns / 1e6,
                   rate_of(turn));
}

/* ---- */

static int prompts_append(struct worker *w)
{
    const struct options *o = &w->is;
    const uint32_t all = o->prompts + o->from_stdin;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < (all > 0 ? all : 1); i++) {
        rc = worker_sequence(w, i);
        if (rc == 0 && o->file)
            rc = document_append(w, i);
        if (rc == 0 && i < o->prompts)
            rc = o->prompt[i].ids
                     ? ids_append(w, &w->seq[i], o->prompt[i].text)
                     : worker_say_to(w, i, TEXT_USER, o->prompt[i].text, strlen(o->prompt[i].text));
        else if (rc == 0 && o->from_stdin)
            rc = file_append(w, i, TEXT_USER, stdin, "standard input");
    }
    return rc;
}

static int worker_run(struct worker *w)
{
    struct turn turn;
    if (w->is.chat)
        return worker_chat(w);
    int rc = prompts_append(w);
    rc = rc == 0 ? worker_turn(w, NULL, &turn) : rc;
    rc = rc == 0 ? worker_keep(w) : rc;
    if (rc == 0 && w->is.json)
        main_print_json(w, &turn);
    else if (rc == 0)
        main_print_text(w, &turn);
    return rc;
}

int main(int argc, char **argv)
{
    struct options options;
    struct worker *w = NULL;
    product_choose_core(argv);
    const int held = stdfds_hold();
    if (held < 0) {
        worker_say("%s", strerror(-held));
        return EXIT_FAULT;
    }
    int rc = options_take(argc, argv, &options);
    if (rc < 0)
        rc = worker_begin(&options, &w);
    if (rc == 0 && w)
        rc = worker_run(w);
    worker_end(&w);
    const int failed = stdfds_flush();
    if (failed < 0) {
        worker_say("stdout: %s", strerror(-failed));
        rc = rc == 0 ? EXIT_FAULT : rc;
    }
    return rc;
}
