/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachebench gen: writes a made-up trace of a kind, repeatable by its seed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvcache/proto.h>

#include "bench.h"
#include "trace.h"

static const char help[] =
    "Usage: kvcachebench gen [--kind KIND] [--requests N] [--seed S] [--output FILE]\n"
    "\n"
    "Writes a trace of multi-turn conversations that share system prompts, or of another kind, in\n"
    "the JSONL form that 'kvcachebench replay' and 'simulate' read. The same numbers give the "
    "same\n"
    "trace.\n"
    "\n" ARGS_HERE "\n"
    "Example:\n"
    "  kvcachebench gen --requests 2000 > talks.jsonl\n"
    "  kvcachebench replay talks.jsonl --capacity 10% --block-bytes 64KiB\n";

static const char talks[] = "talks";

static int list_kinds(const char *indent)
{
    const char *name, *text;
    printf("%s%-9s  several turns each, from shared system prompts\n", indent, talks);
    for (unsigned i = 0; (name = trace_kind(i, &text)) != NULL; i++)
        printf("%s%-9s  %s\n", indent, name, text);
    return BENCH_OK;
}

static int check_kind(const char *kind)
{
    const char *name = talks, *text;
    for (unsigned i = 0; name && strcmp(name, kind) != 0; i++)
        name = trace_kind(i, &text);
    return name ? 0 : say_usage("--kind %s: there is none such; 'gen --kind list' has them", kind);
}

static int write_trace(const struct trace_gen_options *options, const char *kind, const char *path)
{
    FILE *to = path ? fopen(path, "we") : stdout;
    if (!to) {
        say_error("%s: %s", path, strerror(errno));
        return BENCH_FAILED;
    }
    int rc = strcmp(kind, talks) == 0 ? trace_generate(options, to)
                                      : trace_generate_kind(options, kind, to);
    if (path && fclose(to) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0)
        return BENCH_OK;
    say_error("%s: %s", path ? path : "stdout", strerror(-rc));
    return BENCH_FAILED;
}

struct gen {
    struct trace_gen_options of;
    const char *path, *kind;
};

static const struct arg option_table[] = {
    {"--kind KIND", "one of those below (default talks); 'list' prints them alone",
     ARG_TEXT(struct gen, kind)},
    {"--requests N", "how many requests (default 4000)",
     ARG_COUNT(struct gen, of.requests, 1, 100000000)},
    {"--seed S", "which trace (default 1)", ARG_COUNT(struct gen, of.seed, 0, UINT64_MAX)},
    {"--block-tokens N", "tokens that one hash id stands for (default 512)",
     ARG_COUNT(struct gen, of.block_tokens, 1, KVC_BLOCK_TOKENS_MAX)},
    {"--output FILE", "where to (default: stdout)", ARG_TEXT(struct gen, path)},
    {0},
};

int cmd_gen(int argc, char **argv)
{
    struct gen gen = {.of = {.requests = 4000, .seed = 1, .block_tokens = 512}, .kind = talks};
    int rc = opt_take_only(argc, argv, option_table, help, &gen);
    if (rc < 0) {
        puts("\nKinds:");
        return list_kinds("  ");
    }
    if (rc == 0 && strcmp(gen.kind, "list") == 0)
        return list_kinds("");
    if (rc == 0)
        rc = check_kind(gen.kind);
    return rc == 0 ? write_trace(&gen.of, gen.kind, gen.path) : rc;
}
