/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include <kvcache/proto.h>

#include "bench.h"
#include "trace.h"

static const char help[] =
    "Usage: kvcachebench gen [--requests N] [--seed S] [--output FILE]\n"
    "\n"
    "Writes a trace of multi-turn conversations that share system prompts, in the JSONL form that\n"
    "'kvcachebench replay' reads. The same numbers give the same trace.\n"
    "\n"
    "  --requests N      how many requests (default 4000)\n"
    "  --seed S          which trace (default 1)\n"
    "  --block-tokens N  tokens that one hash id stands for (default 512)\n"
    "  --output FILE     where to (default: stdout)\n"
    "\n"
    "Example:\n"
    "  kvcachebench gen --requests 2000 > talks.jsonl\n"
    "  kvcachebench replay talks.jsonl --capacity 10% --block-bytes 64KiB\n";

static int write_trace(const struct trace_gen_options *options, const char *path)
{
    FILE *to = path ? fopen(path, "we") : stdout;
    if (!to) {
        say_error("%s: %s", path, strerror(errno));
        return BENCH_FAILED;
    }
    int rc = trace_generate(options, to);
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
                                            {"seed", required_argument, NULL, 's'},
                                            {"block-tokens", required_argument, NULL, 't'},
                                            {"output", required_argument, NULL, 'o'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct trace_gen_options gen = {.requests = 4000, .seed = 1, .block_tokens = 512};
    const char *path = NULL;
    uint64_t block_tokens = gen.block_tokens;
    int c, rc = 0;
    opterr = 0;
    while (rc == 0 && (c = getopt_long(argc, argv, ":h", options, NULL)) != -1) {
        switch (c) {
        case 'n':
            rc = opt_count("requests", optarg, 1, 100000000, &gen.requests);
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
            return BENCH_OK;
        default:
            return opt_unknown(c, argv);
        }
    }
    if (rc == 0 && optind < argc)
        rc = say_usage("'%s' is not understood", argv[optind]);
    if (rc != 0)
        return rc;
    gen.block_tokens = (uint32_t)block_tokens;
    return write_trace(&gen, path);
}
