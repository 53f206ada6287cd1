/* SPDX-License-Identifier: Apache-2.0 */
/* kvcachebench: finds the command and runs it. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "out.h"
#include "similar.h"
#include "stdfds.h"
#ifdef KVC_HAVE_BLAS
#include "product.h"
#else
static int cmd_without(int argc, char **argv)
{
    (void)argc, (void)argv;
    say_error("this build has no kvcache-worker, which needs OpenBLAS (Debian: libopenblas-dev)");
    return BENCH_FAILED;
}
#define cmd_ttft       cmd_without
#define cmd_quality    cmd_without
#define cmd_allocation cmd_without
#endif

static const struct bench_cmd commands[] = {
    {"replay", "replay a request trace, check every byte of every hit", cmd_replay},
    {"simulate", "hit ratios of eviction policies on a trace, without a daemon", cmd_simulate},
    {"scan", "what eviction policies keep of a hot set that pauses", cmd_scan},
    {"gen", "write a trace of generated conversations", cmd_gen},
    {"store", "bytes per second from staging into the cache", cmd_store},
    {"load", "bytes per second read in place from the cache", cmd_load},
    {"nvme", "bytes per second from and to storage, beside fio", cmd_nvme},
    {"gpu", "bytes per second to and from a device, without a daemon", cmd_gpu},
    {"pages", "bytes per second into and out of a worker's pages on a device", cmd_pages},
    {"attention", "how fast a CPU or a device attends to KV of each type", cmd_attention},
    {"ttft", "time to the first token: computed, from memory, from storage", cmd_ttft},
    {"quality", "what types of K and of V change in a model's answers", cmd_quality},
    {"allocation", "memory that ways to allocate KV take on a trace's lengths", cmd_allocation},
    {"lookup", "round trips and rate of lookups", cmd_lookup},
    {"reuse", "how soon a waiting worker has a block that another commits", cmd_reuse},
    {"surge", "what many workers compute of one prefix that all ask for", cmd_surge},
    {"fair", "what one client waits while others are greedy", cmd_fair},
    {"churn", "how long stores take while storage reclaims, and what it rewrites", cmd_churn},
    {"idle", "processor time of a daemon that is asked for nothing", cmd_idle},
};

static void print_help(FILE *to)
{
    fputs("Usage: kvcachebench COMMAND [OPTIONS]\n\n"
          "Measures kvcache-daemon, and checks what it serves.\n\nCommands:\n",
          to);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fputs(
        "\n'kvcachebench COMMAND --help' explains one of them. Without --socket PATH each starts\n"
        "a daemon of its own in a private directory and ends it again.\n\n"
        "Examples:\n"
        "  kvcachebench replay conversation_trace.jsonl --workers 2 --capacity 10%\n"
        "  kvcachebench store --compare --json\n",
        to);
}

static int bench_run(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return BENCH_OK;
    }
    if (strcmp(name, "--version") == 0) {
        puts("kvcachebench " KVC_VERSION);
        return BENCH_OK;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            say_set_command(name);
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    if (name[0] == '\0') {
        print_help(stderr);
    } else {
        struct similar similar = similar_to(name);
        for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
            similar_offer(&similar, commands[i].name);
        if (similar.best)
            say_error("no command '%s'; did you mean '%s'?", name, similar.best);
        else
            say_error("no command '%s'", name);
        fputs("Try 'kvcachebench --help'.\n", stderr);
    }
    return BENCH_USAGE;
}

/* Fails if the output could not be written, so that no script takes an empty output for an answer.
 */
int main(int argc, char **argv)
{
#ifdef KVC_HAVE_BLAS
    product_choose_core(argv);
#endif
    const int held = stdfds_hold();
    if (held < 0) {
        say_error("%s", strerror(-held));
        return BENCH_FAILED;
    }
    int code = bench_run(argc, argv);
    const int failed = stdfds_flush();
    if (failed < 0 && code != BENCH_FAILED) {
        say_error("stdout: %s", strerror(-failed));
        code = code == BENCH_OK ? BENCH_FAILED : code;
    }
    return code;
}
