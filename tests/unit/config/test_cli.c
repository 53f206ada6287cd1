/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the daemon. */
#include "cases.h"
#include "scratch.h"

#include "cli.h"

#include <kvcache/proto.h>

/* What was said on stderr and shown on stdout; the case's process ends with it. */
static char *said, *shown;

/* Parses a command line given as words, ending in NULL. */
static int parse(const char *const *words, struct cli *ret)
{
    char *argv[128] = {(char *)(uintptr_t) "kvcache-daemon"};
    int argc = 1;
    FILE *out = stdout, *err = stderr;
    size_t n;

    free(shown);
    free(said);
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
    stdout = open_memstream(&shown, &n);
    stderr = open_memstream(&said, &n);
    const int rc = cli_parse(argc, argv, ret);
    ck_assert_int_eq(fclose(stdout) | fclose(stderr), 0);
    stdout = out;
    stderr = err;
    return rc;
}

static struct cli parsed(const char *const *words)
{
    struct cli cli;

    ck_assert_msg(parse(words, &cli) == 0, "%s", said);
    return cli;
}

/* "PROGRAM: WHY" and the way to --help. */
static void ck_said(const char *why)
{
    const char *text = strstr(said, ": ");
    ck_assert_ptr_nonnull(text);
    ck_assert_msg(strncmp(text + 2, why, strlen(why)) == 0 && text[2 + strlen(why)] == '\n', "%s",
                  said);
    ck_assert_ptr_nonnull(strstr(said, "--help'.\n"));
}

CASES(.setup = scratch_setup, .teardown = scratch_teardown);

CASE(no_option_is_a_start_with_defaults)
{
    struct cli cli = parsed((const char *const[]){NULL});

    ck_assert_int_eq(cli.action, CLI_RUN);
    ck_assert_ptr_null(cli.config);
    ck_assert_uint_eq(cli.nsets, 0);
}

CASE(options_may_come_in_any_order_and_form)
{
    struct cli cli = parsed((const char *const[]){"--set", "a=1", "--config=x.yaml",
                                                  "--print-config", "--set=b=2=3", NULL});

    ck_assert_int_eq(cli.action, CLI_PRINT_CONFIG);
    ck_assert_str_eq(cli.config, "x.yaml");
    ck_assert_uint_eq(cli.nsets, 2);
    ck_assert_str_eq(cli.sets[0], "a=1");
    ck_assert_str_eq(cli.sets[1], "b=2=3");
}

CASE_EACH(every_action_has_its_option, 3)
{
    static const struct {
        const char *word;
        enum cli_action action;
    } actions[] = {{"--check-config", CLI_CHECK_CONFIG},
                   {"--print-config", CLI_PRINT_CONFIG},
                   {"--check-store=/x", CLI_CHECK_STORE}};

    ck_assert_int_eq(parsed((const char *const[]){actions[_i].word, NULL}).action,
                     actions[_i].action);
}

static const struct {
    const char *words[4];
    const char *expected;
} bad_lines[] = {
    {{"--bogus"}, "'--bogus' is not understood"},
    {{"--set", "a=1", "-x"}, "'-x' is not understood"},
    {{"--config"}, "--config needs a value"},
    {{"--set"}, "--set needs a value"},
    {{"--help=yes"}, "'--help=yes' is not understood: --help takes no value"},
    {{"--json"}, "--json goes with --check-store"},
    {{"--quick", "--check-config"}, "--quick goes with --check-store"},
    {{"--check-store"}, "--check-store needs a value"},
    {{"--check-store=/a", "--print-config"},
     "expected one of --check-store and --print-config, got both"},
    {{"x.yaml"}, "expected options alone, got 'x.yaml'; a file goes after --config"},
    {{"--config=a", "--config=b"}, "--config a and --config b: which of them?"},
    {{"--check-store=/a", "--check-store=/b"},
     "--check-store /a and --check-store /b: which of them?"},
    {{"--config="}, "--config: its value is empty"},
    {{"--c", "x"}, "'--c' is ambiguous: --config, --check-config, --check-store"},
    {{"--check-config", "--print-config"},
     "expected one of --check-config and --print-config, got both"},
};

CASE_EACH(a_bad_line_is_refused_with_what_would_be_right, ARRAY_LEN(bad_lines))
{
    struct cli cli = {.nsets = 77};

    ck_assert_int_eq(parse(bad_lines[_i].words, &cli), CLI_EXIT_USAGE);
    ck_said(bad_lines[_i].expected);
    ck_assert_uint_eq(cli.nsets, 77);
}

CASE(too_many_sets_are_refused)
{
    const char *words[CLI_SETS_MAX + 2];
    struct cli cli;

    for (unsigned i = 0; i <= CLI_SETS_MAX; i++)
        words[i] = "--set=a=1";
    words[CLI_SETS_MAX + 1] = NULL;

    ck_assert_int_eq(parse(words, &cli), CLI_EXIT_USAGE);
    ck_said("expected at most 64 times --set; use a file");
}

CASE(help_explains_every_option_and_key_within_100_columns)
{
    static const char *const options[] = {"--config",       "--set",       "--check-config",
                                          "--print-config", "--version",   "--help",
                                          "SIGTERM",        "Exit status", "--check-store"};
    struct cli cli;

    ck_assert_int_lt(parse((const char *const[]){"-h", NULL}, &cli), 0);
    ck_assert_int_lt(parse((const char *const[]){"--help", NULL}, &cli), 0);
    for (unsigned i = 0; i < ARRAY_LEN(options); i++)
        ck_assert_msg(strstr(shown, options[i]) != NULL, "%s", options[i]);
    OPTION_FOR_EACH (d, config_table, config_table_len)
        ck_assert_msg(strstr(shown, d->key) != NULL && strstr(shown, d->help) != NULL, "%s",
                      d->key);
    for (char *line = shown, *end; (end = strchr(line, '\n')) != NULL; line = end + 1)
        ck_assert_msg(end - line <= 100, "%.*s", (int)(end - line), line);
}

CASE(version_names_the_protocol)
{
    char protocol[64];
    struct cli cli;

    (void)snprintf(protocol, sizeof protocol, "(protocol %u to %u)\n", KVC_PROTO_MIN,
                   KVC_PROTO_MAX);
    ck_assert_int_lt(parse((const char *const[]){"--version", NULL}, &cli), 0);
    ck_assert_int_eq(strncmp(shown, "kvcache-daemon ", 15), 0);
    ck_assert_ptr_nonnull(strstr(shown, protocol));
}
