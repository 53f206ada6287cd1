/* SPDX-License-Identifier: Apache-2.0 */
#include "args.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "plain.h"
#include "similar.h"
#include "units.h"

#define ROWS_MAX    48u /* of a command and its program together */
#define NAME_BYTES  48u
#define HELP_COLUMN 96u /* help texts are wrapped there */
#define SPEC_WIDE   20u /* the help of an option that is longer begins on the next line */

/* getopt_long's table, and the row and struct that each entry belongs to. */
struct lookup {
    struct option option[ROWS_MAX + 2];
    char name[ROWS_MAX][NAME_BYTES];
    const struct arg *row[ROWS_MAX];
    void *base[ROWS_MAX];
    bool given[ROWS_MAX];
    const char *value[ROWS_MAX]; /* of those that were given; NULL: without */
    unsigned n;
};

static void lookup_add(struct lookup *l, const struct arg *rows, void *base)
{
    for (const struct arg *a = rows; a && a->spec; a++) {
        if (a->kind == ARGS_SHOWN || a->kind == ARGS_HEADING)
            continue;
        const size_t len = strcspn(a->spec + 2, " [");
        if (l->n == ROWS_MAX || len >= NAME_BYTES)
            abort(); /* the program's own table */
        (void)snprintf(l->name[l->n], NAME_BYTES, "%.*s", (int)len, a->spec + 2);
        const char *after = a->spec + 2 + len;
        l->option[l->n] = (struct option){
            .name = l->name[l->n],

            .has_arg = after[0] == '\0'                                  ? no_argument
                       : strchr(after, '[') == after + (after[0] == ' ') ? optional_argument
                                                                         : required_argument,
            .val = 256 + (int)l->n};
        l->row[l->n] = a;
        l->base[l->n++] = base;
    }
}

/* How many options begin with this, and "--ONE, --OTHER". */
static unsigned options_beginning(const struct lookup *l, const char *name, char *ret_list,
                                  size_t size)
{
    const size_t len = strlen(name);
    unsigned n = 0;
    ret_list[0] = '\0';
    for (const struct option *o = l->option; len > 0 && o->name; o++) {
        if (strncmp(o->name, name, len) != 0)
            continue;
        const size_t used = strlen(ret_list);
        (void)snprintf(ret_list + used, size - used, "%s--%s", n > 0 ? ", " : "", o->name);
        n++;
    }
    return n;
}

static int refuse_unknown(const struct lookup *l, const char *text, args_usage_fn *usage)
{
    char name[64], list[ROWS_MAX * 16];
    if (strncmp(text, "--", 2) != 0)
        return usage("'%s' is not understood", text);
    (void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(text + 2, "="), text + 2);
    if (options_beginning(l, name, list, sizeof(list)) > 1)
        return usage("'%s' is ambiguous: %s", text, list);
    struct similar similar = similar_to(name);
    for (const struct option *o = l->option; o->name; o++)
        similar_offer(&similar, o->name);
    if (similar.best && strcmp(similar.best, name) == 0)
        return usage("'%s' is not understood: --%s takes no value", text, name);
    if (similar.best)
        return usage("'%s' is not understood; did you mean --%s?", text, similar.best);
    return usage("'%s' is not understood", text);
}

/* The word with the option that getopt has just refused. It stays at a word of several letters, as
 * in -xyz, until it has gone through them. */
static const char *refused_word(char **argv)
{
    const char *last = argv[optind - 1], *next = argv[optind];
    const char letter = (char)optopt; /* 0 or a number above all letters: it was a long option */
    const bool is_letter = optopt != 0 && optopt < 256;
    const bool in_last =
        last[0] == '-' && (strchr(last, '=') != NULL || last[strlen(last) - 1] == letter);
    const bool in_next = next != NULL && next[0] == '-' && next[1] != '-' && is_letter &&
                         strchr(next + 1, letter) != NULL;
    return in_next && !in_last ? next : last;
}

int args_usage(const char *format, ...)
{
    va_list args;
    (void)fflush(stdout);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    va_start(args, format);
    plain_line(stderr, format, args);
    va_end(args);
    fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
    return 2;
}

/* A value that is not from `low` to `high`; `open`: only low is a bound. */
static int out_of_range(args_usage_fn *usage, const char *name, const char *text, const char *low,
                        const char *high, bool open)
{
    if (open)
        return usage("--%s %s: must be at least %s", name, text, low);
    return usage("--%s %s: must be from %s to %s", name, text, low, high);
}

static int count_out_of_range(args_usage_fn *usage, const char *name, const char *text,
                              uint64_t min, uint64_t max)
{
    return usage("--%s %s: must be from %ju to %ju", name, text, (uintmax_t)min, (uintmax_t)max);
}

int args_count(args_usage_fn *usage, const char *name, const char *text, uint64_t min, uint64_t max,
               uint64_t *ret)
{
    const char *why = "";
    uint64_t value;
    if (units_parse_count(text, &value, &why) < 0)
        return usage("--%s %s: %s", name, text, why);
    if (value < min || value > max)
        return count_out_of_range(usage, name, text, min, max);
    *ret = value;
    return 0;
}

int args_bytes(args_usage_fn *usage, const char *name, const char *text, uint64_t min, uint64_t max,
               uint64_t *ret)
{
    char low[UNITS_COUNT_BYTES], high[UNITS_COUNT_BYTES];
    const char *why = "";
    uint64_t value;
    if (units_parse_bytes(text, &value, &why) < 0)
        return usage("--%s %s: %s", name, text, why);
    if (value < min || value > max)
        return out_of_range(usage, name, text, units_exact_bytes(min, low),
                            units_exact_bytes(max, high), max == UINT64_MAX);
    *ret = value;
    return 0;
}

static int args_ms(args_usage_fn *usage, const char *name, const char *text, uint64_t min,
                   uint64_t max, uint64_t *ret)
{
    char low[UNITS_COUNT_BYTES], high[UNITS_COUNT_BYTES];
    const char *why = "";
    uint64_t ns;
    if (units_parse_duration(text, &ns, &why) < 0)
        return usage("--%s %s: %s", name, text, why);
    if (ns / 1000000 < min || ns / 1000000 > max)
        return out_of_range(usage, name, text, units_exact_duration(min * 1000000, low),
                            units_exact_duration(max * 1000000, high), max == UINT64_MAX);
    *ret = ns / 1000000;
    return 0;
}

bool args_is_number(const char *text, double low, double high, double *ret)
{
    char *end;
    errno = 0;
    const double value = strtod(text, &end);
    if (end == text || *end != '\0' || errno != 0 || !isfinite(value) || value < low ||
        value > high)
        return false;
    *ret = value;
    return true;
}

static int args_number(args_usage_fn *usage, const char *name, const char *text, double low,
                       double high, double *ret)
{
    if (!args_is_number(text, low, high, ret))
        return usage("--%s %s: must be a number from %g to %g", name, text, low, high);
    return 0;
}

/* A count that may end in K or M. */
static int take_kilo(const struct arg *a, const char *name, const char *text, uint64_t *ret,
                     args_usage_fn *usage)
{
    const char *why = "";
    char digits[32];
    const size_t n = strlen(text);
    const char unit = n > 1 ? text[n - 1] : '\0';
    const uint64_t times = unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1;
    (void)snprintf(digits, sizeof(digits), "%.*s", n < sizeof(digits) ? (int)(n - (times > 1)) : 0,
                   text);
    if (units_parse_count(digits, ret, &why) < 0)
        return usage("--%s %s: %s", name, text, why);
    *ret = *ret > a->max ? *ret : *ret * times;
    if (*ret < a->min || *ret > a->max)
        return count_out_of_range(usage, name, text, a->min, a->max);
    return 0;
}

static int take_uint(const struct arg *a, const char *name, const char *text, void *at,
                     args_usage_fn *usage)
{
    uint64_t value = 0;
    int rc;
    if (a->kind == ARGS_COUNT)
        rc = args_count(usage, name, text, a->min, a->max, &value);
    else if (a->kind == ARGS_KILO)
        rc = take_kilo(a, name, text, &value, usage);
    else if (a->kind == ARGS_BYTES)
        rc = args_bytes(usage, name, text, a->min, a->max, &value);
    else
        rc = args_ms(usage, name, text, a->min, a->max, &value);
    if (rc != 0)
        return rc;
    if (a->size == sizeof(uint32_t))
        *(uint32_t *)at = (uint32_t)value;
    else
        *(uint64_t *)at = value;
    return 0;
}

static int take_row(const struct arg *a, const char *name, void *base, args_usage_fn *usage)
{
    void *at = (char *)base + a->offset;
    const char *why = "";
    switch (a->kind) {
    case ARGS_FLAG:
        *(bool *)at = true;
        return 0;
    case ARGS_TEXT:
        if (a->max != 0 && (optarg[0] == '\0' || strlen(optarg) > a->max))
            return usage("--%s '%s': must be a name of 1 to %ju bytes", name, optarg,
                         (uintmax_t)a->max);
        if (optarg[0] == '\0' && !a->empty)
            return usage("--%s: its value is empty", name);
        *(const char **)at = optarg;
        return 0;
    case ARGS_COUNT:
    case ARGS_KILO:
    case ARGS_BYTES:
    case ARGS_MS:
        return take_uint(a, name, optarg, at, usage);
    case ARGS_NUMBER:
        return args_number(usage, name, optarg, a->low, a->high, at);
    case ARGS_PARSE:
        return a->parse(optarg, at, &why) < 0 ? usage("--%s %s: %s", name, optarg, why) : 0;
    case ARGS_DO:
        return a->take(at, optarg);
    case ARGS_HEADING:
    case ARGS_SHOWN:
        break;
    }
    abort(); /* lookup_add() leaves these out */
}

/* Whether both set the same thing. */
static bool sets_same(const struct lookup *l, unsigned a, unsigned b)
{
    const struct arg *x = l->row[a], *y = l->row[b];
    return a == b || (x->take == y->take && l->base[a] == l->base[b] && x->offset == y->offset);
}

/* An option that was given before, by this or another name. */
static int refuse_second(const struct lookup *l, unsigned i, args_usage_fn *usage)
{
    if (l->option[i].has_arg == no_argument || l->row[i]->repeats)
        return 0;
    for (unsigned k = 0; k < l->n; k++)
        if (l->given[k] && sets_same(l, k, i))
            return usage("--%s%s%s and --%s%s%s: which of them?", l->name[k],
                         l->value[k] ? " " : "", l->value[k] ? l->value[k] : "", l->name[i],
                         optarg ? " " : "", optarg ? optarg : "");
    return 0;
}

/* One that getopt has just found; the word with its name is in argv before `optind`. */
static int take_option(struct lookup *l, unsigned i, char **argv, args_usage_fn *usage)
{
    const char *word = argv[optind - 1];
    if (optarg == word) /* its value: the name stands before it */
        word = argv[optind - 2];
    if (l->row[i]->whole_name && strcspn(word + 2, "=") != strlen(l->name[i]))
        return usage("'%s': write --%s in full", word, l->name[i]);
    const int rc = refuse_second(l, i, usage);
    if (rc != 0)
        return rc;
    l->given[i] = true;
    l->value[i] = optarg;
    return take_row(l->row[i], l->name[i], l->base[i], usage);
}

static void lookup_print(const struct lookup *l)
{
    for (unsigned i = 0; i < l->n; i++)
        puts(l->row[i]->spec);
    puts("--help");
}

int args_take(const struct command_line *line, int argc, char **argv)
{
    struct lookup l = {.n = 0};
    if (line->base != NULL)
        lookup_add(&l, line->options, line->base);
    lookup_add(&l, line->shared, line->shared_base);
    /* Not a row of the table: no abbreviation becomes ambiguous by it. */
    if (argc == 2 && strcmp(argv[1], "--list-options") == 0) {
        lookup_print(&l);
        return -1;
    }
    l.option[l.n] = (struct option){"help", no_argument, NULL, 'h'};
    optind = 0; /* glibc: start anew */
    opterr = 0;
    for (int c;
         (c = getopt_long(argc, argv, line->stop_early ? "+:h" : ":h", l.option, NULL)) != -1;) {
        if (c == 'h') {
            args_help(stdout, line->help, line->options ? line->options : line->shared);
            return -1;
        }
        if (c == ':')
            return line->usage("%s needs a value", argv[optind - 1]);
        if (c == '?')
            return refuse_unknown(&l, refused_word(argv), line->usage);
        const int rc = take_option(&l, (unsigned)c - 256, argv, line->usage);
        if (rc != 0)
            return rc;
    }
    if (line->no_operands && optind < argc)
        return line->usage("'%s' is not understood", argv[optind]);
    return 0;
}

int args_take_only(const struct arg *options, void *base, const char *help, args_usage_fn *usage,
                   int argc, char **argv)
{
    const struct command_line line = {
        .options = options, .base = base, .help = help, .usage = usage, .no_operands = true};
    return args_take(&line, argc, argv);
}

/* A paragraph whose lines begin at column `indent`; the cursor is there. */
static void print_wrapped(FILE *to, const char *text, size_t len, unsigned indent)
{
    unsigned column = indent;
    while (len > 0) {
        const char *gap = memchr(text, ' ', len);
        const size_t word = gap ? (size_t)(gap - text) : len;
        if (column > indent && column + 1 + word > HELP_COLUMN) {
            fprintf(to, "\n%*s", (int)indent, "");
            column = indent;
        }
        column += (unsigned)fprintf(to, "%s%.*s", column > indent ? " " : "", (int)word, text);
        text += gap ? word + 1 : word;
        len -= gap ? word + 1 : word;
    }
    putc('\n', to);
}

static void print_text(FILE *to, const char *text, const char *end)
{
    while (text < end) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        const size_t len = (size_t)((line_end ? line_end : end) - text);
        if (text[0] == ' ')
            fprintf(to, "%.*s\n", (int)len, text);
        else
            print_wrapped(to, text, len, 0);
        text += line_end ? len + 1 : len;
    }
}

void args_help(FILE *to, const char *help, const struct arg *options)
{
    const char *here = strchr(help, ARGS_HERE[0]), *end = help + strlen(help);
    unsigned width = 0;
    for (const struct arg *a = options; a && a->spec; a++)
        if (a->help && a->kind != ARGS_HEADING && strlen(a->spec) > width &&
            strlen(a->spec) <= SPEC_WIDE)
            width = (unsigned)strlen(a->spec);
    print_text(to, help, here ? here : end);
    for (const struct arg *a = options; here && a && a->spec; a++) {
        if (!a->help)
            continue;
        if (a->kind == ARGS_HEADING) {
            fprintf(to, "%s%s\n", a == options ? "" : "\n", a->spec);
            continue;
        }
        if (a->help[0] == '\0') {
            fprintf(to, "  %s\n", a->spec);
            continue;
        }
        if (strlen(a->spec) > width)
            fprintf(to, "  %s\n%*s", a->spec, (int)width + 4, "");
        else
            fprintf(to, "  %-*s  ", (int)width, a->spec);
        print_wrapped(to, a->help, strlen(a->help), width + 4);
    }
    if (here)
        print_text(to, here + 1, end);
}
