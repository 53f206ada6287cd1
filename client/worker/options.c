/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "args.h"
#include "model.h"
#include "options.h"
#include "plain.h"
#include "similar.h"
#include "units.h"

static const char help[] =
    "Usage: kvcache-worker (--preset NAME | --model DIR) [OPTIONS]\n"
    "\n"
    "A transformer of the Llama architecture that keeps its KV cache as you say, and reads what "
    "kvcache-daemon has of a prompt where it lies. It says how long the first token took.\n"
    "\n" ARGS_HERE "\n"
    "Exit codes: 0 good, 1 an error, 2 usage, 3 no daemon where one is needed.\n"
    "\n"
    "Examples:\n"
    "  kvcache-worker --preset 125m --prompt Hello --new 16\n"
    "  kvcache-worker --preset 125m --file manual.txt --document manual\n"
    "  kvcache-worker --preset 125m --document manual --prompt 'How?'\n"
    "  kvcache-worker --model build/models/SmolLM2-135M-Instruct --conversation anna --chat\n"
    "\n"
    "Strategies:\n";

void worker_say(const char *format, ...)
{
    va_list args;
    (void)fflush(stdout);
    fputs("kvcache-worker: ", stderr);
    va_start(args, format);
    plain_line(stderr, format, args);
    va_end(args);
}

/* ---- values ---- */

static int take_strategy(void *ctx, const char *text)
{
    struct options *o = ctx;
    struct similar similar = similar_to(text);
    for (const struct kv_strategy *const *s = kv_strategies; *s; s++) {
        similar_offer(&similar, (*s)->name);
        if (strcmp((*s)->name, text) == 0) {
            o->strategy = *s;
            return 0;
        }
    }
    if (similar.best)
        return args_usage("no strategy '%s'; did you mean '%s'?", text, similar.best);
    return args_usage("no strategy '%s'; --help lists them", text);
}

static int options_take_types(void *ctx, const char *text)
{
    struct options *o = ctx;
    if (kv_types_parse(text, &o->k_type, &o->v_type) == 0)
        return 0;
    return args_usage(
        "--types: no type '%s'; there are fp32, fp16, bf16, fp8, q8_0, q4_0, int8, or two "
        "of them for K and V, as in q8_0:q4_0",
        text);
}

static int prompt_add(struct options *o, const char *text, bool ids)
{
    if (o->prompts == OPTIONS_PROMPTS_MAX)
        return args_usage("more than %u prompts", OPTIONS_PROMPTS_MAX);
    o->prompt[o->prompts].text = text;
    o->prompt[o->prompts++].ids = ids;
    return 0;
}

static int take_prompt(void *ctx, const char *text)
{
    return prompt_add(ctx, text, false);
}

static int take_tokens(void *ctx, const char *text)
{
    return prompt_add(ctx, text, true);
}

static int parse_cost(const char *text, void *at, const char **ret_why)
{
    return units_parse_duration(text, at, ret_why);
}

#define SERVED (-2) /* an option was handled in another way than help */
static int print_version(void *ctx, const char *none)
{
    (void)ctx;
    (void)none;
    puts("kvcache-worker " KVC_VERSION);
    return SERVED;
}

/* ---- the table ---- */

static const struct arg option_table[] = {
    {"The model:", "", ARG_HEADING},
    {"--preset NAME", "random weights: tiny, 125m, 1b, 8b; text is noise, times are true",
     ARG_TEXT(struct options, preset)},
    {"--seed N", "of the random weights (default 1)",
     ARG_COUNT(struct options, seed, 0, UINT32_MAX)},
    {"--model DIR",
     "Llama of Hugging Face: config.json, *.safetensors (fp32, fp16, bf16), tokenizer.json (byte "
     "pairs); client/worker/smollm2.sh makes one",
     ARG_TEXT(struct options, model)},
    {"--chunk N", "tokens that prefill computes at a time (default 256; tiny models 32)",
     ARG_COUNT(struct options, chunk, 1, 65536)},
    {"--threads N", "(default: as many as there are CPUs; tiny models 1)",
     ARG_COUNT(struct options, threads, 1, 1024)},
    {"What it is given; several of --prompt and --tokens are several sequences:", "", ARG_HEADING},
    {"--prompt TEXT",
     "a message by the model's chat template, where it has one; without a tokenizer each byte is a "
     "token",
     ARG_DO(take_prompt), ARG_REPEATS},
    {"--raw", "text as it is, without a template", ARG_FLAG(struct options, raw)},
    {"--tokens 1,2,3", "token ids", ARG_DO(take_tokens), ARG_REPEATS},
    {"--system TEXT", "what the system says before the first prompt, instead of the model's own",
     ARG_TEXT(struct options, system), ARG_EMPTY},
    {"--stdin", "a prompt from standard input", ARG_FLAG(struct options, from_stdin)},
    {"--chat", "line after line, as a conversation in the terminal",
     ARG_FLAG(struct options, chat)},
    {"--new N", "tokens to generate, at most (default 32)",
     ARG_COUNT(struct options, new_tokens, 0, 1 << 20)},
    {"How it keeps K and V:", "", ARG_HEADING},
    {"--strategy NAME", "one of those below (default paged)", ARG_DO(take_strategy)},
    {"--types K:V", "fp32, fp16, bf16, fp8, q8_0, q4_0, int8 (default fp32:fp32)",
     ARG_DO(options_take_types)},
    {"--exact N", "quantised: the last N computed tokens stay fp32 (default 64)",
     ARG_COUNT(struct options, exact, 0, 1 << 20)},
    {"--block N", "tokens of a page, and of a block of the daemon (default 16)",
     ARG_COUNT(struct options, block, 1, KVC_PAGE_TOKENS_MAX)},
    {"--context N", "tokens of the longest sequence (default 4096, or the model's)",
     ARG_COUNT(struct options, context, 1, KVC_PAGE_TOKENS_MAX)},
    {"With a daemon (used when there is one):", "", ARG_HEADING},
    {"--socket PATH",
     "its attach socket (default $KVCACHE_SOCKET, or else /run/kvcache/attach.sock)",
     ARG_TEXT(struct options, socket)},
    {"--no-daemon", "works alone", ARG_FLAG(struct options, no_daemon)},
    {"--conversation NAME", "goes on where the conversation was left, by whatever worker",
     ARG_TEXT(struct options, conversation)},
    {"--document NAME", "the sequence begins with this document, which a worker stored before",
     ARG_TEXT(struct options, document)},
    {"--file PATH", "with --document: makes the document of this text, once for all",
     ARG_TEXT(struct options, file)},
    {"--wait", "waits while another worker computes the same beginning",
     ARG_FLAG(struct options, wait)},
    {"--prefill-cost TIME", "of a token, as in 400us: what is quicker computed is not loaded",
     ARG_PARSE(struct options, prefill_ns, parse_cost)},
    {"Output:", "", ARG_HEADING},
    {"--json", "one object, with tokens and times", ARG_FLAG(struct options, json)},
    {"--quiet", "the text alone", ARG_FLAG(struct options, quiet)},
    {"--help", "this text", ARG_SHOWN},
    {"--version", "", ARG_DO(print_version)},
    {0},
};

static int options_check(const struct options *o)
{
    if (!o->model == !o->preset)
        return args_usage("one of --preset (%s) and --model DIR", model_presets());
    if (o->document && o->conversation)
        return args_usage(
            "--document and --conversation: one of them; a conversation may begin with "
            "a document's text");
    if (o->file && !o->document)
        return args_usage("--file is for a document: give it a name with --document");
    if (o->file && (o->prompts > 0 || o->from_stdin || o->chat))
        return args_usage(
            "--file makes a document and nothing else; then ask: --document %s --prompt "
            "TEXT",
            o->document);
    if (o->system && o->document)
        return args_usage(
            "--system and --document: one of them; a document is what the system says");
    if (o->prompts == 0 && !o->from_stdin && !o->chat && !o->file)
        return args_usage("nothing to compute: --prompt, --tokens, --stdin, --chat, or --file with "
                          "--document");
    if (o->chat && (o->prompts > 0 || o->from_stdin || o->json))
        return args_usage(
            "--chat reads what you type: without --prompt, --tokens, --stdin and --json");
    if (o->conversation && o->prompts + o->from_stdin > 1)
        return args_usage("a conversation goes on with one prompt");
    if (o->no_daemon && (o->conversation || o->document || o->wait || o->strategy->needs_store))
        return args_usage(
            "--no-daemon: conversations, documents, --wait and the strategy 'offloaded' "
            "need one");
    if (o->strategy->forgets && (o->conversation || o->document))
        return args_usage(
            "the strategy 'none' keeps nothing, so it has no conversations and documents");
    return 0;
}

int options_take(int argc, char **argv, struct options *ret_options)
{
    struct options o = {
        .seed = 1, .new_tokens = 32, .strategy = &kv_paged, .exact = 64, .block = 16};
    const struct command_line line = {
        .options = option_table, .base = &o, .help = help, .usage = args_usage};
    int rc = args_take(&line, argc, argv);
    for (const struct kv_strategy *const *s = kv_strategies; rc == -1 && *s; s++)
        printf("      %-11s%s\n", (*s)->name, (*s)->what);
    if (rc < 0)
        return EXIT_GOOD;
    if (rc == 0 && optind < argc)
        rc = args_usage("'%s' is not understood; text is given with --prompt", argv[optind]);
    if (rc == 0)
        rc = options_check(&o);
    if (o.file)
        o.new_tokens = 0;
    *ret_options = o;
    return rc == 0 ? -1 : rc;
}
