/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvcachectl size: how large the KV cache of a model is, from its config file or a known model,
 * and how many tokens fit where. Asks no daemon.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "kv_file.h"
#include "kv_model.h"
#include "plain.h"
#include "table.h"
#include "units.h"

enum { TIERS = 3 };

#define CONTEXT_MAX  (UINT64_C(1) << 32)
#define PARALLEL_MAX 1000000u
#define RANKS_MAX    1024u

static const char help[] =
    "Usage: kvcachectl size --config FILE --context N [--parallel P] [--kv-type T] [OPTIONS]\n"
    "\n"
    "Computes the size of a model's KV cache from the config.json that the model is published "
    "with; needs no daemon. For K+V, and for other forms in which a token can be kept so that it "
    "is not computed again, it shows bytes per token with the formula, bytes per context, how many "
    "contexts fit in which memory, and from which bandwidth on loading is quicker than computing.\n"
    "\n" ARGS_HERE "\n"
    "Examples:\n"
    "  kvcachectl size --config config.json --context 8192 --parallel 32 --host 256GiB\n"
    "  kvcachectl size --config config.json --context 131072 --kv-type fp8 \\\n"
    "      --hbm 80GiB --host 1TiB --prefill-tokens-per-second 20000\n";

struct size {
    struct ctl *ctl;
    const char *path;
    const struct kv_type *type;
    struct kv_model model;
    const char *type_from;
    uint64_t context, parallel, block_tokens, tp, pp;
    uint64_t tier[TIERS]; /* bytes; 0 = not given */
    double tokens_per_second;
};

static const char *const tier_names[TIERS] = {"hbm", "host", "nvme"};

/* ---- one form ---- */

struct figures {
    uint64_t token, context, all;
    uint64_t rank; /* bytes of a context in the accelerator that keeps most of it */
    uint64_t fits[TIERS];
    double break_even; /* bytes per second; 0 = no prefill cost was given */
};

static uint64_t ranks(const struct size *s)
{
    return s->tp * s->pp;
}

/* Returns the bytes of a context in all ranks together. *ret_rank: bytes in the rank that keeps
 * most. All ranks that split a layer have the same hidden states, so one copy is counted. */
static uint64_t context_of(const struct size *s, enum kv_form form, uint64_t *ret_rank)
{
    uint64_t sum = 0;
    *ret_rank = 0;
    for (uint32_t i = 0; i < s->pp; i++) {
        struct kv_part part = kv_part_stage(&s->model, (uint32_t)s->tp, (uint32_t)s->pp, i);
        uint64_t one =
            kv_context_bytes(&s->model, form, s->type, s->context, (uint32_t)s->block_tokens, part);
        sum += form == KV_FORM_HIDDEN ? one : one * s->tp;
        *ret_rank = one > *ret_rank ? one : *ret_rank;
    }
    return sum;
}

static struct figures figures_of(const struct size *s, enum kv_form form)
{
    const struct kv_model *m = &s->model;
    struct figures f = {.token = kv_token_bytes(m, form, s->type, kv_part_whole(m))};
    f.context = context_of(s, form, &f.rank);
    f.all = f.context * s->parallel;
    const uint64_t n = ranks(s);
    f.fits[0] = n && f.rank ? s->tier[0] / n / f.rank : 0;
    for (int i = 1; i < TIERS; i++)
        f.fits[i] = f.context ? s->tier[i] / f.context : 0;
    f.break_even = (double)f.context * s->tokens_per_second / (double)s->context;
    return f;
}

/* The longest window; 0 = no layer slides. */
static uint32_t windows(const struct kv_model *m)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < m->layers; i++)
        longest = m->layer[i].window > longest ? m->layer[i].window : longest;
    return longest;
}

/* ---- JSON ---- */

static json_t *form_json(const struct size *s, enum kv_form form)
{
    const char *missing = kv_form_missing(&s->model, form);
    char formula[256];
    if (missing)
        return json_pack("{s:s, s:s}", "form", kv_form_name(form), "missing", missing);
    struct figures f = figures_of(s, form);
    kv_form_formula(&s->model, form, s->type, formula, sizeof(formula));
    json_t *o = json_pack("{s:s, s:s, s:I, s:I, s:I}", "form", kv_form_name(form), "formula",
                          formula, "bytes_per_token", (json_int_t)f.token, "context_bytes",
                          (json_int_t)f.context, "parallel_bytes", (json_int_t)f.all);
    if (ranks(s) > 1)
        json_object_set_new(o, "rank_context_bytes", json_integer((json_int_t)f.rank));
    json_t *fits = json_object();
    for (int i = 0; i < TIERS; i++)
        if (s->tier[i])
            json_object_set_new(fits, tier_names[i], json_integer((json_int_t)f.fits[i]));
    json_object_set_new(o, "contexts_that_fit", fits);
    if (s->tokens_per_second > 0)
        json_object_set_new(o, "break_even_bytes_per_second", json_real(f.break_even));
    return o;
}

/* The properties of the layers that keep KV; null where they differ between layers. */
static json_t *groups_json(const struct kv_model *m, json_t *model)
{
    const struct kv_layer *l, *first = NULL;
    json_t *groups = json_array();
    uint32_t n;
    bool same = true;
    for (unsigned i = 0; kv_model_group(m, i, &l, &n); i++) {
        first = first ? first : l;
        same &= l->kv_heads == first->kv_heads && l->key == first->key && l->value == first->key;
        json_array_append_new(
            groups, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "layers", (json_int_t)n, "window",
                              (json_int_t)l->window, "kv_heads", (json_int_t)l->kv_heads,
                              "key_size", (json_int_t)l->key, "value_size", (json_int_t)l->value,
                              "index_bytes", (json_int_t)l->side));
    }
    same &= first != NULL;
    json_object_set_new(model, "kv_heads", same ? json_integer(first->kv_heads) : json_null());
    json_object_set_new(model, "head_size", same ? json_integer(first->key) : json_null());
    return groups;
}

static json_t *model_json(const struct kv_model *m)
{
    json_t *o = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type", m->name, "layers",
        (json_int_t)m->layers, "full_layers", (json_int_t)kv_model_count(m, KV_FULL),
        "sliding_layers", (json_int_t)kv_model_count(m, KV_SLIDING), "linear_layers",
        (json_int_t)kv_model_count(m, KV_STATE), "plain_layers",
        (json_int_t)kv_model_count(m, KV_NONE), "shared_layers",
        (json_int_t)kv_model_count(m, KV_SHARED), "window", (json_int_t)windows(m), "context",
        (json_int_t)m->context, "hidden_size", (json_int_t)m->hidden, "kv_lora_rank",
        (json_int_t)m->latent, "qk_rope_head_dim", (json_int_t)m->rope);
    json_object_set_new(o, "groups", groups_json(m, o));
    return o;
}

static void size_print_json(const struct size *s)
{
    json_t *forms = json_array();
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++)
        json_array_append_new(forms, form_json(s, form));
    json_print(json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "model",
                         model_json(&s->model), "kv_type", s->type->name, "kv_type_from",
                         s->type_from, "scale_bytes", (json_int_t)s->type->scale_bytes, "context",
                         (json_int_t)s->context, "parallel", (json_int_t)s->parallel, "tp",
                         (json_int_t)s->tp, "pp", (json_int_t)s->pp, "block_tokens",
                         (json_int_t)s->block_tokens, "forms", forms));
}

/* ---- text ---- */

static void print_heads(const struct kv_model *m, const struct kv_layer *l)
{
    if (m->latent)
        printf("latents of %u and rotary keys of %u elements", m->latent, m->rope);
    else if (l->key == l->value)
        printf("%u KV head%s of %u", l->kv_heads, l->kv_heads == 1 ? "" : "s", l->key);
    else
        printf("%u KV head%s of %u and %u", l->kv_heads, l->kv_heads == 1 ? "" : "s", l->key,
               l->value);
    if (l->side)
        printf(" and index keys of %u bytes", l->side);
}

static void print_model(const struct size *s)
{
    static const char *const rest[KV_KINDS] = {
        [KV_STATE] = "with a state of constant size, which is not counted here",
        [KV_NONE] = "that keep nothing",
        [KV_SHARED] = "that use the KV of others"};
    const struct kv_model *m = &s->model;
    const struct kv_layer *l;
    char name[sizeof(m->name)];
    uint32_t n;
    snprintf(name, sizeof(name), "%s", m->name);
    printf("%s: %u layers, hidden size %u\n", plain(name), m->layers, m->hidden);
    for (unsigned i = 0; kv_model_group(m, i, &l, &n); i++) {
        if (l->kind == KV_SLIDING)
            printf("  %u with a window of %u tokens: ", n, l->window);
        else
            printf("  %u full: ", n);
        print_heads(m, l);
        putchar('\n');
    }
    for (enum kv_kind kind = 0; kind < KV_KINDS; kind++)
        if (rest[kind] && kv_model_count(m, kind))
            printf("  %u %s\n", kv_model_count(m, kind), rest[kind]);
    printf("KV in %s, %s.\n\n", s->type->name, s->type_from);
}

static void print_warnings(const struct size *s)
{
    const struct kv_model *m = &s->model;
    if (m->context && s->context > m->context)
        fprintf(stderr,
                "kvcachectl: warning: a context of %" PRIu64 " tokens is more than the %u that the "
                "model was made for\n",
                s->context, m->context);
}

static void print_letters(const struct size *s)
{
    const struct kv_model *m = &s->model;
    printf("\nn tokens; L layers that keep KV; ");
    if (m->latent)
        printf("r latent, q rotary elements; H heads, k and v elements of a head's key and value, "
               "if latents were expanded; absorbed K is the latents; ");
    else
        printf("H KV heads; d head size, or k and v those of a key and a value; ");
    printf("h hidden size; b bytes of an element in %s", s->type->name);
    if (s->type->scale_bytes)
        printf("; s bytes of a scale");
    puts(".");
    if (windows(m))
        printf("A context keeps the last %u tokens of the layers that slide, so it is smaller than "
               "its tokens times bytes.\n",
               windows(m));
    if (ranks(s) > 1)
        printf("One context is the sum of %" PRIu64 " accelerators (tp %" PRIu64 ", pp %" PRIu64
               "); what they cannot split is in each of them. The largest rank is what the fullest "
               "one keeps of it.\n",
               ranks(s), s->tp, s->pp);
    if (s->tokens_per_second > 0)
        puts("Loading hidden states or absorbed K leaves something to compute, which the bandwidth "
             "at which loading wins leaves out.");
    printf("Contexts take whole blocks of %" PRIu64 " tokens.\n", s->block_tokens);
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++)
        if (kv_form_missing(m, form))
            printf("No %s: %s.\n", kv_form_name(form), kv_form_missing(m, form));
}

static void add_fits(const struct size *s, struct table *table, const struct figures *f)
{
    char n[UNITS_COUNT_BYTES];
    for (int i = 0; i < TIERS; i++)
        if (s->tier[i])
            table_cell(table, "%s%s", f->fits[i] ? units_format_count(f->fits[i], n) : "none",
                       f->fits[i] && f->fits[i] < s->parallel ? " (too few)" : "");
}

static void size_print_table(const struct size *s)
{
    const char *heads[TABLE_COLUMNS_MAX + 1] = {"KEPT", "FORMULA", ">PER TOKEN", ">ONE CONTEXT"};
    static const char rank[] = ">LARGEST RANK";
    char all[48], fits[TIERS][48];
    size_t n = 4;
    snprintf(all, sizeof(all), ">%" PRIu64 " CONTEXTS", s->parallel);
    if (ranks(s) > 1)
        heads[n++] = rank;
    if (s->parallel > 1)
        heads[n++] = all;
    for (int i = 0; i < TIERS; i++) {
        char size[UNITS_COUNT_BYTES];
        snprintf(fits[i], sizeof(fits[i]), ">FIT IN %s OF %s", tier_names[i],
                 units_exact_bytes(s->tier[i], size));
        if (s->tier[i])
            heads[n++] = fits[i];
    }
    if (s->tokens_per_second > 0)
        heads[n++] = ">LOADING WINS ABOVE";
    print_model(s);
    struct table *table = table_create(heads);
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++) {
        if (kv_form_missing(&s->model, form))
            continue;
        char text[256], size[UNITS_TEXT_BYTES];
        struct figures f = figures_of(s, form);
        kv_form_formula(&s->model, form, s->type, text, sizeof(text));
        table_cell(table, "%s", kv_form_name(form));
        table_cell(table, "%s", text);
        table_cell(table, "%s", units_format_bytes(f.token, size));
        table_cell(table, "%s", units_format_bytes(f.context, size));
        if (ranks(s) > 1)
            table_cell(table, "%s", units_format_bytes(f.rank, size));
        if (s->parallel > 1)
            table_cell(table, "%s", units_format_bytes(f.all, size));
        add_fits(s, table, &f);
        if (s->tokens_per_second > 0)
            table_cell(table, "%s", units_format_rate((uint64_t)f.break_even, size));
    }
    table_print(table, stdout, s->ctl->colour);
    table_destroy(&table);
    print_letters(s);
}

/* ---- the command ---- */

/* Parses a speed of prefill, in tokens per second. */
static int parse_speed(const char *text, void *at, const char **ret_why)
{
    *ret_why = "must be a number above 0, like 20000";
    return args_is_number(text, 0, 1e9, at) && *(double *)at > 0 ? 0 : -EINVAL;
}

static int take_type(void *ctx, const char *name)
{
    struct size *s = ctx;
    s->type_from = "as --kv-type says";
    s->type = kv_type_find(name);
    return s->type ? 0
                   : ctl_usage("--kv-type %s: not known; there are fp32, bf16, fp16, fp8, int8 "
                               "and int4",
                               name);
}

static const struct arg option_table[] = {
    {"--config FILE",
     "config.json: Llama, Qwen, Mistral, Gemma, DeepSeek (MLA) and others that use the same names, "
     "layer by layer; a key that may change the size and is not understood is refused by its name",
     ARG_TEXT(struct size, path)},
    {"--context N", "tokens in a context: 8192, or 8K (1K is 1024)",
     ARG_KILO(struct size, context, 1, CONTEXT_MAX)},
    {"--parallel P", "contexts at a time (default 1)",
     ARG_KILO(struct size, parallel, 1, PARALLEL_MAX)},
    {"--kv-type T",
     "fp32, bf16, fp16, fp8, int8 or int4 (default: what the file says of KV, else the model's "
     "own, else bf16); int8 and int4 with a scale of 2 bytes for each vector: a head's K or V of "
     "one token, a latent, a hidden state",
     ARG_DO(take_type)},
    {"--tp N",
     "accelerators that split the heads of a layer (default 1); heads that are too few, latents "
     "and index keys are in each of them",
     ARG_KILO(struct size, tp, 1, RANKS_MAX)},
    {"--pp N", "stages that split the layers (default 1)", ARG_KILO(struct size, pp, 1, RANKS_MAX)},
    {"--block-tokens B", "tokens in a block; contexts take whole blocks (default 16)",
     ARG_KILO(struct size, block_tokens, 1, KVC_BLOCK_TOKENS_MAX)},
    {"--hbm SIZE", "memory of all accelerators, for instance 80GiB; shows how many contexts fit",
     ARG_BYTES(struct size, tier[0], 1, UINT64_MAX)},
    {"--host SIZE", "host memory; shows how many contexts fit",
     ARG_BYTES(struct size, tier[1], 1, UINT64_MAX)},
    {"--nvme SIZE", "disk; shows how many contexts fit",
     ARG_BYTES(struct size, tier[2], 1, UINT64_MAX)},
    {"--prefill-tokens-per-second X",
     "speed of computing a prompt; shows the bandwidth from which on loading is quicker",
     ARG_PARSE(struct size, tokens_per_second, parse_speed)},
    {"--json", "one object", ARG_SHOWN},
    {0},
};

/* Whether all sums fit 63 bits; larger ones could not be printed correctly. */
static bool is_countable(const struct size *s)
{
    double tokens =
        ((double)s->context + (double)s->block_tokens) * (double)s->parallel * (double)ranks(s);
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++)
        if (!kv_form_missing(&s->model, form) &&
            (double)kv_token_bytes(&s->model, form, s->type, kv_part_whole(&s->model)) * tokens >
                9e18)
            return false;
    return true;
}

static int choose_type(struct size *s)
{
    static char from[sizeof(s->model.stated) + 32];
    if (s->type)
        return 0;
    if (s->model.unsized)
        return ctl_usage(
            "--config %s: %s keeps KV in a type that has no name here; choose one with "
            "--kv-type",
            s->path, s->model.stated);
    s->type = kv_type_find(s->model.dtype[0] ? s->model.dtype : "bf16");
    if (s->model.stated[0])
        snprintf(from, sizeof(from), "as %s in the file says", s->model.stated);
    else
        snprintf(from, sizeof(from), "as the file names no type");
    s->type_from = from;
    return 0;
}

static int check_ranks(const struct size *s)
{
    uint32_t heads = 0;
    if (s->pp > s->model.layers)
        return ctl_usage("--pp %" PRIu64 ": must be at most the %u layers", s->pp, s->model.layers);
    if (!kv_model_splits(&s->model, (uint32_t)s->tp, &heads))
        return ctl_usage("--tp %" PRIu64 ": must divide the %u heads of a layer, or be a multiple "
                         "of them",
                         s->tp, heads);
    return 0;
}

static int size_check(struct size *s, int argc, char **argv)
{
    char why[KV_WHY_BYTES];
    if (optind < argc)
        return ctl_usage("'%s' is not understood; the model's file goes after --config",
                         argv[optind]);
    if (!s->path)
        return ctl_usage("which model? Give its config.json with --config");
    if (!s->context)
        return ctl_usage("how many tokens? Give --context, for instance --context 8192");
    if (kv_file_load(s->path, why, &s->model) < 0)
        return ctl_usage("%s", why);
    if (kv_model_caching_layers(&s->model) == 0)
        return ctl_usage("--config %s: model_type: %s keeps states of constant size and no KV; "
                         "expected a model that attends",
                         s->path, s->model.name);
    int rc = choose_type(s);
    if (rc == 0)
        rc = check_ranks(s);
    if (rc != 0)
        return rc;
    if (!is_countable(s))
        return ctl_usage("--config %s: %" PRIu64 " contexts of %" PRIu64
                         " tokens of this model are more than 8 EiB",
                         s->path, s->parallel, s->context);
    return 0;
}

int cmd_size(struct ctl *ctl, int argc, char **argv)
{
    struct size s = {.ctl = ctl, .parallel = 1, .block_tokens = 16, .tp = 1, .pp = 1};
    int rc = ctl_options(ctl, argc, argv, option_table, help, &s);
    if (rc == 0)
        rc = size_check(&s, argc, argv);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    print_warnings(&s);
    if (ctl->json)
        size_print_json(&s);
    else
        size_print_table(&s);
    return CTL_OK;
}
