/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
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
    "\n"
    "  --kind KIND       one of those below (default talks); 'list' prints them alone\n"
    "  --requests N      how many requests (default 4000)\n"
    "  --seed S          which trace (default 1)\n"
    "  --block-tokens N  tokens that one hash id stands for (default 512)\n"
    "  --output FILE     where to (default: stdout)\n"
    "\n"
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

int cmd_gen(int argc, char **argv)
{
    static const struct option options[] = {{"requests", required_argument, NULL, 'n'},
                                            {"kind", required_argument, NULL, 'k'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"block-tokens", required_argument, NULL, 't'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct trace_gen_options gen = {.requests = 4000, .seed = 1, .block_tokens = 512};
    const char *path = NULL, *kind = talks;
    uint64_t block_tokens = gen.block_tokens;
    int c, rc = 0;
    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            rc = opt_count("requests", optarg, 1, 100000000, &gen.requests);
            break;
        case 'k':
            kind = optarg;
            break;
        case 's':
            rc = opt_count("seed", optarg, 0, UINT64_MAX, &gen.seed);
            break;
        case 't':
            rc = opt_count("block-tokens", optarg, 1, KVC_BLOCK_TOKENS_MAX, &block_tokens);
            break;
        case 'o':
            path = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            puts("\nKinds:");
            return list_kinds("  ");
        default:
            return opt_unknown(c, argv);
        }
    }
    if (rc == 0 && optind < argc)
        rc = say_usage("'%s' is not understood", argv[optind]);
    if (rc == 0 && strcmp(kind, "list") == 0)
        return list_kinds("");
    if (rc == 0)
        rc = check_kind(kind);
    if (rc != 0)
        return rc;
    gen.block_tokens = (uint32_t)block_tokens;
    return write_trace(&gen, kind, path);
}
