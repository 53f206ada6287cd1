/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "near.h"
#include "options.h"
#include "plain.h"
#include "units.h"

static const char help_head[] =
    "Usage: kvcache-worker (--preset NAME | --model DIR) [OPTIONS]\n"
    "\n"
    "A transformer of the Llama architecture that keeps its KV cache as you say, and reads what\n"
    "kvcache-daemon has of a prompt where it lies. It says how long the first token took.\n"
    "\n"
    "The model:\n"
    "  --preset NAME    random weights: tiny, 125m, 1b, 8b; text is noise, times are true\n"
    "  --seed N         of the random weights (default 1)\n"
    "  --model DIR      Llama of Hugging Face: config.json, *.safetensors (fp32, fp16, bf16),\n"
    "                   tokenizer.json (byte pairs); client/worker/smollm2.sh makes one\n"
    "  --chunk N        tokens that prefill computes at a time (default 256; tiny models 32)\n"
    "  --threads N      (default: as many as there are CPUs; tiny models 1)\n"
    "\n"
    "What it is given; several of --prompt and --tokens are several sequences:\n"
    "  --prompt TEXT    a message by the model's chat template, where it has one; without a\n"
    "                   tokenizer each byte is a token\n"
    "  --raw            text as it is, without a template\n"
    "  --tokens 1,2,3   token ids\n"
    "  --system TEXT    what the system says before the first prompt, instead of the model's own\n"
    "  --stdin          a prompt from standard input\n"
    "  --chat           line after line, as a conversation in the terminal\n"
    "  --new N          tokens to generate, at most (default 32)\n"
    "\n"
    "How it keeps K and V:\n"
    "  --strategy NAME  (default paged)\n";
static const char help_tail[] =
    "  --types K:V      fp32, fp16, bf16, fp8, q8_0, q4_0, int8 (default fp32:fp32)\n"
    "  --exact N        quantised: the last N computed tokens stay fp32 (default 64)\n"
    "  --block N        tokens of a page, and of a block of the daemon (default 16)\n"
    "  --context N      tokens of the longest sequence (default 4096, or the model's)\n"
    "\n"
    "With a daemon (used when there is one):\n"
    "  --socket PATH    its attach socket (default $KVCACHE_SOCKET, or else\n"
    "                   /run/kvcache/attach.sock)\n"
    "  --no-daemon      works alone\n"
    "  --conversation NAME  goes on where the conversation was left, by whatever worker\n"
    "  --document NAME  the sequence begins with this document, which a worker stored before\n"
    "  --file PATH      with --document: makes the document of this text, once for all\n"
    "  --wait           waits while another worker computes the same beginning\n"
    "  --prefill-cost TIME  of a token, as in 400us: what is quicker computed is not loaded\n"
    "\n"
    "Output:\n"
    "  --json           one object, with tokens and times\n"
    "  --quiet          the text alone\n"
    "  --help  --version\n"
    "\n"
    "Exit codes: 0 good, 1 an error, 2 usage, 3 no daemon where one is needed.\n"
    "\n"
    "Examples:\n"
    "  kvcache-worker --preset 125m --prompt Hello --new 16\n"
    "  kvcache-worker --preset 125m --file manual.txt --document manual\n"
    "  kvcache-worker --preset 125m --document manual --prompt 'How?'\n"
    "  kvcache-worker --model build/models/SmolLM2-135M-Instruct --conversation anna --chat\n";

void worker_say(const char *format, ...)
{
    va_list args;
    (void)fflush(stdout);
    fputs("kvcache-worker: ", stderr);
    va_start(args, format);
    plain_line(stderr, format, args);
    va_end(args);
}

#define USAGE(...) \
    (worker_say(__VA_ARGS__), fputs("Try 'kvcache-worker --help'.\n", stderr), EXIT_USAGE)

/* ---- values ---- */

static int options_take_count(const char *name, const char *text, uint64_t least, uint64_t most,
                              uint32_t *ret_value)
{
    const char *why = "";
    uint64_t n = 0;
    if (units_parse_count(text, &n, &why) < 0)
        return USAGE("--%s %s: %s", name, text, why);
    if (n < least || n > most)
        return USAGE("--%s %s: must be from %ju to %ju", name, text, (uintmax_t)least,
                     (uintmax_t)most);
    *ret_value = (uint32_t)n;
    return -1;
}

static int take_strategy(struct options *o, const char *text)
{
    struct near near = near_to(text);
    for (const struct kv_strategy *const *s = kv_strategies; *s; s++) {
        near_offer(&near, (*s)->name);
        if (strcmp((*s)->name, text) == 0) {
            o->strategy = *s;
            return -1;
        }
    }
    if (near.best)
        return USAGE("no strategy '%s'; did you mean '%s'?", text, near.best);
    return USAGE("no strategy '%s'; --help lists them", text);
}

static int options_take_types(struct options *o, const char *text)
{
    if (kv_types_parse(text, &o->k_type, &o->v_type) == 0)
        return -1;
    return USAGE("--types: no type '%s'; there are fp32, fp16, bf16, fp8, q8_0, q4_0, int8, or two "
                 "of them for K and V, as in q8_0:q4_0",
                 text);
}

static int take_prompt(struct options *o, const char *text, bool ids)
{
    if (o->prompts == OPTIONS_PROMPTS_MAX)
        return USAGE("more than %u prompts", OPTIONS_PROMPTS_MAX);
    o->prompt[o->prompts].text = text;
    o->prompt[o->prompts++].ids = ids;
    return -1;
}

static int take_cost(struct options *o, const char *text)
{
    const char *why = "";
    return units_parse_duration(text, &o->prefill_ns, &why) < 0
               ? USAGE("--prefill-cost %s: %s", text, why)
               : -1;
}

/* ---- the table ---- */

enum {
    O_PRESET = 256,
    O_SEED,
    O_MODEL,
    O_CHUNK,
    O_THREADS,
    O_PROMPT,
    O_TOKENS,
    O_STDIN,
    O_CHAT,
    O_RAW,
    O_SYSTEM,
    O_NEW,
    O_STRATEGY,
    O_TYPES,
    O_EXACT,
    O_BLOCK,
    O_CONTEXT,
    O_SOCKET,
    O_NO_DAEMON,
    O_CONVERSATION,
    O_DOCUMENT,
    O_FILE,
    O_WAIT,
    O_COST,
    O_JSON,
    O_QUIET,
    O_VERSION
};

static const struct option table[] = {{"preset", required_argument, NULL, O_PRESET},
                                      {"seed", required_argument, NULL, O_SEED},
                                      {"model", required_argument, NULL, O_MODEL},
                                      {"chunk", required_argument, NULL, O_CHUNK},
                                      {"threads", required_argument, NULL, O_THREADS},
                                      {"prompt", required_argument, NULL, O_PROMPT},
                                      {"tokens", required_argument, NULL, O_TOKENS},
                                      {"stdin", no_argument, NULL, O_STDIN},
                                      {"chat", no_argument, NULL, O_CHAT},
                                      {"system", required_argument, NULL, O_SYSTEM},
                                      {"raw", no_argument, NULL, O_RAW},
                                      {"new", required_argument, NULL, O_NEW},
                                      {"strategy", required_argument, NULL, O_STRATEGY},
                                      {"types", required_argument, NULL, O_TYPES},
                                      {"exact", required_argument, NULL, O_EXACT},
                                      {"block", required_argument, NULL, O_BLOCK},
                                      {"context", required_argument, NULL, O_CONTEXT},
                                      {"socket", required_argument, NULL, O_SOCKET},
                                      {"no-daemon", no_argument, NULL, O_NO_DAEMON},
                                      {"conversation", required_argument, NULL, O_CONVERSATION},
                                      {"document", required_argument, NULL, O_DOCUMENT},
                                      {"file", required_argument, NULL, O_FILE},
                                      {"wait", no_argument, NULL, O_WAIT},
                                      {"prefill-cost", required_argument, NULL, O_COST},
                                      {"json", no_argument, NULL, O_JSON},
                                      {"quiet", no_argument, NULL, O_QUIET},
                                      {"help", no_argument, NULL, 'h'},
                                      {"version", no_argument, NULL, O_VERSION},
                                      {0}};

static int options_refuse(char **argv)
{
    const char *text = argv[optind - 1];
    char name[64];
    if (strncmp(text, "--", 2) != 0)
        return USAGE("'%s' is not understood", text);
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 2, "="), text + 2);
    struct near near = near_to(name);
    for (const struct option *o = table; o->name; o++)
        near_offer(&near, o->name);
    if (near.best && strcmp(near.best, name) != 0)
        return USAGE("'%s' is not understood; did you mean --%s?", text, near.best);
    return USAGE("'%s' is not understood", text);
}

static int serve_help(void)
{
    fputs(help_head, stdout);
    for (const struct kv_strategy *const *s = kv_strategies; *s; s++)
        printf("      %-11s%s\n", (*s)->name, (*s)->what);
    fputs(help_tail, stdout);
    return EXIT_GOOD;
}

static int options_take_number(struct options *o, int c, const char *value)
{
    uint32_t seed = 0;
    int rc = -1;
    switch (c) {
    case O_SEED:
        rc = options_take_count("seed", value, 0, UINT32_MAX, &seed);
        o->seed = seed;
        return rc;
    case O_CHUNK:
        return options_take_count("chunk", value, 1, 65536, &o->chunk);
    case O_THREADS:
        return options_take_count("threads", value, 1, 1024, &o->threads);
    case O_NEW:
        return options_take_count("new", value, 0, 1 << 20, &o->new_tokens);
    case O_EXACT:
        return options_take_count("exact", value, 0, 1 << 20, &o->exact);
    case O_BLOCK:
        return options_take_count("block", value, 1, KVC_PAGE_TOKENS_MAX, &o->block);
    default:
        return options_take_count("context", value, 1, KVC_PAGE_TOKENS_MAX, &o->context);
    }
}

static int take_word(struct options *o, int c, const char *value, char **argv)
{
    const struct {
        int c;
        const char **text;
    } texts[] = {{O_PRESET, &o->preset},     {O_MODEL, &o->model},
                 {O_SOCKET, &o->socket},     {O_CONVERSATION, &o->conversation},
                 {O_DOCUMENT, &o->document}, {O_FILE, &o->file},
                 {O_SYSTEM, &o->system}};
    const struct {
        int c;
        bool *flag;
    } flags[] = {{O_STDIN, &o->from_stdin}, {O_CHAT, &o->chat}, {O_NO_DAEMON, &o->no_daemon},
                 {O_WAIT, &o->wait},        {O_JSON, &o->json}, {O_QUIET, &o->quiet},
                 {O_RAW, &o->raw}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].c == c) {
            *texts[i].text = value;
            return -1;
        }
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (flags[i].c == c) {
            *flags[i].flag = true;
            return -1;
        }
    switch (c) {
    case O_PROMPT:
    case O_TOKENS:
        return take_prompt(o, value, c == O_TOKENS);
    case O_STRATEGY:
        return take_strategy(o, value);
    case O_TYPES:
        return options_take_types(o, value);
    case O_COST:
        return take_cost(o, value);
    case O_VERSION:
        puts("kvcache-worker " KVC_VERSION);
        return EXIT_GOOD;
    case 'h':
        return serve_help();
    case ':':
        return USAGE("%s needs a value", argv[optind - 1]);
    case '?':
        return options_refuse(argv);
    default:
        return options_take_number(o, c, value);
    }
}

static int options_check(const struct options *o)
{
    if (!o->model == !o->preset)
        return USAGE("one of --preset (%s) and --model DIR", model_presets());
    if (o->document && o->conversation)
        return USAGE("--document and --conversation: one of them; a conversation may begin with "
                     "a document's text");
    if (o->file && !o->document)
        return USAGE("--file is for a document: give it a name with --document");
    if (o->file && (o->prompts > 0 || o->from_stdin || o->chat))
        return USAGE("--file makes a document and nothing else; then ask: --document %s --prompt "
                     "TEXT",
                     o->document);
    if (o->system && o->document)
        return USAGE("--system and --document: one of them; a document is what the system says");
    if (o->prompts == 0 && !o->from_stdin && !o->chat && !o->file)
        return USAGE("nothing to compute: --prompt, --tokens, --stdin, --chat, or --file with "
                     "--document");
    if (o->chat && (o->prompts > 0 || o->from_stdin || o->json))
        return USAGE("--chat reads what you type: without --prompt, --tokens, --stdin and --json");
    if (o->conversation && o->prompts + o->from_stdin > 1)
        return USAGE("a conversation goes on with one prompt");
    if (o->no_daemon && (o->conversation || o->document || o->wait || o->strategy->needs_store))
        return USAGE("--no-daemon: conversations, documents, --wait and the strategy 'offloaded' "
                     "need one");
    if (o->strategy->forgets && (o->conversation || o->document))
        return USAGE("the strategy 'none' keeps nothing, so it has no conversations and documents");
    return -1;
}

int options_take(int argc, char **argv, struct options *ret_options)
{
    struct options o = {
        .seed = 1, .new_tokens = 32, .strategy = &kv_paged, .exact = 64, .block = 16};
    int c, rc = -1;
    opterr = 0;
    while (rc < 0 && (c = getopt_long(argc, argv, ":h", table, NULL)) != -1)
        rc = take_word(&o, c, optarg, argv);
    if (rc < 0 && optind < argc)
        rc = USAGE("'%s' is not understood; text is given with --prompt", argv[optind]);
    if (rc < 0)
        rc = options_check(&o);
    if (o.file)
        o.new_tokens = 0;
    *ret_options = o;
    return rc;
}
