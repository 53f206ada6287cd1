/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "cases.h"

struct taken {
    bool json;
    const char *path, *name, *last;
    uint32_t small;
    uint64_t count, bytes, ms;
    double share;
    uint64_t kilo;
    int parity;
    unsigned tags;
    const char *free;
    bool everything;
};
struct common {
    bool verbose;
};

static char said[256];

__attribute__((format(printf, 1, 2))) static int usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    return 2;
}

static int take_last(void *at, const char *value)
{
    *(const char **)at = value ? value : "none";
    return value && strcmp(value, "bad") == 0 ? 7 : 0;
}

static int parse_parity(const char *value, void *at, const char **ret_why)
{
    *ret_why = "say odd or even";
    *(int *)at = strcmp(value, "odd") == 0 ? 1 : 2;
    return strcmp(value, "odd") == 0 || strcmp(value, "even") == 0 ? 0 : -1;
}

static int take_tag(void *at, const char *value)
{
    (void)value;
    ++*(unsigned *)at;
    return 0;
}

static const struct arg table[] = {
    {"Values:", "", ARG_HEADING},
    {"--json", "for programs", ARG_FLAG(struct taken, json)},
    {"--path FILE", "where", ARG_TEXT(struct taken, path)},
    {"--name NAME", "whose", ARG_NAME(struct taken, name, 4)},
    {"--count N", "how many", ARG_COUNT(struct taken, count, 2, 9)},
    {"--small N", NULL, ARG_COUNT(struct taken, small, 0, UINT32_MAX)},
    {"--bytes SIZE", "how much", ARG_BYTES(struct taken, bytes, 1024, 1 << 20)},
    {"--ttl TIME", "how long", ARG_MS(struct taken, ms, 1, UINT64_MAX)},
    {"--share X", "a part", ARG_NUMBER(struct taken, share, 0, 1)},
    {"--a-name-of-some-length[=WHAT]", "it need not have a value",
     ARG_DO_AT(struct taken, last, take_last)},
    {"--parity WHICH", NULL, ARG_PARSE(struct taken, parity, parse_parity)},
    {"--kilo N", NULL, ARG_KILO(struct taken, kilo, 1, 4096)},
    {"--number N", NULL, ARG_COUNT(struct taken, count, 2, 9)}, /* --count by another name */
    {"--tag TEXT", NULL, ARG_DO_AT(struct taken, tags, take_tag), ARG_REPEATS},
    {"--free TEXT", NULL, ARG_TEXT(struct taken, free), ARG_EMPTY},
    {"--everything", NULL, ARG_FLAG(struct taken, everything), ARG_WHOLE_NAME},
    {"Others:", "", ARG_HEADING},
    {"--verbose", "shown here", ARG_SHOWN},
    {0},
};
static const struct arg shared[] = {{"--verbose", NULL, ARG_FLAG(struct common, verbose)}, {0}};
static const char help[] = "Usage: it\n\nwords\n\n" ARGS_HERE "\nExample:\n  it --json\n";

/* Words of one command line, split at spaces. */
static int take(const char *words, struct taken *t, struct common *c, bool stop_early)
{
    static char copy[256];
    static char *argv[32];
    int argc = 0;
    (void)snprintf(copy, sizeof(copy), "it %s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    *t = (struct taken){0};
    *c = (struct common){0};
    said[0] = '\0';
    const struct command_line line = {.options = table,
                                      .base = t,
                                      .shared = shared,
                                      .shared_base = c,
                                      .help = help,
                                      .usage = usage,
                                      .stop_early = stop_early};
    return args_take(&line, argc, argv);
}

CASE(values_land_in_their_fields)
{
    struct taken t;
    struct common c;
    ck_assert_int_eq(
        take("--json a --path=p --name nora --count 9 --small 4294967295 --bytes 64KiB "
             "--ttl 90s --share 0.5 --verbose b",
             &t, &c, false),
        0);
    ck_assert(t.json && c.verbose);
    ck_assert_str_eq(t.path, "p");
    ck_assert_str_eq(t.name, "nora");
    ck_assert_uint_eq(t.count, 9);
    ck_assert_uint_eq(t.small, UINT32_MAX);
    ck_assert_uint_eq(t.bytes, 65536);
    ck_assert_uint_eq(t.ms, 90000);
    ck_assert_double_eq_tol(t.share, 0.5, 1e-12);
    ck_assert_int_eq(optind, 16); /* the operands, wherever they stood */
    ck_assert_int_eq(take("--parity even --kilo 4K", &t, &c, false), 0);
    ck_assert_int_eq(t.parity, 2);
    ck_assert_uint_eq(t.kilo, 4096);
    ck_assert_int_eq(take("--coun 3 --a-name", &t, &c, false), 0);
    ck_assert_uint_eq(t.count, 3);
    ck_assert_str_eq(t.last, "none");
    ck_assert_int_eq(take("--a-name-of-some-length=x -- --json", &t, &c, false), 0);
    ck_assert_str_eq(t.last, "x");
    ck_assert(!t.json);
    ck_assert_int_eq(take("--verbose verb --json", &t, &c, true), 0);
    ck_assert(c.verbose && !t.json);
    ck_assert_int_eq(optind, 2);
}

CASE(what_is_refused_says_what_would_be_right)
{
    static const struct {
        const char *words, *why;
    } wrong[] = {
        {"--count 1", "--count 1: must be from 2 to 9"},
        {"--count 10", "--count 10: must be from 2 to 9"},
        {"--small 4294967296", "--small 4294967296: must be from 0 to 4294967295"},
        {"--bytes 2MiB", "--bytes 2MiB: must be from 1KiB to 1MiB"},
        {"--ttl 0", "--ttl 0: must be at least 1ms"},
        {"--share 2", "--share 2: must be a number from 0 to 1"},
        {"--share nan", "--share nan: must be a number from 0 to 1"},
        {"--kilo 5K", "--kilo 5K: must be from 1 to 4096"},
        {"--kilo 18014398509481985K", "--kilo 18014398509481985K: must be from 1 to 4096"},
        {"--parity none", "--parity none: say odd or even"},
        {"--name nobody", "--name 'nobody': must be a name of 1 to 4 bytes"},
        {"--name=", "--name '': must be a name of 1 to 4 bytes"},
        {"--count", "--count needs a value"},
        {"--cuont 3", "'--cuont' is not understood; did you mean --count?"},
        {"--json=1", "'--json=1' is not understood: --json takes no value"},
        {"-xh", "'-xh' is not understood"},
        {"--path=", "--path: its value is empty"},
        {"--pa x", "'--pa' is ambiguous: --path, --parity"},
        {"--e=1", "'--e=1' is not understood"},
        {"--everythin", "'--everythin': write --everything in full"},
    };
    struct taken t;
    struct common c;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(take(wrong[i].words, &t, &c, false), 2);
        ck_assert_str_eq(said, wrong[i].why);
        ck_assert_uint_eq(t.count + t.small + t.bytes + t.ms, 0);
        ck_assert_ptr_null(t.name);
    }
    ck_assert_int_eq(take("--count x", &t, &c, false), 2);
    ck_assert_ptr_nonnull(strstr(said, "--count x: "));
    static char name[] = "it", word[] = "word", *argv[] = {name, word, NULL};
    const struct command_line none = {
        .options = table, .base = &t, .help = help, .usage = usage, .no_operands = true};
    ck_assert_int_eq(args_take(&none, 2, argv), 2);
    ck_assert_str_eq(said, "'word' is not understood");
    const struct command_line others = {.options = table, .help = help, .usage = usage};
    static char json[] = "--json";
    argv[1] = json;
    ck_assert_int_eq(args_take(&others, 2, argv), 2); /* listed, and not taken */
    ck_assert_int_eq(take("--a-name-of-some-length=bad", &t, &c, false), 7);
}

/* Only one of them could count; what was taken first stays. */
CASE(a_value_given_again_is_refused)
{
    static const struct {
        const char *words, *why;
    } wrong[] = {
        {"--count 3 --json --count 4", "--count 3 and --count 4: which of them?"},
        {"--count 3 --count 3", "--count 3 and --count 3: which of them?"},
        {"--count 3 --number 4", "--count 3 and --number 4: which of them?"},
        {"--number=3 --coun=4", "--number 3 and --count 4: which of them?"},
        {"--count 3 --path a b --path=c", "--path a and --path c: which of them?"},
        {"--count 3 --name a --name b", "--name a and --name b: which of them?"},
        {"--count 3 --parity odd --parity even", "--parity odd and --parity even: which of them?"},
        {"--count 3 --a-name --a-name=x",
         "--a-name-of-some-length and --a-name-of-some-length x: which of them?"},
    };
    struct taken t;
    struct common c;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_int_eq(take(wrong[i].words, &t, &c, false), 2);
        ck_assert_str_eq(said, wrong[i].why);
        ck_assert_uint_eq(t.count, 3);
    }
    ck_assert_int_eq(take("--tag a --tag b --tag a --json --json", &t, &c, false), 0);
    ck_assert_uint_eq(t.tags, 3);
    ck_assert_int_eq(take("--free= --everything --everything", &t, &c, false), 0);
    ck_assert_str_eq(t.free, "");
    ck_assert(t.everything);
    ck_assert_int_eq(take("--count 5", &t, &c, false), 0); /* each call begins anew */
}

/* What a command line prints, which is served. */
static void served(const char *words, char *ret_text, size_t size)
{
    struct taken t;
    struct common c;
    fflush(stdout);
    const int keep = dup(STDOUT_FILENO);
    FILE *file = tmpfile();
    ck_assert(keep >= 0 && file != NULL);
    ck_assert_int_ge(dup2(fileno(file), STDOUT_FILENO), 0);
    const int rc = take(words, &t, &c, false);
    fflush(stdout);
    ck_assert_int_ge(dup2(keep, STDOUT_FILENO), 0);
    close(keep);
    rewind(file);
    ret_text[fread(ret_text, 1, size - 1, file)] = '\0';
    fclose(file);
    ck_assert_int_eq(rc, -1);
}

/* Those of the shared table and those without help too, and no headings. */
CASE(all_options_are_listed)
{
    char got[1024];
    struct taken t;
    struct common c;
    served("--list-options", got, sizeof(got));
    ck_assert_str_eq(got, "--json\n--path FILE\n--name NAME\n--count N\n--small N\n"
                          "--bytes SIZE\n--ttl TIME\n--share X\n"
                          "--a-name-of-some-length[=WHAT]\n--parity WHICH\n--kilo N\n"
                          "--number N\n--tag TEXT\n--free TEXT\n--everything\n"
                          "--verbose\n--help\n");
    ck_assert_int_eq(take("--list", &t, &c, false), 2);
    ck_assert_int_eq(take("--list-options --json", &t, &c, false), 2);
}

CASE(help_lists_the_table)
{
    static const char expected[] = "Usage: it\n\nwords\n\n"
                                   "Values:\n"
                                   "  --json        for programs\n"
                                   "  --path FILE   where\n"
                                   "  --name NAME   whose\n"
                                   "  --count N     how many\n"
                                   "  --bytes SIZE  how much\n"
                                   "  --ttl TIME    how long\n"
                                   "  --share X     a part\n"
                                   "  --a-name-of-some-length[=WHAT]\n"
                                   "                it need not have a value\n"
                                   "\n"
                                   "Others:\n"
                                   "  --verbose     shown here\n"
                                   "\nExample:\n  it --json\n";
    char got[1024];
    served("--json --help", got, sizeof(got));
    ck_assert_str_eq(got, expected);
}
