/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "json.h"
#include "kv_model.h"
#include "plain.h"
#include "table.h"
#include "units.h"

enum { TIERS = 3 };

#define CONTEXT_MAX  (UINT64_C(1) << 32)
#define PARALLEL_MAX 1000000u

static const char help[] =
    "Usage: kvcachectl size --config FILE --context N [--parallel P] [--kv-type T] [OPTIONS]\n"
    "\n"
    "How large the KV cache of a model is, from the config.json that it is published with; needs "
    "no\n"
    "daemon. For K+V and for what else may be kept of a token to save computing it again: bytes "
    "per\n"
    "token with the formula, bytes per context, how many contexts fit in which memory, and from\n"
    "which bandwidth on loading beats computing.\n"
    "\n"
    "  --config FILE     config.json: Llama, Qwen, Mistral, Gemma, DeepSeek (MLA) and others that\n"
    "                    use the same names; layers that slide or keep a state are told apart\n"
    "  --context N       tokens in a context: 8192, or 8K (1K is 1024)\n"
    "  --parallel P      contexts at a time (default 1)\n"
    "  --kv-type T       fp32, bf16, fp16, fp8, int8 or int4 (default: the model's own, else "
    "bf16);\n"
    "                    int8 and int4 with a scale of 2 bytes for each vector: a head's K or V "
    "of\n"
    "                    one token, a latent, a hidden state\n"
    "  --block-tokens B  tokens in a block; contexts take whole blocks (default 16)\n"
    "  --hbm SIZE        memory of the accelerators, for instance 80GiB; says how many fit\n"
    "  --host SIZE       host memory, likewise\n"
    "  --nvme SIZE       disk, likewise\n"
    "  --prefill-tokens-per-second X\n"
    "                    what computing costs: gives the bandwidth at which loading breaks even\n"
    "  --json            one object\n"
    "\n"
    "Examples:\n"
    "  kvcachectl size --config config.json --context 8192 --parallel 32 --host 256GiB\n"
    "  kvcachectl size --config config.json --context 131072 --kv-type fp8 \\\n"
    "      --hbm 80GiB --host 1TiB --prefill-tokens-per-second 20000\n";

struct size {
    struct ctl *ctl;
    const char *path;
    const struct kv_type *type;
    struct kv_model model;
    uint64_t context, parallel, block_tokens;
    uint64_t tier[TIERS]; /* bytes; 0 = not given */
    double tokens_per_second;
};

static const char *const tier_names[TIERS] = {"hbm", "host", "nvme"};

/* ---- one form ---- */

struct figures {
    uint64_t token, context, all;
    uint64_t fits[TIERS];
    double break_even; /* bytes per second; 0 = no prefill cost was given */
};

static struct figures figures_of(const struct size *s, enum kv_form form)
{
    const struct kv_model *m = &s->model;
    uint32_t layers = form == KV_FORM_HIDDEN ? m->layers : m->full + m->sliding;
    struct figures f = {
        .token = kv_token_bytes(m, form, s->type, layers),
        .context = kv_context_bytes(m, form, s->type, s->context, (uint32_t)s->block_tokens)};
    f.all = f.context * s->parallel;
    for (int i = 0; i < TIERS; i++)
        f.fits[i] = f.context ? s->tier[i] / f.context : 0;
    f.break_even = (double)f.context * s->tokens_per_second / (double)s->context;
    return f;
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
    json_t *fits = json_object();
    for (int i = 0; i < TIERS; i++)
        if (s->tier[i])
            json_object_set_new(fits, tier_names[i], json_integer((json_int_t)f.fits[i]));
    json_object_set_new(o, "contexts_that_fit", fits);
    if (s->tokens_per_second > 0)
        json_object_set_new(o, "break_even_bytes_per_second", json_real(f.break_even));
    return o;
}

static void print_json(const struct size *s)
{
    const struct kv_model *m = &s->model;
    json_t *forms = json_array();
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++)
        json_array_append_new(forms, form_json(s, form));
    json_t *model = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "type", m->name, "layers",
        (json_int_t)m->layers, "full_layers", (json_int_t)m->full, "sliding_layers",
        (json_int_t)m->sliding, "linear_layers", (json_int_t)m->linear, "plain_layers",
        (json_int_t)m->plain, "window", (json_int_t)m->window, "kv_heads", (json_int_t)m->kv_heads,
        "head_size", (json_int_t)m->head_size, "hidden_size", (json_int_t)m->hidden, "kv_lora_rank",
        (json_int_t)m->latent, "qk_rope_head_dim", (json_int_t)m->rope);
    json_print(json_pack("{s:o, s:s, s:I, s:I, s:I, s:I, s:o}", "model", model, "kv_type",
                         s->type->name, "scale_bytes", (json_int_t)s->type->scale_bytes, "context",
                         (json_int_t)s->context, "parallel", (json_int_t)s->parallel,
                         "block_tokens", (json_int_t)s->block_tokens, "forms", forms));
}

/* ---- text ---- */

static void print_model(const struct size *s)
{
    const struct kv_model *m = &s->model;
    char name[sizeof(m->name)];
    snprintf(name, sizeof(name), "%s", m->name);
    printf("%s: %u layers", plain(name), m->layers);
    if (m->sliding || m->linear || m->plain) {
        printf(" (%u full", m->full);
        if (m->sliding)
            printf(", %u with a window of %u tokens", m->sliding, m->window);
        if (m->linear)
            printf(", %u with a state of constant size, which is not counted here", m->linear);
        if (m->plain)
            printf(", %u that keep nothing", m->plain);
        putchar(')');
    }
    if (m->latent)
        printf(", latents of %u and rotary keys of %u elements", m->latent, m->rope);
    else
        printf(", %u KV head%s of %u", m->kv_heads, m->kv_heads == 1 ? "" : "s", m->head_size);
    printf(", hidden size %u\n\n", m->hidden);
}

static void print_letters(const struct size *s)
{
    const struct kv_model *m = &s->model;
    printf("\nn tokens; L layers that keep KV; ");
    if (m->latent)
        printf("r latent, q rotary elements; H heads, k and v elements of a head's key and value, "
               "if latents were expanded; absorbed K is the latents; ");
    else
        printf("H KV heads; d head size; ");
    printf("h hidden size; b bytes of an element in %s", s->type->name);
    if (s->type->scale_bytes)
        printf("; s bytes of a scale");
    puts(".");
    if (m->sliding)
        printf("A context keeps the last %u tokens of the layers that slide, so it is smaller than "
               "its tokens times bytes.\n",
               m->window);
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

static void print_table(const struct size *s)
{
    const char *heads[TABLE_COLUMNS_MAX + 1] = {"KEPT", "FORMULA", ">PER TOKEN", ">ONE CONTEXT"};
    char all[48], fits[TIERS][48];
    size_t n = 4;
    snprintf(all, sizeof(all), ">%" PRIu64 " CONTEXTS", s->parallel);
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

/* A count, or one with K or M behind it, as contexts are named: times 1024, or its square. */
static int take_count(const char *name, const char *text, uint64_t max, uint64_t *ret)
{
    const char *why = "";
    char digits[32];
    uint64_t value;
    size_t n = strlen(text);
    char unit = n > 1 ? text[n - 1] : '\0';
    uint64_t times = unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
    snprintf(digits, sizeof(digits), "%.*s", n < sizeof(digits) ? (int)(n - (times > 1)) : 0, text);
    if (units_parse_count(digits, &value, &why) < 0)
        return ctl_usage("--%s %s: %s", name, text, why);
    value = value > max ? value : value * times;
    if (value < 1 || value > max)
        return ctl_usage("--%s %s: must be from 1 to %" PRIu64, name, text, max);
    *ret = value;
    return 0;
}

static int take_tier(struct size *s, int tier, const char *text)
{
    const char *why = "";
    if (units_parse_bytes(text, &s->tier[tier], &why) < 0)
        return ctl_usage("--%s %s: %s", tier_names[tier], text, why);
    if (s->tier[tier] == 0)
        return ctl_usage("--%s %s: must be more than nothing", tier_names[tier], text);
    return 0;
}

static int take_speed(struct size *s, const char *text)
{
    char *end;
    double x = strtod(text, &end);
    if (end == text || *end != '\0' || !(x > 0 && x <= 1e9))
        return ctl_usage("--prefill-tokens-per-second %s: must be a number above 0, like 20000",
                         text);
    s->tokens_per_second = x;
    return 0;
}

static int take_option(void *ctx, int c, const char *value)
{
    struct size *s = ctx;
    switch (c) {
    case 'c':
        s->path = value;
        return 0;
    case 'n':
        return take_count("context", value, CONTEXT_MAX, &s->context);
    case 'p':
        return take_count("parallel", value, PARALLEL_MAX, &s->parallel);
    case 'b':
        return take_count("block-tokens", value, KVC_BLOCK_TOKENS_MAX, &s->block_tokens);
    case 't':
        s->type = kv_type_find(value);
        return s->type ? 0
                       : ctl_usage("--kv-type %s: not known; there are fp32, bf16, fp16, fp8, int8 "
                                   "and int4",
                                   value);
    case 'x':
        return take_speed(s, value);
    case '0':
    case '1':
    case '2':
        return take_tier(s, c - '0', value);
    default:
        return ctl_usage("an option is not understood");
    }
}

/* Sums beyond what 63 bits hold are of no use to anybody, and would not be printed as they are. */
static bool is_countable(const struct size *s)
{
    double tokens = ((double)s->context + (double)s->block_tokens) * (double)s->parallel;
    for (enum kv_form form = 0; form < KV_FORM_COUNT; form++)
        if ((double)kv_token_bytes(&s->model, form, s->type, s->model.layers) * tokens > 9e18)
            return false;
    return true;
}

static int check(struct size *s, int argc, char **argv)
{
    char why[KV_WHY_BYTES];
    if (optind < argc)
        return ctl_usage("'%s' is not understood; the model's file goes after --config",
                         argv[optind]);
    if (!s->path)
        return ctl_usage("which model? Give its config.json with --config");
    if (!s->context)
        return ctl_usage("how many tokens? Give --context, for instance --context 8192");
    if (kv_model_load(s->path, why, &s->model) < 0)
        return ctl_usage("%s", why);
    if (!s->type)
        s->type = kv_type_find(s->model.dtype[0] ? s->model.dtype : "bf16");
    if (!is_countable(s))
        return ctl_usage("--config %s: %" PRIu64 " contexts of %" PRIu64
                         " tokens of this model are more than 8 EiB",
                         s->path, s->parallel, s->context);
    return 0;
}

int cmd_size(struct ctl *ctl, int argc, char **argv)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"context", required_argument, NULL, 'n'},
        {"parallel", required_argument, NULL, 'p'},
        {"kv-type", required_argument, NULL, 't'},
        {"block-tokens", required_argument, NULL, 'b'},
        {"hbm", required_argument, NULL, '0'},
        {"host", required_argument, NULL, '1'},
        {"nvme", required_argument, NULL, '2'},
        {"prefill-tokens-per-second", required_argument, NULL, 'x'},
        CTL_COMMON_OPTIONS,
        {0}};
    struct size s = {.ctl = ctl, .parallel = 1, .block_tokens = 16};
    int rc = ctl_options(ctl, argc, argv, ":h", options, help, take_option, &s);
    if (rc == 0)
        rc = check(&s, argc, argv);
    if (rc != 0)
        return rc < 0 ? CTL_OK : rc;
    if (ctl->json)
        print_json(&s);
    else
        print_table(&s);
    return CTL_OK;
}
